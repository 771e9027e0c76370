"""Which key file a process goes by: the one that it is told, that the environment
names, or the user's own.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from zmqdata.config.dispatcher import DispatcherConfig
from zmqdata.config.keys import KeySettings
from zmqdata.config.settings import from_environment
from zmqdata.config.worker import WorkerConfig
from zmqdata.errors import AlreadyExistsError, FailedPreconditionError, NotFoundError
from zmqdata.transport.keys import Key, load, new_key, save


def default_path() -> Path:
    """Where the key file of a user is that nobody has named: in the folder for
    configuration.

    Raises:
        FailedPreconditionError: this user has no such folder.
    """
    folder = os.environ.get("XDG_CONFIG_HOME") or ""
    with contextlib.suppress(RuntimeError):  # nobody knows of a home folder
        root = Path(folder) if os.path.isabs(folder) else Path.home() / ".config"
        if root.is_absolute():  # else it would be another file in each working folder
            return root / "zmqdata" / "cluster.key"
    raise FailedPreconditionError(
        f"This user has no home folder to keep a key file in: HOME is {os.environ.get('HOME')!r}, "
        "expected an absolute "
        "path. Set it, or name a file with --key-file or ZMQDATA_KEY_FILE."
    )


def own_key() -> Key:
    """The key of this user on this machine, which is made when it is needed first.

    Raises:
        FailedPreconditionError, DataLossError: it is not private, or damaged.
        OSError: it can be neither read nor made.
    """
    path = default_path()
    with contextlib.suppress(NotFoundError, NotADirectoryError):
        return load(path)
    try:
        with contextlib.suppress(AlreadyExistsError):  # another process has made it meanwhile
            save(path, new_key())
    except OSError as error:
        reason = error.strerror or str(error)
        raise OSError(
            error.errno,
            f"cannot make the key file {path}: {reason}; name another one with --key-file or "
            "ZMQDATA_KEY_FILE",
        ) from None
    return load(path)


def key_for(
    settings: KeySettings | DispatcherConfig | WorkerConfig, is_open: bool = False
) -> Key | None:
    """The key that settings ask for; None: they ask for none.

    Args:
        settings: of the process.
        is_open: whether others than this machine are to be let in. A key that is made
            just now would let in nobody.

    Raises:
        NotFoundError, FailedPreconditionError, DataLossError: there is none, it is not
            private, or damaged.
        OSError: it can be neither read nor made.
    """
    if settings.insecure:
        return None
    if settings.key_file is not None:
        return load(settings.key_file)
    if is_open and not default_path().exists():
        raise FailedPreconditionError(
            "To listen beyond this machine takes the key that the other machines have, too. Copy "
            "their key file to "
            f"{default_path()}, or name it with --key-file or ZMQDATA_KEY_FILE; for a new cluster "
            "run `zmqdata keygen` "
            "once, and copy the file that it makes to each machine. --insecure does without: then "
            "whoever reaches this "
            "server can run code on workers."
        )
    return own_key()


_chosen: KeySettings | None = None


def use_key_file(key_file: str | os.PathLike[str] | None = None, *, insecure: bool = False) -> None:
    """Says which key this process shows to the services that it reads from, from now
    on.

    Without a call it is the file that ``ZMQDATA_KEY_FILE`` names, else that of this
    user, ``zmqdata/cluster.key`` in the folder for configuration, which is made when it
    is needed first.

    Args:
        key_file: the file, as ``zmqdata keygen`` makes it; None: as without a call.
        insecure: show none, and read from services that were started with
            ``--insecure``.

    Raises:
        TypeError: an argument has another type.
        ValueError: there is a file to show, and none is to be shown.
        NotFoundError, FailedPreconditionError, DataLossError: there is no such file, it
            is not private, or damaged.

    Example:
        >>> use_key_file(None)

    Ours; tf.data service has no keys.
    """
    global _chosen
    if key_file is None and not insecure:
        key_for(from_environment(KeySettings, {}))
        _chosen = None
    else:
        show(KeySettings(None if key_file is None else os.fspath(key_file), insecure))


def show(settings: KeySettings) -> None:
    """Has this process show the key that these settings ask for, whatever the
    environment says.

    Raises:
        NotFoundError, FailedPreconditionError, DataLossError: there is none, it is not
            private, or damaged.
        OSError: it can be neither read nor made.
    """
    global _chosen
    key_for(settings)
    _chosen = settings


def shown_settings() -> KeySettings:
    """Which key this process shows to services that it reads from."""
    return _chosen or from_environment(KeySettings, {})


def shown_key() -> Key | None:
    """That key.

    Raises:
        NotFoundError, FailedPreconditionError, DataLossError: there is none, it is not
            private, or damaged.
        OSError: it can be neither read nor made.
    """
    return key_for(shown_settings())
