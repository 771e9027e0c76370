"""Tests of the recipes on the page about reading data, run by ``make test-formats``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zmqdata import Dataset, LocalCluster, distribute

REASON = "it needs h5py, zarr and av; `make test-formats` brings them"
h5py = pytest.importorskip("h5py", reason=REASON)
zarr = pytest.importorskip("zarr", reason=REASON)
av = pytest.importorskip("av", reason=REASON)
PAGE = Path(__file__).parents[2] / "docs" / "reading-data.md"
ROWS = 50_000


def made_by(recipe: str, folder: Path) -> Any:
    """Return the dataset of the only recipe with a text, with its files in a folder."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (block,) = [block for block in blocks if recipe in block]
    found: dict[str, Any] = {"Dataset": Dataset}
    exec(block.replace("/data/", f"{folder}/"), found)
    return found.get("rows", found.get("images"))


def write_video(path: Path, frames: int) -> None:
    """Write gray frames, each of another shade."""
    with av.open(str(path), "w") as video:
        stream = video.add_stream("mpeg4", rate=10)
        stream.width = stream.height = 32
        for number in range(frames):
            gray = np.full((32, 32, 3), 20 * number, np.uint8)
            video.mux(stream.encode(av.VideoFrame.from_ndarray(gray, format="rgb24")))
        video.mux(stream.encode())


@pytest.mark.parametrize("recipe", ["h5py.File", "zarr.open"])
def test_rows_of_arrays_are_read(tmp_path: Path, recipe: str) -> None:
    """The recipes for HDF5 and Zarr yield every row, also from workers."""
    columns = {"image": np.arange(ROWS * 2).reshape(ROWS, 2), "label": np.arange(ROWS)}
    with h5py.File(tmp_path / "train.h5", "w") as file:
        group = zarr.open(str(tmp_path / "train.zarr"), mode="w")
        for name, values in columns.items():
            file.create_dataset(name, data=values, chunks=True)
            group.create_array(name, data=values)
    dataset = made_by(recipe, tmp_path)
    rows = iter(dataset)
    first = next(rows)
    assert (first["image"].tolist(), first["label"]) == ([0, 1], 0)
    with LocalCluster(2) as cluster:
        batches = dataset.batch(1000).apply(distribute("distributed_epoch", cluster))
        labels = np.concatenate([batch["label"] for batch in batches])
    assert np.array_equal(np.sort(labels), columns["label"])


def test_frames_of_videos_are_read(tmp_path: Path) -> None:
    """The recipe for video yields each frame in order, also after a resume."""
    for name in ("a.mp4", "b.mp4"):
        write_video(tmp_path / name, 6)
    iterator = iter(made_by("av.open", tmp_path))
    had = [next(iterator) for _ in range(4)]
    again = iter(made_by("av.open", tmp_path))
    again.load_state_dict(iterator.state_dict())
    images = [*had, *again]
    assert len(images) == 12
    assert {image.shape for image in images} == {(32, 32, 3)}
    assert [round(float(image.mean()) / 20) for image in images] == [*range(6)] * 2
