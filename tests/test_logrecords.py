"""Test the form of the log records of servers."""

from __future__ import annotations

import logging

from zmqdata.logrecords import FOLLOWS, RecordFormatter, record_head


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
