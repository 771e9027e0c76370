"""Test registered datasets."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from zmqdata import messages as m
from zmqdata import updates as u
from zmqdata.core.dispatcher import datasets
from zmqdata.core.dispatcher import events as e
from zmqdata.core.dispatcher.datasets import (
    CHECK_FOR,
    CHECKED_FOR,
    UNASKED_FOR,
    UNUSED_AT_LEAST,
    Datasets,
)
from zmqdata.core.dispatcher.peers.liveness import Roster
from zmqdata.core.dispatcher.state.outbox import Outbox
from zmqdata.elements.specs import TensorSpec, encode_spec
from zmqdata.splits import IndexSplits

SPEC = encode_spec({"x": TensorSpec((None,), "int8"), "y": TensorSpec((), "int64")})
DESCRIPTION = m.DatasetDescription(
    "0" * 64, "print", (IndexSplits(10),), "", SPEC, 10, None, "3.11", "0"
)
GC = 300.0


def digest(number: int) -> str:
    return f"{number:064x}"


class Shelf:
    """Datasets of a dispatcher, the first under a chosen id, and its decisions since
    the last check.
    """

    def __init__(self, gc_timeout: float = GC) -> None:
        self.out = Outbox(1)
        self.workers = Roster()
        self.datasets = Datasets(self.out, self.workers, gc_timeout)
        self.register("dataset", digest=digest(0))
        self.done()

    @property
    def names(self) -> set[str]:
        return set(self.out.state.datasets)

    def done(self) -> list[Any]:
        return [one.message if isinstance(one, e.Send) else one for one in self.out.drain()]

    def only(self, kind: type[Any]) -> Any:
        (found,) = (one for one in self.done() if isinstance(one, kind))
        return found

    def register(
        self, name: str | None, now: float = 0.0, keep: bool = False, **changes: Any
    ) -> None:
        description = structs.replace(DESCRIPTION, **changes)
        self.datasets.register(
            "peer", m.RegisterDataset("request", name, description, b"bytes", keep), now
        )

    def own(self, number: int, now: float = 0.0, keep: bool = False) -> str:
        """Register a dataset without an id."""
        self.register(None, now, keep, digest=digest(number))
        found: str = self.only(m.DatasetRegistered).dataset_id
        return found


def test_a_dataset_is_stored_once() -> None:
    """The same pipeline keeps its id for each client, and a different pipeline gets the
    next id.
    """
    shelf = Shelf()
    assert shelf.own(4) == shelf.own(4)
    shelf.register(None, digest=digest(1))
    done = shelf.done()
    assert [type(one) for one in done] == [e.StorePipeline, e.Commit, m.DatasetRegistered]
    assert done[2].dataset_id == str(shelf.out.state.next_dataset - 1)


def test_a_chosen_id_is_not_taken_away() -> None:
    """The dispatcher skips ids that a user has chosen when it generates ids."""
    shelf = Shelf()
    taken = str(shelf.out.state.next_dataset + 1)
    shelf.register(taken, digest=digest(2))
    shelf.register(None, digest=digest(3))
    assert shelf.names == {"dataset", taken, str(int(taken) + 1)}


def test_a_chosen_id_stands_for_no_other_dataset() -> None:
    """A dataset without an id gets one of its own although the same content has an id
    that a user chose, because that id has the user's jobs.
    """
    shelf = Shelf()
    shelf.register(None)
    assert shelf.only(m.DatasetRegistered).dataset_id.isdecimal()
    assert len(shelf.names) == 2


def test_other_content_under_a_known_id_is_not_taken_in_silence() -> None:
    """The first content of an id stays and the log reports other content, but not the
    same content once more.
    """
    shelf = Shelf()
    shelf.register("dataset", digest=digest(1), fingerprint="other")
    found = shelf.done()
    assert [one.text for one in found if isinstance(one, e.LogLine)] == [
        "dataset dataset is registered again with other content, which is ignored: the first one "
        "stays"
    ]
    assert found[-1] == m.DatasetRegistered("request", "dataset")
    shelf.register("dataset", digest=digest(1))
    assert shelf.done() == [m.DatasetRegistered("request", "dataset")]
    assert shelf.out.state.datasets["dataset"].digest == digest(0)


def test_an_id_stands_for_one_structure() -> None:
    """Registering another structure under a known id is an error that shows the
    difference.
    """
    shelf = Shelf()
    shelf.register("dataset", cardinality=11)
    refused = shelf.only(m.RequestRefused)
    assert refused.error == "InvalidArgumentError"
    assert "cardinality: <10>; got <11>" in refused.text
    shelf.register("dataset", digest=digest(7))
    assert shelf.only(m.DatasetRegistered).dataset_id == "dataset"


def test_specs_are_compared_by_what_they_mean() -> None:
    """The order of a dict's keys and a spec unknown on either side are no difference,
    but another dtype is a difference.
    """
    shelf = Shelf()
    turned = encode_spec({"y": TensorSpec((), "int64"), "x": TensorSpec((None,), "int8")})
    for spec in (turned, None):
        shelf.register("dataset", element_spec=spec, digest=digest(7))
        assert shelf.only(m.DatasetRegistered).dataset_id == "dataset"
    shelf.register("dataset", element_spec=encode_spec(TensorSpec((), "int64")))
    text = shelf.only(m.RequestRefused).text
    assert text.startswith(
        "Datasets with the same ID should have the same structure, got diff for dataset: existing"
    )
    assert "'x': TensorSpec(shape=(None,), dtype=int8)" in text
    assert "got <TensorSpec(shape=(), dtype=int64)>" in text


def test_a_spec_that_cannot_be_read_is_refused() -> None:
    """The dispatcher refuses an unreadable spec, as clients that know only the id could
    not use it.
    """
    shelf = Shelf()
    shelf.register(None, element_spec=b"\xc1", digest=digest(8))
    refused = shelf.only(m.RequestRefused)
    assert (refused.error, refused.text[:29]) == (
        "InvalidArgumentError",
        "Failed to parse element_spec:",
    )


# --- parts


def test_a_dataset_is_registered_when_its_parts_are_here() -> None:
    """The dispatcher asks for a missing part from its kept size, and a later
    registration under a known id needs no upload.
    """
    shelf = Shelf()
    parts = (m.Part(digest(20), 10), m.Part(digest(21), 10))
    shelf.datasets.parts.restore([digest(20)], {digest(21): 4})
    shelf.register(None, digest=digest(1), parts=parts)
    assert shelf.done() == [m.RequestPart("request", digest(21), 4)]
    shelf.datasets.parts.restore([digest(21)], {})
    shelf.register(None, digest=digest(1), parts=parts)
    assert [type(one) for one in shelf.done()] == [e.StorePipeline, e.Commit, m.DatasetRegistered]
    shelf.register("dataset", digest=digest(2), parts=(m.Part(digest(22), 10),))
    assert shelf.only(m.DatasetRegistered).dataset_id == "dataset"


def test_a_large_pipeline_is_a_part_itself() -> None:
    """A large pipeline is stored only as parts, which are not removed with the dataset
    but by their own rules.
    """
    shelf = Shelf()
    shelf.datasets.parts.restore([digest(1)], {})
    description = structs.replace(DESCRIPTION, digest=digest(1), parts=(m.Part(digest(1), 10),))
    shelf.datasets.register("peer", m.RegisterDataset("request", None, description, b""), 0.0)
    assert [type(one) for one in shelf.done()] == [e.Commit, m.DatasetRegistered]
    shelf.datasets.collect_unused(GC + 1)
    assert [type(one) for one in shelf.done()] == [e.LogLine, e.Commit]


def test_a_part_s_digest_is_hexadecimal_too() -> None:
    """The digest of a part is hexadecimal, as it becomes a file name."""
    shelf = Shelf()
    shelf.register(None, digest=digest(1), parts=(m.Part("../x", 10),))
    assert "64 hexadecimal" in shelf.only(m.RequestRefused).text


@pytest.mark.parametrize(
    "bad", ["", "../../etc/passwd", "A" * 64, "0" * 63, "0" * 65, "0" * 64 + "\n"]
)
def test_a_digest_is_hexadecimal(bad: str) -> None:
    """The dispatcher refuses any other digest of a dataset, as it becomes a file
    name.
    """
    shelf = Shelf()
    shelf.register(None, digest=bad)
    (refused,) = shelf.done()
    assert (refused.error, "64 hexadecimal" in refused.text) == ("InvalidArgumentError", True)


def test_a_dataset_is_described_by_its_id() -> None:
    """A client that knows the id gets the description, and an unknown id is an
    error.
    """
    shelf = Shelf()
    shelf.datasets.describe("peer", m.DescribeDataset("request", "dataset"), 0.0)
    assert shelf.only(m.DatasetDescribed).description == DESCRIPTION
    shelf.datasets.describe("peer", m.DescribeDataset("request", "other"), 0.0)
    assert shelf.only(m.RequestRefused).text == "Dataset id other not found."


# --- leaving


def test_a_dataset_that_nobody_uses_is_removed_with_its_pipeline() -> None:
    """An unused dataset is removed with its pipeline after the time-out since its
    registration, and a chosen id stays for ever.
    """
    shelf = Shelf()
    name = shelf.own(1, now=100.0)
    shelf.datasets.collect_unused(100.0 + GC - 1)
    assert shelf.done() == []
    shelf.datasets.collect_unused(100.0 + GC)
    note, *rest = shelf.done()
    assert name in note.text
    assert rest == [e.Commit(u.RemoveDatasetUpdate(name)), e.DropPipeline(digest(1))]
    assert (shelf.names, list(shelf.datasets.used_at)) == ({"dataset"}, ["dataset"])


def test_a_job_keeps_its_dataset() -> None:
    """The time-out of a dataset begins when its last job is gone."""
    shelf = Shelf()
    name = shelf.own(1)
    shelf.out.commit(u.BeginIncarnationUpdate(1, m.JobParameters("job", name, "OFF")))
    shelf.out.commit(u.CreateIterationUpdate(2000, 1, 0, 7))
    shelf.datasets.collect_unused(1000.0)
    shelf.out.commit(u.CollectIncarnationUpdate(1))
    shelf.datasets.collect_unused(1000.0 + GC - 1)
    assert name in shelf.names
    shelf.datasets.collect_unused(1000.0 + GC)
    assert name not in shelf.names


def test_asking_for_a_dataset_is_a_use() -> None:
    """Registering or describing a dataset counts as use, as the client is about to read
    it.
    """
    shelf = Shelf()
    name = shelf.own(1)
    shelf.datasets.describe("peer", m.DescribeDataset("request", name), 200.0)
    shelf.datasets.collect_unused(GC)
    assert shelf.own(1, now=400.0) == name
    shelf.datasets.collect_unused(200.0 + GC)
    assert name in shelf.names


def test_a_short_time_out_leaves_time_to_begin() -> None:
    """A short time-out leaves a slow client time between registering and reading."""
    shelf = Shelf(gc_timeout=0.0)
    name = shelf.own(1)
    shelf.datasets.collect_unused(UNUSED_AT_LEAST - 1)
    assert name in shelf.names


def test_a_dataset_is_kept_on_demand() -> None:
    """A dataset stays if its client asks for that on registration, or if a client
    chooses its id later.
    """
    shelf = Shelf()
    asked, chosen = shelf.own(1, keep=True), shelf.own(2)
    shelf.register(chosen, digest=digest(2))
    following = shelf.out.state.next_dataset
    shelf.datasets.collect_unused(0.0)
    shelf.datasets.collect_unused(2 * GC)
    assert shelf.names == {"dataset", asked, chosen}
    assert shelf.out.state.next_dataset == following


def test_a_pipeline_stays_for_another_dataset() -> None:
    """The bytes of a pipeline are removed with the last dataset that has them."""
    shelf = Shelf()
    name = shelf.own(1)
    shelf.register("same bytes", digest=digest(1))
    shelf.done()
    shelf.datasets.collect_unused(GC)
    assert name not in shelf.names
    assert not [one for one in shelf.done() if isinstance(one, e.DropPipeline)]


def test_a_negative_time_out_keeps_datasets_for_ever() -> None:
    """A negative time-out removes no dataset."""
    shelf = Shelf(gc_timeout=-1.0)
    name = shelf.own(1)
    shelf.datasets.collect_unused(1e9)
    assert name in shelf.names


def test_datasets_from_before_count_from_now() -> None:
    """A restored dataset that was never used gets the whole time-out from now."""
    shelf = Shelf()
    shelf.out.commit(
        u.RegisterDatasetUpdate("old", structs.replace(DESCRIPTION, digest=digest(9)), False)
    )
    shelf.datasets.collect_unused(1000.0)
    shelf.datasets.collect_unused(1000.0 + GC - 1)
    assert "old" in shelf.names
    shelf.datasets.collect_unused(1000.0 + GC)
    assert "old" not in shelf.names


def test_an_id_of_the_dispatcher_s_own_choice_promises_what_was_asked_for() -> None:
    """The same pipeline with another compression, or with a formerly unknown spec, gets
    its own id.
    """
    shelf = Shelf()
    shelf.register(None, digest=digest(5), compression="zstd", element_spec=None)
    bare = shelf.only(m.DatasetRegistered).dataset_id
    shelf.register(None, digest=digest(5), compression=None, element_spec=None)
    other = shelf.only(m.DatasetRegistered).dataset_id
    shelf.register(None, digest=digest(5), compression=None)
    told = shelf.only(m.DatasetRegistered).dataset_id
    assert len({bare, other, told}) == 3
    shelf.register(None, digest=digest(5), compression=None, element_spec=None)
    assert shelf.only(m.DatasetRegistered).dataset_id in (other, told)


def test_a_dataset_that_no_client_asks_for_is_unused() -> None:
    """A dataset is unused if it is unknown, or if no client has registered it or asked
    for it for two minutes, also since the start of the dispatcher.
    """
    shelf = Shelf()
    shelf.datasets.used_at.clear()
    names = ("dataset", "none")
    assert shelf.datasets.unused(names, 0.0) == ("none",)
    assert shelf.datasets.unused(names, UNASKED_FOR - 1) == ("none",)
    shelf.datasets.describe("peer", m.DescribeDataset("request", "dataset"), UNASKED_FOR)
    assert shelf.datasets.unused(names, 2 * UNASKED_FOR - 1) == ("none",)
    assert shelf.datasets.unused(names, 2 * UNASKED_FOR) == names


# --- mapped files

MAPS = (m.MappedFile("/data/train.bin", 0, 200_000_000, "5" * 64),)


class MappingShelf(Shelf):
    """Datasets of a dispatcher with two workers, which looks at mapped files."""

    def __init__(self, *workers: str) -> None:
        super().__init__()
        for worker in workers:
            self.workers.hear(worker, f"peer of {worker}", 0.0)

    def ask(self, now: float = 0.0) -> list[Any]:
        ask = m.RegisterDataset("mapping", "mapped", DESCRIPTION, b"bytes", maps=MAPS)
        self.datasets.register("client", ask, now)
        return self.done()

    def answer(self, worker: str, fault: str = "") -> list[Any]:
        self.datasets.maps_checked("peer", m.MapsChecked(worker, "mapping", fault), 0.0)
        return self.done()

    def tick(self, now: float) -> bool:
        """Return whether the client hears that its dataset is registered."""
        self.datasets.tick(now)
        return m.DatasetRegistered("mapping", "mapped") in self.done()


def test_a_dataset_whose_files_all_workers_see_is_registered() -> None:
    """Each worker is asked once, and the client is answered after the last of them."""
    shelf = MappingShelf("v", "w")
    assert shelf.ask() == [m.CheckMaps("mapping", MAPS)] * 2
    assert shelf.ask() == []
    assert shelf.answer("v") == shelf.answer("v") == []
    assert m.DatasetRegistered("mapping", "mapped") in shelf.answer("w")
    assert shelf.datasets.checks == {}


def test_a_dataset_without_a_file_of_a_worker_is_refused() -> None:
    """The first worker that lacks a file refuses the registration with its reason."""
    shelf = MappingShelf("v", "w")
    shelf.ask()
    [refused] = shelf.answer("w", "The file is not here")
    assert (refused.request, refused.error) == ("mapping", "FailedPreconditionError")
    assert refused.text == "The worker at w cannot run the pipeline. The file is not here"
    assert shelf.answer("v") == []
    assert "mapped" not in shelf.names


def test_a_worker_that_does_not_look_at_files_is_not_waited_for() -> None:
    """A worker that leaves or stays silent holds no registration up, and neither does a
    dispatcher without workers.
    """
    assert m.DatasetRegistered("mapping", "mapped") in MappingShelf().ask()
    shelf = MappingShelf("v", "w")
    shelf.ask()
    shelf.workers.remove("v")
    assert not shelf.tick(CHECK_FOR - 1.0)
    assert shelf.tick(CHECK_FOR)


def test_answers_about_files_hold_while_parts_are_sent() -> None:
    """A client that sends a part meanwhile is not made to wait again. A client that
    never comes back is forgotten.
    """
    shelf = MappingShelf("w")
    part = m.Part("7" * 64, 5)
    ask = m.RegisterDataset(
        "mapping", "mapped", structs.replace(DESCRIPTION, parts=(part,)), b"", maps=MAPS
    )
    for _ in range(2):
        shelf.datasets.register("client", ask, 0.0)
        shelf.answer("w")
    assert shelf.datasets.checks["mapping"].waiting == set()
    assert not shelf.tick(CHECKED_FOR - 1.0)
    assert shelf.datasets.checks
    assert not shelf.tick(CHECKED_FOR)
    assert shelf.datasets.checks == {}


def test_registrations_that_wait_for_workers_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client beyond the maximum is refused."""
    monkeypatch.setattr(datasets, "MOST_CHECKS", 0)
    [refused] = MappingShelf("w").ask()
    assert refused.error == "ResourceExhaustedError"
