"""The distribution of a task's blocks: which client gets which block, which learns of
the end, and how much the task may produce.

``core.worker.dealing`` divides the blocks among streams, and ``core.worker.links``
numbers and resends messages. No message is handled here.

Protocol 4.3, 6.8, 8.5 and 8.7.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import structs

from zmqdata import messages as m
from zmqdata.core.worker import events as e
from zmqdata.core.worker.links import Link, SendLinks
from zmqdata.core.worker.profile import WorkerProfile
from zmqdata.core.worker.streams import Stream
from zmqdata.core.worker.tasks import HostedTask


class Distribution:
    """Sends what clients may have of each task, over their links.

    Args:
        profile: identity and limits of the worker.
        links: links to the clients.
        do: receives the resulting commands.
    """

    def __init__(
        self, profile: WorkerProfile, links: SendLinks, do: Callable[[e.WorkerCommand], None]
    ) -> None:
        self._profile = profile
        self._links = links
        self._do = do

    def _is_usable(self, stream: Stream) -> bool:
        return stream.open and self._links.is_bound(stream.client)

    def apply_grant(self, link: Link, task: HostedTask, now: float) -> None:
        """Let the client of a link read a task as far as it has granted, if it has."""
        grant = link.grants.get(task.definition.task)
        if grant is None or not link.admits(grant, task.definition):
            return
        streams = task.dealing.streams
        stream = streams.get(link.client) or task.dealing.join(link.client, link.reader)
        stream.asks = max(stream.asks, link.asks)
        stream.pace, stream.waits = link.pace, link.waits
        task.grant(stream, grant, now)

    def deal(self, task: HostedTask, now: float) -> None:
        """Send the lines, the lineage and the blocks of a task that may be sent."""
        self._links.send_lines(task.lines, task.key, task.dealing.streams.values())
        for client, news in task.news_of_others(self._is_usable):
            self._links.push(client, news, ())
        for stream, portion in task.dealing.deal(self._is_usable):
            stream.sent_at = now
            self._push(task, stream, task.header_of(portion, stream), portion.frames)

    def finish(self, task: HostedTask, now: float) -> None:
        """Request more elements at once for clients that have none, or announce the end
        of the task to clients that have them all.
        """
        streams = [
            stream
            for stream in task.dealing.streams.values()
            if self._is_usable(stream) and task.dealing.has_all(stream)
        ]
        if task.total is None:
            is_wanted = any(stream.idle and stream.granted > stream.sent for stream in streams)
            if is_wanted and not task.hungry:
                task.hungry = True
                if task.started:
                    self._do(e.FlushTask(*task.key))
            return
        for stream, ask in task.ask_back(self._is_usable, now):
            self._links.push(stream.client, ask, ())
        for stream in streams:
            if stream.sent_end:
                continue
            counts = task.measures.counts if task.measures is not None else {}
            end = m.EndOfTask(
                0, *task.key, task.total, task.left_out, rest=task.rest, counts=counts
            )
            if task.may_end(stream, self._is_usable, now):
                stream.sent_end = True
                self._push(task, stream, end, ())
            elif not stream.sent_held:
                stream.sent_held = True
                self._push(task, stream, structs.replace(end, held=True), ())

    def _push(
        self, task: HostedTask, stream: Stream, header: m.Block | m.EndOfTask, frames: Any
    ) -> None:
        """Send a message, preceded by the lineage that it depends on and by the
        elements that were left out before it.
        """
        for news in (task.news_for(stream), task.left_out_for(stream)):
            if news is not None:
                self._links.push(stream.client, news, ())
        self._links.push(stream.client, header, frames)

    def allow(self, task: HostedTask, neighbours: int) -> None:
        """Let a task produce as much as it may.

        Args:
            task: the task.
            neighbours: number of tasks of its iteration on this worker.
        """
        if task.allow(
            room=self._profile.buffer_bytes,
            cache_bytes=self._profile.cache_bytes,
            usable=self._is_usable,
            neighbours=neighbours,
            memory_of=self._links.memory_of,
        ):
            self._do(e.AllowProduction(*task.key, task.allowed, task.unread, task.few_bytes))
