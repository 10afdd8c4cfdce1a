"""Bad nodes and links are named exactly on drawn fleets, nobody by guess, and rounds are never mixed."""

from __future__ import annotations

import random
import uuid
from collections import Counter

import pytest

from benchmarks.diagnostics import isolation as drawn
from benchmarks.diagnostics import returns
from probing_cluster.core import errors
from probing_cluster.diagnostics import isolation

ROUND = uuid.UUID(int=1)


def test_one_bad_node_is_named_in_every_fleet_from_two_to_sixty_four() -> None:
    """Exactly it, whatever the size; two need references."""
    draw = random.Random(1)
    for n in range(2, 65):
        for _ in range(4):
            fleet = drawn.drawn(n, 1, draw, references=2 if n == 2 else 0)
            nodes, links, _ = drawn.ours(fleet)
            assert (nodes, links) == (set(fleet.bad), set()), (n, fleet.bad)


def test_up_to_a_quarter_bad_is_named_from_eight_nodes_on() -> None:
    draw = random.Random(2)
    for n in range(8, 65):
        for _ in range(3):
            fleet = drawn.drawn(n, draw.randint(0, n // 4), draw)
            nodes, links, rounds = drawn.ours(fleet)
            assert (nodes, links) == (set(fleet.bad), set())
            assert rounds <= 12


def test_tests_that_fail_by_chance_accuse_no_innocent_and_hide_no_bad_node() -> None:
    """One in fifty: a partner that failed once by chance may still speak against a bad node."""
    draw, right = random.Random(4), 0
    for n in range(8, 48):
        fleet = drawn.drawn(n, draw.randint(0, n // 8), draw)
        fleet.chance = 0.02
        nodes, links, _ = drawn.ours(fleet)
        assert (nodes - fleet.bad, links) == (set(), set())
        right += nodes == fleet.bad
    assert right >= 37


def test_one_bad_link_is_no_bad_node() -> None:
    """Both its nodes are proven by others."""
    draw = random.Random(3)
    for n in range(2, 17):
        for _ in range(5):
            fleet = drawn.drawn(n, 0, draw, links=1, references=2 if n == 2 else 0)
            nodes, links, _ = drawn.ours(fleet, every_link=True)
            assert (nodes, links) == (set(), set(fleet.bad_links))


def test_a_bad_reference_is_found_and_accuses_nobody() -> None:
    """Of two references one is bad: the node under test is proven by the other."""
    for bad in ("r0", "r1"):
        fleet = drawn.Fleet(names=("a",), references=("r0", "r1"), bad=frozenset({bad}))
        case = isolation.IsolationCase(ROUND, fleet.names, fleet.references)
        while pairs := case.next_pairs():
            case.add(isolation.PairResult(round_id=ROUND, pair=p, passed=fleet.passes(p)) for p in pairs)
        assert case.outcome().bad_nodes in {(), (bad,)}
        assert "a" in case.outcome().proven


@pytest.mark.parametrize("references", [(), ("r0",)])
def test_two_that_accuse_each_other_without_enough_references_stay_open(references: tuple[str, ...]) -> None:
    """Nobody is accused by guess; what is missing is said."""
    fleet = drawn.Fleet(names=("a", "b"), references=references, bad=frozenset({"a", "b"}))
    case = isolation.IsolationCase(ROUND, fleet.names, references)
    while pairs := case.next_pairs():
        case.add(isolation.PairResult(round_id=ROUND, pair=p, passed=fleet.passes(p)) for p in pairs)
    found = case.outcome()
    assert found.bad_nodes == ()
    assert set(found.open_nodes) >= {"a", "b"}
    assert "reference" in found.why


def test_a_pair_without_an_answer_accuses_nobody_and_is_asked_once_more() -> None:
    case = isolation.IsolationCase(ROUND, ("a", "b"))
    for _ in range(2):
        (pair,) = case.next_pairs()
        case.void(pair)
    assert case.next_pairs() == ()
    assert (case.outcome().bad_nodes, case.outcome().open_nodes) == ((), ("a", "b"))


def test_results_of_another_round_are_refused() -> None:
    case = isolation.IsolationCase(ROUND, ("a", "b", "c"))
    other = isolation.PairResult(round_id=uuid.UUID(int=2), pair=("a", "b"), passed=True)
    with pytest.raises(errors.MalformedInput, match="round"):
        case.add([other])


def test_dlrover_as_its_source_has_it_gives_up_at_three_and_errs_at_five() -> None:
    """The baseline is the published one: never right up to three nodes, three in five cases at five."""
    draw = random.Random(5)
    assert all(drawn.dlrover(drawn.drawn(3, 1, draw)) == set() for _ in range(20))
    fleets = [drawn.drawn(5, 1, draw) for _ in range(400)]
    right = sum(drawn.dlrover(fleet) == set(fleet.bad) for fleet in fleets)
    assert 200 < right < 280


@pytest.mark.parametrize("references", [2, 3])
def test_a_lone_node_that_is_dead_to_all_is_named(references: int) -> None:
    """Its references are tested with each other: before that nobody is proven, and everybody a candidate."""
    draw = random.Random(6)
    for _ in range(20):
        fleet = drawn.drawn(1, 1, draw, references=references)
        nodes, links, _ = drawn.ours(fleet)
        assert (nodes, links) == ({"n0"}, set())


def _ends(spot: str, references: int, **given: float) -> tuple[Counter[str], list[returns.Repair]]:
    draw = random.Random(8)
    repairs = [returns.drawn(spot, references, draw, **given) for _ in range(150)]
    return Counter(one.end() for one in repairs), repairs


@pytest.mark.parametrize("references", [1, 2, 3])
@pytest.mark.parametrize("often", [1.0, 0.7, 0.5])
def test_a_node_that_fails_at_times_seldom_returns_and_is_accused_alone(
    references: int, often: float
) -> None:
    """Half of its tests fail, one in a hundred by chance and one in twenty gives no answer."""
    ends, repairs = _ends("the node", references, often=often, noise=0.01, silence=0.05)
    assert ends["returned"] <= 3
    assert ends["accused"] >= 140
    assert not any(one.accused - {returns.NODE} for one in repairs)
    assert sum(bool(one.accused_links) for one in repairs) <= 3, "a node that fails at times is no bad link"


@pytest.mark.parametrize("spot", ["a reference", "a link of references", "nothing"])
@pytest.mark.parametrize("often", [1.0, 0.5])
def test_a_node_that_is_well_returns_and_no_innocent_is_accused(spot: str, often: float) -> None:
    ends, repairs = _ends(spot, 2, often=often, noise=0.01, silence=0.05)
    assert ends["returned"] >= 140
    assert not any(one.accused - one.bad for one in repairs)


def test_two_bad_references_accuse_no_innocent() -> None:
    for often in (1.0, 0.7, 0.5):
        ends, repairs = _ends("two references", 2, often=often, noise=0.01, silence=0.05)
        assert not any(one.accused - one.bad for one in repairs), often
        assert ends["accused"] == 0


def test_a_bad_link_keeps_its_node_out_and_makes_no_node_bad() -> None:
    ends, repairs = _ends("its link to a reference", 2, often=1.0, noise=0.01, silence=0.05)
    assert ends["returned"] <= 3
    assert not any(one.accused for one in repairs)
    assert sum(one.accused_links == set(one.bad_links) for one in repairs) >= 130
    ends, repairs = _ends("its link to a reference", 2, often=0.5, noise=0.01, silence=0.05)
    assert not any(one.accused for one in repairs)
