"""Settings: the fields of a configuration, each declared once with its type, default,
range and meaning.

The check at creation, the docstring, the command-line option and the environment
variable all follow from that declaration. The settings themselves and their effect on
servers belong to ``zmqdata.config.dispatcher`` and ``zmqdata.config.worker``.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, ParamSpec, TypeVar, cast

from zmqdata.config.checks import MOST_PORT, check_int, check_text, check_type
from zmqdata.files.paths import local_name
from zmqdata.recipes import meant, name_arguments_in, with_globals_of

MOST_BYTES = 2**63 - 1
MOST_MILLISECONDS = 2**31 - 1
"""Largest time that ZeroMQ accepts; 24 days."""
MOST_SECONDS = MOST_MILLISECONDS // 1000
"""The same in whole seconds."""
PREFIX = "ZMQDATA_"
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_INSIDE = (_PACKAGE, dataclasses.__file__, "<string>")
"""Beginnings of the names of files that are not the user's. The methods of dataclasses
are in no file.
"""
TRUE = frozenset({"1", "true", "yes", "on"})
FALSE = frozenset({"0", "false", "no", "off"})

T = TypeVar("T")
ResultT = TypeVar("ResultT")
Arguments = ParamSpec("Arguments")


@dataclass(frozen=True)
class Declaration:
    """The declaration of a setting, beside its name, type and default."""

    meaning: str
    """Explanation for users."""
    least: int | None = None
    """Smallest allowed number."""
    most: int | None = None
    """Largest allowed number."""
    choices: tuple[str, ...] = ()
    """Allowed words, in any case of letters."""
    flag: str = ""
    """Command-line option, if it does not follow from the name."""
    metavar: str = ""
    """Placeholder for the value, if it does not follow from the name."""
    variable: str = ""
    """Environment variable, if it does not follow from the name."""
    rival: str = ""
    """Name of another setting that contradicts this setting if both are set."""
    check: Callable[[str, Any], Any] | None = None
    """Validates and normalizes a value, given its name, if the type is not enough."""
    sent: bool = False
    """True if the parameters of a job have a field with this name and meaning."""
    unit: int = 1
    """Number of units of the value in a unit of its text: 1000 if an option of seconds
    sets a field in milliseconds.
    """


def setting(default: T, meaning: str = "", **declaration: Any) -> T:
    """Declare a setting, as a field of a frozen dataclass.

    Args:
        default: the default.
        meaning: explanation for users.
        declaration: further fields of ``Declaration``.
    """
    # Declared as the type of the default, because type checkers expect that of a field,
    # as of ``dataclasses.field``.
    metadata = {"declaration": Declaration(meaning, **declaration)}
    declared: T = field(default=default, metadata=metadata)
    return declared


def milliseconds(default: int, meaning: str, *, least: int = 1) -> int:
    """Declare a setting that is a time in milliseconds."""
    return setting(default, meaning, least=least, most=MOST_MILLISECONDS)


def declaration_of(one: Field[Any]) -> Declaration:
    """Return the declaration of a field."""
    found: Declaration = one.metadata["declaration"]
    return found


def flag_of(one: Field[Any]) -> str:
    """Return the command-line option of a setting."""
    return declaration_of(one).flag or f"--{one.name.replace('_', '-')}"


def opposite(flag: str) -> str:
    """Return the option that turns off what ``flag`` turns on.

    Example:
        >>> opposite("--fault-tolerant")
        '--no-fault-tolerant'
    """
    return f"--no-{flag.removeprefix('--')}"


def variable_of(one: Field[Any]) -> str:
    """Return the environment variable of a setting."""
    return declaration_of(one).variable or PREFIX + one.name.upper()


# --- texts


def read_text(one: Field[Any], text: str) -> Any:
    """Return the value of a text from the command line or the environment.

    Raises:
        ValueError: the text is not a valid value; the error says what was expected.
    """
    unit = declaration_of(one).unit
    return _KINDS[str(one.type)].read(text) if unit == 1 else round(_read_float(text) * unit)


def as_written(value: Any) -> str:
    """Return a value as a user writes it; ``""`` for None.

    Example:
        >>> [as_written(value) for value in (("GPU", "LAB"), (7000, 7100), True, None)]
        ['GPU,LAB', '7000-7100', 'true', '']
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ("-" if value and isinstance(value[0], int) else ",").join(map(str, value))
    return str(value)


def text_of(one: Field[Any], value: Any) -> str:
    """Return the text from which ``read_text`` reads a value of a setting."""
    unit = declaration_of(one).unit
    return as_written(value) if unit == 1 else f"{value / unit}".removesuffix(".0")


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


def warn_user(text: str) -> None:
    """Warn at the user's line, the last outside of this package and of dataclasses, so
    that a copy of a configuration does not warn again.
    """
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_INSIDE):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, stacklevel=level)


def _checked_int(name: str, value: Any, declared: Declaration) -> int:
    return check_int(name, value, declared.least, declared.most)


def _checked_float(name: str, value: Any, declared: Declaration) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"`{name}` must be a number, got {value!r} of type {type(value).__name__}")
    what = (
        "a number of seconds from 0 on" if declared.least == 0 else "a positive number of seconds"
    )
    if not (value > 0 or value == declared.least):
        raise ValueError(f"`{name}` must be {what}, got {value!r}")
    if value > MOST_SECONDS:
        raise ValueError(f"`{name}` must be {what}, at most {MOST_SECONDS}, got {value!r}")
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
            f"`{name}` must not be empty; leave it out, or set it to {declared.metavar or 'a word'}"
        )
    if declared.choices:
        chosen = [choice for choice in declared.choices if choice.lower() == value.lower()]
        if not chosen:
            raise ValueError(
                f"`{name}` must be one of {', '.join(map(repr, declared.choices))}, got {value!r}"
            )
        return chosen[0]
    if declared.metavar in ("DIR", "FILE"):
        remedy = "It needs a file system with locks and atomic renames. Give a local path"
        value = local_name(f"`{name}`", value, remedy)
    return check_text(name, str(value))


def _checked_texts(name: str, values: Any, declared: Declaration) -> tuple[str, ...]:
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise TypeError(
            f"`{name}` must be a list of strings, got {values!r}; for a single string write "
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
    """Functions that read a value of a certain type from a text, and check it."""

    read: Callable[[str], Any]
    """Converts a text to a value."""
    check: Callable[[str, Any, Declaration], Any]
    """Validates and normalizes a value."""


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
_KINDS |= {"DeploymentMode": _KINDS["str"], "WorkerTransport | None": _KINDS["str | None"]}


def checked(one: Field[Any], value: Any) -> Any:
    """Return the validated and normalized value of a setting; None means the default.

    Raises:
        TypeError: the value has another type.
        ValueError: the value is empty or out of its range.
    """
    if value is None or value is one.default:
        return one.default
    return _KINDS[str(one.type)].check(one.name, value, declaration_of(one))


def check_settings(config: Any) -> None:
    """Check every setting of a frozen configuration during its creation, and replace
    values by their normalized form.
    """
    for one in fields(config):
        object.__setattr__(config, one.name, checked(one, getattr(config, one.name)))
    of_name = {one.name: one for one in fields(config)}
    for one in fields(config):
        rival = of_name.get(declaration_of(one).rival)
        if rival and all(getattr(config, each.name) != each.default for each in (one, rival)):
            this, other = (f"`{each.name}` ({flag_of(each)})" for each in (one, rival))
            raise ValueError(
                f"{this} and {other} contradict each other. Leave out `{rival.name}` to use "
                f"`{one.name}`, or leave out `{one.name}` to use `{rival.name}`"
            )


class Settings:
    """Base of a frozen dataclass of settings that are checked each for itself."""

    def __post_init__(self) -> None:
        check_settings(self)


# --- environment and documentation


def from_environment(kind: type[T], explicit: Mapping[str, Any]) -> T:
    """Return a configuration from the given fields, else from the environment, else
    from the defaults.

    A variable counts as unset if it is empty or contradicts a given field.

    Raises:
        TypeError, ValueError: as the configuration raises them; a wrong value from the
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
            told += (
                ". Kubernetes sets this variable for a service with this name; "
                "set `enableServiceLinks: false` to keep it out of a pod"
            )
        raise type(error)(told) from None


def variables(*kinds: type) -> set[str]:
    """Return the environment variables of all settings of these configurations."""
    return {variable_of(one) for kind in kinds for one in fields(cast(Any, kind))}


def described(kind: type[T]) -> type[T]:
    """Class decorator that replaces ``{settings}`` in the docstring by the declaration
    of each setting.
    """
    lines = [f"{one.name}: {declaration_of(one).meaning}." for one in fields(cast(Any, kind))]
    # Cleaned first: Python 3.13 removes the indentation of docstrings, earlier versions
    # keep it.
    kind.__doc__ = inspect.cleandoc(kind.__doc__ or "").replace("{settings}", "\n    ".join(lines))
    name_arguments_in(kind)
    return kind


def takes(
    kind: Callable[Arguments, T],
) -> Callable[[Callable[[T], ResultT]], Callable[Arguments, ResultT]]:
    """Decorator of a function of a dataclass, which then takes its fields one by one.

    Callers, ``help`` and type checkers see the fields as arguments. The help has the
    docstring of the dataclass from *Args* on, in place of the name of the dataclass.

    Args:
        kind: the dataclass. It checks nothing at its creation.

    Example:
        >>> @dataclass
        ... class Size:
        ...     width: int = 3
        >>> @takes(Size)
        ... def drawn(size: Size) -> str:
        ...     return "#" * size.width
        >>> drawn(width=5), drawn()
        ('#####', '###')
        >>> drawn(widht=5)
        Traceback (most recent call last):
        TypeError: drawn() has no argument 'widht'. Did you mean 'width'?
    """
    signature = inspect.signature(kind)

    def decorate(function: Callable[[T], ResultT]) -> Callable[Arguments, ResultT]:
        arguments = functools.partial(_arguments, function.__name__, kind, signature)

        def called(*given: Any, **named: Any) -> ResultT:
            return function(arguments(given, named))

        made: Any = with_globals_of(function, called)
        returned = inspect.signature(function).return_annotation
        made.__signature__ = signature.replace(return_annotation=returned)
        made.__annotations__ = {
            **{one.name: one.annotation for one in signature.parameters.values()},
            "return": returned,
        }
        document, meanings = (inspect.cleandoc(one.__doc__ or "") for one in (function, kind))
        explained = meanings.partition("Args:\n")[2]
        made.__doc__ = document.replace(f"    See ``{kind.__name__}``.", explained)
        return cast(Callable[Arguments, ResultT], made)

    return decorate


def _arguments(
    name: str,
    kind: Callable[..., T],
    signature: inspect.Signature,
    given: tuple[Any, ...],
    named: dict[str, Any],
) -> T:
    """Return the arguments of a call as one object.

    Raises:
        TypeError: the call does not fit the signature. The error names the argument
            that is meant.
    """
    for unknown in named.keys() - signature.parameters.keys():
        told = meant(unknown, [*signature.parameters])
        raise TypeError(f"{name}() has no argument {unknown!r}. {told}")
    try:
        signature.bind(*given, **named)
    except TypeError as error:
        raise TypeError(f"{name}(): {error}") from None
    return kind(*given, **named)


def default_of(one: Field[Any]) -> str:
    """Return the default of a setting in words, for users."""
    assert one.default is not MISSING
    return text_of(one, one.default) or "none"
