"""Numbers of a status as the commands ``status`` and ``top`` show them. No server is
queried here, and no state or share is made here.
"""

from __future__ import annotations

from zmqdata.measures.status import FAILED
from zmqdata.measures.verdict import COMPUTE_BOUND, INPUT_BOUND, LINK_BOUND, STRAGGLER
from zmqdata.messages import JobStatus
from zmqdata.printable import shown_size

STYLES = {
    FAILED: "bold red",
    INPUT_BOUND: "bold red",
    LINK_BOUND: "bold magenta",
    STRAGGLER: "bold yellow",
    COMPUTE_BOUND: "bold green",
}
"""Styles of conditions; others are bold."""


# --- numbers


def shown_rate(per_second: float) -> str:
    """Return a rate with at least three significant digits, and without an exponent. It
    is never shown as zero unless it is zero.

    >>> [shown_rate(rate) for rate in (0.0, 1e-5, 0.0123, 12.34, 12345.6)]
    ['0', '< 0.001', '0.0123', '12.3', '12,346']
    """
    if 0 < per_second < 0.001:
        return "< 0.001"
    return f"{per_second:,.0f}" if per_second >= 100 else f"{per_second:.3g}"


def shown_share(share: float) -> str:
    """Return a share of the time in percent.

    >>> shown_share(0.754), shown_share(0.002), shown_share(0.0)
    ('75 %', '< 1 %', '0 %')
    """
    return "< 1 %" if 0 < share < 0.005 else f"{100 * share:.0f} %"


def shown_bytes_rate(per_second: float) -> str:
    """Return bytes per second; empty for none."""
    return f"{shown_size(per_second)}/s" if per_second else ""


# --- jobs


def shown_splits(job: JobStatus) -> str:
    """Return how many splits of each source were handed out, and what they are.

    >>> from zmqdata.messages import SplitsStatus
    >>> rows = SplitsStatus(handed_out=1000, count=20000, unit="rows")
    >>> shown_splits(JobStatus(splits=[rows, SplitsStatus(handed_out=5)]))
    '1,000 of 20,000 rows, 5 of ? splits'
    """
    return ", ".join(
        f"{one.handed_out:,} of {'?' if one.count is None else format(one.count, ',')} {one.unit}"
        for one in job.splits
    )


def job_rates(job: JobStatus) -> str:
    """Return at which rate the training loops take elements and the workers make them,
    and how many there were.

    >>> from zmqdata.messages import SplitsStatus
    >>> splits = [SplitsStatus(handed_out=5, count=9, unit="files")]
    >>> job = JobStatus(unit="batches", elements_per_second=18.2, rows_per_second=91.0,
    ...     made_per_second=18.5, delivered=88, splits=splits)
    >>> job_rates(job).partition("; 88")[0]
    '18.2 batches/s (91 rows/s), workers make 18.5 batches/s'
    """
    rows = job.rows_per_second
    in_rows = f" ({shown_rate(rows)} rows/s)" if rows is not None and job.unit == "batches" else ""
    parts = [
        f"{shown_rate(job.elements_per_second)} {job.unit}/s{in_rows}, workers make "
        f"{shown_rate(job.made_per_second)} {job.unit}/s",
        f"{job.delivered:,} {job.unit} delivered",
        f"splits handed out: {shown_splits(job)}" if job.splits else "",
        *moved_bytes(job),
    ]
    return "; ".join(filter(None, parts))


def moved_bytes(job: JobStatus) -> list[str]:
    """Return the bytes that arrived, by transport and codec.

    >>> from zmqdata.messages import MovedStatus, TotalsStatus
    >>> moved = [MovedStatus(transport="tcp", codec="zstd", bytes=12_600_000)]
    >>> moved_bytes(JobStatus(measures=TotalsStatus(moved=moved)))
    ['12.6 MB by transport tcp, codec zstd']
    """
    return [
        f"{shown_size(one.bytes)} by transport {one.transport}, codec {one.codec}"
        for one in job.measures.moved
        if one.bytes
    ]
