"""Permission to see the page: the names under which a browser may reach it, a token in
the link once, and a cookie from then on.

Every answer forbids foreign scripts, frames and requests.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import parse_qs

from zmqdata.transport.visitors import HostNames

POLICY = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data:",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # The link contains the token.
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Headers of every answer."""

COOKIE_SECONDS = 30 * 24 * 3600


@dataclass(frozen=True)
class Refusal:
    """An answer to a request that is not permitted."""

    status: int
    """Status of HTTP."""
    text: str
    """Reason and remedy."""


@dataclass(frozen=True)
class Entry:
    """An answer to a link with the right token. It leads to ``./``, which is below the
    path of a proxy.
    """

    cookie: str
    """Header that sets the cookie."""


class Doorkeeper:
    """Decides who may see the page.

    Args:
        token: viewers have to show it; "" if all may see the page that can reach it.
        names: host names under which the page is known, in addition to addresses and
            the names of this machine.
        port: port of the page.

    Example:
        >>> keeper = Doorkeeper("", ["localhost"], 8470)
        >>> keeper.judge("/", "", {"host": "localhost:8470"}) is None
        True
        >>> keeper.judge("/", "", {"host": "evil.example"}).status
        421
    """

    def __init__(self, token: str, names: Iterable[str], port: int) -> None:
        self._token = token
        self._names = HostNames(names)
        # Cookies do not distinguish ports, and several pages may run on a machine.
        self._cookie = f"zmqdata-{port}"
        # A cookie that leaks does not reveal the token.
        self._proof = hmac.new(token.encode(), b"zmqdata dashboard", hashlib.sha256).hexdigest()

    def judge(self, path: str, query: str, headers: Mapping[str, str]) -> Refusal | Entry | None:
        """Return how to answer a request that does not get what it asks for; None if it
        does.

        Args:
            path: path of the address.
            query: part of the address behind the question mark.
            headers: headers of the request, their names in lower case.
        """
        host = headers.get("host", "")
        if not self._names.has(host):
            return Refusal(
                421,
                f"The name {_short(host)} is not known to this page. Open it by an address, or "
                "start `zmqdata dashboard` with `--name` and this name.",
            )
        if not self._token:
            return None
        given = parse_qs(query).get("token", [""])[0]
        if given and path == "/" and _is_equal(given, self._token):
            # Lax, so that a link in a chat leads to the page. All requests only read.
            # Without a path, the cookie stays below that of a proxy.
            return Entry(
                f"{self._cookie}={self._proof}; HttpOnly; SameSite=Lax; Max-Age={COOKIE_SECONDS}"
            )
        if _is_equal(_cookie_of(headers.get("cookie", ""), self._cookie), self._proof):
            return None
        return Refusal(
            403,
            "This page needs the token. Open the link that `zmqdata dashboard` printed when it "
            "started; it ends with ?token=...",
        )


def _cookie_of(header: str, name: str) -> str:
    # By hand: a cookie of another program may have a form that http.cookies refuses.
    pairs = (part.strip().partition("=") for part in header.split(";"))
    return next((value for key, _, value in pairs if key == name), "")


def _is_equal(given: str, expected: str) -> bool:
    """Compare in a time that does not depend on the first difference."""
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), expected.encode())


def _short(text: str) -> str:
    return repr(text[:80])
