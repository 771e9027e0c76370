"""Facts about code and large arrays that a pipeline carries from the training loop to
the worker and back.
"""

from __future__ import annotations

import importlib
import sys
import textwrap
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.service.conftest import Service
from zmqdata import Dataset, distribute, from_dataset_id, register_dataset
from zmqdata.elements.specs import TensorSpec
from zmqdata.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    PipelineError,
    ResourceExhaustedError,
)

MEGABYTE = 1 << 20


@pytest.fixture
def ferry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[int], types.ModuleType]]:
    """A function that makes versions of a package that can be imported until it is
    removed.
    """
    path = list(sys.path)

    def forget() -> None:
        for name in [name for name in sys.modules if name.partition(".")[0] == "ferry"]:
            del sys.modules[name]

    def make(version: int) -> types.ModuleType:
        folder = tmp_path / f"version{version}" / "ferry"
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text(f"VERSION = {version}\n")
        (folder / "cargo.py").write_text(
            textwrap.dedent("""
            from __future__ import annotations
            import dataclasses

            @dataclasses.dataclass
            class Crate:
                number: int
                version: int

            class Sunk(Exception): pass

            class Barge:
                def __init__(self, number): self.number = number

            def tow(x):
                return Barge(int(x))

            def load(x):
                from ferry import VERSION
                return Crate(int(x), VERSION)

            def sink(x):
                raise Sunk("at sea", int(x))
            """)
        )
        forget()
        monkeypatch.setattr(sys, "path", [str(folder.parent), *path])
        importlib.invalidate_caches()
        return importlib.import_module("ferry.cargo")

    yield make
    forget()


def test_two_datasets_ship_two_versions_of_a_module(service: Service, ferry: Any) -> None:
    """Two datasets that the same workers read in turn each use their own version of a
    module, and elements are of the client's class.
    """
    reads = []
    for version in (1, 2):
        cargo = ferry(version)
        reads.append(
            (version, iter(service.read(Dataset.range(50).map(cargo.load), ship=["ferry"])))
        )
    for _ in range(50):
        for version, read in reads:
            crate = next(read)
            assert crate.version == version
    assert type(crate) is cargo.Crate


def test_objects_of_shipped_classes_arrive(service: Service, ferry: Any) -> None:
    """Workers pickle objects of shipped classes under the names that the client
    knows.
    """
    cargo = ferry(1)
    found = [
        *service.read(
            Dataset.range(3).map(cargo.tow, output_spec=TensorSpec((), "O")), ship=["ferry"]
        )
    ]
    assert {type(one) for one in found} == {cargo.Barge}
    assert sorted(one.number for one in found) == [0, 1, 2]


def test_exceptions_of_shipped_code_have_their_names(service: Service, ferry: Any) -> None:
    """The cause is of the client's class, and no message names the folder in which the
    worker keeps the module.
    """
    cargo = ferry(1)
    with pytest.raises(PipelineError, match="Sunk") as caught:
        list(service.read(Dataset.range(1).map(cargo.sink), ship=[cargo]))
    assert isinstance(caught.value.__cause__, cargo.Sunk)
    assert "zmqdata_shipped_" not in str(caught.value)


def test_a_registered_dataset_brings_its_code(service: Service, ferry: Any) -> None:
    """A client that reads a registered dataset by its id needs none of its code."""
    cargo = ferry(3)
    dataset = Dataset.range(2).map(lambda x: cargo.load(x).version)
    name = register_dataset(service.target, dataset, ship=[cargo])
    assert [*from_dataset_id("distributed_epoch", service.target, name)] == [3, 3]


@pytest.mark.parametrize(
    ("ship", "kind", "text"),
    [
        ("ferry", TypeError, "must be a list"),
        (["numpy"], ValueError, "contains compiled code"),
        (["no_such_module"], ValueError, "the module 'no_such_module' does not exist"),
    ],
)
def test_what_cannot_be_shipped_is_an_error_at_the_call(
    ship: Any, kind: type[Exception], text: str
) -> None:
    """The call refuses code that cannot be shipped without asking a dispatcher."""
    with pytest.raises(kind, match=text):
        Dataset.range(1).apply(distribute("distributed_epoch", "127.0.0.1:1", ship=ship))
    with pytest.raises(kind, match=text):
        register_dataset("127.0.0.1:1", Dataset.range(1), ship=ship)


# --- large arrays


def test_a_large_array_goes_through_once(
    make_service: Callable[..., Service], tmp_path: Path
) -> None:
    """A second pipeline with the same large array sends and fetches only itself, and
    workers share a single file.
    """
    service = make_service(
        2, {"pipeline_cache_dir": str(tmp_path / "cache")}, work_dir=str(tmp_path / "work")
    )
    table = np.random.default_rng(1).integers(0, 255, 5 * MEGABYTE, np.uint8)
    for shift in (0, 1):
        dataset = Dataset.range(0, 5 * MEGABYTE, 1000).map(
            lambda x, shift=shift: int(table[x]) + shift
        )
        assert sorted(service.read(dataset)) == sorted((table[::1000].astype(int) + shift).tolist())
    [part] = (tmp_path / "cache").iterdir()
    assert part.stat().st_size == table.nbytes
    written = (tmp_path / "work" / "pipelines" / part.name).stat()
    kept = [
        path
        for path in (tmp_path / "work" / "pipelines").iterdir()
        if path.stat().st_size >= MEGABYTE
    ]
    assert [path.stat().st_mtime_ns for path in kept] == [written.st_mtime_ns]


def test_a_large_pickle_goes_in_pieces_too(service: Service) -> None:
    """A list of a million names is a part of its own."""
    names = [f"name {number}" for number in range(200_000)]
    assert sorted(service.read(Dataset.range(3).map(lambda x: names[x]))) == names[:3]


def test_pieces_fit_into_small_messages(make_service: Callable[..., Service]) -> None:
    """A dispatcher that accepts only small messages still receives large pipelines."""
    service = make_service(1, max_message_bytes=1 << 16)
    table = np.arange(2 * MEGABYTE, dtype=np.uint8)
    names = [f"name {number}" for number in range(20_000)]
    found = [*service.read(Dataset.range(3).map(lambda x: (int(table[x]), names[x])))]
    assert found == [(0, "name 0"), (1, "name 1"), (2, "name 2")]


def test_a_pipeline_may_write_to_its_arrays(service: Service, tmp_path: Path) -> None:
    """No other task and no later reader sees what a task writes to the arrays of its
    pipeline.
    """
    counts = np.zeros(2 * MEGABYTE, np.uint8)

    def count(x: Any) -> int:
        counts[0] += 1
        return int(counts[0])

    for _ in range(2):
        assert max(service.read(Dataset.range(10).map(count), "parallel_epochs")) == 10


def test_a_corrupted_file_in_the_cache_is_fetched_anew(
    make_service: Callable[..., Service], tmp_path: Path
) -> None:
    """The next worker detects the corrupted file by its digest, and fetches the part
    again.
    """
    service = make_service(1, {"pipeline_cache_dir": str(tmp_path)})
    table = np.arange(2 * MEGABYTE, dtype=np.uint8)
    dataset = Dataset.range(3).map(lambda x: int(table[x]))
    assert [*service.read(dataset)] == [0, 1, 2]
    service.workers.pop().stop()
    [part] = tmp_path.iterdir()
    part.write_bytes(bytes(2 * MEGABYTE))
    service.add_worker(pipeline_cache_dir=str(tmp_path))
    assert [*service.read(dataset)] == [0, 1, 2]


def test_a_cache_without_room_is_an_error_with_a_remedy(
    make_service: Callable[..., Service], tmp_path: Path
) -> None:
    """The training loop gets the error with a remedy, and the worker lives on."""
    service = make_service(
        1, {"pipeline_cache_dir": str(tmp_path / "cache"), "pipeline_cache_bytes": MEGABYTE}
    )
    table = np.zeros(2 * MEGABYTE, np.uint8)
    with pytest.raises(FailedPreconditionError, match=r"no room for it.*--pipeline-cache-bytes"):
        list(service.read(Dataset.range(3).map(lambda x: int(table[x]))))
    assert [*service.read(Dataset.range(3))] == [0, 1, 2]


def test_a_dispatcher_that_cannot_keep_a_part_says_so(
    make_service: Callable[..., Service], tmp_path: Path
) -> None:
    """A full disk or a missing work folder fails the registration of a client, and,
    without a journal, nothing else.
    """
    service = make_service(1, work_dir=str(tmp_path / "work"), fault_tolerant_mode=False)
    (tmp_path / "work" / "pipelines").rmdir()
    table = np.zeros(2 * MEGABYTE, np.uint8)
    with pytest.raises(
        ResourceExhaustedError, match=r"No such file or directory: .*work.*--work-dir"
    ):
        list(service.read(Dataset.range(3).map(lambda x: int(table[x]))))
    assert [*service.read(Dataset.range(3))] == [0, 1, 2]


# --- registration


def test_what_a_function_makes_is_known_by_id(service: Service) -> None:
    """The client finds the spec at registration, because a reader by id cannot run the
    functions.
    """
    dataset = Dataset.range(3).map(lambda x: {"a": x}).batch(2)
    name = register_dataset(service.target, dataset)
    read = from_dataset_id("distributed_epoch", service.target, name)
    assert read.element_spec == dataset.element_spec == {"a": TensorSpec((None,), "int64")}


def test_a_dataset_whose_functions_fail_here_is_registered(service: Service) -> None:
    """The client registers a dataset without a spec if its functions fail here, because
    they may need files that only workers have.
    """
    here = "zmqdata_tests_lacking_a_file"

    def parse(x: Any) -> Any:
        if sys.modules.get(here) is not None:
            raise FileNotFoundError("only workers have it")
        return x

    sys.modules[here] = types.ModuleType(here)
    try:
        name = register_dataset(service.target, Dataset.range(3).map(parse))
    finally:
        del sys.modules[here]
    assert sorted(from_dataset_id("distributed_epoch", service.target, name)) == [0, 1, 2]


def test_an_id_stands_for_one_structure_and_compression(service: Service) -> None:
    """Other functions under an id are no error and change nothing; another structure or
    compression is an error.
    """
    first = Dataset.range(3).map(lambda x: x + 1)
    assert register_dataset(service.target, first, dataset_id="one") == "one"
    assert (
        register_dataset(service.target, Dataset.range(3).map(lambda x: x + 2), dataset_id="one")
        == "one"
    )
    assert sorted(from_dataset_id("distributed_epoch", service.target, "one")) == [1, 2, 3]
    start = "Datasets with the same ID should have the same structure, got diff for one: existing"
    for dataset, compression, difference in (
        (Dataset.range(3).map(lambda x: (x, x)), "AUTO", "element_spec"),
        (Dataset.range(4).map(lambda x: x), "AUTO", "cardinality: <3>; got <4>"),
        (first, None, "compression: <AUTO>; got <None>"),
    ):
        with pytest.raises(InvalidArgumentError, match=f"{start} {difference}"):
            register_dataset(service.target, dataset, compression, dataset_id="one")


def test_one_input_without_a_spec_leaves_all_open(make_service: Callable[..., Service]) -> None:
    """A dataset is distributed without a spec if the spec of some inputs is unknown
    until a function runs.
    """
    pairs = Dataset.zip({"known": Dataset.range(3), "open": Dataset.range(3).map(lambda x: x)})
    assert [*make_service(workers=1).read(pairs)] == [{"known": x, "open": x} for x in range(3)]
