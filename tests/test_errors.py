"""Tests of ``zmqdata.errors``: base classes and texts of errors."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from zmqdata import Dataset, errors
from zmqdata.errors import (
    BY_NAME,
    DataServiceError,
    InvalidArgumentError,
    InvalidElementError,
    MissingClassError,
    MissingCodecError,
    MissingDtypeError,
    NoStatusError,
    ObjectsRefusedError,
    PipelineError,
    WrongTypeError,
    named_error,
)

KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, DataServiceError)
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_error_is_documented_and_one_of_ours(kind: type[DataServiceError]) -> None:
    """All errors share a base class, and each documents when it is raised."""
    assert issubclass(kind, DataServiceError)
    assert (kind.__doc__ or "").strip()
    assert kind.__name__.endswith("Error")


@pytest.mark.parametrize(
    ("kind", "builtin"),
    [
        ("InvalidArgumentError", ValueError),
        ("NotFoundError", LookupError),
        ("FailedPreconditionError", RuntimeError),
        ("UnavailableError", ConnectionError),
        ("UnimplementedError", NotImplementedError),
        ("PermissionDeniedError", PermissionError),
        ("ProtocolError", ValueError),
    ],
)
def test_remote_faults_are_caught_like_local_ones(kind: str, builtin: type[Exception]) -> None:
    """Code that catches Python's own error for a fault catches ours too."""
    with pytest.raises(builtin, match="what came"):
        raise BY_NAME[kind]("what came")


@pytest.mark.parametrize("kind", KINDS)
def test_any_error_can_be_printed(kind: type[DataServiceError]) -> None:
    """The text of an error is valid UTF-8, whatever the file names in it."""
    assert str(kind("caf\udce9 cannot be read")) == "caf\\udce9 cannot be read"


def test_errors_that_travel_are_found_by_name() -> None:
    """An error sent by name is found by name. The exceptions are the base class,
    PipelineErrors with their extra fields, and what a process finds by itself.
    """
    local = {
        MissingClassError,
        MissingCodecError,
        MissingDtypeError,
        NoStatusError,
        ObjectsRefusedError,
        WrongTypeError,
    }
    others = {DataServiceError, PipelineError, InvalidElementError, *local}
    assert set(BY_NAME.values()) == set(KINDS) - others
    assert all(kind.__name__ == name for name, kind in BY_NAME.items())
    assert all(str(kind("text")) == "text" for kind in BY_NAME.values())


def test_what_operations_cannot_take_is_an_invalid_argument() -> None:
    """An element that an operation cannot take is a PipelineError and, as in tf.data,
    an InvalidArgumentError, and so is a wrong result of a function.
    """
    lengths = Dataset.from_list([np.zeros(2), np.zeros(3)])
    for wrong in (
        lengths.batch(2),
        lengths.map(lambda x: x).padded_batch(2, padded_shapes=[1]),
        Dataset.range(3).filter(lambda x: x),
        Dataset.range(3).flat_map(lambda x: x),
    ):
        for kind in (InvalidArgumentError, PipelineError):
            with pytest.raises(kind, match=" failed: "):
                list(wrong)
    with pytest.raises(PipelineError) as caught:
        list(Dataset.range(3).map(lambda x: int("a")))
    assert not isinstance(caught.value, InvalidArgumentError)


def test_a_local_pipeline_error_says_its_message_alone() -> None:
    """The text of a local PipelineError is its message; node and element are empty."""
    error = PipelineError("map(f) failed")
    assert str(error) == "map(f) failed"
    assert (error.node, error.element, error.remote_traceback) == ("", None, "")


def test_a_remote_traceback_is_shown_behind_the_message() -> None:
    """The text of a remote PipelineError ends with the worker's traceback."""
    error = PipelineError(
        "map(f) failed", node="map(f)", element=3, remote_traceback="Traceback\n  f()\n\n"
    )
    assert str(error) == "map(f) failed\n\nRemote traceback:\nTraceback\n  f()"
    assert error.args == ("map(f) failed",)
    assert (error.node, error.element) == ("map(f)", 3)


def test_a_pipeline_error_keeps_all_of_it_when_pickled() -> None:
    """Pickling a PipelineError, as a user's process pool does, keeps all its fields."""
    error = PipelineError("map(f) failed", node="map(f)", element=3, remote_traceback="Traceback")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is PipelineError
    assert (str(again), vars(again)) == (str(error), vars(error))


def test_an_error_of_a_message_is_made_by_name() -> None:
    """An unknown error name becomes the base class, and a pipeline's error a
    PipelineError. That PipelineError has no single element.
    """
    assert type(named_error("NotFoundError", "no such dataset")) is errors.NotFoundError
    assert type(named_error("PipelineError", "map failed")) is PipelineError
    assert type(named_error("KeyError", "x")) is DataServiceError
    assert "no such dataset" in str(named_error("NotFoundError", "no such dataset"))
