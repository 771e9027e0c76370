"""Messages to the user of a training loop: which peers are silent, what is missing,
what is lost. Texts and times only.

``core.client.decider`` decides what is done about it.

Decisions 0020 and 0047; protocol 3.1, 3.4, 3.9 and 3.12.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from zmqdata import messages as m
from zmqdata.core.client import events as e
from zmqdata.core.client.lease import PATIENCE_ALONE
from zmqdata.core.client.quarantine import ClientQuarantine
from zmqdata.core.client.tasks import Reading

SAY_SO_AFTER = 5.0
"""Seconds of silence of the dispatcher after which a warning is logged."""
SILENT_AFTER = 10.0
"""Seconds without a message after which a worker that is awaited is called silent."""
MOST_NAMED = 5
"""Number of workers that a warning names."""
WAITING_AFTER = 10.0
"""Seconds without an element after which a warning is logged, and seconds between two
warnings.
"""


class Notices:
    """Log lines for the user of a client.

    Args:
        job: name of the job that the client reads.
        reader: the role in which the client reads.
        service: address of the dispatcher.
        patience: seconds to continue without a dispatcher.
        cardinality: number of elements of a repetition; below 0 if it is infinite or
            unknown.
        do: receives the log lines.

    Attributes:
        heard: time of the last message of the dispatcher.
        repetition: repetition of the job, once the client is let in.
        awaited: what the dispatcher awaits before it lets the client in.
        is_closed: True if the dispatcher has closed and will not return.
        idle: the workers, if the dispatcher said that none hosts a task for the client.
        silences: returns the seconds since the last message of each worker, by address.
        quarantine: the elements that workers left out.
        ranks: sentence on what makes this process one of several ranks, or "".
    """

    def __init__(
        self,
        job: str,
        reader: m.Reader,
        service: str,
        patience: float,
        cardinality: int,
        do: Callable[[e.ClientCommand], None],
    ) -> None:
        self.job = job
        self.repetition = 0
        self.cardinality = cardinality
        self.reader = reader
        self.service = service
        self.patience = patience
        self.heard = 0.0
        self.is_closed = False
        self.awaited = self.ranks = ""
        self.idle: m.IdleWorkers | None = None
        self.silences: Callable[[float], Mapping[str, float]] = lambda now: {}
        self._do = do
        self._warned_at = -WAITING_AFTER
        self._starving = math.inf  # since when the training loop waits
        self._passed = 0
        self._skipped: dict[str, int] = {}
        self._warned_skipped = 0
        self.quarantine = ClientQuarantine(job, do)
        self._wanted = self._is_in = False
        self._kept: list[e.LogLine] = []

    # --- when a client joins

    def waits(self, message: m.OpenAwaited, client: str) -> None:
        """Record which readers the dispatcher awaits before an iteration begins from
        states.
        """
        if message.client == client:
            self.awaited = message.missing

    def wanted(self) -> None:
        """Log the lines that were kept until the training loop reads."""
        self._wanted = True
        for note in self._kept:
            self._do(note)
        self._kept.clear()

    def _say_to_reader(self, level: str, text: str) -> None:
        """Log a line once the training loop reads.

        An iterator that loads a state before its first element has no use for the line.
        """
        note = e.LogLine(level, text)
        if self._wanted:
            self._do(note)
        else:
            self._kept.append(note)

    def joined(self, opened: m.IterationOpened, goes_on: bool = False) -> None:
        """Log how the client came to its iteration, unless that is a plain start, and
        warn if elements of the iteration are gone.

        Args:
            opened: the dispatcher's answer.
            goes_on: True if the client has read the iteration under a former name.
        """
        self.awaited, self.repetition, self._is_in = "", opened.repetition, True
        if goes_on:
            return
        how, consumer = self._how(opened), self.reader.consumer_index
        if consumer is not None and opened.step:
            how += f"; consumer {consumer} continues at step {opened.step}"
        is_apart = consumer is not None or bool(self.reader.trainer_id)
        is_gone = (
            not is_apart
            and opened.how not in ("begun", "loaded")
            and (opened.finished or opened.delivered > 0)
            and self.cardinality != 0
        )
        if is_gone:
            how += f"; {self._share(opened)}"
        # What other members of the run take at the same time is not missing here.
        with_its_run = opened.how == "follows" and opened.shared and not opened.finished
        is_less = is_gone and opened.how != "continued" and not with_its_run
        takes_over = consumer is not None and opened.step > 0
        if is_less or (opened.how == "joined" and (not is_apart or takes_over)):
            self._say_to_reader("warning", how)
        elif opened.how not in ("begun", "follows") or (consumer is not None and opened.step):
            self._say_to_reader("info", how)

    def _how(self, opened: m.IterationOpened) -> str:
        """Return how a client came to its iteration, in words."""
        since = f", which began {opened.age:.0f} s ago" if opened.age >= 1 else ""
        said = {
            "begun": "begins the job",
            "follows": "reads on with its run",
            "joined": f"reads with another run{since}",
            "restarted": f"takes the place of a process of its run that is gone{since}",
            "continued": f"continues what an earlier run has left{since}",
            "loaded": "continues from a state",
        }
        told = said.get(opened.how, opened.how)
        return (
            f"job {self.job!r}, repetition {opened.repetition}, incarnation "
            f"{opened.incarnation}: this client {told}"
        )

    def _share(self, opened: m.IterationOpened) -> str:
        of = f" of {self.cardinality}" if self.cardinality >= opened.delivered else ""
        # A run goes on with the incarnation that it reads, whatever it asks for.
        is_fixed = opened.how in ("follows", "restarted")
        remedy = (
            "To read the dataset from its beginning, "
            + ("start the program again" if is_fixed else "pass on_existing='new'")
            + " or use another job_name"
        )
        if opened.finished:
            return f"this repetition has ended before, and none of its elements is left. {remedy}"
        others = "; others read, too" if opened.shared else ""
        return (
            f"{opened.delivered}{of} elements were delivered before, and this client receives "
            f"only of the rest{others}. {remedy}"
        )

    def was_read(self) -> str:
        """Return why a repetition is an error that this process has read before."""
        return (
            f"Repetition {self.repetition} of job {self.job!r} was read to its end in this "
            "process before this dataset object was made, so nothing of it is left. Each "
            "iterator of one dataset object reads the next repetition. Make the dataset once "
            "and call iter() on it for each epoch, or pass another job_name."
        )

    def given_up(self, why: str, held: int, unreported: int) -> None:
        """Log that other clients receive the elements of this client, which rejoins."""
        text = (
            f"the dispatcher has given up this client of job {self.job!r}, which now "
            f"rejoins: {why} "
        )
        if self.reader.consumer_index is None:
            text += (
                f"The {held} elements that it held go to other clients, and so do "
                f"{unreported} elements that it had handed out and could not report"
            )
        else:
            text += (
                "It continues at the step of its training loop if no other client has "
                "taken its place"
            )
        self._do(e.LogLine("warning", text))

    # --- while it reads

    def count_skipped(self, link: str, skipped: int) -> None:
        """Take the number of elements that this trainer was too slow for, as a worker
        reports it.
        """
        self._skipped[link] = skipped

    def tell_skipped(self, now: float) -> None:
        """Log how many elements fell out of a shared cache before this trainer read
        them.
        """
        skipped = sum(self._skipped.values())
        if skipped > self._warned_skipped and now - self._warned_at >= WAITING_AFTER:
            self._warned_at, fresh, self._warned_skipped = (
                now,
                skipped - self._warned_skipped,
                skipped,
            )
            text = (
                f"{fresh} elements fell out of the cross-trainer cache of job "
                f"{self.job!r} before trainer {self.reader.trainer_id!r} read them, "
                "because other trainers are faster. Give the workers a larger "
                "`cross_trainer_cache_size_bytes`, or this training job more time"
            )
            self._do(e.LogLine("warning", text))

    def ended_alone(self, silence: float, unreported: int) -> None:
        """Log that the client ended without hearing whether other readers had received
        all elements.
        """
        closed = ", which has closed," if self.is_closed else ""
        text = (
            f"no answer from the dispatcher at {self.service}{closed} for {silence:.0f} s at "
            f"the end of job {self.job!r}, repetition {self.repetition}: elements "
            "held by readers that have died may be missing here"
        )
        if unreported and not self.is_closed:
            text += (
                f"; {unreported} elements handed out here could not be reported, and "
                "other clients may receive them again"
            )
        self._do(e.LogLine("warning", text))

    @property
    def is_numbered(self) -> bool:
        """True if the client reads as a numbered consumer."""
        return self.reader.consumer_index is not None

    def unheard(self, when: str, owed: int) -> str:
        """Return the warning that the dispatcher has not counted the last report.

        Args:
            when: time for which, or at which, the dispatcher does not answer.
            owed: number of elements that are not reported.
        """
        what, again = "elements", "Other readers of the job may receive them again."
        if self.is_numbered:
            what = "steps"
            again = (
                f"A successor of consumer {self.reader.consumer_index} may receive them again, "
                "without the other consumers."
            )
        return (
            f"The dispatcher at {self.service} has not answered {when}, so the last {owed} {what} "
            f"read of job {self.job!r} are not reported. {again}"
        )

    def close(self) -> None:
        """Record that the dispatcher has closed and will not return."""
        self.is_closed, self.patience = True, min(self.patience, PATIENCE_ALONE)

    def forgive(self, seconds: float) -> None:
        """Discount time in which this process did not run."""
        self.heard += seconds
        self._starving += seconds

    def is_too_silent(self, now: float) -> str:
        """Return why the dispatcher has been silent for too long, or an empty text if
        it has not.
        """
        # Workers still send what they have after the dispatcher has closed.
        starving = min(self._starving, now) if self.is_closed else self.heard
        silence = now - max(self.heard, starving)
        if silence < self.patience:
            return ""
        if self.is_closed:
            return (
                f"The dispatcher at {self.service} has closed before the end of job {self.job!r}. "
                "It kept nothing, so no dispatcher can continue the job. Close it, or the program "
                "that has made its `LocalCluster`, after all readers have ended. A dispatcher with "
                "`--work-dir` can be started again."
            )
        return (
            f"The dispatcher at {self.service} has not answered for {silence:.0f} s "
            f"(dispatcher_timeout={self.patience:g} s). Check that it is running and "
            "that this machine can reach it, or raise `dispatcher_timeout`."
        )

    def complain(
        self, now: float, opened: bool, held: bool, reading: Reading, tasks: m.TaskList
    ) -> float:
        """Log, every ten seconds, what the training loop waits for.

        Args:
            now: present time.
            opened: True if the dispatcher has let the client in.
            held: True if elements may be handed out.
            reading: received and handed-out elements of each task.
            tasks: the task list.

        Returns:
            Seconds for which the training loop has waited.
        """
        # A loop that takes each element at once never leaves an element waiting here.
        came, self._passed = reading.passed.count != self._passed, reading.passed.count
        idle = opened or bool(self.awaited) or self.is_closed
        idle = idle and not (came or (reading.waiting and held))
        self._starving = min(self._starving, now) if idle else math.inf
        starved = max(0.0, now - self._starving)
        silence = 0.0 if self.is_closed else now - self.heard
        late = silence >= SAY_SO_AFTER or starved >= WAITING_AFTER
        if late and now - self._warned_at >= WAITING_AFTER:
            self._warned_at = now
            text = (
                self._silent_dispatcher(silence, held)
                if silence >= SAY_SO_AFTER
                else f"waiting for {starved:.0f} s for {self._missing(reading, tasks, now)}"
            )
            self._do(e.LogLine("warning", f"{self._who()}: {text}"))
        return starved

    def _who(self) -> str:
        """Return for whom the client waits, in words."""
        parts = [f"job {self.job!r}"]
        if self._is_in:
            parts.append(f"repetition {self.repetition}")
        if self.reader.consumer_index is not None:
            parts.append(f"consumer {self.reader.consumer_index}")
        if self.reader.trainer_id:
            parts.append(f"trainer {self.reader.trainer_id!r}")
        return ", ".join(parts)

    def _silent_dispatcher(self, silence: float, held: bool) -> str:
        lease = (
            ""
            if held
            else "; until it answers, no element is handed out, because other clients "
            "may have received it"
        )
        return (
            f"no answer from the dispatcher at {self.service} for {silence:.0f} s; still "
            f"trying (dispatcher_timeout={self.patience:g} s){lease}"
        )

    def _missing(self, reading: Reading, tasks: m.TaskList, now: float) -> str:
        """Return what the training loop waits for, in words."""
        if self.awaited:
            return self.awaited
        if not tasks.tasks and not tasks.closed:
            return f"a worker to host its first task: {self._why_unhosted()}"
        plan = tasks.plan
        if plan is not None and plan.missing:
            names = ", ".join(map(str, plan.missing))
            ranks = self.ranks and f". {self.ranks}"
            return f"consumer {names} of this job, still without a client{ranks}"
        places = [reading.tasks[number].place for number in reading.unended]
        hosts = sorted({place.address for place in places if place.address})
        unhosted = sum(not place.address for place in places)
        if unhosted and not hosts:
            tasks_left = "the task that has" if unhosted == 1 else f"the {unhosted} tasks that have"
            return f"a worker to host {tasks_left} further elements: {self._why_unhosted()}"
        if not hosts:
            others = bool(tasks.tasks and tasks.closed)
            return "elements that silent readers hold" if others else "the end of the iteration"
        also = ""
        if unhosted:
            also = f", and for a worker to host {_counted(unhosted, 'further task')}"
        if plan is not None:
            also += (
                ". Workers make the elements of all consumers together: one that has stopped "
                "reading holds up the others once its elements fill the workers' memory"
            )
        return f"elements of {_workers(hosts, self.silences(now))}{also}"

    def _why_unhosted(self) -> str:
        """Return why no worker hosts a task for this client, as far as it is known."""
        idle, look = self.idle, f"`zmqdata status --dispatcher {self.service}` lists the workers"
        if idle is None:
            return f"no worker has a task that this client may read. {look}"
        if not idle.registered:
            return (
                f"no worker is registered at {self.service}. If no host and no autoscaler is "
                f"about to start one, run `zmqdata worker --dispatcher {self.service}`"
            )
        registered = _counted(idle.registered, "registered worker")
        if not idle.able:
            return (
                f"none of {registered} may host it. Each is about to leave, or only for clients "
                "beside it, because of `target_workers` or the tag COLOCATED. Start another "
                f"worker; {look}"
            )
        return (
            f"of {registered}, {idle.able} may run this job, and none is the place of a task of "
            "it. With a static sharding policy each task waits for its own worker of "
            f"`worker_addresses`; {look}"
        )


def _workers(hosts: list[str], silences: Mapping[str, float]) -> str:
    """Return the workers at some addresses in words: the most silent ones, if they are
    many.

    >>> _workers(["tcp://a:1", "tcp://b:1"], {"tcp://a:1": 0.1, "tcp://b:1": 17.0})
    'worker tcp://b:1 (silent for 17 s) and worker tcp://a:1'
    """
    ordered = sorted(hosts, key=lambda host: -silences.get(host, 0.0))
    named = [
        f"worker {host}" + (f" (silent for {silence:.0f} s)" if silence >= SILENT_AFTER else "")
        for host in ordered[:MOST_NAMED]
        for silence in [silences.get(host, 0.0)]
    ]
    if len(ordered) > MOST_NAMED:
        named.append(_counted(len(ordered) - MOST_NAMED, "other worker"))
    return " and ".join([", ".join(named[:-1]), named[-1]] if len(named) > 1 else named)


def _counted(number: int, what: str) -> str:
    """Return a number of things in words.

    >>> _counted(1, "worker"), _counted(2, "worker")
    ('1 worker', '2 workers')
    """
    return f"{number} {what}{'' if number == 1 else 's'}"
