"""What goes into a core and what comes out of it, beside messages: events and commands. Descriptions only.

A shell feeds events with the time they were noticed, and carries out commands in their order. ``peer`` is whatever a
shell needs to reach somebody (a routing id, a socket, a name in a simulation): cores compare and store it, no more.

``shared`` has those of every core, ``dispatcher``, ``worker`` and ``consumer`` those of one. ``saves`` is not repeated
here: only those who save know it.
"""

from __future__ import annotations

from zmqdata.commands.consumer import (
    Arrived,
    Closed,
    CloseRequested,
    ConnectLink,
    Deliver,
    DisconnectLink,
    Finish,
    HandedOut,
    LinkBroken,
    Weave,
)
from zmqdata.commands.dispatcher import (
    Commit,
    DropPipeline,
    FilesListed,
    ListFiles,
    PartLost,
    SendPiece,
    SendPipeline,
    StorePipeline,
)
from zmqdata.commands.shared import (
    DISPATCHER,
    KeepPiece,
    Note,
    Peer,
    PieceKept,
    Received,
    Send,
    Tick,
    Unreachable,
)
from zmqdata.commands.worker import (
    AllowProduction,
    BindLink,
    ClaimPart,
    Exhausted,
    FeedSplits,
    FlushTask,
    LedgerCut,
    LinkBound,
    PartClaimed,
    Produced,
    Push,
    ReleaseParts,
    ReturnSplits,
    SplitsWanted,
    StartTask,
    StateTaken,
    StopTask,
    TaskFailed,
    UnbindLink,
)

__all__ = [
    "DISPATCHER",
    "AllowProduction",
    "Arrived",
    "BindLink",
    "ClaimPart",
    "CloseRequested",
    "Closed",
    "Commit",
    "ConnectLink",
    "Deliver",
    "DisconnectLink",
    "DropPipeline",
    "Exhausted",
    "FeedSplits",
    "FilesListed",
    "Finish",
    "FlushTask",
    "HandedOut",
    "KeepPiece",
    "LedgerCut",
    "LinkBound",
    "LinkBroken",
    "ListFiles",
    "Note",
    "PartClaimed",
    "PartLost",
    "Peer",
    "PieceKept",
    "Produced",
    "Push",
    "Received",
    "ReleaseParts",
    "ReturnSplits",
    "Send",
    "SendPiece",
    "SendPipeline",
    "SplitsWanted",
    "StartTask",
    "StateTaken",
    "StopTask",
    "StorePipeline",
    "TaskFailed",
    "Tick",
    "UnbindLink",
    "Unreachable",
    "Weave",
]
