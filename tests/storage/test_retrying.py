"""Tests of ``zmqdata.storage.retrying``, with a clock that the tests move."""

from __future__ import annotations

import errno

import pytest

from zmqdata.errors import (
    DataLossError,
    FailedPreconditionError,
    NotFoundError,
    PermissionDeniedError,
    UnavailableError,
)
from zmqdata.storage.retrying import (
    Fault,
    ObjectChanged,
    Retries,
    StoreError,
    StoreSettings,
    fault_of,
)

PASSING = Fault("passing", "busy")


class ClientError(Exception):
    """Stands for the error of botocore, which carries the answer."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(f"An error occurred ({code})")
        self.response = {"ResponseMetadata": {"HTTPStatusCode": status}}


class EndpointConnectionError(Exception):
    """Stands for an error that is known by its name only."""


def caused(error: Exception, cause: Exception) -> Exception:
    """Return an error with a cause."""
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        *((StoreError(status, ""), "passing") for status in (408, 429, 500, 502, 503, 504)),
        (StoreError(400, "<Code>RequestTimeout</Code>"), "passing"),
        (StoreError(400, "<Code>InvalidArgument</Code>"), "refused"),
        (ConnectionRefusedError(), "passing"),
        (TimeoutError(), "passing"),
        (EOFError("short"), "passing"),
        (EndpointConnectionError(), "passing"),
        (OSError(errno.EBUSY, "busy"), "passing"),
        (caused(OSError("?"), ClientError(503, "SlowDown")), "passing"),
        (caused(PermissionError("?"), ClientError(400, "ExpiredToken")), "expired"),
        (StoreError(403, "<Code>ExpiredToken</Code>"), "expired"),
        (StoreError(403, "AccessDenied"), "denied"),
        (caused(FileNotFoundError("x"), StoreError(403, "")), "denied"),
        (PermissionError("Forbidden"), "denied"),
        (StoreError(404, ""), "absent"),
        (FileNotFoundError("x"), "absent"),
        (StoreError(412, ""), "changed"),
        (ObjectChanged(), "changed"),
        (StoreError(400, "BadRequest"), "refused"),
        (OSError(errno.ENAMETOOLONG, "?"), "refused"),
    ],
)
def test_an_exception_has_a_kind(error: Exception, kind: str) -> None:
    """The status of an answer, found along the causes, decides before the class of the
    exception does.
    """
    assert fault_of(error).kind == kind


def test_urls_in_the_words_of_clients_are_shown_without_secrets() -> None:
    """A URL in the words of a client comes without its user and query, and the fault
    says that the exception shows more.
    """
    fault = fault_of(OSError("404, message='', url='https://me:pw@host/a?sig=secret'"))
    assert (fault.words, fault.hides) == ("404, message='', url='https://host/a?...'", True)
    assert not fault_of(OSError("404")).hides


def test_pauses_double_up_to_a_limit() -> None:
    """Six requests are sent at most; the pauses double from 0.2 s, and jitter takes
    half of each at most.
    """
    longest = Retries(0, 120, lambda: 1.0)
    assert [longest.pause(0, PASSING) for _ in range(6)] == [0.2, 0.4, 0.8, 1.6, 3.2, None]
    assert longest.tries == 6
    shortest = Retries(0, 120, lambda: 0.0)
    assert shortest.pause(0, PASSING) == pytest.approx(0.1)


def test_patience_ends() -> None:
    """No pause ends behind the time that the read may take."""
    retries = Retries(100, 10, lambda: 1.0)
    assert retries.pause(109.7, PASSING) == pytest.approx(0.2)
    assert retries.pause(109.7, PASSING) is None


def test_credentials_are_renewed_once() -> None:
    """An expired token is retried once, at once, and other refusals never."""
    retries = Retries(0, 120)
    assert retries.pause(0, Fault("expired", "")) == 0
    assert retries.pause(0, Fault("expired", "")) is None
    assert Retries(0, 120).pause(0, Fault("denied", "")) is None
    assert Retries(0, 120).pause(0, Fault("absent", "")) is None


def test_the_error_tells_all() -> None:
    """An error has the class of its kind, and names place, tries and words."""
    error = Fault("passing", "503 SlowDown").error("s3://b/x, bytes 0 to 8,", 6)
    assert type(error) is UnavailableError
    assert "s3://b/x, bytes 0 to 8, could not be read after 6 tries: 503 SlowDown." in str(error)
    assert "x could not be written: full." in str(Fault("passing", "full").error("x", 1, "written"))
    assert type(Fault("absent", "").error("x", 1)) is NotFoundError
    assert type(Fault("denied", "").error("x", 1)) is PermissionDeniedError
    assert type(Fault("expired", "").error("x", 1)) is PermissionDeniedError
    assert type(Fault("changed", "").error("x", 1)) is DataLossError
    assert type(Fault("refused", "").error("x", 1)) is FailedPreconditionError


def test_the_setting_has_a_range() -> None:
    """A timeout below a second is refused."""
    with pytest.raises(ValueError, match="store_timeout"):
        StoreSettings(store_timeout=0)
