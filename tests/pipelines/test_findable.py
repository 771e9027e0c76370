"""Tests of whether another process can import something."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from zmqdata.pipelines.findable import can_be_found, is_importable


def test_a_finder_that_fails_finds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module is found by any finder; one that fails is passed over."""

    class Finder:
        def find_spec(self, name: str, path: object) -> object:
            return {"of_a_finder": self}[name]

    assert not can_be_found("of_a_finder")
    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    assert can_be_found("of_a_finder.inside")
    assert not can_be_found("of_nobody")
    assert can_be_found("of_nobody", ["of_nobody"])


def test_a_name_must_mean_the_object() -> None:
    """An object is importable if its module shows it under its name, and an object that
    answers with errors is not.
    """

    class Refusing:
        def __getattr__(self, name: str) -> Any:
            raise KeyError(name)

    assert is_importable(json.JSONDecoder.decode)
    assert is_importable(can_be_found)
    assert not is_importable(lambda: 1)
    assert not is_importable(Refusing())
    assert not is_importable(sys)
