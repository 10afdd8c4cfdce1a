"""What /proc says of a process, and which job it is of."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from probing_cluster.probe_agent.jobs import guarded_reads, processes


def test_the_job_of_a_process_is_never_its_own_word(tmp_path: Path) -> None:
    """Cgroup or slurmstepd ancestry count; the environment does not."""
    proc = tmp_path / "proc"

    def process(pid: int, parent: int, cmdline: bytes, cgroup: bytes = b"0::/\n", real: int = 0) -> None:
        home = proc / str(pid)
        home.mkdir(parents=True)
        fields = [b"S", str(parent).encode(), *([b"0"] * 17), b"5", *([b"0"] * 10)]
        (home / "stat").write_bytes(b"%d (x) y) " % pid + b" ".join(fields))
        (home / "status").write_bytes(b"Name:\tx\nPPid:\t%d\nUid:\t%d\t0\t0\t0\n" % (parent, real))
        (home / "cmdline").write_bytes(cmdline)
        (home / "cgroup").write_bytes(cgroup)
        (home / "environ").write_bytes(b"SLURM_JOB_ID=666\0")

    process(10, 1, b"slurmd\0")
    process(20, 10, b"slurmstepd: [4242.0]\0")
    process(30, 20, b"python\0train.py\0")
    process(40, 1, b"python\0", b"0::/system.slice/slurmstepd.scope/job_77/step_0/user/task_0\n")
    process(50, 1, b"python\0", real=1000)
    process(60, 10, b"slurmstepd: [66.0]\0", real=1000)  # a set-uid program, whose title its user chose
    process(70, 60, b"python\0", real=1000)
    assert processes.job_of(30, proc) == 4242
    assert processes.job_of(70, proc) is None
    assert processes.job_of(40, proc) == 77
    assert processes.job_of(50, proc) is None
    assert processes.facts(30, proc) is not None
    assert processes.facts(31, proc) is None


@pytest.mark.parametrize(
    ("tracer", "user"),
    [(b"0", None), (b"31", 1000), (b"32", 0), (b"33", 1000), (b"99", None)],
    ids=["nobody", "its user", "root", "its user's set-uid program", "one that has gone"],
)
def test_who_traces_a_process_is_known(tmp_path: Path, tracer: bytes, user: int | None) -> None:
    """By the user who started the tracer: a set-uid program keeps that one."""
    for pid, users, by in (
        (30, b"1000\t1000", tracer),
        (31, b"1000\t1000", b"0"),
        (32, b"0\t0", b"0"),
        (33, b"1000\t0", b"0"),
    ):
        (tmp_path / str(pid)).mkdir()
        status = b"Name:\tx\nState:\tt (tracing stop)\nTracerPid:\t%b\nUid:\t%b\t0\t0\n" % (by, users)
        (tmp_path / str(pid) / "status").write_bytes(status)
    assert processes.tracer_of(30, tmp_path) == user
    assert processes.tracer_of(98, tmp_path) is None


SLUID = "s5K1KKYAYG5D00"
SCOPE = "/system.slice/slurmstepd.scope"


@pytest.mark.parametrize(
    ("cgroup", "job"),
    [
        # 22.05 to 25.11, and 26.05 with CgroupJobIdPaths=yes: cgroup_v2.c, cgroup_p_step_create
        (f"0::{SCOPE}/job_77/step_0/user/task_0", 77),
        (f"0::{SCOPE}/job_77/step_batch/user/task_0", 77),
        ("0::/system.slice/n1_slurmstepd.scope/job_77/step_extern/user/task_special", 77),  # several slurmd
        ("0::/slurm.slice/slurmstepd.scope/job_77/step_interactive/user/task_0", 77),  # CgroupSlice
        ("0::/docker/4f1c/system.slice/slurmstepd.scope/job_77/step_0/user/task_0", 77),
        # v1: xcgroup.c, xcgroup_create_hierarchy, a line per controller
        ("12:cpuset:/slurm/uid_1000/job_77/step_0/task_0\n4:memory:/slurm/uid_1000/job_77/step_0", 77),
        ("11:freezer:/slurm_n1/uid_1000/job_77/step_batch\n1:name=systemd:/system.slice/slurmd.service", 77),
        # 26.05: cgroup_v2.shtml's and cgroup.conf(5)'s own examples
        (f"0::{SCOPE}/{SLUID}/step_0/user/task_0", 3385),
        (f"0::{SCOPE}/{SLUID}/step_extern/slurm", 3385),
        (f"0::/system.slice/n1_slurmstepd.scope/{SLUID}/step_interactive/user/task_0", 3385),
        (f"0::{SCOPE}/sEKNKTV3WPV500/step_0/user/task_0", None),  # a job that no Prolog told us of
        # not Slurm's: what a user may name in cgroups of their own, and what is nobody's job
        ("0::/user.slice/user-1000.slice/user@1000.service/job_77", None),
        ("0::/user.slice/user-1000.slice/user@1000.service/slurmstepd.scope/job_77", None),
        (f"0::/user.slice/user-1000.slice/user@1000.service/{SLUID}", None),
        (f"0::{SCOPE}/{SLUID}/step_0/user/task_0/slurmstepd.scope/job_77", 3385),
        (f"0::{SCOPE}/system", None),
        ("0::/system.slice/slurmd.service", None),
        ("0::/", None),
    ],
)
def test_the_cgroups_of_every_release(tmp_path: Path, cgroup: str, job: int | None) -> None:
    """As Slurm's sources and manual make them on v1, on v2, and by SLUID; nobody else's directories count."""
    home = tmp_path / "50"
    home.mkdir()
    (home / "cgroup").write_text(cgroup + "\n")
    (home / "stat").write_text("50 (python) S 1 " + "0 " * 30)
    assert processes.job_of(50, tmp_path, {SLUID: 3385}) == job


def test_an_unknown_sluid_is_known_by_its_slurmstepd(tmp_path: Path) -> None:
    """A Prolog that did not tell (an older hook) costs nothing while the step's slurmstepd is the process's ancestor."""
    for pid, parent, title in ((20, 10, b"slurmstepd: [3385.0]\0"), (30, 20, b"python\0")):
        home = tmp_path / str(pid)
        home.mkdir()
        (home / "cgroup").write_text(f"0::{SCOPE}/{SLUID}/step_0/user/task_0\n")
        os.mkfifo(home / "stat")
        (home / "cmdline").write_bytes(title)
        (home / "status").write_bytes(b"PPid:\t%d\nUid:\t0\t0\t0\t0\n" % parent)
    assert processes.job_of(30, tmp_path) == 3385
    assert processes.job_of(30, tmp_path, {SLUID: 4242}) == 4242


def test_the_job_is_found_without_a_users_files_that_can_hang(tmp_path: Path) -> None:
    """Reading stat or cmdline waits for a lock that a user can hold for ever; here both are pipes that nobody writes to."""
    for pid, parent in ((20, 10), (30, 20)):
        home = tmp_path / str(pid)
        home.mkdir()
        os.mkfifo(home / "stat")
        (home / "status").write_bytes(b"PPid:\t%d\nUid:\t1000\t1000\t1000\t1000\n" % parent)
        os.mkfifo(home / "cmdline")
    found: list[object] = []
    reader = threading.Thread(
        target=lambda: found.extend((processes.job_of(30, tmp_path), processes.is_extern(30, tmp_path))),
        daemon=True,
    )
    reader.start()
    reader.join(20.0)
    assert found == [None, False]


def test_children_are_found_whichever_thread_started_them() -> None:
    """The kernel lists them thread by thread; a data loader's workers may be started by any."""
    started: list[subprocess.Popen[bytes]] = []
    made, over = threading.Event(), threading.Event()

    def start() -> None:
        started.append(subprocess.Popen(["/bin/sleep", "60"]))
        made.set()
        over.wait(60)

    thread = threading.Thread(target=start)
    thread.start()
    try:
        assert made.wait(30)
        assert started[0].pid in processes.children_of(os.getpid())
    finally:
        over.set()
        thread.join()
        started[0].kill()
        started[0].wait()
    assert processes.children_of(started[0].pid) == []


class Rationed:
    """Reads of processes that answer until the waiting is used up."""

    def __init__(self, left: int) -> None:
        self.left = left
        self.pids: list[int] = []

    def read(self, pid: int, uid: int, work: Callable[[], Path]) -> Path:
        assert uid == os.getuid()
        if not self.left:
            raise guarded_reads.ProcessHangs(f"process {pid} is not asked")
        self.left -= 1
        self.pids.append(pid)
        return work()


def test_who_may_be_sought_in_a_namespace_is_asked_and_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that could not be asked are named, and come first the next time: 150 processes of a container used up the waiting."""
    for pid in range(1000, 1300):
        namespace = tmp_path / str(pid) / "ns"
        namespace.mkdir(parents=True)
        (namespace / "pid").symlink_to(f"pid:[{pid % 3}]")
        # Every third one is in our own namespace.
        inner = f"\t{pid // 10}" if pid % 3 else ""
        (tmp_path / str(pid) / "status").write_text(f"Name:\tx\nNSpid:\t{pid}{inner}\nThreads:\t1\n")
    sought = {pid for pid in range(1170, 1180) if pid % 3}
    monkeypatch.setattr(guarded_reads, "READS", reads := Rationed(4))
    first = processes.inside(os.getuid(), {117}, (), tmp_path)
    assert first.unanswered == sought - set(reads.pids)
    assert len(first.unanswered) == len(sought) - 4
    reads.left = 4
    second = processes.inside(os.getuid(), {117}, first.unanswered, tmp_path)
    assert first.unanswered <= set(reads.pids[4:])
    assert set(second.found) <= {(1, 117), (2, 117)}
    reads.left = 100
    third = processes.inside(os.getuid(), {117}, second.unanswered, tmp_path)
    assert (third.unanswered, set(third.found)) == (frozenset(), {(1, 117), (2, 117)})
    assert set(reads.pids) == sought
    monkeypatch.setattr(processes, "_MAX_INSIDE", 250)
    assert len(processes.inside(os.getuid(), {117}, (), tmp_path).unanswered) == 50
