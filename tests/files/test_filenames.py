"""Tests of file names whose bytes are not UTF-8."""

from __future__ import annotations

import os

from hypothesis import given
from hypothesis import strategies as st

from zmqdata.files.filenames import legible, native, portable
from zmqdata.printable import printable

NAMES = st.binary().map(lambda name: os.fsdecode(name.replace(b"\0", b"")))


@given(NAMES)
def test_every_name_has_a_portable_form(name: str) -> None:
    """The portable form is UTF-8, and stands for that name alone."""
    portable(name).encode()
    assert native(portable(name)) == name


@given(st.text())
def test_a_foreign_text_becomes_a_name_or_stays(text: str) -> None:
    """The text of a peer is no error, whatever it contains."""
    if text.replace("\0", "") == text:
        assert native(text) == text
    native(text)


@given(NAMES)
def test_a_name_can_be_shown(name: str) -> None:
    """A legible name has no control characters, and is the same for both forms."""
    assert legible(name) == legible(portable(name)) == printable(legible(name))
