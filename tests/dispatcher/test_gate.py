"""Test which commands wait for the journal."""

from __future__ import annotations

from zmqdata import messages as m
from zmqdata import updates as u
from zmqdata.core.dispatcher import events as e
from zmqdata.dispatcher.gate import Gate

FACT = u.CloseTaskListUpdate(2000)
COMMIT = e.Commit(FACT)
REVEALING = e.Send("client", m.IterationClosed("client"))
HARMLESS = e.Send("worker", m.WorkerHeartbeatAnswered("worker", True))
STORE, DROP, NOTE = e.StorePipeline("d", b"p"), e.DropPipeline("d"), e.LogLine("info", "text")


def test_a_turn_without_facts_goes_at_once() -> None:
    """A turn goes out at once while all facts are written."""
    gate = Gate()
    assert gate.admit([REVEALING, DROP]) == ([REVEALING, DROP], ())
    assert gate.is_open


def test_what_reveals_a_fact_waits_for_it() -> None:
    """A command that reveals a fact waits for it. Storing a pipeline goes at once, and
    dropping a pipeline waits.
    """
    gate = Gate()
    assert gate.admit([STORE, COMMIT, HARMLESS, REVEALING, NOTE, DROP]) == (
        [STORE, HARMLESS, NOTE],
        (FACT,),
    )
    assert not gate.is_open
    assert gate.written(1) == [COMMIT, REVEALING, DROP]
    assert gate.is_open


def test_later_turns_wait_for_earlier_facts() -> None:
    """A command that may reveal a fact of an earlier turn waits for that fact, and goes
    in order.
    """
    gate = Gate()
    gate.admit([COMMIT, REVEALING])
    other = e.Send("client", m.IterationClosed("other"))
    assert gate.admit([other, HARMLESS]) == ([HARMLESS], ())
    gate.admit([COMMIT, DROP])
    assert gate.written(1) == [COMMIT, REVEALING, other]
    assert gate.written(2) == [COMMIT, DROP]


def test_turns_that_are_written_together_come_out_together() -> None:
    """The last written number releases all turns before it."""
    gate = Gate()
    gate.admit([COMMIT])
    gate.admit([COMMIT, REVEALING])
    assert gate.written(gate.turn) == [COMMIT, COMMIT, REVEALING]
