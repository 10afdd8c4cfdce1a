from __future__ import annotations

import re
from typing import Any

import pytest

from probing_cluster.reports import fleet_words

STATES = {"states": [{"state": "FAILED", "n_attempts": 2}], "n_attempts": 2, "gpu_h": 3.0,
          "infrastructure_attempts_frac": 0.5, "infrastructure_gpu_time_frac": None}  # fmt: skip


def test_a_rate_is_the_time_between_two_failures() -> None:
    """1e-05 per GPU hour is one in 100,000 hours."""
    assert fleet_words.one_per_gpu_h(1e-5) == "one in 100,000 GPU hours"
    assert fleet_words.one_per_gpu_h(0.0) == "none"


@pytest.mark.parametrize(
    "key", ["bucket_s", "n_infrastructure", "per_gpu_h", "measured.mttf_h", "renewal_at_best"]
)
def test_heads_are_no_identifiers(key: str) -> None:
    """No underscore and no dot reaches a person."""
    assert not re.search(r"[_.]", fleet_words.head(key))


@pytest.mark.parametrize(
    ("name", "figure", "words"),
    [
        ("failures-over-time", {"bucket_s": 604800.0, "buckets": [{"at": "2026-11-01T00", "failures": {"gpu": 3}}]},
         "In periods of 7 d: at most 3 failures (from 2026-11-01), in the last 3."),
        ("failures-over-time", {"bucket_s": 604800.0, "buckets": []}, "No infrastructure failure in any period."),
        ("large-job-rate", {"min_gpus": 128, "n_attempts": 5, "n_failures": 2, "node_days": 400.0, "per_node_day": 0.005,
                            "low_per_node_day": 0.001, "high_per_node_day": 0.02},
         "In jobs of 128 GPUs or more one node fails every 200 node-days (likely 50 to 1,000): 2 failures."),
        ("large-job-rate", {"min_gpus": 128, "n_attempts": 5, "n_failures": 0, "node_days": 4.0, "per_node_day": 0.0,
                            "low_per_node_day": 0.0, "high_per_node_day": 0.9},
         "No failure in 4 node-days of jobs of 128 GPUs or more."),
        ("large-job-rate", {"min_gpus": 128, "n_attempts": 0}, "No jobs of 128 GPUs or more ran; their failure rate is not known."),
        ("expected-ettr", {"rate_is_own": False, "sizes": [{"n_gpus": 8, "renewal": 0.97, "best_interval_s": 1800.0}]},
         "Expected ETTR of 8 GPUs: 97 %, at best with a checkpoint every 30 min (by the default failure rate: none of its own is known)."),
        ("requeue-storms", {"min_failures": 3, "storms": []}, "No job was ended by infrastructure 3 times or more."),
        ("goodput-loss", {"first_gpu_h": 10.0, "second_gpu_h": 0.0}, "Jobs that infrastructure ended lost 10 GPU hours."),
        ("goodput-loss", {"first_gpu_h": 0.0, "second_gpu_h": 0.0},
         "No GPU hours were lost to infrastructure; what failed by itself is not counted here."),
        ("state-breakdown", STATES, "2 attempts ended, after 3 GPU hours: 2 FAILED."),
        ("state-breakdown", STATES | {"n_attempts": 21, "states": [{"state": s, "n_attempts": n} for n, s in enumerate("ABCDEF", 1)]},
         "21 attempts ended, after 3 GPU hours: 6 F, 5 E, 4 D, 3 C, 2 B, 1 in other states."),
        ("run-ettr", {"ettr": None, "runs": [], "measured_frac": None}, "No run has an account yet: ETTR is not known."),
    ],
)  # fmt: skip
def test_a_figure_in_words(name: str, figure: dict[str, Any], words: str) -> None:
    """Each figure's main number, and what is said when there is none."""
    said = fleet_words.sentences(name, figure)
    assert said == [words] if name != "state-breakdown" else said[0] == words
