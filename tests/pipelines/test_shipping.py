"""Tests of collecting the source of modules, and of rejected sources."""

from __future__ import annotations

import importlib
import os
import sys
import types
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from pathlib import Path

import msgspec
import pytest

from zmqdata.failures.names import PREFIX
from zmqdata.pipelines import shipping
from zmqdata.pipelines.shipping import SourceArchive, pack_sources


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Add a folder to ``sys.path``, and forget its modules afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def files_of(ship: object) -> dict[str, bytes]:
    archives = [
        msgspec.msgpack.decode(one, type=SourceArchive) for one in pack_sources(ship).values()
    ]
    return {name: content for archive in archives for name, content in archive.files}


def make_package(folder: Path) -> Path:
    package = folder / "boats"
    (package / "sails").mkdir(parents=True)
    (package / "__pycache__").mkdir()
    (package / ".hidden").mkdir()
    for name in (
        "__init__.py",
        "sails/__init__.py",
        "sails/jib.py",
        "names.txt",
        "__pycache__/x.pyc",
        ".hidden/y.py",
    ):
        (package / name).write_text(f"# {name}")
    return package


@pytest.mark.parametrize("form", ["name", "part", "module", "path", "text"])
def test_a_package_is_collected_whole(folder: Path, form: str) -> None:
    """A package ships all sub-packages and small files, but no caches or hidden files.
    It may be given in any form.
    """
    package = make_package(folder)
    ship = {
        "name": "boats",
        "part": "boats.sails.jib",
        "module": importlib.import_module("boats.sails") if form == "module" else None,
        "path": package,
        "text": f"{package}/",
    }[form]
    expected = [
        "boats/__init__.py",
        "boats/names.txt",
        "boats/sails/__init__.py",
        "boats/sails/jib.py",
    ]
    assert list(files_of([ship])) == expected


def test_files_of_a_package_may_have_any_name(folder: Path) -> None:
    """A name that is not UTF-8 is sent in the portable form."""
    (make_package(folder) / os.fsdecode(b"d\xe9.txt")).write_text("x")
    assert files_of(["boats"])["boats/d\0e9.txt"] == b"x"


def test_a_module_is_one_file(folder: Path) -> None:
    """A single-file module can be given by name and by path."""
    (folder / "oar.py").write_text("length = 3")
    assert files_of(["oar"]) == files_of([folder / "oar.py"]) == {"oar.py": b"length = 3"}


def test_the_same_files_are_the_same_content(folder: Path) -> None:
    """The same files make the same shipment, whatever their location, form or
    repetition.
    """
    package = make_package(folder / "elsewhere")
    make_package(folder)
    assert pack_sources(["boats"]) == pack_sources([package]) == pack_sources(["boats", package])


def test_two_modules_of_a_name_are_refused(folder: Path) -> None:
    """Two modules of the same name are rejected, as both cannot be imported."""
    make_package(folder)
    (make_package(folder / "elsewhere") / "names.txt").write_text("others")
    with pytest.raises(ValueError, match="two different modules 'boats'"):
        pack_sources(["boats", folder / "elsewhere" / "boats"])


def test_a_package_without_init_comes_from_all_its_folders(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A namespace package ships the files of all its folders on the path."""
    for place in ("a", "b"):
        (folder / place / "fleet").mkdir(parents=True)
        (folder / place / "fleet" / f"{place}.py").write_text(place)
        monkeypatch.syspath_prepend(str(folder / place))
    assert set(files_of(["fleet"])) == {"fleet/a.py", "fleet/b.py"}


@pytest.mark.parametrize(
    ("ship", "text"),
    [
        (["__main__"], "shipped automatically"),
        (["json"], "part of Python"),
        ([sys], "part of Python"),
        (["zmqdata.nodes"], "every worker has zmqdata"),
        (["no_such_module"], r"the module 'no_such_module' does not exist here.*sys.path"),
        (["/no/such/folder"], "the path /no/such/folder does not exist"),
        ([types.ModuleType("made_by_hand")], "the module 'made_by_hand' does not exist here"),
        (["no_such_package.module"], "the module 'no_such_package' does not exist here"),
        (["numpy"], r"'numpy' contains compiled code .*Install it on the workers"),
    ],
)
def test_what_cannot_be_shipped_is_an_error_with_a_remedy(ship: object, text: str) -> None:
    """The error about an unshippable module names it and the remedy."""
    with pytest.raises(ValueError, match=text):
        pack_sources(ship)


@pytest.mark.parametrize("ship", ["json", types, b"x", 5, None, [5], [None], Path("x")])
def test_other_types_are_refused(ship: object) -> None:
    """Another type is rejected with the expected list of modules, names and paths."""
    with pytest.raises(TypeError, match="`ship` must"):
        pack_sources(ship)


def test_a_module_of_compiled_code_is_refused(folder: Path) -> None:
    """A compiled module is rejected, also if it is a single file given as a module."""
    (folder / f"fast{EXTENSION_SUFFIXES[0]}").write_bytes(b"\x7fELF")
    with pytest.raises(ValueError, match="'fast' contains compiled code"):
        pack_sources(["fast"])


def test_large_files_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file or a package above the size limit is rejected with its name and size."""
    package = make_package(folder)
    monkeypatch.setattr(shipping, "MOST_FILE_BYTES", 100)
    (package / "weights.bin").write_bytes(bytes(101))
    with pytest.raises(ValueError, match=r"'boats' is too large at .*weights.bin"):
        pack_sources(["boats"])
    (package / "weights.bin").unlink()
    monkeypatch.setattr(shipping, "MOST_BYTES", 30)
    with pytest.raises(ValueError, match="'boats' is too large"):
        pack_sources(["boats"])


def test_a_folder_without_source_is_refused(folder: Path) -> None:
    """A folder without Python source is rejected, as it contains no module."""
    (folder / "empty").mkdir()
    with pytest.raises(ValueError, match=r"'empty' contains no \.py file"):
        pack_sources([folder / "empty"])


def test_a_name_that_no_import_can_say_is_refused(folder: Path) -> None:
    """A folder whose name cannot be imported, such as a project's, is rejected."""
    (folder / "my-project").mkdir()
    with pytest.raises(ValueError, match="'my-project' cannot be the name of a module"):
        pack_sources([folder / "my-project"])


def test_what_was_shipped_here_goes_on_whole(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shipped module is shipped again with all its files, byte for byte."""
    came = {"digest of sails": b"sails", "digest of masts": b"masts"}
    root = types.ModuleType(f"{PREFIX}boats")
    setattr(root, shipping.SOURCES, came)
    monkeypatch.setitem(sys.modules, root.__name__, root)
    (folder / "oars.py").write_text("")
    packed = pack_sources([types.ModuleType(f"{root.__name__}.sails"), "oars"])
    assert {digest: packed[digest] for digest in came} == came
    assert len(packed) == 3


def test_a_module_made_from_a_file_by_hand_is_found_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module without a spec, created by hand, ships the file that it names."""
    (folder / "raft.py").write_text("LOGS = 3")
    module = types.ModuleType("raft")
    module.__file__ = str(folder / "raft.py")
    module.__spec__ = None
    monkeypatch.setitem(sys.modules, "raft", module)
    assert files_of([module]) == {"raft.py": b"LOGS = 3"}


@pytest.mark.parametrize("origin", [None, "/no/such/raft.py"])
def test_a_module_without_a_file_is_refused(
    origin: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module without source, such as a module from an archive, is rejected."""
    module = types.ModuleType("raft")
    module.__spec__ = ModuleSpec("raft", None, origin=origin)
    monkeypatch.setitem(sys.modules, "raft", module)
    with pytest.raises(
        ValueError, match=r"source of 'raft' is not in a file .*Install it on the workers"
    ):
        pack_sources([module])


def test_a_module_whose_spec_is_missing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module name whose entry has neither spec nor file is rejected."""
    monkeypatch.setitem(sys.modules, "raft", types.ModuleType("raft"))
    with pytest.raises(ValueError, match="the module 'raft' does not exist here"):
        pack_sources(["raft"])
