"""Batches of any structure as elements, and back.

A batch of a ``DataLoader`` may be anything: a tensor, a list of tensors of different
lengths, a dataclass, an object that holds tensors. Its tensors and arrays travel as
arrays. All the rest travels as a pickle that refers to them by number, so lists stay
lists, and a tensor that occurs twice occurs twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from zmqdata.blocks.objects import pickled, unpickled
from zmqdata.errors import WrongTypeError

Packed = tuple[Any, ...]
"""An element: the pickle, the number of arrays, the arrays, and the large buffers of
the pickle.
"""

_KINDS = frozenset("biufcmM")
_AS_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Dtypes of the same width as a dtype that numpy lacks, by its bytes."""


def pack(batch: Any) -> Packed:
    """Return a batch as an element.

    Raises:
        TypeError: a part of the batch cannot be sent; the text says which and why.

    >>> unpack(pack([torch.zeros(2), "text", None]))
    [tensor([0., 0.]), 'text', None]
    """
    arrays: list[Any] = []
    try:
        skeleton = pickled(batch, lambda value: _reduced(value, arrays))
    except TypeError as error:
        if isinstance(error.__cause__, WrongTypeError):
            raise error.__cause__ from None
        raise
    buffers = [np.frombuffer(buffer, np.uint8) for buffer in skeleton.buffers]
    return (skeleton.stream, len(arrays), *arrays, *buffers)


def unpack(packed: Packed) -> Any:
    """Return the batch of an element that ``pack`` has made.

    Raises:
        ProtocolError: the element is damaged.
        MissingClassError: the batch has a class whose module is not imported here.
    """
    stream, count, *rest = packed
    arrays, buffers = rest[:count], [memoryview(buffer) for buffer in rest[count:]]

    def array(index: int) -> Any:
        return arrays[index]

    def tensor(index: int, *form: Any) -> Any:
        return _tensor(arrays[index], *form)

    return unpickled(stream, buffers, {_name(array_at): array, _name(tensor_at): tensor})


def array_at(index: int) -> Any:
    """Stand for an array of an element in the pickle of its batch."""
    raise TypeError("`unpack` gives this name its meaning")


def tensor_at(index: int, *form: Any) -> Any:
    """Stand for a tensor of an element in the pickle of its batch."""
    raise TypeError("`unpack` gives this name its meaning")


def _name(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{function.__qualname__}"


def _reduced(value: Any, arrays: list[Any]) -> Any:
    """Return the reduction of a tensor or an array, whose content becomes one of
    ``arrays``; None for any other value.
    """
    if value is array_at or value is tensor_at:
        return NotImplemented
    if isinstance(value, torch.Tensor):
        with torch._C.DisableTorchFunctionSubclass():
            array, form = _taken_apart(value)
        arrays.append(array)
        return tensor_at, (len(arrays) - 1, *form)
    if type(value) is np.ndarray and value.ndim and value.dtype.kind in _KINDS:
        arrays.append(value)
        return array_at, (len(arrays) - 1,)
    return None


def _taken_apart(tensor: torch.Tensor) -> tuple[Any, tuple[Any, ...]]:
    """Return the content of a tensor as an array with at least one axis, and what
    ``_tensor`` needs beside it.
    """
    _check(tensor)
    kind = type(tensor)
    plain = tensor.detach()
    if kind is not torch.Tensor:
        plain = plain.as_subclass(torch.Tensor)
    plain = plain.resolve_conj().resolve_neg()
    axes = _axes(plain)
    if axes is not None:
        plain = plain.permute(axes)
    is_scalar = not plain.ndim
    if is_scalar:
        plain = plain.reshape(1)
    try:
        array, dtype = plain.numpy(), None
    except TypeError:  # numpy has no such dtype
        dtype = str(plain.dtype).rpartition(".")[2]
        array = plain.contiguous().view(_AS_INTEGERS[plain.dtype.itemsize]).numpy()
    own = None if kind is torch.Tensor else kind
    form: tuple[Any, ...] = (is_scalar, dtype, axes, own, vars(tensor) or None)
    form = (*form, tensor.requires_grad)
    # Without what is as usual: the pickles of most batches would be twice as long.
    while form and form[-1] in (None, False):
        form = form[:-1]
    return array, form


def _tensor(
    array: Any,
    is_scalar: bool = False,
    dtype: str | None = None,
    axes: tuple[int, ...] | None = None,
    kind: type | None = None,
    attributes: dict[str, Any] | None = None,
    requires_grad: bool = False,
) -> Any:
    tensor = torch.from_numpy(array if array.flags.writeable else array.copy())
    if dtype is not None:
        tensor = tensor.view(getattr(torch, dtype))
    if is_scalar:
        tensor = tensor.reshape(())
    if axes is not None:
        tensor = tensor.permute(tuple(np.argsort(axes).tolist()))
    if kind is not None:
        tensor = tensor.as_subclass(kind)
    if attributes:
        vars(tensor).update(attributes)
    if requires_grad:
        with torch._C.DisableTorchFunctionSubclass():
            tensor.requires_grad_()
    return tensor


def _axes(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """Return the order of axes in which a tensor lies in memory without gaps, such as
    that of images with their channels last; None if it is the usual order, or if the
    tensor has gaps.
    """
    if tensor.is_contiguous():
        return None
    strides = tensor.stride()
    axes = tuple(sorted(range(tensor.ndim), key=lambda axis: -strides[axis]))
    return axes if tensor.permute(axes).is_contiguous() else None


def _check(tensor: torch.Tensor) -> None:
    """Raise an error for a tensor whose content cannot travel as an array."""
    remedy = ""
    kind = type(tensor)
    if tensor.is_nested:
        remedy = "it is nested: return its parts, or use padding"
    elif tensor.is_quantized:
        remedy = "it is quantized: return .int_repr() with its scale"
    elif kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        remedy = (
            f"its class {kind.__name__} defines __torch_dispatch__, so its content may lie "
            "elsewhere: return the tensors that it consists of"
        )
    elif tensor.device.type == "meta":
        remedy = "it is on the device meta, where tensors have no content: return its shape"
    elif tensor.device.type != "cpu":
        remedy = f"it is on the device {tensor.device}: call .cpu() in the dataset or in collate_fn"
    elif tensor.layout is not torch.strided:
        remedy = f"its layout is {tensor.layout}: call .to_dense(), or return its parts"
    elif tensor.dtype.itemsize not in _AS_INTEGERS and not tensor.is_complex():
        remedy = f"numpy lacks the dtype {tensor.dtype}"
    if remedy:
        raise WrongTypeError(
            f"a tensor of a batch cannot be sent from a worker to the training process: {remedy}"
        )
