"""Tests of the table of cases and its match with the peers."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from benchmarks.cases import CASES, PEERS, Case, Goal, chosen, quickly, ways
from benchmarks.peers import MODULES
from benchmarks.reading import MEASURES

PEERS_FOLDER = Path(__file__).parents[2] / "benchmarks" / "peers"


def settings_of(peer: str) -> set[str]:
    """Return the settings of a peer's module without importing it. Its library may not
    be installed.
    """
    tree = ast.parse((PEERS_FOLDER / f"{MODULES[peer]}.py").read_text(encoding="utf-8"))
    [found] = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "SETTINGS"
    ]
    return set(ast.literal_eval(found))


@pytest.mark.parametrize("peer", PEERS)
def test_every_setting_is_measured_and_explained(peer: str) -> None:
    """The cases name exactly the settings that the peer's module explains."""
    assert {way.setting for case in CASES for way in case.ways if way.peer == peer} == settings_of(
        peer
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_goals_compare_what_is_measured(case: Case) -> None:
    """Both sides of each goal take part in its case, whose measure exists."""
    taking_part = {(way.peer, way.setting) for way in case.ways}
    for goal in case.goals:
        assert ("zmqdata", goal.ours) in taking_part
        assert goal.peer in {"", *(way.peer for way in case.ways)}
        assert {(goal.peer, setting) for setting in goal.settings} <= taking_part
        assert (goal.least > 0) == bool(goal.peer) != (goal.most > 0)
    assert case.measure in MEASURES


def test_case_names_differ() -> None:
    """Each case has a unique name."""
    assert len({case.name for case in CASES}) == len(CASES)


def test_cases_and_peers_can_be_chosen() -> None:
    """Cases are selected by a part of their name; ways of other peers are left out."""
    [case] = chosen(["19 MB"], ["zmqdata", "torch"])
    assert case.name == "19 MB float32 batches"
    assert {way.peer for way in case.ways} == {"zmqdata", "torch"}
    assert list(chosen([], [])) == list(CASES)


def test_a_case_without_anybody_is_left_out() -> None:
    """A case without any selected peer is not run."""
    assert [case.name for case in chosen([], ["ray"]) if "link" in case.name] == []


@pytest.mark.parametrize(
    ("cases", "peers", "named"), [(["20 MB"], [], "19 MB"), ([], ["spark"], "tfdata")]
)
def test_a_name_that_does_not_exist_is_an_error(
    cases: list[str], peers: list[str], named: str
) -> None:
    """The error about an unknown name lists the valid names."""
    with pytest.raises(ValueError, match=named):
        list(chosen(cases, peers))


def test_what_goals_name() -> None:
    """A goal names our setting, and the peer's settings that it is limited to."""
    goals = (Goal("default", 2, "tfdata", ("AUTO",)), Goal("tcp", 3, "torch"))
    case = Case("a case", "images", (), goals)
    assert [case.named(peer) for peer in ("zmqdata", "tfdata", "torch")] == [
        {"default", "tcp"},
        {"AUTO"},
        set(),
    ]


def test_a_quick_run_leaves_settings_out() -> None:
    """A quick run measures the settings that goals name, or a peer's first."""
    goals = (Goal("default", 2, "tfdata", ("AUTO", "uncompressed")),)
    taking_part = ways(
        zmqdata="tcp|default", tfdata="AUTO|uncompressed|more", torch="numpy|shared tensors"
    )
    left = quickly(Case("a case", "images", taking_part, goals, longer=3.0))
    assert left.ways == ways(zmqdata="default", tfdata="AUTO|uncompressed", torch="numpy")
    assert left.longer == 1.0
