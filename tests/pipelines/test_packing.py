"""Tests of packing and opening pipelines, and of the errors of both."""

from __future__ import annotations

import hashlib
import importlib
import pickle
import re
import subprocess
import sys
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from zmqdata.errors import FailedPreconditionError
from zmqdata.machine import installed_version
from zmqdata.nodes.base import Node
from zmqdata.operations.mapping import Map
from zmqdata.pipelines import (
    Fingerprint,
    PackedPipeline,
    fingerprint,
    open_pipeline,
    pack_pipeline,
    pickler,
)
from zmqdata.pipelines.memorymaps import LARGE
from zmqdata.pipelines.packing import LAYOUT


def MapNode(function: Any, inputs: tuple[Node, ...] = ()) -> Map:
    return Map(function=function, inputs=inputs, site="train.py:12")


def holding(value: Any) -> Callable[[Any], Any]:
    def parse(element: Any) -> Any:
        return value, element

    return parse


def altered(packed: PackedPipeline, **changes: Any) -> PackedPipeline:
    return msgspec.structs.replace(packed, **changes)


def test_a_pipeline_survives_packing_encoding_and_opening() -> None:
    """Nodes, their order and their functions survive packing, encoding and opening."""
    node = MapNode(lambda x: x + 1, (MapNode(abs),))
    carried = msgspec.msgpack.decode(
        msgspec.msgpack.encode(pack_pipeline(node)), type=PackedPipeline
    )
    opened = open_pipeline(carried)
    assert (opened.function(2), opened.inputs[0].function(-3), opened.label) == (
        3,
        3,
        "map(<lambda>) at train.py:12",
    )


def test_a_shared_input_stays_one_node() -> None:
    """Two nodes that share an input still share it after opening."""
    shared = MapNode(abs)
    opened = open_pipeline(pack_pipeline(MapNode(len, (MapNode(abs, (shared,)), shared))))
    assert opened.inputs[0].inputs[0] is opened.inputs[1]


def test_a_pipeline_may_be_longer_than_the_stack() -> None:
    """A pipeline of thousands of operations needs no deep recursion."""
    node = MapNode(abs)
    for _ in range(5000):
        node = MapNode(abs, (node,))
    packed = pack_pipeline(node)
    count, opened = 0, open_pipeline(packed)
    while opened.inputs:
        count, opened = count + 1, opened.inputs[0]
    assert count == 5000


def test_a_packed_pipeline_says_what_it_needs() -> None:
    """A packed pipeline states Python's minor version, zmqdata's version, the
    fingerprint, third-party modules and a digest.
    """
    packed = pack_pipeline(MapNode(holding(np.float32)))
    assert packed.python == f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert packed.version == installed_version()
    assert Fingerprint.parse(packed.fingerprint) == fingerprint(MapNode(holding(np.float32)))
    assert "numpy" in packed.modules
    assert not {"zmqdata", "dill", "types", "builtins"} & set(packed.modules)
    assert packed.digest == hashlib.sha256(packed.encoded).hexdigest()


def test_importing_the_package_does_not_import_dill() -> None:
    """A process that only forwards pipelines or rebuilds exceptions does not import
    dill.
    """
    script = "import sys, zmqdata.pipelines, zmqdata.failures.exceptions; sys.exit('dill' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0


SCRIPT = """
import functools, sys
from zmqdata.pipelines import pack_pipeline
import msgspec
SCALE = 3
UNUSED = open(sys.executable, "rb")
def even(n): return n == 0 or odd(n - 1)
def odd(n): return n != 0 and even(n - 1)
class Base:
    def scaled(self, x): return x * SCALE
class Parser(Base):
    def scaled(self, x): return super().scaled(x) + 1
    def __call__(self, x): return Parser().scaled(x), even(x)
def doubled(f):
    @functools.wraps(f)
    def inner(x): return f(x) * 2
    return inner
@doubled
def decorated(x): return x + SCALE
functions = [even, Parser(), decorated, Parser().scaled, functools.partial(pow, SCALE), lambda x: [SCALE, x]]
sys.stdout.buffer.write(msgspec.msgpack.encode(pack_pipeline(functions)))
"""


def test_functions_of_a_script_run_in_another_process() -> None:
    """Functions of a script run in another process without the script. The test covers
    mutual recursion, super, decorators, methods, partials and globals.
    """
    sent = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, check=True).stdout
    receiver = (
        "import sys, msgspec; from zmqdata.pipelines import *; sys.stdout.write(repr([f(4) for f "
        "in open_pipeline("
        "msgspec.msgpack.decode(sys.stdin.buffer.read(), type=PackedPipeline))]))"
    )
    got = subprocess.run(
        [sys.executable, "-c", receiver], input=sent, capture_output=True, check=True
    ).stdout
    assert got.decode() == "[True, (13, True), 14, 13, 81, [3, 4]]"


def test_what_cannot_travel_is_named_with_its_operation_path_and_remedy() -> None:
    """The TypeError names the user's own variables, and then gives the remedy."""
    with pytest.raises(TypeError) as caught:
        pack_pipeline(MapNode(len, (MapNode(holding(threading.local())),)))
    assert str(caught.value) == (
        "cannot send map(parse) at train.py:12 to workers: parse.__closure__['value'] is a "
        "_thread._local, which cannot "
        "leave this process. Create it inside the function, or in a function under "
        "functools.lru_cache that the "
        "pipeline calls, so that each worker makes its own. If it holds a random "
        "generator, use random_map, or seed the generator from the element: workers would "
        "draw the same."
    )


def test_the_pickler_s_own_failures_come_with_the_path_too() -> None:
    """A failure inside the pickler reports the path, and the reason as its cause."""
    with pytest.raises(
        TypeError, match=r"parse.__closure__\['value'\]\['m'\] \(a _sre.SRE_Scanner\) cannot be"
    ) as caught:
        pack_pipeline(MapNode(holding({"m": re.compile("a").scanner("a")})))
    assert isinstance(caught.value.__cause__, TypeError)


def test_a_root_that_is_no_node_is_named_itself() -> None:
    """Without any node the error names the root value itself."""
    with pytest.raises(TypeError, match="cannot send <genexpr> to workers: it is a generator"):
        pack_pipeline(_ for _ in "a")


def nested(levels: int, wrap: Callable[[Any], Any]) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = wrap(value)
    return value


def with_deep_default(default: Any = nested(2000, lambda value: [value])) -> Any:  # noqa: B008
    return default


def test_nesting_too_deep_is_said() -> None:
    """A value nested beyond the recursion limit raises advice, not a RecursionError."""
    with pytest.raises(TypeError, match="is nested too deeply to be pickled"):
        pack_pipeline(MapNode(holding(nested(100_000, lambda value: [value]))))


def test_nesting_too_deep_for_the_fingerprint_is_said() -> None:
    """Excessive nesting for the fingerprint is reported even if pickling succeeds, as
    that of a function by its name.
    """
    with pytest.raises(
        TypeError, match=r"send with_deep_default .* nested too deeply to be pickled"
    ):
        pack_pipeline(with_deep_default)


def test_a_path_leads_to_what_only_the_fingerprint_finds_too_deep() -> None:
    """The path is named also if an object can be pickled and has no fingerprint."""
    chain = nested(300, lambda inner: types.SimpleNamespace(inner=inner))
    with pytest.raises(TypeError, match=r"\.inner\.inner is nested too deeply to be pickled"):
        pack_pipeline(MapNode(holding(chain)))


def test_another_python_is_refused_before_opening() -> None:
    """The worker rejects bytecode of another minor version before loading it. The
    message names both versions and the remedy.
    """
    packed = altered(pack_pipeline(len), python="3.2", payload=b"never looked at")
    with pytest.raises(
        FailedPreconditionError, match=r"Start this worker with Python 3\.2"
    ) as caught:
        open_pipeline(packed, opener="this worker")
    assert "client: Python 3.2" in str(caught.value)
    assert f"Python {sys.version_info[0]}.{sys.version_info[1]}" in str(caught.value)


def test_another_major_version_is_refused_before_opening() -> None:
    """Another major version of zmqdata is rejected with the version to install."""
    with pytest.raises(FailedPreconditionError, match=r"zmqdata 99\.1.*'zmqdata==99\.\*'"):
        open_pipeline(altered(pack_pipeline(len), version="99.1", payload=b""))


def test_another_layout_is_refused_before_opening() -> None:
    """A pipeline of another layout is rejected with both layouts. One that says nothing
    of its layout has the first.
    """
    content = msgspec.msgpack.decode(altered(pack_pipeline(len), payload=b"").encoded)
    del content["layout"]
    old = PackedPipeline.decode(msgspec.msgpack.encode(content))
    text = f"it has layout 1, and this worker .* opens layout {LAYOUT} .*same build"
    with pytest.raises(FailedPreconditionError, match=text):
        open_pipeline(old, opener="this worker")


def test_a_module_of_another_build_is_not_asked_for() -> None:
    """A missing module of zmqdata itself is neither to be shipped nor to be installed
    alone.
    """
    packed = altered(pack_pipeline(len), payload=b"czmqdata.of_another_build\nNode\n.")
    with pytest.raises(FailedPreconditionError, match="Install the same build") as caught:
        open_pipeline(packed)
    assert "it needs module 'zmqdata.of_another_build', which this process" in str(caught.value)
    assert "ship" not in str(caught.value)


def test_modules_that_the_worker_lacks_are_all_named() -> None:
    """All modules missing at the worker are reported by name before any code runs."""
    packed = altered(
        pack_pipeline(len), modules=("numpy", "lacking_one", "lacking_two"), payload=b""
    )
    with pytest.raises(
        FailedPreconditionError,
        match="needs modules 'lacking_one', 'lacking_two' which this process",
    ):
        open_pipeline(packed)


def test_a_module_with_a_broken_import_is_lacking(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module whose finder fails counts as missing."""

    class Finder:
        def find_spec(self, name: str, path: object = None, target: object = None) -> None:
            raise ImportError(name)

    packed = altered(pack_pipeline(len), modules=("lacking",))
    monkeypatch.setattr(sys, "meta_path", [Finder()])
    with pytest.raises(
        FailedPreconditionError, match=r"'lacking'.*ship=\[the module\]\).*pip install.*PYTHONPATH"
    ):
        open_pipeline(packed)


@pytest.mark.parametrize("opener", ["this worker", "`zmqdata replay`", "this process"])
@pytest.mark.parametrize(
    "change",
    [
        {"modules": ("lacking",)},
        {"python": "3.2"},
        {"version": "99.1"},
        {"payload": b"garbage"},
        {"buffers": ("lacking",)},
        {"pickle": "lacking"},
        {"payload": pickle.dumps(len).replace(b"len", b"lem")},
        {"payload": b"garbage", "numpy": "99.1"},
    ],
)
def test_an_error_speaks_of_the_process_that_opens(opener: str, change: Any) -> None:
    """Whatever is missing or other, the text names the process that it is missing in,
    and no worker where none runs.
    """
    with pytest.raises(FailedPreconditionError, match=opener) as caught:
        open_pipeline(altered(pack_pipeline(len), **change), opener=opener)
    assert opener == "this worker" or "worker" not in str(caught.value)


def test_a_file_that_the_opener_lacks_is_named(tmp_path: Path) -> None:
    """A file that the pipeline holds open must exist where it is opened."""
    with (tmp_path / "file").open("w"):
        pass
    with (tmp_path / "file").open() as file:
        packed = pack_pipeline(file)
    (tmp_path / "file").unlink()
    with pytest.raises(FailedPreconditionError, match=r"holds a file that this process .*/file'"):
        open_pipeline(packed)


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[types.ModuleType]:
    """Return a module that exists while packing and can be removed afterwards."""
    (tmp_path / "passing_module.py").write_text("def parse(x): return x")
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("passing_module")
    sys.modules.pop("passing_module", None)


def test_a_module_that_disappears_while_opening_is_named(
    module: types.ModuleType, tmp_path: Path
) -> None:
    """A missing module found only in the bytes is reported like an announced module."""
    packed = altered(pack_pipeline(module.parse), modules=())
    del sys.modules["passing_module"]
    (tmp_path / "passing_module.py").unlink()
    importlib.invalidate_caches()
    with pytest.raises(
        FailedPreconditionError, match="needs module 'passing_module' which this process"
    ):
        open_pipeline(packed)


def test_a_function_that_the_worker_s_module_lacks_is_version_skew(
    module: types.ModuleType,
) -> None:
    """A function missing from the worker's module is reported as version skew."""
    packed = pack_pipeline(module.parse)
    assert packed.modules == ("passing_module",)
    assert open_pipeline(packed) is module.parse
    del module.parse
    with pytest.raises(FailedPreconditionError, match="probably in another version") as caught:
        open_pipeline(packed)
    assert "parse" in str(caught.value)


def test_an_attribute_that_an_object_of_the_script_lacks_is_no_version_skew() -> None:
    """A failure of the script's own code is not reported as an old module."""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(
        "class A:\n def __reduce__(self): return A.make, ()\n @classmethod\n def make(cls): cls.one\n",
        names,
    )
    with pytest.raises(
        FailedPreconditionError, match=r"AttributeError.*no attribute 'one'"
    ) as caught:
        open_pipeline(pack_pipeline(names["A"]()))
    assert "another version" not in str(caught.value)


def test_bytes_that_cannot_be_opened_are_a_failed_precondition() -> None:
    """Any failure while unpickling raises a single error class with the original as its
    cause.
    """
    with pytest.raises(FailedPreconditionError, match="cannot be opened by this process") as caught:
        open_pipeline(altered(pack_pipeline(len), payload=b"\x80\x05garbage"))
    assert caught.value.__cause__ is not None


def test_a_folder_that_was_never_installed_opens_any_version() -> None:
    """A version that is not known differs from no other."""
    opener = open_pipeline(altered(pack_pipeline(len), version="unknown"))
    assert opener is len


# --- parts


def test_large_arrays_are_kept_apart() -> None:
    """Large arrays are stored outside the packed pipeline, which names them by digest.
    Small arrays stay inside.
    """
    large, small = np.arange(LARGE, dtype=np.uint8), np.arange(100)
    packed = pack_pipeline((large, small))
    (digest,) = packed.buffers
    assert packed.contents == {digest: large.tobytes()}
    assert digest == hashlib.sha256(large.tobytes()).hexdigest()
    assert len(packed.encoded) < 10_000
    carried = PackedPipeline.decode(packed.encoded)
    assert carried.contents == {}
    opened = open_pipeline(carried, packed.contents.get)
    assert all(map(np.array_equal, opened, (large, small)))


def test_a_changed_program_has_the_same_large_parts() -> None:
    """Changing a function keeps the digests of large parts, so they are not resent."""
    array = np.ones(LARGE, np.uint8)
    one, other = pack_pipeline(MapNode(holding(array))), pack_pipeline((array, 1))
    assert one.digest != other.digest
    assert one.buffers == other.buffers


def test_arrays_stay_as_writable_as_they_were() -> None:
    """Each array has its own memory and keeps its write flag, even if contents are
    equal.
    """
    frozen = np.ones(LARGE, np.uint8)
    frozen.flags.writeable = False
    packed = pack_pipeline((np.zeros(LARGE, np.uint8), np.zeros(LARGE, np.uint8), frozen))
    one, other, opened = open_pipeline(packed)
    one[:] = 1
    assert (one.sum(), other.sum()) == (LARGE, 0)
    assert not opened.flags.writeable
    assert set(packed.contents) == set(packed.buffers)
    assert open_pipeline(packed)[0].sum() == 0


def test_arrays_are_views_of_parts_that_can_be_written() -> None:
    """Opened arrays are views of writable parts, so mapped files are not copied."""
    packed = pack_pipeline(np.zeros(LARGE, np.uint8))
    memory = memoryview(bytearray(LARGE))
    opened = open_pipeline(packed, lambda digest: memory)
    memory[5] = 7
    assert opened[5] == 7


def test_a_part_that_is_not_there_is_an_error() -> None:
    """A missing part raises an error with the remedy."""
    with pytest.raises(
        FailedPreconditionError, match="this process has a part of the pipeline no longer"
    ):
        open_pipeline(pack_pipeline(np.zeros(LARGE, np.uint8)), lambda digest: None)


def test_beyond_many_large_arrays_the_rest_stays_in_the_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A pipeline names a limited number of parts; other arrays stay in the stream."""
    monkeypatch.setattr(pickler, "MOST_APART", 2)
    arrays = [np.full(LARGE, number, np.uint8) for number in range(3)]
    packed = pack_pipeline(arrays)
    assert len(packed.buffers) == 2
    assert all(map(np.array_equal, open_pipeline(packed), arrays))
