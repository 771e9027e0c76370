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
from collections.abc import Callable, Iterable, Sequence
from dataclasses import Field, dataclass, fields
from typing import Any, NoReturn, TypeVar, cast

from zmqdata.config import DispatcherConfig, WorkerConfig
from zmqdata.errors import DataServiceError, UnavailableError
from zmqdata.settings import (
    PREFIX,
    check_settings,
    checked,
    declaration_of,
    default_of,
    flag_of,
    from_environment,
    opposite,
    read_text,
    setting,
    variable_of,
    variables,
)
from zmqdata.transport.addresses import check_addresses, endpoint_host, parse_service, resolve_host
from zmqdata.worker.lifetime import StopSignals, exit_within, watch_lifeline
from zmqdata.worker.supervisor import Supervisor, available_cores, child_command, child_configs

LOG_LEVELS = ("debug", "info", "warning", "error")
CANNOT_START = 2
LAST_SECONDS = 5.0
LOOK_AROUND = 0.5
PRECEDENCE = "Each option may also be given as the environment variable that its help names; the option wins."

T = TypeVar("T")


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
    return guarded(program, lambda: serve_dispatcher(chosen_settings(DispatcherConfig, chosen), stop))


def serve_dispatcher(config: DispatcherConfig, stop: StopSignals) -> int:
    """Starts a dispatcher, says where it listens, waits, stops it."""
    from zmqdata.dispatcher.server import DispatchServer

    with DispatchServer(config) as server:
        say(f"zmqdata dispatcher listening on {server.target}")
        while not stop.wait(LOOK_AROUND):
            server.join(0)  # raises when it cannot go on
        exit_within(LAST_SECONDS, 0)
    return 0


def dispatcher_arguments(program: str) -> argparse.ArgumentParser:
    """The options of the dispatcher: one for each field of its configuration, and those of every server."""
    parser = Arguments(
        prog=program,
        description="Registers datasets and workers, and hands out tasks and splits. Prints one line when it is ready.",
        epilog=PRECEDENCE,
    )
    add_settings(parser, DispatcherConfig)
    add_shared_options(parser)
    return parser


# --- worker


@dataclass(frozen=True)
class ProcessSettings:
    """How many processes a worker has; each is a worker of its own to the dispatcher."""

    processes: str = setting("1", "processes that run pipelines; auto: one for each core", metavar="N|auto")

    def __post_init__(self) -> None:
        check_settings(self)
        count_of_processes(self.processes)


def worker_main(arguments: Sequence[str], program: str = "zmqdata worker") -> int:
    """Runs a supervisor and its worker processes until SIGTERM or SIGINT; returns the exit code."""
    stop = StopSignals(waking=(signal.SIGCHLD,))
    chosen = worker_arguments(program).parse_args(arguments)
    prepare(chosen)
    return guarded(program, lambda: supervise(program, chosen, stop))


def supervise(program: str, chosen: argparse.Namespace, stop: StopSignals) -> int:
    """Checks what every child would stumble over, then keeps them running."""
    check_dispatcher_named(chosen, WorkerConfig, "where is the dispatcher?")
    config = chosen_settings(WorkerConfig, chosen)
    check_addresses(config)
    for host in (endpoint_host(parse_service(config.dispatcher_address)), config.host):
        if host not in (None, "*"):
            resolve_host(str(host))
    children = child_configs(config, count_of_processes(chosen_settings(ProcessSettings, chosen).processes))
    log_level = chosen_settings(LogSettings, chosen).log_level
    supervisor = Supervisor(
        [child_command(child, log_level) for child in children],
        lambda address: say(f"zmqdata worker listening on {address}"),
        stop,
        config.shutdown_quiet_period_ms / 1000,
    )
    code = supervisor.run()
    return complain(program, supervisor.error, code) if supervisor.error else code


def worker_arguments(program: str) -> argparse.ArgumentParser:
    """The options of the worker: one for each field of its configuration, its processes, those of every server."""
    parser = Arguments(
        prog=program,
        description="Runs pipelines for training loops, in processes that it watches over and starts again when they "
        "die. Prints one line for each process once the dispatcher knows it.",
        epilog=PRECEDENCE,
    )
    add_settings(parser, WorkerConfig)
    add_settings(parser, ProcessSettings)
    add_shared_options(parser)
    return parser


def count_of_processes(text: str) -> int:
    """The value of ``--processes``."""
    if text == "auto":
        return available_cores()
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ValueError(f"`processes`: expected a number from 1 up, or auto, got {text!r}")
    return int(text)


# --- status


@dataclass(frozen=True)
class StatusSettings:
    """Whom to ask how things stand, and how to print it."""

    dispatcher_address: str = setting(
        "",
        "where the dispatcher listens, as it says when it is ready",
        flag="--dispatcher",
        metavar="tcp://HOST:PORT",
        variable="ZMQDATA_DISPATCHER",
    )
    worker: str | None = setting(
        None, "ask this worker instead of the dispatcher; the dispatcher's status has its address", metavar="ADDR"
    )
    json: bool = setting(False, "print one JSON object instead of tables")
    timeout: float = setting(5.0, "how long to wait for an answer, in seconds", metavar="S")

    def __post_init__(self) -> None:
        check_settings(self)


def status_main(arguments: Sequence[str], program: str = "zmqdata status") -> int:
    """Prints workers, jobs, tasks and rates; returns the exit code, 1 when nobody answers."""
    parser = Arguments(
        prog=program,
        description="Lists workers, jobs, tasks and rates of a dispatcher, or what one worker has.",
        epilog=PRECEDENCE,
    )
    add_settings(parser, StatusSettings)
    chosen = parser.parse_args(arguments)
    return guarded(program, lambda: show_status(chosen))


def show_status(chosen: argparse.Namespace) -> int:
    """Asks a dispatcher or a worker how things stand and prints the answer."""
    wanted = chosen_settings(StatusSettings, chosen)
    if not wanted.worker:
        check_dispatcher_named(chosen, StatusSettings, "which dispatcher?")
    service = wanted.worker or wanted.dispatcher_address
    host = endpoint_host(parse_service(service))
    if host is not None:
        resolve_host(host)
    from zmqdata.client.calls import status

    found = status(service, wanted.timeout)
    if wanted.json:
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
    if not path:
        raise ValueError("PATH must not be empty")
    from rich.console import Console

    from zmqdata.savestatus import FAILED, follow, progress_of

    found = follow(path, Console(stderr=True)) if follows else progress_of(path)
    say(json.dumps(found.fields, indent=2) if as_json else found.line)
    return 1 if found.state == FAILED else 0


# --- what the commands share


@dataclass(frozen=True)
class LogSettings:
    """What is told on standard error."""

    log_level: str = setting(
        "info", "least that is told on stderr", choices=LOG_LEVELS, metavar="|".join(LOG_LEVELS)
    )

    def __post_init__(self) -> None:
        check_settings(self)


COMMAND_SETTINGS = (DispatcherConfig, WorkerConfig, ProcessSettings, StatusSettings, LogSettings)


def add_settings(parser: argparse.ArgumentParser, kind: type[Any]) -> None:
    """An option for each setting of a configuration. What is not given leaves no trace: the environment has its say."""
    for one in fields(kind):
        declared, flag = declaration_of(one), flag_of(one)
        default = f"default: {default_of(one)}; ${variable_of(one)}"
        meaning = f"{declared.meaning} ({default})".replace("%", "%%")
        options: dict[str, Any] = {"dest": one.name, "default": argparse.SUPPRESS, "help": meaning}
        if one.type in ("bool", "bool | None"):
            parser.add_argument(flag, action="store_true", **options)
            options["help"] = f"the opposite of {flag}"
            parser.add_argument(opposite(flag), action="store_false", **options)
            continue
        if one.type == "tuple[str, ...]":
            options |= {"action": "append"}
            options["help"] = f"{declared.meaning}; repeat it for more ({default})".replace("%", "%%")
        else:
            options |= {"type": text_reader(one)}
        parser.add_argument(flag, metavar=declared.metavar or "N", **options)


def text_reader(one: Field[Any]) -> Callable[[str], Any]:
    """Reads the value of an option for argparse, which keeps the words of one kind of error only."""

    def read(text: str) -> Any:
        try:
            return checked(one, read_text(one, text))
        except (ValueError, TypeError) as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


def add_shared_options(parser: argparse.ArgumentParser) -> None:
    """Logs, and the pipe by which whoever started us keeps us alive."""
    add_settings(parser, LogSettings)
    parser.add_argument("--lifeline", type=int, help=argparse.SUPPRESS)


def prepare(chosen: argparse.Namespace) -> None:
    """Sets up logs on standard error, and the lifeline."""
    try:
        level = chosen_settings(LogSettings, chosen).log_level
    except ValueError as error:
        raise SystemExit(complain("zmqdata", str(error))) from None
    logging.basicConfig(
        level=level.upper(), format=f"%(asctime)s %(levelname)s [{os.getpid()}] %(name)s: %(message)s"
    )
    if chosen.lifeline is not None:
        watch_lifeline(chosen.lifeline)
    for variable, meant in misspelt(os.environ):
        logging.getLogger(__name__).warning("%s is no setting; is %s meant?", variable, meant)


def misspelt(environment: Iterable[str]) -> list[tuple[str, str]]:
    """Variables of the environment that look like a setting and are none, each with the one that is like it."""
    from difflib import get_close_matches

    known = variables(*COMMAND_SETTINGS)
    strange = sorted(name for name in environment if name.startswith(PREFIX) and name not in known)
    likely = [(name, get_close_matches(name, sorted(known), 1, 0.9)) for name in strange]
    return [(name, found[0]) for name, found in likely if found]


def chosen_settings(kind: type[T], chosen: argparse.Namespace) -> T:
    """A configuration from the options that bear the names of its fields, and from the environment."""
    given = vars(chosen)
    return from_environment(kind, {one.name: given[one.name] for one in fields(cast(Any, kind)) if one.name in given})


def check_dispatcher_named(chosen: argparse.Namespace, kind: type[Any], question: str) -> None:
    """Asks for a dispatcher where neither the options nor the environment name one."""
    [one] = [one for one in fields(kind) if one.name == "dispatcher_address"]
    if not getattr(chosen, one.name, os.environ.get(variable_of(one))):
        raise ValueError(f"{question} Give {flag_of(one)} tcp://HOST:PORT or set {variable_of(one)}")


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
