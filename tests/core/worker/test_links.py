"""Test the worker's ends of links."""

from __future__ import annotations

from typing import Any

import pytest

from zmqdata import messages as m
from zmqdata.core.worker import events as e
from zmqdata.core.worker import links
from zmqdata.core.worker.links import (
    ANSWER_PAUSE,
    LINK_SILENCE,
    MAX_GRANTS,
    MAX_IDLE_LINKS,
    NAMED_AT_ONCE,
    RELEASED_KEPT,
    RETIRED_KEPT,
    SPOKE_LATELY,
    Link,
    SendLinks,
)


class Ends:
    """Links and their last commands."""

    def __init__(self) -> None:
        self.commands: list[Any] = []
        self.links = SendLinks(self.commands.append)

    def done(self) -> list[Any]:
        done = list(self.commands)
        self.commands.clear()
        return done

    def ask(
        self,
        link: str,
        replaces: str = "",
        have_through: int = 0,
        client: str = "client",
        **at: Any,
    ) -> list[Any]:
        peer, now = at.get("peer", "peer"), at.get("now", 0.0)
        self.links.open(
            peer, m.OpenLink(client, link, replaces, have_through, "host", ("tcp",)), now
        )
        return self.done()

    def use(self, link: str, now: float = 0.0, sent: float = 0.0) -> None:
        self.links.record_grant(
            "peer", m.Grant(link, 0, (m.StreamGrant(1, 1, 5, 5, 0),), sent=sent), now
        )
        self.done()

    def bound(self, link: str, error: str = "") -> list[Any]:
        self.links.bound(e.LinkBound(link, "" if error else f"tcp://{link}", "secret", error), 0.0)
        return self.done()

    def open(self, link: str, replaces: str = "", have_through: int = 0) -> list[Any]:
        self.ask(link, replaces, have_through)
        return self.bound(link)

    def push(self, *firsts: int) -> list[Any]:
        for first in firsts:
            self.links.push("client", m.Block(0, 1, 1, first, 1, 0, 10), ())
        return self.done()


def refusal(command: Any) -> str:
    assert isinstance(command.message, m.LinkRefused)
    return command.message.error


def pushed(commands: list[Any]) -> list[tuple[str, int, int]]:
    return [(x.link, x.header.number, x.header.first) for x in commands if isinstance(x, e.Push)]


def test_a_link_is_bound_then_opened() -> None:
    """A request binds a socket, the client gets the address once it is bound, and a
    repeated request gets the same answer.
    """
    ends = Ends()
    assert ends.ask("client-1") == [e.BindLink("client-1", "host", ("tcp",))]
    assert ends.ask("client-1") == []
    assert not ends.links.is_bound("client")
    opened = e.Send("peer", m.LinkOpened("client-1", "tcp://client-1", "secret"))
    assert ends.bound("client-1") == [opened]
    assert ends.ask("client-1") == [opened]
    assert ends.links.is_bound("client")


def test_the_socket_of_a_client_without_codec_decompresses() -> None:
    """The command that binds a client's socket carries the client's codec."""
    ends = Ends()
    ends.links.open(
        "peer", m.OpenLink("k", "k-1", "", 0, "host", ("tcp",), decompresses=False), 0.0
    )
    assert ends.done() == [e.BindLink("k-1", "host", ("tcp",), decompresses=False)]
    assert not ends.links.by_name["k-1"].decompresses


def test_a_link_that_cannot_be_bound_can_be_asked_for_again() -> None:
    """The worker refuses a client without a free port, and its next request tries
    again.
    """
    ends = Ends()
    ends.ask("client-1")
    assert [refusal(one) for one in ends.bound("client-1", "no port is free")] == [
        "ResourceExhaustedError"
    ]
    assert ends.ask("client-1") == [e.BindLink("client-1", "host", ("tcp",))]


def test_messages_are_numbered_per_link() -> None:
    """Messages of a link are numbered from 1."""
    ends = Ends()
    ends.open("client-1")
    assert pushed(ends.push(5, 6)) == [("client-1", 1, 5), ("client-1", 2, 6)]


def test_a_new_link_brings_what_the_old_one_lost() -> None:
    """The worker resends the unseen messages of the former link on the new link with
    new numbers.
    """
    ends = Ends()
    ends.open("client-1")
    ends.push(0, 1, 2)
    assert ends.ask("client-2", "client-1", 2)[0] == e.UnbindLink("client-1")
    assert pushed(ends.bound("client-2")) == [("client-2", 1, 2)]


def test_a_link_that_replaces_an_unknown_one_brings_everything() -> None:
    """The worker resends all unseen messages after an unknown link, whose numbers mean
    nothing.
    """
    ends = Ends()
    ends.open("client-1")
    ends.push(0, 1)
    assert pushed(ends.open("client-3", "client-2", 2)) == [("client-3", 1, 0), ("client-3", 2, 1)]


def test_seen_messages_are_forgotten() -> None:
    """A grant acknowledges messages, so only later messages are sent again, and its
    answer says how much had been sent by then.
    """
    ends = Ends()
    ends.open("client-1")
    ends.push(0, 1)
    grant = m.Grant("client-1", 1, (m.StreamGrant(1, 1, 5, 5, 0),), sent=0.9)
    link = ends.links.record_grant("peer", grant, 1.0)
    assert link is not None
    assert (len(link.unacknowledged), list(link.grants)) == (1, [1])
    ends.links.report(link, grant, 1.0)
    assert ends.done() == [e.Send("peer", m.LinkReported("client-1", 2, heard=0.9))]


def test_a_client_is_told_now_and_then_how_much_was_sent() -> None:
    """The worker answers only some of the grants for each block, but all grants that
    ask it to vouch for the client.
    """
    ends = Ends()
    ends.open("client-1")

    def answers(now: float, sent: float = 0.0) -> int:
        grant = m.Grant("client-1", 0, (), sent=sent)
        link = ends.links.record_grant("peer", grant, now)
        assert link is not None
        ends.links.report(link, grant, now)
        return len(ends.done())

    assert [answers(now) for now in (1.0, 1.1, 1.0 + ANSWER_PAUSE - 0.1, 1.0 + ANSWER_PAUSE)] == [
        1,
        0,
        0,
        1,
    ]
    assert [answers(1.5, 1.4), answers(1.6, 1.5), answers(1.7)] == [1, 1, 0]


def test_a_grant_on_an_unknown_link_is_refused() -> None:
    """The worker refuses a grant on an unknown link, so the client opens a new link."""
    ends = Ends()
    assert ends.links.record_grant("peer", m.Grant("client-1", 0, ()), 0.0) is None
    assert [refusal(one) for one in ends.done()] == ["NotFoundError"]


def test_a_late_ask_does_not_open_a_link_again() -> None:
    """The name of a replaced or closed link stays closed, as its numbers have been
    used.
    """
    ends = Ends()
    ends.open("client-1")
    ends.open("client-2", "client-1")
    assert [refusal(one) for one in ends.ask("client-1")] == ["NotFoundError"]
    assert ends.links.close("client-2") is not None
    assert ends.done() == [e.UnbindLink("client-2")]
    assert [refusal(one) for one in ends.ask("client-2")] == ["NotFoundError"]
    assert ends.links.close("client-2") is None


def test_a_socket_bound_for_nobody_is_closed() -> None:
    """The worker unbinds a link that was given up during binding as soon as it is
    bound.
    """
    ends = Ends()
    ends.ask("client-1")
    ends.ask("client-2")
    assert ends.bound("client-1") == [e.UnbindLink("client-1")]


def test_silent_clients_lose_their_port_and_nothing_else() -> None:
    """The worker frees the port of a long silent client, which gets its unseen messages
    when it returns.
    """
    ends = Ends()
    ends.open("client-1")
    ends.push(0)
    ends.links.close_silent(LINK_SILENCE - 1)
    assert ends.done() == []
    ends.links.close_silent(LINK_SILENCE)
    assert ends.done() == [e.UnbindLink("client-1")]
    assert pushed(ends.open("client-2", "client-1", 0)) == [("client-2", 1, 0)]


def test_where_there_is_no_port_the_silent_give_theirs() -> None:
    """Without a free port the worker takes the port of a client silent for seconds,
    which is dead or opens its link anew without loss.
    """
    office = Ends()
    for client in ("dead", "alive"):
        office.ask(f"{client}-1", client=client)
        office.bound(f"{client}-1")
        office.use(f"{client}-1")
    office.use("alive-1", now=9.0)
    office.ask("new-1", client="new", now=10.0)
    office.links.bound(e.LinkBound("new-1", "", "", "no port"), 10.0)
    assert [one for one in office.done() if isinstance(one, e.UnbindLink)] == [
        e.UnbindLink("dead-1")
    ]
    assert "dead" in office.links.by_client


def test_links_that_are_never_used_are_forgotten() -> None:
    """The worker forgets a link without a stream after a while, bound or not. Its
    client may ask for it anew.
    """
    ends = Ends()
    ends.open("client-1")
    ends.ask("other-1", client="other")
    ends.ask("client-1", now=LINK_SILENCE - 1)
    ends.links.close_silent(LINK_SILENCE - 1)
    assert ends.done() == []
    ends.links.close_silent(LINK_SILENCE)
    assert ends.done() == [e.UnbindLink("client-1")]
    assert (ends.links.by_name, ends.links.by_client) == ({}, {})
    assert ends.bound("other-1") == [e.UnbindLink("other-1")]
    assert ends.ask("client-1") == [e.BindLink("client-1", "host", ("tcp",))]


def test_a_link_that_is_never_bound_is_asked_for_under_another_name() -> None:
    """A reading client whose next link's socket does not come keeps its messages and
    asks for another name.
    """
    ends = Ends()
    ends.open("client-1")
    ends.use("client-1")
    ends.push(0)
    ends.ask("client-2", "client-1")
    ends.links.close_silent(LINK_SILENCE)
    assert [refusal(one) for one in ends.ask("client-2", "client-1")] == ["NotFoundError"]
    assert pushed(ends.open("client-3", "client-1")) == [("client-3", 1, 0)]


def test_a_used_link_stays_while_its_client_speaks() -> None:
    """A used link stays open at any age while its client sends messages."""
    ends = Ends()
    ends.open("client-1")
    ends.use("client-1", now=100.0)
    ends.links.close_silent(100.0 + LINK_SILENCE - 1)
    assert ends.done() == []


def test_readers_are_those_who_asked_lately_to_be_named() -> None:
    """The worker names only clients that recently asked this worker to vouch for them;
    rare heartbeats extend that period.
    """
    ends = Ends()
    ends.open("client-1")
    ends.use("client-1", now=99.0)
    assert ends.links.readers(99.0, 1.0) == {}
    ends.use("client-1", now=100.0, sent=7.0)
    ends.use("client-1", now=101.0)
    assert ends.links.readers(100.0 + SPOKE_LATELY - 1, 1.0) == {
        "client": m.ReaderSign(SPOKE_LATELY - 1)
    }
    assert ends.links.readers(100.0 + SPOKE_LATELY, 1.0) == {}
    assert ends.links.readers(100.0 + SPOKE_LATELY, 10.0) == {"client": m.ReaderSign(SPOKE_LATELY)}


def test_clients_are_named_some_at_a_time() -> None:
    """The worker names a bounded number of clients per heartbeat, in turn, so that the
    dispatcher learns of each client.
    """
    ends = Ends()
    names = [f"client{number}" for number in range(NAMED_AT_ONCE + 1)]
    for number, client in enumerate(names):
        ends.ask(f"{client}-1", client=client, peer=f"peer{number}")
    first, second = ends.links.next_clients(), ends.links.next_clients()
    assert len(first) == len(second) == NAMED_AT_ONCE
    assert {*first, *second} == set(names)


def test_a_peer_has_few_links_that_are_not_in_use() -> None:
    """A peer has few unused links: the worker refuses the next link until a link is
    used, without effect on other peers or linked clients.
    """
    ends = Ends()
    for number in range(MAX_IDLE_LINKS):
        ends.ask(f"{number}-1", client=f"{number}")
    assert [refusal(one) for one in ends.ask("x-1", client="x")] == ["ResourceExhaustedError"]
    assert ends.ask("0-2", client="0") == [e.BindLink("0-2", "host", ("tcp",))]
    assert ends.ask("y-1", client="y", peer="another") == [e.BindLink("y-1", "host", ("tcp",))]
    ends.use("1-1")
    assert ends.ask("x-1", client="x") == [e.BindLink("x-1", "host", ("tcp",))]


def test_a_worker_has_so_many_links_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker has a limited number of links, and refuses the next client until another
    is released.
    """
    monkeypatch.setattr(links, "MAX_LINKS", 20)
    ends = Ends()
    for number in range(20):
        ends.ask(f"{number}-1", client=f"{number}", peer=number)
    assert [refusal(one) for one in ends.ask("x-1", client="x")] == ["ResourceExhaustedError"]
    ends.links.release("7")
    assert ends.ask("x-1", client="x") == [e.BindLink("x-1", "host", ("tcp",))]


def test_a_link_belongs_to_one_client() -> None:
    """The worker tells the secret of a link only to its client."""
    ends = Ends()
    ends.open("client-1")
    assert [refusal(one) for one in ends.ask("client-1", client="thief", peer="elsewhere")] == [
        "NotFoundError"
    ]
    assert ends.links.by_name["client-1"].peer == "peer"


def test_few_names_of_closed_links_are_kept() -> None:
    """The worker keeps few names of closed links, as only late requests for the last
    links must be recognized.
    """
    ends = Ends()
    for number in range(RETIRED_KEPT + 5):
        ends.open(f"client-{number}", f"client-{number - 1}")
    assert len(ends.links.by_client["client"].retired) == RETIRED_KEPT
    assert [refusal(one) for one in ends.ask(f"client-{RETIRED_KEPT + 3}")] == ["NotFoundError"]


def test_a_released_client_opens_nothing() -> None:
    """A client that the dispatcher gave up gets no link for as long as its requests may
    arrive.
    """
    ends = Ends()
    ends.open("client-1")
    ends.links.release("client")
    assert ends.done() == [e.UnbindLink("client-1")]
    assert [refusal(one) for one in ends.ask("client-2")] == ["FailedPreconditionError"]
    for number in range(RELEASED_KEPT):
        ends.links.release(f"other-{number}")
    assert ends.ask("client-3") == [e.BindLink("client-3", "host", ("tcp",))]


def test_grants_are_kept_for_as_many_tasks_as_anybody_has() -> None:
    """The worker keeps a limited number of grants of a client, so that unknown tasks do
    not fill its memory.
    """
    link = Link("client-1", "client", "peer", m.Reader())
    for task in range(MAX_GRANTS + 5):
        link.keep(m.StreamGrant(task, 1, 1, 1, 0))
    link.keep(m.StreamGrant(0, 1, 9, 9, 0))
    assert (len(link.grants), link.grants[0].elements) == (MAX_GRANTS, 9)


def test_grants_of_a_dropped_task_are_forgotten() -> None:
    """The worker forgets the grants of a dropped task."""
    ends = Ends()
    ends.open("client-1")
    ends.links.record_grant("peer", m.Grant("client-1", 0, (m.StreamGrant(1, 1, 5, 5, 0),)), 1.0)
    ends.links.drop_task(1)
    assert ends.links.by_client["client"].grants == {}


MEMORY = m.Memory(1, 2, 3, 4096, b"token")


def test_memory_is_shared_once_its_client_has_mapped_it() -> None:
    """The worker offers the memory of a link in each answer, and uses it from the first
    grant that confirms it.
    """
    ends = Ends()
    ends.ask("client-1")
    ends.links.bound(e.LinkBound("client-1", "ipc://x", "secret", memory=MEMORY), 0.0)
    opened = e.Send("peer", m.LinkOpened("client-1", "ipc://x", "secret", MEMORY))
    assert ends.done() == [opened]
    assert ends.ask("client-1") == [opened]
    ends.links.record_grant("peer", m.Grant("client-1", 0, ()), 0.0)
    assert ends.done() == []
    for _ in range(2):
        ends.links.record_grant("peer", m.Grant("client-1", 0, (), shares=True), 0.0)
    assert ends.done() == [e.ShareMemory("client-1")]


def test_a_client_cannot_share_what_is_not_there() -> None:
    """A grant for a link without memory shares nothing, whatever it says."""
    ends = Ends()
    ends.open("client-1")
    ends.links.record_grant("peer", m.Grant("client-1", 0, (), shares=True), 0.0)
    assert ends.done() == []


@pytest.mark.parametrize("which", ["client", "link", "trainer", "nameless"])
def test_names_are_texts_of_some_length(which: str) -> None:
    """The worker refuses an empty or overlong name, and neither stores nor repeats
    it.
    """
    ends = Ends()
    names = {"client": "k", "link": "k-1", "trainer": "", which: "x" * 1_001}
    link = "" if which == "nameless" else names["link"]
    reader = m.Reader(None, names["trainer"])
    ends.links.open("peer", m.OpenLink(names["client"], link, "", 0, "host", ("tcp",), reader), 0.0)
    (refused,) = ends.done()
    assert refusal(refused) == "InvalidArgumentError"
    assert len(refused.message.link) <= 1_000
    assert not ends.links.by_client


@pytest.mark.parametrize("pace", [5e-324, -1.0, float("nan"), float("inf")])
def test_a_pace_that_no_loop_has_counts_as_unknown(pace: float) -> None:
    """A client cannot make shares meaningless with an impossible pace."""
    links = SendLinks(lambda command: None)
    links.open("k", m.OpenLink("k", "k-1", "", 0, "", ("tcp",)), 0.0)
    for told, expected in ((0.5, 0.5), (pace, 0.0)):
        link = links.record_grant("k", m.Grant("k-1", 0, (), pace=told), 0.0)
        assert link is not None
        assert link.pace == expected
