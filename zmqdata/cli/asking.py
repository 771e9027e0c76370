"""The commands that query a server or a folder, and the command that drains a worker.
They start no servers.

Each command imports slow modules only when it needs them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

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
from zmqdata.config.settings import Settings, setting
from zmqdata.config.worker import dispatcher_setting
from zmqdata.errors import DataServiceError, NotFoundError, UnavailableError
from zmqdata.peeking import counted
from zmqdata.printable import printable
from zmqdata.transport.addresses import resolve_host
from zmqdata.transport.dispatcher_file import current_address

if TYPE_CHECKING:
    from rich.console import RenderableType

    from zmqdata.client.admin import DrainedWorker

NOTHING_KNOWN = 2
"""Exit code of ``--expect`` if no verdict is known."""
T = TypeVar("T")


def tell(found: T, as_json: bool, tables: Callable[[T], Iterable[RenderableType]]) -> int:
    """Print an answer as JSON or as tables, and return the exit code."""
    if as_json:
        say(json.dumps(found, indent=2))
        return 0
    from zmqdata.cli.top import new_console

    console = new_console()
    for table in tables(found):
        console.print(table)
    return 0


def take_key(chosen: argparse.Namespace) -> None:
    """Make this process show the chosen key."""
    from zmqdata.transport.keychoice import show

    show(chosen_settings(KeySettings, chosen))


def check_host(service: str) -> None:
    """Raise an error if the host of a service has no address."""
    host = endpoint_host(current_address(parse_service(service)))
    if host is not None:
        resolve_host(host)


def opened(kind: type[T], chosen: argparse.Namespace) -> T:
    """Make this process show the chosen key, and return the settings of a command that
    asks a dispatcher.

    Raises:
        ValueError: no dispatcher is named.
    """
    wanted = chosen_settings(kind, chosen)
    take_key(chosen)
    check_dispatcher_named(chosen, kind, "which dispatcher?")
    return wanted


# --- status


@dataclass(frozen=True)
class StatusSettings(Settings):
    """Settings of ``zmqdata status``."""

    dispatcher_address: str = dispatcher_setting()
    """Address of the dispatcher."""
    worker: str | None = setting(
        None,
        "ask this worker instead of the dispatcher; the dispatcher's status has its address",
        metavar="ADDR",
    )
    """Address of a worker to query instead of the dispatcher."""
    json: bool = setting(False, "print one JSON object instead of tables")
    """True to print JSON."""
    timeout: float = setting(5.0, "how long to wait for an answer, in seconds", metavar="S")
    """Seconds to wait for an answer."""
    watch: bool = setting(False, "show it again and again until Ctrl-C, as zmqdata top does")
    """True to show the status again and again."""
    once: bool = setting(False, "show it once: zmqdata top --once is zmqdata status")
    """True to show it once, whatever ``watch`` says."""
    interval: float = setting(2.0, "seconds between two questions of --watch", metavar="S")
    """Seconds between two questions."""
    expect: str = setting(
        "",
        "end with 0 if every job that is read has this verdict, such as COMPUTE-BOUND, with 1 if "
        "one has another, with 2 if nothing is known",
        metavar="VERDICT",
    )
    """Verdict that decides the exit code; empty for none."""
    job: str = setting("", "judge this job only, for --expect", metavar="NAME")
    """Name of the job that ``expect`` concerns; empty for all jobs."""


def status_main(arguments: Sequence[str], program: str = "zmqdata status") -> int:
    """Print the condition of each job, operations, workers and training loops; return
    the exit code, 1 if no server answers.
    """
    about = (
        "Tells what limits each job of a dispatcher, and lists its operations, workers, training "
        "loops, tasks and rates, or the tasks of a worker."
    )
    chosen = command_parser(program, about, StatusSettings, KeySettings).parse_args(arguments)
    return guarded(program, lambda: show_status(chosen))


def top_main(arguments: Sequence[str], program: str = "zmqdata top") -> int:
    """Show the status again and again, as ``zmqdata status --watch``; return the exit
    code.
    """
    return status_main(["--watch", *arguments], program)


def show_status(chosen: argparse.Namespace) -> int:
    """Query a dispatcher or a worker and print its status."""
    wanted = _without_contradictions(chosen_settings(StatusSettings, chosen), vars(chosen))
    take_key(chosen)
    if not wanted.worker:
        check_dispatcher_named(chosen, StatusSettings, "which dispatcher?")
    service = wanted.worker or wanted.dispatcher_address
    check_host(service)
    from zmqdata.cli.top import picture_of, watch
    from zmqdata.client.calls import status

    def ask() -> dict[str, Any]:
        return status(service, wanted.timeout, "worker" if wanted.worker else "dispatcher")

    if wanted.watch and not wanted.once:
        return watch(ask, wanted.interval, wanted.json)
    try:
        found = ask()
    except UnavailableError as error:
        if not wanted.expect:
            raise
        raise DataServiceError(str(error)) from error  # ends with NOTHING_KNOWN
    code = tell(found, wanted.json, picture_of)
    return _agreement(found, wanted) if wanted.expect else code


def _agreement(found: Mapping[str, Any], wanted: StatusSettings) -> int:
    """Return the exit code of ``--expect``.

    Raises:
        NotFoundError: no job has the name that is given.
    """
    from zmqdata.measures.status import agrees
    from zmqdata.messages import known_status

    known = known_status(found)
    names = sorted({one.job for one in known.jobs})
    if wanted.job and wanted.job not in names:
        raise NotFoundError(
            f"The dispatcher has no job {wanted.job!r}, which --job names. "
            f"It has {', '.join(map(repr, names)) or 'no job yet'}. Name one of its jobs, and "
            "start the training loop of a job that is absent"
        )
    agreed = agrees(known, wanted.expect, wanted.job)
    return NOTHING_KNOWN if agreed is None else int(not agreed)


def _without_contradictions(wanted: StatusSettings, given: Collection[str]) -> StatusSettings:
    """Return the settings without variables of the environment that do not fit the
    given options.

    Raises:
        ValueError: the given options contradict each other, or no such verdict exists.
    """
    watches = wanted.watch and not wanted.once
    if wanted.expect and (wanted.worker or watches):
        if "expect" not in given:
            wanted = replace(wanted, expect="")
        elif "worker" in given or (watches and "watch" in given):
            raise ValueError(
                "--expect judges the jobs of a dispatcher once. Leave out --worker, and give "
                "--once to zmqdata top"
            )
        else:
            wanted = replace(wanted, worker=None, watch=False)
    if not wanted.expect:
        if wanted.job and "job" in given:
            raise ValueError("--job is given without --expect, which it belongs to. Give both")
        return wanted
    from zmqdata.measures.verdict import EXPECTED

    if wanted.expect not in EXPECTED:
        raise ValueError(f"--expect is {wanted.expect!r}, and must be one of {', '.join(EXPECTED)}")
    return wanted


# --- drain


@dataclass(frozen=True)
class DispatcherSettings(Settings):
    """Settings of the commands that send a request to a dispatcher."""

    dispatcher_address: str = dispatcher_setting()
    """Address of the dispatcher."""
    timeout: float = setting(15.0, "how long to wait, in seconds", metavar="S")
    """Seconds to wait."""


def drain_main(arguments: Sequence[str], program: str = "zmqdata drain") -> int:
    """Drain a worker; return the exit code, 1 if it has not left in time."""
    parser = command_parser(
        program,
        "Makes a worker hand its tasks over to other workers and end with exit code 0, and waits "
        "for that. Nothing is lost or delivered twice.",
        DispatcherSettings,
        KeySettings,
    )
    parser.add_argument(
        "worker", metavar="WORKER", help="its address or name, as status shows it, or a host"
    )
    chosen = parser.parse_args(arguments)
    return guarded(program, lambda: drain_worker(chosen, program))


def drain_worker(chosen: argparse.Namespace, program: str) -> int:
    """Request the drain and wait for its end."""
    wanted = opened(DispatcherSettings, chosen)
    from zmqdata.client.admin import drain

    drained = drain(wanted.dispatcher_address, chosen.worker, wanted.timeout)
    for one in drained:
        if one.has_left:
            say(printable(f"{one.address} has left; {tasks_of(one)}"))
    stayed = [one for one in drained if not one.has_left]
    if not stayed:
        return 0
    text = " ".join(
        f"{one.address} has not left within {wanted.timeout:g} s: {reason_to_stay(one)}"
        for one in stayed
    )
    return complain(program, text, 1)


def reason_to_stay(drained: DrainedWorker) -> str:
    """Return why a drained worker has not left, in words, and what to do.

    Example:
        >>> from zmqdata.client.admin import DrainedWorker
        >>> reason_to_stay(DrainedWorker("tcp://a:1", False, {}, 0, 0, staying=2))[:61]
        'no other worker is registered that could take its unfinished '
    """
    if not drained.others and (drained.staying or drained.waiting):
        return (
            "no other worker is registered that could take its unfinished tasks "
            f"({drained.staying + drained.waiting}). Start another worker, where they continue."
        )
    if drained.staying:
        return (
            f"it has not handed over {counted(drained.staying, 'task')} yet. It goes on with that; "
            "`--timeout` sets how long this command waits."
        )
    return "its tasks have moved, but its process goes on. See its log."


def tasks_of(drained: DrainedWorker) -> str:
    """Return what became of a drained worker's tasks, in words.

    Example:
        >>> from zmqdata.client.admin import DrainedWorker
        >>> moved = {"tcp://b:1": 2}
        >>> tasks_of(DrainedWorker("tcp://a:1", True, moved, 1, ended=0, others=1))
        'its unfinished tasks: 2 continue at tcp://b:1, 1 waits for a worker'
    """
    parts = [
        f"{count} {'continues' if count == 1 else 'continue'} at {address}"
        for address, count in sorted(drained.continued.items())
    ]
    waiting = drained.waiting
    if waiting:
        alone = "" if drained.others else ", because no other is registered"
        parts.append(f"{waiting} {'waits' if waiting == 1 else 'wait'} for a worker{alone}")
    if drained.ended:
        parts.append(f"{drained.ended} ended with it, because copies of the input cannot move")
    return f"its unfinished tasks: {', '.join(parts)}" if parts else "it had no unfinished tasks"


# --- audit


def audit_main(arguments: Sequence[str], program: str = "zmqdata audit") -> int:
    """Print the accounts of a job's splits and elements; return the exit code, 1 if the
    dispatcher does not answer.
    """
    parser = command_parser(
        program,
        "Prints what became of a job: splits handed out, finished and re-hosted, elements "
        "delivered to each client, duplicates dropped, elements left out.",
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
    """Request the audit of a job and print it."""
    wanted = opened(DispatcherSettings, chosen)
    from zmqdata.cli.tables import audit_tables
    from zmqdata.client.admin import audit

    return tell(
        audit(wanted.dispatcher_address, chosen.job, wanted.timeout), chosen.json, audit_tables
    )


# --- save-status


def save_status_main(arguments: Sequence[str], program: str = "zmqdata save-status") -> int:
    """Print the progress of a distributed save; return the exit code, 1 if the save has
    failed, or if no dispatcher writes it.
    """
    parser = command_parser(
        program, "Prints the progress of a distributed_save, from the content of its folder."
    )
    parser.add_argument(
        "path", metavar="PATH", help="the folder, or the URL, that was given to distributed_save"
    )
    parser.add_argument("--follow", action="store_true", help="show a bar until the save has ended")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    chosen = parser.parse_args(arguments)
    return guarded(program, lambda: show_save(chosen.path, chosen.follow, chosen.json))


def show_save(path: str, follows: bool, as_json: bool) -> int:
    """Print the progress of the save into a folder."""
    if not path:
        raise ValueError("PATH must not be empty")
    from rich.console import Console

    from zmqdata.cli.save_progress import follow
    from zmqdata.storage.progress import DONE, RUNNING, progress_of

    found = follow(path, Console(stderr=True)) if follows else progress_of(path)
    say(json.dumps(found.fields, indent=2) if as_json else found.line)
    return 0 if found.state in (RUNNING, DONE) else 1
