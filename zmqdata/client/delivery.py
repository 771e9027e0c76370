"""What stands in the queue between an iterator's thread and the training loop: blocks, failures, and the end."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

from zmqdata import messages as m
from zmqdata.errors import DataServiceError


class Delivery:
    """A block in the queue, or part of one.

    Its elements stand in an iterator that knows how many are left; a failure to raise stands for one of them.
    """

    __slots__ = ("elements", "failure", "header", "size", "stop", "taken", "told")

    def __init__(
        self, header: m.Block, skip: int, stop: int, elements: list[Any], failure: DataServiceError | None
    ) -> None:
        self.header = header
        self.told = header.first + skip
        self.stop = header.first + stop
        # The credit of a block returns with its last element.
        self.size = header.size if stop == header.count else 0
        self.elements: Iterator[Any] = iter(elements)
        self.failure = failure
        self.taken = False

    @property
    def left(self) -> int:
        """How many elements the training loop has still to take."""
        return operator.length_hint(self.elements)

    @property
    def handed_out(self) -> int:
        """The number of the element that the training loop takes next."""
        return self.stop - self.left

    def take_failure(self) -> DataServiceError | None:
        """The failure, once: kept here, its traceback would keep the iterator alive for ever."""
        failure, self.failure = self.failure, None
        if failure is not None:
            next(self.elements)
        return failure


class End:
    """What stands behind the last block: nothing more comes, perhaps because of an error, which is raised once."""

    def __init__(self, error: DataServiceError | None) -> None:
        self.error = error

    def take_error(self) -> DataServiceError | None:
        """The error, the first time."""
        error, self.error = self.error, None
        return error
