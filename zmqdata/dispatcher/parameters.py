"""Parameters of a dispatcher's core and sockets that follow from its configuration."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from zmqdata.config.dispatcher import LEAST_LEASE_MS, DispatcherConfig
from zmqdata.core.dispatcher.decider import DispatcherPolicy, DispatcherTimes
from zmqdata.core.dispatcher.peers.worker_addresses import located
from zmqdata.errors import InvalidArgumentError
from zmqdata.transport.addresses import announced_address, host_addresses

log = logging.getLogger(__name__)

LEAST_SILENCE_MS = 1_500
"""Minimum silence, in milliseconds, after which a connection is closed."""
NOTICING_MS = 2_600
"""Milliseconds until the silence is checked, and then until a message is sent to a peer
that is no longer connected.
"""


def target_of(config: DispatcherConfig, port: int) -> str:
    """Return the address by which workers and clients reach a dispatcher on a port.

    Example:
        >>> target_of(DispatcherConfig(), 5050)
        'tcp://127.0.0.1:5050'
    """
    return f"tcp://{announced_address(config.host, None, None, port)}"


def times_of(config: DispatcherConfig) -> DispatcherTimes:
    """Return the times of a configuration, in seconds. Without checks for unused jobs,
    none is collected. No lease is shorter than ``LEAST_LEASE_MS``.

    Example:
        >>> times_of(DispatcherConfig(job_gc_check_interval_ms=-1)).gc_timeout
        -1.0
    """
    collects = config.job_gc_timeout_ms >= 0 and config.job_gc_check_interval_ms >= 0
    return DispatcherTimes(
        disconnect_grace=config.disconnect_grace_ms / 1000,
        client_timeout=max(LEAST_LEASE_MS, config.client_timeout_ms) / 1000,
        gc_timeout=config.job_gc_timeout_ms / 1000 if collects else -1.0,
        gc_interval=config.job_gc_check_interval_ms / 1000,
        worker_timeout=config.worker_timeout_ms / 1000,
    )


def silence_of(config: DispatcherConfig) -> int:
    """Return the silence of a connection, in milliseconds, after which its worker is
    lost ``worker_timeout_ms`` after its last message.

    Example:
        >>> silence_of(DispatcherConfig())
        6400
        >>> silence_of(DispatcherConfig(worker_timeout_ms=1_000))
        1000
    """
    least = min(config.worker_timeout_ms, LEAST_SILENCE_MS)
    return max(least, config.worker_timeout_ms - config.disconnect_grace_ms - NOTICING_MS)


def policy_of(config: DispatcherConfig) -> DispatcherPolicy:
    """Return the policy of a configuration."""
    return DispatcherPolicy(
        collects_dynamic=config.gc_dynamic_sharding_jobs,
        deployment_mode=config.deployment_mode,
        snapshots_per_worker=config.worker_max_concurrent_snapshots,
    )


def host_aliases(entries: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the numeric addresses of each host name in a list of worker addresses.

    Workers announce either the name or an address. A name that cannot be resolved is
    omitted: a worker may announce the same name.

    Example:
        >>> host_aliases(["127.0.0.1:5", "::1"])
        {'127.0.0.1': ('127.0.0.1',), '::1': ('::1',)}
    """
    found: dict[str, tuple[str, ...]] = {}
    for entry in entries:
        host = located(entry).host
        try:
            found[host] = tuple(dict.fromkeys(host_addresses(host)))
        except InvalidArgumentError as error:
            log.warning(
                "--worker-address %s only matches workers that announce this exact name. %s",
                entry,
                error,
            )
    return found
