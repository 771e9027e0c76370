"""Tests of fingerprints: pipelines with equal and with different ones."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import enum
import functools
import math
import os
import pathlib
import subprocess
import sys
import types
import typing
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zmqdata.messages.identity import Fingerprint
from zmqdata.nodes import base
from zmqdata.pipelines.fingerprints import fingerprint, nodes_in_order


@dataclasses.dataclass(frozen=True, init=False)
class Node(base.Node):
    parameter: Any = None

    def __init__(
        self, parameter: Any = None, inputs: tuple[Any, ...] = (), site: str = "a.py:1"
    ) -> None:
        for name, value in {"parameter": parameter, "inputs": inputs, "site": site}.items():
            object.__setattr__(self, name, value)


class Other(Node):
    pass


def script_function(source: str, **names: Any) -> Any:
    """Return a function ``f`` as a training script defines it."""
    space = {"__name__": "__main__", **names}
    exec(source, space)
    return space["f"]


SCRIPT = """
import dataclasses, enum, numpy as np, functools
from zmqdata.pipelines import fingerprint
class Colour(enum.Enum):
    RED = 1
@dataclasses.dataclass
class Record:
    x: int
    kinds: frozenset = frozenset({"a", "b", "c"})
    def area(self): return self.x in {"p", "q", "r"}
def f(x): return g(x) if x in {"one", "two", "three"} else Record(x)
def g(x): return f(x)
print(fingerprint([f, Record, Record(1), {"u", "v", "w"}, Colour, np.arange(3), functools.partial(f, 1), np.sqrt,
                   functools.lru_cache(f), object(), np.random.default_rng(1), {("a", 1): 2, ("b", 2): 3}]))
"""


def test_a_script_has_the_same_fingerprint_in_every_run() -> None:
    """A script's fingerprint ignores hash seed, addresses and line numbers."""
    found = {
        subprocess.run(
            [sys.executable, "-c", "\n" * int(seed) + SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1


def test_where_a_pipeline_was_written_does_not_count() -> None:
    """A node's site and label do not affect the fingerprint."""
    assert fingerprint(Node(1, site="a.py:1")) == fingerprint(Node(1, site="b.py:2"))


@pytest.mark.parametrize(
    "other",
    [
        Other(1, (Node(),)),
        Node(2, (Node(),)),
        Node(1),
        Node(1, (Node(), Node())),
        Node(1, (Node(0),)),
        Node(1.0, (Node(),)),
    ],
)
def test_another_structure_has_another_fingerprint(other: Node) -> None:
    """A node's kind, parameters, parameter types and inputs affect the fingerprint."""
    assert fingerprint(other).structure != fingerprint(Node(1, (Node(),))).structure


def test_a_shared_input_differs_from_two_equal_ones() -> None:
    """A shared input and two equal inputs have different fingerprints."""
    shared = Node()
    assert fingerprint(Node(1, (shared, shared))) != fingerprint(Node(1, (Node(), Node())))


@dataclasses.dataclass(frozen=True, init=False)
class Counted(Node):
    """A node that counts how often it was read."""

    reads: int = dataclasses.field(default=0, compare=False)

    def __init__(self, parameter: Any = None, reads: int = 0) -> None:
        super().__init__(parameter)
        object.__setattr__(self, "reads", reads)


def test_what_is_not_compared_does_not_count() -> None:
    """A field excluded from a node's comparison, such as a counter, does not count."""
    assert fingerprint(Counted(1, reads=5)) == fingerprint(Counted(1))
    assert fingerprint(Counted(2)) != fingerprint(Counted(1))


class Refusing:
    """An object that answers with errors, and says that it is of another class."""

    def __init__(self, held: int) -> None:
        self.inputs = held

    def __getattr__(self, name: str) -> Any:
        raise KeyError(name)

    @property
    def __class__(self) -> Any:
        raise ValueError("no class")

    __len__ = __bool__ = __eq__ = __repr__ = __hash__ = __getattr__  # type: ignore[assignment]


def test_objects_are_looked_at_without_being_believed() -> None:
    """An object's own answers and errors do not matter to its fingerprint; what it
    stores does.
    """
    assert fingerprint(Refusing(1)) == fingerprint(Refusing(1))
    assert fingerprint(Refusing(1)) != fingerprint(Refusing(2))


def test_nodes_come_inputs_first_and_once() -> None:
    """Nodes come once each in execution order, inputs first."""
    source = Node("source")
    left, right = Node("left", (source,)), Node("right", (source,))
    last = Node("last", (left, right))
    assert nodes_in_order(last) == [source, left, right, last]
    assert nodes_in_order(3) == [3]


VALUES: list[Any] = [
    None, True, 1, 1.0, 1j, "1", b"1", bytearray(b"1"), (1,), [1], {1}, frozenset({1}), {1: 1}, {"1": 1}, math.nan,
    -0.0, 0.0, slice(1), range(1), np.array([1]), np.array([1], "i4"), np.array([[1]]), np.array(1), np.int8(1),
    np.dtype("i4"), np.array([1, None], object), np.array(["a"]), datetime.date(2020, 1, 1), os, math,
    pathlib.Path("a"),
    collections.deque([1]), collections.deque([2]), enum.Enum("E", "A")["A"], types.SimpleNamespace(a=1), np.zeros(0),
    dict.fromkeys(map(str, range(2000))), dict.fromkeys(map(str, range(2000)), 1), dict.fromkeys(range(2000)),
    ["x"] * 2000, ["x"] * 2001, ("x",) * 2000, np.random.default_rng(1), np.random.default_rng(2), "", (), [], {},
    set(),
    types.MappingProxyType({"a": 1}), np.datetime64("2020", "Y"), np.datetime64("2020", "M"), ["ab", "c"], ["a", "bc"],
]  # fmt: skip


def test_different_values_have_different_fingerprints() -> None:
    """Types and contents of parameters affect the fingerprint, whatever the value."""
    assert len({str(fingerprint(Node(value))) for value in VALUES}) == len(VALUES)


def test_flags_with_several_members_or_none_have_fingerprints() -> None:
    """Combinations of flags differ, even if Python has no name for them."""
    bits = enum.Flag("Bits", "A B C")
    combined = [bits(0), bits.A, bits.A | bits.B, bits.A | bits.C, bits.A | bits.B | bits.C]
    assert len({str(fingerprint(Node(value))) for value in combined}) == len(combined)


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
    max_leaves=10,
)


@given(plain, plain)
def test_plain_values_have_equal_fingerprints_exactly_when_they_are_equal(a: Any, b: Any) -> None:
    """Plain values have equal fingerprints exactly if types and contents are equal."""
    same = canonical(a) == canonical(b)
    assert (fingerprint(Node(a)) == fingerprint(Node(b))) == same


def canonical(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{key!r}:{canonical(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__}[" + ",".join(map(canonical, value)) + "]"
    return repr(value)


@given(st.lists(st.text() | st.integers(), unique=True))
def test_the_order_of_sets_and_mappings_does_not_count(values: list[Any]) -> None:
    """The order of a set or a dictionary does not affect the fingerprint."""
    backwards = values[::-1]
    assert fingerprint(set(values)) == fingerprint(set(backwards))
    assert fingerprint(dict.fromkeys(values)) == fingerprint(dict.fromkeys(reversed(values)))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (lambda: lambda x: x + 1, lambda: lambda x: x + 2),
        (lambda: lambda x: x.a, lambda: lambda x: x.b),
        (lambda: lambda x, y=1: x, lambda: lambda x, y=2: x),
        (lambda: closed_over(1), lambda: closed_over(2)),
        (lambda: closed_over(closed_over(1)), lambda: closed_over(closed_over(2))),
        (lambda: lambda x: [y + 1 for y in x], lambda: lambda x: [y + 2 for y in x]),
        (
            lambda: script_function("def f(): return n", n=1),
            lambda: script_function("def f(): return n", n=2),
        ),
        (
            lambda: script_function("def g(): return 1\ndef f(): return g()"),
            lambda: script_function("def g(): return 2\ndef f(): return g()"),
        ),
        (
            lambda: script_function("class f:\n  def m(self): return 1"),
            lambda: script_function("class f:\n  def m(self): return 2"),
        ),
        (
            lambda: script_function("class f:\n  x: int"),
            lambda: script_function("class f:\n  x: float"),
        ),
        (
            lambda: script_function("class C:\n  @property\n  def m(self): return 1\nf = C()"),
            lambda: script_function("class C:\n  @property\n  def m(self): return 2\nf = C()"),
        ),
        (
            lambda: script_function("class C:\n  @classmethod\n  def m(cls): return 1\nf = C.m"),
            lambda: script_function("class C:\n  @classmethod\n  def m(cls): return 2\nf = C.m"),
        ),
        (lambda: len, lambda: max),
        (lambda: np.add, lambda: np.subtract),
        (lambda: dict, lambda: list),
        (lambda: functools.lru_cache(closed_over(1)), lambda: functools.lru_cache(closed_over(2))),
        (lambda: "a".join, lambda: "b".join),
    ],
)
def test_other_code_changes_only_the_code_part(
    first: Callable[[], Any], second: Callable[[], Any]
) -> None:
    """Changed code changes only the code part, which causes a warning."""
    before, after = fingerprint(Node(first())), fingerprint(Node(second()))
    assert before.code != after.code
    assert before.structure == after.structure
    assert before == fingerprint(Node(first()))


def closed_over(value: Any) -> Callable[[], Any]:
    return lambda: value


def test_bound_arguments_are_parameters() -> None:
    """The arguments of a partial and a bound method's instance count as structure."""
    assert (
        fingerprint(functools.partial(len, 1)).structure
        != fingerprint(functools.partial(len, 2)).structure
    )
    first, second = types.SimpleNamespace(a=1), types.SimpleNamespace(a=2)
    bound = [types.MethodType(closed_over(1), held) for held in (first, second)]
    assert fingerprint(bound[0]).structure != fingerprint(bound[1]).structure


def test_the_order_of_functions_in_the_code_does_not_reach_the_structure() -> None:
    """Objects reached through code are numbered apart from objects of the structure."""
    held = types.SimpleNamespace(a=1)
    one = fingerprint([closed_over(held), held, held])
    two = fingerprint([closed_over([1, held]), held, held])
    assert one.structure == two.structure
    assert one.code != two.code


def test_what_refers_to_itself_has_a_fingerprint() -> None:
    """An object that refers to itself has a fingerprint, as cycles are detected."""
    loop: list[Any] = [1]
    loop.append(loop)
    around = types.SimpleNamespace()
    around.me = around
    recursive = script_function("def f(): return g()\ndef g(): return f()")
    assert fingerprint([loop, around, recursive]) == fingerprint([loop, around, recursive])


def test_many_paths_to_one_object_take_no_longer() -> None:
    """A function, class or object is written once, however many paths lead to it."""
    source = "class C0:\n  x = 1\n"
    for i in range(1, 40):
        source += f"class C{i}:\n  def a(self): return C{i - 1}\n  def b(self): return C{i - 1}\n"
    assert fingerprint(script_function(source + "f = C39")).code


def test_an_array_shared_by_functions_is_hashed_once() -> None:
    """The hash of an array is cached, so all functions that share it hash it once."""
    array = np.arange(1000)
    assert fingerprint([closed_over(array), closed_over(array)]) == fingerprint(
        [closed_over(array), closed_over(array.copy())]
    )


def test_layout_of_an_array_does_not_count() -> None:
    """The memory order of an array does not affect the fingerprint."""
    array = np.arange(6).reshape(2, 3)
    assert fingerprint(array) == fingerprint(np.asfortranarray(array))


def test_unbound_variables_and_unpicklable_objects_have_a_fingerprint() -> None:
    """Unbound variables and unpicklable objects are identified by their class."""

    def make() -> Any:
        if VALUES is None:
            later = 1
        return lambda: later

    assert fingerprint(make()) == fingerprint(make())
    assert fingerprint(memoryview(b"a")) == fingerprint(memoryview(b"b"))


def test_a_pipeline_inside_of_a_pipeline_is_one_too() -> None:
    """A pipeline inside a parameter or a function counts without its site."""
    one, two, other = Node(1, site="a.py:1"), Node(1, site="b.py:2"), Node(2, site="a.py:1")
    assert fingerprint(Node([one])) == fingerprint(Node([two]))
    assert fingerprint(Node([one])).structure != fingerprint(Node([other])).structure
    assert fingerprint(Node(closed_over(one))) == fingerprint(Node(closed_over(two)))


def test_a_pipeline_whose_function_names_it_has_a_fingerprint() -> None:
    """A pipeline whose function refers to it, such as to ``ds``, has a fingerprint."""
    f = script_function("def f(x): return ds, [ds for _ in x]")
    f.__globals__["ds"] = Node(f, (Node(f),))
    assert fingerprint(f.__globals__["ds"]) == fingerprint(f.__globals__["ds"])


def test_fields_of_records_and_functions_within_functions_count() -> None:
    """Fields of dataclasses and globals used only by inner functions count."""
    record = dataclasses.make_dataclass("Record", ["x"])
    assert fingerprint(record(1)) != fingerprint(record(2))
    inner = [script_function("def f(): return lambda: n", n=n) for n in (1, 2)]
    assert fingerprint(inner[0]) != fingerprint(inner[1])
    assert fingerprint(typing.AnyStr) != fingerprint(typing.TypeVar("T"))


def test_a_fingerprint_reads_back_from_its_text() -> None:
    """A fingerprint's text parses back to both of its parts."""
    both = fingerprint(Node(len))
    assert Fingerprint.parse(str(both)) == both


def test_functions_are_compared_without_their_values() -> None:
    """The ``functions`` part covers bytecode, constants and location, not values."""

    def holds(value: Any) -> Callable[[int], Any]:
        return lambda x: (x, value)

    def print_of(*steps: Any) -> Fingerprint:
        return fingerprint(list(steps))

    assert print_of(holds(1)).functions == print_of(holds("other")).functions
    assert print_of(holds(1)).code != print_of(holds("other")).code
    assert print_of(lambda x: x * 2).functions != print_of(lambda x: x * 3).functions
    assert print_of(len).functions != print_of(max).functions
    assert print_of(np.add).functions != print_of(np.subtract).functions
    same, other = holds(1), len
    orders = [(same, same, other), (same, other, other), (other, same, same)]
    assert len({print_of(*order).functions for order in orders}) == 3
