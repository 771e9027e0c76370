"""Loaders resume in each pass with the batches of a loader that was left alone."""

from __future__ import annotations

import threading
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import zmqdata
from zmqdata import Dataset
from zmqdata.client.iterator import ServiceIterator
from zmqdata.errors import FailedPreconditionError
from zmqdata.messages.identity import VERSION
from zmqdata.testing.cluster import await_condition
from zmqdata.torch import Loader, distribute_dataloader

pytestmark = pytest.mark.realprocess
Batches = list[list[int]]


def local(cluster: str) -> Loader:
    return Loader(Dataset.range(12).shuffle(12, seed=5).batch(2))


def copied(cluster: str) -> Loader:
    return Loader(Dataset.range(12).shuffle(12, seed=5).batch(2), device="cpu")


def promised(cluster: str) -> Loader:
    read = zmqdata.distribute("distributed_epoch", cluster, deterministic=True, num_tasks=2)
    return Loader(Dataset.range(12).shuffle(12, seed=5).batch(2).apply(read))


def behind(cluster: str) -> Loader:
    """Return a loader over a dataset that is shuffled behind the service, too."""
    read = zmqdata.distribute("distributed_epoch", cluster, deterministic=True, num_tasks=2)
    return Loader(Dataset.range(12).apply(read).shuffle(12, seed=5).batch(2))


MAKERS = [local, copied, promised, behind]


def left_alone(cluster: str, make: Any) -> tuple[list[Batches], list[list[dict[str, Any]]]]:
    """Return the batches of three passes, and the states before each batch and at the
    end of each pass.
    """
    loader = make(cluster)
    passes: list[Batches] = []
    states: list[list[dict[str, Any]]] = []
    for _ in range(3):
        passes.append([])
        iterator = iter(loader)
        states.append([loader.state_dict()])
        for batch in iterator:
            passes[-1].append(batch.tolist())
            states[-1].append(loader.state_dict())
        states[-1].append(loader.state_dict())
    return passes, states


@pytest.mark.parametrize("make", MAKERS)
def test_a_state_behind_an_iterator_after_a_broken_pass_resumes(cluster: str, make: Any) -> None:
    """A state that is taken when a loop has been left early, and the next one has no
    batch yet, resumes with the next pass and the one after it.
    """
    loader = make(cluster)
    next(iter(loader))
    held = iter(loader)
    state = loader.state_dict()
    wanted = [[batch.tolist() for batch in one] for one in (held, loader)]
    again = make(cluster)
    again.load_state_dict(state)
    assert [[batch.tolist() for batch in again] for _ in range(2)] == wanted


def test_a_pass_that_has_begun_goes_on_after_set_epoch_with_its_number() -> None:
    """Nothing is made twice if a loop sets the epoch of a pass that ``start`` has begun
    from a state. It begins anew with another number.
    """
    made: list[int] = []
    numbers = Dataset.range(12).map(lambda number: made.append(number) or number).prefetch(2)
    loader = Loader(numbers)
    next(iter(loader))
    state = loader.state_dict()
    loader.close()
    for epoch in (0, 1):
        loader.load_state_dict(state)
        made.clear()
        loader.start()
        await_condition(lambda: made, what="the first element is made")
        loader.set_epoch(epoch)
        assert len([*loader]) == 11
        assert (len(made) == 12) == (epoch == 0)  # with the one before the state


@pytest.mark.parametrize("make", MAKERS)
def test_a_state_of_any_pass_goes_on_in_later_passes(cluster: str, make: Any) -> None:
    """From the beginning, the middle, the last batch and the end of a later pass, a
    loader goes on with the batches of one that was left alone, pass after pass.
    """
    passes, states = left_alone(cluster, make)
    assert passes[0] != passes[1] != passes[2]
    last = len(passes[1])
    for place in (0, 2, last, last + 1):
        with make(cluster) as loader:
            loader.load_state_dict(states[1][place])
            rest = [[batch.tolist() for batch in loader] for _ in range(2)]
        wanted = passes[2] if place > last else passes[1][place:]
        assert rest[0] == wanted
        if place <= last:
            assert rest[1] == passes[2]


def test_loaders_that_share_a_generator_resume(cluster: str) -> None:
    """A validation loader that draws from the same generator in the middle of a pass
    leaves the later passes of a resumed training those of one that was left alone.
    """

    def made() -> tuple[Loader, Loader]:
        shared = torch.Generator().manual_seed(5)
        numbers: Any = torch.arange(12)
        loaders = [DataLoader(numbers, 2, shuffle=True, generator=shared) for _ in range(2)]
        first, second = (distribute_dataloader(one, cluster) for one in loaders)
        return first, second

    def trained(loader: Loader, other: Loader, states: list[Any] | None = None) -> Batches:
        found = []
        for _ in range(2):
            for batch in loader:
                found.append(batch.tolist())
                if len(found) == 3:
                    list(other)
                if states is not None:
                    states.append(loader.state_dict())
        return found

    states: list[Any] = []
    wanted = trained(*made(), states)
    for place in (2, 4):  # before and after the validation
        loader, other = made()
        loader.load_state_dict(states[place - 1])
        found = []
        for _ in range(2):
            for batch in loader:
                found.append(batch.tolist())
                if place + len(found) == 3:
                    list(other)
        assert found == wanted[place:]


@pytest.mark.parametrize("make", MAKERS)
def test_a_pass_that_was_left_is_followed_by_the_next(cluster: str, make: Any) -> None:
    """A loop that left a pass early and was restarted in the next has the batches of
    one that was not, also if a pass was begun for nothing before the state was loaded.
    """
    wanted = left_alone(cluster, make)[0][1]
    loader = make(cluster)
    next(iter(loader))
    iterator = iter(loader)
    before = [next(iterator).tolist() for _ in range(2)]
    state = loader.state_dict()
    loader.close()
    with make(cluster) as resumed:
        iter(resumed)
        resumed.load_state_dict(state)
        assert before + [batch.tolist() for batch in resumed] == wanted


def test_a_state_is_not_preceded_by_a_reader_from_the_beginning(
    cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loader that resumes opens its job once, at the place of the state. Ranks of a
    reader from the beginning, which leaves late, could find their job begun anew.
    """
    first = promised(cluster)
    wanted = [batch.tolist() for batch in first]
    stopped = promised(cluster)
    next(iter(stopped))
    state = stopped.state_dict()
    stopped.close()
    opened: list[bytes] = []
    make = ServiceIterator._open_shell

    def counting(iterator: Any, profile: Any) -> Any:
        opened.append(profile.resume)
        return make(iterator, profile)

    monkeypatch.setattr(ServiceIterator, "_open_shell", counting)
    with promised(cluster) as resumed:
        resumed.load_state_dict(state)
        assert [batch.tolist() for batch in resumed] == wanted[1:]
    assert len(opened) == 1
    assert opened[0]


def test_a_library_ends_a_pass_with_its_last_batch(cluster: str) -> None:
    """The state for a training library that counts steps begins the next pass after the
    last batch, or where the library ended the pass.
    """
    passes, _ = left_alone(cluster, local)
    for count, is_over in ((6, False), (3, True)):
        loader = local(cluster)
        iterator = iter(loader)
        for _ in range(count):
            next(iterator)
        resumed = local(cluster)
        resumed.load_state_dict(loader.trainer_state(is_over=is_over))
        assert [batch.tolist() for batch in resumed] == passes[1]


def unknown(cluster: str) -> Loader:
    """Return a loader that does not know its number of batches, which is 6."""
    numbers = Dataset.range(12).shuffle(12, seed=5).batch(2)
    return Loader(numbers.filter(lambda batch: True))


@pytest.mark.parametrize("taken", [3, 6])
def test_a_library_takes_no_empty_pass(cluster: str, taken: int) -> None:
    """A state from behind the last batch of a pass of unknown length begins the next
    pass for a training library. Its first batch counts only once it was received.
    """
    passes, _ = left_alone(cluster, unknown)
    loader = unknown(cluster)
    iterator = iter(loader)
    for _ in range(taken):
        next(iterator)
    resumed = unknown(cluster)
    resumed.load_trainer_state(loader.trainer_state())
    rest = passes[0][taken:] or passes[1]
    iterator = iter(resumed)
    again = unknown(cluster)
    again.load_state_dict(resumed.state_dict())
    assert [batch.tolist() for batch in iterator] == rest
    assert [batch.tolist() for batch in again] == rest


def test_a_user_takes_an_empty_pass(cluster: str) -> None:
    """A state from behind the last batch of a pass continues with no batch for a user,
    also in a loader into which a training library has loaded a state before.
    """
    loader = unknown(cluster)
    iterator = iter(loader)
    for _ in range(6):
        next(iterator)
    state = loader.state_dict()
    loader.load_trainer_state(state)
    loader.load_state_dict(state)
    assert list(loader) == []


def of_dataloader(cluster: str, count: int = 12, size: int = 2) -> Loader:
    return distribute_dataloader(
        DataLoader(TensorDataset(torch.arange(count)), size, shuffle=True), cluster
    )


@pytest.mark.parametrize("make", [local, promised, of_dataloader])
def test_a_pass_that_was_started_has_a_state(cluster: str, make: Any) -> None:
    """The state of a loader whose next pass was started early is that of its beginning,
    or the state that it continues from, also after ``set_epoch`` and ``close``.
    """
    torch.manual_seed(1)
    loader = make(cluster)
    loader.start()
    state = loader.state_dict()
    assert (state["epoch"], state["batches"]) == (0, 0)
    wanted = [str(batch) for batch in loader]
    resumed = make(cluster)
    resumed.load_state_dict(state)
    iterator = iter(resumed)
    next(iterator)
    middle = resumed.state_dict()
    resumed.load_state_dict(middle)
    for act in (resumed.start, lambda: resumed.set_epoch(0), resumed.start, resumed.close):
        act()
        state = resumed.state_dict()
        assert (state["epoch"], state["batches"]) == (0, 1)
    assert [str(batch) for batch in resumed] == wanted[1:]


def first_from(loader: Loader, state: dict[str, Any]) -> Any:
    """Return the first batch after a state."""
    loader.load_state_dict(state)
    return next(iter(loader))


def other_parameters(cluster: str) -> Loader:
    return Loader(Dataset.range(12).shuffle(12, seed=5).batch(3))


def longer(cluster: str) -> Loader:
    return of_dataloader(cluster, 14)


def in_other_batches(cluster: str) -> Loader:
    return of_dataloader(cluster, 12, 3)


class Numbers(IterableDataset):
    """Numbers of two workers."""

    def __iter__(self) -> Any:
        return iter(range(12))


def of_stream(cluster: str, size: int = 2) -> Loader:
    return distribute_dataloader(DataLoader(Numbers(), size, num_workers=2), cluster)


def of_stream_in_other_batches(cluster: str) -> Loader:
    return of_stream(cluster, 3)


def other_source(cluster: str) -> Loader:
    read = zmqdata.distribute("distributed_epoch", cluster, deterministic=True, num_tasks=2)
    return Loader(Dataset.range(13).shuffle(12, seed=5).batch(2).apply(read))


@pytest.mark.parametrize(
    ("make", "other", "reason"),
    [
        (local, other_parameters, "over another dataset"),
        (of_dataloader, longer, "with another order"),
        (of_dataloader, in_other_batches, "with another order"),
        (promised, other_source, "belongs to another pipeline"),
        (of_stream, of_stream_in_other_batches, "makes other batches of its streams"),
        (local, of_dataloader, "of kind 'dataset'.* of kind 'map'"),
    ],
)
def test_a_state_of_another_pipeline_is_refused(
    cluster: str, make: Any, other: Any, reason: str
) -> None:
    """A state of a loader that reads something else gives an error and no batch."""
    loader = make(cluster)
    next(iter(loader))
    state = loader.state_dict()
    loader.close()
    with other(cluster) as wrong, pytest.raises(FailedPreconditionError, match=reason):
        first_from(wrong, state)


@pytest.mark.parametrize(("make", "other"), [(local, copied), (copied, local)])
def test_a_state_needs_a_device_as_before(make: Any, other: Any) -> None:
    """A state of a loader with a device is refused by one without, and the other way
    round. Which device it is makes no difference.
    """
    loader = make("")
    next(iter(loader))
    with other("") as wrong, pytest.raises(FailedPreconditionError, match="device='cpu'"):
        first_from(wrong, loader.state_dict())
    source = Dataset.range(12).shuffle(12, seed=5).batch(2)
    right = Loader(source, device="meta" if make is copied else None, prefetch=5)
    right.load_state_dict(loader.state_dict())
    assert len([*right]) == 5


@pytest.mark.parametrize("make", [local, copied, promised, of_dataloader])
def test_threads_share_an_iterator(cluster: str, make: Any) -> None:
    """Threads that share an iterator divide its batches, all learn of the end, and
    states that are taken meanwhile count whole batches.
    """
    found: list[Any] = []
    counts: list[int] = []
    errors: list[BaseException] = []
    loader = make(cluster)
    iterator = iter(loader)

    def read() -> None:
        try:
            for batch in iterator:
                found.extend(batch[0].tolist() if isinstance(batch, list) else batch.tolist())
                counts.append(loader.state_dict()["batches"])
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
    assert not errors
    assert sorted(found) == [*range(12)]
    assert max(counts) <= 6


def test_threads_have_passes_of_their_own(cluster: str) -> None:
    """Threads that each begin a pass over one loader have all batches each."""
    loader = promised(cluster)
    found: list[list[int]] = []

    def read() -> None:
        found.append(sorted(row for batch in loader for row in batch.tolist()))

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
    assert found == [[*range(12)]] * 3


def test_a_state_of_an_earlier_version_loads_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A state whose pipeline was hashed in another way is loaded with one warning."""
    loader = local("")
    expected = [batch.tolist() for batch in local("")]
    next(iter(loader))
    state = loader.state_dict()
    found = state["source"]
    with local("") as again:
        again.load_state_dict(state | {"source": found.removeprefix(VERSION)})
        assert [batch.tolist() for batch in again] == expected[1:]
    assert caplog.text.count("have version v1, and those of this build have version v3") == 1
