"""Facts about ``placement="auto"`` with a service."""

from __future__ import annotations

from tests.service.conftest import Service
from zmqdata import Dataset


def slow(count: int) -> Dataset:
    return Dataset.range(count).map(lambda x: x + 0 * sum(range(20_000)))


def test_a_costly_pipeline_is_read_from_workers(service: Service) -> None:
    """Each element of a costly pipeline comes once and is in the audit, though this
    process also made the first elements.
    """
    iterator = iter(service.read(slow(500), placement="auto"))
    assert sorted(int(x) for x in iterator) == list(range(500))
    assert not iterator.placement.local
    assert iterator.audit()["elements"]["delivered"] == 500


def test_it_goes_on_in_the_service_from_a_state(service: Service) -> None:
    """The elements taken before the state and the elements after it are together
    everything, once.
    """
    dataset = service.read(slow(500), placement="auto")
    first = iter(dataset)
    before = [int(next(first)) for _ in range(100)]
    state = first.state_dict()
    first.close()
    second = iter(dataset)
    second.load_state_dict(state)
    assert sorted(before + [int(x) for x in second]) == list(range(500))
