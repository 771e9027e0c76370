"""Test when a client may leave an iteration of which elements are still owed."""

from __future__ import annotations

from msgspec import structs

from zmqdata import messages as m
from zmqdata import updates as u
from zmqdata.core.dispatcher import events as e
from zmqdata.core.dispatcher.peers.liveness import Questions, Roster
from zmqdata.core.dispatcher.readers.leaving import FEW, PAUSE, QUIET, Departures
from zmqdata.core.dispatcher.state.outbox import Outbox
from zmqdata.core.dispatcher.state.tasks import Iteration, Task
from zmqdata.core.dispatcher.tasks.hosting import Hosting

JOB = m.JobParameters("job", "dataset", "DYNAMIC")


class Room:
    """An iteration with a task that owes an element, its readers, and the messages to
    them.
    """

    def __init__(self, *clients: str, shards: dict[str, int] | None = None) -> None:
        self.now = 1.0
        self.out = Outbox(1)
        self.clients = Roster()
        self.questions = Questions(self.out, self.clients)
        self.hosting = Hosting(self.out, Roster(), self.clients)
        self.departures = Departures(self.out, self.clients, self.questions, self.hosting)
        self.iteration = Iteration(7, JOB, 0, 1, [], closed=True)
        self.out.state.iterations[7] = self.iteration
        for number in sorted({*(shards or {"": 0}).values()}):
            task = Task(number, 7, 1, [], total=5, attempt=1, worker="w")
            task.shard = number if shards else None
            self.iteration.tasks[number] = self.out.state.tasks[number] = task
        self.beats = dict.fromkeys(clients, 0)
        self.done = dict.fromkeys(clients, 0)
        for client in clients:
            self.iteration.clients.add(client)
            own = () if shards is None else (shards[client],)
            self.iteration.openings[client] = u.OpenClientUpdate(client, 7, shards=own)
            self.out.state.client_iteration[client] = 7
            for shard in own:
                self.iteration.shard_readers.setdefault(shard, set()).add(client)
            self.clients.hear(client, client, 0.0)

    def question(self, count: int) -> m.Question:
        return m.Question(self.out.mark, count)

    def beat(
        self, client: str, done: bool = False, answers: int = 0, retells: int = 0
    ) -> list[tuple[str, m.Message]]:
        """Let a client speak, and return what the dispatcher sends."""
        self.now += 0.01
        self.beats[client] += 1
        self.done[client] = (self.done[client] or self.beats[client]) if done else 0
        self.clients.hear(client, client, self.now)
        beat = m.ClientHeartbeat(
            client,
            0,
            0,
            {},
            beat=self.beats[client],
            done=self.done[client],
            question=self.question(answers) if answers else None,
            retold=self.question(retells) if retells else None,
        )
        self.departures.record(self.iteration, beat, self.now)
        self.departures.push(self.now)
        return self.told()

    def pass_on(self, client: str, answers: int, done: bool = False) -> list[tuple[str, m.Message]]:
        """Let a worker pass on what a client has said."""
        return self.vouch(client, m.ReaderSign(0.0, self.question(answers), done))

    def vouch(self, client: str, sign: m.ReaderSign) -> list[tuple[str, m.Message]]:
        self.departures.hear(m.WorkerHeartbeat("w", (), (), {client: sign}))
        self.departures.push(self.now)
        return self.told()

    def told(self) -> list[tuple[str, m.Message]]:
        return [(one.peer, one.message) for one in self.out.drain() if isinstance(one, e.Send)]

    def tick(self, seconds: float = PAUSE + 0.01) -> list[tuple[str, m.Message]]:
        self.now += seconds
        self.departures.tick(self.now)
        return self.told()

    def asks(self, count: int, *clients: str) -> list[tuple[str, m.Message]]:
        return [(client, m.Probe(self.question(count))) for client in clients]


def test_an_answer_lets_the_others_go() -> None:
    """The dispatcher asks the readers that are not done, and lets a reader that is done
    end with the first answer.
    """
    room = Room("k", "l", "n")
    assert room.beat("k", done=True) == room.asks(1, "l", "n")
    assert room.beat("l", answers=1) == [("k", m.MayEnd("k", 1))]
    assert room.beat("n", answers=1) == []


def test_words_without_the_number_prove_nothing() -> None:
    """A message that was sent before the question lets no reader go, however late it is
    read.
    """
    room = Room("k", "l")
    room.beat("k", done=True)
    assert room.beat("l") == []
    assert room.beat("l", answers=2) == []
    assert room.pass_on("l", 0) == []
    room.clients.forgive(100.0, room.now)
    assert room.tick() == room.asks(1, "l")


def test_an_answer_to_another_start_proves_nothing() -> None:
    """The number of a question counts with the mark of the start that posed it."""
    room = Room("k", "l")
    room.beat("k", done=True)
    sign = m.ReaderSign(0.0, structs.replace(room.question(1), mark=room.out.mark + 1))
    assert room.vouch("l", sign) == []


def test_a_question_serves_those_that_were_done_before_it() -> None:
    """A reader that is done later is let go by an answer to a later question only."""
    room = Room("k", "l", "n")
    room.beat("k", done=True)
    assert room.beat("l", done=True) == room.asks(2, "n")
    assert room.beat("n", answers=1) == [("k", m.MayEnd("k", 1))]
    assert room.beat("n", answers=2) == [("l", m.MayEnd("l", 1))]


def test_an_answer_of_a_reader_that_is_done_lets_nobody_go() -> None:
    """A reader is there for what remains only if it was not done when it answered."""
    room = Room("k", "l", "dead")
    room.beat("k", done=True)
    assert room.beat("l", done=True, answers=1) == room.asks(2, "dead")
    assert room.pass_on("l", 2, done=True) == []


def test_only_a_reader_that_may_read_what_is_owed_lets_others_go() -> None:
    """A reader of another shard lets nobody go; a reader of the same shard does."""
    room = Room("k", "l", "other", shards={"k": 0, "l": 0, "other": 1})
    room.beat("k", done=True)
    assert room.beat("other", answers=1) == []
    assert room.beat("l", answers=1) == [("k", m.MayEnd("k", 1))]


def test_what_is_settled_needs_no_heir() -> None:
    """Readers that wait for the heir of one task may leave when this task is settled,
    if an heir of each other task has answered. That heir is asked for each of them.
    """
    room = Room("k", "l", "n", shards={"k": 0, "l": 0, "n": 1})
    for client in ("k", "l"):
        room.iteration.openings[client] = u.OpenClientUpdate(client, 7, shards=(0, 1))
    room.beat("k", done=True)
    assert room.beat("n", answers=1) == []
    assert room.beat("l", done=True) == room.asks(2, "n")
    assert room.beat("n", answers=2) == []
    task = room.iteration.tasks[0]
    task.delivered.add(0, 5)
    room.hosting.settle(task)
    room.hosting.lists.push(room.now)
    leaving = [one for one in room.tick(0.0) if isinstance(one[1], m.MayEnd)]
    assert leaving == [(client, m.MayEnd(client, 1)) for client in ("k", "l")]


def test_a_reader_that_waits_for_a_dead_one_delays_no_reader_of_another_shard() -> None:
    """A reader that is done is asked for, although a reader of another shard waits for
    longer, and for an heir that is dead.
    """
    room = Room("k", "dead", "l", "n", shards={"k": 1, "dead": 1, "l": 0, "n": 0})
    room.beat("k", done=True)
    room.beat("n", answers=1)
    assert room.beat("l", done=True) == room.asks(2, "n", "dead")
    assert room.beat("n", answers=2) == [("l", m.MayEnd("l", 1))]


def test_a_reader_that_gets_more_must_ask_again() -> None:
    """A reader that was done and read on in between needs an answer to a new
    question, even if the message that said so was lost.
    """
    room = Room("k", "l")
    room.beat("k", done=True)
    room.done["k"] = 0
    assert room.beat("k", done=True) == room.asks(2, "l")
    assert room.beat("l", answers=1) == []
    assert room.beat("l", answers=2) == [("k", m.MayEnd("k", 2))]


def test_a_reader_that_gets_more_is_asked_at_once() -> None:
    """A reader that was done and reads on is asked for the others, which wait."""
    room = Room("k", "l")
    room.beat("k", done=True)
    room.beat("l", done=True)
    assert room.beat("k") == room.asks(2, "k")
    assert room.beat("k", answers=2) == [("l", m.MayEnd("l", 1))]


def test_a_lost_answer_comes_again() -> None:
    """The dispatcher repeats its permission to a reader that still says it is done."""
    room = Room("k", "l")
    room.beat("k", done=True)
    room.beat("l", answers=1)
    assert room.beat("k", done=True) == [("k", m.MayEnd("k", 1))]


def test_an_answer_by_way_of_a_worker_counts() -> None:
    """A reader cut off from the dispatcher lets others go by what a worker passes on,
    and workers are told the question until then.
    """
    room = Room("k", "l")
    room.beat("k", done=True)
    assert room.questions.unanswered(room.now) == {"l": room.question(1)}
    assert room.pass_on("l", 1) == [("k", m.MayEnd("k", 1))]
    assert room.questions.unanswered(room.now) == {}


def test_a_reader_that_left_lets_nobody_go() -> None:
    """The dispatcher does not wait for a reader that has left, nor count its answer,
    and forgets a collected iteration.
    """
    room = Room("k", "l", "n")
    room.beat("k", done=True)
    room.departures.forget("k", room.iteration)
    assert room.beat("l", answers=1) == []
    room.beat("k", done=True)
    del room.out.state.iterations[7]
    room.departures.tick(room.now)
    assert room.beat("l", answers=2) == []


def test_many_readers_are_asked_in_turn() -> None:
    """The dispatcher first asks those of many readers that it heard last, and the
    others a quarter of a second later.
    """
    names = [f"k{number:03}" for number in range(2 * FEW + 2)]
    room = Room(*names)
    for name in names:
        room.beat(name)
    asked = [client for client, _ in room.beat("k000", done=True)]
    assert sorted(asked) == names[-FEW:]
    assert room.tick(PAUSE / 2) == []
    asked = [client for client, _ in room.tick(PAUSE)]
    assert sorted(asked) == names[2 : FEW + 2]
    assert len(room.beat("k001", done=True)) == FEW
    assert room.beat("k002", done=True) == []
    assert len(room.tick()) == FEW
    assert room.questions.pose() == 4


def test_a_new_question_does_not_begin_the_turn_anew() -> None:
    """Each of many readers is asked soon, although others become done meanwhile."""
    names = [f"k{number:03}" for number in range(4 * FEW)]
    room = Room(*names)
    asked = {client for client, _ in room.beat(names[0], done=True)}
    for name in names[1:4]:
        told = [*room.tick(), *room.beat(name, done=True)]
        asked |= {client for client, _ in told}
    assert asked >= {*names[4:]}


def test_all_are_done_when_each_says_so() -> None:
    """A reader that reads on, or has said nothing, is not done."""
    room = Room("k", "l")
    assert not room.departures.are_all_done(room.iteration)
    room.beat("k", done=True)
    assert not room.departures.are_all_done(room.iteration)
    room.beat("l", done=True)
    assert room.departures.are_all_done(room.iteration)
    room.beat("l")
    assert not room.departures.are_all_done(room.iteration)


def asked_to_retell(room: Room) -> tuple[int, list[str]]:
    """Return the question by which readers are asked for all that they have delivered,
    and these readers.
    """
    room.tick()
    asked = [
        (one.question.count, client)
        for client, one in room.tick(QUIET)
        if isinstance(one, m.Probe) and one.retells and one.question is not None
    ]
    return max(asked, default=(0, ""))[0], [client for _, client in asked]


def test_what_nobody_holds_is_made_again() -> None:
    """If all readers are done, each is asked for all that it has delivered. When each
    has told that, the rest of the tasks is made again.
    """
    room = Room("k", "l")
    room.beat("k", done=True)
    room.beat("l", done=True, answers=1)
    count, asked = asked_to_retell(room)
    assert (count, asked) == (3, ["k", "l"])
    room.beat("k", done=True, retells=count)
    room.tick()
    assert room.iteration.tasks[0].attempt == 1
    room.beat("l", done=True, retells=count)
    assert room.tick() == [(client, m.RequestHoldings(client, 0, 2)) for client in ("k", "l")]


def test_what_readers_of_a_shard_lack_waits_for_no_reader_of_another() -> None:
    """A reader of another shard may be dead, and alone there, so that it is not given
    up. A shard without a reader stays where it is.
    """
    room = Room("k", "dead", "gone", shards={"k": 0, "dead": 1, "gone": 2})
    room.iteration.shard_readers[2].clear()
    room.beat("k", done=True)
    count, asked = asked_to_retell(room)
    assert asked == ["k"]
    room.beat("k", done=True, retells=count)
    room.tick()
    assert [task.attempt for task in room.iteration.tasks.values()] == [2, 1, 1]


def test_an_answer_to_another_question_tells_nothing_again() -> None:
    """A reader that has heard the question from a worker, or a later one, has not told
    again what it has delivered. A retelling to another start does not count either.
    """
    room = Room("k")
    room.beat("k", done=True)
    count, _ = asked_to_retell(room)
    room.beat("k", done=True, answers=count)
    room.beat("k", done=True, answers=room.questions.pose())
    sign = structs.replace(room.question(count), mark=room.out.mark + 1)
    beat = m.ClientHeartbeat("k", 0, 0, {}, done=room.done["k"], retold=sign)
    room.departures.record(room.iteration, beat, room.now)
    room.tick()
    assert room.iteration.tasks[0].attempt == 1


def test_elements_that_a_reader_keeps_back_end_the_iteration() -> None:
    """A reader may report elements of a task that it received, and never hand them out.
    The task is taken from its host once. Then the iteration ends with an error that
    names the reader.
    """
    room = Room("k", "l")
    room.beat("l", done=True)
    room.beat("k", done=True)
    for ended in (False, True):
        count, _ = asked_to_retell(room)
        for client in ("k", "l"):
            room.beat(client, done=True, retells=count)
        room.tick()
        assert (room.iteration.failure is not None) == ended
        for client, ranges in (("k", ((0, 5),)), ("l", ())):
            room.hosting.record_holdings(m.HoldingsReported(client, 0, 2, ranges))
    assert room.iteration.failure is not None
    assert room.iteration.failure.error == "DataLossError"
    assert f"{m.shown_name('k')} of job job hold elements of task 0" in room.iteration.failure.text


def test_nothing_is_made_again_while_a_reader_may_hold_it() -> None:
    """A silent reader counts until it is given up."""
    room = Room("k", "silent")
    room.beat("k", done=True)
    for _ in range(20):
        assert room.tick() == room.asks(1, "silent")
