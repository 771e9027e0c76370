"""The elements that workers left out, as a client hears of them: listed in the
quarantine of the iterator, and counted.

The dispatcher and a worker speak to a client over different connections. The task list
that ends an iteration can therefore overtake what its last task has left out. It says
how many elements those are, so that the client awaits them.

Decision 0028; protocol 7.11 and 7.12.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from msgspec import structs

from zmqdata import messages as m
from zmqdata.core.client import events as e
from zmqdata.core.client.tasks import Reading
from zmqdata.decisions import LEFT_OUT_KEPT, LEFT_OUT_REMEMBERED

PATIENCE = 2.0
"""Seconds for which a client awaits the end of a task that the dispatcher knows to have
left out elements. The end never arrives if its worker is lost.
"""

Where = tuple[int, str, int]
"""An element that was left out: number of the task, place of the operation, number of
the element there.
"""


class ClientQuarantine:
    """Lists and counts what workers left out of an iteration.

    Args:
        job: name of the job that the client reads.
        do: receives the resulting commands.

    Attributes:
        of_task: number of elements that each ended task has left out, for the tasks
            whose end has arrived or is awaited no more.
        awaits_unlisted: True if the end of a task is awaited that the task list no
            longer names.
    """

    def __init__(self, job: str, do: Callable[[e.ClientCommand], None]) -> None:
        self._job = job
        self._do = do
        self._listed: dict[Where, None] = {}  # a set that knows the oldest
        self._num_listed = self._num_poison = 0
        self.of_task: dict[int, int] = {}
        self.awaits_unlisted = False

    def add_poison(self, elements: tuple[m.LeftOutElement, ...]) -> None:
        """Add all elements that workers skip because they end their process."""
        for element in elements:
            self._num_poison += self._list(element)

    def add(self, elements: tuple[m.LeftOutElement, ...]) -> None:
        """Add elements that the pipeline of a task has left out. Another host of the
        task may report them again.
        """
        for element in elements:
            self._list(element)

    def extended(self, task_list: m.TaskList, reading: Reading, now: float) -> m.TaskList:
        """Return a task list together with tasks that it no longer names, but whose end
        is awaited.
        """
        if not task_list.left_out_of:
            self.awaits_unlisted = False
            return task_list
        listed = {place.task for place in task_list.tasks}
        places = self.awaited(task_list, reading, now, listed)
        self.awaits_unlisted = bool(places)
        return structs.replace(task_list, tasks=task_list.tasks + places)

    def awaited(
        self, task_list: m.TaskList, reading: Reading, now: float, ignored: Collection[int] = ()
    ) -> tuple[m.TaskPlace, ...]:
        """Return the places of tasks that have left out elements, according to the
        dispatcher, and whose end is still to arrive.

        Args:
            task_list: the task list.
            reading: the tasks that the client reads.
            now: present time.
            ignored: numbers of tasks to ignore.
        """
        places = []
        for number, count in task_list.left_out_of.items():
            task = None if number in ignored else reading.tasks.get(number)
            if task is None or not task.listed or not task.place.address or number in self.of_task:
                continue
            task.overdue = now if task.overdue is None else task.overdue
            if now - task.overdue < PATIENCE:
                places.append(task.place)
            else:
                self.of_task[number] = count
        return tuple(places)

    def _list(self, element: m.LeftOutElement) -> bool:
        """List an element in the quarantine. Return False if it was listed before."""
        where = (element.index, element.place, element.number)
        if where in self._listed:
            return False
        self._listed[where] = None
        if len(self._listed) > LEFT_OUT_REMEMBERED:
            del self._listed[next(iter(self._listed))]
        self._num_listed += 1
        self._do(e.NoteLeftOut(element))
        return True

    def tell_all(self, repetition: int) -> None:
        """Log, at the end of a repetition, how many elements are missing because the
        pipeline skips failing elements.
        """
        # A task counts from its last host on.
        missing, self.of_task = sum(self.of_task.values()), {}
        missing, self._num_listed = max(missing, self._num_listed), 0
        if missing:
            which = f"the newest {LEFT_OUT_KEPT:,} of them" if missing > LEFT_OUT_KEPT else "them"
            text = (
                f"job {self._job!r}, repetition {repetition}, ended without "
                f"{missing:,} elements that workers could not produce. They were "
                f"skipped because {self._reason(missing)}. `iterator.quarantine` "
                f"lists {which}, with the reasons"
            )
            self._do(e.LogLine("warning", text))

    def _reason(self, missing: int) -> str:
        """Return the reason why elements are missing.

        Only elements that end a worker's process are known individually. In copies of
        the input, the same element may be skipped several times.
        """
        poison = self._num_poison
        if not poison:
            return "the pipeline asks for it (on_error='skip')"
        others = "" if missing <= poison else " or the pipeline (on_error='skip')"
        return (
            f"the job (on_poison='skip'){others} asks for it; {poison} of them end "
            "their worker's process and are listed in the iterator's quarantine"
        )
