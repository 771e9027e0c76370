"""Tests of the names of shipped modules."""

from __future__ import annotations

import pytest

from zmqdata.failures.names import PREFIX, plain_name

ROOT = f"{PREFIX}0123456789abcdef"


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        (f"{ROOT}.boats.sails.Jib", "boats.sails.Jib"),
        (f"No module named '{ROOT}.boats'", "No module named 'boats'"),
        (f"{ROOT}.a: {ROOT}.b", "a: b"),
        (f'  File "/tmp/x/1f/{ROOT}/boats/sails.py", line 3', '  File "boats/sails.py", line 3'),
        (f"{ROOT}/boats.py", "boats.py"),
        ("boats.sails", "boats.sails"),
        (f"{PREFIX}short.boats", f"{PREFIX}short.boats"),
        (ROOT, ROOT),
    ],
)
def test_only_the_place_in_a_worker_is_left_out(text: str, plain: str) -> None:
    """Names and files read as at the client, and other texts stay unchanged."""
    assert plain_name(text) == plain
