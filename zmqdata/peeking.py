"""Looking at objects of the user, which may answer with any error, and looking up their
classes and functions by name.

The name comes from a peer, so nothing is imported for it and no attribute hook runs.
The classes of the script are at home in ``__main__``, unless another program runs the
script: a profiler or tracer is ``sys.modules["__main__"]`` itself. Classes that this
process sent to workers are therefore found even if their module does not show them.
"""

from __future__ import annotations

import inspect
import sys
import weakref
from functools import partial
from types import FunctionType, MethodType, ModuleType
from typing import Any, TypeGuard, TypeVar, get_origin, get_type_hints

Kind = TypeVar("Kind")
_homeless: weakref.WeakValueDictionary[tuple[str, str], type] = weakref.WeakValueDictionary()


def peek(thing: Any, name: str, default: Any = None) -> Any:
    """Return an attribute of any object, or the default if the object has none or
    raises any error.

    A configuration whose ``__getattr__`` looks into a dictionary raises ``KeyError``
    for a missing attribute, for example.

    >>> class Options(dict):
    ...     __getattr__ = dict.__getitem__
    >>> peek(Options(size=5), "size"), peek(Options(), "node")
    (5, None)
    """
    try:
        return getattr(thing, name, default)
    except Exception:
        return default


def has(thing: Any, name: str) -> bool:
    """Return True if an object has an attribute and gives it without an error."""
    return peek(thing, name, _NOTHING) is not _NOTHING


def shown(thing: Any) -> str:
    """Return the representation of an object, or its class if it has none.

    >>> class Broken:
    ...     def __repr__(self):
    ...         raise ValueError
    >>> shown("a"), shown(Broken())
    ("'a'", '<Broken>')
    """
    try:
        return repr(thing)
    except Exception:
        return f"<{type(thing).__name__}>"


def is_a(thing: Any, kind: type[Kind] | tuple[type[Kind], ...]) -> TypeGuard[Kind]:
    """Return True if the object was made as an instance of this class, whatever its
    ``__class__`` says.
    """
    return issubclass(type(thing), kind)


def parameters_of(function: Any) -> list[inspect.Parameter] | None:
    """Return the parameters with which a Python function, a method or an object with
    ``__call__`` is called, or None for other callables.

    Nothing of the object itself is asked. A signature that it states may be untrue, and
    wrapped functions are not those that are called.
    """
    called: Any = function
    bound = 0
    if is_a(function, MethodType):
        called, bound = function.__func__, 1
    elif not is_a(function, (FunctionType, partial)):
        called, bound = type(function).__call__, 1
    plain = called.func if is_a(called, partial) else called
    if not is_a(plain, FunctionType) or "__signature__" in vars(plain):
        return None
    found = list(inspect.signature(called, follow_wrapped=False).parameters.values())
    takes_any = found and found[0].kind is inspect.Parameter.VAR_POSITIONAL
    return found if takes_any else found[bound:]


def returned_class(function: Any) -> type | None:
    """Return the class whose objects a function says that it returns, or None if it
    says nothing. A class returns its objects.

    As for ``parameters_of``, nothing is believed of a wrapper, which may have copied
    what it says.

    >>> def length(text) -> "int":
    ...     return len(text)
    >>> returned_class(length), returned_class(str), returned_class(lambda x: x)
    (<class 'int'>, <class 'str'>, None)
    """
    if isinstance(function, type):
        return function
    plain = function.func if is_a(function, partial) else peek(function, "__func__", function)
    if not is_a(plain, FunctionType) or "__wrapped__" in vars(plain):
        return None
    try:
        stated = get_type_hints(plain).get("return")
    except Exception:  # a name that only a checker of types knows
        return None
    kind = get_origin(stated) or stated
    return kind if isinstance(kind, type) else None


def misfit(parameters: list[inspect.Parameter] | None, given: int) -> str | None:
    """Return why a call with a number of positional arguments fails, in Python's words,
    or None if it does not, as far as the parameters are known.

    >>> misfit(parameters_of(lambda x: x), 2)
    'takes 1 positional argument but 2 were given'
    """
    if parameters is None:
        return None
    places = [
        one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
    ]
    lacking = [one.name for one in places if one.default is one.empty][given:]
    named = [
        one.name for one in parameters if one.kind is one.KEYWORD_ONLY and one.default is one.empty
    ]
    if given > len(places) and not any(one.kind is one.VAR_POSITIONAL for one in parameters):
        verb = "was" if given == 1 else "were"
        return f"takes {counted(len(places), 'positional argument')} but {given} {verb} given"
    for names, kind in ((lacking, "positional"), (named, "keyword-only")):
        if names:
            noun = counted(len(names), f"required {kind} argument")
            return f"missing {noun}: {', '.join(map(repr, names))}"
    return None


def counted(count: int, noun: str) -> str:
    """Return a number with its noun, which may be given in the plural.

    >>> counted(1, "argument"), counted(2000, "argument")
    ('1 argument', '2,000 arguments')
    >>> counted(1, "batches"), counted(2, "batches"), counted(1, "elements")
    ('1 batch', '2 batches', '1 element')
    """
    one = noun.removesuffix("es") if noun.endswith("ches") else noun.removesuffix("s")
    return f"{count:,} {one}{'' if count == 1 else 'es' if one.endswith('ch') else 's'}"


def look_up(module: str, qualname: str) -> Any:
    """Return the object of this name in an imported module, or None.

    >>> look_up("collections", "OrderedDict")
    <class 'collections.OrderedDict'>
    """
    known = _homeless.get((module, qualname))
    return known if known is not None else _stored(module, qualname)


def remember_class(kind: type) -> None:
    """Let ``look_up`` find a class of the script that its module does not show. A class
    within a function is left out, because there may be many of its name.
    """
    name = kind.__module__, kind.__qualname__
    if all(type(one) is str and "<" not in one for one in name) and _stored(*name) is not kind:
        _homeless[name] = kind
    else:
        _homeless.pop(name, None)


def _stored(module: str, qualname: str) -> Any:
    found: object = sys.modules.get(module)
    if not isinstance(found, ModuleType):
        return None
    for name in qualname.split("."):
        try:
            found = object.__getattribute__(found, "__dict__").get(name)
        except AttributeError:
            return None
    return found


_NOTHING = object()
