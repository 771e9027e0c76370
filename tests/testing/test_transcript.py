"""Facts about a transcript, with which a test talks to one core by hand."""

from __future__ import annotations

import pytest

from tests.kit.transcript import Transcript
from zmqdata import messages as m
from zmqdata.core import events as e
from zmqdata.core.worker.decider import WorkerCore
from zmqdata.core.worker.profile import WorkerProfile


def test_a_transcript_shows_what_was_done() -> None:
    """The transcript finds commands and sent messages by class, and groups the messages
    of a wait.
    """
    transcript = Transcript(WorkerCore(WorkerProfile("w", "tcp://w")))
    transcript.wait(2.0)
    assert transcript.now == 2.0
    assert len(transcript.all_of(m.RegisterWorker)) == len(transcript.all_of(e.Send)) == 2
    transcript.hear(e.DISPATCHER, m.WorkerRegistered("w"))
    assert transcript.sent(e.LogLine).level == "info"


def test_one_means_one() -> None:
    """A request for the only message of a kind fails if several or none exist, and
    shows what exists.
    """
    transcript = Transcript(WorkerCore(WorkerProfile("w", "tcp://w")))
    with pytest.raises(AssertionError, match="expected one LogLine, got 0"):
        transcript.sent(e.LogLine)
