"""The verdict on a training loop that reads from workers: what limits it, with the
evidence and advice.

The same function judges for ``stats()``, ``profile()``, ``zmqdata status`` and every
page, so all of them say the same.

Decision 0046.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from zmqdata.measures.situation import (
    WAITS,
    Situation,
    costs_by_worker,
    doing_of,
    dominant,
    gain_without,
    median,
    needed_workers,
    share_of,
    wait_share_without,
)
from zmqdata.measures.sums import added, ratio_of
from zmqdata.messages import OperationStatus, TaskSums
from zmqdata.peeking import counted
from zmqdata.printable import printable, shown_share

INPUT_BOUND = "INPUT-BOUND"
"""The loop waits, and the pipeline on the workers is the reason."""
COMPUTE_BOUND = "COMPUTE-BOUND"
"""The training process is the limit: workers and links could deliver more."""
STRAGGLER = "STRAGGLER"
"""One of several workers, consumers or splits holds up the others."""
LINK_BOUND = "LINK-BOUND"
"""The loop waits for bytes on their way from a worker."""
UNKNOWN = "UNKNOWN"
"""Too little was observed."""
VERDICTS = (INPUT_BOUND, COMPUTE_BOUND, STRAGGLER, LINK_BOUND, UNKNOWN)
"""All verdicts."""
EXPECTED = VERDICTS[:-1]
"""The verdicts that say something."""
FAILED = "FAILED"
"""An error ended the job, so no loop waits for it."""

LEAST_SECONDS = 0.5
LEAST_ELEMENTS = 2
"""Seconds and elements below which nothing is said."""
IDLE_SECONDS = 5.0
"""Seconds from which on a loop that asks for nothing counts as idle."""
SATURATED = 0.6
"""Share of their time that tasks make elements, above which more tasks would help."""
MOSTLY = 0.5
"""Share of the time above which something counts as what is done most of the time."""
PARALLEL = ("map(", "random_map(", "interleave(", "batch(collate_fn=")
"""Beginnings of the labels of operations that take ``num_parallel_calls``."""
LINK_BUSY = 0.7
"""Share of the time with bytes in flight above which a link is the limit."""
GAINS = 1.2
"""Factor of the rate from which on more calls at a time are advised."""
SLOWER = 2.0
"""Factor by which a worker is slower than the median of the others that counts."""
UNEQUAL = 1.5
"""Factor by which a consumer is slower than the others that counts."""
HELD_UP = 0.4
"""Share of a loop's waits in which threads of its own process did not come to run,
above which these waits are not the input's.
"""
TAIL = 1.0
"""Seconds that a loop must have waited lately if the end of a pass counts as held up by
its last splits.
"""
UNBALANCED = 1.1
"""Bound of `balance`, divided by the mean batch, above which it is mentioned."""
DEARER = (
    "If its batches cost more than the others', call balance() before distribute(): the page 'Why "
    "do my ranks wait for each other?' says how."
)
EVENTS = "See the newest warnings in `zmqdata top`, and the logs of the workers."
COLD = 0.2
"""Share of the time that the first element may take without being mentioned."""


@dataclass(frozen=True)
class Verdict:
    """Limit of a training loop."""

    word: str
    """One of the verdicts above, or ``FAILED``."""
    advice: str
    """Evidence and advice, in a sentence or two."""
    node: str = ""
    """Label of the node that takes the most time; empty if unknown."""
    node_share: float = 0.0
    """Share of this node, as ``situation.operations`` has it."""
    workers_needed: int = 0
    """Number of workers that would feed the loop; 0 if unknown."""

    def __str__(self) -> str:
        return f"{self.word}: {self.advice}"


def judge(situation: Situation) -> Verdict:
    """Return the verdict on a training loop.

    Args:
        situation: what is known of it.

    Example:
        >>> from zmqdata.measures.situation import TaskEvidence
        >>> from zmqdata.messages import LoopSums, NodeTime
        >>> node = NodeTime("0", "map(decode) at train.py:31", 9.4, 9.4)
        >>> rest = NodeTime("0.0", "list_files", 0.6, 0.6)
        >>> sums = TaskSums(seconds=10.0, making=10.0, elements=50.0)
        >>> tasks = tuple(TaskEvidence(name, sums, (node, rest)) for name in ("a", "b"))
        >>> loop = LoopSums(seconds=10.0, waiting=6.1, elements=100.0)
        >>> verdict = judge(Situation(loop, tasks))
        >>> verdict.word, verdict.workers_needed
        ('INPUT-BOUND', 5)
        >>> verdict.advice[:62]
        "map(decode) at train.py:31 takes 94 % of the workers' time; wi"
    """
    if situation.failure:
        return Verdict(FAILED, printable(situation.failure))
    loop = situation.loop
    is_fed = situation.wait_share < WAITS and not situation.is_unpaced
    if situation.first is None and not loop.elements and not situation.total.elements:
        tells = f"The log of its process names what it waits for. {EVENTS}"
        cause = tells if situation.hosted != 0 and not situation.deaths else _no_worker(situation)
        return Verdict(UNKNOWN, f"The loop waits for its first {situation.one}. {cause}")
    if is_fed and loop.seconds >= IDLE_SECONDS and loop.elements < LEAST_ELEMENTS:
        return Verdict(
            UNKNOWN,
            f"The loop has not asked for another {situation.one} lately: it works on this one, "
            "pauses, or was ended by an error, which the log of its process tells. If the loop has "
            "ended, close its iterator.",
        )
    taken = max(loop.elements, situation.total.elements)
    if loop.seconds < LEAST_SECONDS or taken < LEAST_ELEMENTS:
        few = f"The loop has read only {counted(round(taken), situation.unit)}"
        return Verdict(UNKNOWN, f"{few}. Ask again when it has run for some seconds.")
    node = dominant(situation.tasks)
    word, advice = _not_waiting(situation) if is_fed else _waiting(situation)
    need = needed_workers(situation)
    # The names of functions and workers are in it, and it is shown in terminals.
    more = filter(None, (_cold_start(situation), _unequal_steps(situation)))
    text = printable(" ".join([advice, *more]))
    label, share = ("", 0.0) if node is None else (node.node, node.share)
    return Verdict(word, text, label, share, need)


def _no_worker(situation: Situation) -> str:
    if not situation.deaths:
        return f"No worker hosts a task of this job. Start workers, if none runs. {EVENTS}"
    died = f"Its workers have died {counted(len(situation.deaths), 'time')}"
    return f"{died}; one {situation.deaths[-1]}. {EVENTS}"


def _not_waiting(situation: Situation) -> tuple[str, str]:
    waits = f"the loop waits {shown_share(situation.wait_share)} of its time"
    usual = _usual_step(situation)
    if usual and situation.step >= UNEQUAL * usual and situation.consumer is not None:
        return STRAGGLER, (
            f"This consumer ({situation.consumer}) takes {shown_seconds(situation.step)} for a "
            f"step, the others {shown_seconds(usual)}: they wait for it. Look at this process and "
            f"its machine. {DEARER}"
        )
    return COMPUTE_BOUND, (
        f"The input keeps up: {waits}, and its own step takes {shown_seconds(situation.step)}. "
        "More workers would not help; make the step faster."
    )


def _waiting(situation: Situation) -> tuple[str, str]:
    if (found := _here(situation)) is not None:
        return found
    running = situation.running
    if situation.is_here:
        return INPUT_BOUND, (
            "The pipeline runs in the training process, as placement='auto' decided, and the loop "
            f"waits {shown_share(situation.wait_share)} of its time for it. With "
            "placement='service' workers run it beside the loop."
        )
    if not running and situation.hosted:
        return UNKNOWN, (
            f"The loop waits {shown_share(situation.wait_share)} of its time, and its workers have "
            "not reported yet. Ask again in a second."
        )
    if not running:
        return INPUT_BOUND, _no_worker(situation)
    sums = added([task.recent for task in running], TaskSums())
    making = share_of(sums.making, sums.seconds)
    for_splits = share_of(sums.for_splits, sums.seconds)
    if (found := _straggling_split(situation, making)) is not None:
        return found
    # Workers that make enough for the loop on average are not its limit, busy or not.
    suffice = 0 < needed_workers(situation) <= situation.workers
    if making >= SATURATED:
        if (found := _slow_worker(situation)) is not None:
            return found
        if not suffice:
            return _slow_pipeline(situation)
    for look in (_slow_link, _slow_consumer, _held_up, _slow_worker_of_few):
        found = look(situation)
        if found is not None:
            return found
    if for_splits >= MOSTLY:
        return INPUT_BOUND, (
            f"The workers wait {shown_share(for_splits)} of their time for splits: the source has "
            "fewer files or elements left than workers. Use more and smaller files."
        )
    if making >= MOSTLY and not suffice:
        return _slow_pipeline(situation)
    return INPUT_BOUND, _too_little_ahead(situation, making)


def _here(situation: Situation) -> tuple[str, str] | None:
    """Return the verdict if the operations after ``distribute`` are the limit."""
    served = situation.served
    if served is None or served.seconds < LEAST_SECONDS:
        return None
    if share_of(served.waiting, served.seconds) >= MOSTLY * situation.wait_share:
        return None
    names = situation.local
    run, them = ("runs", "it") if len(names) == 1 else ("run", "them")
    what = (
        f"{_listed(names)}, after distribute()," if names else "The operations after distribute()"
    )
    ahead = "" if situation.is_ahead else f", or put prefetch() behind {them}"
    return INPUT_BOUND, (
        f"{what} {run} in this process, and the loop waits "
        f"{shown_share(situation.wait_share)} of its time for {them}. Move {them} before "
        f"distribute(), so that the workers run {them}{ahead}."
    )


def _slow_pipeline(situation: Situation) -> tuple[str, str]:
    node = dominant(situation.tasks)
    count, need = situation.workers, needed_workers(situation)
    waits = f"with {counted(count, 'worker')} {_held_up_by(situation)}"
    if node is not None and node.place == "+compression" and node.share >= MOSTLY:
        return INPUT_BOUND, (
            f"Compressing blocks takes {shown_share(node.share)} of the workers' time; {waits}. "
            "Compression does not pay here: pass compression=None or 'AUTO' to distribute()."
        )
    takes = (
        "The workers are busy all the time"
        if node is None
        else f"{node.node} takes {shown_share(node.share)} of the workers' time"
    )
    doing = "" if node is None else doing_of(node)
    takes += f", and {doing}" if doing else ""
    name = "the pipeline" if node is None else node.node.partition(" at ")[0]
    workers = f"start {need} workers, which would feed it" if need else "add workers"
    if node is not None and node.held_up_share >= MOSTLY:
        return INPUT_BOUND, (
            f"{takes}; {waits}. In {shown_share(node.held_up_share)} of the time, finished results "
            f"wait for one slow call. deterministic=False in {name} lets them pass, but the loss "
            f"of a worker may then repeat or lose elements. Or {workers}."
        )
    gain = 0.0 if node is None else gain_without(situation, node)
    if node is not None and gain >= GAINS and _gains_by_calls(node):
        wanted = need / count if need else math.inf
        calls = math.ceil(node.threads * min(gain, wanted)) if need else "zmqdata.AUTOTUNE"
        most = f" Other operations then allow {gain:.3g} times this rate." if gain < wanted else ""
        return INPUT_BOUND, (
            f"{takes}; {waits}. Run more calls at a time: pass num_parallel_calls={calls} to "
            f"{name}.{most} Or {workers}."
        )
    if not need:
        what = "machines" if node is not None and node.lacks_cores else "workers"
        return INPUT_BOUND, f"{takes}; {waits}. Add {what}, or make {name} faster."
    cores, elsewhere = situation.cores, ""
    if 0 < cores < need:
        elsewhere = f" The machines of these workers have {counted(cores, 'core')}: add machines."
    return INPUT_BOUND, f"{takes}; {waits}; {need} would feed it.{elsewhere}"


def _gains_by_calls(node: OperationStatus) -> bool:
    """Return True if an operation waits for other things than a core."""
    return bool(doing_of(node)) and node.node.startswith(PARALLEL) and not node.lacks_cores


def _held_up_by(situation: Situation) -> str:
    """Return in words how much the loop is held up."""
    if not situation.is_unpaced:
        return f"the loop waits {shown_share(situation.wait_share)} of each step"
    loop = situation.loop
    rate = loop.elements / loop.seconds if loop.seconds else 0.0
    return f"{rate:.3g} {situation.unit} per second arrive"


def _slow_worker(situation: Situation) -> tuple[str, str] | None:
    costs = costs_by_worker(situation.running)
    if len(costs) < 2:
        return None
    slowest = max(costs, key=lambda worker: costs[worker])
    usual = median(cost for worker, cost in costs.items() if worker != slowest)
    if usual <= 0 or costs[slowest] < SLOWER * usual:
        return None
    if wait_share_without(situation, slowest) > MOSTLY * situation.wait_share:
        return None  # it does its part, and the loop would wait on without it
    one = situation.one if situation.served is None else "element"
    return STRAGGLER, (
        f"Worker {slowest} takes {shown_seconds(costs[slowest])} per {one}, the others "
        f"{shown_seconds(usual)}; {_held_up_by(situation)}. Look at its machine, or drain it."
    )


def _slow_worker_of_few(situation: Situation) -> tuple[str, str] | None:
    """Return the verdict if a slow worker is busy, and the others wait for it."""
    costs = costs_by_worker(situation.running)
    slowest = max(costs, key=lambda worker: costs[worker], default="")
    sums = added([task.recent for task in situation.running if task.worker == slowest], TaskSums())
    is_busy = share_of(sums.making, sums.seconds) >= SATURATED
    return _slow_worker(situation) if is_busy else None


def _straggling_split(situation: Situation, making: float) -> tuple[str, str] | None:
    """Return the verdict if few tasks are left at work, and the others have nothing."""
    at_work = [
        task
        for task in situation.running
        if share_of(task.recent.for_splits, task.recent.seconds) < MOSTLY
    ]
    # A worker whose only split was short may never have reported.
    count = max(len({task.worker for task in situation.tasks}), situation.hosted or 0)
    busy = {task.worker for task in at_work}
    if not at_work or count < 2 or 2 * len(busy) > count or making < SATURATED:
        return None
    if situation.loop.waiting < TAIL:
        return None
    names, reads = ", ".join(sorted(busy)[:3]), "reads" if len(busy) == 1 else "read"
    return STRAGGLER, (
        f"{counted(len(busy), 'worker')} of {count} ({names}) still {reads} a split, and the "
        f"others have none left; {_held_up_by(situation)}. "
        "Use more and smaller files, of about equal size."
    )


def _slow_link(situation: Situation) -> tuple[str, str] | None:
    linked = [task for task in situation.running if task.linked[0] >= LINK_BUSY]
    if not linked:
        return None
    worst = max(linked, key=lambda task: task.linked)
    busy, rate = worst.linked
    return LINK_BOUND, (
        f"The link from worker {worst.worker} is busy {shown_share(busy)} of the time and moves "
        f"{rate / 1e6:.3g} MB/s; {_held_up_by(situation)}. "
        "Send less: use smaller dtypes such as uint8, pass compression='AUTO', or move operations "
        "that enlarge elements behind distribute()."
    )


def _slow_consumer(situation: Situation) -> tuple[str, str] | None:
    if not situation.others:
        return None
    slowest = max(situation.others, key=lambda one: one.step)
    if slowest.waits or slowest.step < UNEQUAL * max(situation.step, 1e-9):
        return None
    return STRAGGLER, (
        f"Consumer {slowest.consumer} takes {shown_seconds(slowest.step)} for a step, this one "
        f"{shown_seconds(situation.step)}. The workers wait for consumer {slowest.consumer}, so "
        f"the loop waits {shown_share(situation.wait_share)} of its time. Look at the process of "
        f"that consumer and at its machine. {DEARER}"
    )


def _held_up(situation: Situation) -> tuple[str, str] | None:
    loop = situation.loop
    if share_of(loop.late, loop.waiting) < HELD_UP:
        return None
    return COMPUTE_BOUND, (
        f"Elements have arrived, but the loop waits {shown_share(situation.wait_share)} of its "
        "time: other threads of this process hold the interpreter lock, or all cores of this "
        "machine are busy. More workers would not help. Move Python code of this process to the "
        "workers, or to other processes."
    )


def _too_little_ahead(situation: Situation, making: float) -> str:
    if situation.is_unpaced:
        return (
            f"The workers wait for this process: {_held_up_by(situation)}, and each takes longer "
            "to send than to make. Send fewer and larger elements: call batch() before "
            "distribute(), or make batches larger."
        )
    text = f"The loop waits {shown_share(situation.wait_share)} of its time, and "
    if making < SATURATED:
        text += f"the workers wait, too: too few {situation.unit} are in flight. "
    else:
        enough = "the worker makes" if situation.workers == 1 else "the workers make"
        text += (
            f"{enough} enough for it on average: its steps are uneven, or too few "
            f"{situation.unit} are in flight. "
        )
    if situation.limit is not None:
        return (
            f"{text}Raise max_outstanding_requests of distribute(), which is {situation.limit}, or "
            "leave it out."
        )
    return f"{text}Put prefetch() behind distribute(), or make elements smaller."


def _cold_start(situation: Situation) -> str:
    first = situation.first
    if first is None or first < 1.0 or first < COLD * (first + situation.total.seconds):
        return ""
    return (
        f"The first element took {first:.1f} s, which is not counted: begin the next pass earlier, "
        "or keep workers running between passes."
    )


def _unequal_steps(situation: Situation) -> str:
    counts = situation.counts
    bound = ratio_of(counts, "balance_bound")
    if bound <= UNBALANCED:
        return ""
    has_budget = bool(counts.get("balance/room"))
    other = "" if has_budget else ", or `max_cost` instead of `batch_size`"
    return (
        f"No dealing makes the dearest batches of these steps cheaper than {bound:.3g} times the "
        "mean, because single elements cost more than a mean batch. Pass balance() a larger "
        f"`window`{other}."
    )


def _usual_step(situation: Situation) -> float:
    steps = [one.step for one in situation.others if one.step > 0]
    return median(steps) if steps else 0.0


def _listed(names: Sequence[str]) -> str:
    """Return at most three names in words."""
    shown = list(names) if len(names) <= 3 else [*names[:2], counted(len(names) - 2, "other")]
    return " and ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else shown[0]


def shown_seconds(seconds: float) -> str:
    """Return a duration in the unit that suits it, with three significant digits.

    Example:
        >>> [shown_seconds(seconds) for seconds in (0.0, 2.5e-7, 0.0105, 1.25, 1250.0)]
        ['0 us', '0.25 us', '10.5 ms', '1.25 s', '1250 s']
    """
    for unit, size in (("us", 1e-6), ("ms", 1e-3)):
        if seconds < 1000 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s" if seconds < 1000 else f"{seconds:.0f} s"
