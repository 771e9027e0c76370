"""The records of a dispatcher with a work folder: core, gate and journal together. It
writes each fact before it reveals it. It uses no socket.

Decision 0013; protocol 1.5.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from itertools import chain

from zmqdata import updates as u
from zmqdata.core.dispatcher import events as e
from zmqdata.core.dispatcher.decider import DispatcherCore
from zmqdata.core.dispatcher.state.snapshots import snapshot
from zmqdata.dispatcher.gate import Gate
from zmqdata.dispatcher.journalfile import JournalFile, JournalWriter
from zmqdata.dispatcher.store import PipelineStore
from zmqdata.errors import DataLossError, UnavailableError
from zmqdata.messages import DatasetDescription
from zmqdata.updates import Update

log = logging.getLogger(__name__)

SLOW = 10.0
"""Seconds after which a slow disk is logged."""


def digests_of(description: DatasetDescription) -> set[str]:
    """Return the digests of the pipeline and parts that a dataset needs."""
    return {description.digest, *(part.digest for part in description.parts)}


class Records:
    """The journal of a dispatcher, and the commands that wait for it.

    Only the loop's thread may call its methods. Nothing is written before ``take_up``.

    Args:
        file: the journal, in a folder that its dispatcher has locked.
        core: the decider.
        store: the store of its pipelines.
        carry_out: carries out a command.
        post: runs a call in the loop's thread.
        failed: called in another thread if the journal cannot be written. The
            dispatcher must stop then.
    """

    def __init__(
        self,
        file: JournalFile,
        core: DispatcherCore,
        store: PipelineStore,
        carry_out: Callable[[e.DispatcherCommand], None],
        post: Callable[[Callable[[], None]], None],
        failed: Callable[[UnavailableError], None],
    ) -> None:
        self._core = core
        self._store = store
        self._carry_out = carry_out
        self._post = post
        self._failed = failed
        self._gate = Gate()
        self._file = file
        self._writer = JournalWriter(
            self._file, lambda turn: post(lambda: self._written(turn)), self._cannot_write
        )
        self._waiting_since: float | None = None
        self._facts: list[Update] = []
        self._first: list[Callable[[], object]] = []

    def take_up(self, now: float) -> None:
        """Replay the journal, and begin a new one.

        Raises:
            DataLossError: the journal is damaged, or a pipeline that it names is
                missing.
            FailedPreconditionError: a later version has written it.
            OSError: it cannot be read or written.
        """
        began = time.monotonic()
        replay = self._file.replay(self._core.state.apply)
        if replay is not None:
            self._check_pipelines()
            log.info(
                "%s: %d facts replayed in %.2f s",
                self._file.path,
                replay.updates,
                time.monotonic() - began,
            )
        if replay is not None and replay.torn:
            text = (
                "the last write to %s was cut off; its last %d bytes are ignored, "
                "because no peer has learned of them"
            )
            log.warning(text, self._file.path, replay.torn)
        commands = self._core.resume(now)
        self._file.begin(snapshot(self._core.state))
        self._writer.start()
        for command in commands:
            self._carry_out(command)

    def _check_pipelines(self) -> None:
        needed = {name: digests_of(one) for name, one in self._core.state.datasets.items()}
        missing = self._store.missing(chain.from_iterable(needed.values()))
        if missing:
            names = ", ".join(
                name for name, digests in needed.items() if not digests.isdisjoint(missing)
            )
            raise DataLossError(
                f"{self._file.path} names datasets whose pipelines are missing from "
                f"the work folder: {names}. Restore the folder from a backup, or "
                "start with another work_dir. All jobs then start from the beginning"
            )

    def obey(self, commands: list[e.DispatcherCommand]) -> None:
        """Carry out the commands of a turn that need not wait, and write its facts for
        the others.
        """
        now, updates = self._gate.admit(commands)
        try:
            for command in now:
                self._carry_out(command)
        except (
            OSError
        ) as error:  # the dataset of a pipeline that is not stored must not be recorded
            self._cannot_write(error)
            return
        if updates:
            if not self._facts:
                # The other facts of this turn of the loop are written together with
                # these.
                self._post(self._write)
            self._facts += updates
            datasets = [
                one.description for one in updates if isinstance(one, u.RegisterDatasetUpdate)
            ]
            digests = set().union(*map(digests_of, datasets))
            self._first += [partial(self._store.sync, digest) for digest in digests]

    def _write(self) -> None:
        """Write the facts decided since the last call: as a single record, with at most
        one wait for the disk.
        """
        if not self._facts:
            return
        if self._waiting_since is None:
            self._waiting_since = time.monotonic()
        facts, self._facts = self._facts, []
        first, self._first = self._first, []
        self._writer.write(self._gate.turn, facts, first)
        if self._writer.wants_snapshot:
            self._writer.replace(snapshot(self._core.state))

    def _written(self, turn: int) -> None:
        freed = self._gate.written(turn)
        self._waiting_since = None if self._gate.is_open else time.monotonic()
        for command in freed:
            if not (isinstance(command, e.DropPipeline) and self._is_used(command.digest)):
                self._carry_out(command)

    def _is_used(self, digest: str) -> bool:
        """Return True if a pipeline was registered again while it waited to be
        dropped.
        """
        return any(digest in digests_of(one) for one in self._core.state.datasets.values())

    def look_around(self) -> None:
        """Log if the disk takes very long."""
        if self._waiting_since is None:
            return
        waited = time.monotonic() - self._waiting_since
        if waited >= SLOW:
            self._waiting_since += SLOW
            log.warning(
                "%s has not been written for %.0f s. All peers wait for it; check the disk",
                self._file.path,
                waited,
            )

    def _cannot_write(self, error: Exception) -> None:
        reason = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
        place = getattr(error, "filename", None) or self._file.path.parent
        text = f"{place} cannot be written ({reason}), so the dispatcher stops"
        log.critical("%s", text)
        self._failed(
            UnavailableError(
                f"{text}. Free or repair the disk and start the dispatcher again: it "
                "continues from there."
            )
        )

    def close(self) -> None:
        """Write what is left and close the file."""
        self._write()
        self._writer.close()
