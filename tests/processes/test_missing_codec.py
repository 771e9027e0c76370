"""Tests of a service in which some processes lack blosc: every element arrives, and
each process without blosc warns once.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.full import full
from zmqdata import Dataset, LocalCluster, distribute, from_dataset_id, register_dataset
from zmqdata.cluster.processes import ServerProcess

pytestmark = pytest.mark.realprocess

COUNT = 400
WARNING = "`blosc` is not installed"
FORBID = "import sys\nsys.modules['blosc'] = None\n"


def numbered(count: int) -> Dataset:
    """Return elements that compress well, each with a flag that is True if its maker
    has blosc.
    """

    def made(x: int) -> tuple[np.ndarray, bool]:
        import sys

        return np.full(20_000, x), sys.modules.get("blosc") is not None

    return Dataset.range(count).map(made)


@pytest.fixture
def cluster_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalCluster]:
    """A cluster whose processes have no blosc."""
    (tmp_path / "sitecustomize.py").write_text(FORBID, encoding="utf-8")
    with monkeypatch.context() as patched:
        patched.syspath_prepend(str(tmp_path))
        with LocalCluster(1, heartbeat_interval_ms=100) as cluster:
            yield cluster


@pytest.mark.parametrize("protocol", [full(None), "tcp"])
def test_a_worker_without_blosc_sends_what_it_makes(
    protocol: str | None, cluster_without: LocalCluster
) -> None:
    """A client that requests a codec gets each element once, uncompressed, and the
    worker without blosc warns once.
    """
    cluster = cluster_without
    read = distribute(
        "distributed_epoch", cluster.target, compression="zstd", data_transfer_protocol=protocol
    )
    for _ in range(2):
        found = list(numbered(COUNT).apply(read))
        assert sorted(int(array[0]) for array, _ in found) == list(range(COUNT))
        assert all((array == array[0]).all() for array, _ in found)
        assert not any(has_blosc for _, has_blosc in found)
    [worker] = cluster.workers
    assert isinstance(worker, ServerProcess)
    assert worker.log.count(WARNING) == 1


CLIENT = """
    import sys
    sys.modules["blosc"] = None
    import numpy as np
    from zmqdata import Dataset, distribute, from_dataset_id
    def made(x):
        import sys
        return np.full(20_000, x), sys.modules.get("blosc") is not None
    target, count, protocol, registered = sys.argv[1:]
    if registered:
        elements = from_dataset_id("distributed_epoch", target, registered, job_name="job",
                                   max_outstanding_requests=4)
    else:
        read = distribute("distributed_epoch", target, compression="lz4",
                          data_transfer_protocol=protocol or None)
        elements = Dataset.range(int(count)).map(made).apply(read)
    for array, has_blosc in elements:
        assert (array == array[0]).all() and has_blosc
        print(int(array[0]), flush=True)
"""


def client_without(target: str, protocol: str = "", registered: str = "") -> subprocess.Popen[str]:
    """Start a client without blosc; it prints the numbers of a dataset of its own or of
    a registered dataset.
    """
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(CLIENT), target, str(COUNT), protocol, registered],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.full
@pytest.mark.parametrize("protocol", ["", "tcp"])
def test_a_client_without_blosc_reads_from_a_worker_that_has_it(protocol: str) -> None:
    """The worker compresses nothing for a client without blosc, though the job names a
    codec; the client warns once.
    """
    with LocalCluster(1, heartbeat_interval_ms=100) as cluster:
        said, complaints = client_without(cluster.target, protocol).communicate()
    assert sorted(map(int, said.split())) == list(range(COUNT)), complaints
    assert complaints.count(WARNING) == 1


def test_clients_with_and_without_blosc_share_a_job() -> None:
    """A client without blosc gets decompressed blocks if they were compressed before it
    joined; the two clients get each element once.
    """
    with LocalCluster(1, heartbeat_interval_ms=100) as cluster:
        registered = register_dataset(cluster.target, numbered(COUNT), compression="lz4")
        elements = iter(
            from_dataset_id(
                "distributed_epoch",
                cluster.target,
                registered,
                job_name="job",
                max_outstanding_requests=4,
            )
        )
        found = [int(next(elements)[0][0]) for _ in range(10)]
        other = client_without(cluster.target, registered=registered)
        assert other.stdout is not None
        theirs = [int(other.stdout.readline())]
        found += [int(array[0]) for array, _ in elements]
        theirs += map(int, other.stdout)
        complaints = other.communicate()[1]
    assert sorted(found + theirs) == list(range(COUNT)), complaints
    assert complaints.count(WARNING) == 1
