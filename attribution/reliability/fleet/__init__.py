"""The figures of a cluster: `fleet.<figure>(source, since, until, partition=None, users=None, …)`."""

from probing_cluster.attribution.reliability.fleet.composition import job_sizes, state_breakdown
from probing_cluster.attribution.reliability.fleet.coverage import check_coverage
from probing_cluster.attribution.reliability.fleet.expectations import ettr_by_size, ettr_grid
from probing_cluster.attribution.reliability.fleet.gpu_swaps import gpu_swaps
from probing_cluster.attribution.reliability.fleet.lemon_nodes import lemon_departures, lemon_signals
from probing_cluster.attribution.reliability.fleet.losses import cooccurrence, goodput_loss, requeue_storms
from probing_cluster.attribution.reliability.fleet.node_pace import node_pace
from probing_cluster.attribution.reliability.fleet.node_tests import node_tests
from probing_cluster.attribution.reliability.fleet.rates import (
    failure_rates,
    failures_over_time,
    large_job_rate,
    mttf_by_size,
)
from probing_cluster.attribution.reliability.fleet.runs import expected_ettr, run_ettr, what_if
from probing_cluster.attribution.reliability.fleet.usage import utilisation

__all__ = [
    "check_coverage",
    "cooccurrence",
    "ettr_by_size",
    "ettr_grid",
    "expected_ettr",
    "failure_rates",
    "failures_over_time",
    "goodput_loss",
    "gpu_swaps",
    "job_sizes",
    "large_job_rate",
    "lemon_departures",
    "lemon_signals",
    "mttf_by_size",
    "node_pace",
    "node_tests",
    "requeue_storms",
    "run_ettr",
    "state_breakdown",
    "utilisation",
    "what_if",
]
