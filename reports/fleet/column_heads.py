"""Headings of the columns of the fleet's tables."""

from __future__ import annotations

_HEADS = {
    "n_infrastructure": "ended by infrastructure",
    "n_first": "failed",
    "n_second": "preempted for a restart",
    "first_gpu_h": "GPU hours lost by the failed",
    "second_gpu_h": "GPU hours lost by the preempted",
    "linear_v1": "ETTR, linear model 1",
    "linear_v2": "ETTR, linear model 2",
    "renewal": "ETTR expected",
    "renewal_at_best": "ETTR at that interval",
    "simulated": "ETTR simulated",
    "best_interval_s": "best checkpoint interval s",
    "interval_s": "checkpoint every s",
    "write_s": "checkpoint takes s",
    "ettr_measured": "ETTR",
    "ettr_expected": "ETTR expected",
    "lost_to_replay": "lost, to be done again",
    "lost_to_replay_s": "lost s",
    "at": "from",
    "n": "jobs",
    "measured": "seen, not assumed",
    "n_failures": "failures",
    "n_incidents": "faults that ended them",
    "other": "with",
    "above_gpus": "in jobs of more GPUs than",
    "excl_jobid_count": "jobs that exclude it",
    "xid_cnt": "distinct Xids",
    "tickets": "tickets",
    "out_count": "times out of service",
    "multi_node_node_fails": "failures of jobs on many nodes",
    "single_node_node_fails": "failures of jobs on it alone",
    "single_node_node_failure_rate": "failed share of jobs on it alone",
    "waterfall_gpu_h": "GPU hours",
}


def head(key: str) -> str:
    """The heading of a key such as `low_per_gpu_h`; units stay, the percent sign marks a share."""
    first, dot, inner = key.partition(".")
    if dot:
        return f"{first} {head(inner)}"
    if key in _HEADS:
        return _HEADS[key]
    words = key.removeprefix("n_").removesuffix("_frac")
    words = words.replace("per_gpu_h", "per GPU hour").replace("gpu_h", "GPU hours").replace("mttf", "MTTF")
    return words.replace("_", " ").replace("gpu ", "GPU ").replace("gpus", "GPUs")
