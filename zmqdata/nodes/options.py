"""``Options`` of a pipeline, and the node that sets them. Each option states which
operations follow it.
"""

from __future__ import annotations

import enum
import warnings
from collections.abc import Callable, Iterable
from typing import Any

from zmqdata.config.settings import warn_user
from zmqdata.nodes.base import Node

Settings = tuple[tuple[str, Any], ...]
"""Options that are set: pairs of a dotted name and a value, sorted."""


class ExternalStatePolicy(enum.Enum):
    """Policy for a random generator that a function holds, when the pipeline is sent to
    the service: a warning, nothing, or an error. As in tf.data, for all of its state.
    """

    WARN = 0
    IGNORE = 1
    FAIL = 2


class AutoShardPolicy(enum.IntEnum):
    """Policy for dividing a pipeline among the machines of a training. As in
    tf.data.
    """

    OFF = -1
    AUTO = 0
    FILE = 1
    DATA = 2
    HINT = 3


def _is_a(kind: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kind)


def _a_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


_COUNT = ("an int of at least 0", _a_count)
_BOOL = ("a bool", _is_a(bool))
_KNOWN: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "autotune.cpu_budget": _COUNT,
    "autotune.enabled": _BOOL,
    "autotune.ram_budget": _COUNT,
    "dataset_name": ("a str", _is_a(str)),
    "deterministic": _BOOL,
    "experimental_distribute.auto_shard_policy": ("an AutoShardPolicy", _is_a(AutoShardPolicy)),
    "experimental_external_state_policy": ("an ExternalStatePolicy", _is_a(ExternalStatePolicy)),
    "threading.private_threadpool_size": _COUNT,
}
_GROUPS = frozenset(name.partition(".")[0] for name in _KNOWN if "." in name)
_FORMER = {"experimental_deterministic": "deterministic", "experimental_threading": "threading"}
"""Names that tf.data had before, and still takes, with their names of today."""


class OptionGroup:
    """Options with a common prefix, such as ``options.autotune``: read and set as
    attributes; None means not set.
    """

    def __init__(
        self, settings: dict[str, Any], prefix: str = "", is_of_dataset: bool = False
    ) -> None:
        object.__setattr__(self, "_settings", settings)
        object.__setattr__(self, "_prefix", prefix)
        object.__setattr__(self, "_is_of_dataset", is_of_dataset)

    _settings: dict[str, Any]
    _prefix: str
    _is_of_dataset: bool

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            # Copying and pickling look up special methods that do not exist.
            raise AttributeError(name)
        full = self._full(name)
        if full in _GROUPS:
            return OptionGroup(self._settings, full + ".", self._is_of_dataset)
        self._known(full)
        return self._settings.get(full)

    def __setattr__(self, name: str, value: Any) -> None:
        full = self._full(name)
        expected, fits = self._known(full)
        if self._is_of_dataset:
            raise ValueError(
                f"The option {full} cannot be set here: these are the options of a dataset. "
                "Mutating `Options()` returned by `Dataset.options()` has no effect. Use "
                "`Dataset.with_options(options)` to set or update dataset options"
            )
        if value is None:
            self._settings.pop(full, None)
            return
        if not fits(value):
            raise TypeError(
                f"the option {full} must be {expected} or None, got {value!r} of type "
                f"{type(value).__name__}"
            )
        self._settings[full] = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OptionGroup) and self._own() == other._own()

    def __hash__(self) -> int:
        return hash(self._own())

    def _own(self) -> tuple[str, Settings]:
        """The prefix, and the options that are set below it."""
        items = self._settings.items()
        return self._prefix, tuple(sorted(i for i in items if i[0].startswith(self._prefix)))

    def _full(self, name: str) -> str:
        """Return the dotted name of today."""
        return _FORMER.get(self._prefix + name, self._prefix + name)

    def _known(self, full: str) -> tuple[str, Callable[[Any], bool]]:
        if full not in _KNOWN:
            raise AttributeError(
                f"There is no option {full}. The options with an effect in zmqdata are "
                f"{', '.join(_KNOWN)}; leave out the other options of tf.data, which concern "
                "TensorFlow's runtime"
            )
        return _KNOWN[full]


class Options(OptionGroup):
    """Options of a pipeline as a whole, set with ``with_options``. None means not set.

    Attributes:
        deterministic: True if parallel operations without an own setting keep the
            order; not set: True.
        autotune.enabled: True if AUTOTUNE adapts numbers at run time; not set: True.
        autotune.ram_budget: bytes that each operation with AUTOTUNE may hold in
            elements ahead; not set: 512 MiB.
        autotune.cpu_budget: number of threads that AUTOTUNE may use; not set: the
            number of cores.
        threading.private_threadpool_size: most concurrent calls of each parallel map
            and interleave, whatever their own setting; 0: the number of cores.
        dataset_name: name for monitoring.
        experimental_external_state_policy: what happens if a function that is sent to
            the service holds a random generator, an ``ExternalStatePolicy``; not set:
            ``WARN``.
        experimental_distribute.auto_shard_policy: an ``AutoShardPolicy``, stored
            without effect.

    >>> options = Options()
    >>> options.deterministic = False
    >>> options.autotune.ram_budget = 2**30
    >>> options
    Options(autotune.ram_budget=1073741824, deterministic=False)

    As ``tf.data.Options``. Setting an option of tf.data that has no meaning in zmqdata
    raises an AttributeError.
    """

    def __init__(self, settings: Iterable[tuple[str, Any]] = ()) -> None:
        super().__init__(dict(settings))

    def of_dataset(self) -> Options:
        """Return the same options as those of a dataset, which cannot be set.

        >>> Options([("deterministic", False)]).of_dataset().deterministic
        False
        """
        kept = Options(self.settings)
        object.__setattr__(kept, "_is_of_dataset", True)
        return kept

    @property
    def settings(self) -> Settings:
        """The options that are set, as a plain tuple."""
        return tuple(sorted(self._settings.items()))

    def merge(self, later: Options) -> Options:
        """Return these options, overridden by options set later; warn of each conflict.

        >>> first = Options([("deterministic", True)])
        >>> first.merge(Options([("dataset_name", "a")]))
        Options(dataset_name='a', deterministic=True)
        """
        for name, value in later.settings:
            if self._settings.get(name, value) != value:
                before = self._settings[name]
                warn_user(f"Changing the value of option {name} from {before!r} to {value!r}.")
        return Options({**self._settings, **later._settings}.items())

    def __repr__(self) -> str:
        return f"Options({', '.join(f'{name}={value!r}' for name, value in self.settings)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Options, (self.settings,)


def is_ordered(node: Node, options: Options) -> bool:
    """Return True if the order of a node's elements is fixed. An operation without its
    own setting follows the options.

    Args:
        node: the node.
        options: the options of the pipeline that it is part of.
    """
    follows = getattr(node, "deterministic", True) is None
    return node.is_deterministic and not (follows and options.deterministic is False)


def options_of(node: Node) -> Options:
    """Return the options of a pipeline, merged from all its parts; later options win.

    >>> from zmqdata.operations.selections import WithOptions
    >>> from zmqdata.operations.sources import Range
    >>> numbers = Range(start=0, stop=3)
    >>> options_of(WithOptions(inputs=(numbers,), settings=(("deterministic", False),)))
    Options(deterministic=False)
    """
    options, seen = Options(), set[int]()
    # Pairs of a node, and True if its inputs are done. Not recursive, because pipelines
    # may be long.
    waiting = [(node, False)]
    while waiting:
        current, is_ready = waiting.pop()
        if is_ready:
            if current.set_options:
                with warnings.catch_warnings():
                    # The user was warned when the options were set.
                    warnings.simplefilter("ignore")
                    options = options.merge(Options(current.set_options))
        elif id(current) not in seen:
            seen.add(id(current))
            waiting.append((current, True))
            waiting.extend((source, False) for source in reversed(current.inputs))
    return options
