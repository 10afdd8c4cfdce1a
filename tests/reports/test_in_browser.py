"""The pages in a real browser: reached by keyboard alone, heard by a screen reader, narrow, light and dark, and quiet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import browser
import conftest_story as example
import pytest

from probing_cluster.reports import job_ref, model, page, rows
from tests.reports.fleet import test_fleet_page

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(browser.PROGRAM is None, reason="needs chromium"),
]
TAB = 9


@pytest.fixture(scope="module")
def chromium() -> Iterator[browser.Browser]:
    with browser.Browser() as opened:
        yield opened


@pytest.fixture(params=["job", "fleet"])
def shown(request: pytest.FixtureRequest, story: rows.ReportRows, tmp_path: Path) -> Path:
    """Each kind of page as a file."""
    path = tmp_path / f"{request.param}.html"
    if request.param == "job":
        text = page.render(model.build(job_ref.parse("4242"), story, now=example.at("15:00:00")))
    else:
        text = test_fleet_page.render()
    path.write_text(text, encoding="utf-8")
    return path


FOCUSED = """(() => { const e = document.activeElement, s = getComputedStyle(e);
  return [e.tagName.toLowerCase(), e.getAttribute('href') || e.getAttribute('aria-label') || e.textContent.slice(0, 60),
          s.outlineStyle !== 'none' || !!e.querySelector('.event')]; })()"""
REACHABLE = """[...document.querySelectorAll('a[href], summary, [tabindex="0"]')].filter(e => e.checkVisibility()).length"""


def test_everything_is_reached_by_keyboard_and_seen_to_be(chromium: browser.Browser, shown: Path) -> None:
    """Tab visits every link, fold and scrolling region once, in order, each with a visible focus; nothing traps it."""
    chromium.open(shown)
    n_reachable = chromium.value(REACHABLE)
    assert n_reachable >= 5
    visited = []
    for _ in range(n_reachable):
        chromium.press("Tab", TAB)
        visited.append(chromium.value(FOCUSED))
    assert all(tag != "body" for tag, _, _ in visited), visited
    assert len({(tag, name) for tag, name, _ in visited}) >= n_reachable - 2  # two folds may say the same
    assert [name for _, name, visible in visited if not visible] == []


def test_a_screen_reader_hears_names_for_all_of_it(chromium: browser.Browser, shown: Path) -> None:
    """One first heading; every figure, table, region and link has a name; every figure tells its content."""
    chromium.open(shown)
    chromium.value("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    nodes = [n for n in chromium("Accessibility.getFullAXTree")["nodes"] if not n.get("ignored")]

    def of(*roles: str) -> list[tuple[str, str]]:
        return [
            (str(n.get("name", {}).get("value", "")), str(n.get("description", {}).get("value", "")))
            for n in nodes
            if n.get("role", {}).get("value") in roles
        ]

    for roles in (("figure",), ("table",), ("region",), ("link",), ("columnheader",), ("heading",)):
        found = of(*roles)
        assert found, roles
        assert [pair for pair in found if not pair[0].strip()] == [], roles
    # The figure's name holds title and description, as its labels say.
    assert all(len(name) > 20 for name, _ in of("figure"))
    heads = [n for n in nodes if n.get("role", {}).get("value") == "heading"]
    levels = [p["value"]["value"] for n in heads for p in n.get("properties", []) if p["name"] == "level"]
    assert levels.count(1) == 1
    assert set(levels) <= {1, 2}


def test_the_page_is_quiet(chromium: browser.Browser, shown: Path) -> None:
    """Nothing is fetched, nothing complains: the file is all there is."""
    chromium.open(shown)
    calls = [
        e["params"]["request"]["url"]
        for e in chromium.events
        if e.get("method") == "Network.requestWillBeSent"
    ]
    assert calls == [shown.as_uri()]
    assert [
        e for e in chromium.events if e.get("method") in {"Log.entryAdded", "Runtime.exceptionThrown"}
    ] == []


@pytest.mark.parametrize("width", [400, 1600])
def test_it_fits_any_width(chromium: browser.Browser, shown: Path, width: int) -> None:
    """On a phone only what says so scrolls sideways, never the page."""
    chromium.open(shown, width=width)
    assert chromium.value("document.documentElement.scrollWidth") <= width


CONTRAST = """(() => {
  const bright = c => { const [r, g, b] = c.map(v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const rgb = text => text.match(/[\\d.]+/g).map(Number);
  const ground = e => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor);
    if (c.length < 4 || c[3] > 0) return c.slice(0, 3); } return [255, 255, 255]; };
  const poor = [];
  for (const e of document.querySelectorAll('h1, h2, p, td, th, dt, dd, a, summary, caption, li, svg text')) {
    const drawn = e.namespaceURI.endsWith('svg'), style = getComputedStyle(e);
    if (!e.textContent.trim() || (drawn && e.tagName !== 'text')) continue;
    const [a, b] = [bright(rgb(drawn ? style.fill : style.color).slice(0, 3)), bright(ground(drawn ? e.closest('section') : e))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) poor.push([e.tagName, e.textContent.slice(0, 30), ratio.toFixed(2)]);
  }
  return poor; })()"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_words_stand_out_from_their_ground(chromium: browser.Browser, shown: Path, dark: bool) -> None:
    """WCAG AA, 4.5 to 1, for every word, in both schemes."""
    chromium.open(shown, dark=dark)
    assert chromium.value("getComputedStyle(document.body).backgroundColor") == (
        "rgb(20, 24, 27)" if dark else "rgb(252, 252, 250)"
    )
    assert chromium.value(CONTRAST) == []
