"""Tests of servers in a forked child: their errors, and the remedy."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.kit.forks import told_by_child
from zmqdata import DispatchServer, WorkerConfig, WorkerServer
from zmqdata.transport.forks import check_process


def test_the_owner_may_go_on() -> None:
    """An object works in its own process; elsewhere the error names both processes and
    the remedy.
    """
    check_process(os.getpid(), "iterator", "Make a new one.")
    with pytest.raises(
        RuntimeError,
        match=rf"iterator belongs to process 1 and .* process {os.getpid()}, .* one\.$",
    ):
        check_process(1, "iterator", "Make a new one.")


def test_a_dispatcher_cannot_be_used_in_a_child() -> None:
    """Using a parent's dispatcher in a forked child is an immediate error. The parent's
    dispatcher continues.
    """
    uses: list[Callable[[DispatchServer], Any]] = [
        DispatchServer.num_workers,
        lambda server: server.target,
        DispatchServer.start,
        DispatchServer.stop,
        DispatchServer.join,
    ]
    with DispatchServer() as server:
        for use in uses:
            told = told_by_child(partial(use, server))
            assert told.startswith(
                f"RuntimeError: This DispatchServer belongs to process {os.getpid()}"
            )
            assert "make a new DispatchServer" in told
            assert server.num_workers() == 0
            assert not server.join(0)


def test_a_worker_cannot_be_used_in_a_child() -> None:
    """Using a parent's worker in a forked child is an immediate error."""
    uses: list[Callable[[WorkerServer], Any]] = [
        WorkerServer.wait_registered,
        lambda server: server.address,
        WorkerServer.num_tasks,
        WorkerServer.stop,
    ]
    with WorkerServer(WorkerConfig(dispatcher_address="tcp://127.0.0.1:1")) as server:
        for use in uses:
            assert "WorkerServer belongs to process" in told_by_child(partial(use, server))


def test_a_child_leaves_its_parents_block_in_silence() -> None:
    """A forked child that leaves its parent's ``with`` block stops nothing and raises
    nothing.
    """
    with DispatchServer() as server:
        assert told_by_child(lambda: server.__exit__(None, None, None)) == "None"
        assert not server.join(0)


def test_a_child_may_have_a_server_of_its_own() -> None:
    """A server created, or first started, in a forked child works in that child."""
    waiting = DispatchServer(start=False)

    def own() -> list[int]:
        waiting.start()
        with DispatchServer() as made, waiting:
            return [made.num_workers(), waiting.num_workers()]

    assert told_by_child(own) == "[0, 0]"
