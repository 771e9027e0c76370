"""Tests of ``zmqdata.elements.extensions``. Those that need ml_dtypes are in
``frameworks/test_values``.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zmqdata.blocks import BlockBuilder, decode_block
from zmqdata.elements.extensions import described, extension, is_extension, rebuilt
from zmqdata.elements.specs import TensorSpec, decode_spec, encode_spec, spec_of
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


def extensions() -> list[np.dtype[Any]]:
    """Return all dtypes that this release of ml_dtypes has; float64 without it."""
    if importlib.util.find_spec("ml_dtypes") is None:
        return [np.dtype(float)]
    ml_dtypes: Any = importlib.import_module("ml_dtypes")
    kinds = [getattr(ml_dtypes, name) for name in dir(ml_dtypes)]
    return [
        np.dtype(kind) for kind in kinds if isinstance(kind, type) and issubclass(kind, np.generic)
    ]


PLAIN = ["?", "i1", ">u4", "f2", "g", "G", "M8[25s]", ">m8[ns]", "U2", "S3", "V5"]


@st.composite
def dtypes(draw: Any) -> np.dtype[Any]:
    """A dtype: plain, of ml_dtypes, or a structure of both, packed or aligned."""
    one = st.sampled_from([*extensions(), *map(np.dtype, PLAIN)])
    if draw(st.booleans()):
        return draw(one)
    fields = draw(st.lists(st.tuples(one, st.sampled_from([(), (2,)])), min_size=1, max_size=3))
    named = [(f"f{number}", *field) for number, field in enumerate(fields)]
    return np.dtype(named, align=draw(st.booleans()))


def arrived(element: Any) -> Any:
    builder = BlockBuilder(allow_objects=False)
    assert builder.add(element)
    block = builder.build()
    (found,) = decode_block(block.meta, block.frames, allow_objects=False).elements()
    return found


@given(dtypes(), st.sampled_from([(), (0,), (3,), (2, 2)]), st.integers(0, 3))
def test_what_specs_say_arrives(dtype: np.dtype[Any], shape: Any, first: int) -> None:
    """Arrays and scalars of every dtype arrive with the dtype and the values that they
    had, as their spec says.
    """
    octet = 0 if "U" in str(dtype) else first  # characters are not arbitrary bytes
    raw = np.full(8 * dtype.itemsize, octet, np.uint8)
    array = raw.view(dtype)[: int(np.prod(shape))].reshape(shape)
    for value in (array, array.reshape(-1)[0] if array.size else array):
        found, spec = arrived({"x": value})["x"], spec_of(value)
        assert decode_spec(encode_spec(spec)) == spec == spec_of(found)
        assert type(found) is type(value)
        assert repr(np.asarray(found).tolist()) == repr(np.asarray(value).tolist())
