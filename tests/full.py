"""Parameters that ``make test`` runs in part, and ``make test-full`` completely.

``FULL.md`` lists the tests that only ``make test-full`` runs, each with its reason.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def full(*values: Any, marks: Iterable[Any] = ()) -> Any:
    """Return a parameter that only ``make test-full`` runs."""
    return pytest.param(*values, marks=[pytest.mark.full, *marks])


def seeds(count: int, core: int) -> list[Any]:
    """Return the seeds below ``count``; ``make test`` runs the first ``core``."""
    return [*range(core), *map(full, range(core, count))]
