"""Tests of fingerprints: what a pickle carries counts, and nothing else does."""

from __future__ import annotations

import abc
import collections
import copy
import dataclasses
import enum
import functools
import math
import os
import pathlib
import subprocess
import sys
import types
import uuid
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zmqdata.operations.sources import Range
from zmqdata.pipelines.fingerprints import fingerprint


class Strings(str):
    pass


class Numbers(int):
    pass


class Octets(bytes):
    pass


class Items(list[Any]):
    pass


class Pair(tuple[Any, ...]):
    __slots__ = ()


class Attributed(tuple[Any, ...]):
    pass


class Table(dict[Any, Any]):
    pass


class Members(set[Any]):
    pass


class Bound(frozenset[Any]):
    pass


class Array(np.ndarray[Any, Any]):
    pass


class Property(property):
    pass


class Held:
    """An object of a library: its class does not count beside its name."""

    def __init__(self, held: Any = None) -> None:
        self.held = held


class Slots:
    __slots__ = ("__dict__", "slot")
    slot: Any


class Stated:
    """An object that is pickled as a state of its own."""

    def __init__(self, held: Any) -> None:
        self.counter, self.held = next(NUMBERS), held

    def __getstate__(self) -> Any:
        return [self.held]


NUMBERS = iter(range(10**9))


class Reduced:
    """An object that is pickled as a call."""

    def __init__(self, held: Any) -> None:
        self._held = (held,)

    def __reduce__(self) -> Any:
        return Reduced, self._held


@dataclasses.dataclass
class Record:
    field: int = 0


def having(thing: Any, name: str, value: Any) -> Any:
    setattr(thing, name, value)
    return thing


def function(mark: Any) -> Any:
    made = types.FunctionType((lambda x: x).__code__, {"__name__": "__main__"})
    return having(made, "mark", mark)


def masked(value: int) -> Any:
    return np.ma.array([1, 2], mask=[0, value - 1])


def of_objects(value: Any) -> Any:
    made = np.empty(2, object)
    made[:] = [[value], None]
    return made


def of_script(source: str, value: Any) -> Any:
    space = {"__name__": "__main__", "enum": enum, "abc": abc, "msgspec": msgspec}
    exec(source, space)
    return space["make"](value)  # type: ignore[operator]  # a function


CONTENTS: dict[str, Callable[[int], Any]] = {
    "attribute of a list": lambda x: having(Items([1]), "a", x),
    "item of a list": lambda x: Items([x]),
    "attribute of a text": lambda x: having(Strings("1"), "a", x),
    "a text": lambda x: Strings(x),
    "attribute of a number": lambda x: having(Numbers(1), "a", x),
    "a number": Numbers,
    "attribute of bytes": lambda x: having(Octets(b"1"), "a", x),
    "attribute of a tuple": lambda x: having(Attributed((1,)), "a", x),
    "item of a tuple": lambda x: Pair((1, x)),
    "attribute of a dictionary": lambda x: having(Table(a=1), "a", x),
    "entry of a dictionary": lambda x: Table(a=x),
    "attribute of a set": lambda x: having(Members([1]), "a", x),
    "member of a set": lambda x: Members([x, "a"]),
    "attribute of a frozen set": lambda x: having(Bound([1]), "a", x),
    "attribute of a record that is no field": lambda x: having(Record(), "a", x),
    "field of a record": Record,
    "attribute of a function": function,
    "attribute of a partial": lambda x: having(functools.partial(len), "a", x),
    "keyword of a partial": lambda x: functools.partial(len, a=x),
    "attribute of a property": lambda x: having(Property(len), "a", x),
    "slot beside a dictionary": lambda x: having(having(Slots(), "a", 1), "slot", x),
    "dictionary beside a slot": lambda x: having(having(Slots(), "slot", 1), "a", x),
    "mask": masked,
    "fill value": lambda x: np.ma.array([1], mask=[0], fill_value=x),
    "masked array": lambda x: np.ma.array([x]),
    "attribute of an array": lambda x: having(np.zeros(1).view(Array), "a", x),
    "metadata of a dtype": lambda x: np.zeros(1, np.dtype("i4", metadata={"a": x})),
    "array of objects": of_objects,
    "factory": lambda x: collections.defaultdict((int, list, dict)[x]),
    "entry of an ordered dictionary": lambda x: collections.OrderedDict(a=x),
    "count": lambda x: collections.Counter(a=x),
    "length of a deque": lambda x: collections.deque([1], maxlen=x),
    "link of a chain": lambda x: collections.ChainMap({"a": x}),
    "state of its own": Stated,
    "argument of a call": Reduced,
    "wrapped function": lambda x: functools.lru_cache(function(x)),
    "error": lambda x: having(ValueError(1), "a", x),
    "seed": np.random.default_rng,
    "value of a member": lambda x: enum.Enum("Kind", {"A": x}, module="__main__")["A"],
    "attribute of a member": lambda x: of_script(
        "class Kind(enum.Enum):\n  A = 1\ndef make(x):\n  Kind.A.a = x\n  return Kind.A", x
    ),
    "attribute of a metaclass": lambda x: of_script(
        "class Meta(type): pass\nclass Kind(metaclass=Meta): pass\n"
        "def make(x):\n  Meta.a = x\n  return Kind()",
        x,
    ),
    "registered class": lambda x: of_script(
        "class Kind(abc.ABC): pass\nclass A: pass\nclass B: pass\n"
        "def make(x):\n  Kind.both = A, B\n  Kind.register((A, B)[x - 1])\n  return Kind()",
        x,
    ),
    "default of a struct": lambda x: of_script(
        "def make(x):\n  class Kind(msgspec.Struct):\n    a: int = x\n  return Kind", x
    ),
    "option of a struct": lambda x: of_script(
        "def make(x):\n  class Kind(msgspec.Struct, frozen=x > 1): pass\n  return Kind", x
    ),
    "annotation of a function": lambda x: of_script(
        "def make(x):\n  def f(a): pass\n  f.__annotations__['a'] = x\n  return f", x
    ),
    "content of a cell": types.CellType,
    "kind of a method": lambda x: (None, staticmethod, classmethod)[x](len),
    "key of a view": lambda x: {x: 1}.keys(),
    "value of a view": lambda x: {1: x}.values(),
    "entry of a view": lambda x: collections.OrderedDict({1: x}).items(),
    "object of a super": lambda x: super(Held, having(Held(), "a", x)),
    "descriptor": lambda x: vars(types.FunctionType)["__code__" if x == 1 else "__name__"],
    "entry deep within": lambda x: [{"a": [({"b": [Held([x])]},)]}],
    "one of many": lambda x: [*range(1000), x, *range(1000)],
    "one of many texts": lambda x: ["a"] * 1000 + ["ab" * x],
    "one of many entries": lambda x: {str(i): i for i in range(1000)} | {"900": x},
    "one of many objects": lambda x: [Held(i) for i in range(1000)] + [Held(x)],
    "one of many records": lambda x: [{"a": i, "b": [[0.5]]} for i in range(1000)] + [{"a": x}],
    "one of many members": lambda x: {*map(str, range(1000)), "a" * x},
    "one of many rows": lambda x: [[float(i), i] for i in range(1000)] + [[0.5, x]],
    "end of a long text": lambda x: "a" * 100_000 + str(x),
    "end of long bytes": lambda x: b"a" * 100_000 + b"%d" % x,
    "key": lambda x: {(x, "a"): 1},
    "key that is an object": lambda x: {Record.__hash__ is None: 1, Reduced(x): 2},
    "type of an item": lambda x: [(1, True, 1.0)[x]] * 300,
    "sign of zero": lambda x: [(0.0, -0.0, 0)[x]] * 300,
    "kind of an item": lambda x: [([1], (1,), {1: 1})[x]] * 300,
}


@pytest.mark.parametrize("name", CONTENTS)
def test_whatever_a_pickle_carries_counts(name: str) -> None:
    """A change of anything that a pickle carries changes the fingerprint, and an equal
    value has an equal one.
    """
    one, two, other = (CONTENTS[name](value) for value in (1, 1, 2))
    assert fingerprint(one) == fingerprint(two)
    assert fingerprint(one) != fingerprint(other)
    assert fingerprint(one) == fingerprint(one)


@pytest.mark.parametrize("length", [1, 10, 1000])
def test_all_nans_are_one_value(length: int) -> None:
    """Every NaN is the same value, alone and within containers."""
    quiet, other = math.nan, -np.frombuffer(b"\1\0\0\0\0\0\xf8\x7f", float)[0].item()
    for make in (list, tuple, lambda nans: dict(enumerate(nans)), lambda nans: [nans, {"a": nans}]):
        first, second = (make([1.0, nan] * length) for nan in (quiet, other))
        assert fingerprint(first) == fingerprint(second) != fingerprint(make([1.0, 2.0] * length))
    assert fingerprint(complex(1, quiet)) == fingerprint(complex(1, other))
    assert fingerprint(complex(1, quiet)) != fingerprint(complex(2, quiet))


def test_equal_keys_of_other_types_are_other_keys() -> None:
    """Records whose keys are equal but of other types differ, alone and in an index."""
    ones, mixed = [{1: 0}, {1: 0}], [{1: 0}, {True: 0}]
    for make in (list, lambda records: {"a": [records], "b": [records]}):
        assert fingerprint(make(ones)) != fingerprint(make(mixed))
        assert fingerprint(make(ones)) == fingerprint(make([{1: 0}, {1: 0}]))


@pytest.mark.parametrize("item", [0, Held(), [Held()]])
def test_a_container_within_itself_many_times_is_written_once(item: Any) -> None:
    """Many paths to one container take no longer than one."""
    for make in (lambda x: [x, x], lambda x: (x, x), lambda x: {"a": x, "b": x}, Held):
        held = item
        for _ in range(40):
            held = make([held, held])
        assert fingerprint(held) == fingerprint(held)


def test_aliases_do_not_count() -> None:
    """Equal values have equal fingerprints, whether or not they are one object."""
    for item in ([[1.5] * 200] * 3, {"a": Held()}, Held([1]), np.arange(3), function(1)):
        assert fingerprint([item, [item]]) == fingerprint([item, [copy.deepcopy(item)]])


class Cached(Held):
    """Stands for an array of pandas, which keeps what it has computed."""

    __module__ = "pandas.arrays"

    def __reduce__(self) -> Any:
        return Cached, (), (np.arange(2), vars(self)) if vars(self) else (np.arange(2),)


def test_what_pandas_computed_does_not_count() -> None:
    """Arrays of pandas have the same fingerprint before and after they were used."""
    held = Cached(1)
    before = fingerprint(held)
    assert fingerprint(having(held, "_cache", {"dtype": 1})) == before
    assert fingerprint(having(held, "held", 2)) != before


ATOMS: st.SearchStrategy[Any] = (
    st.none()
    | st.booleans()
    | st.integers(-2, 2)
    | st.sampled_from([2**40, 0.0, -0.0, 1.0, math.nan, 1j, "", "a", "b", b"a"])
)
KINDS = ["list", "tuple", "dict", "objects", "set", "items", "object", "record", "slots"]
Graph = list[tuple[str, list[tuple[str, Any]]]]


@st.composite
def graphs(draw: Any, circles: bool) -> Graph:
    """Return the kind and the parts of each object of a graph: atoms, and the numbers
    of objects before it, or of any object if there are circles.
    """
    made: Graph = []
    count = draw(st.integers(1, 7))
    for number in range(count):
        kind = draw(st.sampled_from(KINDS))
        can_wait = circles and kind not in ("tuple", "objects", "set")
        parts: Any = st.tuples(st.just("atom"), ATOMS)
        if can_wait or number:
            before = st.integers(0, (count if can_wait else number) - 1)
            parts |= st.tuples(st.just("object"), before)
        made.append((kind, draw(st.lists(parts, max_size=4))))
    return made


def built(graph: Graph, backwards: bool) -> Any:
    """Return the last object of a graph, whose dictionaries and sets are filled in
    either order.
    """
    makers: dict[str, Callable[[], Any]] = {
        "list": list,
        "dict": dict,
        "items": Items,
        "object": Held,
        "record": Record,
        "slots": Slots,
    }
    made: list[Any] = [makers.get(kind, lambda: None)() for kind, _ in graph]
    turn = -1 if backwards else 1
    for number, (kind, parts) in enumerate(graph):
        if kind in ("tuple", "objects", "set"):
            held = [made[part] if way == "object" else again(part) for way, part in parts]
            made[number] = {
                "tuple": tuple,
                "objects": lambda held: {Reduced(held): 1, Reduced([*held, 1]): 2},
                "set": lambda held: {*map(Reduced, held[::turn])},
            }[kind](held)
    for (kind, parts), one in zip(graph, made, strict=True):
        held = [made[part] if way == "object" else again(part) for way, part in parts]
        entries = [*zip("pqrs", held, strict=False)][::turn]
        if kind in ("list", "items"):
            one.extend(held)
        elif kind == "dict":
            one.update(entries)
        elif kind not in ("tuple", "objects", "set"):
            for name, value in entries:
                setattr(one, name, value)
    return made[-1]


def again(atom: Any) -> Any:
    """Return an equal value that is another object where Python has several."""
    if atom != atom:
        return float("nan")
    return "".join([*atom]) if isinstance(atom, str) else atom


def canonical(graph: Graph, number: int) -> str:
    """Return a text of a graph without circles that is equal for equal contents."""
    kind, parts = graph[number]
    held = [canonical(graph, one) if way == "object" else repr(one) for way, one in parts]
    return f"{kind}({', '.join(sorted(held) if kind == 'set' else held)})"


@given(graphs(circles=False), graphs(circles=False))
def test_fingerprints_are_equal_exactly_if_types_and_contents_are(one: Graph, other: Graph) -> None:
    """Graphs of objects have equal fingerprints exactly if their contents are equal."""
    assert fingerprint(built(one, False)) == fingerprint(built(one, True))
    same = canonical(one, len(one) - 1) == canonical(other, len(other) - 1)
    assert (fingerprint(built(one, False)) == fingerprint(built(other, True))) == same


@given(graphs(circles=False), st.integers(0, 6), ATOMS)
def test_a_changed_atom_changes_the_fingerprint(graph: Graph, at: int, atom: Any) -> None:
    """An atom that is added anywhere in a graph counts if it can be reached."""
    kind, parts = graph[at % len(graph)]
    other = [*graph]
    other[at % len(graph)] = kind, [("atom", atom), *parts[:3]]
    same = canonical(graph, len(graph) - 1) == canonical(other, len(graph) - 1)
    assert (fingerprint(built(graph, False)) == fingerprint(built(other, True))) == same


@given(graphs(circles=True))
def test_graphs_with_circles_have_fingerprints_of_their_own(graph: Graph) -> None:
    """Isomorphic graphs with circles have equal fingerprints, also beside each other,
    and one object more makes another.
    """
    one, two = built(graph, False), built(graph, True)
    assert fingerprint(one) == fingerprint(two)
    assert fingerprint([one, [one]]) == fingerprint([two, [two]])
    assert fingerprint([one]) != fingerprint([one, 1])
    assert fingerprint({Reduced(one), Reduced([one])}) == fingerprint(
        {Reduced([two]), Reduced(two)}
    )


def test_other_circles_have_other_fingerprints() -> None:
    """The object to which one within a circle refers counts."""

    def circle(place: int, *held: Any) -> Any:
        outer: list[Any] = []
        inner: list[Any] = [*held]
        outer += [inner, [inner], Held(inner)]
        inner.append((outer, inner, outer[1], outer[2])[place])
        return outer

    found = {str(fingerprint(circle(place))) for place in range(4)}
    found |= {str(fingerprint(circle(place, 1))) for place in range(4)}
    found |= {str(fingerprint([circle(place)])) for place in range(4)}
    assert len(found) == 12


WITHOUT_FUNCTIONS: list[Any] = [
    None, True, 1, 2**100, 0.5, -0.0, 1j, "text", "\ud800", b"bytes", bytearray(b"1"), math.nan,
    [1, (2, [3])], {"a": 1, "b": {2: [0.5]}}, {"x", "y", "z"}, frozenset({1, "1", None}), range(3),
    slice(1), {("a", 1): 2, ("b", 2): 3}, [("path", i) for i in range(1000)],
    [{"a": i, "b": [[0.5, i]]} for i in range(1000)], {str(i): i for i in range(1000)},
    {*map(str, range(1000))}, np.arange(6).reshape(2, 3), np.float32(1), np.array(["a", "b"]),
    np.datetime64("2020", "Y"), np.array([1, None], object), masked(1), uuid.UUID(int=1),
    Decimal("1.5"), Fraction(1, 3), collections.deque([1]), collections.OrderedDict(a=1),
    collections.Counter("ab"), collections.defaultdict(None, {1: 2}), types.SimpleNamespace(a=1),
    pathlib.PurePosixPath("a/b"), ValueError(1), Held([1]), Record(2), [Record(i) for i in range(99)],
    having(Items([1]), "a", [2]), having(Members("ab"), "a", 1), having(Slots(), "slot", 1),
    Range(start=0, stop=3), "a" * 100_000, np.random.default_rng(1), slice,
]  # fmt: skip


def test_pipelines_without_functions_have_the_same_fingerprint_on_every_python() -> None:
    """A fingerprint without functions is the same on all versions of Python."""
    assert fingerprint(WITHOUT_FUNCTIONS).structure == "v3-31fb5f39d7ff0f6038d9e20b1fa03a04"


SCRIPT = """
import sys
from tests.pipelines.test_contents import WITHOUT_FUNCTIONS, fingerprint
one = sys.intern("a b") if sys.argv[1] == "1" else "".join(["a", " b"])
print(fingerprint([WITHOUT_FUNCTIONS, [one] * 300]))
"""


def test_hash_seed_and_interning_do_not_count() -> None:
    """Processes with other hash seeds and other interned texts agree."""
    found = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT, seed],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1


@pytest.mark.parametrize("make", [lambda x: [x], lambda x: (x,), lambda x: {"a": x}])
def test_deep_nesting_is_an_error_only_where_it_cannot_be_walked(make: Any) -> None:
    """A value that is nested 190 deep has a fingerprint, and 10,000 are too many."""
    held: Any = Held()
    for _ in range(190):
        held = make(held)
    assert fingerprint(held) != fingerprint([held])
    for _ in range(10_000):
        held = make(held)
    with pytest.raises(RecursionError):
        fingerprint(held)
