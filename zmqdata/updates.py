"""Every durable fact of the dispatcher. ``DispatcherState.apply`` is the only thing
that changes state, by these.

A dispatcher writes the updates of a turn before it sends any message that reveals them;
replaying them from the beginning yields the same state. Old journals must stay
readable: add fields with defaults only; whatever else changes needs a migration in
``zmqdata.journal``.
"""

from __future__ import annotations

from msgspec import Struct

from zmqdata.decisions import Decision
from zmqdata.messages import Crumb, DatasetDescription, JobParameters, Ranges, TaskState, View
from zmqdata.splits import Split


class Update(Struct, frozen=True, tag=True):
    """Base of all updates."""


class BeginLifeUpdate(Update, frozen=True):
    """A dispatcher takes up this state: its ``life``-th one from the first.

    All random choices follow from ``seed``; what it makes is numbered from the other
    three on, as what was given such a number once may be gone and yet be remembered by
    peers.
    """

    life: int
    seed: int
    next_dataset: int
    next_iteration: int
    next_task: int


class AddWorkerUpdate(Update, frozen=True):
    """A worker is registered; it may be away for a while, as while the dispatcher
    is.
    """

    worker: str
    address: str
    tags: tuple[str, ...] = ()
    python: str = ""


class RemoveWorkerUpdate(Update, frozen=True):
    """A worker was lost, or said goodbye."""

    worker: str


class PlaceWorkerUpdate(Update, frozen=True):
    """The worker at this address has, or had last, this place in the list of configured
    addresses.
    """

    place: int
    address: str


class RegisterDatasetUpdate(Update, frozen=True):
    """A pipeline is stored under this id. ``kept``: also while nobody uses it."""

    dataset_id: str
    description: DatasetDescription
    kept: bool = True


class RemoveDatasetUpdate(Update, frozen=True):
    """A dataset that nobody used was collected."""

    dataset_id: str


class CreateJobUpdate(Update, frozen=True):
    """A job exists with these parameters."""

    job: JobParameters


class CreateIterationUpdate(Update, frozen=True):
    """A repetition of a job has begun; ``seed`` decides all of its random choices.

    ``num_shards``: the number of its tasks, where that is fixed from the beginning.
    """

    iteration: int
    job: str
    repetition: int
    seed: int
    num_shards: int = 0


class OpenClientUpdate(Update, frozen=True):
    """A client reads an iteration, as one of its numbered consumers where there are
    any.

    ``local_workers``: the addresses of workers in its own process.
    """

    client: str
    iteration: int
    local_workers: tuple[str, ...] = ()
    consumer: int | None = None


class CloseClientUpdate(Update, frozen=True):
    """A client reads no more; what it was given and did not report is owed to others.

    ``iteration``: what it read, of one that had gone before a snapshot.
    """

    client: str
    iteration: int | None = None


class CreateTaskUpdate(Update, frozen=True):
    """An iteration has one more task, without a host. ``shard``: its static part, or
    None.

    ``index``: its number among those of the iteration, if that is not the next one.
    """

    task: int
    iteration: int
    seed: int
    shard: int | None = None
    index: int | None = None


class HostTaskUpdate(Update, frozen=True):
    """A worker hosts the task under this attempt; an empty worker means that its host
    was lost.
    """

    task: int
    attempt: int
    worker: str


class AssignSplitsUpdate(Update, frozen=True):
    """The ledger of a task's source grows by one entry."""

    task: int
    source: int
    split: Split


class CutLedgerUpdate(Update, frozen=True):
    """The end of a ledger was taken back, unstarted: ``entries`` of them stay, and the
    last of these ends at ``stop``.

    What comes back is handed out again. An attempt's cuts are numbered from 1: this one
    has ``cut``.
    """

    task: int
    source: int
    cut: int
    entries: int
    stop: int


class TakeStateUpdate(Update, frozen=True):
    """A task can go on from this place of its pipeline. States that are not needed
    after that leave with it.
    """

    task: int
    state: TaskState


class DecideUpdate(Update, frozen=True):
    """Operations of a task have decided which elements they leave out: its decisions
    from number ``first`` on.
    """

    task: int
    first: int
    decisions: tuple[Decision, ...]


class ListFilesUpdate(Update, frozen=True):
    """The files of a source for one repetition, in the order in which they are handed
    out.
    """

    iteration: int
    source: int
    repetition: int
    names: tuple[str, ...]


class HoldUpdate(Update, frozen=True):
    """A client has received this of a task that lost its host, so the next host need
    not send it.
    """

    task: int
    client: str
    ranges: Ranges


class EndTaskUpdate(Update, frozen=True):
    """A task has come to its end after ``total`` elements, or rounds; ``dropped``
    elements made no round.

    ``left_out``: so many could not be made, and were left out as the pipeline wants it.
    """

    task: int
    total: int
    dropped: int = 0
    left_out: int = 0


class RemoveTaskUpdate(Update, frozen=True):
    """A task is no part of its iteration any more (its copy was lost and is not owed to
    anybody).
    """

    task: int


class DeliverUpdate(Update, frozen=True):
    """Elements of a task have reached a training loop, that of ``client``; empty in a
    snapshot.
    """

    task: int
    ranges: Ranges
    client: str = ""


class CountRepeatsUpdate(Update, frozen=True):
    """A client of an iteration has dropped so many elements, all in all, that came to
    it again.
    """

    iteration: int
    client: str
    count: int


class CreateViewUpdate(Update, frozen=True):
    """The consumers of a coordinated job read these tasks in turn, from the present
    horizon on.
    """

    iteration: int
    tasks: tuple[tuple[int, int], ...]


class ExtendHorizonUpdate(Update, frozen=True):
    """The consumers of a coordinated job may read the steps below ``horizon``."""

    iteration: int
    horizon: int


class PassStepsUpdate(Update, frozen=True):
    """What there is in all steps below ``step`` has reached the training loop of a
    consumer.
    """

    iteration: int
    consumer: int
    step: int


class RestoreLedgerUpdate(Update, frozen=True):
    """In a snapshot or from a checkpoint: the ledger of a task's source, and how often
    its end was taken back.

    Its first ``base`` entries are not needed any more.
    """

    task: int
    source: int
    splits: tuple[Split, ...]
    cuts: int
    base: int = 0


class RestoreCursorUpdate(Update, frozen=True):
    """In a snapshot or from a checkpoint: where an iteration, or a task of it, is in a
    source. See ``SplitCursor``.
    """

    iteration: int
    source: int
    repetition: int
    next: int
    returned: tuple[Split, ...]
    task: int | None = None


class RestoreSpentUpdate(Update, frozen=True):
    """In a snapshot or from a checkpoint: splits of a source that no ledger has any
    more. See ``SpentSplits``.
    """

    iteration: int
    source: int
    repetition: int
    ranges: Ranges


class RestoreRoundsUpdate(Update, frozen=True):
    """In a snapshot or from a checkpoint: how far consumers of a coordinated job have
    come, and how far they may go.
    """

    iteration: int
    steps: tuple[int, ...]
    views: tuple[View, ...]
    horizon: int
    known: tuple[int, ...]
    seats: tuple[str, ...] = ()


class RestoreTallyUpdate(Update, frozen=True):
    """In a snapshot: what was counted of an iteration. See ``Tally``."""

    iteration: int
    splits: dict[int, int]
    rehosted: int
    delivered: dict[str, int]
    repeats: dict[str, int]


class CloseTaskListUpdate(Update, frozen=True):
    """The iteration gets no further task, so its clients can find the end by
    themselves.
    """

    iteration: int


class FailIterationUpdate(Update, frozen=True):
    """An iteration can not go on; whoever reads it, now or later, gets this error.

    ``failure``: what a worker said of its pipeline, where that is the reason.
    """

    iteration: int
    error: str
    text: str
    failure: bytes = b""


class CommitChunkUpdate(Update, frozen=True):
    """A chunk of a task that is saved counts, and its elements with it, whether or not
    it has its final name yet.

    It was written under ``attempt`` and holds elements ``first ... stop - 1`` in
    ``size`` bytes; ``spec`` as in ``ChunkWritten``.
    """

    task: int
    attempt: int
    first: int
    stop: int
    size: int
    spec: bytes = b""


class FailSaveUpdate(Update, frozen=True):
    """What kept a save from going on, as the pipeline's failure; the iteration fails
    with it.
    """

    iteration: int
    failure: bytes


class EndSaveUpdate(Update, frozen=True):
    """The marker that ends a save, for good or ill, is on the disk."""

    iteration: int


class CountDeathUpdate(Update, frozen=True):
    """The process that hosted this attempt of a task ended; ``how`` and the rest as in
    ``Death``.
    """

    task: int
    attempt: int
    how: str
    killed: bool = False
    crumbs: tuple[Crumb, ...] = ()


class PoisonUpdate(Update, frozen=True):
    """A node of the task leaves out this element from now on; ``text`` says why."""

    task: int
    node: str
    number: int
    text: str


class RemoveJobUpdate(Update, frozen=True):
    """A job was collected with its iterations, tasks and clients; the same name may
    begin anew.
    """

    job: str


AnyUpdate = (
    BeginLifeUpdate
    | AddWorkerUpdate
    | RemoveWorkerUpdate
    | PlaceWorkerUpdate
    | RegisterDatasetUpdate
    | RemoveDatasetUpdate
    | CreateJobUpdate
    | CreateIterationUpdate
    | OpenClientUpdate
    | CloseClientUpdate
    | CreateTaskUpdate
    | HostTaskUpdate
    | AssignSplitsUpdate
    | CutLedgerUpdate
    | TakeStateUpdate
    | DecideUpdate
    | ListFilesUpdate
    | HoldUpdate
    | EndTaskUpdate
    | RemoveTaskUpdate
    | DeliverUpdate
    | CountRepeatsUpdate
    | CreateViewUpdate
    | ExtendHorizonUpdate
    | PassStepsUpdate
    | RestoreLedgerUpdate
    | RestoreCursorUpdate
    | RestoreSpentUpdate
    | RestoreRoundsUpdate
    | RestoreTallyUpdate
    | CloseTaskListUpdate
    | FailIterationUpdate
    | CommitChunkUpdate
    | FailSaveUpdate
    | EndSaveUpdate
    | CountDeathUpdate
    | PoisonUpdate
    | RemoveJobUpdate
)
