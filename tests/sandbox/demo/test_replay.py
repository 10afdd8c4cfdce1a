"""The demo where no cluster can run."""

from __future__ import annotations

import pytest

from probing_cluster.db.server import embedded
from probing_cluster.sandbox.demo import recording, replay
from probing_cluster.sandbox.machine import scratch


def test_a_replay_judges_and_reports(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Without any cluster the recorded incident ends in the same verdict, on the terminal and as HTML; nothing keeps running."""
    with scratch.directory("probing-replay-") as directory:
        announced: list[str] = []
        job = replay.run(directory, recording.DEMO, announce=announced.append)
        printed = capfd.readouterr().out
        assert f"$ probing-report {job}" in printed
        assert "Xid 79" in printed
        assert "hardware, certain" in printed
        html = directory / f"report-{job}.html"
        assert announced[-1] == f"HTML report: {html}"
        assert "Xid 79" in html.read_text()
        assert not embedded.running(directory / "postgres")
