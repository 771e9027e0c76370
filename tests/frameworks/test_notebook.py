"""A cell of a notebook reads everything each time it runs: ``make test-frameworks``."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from zmqdata import LocalCluster

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("ipykernel") is None, reason="ipykernel is not installed"
    ),
    pytest.mark.realprocess,
    pytest.mark.timeout(120),
]
CELL = """
import zmqdata
read = zmqdata.distribute(
    "distributed_epoch", {service!r}, job_name="train", max_outstanding_requests=1
)
rows = zmqdata.Dataset.range(1000).batch(10).apply(read)
print(sum(len(batch) for batch in rows))
"""
PATIENCE = 60.0


@pytest.fixture
def cell() -> Iterator[Callable[[str], str]]:
    """Run a cell in an IPython kernel, and return what it prints or raises."""
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(kernel_name="python3")

    def run(code: str) -> str:
        told: list[str] = []

        def hear(message: dict[str, Any]) -> None:
            content = message["content"]
            told.append(content.get("text") or "".join(content.get("traceback", [])))

        client.execute_interactive(code, timeout=PATIENCE, output_hook=hear)
        return "".join(told)

    yield run
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def test_a_cell_that_is_run_again_reads_everything(cell: Callable[[str], str]) -> None:
    """A cell that makes a dataset and reads it yields all rows each time."""
    with LocalCluster(num_workers=1) as cluster:
        code = CELL.format(service=cluster.target)
        assert [cell(code).strip() for _ in range(3)] == ["1000"] * 3


def test_a_dataset_of_an_earlier_cell_counts_on(cell: Callable[[str], str]) -> None:
    """A dataset that one cell makes yields the next epoch each time that another cell
    reads it.
    """
    with LocalCluster(num_workers=1) as cluster:
        cell(CELL.format(service=cluster.target))
        assert [cell("print(sum(len(batch) for batch in rows))").strip() for _ in range(2)] == [
            "1000"
        ] * 2


def test_an_open_iterator_shares_with_the_cell_that_is_run_again(
    cell: Callable[[str], str],
) -> None:
    """A cell that is run again while its old iterator is open shares the rows, and is
    warned.
    """
    with LocalCluster(num_workers=1) as cluster:
        cell(CELL.format(service=cluster.target).replace("print(", "old = iter(rows); next(old) #"))
        told = cell(CELL.format(service=cluster.target))
        assert "reads with another run" in told
        rest = cell("print(sum(len(batch) for batch in old))")
        shared = [int(text.strip().splitlines()[-1]) for text in (told, rest)]
        assert sum(shared) == 990
