"""NCCL's own all-reduce over the node's GPUs, where nccl-tests is installed."""

from __future__ import annotations

import re
from collections.abc import Sequence

from probing_cluster.core import sanitize
from probing_cluster.diagnostics import machine, registry
from probing_cluster.healthchecks import findings

_WRONG = re.compile(r"^# Out of bounds values\s*:\s*(\d+)", re.MULTILINE)
_BANDWIDTH = re.compile(r"^# Avg bus bandwidth\s*:\s*([0-9.]+)", re.MULTILINE)


def run(node: machine.Machine) -> Sequence[findings.Finding]:
    program = node.tool("all_reduce_perf")
    _, listed = node.run_tool([str(node.tool("nvidia-smi")), "-L"], 30.0)
    count = sum(line.startswith("GPU ") for line in listed.splitlines())
    if count == 0:
        raise findings.Absent("nvidia-smi lists no GPU")
    code, output = node.run_tool(
        [str(program), "-b", "8M", "-e", "256M", "-f", "4", "-g", str(count), "-c", "1"], TEST.deadline_s - 5
    )
    return [judge(code, output)]


def judge(code: int, output: str) -> findings.Finding:
    """What nccl-tests printed."""
    wrong, bandwidth = _WRONG.search(output), _BANDWIDTH.search(output)
    if wrong is not None and int(wrong[1]):
        return findings.fail(f"{wrong[1]} values are wrong")
    if code != 0 or bandwidth is None or wrong is None:
        last = (output.strip().splitlines() or ["no output"])[-1]
        return findings.fail(f"all_reduce_perf ended with {code}: {sanitize.clean(last, 200)}")
    gb_s = float(bandwidth[1])
    return findings.ok(
        f"{gb_s:g} GB/s average bus bandwidth",
        measured=gb_s * 1e9,
        unit="bytes_s",
        detail={"engine": "nccl-tests"},
    )


TEST = registry.Test(
    name="nccl-tests",
    proves="NCCL's all-reduce over all GPUs of the node gives right values at the usual bandwidth.",
    needs="all_reduce_perf of nccl-tests and nvidia-smi",
    fails="a value is out of bounds, or the program fails",
    next_step="Look at NVLink (probing-check run gpu_nvlink nvswitch_fabric) and run dcgmi diag.",
    run=run,
    unit="bytes_s",
    lower_is_better=False,
    deadline_s=180.0,
)
