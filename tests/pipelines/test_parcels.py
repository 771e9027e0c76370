"""Tests of values that travel apart from the pipelines that hold them."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import logging
import random
import re
from collections import defaultdict, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zmqdata.operations.mapping import Map
from zmqdata.operations.sources import Range
from zmqdata.pipelines import (
    PackedPipeline,
    fingerprint,
    memorymaps,
    open_pipeline,
    pack_pipeline,
    pickler,
)
from zmqdata.pipelines.memorymaps import LARGE
from zmqdata.pipelines.packing import ParcelContent, poll_at
from zmqdata.pipelines.parcels import Parcel, ParcelChangedError
from zmqdata.pipelines.weighing import heaviest, say_slow, weight_of

NAME = "the loader at train.py:1"


@dataclasses.dataclass
class Field:
    kept: int = 1


class Slots:
    __slots__ = ("kept",)


class Shelf(list[int]):
    pass


class Holder:
    """Holds a value that a test changes."""

    def __init__(self, held: Any) -> None:
        self.held = held

    def __call__(self, value: int) -> int:
        return value


def parcel_of(value: Any) -> Parcel:
    found = Parcel(value, NAME)
    poll_at(found)
    return found


def packed_with(parcel: Parcel) -> PackedPipeline:
    return pack_pipeline(Map(inputs=(Range(start=0, stop=3),), function=Holder(parcel)))


def opened(packed: PackedPipeline) -> Any:
    return open_pipeline(packed).function.held.value


def sent(packed: PackedPipeline) -> None:
    """Make all bytes, as for a dispatcher that lacks them."""
    for content in packed.contents.values():
        content[:]


def masked() -> Any:
    return np.ma.masked_array([1, 2, 3], mask=[0, 0, 1])


def add_mask(array: Any) -> None:
    array.mask[0] = True


def slots() -> Slots:
    made = Slots()
    made.kept = 1
    return made


def function_with(kept: int) -> Callable[[], int]:
    def returned() -> int:
        return kept

    returned.kept = kept  # type: ignore[attr-defined]  # a function has attributes
    return returned


CHANGES: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "list": (lambda: [1, 2], lambda x: x.append(3)),
    "order of a dict": (lambda: {"a": 1, "b": 2}, lambda x: x.update(a=x.pop("a"))),
    "set": (lambda: {1, 2}, lambda x: x.add(3)),
    "bytes": (lambda: bytearray(b"ab"), lambda x: x.extend(b"c")),
    "small array": (lambda: np.arange(3), lambda x: x.fill(0)),
    "large array": (lambda: np.zeros(LARGE), lambda x: x.put(7, 1)),
    "mask": (masked, add_mask),
    "field": (Field, lambda x: setattr(x, "kept", 2)),
    "attribute that is no field": (Field, lambda x: setattr(x, "more", 2)),
    "slot": (slots, lambda x: setattr(x, "kept", 2)),
    "attribute of a list": (lambda: Shelf([1]), lambda x: setattr(x, "kept", 2)),
    "attribute of a function": (lambda: function_with(1), lambda x: setattr(x, "kept", 2)),
    "default factory": (lambda: defaultdict(int), lambda x: setattr(x, "default_factory", str)),
    "deque": (lambda: deque([1, 2]), lambda x: x.rotate()),
    "generator": (lambda: random.Random(1), lambda x: x.random()),
    "alias": (lambda: [[1], [1]], lambda x: x.__setitem__(1, x[0])),
    "layout": (lambda: [np.zeros((2, 3))], lambda x: x.__setitem__(0, np.asfortranarray(x[0]))),
}
"""Values, each with a change in place of what a pickle of it carries."""


@pytest.mark.parametrize("case", CHANGES)
def test_each_change_is_noticed(case: str) -> None:
    """Whatever a pickle carries counts, also where fingerprints do not look; nothing
    else does.
    """
    make, change = CHANGES[case]
    parcel = parcel_of(Holder(make()))
    before = parcel.packed
    assert not poll_at(parcel)
    assert parcel.packed is before
    change(parcel.value.held)
    assert poll_at(parcel)
    assert parcel.packed.pickle != before.pickle or parcel.packed.buffers != before.buffers
    assert not poll_at(parcel)


def test_a_pipeline_names_its_parcel_and_has_no_bytes_of_it() -> None:
    """The packed pipeline is small, and the bytes of the parcel are made when they are
    asked for, once for all of its parts.
    """
    parcel = parcel_of(Holder(np.arange(LARGE)))
    packed = packed_with(parcel)
    assert len(packed.encoded) < 10_000
    parts = [one for one in packed.contents.values() if isinstance(one, ParcelContent)]
    assert sum(map(len, parts)) > 8 * LARGE
    assert not any(one.made for one in parts)
    assert np.array_equal(opened(packed).held, np.arange(LARGE))
    assert all(one.made for one in parts)


def test_each_opening_makes_a_copy() -> None:
    """Two openings share no objects, and aliases within a parcel stay."""
    held = [1]
    packed = packed_with(parcel_of(Holder([held, held])))
    first, second = opened(packed).held, opened(packed).held
    first[0].append(2)
    assert first == [[1, 2], [1, 2]]
    assert second == [[1], [1]]


def test_equal_parcels_have_equal_fingerprints() -> None:
    """The fingerprint of a pipeline follows from the content of its parcel."""
    first, second, other = (parcel_of(Holder([1, 2, last])) for last in (3, 3, 4))
    found = [fingerprint(Holder(one)) for one in (first, second, other)]
    assert found[0] == found[1] != found[2]


class Counting:
    """Gives another state each time that it is pickled."""

    numbers = itertools.count()

    def __reduce__(self) -> Any:
        return Field, (next(Counting.numbers),)


def test_what_is_never_the_same_is_kept_and_named(caplog: pytest.LogCaptureFixture) -> None:
    """If an object gives other bytes each time, the first request for them keeps the
    newest, and says once which class does so. A pipeline packed then is sent whole.
    """
    parcel = parcel_of(Holder(Counting()))
    for _ in range(2):
        packed = packed_with(parcel)
        if not parcel.content:
            with pytest.raises(ParcelChangedError):
                sent(packed)
            packed = packed_with(parcel)
        assert isinstance(opened(packed).held, Field)
        assert poll_at(parcel)
    [said] = [one.getMessage() for one in caplog.records]
    assert said.startswith(f"{NAME} gives other bytes each time")
    assert "test_parcels.Counting does so" in said


def test_a_change_while_it_is_sent_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """If a value changes after it was looked at, workers get it as it is now."""
    parcel = parcel_of(Holder([1]))
    packed = packed_with(parcel)
    parcel.value.held.append(2)
    with pytest.raises(ParcelChangedError):
        sent(packed)
    assert opened(packed_with(parcel)).held == [1, 2]
    assert not poll_at(parcel)
    assert not parcel.content
    assert [one.getMessage() for one in caplog.records] == [
        f"{NAME} was changed while it was packed: workers get it as it is now"
    ]


def test_the_digest_of_an_array_is_that_of_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """An array that another thread writes to has the digest of the copy."""
    array = np.zeros(LARGE)

    class Writing:
        """Writes to the array when its bytes are hashed."""

        def sha256(self, content: Any = b"") -> Any:
            array[0] += 1
            return hashlib.sha256(content)

    parcel = Parcel(Holder(array), NAME)
    monkeypatch.setattr(pickler, "hashlib", Writing())
    poll_at(parcel, keeps=True)
    assert all(hashlib.sha256(one).hexdigest() == name for name, one in parcel.content.items())


def test_a_parcel_within_a_parcel_travels_with_it() -> None:
    """The dataset of a loader may hold another one. A worker that opens both can send
    the inner one on, as what it was.
    """
    inner = parcel_of(Holder([np.arange(LARGE)]))
    found = opened(packed_with(parcel_of(Holder(inner)))).held
    assert np.array_equal(found.value.held[0], np.arange(LARGE))
    assert found.packed == inner.packed
    again = opened(packed_with(Parcel(Holder(found)))).held
    assert np.array_equal(opened(packed_with(again)).held[0], np.arange(LARGE))


def test_what_cannot_be_sent_is_named_with_its_loader() -> None:
    """The error names the loader and the path within it."""
    expected = f"cannot send {NAME} to workers: held[0] is a generator"
    with pytest.raises(TypeError, match=re.escape(expected)):
        parcel_of(Holder([(one for one in ())]))


def test_a_memory_map_in_a_parcel_travels_as_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pipeline tells which files it maps, and has none of their bytes."""
    monkeypatch.setattr(memorymaps, "MUCH", LARGE)
    np.save(tmp_path / "x.npy", np.arange(LARGE))
    held = np.load(tmp_path / "x.npy", mmap_mode="r")
    packed = packed_with(parcel_of(Holder(held)))
    assert [Path(one.path).name for one in packed.files] == ["x.npy"]
    assert sum(map(len, packed.contents.values())) < 10_000
    assert np.array_equal(opened(packed).held, held)


def test_a_slow_parcel_is_spoken_of_once(caplog: pytest.LogCaptureFixture) -> None:
    """The user is told what takes most of the bytes, how long it took, and a remedy."""
    parcel = Parcel(Holder([("a", one) for one in range(5_000)]), NAME, "Hold an array.")
    poll_at(parcel)
    say_slow(parcel, "packing", 0.9)
    for _ in range(2):
        say_slow(parcel, "packing", 1.5)
    [said] = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert said.startswith(f"packing {NAME} took 1.5 s (")
    assert "Most of it is Holder.held: list of 5,000 tuples, " in said
    assert said.endswith("Hold an array.")


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ({"a": 1, "b": 2}, "dict of 2 ints"),
        ([1, "a"], "list of 2 items"),
        (np.zeros((4, 3), np.float32), "ndarray of float32, (4, 3)"),
        ({1.5}, "set of 1 floats"),
        (b"abc", "bytes"),
    ],
)
def test_the_heaviest_is_described(value: Any, kind: str) -> None:
    """The heaviest attribute is described by its kind and number, or shape."""
    assert heaviest(Holder(Holder(value))).startswith(f"Holder.held: {kind}, ")


def test_objects_that_hold_each_other_are_weighed() -> None:
    """A helper that refers back to a dataset does not hide the list of the dataset."""
    holder = Holder(list(range(5_000)))
    holder.helper = Holder(holder)  # type: ignore[attr-defined]  # as a user would
    assert heaviest(holder).startswith("Holder.held: list of 5,000 ints, ")


def test_what_is_too_large_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A parcel whose pickle exceeds a message is refused with its name, and its weight
    is that of what was counted until then.
    """
    monkeypatch.setattr(pickler, "MOST_BYTES", 50_000)
    holder = Holder([("a", one) for one in range(50_000)])
    assert heaviest(holder).startswith("Holder.held: list of 50,000 tuples, ")
    assert weight_of(holder) > 50_000
    with pytest.raises(ValueError, match=f"cannot send {NAME} to workers: its values take more"):
        parcel_of(holder)


def test_weighing_warns_of_nothing(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A description speaks of a large array itself."""
    monkeypatch.setattr(memorymaps, "MUCH", LARGE)
    assert heaviest(Holder(np.zeros(LARGE))).startswith("Holder.held: ndarray of float64")
    assert not caplog.records


def test_what_cannot_be_sent_has_no_weight() -> None:
    """An object that cannot be sent counts as nothing."""
    assert weight_of(iter([])) > 0
    assert weight_of(one for one in ()) == 0
