"""Tests of ``zmqdata doctor`` on servers in this process, and on ports of others."""

from __future__ import annotations

import json
import os
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from rich.console import Console

from zmqdata import DispatcherConfig, DispatchServer, LocalCluster
from zmqdata.cli import doctor
from zmqdata.cli.commands import main
from zmqdata.cli.doctor import Doctor, finding_tables, key_finding, silence_finding
from zmqdata.cli.findings import FAILURE, HERE, OK, UNCHECKED, WARNING, Finding, form_findings
from zmqdata.client.calls import status
from zmqdata.config.keys import KeySettings
from zmqdata.errors import UnavailableError
from zmqdata.transport import keychoice
from zmqdata.transport.keys import new_key, save


@pytest.fixture(autouse=True)
def _key_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no test change the key that later tests show."""
    monkeypatch.setattr(keychoice, "_chosen", None)


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(2, in_process=True) as made:
        yield made


def addresses_of(cluster: LocalCluster) -> list[str]:
    return [str(one["address"]) for one in status(cluster.target)["workers"]]


def examined(service: str, keys: KeySettings | None = None, timeout: float = 60.0) -> list[Finding]:
    return Doctor(service, keys or KeySettings(), timeout).findings()


def faults(found: list[Finding]) -> list[tuple[str, str]]:
    return [(one.check, one.state) for one in found if one.state in (WARNING, FAILURE)]


def test_a_cluster_is_checked_server_by_server(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dispatcher and each worker have answers, versions, clocks and times, each
    worker also a throughput, and nothing has failed.
    """
    # A busy machine has time, and a measurement ends with its bytes.
    for name, value in (("PATIENCE", 30.0), ("TRANSFER_SECONDS", 10.0), ("TRANSFER_BYTES", 1)):
        monkeypatch.setattr(doctor, name, value)
    found = examined(cluster.target)
    assert not [one for one in found if one.state in (FAILURE, UNCHECKED)]
    of_server = {"answer", "versions", "file descriptors", "clock", "round trip"}
    workers = {one.subject for one in found if one.subject.startswith("worker ")}
    assert workers == {f"worker {address}" for address in addresses_of(cluster)}
    for subject in workers:
        checks = {one.check for one in found if one.subject == subject}
        assert checks == of_server | {"throughput"}
    dispatcher = {one.check for one in found if one.subject.startswith("dispatcher ")}
    assert dispatcher == of_server | {"port", "key"}
    rates = [one.found for one in found if one.check == "throughput"]
    assert all(text.endswith(" MB/s") for text in rates)


def test_without_a_dispatcher_this_machine_is_checked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The JSON says what was not checked, and that changes no exit code."""
    monkeypatch.delenv("ZMQDATA_DISPATCHER", raising=False)
    code = main(["doctor", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert code == (0 if told["well"] else 1)
    by_subject = {one["subject"]: one["state"] for one in told["findings"]}
    assert by_subject["dispatcher"] == by_subject["workers"] == UNCHECKED
    assert {"versions", "key", "file descriptors", "shared memory", "/dev/shm"} == {
        one["check"] for one in told["findings"] if one["subject"] == HERE
    }


def test_a_port_without_a_server_is_a_failure() -> None:
    """A refused connection is told as such, and workers are not checked."""
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
    found = examined(f"tcp://127.0.0.1:{port}")
    assert ("port", FAILURE) in faults(found)
    assert found[-1].state == UNCHECKED
    assert "no server listens there" in {one.found for one in found}


@contextmanager
def web_server() -> Iterator[int]:
    """A server that answers everything with an error of HTTP."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def serve() -> None:
            while True:
                try:
                    visitor, _ = server.accept()
                except OSError:
                    return
                with closing(visitor):
                    visitor.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" + b"." * 64)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_another_service_is_recognized() -> None:
    """A web server at the port is a failure with its own text."""
    with web_server() as port:
        found = examined(f"tcp://127.0.0.1:{port}")
    assert ("service", FAILURE) in faults(found)


def test_the_address_of_a_worker_is_not_that_of_a_dispatcher(cluster: LocalCluster) -> None:
    """A worker that is named as the dispatcher is recognized."""
    found = examined(addresses_of(cluster)[0])
    assert "a worker answers there" in {one.found for one in found}


def test_an_unknown_host_is_a_failure() -> None:
    """A name that nobody knows is a failure before any connection."""
    assert ("name", FAILURE) in faults(examined("tcp://no-such-host.invalid:1"))


def test_a_dispatcher_without_a_key_is_a_failure_for_holders_of_one() -> None:
    """Both sides must have a key or none. A cluster without one has a warning."""
    with DispatchServer(DispatcherConfig(insecure=True)) as dispatcher:
        assert ("key", FAILURE) in faults(examined(dispatcher.target))
        found = examined(dispatcher.target, KeySettings(insecure=True))
        assert ("key", FAILURE) not in faults(found)
        assert ("key", WARNING) in faults(found)
        assert ("all", WARNING) in faults(found)  # no worker is registered


def test_a_key_is_required_by_a_dispatcher_with_one(cluster: LocalCluster) -> None:
    """A process without a key, and one with another key, are told so."""
    assert ("key", FAILURE) in faults(examined(cluster.target, KeySettings(insecure=True)))


def test_another_key_is_not_admitted(cluster: LocalCluster, tmp_path: Path) -> None:
    """The key of another cluster is a failure of the dispatcher's key."""
    save(tmp_path / "other.key", new_key())
    found = examined(cluster.target, KeySettings(str(tmp_path / "other.key")))
    assert [one.subject.partition(" ")[0] for one in found if one.state == FAILURE] == [
        "dispatcher"
    ]


def test_a_key_that_others_can_read_is_a_failure(tmp_path: Path) -> None:
    """A key file is checked for existence, mode and content, and never made."""
    path = tmp_path / "cluster.key"
    settings = KeySettings(str(path))
    assert key_finding(settings)[1].state == FAILURE
    assert not path.exists()
    save(path, new_key())
    key, found = key_finding(settings)
    assert (found.state, key is not None) == (OK, True)
    os.chmod(path, 0o644)
    key, found = key_finding(settings)
    assert (found.state, key) == (FAILURE, None)
    assert "chmod 600" in found.remedy


def test_workers_for_which_no_time_is_left_are_named(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers that were not asked, or not measured, have a warning that says so."""
    late = Doctor(cluster.target, KeySettings(), 60.0)
    now = late._clock()
    late._clock = lambda: now + 100.0
    found = late._workers(addresses_of(cluster))
    assert [(one.check, one.state) for one in found] == [("answer", WARNING)] * 2
    assert late._rates(addresses_of(cluster)) == {}
    early = Doctor(cluster.target, KeySettings(), 60.0)
    monkeypatch.setattr(early, "_rates", lambda addresses: {})
    found = [one for one in early._workers(addresses_of(cluster)) if one.check == "throughput"]
    assert {one.found for one in found} == {"not checked, because the time is up"}
    assert len(found) == 2


def test_a_worker_that_does_not_answer_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that accepts connections and says nothing ends its own wait only."""
    monkeypatch.setattr(doctor, "PATIENCE", 0.3)
    with closing(socket.create_server(("127.0.0.1", 0))) as deaf:
        address = f"tcp://127.0.0.1:{deaf.getsockname()[1]}"
        found = Doctor("", KeySettings(), 60.0)._workers([address])
    assert [(one.check, one.state) for one in found] == [("answer", FAILURE)]
    assert "--advertise" in found[0].remedy


def test_a_worker_that_only_its_own_machine_reaches_is_recognized() -> None:
    """A loopback address has its own remedy if the dispatcher is on another machine."""
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        endpoint = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
    for is_local, text in ((False, "--host 0.0.0.0"), (True, "--advertise")):
        found = silence_finding("w", endpoint, "worker", UnavailableError("silent"), is_local)
        assert (found.state, found.found) == (FAILURE, "no server listens there")
        assert text in found.remedy


def test_the_table_names_what_is_not_well() -> None:
    """Healthy workers share a row each; remedies and the verdict follow the table."""
    found = [
        Finding(HERE, "key", OK, "file"),
        Finding("worker tcp://[::1]:1", "clock", OK, "+0.001 s"),
        Finding("worker tcp://[::1]:1", "round trip", OK, "1 ms"),
        Finding("worker tcp://b:1", "clock", WARNING, "+9.000 s", "Set the clock."),
        Finding("worker tcp://b:1", "round trip", OK, "1 ms"),
    ]
    console = Console(width=120, record=True, force_terminal=False)
    with console.capture() as captured:
        for shown in finding_tables(found):
            console.print(shown)
    lines = [line.split() for line in captured.get().splitlines()]
    assert ["ok", "worker", "tcp://[::1]:1", "all", "clock", "+0.001", "s;", "round", "trip"] in [
        line[:9] for line in lines
    ]
    assert ["warning", "worker", "tcp://b:1", "clock", "+9.000", "s"] in lines
    text = captured.get()
    assert "worker tcp://b:1, clock: Set the clock." in text
    assert text.rstrip().endswith("Not all is well: 1 warning.")


@pytest.mark.parametrize("variables", [{}, {"COLUMNS": "40"}, {"FORCE_COLOR": "1"}])
def test_a_pipe_gets_whole_lines(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Into a pipe, a remedy with a command is one line and no id is cut, whatever the
    window and the colours are.
    """
    for name in ("COLUMNS", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    subject, value = f"worker tcp://{'h' * 60}:1", "f" * 64
    remedy = (
        "Run `zmqdata worker --dispatcher tcp://dispatcher.example.org:5050 --tags GPU --user`."
    )
    found = [Finding(subject, "key", WARNING, value, remedy)]
    monkeypatch.setattr(Doctor, "findings", lambda self: found)
    assert main(["doctor"]) == 1
    lines = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out).splitlines()
    assert f"{subject}, key: {remedy}" in lines
    assert any(subject in line and value in line for line in lines)


def test_a_status_of_another_release_is_told(cluster: LocalCluster) -> None:
    """A status of no, another or a broken version is a warning with the remedy. The
    present one is no finding.
    """
    plain = status(cluster.target)
    assert form_findings("dispatcher", plain) == []
    older = {name: value for name, value in plain.items() if name != "version"}
    broken = {**plain, "workers": 7}
    for found, words in (
        (older, "is older than this release"),
        ({**plain, "version": 9}, "has version 9"),
        (broken, "has another form"),
    ):
        (finding,) = form_findings("dispatcher", found)
        assert (finding.check, finding.state) == ("status", WARNING)
        assert words in finding.remedy
        assert "install the same release on both sides" in finding.remedy
