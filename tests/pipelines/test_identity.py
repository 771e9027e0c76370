"""Tests of the text of a fingerprint."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from zmqdata.messages.identity import VERSION, Fingerprint

HEX = st.text("0123456789abcdef", max_size=32)


@given(HEX, HEX, HEX)
def test_what_is_written_is_read(structure: str, code: str, functions: str) -> None:
    """All three parts of a fingerprint are read back from its text."""
    fingerprint = Fingerprint(structure, code, functions)
    assert str(fingerprint) == f"{structure}:{code}:{functions}"
    assert Fingerprint.parse(str(fingerprint)) == fingerprint


def test_what_is_missing_is_empty() -> None:
    """A text with missing parts has empty parts, which equal no other part."""
    assert Fingerprint.parse("a:b") == Fingerprint("a", "b", "")
    assert Fingerprint.parse("a") == Fingerprint("a", "", "")


@given(HEX, HEX)
def test_fingerprints_of_other_versions_tell_nothing(structure: str, other: str) -> None:
    """Fingerprints are compared if they were computed in the same way, and those of
    another version are never of another pipeline.
    """
    old, new = Fingerprint(structure, ""), Fingerprint(VERSION + structure, "")
    assert old.is_comparable(Fingerprint(other, "code"))
    assert not old.is_comparable(new)
    assert not old.is_other(new)
    assert not new.is_other(old)
    assert new.is_other(Fingerprint(VERSION + other, "")) == (structure != other)
    assert Fingerprint.parse(str(new)) == new
