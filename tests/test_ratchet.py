"""The size and the ties of the package may only fall. Each figure below is what the
package has today; whoever lowers one commits the lower figure, and an order that adds
raises one by its allowance and says so.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tests.test_house import (  # noqa: F401  # pytest finds the fixture
    FUNCTIONS,
    PACKAGE,
    ROOT,
    code_lines,
    forgotten,
    walked,
)

CODE = 72_088
"""Lines of code in ``zmqdata/``, without docstrings, comments and blanks."""
MODULES = 494
"""Number of its modules."""
SLACK = 40
"""Lines by which the package may be smaller before the figure must follow."""
PAGE = ROOT / "zmqdata" / "dashboard" / "pages" / "dashboard.js"
SCRIPT = 382
"""Lines of the script of the page. It shows the texts of ``zmqdata.dashboard.view``,
and computes nothing that another face computes, too.
"""
SCRIPT_WIDTH = 120
"""Maximum number of characters of a line of it."""
MOST_IMPORTS = 25
"""Number of our own modules that a module may import."""
IMPORTS = {
    "zmqdata/client/distribute.py": 29,
    "zmqdata/client/shell.py": 27,
    "zmqdata/dispatcher/server.py": 32,
    "zmqdata/testing/service.py": 31,
    "zmqdata/worker/server.py": 37,
    "zmqdata/worker/tasks/runner.py": 27,
}
"""Modules that import more today."""
VALUES = {"failure", "first"}
"""Names of values that are methods elsewhere."""
LATE = {
    "zmqdata/core/client/decider.py": 1,
    "zmqdata/core/dispatcher/decider.py": 1,
    "zmqdata/core/dispatcher/readers/jobs.py": 1,
    "zmqdata/worker/tasks/output.py": 1,
}
"""Number of callables that a module assigns to attributes of other objects today. What
is bound late cannot be followed by reading: pass it as an argument.
"""
MOST_SIBLINGS = 6
"""Number of modules that may lie in one layer without an order among them."""
SIBLINGS = {
    "credit": 8,
    "decisions": 8,
    "checkpoint": 9,
}
"""Layers of today with more, by their first module."""

ROOMS_OF = ROOT / "zmqdata" / "core" / "dispatcher"
MOST_ROOMS = 12
MOST_ARROWS = 20
"""Number of rooms of the dispatcher's decisions, each a module or a folder, and of
pairs of which one imports the other, besides what all may import.
"""


def test_the_package_does_not_grow() -> None:
    """The package has at most the committed lines of code and modules, and the figures
    follow when it shrinks.
    """
    code = sum(len(code_lines(path)) for path in PACKAGE)
    assert CODE - SLACK <= code <= CODE
    assert len(PACKAGE) == MODULES


def test_the_script_of_the_page_does_not_grow() -> None:
    """The script has at most the committed lines, none of which is long, and the figure
    follows when it shrinks.
    """
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    assert SCRIPT - SLACK <= len(lines) <= SCRIPT
    assert max(map(len, lines)) <= SCRIPT_WIDTH


def own_imports(path: Path) -> set[str]:
    """Return the modules of the package that a module imports, at its top or later."""
    found = set()
    for node in walked(path):
        if isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
        elif isinstance(node, ast.Import):
            found |= {one.name for one in node.names}
    return {name for name in found if name.partition(".")[0] == "zmqdata"}


def test_no_module_knows_most_others() -> None:
    """No module imports more than 25 of our own modules, but for those listed."""
    counts = {str(path.relative_to(ROOT)): len(own_imports(path)) for path in PACKAGE}
    assert {name: count for name, count in counts.items() if count > MOST_IMPORTS} == IMPORTS


def methods() -> set[str]:
    """Return the names of methods that are nowhere properties."""
    called, valued = set(), set()
    for path in PACKAGE:
        for node in walked(path):
            if isinstance(node, ast.ClassDef):
                for one in node.body:
                    if isinstance(one, FUNCTIONS):
                        (valued if one.decorator_list else called).add(one.name)
    return called - valued - VALUES


def own_values(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the names of the attributes and fields that a module gives its objects."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if isinstance(node.value, ast.Name) and node.value.id == "self":
                found.add(node.attr)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
    return found


def late_bindings(nodes: Sequence[ast.AST], known: set[str]) -> Iterator[int]:
    """Yield the lines that assign a callable to an attribute of another object."""
    known = known - own_values(nodes)
    for node in nodes:
        if not isinstance(node, ast.Assign):
            continue
        value = node.value
        is_callable = isinstance(value, ast.Lambda) or (
            isinstance(value, ast.Attribute) and value.attr in known
        )
        targets = [one for one in node.targets if isinstance(one, ast.Attribute)]
        if is_callable and any(ast.unparse(one.value) != "self" for one in targets):
            yield node.lineno


def test_late_bindings_are_found() -> None:
    """A method or a lambda that becomes an attribute of another object counts; one of
    the object itself, and a value, do not.
    """
    text = "a.b = self.plan\nself.c.d = lambda: 1\nself.e = self.plan\na.f = self.size"
    assert list(late_bindings([*ast.walk(ast.parse(text))], {"plan"})) == [1, 2]


def test_nothing_is_bound_late() -> None:
    """No attribute of another object is assigned a callable, but for those listed."""
    known, found = methods(), Counter[str]()
    for path in PACKAGE:
        found[str(path.relative_to(ROOT))] += len(list(late_bindings(walked(path), known)))
    assert {name: count for name, count in found.items() if count} == LATE


def test_modules_have_an_order() -> None:
    """At most 6 modules share a layer of the import rules without an order among them,
    but for those listed.
    """
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    lines = [line for line in re.findall(r'^ +"([^"]+)",$', text, re.MULTILINE) if " : " in line]
    counts = {line.split(" : ")[0].strip("()"): line.count(" : ") + 1 for line in lines}
    assert {name: count for name, count in counts.items() if count > MOST_SIBLINGS} == SIBLINGS


def rooms_of(path: Path) -> set[str]:
    """Return the rooms of the dispatcher's decisions that a module imports from."""
    prefix = "zmqdata.core.dispatcher"
    found = set()
    for node in walked(path):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{one.name}" for one in node.names]
            found |= {name.split(".")[3] for name in names if name.startswith(f"{prefix}.")}
    return found - {"events", "state"}


def test_the_dispatcher_has_few_rooms() -> None:
    """The dispatcher's decisions have at most 12 rooms, and at most 20 arrows between
    them besides those to ``events`` and ``state``. The import rules forbid circles.
    """
    arrows, rooms = set(), set()
    for path in ROOMS_OF.rglob("*.py"):
        room = path.relative_to(ROOMS_OF).parts[0].removesuffix(".py")
        if room == "__init__":
            continue
        rooms.add(room)
        arrows |= {(room, other) for other in rooms_of(path) - {room}}
    assert len(rooms) <= MOST_ROOMS
    assert len(arrows) <= MOST_ARROWS, sorted(arrows)
