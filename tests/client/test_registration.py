"""Test what is refused, and found, before a dataset is registered."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from zmqdata import Dataset, distribute, register_dataset
from zmqdata.client import registration
from zmqdata.client.registration import (
    far_worker,
    is_shared,
)
from zmqdata.errors import WrongTypeError


def test_elements_with_windows_are_refused_before_they_are_sent() -> None:
    """A dataset whose elements are known to be datasets is refused at the call, and a
    dataset whose function makes arrays of windows is not.
    """
    windows = Dataset.range(10).window(2)
    read = distribute("parallel_epochs", "localhost:1")
    for use in (lambda: windows.apply(read), lambda: windows.enumerate().apply(read)):
        with pytest.raises(WrongTypeError, match="a dataset in an element cannot be sent"):
            use()
    windows.flat_map(lambda window: window.batch(2)).apply(read)


def test_a_wrong_result_is_refused_before_registering() -> None:
    """``register_dataset`` runs the first element for its spec, and refuses what a
    function returned wrongly, without a dispatcher.
    """
    wrong = Dataset.range(3).flat_map(lambda x: x)
    with pytest.raises(WrongTypeError, match="must return a `Dataset` object"):
        register_dataset("localhost:1", wrong)


def test_an_iterator_that_a_function_holds_is_named(recwarn: pytest.WarningsRecorder) -> None:
    """The warning says what each task gets and what to use instead, and an iterator
    that cannot be sent is an error alone.
    """
    numbers, generator = iter([1, 2]), (x for x in range(3))
    Dataset.range(3).map(lambda x: next(numbers)).apply(
        distribute("parallel_epochs", "localhost:1")
    )
    (warned,) = recwarn
    for part in ("`numbers`", "list_iterator", "Each task gets a copy", "enumerate()"):
        assert part in str(warned.message)
    recwarn.clear()
    with pytest.raises(TypeError, match="generator"):
        Dataset.range(3).map(lambda x: next(generator)).apply(
            distribute("parallel_epochs", "localhost:1")
        )
    assert not recwarn.list


def test_a_warning_of_many_generators_is_one(recwarn: pytest.WarningsRecorder) -> None:
    """A single warning names the generators of a pipeline, once a program."""
    held = [np.random.default_rng(number) for number in range(12)]
    dataset = Dataset.range(3).map(lambda x: held[int(x)].random())
    for _ in range(3):
        dataset.apply(distribute("parallel_epochs", "localhost:1"))
    (warned,) = recwarn
    for part in ("`held[0]`, a numpy.random", "`held[4]`", "and 7 more", "Use random_map"):
        assert part in str(warned.message)


MOUNTS = """\
/dev/sda1 / ext4 rw 0 0
server:/data /data nfs4 rw 0 0
tmpfs /data/local tmpfs rw 0 0
bucket /bucket fuse.s3fs rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "shared"),
    [
        ("/home/me/train.bin", False),
        ("/data/train.bin", True),
        ("/data/local/train.bin", False),
        ("/bucket/a/b/train.bin", True),
        ("/databases/train.bin", False),
    ],
)
def test_a_file_system_is_shared_by_its_type(path: str, shared: bool) -> None:
    """A file is on the innermost mount that holds it, whose type tells whether machines
    share it.
    """
    assert is_shared(path, MOUNTS) == shared
    assert not is_shared(path, "")


def test_this_system_tells_its_mounts(tmp_path: Path) -> None:
    """A temporary folder of this machine is on no shared file system."""
    assert not is_shared(str(tmp_path / "train.bin"))


def worker(address: str, files: str = "") -> dict[str, str]:
    return {"address": address, "files": files}


def test_a_worker_elsewhere_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first worker that may see other files is far: by its token, or, if a token is
    unknown, by its address.
    """
    monkeypatch.setattr(registration, "files_token", lambda: "mine")
    near = [worker("tcp://192.0.2.6:1", "mine"), worker("ipc:///tmp/worker")]
    assert far_worker(near) is None
    for far in (worker("tcp://127.0.0.1:5050", "container"), worker("tcp://192.0.2.7:5050")):
        assert far_worker([*near, far, worker("tcp://192.0.2.8:1")]) == far["address"]
    monkeypatch.setattr(registration, "files_token", lambda: "")
    assert far_worker([worker("tcp://127.0.0.1:5050", "container")]) is None
