"""node_exporter reads what the agent wrote, whole or not at all."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from probing_cluster.core import certificates, records
from probing_cluster.probe_agent import textfile
from tests.control_plane import certificates as made
from tests.control_plane import prometheus

AT = datetime(2026, 1, 31, 14, 0, tzinfo=UTC)


def beat(**fields: object) -> records.AgentHeartbeat:
    return records.AgentHeartbeat(cluster="c", node="n1", at=AT, **fields)  # type: ignore[arg-type]


def samples(text: str) -> dict[tuple[str, str], float]:
    """Prometheus's own parser's reading: (name, the one label's value) to value."""
    return {
        (s.name, next(iter(s.labels.values()), "")): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
    }


def test_prometheus_reads_every_number(tmp_path: Path) -> None:
    """Faults by severity, spool, losses, sources: each arrives under its documented name."""
    path = tmp_path / "probing.prom"
    one = beat(
        faults={"xid:gpu3": {"severity": "high"}, "link:ib0": {"severity": "low"}}, jobs=(7, 8), spool_depth=4,
        lag_s=1.5, dropped_total=9, hung_children=1, cpu_s=2.25,
        sources={"kernel": {"state": "ok"}, "nvml": {"state": "error"}, 'evil"} 1\n#': {"error": "x"}},
    )  # fmt: skip
    crt, _ = made.self_signed(tmp_path)
    used = [certificates.CertificateFile(key="", path=p, authority=False) for p in (crt, tmp_path / "none")]
    assert textfile.Textfile(path).write(one, used)
    found = samples(path.read_text())
    assert found["probing_local_faults", "high"] == found["probing_local_faults", "low"] == 1
    assert found["probing_local_beat_timestamp_seconds", ""] == AT.timestamp()
    assert (found["probing_local_spool_depth", ""], found["probing_local_lag_seconds", ""]) == (4, 1.5)
    assert (found["probing_local_dropped_total", ""], found["probing_local_jobs", ""]) == (9, 2)
    assert (found["probing_local_source_up", "kernel"], found["probing_local_source_up", "nvml"]) == (1, 0)
    ends = {
        file: at for (name, file), at in found.items() if name.endswith("certificate_end_timestamp_seconds")
    }
    assert ends == {str(crt): made.end_of(crt).timestamp(), f"{tmp_path}/none": 0}
    assert {name for name, _ in found} == {f"probing_local_{name}" for name, _, _ in textfile.NAMES}
    assert path.stat().st_mode & 0o777 == 0o644
    assert [p.name for p in tmp_path.iterdir() if p.suffix not in {".crt", ".key"}] == ["probing.prom"]


def test_every_metric_is_in_the_manual() -> None:
    """docs/agent.md names each."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "agent.md").read_text(encoding="utf-8")
    assert [name for name, _, _ in textfile.NAMES if f"`{name}`" not in page] == []


def test_a_disk_that_refuses_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """No directory: a warning, no exception, no second warning; and it works again when it can."""
    written = textfile.Textfile(tmp_path / "later" / "probing.prom")
    with caplog.at_level(logging.WARNING):
        assert not written.write(beat())
        assert not written.write(beat())
    assert len(caplog.records) == 1
    (tmp_path / "later").mkdir()
    assert written.write(beat())


def test_nothing_half_is_left_where_the_disk_refuses(tmp_path: Path) -> None:
    """Every agent has another number: its halves would pile up on the full disk."""
    target = tmp_path / "probing.prom"
    target.mkdir()
    assert not textfile.Textfile(target).write(beat())
    assert list(tmp_path.iterdir()) == [target]


def test_the_real_node_exporter_takes_it(tmp_path: Path) -> None:
    """Debian's prometheus-node-exporter shows every metric with its type and finds no error in the file."""
    one = beat(
        faults={"xid:gpu3": {"severity": "high"}}, spool_depth=4, sources={'a"b\\c\nd': {"state": "ok"}}
    )
    crt, _ = made.self_signed(tmp_path)
    used = [certificates.CertificateFile(key="", path=crt, authority=False)]
    assert textfile.Textfile(tmp_path / "probing.prom").write(one, used)
    arguments = (
        "--collector.disable-defaults",
        "--collector.textfile",
        f"--collector.textfile.directory={tmp_path}",
    )
    with prometheus.running("prometheus-node-exporter", *arguments, log=tmp_path / "log") as port:
        text = prometheus.get(f"http://127.0.0.1:{port}/metrics")
    assert samples(text)["node_textfile_scrape_error", ""] == 0
    for name, kind, meaning in textfile.NAMES:
        assert f"# TYPE probing_local_{name} {kind}\n" in text
        assert f"# HELP probing_local_{name} {meaning}" in text
    assert samples(text)["probing_local_spool_depth", ""] == 4
