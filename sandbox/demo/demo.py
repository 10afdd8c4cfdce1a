"""`probing-sandbox demo`: a real job dies on a real Slurm cluster, and probing-report says why."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

from probing_cluster.core import hostlist
from probing_cluster.sandbox import cluster
from probing_cluster.sandbox.machine import commands, layout, processes

NODES, GPUS, BROKEN_GPU = 4, 8, 3
STEPS, CHECKPOINT_EVERY = 60, 12
_TRAINING = """
srun --ntasks-per-node=1 {python} {script} {checkpoint} {steps} {every}
"""

Announce = Callable[[str], None]


def run(directory: Path, *, keep: bool, announce: Announce) -> int:
    """The whole story; everything is stopped at the end unless `keep`. Returns the job's id."""
    clear(directory, announce)
    announce(f"booting a real Slurm cluster of {NODES} nodes x {GPUS} GPUs on this machine, in {directory}")
    box = cluster.Sandbox.up(directory, nodes=NODES, gpus=GPUS, announce=lambda line: announce(f"  {line}"))
    try:
        job = _story(box, announce)
        _report(box, job)
        announce("")
        announce(f"HTML report: {html_file(directory, job)}")
    except BaseException:
        box.down()
        raise
    if not keep:
        box.down()
    return job


def clear(directory: Path, announce: Announce) -> None:
    """Ends and removes an earlier demo in the same place."""
    if not layout.exists(directory):
        return
    if processes.listing(directory.resolve()):
        announce("stopping the cluster of an earlier demo")
    cluster.Sandbox.open(directory).down(purge=True)


def html_file(directory: Path, job: int) -> Path:
    """The path of the HTML report of `job`."""
    return directory.resolve() / f"report-{job}.html"


def _story(box: cluster.Sandbox, announce: Announce) -> int:
    job = box.submit(_training(box), nodes=2, gres=f"gpu:{GPUS}", job_name="llama-70b-sft")
    box.wait(job, ["RUNNING"])
    nodes = _nodes(box, job)
    announce(f"sbatch: job {job} runs on {hostlist.compress(nodes)}, 2 nodes x {GPUS} GPUs")
    output = _Output(box, job, announce)
    output.wait_for(f"checkpoint at step {2 * CHECKPOINT_EVERY}")
    # Right after a checkpoint: what is trained until the requeue is lost, whenever that comes.
    time.sleep(1)
    _break_gpu(box, nodes[1], announce)
    _wait_for(lambda: _restarts(box, job) == 1, f"job {job} is not requeued", 60)
    output.announce_new()
    announce(f"job {job} is requeued under the same id")
    box.wait(job, ["RUNNING"], timeout_s=120)
    announce(f"job {job} runs again, on {hostlist.compress(_nodes(box, job))}")
    output.wait_for(f"done after {STEPS} steps")
    box.wait(job, ["COMPLETED"], timeout_s=120)
    announce(f"job {job} is completed; waiting for the verdict")
    _wait_for(lambda: _is_judged(box, job), "no verdict yet; the report shows what there is", 60, fatal=False)
    return job


def _break_gpu(box: cluster.Sandbox, node: str, announce: Announce) -> None:
    """Xid 79, and returns when the node is drained for it."""
    gpu = box.hardware(node).gpus[BROKEN_GPU]
    announce(f"breaking GPU {BROKEN_GPU} of {node} ({gpu.pci}): Xid 79, it has fallen off the bus")
    box.fault(node, "xid", code=79, gpu=BROKEN_GPU)

    def sinfo(what: str) -> str:
        return box.run(["sinfo", "-hn", node, "-p", "gpu", "-o", what]).stdout.strip()

    _wait_for(lambda: sinfo("%T").startswith("drain"), f"{node} is not drained", 60)
    announce(f"{node} is drained: {sinfo('%E')}")


def _training(box: cluster.Sandbox) -> str:
    # Copied to where the job's user can read it, wherever this checkout lies.
    script = box.layout.jobs / "train.py"
    shutil.copyfile(Path(__file__).with_name("demo_job.py"), script)
    checkpoint = box.layout.jobs / "checkpoint"
    return _TRAINING.format(
        python=sys.executable, script=script, checkpoint=checkpoint, steps=STEPS, every=CHECKPOINT_EVERY
    )


def _nodes(box: cluster.Sandbox, job: int) -> list[str]:
    return hostlist.expand(box.run(["squeue", "-hj", str(job), "-o", "%N"]).stdout.strip())


def _restarts(box: cluster.Sandbox, job: int) -> int:
    shown = box.run(["scontrol", "-o", "show", "job", str(job)]).stdout
    return int(shown.partition(" Restarts=")[2].partition(" ")[0] or 0)


def _is_judged(box: cluster.Sandbox, job: int) -> bool:
    done = box.run(["probing-report", str(job), "--json"], check=False)
    if done.returncode != 0:
        return False
    report = json.loads(done.stdout)
    attempts = report["attempts"]
    judged = len(attempts) == 2 and attempts[0]["verdict"] is not None
    return report["state"] == "COMPLETED" and judged and report["ettr"]["wall_s"] is not None


def _report(box: cluster.Sandbox, job: int) -> None:
    sys.stdout.write(f"\n$ probing-report {job}\n")
    sys.stdout.flush()
    commands.call(["probing-report", str(job)], env=box.env)
    box.run(["probing-report", str(job), "--html", str(html_file(box.directory, job))])


class _Output:
    """Announces each line that the job prints, once and in time."""

    def __init__(self, box: cluster.Sandbox, job: int, announce: Announce) -> None:
        self._path = box.layout.jobs / f"slurm-{job}.out"
        self._job = job
        self._announce = announce
        self._n_printed = 0

    def announce_new(self) -> list[str]:
        """Tells the lines that are new; returns all of them."""
        lines = self._read()
        for new in lines[self._n_printed :]:
            self._announce(f"  job {self._job}: {new}")
        self._n_printed = len(lines)
        return lines

    def wait_for(self, start: str) -> None:
        """Returns when the job has printed a line that begins so."""
        problem = f"job {self._job} does not say {start!r}; see {self._path}"
        _wait_for(lambda: any(line.startswith(start) for line in self.announce_new()), problem, 180)

    def _read(self) -> list[str]:
        # Only what the script printed: Slurm's own words about the requeue stand between.
        words = ("starting", "resuming", "checkpoint", "done")
        lines = self._path.read_text(errors="replace").splitlines() if self._path.exists() else []
        return [line for line in lines if line.startswith(words)]


def _wait_for(ready: Callable[[], bool], message: str, timeout_s: float, *, fatal: bool = True) -> None:
    with contextlib.nullcontext() if fatal else contextlib.suppress(commands.CommandFailed):
        commands.wait_until(ready, message, timeout_s=timeout_s, every_s=0.3)
