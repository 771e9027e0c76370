"""The account that runs a worker's pipelines, and the check that it suffices.

A supervisor that runs as root gives up its rights between fork and exec, before Python
runs in the child. Everything that the child makes (sockets, caches, files) therefore
belongs to that account. The child inherits open descriptors of everything that it
shares with its supervisor. This module imports only the standard library, except in
``probe``, which runs in a process of its own.
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
"""Variables that name folders of the supervisor's user. Without them libraries derive
these folders from the home.
"""
PROBE = (
    "import sys; from zmqdata.worker import child; child.load(); "
    "from zmqdata.worker.processes.accounts import probe; probe(sys.argv[1])"
)
"""Import everything that a child imports, and run ``probe``. This is text and not a
module, because the command line itself imports nothing that opens pipelines.
"""
ALTERNATIVE = "or start the worker as that user, without --user"


@dataclass(frozen=True)
class Account:
    """A user of this machine."""

    name: str
    """name of the user, or its number as text if it has no name."""
    user: int
    """number of the user."""
    group: int
    """number of the user's primary group."""
    groups: tuple[int, ...]
    """numbers of all its groups, ``group`` included."""
    home: str
    """home folder of the user."""


def account_of(text: str) -> Account:
    """Return the user with this name or number. A number needs no entry among the
    machine's users.

    Args:
        text: the value of ``--user``.

    Raises:
        ValueError: the machine has no such user, or the user is root, whose rights
            protect nothing.

    Example:
        >>> account_of("54321")
        Account(name='54321', user=54321, group=54321, groups=(54321,), home='/')
    """
    try:
        entry = pwd.getpwuid(int(text)) if text.isascii() and text.isdigit() else pwd.getpwnam(text)
    except (KeyError, OverflowError):
        if not (text.isascii() and text.isdigit()) or int(text) >= 2**32 - 1:
            raise ValueError(
                f"`user`: there is no user {text!r} on this machine; make one "
                f"(useradd --system {text}), or give the number of a user, which "
                "needs no name"
            ) from None
        return Account(text, int(text), int(text), (int(text),), HOMELESS)
    if entry.pw_uid == 0:
        raise ValueError(
            f"`user`: {text!r} is root, who may do anything; name another user, or leave it out"
        )
    groups = tuple(sorted({entry.pw_gid, *os.getgrouplist(entry.pw_name, entry.pw_gid)}))
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid, groups, entry.pw_dir or HOMELESS)


def is_ours(account: Account) -> bool:
    """Return whether this process already has the rights of the account, so that it
    need not give up any.
    """
    return (os.getuid(), os.geteuid()) == (account.user, account.user)


def check_root(account: Account) -> None:
    """Refuse an account whose rights this process cannot take.

    Raises:
        PermissionError: this process runs neither as root nor as that user.
    """
    if os.geteuid() != 0 and not is_ours(account):
        raise PermissionError(
            f"`user`: only root can run pipelines as {account.name!r}, and this is "
            f"user {os.geteuid()}; start the worker as root, {ALTERNATIVE}"
        )


def rights_of(account: Account | None) -> dict[str, Any]:
    """Return the arguments of ``subprocess.Popen`` that give a process the rights of an
    account; None keeps the rights of this process.

    The umask lets no other user write the files of that process, whatever umask the
    supervisor started with.
    """
    if account is None or is_ours(account):
        return {}
    mask = os.umask(OTHERS_WRITE)
    os.umask(mask)
    # The list includes the primary group and so is never empty. Some versions of Python
    # read an empty list as "keep the groups".
    groups = list(account.groups)
    return {
        "user": account.user,
        "group": account.group,
        "extra_groups": groups,
        "umask": mask | OTHERS_WRITE,
    }


def environment_of(account: Account | None, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a process with the rights of an account: it names the
    account's home, and no folder of the supervisor's user.

    Example:
        >>> caller = {"HOME": "/root", "XDG_CACHE_HOME": "/root/.cache", "LANG": "C"}
        >>> environment_of(account_of("54321"), caller)
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
    """Run ``probe`` in a process with the rights of an account, to check that a child
    can work.

    Args:
        account: the account whose rights the process takes.
        cache_folder: folder for parts of pipelines; None means the default.

    Raises:
        PermissionError: the process cannot be started, cannot be signalled by the
            supervisor, or lacks access to something it needs. The message names the
            cause and the remedy.
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
            os.kill(started.pid, 0)  # else the supervisor could not end it
            said = started.communicate()[1].decode(errors="replace").strip()
    except OSError as error:
        raise PermissionError(
            f"`user`: no process can be run here as {account.name!r} "
            f"({error.strerror}). {sys.executable} must be in folders that every user "
            "may enter, and root in a container needs the capabilities SETUID, "
            f"SETGID and KILL; give it these, {ALTERNATIVE}"
        ) from None
    if started.returncode:
        raise PermissionError(
            f"`user`: a process of {account.name!r} cannot work here: "
            f"{said.splitlines()[-1] if said else 'it died'}. That user needs access "
            "to Python, zmqdata, the temporary folder and the cache of pipelines; "
            "grant it"
        )


def probe(cache_folder: str) -> None:
    """Check that a child with the rights of this process can use the temporary folder
    and the cache.

    Args:
        cache_folder: folder for parts of pipelines; ``""`` means the default.

    Raises:
        OSError: a folder cannot be made or written to.
    """
    from zmqdata.transport.folders import make_own, make_private, user_folder

    user_folder()
    if cache_folder:
        with contextlib.suppress(OSError):
            make_private(Path(cache_folder))
        if not os.access(cache_folder, os.W_OK | os.X_OK):
            raise PermissionError(f"{cache_folder} cannot be made or written to")
        make_own(Path(cache_folder))
