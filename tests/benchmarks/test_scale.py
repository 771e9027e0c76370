"""Tests that run the measurement of a dispatcher with many peers. Their few peers make
the figures meaningless.
"""

from __future__ import annotations

import os

import pytest

from benchmarks.scale import cpu_seconds, figures, measure, memory_mb


def test_figures_are_milliseconds() -> None:
    """The figures are the number of answers and the percentiles in milliseconds."""
    assert figures([0.001 * number for number in range(1, 101)]) == pytest.approx(
        {"answers": 100, "p50": 51.0, "p95": 96.0, "p99": 100.0, "worst": 100.0}
    )


def test_a_process_tells_what_it_uses() -> None:
    """The kernel reports a process's processor seconds and megabytes."""
    before = cpu_seconds(os.getpid())
    while cpu_seconds(os.getpid()) == before:
        pass
    assert memory_mb(os.getpid()) > 1.0


@pytest.mark.realprocess
def test_a_small_company_is_measured() -> None:
    """All peers register, and every kind of request is answered."""
    found = measure(workers=20, clients=5, seconds=2.0, links=5, reports=3, settling=0.5)
    assert (found["workers"], found["clients"]) == (20, 5)
    assert {kind for kind, told in found["milliseconds"].items() if told["answers"]} >= {
        "worker heartbeat",
        "client heartbeat",
        "splits",
    }
    assert 0 < found["cores"] < 1
