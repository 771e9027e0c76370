"""Tests of pickles that cross from one major version of numpy to another."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import msgspec
import numpy as np
import pytest

from zmqdata.errors import FailedPreconditionError
from zmqdata.pipelines import open_pipeline, pack_pipeline
from zmqdata.pipelines.numpynames import module_here


@pytest.mark.parametrize(
    ("new", "old"),
    [
        ("numpy._core", "numpy.core"),
        ("numpy._core.multiarray", "numpy.core.multiarray"),
        ("numpy._core.records", "numpy.core.records"),
    ],
)
def test_a_module_of_numpy_has_a_name_in_either_version(new: str, old: str) -> None:
    """A module is found by the name of the other version and by its own."""
    assert module_here(new, 1) == module_here(old, 1) == old
    assert module_here(old, 2) == module_here(new, 2) == new


def test_public_modules_of_numpy_2_have_a_name_in_numpy_1() -> None:
    """Modules that numpy 2 made public are found where numpy 1 has them."""
    assert module_here("numpy.rec", 1) == "numpy.core.records"
    assert module_here("numpy.strings", 1) == "numpy.core.defchararray"
    assert module_here("numpy.rec", 2) == "numpy.rec"


@pytest.mark.parametrize("name", ["numpy", "numpy.random", "numpy._corel", "json", "core"])
def test_other_names_stay(name: str) -> None:
    """Names that both versions have, or that are not of numpy, are unchanged."""
    assert module_here(name, 1) == module_here(name, 2) == name


PLAIN: dict[str, Any] = {
    "array": np.arange(6).reshape(2, 3).T,
    "text": np.array(["a", "bc"]),
    "structured": np.zeros(2, [("a", "i4"), ("b", "f8", (2,))]),
    "time": np.array(["2020-01-01"], "datetime64[D]"),
    "empty": np.zeros((0, 3)),
    "generator": np.random.default_rng(1),
    "old generator": np.random.RandomState(1),
    "limits": np.finfo("f4"),
}


@pytest.mark.parametrize("name", PLAIN)
def test_plain_values_of_numpy_travel_by_public_names(name: str) -> None:
    """Arrays and generators name no private module of numpy, so that any version opens
    them.
    """
    packed = pack_pipeline(PLAIN[name])
    assert not [one for one in (b"_core", b"numpy.core", b"_pickle") if one in packed.payload]
    opened = open_pipeline(packed)
    assert type(opened) is type(PLAIN[name])
    if isinstance(opened, np.ndarray):
        np.testing.assert_array_equal(opened, PLAIN[name])


def test_a_pickle_of_the_other_version_is_opened_without_a_warning() -> None:
    """Names of the other version within a pickle are found, and numpy does not warn."""
    theirs = (
        "numpy.core.multiarray"
        if module_here("numpy._core") == "numpy._core"
        else "numpy._core.multiarray"
    )
    name = b"c" + theirs.encode() + b"\nscalar\n."
    packed = msgspec.structs.replace(pack_pipeline((1,)), payload=name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(FailedPreconditionError, match="not subscriptable"):
            open_pipeline(packed)  # the name alone is no tuple of nodes


def test_different_versions_of_numpy_are_told() -> None:
    """An object that cannot cross versions is refused with both versions and the
    remedy.
    """
    payload = pickle.dumps((np.zeros,)).replace(b"zeros", b"nulls")
    other = "1.26.4" if np.__version__.startswith("2") else "2.1.0"
    packed = msgspec.structs.replace(pack_pipeline((1,)), payload=payload, numpy=other)
    with pytest.raises(FailedPreconditionError) as caught:
        open_pipeline(packed)
    text = str(caught.value)
    assert f"the client has numpy {other} and this process numpy {np.__version__}" in text
    assert f"pip install 'numpy=={other[0]}.*'" in text
    same = msgspec.structs.replace(packed, numpy=np.__version__)
    with pytest.raises(FailedPreconditionError, match="probably in another version"):
        open_pipeline(same)
