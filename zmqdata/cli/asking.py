"""The commands that ask servers, or a folder, how things stand, or tell a worker to
leave. They start nothing.

Imports that take time are made by the command that needs them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from zmqdata.cli.options import (
    check_dispatcher_named,
    chosen_settings,
    command_parser,
    complain,
    guarded,
    say,
)
from zmqdata.config.endpoints import endpoint_host, parse_service
from zmqdata.config.keys import KeySettings
from zmqdata.config.settings import check_settings, setting
from zmqdata.config.worker import dispatcher_setting
from zmqdata.printable import printable
from zmqdata.transport.addresses import resolve_host

if TYPE_CHECKING:
    from rich.console import RenderableType

T = TypeVar("T")


def tell(found: T, as_json: bool, tables: Callable[[T], Iterable[RenderableType]]) -> int:
    """Prints an answer as JSON, or as tables; returns the exit code."""
    if as_json:
        say(json.dumps(found, indent=2))
        return 0
    from rich.console import Console

    console = Console()
    for table in tables(found):
        console.print(table)
    return 0


def take_key(chosen: argparse.Namespace) -> None:
    """Has this process show the key that was chosen."""
    from zmqdata.transport.keychoice import show

    show(chosen_settings(KeySettings, chosen))


# --- status


@dataclass(frozen=True)
class StatusSettings:
    """Whom to ask how things stand, and how to print it."""

    dispatcher_address: str = dispatcher_setting()
    worker: str | None = setting(
        None,
        "ask this worker instead of the dispatcher; the dispatcher's status has its address",
        metavar="ADDR",
    )
    json: bool = setting(False, "print one JSON object instead of tables")
    timeout: float = setting(5.0, "how long to wait for an answer, in seconds", metavar="S")

    def __post_init__(self) -> None:
        check_settings(self)


def status_main(arguments: Sequence[str], program: str = "zmqdata status") -> int:
    """Prints workers, jobs, tasks and rates; returns the exit code, 1 when nobody
    answers.
    """
    about = "Lists workers, jobs, tasks and rates of a dispatcher, or what one worker has."
    chosen = command_parser(program, about, StatusSettings, KeySettings).parse_args(arguments)
    return guarded(program, lambda: show_status(chosen))


def show_status(chosen: argparse.Namespace) -> int:
    """Asks a dispatcher or a worker how things stand and prints the answer."""
    wanted = chosen_settings(StatusSettings, chosen)
    take_key(chosen)
    if not wanted.worker:
        check_dispatcher_named(chosen, StatusSettings, "which dispatcher?")
    service = wanted.worker or wanted.dispatcher_address
    host = endpoint_host(parse_service(service))
    if host is not None:
        resolve_host(host)
    from zmqdata.cli.tables import status_tables
    from zmqdata.client.calls import status

    role = "worker" if wanted.worker else "dispatcher"
    return tell(status(service, wanted.timeout, role), wanted.json, status_tables)


# --- drain


@dataclass(frozen=True)
class DispatcherSettings:
    """Which dispatcher to ask, and for how long."""

    dispatcher_address: str = dispatcher_setting()
    timeout: float = setting(15.0, "how long to wait, in seconds", metavar="S")

    def __post_init__(self) -> None:
        check_settings(self)


def drain_main(arguments: Sequence[str], program: str = "zmqdata drain") -> int:
    """Has a worker hand over its tasks and end; returns the exit code, 1 when it has
    not in time.
    """
    parser = command_parser(
        program,
        "Has a worker hand its tasks over to other workers and end, with exit code 0, and waits "
        "for that. Nothing is "
        "lost or comes twice.",
        DispatcherSettings,
        KeySettings,
    )
    parser.add_argument(
        "worker", metavar="WORKER", help="its address or name, as status shows it, or a host"
    )
    chosen = parser.parse_args(arguments)
    return guarded(program, lambda: drain_worker(chosen, program))


def drain_worker(chosen: argparse.Namespace, program: str) -> int:
    """Asks for the drain and waits for its end."""
    wanted = chosen_settings(DispatcherSettings, chosen)
    take_key(chosen)
    check_dispatcher_named(chosen, DispatcherSettings, "which dispatcher?")
    from zmqdata.client.admin import drain

    left, stayed = drain(wanted.dispatcher_address, chosen.worker, wanted.timeout)
    for address in left:
        say(f"{printable(address)} has left")
    if not stayed:
        return 0
    return complain(program, f"{', '.join(stayed)} has not left within {wanted.timeout:g} s", 1)


# --- audit


def audit_main(arguments: Sequence[str], program: str = "zmqdata audit") -> int:
    """Prints what became of a job's splits and elements; returns the exit code, 1 when
    nobody answers.
    """
    parser = command_parser(
        program,
        "Tells what became of a job: splits handed out, finished and re-hosted, elements delivered "
        "to each client, "
        "duplicates dropped, elements left out.",
        DispatcherSettings,
        KeySettings,
    )
    parser.add_argument(
        "job", metavar="JOB", help="the name of the job, as 'zmqdata status' shows it"
    )
    parser.add_argument(
        "--json", action="store_true", help="print a JSON array with an object for each repetition"
    )
    chosen = parser.parse_args(arguments)
    return guarded(program, lambda: show_audit(chosen))


def show_audit(chosen: argparse.Namespace) -> int:
    """Asks for the audit of a job and prints it."""
    wanted = chosen_settings(DispatcherSettings, chosen)
    take_key(chosen)
    check_dispatcher_named(chosen, DispatcherSettings, "which dispatcher?")
    from zmqdata.cli.tables import audit_tables
    from zmqdata.client.admin import audit

    return tell(
        audit(wanted.dispatcher_address, chosen.job, wanted.timeout), chosen.json, audit_tables
    )


# --- save-status


def save_status_main(arguments: Sequence[str], program: str = "zmqdata save-status") -> int:
    """Prints how far a distributed save is; returns the exit code, 1 when the save has
    failed.
    """
    parser = command_parser(
        program, "Tells how far a distributed_save is, by what is in its folder."
    )
    parser.add_argument(
        "path", metavar="PATH", help="the folder, or the URL, that was given to distributed_save"
    )
    parser.add_argument("--follow", action="store_true", help="show a bar until the save has ended")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    chosen = parser.parse_args(arguments)
    return guarded(program, lambda: show_save(chosen.path, chosen.follow, chosen.json))


def show_save(path: str, follows: bool, as_json: bool) -> int:
    """Prints how far the save into a folder is."""
    if not path:
        raise ValueError("PATH must not be empty")
    from rich.console import Console

    from zmqdata.cli.save_progress import FAILED, follow, progress_of

    found = follow(path, Console(stderr=True)) if follows else progress_of(path)
    say(json.dumps(found.fields, indent=2) if as_json else found.line)
    return 1 if found.state == FAILED else 0
