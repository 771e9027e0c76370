"""Test how the dispatcher resumes a job from the states of its readers, and for whom it
waits.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.kit.transcript import Transcript
from zmqdata import messages as m
from zmqdata import updates as u
from zmqdata.core.dispatcher import events as e
from zmqdata.core.dispatcher.decider import DispatcherCore, DispatcherTimes
from zmqdata.core.dispatcher.passes import incarnations
from zmqdata.splits import IndexSplits, Split

JOB = m.JobParameters("job", "dataset", "DYNAMIC", consumer_timeout=20.0)
PAIR = replace(JOB, num_consumers=2, finite="drop")
TASK = m.TaskPart(0, 5, None, (0,), ((Split(0, 0, 10),),), (), ((0, 7),), None)


class Desk(Transcript):
    """A dispatcher with a dataset and a worker."""

    core: DispatcherCore

    def __init__(self, *addresses: str) -> None:
        super().__init__(DispatcherCore(1, DispatcherTimes(), addresses))
        description = m.DatasetDescription(
            "d" * 64, "print", (IndexSplits(100),), "", None, -2, None, "3.11", "0"
        )
        self.hear("k", m.RegisterDataset("request", "dataset", description, b"pipeline"))
        self.hear("w", m.RegisterWorker("w", "tcp://w:1", (), "3.11", "0", ()))

    def bring(
        self,
        client: str,
        consumer: int | None = None,
        name: str = "job",
        process: str = "",
        **changes: Any,
    ) -> bytes:
        """Let a client ask to resume from a state, and return the state."""
        job = replace(JOB if consumer is None else PAIR, name=name)
        reader = m.Reader(consumer)
        parts = () if consumer is not None else ("old",)
        plain = m.Checkpoint(
            m.CHECKPOINT_VERSION, job, "print", 0, 11, 0, reader, "old", parts, (), (TASK,), 0, ()
        )
        content = m.encode_checkpoint(replace(plain, **changes))
        which = m.Affiliation(process=process)
        ask = m.OpenIteration(client, job, 0, reader, resume=content, affiliation=which)
        self.hear(client, ask)
        return content

    def wait(self, seconds: float, *asking: Any) -> None:
        """Let time pass, and repeat these calls each second."""
        end = self.now + seconds
        while self.now < end:
            self.now += 0.5
            for ask in asking:
                ask()
            self.feed(e.Tick())

    def refusal(self, client: str) -> m.RequestRefused | None:
        found = [one for one in self.all_of(m.RequestRefused) if one.request == client]
        return found[-1] if found else None


def test_a_lone_reader_goes_on_at_once() -> None:
    """A lone reader is answered at once, its task is hosted with its past, and a
    repeated request changes nothing.
    """
    desk = Desk()
    desk.bring("new")
    assert desk.sent(m.IterationOpened).seed == 11
    assert desk.sent(m.HostTask).definition.skip == ((0, 7),)
    desk.bring("new")
    assert desk.sent(m.IterationOpened).task_list.readers == (m.shown_name("new"),)
    assert len(desk.core.state.iterations) == 1


def test_consumers_wait_for_each_other() -> None:
    """The dispatcher names the missing consumers until the last state has come, and
    then answers all consumers together.
    """
    desk = Desk()
    desk.bring("one", 1)
    assert "consumer 0 of job job" in desk.sent(m.OpenAwaited).missing
    assert not desk.core.state.iterations
    desk.bring("zero", 0)
    assert {opened.client for opened in desk.all_of(m.IterationOpened)} == {"one", "zero"}
    assert next(iter(desk.core.state.iterations.values())).consumers == {0: "zero", 1: "one"}


def test_a_consumer_that_brings_its_state_twice_is_not_alone() -> None:
    """A process that leaves the iteration of its state without a step, and brings the
    state once more, continues there with the consumers that brought theirs once.
    """
    desk = Desk()
    for consumer in (0, 1):
        desk.bring(f"first {consumer}", consumer, process=f"process {consumer}")
    desk.hear("first 0", m.CloseIteration("first 0", 0, {}))
    desk.all_of(m.IterationOpened)
    desk.bring("second 0", 0, process="process 0")
    assert desk.sent(m.IterationOpened).client == "second 0"
    [iteration] = desk.core.state.iterations.values()
    assert iteration.consumers == {0: "second 0", 1: "first 1"}
    desk.hear("first 1", m.CloseIteration("first 1", 0, {}))
    desk.bring("other 1", 1, process="another process")
    assert "consumer 0 of job job" in desk.sent(m.OpenAwaited).missing


def test_a_state_does_not_bring_another_job_into_an_iteration() -> None:
    """A process that brings its state once more for a job with other parameters joins
    no iteration of the former job.
    """
    desk = Desk()
    for consumer in (0, 1):
        content = desk.bring(f"first {consumer}", consumer, process=f"process {consumer}")
    desk.hear("first 1", m.CloseIteration("first 1", 0, {}))
    desk.all_of(m.IterationOpened)
    job, which = replace(PAIR, finite="pad"), m.Affiliation(process="process 1")
    ask = m.OpenIteration("other", job, 0, m.Reader(1), resume=content, affiliation=which)
    desk.hear("other", ask)
    assert desk.all_of(m.IterationOpened) == []


def test_a_consumer_that_has_taken_a_step_begins_anew() -> None:
    """A state that is brought once more after its consumer has taken steps begins
    another iteration, for which all consumers bring their states.
    """
    desk = Desk()
    for consumer in (0, 1):
        desk.bring(f"first {consumer}", consumer, process=f"process {consumer}")
    desk.core.out.commit(u.PassStepsUpdate(next(iter(desk.core.state.iterations)), 0, 1))
    desk.hear("first 0", m.CloseIteration("first 0", 0, {}))
    desk.bring("second 0", 0, process="process 0")
    assert "consumer 1 of job job" in desk.sent(m.OpenAwaited).missing


UNBEGUN: dict[str, Any] = {"fingerprint": "", "seed": 0, "parts": ()}
"""Fields of a state that was taken before the dispatcher had let its reader in."""


def test_consumers_that_were_not_let_in_begin_together() -> None:
    """Consumers whose states know nothing of an iteration wait for each other, and then
    begin one with a seed of its own, whatever else their states claim.
    """
    desk = Desk()
    desk.bring("one", 1, step=7, **UNBEGUN)
    assert "consumer 0 of job job" in desk.sent(m.OpenAwaited).missing
    desk.bring("zero", 0, **UNBEGUN)
    for opened in desk.all_of(m.IterationOpened):
        assert (opened.how, opened.step) == ("loaded", 0)
    assert desk.sent(m.HostTask).definition.skip == ()
    [iteration] = desk.core.state.iterations.values()
    assert iteration.consumers == {0: "zero", 1: "one"}
    assert iteration.seed not in (0, 11)


def test_a_consumer_that_was_not_let_in_begins_the_iteration_of_the_others() -> None:
    """A consumer whose state knows nothing of the iteration begins it at the first
    step, with the tasks and the seed of the other consumers.
    """
    desk = Desk()
    view = m.View(0, ((0, 0),))
    desk.bring("zero", 0, **UNBEGUN)
    desk.bring("one", 1, step=2, views=(view,), parts=())
    assert {one.client: one.step for one in desk.all_of(m.IterationOpened)} == {"zero": 0, "one": 2}
    [iteration] = desk.core.state.iterations.values()
    assert iteration.seed == 11
    assert [task.seed for task in iteration.tasks.values()] == [TASK.seed]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_consumer_that_was_not_let_in_repeats_no_repetition(order: tuple[int, int]) -> None:
    """A consumer that waited for the next repetition is refused beside one that is in
    the former. Without such a one, all begin the newest repetition that a state names.
    """
    desk, states = Desk(), {0: {**UNBEGUN, "repetition": 4}, 1: {"parts": ()}}
    for consumer in order:
        desk.bring(f"old {consumer}", consumer, **states[consumer])
    refusal = desk.refusal("old 0")
    assert refusal is not None
    assert "not of the same iteration" in refusal.text
    states[1] = UNBEGUN
    for consumer in order:
        desk.bring(f"new {consumer}", consumer, **states[consumer])
    [iteration] = desk.core.state.iterations.values()
    assert iteration.repetition == 4


def test_a_reader_that_was_not_let_in_reads_all_again() -> None:
    """A reader without a number returns to its first element by a state that knows no
    iteration, if it or another reader has had elements since. Otherwise it reads with
    its run, as readers do that have no state.
    """
    desk = Desk()
    for name in ("one", "two", "one"):
        desk.bring(name, part=f"saver of {name}", **UNBEGUN)
    assert len(desk.core.state.iterations) == 1
    for number, part in ((2, "saver of one"), (3, m.shown_name("new 2"))):
        for name in list(desk.core.state.client_iteration):
            desk.hear(name, m.CloseIteration(name, 0, {}))
        desk.bring(f"new {number}", part=part, **UNBEGUN)
        assert len(desk.core.state.iterations) == number
    # These have read former iterations, or were loaded by clients that have.
    again = (m.shown_name("one"), m.shown_name("two"), "saver of two")
    for part in again:
        desk.bring(f"again {part}", part=part, **UNBEGUN)
    assert len(desk.core.state.client_iteration) == 1 + len(again)
    assert len(desk.core.state.iterations) == 3


@pytest.mark.parametrize(("had", "iterations"), [(((0, 7),), 2), ((), 1)])
def test_a_process_that_has_read_reads_all_again(had: m.Ranges, iterations: int) -> None:
    """A process that has had elements begins at the first by a state that knows no
    iteration, also after a restart of the dispatcher. A process that has had none reads
    with its run.
    """
    desk = Desk()
    desk.bring("other", part="saver of other", process="another", **UNBEGUN)
    for number in (1, 2):
        desk.bring(f"new {number}", part=f"saver {number}", process="process", **UNBEGUN)
        task = min(desk.core.state.tasks)
        desk.hear(f"new {number}", m.CloseIteration(f"new {number}", 0, {task: had}))
        desk.hear("other", m.CloseIteration("other", 0, {}))
        desk.core.jobs.incarnations._loaded.clear()
    assert len(desk.core.state.iterations) == iterations


@pytest.mark.parametrize("parts", [("known",), ("known", "saver")])
@pytest.mark.parametrize("had", [(), ((0, 7),)])
@pytest.mark.parametrize("first", ["known", "unknown"])
def test_readers_that_saved_before_all_elements_read_together(
    parts: tuple[str, ...], had: m.Ranges, first: str
) -> None:
    """Readers that all saved before their first element read together, in whatever
    order they load, although the dispatcher had answered only one of them. A reader
    that has had elements does not join the others.
    """
    desk = Desk()

    def load(name: str) -> None:
        if name == "unknown":
            desk.bring("unknown", part="saver", process="one", **UNBEGUN)
        else:
            tasks = (replace(TASK, delivered=had),)
            desk.bring("known", part="known", process="two", parts=parts, tasks=tasks)

    load(first)
    load({"known": "unknown", "unknown": "known"}[first])
    together = desk.core.state.client_iteration.keys() == {"known", "unknown"}
    assert together == (not had or first == "known")
    assert len(desk.core.state.iterations) == 1


def test_a_reader_that_saved_before_all_elements_awaits_none_that_has_left() -> None:
    """A reader that saved before its first element does not wait for the state of
    another that has loaded it, read and left.
    """
    desk = Desk()
    desk.bring("unknown", part="saver", **UNBEGUN)
    desk.hear("unknown", m.CloseIteration("unknown", 0, {}))
    tasks = (replace(TASK, delivered=(), total=3),)
    desk.bring("known", part="known", parts=("known", "saver"), tasks=tasks)
    assert desk.core.state.client_iteration.keys() == {"known"}


def test_few_states_without_an_iteration_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dispatcher remembers the newest states that were loaded, up to a limit."""
    monkeypatch.setattr(incarnations, "LOADED_KEPT", 2)
    desk = Desk()
    for name in ("one", "two", "three"):
        desk.bring(name, part=f"saver of {name}", **UNBEGUN)
    assert desk.core.jobs.incarnations._loaded.keys() == {"saver of two", "saver of three"}


def test_a_state_of_a_reader_with_a_long_name_is_refused() -> None:
    """The dispatcher does not remember names that no reader has."""
    desk = Desk()
    desk.bring("new", part="x" * 65, **UNBEGUN)
    refusal = desk.refusal("new")
    assert refusal is not None
    assert "the name of the reader is invalid" in refusal.text
    assert not desk.core.jobs.incarnations._loaded


def test_who_does_not_come_is_named_in_the_end() -> None:
    """The waiting consumers get an error after consumer_timeout that names the missing
    consumers.
    """
    desk = Desk()
    texts: list[str] = []
    ways = (lambda: desk.bring("one", 1), lambda: desk.feed(e.Tick()))
    while not texts and desk.now < 30.0:
        desk.now += 0.5
        for way in ways:
            way()
            texts += [f"{one.error}: {one.text}" for one in desk.all_of(m.RequestRefused)]
    assert 20.0 <= desk.now < 22.0
    assert "UnavailableError: For 20 s" in texts[0]
    assert "consumer 0" in texts[0]


def test_who_asks_no_more_is_forgotten() -> None:
    """The dispatcher does not wait for a reader that died while it waited."""
    desk = Desk()
    desk.bring("one", 1)
    desk.wait(16.0)
    assert not desk.core.jobs.incarnations.gatherings


def test_a_consumer_that_closes_makes_room_for_another() -> None:
    """A new client waits only for the missing consumers, and resumes at once with
    them.
    """
    desk = Desk()
    desk.bring("one", 1)
    desk.bring("again", 1)
    desk.hear("one", m.CloseIteration("one", 0, {}))
    desk.bring("zero", 0)
    assert "consumer 1 of job job" in desk.sent(m.OpenAwaited).missing
    desk.bring("again", 1)
    assert next(iter(desk.core.state.iterations.values())).consumers == {0: "zero", 1: "again"}


def test_a_rival_that_closes_is_not_waited_for() -> None:
    """The client that brought the state resumes as soon as the last of the others
    comes, without waiting for a closed rival.
    """
    desk = Desk()
    desk.bring("one", 1)
    desk.bring("again", 1)
    desk.hear("again", m.CloseIteration("again", 0, {}))
    desk.bring("zero", 0)
    assert next(iter(desk.core.state.iterations.values())).consumers == {0: "zero", 1: "one"}


def test_of_a_reader_that_closes_the_others_need_only_what_it_knew() -> None:
    """Readers resume without a closed reader, whose elements are not delivered again,
    and a gathering without readers ends.
    """
    desk, parts = Desk(), ("a", "b", "c")
    desk.bring("one", part="a", parts=parts)
    desk.hear("one", m.CloseIteration("one", 0, {}))
    assert not desk.core.jobs.incarnations.gatherings
    desk.bring("one", part="a", parts=parts)
    desk.bring("two", part="b", parts=parts, tasks=(replace(TASK, delivered=((0, 3),)),))
    desk.hear("one", m.CloseIteration("one", 0, {}))
    desk.wait(16.0, lambda: desk.bring("two", part="b", parts=parts, tasks=()))
    desk.bring("three", part="c", parts=parts, tasks=())
    assert {opened.client for opened in desk.all_of(m.IterationOpened)} == {"two", "three"}
    assert next(iter(desk.core.state.iterations.values())).clients == {"two", "three"}
    assert desk.sent(m.HostTask).definition.skip == ((0, 7),)


def test_a_state_is_for_one_client() -> None:
    """A second client with the same state has to wait, and is refused while the first
    client repeats its request.
    """
    desk = Desk()
    desk.bring("one", 1)
    desk.bring("other", 1)
    assert "another client, which loads the state of consumer 1" in desk.sent(m.OpenAwaited).missing
    desk.wait(8.0, lambda: desk.bring("one", 1))
    desk.bring("other", 1)
    assert "loaded by another client" in desk.sent(m.RequestRefused).text


def test_who_is_started_again_takes_the_place_of_who_was_killed() -> None:
    """A restarted reader waits until the dispatcher knows that its killed predecessor
    is gone, and then takes its place.
    """
    desk = Desk()
    desk.bring("killed", 1)
    desk.bring("again", 1)
    desk.bring("zero", 0)
    assert not desk.all_of(m.IterationOpened), "the one that was killed would be waited for"
    desk.wait(6.0, lambda: desk.bring("again", 1))
    assert next(iter(desk.core.state.iterations.values())).consumers == {0: "zero", 1: "again"}


def test_a_job_with_living_readers_is_left_alone() -> None:
    """The dispatcher probes the readers of a job, and refuses the state once they have
    answered.
    """
    desk = Desk()
    desk.hear("k", m.OpenIteration("k", JOB, 0))
    desk.bring("new")
    assert "former readers" in desk.sent(m.OpenAwaited).missing
    assert desk.sent(m.Probe)
    answer = m.ClientHeartbeat("k", 0, 0, {}, question=desk.asked["k"])
    desk.wait(3.0, lambda: desk.hear("k", answer))
    desk.bring("new")
    assert desk.sent(m.RequestRefused).error == "FailedPreconditionError"
    assert "k" in desk.core.state.client_iteration


def test_a_job_whose_readers_are_gone_makes_way() -> None:
    """A job whose readers have closed or lost their connection makes way for a
    state.
    """
    desk = Desk()
    desk.hear("k", m.OpenIteration("k", JOB, 0))
    desk.bring("new")
    desk.feed(e.Unreachable("k"))
    desk.bring("new")
    desk.wait(2.0)
    desk.bring("new")
    assert desk.sent(m.IterationOpened).iteration == 2001
    desk.hear("new", m.CloseIteration("new", 0, {}))
    desk.bring("third")
    desk.wait(2.0)
    desk.bring("third")
    assert desk.sent(m.IterationOpened).iteration == 2002
    desk.hear("third", m.CloseIteration("third", 0, {}))


def test_what_cannot_be_put_together_is_told_to_all() -> None:
    """The dispatcher refuses two states of different iterations to both clients."""
    desk = Desk()
    desk.bring("zero", 0)
    desk.bring("one", 1, seed=12)
    assert {refused.request for refused in desk.all_of(m.RequestRefused)} == {"zero", "one"}
    assert not desk.core.state.iterations


def test_who_has_not_heard_a_refusal_is_told_again() -> None:
    """A client that missed a refusal gets it again and does not wait for others; after
    a minute the dispatcher forgets the refusal.
    """
    desk = Desk()
    desk.bring("zero", 0)
    desk.bring("one", 1, seed=12)
    desk.wait(5.0)
    desk.commands.clear()
    desk.bring("one", 1, seed=12)
    refused = desk.refusal("one")
    assert refused is not None
    assert "not of the same iteration" in refused.text
    assert not desk.core.jobs.incarnations.gatherings
    desk.wait(60.0)
    desk.commands.clear()
    desk.bring("one", 1, seed=12)
    assert desk.refusal("one") is None
    assert desk.core.jobs.incarnations.gatherings


def test_a_static_part_that_is_over_stays_over_in_the_next_state() -> None:
    """A client that resumes learns which static parts are finished, as no host makes
    their elements again.
    """
    desk = Desk("tcp://w:1")
    job = replace(JOB, processing_mode="DATA")
    parts = [m.TaskPart(at, 70 + at, at, (), (), (), ((0, 4),), 4 if at else None) for at in (0, 1)]
    checkpoint = m.Checkpoint(
        m.CHECKPOINT_VERSION,
        job,
        "print",
        0,
        11,
        2,
        m.Reader(),
        "old",
        ("old",),
        (),
        tuple(parts),
        0,
        (),
    )
    ask = m.OpenIteration("k", job, 0, resume=m.encode_checkpoint(checkpoint))
    desk.hear("k", ask)
    opened = desk.sent(m.IterationOpened)
    [(task, total)] = opened.totals.items()
    assert total == 4
    assert opened.over[task] == m.Origin(1, 71, 1, 11, 2)
