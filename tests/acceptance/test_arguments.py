"""Section 1.4: each public function refuses impossible arguments at the call instead of
blocking later.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import zmqdata
from tests.acceptance.reading import OFF, numbers, read, rows, some
from zmqdata.errors import InvalidArgumentError, NotFoundError, UnavailableError

NOWHERE = "tcp://127.0.0.1:1"
RANGE = zmqdata.Dataset.range(10)
REFUSED = (TypeError, ValueError, NotFoundError)

BAD_SERVICES = {
    1: r"`service` must be a string",
    None: r"`service` must be a string",
    b"tcp://a:1": r"`service` must be a string",
    ("tcp",): r"`service` must be a string",
    ("tcp", 5): r"`service` must be a string",
    ("tcp", ""): "empty",
    ("", "a:1"): "empty",
    "": r"^`service` must not be empty$",
    "tcp://a://b": "Malformed",
    "://a:1": "Malformed",
    "tcp://": "address",
    "tcp://host": "port",
    "host": "port",
    "tcp://host:0": "port",
    "tcp://host:99999": "port",
    "tcp://host:abc": "port",
    "tcp:// host:5": "host",
    "tcp://:5050": "host",
    "ipc://": "ipc",
    "ipc://" + "x" * 300: "ipc",
    "grp://a:1": "No credentials factory has been registered for protocol grp",
    "grpc://a:1": "No credentials factory has been registered for protocol grpc",
    "tcp://[::1:5050": "Malformed",
    "a:1\n": "address",
    "tcp://*:5050": "every host",
}
BAD_ARGUMENTS = [
    ("processing_mode", "invalid", r"parallel_epochs.*distributed_epoch.*Got 'invalid'\."),
    ("processing_mode", None, "processing_mode"),
    ("processing_mode", 1, "processing_mode"),
    ("processing_mode", "", "processing_mode"),
    ("processing_mode", "DYNAMIC ", "processing_mode"),
    ("processing_mode", zmqdata.ShardingPolicy, "processing_mode"),
    ("processing_mode", b"parallel_epochs", "processing_mode"),
    ("job_name", "", r"`job_name` must not be empty"),
    ("job_name", 1, r"`job_name` must be a string"),
    ("job_name", b"job", r"`job_name` must be a string"),
    ("job_name", ["job"], r"`job_name` must be a string"),
    ("max_outstanding_requests", 0, "max_outstanding_requests"),
    ("max_outstanding_requests", -5, "max_outstanding_requests"),
    ("max_outstanding_requests", 1.5, "max_outstanding_requests"),
    ("max_outstanding_requests", "3", "max_outstanding_requests"),
    ("max_outstanding_requests", True, "max_outstanding_requests"),
    ("task_refresh_interval_hint_ms", 0, "task_refresh_interval_hint_ms"),
    ("task_refresh_interval_hint_ms", -1, "task_refresh_interval_hint_ms"),
    ("task_refresh_interval_hint_ms", "20", "task_refresh_interval_hint_ms"),
    ("data_transfer_protocol", "grpc", "not available"),
    ("data_transfer_protocol", "", "not available"),
    ("data_transfer_protocol", 1, "not available"),
    ("data_transfer_protocol", ["tcp"], "not available"),
    ("data_transfer_protocol", {}, "not available"),
    ("cross_trainer_cache", "first", "CrossTrainerCache"),
    ("cross_trainer_cache", True, "CrossTrainerCache"),
    ("cross_trainer_cache", 0, "CrossTrainerCache"),
    ("target_workers", "REMOTE", "Unrecognized target workers"),
    ("target_workers", "", "Unrecognized target workers"),
    ("target_workers", None, "Unrecognized target workers"),
    ("target_workers", 1, "Unrecognized target workers"),
    ("dispatcher_timeout", 0, "dispatcher_timeout"),
    ("dispatcher_timeout", -1.0, "dispatcher_timeout"),
    ("dispatcher_timeout", math.nan, "dispatcher_timeout"),
    ("dispatcher_timeout", "5", "dispatcher_timeout"),
    ("dispatcher_timeout", None, "dispatcher_timeout"),
    ("deterministic", None, "deterministic"),
    ("deterministic", 1, "deterministic"),
    ("num_tasks", 0, "num_tasks"),
    ("num_tasks", True, "num_tasks"),
    ("num_tasks", 2.0, "num_tasks"),
    ("num_tasks", 10**6, "num_tasks"),
    ("num_tasks", 4, "`num_tasks=4` needs `deterministic=True`"),
]
BAD_COMPRESSIONS = ["foo", "", 1, True, "auto", b"AUTO", ["lz4"], {}]
BAD_SHIPS = [
    "no_module_of_this_name",
    ["no_module_of_this_name"],
    [1],
    5,
    [""],
    [None],
    ["/no/such/folder.py"],
]


def distributed(**changed: Any) -> zmqdata.Dataset:
    """Distribute a dataset with good arguments and the given changes; no dispatcher
    listens.
    """
    arguments = {"processing_mode": "parallel_epochs", "service": NOWHERE, **changed}
    return RANGE.apply(zmqdata.distribute(**arguments))


def by_id(**changed: Any) -> zmqdata.Dataset:
    arguments = {
        "processing_mode": "parallel_epochs",
        "service": NOWHERE,
        "dataset_id": "x",
        **changed,
    }
    return zmqdata.from_dataset_id(**arguments)


def registered(**changed: Any) -> str:
    return zmqdata.register_dataset(**{"service": NOWHERE, "dataset": RANGE, **changed})


@pytest.mark.claim("1.4a", "7.26", "7.27", "7.28")
@pytest.mark.parametrize("call", [distributed, by_id, registered])
@pytest.mark.parametrize("service", BAD_SERVICES, ids=repr)
def test_bad_services(call: Callable[..., object], service: Any) -> None:
    """Each function that takes a service names the fault of the service before it
    contacts a dispatcher.
    """
    with pytest.raises(REFUSED, match=BAD_SERVICES[service]):
        call(service=service)


@pytest.mark.claim("1.4b", "1.4d", "1.4g", "7.22", "7.23", "7.29")
@pytest.mark.parametrize("call", [distributed, by_id])
@pytest.mark.parametrize(("name", "bad", "text"), BAD_ARGUMENTS)
def test_bad_arguments(call: Callable[..., object], name: str, bad: Any, text: str) -> None:
    """An argument of a wrong type, an empty value and a value out of range are errors
    at the call.
    """
    with pytest.raises(REFUSED, match=text):
        call(**{name: bad})


@pytest.mark.claim("1.4c", "7.21")
@pytest.mark.parametrize("call", [distributed, registered])
@pytest.mark.parametrize("bad", BAD_COMPRESSIONS)
def test_bad_compressions(call: Callable[..., object], bad: Any) -> None:
    """An unknown compression is refused in tf.data's words."""
    with pytest.raises(ValueError, match="Invalid `compression` argument"):
        call(compression=bad)


@pytest.mark.claim("1.4o")
@pytest.mark.parametrize("call", [distributed, registered])
@pytest.mark.parametrize("bad", BAD_SHIPS)
def test_bad_ships(call: Callable[..., object], bad: Any) -> None:
    """A module that cannot be shipped is an error at the call."""
    with pytest.raises((TypeError, ValueError)):
        call(ship=bad)


@pytest.mark.claim("1.4e")
@pytest.mark.parametrize("bad", ["", 5, b"id", ["id"]])
@pytest.mark.parametrize("call", [by_id, registered])
def test_bad_dataset_ids(call: Callable[..., object], bad: Any) -> None:
    """A dataset id is a text that is not empty."""
    with pytest.raises((TypeError, ValueError), match="dataset_id"):
        call(dataset_id=bad)


@pytest.mark.claim("1.4e")
@pytest.mark.parametrize("bad", [None, 5, [1, 2], "range", zmqdata.Dataset, iter(())])
def test_only_datasets_are_registered(bad: Any) -> None:
    """Values other than datasets can be neither registered nor distributed."""
    with pytest.raises(TypeError, match="Dataset"):
        registered(dataset=bad)
    with pytest.raises(TypeError, match="Dataset"):
        zmqdata.distribute("parallel_epochs", NOWHERE)(bad)


@pytest.mark.claim("1.4h", "7.20")
@pytest.mark.parametrize("bad", [None, "", 1, b"a", ["a"]])
def test_a_cache_names_its_reader(bad: Any) -> None:
    """A cross-trainer cache needs a trainer id that is a text and not empty."""
    with pytest.raises(ValueError, match="requires a non-empty trainer ID"):
        zmqdata.CrossTrainerCache(trainer_id=bad)


@pytest.mark.claim("1.4h", "5.4f", "7.15")
@pytest.mark.parametrize("call", [distributed, by_id])
def test_a_cache_needs_a_job_name(call: Callable[..., object]) -> None:
    """A cross-trainer cache needs a job name, because a job without a name has a single
    reader.
    """
    with pytest.raises(
        InvalidArgumentError,
        match=r"Cross-trainer caching requires named jobs\. Got empty `job_name`",
    ):
        call(cross_trainer_cache=zmqdata.CrossTrainerCache("first"))


@pytest.mark.claim("4.6d")
@pytest.mark.parametrize("call", [distributed, by_id])
def test_the_transport_within_a_process_reads_no_others(call: Callable[..., object]) -> None:
    """The transport ``"local"`` and the target ``"ANY"`` contradict each other."""
    with pytest.raises(InvalidArgumentError, match="local"):
        call(data_transfer_protocol="local", target_workers="ANY")


@pytest.mark.claim("1.4p")
@pytest.mark.parametrize("call", [distributed, by_id, registered])
def test_misspelt_arguments_are_refused(call: Callable[..., object]) -> None:
    """An unknown argument is a TypeError."""
    with pytest.raises(TypeError):
        call(proccesing_mode="parallel_epochs")


@pytest.mark.claim("1.4p")
def test_what_cannot_be_sent_is_said_at_the_call() -> None:
    """``distribute`` refuses a function that holds a lock between processes."""
    import multiprocessing

    lock = multiprocessing.Lock()
    with pytest.raises(TypeError, match="lock"):
        RANGE.map(lambda x: (lock, x)[1]).apply(zmqdata.distribute("parallel_epochs", NOWHERE))


@pytest.mark.claim("4.1a")
@pytest.mark.parametrize("action", ["iterate", "register", "from id"])
def test_an_absent_dispatcher_is_an_error_in_time(silent_address: str, action: str) -> None:
    """A call without a dispatcher fails after ``dispatcher_timeout``, and the error
    names the address.
    """
    actions: dict[str, Callable[[], object]] = {
        "iterate": lambda: next(iter(read(RANGE, silent_address, dispatcher_timeout=0.3))),
        "register": lambda: zmqdata.register_dataset(silent_address, RANGE, dispatcher_timeout=0.3),
        "from id": lambda: zmqdata.from_dataset_id(
            "parallel_epochs", silent_address, "x", dispatcher_timeout=0.3
        ),
    }
    with pytest.raises(UnavailableError, match=silent_address):
        actions[action]()


@pytest.mark.claim("1.4a")
@pytest.mark.core
def test_every_form_of_a_service(cluster: zmqdata.LocalCluster) -> None:
    """A service is an address with a protocol, without a protocol, as a pair, or with a
    host name.
    """
    protocol, address = cluster.target.split("://")
    port = address.rpartition(":")[2]
    for service in (cluster.target, address, (protocol, address), f"localhost:{port}"):
        assert sorted(
            numbers(RANGE.apply(zmqdata.distribute("distributed_epoch", service)))
        ) == list(range(10))


@pytest.mark.claim("1.4b")
def test_modes_have_two_names(cluster: zmqdata.LocalCluster) -> None:
    """ "parallel_epochs" is OFF and "distributed_epoch" is DYNAMIC; the six policies
    have tf.data's numbers.
    """
    assert (
        len(numbers(read(RANGE, cluster, "parallel_epochs")))
        == len(numbers(read(RANGE, cluster, OFF)))
        == 20
    )
    assert len(numbers(read(RANGE, cluster, "distributed_epoch"))) == 10
    policies = {policy.name: policy.value for policy in zmqdata.ShardingPolicy}
    assert policies == {"OFF": 0, "DYNAMIC": 1, "FILE": 2, "DATA": 3, "FILE_OR_DATA": 4, "HINT": 5}


@pytest.mark.claim("1.4c", "3.7d")
@pytest.mark.parametrize("compression", ["AUTO", None, "lz4", "lz4hc", "zstd", "zlib", "blosclz"])
def test_every_compression_keeps_the_values(
    cluster: zmqdata.LocalCluster, compression: str | None
) -> None:
    """Every codec returns the elements unchanged."""
    ds = RANGE.map(lambda x: ("text" * int(x), x)).batch(5)
    found = [
        pair
        for batch in read(ds, cluster, compression=compression)
        for pair in zip(*batch, strict=True)
    ]
    assert sorted((str(text), int(x)) for text, x in found) == [("text" * x, x) for x in range(10)]


@pytest.mark.claim("1.4g", "4.3c")
@pytest.mark.parametrize("most", [1, 2, 7, 10**9])
@pytest.mark.core
def test_any_number_of_outstanding_requests_will_do(
    cluster: zmqdata.LocalCluster, most: int
) -> None:
    """Every element arrives once at every limit of outstanding requests."""
    ds = read(zmqdata.Dataset.range(100), cluster, max_outstanding_requests=most)
    assert sorted(numbers(ds)) == list(range(100))


@pytest.mark.claim("1.4i")
def test_an_infinite_dispatcher_timeout_is_allowed(cluster: zmqdata.LocalCluster) -> None:
    """``dispatcher_timeout`` may be infinite."""
    assert len(numbers(read(RANGE, cluster, dispatcher_timeout=math.inf))) == 10


@pytest.mark.claim("1.4f")
@pytest.mark.core
def test_names_within_an_id_are_its_own(cluster: zmqdata.LocalCluster) -> None:
    """Two dataset ids with equal job names have two jobs."""
    first = zmqdata.register_dataset(cluster.target, zmqdata.Dataset.range(5))
    second = zmqdata.register_dataset(cluster.target, zmqdata.Dataset.range(7))
    assert first != second
    for dataset_id, count in ((first, 5), (second, 7)):
        ds = zmqdata.from_dataset_id(
            "distributed_epoch", cluster.target, dataset_id, job_name="same-for-both"
        )
        assert sorted(numbers(ds)) == list(range(count))


@pytest.mark.claim("1.4f")
def test_ids_and_names_are_never_mixed_up(cluster: zmqdata.LocalCluster) -> None:
    """Two pairs of dataset id and job name are two jobs, even if their joined texts are
    equal.
    """
    pairs = [("a_b", "c"), ("a", "b_c"), ("a/b", "c"), ("a", "b/c"), ("a%2Fb", "c")]
    for dataset_id, job_name in pairs:
        first = {"a_b": 3, "a": 4, "a/b": 5, "a%2Fb": 6}[dataset_id]
        zmqdata.register_dataset(
            cluster.target, zmqdata.Dataset.range(first, first + 5), dataset_id=dataset_id
        )
        ds = zmqdata.from_dataset_id(
            "distributed_epoch", cluster.target, dataset_id, job_name=job_name
        )
        assert sorted(numbers(ds)) == list(range(first, first + 5))


@pytest.mark.claim("2.4e")
def test_each_registrar_has_its_compression(cluster: zmqdata.LocalCluster) -> None:
    """A dataset gets an id for each compression with which it is registered."""
    ds = zmqdata.Dataset.range(11)
    ids = [
        zmqdata.register_dataset(cluster.target, ds, compression=choice)
        for choice in (None, "zstd", None)
    ]
    assert ids[0] == ids[2] != ids[1]


@pytest.mark.claim("1.4k")
def test_more_elements_than_can_be_counted(cluster: zmqdata.LocalCluster) -> None:
    """A dataset of more than 2**64 elements has an unknown cardinality, and the service
    runs it.
    """
    huge = zmqdata.Dataset.range(2**62).repeat(2**62)
    assert len(some(iter(read(huge, cluster)), 3)) == 3
    dataset_id = zmqdata.register_dataset(cluster.target, huge)
    assert (
        zmqdata.from_dataset_id(OFF, cluster.target, dataset_id).cardinality()
        == zmqdata.UNKNOWN_CARDINALITY
    )


@pytest.mark.claim("1.4j")
def test_a_pipeline_from_main_and_closures_goes_along(cluster: zmqdata.LocalCluster) -> None:
    """Workers run a lambda with a captured variable without installing anything."""
    factor = 3
    assert sorted(numbers(read(RANGE.map(lambda x: x * factor), cluster))) == [
        x * 3 for x in range(10)
    ]


@pytest.mark.claim("1.4o")
@pytest.mark.core
def test_shipped_modules_need_no_installation(
    cluster: zmqdata.LocalCluster, tmp_path: Path
) -> None:
    """Workers import a module that the client ships and that they do not have."""
    (tmp_path / "shipped_for_acceptance.py").write_text("def triple(x):\n    return x * 3\n")
    import sys

    sys.path.insert(0, str(tmp_path))
    try:
        import shipped_for_acceptance

        ds = RANGE.map(shipped_for_acceptance.triple)
        shipped = read(ds, cluster, ship=[shipped_for_acceptance])
    finally:
        sys.path.remove(str(tmp_path))
    assert sorted(numbers(shipped)) == [x * 3 for x in range(10)]


@pytest.mark.claim("1.4k")
def test_len_and_cardinality(cluster: zmqdata.LocalCluster) -> None:
    """``len`` of a distributed dataset of unknown or infinite cardinality is a
    TypeError.
    """
    for ds in (RANGE, RANGE.repeat()):
        with pytest.raises(TypeError):
            len(read(ds, cluster))
    assert some(read(RANGE.repeat(), cluster), 3)
    assert rows(read(RANGE.batch(5), cluster, OFF).take(1))


CLUSTER_FAULTS: list[dict[str, Any]] = [
    {"num_workers": -1},
    {"num_workers": "2"},
    {"num_workers": 1.5},
    {"num_workers": None},
    {"num_workers": 2**70},
    {"processes_per_worker": 10**6},
    {"processes_per_worker": 0},
    {"processes_per_worker": "auto"},
    {"in_process": "yes"},
    {"in_process": 1},
    {"in_process": True, "processes_per_worker": 2},
    {"no_such_option": 1},
    {"protocol": "tcp"},
    {"dispatcher_address": NOWHERE},
    {"heartbeat_interval_ms": 0},
    {"heartbeat_interval_ms": 1000, "worker_timeout_ms": 500},
    {"worker_addresses": "localhost"},
    {"worker_address": "127.0.0.1:7000", "num_workers": 2},
    {"data_ports": (7000, 7000), "num_workers": 2},
    {"host": ""},
    {"port": -1},
]


@pytest.mark.claim("1.4q")
@pytest.mark.parametrize("fault", CLUSTER_FAULTS, ids=repr)
@pytest.mark.parametrize("in_process", [True, False])
def test_bad_clusters(fault: dict[str, Any], in_process: bool) -> None:
    """A local cluster refuses its servers' bad arguments before it starts a server."""
    with pytest.raises((TypeError, ValueError)):
        zmqdata.LocalCluster(**{"in_process": in_process, **fault}).close()


@pytest.mark.claim("1.4q")
@pytest.mark.parametrize("bad", [None, 5, "config", {"port": 0}, zmqdata.DispatcherConfig])
def test_servers_take_configurations_only(bad: Any) -> None:
    """A server refuses anything but a configuration of its own kind, and names the
    argument.
    """
    if bad is not None:
        with pytest.raises(TypeError, match="config"):
            zmqdata.DispatchServer(bad)
    with pytest.raises(TypeError, match="config"):
        zmqdata.WorkerServer(bad)
    with pytest.raises(TypeError, match="config"):
        zmqdata.WorkerServer(zmqdata.DispatcherConfig())  # type: ignore[arg-type]


@pytest.mark.claim("1.4q")
@pytest.mark.parametrize("bad", ["yes", None, 1])
def test_start_is_true_or_false(bad: Any) -> None:
    """``start`` is a bool."""
    with pytest.raises(TypeError, match="start"):
        zmqdata.DispatchServer(start=bad)
    with pytest.raises(TypeError, match="start"):
        zmqdata.WorkerServer(zmqdata.WorkerConfig(NOWHERE), start=bad)
