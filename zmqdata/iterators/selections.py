"""Iterators that pass on or drop single elements: shard, take_while, unique,
ignore_errors, assert_cardinality.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
from typing import Any

import numpy as np

from zmqdata.elements.specs import INFINITE_CARDINALITY
from zmqdata.errors import (
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    PipelineError,
)
from zmqdata.failures.exceptions import FAILURES
from zmqdata.iterators.base import Context, ElementIterator, Name, Namer, failure, make_iterator
from zmqdata.iterators.inputs import decider_for, followed, forgiving_input, input_iterator
from zmqdata.iterators.naming import unnamed
from zmqdata.iterators.results import as_bool
from zmqdata.iterators.transforms import UnaryIterator
from zmqdata.nodes.base import Node
from zmqdata.nodes.options import WithOptions
from zmqdata.nodes.selections import (
    AssertCardinality,
    IgnoreErrors,
    Shard,
    StaticShard,
    TakeWhile,
    Unique,
)

_log = logging.getLogger("zmqdata")
_CHUNK = 4096  # bytes of digests in a chunk; chunks are shared between states


def unfilled_hint(node: Shard) -> FailedPreconditionError:
    """Return the error for reading a shard whose number and index are still hints."""
    return FailedPreconditionError(
        f"{node.label} can only be used in tf.data service with `ShardingPolicy.HINT` processing "
        "mode. Distribute the dataset with that policy, or give shard() the number of shards and "
        "the index of this shard"
    )


def too_few_files(node: Node, count: int, num_shards: int) -> InvalidArgumentError:
    """Return the error for sharding by file with fewer files than shards."""
    return InvalidArgumentError(
        f"{node.label} has {count} file{'s' * (count != 1)}, not enough for the required "
        f"{num_shards} shards/workers. Divide the data among more files, use fewer workers, or "
        "distribute the dataset with ShardingPolicy.DATA or DYNAMIC"
    )


@make_iterator.register(Shard)
class ShardIterator(UnaryIterator):
    """Selects every n-th position of its input. A failed element also has a position,
    so that all shards count alike.
    """

    _kept = ("_to_skip",)
    _node: Shard

    def __init__(self, node: Shard, context: Context) -> None:
        super().__init__(node, context)
        if node.is_hint:
            raise unfilled_hint(node)
        self._num_shards = node.num_shards
        self._to_skip = node.index

    def __next__(self) -> Any:
        while self._to_skip:
            self._to_skip -= 1
            next(self._input)
        self._to_skip = self._num_shards - 1
        return next(self._input)

    def rewind(self, repetition: int) -> bool:
        self._to_skip = self._node.index
        return self._input.rewind(repetition)


@make_iterator.register(StaticShard)
class StaticShardIterator(ShardIterator):
    """Selects the shard of a worker. To count file names, it pulls one for each shard
    before it yields its own.
    """

    def __init__(self, node: StaticShard, context: Context) -> None:
        # All workers run the operations below the shards with the same seed; otherwise
        # the shards would not be parts of the same whole.
        same = context.changed(task=0)
        if node.seed is not None:
            same = same.changed(seed=node.seed)
        super().__init__(node, same)
        self._shard = node
        self._counted = 0 if node.of_files else node.num_shards
        self._ended = False
        self._inner_name = self._input.namer() or unnamed
        self._first: Name | None = None  # name of the first element, while it is the last one

    def namer(self) -> Namer | None:
        return self._name

    def _name(self) -> Name | None:
        return self._first or self._inner_name()

    def __next__(self) -> Any:
        if self._ended:
            raise StopIteration
        if self._counted == self._num_shards:
            self._first = None
            return super().__next__()
        while self._counted < self._shard.index:
            self._count()
        if self._counted == self._shard.index:
            element = self._count()
            self._first = self._inner_name()
            self._count_others()
            return element
        self._count_others()
        return super().__next__()

    def _count(self) -> Any:
        """Return the next of the first ``num_shards`` elements. A failed element also
        counts.
        """
        try:
            element = next(self._input)
        except StopIteration:
            self._ended = True
            if self._counted:
                # Without any file no shard is short of files, as in tf.data.
                raise too_few_files(self._node.input, self._counted, self._num_shards) from None
            raise
        except Exception:
            self._counted += 1
            raise
        self._counted += 1
        return element

    def _count_others(self) -> None:
        while self._counted < self._num_shards:
            with contextlib.suppress(DataLossError, PipelineError):
                # The error is raised in the shard that the element belongs to.
                self._count()

    def rewind(self, repetition: int) -> bool:
        self._counted = 0 if self._shard.of_files else self._num_shards
        self._ended = False
        return super().rewind(repetition)

    def state(self) -> Any:
        return [self._counted, self._ended, super().state()]

    def restore(self, state: Any) -> None:
        self._counted, self._ended, inner = state
        super().restore(inner)


class EndingIterator(UnaryIterator):
    """Base of the iterators that may end before their input does."""

    _kept = ("_ended",)
    _ended = False


@make_iterator.register(TakeWhile)
class TakeWhileIterator(EndingIterator):
    """Ends for good at the first element for which the predicate is false."""

    def __init__(self, node: TakeWhile, context: Context) -> None:
        super().__init__(node, context)
        self._predicate = followed(node, context, self._input, node.predicate)

    def __next__(self) -> Any:
        if self._ended:
            raise StopIteration
        element = next(self._input)
        self._strand.place = self._own_place
        try:
            kept = self._predicate(*element) if type(element) is tuple else self._predicate(element)
            if kept is not True and kept is not False:
                kept = as_bool(kept)
        except FAILURES as error:
            raise failure(self._node, error) from error
        if kept:
            return element
        self._ended = True
        raise StopIteration

    def rewind(self, repetition: int) -> bool:
        self._ended = False
        return self._input.rewind(repetition)


@make_iterator.register(Unique)
class UniqueIterator(UnaryIterator):
    """Drops elements that came before.

    Its state holds 16 bytes for each distinct element: the number itself, or a digest.
    Fewer bytes would not distinguish all elements.
    """

    def __init__(self, node: Unique, context: Context) -> None:
        super().__init__(node, context)
        self._seen: set[bytes] = set()
        self._chunks: list[bytes] = []
        self._rest = bytearray()

    def __next__(self) -> Any:
        seen = self._seen
        for element in self._input:
            self._strand.place = self._own_place
            try:
                key = identity(element)
            except FAILURES as error:
                raise failure(self._node, error) from error
            if key not in seen:
                seen.add(key)
                self._note(key)
                return element
        raise StopIteration

    def rewind(self, repetition: int) -> bool:
        self._seen.clear()
        self._chunks.clear()
        self._rest.clear()
        return self._input.rewind(repetition)

    def _note(self, key: bytes) -> None:
        self._rest += key
        if len(self._rest) >= _CHUNK:
            self._chunks.append(bytes(self._rest))
            self._rest.clear()

    def state(self) -> Any:
        return [list(self._chunks), bytes(self._rest), self._input.state()]

    def restore(self, state: Any) -> None:
        chunks, rest, inner = state
        self._chunks, self._rest = list(chunks), bytearray(rest)
        for part in (*chunks, rest):
            self._seen.update(part[start : start + 16] for start in range(0, len(part), 16))
        self._input.restore(inner)


def identity(element: Any) -> bytes:
    """Return 16 bytes that are the same for equal elements.

    Raises:
        TypeError: the element is not an array or scalar of integers, bools or text.

    >>> identity(np.int64(5)) == identity(5), identity("a") == identity(b"a")
    (True, False)
    """
    if isinstance(element, (int, np.integer)):
        return int(element).to_bytes(16, "little", signed=True)
    if isinstance(element, str):
        return hashlib.blake2b(
            element.encode("utf-8", "surrogatepass"), digest_size=16, key=b"str"
        ).digest()
    if isinstance(element, bytes):
        return hashlib.blake2b(element, digest_size=16, key=b"bytes").digest()
    if isinstance(element, (np.ndarray, np.bool_)) and np.asarray(element).dtype.kind in "biuUS":
        array = np.asarray(element)
        if array.ndim == 0:
            return identity(array.item())
        content = repr(array.tolist()).encode() if array.dtype.kind in "US" else array.tobytes()
        key = f"{array.dtype.kind}{array.shape}".encode()
        return hashlib.blake2b(key + b"\0" + content, digest_size=16, key=b"array").digest()
    kind = (
        f"an array of dtype {element.dtype}"
        if isinstance(element, np.ndarray)
        else f"a {type(element).__name__}"
    )
    raise TypeError(
        "unique() compares integers and texts, in elements that are one array or scalar; it got "
        f"{kind}. Make such an element with map(), for example a key, or a float as text"
    )


@make_iterator.register(IgnoreErrors)
class IgnoreErrorsIterator(UnaryIterator):
    """Skips elements that failed in a user's function or through damage to a file;
    other errors concern all elements.

    Its state holds the number of the next element and the input's state.
    """

    _kept = ("_number",)

    def __init__(self, node: IgnoreErrors, context: Context) -> None:
        self._node = node
        self._input = forgiving_input(node, context)
        self._decider = decider_for(node, context)
        self._log_warning = node.log_warning
        self._number = 0

    def __next__(self) -> Any:
        while True:
            number = self._number
            try:
                element = next(self._input)
            except (PipelineError, DataLossError) as error:
                if error.final:
                    raise
                self._number = number + 1
                self._leave_out(number, error)
                continue
            self._number = number + 1
            if self._decider is None:
                return element
            if not self._decider.is_left_out(number):
                self._decider.keep(number)
                return element

    def rewind(self, repetition: int) -> bool:
        self._number = 0
        return self._decider is None and self._input.rewind(repetition)

    def _leave_out(self, number: int, error: Exception) -> None:
        if self._decider is not None:
            if self._decider.was_kept(number):
                raise self._decider.loss(number, error) from error
            self._decider.leave_out(number)
        if self._log_warning:
            _log.warning("%s left out an element: %s", self._node.label, error)


@make_iterator.register(AssertCardinality)
class AssertCardinalityIterator(EndingIterator):
    """Counts its input; if the number differs from the expected one, it fails once and
    ends.
    """

    def __init__(self, node: AssertCardinality, context: Context) -> None:
        super().__init__(node, context)
        self._expected = node.expected
        self._count = 0

    def __next__(self) -> Any:
        if self._ended:
            raise StopIteration
        try:
            element = next(self._input)
        except StopIteration:
            self._ended = True
            if self._count != self._expected:
                raise self._refusal(f"only {_elements(self._count)}") from None
            raise
        self._count += 1
        if self._count > self._expected != INFINITE_CARDINALITY:
            self._ended = True
            raise self._refusal(f"at least {_elements(self._count)}")
        return element

    def rewind(self, repetition: int) -> bool:
        self._count, self._ended = 0, False
        return self._input.rewind(repetition)

    def _refusal(self, came: str) -> FailedPreconditionError:
        return FailedPreconditionError(
            f"Input dataset was expected to contain {_elements(self._expected)} but contained "
            f"{came}: {self._node.label}. In a split dataset, each worker sees only a part"
        )

    def state(self) -> Any:
        return [self._count, super().state()]

    def restore(self, state: Any) -> None:
        self._count, inner = state
        super().restore(inner)


def _elements(count: int) -> str:
    if count == INFINITE_CARDINALITY:
        return "an infinite number of elements"
    return "1 element" if count == 1 else f"{count} elements"


@make_iterator.register(WithOptions)
def make_with_options_iterator(node: WithOptions, context: Context) -> ElementIterator:
    """Return the iterator of the input: the caller that runs a pipeline puts all of its
    options in the context.
    """
    return input_iterator(node, context)
