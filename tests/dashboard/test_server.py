"""Tests of ``zmqdata.dashboard.server`` and of ``zmqdata dashboard``."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.statuses import answer, status
from zmqdata import DispatcherConfig, DispatchServer
from zmqdata.cli.commands import main
from zmqdata.config.dashboard import DashboardSettings
from zmqdata.dashboard import server as servers
from zmqdata.dashboard.server import DashboardServer
from zmqdata.dashboard.watching import StatusWatch
from zmqdata.testing.cluster import await_condition

ANYWHERE = "tcp://127.0.0.1:1"


def watching(workers: int = 2) -> StatusWatch:
    return StatusWatch(lambda: answer(status(workers)), threading.Event(), every=0.05)


@pytest.fixture
def page() -> Iterator[DashboardServer]:
    """A page that all on this machine may see."""
    with DashboardServer(DashboardSettings(ANYWHERE, port=0), watching()) as server:
        yield server


@pytest.fixture
def guarded_page() -> Iterator[DashboardServer]:
    """A page on every interface, which needs a token."""
    with DashboardServer(DashboardSettings(ANYWHERE, host="0.0.0.0", port=0), watching()) as server:
        yield server


class NotFollowed(urllib.request.HTTPRedirectHandler):
    """Leaves redirections to the test."""

    def redirect_request(self, *arguments: object) -> None:
        return None


def ask(url: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], str]:
    request = urllib.request.Request(url, method=method, headers=headers)
    try:
        answer: Any = urllib.request.build_opener(NotFollowed).open(request, timeout=20)
    except urllib.error.HTTPError as error:
        answer = error
    with answer:
        found = {name.lower(): text for name, text in answer.headers.items()}
        return answer.status, found, answer.read().decode()


def local(server: DashboardServer, path: str = "/") -> str:
    return f"http://127.0.0.1:{urlsplit(server.link).port}{path}"


@pytest.mark.parametrize("path", ["/", "/static/dashboard.js", "/history", "/static/none", "/none"])
def test_every_answer_has_the_policy(page: DashboardServer, path: str) -> None:
    """Pages, files, errors: all forbid foreign scripts and frames."""
    code, headers, _ = ask(local(page, path))
    assert code == (404 if "none" in path else 200)
    assert "default-src 'self'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"
    assert "server" not in headers


def test_no_file_outside_of_the_page_is_served(page: DashboardServer) -> None:
    """A path that climbs out of the folder is not found."""
    for path in ("/static/../report.py", "/static/%2e%2e%2freport.py", "/static/__init__.py"):
        assert ask(local(page, path))[0] == 404


def test_the_stream_brings_the_history_and_then_each_view(page: DashboardServer) -> None:
    """A viewer gets all of the history once, and the points that each poll adds."""
    with urllib.request.urlopen(local(page, "/events"), timeout=20) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        kinds, bodies = [], []
        while len(bodies) < 4:
            line = stream.readline().decode().strip()
            if line.startswith("event: "):
                kinds.append(line.removeprefix("event: "))
            if line.startswith("data: "):
                bodies.append(json.loads(line.removeprefix("data: ")))
    assert kinds == ["whole", "view", "view", "view"]
    assert [one["job"] for one in bodies[-1]["view"]["jobs"]] == ["train"]
    assert set(bodies[-1]["points"]) == {"1"}


def test_a_closed_window_is_forgotten(page: DashboardServer) -> None:
    """The server notices that a viewer has left."""
    watch: StatusWatch = page._watch
    with urllib.request.urlopen(local(page, "/events"), timeout=20) as stream:
        stream.readline()
        await_condition(lambda: watch.viewers == 1)
    await_condition(lambda: watch.viewers == 0)


def test_the_head_of_a_stream_is_no_stream(page: DashboardServer) -> None:
    """A question about the stream alone is answered, and is no viewer."""
    code, headers, text = ask(local(page, "/events"), method="HEAD")
    assert (code, headers["content-type"], text) == (200, "text/event-stream", "")


def test_too_many_windows_are_refused(
    page: DashboardServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A further viewer is told to close other windows."""
    monkeypatch.setattr(servers, "MOST_VIEWERS", 0)
    code, _, text = ask(local(page, "/events"))
    assert code == 503
    assert "Close some" in text


def test_a_foreign_host_name_is_refused(page: DashboardServer) -> None:
    """A browser that was led here by a foreign name gets nothing."""
    for path in ("/", "/events", "/history"):
        code, headers, text = ask(local(page, path), Host="evil.example")
        assert code == 421
        assert "train" not in text
        assert "content-security-policy" in headers


def test_other_interfaces_need_a_token(guarded_page: DashboardServer) -> None:
    """The link has the token. It leads to the page without it, and to a cookie."""
    token = urlsplit(guarded_page.link).query
    assert len(token) > 30
    assert ask(local(guarded_page))[0] == 403
    assert ask(local(guarded_page, "/events"))[0] == 403
    code, headers, _ = ask(local(guarded_page, f"/?{token}"))
    assert (code, headers["location"]) == (303, "./")
    cookie = headers["set-cookie"].partition(";")[0]
    code, _, text = ask(local(guarded_page), Cookie=cookie)
    assert (code, "<title>" in text) == (200, True)
    assert ask(local(guarded_page, "/history"), Cookie=cookie)[0] == 200


def test_a_given_token_is_needed_on_loopback_too() -> None:
    """A user of a shared machine can demand a token."""
    settings = DashboardSettings(ANYWHERE, port=0, token="mine")
    with DashboardServer(settings, watching()) as server:
        assert server.link.endswith("/?token=mine")
        assert ask(local(server))[0] == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"])
def test_the_page_can_only_be_read(page: DashboardServer, method: str) -> None:
    """Every method that could change something is refused, with the policy."""
    code, headers, _ = ask(local(page), method=method)
    assert code == 405
    assert "content-security-policy" in headers


def test_a_port_in_use_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    """The command says that the address is in use."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["dashboard", "--dispatcher", ANYWHERE, "--port", port]) == 2
    assert "in use" in capsys.readouterr().err


@pytest.mark.realprocess
@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_the_command_ends_at_a_signal(kind: signal.Signals) -> None:
    """The command prints its address, serves it, and ends with 0 at a signal although a
    viewer is there.
    """
    with DispatchServer(DispatcherConfig()) as dispatcher:
        command = [sys.executable, "-m", "zmqdata", "dashboard"]
        options = ["--dispatcher", dispatcher.target, "--port", "0"]
        with subprocess.Popen(command + options, stdout=subprocess.PIPE, text=True) as ran:
            try:
                assert ran.stdout is not None
                line = ran.stdout.readline()
                assert line.startswith("zmqdata dashboard at http://127.0.0.1:")
                with urllib.request.urlopen(f"{line.split()[-1]}events", timeout=20) as stream:
                    stream.readline()
                    ran.send_signal(kind)
                    assert ran.wait(30) == 0
            finally:
                ran.kill()
