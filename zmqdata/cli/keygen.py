"""The command that makes key files."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from zmqdata.cli.options import Arguments, guarded, say
from zmqdata.errors import AlreadyExistsError, InvalidArgumentError
from zmqdata.files.paths import local_name
from zmqdata.transport import keychoice, keys

ADVICE = (
    "Copy it, and keep it like a password: a holder of it can run code on the workers of the "
    "cluster."
)


def keygen_main(arguments: Sequence[str], program: str = "zmqdata keygen") -> int:
    """Create the key of a cluster, or a key for each role, or a key for another client;
    return the exit code.
    """
    parser = Arguments(
        prog=program,
        description=(
            "Creates the key file of a cluster, which all its processes share: each user keeps a "
            "copy in the configuration folder, or at the path in ZMQDATA_KEY_FILE."
        ),
    )
    parser.add_argument(
        "--key-file",
        metavar="FILE",
        help=(
            "path to write (default: zmqdata/cluster.key in the configuration folder, "
            "$XDG_CONFIG_HOME or ~/.config); an existing key is left as it is, and its path is "
            "printed"
        ),
    )
    parser.add_argument(
        "--roles",
        metavar="DIR",
        help=(
            "create dispatcher.key, worker.key and client.key in this folder instead; each permits "
            "its holder only what that role needs"
        ),
    )
    parser.add_argument(
        "--client",
        metavar="NAME",
        help=(
            "with the --roles folder of a cluster: create NAME.key for another client, and let it "
            "in; to revoke it, delete its line in dispatcher.key and worker.key"
        ),
    )
    chosen = parser.parse_args(arguments)
    return guarded(program, lambda: _make(chosen.key_file, chosen.roles, chosen.client))


def _make(key_file: str | None, roles: str | None, client: str | None) -> int:
    for flag, what, given in (("--key-file", "file", key_file), ("--roles", "folder", roles)):
        if given == "" or (what == "file" and given is not None and not Path(given).name):
            raise InvalidArgumentError(
                f"`{flag}` must name a {what}, got {given!r}: is a variable empty? Leave it out, "
                "or give a path"
            )
    key_file, roles = _local("--key-file", key_file), _local("--roles", roles)
    if roles is None:
        if client is not None:
            raise InvalidArgumentError(
                "`--client` adds to a cluster with roles: name its folder with --roles DIR"
            )
        path = Path(key_file) if key_file is not None else keychoice.default_path()
        with contextlib.suppress(AlreadyExistsError):
            keys.save(path, keys.new_key())
        keys.load(path)
        return _tell([path])
    if key_file is not None:
        raise InvalidArgumentError(
            "`--key-file` and `--roles` exclude each other: they write different files; give one "
            "of them"
        )
    folder = Path(roles)
    return _tell(_add_client(folder, client) if client is not None else _make_roles(folder))


def _tell(paths: list[Path]) -> int:
    """Print the paths on standard output, and what to do with them on standard
    error.
    """
    say("\n".join(map(str, paths)))
    print(ADVICE, file=sys.stderr, flush=True)
    return 0


def _local(flag: str, given: str | None) -> str | None:
    """Return a path after checking that it is on this machine."""
    if given is None:
        return None
    return local_name(f"`{flag}`", given, "A key is kept in a private local file")


def _make_roles(folder: Path) -> list[Path]:
    made = {folder / f"{role}.key": key for role, key in keys.new_roles().items()}
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _alone(folder):
        if all(path.exists() for path in made):
            clusters = {keys.load(path).cluster for path in made}
            if len(clusters) == 1:
                return list(made)
        for path in made:
            keys.check_absent(path)  # all three first, so that no folder mixes two clusters
        for path, key in made.items():
            keys.save(path, key)
    return list(made)


def _add_client(folder: Path, name: str) -> list[Path]:
    """Create a key for another client, and add it to the servers' key files."""
    keys.load(folder / "dispatcher.key")  # a missing file is reported before the lock is taken
    if not keys.is_name(name) or name in keys.ROLES:
        raise InvalidArgumentError(
            f"`--client` must be a word of at most 100 characters other than a role, got {name!r}"
        )
    path = folder / f"{name}.key"
    with _alone(folder):
        servers = {role: keys.load(folder / f"{role}.key") for role in ("dispatcher", "worker")}
        if path.exists():
            public = keys.load(path).public
            if all(server.holder(public) for server in servers.values()):
                return [path]
        keys.check_absent(path)
        key = keys.new_client(servers["dispatcher"], servers["worker"])
        for role, server in servers.items():
            keys.replace(
                folder / f"{role}.key",
                keys.with_known(server, keys.Known("client", key.public, name)),
            )
        keys.save(path, key)  # last: the servers already admit its holder
    return [path]


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Lock the folder, since concurrent runs would write files without each other's
    lines.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):  # some network file systems cannot lock folders
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
