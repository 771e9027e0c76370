"""The iterators of datasets: they can be saved, and restored in another run of the
program.

Positions of operations belong to ``iterators``; states of tasks in the service belong
to the worker.
"""

from __future__ import annotations

import logging
import os
import tempfile
import time
import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import numpy as np
from msgspec import structs

from zmqdata import operations
from zmqdata.config.settings import warn_user
from zmqdata.dataset.arguments import readable_path, writable_path
from zmqdata.dataset.depth import too_deep, within_stack
from zmqdata.dataset.drawing import difference, parameter_lines, shipped_in
from zmqdata.dataset.seeds import resumed_orders
from zmqdata.dataset.sharing import Turns
from zmqdata.elements.nesting import map_structure
from zmqdata.elements.tensors import as_stackable
from zmqdata.errors import (
    CancelledError,
    DataLossError,
    DataServiceError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    UnimplementedError,
    named_error,
)
from zmqdata.files.paths import FileName, is_url, shown_url
from zmqdata.iterators.base import Steps, make_iterator, steps_of
from zmqdata.iterators.context import Context
from zmqdata.iterators.inference import infer_spec
from zmqdata.iterators.quarantine import LeftOut
from zmqdata.iterators.states import (
    NO_STATE,
    UNFIT,
    Courses,
    Restoring,
    SavedState,
    holds_no_state,
    plain_state,
)
from zmqdata.machine.threads import this_thread
from zmqdata.measures.meter import LoopMeter, MeteredIterator
from zmqdata.measures.situation import Situation, TaskEvidence, unit_of
from zmqdata.measures.status import count_fields, stats_of
from zmqdata.measures.sums import OperationCounts, RecentLoop, counted_together
from zmqdata.measures.verdict import Verdict, judge
from zmqdata.messages.identity import Fingerprint, uncompared
from zmqdata.nodes.base import Node, every_node, kept_orders
from zmqdata.storage.reading import open_file, put

log = logging.getLogger(__name__)

VERSION = 1
"""Version of the form of states. A change of their content increments it."""

FREE = (
    operations.prefetch.Prefetch,
    operations.repeat.Repeat,
    operations.limits.Skip,
    operations.limits.Take,
)
"""Nodes that take no time of their own."""
QUARANTINE_SAVED = 100
_MAGIC = b"zmqdata state\n"
_SAME_THERE = ", which the service takes only where what its workers run is the same"


class DatasetIterator:
    """An iterator over the elements of a dataset whose position can be saved and
    restored.

    Args:
        node: the pipeline; use ``iter(dataset)`` instead.
        context: seeds and number of this iterator.
        fingerprint: returns the pipeline's fingerprint; called when a state is saved or
            loaded.
        count_on: called with the number of the iterator that a state was taken from,
            when it is loaded.
        state: place to begin at, as for ``load_state_dict(state, strict=False)``; None:
            the first element.

    >>> from zmqdata.dataset import Dataset
    >>> dataset = Dataset.range(100).shuffle(10).batch(2)
    >>> first, second = iter(dataset), iter(dataset)
    >>> _ = next(first)
    >>> second.load_state_dict(first.state_dict())
    >>> next(first).tolist() == next(second).tolist()
    True

    Threads may share it: each element goes to one of them, all of them come to the end,
    and ``state_dict`` waits until no thread is taking an element. While one waits for
    an element, so do the others. ``close`` in any thread ends their wait. A function of
    the pipeline that takes an element of the iterator that calls it is refused.

    Equivalent of the iterators of tf.data; ``state_dict`` and ``load_state_dict`` have
    torch's names.
    """

    # As a slot, __next__ is the method of the running executor: no Python frame lies
    # between it and the loop.
    __slots__ = (
        "__next__",
        "__weakref__",
        "_at_close",
        "_context",
        "_count_on",
        "_evidence",
        "_executor",
        "_fingerprint",
        "_meter",
        "_node",
        "_recents",
        "_turns",
    )

    def __init__(
        self,
        node: Node,
        context: Context,
        fingerprint: Callable[[], Fingerprint],
        count_on: Callable[[int], None],
        state: dict[str, Any] | None = None,
    ) -> None:
        self._node = node
        self._fingerprint = fingerprint
        self._count_on = count_on
        if state is None:
            self._run(context)
        else:
            self._context = context
            self._executor: Any = _Unbegun()
            # A state that is refused leaves nothing to measure.
            self._meter, self._recents = LoopMeter(time.perf_counter), (RecentLoop(), RecentLoop())
            self.load_state_dict(state, strict=False)

    def _run(self, context: Context, position: Any = None, *, restored: bool = False) -> None:
        meter = LoopMeter(time.perf_counter)
        context = replace(context, meter=meter, counts=OperationCounts())
        if not restored:
            context = replace(context, courses=Courses())
        try:
            executor = make_iterator(self._node, context)
        except RecursionError:
            raise too_deep(self._node) from None
        try:
            if restored:
                executor.restore(position)
        except BaseException:
            executor.close()
            raise
        self._context = context
        self._executor = executor
        self._meter, self._recents = meter, (RecentLoop(), RecentLoop())
        self._at_close: tuple[Any] | None = None
        self._turns: Turns | None = None
        self._evidence: tuple[TaskEvidence, ...] = ()
        if executor.is_shareable:
            self.__next__ = executor.__next__
        else:
            self._take_from(executor.steps)

    def _take_from(self, steps: Callable[[], Steps]) -> None:
        self._turns = turns = Turns(steps, self._context.threads)
        take = turns.taker()
        # Without the service, the loop's own thread makes the elements.
        is_metered = self._meter.is_distributed or self._is_placed
        self.__next__ = MeteredIterator(take, self._meter).__next__ if is_metered else take

    def __iter__(self) -> DatasetIterator:
        return self

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the last operation's executor, such as the statistics
        of a service's iterator.
        """
        if name in DatasetIterator.__slots__ or name in ("state", "__setstate__"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self._executor, name)

    def get_next(self) -> Any:
        """Return the next element, as ``next(iterator)``.

        >>> from zmqdata.dataset import Dataset
        >>> int(iter(Dataset.range(3)).get_next())
        0

        Equivalent of ``tf.data.Iterator.get_next``, which raises OutOfRangeError at the
        end; this method raises StopIteration.
        """
        return self.__next__()

    @property
    def element_spec(self) -> Any:
        """The spec of the elements, as ``Dataset.element_spec``.

        >>> from zmqdata.dataset import Dataset
        >>> iter(Dataset.range(3)).element_spec
        TensorSpec(shape=(), dtype=int64)

        Equivalent of ``tf.data.Iterator.element_spec``.
        """
        with within_stack(self._node):
            return infer_spec(self._node)

    @property
    def quarantine(self) -> list[LeftOut]:
        """The newest 1000 elements that ``map(on_error="skip")`` skipped, each once, as
        ``zmqdata.LeftOut``.

        Older ones are dropped, which is logged. A state contains the newest 100 of
        them, which are restored when it is loaded.

        With the service, it has what workers skipped, and elements that made a worker
        process die (``distribute(on_poison="skip")``). Each reader of a job gets those
        of all tasks that it reads.

        >>> from zmqdata.dataset import Dataset
        >>> numbers = Dataset.range(3)
        >>> iterator = iter(numbers.map(lambda x: 1 // int(x - 1), on_error="skip"))
        >>> list(iterator), [left_out.number for left_out in iterator.quarantine]
        ([-1, 1], [1])

        Has no counterpart in tf.data.
        """
        return list(self._context.quarantine)

    def stats(self, *, scalars: bool = False) -> dict[str, Any]:
        """Return why the loop waits, and what operations count, as a flat dict for W&B,
        TensorBoard or MLflow.

        Args:
            scalars: True to leave out texts, for trackers that take numbers only.

        Returns:
            A dict, whose keys the page on waiting describes. Means
            and shares are of the last seconds, about ten, and of the time since the
            last call if that is longer. The wait for the first element of a pass is not
            in them.

        Raises:
            FailedPreconditionError: the dataset is not distributed, and its operations
                count nothing.

        >>> from zmqdata import Dataset, LocalCluster, distribute
        >>> with LocalCluster(1, in_process=True) as cluster:
        ...     read = distribute("distributed_epoch", cluster.target)
        ...     reader = iter(Dataset.range(50).apply(read))
        ...     _ = list(reader)
        ...     int(reader.stats()["data/elements"])
        50

        Has no counterpart in tf.data. As in TraceML, a verdict precedes the evidence.
        """
        counts = self._context.counts
        if counts and not self._meter.is_distributed and not self._is_placed:
            return {f"data/{name}": value for name, value in count_fields(counts.copy()).items()}
        return stats_of(self._situation(), with_texts=not scalars)

    def verdict(self) -> Verdict:
        """Return what limits the loop, with evidence and advice, as ``stats`` does.

        Raises:
            FailedPreconditionError: the dataset is not distributed.

        Has no counterpart in tf.data.
        """
        return judge(self._situation())

    def _situation(self) -> Situation:
        (whole, part), unit = self._recents, unit_of(self._node.batch_rows)
        if not self._meter.is_distributed and self._is_placed:
            loop = self._meter.measures(whole)
            return Situation(
                loop.recent,
                first=loop.first,
                total=loop.total,
                is_here=True,
                unit=unit,
                counts=self._context.counts,
            )
        if not self._meter.is_distributed:
            raise FailedPreconditionError(
                "`stats` tells why a loop waits for the service, and this dataset is not "
                "distributed. Apply `zmqdata.distribute(...)` to it, or look at `ds.profile()`."
            )
        recent = whole if self._turns is None else part
        found: list[Situation] = [one.situation(recent) for _, one in self._meter.readers]
        failed = [one for one in found if one.failure]
        if self._turns is None or failed:
            return replace((failed or found)[0], unit=unit)
        loop = self._meter.measures(whole)
        # A pass of `repeat` that has ended leaves no reader.
        worst = max(found, key=lambda one: one.loop.waiting, default=Situation(loop.recent))
        counts = counted_together([self._context.counts, *(one.counts for one in found)])
        if worst.tasks:
            self._evidence = tuple(replace(one, has_ended=False) for one in worst.tasks)
        elif worst.hosted or not found:
            # The workers have told nothing yet of the pass that has begun.
            worst = replace(worst, tasks=self._evidence)
        waiting = sum(one.loop.waiting for one in found)
        served = structs.replace(worst.loop, waiting=waiting)
        local = [one for one in every_node(self._node) if one.inputs]
        return replace(
            worst,
            loop=loop.recent,
            total=loop.total,
            first=loop.first,
            unit=unit,
            served=served,
            counts=counts,
            local=tuple(one.label for one in reversed(local) if not isinstance(one, FREE)),
            is_ahead=any(isinstance(one, operations.prefetch.Prefetch) for one in local),
        )

    @property
    def _is_placed(self) -> bool:
        """True if a part of the pipeline could run on workers."""
        return any(node.runs_elsewhere for node in every_node(self._node))

    def close(self) -> None:
        """End the iterator and release its threads and files. Idempotent; also called
        when the iterator is garbage-collected.

        Another thread that reads the iterator gets a ``CancelledError``. The last state
        can still be saved.
        """
        if self._at_close is None:
            # Another thread may be waiting for an element. Where it stops is not known.
            known = self._turns is None or self._turns.is_free()
            self._at_close = (self._executor.state() if known else NO_STATE,)
            if self._turns is not None:
                self._turns.end()
            self.__next__ = _closed_by(this_thread())
        self._executor.close()

    def state_dict(self) -> dict[str, Any]:
        """Return the position as plain values that msgpack can encode: positions,
        numbers and seeds rather than elements.

        Returns:
            A dict for ``load_state_dict`` of an iterator over an equal pipeline, in
            this or another program.

        Raises:
            DataServiceError: an operation cannot save its position.

        >>> from zmqdata.dataset import Dataset
        >>> iterator = iter(Dataset.range(3)); _ = next(iterator)
        >>> iterator.state_dict()["position"]
        1

        Has no direct counterpart in tf.data, where ``tf.train.Checkpoint(iterator)``
        stores the elements of buffers.
        """
        return self.bookmark()()

    def bookmark(self) -> Callable[[], dict[str, Any]]:
        """Return a function that returns the state of the present position, at any
        time and as often as called.

        It takes microseconds, and ``state_dict`` up to milliseconds. A loader that
        reads ahead notes the position after each element, and needs few of the states.

        Raises (the function):
            DataServiceError: as ``state_dict``. Also if ``load_state_dict`` has moved
                the iterator of a distributed dataset meanwhile.

        >>> from zmqdata.dataset import Dataset
        >>> iterator = iter(Dataset.range(3)); begin = iterator.bookmark()
        >>> _ = next(iterator)
        >>> begin()["position"], iterator.state_dict()["position"]
        (0, 1)

        Has no counterpart in tf.data.
        """
        left_out = list(self._context.quarantine)[-QUARANTINE_SAVED:]
        position, context = self._position(), self._context
        return partial(self._state, position, context, context.courses.saved(), left_out)

    def _state(
        self, position: Any, context: Context, weights: dict[str, Any], left_out: list[LeftOut]
    ) -> dict[str, Any]:
        if position == NO_STATE and self._at_close is not None:
            raise FailedPreconditionError(
                "this iterator was closed while a thread was taking an element, so its last "
                "position is unknown. Take the state before closing it"
            )
        if holds_no_state(position):
            raise UnimplementedError("an operation of this pipeline cannot save its position")
        saved = SavedState(
            version=VERSION,
            fingerprint=str(self._fingerprint()),
            pipeline=parameter_lines(self._node),
            seed=context.seed,
            fixed_seed=context.fixed_seed,
            iteration=context.iteration,
            orders=[order.number for order in kept_orders(self._node)],
            position=plain_state(position),
            weights=weights,
            quarantine=left_out,
        )
        return msgspec.structs.asdict(saved) | {"quarantine": msgspec.to_builtins(saved.quarantine)}

    def _position(self) -> Any:
        if self._at_close is not None:
            return self._at_close[0]
        if self._turns is None:
            return self._executor.state()
        with self._turns.alone():
            return self._executor.state()

    def load_state_dict(self, state: dict[str, Any], *, strict: bool = True) -> None:
        """Continue at the position at which ``state_dict`` was called. The present
        position of this iterator is discarded. The next iterator of the dataset has the
        number after that of the state.

        Args:
            state: the result of ``state_dict``.
            strict: True refuses the state of another pipeline. Changed code of
                functions causes only a warning. False loads the state into any
                pipeline. This is correct if positions mean the same in both, as for
                another ``prefetch`` size.

        Raises:
            FailedPreconditionError: the state belongs to another pipeline; the text
                shows the difference.
            InvalidArgumentError: the argument is not a state, or has another version.
            DataLossError: the state of a distributed dataset is damaged.
            PipelineError: a function that makes nested datasets or groups is called
                again for the datasets that were being read, and fails now.
            DataServiceError: the service refuses the state. If the refusal takes longer
                than a few seconds, each ``next`` raises it instead.

        If the state itself is invalid, the iterator continues unchanged. After a
        refusal by the service, ``next`` raises the refusal, too.

        Has no counterpart in tf.data.
        """
        saved = _checked(state)
        self._compare(saved, strict)
        before = self._executor
        restoring = Restoring(before.close)
        context = Context(
            seed=saved.seed,
            fixed_seed=saved.fixed_seed,
            iteration=saved.iteration,
            options=self._context.options,
            restoring=restoring,
            courses=Courses(saved.weights),
        )
        context.quarantine.extend(saved.quarantine)
        try:
            self._load(context, saved)
        except DataServiceError as error:
            if restoring.gave_way:
                refusal = partial(_refuse, type(error).__name__, str(error))
                self._take_from(partial(steps_of, refusal))
            raise
        before.close()
        self._count_on(saved.iteration)
        if restoring.checks:
            # The operations may have nothing to request from the service, and would
            # then hide its refusal to continue.
            both = chain(self._executor, iter(partial(_last_look, restoring), None))
            self._take_from(partial(steps_of, both.__next__))

    def _load(self, context: Context, saved: SavedState) -> None:
        try:
            with resumed_orders(self._node, saved.fixed_seed, saved.orders):
                self._run(context, saved.position, restored=True)
        except DataServiceError:
            raise
        except UNFIT as error:
            raise InvalidArgumentError(
                "the state does not fit the operations of this pipeline "
                f"({type(error).__name__}: {error}). It was taken "
                f"from\n{difference(saved.pipeline, parameter_lines(self._node))}"
            ) from error

    def _compare(self, saved: SavedState, strict: bool) -> None:
        if not strict:
            return
        then, now = Fingerprint.parse(saved.fingerprint), self._fingerprint()
        if not then.is_comparable(now):
            log.warning("%s", uncompared(then, now))
            return
        if then.is_other(now):
            compared = difference(saved.pipeline, parameter_lines(self._node))
            if saved.pipeline == parameter_lines(self._node):
                compared += (
                    "\nThe operations are the same; the content of arrays or other parameters "
                    "differs."
                )
            raise FailedPreconditionError(
                "this state belongs to another pipeline (- is in the state only, + in this "
                "pipeline only):\n"
                f"{compared}\nMake sure the dataset definition has not changed since the state was "
                "saved, or, if positions mean the same in both pipelines, load it with "
                f"strict=False{_SAME_THERE if shipped_in(self._node) else ''}"
            )
        if then.code != now.code:
            warn_user(
                "the code of a function in this pipeline (or the Python version) has "
                "changed since the state was saved. The following elements may "
                "differ from the elements of the saved run"
            )

    def save(self, path: FileName) -> None:
        """Write the state to a file atomically.

        Args:
            path: name of the file, or URL of an object in a store; an existing file is
                replaced.

        >>> import tempfile, os
        >>> from zmqdata.dataset import Dataset
        >>> dataset = Dataset.range(3)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "state")
        ...     iterator = iter(dataset); _ = next(iterator); iterator.save(path)
        ...     again = iter(dataset); again.restore(path); print(int(next(again)))
        1

        Equivalent of ``tf.train.Checkpoint(iterator).save``.
        """
        target = writable_path("save()", path)
        payload = msgspec.msgpack.encode(self.state_dict())
        check = zlib.crc32(payload).to_bytes(4, "big")
        content = _MAGIC + bytes([VERSION]) + check + payload
        if is_url(target):
            put(target, content)
        else:
            _write_atomically(Path(target), content)

    def restore(self, path: FileName, *, strict: bool = True) -> None:
        """Continue at the position at which ``save`` was called.

        Args:
            path: name or URL of the file.
            strict: as for ``load_state_dict``.

        Raises:
            NotFoundError: the file does not exist.
            DataLossError: the file is damaged, or was not written by ``save``.
            FailedPreconditionError: the state belongs to another pipeline.

        Equivalent of ``tf.train.Checkpoint(iterator).restore``.
        """
        given = readable_path(path)
        name = shown_url(given)
        try:
            with open_file(given) as file:
                content = file.read()
        except (FileNotFoundError, NotFoundError):
            raise NotFoundError(
                f"the file {name} does not exist; save(path) writes an iterator state"
            ) from None
        except IsADirectoryError:
            raise InvalidArgumentError(
                f"{name} is a folder, expected the file that save(path) "
                "wrote; Dataset.load(path) reads a saved dataset"
            ) from None
        self.load_state_dict(_payload(content, name), strict=strict)


class NumpyIterator:
    """An iterator over the elements of a dataset as numpy values.

    Python numbers and images become numpy's. Arrays are views that cannot be written
    to, because a source or a cache may yield the same array again. Everything else,
    such as ``state_dict`` and ``close``, is that of the dataset's iterator, so the
    states of both fit each other.

    Args:
        elements: the dataset's iterator; use ``dataset.as_numpy_iterator()`` instead.

    >>> from zmqdata.dataset import Dataset
    >>> iterator = Dataset.range(3).as_numpy_iterator(); _ = next(iterator)
    >>> iterator.state_dict()["position"]
    1

    Equivalent of the iterators that ``tf.data.Dataset.as_numpy_iterator`` returns.
    """

    __slots__ = ("__next__", "__weakref__", "_elements")

    def __init__(self, elements: DatasetIterator) -> None:
        self._elements = elements
        # Not a generator, which threads cannot share.
        self.__next__ = map(partial(map_structure, _as_numpy), elements).__next__

    def __iter__(self) -> NumpyIterator:
        return self

    def get_next(self) -> Any:
        """Return the next element, as ``next(iterator)``."""
        return self.__next__()

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the dataset's iterator."""
        if name in NumpyIterator.__slots__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self._elements, name)


def _as_numpy(leaf: Any) -> Any:
    if isinstance(leaf, (bool, int, float, complex)):
        return np.asarray(leaf)[()]
    array = as_stackable(leaf)
    if type(array) is np.ndarray:
        array = array.view()
        array.flags.writeable = False
    return array


def _closed_by(thread: int) -> Callable[[], Any]:
    """Return what takes the place of ``__next__`` in an iterator that a thread has
    closed. To other threads StopIteration would say that they have had all elements.
    """

    def ended() -> Any:
        if this_thread() != thread:
            raise CancelledError("The iterator was closed by another thread")
        raise StopIteration

    return ended


def _refuse(name: str, text: str) -> Any:
    raise named_error(name, text)


class _Unbegun:
    """Stands for the operations of an iterator until its state is loaded."""

    def close(self) -> None:
        """Do nothing."""


def _last_look(restoring: Restoring) -> NoReturn:
    """End a restored pipeline, or raise the service's refusal, on each call, instead of
    a false end.
    """
    for check in restoring.checks:
        check()
    raise StopIteration


def _checked(state: Any) -> SavedState:
    try:
        saved = msgspec.convert(state, SavedState)
    except msgspec.ValidationError as error:
        raise InvalidArgumentError(
            f"a state must be a dict that state_dict() returned, got a {type(state).__name__}: "
            f"{error}"
        ) from None
    if saved.version != VERSION:
        raise _other_version("the state", saved.version)
    return saved


def _other_version(name: str, version: int) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{name} has version {version}, and this zmqdata reads version {VERSION}. Load it with the "
        "release that saved it"
    )


def _write_atomically(path: Path, content: bytes) -> None:
    descriptor, partial = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        os.unlink(partial)
        raise


def _payload(content: bytes, path: str) -> Any:
    start = len(_MAGIC) + 5
    if not content.startswith(_MAGIC) or len(content) < start:
        raise DataLossError(
            f"{path} is not an iterator state: it does not begin like one. Was it "
            "written by save(path)?"
        )
    if content[len(_MAGIC)] != VERSION:
        raise _other_version(path, content[len(_MAGIC)])
    check, payload = content[start - 4 : start], content[start:]
    if zlib.crc32(payload).to_bytes(4, "big") != check:
        raise DataLossError(
            f"{path} is damaged: its checksum does not match its content. Restore an older state"
        )
    return decoded(payload, path)


def decoded(payload: bytes, path: str) -> Any:
    """Decode saved bytes, or a part of them.

    Raises:
        DataLossError: the bytes do not have the form that ``save`` writes.
    """
    try:
        return msgspec.msgpack.decode(payload)
    except (msgspec.MsgspecError, UnicodeError, RecursionError, OverflowError, ValueError) as error:
        raise DataLossError(
            f"{path} is damaged: its content is not a state ({error}). Restore an older state"
        ) from None
