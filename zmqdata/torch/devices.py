"""Batches on their way to a device: pinned memory, and copies ahead of the training
loop on a stream of their own.
"""

from __future__ import annotations

import copy
import dataclasses
from collections import UserList, deque
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from typing import Any

import torch

from zmqdata.errors import InvalidArgumentError

_NO_ACCELERATOR = ("cpu", "meta")
"""Types of devices that every machine has. Memory is pinned for none of them."""


def mapped(
    value: Any,
    function: Callable[[torch.Tensor], Any],
    method: str = "",
    own: Callable[[Any], Any] = lambda value: value,
) -> Any:
    """Return a batch with the results of a function in place of its tensors.

    It goes through mappings, lists, deques, tuples, dataclasses and their subclasses,
    and leaves every other value as it is.

    Args:
        value: the batch.
        function: returns what replaces a tensor.
        method: name of a method that moves an object. An object of any other class that
            has it moves by itself.
        own: returns what replaces such an object.

    >>> mapped({"x": [torch.ones(1)], "y": "text"}, lambda tensor: tensor + 1)
    {'x': [tensor([2.])], 'y': 'text'}
    """
    if isinstance(value, torch.Tensor):
        return function(value)
    if method and not isinstance(value, type) and callable(getattr(value, method, None)):
        return own(value)

    def moved(part: Any) -> Any:
        return mapped(part, function, method, own)

    if isinstance(value, tuple):
        parts = [*map(moved, value)]
        if hasattr(value, "_fields"):
            return tuple.__new__(type(value), parts)
        return _as(type(value), tuple(parts))
    if isinstance(value, (list, deque, UserList)):
        return _refilled(value, enumerate(map(moved, value)))
    if isinstance(value, MutableMapping):
        return _refilled(value, [(key, moved(part)) for key, part in value.items()])
    if isinstance(value, Mapping):
        return _as(type(value), {key: moved(part) for key, part in value.items()})
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        clone = copy.copy(value)
        for field in dataclasses.fields(value):
            if hasattr(value, field.name):
                part = moved(getattr(value, field.name))
                object.__setattr__(clone, field.name, part)  # it may be frozen
        return clone
    return value


def _refilled(value: Any, parts: Iterable[tuple[Any, Any]]) -> Any:
    """Return a copy of a container with other parts, and with whatever else its class
    holds.
    """
    clone = copy.copy(value)
    for key, part in parts:
        clone[key] = part
    return clone


def _as(kind: type, plain: Any) -> Any:
    """Return a container of a class, or the plain one if that class takes other
    arguments.
    """
    try:
        return kind(plain)
    except TypeError:
        return plain


def checked_device(device: Any, pin_memory: bool | None) -> tuple[torch.device | None, bool]:
    """Return the device, and whether memory is to be pinned.

    Raises:
        InvalidArgumentError: there is no such device, or no accelerator that memory
            could be pinned for.
    """
    if pin_memory is not None and not isinstance(pin_memory, bool):
        raise InvalidArgumentError(f"`pin_memory` must be True, False or None, got {pin_memory!r}")
    target = None if device is None else _checked(device)
    is_there = torch.accelerator.is_available()
    if pin_memory and not is_there:
        raise InvalidArgumentError(
            "`pin_memory=True` needs an accelerator, and torch finds none here. Leave "
            "`pin_memory` out: memory is then pinned where that helps"
        )
    is_far = target is not None and target.type not in _NO_ACCELERATOR
    return target, is_far if pin_memory is None else pin_memory


def _checked(device: Any) -> torch.device:
    try:
        target = torch.device(device)
    except (RuntimeError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise InvalidArgumentError(
            f"`device` must be a device of torch or its name, got {device!r}: {reason}"
        ) from None
    if target.type in _NO_ACCELERATOR:
        return target
    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    count = torch.accelerator.device_count() if found is not None else 0
    if found is None or found.type != target.type or (target.index or 0) >= count:
        what = "no accelerator" if found is None else f"{count} of type {found.type}"
        raise InvalidArgumentError(
            f"`device={str(device)!r}` is not there: torch finds {what} in this process. Check "
            "that the machine has the device, that torch was built for it, and what "
            "CUDA_VISIBLE_DEVICES allows"
        )
    if target.index is None:
        return torch.device(target.type, torch.accelerator.current_device_index())
    return target


class Copier:
    """Copies batches to a device, ahead of the training loop.

    Copies run on a stream of their own, so they do not wait for what the loop computes.
    ``arrived`` makes the loop's stream wait for a copy that is not finished.

    Args:
        device: target of the copies; None leaves batches where they are.
        pin_memory: True to copy batches into pinned memory first.
    """

    def __init__(self, device: torch.device | None, pin_memory: bool) -> None:
        self._device = device
        self._pin_memory = pin_memory
        self._is_far = device is not None and device.type not in _NO_ACCELERATOR
        self._stream = torch.Stream(device) if self._is_far else None

    @property
    def is_idle(self) -> bool:
        """True if batches stay where they are."""
        return self._device is None and not self._pin_memory

    def begin(self, batch: Any) -> tuple[Any, Any]:
        """Begin to copy a batch, and return the copy with what ``arrived`` needs."""
        if self._pin_memory:
            batch = mapped(batch, _pinned, "pin_memory", lambda value: value.pin_memory())
        if self._device is None:
            return batch, None
        # Objects that move by themselves get memory of the usual stream: what they
        # consist of is not known here.
        batch = mapped(batch, lambda tensor: tensor, "to", lambda value: value.to(self._device))
        if self._stream is None:
            return mapped(batch, lambda tensor: tensor.to(self._device), "to"), None
        copies: list[torch.Tensor] = []

        def copied(tensor: torch.Tensor) -> torch.Tensor:
            copies.append(tensor.to(self._device, non_blocking=True))
            return copies[-1]

        with self._stream:
            moved = mapped(batch, copied, "to")
        return moved, (self._stream.record_event(), copies)

    def arrived(self, batch: Any, copying: Any) -> Any:
        """Return a batch that the training loop may use from now on."""
        if copying is not None:
            current = torch.accelerator.current_stream(self._device)
            event, copies = copying
            current.wait_event(event)
            for tensor in copies:
                # Its memory is not used again before the loop's stream is done with it.
                tensor.record_stream(current)
        return batch


def _pinned(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.device.type != "cpu" or tensor.is_pinned() else tensor.pin_memory()
