"""Tests of the advice on names that users of other libraries try first."""

from __future__ import annotations

import inspect
import json
import pickle
import sqlite3
from collections.abc import Collection, Iterator
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import zmqdata
from zmqdata import Dataset, LocalCluster
from zmqdata.recipes import RECIPES, names_arguments

ADAPTERS = ("zmqdata.torch.", "zmqdata.jax.", "zmqdata.tensorflow.", "zmqdata.keras.")
PLAIN = {names: recipe for names, recipe in RECIPES.items() if not recipe.startswith(ADAPTERS)}
ROWS = [{"x": number, "y": number / 2} for number in range(40)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the files that recipes read."""
    made = tmp_path_factory.mktemp("recipes")
    for name in ("rows.parquet", "shard.tar", "a.jpg"):
        (made / name).write_bytes(b"\1\2")
    (made / "lines.txt").write_text("a\nb\n")
    (made / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (made / "rows.csv").write_text("x,y\n1,0.5\n")
    with zmqdata.TFRecordWriter(str(made / "rows.tfrecord")) as writer:
        writer.write(b"row")
    with sqlite3.connect(made / "rows.db") as base:
        base.execute("CREATE TABLE rows AS SELECT 1 AS x, 0.5 AS y")
    Dataset.range(3).save(str(made / "saved"))
    return made


@pytest.fixture(scope="module")
def names(folder: Path) -> Iterator[dict[str, Any]]:
    """Return the names that recipes use. Other libraries are stand-ins with the methods
    that a recipe calls.
    """
    table = pa.table({"x": [1], "y": [0.5]})
    ds = Dataset.range(40)
    with LocalCluster(1, in_process=True) as cluster:
        yield {
            **{"np": np, "json": json, "zmqdata": zmqdata, "Dataset": Dataset},
            **{"ds": ds, "other": ds, "rows": ROWS, "x": np.arange(40), "y": np.arange(40)},
            **{"rows_dataset": Dataset.from_list(ROWS), "f": lambda x: x, "train": lambda batch: 0},
            **{"table": table, "service": cluster.target},
            "tf_dataset": SimpleNamespace(as_numpy_iterator=lambda: iter(ROWS)),
            "pyarrow": SimpleNamespace(parquet=SimpleNamespace(read_table=lambda path: table)),
            "pandas": SimpleNamespace(DataFrame=len),
            "read_tar": lambda path: iter([path]),
            "read": lambda: iter(ROWS),
            "load": str,
        }


@pytest.mark.parametrize("recipe", PLAIN.values())
def test_a_recipe_runs(
    recipe: str,
    names: dict[str, Any],
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The recipe runs as it is printed. A dataset that it makes has elements."""
    monkeypatch.chdir(folder)
    known = {**names, "path": tmp_path / "new" if ".save(" in recipe else folder / "saved"}
    statement = compile(recipe if recipe.startswith("for ") else f"made = {recipe}", "r", "exec")
    if recipe.startswith("test, train"):
        statement = compile(recipe, "recipe", "exec")
    exec(statement, known)
    if isinstance(made := known.get("made"), Dataset):
        assert [*made.take(2)]
    if ".save(" in recipe:
        assert [*Dataset.load(tmp_path / "new")] == [*range(40)]


ASKED = [name for names in RECIPES for name in names.split()]


@pytest.mark.parametrize(
    "owner", [Dataset, Dataset.range(1), zmqdata.TextLineDataset, zmqdata], ids=lambda it: "owner"
)
def test_a_missing_name_is_answered_by_its_recipe(owner: Any) -> None:
    """A name that a dataset, its class or the package lacks is an AttributeError with
    the recipe.
    """
    recipes = {name: recipe for names, recipe in RECIPES.items() for name in names.split()}
    for name, recipe in recipes.items():
        if not hasattr(owner, name):
            with pytest.raises(AttributeError, match=f"has no attribute '{name}'") as told:
                getattr(owner, name)
            assert str(told.value).endswith(f". Write `{recipe}`")
            assert (told.value.name, told.value.obj) == (name, owner)


def test_no_name_has_two_recipes() -> None:
    """Each name has a single recipe."""
    assert len({*ASKED}) == len(ASKED)


@pytest.mark.parametrize("name", ["from_zarr", "read_avro"])
def test_an_unknown_source_is_answered_by_the_general_ones(name: str) -> None:
    """For a source without a recipe, the error names the two that take anything."""
    with pytest.raises(AttributeError, match=r"Dataset\.from_source.*Dataset\.from_generator"):
        getattr(Dataset, name)


@pytest.mark.parametrize("name", ["to_arrow", "write_lance", "iter_spans"])
def test_an_unknown_end_is_answered_by_the_general_ones(name: str) -> None:
    """For an end without a recipe, the error names the loop and the file."""
    with pytest.raises(AttributeError, match=r"`for element in ds`.*`ds\.save\(path\)`"):
        getattr(Dataset.range(1), name)


def test_other_names_have_no_advice() -> None:
    """A name without a recipe is a plain AttributeError."""
    with pytest.raises(AttributeError, match=r"^'Dataset' object has no attribute 'nonsense'$"):
        _ = Dataset.range(1).nonsense  # type: ignore[attr-defined]  # it is missing


class Sized(Dataset, Collection[Any]):
    """A subclass with an abstract base, and a property that fails."""

    @property
    def pad(self) -> int:
        raise AttributeError("no size is declared")

    def __len__(self) -> int:
        return 1

    def __contains__(self, element: object) -> bool:
        return False


def test_a_subclass_may_have_abstract_bases_and_properties_that_fail() -> None:
    """No advice takes the place of the error of a property."""
    with pytest.raises(AttributeError, match="no size is declared"):
        _ = Sized(Dataset.range(1).node).pad


def calls(owner: Any, names: list[str]) -> list[tuple[str, Any]]:
    found = [(name, getattr(owner, name)) for name in names if callable(getattr(owner, name))]
    return [one for one in found if not (isinstance(one[1], type) and issubclass(one[1], Enum))]


OTHERS = {
    *("CrossTrainerCache", "DatasetIterator", "DatasetSpec", "LeftOut", "NoneTensorSpec"),
    *("Options", "RaggedTensor", "RaggedTensorSpec", "Reducer", "TensorSpec"),
}
"""Classes whose arguments are not written by name."""
PUBLIC = [
    *calls(zmqdata, sorted(set(zmqdata.__all__) - OTHERS)),
    *calls(Dataset.range(1), [name for name in dir(Dataset) if not name.startswith("_")]),
]


@pytest.mark.parametrize(("name", "call"), PUBLIC, ids=[name for name, _ in PUBLIC])
def test_an_unknown_argument_is_answered_by_the_one_that_is_meant(name: str, call: Any) -> None:
    """Every public function and method, and the creation of every public class, says
    which of its arguments is meant.
    """
    known = [one for one in inspect.signature(call).parameters if len(one) > 3]
    for meant in known[:1]:
        with pytest.raises(TypeError, match=f"has no argument '{meant}_'. Did you mean '{meant}'"):
            call(**{f"{meant}_": 1})
    with pytest.raises(TypeError, match=r"has no argument 'zq'\. It has "):
        call(zq=1)


def test_errors_within_a_function_stay_as_they_are() -> None:
    """An error about an argument of another function is not altered."""

    def inner() -> None:
        raise TypeError("f() got an unexpected keyword argument 'x'")

    with pytest.raises(TypeError, match=r"^f\(\) got an unexpected"):
        names_arguments(inner)()
    with pytest.raises(TypeError, match=r"missing 1 required positional argument"):
        Dataset.range(1).take()  # type: ignore[call-arg]  # it is wrong


def test_methods_are_what_they_were_to_tools() -> None:
    """Signature, documentation, module and pickle of a method are its own."""
    assert [*inspect.signature(Dataset.take).parameters] == ["self", "count"]
    assert Dataset.take.__module__ == "zmqdata.dataset.transforms"
    assert pickle.loads(pickle.dumps(Dataset.take)) is Dataset.take
