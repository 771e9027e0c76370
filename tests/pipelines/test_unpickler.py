"""Tests of classes pickled by value: identical at their origin, copies elsewhere."""

from __future__ import annotations

import gc
import io
import subprocess
import sys
import types
from typing import Any

import pytest

from zmqdata.pipelines import PackedPipeline, open_pipeline, pack_pipeline, unpickler
from zmqdata.pipelines.pickler import PipelinePickler
from zmqdata.pipelines.unpickler import classes_of, open_pickle, remember

SCRIPT = """
import abc, collections, dataclasses, enum, typing
T = typing.TypeVar("T")
heirs = []
class Plain:
    def __init__(self, x): self.x = x
    @classmethod
    def make(cls): return cls(7)
class Watching:
    def __init_subclass__(cls): heirs.append(cls)
class Watched(Watching): pass
class Child(Plain):
    __slots__ = ("y",)
    def __init__(self, x):
        super().__init__(x)
@dataclasses.dataclass(frozen=True)
class Record:
    x: int
    none: type = type(None)
class Pair(typing.NamedTuple):
    a: int
    b: int = 2
    def total(self): return self.a + self.b
Old = collections.namedtuple("Old", "a")
class Abstract(abc.ABC):
    @abc.abstractmethod
    def go(self): ...
@Abstract.register
class Registered: pass
class Concrete(Abstract):
    def go(self): return 3
class Colour(enum.Enum):
    RED = 1
    BLUE = 2
    def __init__(self, value): self.tripled = value * 3
    @property
    def next(self): return type(self).RED
class Bits(enum.Flag):
    A = enum.auto()
    B = enum.auto()
class Box(typing.Generic[T]):
    class Inside: pass
class Meta(type):
    made = []
    def __new__(meta, *parts):
        meta.made.append(parts[0])
        return super().__new__(meta, *parts)
class Counted(metaclass=Meta): pass
class Error(Exception): pass
def outer():
    class Local: pass
    return Local, (lambda: Local())
"""
NAMES = [
    *("Plain", "Child", "Record", "Pair", "Old", "Abstract", "Registered", "Concrete"),
    *("Colour", "Bits", "Box", "Meta", "Counted", "Error", "Watched"),
]


def script() -> types.SimpleNamespace:
    """Run a training script whose ``__main__`` other processes do not have."""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(SCRIPT, names)
    del names["__builtins__"]  # all names of a module, which no pipeline carries
    return types.SimpleNamespace(**names)


@pytest.mark.parametrize("name", NAMES)
def test_a_class_is_itself_again_where_it_came_from(name: str) -> None:
    """A class opened in its own process is the same class, unchanged, whatever its
    kind. Its instances stay instances of it.
    """
    ours = script()
    kind = getattr(ours, name)
    before = dict(vars(kind))
    opened, again = open_pipeline(pack_pipeline([kind, [kind]]))
    assert opened is kind
    assert again == [kind]
    changed = {key for key, held in vars(kind).items() if before.get(key) is not held}
    assert changed <= {"_abc_impl"}


def test_nothing_of_a_class_is_run_again() -> None:
    """Opening an existing class runs no ``__init_subclass__`` and no metaclass."""
    ours = script()
    heirs, made = list(ours.heirs), list(ours.Meta.made)
    open_pipeline(pack_pipeline([ours.Watched, ours.Counted, ours.Plain]))
    assert (ours.heirs, ours.Meta.made) == (heirs, made)


def test_functions_make_instances_of_our_classes() -> None:
    """Opened functions are copies, but create instances of the original classes. This
    holds for functions of the script, of its classes and inside its functions.
    """
    ours = script()
    local, function = ours.outer()
    made, opened = open_pipeline(pack_pipeline([ours.Plain.make, function]))
    assert type(made()) is ours.Plain
    assert type(opened()) is local
    assert opened is not function
    instances = [
        ours.Record(1),
        ours.Colour.BLUE,
        ours.Pair(1),
        ours.Child(4),
        ours.Bits.A | ours.Bits.B,
    ]
    got = open_pipeline(pack_pipeline(instances))
    assert [type(one) for one in got] == [type(one) for one in instances]
    assert got[:3] == instances[:3]
    assert got[1] is ours.Colour.BLUE


def test_cells_are_filled_though_their_type_has_no_name() -> None:
    """A closure over the cell type and a class of the script keeps both values."""
    ours = script()
    cell_type, value = types.CellType, 5
    opened = open_pipeline(pack_pipeline(lambda: (cell_type, value, ours.Plain)))
    assert opened() == (types.CellType, 5, ours.Plain)


def test_a_pipeline_of_another_process_brings_its_own_classes() -> None:
    """A pipeline from another process brings its own classes, even if their names exist
    here. Local classes arrive there by value as usual.
    """
    sender = (
        f"import sys\nSCRIPT = {SCRIPT!r}\nexec(SCRIPT)\nfrom zmqdata.pipelines import "
        "pack_pipeline\n"
        "sys.stdout.buffer.write(pack_pipeline([Plain, Pair(3)]).encoded)"
    )
    sent = subprocess.run([sys.executable, "-c", sender], capture_output=True, check=True).stdout
    receiver = (
        "import sys\nfrom zmqdata.pipelines import *\n"
        "p, q = open_pipeline(PackedPipeline.decode(sys.stdin.buffer.read()))\nprint(p.make().x, "
        "q.total())"
    )
    got = subprocess.run(
        [sys.executable, "-c", receiver], input=sent, capture_output=True, check=True
    ).stdout
    assert got.split() == [b"7", b"5"]
    plain, _ = open_pipeline(PackedPipeline.decode(sent))
    assert plain.make().x == 7


def test_what_is_gone_is_made_anew() -> None:
    """A pipeline outlives its classes and recreates them; remembering keeps no class
    alive.
    """
    ours = script()
    packed = pack_pipeline(ours.Registered)
    assert classes_of(packed.digest) == {min(classes_of(packed.digest)): ours.Registered}
    del ours
    gc.collect()
    assert classes_of(packed.digest) == {}
    assert open_pipeline(packed).__name__ == "Registered"


def test_as_many_pipelines_as_memory_may_hold_are_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The packer remembers the classes of the newest pipelines, up to a limit. A
    pipeline packed again counts as newest, and a pipeline without such classes takes no
    place.
    """
    monkeypatch.setattr(unpickler, "MOST_KNOWN", 2)
    monkeypatch.setattr(unpickler, "_known", type(unpickler._known)())
    for digest, classes in [
        ("a", {1: int}),
        ("b", {1: str}),
        ("none", {}),
        ("a", {2: int}),
        ("c", {3: bytes}),
    ]:
        remember(digest, classes)
    assert [classes_of(one) for one in ("a", "b", "none", "c")] == [{2: int}, {}, {}, {3: bytes}]


def test_the_pickle_is_read_as_anywhere_else_but_for_classes() -> None:
    """The unpickler of own classes resolves the same names and buffers as the other.
    The test covers dotted names, unnamed types and large buffers.
    """
    ours, file = script(), io.BytesIO()
    value = [
        ours.Colour,
        types.SimpleNamespace(a=type(None)),
        {"b": [1.5, None, "x"] * 500},
        bytearray(9),
        frozenset,
    ]
    pickler = PipelinePickler(file)
    pickler.dump(value)
    remember("of this test", pickler.definitions.classes)
    got = open_pickle(file.getvalue(), (), None, "of this test")
    assert got == value
    assert open_pickle(file.getvalue(), (), None, "of nobody")[1:] == value[1:]
