"""Checks and types of what a user gives as an argument: for configurations, options,
datasets and the adapters of frameworks. A type that lists the words of an argument lets
a type checker find a mistyped word.

Each error names the argument, and states the received and the expected value. A check
returns the value in its normal form. What a value means belongs to the modules that use
it.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, Literal, NoReturn, TypeAlias, TypeVar, cast

from zmqdata.errors import InvalidArgumentError
from zmqdata.peeking import shown

FOREVER = -1
MOST_PORT = 65535
MOST_CHARACTERS = 1_000
"""Characters of any name that a peer gives to itself, a job or a dataset."""
MOST_COUNT = 2**53
"""Largest integer that a float represents exactly, and largest count."""
_LONGEST = 100
"""Maximum number of characters of a refused value in an error."""

T = TypeVar("T")

ProcessingMode: TypeAlias = Literal["parallel_epochs", "distributed_epoch"]
"""tf.data's words for ``ShardingPolicy.OFF`` and ``ShardingPolicy.DYNAMIC``."""
MODE_WORDS = {"OFF": "parallel_epochs", "DYNAMIC": "distributed_epoch"}
"""These words by the names of the policies."""
TargetWorkers: TypeAlias = Literal["AUTO", "ANY", "LOCAL"]
"""The workers that clients read from."""
Transport: TypeAlias = Literal["tcp", "ipc", "shm", "local"]
"""The transport of elements that a client chooses."""
WorkerTransport: TypeAlias = Literal["shm", "ipc", "tcp"]
"""The transport of elements that a worker offers, the best first."""
DeploymentMode: TypeAlias = Literal["COLOCATED", "REMOTE", "HYBRID"]
"""The place of the workers: on the hosts of the clients, elsewhere, or both."""
Compression: TypeAlias = Literal[
    "AUTO", "blosclz", "lz4", "lz4hc", "zlib", "zstd", "GZIP", "ZLIB", "SNAPPY"
]
"""``"AUTO"``, a codec of blosc, or tf.data's word for one."""
FileCompression: TypeAlias = Literal["", "GZIP", "ZLIB", "ZSTD"]
"""The compression of files to read; ``""`` for none."""
Finite: TypeAlias = Literal["drop", "pad"]
"""The fate of elements that fill no round of a coordinated read."""
OnError: TypeAlias = Literal["raise", "skip", "retry"]
"""The fate of an element whose function raises."""
SourceOnError: TypeAlias = Literal["raise", "skip"]
"""The fate of a file or record that a source cannot read."""
OnPoison: TypeAlias = Literal["fail", "skip"]
"""The fate of an element that has killed its worker repeatedly."""
OnExisting: TypeAlias = Literal["share", "new", "continue", "error"]
"""The reaction of a new run that finds the name of its job in use."""
Placement: TypeAlias = Literal["service", "auto"]
"""The place where a pipeline runs."""


def check_type(name: str, value: object, kind: type) -> None:
    """Raise if a value has another type.

    Raises:
        TypeError: the value has another type; the error names the argument, the value
            and the expected type.
    """
    if not isinstance(value, kind):
        raise TypeError(
            f"`{name}` must be {kind.__name__}, got {value!r} of type {type(value).__name__}"
        )


def check_int(name: str, value: object, least: int | None = None, most: int | None = None) -> int:
    """Return a whole number after checking its range.

    Raises:
        TypeError: the value is not a whole number. True is an int in Python, but as a
            port it is surely a mistake.
        ValueError: the number is out of the range.

    Example:
        >>> check_int("num_workers", 2, least=0)
        2
    """
    number = whole_number(value)
    if number is None:
        raise TypeError(f"`{name}` must be int, got {value!r} of type {type(value).__name__}")
    low, high = least is not None and number < least, most is not None and number > most
    if low or high:
        allowed = f"at least {least}" if low else f"at most {most}"
        if most == MOST_PORT:
            allowed = f"between {least} and {most}" + (
                " (0 means any free port)" if least == 0 else ""
            )
        elif least == FOREVER:
            allowed += " (-1 means never)"
        raise ValueError(f"`{name}` must be {allowed}, got {number}")
    return number


def check_wait(name: str, seconds: object, forever: bool = True, most: float = math.inf) -> None:
    """Raise if a value is not a time to wait in seconds. None means forever, if
    ``forever`` allows it.

    Raises:
        TypeError: the value is not a number.
        ValueError: the value is negative, NaN, or above ``most``.

    Example:
        >>> check_wait("timeout", None), check_wait("timeout", 0)
        (None, None)
    """
    if seconds is None and forever:
        return
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        expected = "a number of seconds or None" if forever else "a number of seconds"
        raise TypeError(f"`{name}` must be {expected}, got {seconds!r} of {type(seconds).__name__}")
    if not seconds >= 0:
        raise ValueError(f"`{name}` must be a number of seconds from 0 up, got {seconds!r}")
    if seconds > most:
        raise ValueError(
            f"`{name}` must be a number of seconds from 0 to {most:.0f}, got {seconds!r}"
        )


def check_text(name: str, text: str) -> str:
    """Return the same text after checking that it can be encoded as UTF-8, as every
    message is.

    Raises:
        ValueError: the text contains half of a surrogate pair.

    Example:
        >>> check_text("job_name", "Größe")
        'Größe'
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"`{name}` must be a text that UTF-8 can hold, got {text[:80]!r}: {error.reason} at "
            f"position {error.start}"
        ) from None
    return text


def check_timeout(name: str, seconds: T) -> T:
    """Return a number of seconds to wait for, after checking that it is one.

    Raises:
        ValueError: it is not a number above zero. Infinity is allowed.

    Example:
        >>> check_timeout("timeout", 0.5)
        0.5
    """
    # `not > 0` is true for NaN too. The clock counts in floats, which cannot hold a
    # larger int.
    is_number = isinstance(seconds, float) or (
        type(seconds) is int and cast(int, seconds) <= MOST_COUNT
    )
    if not is_number or not cast(float, seconds) > 0:
        raise ValueError(f"`{name}` must be a positive number of seconds, got {seconds!r}")
    return seconds


def check_name(name: str, text: str) -> None:
    """Raise an error if a text cannot be a name.

    Raises:
        ValueError: the text is empty, too long, or cannot be sent.
    """
    if not text:
        raise ValueError(f"`{name}` must not be empty")
    check_text(name, text)
    if len(text) > MOST_CHARACTERS:
        raise ValueError(
            f"`{name}` must have at most {MOST_CHARACTERS} characters, got {len(text)}: "
            f"{text[:80]!r}..."
        )


def optional_timeout(name: str, seconds: T) -> T:
    """Return a number of seconds to wait for, or None, after checking that it is one of
    these.
    """
    return seconds if seconds is None else check_timeout(name, seconds)


def optional_name(name: str, text: T) -> T:
    """Return a name or None after checking that the value is one of these."""
    if text is not None and not isinstance(text, str):
        raise ValueError(
            f"`{name}` must be a string, but `{name}` was of type {type(text)}: {text!r}"
        )
    if isinstance(text, str):
        check_name(name, text)
    return text


def check_switch(name: str, value: T) -> T:
    """Return a value after checking that it is True or False."""
    if not isinstance(value, bool):
        raise ValueError(f"`{name}` must be True or False, got {value!r}")
    return value


def word_of(words: tuple[str, ...]) -> Callable[[str, T], T]:
    """Return a check that a value is one of a few words."""
    shown = [*map(repr, words)]
    expected = " or ".join(shown) if len(shown) == 2 else f"one of {', '.join(shown)}"

    def check(name: str, value: T) -> T:
        if not isinstance(value, str) or value not in words:
            raise ValueError(f"`{name}` must be {expected}, got {value!r}")
        return value

    return check


def whole_number(value: object) -> int | None:
    """Return an integer of Python or numpy as an int, and None for any other value."""
    try:
        return None if isinstance(value, bool) else operator.index(cast(Any, value))
    except TypeError:
        return None


def plain_number(name: str, value: T) -> T | int:
    """Return an integer of numpy as one of Python, and any other value as it is."""
    number = whole_number(value)
    return value if number is None else number


def optional_count(name: str, count: object) -> int | None:
    """Return a positive integer as an int, and None for None.

    Raises:
        InvalidArgumentError: the value is neither.
    """
    number = whole_number(count)
    if count is not None and (number is None or not 1 <= number <= MOST_COUNT):
        raise InvalidArgumentError(
            f"`{name}` must be a positive integer up to 2**53, or None, got {count!r}"
        )
    return number


def refuse(name: str, value: object, expected: str) -> NoReturn:
    """Raise a TypeError that states the received and the expected value."""
    text = shown(value).split("\n")[0]
    text = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
    raise TypeError(f"{name} must be {expected}, got {text} of type {type(value).__name__}")


def integer(name: str, value: Any) -> int:
    """Return the argument as an int; integers of numpy are accepted, bools are not."""
    number = whole_number(value)
    if number is None:
        refuse(name, value, "an int")
    return number


def at_least(name: str, value: Any, least: int, most: int | None = None) -> int:
    """Return the argument as an int after checking that it is at least ``least`` and,
    if given, at most ``most``.
    """
    number = integer(name, value)
    if number < least:
        positive = ". It must be greater than zero" if least == 1 else ""
        raise InvalidArgumentError(f"{name} must be at least {least}, got {number}{positive}")
    if most is not None and number > most:
        raise InvalidArgumentError(f"{name} must be at most {most}, got {number}")
    return number


def positive(what: str, name: str, value: Any, most: int | None = None) -> int:
    """Return the argument as an int of at least 1 and, if given, at most ``most``.

    Raises:
        InvalidArgumentError: it is 0 or negative; the text says so in tf.data's words,
            of which ``what`` is the subject.
    """
    number = integer(name, value)
    if number < 1:
        raise InvalidArgumentError(
            f"{what} must be greater than zero, but got {number}: {name} must be at least 1"
        )
    return at_least(name, number, 1, most)


def optional_seed(value: Any) -> int | None:
    """Return a seed, or None if the seed is to be drawn."""
    return None if value is None else integer("seed", value)


def function(name: str, value: Any) -> Callable[..., Any]:
    """Return the argument after checking that it is callable."""
    if not callable(value):
        refuse(name, value, "callable")
    made: Callable[..., Any] = value
    return made


def optional_function(name: str, value: Any) -> Callable[..., Any] | None:
    """Return the argument after checking that it is callable or None."""
    return None if value is None else function(name, value)


def optional_size(name: str, value: Any) -> int | None:
    """Return a number of bytes, or None to let zmqdata choose it."""
    return None if value is None else at_least(name, value, 0)
