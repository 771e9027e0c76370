"""The findings of ``zmqdata doctor``: what was checked, what was found, whether that is
well, and what to do if it is not.

Facts go in and findings come out. Nothing is measured here, and no server is asked.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from zmqdata.errors import VersionMismatchError
from zmqdata.machine.descriptors import LEAST, PER_ITERATOR, PER_WORKER
from zmqdata.measures.status import newest_jobs
from zmqdata.measures.verdict import FAILED
from zmqdata.messages import known_status
from zmqdata.printable import shown_size

OK, UNCHECKED, WARNING, FAILURE = "ok", "not checked", "warning", "failure"
HERE = "this machine"
SLOW_ROUND_TRIP = 0.05
"""Seconds of a round trip from which on each request of a client is felt."""
SLOW_BYTES = 12_500_000
"""Bytes per second below which a link is slower than 100 Mbit/s."""
SLOW_SHARE = 0.25
"""Share of the median throughput below which a worker's link is an outlier."""
LEAST_LINKS = 3
"""Number of workers from which on a median says something."""
CLOCK_SKEW = 1.0
"""Seconds by which clocks may differ: the resolution of most logs."""
FEW_DESCRIPTORS = 100
"""Number of descriptors that a server should have left for further peers."""
FOLDER = "/dev/shm"  # noqa: S108 - it is only measured
SMALL_FOLDER = 64 << 20
"""Bytes of ``/dev/shm`` that a container has by default."""


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    subject: str
    """The checked side: this machine, the dispatcher or a worker."""
    check: str
    """Name of the check."""
    state: str
    """``OK``, ``UNCHECKED``, ``WARNING`` or ``FAILURE``. A warning costs correctness or
    speed.
    """
    found: str
    """The value found."""
    remedy: str = ""
    """Advice in full sentences; empty if nothing is to be done."""


def _well_if(is_well: bool, subject: str, check: str, found: str, remedy: str) -> Finding:
    """Return a finding that is a warning with a remedy unless all is well."""
    state, advice = (OK, "") if is_well else (WARNING, remedy)
    return Finding(subject, check, state, found, advice)


def is_well(findings: Iterable[Finding]) -> bool:
    """Return True if no finding is a warning or a failure.

    Example:
        >>> is_well([Finding(HERE, "clock", OK, "0 s")])
        True
    """
    return all(one.state in (OK, UNCHECKED) for one in findings)


def fields_of(findings: Sequence[Finding]) -> dict[str, Any]:
    """Return findings as plain data for JSON."""
    return {"well": is_well(findings), "findings": [asdict(one) for one in findings]}


# --- versions


def version_findings(
    subject: str, role: str, theirs: Mapping[str, str], ours: Mapping[str, str]
) -> list[Finding]:
    """Compare the versions of a server with the local versions.

    Args:
        subject: the server.
        role: ``"dispatcher"`` or ``"worker"``. A dispatcher opens no pipeline, so its
            Python and numpy do not matter.
        theirs: versions of the server by name, as its status reports them.
        ours: local versions by name.
    """
    if not theirs:
        text = "its status does not tell versions"
        remedy = "Install the same release of zmqdata on all sides."
        return [Finding(subject, "versions", WARNING, text, remedy)]
    shown = ", ".join(f"{name} {text or 'missing'}" for name, text in theirs.items())
    faults = list(_version_faults(role, theirs, ours))
    if not faults:
        return [Finding(subject, "versions", OK, shown)]
    return [Finding(subject, "versions", state, shown, remedy) for state, remedy in faults]


def _version_faults(
    role: str, theirs: Mapping[str, str], ours: Mapping[str, str]
) -> Iterable[tuple[str, str]]:
    def pair(name: str, parts: int) -> tuple[str, str]:
        both = (".".join(one.get(name, "").split(".")[:parts]) for one in (theirs, ours))
        return next(both), next(both)

    their_release, our_release = theirs.get("zmqdata", ""), ours.get("zmqdata", "")
    if their_release != our_release:
        state = FAILURE if role == "worker" and len(set(pair("zmqdata", 1))) > 1 else WARNING
        yield (
            state,
            f"zmqdata is {their_release or 'not installed'} there and "
            f"{our_release or 'not installed'} here. Install the same release on both sides.",
        )
    if role != "worker":
        return
    there, here = pair("python", 2)
    if there != here:
        yield (
            FAILURE,
            f"Python is {there} there and {here} here. Functions travel as bytecode, which only "
            f"the same minor version runs. Start the worker with Python {here}, or train with "
            f"Python {there}.",
        )
    there, here = pair("numpy", 1)
    if there != here:
        yield (
            WARNING,
            f"numpy is {theirs.get('numpy')} there and {ours.get('numpy')} here. Arrays in "
            "pipelines may not open. Install the same major version on both sides.",
        )
    if bool(theirs.get("blosc")) != bool(ours.get("blosc")):
        where = "there" if ours.get("blosc") else "here"
        yield (
            WARNING,
            f"blosc is missing {where}, so nothing is compressed. Run `pip install blosc` {where}.",
        )


def form_findings(subject: str, status: Mapping[str, Any]) -> list[Finding]:
    """Check that this release reads the status of a dispatcher, which `zmqdata top` and
    the dashboard show, and that no job in it has failed.

    Args:
        subject: the dispatcher.
        status: its status.
    """
    try:
        jobs = newest_jobs(known_status(status).jobs)
    except VersionMismatchError as error:
        return [Finding(subject, "status", WARNING, "this release cannot show it", f"{error}.")]
    failed = [one for one in jobs if one.condition == FAILED]
    return [
        Finding(f"job {one.name}", "condition", WARNING, FAILED, one.sentence) for one in failed
    ]


# --- this machine and the processes of servers


def descriptor_findings(limits: Mapping[str, int], workers: int) -> list[Finding]:
    """Compare the file descriptors that a client of this machine has with those that it
    needs.

    Args:
        limits: as ``transport.process.descriptors`` returns them.
        workers: number of workers that it reads from; 0 if unknown.
    """
    needed = max(LEAST, PER_ITERATOR + PER_WORKER * workers)
    # A process raises its limit by itself, as far as it may.
    usable = limits["left"] + limits["most"] - limits["limit"]
    count = "1 worker" if workers <= 1 else f"{workers} workers"
    purpose = f"an iterator that reads from {count} needs {needed}"
    found = f"{usable:,} usable (ulimit -n: {limits['limit']:,}); {purpose}"
    remedy = "Raise the limit of the user: `ulimit -n 65536`, or LimitNOFILE= in systemd."
    if usable < needed:
        return [Finding(HERE, "file descriptors", FAILURE, found, remedy)]
    return [_well_if(usable >= 2 * needed, HERE, "file descriptors", found, remedy)]


def server_findings(subject: str, process: Mapping[str, Any]) -> list[Finding]:
    """Judge what the status of a server says about its process."""
    limits = process.get("descriptors")
    if not limits:
        return []
    usable = limits["left"] + limits["most"] - limits["limit"]
    found = f"{usable:,} usable (ulimit -n: {limits['limit']:,})"
    remedy = (
        "Start the server with a higher limit (`ulimit -n 65536`, or LimitNOFILE= in systemd). "
        "Further peers get no answer."
    )
    return [_well_if(usable >= FEW_DESCRIPTORS, subject, "file descriptors", found, remedy)]


def memory_findings(memfd_error: str, folder: Mapping[str, int] | None) -> list[Finding]:
    """Judge the shared memory of this machine.

    Args:
        memfd_error: why memory without a name cannot be shared; empty if it can.
        folder: size and free bytes of ``/dev/shm``; None if there is none.
    """
    if memfd_error:
        text = f"memory without a name (memfd) cannot be shared: {memfd_error}"
        remedy = (
            "Allow memfd_create in the container's seccomp profile. Until then, elements of "
            "workers on this machine travel through sockets, which is slower."
        )
        first = Finding(HERE, "shared memory", WARNING, text, remedy)
    else:
        first = Finding(HERE, "shared memory", OK, "memory without a name (memfd) can be shared")
    if folder is None:
        return [first, Finding(HERE, FOLDER, OK, "absent; zmqdata does not use it")]
    found = f"{shown_size(folder['free'])} of {shown_size(folder['size'])} free"
    remedy = (
        "zmqdata does not use it, but worker processes of PyTorch's DataLoader do. Free some, or "
        "start the container with --shm-size=8g (Kubernetes: an emptyDir with medium Memory)."
    )
    return [first, _well_if(folder["free"] >= SMALL_FOLDER, HERE, FOLDER, found, remedy)]


# --- connections


def clock_finding(subject: str, ahead: float, round_trip: float) -> Finding:
    """Judge the difference between the clock of a server and the local clock.

    Args:
        subject: the server.
        ahead: seconds by which its clock is ahead.
        round_trip: seconds of the round trip by which that was measured.
    """
    found = f"{ahead:+.3f} s, exact to {round_trip / 2 * 1000:.2g} ms"
    remedy = (
        "Let chrony or systemd-timesyncd set the clocks of both machines. Leases do not depend on "
        "them, but the times in logs cannot be compared, nor the ages of files in shared folders."
    )
    return _well_if(abs(ahead) - round_trip / 2 <= CLOCK_SKEW, subject, "clock", found, remedy)


def round_trip_finding(subject: str, seconds: float) -> Finding:
    """Judge the time of a round trip."""
    found = f"{seconds * 1000:.3g} ms"
    remedy = (
        "Move the training loop closer to the server, in the same data center. If the server is "
        "close, look for a loaded machine or for a pipeline that holds the interpreter."
    )
    return _well_if(seconds <= SLOW_ROUND_TRIP, subject, "round trip", found, remedy)


def throughput_findings(rates: Mapping[str, float | None]) -> list[Finding]:
    """Judge the measured throughput of workers.

    Args:
        rates: bytes per second by worker; None if nothing arrived.
    """
    measured = [rate for rate in rates.values() if rate is not None]
    median = statistics.median(measured) if len(measured) >= LEAST_LINKS else 0.0
    return [_throughput_finding(subject, rate, median) for subject, rate in rates.items()]


def _throughput_finding(subject: str, rate: float | None, median: float) -> Finding:
    if rate is None:
        remedy = "The worker has answered before. Is it overloaded? See its log."
        return Finding(subject, "throughput", WARNING, "nothing arrived", remedy)
    found = f"{rate / 1e6:.3g} MB/s"
    if rate < SLOW_BYTES:
        remedy = (
            f"The link is slower than {SLOW_BYTES / 1e6:g} MB/s (100 Mbit/s). Check the network "
            "interfaces between the machines, and the load of the worker."
        )
        return Finding(subject, "throughput", WARNING, found, remedy)
    remedy = (
        f"Half of the workers reach {median / 1e6:.3g} MB/s or more. Check the network interface "
        "and the load of this worker's machine."
    )
    return _well_if(rate >= SLOW_SHARE * median, subject, "throughput", found, remedy)
