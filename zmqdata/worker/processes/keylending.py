"""The key file for processes that have another user's rights: a copy that only these
can read, in memory.
"""

from __future__ import annotations

import fcntl
import os
from dataclasses import replace

from zmqdata.config.worker import WorkerConfig
from zmqdata.worker.processes.accounts import Account, is_ours


def lend_key(config: WorkerConfig, account: Account | None) -> tuple[WorkerConfig, tuple[int, ...]]:
    """A configuration for processes of another user, who could not read the key file of
    ours, nor would find it.

    What is lent is the file as it is now: that a line was deleted is seen when the
    worker is started again.

    Args:
        config: of the worker.
        account: whose rights its processes have; None: our own.

    Returns:
        The configuration, and the descriptors that these processes have to inherit.

    Raises:
        NotFoundError, FailedPreconditionError, DataLossError: there is no key file, it
            is not private, or damaged.
        OSError: it can be neither read nor made.
    """
    if account is None or is_ours(account) or config.insecure:
        return config, ()
    # Not above: a supervisor does without sockets.
    from zmqdata.transport.addresses import is_loopback
    from zmqdata.transport.keychoice import key_for
    from zmqdata.transport.keys import render

    key = key_for(config, not is_loopback(config.host))
    assert key is not None, "none was asked for"
    lent = os.memfd_create("zmqdata-key", os.MFD_ALLOW_SEALING)
    with open(os.dup(lent), "w", encoding="utf-8") as file:
        file.write(render(key))
    # Whoever inherits it may write to it, whatever its mode says, and pipelines do: one
    # could let its own keys in.
    seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
    fcntl.fcntl(lent, fcntl.F_ADD_SEALS, seals)
    os.fchmod(lent, 0o400)
    os.fchown(lent, account.user, account.group)
    return replace(config, key_file=f"/proc/self/fd/{lent}"), (lent,)
