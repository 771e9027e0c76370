"""Tests of ``zmqdata.dataset.sources``: the constructors of ``Dataset``, and zip."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.dataset.reading import ints
from zmqdata.dataset import Dataset, TextLineDataset
from zmqdata.elements.specs import INFINITE_CARDINALITY, TensorSpec
from zmqdata.errors import (
    InvalidArgumentError,
    NoFilesMatchedError,
    NotFoundError,
    PipelineError,
)


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: Dataset.range(), ValueError, "got 0 numbers"),
        (lambda: Dataset.range(1, 2, 3, 4), ValueError, "got 4 numbers"),
        (lambda: Dataset.range(1, 2, 0), ValueError, "step 0"),
        (lambda: Dataset.range(2**63), ValueError, "64 bits"),
        (lambda: Dataset.range(1.5), TypeError, "must be an int, got 1.5 of type float"),
        (lambda: Dataset.range(True), TypeError, "must be an int"),
        (lambda: Dataset.range(3, output_type=str), TypeError, "a numeric dtype"),
        (lambda: Dataset.range(3, dtype=bool), TypeError, "dtype of range.. is bool"),
        (lambda: Dataset.range(3, output_type=int, dtype=int), TypeError, "pass one"),
        (lambda: Dataset.from_tensor_slices(5), ValueError, "an axis to slice"),
        (lambda: Dataset.from_tensor_slices({}), ValueError, "contains no array"),
        (
            lambda: Dataset.from_tensor_slices({"a": [1], "b": [1, 2]}),
            ValueError,
            r"lengths \[1, 2\]",
        ),
        (
            lambda: Dataset.from_tensor_slices([[1], [1, 2]]),
            ValueError,
            "do not make a single array",
        ),
        (
            lambda: Dataset.from_generator(iter([1])),
            TypeError,
            "`generator` must be a Python callable",
        ),
        (
            lambda: Dataset.list_files("/nowhere/*.txt"),
            NoFilesMatchedError,
            "No files matched pattern: '/nowhere/",
        ),
        (lambda: Dataset.list_files([]), NoFilesMatchedError, "none was given"),
        (lambda: Dataset.list_files([7]), TypeError, "a str or path"),
        (lambda: Dataset.list_files(__file__, shuffle=1), TypeError, "shuffle must be a bool"),
        (lambda: Dataset.list_files(__file__, seed="x"), TypeError, "seed must be an int"),
        (lambda: Dataset.zip(), TypeError, "pass exactly one of the two"),
        (
            lambda: Dataset.zip(Dataset.range(1), datasets=Dataset.range(1)),
            TypeError,
            "exactly one of the two",
        ),
        (lambda: Dataset.zip(()), ValueError, "at least one dataset"),
        (lambda: Dataset.zip(Dataset.range(1), 7), TypeError, "must be a Dataset, got 7"),
    ],
)
def test_wrong_arguments_are_refused_at_the_call(
    make: Callable[[], object], error: type[Exception], text: str
) -> None:
    """The error names what came and what was expected, before anything runs."""
    with pytest.raises(error, match=text):
        make()


@pytest.mark.parametrize("numbers", [(4,), (2, 9), (2, 9, 3), (9, 2, -3), (5, 5), (3, 0)])
def test_ranges_are_pythons(numbers: tuple[int, ...]) -> None:
    """A range takes the one, two or three numbers of Python's range."""
    assert ints(Dataset.range(*numbers)) == list(range(*numbers))


@pytest.mark.parametrize(
    "numbers",
    [
        (2**63 - 3, 2**63 - 1),
        (-(2**63) + 2, -(2**63), -1),
        (-(2**63), 2**63 - 1, 2**63 - 1),
        (2**63 - 1, -(2**63), -(2**63)),
    ],
)
def test_ranges_reach_to_the_ends_of_64_bits(numbers: tuple[int, ...]) -> None:
    """A range yields all integers of 64 bits, in any form of reading."""
    dataset, expected = Dataset.range(*numbers), list(range(*numbers))
    assert len(dataset) == len(expected)
    assert ints(dataset) == [int(dataset.at(place)) for place in range(len(expected))] == expected
    assert list(map(int, next(iter(dataset.batch(9))))) == expected


def test_a_range_without_a_reachable_end_is_infinite() -> None:
    """A range of more than 2**62 integers counts as infinite."""
    assert Dataset.range(2**62).cardinality() == 2**62
    for numbers in ((2**63 - 1,), (-(2**63), 2**63 - 1)):
        assert Dataset.range(*numbers).cardinality() == INFINITE_CARDINALITY
        assert ints(Dataset.range(*numbers).take(2)) == [*range(*numbers)[:2]]


@pytest.mark.parametrize("kind", ["uint8", "float16", "complex64"])
def test_a_range_has_a_dtype(kind: str) -> None:
    """Both names of the dtype mean the same. Numbers beyond it wrap as in tf.data."""
    for dataset in (Dataset.range(254, 258, output_type=kind), Dataset.range(254, 258, dtype=kind)):
        numbers = np.arange(254, 258).astype(kind)
        assert dataset.element_spec == TensorSpec((), kind)
        assert list(dataset) == [dataset.at(place) for place in range(4)] == list(numbers)
        np.testing.assert_array_equal(next(iter(dataset.batch(4))), numbers)


def test_ranges_have_a_dtype() -> None:
    """Numbers are np.int64 unless another dtype of numbers is given."""
    assert [x.dtype for x in Dataset.range(1)] == [np.int64]
    assert [x.dtype for x in Dataset.range(1, output_type="float32")] == [np.float32]


def test_from_tensors_is_one_element() -> None:
    """The whole structure is a single element, with its lists as arrays."""
    (element,) = Dataset.from_tensors(([1, 2], "a"))
    assert element[0].tolist() == [1, 2]
    assert element[1] == "a"


def test_slices_may_be_of_no_rows() -> None:
    """Empty arrays make an empty dataset that knows its spec."""
    dataset = Dataset.from_tensor_slices(np.zeros((0, 3)))
    assert list(dataset) == []
    assert dataset.element_spec == TensorSpec((3,), np.float64)


def test_generators_may_have_arguments_and_a_signature() -> None:
    """Arguments are passed unchanged, and the signature is the spec."""
    dataset = Dataset.from_generator(
        lambda n: iter([[n, n]]), args=[3], output_signature=TensorSpec((2,), "int8")
    )
    assert dataset.element_spec == TensorSpec((2,), "int8")
    assert [row.dtype for row in dataset] == [np.int8]


def test_files_come_sorted_or_shuffled(tmp_path: Path) -> None:
    """Files are shuffled by default. With a seed each iteration has its own order, and
    no file is missing.
    """
    names = [tmp_path / f"{number:02}.txt" for number in range(20)]
    for name in names:
        name.touch()
    plain = list(map(str, names))
    assert list(Dataset.list_files([tmp_path / "0*", tmp_path / "1*"], shuffle=False)) == plain
    for arguments in ({}, {"shuffle": True}, {"seed": 3}):
        came = list(Dataset.list_files(f"{tmp_path}/*.txt", **arguments))
        assert came != sorted(came) == plain
    seeded = [list(Dataset.list_files(f"{tmp_path}/*.txt", seed=3)) for _ in range(2)]
    assert seeded[0] == seeded[1]


def test_zip_takes_datasets_or_a_nesting() -> None:
    """Several arguments make tuples. A single nesting, also with the older keyword,
    keeps its form.
    """
    one, two = Dataset.range(2), Dataset.range(5, 9)
    assert [(int(a), int(b)) for a, b in Dataset.zip(one, two)] == [(0, 5), (1, 6)]
    assert [type(element) for element in Dataset.zip((one,))] == [tuple, tuple]
    assert ints(Dataset.zip(one)) == [0, 1]
    nested = list(Dataset.zip(datasets={"x": (one, two), "y": one}))
    assert nested[1] == {"x": (1, 6), "y": 1}


def test_constructors_of_a_subclass_make_plain_datasets() -> None:
    """TextLineDataset inherits the constructors, but they make plain datasets."""
    assert type(TextLineDataset.range(3)) is Dataset


def test_an_empty_folder_has_no_files(tmp_path: Path) -> None:
    """A pattern in an empty folder matches nothing, which both classes of error catch,
    and the error for a folder says how to list its files.
    """
    for kind in (NotFoundError, InvalidArgumentError):
        with pytest.raises(kind, match="No files matched pattern"):
            Dataset.list_files(f"{tmp_path}/*")
    with pytest.raises(NoFilesMatchedError, match=r"is a folder; '.*/\*' matches the files in it"):
        Dataset.list_files(tmp_path)


def test_sources_name_the_place_of_a_list_that_is_no_array() -> None:
    """The error names the key of slices, and the number in a list of elements."""
    with pytest.raises(ValueError, match=r"^at element\['k'\]\['m'\]: .*the str 'a' at \[1\]"):
        Dataset.from_tensor_slices({"k": {"m": [1, "a"]}})
    with pytest.raises(ValueError, match=r"^elements\[1\] of from_list\(\): .*the bool True"):
        Dataset.from_list([[1, 2], [1, True]])


def test_masks_are_not_lost() -> None:
    """A masked array keeps its mask as an element, and is refused where it would lose
    it.
    """
    masked = np.ma.masked_array([1, 2], [False, True])
    for source in (Dataset.from_source([masked]), Dataset.from_tensors(masked)):
        (element,) = source
        assert element.mask.tolist() == [False, True]
        with pytest.raises(PipelineError, match="a masked array"):
            list(source.batch(1))
    with pytest.raises(TypeError, match="would lose its mask"):
        Dataset.from_tensor_slices(masked)
    signature = TensorSpec((2,), int)
    with pytest.raises(PipelineError, match="would lose its mask"):
        list(Dataset.from_generator(lambda: [masked], output_signature=signature))
