"""Another user's rights for the processes that run pipelines: who that is, and whether
they could work as that user.

A supervisor that is root gives its own rights away between fork and exec, before Python
runs in a child. So all that the child makes (sockets, caches, files) belongs to that
user; what it shares with its supervisor it has inherited open. Standard library only,
but for ``probe``, which runs in a process of its own.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zmqdata.worker.processes.interpreter import PYTHON

HOMELESS = "/"
OTHERS_WRITE = 0o002
OF_ROOT = frozenset(
    {
        "XDG_CACHE_HOME",
        "XDG_CONFIG_HOME",
        "XDG_DATA_HOME",
        "XDG_STATE_HOME",
        "XDG_RUNTIME_DIR",
        "MAIL",
    }
)
"""Variables that name folders of whoever started us; libraries go by the home without
them.
"""
PROBE = "import sys, zmqdata.worker.child; from zmqdata.worker.processes.accounts import probe; probe(sys.argv[1])"
"""Imports all that a child does, and looks. As a text: the command line itself opens no
pipelines, nor what does.
"""
ALTERNATIVE = "or start the worker as that user, without --user"


@dataclass(frozen=True)
class Account:
    """A user of this machine.

    ``groups``: all of them, ``group`` included; ``home``: its folder.
    """

    name: str
    user: int
    group: int
    groups: tuple[int, ...]
    home: str


def account_of(text: str) -> Account:
    """The user of this name, or of this number; a number needs no entry among the users
    of the machine.

    Args:
        text: the value of ``--user``.

    Raises:
        ValueError: there is no such user, or it is root, whose rights are no
            protection.

    Example:
        >>> account_of("54321")
        Account(name='54321', user=54321, group=54321, groups=(54321,), home='/')
    """
    try:
        entry = pwd.getpwuid(int(text)) if text.isascii() and text.isdigit() else pwd.getpwnam(text)
    except (KeyError, OverflowError):
        if not (text.isascii() and text.isdigit()) or int(text) >= 2**32 - 1:
            raise ValueError(
                f"`user`: there is no user {text!r} on this machine; make one (useradd --system "
                f"{text}), or give the "
                "number of a user, which needs no name"
            ) from None
        return Account(text, int(text), int(text), (int(text),), HOMELESS)
    if entry.pw_uid == 0:
        raise ValueError(
            f"`user`: {text!r} is root, who may do anything; name another user, or leave it out"
        )
    groups = tuple(sorted({entry.pw_gid, *os.getgrouplist(entry.pw_name, entry.pw_gid)}))
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid, groups, entry.pw_dir or HOMELESS)


def is_ours(account: Account) -> bool:
    """Whether this process has these rights already, so that there is nothing to give
    away.
    """
    return (os.getuid(), os.geteuid()) == (account.user, account.user)


def check_root(account: Account) -> None:
    """Refuses an account that this process cannot take on.

    Raises:
        PermissionError: we are neither root nor that user.
    """
    if os.geteuid() != 0 and not is_ours(account):
        raise PermissionError(
            f"`user`: only root can run pipelines as {account.name!r}, and this is user "
            f"{os.geteuid()}; start the "
            f"worker as root, {ALTERNATIVE}"
        )


def rights_of(account: Account | None) -> dict[str, Any]:
    """What ``subprocess.Popen`` is told so that a process has the rights of an account;
    None: our own.

    Nobody else may write what it makes, whatever the umask that we were started with.
    """
    if account is None or is_ours(account):
        return {}
    mask = os.umask(OTHERS_WRITE)
    os.umask(mask)
    # A list with the own group in it is never empty: some versions of Python take an
    # empty one for "leave them".
    groups = list(account.groups)
    return {
        "user": account.user,
        "group": account.group,
        "extra_groups": groups,
        "umask": mask | OTHERS_WRITE,
    }


def environment_of(account: Account | None, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process with the rights of an account: its home, and none of
    our own folders.

    Example:
        >>> environment_of(account_of("54321"), {"HOME": "/root", "XDG_CACHE_HOME": "/root/.cache", "LANG": "C"})
        {'LANG': 'C', 'HOME': '/', 'USER': '54321', 'LOGNAME': '54321'}
    """
    if account is None or is_ours(account):
        return dict(environment)
    own = {"HOME": account.home, "USER": account.name, "LOGNAME": account.name}
    return {
        name: value
        for name, value in environment.items()
        if name not in OF_ROOT and name not in own
    } | own


def check_account(account: Account, cache_folder: str | None) -> None:
    """Starts a process with the rights of an account and lets it look whether it could
    work.

    Args:
        account: whose rights.
        cache_folder: where parts of pipelines shall lie; None: the default.

    Raises:
        PermissionError: it cannot be started, or cannot be ended by us, or does not
            find what it needs. The text says what, and what to do.
    """
    check_root(account)
    if is_ours(account):
        return
    try:
        started = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            [*PYTHON, "-c", PROBE, cache_folder or ""],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environment_of(account, os.environ),
            **rights_of(account),
        )
        with started:
            os.kill(started.pid, 0)  # one that cannot be signalled could not be ended
            said = started.communicate()[1].decode(errors="replace").strip()
    except OSError as error:
        raise PermissionError(
            f"`user`: no process can be run here as {account.name!r} ({error.strerror}). "
            f"{sys.executable} must be in "
            "folders that everybody may enter, and root in a container needs the capabilities "
            "SETUID, SETGID and KILL; "
            f"give it these, {ALTERNATIVE}"
        ) from None
    if started.returncode:
        raise PermissionError(
            f"`user`: a process of {account.name!r} cannot work here: "
            f"{said.splitlines()[-1] if said else 'it died'}. "
            "What it needs (Python, zmqdata, the temporary folder, the cache of pipelines) must "
            "be open to that user"
        )


def probe(cache_folder: str) -> None:
    """Looks whether a child could work with the rights of this process: temporary
    folder, cache.

    Args:
        cache_folder: where parts of pipelines shall lie; ``""``: the default.

    Raises:
        OSError: a folder cannot be made, or not be written to.
    """
    from zmqdata.transport.folders import make_private, user_folder

    user_folder()
    if cache_folder:
        with contextlib.suppress(OSError):
            make_private(Path(cache_folder))
        if not os.access(cache_folder, os.W_OK | os.X_OK):
            raise PermissionError(f"{cache_folder} cannot be made or written to")
