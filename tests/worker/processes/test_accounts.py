"""Facts about the user whose rights the processes of a worker have."""

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
    """Both give the same account, with home and all groups; its own group is among
    them.
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
    """In containers most numbers have none: the group has the same number, and the home
    is the root folder.
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
    """The text says what came and what to do; -1 would mean "leave it as it is" to the
    system.
    """
    with pytest.raises(ValueError, match=told):
        account_of(text)


def test_only_root_gives_its_rights_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others are told to start the worker as root or as that user; that user itself has
    nothing to give away.
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
    """Rights and environment are those of whoever started us."""
    assert rights_of(None) == {}
    assert environment_of(None, {"HOME": "/x", "MAIL": "y"}) == {"HOME": "/x", "MAIL": "y"}


def test_all_groups_are_replaced() -> None:
    """User, group and further groups are those of the account; the list is never empty,
    so none of ours is left.
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
    """What was stricter stays so."""
    before = os.umask(0o027)
    try:
        assert rights_of(SOMEBODY)["umask"] == 0o027
    finally:
        os.umask(before)


def test_folders_of_root_are_not_named() -> None:
    """Libraries find caches and settings by the home of the account; everything else is
    as it was.
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
    """The text names the interpreter and the capabilities, whatever the system
    refused.
    """
    monkeypatch.setattr(accounts, "check_root", lambda account: None)
    monkeypatch.setattr(accounts.sys, "executable", "/nowhere/python")
    with pytest.raises(
        PermissionError,
        match=r"as 'somebody' \(.*\)\. /nowhere/python must.*SETUID, SETGID and KILL",
    ):
        check_account(SOMEBODY, None)


def test_a_process_looks_at_its_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache folder is made if it can be; one that cannot be written to is named."""
    cache = tmp_path / "deep" / "cache"
    probe(str(cache))
    assert cache.is_dir()
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(PermissionError, match=f"{cache} cannot be made or written to"):
        probe(str(cache))
