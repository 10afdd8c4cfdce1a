"""Whole sweeps on the sandbox's node: quiet when it is healthy, and each fault found by its check."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from probing_cluster.core import records
from probing_cluster.healthchecks import runner, sweep
from probing_cluster.sandbox.c_libraries import nvml_build
from probing_cluster.sandbox.faults import registry
from probing_cluster.sandbox.machine import hanging_mount, layout, processes
from probing_cluster.sandbox.nodetree import build

FAIL, WARN, ERROR = records.Outcome.FAIL, records.Outcome.WARN, records.Outcome.ERROR
NOT_OF_GPUS = {"ib-down", "ib-flap", "ib-errors", "mount-gone", "mount-readonly", "nvme-gone"}
HIGH, LOW = records.Severity.HIGH, records.Severity.LOW


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The NVML stub."""
    return str(nvml_build.build(tmp_path_factory.mktemp("nvml")))


@pytest.fixture
def target(tmp_path: Path) -> registry.Target:
    """One healthy simulated eight-GPU node."""
    ports: dict[str, Any] = {"slurmctld_port": 1, "slurmdbd_port": 2, "slurmd_ports": (3,)}
    lay = layout.Layout(directory=tmp_path, nodes=1, gpus=8, bare=True, **ports)
    build.build(lay.node("n1"), "n1", number=1, gpus=8)
    return registry.Target(layout=lay, node="n1", env={**os.environ, processes.MARK: str(lay.directory)})


class Sweeps:
    """Sweeps of one node, each runner as fresh as the agent's: only the state file connects them."""

    def __init__(self, config: sweep.Config) -> None:
        self.config = config
        self.engine = sweep.make_runner(config)

    def run(self, names: list[str] | None = None) -> list[records.CheckResult]:
        return list(self.engine.run(names, force=True).results)

    def restart(self) -> None:
        self.engine = sweep.make_runner(self.config)


@pytest.fixture
def swept(target: registry.Target, library: str, monkeypatch: pytest.MonkeyPatch) -> Sweeps:
    """Sweeps of that node, with the mounts that its users need in the site file, after one healthy look."""
    monkeypatch.setenv("PROBING_NVML_STATE", str(target.nvml))
    site = target.home / "site.toml"
    site.write_text(
        '[checks.mount_present]\npaths = ["/home", "/scratch=lustre"]\n[checks.ib_link]\ncount = 8\n'
    )
    config = sweep.Config(
        node="n1",
        root=str(target.root),
        site_file=str(site),
        state_file=str(target.home / "checks.json"),
        nvml_library=library,
    )
    made = Sweeps(config)
    made.run()
    return made


def unwell(results: list[records.CheckResult]) -> dict[str, records.CheckResult]:
    fine = (records.Outcome.OK, records.Outcome.ABSENT)
    return {r.name: r for r in results if r.outcome not in fine}


def test_a_healthy_node_is_quiet(swept: Sweeps) -> None:
    """On a healthy node no check fails, warns or errs, at the first look, at the next, and after a restart."""
    assert unwell(list(swept.engine.results.values())) == {}
    assert unwell(swept.run()) == {}
    swept.restart()
    results = swept.run()
    assert unwell(results) == {}
    assert sum(r.outcome is records.Outcome.OK for r in results) >= 30


@pytest.mark.parametrize(
    ("fault", "options", "expected"),
    [
        ("gpu-lost", {"gpu": 3}, {"gpu_count": (FAIL, HIGH, "gpu3"), "gpu_xid": (FAIL, HIGH, None)}),
        (
            "ecc-uncorrectable",
            {"gpu": 2},
            {"gpu_ecc": (FAIL, HIGH, "gpu2"), "gpu_row_remap": (FAIL, LOW, "gpu2")},
        ),
        ("row-remap-failed", {"gpu": 1}, {"gpu_row_remap": (FAIL, HIGH, "gpu1")}),
        ("nvlink-down", {"gpu": 6}, {"gpu_nvlink": (FAIL, HIGH, "gpu6")}),
        ("pcie-downgrade", {"gpu": 4}, {"pcie_link": (FAIL, LOW, None)}),
        (
            "thermal",
            {"gpu": 7},
            {"gpu_temperature": (WARN, LOW, "gpu7"), "gpu_throttle": (WARN, LOW, "gpu7")},
        ),
        ("pcie-replay", {"gpu": 0, "count": 1000}, {"gpu_pcie_replay": (WARN, LOW, "gpu0")}),
        ("driver-gone", {}, {"gpu_count": (FAIL, HIGH, None), "gpu_ecc": (ERROR, HIGH, None)}),
        ("ib-down", {"hca": "mlx5_2"}, {"ib_link": (FAIL, HIGH, None), "ib_flap": (WARN, LOW, "mlx5_2")}),
        ("ib-flap", {"hca": "mlx5_2", "gap_s": 0.0}, {"ib_flap": (FAIL, LOW, "mlx5_2")}),
        ("ib-errors", {"hca": "mlx5_5"}, {"ib_counters": (WARN, LOW, "mlx5_5")}),
        ("mount-gone", {"path": "/scratch"}, {"mount_present": (FAIL, HIGH, "/scratch")}),
        (
            "mount-readonly",
            {"path": "/"},
            {"mount_writable": (FAIL, LOW, "/"), "block_errors": (FAIL, HIGH, None)},
        ),
        ("nvme-gone", {}, {"nvme_smart": (FAIL, HIGH, "nvme0"), "block_errors": (FAIL, HIGH, None)}),
    ],
)
def test_each_fault_is_found(
    target: registry.Target,
    swept: Sweeps,
    fault: str,
    options: dict[str, Any],
    expected: dict[str, tuple[records.Outcome, records.Severity, str | None]],
) -> None:
    """A fault is found by the checks that are about it, with device and severity; unrelated parts stay quiet."""
    registry.inject(target, fault, **options)
    found = unwell(swept.run())
    for name, (outcome, severity, device) in expected.items():
        assert name in found, (name, found)
        assert (found[name].outcome, found[name].severity) == (outcome, severity), found[name]
        if device is not None:
            assert found[name].device == device
    if fault in NOT_OF_GPUS:
        about_gpus = {n for n in found if n.startswith("gpu_")} - set(expected)
        assert not about_gpus


def test_a_hanging_driver_blames_nobody(
    target: registry.Target, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While NVML hangs, every GPU check errs and times out, none fails, and all other checks are judged."""
    monkeypatch.setattr(runner, "NVML_DEADLINE_S", 1.0)
    monkeypatch.setenv("PROBING_NVML_STATE", str(target.nvml))
    registry.inject(target, "nvml-hang", gpu=0)
    engine = sweep.make_runner(sweep.Config(node="n1", root=str(target.root), nvml_library=library))
    results = {r.name: r for r in engine.run(["gpu_count", "gpu_ecc", "ib_link", "uptime"]).results}
    assert {(results[n].outcome, results[n].timed_out) for n in ("gpu_count", "gpu_ecc")} == {(ERROR, True)}
    assert results["ib_link"].outcome is records.Outcome.OK
    assert results["uptime"].outcome is records.Outcome.OK
    assert len(engine.lanes.stuck) == 0


@pytest.mark.skipif(
    os.getuid() != 0 or not Path("/dev/fuse").exists(),
    reason="needs root and /dev/fuse to make a mount hang",
)
def test_a_mount_that_hangs_in_the_kernel(target: registry.Target, swept: Sweeps) -> None:
    """A real unkillable hang: found, shown, held by one child only, the rest of the node judged; then healed."""
    for directory in (target.layout.run, target.layout.log):
        directory.mkdir(parents=True, exist_ok=True)
    names = ["mount_responsive", "mount_present", "disk_space", "agent_self", "uptime"]
    registry.inject(target, "mount-hang", path="/home")
    try:
        first = {r.name: r for r in swept.run(names=names)}
        assert (first["mount_responsive"].outcome, first["mount_responsive"].device) == (FAIL, "/home")
        assert "stuck in the kernel" in first["mount_responsive"].message
        assert first["agent_self"].outcome is WARN
        for name in ("mount_present", "disk_space", "uptime"):
            assert first[name].outcome is records.Outcome.OK, first[name]
        stuck = first["agent_self"].message
        swept.restart()  # as the agent does between sweeps: the next process must know
        second = {r.name: r for r in swept.run(names=names)}
        assert "not started" in second["mount_responsive"].message
        assert second["agent_self"].message.partition(") is stuck")[0] == stuck.partition(") is stuck")[0]
    finally:
        hanging_mount.stop(target.layout, "n1")
    until = time.monotonic() + 60  # the kernel lets go of the child in its own time
    healed = {r.name: r for r in swept.run(names=names)}
    while healed["mount_responsive"].outcome is FAIL and time.monotonic() < until:
        time.sleep(0.1)
        healed = {r.name: r for r in swept.run(names=names)}
    assert healed["mount_responsive"].outcome is records.Outcome.OK
    assert healed["agent_self"].outcome is records.Outcome.OK


def test_healing_shows_at_once(target: registry.Target, swept: Sweeps) -> None:
    """What is repaired is ok at the next sweep, without waiting for a period."""
    registry.inject(target, "ib-down", hca="mlx5_2")
    assert "ib_link" in unwell(list(swept.engine.run().results))
    registry.inject(target, "ib-up", hca="mlx5_2")
    assert "ib_link" not in unwell(list(swept.engine.run().results))


def test_a_reboot_forgets(target: registry.Target, swept: Sweeps) -> None:
    """After a reboot with a healthy node, nothing of the last boot is held against it."""
    registry.inject(target, "ecc-uncorrectable", gpu=2)
    assert "gpu_ecc" in unwell(swept.run())
    build.reboot(target.home, "n1", number=1, gpus=8)
    swept.restart()
    assert set(unwell(swept.run())) <= {"uptime"}
