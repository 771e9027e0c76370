"""Reading files of stores by ranges, and writing them as a whole: requests are retried,
and an object that changes while it is read is noticed.

``http`` and ``https`` are read with the standard library, S3 through the client of
s3fs, because both answers tell size and ETag. Other stores are read through fsspec, and
their size and ETag are asked for after each range.
"""

from __future__ import annotations

import io
import os
import re
import sys
import time
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import islice
from typing import Any, BinaryIO, Generic, NamedTuple, Protocol, TypeVar, cast
from urllib.error import HTTPError
from urllib.parse import quote, unquote, urlsplit
from urllib.request import Request, urlopen

from zmqdata.config.settings import from_environment
from zmqdata.errors import DataServiceError
from zmqdata.files.paths import is_url, shown_url
from zmqdata.machine.threads import Background
from zmqdata.storage.files import filesystem_of, is_secret
from zmqdata.storage.retrying import ObjectChanged, Retries, StoreError, StoreSettings, fault_of

T = TypeVar("T")

_PIECE = 1 << 20
_SLOWEST = 1e6
"""Bytes per second that a connection may bring without being given up."""
REQUEST_SECONDS = 30.0
"""Maximum number of seconds that a server may be silent."""
WHOLE = 64 << 20
"""Maximum size of an object whose server answers a later range with all of it."""
BLOCK = 8 << 20
"""Size of the ranges of a file that is read in order."""
_TAIL = 1 << 20
"""Size of the ranges of a file behind the part that is read."""
_RANGE = re.compile(r"bytes (?:(\d+)-\d+|\*)/(\d+)")
_ETAGS = (
    "ETag",
    "etag",
    "generation",
    "md5Hash",
    "content_md5",
    "LastModified",
    "mtime",
    "created",
)
_MOST_CLIENTS = 64
_MOST_EXPECTED = 16


class Identity(NamedTuple):
    """Traits that tell the content of an object from an earlier content."""

    size: int
    """Size in bytes."""
    etag: str = ""
    """ETag, or the mark that the store has in its place; "" if it has none."""

    def differs(self, other: Identity) -> bool:
        """Return True if this is surely not the content of the other identity."""
        return self.size != other.size or ("" not in (self.etag, other.etag) and self != other)


class _Answer(NamedTuple):
    body: bytes
    identity: Identity


class _Store(Protocol):
    def fetch(self, start: int, stop: int, seconds: float) -> _Answer:
        """Return the bytes of a range, as far as the object has them; with a negative
        start, the last bytes.
        """

    def renew(self) -> None:
        """Make the client anew, from the credentials of the machine."""


class _Web:
    """An object at an ``http`` or ``https`` URL."""

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        # A name may have a `#`, and nothing else reads the fragment of a URL.
        parts = urlsplit(url, allow_fragments=False)
        more = options.get("client_kwargs", {}).get("headers", {})
        given = {**options.get("headers", {}), **more}
        # Redirections to other hosts do not get them.
        self._host_headers = {name: given.pop(name) for name in [*filter(is_secret, given)]}
        self._headers = {**given, "Accept-Encoding": "identity"}
        if parts.username is not None:
            user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._host_headers["Authorization"] = f"Basic {b64encode(user.encode()).decode()}"
        login = parts.password or parts.username  # a token may stand alone
        self._secrets = [*_values(parts.query), *filter(None, [login])]
        for header in self._host_headers.values():
            self._secrets += [header, header.rpartition(" ")[2]]
        plain = parts._replace(netloc=parts.netloc.rpartition("@")[2])
        self._url = quote(plain.geturl(), safe="%/:?[]@!$&'()*+,;=~")

    def fetch(self, start: int, stop: int, seconds: float) -> _Answer:
        headers = {**self._headers, "Range": _range(start, stop)}
        request = Request(self._url, headers=headers)  # noqa: S310 - http or https
        for name, value in self._host_headers.items():
            request.add_unredirected_header(name, value)
        try:
            silence = min(REQUEST_SECONDS, seconds)
            with urlopen(request, timeout=silence) as answer:  # noqa: S310 - as above
                return self._read(answer, start, stop, time.monotonic() + seconds)
        except HTTPError as error:
            with error:
                size = _RANGE.match(error.headers.get("Content-Range") or "")
                if error.code == 416 and size:
                    return _Answer(b"", Identity(int(size[2]), _etag(error)))
                words = error.read(1000).decode("utf-8", "replace")
            # A redirection may have brought a signature of its own.
            secrets = [*self._secrets, *_values(urlsplit(error.url or "").query)]
            for secret in sorted({*secrets, *map(unquote, secrets)}, key=len, reverse=True):
                words = words.replace(secret, "...")
            raise StoreError(error.code, f"{error.code} {error.reason} {words}") from None

    def _read(self, answer: Any, start: int, stop: int, deadline: float) -> _Answer:
        if answer.status == 206:
            found = _RANGE.match(answer.headers.get("Content-Range") or "")
            begin = max(0, int(found[2]) + start) if found and start < 0 else start
            if found is None or found[1] != str(begin):
                raise StoreError(406, f"the answer has the range {found and found[0]!r}")
            size = int(found[2])
            return _Answer(_received(answer, size, deadline), Identity(size, _etag(answer)))
        length = answer.headers.get("Content-Length")
        _check_whole(start, int(length or 0))
        most = stop if length and start >= 0 else WHOLE + 1
        body = _received(answer, most, deadline)
        size = int(length) if length else len(body)
        if not length:
            _check_whole(1, size)
        if start < 0 and len(body) < size:
            raise EOFError(f"the answer has {len(body)} bytes, expected {size}")
        return _Answer(body[start : stop or None], Identity(size, _etag(answer)))

    def renew(self) -> None:
        """Do nothing: there is no client."""


def _values(query: str) -> list[str]:
    """Return the query of a URL, and its values, which may be secret."""
    return [query, *(one for one in re.split("[&;=]", query) if len(one) > 5)] if query else []


def _received(answer: Any, most: int, deadline: float) -> bytes:
    """Return up to so many bytes of an answer that comes before a deadline."""
    pieces: list[bytes] = []
    missing = most
    while missing and (piece := answer.read1(min(missing, _PIECE))):
        pieces.append(piece)
        missing -= len(piece)
        if time.monotonic() > deadline:
            raise TimeoutError(f"only {most - missing} bytes came in time")
    return b"".join(pieces)


def _check_whole(start: int, size: int) -> None:
    """Raise if a store has answered a range with all of a large object."""
    if start and size > WHOLE:
        raise StoreError(
            406,
            f"the server answers a range with the whole object, which has at least {size} bytes; "
            "it must support ranges, or the file must be copied to another place",
        )


def _range(start: int, stop: int) -> str:
    return f"bytes={start}" if start < 0 else f"bytes={start}-{stop - 1}"


def _etag(answer: Any) -> str:
    found = answer.headers.get("ETag") or answer.headers.get("Last-Modified") or ""
    return str(found).strip('"')


_clients: dict[str, Any] = {}
"""Clients by process, store and options."""


class _Client:
    """An object in a store that fsspec knows. Clients are shared within a process.
    fsspec is not fork-safe, so that a forked process makes its own.
    """

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        self._url, self._options = url, options

    def filesystem(self) -> tuple[Any, str]:
        """Return the client, and the path in it."""
        # Options of the user show their names alone.
        key = repr((os.getpid(), self._url.split("/", 3)[:3], dict(self._options)))
        if "::" not in self._url and (known := _clients.get(key)) is not None:
            return known, str(known._strip_protocol(self._url))
        made, path = new_client(self._url, self._options)
        if len(_clients) >= _MOST_CLIENTS:
            _clients.clear()
        _clients[key] = made
        return made, path

    def fetch(self, start: int, stop: int, seconds: float) -> _Answer:
        filesystem, path = self.filesystem()
        if hasattr(filesystem, "call_s3"):
            return _from_s3(filesystem, path, start, stop, seconds)
        before = identity_in(filesystem, path)
        end = min(stop, before.size) if start >= 0 else before.size
        start = start if start >= 0 else max(0, end + start)
        body = b""
        if start < end and hasattr(filesystem, "loop"):
            from fsspec.asyn import sync

            ask, loop = filesystem._cat_file, filesystem.loop
            body = sync(loop, ask, path, start=start, end=end, timeout=seconds)
        elif start < end:
            body = filesystem.cat_file(path, start=start, end=end)
        if identity_in(filesystem, path) != before:
            raise ObjectChanged("the object was replaced while a range of it was read")
        return _Answer(body, before)

    def renew(self) -> None:
        _clients.clear()


def new_client(url: str, options: Mapping[str, Any]) -> tuple[Any, str]:
    """Return a new client of fsspec for a URL, which lists anew at each call and leaves
    retries to its caller, and the path of the URL in it.
    """
    given = dict(options)
    if url.startswith(("s3:", "s3a:")):
        # botocore and s3fs would each repeat a request five times.
        given["config_kwargs"] = {"retries": {"max_attempts": 0}, **given.get("config_kwargs", {})}
    filesystem, path = filesystem_of(
        url, skip_instance_cache=True, use_listings_cache=False, **given
    )
    if hasattr(filesystem, "call_s3"):
        filesystem.retries = 1
    return filesystem, path


def identity_in(filesystem: Any, path: str) -> Identity:
    """Return the identity of an object in a file system of fsspec."""
    found = filesystem.info(path)
    if found.get("type") == "directory":
        raise IsADirectoryError(f"{path} is a folder, expected a file")
    return identity_told(found)


def identity_told(found: Mapping[str, Any]) -> Identity:
    """Return the identity of an object that a client of fsspec describes."""
    etag = next((found[name] for name in (*_ETAGS, "created") if found.get(name)), "")
    # Listings may have a number of seconds where single descriptions have a date.
    etag = etag.timestamp() if hasattr(etag, "timestamp") else etag
    return Identity(int(found["size"] or 0), str(etag).strip('"'))


def _from_s3(filesystem: Any, path: str, start: int, stop: int, seconds: float) -> _Answer:
    from fsspec.asyn import sync

    bucket, key, version = filesystem.split_path(path)
    wanted = {"Bucket": bucket, "Key": key, "Range": _range(start, stop)}
    if version:
        wanted["VersionId"] = version
    try:
        ask = partial(filesystem._call_s3, "get_object", **wanted, **filesystem.req_kw)
        answer = sync(filesystem.loop, ask, timeout=seconds)
    except Exception as error:
        if "InvalidRange" not in f"{error} {error.__cause__}" and "416" not in str(error):
            raise
        return _Answer(b"", identity_in(filesystem, path))
    found = _RANGE.match(answer.get("ContentRange", ""))
    size = int(found[2]) if found else int(answer["ContentLength"])
    if found is None:
        _check_whole(start, size)
    body = sync(filesystem.loop, answer["Body"].read, timeout=seconds)
    body = body if found else body[start : stop or None]
    return _Answer(body, Identity(size, answer["ETag"].strip('"')))


def retried(
    ask: Callable[[], T],
    place: str,
    patience: float,
    renew: Callable[[], None] = lambda: None,
    clock: Callable[[], float] = time.monotonic,
    rest: Callable[[float], None] = time.sleep,
    deed: str = "read",
) -> T:
    """Return the result of a request, which is sent again as ``Retries`` decides.

    Args:
        ask: sends the request.
        place: names the object and range in errors.
        patience: seconds that all tries may take.
        renew: makes the client anew.
        clock: returns the time in seconds.
        rest: waits a number of seconds.
        deed: what the request does with the object, for errors.

    Raises:
        DataServiceError: the request failed for good.
    """
    retries = Retries(clock(), patience)
    while True:
        try:
            return ask()
        except DataServiceError:
            raise
        except Exception as error:
            fault = fault_of(error)
            pause = retries.pause(clock(), fault)
            if pause is None:
                # Not named: a frame that names its own error keeps all of its callers
                # alive, such as the owner of a task's folder.
                raise fault.error(place, retries.tries, deed) from (None if fault.hides else error)
            if fault.kind == "expired":
                renew()
            rest(pause)


def patience() -> int:
    """Return the seconds that a read from a store, or a write, may take."""
    return from_environment(StoreSettings, {}).store_timeout


class RemoteFile(io.RawIOBase):
    """A file of a store, open for reading by ranges. Each read is a request.

    Args:
        url: the URL.
        expected: identity that the object must have; None: that of the first answer.
        options: arguments of the store's client.
        clock: returns the time in seconds.
        rest: waits a number of seconds.
    """

    def __init__(
        self,
        url: str,
        expected: Identity | None = None,
        options: Mapping[str, Any] | None = None,
        clock: Callable[[], float] = time.monotonic,
        rest: Callable[[float], None] = time.sleep,
    ) -> None:
        self.name = shown_url(url)
        given = options or {}
        is_web = url.startswith(("http://", "https://"))
        self._store: _Store = _Web(url, given) if is_web else _Client(url, given)
        self._expected = expected
        self._clock, self._rest = clock, rest
        self._patience = patience()
        self._position = 0
        self._coming: dict[tuple[int, int], Requested[bytes]] = {}

    @property
    def identity(self) -> Identity:
        """Identity of the object, which is asked for if no range was read yet."""
        if self._expected is None:
            self.read_range(0, 1)
        assert self._expected is not None
        return self._expected

    @property
    def size(self) -> int:
        """Size of the object in bytes."""
        return self.identity.size

    def read_range(self, start: int, stop: int) -> bytes:
        """Return the bytes of a range, as far as the object has them. Thread-safe.

        Raises:
            NotFoundError, PermissionDeniedError, UnavailableError,
            FailedPreconditionError: the store refused the request, or all tries failed.
            DataLossError: the object is not the object that was opened.
        """
        if self._expected is not None:
            stop = min(stop, self._expected.size)
        if start >= stop:
            return b""
        coming = self._coming.pop((start, stop), None)
        body = None if coming is None else coming.result()
        return self._asked(start, stop, f"bytes {start} to {stop}") if body is None else body

    def expect(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Request ranges in the background which will be read next, as far as they take
        ``BLOCK`` bytes at most. Other ranges are no longer expected.
        """
        known, self._coming = self._coming, {}
        size = 0
        for start, stop in islice(ranges, _MOST_EXPECTED):
            size += stop - start
            if size > BLOCK:
                break
            ask = partial(self._asked, start, stop, f"bytes {start} to {stop}")
            self._coming[start, stop] = known.get((start, stop)) or Requested(ask)

    def read_tail(self, count: int) -> bytes:
        """Return the last bytes of the object, with one request if no range was read
        yet. Thread-safe.

        Raises:
            DataServiceError: as ``read_range``.
        """
        body = None if self._expected else self._asked(-count, 0, f"the last {count} bytes")
        start = max(0, self.size - count)
        # Servers that know no such range answer with the beginning, or with nothing.
        is_whole = body is not None and len(body) == self.size - start
        return cast(bytes, body) if is_whole else self.read_range(start, self.size)

    def _asked(self, start: int, stop: int, shown: str) -> bytes:
        return retried(
            lambda: self._checked(start, stop),
            f"{self.name}, {shown},",
            self._patience,
            self._store.renew,
            self._clock,
            self._rest,
        )

    def _checked(self, start: int, stop: int) -> bytes:
        """Send a request for a range and check its answer."""
        size = stop - start if start >= 0 else -start
        body, identity = self._store.fetch(start, stop, self._patience + size / _SLOWEST)
        if self._expected is not None and identity.differs(self._expected):
            raise ObjectChanged(
                f"the object changed: it has {identity.size} bytes and the ETag {identity.etag}, "
                f"expected {self._expected.size} bytes and {self._expected.etag}"
            )
        wanted = max(0, min(stop, identity.size) - start)
        if start >= 0 and len(body) != wanted:
            raise EOFError(f"the answer has {len(body)} bytes, expected {wanted}")
        self._expected = self._expected or identity
        return body

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position}
        self._position = offset + (self.size if whence == io.SEEK_END else base[whence])
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        is_rest = size is None or size < 0
        stop = self.size if is_rest else self._position + cast(int, size)
        body = self.read_range(self._position, stop)
        self._position += len(body)
        return body

    def readinto(self, buffer: Any) -> int:
        body = self.read(len(buffer))
        buffer[: len(body)] = body
        return len(body)


def open_remote(
    url: str, *, expected: Identity | None = None, options: Mapping[str, Any] | None = None
) -> RemoteFile:
    """Open a file of a store for reading. Sends no request.

    Args:
        url: the URL.
        expected: identity that the object must have; None: that of the first answer.
        options: arguments of the store's client.

    Raises:
        ValueError: ``ZMQDATA_STORE_TIMEOUT`` is out of its range.
    """
    return RemoteFile(url, expected, options)


def open_file(
    path: str, options: Mapping[str, Any] | None = None, expected: Identity | None = None
) -> BinaryIO:
    """Open a file for reading without a buffer: a file of this machine by its path, or
    a file of a store by its URL, as ``open_remote`` does.
    """
    if is_url(path):
        return cast(BinaryIO, open_remote(path, options=options, expected=expected))
    return cast(BinaryIO, open(path, "rb", 0))


def change(url: str, act: Callable[[Any, str], None], deed: str) -> None:
    """Change an object, by a request that is sent again if it fails.

    Args:
        url: the URL.
        act: sends the request, with the client of the store and the path in it. A
            second request must do no harm.
        deed: what the request does with the object, for errors.

    Raises:
        DataServiceError: the store refused the request, or all tries failed. The object
            may have been changed.
    """
    store = _Client(url, {})
    retried(lambda: act(*store.filesystem()), shown_url(url), patience(), store.renew, deed=deed)


def put(url: str, content: bytes) -> None:
    """Write an object as a whole.

    Raises:
        DataServiceError: as ``change``.
    """

    def send(filesystem: Any, path: str) -> None:
        filesystem.makedirs(filesystem._parent(path), exist_ok=True)
        filesystem.pipe_file(path, content)

    change(url, send, "written")


class Requested(Background, Generic[T]):
    """A request in the background, which begins at once.

    Args:
        ask: sends it and returns what came.
    """

    def __init__(self, ask: Callable[[], T]) -> None:
        super().__init__(target=self._run_request, name="zmqdata-read-ahead", daemon=True)
        self._ask = ask
        self._found: T | None = None
        self._error: Exception | None = None
        self.start()

    def _run_request(self) -> None:
        try:
            self._found = self._ask()
        except Exception as error:
            self._error = error

    def result(self) -> T | None:
        """Return what came, once it is here; None if a forked process lacks the
        thread.
        """
        self.join()
        if self._error is not None:
            raise self._error
        return self._found


class SequentialFile(io.RawIOBase):
    """A file of a store that is read in order, by large blocks, each of which comes
    while the block before it is used.

    Args:
        file: the file.
        stop: position behind which little is read.
    """

    def __init__(self, file: RemoteFile, stop: int = sys.maxsize) -> None:
        self._file, self._stop = file, stop
        self.name = file.name
        self._position = self._begin = 0
        self._block = memoryview(b"")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_END:
            self._at(self._position)  # its answer tells the size
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position}
        self._position = offset + (self._file.size if whence == io.SEEK_END else base[whence])
        return self._position

    def readinto(self, buffer: Any) -> int:
        piece = self._at(self._position)[: len(buffer)]
        buffer[: len(piece)] = piece
        self._position += len(piece)
        return len(piece)

    def _at(self, position: int) -> memoryview:
        """Return bytes from a position on, of the block that holds it."""
        if not self._begin <= position < self._begin + len(self._block):
            is_tail = position >= self._stop
            following = position + _TAIL if is_tail else min(position + BLOCK, self._stop)
            self._begin = position
            self._block = memoryview(self._file.read_range(position, following))
            end = min(following + BLOCK, self._stop, self._file.size)
            self._file.expect([(following, end)] if following < end else ())
        return self._block[position - self._begin :]

    def close(self) -> None:
        self._block = memoryview(b"")
        self._file.expect(())
        super().close()
