"""The constructors of ``Dataset`` that select elements from several datasets, and
``counter``. A mixin of the class in ``surface``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from numbers import Rational
from typing import Any

import numpy as np

from zmqdata import operations
from zmqdata.config.checks import check_text, integer, optional_seed, refuse, word_of
from zmqdata.dataset.arguments import MOST, call_site, flag, input_nodes, number, numbers
from zmqdata.dataset.arguments import dtype as checked_dtype
from zmqdata.dataset.parts import D, DatasetMethods
from zmqdata.dataset.refusals import check_alike, check_choices, check_weights
from zmqdata.nodes.base import Node, known_spec
from zmqdata.peeking import peek

_MOST_CHANGES = 100
"""Most changes of weights in a list: each makes the numbers of a schedule longer."""
_MOST_DIGITS = 1000
"""Most digits of a weight before or after its decimal point."""


class Choices(DatasetMethods[D]):
    """Constructors of datasets (``D``) from other datasets."""

    @classmethod
    def counter(cls, start: Any = 0, step: Any = 1, dtype: Any = np.int64) -> D:
        """Yield ``start``, ``start + step``, ``start + 2 * step`` and so on, without
        end.

        Args:
            start: the first number.
            step: difference of consecutive numbers; may be negative, or a fraction with
                a float dtype.
            dtype: the numpy dtype of the elements, an integer or float dtype.

        >>> from zmqdata.dataset import Dataset
        >>> [int(x) for x in Dataset.counter(start=10, step=-1).take(3)]
        [10, 9, 8]

        Equivalent of ``tf.data.Dataset.counter``. With the service, each worker counts
        on its own.
        """
        kind = checked_dtype("dtype of counter()", dtype, "iuf", "an integer or float dtype")
        allowed = (int, np.integer) if kind.kind in "iu" else (int, float, np.integer, np.floating)
        for name, value in (("start", start), ("step", step)):
            if isinstance(value, bool) or not isinstance(value, allowed):
                refuse(name, value, f"a number that fits dtype {kind}")
        first, by = np.asarray(start).item(), np.asarray(step).item()
        for name, value in (("start", first), ("step", by)):
            if kind.kind in "iu" and not -MOST - 1 <= value <= MOST:
                raise ValueError(
                    f"{name} of counter() is {value}, but counter() is limited to "
                    "integers of 64 bits"
                )
        return cls._wrap(
            operations.choices.Counter(start=first, step=by, dtype=kind.name, site=call_site())
        )

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
            datasets: the datasets to draw from; their elements have the same structure.
            weights: relative probability of each dataset: a number of at least 0 for
                each, or a dataset of such lists, with a list for each draw. None: all
                datasets are equally probable. A dataset of weight 0 is ignored.
            seed: fixes the draws.
            stop_on_empty_dataset: end when a drawn dataset has ended; otherwise
                continue with the others.
            rerandomize_each_iteration: True if each repetition has different draws;
                None: only without a seed.

        >>> from zmqdata.dataset import Dataset
        >>> datasets = [Dataset.range(3), Dataset.range(10, 13)]
        >>> sorted(int(x) for x in Dataset.sample_from_datasets(datasets, seed=1))
        [0, 1, 2, 10, 11, 12]

        Equivalent of ``tf.data.Dataset.sample_from_datasets``, with different draws.
        With the service, each worker draws on its own, and the datasets are split. With
        ``stop_on_empty_dataset``, each task then leaves out a rest (a warning says so).
        """
        inputs = _inputs("sample_from_datasets()", datasets)
        drawn, site = optional_seed(seed), call_site()
        varies = flag("rerandomize_each_iteration", rerandomize_each_iteration, drawn is None)
        choices: Node
        if isinstance(peek(weights, "node"), Node):
            check_weights(known_spec(weights.node), len(inputs))
            choices = operations.choices.WeightedChoices(
                inputs=(weights.node,), count=len(inputs), seed=drawn, rerandomize=varies, site=site
            )
        else:
            inputs, shares = _with_weights(inputs, weights)
            choices = operations.choices.RandomChoices(
                weights=shares, seed=drawn, rerandomize=varies, site=site
            )
        stops = flag("stop_on_empty_dataset", stop_on_empty_dataset)
        return cls._wrap(
            operations.choices.Choose(
                inputs=inputs,
                choices=choices,
                stop="first" if stops else "once",
                name="sample_from_datasets",
                site=site,
            )
        )

    @classmethod
    def mix(
        cls,
        datasets: Mapping[str, Any],
        weights: Any = None,
        *,
        seed: int | None = None,
        stop: str = "first",
        names: bool = False,
        reweight: bool = False,
    ) -> D:
        """Take each element from the dataset that is due, so that each has its share of
        the elements at any time.

        Args:
            datasets: the datasets by name; their elements have the same structure.
            weights: a number of at least 0 for each name: the shares, in any unit. A
                dataset of weight 0 is not read. None: all are equal. A list of up to
                100 pairs ``(number, weights)``, in ascending order from 0, changes the
                weights from that element of the mixture on.
            seed: decides which of several datasets comes first that are equally due.
            stop: ``"first"`` ends when a dataset that is due has ended. ``"all"`` ends
                when each was read once; those that have ended begin again. ``"once"``
                reads each element once; the others share the part of a dataset that
                has ended.
            names: True to yield pairs of the name of a dataset and its element.
            reweight: True to continue from a state that names other weights. The new
                ones begin at the element that was reached.

        Raises:
            ValueError: weights are negative or not finite, or all 0; names are missing
                or unknown; the numbers of a list do not ascend from 0.
            TypeError: elements are known to have different structures; an argument has
                the wrong type.
            InvalidArgumentError: a dataset has no elements.

        >>> from zmqdata.dataset import Dataset
        >>> datasets = {"web": Dataset.range(9), "code": Dataset.range(10, 13)}
        >>> mixed = Dataset.mix(datasets, {"web": 3, "code": 1}, seed=1)
        >>> [int(x) for x in mixed.take(8)]
        [0, 1, 10, 2, 3, 4, 11, 5]

        After any n elements, each dataset has yielded its share of n, up to one
        element, also across the changes of a list; up to two after a change that sets
        a weight to 0 or raises it from 0. ``stats()`` counts the elements of each as
        ``data/mix/<name>``.

        Not in tf.data, whose ``sample_from_datasets`` draws each element
        independently. With the service, each task has its own schedule. The page on
        mixing says what follows for small datasets.
        """
        known = _mixed_names(datasets)
        inputs = _inputs("mix()", [datasets[name] for name in known], known)
        shares = _changing_weights(known, weights)
        for name, node, rates in zip(
            known, inputs, zip(*[rates for _, rates in shares], strict=True), strict=True
        ):
            if node.cardinality == 0 and any(rates):
                raise ValueError(
                    f"the dataset `{name}` of mix() has no elements, so it cannot have its share. "
                    "Leave it out"
                )
        word_of(("first", "all", "once"))("stop", stop)
        drawn, site = optional_seed(seed), call_site()
        choices = operations.schedules.DueChoices(
            weights=shares,
            names=known,
            reweight=flag("reweight", reweight),
            seed=drawn,
            rerandomize=drawn is None,
            site=site,
        )
        return cls._wrap(
            operations.mixing.Mix(
                inputs=inputs,
                choices=choices,
                stop=stop,
                names=known,
                with_names=flag("names", names),
                site=site,
            )
        )

    @classmethod
    def choose_from_datasets(
        cls, datasets: Iterable[Any], choice_dataset: Any, stop_on_empty_dataset: bool = True
    ) -> D:
        """Take each element from the dataset whose number another dataset yields.

        Args:
            datasets: the datasets to choose from; their elements have the same
                structure.
            choice_dataset: yields integers from 0 to the number of datasets, exclusive.
            stop_on_empty_dataset: end when the chosen dataset has ended; otherwise skip
                that choice.

        >>> from zmqdata.dataset import Dataset
        >>> words = [Dataset.from_tensors(word).repeat() for word in ("foo", "bar")]
        >>> list(Dataset.choose_from_datasets(words, Dataset.range(2).repeat(2)))
        ['foo', 'bar', 'foo', 'bar']

        Equivalent of ``tf.data.Dataset.choose_from_datasets``. With the service, each
        task runs all choices, and the datasets are split. With
        ``stop_on_empty_dataset``, a task ends when one dataset has nothing more for
        it, and leaves out its rest of the others (a warning says so).
        """
        inputs = _inputs("choose_from_datasets()", datasets)
        if not isinstance(getattr(choice_dataset, "node", None), Node):
            refuse("Invalid `choice_dataset`. `choice_dataset`", choice_dataset, "a Dataset")
        choices = choice_dataset.node
        check_choices(known_spec(choices))
        stops = flag("stop_on_empty_dataset", stop_on_empty_dataset)
        site = call_site()
        return cls._wrap(
            operations.choices.Choose(
                inputs=inputs,
                choices=choices,
                stop="first" if stops else "once",
                name="choose_from_datasets",
                site=site,
            )
        )


def _inputs(name: str, datasets: Iterable[Any], names: Sequence[str] = ()) -> tuple[Node, ...]:
    inputs = input_nodes(name, datasets)
    if not inputs:
        raise ValueError(
            f"Invalid `datasets`. `datasets` should not be empty. {name} got no datasets, expected "
            "at least one"
        )
    check_alike(name, inputs, names)
    return inputs


def _with_weights(
    inputs: tuple[Node, ...], weights: Any
) -> tuple[tuple[Node, ...], tuple[float, ...]]:
    """Return the inputs with a positive weight and these weights. If no weight is
    positive, return the first input without its elements.
    """
    if weights is None:
        return inputs, (1.0,) * len(inputs)
    shares = numbers("weights", weights, f"one number for each of the {len(inputs)} datasets")
    if shares.shape != (len(inputs),):
        raise ValueError(
            f"weights must hold a number for each of the {len(inputs)} datasets, got {weights!r}. "
            "`weights` should have the same length as `datasets`"
        )
    if not (np.isfinite(shares).all() and (shares >= 0).all()):
        raise ValueError(f"weights must be finite numbers of at least 0, got {weights!r}")
    kept = [index for index, share in enumerate(shares.tolist()) if share > 0]
    if not kept:
        return (operations.limits.Take(inputs=inputs[:1], count=0),), (1.0,)
    return tuple(inputs[index] for index in kept), tuple(shares[kept].tolist())


def _mixed_names(datasets: Any) -> tuple[str, ...]:
    """Return the names of datasets in an order that does not depend on that of the
    dict.
    """
    if not isinstance(datasets, Mapping):
        refuse("what mix() takes", datasets, "a dict of datasets by name")
    for name in datasets:
        if not isinstance(name, str) or not name:
            refuse("a name of mix()", name, "a text of at least one character")
        check_text("a name of mix()", name)
    return tuple(sorted(datasets))


def _changing_weights(names: tuple[str, ...], weights: Any) -> operations.schedules.Weights:
    """Return the weights of a mixture as whole numbers, with the elements from which
    they hold.
    """
    if weights is None:
        weights = dict.fromkeys(names, 1)
    changes = [(0, weights)] if isinstance(weights, Mapping) else weights
    expected = "a dict of numbers by name, or a list of pairs (number of an element, such a dict)"
    if isinstance(changes, str) or not isinstance(changes, Sequence) or not changes:
        refuse("weights", weights, expected)
    if len(changes) > _MOST_CHANGES:
        raise ValueError(
            f"weights has {len(changes)} changes, and mix() takes at most {_MOST_CHANGES}. Change "
            "the weights in larger steps"
        )
    found: list[tuple[int, tuple[int, ...]]] = []
    starts: list[int] = []
    for change in changes:
        if not isinstance(change, (tuple, list)) or len(change) != 2:
            refuse("weights", weights, expected)
        start, shares = integer("the number of an element in weights", change[0]), change[1]
        if not isinstance(shares, Mapping):
            refuse("weights", weights, expected)
        if start < 0 or (starts[-1] >= start if starts else start > 0):
            raise ValueError(
                f"the numbers of elements in weights must ascend from 0, got {[*starts, start]}"
            )
        starts.append(start)
        wholes = _whole_weights(names, shares)
        if not found or wholes != found[-1][1]:
            found.append((start, wholes))
    return tuple(found)


def _whole_weights(names: tuple[str, ...], weights: Mapping[Any, Any]) -> tuple[int, ...]:
    """Return weights as whole numbers in the same ratios. A float stands for the
    decimal number that it is written as.
    """
    if set(weights) != set(names):
        missing = [name for name in names if name not in weights]
        unknown = [name for name in weights if name not in names]
        raise ValueError(
            f"weights must have a number for each dataset of mix(): missing are {missing}, and "
            f"unknown are {unknown}"
        )
    exact = [_exact(f"the weight of `{name}`", weights[name]) for name in names]
    if not any(exact):
        raise ValueError(f"one of the weights of mix() must be above 0, got {dict(weights)}")
    unit = math.lcm(*[value.denominator for value in exact])
    wholes = [int(value * unit) for value in exact]
    return tuple(whole // math.gcd(*wholes) for whole in wholes)


def _exact(name: str, value: Any) -> Fraction:
    """Return a number of at least 0 as a fraction; a float as the shortest decimal
    number that is read as this float of its width.
    """
    is_whole = isinstance(value, (Rational, np.integer)) and not isinstance(value, bool)
    if not is_whole and not isinstance(value, Decimal):
        number(name, value)
    elif (not is_whole and not (value.is_finite() and abs(value.adjusted()) < _MOST_DIGITS)) or (
        value < 0
    ):
        raise ValueError(f"{name} must be a finite number of at least 0, got {value}")
    return (
        Fraction(int(value.numerator), int(value.denominator)) if is_whole else Fraction(str(value))
    )
