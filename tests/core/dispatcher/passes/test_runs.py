"""Test which incarnation and repetition of a job each run reads."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.core.dispatcher.rundesk import CLIENT_TIMEOUT, GC, JOB, PAIR, Desk
from zmqdata import messages as m
from zmqdata import updates as u
from zmqdata.core.dispatcher.state.snapshots import snapshot
from zmqdata.core.dispatcher.state.state import DispatcherState

# --- another run


def test_a_script_that_is_run_again_begins_anew() -> None:
    """A run that finds no reader alive begins a new incarnation of the job, which has
    all elements.
    """
    desk = Desk()
    assert desk.place("k", "one") == ("begun", 1, 0)
    desk.close("k")
    assert desk.place("l", "two") == ("begun", 2, 0)


def test_a_crashed_run_is_not_continued() -> None:
    """A run waits until the readers of a dead run are known to be gone, and then begins
    anew.
    """
    desk = Desk()
    desk.open("k", "one")
    assert desk.open("l", "two") is None
    assert "readers of job job" in desk.sent(m.OpenAwaited).missing
    desk.lose("k")
    desk.wait(2.0)
    assert desk.place("l", "two") == ("begun", 2, 0)


def test_a_silent_reader_is_gone_after_the_time_out() -> None:
    """A reader that keeps its connection and says nothing is taken for gone after the
    client time-out.
    """
    desk = Desk()
    desk.open("k", "one")
    desk.open("l", "two")
    desk.wait(CLIENT_TIMEOUT - 1.0)
    assert desk.open("l", "two") is None
    desk.wait(2.0)
    assert desk.place("l", "two") == ("begun", 2, 0)


def test_runs_that_overlap_share() -> None:
    """A run that finds a living reader of another run reads the same repetition."""
    desk = Desk()
    desk.open("k", "one")
    assert desk.open("l", "two") is None
    desk.speak("k")
    assert desk.place("l", "two") == ("joined", 1, 0)


def test_a_run_that_shares_counts_from_where_it_joined() -> None:
    """The first repetition of a run that joins is the newest, or the next if that is
    finished; its later ones follow.
    """
    desk = Desk()
    desk.open("k", "one")
    desk.finish(1, 0, "k")
    desk.open("k2", "one", 1)
    desk.open("l", "two")
    desk.speak("k2")
    assert desk.place("l", "two") == ("joined", 1, 1)
    desk.finish(1, 1, "k2", "l")
    assert desk.place("l2", "two", 1) == ("follows", 1, 2)
    assert desk.place("k3", "one", 2) == ("follows", 1, 2)


def test_a_reader_is_asked_whether_it_lives() -> None:
    """A reader that may be alive is asked the same question each time that a new run
    asks.
    """
    desk = Desk()
    desk.open("k", "one")
    for _ in range(2):
        desk.open("l", "two")
        assert desk.sent(m.Probe) == m.Probe(m.Question(desk.core.out.mark, 1))


def test_an_old_incarnation_stays_with_its_readers() -> None:
    """A run that comes back from a pause finds its own incarnation, although the name
    has begun anew meanwhile.
    """
    desk = Desk()
    desk.open("k", "one")
    desk.finish(1, 0, "k")
    assert desk.place("l", "two") == ("begun", 2, 0)
    assert desk.place("k2", "one", 1) == ("follows", 1, 1)
    desk.finish(2, 0, "l")
    assert desk.place("l2", "two", 1) == ("follows", 2, 1)


def test_an_old_incarnation_is_collected_sooner() -> None:
    """An incarnation that was replaced is collected one client time-out after its last
    reader, the newest one only after ``gc_timeout``.
    """
    desk = Desk()
    desk.open("k", "one")
    desk.close("k")
    desk.open("l", "two")
    desk.close("l")
    desk.wait(CLIENT_TIMEOUT + 2.0)
    assert [one.number for one in desk.core.state.living] == [2]
    desk.wait(GC)
    assert desk.core.state.living == []


def test_a_finished_repetition_stays_finished_after_it_was_collected() -> None:
    """A late member of a run finds a finished repetition finished, also after its
    iteration was collected.
    """
    desk = Desk()
    desk.open("k", "one", member="0")
    desk.finish(1, 0, "k")
    desk.wait(GC + 2.0)
    late = desk.opened("l", "one", member="1")
    assert (late.incarnation, late.repetition, late.finished) == (1, 0, True)
    assert desk.place("k2", "one", 1, member="0") == ("follows", 1, 1)


def test_what_was_collected_half_read_begins_anew() -> None:
    """A run that comes back to a repetition that was collected half read begins a new
    incarnation: no element comes twice within one.
    """
    desk = Desk()
    desk.open("k", "one")
    desk.close("k")
    desk.wait(GC + 2.0)
    assert desk.place("l", "one") == ("begun", 2, 0)


# --- one run


def test_members_of_a_run_read_together() -> None:
    """Members of a run read the same repetition, and a late rank does, too, although
    the others have finished it.
    """
    desk = Desk()
    assert desk.place("a", "one", member="0") == ("begun", 1, 0)
    assert desk.place("b", "one", member="1") == ("follows", 1, 0)
    desk.finish(1, 0, "a")
    desk.close("b", at_end=True)
    assert desk.place("c", "one", member="2") == ("follows", 1, 0)


def test_a_new_rank_does_not_follow_a_launch_that_broke_off() -> None:
    """A rank that its run does not know yet begins anew if all others have left what
    they had not finished, and the others follow it.
    """
    desk = Desk()
    for rank in "01":
        desk.opened(f"old {rank}", "one", member=rank, process=f"old {rank}")
    desk.close("old 0", "old 1")
    assert desk.place("2", "one", member="2", process="new 2") == ("begun", 2, 0)
    assert desk.place("0", "one", member="0", process="new 0") == ("follows", 2, 0)


def test_a_child_that_trains_beside_its_parent_reads_what_that_reads() -> None:
    """A child that makes its own dataset reads the repetition that others of its family
    read, with or without a rank, whatever they have read before.
    """
    for rank in ("", "0"):
        desk = Desk()
        for number in range(3):
            desk.opened(f"{number}", "one", number, member=rank, process="parent")
            if number < 2:
                desk.finish(1, number, f"{number}")
        who = {"member": rank, "process": "child", "is_fresh": True}
        assert desk.place("k", "one", **who) == ("follows", 1, 2)


@pytest.mark.parametrize("dies", [True, False])
def test_a_child_that_follows_another_begins_anew(dies: bool) -> None:
    """A child that makes its own dataset begins anew if the child before it has died,
    or has stopped before the end.
    """
    desk = Desk()
    desk.open("a", "one", process="a", is_fresh=True)
    if dies:
        desk.lose("a")
    else:
        desk.close("a")
    assert desk.place("b", "one", process="b", is_fresh=True) == ("begun", 2, 0)


def test_a_parent_reads_everything_after_a_child_that_stopped() -> None:
    """A process whose child has begun their run anew and stopped early reads a
    repetition of which nothing is gone.
    """
    desk = Desk()
    desk.open("e0", "one", process="parent")
    desk.finish(1, 0, "e0")
    assert desk.place("child", "one", process="child", is_fresh=True) == ("begun", 2, 0)
    desk.close("child")
    assert desk.place("e1", "one", 1, process="parent") == ("follows", 2, 1)


def test_a_restarted_group_begins_anew() -> None:
    """If the processes of a run are gone, a rank in a new process begins anew, and the
    other ranks follow it.
    """
    desk = Desk()
    for rank in "01":
        desk.opened(f"old {rank}", "one", member=rank, process=f"old {rank}")
    assert desk.open("new 0", "one", member="0", process="new 0") is None
    desk.lose("old 0", "old 1")
    desk.wait(2.0)
    assert desk.place("new 0", "one", member="0", process="new 0") == ("begun", 2, 0)
    assert desk.place("new 1", "one", member="1", process="new 1") == ("follows", 2, 0)


def test_a_restarted_rank_joins_the_others() -> None:
    """A rank that is restarted alone reads the repetition that the others are at."""
    desk = Desk()
    for rank in "01":
        desk.opened(f"old {rank}", "one", member=rank, process=f"old {rank}")
    desk.finish(1, 0, "old 0", "old 1")
    for rank in "01":
        desk.opened(f"next {rank}", "one", 1, member=rank, process=f"old {rank}")
    desk.lose("next 0")
    desk.wait(2.0, "next 1")
    assert desk.place("new 0", "one", member="0", process="new 0") == ("restarted", 1, 1)
    assert desk.place("after", "one", 1, member="0", process="new 0") == ("follows", 1, 2)


def test_a_rank_that_opens_first_after_a_crash_does_not_follow_the_dead() -> None:
    """A rank that its run does not know yet begins anew if only readers that have been
    silent for the time-out have read for the run, and the others follow it.
    """
    desk = Desk()
    desk.open("old 0", "one", member="0", process="old 0")
    desk.lose("old 0")
    desk.wait(CLIENT_TIMEOUT)
    assert desk.place("new 1", "one", member="1", process="new 1") == ("begun", 2, 0)
    assert desk.place("new 0", "one", member="0", process="new 0") == ("follows", 2, 0)


def test_a_new_rank_waits_for_those_that_are_cut_off() -> None:
    """A rank that its run does not know yet follows the others, although none of them
    has had a connection for some seconds.
    """
    desk = Desk()
    desk.open("k", "one", member="0", process="0")
    desk.lose("k")
    for _ in range(3):
        desk.wait(2.0)
        assert desk.open("l", "one", member="1", process="1") is None
    desk.lost.clear()
    assert desk.place("l", "one", member="1", process="1") == ("follows", 1, 0)


def test_ranks_between_passes_meet_a_rank_that_is_restarted() -> None:
    """Ranks whose run began anew while they were between two passes read on where
    the restarted rank reads.
    """
    desk = Desk()
    for rank in "01":
        desk.opened(rank, "one", 4, member=rank, process=f"old {rank}")
    desk.close("0", "1", at_end=True)
    assert desk.place("new", "one", member="0", process="new 0") == ("begun", 2, 0)
    assert desk.place("next", "one", 5, member="1", process="old 1") == ("follows", 2, 0)
    desk.finish(2, 0, "new", "next")
    assert desk.place("later", "one", 6, member="1", process="old 1") == ("follows", 2, 1)


def test_a_restarted_rank_asks_for_what_its_run_asks_for() -> None:
    """A restarted rank that asks for another ``on_existing`` than the living ranks is
    refused.
    """
    desk = Desk()
    for rank in "01":
        desk.opened(rank, "one", member=rank, process=f"old {rank}")
    desk.lose("0")
    desk.wait(2.0, "1")
    desk.open("new", "one", member="0", process="new 0", on_existing="new")
    desk.wait(2.0, "1")
    desk.open("new", "one", member="0", process="new 0", on_existing="new")
    assert "disagree about job job" in desk.refusal().text


def test_children_with_the_rank_of_their_parent_are_members_of_their_own() -> None:
    """Two living processes with one rank read the same repetitions, and neither takes
    the place of the other.
    """
    desk = Desk()
    found = []
    for number in range(3):
        for child in "ab":
            client = f"{number} {child}"
            found.append(desk.place(client, "one", number, member="0", process=child))
    assert [(how, repetition) for how, _, repetition in found[1:]] == [
        ("follows", number) for number in (0, 1, 1, 2, 2)
    ]


def test_a_program_that_is_started_again_under_its_key_may_ask_for_something_else() -> None:
    """A rank in a new process whose predecessors are gone may change what it asks for,
    and its parameters, as any new run.
    """
    desk = Desk()
    desk.open("old", "one", member="0", process="old")
    desk.close("old")
    changed = replace(JOB, processing_mode="OFF")
    new = {"member": "0", "process": "new", "on_existing": "new"}
    assert desk.place("new", "one", job=changed, **new) == ("begun", 2, 0)


def test_a_child_that_trains_after_the_others_begins_anew() -> None:
    """A process that makes its own dataset after all others of its family have ended
    their training begins anew; a copy finds the repetition finished.
    """
    desk = Desk()
    desk.open("k", "one", process="first", is_fresh=True)
    desk.finish(1, 0, "k")
    assert desk.place("copy", "one", process="copy") == ("follows", 1, 0)
    desk.close("copy")
    assert desk.place("l", "one", process="second", is_fresh=True) == ("begun", 2, 0)


def test_the_oldest_run_that_reads_nothing_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond a number of runs, the dispatcher forgets the oldest that no client reads
    for, by an update that its journal has; the newest stays.
    """
    monkeypatch.setattr("zmqdata.core.dispatcher.passes.runs.RUNS_KEPT", 2)
    desk = Desk()
    for run in ("one", "two", "three"):
        desk.open(run, run, on_existing="new")
        if run != "one":
            desk.close(run)
    assert [run for _, run in desk.core.state.runs] == ["one", "three"]
    copy = DispatcherState()
    for update in snapshot(desk.core.state):
        copy.apply(update)
    assert vars(copy) == vars(desk.core.state)


def test_a_process_without_a_rank_is_believed() -> None:
    """A process that names the run of another without a rank joins it."""
    desk = Desk()
    desk.open("k", "one", process="p")
    desk.close("k")
    assert desk.place("l", "one", process="q") == ("follows", 1, 0)


# --- data loaders


def worker_of(seed: int, worker: int, process: str, turn: int = 0) -> m.ReadingPass:
    return m.ReadingPass(seed, turn, worker, process)


def test_workers_of_a_data_loader_read_one_repetition_after_the_other() -> None:
    """The workers of a data loader's pass read one repetition, and those of its next
    pass the next, whoever comes first.
    """
    desk = Desk()
    found = []
    for repetition in range(3):
        for worker in (0, 1) if repetition != 1 else (1, 0):
            client = f"{repetition}.{worker}"
            part = worker_of(7 + repetition, worker, f"process {client}")
            found.append(desk.place(client, "one", reading_pass=part)[2])
        desk.finish(1, repetition, f"{repetition}.0", f"{repetition}.1")
    assert found == [0, 0, 1, 1, 2, 2]


def test_a_data_loader_may_use_its_seed_again() -> None:
    """A worker in another process begins the next pass, although the seed is the
    same.
    """
    desk = Desk()
    found = [
        desk.place(
            f"{repetition}.{worker}",
            "one",
            reading_pass=worker_of(7, worker, f"{repetition}{worker}"),
        )
        for repetition in range(2)
        for worker in range(2)
    ]
    assert [repetition for _, _, repetition in found] == [0, 0, 1, 1]


def test_workers_that_stay_count_their_turns() -> None:
    """A worker that lives on begins the next pass when it iterates again."""
    desk = Desk()
    found = [
        desk.place(f"{turn}.{worker}", "one", reading_pass=worker_of(7, worker, f"p{worker}", turn))
        for turn in range(2)
        for worker in range(2)
    ]
    assert [repetition for _, _, repetition in found] == [0, 0, 1, 1]


def test_a_program_may_read_by_itself_and_by_a_data_loader() -> None:
    """Passes of data loaders and iterators of the process itself count on from each
    other.
    """
    desk = Desk()
    found = [
        desk.place("a", "one", 0),
        desk.place("b", "one", reading_pass=worker_of(7, 0, "p")),
        desk.place("c", "one", 1),
        desk.place("d", "one", reading_pass=worker_of(8, 0, "q")),
        desk.place("e", "one", 2),
    ]
    assert [repetition for _, _, repetition in found] == [0, 1, 2, 3, 4]


def test_each_rank_counts_the_passes_of_its_own_data_loader() -> None:
    """The first pass of each rank is the same repetition, whatever seeds the data
    loaders have.
    """
    desk = Desk()
    found = [
        desk.place(
            f"{repetition}.{rank}",
            "one",
            member=rank,
            process=f"rank {rank}",
            reading_pass=worker_of(10 * repetition + int(rank), 0, f"{repetition} {rank}"),
        )[2]
        for repetition in range(2)
        for rank in "01"
    ]
    assert found == [0, 0, 1, 1]


# --- what a user may ask for


def test_a_run_may_begin_anew_beside_a_living_one() -> None:
    """``on_existing="new"`` begins a new incarnation; the other run keeps its own."""
    desk = Desk()
    desk.open("k", "one")
    assert desk.place("l", "two", on_existing="new") == ("begun", 2, 0)
    assert desk.place("l2", "two", 1, on_existing="new") == ("follows", 2, 1)
    assert desk.place("k2", "one", 1) == ("follows", 1, 1)


def test_a_run_may_continue_what_another_has_left() -> None:
    """``on_existing="continue"`` reads the newest repetition on, once its readers are
    gone.
    """
    desk = Desk()
    desk.open("k", "one")
    desk.close("k")
    assert desk.place("l", "two", on_existing="continue") == ("continued", 1, 0)


def test_a_run_does_not_continue_what_is_being_read() -> None:
    """``on_existing="continue"`` is refused while a reader is alive."""
    desk = Desk()
    desk.open("k", "one")
    desk.open("l", "two", on_existing="continue")
    desk.speak("k")
    desk.open("l", "two", on_existing="continue")
    assert desk.refusal().error == "FailedPreconditionError"
    assert "has living readers" in desk.refusal().text


def test_a_run_may_refuse_to_share() -> None:
    """``on_existing="error"`` refuses a job that exists, and lets a run begin one."""
    desk = Desk()
    assert desk.place("k", "one", on_existing="error") == ("begun", 1, 0)
    assert desk.place("k2", "one", 1, on_existing="error") == ("follows", 1, 1)
    desk.open("l", "two", on_existing="error")
    assert desk.refusal().error == "AlreadyExistsError"


def test_members_of_a_run_agree() -> None:
    """A member that asks for another ``on_existing`` than its run is refused."""
    desk = Desk()
    desk.open("k", "one", on_existing="new")
    desk.open("l", "one", process="other")
    assert desk.refusal().error == "InvalidArgumentError"
    assert "on_existing='new', this one 'share'" in desk.refusal().text


def test_an_unknown_rule_is_refused() -> None:
    """An unknown value of ``on_existing`` is an error that lists the values."""
    desk = Desk()
    desk.open("k", "one", on_existing="maybe")
    assert "share, new, continue, error, got 'maybe'" in desk.refusal().text


def test_a_changed_script_begins_anew() -> None:
    """A run with other parameters is refused by a living job, and begins anew where no
    reader lives.
    """
    desk = Desk()
    changed = replace(JOB, processing_mode="OFF")
    desk.open("k", "one")
    desk.open("l", "two", job=changed)
    desk.speak("k")
    desk.open("l", "two", job=changed)
    assert "different parameters" in desk.refusal().text
    desk.close("k")
    assert desk.place("n", "three", job=changed) == ("begun", 2, 0)


# --- kinds of jobs


def test_a_consumer_that_is_started_again_takes_its_seat() -> None:
    """A run that finds a living consumer takes a free seat beside it."""
    desk = Desk()
    for consumer in (0, 1):
        desk.open(f"k{consumer}", "one", job=PAIR, consumer=consumer)
    desk.close("k1")
    desk.open("new", "two", job=PAIR, consumer=1)
    desk.speak("k0")
    assert desk.place("new", "two", job=PAIR, consumer=1) == ("joined", 1, 0)


def test_consumers_that_are_all_started_again_begin_anew() -> None:
    """Consumers whose predecessors are gone begin anew together, also if each is a run
    of its own.
    """
    desk = Desk()
    for consumer in (0, 1):
        desk.open(f"k{consumer}", "one", job=PAIR, consumer=consumer)
    desk.close("k0", "k1")
    assert desk.place("l0", "two", job=PAIR, consumer=0) == ("begun", 2, 0)
    desk.open("l1", "three", job=PAIR, consumer=1)
    desk.speak("l0")
    assert desk.place("l1", "three", job=PAIR, consumer=1) == ("joined", 2, 0)


def test_a_promised_order_is_for_one_run() -> None:
    """Another run of a job with a promised order and a single reader begins anew, also
    while the first is read.
    """
    desk = Desk()
    single = replace(PAIR, num_consumers=1)
    desk.open("k", "one", job=single, consumer=0)
    assert desk.place("l", "two", job=single, consumer=0) == ("begun", 2, 0)


def test_runs_that_share_a_cache_always_join() -> None:
    """A run that shares a cross-trainer cache reads the same pass, whether others live
    or not.
    """
    desk = Desk()
    cached = replace(JOB, cache=True)
    desk.open("k", "one", job=cached)
    desk.close("k")
    assert desk.place("l", "two", job=cached) == ("joined", 1, 0)


@pytest.mark.parametrize("reader", ["closed", "alive"])
def test_runs_of_local_shards_look_at_their_own_shard(reader: str) -> None:
    """A run whose shard was never read joins; one whose shard was read begins anew if
    its reader is gone, and shares if it lives.
    """
    desk = Desk("w0", "w1", colocated=True)
    static = replace(JOB, processing_mode="DATA")
    for number in (0, 1):
        worker = f"w{number}"
        desk.hear(worker, m.RegisterWorker(worker, f"tcp://{worker}:1", (), "3.11", "0", ()))
    assert desk.place("k0", "one", job=static, local=("tcp://w0:1",)) == ("begun", 1, 0)
    assert desk.place("k1", "two", job=static, local=("tcp://w1:1",)) == ("begun", 1, 0)
    if reader == "closed":
        desk.close("k0")
        assert desk.place("l0", "three", job=static, local=("tcp://w0:1",)) == ("begun", 2, 0)
    else:
        desk.open("l0", "three", job=static, local=("tcp://w0:1",))
        desk.speak("k0")
        assert desk.place("l0", "three", job=static, local=("tcp://w0:1",)) == ("joined", 1, 0)


def test_a_reader_of_a_local_shard_is_told_of_its_own_shard() -> None:
    """The dispatcher tells the reader of a local shard what is gone of that shard, and
    not what others have read of theirs.
    """
    desk = Desk("w0", "w1", colocated=True)
    static = replace(JOB, processing_mode="DATA")
    for number in (0, 1):
        worker = f"w{number}"
        desk.hear(worker, m.RegisterWorker(worker, f"tcp://{worker}:1", (), "3.11", "0", ()))
    desk.open("k0", "one", job=static, local=("tcp://w0:1",))
    task = desk.core.state.incarnations[1].iterations[0].live_tasks[0]
    desk.core.out.commit(u.DeliverUpdate(task.task, ((0, 5),)))
    desk.core.out.commit(u.EndTaskUpdate(task.task, 5))
    other = desk.opened("k1", "two", job=static, local=("tcp://w1:1",))
    assert (other.delivered, other.finished) == (0, False)
    late = desk.opened("k2", "one", job=static, local=("tcp://w0:1",))
    assert (late.delivered, late.finished) == (5, True)


# --- durable


def test_bindings_outlive_a_dispatcher() -> None:
    """A dispatcher that is started again knows which run reads what."""
    desk = Desk()
    desk.open("k", "one", member="0", reading_pass=worker_of(7, 0, "p"))
    desk.close("k")
    desk.open("l", "two")
    copy = DispatcherState()
    for update in snapshot(desk.core.state):
        copy.apply(update)
    assert vars(copy) == vars(desk.core.state)
    assert copy.runs["job", "one"].passes["0"][0].workers == {0: "p"}
