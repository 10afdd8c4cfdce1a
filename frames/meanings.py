"""What the columns of the fleet figures mean; the records' own columns carry their meaning with them."""

from __future__ import annotations

from collections.abc import Mapping

COLUMNS: Mapping[str, str] = {
    "at": "start of the stretch of time, UTC",
    "attempts_frac": "share of all attempts, 0..1",
    "best_interval_s": "checkpoint interval with the highest renewal ETTR, seconds; 0 where writing costs nothing",
    "cause": "cause the failures are attributed to",
    "causes": "the causes named, words of causes.md",
    "change": "ETTR against today's",
    "component": "part that failed: gpu, ib, filesystem …",
    "counted": "what one failure is",
    "ettr": "expected ETTR, 0..1",
    "failures": "failures (incidents) by component",
    "failures_per_node_day": "failures of one node per day that it reckons with",
    "first_gpu_h": "GPU-hours lost by attempts that infrastructure ended",
    "frac": "share of the cause's failures that show the other, 0..1",
    "gpu_h": "GPU-hours",
    "gpu_time_frac": "share of all GPU time, 0..1; null without any",
    "high_per_gpu_h": "upper end of the exact 95 % Poisson interval of per_gpu_h",
    "high_per_node_day": "upper end of the exact 95 % Poisson interval of per_node_day",
    "interval_s": "checkpoint interval, seconds",
    "job_id": "Slurm job id",
    "linear_v1": "expected ETTR by the paper's first linear form, 0..1",
    "linear_v2": "expected ETTR by the paper's second linear form, 0..1",
    "low_per_gpu_h": "lower end of the exact 95 % Poisson interval of per_gpu_h",
    "low_per_node_day": "lower end of the exact 95 % Poisson interval of per_node_day",
    "measured_high_h": "upper end of the exact Poisson interval, hours; null without a failure",
    "measured_low_h": "lower end of the exact Poisson interval, hours",
    "measured_mttf_h": "runtime per failure, hours; null without a failure",
    "measured_n_failures": "infrastructure failures of jobs of this size; null for sizes nobody ran",
    "measured_runtime_h": "runtime of jobs of this size, hours; null for sizes nobody ran",
    "min_gpus": "only attempts with more GPUs than this",
    "mttf_h": "mean time to failure at the assumed rate, hours",
    "n": "failures that show both",
    "n_attempts": "attempts",
    "n_failures": "failures by infrastructure: incidents that ended a job",
    "n_first": "attempts that infrastructure ended",
    "n_gpus": "GPUs of the job; of sizes the largest in the row, each row from half of it up",
    "n_infrastructure": "of the attempts, ended by hardware or system software",
    "n_nodes": "distinct nodes",
    "n_preempted": "attempts that it preempted on coming back",
    "n_second": "attempts preempted when the victims came back",
    "name": "the change",
    "node_days": "days of all nodes of these attempts together",
    "other": "another cause in the same failures' evidence",
    "per_gpu_h": "failures per GPU-hour; null without any hours",
    "per_node_day": "failures per node and day (r_f); null without any",
    "preempted_gpus": "GPUs of the attempts that it preempted",
    "projected_h": "mean time to failure as r_f projects it, hours; null where r_f is not known",
    "projected_high_h": "upper end of the projection, hours",
    "projected_low_h": "lower end of the projection, hours",
    "renewal": "expected ETTR by the renewal form, exact for exponential failures, 0..1",
    "renewal_at_best": "the renewal form at the best interval, 0..1",
    "restart_s": "time to start up again, seconds",
    "second_gpu_h": "GPU-hours lost by attempts preempted when the victims came back",
    "simulated": "expected ETTR by simulation, 0..1; null where not asked for",
    "state": "the attempt's final state in Slurm",
    "user": "the job's owner",
    "write_s": "time to write a checkpoint, seconds",
}


def of_figure_column(name: str) -> str:
    """The meaning of one column; raises KeyError for one that nobody described."""
    return COLUMNS[name]
