"""Tests of ``zmqdata.nodes.options``."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import pytest

from zmqdata.nodes.options import AutoShardPolicy, ExternalStatePolicy, Options, options_of
from zmqdata.operations.combinations import Zip
from zmqdata.operations.selections import WithOptions
from zmqdata.operations.sources import Range


def setting(**values: Any) -> Options:
    return Options(values.items())


def test_options_are_attributes() -> None:
    """A set option can be read, in groups and without. None means not set, and unsets
    an option.
    """
    options = Options()
    options.deterministic = False
    options.autotune.ram_budget = 2**30
    options.threading.private_threadpool_size = 0
    options.dataset_name = "train"
    options.experimental_external_state_policy = ExternalStatePolicy.FAIL
    options.experimental_distribute.auto_shard_policy = AutoShardPolicy.DATA
    assert (options.deterministic, options.autotune.ram_budget, options.autotune.enabled) == (
        False,
        2**30,
        None,
    )
    assert options.experimental_distribute.auto_shard_policy is AutoShardPolicy.DATA
    assert dict(options.settings)["threading.private_threadpool_size"] == 0
    options.deterministic = None
    assert options.deterministic is None
    assert "deterministic" not in dict(options.settings)


def test_former_names_of_tf_data_are_taken() -> None:
    """Options may be set by the names that tf.data had for them before."""
    options = Options()
    options.experimental_deterministic = False
    options.experimental_threading.private_threadpool_size = 3
    assert options == Options([("deterministic", False), ("threading.private_threadpool_size", 3)])
    assert options.experimental_deterministic is False
    assert options.experimental_threading == options.threading


@pytest.mark.parametrize(
    "name",
    [
        "nonsense",
        "experimental_slack",
        "autotune",
        "experimental_optimization",
        "ram_budget",
        "threading",
    ],
)
def test_unknown_options_are_errors(name: str) -> None:
    """An option without an effect, or a whole group, cannot be set, and the error lists
    the valid options.
    """
    with pytest.raises(AttributeError, match=rf"no option {name}\. .*autotune\.enabled"):
        setattr(Options(), name, True)


def test_unknown_options_cannot_be_read() -> None:
    """Reading an unknown option is an error, also in groups."""
    with pytest.raises(AttributeError, match=r"no option autotune\.nonsense"):
        _ = Options().autotune.nonsense
    with pytest.raises(AttributeError):
        _ = Options().experimental_optimization


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("deterministic", 1, "a bool or None, got 1 of type int"),
        ("dataset_name", 7, "a str"),
        ("experimental_external_state_policy", "FAIL", "an ExternalStatePolicy"),
    ],
)
def test_values_are_checked(name: str, value: Any, text: str) -> None:
    """The error names a value of the wrong type and the expected type."""
    with pytest.raises(TypeError, match=text):
        setattr(Options(), name, value)


@pytest.mark.parametrize("value", [-1, True, 1.0, "1"])
def test_budgets_are_counts(value: Any) -> None:
    """Bytes and threads are ints of at least 0."""
    for group, name in [
        ("autotune", "ram_budget"),
        ("autotune", "cpu_budget"),
        ("threading", "private_threadpool_size"),
    ]:
        with pytest.raises(TypeError, match="an int of at least 0"):
            setattr(getattr(Options(), group), name, value)
    with pytest.raises(TypeError, match="an AutoShardPolicy"):
        Options().experimental_distribute.auto_shard_policy = value


def test_later_options_win_with_a_warning() -> None:
    """A conflict is a warning that names both values. Equal and new values give no
    warning.
    """
    with pytest.warns(UserWarning, match="option deterministic from True to False"):
        merged = setting(deterministic=True, dataset_name="a").merge(setting(deterministic=False))
    assert merged == setting(deterministic=False, dataset_name="a")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        setting(deterministic=True).merge(setting(deterministic=True, dataset_name="a"))


def test_options_are_values() -> None:
    """Options compare, hash, copy and pickle by the options that are set."""
    options = Options([("autotune.enabled", True)])
    for other in (pickle.loads(pickle.dumps(options)), copy.deepcopy(options), copy.copy(options)):
        assert other == options
        assert hash(other) == hash(options)
    assert options != Options()
    assert options != 7
    assert repr(options) == "Options(autotune.enabled=True)"
    assert options.autotune == Options([*options.settings, ("deterministic", True)]).autotune
    assert options.autotune != Options().autotune
    assert Options().autotune != Options().threading
    assert hash(Options().autotune) == hash(Options().autotune)
    copied = copy.copy(options)
    copied.autotune.enabled = False
    assert options.autotune.enabled is True


def test_a_pipeline_has_the_options_of_all_its_parts() -> None:
    """Inputs precede their outputs, left to right, and each part counts once. No
    warning is repeated.
    """
    source = Range(start=0, stop=3)

    def with_options(node: Any, **values: Any) -> WithOptions:
        return WithOptions(inputs=(node,), settings=setting(**values).settings)

    left = with_options(source, deterministic=True, dataset_name="left")
    right = with_options(source, dataset_name="right")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert options_of(source) == Options()
        both = Zip(inputs=(left, right), template=(0, 1))
        assert options_of(both) == setting(deterministic=True, dataset_name="right")
        assert options_of(with_options(both, deterministic=False)).deterministic is False
        assert options_of(Zip(inputs=(left, left), template=(0, 1))).dataset_name == "left"
    assert left.label == "with_options(dataset_name='left', deterministic=True)"
    assert left.cardinality == 3
