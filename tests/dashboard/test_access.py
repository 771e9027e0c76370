"""Tests of ``zmqdata.dashboard.access``."""

from __future__ import annotations

import pytest

from zmqdata.dashboard.access import HEADERS, Doorkeeper, Entry, Refusal

TOKEN = "drawn-at-start"
HERE = {"host": "127.0.0.1:8470"}


def keeper(token: str = TOKEN) -> Doorkeeper:
    return Doorkeeper(token, ["node7.cluster", "Proxy.example"], 8470)


def entered() -> str:
    """Return the cookie that a right token gives."""
    entry = keeper().judge("/", f"token={TOKEN}", HERE)
    assert isinstance(entry, Entry)
    return entry.cookie


@pytest.mark.parametrize(
    "host",
    ["localhost:8470", "LOCALHOST", "127.0.0.1", "[::1]:8470", "10.1.2.3:1", "node7.cluster:8470"],
)
def test_known_names_and_addresses_are_served(host: str) -> None:
    """Addresses, this machine's names and given names are accepted."""
    assert keeper("").judge("/", "", {"host": host}) is None


@pytest.mark.parametrize("host", ["", "evil.example", "127.0.0.1.evil.example:8470", "localhost."])
def test_a_foreign_name_is_refused(host: str) -> None:
    """A page whose own name was pointed at this address cannot read it."""
    refusal = keeper("").judge("/", "", {"host": host})
    assert isinstance(refusal, Refusal)
    assert (refusal.status, "--name" in refusal.text) == (421, True)


def test_without_the_token_nothing_is_shown() -> None:
    """Neither the page nor its stream is shown to a viewer without token or cookie."""
    for path in ("/", "/events", "/history", "/static/dashboard.js"):
        refusal = keeper().judge(path, "", HERE)
        assert isinstance(refusal, Refusal)
        assert refusal.status == 403
        assert TOKEN not in refusal.text


@pytest.mark.parametrize("query", ["token=", "token=drawn-at-star", "token=wrong&x=1", "token=%ff"])
def test_a_wrong_token_is_refused(query: str) -> None:
    """Only the whole token opens the page."""
    assert isinstance(keeper().judge("/", query, HERE), Refusal)


def test_the_cookie_replaces_the_token() -> None:
    """A right token gives a cookie that scripts and foreign pages cannot use, and that
    does not contain the token.
    """
    cookie = entered()
    assert "HttpOnly" in cookie
    assert "SameSite=Lax" in cookie
    assert "path" not in cookie.lower()  # so that it stays below the path of a proxy
    assert TOKEN not in cookie
    pair = cookie.partition(";")[0]
    assert keeper().judge("/events", "", {**HERE, "cookie": f"a=b; {pair}"}) is None
    assert isinstance(keeper("other").judge("/", "", {**HERE, "cookie": pair}), Refusal)


def test_a_token_is_taken_at_the_page_only() -> None:
    """A token in the address of anything else is no permission."""
    assert isinstance(keeper().judge("/events", f"token={TOKEN}", HERE), Refusal)


def test_a_broken_cookie_is_none() -> None:
    """A header that is no list of cookies is refused like no cookie."""
    for text in ("\x00=;;;", "a" * 10_000, "zmqdata-8470", 'zmqdata-8470="'):
        assert isinstance(keeper().judge("/", "", {**HERE, "cookie": text}), Refusal)


def test_the_policy_allows_no_inline_script() -> None:
    """Scripts and styles come from this server alone."""
    policy = HEADERS["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
