"""Tests of the user account whose rights the worker's processes have."""

from __future__ import annotations

import os
import pwd
from dataclasses import replace
from pathlib import Path

import pytest

from zmqdata.worker.processes import accounts
from zmqdata.worker.processes.accounts import (
    Account,
    account_of,
    check_account,
    check_root,
    environment_of,
    is_ours,
    probe,
    rights_of,
)

SOMEBODY = Account("somebody", 54321, 54322, (54322, 54323), "/home/somebody")
OURS = Account("me", os.geteuid(), os.getegid(), (os.getegid(),), "/")


def test_a_user_is_known_by_name_and_by_number() -> None:
    """A user's name and number give the same account, with its home and all of its
    groups, its own group included.
    """
    entry = next(one for one in pwd.getpwall() if one.pw_uid)
    found = account_of(entry.pw_name)
    assert found == account_of(str(entry.pw_uid))
    assert (found.user, found.group, found.home) == (
        entry.pw_uid,
        entry.pw_gid,
        entry.pw_dir or "/",
    )
    assert found.group in found.groups


def test_a_number_needs_no_name() -> None:
    """A number without a name is accepted, as most numbers in containers have none. The
    group gets the same number, and the home is the root folder.
    """
    assert account_of("54321") == Account("54321", 54321, 54321, (54321,), "/")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("no-such-user", "there is no user 'no-such-user' on this machine; make one"),
        ("-1", "there is no user '-1'"),
        ("4294967295", "there is no user '4294967295'"),
        ("9" * 30, "there is no user '999"),
        ("root", "'root' is root, who may do anything"),
        ("0", "'0' is root"),
    ],
)
def test_who_is_nobody_or_root_is_refused(text: str, told: str) -> None:
    """The error shows the refused value and the remedy. The system would read -1 as
    "leave it unchanged".
    """
    with pytest.raises(ValueError, match=told):
        account_of(text)


def test_only_root_gives_its_rights_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other users are told to start the worker as root or as the requested user. The
    requested user itself has no rights to give away.
    """
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    with pytest.raises(
        PermissionError,
        match="'somebody', and this is user 1000; start the worker as root, or start",
    ):
        check_account(SOMEBODY, None)
    mine = replace(SOMEBODY, user=1000)
    check_account(mine, None)
    assert is_ours(mine)
    assert rights_of(mine) == {}
    assert environment_of(mine, {"HOME": "/x"}) == {"HOME": "/x"}
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    check_root(SOMEBODY)


def test_without_a_user_nothing_changes() -> None:
    """Without a user, the child keeps the rights and the environment of the process
    that starts it.
    """
    assert rights_of(None) == {}
    assert environment_of(None, {"HOME": "/x", "MAIL": "y"}) == {"HOME": "/x", "MAIL": "y"}


def test_all_groups_are_replaced() -> None:
    """User, group and supplementary groups become those of the account. The list is
    never empty, which removes all groups of the supervisor.
    """
    before = os.umask(0)
    try:
        rights = rights_of(SOMEBODY)
        assert os.umask(0) == 0
    finally:
        os.umask(before)
    assert rights == {"user": 54321, "group": 54322, "extra_groups": [54322, 54323], "umask": 0o002}
    assert account_of("54321").groups


def test_the_umask_is_kept_but_for_others() -> None:
    """The umask of the child also denies writing to other users, and keeps every
    stricter bit.
    """
    before = os.umask(0o027)
    try:
        assert rights_of(SOMEBODY)["umask"] == 0o027
    finally:
        os.umask(before)


def test_folders_of_root_are_not_named() -> None:
    """The environment names the home of the account, in which libraries find caches and
    settings. Everything else stays unchanged.
    """
    before = {
        "HOME": "/root",
        "USER": "root",
        "XDG_RUNTIME_DIR": "/run/user/0",
        "XDG_CONFIG_HOME": "/root/c",
        "A": "b",
    }
    after = {"A": "b", "HOME": "/home/somebody", "USER": "somebody", "LOGNAME": "somebody"}
    assert environment_of(SOMEBODY, before) == after


def test_a_process_that_cannot_be_started_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the interpreter and the capabilities, whatever reason the system
    gives.
    """
    monkeypatch.setattr(accounts, "check_root", lambda account: None)
    monkeypatch.setattr(accounts.sys, "executable", "/nowhere/python")
    with pytest.raises(
        PermissionError,
        match=r"as 'somebody' \(.*\)\. /nowhere/python must.*SETUID, SETGID and KILL",
    ):
        check_account(SOMEBODY, None)


def test_a_process_looks_at_its_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process creates its cache folder if it can, and reports a folder that it cannot
    write to.
    """
    cache = tmp_path / "deep" / "cache"
    probe(str(cache))
    assert cache.is_dir()
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(PermissionError, match=f"{cache} cannot be made or written to"):
        probe(str(cache))
