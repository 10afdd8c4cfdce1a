from __future__ import annotations

import re
from typing import Any

import pytest

from probing_cluster.reports.fleet import amounts, column_heads, fleet_words
from tests.every_case import every

STATES = {"states": [{"state": "FAILED", "n_attempts": 2}], "n_attempts": 2, "gpu_h": 3.0,
          "infrastructure_attempts_frac": 0.5, "infrastructure_gpu_time_frac": None}  # fmt: skip


def test_a_rate_is_the_time_between_two_failures() -> None:
    """1e-05 per GPU hour is one in 100,000 hours."""
    assert amounts.one_per_gpu_h(1e-5) == "one in 100,000 GPU hours"
    assert amounts.one_per_gpu_h(0.0) == "none"


@pytest.mark.parametrize(
    "key", ["bucket_s", "n_infrastructure", "per_gpu_h", "measured.mttf_h", "renewal_at_best"]
)
def test_heads_are_no_identifiers(key: str) -> None:
    """No underscore and no dot reaches a person."""
    assert not re.search(r"[_.]", column_heads.head(key))


def test_a_share_that_is_next_to_nothing_is_said_to_be_so() -> None:
    """Of a cluster that is minutes old."""
    assert [fleet_words.percent(v) for v in (0.0, 7.65e-6, 0.0001)] == ["0 %", "less than 0.01 %", "0.01 %"]


@every(
    ("name", "figure", "words"),
    [
        ("failures-over-time", {"bucket_s": 604800.0, "buckets": [{"at": "2026-11-01T00", "failures": {"gpu": 3}}], "checks_began": []},
         "3 failures in the one period of 7 d with jobs, from 2026-11-01."),
        ("failures-over-time", {"bucket_s": 604800.0, "buckets": [{"at": "2026-11-01T00", "failures": {"gpu": 3}}, {"at": "2026-11-08T00", "failures": {}}], "checks_began": []},
         "In periods of 7 d: at most 3 failures (from 2026-11-01), in the last 0."),
        ("failures-over-time", {"bucket_s": 604800.0, "buckets": []}, "No infrastructure failure in any period."),
        ("failures-over-time", {"bucket_s": 604800.0, "buckets": [], "n_attempts_without_gpus": 3}, "Infrastructure ended no attempt with GPUs in any period."),
        ("large-job-rate", {"above_gpus": 128, "n_attempts": 5, "n_failures": 2, "node_days": 400.0, "per_node_day": 0.005,
                            "low_per_node_day": 0.001, "high_per_node_day": 0.02},
         "In jobs of more than 128 GPUs one node fails every 200 node-days (likely 50 to 1,000): 2 faults, counted once however many jobs each ended."),
        ("large-job-rate", {"above_gpus": 128, "n_attempts": 5, "n_failures": 0, "node_days": 4.0, "per_node_day": 0.0,
                            "low_per_node_day": 0.0, "high_per_node_day": 0.9},
         "No failure in 4 node-days of jobs of more than 128 GPUs."),
        ("large-job-rate", {"above_gpus": 128, "n_attempts": 5, "n_failures": 0, "node_days": 0.000856, "per_node_day": 0.0,
                            "low_per_node_day": 0.0, "high_per_node_day": 0.9},
         "No failure in 1.23 node-minutes of jobs of more than 128 GPUs."),
        ("large-job-rate", {"above_gpus": 128, "n_attempts": 0}, "No jobs of more than 128 GPUs are on record; their failure rate is not known."),
        ("expected-ettr", {"rate_is_own": True, "failures_per_node_day": 0.01, "sizes": [{"n_gpus": 8, "renewal": 0.97, "best_interval_s": 1800.0, "renewal_at_best": 0.98}]},
         "By this cluster's own failure rate a job of 8 GPUs has an ETTR of 97 %; at best 98 %, with a checkpoint every 30 min."),
        ("expected-ettr", {"rate_is_own": False, "failures_per_node_day": 0.005, "sizes": [{"n_gpus": 8, "renewal": 0.97, "best_interval_s": 1800.0}]},
         "The expected ETTR is not known: infrastructure has not yet ended any of the large jobs from which the failure rate is measured. (With one failure in 200 node-days, the default, a job of 8 GPUs would have 97 %.)"),
        ("expected-ettr", {"rate_is_own": True, "rate_is_bound": True, "failures_per_node_day": 0.001, "sizes": [{"n_gpus": 8, "renewal": 0.97, "best_interval_s": 1800.0}]},
         "Infrastructure has ended no large job yet. If one failure came in 1,000 node-days, the most that fits, a job of 8 GPUs would have an ETTR of 97 %: it is at least that."),
        ("what-if", {"rate_is_own": True, "rate_is_bound": True, "n_gpus": 64, "scenarios": [{"name": "today", "ettr": 0.9, "change": 0.0}, {"name": "restart 60 s", "ettr": 0.95, "change": 0.05}]},
         "Against the most failures that fit (none was seen) restart 60 s would gain a job of 64 GPUs most: ETTR 95 % instead of 90 %."),
        ("ettr-grid", {"rate_is_own": True, "n_gpus": 64, "cells": [{"rate_factor": 0.25, "ettr": 0.99}, {"rate_factor": 4.0, "ettr": 0.3}]},
         "With 0.25 to 4 times the cluster's failures, and other checkpoints and restarts, the ETTR of a job of 64 GPUs would lie between 30 % and 99 %."),
        ("what-if", {"rate_is_own": False, "n_gpus": 64, "scenarios": [{"name": "today", "ettr": 0.9, "change": 0.0}, {"name": "restart 60 s", "ettr": 0.95, "change": 0.05}]},
         "Against the default rate's failures restart 60 s would gain a job of 64 GPUs most: ETTR 95 % instead of 90 %."),
        ("run-ettr", {"ettr": 0.4, "n_runs": 9, "n_with_gpus": 3, "n_unknown_gpus": 0, "measured_frac": 0.0},
         "3 runs with GPUs and an account: too few for an ETTR of the fleet (each has its own in its report)."),
        ("mttf-by-size", {"sizes": [{"n_gpus": 8, "measured": {"n_failures": 40, "n_incidents": 3, "mttf_h": 1.0}, "projected_h": None}]},
         "Too few faults ended jobs of any size for a mean time to failure."),
        ("mttf-by-size", {"sizes": [{"n_gpus": 64, "measured": {"n_failures": 10, "n_incidents": 4, "mttf_h": 96.0}, "projected_h": None},
                                    {"n_gpus": 1024, "measured": None, "projected_h": 48.0}]},
         "A job of 64 GPUs ran 4 d on average until it failed (10 attempts that 4 faults ended). By the failure rate of large jobs, in which a fault counts once however many jobs it ends, one of 1,024 GPUs would run 2 d."),
        ("mttf-by-size", {"sizes": [{"n_gpus": 64, "measured": {"n_failures": 5, "n_incidents": 5, "mttf_h": 96.0}, "projected_h": None}]},
         "A job of 64 GPUs ran 4 d on average until it failed (5 attempts)."),
        ("failure-rates", {"components": [{"component": "gpu", "n_failures": 1, "n_attempts": 12, "per_gpu_h": 0.1}]},
         "Failures by component: gpu 1 (too few for a rate). They ended 12 attempts: a fault counts once, however many it ends."),
        ("failure-rates", {"components": [{"component": "gpu", "n_failures": 1, "per_gpu_h": 0.1}, {"component": "link", "n_failures": 9, "per_gpu_h": 0.1}]},
         "Failures by component: link 9 (one in 10 GPU hours), gpu 1 (too few for a rate)."),
        ("ettr-by-size", {"least_hours": 24.0, "sizes": [{"n_gpus": 8, "n_runs": 1, "measured": 0.1, "expected": None}]},
         "1 run of up to 8 GPUs trained for 24 h or more: too few for an ETTR by size."),
        ("requeue-storms", {"min_failures": 3, "storms": []}, "No job was ended by infrastructure 3 times or more."),
        ("goodput-loss", {"first_gpu_h": 10.0, "second_gpu_h": 0.0}, "Jobs that infrastructure ended lost 10 GPU hours (of each at most its last 30 minutes, and the time it hung)."),
        ("goodput-loss", {"first_gpu_h": 0.0, "second_gpu_h": 0.0},
         "No GPU hours were lost to infrastructure; jobs that failed by themselves are not counted here."),
        ("state-breakdown", STATES, "2 attempts ended, after 3 GPU hours: 2 FAILED."),
        ("state-breakdown", STATES | {"n_attempts": 21, "states": [{"state": s, "n_attempts": n} for n, s in enumerate("ABCDEF", 1)]},
         "21 attempts ended, after 3 GPU hours: 6 F, 5 E, 4 D, 3 C, 2 B, 1 A."),
        ("state-breakdown", STATES | {"n_attempts": 28, "states": [{"state": s, "n_attempts": n} for n, s in enumerate("ABCDEFG", 1)]},
         "28 attempts ended, after 3 GPU hours: 7 G, 6 F, 5 E, 4 D, 3 C, 3 in other states."),
        ("failures-over-time", {"bucket_s": 604800.0, "buckets": [{"at": "2026-11-01T00", "failures": {"gpu": 3}}], "checks_began": [{}]},
         "3 failures in the one period of 7 d with jobs, from 2026-11-01. 1 check came into force in this span; from then on more failures may be seen, although no more happen."),
        ("utilisation", {"utilisation_frac": 0.8, "goodput_frac": 0.75, "fragmented_frac": 0.05, "n_nodes": 2000, "gpus_per_node": 8},
         "Of 2,000 nodes of 8 GPUs 80 % of the time was used, 75 % used and not lost, 5 % free in parts of nodes."),
        ("utilisation", {"utilisation_frac": 6.14, "goodput_frac": 0.75, "fragmented_frac": 0.05, "n_nodes": 2000, "gpus_per_node": 8},
         "Of 2,000 nodes of 8 GPUs 614 % of the time was used, 75 % used and not lost, 5 % free in parts of nodes. This is more than the capacity: jobs overlap on nodes, or nodes have more GPUs than were counted."),
        ("utilisation", {"utilisation_frac": None}, "No attempt ran on any node: nothing was used."),
        ("lemon-signals", {"day": "2026-11-20T00:00:00Z", "signals": [
            {"signal": "xid_cnt", "n_nodes": 100, "n_lemons": 2, "separation_frac": 0.97}, {"signal": "tickets", "n_nodes": 100, "n_lemons": 2, "separation_frac": 0.5}]},
         "On 2026-11-20 2 lemons of 100 nodes. Best signal: distinct Xids (higher on a lemon than on another node in 97 % of pairs); least: tickets (50 %)."),
        ("lemon-signals", {"day": None, "signals": []}, "No day of this span has lemon scores."),
        ("lemon-departures", {"min_gpus": 512, "departures": [{}, {}], "phases": [
            {"phase": "before the first left", "failed_frac": 0.14, "n_attempts": 100}, {"phase": "after the last left", "failed_frac": 0.04, "n_attempts": 1200}]},
         "2 lemons left service. Of jobs of 512 GPUs or more infrastructure ended: before the first left 14 % of 100, after the last left 4 % of 1,200."),
        ("lemon-departures", {"min_gpus": 512, "departures": []}, "No lemon left service in this span; jobs of 512 GPUs or more cannot be compared."),
        ("gpu-swaps", {"n_watched": 0, "n_unclear": 0}, "Swaps cannot be counted: no node has a record of the GPUs that its jobs held."),
        ("gpu-swaps", {"n_watched": 9, "n_unclear": 2, "node_days": 200.0, "n_swaps": 4, "per_node_day": 0.02, "nodes": [{"node": "n7", "n_swaps": 3}]},
         "4 GPUs of 9 nodes in 200 node-days replaced others (one in 50 node-days), most on n7: 3. 2 nodes had too few jobs to tell a swap from a card that nobody was given."),
        ("check-coverage", {"causes": [], "good_with_failed_check_frac": None, "checks": [{"n_failed": 0}, {"n_failed": 3}]},
         "1 of 2 checks found nothing."),
        ("state-breakdown", STATES | {"gpu_h": None, "n_unknown_gpus": 2}, "2 attempts ended: 2 FAILED."),
        ("job-sizes", {"sizes": [{"n_gpus": 0, "n_attempts": 4, "gpu_h": None, "gpu_time_frac": None}], "n_unknown_gpus": 4},
         "Job sizes are not known: accounting records no attempt's GPUs."),
        ("job-sizes", {"sizes": [{"n_gpus": 0, "n_attempts": 4, "gpu_h": 0.0, "gpu_time_frac": None}], "n_unknown_gpus": 1},
         "No attempt on record held a GPU. Of 1 attempt the number of GPUs is not known."),
        ("job-sizes", {"sizes": [{"n_gpus": 8, "n_attempts": 31, "gpu_h": 30.0, "gpu_time_frac": 0.25}, {"n_gpus": 16, "n_attempts": 7, "gpu_h": 90.0, "gpu_time_frac": 0.75}], "n_unknown_gpus": 0},
         "Of 120 GPU hours of 38 attempts, those that still run as well, most went to jobs of 16 GPUs: 75 %."),
        ("failure-rates", {"components": [], "n_attempts_without_gpus": 1},
         "Infrastructure ended 1 attempt without GPUs, or whose GPUs are not recorded: it is not counted here. No failure of others was attributed to it."),
        ("failure-rates", {"components": [{"component": "node", "n_failures": 2, "n_attempts": 2, "per_gpu_h": 0.1}], "n_attempts_without_gpus": 3},
         "Failures by component: node 2 (too few for a rate). Infrastructure ended 3 attempts without GPUs, or whose GPUs are not recorded: they are not counted here."),
        ("failure-rates", {"components": [], "n_attempts_set_down": 2},
         "No failure was attributed to infrastructure. Not counted: 2 attempts that a person ended by setting a node DOWN."),
        ("failures-over-time", {"bucket_s": 604800.0, "buckets": [{"at": "2026-11-01T00", "failures": {}, "gpu_h": 0.0}], "checks_began": []},
         "Failures over time are not known: no GPU hours are on record."),
        ("goodput-loss", {"first_gpu_h": 0.0, "second_gpu_h": 0.0, "sizes": [], "n_attempts_without_gpus": 1},
         "No GPU hours are known to be lost to infrastructure. Infrastructure ended 1 attempt without GPUs, or whose GPUs are not recorded: it is not counted here."),
        ("goodput-loss", {"first_gpu_h": 0.0, "second_gpu_h": 2.0, "sizes": [], "n_attempts_without_gpus": 1},
         "Jobs that infrastructure ended lost 0 GPU hours, and 2 by jobs preempted for their return (of each at most its last 30 minutes, and the time it hung). Infrastructure ended 1 attempt without GPUs, or whose GPUs are not recorded: it is not counted here."),
        ("run-ettr", {"ettr": None, "n_runs": 1, "n_with_gpus": 0, "n_unknown_gpus": 1, "measured_frac": None},
         "ETTR is not known: the GPUs of 1 run with an account are not recorded."),
        ("check-coverage", {"causes": [{"n_attempts": 1, "n_by_check": 0}], "good_with_failed_check_frac": 0.0, "checks": []},
         "The coverage of checks is not known: no check result is on record."),
        ("utilisation", {"utilisation_frac": None, "n_unknown_gpus": 4},
         "How much of the GPU time was used is not known: the GPUs of 4 attempts are not recorded."),
        ("utilisation", {"utilisation_frac": 0.8, "goodput_frac": 0.75, "fragmented_frac": 0.05, "n_nodes": 1, "gpus_per_node": 8, "n_unknown_gpus": 1},
         "Of the only node of 8 GPUs 80 % of the time was used, 75 % used and not lost, 5 % free in parts of nodes. What 1 attempt used is not among it: no GPUs are recorded there."),
        ("cooccurrence", {"pairs": [], "n_events": 0}, "Faults that come together are not known: no agent's event and no kernel log is on record."),
        ("cooccurrence", {"pairs": [], "n_events": 3}, "No two faults came together."),
        ("node-tests", {"nodes": [{}], "drifts": []}, "1 node was tested."),
        ("run-ettr", {"ettr": None, "n_runs": 5, "n_with_gpus": 0, "n_unknown_gpus": 0, "measured_frac": None},
         "There is no ETTR: none of 5 runs with an account held a GPU."),
        ("run-ettr", {"ettr": 0.4, "n_runs": 9, "n_with_gpus": 4, "n_unknown_gpus": 1, "measured_frac": 0.25},
         "ETTR of 4 runs with GPUs: 40 % of their time was productive (checkpoints and start-up seen in 25 % of runs, else assumed as if each had trained)."),
        ("run-ettr", {"ettr": None, "n_runs": 0, "n_with_gpus": 0, "n_unknown_gpus": 0, "measured_frac": None}, "No run has an account yet: ETTR is not known."),
    ],
)  # fmt: skip
def test_a_figure_in_words(name: str, figure: dict[str, Any], words: str) -> None:
    """Each figure's main number, and what is said when there is none."""
    text = fleet_words.sentences(name, figure)
    assert " ".join(text) == words if name != "state-breakdown" else text[0] == words


def test_the_head_of_the_rate_of_large_jobs_excludes_the_bound() -> None:
    """A job of exactly 128 GPUs is in the table of sizes and not in this rate."""
    assert column_heads.head("rate.above_gpus") == "rate in jobs of more GPUs than"
