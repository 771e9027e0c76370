"""What all tests share: fixed hypothesis settings for CI, and how they are collected
and reported.

Fakes and servers live in ``zmqdata.testing``, not here.
"""

from __future__ import annotations

import atexit
import faulthandler
import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from zmqdata.dataset.seeds import _seeds
from zmqdata.transport import keychoice

settings.register_profile(
    "ci", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("local", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "local")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Of what a shell runs in the background, and so of all that tests start: none of it
    # would see a Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)


_terminal = 2


def pytest_configure(config: pytest.Config) -> None:
    """Notes where the terminal is, while nothing is captured; gives all tests a key
    that is not the user's.
    """
    begin_elsewhere(config)
    global _terminal
    _terminal = os.dup(2)
    if (
        "ZMQDATA_TEST_CONFIG" not in os.environ
    ):  # the processes that share the work have that of their parent
        folder = os.environ["ZMQDATA_TEST_CONFIG"] = tempfile.mkdtemp(prefix="zmqdata-test-config-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ["XDG_CONFIG_HOME"] = os.environ["ZMQDATA_TEST_CONFIG"]
    keychoice.own_key()


def begin_elsewhere(config: pytest.Config) -> None:
    """Has each of several processes begin its collection with another part of the
    tests.

    Compiling a module takes most of its collection. The first process that reaches a
    module stores its bytecode, and the others load that.
    """
    place: dict[str, Any] | None = getattr(config, "workerinput", None)
    if place is None or config.args_source is not config.ArgsSource.TESTPATHS:
        return
    entries = sorted(
        str(path)
        for path in Path(__file__).parent.iterdir()
        if path.name.startswith("test_") or (path.is_dir() and not path.name.startswith("_"))
    )
    first = len(entries) * int(place["workerid"].removeprefix("gw")) // place["workercount"]
    config.args = entries[first:] + entries[:first]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds ``--full``."""
    parser.addoption(
        "--full", action="store_true", help="also run the tests marked full (make test-full)"
    )


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None, None, None]:
    """Puts the tests in the order of their files, which processes may collect in
    different orders; leaves tests marked ``full`` out, unless they are asked for.

    In the end, when they have been shuffled, those that wait come first.
    """
    items.sort(key=lambda item: item.nodeid.partition("::")[0])
    if not config.getoption("--full"):
        config.hook.pytest_deselected(
            items=[item for item in items if item.get_closest_marker("full")]
        )
        items[:] = [item for item in items if not item.get_closest_marker("full")]
    yield
    place: dict[str, Any] | None = getattr(config, "workerinput", None)
    if place is not None:
        items[:] = slow_first(items, place["workercount"])


def slow_first(items: Sequence[pytest.Item], processes: int) -> list[pytest.Item]:
    """Return the tests so that each process begins with its share of the slow ones.

    pytest-xdist hands each process one part of the list, and moves the ends of parts to
    processes that have no more to do. A slow test at an end would keep one core busy.
    """
    slow = [item for item in items if is_slow(item)]
    quick = [item for item in items if not is_slow(item)]
    return [
        item
        for process in range(processes)
        for group in (slow, quick)
        for item in group[
            len(group) * process // processes : len(group) * (process + 1) // processes
        ]
    ]


def is_slow(item: pytest.Item) -> bool:
    """Return True if a test starts processes, which it then waits for."""
    return any(item.get_closest_marker(name) for name in ("realprocess", "netns"))


def pytest_collection_finish() -> None:
    """Takes what was imported and collected out of the garbage collector's sight: it
    stays, and there is a lot of it.

    A full collection takes milliseconds then instead of half a second, in this process
    and in those forked from it.
    """
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Prints where all threads are just before a test takes too long, which ends its
    process without another word.
    """
    marker = item.get_closest_marker("timeout")
    seconds = float(marker.args[0] if marker else item.config.getini("timeout"))
    if seconds > 2:  # 0: it may take as long as it likes
        faulthandler.dump_traceback_later(seconds - 2, file=_terminal)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """Takes back what a test has set for the whole process, the seed and the key that
    it shows: others follow these.
    """
    seeds, chosen = vars(_seeds).copy(), keychoice._chosen
    try:
        return (yield)
    finally:
        vars(_seeds).update(seeds)
        keychoice._chosen = chosen


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Escapes what UTF-8 cannot hold in captured text, as reports travel when tests run
    in several processes.
    """
    report = yield
    report.sections = [
        (name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections
    ]
    return report
