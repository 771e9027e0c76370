"""Tests of the command that creates key files."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from zmqdata.cli.commands import main
from zmqdata.transport import keychoice, keys


def test_a_key_is_made_where_processes_look_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command creates the user's key and prints its path and use, but no secret."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert main(["keygen"]) == 0
    path = tmp_path / "zmqdata" / "cluster.key"
    key = keychoice.own_key()
    assert key == keys.load(path)
    said = capsys.readouterr()
    assert said.out == f"{path}\n"
    assert said.err.startswith("Copy it")
    assert key.secret not in said.out + said.err


def test_a_key_is_made_where_it_is_wanted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command creates a key at a given path. An existing key stays, and its path is
    printed as that of a new one.
    """
    path = tmp_path / "some.key"
    assert main(["keygen", "--key-file", str(path)]) == 0
    made = keys.load(path)
    assert [one.role for one in made.known] == ["all"]
    assert main(["keygen", "--key-file", str(path)]) == 0
    assert keys.load(path) == made
    assert capsys.readouterr().out == f"{path}\n" * 2


@pytest.mark.parametrize("content", ["", "not a key\n"])
def test_a_file_that_is_no_key_is_neither_told_nor_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    """An existing file that is no key is an error, and its path is not printed as that
    of a key.
    """
    path = tmp_path / "some.key"
    path.write_text(content)
    path.chmod(0o600)
    assert main(["keygen", "--key-file", str(path)]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "is no whole key file" in told.err
    assert path.read_text() == content


def test_keys_of_roles_and_clients_that_exist_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``--roles`` and ``--client`` print the paths of the keys that exist, and change
    nothing.
    """
    commands = (["--roles", str(tmp_path)], ["--roles", str(tmp_path), "--client", "alice"])
    for command in commands:
        assert main(["keygen", *command]) == 0
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    first = capsys.readouterr().out
    for command in commands:
        assert main(["keygen", *command]) == 0
    assert capsys.readouterr().out == first
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("flag", "path"),
    [("--key-file", ""), ("--key-file", "."), ("--key-file", "/"), ("--roles", "")],
)
def test_a_name_that_is_none_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    flag: str,
    path: str,
) -> None:
    """An empty path, as from an unset variable, creates no key in the work folder."""
    monkeypatch.chdir(tmp_path)
    assert main(["keygen", flag, path]) == 2
    assert f"`{flag}` must name a " in (told := capsys.readouterr().err)
    assert f"got {path!r}: is a variable empty?" in told
    assert not [*tmp_path.iterdir()]


def test_each_role_may_have_a_key_of_its_own(tmp_path: Path) -> None:
    """``keygen --roles`` creates a key file per role, all of a single cluster."""
    assert main(["keygen", "--roles", str(tmp_path / "keys")]) == 0
    made = {role: keys.load(tmp_path / "keys" / f"{role}.key") for role in keys.ROLES}
    assert len({key.cluster for key in made.values()}) == 1
    assert {one.role for one in made["worker"].known} == {"dispatcher", "client"}


@pytest.mark.parametrize("role", keys.ROLES)
def test_keys_of_roles_are_made_all_or_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], role: str
) -> None:
    """If a role's key file exists, the command creates none, as keys would not
    match.
    """
    keys.save(tmp_path / f"{role}.key", keys.new_key())
    assert main(["keygen", "--roles", str(tmp_path)]) == 2
    assert f"{role}.key already" in capsys.readouterr().err
    assert [one.name for one in tmp_path.iterdir()] == [f"{role}.key"]


def test_who_has_no_home_may_name_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without a home may name a file, as users with only a number in containers.
    The configuration folder may have any name.
    """

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    assert main(["keygen", "--key-file", str(tmp_path / "k")]) == 0
    assert main(["keygen"]) == 2
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "100%"))
    assert main(["keygen"]) == 0
    with pytest.raises(SystemExit):
        main(["keygen", "--help"])


def test_a_key_that_is_there_already_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A key that a trial cluster on this machine has created is the one to copy."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    key = keychoice.own_key()
    assert main(["keygen"]) == 0
    assert capsys.readouterr().out == f"{key.path}\n"
    assert keychoice.own_key() == key


def test_a_client_is_added_and_revoked_by_its_line(tmp_path: Path) -> None:
    """Adding a line lets a client in by name, and removing the line revokes it."""
    assert main(["keygen", "--roles", str(tmp_path)]) == 0
    assert main(["keygen", "--roles", str(tmp_path), "--client", "alice"]) == 0
    alice = keys.load(tmp_path / "alice.key")
    for role in ("dispatcher", "worker"):
        path = tmp_path / f"{role}.key"
        server = keys.load(path)
        assert alice.server(role) == server.pair[0]
        assert server.holder(alice.public) == keys.Known("client", alice.public, "alice")
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(line for line in lines if not line.endswith(" alice\n")))
        assert keys.load(path).holder(alice.public) is None
    assert main(["keygen", "--roles", str(tmp_path), "--client", "alice"]) == 2


def test_clients_that_are_added_at_once_are_all_let_in(tmp_path: Path) -> None:
    """Concurrent runs that add clients lose no line of either server's file."""
    assert main(["keygen", "--roles", str(tmp_path)]) == 0
    names = [f"client{number}" for number in range(16)]
    with ThreadPoolExecutor(len(names)) as pool:
        codes = [
            *pool.map(
                lambda name: main(["keygen", "--roles", str(tmp_path), "--client", name]), names
            )
        ]
    assert codes == [0] * len(names)
    wanted = {(name, keys.load(tmp_path / f"{name}.key").public) for name in names}
    for role in ("dispatcher", "worker"):
        known = keys.load(tmp_path / f"{role}.key").known
        assert wanted == {(one.name, one.public) for one in known if one.name}


@pytest.mark.parametrize("mode", [0o600, 0o440])
def test_a_server_can_read_its_file_after_a_client_was_added(tmp_path: Path, mode: int) -> None:
    """Adding a client keeps the file's mode, and its owner if root runs the command. In
    a container the server reads the file through its group.
    """
    assert main(["keygen", "--roles", str(tmp_path)]) == 0
    path = tmp_path / "dispatcher.key"
    path.chmod(mode)
    if os.geteuid() == 0:
        os.chown(path, 0, 54321)
    before = path.stat()
    assert main(["keygen", "--roles", str(tmp_path), "--client", "alice"]) == 0
    after = path.stat()
    assert after.st_ino != before.st_ino
    assert (after.st_mode, after.st_uid, after.st_gid) == (
        before.st_mode,
        before.st_uid,
        before.st_gid,
    )


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--client", "alice"], "name its folder with --roles DIR"),
        (["--roles", "r", "--key-file", "k"], "give one of them"),
        (["--roles", "r", "--client", "worker"], "other than a role, got 'worker'"),
        (["--roles", "r", "--client", "../up"], "must be a word"),
        (["--roles", "r", "--client", "two words"], "must be a word"),
        (
            ["--roles", "missing", "--client", "alice"],
            "There is no key file missing/dispatcher.key",
        ),
        (["--key-file", "/dev/null/k"], "Not a directory|File exists"),
    ],
)
def test_what_cannot_be_made_is_told(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    error: str,
) -> None:
    """A failure is a single line with exit code 2, and no file is written."""
    monkeypatch.chdir(tmp_path)
    assert main(["keygen", "--roles", "r"]) == 0
    before = sorted(tmp_path.rglob("*"))
    capsys.readouterr()
    assert main(["keygen", *arguments]) == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert any(part in said for part in error.split("|"))
    assert sorted(tmp_path.rglob("*")) == before
