"""What the person at a training loop is told: who is silent, what is missing, what is
gone. Texts, and when.

What is done about it is decided by the consumer core.
"""

from __future__ import annotations

from collections.abc import Callable

from zmqdata import messages as m
from zmqdata.core.client import events as e
from zmqdata.core.client.tasks import Reading

SAY_SO_AFTER = 5.0
WAITING_AFTER = 10.0


class Notices:
    """Speaks for one client.

    ``left_out``: how many elements each task was ended without.

    Args:
        job: the name of the job that it reads.
        repetition: which pass of it.
        reader: as which reader.
        service: where the dispatcher is.
        patience: seconds to do without a dispatcher.
        do: takes the notes.

    Attributes:
        heard: when the dispatcher was heard last.
        awaited: for whom an iteration waits that is to begin from a state.
    """

    def __init__(
        self,
        job: str,
        repetition: int,
        reader: m.Reader,
        service: str,
        patience: float,
        do: Callable[[e.ClientCommand], None],
    ) -> None:
        self.job = job
        self.repetition = repetition
        self.reader = reader
        self.service = service
        self.patience = patience
        self.heard = 0.0
        self.awaited = ""
        self._do = do
        self._said = -WAITING_AFTER
        self._starving: float | None = None
        self._passed = 0
        self._skipped: dict[str, int] = {}
        self._told_skipped = 0
        self.left_out: dict[int, int] = {}
        self._poison: set[m.LeftOutElement] = set()
        self._wanted = False
        self._kept: list[e.LogLine] = []

    # --- when a client joins

    def waits(self, message: m.ResumeAwaited, client: str) -> None:
        """Notes for whom an iteration waits that is to begin from a state."""
        if message.client == client:
            self.awaited = message.missing

    def wanted(self) -> None:
        """The training loop begins to read: what it was to be told then is told."""
        self._wanted = True
        for note in self._kept:
            self._do(note)
        self._kept.clear()

    def _say_to_reader(self, level: str, text: str) -> None:
        """Says it once somebody reads: an iterator on which a state is loaded next has
        no use for it.
        """
        note = e.LogLine(level, text)
        if self._wanted:
            self._do(note)
        else:
            self._kept.append(note)

    def joined(self, opened: m.IterationOpened, goes_on: bool = False) -> None:
        """Tells what others have read before, when it is read from here, unless it goes
        on.
        """
        self.awaited = ""
        if goes_on:
            return
        if self.reader.consumer_index is not None:
            if opened.step:
                who = f"consumer {self.reader.consumer_index} of job {self.job!r}"
                self._say_to_reader(
                    "info", f"{who} goes on at step {opened.step}, where the one before it was"
                )
        elif opened.delivered and (opened.finished or not opened.shared):
            rest = "nothing is left" if opened.finished else "this client gets the rest"
            text = (
                f"job {self.job!r}, repetition {self.repetition}: {opened.delivered} elements were "
                "delivered "
                f"before this client joined; {rest}. Use another job_name to read it again from "
                "the beginning"
            )
            self._say_to_reader("warning", text)

    def given_up(self, why: str, held: int, unreported: int) -> None:
        """Tells that others were given what this client had, and that it joins
        again.
        """
        text = f"the dispatcher had given up this client of job {self.job!r}, which joins again: {why} "
        if self.reader.consumer_index is None:
            text += (
                f"{held} elements that it held go to others; so do {unreported} that it had handed "
                "out and could not "
                "report"
            )
        else:
            text += "It goes on where its training loop is, if nobody has taken its place"
        self._do(e.LogLine("warning", text))

    # --- while it reads

    def count_skipped(self, link: str, skipped: int) -> None:
        """Takes what a worker says of elements that this trainer was too slow for."""
        self._skipped[link] = skipped

    def tell_skipped(self, now: float) -> None:
        """Tells of elements that fell out of a shared cache."""
        skipped = sum(self._skipped.values())
        if skipped > self._told_skipped and now - self._said >= WAITING_AFTER:
            self._said, fresh, self._told_skipped = now, skipped - self._told_skipped, skipped
            text = (
                f"{fresh} elements fell out of the cross-trainer cache of job {self.job!r} before "
                "trainer "
                f"{self.reader.trainer_id!r} read them: others are faster. Give workers a larger "
                "cross_trainer_cache_size_bytes, or this training job more time"
            )
            self._do(e.LogLine("warning", text))

    def tell_poison(self, task_list: m.TaskList) -> None:
        """Has what workers leave out because it brings them down in the iterator's
        quarantine, each element once.
        """
        for element in task_list.left_out:
            if element not in self._poison:
                self._poison.add(element)
                self._do(e.NoteLeftOut(element))

    def tell_left_out(self) -> None:
        """Tells, at the end, how many elements are missing because the pipeline leaves
        out what fails.
        """
        missing, self.left_out = sum(self.left_out.values()), {}
        if missing:
            text = (
                f"job {self.job!r}, repetition {self.repetition}, is over without {missing} "
                "elements that workers "
                f"could not make, as {self._why_left_out(missing)}. Which and why is in the logs "
                "of the workers; "
                "zmqdata status --worker ADDRESS shows the newest of running tasks"
            )
            self._do(e.LogLine("warning", text))

    def _why_left_out(self, missing: int) -> str:
        """Who wanted it so. Only elements that bring a worker down are known one by
        one: copies leave out the same.
        """
        poison = len(self._poison)
        if not poison:
            return "the pipeline wants it (on_error='skip')"
        others = "" if missing <= poison else " or the pipeline (on_error='skip')"
        return (
            f"the job (on_poison='skip'){others} wants it; {poison} that bring their worker down "
            "are in the "
            "iterator's quarantine"
        )

    def ended_alone(self, silence: float, unreported: int) -> None:
        """Tells that nobody has said whether others that read the job had all that they
        held, or knows what we had.
        """
        text = (
            f"no answer from the dispatcher at {self.service} for {silence:.0f} s at the end of "
            f"job {self.job!r}, "
            f"repetition {self.repetition}: what other readers held that have died is missing here"
        )
        if unreported:
            text += f"; of what was handed out here {unreported} elements could not be reported: others may get them"
        self._do(e.LogLine("warning", text))

    def forgive(self, seconds: float) -> None:
        """Discounts time in which nobody listened or read here."""
        self.heard += seconds
        if self._starving is not None:
            self._starving += seconds

    def is_too_silent(self, now: float) -> str:
        """Why there is no point in waiting for the dispatcher any longer, if there is
        none.
        """
        silence = now - self.heard
        if silence < self.patience:
            return ""
        return (
            f"The dispatcher at {self.service} has not answered for {silence:.0f} s "
            f"(dispatcher_timeout={self.patience:g} s). Is it running, and can this machine reach "
            "it?"
        )

    def complain(
        self, now: float, opened: bool, held: bool, reading: Reading, tasks: m.TaskList
    ) -> float:
        """Tells what is waited for, every ten seconds; returns for how long the
        training loop has waited.

        ``held``: whether elements may be handed out.
        """
        # A loop that takes each element at once leaves none to be seen here.
        came, self._passed = reading.passed.count != self._passed, reading.passed.count
        idle = (opened or bool(self.awaited)) and not (came or (reading.waiting and held))
        self._starving = (self._starving if self._starving is not None else now) if idle else None
        silence, starved = (
            now - self.heard,
            now - self._starving if self._starving is not None else 0.0,
        )
        late = silence >= SAY_SO_AFTER or starved >= WAITING_AFTER
        if late and now - self._said >= WAITING_AFTER:
            self._said = now
            self._do(
                e.LogLine("warning", self._what_is_missing(silence, starved, held, reading, tasks))
            )
        return starved

    def _what_is_missing(
        self, silence: float, starved: float, held: bool, reading: Reading, tasks: m.TaskList
    ) -> str:
        if silence >= SAY_SO_AFTER:
            lease = (
                ""
                if held
                else "; until it answers nothing is handed out, as others may have been given it"
            )
            return (
                f"no answer from the dispatcher at {self.service} for {silence:.0f} s; still "
                "trying "
                f"(dispatcher_timeout={self.patience:g} s){lease}"
            )
        if self.awaited:
            return f"waiting for {starved:.0f} s for {self.awaited}"
        if not tasks.tasks and not tasks.closed:
            return f"waiting for {starved:.0f} s: no worker has registered at {self.service}"
        plan = tasks.plan
        if plan is not None and plan.missing:
            names = ", ".join(map(str, plan.missing))
            return f"waiting for {starved:.0f} s for consumer {names} of job {self.job}, who is not there"
        places = [reading.tasks[number].place for number in reading.unended]
        rest = (
            "readers that are silent now"
            if tasks.tasks and tasks.closed
            else "the end of the iteration"
        )
        names = ", ".join(sorted({place.address or "a new host" for place in places})) or rest
        return f"waiting for elements for {starved:.0f} s, from {names}"
