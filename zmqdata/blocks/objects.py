"""Leaves that are arbitrary Python objects, each pickled separately by protocol 5, with
large buffers beside the pickle.

This is the slow path, for values without another. Unpickling runs code that the pickle
names. A reader that does not trust the workers passes ``allow_objects=False``; then
only the structure of a block is decoded. ``names`` decides what a pickle may name,
``structures`` which values are objects.
"""

from __future__ import annotations

import copyreg
import enum
import io
import operator
import pickle
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from zmqdata.blocks.arrays import reduce_numpy
from zmqdata.blocks.compression import ALIGNMENT, Bytes, decode_buffer
from zmqdata.blocks.names import attribute, is_closed, named, new_value, set_state
from zmqdata.elements.subclasses import made_by_base
from zmqdata.errors import ProtocolError
from zmqdata.failures.exceptions import text_of
from zmqdata.failures.names import plain_name
from zmqdata.peeking import look_up

OUT_OF_BAND = 16 * 1024
"""Smaller buffers are part of the pickle; larger buffers are sent without a copy and
received as views.
"""

_NAMED = (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType)


Reduce: TypeAlias = Callable[[Any], Any]
"""Returns the reduction of a value, as ``pickle`` expects it, or None."""


class Pickled(NamedTuple):
    """A pickled object."""

    stream: bytes
    """The pickle."""
    buffers: tuple[memoryview, ...]
    """The large buffers that belong to it."""

    @property
    def nbytes(self) -> int:
        """Size of the pickle and its buffers."""
        return len(self.stream) + sum(buffer.nbytes for buffer in self.buffers)


# -------------------------------------------------------------------- pickling


def pickled(value: object, reduce: Reduce | None = None) -> Pickled:
    """Pickle an object. The caller may change it afterwards, except the memory of its
    arrays of 16 KB and more.

    Args:
        value: the object.
        reduce: returns the reduction of a value within the object that travels in
            another way, and None for any other value. ``unpickled`` gets the functions
            that the reductions name.

    Raises:
        TypeError: the object cannot be pickled, or a receiver could not unpickle it.
    """
    file, buffers = io.BytesIO(), list[memoryview]()
    try:
        _Pickler(file, buffers, reduce).dump(value)
    except ProtocolError as error:
        raise TypeError(str(error)) from None
    except Exception as error:  # the user's own methods run here
        raise TypeError(
            f"an object cannot be pickled: {type(error).__name__}: {text_of(error, 300)}"
        ) from error
    return Pickled(file.getvalue(), tuple(buffers))


class _Pickler(pickle.Pickler):
    """Refuses what receivers would refuse, and names the pipeline's own classes by the
    names that receivers know.
    """

    def __init__(self, file: io.BytesIO, buffers: list[memoryview], reduce: Reduce | None) -> None:
        super().__init__(file, protocol=5, buffer_callback=self._keep)
        self._buffers = buffers
        self._reduce = reduce

    def _keep(self, buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < OUT_OF_BAND:
            return True
        self._buffers.append(raw)
        return False

    def reducer_override(self, value: Any) -> Any:
        """Return the reduction of any value other than plain values and containers;
        ``pickle`` calls this.
        """
        own = None if self._reduce is None else self._reduce(value)
        if own is not None:
            return own
        if not isinstance(value, _NAMED):
            return _reduced(value)
        owner = getattr(value, "__self__", None)
        if owner is not None and not isinstance(owner, types.ModuleType):
            attribute(owner, value.__name__)
            return NotImplemented
        module, qualname = plain_name(value.__module__), value.__qualname__
        if "<" in qualname:
            raise ProtocolError(
                f"{module}.{qualname} is defined within a function, where no other process can "
                "find it"
            )
        if is_closed(module) or look_up(module, qualname) is value:
            named(module, qualname)
            return NotImplemented
        return named, (module, qualname)


def _reduced(value: Any) -> Any:
    """Return the reduction of an object, with `set_state` where unpicklers would accept
    any state, and `new_value` where a class would change its value again.
    """
    reduced = reduce_numpy(value)
    if reduced is None:
        reduce = copyreg.dispatch_table.get(type(value))
        reduced = reduce(value) if reduce is not None else value.__reduce_ex__(5)
    # Early releases of Python 3.11 reduce flags to operator.or_.
    if isinstance(value, enum.Flag) and reduced[0] is operator.or_:
        return type(value), (value.value,)
    if not isinstance(reduced, str):
        arguments = made_by_base(value, *reduced[:2])
        if arguments is not None:
            reduced = (new_value, (type(value), *arguments), *reduced[2:])
    if isinstance(reduced, str):
        # The name of a single object, such as a ufunc. Receivers check it, too.
        named(plain_name(getattr(value, "__module__", None) or type(value).__module__), reduced)
        return reduced
    if len(reduced) < 3 or reduced[2] is None or len(reduced) > 5:
        return reduced
    return (*reduced, *[None] * (5 - len(reduced)), set_state)


# --------------------------------------------------------------------- layout


def pack_objects(values: Sequence[Pickled]) -> memoryview:
    """Pack all values of a column into a flat buffer.

    The buffer holds a table in int64, all pickles, and all buffers. For each value the
    table has the size of its pickle and the number of its buffers; the sizes of all
    buffers follow. The table, the pickles and each buffer are padded to 64 bytes.
    """
    table = [number for value in values for number in (len(value.stream), len(value.buffers))]
    buffers = [buffer for value in values for buffer in value.buffers]
    sizes = np.array(table + [buffer.nbytes for buffer in buffers], "<i8").tobytes()
    streams = b"".join([value.stream for value in values])
    parts: list[bytes | memoryview] = [sizes, _filling(len(sizes)), streams, _filling(len(streams))]
    for buffer in buffers:
        parts += [buffer, _filling(buffer.nbytes)]
    return memoryview(b"".join(parts))


def _filling(size: int) -> bytes:
    return bytes(-size % ALIGNMENT)


def refused_object(path: str) -> str:
    """Return the reason why a reader without objects refuses a leaf, and what to do.

    >>> refused_object("element['x']").partition(",")[0]
    "element['x'] is a Python object"
    """
    return (
        f"{path:.300} is a Python object, and this reader unpickles none (allow_objects=False): "
        "convert it to a numpy array, str or bytes in a map() of the pipeline, or leave "
        "allow_objects out if the workers are trusted"
    )


def unpack_objects(
    nbytes: int, chunks: Sequence[int], frame: memoryview, count: int
) -> list[object]:
    """Return the objects of a received column. The caller has checked that objects are
    allowed.

    Raises:
        ProtocolError: the sizes contradict each other, or a pickle is damaged, names
            something that is not allowed, or raises.
    """
    pieces = _Pieces(decode_buffer(frame, nbytes, chunks, own=True), count)
    return [unpickled(stream, buffers) for stream, buffers in pieces]


class _Pieces:
    """The pickles of a column with their buffers, after a check that all sizes
    agree.
    """

    def __init__(self, content: Bytes, count: int) -> None:
        heads = self._table(content, 0, 2 * count).reshape(count, 2)
        # In floating point first: the sum of hostile numbers may exceed 64 bits.
        if (heads < 0).any() or heads.sum(dtype=np.float64) > content.size:
            raise ProtocolError("a column of objects has impossible sizes")
        self._sizes = self._table(content, 2 * count, int(heads[:, 1].sum())).tolist()
        table = 16 * count + 8 * len(self._sizes)
        self._heads: list[list[int]] = heads.tolist()
        self._start = table + -table % ALIGNMENT
        streams = sum(size for size, _ in self._heads)
        self._behind = self._start + streams + -streams % ALIGNMENT
        end = self._behind + sum(size + -size % ALIGNMENT for size in self._sizes)
        if end != content.size or min(self._sizes, default=0) < 0:
            raise ProtocolError(
                f"a column of {content.size} bytes was announced with objects that take {end}"
            )
        self._content = content

    @staticmethod
    def _table(content: Bytes, first: int, numbers: int) -> Any:
        start, stop = 8 * first, 8 * (first + numbers)
        if content.size < stop:
            raise ProtocolError(
                f"a column of objects of {content.size} bytes is shorter than its table of {stop}"
            )
        return content[start:stop].view("<i8")

    def __iter__(self) -> Iterator[tuple[bytes, list[memoryview]]]:
        at, content, buffers = self._start, self._content, self._buffers()
        for size, number in self._heads:
            yield content[at : at + size].tobytes(), [*islice(buffers, number)]
            at += size

    def _buffers(self) -> Iterator[memoryview]:
        at = self._behind
        for size in self._sizes:
            yield memoryview(self._content[at : at + size])
            at += size + -size % ALIGNMENT


# ------------------------------------------------------------------ unpickling


def unpickled(
    stream: bytes, buffers: Sequence[memoryview], own: Mapping[str, object] | None = None
) -> object:
    """Return the object of a pickle in which `named` accepts every name.

    Args:
        stream: the pickle.
        buffers: its large buffers.
        own: further names, with what each stands for here.

    Raises:
        ProtocolError: the pickle is invalid, or raises.
    """
    check_stream(stream)
    try:
        return _Unpickler(stream, buffers, own or {}).load()
    except (ProtocolError, KeyboardInterrupt):
        raise
    except BaseException as error:  # a hostile pickle may raise anything, even SystemExit
        raise ProtocolError(
            f"an object cannot be unpickled: {type(error).__name__}: {text_of(error, 300)}"
        ) from None


class _Unpickler(pickle.Unpickler):
    def __init__(
        self, stream: bytes, buffers: Sequence[memoryview], own: Mapping[str, object]
    ) -> None:
        super().__init__(io.BytesIO(stream), buffers=buffers)
        self._own = own

    def find_class(self, module: str, name: str) -> Any:
        own = self._own.get(f"{module}.{name}")
        return named(module, name) if own is None else own


def _steps() -> list[int]:
    """Return for each opcode its length, minus the size of its length field, or 0 if no
    pickler writes it.
    """
    steps = [0] * 256
    of_length: dict[int, bytes] = {
        1: b"N\x88\x89)]}\x8f(t\x85\x86\x87aesu\x90\x91R\x81\x92\x93\x94\x97\x98" + b"01",
        2: b"Kh",
        3: b"M",
        5: b"Jj",
        9: b"G\x95",
        -1: b"\x8a\x8cC",
        -4: b"\x8bXB",
        -8: b"\x8d\x8e\x96",
    }
    for step, opcodes in of_length.items():
        for opcode in opcodes:
            steps[opcode] = step
    return steps


_STEPS = _steps()


def check_stream(stream: bytes) -> None:
    """Reject a pickle that `pickled` cannot have written, before it is opened.

    The excluded opcodes make the unpickler take gigabytes for a few bytes
    (``LONG_BINPUT``), call what is not on its stack (``INST``), or read text. ``BUILD``
    is excluded, too, since `set_state` replaces it. No length may exceed the end.

    Raises:
        ProtocolError: `pickled` cannot have written it.
    """
    at, end = 2, len(stream) - 1
    if stream[:2] != b"\x80\x05" or stream[-1:] != b".":
        raise ProtocolError("an object is not a pickle of protocol 5")
    while at < end:
        step = _STEPS[stream[at]]
        if step == 0:
            raise ProtocolError(
                f"an object's pickle has the opcode {stream[at]:#x}, which no pickler writes"
            )
        at += (
            step
            if step > 0
            else 1 - step + int.from_bytes(stream[at + 1 : at + 1 - step], "little")
        )
    if at != end:
        raise ProtocolError("an object's pickle is truncated")
