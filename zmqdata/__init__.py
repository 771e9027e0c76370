"""zmqdata: the tf.data service for any Python. This module holds every public name; the
module that defines a name documents it.

    import zmqdata

    with zmqdata.LocalCluster(num_workers=2) as cluster:
        ds = zmqdata.Dataset.range(1000).map(lambda x: x * 2).batch(10)
        for batch in ds.apply(zmqdata.distribute("distributed_epoch", cluster.target)):
            ...

Numbers with a meaning: ``AUTOTUNE`` lets zmqdata choose a number, such as the size of a
buffer. ``SHARD_HINT``, for both arguments of ``shard``, is replaced by the number of
workers and the index of the worker. ``INFINITE_CARDINALITY`` and
``UNKNOWN_CARDINALITY`` are results of ``cardinality()``.

Names are imported on first use, so a supervisor or a dispatcher does not load the
modules that only a client needs.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zmqdata import errors as errors
    from zmqdata import hosts as hosts
    from zmqdata import jax as jax
    from zmqdata import keras as keras
    from zmqdata import tensorflow as tensorflow
    from zmqdata import testing as testing
    from zmqdata import torch as torch
    from zmqdata.client.admin import audit as audit
    from zmqdata.client.admin import drain as drain
    from zmqdata.client.distribute import distribute as distribute
    from zmqdata.client.distribute import from_dataset_id as from_dataset_id
    from zmqdata.client.distribute import register_dataset as register_dataset
    from zmqdata.client.options import CrossTrainerCache as CrossTrainerCache
    from zmqdata.client.options import ShardingPolicy as ShardingPolicy
    from zmqdata.client.saving import distributed_save as distributed_save
    from zmqdata.cluster.local import LocalCluster as LocalCluster
    from zmqdata.config.dispatcher import DispatcherConfig as DispatcherConfig
    from zmqdata.config.worker import WorkerConfig as WorkerConfig
    from zmqdata.dataset import SHARD_HINT as SHARD_HINT
    from zmqdata.dataset import AutoShardPolicy as AutoShardPolicy
    from zmqdata.dataset import CsvDataset as CsvDataset
    from zmqdata.dataset import Dataset as Dataset
    from zmqdata.dataset import DatasetIterator as DatasetIterator
    from zmqdata.dataset import ExternalStatePolicy as ExternalStatePolicy
    from zmqdata.dataset import FixedLengthRecordDataset as FixedLengthRecordDataset
    from zmqdata.dataset import Options as Options
    from zmqdata.dataset import SqlDataset as SqlDataset
    from zmqdata.dataset import TextLineDataset as TextLineDataset
    from zmqdata.dataset import TFRecordDataset as TFRecordDataset
    from zmqdata.dataset import set_random_seed as set_random_seed
    from zmqdata.dispatcher.server import DispatchServer as DispatchServer
    from zmqdata.elements.ragged import RaggedTensor as RaggedTensor
    from zmqdata.elements.ragged import RaggedTensorSpec as RaggedTensorSpec
    from zmqdata.elements.specs import AUTOTUNE as AUTOTUNE
    from zmqdata.elements.specs import INFINITE_CARDINALITY as INFINITE_CARDINALITY
    from zmqdata.elements.specs import UNKNOWN_CARDINALITY as UNKNOWN_CARDINALITY
    from zmqdata.elements.specs import DatasetSpec as DatasetSpec
    from zmqdata.elements.specs import NoneTensorSpec as NoneTensorSpec
    from zmqdata.elements.specs import TensorSpec as TensorSpec
    from zmqdata.iterators.quarantine import LeftOut as LeftOut
    from zmqdata.operations.folds import Reducer as Reducer
    from zmqdata.storage.records import TFRecordWriter as TFRecordWriter
    from zmqdata.transport.keychoice import use_key_file as use_key_file
    from zmqdata.worker.server import WorkerServer as WorkerServer

    __version__: str

_HOMES = {
    "AUTOTUNE": "zmqdata.elements.specs",
    "AutoShardPolicy": "zmqdata.dataset",
    "CrossTrainerCache": "zmqdata.client.options",
    "CsvDataset": "zmqdata.dataset",
    "Dataset": "zmqdata.dataset",
    "DatasetIterator": "zmqdata.dataset",
    "DatasetSpec": "zmqdata.elements.specs",
    "DispatchServer": "zmqdata.dispatcher.server",
    "DispatcherConfig": "zmqdata.config.dispatcher",
    "ExternalStatePolicy": "zmqdata.dataset",
    "FixedLengthRecordDataset": "zmqdata.dataset",
    "INFINITE_CARDINALITY": "zmqdata.elements.specs",
    "LeftOut": "zmqdata.iterators.quarantine",
    "LocalCluster": "zmqdata.cluster.local",
    "NoneTensorSpec": "zmqdata.elements.specs",
    "Options": "zmqdata.dataset",
    "RaggedTensor": "zmqdata.elements.ragged",
    "RaggedTensorSpec": "zmqdata.elements.ragged",
    "Reducer": "zmqdata.operations.folds",
    "SHARD_HINT": "zmqdata.dataset",
    "ShardingPolicy": "zmqdata.client.options",
    "SqlDataset": "zmqdata.dataset",
    "TFRecordDataset": "zmqdata.dataset",
    "TFRecordWriter": "zmqdata.storage.records",
    "TensorSpec": "zmqdata.elements.specs",
    "TextLineDataset": "zmqdata.dataset",
    "UNKNOWN_CARDINALITY": "zmqdata.elements.specs",
    "WorkerConfig": "zmqdata.config.worker",
    "WorkerServer": "zmqdata.worker.server",
    "audit": "zmqdata.client.admin",
    "distribute": "zmqdata.client.distribute",
    "distributed_save": "zmqdata.client.saving",
    "drain": "zmqdata.client.admin",
    "from_dataset_id": "zmqdata.client.distribute",
    "register_dataset": "zmqdata.client.distribute",
    "set_random_seed": "zmqdata.dataset",
    "use_key_file": "zmqdata.transport.keychoice",
}

_ADAPTERS = ("jax", "keras", "tensorflow", "torch")
"""Modules that need a framework of the same name."""

_PACKAGES = ("errors", "hosts", "testing")
"""Packages that are public as a whole."""

__all__ = [*_PACKAGES, *_HOMES]


if not TYPE_CHECKING:  # a type checker finds a mistyped name

    def __getattr__(name: str) -> Any:
        if name in _HOMES:
            value = getattr(importlib.import_module(_HOMES[name]), name)
        elif name in _PACKAGES:
            value = importlib.import_module(f"zmqdata.{name}")
        elif name in _ADAPTERS:
            try:
                value = importlib.import_module(f"zmqdata.{name}")
            except ImportError as error:
                # `hasattr` and `inspect` expect this class of an attribute.
                raise AttributeError(str(error)) from error
        elif name == "__version__":
            from zmqdata.machine import installed_version

            value = installed_version()
        else:
            from zmqdata.recipes import missing

            raise missing(sys.modules[__name__], f"module {__name__!r}", name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted([*__all__, *_ADAPTERS, "__version__"])
