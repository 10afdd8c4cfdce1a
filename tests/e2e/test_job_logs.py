"""What jobs of an ordinary user wrote, wherever Slurm's patterns put it, on a real cluster."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
NOBODY = 65534
ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered"


@pytest.fixture
def up(calm: Any) -> Any:
    """One cluster for all of them: no node is touched."""
    return calm


@pytest.fixture
def home() -> Iterator[Path]:
    """A directory in which that user works."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o777)
        yield Path(directory)


def submit(up: Any, home: Path, script: str, *options: str) -> int:
    """sbatch as that user; the job's number, of an array its master's."""
    path = home / "job.sh"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    become = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    done = up.sandbox.run([*become, "sbatch", "--parsable", "-D", str(home), *options, str(path)])
    return int(re.split(r"[;\s]", done.stdout)[0])


def logs(up: Any, job: str) -> list[dict[str, Any]]:
    """What the report shows of the logs of the job's attempt, once judged."""

    def shown(report: dict[str, Any]) -> bool:
        return bool(report["attempts"][-1].get("logs") and report["attempts"][-1].get("verdict"))

    return list(up.reported(job, shown)["attempts"][-1]["logs"])


def test_an_arrays_task_with_a_file_for_its_errors(up: Any, home: Path) -> None:
    """`arr-%A_%a` and `--error` are read like any other name: the same line gives the same verdict."""
    script = f"echo step 1; sleep 2; echo '{ECC}' >&2; exit 1"
    alone = submit(up, home, script, "-o", "single.out")
    plain = submit(up, home, script, "-a", "5", "-o", "arr-%A_%3a.out", "-e", "%u-%5j-%a.err")
    (single,) = logs(up, str(alone))
    assert (single["path"], single["tail"]) == (str(home / "single.out"), ["step 1", ECC])
    out, err = logs(up, f"{plain}_5")
    assert (out["stream"], out["path"], out["tail"]) == (
        "stdout",
        str(home / f"arr-{plain}_005.out"),
        ["step 1"],
    )
    assert (err["stream"], err["tail"]) == ("stderr", [ECC])
    assert Path(err["path"]).name == f"nobody-{plain:05d}-5.err"
    report = up.sandbox.run(["probing-report", f"{plain}_5"]).stdout
    assert f"| {ECC}" in report

    def causes() -> set[str]:
        return {up.report(str(j))["attempts"][-1]["verdict"]["cause"] for j in (alone, f"{plain}_5")}

    up.until("the same verdict", lambda: len(causes()) == 1)


@pytest.mark.soak
def test_an_array_task_that_is_dead_at_once(up: Any, home: Path) -> None:
    """No process of it was ever looked at, and this Slurm's Prolog is told nothing of arrays: accounting knows the number."""
    job = submit(up, home, f"echo '{ECC}'; exit 1", "-a", "5", "-o", "at-once-%A_%a.out")

    def read() -> dict[str, Any] | None:
        return next((log for log in logs(up, f"{job}_5") if log.get("tail")), None)

    log = up.until("the log", read)
    assert (log["path"], log["tail"]) == (str(home / f"at-once-{job}_5.out"), [ECC])


def test_files_of_a_steps_tasks_are_read_on_their_own_nodes(up: Any, home: Path) -> None:
    """`srun --output rank-%t`: each node reads those of its own tasks."""
    script = "srun -o rank-%t sh -c 'echo rank $SLURM_PROCID; sleep 4; echo ValueError: bad shape; exit 1'"
    job = submit(up, home, script, "-N2", "-n2", "-o", "batch.out")
    up.until("all logs", lambda: len(logs(up, str(job))) >= 3)
    found = {Path(log["path"]).name: log for log in logs(up, str(job))}
    assert {"rank-0", "rank-1"} <= found.keys()
    assert found["rank-0"]["node"] != found["rank-1"]["node"]
    assert found["rank-1"]["tail"][-2:] == ["rank 1", "ValueError: bad shape"]


@pytest.mark.soak
def test_a_file_that_nobody_can_read_says_why(up: Any, home: Path) -> None:
    """Removed by the job itself: the report says so, and does not pretend that nothing was written."""
    job = submit(up, home, "sleep 1; rm gone.out; exit 1", "-o", "gone.out")
    (log,) = logs(up, str(job))
    assert (log["path"], log["why_not_read"]) == (str(home / "gone.out"), "there is no such file")
