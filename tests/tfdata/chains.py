"""Random chains of sources and transformations, run and compared in both libraries.

Both chains omit a step that TensorFlow's static shapes and dtypes do not allow at its
position. ``docs/tfdata-compatibility.md`` lists the tolerated differences.
"""

from __future__ import annotations

import faulthandler
import os
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

import zmqdata
from tests.tfdata.sides import NUMPY, TENSOR, lists, plain_element, plain_spec, specs_agree
from tests.tfdata.sources import LEARNED, LOOSE, SOURCES
from tests.tfdata.steps import ENDING_NAMES, ENDINGS, STEPS, WEIGHTED, Step

__all__ = ["ENDING_NAMES", "SOURCES", "WEIGHTED", "Chain", "differences", "refused", "taken"]

LIMIT = 600
SHORT = 30
FEW = 40
"""Maximum number of elements for comparing single elements and folds too."""
DEADLINE = 120.0
"""Seconds for one chain; the slowest takes a few."""
refused: Counter[str] = Counter()
taken: Counter[str] = Counter()
# Behind an assert_cardinality() that fails or a damaged file, TensorFlow's
# ignore_errors() may never end. Its window() then raises the error many times, and its
# save() sometimes takes it for the end. A cache file written twice at a time is an
# error in both, but its position depends on TensorFlow's prefetching.
UNSAFE_AFTER = {
    **{
        name: {"assert_cardinality", "records_damaged"}
        for name in ("ignore_errors", "window", "save_load")
    },
    **{
        name: {"cache_file"}
        for name in ("sample", "sample_one", "sample_none", "choose", "choose_rest", "zip_dict")
    },
}
UNORDERED = {"shuffle", "shuffle_repeat", "shuffle_map", "sample"}


@dataclass(frozen=True)
class Chain:
    source: tuple[str, int, int]
    steps: tuple[tuple[str, int, int], ...]
    ending: tuple[str, int, int]


@dataclass
class Built:
    """A chain in both libraries, and the ``refusal`` that only zmqdata raised."""

    tensor: Any
    numpy: Any
    learned: bool = False
    loose: bool = False
    refusal: Exception | None = None
    names: list[str] = field(default_factory=list)

    def has(self, *names: str) -> bool:
        return any(one.split("(")[0].startswith(names) for one in self.names)


def build(chain: Chain) -> Built:
    name, n, m = chain.source
    made = SOURCES[name](n, m)
    built = Built(
        made(TENSOR), made(NUMPY), learned=name in LEARNED, loose=name in LOOSE, names=[name]
    )
    for name, n, m in chain.steps:
        _add(built, STEPS[name], name, n, m)
    name, n, m = chain.ending
    _add(built, ENDINGS[name], name, n, m)
    return built


def _add(built: Built, step: Step, name: str, n: int, m: int) -> None:
    if (
        built.refusal is not None
        or not step.fits(built.tensor.element_spec)
        or _is_unsafe(name, built)
    ):
        return
    try:
        tensor = step.make(TENSOR, built.tensor, n, m)
        tensor.element_spec  # noqa: B018
    except Exception:
        refused[name] += 1
        return
    taken[name] += 1
    built.tensor, built.learned = tensor, built.learned or step.learned
    built.names.append(f"{name}({n}, {m})")
    try:
        built.numpy = step.make(NUMPY, built.numpy, n, m)
    except Exception as error:
        built.refusal = error


def _is_unsafe(name: str, built: Built) -> bool:
    before = {one.split("(")[0] for one in built.names}
    if before & UNSAFE_AFTER.get(name, set()):
        return True
    if name == "ragged_unbatch":  # leaves of one shape are stacked and not ragged
        return any(0 in leaf.shape.as_list() for leaf in tf.nest.flatten(built.tensor.element_spec))
    return name == "unbatch" and _has_empty_rows(built.tensor)


def _has_empty_rows(dataset: Any) -> bool:
    """Return True if unbatch() would crash TensorFlow, as on empty numeric rows."""
    leaves = [leaf for leaf in tf.nest.flatten(dataset.element_spec) if leaf.dtype != tf.string]
    if all(leaf.shape.is_fully_defined() and leaf.shape.num_elements() for leaf in leaves):
        return False
    iterator = iter(dataset.as_numpy_iterator())
    for _ in range(LIMIT):
        try:
            found = [np.asarray(leaf) for leaf in tf.nest.flatten(next(iterator))]
        except StopIteration:
            return False
        except tf.errors.OpError:
            continue
        if any(len(leaf) and not leaf.size and leaf.dtype != object for leaf in found):
            return True
    return False


def elements(dataset: Any, loose: bool) -> tuple[list[Any], str]:
    """Return the first elements in comparable form, and the end: "end", "more" or an
    error.
    """
    found: list[Any] = []
    limit = SHORT if int(dataset.cardinality()) == zmqdata.INFINITE_CARDINALITY else LIMIT
    iterator: Any = None
    while len(found) < limit:
        try:
            iterator = iter(dataset.as_numpy_iterator()) if iterator is None else iterator
            found.append(plain_element(next(iterator), loose))
        except StopIteration:
            return found, "end"
        except Exception as error:
            return found, f"error: {type(error).__name__}: {str(error)[:300]}"
    return found, "more"


def differences(chain: Chain) -> list[str]:
    """Return the differences between both libraries on a chain, empty if none."""
    with _deadline(chain):
        return _differences(build(chain))


@contextmanager
def _deadline(chain: Chain) -> Iterator[None]:
    """Abort the program with the chain's name after the deadline. Neither library can
    be interrupted from outside.
    """

    def end() -> None:
        print(f"\nno end after {DEADLINE:.0f} s: {chain}", file=sys.__stderr__)
        faulthandler.dump_traceback(sys.__stderr__)
        os._exit(1)

    timer = threading.Timer(DEADLINE, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _differences(built: Built) -> list[str]:
    expected, ending = elements(built.tensor, built.loose)
    if built.refusal is not None:
        if ending.startswith("error") or _is_known_refusal(built):
            return []
        return [f"zmqdata refused {built.names}: {type(built.refusal).__name__}: {built.refusal}"]
    got, end = elements(built.numpy, built.loose)
    if built.has(
        "ragged"
    ):  # TensorFlow returns arrays if all rows have equal lengths; specs tell the rest
        expected, got = (
            [lists(element) for element in expected],
            [lists(element) for element in got],
        )
    if built.has(*UNORDERED):
        if "more" in (ending, end) or ending.startswith("error"):
            return []
        expected, got = sorted(expected, key=repr), sorted(got, key=repr)
    if expected != got or ending.split(":")[0] != end.split(":")[0]:
        if (
            _is_fault_of_tensorflow(built, ending)
            or _is_lost_in_a_window(built, expected, ending, got, end)
            or _is_lost_between_windows(built, expected, ending, got)
        ):
            return []
        return [f"{_first_difference(expected, ending, got, end)} {built.names}"]
    found = _described(built, len(got) if end == "end" else None)
    return found + (_asked(built, got) if end == "end" and len(got) <= FEW else [])


def _first_difference(expected: list[Any], ending: str, got: list[Any], end: str) -> str:
    for place, (one, other) in enumerate(zip(expected, got, strict=False)):
        if one != other:
            return f"element {place}: tf {one}, zmqdata {other}"
    return f"tf {len(expected)} elements, then {ending}; zmqdata {len(got)} elements, then {end}"


# ----------------------------------------------------------------- listed differences


def _is_known_refusal(built: Built) -> bool:
    """Return True if zmqdata rejects pad_to_cardinality() for lack of a spec. It needs
    a spec at once, and an empty dataset behind a function has none. Behind a function,
    padded batches have unknown lengths.
    """
    if not built.names[-1].startswith("pad_to_cardinality"):
        return False
    lacks_shape = built.learned and "Give all elements the same shape" in str(built.refusal)
    return lacks_shape or "the pipeline yields none" in str(built.refusal)


def _is_fault_of_tensorflow(built: Built, ending: str) -> bool:
    # TensorFlow's shuffle_and_repeat_fusion rejects the equivalent of
    # shuffle(n).repeat(0).
    if "count must be greater than zero or equal to -1" in ending:
        return True
    # TensorFlow fails on ragged batches of ragged rank 2 with int32 splits.
    if "Expected row_splits Tensor dtype: int32, found: int64" in ending:
        return True
    # TensorFlow batches ragged batches only if they have equally many rows.
    if built.has("ragged_batch_batch") and "Cannot batch tensors with different shapes" in ending:
        return True
    # TensorFlow forgets the shapes of a choice's components and checks them when
    # concatenating.
    return (
        built.has("choose", "sample")
        and "MakeIterator" in ending
        and "Incompatible shapes at component" in ending
    )


def _is_lost_in_a_window(
    built: Built, expected: list[Any], ending: str, got: list[Any], end: str
) -> bool:
    """Return True if TensorFlow's window() swallowed the error of a partial last batch.
    That window() takes the error for the end of its input.
    """
    failed = re.match(r"error: PipelineError: (padded_|ragged_)?batch\(", end)
    return (
        failed is not None
        and ending == "end"
        and built.has("window")
        and got == expected[: len(got)]
    )


def _is_lost_between_windows(
    built: Built, expected: list[Any], ending: str, got: list[Any]
) -> bool:
    """Return True if TensorFlow's window() ended at a bad row that it skips. That
    window() reads an uninitialised flag, so only some errors end it.
    """
    found = re.fullmatch(r"window\((\d+), (\d+)\)", built.names[1])
    size, shift = (int(found[1]), int(found[2])) if found is not None else (0, 0)
    skips = shift % 3 + 1 > size % 4 * (size % 2 + 1) + 1  # the numbers of the step "window"
    is_part = len(expected) < len(got) and expected == got[: len(expected)]
    return skips and built.names[0] == "csv" and ending == "end" and is_part


def _knows_no_numbers(built: Built, refusal: Exception) -> bool:
    """Return True if the chain lacks random access. It does behind shuffle(), and in a
    cache() of elements without numbers.
    """
    return "Random access is not supported for" in str(refusal) and built.has("shuffle", "cache")


# ------------------------------------------------------- cardinalities, specs, answers


def _described(built: Built, count: int | None) -> list[str]:
    found = []
    size, expected = int(built.numpy.cardinality()), int(built.tensor.cardinality())
    # zmqdata may know a cardinality that TensorFlow does not, if it is right. Behind a
    # function it knows no shapes, and so no number of rows.
    more = size == count or (expected < 0 and count is None and size >= 0)
    less = built.learned and size == zmqdata.UNKNOWN_CARDINALITY and expected == count
    if size != expected and not more and not less:
        found.append(f"cardinality: tf {expected}, zmqdata {size} {built.names}")
    theirs = plain_spec(built.tensor.element_spec, built.loose)
    try:
        mine = plain_spec(built.numpy.element_spec, built.loose)
    except Exception as error:
        # zmqdata finds the spec of a function by running it, which fails on errors and
        # on empty datasets.
        return found if built.learned else [*found, f"spec: {type(error).__name__}: {error}"]
    if not (specs_agree(theirs, mine) if built.learned else theirs == mine):
        found.append(f"spec: tf {theirs}, zmqdata {mine} {built.names}")
    return found


def _answer(question: Any) -> tuple[Any, Exception | None]:
    """Return the result of a question, or its exception. It retries while the threads
    of a dropped iterator still hold their files.
    """
    deadline = time.monotonic() + 5
    while True:
        try:
            return question(), None
        except zmqdata.errors.AlreadyExistsError as error:
            if time.monotonic() > deadline:
                return None, error.with_traceback(None)
        except Exception as error:
            return None, error.with_traceback(None)


def _asked(built: Built, got: list[Any]) -> list[str]:
    """Return the differences in length, fold, single elements and
    get_single_element().
    """
    found = []
    if built.numpy.cardinality() == int(built.tensor.cardinality()):
        theirs, mine = (
            _answer(lambda dataset=dataset: len(dataset)) for dataset in (built.tensor, built.numpy)
        )
        if theirs[0] != mine[0] or type(theirs[1]) is not type(mine[1]):
            found.append(f"len(): tf {theirs}, zmqdata {mine} {built.names}")
    if built.has("ragged"):
        return found
    folded, error = _answer(
        lambda: int(built.tensor.reduce(np.int64(0), lambda old, x: old + TENSOR.total(x)))
    )
    mine = _answer(
        lambda: int(built.numpy.reduce(np.int64(0), lambda old, x: old + NUMPY.total(x)))
    )
    if error is None and mine != (folded, None):
        found.append(f"reduce(): tf {folded}, zmqdata {mine} {built.names}")
    if built.has(*UNORDERED):
        return found
    only = [
        _answer(lambda dataset=dataset: dataset.get_single_element())
        for dataset in (built.tensor, built.numpy)
    ]
    if (only[0][1] is None) != (only[1][1] is None) or (len(got) == 1) != (only[1][1] is None):
        found.append(f"get_single_element(): tf {only[0]}, zmqdata {only[1]} {built.names}")
    return found + _asked_by_number(built, got)


def _asked_by_number(built: Built, got: list[Any]) -> list[str]:
    """Return the differences in at(). zmqdata must return the same element in each case
    with random access in TensorFlow.
    """
    for index in sorted({-1, 0, len(got) // 2, len(got) - 1, len(got)}):
        theirs, error = _answer(lambda index=index: TENSOR.at(built.tensor, index))
        mine, refusal = _answer(lambda index=index: NUMPY.at(built.numpy, index))
        if refusal is None and (
            not 0 <= index < len(got) or plain_element(mine, built.loose) != got[index]
        ):
            return [f"at({index}): zmqdata {mine}, while its elements are {got} {built.names}"]
        if error is None and refusal is not None and not _knows_no_numbers(built, refusal):
            return [
                f"at({index}): tf {theirs}, zmqdata {type(refusal).__name__}: {refusal} "
                f"{built.names}"
            ]
        outside = isinstance(error, tf.errors.OutOfRangeError)
        expected: tuple[type[Exception], ...] = (IndexError, zmqdata.errors.UnimplementedError)
        if built.numpy.cardinality() < 0:
            # It is infinite or unknown, and depends on the operation with which error
            # TensorFlow refuses to count.
            expected = (*expected, zmqdata.errors.FailedPreconditionError)
        # With an element, zmqdata knows more than TensorFlow.
        if outside and refusal is not None and not isinstance(refusal, expected):
            return [f"at({index}): tf {error}, zmqdata {mine}, {refusal} {built.names}"]
    return []
