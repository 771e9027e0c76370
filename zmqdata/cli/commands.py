"""The commands: arguments in, one line when ready, exit codes out. Servers are made
here and written elsewhere.

Exit codes: 0 ended as told, 1 failed while running, 2 could not start with these
arguments. Imports that take time are made by the command that needs them.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from zmqdata.cli.asking import StatusSettings, audit_main, drain_main, save_status_main, status_main
from zmqdata.cli.options import (
    Arguments,
    LogSettings,
    add_settings,
    check_dispatcher_named,
    chosen_settings,
    command_parser,
    complain,
    guarded,
    say,
)
from zmqdata.config.dispatcher import DispatcherConfig
from zmqdata.config.endpoints import endpoint_host, parse_service
from zmqdata.config.keys import KeySettings
from zmqdata.config.settings import PREFIX, variables
from zmqdata.config.worker import WorkerConfig
from zmqdata.transport.addresses import resolve_host
from zmqdata.worker.processes.accounts import check_account
from zmqdata.worker.processes.keylending import lend_key
from zmqdata.worker.processes.lifetime import StopSignals, exit_within, watch_lifeline
from zmqdata.worker.processes.options import ProcessSettings
from zmqdata.worker.processes.supervisor import Supervisor, child_command, child_configs

LAST_SECONDS = 5.0
LOOK_AROUND = 0.5


def main(arguments: Sequence[str] | None = None, program: str = "zmqdata") -> int:
    """Runs ``zmqdata dispatcher|worker|status|drain|audit|save-status|keygen``.

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
        "drain": drain_main,
        "audit": audit_main,
        "save-status": save_status_main,
        "keygen": keygen_main,
    }
    parser = Arguments(
        prog=program,
        description="Move elements of Python input pipelines from workers into training loops.",
        epilog=f"'{program} COMMAND --help' explains the options of a command.",
    )
    parser.add_argument("--version", action="version", version=installed_version())
    parser.add_argument("command", choices=commands, help="what to run, or to look at")
    parser.add_argument(
        "rest", nargs=argparse.REMAINDER, metavar="...", help="options of the command"
    )
    chosen = parser.parse_args(arguments)
    return commands[chosen.command](chosen.rest, f"{program} {chosen.command}")


def installed_version() -> str:
    """The version of the installed package."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("zmqdata")
    except PackageNotFoundError:
        return "unknown (not installed)"


def keygen_main(arguments: Sequence[str], program: str) -> int:
    """Makes key files; returns the exit code."""
    from zmqdata.cli import keygen

    return keygen.keygen_main(arguments, program)


# --- dispatcher


def dispatcher_main(arguments: Sequence[str], program: str = "zmqdata dispatcher") -> int:
    """Runs a dispatcher until SIGTERM or SIGINT; returns the exit code."""
    stop = StopSignals(waking=(signal.SIGCHLD,))
    chosen = dispatcher_arguments(program).parse_args(arguments)
    prepare(chosen)
    return guarded(program, lambda: run_dispatcher(chosen, stop))


def run_dispatcher(chosen: argparse.Namespace, stop: StopSignals) -> int:
    """Serves; in a process that is kept running if it could go on, and nobody else
    looks after it.
    """
    config = chosen_settings(DispatcherConfig, chosen)
    if not config.fault_tolerant_mode or chosen.lifeline is not None:
        return serve_dispatcher(config, stop)

    from zmqdata.cli.keeper import keep

    def serve(port: int | None, stop: StopSignals, ready: Callable[[int], None]) -> int:
        return serve_dispatcher(config if port is None else replace(config, port=port), stop, ready)

    return keep(serve, stop)


def serve_dispatcher(
    config: DispatcherConfig, stop: StopSignals, ready: Callable[[int], None] = lambda port: None
) -> int:
    """Starts a dispatcher, says where it listens, waits, stops it."""
    from zmqdata.dispatcher.server import DispatchServer

    with DispatchServer(config) as server:
        say(f"zmqdata dispatcher listening on {server.target}")
        ready(int(server.target.rpartition(":")[2]))
        while not stop.wait(LOOK_AROUND):
            server.join(0)  # raises when it cannot go on
        exit_within(LAST_SECONDS, 0)
    return 0


def dispatcher_arguments(program: str) -> argparse.ArgumentParser:
    """The options of the dispatcher: one for each field of its configuration, and those
    of every server.
    """
    parser = command_parser(
        program,
        "Registers datasets and workers, and hands out tasks and splits. Prints one line when it "
        "is ready.",
        DispatcherConfig,
    )
    add_shared_options(parser)
    return parser


# --- worker


def worker_main(arguments: Sequence[str], program: str = "zmqdata worker") -> int:
    """Runs a supervisor and its worker processes until SIGTERM or SIGINT; returns the
    exit code.
    """
    stop = StopSignals(waking=(signal.SIGCHLD,))
    chosen = worker_arguments(program).parse_args(arguments)
    prepare(chosen)
    return guarded(program, lambda: supervise(program, chosen, stop))


def supervise(program: str, chosen: argparse.Namespace, stop: StopSignals) -> int:
    """Checks what every child would stumble over, then keeps them running."""
    check_dispatcher_named(chosen, WorkerConfig, "where is the dispatcher?")
    config = chosen_settings(WorkerConfig, chosen)
    for host in (endpoint_host(parse_service(config.dispatcher_address)), config.host):
        if host not in (None, "*"):
            resolve_host(str(host))
    processes = chosen_settings(ProcessSettings, chosen)
    account = processes.account()
    if account is not None:
        check_account(account, config.pipeline_cache_dir)
    config, inherited = lend_key(config, account)
    children = child_configs(config, processes.count())
    log_level = chosen_settings(LogSettings, chosen).log_level
    supervisor = Supervisor(
        [
            child_command(child, log_level, processes.limits(index))
            for index, child in enumerate(children)
        ],
        lambda address: say(f"zmqdata worker listening on {address}"),
        stop,
        config.shutdown_quiet_period_ms / 1000,
        account,
        inherited,
    )
    code = supervisor.run()
    return complain(program, supervisor.error, code) if supervisor.error else code


def worker_arguments(program: str) -> argparse.ArgumentParser:
    """The options of the worker: one for each field of its configuration, its
    processes, those of every server.
    """
    parser = command_parser(
        program,
        "Runs pipelines for training loops, in processes that it watches over and starts again "
        "when they die. Prints "
        "one line for each process once the dispatcher knows it.",
        WorkerConfig,
        ProcessSettings,
    )
    add_shared_options(parser)
    return parser


# --- what the commands share


COMMAND_SETTINGS = (
    DispatcherConfig,
    WorkerConfig,
    ProcessSettings,
    StatusSettings,
    KeySettings,
    LogSettings,
)


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
        level=level.upper(), format="%(asctime)s %(levelname)s [%(process)d] %(name)s: %(message)s"
    )
    if chosen.lifeline is not None:
        watch_lifeline(chosen.lifeline)
    for variable, meant in misspelt(os.environ):
        logging.getLogger(__name__).warning("%s is no setting; is %s meant?", variable, meant)


def misspelt(environment: Iterable[str]) -> list[tuple[str, str]]:
    """Variables of the environment that look like a setting and are none, each with the
    one that is like it.
    """
    from difflib import get_close_matches

    known = variables(*COMMAND_SETTINGS)
    strange = sorted(name for name in environment if name.startswith(PREFIX) and name not in known)
    likely = [(name, get_close_matches(name, sorted(known), 1, 0.9)) for name in strange]
    return [(name, found[0]) for name, found in likely if found]
