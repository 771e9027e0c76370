"""Tests of rejected objects and of the path that leads to them."""

from __future__ import annotations

import asyncio
import concurrent.futures
import dataclasses
import functools
import io
import mmap
import queue
import socket
import sqlite3
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import zmq

from zmqdata.dataset import Dataset
from zmqdata.nodes import base
from zmqdata.pipelines import pack_pipeline
from zmqdata.pipelines.unsendable import is_node, remedy_for


async def coroutine() -> None: ...


async def many() -> Any:
    yield 1


@pytest.mark.parametrize(
    "kind",
    [
        *(type(make()) for make in (queue.Queue, queue.SimpleQueue, threading.local)),
        threading.Thread, type(threading.current_thread()), socket.socket, zmq.Socket, zmq.Context, zmq.Poller,
        tempfile._TemporaryFileWrapper, concurrent.futures.ThreadPoolExecutor, concurrent.futures.Future,
        asyncio.SelectorEventLoop, asyncio.Lock, sqlite3.Connection, mmap.mmap,
        type(x for x in ""), type(sys._getframe()),
    ],
    ids=lambda kind: f"{kind.__module__}.{kind.__qualname__}",
)  # fmt: skip
def test_what_belongs_to_a_process_is_refused_with_a_remedy(kind: type) -> None:
    """Threads, sockets, queues, loops and generators are rejected with a remedy."""
    assert remedy_for(kind)


@pytest.mark.parametrize(
    "kind", [dict, io.BytesIO, io.StringIO, np.ndarray, type(len), type, object]
)
def test_plain_kinds_are_not_refused(kind: type) -> None:
    """Values, in-memory files and classes are accepted."""
    assert remedy_for(kind) is None


def test_asynchronous_iterators_are_refused() -> None:
    """Coroutines and asynchronous generators are rejected, as their state cannot be
    sent.
    """
    waiting = coroutine()
    assert remedy_for(type(waiting))
    assert remedy_for(type(many()))
    waiting.close()


@pytest.mark.parametrize(
    "held",
    [
        lambda numbers: iter(numbers),
        lambda numbers: iter(numbers.batch(2).prefetch(1)),
        lambda numbers: numbers.as_numpy_iterator(),
        lambda numbers: iter(numbers).__next__,
        lambda numbers: enumerate(iter(numbers)),
        lambda numbers: Plain(iter(numbers)),
    ],
    ids=["iter", "prefetch", "numpy", "next", "enumerate", "object"],
)
def test_an_iterator_of_a_dataset_is_refused_as_one(held: Callable[[Dataset], Any]) -> None:
    """The error names the iterator, not its parts, and how to read two datasets."""
    numbers = Dataset.range(3)
    one = held(numbers)
    with pytest.raises(TypeError, match="reate the iterator of a dataset inside") as caught:
        pack_pipeline(numbers.map(lambda x: (x, one)).node)
    assert "Dataset.zip((first, second))" in str(caught.value)
    assert "Quarantine" not in str(caught.value)


LOCK = threading.local()


@dataclasses.dataclass(frozen=True, init=False)
class Node(base.Node):
    function: Any

    def __init__(self, function: Any, site: str = "train.py:12") -> None:
        object.__setattr__(self, "function", function)
        object.__setattr__(self, "site", site)

    @property
    def label(self) -> str:
        return f"map(f) at {self.site}"


class Slotted:
    __slots__ = ("held", "unset")

    def __init__(self, held: Any) -> None:
        self.held = held


class OneSlot:
    __slots__ = "held"

    def __init__(self, held: Any) -> None:
        self.held = held


class Plain:
    def __init__(self, held: Any) -> None:
        self.options = {"h": [held]}

    def read(self) -> None: ...

    def __call__(self) -> None: ...


class Copied(Plain):
    def __getstate__(self) -> dict[str, Any]:
        return {"made": self.options["h"][0]}


def closed_over(value: Any) -> Callable[[], Any]:
    def parse() -> Any:
        return value

    return parse


def through_a_chain(value: Any) -> Callable[[], Any]:
    inner = closed_over(value)

    def outer() -> Any:
        return inner()

    return outer


def by_default(value: Any) -> Any:
    def f(a: Any = value, *, b: Any = None) -> None: ...

    return f


def by_keyword(value: Any) -> Any:
    def f(*, b: Any = value) -> None: ...

    return f


def with_attribute(value: Any) -> Any:
    f = closed_over(1)
    f.held = value  # type: ignore[attr-defined]
    return f


def a_class(value: Any) -> Any:
    class Local:
        held = value

        @staticmethod
        def make() -> Any:
            return value

    return Local


def script_function(lock: Any) -> Any:
    names = {"__name__": "__main__", "LOCK": lock}
    exec("def load(): return LOCK\ndef parse(): return load()", names)
    return names["parse"]


@pytest.mark.parametrize(
    ("make", "path"),
    [
        (closed_over, "parse.__closure__['value']"),
        (through_a_chain, "outer.__closure__['inner'].__closure__['value']"),
        (script_function, "parse.__globals__['load'].__globals__['LOCK']"),
        (by_default, "f.__defaults__[0]"),
        (by_keyword, "f.__kwdefaults__['b']"),
        (with_attribute, "parse.held"),
        (lambda lock: Plain(lock).read, "Plain.read.__self__.options['h'][0]"),
        (Plain, "function.options['h'][0]"),
        (Copied, "function.made"),
        (Slotted, "function.held"),
        (OneSlot, "function.held"),
        (lambda lock: functools.partial(closed_over(1), lock), "function.args[0]"),
        (lambda lock: functools.partial(closed_over(1), k=lock), "function.keywords['k']"),
        (lambda lock: functools.partial(closed_over(lock)), "parse.__closure__['value']"),
        (lambda lock: (1, [lock]), "function[1][0]"),
        (lambda lock: {"a": {3: lock}}, "function['a'][3]"),
        (lambda lock: {lock: 1}, "function key _local"),
        (lambda lock: lock, "function"),
        (lambda lock: property(closed_over(lock)), "parse.__closure__['value']"),
    ],
    ids=lambda case: case if isinstance(case, str) else "",
)
def test_the_path_reads_as_the_user_would_write_it(make: Callable[[Any], Any], path: str) -> None:
    """The path names closures, globals, defaults, attributes, slots, items and keys in
    Python.
    """
    with pytest.raises(TypeError) as caught:
        pack_pipeline(Node(make(LOCK)))
    text = str(caught.value).partition(" is a _thread._local")[0]
    assert (
        text.partition("to workers: ")[2]
        .removeprefix("function.")
        .endswith(path.removeprefix("function."))
    )
    assert text.startswith("cannot send map(f) at train.py:12 to workers: ")


def test_a_class_names_itself_on_the_path() -> None:
    """An object in a class is reached through the class's name."""
    with pytest.raises(TypeError, match=r"workers: Local\.(held|make.*) is a _thread\._local"):
        pack_pipeline(a_class(LOCK))


def test_the_innermost_operation_is_the_one_named() -> None:
    """The error names the innermost of the nested operations around the object."""
    with pytest.raises(TypeError, match=r"cannot send map\(f\) at here:1 to workers: function is"):
        pack_pipeline(Node(Node(LOCK, site="here:1")))


class Making:
    """An object that makes what pickle takes of it."""

    def __reduce__(self) -> Any:
        return Making, (threading.local(),)


class MakingMore(Making):
    """An object of which pickle takes something else each time."""

    def __init__(self, *_: object) -> None:
        self.makes = iter([threading.local(), 1, 2, 3])

    def __reduce__(self) -> Any:
        return MakingMore, ({}, next(self.makes))


@pytest.mark.parametrize("made", [Making(), MakingMore()])
def test_what_an_object_made_is_named_after_the_object(made: Any) -> None:
    """An object that only `__reduce__` made is named after the object that made it."""
    with pytest.raises(TypeError, match=r"workers: function\[1\] is a _thread\._local"):
        pack_pipeline(Node((1, made)))


@pytest.mark.parametrize("reduced", [(1, 2), (list,), (list, [])])
def test_what_is_no_call_is_refused_as_pickle_says_it(reduced: Any) -> None:
    """An object that does not tell pickle a call and its arguments is refused."""

    class Odd:
        def __reduce__(self) -> Any:
            return reduced

    with pytest.raises(TypeError, match=r"cannot be pickled \(PicklingError: .*tuple"):
        pack_pipeline(Node(Odd()))


def test_a_long_path_is_cut_in_the_middle() -> None:
    """A long path is shortened in the middle, as its ends are more informative."""
    value: Any = LOCK
    for _ in range(120):
        value = [value]
    with pytest.raises(TypeError, match=r"\[0\] \.\.\. 0\]\[0\]") as caught:
        pack_pipeline(Node(value))
    assert len(str(caught.value)) < 700


def test_an_object_at_the_end_of_a_long_list_is_found() -> None:
    """The path to an object is found in a list of any length."""
    names: list[Any] = [(str(i), i) for i in range(100_000)]
    with pytest.raises(TypeError, match=r"function\[100000\]\['a'\] is a _thread\._local"):
        pack_pipeline(Node([*names, {"a": LOCK}]))


def test_unbound_variables_do_not_break_the_path() -> None:
    """The search for a path skips cells without contents."""

    def make() -> Iterator[Any]:
        if LOCK is None:
            early = 1
        late = LOCK
        yield lambda: (early, late)

    with pytest.raises(TypeError, match=r"__closure__\['late'\]"):
        pack_pipeline(next(make()))


def test_only_nodes_are_operations() -> None:
    """An object that looks like a node, because it has the same attributes, is none."""
    described = dataclasses.make_dataclass("Described", ["label", "site", "inputs"])
    assert is_node(Node(len))
    assert not is_node(described("map(f)", "a.py:1", ()))


class Tokens:
    """A class whose author can leave out the lock."""

    def __init__(self) -> None:
        self.parts = [{"lock": threading.local()}]


class Descriptor:
    def __init__(self) -> None:
        self.lock = threading.local()


@pytest.mark.parametrize(
    ("held", "told"),
    [
        (Tokens(), r"Tokens holds it as `parts\[0\]\['lock'\]`. Leave it out in `Tokens\.__get"),
        (type("Held", (), {"x": Descriptor()}), r"Descriptor holds it as `lock`\. Leave it out in"),
        ([threading.local()], r"process\. Create it inside the function"),
        (type("Held", (), {"lock": threading.local()}), r"process\. Create it inside the function"),
    ],
    ids=["object", "descriptor", "list", "class"],
)
def test_the_author_of_a_class_learns_what_to_leave_out(held: Any, told: str) -> None:
    """The error names the class whose object holds what cannot be sent, and the methods
    that can leave it out.
    """
    with pytest.raises(TypeError, match=told):
        pack_pipeline(closed_over(held))
