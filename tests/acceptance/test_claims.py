"""Every claim has a test, and every test of this folder names its claims."""

from __future__ import annotations

import ast
import re
from pathlib import Path

HERE = Path(__file__).parent
CLAIMED = dict(
    re.findall(r"^\* (\d\.[\da-z]+) (.*)$", (HERE / "claims.md").read_text(), re.MULTILINE)
)


def claims_of(function: ast.FunctionDef) -> set[str]:
    """Return the claims in a test's ``claim`` marker."""
    calls = [mark for mark in function.decorator_list if isinstance(mark, ast.Call)]
    marks = [call for call in calls if ast.unparse(call.func) == "pytest.mark.claim"]
    return {str(ast.literal_eval(number)) for call in marks for number in call.args}


def examined() -> dict[str, set[str]]:
    """Return the claims of each test."""
    trees = [
        (path, ast.parse(path.read_text(encoding="utf-8")))
        for path in sorted(HERE.glob("test_*.py"))
    ]
    return {
        f"{path.name}::{function.name}": claims_of(function)
        for path, tree in trees
        for function in tree.body
        if isinstance(function, ast.FunctionDef)
        and function.name.startswith("test_")
        and path != Path(__file__)
    }


def test_each_claim_has_a_test() -> None:
    """Every claim of the table has a test."""
    assert set(CLAIMED) - set().union(*examined().values()) == set()


def test_each_test_has_a_claim_of_the_table() -> None:
    """Every test names at least one claim, and only claims of the table."""
    assert {
        name for name, claims in examined().items() if not claims or claims - set(CLAIMED)
    } == set()


def test_the_suite_uses_public_names_only() -> None:
    """The suite imports only the package's facade, errors and testing kit."""
    allowed = re.compile(r"(zmqdata|zmqdata\.errors|zmqdata\.testing(\..*)?)$")
    found = set()
    for path in HERE.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            found |= {
                f"{path.name} {name}"
                for name in names
                if name.startswith("zmqdata") and not allowed.match(name)
            }
    assert found == set()
