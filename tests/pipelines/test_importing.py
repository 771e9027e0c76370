"""Tests of importing modules that were shipped with a pipeline."""

from __future__ import annotations

import importlib
import linecache
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from zmqdata.errors import FailedPreconditionError
from zmqdata.failures.exceptions import describe_exception
from zmqdata.failures.names import plain_name
from zmqdata.pipelines import open_pipeline, pack_pipeline
from zmqdata.pipelines.importing import _remove_own, install
from zmqdata.pipelines.shipping import SourceArchive

FILES = {
    "__init__.py": "from kites import shapes\nfrom .colours import RED\nVERSION = {version}\n",
    "colours.py": "import dataclasses\nRED = 'red'\n",
    "shapes.py": """
from __future__ import annotations
import dataclasses, enum, importlib.util, os, typing
from importlib import import_module
import kites.colours as hues

class Form(enum.Enum):
    DELTA = 1

@dataclasses.dataclass
class Kite:
    size: int
    form: Form = Form.DELTA
    count: typing.ClassVar[int] = 0

class Torn(Exception):
    pass

def version(x):
    import kites
    from . import colours
    from kites.inner import deep
    from kites.inner.deep import level
    assert colours is hues is kites.colours
    assert importlib.import_module("kites.colours") is import_module(".colours", "kites") is hues
    assert importlib.util.find_spec("json")
    import json.decoder, os.path as path
    assert path is os.path and json.decoder
    return kites.VERSION, deep.LEVEL, level(x)

def label(x):
    with open(os.path.join(os.path.dirname(__file__), "labels.txt")) as file:
        return file.read()

def tear(x):
    raise Torn("at the seam")

def lacking(x):
    import kites.no_such
""",
    "inner/__init__.py": "",
    "inner/deep.py": "from ..colours import RED\nfrom kites import shapes\nLEVEL = 2\ndef level(x): return x, RED\n",
    "labels.txt": "blue {version}",
}


@pytest.fixture
def kites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], Any]]:
    """Return a function that writes and imports a version of the package."""

    def forget() -> None:
        for name in [name for name in sys.modules if name.partition(".")[0] == "kites"]:
            del sys.modules[name]

    def make(version: int) -> Any:
        folder = tmp_path / str(version)
        for name, text in FILES.items():
            path = folder / "kites" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace("{version}", str(version)))
        forget()
        monkeypatch.setattr(sys, "path", [str(folder), *ORIGINAL_PATH])
        importlib.invalidate_caches()
        return importlib.import_module("kites.shapes")

    yield make
    forget()


ORIGINAL_PATH = list(sys.path)


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return a function that hides the package from this process."""

    def leave() -> None:
        for name in [name for name in sys.modules if name.partition(".")[0] == "kites"]:
            del sys.modules[name]
        monkeypatch.setattr(sys, "path", ORIGINAL_PATH)

    return leave


def test_a_function_of_a_shipped_package_runs_without_it(kites: Any, away: Any) -> None:
    """Shipped modules satisfy absolute, relative, late and textual imports."""
    packed = pack_pipeline(kites(1).version, ship=["kites"])
    away()
    assert open_pipeline(packed)(7) == (1, 2, (7, "red"))
    assert "kites" not in sys.modules


def test_two_versions_live_side_by_side(kites: Any, away: Any) -> None:
    """Each pipeline finds its own version of a package at any time, in any thread."""
    packed = {
        version: pack_pipeline(kites(version).version, ship=["kites"]) for version in (1, 2, 3)
    }
    away()
    opened = {version: open_pipeline(one) for version, one in packed.items()}
    found: list[tuple[int, int]] = []

    def call(version: int) -> None:
        found.extend((version, opened[version](0)[0]) for _ in range(50))

    threads = [threading.Thread(target=call, args=(version,)) for version in opened]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 150
    assert all(wanted == got for wanted, got in found)


def test_a_shipped_package_goes_before_an_installed_one(kites: Any) -> None:
    """A shipped package precedes the worker's own version, which stays unchanged."""
    packed = pack_pipeline(kites(1).version, ship=["kites"])
    own = kites(2)
    assert open_pipeline(packed)(0)[0] == 1
    assert own.version(0)[0] == 2


def test_code_of_the_script_finds_shipped_modules(kites: Any, away: Any) -> None:
    """Script functions find shipped modules by global, closure and late import."""
    shapes = kites(1)
    space: dict[str, Any] = {"__name__": "__main__", "shapes": shapes}
    exec(  # a cell of a notebook
        "import kites.inner.deep\n"
        "def late(x):\n    from kites.inner.deep import level\n"
        "    import kites.colours as c\n    return level(x), c.RED\n"
        "def of_global(x): return shapes.version(x), kites.inner.deep.LEVEL\n",
        space,
    )
    packed = pack_pipeline(
        [space["late"], space["of_global"], lambda x: shapes.Kite(x)], ship=[shapes]
    )
    away()
    late, of_global, of_closure = open_pipeline(packed)
    assert late(1) == ((1, "red"), "red")
    assert of_global(5) == ((1, 2, (5, "red")), 2)
    assert of_closure(4).size == 4


def test_objects_and_classes_of_shipped_modules_travel(kites: Any, away: Any) -> None:
    """Instances, enumerations and modules of the shipment keep their identity."""
    shapes = kites(1)
    packed = pack_pipeline((shapes.Kite(3), shapes.Form.DELTA, shapes), ship=["kites"])
    away()
    kite, form, module = open_pipeline(packed)
    assert (kite.size, kite.form is form, type(kite) is module.Kite) == (3, True, True)


def test_what_a_worker_was_shipped_goes_on_to_other_workers(kites: Any, away: Any) -> None:
    """A worker that distributes again ships the received modules too, also without
    ``ship``.
    """
    packed = pack_pipeline(kites(1).version, ship=["kites"])
    away()
    function = open_pipeline(packed)
    module = sys.modules[function.__module__]
    for ship in ((), [module]):
        again = pack_pipeline(lambda x: function(x), ship=ship)
        assert again.shipped == packed.shipped
        assert {
            digest: bytes(again.contents[digest]) for digest in packed.shipped
        } == packed.contents
        assert open_pipeline(again)(7) == (1, 2, (7, "red"))


def test_small_files_come_along(kites: Any, away: Any) -> None:
    """Shipped code finds a file beside its source by ``__file__``."""
    packed = pack_pipeline(kites(4).label, ship=["kites"])
    away()
    assert open_pipeline(packed)(0) == "blue 4"


def test_errors_show_names_and_lines_as_the_client_knows_them(kites: Any, away: Any) -> None:
    """Names and tracebacks of shipped code read as at the client, except the folder."""
    packed = pack_pipeline(kites(1).tear, ship=["kites"])
    away()
    with pytest.raises(Exception, match="at the seam") as caught:
        open_pipeline(packed)(0)
    remote = describe_exception(caught.value)
    linecache.checkcache()
    assert remote.kind == "kites.shapes.Torn"
    assert "\nkites.shapes.Torn: at the seam" in remote.traceback
    assert 'raise Torn("at the seam")' in remote.traceback


def test_a_module_that_was_not_shipped_is_named_with_remedies(kites: Any, away: Any) -> None:
    """The error for an unshipped module names ship=, pip install and PYTHONPATH. It
    uses the module's own name inside shipped code.
    """
    shapes = kites(1)
    bare = pack_pipeline(shapes.version)
    packed = pack_pipeline(shapes.lacking, ship=["kites"])
    away()
    remedies = r"needs module 'kites' .*ship=\[.*pip install.*PYTHONPATH"
    with pytest.raises(FailedPreconditionError, match=remedies):
        open_pipeline(bare)
    with pytest.raises(ModuleNotFoundError) as caught:
        open_pipeline(packed)(0)
    assert plain_name(str(caught.value)) == "No module named 'kites.no_such'"


def test_a_shipped_module_that_needs_another_is_named(
    tmp_path: Path, kites: Any, away: Any
) -> None:
    """A missing module imported at the top of shipped code is an error at opening."""
    (tmp_path / "rope.py").write_text("import kites\ndef tie(x): return x\n")
    kites(1)
    sys.path.insert(0, str(tmp_path))
    rope = importlib.import_module("rope")
    packed = pack_pipeline(rope.tie, ship=["rope"])
    del sys.modules["rope"]
    away()
    with pytest.raises(FailedPreconditionError, match=r"needs module 'kites' .*ship="):
        open_pipeline(packed)


def test_the_same_shipment_is_installed_once(kites: Any) -> None:
    """Pipelines with the same files share modules; other files are another shipment."""
    one, other = (
        pack_pipeline(kites(1).Kite, ship=["kites"]),
        pack_pipeline(kites(1).Form, ship=["kites"]),
    )
    third = pack_pipeline(kites(2).Kite, ship=["kites"])
    assert one.shipped == other.shipped != third.shipped
    kite, form = open_pipeline(one), open_pipeline(other)
    assert kite.__module__ == form.__module__ != open_pipeline(third).__module__
    assert plain_name(kite.__module__) == "kites.shapes"


def test_shipped_code_is_a_part_of_the_fingerprint_of_code(kites: Any) -> None:
    """Another version of a package changes the fingerprint of code, not of
    structure.
    """
    one = pack_pipeline(kites(1).version, ship=["kites"]).fingerprint
    other = pack_pipeline(kites(2).version, ship=["kites"]).fingerprint
    assert one != other
    assert one.partition(":")[0] == other.partition(":")[0]


@pytest.mark.parametrize("name", ["../out.py", "/out.py", "a/../../out.py"])
def test_no_file_leaves_the_folder(tmp_path: Path, name: str) -> None:
    """A path that leads out of the shipment's folder is rejected."""
    archive = msgspec.msgpack.encode(SourceArchive("evil", ((name, b""),)))
    with pytest.raises(FailedPreconditionError, match="leads out"):
        install({name: archive}, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_files_get_the_names_that_they_had(tmp_path: Path) -> None:
    """A name that is not UTF-8 is sent in the portable form, and arrives unchanged."""
    archive = msgspec.msgpack.encode(SourceArchive("boats", (("boats/d\0e9.txt", b"x"),)))
    install({"named": archive}, tmp_path)
    (written,) = tmp_path.glob("*/boats/*")
    assert os.fsencode(written.name) == b"d\xe9.txt"


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    """The error for a full or missing disk names the folder."""
    archive = msgspec.msgpack.encode(SourceArchive("lost", (("lost.py", b""),)))
    with pytest.raises(FailedPreconditionError, match=r"cannot be unpacked in .*missing"):
        install({"lost": archive}, tmp_path / "missing")


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    """Bytes that are not an archive are an error of the pipeline, not of the worker."""
    with pytest.raises(FailedPreconditionError, match="cannot be unpacked"):
        install({"odd": b"\xc1"}, tmp_path)


def test_a_script_inside_of_a_shipped_package_imports_its_neighbours(kites: Any, away: Any) -> None:
    """Functions of ``python -m kites.train`` may import relatively at call time."""
    kites(1)
    space: dict[str, Any] = {"__name__": "__main__", "__package__": "kites"}
    exec(
        "def fly(x):\n    from .colours import RED\n    from . import inner\n    return x, RED, "
        "inner.__name__",
        space,
    )
    packed = pack_pipeline(space["fly"], ship=["kites"])
    away()
    x, red, name = open_pipeline(packed)(1)
    assert (x, red, plain_name(name)) == (1, "red", "kites.inner")


def test_a_shipment_that_is_installed_twice_at_once_is_one(tmp_path: Path) -> None:
    """Threads that open pipelines of the same shipment at once get the same modules."""
    archive = msgspec.msgpack.encode(SourceArchive("twins", (("twins.py", b"VALUE = object()\n"),)))
    start, found = threading.Barrier(8), []

    def run() -> None:
        start.wait(10)
        found.append(install({"twins": archive}, tmp_path).import_module("twins").VALUE)

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(map(id, found))) == 1
    assert len(list(tmp_path.iterdir())) == 1


def test_who_comes_second_takes_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If another process installs the files first, its folder is used and ours is
    removed.
    """
    archive = msgspec.msgpack.encode(SourceArchive("races", (("races.py", b"VALUE = 5\n"),)))
    rename = Path.rename

    def beaten(path: Path, target: Path) -> Path:
        rename(path, target)
        raise FileExistsError(target)

    monkeypatch.setattr(Path, "rename", beaten)
    assert install({"races": archive}, tmp_path).import_module("races").VALUE == 5
    assert len(list(tmp_path.iterdir())) == 1


def test_a_process_s_own_folder_is_its_own(tmp_path: Path) -> None:
    """The process that created the folder removes it, and a forked child does not."""
    (tmp_path / "x.py").touch()
    _remove_own(tmp_path, os.getppid())
    assert list(tmp_path.iterdir()) != []
    _remove_own(tmp_path, os.getpid())
    assert not tmp_path.exists()
