"""Objects that cannot be shipped to a worker, and the paths to them: a table of
classes, and functions that describe where an object is held.

Nothing is pickled here, and nothing is imported for a user's object. The pickler passes
the trail of nested objects to this module, which turns it into a text such as
``parse.__closure__['lock']``.
"""

from __future__ import annotations

import contextlib
import pickle
import sys
import types
from collections.abc import Callable, Container, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from zmqdata.nodes.base import Node
from zmqdata.peeking import counted, has, is_a, misfit, parameters_of, peek, shown
from zmqdata.pipelines.classes import ATOMS
from zmqdata.pipelines.findable import SCRIPT_MODULES, is_importable
from zmqdata.pipelines.handles import ANY_FILE, FILE
from zmqdata.pipelines.holding import Step, class_names, held, is_container
from zmqdata.pipelines.reducing import is_plain_class, reducer_of, reduction

_INSIDE = (
    "Create it inside the function, or in a function under functools.lru_cache that "
    "the pipeline calls, so that each worker makes its own. If it holds a random "
    "generator, use random_map, or seed the generator from the element: workers would "
    "draw the same"
)
_ITERATOR = (
    "Pass the function that makes it, for example to Dataset.from_generator, or the "
    "values as a list"
)
_OF_DATASET = (
    "Create the iterator of a dataset inside the function that uses it: iter(dataset). To "
    "pair the elements of two datasets, map the function over Dataset.zip((first, second))"
)
_QUEUE = (
    "Values reach a pipeline only through its sources: read the queue in the generator "
    "of Dataset.from_generator"
)

_LONGEST_PATH = 300
_DEEP = 100
"""Number of steps to an object that is nested deeply."""
_ATOMS = frozenset(map(id, ATOMS))
"""Identities of these classes, because other classes may be unhashable."""
_NOT_OF_USERS = frozenset({"numpy", "zmqdata"}) | sys.stdlib_module_names

_REMEDIES: dict[str, str] = {
    **dict.fromkeys(
        (
            "threading.Thread", "_thread._local", "_thread._ThreadHandle",
            "multiprocessing.process.BaseProcess",
            "multiprocessing.synchronize.SemLock", "multiprocessing.connection._ConnectionBase",
            "subprocess.Popen", "concurrent.futures._base.Executor",
            "concurrent.futures._base.Future", "asyncio.events.AbstractEventLoop",
            "_asyncio.Future", "asyncio.locks._ContextManagerMixin", "_socket.socket",
            "zmq.sugar.socket.Socket", "zmq.sugar.context.Context", "zmq.sugar.poll.Poller",
            "ssl.SSLContext", "_ssl._SSLContext", "sqlite3.Connection", "mmap.mmap",
            "_contextvars.ContextVar", "_contextvars.Context", "select.epoll", "select.poll",
            "builtins.PyCapsule", "builtins.frame", "builtins.traceback",
        ),
        _INSIDE,
    ),
    **dict.fromkeys(
        ("builtins.generator", "builtins.coroutine", "builtins.async_generator"),
        _ITERATOR,
    ),
    **dict.fromkeys(
        (
            "zmqdata.dataset.resuming.DatasetIterator", "zmqdata.dataset.resuming.NumpyIterator",
            "zmqdata.dataset.sharing.Turns", "zmqdata.iterators.base.ElementIterator",
        ),
        _OF_DATASET,
    ),
    **dict.fromkeys(
        (
            "queue.Queue", "_queue.SimpleQueue", "multiprocessing.queues.Queue",
            "multiprocessing.queues.SimpleQueue",
        ),
        _QUEUE,
    ),
    "tempfile._TemporaryFileWrapper": FILE,
    "builtins.memoryview": "Hold bytes or an array instead: bytes(...), np.asarray(...)",
}  # fmt: skip
"""Remedies by class name, for any class in the method resolution order. They are keyed
by name so that nothing must be imported.
"""


def qualified_name(kind: type) -> str:
    """Return module and name of a class, without ``builtins``."""
    return (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )


def remedy_for(kind: type) -> str | None:
    """Return the remedy for an object of this class, or None if the object may be
    shipped.

    >>> import threading
    >>> remedy_for(threading.Thread).startswith("Create it inside the function")
    True
    >>> remedy_for(dict) is None
    True
    """
    return next(filter(None, map(_REMEDIES.get, class_names(kind))), None)


def unhashable_text(kind: type) -> str:
    """Return the reason for which objects of an unhashable class cannot be shipped."""
    meta = type(kind).__qualname__
    return (
        f"Pickle looks classes up in tables, and the metaclass {meta} makes its classes "
        "unhashable, as one does that defines `__eq__` without `__hash__`. Add "
        f"`__hash__ = type.__hash__` to {meta}"
    )


def check_making(kind: type, by_new: bool, given: int) -> None:
    """Raise if a class does not take the arguments with which pickle makes an object
    of it. The worker would fail, where nobody knows the class.

    Args:
        kind: the class.
        by_new: True if pickle calls ``__new__`` alone, with the class among the
            arguments.
        given: number of arguments.
    """
    makers, remedy = ["__new__"], "__getnewargs__"
    if not by_new:
        if type(kind).__call__ is not type.__call__:
            return
        given, makers, remedy = given + 1, ["__new__", "__init__"], "__reduce__"
    for name in makers:
        maker = peek(kind, name)
        wrong = misfit(parameters_of(maker), given) if is_a(maker, types.FunctionType) else None
        if wrong is not None:
            label = f"{kind.__qualname__}.{name}"
            raise pickle.PicklingError(
                f"pickle makes it by a call of `{label}` with "
                f"{counted(given, 'argument')}: {wrong}. Define "
                f"`{kind.__qualname__}.{remedy}`, which returns the arguments"
            )


def is_node(value: object) -> bool:
    """Return True if this describes an operation of a pipeline."""
    return is_a(value, Node)


class Reached(NamedTuple):
    """An object on the way to another one."""

    step: Step
    """The step to it from the object before."""
    thing: Any
    """The object."""


Trail = list[Reached]
"""The way from the outermost object to another one, both among its objects."""
_NO_STEP = Step("part", "")


def trail_to(root: object, thing: object, maker: object, shipped: Container[str] = ()) -> Trail:
    """Return the shortest way to an object.

    Args:
        root: the outermost object.
        thing: the object.
        maker: the object that made it, if no other object holds it.
        shipped: top-level modules that are shipped.
    """
    return (
        _trail(root, lambda one, depth: one is thing, shipped)
        or _trail(root, lambda one, depth: type(one) is type(thing), shipped)
        or [
            *(_trail(root, lambda one, depth: one is maker, shipped) or [Reached(_NO_STEP, root)]),
            Reached(_NO_STEP, thing),
        ]
    )


def deep_trail(root: object, shipped: Container[str] = ()) -> Trail | None:
    """Return the way to an object that is nested deeply, or None."""
    return _trail(root, lambda one, depth: depth > _DEEP, shipped)


def _trail(
    root: object, is_sought: Callable[[object, int], bool], shipped: Container[str]
) -> Trail | None:
    """Search the objects that would be pickled breadth first, without recursion."""
    found: list[tuple[Step, Any, int, int]] = [(_NO_STEP, root, -1, 0)]  # holder and depth
    seen = {id(root)}
    for at, (_, holder, _, depth) in enumerate(found):
        if any(type(holder) is one for one in (list, tuple)) and _ATOMS.issuperset(
            map(id, map(type, holder))
        ):
            continue
        for step, one in _parts(holder, shipped):
            if id(type(one)) in _ATOMS or id(one) in seen:
                continue
            seen.add(id(one))
            found.append((step, one, at, depth + 1))
            if is_sought(one, depth + 1):
                trail = []
                while at >= 0:
                    trail.append(Reached(step, one))
                    step, one, at, _ = found[at]
                return [Reached(_NO_STEP, root), *reversed(trail)]
    return None


def _parts(holder: Any, shipped: Container[str]) -> Iterator[tuple[Step, Any]]:
    """Yield the objects that are pickled with an object."""
    is_named = is_a(holder, (types.FunctionType, types.BuiltinFunctionType, type))
    if is_a(holder, types.ModuleType) or (is_named and is_importable(holder, shipped)):
        return
    kind = type(holder)
    is_plain = is_plain_class(kind) and not is_a(holder, ANY_FILE)
    if is_plain or is_container(holder) or is_a(holder, type):
        yield from (one for one in held(holder) if one[0].way not in ("default", "entry"))
        return
    with contextlib.suppress(Exception):
        reduced: Any = (reducer_of(kind) or reduction)(holder)
        arguments, state, items, pairs = (*reduced[1:5], None, None, None)[:4]
        for stored in state if type(state) is tuple else (state,):
            if type(stored) is dict:
                yield from ((Step("attribute", name), one) for name, one in stored.items())
            yield Step("part", ""), stored
        yield from ((Step("part", ""), one) for one in arguments)
        yield from ((Step("item", place), one) for place, one in enumerate(items or ()))
        yield from ((Step("item", key), one) for key, one in pairs or ())
    yield Step("part", ""), kind


def describe_trail(trail: Trail) -> tuple[str, str]:
    """Return the operation and the path from it to the last object of a trail.

    Returns:
        ``("map(parse) at train.py:12", "parse.__closure__['lock']")``.
    """
    start = max((i for i, one in enumerate(trail) if is_node(one.thing)), default=None)
    if start is None:
        # pack_pipeline wraps a tuple around everything.
        root = 1 if len(trail) > 1 and type(trail[0].thing) is tuple else 0
        name = _name(trail[root].thing)
        return name, _path(trail[root:], name)
    operation = trail[start].thing
    assert is_a(operation, Node)
    return operation.label, _path(trail[start:], "") or type(trail[-1].thing).__name__


def describe_holder(trail: Trail) -> str:
    """Return what the author of a class can do if an object of the class holds the last
    object of a trail; "" if no such object holds it.
    """
    holders = (i for i, one in enumerate(trail[:-1]) if not _is_container(one.thing))
    last = max(holders, default=None)
    if last is None or is_node(trail[last].thing):
        return ""
    kind = type(trail[last].thing)
    top = kind.__module__.partition(".")[0]
    if top in _NOT_OF_USERS and kind.__module__ not in SCRIPT_MODULES:
        return ""
    name = _path(trail[last:], "")
    return (
        f"A {qualified_name(kind)} holds it" + (f" as `{name}`" if name else "") + ". Leave it "
        f"out in `{kind.__qualname__}.__getstate__`, and make it anew in `__setstate__`"
    )


def _path(trail: Trail, text: str) -> str:
    for holder, (step, thing) in pairwise(trail):
        text = _joined(text, _text(step, thing), thing, is_node(holder.thing))
    return text if len(text) <= _LONGEST_PATH else f"{text[:80]} ... {text[-80:]}"


def _joined(text: str, step: str, value: object, of_node: bool) -> str:
    reached = is_a(value, types.FunctionType) and step in ("", ".func")
    if is_a(value, type) or reached or (of_node and has(value, "__qualname__")):
        return _name(value)
    return text + step if text else step.lstrip(".")


def _is_container(value: object) -> bool:
    return any(type(value) is kind for kind in (dict, list, tuple))


def _name(value: object) -> str:
    name = peek(value, "__qualname__")
    if is_a(name, str):
        return name.rpartition("<locals>.")[2]
    return f"{type(value).__qualname__} object"


def _text(step: Step, value: object) -> str:
    """Return the text that reaches an object from its holder."""
    match step.way:
        case "variable":
            return f".__closure__[{step.name!r}]"
        case "global":
            return f".__globals__[{step.name!r}]"
        case "entry":
            return f".{step.name[0]}[{step.name[1]!r}]"
        case "item":
            return f"[{shown(step.name)}]"
        case "key":
            return f" key {type(value).__name__}"
        case "attribute":
            return f".{step.name}"
        case "part" if step.name and step.name != "__func__":
            return f".{step.name}"
        case _:
            return ""
