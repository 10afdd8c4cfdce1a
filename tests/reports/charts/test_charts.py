"""Charts draw to scale, name themselves and survive any numbers."""

from __future__ import annotations

import itertools
import math
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probing_cluster.reports.charts import charts

SPACE = "{http://www.w3.org/2000/svg}"
ROWS = (charts.ChartRow(label="a", values=(30.0, 10.0)), charts.ChartRow(label="b<&>", values=(0.0, 20.0)))


def words(value: float) -> str:
    return f"{value:g} h"


def boxes(drawn: str) -> list[tuple[str, float, float, float, float]]:
    names = ("x", "y", "width", "height")
    found = list(ET.fromstring(drawn).iter(f"{SPACE}rect"))
    return [(str(r.get("class")), *(float(r.get(n) or 0) for n in names)) for r in found]  # type: ignore[misc]


def test_stacked_bars_lie_end_to_end_and_are_as_long_as_their_values() -> None:
    """30 and 10 make 40: the longest bar fills the room, its parts three to one, and zero is not drawn."""
    first, second, third = boxes(charts.bars("n", "t", ("x", "y"), ROWS, words))
    assert first[3] == pytest.approx(3 * second[3], abs=0.02)
    assert second[1] == pytest.approx(first[1] + first[3], abs=0.02)
    assert third[3] == pytest.approx(2 * second[3], abs=0.02)
    assert [b[0] for b in (first, second, third)] == ["s0", "s1", "s1"]


def test_grouped_bars_start_at_the_same_line() -> None:
    """Side by side, each series on a line of its own."""
    found = boxes(charts.bars("n", "t", ("x", "y"), ROWS, words, stacked=False))
    assert len({b[1] for b in found}) == 1
    assert found[0][2] != found[1][2]


def test_columns_stand_on_the_axis() -> None:
    """Stacked upwards from one floor, in proportion."""
    first, second, third = boxes(charts.columns("n", "t", ("x", "y"), ROWS, words))
    assert first[2] + first[4] == pytest.approx(third[2] + third[4], abs=0.05)
    assert second[2] + second[4] == pytest.approx(first[2], abs=0.05)
    assert first[4] == pytest.approx(3 * second[4], abs=0.05)


def test_points_are_placed_by_their_logarithm() -> None:
    """A factor of ten is the same way anywhere; the interval reaches from end to end; projections are hollow."""
    rows = [charts.Point(label=f"p{n}", value=10.0**n, low=10.0**n / 2, high=10.0**n * 2) for n in range(3)]
    rows.append(charts.Point(label="far", value=5.0, hollow=True))
    rows.append(charts.Point(label="none", value=None))
    root = ET.fromstring(charts.points("n", "t", rows, words))
    circles = [(float(c.get("cx") or 0), str(c.get("class"))) for c in root.iter(f"{SPACE}circle")]
    assert circles[1][0] - circles[0][0] == pytest.approx(circles[2][0] - circles[1][0], abs=0.05)
    assert [kind for _, kind in circles] == ["point"] * 3 + ["point hollow"]
    assert "none seen" in [t.text for t in root.iter(f"{SPACE}text")]


def test_a_chart_says_in_words_what_it_shows() -> None:
    """Title, description and a title on every mark: a screen reader hears all the numbers."""
    root = ET.fromstring(charts.bars("n", "Hours lost", ("mine", "theirs"), ROWS, words))
    ids = {e.get("id") for e in root.iter()}
    assert set(str(root.get("aria-labelledby")).split()) <= ids
    assert root.find(f"{SPACE}desc").text == "a: mine 30 h, theirs 10 h; b<&>: theirs 20 h"  # type: ignore[union-attr]
    titles = [t.text for t in root.iter(f"{SPACE}title")]
    assert titles == ["Hours lost", "a, mine: 30 h", "a, theirs: 10 h", "b<&>, theirs: 20 h"]


@given(st.lists(st.tuples(st.floats(0, 1e15), st.floats(0, 1e15)), max_size=30))
def test_any_numbers_make_a_chart(values: list[tuple[float, float]]) -> None:
    """Nothing, zeros, the huge and the tiny: well-formed, and nothing outside the drawing."""
    rows = [charts.ChartRow(label=str(n), values=v) for n, v in enumerate(values)]
    for drawn in (
        charts.bars("n", "t", ("x", "y"), rows, words),
        charts.bars("n", "t", ("x", "y"), rows, words, stacked=False),
        charts.columns("n", "t", ("x", "y"), rows, words),
    ):
        for _, x, y, width, height in boxes(drawn):
            assert all(map(math.isfinite, (x, y, width, height)))
            assert -0.1 <= x <= charts.WIDTH + 2
            assert x + width <= charts.WIDTH + 4
    points = [
        charts.Point(label=str(n), value=a, low=min(a, b), high=max(a, b)) for n, (a, b) in enumerate(values)
    ]
    ET.fromstring(charts.points("n", "t", points, words))


@given(st.floats(1e-12, 1e15))
def test_ticks_are_few_and_round(most: float) -> None:
    """From the tiny to the huge."""
    found = list(charts.ticks(most))
    assert 2 <= len(found) <= 12
    assert found[-1] <= most * 1.001


@pytest.mark.parametrize("decades", [1, 2, 7])
def test_no_label_leaves_the_drawing_or_touches_another(decades: int) -> None:
    """`one in 100,000 GPU hours` at the right edge was cut off."""
    rows = [charts.Point(label="x" * 60, value=10.0**-n) for n in range(decades + 1)]
    root = ET.fromstring(charts.points("n", "t", rows, lambda v: f"one in {1 / v:,.0f} GPU hours"))
    ticks = [t for t in root.iter(f"{SPACE}text") if t.get("class") == "tick"]
    spans = sorted((float(t.get("x") or 0), len(t.text or "") * 5.5) for t in ticks)
    assert len(spans) >= 2
    assert all(x - width / 2 >= 0 and x + width / 2 <= charts.WIDTH for x, width in spans)
    assert all(a[0] + a[1] / 2 < b[0] - b[1] / 2 for a, b in itertools.pairwise(spans))
    names = [t.text or "" for t in root.iter(f"{SPACE}text") if t.get("class") == "name"]
    assert max(map(len, names)) <= 24
