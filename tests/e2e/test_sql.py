"""SQL over a real gang under real Slurm, as the user who runs it: every table, and what is left when most of it is dead."""

from __future__ import annotations

import contextlib
import csv
import io
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from probing_cluster.core import digits
from probing_cluster.db.server import embedded
from probing_cluster.sandbox import gangs as cases
from probing_cluster.sandbox import services
from probing_cluster.sandbox.machine import processes

pytestmark = [pytest.mark.soak, pytest.mark.cluster, pytest.mark.torch, pytest.mark.timeout(900)]

NOBODY = 65534
OPERATOR = "backup"
"""An account that every Debian has; Slurm's operator here."""
PROGRAM = """
import os, sys
sys.path.insert(0, {sandbox!r})
import gang_job, probing_tables
train = probing_tables.table("train", step=int, loss=float, name=str)
answer = 1000 + int(os.environ["SLURM_PROCID"])
class Training(gang_job.Training):
    def saves(self, step):
        train.append(step=step, loss=1.0 / (step + 1), name=f"rank {{self.rank}}")
        return super().saves(step)
Training("healthy", gang_job.Path(sys.argv[1]), gang_job.Path(".")).train(100000)
"""

Ask = Callable[..., list[dict[str, str]]]


def python_of_users() -> str:
    """A Python that accounts other than root may run, with this one's libraries; skips where there is none."""
    system = shutil.which("python3", path="/usr/bin")
    if system is None:
        pytest.skip("needs a Python that every account may run")
    version = subprocess.run(
        [system, "-c", "import sys; print(sys.version_info[:2])"], capture_output=True, text=True, check=True
    )
    if version.stdout.strip() != str(sys.version_info[:2]):
        pytest.skip("the system's Python is of another release than the tests'")
    return system


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """Where that user's program lies."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as text:
        path = Path(text)
        path.chmod(0o777)
        wrapper = path / "python"
        libraries = ":".join(
            p
            for p in (str(Path(cases.JOB).parents[1] / ".src"), *sys.path)
            if p.endswith((".src", "site-packages"))
        )
        wrapper.write_text(
            f'#!/bin/sh\n[ "$1" = -I ] && shift\nexport PYTHONPATH={libraries}:$PYTHONPATH\nexec {python_of_users()} "$@"\n'
        )
        wrapper.chmod(0o755)
        (path / "train.py").write_text(PROGRAM.format(sandbox=str(cases.JOB.parent)))
        yield path


@pytest.fixture(scope="module")
def gang(gangs: Any, home: Path) -> Iterator[int]:
    """Eight ranks on four nodes, of a user who is neither root nor an operator, live; they train."""
    level = ["sacctmgr", "-i", "add", "user", OPERATOR, "account=root", "adminlevel=Operator"]
    gangs.sandbox.run(level)
    config = (
        gangs.sandbox.layout.probing_toml.read_text()
        + f'\n[live]\npython = "{home / "python"}"\ntimeout_s = 30.0\nagents_timeout_s = 60.0\n'
    )
    (home / "probing.toml").write_text(config)
    script = home / "job.sh"
    script.write_text(
        f"#!/bin/sh\nexport OMP_NUM_THREADS=1 PROBING=live\nsrun -K0 {home / 'python'} {home / 'train.py'} {home}\n"
    )
    script.chmod(0o755)
    become = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    options = ["-N4", "-n8", "--ntasks-per-node=2", "-c1", "--no-kill", "--gres=gpu:2", "-D", str(home)]
    done = gangs.sandbox.run([*become, "sbatch", "--parsable", "--no-requeue", *options, str(script)])
    job = int(done.stdout.split(";")[0])
    gangs.running(job)

    def trains() -> bool:
        found = sql(gangs, home, job, "SELECT count(*) AS n FROM ranks WHERE step > 3", check=False)
        return found == [{"n": "8"}]

    gangs.until("a gang that trains", trains, 240)
    yield job
    gangs.sandbox.run(["scancel", str(job)], check=False)


def sql(
    up: Any, home: Path, job: int, statement: str, *options: str, uid: int = NOBODY, check: bool = True
) -> list[dict[str, str]]:
    """The rows of a statement as a user asks it; with `check` nothing may be missing."""
    done = command(up, home, job, statement, *options, uid=uid)
    if check:
        assert done.returncode == 0, done.stderr
    return list(csv.DictReader(io.StringIO(done.stdout)))


def command(up: Any, home: Path, job: int, statement: str, *options: str, uid: int = NOBODY) -> Any:
    return subprocess.run(
        argv(home, job, statement, *options, uid=uid), env=environment(up, home), cwd="/",
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def environment(up: Any, home: Path) -> dict[str, str]:
    return {
        "SLURM_CONF": str(up.sandbox.layout.slurm_conf),
        "PROBING_CONFIG": str(home / "probing.toml"),
        "PATH": os.environ["PATH"],
    }


def argv(home: Path, job: int, statement: str, *options: str, uid: int = NOBODY) -> list[str]:
    become = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
    main = "probing_cluster.control_plane.cli.main"
    calls = ["sql", str(job), statement, "--format", "csv"]
    return [*become, str(home / "python"), "-m", main, *calls, *options]


def test_1_every_table_says_what_the_job_knows(gangs: Any, home: Path, gang: int) -> None:
    """Ranks, steps, collectives, stacks, the program's own table, values, GPUs; each of all nodes."""

    def ask(statement: str) -> list[dict[str, str]]:
        return sql(gangs, home, gang, statement)

    nodes = gangs.nodes_of(gang)
    found = ask("SELECT rank, node, alive, world_size, backend FROM ranks ORDER BY rank")
    assert [tuple(r.values()) for r in found] == [
        (str(r), nodes[r // 2], "True", "8", "gloo") for r in range(8)
    ]
    assert {r["agent"] for r in ask("SELECT agent FROM nodes")} == {"answers"}
    steps = ask("SELECT rank, count(*) AS n, min(duration_s) AS least FROM torch.steps GROUP BY rank")
    assert len(steps) == 8
    assert all(float(r["least"]) > 0.09 for r in steps)  # the program computes for a tenth of a second
    ops = ask("SELECT DISTINCT op, group_size, dtype FROM torch.collectives WHERE op <> 'barrier'")
    assert ops == [{"op": "all_reduce", "group_size": "8", "dtype": "float32"}]
    bandwidth = ask(
        "SELECT min(bus_bytes_per_s) AS least, max(bytes) AS most FROM torch.collectives WHERE done"
    )
    assert float(bandwidth[0]["least"]) > 0
    assert bandwidth[0]["most"] == str(64 * 64 * 4)
    functions = {
        r["function"] for r in ask("SELECT function FROM python.backtrace WHERE main AND kind = 'python'")
    }
    assert {"Training.train", "train"} & functions
    own = ask(
        "SELECT rank, count(*) AS n, min(name) AS name FROM python.train WHERE step >= 0 GROUP BY rank ORDER BY rank"
    )
    assert [(r["rank"], r["name"]) for r in own] == [(str(r), f"rank {r}") for r in range(8)]
    losses = ask("SELECT loss, step FROM python.train WHERE step = 2 AND rank = 7")
    assert losses == [{"loss": str(1 / 3), "step": "2"}]
    values = ask("SELECT rank, value FROM python.`answer + 0` ORDER BY rank")
    assert [r["value"] for r in values] == [str(1000 + r) for r in range(8)]
    gpus = ask("SELECT node, count(*) AS n FROM gpu.devices GROUP BY node")
    assert {r["n"] for r in gpus} == {"2"}
    assert len(ask("SELECT DISTINCT node FROM nic.ports WHERE up")) == 4
    wanted = ask("SELECT rank, value FROM process.envs WHERE name = 'SLURM_PROCID' ORDER BY rank")
    assert [r["value"] for r in wanted] == [str(r) for r in range(8)]


def test_2_nobody_else_is_answered(gangs: Any, home: Path, gang: int) -> None:
    """Another user; by Slurm, and on the node."""
    done = command(gangs, home, gang, "SELECT * FROM ranks", uid=1)
    assert (done.returncode, done.stdout) == (5, "")
    assert "is another user's: its tables are for its owner and operators" in done.stderr
    node = gangs.nodes_of(gang)[0]
    (home / "node.toml").write_text((gangs.sandbox.layout.node(node) / "probing.toml").read_text())
    done = command(
        gangs, home, gang, "SELECT * FROM ranks", "--via", "local", "--config", str(home / "node.toml"), uid=1
    )
    assert (done.returncode, done.stdout) == (5, "")


def test_3_a_live_rank_joins_its_nodes_history(gangs: Any, home: Path, gang: int) -> None:
    """Who may read the database has it in the same statement; the user, who may not, is told."""
    done = command(gangs, home, gang, "SELECT count(*) FROM ops.causes_daily")
    assert done.returncode in (4, 5)
    assert "absent" in done.stderr
    statement = "SELECT r.rank, count(e.kind) AS n FROM cluster.ranks r LEFT JOIN probing.health_event e ON e.node = r.node GROUP BY r.rank"
    environment = {**gangs.sandbox.env, "PROBING_CONFIG": str(home / "probing.toml")}
    argv = [
        sys.executable,
        "-m",
        "probing_cluster.control_plane.cli.main",
        "sql",
        str(gang),
        statement,
        "--format",
        "csv",
    ]
    calls = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=120, check=False)
    rows = list(csv.DictReader(io.StringIO(calls.stdout)))
    assert len(rows) == 8, calls.stderr
    assert all(int(r["n"]) > 0 for r in rows)  # each node has booted, at least


def test_31_an_operator_reads_the_same_rows_through_the_agents(gangs: Any, home: Path, gang: int) -> None:
    """By itself, since Slurm lets no operator into another's job; tables of pages, rings and stacks; never an expression."""
    uid = pwd.getpwnam(OPERATOR).pw_uid
    whole = {"uid": uid}
    statements = (
        "SELECT rank, node, alive, world_size, backend FROM ranks ORDER BY rank",
        "SELECT node, count(*) AS n FROM gpu.devices GROUP BY node ORDER BY node",
        "SELECT rank, loss FROM python.train WHERE step = 2 ORDER BY rank",
        "SELECT rank, value FROM process.envs WHERE name = 'SLURM_PROCID' ORDER BY rank",
    )
    for statement in statements:
        assert sql(gangs, home, gang, statement, **whole) == sql(gangs, home, gang, statement), statement  # type: ignore[arg-type]
    done = command(gangs, home, gang, "SELECT * FROM python.`answer + 0`", uid=uid)
    assert (done.returncode, done.stdout) == (5, "")
    assert "only the job's owner may evaluate" in done.stderr
    done = command(gangs, home, gang, "SELECT * FROM ranks", "--via", "agents", uid=1)
    assert (done.returncode, done.stdout) == (5, "")
    calls = gangs.rows("SELECT DISTINCT detail ->> 'by' AS by FROM probing.node_request WHERE verb = 'ask'")
    assert calls == [{"by": f"uid {uid}"}]


def test_32_of_a_suspended_job_the_agents_tell(gangs: Any, home: Path, gang: int) -> None:
    """Slurm starts no step in it: its owner is answered through the agents, all ranks stopped."""
    gangs.sandbox.run(["scontrol", "suspend", str(gang)])
    try:
        states = sql(gangs, home, gang, "SELECT rank, state FROM ranks ORDER BY rank")
    finally:
        gangs.sandbox.run(["scontrol", "resume", str(gang)])
    assert [(r["rank"], r["state"]) for r in states] == [(str(n), "T") for n in range(8)]


def test_33_a_slurmd_that_hangs_before_the_step_silences_its_own_node_alone(
    gangs: Any, home: Path, gang: int
) -> None:
    """Stopped before the question: the other three nodes answer by a smaller step, within the asker's deadline; no step is left."""
    node = gangs.nodes_of(gang)[2]
    slurmd = int((gangs.sandbox.layout.run / f"slurmd-{node}.own.pid").read_text())
    os.kill(slurmd, signal.SIGSTOP)
    try:
        statement = "SELECT rank FROM ranks ORDER BY rank"
        done = command(gangs, home, gang, statement, "--timeout", "8", "--via", "slurm")
    finally:
        os.kill(slurmd, signal.SIGCONT)
    assert (done.returncode, done.stdout.split()) == (8, ["rank", "0", "1", "2", "3", "6", "7"])
    assert f"6 of 8 ranks; {node}: no answer in 8 s" in done.stderr

    def ended() -> bool:
        steps = gangs.sandbox.run(["squeue", "-hs", "-j", str(gang), "-o", "%j"]).stdout.split()
        return "probing-sql" not in steps

    gangs.until("end of the steps", ended, 60)
    assert len(sql(gangs, home, gang, statement)) == 8


def test_34_a_collector_that_is_stopped_silences_its_own_node_alone(
    gangs: Any, home: Path, gang: int
) -> None:
    """In an open step: one more question is answered by the three other nodes."""
    node = gangs.nodes_of(gang)[1]
    statement = "SELECT count(*) AS n FROM ranks"
    calls = argv(home, gang, statement, "--watch", "0.5", "--timeout", "4", "--via", "slurm", uid=NOBODY)
    # What runs in the background of a script ignores Ctrl-C, and so would the command.
    calls = ["env", "--default-signal=INT", *calls]
    with (home / "watched").open("w+") as watched:
        watching = subprocess.Popen(
            calls,
            env=environment(gangs, home),
            cwd="/",
            stdout=watched,
            stderr=subprocess.DEVNULL,
        )
        try:
            gangs.until("a whole answer", lambda: "8" in (home / "watched").read_text().split())
            os.kill(collector_on(node, gangs.sandbox.layout.slurm_conf), signal.SIGSTOP)
            gangs.until("an answer of three nodes", lambda: (home / "watched").read_text().split()[-1] == "6")
        finally:
            watching.send_signal(signal.SIGINT)
            watching.wait(60)


def collector_on(node: str, slurm_conf: Path) -> int:
    """The collector that Slurm has started there; another sandbox may have a node of that name."""
    wanted = (
        b"probing_cluster.live.collecting.collector",
        f"SLURMD_NODENAME={node}".encode(),
        f"SLURM_CONF={slurm_conf}".encode(),
    )
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):  # it has ended meanwhile
            found = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
            if digits.is_number(process.name) and set(wanted) <= set(found.split(b"\0")):
                return int(process.name)
    raise AssertionError(f"no collector on {node}")


def test_4_with_rank_0_its_agent_the_service_and_the_database_dead_the_others_answer(
    gangs: Any, home: Path, gang: int
) -> None:
    """And a stopped rank; rank 0's last words and its own table are there."""
    pids = {r["rank"]: int(r["pid"]) for r in sql(gangs, home, gang, "SELECT rank, pid FROM ranks")}
    nodes = gangs.nodes_of(gang)
    lay = gangs.sandbox.layout
    os.kill(pids["0"], signal.SIGKILL)
    os.kill(pids["5"], signal.SIGSTOP)
    processes.end(lay.directory, [services.agent_role(nodes[0]), services.SERVICE])
    embedded.stop(lay.postgres)
    time.sleep(1.0)
    found = {r["rank"]: r for r in sql(gangs, home, gang, "SELECT rank, node, alive, state, step FROM ranks")}
    assert len(found) == 8
    assert (found["0"]["alive"], found["5"]["state"]) == ("False", "T")
    assert int(found["0"]["step"]) > 3
    own = sql(gangs, home, gang, "SELECT count(*) AS n FROM python.train WHERE rank = 0")
    assert int(own[0]["n"]) > 3
    agents = {r["node"]: r["agent"] for r in sql(gangs, home, gang, "SELECT node, agent FROM nodes")}
    assert "does not answer" in agents.pop(nodes[0])
    assert set(agents.values()) == {"answers"}
    done = command(gangs, home, gang, "SELECT count(DISTINCT node) AS n FROM gpu.devices")
    assert (done.returncode, done.stdout.split()) == (8, ["n", "3"])
    assert f"{nodes[0]}, gpu.devices: the node's agent does not answer" in done.stderr
