"""Tests of ``zmqdata.operations.jsonl``."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from tests.iterators.checks import check_restore, provided
from tests.kit.objectstore import object_store
from zmqdata.dataset import Dataset
from zmqdata.dataset.arguments import readable
from zmqdata.elements.ragged import RaggedTensor
from zmqdata.errors import DataLossError, PipelineError
from zmqdata.iterators.base import make_iterator
from zmqdata.iterators.context import Context
from zmqdata.nodes.base import Node
from zmqdata.operations import jsonl
from zmqdata.operations.jsonl import JsonLines
from zmqdata.pipelines import pack_pipeline
from zmqdata.splits import IndexSplits
from zmqdata.storage import reading
from zmqdata.testing import SimulatedService

KINDS: dict[str, dict[str, Any]] = {
    "rows": {},
    "columns": {"columns": ["n"]},
    "batches": {"batch_rows": 3},
    "shuffled rows": {"shuffle": True, "open_splits": 2},
    "shuffled batches": {"shuffle": True, "open_splits": 2, "batch_rows": 3},
}
PACKS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".zst": zstandard.ZstdCompressor(write_checksum=True).compress,
    ".bz2": bz2.compress,
    ".xz": partial(lzma.compress, preset=0),
}


def text_of(numbers: Any, end: str = "\n") -> bytes:
    """Return lines with numbers, some of which are blank or end as on Windows."""
    lines = [json.dumps({"n": int(n), "s": f"{n:03}"}) for n in numbers]
    return end.join(lines).encode()


def node_of(paths: Any, split_bytes: int = 100, **options: Any) -> JsonLines:
    """Return a source with small splits."""
    node = Dataset.from_jsonl(paths, **options).node
    assert isinstance(node, JsonLines)
    return replace(node, split_bytes=split_bytes)


def read(node: Node) -> list[Any]:
    return list(make_iterator(node, Context(seed=7)))


def numbers(elements: Any) -> list[int]:
    return [int(n) for element in elements for n in np.atleast_1d(element["n"])]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two plain files and a packed one with the rows 0 to 29, blank lines, a byte order
    mark and both kinds of line ends.
    """
    first = b"\xef\xbb\xbf\n" + text_of(range(12), "\n  \n\n") + b"\n\n"
    (tmp_path / "a.jsonl").write_bytes(first)
    (tmp_path / "b.ndjson").write_bytes(text_of(range(12, 20), "\r\n"))
    (tmp_path / "c.jsonl.gz").write_bytes(gzip.compress(text_of(range(20, 30))))
    return tmp_path


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("chunk", [10, 1 << 18])
def test_reading_resumes_at_every_element(
    folder: Path, name: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each row comes once, and an iterator restored at any place continues there, after
    however many bytes were read together.
    """
    monkeypatch.setattr(jsonl, "_CHUNK", chunk)
    node = node_of(folder, **KINDS[name])
    check_restore(node)
    found = read(node)
    assert sorted(numbers(found)) == list(range(30))
    assert ("shuffled" in name) != (numbers(found) == list(range(30)))
    if name == "columns":
        assert found[7] == {"n": 7}
    else:
        for element in found:
            texts = [f"{n:03}" for n in np.atleast_1d(element["n"])]
            assert np.atleast_1d(element["s"]).tolist() == texts


@pytest.mark.parametrize("name", KINDS)
def test_splits_are_read_as_they_are_assigned(folder: Path, name: str) -> None:
    """An iterator reads the splits that it gets, and can be restored at any place in
    them.
    """
    node = node_of(folder, **KINDS[name])
    count = node.split_count
    assert count == 7
    assert node.split_source == IndexSplits(count)
    ranges = [[(0, 3)], [(3, count)]]
    for part in ranges:
        check_restore(node, provided([part]))
    both = [numbers(make_iterator(node, provided([part])())) for part in ranges]
    assert sorted(both[0] + both[1]) == list(range(30))
    assert min(map(len, both)) > 0


@given(
    st.lists(st.text("ab\r ", max_size=12), max_size=12),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
    st.integers(1, 40),
)
def test_every_line_belongs_to_one_split(
    tmp_path_factory: pytest.TempPathFactory,
    texts: list[str],
    end: str,
    is_ended: bool,
    size: int,
) -> None:
    """Whatever the sizes of lines and splits, each line comes once, in order."""
    path = tmp_path_factory.mktemp("lines") / "f.jsonl"
    lines = [json.dumps(text) for text in texts]
    path.write_bytes((end.join(lines) + end * is_ended).encode())
    assert read(node_of(path, size)) == texts


def test_lists_are_arrays_where_that_is_exact(tmp_path: Path) -> None:
    """Lists of numbers, of equal lists of them and of texts are arrays; other values
    are as ``json.loads`` gives them.
    """
    row = {
        "ints": [1, 2],
        "floats": [1, 2.5],
        "flags": [True, False],
        "table": [[1, 2], [3, 4]],
        "texts": ["a", "a long one"],
        "empty": [],
        "deep": {"x": {"y": [1.5]}},
        "mixed": [1, "a"],
        "switched": [1, True],
        "nulls": [1, None],
        "uneven": [[1], [2, 3]],
        "objects": [{"z": [1]}],
        "huge": [2**64],
        "inexact": [2**53 + 1, 0.5],
        "number": 2**70,
        "none": None,
    }
    (tmp_path / "f.jsonl").write_text(json.dumps(row))
    (found,) = read(node_of(tmp_path / "f.jsonl"))
    arrays = [found[name] for name in ("ints", "floats", "flags", "table", "texts", "empty")]
    assert [array.dtype.char for array in arrays] == ["l", "d", "?", "l", "O", "d"]
    assert [array.tolist() for array in arrays] == [*row.values()][:6]
    assert isinstance(found["deep"]["x"]["y"], np.ndarray)
    rest = [*row][7:]
    assert {name: found[name] for name in rest} == {name: row[name] for name in rest}


def test_values_are_those_of_json_loads(tmp_path: Path) -> None:
    """Numbers without end, two equal keys, other values than objects and texts with any
    characters are as Python reads them.
    """
    lines = [
        '{"a": NaN, "b": -Infinity}',
        '{"a": 1, "a": 2}',
        "3",
        ' "\\ud83d\\ude00\u2028" \t',
        "null",
        "1" * 400,
        '{"a": "[1]", "\U0001f600": 1e400}',
    ]
    (tmp_path / "f.jsonl").write_text("\n".join(lines), encoding="utf-8")
    assert repr(read(node_of(tmp_path))) == repr([*map(json.loads, lines)])


def test_batches_have_a_column_for_each_key(tmp_path: Path) -> None:
    """Columns are arrays of numbers, ragged tensors of lists, dicts of dicts with equal
    keys, and arrays of objects.
    """
    rows: list[dict[str, Any]] = [
        {"n": 1, "s": "a", "l": [1], "d": {"x": 1}, "o": None, "m": [], "t": ["a"], "e": {"x": 1}},
        {"n": 2.5, "s": "b", "l": [2, 3], "d": {"x": 2}, "o": 1, "m": [0.5], "t": [], "e": {}},
        {"n": 3, "s": "c", "l": [], "d": {"x": 3}, "o": "a", "m": [7], "t": ["b", "c"], "e": {}},
    ]
    (tmp_path / "f.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (batch,) = read(node_of(tmp_path, 1000, batch_rows=9))
    assert batch["n"].tolist() == [1, 2.5, 3]
    assert batch["s"].dtype == batch["o"].dtype == batch["e"].dtype == object
    assert batch["d"]["x"].tolist() == [1, 2, 3]
    assert batch["o"].tolist() == [None, 1, "a"]
    for name, dtype in ("l", np.int64), ("m", np.float64), ("t", object):
        assert isinstance(batch[name], RaggedTensor)
        assert batch[name].values.dtype == dtype
        assert batch[name].to_list() == [row[name] for row in rows]


@pytest.mark.parametrize("ending", PACKS)
@pytest.mark.parametrize("shuffle", [False, True])
def test_packed_files_are_read_by_name_and_content(
    tmp_path: Path, ending: str, shuffle: bool
) -> None:
    """A packed file of several members is a split, whether its name or its content
    tells that it is packed.
    """
    pack = PACKS[ending]
    content = pack(text_of(range(5000)) + b"\n") + pack(text_of(range(5000, 9000)))
    for name in f"a.jsonl{ending}", "b.jsonl":
        (tmp_path / name).write_bytes(content)
        node = node_of(tmp_path / name, shuffle=shuffle)
        assert node.split_count == 1
        assert sorted(numbers(read(node))) == list(range(9000))
    given_one = node_of(tmp_path / "b.jsonl", compression=node.compressions[0])
    check_restore(given_one, limit=20)


@pytest.mark.parametrize("ending", PACKS)
@pytest.mark.parametrize("options", [{}, {"batch_rows": 100}, {"shuffle": True}], ids=str)
def test_a_packed_file_that_was_cut_off_is_data_loss(
    tmp_path: Path, ending: str, options: dict[str, Any]
) -> None:
    """An error that names the file follows what can be read, never just the end of the
    rows. The next file follows.
    """
    rng = np.random.default_rng(1)
    rows = rng.integers(10**15, size=20_000)
    packed = PACKS[ending](text_of(rows))
    (tmp_path / f"a.jsonl{ending}").write_bytes(packed[: len(packed) * 2 // 3])
    (tmp_path / "b.jsonl").write_bytes(text_of([7]))
    iterator = make_iterator(node_of(tmp_path, 10**6, **options), Context(seed=1))
    found: list[int] = []
    failures = []
    for _ in range(20_000):
        try:
            found += numbers([next(iterator)])
        except StopIteration:
            break
        except DataLossError as error:
            failures.append(str(error))
    assert len(failures) == 1
    assert f"a.jsonl{ending} ends in the middle of its" in failures[0]
    assert set(found) <= {*rows.tolist(), 7}
    assert 7 in found
    # bzip2 unpacks blocks of 900 kB of content only.
    assert len(found) > (0 if ending == ".bz2" else 4000)
    if ending == ".zst" and not options:
        assert found[:-1] == rows[: len(found) - 1].tolist()
        skipping = Dataset.from_jsonl(tmp_path, on_error="skip")
        whole = iter(skipping)
        assert numbers(whole) == found
        assert "ends in the middle" in whole.quarantine[0].error


BAD = [
    (b'{"n": 1', "Expecting ',' delimiter"),
    (b'{"n": 1} {"n": 2}', "Extra data"),
    (b"{'n': 1}", "Expecting property name"),
    (b'{"n": "\xff"}', "can't decode byte 0xff"),
    (b"[" * 100_000, "RecursionError"),
    (b"1" * 5000, "integer string conversion"),
]


@pytest.mark.parametrize(("line", "text"), BAD, ids=[text for _, text in BAD])
@pytest.mark.parametrize("shuffle", [False, True])
def test_a_line_that_is_no_json_is_an_error_alone(
    tmp_path: Path, line: bytes, text: str, shuffle: bool
) -> None:
    """The error names file, line and byte, and the other lines come."""
    path = tmp_path / "f.jsonl"
    path.write_bytes(text_of(range(2)) + b"\n\n" + line + b"\n" + text_of(range(2, 5)))
    node = node_of(path, 10**6, shuffle=shuffle)
    outcomes = check_restore(node)
    (failure,) = [outcome for outcome in outcomes if type(outcome) is tuple]
    assert len(outcomes) == 6
    assert f"{path}, line 4, byte {len(text_of(range(2))) + 2}" in failure[2]
    assert text in failure[2]
    iterator = iter(Dataset.from_jsonl(path, shuffle=shuffle, on_error="skip"))
    assert sorted(numbers(iterator)) == list(range(5))
    (left_out,) = iterator.quarantine
    assert f"{path}, line 4, byte" in left_out.error
    assert text in left_out.error


def test_places_are_those_in_the_whole_file(tmp_path: Path) -> None:
    """Line and byte of an error are those in the file, in whichever split it lies; of
    a file too large to count its lines, the part is named.
    """
    lines = text_of(range(50)).split(b"\n")
    lines[41] = b"rubbish"
    path = tmp_path / "f.jsonl"
    path.write_bytes(b"\n".join(lines))
    place = f"{path}, line 42, byte {path.read_bytes().index(b'rubbish')}"
    for options in {}, {"shuffle": True}, {"batch_rows": 7}:
        with pytest.raises(PipelineError, match=place):
            read(node_of(path, **options))


def test_lines_before_a_distant_split_are_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Far behind in a file, the error has the line in its split."""
    monkeypatch.setattr(jsonl, "_COUNTED", 150)
    path = tmp_path / "f.jsonl"
    path.write_bytes(text_of(range(20)) + b"\nrubbish")
    with pytest.raises(PipelineError, match=r"f\.jsonl, line 2 of its part 4, byte 430"):
        read(node_of(path))


def test_batches_end_before_what_does_not_fit(tmp_path: Path) -> None:
    """No row is lost: the rows before a bad line come as a smaller batch, then its
    error, then the rows behind it. A line with other keys begins a batch.
    """
    path = tmp_path / "f.jsonl"
    path.write_bytes(text_of(range(4)) + b"\n]\n" + text_of(range(4, 9)))
    iterator = make_iterator(node_of(path, 1000, batch_rows=3), Context())
    assert [numbers([next(iterator)]) for _ in range(2)] == [[0, 1, 2], [3]]
    with pytest.raises(PipelineError, match="line 5"):
        next(iterator)
    assert [numbers([batch]) for batch in iterator] == [[4, 5, 6], [7, 8]]
    skipping = readable(node_of(path, 1000, batch_rows=3), True)
    assert [numbers([batch]) for batch in read(skipping)] == [[0, 1, 2], [3], [4, 5, 6], [7, 8]]
    check_restore(skipping)
    path.write_text('{"n": 1}\n{"n": 2, "m": 1}\n{"n": 3, "m": 1}\n{"n": 4}')
    batches = read(node_of(path, 1000, batch_rows=3))
    assert [(numbers([batch]), [*batch]) for batch in batches] == [
        ([1], ["n"]),
        ([2, 3], ["n", "m"]),
        ([4], ["n"]),
    ]


@pytest.mark.parametrize(
    ("row", "options", "text"),
    [
        ({"m": 1}, {"columns": ["n"]}, r"the keys \['m'\], expected .* the keys \['n'\]"),
        ({}, {"columns": ["n"], "batch_rows": 2}, r"the keys \[\], expected .* \['n'\]"),
        ([1], {"columns": ["n"]}, "has a ndarray, expected an object"),
        (1, {"batch_rows": 2}, "has a int, expected an object"),
    ],
)
def test_rows_without_the_keys_are_errors(
    tmp_path: Path, row: Any, options: dict[str, Any], text: str
) -> None:
    """An object that lacks a key, or in a batch has another, is an error with its
    line, and is left out on request.
    """
    path = tmp_path / "f.jsonl"
    path.write_text("\n".join(map(json.dumps, [{"n": 1}, row, {"n": 2}])))
    iterator = make_iterator(node_of(path, **options), Context())
    assert numbers([next(iterator)]) == [1]
    with pytest.raises(PipelineError, match=f"line 2, byte 9: InvalidArgumentError: .*{text}"):
        next(iterator)
    assert numbers(iterator) == [2]
    assert numbers(read(readable(node_of(path, **options), True))) == [1, 2]


def test_a_file_that_was_changed_is_noticed(tmp_path: Path) -> None:
    """A file that grew, shrank or has another beginning is an error, never a mixture;
    so is one that shrinks while it is read.
    """
    path = tmp_path / "f.jsonl"
    text = text_of(range(60_000))
    path.write_bytes(text)
    node = node_of(path, 10**8)
    for content in (text + b"\n{}", text[:-1], b"[" + text[1:]):
        path.write_bytes(content)
        with pytest.raises(DataLossError, match="was changed after this dataset was made"):
            read(node)
    path.write_bytes(text)
    iterator = make_iterator(node, Context())
    next(iterator)
    path.write_bytes(text[:-10])
    with pytest.raises(DataLossError, match=r"f\.jsonl cannot be read: it has \d+ bytes, and had"):
        list(iterator)


@pytest.mark.parametrize("end", ["\n", ""])
@pytest.mark.parametrize("name", ["f.jsonl", "f.jsonl.gz"])
def test_a_file_that_grows_while_it_is_read_is_an_error(
    tmp_path: Path, name: str, end: str
) -> None:
    """The rows that were there come, then an error, and none of the new rows."""
    path = tmp_path / name
    pack = PACKS.get(path.suffix, bytes)
    path.write_bytes(pack(text_of(range(60_000)) + end.encode()))
    iterator = make_iterator(node_of(path, 10**8), Context())
    found = [next(iterator)]
    with path.open("ab") as file:
        file.write(pack(b"\n" + text_of(range(30))))
    with pytest.raises(DataLossError, match=rf"{name} cannot be read: it has \d+ bytes, and had"):
        found.extend(iterator)
    assert {*numbers(found)} <= {*range(60_000)}
    assert len(found) <= 60_000
    assert end == "" or path.suffix == ".gz" or len(found) == 60_000


@pytest.mark.parametrize("line", [' {"n": %d}', '\n{"n": %d}', '{"n": %d}\nrubbish'])
@pytest.mark.parametrize("name", ["rows", "batches", "shuffled rows", "shuffled batches"])
def test_irregular_lines_are_not_fetched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, name: str
) -> None:
    """Beside lines that are blank, bad, or begin with a blank, each line is fetched
    twice at most.
    """
    fetched = 0

    class Fetched(list[Any]):
        def __getitem__(self, index: Any) -> Any:
            nonlocal fetched
            found = super().__getitem__(index)
            fetched += len(found) if isinstance(index, slice) else 1
            return found

    def counted(method: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arguments: Fetched(method(*arguments))

    def counted_some(piece: Any, indices: Any) -> Any:
        nonlocal fetched
        fetched += len(indices)
        return some(piece, indices)

    some = jsonl._Piece.some
    monkeypatch.setattr(jsonl._Piece, "lines", counted(jsonl._Piece.lines))
    monkeypatch.setattr(jsonl._Piece, "some", counted_some)
    path = tmp_path / "f.jsonl"
    text = "\n".join(line % n for n in range(500))
    path.write_text(text)
    node = readable(node_of(path, 10**6, **KINDS[name]), True)
    assert sorted(numbers(read(node))) == [*range(500)]
    assert 0 < fetched <= 2 * (text.count("\n") + 1)


@pytest.mark.parametrize("shuffle", [False, True])
def test_lines_before_a_bad_line_are_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shuffle: bool
) -> None:
    """Bad lines in all splits make the file be read for line numbers once in order,
    and a few times in a permutation.
    """
    counted = 0

    class Counted(io.FileIO):
        def read(self, size: int | None = -1, /) -> Any:
            nonlocal counted
            counted += size or 0
            return super().read(size)

    monkeypatch.setattr(jsonl, "_HEAD", 0)
    monkeypatch.setattr(jsonl, "open_file", lambda name, options=None: Counted(name))
    path = tmp_path / "f.jsonl"
    path.write_bytes(b"\n".join(b"%s\nbad%03d" % (text_of([n]), n) for n in range(100)))
    context = Context(seed=1)
    iterator = make_iterator(readable(node_of(path, shuffle=shuffle), True), context)
    assert len([*iterator]) == 100
    assert sorted(int(one.error.split("line ")[1].split(",")[0]) for one in context.quarantine) == [
        *range(2, 201, 2)
    ]
    assert 0 < counted <= path.stat().st_size * (4 if shuffle else 1)


@pytest.mark.parametrize("lists", [([True], [2]), (["x"], [1]), ([2**53 + 1], [0.5])])
def test_lists_of_different_kinds_are_a_column_of_objects(
    tmp_path: Path, lists: tuple[list[Any], list[Any]]
) -> None:
    """A batch of lists of which no tensor can be made exactly holds them as objects."""
    path = tmp_path / "f.jsonl"
    path.write_text("\n".join(json.dumps({"a": values}) for values in lists))
    (batch,) = read(node_of(path, batch_rows=2))
    assert batch["a"].dtype == object
    assert [part.tolist() for part in batch["a"]] == [*lists]


@pytest.mark.parametrize("name", ["rows", "batches", "shuffled rows"])
def test_the_service_delivers_each_row_once(folder: Path, name: str) -> None:
    """Each row comes once from several workers, also after one of them was killed."""
    dataset = Dataset(node_of(folder, **KINDS[name]))
    with SimulatedService(workers=2, seed=5) as service:
        elements = iter(service.read(dataset))
        found = list(islice(elements, 3))
        service.workers[0].kill()
        service.add_worker()
        found += elements
    assert Counter(numbers(found)) == Counter(range(30))


def test_lists_that_are_no_arrays_cross_the_wire(tmp_path: Path) -> None:
    """An element comes from a service as it comes without one."""
    path = tmp_path / "f.jsonl"
    path.write_text('{"a": [1, null], "b": [[1], [2, 3]], "c": [{"x": [1]}], "d": ["x"]}')
    dataset = Dataset.from_jsonl(path)
    with SimulatedService(workers=1) as service:
        (found,) = service.read(dataset)
    assert repr(found) == repr(next(iter(dataset)))


def test_shuffled_lines_are_drawn_from_several_splits(tmp_path: Path) -> None:
    """A seed repeats the order, each iteration has another, and lines of as many splits
    as are open come mixed.
    """
    path = tmp_path / "f.jsonl"
    path.write_bytes(text_of(range(400)))
    dataset = Dataset(node_of(path, 1000, shuffle=True, seed=3))
    again = Dataset(node_of(path, 1000, shuffle=True, seed=3))
    first = numbers(dataset)
    assert first == numbers(again) != numbers(dataset)
    assert sorted(first) == list(range(400))
    assert len({n // 42 for n in first[:30]}) >= 3


def test_names_of_elements_do_not_depend_on_the_reading(folder: Path) -> None:
    """An element has the same name in a whole reading and in one of its splits, and no
    two have the same.
    """
    node = node_of(folder)

    def named(context: Context) -> dict[int, Any]:
        iterator, found = make_iterator(node, context), {}
        for element in iterator:
            namer = iterator.namer()
            assert namer is not None
            found[int(element["n"])] = namer()
        return found

    whole, part = named(Context()), named(provided([[(2, 4)]])())
    assert len(set(whole.values())) == 30
    assert 0 < len(part) < 30
    assert part.items() <= whole.items()


def test_secrets_do_not_travel(tmp_path: Path) -> None:
    """Options that hold a secret are refused where the pipeline is packed."""
    (tmp_path / "f.jsonl").write_text("1")
    dataset = Dataset.from_jsonl(tmp_path, storage_options={"s3": {"secret": "planted"}})
    with pytest.raises(TypeError, match=r"'s3\.secret', and secrets do"):
        pack_pipeline(dataset.node)
    assert "planted" not in f"{dataset.describe()}{dataset!r}{dataset.node!r}"


def test_zlib_content_is_recognized(tmp_path: Path) -> None:
    """A file without a telling name is unpacked if it is a zlib stream."""
    (tmp_path / "f.jsonl").write_bytes(zlib.compress(text_of(range(3))))
    assert numbers(read(node_of(tmp_path))) == [0, 1, 2]


def test_objects_of_stores_are_read_by_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A split asks for its blocks, and for little behind them; an object that is
    replaced, or cut off, is an error, and left out on request.
    """
    monkeypatch.setattr(reading, "BLOCK", 4096)
    monkeypatch.setattr(reading, "_TAIL", 512)
    content = text_of(range(2000))
    with object_store() as store:
        store.objects = {"/a.jsonl": content, "/b.jsonl.gz": gzip.compress(content)}
        node = node_of(store.url("/a.jsonl?sig=planted"), 16384)
        assert len(store.requests) == 1
        assert node.split_count == -(-len(content) // 16384)
        store.requests.clear()
        store.sent = 0
        assert numbers(read(node)) == list(range(2000))
        assert len(store.requests) == -(-len(content) // 4096) + node.split_count - 1
        assert store.sent < len(content) * 1.1
        check_restore(node_of(store.url("/b.jsonl.gz"), batch_rows=300))
        store.objects["/a.jsonl"] = content[:-9]
        with pytest.raises(DataLossError, match="the object changed"):
            read(node)
        store.objects["/b.jsonl.gz"] = store.objects["/b.jsonl.gz"][:-2000]
        names = [store.url("/b.jsonl.gz?sig=planted"), store.url("/a.jsonl")]
        iterator = iter(Dataset.from_jsonl(names, on_error="skip"))
        assert len(list(iterator)) > 2000
        errors = [one.error for one in iterator.quarantine]
        assert len(errors) == 2
        assert "b.jsonl.gz?... ends in the middle" in errors[0]
        assert "a.jsonl, line 2000 of" in errors[1] or "a.jsonl, line 2000, byte" in errors[1]
        assert "planted" not in f"{errors} {iterator!r} {Dataset(node).describe()}"
