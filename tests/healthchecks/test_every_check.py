"""What must be true of every registered check, whatever it looks at."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable
from typing import Any

import pytest

from probing_cluster.core import records
from probing_cluster.healthchecks import nodeview, registry, runner, site
from probing_cluster.healthchecks.readers import nvml
from tests.every_case import every

NAMES = sorted(registry.load())


def _only(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    """Every check with `changes`, and nothing to read beforehand."""
    changed = {n: dataclasses.replace(c, **changes) for n, c in registry.load().items() if c.lane != "self"}
    monkeypatch.setattr(registry, "load", lambda: changed)


def test_an_empty_node_is_never_healthy(node: Any, sweep_on: Callable[..., runner.CheckRunner]) -> None:
    """Where there is nothing to see, no check says ok, warn or fail: not seeing is not health."""
    for path in node.root.iterdir():
        assert path.name == "proc"
    (node.root / "proc/uptime").unlink()
    for result in sweep_on().run().results:
        if result.name != "agent_self":
            assert result.outcome in (records.Outcome.ABSENT, records.Outcome.ERROR), result


def test_an_exception_is_the_outcome_error(
    sweep_on: Callable[..., runner.CheckRunner], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check that raises is in error, with the exception's text and place, and stops no other."""

    def broken(_: nodeview.NodeView) -> None:
        raise RuntimeError("the tool spoke Latin")

    _only(monkeypatch, read=broken)
    results = sweep_on().run().results
    assert [r.name for r in results] == [n for n in NAMES if n != "agent_self"]
    for result in results:
        assert result.outcome is records.Outcome.ERROR
        assert "RuntimeError: the tool spoke Latin (test_every_check.py:" in result.message
        assert not result.timed_out


def test_a_hang_is_the_outcome_error_timed_out(
    node: Any, sweep_on: Callable[..., runner.CheckRunner], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check that blocks in the kernel is ended at its deadline and marked, each on its own."""
    fifo = node.root / "fifo"
    os.mkfifo(fifo)

    def hang(_: nodeview.NodeView) -> None:
        os.open(fifo, os.O_RDONLY)

    _only(monkeypatch, read=hang, deadline_s=0.15, lane="files")
    engine = sweep_on()
    results = engine.run().results
    assert len(results) == len(NAMES) - 1
    assert {(r.outcome, r.timed_out) for r in results} == {(records.Outcome.ERROR, True)}
    assert len(engine.lanes.stuck) == 0


def test_a_hanging_nvml_is_no_verdict_on_any_gpu(node: Any) -> None:
    """When NVML does not answer, every GPU check is in error and timed out; none fails."""
    node.facts["nvml"] = {"error": "no answer in 10 s", "timed_out": True}
    for name, check in registry.load().items():
        if check.lane == "gpu":
            finding = node.check(name)
            assert (finding.outcome, finding.timed_out) == (records.Outcome.ERROR, True), name


def test_a_broken_nvml_is_no_verdict_on_any_gpu(node: Any) -> None:
    """When NVML fails for a reason of its own, every GPU check is in error; none fails, none is ok."""
    lack = nvml.NvmlUnavailable(kind=nvml.SnapshotLack.ERROR, message="NVML: Unknown Error", code="UNKNOWN")
    node.facts["nvml"] = nvml.to_json(lack)
    for name, check in registry.load().items():
        if check.lane == "gpu":
            assert node.check(name).outcome is records.Outcome.ERROR, name


def test_a_lost_gpu_blinds_the_other_checks(node: Any) -> None:
    """A lost GPU fails gpu_count and is unreadable, never healthy, to every other GPU check."""
    node.have_gpus(2)
    node.gpus[1] = nvml.NvmlGpu(index=1, uuid="GPU-1", pci_bus_id="0000:02:00.0", lost="GPU_IS_LOST")
    for name, check in registry.load().items():
        if check.lane == "gpu" and name not in (
            "gpu_versions",
            "gpu_retired_pages",
            "gpu_processes",
            "nvswitch_fabric",
        ):
            outcome = node.check(name).outcome
            assert outcome is (records.Outcome.FAIL if name == "gpu_count" else records.Outcome.ERROR), name


@every("name", NAMES)
def test_it_is_documented(name: str) -> None:
    """Every field that explain and the manual show is filled, every default has its source."""
    check = registry.get(name)
    for text in (check.proves, check.component, check.fails, check.warns, check.needs, check.next_step):
        assert text.strip()
    assert check.proves.endswith(".")
    assert 0 < check.deadline_s <= registry.MAX_DEADLINE_S
    for limit in check.thresholds:
        assert limit.meaning, limit.key
        assert limit.source, limit.key
        assert limit.default is None or isinstance(limit.default, limit.kind), limit.key
        assert re.fullmatch(r"[a-z][a-z0-9_]*", limit.key)
        assert limit.key not in site.COMMON_KEYS


def test_only_the_hard_list_is_high() -> None:
    """High severity drains and requeues: exactly the causes that DESIGN names may have it."""
    high = {n for n, c in registry.load().items() if c.severity is records.Severity.HIGH}
    assert high == {
        "block_errors",
        "edac",
        "gpu_count",
        "gpu_ecc",
        "gpu_nvlink",
        "gpu_row_remap",
        "gpu_xid",
        "ib_link",
        "mount_present",
        "mount_responsive",
        "nvme_smart",
        "pcie_link",
        "raid",
    }


def test_only_high_checks_may_refuse() -> None:
    """A Prolog may refuse only on a hard fault, and a hard fault is a high one."""
    for name, check in registry.load().items():
        assert not check.hard or check.severity is records.Severity.HIGH, name
