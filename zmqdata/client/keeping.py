"""Datasets that stay registered as long as an object of this process lives."""

from __future__ import annotations

import threading
import weakref

from zmqdata.client.registration import describe_dataset
from zmqdata.errors import DataServiceError, NotFoundError

ASK_EVERY = 20.0
"""Seconds between two requests, each of which counts as a use of the dataset."""


def keep_registered(service: str, dataset_id: str, owner: object) -> None:
    """Use a dataset now and then while its owner lives, in a thread of its own.

    Args:
        service: address of the dispatcher.
        dataset_id: id of the dataset.
        owner: any object of this process.
    """
    is_over = threading.Event()
    weakref.finalize(owner, is_over.set)

    def ask() -> None:
        while not is_over.wait(ASK_EVERY):
            try:
                describe_dataset(service, dataset_id, ASK_EVERY)
            except NotFoundError:
                return  # the next pass notices that, too
            except DataServiceError:
                continue  # no dispatcher answers now

    threading.Thread(target=ask, name="zmqdata-keeping", daemon=True).start()
