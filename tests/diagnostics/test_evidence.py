"""Failed tests as events: of what accuses somebody, once, with its figures."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

import pytest

from probing_cluster.core import records, vocabulary
from probing_cluster.diagnostics import evidence, registry

NOW = datetime(2026, 11, 1, tzinfo=UTC)


def result(test: str, outcome: str = "fail", **more: Any) -> records.DiagnosticResult:
    given = {"message": "3 wrong results", "version": "1 e", "model": "H200", **more}
    return records.DiagnosticResult(
        result_id=uuid.uuid4(), cluster="c", round_id=uuid.uuid4(), node="n1", test=test,
        outcome=records.Outcome(outcome), at=NOW, **given,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("given", "kind", "severity"),
    [
        (result("gemm", device="gpu3"), "gpu_test", "high"),
        (result("gemm", device="cpu"), "node_test", "high"),
        (result("gemm", "warn", device="gpu3"), "gpu_test", "info"),
        (result("dcgmi", device="GPU Memory gpu3"), "gpu_test", "high"),
        (result("disk", device="/scratch"), "node_test", "high"),
        (result("pair", detail={"conclusion": "node"}), "link_test", "high"),
        (result("pair", peer="n2", detail={"conclusion": "link"}), "link_test", "low"),
        (result("pair", "warn", detail={"conclusion": "slow"}), "link_test", "info"),
    ],
)
def test_what_accuses_a_node_or_a_link_is_an_event_of_a_kind_in_the_table(
    given: records.DiagnosticResult, kind: str, severity: str
) -> None:
    (event,) = evidence.events([given])
    assert (event.kind, event.severity.value, event.source, event.code) == (
        kind,
        severity,
        "diagnostic",
        given.test,
    )
    assert event.kind in {k.name for k in vocabulary.EVENT_KINDS}
    assert event.device in {given.device, "gpu3", "link to n2"}
    assert evidence.events([given]) == [event], "the same result is the same event"


@pytest.mark.parametrize(
    "given",
    [
        result("gemm", "ok"),
        result("gemm", "error"),
        result("gemm", "absent"),
        result("pair", peer="n2"),
        result("ring"),
        result("torch-allreduce"),
        result("no-such-test"),
    ],
)
def test_what_accuses_nobody_is_none(given: records.DiagnosticResult) -> None:
    """A pair or a group that fails is somebody's fault, and by itself nobody's in particular."""
    assert evidence.events([given]) == []


def test_figures_version_and_baseline_are_kept() -> None:
    given = result("memory", device="gpu0", measured=1.0, threshold=2.0, baseline=3.0, unit="bytes_s")
    (event,) = evidence.events([given])
    assert (event.measured, event.threshold, event.unit) == (1.0, 2.0, "bytes_s")
    assert (event.detail["baseline"], event.detail["version"], event.detail["model"]) == (3.0, "1 e", "H200")
    assert event.detail["round_id"] == str(given.round_id)


def test_no_test_of_the_register_is_forgotten() -> None:
    """Every test of one node makes an event when it fails."""
    alone = [name for name, test in registry.load().items() if test.scope == "node"]
    assert [e.code for e in evidence.events([result(name) for name in alone])] == alone
