"""Facts about elements that a map on a worker skips, on real sockets.
``simulated/test_leaving_out.py`` states which elements are skipped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.service.conftest import Service, wait_until
from zmqdata import Dataset
from zmqdata.client.calls import status


def picky(x: Any) -> Any:
    if x % 10 == 3:
        raise ValueError(f"no {x}")
    return x


def kept(count: int) -> list[int]:
    return [x for x in range(count) if x % 10 != 3]


@pytest.mark.parametrize("mode", ["distributed_epoch", "parallel_epochs"])
def test_a_worker_shows_what_was_left_out(make_service: Callable[..., Service], mode: str) -> None:
    """The worker's status shows the number of skipped elements of each task, and the
    last of them with split, place, error and traceback.
    """
    service = make_service(workers=1)
    elements = iter(service.read(Dataset.range(10**9).map(picky, on_error="skip"), mode))
    assert [int(next(elements)) for _ in range(100)] == kept(200)[:100]

    def tasks() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = status(service.workers[0].address)["tasks"]
        return found

    wait_until(lambda: tasks()[0]["left_out"] >= 10, "ten are left out")
    (task,) = tasks()
    newest, second, *_ = task["quarantine"]
    assert newest["number"] == second["number"] + 10
    assert newest["error"] == f"ValueError: no {newest['number']}"
    assert "in picky" in newest["traceback"]
    assert newest["node"].startswith("map(picky) at test_leaving_out.py:")
    if mode == "distributed_epoch":
        first, stop = newest["split"]
        assert first <= newest["number"] < stop
    else:
        assert newest["split"] is None
