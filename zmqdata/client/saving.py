"""``distributed_save``, with which the workers of the service write a dataset to
files.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence

from zmqdata import messages as m
from zmqdata.blocks import validate_compression
from zmqdata.client.calls import ask_dispatcher
from zmqdata.client.options import DISPATCHER_TIMEOUT, ShardingPolicy
from zmqdata.client.registration import registration_of
from zmqdata.client.splitting import check_splitting
from zmqdata.config.checks import (
    Compression,
    OnPoison,
    check_text,
    check_timeout,
    optional_timeout,
    word_of,
)
from zmqdata.config.endpoints import Service, parse_service
from zmqdata.core.job_rules import ON_POISON
from zmqdata.dataset import Dataset
from zmqdata.dataset.bars import check_progress, show_save
from zmqdata.elements.specs import INFINITE_CARDINALITY
from zmqdata.errors import InvalidArgumentError
from zmqdata.files.paths import FileName, whole_path
from zmqdata.nodes.base import Node
from zmqdata.pipelines import ShippedSource
from zmqdata.recipes import names_arguments


@names_arguments
def distributed_save(
    dataset: Dataset,
    path: FileName,
    data_service_address: Service,
    compression: Compression | None = "AUTO",
    *,
    ship: Sequence[ShippedSource] = (),
    dispatcher_timeout: float = DISPATCHER_TIMEOUT,
    on_poison: OnPoison = "fail",
    task_timeout: float | None = None,
    progress: bool | None = None,
) -> None:
    """Make the workers of the service write a dataset to files.

    Equivalent of ``tf.data.experimental.distributed_save``, which lacks ``ship``,
    ``dispatcher_timeout``, ``on_poison``, ``task_timeout`` and ``progress``.

    The call returns as soon as the dispatcher has accepted the save. From then on the
    save does not need this process, unless that owns the ``LocalCluster``, whose
    ``close()`` waits for the save. It continues through restarts of the dispatcher and
    of workers, and while workers come and go, until every element is stored exactly
    once. The folder then contains the file ``DONE``, or ``ERROR`` if an element could
    not be produced, or if two workers could not write a chunk. ``Dataset.load`` reads
    the folder, and ``zmqdata save-status`` shows the progress.

    Args:
        dataset: the dataset to save. It is split among workers as with
            ``ShardingPolicy.DYNAMIC``. An element that fails ends the save, and
            ``map(..., on_error="skip")`` skips it.
        path: a folder that the dispatcher and the workers share, or a URL that fsspec
            supports. It must not contain a save yet.
        data_service_address: address of the dispatcher, as for ``distribute``.
        compression: as for ``distribute``.
        ship: modules that workers lack, as for ``distribute``.
        dispatcher_timeout: seconds to wait for the dispatcher.
        on_poison: as for ``distribute``. An element that ends its worker's process
            three times ends the save, and ``ERROR`` names it. With ``"skip"`` it is
            skipped, and the save continues.
        task_timeout: seconds per call of a function, as for ``distribute``.
        progress: True to show a bar (tqdm) of the saved elements until the save has
            ended or this process ends; False not to. None: if this process writes to a
            terminal or a notebook, and is the first of its ranks. ``TQDM_DISABLE=1``
            hides it, too.

    Raises:
        ValueError: an argument has an invalid value.
        TypeError: ``dataset`` is not a ``Dataset``, ``progress`` has another type, or
            the pipeline contains an object that cannot be sent to another process.
        InvalidArgumentError: the dataset is infinite, the path cannot be written as
            UTF-8, or the dispatcher has no ``work_dir``.
        AlreadyExistsError: another save is stored there, or is in progress.
        UnimplementedError: a source of the dataset cannot be split.
        UnavailableError: no dispatcher has answered within ``dispatcher_timeout``.

    Example:
        >>> import tempfile, zmqdata
        >>> folder = tempfile.mkdtemp()
        >>> config = zmqdata.DispatcherConfig(work_dir=folder + "/work")
        >>> with zmqdata.DispatchServer(config) as dispatcher:
        ...     with zmqdata.WorkerServer(zmqdata.WorkerConfig(dispatcher.target)):
        ...         ds, path = zmqdata.Dataset.range(3), folder + "/three"
        ...         zmqdata.distributed_save(ds, path, dispatcher.target)
        ...         sorted(int(x) for x in zmqdata.Dataset.load(path, wait=True))
        [0, 1, 2]
    """
    node = _checked_node(dataset)
    endpoint = parse_service(data_service_address, "data_service_address")  # first, as in tf.data
    folder = os.fsdecode(path) if isinstance(path, (bytes, os.PathLike)) else path
    _check_text("path", folder)
    check_timeout("dispatcher_timeout", dispatcher_timeout)
    word_of(ON_POISON)("on_poison", on_poison)
    optional_timeout("task_timeout", task_timeout)
    check_progress(progress)
    codec = validate_compression(compression)
    if node.cardinality == INFINITE_CARDINALITY:
        raise InvalidArgumentError(
            "Saving an infinite dataset is not allowed: limit it with `take(n)`."
        )
    folder = whole_path(folder)
    check_splitting(node, ShardingPolicy.DYNAMIC)
    registration = registration_of(node, endpoint, codec, dispatcher_timeout, ship)
    dataset_id = registration.register(None)
    save_id = secrets.token_hex(16)

    def ask(request: str) -> m.StartSave:
        return m.StartSave(request, dataset_id, folder, save_id, codec, on_poison, task_timeout)

    ask_dispatcher(endpoint, ask, m.SaveStarted, dispatcher_timeout)
    show_save(folder, progress)


def _checked_node(dataset: Dataset) -> Node:
    """Return the pipeline of the argument ``dataset``."""
    if not isinstance(dataset, Dataset):
        raise TypeError(
            f"`dataset` must be a Dataset, got {dataset!r} of type {type(dataset).__name__}"
        )
    try:
        return dataset.node
    except AttributeError:
        raise TypeError(
            f"`dataset` must be a Dataset with a pipeline, got a {type(dataset).__name__} without "
            "one. Does its class call Dataset.__init__?"
        ) from None


def _check_text(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise ValueError(f"`{name}` must be a string, got {value!r} of type {type(value).__name__}")
    if not value:
        raise ValueError(f"`{name}` must not be empty")
    try:
        check_text(name, value)
    except ValueError as error:
        raise InvalidArgumentError(
            f"{error}. Rename the folder, or save to another folder."
        ) from None
