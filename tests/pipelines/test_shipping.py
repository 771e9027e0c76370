"""Facts about collecting the source of modules, and about what is refused."""

from __future__ import annotations

import importlib
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
    """A folder on ``sys.path``, whose modules are forgotten afterwards."""
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
    """However it is named: all sub-packages and small files, without caches and hidden
    ones.
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


def test_a_module_is_one_file(folder: Path) -> None:
    """By name and by path."""
    (folder / "oar.py").write_text("length = 3")
    assert files_of(["oar"]) == files_of([folder / "oar.py"]) == {"oar.py": b"length = 3"}


def test_the_same_files_are_the_same_content(folder: Path) -> None:
    """Where they lie and how they are named makes no difference, and naming them twice
    neither.
    """
    package = make_package(folder / "elsewhere")
    make_package(folder)
    assert pack_sources(["boats"]) == pack_sources([package]) == pack_sources(["boats", package])


def test_two_modules_of_a_name_are_refused(folder: Path) -> None:
    """Only one of them could be imported."""
    make_package(folder)
    (make_package(folder / "elsewhere") / "names.txt").write_text("others")
    with pytest.raises(ValueError, match="two different modules 'boats'"):
        pack_sources(["boats", folder / "elsewhere" / "boats"])


def test_a_package_without_init_comes_from_all_its_folders(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A namespace package may be spread over several folders of the path."""
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
    """The text names the module and says what to do instead."""
    with pytest.raises(ValueError, match=text):
        pack_sources(ship)


@pytest.mark.parametrize("ship", ["json", types, b"x", 5, None, [5], [None], Path("x")])
def test_other_types_are_refused(ship: object) -> None:
    """A list of modules, names and paths is expected, and said to be."""
    with pytest.raises(TypeError, match="`ship` must"):
        pack_sources(ship)


def test_a_module_of_compiled_code_is_refused(folder: Path) -> None:
    """Also where it is a single file, named as a module."""
    (folder / f"fast{EXTENSION_SUFFIXES[0]}").write_bytes(b"\x7fELF")
    with pytest.raises(ValueError, match="'fast' contains compiled code"):
        pack_sources(["fast"])


def test_large_files_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file or a package beyond the limits is named with its size."""
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
    """There is nothing to import in it."""
    (folder / "empty").mkdir()
    with pytest.raises(ValueError, match=r"'empty' contains no \.py file"):
        pack_sources([folder / "empty"])


def test_a_name_that_no_import_can_say_is_refused(folder: Path) -> None:
    """The folder of a project is not its package."""
    (folder / "my-project").mkdir()
    with pytest.raises(ValueError, match="'my-project' cannot be the name of a module"):
        pack_sources([folder / "my-project"])


def test_what_was_shipped_here_goes_on_whole(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that came along with a pipeline is shipped with all that came with it,
    byte for byte.
    """
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
    """Without a spec, as in a module made by hand, the file that it names counts."""
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
    """What was loaded from elsewhere, as from an archive, has no source to send."""
    module = types.ModuleType("raft")
    module.__spec__ = ModuleSpec("raft", None, origin=origin)
    monkeypatch.setitem(sys.modules, "raft", module)
    with pytest.raises(
        ValueError, match=r"source of 'raft' is not in a file .*Install it on the workers"
    ):
        pack_sources([module])


def test_a_module_whose_spec_is_missing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name under which something without spec and file was put is as good as none."""
    monkeypatch.setitem(sys.modules, "raft", types.ModuleType("raft"))
    with pytest.raises(ValueError, match="the module 'raft' does not exist here"):
        pack_sources(["raft"])
