"""What all commands share: options from settings, and errors that are one line."""

from __future__ import annotations

import argparse
import errno
import io
import subprocess
import sys
from dataclasses import dataclass

import pytest

from zmqdata.cli import options
from zmqdata.config.settings import check_settings, setting
from zmqdata.config.worker import dispatcher_setting
from zmqdata.errors import DataServiceError, UnavailableError


@dataclass(frozen=True)
class Sample:
    """A setting of each kind that options tell apart."""

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
    """Each setting has an option, a switch its opposite too; what is not given comes
    from environment and defaults.
    """
    assert chosen() == Sample()
    assert chosen("--count", "7", "--tag=a", "--tag=b", "--loud") == Sample(
        count=7, tags=("a", "b"), loud=True
    )
    monkeypatch.setenv("ZMQDATA_LOUD", "1")
    monkeypatch.setenv("ZMQDATA_COUNT", "5")
    assert chosen("--no-loud") == Sample(count=5)


def test_the_help_has_meaning_default_and_variable() -> None:
    """Every option is explained; a parser without settings speaks of no environment."""
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
    ],
)
def test_options_that_cannot_work_are_one_line(
    given: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command ends with 2, the one line begins with its name and says where to read
    more.
    """
    with pytest.raises(SystemExit) as ended:
        chosen(*given)
    assert ended.value.code == options.CANNOT_START
    assert capsys.readouterr().err == f"x: {text} (--help explains every option)\n"


def test_a_dispatcher_must_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the option or the variable; else both are told."""
    with pytest.raises(
        ValueError, match=r"^who\? Give --dispatcher tcp://HOST:PORT or set ZMQDATA_DISPATCHER$"
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
        (OSError(errno.EMFILE, "Too many open files"), 2, "Too many open files"),
        (OSError("broken"), 2, "broken"),
        (DataServiceError("refused"), 2, "refused"),
        (ValueError("wrong"), 2, "wrong"),
        (ValueError("no job \x1b[2J\x9b1m\u202e"), 2, "no job ?[2J?1m?"),
    ],
)
def test_what_a_user_can_repair_is_one_line(
    error: Exception, code: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An error becomes a line and an exit code: 1 where nobody answers, 2 where the
    command could not start.
    """

    def fail() -> int:
        raise error

    assert options.guarded("x", fail) == code
    assert capsys.readouterr() == ("", f"x: {text}\n")


def test_other_errors_keep_their_traceback() -> None:
    """A mistake of ours is not made to look like one of the user; what goes well gives
    its own code.
    """

    def fail() -> int:
        raise AttributeError("ours")

    with pytest.raises(AttributeError, match="ours"):
        options.guarded("x", fail)
    assert options.guarded("x", lambda: 7) == 7


def test_words_are_printed_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    """What is said is a line on standard output."""
    options.say("ready")
    assert capsys.readouterr() == ("ready\n", "")


class Broken(io.StringIO):
    """A standard output whose reader has left."""

    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_a_reader_that_left_is_no_reason_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a pipe that nobody reads any more, lines go nowhere and raise nothing."""
    broken = Broken()
    monkeypatch.setattr(sys, "stdout", broken)
    options.say("a")
    nowhere = sys.stdout
    assert nowhere is not broken
    options.say("b")
    nowhere.close()


def test_a_command_ends_well_behind_a_broken_pipe(capfd: pytest.CaptureFixture[str]) -> None:
    """Not even its last breath, when the interpreter empties standard output, is an
    error.
    """
    program = (
        "import os, sys; read, write = os.pipe(); os.dup2(write, 1); os.close(write); "
        "os.close(read)\n"
        "from zmqdata.cli.options import say; say('a'); say('b'); print('fine', file=sys.stderr)"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=30).returncode == 0
    assert capfd.readouterr().err == "fine\n"


def test_the_log_level_is_one_of_four() -> None:
    """Whatever its case; anything else is refused with the four."""
    assert options.LogSettings("DEBUG").log_level == "debug"
    with pytest.raises(ValueError, match="'debug', 'info', 'warning', 'error', got 'loud'"):
        options.LogSettings("loud")
