"""Advice on names that users of other libraries try first: the code of zmqdata, and the
names of arguments.
"""

from __future__ import annotations

import functools
import inspect
import re
from abc import ABCMeta
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeVar, cast

RECIPES = {
    "from_parquet read_parquet parquet": (
        'Dataset.list_files("*.parquet").flat_map('
        "lambda path: Dataset.from_list(pyarrow.parquet.read_table(path).to_pylist()))"
    ),
    "from_csv read_csv csv": 'zmqdata.CsvDataset("rows.csv", [np.int64, np.float32], header=True)',
    "from_json read_json": 'Dataset.from_jsonl("rows.jsonl")',
    "from_text from_lines read_text": 'zmqdata.TextLineDataset("lines.txt")',
    "from_tfrecord from_tfrecords read_tfrecords": 'zmqdata.TFRecordDataset("rows.tfrecord")',
    "from_sql read_sql": (
        'zmqdata.SqlDataset("sqlite", "rows.db", "SELECT x FROM rows", np.int64)'
    ),
    "from_files from_folder from_directory read_images": 'Dataset.list_files("*.jpg").map(load)',
    "from_webdataset from_tar read_webdataset": (
        'Dataset.list_files("*.tar").flat_map('
        "lambda path: Dataset.from_generator(read_tar, args=(path,)))"
    ),
    "from_arrow from_table from_pandas from_dataframe from_df from_polars": (
        "Dataset.from_arrow(table)"
    ),
    "from_tensor_slices from_numpy from_array from_tensor": "Dataset.from_tensor_slices(x)",
    "from_tensors from_arrays from_dict": 'Dataset.from_tensor_slices({"x": x, "y": y})',
    "from_list from_items from_rows from_dicts from_records": "Dataset.from_list(rows)",
    "from_source from_hf from_huggingface from_dataset": "Dataset.from_source(rows)",
    "from_torch from_pytorch from_sequence load_dataset": "Dataset.from_source(rows)",
    "from_generator from_iterable from_iterator from_iter": "Dataset.from_generator(read)",
    "from_tf from_tensorflow from_tfds": "Dataset.from_generator(tf_dataset.as_numpy_iterator)",
    "from_range range arange": "Dataset.range(10)",
    "list_files glob": 'Dataset.list_files("*.jpg")',
    "load from_saved load_from_disk": "Dataset.load(path)",
    "distribute service": 'ds.apply(zmqdata.distribute("distributed_epoch", service))',
    "to_torch as_torch to_dataloader dataloader DataLoader Loader iter_torch_batches "
    "to_torch_dataset with_format set_format": "zmqdata.torch.Loader(ds.batch(32))",
    "prefetch_to_device to_device": 'zmqdata.torch.Loader(ds.batch(32), device="cpu")',
    "to_tf to_tf_dataset to_tensorflow": "zmqdata.tensorflow.to_tf_dataset(ds)",
    "to_jax iter_jax_batches": "zmqdata.jax.device_iterator(ds.batch(32))",
    "to_keras": "zmqdata.keras.PyDataset(ds.batch(32), batches=3)",
    "to_list as_list tolist collect take_all": "list(ds)",
    "to_numpy as_numpy numpy numpy_iterator": "list(ds.as_numpy_iterator())",
    "to_pandas to_dataframe to_df": "pandas.DataFrame(list(ds))",
    "save_to_disk to_parquet to_csv to_json write_parquet write_csv": "ds.save(path)",
    "iter_batches": "for batch in ds.batch(32): train(batch)",
    "iter_rows iterator make_one_shot_iterator as_iterator": "for element in ds: train(element)",
    "state_dict load_state_dict": "iter(ds).state_dict()",
    "parallel_map pmap map_parallel": "ds.map(f, num_parallel_calls=zmqdata.AUTOTUNE)",
    "transform with_transform set_transform starmap for_each foreach": "ds.map(f)",
    "map_and_batch": "ds.map(f).batch(32)",
    "collate collate_fn": "ds.batch(32, collate_fn=list)",
    "select select_columns remove_columns": 'rows_dataset.map(lambda row: {"x": row["x"]})',
    "drop_columns rename_columns rename": 'rows_dataset.map(lambda row: {"z": row["x"]})',
    "random_split train_test_split split": "test, train = ds.take(20), ds.skip(20)",
    "where filter_map": "ds.filter(lambda x: x > 5)",
    "head show first limit islice take_batch": "ds.take(5)",
    "drop": "ds.skip(5)",
    "sample choice random_sample": "ds.shuffle(1000).take(10)",
    "mix merge interleave_datasets": "Dataset.sample_from_datasets([ds, other])",
    "union chain append add extend concatenate_datasets": "ds.concatenate(other)",
    "sort sort_by order_by": "Dataset.from_list(sorted(ds))",
    "distinct dedup drop_duplicates": "ds.unique()",
    "group_by groupby": "ds.group_by_window(lambda x: x % 2, lambda key, xs: xs.batch(4), 4)",
    "flatten explode unnest": "ds.batch(4).unbatch()",
    "pad": "ds.padded_batch(4)",
    "buffer": "ds.prefetch(4)",
    "cycle forever": "ds.repeat()",
    "shuffle_and_repeat set_epoch random_shuffle": "ds.shuffle(1000).repeat()",
    "materialize persist cache_in_memory in_memory": "ds.cache()",
    "count size length num_rows num_examples num_elements": "ds.reduce(0, lambda n, _: n + 1)",
    "columns column_names features schema dtypes shape output_types": "ds.element_spec",
}
"""Code to write instead of each name; ``ds`` is the dataset."""
_SOURCES = (
    "`Dataset.from_source(rows)` takes what has a length and an index, and "
    "`Dataset.from_generator(read)` a function that yields"
)
_LOOPS = "`for element in ds` yields numpy arrays, and `ds.save(path)` writes them"
_KINDS = {"from": _SOURCES, "read": _SOURCES, "to": _LOOPS, "iter": _LOOPS, "write": _LOOPS}


class WithRecipes(ABCMeta):
    """The class of ``Dataset``. It answers for names that it lacks. A subclass may have
    an abstract class as another base.
    """

    if not TYPE_CHECKING:

        def __getattr__(cls, name: str) -> Any:
            raise missing(cls, f"type object {cls.__name__!r}", name)


def missing(owner: object, shown: str, name: str) -> AttributeError:
    """Return the error for a name that an object lacks, with the recipe for it.

    Args:
        owner: the object, whose attributes Python compares with the name.
        shown: words for the object.
        name: the name.

    >>> str(missing(None, "'Dataset' object", "pad"))
    "'Dataset' object has no attribute 'pad'. Write `ds.padded_batch(4)`"
    """
    recipes = [f"Write `{one}`" for names, one in RECIPES.items() if name in names.split()]
    kinds = [one for kind, one in _KINDS.items() if name.startswith(f"{kind}_")]
    told = "".join(f". {one}" for one in (recipes or kinds)[:1])
    return AttributeError(f"{shown} has no attribute {name!r}{told}", name=name, obj=owner)


Called = TypeVar("Called", bound=Callable[..., Any])
_OWN = ("self", "cls")
_UNKNOWN_ARGUMENT = re.compile(r"\(\) got an unexpected keyword argument '([^']*)'")


def names_arguments(function: Called) -> Called:
    """Return a function that, given an unknown argument, names the argument that is
    meant. Python itself does so since 3.13, if the names are alike.

    >>> names_arguments(lambda size, seed=None: size)(4, sede=1)
    Traceback (most recent call last):
    TypeError: <lambda>() has no argument 'sede'. Did you mean 'seed'?
    """
    objection = functools.partial(_unknown_argument, function)

    def called(*given: Any, **named: Any) -> Any:
        try:
            return function(*given, **named)
        except TypeError as error:
            better = objection(error)
            if better is None:
                raise
            raise better from None

    return cast(Called, with_globals_of(function, called))


def with_globals_of(function: Any, called: Any) -> Any:
    """Return a function that replaces another: tools take it for a function of the same
    module, because it has the globals.

    Args:
        function: the replaced function.
        called: the function that does the work. It uses no global of its own module.
    """
    made = FunctionType(
        called.__code__, function.__globals__, function.__name__, closure=called.__closure__
    )
    return functools.wraps(function)(made)


def name_arguments_in(kind: type) -> None:
    """Let the public methods of a class, and its creation, name the argument that is
    meant.
    """
    for name, value in list(vars(kind).items()):
        if name == "__init__" or not name.startswith("_"):
            if isinstance(value, FunctionType):
                setattr(kind, name, names_arguments(value))
            elif isinstance(value, (staticmethod, classmethod)):
                setattr(kind, name, type(value)(names_arguments(value.__func__)))


def _unknown_argument(function: Callable[..., Any], error: TypeError) -> TypeError | None:
    """Return a better error for a call of a function that has not begun; None for any
    other error.
    """
    # The traceback holds the frame of the caller alone.
    begun = error.__traceback__ is None or error.__traceback__.tb_next is not None
    unknown = _UNKNOWN_ARGUMENT.search(str(error))
    if begun or unknown is None:
        return None
    names = [name for name in inspect.signature(function).parameters if name not in _OWN]
    shown = function.__qualname__.removesuffix(".__init__").rpartition(".")[2]
    return TypeError(f"{shown}() has no argument {unknown[1]!r}. {meant(unknown[1], names)}")


def meant(name: str, names: Sequence[str]) -> str:
    """Return a sentence about the name that a user meant, or all names if none is like
    it.

    >>> meant("workers", ["num_workers", "host"]), meant("x", ["num_workers", "host"])
    ("Did you mean 'num_workers'?", 'It has num_workers, host')
    """
    from difflib import get_close_matches

    within = [one for one in names if f"_{name}_" in f"_{one}_"]
    alike = within or get_close_matches(name, names, 1)
    return f"Did you mean {alike[0]!r}?" if alike else f"It has {', '.join(names) or 'none'}"
