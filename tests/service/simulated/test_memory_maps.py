"""Facts about pipelines that map files which workers lack."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.kit.service import WatchedService
from zmqdata import Dataset
from zmqdata import messages as m
from zmqdata.core.dispatcher.pipelines import ALONE_FOR
from zmqdata.errors import FailedPreconditionError, UnavailableError
from zmqdata.pipelines.memorymaps import LARGE
from zmqdata.testing.reading import ClockSupplier

STEP = 4096


class Rows:
    """Rows of a file that it maps."""

    def __init__(self, path: str) -> None:
        self.numbers = np.memmap(path, np.uint32, "r")

    def __len__(self) -> int:
        return len(self.numbers) // STEP

    def __getitem__(self, i: int) -> int:
        return int(self.numbers[i * STEP])


WHOLE = [i * STEP for i in range(LARGE // STEP)]


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Return the path of a file with 4 MiB of numbers."""
    np.arange(LARGE, dtype=np.uint32).tofile(tmp_path / "rows.bin")
    return str(tmp_path / "rows.bin")


@pytest.fixture
def service() -> Iterator[WatchedService]:
    """Yield a service with two workers that lack the files of clients."""
    with WatchedService(workers=2, journalled=True, client_timeout_ms=5000) as service:
        for worker in service.workers:
            worker.lacks_files = True
        yield service


def rows(service: WatchedService, path: str, **options: Any) -> Dataset:
    return service.read(Dataset.from_source(Rows(path)), **options)


def sent(service: WatchedService) -> list[int]:
    """Return the sizes of the large parts that the dispatcher has received."""
    return [len(content) for content in service.packs.values() if len(content) >= LARGE]


def test_workers_that_see_the_file_receive_nothing(path: str) -> None:
    """The path is enough for workers that see the file."""
    with WatchedService(workers=2) as service:
        assert sorted(rows(service, path)) == WHOLE
        assert sent(service) == []


def test_workers_that_lack_the_file_get_its_content(
    service: WatchedService, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Two workers that ask at once get the content, which the client reads and sends
    once, with a warning that tells path and size.
    """
    with caplog.at_level(logging.WARNING, "zmqdata"):
        assert sorted(rows(service, path)) == WHOLE
    assert sent(service) == [4 * LARGE]
    [record] = caplog.records
    assert f"workers lack the file {path}" in record.getMessage()
    assert "The content (4 MB) is sent" in record.getMessage()


def test_one_of_two_readers_sends_the_content(
    service: WatchedService, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """One of two clients that share a job reads and sends the file."""
    one, two = (iter(rows(service, path, job_name="shared")) for _ in range(2))
    with caplog.at_level(logging.WARNING, "zmqdata"):
        found = [next(one), next(two)]
        for reader in (one, two):
            found.extend(reader)
    assert sorted(found) == WHOLE
    assert sum("lack the file" in record.getMessage() for record in caplog.records) == 1


def test_a_worker_that_joins_later_gets_the_content(path: str) -> None:
    """A worker that joins in mid-iteration and lacks the file works, too."""
    with WatchedService(workers=1, pace=0.02) as service:
        reader = iter(rows(service, path))
        found = [next(reader)]
        late = service.add_worker()
        late.lacks_files = True
        service.workers[0].drain()
        found.extend(reader)
        assert sorted(found) == WHOLE
        assert sent(service) == [4 * LARGE]


def test_another_client_sends_if_the_first_dies(
    service: WatchedService, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the client that was asked dies before it sends the content, the dispatcher
    asks the other.
    """
    readers: list[Any] = [iter(rows(service, path, job_name="shared")) for _ in range(2)]
    ask_dispatcher = ClockSupplier._ask
    dead: list[Any] = []

    def die(supplier: ClockSupplier, ask: m.SupplyMap, reply: Any) -> None:
        if not dead:
            dead.extend(one for one in readers if one._shell._supplier is supplier)
            dead[0].kill()
            raise UnavailableError("the client is dead")
        ask_dispatcher(supplier, ask, reply)

    monkeypatch.setattr(ClockSupplier, "_ask", die)
    assert service.run_until(lambda: dead, 30.0)
    [other] = [one for one in readers if one is not dead[0]]
    assert sorted(other) == WHOLE


def test_a_dispatcher_that_restarts_gets_the_content(
    service: WatchedService, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The content arrives although the dispatcher dies while it is sent."""
    ask_dispatcher = ClockSupplier._ask
    lives: list[int] = []

    def interrupted(supplier: ClockSupplier, ask: m.SupplyMap, reply: Any) -> None:
        def hear(message: m.Message) -> Any:
            if isinstance(message, m.PieceStored) and not lives:
                lives.append(service.dispatcher.core.state.life)
                service.at(0.0, lambda: service.restart_dispatcher(2.0))
            return reply(message)

        ask_dispatcher(supplier, ask, hear)

    monkeypatch.setattr(ClockSupplier, "_ask", interrupted)
    assert sorted(rows(service, path)) == WHOLE
    assert service.dispatcher.core.state.life == lives[0] + 1


def test_a_file_that_changed_is_an_error(service: WatchedService, path: str) -> None:
    """The error names the file and the client's reason if the file changed or vanished
    since the dataset was defined.
    """
    dataset = rows(service, path)
    np.zeros(LARGE, np.uint32).tofile(path)
    with pytest.raises(FailedPreconditionError, match=r"rows\.bin.*or it has changed since"):
        list(dataset)
    os.remove(path)
    with pytest.raises(FailedPreconditionError, match=r"rows\.bin.*or it has changed since"):
        list(dataset)


def test_a_change_between_the_samples_reaches_the_next_job(
    service: WatchedService, path: str
) -> None:
    """A dataset that is defined after the file was changed gets the new content, while
    tasks of an earlier job continue with the old one.
    """
    first = iter(rows(service, path))
    found = [next(first)]
    with open(path, "r+b") as file:
        file.seek(4 * STEP * 12)
        file.write(bytes(4))
    changed = sorted([0, *WHOLE[:12], *WHOLE[13:]])
    assert sorted(rows(service, path)) == changed
    assert sorted([*found, *first]) == WHOLE


def test_a_reader_by_id_sends_the_file_that_it_sees(
    service: WatchedService, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A client that knows only the dataset's id sends the file if its machine has
    it.
    """
    registered = rows(service, path)
    assert next(iter(registered)) in WHOLE
    node: Any = registered.node
    by_id = replace(node.registration, node=None)
    service.dispatcher.core.datasets.maps.registered_again(by_id.description)
    with caplog.at_level(logging.WARNING, "zmqdata"):
        assert sorted(Dataset(replace(node, registration=by_id, original=None))) == WHOLE
    assert "workers lack the file" in caplog.text


def test_a_save_whose_client_left_fails_with_the_remedy(
    service: WatchedService, path: str, tmp_path: Path
) -> None:
    """No client can send the content for a save, so its error says so, within a
    bounded time.
    """
    service.save(Dataset.from_source(Rows(path)), str(tmp_path / "saved"))
    began = service.clock.now
    assert service.run_until((tmp_path / "saved" / "ERROR").exists, 2 * ALONE_FOR)
    assert service.clock.now - began > ALONE_FOR
    text = (tmp_path / "saved" / "ERROR").read_text()
    assert "no client reads the dataset now" in text
