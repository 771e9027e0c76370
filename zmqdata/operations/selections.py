"""Operations that pass on some elements or all: shard, unique, ignore_errors and
with_options.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from zmqdata.elements.specs import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY
from zmqdata.elements.unpadded import dtype_in_spec
from zmqdata.errors import (
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    PipelineError,
)
from zmqdata.failures.exceptions import FAILURES, formatted, text_of
from zmqdata.iterators.base import ElementIterator, make_iterator
from zmqdata.iterators.calling import CALLED_FOR, failure
from zmqdata.iterators.context import Context, Name, Namer
from zmqdata.iterators.inputs import UnaryIterator, decider_for, forgiving_input, input_iterator
from zmqdata.iterators.naming import unnamed
from zmqdata.iterators.quarantine import LeftOut
from zmqdata.iterators.random_access import element_at, name_at, refusal
from zmqdata.nodes.base import NOTHING_AGAIN, SHARD_HINT, Node, Unary
from zmqdata.nodes.options import Settings
from zmqdata.peeking import peek


@dataclass(frozen=True, kw_only=True)
class Shard(Unary):
    """Yields every ``num_shards``-th element, from number ``index`` on."""

    num_shards: int
    """Number of shards, or ``SHARD_HINT``."""
    index: int
    """Index of the shard, or ``SHARD_HINT``."""
    operation: ClassVar[str] = "shard"
    restoring: ClassVar[str] = NOTHING_AGAIN

    @property
    def argument(self) -> str:
        return "SHARD_HINT, SHARD_HINT" if self.is_hint else f"{self.num_shards}, {self.index}"

    @property
    def is_hint(self) -> bool:
        return self.num_shards == SHARD_HINT

    @property
    def holds_only(self) -> bool:
        return self.is_hint  # which only the service can run

    @property
    def cardinality(self) -> int:
        count = self.input.cardinality
        if count < 0:
            return count
        if self.is_hint:
            return UNKNOWN_CARDINALITY
        return len(range(self.index, count, self.num_shards))


@dataclass(frozen=True, kw_only=True)
class StaticShard(Shard):
    """Shard of a worker, inserted into a pipeline by the service under a static
    sharding policy.
    """

    of_files: bool = False
    """True if its elements are file names, of which each shard needs at least one."""
    seed: int | None = None
    """Seed of all operations below it, so that random orders there are the same for all
    shards; None: the seed of the task.
    """


@dataclass(frozen=True, kw_only=True)
class Unique(Unary):
    """Yields the elements that did not come before."""

    operation: ClassVar[str] = "unique"
    cardinality: ClassVar[int] = UNKNOWN_CARDINALITY
    restoring: ClassVar[str] = NOTHING_AGAIN
    state_growth: ClassVar[str] = "16 bytes for each distinct element"


@dataclass(frozen=True, kw_only=True)
class IgnoreErrors(Unary):
    """Yields the elements that do not fail."""

    log_warning: bool = False
    """True to log each element that is left out."""
    operation: ClassVar[str] = "ignore_errors"
    restoring: ClassVar[str] = NOTHING_AGAIN
    own_state: ClassVar[int] = 0

    @property
    def cardinality(self) -> int:
        count = self.input.cardinality
        return count if count in (0, INFINITE_CARDINALITY) else UNKNOWN_CARDINALITY


@dataclass(frozen=True, kw_only=True)
class SkipUnreadable(IgnoreErrors):
    """Yields the elements of a source that can be read, and lists the others in the
    quarantine.
    """

    operation: ClassVar[str] = "on_error='skip'"


@dataclass(frozen=True, kw_only=True)
class WithOptions(Unary):
    """Yields its input, and sets options for the whole pipeline."""

    settings: Settings
    """The options to set."""
    operation: ClassVar[str] = "with_options"
    holds_only: ClassVar[bool] = True
    is_one_to_one: ClassVar[bool] = True
    restoring: ClassVar[str] = NOTHING_AGAIN
    own_state: ClassVar[int] = 0

    @property
    def set_options(self) -> Settings:
        return self.settings

    @property
    def argument(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.settings)


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
    array = np.asarray(element) if isinstance(element, (np.ndarray, np.bool_)) else None
    code = "" if array is None else dtype_in_spec(array).kind
    if array is not None and code in "biuUS":
        if array.ndim == 0:
            return identity(array.item())
        content = repr(array.tolist()).encode() if code in "US" else array.tobytes()
        key = f"{code}{array.shape}".encode()
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
        self._quarantine = None
        if isinstance(node, SkipUnreadable):
            self._quarantine, self._place = context.quarantine, context.place
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
        if self._quarantine is not None:
            cause = error.__cause__ or error
            where = peek(cause, CALLED_FOR, "")
            reason = f"{where and f'{where}: '}{type(cause).__name__}: {text_of(cause)}"
            split = self._input.current_split()
            label, text = self._node.input.label, formatted(error)
            self._quarantine.append(LeftOut(number, label, reason, text, split, self._place))
        if self._log_warning:
            _log.warning("%s left out an element: %s", self._node.label, error)


@make_iterator.register(WithOptions)
def make_with_options_iterator(node: WithOptions, context: Context) -> ElementIterator:
    """Return the iterator of the input: the caller that runs a pipeline puts all of its
    options in the context.
    """
    return input_iterator(node, context)


@element_at.register
def _(node: Shard, index: int) -> Any:
    if node.is_hint:
        raise refusal(node, index)
    return element_at(node.input, node.index + index * node.num_shards)


@name_at.register
def _(node: Shard, index: int) -> Name:
    return name_at(node.input, node.index + index * node.num_shards)
