"""The needs of all jobs, from the verdicts on the loops that read them, and the number
of worker processes that is decided from them.

Not durable: after a restart, the number follows the workers that are there until the
needs are measured again.

Decisions 0052 and 0054.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence, Set
from statistics import median

from zmqdata.core.dispatcher.state.measures import most_waiting
from zmqdata.core.dispatcher.state.tasks import Iteration
from zmqdata.core.dispatcher.tasks.hosting import Hosting
from zmqdata.measures.scaling import MEASURED, PAUSE_KEPT, JobNeed, Scaling, ScalingDecision
from zmqdata.measures.situation import is_paused
from zmqdata.measures.verdict import UNKNOWN, judge

EVERY = 1.0
"""Least seconds between two decisions."""
HELD_FOR = 3
"""Number of intervals for which a program that scales holds its place without a sign of
life.
"""
BETWEEN = JobNeed(0, UNKNOWN, 0, True, None)
"""Need of a job whose run is between two passes."""


class DesiredWorkers:
    """Decides how many worker processes would feed all jobs, when somebody asks, and
    once a second at most: a decision looks at every task.

    Args:
        hosting: what is known of workers, and the measures.
        absent: the clients that have been silent for too long, at any time.
    """

    def __init__(self, hosting: Hosting, absent: Set[str]) -> None:
        self._hosting, self._absent = hosting, absent
        self._scaling = Scaling()
        self._decided = -math.inf
        self._read: dict[int, float] = {}  # when an incarnation was last read
        self._decision = Scaling().decide([], 0, 0.0)
        self._scaler, self._held_until = "", -math.inf

    def decision(self, now: float) -> ScalingDecision:
        """Return the decision for now."""
        if now - self._decided >= EVERY:
            self._decided = now
            present = sum(not facts.draining for facts in self._hosting.facts.values())
            self._decision = self._scaling.decide(self._needs(now), present, now)
        return self._decision

    def claim(self, scaler: str, interval: float, now: float) -> str:
        """Give a program the place of the only one that starts and stops workers,
        unless another one holds it. Return the holder.

        Args:
            scaler: unique name of the program.
            interval: seconds until it claims the place again; 0 to give it up.
            now: present time.
        """
        if scaler == self._scaler or now >= self._held_until:
            self._scaler, self._held_until = scaler, now + HELD_FOR * interval
        return self._scaler

    def processes(self) -> int:
        """Return the median number of processes that are registered under one name; 1
        without names.
        """
        names = [facts.name.partition("/")[0] for facts in self._hosting.facts.values()]
        return round(median(Counter(name for name in names if name).values() or [1]))

    def _needs(self, now: float) -> list[JobNeed]:
        """Return the need of each incarnation that is read or saved, or whose last pass
        was read to its end, so that its run may begin the next.
        """
        found: dict[int, list[JobNeed]] = {}
        for one in self._hosting.out.state.iterations.values():
            is_saved = one.saving is not None and one.failure is None and not one.finished
            is_read = bool(self._readers(one))
            if is_read or is_saved:
                found.setdefault(one.incarnation, []).append(self._need(one))
            if is_read:
                self._read[one.incarnation] = now
        self._read = {
            number: at
            for number, at in self._read.items()
            if now - at < PAUSE_KEPT and (number in found or self._is_between(number))
        }
        for number in self._read.keys() - found.keys():
            found[number] = [BETWEEN]
        return [_together(str(number), needs) for number, needs in sorted(found.items())]

    def _is_between(self, number: int) -> bool:
        """Return True if a job was read to the end of its newest pass."""
        incarnation = self._hosting.out.state.incarnations.get(number)
        return incarnation is not None and incarnation.has_finished(incarnation.next - 1)

    def _readers(self, iteration: Iteration) -> set[str]:
        """Return the clients of an iteration that are there; none if it has failed."""
        return set() if iteration.failure is not None else iteration.clients - self._absent

    def _need(self, iteration: Iteration) -> JobNeed:
        measures, readers = self._hosting.measures, self._readers(iteration)
        situations = measures.situations(iteration) if readers else {}
        known = {client: one for client, one in situations.items() if client in readers}
        # One verdict: with all others, 64 consumers would take a fifth of each second.
        verdict = judge(most_waiting(known)) if known else None
        loops = [measures.loop_of(iteration, client) for client in readers]
        is_pausing = bool(loops) and all(one is not None and is_paused(one) for one in loops)
        most = most_workers(iteration)
        return JobNeed(
            needed=0 if verdict is None else verdict.workers_needed,
            word=UNKNOWN if verdict is None else verdict.word,
            readers=len(readers) or 1,  # the workers themselves take what they save
            # With everything made, the next pass is what workers can be needed for.
            paused=is_pausing or most == 0,
            most=most or None,
        )


def most_workers(iteration: Iteration) -> int | None:
    """Return the number of workers that an iteration could occupy, by its tasks or by
    the splits that are left; None if there is no such limit, or if it is not known yet.
    """
    if iteration.num_shards:
        return iteration.num_shards
    left = [cursor.remaining(cursor.repetition) for cursor in iteration.cursors]
    known = [count for count in left if count is not None]
    # Each running task may be at a split that was handed out.
    return iteration.running + sum(known) if left and len(known) == len(left) else None


def _together(name: str, needs: Sequence[JobNeed]) -> JobNeed:
    """Return the need of a job of which several passes are read at the same time."""
    limits = [one.most for one in needs if one.most is not None]
    return JobNeed(
        needed=sum(one.needed for one in needs) if all(one.needed for one in needs) else 0,
        word=next((one.word for one in needs if one.word not in MEASURED), needs[0].word),
        readers=sum(one.readers for one in needs),
        paused=all(one.paused for one in needs),
        most=sum(limits) if len(limits) == len(needs) else None,
        job=name,
    )
