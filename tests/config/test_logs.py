"""Test the form of the log records of servers."""

from __future__ import annotations

import json
import logging
import os
from datetime import datetime

import pytest

from zmqdata.config.logs import FOLLOWS, JsonFormatter, RecordFormatter, record_head


def test_a_record_of_several_lines_has_one_head() -> None:
    """Each further line of message and traceback begins with the same mark, and only
    the first is the head of a record. It says how many others there are.
    """
    try:
        raise ValueError("two\nlines")
    except ValueError as error:
        info = (type(error), error, error.__traceback__)
    record = logging.LogRecord("a.name", logging.WARNING, "file.py", 1, "one\ntwo\n", None, info)
    first, *others = RecordFormatter().format(record).split("\n")
    assert first.endswith(f"WARNING [{record.process}+{len(others)}] a.name: one")
    assert record_head(first) == (logging.WARNING, "a.name", len(others))
    assert all(line.startswith(FOLLOWS) and record_head(line) is None for line in others)
    assert [line.removeprefix(FOLLOWS) for line in others[-2:]] == ["ValueError: two", "lines"]


def test_a_record_is_an_object_on_one_line() -> None:
    """In the JSON form, each record is an object on a line of its own, with the time in
    ISO 8601 and the traceback.
    """
    try:
        raise ValueError("two\nlines")
    except ValueError as error:
        info = (type(error), error, error.__traceback__)
    record = logging.LogRecord("a.name", logging.WARNING, "f.py", 1, "%s\n", ("one",), info)
    text = JsonFormatter().format(record)
    assert "\n" not in text
    shown = json.loads(text)
    assert datetime.fromisoformat(shown["time"]).timestamp() == pytest.approx(
        record.created, abs=0.002
    )
    assert (shown["level"], shown["logger"], shown["process"], shown["message"]) == (
        "warning",
        "a.name",
        os.getpid(),
        "one\n",
    )
    assert shown["error"].endswith("ValueError: two\nlines")
    plain = JsonFormatter().format(logging.LogRecord("a", logging.INFO, "f.py", 1, "x", (), None))
    assert "error" not in json.loads(plain)
