"""Facts about elements that a map on a worker skips or retries."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from tests.full import full
from tests.kit.service import WatchedService
from tests.service.simulated.parts import by_task, together
from zmqdata import Dataset, LeftOut
from zmqdata.client import quarantine
from zmqdata.errors import PipelineError


def picky(x: Any) -> Any:
    if x % 10 == 3:
        raise ValueError(f"no {x}")
    return x


def kept(count: int) -> list[int]:
    return [x for x in range(count) if x % 10 != 3]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


@pytest.mark.parametrize("parallel", [None, 3])
def test_elements_are_left_out(
    service: WatchedService,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    parallel: int | None,
) -> None:
    """Every other element comes once. The reader logs the first failure with place and
    traceback, the tenth, and the number of all.
    """
    monkeypatch.setattr(quarantine, "_log", quarantine.QuarantineLog())
    dataset = Dataset.range(200).map(picky, on_error="skip", num_parallel_calls=parallel)
    assert together(by_task(service, dataset, each=11)) == kept(200)
    told = warnings(caplog)
    (first,) = [text for text in told if "leaves out element " in text]
    assert "map(picky) at test_leaving_out.py:" in first
    assert "ValueError: no " in first
    assert "in picky" in first
    assert any("has left out 10 elements with ValueError" in text for text in told)
    assert any(
        "repetition 0, ended without 20 elements that workers could not produce" in text
        for text in told
    )
    assert len(told) == 3


def test_the_reader_lists_what_workers_have_left_out(service: WatchedService) -> None:
    """At the end of an epoch the iterator's quarantine has each skipped element once,
    with its error, its traceback and its split.
    """
    iterator = iter(service.read(Dataset.range(200).map(picky, on_error="skip")))
    assert sorted(map(int, iterator)) == kept(200)
    found = iterator.quarantine
    failed = sorted(set(range(200)) - set(kept(200)))
    assert sorted(int(one.error.removeprefix("ValueError: no ")) for one in found) == failed
    for one in found:
        assert type(one) is LeftOut
        assert one.node.startswith("map(picky) at test_leaving_out.py:")
        assert "in picky" in one.traceback
        assert one.split[0] <= int(one.error.split()[-1]) < one.split[1]


def never(x: Any) -> Any:
    raise ValueError(f"no {x}")


@pytest.mark.parametrize("mode", ["distributed_epoch", "parallel_epochs"])
@pytest.mark.parametrize("function", [never, picky])
@pytest.mark.parametrize("slow", [0.0, 0.3])
def test_the_end_does_not_overtake_what_was_left_out(
    service: WatchedService,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    function: Callable[[Any], Any],
    slow: float,
) -> None:
    """The quarantine is complete at the end, although the dispatcher tells it earlier
    than the workers tell what they have left out last, or everything.
    """
    push = service.network.push
    after = service.clock.after
    monkeypatch.setattr(service.network, "push", lambda *pushed: after(slow, lambda: push(*pushed)))
    iterator = iter(service.read(Dataset.range(14).map(function, on_error="skip"), mode))
    came = list(iterator)
    whole = 14 if mode == "distributed_epoch" else 28
    assert len(came) + len(iterator.quarantine) == whole


def part(x: Any) -> Dataset:
    return Dataset.range(x, x + 4).map(picky, on_error="skip")


REPEATED = Dataset.range(60).map(picky, on_error="skip").repeat(3)
NESTED = Dataset.range(50).interleave(part, cycle_length=3).batch(2)


@pytest.mark.parametrize(
    ("mode", "dataset", "failures"),
    [
        ("distributed_epoch", REPEATED, 18),
        full("parallel_epochs", REPEATED, 18),
        full("distributed_epoch", NESTED, 20),
        ("parallel_epochs", NESTED, 20),
    ],
    ids=["repeated", "repeated-parallel", "nested", "nested-parallel"],
)
@pytest.mark.parametrize("end", ["none", "kill", "stop"])
def test_each_element_left_out_is_listed_once(
    make_service: Callable[..., WatchedService],
    mode: str,
    dataset: Dataset,
    failures: int,
    end: str,
) -> None:
    """Each element that was left out is listed once, in each repetition and nested
    dataset, also if a worker is killed or stopped and another continues its tasks.
    """
    service = make_service(workers=2, pace=0.05)
    iterator = iter(service.read(dataset, mode))
    for _ in range(30):
        next(iterator)
    if end != "none":
        getattr(service.workers[0], end)()
    for _ in iterator:
        pass
    found = iterator.quarantine
    assert len(found) == len({(one.place, one.number) for one in found})
    if mode == "distributed_epoch" or end == "none":
        assert len(found) == failures * (2 if mode == "parallel_epochs" else 1)


def test_what_a_state_lists_is_listed_once(service: WatchedService) -> None:
    """An iterator that continues from a state lists what was left out before and after
    it, each element once.
    """
    dataset = service.read(Dataset.range(100).map(picky, on_error="skip"), deterministic=True)
    iterator = iter(dataset)
    for _ in range(40):
        next(iterator)
    resumed = iter(dataset)
    resumed.load_state_dict(iterator.state_dict())
    assert len(list(resumed)) == 50
    assert len(resumed.quarantine) == 10
    assert len({(one.place, one.number) for one in resumed.quarantine}) == 10


def test_the_newest_thousand_are_listed(
    service: WatchedService, caplog: pytest.LogCaptureFixture
) -> None:
    """The quarantine lists the newest thousand of all tasks; the log says that older
    ones were dropped, and how many there were.
    """
    iterator = iter(
        service.read(Dataset.range(3000).map(lambda x: int(x) // (int(x) % 2), on_error="skip"))
    )
    assert len(list(iterator)) == 1500
    assert len(iterator.quarantine) == 1000
    told = warnings(caplog)
    assert sum("lists the newest 1,000 only" in text for text in told) == 1
    assert any("ended without 1,500 elements" in text for text in told)
    assert any("lists the newest 1,000 of them" in text for text in told)


def test_more_than_may_be_left_out_fails(make_service: Callable[..., WatchedService]) -> None:
    """max_errors counts on each worker; the next failure is the error of its element,
    and the rest comes.
    """
    service = make_service(workers=1)
    elements = iter(service.read(Dataset.range(40).map(picky, on_error="skip", max_errors=2)))
    assert [int(next(elements)) for _ in kept(23)] == kept(23)
    with pytest.raises(PipelineError, match=r"no 23\n2 elements were left out before"):
        next(elements)
    assert [int(next(elements)) for _ in range(9)] == list(range(24, 33))


def test_budgets_are_of_each_worker(service: WatchedService) -> None:
    """Two workers may skip twice as many elements."""
    dataset = Dataset.range(200).map(lambda x: 1 // 0, on_error="skip", max_errors=3)
    elements, failures = iter(service.read(dataset)), 0
    while True:
        try:
            next(elements)
        except StopIteration:
            break
        except PipelineError:
            failures += 1
    assert failures == 200 - 6


def test_failures_are_tried_again(service: WatchedService) -> None:
    """on_error="retry" hides failures that end in success."""
    tries: dict[int, int] = {}

    def second_time(x: Any) -> Any:
        tries[int(x)] = tries.get(int(x), 0) + 1
        if tries[int(x)] < 2:
            raise OSError("flaky")
        return x

    dataset = Dataset.range(50).map(second_time, on_error="retry", retries=1)
    assert sorted(map(int, service.read(dataset))) == list(range(50))
