"""Key files: the identity of a process of a cluster, and the keys that it admits. No
sockets live here.

A file holds a pair of CURVE keys, and a line for each key that its owner admits, with
the role in which the holder may act. Without roles, all processes of a cluster share a
file, whose key may do everything. The last line marks the file as complete: a file that
is still being copied or written would admit too few keys.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
import struct
from dataclasses import dataclass, field
from dataclasses import replace as replace_fields
from pathlib import Path

import zmq
from zmq.utils import z85

from zmqdata.errors import (
    AlreadyExistsError,
    DataLossError,
    FailedPreconditionError,
    NotFoundError,
    PermissionDeniedError,
)
from zmqdata.machine.descriptors import shortage_explained
from zmqdata.transport.folders import is_trusted, make_private

HEADING = "zmqdata-key 1"
ENDING = "end"
ROLES = ("dispatcher", "worker", "client")
ALL = "all"
MOST_BYTES = 1 << 20
MOST_KNOWN = 10_000
_Z85 = re.compile(r"[0-9a-zA-Z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}")
_CLUSTER = re.compile(r"[0-9a-f]{16}")
_NAME = re.compile(r"[^\s\x00-\x1f\x7f]{1,100}")


@dataclass(frozen=True)
class Known:
    """A key that is admitted."""

    role: str
    """The role in which its holder may act."""
    public: str
    """The public key, 40 characters of Z85."""
    name: str = ""
    """Name of the holder, for people."""

    def may_be(self, role: str) -> bool:
        """Return True if the holder may act in a role."""
        return self.role in (ALL, role)


@dataclass(frozen=True)
class Key:
    """The content of a key file. Its ``repr`` omits the secret."""

    cluster: str
    """Identifier of the cluster, 16 hexadecimal digits; for people, who compare it."""
    public: str
    """The owner's public key, 40 characters of Z85."""
    secret: str = field(repr=False)
    """The owner's secret key, which proves its identity."""
    known: tuple[Known, ...] = field(default=(), repr=False)
    """The keys that the owner admits, and by which it recognizes servers."""
    path: str = ""
    """Path from which the file was read."""

    @property
    def pair(self) -> tuple[bytes, bytes]:
        """Public and secret key, in the form that sockets take."""
        return self.public.encode(), self.secret.encode()

    def server(self, role: str) -> bytes:
        """Return the public key by which a server of a role is recognized.

        Raises:
            PermissionDeniedError: the file has no such key, as it belongs to another
                role.
        """
        for one in self.known:
            if one.may_be(role):
                return one.public.encode()
        others = ", ".join(sorted({one.role for one in self.known})) or "no role"
        raise PermissionDeniedError(
            f"Key file {self.path} has no line `known {role} KEY`, so it cannot identify a {role} "
            f"(it knows {others}). Each process takes the file of its own role: name that file "
            "with --key-file, ZMQDATA_KEY_FILE or use_key_file()."
        )

    def check_dispatcher(self) -> None:
        """Raise an error for a file with which a dispatcher would admit no peer, or
        only the peers of another role.

        A dispatcher's own file lists workers and clients, or either kind after
        all keys of the other were revoked. The files of workers and clients are
        recognized by a line for a dispatcher other than the owner.

        Raises:
            PermissionDeniedError: the file belongs to another role, or admits no key.
        """
        roles = {
            one.role for one in self.known if (one.role, one.public) != ("dispatcher", self.public)
        }
        if ALL in roles or roles >= {"worker", "client"} or (roles and "dispatcher" not in roles):
            return
        if not roles:
            seems = "admits no key: it has no line `known ROLE KEY`"
        else:
            owner = (
                "client"
                if "worker" in roles
                else "worker"
                if "client" in roles
                else "worker or client"
            )
            seems = f"seems to be that of a {owner}: it knows {' and '.join(sorted(roles))}"
        raise PermissionDeniedError(
            f"Key file {self.path} {seems}. A dispatcher needs the file that lists the workers and "
            "clients that it admits: name dispatcher.key with --key-file or ZMQDATA_KEY_FILE."
        )

    def holder(self, public: str) -> Known | None:
        """Return the entry of an admitted key; None if the key is not admitted."""
        return next((one for one in self.known if one.public == public), None)


def new_key() -> Key:
    """Create the key of a cluster without roles: every process that has it may do
    everything.

    Example:
        >>> key = new_key()
        >>> [one.role for one in key.known], key.secret in repr(key)
        (['all'], False)
    """
    public, secret = _new_pair()
    return Key(_new_cluster(), public, secret, (Known(ALL, public),))


def new_roles() -> dict[str, Key]:
    """Create a key for each role, which permits only what the role needs.

    Example:
        >>> {role: [one.role for one in key.known] for role, key in new_roles().items()}
        ... # doctest: +NORMALIZE_WHITESPACE
        {'dispatcher': ['worker', 'client'], 'worker': ['dispatcher', 'client'],
        'client': ['dispatcher', 'worker']}
    """
    cluster = _new_cluster()
    pairs = {role: _new_pair() for role in ROLES}
    return {
        role: Key(
            cluster,
            *pairs[role],
            tuple(Known(other, pairs[other][0]) for other in ROLES if other != role),
        )
        for role in ROLES
    }


def new_client(dispatcher: Key, worker: Key) -> Key:
    """Create the key of another client of a cluster with roles. The dispatcher and the
    workers must still admit it.
    """
    found = (Known("dispatcher", dispatcher.public), Known("worker", worker.public))
    return Key(dispatcher.cluster, *_new_pair(), found)


def with_known(key: Key, added: Known) -> Key:
    """Return the key with another admitted key."""
    return replace_fields(key, known=(*key.known, added))


def is_name(name: str) -> bool:
    """Return True if a text can name a key's holder, and its file."""
    return _NAME.fullmatch(name) is not None and "/" not in name


def _new_pair() -> tuple[str, str]:
    public, secret = zmq.curve_keypair()
    return public.decode(), secret.decode()


def _new_cluster() -> str:
    return secrets.token_hex(8)


# --- files


def render(key: Key) -> str:
    """Return the content of a key file."""
    lines = [
        HEADING,
        "# A holder of this file can run code on the workers of the cluster. Keep it like a "
        "password.",
        f"cluster {key.cluster}",
        f"public {key.public}",
        f"secret {key.secret}",
        "# The admitted keys. After its line is deleted, a key is refused.",
        *(" ".join(filter(None, ("known", one.role, one.public, one.name))) for one in key.known),
        ENDING,
    ]
    return "\n".join(lines) + "\n"


def parse(text: str, path: str = "") -> Key:
    """Parse the content of a key file. Errors name the number of a faulty line, never
    its content.

    Args:
        text: content of the file.
        path: path of the file, for errors.

    Raises:
        DataLossError: the text is not a key file, or is damaged.

    Example:
        >>> key = new_key()
        >>> parse(render(key)) == key
        True
    """

    def damaged(why: str) -> DataLossError:
        return DataLossError(
            f"{path or 'This'} is no whole key file: {why}. Make a key file with `zmqdata keygen`, "
            "or "
            "copy it again."
        )

    numbered = [(at, line.split()) for at, line in enumerate(text.split("\n"), 1)]
    lines = [(at, words) for at, words in numbered if words and not words[0].startswith("#")]
    if not lines or " ".join(lines[0][1]) != HEADING:
        raise damaged(f"it does not begin with {HEADING!r}")
    single: dict[str, str] = {}
    known: list[Known] = []
    ends = False
    for at, words in lines[1:]:
        if ends:
            raise damaged(f"line {at} comes after `{ENDING}`, which must be the last line")
        if words == [ENDING]:
            ends = True
        elif words[0] == "known" and _is_known(words[1:]):
            known.append(Known(*words[1:]))
        elif words[0] in single:
            raise damaged(f"line {at} repeats an entry of an earlier line")
        elif len(words) == 2 and words[0] in _PATTERNS and _PATTERNS[words[0]].fullmatch(words[1]):
            single[words[0]] = words[1]
        else:
            raise damaged(f"line {at} cannot be read")
    missing = _PATTERNS.keys() - single.keys()
    if not ends:
        raise damaged(
            f"its last line, `{ENDING}`, is missing, and other lines may be missing, too (add it "
            "if the file never had this line)"
        )
    if missing or len(known) > MOST_KNOWN:
        raise damaged(
            f"`{min(missing)}` is missing" if missing else f"more than {MOST_KNOWN} keys are known"
        )
    if _public_of(single["secret"]) != single["public"]:
        raise damaged("`public` and `secret` do not belong together")
    return Key(single["cluster"], single["public"], single["secret"], tuple(known), path)


def _public_of(secret: str) -> str:
    """Return the public key that belongs to a secret key; "" if the text only looks
    like a secret key.
    """
    try:
        return zmq.curve_public(secret.encode()).decode()
    except zmq.ZMQError:
        return ""


_PATTERNS = {"cluster": _CLUSTER, "public": _Z85, "secret": _Z85}


def _is_known(words: list[str]) -> bool:
    role, public, *name = [*words, "", ""][: max(2, len(words))]
    named = not name or (len(name) == 1 and _NAME.fullmatch(name[0]))
    return role in (ALL, *ROLES) and _is_public(public) and bool(named)


def _is_public(text: str) -> bool:
    """Return True if a text encodes 32 bytes: some groups of five valid characters
    exceed four bytes.
    """
    try:
        return bool(_Z85.fullmatch(text)) and len(z85.decode(text)) == 32
    except struct.error:
        return False


def load(path: str | os.PathLike[str], any_mode: bool = False) -> Key:
    """Read a key file.

    Args:
        path: path of the file.
        any_mode: True to read it even if other users can read or change it. Its content
            is not trustworthy then.

    Raises:
        NotFoundError: the file does not exist.
        FailedPreconditionError: other users can read or change the file.
        DataLossError: the file is damaged.
        OSError: the file cannot be read.
    """
    try:
        # O_NONBLOCK: opening a named pipe must not block.
        with shortage_explained(f"the key file {os.fspath(path)}"):
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        name = os.fspath(path)
        missing = f"{name}; that is a link to {os.readlink(name)}" if os.path.islink(name) else name
        text = f"There is no key file {missing}. Copy the cluster's file, or run `zmqdata keygen`."
        raise NotFoundError(text) from None
    except PermissionError as error:
        text = (
            f"key file {os.fspath(path)} cannot be read by user {os.geteuid()} of group "
            f"{os.getegid()}, who runs this process. Give it to that user (chown), or to that "
            "group (chgrp, chmod 440); with Kubernetes set `fsGroup` in the pod's `securityContext`"
        )
        raise PermissionError(error.errno, text) from None
    try:
        _check_private(os.fspath(path), os.fstat(descriptor), any_mode)
        content = os.read(descriptor, MOST_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(content) > MOST_BYTES:
        raise DataLossError(
            f"{os.fspath(path)} is no key file: it has more than {MOST_BYTES} bytes."
        )
    return parse(content.decode(errors="replace"), os.fspath(path))


def _check_private(path: str, status: os.stat_result, any_mode: bool) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise FailedPreconditionError(
            f"{path} is not a regular file, and so no key file. `zmqdata keygen` makes one."
        )
    if not is_trusted(status):
        raise FailedPreconditionError(
            f"Key file {path} belongs to user {status.st_uid}, who can read and change it, but "
            f"this process runs as user {os.getuid()}. Run `chown {os.getuid()} {path}` as root, "
            f"or copy the file as that user. Make a new key if user {status.st_uid} should not "
            "have had access."
        )
    # A group may read it: container platforms mount volumes so.
    if status.st_mode & (stat.S_IRWXO | stat.S_IWGRP | stat.S_IXGRP) and not any_mode:
        raise FailedPreconditionError(
            f"Key file {path} has mode {stat.S_IMODE(status.st_mode):04o} and belongs to user "
            f"{status.st_uid}: other users can read or change it. Run `chmod 600 {path}` as its "
            "owner, and make a new key if others had access."
        )


def save(path: str | os.PathLike[str], key: Key) -> None:
    """Write a key file that only its owner can read, atomically.

    Raises:
        AlreadyExistsError: the file exists.
        OSError: the file cannot be written.
    """
    target = Path(path)
    make_private(target.parent)
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        _write(draft, key)
        os.link(draft, target)
    except FileExistsError:
        raise AlreadyExistsError(_already(target)) from None
    finally:
        draft.unlink(missing_ok=True)


def check_absent(path: str | os.PathLike[str]) -> None:
    """Raise an error if a path exists.

    Raises:
        AlreadyExistsError: the path exists.
    """
    if os.path.lexists(path):
        raise AlreadyExistsError(_already(Path(path)))


def _already(path: Path) -> str:
    if path.is_symlink() and not path.exists():
        return (
            f"{path} is a link to {os.readlink(path)}, but that file does not exist. Delete the "
            "link, or correct it."
        )
    return (
        f"There is a key file {path} already, and it is left as it is. Copy that file, or delete "
        "it first to replace it."
    )


def replace(path: str | os.PathLike[str], key: Key) -> None:
    """Replace a key file atomically; owner and mode stay, so the same users can read
    it.

    Raises:
        OSError: the file cannot be written.
    """
    found = os.stat(path)
    draft = Path(path).with_name(f".{Path(path).name}.{secrets.token_hex(4)}")
    try:
        _write(draft, key)
        if (found.st_uid, found.st_gid) != (os.geteuid(), os.getegid()):
            os.chown(draft, found.st_uid, found.st_gid)
        draft.chmod(stat.S_IMODE(found.st_mode))
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def _write(path: Path, key: Key) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(render(key))
        file.flush()
        os.fsync(file.fileno())
