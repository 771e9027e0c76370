"""shuffle: by a buffer or, where tasks read parts of a whole source, in a permutation
that all tasks share. The names of files come as ``FileSplits`` orders them, in every
process.

A buffer that holds all of its input would take all splits for the task that fills it
first, and the other workers would have nothing to do. A permutation needs no buffer:
the dispatcher hands out places in it, as evenly as those of a source in order, the
shuffle is one over all workers, and its state is a place.

Decision 0034.
"""

from __future__ import annotations

import sys
import zlib
from array import array
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

import msgspec
import numpy as np
from msgspec.structs import replace

from zmqdata.files.filenames import native
from zmqdata.iterators.base import ElementIterator, make_iterator
from zmqdata.iterators.calling import is_end
from zmqdata.iterators.context import Context, Name, mixed_seed
from zmqdata.iterators.draws import RawDraws, shared_seed
from zmqdata.iterators.inputs import input_iterator
from zmqdata.iterators.naming import CarriedNames, carrying
from zmqdata.iterators.permutation import Permutation
from zmqdata.iterators.random_access import ANEW, element_at, name_at, program, refusal, uncounted
from zmqdata.iterators.trail import Trail
from zmqdata.nodes.base import Ordinal, Unary, in_label, lineage
from zmqdata.operations.files import ListFiles, ListFilesIterator, hash_of
from zmqdata.operations.sequences import FromSource
from zmqdata.operations.sources import Range
from zmqdata.splits import MOST_SPLITS, FileSplits, SplitSource


@dataclass(frozen=True, kw_only=True)
class Shuffle(Unary):
    """Draws from a buffer of elements."""

    buffer_size: int | None = field(
        metadata=in_label(lambda size: "all" if size is None else str(size))
    )
    """Number of elements in the buffer; None holds all."""
    seed: int | None = None
    """Seed of the order; None: that of the context."""
    reshuffle_each_iteration: bool = True
    """True to shuffle anew in each repetition."""
    ordinal: Ordinal = field(default_factory=Ordinal, compare=False, repr=False)
    """Number of its order among those of the program, if it is drawn once."""
    operation: ClassVar[str] = "shuffle"
    holds_only: ClassVar[bool] = True
    restoring: ClassVar[str] = "pulls up to 6 buffers of elements again"

    @property
    def is_whole(self) -> bool:
        """True if its buffer holds all of a source with random access."""
        source, size = self.input, self.buffer_size
        return source.is_indexed and (size is None or size >= source.cardinality)

    @property
    def is_lasting(self) -> bool:
        reorders = isinstance(self.input, FromSource) and self.input.shuffle
        return not self.reshuffle_each_iteration and self.is_whole and not reorders

    @property
    def lists_files(self) -> bool:
        names = self.input
        return isinstance(names, ListFiles) and (
            self.reshuffle_each_iteration or not names.shuffle or names.seed is not None
        )

    @property
    def kept_order(self) -> Ordinal | None:
        return None if self.reshuffle_each_iteration or self.seed is not None else self.ordinal

    @property
    def state_bytes(self) -> int:
        return 16 + 4 * (self.buffer_size or max(0, self.input.cardinality))

    def ordered_splits(self, source: SplitSource, fixed_seed: int) -> SplitSource:
        if not isinstance(source, FileSplits):
            return source
        return self.drawn_names(source, fixed_seed, (lineage(self), self.ordinal.number))

    def drawn_names(
        self, source: FileSplits, fixed_seed: int, place: tuple[int, ...]
    ) -> FileSplits:
        """Return the splits of listed files in the order in which it draws their names.

        Args:
            source: the splits of the files.
            fixed_seed: seed of the orders that are drawn once.
            place: what tells its order from the others that are drawn once.
        """
        drawn = self.seed
        if self.kept_order is not None:
            drawn = zlib.crc32(",".join(map(str, (fixed_seed, *place))).encode())
        return replace(
            source,
            drawn_from=self.buffer_size or MOST_SPLITS,
            draw_seed=drawn,
            redraws=self.reshuffle_each_iteration,
        )


_DRAWS = 1024  # draws planned together at most
_FIRST_DRAWS = 8  # draws planned at first: the input may end soon
_OLDEST = 4  # buffers of elements that may pass an element before it is returned
_FEW = 200  # numbers below which Python is faster than numpy
_MARK_EVERY = 32  # least number of pulls between two noted states of the input
_PART = 4096  # numbers inspected together, to bound the memory for it
_LARGEST = 2**32 - 1
_MOST_DRAWN = 1 << 24
"""Most elements of which all draws of an order are made before the first is read."""
_Numbers = np.ndarray[Any, np.dtype[np.uint32]]
_Places = np.ndarray[Any, np.dtype[np.uint64]]
_Drawn = np.ndarray[Any, np.dtype[np.int64]]


@make_iterator.register(Shuffle)
def _shuffled(node: Shuffle, context: Context) -> ElementIterator:
    if isinstance(node.input, ListFiles):
        # The dispatcher hands out the names in this order, too.
        return ListFilesIterator(node.input, context.into(node), drawn_names(node, context))
    if context.providers is not None and node.is_whole:
        return make_iterator(node.input, _permuting(node, context))
    source = input_iterator(node, context)
    if node.buffer_size == 1:
        return source  # each draw is from a single element
    carried = carrying(source, context)
    return (ShuffleIterator if carried is source else NamedShuffleIterator)(node, context, carried)


def drawn_names(node: Shuffle, context: Context) -> FileSplits:
    """Return the splits of listed files in the order in which a shuffle directly above
    draws their names.
    """
    assert isinstance(node.input, ListFiles)
    source = node.input.split_source
    drawn = node.drawn_names(source, context.fixed_seed, context.kept_place(node))
    if drawn.draw_seed is None:
        drawn = msgspec.structs.replace(drawn, draw_seed=mixed_seed(context.seed, *context.path))
    return drawn


def _permuting(node: Shuffle, context: Context) -> Context:
    """Return the context in which the source below a shuffle of a whole source yields
    its elements in the order of the shuffle.
    """
    count = node.input.cardinality
    if node.is_lasting and count <= _MOST_DRAWN:
        # Parts of the order may be read in this process, or by another policy.
        drawn = DrawnOrder(count, node.buffer_size, order_seed(node, context))
        return context.into(node).changed(order=lambda repetition: drawn)

    def order_of(repetition: int) -> Permutation:
        turn = context.repeated(repetition)
        varies = node.reshuffle_each_iteration
        return Permutation(count, shared_seed(node, node.seed, varies, turn))

    return context.into(node).changed(order=order_of)


class ShuffleIterator(ElementIterator):
    """Keeps a buffer full and draws from it.

    The state holds the numbers of the elements in the buffer (4 bytes each), not the
    elements. To bound the cost of pulling them again, no element becomes older than
    about 5 buffers. A hand moves over the slots, one step per draw; an element that it
    finds older than 4 buffers is returned instead of the drawn one.

    Between two draws the last slot of the buffer is free, for the element that is
    pulled next. The slots of up to 1024 draws are planned together; the numbers in the
    buffer after them are then computed together as well.
    """

    def __init__(self, node: Shuffle, context: Context, source: ElementIterator) -> None:
        self._size = node.buffer_size or sys.maxsize
        self._publish_in(context)
        self._trail = Trail(source, max(self._size, _MARK_EVERY), self._oldest)
        self._node = node
        self._random = RawDraws(0)
        self._begin(context)

    def _begin(self, context: Context) -> None:
        self._context = context
        self._buffer: list[Any] = []
        # Numbers of the elements in the buffer before the first draw of the plan,
        # modulo 2**32.
        self._numbers = array("I")
        self._first = 0  # number of the element that is pulled for that draw
        self._drawn = 0  # number of that draw
        self._plan: list[int] = []
        self._step = 0  # draws of the plan made so far
        self._most = _FIRST_DRAWS  # draws of the next plan
        self._is_seeded = False
        self._ended = False

    def __next__(self) -> Any:
        try:
            place = self._plan[self._step]
        except IndexError:
            place = -1
        if place < 0:  # outside of the handler, whose error would be shown with a user's
            place = self._make_plan()
        buffer = self._buffer
        if self._ended:
            self._strand.place = self._own_place
            self._step += 1
            element, last = buffer[place], buffer.pop()
            if element is not last:
                buffer[place] = last
            return element
        try:
            pulled = self._trail.pull()
        except StopIteration:
            self._drop_plan()
            self._ended = True
            return ShuffleIterator.__next__(self)
        except BaseException:
            # A failed element has a number too, which the plan did not expect.
            self._drop_plan()
            raise
        self._strand.place = self._own_place
        self._step += 1
        if place == len(buffer):
            return pulled
        element = buffer[place]
        buffer[place] = pulled
        return element

    def rewind(self, repetition: int) -> bool:
        self._begin(self._context.repeated(repetition))
        return self._trail.rewind(repetition)

    def _seed(self) -> int:
        return order_seed(self._node, self._context)

    # --- planning

    def _make_plan(self) -> int:
        """Fill the buffer, plan the next draws, and return the slot of the first."""
        self._drop_plan()
        if not self._ended:
            self._fill()
        self._strand.place = self._own_place
        if self._ended and not self._buffer:
            raise StopIteration
        if self._ended and len(self._buffer) == 1:
            self._plan = [0]  # any number draws it
            return 0
        if not self._is_seeded:
            self._random.restart(self._seed())
            self._is_seeded = True
        plan = (
            self._rest_of_places
            if self._ended
            else self._few_places
            if self._size < _FEW
            else self._places
        )
        self._plan = plan().tolist()
        self._most = min(2 * self._most, _DRAWS)
        return self._plan[0]

    def _fill(self) -> None:
        buffer, trail, pull, room = self._buffer, self._trail, self._trail.pull, self._size - 1
        try:
            while len(buffer) < room:
                for _ in range(min(_PART, room - len(buffer))):
                    buffer.append(pull())
                self._note_filled(trail.pulled)
        except StopIteration:
            self._note_filled(trail.pulled)
            self._ended = True
        except BaseException as error:
            self._note_filled(trail.pulled - (not is_end(error)))
            raise
        self._first = trail.pulled

    def _note_filled(self, stop: int) -> None:
        """Record the numbers of the elements appended to the buffer; they are
        consecutive, and end below ``stop``.
        """
        first = stop - len(self._buffer) + len(self._numbers)
        if stop - first < _FEW:
            self._numbers.extend([number & _LARGEST for number in range(first, stop)])
        else:
            self._numbers.frombytes(np.arange(first, stop).astype(np.uint32).tobytes())

    def _places(self) -> _Places:
        """Return the slots of the next draws. An element pulled during a plan does not
        become old within it.
        """
        size, old = self._size, _OLDEST * self._size
        places = self._random.at(self._drawn, min(old, self._most)) % np.uint64(size)
        if self._first + len(places) <= old:
            return places
        steps = np.arange(len(places))
        hands = (self._drawn + steps) % size
        ages = (
            _ages(np.frombuffer(self._numbers, np.uint32).take(hands, mode="clip"), self._first)
            + steps
            + 1
        )
        for step in np.flatnonzero((ages > old) & (hands < size - 1)).tolist():
            if not (places[:step] == hands[step]).any():
                places[step] = hands[step]
        return places

    def _few_places(self) -> _Places:
        """Return the slots of the next draws for a buffer so small that inspecting each
        of its elements is faster.
        """
        size, old, pulled, hand = (
            self._size,
            _OLDEST * self._size,
            self._first,
            self._drawn % self._size,
        )
        draws = self._random.at(self._drawn, self._most)
        places: list[int] = (draws % np.uint64(size)).tolist()
        numbers = [
            pulled - age for age in _ages(np.frombuffer(self._numbers, np.uint32), pulled).tolist()
        ] + [pulled]
        for step, place in enumerate(places):
            numbers[-1] = pulled
            pulled += 1
            if pulled - numbers[hand] > old:
                places[step] = place = hand
            numbers[place] = pulled - 1
            hand = hand + 1 if hand + 1 < size else 0
        return np.array(places, np.uint64)

    def _rest_of_places(self) -> _Places:
        """Return the slots of the next draws after the end of the input, when each draw
        removes an element.
        """
        random = self._random.at(self._drawn, min(len(self._buffer), _DRAWS))
        return random % (len(self._buffer) - np.arange(len(random))).astype(np.uint64)

    def _drop_plan(self) -> None:
        self._note_numbers()
        self._plan = []

    def _note_numbers(self) -> None:
        """Remove the completed draws from the plan, and update the numbers of the
        elements in the buffer.
        """
        step = self._step
        if not step:
            return
        made, self._plan = self._plan[:step], self._plan[step:]
        self._drawn += step
        self._step = 0
        numbers = self._numbers
        if self._ended:
            for place in made:
                numbers[place] = numbers[-1]
                numbers.pop()
            return
        places = np.array(made)
        came = (self._first + np.arange(step)).astype(np.uint32)
        kept = places < len(numbers)
        # Of several elements at a slot, the last stays.
        np.frombuffer(numbers, np.uint32)[places[kept]] = came[kept]
        self._first += step

    # --- states

    def _oldest(self) -> int:
        self._note_filled(self._trail.pulled)
        self._note_numbers()
        numbers, pulled = np.frombuffer(self._numbers, np.uint32), self._trail.pulled
        parts = (numbers[begin : begin + _PART] for begin in range(0, len(numbers), _PART))
        return pulled - max((int(_ages(part, pulled).max()) for part in parts), default=0)

    def state(self) -> Any:
        self._note_numbers()
        first, inner, pulled = self._trail.state()
        numbers = np.frombuffer(self._numbers, np.uint32) - np.uint32(first & _LARGEST)
        return [[first, inner, pulled], numbers.astype("<u4").tobytes(), self._drawn, self._ended]

    def restore(self, state: Any) -> None:
        trail, packed, self._drawn, self._ended = state
        numbers = [trail[0] + offset for offset in np.frombuffer(packed, "<u4").tolist()]
        found = self._trail.restore(trail, set(numbers))
        self._numbers = array("I", [number & _LARGEST for number in numbers])
        self._buffer = [found[number] for number in numbers]

    def close(self) -> None:
        self._trail.source.close()


class NamedShuffleIterator(CarriedNames, ShuffleIterator):
    """Keeps a buffer full and draws from it, and knows the names of elements."""


def drawn_number(node: Shuffle, context: Context, place: int) -> int:
    """Return the number of the input's element that a shuffle yields at a place.

    The shuffle must have the same order in each iteration, and its input a known
    cardinality. The draws up to the place are made once and kept.

    >>> numbers = Range(start=0, stop=5)
    >>> node = Shuffle(
    ...     inputs=(numbers,), buffer_size=3, seed=1, reshuffle_each_iteration=False
    ... )
    >>> [drawn_number(node, Context(), place) for place in range(5)] == list(
    ...     make_iterator(node, Context())
    ... )
    True
    """
    count = node.input.cardinality
    known = min(count, 1 << place.bit_length())
    return int(_drawn(count, node.buffer_size, order_seed(node, context), known)[place])


class DrawnOrder:
    """The order in which a shuffle by a buffer yields the elements of a whole source.

    Args:
        count: number of elements.
        size: size of the buffer; None holds all.
        seed: seed of the order.

    >>> numbers = Range(start=0, stop=5)
    >>> node = Shuffle(inputs=(numbers,), buffer_size=5, seed=1)
    >>> order = DrawnOrder(5, 5, order_seed(node, Context()))
    >>> order.many(range(5)).tolist() == list(make_iterator(node, Context()))
    True
    """

    def __init__(self, count: int, size: int | None, seed: int) -> None:
        self.seed = seed
        self._numbers = _drawn(count, size, seed, count)

    def __getitem__(self, place: int) -> int:
        return int(self._numbers[place])

    def many(self, places: range) -> _Drawn:
        """Return the numbers at several places."""
        return self._numbers[places.start : places.stop : places.step].astype(np.int64)


class _SeededShuffle(ShuffleIterator):
    """Draws the order of a seed."""

    def __init__(self, node: Shuffle, seed: int) -> None:
        self._given = seed
        super().__init__(node, Context(), make_iterator(node.input, Context()))

    def _seed(self) -> int:
        return self._given


@lru_cache(maxsize=4)
def _drawn(count: int, size: int | None, seed: int, known: int) -> _Numbers:
    numbers = Range(start=0, stop=count)
    shuffle = Shuffle(inputs=(numbers,), buffer_size=size)
    return np.fromiter(_SeededShuffle(shuffle, seed), np.uint32, known)


def _ages(numbers: _Numbers, pulled: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the number of pulls since each of some elements, its own pull included."""
    return (pulled - numbers.astype(np.int64)) & _LARGEST


def order_seed(node: Shuffle, context: Context) -> int:
    """Return the seed of the order: from the user's seed or the context's, and from the
    repetition if each has its own order.
    """
    turn = (context.turn,) if node.reshuffle_each_iteration else ()
    if node.seed is not None:
        return mixed_seed(node.seed, *turn)
    base = context.seed if node.reshuffle_each_iteration else context.fixed_seed
    place = context.path if node.reshuffle_each_iteration else context.kept_place(node)
    return mixed_seed(base, *place, *turn)


@element_at.register
def _(node: Shuffle, index: int) -> Any:
    if node.input.cardinality < 0:
        raise uncounted(node)
    if node.reshuffle_each_iteration:
        raise refusal(node, index, ANEW)
    names = node.input
    if isinstance(names, ListFiles) and not names.shuffle:
        return native(names.ordered(0, 0, drawn_names(node, program.get()))[index])
    return element_at(names, drawn_number(node, program.get(), index))


@name_at.register
def _(node: Shuffle, index: int) -> Name:
    if isinstance(node.input, ListFiles):
        return 0, hash_of(element_at(node, index))
    return name_at(node.input, drawn_number(node, program.get(), index))
