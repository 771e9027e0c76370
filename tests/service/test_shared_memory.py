"""Facts about reading through memory that a worker and a client share, over real
sockets.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.kit.forks import told_by_child
from tests.service.conftest import Service
from zmqdata import Dataset
from zmqdata.transport.memory import NAME

LENGTH = 60_032


def is_shared(array: np.ndarray[Any, Any]) -> bool:
    """Return whether an array lies in memory that a worker shares with this process."""
    for line in Path("/proc/self/maps").read_text(encoding="ascii", errors="replace").splitlines():
        first, last = (int(end, 16) for end in line.split()[0].split("-"))
        if first <= array.ctypes.data < last:
            return NAME in line
    return False


def images(count: int) -> Dataset:
    return Dataset.range(count).map(
        lambda x: {"image": np.full(LENGTH, x % 251, np.uint8), "number": x}
    )


def all_right(elements: list[dict[str, Any]]) -> bool:
    return all((one["image"] == one["number"] % 251).all() for one in elements)


@pytest.mark.parametrize(
    ("protocol", "shared"), [(None, True), ("shm", True), ("ipc", False), ("tcp", False)]
)
def test_large_arrays_of_one_host_lie_in_shared_memory(
    service: Service, protocol: str | None, shared: bool
) -> None:
    """Large arrays lie in shared memory by default and with "shm", and not over other
    transports; they are writable, aligned and equal everywhere.
    """
    found = list(service.read(images(100), data_transfer_protocol=protocol))
    assert sorted(one["number"] for one in found) == list(range(100))
    assert all_right(found)
    assert all(one["image"].flags.writeable and one["image"].ctypes.data % 64 == 0 for one in found)
    assert any(is_shared(one["image"]) for one in found) == shared


def test_slots_are_used_again(make_service: Callable[..., Service]) -> None:
    """A loop that keeps no element reads many times the shared memory's size through
    it.
    """
    service = make_service(workers=1, worker_options={"shared_memory_bytes": 4 << 20})
    shared, addresses = 0, set()
    for one in service.read(images(400), data_transfer_protocol="shm"):
        if is_shared(one["image"]):
            shared += 1
            addresses.add(one["image"].ctypes.data)
    assert shared > 200
    assert max(addresses) - min(addresses) < 4 << 20


def test_who_keeps_everything_gets_everything(make_service: Callable[..., Service]) -> None:
    """A reader that keeps all slots gets the rest of the stream through sockets, and
    the worker overwrites no kept array.
    """
    service = make_service(workers=1, worker_options={"shared_memory_bytes": 1 << 20})
    kept = list(service.read(images(100)))
    assert all_right(kept)
    assert len({one["number"] for one in kept}) == 100
    assert 0 < sum(is_shared(one["image"]) for one in kept) <= (1 << 20) // LENGTH


def test_writing_to_an_element_changes_no_other(make_service: Callable[..., Service]) -> None:
    """No other element shows what a training loop writes to its arrays, even if it
    comes from the same slot.
    """
    service = make_service(workers=1)
    for one in service.read(images(500)):
        assert (one["image"] == one["number"] % 251).all()
        one["image"][:] = 255


def test_no_memory_is_shared_where_none_may_be(make_service: Callable[..., Service]) -> None:
    """Every element comes through sockets with shared_memory_bytes=0."""
    service = make_service(workers=1, worker_options={"shared_memory_bytes": 0})
    found = list(service.read(images(50), data_transfer_protocol="shm"))
    assert all_right(found)
    assert not any(is_shared(one["image"]) for one in found)


def test_arrays_of_different_sizes(service: Service) -> None:
    """Large arrays of different sizes within a block come through shared memory,
    too.
    """
    ds = Dataset.range(200).map(lambda x: np.full((100 + int(x), 500), x, np.float32))
    found = list(service.read(ds, data_transfer_protocol="shm"))
    assert sorted(len(one) for one in found) == list(range(100, 300))
    assert all((one == len(one) - 100).all() for one in found)
    assert any(is_shared(one) for one in found)


@pytest.mark.parametrize("compression", ["AUTO", "lz4", None])
def test_compressed_elements(service: Service, compression: str | None) -> None:
    """Compressed frames may lie in shared memory; the decompressed arrays do not."""
    ds = Dataset.range(30).map(lambda x: np.random.default_rng(x).integers(0, 99, 100_000))
    found = list(service.read(ds, compression=compression, data_transfer_protocol="shm"))
    wanted = sorted(int(one.sum()) for one in ds)
    assert sorted(int(one.sum()) for one in found) == wanted
    assert any(is_shared(one) for one in found) == (compression != "lz4")


def test_a_forked_child_has_its_own(service: Service) -> None:
    """A forked child keeps its arrays while its parent reads on and frees its own, and
    the parent does not see what the child writes.
    """
    it = iter(service.read(images(2000)))
    held = [next(it) for _ in range(50)]
    assert any(is_shared(one["image"]) for one in held)

    def change() -> bool:
        right = all_right(held)
        for one in held:
            one["image"][:] = 0
        return right

    assert told_by_child(change) == "True"
    assert all_right(held)
    assert not any(is_shared(one["image"]) for one in held)
    rest = [one["number"] for one in it if (one["image"] == one["number"] % 251).all()]
    assert len(rest) == 1950
    assert all_right(held)
