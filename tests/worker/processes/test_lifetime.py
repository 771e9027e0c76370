"""Tests of when a process ends: at the first signal, the second, or its parent's
death.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import zmqdata
from zmqdata.testing.cluster import await_condition, is_running
from zmqdata.worker.processes.lifetime import (
    PARENT_DIED,
    SIGNALLED,
    StopSignals,
    describe_exit,
    own_thread,
)

STUCK = """
import os, signal, sys, threading
from zmqdata.worker.processes.lifetime import (
    StopSignals, die_with_parent, exit_within, stop_with_parent, watch_lifeline
)
stop = StopSignals()
{setting}
print("ready", flush=True)
while not stop.wait(None):
    pass
{then}
print("asked", flush=True)
threading.Event().wait(60)
"""


@pytest.fixture
def stop() -> Iterator[StopSignals]:
    signals = StopSignals(waking=(signal.SIGUSR1,))
    yield signals
    signals.close()


def start(setting: str = "", then: str = "") -> subprocess.Popen[str]:
    program = STUCK.format(setting=setting, then=then)
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_first_signal_asks_to_stop(stop: StopSignals, number: signal.Signals) -> None:
    """A first SIGTERM or SIGINT ends a wait and nothing else."""
    assert not stop.wait(0.0)
    signal.raise_signal(number)
    assert stop.wait(None)
    assert stop.wait(None), "asked once is asked for ever"


def test_other_signals_only_wake(stop: StopSignals) -> None:
    """A registered signal ends a wait without asking the process to stop."""
    signal.raise_signal(signal.SIGUSR1)
    assert not stop.wait(None)


@pytest.mark.realprocess
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_at_once(number: signal.Signals) -> None:
    """A process that hangs while it stops ends at the second signal, with the exit code
    that shells use.
    """
    with start() as process:
        assert process.stdout is not None
        process.send_signal(number)
        assert process.stdout.readline() == "asked\n"
        process.send_signal(number)
        assert process.wait(10) == SIGNALLED + number


@pytest.mark.realprocess
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_who_hears_none(number: signal.Signals) -> None:
    """The second signal also ends a process whose main thread it does not wake, for
    example when it comes just before a wait.
    """
    with start(
        then="signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGINT])"
    ) as process:
        assert process.stdout is not None
        process.send_signal(number)
        assert process.stdout.readline() == "asked\n"
        process.send_signal(number)
        assert process.wait(10) == SIGNALLED + number


def test_a_second_signal_changes_nothing_for_who_is_owned() -> None:
    """An owned process that is signalled with its owner, and by it, stops in its own
    time. Ctrl-C still hurries it.
    """
    stop = StopSignals(owned=True)
    try:
        for _ in range(2):
            signal.raise_signal(signal.SIGTERM)
            assert (stop.wait(0.0), stop.hurried) == (True, False)
        signal.raise_signal(signal.SIGINT)
        assert (stop.wait(0.0), stop.hurried) == (True, True)
    finally:
        stop.close()


@pytest.mark.realprocess
def test_a_lifeline_that_closes_ends_the_process() -> None:
    """A process ends as soon as the other end of its lifeline closes, and not when data
    arrive on it.
    """
    with start("watch_lifeline(0)") as process:
        assert process.stdin is not None
        process.stdin.write("still here\n")
        process.stdin.flush()
        process.stdin.close()
        assert process.wait(10) == PARENT_DIED


@pytest.mark.realprocess
def test_a_deadline_ends_what_hangs() -> None:
    """A process that hangs while it stops ends with the given exit code."""
    with start(then="exit_within(0.05, 7)") as process:
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 7


@pytest.mark.realprocess
def test_a_parent_that_is_dead_already_is_noticed() -> None:
    """A process ends by itself if its parent dies before the process can ask to die
    with it.
    """
    parent = (
        "from zmqdata.worker.processes.lifetime import die_with_parent; die_with_parent(1 << 30)"
    )
    assert subprocess.run([sys.executable, "-c", parent], timeout=30).returncode == PARENT_DIED
    own = f"from zmqdata.worker.processes.lifetime import die_with_parent; die_with_parent({os.getpid()})"
    assert subprocess.run([sys.executable, "-c", own], timeout=30).returncode == 0


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (0, "ended with exit code 0"),
        (-11, "was killed by SIGSEGV (a fault in native code of a pipeline or a library)"),
        (-15, "was killed by SIGTERM"),
        (-99, "was killed by signal 99"),
    ],
)
def test_a_death_is_told_in_words(code: int, text: str) -> None:
    """A message names the exit code or the signal and, if known, the likely cause."""
    assert describe_exit(code) == text


PACKAGE = Path(zmqdata.__file__).parent
BEGINNING = [(PACKAGE / "machine" / "threads.py", "run"), (threading.__file__, "_bootstrap")]


def stack(*calls: tuple[object, str]) -> str:
    """Return a stack as Python prints it at a crash."""
    printed = [f'  File "{file}", line {line} in {name}' for line, (file, name) in enumerate(calls)]
    return "\n".join(printed)


@pytest.mark.parametrize(
    ("calls", "own"),
    [
        (
            [("numpy.py", "add"), (PACKAGE / "worker/measuring.py", "_look_on"), *BEGINNING],
            "`_look_on` of worker/measuring.py",
        ),
        ([(PACKAGE / "journal.py", "write"), BEGINNING[1]], "`write` of journal.py"),
        ([(PACKAGE / "measures/sums.py", "x"), (PACKAGE / "iterators/crew.py", "_work")], ""),
        ([("train.py", "f"), (PACKAGE / "iterators/crew.py", "_work"), *BEGINNING], ""),
        ([("train.py", "f"), (PACKAGE / "worker/tasks/relay.py", "_run"), *BEGINNING], ""),
        ([(PACKAGE / "worker/measuring.py", "f"), ("train.py", "mine"), BEGINNING[1]], ""),
        ([(PACKAGE / "worker/child.py", "main")], ""),
        (BEGINNING, ""),
        ([], ""),
    ],
)
def test_a_crash_names_the_thread_that_runs_no_pipeline(
    calls: list[tuple[object, str]], own: str
) -> None:
    """Only threads that zmqdata has begun outside of pipelines are its own, and not the
    main thread, which gets the signals that a function sends to its process.
    """
    assert own_thread(stack(*calls)) == own
    assert own_thread(f"{stack(*calls)}\n  ...") == "", "the oldest calls are missing"
    blamed = "to blame" in describe_exit(-11, own)
    assert blamed is bool(own)


PROCESS_1 = """
import ctypes, os, subprocess, signal, sys, time
from pathlib import Path
from zmqdata.testing.cluster import await_condition, descendants
from zmqdata.worker.processes.lifetime import StopSignals, serve_beside_orphans

def serve(stop):
    for _ in range(10):
        subprocess.run("true & true &", shell=True, check=True)
        assert subprocess.run("exit 7", shell=True).returncode == 7
    await_condition(lambda: descendants(os.getppid()) == [pid()], what="the end of orphans")
    print(pid(), flush=True)
    while not stop.wait(60):
        pass
    return 5

PR_SET_CHILD_SUBREAPER = 36
ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
pid, os.getpid = os.getpid, lambda: 1
sys.exit(serve_beside_orphans(serve, StopSignals(waking=(signal.SIGCHLD,))))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has other reapers than process 1")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_process_1_reaps_orphans(number: int) -> None:
    """Process 1 reaps what the processes of a server leave, and takes no exit code from
    the server. It passes a signal on, and its end is the server's.
    """
    command = [sys.executable, "-c", PROCESS_1]
    where = {**os.environ, "PYTHONPATH": str(Path(zmqdata.__file__).parents[1])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=where) as process:
        try:
            assert process.stdout is not None
            server = int(process.stdout.readline())
            os.kill(server if number == signal.SIGKILL else process.pid, number)
            assert process.wait(20) == (SIGNALLED + number if number == signal.SIGKILL else 5)
            assert not os.path.exists(f"/proc/{server}")
        finally:
            process.kill()


@pytest.mark.realprocess
@pytest.mark.parametrize("engine", ["SLURM_JOB_ID", "KUBERNETES_SERVICE_HOST"])
def test_a_drain_goes_on_if_an_engine_repeats_itself(
    monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    """SIGTERM that an engine sends again changes nothing. A second SIGINT ends the
    process.
    """
    monkeypatch.setenv(engine, "1")
    with start(then="print(stop.received, flush=True)") as process:
        assert process.stdout is not None
        process.send_signal(signal.SIGTERM)
        assert [process.stdout.readline() for _ in range(2)] == ["1\n", "asked\n"]
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
            process.send_signal(number)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == SIGNALLED + signal.SIGINT


@pytest.mark.realprocess
@pytest.mark.parametrize("held", [False, True])
def test_a_process_stops_when_its_parent_is_killed(held: bool) -> None:
    """A process that ends with its parent is asked to stop when the parent is killed,
    even if a fork of the parent holds the pipe open.
    """
    child = STUCK.format(setting="stop_with_parent(stop, 30.0)", then="os._exit(0)")
    fork = "import os, signal\nif os.fork() == 0:\n    signal.alarm(20)\n    signal.pause()\n"
    program = (
        f"import subprocess, sys, threading\n"
        f"child = subprocess.Popen([sys.executable, '-c', {child!r}], stdin=subprocess.PIPE)\n"
        f"{fork if held else ''}print(child.pid, flush=True)\nthreading.Event().wait(60)\n"
    )
    host = [sys.executable, "-c", program]
    with subprocess.Popen(host, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        said = sorted(parent.stdout.readline() for _ in range(2))
        assert said[1] == "ready\n"
        parent.kill()
    await_condition(lambda: not is_running(int(said[0])), 10.0, "the end of the process")


@pytest.mark.realprocess
def test_standard_input_that_says_nothing_of_a_parent_is_refused() -> None:
    """The end with the parent needs a pipe or a socket as standard input."""
    program = STUCK.format(setting="stop_with_parent(stop, 30.0)", then="")
    told = subprocess.run(
        [sys.executable, "-c", program],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert "standard input is neither. Start it with `stdin=subprocess.PIPE`" in told.stderr
