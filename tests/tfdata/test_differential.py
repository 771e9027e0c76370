"""Random chains of sources and transformations agree with tf.data:
``make test-tfdata``.

``docs/tfdata-compatibility.md`` lists the tolerated differences. ZMQDATA_CHAINS sets
the number of chains, 100 by default.
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
    """Import the module that loads TensorFlow, which takes seconds, only for this
    test.
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
    """Elements, order, ends, errors, cardinalities and specs agree in both."""
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
