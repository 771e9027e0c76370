"""Tests of objects whose own way of being pickled is replaced."""

from __future__ import annotations

import enum
import functools
import gc
import typing
import weakref
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from zmqdata.pipelines import open_pipeline, pack_pipeline
from zmqdata.pipelines.reducing import reducer_of, set_stored_state


def reduced(thing: Any) -> Any:
    reducer = reducer_of(type(thing))
    return NotImplemented if reducer is None else reducer(thing)


def again(thing: Any) -> Any:
    """Take an object apart and put it together, as a pickle does."""
    make, arguments, *rest = reduced(thing)
    made = make(*arguments)
    state, items, pairs, setter = (*rest, None, None, None, None)[:4]
    for one in items or ():
        made.append(one)
    for key, value in pairs or ():
        made[key] = value
    if setter is not None and state is not None:
        setter(made, state)
    elif state is not None:
        made.__setstate__(state)
    return made


class Colour(enum.Enum):
    RED = object()


class Access(enum.IntFlag):
    R = 1
    W = 2


def test_a_member_is_named() -> None:
    """A member of an enumeration is found by name, so that its value is not compared.
    A combination of flags has no name.
    """
    assert again(Colour.RED) is Colour.RED
    assert again(Access.R) is Access.R
    assert reduced(Access.R | Access.W) is NotImplemented


@pytest.mark.parametrize("text", [np.str_("a\0"), np.bytes_(b"a\0\0")])
def test_texts_of_numpy_keep_their_nuls(text: Any) -> None:
    """A text, or bytes, of numpy's arrives with the NULs at its end, in a list and in a
    closure.
    """
    found, call = open_pipeline(pack_pipeline(([text], lambda: text)))
    assert (found, call()) == ([text], text)
    assert type(found[0]) is type(text)


def test_a_cached_property_gets_a_lock_of_its_own() -> None:
    """A cached property arrives with everything but its lock."""

    class Owner:
        @functools.cached_property
        def held(self) -> int:
            """Docs."""
            return 3

    found = vars(Owner)["held"]
    made = again(found)
    assert (made.func, made.attrname, made.__doc__) == (found.func, "held", "Docs.")
    assert vars(made).keys() == vars(found).keys()
    assert vars(made).get("lock") is not vars(found).get("lock", 0)


class Tenfold(Decimal):
    def __new__(cls, part: Any) -> Tenfold:
        return super().__new__(cls, Decimal(part) * 10)


def test_a_number_is_not_changed_again() -> None:
    """A ``Decimal`` whose class changes what it is made of arrives with its value."""
    value = Tenfold("1.5")
    found = open_pipeline(pack_pipeline([value, Decimal("2.5")]))
    assert [(type(one), one) for one in found] == [(Tenfold, value), (Decimal, Decimal("2.5"))]
    assert found[0] == 15


class Target:
    """An object that the script holds outside of its pipeline."""

    def __init__(self) -> None:
        self.back = weakref.ref(self)


def test_what_is_held_weakly_stays_in_the_worker() -> None:
    """A weak reference, and what weak containers contain, arrives alive, although the
    pipeline alone holds it there.
    """
    target = Target()
    held = [
        weakref.ref(target),
        weakref.WeakSet([target]),
        weakref.WeakValueDictionary({"key": target}),
        weakref.WeakKeyDictionary({target: 7}),
    ]
    reference, members, values, keys = open_pipeline(pack_pipeline(held))
    gc.collect()
    assert isinstance(reference, weakref.ref)
    assert reference().back() is reference()
    assert [*members] == [*values.values()] == [*keys] == [reference()]
    assert keys[reference()] == 7
    assert open_pipeline(pack_pipeline(reference))().back() is not None


def test_a_reference_to_nothing_stays_one() -> None:
    """A reference whose object is gone arrives as such."""
    reference = weakref.ref(Target())
    arrived = open_pipeline(pack_pipeline(reference))
    assert arrived() is None


def test_a_ufunc_of_a_function_is_refused_with_the_remedy() -> None:
    """numpy keeps the function of ``np.frompyfunc`` to itself; its own ufuncs are found
    by name.
    """
    assert open_pipeline(pack_pipeline(np.add)) is np.add
    with pytest.raises(TypeError, match=r"np.frompyfunc was called with.*np.vectorize"):
        pack_pipeline(np.frompyfunc(abs, 1, 1))


T = typing.TypeVar("T")
Name = typing.NewType("Name", int)


def test_names_of_typing_are_made_again_in_a_script_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Type variables and new types of the script are made again; those of modules are
    found by name.
    """
    assert reduced(T) is reduced(Name) is NotImplemented
    bound = typing.TypeVar("bound", bound=int)
    bound.__module__ = "__main__"  # type: ignore[attr-defined]  # it can be set
    made = again(bound)
    assert (made.__name__, made.__bound__, made.__covariant__) == ("bound", int, False)
    monkeypatch.setattr(Name, "__module__", "__main__")
    assert again(Name).__supertype__ is int


class Answering:
    """An object that answers for every attribute, and wrongly."""

    __slots__ = ("__dict__", "held", "unset")

    def __getattr__(self, name: str) -> Any:
        raise KeyError(name)


class Listed(list[int]):
    __getattr__ = Answering.__getattr__


class Mapped(dict[str, int]):
    def __getattr__(self, name: str) -> Any:
        return self[name]


class Counted(Answering):
    def __getnewargs__(self) -> tuple[int]:
        return (4,)

    def __new__(cls, count: int) -> Counted:
        self = super().__new__(cls)
        self.__dict__["count"] = count
        return self


class Restored(Answering):
    def __getstate__(self) -> int:
        return 5

    def __setstate__(self, state: int) -> None:
        object.__setattr__(self, "state", state)


class Closed(Restored):
    def __getattribute__(self, name: str) -> Any:
        raise KeyError(name)


class Custom(Answering):
    def __reduce__(self) -> str:
        return "custom"


def test_an_object_is_not_asked_for_what_its_class_lacks() -> None:
    """Attributes, slots and items of an object travel, though it answers with errors
    for methods that its class does not have.
    """
    plain = Answering()
    plain.held = 1
    plain.__dict__["stored"] = 2
    made = again(plain)
    assert (made.held, made.stored) == (1, 2)
    assert (again(Listed([1, 2])), again(Mapped(a=1))) == ([1, 2], {"a": 1})
    assert (again(Counted(4)).count, again(Restored()).state) == (4, 5)
    assert vars(again(Answering())) == {}
    assert object.__getattribute__(again(Closed()), "__dict__") == {"state": 5}


def test_what_a_class_says_about_pickling_counts() -> None:
    """A class with a reduction of its own is left to it, and so are ordinary objects
    and classes.
    """
    assert reduced(Custom()) is reduced(1) is reduced(Custom) is NotImplemented


def test_a_state_is_set_without_asking() -> None:
    """Stored attributes are set even if the object refuses to be changed."""

    class Frozen:
        def __setattr__(self, name: str, value: object) -> None:
            raise TypeError(name)

    made: Any = Frozen()
    set_stored_state(made, {"a": 1})
    set_stored_state(made, ({"b": 2}, None))
    assert (made.a, made.b) == (1, 2)
