"""A quota that holds a node's processes back is in its figures: by its control groups' own count, of either version."""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar

import pytest

from probing_cluster.core import records
from probing_cluster.diagnostics import cpus, machine
from probing_cluster.diagnostics.procedures import gemm, loopback, memory

OPTIONS = machine.Options(size=64, repeats=2)


def group(root: Path, path: str, stat: str) -> None:
    directory = root / "sys/fs/cgroup" / path
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "cpu.stat").write_text(stat)


@pytest.mark.parametrize(
    ("line", "path", "stat", "held_s"),
    [
        ("1:cpu:/slurm/step", "cpu/slurm/step", "nr_throttled 3\nthrottled_time 1500000000\n", 1.5),
        ("3:cpu,cpuacct:/a/b", "cpu,cpuacct/a", "throttled_time 2000000000\n", 2.0),
        ("0::/system.slice/slurmd", "system.slice", "usage_usec 9\nthrottled_usec 250000\n", 0.25),
        ("0::/system.slice/slurmd", "system.slice", "usage_usec 9\n", 0.0),
        ("5:memory:/a", "memory/a", "throttled_time 2000000000\n", 0.0),
        ("0::/../other", "x", "throttled_usec 250000\n", 0.0),
    ],
)
def test_the_count_is_the_group_s_or_that_of_one_above_it(
    tmp_path: Path, line: str, path: str, stat: str, held_s: float
) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(f"9:name=systemd:/\n{line}\n")
    group(tmp_path, path, stat)
    assert cpus.throttled_s(tmp_path) == held_s


@pytest.mark.parametrize(
    ("line", "files", "times"),
    [
        ("1:cpu:/a/b", {"cpu/a/cpu.cfs_quota_us": "50000", "cpu/a/cpu.cfs_period_us": "100000"}, 2.0),
        ("1:cpu:/a", {"cpu/a/cpu.cfs_quota_us": "-1", "cpu/a/cpu.cfs_period_us": "100000"}, 1.0),
        ("0::/s/u", {"s/cpu.max": "80000 100000\n", "s/u/cpu.max": "max 100000\n"}, 1.25),
        ("0::/s", {"s/cpu.max": "3200000 100000\n"}, 1.0),
        ("0::/s", {}, 1.0),
    ],
)
def test_the_narrowest_quota_counts(tmp_path: Path, line: str, files: dict[str, str], times: float) -> None:
    """Of one processor and more it holds back no single thread."""
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(f"{line}\n")
    for name, text in files.items():
        path = tmp_path / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert cpus.quota_times(tmp_path) == times


def test_a_kernel_that_says_nothing_holds_nobody_back(tmp_path: Path) -> None:
    assert cpus.throttled_s(tmp_path) == 0.0


class Held(machine.Machine):
    """A second of processor time for every product, and `quota` seconds more for which a quota held it back."""

    quota = 0.0
    waits = 0.0
    """Seconds a product waits for other reasons, such as a neighbour."""
    clock: ClassVar = [0]

    def product(self, a: machine.Matrix, b: machine.Matrix) -> machine.Matrix:
        self.clock[0] += 1
        return super().product(a, b)

    def cpu_s(self) -> float:
        return float(self.clock[0])

    def wall_s(self) -> float:
        return self.clock[0] * (1 + self.waits)

    def held_back_s(self) -> float:
        return self.clock[0] * self.quota


@pytest.mark.parametrize(
    ("quota", "waits", "times"),
    [
        (0.0, 0.0, 1.0),
        (0.2, 0.2, 1.2),
        (0.2, 3.0, 1.2),  # the rest is a neighbour's
        (8.0, 1.0, 2.0),  # summed over processors that this thread was not on
    ],
)
def test_a_product_takes_as_long_as_its_quota_lets_it(quota: float, waits: float, times: float) -> None:
    made = type("Made", (Held,), {"quota": quota, "waits": waits, "clock": [0]})
    found = next(f for f in gemm.run(made(node="n", options=OPTIONS)) if f.device == "cpu")
    assert found.outcome is records.Outcome.OK
    assert found.measured == pytest.approx(times)
    assert ("CPU quota" in found.message, "quota" in found.detail) == (times > 1, times > 1)


def test_memory_and_loopback_are_tried_at_each_memory_node(tmp_path: Path) -> None:
    """On processors of that node alone, which gives them its memory; a node without processors, or of others' alone, is left out."""
    allowed = os.sched_getaffinity(0)
    if len(allowed) < 2:
        pytest.skip("needs two processors")
    first, *others = sorted(allowed)
    lists = {"node0": str(first), "node1": ",".join(map(str, others)), "node2": "", "node3": "4000-4001"}
    for name, listed in lists.items():
        (tmp_path / "sys/devices/system/node" / name).mkdir(parents=True)
        (tmp_path / "sys/devices/system/node" / name / "cpulist").write_text(listed + "\n")
    allowed_there = {name: os.sched_getaffinity(0) for name in cpus.at_each_memory_node(tmp_path)}
    assert allowed_there == {"node0": {first}, "node1": set(others)}
    assert os.sched_getaffinity(0) == allowed
    group = machine.Group(members=("a",), addresses={"a": ("127.0.0.1", 1)}, token=b"")
    here = machine.Machine(node="a", root=tmp_path, group=group)
    assert [f.device for f in loopback.run(here)] == ["127.0.0.1 node0", "127.0.0.1 node1"]
    assert [f.device for f in memory.run(here)] == ["host node0", "host node1", "gpu"]
    assert list(cpus.at_each_memory_node(tmp_path / "none")) == [""]
