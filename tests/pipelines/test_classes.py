"""Tests of classes pickled by value, made again by a process without the script."""

from __future__ import annotations

import io
import pickle
import subprocess
import sys
from typing import Any

import dill
import pytest

from zmqdata.pipelines.classes import is_definition, new_class
from zmqdata.pipelines.pickler import PipelinePickler, UnsendableError

CASES = {
    "a hook with a default": """
class Tagged:
    def __init_subclass__(cls, tag=None): cls.tag = tag
class A(Tagged, tag="x"): pass
def check(): return A().tag
""",
    "a hook with a keyword that it needs, inherited twice": """
class Tagged:
    def __init_subclass__(cls, *, tag, **more):
        super().__init_subclass__(**more)
        cls.tag = tag
class A(Tagged, tag="x"): pass
class B(A, tag="y"): pass
def check(): return A.tag, B.tag
""",
    "a registry, reached by an instance first": """
class Base:
    known = {}
    def __init_subclass__(cls): Base.known[cls.__name__] = cls
class R(Base):
    def f(self): return sorted(self.known)
one = R()
def check(): return one.f(), Base.known["R"] is R
""",
    "a class that is made on the worker": """
class Base:
    known = []
    def __init_subclass__(cls, **more): Base.known.append(cls.__name__)
class R(Base): pass
def check():
    class Late(R): pass
    return Base.known[-1]
""",
    "a metaclass with arguments, and one of a metaclass": """
class Above(type):
    def __call__(meta, *parts, **more): return super().__call__(*parts)
class Meta(type, metaclass=Above):
    def __new__(meta, name, bases, body): return super().__new__(meta, name, bases, {**body, "of": 3})
    def __setattr__(cls, name, value): raise TypeError("frozen")
    def __getattr__(cls, name): raise KeyError(name)
    def __eq__(cls, other): raise ValueError
    __hash__ = None
    def __len__(cls): return 4
class C(metaclass=Meta, more=1): pass
def check(): return C.of, len(C), type(type(C)).__name__
""",
    "descriptors that learn their names": """
class Field:
    def __set_name__(self, owner, name): self.name, self.owner = name, owner
    def __get__(self, it, kind): return f"{self.owner.__name__}.{self.name}"
class Model:
    a = Field()
def check(): return Model().a
""",
    "abstract classes with a metaclass of the script": """
import abc
class Meta(abc.ABCMeta):
    def __new__(meta, *parts): return super().__new__(meta, *parts)
class Base(metaclass=Meta):
    @abc.abstractmethod
    def f(self): ...
class C(Base):
    def f(self): return 1
@Base.register
class Virtual: pass
def check(): return C().f(), isinstance(Virtual(), Base), sorted(Base.__abstractmethods__)
""",
    "classes of typing": """
import typing
T = typing.TypeVar("T")
P = typing.ParamSpec("P")
Name = typing.NewType("Name", int)
@typing.runtime_checkable
class Sized(typing.Protocol):
    def size(self) -> int: ...
class Box(typing.Generic[T]):
    def size(self): return Name(1)
class IntBox(Box[int]): pass
class Call(typing.Generic[P]): pass
class Options(typing.TypedDict, total=False):
    a: int
class Pair(typing.NamedTuple):
    a: int
    b: list = [2]
    def total(self): return self.a + len(self.b)
def check():
    return isinstance(Box(), Sized), IntBox().size(), Box.__parameters__ == (T,), Options.__total__, Pair(1).total()
""",
    "enumerations with a __new__ of their own, and aliases": """
import dataclasses, datetime, enum
class Point(bytes, enum.Enum):
    def __new__(cls, value, label):
        made = bytes.__new__(cls, [value])
        made._value_, made.label = value, label
        return made
    X = (0, "x")
    Y = (1, "y")
@dataclasses.dataclass(frozen=True)
class Size:
    a: int
    b: str
class Sizes(Size, enum.Enum):
    SMALL = 1, "s"
class Calls(enum.Enum):
    if hasattr(enum, "member"):
        TWICE = enum.member(lambda x: 2 * x)
        LIMIT = enum.nonmember(5)
class Days(datetime.date, enum.Enum):
    FIRST = 2020, 1, 1
class Access(enum.IntFlag):
    R = 1
    W = 2
    ALL = 3
NEXT = {Point.X: Point.Y}
def check():
    held = Sizes.SMALL.b, Days.FIRST.isoformat(), Access(5), NEXT[Point(0)].label
    calls = [Calls.TWICE.value(2), Calls.LIMIT] if Calls.__members__ else []
    return (*held, *calls, bytes(Point.Y), Access.R | Access.W)
""",
    "slots, private ones, and a restored frozen dataclass": """
import dataclasses
class A:
    __slots__ = ("__x", "__weakref__")
    def __init__(self): self.__x = 1
    def get(self): return self.__x
@dataclasses.dataclass(slots=True, frozen=True)
class D:
    a: int
one, other = A(), D(2)
def check(): return one.get(), other, A.__slots__
""",
    "objects that need the class and its globals while they are opened": """
class K:
    pool = {}
    def __new__(cls, a):
        return cls.pool.setdefault(a, object.__new__(cls))
    def __init__(self, a): self.a = a
    def __getnewargs__(self): return (self.a,)
    def __setstate__(self, state): self.a = state["a"] + SHIFT
    def __hash__(self): return SHIFT
    def __eq__(self, other): return self is other
SHIFT = 0
one = K(1)
TABLE = {one: "found"}
def check(): return K.pool[1] is one, TABLE[one]
""",
    "classes that count or share their objects": """
import dataclasses
class Known:
    all, count = {}, 0
    def __new__(cls, name="x"):
        made = super().__new__(cls)
        made.name, cls.all[name], cls.count = name, made, cls.count + 1
        return made
class Single:
    one = None
    def __new__(cls):
        if cls.one is None: cls.one = super().__new__(cls)
        return cls.one
shared = None
class Shared:
    def __new__(cls):
        global shared
        shared = shared or super().__new__(cls)
        return shared
class Child(Shared): pass
@dataclasses.dataclass(frozen=True)
class Frozen:
    a: int
    made = []
    def __new__(cls, a): cls.made.append(object.__new__(cls)); return cls.made[-1]
class Answering(Known):
    def __getattr__(self, name): return self.all["a"]
class Interned:
    made = {}
    def __new__(cls, a): return cls.made.setdefault(len(cls.made), super().__new__(cls))
    def __init__(self, a): self.a = a
    def __getnewargs__(self): return (self.a,)
a, single, other, frozen, interned = Known("a"), Single(), Child(), Frozen(1), Interned(5)
answering = Answering("b")
def check(default=single):
    held = Known.all["a"] is a, Known.all["b"] is answering.b, Known.count, Answering.count
    ones = Single() is single is default, Child() is other, Frozen.made[0] is frozen
    return held, ones, len(Known.all), len(Frozen.made), Interned.made[0] is interned, len(Interned.made)
""",
    "objects that refer to each other through their classes": """
class Registry(type):
    known = {}
    def __call__(cls, *parts):
        if cls not in Registry.known: Registry.known[cls] = super().__call__(*parts)
        return Registry.known[cls]
class Option(metaclass=Registry):
    def __new__(cls, a): type(cls).last = super().__new__(cls); return type(cls).last
    def __init__(self, a): self.a = a
class Colour:
    by_value = {}
    def __new__(cls, value):
        if value not in cls.by_value:
            cls.by_value[value] = super().__new__(cls)
            cls.by_value[value].value = value
        return cls.by_value[value]
Colour.RED, Colour.BLUE = Colour(1), Colour(2)
Colour.RED.other, Colour.BLUE.other = Colour.BLUE, Colour.RED
class Field:
    made = []
    def __new__(cls, size): cls.made.append(1); return super().__new__(cls)
    def __init__(self, size): self.size = size
    def __set_name__(self, owner, name): self.name = name
    def __get__(self, it, kind): return self.name, Colour.BLUE
class Model:
    a = Field(2)
    def __class_getitem__(cls, key): return cls.a[1], key
option, names = Option(7), {Colour.RED: "red"}
def check(red=Colour.RED):
    same = red is Colour(1) is Colour.BLUE.other, Model["k"][0] is Colour.BLUE
    return same, names[red], len(Colour.by_value), Option(8) is option is Registry.last, len(Field.made)
""",
    "values with a __new__ of their own": """
class Sum(int):
    def __new__(cls, a, b): return int.__new__(cls, a + b)
class Word(str):
    known = {}
    def __new__(cls, text, language):
        made = str.__new__(cls, text)
        made.language = cls.known[text] = language
        return made
class Pair(tuple):
    def __new__(cls, a, b): return tuple.__new__(cls, (b, a))
class Named(dict):
    def __new__(cls, name): made = dict.__new__(cls); made.name = name; return made
    def __init__(self, name): self["name"] = name
held = Sum(1, 2), Word("a", "en"), Pair(1, 2), Named("n")
def check(): return held, held[1].language, held[3].name, Word.known, type(held[0]).__name__
""",
    "classes of msgspec": """
import msgspec
class Base(msgspec.Struct, tag="base", kw_only=True):
    a: int
    def twice(self): return 2 * self.a
class Child(Base, frozen=False):
    b: list = []
def check(): return Child(a=1), Base(a=2).twice(), msgspec.json.encode(Base(a=3))
""",
    "objects that answer for what they lack": """
class Config:
    def __init__(self): self.values = {"size": 5}
    def __getattr__(self, name): return self.values[name]
class Slotted:
    __slots__ = ("values", "unset")
    def __init__(self): self.values = 6
    def __getattr__(self, name): raise RuntimeError(name)
class Items(dict):
    __getattr__, __setattr__ = dict.__getitem__, dict.__setitem__
class Hidden:
    def __init__(self): self.x = 1
    def __getattribute__(self, name):
        if name.startswith("__"): raise ValueError(name)
        return object.__getattribute__(self, name)
class Liar:
    def __init__(self): self.x = 2
    @property
    def __class__(self): raise ValueError("no class")
c, s, i, h, l = Config(), Slotted(), Items(q=1), Hidden(), Liar()
def check(): return c.size, s.values, i.q, h.x, l.x
""",
    "enumerations of many kinds": """
import enum, datetime, decimal, dataclasses
class Perm(enum.Flag):
    R = 1
    W = 2
    RW = 3
class IP(enum.IntFlag):
    X = 1
    Y = 4
class S(str, enum.Enum):
    A = "a"
    B = "b"
    def up(self): return self.value.upper(), type(self).A.name
class D(datetime.date, enum.Enum):
    NEW = 2020, 1, 2
class Dec(decimal.Decimal, enum.Enum):
    ONE = "1.5"
@dataclasses.dataclass
class Base:
    x: int
class DC(Base, enum.Enum):
    P = 3
class Auto(enum.Enum):
    def _generate_next_value_(name, start, count, last): return name.lower()
    ONE = enum.auto()
class Un(enum.Enum):
    L = [1, 2]
    M = {"a": 1}
class Own(enum.Enum):
    def __new__(cls, v, label):
        o = object.__new__(cls); o._value_ = v; o.label = label; return o
    A = (1, "one")
    @classmethod
    def _missing_(cls, v): return cls.A
class F(enum.Enum):
    @enum.nonmember if hasattr(enum, "nonmember") else staticmethod
    def helper(x): return x
    Z = 1
class T(tuple, enum.Enum):
    P = (1, 2)
class I(enum.IntEnum):
    A = 1
    B = 2
combo = Perm.R | Perm.W, IP.X | IP.Y
def check():
    return [
        Perm(3) is Perm.RW, Perm(3).name, combo[0] is Perm.RW, combo[1] == IP(5), combo[1] is IP(5), list(Perm), IP.X in combo[1],
        S("a") is S.A, S.B.up(), S.A == "a", f"{S.A.value}", D.NEW.year, D.NEW.value,
        Dec.ONE + 1, DC.P.x, DC.P.value, Auto("one") is Auto.ONE, Un([1,2]) is Un.L, Un({"a":1}) is Un.M, Own(1).label, Own(77) is Own.A,
        T.P == (1,2), I(2) is I.B, I.B + 1, sorted(I), list(Perm.__members__), hash(S.A) == hash(S("a")), repr(Perm.R), repr(S.A), str(I.A), len(Un),
        [m.name for m in I], I.__doc__, "A" in I.__members__, isinstance(I.A, I), ~Perm.R, bool(Perm(0)), Perm["R"] is Perm.R,
    ]
""",
    "what python makes with a lock or a weak reference": """
import functools, weakref
class A:
    @functools.cached_property
    def x(self): return 3
    @functools.singledispatchmethod
    def f(self, x): return "any"
    @f.register
    def _(self, x: int): return "int"
    @functools.cache
    def g(self): return 4
class Base:
    known = weakref.WeakValueDictionary()
    def __init_subclass__(cls): Base.known[cls.__name__] = cls
class B(Base): pass
a = A()
def check(): return a.x, a.f(1), a.f(""), a.g(), Base.known["B"] is B
""",
}


def packed(source: str) -> bytes:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(source, names)
    file = io.BytesIO()
    PipelinePickler(file).dump(names["check"])
    return file.getvalue()


def test_classes_of_a_script_work_in_another_process() -> None:
    """Classes arrive as they are, whatever ran when they were made, and none of it runs
    again.
    """
    wanted = {}
    for name, source in CASES.items():
        names: dict[str, Any] = {"__name__": "__main__"}
        exec(source, names)
        wanted[name] = repr(names["check"]())
    opener = (
        "import pickle, sys, dill\n"
        "for name, content in pickle.load(sys.stdin.buffer).items():\n"
        "    try: found = repr(dill.loads(content)())\n"
        "    except Exception as error: found = repr(error)\n"
        "    print(name, found, sep=': ')"
    )
    sent = pickle.dumps({name: packed(source) for name, source in CASES.items()})
    got = subprocess.run(
        [sys.executable, "-c", opener], input=sent, capture_output=True, check=True
    )
    assert got.stdout.decode().splitlines() == [f"{name}: {it}" for name, it in wanted.items()]


class Keyed:
    """A base whose module a worker can import."""

    seen: list[str] = []  # noqa: RUF012 - the state of a module

    def __init_subclass__(cls, *, key: str = "") -> None:
        Keyed.seen.append(cls.__name__)
        cls.key = f"{key}!"

    key: str


class Needing:
    def __init_subclass__(cls, *, key: str) -> None: ...


def test_hooks_of_importable_classes_run_where_a_class_is_opened() -> None:
    """A registry of an importable module learns of the class, and the class keeps the
    attributes of the client.
    """
    source = "from tests.pipelines.test_classes import Keyed\nclass A(Keyed, key='k'): pass\ndef check(): return A"
    content = packed(source)
    Keyed.seen.clear()
    assert dill.loads(content)().key == "k!"
    assert Keyed.seen == ["A"]


def test_a_keyword_that_is_lost_is_told_before_sending() -> None:
    """A hook of an importable class that needs a keyword of the class statement is
    refused by the client.
    """
    source = "from tests.pipelines.test_classes import Needing\nclass A(Needing, key='k'): pass\ndef check(): return A"
    with pytest.raises(UnsendableError) as caught:
        packed(source)
    assert "Needing.__init_subclass__ needs the keyword arguments key" in str(
        caught.value.__cause__
    )


def test_a_hook_that_fails_on_the_worker_is_named() -> None:
    """The error names the class, the hook's own error and the remedy."""

    class Strict:
        def __init_subclass__(cls) -> None:
            raise ValueError("needs a name")

    with pytest.raises(TypeError, match=r"the class 'A.B'.*ValueError: needs a name.*`ship=`"):
        new_class(0, type, "B", (Strict,), {"__qualname__": "A.B"})


def test_definitions_need_nothing_to_be_created() -> None:
    """Functions, classes, modules and plain values are definitions; objects are not."""
    definitions = [len, int, sys, property(len), staticmethod(packed), (1, "a"), str.join, None]
    assert [is_definition(one) for one in definitions] == [True] * 3 + [False] + [True] * 4
    assert not any(map(is_definition, ([], "".join, object(), property(lambda self: 1).setter)))
