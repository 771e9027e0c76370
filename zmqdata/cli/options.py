"""Shared parts of all commands: settings as options, errors as single lines, and
standard output. No command is defined here.
"""

from __future__ import annotations

import argparse
import codecs
import io
import os
import sys
from collections.abc import Callable
from dataclasses import Field, fields
from typing import Any, NoReturn, TypeVar, cast

from zmqdata.config.settings import (
    checked,
    declaration_of,
    default_of,
    flag_of,
    from_environment,
    opposite,
    read_text,
    variable_of,
)
from zmqdata.errors import DataServiceError, DescriptorShortageError, UnavailableError
from zmqdata.machine.descriptors import is_shortage, remedy
from zmqdata.printable import printable

CANNOT_START = 2
PRECEDENCE = (
    "Each option may also be given as the environment variable that its help names; the option "
    "wins."
)

DRAWN = str.maketrans({"\u2588": "#", "\u2514": "\\", "\u2026": "~"})
"""Characters of ASCII that are drawn for those that an encoding lacks."""

T = TypeVar("T")


class Arguments(argparse.ArgumentParser):
    """A parser that reports errors as a single line, as all commands do."""

    def error(self, message: str) -> NoReturn:
        raise SystemExit(complain(self.prog, f"{message} (--help explains every option)"))


def command_parser(program: str, description: str, *kinds: type[Any]) -> Arguments:
    """Return the parser of a command, with an option for each setting of these
    configurations.
    """
    epilog = PRECEDENCE if kinds else None
    parser = Arguments(prog=program, description=description, epilog=epilog, allow_abbrev=False)
    for kind in kinds:
        add_settings(parser, kind)
    return parser


def add_settings(parser: argparse.ArgumentParser, kind: type[Any]) -> None:
    """Add an option for each setting of a configuration. Options that are not given
    leave no value, so that the environment applies.
    """
    for one in fields(kind):
        declared, flag = declaration_of(one), flag_of(one)
        default = f"default: {default_of(one)}; ${variable_of(one)}"
        meaning = f"{declared.meaning} ({default})".replace("%", "%%")
        options: dict[str, Any] = {"dest": one.name, "default": argparse.SUPPRESS, "help": meaning}
        if one.type in ("bool", "bool | None"):
            parser.add_argument(flag, action="store_true", **options)
            options["help"] = f"the opposite of {flag}"
            parser.add_argument(opposite(flag), action="store_false", **options)
            continue
        if one.type == "tuple[str, ...]":
            options |= {"action": "append"}
            options["help"] = f"{declared.meaning}; repeat it for more ({default})".replace(
                "%", "%%"
            )
        else:
            options |= {"type": text_reader(one)}
        parser.add_argument(flag, metavar=declared.metavar or "N", **options)


def text_reader(one: Field[Any]) -> Callable[[str], Any]:
    """Return a reader of an option's value for argparse, which keeps the text of a
    single error class only.
    """

    def read(text: str) -> Any:
        try:
            return checked(one, read_text(one, text))
        except (ValueError, TypeError) as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


def chosen_settings(kind: type[T], chosen: argparse.Namespace) -> T:
    """Return a configuration from the options with the names of its fields, and from
    the environment.
    """
    given = vars(chosen)
    return from_environment(
        kind, {one.name: given[one.name] for one in fields(cast(Any, kind)) if one.name in given}
    )


def check_dispatcher_named(chosen: argparse.Namespace, kind: type[Any], question: str) -> None:
    """Raise an error if neither the options nor the environment name a dispatcher."""
    [one] = [one for one in fields(kind) if one.name == "dispatcher_address"]
    if not getattr(chosen, one.name, os.environ.get(variable_of(one))):
        raise ValueError(
            f"{question} Give {flag_of(one)} tcp://HOST:PORT, or file:FILE for the file that it "
            f"writes, or set {variable_of(one)}"
        )


def guarded(program: str, command: Callable[[], int]) -> int:
    """Run a command; report errors that a user can repair as a line on standard error,
    without a traceback.
    """
    show_all_characters()
    try:
        return command()
    except UnavailableError as error:
        return complain(program, str(error), 1)
    except DescriptorShortageError as error:
        return complain(program, str(error))
    except OSError as error:
        if is_shortage(error):
            return complain(program, remedy(f"`{program}`"))
        reason = error.strerror or str(error)
        return complain(
            program, reason if error.filename is None else f"{error.filename}: {reason}"
        )
    except (DataServiceError, ValueError, TypeError) as error:
        return complain(program, str(error))


def show_all_characters() -> None:
    """Have standard output show each character that its encoding lacks by others, as
    standard error does. Names of jobs and hosts have any character.
    """
    output = sys.stdout
    if isinstance(output, io.TextIOWrapper) and output.errors in ("strict", "surrogateescape"):
        codecs.register_error("zmqdata", _spelled)
        output.reconfigure(errors="zmqdata")


def _spelled(error: UnicodeError) -> tuple[str | bytes, int]:
    """Spell what an encoding lacks: parts of drawings by ASCII, all else by escapes.

    Example:
        >>> _spelled(UnicodeEncodeError("ascii", "\u2514 \u2603", 0, 3, "lacks it"))
        ('\\\\ \\\\u2603', 3)
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end].translate(DRAWN)
    return text.encode("ascii", "backslashreplace").decode(), error.end


def complain(program: str, message: str, code: int = CANNOT_START) -> int:
    """Print a line on standard error and return the exit code."""
    print(f"{program}: {printable(' '.join(message.split()))}", file=sys.stderr, flush=True)
    return code


def say(line: str) -> None:
    """Print a line on standard output at once. A closed pipe does not stop the
    command.
    """
    _is_said(line)


def say_or_end(line: str) -> None:
    """Print a line on standard output at once. A closed pipe ends the command with the
    code 1, as it ends tables that rich prints.

    Raises:
        SystemExit: the pipe is closed.
    """
    if not _is_said(line):
        raise SystemExit(1)


def _is_said(line: str) -> bool:
    """Print a line on standard output; return False if the pipe is closed."""
    try:
        print(line, flush=True)
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - stays open until the end
        return False
    return True
