"""Test what is refused, and found, before a dataset is registered."""

from __future__ import annotations

import numpy as np
import pytest

from zmqdata import Dataset, distribute, register_dataset
from zmqdata.errors import WrongTypeError


def test_elements_with_windows_are_refused_before_they_are_sent() -> None:
    """A dataset whose elements are known to be datasets is refused at the call, and a
    dataset whose function makes arrays of windows is not.
    """
    windows = Dataset.range(10).window(2)
    read = distribute("parallel_epochs", "localhost:1")
    for use in (lambda: windows.apply(read), lambda: windows.enumerate().apply(read)):
        with pytest.raises(WrongTypeError, match="a dataset in an element cannot be sent"):
            use()
    windows.flat_map(lambda window: window.batch(2)).apply(read)


def test_a_wrong_result_is_refused_before_registering() -> None:
    """``register_dataset`` runs the first element for its spec, and refuses what a
    function returned wrongly, without a dispatcher.
    """
    wrong = Dataset.range(3).flat_map(lambda x: x)
    with pytest.raises(WrongTypeError, match="must return a `Dataset` object"):
        register_dataset("localhost:1", wrong)


def test_an_iterator_that_a_function_holds_is_named(recwarn: pytest.WarningsRecorder) -> None:
    """The warning says what each task gets and what to use instead, and an iterator
    that cannot be sent is an error alone.
    """
    numbers, generator = iter([1, 2]), (x for x in range(3))
    Dataset.range(3).map(lambda x: next(numbers)).apply(
        distribute("parallel_epochs", "localhost:1")
    )
    (warned,) = recwarn
    for part in ("`numbers`", "list_iterator", "Each task gets a copy", "enumerate()"):
        assert part in str(warned.message)
    recwarn.clear()
    with pytest.raises(TypeError, match="generator"):
        Dataset.range(3).map(lambda x: next(generator)).apply(
            distribute("parallel_epochs", "localhost:1")
        )
    assert not recwarn.list


def test_a_warning_of_many_generators_is_one(recwarn: pytest.WarningsRecorder) -> None:
    """A single warning names the generators of a pipeline, once a program."""
    held = [np.random.default_rng(number) for number in range(12)]
    dataset = Dataset.range(3).map(lambda x: held[int(x)].random())
    for _ in range(3):
        dataset.apply(distribute("parallel_epochs", "localhost:1"))
    (warned,) = recwarn
    for part in ("`held[0]`, a numpy.random", "`held[4]`", "and 7 more", "Use random_map"):
        assert part in str(warned.message)
