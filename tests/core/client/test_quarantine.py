"""Tests of what a client lists and says of elements that workers left out."""

from __future__ import annotations

from typing import Any

import pytest

from zmqdata import messages as m
from zmqdata.core.client import events as e
from zmqdata.core.client.quarantine import ClientQuarantine


def test_each_element_that_is_left_out_is_noted_once() -> None:
    """The client notes each skipped element once, although each task list names it
    again.
    """
    noted: list[object] = []
    elements = ClientQuarantine("job", noted.append)
    one, other = (m.LeftOutElement(1, "/0", number, "map(f)", "died", (0, 4)) for number in (7, 8))
    for left_out in ((one,), (one, other), (one, other)):
        elements.add_poison(left_out)
    assert noted == [e.NoteLeftOut(one), e.NoteLeftOut(other)]


def test_what_workers_left_out_is_listed_once() -> None:
    """An element that a function left out is listed once, although a later attempt of
    its task reports it again with other words, or the dispatcher does. The same number
    of another task, operation, repetition or nested dataset is another element.
    """
    noted: list[object] = []
    elements = ClientQuarantine("job", noted.append)
    one = m.LeftOutElement(1, "/0", 7, "map(f)", "ValueError: bad", (0, 8), "Traceback ...")
    again = m.LeftOutElement(1, "/0", 7, "map(f)", "it was left out before")
    others = tuple(
        m.LeftOutElement(index, place, 7, "map(f)", "ValueError: bad", None, "Traceback ...")
        for index, place in ((2, "/0"), (1, "/0.0"), (1, "/0 in repetition 1"), (1, "/0[3]/"))
    )
    elements.add((one,))
    elements.add((again, *others))
    elements.add_poison((again,))
    assert noted == [e.NoteLeftOut(element) for element in (one, *others)]


def test_at_the_end_is_told_how_many_are_missing() -> None:
    """At the end the client notes once how many elements of all tasks are missing, and
    nothing if none are.
    """
    said: list[Any] = []
    elements = ClientQuarantine("job", said.append)
    elements.of_task.update({1: 0})
    elements.tell_all(2)
    assert said == []
    elements.of_task.update({1: 2, 2: 3})
    for _ in range(2):
        elements.tell_all(2)
    (line,) = said
    level, text = line.level, line.text
    assert level == "warning"
    assert text.startswith(
        "job 'job', repetition 2, ended without 5 elements that workers could not produce"
    )
    assert "because the pipeline asks for it (on_error='skip')" in text
    assert "on_poison" not in text
    assert "`iterator.quarantine` lists them, with the reasons" in text


@pytest.mark.parametrize(
    ("missing", "who"), [(2, "'skip') asks for it"), (3, "or the pipeline (on_error")]
)
def test_at_the_end_is_told_who_wanted_elements_left_out(missing: int, who: str) -> None:
    """The note at the end names on_poison for elements that kill their worker, and
    on_error only for further elements.
    """
    said: list[object] = []
    elements = ClientQuarantine("job", said.append)
    poison = tuple(m.LeftOutElement(1, "/0", number, "map(f)", "died") for number in (7, 8))
    elements.add_poison(poison)
    elements.of_task[1] = missing
    elements.tell_all(2)
    note = said[-1]
    assert isinstance(note, e.LogLine)
    assert f"ended without {missing} elements" in note.text
    assert who in note.text
    assert "because the job (on_poison='skip')" in note.text
    assert ("on_error" in note.text) == (missing > 2)
    assert (
        "2 of them end their worker's process and are listed in the iterator's quarantine"
        in note.text
    )


def test_what_earlier_hosts_left_out_is_missing_too() -> None:
    """The note at the end counts what was listed, because the last host of a task does
    not count what its former hosts left out.
    """
    said: list[Any] = []
    elements = ClientQuarantine("job", said.append)
    elements.add(tuple(m.LeftOutElement(1, "/0", n, "map(f)", "ValueError: bad") for n in range(5)))
    elements.of_task.update({1: 2})
    elements.tell_all(2)
    assert "ended without 5 elements" in said[-1].text
