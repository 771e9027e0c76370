"""Tests of ``import zmqdata``."""

from __future__ import annotations

import ast
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


def test_type_checkers_see_the_same_names() -> None:
    """The imports for type checkers match the names loaded on first use."""
    assert type_checking_names() == set(zmqdata.__all__)


def test_other_names_are_attribute_errors() -> None:
    """An unknown name raises AttributeError."""
    with pytest.raises(AttributeError, match="nonsense"):
        _ = zmqdata.nonsense


def test_importing_loads_nothing_heavy() -> None:
    """import zmqdata alone loads neither numpy nor zmq nor dill."""
    code = "import sys, zmqdata; print({'numpy', 'zmq', 'dill'} & set(sys.modules))"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip()
        == "set()"
    )


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


def test_a_framework_that_is_missing_is_named() -> None:
    """Importing the module of a framework that is absent says what to install."""
    code = "import sys; sys.modules['torch'] = None; import zmqdata.torch"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "ImportError: zmqdata.torch needs torch" in ran.stderr
    assert "pip install 'zmqdata[torch]'" in ran.stderr
