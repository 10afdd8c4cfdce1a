"""What an ended job leaves is written by its owner's own hand, bounded, and read back as tables."""

import asyncio
import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from probing_cluster.attribution.history import kept
from probing_cluster.core import settings
from probing_cluster.evidence import kept_file
from probing_cluster.live.tables import registry
from probing_cluster.probe_agent import children, identity, inject, self_watch
from probing_cluster.probe_agent.faults import faults
from probing_cluster.probe_agent.jobs import collect, jobs, page_directories
from probing_cluster.probe_agent.ranks import keep_child
from probing_cluster.probe_agent.spool import intake, spool

NOBODY = pwd.getpwnam("nobody")
PROGRAM = """
import probing_tables
from _probing_probe import collectives, page
page.open_page(); page.write_identity(rank=3, world=8)
t = probing_tables.table("train", step=int, loss=float, rank=str)
for i in range(10):
    t.append(i, i / 2, "mine"); page.step_done()
"""


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """A page directory as a job of root's leaves it."""
    directory = tmp_path / "jobs" / "7"
    directory.mkdir(parents=True)
    run(directory)
    return directory


def run(directory: Path, code: str = PROGRAM, user: int | None = None) -> None:
    """A training process with its pages in `directory`."""
    env = {"PROBING_PAGE_DIR": str(directory), "PYTHONPATH": str(inject.SITE_DIRECTORY), "SLURM_PROCID": "3"}
    python = "/usr/bin/python3" if user else sys.executable
    subprocess.run(
        [python, "-c", code], env=env, check=True, user=user, group=user, extra_groups=[] if user else None
    )


def request(directory: Path, history: Path | str, **more: Any) -> dict[str, Any]:
    """What the agent asks."""
    return {
        "directory": str(directory),
        "history": str(history),
        "node": "n1",
        "attempt": "c-7-0",
        "uid": os.geteuid(),
        "gid": os.getegid(),
        "days": 30.0,
        "most_bytes": 1 << 20,
        "most_bytes_in_all": 1 << 30,
    } | more


def ask(calls: dict[str, Any]) -> dict[str, Any]:
    """The child's answer."""
    done = subprocess.run(
        [sys.executable, "-I", "-m", keep_child.__name__],
        input=json.dumps(calls), capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    return dict(json.loads(done.stdout))


def test_tables_and_page_histories_are_kept(left: Path, tmp_path: Path) -> None:
    """With node, rank, pid and time; a column of the program's own called like one of ours gets an underscore."""
    answer = ask(request(left, tmp_path / "history"))
    assert (answer["tables"], answer["left_out"]) == (2, 0)
    attempt = tmp_path / "history" / "c-7-0"
    assert attempt.stat().st_mode & 0o777 == 0o700
    assert (attempt / "n1.kept").stat().st_mode & 0o777 == 0o600
    found = kept.tables(attempt)
    train = found["python", "train"].to_pylist()
    assert [(r["node"], r["rank"], r["step"], r["loss"], r["rank_"]) for r in train] == [
        ("n1", 3, i, i / 2, "mine") for i in range(10)
    ]
    steps = found["torch", "steps"].to_pylist()
    assert [s["step"] for s in steps] == list(range(1, 11))
    assert steps[0]["duration_s"] is None
    assert all(s["duration_s"] >= 0 for s in steps[1:])
    assert abs(steps[-1]["end_at"] - datetime.now(UTC)).total_seconds() < 600


TRACED = """
import probing_tables
from _probing_probe import collectives, page
page.open_page(); page.write_identity(rank=0, world=2, backend="gloo")
class Group:
    group_name = "0"
    def size(self): return 2
class c10d:
    ProcessGroup = Group
    def _get_default_group(): return Group()
class Tensor:
    dtype = "torch.float32"
    def numel(self): return 250
collectives.timed("all_reduce", c10d, lambda tensor: None)(Tensor())
spans = probing_tables.table("torch_modules", step=int, phase=str, module=str, kind=str, depth=int, since_s=float, duration_s=float)
spans.append(5, "forward", "layers.3", "Block", 1, 0.25, 0.5)
moved = probing_tables.table(
    "torch_transfers", group=str, role=str, seq=int, op=str, group_size=int, bytes=int, dtype=str, begin_ns=int, transfer_s=float
)
moved.append("1", "dp", 7, "all_reduce", 8, 8_000_000, "Float", 10**18, 0.001)
"""


def test_what_is_kept_is_called_as_while_the_job_ran(tmp_path: Path) -> None:
    """The same statement finds it: collectives with their bytes, the tracer's rings as tables of torch's, nothing of ours beside the program's own."""
    directory = tmp_path / "jobs" / "7"
    directory.mkdir(parents=True)
    run(directory, TRACED)
    ask(request(directory, tmp_path / "history"))
    found = kept.tables(tmp_path / "history" / "c-7-0")
    (call,) = found["torch", "collectives"].to_pylist()
    assert (call["dtype"], call["bytes"], call["group_role"]) == ("float32", 1000, None)
    assert call["bus_bytes_per_s"] > 0
    assert found["torch", "modules"]["module"].to_pylist() == ["layers.3"]
    (moved,) = found["torch", "transfers"].to_pylist()
    assert (moved["group_role"], moved["timed_by"], moved["rank"]) == ("dp", "gpu", 0)
    assert moved["bus_bytes_per_s"] == 8_000_000 * 2 * 7 / 8 / 0.001
    assert {schema for schema, _ in found} == {"torch"}
    for schema, name in (("torch", "collectives"), ("torch", "modules"), ("torch", "transfers")):
        live = {c.name for c in registry.built_in()[f"{schema}.{name}"].columns}
        assert set(found[schema, name].column_names) <= live


def test_a_job_that_left_nothing_makes_no_directory(tmp_path: Path) -> None:
    """Most jobs have no table and no page."""
    (tmp_path / "jobs").mkdir()
    assert ask(request(tmp_path / "jobs", tmp_path / "history"))["kept"] == 0
    assert not (tmp_path / "history").exists()


def test_bounded_and_pruned(left: Path, tmp_path: Path) -> None:
    """What has no room is left out and counted; old attempts go, then the oldest of too many; nothing else does."""
    history = tmp_path / "history"
    ages = {"c-1-0": 40, "c-2-0": 3, "c-3-0": 2, "notes": 99}
    for name, days in ages.items():
        (history / name).mkdir(parents=True)
        (history / name / "n1.kept").write_bytes(bytes(1000))
        os.utime(history / name, (time.time() - days * 86400,) * 2)
    answer = ask(request(left, history, most_bytes=10, most_bytes_in_all=1500))
    assert (answer["left_out"], answer["tables"], answer["removed"]) == (2, 0, 2)
    assert sorted(p.name for p in history.iterdir()) == ["c-3-0", "c-7-0", "notes"]


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory in which everybody may make their own, as on a scratch file system."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as made:
        Path(made).chmod(0o1777)
        yield Path(made)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make another's directory")
def test_it_is_written_with_the_owners_rights(shared: Path) -> None:
    """As the owner, where only the owner may; never into what is another's, a link of theirs included."""
    directory, target = shared / "7", shared / "target"
    for made in (directory, target):
        made.mkdir()
        os.chown(made, NOBODY.pw_uid, NOBODY.pw_gid)
    package = shared / "site"
    shutil.copytree(inject.SITE_DIRECTORY, package, ignore=shutil.ignore_patterns("__pycache__"))
    code = f"import sys; sys.path.insert(0, {str(package)!r})\nfrom _probing_probe import importhook; importhook.arm()\n"
    run(directory, code + PROGRAM, NOBODY.pw_uid)
    calls = request(directory, f"{shared}/%u", uid=NOBODY.pw_uid, gid=NOBODY.pw_gid)
    assert ask(calls)["kept"] > 0
    kept_at = shared / "nobody" / "c-7-0" / "n1.kept"
    assert kept_at.stat().st_uid == NOBODY.pw_uid
    assert [t.name for t in kept_file.read(kept_at.read_bytes())] == ["train", "steps"]
    (shared / "link").symlink_to(target)
    (shared / "of_daemon").mkdir(0o700)
    (shared / "file").touch()
    os.chown(shared / "of_daemon", *pwd.getpwnam("daemon")[2:4])
    os.chown(shared / "file", NOBODY.pw_uid, NOBODY.pw_gid)
    for base, why in (
        (shared, f"{shared} belongs to user root, not to user nobody"),
        ("/proc/1/x", "/proc/1 belongs to user root"),
        (shared / "link", "link belongs to user root"),
        (shared / "of_daemon" / "probing", "of_daemon belongs to user daemon, not to user nobody"),
        (shared / "file", "file is no directory"),
    ):
        answer = ask({**calls, "history": str(base)})
        assert why in answer["refused"], answer
    assert list(target.iterdir()) == []
    assert "no account" in ask({**calls, "uid": 54321})["refused"]


def test_the_agent_keeps_before_it_removes(
    node_identity: identity.Identity,
    queue: spool.Spool,
    left: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """At the end of the attempt, once; a job's share is divided among its nodes; without a directory nothing is kept. Its log says why not."""

    def collector(directory: str) -> collect.Collector:
        return collect.Collector(
            identity=node_identity,
            children=children.Children(),
            intake=intake.Intake(identity=node_identity, spool=queue, faults=faults.Faults("b")),
            book=jobs.JobBook("b"),
            pages=page_directories.PageDirectories(tmp_path / "jobs"),
            watch=self_watch.SelfWatch(),
            kept=settings.KeptSettings(directory=directory),
        )

    job = jobs.NodeJob(
        job_id=7, started_at=datetime.now(UTC), restart_count=2, uid=os.geteuid(), gid=os.getegid(), nodelist="n[1-2]"
    )  # fmt: skip
    asyncio.run(collector(f"{tmp_path}/history").collect(job))
    assert not (tmp_path / "history").exists()  # it still runs
    asyncio.run(collector(f"{tmp_path}/history").collect(replace(job, released_at=datetime.now(UTC))))
    assert [p.name for p in (tmp_path / "history").iterdir()] == ["c-7-2"]
    assert not left.exists()
    left.mkdir()
    run(left)
    asyncio.run(collector("").collect(replace(job, released_at=datetime.now(UTC), restart_count=3)))
    assert [p.name for p in (tmp_path / "history").iterdir()] == ["c-7-2"]
    assert caplog.text == ""
    taken = tmp_path / "taken"
    taken.touch()
    failing = collector(str(taken))
    for restarts in (4, 5):
        left.mkdir()
        run(left)
        asyncio.run(failing.collect(replace(job, released_at=datetime.now(UTC), restart_count=restarts)))
    why = f"job 7: nothing of it is kept for its owner: {taken} is no directory"
    assert [r.getMessage() for r in caplog.records] == [why]
