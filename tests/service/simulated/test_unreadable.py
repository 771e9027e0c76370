"""Facts about files that can be read only one of the two times when the task of a lost
worker is repeated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.full import full
from zmqdata.dataset import Dataset, TextLineDataset
from zmqdata.errors import DataLossError, PipelineError
from zmqdata.testing import SimulatedService

MAKES: dict[str, Callable[..., Dataset]] = {
    "parquet": Dataset.from_parquet,
    "jsonl": Dataset.from_jsonl,
    "txt": TextLineDataset,
}
SHUFFLED = {"shuffle": True, "seed": 1, "open_splits": 3}
OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "row groups": ("parquet", {}),
    "Parquet files": ("parquet", {"split": "file"}),
    "shuffled row groups": ("parquet", SHUFFLED),
    "shuffled batches": ("parquet", {**SHUFFLED, "batch_rows": 3}),
    "shuffled Parquet files": ("parquet", {**SHUFFLED, "split": "file"}),
    "JSON lines": ("jsonl", {}),
    "shuffled JSON lines": ("jsonl", SHUFFLED),
    "text lines": ("txt", {}),
}


def write_four(folder: Path, ending: str) -> list[Path]:
    """Write four files of twenty rows, the numbers 0 to 79."""
    paths = [folder / f"{number}.{ending}" for number in range(4)]
    for number, path in enumerate(paths):
        rows = range(number * 20, number * 20 + 20)
        if ending == "parquet":
            pq.write_table(pa.table({"n": [*rows]}), path, row_group_size=10)
        else:
            text = '{"n": %d}\n' if ending == "jsonl" else "%d\n"
            path.write_text("".join(text % n for n in rows))
    return paths


def numbers(element: Any) -> list[int]:
    """Return the numbers of the rows of an element."""
    value = element["n"] if isinstance(element, dict) else element
    return [*map(int, value)] if getattr(value, "ndim", 0) else [int(value)]


class Reading:
    """A reading whose first worker dies; then a file is lost, or can be read again.

    Attributes:
        found: numbers of the rows that came.
        losses: texts of what ended the task.
        failures: number of other errors.
        left_out: number of entries of the quarantine.
    """

    def __init__(self, dataset: Dataset, path: Path, returns: bool, before: int) -> None:
        self.found: list[int] = []
        self.losses: list[str] = []
        self.failures, self.told = 0, ""
        content = path.read_bytes()
        if returns:
            path.unlink()
        with SimulatedService(workers=1, pace=0.05) as service:
            self.iterator = iter(service.read(dataset))
            while len(self.found) + self.failures < before:
                assert self._step()
            service.workers[0].kill()
            if returns:
                path.write_bytes(content)
            else:
                path.unlink()
            service.add_worker()
            while self._step():
                pass
            self.left_out = len(self.iterator.quarantine)

    def _step(self) -> bool:
        try:
            self.found += numbers(next(self.iterator))
        except StopIteration:
            return False
        except DataLossError as error:
            self.losses.append(str(error))
            return False
        except PipelineError as error:
            if str(error) == self.told:  # the job has ended
                self.losses.append(f"earlier attempt: {error}")
                return False
            self.told = str(error)
            self.failures += 1
        return True


@pytest.mark.parametrize(
    ("returns", "lost", "before"),
    [(False, 0, 5), (True, 1, 27), full(False, 1, 27), full(True, 0, 5)],
)
@pytest.mark.parametrize("on_error", ["raise", "skip"])
@pytest.mark.parametrize("name", OPTIONS)
def test_no_row_beside_an_unreadable_file_is_lost_or_doubled(
    tmp_path: Path, name: str, on_error: str, returns: bool, lost: int, before: int
) -> None:
    """All other rows come once, and what is lost of the file is an error or in the
    quarantine, unless the job ends with a loss. A file that was left out and returns
    stays left out.
    """
    kind, options = OPTIONS[name]
    paths = write_four(tmp_path, kind)
    dataset = MAKES[kind]([*map(str, paths)], on_error=on_error, **options)
    one = Reading(dataset, paths[lost], returns, before)
    assert not one.found or max(Counter(one.found).values()) == 1
    assert not (returns and on_error == "skip" and one.losses)
    if one.losses:
        assert "earlier attempt" in one.losses[0]
        return
    absent = {*range(80)} - {*one.found}
    assert absent <= {*range(lost * 20, lost * 20 + 20)}
    assert not absent or (one.left_out if on_error == "skip" else one.failures)
