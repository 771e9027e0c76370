"""The table of cases: elements, peers with their settings, and goals. Descriptions
only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

PEERS = {
    "zmqdata": "zmqdata",
    "tfdata": "tf.data service",
    "torch": "torch DataLoader",
    "grain": "Grain",
    "ray": "Ray Data",
    "bare": "the machine",
}
"""Names of the peers in tables. ``bare`` is the machine without any library."""

OURS = "zmqdata"
MACHINE = "bare"


@dataclass(frozen=True, order=True)
class Way:
    """A peer with a setting."""

    peer: str
    """Key of the peer in ``PEERS``."""
    setting: str
    """Name of the setting."""

    def __str__(self) -> str:
        return f"{PEERS[self.peer]} ({self.setting})"


@dataclass(frozen=True)
class Goal:
    """A goal for a setting of zmqdata: a ratio to the best of a peer's settings, or a
    time.
    """

    ours: str
    """zmqdata's setting."""
    least: float = 0.0
    """Smallest ratio to the peer; 0 for a goal in seconds."""
    peer: str = ""
    """Peer to compare with; empty to compare with ``most``."""
    settings: tuple[str, ...] = ()
    """Settings of the peer, of which the best counts; empty for all."""
    most: float = 0.0
    """Limit in seconds."""


@dataclass(frozen=True)
class Case:
    """A line of the table."""

    name: str
    """Name in tables and on the command line."""
    element: str
    """Name of the kind of element in ``workloads``."""
    ways: tuple[Way, ...]
    """Peers and settings that take part."""
    goals: tuple[Goal, ...] = ()
    """Goals to reach."""
    measure: str = "rate"
    """Key of ``reading.MEASURES``: elements per second, or seconds to the first
    element.
    """
    workers: int = 1
    """Number of processes that run the pipeline."""
    longer: float = 1.0
    """Factor of the usual reading time, for elements that are slow or come in
    bursts.
    """
    rate: str = ""
    """Bandwidth between workers and client, for ``tc``; empty on a single host."""
    note: str = ""
    """Note on the figures."""

    @property
    def more_is_better(self) -> bool:
        return self.measure == "rate"

    def named(self, peer: str) -> set[str]:
        """Return the settings of a peer that goals name; they must be measured in every
        repetition.
        """
        ours = {goal.ours for goal in self.goals} if peer == OURS else set()
        return ours.union(*(goal.settings for goal in self.goals if goal.peer == peer))


def ways(**settings: str) -> tuple[Way, ...]:
    """Return ways from a text of settings separated by ``|`` for each peer."""
    return tuple(
        Way(peer, setting) for peer, text in settings.items() for setting in text.split("|")
    )


UNBATCHED = ("AUTO", "uncompressed")
SMALL = ways(
    zmqdata="default|tcp",
    tfdata="AUTO|uncompressed|uncompressed, batches",
    torch="numpy|shared tensors|numpy, batches|shared tensors, batches",
    grain="single|batches",
    ray="iter_rows|iter_batches",
)
IMAGES = ways(
    zmqdata="default|tcp",
    tfdata="AUTO|uncompressed",
    torch="numpy|shared tensors|shared tensors, batches",
    grain="single",
    ray="iter_rows|iter_batches",
)
BATCHES = ways(
    zmqdata="default|tcp|tcp, encrypted",
    tfdata="AUTO|uncompressed",
    torch="numpy|shared tensors",
    grain="single",
    ray="iter_rows",
)
EVERYDAY = ways(
    zmqdata="default", torch="shared tensors, batches", grain="single|batches", ray="iter_batches"
)
LINK = ways(zmqdata="default", tfdata="AUTO|uncompressed")
LINK_NOTE = "1 Gbit/s between workers and client"


def large(
    name: str, element: str, default: float, tcp: float, torch: float, taking_part: tuple[Way, ...]
) -> Case:
    """Return a case of large elements, by default and over plain TCP."""
    goals = (
        Goal("default", default, "tfdata"),
        Goal("default", torch, "torch"),
        Goal("tcp", tcp, "tfdata", ("uncompressed",)),
    )
    if taking_part is BATCHES:
        goals += (Goal("tcp, encrypted", 0.6, "tfdata", ("uncompressed",)),)
    return Case(name, element, taking_part, goals, longer=2.0 if taking_part is BATCHES else 1.0)


def over_link(name: str, element: str, least: float) -> Case:
    goals = (Goal("default", least, "tfdata", ("AUTO",)),)
    return Case(name, element, LINK, goals, rate="1gbit", longer=1.5, note=LINK_NOTE)


def first(name: str, measure: str, most: float) -> Case:
    taking_part = ways(zmqdata="default", tfdata="uncompressed")
    return Case(name, "scalars", taking_part, (Goal("default", most=most),), measure)


CASES = (
    Case(
        "int64 scalars",
        "scalars",
        SMALL,
        (Goal("default", 300, "tfdata", UNBATCHED), Goal("default", 1.5, "ray", ("iter_rows",))),
    ),
    Case("1 KB arrays", "kilobytes", SMALL, (Goal("default", 150, "tfdata", UNBATCHED),)),
    Case("dict(28x28 uint8, int64)", "digits", SMALL, (Goal("default", 100, "tfdata", UNBATCHED),)),
    large("150 KB images", "images", 10, 4, 3, IMAGES),
    large("4.8 MB uint8 batches", "batches", 6, 2, 5, BATCHES),
    large("19 MB float32 batches", "floats", 6, 2, 5, BATCHES),
    first("first element, warm cluster", "first", 0.05),
    Case(
        "splits per second",
        "scalars",
        ways(zmqdata="default", tfdata="fault tolerant"),
        (Goal("default", 100, "tfdata"),),
        note="DYNAMIC, each index a split, journal on",
    ),
    first("first element, cold cluster", "cold", 2.0),
    over_link("photographs over a link", "photographs", 1.15),
    over_link("float32 photographs over a link", "float photographs", 1.2),
    over_link("int64 tokens over a link", "tokens", 1.8),
    *(
        Case(name, name, EVERYDAY, workers=2, longer=3.0)
        for name in ("decoded photographs", "tokenized texts", "windows")
    ),
    Case(
        "2 ms of Python per element",
        "work",
        ways(zmqdata="default", torch="numpy", grain="single", bare="processes"),
        (Goal("default", 0.94, "bare"),),
        workers=2,
        longer=3.0,
    ),
    Case(
        "range.map(x + 1)",
        "increments",
        ways(zmqdata="placement auto|default|local"),
        (Goal("placement auto", 0.95, OURS, ("local",)),),
    ),
    Case(
        "limits, 4.8 MB",
        "batches",
        ways(
            zmqdata="default|tcp|tcp, encrypted",
            bare="memcpy|raw TCP|PUSH/PULL|PUSH/PULL, encrypted",
        ),
        (Goal("default", 0.7, "bare", ("memcpy",)), Goal("tcp", 0.8, "bare", ("PUSH/PULL",))),
    ),
)


def quickly(case: Case) -> Case:
    """Return the case with fewer settings: for each peer the settings that goals name,
    or else the first.
    """
    firsts = {way.peer: way for way in reversed(case.ways)}
    named = tuple(
        w for w in case.ways if w.setting in (case.named(w.peer) or {firsts[w.peer].setting})
    )
    return replace(case, ways=named, longer=1.0)


def chosen(names: list[str], peers: list[str]) -> Iterator[Case]:
    """Yield the cases whose names contain any of these texts, with the ways of these
    peers; empty lists select all.

    Raises:
        ValueError: a text matches no case, or a peer does not exist.
    """
    for peer in peers:
        if peer not in PEERS:
            raise ValueError(f"There is no peer {peer!r}; there are: {', '.join(PEERS)}")
    for name in names:
        if not any(name in case.name for case in CASES):
            raise ValueError(
                f"No case has {name!r} in its name; the cases are: "
                f"{', '.join(c.name for c in CASES)}"
            )
    for case in CASES:
        left = tuple(way for way in case.ways if not peers or way.peer in peers)
        if left and (not names or any(name in case.name for name in names)):
            yield replace(case, ways=left)
