"""Sources of chains, each a function of the library with equal elements in both."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.elements.attrs_classes import Marked
from tests.tfdata import files
from tests.tfdata.sides import Point


def slices(values: Any) -> Any:
    return lambda side: side.Dataset.from_tensor_slices(values)


def rows(n: int, *shape: int, dtype: Any = np.int64) -> Any:
    return (np.arange(n * int(np.prod(shape))) % 11).reshape(n, *shape).astype(dtype)


def texts(n: int) -> Any:
    return np.array([["a", "bc", "", "def", "a"][i % 5] for i in range(n)], dtype="U3")


def numbers_from_generator(n: int) -> Any:
    def make() -> Any:
        yield from range(n)

    return lambda side: side.Dataset.from_generator(
        make, output_signature=side.signature((), np.int64)
    )


def arrays_from_generator(n: int) -> Any:
    def make() -> Any:
        for i in range(n):
            yield np.arange(i % 3, dtype=np.float32), i

    return lambda side: side.Dataset.from_generator(
        make, output_signature=(side.signature((None,), np.float32), side.signature((), np.int32))
    )


def random_numbers(n: int, m: int) -> Any:
    """Compare random numbers by their range and by the equality of equal seeds."""

    def make(side: Any) -> Any:
        first, second = (side.Dataset.random(seed=n).take(m) for _ in range(2))
        return side.Dataset.zip(first, second).map(
            lambda a, b: (a == b, (a >= 0) & (a < 2**32), a - a)
        )

    return make


def random_twice(n: int, m: int) -> Any:
    """Compare two repetitions of random numbers with each other."""
    again = None if n % 3 == 2 else n % 3 == 1

    def make(side: Any) -> Any:
        numbers = side.Dataset.random(seed=m, rerandomize_each_iteration=again).take(8)
        return (
            numbers.repeat(2).batch(8).batch(2).map(lambda both: side.all_equal(both[0], both[1]))
        )

    return make


def shuffle_twice(n: int, m: int) -> Any:
    """Compare the order of two shuffled repetitions with each other."""

    def make(side: Any) -> Any:
        mixed = side.Dataset.range(20).shuffle(
            n + 20, seed=m if n % 2 else None, reshuffle_each_iteration=m % 2 == 0
        )
        return mixed.repeat(2).batch(20).batch(2).map(lambda both: side.all_equal(both[0], both[1]))

    return make


def resampled(n: int, m: int) -> Any:
    """Draw endlessly with estimated or given initial shares, each with its class."""

    def make(side: Any) -> Any:
        numbers = side.Dataset.range(n + 2).repeat()
        initial = [0.5, 0.5] if n % 2 == 0 and m % 2 else None
        drawn = numbers.rejection_resample(
            lambda x: side.int32(x % 2), [m / 8, 1 - m / 8], initial, seed=m
        )
        return drawn.take(m).map(lambda kind, x: (side.int32(x % 2) == kind, x - x))

    return make


SOURCES: dict[str, Any] = {
    "range": lambda n, m: lambda side: side.Dataset.range(n),
    "range3": lambda n, m: lambda side: side.Dataset.range(m - 4, n, m % 3 + 1),
    "range_down": lambda n, m: lambda side: side.Dataset.range(n, -m, -2),
    "range_int32": lambda n, m: lambda side: side.Dataset.range(n, output_type=np.int32),
    "range_float": lambda n, m: lambda side: side.Dataset.range(n, output_type=np.float32),
    "tensors": lambda n, m: lambda side: side.Dataset.from_tensors(rows(n, 2)),
    "tensors_nested": lambda n, m: (
        lambda side: side.Dataset.from_tensors({"a": rows(n), "b": (rows(m, 2), np.float32(m))})
    ),
    "slices": lambda n, m: slices(rows(n)),
    "slices_uint8": lambda n, m: slices(rows(n, 3, dtype=np.uint8)),
    "slices_bool": lambda n, m: slices(rows(n) % 2 == 1),
    "slices_matrix": lambda n, m: slices(rows(n, 2, m % 3, dtype=np.float64)),
    "slices_dict": lambda n, m: slices({"b": rows(n, 2), "a": rows(n, dtype=np.int32)}),
    "slices_tuple": lambda n, m: slices((rows(n), rows(n, 2, dtype=np.float32))),
    "slices_one_tuple": lambda n, m: slices((rows(n),)),
    "slices_nested": lambda n, m: slices(((rows(n), {"k": rows(n, 1)}), rows(n))),
    "slices_text": lambda n, m: slices({"t": texts(n + 1), "n": rows(n + 1)}),
    "slices_only_text": lambda n, m: slices(texts(n + 1)),
    "slices_point": lambda n, m: slices(Point(rows(n), rows(n, 2))),
    "slices_marked": lambda n, m: slices(Marked(rows(n), {"y": rows(n, 2)})),
    "python": lambda n, m: slices(
        {"a": list(range(n + 1)), "b": [[float(i), 0.5] for i in range(n + 1)]}
    ),
    "python_tensors": lambda n, m: (
        lambda side: side.Dataset.from_tensors((n, [1.5, float(m)], "x" * m, True))
    ),
    "list": lambda n, m: (
        lambda side: side.from_list([(np.int64(i), rows(i % 3)) for i in range(n + 1)])
    ),
    "generator": lambda n, m: numbers_from_generator(n),
    "generator_arrays": lambda n, m: arrays_from_generator(n),
    "counter": lambda n, m: lambda side: side.Dataset.counter(n, m - 3 or 1).take(m + 3),
    "zip": lambda n, m: lambda side: side.Dataset.zip(side.Dataset.range(n), side.Dataset.range(m)),
    "zip_dict": lambda n, m: (
        lambda side: side.Dataset.zip({"p": side.Dataset.range(n), "q": (side.Dataset.range(m),)})
    ),
    "zip_marked": lambda n, m: (
        lambda side: side.Dataset.zip(
            Marked(side.Dataset.range(n), Point(side.Dataset.range(m), side.Dataset.range(9)))
        )
    ),
    "text_lines": files.text_files,
    "line_files": files.line_files,
    "records": files.record_files,
    "records_damaged": lambda n, m: files.record_files(n, m, damaged=True),
    "fixed_length": files.fixed_length_files,
    "csv": files.csv_files,
    "sql": files.data_base,
    "random": random_numbers,
    "random_twice": random_twice,
    "shuffle_twice": shuffle_twice,
    "resampled": resampled,
}
LEARNED = {"line_files", "random", "random_twice", "shuffle_twice", "resampled"}
"""Sources with a function before the first step."""
LOOSE = {"python", "python_tensors"}
