"""Tests of the words that arguments take: type checkers know those of the code."""

from __future__ import annotations

import inspect
import re
from itertools import chain
from typing import get_args

import pytest

import zmqdata
from zmqdata import words
from zmqdata.blocks.compression import ALIASES
from zmqdata.client.options import STRINGS, TRANSPORTS

GROUPS = [
    "Args",
    "Several consumers, and a promised order",
    "Failures and restarts",
    "Workers and transport",
    "Code, objects and output",
]


def test_type_checkers_know_the_words_of_the_code() -> None:
    """The words that the code accepts are those of the types."""
    assert {*get_args(words.ProcessingMode)} == STRINGS.keys()
    assert {*get_args(words.Transport), None} == TRANSPORTS.keys()
    codecs = {"blosclz", "lz4", "lz4hc", "zlib", "zstd"}
    assert {*get_args(words.Compression)} == {"AUTO", *codecs, *ALIASES}


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
