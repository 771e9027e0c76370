"""Tests of ``compression="AUTO"`` on cables of several speeds, as far as the network
can tell.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.netns.lan import Lan, NotPermittedError

pytestmark = [pytest.mark.netns, pytest.mark.timeout(180)]

COUNT, WIDTH = 240, 1 << 17
"""Elements, and the tokens in each: a megabyte. Up to 80 elements are made and in
flight before the speed of the cable is known.
"""
SIZE = COUNT * WIDTH * 8

CLIENT = f"""
import json, sys
import numpy as np
from zmqdata import Dataset, distribute
from zmqdata.client.calls import status

service, compression = sys.argv[1], None if sys.argv[2] == "None" else sys.argv[2]
tokens = np.random.default_rng(0).integers(0, 5000, {WIDTH})
dataset = Dataset.range(1 << 30).map(lambda i: tokens + i % 3)
elements = iter(dataset.apply(distribute("parallel_epochs", service, compression=compression)))
for i in range({COUNT}):
    assert (next(elements) == tokens + i % 3).all()
shown = [task["compressed"] for task in status(service)["tasks"]]
print(json.dumps(shown))
"""


@pytest.fixture
def lan(tmp_path: Path) -> Iterator[Lan]:
    """Two machines on a switch."""
    try:
        made = Lan(["worker", "client"], tmp_path)
    except NotPermittedError as refusal:
        pytest.skip(f"network namespaces are not permitted here: {refusal}")
    yield made
    made.close()


def read(lan: Lan, compression: str) -> tuple[str, int]:
    """Read with a client; return the compression that the task reports, and the bytes
    that came over the cable.
    """
    service = lan.serve("worker", "dispatcher")
    lan.serve("worker", "worker", "--dispatcher", service)
    [shown] = json.loads(lan.run("client", "-c", CLIENT, service, compression))
    return shown, lan.traffic("client")[0]


def test_tokens_shrink_on_a_slow_cable(lan: Lan) -> None:
    """At 200 Mbit/s the worker measures the cable and compresses tokens, and the status
    says so.
    """
    lan.limit("client", "200mbit")
    shown, received = read(lan, "AUTO")
    what, smaller, speed = shown.split(", ")
    assert what.startswith(("lz4", "zstd"))
    assert float(smaller.removesuffix("x smaller")) > 2
    assert 15 < float(speed.removeprefix("at ").removesuffix(" MB/s")) < 100
    assert received < 0.7 * SIZE


@pytest.mark.full
def test_none_is_none_on_a_slow_cable(lan: Lan) -> None:
    """A client that wants no compression gets all bytes, however slow the cable is."""
    lan.limit("client", "500mbit")
    shown, received = read(lan, "None")
    assert shown == ""
    assert received > SIZE


LOOP = f"""
import json, sys, time
import numpy as np
from zmqdata import Dataset, distribute
from zmqdata.client.calls import status

tokens = np.random.default_rng(0).integers(0, 5000, {WIDTH})
dataset = Dataset.range(1 << 30).map(lambda i: tokens + i % 3)
service = sys.argv[1]
elements = iter(dataset.apply(distribute("parallel_epochs", service, compression=None)))
ends = time.monotonic() + 60
for element in elements:
    found = elements.stats()
    if found["data/verdict"] == "LINK-BOUND" or time.monotonic() > ends:
        break
while (job := status(service)["jobs"][0])["verdict"] != "LINK-BOUND" and time.monotonic() < ends:
    next(elements)
print(json.dumps([found, job["verdict"], job["advice"]]))
"""


@pytest.mark.full
def test_a_slow_cable_is_named(lan: Lan) -> None:
    """A loop that waits for bytes on a cable of 100 Mbit/s is told the full link, by
    its statistics and by the status.
    """
    lan.limit("client", "100mbit")
    service = lan.serve("worker", "dispatcher")
    lan.serve("worker", "worker", "--dispatcher", service)
    found, verdict, advice = json.loads(lan.run("client", "-c", LOOP, service))
    assert found["data/verdict"] == verdict == "LINK-BOUND", found
    assert "The link from worker tcp://" in found["data/advice"]
    assert "compression='AUTO'" in advice
