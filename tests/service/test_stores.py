"""Facts about files of stores, read by two workers on real sockets."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from tests.kit.objectstore import ObjectStore, object_store
from tests.service.conftest import Service, wait_until
from tests.service.meeting import meeting
from zmqdata import Dataset, TextLineDataset
from zmqdata.__main__ import main
from zmqdata.client.calls import status

LINES = [f"{number}-{line}" for number in range(6) for line in range(50)]


@pytest.fixture
def store() -> Iterator[ObjectStore]:
    """Return a store with six parts of fifty lines."""
    with object_store() as made:
        for number in range(6):
            lines = LINES[number * 50 : number * 50 + 50]
            made.objects[f"/part-{number:03}.txt"] = "\n".join(lines).encode()
        yield made


def test_listed_objects_are_read_once(service: Service, store: ObjectStore) -> None:
    """The dispatcher lists the objects, and a single worker reads each."""
    store.faults.extend([503, 503])
    names = Dataset.list_files(store.url("/part-{000..099}.txt"))
    found = list(service.read(names.flat_map(TextLineDataset)))
    assert sorted(found) == sorted(LINES)


def test_an_unreadable_split_is_left_out(service: Service, store: ObjectStore) -> None:
    """A split that cannot be read is left out at its worker, and the reader's
    quarantine names it.
    """
    names = [store.url(f"/part-{number:03}.txt") for number in range(7)]
    iterator = iter(service.read(TextLineDataset(names, on_error="skip")))
    assert sorted(iterator) == sorted(LINES)
    (left_out,) = iterator.quarantine
    assert "/part-006.txt, bytes 0 to" in left_out.error
    assert left_out.split == (6, 7)


def test_planted_secrets_are_not_found(
    make_service: Callable[..., Service],
    store: ObjectStore,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """Options with a secret are refused by name. A signature is in no status, log,
    report, trace or journal, other than in the packed pipeline.
    """
    service = make_service(1, work_dir=str(tmp_path / "work"))
    url = store.url("/part-000.txt?signature=hidden-word")
    options: dict[str, Any] = {"client_kwargs": {"aws_session_token": "hidden-word"}}
    with pytest.raises(TypeError, match=r"client_kwargs\.aws_session_token.*environment") as caught:
        next(iter(service.read(TextLineDataset(url, storage_options=options))))
    missing = url.replace("000", "999").replace("//", "//me:hidden-word@")
    dataset = service.read(TextLineDataset([url, missing], on_error="skip"), job_name="signed")
    iterator = iter(dataset)
    first = next(iterator)
    asked = ["--dispatcher", service.target]
    files = {name: str(tmp_path / name) for name in ("report.html", "trace.json")}
    assert main(["report", files["report.html"], "--seconds", "0", *asked]) == 0
    assert main(["trace", files["trace.json"], "--seconds", "0.1", *asked]) == 0
    for command in ("status", "doctor"):
        main([command, *asked])
    assert sorted([first, *iterator]) == sorted(LINES[:50])
    states = [status(target) for target in (service.target, service.workers[0].address)]
    shown = [caught.value, dataset.describe(), iterator.quarantine, states, iterator.state_dict()]
    text = f"{shown} {caplog.text} {capsys.readouterr()}"
    assert "999.txt?..." in text
    kept = [path for path in (tmp_path / "work").rglob("*") if path.is_file()]
    written = {path.name: path.read_bytes() for path in [*kept, *map(Path, files.values())]}
    assert b"signed" in written["journal"]
    assert "hidden-word" not in text
    (pipeline,) = {name for name, content in written.items() if b"hidden-word" in content}
    assert re.fullmatch("[0-9a-f]{64}", pipeline)


@pytest.fixture
def memory() -> Iterator[Any]:
    """Return an empty file system in memory, which workers in this process share."""
    filesystem = fsspec.filesystem("memory")
    yield filesystem
    filesystem.store.clear()
    filesystem.pseudo_dirs[:] = [""]


def test_tasks_cache_in_a_store(service: Service, memory: Any) -> None:
    """Each task repeats its elements from a folder of its own, which goes with it."""
    dataset = meeting(Dataset.range(60)).cache("memory://b/x").repeat(3)
    found = iter(service.read(dataset))
    first = next(found)
    assert Counter(map(int, [first, *found])) == dict.fromkeys(range(60), 3)
    wait_until(lambda: not memory.find("/b/x"), "no folder of a task is left")


@pytest.mark.parametrize(
    "store",
    [lambda ds: ds.cache("memory://b/x"), lambda ds: ds.snapshot("memory://b/x")],
    ids=["cache", "snapshot"],
)
def test_workers_share_what_lies_in_a_store(
    service: Service, memory: Any, store: Callable[[Dataset], Dataset]
) -> None:
    """Workers that read the whole dataset fill a store together, and a single content
    stays. They read it from then on, and a reader resumes in the middle.
    """
    dataset = store(Dataset.range(300).map(lambda x: (x, time.monotonic_ns())))
    pairs = [(int(x), int(when)) for x, when in service.read(dataset, "parallel_epochs")]
    assert Counter(x for x, _ in pairs) == dict.fromkeys(range(300), 2)
    (manifest,) = (name for name in memory.find("/b") if name.endswith("manifest.json"))
    folder = manifest.rpartition("/")[0]
    assert len(memory.find(folder)) == 2
    iterator = iter(service.read(dataset, "parallel_epochs"))
    had = [next(iterator) for _ in range(100)]
    iterator.save("memory://b/state")
    iterator.close()
    again = iter(service.read(dataset, "parallel_epochs"))
    again.restore("memory://b/state")
    later = Counter((int(x), int(when)) for x, when in [*had, *again])
    assert set(later) <= set(pairs)
    assert (len(later), set(later.values())) == (300, {2})
