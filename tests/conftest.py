"""Configuration of all tests: fixed hypothesis settings for CI, collection and reports.

Fakes and servers live in ``zmqdata.testing`` and ``tests.kit``, not here.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import fcntl
import functools
import gc
import importlib
import logging
import os
import shutil
import signal
import tempfile
import warnings
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.counts import choose, how_many
from zmqdata.dataset.seeds import _seeds
from zmqdata.transport import keychoice

settings.register_profile(
    "ci", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("local", deadline=None)
settings.register_profile("few", settings.get_profile("ci"), max_examples=20)
settings.load_profile("ci" if os.environ.get("CI") else "local")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell's background processes ignore SIGINT, and tests' children inherit that.
    # Without this line none of them would react to Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)


_terminal = 2


def pytest_configure(config: pytest.Config) -> None:
    """Remember the terminal before output is captured, and give all tests a private
    key. The key is not the user's.
    """
    begin_elsewhere(config)
    if config.getoption("--cov-context", None):
        import_measured()
    choose(config.getoption("--full"))
    settings.register_profile("counted", settings.default, max_examples=how_many(30, 100))
    settings.load_profile("counted")
    global _terminal
    _terminal = os.dup(2)
    if (
        "ZMQDATA_TEST_CONFIG" not in os.environ
    ):  # worker processes of the run inherit their parent's key
        folder = os.environ["ZMQDATA_TEST_CONFIG"] = tempfile.mkdtemp(prefix="zmqdata-test-config-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ["XDG_CONFIG_HOME"] = os.environ["ZMQDATA_TEST_CONFIG"]
    keychoice.own_key()


def import_measured() -> None:
    """Import what ``make coverage`` measures. A module that a test imports first would
    count as covered by that test alone.
    """
    from tools.own_coverage import pure_modules

    for module in pure_modules():
        importlib.import_module(f"zmqdata.{module[:-3].replace('/', '.')}")


def begin_elsewhere(config: pytest.Config) -> None:
    """Make each of several processes begin its collection with another part of the
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
    """Add ``--full``."""
    parser.addoption(
        "--full", action="store_true", help="also run the tests marked full (make test-full)"
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Stop the garbage collector while tests are collected: what is made then stays
    until the end.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Keep the other processes of a run from doing the same at the same time."""
    with Path(os.environ["ZMQDATA_TEST_CONFIG"], "turn").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None, None, None]:
    """Sort the tests by file, and deselect tests marked ``full`` unless they are
    requested.

    Processes may collect files in different orders, hence the sorting. After the
    shuffle, tests that start processes move to the front.
    """
    items.sort(key=lambda item: item.nodeid.partition("::")[0])
    for item in items:
        if is_tidy(item.path):
            item.add_marker(pytest.mark.filterwarnings(*LEFTOVERS))
    if not config.getoption("--full"):
        config.hook.pytest_deselected(
            items=[item for item in items if item.get_closest_marker("full")]
        )
        items[:] = [item for item in items if not item.get_closest_marker("full")]
    # Hypothesis parses all modules for constants. The first process stores what it
    # finds, and the others load that.
    with one_at_a_time():
        yield
    place: dict[str, Any] | None = getattr(config, "workerinput", None)
    if place is not None:
        items[:] = slow_first(items, place["workercount"])


TIDY = frozenset(
    {
        "cli",
        "client",
        "cluster",
        "dataset",
        "dispatcher",
        "failures",
        "hostile",
        "iterators",
        "metrics",
        "processes",
        "service",
        "storage",
        "transport",
        "worker",
    }
)
"""Folders whose tests must leave no socket and no file to the garbage collector."""
LEFTOVERS = (
    # The collector warns of what is left to it, and cannot raise.
    "error::pytest.PytestUnraisableExceptionWarning",
    "error::ResourceWarning",
    # Of pyzmq: a context that is destroyed closes its sockets; nothing is left.
    "ignore:Destroying context with unclosed:ResourceWarning",
)


@functools.cache
def is_tidy(path: Path) -> bool:
    """Return True for a file of the folders ``TIDY``."""
    return path.relative_to(Path(__file__).parent).parts[0] in TIDY


def slow_first(items: Sequence[pytest.Item], processes: int) -> list[pytest.Item]:
    """Return the tests in an order that starts each process with its share of slow
    tests.

    pytest-xdist gives each process a part of the list, and moves the ends of parts to
    idle processes. A slow test at an end would keep a single core busy.
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
    """Return True if a test starts processes and waits for them."""
    return any(item.get_closest_marker(name) for name in ("realprocess", "netns"))


def pytest_collection_finish() -> None:
    """Hide everything imported and collected so far from the garbage collector.

    These objects stay until the end. A full collection then takes milliseconds instead
    of half a second, also in forked processes.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def collected(request: pytest.FixtureRequest) -> Iterator[None]:
    """Collect the garbage of a module of ``TIDY``, so that its last test fails if a
    socket or a file was left to the collector. What other modules left goes first.

    The objects that live on are hidden from the collector. Thousands of tests leave
    some each, and the collector would look at all of them again and again.
    """
    if not is_tidy(request.path):
        yield
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
    gc.freeze()
    yield
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Print the stacks of all threads shortly before a test times out. The timeout ends
    its process without further output.
    """
    marker = item.get_closest_marker("timeout")
    seconds = float(marker.args[0] if marker else item.config.getini("timeout"))
    if seconds > 2:  # 0: the test has no timeout
        faulthandler.dump_traceback_later(seconds - 2, file=_terminal)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """Restore the process-wide seed and key after a test."""
    seeds, chosen = vars(_seeds).copy(), keychoice._chosen
    try:
        return (yield)
    finally:
        vars(_seeds).update(seeds)
        keychoice._chosen = chosen


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a test that leaves its own handler of SIGINT or the level of a logger
    behind. Ctrl-C would not reach the tests that follow in this process, and lines that
    they await would be silenced.
    """
    try:
        return (yield)
    finally:
        left = signal.signal(signal.SIGINT, signal.default_int_handler)
        if left is not signal.default_int_handler:
            pytest.fail(f"{item.nodeid} left {left} as the handler of SIGINT; restore it")
        for logger in [*logging.Logger.manager.loggerDict.values()]:
            if isinstance(logger, logging.Logger) and logger.level and is_own(logger):
                level = logger.level
                logger.setLevel(logging.NOTSET)
                pytest.fail(f"{item.nodeid} left level {level} at {logger}; restore it")


def is_own(logger: logging.Logger) -> bool:
    """Return True for a logger of the package."""
    return logger.name.partition(".")[0] == "zmqdata"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Escape text that UTF-8 cannot encode in captured output. Reports cross processes
    when several run the tests.
    """
    report = yield
    report.sections = [
        (name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections
    ]
    return report
