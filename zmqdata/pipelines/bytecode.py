"""Names that functions use, from their bytecode."""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Iterator

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
