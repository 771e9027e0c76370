"""Test how the dispatcher parses addresses and assigns the places of its list
(``zmqdata.core.dispatcher.peers.worker_addresses``).
"""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zmqdata.core.dispatcher.peers.worker_addresses import Location, WorkerAddresses, located
from zmqdata.errors import FailedPreconditionError

HOSTS = st.one_of(
    st.from_regex(r"[a-z][a-z0-9.-]{0,8}", fullmatch=True),
    st.ip_addresses(v=4).map(str),
    st.ip_addresses(v=6).map(lambda address: f"[{address}]"),
    st.from_regex(r"/[a-z]{1,5}/task/[0-9]", fullmatch=True),
    st.from_regex(r":[a-z]{1,5}:task:[0-9]:x/", fullmatch=True),
)
SCHEMES = st.sampled_from(["", "tcp", "http"])
PORTS = st.one_of(
    st.integers(1, 65535).map(str),
    st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,6}", fullmatch=True),
    st.from_regex(r"%port(_[a-zA-Z0-9_]{1,6})?%", fullmatch=True),
    st.just(""),
)


def prefixed(scheme: str, rest: str) -> str:
    return f"{scheme}://{rest}" if scheme else rest


# --- parsing addresses


@pytest.mark.parametrize(
    ("text", "scheme", "host", "port"),
    [
        ("", "", "", ""),
        ("localhost", "", "localhost", ""),
        ("http://localhost", "http", "localhost", ""),
        ("localhost:1234", "", "localhost", "1234"),
        ("HTTP://LocalHost:1234", "http", "localhost", "1234"),
        ("http://localhost:%port%", "http", "localhost", "%port%"),
        ("localhost:%port_name%", "", "localhost", "%port_name%"),
        ("localhost:%ports%", "", "localhost:%ports%", ""),
        ("localhost:%port", "", "localhost:%port", ""),
        ("localhost:", "", "localhost:", ""),
        ("localhost:a-b", "", "localhost:a-b", ""),
        ("/worker/task/0", "", "/worker/task/0", ""),
        ("worker:/worker/task/0", "", "worker:/worker/task/0", ""),
        ("/worker/task/0:worker", "", "/worker/task/0", "worker"),
        ("/worker/task/0:%port_worker%", "", "/worker/task/0", "%port_worker%"),
        (":worker:task:0:%port%", "", ":worker:task:0", "%port%"),
        ("127.0.0.1", "", "127.0.0.1", ""),
        ("127.0.0.1:8000", "", "127.0.0.1", "8000"),
        ("[::1]", "", "::1", ""),
        ("::1", "", "::1", ""),
        ("http://[::1]", "http", "::1", ""),
        ("[0:0:0:0:0:0:0:1]:23456", "", "::1", "23456"),
        ("http://[::1]:%port_name%", "http", "::1", "%port_name%"),
        (
            "http://ipv6:[1080:0:0:0:8:800:200C:417A]",
            "http",
            "ipv6:[1080:0:0:0:8:800:200c:417a]",
            "",
        ),
        (
            "http://ipv6:[1080:0:0:0:8:800:200C:417A]:worker",
            "http",
            "ipv6:[1080:0:0:0:8:800:200c:417a]",
            "worker",
        ),
        ("http://ipv6:[]", "http", "ipv6:[]", ""),
        ("[fe80::1%eth0]:5", "", "fe80::1%eth0", "5"),
        ("ipc:///tmp/worker", "ipc", "/tmp/worker", ""),
    ],
)
def test_addresses_have_three_parts(text: str, scheme: str, host: str, port: str) -> None:
    """The text behind the last colon is the port if it is a word or a %port%, and the
    rest is scheme and host.
    """
    assert located(text) == Location(scheme, host, port)


@given(SCHEMES, HOSTS, PORTS)
def test_what_is_put_together_is_taken_apart(scheme: str, host: str, port: str) -> None:
    """Parsing returns the original scheme, host and port, with the host without
    brackets.
    """
    found = located(prefixed(scheme, f"{host}:{port}" if port else host))
    bare = host[1:-1] if host.startswith("[") else host
    assert found == Location(scheme, bare, port)
    assert found.takes_any_port == (port == "" or port.startswith("%"))


@given(st.text(max_size=30))
def test_any_text_is_an_address(text: str) -> None:
    """Parsing accepts any text: a port is a word or a %port%, and the text before it is
    kept.
    """
    found = located(text)
    assert found.scheme in text.lower()
    assert found.port == "" or re.fullmatch(r"[a-zA-Z0-9_]+|%port(_[a-zA-Z0-9_]+)?%", found.port)


# --- assigning places


def placed(entries: list[str], *addresses: str) -> list[int | None]:
    places = WorkerAddresses(entries)
    return [places.place(address) for address in addresses]


@pytest.mark.parametrize(
    ("entries", "addresses", "indices"),
    [
        (["localhost"], ["localhost:12345"], [0]),
        (["/w/0", "/w/1", "/w/2"], ["/w/2:1", "/w/1:2", "/w/0:3"], [2, 1, 0]),
        (["/w/0:worker", "/w/1:worker"], ["/w/1:worker", "/w/0:worker"], [1, 0]),
        (["/w/0:%port_worker%", "/w/1:%port_worker%"], ["/w/1:worker", "/w/0:worker"], [1, 0]),
        (["/w/0:%port%", "/w/1:%port%"], ["/w/1:10000", "/w/0:10001"], [1, 0]),
        (["/w/0:12", "/w/1:23"], ["/w/1:23", "/w/0:12"], [1, 0]),
        ([":w:0:%port%", ":w:1:34567"], [":w:1:34567", ":w:0:1"], [1, 0]),
        (
            ["localhost"] * 3,
            ["localhost:1", "localhost:2", "localhost:3", "localhost:2"],
            [0, 1, 2, 1],
        ),
        (["a", "b", "a"], ["tcp://a:1", "tcp://a:2", "tcp://b:1"], [0, 2, 1]),
        (["::1"], ["tcp://[::1]:5"], [0]),
        (["[::1]:5", "[0::1]:%port%"], ["tcp://[::1]:6", "tcp://[::1]:5"], [1, 0]),
        (["tcp://Host:5"], ["tcp://host:5"], [0]),
        (["host:%port%", "host:5"], ["tcp://host:5", "tcp://host:6"], [1, 0]),
        (["localhost"], ["localhost"], [0]),
        ([], ["tcp://host:5", "tcp://other:6"], [None, None]),
    ],
)
def test_workers_take_entries_in_order(
    entries: list[str], addresses: list[str], indices: list[int | None]
) -> None:
    """A worker takes the entry with its exact address, or the first free entry of its
    host that leaves the port open.
    """
    assert placed(entries, *addresses) == indices


@pytest.mark.parametrize(
    ("entry", "address"),
    [
        ("localhost:worker", "tcp://localhost:5050"),
        ("localhost:5051", "tcp://localhost:5050"),
        ("fake_worker_0", "tcp://localhost:5050"),
        ("http://localhost", "tcp://localhost:5050"),
        ("[::2]", "tcp://[::1]:5050"),
        ("host", "host2:1"),
        ("host:5", "host:55"),
        ("host:%port%", "host"),
        ("", "localhost:12345"),
    ],
)
def test_other_addresses_are_not_configured(entry: str, address: str) -> None:
    """The error names the worker, the list and the remedy, and the list stays as it
    was.
    """
    places = WorkerAddresses([entry, "nobody"])
    with pytest.raises(
        FailedPreconditionError, match="The worker's address is not configured"
    ) as told:
        places.place(address)
    assert f"Worker {address} " in str(told.value)
    assert f"--worker-address {entry}, nobody" in str(told.value)
    assert places.entries == (entry, "nobody")


def test_a_host_has_as_many_workers_as_entries() -> None:
    """A worker beyond the entries of its host is told that others hold them, and known
    workers may register repeatedly.
    """
    places = WorkerAddresses(["localhost:%port%", "other", "localhost"])
    assert [places.place(f"tcp://localhost:{port}") for port in (1, 2, 1, 2)] == [0, 2, 0, 2]
    with pytest.raises(
        FailedPreconditionError, match="other workers are already running at the configured"
    ) as told:
        places.place("tcp://localhost:3")
    assert "tcp://localhost:1, other, tcp://localhost:2" in str(told.value)
    assert "For another worker, add a --worker-address to the dispatcher" in str(told.value)
    assert len(places) == 3


def test_a_taken_entry_has_the_real_address() -> None:
    """Entries take the real addresses of their workers."""
    places = WorkerAddresses(["a", "b:%port%"])
    places.place("tcp://b:7")
    assert places.entries == ("a", "tcp://b:7")


def test_only_workers_in_the_list_have_an_index() -> None:
    """Only workers in a list have an index, and no worker has an index without a
    list.
    """
    places = WorkerAddresses(["a"])
    places.place("tcp://a:1")
    assert (places.index("tcp://a:1"), places.index("tcp://a:2")) == (0, None)
    nowhere = WorkerAddresses()
    assert (nowhere.place("tcp://a:1"), nowhere.index("tcp://a:1"), len(nowhere)) == (None, None, 0)


def test_a_host_is_known_by_its_aliases() -> None:
    """A worker may announce any address that the host of an entry stands for."""
    places = WorkerAddresses(["gpu", "GPU:7"], {"gpu": ("10.0.0.7", "fe80:0::1")})
    assert places.place("tcp://[fe80::1]:1") == 0
    assert places.place("tcp://10.0.0.7:7") == 1
    with pytest.raises(FailedPreconditionError, match="not configured"):
        places.place("tcp://10.0.0.8:7")


def test_the_place_of_a_worker_that_is_gone_is_kept_for_it() -> None:
    """A worker returns to its place, which another worker of its host gets only if no
    other place is free.
    """
    places = WorkerAddresses(["host"] * 3)
    assert [places.place(f"host:{port}") for port in (1, 2)] == [0, 1]
    places.leave("host:1")
    assert places.index("host:1") == 0
    assert places.place("host:3") == 2
    assert places.place("host:1") == 0
    with pytest.raises(FailedPreconditionError, match="already running"):
        places.place("host:4")
    places.leave("host:2")
    assert places.place("host:4") == 1
    assert places.entries == ("host:1", "host:4", "host:3")
    with pytest.raises(FailedPreconditionError, match="already running"):
        places.place("host:2")
    assert places.index("host:2") is None


def test_an_entry_with_a_port_is_for_its_worker_only() -> None:
    """No other worker gets the place of a lost worker whose entry has a port."""
    places = WorkerAddresses(["host:1"])
    places.place("host:1")
    places.leave("host:1")
    with pytest.raises(FailedPreconditionError, match="not configured"):
        places.place("host:2")
    assert places.place("host:1") == 0


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from(["", ":%port%", ":1", ":2"])), max_size=6
    ),
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 4), st.booleans()), max_size=12),
)
def test_nobody_shares_a_place(
    entries: list[tuple[str, str]], steps: list[tuple[str, int, bool]]
) -> None:
    """Workers have different places, each an entry of their host that admits their
    port.
    """
    texts = [host + port for host, port in entries]
    places = WorkerAddresses(texts)
    there: dict[str, int] = {}
    for host, port, comes in steps:
        address = f"{host}:{port}"
        if not comes:
            places.leave(address)
            there.pop(address, None)
            continue
        try:
            index = places.place(address)
        except FailedPreconditionError:
            assert address not in there
            continue
        if index is None:
            assert entries == []
            continue
        there[address] = index
        assert texts[index] in (host, f"{host}:%port%", address)
        assert places.entries[index] == address
    assert len(set(there.values())) == len(there)
    assert all(places.index(address) == index for address, index in there.items())


def test_places_are_given_back() -> None:
    """Restored places are taken. Places of absent workers may be reassigned, and
    unknown places are free.
    """
    places = WorkerAddresses(["h:%port%", "h:%port%", "g:5"])
    places.restore(
        {0: "tcp://h:1", 1: "tcp://h:2", 2: "tcp://other:5", 9: "tcp://h:9"}, present={"tcp://h:2"}
    )
    assert (
        places.index("tcp://h:1"),
        places.index("tcp://h:2"),
        places.index("tcp://other:5"),
    ) == (0, 1, None)
    assert places.entries == ("tcp://h:1", "tcp://h:2", "g:5")
    assert (places.place("tcp://h:3"), places.place("tcp://g:5")) == (0, 2)
    with pytest.raises(FailedPreconditionError):
        places.place("tcp://h:4")
