"""The image runs under exactly the restrictions of the chart: ``make test-engines``."""

from __future__ import annotations

import http.client
import os
import runpy
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest

from tests.engines.charts import documents, examples, named, pods, rendered
from tests.engines.containers import (
    IMAGE,
    Folders,
    Podman,
    are_installed,
    arguments,
    container,
)
from zmqdata import Dataset, distribute, use_key_file
from zmqdata.client.calls import status
from zmqdata.errors import PermissionDeniedError
from zmqdata.testing.cluster import await_condition
from zmqdata.transport.keys import new_key, save

pytestmark = [
    pytest.mark.skipif(
        "ZMQDATA_ENGINES" not in os.environ, reason="only `make test-engines` runs it"
    ),
    pytest.mark.realprocess,
    pytest.mark.timeout(400),
]
SOON = 60.0
PORT, METRICS, WORKER_METRICS = 25050, 29100, 29110
NAME = "zmqdata-dispatcher"
SCRIPT = """
import threading

def slowly(number):
    threading.Event().wait(0.002)
    return number
"""
"""A training script, whose function the image does not have."""
PROCESSES = 2
VALUES = {
    "image": f"{IMAGE}:latest",
    "dispatcher.port": PORT,
    "worker.processes": PROCESSES,
    "worker.memoryLimit": "500MiB",
}


@pytest.fixture(scope="session")
def podman() -> Podman:
    """The image of this checkout, built for the Python of this process."""
    if not are_installed():
        pytest.skip("only `make test-engines` runs it, as root, with podman installed")
    made = Podman(Path(sys.prefix) / "containers")
    made.build_tested()
    return made


@pytest.fixture
def folders(tmp_path: Path) -> Iterator[Folders]:
    """The files of pods, with the key that this process has, too."""
    made = Folders(tmp_path)
    save(made.secret / "cluster.key", new_key())
    use_key_file(made.secret / "cluster.key")
    yield made
    use_key_file()


class Release:
    """A release of the chart, whose pods are containers of this machine.

    Args:
        podman: has the image.
        folders: files of the pods.
    """

    def __init__(self, podman: Podman, folders: Folders) -> None:
        self.podman, self.folders = podman, folders
        self.target = f"tcp://127.0.0.1:{PORT}"

    @contextmanager
    def dispatcher(self) -> Iterator[str]:
        """Run the pod of the dispatcher, with the volume of the one before."""
        objects = rendered({**VALUES, "metrics.port": METRICS})
        [pod] = pods([named(objects, "StatefulSet")])
        with container(self.podman, arguments(pod, f"{NAME}-0", self.folders, ["journal"])) as name:
            yield name

    @contextmanager
    def worker(self, number: int) -> Iterator[str]:
        """Run a pod of the Deployment, with ports of its own on this machine."""
        objects = rendered({**VALUES, "metrics.port": WORKER_METRICS + PROCESSES * number})
        [pod] = pods([named(objects, "Deployment")])
        with container(
            self.podman, arguments(pod, f"zmqdata-worker-{number}", self.folders)
        ) as name:
            yield name

    def rows(self, count: int, job: str) -> Dataset:
        """Return numbers, of which workers make ten at a time, and not all at once."""
        script = self.folders.root / "training.py"
        script.write_text(SCRIPT)
        slowly = runpy.run_path(str(script), run_name="training")["slowly"]
        source = Dataset.range(count).map(slowly).batch(10)
        return source.apply(distribute("distributed_epoch", self.target, job))

    def names(self) -> list[str]:
        """Return the names of the processes that the dispatcher knows as connected."""
        found = status(self.target)["workers"]
        return sorted(one["name"] for one in found if one["state"] == "connected")

    def stop(self, name: str) -> int:
        """End a pod as the kubelet does, and return the exit code of its container."""
        self.podman.call("stop", name)
        return int(self.podman.call("inspect", "--format={{.State.ExitCode}}", name))

    def log(self, name: str) -> str:
        """Return what ``kubectl logs`` would show of a pod."""
        done = self.podman.attempt("logs", name)
        return done.stdout + done.stderr

    def rights(self, name: str) -> dict[str, str]:
        """Return what the system tells of the first process of a container."""
        process = self.podman.call("inspect", "--format={{.State.Pid}}", name)
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
        return {line.partition(":")[0]: " ".join(line.split()[1:]) for line in lines}


@pytest.fixture
def release(podman: Podman, folders: Folders) -> Release:
    """A release without pods, and without a name for its Service."""
    return Release(podman, folders)


def ask(path: str, host: str, port: int = METRICS) -> tuple[int, str]:
    """Return status and text of an answer to a request that names a host."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path, headers={"Host": host})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def is_ready(port: int = METRICS) -> bool:
    """Return True if the probe of the kubelet would pass."""
    try:
        return ask("/readyz", "10.0.0.7", port)[0] == 200
    except OSError:
        return False


def test_a_release_trains(release: Release) -> None:
    """Pods with exactly the rights of the chart serve a training each element once,
    while a worker of several processes drains and the dispatcher is restarted with its
    volume. A worker awaits the name of the Service. KEDA may ask under that name, and a
    stranger not.
    """
    with ExitStack() as stack:
        first = stack.enter_context(release.worker(1))
        await_condition(lambda: "No dispatcher has answered" in release.log(first), SOON, "a log")
        running = stack.enter_context(release.dispatcher())
        release.folders.resolve(NAME)
        second = stack.enter_context(release.worker(2))
        await_condition(is_ready, SOON, "the dispatcher")
        processes = [f"{pod}/{index}" for pod in (first, second) for index in range(PROCESSES)]
        await_condition(lambda: release.names() == processes, SOON, "all processes")
        for index in range(PROCESSES):
            assert is_ready(WORKER_METRICS + PROCESSES + index)
        for name in (running, first):
            rights = release.rights(name)
            assert rights["Uid"].split() == ["10001"] * 4
            assert {rights["CapEff"], rights["CapBnd"]} == {"0" * 16}
            assert (rights["NoNewPrivs"], rights["Seccomp"]) == ("1", "2")
            refused = release.podman.attempt("exec", name, "touch", "/usr/local/x", "/x")
            assert refused.stderr.count("Read-only file system") == 2
        for host in (f"{NAME}:{METRICS}", f"{NAME}.training.svc:{METRICS}"):
            code, text = ask("/metrics", host)
            assert (code, "\nzmqdata_desired_workers " in text) == (200, True)
        assert ask("/metrics", "evil.example")[0] == 421
        reading = iter(release.rows(4000, "train"))
        had = Counter(int(x) for _ in range(60) for x in np.asarray(next(reading)))
        assert release.stop(first) == 0
        had.update(int(x) for _ in range(60) for x in np.asarray(next(reading)))
        assert release.stop(running) == 0
        release.podman.call("rm", running)
        stack.enter_context(release.dispatcher())
        had.update(int(x) for batch in reading for x in np.asarray(batch))
        assert had == Counter(range(4000))
        jobs = [job["name"] for job in status(release.target)["jobs"]]
        assert jobs == ["train"]


def test_the_page_trains(release: Release) -> None:
    """The training of the page reads all rows, in a pod of the page's Job, on an image
    with the page's package.
    """
    [packages] = examples("dockerfile")
    context = release.folders.root / "context"
    context.mkdir()
    published = "registry.example/zmqdata:3.12"
    for text in (packages, examples("yaml")[0]):
        assert published in text
    (context / "Containerfile").write_text(packages.replace(published, IMAGE))
    release.podman.build(context / "Containerfile", context, f"{IMAGE}:pillow")
    [pod] = pods(documents(examples("yaml")[0].replace(published, f"{IMAGE}:pillow")))
    [program] = examples("python")
    assert f"{NAME}:5050" in program
    script = release.folders.root / "train" / "train.py"
    script.parent.mkdir()
    script.write_text(program.replace(":5050", f":{PORT}") + "import PIL\n")
    release.folders.resolve(NAME)
    words = arguments(pod, "train", release.folders)
    with release.dispatcher(), release.worker(1), container(release.podman, words) as name:
        assert release.podman.call("wait", name) == "0"
        # Each process makes a part of the numbers, and its last batch may be smaller.
        assert sum(int(shape.strip("(,)")) for shape in release.log(name).split()) == 10_000


@pytest.mark.parametrize("role", ["dispatcher", "worker"])
def test_an_absent_secret_is_told_in_the_log(release: Release, role: str) -> None:
    """Without the Secret a server ends with code 2, and its log has the remedy."""
    (release.folders.secret / "cluster.key").unlink()
    release.folders.resolve(NAME)
    with release.dispatcher() if role == "dispatcher" else release.worker(1) as name:
        assert release.podman.call("wait", name) == "2"
        text = release.log(name)
    assert "There is no key file /etc/zmqdata/cluster.key." in text
    assert "zmqdata keygen" in text


def test_servers_with_the_key_of_another_cluster_must_be_restarted(release: Release) -> None:
    """After the Secret has got another key, a running dispatcher admits neither the old
    one nor the new one. Once it is restarted, it admits the new one.
    """

    def is_refused() -> bool:
        try:
            status(release.target)
        except PermissionDeniedError:
            return True
        return False

    new = release.folders.root / "new.key"
    save(new, new_key())
    with release.dispatcher() as name:
        await_condition(is_ready, SOON, "the dispatcher")
        assert not is_refused()
        mounted = (release.folders.root / f"{name}-secret" / "cluster.key").resolve()
        arriving = mounted.with_name("arriving")
        shutil.copy(new, arriving)
        os.chown(arriving, 0, mounted.stat().st_gid)
        arriving.chmod(mounted.stat().st_mode)
        arriving.replace(mounted)
        await_condition(is_refused, SOON, "the old key to be refused")
        use_key_file(new)
        assert is_refused()
        release.podman.call("restart", name)
        await_condition(is_ready, SOON, "the dispatcher with the new key")
        assert not is_refused()
