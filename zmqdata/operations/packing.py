"""pack: sequences side by side in rows of a fixed length, with numbers of segments and
positions.

``operations.pack_plan`` decides which segments share a bin. The node describes the
operation. The iterator pulls documents, checks them, and fills the arrays of a bin when
it comes out.

Decision 0058.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import accumulate
from typing import Any, ClassVar

import numpy as np

from zmqdata.elements.casting import cast
from zmqdata.elements.ragged import RaggedTensor, RaggedTensorSpec, array_of_rows, concatenate
from zmqdata.elements.shapes import dtype_name
from zmqdata.elements.specs import ANY_OBJECT, NoneTensorSpec, TensorSpec, spec_of
from zmqdata.elements.unpadded import dtype_in_spec
from zmqdata.elements.untyped import holds_untyped, is_untyped, is_untyped_spec
from zmqdata.errors import FailedPreconditionError, InvalidArgumentError, WrongTypeError
from zmqdata.failures.exceptions import FAILURES
from zmqdata.iterators.base import ElementIterator, make_iterator
from zmqdata.iterators.calling import failure
from zmqdata.iterators.carried import NotPlainError, from_plain, to_plain
from zmqdata.iterators.context import Context
from zmqdata.iterators.element_maker import ElementMaker
from zmqdata.iterators.inputs import input_iterator
from zmqdata.iterators.stacking import stack_leaves
from zmqdata.iterators.states import Bookmark, holds_bookmark, plain_state
from zmqdata.iterators.trail import Trail
from zmqdata.nodes.base import Infer, Unary, in_label, unless_infinite
from zmqdata.operations.pack_plan import OpenBin, Packer, Segment, Sizes, sizes_of

TOKENS = "tokens"
"""Name of an element that is an array."""
SEGMENTS, POSITIONS = "_segment_ids", "_positions"
"""Ends of the names of the arrays beside each leaf."""
_INT32 = np.dtype(np.int32)
_MARK_EVERY = 32
ByLeaf = tuple[int | None, ...]
"""A value for each leaf that is packed; None: the leaf has none."""
Content = tuple[list[Any], list[Any], list[str]]
"""Sequences of a document, its values of ``meta`` with an axis of length 1 before their
own axes, and the kind of each: a text of dtype and shape, empty if it fits every dtype
(decision 0041).
"""


@dataclass(frozen=True, kw_only=True)
class Pack(Unary):
    """Packs sequences into rows."""

    lengths: tuple[tuple[str, int], ...] = field(
        metadata=in_label(lambda found: ", ".join(f"{name}={length}" for name, length in found))
    )
    """Name and length of a row of each leaf that is packed."""
    bins: int
    """Number of bins that are open at the same time at most."""
    concat: bool = False
    """True to cut documents wherever a bin is full."""
    overflow: str = "error"
    """The fate of a document that is longer than a row."""
    max_sequences: int | None = None
    """Number of segments of a bin at most."""
    pad: ByLeaf
    """Value of the places that are left, for each leaf."""
    bos: ByLeaf
    """Value put before each document."""
    eos: ByLeaf
    """Value put behind each document."""
    meta: tuple[str, ...] = ()
    """Names of the leaves of which a bin has a value for each segment."""
    drops_rest: bool = False
    """True to leave out the bins that are open at the end."""
    operation: ClassVar[str] = "pack"
    batch_rows: ClassVar[None] = None
    restoring: ClassVar[str] = "pulls the sequences of the open bins again"
    state_growth: ClassVar[str] = "4 bytes for each sequence in the open bins"

    @property
    def state_bytes(self) -> int:
        return 64 + 32 * len(self.names)

    @property
    def cardinality(self) -> int:
        return unless_infinite(self.input)

    @property
    def names(self) -> frozenset[str]:
        """Names of the leaves that an element has."""
        return frozenset((*[name for name, _ in self.lengths], *self.meta))

    @property
    def mark_counts(self) -> Sizes:
        """Number of tokens put around each document, for each leaf."""
        pairs = zip(self.bos, self.eos, strict=True)
        return tuple([(bos is not None) + (eos is not None) for bos, eos in pairs])

    def spec(self, infer: Infer) -> Any:
        return packed_spec(self, infer(self.input), by_rule=False)


def packed_spec(node: Pack, spec: Any, *, by_rule: bool) -> dict[str, Any]:
    """Return the spec of packed elements.

    Args:
        node: the operation.
        spec: spec of its input.
        by_rule: True if the lengths in the spec are those of all elements.

    Raises:
        InvalidArgumentError: such elements cannot be packed; the text names the leaf.
    """
    leaves = leaves_by_name(node, spec)
    packed: dict[str, Any] = {}
    for (name, length), marks in zip(node.lengths, node.mark_counts, strict=True):
        leaf = leaves[name]
        if not is_untyped_spec(getattr(leaf, "dtype", None), getattr(leaf, "shape", None)):
            check_tokens(name, leaf)
            marks_of(node, name, leaf.dtype)
        count = leaf.shape[0] if leaf.shape else None
        if by_rule and node.overflow == "error" and count and count + marks > length:
            raise too_long(name, count + marks, length)
        packed[name] = TensorSpec((length,), leaf.dtype)
        packed[name + SEGMENTS] = packed[name + POSITIONS] = TensorSpec((length,), _INT32)
    for name in node.meta:
        leaf = leaves[name]
        check_meta(name, leaf)
        shape = (None, *leaf.shape)
        packed[name] = (
            RaggedTensorSpec((None, None, *shape[2:]), leaf.dtype, 1)
            if len(shape) > 1
            else TensorSpec(shape, leaf.dtype)
        )
    return packed


def leaves_by_name(node: Pack, element: Any) -> dict[str, Any]:
    """Return the leaves of an element, or of a spec, by name.

    Raises:
        InvalidArgumentError: it lacks a leaf, or has more leaves.
    """
    if not isinstance(element, dict):
        if isinstance(element, tuple):
            raise InvalidArgumentError(
                f"pack() got a tuple of {len(element)} parts, and takes arrays or dicts, whose "
                "leaves have names. Make a dict in a map() before it"
            )
        element = {TOKENS: element}
    leaves: dict[str, Any] = element
    if leaves.keys() == node.names:
        return leaves
    found = sorted(leaves, key=str)
    lacking = sorted(node.names - leaves.keys())
    if lacking:
        raise InvalidArgumentError(
            f"pack() takes the leaves {lacking} by `length` or `meta`, and the element has only "
            f"{found}. Name the leaves that it has, as in "
            "length={'tokens': 2048}; an array alone is the leaf 'tokens'"
        )
    lost = [one for one in found if one not in node.names]
    raise InvalidArgumentError(
        f"pack() would lose the leaves {lost}, which are neither in `length` nor in `meta`. Add "
        "them to `length` if they are sequences of tokens, or to `meta` to have a value for each "
        "segment, or remove them in a map() before it"
    )


def check_tokens(name: str, spec: Any, kind: type | None = None) -> None:
    """Raise if a leaf is no sequence of integers.

    Args:
        name: name of the leaf.
        spec: its spec.
        kind: its type; None if only its spec is known.

    Raises:
        InvalidArgumentError: it has another number of axes, or another dtype.
    """
    dtype, shape = getattr(spec, "dtype", None), getattr(spec, "shape", None)
    if dtype is None or dtype.kind not in "biu":
        found: Any = "None" if isinstance(spec, NoneTensorSpec) else spec
        if kind is not None and spec == ANY_OBJECT:
            found = f"a value of type {kind.__name__}"
        raise InvalidArgumentError(
            f"pack() got {found} in the leaf {name!r}, and packs integers or bools. Make tokens of "
            "it in a map(), or name the leaf in `meta`"
        )
    if isinstance(spec, RaggedTensorSpec) or (shape is not None and len(shape) != 1):
        remedy = (
            "Make a sequence of the value in a map()"
            if shape == ()
            else "Take batches apart with unbatch()"
        )
        raise InvalidArgumentError(
            f"pack() got {spec} in the leaf {name!r}, and packs sequences, arrays of shape "
            f"(None,). {remedy}, or name the leaf in `meta` to have a value for each segment"
        )


def sequence_of(name: str, leaf: Any) -> Any:
    """Return a sequence of integers as an array.

    Raises:
        InvalidArgumentError: it is none.
        TypeError: it is a masked array.
    """
    if type(leaf) is np.ndarray and leaf.ndim == 1 and leaf.dtype.kind in "biu":
        return leaf
    if is_untyped(leaf):
        return np.zeros(0, np.int64)
    check_tokens(name, spec_of(leaf), type(leaf))
    return array_of_rows(leaf)


def rows_of_meta(name: str, value: Any) -> Any:
    """Return an array with a single row, the value of a leaf of ``meta``.

    Raises:
        InvalidArgumentError: it is neither a single value nor an array.
        TypeError: it is a masked array.
    """
    spec = spec_of(value)
    check_meta(name, spec)
    return array_of_rows(value)[None] if spec.shape else stack_leaves([value], name)


def check_meta(name: str, leaf: Any) -> None:
    """Raise if the spec of a leaf of ``meta`` is none of a value or an array.

    Raises:
        InvalidArgumentError: it is a structure, a ragged tensor or None, or its number
            of axes varies.
    """
    if not isinstance(leaf, TensorSpec) or leaf.shape is None:
        raise InvalidArgumentError(
            f"pack() got {leaf} in the leaf {name!r} of `meta`, which takes single values and "
            "arrays. Make one of it in a map() before it"
        )


def too_long(name: str, count: int, length: int) -> InvalidArgumentError:
    """Return the error for a document that no row can hold."""
    return InvalidArgumentError(
        f"the leaf {name!r} has {count} tokens, with `bos` and `eos`, and a row has {length}. Give "
        'pack() overflow="split", "truncate" or "drop", or a larger length'
    )


def marks_of(node: Pack, name: str, dtype: Any) -> tuple[Any, list[Any], list[Any]]:
    """Return the padding of a leaf, and the arrays put before and behind documents.

    Raises:
        WrongTypeError: the dtype cannot hold a value.
    """
    place = [leaf for leaf, _ in node.lengths].index(name)
    made = []
    for argument in ("pad", "bos", "eos"):
        value = getattr(node, argument)[place]
        try:
            made.append([] if value is None else [np.full(1, cast(value, dtype))])
        except ValueError as error:
            raise WrongTypeError(
                f"Invalid `{argument}`. {error}, which the leaf {name!r} has. Give a value that "
                "its dtype holds, or convert the leaf in a map()"
            ) from None
    return made[0][0][0], made[1], made[2]


@make_iterator.register(Pack)
class PackIterator(ElementIterator):
    """Packs the documents of its input.

    The state holds the numbers of the documents in open bins, and the places at which
    parts of documents begin. Restoring pulls them again from the oldest on.
    """

    def __init__(self, node: Pack, context: Context) -> None:
        self._node = node
        self._publish_in(context)
        self._counts = context.counts
        self._lengths, self._names = tuple([length for _, length in node.lengths]), node.names
        self._retyped = ElementMaker(node.input, context).retyped
        self._marks: dict[tuple[str, Any], tuple[Any, list[Any], list[Any]]] = {}
        self._zeros: Sizes = (0,) * len(node.lengths)
        self._trail = Trail(
            input_iterator(node, context), max(_MARK_EVERY, node.bins), self._oldest
        )
        self._begin()

    def _begin(self) -> None:
        node = self._node
        self._packer = Packer(self._lengths, node.bins, node.max_sequences, node.concat)
        self._document: Segment | None = None  # not placed to its end
        self._coming: Iterator[OpenBin] = iter(())
        self._ended = False
        self._kinds: list[str] = []  # of the first document, which all others have

    def _oldest(self) -> int:
        # Bins are in the order in which they were opened, so of their first documents.
        if self._packer.open_bins:
            return self._packer.open_bins[0].segments[0].number
        return self._trail.pulled if self._document is None else self._document.number

    def rewind(self, repetition: int) -> bool:
        self._begin()
        return self._trail.rewind(repetition)

    def __next__(self) -> Any:
        while not self._ended:
            for found in self._coming:
                if self._document is not None and self._document.starts == self._document.stops:
                    self._document = None
                return self._made(found.segments)
            self._document = None
            self._advance()
        if self._packer.open_bins:
            return self._made(self._packer.take(0).segments)
        raise StopIteration

    def _advance(self) -> None:
        """Pull the next document, or end."""
        number = self._trail.pulled
        try:
            element = self._trail.pull()
        except StopIteration:
            self._ended = True
            if self._node.drops_rest:
                self._count("dropped", self._packer.clear())
            return
        self._strand.place = self._own_place
        try:
            content = self._content(element)
            is_left_out = self._is_left_out(content)
            if not is_left_out:
                self._check_alike(content[2])
        except FAILURES as error:
            raise failure(self._node, error, f"element {number}") from error
        if not is_left_out:
            self._place(Segment(number, self._zeros, self._placed(content), content))

    def _place(self, document: Segment) -> None:
        self._document, self._coming = document, self._packer.place(document)

    def _count(self, name: str, amount: float = 1.0) -> None:
        self._counts.add(f"pack/{name}", amount)

    def _marks_of(self, name: str, dtype: Any) -> tuple[Any, list[Any], list[Any]]:
        if (name, dtype) not in self._marks:
            self._marks[name, dtype] = marks_of(self._node, name, dtype)
        return self._marks[name, dtype]

    # --- documents

    def _content(self, element: Any) -> Content:
        """Return the sequences of an element with ``bos`` and ``eos``, and its values
        of ``meta``. A document without tokens stays empty.
        """
        node = self._node
        if holds_untyped(element):
            element = self._retyped(element)
        is_named = type(element) is dict and element.keys() == self._names
        leaves = element if is_named else leaves_by_name(node, element)
        arrays = [sequence_of(name, leaves[name]) for name, _ in node.lengths]
        if any(map(len, arrays)):
            for place, (name, _) in enumerate(node.lengths):
                dtype = arrays[place].dtype
                _, before, behind = self._marks_of(name, dtype)
                if before or behind:
                    arrays[place] = np.concatenate([*before, arrays[place], *behind], dtype=dtype)
        return _content_of(arrays, [rows_of_meta(name, leaves[name]) for name in node.meta])

    def _is_left_out(self, content: Content) -> bool:
        """Return True if a document is left out, and count it."""
        overflow = self._node.overflow
        if not any(map(len, content[0])):
            self._count("empty")
            return True
        excess = None if overflow == "split" else self._too_long(content)
        if excess is None:
            return False
        if overflow == "error":
            raise excess
        self._count("dropped" if overflow == "drop" else "truncated")
        return overflow == "drop"

    def _too_long(self, content: Content) -> InvalidArgumentError | None:
        """Return the error for a document that no row can hold, or None."""
        for (name, length), array in zip(self._node.lengths, content[0], strict=True):
            if len(array) > length:
                return too_long(name, len(array), length)
        return None

    def _placed(self, content: Content) -> Sizes:
        """Return the numbers of tokens of a document that are placed."""
        sizes = tuple(map(len, content[0]))
        return sizes if self._node.overflow == "split" else tuple(map(min, sizes, self._lengths))

    def _check_alike(self, kinds: list[str]) -> None:
        """Raise if a document differs in a dtype or shape from the first document.
        Remember the kinds of the first.
        """
        self._kinds = self._kinds or kinds
        if kinds == self._kinds:
            return
        names = [*[name for name, _ in self._node.lengths], *self._node.meta]
        for name, kind, first in zip(names, kinds, self._kinds, strict=True):
            if kind and first and kind != first:
                raise InvalidArgumentError(
                    f"the leaf {name!r} is {kind}, and was {first} in the first document, where "
                    "None varies. All rows have one dtype: make the documents alike in a map() "
                    "before pack(), for example with astype()"
                )
        self._kinds = [first or kind for first, kind in zip(self._kinds, kinds, strict=True)]

    # --- bins

    def _made(self, segments: list[Segment]) -> dict[str, Any]:
        """Return the arrays of a bin that came out."""
        node = self._node
        made: dict[str, Any] = {}
        for place, (name, length) in enumerate(node.lengths):
            starts = [part.starts[place] for part in segments]
            stops = [part.stops[place] for part in segments]
            sizes = np.subtract(stops, starts)
            parts = [
                part.content[0][place][start:stop]
                for part, start, stop in zip(segments, starts, stops, strict=True)
            ]
            used, dtype = int(sizes.sum()), parts[0].dtype
            row = np.empty(length, dtype)
            np.concatenate(parts, out=row[:used])
            row[used:] = self._marks_of(name, dtype)[0]
            numbers, positions = np.zeros((2, length), np.int32)
            numbers[:used] = np.repeat(np.arange(1, len(segments) + 1), sizes)
            positions[:used] = np.arange(used) - np.repeat(np.cumsum(sizes) - stops, sizes)
            made |= {name: row, name + SEGMENTS: numbers, name + POSITIONS: positions}
            for what, count in (("tokens", used), ("padded", length - used), ("room", length)):
                self._count(what, count)
        for place, name in enumerate(node.meta):
            made[name] = _joined([part.content[1][place] for part in segments])
        self._count("sequences", len(segments))
        self._count("bins")
        return made

    # --- states

    def state(self) -> Any:
        bins, document = self._packer.open_bins, self._document
        held = [part for found in bins for part in found.segments]
        held += [replace(document)] if document is not None else []
        counts = [len(found.segments) for found in bins]
        make = partial(_packed_state, held, counts, self._ended, self._kinds)
        trail = self._trail.state()
        if not holds_bookmark(trail[1]):
            return make(trail)
        present = [self._trail.pulled, self._trail.source.state(), self._trail.pulled]
        return PackBookmark(partial(make, trail), partial(make, present))

    def restore(self, state: Any) -> None:
        trail, packed, counts, begun, self._ended, contents, self._kinds = state
        numbers = [trail[0] + offset for offset in np.frombuffer(packed, "<i4").tolist()]
        found = {trail[0] + offset: _content_of(*from_plain(kept)) for offset, kept in contents}
        lacking = {*numbers} - found.keys()
        again = self._trail.restore(trail, lacking)
        found |= {number: self._content_again(number, again[number]) for number in lacking}
        starts = {at: tuple(first) for at, *first in begun}
        segments = [
            Segment(number, starts.get(at, self._zeros), self._placed(found[number]), found[number])
            for at, number in enumerate(numbers)
        ]
        for count, end in zip(counts, accumulate(counts), strict=True):
            self._packer.reopen(segments[end - count : end])
        for document in segments[sum(counts) :]:
            sizes_of(document)
            self._place(document)

    def _content_again(self, number: int, element: Any) -> Content:
        """Return the content of a document that an open bin had.

        Raises:
            FailedPreconditionError: it cannot be packed now.
        """
        try:
            content = self._content(element)
            self._check_alike(content[2])
            excess = self._too_long(content)
            if excess is not None and self._node.overflow in ("error", "drop"):
                raise excess
        except FAILURES as error:
            raise FailedPreconditionError(
                f"Element {number} of the input was in an open row when the state was taken, and "
                f"cannot be packed now: {error}. Restore on the same input only"
            ) from error
        return content

    def close(self) -> None:
        self._trail.source.close()


class PackBookmark(Bookmark):
    """State of a packing that reads from the service. It has the contents of documents
    if the client cannot return to them, because other clients read the job, too.

    Args:
        numbered: returns the state in which the client returns to the oldest document.
        carried: returns the state in which the documents are contents.
    """

    def __init__(self, numbered: Callable[[], Any], carried: Callable[[], Any]) -> None:
        self._numbered, self._carried = numbered, carried

    def plain(self) -> Any:
        try:
            return plain_state(self._numbered())
        except FailedPreconditionError as error:
            try:
                return plain_state(self._carried())
            except NotPlainError:
                raise error from None


def _packed_state(
    held: list[Segment], counts: list[int], ended: bool, kinds: list[str], trail: list[Any]
) -> Any:
    """Return the state of a packing: the numbers of the documents held, the contents of
    those from before the place to which the input returns, and the kinds of all.
    """
    offsets = [part.number - trail[0] for part in held]
    lost = {at: part.content for at, part in zip(offsets, held, strict=True) if at < 0}
    return [
        trail,
        np.array(offsets, "<i4").tobytes(),
        counts,
        [[at, *part.starts] for at, part in enumerate(held) if any(part.starts)],
        ended,
        [[at, to_plain((tuple(found[0]), tuple(found[1])))] for at, found in lost.items()],
        kinds,
    ]


def _content_of(arrays: Iterable[Any], values: Iterable[Any]) -> Content:
    arrays, values = [*arrays], [*values]
    kinds = [_kind(array.dtype, (None,)) for array in arrays]
    for rows in values:
        _, *shape = rows.shape
        kind = _kind(dtype_in_spec(rows), (None, *shape[1:])[: len(shape)])
        kinds.append("" if is_untyped(rows) else kind)
    return arrays, values, kinds


@lru_cache(1024)
def _kind(dtype: Any, shape: tuple[int | None, ...]) -> str:
    return f"{dtype_name(dtype)} of shape {shape}"


def _joined(values: list[Any]) -> Any:
    """Return the values of a leaf of ``meta``, for each segment."""
    if values[0].ndim == 1:
        return concatenate(values)
    return RaggedTensor.from_rows([rows[0] for rows in values])
