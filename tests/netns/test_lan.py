"""Tests with dispatcher, workers and client on separate machines, as far as the network
can tell: they connect through real interfaces.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.netns.lan import ROOT, START, Lan, NotPermittedError, Program
from zmqdata.testing.cluster import await_condition

pytestmark = [pytest.mark.netns, pytest.mark.timeout(300)]

PORT = 5050
COUNT = 20_000
READ, WINDOW = 500, 256
"""Elements that a client has read before a disturbance, and the largest number in
flight to it.
"""
FILES = 60
LARGE_BYTES = 30_000_000


@pytest.fixture
def lan(tmp_path: Path) -> Iterator[Lan]:
    """Four machines on a switch."""
    try:
        made = Lan(["dispatcher", "worker1", "worker2", "client"], tmp_path)
    except NotPermittedError as refusal:
        pytest.skip(f"network namespaces are not permitted here: {refusal}")
    yield made
    made.close()


def start_service(lan: Lan, *options: str) -> str:
    """Start the servers as the README says; return the address of the dispatcher."""
    service = lan.serve("dispatcher", "dispatcher", "--port", str(PORT), *options)
    assert service == f"tcp://{lan.address('dispatcher')}:{PORT}"
    for machine in ("worker1", "worker2"):
        # Only a small part of a job is made before its client continues, so that a
        # worker that begins late has its share.
        announced = lan.serve(
            machine, "worker", "--dispatcher", service, "--buffer-bytes", str(1 << 20)
        )
        assert announced.startswith(f"tcp://{lan.address(machine)}:")
    return service


def status(lan: Lan, address: str, role: str = "--dispatcher") -> dict[str, Any]:
    """Return the status of a server."""
    found: dict[str, Any] = json.loads(
        lan.run("client", "-m", "zmqdata", "status", "--json", role, address)
    )
    return found


@pytest.mark.full
def test_the_audit_on_four_machines(lan: Lan) -> None:
    """The example trains over the network: each file comes exactly once, and the
    blocks travel over the cables.
    """
    service = start_service(lan)
    example = str(ROOT / "examples" / "audit.py")
    said = lan.run("client", example, "--service", service, "--files", str(FILES), "--epochs", "3")
    assert re.search(rf"each file exactly once per epoch\W+yes: {FILES} files", said), said
    size = number_behind("bytes", said)
    received, _ = lan.traffic("client")
    sent = [lan.traffic(worker)[1] for worker in ("worker1", "worker2")]
    assert received > size / 4
    assert received > 0.9 * sum(sent)
    assert min(sent) > size / 20
    assert sum(lan.traffic("dispatcher")) < size / 10
    assert lan.traffic("client", "lo") == (0, 0)


def number_behind(name: str, said: str) -> int:
    """Return a number of the table that the example prints."""
    found = re.search(rf"\b{name}\W+([0-9,]+)", said)
    assert found, said
    return int(found[1].replace(",", ""))


CLIENT = f"""
import json, sys
import numpy as np
from zmqdata import Dataset, distribute

read = distribute("distributed_epoch", sys.argv[1], sys.argv[2], max_outstanding_requests={WINDOW})
elements = iter(Dataset.range({COUNT}).map(lambda x: np.full(100, x)).apply(read))
found = [int(next(elements)[0]) for _ in range({READ})]
print("reading")
sys.stdin.readline()
found += [int(element[0]) for element in elements]
print(json.dumps(found))
"""


def repeated_or_missing(client: Program) -> dict[int, int]:
    """Return the number of times that each element came, except elements that came
    once.
    """
    seen = Counter(json.loads(client.await_end().splitlines()[-1]))
    return {x: seen[x] for x in seen.keys() | set(range(COUNT)) if seen[x] != 1}


def start_client(lan: Lan, service: str, job: str = "job") -> Program:
    """Start a client that stops in mid-job, and continues after a line of input."""
    client = lan.start("client", "-c", CLIENT, service, job)
    client.await_line("reading")
    return client


def await_produced(lan: Lan, address: str, more_than: int) -> int:
    """Wait until the only task of a worker has made more elements than ``more_than``;
    return the number of the task.
    """

    def found() -> list[int]:
        return [
            one["task"]
            for one in status(lan, address, "--worker")["tasks"]
            if one["produced"] > more_than
        ]

    await_condition(lambda: bool(found()), START, "what it has made")
    [task] = found()
    return task


VANISHING = {
    "pulled": (Lan.pull_cable, Lan.plug_cable),
    "not heard": (Lan.mute, Lan.unmute),
    "not hearing": (Lan.deafen, Lan.undeafen),
}
"""Ways in which a machine vanishes, and ways in which it comes back."""


@pytest.mark.full
@pytest.mark.parametrize("how", VANISHING)
def test_a_machine_vanishes(lan: Lan, how: str) -> None:
    """A job whose worker is cut off ends with every element once; the returning worker
    gives up its old attempt.
    """
    vanish, come_back = VANISHING[how]
    service = start_service(lan, "--worker-timeout-ms", "1000")
    client = start_client(lan, service)
    [address] = [
        one["address"]
        for one in status(lan, service)["workers"]
        if lan.address("worker2") in one["address"]
    ]
    task = await_produced(lan, address, READ + WINDOW)
    vanish(lan, "worker2")
    client.tell("go on")
    assert repeated_or_missing(client) == {}
    after = status(lan, service)
    assert 2 in [task["attempt"] for task in after["tasks"]]
    assert len(after["workers"]) == 1
    come_back(lan, "worker2")
    await_condition(
        lambda: status(lan, address, "--worker")["tasks"] == [], START, "the end of its old attempt"
    )
    assert task in status(lan, address, "--worker")["deleted_tasks"]
    check_new_work(lan, service, address)


def check_new_work(lan: Lan, service: str, address: str) -> None:
    """Check that a worker gets a part of the next job."""
    client = start_client(lan, service, "next job")
    await_produced(lan, address, 0)
    client.tell("go on")
    assert repeated_or_missing(client) == {}


def test_a_machine_is_back_in_time(lan: Lan) -> None:
    """A worker whose cable is pulled briefly keeps its task, and every element comes
    exactly once.
    """
    service = start_service(lan)
    client = start_client(lan, service)
    lan.pull_cable("worker2")
    client.tell("go on")
    await_condition(
        lambda: max(worker["silent_seconds"] for worker in status(lan, service)["workers"]) > 2,
        what="its silence",
    )
    assert client.process.poll() is None
    lan.plug_cable("worker2")
    assert repeated_or_missing(client) == {}
    assert [task["attempt"] for task in status(lan, service)["tasks"]] == [1, 1]
    check_traffic(lan)


def check_traffic(lan: Lan) -> None:
    """Check that the blocks travelled over the cables of the workers, past the
    dispatcher.
    """
    received, _ = lan.traffic("client")
    assert sum(lan.traffic(worker)[1] for worker in ("worker1", "worker2")) > 0.9 * received
    assert sum(lan.traffic("dispatcher")) < received / 10
    assert lan.traffic("client", "lo") == (0, 0)


LARGE = f"""
import os, sys
import numpy as np
from zmqdata import Dataset, distribute

large = Dataset.range(2).map(lambda x: np.frombuffer(os.urandom({LARGE_BYTES}), np.uint8))
for element in large.apply(distribute("distributed_epoch", sys.argv[1])):
    print("came", element.nbytes)
"""


@pytest.mark.full
def test_an_element_may_take_longer_than_silence_may_last(lan: Lan) -> None:
    """A slow cable may take longer for an element than the ten seconds in which a link
    must give a sign of life.
    """
    lan.limit("client", "20mbit")
    service = start_service(lan)
    client = lan.start("client", "-c", LARGE, service)
    assert client.await_end().count(f"came {LARGE_BYTES}") == 2
