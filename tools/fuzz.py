"""Fuzz every decoder with coverage guidance: ``make fuzz``.

    python tools/fuzz.py [TARGET ...] [--runs 2000000] [--seconds N]

For any input, a decoder returns a value or raises an error that it promises, within a
stated amount of memory. A run that finds anything else writes the input to a file named
``crash-...``; ``python tools/fuzz.py TARGET --file crash-...`` reproduces it. Checksums
are corrected where an input has any, since the decoder would otherwise reject every
mutated input.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import struct
import sys
import tempfile
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    import atheris

    # Instrumentation reports the branches that decoders take. It takes seconds, so it
    # is done once for all targets.
    watched = atheris.instrument_imports(include=["zmqdata"])
else:
    watched = contextlib.nullcontext()

with watched:
    import msgspec
    import numpy as np

    from zmqdata import journal, wire
    from zmqdata import messages as m
    from zmqdata import updates as u
    from zmqdata.blocks import BlockBuilder, whole
    from zmqdata.blocks.compression import decode_buffer
    from zmqdata.client.decoding import decode_message
    from zmqdata.core.dispatcher.passes import checkpoints
    from zmqdata.core.dispatcher.state.state import DispatcherState
    from zmqdata.dataset import Dataset, resuming
    from zmqdata.elements import specs
    from zmqdata.elements.ragged import RaggedTensor
    from zmqdata.errors import (
        DataLossError,
        FailedPreconditionError,
        InvalidArgumentError,
        PipelineError,
        ProtocolError,
    )
    from zmqdata.failures.codec import decode_failure, encode_failure
    from zmqdata.iterators.states import UNFIT
    from zmqdata.splits import IndexSplits, Split
    from zmqdata.storage import chunks, manifests
    from zmqdata.transport import keys

MOST_MEGABYTES = 256
"""Limit of a decoder's memory for any input; inputs have a few kilobytes at most."""
MOST_INPUT = 4096
"""Limit of an input's bytes."""


@dataclass(frozen=True)
class Target:
    """A decoder under test."""

    decode: Callable[[bytes], object]
    """The decoder."""
    promised: tuple[type[Exception], ...]
    """Errors that it may raise."""
    seeds: Callable[[], Sequence[bytes]]
    """Returns the inputs to start from."""

    def feed(self, content: bytes) -> None:
        """Decode an input; errors that the decoder promises are not faults."""
        with contextlib.suppress(*self.promised):
            self.decode(content)


# --- several frames in one input


def joined(frames: Sequence[bytes | memoryview]) -> bytes:
    """Encode frames as a single input: their number, the length of each, their
    bytes.
    """
    flat = [bytes(frame) for frame in frames]
    return (
        bytes([len(flat)])
        + b"".join(struct.pack(">H", len(frame)) for frame in flat)
        + b"".join(flat)
    )


def parted(content: bytes) -> list[bytes]:
    """Decode the frames of an input, whatever it claims."""
    count = content[0] % 16 if content else 0
    lengths = [int.from_bytes(content[1 + 2 * one : 3 + 2 * one], "big") for one in range(count)]
    rest, frames = content[1 + 2 * count :], []
    for length in lengths:
        frames.append(rest[:length])
        rest = rest[length:]
    return frames


# --- control messages and their content

JOB = m.JobParameters("job", "dataset", "DYNAMIC")
DESCRIPTION = m.DatasetDescription(
    "0" * 64, "print", (IndexSplits(10),), "", None, 10, None, "3.11", "0"
)


def control_seeds() -> list[bytes]:
    asks = [
        m.OpenIteration("k", JOB, 0, m.Reader(1, "t")),
        m.ClientHeartbeat("k", 1, 2, {3: ((0, 5), (7, 9))}, beat=4, done=4),
        m.RegisterDataset("r", "d", DESCRIPTION, b"pipeline"),
        m.RegisterWorker("w", "tcp://h:1", ("GPU",), "3.11", "0", (m.TaskReport(1, 1, 5, None),)),
        m.Grant("l", 4, (m.StreamGrant(1, 1, 10, 1000, 0, 0, 0),)),
        m.TasksChanged("k", m.TaskList(1, (m.TaskPlace(1, 1, "w", "tcp://h:1"),), True)),
        m.MayEnd("k", 3),
    ]
    return [wire.pack(ask)[1] for ask in asks]


def decode_control(content: bytes) -> None:
    """Decode by each kind of socket; a message for another socket is an error."""
    found = 0
    for unpacker in (wire.to_dispatcher, wire.to_client, wire.to_worker):
        try:
            unpacker.control([wire.MAGIC, content])
        except ProtocolError:
            found += 1
    if found == 3:
        raise ProtocolError("no socket accepts the message")


def header_seeds() -> list[bytes]:
    told = [
        m.Block(1, 2, 3, 4, 5, 0, 100, b"meta"),
        m.EndOfTask(1, 2, 3, 4),
        m.Lineage(1, 2, 3, (0,), ((),), ()),
    ]
    return [wire.pack_header(one) for one in told]


# --- elements


def elements() -> list[Any]:
    rows = np.arange(12, dtype=np.int32)
    return [
        rows,
        {"a": rows.reshape(3, 4), "b": (np.float32(1), "text", b"bytes")},
        RaggedTensor.from_row_lengths(rows, np.array([5, 0, 7])),
        (np.zeros((2, 0), np.uint8), np.array(["a", "bc"]), True),
        rows.astype("datetime64[s]"),
    ]


def blocks() -> list[list[bytes]]:
    """Return header and frames of blocks, uncompressed and compressed."""
    found = []
    for compression in (None, "lz4"):
        for element in [*elements(), {"o": complex(1, 2), "p": [1, {2}]}]:
            builder = BlockBuilder()
            for _ in range(3):
                builder.add(element)
            block = builder.build(compression)
            header = m.Block(1, 2, 3, 0, block.count, 0, block.nbytes, block.meta)
            found.append(
                [wire.pack_header(header), *(bytes(whole(frame)) for frame in block.frames)]
            )
    return found


def decode_frames(content: bytes) -> None:
    """Decode with and without objects; without objects, no pickle may be opened."""
    frames = parted(content)
    for allow_objects in (False, True):
        try:
            _, found = decode_message(frames, allow_objects=allow_objects)
            if found is not None and not isinstance(found, Exception):
                found.elements()
        except ProtocolError:
            if allow_objects:
                raise


def compressed_seeds() -> list[bytes]:
    """Return inputs of a byte count and a blosc chunk, in whose header a fuzzer can
    forge the sizes.
    """
    found = []
    for dtype in (np.uint8, np.float64):
        builder = BlockBuilder()
        builder.add(np.zeros(500, dtype))
        frame = bytes(whole(builder.build("lz4").frames[0]))
        found.append(struct.pack(">I", 500 * np.dtype(dtype).itemsize) + frame)
    return found


def decode_compressed(content: bytes) -> None:
    nbytes = int.from_bytes(content[:4], "big") % (1 << 20)
    frame = memoryview(content[4:])
    decode_buffer(frame, nbytes, (frame.nbytes,) if frame.nbytes else (), own=True)


# --- files


SALT = 7


def journal_seeds() -> list[bytes]:
    """Return the updates of a turn without the record's checksum, which would reject
    mutations.
    """
    facts = [
        u.RegisterDatasetUpdate("dataset", DESCRIPTION),
        u.BeginIncarnationUpdate(1, JOB),
        u.CreateIterationUpdate(2000, 1, 0, 1, 0),
        u.OpenClientUpdate("k", 2000, (), None),
        u.CreateTaskUpdate(7000, 2000, 1),
        u.HostTaskUpdate(7000, 1, "w"),
        u.DeliverUpdate(7000, ((0, 3),), "k"),
        u.EndTaskUpdate(7000, 3),
    ]
    return [msgspec.msgpack.encode(facts), *(msgspec.msgpack.encode([fact]) for fact in facts)]


def decode_journal(content: bytes) -> None:
    start = journal.JournalEncoder(SALT).begin([])
    for written in (content, start + content, start + journal._record(SALT, 1, content)):
        with contextlib.suppress(DataLossError, FailedPreconditionError):
            journal.read_journal(written, "journal", DispatcherState(1).apply)


def sealed_checkpoint(content: bytes) -> bytes:
    return content + zlib.crc32(content).to_bytes(4, "big")


def decode_checkpoint(content: bytes) -> None:
    one = m.decode_checkpoint(sealed_checkpoint(content))
    checkpoints.joined([one], DESCRIPTION.sources or ())


def checkpoint_seeds() -> list[bytes]:
    ledger = ((Split(0, 0, 4),),)
    states = (m.TaskState(2, b"state", (1,)),)
    tasks = (m.TaskPart(0, 1, None, (0,), ledger, states, ((0, 3),), None),)
    sources = (m.SourcePart(0, ((4, 5),)),)
    one = m.Checkpoint(
        m.CHECKPOINT_VERSION, JOB, "f", 0, 1, 0, m.Reader(), "part", ("part",), sources, tasks
    )
    return [m.encode_checkpoint(one)[:-4]]


def decode_saved(content: bytes) -> None:
    """Decode a block of a saved chunk with a correct checksum."""
    header_size = int.from_bytes(content[:2], "big")
    rest = content[2:]
    sizes = min(header_size, len(rest)), max(0, len(rest) - header_size)
    head = manifests.HEAD.pack(manifests.MARK, *sizes, zlib.crc32(rest))
    found = chunks.read_block(io.BytesIO(head + rest))
    if found is not None:
        found.elements()


def saved_seeds() -> list[bytes]:
    found = []
    for element in elements():
        builder = BlockBuilder(allow_objects=False)
        builder.add(element)
        block = builder.build("lz4")
        frames = [bytes(whole(frame)) for frame in block.frames]
        header = msgspec.msgpack.encode((block.meta, [len(frame) for frame in frames]))
        found.append(struct.pack(">H", len(header)) + header + b"".join(frames))
    return found


def decode_manifest(content: bytes) -> None:
    """Decode the description of a folder; its checksum is corrected if it is JSON at
    all.
    """
    with contextlib.suppress(ValueError, TypeError, RecursionError):
        decoded = json.loads(content)
        decoded["checksum"] = manifests._checksum(decoded)
        content = json.dumps(decoded).encode()
    for kind in (manifests.Manifest, manifests.SaveDescription, manifests.SaveError):
        try:
            manifests._unseal(content, "manifest", kind)
        except DataLossError:
            if kind is manifests.SaveError:
                raise


@cache
def pipelines() -> list[Dataset]:
    """Return pipelines whose states differ in form: numbers, lists, elements, states of
    other operations.
    """
    ten, files = Dataset.range(10), Dataset.from_tensor_slices(np.arange(40).reshape(20, 2))
    return [
        ten.shuffle(4, seed=1).batch(2).repeat(2),
        files.shard(2, 1).skip(1).filter(lambda x: x[0] % 3 > 0).enumerate(),
        Dataset.zip(ten, files.prefetch(2)).map(lambda x, y: y, num_parallel_calls=2),
        ten.interleave(lambda x: Dataset.range(int(x)), cycle_length=3).batch(2).unbatch(),
        ten.window(3, 1).flat_map(lambda part: part).take_while(lambda x: x < 8),
        ten.group_by_window(lambda x: x % 2, lambda key, part: part.batch(2), window_size=3),
        Dataset.sample_from_datasets([ten, ten.concatenate(ten)], seed=2).scan(
            0, lambda s, x: (s + 1, x)
        ),
        ten.bucket_by_sequence_length(lambda x: 1, [2], [2, 2]).cache(),
        ten.random_map(lambda x, draw: x, seed=3).batch(2).rebatch(3),
    ]


@cache
def state_seeds() -> list[bytes]:
    """Return inputs of a pipeline's number and its position: at the start, in the
    middle, at the end.

    They are made before any forged state is loaded, since a dataset keeps what its
    cache adopts from a state.
    """
    found = []
    for number, dataset in enumerate(pipelines()):
        for count in (0, 3, 100):
            iterator = iter(dataset)
            deque(islice(iterator, count), maxlen=0)
            found.append(
                bytes([number]) + msgspec.msgpack.encode(iterator.state_dict()["position"])
            )
            iterator.close()
    return found


def decode_state(content: bytes) -> None:
    """Restore from a state file with a correct checksum. Forgeries beyond that show
    when the iterator continues.
    """
    iterator = iter(pipelines()[content[0] % len(pipelines()) if content else 0])
    position = resuming.decoded(content[1:], "state")
    iterator.load_state_dict(iterator.state_dict() | {"position": position})
    with contextlib.suppress(*UNFIT):
        iterator.close()


def decode_key(content: bytes) -> None:
    keys.parse(content.decode(errors="replace"))


TARGETS = {
    "control": Target(decode_control, (ProtocolError,), control_seeds),
    "header": Target(wire.on_link.header, (ProtocolError,), header_seeds),
    "frames": Target(
        decode_frames, (ProtocolError,), lambda: [joined(frames) for frames in blocks()]
    ),
    "compressed": Target(decode_compressed, (ProtocolError,), compressed_seeds),
    "failure": Target(
        decode_failure, (ProtocolError,), lambda: [encode_failure(ValueError("x"), 1, "w")]
    ),
    "spec": Target(
        specs.decode_spec,
        (ProtocolError,),
        lambda: [specs.encode_spec(specs.spec_of(one)) for one in elements()[:3]],
    ),
    "checkpoint": Target(
        decode_checkpoint, (DataLossError, InvalidArgumentError), checkpoint_seeds
    ),
    "journal": Target(decode_journal, (), journal_seeds),
    "saved": Target(decode_saved, (DataLossError,), saved_seeds),
    "manifest": Target(
        decode_manifest,
        (DataLossError,),
        lambda: [json.dumps({"chunks": [], "format": 1}).encode(), b"[" * 2000],
    ),
    "state": Target(
        # The state holds keys of groups, for which the user's functions are called
        # again.
        decode_state,
        (DataLossError, InvalidArgumentError, FailedPreconditionError, PipelineError),
        state_seeds,
    ),
    "key": Target(decode_key, (DataLossError,), lambda: [keys.render(keys.new_key()).encode()]),
}


def fuzz(name: str, arguments: Sequence[str]) -> None:
    """Fuzz a target in this process until a fault is found or the limit is reached;
    never return.
    """
    atheris.Setup([sys.argv[0], *arguments], TARGETS[name].feed)
    atheris.Fuzz()


def run(name: str, runs: int, seconds: int, file: str | None) -> int:
    """Fuzz a target in a child process, starting from its seeds; return the exit
    code.
    """
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as said:
        for number, seed in enumerate(TARGETS[name].seeds()):
            (Path(folder) / f"seed-{number}").write_bytes(seed)
        limits = [
            f"-rss_limit_mb={1024 + MOST_MEGABYTES}",
            f"-malloc_limit_mb={MOST_MEGABYTES}",
            "-timeout=10",
        ]
        bounds = [f"-runs={runs}", f"-max_len={MOST_INPUT}", "-print_final_stats=1", "-verbosity=0"]
        bounds += [f"-max_total_time={seconds}"] if seconds else []
        child = os.fork()
        if not child:
            os.dup2(said.fileno(), sys.stderr.fileno())
            fuzz(name, [*limits, *bounds, file if file is not None else folder])
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        said.seek(0)
        told = said.read().decode(errors="replace")
    executed = re.search(r"stat::number_of_executed_units: *([0-9]+)", told)
    outcome = "a fault" if code else "no fault"
    print(f"{name}: {int(executed[1]) if executed else 0:,} executions, {outcome}", flush=True)
    if code:
        print(told[-4000:])
    return code


def main() -> int:
    """Fuzz the named targets, or all; return 1 if a fault was found."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument(
        "target", nargs="*", choices=[[], *TARGETS], help="decoders to fuzz; all if left out"
    )
    parser.add_argument("--runs", type=int, default=2_000_000, help="executions of each")
    parser.add_argument("--seconds", type=int, default=0, help="time limit of each; 0: no limit")
    parser.add_argument("--file", help="decode only the content of this file")
    chosen = parser.parse_args()
    return max(
        min(1, run(name, chosen.runs, chosen.seconds, chosen.file))
        for name in chosen.target or TARGETS
    )


if __name__ == "__main__":
    sys.exit(main())
