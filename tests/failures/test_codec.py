"""Tests of ``zmqdata.failures.codec``: a worker's exception at the consumer."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zmqdata.errors import (
    BY_NAME,
    DataServiceError,
    FailedPreconditionError,
    InvalidElementError,
    PipelineError,
    ProtocolError,
    WrongTypeError,
    pipeline_error,
)
from zmqdata.failures.codec import Failure, decode_failure, encode_failure, missing_module, told_by
from zmqdata.failures.exceptions import RemoteError, RemoteException

WORKER = "tcp://worker:5"


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    """Return the error as caught, with a traceback."""
    try:
        raise error from cause
    except BaseException as caught:
        return caught


def sent(error: BaseException, element: int = 7) -> DataServiceError:
    """Return the exception that a consumer raises for a worker's error."""
    return decode_failure(encode_failure(error, element, WORKER))


def test_a_users_error_names_node_element_and_worker() -> None:
    """The consumer's error has operation, element, worker and worker's traceback."""
    error = PipelineError(
        "map(f) at train.py:12 failed: ValueError: bad", node="map(f) at train.py:12"
    )
    found = sent(raised(error, raised(ValueError("bad"))))
    assert isinstance(found, PipelineError)
    text = (
        f"map(f) at train.py:12 failed: ValueError: bad (element 7 of its task, on worker {WORKER})"
    )
    assert str(found).startswith(
        f"{text}\n\nRemote traceback:\nTraceback (most recent call last):\n"
    )
    assert (found.node, found.element) == ("map(f) at train.py:12", 7)
    assert found.remote_traceback.endswith("ValueError: bad\n")
    assert "in raised" in found.remote_traceback


def test_an_error_names_the_command_that_makes_its_element_again() -> None:
    """The error of an element whose task is known ends with the command to replay
    it.
    """
    error = PipelineError("map(f) failed", node="map(f)")
    told = decode_failure(encode_failure(error, 7, WORKER, task=4001))
    assert str(told.args[0]) == (
        f"map(f) failed (element 7 of task 4001, on worker {WORKER}). While the dispatcher runs, "
        "`zmqdata replay 4001 7` makes it again in a debugger."
    )


def test_a_module_that_a_function_imports_and_a_worker_lacks_comes_with_remedies() -> None:
    """The error for a module imported inside a function and missing at the worker has
    remedies. Such an import cannot be detected in advance.
    """
    missing = raised(ModuleNotFoundError("No module named 'mine'", name="mine"))
    error = PipelineError(
        "map(f) at train.py:12 failed: ModuleNotFoundError: No module named 'mine'", node="map(f)"
    )
    found = str(sent(raised(error, missing)))
    assert f"No module named 'mine'. {missing_module()} (element 7" in found
    assert "ship=" in found
    assert "pip install" in found


@pytest.mark.parametrize(
    "missing",
    [
        ModuleNotFoundError(
            "No module named x", name="zmqdata_shipped_0123456789abcdef.mine.hidden"
        ),
        FileNotFoundError(2, "gone", "/cache/zmqdata_shipped_0123456789abcdef/mine/.table"),
    ],
)
def test_what_was_not_shipped_with_a_package_comes_with_remedies(missing: Exception) -> None:
    """The error for a missing part of a shipped package says why it was left out."""
    found = str(sent(raised(PipelineError("map(f) failed", node="map(f)"), raised(missing))))
    assert "hidden files, __pycache__, .pyc and backup files are not shipped" in found
    assert "ship=" not in found
    other = raised(
        PipelineError("map(f) failed", node="map(f)"), raised(FileNotFoundError(2, "gone", "a.rec"))
    )
    assert "are not shipped" not in str(sent(other))


@pytest.mark.parametrize(
    "cause",
    [
        ValueError("bad", 3),
        KeyError("name"),
        FileNotFoundError(2, "gone", "a.rec"),
        ZeroDivisionError(),
    ],
)
def test_the_cause_is_rebuilt(cause: Exception) -> None:
    """The cause is the user's own exception with its class and arguments, as in a local
    run.
    """
    found = sent(raised(PipelineError("map(f) failed", node="map(f)"), raised(cause)))
    assert type(found.__cause__) is type(cause)
    assert str(found.__cause__) == str(cause)


def test_an_error_outside_of_a_function_is_its_own_cause() -> None:
    """An error outside of a node arrives as a PipelineError with its class and text."""
    found = sent(raised(OSError("disk full")))
    assert isinstance(found, PipelineError)
    assert str(found).startswith("OSError: disk full (element 7")
    assert (found.node, type(found.__cause__)) == ("", OSError)


def test_what_an_operation_cannot_take_stays_an_invalid_argument() -> None:
    """An element that an operation cannot take arrives as the class that a local
    iterator raises, with its cause.
    """
    cause = WrongTypeError("no dataset")
    error = pipeline_error(cause)("flat_map(f) failed", node="flat_map(f)")
    error.__cause__ = cause
    found = decode_failure(encode_failure(error, 3, WORKER))
    assert type(found) is InvalidElementError
    assert (found.node, found.element, type(found.__cause__)) == (
        "flat_map(f)",
        3,
        WrongTypeError,
    )


def test_a_pipeline_error_without_a_cause_is_passed_on() -> None:
    """A PipelineError without a cause keeps message and node, and is its own cause."""
    found = sent(raised(PipelineError("filter(f) must return one bool", node="filter(f)")))
    assert str(found).startswith("filter(f) must return one bool (element 7")
    assert found.node == "filter(f)"  # type: ignore[attr-defined]
    assert isinstance(found.__cause__, Exception)


@pytest.mark.parametrize("name", BY_NAME)
def test_a_fault_of_the_pipeline_keeps_its_class(name: str) -> None:
    """A service error keeps its class and full text, and blames no element."""
    found = sent(raised(BY_NAME[name]("python 3.11 here, 3.12 there")))
    assert type(found) is BY_NAME[name]
    assert str(found) == "python 3.11 here, 3.12 there"
    assert found.__cause__ is None


def test_a_users_class_that_borrows_a_name_stays_in_the_family() -> None:
    """A user's class with a service error's name arrives as that service error. The
    error still says what happened.
    """
    found = sent(raised(type("NotFoundError", (Exception,), {})("no row 5")))
    assert isinstance(found, DataServiceError)
    assert "no row 5" in str(found)


def test_exits_in_user_code_do_not_end_the_consumer() -> None:
    """sys.exit() in a function is an ordinary failure, never rebuilt as an exit."""
    for exit_ in (SystemExit(3), KeyboardInterrupt(), StopIteration(1)):
        found = sent(raised(exit_))
        assert isinstance(found, PipelineError)
        assert isinstance(found.__cause__, RemoteException)


def test_unknown_service_errors_are_pipeline_errors() -> None:
    """An unknown or later error class arrives as a PipelineError with the full text."""
    failure = Failure(
        "slow down",
        "",
        1,
        WORKER,
        "LaterError",
        RemoteError("zmqdata.errors.LaterError", ("slow down",)),
    )
    found = decode_failure(msgspec.msgpack.encode(failure))
    assert isinstance(found, PipelineError)
    assert str(found) == f"slow down (element 1 of its task, on worker {WORKER})"


@given(
    st.text(st.characters(codec="utf-8")), st.integers(0, 2**62), st.sampled_from([*BY_NAME, ""])
)
def test_any_text_arrives(text: str, element: int, name: str) -> None:
    """Texts and numbers of any size arrive unchanged."""
    error = BY_NAME[name](text) if name else PipelineError(text, node=text)
    found = sent(error, element)
    assert str(found).startswith(text)
    assert getattr(found, "element", element) == element


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats()
    | st.text()
    | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=8,
)


def refused_or_error(encoded: bytes) -> None:
    try:
        found = decode_failure(encoded)
    except ProtocolError:
        return
    assert isinstance(found, DataServiceError)
    assert isinstance(str(found), str)


@given(st.binary(max_size=80) | VALUES.map(msgspec.msgpack.encode))
def test_garbage_is_refused(encoded: bytes) -> None:
    """Bytes that encode no failure raise ProtocolError and no other error."""
    with pytest.raises(ProtocolError, match="malformed failure"):
        decode_failure(encoded)


@given(st.sampled_from(Failure.__struct_fields__), VALUES)
def test_wrong_fields_are_refused_or_fit(field: str, value: Any) -> None:
    """A field of a wrong type is rejected, or makes an error that can be printed."""
    fields: dict[str, Any] = msgspec.to_builtins(
        msgspec.msgpack.decode(encode_failure(ValueError("bad"), 1, WORKER))
    )
    refused_or_error(msgspec.msgpack.encode(fields | {field: value}))


@given(st.integers(0, 10_000), st.integers(0, 255), st.booleans())
def test_damaged_failures_are_refused_or_fit(at: int, byte: int, cut: bool) -> None:
    """A failure with a changed byte or a missing end decodes or raises
    ProtocolError.
    """
    encoded = bytearray(encode_failure(json.JSONDecodeError("bad", "{", 1), 1, WORKER))
    encoded[at % len(encoded)] = byte
    refused_or_error(bytes(encoded[: at % len(encoded)] if cut else encoded))


def test_deep_nesting_is_refused() -> None:
    """A deeply nested message does not exhaust the stack."""
    with pytest.raises(ProtocolError):
        decode_failure(b"\x91" * 100_000)


def test_a_service_error_with_a_cause_of_its_own_names_itself() -> None:
    """A service error is rebuilt as itself, and its cause appears only in the
    traceback. Only a PipelineError stands for its cause.
    """
    encoded = encode_failure(
        raised(FailedPreconditionError("no module"), raised(ImportError("rare"))), 0, WORKER
    )
    failure = msgspec.msgpack.decode(encoded, type=Failure)
    assert failure.cause.kind == "zmqdata.errors.FailedPreconditionError"
    assert "ImportError: rare" in failure.cause.traceback


class Mute(Exception):
    """An exception that cannot be converted to text."""

    def __str__(self) -> str:
        raise RuntimeError("no")


def test_an_exception_without_a_text_travels() -> None:
    """An exception whose __str__ raises arrives as a failure that says so."""
    found = decode_failure(encode_failure(Mute(), 3, "w"))
    assert "its text cannot be obtained: RuntimeError" in str(found)


def test_texts_that_are_no_unicode_travel() -> None:
    """A lone surrogate, as in a file name, is escaped."""
    found = decode_failure(encode_failure(OSError("bad name \udcff"), 3, "w"))
    assert "\\udcff" in str(found)


def test_long_texts_are_cut() -> None:
    """The codec truncates a megabyte of text."""
    assert len(encode_failure(ValueError("x" * 1_000_000), 3, "w")) < 300_000


def test_a_failure_is_told_by_name_and_text() -> None:
    """The log describes a failure by class and text without its traceback. Invalid
    bytes are described as invalid.
    """
    name, text = told_by(
        encode_failure(
            raised(PipelineError("map failed", node="map"), ValueError("bad row")), 3, "w"
        )
    )
    assert (name, "map failed" in text, "Traceback" in text) == ("PipelineError", True, False)
    assert (
        told_by(encode_failure(FailedPreconditionError("no room"), 3, "w"))[0]
        == "FailedPreconditionError"
    )
    assert told_by(b"nonsense")[0] == "ProtocolError"
