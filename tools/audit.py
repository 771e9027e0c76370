"""Search the packages of a lock file for known vulnerabilities: ``make audit``.

pip-audit queries a public service for the packages that this interpreter would install.
This tool reports the result, and never takes a missing answer for a good answer. Exit
codes: 0 no vulnerability is known, 1 some are, 2 not every package could be looked up.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

QUESTION = [
    "-m",
    "pip_audit",
    "--format=json",
    "--require-hashes",
    "--disable-pip",
    "--progress-spinner=off",
]
SOME, UNKNOWN = 1, 2
NAMED = 5
"""Limit of packages that a message names."""


def verdict(said: str, complaints: str) -> tuple[int, str]:
    """Return the exit code and the message for the result of pip-audit.

    Args:
        said: standard output of pip-audit, a JSON object if it got that far.
        complaints: its standard error.
    Example:
        >>> package = '{"name": "a", "version": "1", "vulns": []}'
        >>> verdict('{"dependencies": [' + package + "]}", "")
        (0, 'none of 1 packages has a known vulnerability')
        >>> verdict("", "Traceback ...\\nConnectionError: no route")[0]
        2
    """
    try:
        packages: list[dict[str, Any]] = json.loads(said)["dependencies"]
    except (ValueError, KeyError, TypeError):
        last = complaints.strip().splitlines()[-1:] or ["it said nothing"]
        return (
            UNKNOWN,
            "no package was looked up, since the vulnerability service cannot be reached from "
            "here: "
            f"{last[0]}",
        )
    found = [
        f"{package['name']} {package['version']}: {one['id']}, fixed in "
        f"{', '.join(one['fix_versions']) or 'no version'}"
        for package in packages
        for one in package.get("vulns", ())
    ]
    unknown = [package["name"] for package in packages if "skip_reason" in package]
    if found:
        return SOME, "\n".join(found)
    if unknown or not packages:
        named = ", ".join(unknown[:NAMED]) + (", ..." if len(unknown) > NAMED else "")
        return UNKNOWN, (
            f"{len(unknown)} of {len(packages)} packages were not looked up ({named}): the "
            "vulnerability service cannot be reached from here, or a mirror of the package index "
            "answers in its place and has no vulnerability data"
        )
    return 0, f"none of {len(packages)} packages has a known vulnerability"


def main(lock: str) -> int:
    """Look up all packages of a lock file, print the result, and return the exit
    code.
    """
    command = [sys.executable, *QUESTION, "--requirement", lock]
    asked = subprocess.run(command, capture_output=True, text=True)  # noqa: S603 - our own interpreter and module
    code, text = verdict(asked.stdout, asked.stderr)
    print(f"audit: {text}", file=sys.stderr if code else sys.stdout)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
