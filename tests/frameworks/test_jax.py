"""``zmqdata.jax``: elements on devices, ahead of the loop: ``make test-torch``."""

from __future__ import annotations

import doctest
import gc
import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from zmqdata import CrossTrainerCache, Dataset, LocalCluster, TensorSpec, distribute
from zmqdata.errors import CancelledError, FailedPreconditionError, InvalidArgumentError
from zmqdata.testing.cluster import await_condition, no_leaks

if importlib.util.find_spec("jax") is None:
    pytest.skip("jax is not installed", allow_module_level=True)
# Read when JAX first looks for devices, which no module does while it is imported.
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

import zmqdata.jax
from zmqdata.jax import device_iterator

pytestmark = pytest.mark.timeout(300)
MESHES = str(Path(__file__).with_name("meshes.py"))
ROWS = Dataset.range(24).map(np.float32)
NUMBERS = Dataset.range(24).map(np.int32)


class Sample(NamedTuple):
    """An element with a name for each part."""

    x: Any
    extra: dict[str, Any]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """A cluster of two worker processes."""
    with LocalCluster(num_workers=2) as made:
        yield made


@pytest.fixture
def rows() -> NamedSharding:
    """Return a sharding that divides rows among four devices."""
    assert jax.device_count() == 4, "another module has looked for devices before"
    return NamedSharding(Mesh(jax.devices(), ("rows",)), PartitionSpec("rows"))


def threads() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name == "zmqdata-feed"]


def await_no_threads() -> None:
    def is_clean() -> bool:
        gc.collect()
        return not threads()

    await_condition(is_clean, what="the end of the threads")


def test_examples_of_the_docstrings() -> None:
    """Each example of the module gives what is written below it."""
    ran = doctest.testmod(zmqdata.jax)
    assert (ran.failed, ran.attempted > 4) == (0, True)


def test_elements_are_on_devices_in_their_nesting() -> None:
    """Dicts, tuples, namedtuples and None stay, and each leaf is an array of JAX."""
    made = NUMBERS.map(lambda i: Sample((i, i + 1), {"b": np.ones(2, bool), "a": None})).take(2)
    first, second = device_iterator(made)
    assert type(first) is Sample
    assert list(first.extra) == ["b", "a"]
    assert first.extra["a"] is None
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(first))
    assert [int(leaf) for leaf in second.x] == [1, 2]
    assert second.extra["b"].dtype == bool


@pytest.mark.parametrize("prefetch", [0, 1, 2, 50])
def test_every_element_comes_once_in_order(prefetch: int) -> None:
    """Each prefetch gives the same elements, and the end stays the end."""
    batches = device_iterator(NUMBERS.batch(5), prefetch=prefetch)
    assert [batch.tolist() for batch in batches] == [
        list(range(24))[at : at + 5] for at in range(0, 24, 5)
    ]
    for _ in range(3):
        with pytest.raises(StopIteration):
            next(batches)


@pytest.mark.parametrize("prefetch", [0, 2])
def test_an_empty_dataset_ends_at_once(prefetch: int) -> None:
    """No element comes, and no thread stays."""
    assert list(device_iterator(NUMBERS.take(0).batch(2), prefetch=prefetch)) == []
    await_no_threads()


def test_each_iterator_reads_the_next_repetition() -> None:
    """An iterator is over after its pass, and another one shuffles anew."""
    shuffled = NUMBERS.shuffle(24).batch(24)
    passes = [next(device_iterator(shuffled)).tolist() for _ in range(2)]
    assert sorted(passes[0]) == sorted(passes[1])
    assert passes[0] != passes[1]


# --- devices


def test_a_sharding_divides_the_rows(rows: NamedSharding) -> None:
    """Each of four devices has its rows of each batch."""
    for number, batch in enumerate(device_iterator(ROWS.batch(8), rows)):
        assert batch.sharding == rows
        shards = {shard.device: shard.data.tolist() for shard in batch.addressable_shards}
        assert list(shards.values()) == [
            [8 * number + at, 8 * number + at + 1] for at in (0, 2, 4, 6)
        ]


def test_each_leaf_may_have_its_sharding(rows: NamedSharding) -> None:
    """A nesting of shardings and devices goes leaf by leaf, and a jitted step accepts
    it.
    """
    whole = NamedSharding(rows.mesh, PartitionSpec())
    element = {"x": np.ones((8, 2), np.float32), "step": np.float32(2), "none": None}
    given = {"x": rows, "step": whole, "none": None}
    batch = next(device_iterator(Dataset.from_tensors(element), given))
    assert (batch["x"].sharding, batch["step"].sharding) == (rows, whole)
    assert float(jax.jit(lambda b: b["x"].sum() * b["step"])(batch)) == 32
    device = jax.devices()[3]
    assert next(device_iterator(ROWS, device)).sharding == SingleDeviceSharding(device)


def test_rows_that_cannot_be_divided(rows: NamedSharding) -> None:
    """The error has the number of rows, that of devices, and the remedy; batches before
    it come.
    """
    with pytest.raises(ValueError, match=r"element has 10 rows.* 4 devices.*drop_remainder=True"):
        next(device_iterator(ROWS.batch(10), rows))
    batches = device_iterator(
        Dataset.from_tensor_slices({"x": np.ones(18, np.int8)}).batch(8), rows
    )
    assert [next(batches)["x"].shape for _ in range(2)] == [(8,), (8,)]
    with pytest.raises(ValueError, match=r"element\['x'\] has 2 rows"):
        next(batches)
    assert len(list(device_iterator(ROWS.batch(16, drop_remainder=True), rows))) == 1


def test_shardings_that_do_not_fit(rows: NamedSharding) -> None:
    """A scalar without rows and a nesting of another form are errors that say so."""
    with pytest.raises(ValueError, match=r"element of shape \(\) .*Batch the elements first"):
        next(device_iterator(ROWS, rows))
    with pytest.raises(ValueError, match=r"`sharding` is nested as .*'y'"):
        next(device_iterator(ROWS.batch(8), {"y": rows}))
    with pytest.raises(TypeError, match=r"sharding must be a jax\.sharding\.Sharding"):
        device_iterator(ROWS.batch(8), "rows")
    more_axes = NamedSharding(rows.mesh, PartitionSpec(*rows.spec, None, None))
    with pytest.raises(ValueError, match=r"element of shape \(8,\) does not fit"):
        next(device_iterator(ROWS.batch(8), more_axes))


def test_elements_that_are_nested_otherwise_are_refused() -> None:
    """An element that is not nested as the first is an error. The next one comes."""
    batches = device_iterator(Dataset.range(4).map(np.int32).map(mixed_up))
    assert next(batches)["x"] == 0
    with pytest.raises(InvalidArgumentError, match=r"not nested alike: one has element\['y'\]"):
        next(batches)
    assert next(batches)["x"] == 2


def mixed_up(x: Any) -> Any:
    """Return a number under another name for the second element."""
    return {"y" if x == 1 else "x": x}


def test_two_processes_read_parts_of_global_arrays(cluster: LocalCluster) -> None:
    """Two processes of two devices each read coordinated batches as global arrays: both
    see the same sums, and no row comes twice.
    """
    told = run_processes(cluster.target)
    steps = [
        [json.loads(line[5:]) for line in out.splitlines() if line.startswith("STEP ")]
        for out in told
    ]
    assert [total for total, _ in steps[0]] == [total for total, _ in steps[1]]
    for (total, first), (_, second) in zip(*steps, strict=True):
        assert total == sum(first + second)
    rows = [row for _, mine in steps[0] + steps[1] for row in mine]
    assert len(set(rows)) == len(rows) >= 24


def test_a_smaller_batch_in_several_processes_is_an_error() -> None:
    """No process waits for ever for rows that another one does not have."""
    for out in run_processes("-"):
        assert out.count("STEP") == 2
        assert "ERROR element has 2 rows, and it had 4 before." in out


def run_processes(service: str) -> list[str]:
    """Return what each of two processes of JAX printed."""
    port = str(free_port())
    ran = [
        subprocess.Popen(
            [sys.executable, MESHES, service, port, str(rank)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        told = [one.communicate(timeout=120) for one in ran]
    finally:
        for one in ran:
            one.kill()
    assert [one.returncode for one in ran] == [0, 0], told
    return [out for out, _ in told]


def free_port() -> int:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        number: int = server.getsockname()[1]
        return number


def test_settings_of_the_thread_that_makes_it() -> None:
    """The default device and 64 bits hold in the thread that reads ahead."""
    device = jax.devices()[2]
    enable = jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64
    with jax.default_device(device), enable(True), warnings.catch_warnings():
        warnings.simplefilter("error")
        batch = next(device_iterator(Dataset.range(4).batch(2)))
    assert batch.devices() == {device}
    assert batch.dtype == np.int64


# --- memory


def aligned(count: int) -> Any:
    """Return an array of int32 whose memory JAX would share."""
    room = np.zeros(4 * count + 64, np.uint8)
    start = -room.ctypes.data % 64
    return room[start : start + 4 * count].view(np.int32)


def test_this_jax_shares_aligned_memory() -> None:
    """``device_put`` shares memory on CPU, so the following tests can fail."""
    array = aligned(1000)
    put = jax.block_until_ready(jax.device_put(array))
    array[:] = 1
    assert int(put[0]) == 1


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("divided", [False, True])
def test_no_memory_of_the_user_is_shared(rows: NamedSharding, prefetch: int, divided: bool) -> None:
    """Later writes of the user change no array that was handed out, and a donated array
    leaves the user's as it was.
    """
    own = aligned(4000)
    source = Dataset.range(3).map(lambda _: own)
    sharding = rows if divided else None
    batches = list(device_iterator(source, sharding, prefetch=prefetch))
    jax.block_until_ready(jax.jit(lambda x: x + 7, donate_argnums=0)(batches.pop()))
    assert not own.any()
    own[:] = 5
    assert not any(np.asarray(batch).any() for batch in batches)


@pytest.mark.parametrize("platforms", [set(), {"cpu"}], ids=["shared", "of its own"])
def test_a_function_may_use_its_buffer_again(
    monkeypatch: pytest.MonkeyPatch, platforms: set[str]
) -> None:
    """A function that writes to the array that it has returned changes no array that
    was handed out, whether devices share memory or read it later.
    """
    monkeypatch.setattr(zmqdata.jax, "_ACCELERATORS", platforms)
    own = aligned(4000)

    def filled(i: Any) -> Any:
        own[:] = i
        return own

    kept = list(device_iterator(Dataset.range(20).map(filled)))
    assert [int(array[0]) for array in kept] == list(range(20))


def test_buffers_of_the_service_are_not_written_again(cluster: LocalCluster) -> None:
    """Many large batches of the service that are kept have the values that they came
    with.
    """
    made = Dataset.range(120).map(lambda i: np.full(60_000, i, np.int32)).batch(2)
    far = made.apply(distribute("distributed_epoch", cluster.target))
    kept, told = [], []
    for batch in device_iterator(far):
        kept.append(batch)
        told.append(np.asarray(batch)[:, 0].tolist())
    assert sorted(chain(*told)) == list(range(120))
    for batch, firsts in zip(kept, told, strict=True):
        assert (np.asarray(batch) == np.array(firsts)[:, None]).all()


# --- dtypes


def test_narrowing_is_said_once_and_names_the_leaves() -> None:
    """A warning at the call, or at the first element where the dtype is known only
    then.
    """
    known = Dataset.from_tensor_slices(
        {"i": np.arange(4), "f": np.ones(4), "s": np.ones(4, np.int8)}
    )
    late = Dataset.range(4).map(lambda i: {"i": i})
    for dataset, places in ((known, "element['f'], element['i']"), (late, "element['i']")):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            batches = device_iterator(dataset)
            assert [batch["i"].dtype.name for batch in batches] == ["int32"] * 4
        assert [Path(one.filename).name for one in told] == ["test_jax.py"]
        assert f"`jax_enable_x64` is not set: {places}." in str(told[0].message)


def test_strict_dtypes_are_an_error() -> None:
    """``dtypes="strict"`` refuses a leaf that would be narrowed, at the earliest
    call.
    """
    with pytest.raises(TypeError, match=r'element is int64.*int32.*"strict".*astype'):
        device_iterator(Dataset.range(3), dtypes="strict")
    late = device_iterator(Dataset.range(3).map(lambda i: (i, float(i))), dtypes="strict")
    with pytest.raises(TypeError, match=r"element\[0\] is int64"):
        next(late)
    assert next(device_iterator(NUMBERS, dtypes="strict")) == 0
    with pytest.raises(ValueError, match='"jax" or "strict", got \'x64\''):
        device_iterator(NUMBERS, dtypes="x64")


@pytest.mark.filterwarnings("ignore:JAX narrows")
@pytest.mark.parametrize("beyond", [2**31, -(2**31) - 1, 2**40])
def test_integers_that_do_not_fit_are_errors(beyond: int) -> None:
    """An integer that 32 bits cannot hold is no other integer, but an error."""
    numbers = device_iterator(Dataset.from_tensor_slices(np.array([2**31 - 1, beyond])))
    assert int(next(numbers)) == 2**31 - 1
    with pytest.raises(OverflowError, match=f"element is int64 and has the value {beyond}"):
        next(numbers)


@pytest.mark.parametrize(
    ("leaf", "words"),
    [
        ("a", "is text of type str"),
        (b"a", "is text of type bytes"),
        (np.array(["a"]), "is str"),
        (np.array([b"a"]), "is bytes"),
        (np.datetime64("2020-01-01"), r"is datetime64\[D\]"),
        (np.zeros(1, [("a", "i4")]), "and JAX has arrays of numbers"),
        (np.longdouble(1), "is float128"),
        (object(), "is an object of type object"),
        (np.array([None]), "is object"),
        (np.ma.array([1, 2], mask=[0, 1]), "masked array.*filled"),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) > 1 else "leaf",
)
def test_leaves_that_jax_does_not_have(leaf: Any, words: str) -> None:
    """The error names the leaf and says what to do, after the elements before it."""
    made = NUMBERS.map(lambda i: {"x": i, "bad": i if i < 1 else leaf})
    elements = device_iterator(made)
    assert next(elements)["x"] == 0
    with pytest.raises(TypeError, match=rf"element\['bad'\] .*{words}"):
        next(elements)


@pytest.mark.parametrize(
    ("dataset", "words"),
    [
        (Dataset.from_tensor_slices(["a", "b"]), "element is str, .*numbers and bools only"),
        (Dataset.from_list([[1], [2, 3]]).ragged_batch(2), "element is a ragged tensor.*padded_batch"),
        (NUMBERS.map(lambda i: (i, [i]), output_spec=(TensorSpec((), np.int32), TensorSpec((1,), str))), r"element\[1\] is str"),
        (Dataset.range(4).window(2), "element is a dataset.*flat_map"),
    ],
    ids=["text", "ragged", "declared", "window"],
)  # fmt: skip
def test_what_a_spec_shows_is_refused_at_the_call(dataset: Dataset, words: str) -> None:
    """No element is read where the spec is known."""
    with pytest.raises(TypeError, match=words):
        device_iterator(dataset)


def test_late_ragged_tensors() -> None:
    """A ragged tensor that no spec showed is an error that says how to pad."""
    late = NUMBERS.map(lambda i: [0] * int(i)).ragged_batch(3).map(lambda ragged: (ragged,))
    with pytest.raises(TypeError, match=r"element\[0\] is a ragged tensor.*to_tensor\(\)"):
        next(device_iterator(late))


def test_arrays_of_both_byte_orders_and_extended_dtypes() -> None:
    """Big-endian numbers keep their values, and bfloat16 its dtype."""
    import ml_dtypes

    element = (np.array([1, 2], ">i4"), np.ones(2, ml_dtypes.bfloat16), True)
    numbers, short, flag = next(device_iterator(Dataset.from_tensors(element)))
    assert numbers.tolist() == [1, 2]
    assert short.dtype == jax.numpy.bfloat16
    assert bool(flag) is True


def test_results_of_jax_in_a_pipeline_are_arrays(cluster: LocalCluster) -> None:
    """Arrays of JAX that a function makes are arrays for the operations behind it, here
    and on workers.
    """

    def made(i: Any) -> Any:
        import jax.numpy as jnp

        return {"x": jnp.arange(3) + int(i), "y": jnp.float32(i)}

    here = NUMBERS.map(made)
    element = next(iter(here))
    assert (type(element["x"]), type(element["y"])) == (np.ndarray, np.float32)
    for dataset in (
        here.batch(4),
        here.batch(4).apply(distribute("parallel_epochs", cluster.target)),
    ):
        batch = next(iter(dataset))
        assert (batch["x"].shape, batch["x"].dtype) == ((4, 3), np.dtype(np.int32))
        on_device = next(device_iterator(dataset))
        assert on_device["x"][1].tolist() == [1, 2, 3]
        assert on_device["y"].tolist() == [0, 1, 2, 3]


# --- reading ahead


class Taps:
    """Counts what a pipeline was asked for, and holds back the elements from ``stop``
    on.
    """

    def __init__(self, stop: int = 1000) -> None:
        self.count, self.stop = 0, stop
        self.opened = threading.Event()

    def __call__(self) -> Iterator[Any]:
        for number in range(24):
            if number >= self.stop:
                self.opened.wait(60)
            self.count += 1
            yield np.int32(number)

    @property
    def dataset(self) -> Dataset:
        return Dataset.from_generator(self, output_signature=TensorSpec((), np.int32))


@pytest.mark.parametrize("prefetch", [1, 2, 5])
def test_no_more_than_prefetch_are_held(prefetch: int) -> None:
    """The pipeline is asked for as many elements as are taken and may be held."""
    taps = Taps()
    elements = device_iterator(taps.dataset, prefetch=prefetch)
    assert taps.count == 0
    for taken in range(1, 5):
        next(elements)
        await_condition(lambda: taps.count == taken + prefetch, what="the elements ahead")  # noqa: B023
    with pytest.raises(TimeoutError):
        await_condition(lambda: taps.count > 4 + prefetch, deadline=0.2)


def test_nothing_is_held_back() -> None:
    """An element that was read is there while the next one does not come."""
    taps = Taps(stop=2)
    elements = device_iterator(taps.dataset, prefetch=3)
    assert [int(next(elements)) for _ in range(2)] == [0, 1]
    taps.opened.set()
    assert [int(element) for element in elements] == list(range(2, 24))


def test_no_prefetch_reads_when_asked() -> None:
    """Nothing is read ahead with ``prefetch=0``, and there is no thread."""
    await_no_threads()
    taps = Taps()
    elements = device_iterator(taps.dataset, prefetch=0)
    assert [int(next(elements)) for _ in range(3)] == [0, 1, 2]
    assert (taps.count, threads()) == (3, [])


@pytest.mark.parametrize("prefetch", [0, 3])
def test_errors_come_in_their_place(prefetch: int) -> None:
    """An error of the pipeline is raised after the elements before it, and the next
    call goes on behind it.
    """
    elements = device_iterator(NUMBERS.map(lambda i: np.int32(6 // int(i - 2))), prefetch=prefetch)
    assert [int(next(elements)) for _ in range(2)] == [-3, -6]
    with pytest.raises(Exception, match="ZeroDivisionError"):
        next(elements)
    assert int(next(elements)) == 6


@pytest.mark.parametrize(
    ("prefetch", "kind", "words"),
    [
        (-1, InvalidArgumentError, "prefetch must be at least 0, got -1"),
        (True, TypeError, "prefetch must be an int, got True"),
        (1.5, TypeError, "prefetch must be an int, got 1.5"),
        (None, TypeError, "prefetch must be an int, got None"),
    ],
)
def test_bad_prefetch(prefetch: Any, kind: type[Exception], words: str) -> None:
    """Only whole numbers from 0 on are accepted."""
    with pytest.raises(kind, match=words):
        device_iterator(NUMBERS, prefetch=prefetch)


def test_only_datasets_are_read() -> None:
    """Anything else is refused, with what came."""
    with pytest.raises(TypeError, match=r"ds must be a Dataset, got \[1\] of type list"):
        device_iterator([1])  # type: ignore[arg-type]


# --- states


@pytest.mark.parametrize("prefetch", [0, 1, 4])
@pytest.mark.parametrize("taken", [0, 1, 5, 12])
def test_a_state_leaves_out_what_was_read_ahead(prefetch: int, taken: int) -> None:
    """An iterator with the state has exactly the elements that were not taken, also a
    plain iterator.
    """
    dataset = NUMBERS.shuffle(10).batch(2)
    elements = device_iterator(dataset, prefetch=prefetch)
    for _ in range(taken):
        next(elements)
    state = elements.state_dict()
    rest = [batch.tolist() for batch in elements]
    assert len(rest) == 12 - taken
    again = device_iterator(dataset)
    next(again)
    again.load_state_dict(state)
    assert again.state_dict() == state
    assert [batch.tolist() for batch in again] == rest
    plain = iter(dataset)
    plain.load_state_dict(state)
    assert [batch.tolist() for batch in plain] == rest


def test_a_state_of_the_service_is_exact(cluster: LocalCluster) -> None:
    """A distributed reading that goes on from a state has each row once in all."""
    dataset = NUMBERS.repeat(10).batch(3).apply(distribute("distributed_epoch", cluster.target))
    had: list[int] = []
    state: dict[str, Any] = {}
    for stop in (7, 20, 1000):
        elements = device_iterator(dataset, prefetch=4)
        if state:
            elements.load_state_dict(state)
        for _, batch in zip(range(stop), elements, strict=False):
            had += batch.tolist()
        state = elements.state_dict()
        elements.close()
    assert sorted(had) == sorted([*range(24)] * 10)


def test_a_state_that_is_refused_changes_nothing() -> None:
    """The state of another pipeline is an error, and the iterator goes on."""
    elements = device_iterator(NUMBERS.batch(2), prefetch=3)
    next(elements)
    with pytest.raises(FailedPreconditionError, match="another pipeline"):
        elements.load_state_dict(device_iterator(NUMBERS.batch(3)).state_dict())
    with pytest.raises(InvalidArgumentError, match="a state must be a dict"):
        elements.load_state_dict({"a": 1})
    assert next(elements).tolist() == [2, 3]
    elements.close()
    with pytest.raises(FailedPreconditionError, match=r"closed.*Make a new one"):
        elements.load_state_dict(elements.state_dict())


def test_loading_while_the_pipeline_is_slow() -> None:
    """A state is loaded while the thread waits for an element, which is dropped when it
    comes.
    """
    taps = Taps(stop=3)
    elements = device_iterator(taps.dataset, prefetch=1)
    begin = elements.state_dict()
    assert [int(next(elements)) for _ in range(3)] == [0, 1, 2]
    opener = threading.Timer(0.3, taps.opened.set)
    opener.start()
    elements.load_state_dict(begin)
    assert [int(element) for element in elements] == list(range(24))
    opener.join()


def test_a_pipeline_without_a_state(cluster: LocalCluster) -> None:
    """The reason why there is no state is raised by ``state_dict``, not while
    reading.
    """
    cached = distribute(
        "parallel_epochs",
        cluster.target,
        job_name="cached",
        cross_trainer_cache=CrossTrainerCache("a"),
    )
    with device_iterator(NUMBERS.repeat().batch(2).apply(cached)) as elements:
        assert next(elements).shape == (2,)
        with pytest.raises(FailedPreconditionError, match="cross_trainer_cache has no state"):
            elements.state_dict()


# --- the end


def test_leaving_early_ends_the_thread() -> None:
    """An iterator that is dropped in the middle leaves no thread and no file."""
    with no_leaks():
        for batch in device_iterator(ROWS.repeat().batch(2).prefetch(2), prefetch=3):
            assert batch.tolist() == [0, 1]
            break
        del batch
        gc.collect()
        await_no_threads()


def test_leaving_the_service_early(cluster: LocalCluster) -> None:
    """Dropped, closed and left: nothing of a distributed reading stays."""
    far = ROWS.repeat().batch(2).apply(distribute("parallel_epochs", cluster.target))
    next(iter(far))  # The threads of the process's sockets stay.
    with no_leaks():
        next(device_iterator(far))
        gc.collect()
        elements = device_iterator(far)
        next(elements)
        elements.close()
        elements.close()
        with pytest.raises(StopIteration):
            next(elements)
        with device_iterator(far) as within:
            next(within)
        with pytest.raises(StopIteration):
            next(within)
        await_no_threads()
        del elements, within
        gc.collect()


def test_closing_ends_the_wait_of_another_thread() -> None:
    """A thread that waits for an element gets a ``CancelledError``, and so does each
    later call in it.
    """
    taps = Taps(stop=0)
    elements, raised = device_iterator(taps.dataset), []

    def wait() -> None:
        for _ in range(2):
            with pytest.raises(CancelledError) as told:
                next(elements)
            raised.append(str(told.value))

    waiting = threading.Thread(target=wait)
    waiting.start()
    await_condition(threads, what="the thread of the iterator")
    opener = threading.Timer(0.2, taps.opened.set)
    opener.start()
    elements.close()
    waiting.join(30)
    opener.join()
    assert len(raised) == 2
    await_no_threads()


def test_threads_share_an_iterator() -> None:
    """Each element goes to one of four threads."""
    elements = device_iterator(Dataset.range(400).map(np.int32))
    had: list[list[int]] = [[] for _ in range(4)]

    def read(mine: list[int]) -> None:
        mine.extend(int(element) for element in elements)

    readers = [threading.Thread(target=read, args=(mine,)) for mine in had]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(60)
    assert sorted(chain(*had)) == list(range(400))


def test_an_interrupt_loses_nothing() -> None:
    """Ctrl-C while the loop waits is raised there, and the loop can go on."""
    taps = Taps(stop=2)
    elements = device_iterator(taps.dataset)
    assert [int(next(elements)) for _ in range(2)] == [0, 1]
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(0.3, signal.pthread_kill, (main, signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        next(elements)
    taps.opened.set()
    assert [int(element) for element in elements] == list(range(2, 24))


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)


def test_a_program_ends_with_open_iterators() -> None:
    """A program that leaves iterators open ends by itself and says nothing."""
    ran = run(
        "import numpy as np, zmqdata, zmqdata.jax\n"
        "ds = zmqdata.Dataset.range(9).repeat().map(np.float32).batch(4)\n"
        "left = [zmqdata.jax.device_iterator(ds, prefetch=n) for n in (0, 1, 4)]\n"
        "print([next(one).shape for one in left])\n"
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "[(4,), (4,), (4,)]\n", "")


def test_a_forked_child_cannot_read_on() -> None:
    """The child of a fork gets an error that says what to do, and ends well."""
    ran = run(
        "import os, warnings, numpy as np, zmqdata, zmqdata.jax\n"
        "warnings.simplefilter('ignore')\n"
        "ds = zmqdata.Dataset.range(9).map(np.float32).batch(4)\n"
        "it = zmqdata.jax.device_iterator(ds)\n"
        "next(it)\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    try:\n"
        "        next(it)\n"
        "    except RuntimeError as error:\n"
        "        print(error, flush=True)\n"
        "    it.close()\n"
        "    del it\n"
        "    os._exit(3)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), len(list(it)))\n"
    )
    assert "This device iterator belongs to process" in ran.stdout
    assert ran.stdout.endswith("\n3 2\n"), ran.stderr


def test_it_tells_why_the_loop_waits(cluster: LocalCluster) -> None:
    """The iterator has the numbers of the reading from the service. Of a local dataset
    it has none, and says so.
    """
    far = NUMBERS.batch(2).apply(distribute("distributed_epoch", cluster.target))
    with device_iterator(far) as batches:
        count = len(list(batches))
        found = batches.stats()
        assert found["data/elements"] == count
        assert {"data/verdict", "data/advice"} <= found.keys()
        assert "data/verdict" not in batches.stats(scalars=True)
    with device_iterator(NUMBERS) as batches:
        next(batches)
        with pytest.raises(FailedPreconditionError, match="is not distributed"):
            batches.stats()
