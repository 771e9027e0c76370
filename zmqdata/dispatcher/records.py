"""What a dispatcher with a work folder writes down before it says it: core, gate and
journal together. No socket.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from itertools import chain
from pathlib import Path

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


def digests_of(description: DatasetDescription) -> set[str]:
    """What must be kept of a dataset's pipeline."""
    return {description.digest, *(part.digest for part in description.parts)}


class Records:
    """The journal of a dispatcher, and the commands that wait for it.

    All methods are for the loop's thread. Nothing is written before ``take_up``.

    Args:
        work_dir: the folder, which is locked by its dispatcher.
        core: what decides.
        store: where its pipelines are.
        carry_out: does one command.
        post: has a call run in the loop's thread.
        failed: called in another thread when the journal cannot be written; everybody
            must end then.
    """

    def __init__(
        self,
        work_dir: Path,
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
        self._file = JournalFile(work_dir)
        self._writer = JournalWriter(
            self._file, lambda turn: post(lambda: self._written(turn)), self._cannot_write
        )
        self._waiting_since: float | None = None
        self._facts: list[Update] = []
        self._first: list[Callable[[], object]] = []

    def take_up(self, now: float) -> None:
        """Makes the core go on where the journal ends, and begins a new one.

        Raises:
            DataLossError: the journal is damaged, or a pipeline that it names is gone.
            FailedPreconditionError: a later version has written it.
            OSError: it cannot be read, or not be written.
        """
        began = time.monotonic()
        replay = self._file.replay(self._core.state.apply)
        if replay is not None:
            self._check_pipelines()
            log.info("replayed %d facts in %.2f s", replay.updates, time.monotonic() - began)
        if replay is not None and replay.torn:
            text = "the last write to %s was cut off; its %d bytes are left out, as nobody was told what they say"
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
                f"{self._file.path} names datasets whose pipelines are gone from the work folder: "
                f"{names}. Restore the "
                "folder from a copy, or start with another work_dir: jobs then begin anew"
            )

    def obey(self, commands: list[e.DispatcherCommand]) -> None:
        """Carries out what may be carried out at once of a turn, and has its facts
        written for the rest.
        """
        now, updates = self._gate.admit(commands)
        try:
            for command in now:
                self._carry_out(command)
        except OSError as error:  # a pipeline that is not stored, whose dataset must not be noted
            self._cannot_write(error)
            return
        if updates:
            if not self._facts:
                # What else this turn of the loop brings is written together with them.
                self._post(self._write)
            self._facts += updates
            datasets = [
                one.description for one in updates if isinstance(one, u.RegisterDatasetUpdate)
            ]
            digests = set().union(*map(digests_of, datasets))
            self._first += [partial(self._store.sync, digest) for digest in digests]

    def _write(self) -> None:
        """Has what was decided since the last time written: one record, and one wait
        for the disk at most.
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
        """Whether a pipeline was registered anew while it waited to be dropped."""
        return any(digest in digests_of(one) for one in self._core.state.datasets.values())

    def look_around(self) -> None:
        """Says so when the disk takes very long."""
        if self._waiting_since is None:
            return
        waited = time.monotonic() - self._waiting_since
        if waited >= SLOW:
            self._waiting_since += SLOW
            log.warning(
                "%s is not written for %.0f s by now, and everybody waits for it",
                self._file.path,
                waited,
            )

    def _cannot_write(self, error: Exception) -> None:
        reason = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
        place = getattr(error, "filename", None) or self._file.path.parent
        text = f"{place} can not be written ({reason}), so the dispatcher stops"
        log.critical("%s", text)
        self._failed(
            UnavailableError(
                f"{text}. Free or repair the disk and start it again: it goes on from there."
            )
        )

    def close(self) -> None:
        """Writes what is left and closes the file."""
        self._write()
        self._writer.close()
