"""Tests of the commands as a user runs them: ready lines, exit codes, signals, and
errors in a single line.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.full import full
from zmqdata import Dataset, distribute
from zmqdata.cli.commands import main
from zmqdata.client.calls import status
from zmqdata.cluster.processes import ServerProcess
from zmqdata.testing.cluster import (
    await_condition,
    descendants,
    frozen,
    is_running,
    listens,
    no_leaks,
)
from zmqdata.worker.processes.lifetime import SIGNALLED
from zmqdata.worker.processes.supervisor import NO_DISPATCHER

pytestmark = pytest.mark.realprocess

START = 30.0


@contextlib.contextmanager
def running(role: str, *options: str, ready: int = 1) -> Iterator[ServerProcess]:
    with contextlib.closing(
        ServerProcess(f"zmqdata.{role}", [*options, "--log-level=warning"], ready)
    ) as server:
        server.launch()
        yield server


@pytest.fixture(scope="module")
def dispatcher() -> Iterator[ServerProcess]:
    """A dispatcher for all tests that read nothing."""
    with running("dispatcher") as server:
        server.await_ready(START)
        yield server


@pytest.fixture
def unused_dispatcher() -> Iterator[ServerProcess]:
    """A dispatcher that no worker has left."""
    with running("dispatcher") as server:
        server.await_ready(START)
        yield server


def ended(server: ServerProcess) -> tuple[int | None, str]:
    """Wait for the end of a server; return its exit code and standard error."""
    await_condition(lambda: not server.alive, START, "its end")
    return server.exit_code, server.log


def test_a_dispatcher_prints_one_line(dispatcher: ServerProcess) -> None:
    """A ready dispatcher prints its address with the real port, and nothing else, to
    standard output.
    """
    assert re.fullmatch(
        r"zmqdata dispatcher listening on tcp://127\.0\.0\.1:[1-9][0-9]*\n", dispatcher.said
    )
    assert listens(dispatcher.address)


def test_a_worker_prints_one_line_for_each_process(dispatcher: ServerProcess) -> None:
    """A worker of two processes prints two lines once they are registered, and nothing
    else, to standard output.
    """
    with running(
        "worker", "--dispatcher", dispatcher.address, "--processes", "2", ready=2
    ) as worker:
        worker.await_ready(START)
        assert re.fullmatch(
            r"(zmqdata worker listening on tcp://127\.0\.0\.1:[1-9][0-9]*\n){2}", worker.said
        )
        assert all(listens(address) for address in worker.addresses)


def test_every_interface_is_announced_as_one_address(dispatcher: ServerProcess) -> None:
    """A server on 0.0.0.0 announces its address on the route to the dispatcher, or the
    value of ``--advertise``.
    """
    with running("worker", "--dispatcher", dispatcher.address, "--host", "0.0.0.0") as worker:
        worker.await_ready(START)
        assert worker.address.startswith("tcp://127.0.0.1:")
    with running(
        "worker", f"--dispatcher={dispatcher.address}", "--advertise", "localhost:%port%"
    ) as worker:
        worker.await_ready(START)
        assert re.fullmatch(r"tcp://localhost:[1-9][0-9]*", worker.address)
        assert listens(worker.address)


def test_a_worker_may_start_before_its_dispatcher() -> None:
    """A worker waits for a dispatcher that is still absent, and registers once it
    comes.
    """
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    with running("worker", "--dispatcher", f"127.0.0.1:{port}") as worker:
        await_condition(lambda: descendants(worker.pid), START, "the worker's process")
        assert worker.said == ""
        with running("dispatcher", "--port", str(port)) as dispatcher:
            dispatcher.await_ready(START)
            worker.await_ready(START)


@pytest.mark.parametrize("number", [signal.SIGTERM, full(signal.SIGINT)])
def test_a_signal_ends_all_cleanly(number: signal.Signals) -> None:
    """SIGTERM and SIGINT end dispatcher and worker with exit code 0 and an empty log,
    and leave no process.
    """
    with no_leaks(), running("dispatcher") as dispatcher:
        dispatcher.await_ready(START)
        with running(
            "worker", "--dispatcher", dispatcher.address, "--processes", "2", ready=2
        ) as worker:
            worker.await_ready(START)
            children = descendants(worker.pid)
            assert len(children) == 2
            for server in (worker, dispatcher):
                server.signal(number)
                assert ended(server) == (0, "")
            assert not any(map(is_running, children))


def test_a_worker_ends_while_it_waits() -> None:
    """A worker that has not found its dispatcher yet ends cleanly, too."""
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    with running("worker", "--dispatcher", f"127.0.0.1:{port}") as worker:
        await_condition(lambda: descendants(worker.pid), START, "the worker's process")
        worker.ask_to_stop()
        assert ended(worker) == (0, "")


def test_a_second_signal_ends_at_once(dispatcher: ServerProcess) -> None:
    """A worker with an unresponsive process ends at the second SIGINT, and kills that
    process.
    """
    with running("worker", "--dispatcher", dispatcher.address) as worker:
        worker.await_ready(START)
        [child] = descendants(worker.pid)
        os.kill(child, signal.SIGSTOP)
        await_condition(lambda: is_stopped(child), START, "the process to stop")
        worker.signal(signal.SIGINT)
        await_condition(lambda: asked_to_end(child), START, "the first signal to be passed on")
        assert worker.alive
        worker.signal(signal.SIGINT)
        await_condition(lambda: not worker.alive, START, "the end at once")
        assert worker.exit_code == SIGNALLED + signal.SIGINT
        await_condition(lambda: not is_running(child), START, "the end of its process")


def asked_to_end(pid: int) -> bool:
    """True if SIGINT is pending for a stopped process."""
    return bool(int(process_status(pid, "ShdPnd"), 16) >> (signal.SIGINT - 1) & 1)


def is_stopped(pid: int) -> bool:
    """True if SIGSTOP has reached a process. Until then, a later SIGTERM would overtake
    it.
    """
    return process_status(pid, "State") == "T"


def process_status(pid: int, entry: str) -> str:
    """Return the first word of an entry of the kernel's status page of a process."""
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        [word] = [line.split()[1] for line in status if line.startswith(entry)]
    return word


def test_a_port_in_use_is_one_line(dispatcher: ServerProcess) -> None:
    """Dispatcher and worker end with exit code 2 and a single line that names the port
    if it is in use.
    """
    port = dispatcher.address.rpartition(":")[2]
    for role, options in (("dispatcher", ()), ("worker", ("--dispatcher", dispatcher.address))):
        with running(role, *options, "--port", port) as server:
            code, log = ended(server)
            assert (code, server.said) == (2, "")
            assert re.fullmatch(
                rf"python -m zmqdata\.{role}: .*:{port}: the port is in use;.*\n", log
            )


def test_exhausted_data_ports_are_one_line(dispatcher: ServerProcess) -> None:
    """A worker without a free data port ends with exit code 2 and a single line that
    names the range.
    """
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with running(
            "worker", "--dispatcher", dispatcher.address, "--data-ports", f"{port}-{port}"
        ) as worker:
            code, log = ended(worker)
    assert code == 2
    assert re.fullmatch(rf"python -m zmqdata\.worker: Data ports exhausted: .*{port}.*\n", log)


@pytest.mark.full
def test_a_refused_worker_ends(dispatcher: ServerProcess) -> None:
    """A worker that the dispatcher refuses ends with exit code 2 and the dispatcher's
    reason in a single line.
    """
    with running("dispatcher", "--worker-address", "10.255.255.1") as picky:
        picky.await_ready(START)
        with running("worker", "--dispatcher", picky.address) as worker:
            code, log = ended(worker)
    assert code == 2
    assert re.fullmatch(
        r"python -m zmqdata\.worker: .*address is not configured.*", log.splitlines()[-1]
    )


@pytest.mark.full
def test_a_killed_process_is_replaced(dispatcher: ServerProcess) -> None:
    """The supervisor replaces a killed process, logs how it died, and announces the new
    process.
    """
    with running("worker", "--dispatcher", dispatcher.address) as worker:
        worker.await_ready(START)
        [child] = descendants(worker.pid)
        os.kill(child, signal.SIGKILL)
        await_condition(lambda: worker.said.count("\n") == 2, START, "the second ready line")
        assert re.search(
            rf"child 0 \(process {child}\) was killed by SIGKILL.*started again", worker.log
        )
        assert listens(worker.address)


@pytest.mark.parametrize("stuck", [full(False), True])
def test_processes_never_outlive_their_supervisor(dispatcher: ServerProcess, stuck: bool) -> None:
    """The processes of a killed supervisor end at once, even if they cannot react."""
    with running(
        "worker", "--dispatcher", dispatcher.address, "--processes", "2", ready=2
    ) as worker:
        worker.await_ready(START)
        children = descendants(worker.pid)
        with frozen(worker) if stuck else contextlib.nullcontext():
            worker.kill()
            await_condition(
                lambda: not any(map(is_running, children)), START, "the end of its processes"
            )


@pytest.mark.parametrize("host", ["127.0.0.1", "no-such-host.invalid"])
def test_a_worker_without_a_dispatcher_ends_with_4(host: str) -> None:
    """A worker that has had no dispatcher for ``--death-timeout`` seconds ends, and
    says why. In a pod of Kubernetes it also awaits the name of the dispatcher.
    """
    options = [f"--dispatcher=tcp://{host}:1", "--death-timeout=0.5", "--advertise=127.0.0.1"]
    command = [sys.executable, "-m", "zmqdata.worker", *options, "--heartbeat-interval-ms=200"]
    pod = {**os.environ, "KUBERNETES_SERVICE_HOST": "127.0.0.1"}
    told = subprocess.run(command, capture_output=True, text=True, timeout=START, env=pod)
    assert told.returncode == NO_DISPATCHER
    assert f"tcp://{host}:1 has not answered for 0.5 s (`--death-timeout`" in told.stderr


def test_a_worker_waits_for_the_file_of_its_dispatcher(tmp_path: Path) -> None:
    """A worker without the file ends with 4 after ``--death-timeout``, with 0 at
    SIGTERM, and with 2 at once if others may write the file.
    """
    path = tmp_path / "dispatcher.json"
    command = [sys.executable, "-m", "zmqdata.worker", f"--dispatcher-file={path}"]
    short = [*command, "--death-timeout=0.5", "--heartbeat-interval-ms=200"]
    told = subprocess.run(short, capture_output=True, text=True, timeout=START)
    assert told.returncode == NO_DISPATCHER
    assert f"No dispatcher has written {path} for 0.5 s" in told.stderr
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as worker:
        assert worker.stderr is not None
        assert (
            f"waiting for a dispatcher to write its address to {path}" in worker.stderr.readline()
        )
        worker.terminate()
        assert worker.wait(START) == 0
    path.write_text("{}")
    path.chmod(0o666)
    told = subprocess.run(command, capture_output=True, text=True, timeout=START)
    assert told.returncode == 2
    assert "chmod go-w" in told.stderr


def test_a_worker_takes_nothing_in_its_folder_for_a_module_of_ours(
    unused_dispatcher: ServerProcess, tmp_path: Path
) -> None:
    """A command that starts in a folder like /tmp imports modules from it only for
    pipelines, and last.
    """
    folder, command = tmp_path / "anybodys", tmp_path / "command"
    folder.mkdir()
    for name in ("msgspec", "numpy", "zmq"):
        (folder / f"{name}.py").write_text("raise SystemExit('a trap')")
    (folder / "only_there.py").write_text("VALUE = 7")
    command.write_text(
        "import sys\nfrom zmqdata.cli.commands import "
        "worker_main\nsys.exit(worker_main(sys.argv[1:], 'worker'))"
    )
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(entry or os.getcwd() for entry in sys.path),
    }
    address = unused_dispatcher.address
    options = ["--dispatcher", address, "--exit-with-parent"]
    told: dict[str, Any] = {
        "cwd": folder,
        "env": environment,
        "stdin": subprocess.PIPE,
        "stdout": subprocess.PIPE,
    }
    with subprocess.Popen([sys.executable, str(command), *options], **told) as worker:
        try:
            elements = Dataset.range(3).map(lambda x: x * __import__("only_there").VALUE)
            assert sorted(map(int, elements.apply(distribute("parallel_epochs", address)))) == [
                0,
                7,
                14,
            ]
        finally:
            worker.terminate()


def test_the_status_is_printed(
    unused_dispatcher: ServerProcess,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """``zmqdata status`` prints the state of the dispatcher that the environment names,
    as tables or as JSON with ``--json``.
    """
    monkeypatch.setenv("ZMQDATA_DISPATCHER", unused_dispatcher.address)
    monkeypatch.setenv("COLUMNS", "200")

    def shown(*options: str) -> str:
        assert main(["status", *options]) == 0
        return capsys.readouterr().out

    with running("worker", f"--dispatcher={unused_dispatcher.address}", "--tag=GPU") as worker:
        worker.await_ready(START)
        command = [sys.executable, "-m", "zmqdata", "status"]
        told = subprocess.run(command, capture_output=True, text=True, timeout=START, check=True)
        assert "  1 worker  0 jobs" in told.stdout
        assert worker.address.removeprefix("tcp://") in told.stdout
        found = json.loads(shown("--json"))
        assert [(entry["address"], entry["tags"]) for entry in found["workers"]] == [
            (worker.address, ["GPU"])
        ]
        assert (found["jobs"], found["tasks"]) == ([], [])
        assert found["config"]["port"] == 0
        found = json.loads(shown("--worker", worker.address, "--json"))
        assert (found["worker"], found["registered"], found["tasks"]) == (worker.address, True, [])
        assert found["config"]["worker_tags"] == ["GPU"]
        assert "0 tasks" in shown("--worker", worker.address)


def test_servers_are_configured_by_the_environment() -> None:
    """Dispatcher and worker that start without options take the values of ZMQDATA_*,
    and report them.
    """
    program = "import sys; from zmqdata.cli.commands import main; sys.exit(main(sys.argv[1:]))"

    def start(command: str, **given: str) -> subprocess.Popen[str]:
        environment = {**os.environ, **{f"ZMQDATA_{name}": text for name, text in given.items()}}
        asked = [sys.executable, "-c", program, command]
        return subprocess.Popen(
            asked, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    with contextlib.ExitStack() as stack:
        address = announced(stack, start("dispatcher", WORKER_TIMEOUT_MS="4321", HOST="localhost"))
        announced(
            stack,
            start("worker", DISPATCHER=address, WORKER_TAGS="GPU,LAB", HEARTBEAT_INTERVAL_MS="100"),
        )
        found = status(address)
        assert (found["config"]["worker_timeout_ms"], found["config"]["host"]) == (
            4321,
            "localhost",
        )
        assert [worker["tags"] for worker in found["workers"]] == [["GPU", "LAB"]]


def announced(stack: contextlib.ExitStack, server: subprocess.Popen[str]) -> str:
    """Return the address of a server, which ends with the stack."""
    stack.enter_context(server)
    stack.callback(server.terminate)
    assert server.stdout is not None
    return server.stdout.readline().split()[-1]


def test_a_status_that_nobody_gives_is_one_line() -> None:
    """Without a dispatcher, zmqdata status ends with exit code 1 and a single line."""
    command = [
        sys.executable,
        "-m",
        "zmqdata",
        "status",
        "--dispatcher",
        "127.0.0.1:9",
        "--timeout",
        "0.2",
    ]
    told = subprocess.run(command, capture_output=True, text=True, timeout=START)
    assert (told.returncode, told.stdout, told.stderr.count("\n")) == (1, "", 1)
    assert told.stderr.startswith("python -m zmqdata status: ")
