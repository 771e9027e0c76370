"""Facts about distributed saves that workers read while others write them, in simulated
time and with real files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.kit.service import WatchedService
from zmqdata import Dataset
from zmqdata.errors import FailedPreconditionError, PipelineError, UnimplementedError
from zmqdata.storage.manifests import is_done

Make = Callable[..., WatchedService]

COUNT = 320
SLOW = {"pace": 0.05, "journalled": True}
"""A save takes 8 s with two workers, which close a chunk every 2.5 s."""
SMALL = {"snapshot_max_chunk_size_bytes": 400, "buffer_bytes": 1 << 10}


def begun(service: WatchedService, path: str, count: int = COUNT) -> Dataset:
    """Begin a save, and return the dataset that reads it."""
    service.save(Dataset.range(count), path)
    return Dataset.load(path, wait=True)


def ints(elements: Any) -> list[int]:
    return [int(x) for x in elements]


def test_workers_share_the_chunks_as_they_come(make_service: Make, tmp_path: Path) -> None:
    """DYNAMIC hands out each chunk of a save in progress once, and ends with the
    save.
    """
    service = make_service(2, worker_options=SMALL, **SLOW)
    path = str(tmp_path / "saved")
    elements = iter(service.read(begun(service, path)))
    first = ints(islice(elements, 20))
    assert not is_done(path)
    assert Counter(first + ints(elements)) == Counter(range(COUNT))
    assert is_done(path)


def test_a_pipeline_over_a_save_in_progress_repeats(make_service: Make, tmp_path: Path) -> None:
    """Each repetition of a load within the pipeline has every element once."""
    service = make_service(2, worker_options=SMALL, **SLOW)
    loaded = begun(service, str(tmp_path / "saved")).map(lambda x: x + 1).repeat(2)
    assert Counter(ints(service.read(loaded))) == Counter([*range(1, COUNT + 1)] * 2)


def test_a_reader_function_gets_the_chunks_as_they_come(make_service: Make, tmp_path: Path) -> None:
    """Under DYNAMIC, a reader function of a load reads the chunks that its task gets,
    during the save and after it.
    """
    service = make_service(2, worker_options=SMALL, **SLOW)
    path = str(tmp_path / "saved")
    service.save(Dataset.range(COUNT), path)
    for wait in (True, False):
        loaded = Dataset.load(
            path,
            reader_func=lambda chunks: chunks.shuffle(3).interleave(lambda one: one),
            wait=wait,
        )
        assert Counter(ints(service.read(loaded))) == Counter(range(COUNT))


def test_a_change_of_workers_and_dispatchers(make_service: Make, tmp_path: Path) -> None:
    """Workers that join and die and a dispatcher that restarts, during the save, leave
    the reader with every element once.
    """
    service = make_service(2, worker_options=SMALL, **SLOW)
    path = str(tmp_path / "saved")
    elements = iter(service.read(begun(service, path), job_name="reading"))
    found = ints(islice(elements, 30))
    service.add_worker()
    service.workers[0].kill()
    found += ints(islice(elements, 60))
    service.restart_dispatcher(1.0)
    assert not is_done(path)
    found += ints(elements)
    assert Counter(found) == Counter(range(COUNT))


@pytest.mark.parametrize("after_the_end", [False, True])
def test_a_state_continues_on_another_cluster(
    make_service: Make, tmp_path: Path, after_the_end: bool
) -> None:
    """The state of a reader of a save in progress continues with another load of the
    path on another cluster, during the save and after its end.
    """
    writing, path = make_service(2, worker_options=SMALL, **SLOW), str(tmp_path / "saved")
    loaded = begun(writing, path)
    reading = make_service(2)
    elements = iter(reading.read(loaded))
    writing.run_until(lambda: False, 5.5)
    before = ints(islice(elements, 100))
    state = msgspec.msgpack.decode(msgspec.msgpack.encode(elements.state_dict()))
    elements.close()
    assert not is_done(path)
    if after_the_end:
        assert writing.run_until(lambda: is_done(path), 600.0)
    other = make_service(3)
    again = iter(other.read(Dataset.load(path, wait=True)))
    again.load_state_dict(state)
    assert writing.run_until(lambda: is_done(path), 600.0)
    assert Counter(before + ints(again)) == Counter(range(COUNT))


def test_a_save_that_fails_ends_its_readers(make_service: Make, tmp_path: Path) -> None:
    """The error of the save's pipeline reaches the reader, with its cause."""
    service = make_service(2, worker_options=SMALL, **SLOW)
    path = str(tmp_path / "saved")
    service.save(Dataset.range(COUNT).map(lambda x: 1 // (int(x) - 300)), path)
    elements = iter(service.read(Dataset.load(path, wait=True)))
    with pytest.raises(PipelineError) as caught:
        list(elements)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_another_save_under_the_path_is_an_error(make_service: Make, tmp_path: Path) -> None:
    """A reader is told that its save was replaced."""
    service, path = make_service(2, journalled=True), tmp_path / "saved"
    loaded = begun(service, str(path), 5)
    assert service.run_until(lambda: is_done(str(path)), 60.0)
    path.rename(tmp_path / "elsewhere")
    make_service(2, seed=1, journalled=True).save(Dataset.range(3), str(path))
    with pytest.raises(FailedPreconditionError, match="something else was saved there since"):
        list(service.read(loaded))


def test_a_promised_order_is_refused(make_service: Make, tmp_path: Path) -> None:
    """The order of chunks is not known during the save, so no order can be promised."""
    service = make_service(2, journalled=True)
    loaded = begun(service, str(tmp_path / "saved"), 5)
    with pytest.raises(UnimplementedError, match="deterministic=True is not possible"):
        list(service.read(loaded, deterministic=True))


def test_states_of_both_kinds_of_load_differ(make_service: Make, tmp_path: Path) -> None:
    """The state of a load that waits is refused by one that does not, and the
    reverse.
    """
    writing, path = make_service(2, worker_options=SMALL, **SLOW), str(tmp_path / "saved")
    waiting = begun(writing, path)
    assert writing.run_until(lambda: is_done(path), 600.0)
    for one, other in ((waiting, Dataset.load(path)), (Dataset.load(path), waiting)):
        elements = iter(make_service(1).read(one))
        list(islice(elements, 100))
        again = iter(make_service(1).read(other))
        with pytest.raises(FailedPreconditionError, match=r"Call load\(\) with"):
            again.load_state_dict(elements.state_dict())
