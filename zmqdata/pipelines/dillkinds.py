"""The kinds of objects that dill takes apart, for the pickler of pipelines.

dill's functions are called with a recorder in place of a pickler. Its global settings
and tables are read, never changed.
"""

from __future__ import annotations

import abc
import functools
import types
import weakref
from collections import OrderedDict
from typing import Any

import dill
from dill import _dill

_MAPPINGS: tuple[Any, ...] = ({}, OrderedDict())
DILL_KINDS = {
    types.CodeType,
    types.MethodType,
    types.MappingProxyType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    functools._lru_cache_wrapper,
    classmethod,
    property,
    staticmethod,
    super,
    abc.abstractclassmethod,
    abc.abstractproperty,
    abc.abstractstaticmethod,
    weakref.CallableProxyType,
    weakref.ProxyType,
    weakref.ReferenceType,
    *(type(view()) for one in _MAPPINGS for view in (one.keys, one.values, one.items)),
    *(kind for kind in dill.Pickler.dispatch if kind.__module__ == "dataclasses"),
} & dill.Pickler.dispatch.keys()
"""Classes whose objects dill takes apart, among them the sentinels of dataclasses."""


class _Recorder:
    """Takes the place of a pickler, and records what dill would write."""

    reduced: Any = NotImplemented

    def save_reduce(self, function: Any, arguments: Any, *more: Any, obj: object = None) -> None:
        """Record the call that makes the object."""
        self.reduced = (function, arguments, *more)

    def write(self, opcode: bytes) -> None:
        """Record the name of an object that is written by its name."""
        self.reduced = opcode.split(b"\n")[1].decode()


def reduced_by_dill(thing: Any) -> Any:
    """Return the reduction of an object of one of the kinds, or of a class of C code
    without a name; NotImplemented for another such class.
    """
    recorder = _Recorder()
    if type(thing) in DILL_KINDS:
        dill.Pickler.dispatch[type(thing)](recorder, thing)
    elif thing in _dill._typemap:
        _dill.save_type(recorder, thing)
    return recorder.reduced
