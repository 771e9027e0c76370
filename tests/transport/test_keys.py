"""Facts about key files: what is in them, who may read them, what is wrong with them."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zmqdata.config import DispatcherConfig, WorkerConfig
from zmqdata.errors import AlreadyExistsError, DataLossError, FailedPreconditionError, NotFoundError
from zmqdata.keysettings import KeySettings
from zmqdata.transport import keys

KEY = keys.new_key()
TEXT = keys.render(KEY)


def test_a_key_is_in_its_file(tmp_path: Path) -> None:
    """What is written is read again, by its owner alone; folders are made on the way."""
    path = tmp_path / "some" / "where" / "cluster.key"
    keys.save(path, KEY)
    found = keys.load(path)
    assert (found.cluster, found.pair, found.known, found.path) == (KEY.cluster, KEY.pair, KEY.known, str(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [one.name for one in path.parent.iterdir()] == ["cluster.key"]


def test_a_key_file_is_never_overwritten(tmp_path: Path) -> None:
    """Whoever has the key that is there would be locked out."""
    keys.save(tmp_path / "k", KEY)
    with pytest.raises(AlreadyExistsError, match="delete it first"):
        keys.save(tmp_path / "k", keys.new_key())
    assert keys.load(tmp_path / "k").pair == KEY.pair


def test_the_secret_is_not_shown() -> None:
    """Neither a repr nor an error has it, nor any other part of a damaged file."""
    assert KEY.secret not in repr(KEY)
    for text in (TEXT.replace("secret ", "secrets "), TEXT + "junk " + KEY.secret, TEXT.replace("public", "cluster")):
        with pytest.raises(DataLossError) as told:
            keys.parse(text)
        assert KEY.secret not in str(told.value)


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o620, 0o666, 0o601, 0o610])
def test_a_file_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    """The error names the file, its mode and the command that mends it."""
    keys.save(tmp_path / "k", KEY)
    (tmp_path / "k").chmod(mode)
    with pytest.raises(FailedPreconditionError, match=f"mode {mode:04o}.*chmod 600"):
        keys.load(tmp_path / "k")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file to another user")
@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_a_file_of_another_user_is_refused(tmp_path: Path, mode: int) -> None:
    """Whatever its mode, as its owner can change it; the error says whose it has to be."""
    keys.save(tmp_path / "k", KEY)
    (tmp_path / "k").chmod(mode)
    os.chown(tmp_path / "k", 54321, 54321)
    with pytest.raises(FailedPreconditionError, match=r"belongs to user 54321, .*Run `chown 0 .*/k` as root"):
        keys.load(tmp_path / "k")


def test_a_file_that_cannot_be_read_is_told_with_the_remedy(tmp_path: Path) -> None:
    """Who cannot read it, and what to change: its owner, its group, or the pod."""
    keys.save(tmp_path / "k", KEY)
    (tmp_path / "k").chmod(0)
    user = os.geteuid()
    os.seteuid(user or 54321)  # nothing is forbidden to root
    try:
        told = rf"k cannot be read by user {user or 54321} of group {os.getegid()}.*chown.*chmod 440.*`fsGroup`"
        with pytest.raises(PermissionError, match=told):
            keys.load(tmp_path / "k")
    finally:
        os.seteuid(user)


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o440, 0o640])
def test_a_group_may_read_it(tmp_path: Path, mode: int) -> None:
    """As volumes of container platforms are mounted."""
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
        (TEXT + f"cluster {KEY.cluster}\n", "line 9 says a second time"),
        (TEXT + "known nobody " + KEY.public, "line 9 cannot be read"),
        (TEXT + "known client", "line 9 cannot be read"),
        (TEXT + f"known client {KEY.public} two names", "line 9 cannot be read"),
        (TEXT + "known client short", "line 9 cannot be read"),
        (TEXT.removesuffix("end\n"), "its last line, `end`, is missing"),
        (TEXT.replace(KEY.secret, "%" * 40), "line 5 cannot be read|do not belong together"),
    ],
)
def test_what_is_wrong_is_told(text: str, reason: str) -> None:
    """By the number of the line."""
    with pytest.raises(DataLossError, match=reason):
        keys.parse(text, "some.key")


@given(st.text() | st.lists(st.sampled_from([*TEXT.split("\n"), "known", KEY.public, "#"])).map("\n".join))
def test_any_text_is_a_key_or_damaged(text: str) -> None:
    """There is no other error."""
    with contextlib.suppress(DataLossError):
        keys.parse(text)


@pytest.mark.parametrize("key", keys.new_roles().values(), ids=keys.ROLES)
def test_a_key_that_is_cut_is_no_key(key: keys.Key) -> None:
    """Wherever that is, at the end of a line, too: as whole it would let in fewer than its owner wants."""
    text = keys.render(key)
    for length in range(len(text) - 1):
        with pytest.raises(DataLossError):
            keys.parse(text[:length])


@given(st.data())
def test_a_changed_key_is_noticed(data: st.DataObject) -> None:
    """A single other character in the pair is an error, never another key."""
    start = TEXT.index("public") + len("public ")
    place = data.draw(st.integers(start, start + 39) | st.integers(TEXT.index(KEY.secret), TEXT.index(KEY.secret) + 39))
    other = data.draw(st.characters(min_codepoint=33, max_codepoint=126).filter(lambda one: one != TEXT[place]))
    changed = TEXT[:place] + other + TEXT[place + 1 :]
    try:
        found = keys.parse(changed)
    except DataLossError:
        return
    # Some bits of a secret do not count: it is the same key written in another way.
    assert found.public == KEY.public


def test_who_is_known_has_a_key() -> None:
    """Forty characters of which five stand for more than four bytes are none, and no socket would take them."""
    with pytest.raises(DataLossError, match="line 7 cannot be read"):
        keys.parse(TEXT.replace(f"known all {KEY.public}", f"known all {'#' * 40}"))


def test_what_is_no_key_file_is_not_read_whole(tmp_path: Path) -> None:
    """A file of any size costs no more than a megabyte."""
    path = tmp_path / "big"
    path.touch(mode=0o600)
    os.truncate(path, 1 << 40)
    with pytest.raises(DataLossError, match="more than 1048576 bytes"):
        keys.load(path)


# --- which one is used


def test_a_key_is_made_when_it_is_needed_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the user's folder for configuration, once."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert keys.own_key() == keys.own_key()
    assert (tmp_path / "zmqdata" / "cluster.key").exists()


def test_a_folder_that_is_none_of_the_users_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative XDG_CONFIG_HOME means nothing; then the home folder counts."""
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert keys.default_path() == tmp_path / ".config" / "zmqdata" / "cluster.key"


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the two ways to name another file."""
    (tmp_path / "zmqdata").write_text("a file")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with pytest.raises(OSError, match=r"cannot make the key file .*--key-file or ZMQDATA_KEY_FILE"):
        keys.own_key()


def test_settings_choose_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is named, the user's own, or none."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    keys.save(tmp_path / "k", KEY)
    named = keys.key_for(KeySettings(str(tmp_path / "k")))
    assert named is not None
    assert named.pair == KEY.pair
    assert keys.key_for(DispatcherConfig(insecure=True)) is None
    with pytest.raises(NotFoundError, match="zmqdata keygen"):
        keys.key_for(KeySettings(str(tmp_path / "missing")))


def test_to_listen_beyond_the_machine_takes_a_key_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One made just now would let in nobody else; the error names the command, and the way without."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with pytest.raises(FailedPreconditionError, match=r"zmqdata keygen.*--insecure"):
        keys.key_for(DispatcherConfig(), is_open=True)
    assert keys.key_for(DispatcherConfig(insecure=True), is_open=True) is None
    made = keys.own_key()
    assert keys.key_for(DispatcherConfig(), is_open=True) == made


def test_a_process_shows_the_key_that_it_was_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a call, which wins, by the environment, or else its user's."""
    for name in ("one", "two"):
        keys.save(tmp_path / name, keys.new_key())
    monkeypatch.setenv("ZMQDATA_KEY_FILE", str(tmp_path / "one"))
    monkeypatch.setattr(keys, "_chosen", None)
    assert keys.shown_key() == keys.load(tmp_path / "one")
    keys.use_key_file(tmp_path / "two")
    assert keys.shown_key() == keys.load(tmp_path / "two")
    keys.use_key_file(insecure=True)
    assert keys.shown_key() is None
    keys.use_key_file()
    assert keys.shown_key() == keys.load(tmp_path / "one")
    monkeypatch.setenv("ZMQDATA_INSECURE", "1")
    monkeypatch.delenv("ZMQDATA_KEY_FILE")
    assert keys.shown_key() is None
    with pytest.raises(NotFoundError):
        keys.use_key_file(tmp_path / "three")


CONFIGS: list[Callable[..., KeySettings | DispatcherConfig | WorkerConfig]] = [
    KeySettings,
    DispatcherConfig,
    partial(WorkerConfig, "127.0.0.1:1"),
]
CONTRADICTION = "`key_file` .--key-file. and `insecure` .--insecure. contradict each other: leave out `insecure`"


@pytest.mark.parametrize("make", CONFIGS)
def test_a_key_file_and_none_contradict_each_other(make: Callable[..., object]) -> None:
    """To do without one would else win, silently, and open a server to everybody."""
    with pytest.raises(ValueError, match=CONTRADICTION):
        make(key_file="k", insecure=True)
    make(key_file="k", insecure=False)


def test_a_process_cannot_show_a_key_and_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by a call nor by its environment; a call wins over the environment."""
    keys.save(tmp_path / "k", KEY)
    monkeypatch.setattr(keys, "_chosen", None)
    with pytest.raises(ValueError, match=CONTRADICTION):
        keys.use_key_file(tmp_path / "k", insecure=True)
    monkeypatch.setenv("ZMQDATA_INSECURE", "1")
    keys.use_key_file(tmp_path / "k")
    assert keys.shown_key() == keys.load(tmp_path / "k")
    keys.use_key_file()
    monkeypatch.setenv("ZMQDATA_KEY_FILE", str(tmp_path / "k"))
    told = rf"{CONTRADICTION}.*the environment has ZMQDATA_KEY_FILE={tmp_path / 'k'}, ZMQDATA_INSECURE=1"
    with pytest.raises(ValueError, match=told):
        keys.shown_key()


@pytest.mark.parametrize(
    ("explicit", "wanted"),
    [
        ({"key_file": "other"}, ("other", False)),
        ({"insecure": True}, (None, True)),
        ({"insecure": False}, ("k", False)),
        ({"key_file": None}, (None, True)),
        ({"key_file": "other", "insecure": False}, ("other", False)),
    ],
)
def test_what_is_explicit_wins_over_the_environment(
    monkeypatch: pytest.MonkeyPatch, explicit: dict[str, Any], wanted: tuple[str | None, bool]
) -> None:
    """Which has a key file and does without one at once, so that nothing of it could be used alone."""
    monkeypatch.setenv("ZMQDATA_KEY_FILE", "k")
    monkeypatch.setenv("ZMQDATA_INSECURE", "1")
    found = DispatcherConfig.from_environment(**explicit)
    assert (found.key_file, found.insecure) == wanted


# --- roles


def test_each_role_finds_and_lets_in_the_others() -> None:
    """A dispatcher is found by workers and clients, a worker by clients; nobody is let in as what it is not."""
    made = keys.new_roles()
    assert made["worker"].server("dispatcher") == made["dispatcher"].pair[0]
    assert made["client"].server("dispatcher") == made["dispatcher"].pair[0]
    assert made["client"].server("worker") == made["worker"].pair[0]
    holder = made["dispatcher"].holder(made["client"].public)
    assert holder is not None
    assert [role for role in keys.ROLES if holder.may_be(role)] == ["client"]
    assert len({key.cluster for key in made.values()}) == 1
    with pytest.raises(NotFoundError, match="cannot tell who a client is"):
        made["client"].server("client")


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_refused_at_once(tmp_path: Path, make: Callable[[Path, int], None]) -> None:
    """A pipe is not waited for, nor is a folder an error that says nothing of keys."""
    make(tmp_path / "k", 0o600)
    with pytest.raises(FailedPreconditionError, match=r"k is no file, and so no key file. `zmqdata keygen` makes one"):
        keys.load(tmp_path / "k")
