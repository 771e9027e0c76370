"""Every durable fact of the dispatcher. Only ``DispatcherState.apply`` changes state,
and only by these updates.

A dispatcher writes the updates of a turn before it sends any message that reveals them.
Replaying them from the beginning yields the same state. Old journals must stay
readable: a new field needs a default, and any other change needs a migration in
``zmqdata.journal``.

The fields ``worker``, ``dataset_id``, ``job``, ``incarnation``, ``iteration``, ``task``
and ``client`` identify the object that an update concerns. ``source`` is the index of a
source in the pipeline, from left to right.
"""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from zmqdata.decisions import Decision
from zmqdata.messages import DatasetDescription, JobParameters, Ranges, TaskState, View, Work
from zmqdata.splits import Split


class Update(Struct, frozen=True, tag=True):
    """Base of all updates."""

    is_firm: ClassVar[bool] = True
    """False if peers tell the fact again to a dispatcher whose journal has lost it."""


class BeginLifeUpdate(Update, frozen=True):
    """A dispatcher process takes over this state.

    New objects are numbered from ``next_dataset``, ``next_iteration`` and ``next_task``
    on: peers may still remember removed objects by their numbers.
    """

    life: int
    """Number of the dispatcher process, from the first that used this state."""
    seed: int
    """Seed of all random choices of the dispatcher."""
    next_dataset: int
    """Number of the next dataset."""
    next_iteration: int
    """Number of the next iteration."""
    next_task: int
    """Number of the next task."""
    next_incarnation: int
    """Number of the next incarnation."""
    mark: int = 0
    """Random mark of the process."""


class AddWorkerUpdate(Update, frozen=True):
    """A worker is registered. It may be unreachable for a while, for example during a
    restart of the dispatcher.
    """

    worker: str
    address: str
    """Address of its control socket."""
    tags: tuple[str, ...] = ()
    """Tags by which jobs select it."""
    python: str = ""
    """Version of its Python."""
    process: str = ""
    """Its host and process id."""
    name: str = ""
    """Name that its user has given it."""


class RemoveWorkerUpdate(Update, frozen=True):
    """A worker was lost or deregistered itself."""

    worker: str


class PlaceWorkerUpdate(Update, frozen=True):
    """A place in the list of configured addresses belongs to the worker at this
    address, or to its last worker.
    """

    place: int
    """Index in the list of configured addresses."""
    address: str
    """Address of the worker."""


class RegisterDatasetUpdate(Update, frozen=True):
    """A pipeline is stored under this id."""

    dataset_id: str
    description: DatasetDescription
    """Everything the dispatcher needs to know about the pipeline."""
    kept: bool = True
    """True if the dataset stays registered while no job uses it."""


class RemoveDatasetUpdate(Update, frozen=True):
    """An unused dataset was collected."""

    dataset_id: str


class BeginIncarnationUpdate(Update, frozen=True):
    """A job begins anew under its name, or begins again after it was collected."""

    incarnation: int
    job: JobParameters
    """Name and parameters of the job."""


class RunUpdate(Update, frozen=True):
    """A run reads this incarnation of a job from now on. Its members are counted
    anew.
    """

    job: str
    run: str
    """Key of the run."""
    incarnation: int
    base: int = 0
    """The repetition that the first pass of a member reads."""
    on_existing: str = "share"
    """Requested reaction if the name was in use."""
    again: bool = False
    """True if the run has read an earlier incarnation, so that members of it may have
    read on.
    """


class ForgetRunUpdate(Update, frozen=True):
    """A run is forgotten, because too many are known."""

    job: str
    run: str
    """Key of the run."""


class MemberUpdate(Update, frozen=True):
    """A process of a run reads a repetition of a job."""

    job: str
    run: str
    """Key of the run."""
    member: str
    """Rank of the process, or the process if its rank is unknown, or a copy of a
    dataset in another process.
    """
    process: str
    """The process that made the dataset object."""
    base: int
    """The repetition that its first pass reads."""
    used: int
    """The highest number of its passes so far, counted from ``base``; -1 if it has made
    none.
    """
    loaded: int = 0
    """Number of passes, of its data loaders and copies, that its iterators skip."""
    copied: int = -1
    """The highest number of a pass that its copies in other processes have made."""
    ended: int = -1
    """The highest number of a pass that its copies have ended."""


class PassUpdate(Update, frozen=True):
    """Workers of a data loader make a pass over a dataset. A later update with the same
    number adds workers.
    """

    job: str
    run: str
    """Key of the run."""
    member: str
    """The member that owns the data loader."""
    number: int
    """Number of the pass, counted from the ``base`` of the member."""
    seed: int
    """Seed of the data loader's epoch."""
    turn: int
    """Number of this pass among those of a worker."""
    workers: dict[int, str]
    """The process of each worker that has begun the pass since the last update."""


class RestoreIncarnationUpdate(Update, frozen=True):
    """The past of an incarnation, in a snapshot."""

    incarnation: int
    begun: Ranges
    """Ranges of numbers of the repetitions that have ever begun."""
    finished: Ranges
    """The collected repetitions among these of which every element was delivered."""
    shards: tuple[int, ...] = ()
    """Static shards that a client beside their workers has read."""


class CreateIterationUpdate(Update, frozen=True):
    """A repetition of a job has begun."""

    iteration: int
    incarnation: int
    repetition: int
    """Number of the repetition, from 0."""
    seed: int
    """Seed of all random choices of the iteration."""
    num_shards: int = 0
    """Number of the iteration's tasks if it is fixed from the beginning, else 0."""


class OpenClientUpdate(Update, frozen=True):
    """A client reads an iteration."""

    client: str
    iteration: int
    local_workers: tuple[str, ...] = ()
    """Addresses of the workers in the client's own process."""
    consumer: int | None = None
    """The client's consumer index in a coordinated job, else None."""
    run: str = ""
    """Key of the run to which the client belongs."""
    member: str = ""
    """Its rank there, or empty if it is unknown."""
    process: str = ""
    """The training process."""
    how: str = "begun"
    """Reason why the client reads this iteration, as in ``IterationOpened``."""
    shards: tuple[int, ...] = ()
    """Static shards of the workers beside it, if only it may read those."""
    owners: tuple[str, ...] = ()
    """The members of which it reads a copy, or whose data loader it serves."""
    script: str = ""
    """Path of its script."""


class CloseClientUpdate(Update, frozen=True):
    """A client stops reading. Elements that it received and did not report are owed to
    other clients.
    """

    client: str
    iteration: int | None = None
    """The iteration that the client read, in a snapshot; None otherwise."""


class CreateTaskUpdate(Update, frozen=True):
    """An iteration has a new task, without a host."""

    task: int
    iteration: int
    seed: int
    """Seed of the random choices of the task."""
    shard: int | None = None
    """Index of its static shard, or None."""
    index: int | None = None
    """Its index among the tasks of the iteration, or None for the next one."""


class HostTaskUpdate(Update, frozen=True):
    """A worker hosts the task under this attempt."""

    task: int
    attempt: int
    """Number of the attempt."""
    worker: str
    """The worker, or an empty text if the task lost its host."""


class AssignSplitsUpdate(Update, frozen=True):
    """An entry is appended to the ledger of a task's source."""

    task: int
    source: int
    split: Split
    """The new entry."""


class CutLedgerUpdate(Update, frozen=True):
    """The end of a ledger was taken back before the task started it. The returned
    splits are handed out again.
    """

    task: int
    source: int
    cut: int
    """Number of this cut, counted from 1 within an attempt."""
    entries: int
    """Number of ledger entries that remain."""
    stop: int
    """Index after the last split of the last remaining entry."""


class TakeStateUpdate(Update, frozen=True):
    """A task can continue from this state of its pipeline. The dispatcher then drops
    states that are no longer needed.
    """

    is_firm: ClassVar[bool] = False

    task: int
    state: TaskState
    """The state."""


class DecideUpdate(Update, frozen=True):
    """Operations of a task have decided which elements to skip."""

    task: int
    first: int
    """Number of the first decision in ``decisions``."""
    decisions: tuple[Decision, ...]
    """The decisions, in order."""


class ListFilesUpdate(Update, frozen=True):
    """The files of a source for one repetition, or further chunks of a save, in the
    order in which they are handed out.
    """

    iteration: int
    source: int
    repetition: int
    """Number of the repetition of the source."""
    names: tuple[str, ...]
    """Names of the files, or of chunks that are not known yet."""
    more: bool = False
    """True if the save may commit further chunks."""


class HoldUpdate(Update, frozen=True):
    """A client has received these elements of a task that lost its host, so the next
    host need not send them.
    """

    is_firm: ClassVar[bool] = False

    task: int
    client: str
    ranges: Ranges
    """Ranges of numbers of the received elements."""


class EndTaskUpdate(Update, frozen=True):
    """A task has reached its end."""

    is_firm: ClassVar[bool] = False

    task: int
    total: int
    """Number of its elements, or of its rounds in a coordinated job."""
    rest: int = 0
    """Number of elements after the last full round of a coordinated job. They count as
    a round in ``total``.
    """
    left_out: int = 0
    """Number of elements that failed and were skipped, as the pipeline requests."""


class RemoveTaskUpdate(Update, frozen=True):
    """A task is no longer part of its iteration: its copy was lost and is owed to no
    client.
    """

    task: int


class DeliverUpdate(Update, frozen=True):
    """Elements of a task have reached a training loop."""

    is_firm: ClassVar[bool] = False

    task: int
    ranges: Ranges
    """Ranges of numbers of the delivered elements."""
    client: str = ""
    """The client of that training loop; empty in a snapshot."""


class CountClientUpdate(Update, frozen=True):
    """A client of an iteration has counted elements that did not reach its training
    loop.
    """

    is_firm: ClassVar[bool] = False

    iteration: int
    client: str
    repeats: int
    """Number of elements that came again and were dropped."""
    given_back: int = 0
    """Number of elements that were given back for other clients."""


class CreateViewUpdate(Update, frozen=True):
    """The consumers of a coordinated job read these tasks in turn, from the present
    horizon on.
    """

    iteration: int
    tasks: tuple[tuple[int, int], ...]
    """The number of each task, and its round at its first step, in the order in which
    they are read.
    """


class ExtendHorizonUpdate(Update, frozen=True):
    """The consumers of a coordinated job may read the steps below ``horizon``."""

    iteration: int
    horizon: int
    """Number of the first step that may not be read yet."""


class PassStepsUpdate(Update, frozen=True):
    """The elements of all steps below ``step`` have reached the training loop of a
    consumer.
    """

    is_firm: ClassVar[bool] = False

    iteration: int
    consumer: int
    """Index of the consumer."""
    step: int
    """Number of the first step that has not been passed."""


class RestoreLedgerUpdate(Update, frozen=True):
    """The ledger of a task's source, in a snapshot or from a checkpoint."""

    task: int
    source: int
    splits: tuple[Split, ...]
    """The remaining entries."""
    cuts: int
    """Number of times that the end of the ledger was taken back."""
    base: int = 0
    """Number of entries dropped from the beginning, because they are no longer
    needed.
    """


class RestoreCursorUpdate(Update, frozen=True):
    """The position of an iteration, or of a task of it, in a source; in a snapshot or
    from a checkpoint. See ``SplitCursor``.
    """

    iteration: int
    source: int
    repetition: int
    """The current repetition."""
    next: int
    """Index of the first split that was not handed out."""
    returned: tuple[Split, ...]
    """Ranges that were taken back and are handed out before new splits."""
    task: int | None = None
    """The task with its own cursor, or None for the cursor of the iteration."""


class RestoreSpentUpdate(Update, frozen=True):
    """The splits of a source that no ledger holds any longer, in a snapshot or from a
    checkpoint. See ``SpentSplits``.
    """

    iteration: int
    source: int
    repetition: int
    """Number of the repetition of the source."""
    ranges: Ranges
    """Ranges of indices of the splits."""


class RestoreRoundsUpdate(Update, frozen=True):
    """The progress and the horizon of the consumers of a coordinated job, in a snapshot
    or from a checkpoint. See ``Rounds``.
    """

    iteration: int
    steps: tuple[int, ...]
    """Number of steps that each consumer has reported."""
    views: tuple[View, ...]
    """Views that a consumer has not passed yet."""
    horizon: int
    """Number of the first step that may not be read yet."""
    known: tuple[int, ...]
    """All tasks that were ever in a view."""
    seats: tuple[str, ...] = ()
    """The present or last client of each consumer."""


class RestoreTallyUpdate(Update, frozen=True):
    """The counts of an iteration, in a snapshot. See ``Tally``."""

    iteration: int
    splits: dict[int, int]
    """Number of splits that each task received and did not return."""
    rehosted: int
    """Number of splits of tasks when they lost their hosts."""
    delivered: dict[str, int]
    """Number of elements that each client reported first."""
    repeats: dict[str, int]
    """Number of repeated elements that each client dropped."""
    given_back: dict[str, int] = {}
    """Number of elements that each client gave back for others."""
    copies: dict[str, int] = {}
    """Number of copies of the input begun at each address."""
    records: int = 0
    """Number of facts of the iteration."""
    firm: int = 0
    """Number of those that no peer can tell again."""
    found: dict[int, tuple[int, int]] = {}
    """Both numbers at the end of each former process, by its mark."""
    last_of_copies: dict[str, str] = {}
    """The worker that began the last copy at each address."""


class CloseTaskListUpdate(Update, frozen=True):
    """The iteration gets no further task, so its clients can find its end without the
    dispatcher.
    """

    is_firm: ClassVar[bool] = False

    iteration: int


class FailIterationUpdate(Update, frozen=True):
    """An iteration cannot continue. All its present and future clients get this
    error.
    """

    iteration: int
    error: str
    """Name of the class of the error."""
    text: str
    """Text of the error."""
    failure: bytes = b""
    """The pipeline failure that a worker reported as the reason, or empty."""


class CommitChunkUpdate(Update, frozen=True):
    """A chunk of a saved task is committed, and its elements with it, even before the
    chunk has its final name.
    """

    task: int
    attempt: int
    """The attempt that wrote the chunk."""
    first: int
    """Number of its first element."""
    stop: int
    """Number after its last element."""
    size: int
    """Size of the chunk in bytes."""
    spec: bytes = b""
    """Spec of the elements, as in ``ChunkWritten``."""


class FailSaveUpdate(Update, frozen=True):
    """A save has failed with a pipeline failure. Its iteration fails with the same
    failure.
    """

    iteration: int
    failure: bytes
    """The encoded failure."""


class EndSaveUpdate(Update, frozen=True):
    """The marker that ends a save, whether it succeeded or failed, is on the disk."""

    iteration: int


class CountDeathUpdate(Update, frozen=True):
    """The process that hosted this attempt of a task ended. The fields have their
    meaning in ``Death``.
    """

    task: int
    attempt: int
    """The attempt that the process hosted."""
    how: str
    """The way in which the process ended, in words."""
    killed: bool = False
    """True if the process was killed, or exceeded its memory limit."""
    in_progress: tuple[Work, ...] = ()
    """The work that the task was doing."""
    alone: bool = False
    """True if the process ran nothing else, to try the suspects of the task."""
    proof: bool = False
    """True if this proves that the only element in ``in_progress`` has killed the
    process.
    """


class ClearSuspectsUpdate(Update, frozen=True):
    """A task has made its suspects alone and lives, or could not make them in time. Its
    deaths until now raise no suspicion any more.
    """

    task: int
    attempt: int
    """The last attempt that died."""


class PoisonUpdate(Update, frozen=True):
    """A node of the task skips this element from now on."""

    task: int
    node: str
    """Place of the node in the pipeline."""
    number: int
    """Number of the element in the node's input."""
    text: str
    """The reason, as text."""


class CollectIncarnationUpdate(Update, frozen=True):
    """An incarnation was collected with its iterations, tasks and clients. It is
    remembered while a run reads it.
    """

    incarnation: int


AnyUpdate = (
    BeginLifeUpdate
    | AddWorkerUpdate
    | RemoveWorkerUpdate
    | PlaceWorkerUpdate
    | RegisterDatasetUpdate
    | RemoveDatasetUpdate
    | BeginIncarnationUpdate
    | RunUpdate
    | ForgetRunUpdate
    | MemberUpdate
    | PassUpdate
    | RestoreIncarnationUpdate
    | CreateIterationUpdate
    | CountClientUpdate
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
    | ClearSuspectsUpdate
    | PoisonUpdate
    | CollectIncarnationUpdate
)
