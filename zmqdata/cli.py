"""The commands: arguments in, one line when ready, exit codes out. Servers are made here and written elsewhere.

Exit codes: 0 ended as told, 1 failed while running, 2 could not start with these arguments. Imports that take time are
made by the command that needs them.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, NoReturn

from zmqdata.config import DispatcherConfig, WorkerConfig
from zmqdata.errors import DataServiceError, UnavailableError
from zmqdata.transport.addresses import endpoint_host, parse_port_range, parse_service, resolve_host
from zmqdata.worker.lifetime import StopSignals, exit_within, watch_lifeline
from zmqdata.worker.supervisor import Supervisor, available_cores, child_command, child_configs

DISPATCHER_VARIABLE = "ZMQDATA_DISPATCHER"
LOG_LEVELS = ("debug", "info", "warning", "error")
CANNOT_START = 2
LAST_SECONDS = 5.0
STATUS_TIMEOUT = 5.0


class Arguments(argparse.ArgumentParser):
    """A parser whose errors are one line, as all errors of the commands are."""

    def error(self, message: str) -> NoReturn:
        raise SystemExit(complain(self.prog, f"{message} (--help explains every option)"))


def main(arguments: Sequence[str] | None = None, program: str = "zmqdata") -> int:
    """Runs ``zmqdata dispatcher|worker|status|save-status``.

    Args:
        arguments: without the program's name; None: those of this process.
        program: how the user called us, for messages.

    Returns:
        The exit code.
    """
    commands = {
        "dispatcher": dispatcher_main,
        "worker": worker_main,
        "status": status_main,
        "save-status": save_status_main,
    }
    parser = Arguments(
        prog=program,
        description="Move elements of Python input pipelines from workers into training loops.",
        epilog=f"'{program} COMMAND --help' explains the options of a command.",
    )
    parser.add_argument("--version", action="version", version=installed_version())
    parser.add_argument("command", choices=commands, help="what to run, or to look at")
    parser.add_argument("rest", nargs=argparse.REMAINDER, metavar="...", help="options of the command")
    chosen = parser.parse_args(arguments)
    return commands[chosen.command](chosen.rest, f"{program} {chosen.command}")


def installed_version() -> str:
    """The version of the installed package."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("zmqdata")
    except PackageNotFoundError:
        return "unknown (not installed)"


# --- dispatcher


def dispatcher_main(arguments: Sequence[str], program: str = "zmqdata dispatcher") -> int:
    """Runs a dispatcher until SIGTERM or SIGINT; returns the exit code."""
    stop = StopSignals()
    chosen = dispatcher_arguments(program).parse_args(arguments)
    prepare(chosen)
    return guarded(program, lambda: serve_dispatcher(config_from(DispatcherConfig, chosen), stop))


def serve_dispatcher(config: DispatcherConfig, stop: StopSignals) -> int:
    """Starts a dispatcher, says where it listens, waits, stops it."""
    from zmqdata.dispatcher.server import DispatchServer

    with DispatchServer(config) as server:
        say(f"zmqdata dispatcher listening on {server.target}")
        while not stop.wait(None):
            pass
        exit_within(LAST_SECONDS, 0)
    return 0


def dispatcher_arguments(program: str) -> argparse.ArgumentParser:
    """The options of the dispatcher; each destination is a field of its configuration."""
    default = DispatcherConfig()
    parser = Arguments(
        prog=program,
        description="Registers datasets and workers, and hands out tasks and splits. Prints one line when it is ready.",
    )
    add_socket_options(parser, default.host)
    option = parser.add_argument
    option("--work-dir", metavar="DIR", help="folder where registered pipelines are kept (default: in memory)")
    option(
        "--fault-tolerant",
        dest="fault_tolerant_mode",
        action="store_true",
        help="let jobs survive a restart of the dispatcher; not supported by this version",
    )
    option(
        "--worker-address",
        dest="worker_addresses",
        action="append",
        default=[],
        metavar="HOST[:PORT]",
        help="a host that workers may register from, by name or address; without a port, or with %%port%%, any port of "
        "it; repeat it for more (default: any)",
    )
    add_number(parser, default, "job_gc_check_interval_ms", "how often to look for jobs to collect, in milliseconds")
    add_number(parser, default, "job_gc_timeout_ms", "collect a job this long after its last client, -1: never")
    heartbeats = (
        "how long a connection may be without ZeroMQ's heartbeats before it is given up; a worker without a connection "
        "is lost 1.5 s later, a connected one never, however silent"
    )
    add_number(parser, default, "worker_timeout_ms", heartbeats)
    add_number(parser, default, "client_timeout_ms", "silence after which a client counts as gone")
    add_number(parser, default, "max_message_bytes", "refuse larger control messages, and so larger pipelines")
    add_shared_options(parser)
    return parser


# --- worker


def worker_main(arguments: Sequence[str], program: str = "zmqdata worker") -> int:
    """Runs a supervisor and its worker processes until SIGTERM or SIGINT; returns the exit code."""
    stop = StopSignals(waking=(signal.SIGCHLD,))
    chosen = worker_arguments(program).parse_args(arguments)
    prepare(chosen)
    if not chosen.dispatcher_address:
        missing = f"where is the dispatcher? Give --dispatcher tcp://HOST:PORT or set {DISPATCHER_VARIABLE}"
        return complain(program, missing)
    return guarded(program, lambda: supervise(program, chosen, stop))


def supervise(program: str, chosen: argparse.Namespace, stop: StopSignals) -> int:
    """Checks what every child would stumble over, then keeps them running."""
    config = config_from(WorkerConfig, chosen)
    for host in (endpoint_host(parse_service(config.dispatcher_address)), config.host):
        if host not in (None, "*"):
            resolve_host(str(host))
    children = child_configs(config, chosen.processes)
    supervisor = Supervisor(
        [child_command(child, chosen.log_level) for child in children],
        lambda address: say(f"zmqdata worker listening on {address}"),
        stop,
    )
    code = supervisor.run()
    return complain(program, supervisor.error, code) if supervisor.error else code


def worker_arguments(program: str) -> argparse.ArgumentParser:
    """The options of the worker; each destination but ``processes`` is a field of its configuration."""
    default = WorkerConfig("127.0.0.1:1")
    parser = Arguments(
        prog=program,
        description="Runs pipelines for training loops, in processes that it watches over and starts again when they "
        "die. Prints one line for each process once the dispatcher knows it.",
    )
    add_dispatcher_option(parser, "dispatcher_address")
    add_socket_options(parser, default.host)
    option = parser.add_argument
    option(
        "--advertise",
        dest="worker_address",
        metavar="ADDR",
        help="HOST, HOST:%%port%% or HOST:PORT that clients shall connect to (default: the bound address, or with "
        "--host 0.0.0.0 the one on the way to the dispatcher)",
    )
    option(
        "--processes",
        type=count_of_processes,
        default=1,
        metavar="N|auto",
        help="processes that run pipelines; auto: one for each core (default: %(default)s)",
    )
    option(
        "--tag", dest="worker_tags", action="append", default=[], metavar="T", help="a free word for jobs to choose by"
    )
    option(
        "--data-ports", type=port_range, metavar="A-B", help="TCP ports for connections that carry elements (any free)"
    )
    add_number(parser, default, "heartbeat_interval_ms", "how often the dispatcher hears of us, in milliseconds")
    add_number(parser, default, "dispatcher_timeout_ms", "how long to do without the dispatcher, in milliseconds")
    add_number(parser, default, "buffer_bytes", "how much each task produces ahead of its clients")
    add_shared_options(parser)
    return parser


def count_of_processes(text: str) -> int:
    """The value of ``--processes``."""
    if text == "auto":
        return available_cores()
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a number from 1 up, or auto, got {text!r}")
    return int(text)


def port_range(text: str) -> tuple[int, int]:
    """The value of ``--data-ports``."""
    try:
        return parse_port_range(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


# --- status


def status_main(arguments: Sequence[str], program: str = "zmqdata status") -> int:
    """Prints workers, jobs, tasks and rates; returns the exit code, 1 when the dispatcher does not answer."""
    parser = Arguments(prog=program, description="Lists workers, jobs, tasks and rates of a dispatcher.")
    add_dispatcher_option(parser, "dispatcher_address")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    parser.add_argument(
        "--timeout", type=float, default=STATUS_TIMEOUT, metavar="S", help="seconds to wait (default: %(default)s)"
    )
    chosen = parser.parse_args(arguments)
    if not chosen.dispatcher_address:
        return complain(program, f"which dispatcher? Give --dispatcher tcp://HOST:PORT or set {DISPATCHER_VARIABLE}")
    return guarded(program, lambda: show_status(chosen.dispatcher_address, chosen.timeout, chosen.json))


def show_status(service: str, timeout: float, as_json: bool) -> int:
    """Asks a dispatcher how things stand and prints its answer."""
    host = endpoint_host(parse_service(service))
    if host is not None:
        resolve_host(host)
    from zmqdata.client.calls import status

    found = status(service, timeout)
    if as_json:
        say(json.dumps(found, indent=2))
        return 0
    from rich.console import Console

    from zmqdata.statustables import status_tables

    console = Console()
    for table in status_tables(found):
        console.print(table)
    return 0


# --- save-status


def save_status_main(arguments: Sequence[str], program: str = "zmqdata save-status") -> int:
    """Prints how far a distributed save is; returns the exit code, 1 when the save has failed."""
    parser = Arguments(prog=program, description="Tells how far a distributed_save is, by what is in its folder.")
    parser.add_argument("path", metavar="PATH", help="the folder, or the URL, that was given to distributed_save")
    parser.add_argument("--follow", action="store_true", help="show a bar until the save has ended")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    chosen = parser.parse_args(arguments)
    return guarded(program, lambda: show_save(chosen.path, chosen.follow, chosen.json))


def show_save(path: str, follows: bool, as_json: bool) -> int:
    """Prints how far the save into a folder is."""
    from rich.console import Console

    from zmqdata.savestatus import FAILED, follow, progress_of

    found = follow(path, Console(stderr=True)) if follows else progress_of(path)
    say(json.dumps(found.fields, indent=2) if as_json else found.line)
    return 1 if found.state == FAILED else 0


# --- what the commands share


def add_dispatcher_option(parser: argparse.ArgumentParser, destination: str) -> None:
    """``--dispatcher``, which the environment may give too."""
    parser.add_argument(
        "--dispatcher",
        dest=destination,
        default=os.environ.get(DISPATCHER_VARIABLE, ""),
        metavar="tcp://HOST:PORT",
        help=f"where the dispatcher listens, as it says when it is ready (default: ${DISPATCHER_VARIABLE})",
    )


def add_socket_options(parser: argparse.ArgumentParser, host: str) -> None:
    """Where to listen."""
    parser.add_argument(
        "--host",
        default=host,
        metavar="ADDR",
        help="address or name of this machine to listen on; 0.0.0.0: every interface (default: %(default)s)",
    )
    parser.add_argument("--port", type=int, default=0, help="TCP port; 0: any free one (default: %(default)s)")


def add_number(
    parser: argparse.ArgumentParser, default: DispatcherConfig | WorkerConfig, name: str, meaning: str
) -> None:
    """An option for a number of the configuration."""
    parser.add_argument(
        f"--{name.replace('_', '-')}",
        type=int,
        default=getattr(default, name),
        metavar="N",
        help=f"{meaning} (default: %(default)s)",
    )


def add_shared_options(parser: argparse.ArgumentParser) -> None:
    """Logs, and the pipe by which whoever started us keeps us alive."""
    parser.add_argument(
        "--log-level", choices=LOG_LEVELS, default="info", help="least that is told on stderr (default: %(default)s)"
    )
    parser.add_argument("--lifeline", type=int, help=argparse.SUPPRESS)


def prepare(chosen: argparse.Namespace) -> None:
    """Sets up logs on standard error, and the lifeline."""
    logging.basicConfig(
        level=chosen.log_level.upper(), format=f"%(asctime)s %(levelname)s [{os.getpid()}] %(name)s: %(message)s"
    )
    if chosen.lifeline is not None:
        watch_lifeline(chosen.lifeline)


def config_from(kind: type[Any], chosen: argparse.Namespace) -> Any:
    """A configuration from the options that bear the names of its fields."""
    given = vars(chosen)
    return kind(**{field.name: given[field.name] for field in fields(kind) if field.name in given})


def guarded(program: str, command: Callable[[], int]) -> int:
    """Runs a command; what a user can repair is one line on standard error instead of a traceback."""
    try:
        return command()
    except UnavailableError as error:
        return complain(program, str(error), 1)
    except OSError as error:
        reason = error.strerror or str(error)
        return complain(program, reason if error.filename is None else f"{error.filename}: {reason}")
    except (DataServiceError, ValueError, TypeError) as error:
        return complain(program, str(error))


def complain(program: str, message: str, code: int = CANNOT_START) -> int:
    """Prints one line on standard error and returns the exit code."""
    print(f"{program}: {' '.join(message.split())}", file=sys.stderr, flush=True)
    return code


def say(line: str) -> None:
    """Prints on standard output at once. That nobody reads it any more is no reason to stop."""
    try:
        print(line, flush=True)
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - stays open until the end
