"""Sections 1.1 and 1.2: the settings of dispatcher and worker, and the values that they
refuse.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import zmqdata
from tests.acceptance.reading import command, numbers, read, status
from tests.foreign import ForeignDispatcher
from tests.full import full

NOWHERE = "tcp://127.0.0.1:1"
CONFIGS: dict[type[Any], dict[str, Any]] = {
    zmqdata.DispatcherConfig: {},
    zmqdata.WorkerConfig: {"dispatcher_address": NOWHERE},
}
OF_TFDATA = {
    zmqdata.DispatcherConfig: [
        "port",
        "protocol",
        "work_dir",
        "fault_tolerant_mode",
        "worker_addresses",
        "job_gc_check_interval_ms",
        "job_gc_timeout_ms",
        "worker_timeout_ms",
        "worker_max_concurrent_snapshots",
        "client_timeout_ms",
        "gc_dynamic_sharding_jobs",
        "deployment_mode",
    ],
    zmqdata.WorkerConfig: [
        "dispatcher_address",
        "worker_address",
        "port",
        "protocol",
        "heartbeat_interval_ms",
        "dispatcher_timeout_ms",
        "data_transfer_protocol",
        "data_transfer_address",
        "worker_tags",
        "data_transfer_port",
        "cross_trainer_cache_size_bytes",
        "snapshot_max_chunk_size_bytes",
        "shutdown_quiet_period_ms",
    ],
}
FIELDS = [(kind, field.name) for kind in CONFIGS for field in dataclasses.fields(kind)]


def made(kind: type[Any], **fields: Any) -> Any:
    return kind(**{**CONFIGS[kind], **fields})


@pytest.mark.claim("1.1a", "1.2a")
@pytest.mark.parametrize("kind", CONFIGS)
def test_the_fields_are_those_of_tfdata(kind: type[Any]) -> None:
    """Every field of tf.data's configuration and of its proto exists under the same
    name.
    """
    assert set(OF_TFDATA[kind]) <= {field.name for field in dataclasses.fields(kind)}


@pytest.mark.claim("1.1b")
@pytest.mark.parametrize(("kind", "name"), FIELDS)
def test_none_means_the_default(kind: type[Any], name: str) -> None:
    """A field given as None takes its default."""
    if name == "dispatcher_address":
        with pytest.raises(ValueError, match="dispatcher_address"):
            zmqdata.WorkerConfig(dispatcher_address=None)  # type: ignore[arg-type]
        return
    assert getattr(made(kind, **{name: None}), name) == getattr(made(kind), name)


@pytest.mark.claim("1.1c")
@pytest.mark.parametrize("kind", CONFIGS)
def test_configurations_are_frozen(kind: type[Any]) -> None:
    """A configuration is immutable, and configurations with equal fields are equal."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        made(kind).port = 7
    assert made(kind) == made(kind)


@pytest.mark.claim("1.1d")
def test_defaults_notice_deaths_soon() -> None:
    """The defaults miss a worker after 10 s and a client after 15 s, and collect a job
    after 5 min.
    """
    dispatcher, worker = zmqdata.DispatcherConfig(), zmqdata.WorkerConfig(NOWHERE)
    assert (dispatcher.port, dispatcher.worker_addresses, dispatcher.work_dir) == (0, (), None)
    assert (dispatcher.worker_timeout_ms, dispatcher.client_timeout_ms) == (10_000, 15_000)
    assert (dispatcher.job_gc_timeout_ms, dispatcher.gc_dynamic_sharding_jobs) == (300_000, True)
    assert (dispatcher.worker_max_concurrent_snapshots, dispatcher.deployment_mode) == (3, "REMOTE")
    assert (worker.heartbeat_interval_ms, worker.dispatcher_timeout_ms) == (1_000, 3_600_000)
    assert (worker.cross_trainer_cache_size_bytes, worker.worker_tags) == (10 << 30, ())
    assert worker.shutdown_quiet_period_ms == 0


@pytest.mark.claim("1.1e", "1.2d")
@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (zmqdata.DispatcherConfig, {"port": "7"}),
        (zmqdata.DispatcherConfig, {"worker_addresses": ["localhost", ""]}),
        (zmqdata.DispatcherConfig, {"worker_timeout_ms": 0}),
        (zmqdata.WorkerConfig, {"worker_tags": "COLOCATED"}),
        (zmqdata.WorkerConfig, {"host": ""}),
        (zmqdata.WorkerConfig, {"data_transfer_port": 65_536}),
        (zmqdata.WorkerConfig, {"dispatcher_timeout_ms": 1000, "heartbeat_interval_ms": 1000}),
        (zmqdata.WorkerConfig, {"data_ports": (7000, 7010), "data_transfer_port": 7005}),
    ],
)
def test_faults_are_found_at_once(kind: type[Any], fields: dict[str, Any]) -> None:
    """A configuration refuses wrong types, empty values, values out of range and
    contradictions, and names the fields.
    """
    with pytest.raises((TypeError, ValueError)) as found:
        made(kind, **fields)
    assert all(f"`{name}`" in str(found.value) for name in fields)


@pytest.mark.claim("1.1f")
@pytest.mark.parametrize("kind", CONFIGS)
def test_only_known_protocols_have_credentials(kind: type[Any]) -> None:
    """An unknown control protocol is not found."""
    with pytest.raises(
        zmqdata.errors.NotFoundError,
        match="No credentials factory has been registered for protocol x",
    ):
        made(kind, protocol="x")


@pytest.mark.claim("1.1e")
def test_numpy_numbers_are_numbers() -> None:
    """A field accepts a number of numpy."""
    assert zmqdata.DispatcherConfig(port=np.int64(5050)).port == 5050  # type: ignore[arg-type]


@pytest.mark.claim("1.1g")
def test_zero_snapshots_are_the_default() -> None:
    """A ``worker_max_concurrent_snapshots`` of 0 means the default, three."""
    assert (
        zmqdata.DispatcherConfig(worker_max_concurrent_snapshots=0).worker_max_concurrent_snapshots
        == 3
    )


@pytest.mark.claim("1.2b", "1.2c")
@pytest.mark.parametrize("address", ["127.0.0.1:%port%", "127.0.0.1", "localhost:%port%", None])
def test_the_announced_address_has_the_bound_port(
    make_cluster: Callable[..., zmqdata.LocalCluster], address: str | None
) -> None:
    """The worker puts its bound port in place of ``%port%``, and adds it to an address
    without a port.
    """
    cluster = make_cluster(1, worker_address=address)
    announced = cluster.workers[0].address
    assert "%" not in announced
    assert int(announced.rpartition(":")[2]) > 0
    assert len(numbers(read(zmqdata.Dataset.range(10), cluster))) == 10


@pytest.mark.claim("1.2b")
def test_the_data_address_has_the_bound_port(
    make_cluster: Callable[..., zmqdata.LocalCluster],
) -> None:
    """The worker puts the port of its data socket in place of ``%dts_port%``."""
    cluster = make_cluster(
        1, data_transfer_address="localhost:%dts_port%", data_transfer_protocol="tcp"
    )
    assert numbers(read(zmqdata.Dataset.range(10), cluster)) == list(range(10))


@pytest.mark.claim("1.4n")
@pytest.mark.parametrize("program", ["dispatcher", "worker"])
@pytest.mark.realprocess
def test_help_explains_each_setting(program: str) -> None:
    """``--help`` has an option and a sentence for every setting."""
    answer = command(program, "--help")
    assert answer.returncode == 0
    text = " ".join(answer.stdout.split())
    for word in ("heartbeat" if program == "worker" else "port", "milliseconds"):
        assert word in text
    assert text.count(" --") >= len(
        OF_TFDATA[zmqdata.DispatcherConfig if program == "dispatcher" else zmqdata.WorkerConfig]
    )


@pytest.mark.claim("1.4n")
@pytest.mark.realprocess
@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        (("dispatcher", "--port", "70000"), {}),
        full(("dispatcher",), {"ZMQDATA_PORT": "70000"}),
        full(("worker",), {}),
        full(("worker", "--dispatcher", "tcp://127.0.0.1:1", "--heartbeat-interval-ms", "0"), {}),
        full(
            ("worker", "--dispatcher", "tcp://127.0.0.1:1"),
            {"ZMQDATA_HEARTBEAT_INTERVAL_MS": "often"},
        ),
        full(("dispatcher", "--no-such-option"), {}),
    ],
)
def test_commands_refuse_what_python_refuses(
    arguments: tuple[str, ...], environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bad option or variable ends the command at once, with a message and without a
    traceback.
    """
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    answer = command(*arguments)
    assert answer.returncode != 0
    assert "Traceback" not in answer.stderr
    assert answer.stderr.strip()


@pytest.mark.claim("1.4n")
def test_the_environment_says_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable ``ZMQDATA_*`` sets a field, and an explicit argument overrides it."""
    monkeypatch.setenv("ZMQDATA_HEARTBEAT_INTERVAL_MS", "321")
    monkeypatch.setenv("ZMQDATA_DISPATCHER", NOWHERE)
    assert zmqdata.WorkerConfig.from_environment().heartbeat_interval_ms == 321
    assert zmqdata.WorkerConfig.from_environment(heartbeat_interval_ms=5).heartbeat_interval_ms == 5
    assert zmqdata.WorkerConfig.from_environment().dispatcher_address == NOWHERE
    assert zmqdata.WorkerConfig(NOWHERE).heartbeat_interval_ms == 1000


@pytest.mark.claim("1.3g")
@pytest.mark.core
def test_status_shows_the_configuration(make_cluster: Callable[..., zmqdata.LocalCluster]) -> None:
    """The exported state contains the dispatcher's configuration."""
    cluster = make_cluster(0, job_gc_timeout_ms=1234)
    assert status(cluster)["config"]["job_gc_timeout_ms"] == 1234


@pytest.fixture
def foreign() -> Iterator[str]:
    """Yield the address of a dispatcher of protocol version 8, in a process without
    keys.
    """
    zmqdata.use_key_file(insecure=True)
    with ForeignDispatcher() as dispatcher:
        yield dispatcher.target
    zmqdata.use_key_file()


@pytest.mark.claim("1.2e")
@pytest.mark.parametrize(
    "turn_to",
    [
        lambda address: next(iter(read(zmqdata.Dataset.range(3), address))),
        lambda address: zmqdata.register_dataset(address, zmqdata.Dataset.range(3)),
        lambda address: zmqdata.from_dataset_id("distributed_epoch", address, "id"),
        lambda address: zmqdata.WorkerServer(zmqdata.WorkerConfig(address, insecure=True)),
    ],
    ids=["distribute", "register_dataset", "from_dataset_id", "WorkerServer"],
)
def test_another_protocol_version_is_a_failed_precondition(
    turn_to: Callable[[str], Any], foreign: str
) -> None:
    """Another protocol version is an error at once that names both versions and the
    remedy.
    """
    text = "Version mismatch.* protocol version 8 and this process version 7: .* install the same release"
    with pytest.raises(zmqdata.errors.FailedPreconditionError, match=text):
        turn_to(foreign)


@pytest.mark.claim("1.2e")
@pytest.mark.realprocess
def test_a_worker_of_another_protocol_version_ends(foreign: str) -> None:
    """The process of a worker ends with an error at a dispatcher of another protocol
    version.
    """
    answer = command("worker", "--dispatcher", foreign, "--insecure")
    assert answer.returncode == 2
    assert (
        "zmqdata worker: Version mismatch, the peer speaks protocol version 8"
        in answer.stderr.splitlines()[-1]
    )
