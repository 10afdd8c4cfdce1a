"""`make demo`, as a newcomer runs it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from probing_cluster.sandbox.demo import demo
from probing_cluster.sandbox.machine import layout, processes

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(600)]


def test_the_demo_tells_the_whole_story_and_leaves_a_report(
    box_directory: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Boot, job, Xid 79, drain, requeue, resume, verdict, HTML: in this order, and nothing runs afterwards."""
    monkeypatch.setattr(demo, "STEPS", 48)  # a busy machine takes its time to drain the node
    monkeypatch.setattr(demo, "CHECKPOINT_EVERY", 4)
    # A newcomer's machine has no torch, and importing it takes each of four processes five seconds.
    (box_directory / "without").mkdir(parents=True)
    (box_directory / "without/torch.py").write_text("raise ImportError")
    monkeypatch.setenv("PYTHONPATH", str(box_directory / "without"))
    directory = box_directory / "demo"
    announced: list[str] = []
    job = demo.run(directory, keep=False, announce=announced.append)
    story = "\n".join(announced)
    order = ("booting", "probing-ctl serve", "runs on", "breaking GPU 3", "is drained: probing:", "is requeued", "runs again",
             "resuming at step", "is completed", "HTML report")  # fmt: skip
    found = [story.find(words) for words in order]
    assert -1 not in found, story
    assert found == sorted(found), story
    broken = re.search(r"breaking GPU 3 of (n\d)", story)
    assert broken
    report = capfd.readouterr().out
    assert f"$ probing-report {job}" in report
    assert f"GPU 3 of {broken[1]} fell off the bus (Xid 79)" in report
    assert "COMPLETED after 1 requeue" in report
    assert "Xid 79" in demo.html_file(directory, job).read_text()
    assert processes.listing(directory) == []
    demo.clear(directory, announced.append)
    assert not layout.exists(directory)
