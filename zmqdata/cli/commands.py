"""The commands: they parse arguments, print a line when ready, and return exit codes.
They start the servers, which are defined elsewhere.

Exit codes: 0 ended as requested, 1 failed while running, 2 could not start with these
arguments; the page on configuration has those of a worker. Each command imports slow
modules only when it needs them.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from zmqdata.cli.asking import (
    StatusSettings,
    audit_main,
    drain_main,
    save_status_main,
    status_main,
    top_main,
)
from zmqdata.cli.options import (
    Arguments,
    add_settings,
    check_dispatcher_named,
    chosen_settings,
    command_parser,
    complain,
    guarded,
    say,
)
from zmqdata.cli.watching import dashboard_main, report_main
from zmqdata.config.dashboard import DashboardSettings
from zmqdata.config.dispatcher import DispatcherConfig
from zmqdata.config.endpoints import FILE_SCHEME, endpoint_host, parse_service
from zmqdata.config.keys import KeySettings
from zmqdata.config.logs import LogSettings, log_to_stderr
from zmqdata.config.settings import PREFIX, variables
from zmqdata.config.worker import WorkerConfig
from zmqdata.machine import installed_version
from zmqdata.metrics.listening import announcement, listener
from zmqdata.transport.addresses import resolve_host
from zmqdata.transport.dispatcher_file import READ_EVERY, current_address
from zmqdata.worker.processes.accounts import check_account
from zmqdata.worker.processes.interpreter import loading
from zmqdata.worker.processes.keylending import lend_key
from zmqdata.worker.processes.lifetime import (
    StopRequest,
    StopSignals,
    exit_within,
    serve_beside_orphans,
    stop_with_parent,
)
from zmqdata.worker.processes.options import ProcessSettings, start_warnings

log = logging.getLogger(__name__)

SIGNALLED_BY_SLURM = 5
"""Exit code of a worker that has drained because its Slurm job was sent SIGTERM."""
LAST_SECONDS = 5.0
"""Seconds after which a dispatcher that was asked to stop ends in any case."""
LOOK_AROUND = 0.5
"""Seconds between two checks whether the dispatcher has failed."""


def main(arguments: Sequence[str] | None = None, program: str = "zmqdata") -> int:
    """Run the command that the first argument names, such as ``zmqdata dispatcher``.

    Args:
        arguments: the arguments without the program's name; None takes those of this
            process.
        program: the program's name as the user called it, for messages.

    Returns:
        The exit code.
    """
    commands = {
        "dispatcher": dispatcher_main,
        "worker": worker_main,
        "auto": auto_main,
        "status": status_main,
        "top": top_main,
        "doctor": doctor_main,
        "drain": drain_main,
        "autoscale": autoscale_main,
        "audit": audit_main,
        "replay": replay_main,
        "slurm": slurm_main,
        "save-status": save_status_main,
        "dashboard": dashboard_main,
        "report": report_main,
        "trace": trace_main,
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
    given = list(sys.argv[1:] if arguments is None else arguments)
    chosen = parser.parse_args(given)
    rest = given[given.index(chosen.command) + 1 :]  # `chosen.rest` lacks a leading `--`
    return commands[chosen.command](rest, f"{program} {chosen.command}")


def keygen_main(arguments: Sequence[str], program: str) -> int:
    """Create key files; return the exit code."""
    from zmqdata.cli import keygen

    return keygen.keygen_main(arguments, program)


def doctor_main(arguments: Sequence[str], program: str) -> int:
    """Check a cluster from this machine; return the exit code."""
    from zmqdata.cli import doctor

    return doctor.doctor_main(arguments, program)


def autoscale_main(arguments: Sequence[str], program: str) -> int:
    """Run a command whenever the number of wanted workers changes; return the exit
    code.
    """
    from zmqdata.cli import autoscale

    return autoscale.autoscale_main(arguments, program)


def replay_main(arguments: Sequence[str], program: str) -> int:
    """Run an element of a task again; return the exit code."""
    from zmqdata.cli import replay

    return replay.replay_main(arguments, program)


def slurm_main(arguments: Sequence[str], program: str) -> int:
    """Print a batch script for Slurm; return the exit code."""
    from zmqdata.cli import slurm

    return slurm.slurm_main(arguments, program)


def trace_main(arguments: Sequence[str], program: str) -> int:
    """Record what a service does; return the exit code."""
    from zmqdata.cli import trace

    return trace.trace_main(arguments, program)


# --- dispatcher


def dispatcher_main(arguments: Sequence[str], program: str = "zmqdata dispatcher") -> int:
    """Run a dispatcher until SIGTERM or SIGINT; return the exit code."""
    stop = StopSignals(waking=(signal.SIGCHLD,))
    chosen = dispatcher_arguments(program).parse_args(arguments)
    return serve_command(program, chosen, partial(run_dispatcher, chosen), stop)


def run_dispatcher(chosen: argparse.Namespace, stop: StopSignals) -> int:
    """Run a dispatcher, in a child process that is restarted if the dispatcher has a
    journal and no other process supervises it.
    """
    config = chosen_settings(DispatcherConfig, chosen)
    if chosen.temporary_work_dir and not (chosen.exit_with_parent and config.work_dir):
        raise ValueError(
            "`--temporary-work-dir` says that the work folder is deleted with the parent of this "
            "process, so it needs `--exit-with-parent` and `--work-dir`. A journal that must "
            "outlive a crash of this machine needs `--work-dir` alone"
        )
    if chosen.exit_with_parent:
        stop_with_parent(stop, 2 * LAST_SECONDS)
    metrics = metrics_socket(config)
    if not config.fault_tolerant_mode or chosen.exit_with_parent:
        return serve_dispatcher(config, stop, metrics=metrics, synced=not chosen.temporary_work_dir)

    from zmqdata.cli.keeper import keep

    def serve(port: int | None, stop: StopSignals, ready: Callable[[int], None]) -> int:
        here = config if port is None else replace(config, port=port)
        return serve_dispatcher(here, stop, ready, metrics)

    return keep(serve, stop)


def metrics_socket(config: DispatcherConfig | WorkerConfig) -> socket.socket | None:
    """Return the socket on which a server answers scrapes; None if it answers none. The
    process that supervises the server keeps it open.
    """
    if config.metrics_port is None:
        return None
    return listener(config.metrics_host, config.metrics_port)


def serve_dispatcher(
    config: DispatcherConfig,
    stop: StopRequest,
    ready: Callable[[int], None] = lambda port: None,
    metrics: socket.socket | None = None,
    synced: bool = True,
) -> int:
    """Start a dispatcher, print its address, wait for a signal, and stop it."""
    with loading():
        from zmqdata.dispatcher.server import OwnedDispatcher

    with OwnedDispatcher(config, metrics, synced, start=False) as server:
        server.start()
        addresses = announcement(server.target, server.metrics_address)
        say(f"zmqdata dispatcher listening on {addresses}")
        ready(int(server.target.rpartition(":")[2]))
        while not stop.wait(LOOK_AROUND):
            server.join(0)  # raises if the dispatcher has failed
        exit_within(LAST_SECONDS, 0)
    return 0


def dispatcher_arguments(program: str) -> argparse.ArgumentParser:
    """Return the parser of the dispatcher's options: its configuration, and the options
    of all servers.
    """
    parser = command_parser(
        program,
        "Registers datasets and workers, and hands out tasks and splits. Prints one line when it "
        "is ready.",
        DispatcherConfig,
    )
    parser.add_argument("--temporary-work-dir", action="store_true", help=argparse.SUPPRESS)
    add_shared_options(parser)
    return parser


# --- worker


def worker_main(arguments: Sequence[str], program: str = "zmqdata worker") -> int:
    """Run a supervisor and its worker processes until SIGTERM or SIGINT; return the
    exit code.
    """
    stop = StopSignals(waking=(signal.SIGCHLD,))
    chosen = worker_arguments(program).parse_args(arguments)
    return serve_command(program, chosen, partial(supervise, program, chosen), stop)


def supervise(program: str, chosen: argparse.Namespace, stop: StopSignals) -> int:
    """Check what would make every child fail, then keep the children running."""
    from zmqdata.worker.processes.supervisor import (
        DRAIN_GRACE,
        Desertion,
        Supervisor,
        child_command,
        child_configs,
    )

    check_dispatcher_named(chosen, WorkerConfig, "where is the dispatcher?")
    config = chosen_settings(WorkerConfig, chosen)
    grace = config.drain_seconds + config.shutdown_quiet_period_ms / 1000 + DRAIN_GRACE
    if chosen.exit_with_parent:
        stop_with_parent(stop, grace + LAST_SECONDS)
    endpoint = parse_service(config.dispatcher_address)
    patience = config.dispatcher_timeout_ms / 1000
    processes = chosen_settings(ProcessSettings, chosen)
    ends = time.monotonic() + processes.drawn_lifetime()
    if not await_dispatcher_file(endpoint, patience, stop, ends):
        return code_of_end(stop, chosen)
    # The name of a headless Service in Kubernetes gets its address with its pod.
    is_awaited = config.worker_address and "KUBERNETES_SERVICE_HOST" in os.environ
    for host in (None if is_awaited else endpoint_host(current_address(endpoint)), config.host):
        if host not in (None, "*"):
            resolve_host(str(host))
    for text in start_warnings(config):
        log.warning("%s", text)
    account = processes.account()
    if account is not None:
        check_account(account, config.pipeline_cache_dir)
    config, inherited = lend_key(config, account)
    children = child_configs(config, processes.count())
    logs = chosen_settings(LogSettings, chosen)
    sockets = [metrics_socket(child) for child in children]
    metrics = [None if one is None else one.fileno() for one in sockets]
    supervisor = Supervisor(
        [
            child_command(child, logs, processes.limits(index), metrics[index])
            for index, child in enumerate(children)
        ],
        lambda addresses: say(f"zmqdata worker listening on {addresses}"),
        stop,
        grace,
        account,
        inherited,
        [() if one is None else (one,) for one in metrics],
        ends - time.monotonic(),
        Desertion(endpoint, patience),
    )
    code = supervisor.run() or code_of_end(stop, chosen)
    return complain(program, supervisor.error, code) if supervisor.error else code


def code_of_end(stop: StopSignals, chosen: argparse.Namespace) -> int:
    """Return the exit code of a worker that has ended in order."""
    is_signalled = bool(stop.received) and not (stop.hurried or chosen.exit_with_parent)
    return SIGNALLED_BY_SLURM if is_signalled and "SLURM_JOB_ID" in os.environ else 0


def await_dispatcher_file(endpoint: str, patience: float, stop: StopSignals, ends: float) -> bool:
    """Wait until a dispatcher has written the file that an endpoint names, if it names
    one. Return False if a signal, or the lifetime of the worker, has ended the wait.

    Args:
        endpoint: what ``parse_service`` returns.
        patience: seconds to wait at most.
        stop: signals that end the wait.
        ends: end of the lifetime.

    Raises:
        SystemExit: the file was not written for too long.
        OSError, DataServiceError: the file is unusable.
    """
    from zmqdata.worker.processes.supervisor import NO_DISPATCHER

    until = time.monotonic() + patience
    if not current_address(endpoint):
        path = endpoint.removeprefix(FILE_SCHEME)
        log.info("waiting for a dispatcher to write its address to %s", path)
    while not current_address(endpoint):
        if stop.wait(READ_EVERY) or time.monotonic() >= ends:
            return False
        if time.monotonic() >= until:
            raise SystemExit(
                complain(
                    "zmqdata worker",
                    f"No dispatcher has written {endpoint.removeprefix(FILE_SCHEME)} for "
                    f"{patience:g} s (`--death-timeout`). Start one with `--dispatcher-file`, on a "
                    "machine that shares this disk.",
                    NO_DISPATCHER,
                )
            )
    return True


def worker_arguments(program: str) -> argparse.ArgumentParser:
    """Return the parser of the worker's options: its configuration, its processes, and
    the options of all servers.
    """
    parser = command_parser(
        program,
        "Runs pipelines for training loops, in processes that it supervises and restarts when they "
        "die. Prints one line for each process once the dispatcher knows it.",
        WorkerConfig,
        ProcessSettings,
    )
    parser.add_argument(
        "--dispatcher-file",
        dest="dispatcher_address",
        type=FILE_SCHEME.__add__,
        default=argparse.SUPPRESS,
        metavar="FILE",
        help="the file that the dispatcher writes; the same as --dispatcher file:FILE",
    )
    add_shared_options(parser)
    return parser


# --- both


def auto_main(arguments: Sequence[str], program: str = "zmqdata auto") -> int:
    """Run a process of a step of Slurm; return the exit code."""
    from zmqdata.cli import auto

    servers = auto.ServerCommands(serve_command, serve_dispatcher, supervise)
    return auto.auto_main(arguments, program, servers)


# --- shared by the commands


COMMAND_SETTINGS = (
    DispatcherConfig,
    WorkerConfig,
    ProcessSettings,
    StatusSettings,
    DashboardSettings,
    KeySettings,
    LogSettings,
)


def add_shared_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for logs, and for the end with the parent of the process."""
    add_settings(parser, LogSettings)
    parser.add_argument(
        "--exit-with-parent",
        action="store_true",
        help="stop when standard input, a pipe or a socket from the program that starts this "
        "process, ends, or that program dies; a worker drains first",
    )


def serve_command(
    program: str,
    chosen: argparse.Namespace,
    serve: Callable[[StopSignals], int],
    stop: StopSignals,
) -> int:
    """Run a server until a signal ends it; return the exit code."""

    def prepared(stop: StopSignals) -> int:
        prepare(chosen)
        return guarded(program, lambda: serve(stop))

    return serve_beside_orphans(prepared, stop)


def prepare(chosen: argparse.Namespace) -> None:
    """Configure logs on standard error."""
    try:
        logs = chosen_settings(LogSettings, chosen)
    except ValueError as error:
        raise SystemExit(complain("zmqdata", str(error))) from None
    log_to_stderr(logs.log_level, logs.log_format)
    for variable, meant in misspelt(os.environ):
        log.warning("%s is not a setting; is %s meant?", variable, meant)


def misspelt(environment: Iterable[str]) -> list[tuple[str, str]]:
    """Return environment variables that resemble a setting but are none, each with the
    setting that it resembles.
    """
    from difflib import get_close_matches

    known = variables(*COMMAND_SETTINGS)
    strange = sorted(name for name in environment if name.startswith(PREFIX) and name not in known)
    likely = [(name, get_close_matches(name, sorted(known), 1, 0.9)) for name in strange]
    return [(name, found[0]) for name, found in likely if found]
