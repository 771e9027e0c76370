"""Dtypes of ml_dtypes, images of Pillow and tensors of torch arrive as what they are.
Those of torch need ``make test-torch``.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.elements.test_extensions import extensions
from zmqdata import Dataset, LocalCluster, TensorSpec, distribute
from zmqdata.elements.extensions import is_extension
from zmqdata.elements.lists import array_of
from zmqdata.elements.specs import spec_of
from zmqdata.pipelines import open_pipeline, pack_pipeline

HAS_TORCH = importlib.util.find_spec("torch") is not None

pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("ml_dtypes", "PIL")),
    reason="ml_dtypes or Pillow is not installed",
)


@pytest.mark.parametrize("dtype", extensions(), ids=str)
def test_extended_dtypes_in_batches_saves_and_states(dtype: Any, tmp_path: Path) -> None:
    """A dtype of ml_dtypes is itself behind every operation and in every file."""
    rows = [np.ones(length).astype(dtype) for length in (1, 2)]
    for dataset in (
        Dataset.from_list(rows).padded_batch(2),
        Dataset.from_list(rows).ragged_batch(2).map(lambda ragged: ragged.flat_values),
        Dataset.from_list(rows).unbatch().batch(3),
        Dataset.from_tensor_slices(rows[1]).batch(2),
        Dataset.from_list(rows).map(lambda row: [row[0], row[0]]),
        Dataset.from_list(rows).scan(rows[1], lambda state, row: (state, state)),
        Dataset.from_generator(lambda: rows, output_signature=TensorSpec((None,), dtype)),
        Dataset.from_list(rows).cache(str(tmp_path / "cache")),
        Dataset.from_list(rows).snapshot(str(tmp_path / "snapshot")),
    ):
        iterator = iter(dataset)
        state = iterator.state_dict()
        assert {element.dtype for element in iterator} == {dtype}
        again = iter(dataset)
        again.load_state_dict(state)
        assert next(again).dtype == dtype
        assert dataset.element_spec.dtype == dtype
    Dataset.from_list(rows).save(str(tmp_path / "save"))
    loaded = Dataset.load(str(tmp_path / "save"))
    assert loaded.element_spec == TensorSpec((None,), dtype)
    assert [row.tobytes() for row in loaded] == [row.tobytes() for row in rows]


def test_extended_dtypes_by_name_and_in_lists() -> None:
    """A name is enough for a spec, and a bool beside bfloat16 is an error."""
    import ml_dtypes

    assert TensorSpec((2,), "bfloat16") == TensorSpec((2,), ml_dtypes.bfloat16)
    one = ml_dtypes.bfloat16(1)
    assert array_of([one, np.float32(2)]).dtype == np.float32
    with pytest.raises(ValueError, match="the bool True"):
        array_of([one, True])
    assert is_extension(array_of([one, one]).dtype)


@pytest.mark.parametrize("dtype", extensions(), ids=lambda dtype: str(dtype.name))
def test_integers_beside_extended_dtypes_keep_their_values(dtype: Any) -> None:
    """A list with a value of an extended dtype and an integer holds both, or is an
    error.
    """
    for number in (np.int8(1), np.int8(127), np.uint8(255), np.int16(257), 2**40):
        one = np.ones(1).astype(dtype)
        try:
            array = array_of([one, np.array([number])])
        except ValueError:
            continue
        assert [complex(value) for value in array.flat] == [complex(one[0]), number]


def foreign() -> dict[str, Any]:
    """Return values of other packages, those of torch if it is installed."""
    import ml_dtypes
    from PIL import Image

    return {
        "image": Image.new("RGB", (4, 3)),
        "grey": Image.new("L", (4, 3)),
        "bfloat16 scalar": ml_dtypes.bfloat16(1),
        "list of bfloat16": [np.ones(2, ml_dtypes.bfloat16)] * 2,
        **(tensors() if HAS_TORCH else {}),
    }


def tensors() -> dict[str, Any]:
    import torch

    return {
        "plain": torch.ones(2),
        "with gradient": torch.ones(2, requires_grad=True),
        "bfloat16": torch.ones(2, dtype=torch.bfloat16),
        "float8": torch.ones(2).to(torch.float8_e4m3fn),
        "conjugate": torch.ones(2, dtype=torch.complex64).conj(),
        "transposed": torch.ones(3, 2, dtype=torch.bfloat16).T,
        "scalar": torch.tensor(1),
        "list": [torch.ones(2, dtype=torch.bfloat16)] * 2,
    }


@pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")
@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("name", ["uint16", "uint32", "uint64", "float8_e4m3fn", "complex32"])
def test_tensors_of_newer_dtypes_travel_with_functions(name: str) -> None:
    """A function that holds a tensor of a dtype that torch cannot pickle is opened with
    the same tensor, whatever its layout.
    """
    import torch

    held = torch.arange(6).reshape(2, 3).to(getattr(torch, name)).T
    got = open_pipeline(pack_pipeline(lambda: held))()
    assert got.dtype == held.dtype
    assert got.tolist() == held.tolist()


@pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")
def test_tensors_of_functions_are_sent_as_arrays() -> None:
    """A large tensor lies beside the pickle, once, and tensors that share memory share
    it again.
    """
    import torch

    whole = torch.arange(1 << 18, dtype=torch.int64).reshape(2, -1)
    parts = [whole, whole[1:], whole.t()]
    packed = pack_pipeline(lambda: parts)
    assert (len(packed.buffers), len(packed.payload) < 10_000) == (1, True)
    opened = open_pipeline(packed)()
    assert [torch.equal(*pair) for pair in zip(parts, opened, strict=True)] == [True] * 3
    opened[1][0, 0] = -1
    assert opened[0][1, 0] == -1


@pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")
@pytest.mark.parametrize("name", ["sparse", "meta"])
def test_tensors_without_an_array_are_errors(name: str) -> None:
    """The error says what to call."""
    import torch

    made = {"sparse": torch.ones(2).to_sparse(), "meta": torch.ones(2, device="meta")}
    words = {"sparse": r"call \.to_dense\(\)", "meta": r"on the device meta: call \.cpu\(\)"}
    with pytest.raises(Exception, match=words[name]):
        next(iter(Dataset.range(1).map(lambda i: made[name])))


def test_tensors_images_and_extensions_over_the_service() -> None:
    """A function's result is the same array in a batch here, as an element of the
    service, and in both specs.
    """
    here = Dataset.range(2).map(lambda i: foreign())
    assert {name: type(leaf) for name, leaf in next(iter(here.batch(2))).items()} == dict.fromkeys(
        foreign(), np.ndarray
    )
    with LocalCluster(num_workers=1) as cluster:
        far = distribute("distributed_epoch", cluster.target)
        element = next(iter(here.apply(far)))
    assert spec_of(element) == here.element_spec
    assert element["list of bfloat16"].dtype.name == "bfloat16"
    assert element["image"].shape == (3, 4, 3)
