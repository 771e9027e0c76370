"""The constructors of ``Dataset`` that take from several datasets by choice, and
counter. A part of ``surface``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from zmqdata import nodes
from zmqdata.dataset import arguments
from zmqdata.dataset.arguments import (
    call_site,
    check_alike,
    flag,
    input_node,
    input_nodes,
    numbers,
    optional_seed,
    refuse,
)
from zmqdata.dataset.parts import D, DatasetMethods
from zmqdata.iterators import known_spec


class Choices(DatasetMethods[D]):
    """Makes datasets (``D``) out of other datasets."""

    @classmethod
    def counter(cls, start: Any = 0, step: Any = 1, dtype: Any = np.int64) -> D:
        """``start``, ``start + step``, ``start + 2 * step`` and so on, without end.

        Args:
            start: the first number.
            step: from one to the next; may be negative, or a fraction with a float
                dtype.
            dtype: the numpy dtype of the elements, of integers or floats.

        >>> from zmqdata.dataset import Dataset
        >>> [int(x) for x in Dataset.counter(start=10, step=-1).take(3)]
        [10, 9, 8]

        As ``tf.data.Dataset.counter``. In the service each worker counts for itself.
        """
        kind = arguments.dtype("dtype of counter()", dtype, "iuf", "an integer or float dtype")
        allowed = (int, np.integer) if kind.kind in "iu" else (int, float, np.integer, np.floating)
        for name, value in (("start", start), ("step", step)):
            if isinstance(value, bool) or not isinstance(value, allowed):
                refuse(name, value, f"a number that fits dtype {kind}")
        first, by = np.asarray(start).item(), np.asarray(step).item()
        for name, value in (("start", first), ("step", by)):
            if kind.kind in "iu" and not -arguments.MOST - 1 <= value <= arguments.MOST:
                raise ValueError(
                    f"{name} of counter() is {value}, and integers of 64 bits are counted"
                )
        return cls._wrap(nodes.Counter(start=first, step=by, dtype=kind.name, site=call_site()))

    @classmethod
    def sample_from_datasets(
        cls,
        datasets: Iterable[Any],
        weights: Any = None,
        seed: int | None = None,
        stop_on_empty_dataset: bool = False,
        rerandomize_each_iteration: bool | None = None,
    ) -> D:
        """Take each element from a dataset drawn at random.

        Args:
            datasets: what to take from; their elements have one structure.
            weights: how likely each one is drawn, one number of at least 0 for each, or
                a dataset of such lists, one for each draw; None: all alike. A dataset
                of weight 0 is left out.
            seed: fixes the draws.
            stop_on_empty_dataset: end when a drawn dataset has ended; else go on with
                the others.
            rerandomize_each_iteration: whether each repetition draws anew; None: only
                without a seed.

        >>> from zmqdata.dataset import Dataset
        >>> ds = Dataset.sample_from_datasets([Dataset.range(3), Dataset.range(10, 13)], seed=1)
        >>> sorted(int(x) for x in ds)
        [0, 1, 2, 10, 11, 12]

        As ``tf.data.Dataset.sample_from_datasets``; the draws themselves are ours. In
        the service each worker draws for itself, and the datasets are split.
        """
        inputs = _inputs("sample_from_datasets()", datasets)
        drawn, site = optional_seed(seed), call_site()
        anew = rerandomize_each_iteration
        varies = drawn is None if anew is None else flag("rerandomize_each_iteration", anew)
        choices: nodes.Node
        if isinstance(getattr(weights, "node", None), nodes.Node):
            choices = nodes.WeightedChoices(
                inputs=(weights.node,), count=len(inputs), seed=drawn, rerandomize=varies, site=site
            )
        else:
            inputs, shares = _with_weights(inputs, weights)
            choices = nodes.RandomChoices(weights=shares, seed=drawn, rerandomize=varies, site=site)
        stops = flag("stop_on_empty_dataset", stop_on_empty_dataset)
        return cls._wrap(
            nodes.Choose(
                inputs=inputs,
                choices=choices,
                stop_on_empty=stops,
                name="sample_from_datasets",
                site=site,
            )
        )

    @classmethod
    def choose_from_datasets(
        cls, datasets: Iterable[Any], choice_dataset: Any, stop_on_empty_dataset: bool = True
    ) -> D:
        """Take each element from the dataset whose number another dataset yields.

        Args:
            datasets: what to take from; their elements have one structure.
            choice_dataset: integers from 0 to below the number of datasets.
            stop_on_empty_dataset: end when the chosen dataset has ended; else pass over
                that choice.

        >>> from zmqdata.dataset import Dataset
        >>> words = [Dataset.from_tensors(word).repeat() for word in ("foo", "bar")]
        >>> list(Dataset.choose_from_datasets(words, Dataset.range(2).repeat(2)))
        ['foo', 'bar', 'foo', 'bar']

        As ``tf.data.Dataset.choose_from_datasets``. In the service each worker runs all
        choices, and the datasets are split.
        """
        inputs = _inputs("choose_from_datasets()", datasets)
        choices = input_node("choose_from_datasets()", choice_dataset)
        spec = known_spec(choices)
        if spec is not None and (getattr(spec, "shape", None) != () or spec.dtype.kind not in "iu"):
            raise TypeError(f"choice_dataset must yield integers, its elements are {spec}")
        stops = flag("stop_on_empty_dataset", stop_on_empty_dataset)
        site = call_site()
        return cls._wrap(
            nodes.Choose(
                inputs=inputs,
                choices=choices,
                stop_on_empty=stops,
                name="choose_from_datasets",
                site=site,
            )
        )


def _inputs(name: str, datasets: Iterable[Any]) -> tuple[nodes.Node, ...]:
    inputs = input_nodes(name, datasets)
    if not inputs:
        raise ValueError(f"{name} got no datasets, expected at least one")
    specs = [spec for spec in map(known_spec, inputs) if spec is not None]
    for spec in specs[1:]:
        check_alike(name, specs[0], spec)
    return inputs


def _with_weights(
    inputs: tuple[nodes.Node, ...], weights: Any
) -> tuple[tuple[nodes.Node, ...], tuple[float, ...]]:
    """The inputs that can be drawn, with their weights; of none, the first without its
    elements.
    """
    if weights is None:
        return inputs, (1.0,) * len(inputs)
    shares = numbers("weights", weights, f"one number for each of the {len(inputs)} datasets")
    if shares.shape != (len(inputs),):
        raise ValueError(
            f"weights must be one for each of the {len(inputs)} datasets, got {weights!r}"
        )
    if not (np.isfinite(shares).all() and (shares >= 0).all()):
        raise ValueError(f"weights must be finite numbers of at least 0, got {weights!r}")
    kept = [index for index, share in enumerate(shares.tolist()) if share > 0]
    if not kept:
        return (nodes.Take(inputs=inputs[:1], count=0),), (1.0,)
    return tuple(inputs[index] for index in kept), tuple(shares[kept].tolist())
