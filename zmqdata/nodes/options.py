"""``Options`` of a pipeline, and the node that sets them. Who follows an option is said
at the option.
"""

from __future__ import annotations

import enum
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from zmqdata.nodes.base import NOTHING_AGAIN, Node
from zmqdata.nodes.transforms import Unary

Settings = tuple[tuple[str, Any], ...]
"""Options that were set, as pairs of a dotted name and a value, sorted."""


class ExternalStatePolicy(enum.Enum):
    """What to do about state outside of a pipeline when it is shipped. As in
    tf.data.
    """

    WARN = 0
    IGNORE = 1
    FAIL = 2


class AutoShardPolicy(enum.IntEnum):
    """How a pipeline is divided among the machines of a training. As in tf.data."""

    OFF = -1
    AUTO = 0
    FILE = 1
    DATA = 2
    HINT = 3


def _a_bool(value: Any) -> bool:
    return isinstance(value, bool)


def _a_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _a_text(value: Any) -> bool:
    return isinstance(value, str)


_COUNT = ("an int of at least 0", _a_count)
_BOOL = ("a bool", _a_bool)
_KNOWN: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "autotune.cpu_budget": _COUNT,
    "autotune.enabled": _BOOL,
    "autotune.ram_budget": _COUNT,
    "dataset_name": ("a str", _a_text),
    "deterministic": _BOOL,
    "experimental_distribute.auto_shard_policy": (
        "an AutoShardPolicy",
        lambda value: isinstance(value, AutoShardPolicy),
    ),
    "experimental_external_state_policy": (
        "an ExternalStatePolicy",
        lambda value: isinstance(value, ExternalStatePolicy),
    ),
    "threading.private_threadpool_size": _COUNT,
}
_GROUPS = frozenset(name.partition(".")[0] for name in _KNOWN if "." in name)


class OptionGroup:
    """The options under one name, as ``options.autotune`` has: read and set as
    attributes; None is not set.
    """

    def __init__(self, settings: dict[str, Any], prefix: str = "") -> None:
        object.__setattr__(self, "_settings", settings)
        object.__setattr__(self, "_prefix", prefix)

    _settings: dict[str, Any]
    _prefix: str

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # copying and pickling ask for what is not there
            raise AttributeError(name)
        full = self._prefix + name
        if full in _GROUPS:
            return OptionGroup(self._settings, full + ".")
        self._known(full)
        return self._settings.get(full)

    def __setattr__(self, name: str, value: Any) -> None:
        full = self._prefix + name
        expected, fits = self._known(full)
        if value is None:
            self._settings.pop(full, None)
            return
        if not fits(value):
            raise TypeError(
                f"the option {full} must be {expected} or None, got {value!r} of type "
                f"{type(value).__name__}"
            )
        self._settings[full] = value

    def _known(self, full: str) -> tuple[str, Callable[[Any], bool]]:
        if full not in _KNOWN:
            raise AttributeError(
                f"there is no option {full}. The options that have an effect here are "
                f"{', '.join(_KNOWN)}; leave out "
                "the others of tf.data, they concern TensorFlow's runtime"
            )
        return _KNOWN[full]


class Options(OptionGroup):
    """What holds for a pipeline as a whole; given to it by ``with_options``. What is
    None is not set.

    Attributes:
        deterministic: whether parallel operations that were not told otherwise keep the
            order; not set: they do.
        autotune.enabled: whether AUTOTUNE changes numbers while running; not set: it
            does.
        autotune.ram_budget: bytes that each operation with AUTOTUNE may hold in
            elements ahead; not set: 512 MiB.
        autotune.cpu_budget: threads that AUTOTUNE may use.
        threading.private_threadpool_size: how many calls each parallel map and
            interleave may make at a time, however many it was told to; 0: as many as
            there are cores.
        dataset_name: a name for whoever watches.
        experimental_external_state_policy: an ``ExternalStatePolicy``, kept as it is.
        experimental_distribute.auto_shard_policy: an ``AutoShardPolicy``, kept as it
            is.

    >>> options = Options()
    >>> options.deterministic = False
    >>> options.autotune.ram_budget = 2**30
    >>> options
    Options(autotune.ram_budget=1073741824, deterministic=False)

    As ``tf.data.Options``. Setting an option of tf.data that has no meaning here is an
    AttributeError.
    """

    def __init__(self, settings: Iterable[tuple[str, Any]] = ()) -> None:
        super().__init__(dict(settings))

    @property
    def settings(self) -> Settings:
        """What is set, as a plain tuple."""
        return tuple(sorted(self._settings.items()))

    def merge(self, later: Options) -> Options:
        """These options, changed by those that were set later; a conflict is a warning.

        >>> one, two = Options([("deterministic", True)]), Options([("dataset_name", "a")])
        >>> one.merge(two)
        Options(dataset_name='a', deterministic=True)
        """
        for name, value in later.settings:
            if self._settings.get(name, value) != value:
                before = self._settings[name]
                warnings.warn(
                    f"Changing the value of option {name} from {before!r} to {value!r}.",
                    stacklevel=3,
                )
        return Options({**self._settings, **later._settings}.items())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Options) and self._settings == other._settings

    def __hash__(self) -> int:
        return hash(self.settings)

    def __repr__(self) -> str:
        return f"Options({', '.join(f'{name}={value!r}' for name, value in self.settings)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Options, (self.settings,)


@dataclass(frozen=True, kw_only=True)
class WithOptions(Unary):
    """Its input, with options set for the whole pipeline."""

    settings: Settings
    operation: ClassVar[str] = "with_options"
    restoring: ClassVar[str] = NOTHING_AGAIN
    own_state: ClassVar[int] = 0

    @property
    def argument(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.settings)


def options_of(node: Node) -> Options:
    """The options of a pipeline: those of all its parts, later ones win.

    >>> from zmqdata.nodes import Range
    >>> options_of(WithOptions(inputs=(Range(start=0, stop=3),), settings=(("deterministic", False),)))
    Options(deterministic=False)
    """
    options, seen = Options(), set[int]()
    waiting = [
        (node, False)
    ]  # a node, and whether its inputs are done; without recursion, as pipelines may be long
    while waiting:
        current, is_ready = waiting.pop()
        if is_ready:
            if isinstance(current, WithOptions):
                with warnings.catch_warnings():  # it was said when they were set
                    warnings.simplefilter("ignore")
                    options = options.merge(Options(current.settings))
        elif id(current) not in seen:
            seen.add(id(current))
            waiting.append((current, True))
            waiting.extend((source, False) for source in reversed(current.inputs))
    return options
