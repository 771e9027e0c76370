"""A Ray whose actors are objects of this process. A test kills nodes and actors, and
runs the calls of actors when they have an answer.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


class RayError(Exception):
    """As Ray's own."""


class ActorUnavailableError(RayError):
    """As Ray's own: the actor is between two lives."""


class ActorDiedError(RayError):
    """As Ray's own: the actor does not come back."""


class FakeReference:
    """A reference to the answer of an actor."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.call = call
        self.answer: Any = None
        self.is_done = False


class FakeActor:
    """A handle of an actor.

    Args:
        make: makes the object of a life of the actor.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self.life: Any = None
        self.is_dead = False
        self.calls: list[FakeReference] = []
        self._lock = threading.RLock()
        self.look = SimpleNamespace(remote=self._look)

    def place(self) -> None:
        """Place the actor on a node, and run the calls that wait for it."""
        with self._lock:
            self.life = self._make()
            self.run()

    def lose_node(self) -> None:
        """Kill the node of the actor. Calls that wait fail, later ones wait."""
        with self._lock:
            self.life = None
            for call in self.calls:
                call.answer, call.is_done = ActorUnavailableError("unavailable"), True
            self.calls.clear()

    def die(self, text: str = "killed") -> None:
        """End the actor for good."""
        with self._lock:
            self.is_dead, self.words = True, text
            self.run()

    def run(self) -> None:
        """Answer the calls that can be answered."""
        for call in self.calls if self.is_dead or self.life else []:
            if self.is_dead:
                call.answer = ActorDiedError(self.words)
            else:
                try:
                    call.answer = call.call()
                except Exception as error:
                    call.answer = RayError(str(error))
            call.is_done = True
        if self.is_dead or self.life:
            self.calls.clear()

    def _look(self, *arguments: object) -> FakeReference:
        made = FakeReference(lambda: self.life.look(*arguments))
        with self._lock:
            self.calls.append(made)
            self.run()
        return made


class FakeRay(ModuleType):
    """The module ``ray``.

    Attributes:
        actors: all actors that were ever made.
        cpus: number of CPUs of each node.
        taken: number of CPUs that others use.
        looks: that number at each question for the free ones.
        places: True to place new actors at once.
        error: the error of each call, if there is any.
    """

    def __init__(self) -> None:
        super().__init__("ray")
        self.exceptions = ModuleType("ray.exceptions")
        self.exceptions.__dict__.update(
            RayError=RayError, ActorUnavailableError=ActorUnavailableError
        )
        self.actors: list[FakeActor] = []
        self.cpus = [4.0]
        self.taken = 0.0
        self.looks: list[float] = []
        self.places = True
        self.error: Exception | None = None
        self.inits = self.shutdowns = 0
        self.refusal: Exception | None = None
        self.job = 0
        self.options: dict[str, Any] = {}

    def is_initialized(self) -> bool:
        return self.inits > self.shutdowns

    def init(self) -> None:
        self.inits += 1
        self.job += 1
        if self.refusal:
            raise self.refusal

    def shutdown(self) -> None:
        self.shutdowns = self.inits
        for actor in self.actors:
            actor.die()

    def get_runtime_context(self) -> SimpleNamespace:
        return SimpleNamespace(gcs_address="10.0.0.1:6379", get_job_id=lambda: f"{self.job:08}")

    def nodes(self) -> list[dict[str, Any]]:
        self._fail()
        return [{"Alive": True, "Resources": {"CPU": cpus}} for cpus in self.cpus]

    def available_resources(self) -> dict[str, float]:
        self._fail()
        self.looks.append(self.taken)
        free = sum(self.cpus) - self.taken
        return {"CPU": free} if free else {}

    def remote(self, **options: Any) -> Callable[[type], SimpleNamespace]:
        self.options = options

        def made(kind: type) -> SimpleNamespace:
            return SimpleNamespace(remote=lambda *arguments: self._create(kind, arguments))

        return made

    def _create(self, kind: type, arguments: Sequence[Any]) -> FakeActor:
        self._fail()
        actor = FakeActor(lambda: kind(*arguments))
        self.actors.append(actor)
        if self.places:
            actor.place()
        return actor

    def wait(
        self, references: list[FakeReference], num_returns: int = 1, timeout: float = 0
    ) -> tuple[list[FakeReference], list[FakeReference]]:
        self._fail()
        assert all(isinstance(one, FakeReference) for one in references)
        done = [one for one in references if one.is_done]
        return done, [one for one in references if not one.is_done]

    def get(self, reference: FakeReference, timeout: float) -> Any:
        if isinstance(reference.answer, Exception):
            raise reference.answer
        return reference.answer

    def kill(self, actor: FakeActor, no_restart: bool = True) -> None:
        self._fail()
        assert no_restart
        actor.die()

    def _fail(self) -> None:
        assert self.is_initialized(), "this call would start another runtime"
        if self.error:
            raise self.error


class FakeWorker:
    """A worker in an actor, whose state a test changes.

    Args:
        name: name of the worker.
        options: its options.
    """

    made: list[FakeWorker] = []  # noqa: RUF012 - cleared for each test
    drains_at_once = True

    def __init__(self, name: str, options: Any) -> None:
        self.name, self.options = name, options
        self.now = "running"
        self.words = "ended with exit code 2, and wrote: the key"
        FakeWorker.made.append(self)

    def state(self) -> str:
        return self.now

    def ending(self) -> str:
        return self.words

    def drain(self) -> None:
        self.now = "ended" if FakeWorker.drains_at_once else "draining"


def installed(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    """Put a new fake in the place of Ray, and of the workers in its actors."""
    from zmqdata.hosts import ray

    fake = FakeRay()
    monkeypatch.setitem(sys.modules, "ray", fake)
    monkeypatch.setitem(sys.modules, "ray.exceptions", fake.exceptions)
    monkeypatch.setattr(ray, "PlacedWorker", FakeWorker)
    monkeypatch.setattr(FakeWorker, "made", [])
    monkeypatch.setattr(FakeWorker, "drains_at_once", True)
    monkeypatch.setattr(ray.Ray, "look_every", 0.02)
    monkeypatch.setattr(ray.Ray, "poll", 0.02)
    return fake
