"""Batches of any structure become elements, and come back equal."""

from __future__ import annotations

import datetime
import decimal
import enum
import pathlib
import types
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch.masked import masked_tensor
from torch.nn.utils.rnn import pack_sequence

from tests.pytorch.comparing import assert_same
from zmqdata.errors import MissingClassError, ProtocolError
from zmqdata.torch.packing import array_at, pack, tensor_at, unpack

Pair = namedtuple("Pair", "left right")


@dataclass
class Plain:
    x: Any
    y: int = 3


@dataclass(frozen=True)
class Frozen:
    x: Any


@dataclass(slots=True)
class Slotted:
    x: Any


class Own:
    def __init__(self, x: Any) -> None:
        self.x = x


class Keyed(dict):
    pass


class Listed(list):
    pass


class Colour(enum.Enum):
    RED = 1


class Labelled(torch.Tensor):
    pass


class Strict(torch.Tensor):
    """Its operations raise, as those of a tensor that guards its meaning may."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError("this tensor is not for computing")


def there_and_back(batch: Any) -> Any:
    return unpack(pack(batch))


def numbers(*shape: int, dtype: Any = torch.float32) -> Any:
    count = int(np.prod(shape, initial=1))
    return torch.arange(count).reshape(shape).to(dtype)


def structures() -> dict[str, Any]:
    """Return batches of all kinds of structure by name."""
    x = numbers(2)
    return {
        "tensor": x,
        "list": [x, [x], []],
        "tuple": (x, (x,), ()),
        "dict": {"b": x, "a": {1: x, None: x}},
        "namedtuple": Pair(x, Pair(1, x)),
        "dataclass": Plain(x, 4),
        "frozen dataclass": Frozen([x]),
        "dataclass with slots": Slotted(x),
        "own class": Own({"x": x}),
        "subclass of dict": Keyed(a=x),
        "subclass of list": Listed([x]),
        "packed sequence": pack_sequence([numbers(2), numbers(3)], enforce_sorted=False),
        "ordered dict": OrderedDict(b=x, a=x),
        "defaultdict": defaultdict(list, a=[x]),
        "counter": Counter("aab"),
        "deque": deque([x]),
        "set": {1, 2},
        "frozenset": frozenset([1]),
        "namespace": types.SimpleNamespace(x=x),
        "size": torch.Size([1, 2]),
        "enum": Colour.RED,
    }


def values() -> dict[str, Any]:
    """Return batches without tensors by name."""
    return {
        "none": None,
        "bool": True,
        "int": 3,
        "large int": -(2**80),
        "float": 0.5,
        "complex": 1 + 2j,
        "text": "é\0",
        "bytes": b"a" * 20_000,
        "bytearray": bytearray(b"a"),
        "date": datetime.datetime(2020, 1, 2),
        "decimal": decimal.Decimal("1.5"),
        "path": pathlib.PurePosixPath("/a"),
        "range": range(3),
        "slice": slice(1, 2),
        "error": [1, "a", None],
        "numpy scalar": np.float32(1.5),
        "numpy date": np.datetime64("2020"),
        "dtype": torch.bfloat16,
        "numpy dtype": np.dtype("f4"),
        "device": torch.device("cpu"),
    }


def arrays() -> dict[str, Any]:
    """Return arrays of all kinds by name."""
    large = np.arange(6000.0).reshape(3, 2000)
    return {
        "int": np.arange(3),
        "large": large,
        "scalar": np.array(3),
        "empty": np.empty((0, 3), np.float32),
        "reversed": np.arange(5)[::-1],
        "with gaps": large[:, ::3],
        "fortran": np.asfortranarray(large),
        "big-endian": np.arange(3, dtype=">i4"),
        "long double": np.ones(2, np.longdouble),
        "dates": np.array(["2020-01-01", "NaT"], "M8[D]")[:1],
        "durations": np.array([3], "m8[s]"),
        "texts": np.array(["a", "bc"]),
        "bytes": np.array([b"a"]),
        "records": np.zeros(2, [("a", "i1"), ("b", "f4")]),
        "objects": np.array([{1: 2}, None], object),
        "read-only": np.broadcast_to(np.ones(2), (3, 2)),
    }


@pytest.mark.parametrize("batch", [*structures().values()], ids=[*structures()])
def test_structures_stay_what_they_are(batch: Any) -> None:
    """A batch of any structure comes back with equal content and equal types."""
    assert_same(there_and_back(batch), batch)


@pytest.mark.parametrize("batch", [*values().values()], ids=[*values()])
def test_values_stay_what_they_are(batch: Any) -> None:
    """A value that is no tensor comes back equal, with its type."""
    assert_same(there_and_back([batch, {"x": batch}]), [batch, {"x": batch}])


@pytest.mark.parametrize("batch", [*arrays().values()], ids=[*arrays()])
def test_arrays_stay_arrays(batch: Any) -> None:
    """An array comes back as an array of the same dtype, shape and values."""
    assert_same(there_and_back([batch]), [batch])


def test_containers_keep_what_their_class_adds() -> None:
    """The default of a defaultdict and the attributes of a subclass come back."""
    listed = Listed([numbers(2)])
    listed.name = "x"
    found = there_and_back((defaultdict(list), listed))
    assert found[0].default_factory is list
    assert found[1].name == "x"


def test_a_tensor_that_occurs_twice_occurs_twice() -> None:
    """Values that are one object in the batch are one object in the loop."""
    x, a = numbers(3), np.arange(3)
    first, nested, array, again = there_and_back([x, {"x": x}, a, (a,)])
    assert first is nested["x"]
    assert array is again[0]
    assert len(pack([x, {"x": x}, a, (a,)])) == 4  # the pickle, the count, and two arrays


def test_an_object_may_refer_to_itself() -> None:
    """A batch that contains itself comes back as such."""
    own = Own(numbers(2))
    own.me = own
    found = there_and_back(own)
    assert found.me is found
    assert found.x.tolist() == [0, 1]


# ------------------------------------------------------------------------ tensors

DTYPES = [
    "bool uint8 int8 int16 int32 int64 uint16 uint32 uint64 float16 bfloat16 float32 float64",
    "complex32 complex64 complex128 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz",
    "float8_e8m0fnu",
]


def of_dtype(name: str, *shape: int) -> Any:
    """Return a tensor of any dtype, made of bits: not all dtypes can be computed."""
    dtype = getattr(torch, name, None)
    if dtype is None:
        pytest.skip(f"torch {torch.__version__} has no {name}")
    count = int(np.prod(shape, initial=1)) * dtype.itemsize
    raw = torch.arange(count) % (2 if name == "bool" else 251)
    return raw.to(torch.uint8).view(dtype).reshape(shape)


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("shape", [(2, 3), (1,), (), (0,), (2, 0, 3)], ids=str)
@pytest.mark.parametrize("name", " ".join(DTYPES).split())
def test_all_dtypes_and_shapes(name: str, shape: tuple[int, ...]) -> None:
    """A tensor of each dtype and number of axes comes back equal to the bit."""
    tensor = of_dtype(name, *shape)
    assert_same(there_and_back([tensor]), [tensor])


LAYOUTS = {
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "transposed": lambda x: x.transpose(0, 2),
    "permuted": lambda x: x.permute(3, 0, 2, 1),
    "with gaps": lambda x: x[:, ::2, 1:],
    "narrow": lambda x: x[:, :1, :, 2],
    "expanded": lambda x: x[:1].expand(4, 3, 4, 5),
    "flipped": lambda x: x.flip(0, 2),
    "scalar of many": lambda x: x[1, 2, 3, 4],
}


@pytest.mark.parametrize("name", ["float32", "bfloat16", "complex64"])
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_tensors_that_are_not_contiguous(layout: Any, name: str) -> None:
    """A tensor comes back equal, however its values lie in memory."""
    tensor = layout(of_dtype(name, 2, 3, 4, 5))
    assert_same(there_and_back(tensor), tensor)


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_memory_formats_survive(name: str) -> None:
    """Values that lie in memory without gaps lie in the same order in the loop."""
    images = of_dtype(name, 2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    videos = of_dtype(name, 2, 3, 4, 5, 6).contiguous(memory_format=torch.channels_last_3d)
    found = there_and_back([images, videos, images.transpose(0, 2)])
    assert found[0].is_contiguous(memory_format=torch.channels_last)
    assert found[1].is_contiguous(memory_format=torch.channels_last_3d)
    assert found[2].stride() == images.transpose(0, 2).stride()


def test_lazy_conjugates_and_negatives() -> None:
    """The values of a tensor that torch conjugates or negates when it is read come
    back.
    """
    lazy = torch.tensor([1 + 2j, 3 - 1j]).conj()
    assert_same(there_and_back([lazy, lazy.imag]), [lazy, lazy.imag])


def test_gradients_are_wanted_for_the_same_tensors() -> None:
    """A tensor that requires a gradient is a leaf that requires a gradient, also if it
    was computed.
    """
    leaf = torch.ones(2, requires_grad=True)
    for tensor in (leaf, leaf * 2, torch.nn.Parameter(torch.ones(2))):
        found = there_and_back(tensor)
        assert type(found) is type(tensor)
        assert found.requires_grad
        assert found.is_leaf
        assert found.tolist() == tensor.tolist()
    assert not there_and_back(torch.nn.Parameter(torch.ones(2), requires_grad=False)).requires_grad


def test_subclasses_keep_their_attributes() -> None:
    """A tensor of the user's class comes back as such, with its attributes, of which
    some may be tensors.
    """
    tensor = numbers(3).as_subclass(Labelled)
    tensor.label, tensor.more = "x", {"mask": numbers(2)}
    assert_same(there_and_back([tensor]), [tensor])
    plain = numbers(2)
    plain.name_of_file = "a.png"
    assert there_and_back(plain).name_of_file == "a.png"


def test_subclasses_whose_operations_raise() -> None:
    """A class that overrides all functions of torch is no obstacle: none is called."""
    for strict in (
        numbers(3).as_subclass(Strict),
        numbers(2, 3, 4, 5, dtype=torch.bfloat16).permute(0, 2, 3, 1).as_subclass(Strict),
    ):
        found = there_and_back([strict])[0]
        assert type(found) is Strict
        with torch._C.DisableTorchFunctionSubclass():
            assert torch.equal(found.as_subclass(torch.Tensor), strict.as_subclass(torch.Tensor))
    wanted = torch.nn.Parameter(torch.ones(2)).as_subclass(Strict)
    with torch._C.DisableTorchFunctionSubclass():
        assert there_and_back(wanted).requires_grad


def test_tensors_own_their_memory() -> None:
    """The loop may write to a tensor, and changes no other."""
    packed = pack([numbers(4), numbers(4).bfloat16()])
    array = packed[2]
    array.flags.writeable = False
    first, second = unpack(packed)
    first += 1
    second += 1
    assert array.tolist() == [0, 1, 2, 3]


def test_large_tensors_are_arrays_and_no_part_of_the_pickle() -> None:
    """Tensors and arrays travel as arrays, and large buffers of other values beside
    the pickle.
    """
    tensor = numbers(100_000)
    packed = pack({"x": tensor, "y": np.ones(100_000), "z": np.ones(9_000, [("a", "f8")])})
    assert packed[1] == 2
    assert np.shares_memory(packed[2], tensor.numpy())
    assert len(packed[0]) < 1000
    assert [part.nbytes for part in packed[2:]] == [400_000, 800_000, 72_000]


# ------------------------------------------------------------------------ refusals


class Wrapped(torch.Tensor):
    """Holds its content elsewhere."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError("no content here")


def wrapped() -> Any:
    return torch.Tensor._make_wrapper_subclass(Wrapped, (2,))


REFUSED = {
    "sparse": (lambda: torch.eye(2).to_sparse(), r"layout is torch.sparse_coo: call .to_dense"),
    "compressed": (lambda: torch.eye(2).to_sparse_csr(), r"torch.sparse_csr: call .to_dense"),
    "meta": (lambda: torch.ones(2, device="meta"), "no content: return its shape"),
    "quantized": (
        lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.quint8),
        r"it is quantized: return .int_repr\(\) with its scale",
    ),
    "nested": (lambda: torch.nested.nested_tensor([numbers(1), numbers(2)]), "it is nested"),
    "jagged": (
        lambda: torch.nested.nested_tensor([numbers(1), numbers(2)], layout=torch.jagged),
        "it is nested: return its parts, or use padding",
    ),
    "masked": (lambda: masked_tensor(numbers(2), numbers(2) > 0), "MaskedTensor defines"),
    "wrapper": (wrapped, "return the tensors that it consists of"),
}


SLOW = {"jagged": pytest.mark.full}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("make", "remedy"),
    # Nested tensors of this layout take seconds to import what they need.
    [pytest.param(*REFUSED[name], id=name, marks=SLOW.get(name, ())) for name in REFUSED],
)
def test_tensors_without_plain_content_are_refused(make: Any, remedy: str) -> None:
    """The error for a tensor that cannot travel says why, and what to return."""
    with pytest.raises(TypeError, match=f"^a tensor of a batch cannot be sent .*{remedy}"):
        pack({"x": [make()]})


def test_values_that_no_receiver_would_open_are_refused() -> None:
    """A function of the standard library and a class within a function are refused
    where the batch is made.
    """

    class Local:
        pass

    for value, reason in ((print, "not among the values"), (Local(), "defined within a function")):
        with pytest.raises(TypeError, match=reason):
            pack([value])
    with pytest.raises(TypeError, match="RuntimeError: never"):
        pack(Unpicklable())


class Unpicklable:
    def __reduce_ex__(self, protocol: Any) -> Any:
        raise RuntimeError("never")


def test_damaged_elements_are_errors() -> None:
    """A damaged pickle, a missing array and an unknown class are errors of their
    kinds.
    """
    stream, count, *parts = pack([numbers(2), Own(1)])
    with pytest.raises(ProtocolError, match=r"truncated|cannot be unpickled"):
        unpack((stream[:-5] + b".", count, *parts))
    with pytest.raises(ProtocolError, match="IndexError"):
        unpack((stream, 0))
    renamed = stream.replace(b"tests.pytorch.test_packing", b"tests.pytorch.test_picking")
    with pytest.raises(MissingClassError, match=r"import tests\.pytorch\.test_picking before"):
        unpack((renamed, count, *parts))


def test_the_stand_ins_are_no_functions() -> None:
    """The names in a pickle have a meaning for ``unpack`` alone."""
    for function in (array_at, tensor_at):
        with pytest.raises(TypeError, match="`unpack` gives this name its meaning"):
            function(0)
