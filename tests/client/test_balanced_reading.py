"""Tests of what ``distribute`` refuses of pipelines whose steps belong to consumers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from zmqdata import Dataset, LocalCluster, distribute, from_dataset_id, register_dataset
from zmqdata.client.splitting import consumers_of, counts_by_task
from zmqdata.dataset import Options
from zmqdata.errors import InvalidArgumentError

NOWHERE = "tcp://nowhere:1"


def steps(**options: Any) -> Dataset:
    """Return steps of four batches."""
    return Dataset.range(100).balance(4, cost=float, batch_size=2, **options)


def read(dataset: Dataset, policy: str = "distributed_epoch", **options: Any) -> Dataset:
    """Return a dataset as the first of four consumers reads it."""
    named: dict[str, Any] = {"consumer_index": 0, "num_consumers": 4, "job_name": "job"}
    return dataset.apply(distribute(policy, NOWHERE, **{**named, "finite": "drop", **options}))


def unordered(dataset: Dataset) -> Dataset:
    """Return the dataset with an option that lets elements pass each other."""
    options = Options()
    options.deterministic = False
    return dataset.with_options(options)


Step = Callable[[Dataset], Dataset]
WHOLE: list[Step] = [
    lambda ds: ds.map(lambda x: x),
    lambda ds: ds.map(lambda x: x, num_parallel_calls=2),
    lambda ds: ds.map(lambda x: x, on_error="retry"),
    lambda ds: ds.random_map(lambda x, rng: x),
    lambda ds: ds.prefetch(2),
    lambda ds: ds.take(8).skip(4),
    lambda ds: ds.take(-1),
    lambda ds: ds.repeat(1),
    lambda ds: unordered(ds.map(lambda x: x, num_parallel_calls=2, deterministic=True)),
    lambda ds: unordered(ds.map(lambda x: x)),
]
TORN: list[tuple[str, Step]] = [
    ("map", lambda ds: ds.map(lambda x: x, on_error="skip")),
    ("map", lambda ds: ds.map(lambda x: x, num_parallel_calls=2, deterministic=False)),
    ("map", lambda ds: unordered(ds.map(lambda x: x, num_parallel_calls=2))),
    ("map", lambda ds: unordered(ds).map(lambda x: x, num_parallel_calls=2)),
    ("take", lambda ds: ds.take(6)),
    ("skip", lambda ds: ds.skip(1)),
    ("repeat", lambda ds: ds.repeat(2)),
    ("filter", lambda ds: ds.filter(lambda x: True)),
    ("shuffle", lambda ds: ds.shuffle(4)),
    ("batch", lambda ds: ds.batch(2)),
    ("unbatch", lambda ds: ds.unbatch()),
    ("ignore_errors", lambda ds: ds.ignore_errors()),
    ("concatenate", lambda ds: ds.concatenate(ds)),
    ("zip", lambda ds: Dataset.zip(ds, ds)),
    ("balance", lambda ds: ds.balance(4, cost=len, batch_size=1)),
]


@pytest.mark.parametrize("step", WHOLE)
def test_operations_that_keep_steps(step: Step) -> None:
    """Between balance and distribute, maps in order, prefetch, and take and skip of
    whole steps are allowed.
    """
    read(step(steps()))
    read(step(steps(collate_fn=len)))


@pytest.mark.parametrize(("name", "step"), TORN)
def test_operations_that_tear_steps(name: str, step: Step) -> None:
    """Anything else there is an error that names the operation and balance."""
    text = rf"^{name}\(.* stands between balance\(4, .* and distribute\(\)"
    if name == "balance":
        text = r"^balance\(4, len\).* stands between balance\(4, float\)"
    with pytest.raises(InvalidArgumentError, match=text):
        read(step(steps()))


def test_passes_without_a_rest_repeat() -> None:
    """A repeat behind balance needs passes of whole steps. Before it, any will do."""
    read(steps(drop_remainder=True).repeat())
    read(Dataset.range(9).repeat().balance(4, cost=float, batch_size=2), finite=None)
    with pytest.raises(InvalidArgumentError, match=r"drop_remainder=True .* or repeat before it"):
        read(steps().repeat())


def test_steps_as_elements_may_be_counted() -> None:
    """Steps as elements need no named consumers, and may be counted."""
    dataset = steps(steps=True).take(3).repeat(2)
    assert consumers_of(dataset.node) is None
    dataset.apply(distribute("distributed_epoch", NOWHERE))
    read(dataset, num_consumers=2)
    with pytest.raises(InvalidArgumentError, match="filter"):
        read(dataset.filter(lambda *x: True))


@pytest.mark.parametrize("policy", ["DATA", "FILE_OR_DATA"])
def test_policies_that_tear_steps(policy: str) -> None:
    """A policy that gives each worker every n-th element is an error."""
    from zmqdata import ShardingPolicy

    with pytest.raises(InvalidArgumentError, match=rf"ShardingPolicy.{policy} .* tears"):
        read(steps(), ShardingPolicy[policy])  # type: ignore[arg-type]  # also by the enum


def test_another_number_of_consumers() -> None:
    """Another number of consumers is an error at ``distribute`` that names both."""
    with pytest.raises(InvalidArgumentError, match=r"deals batches to 4 .*num_consumers=3"):
        read(steps(), num_consumers=3)


@pytest.mark.parametrize("options", [{}, {"deterministic": True}], ids=str)
def test_nobody_says_who_reads(options: dict[str, Any]) -> None:
    """Iterating without ``num_consumers`` is an error, but distributing is not: a
    loader may say it later.
    """
    dataset = steps().map(lambda x: x).apply(distribute("distributed_epoch", NOWHERE, **options))
    with pytest.raises(InvalidArgumentError, match=r"to 4 consumers, and no `num_consumers`"):
        iter(dataset)
    with pytest.raises(InvalidArgumentError, match=r"to 4 consumers, and no `num_consumers`"):
        iter(dataset.map(lambda x: x).prefetch(2))


def test_distribute_before_balance() -> None:
    """After ``distribute`` balance is an error at the call."""
    dataset = Dataset.range(9).apply(distribute("distributed_epoch", NOWHERE)).map(float)
    with pytest.raises(InvalidArgumentError, match=r"balance\(\) stands after distribute"):
        dataset.balance(2, cost=float, batch_size=2)


def test_known_only_by_its_id() -> None:
    """A registered dataset still knows its number of consumers, and one whose steps are
    torn is not registered.
    """
    with LocalCluster(1, in_process=True) as cluster:
        name = register_dataset(cluster.target, steps())
        options: dict[str, Any] = {"consumer_index": 0, "job_name": "job", "finite": "drop"}
        with pytest.raises(InvalidArgumentError, match=r"to 4 consumers, and num_consumers=2"):
            from_dataset_id("distributed_epoch", cluster.target, name, num_consumers=2, **options)
        dataset = from_dataset_id("distributed_epoch", cluster.target, name)
        with pytest.raises(InvalidArgumentError, match=r"to 4 consumers, and no `num_consumers`"):
            iter(dataset)
        with pytest.raises(InvalidArgumentError, match="shuffle"):
            register_dataset(cluster.target, steps().shuffle(3))


def test_batches_of_each_task_are_known() -> None:
    """The number of batches of a task follows from its elements, for ``len`` of a
    loader.
    """
    assert counts_by_task(steps().node, 3) == [4 * 4 + 2, 4 * 4 + 1, 4 * 4 + 1]
    assert counts_by_task(steps(drop_remainder=True).node, 3) == [16, 16, 16]
    budget = Dataset.range(9).balance(4, cost=float, max_cost=9)
    assert counts_by_task(budget.node, 3) is None
