"""Parameters of which ``make test`` runs some, and only ``make test-full`` all.

``FULL.md`` lists the tests that are left to it, each with its reason.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def full(*values: Any, marks: Iterable[Any] = ()) -> Any:
    """Return a parameter that is left to ``make test-full``."""
    return pytest.param(*values, marks=[pytest.mark.full, *marks])


def seeds(count: int, core: int) -> list[Any]:
    """Return the seeds below ``count``, of which the first ``core`` are in ``make test``."""
    return [*range(core), *map(full, range(core, count))]
