"""Tests of the page that describes the configuration."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools.configuration_page import PAGE, filled
from zmqdata import (
    Dataset,
    DispatcherConfig,
    DispatchServer,
    WorkerConfig,
    WorkerServer,
    distribute,
)
from zmqdata.blocks import structures
from zmqdata.client.calls import status
from zmqdata.core import limits
from zmqdata.core.dispatcher.state import trace as reported
from zmqdata.core.worker import links
from zmqdata.dispatcher import store
from zmqdata.measures.trace import MOST_SPANS
from zmqdata.messages import OperationStatus
from zmqdata.transport import connections, entrance, keys, sockets
from zmqdata.worker import links as link_sockets

TEXT = Path(PAGE).read_text(encoding="utf-8")


def test_the_tables_are_those_of_the_declarations() -> None:
    """The page has every setting as declared; ``python tools/configuration_page.py``
    updates it.
    """
    assert filled(TEXT) == TEXT


LIMITS = {
    "datasets, and jobs": f"{limits.MOST_DATASETS:,} each",
    "parts of pipelines": f"{limits.MOST_UPLOADS:,}",
    "clients of one connection": f"{limits.MOST_CLIENTS_OF_PEER}",
    "bytes of all datasets": f"{limits.MOST_REGISTERED_BYTES >> 30} GiB",
    "bytes of all states": f"{limits.MOST_WAITING_BYTES >> 30} GiB",
    "bytes of all parts": f"as long as the disk has {store.RESERVED_BYTES >> 20} MiB left",
    "clients, and workers": f"{limits.MOST_CLIENTS:,} each",
    "characters of a name": f"{limits.MOST_CHARACTERS:,}",
    "messages of one peer": f"{sockets.HEARD_QUEUE:,}",
    "links of a worker": f"{links.MAX_LINKS:,}, and {links.MAX_IDLE_LINKS}",
    "tasks for which": f"{links.MAX_GRANTS:,}",
    "spans of a process": f"{MOST_SPANS:,}, and {reported.MOST_TOGETHER:,}",
    "bytes that wait": f"{link_sockets.MOST_QUEUED_BYTES >> 30} GiB",
    "connections that were admitted": f"{entrance.MOST_UNHEARD}, or {entrance.MOST_UNHEARD_BYTES >> 20} MiB",
    "answers of a server": f"{sockets.CONTROL_QUEUE:,}, and {connections.MOST_UNTAKEN >> 20} MiB",
    "bytes of a checkpoint": f"{limits.MOST_CHECKPOINT_BYTES >> 20} MiB",
    "levels of nesting": f"{structures.MAX_DEPTH}",
    "known keys": f"{keys.MOST_KNOWN:,}",
    "seconds in which": f"{sockets.HANDSHAKE_MS // 1000}",
    "consumers of a": f"{limits.MOST_CONSUMERS:,}, and {limits.MOST_TASKS:,}",
}


@pytest.mark.parametrize("start", LIMITS)
def test_limits_are_told_as_they_are(start: str) -> None:
    """Each number in the table of limits is the code's."""
    (row,) = [line for line in TEXT.splitlines() if line.startswith(f"| {start}")]
    assert row.split(" | ")[1].startswith(LIMITS[start])


def described(section: str) -> dict[str, set[str]]:
    """Return the keys of a state, each with the keys of its rows."""
    table = TEXT.partition(f"{section} reports these keys:\n\n")[2].partition("\n\n")[0]
    rows = [line.strip("| ").split(" | ", 1) for line in table.splitlines()[2:]]
    return {key.strip("`"): set(re.findall(r"`(\w+)`", meaning)) for key, meaning in rows}


def test_the_state_of_a_server_is_described() -> None:
    """The page names exactly the keys in the status of dispatchers and workers."""
    with (
        DispatchServer(DispatcherConfig()) as dispatcher,
        WorkerServer(WorkerConfig(dispatcher.target)) as worker,
    ):
        elements = iter(
            Dataset.range(100_000).apply(distribute("distributed_epoch", dispatcher.target, "job"))
        )
        next(elements)
        for section, address in (("A dispatcher", dispatcher.target), ("A worker", worker.address)):
            found, told = status(address), described(section)
            assert set(found) == set(told)
            for key in ("workers", "iterations", "jobs", "tasks"):
                keys = {name for row in found.get(key, []) for name in row}
                keys |= {
                    name
                    for row in found.get(key, [])
                    for one in [*row.get("splits", []), *row.get("readers", [])]
                    for name in one
                }
                if (section, key) == ("A dispatcher", "jobs"):
                    keys |= set(OperationStatus.__struct_fields__)
                assert keys == told.get(key, set())
        elements.close()
