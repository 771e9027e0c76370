"""Test which lines of functions are sent to clients, and to which client."""

from __future__ import annotations

from tests.core.worker.test_decider import Host
from zmqdata import messages as m
from zmqdata.core.worker import events as e
from zmqdata.core.worker.tasklog import LINES_KEPT, KeptLines, LineLimit


def lines(*texts: str) -> tuple[m.TaskLine, ...]:
    return tuple(map(m.TaskLine, texts))


class PrintingHost(Host):
    """A worker core whose task prints."""

    def join(self, client: str, shows_task_log: bool = True) -> None:
        """Let a client read task 1."""
        name = f"{client}-1"
        ask = m.OpenLink(client, name, "", 0, "", ("tcp",), shows_task_log=shows_task_log)
        self.hear(client, ask)
        self.feed(e.LinkBound(name, f"tcp://{name}", "secret"))
        self.grant(9, client=client)

    def say(self, *texts: str, suppressed: int = 0, attempt: int = 1) -> None:
        self.feed(e.LinesCollected(1, attempt, lines(*texts), suppressed))

    def shown(self) -> list[tuple[str, tuple[str, ...], int]]:
        """Return the lines that were sent: the link, the texts, the number missing."""
        return [
            (push.link, tuple(line.text for line in push.header.lines), push.header.suppressed)
            for push in self.all_of(e.Push)
            if isinstance(push.header, m.TaskLogged)
        ]


def test_a_burst_is_sent_and_then_a_number_in_each_second() -> None:
    """A process may send a burst of lines, then a number in each second, and a burst
    again after a pause.
    """
    limit = LineLimit(burst=3, per_second=2.0)
    assert [limit.admits(0.0) for _ in range(4)] == [True, True, True, False]
    assert [limit.admits(now) for now in (0.25, 0.5, 0.75, 1.0)] == [False, True, False, True]
    assert [limit.admits(100.0) for _ in range(4)] == [True, True, True, False]
    assert not limit.admits(50.0), "a clock that goes back gives nothing"


def test_lines_that_no_client_reads_are_bounded_and_counted() -> None:
    """A task keeps its newest lines, and counts the others."""
    kept = KeptLines()
    kept.add(lines("first"), suppressed=5)
    kept.add(lines(*map(str, range(LINES_KEPT))), suppressed=0)
    message = kept.drain(1, 2)
    assert (message.task, message.attempt, message.suppressed) == (1, 2, 6)
    assert [line.text for line in message.lines] == [str(n) for n in range(LINES_KEPT)]
    assert not kept


def test_a_single_client_shows_the_lines_of_a_task() -> None:
    """The first client of a task that shows lines gets all of them; the next one gets
    further lines once the first has left.
    """
    host = PrintingHost()
    host.join("quiet", shows_task_log=False)
    host.join("k")
    host.join("later")
    host.say("one", "two", suppressed=4)
    assert host.shown() == [("k-1", ("one", "two"), 4)]
    host.hear("k", m.CloseLink("k-1"))
    host.say("four")
    assert host.shown() == [("later-1", ("four",), 0)]


def test_lines_from_before_the_first_client_come_before_its_first_block() -> None:
    """Lines from before the first client are kept, and sent to it before the
    elements.
    """
    host = PrintingHost()
    host.say("opening")
    host.make(0)
    assert host.all_of(e.Push) == []
    host.join("k")
    kinds = [type(push.header) for push in host.messages()]
    assert kinds == [m.TaskLogged, m.Block]


def test_lines_wait_for_a_link_that_is_opened_anew() -> None:
    """While the link of the client is not bound, lines wait for it, and no other client
    shows them.
    """
    host = PrintingHost()
    host.join("k")
    host.join("other")
    host.hear("k", m.OpenLink("k", "k-2", "k-1", 0, "", ("tcp",), shows_task_log=True))
    host.say("one")
    assert host.shown() == []
    host.feed(e.LinkBound("k-2", "tcp://k-2", "secret"))
    assert host.shown() == [("k-2", ("one",), 0)]


def test_lines_of_an_older_attempt_are_dropped() -> None:
    """A task that was taken away prints for no client."""
    host = PrintingHost()
    host.join("k")
    host.say("late", attempt=0)
    assert host.shown() == []


def test_nothing_is_sent_if_no_client_shows_task_log() -> None:
    """A worker sends no lines to clients that do not ask for them."""
    host = PrintingHost()
    host.join("k", shows_task_log=False)
    host.say("one")
    assert host.shown() == []
