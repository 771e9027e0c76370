"""Tests of ``zmqdata.core.dispatcher.tasks.placement``."""

from __future__ import annotations

from zmqdata import updates as u
from zmqdata.core.dispatcher.state.state import DispatcherState
from zmqdata.core.dispatcher.state.tasks import Iteration, Task
from zmqdata.core.dispatcher.tasks.placement import MOST_SENT_AGAIN, Placement, WorkerFacts
from zmqdata.messages import DatasetDescription, IdleWorkers, JobParameters
from zmqdata.splits import IndexSplits


class Listed:
    """Places by the order of a list of addresses."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = addresses

    def __len__(self) -> int:
        return len(self.addresses)

    def index(self, address: str) -> int | None:
        return self.addresses.index(address) if address in self.addresses else None


def placed(*names: str, places: Listed | None = None, colocated: bool = False) -> Placement:
    placement = Placement(places, colocated)
    for name in names:
        placement.add(name, WorkerFacts(name, (), "3.11"))
    return placement


def iteration(
    mode: str = "DYNAMIC", target: str = "AUTO", **local_workers: tuple[str, ...]
) -> Iteration:
    job = JobParameters("job", "dataset", mode, target_workers=target)
    openings = {
        client: u.OpenClientUpdate(client, 2000, own) for client, own in local_workers.items()
    }
    return Iteration(2000, job, 0, 7, [], openings=openings, clients=set(local_workers))


def task(shard: int | None = None) -> Task:
    return Task(4000, 2000, 1, [], shard=shard)


def test_without_a_list_there_are_no_shards() -> None:
    """Without a list any worker may host a task without a static part, and no worker a
    static part.
    """
    placement = placed("a")
    assert placement.num_shards == 0
    assert placement.is_place_of(task(), "a")
    assert not placement.is_place_of(task(0), "a")


def test_a_worker_is_the_place_of_its_part() -> None:
    """The n-th configured worker is the place of shard n."""
    placement = placed("a", "b", places=Listed("a", "b", "c"))
    assert placement.num_shards == 3
    assert [placement.is_place_of(task(shard), "b") for shard in range(3)] == [False, True, False]


def test_the_least_busy_worker_is_the_best() -> None:
    """A task goes to the worker with the fewest tasks that may host it."""
    placement = placed("a", "b")
    placement.assign("a", task(), iteration())
    assert placement.best(task(), iteration()) == "b"
    placement.drop("a", 4000)
    placement.assign("b", task(), iteration())
    assert placement.best(task(), iteration()) == "a"
    assert placed().best(task(), iteration()) is None


def test_local_jobs_stay_local() -> None:
    """A LOCAL job is hosted by the workers beside its clients, and each client reads
    its own.
    """
    placement = placed("a", "b", "c")
    local = iteration(target="LOCAL", k=("a",), l=("b",))
    assert [placement.may_host(name, local) for name in "abc"] == [True, True, False]
    assert placement.hosts(local) == 2
    assert [placement.reader("k", local)(name) for name in "abc"] == [True, False, False]
    assert placement.reader("k", local)("gone")


def test_a_local_shard_waits_for_its_worker() -> None:
    """A local static part goes only to its own worker."""
    placement = placed("a", "b", places=Listed("a", "b"), colocated=True)
    static = iteration("DATA", k=("a",), l=("b",))
    assert placement.stays(task(1), static)
    assert placement.best(task(1), static) == "b"
    placement.remove("b")
    assert placement.best(task(1), static) is None
    assert placement.best(task(1), iteration("DATA", target="ANY")) == "a"


def test_a_worker_forgets_a_task() -> None:
    """The worker's record drops a task with its leases, and ignores an unknown task."""
    placement = Placement()
    placement.add("a", WorkerFacts("a", (), "3.11", tasks={1}, leases={1: {0: (1, 0.0)}}))
    placement.drop("a", 1)
    placement.drop("a", 2)
    placement.drop("gone", 1)
    assert (placement.facts["a"].tasks, placement.facts["a"].leases) == (set(), {})


def test_workers_of_a_former_dispatcher_are_taken_over() -> None:
    """A restarted dispatcher takes over the committed facts of its workers with their
    unsettled tasks.
    """
    state = DispatcherState()
    description = DatasetDescription(
        "digest", "print", (IndexSplits(10),), "", None, -2, None, "3.11", "0"
    )
    for update in (
        u.AddWorkerUpdate("w", "tcp://w:1", ("GPU",), "3.11", "host:7"),
        u.RegisterDatasetUpdate("dataset", description),
        u.BeginIncarnationUpdate(1, JobParameters("job", "dataset", "DYNAMIC")),
        u.CreateIterationUpdate(2000, 1, 0, 7),
        u.CreateTaskUpdate(4000, 2000, 8),
        u.CreateTaskUpdate(4001, 2000, 8),
        u.HostTaskUpdate(4000, 1, "w"),
        u.HostTaskUpdate(4001, 1, "w"),
        u.RemoveTaskUpdate(4001),
    ):
        state.apply(update)
    placement = Placement()
    placement.restore(state)
    facts = WorkerFacts("tcp://w:1", ("GPU",), "3.11", "host:7", tasks={4000})
    facts.inherited = {4000}
    assert placement.facts == {"w": facts}


def shared(placement: Placement, *hosts: str) -> Iteration:
    """Return an iteration with a fixed number of tasks, each at the given host or
    without a host.
    """
    job = JobParameters("job", "dataset", "DYNAMIC", num_tasks=len(hosts))
    tasks = {number: Task(number, 2000, 1, [], worker=name) for number, name in enumerate(hosts)}
    return Iteration(2000, job, 0, 7, [], tasks=tasks, running=len(hosts))


def test_orphans_are_shared_evenly() -> None:
    """A worker takes its even share of unhosted tasks, and leaves as many for each
    other worker.
    """
    placement = placed("a", "b", "c")
    found = shared(placement, "", "", "", "", "a", "a", "a")
    orphans = [one for one in found.live_tasks if not one.worker]
    assert [one.task for one in placement.share_of("b", found, orphans)] == [0, 1, 2]
    assert placement.share_of("a", found, orphans) == []


def test_orphans_that_have_come_to_their_end_are_shared_too() -> None:
    """Ended tasks without a host are shared too, as a worker must make their
    undelivered elements again.
    """
    placement = placed("a", "b")
    found = shared(placement, "", "", "", "")
    for number in (0, 1, 2):
        found.tasks[number].total, found.running = 9, 1
    assert [one.task for one in placement.share_of("b", found, list(found.live_tasks))] == [0, 1]
    for number in (0, 1):
        found.tasks[number].worker = "b"
    assert [one.task for one in placement.share_of("a", found, list(found.live_tasks)[2:])] == [
        2,
        3,
    ]


def test_a_newcomer_takes_from_those_who_have_most() -> None:
    """A new worker takes running tasks from the busiest workers until no worker has two
    more than another.
    """
    placement = placed("a", "b", "c")
    found = shared(placement, "a", "a", "a", "a", "b", "b")
    assert [one.worker for one in placement.share_of("c", found, [])] == ["a", "a"]
    found.tasks[3].total = 7
    assert [one.task for one in placement.share_of("c", found, [])] == [2]
    assert placement.share_of("b", found, []) == []


def test_of_many_missing_tasks_some_are_sent_again() -> None:
    """A report resends a limited number of missing tasks, the same until the worker has
    them, so that slow workers are not flooded.
    """
    facts, missing = WorkerFacts("tcp://w", (), ""), list(range(3 * MOST_SENT_AGAIN))
    assert facts.lost_tasks(missing) == []
    assert facts.lost_tasks(missing) == facts.lost_tasks(missing) == missing[:MOST_SENT_AGAIN]
    assert (
        facts.lost_tasks(missing[MOST_SENT_AGAIN:]) == missing[MOST_SENT_AGAIN:][:MOST_SENT_AGAIN]
    )
    assert facts.lost_tasks([]) == facts.lost_tasks(missing) == []


def test_idle_workers_are_counted_for_clients_that_wait() -> None:
    """While no worker hosts a task of an iteration, its clients hear how many workers
    are registered, and how many of them may host its tasks.
    """
    placement, waiting = placed("a", "b"), iteration()
    placement.add("c", WorkerFacts("c", ("COLOCATED",), "3.11"))
    placement.drain("b")
    assert placement.idle_workers(waiting) == IdleWorkers(3, 1)
    assert placement.idle_workers(iteration(target="LOCAL", k=("z",))) == IdleWorkers(3, 0)
    waiting.hosts.place(4000, "")
    assert placement.idle_workers(waiting) == IdleWorkers(3, 1)
    waiting.hosts.place(4000, "a")
    assert placement.idle_workers(waiting) is None


def test_a_task_goes_where_its_dataset_is_open() -> None:
    """A task goes to the worker that keeps what it would open, unless that has two more
    tasks than another, is gone or may not host it.
    """
    placement = placed("a", "b")
    assert [placement.best(task(), iteration(), one) for one in ("b", "a", "c")] == ["b", "a", "a"]
    for number in range(3):
        assert placement.best(task(), iteration(), "b") == ("b" if number < 2 else "a")
        placement.assign("b", Task(5000 + number, 2000, 1, []), iteration())
    assert placement.best(task(), iteration(target="LOCAL", k=("a",)), "b") == "a"
