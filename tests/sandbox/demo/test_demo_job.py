"""What the demo trains."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from probing_cluster.sandbox.demo import replay


def test_the_training_script_resumes_from_its_checkpoint(tmp_path: Path) -> None:
    """Killed between checkpoints and started again, it goes on from the last one; it runs without PyTorch too."""
    script = Path(replay.__file__).with_name("demo_job.py")
    checkpoint = tmp_path / "checkpoint"
    argv = [sys.executable, "-S", str(script), str(checkpoint), "2", "1"]
    first = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()
    assert first[0] == "starting at step 0"
    assert first[-1] == "done after 2 steps"
    argv[-2] = "3"
    second = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()
    assert second[0] == "resuming at step 2"
