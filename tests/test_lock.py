"""Tests of the exact packages that CI installs, and of the report on them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tools.audit import verdict

ROOT = Path(__file__).resolve().parent.parent
LOCK = (ROOT / "requirements-dev.lock").read_text(encoding="utf-8")
PINNED = re.findall(r"^([A-Za-z0-9._-]+)==([^ ;]+)(?: ; ([^\\]+?))? \\$", LOCK, re.MULTILINE)


def asked_for() -> list[Requirement]:
    """Return the requirements of the package and its developers from pyproject.toml."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    blocks = re.findall(r"^(?:dependencies|dev) = \[\n(.*?)^\]", text, re.MULTILINE | re.DOTALL)
    return [
        Requirement(one) for one in re.findall(r'^ {4}"([^"]+)"', "\n".join(blocks), re.MULTILINE)
    ]


def test_every_package_is_pinned_as_it_is_asked_for() -> None:
    """The lock has every requirement of pyproject.toml in an allowed version.
    ``make lock`` rewrites it.
    """
    versions: dict[str, list[str]] = {}
    for name, version, _ in PINNED:
        versions.setdefault(canonicalize_name(name), []).append(version)
    wanted = asked_for()
    assert len(wanted) > 15
    for one in wanted:
        found = versions.get(canonicalize_name(one.name), [])
        assert found, f"{one.name} is not in requirements-dev.lock; run make lock"
        assert all(one.specifier.contains(Version(version)) for version in found), (str(one), found)


def test_every_pin_has_hashes() -> None:
    """Every pinned package has hashes, and the lock names no place to fetch it from."""
    entries = re.split(r"^(?=[A-Za-z0-9])", LOCK, flags=re.MULTILINE)[1:]
    assert len(entries) == len(PINNED)
    assert [entry.split()[0] for entry in entries if "--hash=sha256:" not in entry] == []
    assert "://" not in LOCK
    assert "index" not in LOCK


def package(name: str, *vulnerabilities: dict[str, Any], **told: Any) -> dict[str, Any]:
    return {"name": name, "version": "1.0", "vulns": list(vulnerabilities), **told}


HOLE = {"id": "PYSEC-1", "fix_versions": ["1.1", "2.0"]}


@pytest.mark.parametrize(
    ("packages", "code", "text"),
    [
        ([package("a"), package("b")], 0, "none of 2 packages"),
        ([package("a"), package("b", HOLE)], 1, "b 1.0: PYSEC-1, fixed in 1.1, 2.0"),
        (
            [package("a"), {"name": "b", "skip_reason": "not found"}],
            2,
            "1 of 2 packages were not looked up (b)",
        ),
        ([package("a", HOLE), {"name": "b", "skip_reason": "not found"}], 1, "a 1.0: PYSEC-1"),
        ([], 2, "0 of 0 packages"),
    ],
)
def test_what_is_not_known_is_no_good_news(
    packages: list[dict[str, Any]], code: int, text: str
) -> None:
    """The report succeeds only if every package was found without vulnerability."""
    found = verdict(json.dumps({"dependencies": packages, "fixes": []}), "")
    assert found[0] == code
    assert text in found[1]


@pytest.mark.parametrize("said", ["", "[]", "{}", "no json"])
def test_a_service_that_is_away_is_told(said: str) -> None:
    """If the service does not answer, the report has the last line of its error."""
    assert verdict(said, "Traceback\nConnectionError: no way\n") == (
        2,
        "no package was looked up, since the vulnerability service cannot be reached from here: "
        "ConnectionError: no way",
    )
