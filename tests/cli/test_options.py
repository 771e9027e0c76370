"""Tests of the parts all commands share: options from settings, and error lines."""

from __future__ import annotations

import argparse
import contextlib
import errno
import io
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from rich.console import Console

from zmqdata.cli import options
from zmqdata.config.logs import LogSettings
from zmqdata.config.settings import check_settings, setting
from zmqdata.config.worker import dispatcher_setting
from zmqdata.errors import DataServiceError, UnavailableError


@dataclass(frozen=True)
class Sample:
    """Settings of each kind that options distinguish."""

    dispatcher_address: str = dispatcher_setting()
    count: int = setting(3, "how many, in 100% of cases", least=1)
    tags: tuple[str, ...] = setting((), "which words", flag="--tag", metavar="WORD")
    loud: bool = setting(False, "whether to be heard")

    def __post_init__(self) -> None:
        check_settings(self)


def chosen(*given: str) -> Sample:
    parsed = options.command_parser("x", "Counts words.", Sample).parse_args(given)
    return options.chosen_settings(Sample, parsed)


def test_settings_become_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each setting has an option, and each switch has its opposite. Missing options
    come from the environment and the defaults.
    """
    assert chosen() == Sample()
    assert chosen("--count", "7", "--tag=a", "--tag=b", "--loud") == Sample(
        count=7, tags=("a", "b"), loud=True
    )
    monkeypatch.setenv("ZMQDATA_LOUD", "1")
    monkeypatch.setenv("ZMQDATA_COUNT", "5")
    assert chosen("--no-loud") == Sample(count=5)


def test_the_help_has_meaning_default_and_variable() -> None:
    """The help explains every option; a parser without settings mentions no
    environment.
    """
    told = " ".join(options.command_parser("x", "Counts words.", Sample).format_help().split())
    assert "how many, in 100% of cases (default: 3; $ZMQDATA_COUNT)" in told
    assert "which words; repeat it for more (default: none; $ZMQDATA_TAGS)" in told
    assert "the opposite of --loud" in told
    assert options.PRECEDENCE in told
    assert options.PRECEDENCE not in options.command_parser("x", "Counts words.").format_help()


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (["--count", "many"], "argument --count: expected a whole number, got 'many'"),
        (["--count", "0"], "argument --count: `count` must be at least 1, got 0"),
        (["--nothing"], "unrecognized arguments: --nothing"),
        # Programs that look for options, as the Helm chart does, look for whole names.
        (["--coun", "3"], "unrecognized arguments: --coun 3"),
    ],
)
def test_options_that_cannot_work_are_one_line(
    given: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An invalid option exits with 2 and a line with the command's name and its help
    option.
    """
    with pytest.raises(SystemExit) as ended:
        chosen(*given)
    assert ended.value.code == options.CANNOT_START
    assert capsys.readouterr().err == f"x: {text} (--help explains every option)\n"


def test_a_dispatcher_must_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dispatcher comes from its option or variable; the error names both."""
    with pytest.raises(
        ValueError, match=r"^who\? Give --dispatcher tcp://HOST:PORT, .* set ZMQDATA_DISPATCHER$"
    ):
        options.check_dispatcher_named(argparse.Namespace(), Sample, "who?")
    options.check_dispatcher_named(argparse.Namespace(dispatcher_address="a:1"), Sample, "who?")
    monkeypatch.setenv("ZMQDATA_DISPATCHER", "a:1")
    options.check_dispatcher_named(argparse.Namespace(), Sample, "who?")


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (UnavailableError("nobody\nanswers"), 1, "nobody answers"),
        (FileNotFoundError(errno.ENOENT, "No such file", "/x"), 2, "/x: No such file"),
        (OSError(errno.ENOSPC, "No space left"), 2, "No space left"),
        (OSError("broken"), 2, "broken"),
        (DataServiceError("refused"), 2, "refused"),
        (ValueError("wrong"), 2, "wrong"),
        (ValueError("no job \x1b[2J\x9b1m\u202e"), 2, "no job ?[2J?1m?"),
    ],
)
def test_what_a_user_can_repair_is_one_line(
    error: Exception, code: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An error becomes a line and an exit code. The code is 1 if the server does not
    answer, and 2 if the command could not start.
    """

    def fail() -> int:
        raise error

    assert options.guarded("x", fail) == code
    assert capsys.readouterr() == ("", f"x: {text}\n")


def test_other_errors_keep_their_traceback() -> None:
    """An internal error keeps its traceback, and success returns the command's code."""

    def fail() -> int:
        raise AttributeError("ours")

    with pytest.raises(AttributeError, match="ours"):
        options.guarded("x", fail)
    assert options.guarded("x", lambda: 7) == 7


def test_words_are_printed_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    """A message is printed at once as a line on standard output."""
    options.say("ready")
    assert capsys.readouterr() == ("ready\n", "")


class Broken(io.StringIO):
    """A standard output whose reader has closed the pipe."""

    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_a_reader_that_left_is_no_reason_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines written to a closed pipe are discarded without an error."""
    broken = Broken()
    monkeypatch.setattr(sys, "stdout", broken)
    options.say("a")
    nowhere = sys.stdout
    assert nowhere is not broken
    options.say("b")
    nowhere.close()


def test_a_command_ends_well_behind_a_broken_pipe(capfd: pytest.CaptureFixture[str]) -> None:
    """The interpreter exits cleanly behind a closed pipe, even at its final flush."""
    program = (
        "import os, sys; read, write = os.pipe(); os.dup2(write, 1); os.close(write); "
        "os.close(read)\n"
        "from zmqdata.cli.options import say; say('a'); say('b'); print('fine', file=sys.stderr)"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=30).returncode == 0
    assert capfd.readouterr().err == "fine\n"


def test_the_log_level_is_one_of_four() -> None:
    """The log level accepts four names in any case, which its error lists."""
    assert LogSettings("DEBUG").log_level == "debug"
    with pytest.raises(ValueError, match="'debug', 'info', 'warning', 'error', got 'loud'"):
        LogSettings("loud")


def told_in(encoding: str, tell: Callable[[], object], errors: str = "strict") -> str:
    """Return what a command prints on a terminal of an encoding."""
    terminal = io.TextIOWrapper(io.BytesIO(), encoding, errors)
    with contextlib.redirect_stdout(terminal):
        assert options.guarded("x", lambda: bool(tell())) == 0
    terminal.seek(0)
    return terminal.read()


@pytest.mark.parametrize(
    ("encoding", "told"),
    [
        ("ascii", r"z\xfcrich \u2603 #\~"),
        ("latin-1", r"zürich \u2603 #\~"),
        ("utf-8", "zürich ☃ █└…"),
    ],
)
def test_a_terminal_shows_each_character(encoding: str, told: str) -> None:
    """A drawing that an encoding lacks is replaced by ASCII, and a name by escapes."""
    assert told_in(encoding, lambda: options.say("zürich ☃ █└…")) == f"{told}\n"
    assert told_in(encoding, lambda: Console(width=40).print("zürich ☃ █└…")) == f"{told}\n"


def test_a_terminal_keeps_its_own_way() -> None:
    """A way to show what is missing that the user has chosen stays."""
    assert told_in("ascii", lambda: options.say("ü"), "replace") == "?\n"
    assert told_in("ascii", lambda: options.say("ü"), "surrogateescape") == "\\xfc\n"
