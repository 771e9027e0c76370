"""Tests of the host that starts jobs of Slurm, on commands that imitate those of
Slurm. Those of a real one are in ``tests/engines``.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.hosts.fakes import FakeSlurm
from zmqdata.cluster.host import HostError
from zmqdata.errors import FailedPreconditionError
from zmqdata.hosts import Slurm, slurm
from zmqdata.testing.cluster import await_condition

SERVICE = "tcp://10.0.0.1:5050"

Make = Callable[..., Slurm]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    """The commands of Slurm, and a host that asks them often."""
    (tmp_path / "slurm").mkdir()
    monkeypatch.setattr(Slurm, "look_every", 0.02)
    monkeypatch.setattr(Slurm, "poll", 0.02)
    return FakeSlurm(tmp_path / "slurm", monkeypatch)


@pytest.fixture
def make(fake: FakeSlurm, tmp_path: Path) -> Iterator[Make]:
    """Makes a host, which the test closes or not."""
    hosts = []

    def made(service: str = SERVICE, **options: Any) -> Slurm:
        hosts.append(Slurm(service, logs=tmp_path / "logs", **options))
        return hosts[-1]

    yield made
    for host in hosts:
        with suppress(HostError):
            host.close()


def states(fake: FakeSlurm) -> list[str]:
    return [state for state, _ in fake.jobs().values()]


def test_each_worker_is_a_job_with_its_name(fake: FakeSlurm, make: Make) -> None:
    """A job has the name of its worker, and the script passes it to the worker."""
    host = make(partition="spot", time="4:00:00", sbatch=["--qos=low"], worker_tags=("GPU",))
    names = host.start(2)
    await_condition(lambda: fake.count() == 2, 10.0, "two jobs")
    assert sorted(name for _, name in fake.jobs().values()) == names
    script = "\n".join(fake.read("scripts/1"))
    for text in ("--partition=spot", "--time=4:00:00", "--qos=low", "--job-name=" + names[0]):
        assert f"#SBATCH {text}\n" in script
    for text in (f"--dispatcher={SERVICE}", "--host=0.0.0.0", "--tag=GPU", f"--name={names[0]}"):
        assert f"    {text}" in script
    assert "exit-with-parent" not in script


def test_a_state_of_slurm_is_a_state_of_a_worker(fake: FakeSlurm, make: Make) -> None:
    """A job in the queue, that is configured, runs or completes is a worker that is
    queued, starting, running or draining.
    """
    host = make()
    [name] = host.start(1)
    await_condition(lambda: fake.count() == 1, 10.0, "a job")
    for state, expected in [
        ("PENDING", "queued"),
        ("CONFIGURING", "starting"),
        ("RUNNING", "running"),
        ("COMPLETING", "draining"),
        ("SUSPENDED", "queued"),
    ]:
        fake.become("1", state)
        assert host.running() == {name: expected}


def test_a_job_in_the_queue_is_left_there(fake: FakeSlurm, make: Make) -> None:
    """A requeued job is the same worker: nothing else is submitted for it."""
    host = make()
    host.scale(1)
    await_condition(lambda: fake.count() == 1, 10.0, "a job")
    for state in ("RUNNING", "COMPLETING", "PENDING", "RUNNING"):
        fake.become("1", state)
        looks = Looks(host)
        await_condition(lambda looks=looks: looks.count >= 3, 10.0, "three looks")
    assert fake.count() == 1


class Looks:
    """Counts how often a host asks Slurm from now on."""

    def __init__(self, host: Slurm) -> None:
        self.count, asked = 0, host._states

        def counted() -> dict[str, str]:
            self.count += 1
            return asked()

        host._states = counted  # type: ignore[method-assign]


def test_an_ended_worker_is_replaced(
    fake: FakeSlurm, make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A job that ends by itself is submitted again under its name. The log has its
    state, its exit code and what its worker wrote last.
    """
    host = make()
    [name] = host.start(1)
    await_condition(lambda: fake.count() == 1, 10.0, "a job")
    host.running()
    output = tmp_path / "logs" / f"{name}-1.log"
    output.write_text("first\nzmqdata worker: the key\nsrun: error: n1: task 0: Exited\n")
    fake.end("1")
    await_condition(lambda: fake.count() == 2, 10.0, "the next job")
    assert [name for _, name in fake.jobs().values()] == [name]
    [told] = [one.getMessage() for one in caplog.records if "ended as" in one.getMessage()]
    assert f"worker {name} is started again: it ended as job 1, in state FAILED," in told
    assert "with exit code 2:0." in told
    assert told.endswith(f"{output}: zmqdata worker: the key")


def test_output_that_is_elsewhere_is_no_error(
    fake: FakeSlurm, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says that the output of a job cannot be read."""
    make().start(1)
    await_condition(lambda: fake.count() == 1, 10.0, "a job")
    fake.end("1")
    await_condition(lambda: fake.count() == 2, 10.0, "the next job")
    assert "No such file or directory; is the disk shared?" in caplog.text


def test_stop_cancels_the_job(fake: FakeSlurm, make: Make) -> None:
    """A stopped worker's job is cancelled without a signal, and not replaced."""
    host = make()
    first, second = host.start(2)
    await_condition(lambda: len(fake.jobs()) == 2, 10.0, "two jobs")
    host.stop([first, "unknown"])
    await_condition(lambda: len(fake.jobs()) == 1, 10.0, "the cancellation")
    await_condition(lambda: host.running() == {second: "running"}, 10.0, "the other job alone")
    assert fake.read("cancelled") == ["1"]
    assert fake.count() == 2


def test_a_job_that_escaped_is_cancelled_again(fake: FakeSlurm, make: Make) -> None:
    """A stopped job that is requeued at the same moment does not come back."""
    fake.command("scancel", 'echo "$*" >> "$at/cancelled"')
    host = make()
    host.start(1)
    await_condition(lambda: fake.count() == 1, 10.0, "a job")
    host.scale(0)
    await_condition(lambda: len(fake.read("cancelled")) >= 1, 10.0, "the cancellation")
    fake.become("1", "COMPLETING")
    fake.become("1", "PENDING")
    seen = len(fake.read("cancelled"))
    await_condition(lambda: len(fake.read("cancelled")) > seen, 10.0, "another cancellation")
    fake.end("1")


def test_close_cancels_all_jobs_and_no_others(fake: FakeSlurm, make: Make) -> None:
    """No job of the host is left after ``close``, and a job of another is."""
    host = make()
    host.start(2)
    await_condition(lambda: len(fake.jobs()) == 2, 10.0, "two jobs")
    (fake.folder / "jobs" / "77").write_text("RUNNING another")
    host.close()
    assert fake.jobs() == {"77": ("RUNNING", "another")}


def test_a_job_of_another_with_the_same_name_is_not_ours(fake: FakeSlurm, make: Make) -> None:
    """A host neither takes the job of another for its worker, nor cancels it."""
    host = make()
    [name] = host.start(1)
    await_condition(lambda: host.running() == {name: "running"}, 10.0, "the worker")
    (fake.folder / "jobs" / "77").write_text(f"PENDING {name}")
    assert host.running() == {name: "running"}
    host.close()
    assert fake.jobs() == {"77": ("PENDING", name)}


def test_an_engine_that_is_gone_at_close_is_an_error(fake: FakeSlurm, make: Make) -> None:
    """The error of ``close`` names the workers and jobs that may still run, and has the
    words of Slurm.
    """
    host = make()
    [name] = host.start(1)
    await_condition(lambda: host.running() == {name: "running"}, 10.0, "the worker")
    fake.write("gone")
    with pytest.raises(HostError, match="may still run") as raised:
        host.close()
    assert f"{name} (job 1)" in str(raised.value)
    assert "`squeue` has failed with code 1: Unable to contact slurm" in str(raised.value)


def test_a_refused_job_is_tried_again(
    fake: FakeSlurm, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has the words of ``sbatch``, and the worker starts once Slurm accepts
    it.
    """
    fake.write("refusal", "sbatch: error: Batch job submission failed: QOSMaxSubmitJob\n")
    host = make()
    [name] = host.start(1)
    assert host.running() == {name: "queued"}
    await_condition(lambda: "QOSMaxSubmitJob" in caplog.text, 10.0, "the words of sbatch")
    (fake.folder / "refusal").unlink()
    await_condition(lambda: states(fake) == ["RUNNING"], 10.0, "the job")


def test_a_job_whose_submission_was_not_answered_is_not_doubled(
    fake: FakeSlurm,
    make: Make,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A command has a deadline. A job that ``sbatch`` submitted without an answer is
    found by its name, is the worker, and is cancelled by ``close``.
    """
    monkeypatch.setattr(slurm, "DEADLINE", 0.5)
    fake.write("hangs")
    host = make()
    [name] = host.start(1)
    await_condition(lambda: "not answered within 0.5 s" in caplog.text, 10.0, "the deadline")
    await_condition(lambda: host.running() == {name: "running"}, 10.0, "the worker")
    looks = Looks(host)
    await_condition(lambda: looks.count > 20, 10.0, "looks beyond the pause")
    assert fake.count() == 1
    host.close()
    assert fake.jobs() == {}


def test_jobs_inherit_no_options(
    fake: FakeSlurm, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Variables of this job, and settings of this program, do not reach the jobs. The
    path of the key does.
    """
    for name in ("SLURM_MEM_PER_CPU", "ZMQDATA_HOST", "ZMQDATA_KEY_FILE", "SLURM_CONF"):
        monkeypatch.setenv(name, "/value")
    make().start(1)
    await_condition(lambda: fake.count() == 1, 10.0, "a job")
    found = {line.split("=")[0] for line in fake.read("environment")}
    ours = {name for name in found if name.startswith(("SLURM_", "ZMQDATA_"))}
    assert ours == {"ZMQDATA_KEY_FILE", "SLURM_CONF"}


def test_a_machine_without_slurm_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without ``sbatch`` on the path, the error says what to do."""
    monkeypatch.setenv("PATH", "/no/such")
    with pytest.raises(FailedPreconditionError, match=r"`sbatch` is not on the PATH.*hosts\.Local"):
        Slurm(SERVICE)


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"sbatch": "--qos=low"}, TypeError, r"write \['--qos=low'\]"),
        ({"sbatch": [3]}, TypeError, "must be a string, got 3"),
        ({"sbatch": ["qos"]}, ValueError, "must begin with a dash"),
        ({"sbatch": ["--qos=a\nrm"]}, ValueError, "a single line"),
        ({"sbatch": ["--job-name=a"]}, ValueError, "chooses '--job-name=a' itself"),
        ({"sbatch": ["-Jx"]}, ValueError, "chooses '-Jx' itself"),
        ({"time": 10}, TypeError, "`time` must be a string"),
        ({"partition": "a\nb"}, ValueError, "a single line"),
        ({"nodes": 2}, TypeError, r"Slurm\(\) has no argument 'nodes'"),
        ({"processes": 0}, ValueError, "`processes`"),
    ],
)
def test_wrong_options_are_refused(
    fake: FakeSlurm, options: dict[str, Any], kind: type[Exception], text: str
) -> None:
    """An option of the wrong type or value is an error that says what was expected."""
    with pytest.raises(kind, match=text):
        Slurm(SERVICE, **options)


@pytest.mark.parametrize(
    ("service", "is_warned"),
    [("tcp://127.0.0.1:5050", True), (SERVICE, False), ("file:/no/such/file", False)],
)
def test_a_dispatcher_on_loopback_is_warned_of(
    make: Make, caplog: pytest.LogCaptureFixture, service: str, is_warned: bool
) -> None:
    """A dispatcher that other machines cannot reach is a warning, with the remedy."""
    with caplog.at_level(logging.WARNING):
        make(service)
    assert bool(re.search("--host 0.0.0.0", caplog.text)) == is_warned
