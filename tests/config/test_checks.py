"""Tests of the checks of arguments: each returns a valid value, and refuses others."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from zmqdata.config.checks import (
    at_least,
    check_int,
    check_name,
    check_switch,
    check_timeout,
    check_type,
    check_wait,
    function,
    integer,
    optional_count,
    optional_name,
    optional_seed,
    optional_size,
    optional_timeout,
    plain_number,
    positive,
    word_of,
)
from zmqdata.config.worker import WorkerConfig
from zmqdata.errors import InvalidArgumentError


def test_whole_numbers_have_a_range() -> None:
    """An integer is returned, and rejected if it is out of range or no integer."""
    assert check_int("n", 3) == 3
    assert check_int("n", 0, least=0) == 0
    for value, error in (
        (True, TypeError),
        ("3", TypeError),
        (None, TypeError),
        (2.0, TypeError),
        (-1, ValueError),
    ):
        with pytest.raises(error, match="`n` must be"):
            check_int("n", value, least=0)


def test_types_are_checked() -> None:
    """A value of a wrong type is rejected with both types."""
    check_type("flag", True, bool)
    with pytest.raises(TypeError, match="`flag` must be bool, got 1 of type int"):
        check_type("flag", 1, bool)


def test_times_to_wait() -> None:
    """None, 0 and infinity are timeouts; texts, booleans, negatives and NaN are not."""
    for seconds in (None, 0, 0.5, float("inf")):
        check_wait("timeout", seconds)
    for seconds, error in (
        ("1", TypeError),
        (True, TypeError),
        (-1, ValueError),
        (float("nan"), ValueError),
    ):
        with pytest.raises(error, match="`timeout` must be a number of seconds"):
            check_wait("timeout", seconds)
    with pytest.raises(TypeError, match="`timeout` must be a number of seconds, got None"):
        check_wait("timeout", None, forever=False)
    with pytest.raises(ValueError, match="`timeout` must be a number of seconds from 0 to 9, got"):
        check_wait("timeout", float("inf"), most=9)


def test_a_text_can_be_written_as_utf8() -> None:
    """A lone surrogate is rejected, also in a list, as no message can carry it."""
    for given_ in ({"host": "\ud800"}, {"worker_tags": ("\ud800",)}):
        with pytest.raises(ValueError, match="UTF-8"):
            WorkerConfig("tcp://10.0.0.1:1", **given_)  # type: ignore[arg-type]


@pytest.mark.parametrize("seconds", ["x", None, True, 0, -1, -math.inf, math.nan, 10**400])
def test_what_is_no_time_to_wait(seconds: object) -> None:
    """A time-out is a number above zero, and neither NaN nor a boolean."""
    with pytest.raises(ValueError, match="`given` must be a positive number of seconds, got "):
        check_timeout("given", seconds)


@pytest.mark.parametrize("seconds", [1, 0.5, math.inf])
def test_what_is_a_time_to_wait(seconds: object) -> None:
    """A time-out may be an integer, a fraction or infinite."""
    check_timeout("given", seconds)


@pytest.mark.parametrize(
    ("check", "value"),
    [
        (optional_timeout, None),
        (optional_timeout, 2.5),
        (optional_name, None),
        (optional_name, "job"),
        (check_switch, False),
        (word_of(("on", "off")), "off"),
        (optional_count, None),
        (optional_count, 3),
        (plain_number, "three"),
    ],
)
def test_a_valid_value_is_returned(check: Callable[[str, Any], Any], value: object) -> None:
    """A check returns a valid value as it is."""
    assert check("given", value) is value


def test_numbers_of_numpy_are_plain_afterwards() -> None:
    """An integer of numpy becomes one of Python, and a boolean is no number."""
    for check in (optional_count, plain_number):
        assert type(check("given", np.int8(3))) is int
    assert plain_number("given", np.bool_(True)) is np.True_


@pytest.mark.parametrize(
    ("check", "value", "error", "text"),
    [
        (optional_timeout, 0, ValueError, "must be a positive number of seconds, got 0"),
        (optional_name, 5, ValueError, "must be a string, but `given` was of type <class 'int'>"),
        (optional_name, "", ValueError, "must not be empty"),
        (check_name, "x" * 1001, ValueError, "must have at most 1000 characters, got 1001"),
        (check_switch, 1, ValueError, "must be True or False, got 1"),
        (word_of(("on", "off")), "ON", ValueError, "must be 'on' or 'off', got 'ON'"),
        (word_of(("a", "b", "c")), ["a"], ValueError, "must be one of 'a', 'b', 'c', got"),
        (optional_count, 0, InvalidArgumentError, "must be a positive integer up to 2"),
        (optional_count, True, InvalidArgumentError, "must be a positive integer up to 2"),
        (optional_count, 2**53 + 1, InvalidArgumentError, "must be a positive integer up to 2"),
    ],
)
def test_a_wrong_value_is_named(
    check: Callable[[str, Any], Any], value: object, error: type[Exception], text: str
) -> None:
    """The error names the argument, the expected and the received value."""
    with pytest.raises(error, match=f"^`given` {text}"):
        check("given", value)


@pytest.mark.parametrize(
    ("check", "error", "text"),
    [
        (lambda: integer("size", 1.5), TypeError, "size must be an int, got 1.5 of type float"),
        (lambda: integer("size", "2"), TypeError, "size must be an int, got '2' of type str"),
        (lambda: integer("size", True), TypeError, "size must be an int, got True of type bool"),
        (lambda: integer("size", np.True_), TypeError, "size must be an int"),
        (lambda: integer("size", np.zeros(2, int)), TypeError, "size must be an int"),
        (lambda: at_least("size", 0, 1), ValueError, "size must be at least 1, got 0"),
        (lambda: at_least("size", None, 1), TypeError, "size must be an int, got None"),
        (lambda: optional_seed("x"), TypeError, "seed must be an int, got 'x'"),
        (
            lambda: function("predicate", 7),
            TypeError,
            "predicate must be callable, got 7 of type int",
        ),
        (
            lambda: function("predicate", np.zeros(10**4)),
            TypeError,
            r"got array\(\[0., 0.* of type ndarray",
        ),
        (lambda: function("predicate", ["long"] * 100), TypeError, r"^.{,170}\.\.\. of type list$"),
        (
            lambda: positive("The batch", "size", 0),
            ValueError,
            "The batch must be greater than zero, but got 0: size must be at least 1",
        ),
        (lambda: positive("The batch", "size", 9, 8), ValueError, "size must be at most 8, got 9"),
        (lambda: optional_size("size", -1), ValueError, "size must be at least 0, got -1"),
    ],
)
def test_refusals_say_what_came_and_what_was_expected(
    check: Callable[[], object], error: type[Exception], text: str
) -> None:
    """Each error names the argument, the refused value with its type, and the accepted
    values.
    """
    with pytest.raises(error, match=text):
        check()


@pytest.mark.parametrize("value", [0, 7, 2**70, np.int64(-3), np.uint8(200), np.array(5)], ids=repr)
def test_numpys_ints_are_ints(value: Any) -> None:
    """Sizes, counts and seeds may be numpy integers, and become Python ints."""
    for found in (integer("size", value), at_least("size", value, -3), optional_seed(value)):
        assert type(found) is int
        assert found == value


def test_a_size_may_be_the_least() -> None:
    """A size may equal its lower bound."""
    assert at_least("size", 1, 1) == 1
    assert at_least("count", -1, -1) == -1


def test_no_seed_is_a_seed_to_be_drawn() -> None:
    """None stays None, and 0 is a seed."""
    assert optional_seed(None) is None
    assert optional_seed(0) == 0


def test_anything_callable_is_a_function() -> None:
    """Classes and bound methods are accepted like functions, and stay unchanged."""
    for value in (len, int, "".join, lambda: 0):
        assert function("map_func", value) is value
