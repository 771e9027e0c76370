"""Configurations of dispatchers and workers: valid values, defaults and errors."""

from __future__ import annotations

import dataclasses
import inspect
import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zmqdata.config.dispatcher import DispatcherConfig
from zmqdata.config.settings import declaration_of, default_of, read_text, text_of
from zmqdata.config.worker import WorkerConfig
from zmqdata.errors import FailedPreconditionError, NotFoundError

HERE = "tcp://127.0.0.1:5050"


def test_a_dispatcher_needs_no_configuration() -> None:
    """A dispatcher's defaults are this machine only, any free port and a ten-second
    timeout.
    """
    config = DispatcherConfig()
    assert (config.host, config.port, config.protocol) == ("127.0.0.1", 0, "tcp")
    assert (config.worker_timeout_ms, config.client_timeout_ms, config.job_gc_timeout_ms) == (
        10_000,
        15_000,
        300_000,
    )


def test_fields_come_in_the_order_of_tf_data() -> None:
    """Positional arguments written for tf.data have the same meaning here."""
    assert [field.name for field in dataclasses.fields(DispatcherConfig)][:9] == [
        "port",
        "protocol",
        "work_dir",
        "fault_tolerant_mode",
        "worker_addresses",
        "job_gc_check_interval_ms",
        "job_gc_timeout_ms",
        "worker_timeout_ms",
        "worker_max_concurrent_snapshots",
    ]
    assert [field.name for field in dataclasses.fields(WorkerConfig)][:8] == [
        "dispatcher_address",
        "worker_address",
        "port",
        "protocol",
        "heartbeat_interval_ms",
        "dispatcher_timeout_ms",
        "data_transfer_protocol",
        "data_transfer_address",
    ]


def test_fields_of_the_protocol_buffers_are_there() -> None:
    """The configuration has a field for every option of tf.data's protocol buffers."""
    assert {"client_timeout_ms", "gc_dynamic_sharding_jobs", "deployment_mode"} <= vars(
        DispatcherConfig()
    ).keys()
    of_worker = {
        "worker_tags",
        "data_transfer_port",
        "cross_trainer_cache_size_bytes",
        "shutdown_quiet_period_ms",
    }
    assert of_worker | {"snapshot_max_chunk_size_bytes"} <= vars(WorkerConfig(HERE)).keys()


def test_none_means_the_default() -> None:
    """A field given as None takes its default, as in tf.data."""
    assert (
        DispatcherConfig(protocol=None, job_gc_timeout_ms=None, worker_addresses=None)
        == DispatcherConfig()
    )  # type: ignore[arg-type]
    assert WorkerConfig(HERE, heartbeat_interval_ms=None, worker_tags=None) == WorkerConfig(HERE)  # type: ignore[arg-type]


def test_a_configuration_never_changes() -> None:
    """Configurations are immutable, and their lists become tuples."""
    addresses = ["a", "b:1"]
    config = DispatcherConfig(worker_addresses=addresses)  # type: ignore[arg-type]
    addresses.append("c")
    assert config.worker_addresses == ("a", "b:1")
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.port = 1  # type: ignore[misc]


@pytest.mark.parametrize("kind", [DispatcherConfig, lambda **given: WorkerConfig(HERE, **given)])
@pytest.mark.parametrize(
    ("given", "final"),
    [
        ({"port": np.int64(5)}, 5),
        ({"host": Path("machine")}, "machine"),
        ({"protocol": None}, "tcp"),
    ],
)
def test_what_is_as_good_is_taken(kind: Any, given: dict[str, Any], final: object) -> None:
    """Configurations convert numpy integers and paths to Python's own types."""
    [name] = given
    found = getattr(kind(**given), name)
    assert (found, type(found)) == (final, type(final))


def test_a_range_of_ports_is_an_entry_for_each() -> None:
    """A range of ports in the address list stands for an entry per port. The processes
    of a worker take consecutive ports, so they need a single entry.
    """
    config = DispatcherConfig(worker_addresses=("a:7000-7002", "[::1]:80-80", "b:%port%", "c-1"))
    assert config.worker_addresses == ("a:7000", "a:7001", "a:7002", "[::1]:80", "b:%port%", "c-1")
    for wrong in ("a:7-6", "a:0-3", "a:65535-65536"):
        with pytest.raises(ValueError, match=f"`worker_addresses` has the ports .* in '{wrong}'"):
            DispatcherConfig(worker_addresses=(wrong,))


def test_words_of_a_choice_have_one_form() -> None:
    """A choice accepts any case and stores its declared spelling."""
    assert DispatcherConfig(deployment_mode="colocated").deployment_mode == "COLOCATED"
    assert WorkerConfig(HERE, data_transfer_protocol="TCP").data_transfer_protocol == "tcp"


def test_zero_snapshots_are_the_default() -> None:
    """worker_max_concurrent_snapshots=0 means the default of three, as in tf.data."""
    assert DispatcherConfig(worker_max_concurrent_snapshots=0) == DispatcherConfig()
    assert DispatcherConfig().worker_max_concurrent_snapshots == 3


def test_zero_and_minus_one_of_the_collection() -> None:
    """The job collection keeps 0 for immediate and -1 for never."""
    for value in (0, -1):
        config = DispatcherConfig(job_gc_check_interval_ms=value, job_gc_timeout_ms=value)
        assert (config.job_gc_check_interval_ms, config.job_gc_timeout_ms) == (value, value)


WRONG_NUMBERS = ["5050", 1.5, math.nan, True, b"1", [1], {}, object()]
NUMBERS = {
    DispatcherConfig: [
        *(
            "port",
            "job_gc_check_interval_ms",
            "job_gc_timeout_ms",
            "worker_timeout_ms",
            "client_timeout_ms",
        ),
        *("worker_max_concurrent_snapshots", "disconnect_grace_ms", "max_message_bytes"),
        "metrics_port",
    ],
    WorkerConfig: [
        *(
            "port",
            "heartbeat_interval_ms",
            "dispatcher_timeout_ms",
            "data_transfer_port",
            "buffer_bytes",
        ),
        *("pipeline_cache_bytes", "shared_memory_bytes", "metrics_port"),
        *(
            "cross_trainer_cache_size_bytes",
            "snapshot_max_chunk_size_bytes",
            "shutdown_quiet_period_ms",
        ),
    ],
}
TEXTS = {
    DispatcherConfig: [
        "protocol",
        "work_dir",
        "dispatcher_file",
        "deployment_mode",
        "host",
        "key_file",
        "metrics_host",
    ],
    WorkerConfig: [
        *("worker_address", "protocol", "data_transfer_protocol", "data_transfer_address", "host"),
        *("pipeline_cache_dir", "key_file", "metrics_host", "name"),
    ],
}
FLAGS = {
    DispatcherConfig: ["fault_tolerant_mode", "gc_dynamic_sharding_jobs", "insecure"],
    WorkerConfig: ["insecure", "forward_logs", "otel"],
}
LISTS = {
    DispatcherConfig: ["worker_addresses", "metrics_names"],
    WorkerConfig: ["worker_tags", "metrics_names"],
}


def made(kind: type[Any], **given: Any) -> Any:
    return kind(**({"dispatcher_address": HERE} if kind is WorkerConfig else {}) | given)


def each(names: dict[type[Any], list[str]]) -> list[Any]:
    return [pytest.param(kind, name, id=name) for kind, found in names.items() for name in found]


def test_every_field_is_examined() -> None:
    """The tables of this module cover every field without a test of its own."""
    for kind, others in (
        (DispatcherConfig, set()),
        (WorkerConfig, {"dispatcher_address", "data_ports", "drain_seconds"}),
    ):
        examined = {name for table in (NUMBERS, TEXTS, FLAGS, LISTS) for name in table[kind]}
        assert examined | others == {field.name for field in dataclasses.fields(kind)}


@pytest.mark.parametrize("value", WRONG_NUMBERS)
@pytest.mark.parametrize(("kind", "name"), each(NUMBERS))
def test_a_number_is_a_number(kind: type[Any], name: str, value: object) -> None:
    """An integer field rejects texts, fractions, booleans and lists, and shows them."""
    with pytest.raises(
        TypeError, match=rf"`{name}` must be int, got .* of type {type(value).__name__}"
    ):
        made(kind, **{name: value})


@pytest.mark.parametrize(("kind", "name"), each(NUMBERS))
def test_a_number_has_a_range(kind: type[Any], name: str) -> None:
    """A number outside its valid range is rejected with the range."""
    with pytest.raises(ValueError, match=rf"`{name}` must be (at least|between) .*, got -2"):
        made(kind, **{name: -2})
    with pytest.raises(ValueError, match=rf"`{name}` must be (at most|between) .*, got {1 << 70}"):
        made(kind, **{name: 1 << 70})


@pytest.mark.parametrize(("kind", "name"), each(TEXTS))
def test_a_text_is_a_text(kind: type[Any], name: str) -> None:
    """A text field rejects numbers and bytes, and treats an empty text as unset."""
    for value in (7, b"x", ["x"]):
        with pytest.raises(TypeError, match=f"`{name}` must be str, got"):
            made(kind, **{name: value})
    with pytest.raises(ValueError, match=f"`{name}` must not be empty"):
        made(kind, **{name: ""})


@pytest.mark.parametrize(("kind", "name"), each(FLAGS))
def test_a_truth_value_is_one(kind: type[Any], name: str) -> None:
    """A boolean field rejects numbers and texts."""
    for value in (1, 0, "true", ""):
        with pytest.raises(TypeError, match=f"`{name}` must be bool, got"):
            made(kind, **{name: value})


@pytest.mark.parametrize(("kind", "name"), each(LISTS))
def test_a_list_of_texts_is_one(kind: type[Any], name: str) -> None:
    """A list of texts rejects single texts, numbers, mappings, other items and empty
    entries.
    """
    for value in ("host", 5, {"host": 1}, [5], [b"host"]):
        with pytest.raises(TypeError, match=f"`{name}( entry)?` must be"):
            made(kind, **{name: value})
    for empty in ("", "  "):
        with pytest.raises((ValueError, FailedPreconditionError), match="empty"):
            made(kind, **{name: ["host", empty]})


@pytest.mark.parametrize(
    ("fields", "error", "text"),
    [
        (
            {"port": -1},
            ValueError,
            r"`port` must be between 0 and 65535 \(0 means any free port\), got -1",
        ),
        ({"port": 65536}, ValueError, "65536"),
        (
            {"protocol": "grpc"},
            NotFoundError,
            "No credentials factory has been registered for protocol grpc",
        ),
        (
            {"deployment_mode": "LOCAL"},
            ValueError,
            "must be one of 'COLOCATED', 'REMOTE', 'HYBRID', got 'LOCAL'",
        ),
        ({"job_gc_timeout_ms": -2}, ValueError, r"at least -1 \(-1 means never\), got -2"),
        ({"worker_timeout_ms": 0}, ValueError, "`worker_timeout_ms` must be at least 1, got 0"),
        ({"client_timeout_ms": 0}, ValueError, "`client_timeout_ms` must be at least 1, got 0"),
        (
            {"max_message_bytes": 10},
            ValueError,
            "`max_message_bytes` must be at least 65536, got 10",
        ),
        (
            {"host": "ipc:///run/d"},
            ValueError,
            "`host` must be .*, got 'ipc:///run/d'. .* on TCP, never on a path",
        ),
    ],
)
def test_a_dispatcher_refuses(fields: dict[str, Any], error: type[Exception], text: str) -> None:
    """The error about a dispatcher's field has the given and the expected value."""
    with pytest.raises(error, match=text):
        DispatcherConfig(**fields)


def test_a_short_client_timeout_is_taken_with_a_warning() -> None:
    """A client time-out that is shorter than the shortest lease is kept, and a warning
    says which lease clients get.
    """
    for make in (DispatcherConfig, partial(dataclasses.replace, DispatcherConfig())):
        with pytest.warns(UserWarning, match="is 50, and counts as 1000") as told:
            config = make(client_timeout_ms=50)
        assert config.client_timeout_ms == 50
        assert [warning.filename for warning in told] == [__file__]


def test_fault_tolerance_needs_a_folder() -> None:
    """Fault tolerance without a work folder is rejected with tf.data's message."""
    with pytest.raises(
        ValueError, match="Cannot enable fault tolerant mode without configuring a work dir"
    ):
        DispatcherConfig(fault_tolerant_mode=True)


def test_a_work_folder_brings_fault_tolerance() -> None:
    """A work folder enables fault tolerance by default; without a folder it is
    disabled.
    """
    assert DispatcherConfig(work_dir="somewhere").fault_tolerant_mode is True
    assert (
        DispatcherConfig(work_dir="somewhere", fault_tolerant_mode=False).fault_tolerant_mode
        is False
    )
    assert DispatcherConfig().fault_tolerant_mode is False


@pytest.mark.parametrize("nothing", ["", None])
def test_a_worker_needs_a_dispatcher(nothing: Any) -> None:
    """A worker without a dispatcher address is rejected with an example address."""
    with pytest.raises(ValueError, match=r"`dispatcher_address`.*tcp://"):
        WorkerConfig(nothing)
    with pytest.raises(ValueError, match="`dispatcher_address`"):
        WorkerConfig()


@pytest.mark.parametrize("tag", ["", "  "])
def test_a_tag_is_never_empty(tag: str) -> None:
    """An empty tag raises tf.data's message as an error that is also a RuntimeError."""
    with pytest.raises(FailedPreconditionError, match=r"Worker tags cannot be empty\.") as caught:
        WorkerConfig(HERE, worker_tags=("GPU", tag))
    assert isinstance(caught.value, RuntimeError)


@pytest.mark.parametrize(
    ("fields", "error", "text"),
    [
        ({"dispatcher_address": 5050}, TypeError, "`dispatcher_address` must be str"),
        ({"heartbeat_interval_ms": 0}, ValueError, "`heartbeat_interval_ms` must be at least 1"),
        ({"dispatcher_timeout_ms": 0}, ValueError, "`dispatcher_timeout_ms` must be at least 1"),
        ({"buffer_bytes": 0}, ValueError, "`buffer_bytes` must be at least 1"),
        (
            {"cross_trainer_cache_size_bytes": 0},
            ValueError,
            "`cross_trainer_cache_size_bytes` must be at least 1",
        ),
        (
            {"snapshot_max_chunk_size_bytes": 0},
            ValueError,
            "`snapshot_max_chunk_size_bytes` must be at least 1",
        ),
        (
            {"shutdown_quiet_period_ms": -1},
            ValueError,
            "`shutdown_quiet_period_ms` must be at least 0, got -1",
        ),
        ({"port": 65_536}, ValueError, "`port` must be between 0 and 65535 .*, got 65536"),
        (
            {"data_transfer_port": -1},
            ValueError,
            "`data_transfer_port` must be between 0 and 65535 .*, got -1",
        ),
        (
            {"worker_tags": "GPU"},
            TypeError,
            r"must be a list of strings, got 'GPU'; .* write \['GPU'\]",
        ),
        ({"data_ports": 7000}, TypeError, r"`data_ports` must be a pair \(first, last\), got 7000"),
        ({"data_ports": (7000,)}, TypeError, "`data_ports` must be a pair"),
        ({"data_ports": "7000-7100"}, TypeError, "`data_ports` must be a pair"),
        ({"data_ports": ("1", "2")}, TypeError, "`data_ports` must be int, got '1'"),
        ({"data_ports": (0, 5)}, ValueError, "`data_ports` must be between 1 and 65535, got 0$"),
        (
            {"data_ports": (1, 70_000)},
            ValueError,
            "`data_ports` must be between 1 and 65535, got 70000$",
        ),
        ({"data_ports": (7100, 7000)}, ValueError, r"first <= last, got \(7100, 7000\)"),
        (
            {"data_transfer_protocol": "rdma"},
            NotFoundError,
            "No data transfer server factory .* registered.*rdma",
        ),
        (
            {"shared_memory_bytes": -1},
            ValueError,
            "`shared_memory_bytes` must be at least 0, got -1",
        ),
        (
            {"shared_memory_bytes": 1},
            ValueError,
            "`shared_memory_bytes` must be at least 65536, or 0 for none, got 1",
        ),
        (
            {"data_transfer_protocol": "shm", "data_ports": (7, 8)},
            ValueError,
            "`data_ports` has no effect .*'shm'",
        ),
        # addresses
        (
            {"host": "/run/worker"},
            ValueError,
            "`host` must be .*, got '/run/worker'. .* on TCP, never on a path",
        ),
        (
            {"dispatcher_address": "a:b:c"},
            ValueError,
            "Malformed address 'a:b:c': expected 'host:port'",
        ),
        ({"dispatcher_address": "gate"}, ValueError, "The address 'gate' has no port"),
        (
            {"dispatcher_address": "grp://a:1"},
            NotFoundError,
            r"No credentials factory .* for protocol grp\.",
        ),
        ({"dispatcher_address": "tcp://*:1"}, ValueError, r"'\*' means every host"),
        ({"worker_address": "a:b:c"}, ValueError, "Malformed address 'a:b:c'"),
        (
            {"worker_address": "gate:70000"},
            ValueError,
            "has the port '70000'; expected a number between 1 and 65535",
        ),
        (
            {"worker_address": "0.0.0.0:%port%"},
            ValueError,
            "cannot connect to the host '0.0.0.0'",
        ),
        ({"data_transfer_address": "a:b:c"}, ValueError, "Malformed address 'a:b:c'"),
        (
            {"data_transfer_address": "*:%dts_port%"},
            ValueError,
            r"cannot connect to the host '\*'",
        ),
        # contradictions
        (
            {"heartbeat_interval_ms": 5_000, "dispatcher_timeout_ms": 5_000},
            ValueError,
            "`dispatcher_timeout_ms`=5000 .* must be longer than `heartbeat_interval_ms`=5000",
        ),
        (
            {"data_ports": (7000, 7100), "data_transfer_port": 7000},
            ValueError,
            "Set only one of them",
        ),
        (
            {"data_transfer_protocol": "ipc", "data_ports": (7, 8)},
            ValueError,
            "`data_ports` has no effect .*'ipc'",
        ),
        (
            {"data_transfer_protocol": "shm", "shared_memory_bytes": 0},
            ValueError,
            "leaves no memory for .*'shm'",
        ),
        (
            {"data_transfer_protocol": "ipc", "data_transfer_port": 7},
            ValueError,
            "`data_transfer_port` has no effect",
        ),
        (
            {"data_transfer_protocol": "ipc", "data_transfer_address": "gate"},
            ValueError,
            "`data_transfer_address` has no effect",
        ),
        (
            {"data_transfer_address": "gate:7000"},
            ValueError,
            "Write %dts_port% instead of the port, or set `data_transfer_port`",
        ),
        (
            {"data_transfer_address": "[::1]:7000", "data_ports": (7000, 7001)},
            ValueError,
            "names a single port for all",
        ),
    ],
)
def test_a_worker_refuses(fields: dict[str, Any], error: type[Exception], text: str) -> None:
    """The error about a worker's field has the given and the expected value."""
    with pytest.raises(error, match=text):
        WorkerConfig(**{"dispatcher_address": HERE, **fields})


def test_a_range_of_ports_may_be_a_list() -> None:
    """Data ports given as a list are stored as a pair."""
    assert WorkerConfig(HERE, data_ports=[7000, 7100]).data_ports == (7000, 7100)  # type: ignore[arg-type]


def test_one_data_port_may_be_announced() -> None:
    """The announced data address may name a port only if the worker has a single
    port.
    """
    for address in ("gate:7000", "gate", "gate:%dts_port%", "[::1]:7000", "::1"):
        config = WorkerConfig(HERE, data_transfer_address=address, data_transfer_port=7000)
        assert config.usable_data_ports == (7000, 7000)
    assert (
        WorkerConfig(
            HERE, data_transfer_address="gate:7000", data_ports=(7000, 7000)
        ).announced_data_port
        == "7000"
    )
    assert WorkerConfig(HERE, data_transfer_address="::1").announced_data_port == ""
    assert WorkerConfig(HERE, worker_address="gate:%port%").announced_port == ""
    assert WorkerConfig(HERE, worker_address="[::1]:5").announced_port == "5"


def test_an_unknown_field_is_refused() -> None:
    """An unknown field is rejected instead of ignored."""
    with pytest.raises(TypeError, match="snapshot_chunk_size"):
        WorkerConfig(HERE, snapshot_chunk_size=1)  # type: ignore[call-arg]


@pytest.mark.parametrize("kind", [DispatcherConfig, WorkerConfig])
def test_the_docstring_explains_every_field(kind: type[Any]) -> None:
    """The docstring of a configuration contains the declaration of every field."""
    told = inspect.getdoc(kind) or ""
    for field in dataclasses.fields(kind):
        assert f"\n    {field.name}: {declaration_of(field).meaning}.\n" in told


# --- environment


def test_the_environment_fills_what_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """ZMQDATA_* variables fill in missing fields; given fields win, and the rest use
    defaults.
    """
    monkeypatch.setenv("ZMQDATA_PORT", " 7000 ")
    monkeypatch.setenv("ZMQDATA_WORKER_TIMEOUT_MS", "20_000")
    monkeypatch.setenv("ZMQDATA_CLIENT_TIMEOUT_MS", "")
    monkeypatch.setenv("ZMQDATA_GC_DYNAMIC_SHARDING_JOBS", "False")
    monkeypatch.setenv("ZMQDATA_WORKER_ADDRESSES", "a, b:1")
    config = DispatcherConfig.from_environment(port=8000)
    assert (config.port, config.worker_timeout_ms, config.client_timeout_ms) == (
        8000,
        20_000,
        15_000,
    )
    assert (config.gc_dynamic_sharding_jobs, config.worker_addresses) == (False, ("a", "b:1"))


def test_a_configuration_by_itself_is_explicit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A configuration built from its class ignores the environment."""
    monkeypatch.setenv("ZMQDATA_PORT", "7000")
    assert DispatcherConfig().port == 0


def test_a_worker_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker reads its fields and ZMQDATA_DISPATCHER from the environment."""
    monkeypatch.setenv("ZMQDATA_DISPATCHER", HERE)
    monkeypatch.setenv("ZMQDATA_DATA_PORTS", "7000-7100")
    monkeypatch.setenv("ZMQDATA_WORKER_TAGS", "GPU,COLOCATED")
    config = WorkerConfig.from_environment()
    assert config == WorkerConfig(HERE, data_ports=(7000, 7100), worker_tags=("GPU", "COLOCATED"))


@pytest.mark.parametrize(
    ("variable", "text", "expected"),
    [
        ("ZMQDATA_PORT", "http", "expected a whole number, got 'http'"),
        (
            "ZMQDATA_PORT",
            "tcp://10.0.0.1:5050",
            "Kubernetes sets this variable for a service with this name; set `enableServiceLinks",
        ),
        ("ZMQDATA_PORT", "70000", "`port` must be between 0 and 65535"),
        ("ZMQDATA_GC_DYNAMIC_SHARDING_JOBS", "maybe", "expected 1, 0, true or false, got 'maybe'"),
        ("ZMQDATA_DEPLOYMENT_MODE", "x", "must be one of 'COLOCATED'"),
        ("ZMQDATA_PROTOCOL", "grpc", "No credentials factory"),
        ("ZMQDATA_WORKER_ADDRESSES", "a,,b", "must not have empty entries"),
        ("ZMQDATA_FAULT_TOLERANT_MODE", "1", "Cannot enable fault tolerant mode"),
    ],
)
def test_what_is_wrong_in_the_environment_is_named(
    monkeypatch: pytest.MonkeyPatch, variable: str, text: str, expected: str
) -> None:
    """An invalid environment value raises with its variable and the expected value."""
    monkeypatch.setenv(variable, text)
    with pytest.raises((ValueError, NotFoundError)) as caught:
        DispatcherConfig.from_environment()
    assert expected in str(caught.value)
    assert (f"{variable}={text}" in str(caught.value)) or variable == "ZMQDATA_FAULT_TOLERANT_MODE"


def test_what_is_wrong_elsewhere_is_not_blamed_on_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An error about an explicit argument does not mention the environment."""
    monkeypatch.setenv("ZMQDATA_PORT", "7000")
    with pytest.raises(ValueError, match=r"got 0$"):
        DispatcherConfig.from_environment(worker_timeout_ms=0)


def test_contradictions_with_the_environment_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error about an argument that contradicts the environment names both."""
    monkeypatch.setenv("ZMQDATA_DATA_PORTS", "7000-7100")
    with pytest.raises(
        ValueError,
        match=r"Set only one of them \(the environment has ZMQDATA_DATA_PORTS=7000-7100\)",
    ):
        WorkerConfig.from_environment(dispatcher_address=HERE, data_transfer_port=7000)


@pytest.mark.parametrize("bad", [{"a", "b"}, frozenset({"a"})])
def test_places_have_an_order(bad: Any) -> None:
    """A set of worker addresses is rejected, as a worker's position selects its
    input.
    """
    with pytest.raises(TypeError, match=r"`worker_addresses` must be a list.* set has no order"):
        DispatcherConfig(worker_addresses=bad)


@pytest.mark.parametrize(
    ("entries", "text"),
    [
        (["a:5000", "b", "A:5000"], "'A:5000' twice"),
        (["tcp://a:5000", "tcp://a:5000"], "twice"),
        (["[::1]:5000", "[::1]:5000"], "twice"),
        (["a b"], "spaces"),
        ([" a"], "spaces"),
        (["a\n"], "spaces"),
        (["a:0"], "port 0 in 'a:0'"),
        (["a:65536"], "port 65536"),
        (["a:" + "9" * 5000], "port 9999"),
    ],
)
def test_places_that_nobody_could_take_are_refused(entries: list[str], text: str) -> None:
    """Duplicate and nonexistent ports are rejected, as a static job would wait
    forever.
    """
    with pytest.raises(ValueError, match=text):
        DispatcherConfig(worker_addresses=entries)  # type: ignore[arg-type]  # a list becomes a tuple


@pytest.mark.parametrize(
    "entries",
    [
        ("a:5000", "a:5001"),
        ("a", "a"),
        ("a:%port%", "a:%port%"),
        ("a:worker", "a:worker"),
        ("::1", "::1"),
        ("[::1]:5", "::1"),
    ],
)
def test_places_of_one_host_are_as_many_as_wanted(entries: tuple[str, ...]) -> None:
    """A host may have any number of open and named ports; a bare IPv6 address has no
    port.
    """
    assert DispatcherConfig(worker_addresses=entries).worker_addresses == entries


def test_a_drain_may_take_no_time() -> None:
    """The seconds of a drain are a number from 0 on."""
    assert WorkerConfig(HERE, drain_seconds=0).drain_seconds == 0.0
    for wrong in (-1, math.nan, 1e12, "6"):
        with pytest.raises((TypeError, ValueError), match="`drain_seconds` must be a number"):
            WorkerConfig(HERE, drain_seconds=wrong)


@pytest.mark.parametrize("name", ["x" * 101, "two\nlines", "bell\a"])
def test_a_name_that_no_table_can_show_is_refused(name: str) -> None:
    """The name of a worker has at most 100 printable characters."""
    assert WorkerConfig(HERE, name="Nürnberg 17").name == "Nürnberg 17"
    with pytest.raises(ValueError, match="`name` must have at most 100 printable characters"):
        WorkerConfig(HERE, name=name)


def test_the_death_timeout_is_in_seconds() -> None:
    """The option and the environment variable are in seconds, and tf.data's field is in
    milliseconds.
    """
    [field] = [
        one for one in dataclasses.fields(WorkerConfig) if one.name == "dispatcher_timeout_ms"
    ]
    assert (read_text(field, "2.5"), text_of(field, 2500), default_of(field)) == (
        2500,
        "2.5",
        "3600",
    )
    with pytest.raises(ValueError, match="expected a number, got '1h'"):
        read_text(field, "1h")
