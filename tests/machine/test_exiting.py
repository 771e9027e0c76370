"""Tests of ``zmqdata.machine.exiting``: no call is under way when Python ends."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import atexit, threading, time
atexit.register(print, "the end")  # runs last
from zmqdata.machine import exiting
exiting.LEAVE_WITHIN = {within}

class Called:
    def __init__(self):
        self.opened = threading.Event()
    def close(self):
        print("closed")
        if {answers}:
            self.opened.set()

def call(begun):
    while True:
        try:
            with calls:
                begun.set()
                called.opened.wait(60)
                print("call over")
        except StopIteration:
            print("refused")
            return

calls, called = exiting.ForeignCalls(), Called()
calls.add(called)
begun = threading.Event()
threading.Thread(target=call, args=[begun], daemon=True).start()
begun.wait(60)
{more}
"""


def run(answers: bool = True, within: float = 30, more: str = "") -> list[str]:
    program = PROGRAM.format(answers=answers, within=within, more=more)
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout.splitlines()


def test_the_end_waits_for_a_call() -> None:
    """The called object is closed, the call ends, and a later one is refused, before
    the program ends.
    """
    assert run() == ["closed", "call over", "refused", "the end"]


def test_the_end_does_not_wait_for_ever() -> None:
    """A call that does not end delays the end by a limited time."""
    assert run(answers=False, within=0.1) == ["closed", "the end"]


def test_what_was_dropped_is_not_waited_for() -> None:
    """Without an object to call, the end does not wait for a call of it."""
    assert run(more="held = called.opened; del called") == ["the end"]
