"""Test the client's ends of links."""

from __future__ import annotations

from collections import Counter
from typing import Any

from msgspec import structs

from zmqdata import messages as m
from zmqdata.core.client import events as e
from zmqdata.core.client.links import (
    INCOMPLETE_AFTER,
    STALE_LINK,
    UNREACHABLE_AFTER,
    VOUCHING,
    LinkProfile,
    ReadLinks,
)

STREAM = m.StreamGrant(1, 1, 8, 1000, 0)


class Ends:
    """Links and their last commands."""

    def __init__(self, trainer_id: str = "", stream: m.StreamGrant = STREAM) -> None:
        self.commands: list[Any] = []
        profile = LinkProfile("me", "host", ("tcp",), m.Reader(trainer_id=trainer_id))
        self.links = ReadLinks(
            profile, self.commands.append, lambda address: (stream,), lambda: (0.0, False)
        )

    def done(self) -> list[Any]:
        done = [one.message if isinstance(one, e.Send) else one for one in self.commands]
        self.commands.clear()
        return done

    def open(self, now: float = 0.0) -> list[Any]:
        self.links.tend(["w"], now)
        self.links.opened(m.LinkOpened("me-1", "tcp://x", "secret"), now)
        return self.done()

    def arrive(self, *numbers: int, link: str = "me-1", now: float = 0.0) -> list[bool]:
        return [
            self.links.count(e.Arrived(link, m.EndOfTask(number, 1, 1, 0)), now)
            for number in numbers
        ]


def ask(name: str, replaces: str = "", have_through: int = 0) -> m.OpenLink:
    return m.OpenLink("me", name, replaces, have_through, "host", ("tcp",))


def test_a_link_is_asked_for_until_it_is_opened() -> None:
    """The client asks each wanted address for a link once a second, and connects and
    grants an opened link at once.
    """
    ends = Ends()
    ends.links.tend(["w"], 0.0)
    ends.links.tick(0.5)
    assert ends.done() == [ask("me-1")]
    ends.links.tick(1.0)
    assert ends.done() == [ask("me-1")]
    ends.links.opened(m.LinkOpened("me-1", "tcp://x", "secret"), 1.0)
    ends.links.opened(m.LinkOpened("me-1", "tcp://x", "secret"), 1.0)
    assert ends.done() == [
        e.ConnectLink("me-1", "tcp://x", "secret"),
        m.Grant("me-1", 0, (STREAM,), sent=1.0),
    ]


def test_a_client_without_codec_says_so() -> None:
    """The client's requests for links say that it cannot decompress."""
    said: list[Any] = []
    profile = LinkProfile("me", "host", ("tcp",), decompresses=False)
    links = ReadLinks(profile, said.append, lambda address: (STREAM,), lambda: (0.0, False))
    links.tend(["w"], 0.0)
    [command] = said
    assert command.message == structs.replace(ask("me-1"), decompresses=False)


def test_grants_are_repeated_every_second() -> None:
    """A later grant replaces a lost grant and acknowledges messages; grants are sent
    more often if the lease is short.
    """
    ends = Ends()
    ends.open()
    ends.arrive(1, 2)
    ends.links.tick(0.5)
    assert ends.done() == []
    ends.links.tick(1.0)
    assert ends.done() == [m.Grant("me-1", 2, (STREAM,), sent=1.0)]
    ends.links.tick(1.5, 0.5)
    assert ends.done() == [m.Grant("me-1", 2, (STREAM,), sent=1.5)]


def test_few_workers_at_a_time_are_asked_to_vouch_for_a_client() -> None:
    """The client asks a few workers at a time to vouch for it, each in turn; other
    grants carry no time of sending.
    """
    ends = Ends()
    workers = [f"w{number}" for number in range(VOUCHING + 2)]
    ends.links.tend(workers, 0.0)
    for number in range(len(workers)):
        ends.links.opened(m.LinkOpened(f"me-{number + 1}", "tcp://x", "secret"), 0.1)
    first = {one.link for one in ends.done() if isinstance(one, m.Grant) and one.sent}
    assert len(first) == VOUCHING
    asked = list(first)
    for number in range(1, 4):
        ends.links.tick(0.2 + number)
        grants = [one for one in ends.done() if isinstance(one, m.Grant)]
        assert {one.sent for one in grants} == {0.0, 0.2 + number}
        asked += [one.link for one in grants if one.sent]
    assert Counter(Counter(asked).values()).keys() <= {2, 3}
    assert len(set(asked)) == len(workers)


def test_all_workers_are_asked_to_vouch_for_a_client_that_gets_no_answer() -> None:
    """A client without an answer asks all workers to vouch, as the dispatcher may hear
    any of them, and few after the next answer.
    """
    ends = Ends()
    workers = [f"w{number}" for number in range(3 * VOUCHING)]
    ends.links.tend([*workers, "dead"], 0.0)
    for number in range(len(workers)):
        ends.links.opened(
            m.LinkOpened(ends.links.by_address[workers[number]].name, "tcp://x", "secret"), 0.1
        )
    ends.links.tick(0.2)
    ends.done()
    ends.links.tick(0.3, all_vouch=True)
    assert len({one.link for one in ends.done() if one.sent == 0.3}) >= 2 * VOUCHING
    ends.links.tick(1.25, all_vouch=True)
    assert {one.sent for one in ends.done() if isinstance(one, m.Grant)} == {1.25}
    ends.links.tick(2.5)
    assert len([one for one in ends.done() if isinstance(one, m.Grant) and one.sent]) == VOUCHING


def test_a_single_stream_can_be_granted() -> None:
    """The client grants a single stream that has moved, and leaves it out without an
    open link.
    """
    ends = Ends()
    ends.links.grant("w", [STREAM])
    ends.links.tend(["w"], 0.0)
    ends.done()
    ends.links.grant("w", [STREAM])
    assert ends.done() == []
    ends.open()
    ends.links.grant("w", [STREAM])
    assert ends.done() == [m.Grant("me-1", 0, (STREAM,))]


def test_a_changed_list_grants_at_once() -> None:
    """The client grants an open link again when tasks have moved to its address."""
    ends = Ends()
    ends.open()
    ends.links.tend(["w"], 0.1)
    assert ends.done() == [m.Grant("me-1", 0, (STREAM,), sent=0.1)]


def test_unwanted_links_are_closed() -> None:
    """Links to workers without tasks are closed on both sides, opened or not."""
    ends = Ends()
    ends.open()
    ends.links.tend([], 0.0)
    assert ends.done() == [m.CloseLink("me-1"), e.DisconnectLink("me-1")]
    ends.links.tend(["w"], 0.0)
    ends.done()
    ends.links.tend([], 0.0)
    assert ends.done() == [m.CloseLink("me-2")]


def test_the_last_grant_of_a_shared_cache_permits_nothing() -> None:
    """A client of a shared cache tells the worker what was handed out before it closes
    an open link, and lets it send no further block.
    """
    ends = Ends("first", m.StreamGrant(1, 1, 18, 1000, 10, 4))
    ends.open()
    ends.links.tend([], 0.0)
    last = m.Grant("me-1", 0, (m.StreamGrant(1, 1, 0, 0, 10, 4),))
    assert ends.done() == [last, m.CloseLink("me-1"), e.DisconnectLink("me-1")]
    ends.links.tend(["w"], 0.0)
    ends.done()
    ends.links.tend([], 0.0)
    assert ends.done() == [m.CloseLink("me-2")]


def test_messages_are_counted_in_order() -> None:
    """The client takes the next number of a link, and neither an old number nor a
    message of an unknown link.
    """
    ends = Ends()
    ends.open()
    assert ends.arrive(1, 2, 2, 1, 3) == [True, True, False, False, True]
    assert ends.arrive(4, link="me-9") == [False]


def test_a_gap_opens_a_new_link() -> None:
    """The client asks for a missing message on a new link, from the last seen message
    on.
    """
    ends = Ends()
    ends.open()
    assert ends.arrive(1, 3, now=5.0) == [True, False]
    note, *rest = ends.done()
    assert "message 3 follows 1" in note.text
    assert rest == [e.DisconnectLink("me-1"), ask("me-2", "me-1", 1)]
    assert ends.arrive(2) == [False]


def test_a_rejected_message_counts_as_unseen() -> None:
    """A rejected message breaks its link, and the client asks for it again on the next
    link.
    """
    ends = Ends()
    ends.open()
    ends.arrive(1, 2, now=5.0)
    ends.links.reject(e.Arrived("me-1", m.EndOfTask(2, 1, 1, 0)), "too much", 5.0)
    note, *rest = ends.done()
    assert "too much" in note.text
    assert rest == [e.DisconnectLink("me-1"), ask("me-2", "me-1", 1)]


def test_a_broken_link_is_replaced_at_once_if_it_was_not_young() -> None:
    """The client replaces an old broken link at once and a young link with the next
    repetition, from the last seen message on.
    """
    ends = Ends()
    ends.open()
    ends.arrive(1)
    ends.links.broken(e.LinkBroken("me-1", "reset"), 5.0)
    assert ends.done()[1:] == [e.DisconnectLink("me-1"), ask("me-2", "me-1", 1)]
    ends.links.broken(e.LinkBroken("me-1", "reset"), 5.0)
    assert ends.done() == []
    ends.links.broken(e.LinkBroken("me-2", "reset"), 5.1)
    assert ends.done()[1:] == []
    ends.links.tick(6.1)
    assert ends.done() == [ask("me-3", "me-1", 1)]


def test_a_link_unknown_to_the_worker_is_replaced() -> None:
    """The client asks a worker that does not know a link for another link."""
    ends = Ends()
    ends.open()
    ends.links.refused(m.LinkRefused("me-1", "NotFoundError", "no such link"), 2.0)
    assert ends.done()[1:] == [e.DisconnectLink("me-1"), ask("me-2", "me-1", 0)]
    ends.links.refused(m.LinkRefused("me-1", "NotFoundError", "no such link"), 2.0)
    assert ends.done() == []


def test_a_worker_without_a_port_is_asked_again_later() -> None:
    """The client logs any other refusal and repeats its request."""
    ends = Ends()
    ends.links.tend(["w"], 0.0)
    ends.done()
    ends.links.refused(m.LinkRefused("me-1", "ResourceExhaustedError", "no port"), 0.5)
    assert "no port" in ends.done()[0].text
    ends.links.tick(1.0)
    assert ends.done() == []
    ends.links.tick(1.5)
    assert ends.done() == [ask("me-1")]


def test_a_worker_that_cannot_be_reached_does_not_refuse() -> None:
    """A refusal followed by silence no longer counts, as the worker's present answer is
    unknown.
    """
    ends = Ends()
    ends.links.tend(["w"], 0.0)
    ends.links.refused(m.LinkRefused("me-1", "ResourceExhaustedError", "no port"), 1.0)
    assert ends.links.why_refused(8.0, 9.0)
    assert ends.links.why_refused(8.0, 12.0) == ""
    ends.links.refused(m.LinkRefused("me-1", "ResourceExhaustedError", "no port"), 31.0)
    assert ends.links.why_refused(8.0, 32.0) == ""


def test_what_is_refused_for_long_is_known() -> None:
    """The client logs a worker without a port now and then, and an open link ends the
    refusal.
    """
    ends = Ends()
    ends.links.tend(["w"], 0.0)
    assert ends.links.why_refused(0.0, 9.0) == ""
    for now in (1.0, 2.0, 3.0, 8.0, 11.5):
        ends.links.refused(m.LinkRefused("me-1", "ResourceExhaustedError", "no port"), now)
    assert len([one for one in ends.done() if isinstance(one, e.LogLine)]) == 2
    found = ends.links.why_refused(10.0, 11.5)
    assert "Worker `w` has refused a link for 10 s" in found
    assert found.endswith(": no port.")
    assert ends.links.why_refused(11.0, 11.5) == ""
    ends.links.forgive(1.0)
    assert ends.links.why_refused(10.0, 11.5) == ""
    ends.links.opened(m.LinkOpened("me-1", "tcp://w:1", "secret"), 12.0)
    assert ends.links.why_refused(10.0, 99.0) == ""
    ends.links.tend(["x"], 20.0)
    ends.links.refused(m.LinkRefused("me-2", "FailedPreconditionError", "released"), 21.0)
    assert ends.links.why_refused(0.0, 99.0) == ""


def test_a_link_that_stays_behind_is_replaced() -> None:
    """The client opens a new link when sent messages do not arrive for long."""
    ends = Ends()
    ends.open()
    ends.links.reported(m.LinkReported("me-1", 0), 10.0)
    ends.links.reported(m.LinkReported("me-1", 2), 10.0 + STALE_LINK - 1)
    ends.links.reported(m.LinkReported("me-9", 2), 99.0)
    assert ends.done() == []
    ends.links.reported(m.LinkReported("me-1", 2), 10.0 + STALE_LINK)
    assert "2 messages never arrived" in ends.done()[0].text


def test_a_large_block_on_a_slow_cable_gets_more_time() -> None:
    """Each new link waits twice as long, so that a slow message is not restarted for
    ever.
    """
    ends = Ends()
    ends.open()
    ends.links.reported(m.LinkReported("me-1", 1), STALE_LINK)
    ends.links.opened(m.LinkOpened("me-2", "tcp://w:1", "secret"), 100.0)
    ends.done()
    ends.links.reported(m.LinkReported("me-2", 1), 100.0 + 2 * STALE_LINK - 1)
    assert ends.done() == []
    ends.links.reported(m.LinkReported("me-2", 1), 100.0 + 2 * STALE_LINK)
    assert "1 messages never arrived" in ends.done()[0].text


def test_a_worker_without_a_word_is_out_of_reach() -> None:
    """A worker without any message on any link is out of reach, not counting time in
    which the client was suspended.
    """
    ends = Ends()
    ends.open()
    assert ends.links.unreached(UNREACHABLE_AFTER - 1) == ()
    assert ends.links.unreached(UNREACHABLE_AFTER) == ("w",)
    ends.links.reported(m.LinkReported("me-1", 0), UNREACHABLE_AFTER)
    assert ends.links.unreached(UNREACHABLE_AFTER + 1) == ()
    ends.links.broken(e.LinkBroken("me-1", "cut"), UNREACHABLE_AFTER + 2)
    ends.links.refused(
        m.LinkRefused("me-2", "ResourceExhaustedError", "full"), UNREACHABLE_AFTER + 5
    )
    assert ends.links.unreached(2 * UNREACHABLE_AFTER + 4) == ()
    ends.links.forgive(10.0)
    assert ends.links.unreached(2 * UNREACHABLE_AFTER + 14) == ()
    assert ends.links.unreached(2 * UNREACHABLE_AFTER + 15) == ("w",)
    ends.links.tend([], 3 * UNREACHABLE_AFTER)
    assert ends.links.unreached(9 * UNREACHABLE_AFTER) == ()


def test_a_worker_whose_messages_never_come_is_out_of_reach() -> None:
    """A worker is out of reach if its links report sent messages that never arrive."""
    ends = Ends()
    ends.open()
    for second in range(int(INCOMPLETE_AFTER)):
        ends.links.reported(m.LinkReported(next(iter(ends.links.by_name)), 3), float(second))
    assert ends.links.unreached(INCOMPLETE_AFTER - 0.5) == ()
    assert ends.links.unreached(INCOMPLETE_AFTER) == ("w",)
    link = next(iter(ends.links.by_name))
    assert ends.arrive(1, link=link, now=INCOMPLETE_AFTER) == [True]
    assert ends.links.unreached(INCOMPLETE_AFTER) == ()


def test_a_worker_is_told_that_its_memory_is_mapped() -> None:
    """The client's shell maps a link's memory, and from then on all grants of that link
    confirm it.
    """
    ends = Ends()
    memory = m.Memory(1, 2, 3, 4096, b"token")
    ends.links.tend(["w"], 0.0)
    ends.done()
    ends.links.opened(m.LinkOpened("me-1", "ipc://x", "secret", memory), 0.0)
    assert ends.done() == [
        e.ConnectLink("me-1", "ipc://x", "secret", memory),
        m.Grant("me-1", 0, (STREAM,)),
    ]
    ends.links.mapped(e.MemoryMapped("me-1"), 0.1)
    assert ends.done() == [m.Grant("me-1", 0, (STREAM,), shares=True, sent=0.1)]
    ends.links.grant("w", [STREAM])
    assert ends.done() == [m.Grant("me-1", 0, (STREAM,), shares=True)]
    ends.links.broken(e.LinkBroken("me-1", "gone"), 5.0)
    ends.links.mapped(e.MemoryMapped("me-1"), 5.0)
    ends.links.opened(m.LinkOpened("me-2", "ipc://x", "secret", memory), 5.0)
    assert ends.done()[-1] == m.Grant("me-2", 0, (STREAM,), sent=5.0)
