"""Tests of settings: checks, texts and environment from a single declaration."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zmqdata.config.settings import (
    as_written,
    check_settings,
    checked,
    default_of,
    described,
    flag_of,
    from_environment,
    milliseconds,
    opposite,
    read_text,
    setting,
    takes,
    variable_of,
    variables,
)


@described
@dataclass(frozen=True)
class Sample:
    """Settings of every type.

    Args:
        {settings}
    """

    count: int = setting(1, "how many", least=0, most=10)
    share: float = setting(0.5, "how much")
    eager: bool = setting(True, "whether at once")
    name: str = setting("x", "what it is called", flag="--called")
    place: str | None = setting(None, "where it is", variable="ZMQDATA_WHERE")
    mood: str = setting("MERRY", "how it feels", choices=("MERRY", "GRIM"))
    pause: int = milliseconds(5, "how long to wait", least=-1)
    words: tuple[str, ...] = setting((), "some words")
    ports: tuple[int, int] | None = setting(None, "some ports")

    def __post_init__(self) -> None:
        check_settings(self)


NAMED = {one.name: one for one in fields(Sample)}


@given(
    st.builds(
        Sample,
        count=st.integers(0, 10),
        share=st.floats(0.1, 2e6),
        eager=st.booleans(),
        name=st.text(min_size=1),
        place=st.text(min_size=1),
        words=st.lists(st.text("ab -%", min_size=1).map(str.strip).filter(bool), min_size=1).map(
            tuple
        ),
        ports=st.tuples(st.integers(1, 9), st.integers(9, 65535)),
    )
)
def test_what_is_shown_is_read_as_it_was(sample: Sample) -> None:
    """Every value is read back unchanged from its text form."""
    for name, one in NAMED.items():
        value = getattr(sample, name)
        assert checked(one, read_text(one, as_written(value))) == value


def test_names_follow_from_the_field_unless_declared() -> None:
    """Option and environment variable have the field's name unless declared."""
    assert [flag_of(NAMED["count"]), flag_of(NAMED["name"])] == ["--count", "--called"]
    assert [variable_of(NAMED["count"]), variable_of(NAMED["place"])] == [
        "ZMQDATA_COUNT",
        "ZMQDATA_WHERE",
    ]
    assert {"ZMQDATA_COUNT", "ZMQDATA_WHERE"} <= variables(Sample)
    assert opposite("--eager") == "--no-eager"


def test_the_docstring_lists_the_settings() -> None:
    """The docstring of a configuration has a line for each of its settings."""
    assert "Args:\n    count: how many.\n    share: how much.\n" in (Sample.__doc__ or "")


def test_defaults_are_words() -> None:
    """A default is shown in its text form, and a missing default as none."""
    defaults = [default_of(one) for one in fields(Sample)]
    assert defaults == ["1", "0.5", "true", "x", "none", "MERRY", "5", "none", "none"]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("count", "one", "a whole number, got 'one'"),
        ("count", "1.0", "a whole number"),
        ("count", "1__", None),
        ("share", "half", "a number, got 'half'"),
        ("eager", "perhaps", "1, 0, true or false, got 'perhaps'"),
        ("ports", "9-1", "a range of ports such as 7000-7100"),
        ("ports", "0", "a range of ports"),
        ("ports", "1-65536", "a range of ports"),
        ("ports", "1-2-3", "a range of ports"),
    ],
)
def test_a_text_that_means_nothing_is_refused(name: str, text: str, expected: str | None) -> None:
    """A text without a valid value is rejected with the expected form."""
    if expected is None:
        assert read_text(NAMED[name], text) == 1
        return
    with pytest.raises(ValueError, match=f"expected {expected}"):
        read_text(NAMED[name], text)


@pytest.mark.parametrize("text", ["1", "true", "TRUE", "yes", "on", " True "])
def test_truth_has_several_words(text: str) -> None:
    """1, true, yes and on are true in any case; 0, false, no and off are false."""
    assert read_text(NAMED["eager"], text) is True
    assert (
        read_text(NAMED["eager"], {"1": "0", "yes": "no", "on": "off"}.get(text, "false")) is False
    )


def test_a_single_port_is_a_range() -> None:
    """A single port is a range that begins and ends with it."""
    assert read_text(NAMED["ports"], " 7000 ") == (7000, 7000)


@pytest.mark.parametrize(
    ("given_", "error", "text"),
    [
        ({"share": "1"}, TypeError, "`share` must be a number, got '1' of type str"),
        ({"share": True}, TypeError, "`share` must be a number"),
        ({"share": 0}, ValueError, "`share` must be a positive number of seconds, got 0"),
        (
            {"share": float("nan")},
            ValueError,
            "`share` must be a positive number of seconds, got nan",
        ),
        (
            {"share": float("inf")},
            ValueError,
            "`share` must be a positive number of seconds, at most 2147483, got inf",
        ),
        ({"share": 10**400}, ValueError, "`share` must be .* at most 2147483, got 1000"),
        ({"eager": 1}, TypeError, "`eager` must be bool, got 1 of type int"),
        ({"mood": "SAD"}, ValueError, "`mood` must be one of 'MERRY', 'GRIM', got 'SAD'"),
        ({"pause": -2}, ValueError, r"`pause` must be at least -1 \(-1 means never\), got -2"),
        ({"pause": 2**31}, ValueError, r"`pause` must be at most 2147483647 \(-1 means never\)"),
        (
            {"words": "x"},
            TypeError,
            r"`words` must be a list of strings, got 'x'; for a single string write \['x'\]",
        ),
        ({"words": [1]}, TypeError, "`words entry` must be str, got 1"),
        ({"ports": 7}, TypeError, r"`ports` must be a pair \(first, last\), got 7"),
        ({"ports": (0, 7)}, ValueError, r"`ports` must be between 1 and 65535, got 0"),
        (
            {"ports": (7, 6)},
            ValueError,
            r"`ports` must be \(first, last\) with first <= last, got \(7, 6\)",
        ),
        ({"name": ""}, ValueError, "`name` must not be empty; leave it out, or set it to a word"),
    ],
)
def test_a_value_that_cannot_work_is_refused(
    given_: dict[str, Any], error: type[Exception], text: str
) -> None:
    """A value of a wrong type, an empty or an out-of-range value raises at the call."""
    with pytest.raises(error, match=text):
        Sample(**given_)


def test_a_path_is_a_text() -> None:
    """A path object is equivalent to its text."""
    assert Sample(place=Path("a/b")).place == "a/b"  # type: ignore[arg-type]


def test_an_error_without_the_environment_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error about an explicit argument is independent of the environment."""
    monkeypatch.setenv("ZMQDATA_NAME", "y")
    with pytest.raises(ValueError, match=r"`count` must be at most 10, got 11$"):
        from_environment(Sample, {"count": 11})
    assert from_environment(Sample, {"count": 5}) == Sample(count=5, name="y")


@pytest.mark.parametrize(
    ("variable", "text", "expected"),
    [
        ("ZMQDATA_COUNT", "one", "ZMQDATA_COUNT=one is wrong: expected a whole number"),
        ("ZMQDATA_MOOD", "SAD", "ZMQDATA_MOOD=SAD is wrong: `mood` must be one of"),
        ("ZMQDATA_PORT", "tcp://10.0.0.1:1", "Kubernetes sets this variable"),
    ],
)
def test_a_wrong_variable_is_named(
    monkeypatch: pytest.MonkeyPatch, variable: str, text: str, expected: str
) -> None:
    """An invalid variable raises with its name, its text and the expected form."""

    @dataclass(frozen=True)
    class Larger(Sample):
        port: int = setting(0, "where to listen")

    monkeypatch.setenv(variable, text)
    with pytest.raises(ValueError, match=re.escape(expected)):
        from_environment(Larger, {})


def test_what_contradicts_the_environment_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error about a setting from the environment names its variable."""

    @dataclass(frozen=True)
    class Strict(Sample):
        def __post_init__(self) -> None:
            raise ValueError("`count` does not go with `name`")

    monkeypatch.setenv("ZMQDATA_COUNT", "3")
    with pytest.raises(ValueError, match=r"go with `name` \(the environment has ZMQDATA_COUNT=3\)"):
        from_environment(Strict, {"name": "y"})


def test_a_choice_is_taken_in_any_case() -> None:
    """A choice given in any case is stored as declared."""
    assert Sample(mood="grim").mood == "GRIM"


@dataclass(frozen=True)
class Size:
    """Arguments of a function.

    Args:
        width: number of columns.
        height: number of rows.
    """

    width: int
    height: int = 2


@takes(Size)
def area(size: Size) -> int:
    """Return the area.

    Args:
        See ``Size``.

    Returns:
        Number of cells.
    """
    return size.width * size.height


def test_a_function_takes_the_fields_of_a_dataclass() -> None:
    """The fields are arguments by place and by name, in the signature and in the
    help.
    """
    assert (area(3), area(3, 4), area(height=5, width=1)) == (6, 12, 5)
    assert str(inspect.signature(area)) == "(width: 'int', height: 'int' = 2) -> 'int'"
    assert inspect.getdoc(area) == (
        "Return the area.\n\nArgs:\n    width: number of columns.\n    height: number of rows.\n\n"
        "Returns:\n    Number of cells."
    )
    assert (area.__name__, area.__module__) == ("area", __name__)
    assert area.__annotations__ == {"width": "int", "height": "int", "return": "int"}


@pytest.mark.parametrize(
    ("given", "named", "text"),
    [
        ((), {}, r"area\(\): missing a required argument: 'width'"),
        ((1, 2, 3), {}, r"area\(\): too many positional arguments"),
        ((1,), {"width": 1}, r"area\(\): multiple values for argument 'width'"),
        ((1,), {"hight": 1}, r"area\(\) has no argument 'hight'. Did you mean 'height'\?"),
    ],
)
def test_a_call_that_does_not_fit_names_the_function(
    given: tuple[int, ...], named: dict[str, int], text: str
) -> None:
    """The error of a wrong call names the function and the argument."""
    call: Any = area
    with pytest.raises(TypeError, match=text):
        call(*given, **named)
