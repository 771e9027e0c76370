"""Settings: the fields of a configuration, each declared once with its type, default,
range and meaning.

From that declaration follow the check at creation, the docstring, the command-line
option and the environment variable. What a setting means to a server is not known here;
which settings there are is said by ``zmqdata.config.dispatcher``.
"""

from __future__ import annotations

import inspect
import operator
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, TypeVar, cast

FOREVER = -1
MOST_PORT = 65535
MOST_BYTES = 2**63 - 1
MOST_MILLISECONDS = 2**31 - 1
"""What ZeroMQ takes for a time; 24 days."""
PREFIX = "ZMQDATA_"
TRUE = frozenset({"1", "true", "yes", "on"})
FALSE = frozenset({"0", "false", "no", "off"})

T = TypeVar("T")


@dataclass(frozen=True)
class Declaration:
    """What is said of a setting beside its name, type and default.

    ``least`` and ``most``: the range of a number; ``choices``: the words allowed,
    whatever their case; ``flag``, ``metavar`` and ``variable``: option, placeholder and
    environment variable where they do not follow from the name; ``rival``: another
    setting of the configuration, which contradicts this one where both are set.
    """

    meaning: str
    least: int | None = None
    most: int | None = None
    choices: tuple[str, ...] = ()
    flag: str = ""
    metavar: str = ""
    variable: str = ""
    rival: str = ""


def setting(
    default: T,
    meaning: str,
    *,
    least: int | None = None,
    most: int | None = None,
    choices: tuple[str, ...] = (),
    flag: str = "",
    metavar: str = "",
    variable: str = "",
    rival: str = "",
) -> T:
    """Declares a setting, as a field of a frozen dataclass; the arguments are those of
    ``Declaration``.
    """
    declaration = Declaration(meaning, least, most, choices, flag, metavar, variable, rival)
    # To the type checker a field is its default, as it is for ``dataclasses.field``.
    declared: T = field(default=default, metadata={"declaration": declaration})
    return declared


def milliseconds(default: int, meaning: str, *, least: int = 1) -> int:
    """Declares a setting that is a time in milliseconds."""
    return setting(default, meaning, least=least, most=MOST_MILLISECONDS)


def declaration_of(one: Field[Any]) -> Declaration:
    """What was declared of a field."""
    found: Declaration = one.metadata["declaration"]
    return found


def flag_of(one: Field[Any]) -> str:
    """The command-line option of a setting."""
    return declaration_of(one).flag or f"--{one.name.replace('_', '-')}"


def opposite(flag: str) -> str:
    """The option that turns off what ``flag`` turns on.

    Example:
        >>> opposite("--fault-tolerant")
        '--no-fault-tolerant'
    """
    return f"--no-{flag.removeprefix('--')}"


def variable_of(one: Field[Any]) -> str:
    """The environment variable of a setting."""
    return declaration_of(one).variable or PREFIX + one.name.upper()


# --- texts


def read_text(one: Field[Any], text: str) -> Any:
    """The value that a text stands for on the command line and in the environment.

    Raises:
        ValueError: it stands for none; the text says what was expected.
    """
    return _KINDS[str(one.type)].read(text)


def shown(value: Any) -> str:
    """A value as a person writes it; ``""`` for none.

    Example:
        >>> shown(("GPU", "LAB")), shown((7000, 7100)), shown(True), shown(None)
        ('GPU,LAB', '7000-7100', 'true', '')
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ("-" if value and isinstance(value[0], int) else ",").join(map(str, value))
    return str(value)


def _read_int(text: str) -> int:
    if not re.fullmatch(r"\s*[+-]?[0-9][0-9_]*\s*", text):
        raise ValueError(f"expected a whole number, got {text!r}")
    return int(text.replace("_", ""))


def _read_float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"expected a number, got {text!r}") from None


def _read_bool(text: str) -> bool:
    word = text.strip().lower()
    if word not in TRUE | FALSE:
        raise ValueError(f"expected 1, 0, true or false, got {text!r}")
    return word in TRUE


def _read_list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(","))


def _read_range(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"\s*([0-9]{1,5})(?:-([0-9]{1,5}))?\s*", text)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= first <= last <= MOST_PORT:
        raise ValueError(
            f"expected a range of ports such as 7000-7100, between 1 and 65535, got {text!r}"
        )
    return first, last


# --- checks


def check_type(name: str, value: object, kind: type) -> None:
    """Refuses a value of another type.

    Raises:
        TypeError: naming the argument, what came and what was expected.
    """
    if not isinstance(value, kind):
        raise TypeError(
            f"`{name}` must be {kind.__name__}, got {value!r} of type {type(value).__name__}"
        )


def check_int(name: str, value: object, least: int | None = None, most: int | None = None) -> int:
    """A whole number in its range.

    Raises:
        TypeError: it is no whole number. True is an int to Python, and nobody means a
            port by it.
        ValueError: it is out of the range.

    Example:
        >>> check_int("num_workers", 2, least=0)
        2
    """
    try:
        number = operator.index(cast(Any, value))
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
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


def check_wait(name: str, seconds: object, forever: bool = True) -> None:
    """Refuses what is no time to wait, in seconds; None means for ever, where that is
    allowed.

    Raises:
        TypeError: it is no number.
        ValueError: it is below zero, or not a number at all (NaN).

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


def check_text(name: str, text: str) -> str:
    """The same text, if it can be written as UTF-8, as all messages are.

    Raises:
        ValueError: it has half of a surrogate pair in it.

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


def _checked_int(name: str, value: Any, declared: Declaration) -> int:
    return check_int(name, value, declared.least, declared.most)


def _checked_float(name: str, value: Any, declared: Declaration) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"`{name}` must be a number, got {value!r} of type {type(value).__name__}")
    if not value > 0:
        raise ValueError(f"`{name}` must be a positive number of seconds, got {value!r}")
    return float(value)


def _checked_bool(name: str, value: Any, declared: Declaration) -> bool:
    check_type(name, value, bool)
    return bool(value)


def _checked_str(name: str, value: Any, declared: Declaration) -> str:
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    check_type(name, value, str)
    if not value:
        raise ValueError(
            f"`{name}` must not be empty; leave it out, or say {declared.metavar or 'a word'}"
        )
    if declared.choices:
        found = [choice for choice in declared.choices if choice.lower() == value.lower()]
        if not found:
            raise ValueError(
                f"`{name}` must be one of {', '.join(map(repr, declared.choices))}, got {value!r}"
            )
        return found[0]
    return check_text(name, str(value))


def _checked_texts(name: str, values: Any, declared: Declaration) -> tuple[str, ...]:
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise TypeError(
            f"`{name}` must be a list of strings, got {values!r}; for a single one write "
            f"[{values!r}]"
        )
    kept = tuple(values)
    for value in kept:
        check_type(f"{name} entry", value, str)
        check_text(name, value)
    return kept


def _checked_ports(name: str, ports: Any, declared: Declaration) -> tuple[int, int]:
    if not isinstance(ports, (tuple, list)) or len(ports) != 2:
        raise TypeError(f"`{name}` must be a pair (first, last), got {ports!r}")
    first, last = (check_int(name, port, 1, MOST_PORT) for port in ports)
    if last < first:
        raise ValueError(
            f"`{name}` must be (first, last) with first <= last, got ({first}, {last})"
        )
    return first, last


@dataclass(frozen=True)
class _Kind:
    """How values of one type are read from a text, and checked."""

    read: Callable[[str], Any]
    check: Callable[[str, Any, Declaration], Any]


_KINDS = {
    "int": _Kind(_read_int, _checked_int),
    "int | None": _Kind(_read_int, _checked_int),
    "float": _Kind(_read_float, _checked_float),
    "bool": _Kind(_read_bool, _checked_bool),
    "bool | None": _Kind(_read_bool, _checked_bool),
    "str": _Kind(str, _checked_str),
    "str | None": _Kind(str, _checked_str),
    "tuple[str, ...]": _Kind(_read_list, _checked_texts),
    "tuple[int, int] | None": _Kind(_read_range, _checked_ports),
}


def checked(one: Field[Any], value: Any) -> Any:
    """A setting's value in its final form; None stands for the default.

    Raises:
        TypeError: it has another type.
        ValueError: it is empty or out of its range.
    """
    if value is None or value is one.default:
        return one.default
    return _KINDS[str(one.type)].check(one.name, value, declaration_of(one))


def check_settings(config: Any) -> None:
    """Checks every setting of a frozen configuration that is being made, and puts its
    final form in place.
    """
    for one in fields(config):
        object.__setattr__(config, one.name, checked(one, getattr(config, one.name)))
    of_name = {one.name: one for one in fields(config)}
    for one in fields(config):
        rival = of_name.get(declaration_of(one).rival)
        if rival and all(getattr(config, each.name) != each.default for each in (one, rival)):
            this, other = (f"`{each.name}` ({flag_of(each)})" for each in (one, rival))
            raise ValueError(
                f"{this} and {other} contradict each other: leave out `{rival.name}` to have "
                f"`{one.name}` count, or "
                f"`{one.name}` to have `{rival.name}` count"
            )


# --- environment and documentation


def from_environment(kind: type[T], explicit: Mapping[str, Any]) -> T:
    """A configuration from what is given, else from the environment, else from the
    defaults.

    A variable that is empty counts as not set, and so does one that contradicts what is
    given.

    Raises:
        TypeError, ValueError: as the configuration raises them; what comes from the
            environment is named.
    """
    found: dict[str, Any] = {}
    variables: dict[str, str] = {}
    declared = fields(cast(Any, kind))
    chosen = {
        one.name
        for one in declared
        if explicit.get(one.name, one.default) not in (None, one.default)
    }
    beaten = {declaration_of(one).rival for one in declared if one.name in chosen}
    beaten |= {one.name for one in declared if declaration_of(one).rival in chosen}
    for one in declared:
        variable = variable_of(one)
        text = os.environ.get(variable, "")
        if text and one.name not in explicit and one.name not in beaten:
            found[one.name] = _read_variable(one, variable, text)
            variables[one.name] = f"{variable}={text}"
    try:
        return kind(**{**found, **explicit})
    except (TypeError, ValueError, RuntimeError, LookupError) as error:
        guilty = [said for name, said in variables.items() if re.search(rf"\b{name}\b", str(error))]
        if not guilty:
            raise
        raise type(error)(f"{error} (the environment has {', '.join(guilty)})") from None


def _read_variable(one: Field[Any], variable: str, text: str) -> Any:
    try:
        return checked(one, read_text(one, text))
    except ValueError as error:
        told = f"The environment variable {variable}={text} is wrong: {error}"
        if variable.endswith("_PORT") and "://" in text:
            told += ". Kubernetes sets it for a service of this name; `enableServiceLinks: false` keeps it out of a pod"
        raise type(error)(told) from None


def variables(*kinds: type) -> set[str]:
    """The environment variables of all settings of these configurations."""
    return {variable_of(one) for kind in kinds for one in fields(cast(Any, kind))}


def described(kind: type[T]) -> type[T]:
    """Decorator: puts what was declared of each setting in the place of ``{settings}``
    in the class's docstring.
    """
    lines = [f"{one.name}: {declaration_of(one).meaning}." for one in fields(cast(Any, kind))]
    # Cleaned first: Python 3.13 takes the indentation of docstrings away, those before
    # it leave it.
    kind.__doc__ = inspect.cleandoc(kind.__doc__ or "").replace("{settings}", "\n    ".join(lines))
    return kind


def default_of(one: Field[Any]) -> str:
    """The default of a setting in words, for people."""
    assert one.default is not MISSING
    return shown(one.default) or "none"
