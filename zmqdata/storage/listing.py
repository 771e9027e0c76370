"""Listing the files that match patterns, on this machine and in stores.

Run as a program, it does so in a subprocess that can be abandoned, as ``matching``
does: the process id of its parent is the argument, standard input has a list of the
patterns and the options of the store as JSON, and standard output gets names as JSON.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from zmqdata.errors import InvalidArgumentError, NotFoundError, UnimplementedError
from zmqdata.files.matching import end_with, expression, matching_files, parts_of
from zmqdata.files.paths import is_url, shown_url
from zmqdata.storage.reading import (
    Identity,
    identity_told,
    new_client,
    open_remote,
    patience,
    retried,
)

_SPECIAL = re.compile(r"[*?\[]")
_MEANT = re.compile(r"[*?\[\\]")
_NUMBERS = re.compile(r"\{(\d+)\.\.(\d+)\}")


def matching_names(patterns: Iterable[str], options: Mapping[str, Any] | None = None) -> list[str]:
    """Return the files that match absolute patterns or URLs, without duplicates,
    sorted.

    In URLs ``{000..099}`` also stands for each of these numbers. Nothing is remembered
    of an earlier listing.

    Args:
        patterns: absolute patterns, as for ``matching_files``, and URLs.
        options: arguments of the clients of stores.

    Raises:
        OSError, DataServiceError: a folder or a store cannot be listed.
    """
    names = list(patterns)
    found = set(matching_files(name for name in names if not is_url(name)))
    for name in filter(is_url, names):
        found.update(_matching_urls(name, options or {}))
    return sorted(found)


def files_in(
    path: str, endings: tuple[str, ...], options: Mapping[str, Any] | None = None
) -> dict[str, Identity | None]:
    """Return the files that a name, a pattern or a folder stands for, and the identity
    of those that a listing of a store tells. Of a folder these are the files at any
    depth with one of some endings, but those whose name, or folder, begins with ``_``
    or a dot.

    Args:
        path: absolute path, pattern or URL. Web servers have no folders, and the files
            that they are asked for may be absent.
        endings: ends of the names in folders.
        options: arguments of the clients of stores.

    Raises:
        OSError, DataServiceError: a folder or a store cannot be listed.
    """
    if path.startswith(("http://", "https://")):
        _check_web("This source", path)
        return dict.fromkeys(_numbered(path))
    found: dict[str, Identity | None] = {}
    if not is_url(path):
        if not os.path.isdir(path):
            return dict.fromkeys(matching_files([path]))
        found.update(dict.fromkeys(matching_files([f"{_MEANT.sub(_escaped, path)}/**"])))
    else:
        if path[-1] != "/":
            found.update(_matching_urls(path, options or {}))
        if found or _SPECIAL.search(path):
            return found
        found.update(_matching_urls(f"{path.rstrip('/')}/**", options or {}))
    return {
        name: identity
        for name, identity in found.items()
        if name.endswith(endings)
        and not any(part[:1] in ("_", ".") for part in name[len(path) :].split("/"))
    }


def _escaped(found: re.Match[str]) -> str:
    return "\\" + found[0]


def check_pattern(pattern: str) -> None:
    """Raise if a URL cannot be listed.

    Raises:
        UnimplementedError: its store has no listings.
        InvalidArgumentError: it holds a secret, which a dispatcher would keep.

    >>> check_pattern("s3://bucket/*.txt")
    """
    if pattern.startswith(("http://", "https://")):
        _check_web("list_files", pattern)
    told = shown_url(pattern)
    if told != pattern:
        raise InvalidArgumentError(
            f"list_files got {told} with a user, a password or a query, which may be secret, and "
            "a dispatcher keeps patterns. Pass the URL to the source that reads it"
        )


def _check_web(operation: str, pattern: str) -> None:
    if _SPECIAL.search(pattern.partition("?")[0]):
        raise UnimplementedError(
            f"{operation} got the pattern {shown_url(pattern)}, and web servers have no listings. "
            "Name each file, or write numbers as {000..099}"
        )


def _numbered(pattern: str) -> Iterator[str]:
    """Yield a pattern with each number of its ranges."""
    found = _NUMBERS.search(pattern)
    if found is None:
        yield pattern
        return
    for number in range(int(found[1]), int(found[2]) + 1):
        text = f"{number:0{len(found[1])}}"
        yield from _numbered(pattern[: found.start()] + text + pattern[found.end() :])


def _matching_urls(pattern: str, options: Mapping[str, Any]) -> dict[str, Identity]:
    """Return the files of a store that match a pattern, in its order of numbers."""
    found: dict[str, Identity] = {}
    for numbered in _numbered(pattern):
        found.update(_urls(numbered, options))
    return found


def _urls(pattern: str, options: Mapping[str, Any]) -> dict[str, Identity]:
    special = _SPECIAL.search(pattern)
    try:
        if special is None:
            return {pattern: open_remote(pattern, options=options).identity}
        folder = pattern[: special.start()].rpartition("/")[0] + "/"
        stem = pattern[len(folder) : special.start()]
        wanted = parts_of(pattern[len(folder) :])
        names = retried(
            lambda: _names(folder, stem, wanted, options),
            f"the listing of {shown_url(pattern)}",
            patience(),
        )
    except NotFoundError:
        return {}
    is_file = sorted(name for name in names if name[-1:] != "/")  # stores mark folders so
    return {folder + name: names[name] for name in is_file if _fits(name.split("/"), wanted)}


def _names(
    folder: str, stem: str, wanted: Sequence[str], options: Mapping[str, Any]
) -> dict[str, Identity]:
    """Return the files below a folder by names relative to it: those that begin with
    the stem, or those that are as deep as the pattern, if the store lists so.
    """
    filesystem, root = new_client(folder.rstrip("/") if folder[-3:] != "://" else folder, options)
    find = getattr(filesystem, "_find", filesystem.find)
    if stem and "prefix" in inspect.signature(find).parameters:
        found = filesystem.find(root, prefix=stem, detail=True)
    else:
        deepest = None if "**" in wanted else len(wanted)
        found = filesystem.find(root, maxdepth=deepest, detail=True)
    start = len(root.rstrip("/"))
    return {name[start:].lstrip("/"): identity_told(seen) for name, seen in found.items()}


def _fits(path: Sequence[str], pattern: Sequence[str]) -> bool:
    r"""Return True if the parts of a path match those of a pattern.

    >>> _fits(["a", "b", "c.txt"], ["**", "[a-c].txt"]), _fits(["a", "b"], ["*"])
    (True, False)
    """
    if not pattern or not path:
        return not pattern and not path
    first, *rest = pattern
    if first == "**":
        return any(_fits(path[at:], rest or ["*"]) for at in range(len(path)))
    fits = re.compile(expression(first), re.DOTALL).fullmatch(path[0])
    return fits is not None and _fits(path[1:], rest)


if __name__ == "__main__":
    end_with(int(sys.argv[1]))
    json.dump(matching_names(*json.load(sys.stdin)), sys.stdout)
    sys.stdout.flush()
    os._exit(0)  # a client may take seconds to end, without handlers of signals
