"""Calls with mistyped words and names, which mypy checks. It reports a comment that
hides nothing as an error, so it refuses each of these calls.
"""

from __future__ import annotations

import zmqdata
from zmqdata import Dataset, distribute
from zmqdata.torch import Loader, distribute_dataloader

HOST = "tcp://host:5050"


def words(dataset: Dataset) -> None:
    """Give a wrong word for each argument that takes one of a few words."""
    distribute("distributed_epochs", HOST)  # type: ignore[arg-type]  # mistyped
    distribute("distributed_epoch", HOST, finite="dropped")  # type: ignore[arg-type]  # mistyped
    distribute("distributed_epoch", HOST, on_poison="drop")  # type: ignore[arg-type]  # mistyped
    distribute("distributed_epoch", HOST, on_existing="shared")  # type: ignore[arg-type]  # mistyped
    distribute("distributed_epoch", HOST, placement="local")  # type: ignore[arg-type]  # mistyped
    distribute("distributed_epoch", HOST, compression="lz5")  # type: ignore[arg-type]  # mistyped
    distribute("distributed_epoch", HOST, target_workers="ALL")  # type: ignore[arg-type]  # mistyped
    distribute("distributed_epoch", HOST, data_transfer_protocol="udp")  # type: ignore[arg-type]  # mistyped
    zmqdata.from_dataset_id("epochs", HOST, "id")  # type: ignore[arg-type]  # mistyped
    zmqdata.from_dataset_id("distributed_epoch", HOST, "id", on_poison="x")  # type: ignore[arg-type]  # mistyped
    zmqdata.register_dataset(HOST, dataset, "gz")  # type: ignore[arg-type]  # mistyped
    zmqdata.distributed_save(dataset, "folder", HOST, "gz")  # type: ignore[arg-type]  # mistyped
    zmqdata.distributed_save(dataset, "folder", HOST, on_poison="x")  # type: ignore[arg-type]  # mistyped
    dataset.map(str, on_error="ignore")  # type: ignore[arg-type]  # mistyped
    dataset.random_map(str, on_error="ignore")  # type: ignore[arg-type]  # mistyped
    dataset.snapshot("folder", compression="gz")  # type: ignore[arg-type]  # mistyped
    dataset.save("folder", compression="gz")  # type: ignore[arg-type]  # mistyped
    Dataset.load("folder", compression="gz")  # type: ignore[arg-type]  # mistyped
    zmqdata.TextLineDataset("file", "gzip")  # type: ignore[arg-type]  # mistyped
    zmqdata.TFRecordDataset("file", "gzip")  # type: ignore[arg-type]  # mistyped
    zmqdata.CsvDataset("file", [int], "gzip")  # type: ignore[arg-type]  # mistyped
    zmqdata.FixedLengthRecordDataset("file", 8, compression_type="gzip")  # type: ignore[arg-type]  # mistyped
    zmqdata.TFRecordWriter("file", "gzip")  # type: ignore[arg-type]  # mistyped
    zmqdata.DispatcherConfig(deployment_mode="LOCAL")  # type: ignore[arg-type]  # mistyped
    zmqdata.WorkerConfig(HOST, data_transfer_protocol="udp")  # type: ignore[arg-type]  # mistyped
    Loader(dataset, finite="dropped")  # type: ignore[arg-type]  # mistyped
    zmqdata.jax.device_iterator(dataset, dtypes="x64")  # type: ignore[arg-type]  # mistyped
    distribute_dataloader(dataset, finite="dropped")  # type: ignore[arg-type]  # mistyped


def names() -> None:
    """Ask for names that do not exist."""
    print(zmqdata.Datset)  # type: ignore[attr-defined]  # mistyped
    Dataset.rnage(3)  # type: ignore[attr-defined]  # mistyped
    Dataset.range(3).bacth(2)  # type: ignore[attr-defined]  # mistyped
    distribute("distributed_epoch", HOST, jobname="job")  # type: ignore[call-arg]  # mistyped
    distribute("distributed_epoch", HOST, None, None, None, "drop")  # type: ignore[call-arg]  # by name
    zmqdata.from_dataset_id("distributed_epoch", HOST, "id", placement="auto")  # type: ignore[call-arg]  # no argument
    zmqdata.from_dataset_id("distributed_epoch", HOST)  # type: ignore[call-arg]  # no id
    print(zmqdata.ShardingPolicy.DYNAMC)  # type: ignore[attr-defined]  # mistyped


def batches(dataset: Dataset) -> None:
    """Take batches of a declared type, and use one of them as another type."""
    loader: Loader[tuple[int, str]] = Loader(dataset)
    for number, text in loader:
        print(number + text)  # type: ignore[operator]  # another type
    for batch in Loader(dataset):
        batch.anything()
