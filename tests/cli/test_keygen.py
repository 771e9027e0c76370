"""Facts about the command that makes key files."""

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
    """In the user's folder; the command says where it is and what to do with it, and
    nothing secret.
    """
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert main(["keygen"]) == 0
    path = tmp_path / "zmqdata" / "cluster.key"
    key = keychoice.own_key()
    assert key == keys.load(path)
    said = capsys.readouterr().out
    assert said.startswith(f"{path}\nCopy it")
    assert key.secret not in said


def test_a_key_is_made_where_it_is_wanted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """But not in place of another one."""
    path = tmp_path / "some.key"
    assert main(["keygen", "--key-file", str(path)]) == 0
    assert [one.role for one in keys.load(path).known] == ["all"]
    assert main(["keygen", "--key-file", str(path)]) == 2
    assert "There is a key file" in capsys.readouterr().err


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
    """An empty variable in a script puts no key into the working folder."""
    monkeypatch.chdir(tmp_path)
    assert main(["keygen", flag, path]) == 2
    assert f"`{flag}` must name a " in (told := capsys.readouterr().err)
    assert f"got {path!r}: is a variable empty?" in told
    assert not [*tmp_path.iterdir()]


def test_each_role_may_have_a_key_of_its_own(tmp_path: Path) -> None:
    """Three files of one cluster."""
    assert main(["keygen", "--roles", str(tmp_path / "keys")]) == 0
    made = {role: keys.load(tmp_path / "keys" / f"{role}.key") for role in keys.ROLES}
    assert len({key.cluster for key in made.values()}) == 1
    assert {one.role for one in made["worker"].known} == {"dispatcher", "client"}


@pytest.mark.parametrize("role", keys.ROLES)
def test_keys_of_roles_are_made_all_or_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], role: str
) -> None:
    """Where one of them is there already, the others would be of another cluster."""
    keys.save(tmp_path / f"{role}.key", keys.new_key())
    assert main(["keygen", "--roles", str(tmp_path)]) == 2
    assert f"{role}.key already" in capsys.readouterr().err
    assert [one.name for one in tmp_path.iterdir()] == [f"{role}.key"]


def test_who_has_no_home_may_name_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As users in containers who are a number only; the folder for configuration may
    have any name.
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
    """Whoever has tried a cluster on this machine has one: it is to be copied, not
    deleted.
    """
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    keychoice.own_key()
    assert main(["keygen"]) == 2
    assert (
        f"{tmp_path / 'zmqdata' / 'cluster.key'} already, and it is left" in capsys.readouterr().err
    )


def test_a_client_is_added_and_revoked_by_its_line(tmp_path: Path) -> None:
    """Dispatcher and worker know it by name; without that line they do not."""
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
    """Each of several runs writes both servers' files anew, and none forgets what
    another one has added.
    """
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
    """Mode, and owner where root adds it, are what they were: in a container it is the
    group that reads.
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
    """In a line, with exit code 2, and nothing is written."""
    monkeypatch.chdir(tmp_path)
    assert main(["keygen", "--roles", "r"]) == 0
    before = sorted(tmp_path.rglob("*"))
    capsys.readouterr()
    assert main(["keygen", *arguments]) == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert any(part in said for part in error.split("|"))
    assert sorted(tmp_path.rglob("*")) == before
