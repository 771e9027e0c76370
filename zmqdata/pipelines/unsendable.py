"""Objects that cannot be shipped to a worker, and the paths to them: a table of
classes, and functions that describe where an object is held.

Nothing is pickled here, and nothing is imported for a user's object. The pickler passes
the trail of nested objects to this module, which turns it into a text such as
``parse.__closure__['lock']``.
"""

from __future__ import annotations

import contextlib
import functools
import io
import sys
import types
from collections.abc import Iterator, Sequence

from zmqdata.nodes.base import Node
from zmqdata.peeking import has, is_a, peek
from zmqdata.pipelines.findable import SCRIPT_MODULES

_INSIDE = (
    "Create it inside the function, or in a function under functools.lru_cache that "
    "the pipeline calls, so that each worker makes its own"
)
_FILE = "Open it inside the function: every worker then opens its own (the path must exist there)"
_ITERATOR = (
    "Pass the function that makes it, for example to Dataset.from_generator, or the "
    "values as a list"
)
_QUEUE = (
    "Values reach a pipeline only through its sources: read the queue in the generator "
    "of Dataset.from_generator"
)

_LONGEST_PATH = 300
_NOT_OF_USERS = frozenset({"numpy", "zmqdata"}) | sys.stdlib_module_names

_REMEDIES: dict[str, str] = {
    **dict.fromkeys(
        (
            "_thread.lock", "_thread.RLock", "threading._RLock", "threading.Condition",
            "threading.Event", "threading.Semaphore", "threading.Barrier", "threading.Thread",
            "_thread._local", "_thread._ThreadHandle", "multiprocessing.process.BaseProcess",
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
            "queue.Queue", "_queue.SimpleQueue", "multiprocessing.queues.Queue",
            "multiprocessing.queues.SimpleQueue",
        ),
        _QUEUE,
    ),
    **dict.fromkeys(("_io._IOBase", "tempfile._TemporaryFileWrapper"), _FILE),
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
    >>> remedy_for(type(threading.Lock())).startswith("Create it inside the function")
    True
    >>> remedy_for(dict) is None
    True
    """
    if issubclass(kind, (io.BytesIO, io.StringIO)):
        return None
    for base in kind.__mro__:
        remedy = _REMEDIES.get(f"{base.__module__}.{base.__qualname__}")
        if remedy is not None:
            return remedy
    return None


def is_node(value: object) -> bool:
    """Return True if this describes an operation of a pipeline."""
    return is_a(value, Node)


def describe_trail(trail: Sequence[object]) -> tuple[str, str]:
    """Return the operation and the path from it to the last object of a trail.

    Args:
        trail: objects from the outermost to the object that cannot be shipped, each
            held by the object before it. It may include containers that the pickler
            created.

    Returns:
        ``("map(parse) at train.py:12", "parse.__closure__['lock']")``.
    """
    start = max((i for i, value in enumerate(trail) if is_node(value)), default=None)
    if start is None:
        root = _outermost(trail)
        return _name(trail[root]), _path(trail[root:], _name(trail[root]))
    operation = trail[start]
    assert is_a(operation, Node)
    return operation.label, _path(trail[start:], "") or type(trail[-1]).__name__


def describe_holder(trail: Sequence[object]) -> str:
    """Return what the author of a class can do if an object of the class holds the last
    object of a trail; "" if no such object holds it.
    """
    last = max((i for i, one in enumerate(trail[:-1]) if not _is_container(one)), default=None)
    if last is None or is_node(trail[last]):
        return ""
    kind = type(trail[last])
    top = kind.__module__.partition(".")[0]
    if top in _NOT_OF_USERS and kind.__module__ not in SCRIPT_MODULES:
        return ""
    name = _path(trail[last:], "")
    return (
        f"A {qualified_name(kind)} holds it" + (f" as `{name}`" if name else "") + ". Leave it "
        f"out in `{kind.__qualname__}.__getstate__`, and make it anew in `__setstate__`"
    )


def _outermost(trail: Sequence[object]) -> int:
    """Skip the tuple that pack_pipeline wraps around everything."""
    return 1 if len(trail) > 1 and type(trail[0]) is tuple else 0


def _path(trail: Sequence[object], text: str) -> str:
    holder, passed = trail[0], None
    for value in trail[1:]:
        found = _step(holder, value)
        if found is None and _is_container(value):
            passed = value
            continue
        if found is None and passed is not None:
            found = _step_through(holder, passed, value)
        text = _joined(text, found or "", value, is_node(holder))
        holder, passed = value, None
    return text if len(text) <= _LONGEST_PATH else f"{text[:80]} ... {text[-80:]}"


def _joined(text: str, step: str, value: object, of_node: bool) -> str:
    reached = is_a(value, types.FunctionType) and step in ("", ".func")
    if is_a(value, type) or reached or (of_node and has(value, "__qualname__")):
        return _name(value)
    return text + step if text else step.lstrip(".")


def _is_container(value: object) -> bool:
    return type(value) in (dict, list, tuple)


def _step_through(holder: object, passed: object, value: object) -> str | None:
    """Return the step through a container that only the pickler knows. It stands for
    its owner's state, so its keys read as attributes.
    """
    if is_a(passed, dict) and not is_a(holder, types.FunctionType):
        return next((f".{key}" for key, held in passed.items() if held is value), None)
    return None


def _name(value: object) -> str:
    name = peek(value, "__qualname__")
    if is_a(name, str):
        return name.rpartition("<locals>.")[2]
    return f"{type(value).__qualname__} object"


def _step(holder: object, value: object) -> str | None:
    return next((step for step, held in _held(holder) if held is value), None)


def _held(holder: object) -> Iterator[tuple[str, object]]:
    """Yield the objects that an object holds, each with the text that reaches it."""
    if is_a(holder, dict):
        yield from ((f"[{key!r}]", held) for key, held in holder.items())
        yield from ((f" key {type(key).__name__}", key) for key in holder)
    elif is_a(holder, (list, tuple)):
        yield from ((f"[{i}]", held) for i, held in enumerate(holder))
    elif is_a(holder, types.FunctionType):
        yield from _held_by_function(holder)
    elif is_a(holder, (types.MethodType, staticmethod, classmethod)):
        yield "", peek(holder, "__func__")
        yield ".__self__", peek(holder, "__self__")
    elif is_a(holder, property):
        yield from (("", held) for held in (holder.fget, holder.fset, holder.fdel))
    elif is_a(holder, functools.partial):
        yield from ((".func", holder.func), (".args", holder.args), (".keywords", holder.keywords))
        yield from ((f".args[{i}]", held) for i, held in enumerate(holder.args))
        yield from ((f".keywords[{key!r}]", held) for key, held in holder.keywords.items())
    yield from _attributes(holder)


def _held_by_function(function: types.FunctionType) -> Iterator[tuple[str, object]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        yield f".__closure__[{name!r}]", _contents(cell)
    space = function.__globals__
    yield from (
        (f".__globals__[{name!r}]", space[name])
        for name in function.__code__.co_names
        if name in space
    )
    for field in ("__defaults__", "__kwdefaults__", "__annotations__"):
        held = getattr(function, field, None)
        yield f".{field}", held
        if is_a(held, dict):
            yield from ((f".{field}[{key!r}]", item) for key, item in held.items())
    yield from _attributes(function)
    yield from (
        (f".__globals__[{name!r}]", held) for name, held in space.items()
    )  # used by code within its code


def _contents(cell: types.CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # not bound yet
        return None


def _attributes(holder: object) -> Iterator[tuple[str, object]]:
    """Yield stored attributes only, because computing an attribute could run user
    code.
    """
    stored = peek(holder, "__dict__")
    if type(stored) in (dict, types.MappingProxyType):
        yield from ((f".{name}", held) for name, held in stored.items())
    for base in type(holder).__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if is_a(slots, str) else slots:
            with contextlib.suppress(Exception):  # it is not set
                yield f".{name}", object.__getattribute__(holder, name)
