"""The command that records what a service does for some seconds, as a file for
Perfetto.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from zmqdata.cli.asking import DispatcherSettings, opened
from zmqdata.cli.options import (
    command_parser,
    complain,
    guarded,
    say,
)
from zmqdata.config.keys import KeySettings
from zmqdata.measures.timeline import merged
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
    if not out.parent.is_dir() or not os.access(out.parent, os.W_OK):
        raise ValueError(f"{out} cannot be written: its folder is missing, or is not writable")
    from zmqdata.cli.collecting import record

    found = record(wanted.dispatcher_address, chosen.seconds, wanted.timeout)
    about = found["otherData"]
    # The other trace is read now, because its program may write it meanwhile.
    whole = found if chosen.merge is None else merged(found, read_trace(chosen.merge))
    write_trace(out, whole)
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
    if not processes:
        return complain(program, "no worker is registered, and no client reads", 1)
    return 0


def read_trace(path: str) -> Any:
    """Return the content of a trace file.

    Raises:
        ValueError: the file is no trace.
    """
    content = Path(path).read_bytes()
    if path.endswith(".gz"):
        content = gzip.decompress(content)
    found = json.loads(content)
    if not isinstance(found, dict) or not isinstance(found.get("traceEvents"), list):
        raise ValueError(
            f"{path} is no trace: a JSON object with `traceEvents` was expected, as torch's "
            "`export_chrome_trace` writes it"
        )
    return found


def write_trace(path: Path, trace: Any) -> None:
    """Write a trace, compressed if its name ends with ``.gz``."""
    content = msgspec.json.encode(trace)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
