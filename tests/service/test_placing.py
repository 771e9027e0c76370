"""Facts about pipelines whose place is found out, where there is a service."""

from __future__ import annotations

from tests.service.conftest import Service
from zmqdata import Dataset


def slow(count: int) -> Dataset:
    return Dataset.range(count).map(lambda x: x + 0 * sum(range(20_000)))


def test_a_costly_pipeline_is_read_from_workers(service: Service) -> None:
    """Each of its elements comes once, and the audit knows them, though the first ones
    were also made here.
    """
    iterator = iter(service.read(slow(500), placement="auto"))
    assert sorted(int(x) for x in iterator) == list(range(500))
    assert not iterator.placement.local
    assert iterator.audit()["elements"]["delivered"] == 500


def test_it_goes_on_in_the_service_from_a_state(service: Service) -> None:
    """What was taken before the state and what comes after it is everything, once."""
    dataset = service.read(slow(500), placement="auto")
    first = iter(dataset)
    before = [int(next(first)) for _ in range(100)]
    state = first.state_dict()
    first.close()
    second = iter(dataset)
    second.load_state_dict(state)
    assert sorted(before + [int(x) for x in second]) == list(range(500))
