"""Tests of ``zmqdata.dataset.refusals``: what declared specs show is refused when a
pipeline is built.

Each refusal has tf.data's class, and the words by which people search for it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from zmqdata import CsvDataset, FixedLengthRecordDataset, TextLineDataset, TFRecordDataset
from zmqdata.dataset import Dataset
from zmqdata.dataset.refusals import check_alike, check_call, check_element_call
from zmqdata.elements.ragged import RaggedTensor
from zmqdata.elements.specs import DatasetSpec, TensorSpec
from zmqdata.errors import InvalidArgumentError
from zmqdata.operations.folds import Reducer
from zmqdata.operations.limits import Take

INT = TensorSpec((), np.int64)
TEN = Dataset.range(10)
PAIRS = Dataset.zip(TEN, TEN)
ROWS = Dataset.from_tensors([1, 2, 3])
UNKNOWN = TEN.map(lambda x: x)
REDUCER = Reducer(lambda key: 0, lambda state, x: state, lambda state: state)

REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "map: too few parameters": (
        lambda: PAIRS.map(lambda x: x),
        TypeError,
        "<lambda>() takes 1 positional argument but 2 were given",
    ),
    "map: too many parameters": (
        lambda: TEN.map(lambda x, y, z: x),
        TypeError,
        "missing 2 required positional arguments: 'y', 'z'",
    ),
    "map: a keyword": (
        lambda: TEN.map(lambda x, *, size: x),
        TypeError,
        "missing 1 required keyword-only argument: 'size'",
    ),
    "map: a declared spec": (
        lambda: UNKNOWN.map(lambda x: (x, x), output_spec=(INT, INT)).map(lambda x: x),
        TypeError,
        "because the elements are (TensorSpec",
    ),
    "map: no dict of keywords": (
        lambda: Dataset.from_tensors({"a": 1, "b": 2}).map(lambda a, b: a),
        TypeError,
        "missing 1 required positional argument: 'b'",
    ),
    "map on threads": (lambda: TEN.map(lambda: 1, 2), TypeError, "takes 0 positional arguments"),
    "random_map": (lambda: TEN.random_map(lambda x: x), TypeError, "takes 1 positional argument"),
    "map_batches": (lambda: TEN.map_batches(lambda x, y: x, 2), TypeError, "missing 1 required"),
    "batch: collate_fn": (
        lambda: PAIRS.batch(2, collate_fn=lambda x, y: x),
        TypeError,
        "missing 1 required positional argument: 'y'. The argument is the list of the elements",
    ),
    "batch: a spec of nothing": (
        lambda: TEN.batch(2, output_spec=INT),
        TypeError,
        "the spec of what `collate_fn` returns, and no `collate_fn`",
    ),
    "filter": (lambda: PAIRS.filter(lambda x: True), TypeError, "`predicate` is called with 2"),
    "take_while": (lambda: TEN.take_while(lambda: True), TypeError, "`predicate` is called with 1"),
    "flat_map": (lambda: TEN.flat_map(lambda: TEN), TypeError, "`map_func` is called with 1"),
    "interleave": (lambda: TEN.interleave(lambda: TEN), TypeError, "`map_func` is called with 1"),
    "scan": (lambda: UNKNOWN.scan(0, lambda x: (x, x)), TypeError, "`scan_func` is called with 2"),
    "group_by_window: key": (
        lambda: PAIRS.group_by_window(lambda x: 0, lambda key, group: group, 2),
        TypeError,
        "`key_func` is called with 2 arguments",
    ),
    "group_by_window: group": (
        lambda: UNKNOWN.group_by_window(lambda x: 0, lambda group: group, 2),
        TypeError,
        "`reduce_func` is called with 2 arguments",
    ),
    "group_by_window: size": (
        lambda: TEN.group_by_window(lambda x: 0, max, window_size_func=lambda: 2),
        TypeError,
        "`window_size_func` is called with 1 argument",
    ),
    "group_by_window: no size": (
        lambda: TEN.group_by_window(lambda x: 0, max),
        ValueError,
        "Either the `window_size` argument or the `window_size_func` argument must be specified.",
    ),
    "group_by_reducer": (
        lambda: PAIRS.group_by_reducer(lambda x: 0, REDUCER),
        TypeError,
        "`key_func` is called with 2",
    ),
    "rejection_resample": (
        lambda: PAIRS.rejection_resample(lambda x: 0, [1.0]),
        TypeError,
        "`class_func` is called with 2",
    ),
    "bucket_by_sequence_length": (
        lambda: (
            PAIRS.batch(1)
            .bucket_by_sequence_length(len, [2], [1, 1])
            .bucket_by_sequence_length(lambda x: 1, [2], [1, 1])
        ),
        TypeError,
        "`element_length_func` is called with 2",
    ),
    "padded_batch: a smaller shape": (
        lambda: ROWS.padded_batch(5, padded_shapes=[1]),
        ValueError,
        "The padded shape (1,) is not compatible with the corresponding input component shape (3,)",
    ),
    "padded_batch: a smaller part": (
        lambda: Dataset.zip(TEN, ROWS).padded_batch(5, padded_shapes=([], [2])),
        ValueError,
        "The padded shape (2,) is not compatible with the corresponding input component shape (3,)",
    ),
    "padded_batch: another rank": (
        lambda: TEN.padded_batch(5, padded_shapes=[1]),
        ValueError,
        "The padded shape (1,) is not compatible with the corresponding input component shape ()",
    ),
    "padded_batch: a matrix": (
        lambda: TEN.padded_batch(5, padded_shapes=np.array([[1, 2], [3, 4]])),
        ValueError,
        "must be a 1-D array of integers, but its shape was (2, 2)",
    ),
    "padded_batch: a fraction": (
        lambda: ROWS.padded_batch(5, padded_shapes=[3.5]),
        TypeError,
        "Padded shape [3.5] must be a 1-D array of integers, but its elements were [3.5]",
    ),
    "padded_batch: another nesting": (
        lambda: PAIRS.padded_batch(5, padded_shapes=[]),
        ValueError,
        "padded_shapes must have the nesting of the elements",
    ),
    "padded_batch: other keys": (
        lambda: Dataset.from_tensors({"a": [1]}).padded_batch(5, padded_shapes={"b": [2]}),
        ValueError,
        "padded_shapes must have the nesting of the elements",
    ),
    "padded_batch: values of another nesting": (
        lambda: TEN.padded_batch(5, padding_values=(1, 2)),
        ValueError,
        "`padding_values` values should be scalars",
    ),
    "padded_batch: values of another dtype": (
        lambda: ROWS.padded_batch(5, padding_values="x"),
        TypeError,
        "Invalid `padding_values`",
    ),
    "padded_batch: windows": (
        lambda: TEN.window(2).padded_batch(2),
        TypeError,
        "padded_batch() is not supported for datasets that yield datasets",
    ),
    "as_numpy_iterator: datasets": (
        lambda: Dataset.from_tensors((1, TEN)).as_numpy_iterator(),
        TypeError,
        "as_numpy_iterator() is not supported for datasets that yield datasets",
    ),
    "padded_batch: ragged": (
        lambda: Dataset.from_tensors(RaggedTensor.from_rows([[1]])).padded_batch(2),
        TypeError,
        "ragged leaf",
    ),
    "bucket_by_sequence_length: a smaller shape": (
        lambda: ROWS.bucket_by_sequence_length(len, [9], [1, 1], padded_shapes=[1]),
        ValueError,
        "The padded shape (1,) is not compatible with the corresponding input component shape (3,)",
    ),
    "names of files: integers": (
        lambda: TextLineDataset(TEN),
        TypeError,
        "The `filenames` argument must contain `str` elements. Got a dataset of int64 elements",
    ),
    "names of files: read on threads": (
        lambda: TFRecordDataset(TEN, num_parallel_reads=2),
        TypeError,
        "Got a dataset of int64 elements",
    ),
    "names of files: pairs": (
        lambda: FixedLengthRecordDataset(Dataset.from_tensors(("a", "b")), 4),
        TypeError,
        "The `filenames` argument must contain `str` elements",
    ),
    "names of files: arrays": (
        lambda: TextLineDataset(Dataset.from_tensors(["a", "b"])),
        TypeError,
        "elements of shape [] (i.e. scalars). Got a dataset of element shape (2,)",
    ),
    "names of files: windows": (
        lambda: TextLineDataset(Dataset.from_tensor_slices(["a", "b"]).window(2)),
        TypeError,
        "The `filenames` argument must contain `str` elements",
    ),
    "choices: none": (
        lambda: Dataset.choose_from_datasets([], TEN),
        ValueError,
        "`datasets` should not be empty.",
    ),
    "choices: vectors": (
        lambda: Dataset.choose_from_datasets([TEN], TEN.batch(2)),
        TypeError,
        "Invalid `choice_dataset`. choice_dataset must yield integers, scalar `int64` each",
    ),
    "choices: fractions": (
        lambda: Dataset.choose_from_datasets([TEN], Dataset.from_tensors(0.5)),
        TypeError,
        "but its elements are TensorSpec(shape=(), dtype=float64)",
    ),
    "choices: pairs": (
        lambda: Dataset.choose_from_datasets([TEN], PAIRS),
        TypeError,
        "choice_dataset must yield integers",
    ),
    "choices: windows": (
        lambda: Dataset.choose_from_datasets([TEN], TEN.window(2)),
        TypeError,
        "choice_dataset must yield integers",
    ),
    "choices: different elements": (
        lambda: Dataset.choose_from_datasets([TEN, Dataset.from_tensors(0.5)], TEN),
        TypeError,
        "must have compatible element specs",
    ),
    "samples: none": (
        lambda: Dataset.sample_from_datasets([]),
        ValueError,
        "`datasets` should not be empty.",
    ),
    "samples: too many weights": (
        lambda: Dataset.sample_from_datasets([TEN, TEN], weights=[0.25, 0.25, 0.5]),
        ValueError,
        "should have the same length as `datasets`",
    ),
    "samples: too many weights in a dataset": (
        lambda: Dataset.sample_from_datasets(
            [TEN, TEN], Dataset.from_tensors([0.2, 0.3, 0.5]).repeat()
        ),
        ValueError,
        "should have the same length as `datasets`, 2",
    ),
    "samples: a dataset of single weights": (
        lambda: Dataset.sample_from_datasets([TEN, TEN], Dataset.from_tensors(0.5).repeat()),
        ValueError,
        "should have the same length as `datasets`, 2",
    ),
    "samples: a dataset of texts": (
        lambda: Dataset.sample_from_datasets([TEN, TEN], Dataset.from_tensors(["a", "b"])),
        TypeError,
        "Invalid `weights`. `weights` type must be a float",
    ),
    "concatenate": (
        lambda: TEN.concatenate(Dataset.from_tensors(0.5)),
        TypeError,
        "Incompatible dataset elements",
    ),
    "unbatch: scalars": (
        lambda: TEN.unbatch(),
        ValueError,
        "Cannot unbatch an input with scalar components.",
    ),
    "unbatch: different lengths": (
        lambda: Dataset.from_tensors(([1, 2], [1, 2, 3])).unbatch(),
        ValueError,
        "a matching leading dimension",
    ),
    "rebatch": (lambda: TEN.rebatch(2), ValueError, "Batch them first"),
    "unique: fractions": (
        lambda: Dataset.from_tensors(0.5).unique(),
        TypeError,
        "does not support type float64 -- only integers and texts are supported",
    ),
    "unique: pairs": (
        lambda: PAIRS.unique(),
        InvalidArgumentError,
        "only supports inputs with a single component",
    ),
}

ARGUMENTS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "batch": (lambda: TEN.batch(0), InvalidArgumentError, "must be greater than zero"),
    "padded_batch": (lambda: TEN.padded_batch(0), InvalidArgumentError, "greater than zero"),
    "ragged_batch": (lambda: TEN.ragged_batch(0), InvalidArgumentError, "greater than zero"),
    "window": (lambda: TEN.window(0), InvalidArgumentError, "must be greater than zero"),
    "window: shift": (lambda: TEN.window(2, 0), InvalidArgumentError, "greater than zero"),
    "window: stride": (lambda: TEN.window(2, 1, 0), InvalidArgumentError, "greater than zero"),
    "shuffle": (lambda: TEN.shuffle(0), InvalidArgumentError, "greater than zero, or UNKNOWN_CARD"),
    "prefetch": (lambda: TEN.prefetch(-2), InvalidArgumentError, "must be >= 0, or -1 (AUTOTUNE)"),
    "shard": (lambda: TEN.shard(0, 0), InvalidArgumentError, "(currently num_shards = 0)"),
    "shard: index": (
        lambda: TEN.shard(3, 3),
        InvalidArgumentError,
        "Index must be between 0 and 2",
    ),
    "range: step": (
        lambda: Dataset.range(1, 5, 0),
        InvalidArgumentError,
        "step must be a non-zero integer",
    ),
    "interleave: cycle": (
        lambda: TEN.interleave(lambda x: TEN, cycle_length=0),
        InvalidArgumentError,
        "Cycle length must be greater than zero, but got 0",
    ),
    "interleave: block": (
        lambda: TEN.interleave(lambda x: TEN, block_length=0),
        InvalidArgumentError,
        "must be greater than zero",
    ),
    "map: threads": (lambda: TEN.map(abs, 0), InvalidArgumentError, "must be greater than zero"),
    "rejection_resample": (
        lambda: TEN.rejection_resample(lambda x: 0, [0.5, 0.5], [0.5, 0.25, 0.25]),
        InvalidArgumentError,
        "initial_dist has 3 classes, expected 2",
    ),
    "zip: a list": (
        lambda: Dataset.zip([TEN, TEN]),
        TypeError,
        "Python `list` is not supported and you should use `tuple` instead",
    ),
    "zip: a list inside": (
        lambda: Dataset.zip({"a": [TEN, TEN]}),
        TypeError,
        "Python `list` is not supported",
    ),
    "zip: nothing": (lambda: Dataset.zip(), TypeError, "Must pass at least one dataset to `zip`."),
    "zip: both": (
        lambda: Dataset.zip(TEN, datasets=(TEN,)),
        TypeError,
        "Both `*args` and `datasets` cannot be set.",
    ),
    "choices: no dataset": (
        lambda: Dataset.choose_from_datasets([TEN], [0]),
        TypeError,
        "Invalid `choice_dataset`. `choice_dataset` must be a Dataset",
    ),
    "names of files": (
        lambda: TextLineDataset(["a", 1]),
        TypeError,
        "The `filenames` argument must contain `str` elements",
    ),
    "compression of files": (
        lambda: TextLineDataset("a", compression_type="LZ"),
        InvalidArgumentError,
        "Unsupported compression_type: LZ.",
    ),
    "generator: both": (
        lambda: Dataset.from_generator(list, output_types=int, output_signature=INT),
        TypeError,
        "The `output_types` argument can not be used together with the `output_signature`",
    ),
    "generator: shapes": (
        lambda: Dataset.from_generator(list, output_shapes=(), output_signature=INT),
        TypeError,
        "The `output_shapes` argument can not be used together with the `output_signature`",
    ),
    "at: beyond the end": (lambda: TEN.at(10), IndexError, "Index out of range: at() got 10"),
    "at: before the start": (lambda: TEN.at(-1), IndexError, "Index out of range: at() got -1"),
    "list: empty": (
        lambda: Dataset.from_list([]),
        ValueError,
        "`elements` should not be empty.",
    ),
    "pad_to_cardinality: no dict": (
        lambda: TEN.pad_to_cardinality(12),
        ValueError,
        "requires its input dataset to be a dictionary.",
    ),
    "pad_to_cardinality: unknown": (
        lambda: TEN.filter(bool).pad_to_cardinality(12),
        ValueError,
        "must have a known cardinality",
    ),
    "pad_to_cardinality: few": (
        lambda: TEN.pad_to_cardinality(2),
        ValueError,
        "less than the target cardinality (2)",
    ),
    "csv: columns": (
        lambda: CsvDataset("a", [0], select_cols=[0], exclude_cols=[1]),
        InvalidArgumentError,
        "Either select_cols or exclude_cols should be empty",
    ),
    "csv: number of columns": (
        lambda: CsvDataset("a", [0], select_cols=[0, 1]),
        InvalidArgumentError,
        "select_cols should match output size",
    ),
    "csv: order of columns": (
        lambda: CsvDataset("a", [0, 0], select_cols=[1, 0]),
        InvalidArgumentError,
        "should be strictly increasing indices",
    ),
    "csv: delimiter": (
        lambda: CsvDataset("a", [0], field_delim=",,"),
        InvalidArgumentError,
        "field_delim should be only 1 char",
    ),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_wrong_argument_is_an_error_of_tf_data(name: str) -> None:
    """A wrong argument has tf.data's class of error, and its words beside ours."""
    make, kind, words = ARGUMENTS[name]
    with pytest.raises(kind, match=re.escape(words)):
        make()


@pytest.mark.parametrize("name", REFUSED)
def test_what_declared_specs_show_is_refused_at_the_call(name: str) -> None:
    """The call that adds the operation fails, with tf.data's class and words."""
    make, kind, words = REFUSED[name]
    with pytest.raises(kind, match=re.escape(words)):
        make()


def test_an_unknown_spec_refuses_nothing() -> None:
    """Without a known spec, any operation is accepted, and nothing runs."""

    def never(*arguments: Any) -> Any:
        raise AssertionError(arguments)

    unknown = TEN.map(never)
    for build in (
        lambda: unknown.map(lambda x, y: x).filter(lambda x: x),
        lambda: unknown.padded_batch(2, padded_shapes=[1], padding_values="x"),
        lambda: TextLineDataset(unknown),
        lambda: Dataset.choose_from_datasets([unknown, TEN], unknown),
        lambda: Dataset.sample_from_datasets([unknown, TEN], unknown),
        lambda: unknown.unique().unbatch().rebatch(2),
        lambda: unknown.group_by_window(lambda x, y: 0, lambda key, group: group, 2),
    ):
        build()


class Callable1:
    """An object that is called, and one of its methods."""

    def __call__(self, *arguments: Any) -> Any:
        return arguments

    def method(self, x: Any) -> Any:
        return x


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        return function(*arguments, "injected")

    return call


@pytest.mark.parametrize(
    ("function", "given"),
    [
        (lambda *parts: parts, 5),
        (lambda x, y=1: x, 1),
        (lambda x, y=1: x, 2),
        (lambda x, *rest, size=3, **named: x, 4),
        (functools.partial(lambda x, y: x, 1), 1),
        (functools.partial(lambda x, y: x, y=1), 1),
        (Callable1().method, 1),
        (Callable1(), 7),
        (wrapped(lambda x, token: x), 1),
        (int, 1),
        (max, 2),
        (np.add, 2),
        (dict.get, 3),
        (TensorSpec, 2),
    ],
)
def test_functions_that_may_accept_their_arguments(
    function: Callable[..., Any], given: int
) -> None:
    """Defaults, partials, methods and wrappers count as Python counts them, and other
    callables are not judged.
    """
    check_call("map_func", function, given)
    check_element_call("map_func", function, (INT,) * given)


class OfOne:
    """An object that is called with an argument."""

    def __call__(self, x: Any) -> Any:
        return x


@pytest.mark.parametrize("function", [Callable1().method, OfOne()])
def test_an_instance_is_no_argument(function: Callable[..., Any]) -> None:
    """A bound method, and an object that is called, count the arguments after the
    instance.
    """
    check_call("map_func", function, 1)
    with pytest.raises(TypeError, match="takes 1 positional argument but 2 were given"):
        check_call("map_func", function, 2)


@pytest.mark.parametrize("read", [lambda x: CsvDataset(x, [0]), Dataset.list_files])
def test_building_does_not_run_a_dataset_of_names(read: Callable[[Any], Any]) -> None:
    """A dataset of names is refused where names must be known, not run, which might
    never end.
    """
    with pytest.raises(TypeError, match="of type Dataset"):
        read(Dataset.from_tensors("name").repeat())


@pytest.mark.parametrize(
    "source", [Dataset.from_tensors, lambda one: Dataset.from_tensor_slices([one])]
)
def test_building_does_not_run_datasets_in_elements(source: Callable[[Any], Any]) -> None:
    """The spec of a dataset of datasets follows from the inner ones. Their functions
    run only when ``element_spec`` is asked for.
    """
    ran: list[int] = []
    outer = source(TEN.map(lambda x: ran.append(int(x)) or x))
    outer.flat_map(lambda inner: inner).padded_batch(2)
    assert ran == []
    assert outer.element_spec == DatasetSpec(INT)
    assert ran == [0]


def test_datasets_may_be_alike_or_unknown() -> None:
    """Elements of equal specs may be joined, and elements of unknown specs."""
    texts = Dataset.from_tensor_slices(["a"])
    for pair in ((UNKNOWN, TEN), (TEN, UNKNOWN), (TEN, TEN), (UNKNOWN, UNKNOWN)):
        check_alike("f()", [dataset.node for dataset in pair])
    with pytest.raises(TypeError, match=r"f\(\) joins datasets .*dtype int64 and"):
        check_alike("f()", [TEN.node, UNKNOWN.node, texts.node])


def test_building_costs_the_same_at_any_depth() -> None:
    """A call asks the rules of its own operation alone, however long the pipeline
    is.
    """
    asked = 0

    class Counted(Take):
        def spec(self, infer: Any) -> Any:
            nonlocal asked
            asked += 1
            return super().spec(infer)

    dataset = TEN
    for _ in range(100):
        dataset = Dataset(Counted(inputs=(dataset.node,), count=-1)).filter(bool)
    assert asked <= 200


def as_text(*arguments: Any) -> str:
    return "text"


def as_float(x: Any) -> float:
    return 1.5


def as_nothing(*arguments: Any) -> None:
    return None


def as_number(*arguments: Any) -> int:
    return 7


def as_bool(x: Any) -> bool:
    return True


@functools.wraps(as_number)
def wrapper(x: Any) -> Any:
    return Dataset.range(2)


WRONG: list[tuple[str, Callable[[Any], Any], list[Any]]] = [
    ("map_func", TEN.flat_map, [as_text, as_nothing, int, functools.partial(as_number)]),
    ("map_func", TEN.interleave, [as_text, as_float, as_number]),
    ("reduce_func", lambda f: TEN.group_by_window(as_number, f, 2), [as_text, as_number]),
    ("window_size_func", lambda f: TEN.group_by_window(as_number, max, None, f), [as_text]),
    ("key_func", lambda f: TEN.group_by_window(f, max, 2), [as_text, as_bool]),
    ("key_func", lambda f: TEN.group_by_reducer(f, REDUCER), [as_text, as_float, str]),
    ("scan_func", lambda f: TEN.scan(0, f), [as_text, as_number, as_nothing]),
    ("predicate", TEN.filter, [as_text, as_number]),
    ("predicate", TEN.take_while, [as_nothing]),
    ("class_func", lambda f: TEN.rejection_resample(f, [1.0]), [as_text]),
    ("shard_func", lambda f: TEN.snapshot("a", shard_func=f), [as_text, as_bool]),
    ("shard_func", lambda f: TEN.save("a", shard_func=f), [as_float]),
    ("reader_func", lambda f: TEN.snapshot("a", reader_func=f), [as_text, as_number]),
]


@pytest.mark.parametrize(("name", "call", "functions"), WRONG)
def test_a_function_that_says_that_it_returns_something_else_is_refused(
    name: str, call: Callable[[Any], Any], functions: list[Any]
) -> None:
    """The call refuses a wrong result that an annotation, or a class, promises."""
    for one in functions:
        with pytest.raises(TypeError, match=rf"Invalid `{name}`: it must return .* says that"):
            call(one)


def test_a_reader_is_called_when_the_snapshot_is_built() -> None:
    """The call refuses a ``reader_func`` that returns no dataset, before any pass."""
    with pytest.raises(TypeError, match="what reader_func returns must be a Dataset, got 3"):
        TEN.snapshot("a", reader_func=lambda datasets: 3)


@pytest.mark.parametrize(
    "build",
    [
        lambda: TEN.flat_map(wrapper),
        lambda: TEN.flat_map(lambda x: 3),
        lambda: TEN.filter(as_bool).filter(bool),
        lambda: TEN.group_by_reducer(as_number, REDUCER),
        lambda: TEN.map(as_text),
        lambda: TEN.interleave(TextLineDataset),
    ],
)
def test_functions_that_may_return_what_is_needed(build: Callable[[], Any]) -> None:
    """A function that says nothing or the truth, or wraps another one, is accepted."""
    assert isinstance(build(), Dataset)
