"""Tests of ``zmqdata.dataset.arguments``: which arguments are accepted or refused, and
with which errors.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zmqdata.dataset.arguments
from zmqdata.config.checks import (
    optional_size,
)
from zmqdata.dataset import Dataset, TextLineDataset
from zmqdata.dataset.arguments import (
    call_site,
    compression,
    dtype,
    error_policy,
    file_names,
    flag,
    generator_spec,
    input_node,
    input_nodes,
    number,
    numbers,
    optional_spec,
    parallel_calls,
    several,
    sliceable,
    writable_path,
)
from zmqdata.elements.ragged import RaggedTensor, RaggedTensorSpec
from zmqdata.elements.specs import AUTOTUNE, DatasetSpec, TensorSpec

INT = TensorSpec((), "int64")


@pytest.mark.parametrize(
    ("check", "error", "text"),
    [
        (
            lambda: parallel_calls(0, None),
            ValueError,
            "num_parallel_calls must be at least 1, AUTOTUNE or None, got 0",
        ),
        (
            lambda: parallel_calls(2.5, None),
            TypeError,
            "num_parallel_calls must be an int, got 2.5",
        ),
        (lambda: parallel_calls(2, 1), TypeError, "deterministic must be a bool, got 1"),
        (
            lambda: error_policy("ignore", None, None),
            ValueError,
            'must be "raise", "skip" or "retry", got \'ignore\'',
        ),
        (lambda: error_policy("raise", 2, None), ValueError, "retries needs on_error="),
        (lambda: error_policy("retry", None, 2), ValueError, 'max_errors needs on_error="skip"'),
        (lambda: error_policy("retry", -1, None), ValueError, "retries must be at least 0, got -1"),
        (lambda: error_policy("skip", None, "x"), TypeError, "max_errors must be an int, got 'x'"),
        (lambda: flag("anew", 1), TypeError, "anew must be a bool, got 1 of type int"),
        (lambda: flag("anew", None), TypeError, "anew must be a bool"),
        (lambda: number("seconds", True), TypeError, "seconds must be a number, got True"),
        (lambda: number("seconds", "5"), TypeError, "seconds must be a number, got '5'"),
        (
            lambda: number("seconds", -1),
            ValueError,
            "seconds must be a finite number of at least 0, got -1",
        ),
        (lambda: number("seconds", float("nan")), ValueError, "finite number"),
        (
            lambda: numbers("weights", "x", "one for each"),
            TypeError,
            "weights must be one for each, got 'x'",
        ),
        (
            lambda: numbers("weights", [[1], [1, 2]], "one for each"),
            TypeError,
            "weights must be one for each",
        ),
        (
            lambda: dtype("kind", None, "iu", "an integer dtype"),
            TypeError,
            "kind must be an integer dtype, such as",
        ),
        (lambda: dtype("kind", 5, "iu", "an integer dtype"), TypeError, "got 5 of type int"),
        (
            lambda: dtype("kind", str, "iu", "an integer dtype"),
            TypeError,
            "kind is <U0, expected an integer dtype",
        ),
        (
            lambda: writable_path("save()", 7),
            TypeError,
            "a file name must be a str or path, got 7 of type int",
        ),
        (
            lambda: sliceable(5),
            ValueError,
            r"got 5, expected arrays with an axis to slice; use from_tensors\(\)",
        ),
        (lambda: sliceable([[1], [1, 2]]), ValueError, "rows that do not make a single array"),
        (
            lambda: input_node("zip()", 7),
            TypeError,
            r"what zip\(\) takes must be a Dataset, got 7 of type int",
        ),
        (lambda: input_node("zip()", pytest), TypeError, "must be a Dataset"),
        (
            lambda: input_nodes("f()", 7),
            TypeError,
            r"what f\(\) takes must be a list of datasets, got 7",
        ),
        (
            lambda: input_nodes("f()", Dataset.range(3)),
            TypeError,
            r"a list of datasets, got range\(3\) at .* Dataset$",
        ),
        (lambda: input_nodes("f()", [7]), TypeError, r"what f\(\) takes must be a Dataset, got 7"),
        (lambda: several("columns", 5, "a list"), TypeError, "columns must be a list, got 5"),
        (lambda: several("columns", "ab", "a list"), TypeError, "columns must be a list, got 'ab'"),
        (
            lambda: optional_spec("spec", {"x": int}),
            TypeError,
            r"TensorSpec\(shape, dtype\) .*got <class 'int'>",
        ),
        (lambda: optional_spec("output_spec", [INT]), TypeError, "no lists"),
        (lambda: compression(()), ValueError, "compression_type must be"),
    ],
)
def test_refusals_say_what_came_and_what_was_expected(
    check: Callable[[], object], error: type[Exception], text: str
) -> None:
    """Each error names the argument, the refused value with its type, and the accepted
    values.
    """
    with pytest.raises(error, match=text):
        check()


def test_numbers_may_be_of_any_kind() -> None:
    """Numbers of numpy and lists of them are accepted, as is any notation of a
    dtype.
    """
    assert [number("seconds", value) for value in (0, 1.5, np.float32(2), np.int8(3))] == [
        0.0,
        1.5,
        2.0,
        3.0,
    ]
    assert numbers("weights", (1, np.int8(2)), "").tolist() == [1.0, 2.0]
    spellings = (float, "float64", np.float64, np.dtype("f8"))
    assert {dtype("kind", value, "f", "") for value in spellings} == {np.dtype(float)}


@pytest.mark.parametrize("value", [True, np.True_, False, np.False_])
def test_flags_are_bools_of_either_kind(value: Any) -> None:
    """Bools of Python and numpy become bools of Python."""
    assert flag("anew", value) is bool(value)


def test_several_items_may_be_in_any_iterable() -> None:
    """An iterable becomes a list of its items."""
    assert several("columns", range(2), "") == [0, 1]


def test_specs_are_nested_as_elements_are() -> None:
    """Dicts and tuples of specs of any kind are accepted, as is None for no spec."""
    for spec in (
        None,
        INT,
        {"x": (INT, RaggedTensorSpec((None, None), "int8"))},
        (),
        DatasetSpec(INT),
    ):
        assert optional_spec("output_spec", spec) == spec


def test_paths_start_from_the_present_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Relative names become absolute, absolute names stay, and paths of pathlib are
    accepted.
    """
    monkeypatch.chdir(tmp_path)
    assert (
        writable_path("save()", "a/*.txt")
        == writable_path("save()", Path("a") / "*.txt")
        == f"{tmp_path}/a/*.txt"
    )
    assert writable_path("save()", "/a/b") == "/a/b"


def test_arrays_are_sliced_where_they_lie() -> None:
    """An array is not copied, and a list becomes an array."""
    array = np.zeros((3, 2))
    assert sliceable(array) is array
    assert sliceable([[1, 2], [3, 4]]).shape == (2, 2)
    assert sliceable(["a", "bc"]).dtype == np.dtype("<U2")


def test_a_dataset_gives_its_node() -> None:
    """A dataset of any class is an input."""
    for dataset in (Dataset.range(3), TextLineDataset("x")):
        assert input_node("zip()", dataset) is dataset.node


def test_the_site_is_the_users_line() -> None:
    """The site is the innermost line outside of the package, for a call through it,
    through a callback or directly.
    """
    assert Dataset.range(3).node.site.startswith("test_arguments.py:")
    assert (
        Dataset.range(3)
        .apply(lambda dataset: dataset.take(1))
        .node.site.startswith("test_arguments.py:")
    )
    first, second = call_site(), Dataset.range(1).node.site
    assert first == second != Dataset.range(1).node.site


def test_without_a_users_line_there_is_no_site() -> None:
    """The site is empty if only the package, and what starts threads, are on the stack,
    as in a thread of a worker.
    """
    found: list[str] = []
    inside = "def run():\n    found.append(call_site())"
    names: dict[str, Any] = {"found": found, "call_site": call_site}
    exec(compile(inside, zmqdata.dataset.arguments.__file__, "exec"), names)
    thread = threading.Thread(target=names["run"])
    thread.start()
    thread.join(30)
    assert found == [""]


def test_file_names_and_how_they_are_read(tmp_path: Path) -> None:
    """A single file name or several become absolute, and compressions and sizes are
    checked.
    """
    assert file_names(tmp_path / "a") == file_names([str(tmp_path / "a")]) == (str(tmp_path / "a"),)
    names = ["GZIP", "ZLIB", "ZSTD"]
    assert [compression(value) for value in (None, "", *names)] == ["", "", *names]
    assert (optional_size("size", None), optional_size("size", 0)) == (None, 0)
    with pytest.raises(TypeError, match="a file name, several or a dataset"):
        file_names(7)
    with pytest.raises(ValueError, match="compression_type must be"):
        compression("BZ2")


def test_a_file_name_is_text_or_bytes(tmp_path: Path) -> None:
    """A name may be anything that a pipeline yields for a text: bytes, a text of numpy,
    or an array of names. Bytes that are not UTF-8 name the same file.
    """
    expected = str(tmp_path / "a")

    class BytesPath:
        def __fspath__(self) -> bytes:
            return os.fsencode(expected)

    one = np.array(expected)
    for name in (expected.encode(), np.bytes_(expected.encode()), one[()], one, BytesPath()):
        assert file_names(name) == (expected,)
        assert type(file_names(name)[0]) is str
    for several_names in (one.reshape(1, 1), one.astype(bytes).reshape(1), [expected.encode()]):
        assert file_names(several_names) == (expected,)
    assert os.fsencode(writable_path("save()", b"/caf\xe9")) == b"/caf\xe9"


def test_a_script_may_have_any_name() -> None:
    """The line of a script whose name is not UTF-8 is shown in a form that a state and
    a message can hold.
    """
    found: dict[str, Any] = {"call_site": call_site}
    exec(compile("site = call_site()", os.fsdecode(b"/d\xe9/caf\xe9.py"), "exec"), found)
    assert found["site"] == "caf?e9.py:1"


def test_a_ragged_tensor_is_sliced_where_it_lies() -> None:
    """A ragged tensor has rows already and stays unchanged."""
    ragged = RaggedTensor([1, 2, 3], [0, 1, 3])
    assert sliceable(ragged) is ragged


def test_parallel_calls_are_parameters_of_nodes_with_threads() -> None:
    """A number of calls or AUTOTUNE sets both parameters, and None sets neither."""
    assert parallel_calls(None, None) == {}
    assert parallel_calls(AUTOTUNE, None) == {"num_parallel_calls": AUTOTUNE, "deterministic": None}
    assert parallel_calls(np.int64(3), np.False_) == {
        "num_parallel_calls": 3,
        "deterministic": False,
    }


@pytest.mark.parametrize("deterministic", [True, False])
def test_an_order_without_parallel_calls_is_warned_of(deterministic: bool) -> None:
    """A warning says that either value of deterministic has no effect without
    num_parallel_calls.
    """
    with pytest.warns(UserWarning, match="deterministic has no effect without num_parallel_calls"):
        assert parallel_calls(None, deterministic) == {}


@pytest.mark.parametrize(
    ("given", "parameters"),
    [
        (("raise", None, None), {}),
        (("retry", None, None), {"on_error": "retry", "retries": 3, "max_errors": None}),
        (("retry", 0, None), {"on_error": "retry", "retries": 0, "max_errors": None}),
        (("skip", None, None), {"on_error": "skip", "retries": 0, "max_errors": None}),
        (("skip", 2, 0), {"on_error": "skip", "retries": 2, "max_errors": 0}),
    ],
)
def test_a_policy_has_its_own_number_of_retries(
    given: tuple[Any, Any, Any], parameters: dict[str, Any]
) -> None:
    """The policy "raise" needs no parameters. By default "retry" retries three times
    and "skip" never does.
    """
    assert error_policy(*given) == parameters


def test_the_older_arguments_of_a_generator_make_a_spec() -> None:
    """Dtypes, with or without shapes, become the spec. Shapes alone, both notations,
    and other nestings are refused.
    """
    assert generator_spec(np.int32, None, None) == TensorSpec(None, np.int32)
    made = generator_spec({"x": np.int8, "y": (str,)}, {"x": (2, None), "y": ((),)}, None)
    assert made == {"x": TensorSpec((2, None), np.int8), "y": (TensorSpec((), str),)}
    assert generator_spec(None, None, made) == made
    for given in ((None, (), None), (np.int8, None, TensorSpec((), np.int8))):
        with pytest.raises(TypeError, match="either output_signature"):
            generator_spec(*given)
    with pytest.raises(TypeError, match="output_shapes must be nested as output_types"):
        generator_spec((np.int8, np.int8), ((),), None)
    with pytest.raises(TypeError, match="output_types must be a dtype for each leaf"):
        generator_spec((3,), None, None)
