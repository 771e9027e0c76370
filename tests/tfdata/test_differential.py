"""Random chains of sources and transformations give the same with TensorFlow's tf.data:
``make test-tfdata``.

What may differ is listed in ``docs/tfdata-compatibility.md``. How many chains: the
environment variable ZMQDATA_CHAINS, else 100.
"""

from __future__ import annotations

import importlib.util
import os
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("tensorflow") is None, reason="tensorflow is not installed"
    ),
    pytest.mark.timeout(0),
    pytest.mark.filterwarnings("ignore"),
]
COUNT = int(os.environ.get("ZMQDATA_CHAINS", "100"))
NUMBERS = st.integers(0, 8)


@pytest.fixture(scope="module")
def chains() -> Any:
    """The module that imports TensorFlow, which takes seconds: only where this test
    runs.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    from tests.tfdata import chains

    return chains


@settings(
    max_examples=COUNT,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.large_base_example],
)
@given(st.data())
def test_chains_give_the_same_as_in_tensorflow(chains: Any, data: st.DataObject) -> None:
    """Elements, order, ends, errors, cardinalities and specs are equal."""
    chain = data.draw(
        st.builds(
            chains.Chain,
            st.tuples(st.sampled_from(sorted(chains.SOURCES)), NUMBERS, NUMBERS),
            st.lists(st.tuples(st.sampled_from(chains.WEIGHTED), NUMBERS, NUMBERS), max_size=5).map(
                tuple
            ),
            st.tuples(st.sampled_from(chains.ENDING_NAMES), NUMBERS, NUMBERS),
        )
    )
    assert chains.differences(chain) == []
