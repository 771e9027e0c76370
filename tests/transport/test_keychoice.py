"""Tests of the choice of a process's key."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from zmqdata.config.dispatcher import DispatcherConfig
from zmqdata.config.keys import KeySettings
from zmqdata.config.worker import WorkerConfig
from zmqdata.errors import FailedPreconditionError, NotFoundError
from zmqdata.transport import keychoice, keys

KEY = keys.new_key()
CONTRADICTION = "`key_file` .--key-file. and `insecure` .--insecure. contradict each other. Leave out `insecure`"


def test_a_key_is_made_when_it_is_needed_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's key is created once, on first use, in the configuration folder."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert keychoice.own_key() == keychoice.own_key()
    assert (tmp_path / "zmqdata" / "cluster.key").exists()


def test_folders_on_the_way_to_a_key_are_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New folders above a key are private whatever the umask. A user with write access
    to such a folder could replace the key.
    """
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home" / ".config"))
    before = os.umask(0)
    try:
        keychoice.own_key()
    finally:
        os.umask(before)
    for folder in ("home", "home/.config", "home/.config/zmqdata"):
        assert (tmp_path / folder).stat().st_mode & 0o777 == 0o700


def test_a_folder_that_is_none_of_the_users_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative XDG_CONFIG_HOME is ignored, and the home folder is used instead."""
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert keychoice.default_path() == tmp_path / ".config" / "zmqdata" / "cluster.key"


def test_a_home_that_is_relative_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative HOME raises an error with its value and the remedy. Otherwise each
    working folder would get a key of its own.
    """
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("HOME", "relative")
    monkeypatch.chdir(tmp_path)
    for wanting in (keychoice.default_path, keychoice.own_key):
        with pytest.raises(
            FailedPreconditionError,
            match=r"HOME is 'relative', expected an absolute path.*--key-file",
        ):
            wanting()
    assert not [*tmp_path.iterdir()]


def test_a_folder_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error about an unwritable folder names both ways to choose a key file."""
    (tmp_path / "zmqdata").write_text("a file")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with pytest.raises(
        OSError, match=r"cannot create the key file .*--key-file or ZMQDATA_KEY_FILE"
    ):
        keychoice.own_key()


def test_settings_choose_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings select a named key file, the user's own key, or no key."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    keys.save(tmp_path / "k", KEY)
    named = keychoice.key_for(KeySettings(str(tmp_path / "k")))
    assert named is not None
    assert named.pair == KEY.pair
    assert keychoice.key_for(DispatcherConfig(insecure=True)) is None
    with pytest.raises(NotFoundError, match="zmqdata keygen"):
        keychoice.key_for(KeySettings(str(tmp_path / "missing")))


def test_to_listen_beyond_the_machine_takes_a_key_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server open to other machines needs an existing key, as no peer knows a new
    key. The error names the command and the option to run without a key.
    """
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with pytest.raises(FailedPreconditionError, match=r"zmqdata keygen.*--insecure"):
        keychoice.key_for(DispatcherConfig(), is_open=True)
    assert keychoice.key_for(DispatcherConfig(insecure=True), is_open=True) is None
    made = keychoice.own_key()
    assert keychoice.key_for(DispatcherConfig(), is_open=True) == made


def test_a_process_shows_the_key_that_it_was_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process uses the key of its call, its environment or its user, in this
    order.
    """
    for name in ("one", "two"):
        keys.save(tmp_path / name, keys.new_key())
    monkeypatch.setenv("ZMQDATA_KEY_FILE", str(tmp_path / "one"))
    monkeypatch.setattr(keychoice, "_chosen", None)
    assert keychoice.shown_key() == keys.load(tmp_path / "one")
    keychoice.use_key_file(tmp_path / "two")
    assert keychoice.shown_key() == keys.load(tmp_path / "two")
    keychoice.use_key_file(insecure=True)
    assert keychoice.shown_key() is None
    keychoice.use_key_file()
    assert keychoice.shown_key() == keys.load(tmp_path / "one")
    monkeypatch.setenv("ZMQDATA_INSECURE", "1")
    monkeypatch.delenv("ZMQDATA_KEY_FILE")
    assert keychoice.shown_key() is None
    with pytest.raises(NotFoundError):
        keychoice.use_key_file(tmp_path / "three")


def test_what_a_command_was_told_counts_whatever_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--no-insecure` overrides ZMQDATA_INSECURE until the choice is cleared."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("ZMQDATA_INSECURE", "1")
    monkeypatch.setattr(keychoice, "_chosen", None)
    keychoice.show(KeySettings(insecure=False))
    assert keychoice.shown_key() == keychoice.own_key()
    keychoice.use_key_file()
    assert keychoice.shown_key() is None


def test_a_process_cannot_show_a_key_and_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key file together with `insecure` is rejected in a call and in the environment.
    A call overrides the environment.
    """
    keys.save(tmp_path / "k", KEY)
    monkeypatch.setattr(keychoice, "_chosen", None)
    with pytest.raises(ValueError, match=CONTRADICTION):
        keychoice.use_key_file(tmp_path / "k", insecure=True)
    monkeypatch.setenv("ZMQDATA_INSECURE", "1")
    keychoice.use_key_file(tmp_path / "k")
    assert keychoice.shown_key() == keys.load(tmp_path / "k")
    keychoice.use_key_file()
    monkeypatch.setenv("ZMQDATA_KEY_FILE", str(tmp_path / "k"))
    told = rf"{CONTRADICTION}.*the environment has ZMQDATA_KEY_FILE={tmp_path / 'k'}, ZMQDATA_INSECURE=1"
    with pytest.raises(ValueError, match=told):
        keychoice.shown_key()


CONFIGS: list[Callable[..., KeySettings | DispatcherConfig | WorkerConfig]] = [
    KeySettings,
    DispatcherConfig,
    partial(WorkerConfig, "127.0.0.1:1"),
]


@pytest.mark.parametrize("make", CONFIGS)
def test_a_key_file_and_none_contradict_each_other(make: Callable[..., object]) -> None:
    """A key file together with `insecure` is rejected, as `insecure` would silently
    win. That server would accept every peer.
    """
    with pytest.raises(ValueError, match=CONTRADICTION):
        make(key_file="k", insecure=True)
    make(key_file="k", insecure=False)


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
    """An explicit key choice overrides an environment that sets both key file and
    insecure. That environment alone would be invalid.
    """
    monkeypatch.setenv("ZMQDATA_KEY_FILE", "k")
    monkeypatch.setenv("ZMQDATA_INSECURE", "1")
    found = DispatcherConfig.from_environment(**explicit)
    assert (found.key_file, found.insecure) == wanted
