"""Tests of exceptions described by plain values and rebuilt from them."""

from __future__ import annotations

import enum
import json
import sys
import traceback
import types
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zmqdata.dataset import Dataset
from zmqdata.errors import NotFoundError, PipelineError
from zmqdata.failures.exceptions import (
    MAX_ARG_CHARS,
    MAX_ARGS,
    MAX_TRACEBACK_CHARS,
    RemoteError,
    RemoteException,
    describe_exception,
    formatted,
    rebuild_exception,
)


class BadRecordError(Exception):
    """A class whose constructor takes other arguments than it stores in ``args``."""

    calls = 0

    def __init__(self, path: str) -> None:
        type(self).calls += 1
        super().__init__(f"bad record in {path}")
        self.path = path


class NeedsStateError(BadRecordError):
    def __str__(self) -> str:
        return self.path


class CustomNewError(Exception):
    def __new__(cls, *args: Any) -> CustomNewError:
        raise AssertionError("must not run")


class Outer:
    class InnerError(ValueError):
        pass


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


def there_and_back(error: BaseException) -> Exception:
    sent = msgspec.msgpack.encode(describe_exception(raised(error)))
    return rebuild_exception(msgspec.msgpack.decode(sent, type=RemoteError))


@pytest.mark.parametrize(
    "error",
    [
        ValueError("bad", 3),
        KeyError("name"),
        ZeroDivisionError(),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
        NotFoundError("no such job"),
        Outer.InnerError("inside"),
        RuntimeError(None, True, 1.5, b"x"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_known_class_comes_back_as_itself(error: Exception) -> None:
    """Built-in and imported classes are rebuilt with their plain arguments."""
    got = there_and_back(error)
    assert type(got) is type(error)
    assert (got.args, str(got)) == (error.args, str(error))


def test_an_os_error_keeps_its_file_name() -> None:
    """An OSError keeps its file name, although it is not part of ``args``."""
    got = there_and_back(FileNotFoundError(2, "No such file or directory", "train.rec"))
    assert isinstance(got, FileNotFoundError)
    assert (got.filename, got.errno) == ("train.rec", 2)


def test_a_constructor_written_in_python_is_not_called() -> None:
    """A class with a constructor in Python is rebuilt without calling it."""
    error = BadRecordError("a.rec")
    calls = BadRecordError.calls
    got = there_and_back(error)
    assert type(got) is BadRecordError
    assert str(got) == "bad record in a.rec"
    assert BadRecordError.calls == calls


@pytest.mark.parametrize(
    ("kind", "args"),
    [
        ("builtins.KeyboardInterrupt", ()),
        ("builtins.SystemExit", (1,)),
        ("builtins.GeneratorExit", ()),
        ("builtins.StopIteration", (1,)),
        ("builtins.StopAsyncIteration", ()),
        ("builtins.int", (1,)),
        ("builtins.eval", ("1/0",)),
        ("builtins.missing", ()),
        ("os.system", ("false",)),
        ("nowhere.Lost", ("x",)),
        ("Lost", ()),
        ("", ()),
        ("..", ()),
        ("builtins.ValueError.args", ()),
        ("builtins.UnicodeDecodeError", ("too few",)),
        (f"{__name__}.NeedsStateError", ("x",)),
        (f"{__name__}.CustomNewError", ()),
    ],
)
def test_what_cannot_or_must_not_be_made_gets_a_stand_in(kind: str, args: tuple[Any, ...]) -> None:
    """A class that must not or cannot be rebuilt becomes a RemoteException. The test
    covers exits, ends of iteration, non-exceptions, unknown classes and failing
    constructors.
    """
    got = rebuild_exception(RemoteError(kind, args))
    assert isinstance(got, RemoteException)
    assert isinstance(got, RuntimeError)
    assert (got.kind, got.args) == (kind, args)


def test_arguments_that_are_not_plain_are_refused() -> None:
    """A peer's containers are rejected as arguments of an exception."""
    sent = msgspec.msgpack.encode({"kind": "builtins.ValueError", "args": [[1]]})
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(sent, type=RemoteError)


def test_a_class_that_makes_something_else_gets_a_stand_in() -> None:
    """A class whose constructor returns another class becomes a RemoteException.
    OSError, for example, selects a subclass by its number.
    """
    assert (
        type(rebuild_exception(RemoteError("builtins.OSError", (2, "gone")))).__name__ == "OSError"
    )


def test_a_stand_in_shows_the_name_of_the_class() -> None:
    """Tracebacks and reprs of a RemoteException show the original class name."""
    got = rebuild_exception(RemoteError("their.module.OddError", ("bad",)))
    assert repr(got) == "OddError('bad')"
    assert type(got).__module__ == "their.module"


def test_looking_for_a_class_imports_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lookup of a class imports no module and calls no module's ``__getattr__``."""
    lazy = types.ModuleType("lazy_module")
    lazy.__getattr__ = lambda name: pytest.fail(name)  # type: ignore[method-assign]
    monkeypatch.setitem(sys.modules, "lazy_module", lazy)
    before = set(sys.modules)
    assert isinstance(rebuild_exception(RemoteError("lazy_module.Lost")), RemoteException)
    assert isinstance(rebuild_exception(RemoteError("this.Lost")), RemoteException)
    assert set(sys.modules) == before


def test_arguments_become_plain() -> None:
    """Arguments of plain subclasses become plain values, and other arguments their
    repr. An argument whose repr fails is described by its class.
    """

    class Number(enum.IntEnum):
        ONE = 1

    class Unprintable:
        def __repr__(self) -> str:
            raise ValueError

    got = describe_exception(
        ValueError(Number.ONE, [1], Unprintable(), 2**63, "\ud800", 10**5000)
    ).args
    assert got[:2] == (1, "[1]")
    assert "Unprintable object" in str(got[2])
    assert got[3:5] == (str(2**63), "\\ud800")
    assert type(got[0]) is int
    msgspec.msgpack.encode(got)


def test_the_size_of_a_description_is_limited() -> None:
    """The number and length of arguments and the traceback are limited, keeping both
    ends.
    """

    def deep(n: int) -> None:
        if n:
            return (deep if n % 2 else deep_too)(n - 1)
        raise ValueError("x" * MAX_TRACEBACK_CHARS, *range(100), b"y" * 10_000)

    def deep_too(n: int) -> None:
        deep(n)

    with pytest.raises(ValueError, match="x") as caught:
        deep(100)
    got = describe_exception(caught.value)
    assert len(got.args) == MAX_ARGS
    assert len(str(got.args[0])) == MAX_ARG_CHARS
    assert len(got.traceback) == MAX_TRACEBACK_CHARS
    assert got.traceback.startswith("Traceback")
    assert len(describe_exception(ValueError(b"y" * 10_000)).args[0]) == MAX_ARG_CHARS  # type: ignore[arg-type]


def test_the_traceback_names_causes() -> None:
    """The traceback includes the causes of an exception."""
    error = ValueError("outer")
    error.__cause__ = KeyError("inner")
    assert "KeyError: 'inner'" in describe_exception(error).traceback


def test_a_traceback_begins_in_the_user_s_code() -> None:
    """The calls of this package that led to the user's function are left out, and an
    error of the package itself keeps its own.
    """
    for function, first in ((lambda x: 1 // 0, __file__), (lambda x, y: x, "zmqdata")):
        with pytest.raises(PipelineError) as raised:
            list(Dataset.range(1).map(lambda x: x).map(function))
        cause = raised.value.__cause__
        assert cause is not None
        assert first in describe_exception(cause).traceback.split("File ")[1].split(",")[0]


def test_describing_never_fails() -> None:
    """Exceptions with broken arguments, causes and texts can be described too."""

    class BrokenError(Exception):
        args = property(lambda self: 5)  # type: ignore[assignment]

        def __str__(self) -> str:
            raise ValueError

        @property
        def __traceback__(self) -> Any:  # type: ignore[override]
            raise ValueError

    got = describe_exception(BrokenError())
    assert got.args == (5,)
    assert "its text cannot be obtained" in got.traceback


def test_a_traceback_outlives_a_fault_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception that Python cannot print has its places and its text."""

    def fail(*told: object) -> list[str]:
        raise SystemError("AST constructor recursion depth mismatch (before=8, after=9)")

    monkeypatch.setattr(traceback, "format_exception", fail)
    try:
        raise ValueError("bad")
    except ValueError as error:
        place, text = formatted(error).splitlines()
    assert place.endswith("in test_a_traceback_outlives_a_fault_of_python")
    assert text == "ValueError: bad"


def test_an_error_that_needs_other_arguments_keeps_its_class_where_it_can() -> None:
    """json's error keeps its class, although its constructor takes three arguments."""
    with pytest.raises(json.JSONDecodeError) as caught:
        json.loads("{")
    assert isinstance(there_and_back(caught.value), json.JSONDecodeError)


@given(
    st.builds(
        RemoteError,
        st.text(),
        st.lists(st.none() | st.integers() | st.text() | st.binary()).map(tuple),
    )
)
def test_rebuilding_never_fails(remote: RemoteError) -> None:
    """Rebuilding returns an exception for any description that a peer sends."""
    assert isinstance(rebuild_exception(remote), Exception)
