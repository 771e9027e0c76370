"""Tests of key files: their contents, their permissions and their errors."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zmqdata.errors import (
    AlreadyExistsError,
    DataLossError,
    FailedPreconditionError,
    NotFoundError,
    PermissionDeniedError,
)
from zmqdata.transport import keys

KEY = keys.new_key()
TEXT = keys.render(KEY)
HEAD = TEXT.removesuffix("end\n")


def test_a_key_is_in_its_file(tmp_path: Path) -> None:
    """A saved key loads again, is private to its owner, and creates its folders."""
    path = tmp_path / "some" / "where" / "cluster.key"
    keys.save(path, KEY)
    found = keys.load(path)
    assert (found.cluster, found.pair, found.known, found.path) == (
        KEY.cluster,
        KEY.pair,
        KEY.known,
        str(path),
    )
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [one.name for one in path.parent.iterdir()] == ["cluster.key"]


def test_a_key_file_is_never_overwritten(tmp_path: Path) -> None:
    """A key file is never overwritten, as that would lock out its key's users."""
    keys.save(tmp_path / "k", KEY)
    with pytest.raises(AlreadyExistsError, match="delete it first"):
        keys.save(tmp_path / "k", keys.new_key())
    assert keys.load(tmp_path / "k").pair == KEY.pair


def test_the_secret_is_not_shown() -> None:
    """Neither a repr nor an error shows any part of the secret or of a damaged file."""
    assert KEY.secret not in repr(KEY)
    for text in (
        TEXT.replace("secret ", "secrets "),
        TEXT + "junk " + KEY.secret,
        TEXT.replace("public", "cluster"),
    ):
        with pytest.raises(DataLossError) as told:
            keys.parse(text)
        assert KEY.secret not in str(told.value)


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o620, 0o666, 0o601, 0o610])
def test_a_file_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    """The error about a readable key file has its path, mode and repair command."""
    keys.save(tmp_path / "k", KEY)
    (tmp_path / "k").chmod(mode)
    with pytest.raises(FailedPreconditionError, match=f"mode {mode:04o}.*chmod 600"):
        keys.load(tmp_path / "k")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file to another user")
@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_a_file_of_another_user_is_refused(tmp_path: Path, mode: int) -> None:
    """A key file of another user is rejected whatever its mode, as its owner can change
    it. The error names the required owner.
    """
    keys.save(tmp_path / "k", KEY)
    (tmp_path / "k").chmod(mode)
    os.chown(tmp_path / "k", 54321, 54321)
    with pytest.raises(
        FailedPreconditionError, match=r"belongs to user 54321, .*Run `chown 0 .*/k` as root"
    ):
        keys.load(tmp_path / "k")


def test_a_file_that_cannot_be_read_is_told_with_the_remedy(tmp_path: Path) -> None:
    """The error about an unreadable key file says whether to change owner, group or
    pod.
    """
    keys.save(tmp_path / "k", KEY)
    (tmp_path / "k").chmod(0)
    user = os.geteuid()
    os.seteuid(user or 54321)  # root can read every file
    try:
        told = rf"k cannot be read by user {user or 54321} of group {os.getegid()}.*chown.*chmod 440.*`fsGroup`"
        with pytest.raises(PermissionError, match=told):
            keys.load(tmp_path / "k")
    finally:
        os.seteuid(user)


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o440, 0o640])
def test_a_group_may_read_it(tmp_path: Path, mode: int) -> None:
    """A group may read the key file, as container platforms mount volumes this way."""
    keys.save(tmp_path / "k", KEY)
    (tmp_path / "k").chmod(mode)
    assert keys.load(tmp_path / "k").pair == KEY.pair


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it does not begin with"),
        ("zmqdata-key 2\n", "it does not begin with"),
        (TEXT.replace("cluster ", "#"), "`cluster` is missing"),
        (TEXT.replace(KEY.secret, KEY.secret[:-1]), "line 5 cannot be read"),
        (TEXT.replace(KEY.secret, keys.new_key().secret), "do not belong together"),
        (HEAD + f"cluster {KEY.cluster}\n", "line 8 repeats"),
        (HEAD + "known nobody " + KEY.public, "line 8 cannot be read"),
        (HEAD + "known client", "line 8 cannot be read"),
        (HEAD + f"known client {KEY.public} two names", "line 8 cannot be read"),
        (HEAD + "known client short", "line 8 cannot be read"),
        (TEXT + f"known client {KEY.public}", "line 9 comes after `end`"),
        (HEAD, "its last line, `end`, is missing"),
        (TEXT.replace(KEY.secret, "%" * 40), "line 5 cannot be read|do not belong together"),
    ],
)
def test_what_is_wrong_is_told(text: str, reason: str) -> None:
    """An error about a key file gives the line number."""
    with pytest.raises(DataLossError, match=reason):
        keys.parse(text, "some.key")


@given(
    st.text()
    | st.lists(st.sampled_from([*TEXT.split("\n"), "known", KEY.public, "#"])).map("\n".join)
)
def test_any_text_is_a_key_or_damaged(text: str) -> None:
    """Any text parses as a key or raises the documented error."""
    with contextlib.suppress(DataLossError):
        keys.parse(text)


@pytest.mark.parametrize("key", keys.new_roles().values(), ids=keys.ROLES)
def test_a_key_that_is_cut_is_no_key(key: keys.Key) -> None:
    """A truncated key file is rejected, even when cut at the end of a line. Accepting
    it as complete would revoke the keys that follow.
    """
    text = keys.render(key)
    for length in range(len(text) - 1):
        with pytest.raises(DataLossError):
            keys.parse(text[:length])


@given(st.data())
def test_a_changed_key_is_noticed(data: st.DataObject) -> None:
    """Changing a character of the key pair raises an error, never another key."""
    start = TEXT.index("public") + len("public ")
    place = data.draw(
        st.integers(start, start + 39)
        | st.integers(TEXT.index(KEY.secret), TEXT.index(KEY.secret) + 39)
    )
    other = data.draw(
        st.characters(min_codepoint=33, max_codepoint=126).filter(lambda one: one != TEXT[place])
    )
    changed = TEXT[:place] + other + TEXT[place + 1 :]
    try:
        found = keys.parse(changed)
    except DataLossError:
        return
    # Some bits of a secret are unused, so another spelling can be the same key.
    assert found.public == KEY.public


def test_who_is_known_has_a_key() -> None:
    """A known peer's key of forty characters is rejected if it is not valid Z85. No
    socket would accept it.
    """
    with pytest.raises(DataLossError, match="line 7 cannot be read"):
        keys.parse(TEXT.replace(f"known all {KEY.public}", f"known all {'#' * 40}"))


def test_what_is_no_key_file_is_not_read_whole(tmp_path: Path) -> None:
    """The loader reads at most a megabyte of a file that is not a key file."""
    path = tmp_path / "big"
    path.touch(mode=0o600)
    os.truncate(path, 1 << 40)
    with pytest.raises(DataLossError, match="more than 1048576 bytes"):
        keys.load(path)


# --- roles


def test_each_role_finds_and_lets_in_the_others() -> None:
    """Each role finds and accepts the others: workers and clients find the dispatcher,
    and clients find workers. A server accepts no key in a different role.
    """
    made = keys.new_roles()
    assert made["worker"].server("dispatcher") == made["dispatcher"].pair[0]
    assert made["client"].server("dispatcher") == made["dispatcher"].pair[0]
    assert made["client"].server("worker") == made["worker"].pair[0]
    holder = made["dispatcher"].holder(made["client"].public)
    assert holder is not None
    assert [role for role in keys.ROLES if holder.may_be(role)] == ["client"]
    assert len({key.cluster for key in made.values()}) == 1
    with pytest.raises(
        PermissionDeniedError, match=r"cannot identify a client.*file of its own role"
    ):
        made["client"].server("client")


def test_a_link_to_nothing_is_told(tmp_path: Path) -> None:
    """A dangling link is reported as such, as it can be neither opened nor created."""
    (tmp_path / "k").symlink_to(tmp_path / "gone")
    with pytest.raises(NotFoundError, match=r"no key file .*k; that is a link to .*gone\."):
        keys.load(tmp_path / "k")
    with pytest.raises(
        AlreadyExistsError, match=r"k is a link to .*gone, but that file does not exist"
    ):
        keys.save(tmp_path / "k", KEY)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_refused_at_once(
    tmp_path: Path, make: Callable[[Path, int], None]
) -> None:
    """A pipe is rejected without blocking, and a folder with an error about keys."""
    make(tmp_path / "k", 0o600)
    with pytest.raises(
        FailedPreconditionError,
        match=r"k is not a regular file, and so no key file. `zmqdata keygen` makes one",
    ):
        keys.load(tmp_path / "k")


def knowing(*roles: str) -> keys.Key:
    """Return a key with a line per role, where `own` is the dispatcher's own key."""
    known = [keys.Known(role, keys.new_key().public) for role in roles if role != "own"]
    own = [keys.Known("dispatcher", KEY.public)] if "own" in roles else []
    return keys.Key(KEY.cluster, KEY.public, KEY.secret, (*known, *own), "some.key")


@pytest.mark.parametrize(
    "roles",
    [
        ("all",),
        ("worker", "client"),
        ("worker",),
        ("client", "client"),
        ("dispatcher", "worker", "client"),
        ("own", "worker"),
        ("dispatcher", "all"),
    ],
)
def test_a_dispatcher_takes_a_file_that_lets_in_its_peers(roles: tuple[str, ...]) -> None:
    """A dispatcher accepts a file without roles, its own file, and its own file after
    all workers or all clients were revoked.
    """
    knowing(*roles).check_dispatcher()


@pytest.mark.parametrize(
    ("roles", "seems"),
    [
        (("dispatcher", "worker"), "seems to be that of a client: it knows dispatcher and worker"),
        (
            ("dispatcher", "client", "client"),
            "seems to be that of a worker: it knows client and dispatcher",
        ),
        (("dispatcher",), "seems to be that of a worker or client: it knows dispatcher"),
        ((), "admits no key"),
        (("own",), "admits no key"),
    ],
)
def test_a_dispatcher_refuses_the_file_of_another_role(roles: tuple[str, ...], seems: str) -> None:
    """The error about the wrong role's file names that role and the file to use."""
    with pytest.raises(
        PermissionDeniedError,
        match=rf"^Key file some.key {seems}.*name dispatcher.key with --key-file",
    ):
        knowing(*roles).check_dispatcher()
