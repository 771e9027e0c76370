"""The values that ``marshal`` writes by their content, and their forms.

A value of these types is its own form. It writes no other types as what they are: an
array, a scalar of numpy and a bytearray are bare bytes, and a set has the order of the
moment.
"""

from __future__ import annotations

import hashlib
import operator
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import chain
from marshal import dumps
from typing import Any, NamedTuple, Protocol

from zmqdata.pipelines.classes import ATOMS
from zmqdata.pipelines.holding import is_hashable

LISTS = frozenset({list, tuple})
TEXTS = frozenset({str, bytes})
_REALS = frozenset({float, complex})
_PLAIN = ATOMS | LISTS
SORTABLE = TEXTS | {int}
PIECE = 256
"""Number of elements that are hashed at a time."""
SHORT = 100
"""Number of elements, and hundredth of the characters, of a value that is its own form,
and for each of several values.
"""
_LEVELS = 4
"""Number of nested containers in such values."""
LONG = 1 << 16
"""Length from which texts are hashed."""
FUNCTION, CLASS = (..., "function"), (..., "class")
"""Forms of callables, whose content is in the hashes of functions."""
_NAN = (..., "nan")


def digest_of(form: Any) -> bytes:
    """Return the hash of a form."""
    # Version 2 has neither references nor a mark of interned strings, so equal values
    # give equal bytes.
    return hashlib.sha256(dumps(form, 2)).digest()


def kinds_of(values: Iterable[Any]) -> set[type]:
    """Return the types of values."""
    try:
        return set(map(type, values))
    except Exception:  # a metaclass makes its classes unhashable
        return {object, type}


def is_plain(values: Collection[Any], most: int) -> bool:
    """Return True if ``marshal`` writes the content of all that a container holds, and
    that is not much. It writes no other types, such as arrays, as what they are.
    """
    level: Any = values
    for _ in range(_LEVELS):
        if len(level) > most or not (kinds := kinds_of(level)) <= _PLAIN:
            return False
        if not kinds.isdisjoint(_REALS) and any(map(operator.ne, level, level)):
            return False  # NaN has many values
        if not kinds.isdisjoint(TEXTS):
            texts = level if kinds <= TEXTS else [one for one in level if type(one) in TEXTS]
            if sum(map(len, texts)) > most * 100:
                return False
        if kinds.isdisjoint(LISTS):
            return True
        most -= len(level)
        if not kinds <= LISTS:
            level = [one for one in level if type(one) in LISTS]
        if sum(map(len, level)) > most:
            return False
        level = list(chain.from_iterable(level))
    return False


def text_form(text: str | bytes) -> Any:
    """Return the form of a long text."""
    octets = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    return ..., type(text).__name__, hashlib.sha256(octets).digest()


def dict_form(entries: dict[Any, Any]) -> Any:
    """Return the form of a short dictionary of plain values, else None."""
    rows = rows_of([entries]) if len(entries) <= SHORT else None
    return rows and (..., "dict", rows)


def rows_of(rows: Collection[dict[Any, Any]]) -> Any:
    """Return the sorted keys and the values of each of some dictionaries, if all are
    plain and the keys are of one type; else None. Equal keys are returned once.
    """
    most = SHORT * len(rows)
    if kinds_of(rows) != {dict} or sum(map(len, rows)) > most:
        return None
    kinds = kinds_of(chain.from_iterable(rows))  # 1 and True are equal keys
    names = list(map(tuple, rows))
    is_sorted = len(kinds) <= 1 and kinds <= SORTABLE
    orders = {one: sorted(one) for one in set(names)} if is_sorted else {}
    if not orders or not all(is_plain(one, most) for one in orders):
        return None
    values = [list(map(row.__getitem__, orders[one])) for row, one in zip(rows, names, strict=True)]
    keys = list(map(orders.__getitem__, names))
    if all(one == keys[0] for one in orders.values()):
        # Columns have few types each, and are looked through faster.
        columns = zip(*values, strict=True)
        return (keys[0], values) if all(is_plain(one, most) for one in columns) else None
    return (keys, values) if is_plain(list(chain.from_iterable(values)), most) else None


Code = tuple[bytes, bytes]
"""Hash of functions with the values that they hold, and hash without these."""


def joined(code: list[Code]) -> Code:
    """Return one pair of hashes for several."""
    if len(code) == 1:
        return code[0]
    return digest_of([held for held, _ in code]), digest_of([bare for _, bare in code])


class Manner(Protocol):
    """Manner in which the objects of a class are written."""

    kind: type
    """The class."""
    name: str
    """Its name."""
    is_own: bool
    """True if the content of the class counts, as it is of a script."""

    def write(self, scribe: Scribe, value: Any) -> Any:
        """Return the forms of what an object holds, ``FUNCTION`` or ``CLASS``."""

    def has_rows(self, value: Any) -> bool:
        """Return True if the dictionary of an object of this class is all it holds."""


class _Visited(NamedTuple):
    """An object that was visited."""

    value: Any
    """The object, kept alive so that no identity is reused."""
    form: Any
    """Its form."""
    code: list[Code]
    """Hashes of the functions that it holds."""
    key: int
    """Its key among the objects that were visited."""
    low: int
    """Depth of the outermost object around it to which it refers."""


class Scribe:
    """Finds the forms of values, and the hashes of the functions that they hold.

    An object that is met again has the form that it had, so that each is visited once.
    Objects that refer to each other in a circle are visited from the one of them that
    is met first, and named by their number in that order.

    Args:
        find_manner: returns how the objects of a class are written.
    """

    def __init__(self, find_manner: Callable[[type], Manner]) -> None:
        self._find = find_manner
        self.code: list[Code] = []
        self.in_code = False
        self.inside: dict[int, int] = {}
        """Depths of the objects around the present one."""
        self.low = sys.maxsize
        """Depth of the outermost of them that was met."""
        self.known: dict[int, _Visited] = {}
        """Objects that refer to none of those around them. The keys of those met within
        code are negative, as generators have another form there."""
        self.open: dict[int, int] = {}
        """Places of the other ones in ``circle``."""
        self.circle: list[_Visited] = []
        self.circles = 0
        self.kinds: dict[int, Manner] = {}

    def add(self, value: Any) -> Any:
        """Return the form of a value of any kind."""
        kind = type(value)
        try:
            if kind in ATOMS:
                if value != value:
                    return _NAN if kind is float else (..., self.forms((value.real, value.imag)))
                return text_form(value) if kind in TEXTS and len(value) > LONG else value
            if kind in LISTS and is_plain(value, SHORT):
                return value
            if kind is dict and (form := dict_form(value)):
                return form
        except Exception:
            if is_hashable(kind):
                raise
        key = -id(value) if self.in_code else id(value)
        if key in self.known:
            self.code += self.known[key].code
            return self.known[key].form
        if key in self.open:
            return self._met(self.open[key])
        depth = len(self.inside)
        around = self.inside.setdefault(id(value), depth)
        if around < depth:
            self.low = min(self.low, around)
            return ..., "around", depth - around
        outer, self.low = self.low, sys.maxsize
        first, start = len(self.code), len(self.circle)
        form = self.kind(kind).write(self, value)
        del self.inside[id(value)]
        if form is not FUNCTION and form is not CLASS:
            form = ..., digest_of(form)
        if len(self.code) > first + 1:
            self.code[first:] = [joined(self.code[first:])]
        found = _Visited(value, form, self.code[first:], key, self.low)
        if self.low < depth:
            self.open[key] = len(self.circle)
            self.circle.append(found)
        else:
            self.known[key] = found
            if start < len(self.circle):
                self._close(found, start)
        self.low = min(self.low, outer) if self.low < depth else outer
        return form

    def _met(self, place: int) -> Any:
        """Return the form of an object that is in a circle with one around it."""
        _, form, code, _, low = self.circle[place]
        self.low = min(self.low, low)
        again = ..., "again", len(self.circle) - place
        if form is FUNCTION or form is CLASS:
            self.code += [(digest_of(again), functions) for _, functions in code]
            return form
        self.code += code
        return again

    def _close(self, first: _Visited, start: int) -> None:
        """Note the objects that are in a circle with one that nothing around it is."""
        self.circles += 1
        name = digest_of((first.form, [code for code, _ in first.code]))
        for number, (value, form, code, key, low) in enumerate(self.circle[start:]):
            if form is not FUNCTION and form is not CLASS:
                form = ..., digest_of((first.form, number))
            code = [(digest_of((name, number, one)), functions) for one, functions in code]
            self.known[key] = _Visited(value, form, code, key, low)
        self._forget(start)

    def _forget(self, start: int) -> None:
        for one in self.circle[start:]:
            del self.open[one.key]
        del self.circle[start:]

    def forms(self, values: list[Any] | tuple[Any, ...]) -> Any:
        """Return the forms of values whose order counts, or a hash of many of them."""
        if len(values) <= PIECE:
            return self.piece(values) or list(map(self.add, values))
        made = hashlib.sha256(str(len(values)).encode())
        for begin in range(0, len(values), PIECE):
            piece = values[begin : begin + PIECE]
            # Other threads run in each update.
            made.update(dumps(self.piece(piece) or list(map(self.add, piece)), 2))
        return made.digest()

    def piece(self, values: list[Any] | tuple[Any, ...]) -> list[Any]:
        """Return the forms of values that are of built-in types, or dictionaries or
        objects of one class that hold no others; else an empty list.
        """
        if is_plain(values, SHORT * len(values)):
            return list(values)
        kinds = kinds_of(values)
        if len(kinds) != 1:
            return []
        (kind,) = kinds
        if kind is dict:
            rows = rows_of(values)
            return [(..., "dicts", rows)] if rows else []
        if kind in LISTS:
            # An index of records: short lists of the dictionaries of another list.
            rows = rows_of(list(chain.from_iterable(values)))
            return [(..., "rows", kind.__name__, list(map(len, values)), rows)] if rows else []
        about = self.kind(kind)
        if not about.has_rows(values[0]):
            return []
        rows = rows_of([object.__getattribute__(value, "__dict__") for value in values])
        if rows and about.is_own:
            first = len(self.code)
            self.add(kind)
            self.code += self.code[first:] * (len(values) - 1)
        return [(..., "objects", about.name, rows)] if rows else []

    def members(self, values: Collection[Any]) -> Any:
        """Return the forms of values whose order does not count, because it depends on
        PYTHONHASHSEED.
        """
        kinds = kinds_of(values)
        if len(kinds) <= 1 and kinds <= SORTABLE:
            return self.forms(sorted(values))
        if is_plain([*values], SHORT * len(values)):
            return self.forms(sorted(dumps(value, 2) for value in values))
        found = []
        for value in values:
            # What was met before in another order must not affect the form.
            first, start = len(self.code), len(self.circle)
            known, circles = len(self.known), self.circles
            form = dumps(self.add(value), 2)
            found.append((form, self.code[first:]))
            del self.code[first:]
            self._forget(start)
            while self.circles > circles and len(self.known) > known:
                self.known.popitem()
        found.sort()
        self.code += chain.from_iterable(code for _, code in found)
        return self.forms([form for form, _ in found])

    def entries(self, entries: Mapping[Any, Any]) -> Any:
        """Return the forms of keys and of their values."""
        kinds = kinds_of(entries)
        if len(kinds) <= 1 and kinds <= SORTABLE:
            keys = sorted(entries)
        elif is_plain([*entries], SHORT * len(entries)):
            keys = sorted(entries, key=lambda key: dumps(key, 2))
        else:
            return self.members([*entries.items()])
        return self.forms(keys + list(map(entries.__getitem__, keys)))

    def kind(self, kind: type) -> Manner:
        """Return how objects of a class are written, found once for each class."""
        found = self.kinds.get(id(kind))
        if found is None:
            found = self.kinds[id(kind)] = self._find(kind)
        return found
