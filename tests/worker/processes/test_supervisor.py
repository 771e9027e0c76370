"""Tests of the supervisor of a worker's processes: what it starts and restarts, and
when it gives up.
"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from zmqdata.config.logs import LogSettings
from zmqdata.config.worker import WorkerConfig
from zmqdata.testing.cluster import no_leaks
from zmqdata.worker.processes import supervisor as module
from zmqdata.worker.processes.accounts import Account
from zmqdata.worker.processes.lifetime import StopSignals
from zmqdata.worker.processes.limits import Limits
from zmqdata.worker.processes.supervisor import (
    MOST_FAILED_STARTS,
    NO_DISPATCHER,
    Desertion,
    Supervisor,
    child_command,
    child_configs,
    child_environment,
    restart_pause,
)

HERE = "tcp://127.0.0.1:5050"
READY = "import sys; print('ready tcp://a:1', flush=True); sys.stdin.read()"


@pytest.fixture
def signals() -> Iterator[StopSignals]:
    stop = StopSignals(waking=(signal.SIGCHLD,))
    yield stop
    stop.close()


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restart children without a pause."""
    monkeypatch.setattr(module, "FIRST_PAUSE", 0.0)


def children(*programs: str) -> list[list[str]]:
    return [[sys.executable, "-S", "-c", program] for program in programs]


def stop_now(_: str) -> None:
    signal.raise_signal(signal.SIGTERM)


def stop_after(lines: int, said: list[str]) -> Callable[[str], None]:
    def say(line: str) -> None:
        said.append(line)
        if len(said) == lines:
            signal.raise_signal(signal.SIGTERM)

    return say


def test_children_take_the_ports_that_follow() -> None:
    """The children take consecutive ports after a fixed port, and any port after port
    0.
    """
    assert [config.port for config in child_configs(WorkerConfig(HERE, port=7000), 3)] == [
        7000,
        7001,
        7002,
    ]
    assert [config.port for config in child_configs(WorkerConfig(HERE), 2)] == [0, 0]


@pytest.mark.parametrize(
    ("config", "processes", "text"),
    [
        (WorkerConfig(HERE), 0, "at least 1 process, got 0"),
        (WorkerConfig(HERE), 1001, "at most 1000 processes, got 1001: .* Say auto"),
        (WorkerConfig(HERE, port=65535), 2, "2 processes do not fit between port 65535 and 65535"),
        (
            WorkerConfig(HERE, data_ports=(7000, 7001)),
            3,
            "data ports 7000-7001 do not suffice for 3 processes",
        ),
        (
            WorkerConfig(HERE, worker_address="gate:7000"),
            2,
            "cannot all be announced as 'gate:7000'.*'gate:%port%'",
        ),
    ],
)
def test_children_that_would_collide_are_refused(
    config: WorkerConfig, processes: int, text: str
) -> None:
    """Too few ports, or a single announced address for all children, are refused before
    any child starts.
    """
    with pytest.raises(ValueError, match=text):
        child_configs(config, processes)


def test_children_are_numbered_under_the_name_of_the_worker() -> None:
    """A single child has the name of its worker, several have numbers behind it."""
    config = WorkerConfig(HERE, name="node17")
    assert [one.name for one in child_configs(config, 1)] == ["node17"]
    assert [one.name for one in child_configs(config, 2)] == ["node17/0", "node17/1"]


@pytest.mark.parametrize("address", [None, "gate", "gate:%port%", "fe80::1"])
def test_an_address_for_all_children_is_accepted(address: str | None) -> None:
    """An announced address without a fixed port suits any number of children."""
    assert len(child_configs(WorkerConfig(HERE, worker_address=address), 4)) == 4


def test_a_child_is_told_everything_on_its_command_line() -> None:
    """A child's arguments hold its whole configuration, level and form of its log, and
    its parent's process id.
    """
    config = WorkerConfig(HERE, worker_tags=("GPU",), data_ports=(1, 2))
    *_, name, assignment = child_command(config, LogSettings("debug", "json"))
    assert name == "zmqdata.worker.child"
    told = json.loads(assignment)
    assert (told["log_level"], told["log_format"], told["parent"]) == ("debug", "json", os.getpid())
    assert told["config"]["worker_tags"] == ["GPU"]


def test_data_ports_of_children_follow_each_other() -> None:
    """The children take consecutive data ports after a fixed port, and else any."""
    children = child_configs(WorkerConfig(HERE, port=7000, data_transfer_port=8000), 2)
    assert [(child.port, child.data_transfer_port) for child in children] == [
        (7000, 8000),
        (7001, 8001),
    ]
    assert [child.data_transfer_port for child in child_configs(WorkerConfig(HERE), 2)] == [0, 0]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"data_transfer_port": 65535}, "2 processes do not fit between data port 65535 and 65535"),
        (
            {"data_transfer_address": "gate:7000", "data_transfer_port": 7000},
            "announced as 'gate:7000'; write 'gate:%dts_port%'",
        ),
    ],
)
def test_children_with_one_data_port_between_them_are_refused(
    given: dict[str, Any], text: str
) -> None:
    """Children that would share a data port, or announce the same data port, are
    refused.
    """
    with pytest.raises(ValueError, match=text):
        child_configs(WorkerConfig(HERE, **given), 2)


def test_children_use_one_thread_and_one_hash_seed() -> None:
    """Numeric libraries use a single thread in each child, and sets have the same order
    in all children.
    """
    environment = child_environment()
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PYTHONHASHSEED")
    assert [environment[name] for name in names] == ["1", "1", "1", "0"]


def test_pauses_grow_to_a_limit() -> None:
    """Each consecutive death doubles the pause before the next start, up to ten
    seconds.
    """
    pauses = [restart_pause(deaths) for deaths in range(1, 1000)]
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (0.1, 10.0)


@pytest.mark.realprocess
def test_a_ready_child_is_announced_and_ended(signals: StopSignals) -> None:
    """The supervisor announces each ready child once. SIGTERM ends all children with
    exit code 0 and leaves nothing behind.
    """
    said: list[str] = []
    with no_leaks():
        assert Supervisor(children(READY, READY), stop_after(2, said), signals).run() == 0
    assert said == ["tcp://a:1", "tcp://a:1"]


@pytest.mark.realprocess
@pytest.mark.parametrize(
    ("last_act", "how"),
    [
        ("sys.exit(4)", "ended with exit code 4"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "was killed by SIGKILL"),
        ("os.abort()", "was killed by SIGABRT"),
        ("sys.exit(2)", "ended with exit code 2"),
    ],
)
@pytest.mark.usefixtures("hasty")
def test_a_dead_child_is_replaced(
    signals: StopSignals, caplog: pytest.LogCaptureFixture, last_act: str, how: str
) -> None:
    """The supervisor restarts a child that dies after it was ready, and logs the cause
    of its death.
    """
    said: list[str] = []
    program = f"import os, signal, sys; print('ready tcp://a:1', flush=True); {last_act}"
    with caplog.at_level(logging.WARNING):
        assert Supervisor(children(program), stop_after(3, said), signals).run() == 0
    assert len(said) == 3
    assert any(
        "child 0" in text and how in text and "started again" in text for text in caplog.messages
    )


@pytest.mark.realprocess
def test_a_configuration_error_ends_the_worker(signals: StopSignals) -> None:
    """A child that exits with code 2 before it is ready ends the whole worker, which
    prints the child's single line.
    """
    failing = "import sys; print('error the port is in use'); sys.exit(2)"
    supervisor = Supervisor(children(READY, failing), lambda line: None, signals)
    with no_leaks():
        assert supervisor.run() == 2
    assert supervisor.error == "the port is in use"


@pytest.mark.realprocess
def test_a_child_of_another_version_than_the_dispatcher_is_not_replaced(
    signals: StopSignals,
) -> None:
    """The worker does not replace such a child, even if it was ready before, as a
    successor would speak the same version.
    """
    outdated = (
        "import sys; print('ready x', flush=True); print('outdated Version mismatch'); sys.exit(2)"
    )
    said: list[str] = []
    supervisor = Supervisor(children(outdated), said.append, signals)
    with no_leaks():
        assert supervisor.run() == 2
    assert (said, supervisor.error) == (["x"], "Version mismatch")


@pytest.mark.realprocess
@pytest.mark.usefixtures("hasty")
def test_a_child_that_never_gets_ready_is_given_up(signals: StopSignals) -> None:
    """After several consecutive deaths of children that were never ready, the worker
    gives up with exit code 1.
    """
    supervisor = Supervisor(children("raise SystemExit(1)"), lambda line: None, signals)
    assert supervisor.run() == 1
    assert f"ended with exit code 1, {MOST_FAILED_STARTS} times" in supervisor.error


@pytest.mark.realprocess
def test_a_child_that_does_not_end_is_killed(
    signals: StopSignals, caplog: pytest.LogCaptureFixture
) -> None:
    """The supervisor kills a child that ignores SIGTERM after the grace period, and
    logs it.
    """
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + READY
    with caplog.at_level(logging.WARNING), no_leaks():
        assert Supervisor(children(deaf), stop_now, signals, grace=0.05).run() == 0
    assert any("it is killed" in text for text in caplog.messages)


@pytest.mark.realprocess
def test_a_child_has_its_grace(signals: StopSignals, caplog: pytest.LogCaptureFixture) -> None:
    """The supervisor does not kill a child that still drains, or sends its elements."""
    late = "import select, signal, sys; late = lambda *_: (select.select([], [], [], 0.2), sys.exit()); "
    late += "signal.signal(signal.SIGTERM, late); "
    with caplog.at_level(logging.WARNING), no_leaks():
        assert Supervisor(children(late + READY), stop_now, signals, grace=20.0).run() == 0
    assert caplog.messages == []


@pytest.mark.realprocess
def test_babble_of_a_child_is_not_repeated(signals: StopSignals) -> None:
    """Output of a child that is not a report, arrives in pieces or is not text does no
    harm.
    """
    babble = "import sys; sys.stdout.buffer.write(b'\\xff\\n\\nrea'); sys.stdout.flush(); print('dy x', flush=True); "
    said: list[str] = []
    assert (
        Supervisor(children(babble + "sys.stdin.read()"), stop_after(1, said), signals).run() == 0
    )
    assert said == ["x"]


def test_children_that_were_told_to_leave_are_not_started_again(signals: StopSignals) -> None:
    """A worker may be drained from outside. Its supervisor exits with 0 after all of
    its children have left.
    """
    program = "print('ready tcp://a:1'); print('draining', flush=True)"
    said: list[str] = []
    supervisor = Supervisor(children(program, program), said.append, signals)
    assert supervisor.run() == 0
    assert said == ["tcp://a:1"] * 2


@pytest.mark.realprocess
def test_one_child_speaks_for_all(signals: StopSignals) -> None:
    """All children but the first are told to be quiet about what concerns all."""
    said: list[str] = []
    program = (
        "import sys; from zmqdata.worker.processes.watch import QUIET, WatchFile; "
        "print('ready', WatchFile(int(sys.argv[1])).cells[QUIET], flush=True); sys.stdin.read()"
    )
    commands = [[sys.executable, "-c", program]] * 3
    assert Supervisor(commands, stop_after(3, said), signals).run() == 0
    assert sorted(said) == ["0", "1", "1"]


CHILD = """
import os, signal, sys, threading
from zmqdata.worker.processes.watch import NUMBER, WatchFile
watch_file = WatchFile(int(sys.argv[1]))
told = watch_file.told()
watch_file.introduce(f"worker-{os.getpid()}")
task = watch_file.open((4000, len(told) + 1))
call = watch_file.open((4000, len(told) + 1), "/0", "map(f)")
watch_file.cells[call + NUMBER] = 7
"""


def told_after(deaths: int, last_act: str, signals: StopSignals, before: str = "") -> list[Any]:
    """Return the deaths that the supervisor reports to the child after that many
    deaths.
    """
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        signal.raise_signal(signal.SIGTERM)

    program = f"{CHILD}{before}\nif len(told) < {deaths}:\n    {last_act}\nimport json\n"
    program += "print('ready', json.dumps(told), flush=True)\nsys.stdin.read()"
    command = [sys.executable, "-c", program]
    assert Supervisor([command], say, signals).run() == 0
    found: list[Any] = json.loads(said[0])
    return found


@pytest.mark.realprocess
@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize(
    ("last_act", "how", "killed"),
    [
        ("os._exit(2)", "ended with exit code 2", False),
        ("os.kill(os.getpid(), signal.SIGKILL)", "was killed by SIGKILL", True),
        (
            "watch_file.limit(task, 50); threading.Event().wait()",
            r"was stuck for \d+ s and was killed",
            False,
        ),
    ],
)
def test_the_next_child_is_told_of_deaths(
    signals: StopSignals, last_act: str, how: str, killed: bool
) -> None:
    """Deaths are reported until a child is ready. A child with work to do was ready
    before, whatever its exit code.
    """
    first, second = told_after(2, last_act, signals)
    assert first["worker"] != second["worker"]
    assert [death["in_progress"][0]["number"] for death in (first, second)] == [7, 7]
    assert [death["tasks"] for death in (first, second)] == [[[4000, 1]], [[4000, 2]]]
    assert re.search(how, first["how"])
    assert first["killed"] is killed


CRASH = """
import ctypes, pathlib, tempfile
from zmqdata.worker.processes.lifetime import watch_lifeline
class Fatal:
    def __index__(self):
        ctypes.string_at(0)
    fileno = __index__
watch_file.catch_crashes(int(sys.argv[1]))
mark = pathlib.Path(tempfile.gettempdir(), f"zmqdata-crash-{os.getppid()}")
if was_there := mark.exists():
    mark.unlink()
"""


@pytest.mark.realprocess
@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize(
    ("act", "told", "log"),
    [
        ("watch_lifeline(Fatal())", 0, "zmqdata itself, which runs `wait` of worker/processes"),
        ("threading.Thread(target=Fatal().__index__).start()", 1, "native code of a pipeline"),
    ],
)
def test_no_element_is_blamed_for_a_crash_of_our_own_thread(
    signals: StopSignals, caplog: pytest.LogCaptureFixture, act: str, told: int, log: str
) -> None:
    """A crash in a thread that runs no pipeline is not reported, whatever functions run
    beside it, and the log names the thread. Any other crash is reported. The log has
    the stack.
    """
    last_act = f"was_there or (mark.touch(), {act}, threading.Event().wait())"
    assert len(told_after(1, last_act, signals, CRASH)) == told
    assert log in caplog.text
    assert re.search(r"newest call first\n  File .*ctypes", caplog.text)


@pytest.mark.realprocess
@pytest.mark.usefixtures("hasty")
def test_who_ends_in_good_order_leaves_nothing_to_tell(signals: StopSignals) -> None:
    """A child that announces its end leaves no death to report, whatever it was
    doing.
    """
    mark = "import pathlib, tempfile; mark = pathlib.Path(tempfile.gettempdir(), f'zmqdata-{os.getppid()}')"
    last_act = (
        "(mark.unlink(), None) if mark.exists() else (mark.touch(), watch_file.end(), os._exit(3))"
    )
    assert told_after(1, last_act, signals, before=mark) == []


@pytest.mark.realprocess
@pytest.mark.usefixtures("hasty")
def test_who_has_no_memory_left_is_no_ordinary_death(signals: StopSignals) -> None:
    """The supervisor reports to the next child that its predecessor reached the memory
    limit. Like a kill by the system, the death counts at its element only.
    """
    [death] = told_after(1, "watch_file.limit_memory(3 << 30); watch_file.starve()", signals)
    assert death["how"] == "needed more memory than its limit of 3 GiB"
    assert death["killed"] is True
    assert [work["number"] for work in death["in_progress"]] == [7]


RETIRING = "print('ready tcp://a:1'); print('retiring', flush=True); raise SystemExit("


@pytest.mark.realprocess
def test_who_has_had_its_tasks_is_replaced_at_once(
    signals: StopSignals, caplog: pytest.LogCaptureFixture
) -> None:
    """A child that reaches its maximum of tasks is replaced without a pause and without
    a warning, however often this happens.
    """
    said: list[str] = []
    with caplog.at_level(logging.WARNING):
        assert Supervisor(children(f"{RETIRING}0)"), stop_after(8, said), signals).run() == 0
    assert len(said) == 8
    assert caplog.messages == []


RECYCLED = """
import sys
from zmqdata.worker.processes.watch import EARLY, RECYCLES, WatchFile
cells = WatchFile(int(sys.argv[1])).cells
print("ready", cells[RECYCLES], cells[EARLY], flush=True)
print("recycling" + " early" * (cells[RECYCLES] != 2), flush=True)
"""


@pytest.mark.realprocess
def test_a_recycled_child_is_replaced_and_its_successor_is_told(
    signals: StopSignals, caplog: pytest.LogCaptureFixture
) -> None:
    """A child that ends because of its memory is replaced without a pause. Each
    successor is told how many were recycled before it, and how many of them in a row
    reached their limit right after their start.
    """
    said: list[str] = []
    with caplog.at_level(logging.INFO):
        command = [sys.executable, "-c", RECYCLED]
        assert Supervisor([command], stop_after(5, said), signals).run() == 0
    assert said == ["0 0", "1 1", "2 2", "3 0", "4 1"]
    assert "memory_limit), 1 times so far; another process replaces it" in caplog.messages[0]
    assert not any("started again" in line for line in caplog.messages)


@pytest.mark.realprocess
@pytest.mark.usefixtures("hasty")
def test_who_dies_on_its_way_out_has_died(
    signals: StopSignals, caplog: pytest.LogCaptureFixture
) -> None:
    """A child that exits with a code other than 0 while it stops counts as a death."""
    with caplog.at_level(logging.WARNING):
        assert Supervisor(children(f"{RETIRING}4)"), stop_after(2, []), signals).run() == 0
    assert "ended with exit code 4" in caplog.messages[0]


def test_a_child_is_told_its_limits() -> None:
    """The configuration of a child holds its limits, if it has any."""
    limits = Limits(1 << 30, 5, True)
    told = [
        json.loads(child_command(WorkerConfig(HERE), LogSettings(), *given)[-1])["limits"]
        for given in ((limits,), ())
    ]
    assert [Limits(**one) for one in told] == [limits, Limits()]


RIGHTS = 'echo "ready $(id -u) $(id -ru) $(id -g) $(id -G) $(umask) $HOME $LOGNAME ${XDG_CACHE_HOME-none}"; cat'


@pytest.mark.realprocess
def test_a_child_has_the_rights_of_its_user(
    signals: StopSignals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child takes its user, groups, umask and home before it runs any code. A
    supervisor that is not root can only give its own rights.
    """
    monkeypatch.setenv("XDG_CACHE_HOME", "/root/.cache")
    account = Account("somebody", 54321, 54322, (54322, 54323), "/home/somebody")
    expected = "54321 54321 54322 54322 54323 0002 /home/somebody somebody none"
    if os.geteuid():
        account = Account("me", os.getuid(), os.getgid(), (os.getgid(),), "/nowhere")
        told = subprocess.run(
            ["sh", "-c", RIGHTS], stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        expected = told.stdout.strip().partition(" ")[2]
    said: list[str] = []
    before = os.umask(0 if not os.geteuid() else 0o022)
    try:
        command = ["sh", "-c", RIGHTS]
        assert Supervisor([command], stop_after(1, said), signals, account=account).run() == 0
    finally:
        os.umask(before)
    assert said == [expected]


@pytest.mark.realprocess
def test_a_worker_ends_with_its_lifetime(signals: StopSignals) -> None:
    """A worker whose lifetime is over drains its children, and ends with 0."""
    with no_leaks():
        assert Supervisor(children(READY), lambda _: None, signals, lifetime=0.1).run() == 0
    assert not signals.received


@pytest.mark.realprocess
@pytest.mark.usefixtures("hasty")
def test_a_worker_without_a_dispatcher_ends(signals: StopSignals) -> None:
    """A child that has given its dispatcher up ends the worker, with 4, whether it was
    ever ready or not.
    """
    for before in ("", "print('ready tcp://a:1', flush=True); "):
        gives_up = f"import sys; {before}print('deserted no answer', flush=True); sys.exit(2)"
        worker = Supervisor(children(gives_up), lambda _: None, signals)
        assert (worker.run(), worker.error) == (NO_DISPATCHER, "no answer")


@pytest.mark.realprocess
def test_a_worker_whose_children_cannot_speak_ends_without_a_dispatcher(
    signals: StopSignals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The supervisor gives a dispatcher up that takes no connection, if no child has
    heard it for the whole time.
    """
    monkeypatch.setattr(module, "OWN_PATIENCE", 0.0)
    desertion = Desertion("tcp://127.0.0.1:1", 0.2)
    worker = Supervisor(children(READY), lambda _: None, signals, desertion=desertion)
    assert worker.run() == NO_DISPATCHER
    assert "tcp://127.0.0.1:1 has not answered for 0.2 s" in worker.error


def test_a_dispatcher_that_takes_connections_is_not_given_up() -> None:
    """A dispatcher that a child has heard lately, or that takes a connection, is
    there.
    """
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        endpoint = "tcp://{}:{}".format(*server.getsockname())
        desertion = Desertion(endpoint, 10.0)
        now = time.monotonic()
        assert not desertion.has_begun(now + 100.0, 0.0)
    assert not desertion.has_begun(now + 111.0, 0.0), "it was there at 100"
    assert not desertion.has_begun(now + 212.0, now + 201.0), "a child has heard it"
    assert desertion.has_begun(now + 214.0, now + 201.0)
