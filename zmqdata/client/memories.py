"""The memories that an iterator's links share with workers of this host."""

from __future__ import annotations

import logging

from zmqdata.client.descriptors import Descriptors
from zmqdata.commands import ConnectLink
from zmqdata.errors import ProtocolError
from zmqdata.transport.memory import MappedMemory

log = logging.getLogger(__name__)


class Memories:
    """Those that are mapped, by the names of their links. What was taken from one lives longer than its link.

    Args:
        descriptors: of this process.
    """

    def __init__(self, descriptors: Descriptors) -> None:
        self._descriptors = descriptors
        self._mapped: dict[str, MappedMemory] = {}
        self._is_warned = False

    def map(self, command: ConnectLink) -> bool:
        """Maps the memory of a link; False where there is none, or it cannot be had. Says why, once."""
        if command.memory is None:
            return False
        try:
            self._mapped[command.link] = MappedMemory(command.memory)
        except (OSError, ValueError, ProtocolError) as error:
            if self._descriptors.explains(error, f"the memory that worker {command.address} would share"):
                return False
            log.log(
                logging.DEBUG if self._is_warned else logging.WARNING,
                "the memory that worker %s would share cannot be used from here (%s): elements come through a socket, "
                "which is slower. Is it in another container, or run by another user?",
                command.address, error,
            )  # fmt: skip
            self._is_warned = True
            return False
        return True

    def of(self, link: str) -> MappedMemory | None:
        """The memory of a link."""
        return self._mapped.get(link)

    def forget(self, link: str) -> None:
        """The link is closed."""
        self._mapped.pop(link, None)
