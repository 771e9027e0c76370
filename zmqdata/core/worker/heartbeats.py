"""The times of a worker's heartbeats, and the detection of a silent dispatcher. It has
no clock.

Protocol 4.1.
"""

from __future__ import annotations

from zmqdata.core.worker import events as e
from zmqdata.core.worker.profile import WorkerProfile

FEW_TASKS = 32
"""Number of tasks up to which news of a task is sent at once."""
SECONDS_PER_TASK = 0.0002
"""Minimum pause between heartbeats for each task of a worker with many tasks. When many
tasks begin or end in sequence, one heartbeat then reports many of them.
"""
LISTENS = 3
"""Number of heartbeat intervals for which the dispatcher may be silent and still
receive optional messages.
"""
FIRST_NOTICE = 3.0
"""Seconds of silence after which the worker first reports it. If heartbeats are rare,
and the connection is not lost, it is the time of some heartbeats.
"""
NOTICE_EVERY = 60.0
"""Seconds between two notices of a silence that continues."""


class Heartbeats:
    """The heartbeats of one worker, and the dispatcher's answers.

    Args:
        usual: seconds between two heartbeats.
        patience: seconds without an answer after which the worker gives up.

    Attributes:
        pause: current seconds between two heartbeats. The dispatcher may ask for a
            longer pause.

    Example:
        >>> beats = Heartbeats(usual=1.0, patience=60.0)
        >>> beats.spoke(10.0)
        >>> beats.may_tell(10.1, tasks=1000), beats.is_due(10.25, tasks=1000)
        (False, True)
        >>> beats.may_tell(10.1, tasks=3)
        True
    """

    def __init__(self, usual: float, patience: float) -> None:
        self.usual = self.pause = usual
        self._patience = patience
        self._spoke = -usual
        self._has_news = False
        self._heard: float | None = None
        self._lost: float | None = None
        self._noticed: float | None = None

    def is_due(self, now: float, tasks: int) -> bool:
        """Return True if a worker with this number of tasks must send a heartbeat."""
        return now - self._spoke >= (
            min(self.pause, _least_pause(tasks)) if self._has_news else self.pause
        )

    def may_tell(self, now: float, tasks: int) -> bool:
        """Return True if news of a task is sent at once. If not, a heartbeat is due
        soon.
        """
        self._has_news = True
        return self.is_due(now, tasks)

    def spoke(self, now: float) -> None:
        """Record that a heartbeat was sent."""
        self._spoke, self._has_news = now, False

    def adopt_interval(self, every: float) -> None:
        """Adopt the interval that the dispatcher asks for, in seconds; 0 if it asks for
        none.
        """
        self.pause = max(self.usual, min(every, self._patience / 3))

    def hear(self, now: float) -> float:
        """Record that a message of the dispatcher has arrived. Return the seconds of
        silence that it ends if they were reported, else 0.
        """
        is_reported = self._noticed is not None
        ended = now - self._heard if is_reported and self._heard is not None else 0.0
        self._heard, self._lost, self._noticed = now, None, None
        return ended

    @property
    def heard_at(self) -> float:
        """Time of the last message of the dispatcher; 0 if none has arrived."""
        return self._heard or 0.0

    @property
    def is_cut_off(self) -> bool:
        """True if the connection to the dispatcher has ended, or the silence of the
        dispatcher was reported, and no message has arrived since.
        """
        return self._lost is not None or self._noticed is not None

    def disconnect(self, now: float) -> None:
        """Record that the connection to the dispatcher has ended."""
        if self._lost is None:
            self._lost = now

    def silence(self, now: float, registered: bool = True) -> float:
        """Return the seconds for which the dispatcher has been silent if the worker
        must report them now, else 0.

        Args:
            now: present time.
            registered: True if the worker is registered. If not, the dispatcher answers
                at once, however rare heartbeats are.

        Example:
            >>> beats = Heartbeats(usual=1.0, patience=600.0)
            >>> [beats.silence(now) for now in (0.0, 2.0, 3.0, 4.0, 62.0, 63.0)]
            [0.0, 0.0, 3.0, 0.0, 0.0, 63.0]
            >>> beats.hear(64.0)
            64.0
        """
        if self._heard is None:
            self._heard = now
        if self._noticed is not None:
            is_due = now - self._noticed >= NOTICE_EVERY
        elif registered and self._lost is None:
            is_due = now - self._heard >= max(FIRST_NOTICE, LISTENS * self.pause)
        else:
            since = self._heard if self._lost is None else self._lost
            is_due = now - since >= FIRST_NOTICE
        if not is_due:
            return 0.0
        self._noticed = now
        return now - self._heard

    def listens(self, now: float) -> bool:
        """Return True if a message of the dispatcher has arrived recently."""
        return self._heard is not None and now - self._heard <= LISTENS * self.pause

    def gives_up(self, now: float) -> bool:
        """Return True if no message has arrived for ``patience`` seconds, counted from
        the first call. After that, the count starts again.
        """
        if self._heard is None:
            self._heard = now
        if now - self._heard < self._patience:
            return False
        self._heard = now
        return True


def heard_again(beats: Heartbeats, dispatcher: str, now: float) -> list[e.WorkerCommand]:
    """Record that a message of the dispatcher has arrived, and return the notice that a
    silence has ended, if there was one.

    Args:
        beats: the heartbeats.
        dispatcher: endpoint of the dispatcher.
        now: present time.
    """
    silence = beats.hear(now)
    text = f"the dispatcher at {dispatcher} answers after {silence:.0f} s"
    return [e.LogLine("info", f"{text}; this worker continues as before")] if silence else []


def notices(
    beats: Heartbeats, who: WorkerProfile, registered: bool, now: float
) -> list[e.WorkerCommand]:
    """Return the notice of a silent dispatcher if one is due, and the end of a worker
    that gives up.

    Args:
        beats: the heartbeats.
        who: the worker.
        registered: True if the worker is registered.
        now: present time.
    """
    found: list[e.WorkerCommand] = []
    silence = beats.silence(now, registered)
    if silence:
        text = is_silent(who.dispatcher, registered, silence, who.dispatcher_timeout)
        found.append(e.LogLine("info" if who.is_quiet else "warning", text))
    if beats.gives_up(now):
        text = given_up(who.dispatcher, who.dispatcher_timeout)
        found.append(e.Finish("UnavailableError", text))
    return found


def is_silent(dispatcher: str, registered: bool, seconds: float, patience: float) -> str:
    """Return the notice that a dispatcher has been silent for some seconds.

    Args:
        dispatcher: its endpoint.
        registered: True if the worker is registered there.
        seconds: duration of the silence.
        patience: seconds of silence after which the worker gives up.
    """
    what = (
        f"The dispatcher at {dispatcher} has been silent for {seconds:.0f} s. This worker "
        "continues its tasks and"
        if registered
        else f"No dispatcher has answered at {dispatcher} for {seconds:.0f} s. This worker"
    )
    return f"{what} keeps trying for {_limit(patience)}. {_CHECK}"


def given_up(dispatcher: str, patience: float) -> str:
    """Return the error of a worker that gives its dispatcher up."""
    return f"The dispatcher at {dispatcher} has not answered for {_limit(patience)}. {_CHECK}"


def _limit(patience: float) -> str:
    return f"{patience:g} s (`--death-timeout`, in code `dispatcher_timeout_ms`)"


_CHECK = "Check that it is running, and that this machine can reach it."


def _least_pause(tasks: int) -> float:
    return 0.0 if tasks <= FEW_TASKS else tasks * SECONDS_PER_TASK
