"""Tests of the pipeline pickler with each kind of object."""

from __future__ import annotations

import abc
import collections
import dataclasses
import functools
import gc
import importlib.util
import io
import pickle
import subprocess
import sys
import tracemalloc
import types
import typing
import xml.etree.ElementTree  # noqa: F401 - a submodule that only its package's name reaches
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dill
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.counts import how_many
from zmqdata.dataset import Dataset
from zmqdata.pipelines import open_pipeline, pack_pipeline, pickler, unpickler
from zmqdata.pipelines.functions import new_function
from zmqdata.pipelines.generators import generators_of
from zmqdata.pipelines.pickler import PickleFile, PipelinePickler, UnsendableError
from zmqdata.pipelines.reducing import new_typing_name
from zmqdata.pipelines.unpickler import PipelineUnpickler


def pickled(value: Any) -> tuple[bytes, set[str]]:
    file = io.BytesIO()
    pickler = PipelinePickler(file)
    pickler.dump(value)
    return file.getvalue(), pickler.modules


def through(value: Any) -> Any:
    return dill.loads(pickled(value)[0])


SCALE = 3


def run_as_script(source: str) -> types.SimpleNamespace:
    """Run a training script whose ``__main__`` other processes do not have."""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(source, names)
    return types.SimpleNamespace(**names)


def test_mutually_recursive_functions_find_each_other() -> None:
    """Each of two mutually recursive functions finds the other among its globals."""
    script = run_as_script(
        "def even(n): return n == 0 or odd(n-1)\ndef odd(n): return n != 0 and even(n-1)\n"
    )
    even = through(script.even)
    assert even(10)
    assert even.__globals__ is not script.even.__globals__


def test_a_function_takes_along_only_what_it_uses() -> None:
    """A function carries only the globals it uses, so unsendable ones do not matter."""
    script = run_as_script(
        "import threading\nlock = threading.Lock()\nscale = 2\ndef f(x): return x * scale\n"
    )
    f = through(script.f)
    assert f(2) == 4
    inner = run_as_script("scale = 2\ndef f(x): return (lambda: x * scale)()\n").f
    assert through(inner)(3) == 6
    assert set(f.__globals__) == {"__name__", "__builtins__", "scale"}


def test_functions_of_a_script_share_their_globals() -> None:
    """Functions of a script share their globals, including values set with
    ``global``.
    """
    script = run_as_script(
        "state = 1\ndef put(v):\n  global state\n  state = v\ndef get(): return state\n"
    )
    put, get = through((script.put, script.get))
    put(9)
    assert get() == 9


def test_names_of_a_script_are_not_taken_for_those_of_a_module() -> None:
    """A module's global does not conflict with a script's unsendable global."""
    script = run_as_script(
        "from textwrap import dedent\n_whitespace_only_re = open\ndef f(x): return dedent(x)\n"
    )
    assert through(script.f)("  a") == "a"


def test_closures_share_their_cells() -> None:
    """Two closures over the same variable still share it."""

    def counter() -> Any:
        count = 0

        def add() -> None:
            nonlocal count
            count += 1

        return add, lambda: count

    add, get = through(counter())
    add()
    add()
    assert get() == 2


def test_a_local_recursive_function_finds_itself() -> None:
    """The pickler handles a cell that holds the function that owns the cell."""

    def factorial(n: int) -> int:
        return 1 if n < 2 else n * factorial(n - 1)

    assert through(factorial)(5) == 120


def test_an_unbound_variable_stays_unbound() -> None:
    """An empty cell arrives empty."""

    def make() -> Any:
        if SCALE == 0:
            later = 1
        return lambda: later

    with pytest.raises(NameError):
        through(make())()


def test_a_cell_on_its_own_keeps_its_contents() -> None:
    """A cell without an owning function keeps its contents."""
    assert through(types.CellType(5)).cell_contents == 5


def test_a_function_keeps_its_defaults_attributes_and_names() -> None:
    """Defaults, attributes, docstring, names and annotations of a function are sent."""

    def f(a: int, b: int = 2, *, c: int = 3) -> int:
        """Docs."""
        return a + b + c

    f.mark = "here"  # type: ignore[attr-defined]
    got = through(f)
    assert (got(1), got.mark, got.__doc__, got.__qualname__) == (6, "here", "Docs.", f.__qualname__)
    assert got.__annotations__ == f.__annotations__


def test_annotations_that_cannot_be_evaluated_are_left_behind() -> None:
    """A function whose annotations raise on access is sent without them."""
    from zmqdata.pipelines.functions import fields_of

    class Odd:
        """A stand-in for a function of Python 3.14, which evaluates its annotations on
        access.
        """

        def __getattr__(self, name: str) -> str:
            if name == "__annotations__":
                raise NameError(name)
            return name

    assert "__annotations__" not in fields_of(typing.cast(types.FunctionType, Odd()))


def test_submodules_are_imported_before_they_are_used() -> None:
    """A function that uses ``xml.etree.ElementTree`` imports its modules, not only
    ``xml``.
    """
    script = run_as_script(
        "import xml.etree.ElementTree\ndef f(): return "
        "xml.etree.ElementTree.fromstring('<a/>').tag\n"
    )
    code = "import sys, dill; sys.stdout.write(dill.loads(sys.stdin.buffer.read())())"
    got = subprocess.run(
        [sys.executable, "-c", code], input=pickled(script.f)[0], capture_output=True, check=True
    )
    assert got.stdout == b"a"


def test_modules_are_named_and_never_emptied_into_the_pickle() -> None:
    """A module is pickled by name, and noted if the worker may lack it."""
    assert through(collections) is collections
    assert pickled(np)[1] == {"numpy"}
    assert len(pickled(np)[0]) < 200


@pytest.mark.parametrize("names", [vars(collections), {"a": [vars(np)]}], ids=["", "inside"])
def test_the_names_of_a_module_are_refused(names: dict[str, Any]) -> None:
    """The dictionary of a module is refused with the module's name: C code would write
    all that the module holds.
    """
    with pytest.raises(TypeError, match=r"holds all names of module '(collections|numpy)'"):
        pack_pipeline(lambda: names)


def test_a_module_that_no_worker_could_import_is_refused() -> None:
    """The pickler rejects the script's own module and modules created at run time."""
    for module in (sys.modules["__main__"], types.ModuleType("made_up")):
        with pytest.raises(UnsendableError) as caught:
            pickled([module])
        assert "exists in this process only" in str(caught.value.__cause__)


def test_a_module_loaded_by_hand_travels_by_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Functions and classes of a module that no import finds travel as those of the
    script. The module itself is refused with the remedy, unless it is shipped.
    """
    path = tmp_path / "by_hand.py"
    path.write_text("SCALE = 3\nclass A:\n    def f(self, x): return x * SCALE\n")
    spec = importlib.util.spec_from_file_location("by_hand", path)
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "by_hand", module)
    spec.loader.exec_module(module)
    content, modules = pickled(module.A().f)
    assert modules == set()
    assert dill.loads(content)(2) == 6
    with pytest.raises(UnsendableError) as caught:
        pickled(lambda: module.SCALE)
    assert f"loaded from {path}, where no `import` finds it; ship it" in str(caught.value.__cause__)
    shipping = PipelinePickler(io.BytesIO(), shipped=["by_hand"])
    shipping.dump([module, module.A])
    assert (shipping.modules, shipping.definitions.classes) == ({"by_hand"}, {})


CLASSES = """
import abc, dataclasses, enum, typing
SCALE = 3
T = typing.TypeVar("T", bound=int)
def scaled(x): return Plain(x).x * SCALE
class Plain:
    def __init__(self, x): self.x = x
    def scaled(self): return scaled(self.x)
    @property
    def prop(self): return self.x + SCALE
    @classmethod
    def make(cls): return cls(7)
    @staticmethod
    def fixed(): return SCALE
class Child(Plain):
    __slots__ = ("y",)
    def __init__(self, x):
        super().__init__(x)
        self.y = SCALE
@dataclasses.dataclass(frozen=True)
class Record:
    x: int
    y: list = dataclasses.field(default_factory=list)
    def area(self): return self.x * SCALE
class Pair(typing.NamedTuple):
    a: int
    b: int = 2
    def total(self): return (self.a + self.b) * SCALE
class Abstract(abc.ABC):
    @abc.abstractmethod
    def go(self): ...
class Concrete(Abstract):
    def go(self): return SCALE
class Colour(enum.Enum):
    RED = 1
    ALSO_RED = 1
    BLUE = 2
    def __init__(self, value): self.tripled = value * SCALE
    def scaled(self): return self.value * SCALE, type(self).RED.name
class Box(typing.Generic[T]):
    def go(self): return SCALE
class Selfish: pass
Selfish.one = Selfish()
"""


def test_classes_of_a_script_travel_whole() -> None:
    """Methods, properties, super, slots, dataclasses, named tuples, abstract classes
    and generics of a script work at the worker.
    """
    script = run_as_script(CLASSES)
    plain, child, record = through((script.Plain(2), script.Child(4), script.Record(5)))
    assert (plain.scaled(), plain.prop, plain.make().x, plain.fixed()) == (6, 5, 7, 3)
    assert (child.x, child.y, record.area(), record.y) == (4, 3, 15, [])
    assert dataclasses.replace(record, x=1).x == 1
    pair = through(script.Pair(1))
    assert (pair.total(), pair._replace(a=2).a, pair.b) == (9, 2, 2)
    assert (through(script.Concrete)().go(), through(script.Box)().go()) == (3, 3)
    with pytest.raises(TypeError):
        through(script.Abstract)()


def test_enumerations_of_a_script_travel_whole() -> None:
    """Enum members keep their class, names, aliases, methods and constructor state."""
    script = run_as_script(CLASSES)
    blue, colour = through((script.Colour.BLUE, script.Colour))
    assert blue is colour.BLUE
    assert colour.ALSO_RED is colour.RED
    assert (blue.scaled(), blue.tripled, list(colour)) == ((6, "RED"), 6, [colour.RED, colour.BLUE])


def test_a_type_variable_is_made_from_plain_parts() -> None:
    """The pickle's constructor call creates the same type variable."""
    variable = new_typing_name(typing.TypeVar, "T", (), {"bound": int})
    assert typing.cast(typing.TypeVar, variable).__bound__ is int
    assert through(variable).__name__ == "T"  # again, in the process that made it


def test_a_type_variable_of_a_module_travels_by_name() -> None:
    """A type variable of a module is pickled by name and keeps its identity."""
    assert through(typing.AnyStr) is typing.AnyStr


def test_a_class_holds_its_own_instance() -> None:
    """A class that holds its own instance arrives with it."""
    selfish = through(run_as_script(CLASSES).Selfish)
    assert type(selfish.one) is selfish


def test_an_object_known_only_by_a_name_of_the_script_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An object that reduces to ``__main__.name`` is rejected as unresolvable."""

    class Named:
        def __reduce__(self) -> str:
            return "only_here"

    Named.__module__ = "__main__"
    one = Named()
    one.__module__ = "__main__"
    monkeypatch.setattr(sys.modules["__main__"], "only_here", one, raising=False)
    with pytest.raises(UnsendableError) as caught:
        pickled([one])
    assert "only its name in __main__" in str(caught.value.__cause__)


def double(x: int) -> int:
    return 2 * x


def test_callables_of_many_kinds_travel() -> None:
    """Partials, bound methods, builtins, caches, wrappers and operators can be sent."""
    cached = through(functools.lru_cache(maxsize=7)(lambda x: x * 2))
    assert (cached(2), cached.cache_info().maxsize) == (4, 7)
    assert through(functools.partial(pow, 2))(3) == 8
    assert through(" ".join)("ab") == "a b"
    assert through([1].count)(1) == 1
    assert through(str.upper)("a") == "A"
    assert (through(len), through(double), through(np.add)) == (len, double, np.add)
    assert through(collections.OrderedDict.fromkeys)("a") == {"a": None}


def array_values() -> list[Any]:
    read_only = np.frombuffer(b"abcd", np.uint8)
    return [
        np.arange(6).reshape(2, 3),
        np.arange(6).reshape(2, 3).T,
        np.asfortranarray(np.ones((2, 3))),
        np.arange(10)[::2],
        np.zeros((0, 3)),
        np.array(5),
        np.zeros(2, [("a", "i4"), ("b", "f8")]),
        np.array([1, "a", None], object),
        np.array(["2020-01-01"], "datetime64[D]"),
        read_only,
    ]


@pytest.mark.parametrize("array", array_values(), ids=lambda array: f"{array.dtype}{array.shape}")
def test_arrays_travel_as_they_are(array: np.ndarray[Any, Any]) -> None:
    """An array keeps its shape, dtype, values and write flag."""
    got = through(array)
    np.testing.assert_array_equal(got, array)
    assert (got.dtype, got.shape, got.flags.writeable) == (
        array.dtype,
        array.shape,
        array.flags.writeable,
    )


def test_one_array_in_two_places_stays_one() -> None:
    """The same array in two places of a pipeline arrives as a single array."""
    array = np.ones(3)
    first, second = through([array, array])
    assert first is second


def test_an_array_is_copied_once_into_the_pickle() -> None:
    """Packing 32 MB allocates a single copy, stored outside the stream."""
    array = np.zeros(32 << 20, np.uint8)
    gc.collect()
    tracemalloc.start()
    pickler = PipelinePickler(PickleFile())
    pickler.dump(array)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sum(len(one.content) for one in pickler.apart) == array.nbytes
    assert peak < 1.3 * array.nbytes


def test_values_of_python_are_written_without_a_call() -> None:
    """The pickler in C asks for none of the values of Python, and for other objects it
    finds what depends on the class once.
    """
    asked = []

    class Counting(PipelinePickler):
        def reducer_override(self, thing: Any) -> Any:
            asked.append(thing)
            return super().reducer_override(thing)

    names = [(str(i), i, {"a": [1.5, b"x", None]}) for i in range(5000)]
    file = io.BytesIO()
    Counting(file).dump([names, tuple(names), dict.fromkeys(range(5000)), set(range(5000))])
    assert len(asked) < 10
    assert dill.loads(file.getvalue())[0] == names


def test_dill_s_own_tables_are_not_changed() -> None:
    """Other users of dill find its tables unchanged."""
    before = dict(dill.Pickler.dispatch)
    pickled([np.ones(2), np.add, np.dtype("f4"), double, run_as_script(CLASSES).Plain])
    assert dict(dill.Pickler.dispatch) == before


def test_the_kinds_that_dill_takes_apart() -> None:
    """dill takes code, descriptors, methods, views, caches, references and sentinels of
    dataclasses apart, whichever version of dill is allowed.
    """
    names = (
        "CallableProxyType ProxyType ReferenceType _FIELD_BASE _HAS_DEFAULT_FACTORY_CLASS "
        "_KW_ONLY_TYPE _MISSING_TYPE _lru_cache_wrapper abstractclassmethod abstractproperty "
        "abstractstaticmethod classmethod classmethod_descriptor code dict_items dict_keys "
        "dict_values getset_descriptor mappingproxy member_descriptor method method_descriptor "
        "odict_items odict_keys odict_values property staticmethod super wrapper_descriptor"
    )
    assert sorted(kind.__qualname__ for kind in pickler._DILL_KINDS) == names.split()


def test_a_metaclass_of_its_own_is_a_class_all_the_same() -> None:
    """A class is pickled as a class whatever its metaclass; a module's class by
    name.
    """
    assert through(abc.ABC) is abc.ABC
    script = run_as_script("class Meta(type): pass\nclass C(metaclass=Meta):\n  x = 1\n")
    assert through(script.C).x == 1
    assert type(through(script.C)).__name__ == "Meta"


def test_a_failure_carries_the_trail() -> None:
    """A failure carries the enclosing objects, outermost first."""

    class Broken:
        def __reduce__(self) -> str:
            raise ValueError("no")

    broken = Broken()
    value = {"a": [broken]}
    with pytest.raises(UnsendableError) as caught:
        pickled(value)
    assert [reached.thing for reached in caught.value.trail] == [value, [broken], broken]
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_pickle_is_protocol_5() -> None:
    """A pickle uses protocol 5, for out-of-band arrays and long frames."""
    assert pickled(1)[0][:2] == pickle.PROTO + b"\x05"


class Plain:
    """A class of a module."""


class Slotted:
    __slots__ = ("first", "second")


class Listed(list[Any]):
    """A list with attributes."""


class Mapped(dict[Any, Any]):
    """A dictionary with attributes."""


def linked(kinds: list[str], links: list[tuple[int, int]]) -> list[Any]:
    """Return containers and objects of some kinds, each of which may hold any."""
    script = run_as_script("class Own:\n  pass\n")
    makers: dict[str, Callable[[], Any]] = {
        "list": list, "dict": dict, "plain": Plain, "slotted": Slotted, "own": script.Own,
        "listed": Listed, "mapped": Mapped,
    }  # fmt: skip
    made = [makers[kind]() for kind in kinds]
    for number, (holder, held) in enumerate(links):
        at, one = made[holder % len(made)], made[held % len(made)]
        if isinstance(at, list):
            at.append((number, one))
        elif isinstance(at, dict):
            at[number] = one
        else:
            setattr(at, ("first", "second")[number % 2], one)
        if isinstance(at, (Listed, Mapped)):
            at.extra = at  # type: ignore[union-attr]  # it takes any
    return made


def parts(one: Any) -> list[Any]:
    """Return what an object of these kinds holds, in order."""
    held = [getattr(one, name, None) for name in ("first", "second", "extra")]
    if isinstance(one, dict):
        return [*held, *one, *one.values()]
    return [*held, *(one if isinstance(one, (list, tuple)) else ())]


@settings(deadline=None, max_examples=how_many(30, 1000))
@given(
    st.lists(
        st.sampled_from(["list", "dict", "plain", "slotted", "own", "listed", "mapped"]),
        min_size=1,
        max_size=8,
    ),
    st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=20),
)
def test_objects_that_hold_each_other_arrive_as_they_are(
    kinds: list[str], links: list[tuple[int, int]]
) -> None:
    """Whatever holds whatever, in cycles and twice, holds the same when it arrives."""
    waiting = [(one := linked(kinds, links), through(one))]
    same: dict[int, int] = {}
    while waiting:
        sent, got = waiting.pop()
        if isinstance(sent, int | None):
            assert sent == got
            continue
        if id(sent) not in same:
            assert id(got) not in same.values()
            assert type(sent).__qualname__ == type(got).__qualname__
            same[id(sent)] = id(got)
            waiting += zip(parts(sent), parts(got), strict=True)
        assert same[id(sent)] == id(got)


class Growing:
    """An object that adds to a dictionary while the dictionary is written."""

    def __init__(self, held: dict[Any, Any]) -> None:
        self.held = held

    def __reduce__(self) -> Any:
        self.held[len(self.held)] = 1
        return Plain, ()


def test_a_dictionary_that_changes_while_it_is_written_is_refused() -> None:
    """A change that Python notices raises an error with the reason."""
    held: dict[Any, Any] = {}
    held |= {"a": Growing(held), "b": 1}
    with pytest.raises(TypeError, match=r"RuntimeError: dictionary changed size"):
        pack_pipeline(held)


def test_other_threads_run_while_a_pickle_is_written_and_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """C code calls Python for each 64 KB that it writes or reads, and Python lets other
    threads run.
    """
    called = Counter[str]()

    def counted(kind: Any, name: str) -> None:
        method = getattr(kind, name)
        call = lambda *given: (called.update([name]), method(*given))[1]  # noqa: E731 - a method
        monkeypatch.setattr(kind, name, call)

    counted(pickler.PickleFile, "write")
    counted(unpickler._PickleReader, "read")
    counted(unpickler._PickleReader, "readinto")
    records = [{"number": i, "name": f"{i} of many"} for i in range(50_000)]
    packed = pack_pipeline(records)
    frames = len(packed.payload) // (64 << 10)
    assert open_pipeline(packed) == records
    assert called["write"] >= frames > 10
    assert called["read"] + called["readinto"] >= frames


def test_a_pickle_larger_than_a_message_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the operation, the limit and the ways out."""
    monkeypatch.setattr(pickler, "MOST_BYTES", 100_000)
    names = [f"name {i}" for i in range(100_000)]
    with pytest.raises(ValueError, match=r"cannot send map.* take more than 100 kB.*numpy arrays"):
        pack_pipeline(Dataset.range(3).map(lambda x: names[x]).node)


def test_what_a_pickler_held_is_freed_at_once() -> None:
    """The packed pipeline and the objects that were packed are not kept by the
    pickler.
    """
    array = np.zeros(2 << 20, np.uint8)
    packed = pack_pipeline(lambda: array)
    (content,) = packed.contents.values()
    gc.disable()
    try:
        counts = sys.getrefcount(packed.payload), sys.getrefcount(content)
    finally:
        gc.enable()
    assert counts <= (2, 4)


class Brought:
    """A stand-in for modules shipped with a pipeline."""

    builtins: typing.ClassVar[dict[str, Any]] = {"print": None}

    def import_module(self, name: str) -> str:
        return f"shipped {name}"

    def placed(self, module: str) -> str:
        return "json" if module == "brought" else module


def test_what_came_along_is_found_where_it_was_put() -> None:
    """Shipped modules, importers and builtins take precedence over local ones."""
    brought: Any = Brought()
    opener = PipelineUnpickler(io.BytesIO(), (), brought)
    assert opener.find_class("brought", "dumps") is opener.find_class("json", "dumps")
    assert opener.find_class("importlib", "import_module")("x") == "shipped x"
    made = opener.find_class(new_function.__module__, "new_function")
    assert (made.func, made.keywords) == (new_function, {"of_globals": Brought.builtins})
    plain = PipelineUnpickler(io.BytesIO(), (), None)
    assert plain.find_class("importlib", "import_module") is importlib.import_module
    with pytest.raises(ModuleNotFoundError, match="brought"):
        plain.find_class("brought", "dumps")


class Sum(int):
    def __new__(cls, a: int, b: int) -> Sum:
        return int.__new__(cls, a + b)


class Failed(Exception):
    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what}: {why}")


class Comparing(type):
    def __eq__(cls, other: object) -> bool:
        return cls is other


class Compared(metaclass=Comparing):
    """A class that cannot be a key."""


class Masked:
    @property
    def __class__(self) -> Any:
        raise RuntimeError


@pytest.mark.parametrize(
    ("thing", "text"),
    [
        (Sum(1, 2), r"Sum\.__new__` with 2 arguments: missing .*'b'\. Define `Sum\.__getnewargs__"),
        (Failed("a", "b"), r"Failed\.__init__` .*: missing .*'why'\. Define `Failed\.__reduce__"),
        (Compared(), r"metaclass Comparing makes its classes unhashable.*__hash__ = type"),
    ],
)
def test_what_pickle_cannot_make_again_is_refused_in_terms_of_its_class(
    thing: Any, text: str
) -> None:
    """An object that a worker could not make is refused by the client, which names the
    method that its class lacks.
    """
    with pytest.raises(TypeError, match=text):
        pack_pipeline(lambda: thing)


def test_a_class_with_any_answer_to_isinstance_arrives() -> None:
    """An object whose ``__class__`` raises is searched and sent, and so is a class that
    cannot be a key.
    """
    masked = Masked()
    node = Dataset.range(3).map(lambda x: (masked, Compared, x)).node
    assert generators_of(node) == []
    opened = open_pipeline(pack_pipeline(node))
    assert type(opened.function(1)[0]) is Masked


def test_functions_of_usual_values_take_no_copy_of_the_memo() -> None:
    """The memo, which may know millions of objects, is not copied for a function whose
    values are objects, or small containers of definitions.
    """
    asked: list[object] = []

    class Watched(PipelinePickler):
        @property
        def memo(self) -> Any:
            asked.append(self)
            return super().memo

        @memo.setter
        def memo(self, memo: Any) -> None:
            PipelinePickler.memo.__set__(self, memo)  # type: ignore[attr-defined]  # of C

    def holding(value: Any) -> Any:
        return lambda: value

    names = [str(number) for number in range(1000)]
    for value in (object(), [1], {"a": [1, {"b": holding}]}, names):
        Watched(io.BytesIO()).dump([holding(value), holding(value)])
    assert not asked
    Watched(io.BytesIO()).dump(holding([object()]))
    assert asked
