"""Functions shipped by value: the parts that a client writes, and the functions with
which a worker puts them together.

A function carries exactly the global names that its bytecode uses. All functions of a
script share them, so mutual recursion works and ``global`` is shared.
"""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Iterator
from typing import Any

_GLOBAL_OPCODES = frozenset(
    {"LOAD_GLOBAL", "STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}
)


def codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield a function's code and the code of the functions and classes in it."""
    yield code
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from codes(const)


@functools.lru_cache(maxsize=1024)
def global_names(code: types.CodeType) -> tuple[str, ...]:
    """Return the global names that a function uses.

    >>> global_names((lambda x: [len(y.name) for y in x]).__code__)
    ('len',)
    """
    used = {
        step.argval: None
        for part in codes(code)
        for step in dis.get_instructions(part)
        if step.opname in _GLOBAL_OPCODES
    }
    return tuple(used)


def named_globals(function: types.FunctionType) -> dict[str, object]:
    """Return the initial globals of a function: the names that relative imports
    need.
    """
    space = function.__globals__
    names: dict[str, object] = {"__name__": space.get("__name__", function.__module__)}
    if isinstance(space.get("__package__"), str) and space["__package__"]:
        names["__package__"] = space["__package__"]
    return names


def used_globals(function: types.FunctionType) -> Iterator[tuple[str, object]]:
    """Return the global names that a function uses, with their values."""
    space = function.__globals__
    return ((name, space[name]) for name in global_names(function.__code__) if name in space)


def fields_of(function: types.FunctionType) -> dict[str, object]:
    """Return the attributes of a function, without its code, globals and cells."""
    fields = (
        "__defaults__",
        "__kwdefaults__",
        "__doc__",
        "__qualname__",
        "__module__",
        "__annotations__",
        "__type_params__",
    )
    found = {}
    for field in fields:
        try:
            found[field] = getattr(function, field)
        except (AttributeError, NameError):
            # Python before 3.12 has no type parameters, and an annotation that is
            # evaluated only now may use an undefined name.
            continue
    return {**found, **function.__dict__}


def new_function(
    code: types.CodeType,
    names: dict[str, Any],
    name: str,
    cells: tuple[types.CellType, ...],
    marks: dict[str, object],
    of_globals: object = __builtins__,
) -> types.FunctionType:
    """Create a function whose state, cells and globals are set later. Called while
    unpickling.
    """
    names.setdefault("__builtins__", of_globals)
    function = types.FunctionType(code, names, name, None, cells)
    vars(function).update(marks)
    return function


def set_fields(function: types.FunctionType, fields: dict[str, object]) -> None:
    """Set attributes of a function. Called while unpickling."""
    for name, value in fields.items():
        setattr(function, name, value)


def set_cell(cell: types.CellType, content: tuple[object]) -> None:
    """Set the content of a cell. Called while unpickling."""
    (cell.cell_contents,) = content


def fill(container: Any, content: Any) -> None:
    """Fill a list or dictionary that was created empty. Called while unpickling."""
    (container.extend if type(container) is list else container.update)(content)


def first(value: object, *_: object) -> object:
    """Return the first of the objects that were made. Called while unpickling."""
    return value


def set_global(names: dict[str, object], name: str, value: object) -> None:
    """Add a name to a function's globals. Called while unpickling."""
    names[name] = value
