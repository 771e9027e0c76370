"""Test the verdict on made situations."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec.structs import replace as replace_node

from zmqdata.measures.situation import (
    WAITS,
    Situation,
    TaskEvidence,
    dominant,
    is_paused,
    needed_workers,
)
from zmqdata.measures.status import stats_of
from zmqdata.measures.verdict import (
    COMPUTE_BOUND,
    INPUT_BOUND,
    LINK_BOUND,
    STRAGGLER,
    UNKNOWN,
    judge,
)
from zmqdata.messages import ConsumerPace, LoopMeasures, LoopSums, NodeTime, TaskSums

DECODE = NodeTime("0", "map(decode) at train.py:31", 9.4, 9.4)
WAITED = NodeTime("0", "map(fetch) at train.py:31", 40.0, 40.0, 4, (0, 0), 38.0)
CROWDED = replace_node(WAITED, waited_recent=28.0)
HEADED = replace_node(WAITED, held_up_recent=8.0)
LISTED = NodeTime("0.0", "list_files", 0.6, 0.6)
WAITING = LoopSums(seconds=10.0, waiting=6.0, elements=100.0)
FED = LoopSums(seconds=10.0, waiting=0.2, elements=100.0)


def task(
    worker: str = "tcp://a:1",
    *,
    making: float = 0.0,
    readers: float = 0.0,
    splits: float = 0.0,
    elements: float = 50.0,
    nodes: tuple[NodeTime, ...] = (DECODE, LISTED),
    linked: tuple[float, float] = (0.0, 0.0),
    ended: bool = False,
) -> TaskEvidence:
    sums = TaskSums(10.0, making, readers, splits, elements)
    return TaskEvidence(worker, sums, nodes, linked, ended)


def two(**changes: object) -> tuple[TaskEvidence, ...]:
    return task("tcp://a:1", **changes), task("tcp://b:1", **changes)  # type: ignore[arg-type]


PACKED = NodeTime("+compression", "compressing blocks", 8.0, 8.0)
SITUATIONS = {
    "slow node": (
        Situation(WAITING, two(making=10.0)),
        INPUT_BOUND,
        "map(decode) at train.py:31 takes 94 % of the workers' time; with 2 workers the loop waits "
        "60 % of each step; 5 would feed it.",
    ),
    "more workers than the machines have cores": (
        Situation(WAITING, tuple(replace(one, cores=4) for one in two(making=10.0))),
        INPUT_BOUND,
        "5 would feed it.",
    ),
    "more workers than the machine has cores": (
        Situation(WAITING, (replace(task(making=10.0, elements=100.0), cores=2),)),
        INPUT_BOUND,
        "3 would feed it. The machines of these workers have 2 cores: add machines.",
    ),
    "a node that waits": (
        Situation(WAITING, two(making=10.0, nodes=(WAITED,))),
        INPUT_BOUND,
        "takes 100 % of the workers' time, and waits (5 % processor); with 2 workers the loop waits "
        "60 % of each step. Run more calls at a time: pass num_parallel_calls=10 to map(fetch). Or "
        "start 5 workers, which would feed it.",
    ),
    "a node that waits without a pace": (
        Situation(WAITING, two(making=10.0, nodes=(WAITED,)), is_unpaced=True),
        INPUT_BOUND,
        "Run more calls at a time: pass num_parallel_calls=zmqdata.AUTOTUNE to map(fetch). Or add "
        "workers.",
    ),
    "a node that waits for a core": (
        Situation(
            WAITING, tuple(replace(one, cores=2) for one in two(making=10.0, nodes=(CROWDED,)))
        ),
        INPUT_BOUND,
        "takes 100 % of the workers' time, and waits for a core (30 % processor); with 2 workers "
        "the loop waits 60 % of each step; 5 would feed it. The machines of these workers have 4 "
        "cores: add machines.",
    ),
    "a node whose results wait for one slow call": (
        Situation(WAITING, two(making=10.0, nodes=(HEADED,))),
        INPUT_BOUND,
        "with 2 workers the loop waits 60 % of each step. In 80 % of the time, finished results "
        "wait for one slow call. deterministic=False in map(fetch) lets them pass, but the loss of a "
        "worker may then repeat or lose elements. Or start 5 workers, which would feed it.",
    ),
    "a node whose results seldom wait": (
        Situation(WAITING, two(making=10.0, nodes=(replace_node(HEADED, held_up_recent=4.0),))),
        INPUT_BOUND,
        "Run more calls at a time: pass num_parallel_calls=10 to map(fetch).",
    ),
    "a node that waits, before one that cannot keep up": (
        Situation(WAITING, two(making=10.0, nodes=(WAITED, NodeTime("", "batch(8)", 8.0, 8.0)))),
        INPUT_BOUND,
        "pass num_parallel_calls=5 to map(fetch). Other operations then allow 1.25 times this rate. "
        "Or start 5 workers, which would feed it.",
    ),
    "a node that waits, before one that is as slow": (
        Situation(WAITING, two(making=10.0, nodes=(WAITED, NodeTime("", "batch(8)", 9.0, 9.0)))),
        INPUT_BOUND,
        "waits (5 % processor); with 2 workers the loop waits 60 % of each step; 5 would feed it.",
    ),
    "a node that waits, before two that share a thread": (
        Situation(
            WAITING,
            two(
                making=10.0,
                nodes=(WAITED, *(NodeTime(place, "map(f)", 4.0, 4.0) for place in ("", "0.0"))),
            ),
        ),
        INPUT_BOUND,
        "Other operations then allow 1.25 times this rate.",
    ),
    "a node that waits, before one on threads": (
        Situation(
            WAITING, two(making=10.0, nodes=(WAITED, NodeTime("", "map(f)", 20.0, 20.0, threads=4)))
        ),
        INPUT_BOUND,
        "pass num_parallel_calls=8 to map(fetch). Other operations then allow 2 times this rate.",
    ),
    "a node without a pace whose results wait": (
        Situation(WAITING, two(making=10.0, nodes=(HEADED,)), is_unpaced=True),
        INPUT_BOUND,
        "may then repeat or lose elements. Or add workers.",
    ),
    "slow link": (
        Situation(WAITING, two(making=1.0, readers=9.0, linked=(0.95, 11e6))),
        LINK_BOUND,
        "is busy 95 % of the time and moves 11 MB/s; the loop waits 60 % of each step",
    ),
    "slow trainer": (
        Situation(FED, two(making=2.0, readers=8.0)),
        COMPUTE_BOUND,
        "The input keeps up: the loop waits 2 % of its time, and its own step takes 98 ms.",
    ),
    "one slow worker": (
        Situation(
            WAITING,
            (*two(making=1.0, readers=9.0), task("tcp://c:1", making=10.0, elements=9.0)),
        ),
        STRAGGLER,
        "Worker tcp://c:1 takes 1.11 s per element, the others 20 ms",
    ),
    "one slow worker that holds nobody up": (
        Situation(
            WAITING,
            (*two(making=10.0), task("tcp://c:1", making=10.0, elements=9.0)),
        ),
        INPUT_BOUND,
        "with 3 workers the loop waits 60 % of each step; 7 would feed it",
    ),
    "one slow rank": (
        Situation(
            WAITING,
            two(making=1.0, readers=9.0),
            consumer=0,
            others=(ConsumerPace(1, 0.1, False), ConsumerPace(2, 0.04, True)),
        ),
        STRAGGLER,
        "Consumer 1 takes 100 ms for a step, this one 40 ms. The workers wait for consumer 1, so",
    ),
    "the slow rank itself": (
        Situation(
            FED, two(making=1.0, readers=9.0), consumer=1, others=(ConsumerPace(0, 0.04, True),)
        ),
        STRAGGLER,
        "This consumer (1) takes 98 ms for a step, the others 40 ms",
    ),
    "too little prefetch": (
        Situation(WAITING, two(making=3.0, readers=7.0), limit=1),
        INPUT_BOUND,
        "Raise max_outstanding_requests of distribute(), which is 1",
    ),
    "workers that fill their buffers": (
        Situation(LoopSums(10.0, 2.0, 40.0), two(making=9.9), limit=1),
        INPUT_BOUND,
        "Raise max_outstanding_requests of distribute(), which is 1",
    ),
    "a loop that pauses": (
        Situation(LoopSums(10.0, 2.0, 40.0), two(making=9.9)),
        INPUT_BOUND,
        "the workers make enough for it on average: its steps are uneven, or too few elements are "
        "in flight. Put prefetch() behind distribute()",
    ),
    "compression that does not pay": (
        Situation(WAITING, two(making=10.0, nodes=(NodeTime("0", "map(f)", 1.0, 1.0), PACKED))),
        INPUT_BOUND,
        "Compression does not pay here: pass compression=None or 'AUTO' to distribute().",
    ),
    "cold start": (
        Situation(FED, two(making=2.0, readers=8.0), first=6.0, total=FED),
        COMPUTE_BOUND,
        "The first element took 6.0 s, which is not counted",
    ),
    "a straggling split": (
        Situation(
            WAITING,
            (task("tcp://a:1", making=9.0), *(task(f"tcp://{n}:1", ended=True) for n in "bc")),
        ),
        STRAGGLER,
        "1 worker of 3 (tcp://a:1) still reads a split, and the others have none left",
    ),
    "two straggling splits": (
        Situation(
            WAITING,
            (*two(making=9.0), *(task(f"tcp://{n}:1", ended=True) for n in "cd")),
        ),
        STRAGGLER,
        "2 workers of 4 (tcp://a:1, tcp://b:1) still read a split, and the others have none left",
    ),
    "a straggling split beside workers that never reported": (
        Situation(WAITING, (task("tcp://a:1", making=9.0),), hosted=3),
        STRAGGLER,
        "1 worker of 3 (tcp://a:1) still reads a split, and the others have none left",
    ),
    "GIL-bound loop": (
        Situation(LoopSums(10.0, 6.0, 100.0, 4.0), two(making=1.0, readers=9.0)),
        COMPUTE_BOUND,
        "other threads of this process hold the interpreter lock",
    ),
    "no worker": (Situation(WAITING), INPUT_BOUND, "No worker hosts a task of this job."),
    "workers that have not reported": (
        Situation(WAITING, hosted=2),
        UNKNOWN,
        "its workers have not reported yet",
    ),
    "no element yet": (
        Situation(LoopSums(), hosted=2),
        UNKNOWN,
        "The loop waits for its first element. The log of its process names what it waits for. See "
        "the newest warnings in `zmqdata top`, and the logs of the workers.",
    ),
    "no element without a worker": (
        Situation(LoopSums(), hosted=0),
        UNKNOWN,
        "The loop waits for its first element. No worker hosts a task of this job.",
    ),
    "operations of this process": (
        Situation(WAITING, two(making=2.0, readers=8.0), served=LoopSums(10.0, 0.1, 100.0)),
        INPUT_BOUND,
        "The operations after distribute() run in this process, and the loop waits 60 % of its "
        "time for them. Move them before distribute(), so that the workers run them, or put "
        "prefetch() behind them.",
    ),
    "an operation of this process": (
        Situation(
            WAITING,
            two(making=2.0, readers=8.0),
            served=LoopSums(10.0, 0.1, 100.0),
            local=("map(f) at train.py:3",),
            is_ahead=True,
        ),
        INPUT_BOUND,
        "map(f) at train.py:3, after distribute(), runs in this process, and the loop waits 60 % of "
        "its time for it. Move it before distribute(), so that the workers run it.",
    ),
    "many operations of this process": (
        Situation(
            WAITING,
            two(making=2.0, readers=8.0),
            served=LoopSums(10.0, 0.1, 100.0),
            local=("a()", "b()", "c()", "d()"),
        ),
        INPUT_BOUND,
        "a(), b() and 2 others, after distribute(), run in this process",
    ),
    "all wait for splits": (
        Situation(WAITING, two(making=1.0, splits=9.0)),
        INPUT_BOUND,
        "The workers wait 90 % of their time for splits",
    ),
    "too early": (
        Situation(LoopSums(0.1, 0.1, 1.0)),
        UNKNOWN,
        "The loop has read only 1 element. Ask again when it has run for some seconds.",
    ),
    "too few batches": (
        Situation(LoopSums(0.4, 0.1, 9.0), total=LoopSums(0.4, 0.1, 9.0), unit="batches"),
        UNKNOWN,
        "The loop has read only 9 batches. Ask again",
    ),
    "no batch yet": (
        Situation(LoopSums(), hosted=2, unit="batches"),
        UNKNOWN,
        "The loop waits for its first batch. The log of its process names what it waits for.",
    ),
    "a loop that asks for nothing": (
        Situation(LoopSums(14.0, 0.1, 0.9), two(readers=10.0), total=WAITING, unit="batches"),
        UNKNOWN,
        "The loop has not asked for another batch lately: it works on this one, pauses, or was "
        "ended by an error, which the log of its process tells. If the loop has ended, close its "
        "iterator.",
    ),
    "elements that take longer than the last seconds": (
        Situation(LoopSums(14.0, 13.0, 0.9), two(making=10.0, elements=0.5), total=WAITING),
        INPUT_BOUND,
        "takes 94 % of the workers' time; with 2 workers the loop waits 93 % of each step",
    ),
    "no element, and workers that die": (
        Situation(LoopSums(), hosted=1, deaths=("was killed by SIGKILL", "ended with exit code 3")),
        UNKNOWN,
        "The loop waits for its first element. Its workers have died 2 times; one ended with exit "
        "code 3. See the newest warnings in `zmqdata top`, and the logs of the workers.",
    ),
    "no worker any more, because they died": (
        Situation(WAITING, hosted=0, deaths=("ended with exit code 3",)),
        INPUT_BOUND,
        "Its workers have died 1 time; one ended with exit code 3.",
    ),
}


@pytest.mark.parametrize("name", SITUATIONS)
def test_the_verdict_is_right(name: str) -> None:
    """Each made situation gets its verdict, with the evidence for it."""
    situation, word, advice = SITUATIONS[name]
    verdict = judge(situation)
    assert (verdict.word, advice in verdict.advice) == (word, True), verdict.advice


def test_a_slow_node_and_a_cold_start_are_both_told() -> None:
    """A loop that waits, and waited long for its first element, is told both."""
    verdict = judge(Situation(WAITING, two(making=10.0), first=8.0, total=WAITING))
    assert verdict.word == INPUT_BOUND
    assert "map(decode)" in verdict.advice
    assert "The first element took 8.0 s" in verdict.advice


def test_a_slow_link_does_not_hide_a_slow_node() -> None:
    """Saturated workers are the limit, however busy their links are."""
    verdict = judge(Situation(WAITING, two(making=9.0, readers=1.0, linked=(0.9, 1e6))))
    assert (verdict.word, verdict.node) == (INPUT_BOUND, DECODE.label)


def test_a_slow_rank_does_not_hide_a_slow_node() -> None:
    """Saturated workers are the limit, however slow another consumer is."""
    others = (ConsumerPace(1, 0.1, False),)
    assert judge(Situation(WAITING, two(making=9.5), consumer=0, others=others)).word == INPUT_BOUND


def test_a_slow_worker_is_told_when_the_others_wait_for_it() -> None:
    """A slow worker that holds up others, which then wait for readers, is named."""
    tasks = (task("tcp://a:1", making=10.0, elements=10.0), *two(making=1.0, readers=9.0))
    tasks = (tasks[0], replace(tasks[1], worker="tcp://b:1"), replace(tasks[2], worker="tcp://c:1"))
    verdict = judge(Situation(WAITING, tasks))
    assert verdict.word == STRAGGLER
    assert verdict.advice.startswith("Worker tcp://a:1 takes 1 s")


@pytest.mark.parametrize("cost", [0.21, 0.35, 0.77, 1.9])
@pytest.mark.parametrize("step", [0.01, 0.04, 0.13])
def test_so_many_workers_feed_the_loop(cost: float, step: float) -> None:
    """The loop waits less than 5 % of its time with the advised number of workers, and
    longer with one fewer.
    """
    waiting = max(0.0, cost / 2 - step)
    loop = LoopSums(100 * (waiting + step), 100 * waiting, 100.0)
    made = TaskSums(10.0, 10.0, elements=10.0 / cost)
    situation = Situation(loop, tuple(TaskEvidence(name, made) for name in "ab"))
    count = needed_workers(situation)
    shares = [max(0.0, 1 - step * workers / cost) for workers in (count, count - 1)]
    assert shares[0] < WAITS
    assert count == 1 or shares[1] >= WAITS


def test_the_busiest_node_is_that_of_the_fullest_threads() -> None:
    """A node on eight threads that are half idle is not the limit, if another keeps its
    only thread busy.
    """
    wide = NodeTime("", "map(f)", 24.0, 24.0, threads=8)
    narrow = NodeTime("0", "from_generator(g)", 9.0, 9.0)
    found = dominant([task(making=10.0, nodes=(wide, narrow))])
    assert found is not None
    assert (found.node, found.share) == (narrow.label, round(9.0 / 33.0, 4))


def test_threads_behind_a_slow_call_count_as_busy() -> None:
    """A node whose other threads wait for one slow call is the limit, although most of
    its threads are idle.
    """
    headed = replace_node(HEADED, total=9.0, recent=9.0)
    found = dominant([task(making=10.0, nodes=(headed, NodeTime("0", "range(9)", 4.0, 4.0)))])
    assert found is not None
    assert (found.node, found.held_up_share) == (headed.label, 0.8)


def test_ended_tasks_are_judged_if_none_runs() -> None:
    """After a pass, its verdict is about all its tasks."""
    verdict = judge(Situation(WAITING, two(making=10.0, ended=True)))
    assert (verdict.word, verdict.node) == (INPUT_BOUND, DECODE.label)


def test_a_profile_advises_without_a_pace() -> None:
    """Without a step to feed, more workers are advised, and no number of them."""
    verdict = judge(Situation(WAITING, two(making=10.0), is_unpaced=True))
    assert verdict.workers_needed == 0
    assert (
        "10 elements per second arrive. Add workers, or make map(decode) faster." in verdict.advice
    )
    batches = judge(Situation(WAITING, two(making=10.0), is_unpaced=True, unit="batches"))
    assert "10 batches per second arrive." in batches.advice
    waits = judge(Situation(WAITING, two(making=1.0, readers=9.0), is_unpaced=True))
    assert "batch() before distribute()" in waits.advice


def test_a_job_that_failed_is_waited_for_by_no_loop() -> None:
    """The error that ended a job is its verdict, however little its loop has read."""
    for loop in (LoopSums(), WAITING):
        found = stats_of(Situation(loop, hosted=0, failure="Element 0 killed its worker."))
        assert (found["data/verdict"], found["data/advice"]) == (
            "FAILED",
            "Element 0 killed its worker.",
        )


def test_stats_are_flat_numbers_and_texts() -> None:
    """Trackers get floats, and without texts nothing else."""
    situation = Situation(WAITING, two(making=10.0), first=0.5, total=WAITING)
    found = stats_of(situation)
    texts = {"data/verdict", "data/advice", "data/node"}
    assert {key for key, value in found.items() if not isinstance(value, float)} == texts
    assert set(stats_of(situation, with_texts=False)) == set(found) - texts
    assert found["data/wait_ms"] == 60.0
    assert found["data/wait_share"] == 0.6
    assert found["data/step_ms"] == 40.0
    assert found["data/workers_needed"] == 5.0
    nothing = stats_of(Situation(LoopSums()))
    assert nothing["data/verdict"] == UNKNOWN
    assert all(nothing[key] == 0.0 for key in set(nothing) - texts)
    assert (found["data/node"], nothing["data/node"]) == (DECODE.label, "")


def test_all_loops_of_a_job_are_fed() -> None:
    """Workers for a job that several loops read are advised for all of them: loops
    without numbers by what each takes, numbered ones by the slowest.
    """
    made = TaskSums(10.0, 10.0, elements=500.0)  # 20 ms for an element
    tasks = tuple(TaskEvidence(name, made) for name in "ab")
    loop = LoopSums(10.0, 5.0, 1000.0)  # steps of 5 ms
    assert needed_workers(Situation(loop, tasks)) == 4
    assert needed_workers(Situation(loop, tasks, demand=200.0)) == 8
    others = (ConsumerPace(1, 0.005, True), ConsumerPace(2, 0.01, True))
    assert needed_workers(Situation(loop, tasks, consumer=0, others=others)) == 6


def test_steps_of_several_elements_count_as_many() -> None:
    """If operations lie between, workers are advised for the elements that they make:
    ten of them for a batch, or a tenth for a row.
    """
    made = TaskSums(10.0, 10.0, elements=500.0)
    tasks = tuple(TaskEvidence(name, made) for name in "ab")
    batches = Situation(LoopSums(10.0, 7.5, 100.0), tasks, served=LoopSums(10.0, 7.5, 1000.0))
    assert needed_workers(batches) == 8
    rows = Situation(LoopSums(10.0, 5.0, 1000.0), tasks, served=LoopSums(10.0, 5.0, 100.0))
    assert needed_workers(rows) == 1


def test_a_loop_without_a_step_of_its_own_gets_no_number() -> None:
    """Workers for a loop that does nothing, or in absurd numbers, are not advised."""
    nothing = Situation(LoopSums(10.0, 9.999, 1000.0), two(making=10.0))
    assert needed_workers(nothing) == 0
    assert "Add workers, or make map(decode) faster." in judge(nothing).advice


def test_a_short_tail_is_no_straggler() -> None:
    """The natural end of a pass, in which the last tasks are still at work, is not
    reported.
    """
    tasks = (task("tcp://a:1", making=9.0), *(task(f"tcp://{n}:1", ended=True) for n in "bc"))
    short = LoopSums(1.0, 0.6, 100.0)
    assert judge(Situation(short, tasks)).word == INPUT_BOUND


def test_an_idle_slow_worker_is_no_straggler() -> None:
    """Workers that wait for readers are not the limit, however different they are."""
    slow = task("tcp://a:1", making=1.0, readers=9.0, elements=10.0)
    fast = task("tcp://b:1", making=1.0, readers=9.0, elements=100.0)
    verdict = judge(Situation(WAITING, (slow, fast), limit=1))
    assert "Raise max_outstanding_requests" in verdict.advice


def test_a_pipeline_that_was_placed_here_is_told() -> None:
    """A loop whose pipeline runs in the training process is told so."""
    verdict = judge(Situation(WAITING, is_here=True))
    assert (verdict.word, "placement='service'" in verdict.advice) == (INPUT_BOUND, True)


def test_a_young_pass_is_compared_with_a_long_loop() -> None:
    """The reader of a pass that has just begun tells as much of the workers that a loop
    over ``repeat`` needs as a reader that is as old as the loop.
    """
    tasks = two(making=10.0)
    old = Situation(WAITING, tasks, served=LoopSums(10.0, 6.0, 100.0))
    young = replace(old, served=LoopSums(1.0, 0.6, 10.0))
    assert needed_workers(young) == needed_workers(old) == needed_workers(replace(old, served=None))


def test_the_need_follows_the_pace_of_the_last_steps() -> None:
    """The need comes from the median of the last steps once it is known. The mean lags
    behind, and a pause spoils it. Operations that make several elements of one, or one
    of several, count as before.
    """
    paused = LoopSums(seconds=60.0, waiting=6.0, elements=100.0)
    found = Situation(paused, two(making=10.0), pace=0.04)
    assert (
        needed_workers(replace(found, pace=0.0)) == needed_workers(replace(found, pace=0.54)) == 1
    )
    assert needed_workers(found) == 5
    served = LoopSums(seconds=60.0, waiting=6.0, elements=200.0)
    assert needed_workers(replace(found, served=served)) == 10
    assert needed_workers(replace(found, demand=25.0)) == 10


@pytest.mark.parametrize(
    ("waiting", "pace", "idle", "pauses"),
    [
        (3, 0.02, 0.9, False),
        (3, 0.02, 1.0, True),
        (3, 2.0, 19.0, False),
        (3, 2.0, 20.0, True),
        (0, 0.02, 60.0, False),
    ],
)
def test_a_pause_lasts_ten_steps_and_a_second(
    waiting: int, pace: float, idle: float, pauses: bool
) -> None:
    """A loop pauses if it has taken nothing for ten of its steps, and at least a
    second, although an element is there.
    """
    assert is_paused(LoopMeasures(waiting=waiting, pace=pace, idle=idle)) is pauses


@pytest.mark.parametrize(("bound", "told"), [(1.24, True), (1.05, False)])
def test_steps_that_cannot_be_equal(bound: float, told: bool) -> None:
    """The advice names the remedies if single elements cost more than mean batches."""
    counts = {"balance/bound": 50 * bound, "balance/means": 50.0}
    advice = judge(Situation(FED, two(making=1.0), counts=counts)).advice
    assert ("1.24 times the mean" in advice) is told
    assert ("a larger `window`, or `max_cost`" in advice) is told
    with_budget = Situation(FED, two(making=1.0), counts=counts | {"balance/room": 1.0})
    advice = judge(with_budget).advice
    assert ("a larger `window`." in advice) is told


def test_advice_on_consumers_names_the_remedy() -> None:
    """Advice on a consumer that others wait for leads to the page on balancing."""
    others = (ConsumerPace(1, step=0.001, waits=True),)
    slow = Situation(replace_node(FED, waiting=0.0), two(), others=others, consumer=0)
    verdict = judge(slow)
    assert verdict.word == STRAGGLER
    assert "the page 'Why do my ranks wait for each other?' says how" in verdict.advice
