"""Comparison of batches: equal values, types and order of keys."""

from __future__ import annotations

import dataclasses
import io
import random
from collections import deque
from typing import Any

import numpy as np
import torch


def assert_same(found: Any, wanted: Any, path: str = "batch") -> None:
    """Raise AssertionError unless two nests are equal in values, types and order of
    keys; the text says where they differ.
    """
    assert type(found) is type(wanted), f"{path}: {type(found)} instead of {type(wanted)}"
    if isinstance(wanted, torch.Tensor):
        _assert_same_tensors(found, wanted, path)
    elif isinstance(wanted, np.ndarray):
        assert found.dtype == wanted.dtype, path
        assert found.shape == wanted.shape, path
        assert found.tolist() == wanted.tolist(), path
    elif isinstance(wanted, dict):
        assert list(found) == list(wanted), f"{path}: keys {list(found)}"
        for key, value in wanted.items():
            assert_same(found[key], value, f"{path}[{key!r}]")
    elif isinstance(wanted, (list, tuple, deque)):
        assert len(found) == len(wanted), f"{path}: {len(found)} parts instead of {len(wanted)}"
        for index, value in enumerate(wanted):
            assert_same(found[index], value, f"{path}[{index}]")
    elif dataclasses.is_dataclass(wanted):
        for field in dataclasses.fields(wanted):
            name = field.name
            assert_same(getattr(found, name), getattr(wanted, name), f"{path}.{name}")
    elif hasattr(wanted, "__dict__"):
        assert_same(vars(found), vars(wanted), f"{path}.__dict__")
    else:
        assert found == wanted, f"{path}: {found!r} instead of {wanted!r}"


def _assert_same_tensors(found: Any, wanted: Any, path: str) -> None:
    assert found.dtype == wanted.dtype, f"{path}: {found.dtype} instead of {wanted.dtype}"
    assert found.shape == wanted.shape, f"{path}: {found.shape} instead of {wanted.shape}"
    assert found.requires_grad == wanted.requires_grad, path
    assert bits(found) == bits(wanted), f"{path}: {found} instead of {wanted}"
    assert_same(vars(found), vars(wanted), f"{path}.__dict__")


def bits(tensor: Any) -> bytes:
    """Return the content of a tensor, in the order of its indices."""
    with torch._C.DisableTorchFunctionSubclass():
        plain = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
        if not plain.numel():
            return b""
        return plain.view(torch.uint8).numpy().tobytes()


def seed(number: int) -> None:
    """Seed the generators behind the functions of torch, numpy and ``random``."""
    torch.manual_seed(number)
    np.random.seed(number)
    random.seed(number)


def drawn() -> tuple[Any, ...]:
    """Return the states of these generators."""
    _, keys, *rest = np.random.get_state()
    return bytes(torch.get_rng_state()), keys.tolist(), rest, random.getstate()


def stored(state: Any) -> Any:
    """Return a state after ``torch.save`` and ``torch.load`` without code."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)
