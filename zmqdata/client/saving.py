"""``distributed_save``: the service's workers write a dataset to files."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from zmqdata import messages as m
from zmqdata.blocks import validate_compression
from zmqdata.client.calls import ask_dispatcher, check_timeout
from zmqdata.client.distribute import DISPATCHER_TIMEOUT
from zmqdata.client.options import check_failures
from zmqdata.client.registration import registration_of
from zmqdata.config.endpoints import parse_service
from zmqdata.config.settings import check_text
from zmqdata.dataset import Dataset
from zmqdata.elements.specs import INFINITE_CARDINALITY
from zmqdata.errors import InvalidArgumentError
from zmqdata.pipelines import ShippedSource
from zmqdata.storage.files import whole_path


def distributed_save(
    dataset: Dataset,
    path: str,
    data_service_address: str,
    compression: str | None = "AUTO",
    *,
    ship: Sequence[ShippedSource] = (),
    dispatcher_timeout: float = DISPATCHER_TIMEOUT,
    on_poison: str = "fail",
    task_timeout: float | None = None,
) -> None:
    """Has the service's workers write a dataset to files (tf.data's
    ``distributed_save``).

    Returns as soon as the dispatcher has made it its own: then the save goes on without
    this process, through restarts of dispatcher and workers and with workers that come
    and go, until every element is there once. Then the folder holds the file ``DONE``,
    or, if an element could not be made, ``ERROR``. ``Dataset.load`` reads it,
    ``zmqdata save-status`` shows how far it is.

    Args:
        dataset: what to save. It is split among workers as with
            ``ShardingPolicy.DYNAMIC``. An element that fails ends the save;
            ``map(..., on_error="skip")`` leaves it out.
        path: a folder that dispatcher and workers share, or a URL that fsspec knows.
            Nothing may be saved there yet.
        data_service_address: the dispatcher, as for ``distribute``.
        compression: as for ``distribute``.
        ship: modules that workers lack, as for ``distribute``; ours.
        dispatcher_timeout: seconds to wait for the dispatcher; ours.
        on_poison: as for ``distribute``: an element that brings its worker down three
            times ends the save, whose ``ERROR`` names it, or, with ``"skip"``, is left
            out and the save goes on; ours.
        task_timeout: as for ``distribute``; ours.

    Raises:
        ValueError: an argument has a wrong value; the text says what was expected.
        TypeError: ``dataset`` is none, or the pipeline holds something that cannot be
            sent to another process.
        InvalidArgumentError: the dataset is infinite, the path cannot be written as
            UTF-8, or the dispatcher keeps nothing for its next life.
        AlreadyExistsError: something is saved there, or is being saved.
        UnimplementedError: a source of the dataset cannot be split.
        UnavailableError: no dispatcher has answered in time.

    Example:
        >>> import tempfile, zmqdata
        >>> folder = tempfile.mkdtemp()
        >>> config = zmqdata.DispatcherConfig(work_dir=folder + "/work")
        >>> with zmqdata.DispatchServer(config) as dispatcher:
        ...     with zmqdata.WorkerServer(zmqdata.WorkerConfig(dispatcher.target)):
        ...         zmqdata.distributed_save(zmqdata.Dataset.range(3), folder + "/three", dispatcher.target)
        ...         sorted(int(x) for x in zmqdata.Dataset.load(folder + "/three", wait=True))
        [0, 1, 2]
    """
    _check_text("path", path)
    _check_text("data_service_address", data_service_address)
    parse_service(data_service_address)
    check_timeout("dispatcher_timeout", dispatcher_timeout)
    check_failures(on_poison, task_timeout)
    codec = validate_compression(compression)
    if not isinstance(dataset, Dataset):
        raise TypeError(f"`dataset` must be a Dataset, got {dataset!r}")
    if dataset.node.cardinality == INFINITE_CARDINALITY:
        raise InvalidArgumentError(
            "Saving an infinite dataset is not allowed: limit it with take(n)"
        )
    registration = registration_of(
        dataset.node, data_service_address, codec, dispatcher_timeout, ship
    )
    dataset_id = registration.resolve()
    run = secrets.token_hex(16)

    def ask(request: str) -> m.StartSave:
        return m.StartSave(
            request, dataset_id, whole_path(path), run, codec, on_poison, task_timeout
        )

    ask_dispatcher(data_service_address, ask, m.SaveStarted, dispatcher_timeout)


def _check_text(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise ValueError(f"`{name}` must be a string, got {value!r} of type {type(value).__name__}")
    if not value:
        raise ValueError(f"`{name}` must not be empty")
    try:
        check_text(name, value)
    except ValueError as error:
        raise InvalidArgumentError(f"{error}. Rename the folder, or save to another one") from None
