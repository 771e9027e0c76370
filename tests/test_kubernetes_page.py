"""Tests of the page on Kubernetes and of the values of its chart, without Helm."""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "deploy" / "helm" / "zmqdata"
PAGE = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")


def names(text: str) -> dict[str, str]:
    """Return the dotted name of each value or group of values, and its comment."""
    found, path, comment = dict[str, str](), list[str](), ""
    for line in text.splitlines():
        if line.strip().startswith("#"):
            comment += line.strip("# ")
        elif match := re.match(r"( *)([A-Za-z]+):(.*)", line):
            depth = len(match[1]) // 2
            path = [*path[:depth], match[2]]
            found[".".join(path)] = comment or ("group" if not match[3] else "")
            comment = ""
    return found


def described(schema: dict[str, object], prefix: str = "") -> set[str]:
    """Return the dotted names that a schema admits."""
    found = set[str]()
    properties = schema.get("properties")
    for name, inner in properties.items() if isinstance(properties, dict) else ():
        found |= {f"{prefix}{name}"} | described(inner, f"{prefix}{name}.")
    return found


def test_each_value_is_explained_and_checked() -> None:
    """Each value of the chart has a comment, and the schema knows it."""
    found = names((CHART / "values.yaml").read_text(encoding="utf-8"))
    inside = re.compile(r"resources\.|networkPolicy\.(clients|scrapers)\.")
    values = {name: comment for name, comment in found.items() if not inside.search(name)}
    assert [name for name, comment in values.items() if not comment] == []
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    known = {name for name in described(schema) if not inside.search(name)} - {"global"}
    assert known == values.keys()


def test_the_page_names_values_that_exist() -> None:
    """Each value of the chart that the page quotes exists."""
    found = names((CHART / "values.yaml").read_text(encoding="utf-8"))
    quoted = set(re.findall(r"`((?:worker|dispatcher|key|networkPolicy|autoscaling)\.\w+)`", PAGE))
    assert len(quoted) > 5
    assert quoted - found.keys() - {"dispatcher.key", "worker.key"} == set()
