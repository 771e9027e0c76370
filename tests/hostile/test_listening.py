"""Facts about where a service listens that was started without a word about it."""

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
    """The numbers of all sockets that processes have."""
    found = set()
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                found.add(os.readlink(link).removeprefix("socket:[").rstrip("]"))
    return found


def listening(
    pids: Iterable[int],
) -> Iterator[tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int]]:
    """Where processes listen, as a scan of all ports would find it."""
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
    """A dispatcher and a worker by command line, while a job is read over TCP: three
    kinds of sockets, none beyond.
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
    """What it would have to find is found."""
    with socket.create_server(("0.0.0.0", 0)) as server:
        assert (ipaddress.ip_address("0.0.0.0"), server.getsockname()[1]) in listening(
            [os.getpid()]
        )
