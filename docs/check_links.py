"""Checks that each relative link and each path in the Markdown files leads to a file, a
link also to its heading.

Run by ``make docs``. Links to other sites are left alone: this works without a network.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")
PATH = re.compile(r"`((?:zmqdata|tests|docs|examples|benchmarks)/[^`\s]*)`")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    headings = re.findall(
        r"^#+\s+(.+)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE
    )
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings
    }


def fault(page: Path, link: str) -> str | None:
    """Return why the link is broken; None if it is good."""
    name, _, anchor = link.partition("#")
    target = (page.parent / name).resolve() if name else page
    if not target.exists():
        return "no such file"
    if anchor and target.suffix == ".md" and anchor not in anchors(target):
        return "no such heading"
    return None


def faults(page: Path) -> tuple[int, list[str]]:
    """Return the number of local links and paths of a page, and a line on each broken
    link or path.
    """
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    links = [
        link for link in LINK.findall(text) if "://" not in link and not link.startswith("mailto:")
    ]
    paths = PATH.findall(text)
    found = [f"{link}: {why}" for link in links if (why := fault(page, link))]
    # A `*` in a path stands for what it does in a shell.
    found += [f"{path}: no such file" for path in paths if not any(ROOT.glob(path))]
    return len(links) + len(paths), found


def main() -> int:
    pages = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")})
    checked = [(page, *faults(page)) for page in pages]
    broken = [f"{page.relative_to(ROOT)}: {line}" for page, _, lines in checked for line in lines]
    for line in broken:
        print(line, file=sys.stderr)
    print(
        f"{len(pages)} pages, {sum(count for _, count, _ in checked)} local links and paths, "
        f"{len(broken)} broken"
    )
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
