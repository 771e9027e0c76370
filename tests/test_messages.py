"""Tests of the messages: documentation, unions, handlers and round trips."""

from __future__ import annotations

import functools
import math
from typing import Any, get_args, get_type_hints

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zmqdata import messages as m
from zmqdata import wire
from zmqdata.core.client import events as client_events
from zmqdata.core.client.decider import ClientCore, ClientProfile
from zmqdata.core.dispatcher.decider import DispatcherCore
from zmqdata.core.worker import events as worker_events
from zmqdata.core.worker.decider import WorkerCore
from zmqdata.core.worker.profile import WorkerProfile
from zmqdata.messages.measures import MOST_AMOUNT
from zmqdata.messages.parts import MOST_NUMBER
from zmqdata.splits import FileSplits, IndexSplits, Split

KINDS = sorted(m.Message.__subclasses__(), key=lambda kind: kind.__name__)
PARTS = [
    m.DatasetDescription,
    m.JobParameters,
    m.TaskPlace,
    m.Plan,
    m.TaskList,
    m.TaskDefinition,
    m.TaskReport,
]
PARTS += [m.StreamGrant, m.Origin]
MEASURES = [m.TaskSums, m.LoopSums, m.NodeTime, m.ConsumerPace, m.TaskMeasures, m.LoopMeasures]
LIMITED = [m.Span, m.Track, m.RequestTrace, m.SpansReported, m.RequestEcho]
UNIONS = {
    "dispatcher": (wire.to_dispatcher, set(get_args(m.ToDispatcher))),
    "client": (wire.to_client, set(get_args(m.ToClient))),
    "worker": (wire.to_worker, set(get_args(m.ToWorker))),
    "link": (wire.on_link, set(get_args(m.OnLink))),
}
SHARED = {m.Probe: {"client", "worker"}, m.RequestRefused: {"client", "worker"}}
"""Messages with two receivers. The dispatcher sends them to clients and workers, or any
peer sends them to dispatcher and workers.
"""
SHARED[m.RequestStatus] = {"dispatcher", "worker"}
SHARED[m.RequestEcho] = {"dispatcher", "worker"}
SHARED[m.RequestTrace] = {"dispatcher", "worker"}
SHARED[m.PieceSent] = {"client", "worker"}
WITHOUT_CORE = {m.Probe, m.RequestStatus, m.StatusReported, m.DatasetRegistered, m.DatasetDescribed}
WITHOUT_CORE |= {
    m.RequestPart,
    m.PieceStored,
    m.SaveStarted,
    m.RequestAudit,
    m.AuditReported,
    m.RequestScale,
    m.ScaleDecided,
    m.DrainStarted,
    m.RequestEcho,
    m.EchoSent,
    m.RequestTask,
    m.TaskDescribed,
    m.PieceSent,
    m.RecordSpans,
    m.RequestTrace,
    m.TraceRecorded,
}
"""Messages that shells answer or await, as they carry no decision."""

# Counts are nonnegative, and small enough that their sums stay valid numbers.
st.register_type_strategy(int, st.integers(0, MOST_NUMBER))
st.register_type_strategy(float, st.floats(allow_nan=False))
AMOUNTS = st.floats(0, MOST_AMOUNT)
COUNTS = st.dictionaries(st.text(max_size=8), AMOUNTS, max_size=3)


@functools.cache
def instances(part: Any) -> st.SearchStrategy[Any]:
    """Return the instances of a message or a part. Hypothesis asks for those that a
    test needs.
    """
    limited = {
        m.RequestEcho: {"size": st.integers(0, m.MOST_ECHO_BYTES)},
        m.LinkReported: {"demand": AMOUNTS},
        m.EndOfTask: {"counts": COUNTS},
        m.RequestScale: {"interval": st.floats(0, m.MOST_INTERVAL)},
    }.get(part, {})
    hints = {
        name: limited.get(name, st.from_type(hint))
        for name, hint in get_type_hints(part).items()
        if name in part.__struct_fields__
    }
    return st.builds(part, **hints)


@functools.cache
def measures(part: Any) -> st.SearchStrategy[Any]:
    """Return the instances of a struct of measures, whose amounts are limited."""
    counts = {"threads": st.integers(1, 100)}
    amounts = {float: AMOUNTS, float | None: st.none() | AMOUNTS}
    named = {
        name: amounts[hint] if hint in amounts else counts.get(name, st.from_type(hint))
        for name, hint in get_type_hints(part).items()
        if name in part.__struct_fields__
    }
    if "linked" in named:
        named["linked"] = st.tuples(AMOUNTS, AMOUNTS)
    if "counts" in named:
        named["counts"] = COUNTS
    return st.builds(part, **named)


@functools.cache
def limited_instances(part: Any) -> st.SearchStrategy[Any]:
    """Return the instances of a struct with limits on its texts and amounts."""
    short = st.text(max_size=9)
    limited = {
        "size": st.integers(0, m.MOST_ECHO_BYTES),
        "trace": short,
        "row": short,
        "name": short,
        "seconds": st.floats(0, m.MOST_TRACE_SECONDS),
        "error": AMOUNTS,
        "numbers": st.dictionaries(short, st.floats(allow_nan=False), max_size=3),
    }
    named = {
        name: limited.get(name, st.from_type(hint))
        for name, hint in get_type_hints(part).items()
        if name in part.__struct_fields__
    }
    return st.builds(part, **named)


for part in MEASURES:
    st.register_type_strategy(part, measures)
for part in [*PARTS, Split, IndexSplits, FileSplits, *KINDS]:
    st.register_type_strategy(part, instances)
for part in LIMITED:
    st.register_type_strategy(part, limited_instances)


@pytest.mark.parametrize("kind", [*KINDS, *PARTS, *MEASURES], ids=lambda kind: kind.__name__)
def test_every_message_is_documented(kind: type[msgspec.Struct]) -> None:
    """Each message and each part has a docstring of a full sentence."""
    text = (kind.__doc__ or "").strip()
    assert text[:1].isupper()
    assert len(text) > 20
    assert text.endswith((".", "``)."))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_message_has_its_receiver(kind: type[m.Message]) -> None:
    """A message is in the union of each of its receivers and in no other."""
    receivers = {name for name, (_, union) in UNIONS.items() if kind in union}
    assert receivers == SHARED[kind] if kind in SHARED else len(receivers) == 1


def test_who_sends_a_message_is_said_where_it_is_defined() -> None:
    """A message from clients or workers documents its sender, and is never sent back to
    it.
    """
    told = {kind: (kind.__doc__ or "").lower() for kind in KINDS}
    assert all("sent by a" in told[kind] for kind in UNIONS["dispatcher"][1])
    assert not [kind for kind in UNIONS["client"][1] if told[kind].startswith("sent by a client")]
    assert not [kind for kind in UNIONS["worker"][1] if told[kind].startswith("sent by a worker")]


def test_every_message_is_handled() -> None:
    """The receiver's core has a handler for each message that carries a decision."""
    profile = ClientProfile("me", m.JobParameters("job", "dataset", "OFF"), 0, "tcp://d:1")
    handled = {
        "dispatcher": set(DispatcherCore(1).messages),
        "client": set(ClientCore(profile).messages),
        "worker": set(WorkerCore(WorkerProfile("w", "tcp://w")).messages),
    }
    assert {name: UNIONS[name][1] - WITHOUT_CORE for name in handled} == {
        name: kinds - WITHOUT_CORE for name, kinds in handled.items()
    }


def test_everything_is_in_the_facade() -> None:
    """``zmqdata.messages`` exports every message and every part."""
    assert {kind.__name__ for kind in [*KINDS, *PARTS, *MEASURES]} <= vars(m).keys()


@given(st.sampled_from(KINDS).flatmap(st.from_type))
def test_messages_survive_the_wire(message: Any) -> None:
    """Each receiver of a message decodes it unchanged, and the others reject it."""
    for name, (unpacker, union) in UNIONS.items():
        frames = [wire.pack_header(message)] if name == "link" else wire.pack(message)
        unpack = unpacker.header if name == "link" else unpacker.control
        if type(message) in union:
            assert unpack(frames[0] if name == "link" else frames) == message  # type: ignore[arg-type]
        else:
            with pytest.raises(wire.ProtocolError):
                unpack(frames[0] if name == "link" else frames)  # type: ignore[arg-type]


def test_an_echo_is_small() -> None:
    """A request for a longer echo than allowed does not decode, in any server."""
    for unpacker, most in ((wire.to_dispatcher, m.MOST_ECHO_BYTES), (wire.to_worker, 0)):
        assert unpacker.control(wire.pack(m.RequestEcho("r", most))) == m.RequestEcho("r", most)
        for size in (m.MOST_ECHO_BYTES + 1, -1):
            with pytest.raises(wire.ProtocolError):
                unpacker.control(wire.pack(m.RequestEcho("r", size)))


def test_a_trace_is_short() -> None:
    """A longer trace than allowed, or a report of more spans, does not decode."""
    most = m.RequestTrace("r", "t", m.MOST_TRACE_SECONDS)
    assert wire.to_worker.control(wire.pack(most)) == most
    span = m.Span(1, "row", "name", 0.0, 1.0)
    for seconds in (m.MOST_TRACE_SECONDS + 1, -1.0, math.nan):
        with pytest.raises(wire.ProtocolError):
            wire.to_worker.control(wire.pack(m.RequestTrace("r", "t", seconds)))
    many = m.SpansReported("c", "t", 0, (span,) * m.MOST_SPANS_TOLD)
    assert wire.to_dispatcher.control(wire.pack(many)) == many
    for report in (
        m.SpansReported("c", "t", 0, (span,) * (m.MOST_SPANS_TOLD + 1)),
        m.SpansReported("c", "t" * 65, 0, (span,)),
        m.SpansReported("c", "t", 0, (m.Span(1, "x" * (m.MOST_LABEL + 1), "", 0.0, 1.0),)),
        m.SpansReported("c", "t", 0, (m.Span(1, "", "", 0.0, -1.0),)),
    ):
        with pytest.raises(wire.ProtocolError):
            wire.to_dispatcher.control(wire.pack(report))


def test_only_clients_look_at_a_service() -> None:
    """The key of a worker permits no echo, no description of a task, and no
    trace.
    """
    for kind in (m.RequestEcho, m.RequestTask, m.RequestTrace, m.SpansReported):
        assert kind in get_args(m.SAYS["client"])
        assert kind not in get_args(m.SAYS["worker"])


def test_unknown_fields_of_a_later_version_are_ignored() -> None:
    """A field from a later version with the same major number is ignored."""
    frame = msgspec.msgpack.encode({"type": "CloseLink", "link": "k-1", "reason": "new in 1.1"})
    assert wire.to_worker.header(frame) == m.CloseLink("k-1")


def test_new_fields_have_defaults() -> None:
    """A grant and a report from an earlier version are decoded with defaults."""
    grant = msgspec.convert(
        {"task": 1, "attempt": 1, "elements": 1, "bytes": 1, "handed_out": 0}, m.StreamGrant
    )
    report = msgspec.convert({"task": 1, "attempt": 1, "produced": 1, "total": None}, m.TaskReport)
    assert (grant.reported, report.idle, report.incomplete) == (0, 0.0, False)


def test_the_secret_of_a_link_is_in_no_repr() -> None:
    """The link's secret is in no repr: not of its message, nor of the state on either
    side.
    """
    told = (f"{MARK}-1", "tcp://w:1", "a word")
    for one in (
        m.LinkOpened(*told),
        worker_events.LinkBound(*told),
        client_events.ConnectLink(*told),
    ):
        assert "tcp://w:1" in repr(one)
        assert "a word" not in repr(one)
        assert MARK not in repr(one), "its name begins with that of its client"


WITH_SECRETS = [
    m.OpenLink,
    m.LinkOpened,
    m.TaskList,
    m.TaskDefinition,
    m.StorePiece,
    m.PipelineSent,
    m.RegisterDataset,
]
WITH_SECRETS += [
    m.Block,
    m.ClientHeartbeat,
    m.WorkerHeartbeat,
    m.IterationOpened,
    m.OpenIteration,
    m.Grant,
]
MARK, NUMBER = "Mxfw8Zq", 918273645


@pytest.mark.parametrize("kind", WITH_SECRETS, ids=lambda kind: kind.__name__)
def test_no_secret_and_no_content_is_shown(kind: Any) -> None:
    """No repr of a message shows secrets or content, at any depth. The test covers
    tickets, secrets, clients' names, pipelines and elements.
    """
    hidden = {"ticket": NUMBER, "secret": MARK, "process": MARK, "client": MARK, "clients": (MARK,)}
    hidden |= {"link": MARK, "replaces": MARK, "former": MARK}
    filled = {one.name: hidden.get(one.name, MARK.encode()) for one in msgspec.structs.fields(kind)}
    assert {*hidden, "content", "pipeline", "meta", "parts"} & set(filled)
    shown = repr((kind(**filled), m.TaskList((kind(**filled),), 0, 0)))
    assert kind.__name__ in shown
    assert MARK not in shown
    assert str(NUMBER) not in shown
