"""Tests that decoders handle any bytes: seeds, mutations, and a fuzzer's inputs."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.counts import how_many
from tools.fuzz import TARGETS, joined, parted

TOOL = Path(__file__).parents[1] / "tools" / "fuzz.py"
RUNS = 500


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_are_decoded(name: str) -> None:
    """A fuzzer's seeds decode, except for deliberately invalid seeds. Valid seeds let
    it pass the first check.
    """
    target = TARGETS[name]
    sound = 0
    for seed in target.seeds():
        target.feed(seed)
        try:
            target.decode(seed)
        except target.promised:
            continue
        sound += 1
    assert sound or name == "manifest"


@settings(max_examples=how_many(40, 100))
@given(st.data())
@pytest.mark.parametrize("name", TARGETS)
def test_changed_bytes_are_decoded_or_refused(name: str, data: st.DataObject) -> None:
    """Truncated, overwritten or repeated bytes decode or raise a documented error."""
    target = TARGETS[name]
    content = bytearray(data.draw(st.sampled_from(target.seeds())))
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, len(content)))
        content[at : at + data.draw(st.integers(0, 8))] = data.draw(st.binary(max_size=8))
    target.feed(bytes(content))


@given(st.lists(st.binary(max_size=300), max_size=15))
def test_frames_are_one_input(frames: list[bytes]) -> None:
    """Joined frames are a single input, and are separated again."""
    assert parted(joined(frames)) == frames


@pytest.mark.full
@pytest.mark.realprocess
@pytest.mark.timeout(200)
@pytest.mark.skipif(find_spec("atheris") is None, reason="atheris is not there for this Python")
def test_a_fuzzer_finds_nothing() -> None:
    """A fuzzer finds no fault in some hundred runs per decoder; `make fuzz` runs two
    million.
    """
    done = subprocess.run(
        [sys.executable, str(TOOL), "--runs", str(RUNS)],
        capture_output=True,
        text=True,
        check=False,
        timeout=170,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert done.stdout.count(f"{RUNS:,} executions, no fault") == len(TARGETS)
