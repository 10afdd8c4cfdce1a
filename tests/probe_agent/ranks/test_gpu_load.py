"""The load of a job's own GPUs, out of the node's last NVML reading."""

from __future__ import annotations

from probing_cluster.probe_agent.ranks import gpu_load

ROW = {"uuid": "GPU-1", "utilization_frac": 1.0, "power_w": 118.0, "power_limit_w": 700.0, "serial": "1"}


def test_only_the_jobs_own_gpus_and_only_what_is_asked() -> None:
    """Another job's GPU on the node, and one that is lost, are left out."""
    reading = {
        "snapshot": {"gpus": [ROW, {**ROW, "uuid": "GPU-2"}, {**ROW, "uuid": "GPU-3", "lost": "GPU_IS_LOST"}]}
    }
    assert gpu_load.of_job(reading, ("GPU-1", "GPU-3")) == [
        {"uuid": "GPU-1", "utilization_frac": 1.0, "power_w": 118.0, "power_limit_w": 700.0}
    ]


def test_without_nvml_or_without_knowing_the_gpus_there_is_nothing() -> None:
    """Not seeing is not idleness."""
    assert gpu_load.of_job(None, ("GPU-1",)) == []
    assert gpu_load.of_job({"snapshot": {"unavailable": {"kind": "absent"}}}, ("GPU-1",)) == []
    assert gpu_load.of_job({"snapshot": {"gpus": [ROW]}}, None) == []
