"""Coverage of each pure module by its own test module; run by ``make coverage`` after a
test run with contexts.

With ``--tests`` it lists the test modules that this run needs, since coverage by other
tests does not count.

A module that only other modules' tests cover is covered by accident: the next change to
those tests may remove it. Descriptions without behaviour (structs, enumerations) have
no test module of their own and are left out.
"""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import coverage

ROOT = Path(__file__).resolve().parent.parent
PROCESSES = {"client", "cluster", "dispatcher", "testing", "transport", "worker"}
COMMANDS = {"cli/asking.py", "cli/commands.py", "cli/keeper.py", "__main__.py"}
"""Modules that the tests of whole commands and processes cover."""
DESCRIPTIONS = {
    "config/dispatcher.py",
    "config/worker.py",
    "messages",
    "splits.py",
    "updates.py",
}
LEFT_OUT = PROCESSES | COMMANDS | DESCRIPTIONS
REQUIRED = 95.0
"""Percentage that each module must reach."""


def pure_modules() -> list[Path]:
    package = ROOT / "zmqdata"
    modules = (path for path in sorted(package.rglob("*.py")) if path.name != "__init__.py")
    return [path for path in modules if not is_left_out(path.relative_to(package))]


def is_left_out(module: Path) -> bool:
    """Return True if a module, or a folder that it is in, has no test module of its
    own.
    """
    return any(one.as_posix() in LEFT_OUT for one in (module, *module.parents))


def own_tests(module: Path) -> Path:
    inside = module.relative_to(ROOT / "zmqdata")
    return Path("tests") / inside.parent / f"test_{inside.name}"


def own_coverage(measured: coverage.Coverage, module: Path) -> float:
    """Return the percentage of lines and branches that run at import or under the
    module's own tests.
    """
    contexts = ["^$", f"^{re.escape(own_tests(module).as_posix())}::"]
    try:
        return measured.report(
            include=[str(module)], contexts=contexts, file=io.StringIO(), skip_covered=False
        )
    except coverage.exceptions.NoDataError:
        return 0.0


def main() -> int:
    if "--tests" in sys.argv:
        print(*(tests for tests in map(own_tests, pure_modules()) if (ROOT / tests).exists()))
        return 0
    measured = coverage.Coverage(data_file=str(ROOT / ".coverage"))
    measured.load()
    shares = {module: own_coverage(measured, module) for module in pure_modules()}
    for module, share in sorted(shares.items(), key=lambda pair: pair[1]):
        print(
            f"{share:6.1f} %  "
            f"{module.relative_to(ROOT)}{'' if share >= REQUIRED else '   <-- below 95 %'}"
        )
    return 0 if min(shares.values()) >= REQUIRED else 1


if __name__ == "__main__":
    sys.exit(main())
