"""Tests of ``import zmqdata``."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import zmqdata
from tests.frameworks.missing import is_missing


def type_checking_names() -> set[str]:
    tree = ast.parse(Path(zmqdata.__file__).read_text())
    blocks = [node for node in tree.body if isinstance(node, ast.If)]
    imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.asname or alias.name for node in imports for alias in node.names}


@pytest.mark.parametrize("name", [*zmqdata.__all__, "__version__"])
def test_every_public_name_is_there(name: str) -> None:
    """Every public name can be used."""
    assert getattr(zmqdata, name) is not None
    assert name in dir(zmqdata)


def test_a_folder_that_was_never_installed_has_a_version(tmp_path: Path) -> None:
    """``__version__`` says that it is not known, and raises nothing."""
    (tmp_path / "zmqdata").symlink_to(Path(zmqdata.__file__).parent)
    program = "import zmqdata; print(zmqdata.__version__)"
    ended = subprocess.run(
        [sys.executable, "-E", "-S", "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert ended.stdout.strip() == "unknown"


def test_only_public_names_are_shown() -> None:
    """``dir`` shows the public names and the adapters alone, also after use."""
    _ = [getattr(zmqdata, name) for name in zmqdata.__all__]
    adapters = [name.partition(".")[2] for name in EXTRAS]
    assert dir(zmqdata) == sorted([*zmqdata.__all__, *adapters, "__version__"])


OF_SERVERS = {"address", "join", "metrics_address", "start", "stop"}


@pytest.mark.parametrize(
    ("server", "own"),
    [
        (zmqdata.DispatchServer, {"num_workers", "snapshot_streams", "target"}),
        (
            zmqdata.WorkerServer,
            {"drain", "drained", "num_tasks", "snapshot_task_progresses", "wait_registered"},
        ),
    ],
)
def test_servers_show_what_their_users_call(server: type, own: set[str]) -> None:
    """A server has no public name that only a supervisor needs."""
    assert {name for name in dir(server) if not name.startswith("_")} == OF_SERVERS | own


@pytest.mark.parametrize(
    "name", ["AUTOTUNE", "SHARD_HINT", "INFINITE_CARDINALITY", "UNKNOWN_CARDINALITY"]
)
def test_numbers_are_documented(name: str) -> None:
    """``help(zmqdata)`` says what a number means, which has no docstring of its own."""
    assert f"``{name}``" in (zmqdata.__doc__ or "")


def test_type_checkers_see_the_same_names() -> None:
    """The imports for type checkers match the names loaded on first use."""
    adapters = {name.partition(".")[2] for name in EXTRAS}
    assert type_checking_names() == {*zmqdata.__all__, *adapters}


def test_other_names_are_attribute_errors() -> None:
    """An unknown name raises AttributeError."""
    with pytest.raises(AttributeError, match=r"^module 'zmqdata' has no attribute 'nonsense'$"):
        _ = zmqdata.nonsense


def test_importing_loads_nothing_heavy() -> None:
    """import zmqdata alone loads neither numpy nor zmq nor dill."""
    code = "import sys, zmqdata; print({'numpy', 'zmq', 'dill'} & set(sys.modules))"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip()
        == "set()"
    )


EXTRAS = {f"zmqdata.{name}": name for name in ("jax", "keras", "tensorflow", "torch")}
"""Adapters, each with the framework that it imports and the extra of this name."""


def test_every_module_can_be_imported() -> None:
    """Each module of the package can be imported, in alphabetical order, if the
    framework is installed that it is for.
    """
    top = Path(zmqdata.__file__).parent
    names = [
        ".".join(path.relative_to(top.parent).with_suffix("").parts).removesuffix(".__init__")
        for path in sorted(top.rglob("*.py"))
    ]
    present = [name for name in names if not is_missing(name)]
    code = f"import importlib\nfor name in {present}: importlib.import_module(name)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def test_an_adapter_without_its_framework_names_the_extra() -> None:
    """The import is an ImportError that says what to install, as does the attribute of
    ``zmqdata``, and the extra exists.
    """
    code = (
        "import importlib, json, sys, zmqdata\n"
        f"sys.modules |= dict.fromkeys({[*EXTRAS.values()]})\ntold = {{}}\n"
        f"for name in {[*EXTRAS]}:\n    try:\n        importlib.import_module(name)\n"
        "    except ImportError as error:\n        told[name] = str(error)\n"
        "    try:\n        getattr(zmqdata, name.partition('.')[2])\n"
        "    except AttributeError as error:\n        assert told[name] == str(error)\n"
        "print(json.dumps(told))\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    project = (Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8")
    for name, kit in EXTRAS.items():
        assert f"`{name}` needs " in told[name]
        assert f"`pip install 'zmqdata[{kit}]'`" in told[name]
        assert f"\n{kit} = [" in project


def test_the_core_knows_no_adapter() -> None:
    """Everything public works without the frameworks: nothing imports them."""
    code = (
        "import sys, zmqdata\n"
        "[getattr(zmqdata, name) for name in zmqdata.__all__]\n"
        f"print({ {*EXTRAS, *EXTRAS.values()} } & set(sys.modules))\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.stdout == "set()\n", ran.stderr
