"""Tests of the sockets on which a service with default settings listens."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from benchmarks.attacks import START
from zmqdata import Dataset, distribute
from zmqdata.cluster.processes import ServerProcess
from zmqdata.testing.cluster import descendants

pytestmark = pytest.mark.realprocess

LISTENS = "0A"


def open_sockets(pids: Iterable[int]) -> set[str]:
    """Return the numbers of all sockets of some processes."""
    found = set()
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                found.add(os.readlink(link).removeprefix("socket:[").rstrip("]"))
    return found


def listening(
    pids: Iterable[int],
) -> Iterator[tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int]]:
    """Yield the addresses on which processes listen, as a scan of all ports would find
    them.
    """
    theirs = open_sockets(pids)
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            _, local, _, state, _, _, _, _, _, number = line.split()[:10]
            if state == LISTENS and number in theirs:
                host, port = local.split(":")
                words = struct.unpack(f">{len(host) // 8}I", bytes.fromhex(host))
                address = ipaddress.ip_address(struct.pack(f"={len(words)}I", *words))
                mapped = getattr(address, "ipv4_mapped", None)
                yield mapped or address, int(port, 16)


def test_a_default_start_listens_on_the_loopback_only() -> None:
    """A dispatcher and a worker of the command line have three kinds of sockets on the
    loopback, and no others, during a TCP read.
    """
    dispatcher = ServerProcess("zmqdata.dispatcher", ["--log-level=warning"], 1)
    with contextlib.closing(dispatcher):
        dispatcher.launch()
        dispatcher.await_ready(START)
        worker = ServerProcess(
            "zmqdata.worker", ["--dispatcher", dispatcher.address, "--log-level=warning"], 1
        )
        with contextlib.closing(worker):
            worker.launch()
            worker.await_ready(START)
            read = distribute("distributed_epoch", dispatcher.address, data_transfer_protocol="tcp")
            it = iter(Dataset.range(1_000_000).apply(read))
            next(it)
            pids = [pid for one in (dispatcher, worker) for pid in (one.pid, *descendants(one.pid))]
            found = {address for address, _ in listening([*pids, os.getpid()])}
            doors = {port for _, port in listening(pids)}
            it.close()
            known = {
                int(address.rpartition(":")[2]) for address in (dispatcher.address, worker.address)
            }
    assert all(address.is_loopback for address in found), found
    assert known < doors
    assert len(doors) == 3, "the data socket was not found, so neither would others have been"


def test_the_scan_finds_what_listens_everywhere() -> None:
    """The scan finds a socket that listens on every interface."""
    with socket.create_server(("0.0.0.0", 0)) as server:
        assert (ipaddress.ip_address("0.0.0.0"), server.getsockname()[1]) in listening(
            [os.getpid()]
        )
