"""A copy of the key file, in memory, for processes that run as another user. Only these
processes can read the copy.
"""

from __future__ import annotations

import fcntl
import os
from dataclasses import replace

from zmqdata.config.worker import WorkerConfig
from zmqdata.worker.processes.accounts import Account, is_ours


def lend_key(config: WorkerConfig, account: Account | None) -> tuple[WorkerConfig, tuple[int, ...]]:
    """Return a configuration for processes of another user, which can neither find nor
    read the key file of this user.

    The copy has the present content of the file. A worker notices a line deleted from
    the file only when it is restarted.

    Args:
        config: configuration of the worker.
        account: account whose rights its processes have; None if they keep the rights
            of this process.

    Returns:
        The configuration, and the descriptors that these processes must inherit.

    Raises:
        NotFoundError, FailedPreconditionError, DataLossError: the key file is missing,
            not private, or damaged.
        OSError: the file cannot be read, or the copy cannot be made.
    """
    if account is None or is_ours(account) or config.insecure:
        return config, ()
    # These imports load the sockets, which a supervisor otherwise does without.
    from zmqdata.transport.addresses import is_loopback
    from zmqdata.transport.keychoice import key_for
    from zmqdata.transport.keys import render

    key = key_for(config, not is_loopback(config.host))
    assert key is not None, "the configuration asks for no key"
    lent = os.memfd_create("zmqdata-key", os.MFD_ALLOW_SEALING)
    with open(os.dup(lent), "w", encoding="utf-8") as file:
        file.write(render(key))
    # A process that inherits the descriptor may write to it whatever the file's mode
    # says. Without the seals a pipeline could add a key of its own.
    seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
    fcntl.fcntl(lent, fcntl.F_ADD_SEALS, seals)
    os.fchmod(lent, 0o400)
    os.fchown(lent, account.user, account.group)
    return replace(config, key_file=f"/proc/self/fd/{lent}"), (lent,)
