"""The commands that show a cluster as a page: in a browser, and as a file."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import closing

from zmqdata.cli.asking import DispatcherSettings, check_host, opened
from zmqdata.cli.options import command_parser, complain, guarded, say
from zmqdata.config.checks import check_wait
from zmqdata.config.dashboard import DashboardSettings
from zmqdata.config.keys import KeySettings
from zmqdata.config.settings import MOST_SECONDS
from zmqdata.worker.processes.lifetime import StopSignals

REPORT_SECONDS = 5.0
"""Default number of seconds that a report watches."""


def dashboard_main(arguments: Sequence[str], program: str = "zmqdata dashboard") -> int:
    """Serve the page until SIGTERM or SIGINT; return the exit code."""
    chosen = command_parser(
        program,
        "Shows the verdict, pipelines, workers, training loops and events of a dispatcher in a "
        "browser, live. The page only reads. Prints its address when it is ready.",
        DashboardSettings,
        KeySettings,
    ).parse_args(arguments)
    return guarded(program, lambda: serve_dashboard(chosen))


def serve_dashboard(chosen: argparse.Namespace) -> int:
    """Start the page, print its address, and wait for a signal."""
    settings = opened(DashboardSettings, chosen)
    check_host(settings.dispatcher_address)
    from zmqdata.dashboard.server import DashboardServer

    with closing(StopSignals()) as stop, DashboardServer(settings) as server:
        say(f"zmqdata dashboard at {server.link}")
        while not stop.wait(None):
            pass
    return 0


def report_main(arguments: Sequence[str], program: str = "zmqdata report") -> int:
    """Write the page as a file; return the exit code, 1 if the dispatcher does not
    answer.
    """
    parser = command_parser(
        program,
        "Writes what `zmqdata dashboard` shows as one HTML file for a bug report. It needs no "
        "network, and contains no ids, keys or configuration. It contains names of jobs, hosts "
        "and functions.",
        DispatcherSettings,
        KeySettings,
    )
    parser.add_argument("file", metavar="FILE.html", help="the file to write")
    parser.add_argument(
        "--seconds",
        type=float,
        default=REPORT_SECONDS,
        metavar="S",
        help=f"how long to watch for the plots, in seconds (default: {REPORT_SECONDS:g})",
    )
    chosen = parser.parse_args(arguments)
    return guarded(program, lambda: make_report(chosen, program))


def make_report(chosen: argparse.Namespace, program: str) -> int:
    """Watch the dispatcher for some seconds and write the file."""
    wanted = opened(DispatcherSettings, chosen)
    check_host(wanted.dispatcher_address)
    check_wait("--seconds", chosen.seconds, forever=False, most=MOST_SECONDS)
    from zmqdata.dashboard.report import write_report

    trouble = write_report(wanted.dispatcher_address, chosen.file, chosen.seconds)
    say(f"wrote {chosen.file}")
    if trouble:
        text = f"{chosen.file} ends early, because the dispatcher stopped answering. {trouble}"
        return complain(program, text, 1)
    return 0
