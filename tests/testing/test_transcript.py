"""Facts about talking to one core by hand."""

from __future__ import annotations

import pytest

from zmqdata import messages as m
from zmqdata.core import events as e
from zmqdata.core.worker.decider import WorkerCore, WorkerProfile
from zmqdata.testing import Transcript


def test_a_transcript_shows_what_was_done() -> None:
    """Commands and sent messages are found by their class, those of a wait together."""
    transcript = Transcript(WorkerCore(WorkerProfile("w", "tcp://w")))
    transcript.wait(2.0)
    assert transcript.now == 2.0
    assert len(transcript.all_of(m.RegisterWorker)) == len(transcript.all_of(e.Send)) == 2
    transcript.hear(e.DISPATCHER, m.WorkerRegistered("w"))
    assert transcript.sent(e.LogLine).level == "info"


def test_one_means_one() -> None:
    """Asking for the only one of several, or of none, fails and shows what there is."""
    transcript = Transcript(WorkerCore(WorkerProfile("w", "tcp://w")))
    with pytest.raises(AssertionError, match="expected one LogLine, got 0"):
        transcript.sent(e.LogLine)
