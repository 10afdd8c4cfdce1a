"""The fleet's page: every number in a table, every chart in words, nothing from anywhere else."""

from __future__ import annotations

import re
from typing import Any

import conftest_story as example
import pytest
from page_reader import EVIL, Reader, require_self_contained

from probing_cluster.reports.fleet import fleet_page

NOW = example.at("15:00:00")
ABOUT = {
    "since": "2026-10-24T14:00:09.71Z",
    "until": "2026-11-21T14:00:09.71Z",
    "partition": None,
    "users": None,
}
STATES = {
    "states": [
        {"state": "COMPLETED", "n_attempts": 90, "attempts_frac": 0.9, "gpu_h": 10.0, "gpu_time_frac": 0.25, "n_infrastructure": 0},
        {"state": "FAILED", "n_attempts": 10, "attempts_frac": 0.1, "gpu_h": 30.0, "gpu_time_frac": 0.75, "n_infrastructure": 4},
    ],
    "n_attempts": 100, "gpu_h": 40.0, "infrastructure_attempts_frac": 0.04, "infrastructure_gpu_time_frac": 0.5,
}  # fmt: skip
MTTF = {
    "sizes": [
        {"n_gpus": 8, "measured": {"n_failures": 3, "n_incidents": 3, "runtime_h": 90.0, "mttf_h": 30.0, "low_h": 10.0, "high_h": 100.0}, "projected_h": None, "projected_low_h": None, "projected_high_h": None},
        {"n_gpus": 16384, "measured": None, "projected_h": 0.5, "projected_low_h": 0.4, "projected_high_h": None},
    ],
    "rate": {"per_node_day": 0.01},
}  # fmt: skip
OVER_TIME = {
    "bucket_s": 604800.0,
    "buckets": [{"at": "2026-11-01T00:00:00Z", "gpu_h": 5.0, "failures": {f"c{n}": n + 1 for n in range(10)}, "per_gpu_h": 0.1}],
    "checks_began": [{"name": "gpu_ecc", "version": "2", "at": "2026-11-04T12:00:00Z"}],
}  # fmt: skip
MEANINGS = {
    name: f"about {name}"
    for name in (
        "state-breakdown",
        "mttf-by-size",
        "failures-over-time",
        "requeue-storms",
        "utilisation",
        "lemon-signals",
        "lemon-departures",
    )
}


def render(cluster: str = "c", **figures: dict[str, Any]) -> str:
    given = {"state_breakdown": STATES, "mttf_by_size": MTTF, "failures_over_time": OVER_TIME} | figures
    named = {name.replace("_", "-"): ABOUT | figure for name, figure in given.items()}
    return fleet_page.render(cluster, named, MEANINGS, made_at=NOW)


def test_every_number_is_there_in_words() -> None:
    """The head facts, the tables behind the charts, nested values and shares as percent."""
    text = " ".join(" ".join(Reader(render()).words).split())
    for words in (
        "attempts 100",
        "GPU hours 40",
        "50 %",
        "COMPLETED 90 90 %",
        "2026-10-24 14:00 Z to",
        "measured MTTF h",
        "55 failures in the one period of 7 d with jobs, from 2026-11-01.",
        "16,384 GPUs, projected",
    ):
        assert words in text.replace("00Z", "00 Z"), words


def test_what_is_drawn_is_also_told() -> None:
    """Each chart has a title and a description that some id names; ids are unique; tables have captions."""
    tags = Reader(render()).tags
    ids = [a["id"] for _, a in tags if a.get("id")]
    assert len(ids) == len(set(ids))
    wanted = {w for _, a in tags for w in str(a.get("aria-labelledby") or "").split()}
    wanted |= {str(a["href"]).removeprefix("#") for tag, a in tags if tag == "a"}
    assert wanted <= set(ids)
    assert sum(tag == "svg" for tag, _ in tags) == 3
    assert sum(tag == "table" for tag, _ in tags) == sum(tag == "caption" for tag, _ in tags) > 3
    assert all(a.get("scope") == "col" for tag, a in tags if tag == "th")
    assert all(
        a.get("tabindex") == "0" and a.get("aria-label") for _, a in tags if a.get("class") == "scroll"
    )
    assert ("a", {"class": "skip", "href": "#figures"}) in tags


def test_it_needs_nothing_from_anywhere_and_runs_nothing() -> None:
    """No script, image, link or import, whatever a state, a user or a cluster is called."""
    hostile = {**STATES, "states": [{**STATES["states"][0], "state": EVIL}]}  # type: ignore[index]
    storms = {
        "min_failures": 3,
        "storms": [{"job_id": 1, "user": EVIL, "n_failures": 3, "causes": [EVIL, "x"]}],
    }
    text = render(EVIL, state_breakdown=hostile, requeue_storms=storms)
    tags = require_self_contained(text)
    assert not [k for _, a in tags for k in a if k.startswith("on")]


def test_nothing_in_the_span_is_said() -> None:
    """An empty cluster has a page too."""
    empty = {
        "states": [],
        "n_attempts": 0,
        "gpu_h": 0.0,
        "infrastructure_attempts_frac": None,
        "infrastructure_gpu_time_frac": None,
    }
    text = render(
        state_breakdown=empty,
        requeue_storms={"min_failures": 3, "storms": []},
        failures_over_time={"bucket_s": 60.0, "buckets": [], "checks_began": []},
    )
    for words in (
        "No attempt ended in this span.",
        "No job was ended by infrastructure 3 times or more.",
        "No infrastructure failure in any period.",
    ):
        assert words in text


def test_a_check_that_came_into_force_is_a_mark() -> None:
    """At its instant: half a week into the only column, with its name and version."""
    text = render()
    (line,) = re.findall(r"<line ([^>]*)class=\"mark\"", text)
    assert f'x1="{70 + 870 / 2:g}"' in line
    assert "<title>gpu_ecc 2</title>" in text
    assert "mark: gpu_ecc 2" in text


def test_how_nodes_were_used_is_drawn_to_the_whole_capacity() -> None:
    """Kept, lost, free in parts and free make one."""
    bucket = {
        "at": "2026-11-01T00:00:00Z",
        "utilisation_frac": 0.8,
        "goodput_frac": 0.7,
        "fragmented_frac": 0.05,
    }
    whole = {
        "utilisation_frac": 0.8,
        "goodput_frac": 0.7,
        "fragmented_frac": 0.05,
        "n_nodes": 2,
        "gpus_per_node": 8,
    }
    text = render(utilisation={"buckets": [bucket], **whole})
    for words in ("used and kept 70 %", "used, but lost 10 %", "free in parts of nodes 5 %", "free 15 %"):
        assert words in text, words


def test_lemons_are_points_on_their_signals_distribution() -> None:
    """Three nodes without a ticket, one with two, which is a lemon."""
    rows = [
        {"signal": "tickets", "value": v, "n_nodes": n, "n_lemons": bad}
        for v, n, bad in ((0.0, 3, 0), (2.0, 1, 1))
    ]
    summary = {"signal": "tickets", "n_nodes": 4, "n_lemons": 1, "separation_frac": 1.0}
    text = render(lemon_signals={"day": "2026-11-20T00:00:00Z", "values": rows, "signals": [summary]})
    assert "tickets: 4 known, 3 of them 0, lemons (1) from 2 to 2" in text
    (dot,) = re.findall(r"<circle ([^>]*)>", text[text.index('id="lemon-signals"') :])
    assert 'cx="288"' in dot
    assert 'cy="22"' in dot, "at the top: every node has so many or fewer"
    assert "<title>tickets 2: 1 of 1 are lemons</title>" in text


def test_lemons_that_left_are_marks_on_the_large_jobs_failures() -> None:
    """Named while they are few; one that left before the first stretch is none."""
    buckets = [
        {"at": f"2026-11-{day:02}T00:00:00Z", "failed_frac": f, "n_attempts": 10, "n_failed": 1, "n_left": 0}
        for day, f in ((1, 0.2), (8, None))
    ]
    left = [
        {"node": f"n{day}", "left_at": f"2026-{month}-{day:02}T00:00:00Z"}
        for month, day in ((10, 1), (11, 8), (11, 9))
    ]
    figure = {"buckets": buckets, "departures": left, "phases": [], "min_gpus": 512, "bucket_days": 7.0}
    text = render(lemon_departures=figure)
    assert re.findall(r"mark: ([^;<]*)", text[text.index('id="lemon-departures"') :]) == [
        "n8 left",
        "n9 left",
    ]


def test_a_long_table_is_cut_and_says_so() -> None:
    """A thousand runs are for --json."""
    storms = {
        "min_failures": 3,
        "storms": [{"job_id": n, "n_failures": 3} for n in range(fleet_page.MOST_ROWS + 5)],
    }
    text = render(requeue_storms=storms)
    assert "5 more in <code>probing-ctl fleet requeue-storms --json</code>" in text


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        (True, "yes"),
        (1234567, "1,234,567"),
        (1234.5, "1,234"),
        (0.012345, "0.0123"),
        ([1, "a"], "1, a"),
    ],
)
def test_numbers_are_short(value: object, shown: str) -> None:
    """What is not known is a dash, never 0."""
    assert fleet_page.number(value) == shown
