"""Choice of the key file of a process: the file given explicitly, the file named by the
environment, or the user's own.
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
from zmqdata.machine.descriptors import is_shortage, remedy
from zmqdata.recipes import names_arguments
from zmqdata.transport.keys import Key, load, new_key, save


def default_path() -> Path:
    """Return the default path of the user's key file, in the user's configuration
    folder.

    Raises:
        FailedPreconditionError: the user has no such folder.
    """
    folder = os.environ.get("XDG_CONFIG_HOME") or ""
    with contextlib.suppress(RuntimeError):  # this user has no home folder
        root = Path(folder) if os.path.isabs(folder) else Path.home() / ".config"
        if root.is_absolute():  # a relative path would name another file in each directory
            return root / "zmqdata" / "cluster.key"
    raise FailedPreconditionError(
        f"This user has no home folder to keep a key file in: HOME is {os.environ.get('HOME')!r}, "
        "expected an absolute path. Set HOME, or name a file with --key-file or ZMQDATA_KEY_FILE."
    )


def own_key() -> Key:
    """Return this user's key on this machine; the first call creates it.

    Raises:
        FailedPreconditionError, DataLossError: the key file is not private, or is
            damaged.
        OSError: the key file can be neither read nor created.
    """
    path = default_path()
    with contextlib.suppress(NotFoundError, NotADirectoryError):
        return load(path)
    try:
        with contextlib.suppress(AlreadyExistsError):  # another process was faster
            save(path, new_key())
    except OSError as error:
        if is_shortage(error):
            raise OSError(error.errno, remedy("reading the own key")) from None
        reason = error.strerror or str(error)
        raise OSError(
            error.errno,
            f"cannot create the key file {path}: {reason}; name another file with --key-file or "
            "ZMQDATA_KEY_FILE",
        ) from None
    return load(path)


def key_for(
    settings: KeySettings | DispatcherConfig | WorkerConfig, is_open: bool = False
) -> Key | None:
    """Return the key that the settings ask for; None if they ask for none.

    Args:
        settings: settings of the process.
        is_open: True if other machines are to be admitted. A newly created key would
            not admit any of them, so none is created.

    Raises:
        NotFoundError, FailedPreconditionError, DataLossError: the key file does not
            exist, is not private, or is damaged.
        OSError: the key file can be neither read nor created.
    """
    if settings.insecure:
        return None
    if settings.key_file is not None:
        return load(settings.key_file)
    if is_open and not default_path().exists():
        raise FailedPreconditionError(
            "To listen beyond this machine, the server needs the key that the other machines "
            f"have. Copy their key file to {default_path()}, or name it with --key-file or "
            "ZMQDATA_KEY_FILE. For a new cluster run `zmqdata keygen` once and copy the file that "
            "it makes to each machine. --insecure does without a key: then every peer that reaches "
            "this server can run code on workers."
        )
    return own_key()


_chosen: KeySettings | None = None


@names_arguments
def use_key_file(key_file: str | os.PathLike[str] | None = None, *, insecure: bool = False) -> None:
    """Set the key that this process shows to services from now on.

    Without a call, it is the file that ``ZMQDATA_KEY_FILE`` names, else the user's own
    ``zmqdata/cluster.key`` in the configuration folder, which is created when first
    needed.

    Args:
        key_file: a file made by ``zmqdata keygen``; None restores the default.
        insecure: show no key, and read from services that were started with
            ``--insecure``.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: ``key_file`` is given together with ``insecure``.
        NotFoundError, FailedPreconditionError, DataLossError: the key file does not
            exist, is not private, or is damaged.

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
    """Make this process show the key that the settings ask for, whatever the
    environment says.

    Raises:
        NotFoundError, FailedPreconditionError, DataLossError: the key file does not
            exist, is not private, or is damaged.
        OSError: the key file can be neither read nor created.
    """
    global _chosen
    key_for(settings)
    _chosen = settings


def shown_settings() -> KeySettings:
    """Return the key settings that this process uses as a client."""
    return _chosen or from_environment(KeySettings, {})


def shown_key() -> Key | None:
    """Return the key that this process shows to services; None without a key.

    Raises:
        NotFoundError, FailedPreconditionError, DataLossError: the key file does not
            exist, is not private, or is damaged.
        OSError: the key file can be neither read nor created.
    """
    return key_for(shown_settings())
