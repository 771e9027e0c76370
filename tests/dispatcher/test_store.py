"""Facts about where pipelines are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from zmqdata.dispatcher.store import PipelineStore

DIGEST = "0" * 64


@pytest.fixture(params=["memory", "folder"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> PipelineStore:
    return PipelineStore(None if request.param == "memory" else str(tmp_path))


def test_a_pipeline_is_found_by_its_digest(store: PipelineStore) -> None:
    """What was put is got, also when it is put again; what was not is not."""
    store.put(DIGEST, b"pipeline")
    store.put(DIGEST, b"pipeline")
    assert (store.get(DIGEST), store.get("1" * 64)) == (b"pipeline", None)


def test_a_dropped_pipeline_is_gone(store: PipelineStore) -> None:
    """Dropping it twice does no harm."""
    store.put(DIGEST, b"pipeline")
    store.drop(DIGEST)
    store.drop(DIGEST)
    assert store.get(DIGEST) is None


def test_a_folder_outlives_its_store(tmp_path: Path) -> None:
    """Another store on the same folder finds what was put, and nothing half-written lies beside it."""
    PipelineStore(str(tmp_path)).put(DIGEST, b"pipeline")
    assert PipelineStore(str(tmp_path)).get(DIGEST) == b"pipeline"
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == [DIGEST]


def test_no_path_reaches_the_file_system(tmp_path: Path) -> None:
    """Only the letters and digits of a digest become part of a file's name."""
    PipelineStore(str(tmp_path)).put("../../escaped", b"pipeline")
    assert [path.parent.name for path in tmp_path.rglob("*") if path.is_file()] == ["pipelines"]


def test_what_is_kept_is_known_and_can_be_brought_to_the_disk(store: PipelineStore, tmp_path: Path) -> None:
    """Only what was put is kept; all else in the folder goes when told so."""
    store.put(DIGEST, b"pipeline")
    store.sync(DIGEST)
    assert store.missing([DIGEST, "1" * 64]) == ["1" * 64]
    if (tmp_path / "pipelines").exists():
        (tmp_path / "pipelines" / ("1" * 64)).touch()
    store.keep_only({DIGEST})
    assert store.missing([DIGEST, "1" * 64]) == ["1" * 64]
    assert store.get(DIGEST) == b"pipeline"
