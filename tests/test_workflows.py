"""Tests of the workflow that checks changes, and of what renews its actions."""

from __future__ import annotations

import re
from pathlib import Path

GITHUB = Path(__file__).resolve().parent.parent / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*"))


def found(pattern: str) -> list[str]:
    """Return the matches of a pattern in each line of the workflows."""
    texts = (path.read_text(encoding="utf-8") for path in WORKFLOWS)
    return [one for text in texts for one in re.findall(pattern, text, re.MULTILINE)]


def test_a_change_is_checked_before_and_after_it_is_merged() -> None:
    """A workflow runs ``.ci/run`` and ``make coverage`` for pull requests and for
    ``main``. A newer run cancels the older one, and no job lasts for hours.
    """
    assert found(r"^  pull_request:$") == ["  pull_request:"]
    assert found(r"^  push:\n    branches: \[main\]$") != []
    assert {".ci/run", "make coverage"} <= {*found(r"^ +- run: (.*)$")}
    assert found(r"^  cancel-in-progress: (.*)$") == ["true"]
    assert len(found(r"^    timeout-minutes: [1-9]\d?$")) == len(found(r"^    runs-on:")) > 0


def test_a_workflow_may_only_read() -> None:
    """A workflow has no secret, no credentials after the checkout, and no permission
    but to read. Each action is pinned by the hash of a commit, beside its version.
    """
    assert found(r"(?i)secrets|github\.token") == []
    assert found(r"^ *permissions:[^\n]*\n(?: +.*\n)*") == ["permissions:\n  contents: read\n"]
    uses = found(r"uses: *(.*)$")
    assert [
        one for one in uses if not re.fullmatch(r"\S+@[0-9a-f]{40} # v\d+\.\d+\.\d+", one)
    ] == []
    checkouts = [one for one in uses if one.startswith("actions/checkout@")]
    assert len(found(r"persist-credentials: false$")) == len(checkouts) > 0


def test_only_actions_are_renewed_by_machine() -> None:
    """Dependabot renews actions and no packages: ``make lock`` writes their lock."""
    text = (GITHUB / "dependabot.yml").read_text(encoding="utf-8")
    assert re.findall(r"package-ecosystem: *(.*)", text) == ["github-actions"]
