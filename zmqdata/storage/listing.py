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
from zmqdata.storage.reading import new_client, open_remote, patience, retried

_SPECIAL = re.compile(r"[*?\[]")
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
        for pattern in _numbered(name):
            found.update(_urls(pattern, options or {}))
    return sorted(found)


def check_pattern(pattern: str) -> None:
    """Raise if a URL cannot be listed.

    Raises:
        UnimplementedError: its store has no listings.
        InvalidArgumentError: it holds a secret, which a dispatcher would keep.

    >>> check_pattern("s3://bucket/*.txt")
    """
    is_web = pattern.startswith(("http://", "https://"))
    told = shown_url(pattern)
    if is_web and _SPECIAL.search(pattern.partition("?")[0]):
        raise UnimplementedError(
            f"list_files got the pattern {told}, and web servers have no listings. Name each file, "
            "or write numbers as {000..099}"
        )
    if told != pattern:
        raise InvalidArgumentError(
            f"list_files got {told} with a user, a password or a query, which may be secret, and "
            "a dispatcher keeps patterns. Pass the URL to the source that reads it"
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


def _urls(pattern: str, options: Mapping[str, Any]) -> list[str]:
    special = _SPECIAL.search(pattern)
    try:
        if special is None:
            _ = open_remote(pattern, options=options).identity
            return [pattern]
        folder = pattern[: special.start()].rpartition("/")[0] + "/"
        stem = pattern[len(folder) : special.start()]
        wanted = parts_of(pattern[len(folder) :])
        names = retried(
            lambda: _names(folder, stem, wanted, options),
            f"the listing of {shown_url(pattern)}",
            patience(),
        )
    except NotFoundError:
        return []
    is_file = [name for name in names if name[-1:] != "/"]  # stores mark folders so
    return [folder + name for name in is_file if _fits(name.split("/"), wanted)]


def _names(folder: str, stem: str, wanted: Sequence[str], options: Mapping[str, Any]) -> list[str]:
    """Return the names of the files below a folder, relative to it: those that begin
    with the stem, or those that are as deep as the pattern, if the store lists so.
    """
    filesystem, root = new_client(folder.rstrip("/") if folder[-3:] != "://" else folder, options)
    find = getattr(filesystem, "_find", filesystem.find)
    if stem and "prefix" in inspect.signature(find).parameters:
        found = filesystem.find(root, prefix=stem)
    else:
        found = filesystem.find(root, maxdepth=None if "**" in wanted else len(wanted))
    return [name[len(root.rstrip("/")) :].lstrip("/") for name in found]


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
