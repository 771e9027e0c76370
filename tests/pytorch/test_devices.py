"""Batches of any structure move to a device, and devices are checked."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict, UserDict, UserList, defaultdict, deque, namedtuple
from collections.abc import Iterator, Mapping
from dataclasses import InitVar, dataclass, field
from types import MappingProxyType
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch.nn.utils.rnn import pack_sequence

from zmqdata import Dataset
from zmqdata.errors import InvalidArgumentError
from zmqdata.torch import Loader, devices
from zmqdata.torch.devices import Copier, checked_device, mapped

Pair = namedtuple("Pair", "left right")
NO_ACCELERATOR = pytest.mark.skipif(
    torch.accelerator.is_available(), reason="this machine has an accelerator"
)


@dataclass
class Plain:
    x: Any
    text: str = "a"


@dataclass(frozen=True)
class Frozen:
    x: Any


@dataclass(slots=True)
class Slotted:
    x: Any


@dataclass
class Derived:
    """Computes a field, from a value that it does not keep."""

    x: Any
    factor: InitVar[float]
    total: Any = field(init=False)
    runs: Any = field(default=None, init=False)

    def __post_init__(self, factor: float) -> None:
        self.total = self.x.sum() * factor
        self.runs = (self.runs or 0) + 1


class Keyed(dict):
    pass


class Listed(list):
    pass


class Named(Pair):
    """A namedtuple with a constructor of its own."""

    def __new__(cls, left: Any) -> Named:
        return super().__new__(cls, left, left)


class Fixed(tuple):
    def __new__(cls, first: Any, second: Any) -> Fixed:
        return super().__new__(cls, (first, second))


class ReadOnly(Mapping):
    def __init__(self, content: Any) -> None:
        self._content = dict(content)

    def __getitem__(self, key: Any) -> Any:
        return self._content[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._content)

    def __len__(self) -> int:
        return len(self._content)


class Moving:
    """A batch that moves itself, as those of some libraries do."""

    def __init__(self, x: Any, was_pinned: bool = False) -> None:
        self.x, self.was_pinned = x, was_pinned

    def to(self, device: Any) -> Moving:
        return Moving(self.x.to(device), self.was_pinned)

    def pin_memory(self) -> Moving:
        return Moving(self.x, True)


def one() -> Any:
    return torch.ones(2)


CONTAINERS = {
    "list": ([one(), ["a", one()]], lambda v: [v[0], v[1][1]]),
    "tuple": ((one(), ("a", one())), lambda v: [v[0], v[1][1]]),
    "dict": ({"b": one(), "a": {1: one()}}, lambda v: [v["b"], v["a"][1]]),
    "namedtuple": (Pair(one(), Pair(1, one())), lambda v: [v.left, v.right.right]),
    "namedtuple with a constructor": (Named(one()), lambda v: [v.left, v.right]),
    "dataclass": (Plain(one()), lambda v: [v.x]),
    "frozen dataclass": (Frozen([one()]), lambda v: [v.x[0]]),
    "dataclass with slots": (Slotted(one()), lambda v: [v.x]),
    "dataclass with computed fields": (Derived(one(), 2.0), lambda v: [v.x, v.total]),
    "ordered dict": (OrderedDict(b=one(), a=one()), lambda v: [*v.values()]),
    "defaultdict": (defaultdict(list, a=[one()]), lambda v: [v["a"][0]]),
    "subclass of dict": (Keyed(a=one()), lambda v: [v["a"]]),
    "subclass of list": (Listed([one()]), lambda v: [v[0]]),
    "user dict": (UserDict(a=one()), lambda v: [v["a"]]),
    "user list": (UserList([one()]), lambda v: [v[0]]),
    "deque": (deque([one(), one()], maxlen=2), lambda v: [v[0], v[1]]),
    "read-only mapping": (ReadOnly({"a": one()}), lambda v: [v["a"]]),
    "mapping proxy": (MappingProxyType({"a": one()}), lambda v: [v["a"]]),
    "result of torch": (torch.eye(2).max(0), lambda v: [v.values, v.indices]),
    "packed sequence": (
        pack_sequence([torch.ones(2), torch.ones(3)], enforce_sorted=False),
        lambda v: [v.data, v.sorted_indices],
    ),
}


@pytest.mark.parametrize(("batch", "tensors"), CONTAINERS.values(), ids=CONTAINERS.keys())
def test_all_containers_are_mapped(batch: Any, tensors: Any) -> None:
    """The tensors of a batch are replaced, its containers keep their types, and the
    batch itself is left alone.
    """
    before = [tensor.tolist() for tensor in tensors(batch)]
    moved = mapped(batch, lambda tensor: tensor.to("meta"))
    assert type(moved) is type(batch)
    assert moved is not batch
    assert all(tensor.device.type == "meta" for tensor in tensors(moved))
    assert [tensor.tolist() for tensor in tensors(batch)] == before


def test_containers_keep_what_their_class_adds() -> None:
    """Defaults, limits, attributes, keys and computed fields of a container stay."""
    listed = Listed([one()])
    listed.name = "a"
    batch = (
        defaultdict(list, b=1, a=2),
        deque([one()], 1),
        listed,
        Derived(one(), 2.0),
        Counter("ab"),
    )
    moved = mapped(batch, lambda tensor: tensor + 1)
    assert moved[0].default_factory is list
    assert list(moved[0]) == ["b", "a"]
    assert moved[1].maxlen == 1
    assert moved[2].name == "a"
    assert moved[3].runs == 1
    assert moved[3].total.item() == 5
    assert moved[4] == Counter("ab")


def test_a_tuple_whose_class_takes_other_arguments_becomes_a_tuple() -> None:
    """A tuple that cannot be made of its parts becomes a plain one, instead of an
    error.
    """
    moved = mapped(Fixed(one(), one()), lambda tensor: tensor + 1)
    assert type(moved) is tuple
    assert [tensor.tolist() for tensor in moved] == [[2, 2], [2, 2]]


def test_other_values_stay_what_they_are() -> None:
    """Texts, numbers, sets, classes and objects are left alone."""
    values = ["text", b"bytes", 3, None, {1, 2}, range(3), Plain, Moving(one()), threading.Lock()]
    assert all(found is value for found, value in zip(mapped(values, id), values, strict=True))


def test_objects_that_move_themselves() -> None:
    """An object with a method ``to`` or ``pin_memory`` is moved by it, wherever it
    lies in the batch.
    """
    copier = Copier(torch.device("meta"), False)
    moved, copying = copier.begin({"a": [Moving(one()), one()]})
    moved = copier.arrived(moved, copying)
    assert moved["a"][0].x.device.type == "meta"
    assert moved["a"][1].device.type == "meta"
    packed = pack_sequence([one(), one()])
    assert copier.begin(packed)[0].data.device.type == "meta"
    pinned = Copier(None, True)
    pinning = pytest.MonkeyPatch()
    with pinning.context() as patch:
        patch.setattr(devices, "_pinned", lambda tensor: tensor + 1)
        found = pinned.begin([Moving(one()), one()])[0]
    assert found[0].was_pinned
    assert found[1].tolist() == [2, 2]


def test_batches_stay_in_memory_without_a_device() -> None:
    """Without a device and without pinned memory nothing is to be done, and the
    ``cpu`` is where batches are.
    """
    assert Copier(None, False).is_idle
    copier = Copier(torch.device("cpu"), False)
    assert not copier.is_idle
    tensor = one()
    assert copier.arrived(*copier.begin([tensor]))[0] is tensor


@pytest.mark.parametrize("device", ["cpu", torch.device("cpu"), "meta"])
def test_devices_that_every_machine_has(device: Any) -> None:
    """Main memory and ``meta`` are there, and need no pinned memory."""
    assert checked_device(device, None) == (torch.device(device), False)
    assert checked_device(device, False) == (torch.device(device), False)
    assert checked_device(None, None) == (None, False)


@pytest.mark.parametrize("device", ["nothing", "cuda:x", 1.5, [], "cpu:a"])
def test_what_is_no_device_is_refused(device: Any) -> None:
    """A name that torch does not know is an error that repeats torch's reason."""
    with pytest.raises(InvalidArgumentError, match="`device` must be a device of torch"):
        checked_device(device, None)


@NO_ACCELERATOR
@pytest.mark.parametrize("device", ["cuda", "cuda:0", torch.device("cuda", 3), "xpu", "mps"])
def test_a_device_that_is_not_there_is_refused(device: Any) -> None:
    """An accelerator that this machine lacks is an error at the call, before any
    batch.
    """
    with pytest.raises(InvalidArgumentError, match="is not there: torch finds no accelerator"):
        checked_device(device, None)
    with pytest.raises(InvalidArgumentError, match="CUDA_VISIBLE_DEVICES"):
        Loader(Dataset.range(3), device=device)


@NO_ACCELERATOR
def test_memory_is_pinned_for_an_accelerator_only() -> None:
    """``pin_memory=True`` without an accelerator is an error, and so is what is no
    bool.
    """
    with pytest.raises(InvalidArgumentError, match="`pin_memory=True` needs an accelerator"):
        Loader(Dataset.range(3), pin_memory=True)
    with pytest.raises(InvalidArgumentError, match="must be True, False or None, got 1"):
        checked_device(None, 1)


def test_a_loader_moves_its_batches_ahead() -> None:
    """A loader hands out batches on its device, in order, with its texts."""
    dataset = Dataset.from_tensor_slices({"x": [[1], [2], [3]], "name": ["a", "b", "c"]}).batch(2)
    found = list(Loader(dataset, device="meta", prefetch=2))
    assert [batch["x"].device.type for batch in found] == ["meta"] * 2
    assert [batch["name"].tolist() for batch in found] == [["a", "b"], ["c"]]
    assert [batch["x"].tolist() for batch in Loader(dataset, device="cpu")] == [[[1], [2]], [[3]]]
