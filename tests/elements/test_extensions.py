"""Tests of ``zmqdata.elements.extensions``; those with ml_dtypes are in
``frameworks/test_values``.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec
import numpy as np
import pytest

from zmqdata.blocks import BlockBuilder, decode_block
from zmqdata.elements.extensions import described, extension, is_extension, rebuilt
from zmqdata.elements.specs import TensorSpec, decode_spec, encode_spec
from zmqdata.errors import MissingDtypeError, ProtocolError

NAME = "ml_dtypes.bfloat16"


@pytest.fixture
def without_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make ml_dtypes a package that cannot be imported."""
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)


def renamed(encoded: bytes) -> bytes:
    """Return an encoding in which the dtype of two bytes is bfloat16."""

    def inside(part: Any) -> Any:
        if isinstance(part, list):
            return [inside(item) for item in part]
        return NAME if part == "|V2" else part

    return msgspec.msgpack.encode(inside(msgspec.msgpack.decode(encoded)))


@pytest.mark.usefixtures("without_package")
def test_a_missing_package_is_named() -> None:
    """Specs and blocks with a dtype of ml_dtypes say what to install."""
    for decode in (
        lambda: extension("bfloat16"),
        lambda: decode_spec(renamed(encode_spec(TensorSpec((1,), "V2")))),
        lambda: TensorSpec((), "bfloat16"),
    ):
        with pytest.raises(MissingDtypeError, match=r"bfloat16 .*`pip install ml_dtypes`"):
            decode()
    builder = BlockBuilder()
    builder.add(np.zeros(1, "V2"))
    block = builder.build()
    with pytest.raises(MissingDtypeError, match=r"bfloat16 .*`pip install ml_dtypes`"):
        decode_block(renamed(block.meta), block.frames)


@pytest.mark.parametrize("name", ["ml_dtypes.os", "ml_dtypes.finfo", "os.path", "ml_dtypes."])
def test_a_peer_can_name_dtypes_only(name: str) -> None:
    """Other names of the package, and other packages, are refused."""
    with pytest.raises((ProtocolError, TypeError)):
        rebuilt(name)


@pytest.mark.parametrize("dtype", ["<f4", ">M8[3s]", "|V5", "<U", "|O", "<c32"])
def test_numpys_own_dtypes_keep_their_text(dtype: str) -> None:
    """Only extensions travel by name."""
    assert not is_extension(np.dtype(dtype))
    assert described(np.dtype(dtype)).startswith(dtype)
    assert rebuilt(dtype) == np.dtype(dtype)


def test_titles_and_gaps_survive_in_specs() -> None:
    """Fields keep offsets, titles and the size of the structure."""
    layout: Any = {
        "names": ["a", "b"],
        "formats": ["i4", ">f8"],
        "offsets": [4, 16],
        "itemsize": 32,
        "titles": ["first", None],
    }
    spec = TensorSpec((2,), np.dtype(layout))
    assert decode_spec(encode_spec(spec)) == spec
