"""Real client iterators that read from a simulated service over a simulated network.

``next`` advances simulated time until an element arrives. The readers encode and decode
blocks as on a socket.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeVar

from zmqdata import messages as m
from zmqdata import wire
from zmqdata.blocks import whole
from zmqdata.client.bookmarks import check_has_places
from zmqdata.client.decoding import decode_message
from zmqdata.client.delivery import DeliveryQueue, End
from zmqdata.client.distribute import DataServiceDataset
from zmqdata.client.iterator import ServiceIterator
from zmqdata.client.quarantine import ListLeftOut, list_nowhere
from zmqdata.client.registration import Registration
from zmqdata.client.shell import LACKING, ReaderShell
from zmqdata.client.uploading import Upload
from zmqdata.core.client import events as e
from zmqdata.core.client.decider import ClientProfile
from zmqdata.errors import (
    NotFoundError,
    ProtocolError,
    UnavailableError,
    UnimplementedError,
)
from zmqdata.iterators.base import ElementIterator, make_iterator
from zmqdata.iterators.context import Context
from zmqdata.machine.threads import Background
from zmqdata.measures.meter import LoopMeter
from zmqdata.testing.clock import Clock
from zmqdata.testing.network import SimulatedNetwork
from zmqdata.transport.loop import Loop

TICK = 0.2
LONGEST_WAIT = 3600.0
"""Simulated seconds without an element after which a reader reports a mistake of the
test.
"""
AnswerT = TypeVar("AnswerT", bound=m.Message)
_names = itertools.count(1)


class ReadWorld(Protocol):
    """The parts of a simulated world that its readers use.

    Attributes:
        clock: the simulated time.
        network: the simulated network.
        loops: the loops of all readers.
        lock: held by the thread that advances the clock.
    """

    clock: Clock
    network: SimulatedNetwork
    loops: list[ClockLoop]
    lock: threading.RLock

    def run_until(self, condition: Callable[[], object], seconds: float) -> bool:
        """Advance time until the condition holds or so many seconds have passed. Return
        whether it holds.
        """

    def new_request(self) -> str:
        """Return a name for a new request."""

    def new_client(self) -> str:
        """Return a name for a new client, which depends on the seed."""

    def ask(
        self,
        ask: m.Message,
        answer: type[AnswerT],
        reply: Callable[[m.Message], Sequence[m.Message]] = ...,
    ) -> AnswerT:
        """Send a request to the dispatcher, and advance time until it answers."""

    def audit(self, job: str) -> list[dict[str, Any]]:
        """Return the record of a job's splits and elements."""


class ClockThread(Background):
    """Replaces the thread of a loop whose calls the clock makes."""

    def __init__(self) -> None:
        super().__init__()
        self.is_running = False

    def is_alive(self) -> bool:
        """Return whether the loop runs."""
        return self.is_running


class ClockLoop(Loop):
    """A loop without a thread: the clock makes its calls.

    Args:
        service: the world of the loop.
        tick: called repeatedly until the loop is stopped.
        ended: called when the loop is stopped.
    """

    thread: ClockThread

    def __init__(
        self, service: ReadWorld, tick: Callable[[], None], ended: Callable[[], None]
    ) -> None:
        self.thread = ClockThread()
        self._service = service
        self._tick, self._at_end = tick, ended

    def start(self) -> None:
        self.thread.is_running = True
        self._go_on()

    def _go_on(self) -> None:
        if self.thread.is_running:
            self._tick()
            self._service.clock.after(TICK, self._go_on)

    def post(self, call: Callable[[], None]) -> None:
        """Have the clock make ``call`` at the present time. The call is dropped if the
        loop has ended.
        """
        self._service.clock.after(0.0, lambda: call() if self.thread.is_running else None)

    def stop(self) -> None:
        """End the loop."""
        if self.thread.is_running:
            self.thread.is_running = False
            self._at_end()

    def join(self, timeout: float | None = None) -> bool:
        """Advance time until the loop has ended. Return False if it has not ended after
        so many simulated seconds.
        """
        self._service.run_until(lambda: not self.thread.is_running, timeout or 60.0)
        return not self.thread.is_running


class ClockedQueue(DeliveryQueue):
    """A delivery queue whose reader waits by advancing simulated time."""

    def __init__(self, service: ReadWorld, holds: Callable[[], bool]) -> None:
        super().__init__(holds)
        self._service = service
        self._is_woken = False
        self._waited = 0.0

    def wait(self, seconds: float) -> None:
        """Advance time until the queue has an element to deliver."""
        self._is_woken = False
        if self._service.run_until(lambda: self._is_woken or self.first() is not None, seconds):
            self._waited = 0.0
            return
        self._waited += seconds
        if self._waited > LONGEST_WAIT:
            raise TimeoutError(
                "A reader of a simulated service has got nothing for "
                f"{self._waited:g} simulated seconds. Readers that wait for each "
                "other must be read in turn: call `next` on each of them."
            )

    def wake(self) -> None:
        """End the wait of the reader."""
        self._is_woken = True


class SimulatedShell(ReaderShell):
    """The shell of an iterator, without sockets and threads.

    Args:
        service: the world in which it reads.
        profile: the client and the job that it reads.
        list_left_out: takes the elements that workers skip.
        meter: measures the waits of the loop.
    """

    loop: ClockLoop

    def __init__(
        self,
        service: ReadWorld,
        profile: ClientProfile,
        list_left_out: ListLeftOut = list_nowhere,
        meter: LoopMeter | None = None,
    ) -> None:
        self._service = service
        self.name = f"client-{next(_names)}"
        self._is_answered = False
        super().__init__(profile, list_left_out, meter)
        self.queue = ClockedQueue(service, lambda: self.core.lease.holds(self._now()))

    def _open(self, profile: ClientProfile) -> None:
        self.loop = ClockLoop(self._service, self._tick, self._release)
        self._service.network.join(self.name, self._hear)
        self._service.loops.append(self.loop)

    def _now(self) -> float:
        return self._service.clock.now

    def wait_for_answer(self, seconds: float) -> None:
        """Advance time until the dispatcher answers, for at most so many seconds."""
        self._service.run_until(lambda: self._is_answered, seconds)

    def _checkpoint(self, place: int, name: str) -> bytes:
        """Assemble the checkpoint of a place. Retry while a worker has yet to report
        something.
        """
        check_has_places(self.core.profile.job)
        deadline = self._now() + LACKING
        while True:
            try:
                with self._service.lock:
                    return self._encoded(place, name)
            except UnavailableError:  # a report is still missing
                if not self.loop.thread.is_alive() or self._now() >= deadline:
                    raise
            self._service.run_until(lambda: False, 0.02)

    def die(self) -> None:
        """End at once and lose everything, as at SIGKILL of the training process."""
        self.loop.stop()
        self.queue.drop()
        text = "The test has killed this reader. Make another one with `iter(dataset)`."
        self.queue.put(End(e.Finish(UnavailableError.__name__, text)))

    # --- called by the clock

    def _handle(self, event: e.ClientEvent) -> None:
        # The network may still call a reader that has ended, which a thread that has
        # ended would not notice.
        if self.loop.thread.is_running:
            super()._handle(event)

    def _tick(self) -> None:
        self.strides.end()
        self._report_partly()
        self._handle(e.Tick())

    def _hear(self, peer: Hashable, message: Any) -> None:
        self._handle(e.Received(peer, message))
        self._is_answered |= self.is_decided or bool(self.core.notices.awaited)

    def _send(self, command: e.Send) -> None:
        self._service.network.send(self.name, command.peer, command.message)

    def _connect(self, command: e.ConnectLink) -> None:
        name = command.link
        self._service.network.connect(
            name,
            self.name,
            lambda push: self._take_push(name, push.header, push.frames),
            lambda reason: self._handle(e.LinkBroken(name, reason)),
        )

    def _disconnect(self, command: e.DisconnectLink) -> None:
        self._service.network.disconnect(command.link)

    def _take_push(self, name: str, header: m.OnLink, frames: Any) -> None:
        """Decode a message from the bytes that a socket would carry."""
        message = [wire.pack_header(header), *(bytes(whole(frame)) for frame in frames)]
        try:
            allow = self.core.profile.allow_objects
            decoded, content = decode_message(message, allow_objects=allow)
        except ProtocolError as error:
            self._cannot_decode(name, error)
            return
        self._corrupt = 0
        self._arrived(e.Arrived(name, decoded, content))

    def _release(self) -> None:
        self._service.network.leave(self.name)


class SimulatedIterator(ServiceIterator):
    """Reads one repetition of a job of a simulated service."""

    _shell: SimulatedShell

    def __init__(self, service: ReadWorld, *read: Any) -> None:
        self._service = service
        super().__init__(*read)
        self._meter.restart(lambda: service.clock.now)

    def _open_shell(self, profile: ClientProfile) -> SimulatedShell:
        # The names of clients decide orders, so that the seed has to decide them.
        named = replace(profile, client=self._service.new_client())
        return SimulatedShell(self._service, named, self._list_left_out, self._meter)

    def kill(self) -> None:
        """End at once, as at SIGKILL of the training process: without a goodbye, and
        without a report of the last elements.

        Other readers of the job receive the elements that were not reported, after
        ``client_timeout_ms``. Elements that a living reader has received stay its own,
        even if no loop takes them: other readers end without them.
        """
        self._strides.end()
        self._begin_late()
        self._shell.die()

    def audit(self) -> dict[str, Any]:
        """Return the record of this repetition's splits and elements."""
        found = self._service.audit(self._profile.job.name)
        return [one for one in found if one["iteration"] == self._shell.core.iteration][-1]


@dataclass
class SimulatedRegistration(Registration):
    """A dataset to register with a simulated dispatcher, or registered there under an
    id.
    """

    world: ReadWorld | None = None
    """the simulated service."""

    def register(self, dataset_id: str | None, keep: bool = False, reads: bool = False) -> str:
        """Register the dataset under this id, or under an id that the dispatcher
        chooses.
        """
        assert self.packed is not None
        assert self.world is not None
        encoded, contents = self.packed.encoded, self.packed.contents
        if len(encoded) > m.MOST_WHOLE_BYTES:
            encoded, contents = b"", {**contents, self.packed.digest: encoded}
        request = self.world.new_request()
        maps = () if reads else self.packed.files
        ask = m.RegisterDataset(request, dataset_id, self.description, encoded, keep, maps)
        upload = Upload(ask, contents)
        return self.world.ask(ask, m.DatasetRegistered, upload.answer).dataset_id

    def _found(self, dataset_id: str) -> m.DatasetDescription:
        assert self.world is not None
        ask = m.DescribeDataset(self.world.new_request(), dataset_id)
        return self.world.ask(ask, m.DatasetDescribed).description

    def _check_unchanged(self, dataset_id: str) -> None:
        self._found(dataset_id)

    def _is_known(self, dataset_id: str) -> bool:
        try:
            return self._found(dataset_id).fingerprint == self.description.fingerprint
        except NotFoundError:
            return False


@dataclass(frozen=True, kw_only=True, eq=False)
class SimulatedDataset(DataServiceDataset):
    """A source that reads a job of a simulated service."""

    world: ReadWorld
    """the simulated service."""

    def __getstate__(self) -> dict[str, Any]:
        raise UnimplementedError(
            "A pipeline that reads from a simulated service cannot be distributed or "
            "sent to another process: its worker would advance the clock during a "
            "turn. Use a `LocalCluster` for a pipeline of several stages."
        )


@make_iterator.register(SimulatedDataset)
def _read(node: SimulatedDataset, context: Context) -> ElementIterator:
    return node.iterator_with(partial(SimulatedIterator, node.world), context)
