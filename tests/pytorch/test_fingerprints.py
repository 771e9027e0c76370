"""Tests of fingerprints of what torch and pandas hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch.utils.data import TensorDataset

from zmqdata.pipelines import fingerprint


def marked(tensor: Any, value: Any) -> Any:
    tensor.mark = value
    return tensor


def linear(value: int) -> Any:
    made = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.constant_(made.weight, value)
    return made


CONTENTS: dict[str, Callable[[int], Any]] = {
    "tensor": lambda x: torch.tensor([x, 2]),
    "data set": lambda x: TensorDataset(torch.arange(5), torch.tensor([0, 0, 0, 0, x])),
    "bfloat16": lambda x: torch.tensor([x], dtype=torch.bfloat16),
    "scalar": lambda x: torch.tensor(x),
    "parameter": lambda x: torch.nn.Parameter(torch.tensor([float(x)])),
    "module": linear,
    "sparse": lambda x: torch.tensor([[0, x]]).to_sparse(),
    "rows": lambda x: torch.tensor([[0.0, x]]).to_sparse_csr(),
    "conjugate": lambda x: torch.tensor([complex(0, x)]).conj(),
    "storage": lambda x: torch.tensor([x]).untyped_storage(),
    "attribute": lambda x: marked(torch.tensor([1]), x),
    "gradient": lambda x: torch.tensor([1.0], requires_grad=x == 1),
    "dtype": lambda x: torch.tensor([1], dtype=(torch.int32, torch.int64)[x - 1]),
    "shape": lambda x: torch.zeros((x, 3 - x)),
    "generator": lambda x: torch.Generator().manual_seed(x),
}


@pytest.mark.parametrize("name", CONTENTS)
def test_the_content_of_tensors_counts(name: str) -> None:
    """A change of what a tensor holds changes the fingerprint, and an equal one has an
    equal fingerprint.
    """
    one, two, other = (fingerprint(CONTENTS[name](value)) for value in (1, 1, 2))
    assert one == two != other


def test_the_layout_of_a_tensor_does_not_count() -> None:
    """A view and a contiguous copy have equal fingerprints."""
    view = torch.arange(6).reshape(2, 3).T
    assert fingerprint(view) == fingerprint(view.contiguous())
    assert fingerprint(torch.arange(9)[3:5]) == fingerprint(torch.tensor([3, 4]))


def test_the_content_of_frames_counts() -> None:
    """Values, columns and index of a frame of pandas count."""
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")

    def frame(text: str, number: int, name: str, index: int) -> Any:
        held = {"path": ["a", text], name: np.array([1, number])}
        return pandas.DataFrame(held, index=[0, index])

    one = frame("b", 2, "y", 1)
    assert fingerprint(one) == fingerprint(frame("b", 2, "y", 1)) == fingerprint(one.copy())
    others = [frame("c", 2, "y", 1), frame("b", 3, "y", 1), frame("b", 2, "z", 1)]
    others += [frame("b", 2, "y", 2), one["y"], one[["y"]]]
    assert len({str(fingerprint(other)) for other in [one, *others]}) == 7
