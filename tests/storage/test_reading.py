"""Tests of ``zmqdata.storage.reading``, against a store of the tests' own and fsspec's
memory.
"""

from __future__ import annotations

import gc
import io
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from tests.kit.forks import told_by_child
from tests.kit.objectstore import ObjectStore, object_store
from zmqdata.errors import (
    DataLossError,
    FailedPreconditionError,
    NotFoundError,
    PermissionDeniedError,
    UnavailableError,
    UnimplementedError,
)
from zmqdata.storage import reading, retrying
from zmqdata.storage.files import StorageOptions
from zmqdata.storage.reading import Identity, RemoteFile, change, open_file, open_remote, put

CONTENT = bytes(range(256)) * 4


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectStore]:
    with object_store() as store:
        yield store


@pytest.fixture
def store(server: ObjectStore) -> ObjectStore:
    """Return a store that holds a single object."""
    server.objects, server.requests, server.sent = {"/a": CONTENT}, [], 0
    server.faults.clear()
    return server


@pytest.fixture
def memory() -> Iterator[str]:
    """Return the URL of an object in fsspec's memory."""
    fsspec.filesystem("memory").pipe("/x/a", CONTENT)
    yield "memory://x/a"
    fsspec.filesystem("memory").store.clear()


def patient(url: str, **options: object) -> RemoteFile:
    """Return a file whose pauses take no time."""
    return RemoteFile(url, clock=lambda: 0.0, rest=lambda _: None, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["web", "memory"])
def test_a_file_is_read_by_ranges(kind: str, store: ObjectStore, memory: str) -> None:
    """A file reads, seeks and tells as a local file does."""
    with open_remote(store.url("/a") if kind == "web" else memory) as file:
        assert (file.readable(), file.seekable(), file.size) == (True, True, 1024)
        assert (file.read(3), file.tell()) == (CONTENT[:3], 3)
        assert (file.seek(-4, io.SEEK_END), file.read()) == (1020, CONTENT[-4:])
        assert (file.read(1), file.read_range(2000, 3000)) == (b"", b"")
        assert (file.seek(2), file.seek(3, io.SEEK_CUR)) == (2, 5)
        buffer = bytearray(7)
        assert (file.readinto(buffer), bytes(buffer)) == (7, CONTENT[5:12])
    assert io.BufferedReader(open_remote(file_url(kind, store, memory))).read() == CONTENT


def file_url(kind: str, store: ObjectStore, memory: str) -> str:
    """Return the URL of the object in a store."""
    return store.url("/a") if kind == "web" else memory


def test_requests_are_few(store: ObjectStore) -> None:
    """The first range tells the size, and a read sends a single request."""
    file = open_remote(store.url("/a"))
    assert store.requests == []
    assert file.read_range(0, 4000) == CONTENT
    assert file.size == 1024
    assert store.requests == [("GET", "/a", "bytes=0-3999")]
    assert store.sent == 1024


def test_an_empty_file_has_no_bytes(store: ObjectStore) -> None:
    """An object of no bytes is read, and has the size 0."""
    store.objects["/a"] = b""
    file = open_remote(store.url("/a"))
    assert (file.read(10), file.size, file.read()) == (b"", 0, b"")


@pytest.mark.parametrize("fault", [503, 429, "reset", "short", "cut"])
def test_what_passes_is_retried(fault: int | str, store: ObjectStore) -> None:
    """Requests that fail by the load of the store or the network are sent again."""
    store.faults.extend([fault] * 5)
    assert patient(store.url("/a")).read(100) == CONTENT[:100]
    assert len(store.requests) == 6


def test_all_tries_fail(store: ObjectStore) -> None:
    """After six tries an error names object, range, tries and the server's words."""
    store.faults.extend([503] * 6)
    with pytest.raises(UnavailableError) as caught:
        patient(store.url("/a")).read_range(3, 9)
    told = f"{store.url('/a')}, bytes 3 to 9, could not be read after 6 tries: 503"
    assert str(caught.value).startswith(told)
    assert "the store says 503" in str(caught.value)


def test_a_failed_read_keeps_no_caller_alive(store: ObjectStore) -> None:
    """An object that a caller of a failed read holds is freed with its caller, without
    the collector of cycles: the folder of a task goes with an object.
    """

    def read(owner: object) -> None:
        with pytest.raises(NotFoundError):
            patient(store.url("/none")).read()

    def owned() -> weakref.ref[threading.Event]:
        owner = threading.Event()
        read(owner)
        return weakref.ref(owner)

    gc.disable()
    try:
        assert owned()() is None
    finally:
        gc.enable()


def test_nothing_listens() -> None:
    """A connection that is refused ends as an unavailable store."""
    with pytest.raises(UnavailableError, match="after 6 tries"):
        patient("http://127.0.0.1:9/x").read(1)


@pytest.mark.parametrize(
    ("status", "kind"),
    [(404, NotFoundError), (403, PermissionDeniedError), (400, FailedPreconditionError)],
)
def test_refusals_are_final(status: int, kind: type[Exception], store: ObjectStore) -> None:
    """A refusal of the server is raised after a single request."""
    store.faults.append(status)
    with pytest.raises(kind, match=f"the store says {status}"):
        patient(store.url("/a")).read(1)
    assert len(store.requests) == 1


def test_the_whole_object_for_a_range(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that ignores ranges serves small objects; a large one is an error."""
    store.faults.extend(["whole"] * 4)
    file = open_remote(store.url("/a"))
    assert file.read_range(0, 10) == CONTENT[:10]
    assert file.read_range(1000, 1010) == CONTENT[1000:1010]
    monkeypatch.setattr(reading, "WHOLE", 1000)
    assert file.read_range(0, 4) == CONTENT[:4]
    with pytest.raises(FailedPreconditionError, match="must support ranges"):
        file.read_range(8, 10)


@pytest.mark.parametrize("content", [CONTENT[::-1], CONTENT[:-1]])
def test_a_changed_object_is_a_loss(content: bytes, store: ObjectStore, memory: str) -> None:
    """An object with another ETag or size than the first answer is never mixed."""
    file, other = open_remote(store.url("/a")), open_remote(memory)
    assert file.read(10) == other.read(10) == CONTENT[:10]
    store.objects["/a"] = content
    fsspec.filesystem("memory").pipe("/x/a", content)
    for one in (file, other):
        with pytest.raises(DataLossError, match="the object changed"):
            one.read(10)


def test_an_expected_identity_is_checked(store: ObjectStore) -> None:
    """A file is opened as another process has seen it, and without asking for its
    size.
    """
    known = open_remote(store.url("/a")).identity
    store.requests.clear()
    assert open_remote(store.url("/a"), expected=known).read() == CONTENT
    assert len(store.requests) == 1
    with pytest.raises(DataLossError):
        open_remote(store.url("/a"), expected=Identity(1024, "another")).read(1)


def test_secrets_are_not_shown(store: ObjectStore) -> None:
    """User, password and signature are sent, and no error shows them."""
    url = store.url("/a?signature=planted").replace("http://", "http://me:hidden@")
    assert open_remote(url).read(4) == CONTENT[:4]
    assert store.headers["Authorization"] == "Basic bWU6aGlkZGVu"
    store.faults.append(403)
    with pytest.raises(PermissionDeniedError) as caught:
        open_remote(url).read(1)
    shown = f"{caught.value} {caught.value.__cause__!r}"
    assert f"{store.url('/a')}?..." in shown
    assert "planted" not in shown
    assert "hidden" not in shown


def test_options_hold_headers(store: ObjectStore) -> None:
    """Headers of the options, as fsspec takes them, go with each request."""
    options = {"client_kwargs": {"headers": {"X-Team": "seven"}}}
    assert open_remote(store.url("/a"), options=options).read(1) == CONTENT[:1]
    assert store.headers["X-Team"] == "seven"


def test_names_are_encoded(store: ObjectStore) -> None:
    """Names with spaces, umlauts and `#` are sent encoded, and encoded ones as they
    are.
    """
    store.objects["/a b/ü#%.txt"] = b"found"
    for name in ("/a b/ü%23%25.txt", "/a b/ü#%25.txt"):
        assert open_remote(store.url(name)).read() == b"found"


def test_secrets_stay_with_their_host(store: ObjectStore) -> None:
    """A redirection to another host gets the headers, but no secret of them, and its
    own signature is not shown.
    """
    with object_store() as other:
        other.objects["/b"] = CONTENT
        options = {"headers": {"X-Team": "seven", "Authorization": "Bearer abcdefgh"}}
        store.faults.append(other.url("/b?signature=abcdefghi"))
        assert open_remote(store.url("/a"), options=options).read(1) == CONTENT[:1]
        assert store.headers["Authorization"] == "Bearer abcdefgh"
        assert other.headers["X-Team"] == "seven"
        assert "Authorization" not in other.headers
        store.faults.append(other.url("/b?signature=abcdefghi"))
        other.faults.append(403)
        with pytest.raises(PermissionDeniedError) as caught:
            open_remote(store.url("/a"), options=options).read(1)
    assert "abcdefg" not in str(caught.value)


def test_values_of_signatures_are_not_echoed(store: ObjectStore) -> None:
    """The words of a store are shown without the values of the query, as they were sent
    and decoded.
    """
    store.faults.append(403)
    with pytest.raises(PermissionDeniedError) as caught:
        open_remote(store.url("/a?X-Date=20261129T1&sig=ab%2Fcdef%3D")).read(1)
    assert "the store says 403" in str(caught.value)
    assert "cdef" not in str(caught.value)


def test_a_range_that_the_store_refuses_is_an_error(store: ObjectStore) -> None:
    """A store that refuses the first range without saying that the object is empty has
    not said so.
    """
    store.faults.append(416)
    with pytest.raises(FailedPreconditionError, match="416"):
        open_remote(store.url("/a")).read(1)


def test_a_slow_answer_ends(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that comes byte by byte is given up once the time of a read is over."""
    monkeypatch.setenv("ZMQDATA_STORE_TIMEOUT", "1")
    store.objects["/slow"] = bytes(5000)
    store.faults.append("drip")
    with pytest.raises(UnavailableError, match=r"bytes came in time.*ZMQDATA_STORE_TIMEOUT"):
        open_remote(store.url("/slow")).read_range(0, 5000)


def test_clients_are_renewed(memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An expired token makes the client anew, once."""
    made = []

    def new_client(url: str, options: object) -> tuple[object, str]:
        made.append(url)
        filesystem = fsspec.filesystem("memory", skip_instance_cache=True)
        if len(made) == 1:
            monkeypatch.setattr(filesystem, "info", expired)
        return filesystem, "/x/a"

    def expired(path: str) -> object:
        raise PermissionError("ExpiredToken: the provided token has expired")

    monkeypatch.setattr(reading, "_clients", {})
    monkeypatch.setattr(reading, "new_client", new_client)
    assert patient(memory).read(4) == CONTENT[:4]
    assert made == [memory, memory]


def test_clients_are_told_apart_by_the_values_of_options(
    memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client is shared by URLs with equal options, and not by options of the same
    names.
    """
    made: list[Any] = []
    monkeypatch.setattr(reading, "_clients", {})
    filesystem = fsspec.filesystem("memory")
    monkeypatch.setattr(
        reading, "new_client", lambda url, options: made.append(options) or (filesystem, url[9:])
    )
    for endpoint in "aab":
        open_remote(memory, options=StorageOptions(endpoint_url=endpoint)).read(1)
    assert [options["endpoint_url"] for options in made] == ["a", "b"]


def test_a_forked_process_has_its_own_client(memory: str) -> None:
    """A forked process makes its clients anew, and reads."""
    file = open_remote(memory)
    assert file.read(4) == CONTENT[:4]
    before = {id(one) for one in reading._clients.values()}

    def ask() -> object:
        return file.read(4), len(
            [one for one in reading._clients.values() if id(one) not in before]
        )

    assert told_by_child(ask) == str((CONTENT[4:8], 1))


def test_open_file_takes_both(memory: str, tmp_path: Path) -> None:
    """A path of this machine and a URL are opened alike."""
    (tmp_path / "a").write_bytes(b"local")
    with open_file(str(tmp_path / "a")) as local, open_file(memory) as remote:
        assert (local.read(), remote.read(2)) == (b"local", CONTENT[:2])


def test_an_object_is_put_as_a_whole(memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An object replaces another, a request that fails is sent again, and the error
    after the last try names the object.
    """
    put(memory, b"new")
    assert open_remote(memory).read() == b"new"
    monkeypatch.setattr(retrying, "FIRST_PAUSE", 0)
    tries: list[str] = []

    def fail(filesystem: Any, path: str) -> None:
        tries.append(path)
        if len(tries) < 4 or len(tries) > 9:
            raise ConnectionResetError
        filesystem.rm_file(path)

    change(memory, fail, "removed")
    assert tries == ["/x/a"] * 4
    with pytest.raises(NotFoundError, match="memory://x/a could not be removed"):
        change(memory, fail, "removed")
    del tries[:]
    tries.extend("123456789")
    with pytest.raises(UnavailableError, match="memory://x/a could not be removed after 6 tries"):
        change(memory, fail, "removed")


def test_absent_packages_and_files(memory: str) -> None:
    """A protocol without its package names the extra; an absent object and a folder are
    not found.
    """
    with pytest.raises(UnimplementedError, match=r"zmqdata\[fsspec\]"):
        open_remote("gs://bucket/x").read(1)
    with pytest.raises(NotFoundError, match="memory://x/b, bytes 0 to 1"):
        open_remote("memory://x/b").read(1)
    with pytest.raises(NotFoundError, match="is a folder"):
        open_remote("memory://x").read(1)
