"""The decision whether a failed request to a store is sent again, and the error that
users see when it is not. It knows no clock: the caller tells the time.
"""

from __future__ import annotations

import errno
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from zmqdata.config.settings import check_settings, setting
from zmqdata.errors import (
    DataLossError,
    DataServiceError,
    FailedPreconditionError,
    NotFoundError,
    PermissionDeniedError,
    UnavailableError,
)
from zmqdata.files.paths import shown_url

MOST_TRIES = 6
FIRST_PAUSE = 0.2
LONGEST_PAUSE = 20.0
_PASSING = frozenset({408, 429, 500, 502, 503, 504})
"""Statuses of answers to requests that may succeed later."""
_PASSING_NUMBERS = frozenset(
    {errno.EBUSY, errno.EPIPE, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EAGAIN, errno.EIO}
)
_PASSING_NAMES = ("timeout", "connection", "disconnected", "incomplete", "payload", "streaming")
"""Parts of the names of exceptions that HTTP clients raise for broken connections."""
_EXPIRED = ("ExpiredToken", "TokenExpired", "RequestExpired")
_BUSY = ("RequestTimeout", "SlowDown")
_URLS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"<>]+")
_WORDS = 300

Kind: TypeAlias = Literal["absent", "denied", "expired", "changed", "passing", "refused"]
_ERRORS: dict[Kind, type[DataServiceError]] = {
    "absent": NotFoundError,
    "denied": PermissionDeniedError,
    "expired": PermissionDeniedError,
    "changed": DataLossError,
    "passing": UnavailableError,
    "refused": FailedPreconditionError,
}
_REMEDIES: dict[Kind, str] = {
    "absent": "Check the name, and whether the object was removed meanwhile",
    "denied": "Check the credentials of this machine, and what they allow",
    "expired": "Renew the credentials of this machine",
    "changed": "Begin a new iteration, and write objects under new names instead of replacing them",
    "passing": (
        "Is the store overloaded, or the network down? ZMQDATA_STORE_TIMEOUT sets the seconds "
        "that a read or a write may take"
    ),
    "refused": "Check the URL and the options of the store",
}


@dataclass(frozen=True)
class StoreSettings:
    """The setting for requests to stores. It is read from the environment.

    Raises:
        TypeError, ValueError: it is not a whole number in its range.
    """

    store_timeout: int = setting(
        120,
        "seconds that a read from a store, or a write, may take, with all its retries",
        least=1,
        most=86400,
    )
    """Seconds that a read from a store, or a write, may take, with all its retries."""

    def __post_init__(self) -> None:
        check_settings(self)


class StoreError(Exception):
    """An answer of a store that is not the bytes asked for.

    Attributes:
        status: HTTP status of the answer.
    """

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


class ObjectChanged(Exception):
    """Signals that an object is not the object that was opened."""


@dataclass(frozen=True)
class Fault:
    """A failed request, as the store or the connection told it."""

    kind: Kind
    """Class of the failure; ``"passing"`` and ``"expired"`` are worth a retry."""
    words: str
    """Words of the store or the system, without users and queries of URLs."""
    hides: bool = False
    """True if the exceptions show more than these words."""

    def error(self, place: str, tries: int, deed: str = "read") -> DataServiceError:
        """Return the error to raise, which names the object and range (``place``), and
        what could not be done with them.
        """
        after = f" after {tries} tries" if tries > 1 else ""
        return _ERRORS[self.kind](
            f"{place} could not be {deed}{after}: {self.words}. {_REMEDIES[self.kind]}"
        )


def fault_of(error: BaseException) -> Fault:
    """Return the fault that an exception of a store's client stands for.

    >>> fault_of(ConnectionResetError()).kind, fault_of(StoreError(404, "none")).kind
    ('passing', 'absent')
    """
    chain = list(_chain(error))
    words = " | ".join(dict.fromkeys(filter(None, (" ".join(str(one).split()) for one in chain))))
    words = words or type(error).__name__
    shown = _URLS.sub(lambda found: shown_url(found[0]), words)
    status = next(filter(None, map(_status, chain)), 0)
    return Fault(_kind(chain, status, words), shown[:_WORDS].rstrip("."), shown != words)


def _kind(chain: list[BaseException], status: int, words: str) -> Kind:
    if any(isinstance(one, ObjectChanged) for one in chain) or status == 412:
        return "changed"
    if status in (0, 400, 401, 403) and any(word in words for word in _EXPIRED):
        return "expired"
    if status in _PASSING or (status == 400 and any(word in words for word in _BUSY)):
        return "passing"
    if status in (401, 403):
        return "denied"
    if status in (404, 410):
        return "absent"
    if status:
        return "refused"
    return next(filter(None, map(_kind_of_class, chain)), "refused")


def _kind_of_class(error: BaseException) -> Kind | None:
    name = type(error).__name__.lower()
    if isinstance(error, (FileNotFoundError, IsADirectoryError)):
        return "absent"
    if isinstance(error, PermissionError) or "credentials" in name:
        return "denied"
    is_passing = isinstance(error, (ConnectionError, TimeoutError, EOFError)) or (
        isinstance(error, OSError) and error.errno in _PASSING_NUMBERS
    )
    return "passing" if is_passing or any(part in name for part in _PASSING_NAMES) else None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and its causes, each once."""
    seen: set[int] = set()
    waiting: list[object] = [error]
    while waiting:
        one = waiting.pop()
        if isinstance(one, BaseException) and id(one) not in seen:
            seen.add(id(one))
            yield one
            behind = None if one.__suppress_context__ else one.__context__
            waiting += [behind, one.__cause__, getattr(one, "reason", None)]


def _status(error: BaseException) -> int:
    """Return the HTTP status that an exception of a client carries, or 0."""
    answer = getattr(error, "response", None)
    if isinstance(answer, dict):  # botocore
        values = [answer.get("ResponseMetadata", {}).get("HTTPStatusCode")]
    else:
        values = [getattr(error, name, None) for name in ("status", "status_code", "code")]
    return next((one for one in values if isinstance(one, int) and 400 <= one < 600), 0)


class Retries:
    """Decides how often, and after which pauses, a request is sent again.

    Args:
        began: time at which the read began.
        patience: seconds that the read may take in all.
        jitter: returns a random number from 0 to 1.

    Attributes:
        tries: number of requests that have failed.
    """

    def __init__(
        self,
        began: float,
        patience: float,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._deadline = began + patience
        self._jitter = jitter
        self._has_renewed = False
        self.tries = 0

    def pause(self, now: float, fault: Fault) -> float | None:
        """Count a failed request. Return the seconds to wait before the next request,
        or None if the read has failed.
        """
        self.tries += 1
        if fault.kind == "expired" and not self._has_renewed:
            self._has_renewed = True
            return 0.0
        if fault.kind != "passing" or self.tries >= MOST_TRIES:
            return None
        longest = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (self.tries - 1))
        pause = longest * (1 + self._jitter()) / 2
        return pause if now + pause < self._deadline else None
