"""A Prometheus server that scrapes servers of a test."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from tests.metrics.scraped import get
from zmqdata.testing.cluster import await_condition

PROGRAMS = ("prometheus", "promtool")
ASKED_FOR = pytest.mark.skipif(
    "ZMQDATA_LOOKING" not in os.environ, reason="only `make test-looking` runs it"
)
"""Marks tests that need programs which take minutes to install."""
INSTALLED = pytest.mark.skipif(
    not all(map(shutil.which, PROGRAMS)), reason="the package prometheus is not installed"
)
CONFIGURATION = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [{rules}]
scrape_configs:
"""
TARGETS = """  - job_name: {job}
    static_configs: [{{targets: {targets}}}]
"""


class Prometheus:
    """A server that runs while the context is open.

    Args:
        folder: an empty folder for its files.
        jobs: addresses of metrics by the name under which it scrapes them.
        rules: file of alert rules.
    """

    def __init__(self, folder: Path, jobs: Mapping[str, Sequence[str]], rules: Path) -> None:
        targets = {job: [urlsplit(one).netloc for one in found] for job, found in jobs.items()}
        self._configuration = folder / "prometheus.yml"
        self._configuration.write_text(
            CONFIGURATION.format(rules=json.dumps(str(rules)))
            + "".join(
                TARGETS.format(job=job, targets=json.dumps(found)) for job, found in targets.items()
            )
        )
        self._folder, self._log = folder, folder / "log"

    def __enter__(self) -> Prometheus:
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = f"127.0.0.1:{free.getsockname()[1]}"
        self._address = f"http://{address}"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={self._configuration}",
                    f"--storage.tsdb.path={self._folder / 'series'}",
                    f"--web.listen-address={address}",
                ],
                stdout=log,
                stderr=log,
            )
        try:
            await_condition(self._is_ready, what="Prometheus")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.terminate()
        self._process.wait(30)

    def _is_ready(self) -> bool:
        assert self._process.poll() is None, self._log.read_text()
        with suppress(OSError):
            return get(f"{self._address}/-/ready")[0] == 200
        return False

    def ask(self, path: str) -> Any:
        """Return the answer of its interface to a path."""
        status, text = get(f"{self._address}/api/v1/{path}")
        answer = json.loads(text)
        assert answer["status"] == "success", (status, path, text)
        return answer["data"]

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Return labels and value of each series that an expression has now."""
        found = self.ask(f"query?query={quote(expression)}&time={time.time():.3f}")
        assert found["resultType"] == "vector", expression
        return [(one["metric"], float(one["value"][1])) for one in found["result"]]

    def firing(self) -> set[str]:
        """Return the names of the alerts that fire."""
        alerts = self.ask("alerts")["alerts"]
        return {one["labels"]["alertname"] for one in alerts if one["state"] == "firing"}
