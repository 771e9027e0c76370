"""``zmqdata.tensorflow``: a dataset as a ``tf.data.Dataset``: ``make test-torch``."""

from __future__ import annotations

import doctest
import gc
import importlib.util
import os
import subprocess
import sys
from collections import namedtuple
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.elements.attrs_classes import Marked
from zmqdata import Dataset, LocalCluster, RaggedTensor, TensorSpec, distribute
from zmqdata.errors import InvalidArgumentError
from zmqdata.testing.cluster import no_leaks

if importlib.util.find_spec("tensorflow") is None:
    pytest.skip("tensorflow is not installed", allow_module_level=True)
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import tensorflow as tf

import zmqdata.tensorflow
from zmqdata.tensorflow import to_tf_dataset

pytestmark = pytest.mark.timeout(300)
Pair = namedtuple("Pair", "b a")


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """A cluster of two worker processes."""
    with LocalCluster(num_workers=2) as made:
        yield made


def elements_of(dataset: Any) -> list[Any]:
    return list(dataset.as_numpy_iterator())


def test_examples_of_the_docstrings() -> None:
    """Each example of the module gives what is written below it."""
    ran = doctest.testmod(zmqdata.tensorflow)
    assert (ran.failed, ran.attempted) == (0, 4)


def test_the_spec_is_the_signature() -> None:
    """Shapes and dtypes are those of ``element_spec``, in the same nesting."""
    element = {"b": np.ones((2, 3), np.float32), "a": (np.uint8(1), True, "text", b"bytes")}
    made = to_tf_dataset(Dataset.from_list([element] * 5).batch(2))
    assert made.element_spec == {
        "b": tf.TensorSpec((None, 2, 3), tf.float32),
        "a": (
            tf.TensorSpec((None,), tf.uint8),
            tf.TensorSpec((None,), tf.bool),
            tf.TensorSpec((None,), tf.string),
            tf.TensorSpec((None,), tf.string),
        ),
    }
    assert list(made.element_spec) == ["b", "a"]
    batches = elements_of(made)
    assert [len(batch["b"]) for batch in batches] == [2, 2, 1]
    assert batches[0]["a"][2].tolist() == [b"text"] * 2


@pytest.mark.parametrize("drop", [False, True])
def test_lengths_of_batches(drop: bool) -> None:
    """The first axis is known where ``drop_remainder`` makes it so."""
    made = to_tf_dataset(Dataset.range(7).batch(3, drop_remainder=drop))
    assert made.element_spec == tf.TensorSpec((3 if drop else None,), tf.int64)


@pytest.mark.parametrize("dtype", [*"?bBhHiIqQefdFD", ">i4", ">f8", "bfloat16", "int4"])
def test_dtypes(dtype: str) -> None:
    """Each dtype of both libraries keeps its values."""
    import ml_dtypes

    made = np.dtype(getattr(ml_dtypes, dtype, dtype))
    array = np.array([0, 1, 1]).astype(made)
    (got,) = to_tf_dataset(Dataset.from_tensors(array))
    assert got.dtype == tf.as_dtype(made.newbyteorder("="))
    assert got.numpy().tolist() == array.tolist()


@pytest.mark.parametrize("text", ["", "é", "a\0", "日本"])
def test_texts_are_utf8_strings(text: str) -> None:
    """Texts and bytes keep each character, also NUL at the end of single ones."""
    single = to_tf_dataset(Dataset.from_list([(text, text.encode())]))
    assert elements_of(single) == [(text.encode(),) * 2]
    if not text.endswith("\0"):
        several = to_tf_dataset(Dataset.from_list([text, "b"]).batch(2))
        assert elements_of(several)[0].tolist() == [text.encode(), b"b"]


def test_structures_stay() -> None:
    """Namedtuples, classes of attrs, empty containers, numbers of Python and None are
    what they were.
    """
    element = Pair({"z": 1, "n": None}, (2.5, (), Marked(3, 4)))
    made = to_tf_dataset(Dataset.from_list([element]))
    assert made.element_spec.b["n"] == tf.NoneTensorSpec()
    (got,) = made
    assert type(got).__name__ == "Pair"
    assert (int(got.b["z"]), got.b["n"], float(got.a[0]), got.a[1]) == (1, None, 2.5, ())
    assert type(got.a[2]) is Marked
    assert int(got.a[2].y) == 4


@pytest.mark.parametrize("splits", [np.int32, np.int64])
def test_ragged_tensors_are_ragged_tensors(splits: Any) -> None:
    """Rows, inner axes, texts and the dtype of splits stay, at each depth."""
    rows = [[1, 2], [], [3]]
    ragged = Dataset.from_list(rows).ragged_batch(2, row_splits_dtype=splits)
    made = to_tf_dataset(ragged)
    assert made.element_spec == tf.RaggedTensorSpec((None, None), tf.int64, 1, splits)
    assert [batch.to_list() for batch in made] == [[[1, 2], []], [[3]]]
    deep = RaggedTensor(RaggedTensor(np.array(["a", "b"]), [0, 1, 1, 2]), [0, 2, 3])
    (got,) = to_tf_dataset(Dataset.from_tensors({"deep": deep}))
    assert got["deep"].to_list() == [[[b"a"], []], [[b"b"]]]


@pytest.mark.parametrize(
    ("dataset", "count"),
    [
        (Dataset.range(7).batch(2), 4),
        (Dataset.range(0), 0),
        (Dataset.range(7).repeat(), tf.data.INFINITE_CARDINALITY),
        (Dataset.range(7).filter(lambda x: True), tf.data.UNKNOWN_CARDINALITY),
    ],
    ids=["known", "empty", "infinite", "unknown"],
)
def test_cardinality(dataset: Dataset, count: int) -> None:
    """It is asserted where it is known."""
    assert int(to_tf_dataset(dataset).cardinality()) == count


def test_operations_of_tensorflow_go_on() -> None:
    """The result is a dataset like any other, also with reading ahead and in a
    function.
    """
    made = to_tf_dataset(Dataset.range(100)).map(lambda x: x * 2).batch(10).prefetch(2)

    @tf.function
    def total(dataset: Any) -> Any:
        return dataset.reduce(tf.constant(0, tf.int64), lambda sum, x: sum + tf.reduce_sum(x))

    assert int(total(made)) == 9900


# --- what is refused


@pytest.mark.parametrize(
    ("dataset", "words"),
    [
        (Dataset.range(2).map(lambda i: {"o": object()}), r"element\['o'\] has the spec .*output_spec="),
        (Dataset.range(4).window(2), "element is a dataset.*flat_map"),
        (Dataset.from_tensor_slices(np.array(["2020-01-01"], "M8[D]")), r"element is datetime64\[D\].*int64"),
        (Dataset.from_tensors((np.longdouble(1),)), r"element\[0\] is float128.*astype"),
        (Dataset.from_tensors(np.zeros(2, [("a", "i4")])), "a dict of arrays"),
        (Dataset.range(2).map(lambda i: (None, ())), "the elements hold no values"),
    ],
    ids=["object", "window", "date", "longdouble", "fields", "nothing"],
)  # fmt: skip
def test_specs_that_tensorflow_lacks(dataset: Dataset, words: str) -> None:
    """The error names the leaf and the remedy."""
    with pytest.raises(TypeError, match=words):
        to_tf_dataset(dataset)


def test_an_unknown_spec() -> None:
    """Without an element there is no spec, and the error says how to declare it."""
    with pytest.raises(InvalidArgumentError, match="output_spec="):
        to_tf_dataset(Dataset.range(0).map(lambda x: x))
    declared = Dataset.range(0).map(lambda x: x, output_spec=TensorSpec((), np.int64))
    assert elements_of(to_tf_dataset(declared)) == []
    with pytest.raises(TypeError, match=r"ds must be a Dataset, got \[1\]"):
        to_tf_dataset([1])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("late", "words"),
    [
        (lambda: 2.5, r"dtype=float64\) in an element, and the spec says .*int64.*output_spec="),
        (lambda: np.int32(1), "dtype=int32"),
        (lambda: np.array([1]), r"shape=\(1,\)"),
        (lambda: None, "NoneTensorSpec"),
        (lambda: "text", "dtype=str"),
        (lambda: (1, 2), "an element is nested as"),
        (lambda: RaggedTensor([1], [0, 1]), "RaggedTensorSpec"),
        (lambda: np.ma.array(1, mask=True), "masked array"),
    ],
    ids=["float", "int32", "axis", "none", "text", "nesting", "ragged", "masked"],
)
def test_elements_that_do_not_match_are_not_cast(late: Any, words: str) -> None:
    """Another dtype, shape or nesting than the first element's is an error, where
    TensorFlow would cast.
    """
    made = to_tf_dataset(Dataset.range(3).map(lambda i: late() if i == 1 else int(i)))
    elements = iter(made)
    assert int(next(elements)) == 0
    with pytest.raises(tf.errors.OpError, match=words):
        next(elements)
    assert int(next(elements)) == 2


def test_errors_of_the_pipeline_have_their_text() -> None:
    """The error has the place and the text, and the elements behind it can be had. The
    pipeline can skip it.
    """

    def fails(i: Any) -> Any:
        if i == 2:
            raise ValueError("asked for")
        return i

    made = to_tf_dataset(Dataset.range(5).map(fails))
    with pytest.raises(tf.errors.OpError, match=r"map\(fails\) at test_tensorflow.*asked for"):
        elements_of(made)
    unknown = Dataset.range(5).filter(lambda i: True).map(fails)
    assert elements_of(to_tf_dataset(unknown).ignore_errors()) == [0, 1, 3, 4]
    skipping = Dataset.range(5).map(fails, on_error="skip")
    assert elements_of(to_tf_dataset(skipping)) == [0, 1, 3, 4]


# --- iterations


def test_each_iteration_is_the_next_repetition(cluster: LocalCluster) -> None:
    """A second pass shuffles anew, and a distributed dataset is read whole each
    time.
    """
    shuffled = to_tf_dataset(Dataset.range(50).shuffle(50).batch(50))
    passes = [elements_of(shuffled)[0].tolist() for _ in range(2)]
    assert passes[0] != passes[1]
    assert sorted(passes[0]) == sorted(passes[1]) == list(range(50))
    far = Dataset.range(60).apply(distribute("distributed_epoch", cluster.target))
    made = to_tf_dataset(far)
    for _ in range(2):
        assert sorted(elements_of(made)) == list(range(60))


def test_leaving_early_closes_the_iterator(cluster: LocalCluster) -> None:
    """An iteration that is left, here or of the service, leaves no thread."""
    here = Dataset.range(100).repeat().prefetch(2)
    far = Dataset.range(100).repeat().apply(distribute("parallel_epochs", cluster.target))
    next(iter(far))  # The threads of the process's sockets stay.
    for dataset in (here, far):
        made = to_tf_dataset(dataset).prefetch(3)
        with no_leaks():
            for number, _ in enumerate(made):
                if number == 3:
                    break
            assert elements_of(made.take(2)) != []
            gc.collect()


def test_two_iterations_at_once() -> None:
    """Each has all elements."""
    made = to_tf_dataset(Dataset.range(10))
    pairs = [(int(one), int(other)) for one, other in zip(made, made, strict=True)]
    assert pairs == [(at, at) for at in range(10)]


def aligned(count: int) -> Any:
    """Return an array of int32 whose memory TensorFlow would share."""
    room = np.zeros(4 * count + 64, np.uint8)
    start = -room.ctypes.data % 64
    return room[start : start + 4 * count].view(np.int32)


def test_no_memory_of_the_pipeline_is_shared() -> None:
    """A function that returns its buffer again changes no tensor that came before, as
    it would without a copy.
    """
    own = aligned(4000)

    def filled(i: Any) -> Any:
        own[:] = i
        return own

    dataset = Dataset.range(3).map(filled)
    assert [int(tensor[0]) for tensor in list(to_tf_dataset(dataset))] == [0, 1, 2]
    signature = tf.TensorSpec((4000,), tf.int32)
    plain = tf.data.Dataset.from_generator(lambda: iter(dataset), output_signature=signature)
    assert [int(tensor[0]) for tensor in list(plain)] == [2, 2, 2]


def test_buffers_of_the_service_are_not_written_again(cluster: LocalCluster) -> None:
    """Large tensors that are kept have the values that they came with."""
    made = Dataset.range(120).map(lambda i: np.full(60_000, i, np.int32))
    far = made.apply(distribute("distributed_epoch", cluster.target))
    kept = list(to_tf_dataset(far))
    firsts = [int(tensor[0]) for tensor in kept]
    assert sorted(firsts) == list(range(120))
    assert all((tensor.numpy() == first).all() for tensor, first in zip(kept, firsts, strict=True))


@pytest.mark.parametrize("seconds", [0, 0.02])
def test_a_program_ends_with_open_iterators(seconds: float) -> None:
    """A program that leaves an iteration open, which TensorFlow reads ahead, ends by
    itself and neither hangs nor aborts.
    """
    code = (
        "import threading, zmqdata\n"
        "from zmqdata.tensorflow import to_tf_dataset\n"
        f"slow = lambda i: (threading.Event().wait({seconds}), i)[1]\n"
        "numbers = zmqdata.Dataset.range(9).repeat().map(slow)\n"
        "left = [iter(to_tf_dataset(ds).prefetch(100)) for ds in (numbers, numbers.prefetch(2))]\n"
        "print([int(next(one)) for one in left])\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (ran.returncode, ran.stdout) == (0, "[0, 0]\n"), ran.stderr
