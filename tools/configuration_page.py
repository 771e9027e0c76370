"""Write the tables of settings in docs/configuration.md from their declarations:
``python tools/configuration_page.py``.

A test compares the page with the declarations.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from zmqdata.cli.asking import StatusSettings
from zmqdata.config.dashboard import DashboardSettings
from zmqdata.config.dispatcher import DispatcherConfig
from zmqdata.config.logs import LogSettings
from zmqdata.config.settings import declaration_of, default_of, flag_of, variable_of
from zmqdata.config.worker import WorkerConfig
from zmqdata.worker.processes.options import ProcessSettings

PAGE = Path(__file__).resolve().parent.parent / "docs" / "configuration.md"
TABLES: dict[str, Sequence[type[Any]]] = {
    "dispatcher": (DispatcherConfig,),
    "worker": (WorkerConfig,),
    "commands": (ProcessSettings, LogSettings, StatusSettings),
    "dashboard": (DashboardSettings,),
}


def table(kinds: Sequence[type[Any]]) -> str:
    """Return the settings of configurations as a Markdown table."""
    rows = ["| field | option | environment | default | meaning |", "|---|---|---|---|---|"]
    for one in (one for kind in kinds for one in fields(kind)):
        cells = (f"`{one.name}`", f"`{flag_of(one)}`", f"`{variable_of(one)}`", default_of(one))
        rows.append(f"| {' | '.join(cells)} | {declaration_of(one).meaning.replace('|', '/')} |")
    return "\n".join(rows)


def filled(page: str) -> str:
    """Return the page with up-to-date tables."""
    for name, kinds in TABLES.items():
        mark = f"<!-- settings: {name} -->"
        page = re.sub(
            rf"{mark}\n(?:.*?\n)?{mark}",
            lambda _: f"{mark}\n{table(kinds)}\n{mark}",  # noqa: B023
            page,
            flags=re.DOTALL,
        )
    return page


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
