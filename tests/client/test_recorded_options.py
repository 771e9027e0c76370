"""The options of ``distribute`` and its kin as users see them, compared with a recorded
copy: the parameters, the help, and the text of the error for each wrong value.

``python -m tests.client.test_recorded_options`` records the copy again, after a change
that is meant.
"""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zmqdata
from zmqdata import CrossTrainerCache, Dataset, ShardingPolicy
from zmqdata.errors import UnavailableError

COPY = Path(__file__).with_name("recorded_options.json")
NOBODY = "tcp://127.0.0.1:1"
CALLS = ("distribute", "from_dataset_id", "register_dataset", "distributed_save")
SECONDS = {"dispatcher_timeout": 1e-9}
VALUES = {
    "None": None,
    "True": True,
    "0": 0,
    "3": 3,
    "-1": -1,
    "2.5": 2.5,
    "nan": math.nan,
    "inf": math.inf,
    "2**60": 2**60,
    "int64(3)": np.int64(3),
    "float32(3)": np.float32(3),
    "bool_(True)": np.bool_(True),
    "empty": "",
    "word": "word",
    "local": "local",
    "half": "\ud800",
    "list": ["word"],
    "bytes": b"word",
    "long": "n" * 1001,
}
"""Values for each option: most are wrong for most of them."""
LONG = ("3", "2.5", "inf")
"""Valid times to wait for the dispatcher, which a test does not wait for."""
CACHE = CrossTrainerCache("me")
CONTRADICTIONS: list[dict[str, Any]] = [
    {"num_consumers": 2},
    {"consumer_index": 0},
    {"num_consumers": 2, "consumer_index": 0},
    {"num_consumers": 2, "consumer_index": 2, "job_name": "j"},
    {"num_consumers": 0, "consumer_index": 0, "job_name": "j"},
    {"num_consumers": 2, "consumer_index": 0, "job_name": "j"},
    {"num_consumers": 2, "consumer_index": 0, "job_name": "j", "finite": "word"},
    {"num_consumers": 2, "consumer_index": 0, "job_name": "j", "finite": ["drop"]},
    {"num_consumers": 2, "consumer_index": 0, "job_name": "j", "target_workers": "local"},
    {"num_consumers": 2, "consumer_index": 0, "job_name": "j", "cross_trainer_cache": CACHE},
    {"num_consumers": 2, "consumer_index": 0, "job_name": "j", "placement": "auto"},
    {"cross_trainer_cache": CACHE},
    {"cross_trainer_cache": CACHE, "job_name": "j"},
    {"cross_trainer_cache": CACHE, "job_name": "j", "placement": "auto"},
    {"cross_trainer_cache": CACHE, "job_name": "j", "deterministic": True},
    {"data_transfer_protocol": "local", "target_workers": "any"},
    {"data_transfer_protocol": "local", "deterministic": True},
    {"target_workers": "LOCAL", "placement": "auto"},
    {"deterministic": True, "placement": "auto"},
    {"deterministic": True, "processing_mode": "parallel_epochs"},
    {"processing_mode": ShardingPolicy.OFF, "placement": "auto"},
    {"on_poison": "skip", "task_timeout": 3, "placement": "auto"},
    {"num_tasks": 3, "deterministic": False},
    {"num_tasks": 3, "deterministic": True},
    {"num_tasks": 2**13, "deterministic": True},
    {"jobname": "j"},
    {"anything": 1},
]


def call(name: str, options: dict[str, Any]) -> object:
    """Call one of the functions with options, and apply what it returns."""
    dataset = Dataset.range(3)
    given: dict[str, Any] = {**SECONDS}
    if name in ("distribute", "from_dataset_id"):
        given |= {"processing_mode": "distributed_epoch", "service": NOBODY}
    if name == "from_dataset_id":
        given |= {"dataset_id": "id"}
    if name == "register_dataset":
        given |= {"service": NOBODY, "dataset": dataset}
    if name == "distributed_save":
        given |= {"dataset": dataset, "path": "folder", "data_service_address": NOBODY}
    made: Any = getattr(zmqdata, name)(**{**given, **options})
    return dataset.apply(made) if name == "distribute" else made


def outcome(name: str, options: dict[str, Any]) -> str:
    """Return the class and the text of the error, or that the options are accepted.

    A function that gets as far as asking the dispatcher has accepted them.
    """
    try:
        call(name, options)
    except UnavailableError:
        return "accepted"
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:400]
    return "accepted"


def parameters(name: str) -> list[str]:
    """Return the parameters of a function as ``help`` shows them, with their kinds."""
    found = inspect.signature(getattr(zmqdata, name)).parameters.values()
    return [f"{one.kind.description}: {one}" for one in found]


def words_of(name: str) -> str:
    """Return the docstring of a function without its line breaks."""
    return " ".join((inspect.getdoc(getattr(zmqdata, name)) or "").split())


def wrong_values(name: str) -> dict[str, str]:
    """Return the outcome of each value for each option of a function."""
    options = inspect.signature(getattr(zmqdata, name)).parameters
    return {
        f"{option}={shown}": outcome(name, {option: value})
        for option in options
        if option not in ("progress", "element_spec", "path")
        for shown, value in VALUES.items()
        if option != "dispatcher_timeout" or shown not in LONG
    }


def contradictions(name: str) -> dict[str, str]:
    """Return the outcome of each set of options that contradict each other."""
    return {str(options): outcome(name, options) for options in CONTRADICTIONS}


SEEN: dict[str, Callable[[str], object]] = {
    "parameters": parameters,
    "words": words_of,
    "wrong values": wrong_values,
    "contradictions": contradictions,
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("what", SEEN)
def test_users_see_the_options_as_recorded(name: str, what: str) -> None:
    """The parameters with kinds and defaults, the help, and each outcome of a wrong
    value are those of the recorded copy.
    """
    assert SEEN[what](name) == json.loads(COPY.read_text(encoding="utf-8"))[what][name]


if __name__ == "__main__":
    copy = {what: {name: look(name) for name in CALLS} for what, look in SEEN.items()}
    COPY.write_text(json.dumps(copy, indent=1) + "\n", encoding="utf-8")
