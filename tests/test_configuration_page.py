"""Facts about the page that describes the configuration."""

from __future__ import annotations

import re
from pathlib import Path

from tools.configuration_page import PAGE, filled
from zmqdata import Dataset, DispatcherConfig, DispatchServer, WorkerConfig, WorkerServer, distribute
from zmqdata.client.calls import status

TEXT = Path(PAGE).read_text(encoding="utf-8")


def test_the_tables_are_those_of_the_declarations() -> None:
    """The page has every setting as it is declared; ``python tools/configuration_page.py`` writes it anew."""
    assert filled(TEXT) == TEXT


def described(section: str) -> dict[str, set[str]]:
    """The keys of a state, each with the keys of the rows in it."""
    table = TEXT.partition(f"{section} tells\n\n")[2].partition("\n\n")[0]
    rows = [line.strip("| ").split(" | ", 1) for line in table.splitlines()[2:]]
    return {key.strip("`"): set(re.findall(r"`(\w+)`", meaning)) for key, meaning in rows}


def test_the_state_of_a_server_is_described() -> None:
    """The page names every key that a dispatcher and a worker tell, and no other."""
    with DispatchServer(DispatcherConfig()) as dispatcher, WorkerServer(WorkerConfig(dispatcher.target)) as worker:
        elements = iter(Dataset.range(100_000).apply(distribute("distributed_epoch", dispatcher.target, "job")))
        next(elements)
        for section, address in (("A dispatcher", dispatcher.target), ("A worker", worker.address)):
            found, told = status(address), described(section)
            assert set(found) == set(told)
            for key in ("workers", "iterations", "jobs", "tasks"):
                keys = {name for row in found.get(key, []) for name in row}
                keys |= {name for row in found.get(key, []) for one in row.get("splits", []) for name in one}
                assert keys == told.get(key, set())
        elements.close()
