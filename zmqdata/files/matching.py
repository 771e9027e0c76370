"""Listing the files that match patterns, in this process or in a subprocess that can be
abandoned when a file system hangs.

Run as a program, this module needs only Python itself. It takes the process id of its
parent as argument, reads patterns as JSON from standard input and writes names as JSON
to standard output.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Iterable, Iterator
from functools import partial

# The members of a set begin with a closing bracket if one follows the opening one.
_SET = re.compile(
    r"(?:(?P<negated>[!^])|(?![!^]))(?P<members>(?:\\.|[^\\])(?:\\.|[^\]\\])*)\]", re.DOTALL
)
_RANGE = re.compile(r"(\\?.)(?:-(\\?.))?", re.DOTALL)


def matching_files(patterns: Iterable[str]) -> list[str]:
    """Return the files that match these absolute patterns, without duplicates, sorted.

    ``*`` and ``?`` match within a name, ``[ab]`` and ``[a-c]`` a character, ``[^a]`` or
    ``[!a]`` any other, and ``**`` folders of any depth. A backslash takes the special
    meaning from the next character. Hidden files match as others do. A name with
    brackets or backslashes that exists stands for itself.

    Raises:
        OSError: a folder cannot be read. One that is absent, or not allowed to be read,
            has no files.

    >>> matching_files(["/nowhere/*.txt"])
    []
    """
    found: set[str] = set()
    for pattern in patterns:
        found.update(_files("/", parts_of(pattern)))
    return sorted(found)


def parts_of(pattern: str) -> list[str]:
    """Return the parts of a pattern, without each ``**`` that follows another, and that
    matches nothing more.

    For each of them, all folders would be walked once more below each folder.

    >>> parts_of("/data/**/**/*.txt")
    ['data', '**', '*.txt']
    """
    parts = pattern.lstrip("/").split("/")
    return [
        part
        for part, before in zip(parts, ["", *parts], strict=False)
        if not part == before == "**"
    ]


def _files(top: str, pattern: list[str]) -> Iterator[str]:
    pending = [(top, pattern)]
    while pending:
        folder, (part, *rest) = pending.pop()
        if part == "**":
            pending.append((folder, rest or ["*"]))
            pending += ((path, [part, *rest]) for path in _folders_below(folder))
        elif (name := _plain(folder, part)) is not None:
            path = os.path.join(folder, name)
            if rest:
                pending.append((path, rest))
            elif os.path.lexists(path) and not os.path.isdir(path):
                yield path
        else:
            matches = re.compile(expression(part), re.DOTALL).fullmatch
            for entry in _entries(folder):
                if not matches(entry.name) or _is_folder(entry) != bool(rest):
                    continue
                if rest:
                    pending.append((entry.path, rest))
                else:
                    yield entry.path


def _plain(folder: str, part: str) -> str | None:
    """Return the only name that a part of a pattern matches, or None if it may match
    several.
    """
    if "*" in part or "?" in part:
        return None
    names_itself = not ("[" in part or "\\" in part) or os.path.lexists(os.path.join(folder, part))
    return part if names_itself else None


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself, or to what must not be seen
        return False


def _folders_below(folder: str) -> Iterator[str]:
    """Yield the folders in a folder, without links to a folder that holds the link."""
    for entry in _entries(folder):
        if _is_folder(entry) and not (entry.is_symlink() and _holds_itself(entry.path)):
            yield entry.path


def _holds_itself(link: str) -> bool:
    above = link
    while above != "/":
        above = os.path.dirname(above)
        if os.path.samefile(above, link):
            return True
    return False


def expression(part: str) -> str:
    r"""Return the regular expression of a part of a pattern.

    >>> expression("a?[^b-d].txt"), expression(r"\*[")
    ('a.[^b-d]\\.txt', '\\*\\[')
    """
    pieces, position = [""], 0
    while position < len(part):
        character, position = part[position], position + 1
        if character == "*":
            pieces.append("")
            continue
        if character == "[" and (found := _SET.match(part, position)):
            position = found.end()
            pieces[-1] += _one_of(found["members"], bool(found["negated"]))
        elif character == "?":
            pieces[-1] += "."
        else:
            if character == "\\" and position < len(part):
                character, position = part[position], position + 1
            pieces[-1] += re.escape(character)
    first, *others = pieces
    if not others:
        return first
    # Between two stars, the first place that fits is as good as any. Without the
    # groups, the time would grow exponentially with the number of stars.
    between = "".join(f"(?=(?P<at{n}>.*?{one}))(?P=at{n})" for n, one in enumerate(others[:-1]))
    return f"{first}{between}.*{others[-1]}"


def _one_of(members: str, negated: bool) -> str:
    r"""Return the regular expression of a set of characters.

    >>> _one_of("a-c-", False), _one_of("c-a", False), _one_of("c-a", True)
    ('[a-c\\-]', '(?!)', '.')
    """
    ranges = [
        re.escape(low[-1]) + (f"-{re.escape(high[-1])}" if high else "")
        for low, high in _RANGE.findall(members)
        if not high or low[-1] <= high[-1]
    ]
    if not ranges:
        return "." if negated else "(?!)"
    return f"[{'^' if negated else ''}{''.join(ranges)}]"


def _check_parent(parent: int, *of_signal: object) -> None:
    if os.getppid() != parent:
        os._exit(1)


def end_with(parent: int) -> None:
    """End this process once its parent has ended: a parent that was killed cannot stop
    it, so it checks once a second whether its parent still lives.
    """
    signal.signal(signal.SIGALRM, partial(_check_parent, parent))
    signal.setitimer(signal.ITIMER_REAL, 1, 1)


if __name__ == "__main__":
    end_with(int(sys.argv[1]))
    json.dump(matching_files(json.load(sys.stdin)), sys.stdout)
