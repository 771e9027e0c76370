"""The command that checks a cluster from this machine, and says what to do about its
findings.

``cli.findings`` judges; this module asks, measures and prints. Every wait has a limit,
and all of them together have the time that the user gives.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zmqdata.cli import findings as judge
from zmqdata.cli.asking import tell
from zmqdata.cli.findings import FAILURE, HERE, OK, UNCHECKED, WARNING, Finding
from zmqdata.cli.options import chosen_settings, command_parser, guarded
from zmqdata.config.endpoints import FILE_SCHEME, endpoint_host, parse_service
from zmqdata.config.keys import WITHOUT_KEY, KeySettings
from zmqdata.config.settings import Settings, setting
from zmqdata.config.worker import dispatcher_setting
from zmqdata.errors import (
    DataServiceError,
    NoStatusError,
    PermissionDeniedError,
    UnavailableError,
    VersionMismatchError,
)
from zmqdata.peeking import counted
from zmqdata.transport.addresses import (
    REACHABLE,
    is_loopback,
    is_refused,
    is_this_machine,
    resolve_host,
    somebody_listens,
)
from zmqdata.transport.dispatcher_file import current_address

if TYPE_CHECKING:
    from rich.console import RenderableType

    from zmqdata.client.probing import ServerAnswer
    from zmqdata.transport.keys import Key

PATIENCE = 5.0
"""Seconds that a server has to answer."""
CONNECT_PATIENCE = 2.0
"""Seconds to wait for a connection."""
AT_ONCE = 32
"""Number of workers that are asked at the same time."""
TRANSFER_SECONDS = 0.5
"""Seconds for which the throughput of a worker is measured at most."""
TRANSFER_BYTES = 32 << 20
"""Number of bytes after which that ends."""
LONG = ("versions",)
"""Checks of a healthy worker whose values the table leaves out."""
STYLES = {OK: "green", UNCHECKED: "dim", WARNING: "yellow", FAILURE: "bold red"}


@dataclass(frozen=True)
class DoctorSettings(Settings):
    """Settings of ``zmqdata doctor``."""

    dispatcher_address: str = dispatcher_setting()
    """Address of the dispatcher; empty to check this machine only."""
    json: bool = setting(False, "print one JSON object instead of a table")
    """True to print JSON."""
    timeout: float = setting(60.0, "how long all checks may take, in seconds", metavar="S")
    """Seconds for all checks together."""


def doctor_main(arguments: Sequence[str], program: str = "zmqdata doctor") -> int:
    """Check a cluster from this machine; return the exit code: 0 if all is well, 1 if
    there is a warning or a failure.
    """
    about = (
        "Checks versions, keys, ports, clocks, shared memory and file descriptors, and measures "
        "the connection to the dispatcher and to each worker. Without a dispatcher it checks this "
        "machine only. Ends with exit code 1 if anything costs correctness or speed."
    )
    chosen = command_parser(program, about, DoctorSettings, KeySettings).parse_args(arguments)
    settings = chosen_settings(DoctorSettings, chosen)
    keys = chosen_settings(KeySettings, chosen)
    return guarded(program, lambda: examine(settings, keys))


def examine(settings: DoctorSettings, keys: KeySettings) -> int:
    """Run all checks, print the findings, and return the exit code."""
    found = Doctor(settings.dispatcher_address, keys, settings.timeout).findings()
    tell(judge.fields_of(found), settings.json, lambda _: finding_tables(found))
    return 0 if judge.is_well(found) else 1


class Doctor:
    """Checks this machine, a dispatcher and its workers.

    Args:
        service: address of the dispatcher; empty for none.
        keys: the key settings of this process.
        timeout: seconds for all checks.
        clock: returns the time in seconds.
    """

    def __init__(
        self,
        service: str,
        keys: KeySettings,
        timeout: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._service, self._keys, self._clock = service, keys, clock
        self._until = clock() + timeout

    def findings(self) -> list[Finding]:
        """Run the checks one after the other, and return all findings."""
        from zmqdata.transport.keychoice import show
        from zmqdata.transport.process import shared_memory

        key, found = key_finding(self._keys)
        if found.state != FAILURE:
            show(self._keys)
        local = [local_versions(), found]
        memory = judge.memory_findings(memfd_error(), shared_memory())
        if not self._service:
            remedy = "Name one by --dispatcher or ZMQDATA_DISPATCHER."
            unchecked = [
                Finding(subject, "all", UNCHECKED, "no dispatcher is named", remedy)
                for subject in ("dispatcher", "workers")
            ]
            return [*local, *descriptors(0), *memory, *unchecked]
        remote, workers = self._cluster(key, found.state == FAILURE)
        return [*local, *descriptors(workers), *memory, *remote]

    # --- the dispatcher

    def _cluster(self, key: Key | None, has_no_key: bool) -> tuple[list[Finding], int]:
        """Check the dispatcher and its workers. Return the findings and the number of
        workers.
        """
        endpoint = parse_service(self._service)
        subject = f"dispatcher {endpoint}"
        found = port_findings(subject, endpoint, None if has_no_key else key, self._keys)
        if any(one.state == FAILURE for one in found) or has_no_key:
            text = "nothing was asked, because of the failures above"
            return [*found, Finding("workers", "all", UNCHECKED, text)], 0
        answer = self._ask(endpoint, "dispatcher")
        found += self._answer_findings(subject, endpoint, "dispatcher", answer)
        if isinstance(answer, DataServiceError) or "workers" not in answer.status:
            text = "the dispatcher has not told its workers"
            return [*found, Finding("workers", "all", UNCHECKED, text)], 0
        found += judge.form_findings(subject, answer.status)
        if answer.status.get("config", {}).get("insecure"):
            remedy = "Start all processes with a key: leave out --insecure and ZMQDATA_INSECURE."
            found.append(Finding(subject, "key", WARNING, WITHOUT_KEY, remedy))
        else:
            found.append(Finding(subject, "key", OK, "it requires a key, and admits this one"))
        addresses = sorted({str(one["address"]) for one in answer.status["workers"]})
        return [*found, *self._workers(addresses)], len(addresses)

    def _ask(self, endpoint: str, role: str) -> ServerAnswer | DataServiceError:
        """Return the answer of a server, or the error why there is none."""
        from zmqdata.client.probing import measured

        until = min(self._until, self._clock() + PATIENCE)
        try:
            with measured(endpoint, role) as connection:
                return connection.answer(until)
        except DataServiceError as error:
            return error

    def _answer_findings(
        self, subject: str, endpoint: str, role: str, answer: ServerAnswer | DataServiceError
    ) -> list[Finding]:
        if isinstance(answer, DataServiceError):
            is_local = not self._service or is_this_machine(parse_service(self._service))
            return [silence_finding(subject, endpoint, role, answer, is_local)]
        status = answer.status
        if role not in status:
            other = "worker" if role == "dispatcher" else "dispatcher"
            remedy = f"Name the address of the {role}, which it prints when it is ready."
            return [Finding(subject, "answer", FAILURE, f"a {other} answers there", remedy)]
        from zmqdata.transport.process import versions

        process = status.get("process", {})
        host = process.get("host", "")
        return [
            Finding(subject, "answer", OK, f"host {host}" if host else "answered"),
            *judge.version_findings(subject, role, process.get("versions", {}), versions()),
            *judge.server_findings(subject, process),
            judge.clock_finding(subject, answer.clock_ahead, answer.round_trip),
            judge.round_trip_finding(subject, answer.round_trip),
        ]

    # --- workers

    def _workers(self, addresses: Sequence[str]) -> list[Finding]:
        if not addresses:
            remedy = "Start a worker: zmqdata worker --dispatcher ADDRESS."
            return [Finding("workers", "all", WARNING, "no worker is registered", remedy)]
        from zmqdata.client.calls import client_context

        client_context()  # before threads would each make one
        with ThreadPoolExecutor(min(AT_ONCE, len(addresses))) as pool:
            answers = dict(zip(addresses, pool.map(self._ask_worker, addresses), strict=True))
        alive = [address for address, one in answers.items() if is_answer(one)]
        rates = self._rates(alive)
        judged = {one.subject: one for one in judge.throughput_findings(rates)}
        found: list[Finding] = []
        for address, answer in answers.items():
            subject = f"worker {address}"
            if answer is None:
                found.append(time_is_up(subject, "answer"))
                continue
            found += self._answer_findings(subject, parse_service(address), "worker", answer)
            if is_answer(answer):
                found.append(judged.get(subject) or time_is_up(subject, "throughput"))
        return found

    def _ask_worker(self, address: str) -> ServerAnswer | DataServiceError | None:
        """Return what a worker answers; None if no time is left to ask it."""
        if self._clock() >= self._until:
            return None
        endpoint = parse_service(address)
        if is_refused(endpoint):  # nothing is gained by waiting
            return UnavailableError(f"No server listens at {endpoint}.")
        return self._ask(endpoint, "worker")

    def _rates(self, addresses: Sequence[str]) -> dict[str, float | None]:
        """Return the throughput of each worker as long as time is left. One worker
        sends at a time, since all of them together would share the link of this
        machine. Of many workers, each has less time.
        """
        from zmqdata.client.probing import measured

        found: dict[str, float | None] = {}
        for at, address in enumerate(addresses):
            left = self._until - self._clock()
            if left <= 0:
                break
            # Half of the share is for the connection.
            seconds = min(TRANSFER_SECONDS, left / (len(addresses) - at) / 2)
            rate = None
            try:
                with measured(parse_service(address), "worker") as connection:
                    connection.answer(min(self._until, self._clock() + PATIENCE))
                    rate = connection.throughput(seconds, TRANSFER_BYTES)
            except DataServiceError:
                pass  # the finding says that nothing arrived
            found[f"worker {address}"] = rate
        return found


def is_answer(one: ServerAnswer | DataServiceError | None) -> bool:
    """Return True if a server has answered."""
    return one is not None and not isinstance(one, DataServiceError)


def time_is_up(subject: str, check: str) -> Finding:
    """Return the finding that no time was left for a check."""
    remedy = "Give all checks more time with --timeout."
    return Finding(subject, check, WARNING, "not checked, because the time is up", remedy)


# --- this machine


def local_versions() -> Finding:
    """Return the local versions."""
    from zmqdata.transport.process import versions

    shown = ", ".join(f"{name} {text or 'missing'}" for name, text in versions().items())
    return Finding(HERE, "versions", OK, shown)


def descriptors(workers: int) -> list[Finding]:
    """Check the file descriptors of this process."""
    from zmqdata.transport.process import descriptors as limits

    return judge.descriptor_findings(limits(), workers)


def memfd_error() -> str:
    """Return why memory without a name cannot be shared here; "" if it can."""
    from zmqdata.transport.memory import SharedMemory
    from zmqdata.transport.slots import PAGE

    try:
        SharedMemory(PAGE).close()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def key_finding(keys: KeySettings) -> tuple[Key | None, Finding]:
    """Check the key of this process. No key file is created.

    Returns:
        The key, and the finding. The key is None if there is none.
    """
    from zmqdata.transport.keychoice import default_path
    from zmqdata.transport.keys import load

    if keys.insecure:
        remedy = "Leave out --insecure and ZMQDATA_INSECURE, and give all processes one key file."
        return None, Finding(HERE, "key", WARNING, WITHOUT_KEY, remedy)
    try:
        path = keys.key_file or str(default_path())
        key = load(path)
    except (DataServiceError, OSError) as error:
        found = "the key file cannot be used"
        return None, Finding(HERE, "key", FAILURE, found, _sentence(str(error)))
    roles = ", ".join(sorted({one.role for one in key.known}))
    return key, Finding(HERE, "key", OK, f"{path}, cluster {key.cluster}, knows: {roles}")


# --- connections


def port_findings(subject: str, endpoint: str, key: Key | None, keys: KeySettings) -> list[Finding]:
    """Check the name, the port and the encryption of a dispatcher, before it is asked.

    Args:
        subject: the dispatcher.
        endpoint: its address.
        key: the key of this process; None without one.
        keys: the key settings of this process.
    """
    try:
        address = current_address(endpoint)
        host = endpoint_host(address)
        numeric = None if host is None else resolve_host(host)
    except (OSError, DataServiceError) as error:
        what = "unusable file" if endpoint.startswith(FILE_SCHEME) else "unknown host"
        return [Finding(subject, "name", FAILURE, what, _sentence(str(error)))]
    if not address:
        remedy = "Start a dispatcher with --dispatcher-file, on a machine that shares this disk."
        return [Finding(subject, "name", FAILURE, "no dispatcher has written the file", remedy)]
    if not somebody_listens(endpoint, CONNECT_PATIENCE):
        return [_no_listener(subject, endpoint)]
    found = [Finding(subject, "port", OK, f"accepts connections at {numeric or endpoint}")]
    if host is None:
        return found
    from zmqdata.transport.handshakes import mechanism_of

    mechanism = mechanism_of(endpoint)
    if mechanism is None:
        remedy = (
            "Another service has this port. Compare the address with the one that the dispatcher "
            "printed when it was ready."
        )
        text = "what listens there does not speak ZeroMQ"
        return [*found, Finding(subject, "service", FAILURE, text, remedy)]
    if mechanism == "CURVE" and key is None:
        remedy = (
            "Copy the key file of the cluster to this machine and name it by --key-file or "
            "ZMQDATA_KEY_FILE"
        )
        remedy += ", and leave out --insecure." if keys.insecure else "."
        return [*found, Finding(subject, "key", FAILURE, "it requires a key", remedy)]
    if mechanism == "NULL" and not keys.insecure:
        remedy = (
            "Start the dispatcher without --insecure, or pass --insecure here, too, if everybody "
            "on this network may run code on the workers."
        )
        text = "it works without a key, and this process has one"
        return [*found, Finding(subject, "key", FAILURE, text, remedy)]
    return found


def _no_listener(subject: str, endpoint: str) -> Finding:
    if is_refused(endpoint):
        text = "no server listens there"
        remedy = (
            "Start the dispatcher, and compare the address with the one that it prints. A "
            "dispatcher without --host listens on its own machine only."
        )
    else:
        text = f"no connection within {CONNECT_PATIENCE:g} s"
        remedy = "Check the route to that machine, and firewalls that drop packets to this port."
    return Finding(subject, "port", FAILURE, text, remedy)


def silence_finding(
    subject: str, endpoint: str, role: str, error: DataServiceError, is_local: bool
) -> Finding:
    """Return the finding that a server gives no usable answer.

    Args:
        subject: the server.
        endpoint: its address.
        role: kind of server.
        error: the error of the request.
        is_local: True if the dispatcher is on this machine.
    """
    if isinstance(error, PermissionDeniedError):
        return Finding(subject, "key", FAILURE, "it does not admit this key", _sentence(str(error)))
    if isinstance(error, NoStatusError):
        return Finding(subject, "answer", FAILURE, "it sends no status", _sentence(str(error)))
    if isinstance(error, VersionMismatchError):
        remedy = _sentence(str(error))
        return Finding(subject, "versions", FAILURE, "another version of the protocol", remedy)
    text = f"no answer within {PATIENCE:g} s"
    if is_refused(endpoint):
        text = "no server listens there"
    remedy = f"See the log of the {role}: is it overloaded or stopped?"
    host = endpoint_host(endpoint)
    if role == "worker":
        remedy += (
            " Check that this machine may connect to its port, and that the address it announces "
            "(--advertise, or --host) is reachable from here."
        )
        if host is not None and _is_loopback(host) and not is_local:
            remedy = (
                f"The worker announces an address that only its own machine reaches. {REACHABLE}"
            )
    return Finding(subject, "answer", FAILURE, text, remedy)


def _is_loopback(host: str) -> bool:
    try:
        return is_loopback(host)
    except DataServiceError:
        return False


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


# --- for people


def finding_tables(found: Sequence[Finding]) -> list[RenderableType]:
    """Return findings as a table, and the remedies below it. The findings of a worker
    with which all is well share a row.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    from zmqdata.printable import printable

    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for name in ("", "where", "check", "found"):
        table.add_column(name, overflow="fold")
    for one in merged(found):
        state = Text(one.state, STYLES[one.state])
        table.add_row(
            state, *(Text(printable(cell)) for cell in (one.subject, one.check, one.found))
        )
    shown: list[RenderableType] = [table]
    for one in found:
        if one.remedy:
            line = Text(f"{one.subject}, {one.check}: ", STYLES[one.state])
            shown.append(line.append(printable(one.remedy), "default"))
    well = judge.is_well(found)
    return [*shown, Text(verdict_of(found), STYLES[OK if well else FAILURE])]


def verdict_of(found: Sequence[Finding]) -> str:
    """Return the result of all checks in a sentence.

    Example:
        >>> verdict_of([Finding(HERE, "key", FAILURE, "none")])
        'Not all is well: 1 failure.'
        >>> verdict_of([Finding("dispatcher", "all", UNCHECKED, "no address")])
        'All that was checked is well.'
    """
    counts = Counter(one.state for one in found)
    faults = [counted(counts[state], state) for state in (FAILURE, WARNING) if counts[state]]
    if faults:
        return f"Not all is well: {', '.join(faults)}."
    return "All that was checked is well." if counts[UNCHECKED] else "All is well."


def merged(found: Sequence[Finding]) -> list[Finding]:
    """Return findings with a single row for each worker with which all is well.

    Example:
        >>> two = [Finding("worker a", name, OK, "well") for name in ("clock", "key")]
        >>> [one.found for one in merged(two)]
        ['clock well; key well']
    """
    rows: list[Finding] = []
    for subject in dict.fromkeys(one.subject for one in found):
        own = [one for one in found if one.subject == subject]
        if subject.startswith("worker ") and len(own) > 1 and all(one.state == OK for one in own):
            text = "; ".join(f"{one.check} {one.found}" for one in own if one.check not in LONG)
            own = [Finding(subject, "all", OK, text)]
        rows += own
    return rows
