"""Tests of ``zmqdata.client.policies``."""

from __future__ import annotations

import pytest

from zmqdata import ShardingPolicy
from zmqdata.client.policies import parse_processing_mode


def test_policies_have_the_numbers_of_tfdata() -> None:
    """Six policies under tf.data's names and values."""
    values = {"OFF": 0, "DYNAMIC": 1, "FILE": 2, "DATA": 3, "FILE_OR_DATA": 4, "HINT": 5}
    assert {policy.name: policy.value for policy in ShardingPolicy} == values


@pytest.mark.parametrize(
    ("given", "policy"),
    [
        ("parallel_epochs", ShardingPolicy.OFF),
        ("distributed_epoch", ShardingPolicy.DYNAMIC),
        *((policy, policy) for policy in ShardingPolicy),
    ],
)
def test_policies_may_be_named(given: object, policy: ShardingPolicy) -> None:
    """By the enum, or by one of two texts."""
    assert parse_processing_mode(given) is policy


@pytest.mark.parametrize("given", ["invalid", "OFF", 1, None, ["parallel_epochs"]])
def test_other_modes_are_refused(given: object) -> None:
    """The error lists the enum and both texts, and says what came."""
    with pytest.raises(ValueError, match="processing_mode") as told:
        parse_processing_mode(given)
    text = str(told.value)
    assert "(OFF, DYNAMIC, FILE, DATA, FILE_OR_DATA, HINT), 'parallel_epochs' or 'distributed_epoch'." in text
    assert text.endswith(f"Got {given!r}.")
