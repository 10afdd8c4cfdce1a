"""The fleet's page: every number in a table, every chart in words, nothing from anywhere else."""

from __future__ import annotations

import re
from typing import Any

import conftest_story as told
import pytest
from test_page import EVIL, Reader

from probing_cluster.reports import fleet_page

NOW = told.at("15:00:00")
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
        {"n_gpus": 8, "measured": {"n_failures": 3, "runtime_h": 90.0, "mttf_h": 30.0, "low_h": 10.0, "high_h": 100.0}, "projected_h": None, "projected_low_h": None, "projected_high_h": None},
        {"n_gpus": 16384, "measured": None, "projected_h": 0.5, "projected_low_h": 0.4, "projected_high_h": None},
    ],
    "rate": {"per_node_day": 0.01},
}  # fmt: skip
OVER_TIME = {
    "bucket_s": 604800.0,
    "buckets": [{"at": "2026-11-01T00:00:00Z", "gpu_h": 5.0, "failures": {f"c{n}": n + 1 for n in range(10)}, "per_gpu_h": 0.1}],
}  # fmt: skip
MEANINGS = {
    name: f"about {name}"
    for name in ("state-breakdown", "mttf-by-size", "failures-over-time", "requeue-storms")
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
        "In periods of 7 d: at most 55 failures (from 2026-11-01), in the last 55.",
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
    tags = Reader(text).tags
    assert not {tag for tag, _ in tags} & {
        "script",
        "link",
        "img",
        "iframe",
        "object",
        "embed",
        "form",
        "base",
    }
    assert not [k for _, a in tags for k in a if k.startswith("on")]
    assert not re.search(r"url\((?!#)|@import", text)
    assert "default-src 'none'" in text


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
        failures_over_time={"bucket_s": 60.0, "buckets": []},
    )
    for words in (
        "No attempt ended in this span.",
        "No job was ended by infrastructure 3 times or more.",
        "No infrastructure failure in any period.",
    ):
        assert words in text


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
