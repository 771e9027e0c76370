"""Test that a reader's invalid arguments raise an error at the call, and that type
checkers and help know the arguments.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from itertools import chain
from typing import Any, get_args

import numpy as np
import pytest

import zmqdata
from zmqdata import (
    CrossTrainerCache,
    Dataset,
    ShardingPolicy,
    audit,
    distribute,
    drain,
    from_dataset_id,
)
from zmqdata.blocks.compression import ALIASES
from zmqdata.client.options import STRINGS, TRANSPORTS, check_dataset_id, parse_processing_mode
from zmqdata.config import checks
from zmqdata.errors import InvalidArgumentError, NotFoundError, UnavailableError
from zmqdata.messages import JobParameters

HALF = "\ud800"
NOBODY = "tcp://127.0.0.1:1"
GROUPS = [
    "Args",
    "Several consumers, and a promised order",
    "Failures and restarts",
    "Workers and transport",
    "Code, objects and output",
]


@pytest.mark.parametrize("count", [2**63, 2**64, 10**400])
@pytest.mark.parametrize("name", ["max_outstanding_requests", "task_refresh_interval_hint_ms"])
def test_a_count_fits_into_a_message(name: str, count: int) -> None:
    """A count too large for a message is refused at the call, as no answer would
    come.
    """
    with pytest.raises(InvalidArgumentError, match=name):
        distribute("parallel_epochs", NOBODY, **{name: count})  # type: ignore[arg-type]


def test_numbers_and_names_may_come_from_arrays() -> None:
    """Numpy's integers count as Python's, and its booleans and floats are as wrong as
    Python's.
    """
    options: dict[str, Any] = {
        "max_outstanding_requests": np.int64(3),
        "task_refresh_interval_hint_ms": np.int32(9),
    }
    options |= {"num_consumers": np.int8(2), "consumer_index": np.uint8(1)}
    read = distribute("distributed_epoch", NOBODY, np.str_("j"), **options)
    given = Dataset.range(3).apply(read).node.options
    assert (given.max_outstanding_requests, given.num_consumers, given.consumer_index) == (3, 2, 1)
    assert type(given.num_consumers) is int
    for wrong in (np.bool_(True), np.float64(3.0), True):
        with pytest.raises(InvalidArgumentError, match="max_outstanding_requests"):
            distribute("parallel_epochs", NOBODY, max_outstanding_requests=wrong)


def test_a_text_fits_into_a_message() -> None:
    """An unpaired surrogate is refused, as it cannot be encoded as UTF-8."""
    with pytest.raises(
        ValueError, match=r"`job_name` must be a text that UTF-8 can hold.*surrogates not allowed"
    ):
        distribute("parallel_epochs", NOBODY, HALF)
    with pytest.raises(ValueError, match="trainer_id"):
        CrossTrainerCache(HALF)
    with pytest.raises(ValueError, match="dataset_id"):
        check_dataset_id(HALF)


@pytest.mark.parametrize(
    ("name", "ask"),
    [
        ("job", lambda text: audit(NOBODY, text, 0.05)),
        ("worker", lambda text: drain(NOBODY, text, 0.05)),
    ],
)
def test_who_is_asked_about_has_a_name(name: str, ask: Callable[[str], object]) -> None:
    """A call refuses an empty name, or a name that fits into no message, before it
    sends a request, and accepts others.
    """
    for text, objection in (
        ("", "must not be empty"),
        (HALF, "UTF-8"),
        ("x" * 1001, "at most 1000 characters"),
    ):
        with pytest.raises(ValueError, match=f"^`{name}` .*{objection}"):
            ask(text)
    with pytest.raises(UnavailableError):
        ask("x")


@pytest.mark.parametrize("name", ["job_name", "trainer_id", "dataset_id"])
def test_a_name_is_as_short_as_dispatchers_want_it(name: str) -> None:
    """A name of 1,000 characters is valid, and a longer name is refused at the call and
    not at the iteration.
    """
    calls: dict[str, Callable[[str], object]] = {
        "job_name": lambda text: distribute("parallel_epochs", NOBODY, text),
        "trainer_id": CrossTrainerCache,
        "dataset_id": check_dataset_id,
    }
    calls[name]("n" * 1_000)
    with pytest.raises(
        ValueError, match=rf"`{name}` must have at most 1000 characters, got 1001: 'nnn"
    ):
        calls[name]("n" * 1_001)


@pytest.mark.parametrize(
    ("contradiction", "text"),
    [
        ({"processing_mode": "parallel_epochs"}, "needs a policy that divides the input"),
        ({"target_workers": "LOCAL"}, "Deterministic reads require non-local workers"),
        ({"data_transfer_protocol": "local"}, "Deterministic reads require non-local workers"),
        (
            {"cross_trainer_cache": CrossTrainerCache("me"), "job_name": "job"},
            "does not support deterministic reads",
        ),
        ({"deterministic": False, "num_tasks": 3}, "`num_tasks=3` needs `deterministic=True`"),
    ],
)
def test_a_promised_order_is_for_one_reader_of_divided_input(
    contradiction: dict[str, Any], text: str
) -> None:
    """deterministic=True refuses options that contradict it at the call, and names the
    alternative.
    """
    arguments = {
        "processing_mode": "distributed_epoch",
        "service": NOBODY,
        "deterministic": True,
        **contradiction,
    }
    with pytest.raises(InvalidArgumentError, match=text):
        distribute(**arguments)


@pytest.mark.parametrize("protocol", [["tcp"], {}, 5, ""])
def test_a_protocol_of_elements_is_a_word(protocol: Any) -> None:
    """A protocol that cannot be hashed is refused like an unknown protocol."""
    with pytest.raises(NotFoundError, match="not available"):
        distribute("parallel_epochs", NOBODY, data_transfer_protocol=protocol)


@pytest.mark.parametrize("rule", ["ignore", None, True, ["skip"]])
def test_there_are_two_rules_for_poison(rule: Any) -> None:
    """Any other rule than "fail" and "skip" is an error at the call."""
    with pytest.raises(ValueError, match="`on_poison` must be 'fail' or 'skip', got"):
        distribute("parallel_epochs", NOBODY, on_poison=rule)


@pytest.mark.parametrize("allowed", [None, 0, "no"])
def test_objects_are_allowed_or_not(allowed: Any) -> None:
    """The option for objects is True or False, for both ways to read."""
    with pytest.raises(ValueError, match="`allow_objects` must be True or False, got"):
        distribute("parallel_epochs", NOBODY, allow_objects=allowed)
    with pytest.raises(ValueError, match="`allow_objects` must be True or False, got"):
        from_dataset_id("parallel_epochs", NOBODY, "id", allow_objects=allowed)


@pytest.mark.parametrize("seconds", [0, -1.0, "5", float("nan")])
def test_a_time_out_of_tasks_is_a_time(seconds: Any) -> None:
    """A task_timeout is a positive number of seconds, or None for no time-out."""
    with pytest.raises(ValueError, match="`task_timeout` must be a positive number of seconds"):
        distribute("parallel_epochs", NOBODY, task_timeout=seconds)


def test_what_is_sent_is_in_the_parameters_of_a_job() -> None:
    """Each option that is sent has a field of the same name and default in the
    parameters of a job.
    """
    given = Dataset.range(3).apply(distribute("distributed_epoch", NOBODY)).node.options
    job = JobParameters("job", "dataset", "DYNAMIC")
    assert len(given.sent) > 5
    assert given.sent == {name: getattr(job, name) for name in given.sent}


def test_policies_have_the_numbers_of_tfdata() -> None:
    """The six policies have tf.data's names and values."""
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
    """A policy may be given as the enum or as either of two texts."""
    assert parse_processing_mode(given) is policy


@pytest.mark.parametrize("given", ["invalid", "OFF", 1, None, ["parallel_epochs"]])
def test_other_modes_are_refused(given: object) -> None:
    """The error names the enum, both texts and the given value."""
    with pytest.raises(ValueError, match="processing_mode") as told:
        parse_processing_mode(given)
    text = str(told.value)
    modes = '`ShardingPolicy`, `"parallel_epochs"`, or `"distributed_epoch"`'
    assert f"processing mode should be a {modes}. Got {given!r}." in text
    assert text.endswith("the policies are OFF, DYNAMIC, FILE, DATA, FILE_OR_DATA, HINT")


def test_type_checkers_know_the_words_of_the_code() -> None:
    """The words that the code accepts are those of the types."""
    assert {*get_args(checks.ProcessingMode)} == STRINGS.keys()
    assert {*get_args(checks.Transport), None} == TRANSPORTS.keys()
    codecs = {"blosclz", "lz4", "lz4hc", "zlib", "zstd"}
    assert {*get_args(checks.Compression)} == {"AUTO", *codecs, *ALIASES}


def test_help_shows_arguments_of_distribute_in_groups() -> None:
    """The arguments stand in five groups, in the order of the signature. The first has
    the three that each program needs.
    """
    text = inspect.getdoc(zmqdata.distribute) or ""
    told = {
        title: re.findall(r"^    (\w+): ", re.split(r"\n\n", part)[0], re.MULTILINE)
        for title in GROUPS
        for part in [text.partition(f"\n{title}:\n")[2]]
    }
    assert told["Args"] == ["processing_mode", "service", "job_name"]
    assert [*chain.from_iterable(told.values())] == [
        *inspect.signature(zmqdata.distribute).parameters
    ]
    assert all(told.values())


@pytest.mark.parametrize("name", ["distribute", "from_dataset_id"])
def test_both_readers_have_one_order_of_arguments(name: str) -> None:
    """``from_dataset_id`` has the arguments of ``distribute`` in the same order."""
    here = [*inspect.signature(getattr(zmqdata, name)).parameters]
    order = [*inspect.signature(zmqdata.distribute).parameters]
    assert [one for one in order if one in here] == [one for one in here if one in order]
