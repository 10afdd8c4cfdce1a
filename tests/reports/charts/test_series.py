"""A series is drawn within its frame and described in words; hostile names are text."""

import xml.etree.ElementTree as ET

from probing_cluster.reports.charts import series

SVG = "{http://www.w3.org/2000/svg}"


def place(at: float, value: float, around: float = 0.0) -> series.SeriesPlace:
    """One place."""
    return series.SeriesPlace(at=at, middle=value, low=value - around, high=value + around)


def test_a_series_is_drawn_and_described() -> None:
    """A line, a band, an axis, a sentence; everything inside the frame."""
    drawing = series.line(
        "x", "<loss> & co", [place(0, 4.0, 1.0), place(10, 2.0), place(20, 1.0)], "{:g}".format
    )
    root = ET.fromstring(drawing)
    assert root.find(f"{SVG}title").text == "<loss> & co"  # type: ignore[union-attr]
    assert root.find(f"{SVG}desc").text == "from 4 at 0 to 1 at 20; between 1 and 5"  # type: ignore[union-attr]
    for kind, n in (("polyline", 3), ("polygon", 6)):
        points = root.find(f"{SVG}{kind}").attrib["points"].split()  # type: ignore[union-attr]
        assert len(points) == n
        for pair in points:
            x, y = map(float, pair.split(","))
            assert 0 <= x <= series.WIDTH
            assert 0 <= y <= series.HEIGHT


def test_one_place_and_equal_values() -> None:
    """Neither divides by zero."""
    ET.fromstring(series.line("x", "t", [place(3, 7.0)], str))
    ET.fromstring(series.line("x", "t", [place(3, 0.0), place(4, 0.0)], str))
    assert series.line("x", "t", [], str) == ""
