"""Facts about randomness in a job: it is new in each iteration, shared by all tasks of
the job, and the same after a failure.
"""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.kit.service import WatchedService
from tests.service.simulated.parts import moved_tasks
from zmqdata import Dataset, ExternalStatePolicy, Options, ShardingPolicy, set_random_seed
from zmqdata.client import registration
from zmqdata.dataset import seeds
from zmqdata.errors import FailedPreconditionError, InvalidArgumentError, UnimplementedError

MODES = ["distributed_epoch", "parallel_epochs"]


@pytest.fixture(autouse=True)
def no_warning_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin as a program that no warning has been said to."""
    monkeypatch.setattr(registration, "_warned", set())


def texts(dataset: Any) -> list[str]:
    return [str(element) for element in dataset]


def files(folder: Path, count: int = 20) -> str:
    for number in range(count):
        (folder / f"{number:02}.txt").touch()
    return f"{folder}/*.txt"


UNSEEDED: dict[str, Callable[[Path], Dataset]] = {
    "shuffle": lambda folder: Dataset.range(20).shuffle(20),
    "from_source": lambda folder: Dataset.from_source(range(20), shuffle=True),
    "list_files": lambda folder: Dataset.list_files(files(folder)),
    "random": lambda folder: Dataset.random(rerandomize_each_iteration=True).take(20),
    "sample": lambda folder: Dataset.sample_from_datasets(
        [Dataset.range(20), Dataset.range(20, 40)]
    ),
    "random_map": lambda folder: Dataset.range(20).random_map(lambda x, rng: rng.integers(10**6)),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", UNSEEDED)
def test_unseeded_draws_are_new_in_each_iteration(
    make_service: Callable[..., WatchedService], tmp_path: Path, name: str, mode: str
) -> None:
    """Operations without a seed draw anew for each iteration of a job, and for each
    job.
    """
    service = make_service(workers=1)
    dataset = UNSEEDED[name](tmp_path)
    one, other = service.read(dataset, mode), service.read(dataset, mode)
    assert len({tuple(texts(reading)) for reading in (one, one, other)}) == 3


ONCE: dict[str, Callable[[Path], Dataset]] = {
    "shuffle": lambda folder: Dataset.range(50).shuffle(50, reshuffle_each_iteration=False),
    "buffer": lambda folder: Dataset.range(50).shuffle(9, reshuffle_each_iteration=False),
    "from_source": lambda folder: Dataset.from_source(
        range(50), shuffle=True, reshuffle_each_iteration=False
    ),
    "list_files": lambda folder: (
        Dataset.list_files(files(folder), shuffle=False)
        .shuffle(20, reshuffle_each_iteration=False)
        .map(number_of)
    ),
    "flat_map": lambda folder: Dataset.range(5).flat_map(
        lambda x: Dataset.range(x * 10, x * 10 + 10).shuffle(10, reshuffle_each_iteration=False)
    ),
}


@pytest.mark.parametrize("name", ONCE)
def test_parts_of_an_order_stay_apart(
    make_service: Callable[..., WatchedService], tmp_path: Path, name: str
) -> None:
    """An order that is drawn once, without a seed, is the same in all jobs, copies and
    repetitions: training data never contains test data.
    """
    service = make_service(workers=2)
    whole = ONCE[name](tmp_path)
    train, test = whole.take(13).batch(3).unbatch(), whole.skip(13)
    for _ in range(2):
        first = service.read(train, MODES[1])
        assert sorted(map(int, first)) == sorted(map(int, first)) == sorted(ints(train) * 2)
        assert {*map(int, service.read(test, MODES[1]))} == {*ints(test)}


def number_of(name: str) -> int:
    """Return the number of one of ``files``."""
    return int(name[-6:-4])


@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        *itertools.product(["shuffle", "from_source", "mapped", "list_files"], [None, 3]),
        ("sorted files", None),
    ],
)
def test_tasks_share_a_part_of_an_order(
    make_service: Callable[..., WatchedService], tmp_path: Path, kind: str, seed: int | None
) -> None:
    """Tasks that share an order that stays read each element of a part once, however
    many they are, and its elements are those of a local reading.
    """
    given: dict[str, Any] = {"seed": seed, "reshuffle_each_iteration": False}
    whole = {
        "shuffle": lambda: Dataset.range(50).shuffle(50, **given),
        "from_source": lambda: Dataset.from_source(range(50), shuffle=True, **given),
        "mapped": lambda: (
            Dataset.from_tensor_slices(np.arange(50))
            .shuffle(100, **given)
            .random_map(lambda x, rng: x, seed=1)
            .prefetch(1)
        ),
        "list_files": lambda: (
            Dataset.list_files(files(tmp_path, 50), shuffle=False)
            .shuffle(9, **given)
            .map(number_of)
        ),
        "sorted files": lambda: Dataset.list_files(files(tmp_path, 50), shuffle=False).map(
            number_of
        ),
    }[kind]()
    service = make_service(workers=3)
    parts = [
        whole.take(30).repeat(2),
        whole.skip(30).batch(4).unbatch(),
        whole.take(45).map(int).skip(10),
        whole.skip(60),
        whole.take(-1),
    ]
    for part in parts:
        assert sorted(map(int, service.read(part))) == sorted(ints(part))


@pytest.mark.parametrize("kind", ["own", "shuffle", "both"])
def test_tasks_share_a_part_of_each_order_of_files(
    make_service: Callable[..., WatchedService], tmp_path: Path, kind: str
) -> None:
    """In each reading, parts of names with the user's seed are those of the same local
    reading, even if it orders them anew.
    """
    pattern = files(tmp_path, 50)
    whole = {
        "own": lambda: Dataset.list_files(pattern, seed=3),
        "shuffle": lambda: Dataset.list_files(pattern, shuffle=False).shuffle(9, seed=3),
        "both": lambda: Dataset.list_files(pattern, seed=3).shuffle(
            50, seed=4, reshuffle_each_iteration=False
        ),
    }[kind]()
    service = make_service(workers=3)
    train, test = whole.take(40).repeat(2), whole.skip(40)
    jobs, readings = (service.read(train), service.read(test)), []
    for _ in range(2):
        parts = [sorted(job) for job in jobs]
        assert parts == [sorted(train), sorted(test)]
        readings.append(parts)
    assert readings[0] != readings[1]


def test_unseeded_names_are_counted_once(
    make_service: Callable[..., WatchedService], tmp_path: Path
) -> None:
    """Tasks share the first names of an order that each reading draws anew."""
    first = make_service(workers=3).read(Dataset.list_files(files(tmp_path)).take(13))
    readings = [[*first], [*first]]
    assert [len({*names}) for names in readings] == [len(names) for names in readings] == [13, 13]
    assert {*readings[0]} != {*readings[1]}


def test_parts_of_files_survive_a_restart(
    make_service: Callable[..., WatchedService], tmp_path: Path
) -> None:
    """A dispatcher that restarts continues the parts of an order of files, and draws
    later parts from the same order.
    """
    whole = Dataset.list_files(files(tmp_path, 50), shuffle=False)
    whole = whole.shuffle(50, reshuffle_each_iteration=False).map(number_of)
    service = make_service(workers=3, journalled=True)
    train, iterator = whole.take(40).repeat(3), iter(service.read(whole.take(40).repeat(3)))
    found = [int(next(iterator)) for _ in range(10)]
    service.restart_dispatcher(1.0)
    found += map(int, iterator)
    assert sorted(found) == sorted(ints(train))
    assert sorted(map(int, service.read(whole.skip(40)))) == sorted(ints(whole.skip(40)))


def test_tasks_must_not_count_parts_of_an_order(
    make_service: Callable[..., WatchedService], tmp_path: Path
) -> None:
    """A limit behind an order that stays is refused where each task would count what it
    gets: its other part would overlap.
    """
    service = make_service(workers=1, journalled=True)
    for name in ("buffer", "list_files"):
        limited = ONCE[name](tmp_path).batch(2).take(3)
        with pytest.raises(InvalidArgumentError, match=r"take\(3\).* whatever the `seed=`"):
            service.read(limited)
        with pytest.raises(UnimplementedError, match="whatever the `seed=`"):
            service.save(limited, str(tmp_path / "save"))
        assert len(texts(service.read(limited, MODES[1]))) == 3
    again = Dataset.range(50).shuffle(9).batch(2).take(3)
    assert len(texts(service.read(again))) == 3
    varying = Dataset.list_files(files(tmp_path)).shuffle(20, reshuffle_each_iteration=False)
    with pytest.raises(InvalidArgumentError, match="names of files have an order that stays"):
        service.read(varying.take(3))


def ints(dataset: Dataset) -> list[int]:
    return [int(x) for x in dataset]


@pytest.mark.parametrize(("name", "count"), [("shuffle", 40), ("list_files", 15)])
def test_a_restored_job_keeps_the_order_of_its_state(
    make_service: Callable[..., WatchedService],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    name: str,
    count: int,
) -> None:
    """Another program that loads the state of a job reads the rest of the same order,
    and draws its other parts from this order, too.
    """
    service = make_service(workers=1)
    then = ONCE[name](tmp_path)
    iterator = iter(service.read(then.take(count)))
    first = [int(next(iterator)) for _ in range(10)]
    state = iterator.state_dict()
    rest, test = [*map(int, iterator)], [*map(int, service.read(then.skip(count)))]
    assert {*first, *rest} == {*ints(then.take(count))}
    iterator.close()
    monkeypatch.setattr(seeds, "_seeds", seeds._Seeds())
    seeds._seeds.fixed = 3
    ONCE[name](tmp_path)
    now = ONCE[name](tmp_path)
    train, held = service.read(now.take(count)), service.read(now.skip(count))
    again = iter(train)
    again.load_state_dict(state)
    assert [*map(int, again)] == rest
    assert [*map(int, train)] == first + rest
    assert [*map(int, held)] == test


SEEDED: dict[str, Callable[[Path, int], Dataset]] = {
    "shuffle": lambda folder, seed: Dataset.range(20).shuffle(20, seed=seed),
    "from_source": lambda folder, seed: Dataset.from_source(range(20), shuffle=True, seed=seed),
    "list_files": lambda folder, seed: Dataset.list_files(files(folder), seed=seed),
    "random": lambda folder, seed: Dataset.random(seed=seed, rerandomize_each_iteration=True).take(
        20
    ),
    "sample": lambda folder, seed: Dataset.sample_from_datasets(
        [Dataset.range(20), Dataset.range(20, 40)], seed=seed, rerandomize_each_iteration=True
    ),
    "random_map": lambda folder, seed: Dataset.range(20).random_map(
        lambda x, rng: rng.integers(10**6), seed=seed
    ),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", SEEDED)
def test_seeded_draws_follow_from_seed_and_repetition(
    make_service: Callable[..., WatchedService], tmp_path: Path, name: str, mode: str
) -> None:
    """The n-th reading with the user's seed is the same in every job, and equal to a
    local reading; a shuffle of a whole source, which all workers share, has its own
    order.
    """
    service = make_service(workers=1)
    dataset = SEEDED[name](tmp_path, 3)
    one, other, local = (
        service.read(dataset, mode),
        service.read(dataset, mode),
        SEEDED[name](tmp_path, 3),
    )
    first, second = texts(one), texts(one)
    assert first != second
    assert [texts(other), texts(other)] == [first, second]
    is_global = (name, mode) == ("shuffle", "distributed_epoch")
    assert ([texts(local), texts(local)] == [first, second]) != is_global


def test_tasks_share_one_permutation(make_service: Callable[..., WatchedService]) -> None:
    """A source in a random order that several workers share gives each element once, in
    every repetition.
    """
    service = make_service(workers=3)
    dataset = service.read(Dataset.from_source(range(2000), shuffle=True).repeat(2))
    for _ in range(2):
        assert sorted(map(int, dataset)) == sorted([*range(2000)] * 2)


def test_copies_draw_for_themselves(make_service: Callable[..., WatchedService]) -> None:
    """Each worker's copy has an order of its own in mode OFF."""
    service = make_service(workers=2)
    orders = set()
    ds = Dataset.from_source(range(20), shuffle=True).batch(20)
    for batch in service.read(ds, "parallel_epochs"):
        orders.add(tuple(batch.tolist()))
        assert sorted(batch.tolist()) == list(range(20))
    assert len(orders) == 2


def test_tasks_shuffle_for_themselves(make_service: Callable[..., WatchedService]) -> None:
    """The shuffle buffers of two tasks draw different positions."""
    service = make_service(workers=2)
    ds = Dataset.counter().map(lambda x: int(x)).take(20).shuffle(20).batch(20)
    orders = {tuple(batch.tolist()) for batch in service.read(ds)}
    assert len(orders) == 2


def test_random_numbers_are_drawn_once(make_service: Callable[..., WatchedService]) -> None:
    """random() assigns two workers positions of a single stream of numbers, none of
    them twice.
    """
    service = make_service(workers=2)
    found = texts(service.read(Dataset.random(seed=1).take(500)))
    assert len(set(found)) == len(found) == 1000
    stream = Dataset.random(seed=1).take(100_000)
    assert set(found) <= set(texts(stream))


def test_jobs_have_random_numbers_of_their_own(
    make_service: Callable[..., WatchedService],
) -> None:
    """Without a seed, random() has other numbers in each job."""
    service = make_service(workers=2)
    numbers = Dataset.random().take(20)
    first, second = (set(texts(service.read(numbers))) for _ in range(2))
    assert not first & second


@pytest.mark.parametrize("name", ["shuffle", "from_source"])
def test_a_new_host_draws_the_same(make_service: Callable[..., WatchedService], name: str) -> None:
    """A task that continues elsewhere makes the same elements again: nothing is lost,
    and nothing comes twice.
    """
    service = make_service(workers=1)
    sources = {
        "shuffle": Dataset.range(15_000).shuffle(1000),
        "from_source": Dataset.from_source(range(15_000), shuffle=True),
    }
    it = iter(service.read(sources[name].map(lambda x: x), data_transfer_protocol="tcp"))
    found = [int(next(it)) for _ in range(100)]
    service.add_worker()
    service.workers[0].stop()
    assert len(moved_tasks(service)) == 1
    found += map(int, it)
    assert sorted(found) == list(range(15_000))


def drawn(dataset: Dataset) -> Dataset:
    return dataset.random_map(lambda x, rng: (int(x), float(rng.random())), seed=7)


SHARED: dict[str, Dataset] = {
    "range": drawn(Dataset.range(60)),
    "shuffled whole": drawn(Dataset.range(60).shuffle(60)),
    "shuffled part": drawn(Dataset.range(60).shuffle(7, seed=3)),
    "permuted": drawn(Dataset.from_source(range(60), shuffle=True)),
    "threads": drawn(Dataset.range(60).filter(lambda x: x > 5).map(abs, num_parallel_calls=2)),
    "repeated": drawn(Dataset.range(20).enumerate().repeat(3).map(lambda i, x: x)),
    "nested": Dataset.range(20).flat_map(
        lambda i: drawn(Dataset.range(3).map(lambda x: int(3 * i + x)))
    ),
    "sampled": drawn(
        Dataset.sample_from_datasets([Dataset.range(30), Dataset.range(30, 60)], seed=1)
    ),
    "resampled": Dataset.range(200)
    .rejection_resample(lambda x: x % 2, [0.2, 0.8], [0.5, 0.5], seed=3)
    .map(lambda kind, x: (int(x), 0.0)),
}


@pytest.mark.parametrize("name", SHARED)
def test_each_element_has_the_draws_of_a_local_reading(
    make_service: Callable[..., WatchedService], name: str
) -> None:
    """Each element gets the draws that it gets locally with a user's seed, whichever
    task makes it, in any order of delivery.
    """
    service = make_service(workers=3)
    expected = sorted(SHARED[name])
    assert len({value for _, value in expected}) in (len(expected), 1)
    assert sorted(service.read(SHARED[name])) == expected
    assert sorted(service.read(SHARED[name], deterministic=True, num_tasks=5)) == expected


def test_tasks_draw_independently(make_service: Callable[..., WatchedService]) -> None:
    """A user's seed gives no two tasks the same draws: neither for elements that are
    counted, nor for copies of the input, nor for the choice of datasets.
    """
    service = make_service(workers=3)
    windows = Dataset.range(60).window(2).flat_map(lambda window: window.batch(2))
    counted = windows.map(lambda pair: pair[0]).apply(drawn)
    for dataset, mode in ((counted, "distributed_epoch"), (drawn(Dataset.range(20)), "OFF")):
        draws = [value for _, value in service.read(dataset, getattr(ShardingPolicy, mode, mode))]
        assert len(set(draws)) == len(draws) >= 30


def test_a_promised_order_repeats_its_draws(make_service: Callable[..., WatchedService]) -> None:
    """A run in a promised order repeats the draws for elements without names, too, on
    another number of workers, and each pass draws anew.
    """
    dataset = (
        Dataset.range(60).window(2).flat_map(lambda window: window).map(int)
        .rejection_resample(lambda x: x % 2, [0.4, 0.6], seed=1).map(lambda kind, x: x)
        .apply(drawn)
    )  # fmt: skip
    passes = []
    for workers in (1, 3):
        reading = make_service(workers).read(dataset, deterministic=True, num_tasks=4)
        passes.append([list(reading), list(reading)])
    assert passes[0] == passes[1]
    first, second = ({value for _, value in one} for one in passes[0])
    assert first.isdisjoint(second)


def test_a_new_host_keeps_what_draws_decided(
    make_service: Callable[..., WatchedService],
) -> None:
    """A filter on draws keeps the same elements on another host, whether elements have
    names or are counted.
    """
    windows = Dataset.range(2_000).window(2).flat_map(lambda window: window)
    dataset = drawn(windows).filter(lambda x, value: value < 0.5)
    large = dataset.map(lambda x, value: (x, value, bytes(20_000)))  # not all are sent at once
    options: dict[str, Any] = {"deterministic": True, "data_transfer_protocol": "tcp"}
    expected = list(make_service(workers=1).read(dataset, **options))
    service = make_service(workers=1)
    it = iter(service.read(large, compression=None, **options))
    found = [next(it)[:2] for _ in range(100)]
    service.add_worker()
    service.workers[0].stop()
    assert any(task["attempt"] > 1 for task in service.status()["tasks"])
    assert [*found, *(element[:2] for element in it)] == expected


def holding(count: int) -> Dataset:
    """Return a dataset whose functions hold generators."""
    rng, coin = np.random.default_rng(42), random.Random(42)
    return (
        Dataset.range(count)
        .filter(lambda x: coin.random() < 0.5)
        .map(lambda x: (int(x), float(rng.random())))
    )


def making(count: int) -> Dataset:
    """Return a dataset whose functions make generators, and keep them."""

    class Noise:
        rng: Any = None

        def __call__(self, x: Any) -> tuple[int, float]:
            self.rng = self.rng or np.random.default_rng(42)
            return int(x), float(self.rng.random())

    @functools.lru_cache
    def coin() -> random.Random:
        return random.Random(42)

    return Dataset.range(count).filter(lambda x: coin().random() < 0.5).map(Noise())


def test_what_functions_make_is_seeded_for_each_task_and_pass(
    make_service: Callable[..., WatchedService],
) -> None:
    """No draw of a generator that a function makes when it is called comes again, in
    the pass or in the next one, but that of the first element of each of six tasks.
    """
    dataset = make_service(workers=3).read(making(200))
    passes = [list(dataset), list(dataset)]
    draws = [value for one in passes for _, value in one]
    assert len(set(draws)) + 5 == len(draws) > 120
    assert {x for x, _ in passes[0]} != {x for x, _ in passes[1]}


def test_a_captured_generator_is_seeded_for_each_task_and_pass(
    make_service: Callable[..., WatchedService],
) -> None:
    """No draw of a generator that a function holds comes again, in the pass or in the
    next one, and a single warning of the client names all generators.
    """
    service = make_service(workers=3)
    with pytest.warns(UserWarning, match="Use random_map") as warned:
        dataset = service.read(holding(200))
    (warning,) = warned
    assert {"coin", "rng"} <= set(str(warning.message).split("`"))
    service.read(holding(200))
    assert len(warned) == 1
    passes = [list(dataset), list(dataset)]
    draws = [value for one in passes for _, value in one]
    assert len(set(draws)) == len(draws) > 120
    assert {x for x, _ in passes[0]} != {x for x, _ in passes[1]}


@pytest.mark.filterwarnings("error")
def test_a_policy_decides_what_becomes_of_a_captured_generator(
    make_service: Callable[..., WatchedService], monkeypatch: pytest.MonkeyPatch
) -> None:
    """IGNORE says nothing of a generator that a function holds, WARN warns and FAIL is
    an error.
    """
    service = make_service()

    def send(policy: ExternalStatePolicy | None) -> None:
        options = Options()
        options.experimental_external_state_policy = policy
        service.read(holding(3).with_options(options))

    send(ExternalStatePolicy.IGNORE)
    for policy in (None, ExternalStatePolicy.WARN):
        monkeypatch.setattr(registration, "_warned", set())
        with pytest.raises(UserWarning, match="Use random_map"):
            send(policy)
    with pytest.raises(FailedPreconditionError, match=r"`(coin|rng)`.*ExternalStatePolicy\.FAIL"):
        send(ExternalStatePolicy.FAIL)


@pytest.mark.filterwarnings("ignore:.*Use random_map")
@pytest.mark.parametrize("drawing", [holding, making])
def test_a_promised_order_repeats_what_captured_generators_draw(
    make_service: Callable[..., WatchedService], drawing: Callable[[int], Dataset]
) -> None:
    """A run in a promised order is repeated in every draw, on other workers and after
    one was lost, whether a function holds its generator or makes it.
    """
    options: dict[str, Any] = {"deterministic": True, "data_transfer_protocol": "tcp"}
    expected = list(make_service(workers=3).read(drawing(500), **options))
    service = make_service(workers=1)
    it = iter(service.read(drawing(500), **options))
    found = [next(it) for _ in range(50)]
    service.add_worker()
    service.workers[0].stop()
    assert any(task["attempt"] > 1 for task in service.status()["tasks"])
    assert [*found, *it] == expected
    assert 200 < len(expected) < 300


@pytest.mark.parametrize("mode", MODES)
def test_a_seed_of_the_program_repeats_the_draws_of_jobs(
    make_service: Callable[..., WatchedService], mode: str
) -> None:
    """After the same ``set_random_seed``, operations without a seed draw the same in
    every run, whichever worker gets an element, and differ from each other.
    """

    def draw(seed: int) -> list[list[str]]:
        set_random_seed(seed)
        service, numbers = make_service(workers=2), Dataset.range(30)
        noisy = numbers.random_map(lambda x, rng: rng.integers(10**6))
        twice = noisy.random_map(lambda x, rng: (x, rng.integers(10**6)))
        once = Dataset.range(30).shuffle(30, reshuffle_each_iteration=False).take(15)
        reading = service.read(noisy, mode)
        read = [reading, reading, *(service.read(one, mode) for one in (noisy, twice))]
        return [*(sorted(texts(one)) for one in read), sorted(texts(service.read(once, MODES[1])))]

    try:
        first, again, other = draw(1), draw(1), draw(2)
    finally:
        set_random_seed(None)
    assert first == again
    assert len({str(one) for one in (*first, *other)}) == 10
    assert all(len(set(one)) == (60 if mode == MODES[1] else 30) for one in first[:4])
