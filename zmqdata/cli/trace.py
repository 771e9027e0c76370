"""The command that records what a service does for some seconds, as a file for
Perfetto.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from zmqdata.cli.asking import DispatcherSettings, opened
from zmqdata.cli.options import command_parser, complain, guarded, say
from zmqdata.config.keys import KeySettings
from zmqdata.measures.timeline import BASE, merged
from zmqdata.printable import printable


def trace_main(arguments: Sequence[str], program: str = "zmqdata trace") -> int:
    """Record a service; return the exit code: 0 if any process was recorded, else 1."""
    parser = command_parser(
        program,
        "Records what workers and training loops do for some seconds, and writes a file in the "
        "trace-event format, which https://ui.perfetto.dev and chrome://tracing open.",
        DispatcherSettings,
        KeySettings,
    )
    parser.add_argument("out", metavar="FILE", help="the file to write: .json, or .json.gz")
    parser.add_argument(
        "--seconds",
        type=float,
        default=10.0,
        metavar="S",
        help="duration of the recording in seconds, at most 300 (default: 10)",
    )
    parser.add_argument(
        "--merge",
        metavar="FILE",
        help="a trace of torch's profiler: FILE gets its events, too, on the same clock",
    )
    chosen = parser.parse_args(arguments)
    return guarded(program, lambda: trace(chosen, program))


def trace(chosen: argparse.Namespace, program: str) -> int:
    """Record, and write the file."""
    wanted = opened(DispatcherSettings, chosen)
    out = Path(chosen.out)
    check_out(out)
    if chosen.merge is not None:
        check_other(chosen.merge)
    from zmqdata.cli.collecting import record

    found = record(wanted.dispatcher_address, chosen.seconds, wanted.timeout)
    about = found["otherData"]
    content, unmerged = encoded(found, chosen.merge)
    write_trace(out, content)
    for name, reason in about["not_recorded"].items():
        complain(program, f"{name} was not recorded: {reason}")
    spans = sum(one["spans"] for one in about["processes"])
    dropped = sum(one["dropped_spans"] for one in about["processes"])
    worst = max((one["clock_error_us"] for one in about["processes"]), default=0)
    lost = f"; the oldest {dropped:,} were dropped" if dropped else ""
    processes = len(about["processes"])
    say(
        printable(
            f"{out}: {spans:,} spans of {processes} processes{lost}; clocks agree within "
            f"{worst / 1000:.3g} ms. Open it at https://ui.perfetto.dev"
        )
    )
    if unmerged:
        text = f"{out} has the recording only, without the events of {chosen.merge}: {unmerged}"
        complain(program, text)
    if not processes:
        complain(program, "no worker is registered, and no client reads")
    return 1 if unmerged or not processes else 0


def check_out(path: Path) -> None:
    """Raise if a file surely cannot be written. Nothing is written.

    Raises:
        ValueError: the file cannot be written.
    """
    if path.is_dir():
        raise ValueError(f"{path} cannot be written: it is a folder; give the name of a file")
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise ValueError(f"{path} cannot be written: its folder is missing, or is not writable")
    if path.exists() and not os.access(path, os.W_OK):
        raise ValueError(f"{path} cannot be written: the file exists and is not writable")


def check_other(path: str) -> None:
    """Raise if a file surely cannot be merged. A file that is missing may still be
    written during the recording if its folder exists.

    Raises:
        ValueError: the file is no trace, or its folder is missing.
        OSError: the file cannot be read.
    """
    if os.path.exists(path):
        read_trace(path)
    elif not Path(path).parent.is_dir():
        raise ValueError(f"{path} cannot be read: its folder is missing")


def encoded(ours: Any, other: str | None) -> tuple[bytes, str]:
    """Return a recording as JSON, and why it lacks the events of another trace; empty
    if it lacks none.

    Args:
        ours: the recording.
        other: path of the trace to merge; None merges none.
    """
    if other is None:
        return msgspec.json.encode(ours), ""
    try:
        # The file is read now, because its program may have written it meanwhile.
        return msgspec.json.encode(merged(ours, read_trace(other))), ""
    except Exception as error:  # the recording must outlive whatever the other file holds
        return msgspec.json.encode(ours), str(error) or type(error).__name__


def read_trace(path: str) -> Any:
    """Return the content of a trace file.

    Raises:
        ValueError: the file is no trace; the error names it.
        OSError: the file cannot be read.
    """
    content = Path(path).read_bytes()
    try:
        found = json.loads(gzip.decompress(content) if path.endswith(".gz") else content)
    except (ValueError, OSError, EOFError, zlib.error, RecursionError) as error:
        raise ValueError(f"{path} is no trace, because it is no JSON: {error}") from None
    if not is_trace(found):
        raise ValueError(
            f"{path} is no trace: a JSON object with `traceEvents` was expected, as torch's "
            "`export_chrome_trace` writes it"
        )
    return found


def is_trace(found: Any) -> bool:
    """Return True if a value has the parts of a trace that merging needs.

    Example:
        >>> is_trace({"traceEvents": []}), is_trace([]), is_trace({"traceEvents": 1})
        (True, False, False)
    """
    return (
        isinstance(found, dict)
        and isinstance(found.get("traceEvents"), list)
        and isinstance(found.get(BASE, 0), int | float)
        and isinstance(found.get("otherData", {}), dict)
    )


def write_trace(path: Path, content: bytes) -> None:
    """Write a trace, compressed if the file's name ends with ``.gz``."""
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
