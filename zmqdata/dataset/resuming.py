"""What ``iter(dataset)`` gives: an iterator that can be saved, and restored in another
run of the program.

How each operation says where it is lies in ``iterators``; states of tasks in the
service are the worker's.
"""

from __future__ import annotations

import os
import tempfile
import warnings
import zlib
from collections.abc import Callable
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from zmqdata.dataset.arguments import file_path
from zmqdata.dataset.depth import too_deep
from zmqdata.dataset.drawing import difference, parameter_lines, shipped_in
from zmqdata.errors import (
    DataLossError,
    DataServiceError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    UnimplementedError,
    named_error,
)
from zmqdata.iterators import UNFIT, Context, Restoring, holds_no_state, make_iterator, plain_state
from zmqdata.iterators.watching import LeftOut
from zmqdata.nodes import Node
from zmqdata.pipelines import Fingerprint

VERSION = 1
"""Of the states. A change of what they hold raises it."""

QUARANTINE_SAVED = 100
_MAGIC = b"zmqdata state\n"
_SAME_THERE = ", which the service takes only where what its workers run is the same"


class SavedState(msgspec.Struct, frozen=True):
    """What a state dict holds, as it is checked when it comes back.

    Attributes:
        version: of this form.
        fingerprint: of the pipeline.
        pipeline: its tree, a line for each operation, to show a difference.
        seed: of the iterator.
        fixed_seed: of what is the same in all iterators of the program.
        iteration: the number of the iterator among those of its dataset.
        position: where the operations are; plain values.
        quarantine: the newest elements that were left out, as ``LeftOut`` has them.
    """

    version: int
    fingerprint: str
    pipeline: list[str]
    seed: int
    fixed_seed: int
    iteration: int
    position: Any
    quarantine: list[LeftOut] = []


class DatasetIterator:
    """Yields the elements of a dataset, can say where it is, and can go on from there.

    Args:
        node: the pipeline; use ``iter(dataset)`` instead.
        context: seeds and number of this iterator.
        fingerprint: gives the pipeline's fingerprint; asked when a state is taken or
            loaded.

    >>> from zmqdata.dataset import Dataset
    >>> dataset = Dataset.range(100).shuffle(10).batch(2)
    >>> first, second = iter(dataset), iter(dataset)
    >>> _ = next(first)
    >>> second.load_state_dict(first.state_dict())
    >>> next(first).tolist() == next(second).tolist()
    True

    One thread uses it at a time: several that share one take turns with a lock of their
    own.

    As the iterators of tf.data; ``state_dict`` and ``load_state_dict`` are named as
    torch names them.
    """

    # As a slot, __next__ is the running executor's own: no Python frame lies between it
    # and the loop.
    __slots__ = (
        "__next__",
        "__weakref__",
        "_at_close",
        "_context",
        "_executor",
        "_fingerprint",
        "_node",
    )

    def __init__(
        self, node: Node, context: Context, fingerprint: Callable[[], Fingerprint]
    ) -> None:
        self._node = node
        self._fingerprint = fingerprint
        self._run(context)

    def _run(self, context: Context, position: Any = None, *, restored: bool = False) -> None:
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
        self._at_close: tuple[Any] | None = None
        self.__next__ = executor.__next__

    def __iter__(self) -> DatasetIterator:
        return self

    def __getattr__(self, name: str) -> Any:
        """What the last operation's executor offers besides, such as the statistics of
        a service's iterator.
        """
        if name in DatasetIterator.__slots__ or name in ("state", "__setstate__"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self._executor, name)

    def get_next(self) -> Any:
        """The next element, as ``next(iterator)``.

        >>> from zmqdata.dataset import Dataset
        >>> int(iter(Dataset.range(3)).get_next())
        0

        As ``tf.data.Iterator.get_next``, which raises OutOfRangeError at the end; here
        it is StopIteration.
        """
        return self.__next__()

    @property
    def quarantine(self) -> list[Any]:
        """What ``map(on_error="skip")`` left out: number, node, error, traceback and
        split of each. The newest 1000.

        A state has the newest 100 of them, which are there again when it is loaded.

        Of what workers of the service leave out, the elements are here that brought
        them down (``distribute(on_poison="skip")``). Those that raised an exception
        there are in the workers' logs and in ``zmqdata status --worker``.

        >>> from zmqdata.dataset import Dataset
        >>> iterator = iter(Dataset.range(3).map(lambda x: 1 // int(x - 1), on_error="skip"))
        >>> list(iterator), [left_out.number for left_out in iterator.quarantine]
        ([-1, 1], [1])

        Ours.
        """
        return list(self._context.quarantine)

    def close(self) -> None:
        """Give back threads and files; it has ended then. Idempotent; also done when
        the iterator is collected.

        The state that it had can still be taken.
        """
        if self._at_close is None:
            self._at_close = (self._executor.state(),)
            self.__next__ = _ended
        self._executor.close()

    def state_dict(self) -> dict[str, Any]:
        """Where it is, as plain values that msgpack takes: positions, numbers and seeds
        rather than elements.

        Returns:
            A dict for ``load_state_dict`` of an iterator over an equal pipeline, here
            or in another program.

        Raises:
            DataServiceError: an operation cannot say where it is.

        >>> from zmqdata.dataset import Dataset
        >>> iterator = iter(Dataset.range(3)); _ = next(iterator)
        >>> iterator.state_dict()["position"]
        1

        Ours; tf.data has ``tf.train.Checkpoint(iterator)``, which keeps the elements of
        buffers.
        """
        position = self._executor.state() if self._at_close is None else self._at_close[0]
        if holds_no_state(position):
            raise UnimplementedError("an operation of this pipeline cannot say where it is")
        context = self._context
        saved = SavedState(
            version=VERSION,
            fingerprint=str(self._fingerprint()),
            pipeline=parameter_lines(self._node),
            seed=context.seed,
            fixed_seed=context.fixed_seed,
            iteration=context.iteration,
            position=plain_state(position),
            quarantine=list(context.quarantine)[-QUARANTINE_SAVED:],
        )
        return msgspec.structs.asdict(saved) | {"quarantine": msgspec.to_builtins(saved.quarantine)}

    def load_state_dict(self, state: dict[str, Any], *, strict: bool = True) -> None:
        """Go on where ``state_dict`` was called. What this iterator did before is
        forgotten.

        Args:
            state: what ``state_dict`` returned.
            strict: refuse the state of another pipeline. A pipeline whose functions
                have other code is warned about only. With False, the state is loaded
                whatever the pipeline is: right if you know that the positions mean the
                same, as for another ``prefetch`` size.

        Raises:
            FailedPreconditionError: the state belongs to another pipeline; the text
                shows the difference.
            InvalidArgumentError: it is no such state, or of a newer version.
            DataLossError: the state of a distributed dataset is damaged.
            PipelineError: a function that makes nested datasets or groups is called
                again for those that were being read, and fails now.
            DataServiceError: the service refuses it. Where that takes it longer to find
                out than a few seconds, each ``next`` raises it instead.

        Where the state itself is wrong the iterator goes on as it was; after a refusal
        ``next`` raises that, too.

        Ours.
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
        )
        context.quarantine.extend(saved.quarantine)
        try:
            self._load(context, saved)
        except DataServiceError as error:
            if restoring.gave_way:
                self.__next__ = partial(_refuse, type(error).__name__, str(error))
            raise
        before.close()
        if restoring.checks:
            # Operations may have nothing to ask the service for, and would hide that it
            # has refused to go on.
            self.__next__ = chain(self._executor, _LastLook(restoring)).__next__

    def _load(self, context: Context, saved: SavedState) -> None:
        try:
            self._run(context, saved.position, restored=True)
        except DataServiceError:
            raise
        except UNFIT as error:
            raise InvalidArgumentError(
                f"the state does not fit the operations of this pipeline ({type(error).__name__}: "
                f"{error}). It was "
                f"taken from\n{difference(saved.pipeline, parameter_lines(self._node))}"
            ) from error

    def _compare(self, saved: SavedState, strict: bool) -> None:
        if not strict:
            return
        then, now = Fingerprint.parse(saved.fingerprint), self._fingerprint()
        if then.structure != now.structure:
            compared = difference(saved.pipeline, parameter_lines(self._node))
            if saved.pipeline == parameter_lines(self._node):
                compared += "\nThe operations are the same; the content of arrays or other parameters differs."
            raise FailedPreconditionError(
                "this state belongs to another pipeline (- is in the state only, + in this "
                "pipeline only):\n"
                f"{compared}\nLoad it with the pipeline that it was saved with, or, if positions "
                "mean the same in "
                f"both, with strict=False{_SAME_THERE if shipped_in(self._node) else ''}"
            )
        if then.code != now.code:
            warnings.warn(
                "the code of a function in this pipeline has changed since the state was saved (or "
                "the Python "
                "version): what follows may differ from what would have followed then",
                stacklevel=3,
            )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state to a file, which is there as a whole or not at all.

        Args:
            path: of the file; an existing one is replaced.

        >>> import tempfile, os
        >>> from zmqdata.dataset import Dataset
        >>> dataset = Dataset.range(3)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "state")
        ...     iterator = iter(dataset); _ = next(iterator); iterator.save(path)
        ...     again = iter(dataset); again.restore(path); print(int(next(again)))
        1

        As ``tf.train.Checkpoint(iterator).save``.
        """
        target = Path(file_path(path))
        payload = msgspec.msgpack.encode(self.state_dict())
        check = zlib.crc32(payload).to_bytes(4, "big")
        _write_atomically(target, _MAGIC + bytes([VERSION]) + check + payload)

    def restore(self, path: str | os.PathLike[str], *, strict: bool = True) -> None:
        """Go on where ``save`` was called.

        Args:
            path: of the file.
            strict: as for ``load_state_dict``.

        Raises:
            NotFoundError: there is no such file.
            DataLossError: the file is damaged, or none that ``save`` wrote.
            FailedPreconditionError: it belongs to another pipeline.

        As ``tf.train.Checkpoint(iterator).restore``.
        """
        try:
            content = Path(file_path(path)).read_bytes()
        except FileNotFoundError:
            raise NotFoundError(
                f"there is no iterator state at {os.fspath(path)}; save(path) writes one"
            ) from None
        except IsADirectoryError:
            raise InvalidArgumentError(
                f"{os.fspath(path)} is a folder, expected the file that save(path) wrote; a "
                "dataset that was saved is "
                "read by Dataset.load(path)"
            ) from None
        self.load_state_dict(_payload(content, os.fspath(path)), strict=strict)


def _ended() -> Any:
    raise StopIteration


def _refuse(name: str, text: str) -> Any:
    raise named_error(name, text)


class _LastLook:
    """Stands behind the last element of a pipeline that was restored: an end that is
    none is raised, each time.
    """

    def __init__(self, restoring: Restoring) -> None:
        self._restoring = restoring

    def __iter__(self) -> _LastLook:
        return self

    def __next__(self) -> Any:
        for check in self._restoring.checks:
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
    if saved.version > VERSION:
        raise InvalidArgumentError(
            f"the state has version {saved.version}, this zmqdata reads up to {VERSION}"
        )
    return saved


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
            f"{path} is no iterator state: it does not begin as one. Was it written by save(path)?"
        )
    if content[len(_MAGIC)] > VERSION:
        raise InvalidArgumentError(
            f"{path} has version {content[len(_MAGIC)]}, this zmqdata reads up to {VERSION}"
        )
    check, payload = content[start - 4 : start], content[start:]
    if zlib.crc32(payload).to_bytes(4, "big") != check:
        raise DataLossError(
            f"{path} is damaged: its checksum does not fit its content. Restore an older state"
        )
    return decoded(payload, path)


def decoded(payload: bytes, path: str) -> Any:
    """What was saved, or a part of it.

    Raises:
        DataLossError: the bytes are not what ``save`` writes.
    """
    try:
        return msgspec.msgpack.decode(payload)
    except (msgspec.MsgspecError, UnicodeError, RecursionError, OverflowError, ValueError) as error:
        raise DataLossError(
            f"{path} is damaged: its content is no state ({error}). Restore an older one"
        ) from None
