from __future__ import annotations

import io

import lemon_nights as nights
import matplotlib.image
import numpy as np

from probing_cluster.reports.charts import lemon_charts


def pixels(png: bytes) -> np.ndarray:
    return matplotlib.image.imread(io.BytesIO(png))[..., :3]


def colour(text: str) -> np.ndarray:
    return np.array([int(text[i : i + 2], 16) for i in (1, 3, 5)]) / 255


def has(image: np.ndarray, text: str) -> bool:
    return bool((np.abs(image - colour(text)).max(axis=2) < 0.02).sum() > 20)


def test_two_drawings_each_for_light_and_dark() -> None:
    """Their ground is the card's, lemons and others have their colours, and who cannot see is told."""
    nodes, fleet = lemon_charts.of(nights.busy())
    for chart in (nodes, fleet):
        for png, paint in ((chart.light, lemon_charts.LIGHT), (chart.dark, lemon_charts.DARK)):
            image = pixels(png)
            assert np.allclose(image[0, 0], colour(paint.ground), atol=0.02)
            assert has(image, paint.lemon)
            assert has(image, paint.ink)
    assert has(pixels(nodes.light), lemon_charts.LIGHT.suspect)
    assert has(pixels(fleet.light), lemon_charts.LIGHT.other)
    assert nodes.alt == "Failures of n7, n8, n9, n10 by day"


def test_the_same_night_gives_the_same_bytes() -> None:
    """A mail composed again is the same mail."""
    assert lemon_charts.of(nights.busy()) == lemon_charts.of(nights.busy())


def test_nothing_to_draw() -> None:
    """No lemon, no drawing; a lemon by a person's word alone has no failures to show."""
    assert lemon_charts.of(nights.night()) == ()
    assert lemon_charts.of(nights.night(nights.score("n7", "new", n=0))) == ()
