"""Test the order of workers and clients by load."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from zmqdata.core.dispatcher.state.loads import Hosts, Loads

NAMES = st.sampled_from("abcde")


@given(st.lists(st.tuples(NAMES, st.integers(-2, 3))))
def test_the_order_is_that_of_the_loads(changes: list[tuple[str, int]]) -> None:
    """Names are ordered by load after any change, and a name without load is absent."""
    loads, counts = Loads(), dict.fromkeys("abcde", 0)
    for name, more in changes:
        counts[name] = max(0, counts[name] + more)
        if counts[name]:
            loads.put(name, counts[name])
        else:
            loads.remove(name)
    present = {name: count for name, count in counts.items() if count}
    assert [counts[name] for name in loads.lightest()] == sorted(present.values())
    assert [counts[name] for name in loads.heaviest()] == sorted(present.values(), reverse=True)
    assert set(loads.lightest()) == set(present)
    assert loads.most() == max(present.values(), default=0)


EVENTS = st.tuples(
    st.sampled_from(["place", "end", "remove"]), st.integers(1, 4), st.sampled_from(["", "a", "b"])
)


@given(st.lists(EVENTS))
def test_tasks_are_where_they_were_placed(events: list[tuple[str, int, str]]) -> None:
    """A task counts at its worker or at none until it is removed, and an ended task
    does not count as running.
    """
    hosts, worker, ended = Hosts(), dict[int, str](), set[int]()
    for what, task, name in events:
        if what == "place":
            if task not in worker:
                ended.discard(task)
            hosts.place(task, name)
            worker[task] = name
        elif what == "remove":
            hosts.remove(task)
            worker.pop(task, None)
        elif task in worker:
            hosts.end(task)
            ended.add(task)
    for name in ("", "a", "b"):
        assert hosts.of(name) == sorted(task for task, at in worker.items() if at == name)
        assert hosts.running_of(name) == sorted(
            task for task in hosts.of(name) if task not in ended
        )
        assert hosts.has(name) == bool(hosts.of(name))
    running = {name: len(hosts.running_of(name)) for name in ("a", "b") if hosts.running_of(name)}
    assert set(hosts.running.lightest()) == set(running)
    assert hosts.running.most() == max(running.values(), default=0)
