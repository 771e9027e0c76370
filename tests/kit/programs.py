"""Training programs in simulated worlds: their processes, the data loaders of these,
and the repetitions that they read.

``tests.kit.runs`` decides what goes wrong.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from msgspec import structs

from tests.kit.runner import Name
from tests.kit.world import SimulatedClient, World
from zmqdata import messages as m

Where = tuple[int, int]
"""An incarnation and a repetition."""
LOOKS = 0.25
"""Seconds between two looks at whether a process has read its repetition."""
STARTING = 0.15
"""Seconds from when a copy of a dataset is made until its process reads it."""
SECRET = 7
"""Seed of a data loader that has the same seed in each pass."""


@dataclass(frozen=True)
class SimulatedLoader:
    """A data loader, or another group of child processes, whose workers read for a
    training process.
    """

    workers: int
    """Number of workers."""
    is_persistent: bool = False
    """True if the workers live as long as the data loader."""
    is_seeded: bool = False
    """True if it has the same seed in each pass."""
    has_copies: bool = False
    """True if the workers are child processes that are given a copy of the dataset, of
    which zmqdata does not know that they serve a data loader.
    """


@dataclass(eq=False)
class RepetitionRead:
    """A repetition that a training process reads, by itself or through the workers of
    its data loader.
    """

    number: int
    """Number of the repetition among those of the process."""
    clients: list[SimulatedClient]
    """The iterators that read it."""

    @property
    def is_over(self) -> bool:
        """True if no iterator reads any more."""
        return all(client.outcome is not None for client in self.clients)

    @property
    def has_left(self) -> bool:
        """True if all iterators have ended and said goodbye."""
        return self.is_over and not any(client.alive for client in self.clients)

    @property
    def outcomes(self) -> set[str | None]:
        """The outcomes of its iterators."""
        return {client.outcome for client in self.clients}

    @property
    def opened(self) -> list[m.IterationOpened]:
        """The dispatcher's first answers to its iterators."""
        return [client.opened for client in self.clients if client.opened is not None]

    @property
    def places(self) -> set[Where]:
        """The incarnations and repetitions that its iterators read."""
        return {(opened.incarnation, opened.repetition) for opened in self.opened}

    @property
    def hows(self) -> set[str]:
        """The reasons why its iterators read what they read."""
        return {opened.how for opened in self.opened}

    @property
    def had(self) -> Counter[Name]:
        """The elements that its iterators took and kept."""
        found: Counter[Name] = Counter()
        for client in self.clients:
            found += elements_of(client)
        return found


def elements_of(client: SimulatedClient) -> Counter[Name]:
    """Return the elements that a training loop took and kept, under all its names."""
    laws = client.world.laws
    if client.consumer is not None:
        paths = client.world.steps.paths.values()
        taken = [pair for path in paths for pair in path.steps.values()]
        return Counter(name for who, name in taken if who in client.known_as)
    return Counter(
        laws.names[one] for one, owner in laws.owners.items() if owner in client.known_as
    )


@dataclass(eq=False)
class TrainingProcess:
    """A process of a training program, which iterates over its dataset."""

    program: TrainingProgram
    """The program."""
    name: str
    """Name of the process."""
    rank: str = ""
    """Its rank, or empty."""
    former: TrainingProcess | None = None
    """The process that it replaces, or None."""
    loader: SimulatedLoader | None = None
    """Its data loader, or None if it reads by itself."""
    consumer: int | None = None
    """Its number, if the job is coordinated."""
    local_workers: tuple[str, ...] = ()
    """Addresses of the workers beside it."""
    is_fresh: bool = False
    """True for a child that has made its dataset by itself."""
    died: float | None = None
    """When it was killed, or None."""
    is_over: bool = False
    """True if it has read all that it wants, or is dead."""
    rate: float = 1.0
    """Speed of its clock."""
    repetitions: int = 1
    """Number of repetitions that it wants to read."""
    readings: list[RepetitionRead] = field(default_factory=list)
    """The repetitions that it has begun to read."""

    def __post_init__(self) -> None:
        self.world = self.program.world
        self.random = random.Random(f"{self.world.seed}/{self.program.key}/{self.name}")
        self.begun = self.world.clock.now
        self._loaders = self._make_loaders()

    def _make_loaders(self) -> list[str]:
        count = 1 if self.loader is None else self.loader.workers
        return [self.world.new_process() for _ in range(count)]

    @property
    def has_copies(self) -> bool:
        """True if it gives copies of its dataset to child processes."""
        return self.loader is not None and self.loader.has_copies

    def read(self, resume: bytes = b"") -> RepetitionRead:
        """Begin to read the next repetition, from a state if one is given."""
        loader, number, key = self.loader, len(self.readings), self.program.key
        if loader is not None and not loader.is_persistent:
            self._loaders = self._make_loaders()
        seed = SECRET
        if loader is not None and not loader.is_seeded and not loader.is_persistent:
            seed = self.random.getrandbits(31)
        turn = number if loader is not None and loader.is_persistent else 0
        rule = self.program.on_existing
        place: dict[str, Any] = {"local_workers": self.local_workers, "resume": resume}
        run = m.Affiliation(key, self.rank, self.name, on_existing=rule, is_fresh=self.is_fresh)
        clients = []
        for worker, process in enumerate(self._loaders):
            part, counted = None, number
            copies: tuple[m.DatasetCopy, ...] = ()
            if loader is not None and loader.has_copies:
                copies, counted = (m.DatasetCopy(process, STARTING),), turn
            elif loader is not None:
                part = m.ReadingPass(seed, turn, worker, process)
            place["affiliation"] = structs.replace(run, reading_pass=part, copies=copies)
            client = self.world.add_client(counted, None, self.consumer, self.program.job, **place)
            client.rate = self.rate
            text = f"reads for {key} in {self.name} its number {number}"
            self.world.laws.tell(client.name, text)
            clients.append(client)
        self.readings.append(RepetitionRead(number, clients))
        return self.readings[-1]

    def train(
        self, repetitions: int, pause: Callable[[], float] = float, late: float = 0.0
    ) -> None:
        """Read so many repetitions, and pause between two of them.

        Args:
            repetitions: number of repetitions.
            pause: returns the seconds of the next pause.
            late: seconds until it begins.
        """
        self.repetitions = repetitions

        def go_on() -> None:
            if self.is_over:
                return
            last = self.readings[-1] if self.readings else None
            if last is not None and not (last.has_left if self.has_copies else last.is_over):
                self.world.clock.after(LOOKS, go_on)
            elif last is not None and not last.outcomes <= {"end", "closed early"}:
                self.kill()  # an error that it does not catch
            elif len(self.readings) == repetitions:
                self.is_over = True
            else:
                wait = pause() if self.readings else 0.0
                self.world.clock.after(wait + (STARTING if self.has_copies else 0.0), begin)

        def begin() -> None:
            if not self.is_over:
                self.read()
                go_on()

        self.world.clock.after(late, begin)

    def kill(self) -> None:
        """End at once, with all workers of the data loader."""
        if self.is_over:
            return
        self.world.laws.tell(self.program.key, f"loses {self.name}")
        self.is_over, self.died = True, self.world.clock.now
        for client in self.clients:
            if client.alive:
                client.die()

    @property
    def clients(self) -> list[SimulatedClient]:
        """All its iterators."""
        return [client for reading in self.readings for client in reading.clients]


@dataclass(eq=False)
class TrainingProgram:
    """A training program with its processes, which is a run."""

    world: World
    """The world."""
    key: str
    """Key of the run."""
    on_existing: str = "share"
    """Requested reaction if the name of the job is in use."""
    job: m.JobParameters | None = None
    """The job that it reads; that of the world if left out."""
    processes: list[TrainingProcess] = field(default_factory=list)
    """All processes that it ever had."""

    def start(self, rank: str = "", **options: Any) -> TrainingProcess:
        """Start a process. ``options`` are those of ``TrainingProcess``."""
        process = TrainingProcess(self, self.world.new_process(), rank, **options)
        self.world.laws.tell(self.key, f"starts {process.name} as rank {rank!r}")
        self.processes.append(process)
        return process

    def kill(self) -> None:
        """Kill all its processes."""
        for process in self.living:
            process.kill()

    @property
    def living(self) -> list[TrainingProcess]:
        """Its processes that have not ended."""
        return [process for process in self.processes if not process.is_over]

    @property
    def is_ranked(self) -> bool:
        """True if it has several ranks."""
        return all(process.rank for process in self.processes)

    @property
    def clients(self) -> list[SimulatedClient]:
        """All iterators that it ever had."""
        return [client for process in self.processes for client in process.clients]
