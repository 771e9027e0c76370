"""Random chains of sources and transformations: how one is built and run with both
libraries, and what must be equal.

A step that TensorFlow's static shapes and dtypes do not allow where it stands is left
out of both chains. What is let pass here is listed in ``docs/tfdata-compatibility.md``.
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
"""Of chains with no more elements it is asked what else can be asked: single elements,
and what they are folded to.
"""
DEADLINE = 120.0
"""Seconds for one chain, of which the slowest takes a few."""
refused: Counter[str] = Counter()
taken: Counter[str] = Counter()
# Behind an assert_cardinality() that fails or a damaged file, TensorFlow's
# ignore_errors() may go on for ever, its window() gets the error many times, and its
# save() now and then takes it for the end. A file of a cache that is written twice at a
# time is an error in both, but at a place that depends on when TensorFlow pulls ahead.
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
    """A chain in both libraries; ``refusal``: what zmqdata alone did not accept."""

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
    if name == "ragged_unbatch":  # leaves of one shape are stacked, and are not ragged then
        return any(0 in leaf.shape.as_list() for leaf in tf.nest.flatten(built.tensor.element_spec))
    return name == "unbatch" and _has_empty_rows(built.tensor)


def _has_empty_rows(dataset: Any) -> bool:
    """Whether unbatch() would end the program: it does for rows without elements, of
    numbers.
    """
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
    """The first elements in comparable form, and how it ended: "end", "more" or an
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
    """In what the two libraries differ on a chain; nothing, if all is well."""
    with _deadline(chain):
        return _differences(build(chain))


@contextmanager
def _deadline(chain: Chain) -> Iterator[None]:
    """Ends the program and names the chain when it takes too long: neither library can
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
    ):  # TensorFlow hands out arrays where all rows are equally long; specs tell the rest
        expected, got = (
            [lists(element) for element in expected],
            [lists(element) for element in got],
        )
    if built.has(*UNORDERED):
        if "more" in (ending, end) or ending.startswith("error"):
            return []
        expected, got = sorted(expected, key=repr), sorted(got, key=repr)
    if expected != got or ending.split(":")[0] != end.split(":")[0]:
        if _is_fault_of_tensorflow(built, ending) or _is_lost_in_a_window(
            built, expected, ending, got, end
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


# --------------------------------------------------------------------------------------
# what is listed as different


def _is_known_refusal(built: Built) -> bool:
    """pad_to_cardinality() needs a spec at once, and behind a function an empty dataset
    has none.
    """
    return built.names[-1].startswith("pad_to_cardinality") and "the pipeline yields none" in str(
        built.refusal
    )


def _is_fault_of_tensorflow(built: Built, ending: str) -> bool:
    # Its shuffle_and_repeat_fusion refuses what shuffle(n).repeat(0) means.
    if "count must be greater than zero or equal to -1" in ending:
        return True
    # Ragged batches of ragged rank 2 with int32 splits.
    if "Expected row_splits Tensor dtype: int32, found: int64" in ending:
        return True
    # It batches ragged batches of equally many rows only.
    if built.has("ragged_batch_batch") and "Cannot batch tensors with different shapes" in ending:
        return True
    # It forgets the shapes of a choice's components, and checks them when something is
    # concatenated.
    return (
        built.has("choose", "sample")
        and "MakeIterator" in ending
        and "Incompatible shapes at component" in ending
    )


def _is_lost_in_a_window(
    built: Built, expected: list[Any], ending: str, got: list[Any], end: str
) -> bool:
    """The error of a last batch that is not full ends its window(), which takes it for
    the end of its input.
    """
    failed = re.match(r"error: PipelineError: (padded_|ragged_)?batch\(", end)
    return (
        failed is not None
        and ending == "end"
        and built.has("window")
        and got == expected[: len(got)]
    )


def _knows_no_numbers(built: Built, refusal: Exception) -> bool:
    """Where at() is not: behind shuffle(), and in what cache() keeps of elements that
    have no numbers themselves.
    """
    return "Random access is not supported for" in str(refusal) and built.has("shuffle", "cache")


# ------------------------------------------------------------------------------- what
# is said and can be asked of it


def _described(built: Built, count: int | None) -> list[str]:
    found = []
    size, expected = int(built.numpy.cardinality()), int(built.tensor.cardinality())
    # zmqdata may know more, if it is right. Behind a function it knows no shapes, and
    # so not how many rows there are.
    more = size == count or (expected < 0 and count is None and size >= 0)
    less = built.learned and size == zmqdata.UNKNOWN_CARDINALITY and expected == count
    if size != expected and not more and not less:
        found.append(f"cardinality: tf {expected}, zmqdata {size} {built.names}")
    theirs = plain_spec(built.tensor.element_spec, built.loose)
    try:
        mine = plain_spec(built.numpy.element_spec, built.loose)
    except Exception as error:
        # What a function returns is found by running it on an element, and there may be
        # none, or it fails.
        return found if built.learned else [*found, f"spec: {type(error).__name__}: {error}"]
    if not (specs_agree(theirs, mine) if built.learned else theirs == mine):
        found.append(f"spec: tf {theirs}, zmqdata {mine} {built.names}")
    return found


def _answer(question: Any) -> tuple[Any, Exception | None]:
    """What comes of it. Threads of an iterator that was dropped let go of their files a
    moment later.
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
    """What differs in the length, a fold, single elements by number, and the only
    element.
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
    """What differs in at(): where TensorFlow has random access zmqdata has it, too, and
    it is the same element.
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
        if outside and not isinstance(refusal, (IndexError, zmqdata.errors.UnimplementedError)):
            return [f"at({index}): tf {error}, zmqdata {mine}, {refusal} {built.names}"]
    return []
