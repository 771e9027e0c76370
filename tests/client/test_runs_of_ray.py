"""Test which run the ranks of Ray Train belong to."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from zmqdata.machine import runkeys

CONTEXT = "ray.train.v2._internal.execution.context"


def refuse() -> Any:
    raise DeprecationWarning("`get_trial_id` is deprecated")


def install(monkeypatch: pytest.MonkeyPatch, trial: Any, run_id: str | None) -> None:
    """Put a Ray in place that has a trial, a run of the second version, or neither."""
    ray: Any = SimpleNamespace(
        get_runtime_context=lambda: SimpleNamespace(get_job_id=lambda: "01"),
        train=SimpleNamespace(get_context=lambda: SimpleNamespace(get_trial_id=trial)),
    )
    told = SimpleNamespace(train_run_context=SimpleNamespace(run_id=run_id))
    contexts: Any = SimpleNamespace(get_train_context=lambda: told if run_id else refuse())
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setitem(sys.modules, CONTEXT, contexts)


@pytest.mark.parametrize(
    ("trial", "run_id", "key"),
    [
        (refuse, "abc", "ray:01.abc"),
        (lambda: "trial", None, "ray:01.trial"),
        (lambda: None, None, ""),
        (refuse, None, ""),
    ],
    ids=["second", "first", "no trial", "neither"],
)
def test_ray_train_names_the_run_of_its_ranks(
    monkeypatch: pytest.MonkeyPatch, trial: Any, run_id: str | None, key: str
) -> None:
    """The key follows from the run in the second version of Ray Train, from the trial
    in the first, and from neither outside of both.
    """
    install(monkeypatch, trial, run_id)
    assert runkeys._ray_key() == key


def test_there_is_no_key_of_ray_without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has not imported Ray has no key of it."""
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    assert runkeys._ray_key() == ""
