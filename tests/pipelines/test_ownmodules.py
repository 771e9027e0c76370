"""Tests of comparing the sources of the user's modules between client and worker."""

from __future__ import annotations

import hashlib
import importlib
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest

from zmqdata.errors import FailedPreconditionError
from zmqdata.pipelines import open_pipeline, pack_pipeline
from zmqdata.pipelines.ownmodules import outdated, own_sources

OLD = "from own_helper import helped\ndef parse(x): return helped(x)\n"
NEW = OLD + "# another version\n"


def digest(source: str) -> str:
    return hashlib.sha256(source.encode()).hexdigest()


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[types.ModuleType]:
    """Return a module of the user that has a name from another one."""
    (tmp_path / "own_helper.py").write_text("def helped(x): return x\n")
    (tmp_path / "own_module.py").write_text(OLD)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield importlib.import_module("own_module")
    for name in ("own_module", "own_helper"):
        sys.modules.pop(name, None)


def change(module: types.ModuleType) -> None:
    Path(str(module.__file__)).write_text(NEW)


def test_a_pack_knows_the_sources_of_the_user_s_modules(module: types.ModuleType) -> None:
    """A packed pipeline has the digests of the modules that it refers to and of those
    that they use, without installed and shipped modules.
    """
    packed = pack_pipeline([module.parse, np.float32, msgspec.Struct])
    assert packed.sources.keys() == {"own_module", "own_helper"}
    assert packed.sources["own_module"] == digest(OLD)
    shipped = pack_pipeline(module.parse, ship=[module, "own_helper"])
    assert shipped.sources == {}


def test_a_source_is_the_one_that_was_loaded(module: types.ModuleType) -> None:
    """A file that is edited gives the digest of the loaded source until the module is
    loaded again.
    """
    assert own_sources(["own_module"])["own_module"] == digest(OLD)
    change(module)
    assert own_sources(["own_module"])["own_module"] == digest(OLD)
    importlib.reload(module)
    assert own_sources(["own_module"])["own_module"] == digest(NEW)


def test_a_worker_with_the_old_source_refuses_the_pipeline(module: types.ModuleType) -> None:
    """A worker that has loaded a module before its file changed refuses a pipeline of
    the new source, and takes it once it has loaded that.
    """
    packed = pack_pipeline(module.parse)
    assert open_pipeline(packed) is module.parse
    change(module)
    assert open_pipeline(packed) is module.parse
    new = msgspec.structs.replace(packed, sources={"own_module": digest(NEW)})
    with pytest.raises(
        FailedPreconditionError,
        match=r"'own_module' \(.*own_module\.py\).*Restart it.*ship=\['own_module'\]",
    ):
        open_pipeline(new)
    importlib.reload(module)
    assert open_pipeline(new) is module.parse


def test_a_machine_may_have_another_version(module: types.ModuleType) -> None:
    """A worker whose file differs from the client's source runs its own version."""
    assert outdated({"own_module": digest("the client's"), "absent": digest("")}) == []
    change(module)
    assert outdated({"own_module": digest("the client's")}) == []
