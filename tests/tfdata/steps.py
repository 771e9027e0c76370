"""Steps of a chain behind its source, and endings that no step can follow. The order or
the length of an ending rules out a later step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from tests.elements.attrs_classes import Marked
from tests.tfdata import files
from tests.tfdata.sides import Point, whole

# -------------------------------------------------------------------------- functions

MAPS: list[Any] = [
    lambda s: lambda *e: s.total(e),
    lambda s: lambda *e: s.map_leaves(lambda x, number: x * 3 + 1 if number else x, whole(e)),
    lambda s: lambda *e: s.map_leaves(lambda x, number: x // 2 if number else x, whole(e)),
    lambda s: lambda *e: (whole(e), s.total(e)),
    lambda s: lambda *e: {"x": whole(e), "n": s.total(e) % 5},
    lambda s: lambda *e: s.arange(s.total(e) % 5),
    lambda s: lambda *e: (s.total(e), s.arange(s.total(e) % 4)),
    lambda s: lambda *e: s.stack([s.total(e), s.total(e) % 3, s.total(e) % 7], np.float32),
    lambda s: lambda *e: {"m": s.zeros(2, s.total(e) % 3), "t": s.text(s.total(e))},
    lambda s: lambda *e: s.text(s.total(e) % 13),
    lambda s: lambda *e: {"l": [s.total(e), s.total(e) + 1]},
    lambda s: lambda *e: ((s.total(e), s.total(e) + 1), {"b": s.total(e) % 2 == 0}),
    lambda s: lambda *e: Point(s.total(e), whole(e)),
    lambda s: lambda *e: Marked(s.total(e), {"w": whole(e)}),
    lambda s: lambda *e: e,
    lambda s: lambda *e: (s.total(e),),
    lambda s: lambda *e: s.zeros(s.total(e) % 3, 2),
]
NESTED: list[Any] = [
    lambda s: lambda *e: s.Dataset.range(s.total(e) % 4),
    lambda s: lambda *e: s.Dataset.from_tensors(whole(e)).repeat(s.total(e) % 3),
    lambda s: lambda *e: s.Dataset.from_tensor_slices(s.arange(s.total(e) % 5)),
    lambda s: lambda *e: s.Dataset.range(5).skip(s.total(e) % 5).batch(2),
    lambda s: lambda *e: s.Dataset.range(s.total(e) % 3).enumerate(),
    lambda s: lambda *e: s.Dataset.from_tensors(whole(e)),
    lambda s: lambda *e: s.Dataset.zip(s.Dataset.range(2), s.Dataset.from_tensors(whole(e))),
    lambda s: lambda *e: s.Dataset.range(7).filter(lambda x: x % 3 == s.total(e) % 3),
]
GROUPS: list[Any] = [
    lambda s: lambda key, group: group,
    lambda s: lambda key, group: group.batch(2),
    lambda s: lambda key, group: group.take(1),
    lambda s: lambda key, group: s.Dataset.zip(s.Dataset.from_tensors(key), group),
    lambda s: lambda key, group: group.padded_batch(3),
    lambda s: lambda key, group: group.enumerate().repeat(2),
]

# ------------------------------------------------------------------------------- fits


def leaves_of(spec: Any) -> list[Any]:
    return tf.nest.flatten(spec)


def always(spec: Any) -> bool:
    return True


def has_rows(spec: Any) -> bool:
    return all(leaf.shape.rank for leaf in leaves_of(spec)) and bool(leaves_of(spec))


def has_ranks(spec: Any) -> bool:
    return all(leaf.shape.rank is not None for leaf in leaves_of(spec))


def is_unique_kind(spec: Any) -> bool:
    return isinstance(spec, tf.TensorSpec) and spec.dtype in (tf.int32, tf.int64, tf.string)


def is_array(spec: Any) -> bool:
    return isinstance(spec, tf.TensorSpec) and spec.shape.rank == 1


def is_no_single(spec: Any) -> bool:
    return not (isinstance(spec, tuple) and len(spec) == 1)


def is_dict(spec: Any) -> bool:
    return isinstance(spec, dict)


@dataclass(frozen=True)
class Step:
    """A step ``make(side, dataset, n, m)``.

    If ``learned`` is set, running a function determines its spec.
    """

    make: Any
    fits: Any = always
    learned: bool = False
    weight: int = 1


def windows(s: Any, ds: Any, n: int, m: int, size: int, shift: Any, stride: int, drop: bool) -> Any:
    windowed = ds.window(size, shift, stride, drop)
    if m % 3 == 0:
        return windowed.flat_map(
            lambda *w: s.Dataset.zip(whole(w)) if not _is_dataset(whole(w)) else whole(w)
        )
    return windowed.flat_map(
        lambda *w: (s.Dataset.zip(whole(w)) if not _is_dataset(whole(w)) else whole(w)).batch(
            m + 1, m % 2 == 0
        )
    )


def _is_dataset(value: Any) -> bool:
    return hasattr(value, "element_spec") and hasattr(value, "flat_map")


def add_up(s: Any) -> Any:
    return lambda state, x: (state + s.total(x), (state, x))


def keep_small(s: Any) -> Any:
    return lambda state, x: ({"n": (state["n"] + s.total(x)) % 5}, state["n"])


def deterministic(s: Any) -> Any:
    options = s.Options()
    options.deterministic = True
    return options


STEPS: dict[str, Step] = {
    "map": Step(lambda s, d, n, m: d.map(MAPS[(n * 8 + m) % len(MAPS)](s)), learned=True, weight=4),
    "map_parallel": Step(
        lambda s, d, n, m: d.map(MAPS[(n * 8 + m) % len(MAPS)](s), num_parallel_calls=n % 3 + 1),
        learned=True,
    ),
    "map_fails": Step(
        lambda s, d, n, m: d.map(lambda *e: s.fail_if(s.total(e) % 5 == m % 5, whole(e))),
        learned=True,
    ),
    "ignore_errors": Step(
        lambda s, d, n, m: d.map(
            lambda *e: s.fail_if(s.total(e) % 3 == m % 3, whole(e))
        ).ignore_errors(),
        learned=True,
    ),
    "filter": Step(
        lambda s, d, n, m: d.filter(lambda *e: s.total(e) % (n % 3 + 2) != m % 2), weight=2
    ),
    "batch": Step(
        lambda s, d, n, m: d.batch(n % 4 + 1, drop_remainder=m % 3 == 0), has_ranks, weight=3
    ),
    "padded_batch": Step(
        lambda s, d, n, m: d.padded_batch(n % 4 + 1, drop_remainder=m % 3 == 0), has_ranks, weight=2
    ),
    "padded_values": Step(
        lambda s, d, n, m: d.map(
            lambda *e: (s.arange(s.total(e) % 4), s.text(s.total(e)))
        ).padded_batch(
            n % 4 + 1,
            padded_shapes=([3 if m % 2 else None], []),
            padding_values=(np.int64(-1), "-"),
        ),
        learned=True,
    ),
    "padded_shapes": Step(
        lambda s, d, n, m: d.map(lambda *e: s.zeros(s.total(e) % 3, s.total(e) % 2)).padded_batch(
            n % 4 + 1, padded_shapes=[m % 4, None if n % 2 else -1], padding_values=np.int32(7)
        ),
        learned=True,
    ),
    "rebatch": Step(
        lambda s, d, n, m: d.rebatch(n % 4 + 1, drop_remainder=m % 3 == 0), has_rows, weight=3
    ),
    "rebatch_list": Step(
        lambda s, d, n, m: d.rebatch([n % 3 + 1, m % 3 + 1], drop_remainder=m % 2 == 0), has_rows
    ),
    "unbatch": Step(lambda s, d, n, m: d.unbatch(), has_rows, weight=4),
    "window": Step(
        lambda s, d, n, m: windows(
            s, d, n, m, n % 4 + 1, m % 3 + 1 if m else None, n % 2 + 1, m % 2 == 0
        ),
        has_ranks,
        learned=True,
        weight=3,
    ),
    "take": Step(lambda s, d, n, m: d.take(n - 1), weight=2),
    "skip": Step(lambda s, d, n, m: d.skip(n - 1 if m < 7 else -1), weight=2),
    "shard": Step(lambda s, d, n, m: d.shard(n % 4 + 1, m % (n % 4 + 1))),
    "repeat": Step(lambda s, d, n, m: d.repeat(n % 4), weight=2),
    "repeat_take": Step(lambda s, d, n, m: d.repeat(None if m % 2 else -1).take(n)),
    "enumerate": Step(lambda s, d, n, m: d.enumerate(m - 2)),
    "flat_map": Step(
        lambda s, d, n, m: d.flat_map(NESTED[m % len(NESTED)](s)), learned=True, weight=2
    ),
    "interleave": Step(
        lambda s, d, n, m: d.interleave(
            NESTED[m % len(NESTED)](s), cycle_length=n % 4 + 1, block_length=m % 3 + 1
        ),
        learned=True,
        weight=3,
    ),
    "interleave_parallel": Step(
        lambda s, d, n, m: d.interleave(
            NESTED[m % len(NESTED)](s),
            cycle_length=n % 4 + 1,
            block_length=n % 3 + 1,
            num_parallel_calls=m % 2 + 1,
        ),
        learned=True,
        weight=2,
    ),
    "shuffle_one": Step(lambda s, d, n, m: d.shuffle(1, seed=n)),
    "take_while": Step(lambda s, d, n, m: d.take_while(lambda *e: s.total(e) % 7 != m)),
    "unique": Step(lambda s, d, n, m: d.unique(), is_unique_kind, weight=3),
    "scan": Step(lambda s, d, n, m: d.scan(np.int64(n), add_up(s)), learned=True),
    "scan_dict": Step(lambda s, d, n, m: d.scan({"n": np.int64(n)}, keep_small(s)), learned=True),
    "prefetch": Step(lambda s, d, n, m: d.prefetch(n - 1)),
    "cache": Step(lambda s, d, n, m: d.cache()),
    "cache_repeat": Step(lambda s, d, n, m: d.cache().repeat(2)),
    "group_by_window": Step(
        lambda s, d, n, m: d.group_by_window(
            lambda *e: s.total(e) % (n % 3 + 1), GROUPS[m % len(GROUPS)](s), window_size=n % 4 + 1
        ),
        has_ranks,
        learned=True,
        weight=2,
    ),
    "group_by_window_func": Step(
        lambda s, d, n, m: d.group_by_window(
            lambda *e: s.total(e) % 3,
            GROUPS[m % len(GROUPS)](s),
            window_size_func=lambda key: key + n % 3 + 1,
        ),
        has_ranks,
        learned=True,
    ),
    "group_by_reducer": Step(
        lambda s, d, n, m: s.group_by_reducer(
            d,
            lambda *e: s.total(e) % (n + 1),
            s.reducer(
                lambda key: s.int64(key),
                lambda old, e: old * 2 + s.total(e),
                lambda state: (state, state % 3),
            ),
        ),
        learned=True,
    ),
    "bucket": Step(
        lambda s, d, n, m: d.bucket_by_sequence_length(
            s.length, [2, 4], [n % 3 + 1, m % 3 + 1, 2], drop_remainder=m % 4 == 0
        ),
        is_array,
        learned=True,
        weight=3,
    ),
    "bucket_mapped": Step(
        lambda s, d, n, m: d.map(
            lambda *e: s.arange(s.total(e) % (3 if n > 6 else 5))
        ).bucket_by_sequence_length(
            s.length,
            [1, 3],
            [n % 3 + 1, m % 3 + 1, 2],
            pad_to_bucket_boundary=n > 6,
            no_padding=m == 1,
        ),
        learned=True,
    ),
    "concatenate": Step(lambda s, d, n, m: d.concatenate(d.skip(n)), weight=2),
    "zip_right": Step(lambda s, d, n, m: s.Dataset.zip(d, s.Dataset.range(n + 2)), weight=2),
    "zip_dict": Step(
        lambda s, d, n, m: s.Dataset.zip({"d": d, "r": (s.Dataset.range(m, n + m), d.skip(1))})
    ),
    "choose": Step(
        lambda s, d, n, m: s.Dataset.choose_from_datasets(
            [d, d.skip(1), d.take(n)],
            s.Dataset.range(3).repeat(m % 4),
            stop_on_empty_dataset=n % 2 == 0,
        )
    ),
    "sample_one": Step(
        lambda s, d, n, m: s.Dataset.sample_from_datasets(
            [d, d.take(n)], weights=[1.0, 0.0], seed=m, stop_on_empty_dataset=n % 2 == 0
        )
    ),
    "assert_cardinality": Step(lambda s, d, n, m: s.assert_cardinality(d, n)),
    "pad_to_cardinality": Step(lambda s, d, n, m: s.pad_to_cardinality(d, n), is_dict, weight=2),
    "save_load": Step(lambda s, d, n, m: files.saved(s, d), learned=True),
    "snapshot": Step(lambda s, d, n, m: d.snapshot(files.fresh()).repeat(m % 3 + 1)),
    "cache_file": Step(lambda s, d, n, m: d.cache(files.fresh()).repeat(m % 3 + 1)),
    "resample_none": Step(
        lambda s, d, n, m: d.rejection_resample(
            lambda *e: s.int32(s.total(e) % 2), [0.25, 0.75], [0.25, 0.75], seed=n
        ),
        is_no_single,
        learned=True,
    ),
    "resample_one": Step(
        lambda s, d, n, m: d.rejection_resample(
            lambda *e: s.int32(s.total(e) % 2), [m % 2, 1 - m % 2], [0.5, 0.5], seed=n
        ),
        is_no_single,
        learned=True,
    ),
    "with_options": Step(lambda s, d, n, m: d.with_options(deterministic(s))),
    "choose_rest": Step(
        lambda s, d, n, m: s.Dataset.choose_from_datasets(
            [d.take(n), d],
            s.Dataset.from_tensor_slices(np.arange(m) % 2),
            stop_on_empty_dataset=n % 2 == 0,
        )
    ),
    "sample_none": Step(
        lambda s, d, n, m: s.Dataset.sample_from_datasets(
            [d, d.take(n), d.skip(1)], weights=[0.0, float(m % 2), float(1 - m % 2)], seed=m
        )
    ),
    "prefetch_map": Step(
        lambda s, d, n, m: d.prefetch(n).map(lambda *e: whole(e)).prefetch(-1), learned=True
    ),
    "flat_batches": Step(
        lambda s, d, n, m: d.batch(n % 3 + 1).flat_map(s.slices), has_ranks, learned=True
    ),
    "reduce_inside": Step(
        lambda s, d, n, m: d.flat_map(
            lambda *e: s.Dataset.from_tensors(
                s.Dataset.range(s.total(e) % 5).reduce(s.int64(n), lambda state, x: state + x)
            )
        ),
        learned=True,
    ),
    "options": Step(
        lambda s, d, n, m: d.apply(lambda inner: inner.take(n).map(lambda *e: whole(e))),
        learned=True,
    ),
}
NAMES = sorted(STEPS)
WEIGHTED = [name for name in NAMES for _ in range(STEPS[name].weight)]
ENDINGS: dict[str, Step] = {
    "none": Step(lambda s, d, n, m: d, weight=6),
    "repeat_forever": Step(lambda s, d, n, m: d.repeat()),
    "ragged_batch": Step(
        lambda s, d, n, m: d.ragged_batch(n % 3 + 1, drop_remainder=m % 3 == 0), has_ranks, True
    ),
    "ragged_unbatch": Step(lambda s, d, n, m: d.ragged_batch(n % 3 + 1).unbatch(), has_ranks, True),
    "ragged_padded": Step(
        lambda s, d, n, m: d.ragged_batch(n % 3 + 1).map(lambda e: s.padded(e)),
        is_array,
        learned=True,
        weight=2,
    ),
    "ragged_more": Step(
        lambda s, d, n, m: (
            d.ragged_batch(n % 3 + 1, row_splits_dtype=s.dtype(np.int32))
            .skip(m % 2)
            .repeat(2)
            .enumerate()
        ),
        has_ranks,
    ),
    "ragged_batch_batch": Step(
        lambda s, d, n, m: d.ragged_batch(n % 3 + 1).batch(m % 3 + 1), has_ranks
    ),
    "ragged_arrays": Step(
        lambda s, d, n, m: d.map(
            lambda *e: (s.arange(s.total(e) % 4), s.text(s.total(e)))
        ).ragged_batch(n % 3 + 1),
        learned=True,
    ),
    "shuffle": Step(lambda s, d, n, m: d.shuffle(n + 1)),
    "shuffle_repeat": Step(
        lambda s, d, n, m: d.shuffle(n + 1, reshuffle_each_iteration=m % 2 == 0).repeat(m % 3 + 1)
    ),
    "shuffle_map": Step(lambda s, d, n, m: d.shuffle(n + 1).map(MAPS[m](s)), learned=True),
    "sample": Step(lambda s, d, n, m: s.Dataset.sample_from_datasets([d, d.skip(1)], seed=n)),
}
ENDING_NAMES = [name for name, step in ENDINGS.items() for _ in range(step.weight)]
