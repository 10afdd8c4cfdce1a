"""The sandbox's real Slurm cluster."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from pathlib import Path

import pytest

from probing_cluster.core import digits, errors
from probing_cluster.sandbox import cluster, jobs
from probing_cluster.sandbox.machine import (
    commands,
    hanging_mount,
    layout,
    mounts,
    processes,
    requirements,
)

pytestmark = pytest.mark.cluster


def _global_files() -> set[str]:
    """Files in the places that daemons like to write to."""
    places = ("/run", "/var/run", "/etc", "/var/lib", "/var/log", "/var/spool", "/dev/shm", "/tmp")
    found = set()
    for place in places:
        for directory, folders, files in os.walk(place):
            if directory in {"/tmp", "/dev/shm"}:
                # Others work there too, other tests' sandboxes, browsers and trainings among them: only what Slurm and its
                # friends are known to make.
                folders[:] = [f for f in folders if re.search("slurm|munge|mysql|maria", f)]
                files = [f for f in files if re.search("slurm|munge|mysql|maria|sock", f)]
            folders[:] = [f for f in folders if not f.startswith("probing-")]
            found.update(f"{directory}/{name}" for name in files)
    return found


def test_a_job_gets_its_gpus_and_the_prolog_is_told_which(bare: cluster.Sandbox) -> None:
    """Each node's Prolog and tasks see SLURM_JOB_GPUS, counted by device file, and accounting counts the GPUs."""
    script = bare.layout.etc / "prolog.d/record"
    script.write_text(f'#!/bin/sh\nenv >"{bare.directory}/nodes/$SLURMD_NODENAME/run/prolog.env"\n')
    script.chmod(0o755)
    job = bare.submit(
        'srun -l sh -c "echo $SLURMD_NODENAME:$SLURM_JOB_GPUS"', nodelist="n[1-2]", gres="gpu:3"
    )
    assert bare.wait(job, ["COMPLETED", "FAILED"]) == "COMPLETED"
    script.unlink()
    for name in ("n1", "n2"):
        environment = (bare.layout.node(name) / "run/prolog.env").read_text().splitlines()
        assert "SLURM_JOB_GPUS=0,1,2" in environment
        assert f"SLURM_JOB_ID={job}" in environment
        assert f"SLURMD_NODENAME={name}" in environment
        assert [bare.gpu_of_slurm(name, k).minor for k in range(3)] == [0, 1, 2]
    commands.wait_until(
        lambda: "gres/gpu=6," in (shown := _accounted(bare, job)) and shown.endswith(",node=2|n[1-2]"),
        "accounting does not show 6 GPUs on two nodes",
        timeout_s=60,
    )


def _accounted(box: cluster.Sandbox, job: int) -> str:
    return box.run(["sacct", "-nPXj", str(job), "-o", "AllocTRES,NodeList"]).stdout.strip()


def test_a_failing_site_prolog_sends_the_job_elsewhere(bare: cluster.Sandbox) -> None:
    """nohold_on_prolog_fail: a job refused on one node is requeued, not held, and runs on another."""
    refused = bare.directory / "refused"
    script = bare.layout.etc / "prolog.d/refuse"
    # The first that is asked, whichever node Slurm chooses.
    script.write_text(
        f"#!/bin/sh\nmkdir {refused} 2>/dev/null || exit 0\necho $SLURMD_NODENAME >{refused}/by\nexit 1\n"
    )
    script.chmod(0o755)
    job = bare.submit("echo $SLURMD_NODENAME", nodes=1, exclusive=True)
    assert bare.wait(job, ["COMPLETED", "FAILED"], timeout_s=120) == "COMPLETED"
    script.unlink()
    by = (refused / "by").read_text().strip()
    assert by not in (bare.layout.jobs / f"slurm-{job}.out").read_text().split()
    assert "drain" in bare.run(["sinfo", "-hn", by, "-o", "%T"]).stdout
    assert bare.run(["sinfo", "-hn", by, "-o", "%E"]).stdout.startswith("Prolog error")
    bare.run(["scontrol", "update", f"NodeName={by}", "State=RESUME"])


def test_a_higher_partition_preempts_the_preemptible_one(bare: cluster.Sandbox) -> None:
    """A job in `gpu` requeues one in `preemptible` that holds what it needs."""
    low = bare.submit("sleep 100", partition="preemptible", nodes=3, exclusive=True)
    bare.wait(low, ["RUNNING"])
    high = bare.submit("sleep 1", partition="gpu", nodes=3, exclusive=True)
    assert bare.wait(high, ["COMPLETED", "FAILED"], timeout_s=120) == "COMPLETED"
    commands.wait_until(
        lambda: "PREEMPTED" in bare.run(["sacct", "-DnPXj", str(low), "-o", "State"]).stdout,
        "accounting does not show the preemption",
        timeout_s=60,
    )
    bare.run(["scancel", str(low)])


@pytest.mark.soak
def test_a_crashed_node_fails_its_attempt_and_the_job_runs_again(bare: cluster.Sandbox) -> None:
    """SIGKILL of a node's slurmd and steps: NODE_FAIL after SlurmdTimeout, the same job id runs elsewhere."""
    job = bare.submit("srun sleep 100", nodes=1, gres="gpu:8")
    bare.wait(job, ["RUNNING"])
    victim = bare.run(["squeue", "-hj", str(job), "-o", "%N"]).stdout.strip()
    bare.fault(victim, "node-crash")
    assert not [
        p for p in processes.listing(bare.directory) if p.role in {f"slurmd-{victim}", f"job-{victim}"}
    ]
    bare.wait(job, ["PENDING"], timeout_s=90)
    bare.wait(job, ["RUNNING"], timeout_s=60)
    rows = bare.run(["sacct", "-DnPXj", str(job), "-o", "State,NodeList"]).stdout.splitlines()
    assert rows[0] == f"NODE_FAIL|{victim}"
    assert rows[-1].partition("|")[2] != victim
    bare.run(["scancel", str(job)])
    bare.fault(victim, "node-reboot")

    def back() -> bool:
        state = bare.run(["sinfo", "-hn", victim, "-o", "%T"]).stdout
        if state.startswith("down"):
            # A node that registers after it was resumed has "unexpectedly rebooted", and is down again.
            bare.run(["scontrol", "update", f"NodeName={victim}", "State=RESUME"], check=False)
        return state.startswith("idle")

    commands.wait_until(back, "the node does not come back", timeout_s=120, every_s=1.0)


def test_a_job_is_held_to_its_memory(bare: cluster.Sandbox) -> None:
    """What asks for 50 MB and takes more is ended before it endangers the machine, and is what the kernel would end first."""
    code = (
        "import time; taken = []\nwhile len(taken) < 60: taken.append(bytearray(10_000_000)); time.sleep(0.2)\n"
        "time.sleep(100)"  # slurmstepd looks when it gets to it
    )
    script = f"cat /proc/self/oom_score_adj; exec python3 -c '{code}'"
    job = bare.submit(script, nodes=1, mem="50M")
    assert bare.wait(job, ["COMPLETED", "FAILED", "OUT_OF_MEMORY", "CANCELLED"]) != "COMPLETED"
    (log,) = (bare.layout.directory / "jobs").glob(f"*{job}*")
    assert log.read_text().startswith("1000")
    assert "exceeded memory limit" in log.read_text()


def test_a_hanging_mount_hangs_even_a_killed_reader_until_healed(bare: cluster.Sandbox) -> None:
    """mount-hang is real: the reader sits in uninterruptible sleep, SIGKILL does not end it, heal does."""
    bare.fault("n3", "mount-hang", path="/scratch")
    argv = ["stat", str(bare.layout.node("n3") / "root/scratch/x")]
    pid = commands.start(
        "reader", argv, env=os.environ, run=bare.layout.run, log=bare.layout.log / "reader.out"
    )
    served = bare.layout.log / f"{hanging_mount.role('n3', '/scratch')}.out"
    commands.wait_until(
        lambda: f"taken {pid}\n" in served.read_text(), "the reader does not hang", timeout_s=60
    )
    os.kill(pid, signal.SIGKILL)
    time.sleep(0.5)  # time to die, if it could
    assert Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[0] == "D"
    bare.fault("n3", "heal")
    commands.wait_until(lambda: not processes.is_alive(pid), "the reader still hangs", timeout_s=60)
    assert mounts.table(bare.layout.node("n3") / "root") == []


def test_what_users_write_for_the_probe_is_bounded(bare: cluster.Sandbox) -> None:
    """The directories of the probe's pages are small file systems of their own, without devices or programs."""
    for name in bare.layout.node_names:
        pages = bare.layout.node(name) / "run/jobs"
        assert mounts.table(pages) == [str(pages)]
        assert os.statvfs(pages).f_blocks * os.statvfs(pages).f_frsize == 64 * 2**20
        assert os.statvfs(pages).f_flag & (os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC)


def test_every_listener_is_on_a_port_of_its_own_and_slurm_only_on_loopback(bare: cluster.Sandbox) -> None:
    """No standard port of Slurm, MariaDB or Postgres is used."""
    lay = bare.layout
    chosen = {lay.slurmctld_port, lay.slurmdbd_port, *lay.slurmd_ports}
    # Steps listen too, on ports of the kernel's choice.
    daemons = {"slurmctld", "slurmd", "slurmdbd", "mariadbd", "munged"}
    pids = {p.pid for p in processes.listing(bare.directory) if p.name in daemons}
    listening = bare.run(["ss", "-Hlntp"]).stdout.splitlines()
    ours = [line.split()[3] for line in listening if any(f"pid={pid}," in line for pid in pids)]
    assert {int(address.rpartition(":")[2]) for address in ours} == chosen
    assert chosen.isdisjoint({3306, 5432, 6817, 6818, 6819, 6820})


def test_the_accounting_database_lets_only_the_sandboxes_own_account_in(bare: cluster.Sandbox) -> None:
    """Its administrator writes files as that account: another account of the machine must not be it."""
    ask = ["mariadb", "--no-defaults", f"--socket={bare.layout.mariadb_socket}", "--user=root"]
    ask += ["--batch", "--skip-column-names", "--execute=select current_user()"]
    assert commands.run(ask, env=os.environ).stdout.split() == ["root@localhost"]
    others = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", *ask]
    refused = commands.run(others, env=os.environ, check=False)
    assert refused.returncode != 0
    assert "Access denied" in refused.stdout + refused.stderr


def test_up_and_down_leave_nothing_behind(box_directory: Path) -> None:
    """After `down` no process is left and no file has appeared outside the directory; `purge` removes that too."""
    before = _global_files()
    directory = box_directory / "trace"
    box = cluster.Sandbox.up(directory, nodes=2, gpus=2, bare=True)
    job = box.submit("setsid sleep 1000 & srun sleep 1000", nodes=2, gres="gpu:1")
    box.wait(job, ["RUNNING"])
    commands.wait_until(
        lambda: sum(p.name == "slurmstepd" for p in processes.listing(directory)) == 3,
        "no steps",
        timeout_s=60,
    )
    box.down()
    assert processes.listing(directory) == []
    assert mounts.table(directory) == []
    assert not any(_mentions(pid, directory) for pid in _pids())
    assert not box.layout.run.exists()
    assert _global_files() - before == set()
    box.down(purge=True)
    assert not directory.exists()


def _pids() -> list[int]:
    return [int(p.name) for p in Path("/proc").iterdir() if digits.is_number(p.name)]


def _mentions(pid: int, directory: Path) -> bool:
    """Whether a process was started with, works in, or holds open anything of the directory."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()
        links = [Path(f"/proc/{pid}/cwd"), *Path(f"/proc/{pid}/fd").iterdir()]
        return str(directory).encode() in words or any(
            str(directory) in str(link.readlink()) for link in links
        )
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False


def test_two_sandboxes_live_side_by_side_and_one_starts_again(
    bare: cluster.Sandbox, box_directory: Path
) -> None:
    """A second cluster has its own ports, jobs and accounting; taking it down or up again does not touch the first."""
    directory = box_directory / "second"
    with cluster.Sandbox.up(directory, nodes=1, gpus=1, bare=True) as second:
        first_job = second.submit("true")
        second.wait(first_job, ["COMPLETED"])
        with pytest.raises(errors.UsageError, match="is running"):
            cluster.Sandbox.up(directory)
        assert bare.run(["sinfo", "-hN", "-o", "%N"]).stdout.split().count("n3") >= 1
    assert bare.run(["scontrol", "ping"]).returncode == 0
    with cluster.Sandbox.up(directory) as again:
        second_job = again.submit("true")
        again.wait(second_job, ["COMPLETED"])
        assert second_job > first_job
        assert again.layout.nodes == 1
    cluster.Sandbox.open(directory).down(purge=True)


def test_a_refused_directory_is_left_as_it_was(box_directory: Path) -> None:
    """A directory with other things in it is no sandbox, and stays untouched."""
    directory = box_directory / "mine"
    directory.mkdir()
    (directory / "thesis.tex").write_text("precious")
    with pytest.raises(errors.UsageError, match="not empty"):
        cluster.Sandbox.up(directory, bare=True)
    assert (directory / "thesis.tex").read_text() == "precious"


def test_a_failed_start_leaves_no_process(box_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When a daemon cannot start, what had started before it is ended, and the error names it."""
    monkeypatch.setattr(cluster.boot.daemons, "_MARIADB", ("--no-defaults", "--no-such-option"))
    with pytest.raises(commands.CommandFailed, match="mariadb ended at once"):
        cluster.Sandbox.up(box_directory / "broken", nodes=1, gpus=0, bare=True)
    assert processes.listing(box_directory / "broken") == []


def test_sbatch_options_are_passed_on(bare: cluster.Sandbox) -> None:
    """Underscores become dashes, True is a switch, False is left out, and output goes where it is told."""
    out = bare.layout.jobs / "told.out"
    job = bare.submit(
        "echo $SLURM_JOB_NAME", job_name="llama 70b", output=str(out), no_requeue=True, exclusive=False
    )
    bare.wait(job, ["COMPLETED"])
    assert out.read_text() == "llama 70b\n"
    assert "Requeue=0" in bare.run(["scontrol", "show", "job", str(job)]).stdout
    with pytest.raises(commands.CommandFailed, match="is COMPLETED after"):
        jobs.wait(bare.env, job, {"RUNNING"}, 0.1)


def test_the_hanging_mounts_role_names_node_and_path() -> None:
    """Two hanging mounts of one node are two processes."""
    assert hanging_mount.role("n1", "/a/b") != hanging_mount.role("n1", "/a")


def test_without_root_one_line_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An ordinary user is told what is missing before anything is made."""
    monkeypatch.setattr(requirements.os, "geteuid", lambda: 1000)
    with pytest.raises(errors.NotPermitted, match="needs root"):
        cluster.Sandbox.up(tmp_path / "x")
    assert not (tmp_path / "x").exists()
    assert not layout.exists(tmp_path / "x")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Root without slurmdbd is told which Debian package to install."""
    monkeypatch.setattr(requirements.os, "geteuid", lambda: 0)

    def found(command: str, path: str | None = None) -> str | None:
        return None if command == "slurmdbd" else f"/x/{command}"

    monkeypatch.setattr(requirements.shutil, "which", found)
    with pytest.raises(errors.UsageError, match=r"missing: slurmdbd; install them"):
        cluster.Sandbox.up(tmp_path / "x")


def test_a_prolog_that_asks_first_refuses_only_what_slurm_requeues(bare: cluster.Sandbox) -> None:
    """srun, salloc and --no-requeue would be cancelled: they start; a batch job is sent elsewhere by the first node that it meets."""
    script = bare.layout.etc / "prolog.d/refuse"
    conf, refused = bare.layout.slurm_conf, bare.directory / "refused-first"
    first_only = f"mkdir {refused} 2>/dev/null || exit 0; echo $SLURMD_NODENAME >{refused}/by"
    program = (
        f'exec {sys.executable} -c "\n'
        "import sys\nfrom probing_cluster.core import settings\nfrom probing_cluster.probe_agent.hooks import requeue\n"
        f"sys.exit(requeue.asking(settings.SlurmSettings(conf='{conf}', bin_directory='/usr/bin'))($SLURM_JOB_ID))\"\n"
    )
    script.write_text(f"#!/bin/sh\n{program}")
    script.chmod(0o755)
    try:
        assert bare.run(["srun", "-w", "n1", "true"], check=False).returncode == 0
        assert bare.run(["salloc", "-w", "n1", "true"], check=False).returncode == 0
        kept = bare.submit("true", nodes=1, nodelist="n1", no_requeue=True)
        assert bare.wait(kept, ["COMPLETED", "FAILED", "CANCELLED"], timeout_s=120) == "COMPLETED"
        script.write_text(f"#!/bin/sh\n{first_only}\n{program}")
        sent = bare.submit("sleep 0.1", nodes=1, exclusive=True)
        assert bare.wait(sent, ["COMPLETED", "FAILED", "CANCELLED"], timeout_s=120) == "COMPLETED"
        by = (refused / "by").read_text().strip()
        assert "drain" in bare.run(["sinfo", "-hn", by, "-o", "%T"]).stdout
        bare.run(["scontrol", "update", f"NodeName={by}", "State=RESUME"])
    finally:
        script.unlink()
