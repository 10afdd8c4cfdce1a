"""A place is named only if chance does not explain which nodes failed."""

from __future__ import annotations

import importlib
import math
import random
import types
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.attribution import places as drawn
from probing_cluster.attribution.places import layout, scan


def racks(n_racks: int, size: int, *more: tuple[str, layout.Place]) -> layout.NodeLayout:
    """n0, n1 … in racks r0, r1 … of `size`."""
    own = [(f"n{i}", ("rack", f"r{i // size}")) for i in range(n_racks * size)]
    return layout.NodeLayout([*own, *more])


@pytest.fixture(scope="module", name="stats")
def scipys_stats() -> types.ModuleType:
    """SciPy's, loaded where it is asked: importing it takes half a second, and each worker collects this file."""
    return importlib.import_module("scipy.stats")


def nodes(*numbers: int) -> set[str]:
    return {f"n{i}" for i in numbers}


@given(n=st.integers(1, 300), data=st.data())
def test_the_tail_is_the_hypergeometric_one(stats: types.ModuleType, n: int, data: st.DataObject) -> None:
    """As SciPy computes it."""
    m, k = data.draw(st.integers(0, n)), data.draw(st.integers(0, n))
    x = data.draw(st.integers(0, n))
    assert scan.tail(n, m, k, x) == pytest.approx(stats.hypergeom.sf(x - 1, n, m, k), rel=1e-6, abs=1e-12)


def test_a_whole_rack_is_named_and_its_sentence_counts(stats: types.ModuleType) -> None:
    """Seven of the eight nodes of one of a hundred racks, and one far away."""
    found = scan.shared(nodes(*range(16, 23), 700), racks(100, 8))
    assert found is not None
    assert (found.kind, found.name, found.n_failed, found.n_nodes, found.n_all) == ("rack", "r2", 7, 8, 8)
    assert found.sentence.startswith("7 of the 8 nodes of rack r2 (8 failed in all; p = ")
    assert scan.name_in(f"all 8 nodes name fs1; {found.sentence}; {'x'}") == "rack r2"
    assert scan.name_in("all 8 nodes name fs1") == ""
    odds = stats.hypergeom.sf(6, 800, 8, 8) * 100
    assert math.isclose(found.odds, odds, rel_tol=1e-6)


def test_nothing_is_named_on_a_small_cluster_or_by_coincidence() -> None:
    """Neither two racks of two explain the failures, nor three scattered nodes, nor nodes without known places."""
    assert scan.shared(nodes(0, 1), racks(2, 2)) is None
    assert scan.shared(nodes(0, 9, 17), racks(100, 8)) is None
    assert scan.shared({"x", "y", "z"}, racks(100, 8)) is None
    assert scan.shared(set(), layout.NodeLayout([])) is None


def test_places_that_cannot_be_told_apart_are_named_together() -> None:
    """The leaf switch of exactly the rack's nodes."""
    leaf = [(f"n{i}", ("leaf", f"l{i // 8}")) for i in range(800)]
    found = scan.shared(nodes(*range(8)), racks(100, 8, *leaf))
    assert found is not None
    assert "leaf l0 or rack r0" in found.sentence


def test_a_job_on_the_same_nodes_may_be_the_reason() -> None:
    """A job that had exactly the failed nodes explains them as well; a job of half the cluster does not."""
    where, failed = racks(100, 8), nodes(*range(8))
    found = scan.shared(failed, where)
    assert found is not None
    assert scan.job_explains(found, failed, nodes(*range(8)), where)
    assert not scan.job_explains(found, failed, nodes(*range(400)), where)
    assert not scan.job_explains(found, failed, nodes(*range(3)), where)


@pytest.mark.parametrize(
    ("draws", "least", "most_wrong"), [(60, 54, 1), pytest.param(200, 190, 2, marks=pytest.mark.soak)]
)
@pytest.mark.parametrize("kind", [*drawn.KINDS, "nothing"])
def test_drawn_faults(kind: str, draws: int, least: int, most_wrong: int) -> None:
    """The right place in 95 of 100 drawn faults, and one false in 100 draws of nothing at most; wrong places hardly ever."""
    right, together, wrong, _ = drawn.run(kind, draws, seed=7)
    assert wrong <= most_wrong
    assert kind == "nothing" or right + together >= least


def test_discoveries_are_benjamini_and_hochbergs(stats: types.ModuleType) -> None:
    """As SciPy adjusts them."""
    rng = random.Random(3)
    p_values = [rng.random() ** 3 for _ in range(200)]
    adjusted = stats.false_discovery_control(p_values)
    assert scan.discoveries(p_values, 0.05) == [bool(a <= 0.05) for a in adjusted]
    assert scan.discoveries([], 0.05) == []


def test_excess_names_the_rack_that_fails_more(stats: types.ModuleType) -> None:
    """Twelve failures where two are expected; each kind against its own."""

    def rack(i: int, n: int) -> tuple[layout.Place, int, float]:
        return ("rack", f"r{i}"), n, 8.0

    rows: Iterable[tuple[layout.Place, int, float]] = [
        rack(0, 12),
        *(rack(i, 2) for i in range(1, 50)),
        (("leaf", "l"), 110, 400.0),
    ]
    ((place, n, expected, p),) = scan.excess(rows, 0.01)
    assert (place, n) == (("rack", "r0"), 12)
    assert expected == pytest.approx(110 / 50)
    assert p == pytest.approx(stats.binom.sf(11, 110, 1 / 50), rel=1e-6)
    assert scan.excess([rack(i, 2) for i in range(50)], 0.01) == []
