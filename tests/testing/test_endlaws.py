"""Facts about the laws of the end: each law catches a reader that breaks it."""

from __future__ import annotations

import pytest

from tests.kit.checks import LawBroken
from tests.kit.endlaws import WARNING, EndLaws
from tests.kit.runner import SimulatedPipeline
from tests.kit.world import SimulatedClient, World
from zmqdata import messages as m
from zmqdata.core import events
from zmqdata.core.client import events as client_events


class LastSteps:
    """A world in which two readers have received everything, and the first is done.

    ``beside`` says beside which worker each of them reads, if they read from no other.
    """

    def __init__(self, anonymous: bool = False, beside: tuple[int, ...] = ()) -> None:
        self.world = World(
            1,
            pipeline=SimulatedPipeline(splits=30, most=1),
            journalled=True,
            anonymous=anonymous,
            target_workers="LOCAL" if beside else "AUTO",
        )
        self.laws = EndLaws(self.world)
        workers = [self.world.add_worker() for _ in beside or (0,)]
        self.world.clock.advance(1.0 if beside else 0.0)
        places = [(workers[number].name,) for number in beside] or [()] * 2
        self.done, self.holder = (self.world.add_client(local_workers=one) for one in places)
        for client in (self.done, self.holder):
            client.pace, client.gulp = 0.02, 1
        self.world.run_until(lambda: self.holder.taken >= 2 and bool(self.holder.queue))
        self.holder.stalled_until = self.world.clock.now + 1000.0

    def ends(self, *before: client_events.ClientCommand) -> None:
        """Let the first reader end, whatever its core thinks of that."""
        commands = [*before, events.Finish()]
        self.world.laws.check(self.done.name, self.done.core, events.Tick(), commands)

    def says(self, client: SimulatedClient, done: bool) -> None:
        """Let a reader say whether it is done."""
        heartbeat = m.ClientHeartbeat(client.name, 0, 0, {}, done=done)
        beat = events.Send(client_events.DISPATCHER, heartbeat)
        self.world.laws.check(client.name, client.core, events.Tick(), [beat])


def test_a_reader_may_end_beside_an_heir() -> None:
    """A reader may end while another one, which is not done, holds elements."""
    scene = LastSteps()
    scene.says(scene.done, done=True)
    scene.world.clock.advance(0.001)
    scene.ends()
    assert scene.laws.ends == 1


def test_a_reader_beside_another_worker_is_no_heir() -> None:
    """The laws count a reader as an heir of a task only if it is beside the worker that
    hosts the task: whether a reader may end, and whether it must.
    """
    for beside, is_heir in (((0, 0), True), ((0, 1), False)):
        scene = LastSteps(beside=beside)
        scene.done.stalled_until = scene.world.clock.now + 1000.0
        scene.world.clock.advance(3.0)
        scene.says(scene.done, done=True)
        if is_heir:
            with pytest.raises(LawBroken, match="has not ended"):
                scene.world.clock.advance(0.2)
            scene.ends()
        else:
            scene.world.clock.advance(0.2)
            with pytest.raises(LawBroken, match="no reader is there"):
                scene.ends()


def test_a_reader_that_ends_after_the_death_of_the_heir_breaks_a_law() -> None:
    """The laws want an heir that lived after the reader was done."""
    scene = LastSteps()
    scene.holder.die()
    scene.world.clock.advance(0.001)
    scene.says(scene.done, done=True)
    with pytest.raises(LawBroken, match="no reader is there"):
        scene.ends()


def test_a_reader_that_is_stopped_is_no_heir() -> None:
    """The laws do not count a reader that is stopped, because it answers nothing."""
    scene = LastSteps()
    scene.holder.freeze(100.0)
    scene.world.clock.advance(0.001)
    scene.says(scene.done, done=True)
    with pytest.raises(LawBroken, match="no reader is there"):
        scene.ends()


def test_a_reader_that_is_done_is_no_heir() -> None:
    """The laws do not let two readers that are done release each other."""
    scene = LastSteps()
    scene.says(scene.holder, done=True)
    scene.world.clock.advance(0.001)
    scene.says(scene.done, done=True)
    with pytest.raises(LawBroken, match="no reader is there"):
        scene.ends()


def test_a_reader_may_end_with_a_warning_if_the_dispatcher_is_silent() -> None:
    """The laws let a reader end without the dispatcher, if it waits for a second and
    warns.
    """
    for seconds, is_broken in ((0.1, True), (2.0, False)):
        scene = LastSteps()
        scene.holder.die()
        scene.world.dispatcher.freeze(1000.0)
        scene.world.clock.advance(0.001)
        scene.says(scene.done, done=True)
        scene.done.freeze(1000.0)
        scene.world.clock.advance(seconds)
        warning = events.LogLine("warning", f"elements {WARNING}")
        if is_broken:
            with pytest.raises(LawBroken, match="no reader is there"):
                scene.ends(warning)
        else:
            scene.ends(warning)


def test_the_core_warns_in_the_words_of_the_laws() -> None:
    """A reader that ends without the dispatcher logs the warning that the laws expect.
    One that still waits for the dispatcher does not.
    """
    scene, told = LastSteps(), list[str]()
    scene.world.laws.on_client.append(
        lambda name, core, event, commands: told.extend(
            one.text for one in commands if isinstance(one, events.LogLine)
        )
    )
    scene.world.run_until(lambda: scene.done.core.ending.has_begun)
    scene.holder.die()
    scene.world.dispatcher.die()
    scene.world.run_until(lambda: scene.done.outcome is not None)
    silent = [text for text in told if "no answer from the dispatcher" in text]
    assert [WARNING in text for text in silent] == [*[False] * (len(silent) - 1), True]
    assert len(silent) > 1


def test_a_reader_may_end_by_what_a_lost_journal_said() -> None:
    """The laws let a reader end if a start whose journal was set back since has told it
    that nothing is owed. The list of the present start must be true.
    """
    for is_set_back, is_former in ((True, True), (True, False), (False, True)):
        scene = LastSteps()
        scene.holder.die()
        mark = scene.world.dispatcher.core.out.mark
        written = m.JournalCounts(mark + is_former, 2000, 0, 0)
        scene.done.core.task_list = m.TaskList(9, (), True, written=written)
        scene.world.laws.is_set_back = is_set_back
        scene.world.clock.advance(0.001)
        if is_set_back and is_former:
            scene.ends()
        else:
            with pytest.raises(LawBroken, match="no reader is there"):
                scene.ends()


def test_only_an_anonymous_reader_ends_by_what_it_has_itself() -> None:
    """The laws let the reader of a named job end by a list of a lost start only if the
    list is empty.
    """
    for anonymous in (True, False):
        scene = LastSteps(anonymous)
        scene.holder.die()
        scene.world.clock.advance(0.001)
        scene.done.core.reading.has_all = lambda tasks: True  # type: ignore[method-assign]
        mark = scene.world.dispatcher.core.out.mark
        written = m.JournalCounts(mark + 1, 2000, 0, 0)
        place = m.TaskPlace(1, 1, "", "")
        scene.done.core.task_list = m.TaskList(9, (place,), True, written=written)
        scene.world.laws.is_set_back = True
        if anonymous:
            scene.ends()
        else:
            with pytest.raises(LawBroken, match="no reader is there"):
                scene.ends()


def test_a_reader_that_waits_beside_an_heir_breaks_a_law() -> None:
    """The laws want a done reader to end within four hops while an heir runs."""
    scene = LastSteps()
    scene.done.stalled_until = scene.world.clock.now + 1000.0
    scene.world.clock.advance(3.0)
    scene.says(scene.done, done=True)
    with pytest.raises(LawBroken, match="has not ended"):
        scene.world.clock.advance(0.2)
