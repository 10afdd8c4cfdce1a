"""Collecting what a job left: read as its owner, and nothing that is not plainly the job's own file."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import warm_children

from probing_cluster.core import records, vocabulary
from probing_cluster.evidence import utf16
from probing_cluster.probe_agent import children, identity, self_watch
from probing_cluster.probe_agent.faults import faults, sighting
from probing_cluster.probe_agent.jobs import (
    collect,
    collect_child,
    collect_words,
    jobs,
    log_parts,
    page_directories,
)
from probing_cluster.probe_agent.spool import codec, intake, spool
from tests.set_clock import SetClock

NOW = datetime(2026, 1, 31, 14, 0, tzinfo=UTC)
ME = os.getuid()
INFO = records.Severity.INFO
Read = Callable[[dict[str, Any]], dict[str, Any]]
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
TRACE = (
    "epoch 1\nTraceback (most recent call last):\n"
    '  File "train.py", line 3, in <module>\n    main()\nValueError: bad shape\n'
)


@pytest.mark.parametrize("kind", ["symlink", "hardlink", "fifo", "directory", "socketlike", "missing"])
def test_what_is_not_the_jobs_own_plain_file_is_refused(tmp_path: Path, kind: str) -> None:
    """A link, a second name, a pipe that would wait for ever, a directory: each is refused at once."""
    secret, path = tmp_path / "secret", tmp_path / "out"
    secret.write_text("secret")
    if kind == "symlink":
        path.symlink_to(secret)
    elif kind == "hardlink":
        path.hardlink_to(secret)
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "socketlike":
        path.symlink_to("/dev/zero")
    with pytest.raises(collect_child.Refused):
        collect_child.read_own(str(path), ME, 1000)


def test_another_users_file_is_refused(tmp_path: Path) -> None:
    """Readable is not enough: it must be the owner's."""
    path = tmp_path / "out"
    path.write_text("x")
    with pytest.raises(collect_child.Refused, match="not owned"):
        collect_child.read_own(str(path), ME + 1, 1000)


def child(request: dict[str, Any], argv: Sequence[str] = collect._CHILD) -> dict[str, Any]:
    """What the agent's own child answers."""
    done = subprocess.run(
        argv, input=json.dumps(request), capture_output=True, text=True, check=True, timeout=60
    )
    return json.loads(done.stdout)


@pytest.fixture
def read(warm_socket: Path) -> Read:
    """What one forked off the readers answers (warm_children)."""
    return lambda request: child(request, warm_children.command(warm_socket))


@AS_ROOT
def test_child_reads_with_the_owners_rights_only(tmp_path: Path) -> None:
    """Root's eyes would see the file; the owner's may not even enter the directory."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    (closed / "out").write_text(TRACE)
    os.chown(closed / "out", 65534, 65534)
    answer = child({"op": "log", "path": str(closed / "out"), "uid": 65534, "gid": 65534})
    assert answer == {"refused": "EACCES"}


@AS_ROOT
def test_child_never_works_as_root(tmp_path: Path) -> None:
    """A job of root's is the one whose log could be anything; as another user root it is not either."""
    code = (
        "import os; from probing_cluster.probe_agent.jobs import collect_child as c\n"
        "os.setresuid(65534, 65534, 65534)\n"
        "try: c.become(0, 0)\n"
        "except c.Refused as e: print('refused')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "refused\n"


def test_child_says_what_the_log_means_with_byte_offsets(tmp_path: Path, read: Read) -> None:
    """The finding points at its line in the file."""
    path = tmp_path / "out"
    path.write_text("x" * 10 + "\n" + TRACE)
    answer = read({"op": "log", "path": str(path), "uid": ME, "gid": os.getgid()})
    (found,) = [f for f in answer["findings"] if f["detail"].get("first_cause")]
    assert "ValueError" in found["message"]
    assert path.read_bytes()[found["offset"] :].startswith((b"Traceback", b"ValueError"))
    assert (answer["error"], answer["error_place"]) == ("ValueError: bad shape", "line 6")
    assert path.read_text().splitlines()[5] == answer["error"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("n_filler", [0, 400])
def test_output_in_utf_16_is_read_as_imports_read_it(
    tmp_path: Path, encoding: str, n_filler: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a byte-order mark and without; of a long log, too, whose errors begin above its end. Slurm's own lines are UTF-8."""
    for name, most in (("MOST_BYTES", 8192), ("BEGINNING_BYTES", 4096), ("_BLOCK_BYTES", 1024)):
        monkeypatch.setattr(log_parts, name, most)
    path = tmp_path / "out"
    text = "starts\n" * n_filler + TRACE + "[rank1]: RuntimeError: peer went away, ERROR\n" * n_filler
    path.write_bytes(text.encode(encoding) + b"slurmstepd: error: *** JOB 7 ON n1 CANCELLED ***\n")
    answer = collect_child.log_findings({"path": str(path), "uid": ME})
    (found,) = [f for f in answer["findings"] if "ValueError: bad shape" in f["message"]]
    line = utf16.text(path.read_bytes()[found["offset"] :].partition(b"\n")[0])
    assert line.startswith(("Traceback", "ValueError"))
    assert answer["tail"][-1].startswith("slurmstepd")
    assert "\0" not in "".join(answer["tail"])


def test_an_error_above_an_end_that_takes_too_long_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a million short lines of cleaning up take all of the time; the traceback above them is what the program died of."""
    for name, most in (("MOST_BYTES", 8192), ("BEGINNING_BYTES", 4096), ("_BLOCK_BYTES", 1024)):
        monkeypatch.setattr(log_parts, name, most)
    real = collect_words.ReadingTime

    def in_lines(budget_s: float = 200.0) -> collect_words.ReadingTime:
        """A time whose clock is read once a line."""
        ticks = itertools.count()
        return real(budget_s, lambda: float(next(ticks)))

    monkeypatch.setattr(collect_words, "ReadingTime", in_lines)
    monkeypatch.setattr(collect_words, "READ_ABOVE_S", 400.0)
    path = tmp_path / "out"
    path.write_text(TRACE + "".join(f"cleanup {n}\n" for n in range(2000)))
    answer = collect_child.log_findings({"path": str(path), "uid": ME})
    assert "ValueError: bad shape" in {f["message"] for f in answer["findings"]}
    assert "left out because" in answer["note"]


def test_what_the_first_rank_died_of_is_found_above_what_thousands_had_to_say_about_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of more than twice what is read, the beginning of the trouble is read beside the end, and the row says so."""
    monkeypatch.setattr(log_parts, "MOST_BYTES", 1 << 20)
    monkeypatch.setattr(log_parts, "BEGINNING_BYTES", 1 << 19)
    # A busy machine takes longer than a reader may.
    hours = collect_words.ReadingTime(3600.0)
    monkeypatch.setattr(collect_words, "ReadingTime", lambda *_: hours)
    steps = "".join(f"[rank0] step {i} loss {1 / (i + 1):.4f}\n" for i in range(12_500))
    died = "".join(f"[rank77]: {line}\n" for line in TRACE.splitlines()[1:])
    stack = [f'  File "/opt/torch/nn/modules/module.py", line {i}, in _call_impl' for i in range(20)]
    stack = [
        "Traceback (most recent call last):",
        *stack,
        "torch.distributed.DistBackendError: NCCL error: unhandled system error",
    ]
    peers = "".join(f"[rank{r}]: {line}\n" for r in range(1500) for line in stack)
    path = tmp_path / "out"
    path.write_text(steps + died + peers)
    assert path.stat().st_size > 2 * log_parts.MOST_BYTES
    answer = collect_child.log_findings({"path": str(path), "uid": ME})
    (found,) = [f for f in answer["findings"] if f["detail"].get("first_cause")]
    assert found["detail"]["rank"] == 77
    assert path.read_bytes()[found["offset"] :].startswith((b"[rank77]: Traceback", b"[rank77]: ValueError"))
    assert answer["note"].startswith("only its end and the part where its errors begin were read, ")
    assert "[rank1499]: torch.distributed.DistBackendError" in answer["tail"][-1]
    # No number of a line is known there.
    assert answer["error"] == "[rank77]: ValueError: bad shape"
    assert answer["error_place"] == f"byte {found['detail']['at_byte']}" == f"byte {found['offset']}"


def test_the_line_of_the_error_is_without_its_progress_bar_and_without_secrets(
    tmp_path: Path, read: Read
) -> None:
    """A log without an error has none."""
    path = tmp_path / "out"
    path.write_text("".join(f"cleanup {n}\n" for n in range(40)))
    assert "error" not in read({"op": "log", "path": str(path), "uid": ME, "gid": os.getgid()})
    end = "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-02T10:00:00 DUE TO JOB REQUEUE ***"
    path.write_text("\n".join([end, *(f"step {n}" for n in range(90))]))
    answer = read({"op": "log", "path": str(path), "uid": ME, "gid": os.getgid()})
    assert answer["findings"]
    assert "error" not in answer  # how Slurm ended it is no error of its
    path.write_text(
        'Traceback (most recent call last):\n  File "a.py", line 3, in <module>\n'
        "  5%\r 10%\rValueError: no access with password=hunter2hunter2\n"
        + "".join(f"cleanup {n}\n" for n in range(40))
    )
    answer = read({"op": "log", "path": str(path), "uid": ME, "gid": os.getgid()})
    assert answer["error"].startswith("ValueError: no access")
    assert "hunter2" not in answer["error"]


def test_what_srun_writes_for_its_tasks_is_one_of_the_jobs_files(tmp_path: Path) -> None:
    """`srun --output=FILE` opens it itself; the tasks write to sockets. A file that it reads is none."""
    srun = Path(shutil.copy2("/bin/sleep", tmp_path / "srun"))
    (tmp_path / "in").write_text("x")
    environment = {"SLURM_JOB_ID": "4711", "SLURMD_NODENAME": "n1"}
    with (tmp_path / "steps.out").open("w") as out, (tmp_path / "in").open() as given:
        descriptors = (out.fileno(), given.fileno())
        process = subprocess.Popen(
            [srun, "60"], pass_fds=descriptors, env=environment, stdout=subprocess.DEVNULL
        )
    try:
        question = {"op": "find", "job_id": 4711, "node": "n1", "uid": ME, "gid": os.getgid()}
        assert child(question)["logs"] == [str(tmp_path / "steps.out")]
    finally:
        process.kill()
        process.wait()


OLD = "step 1\nRuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n"


@pytest.mark.parametrize("how", ["appended", "emptied", "replaced", "nothing written"])
def test_what_stood_in_the_file_before_the_job_began_is_not_its_own(
    collector: Any, queue: spool.Spool, tmp_path: Path, how: str
) -> None:
    """`--open-mode=append` adds to what earlier jobs wrote; a file that was emptied or made anew is all the job's."""
    path = tmp_path / "out"
    path.write_text(OLD * 200)
    os.utime(path, (1, 1))
    began = collector._book.start(job(stdout=str(path), started_at=NOW))
    asyncio.run(collector.look_before(began, collector.older_files(began)))
    if how == "replaced":
        path.rename(tmp_path / "kept")
    with path.open("a" if how in ("appended", "nothing written") else "w") as out:
        if how != "nothing written":
            out.write(TRACE + "filler\n" * (2000 if how == "emptied" else 0))
    asyncio.run(collector.collect(collector._book.end(began, NOW + timedelta(minutes=1))))
    kinds = {e.kind for e in events(queue)}
    assert "cuda_oom" not in kinds
    assert ("python_exception" in kinds) is (how != "nothing written")


@pytest.mark.parametrize(
    ("name", "over", "looks"),
    [
        ("slurm-7.out", {}, 0),
        ("a-41_3.log", {"extra": {"array_job_id": 41, "array_task_id": 3, "ids_known": True}}, 0),
        ("train.log", {}, 1),
        ("run77.log", {}, 1),
        ("slurm-7.out", {"restart_count": 1}, 1),
    ],
)
def test_only_files_that_may_have_been_there_are_looked_at(
    collector: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    over: dict[str, Any],
    looks: int,
) -> None:
    """A job's start waits for the look: not where the file bears the number of the job or of its array."""
    started = job(stdout=f"/w/{name}", released_at=None, **over)
    assert len(collector.older_files(started)) == looks


def test_a_file_that_the_job_may_have_begun_to_write_is_read_whole(tmp_path: Path) -> None:
    """Nobody knows then how much of it was there."""
    path = tmp_path / "out"
    path.write_text(OLD)
    calls = {"op": "before", "path": str(path), "uid": ME, "gid": os.getgid()}
    assert child(calls | {"started_s": path.stat().st_mtime - 1}) == {}
    inode, size, _ = child(calls | {"started_s": path.stat().st_mtime + 1})["before"]
    assert (inode, size) == (path.stat().st_ino, len(OLD))
    assert child(calls | {"path": str(tmp_path / "none")}) == {"refused": "ENOENT", "open_directory": True}
    assert child(calls | {"path": str(tmp_path / "none" / "out")}) == {"refused": "ENOENT"}


def test_a_line_repeated_without_end_costs_no_minute(tmp_path: Path, read: Read) -> None:
    """Five megabytes of one line, whose words every family looks at; what stands behind it is read."""
    path = tmp_path / "out"
    path.write_text("retrying connection to server, error\n" * 150_000 + TRACE)
    answer = read({"op": "log", "path": str(path), "uid": ME, "gid": os.getgid()})
    (found,) = [f for f in answer["findings"] if f["detail"].get("first_cause")]
    assert "ValueError" in found["message"]


def test_child_leaves_out_what_an_earlier_attempt_wrote_into_the_same_file(
    tmp_path: Path, read: Read
) -> None:
    """--open-mode=append: after Slurm's line about the requeue the file is the present attempt's."""
    path = tmp_path / "out"
    requeued = "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-03-01T10:00:00 DUE TO JOB REQUEUE ***\n"
    path.write_text("RuntimeError: NCCL error: unhandled system error\n" + requeued + TRACE)
    calls = {"op": "log", "path": str(path), "uid": ME, "gid": os.getgid()}
    began = datetime(2026, 3, 1, 10, 0, 7).timestamp()  # noqa: DTZ001  # the node's own zone, as slurmd writes
    kinds = {f["kind"] for f in read({**calls, "began_s": began})["findings"]}
    own_end = {f["kind"] for f in read({**calls, "began_s": began - 60})["findings"]}
    assert "slurm_requeued" not in kinds
    assert kinds < own_end == {f["kind"] for f in read(calls)["findings"]}


def test_local_times_in_a_log_are_of_the_nodes_zone(
    collector: Any, queue: spool.Spool, root: Path, tmp_path: Path
) -> None:
    """Other children run with TZ=UTC; on a node elsewhere a requeued job's own end would be taken for an earlier attempt's."""
    (root / "etc").mkdir(exist_ok=True)
    block = b"TZif2" + bytes(15) + struct.pack(">6l", 0, 0, 0, 0, 1, 4) + struct.pack(">lbb", -18000, 0, 0)
    (root / "etc/localtime").write_bytes((block + b"EST\0") * 2 + b"\nEST5\n")
    slurm = "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-31T0{}:00{} ***\n"
    (tmp_path / "out").write_text(
        OLD + slurm.format("7:59", " DUE TO JOB REQUEUE") + TRACE + slurm.format("8:59", "")
    )
    began, ended = NOW - timedelta(hours=1), NOW  # 08:00 and 09:00 there
    asyncio.run(
        collector.collect(
            job(stdout=str(tmp_path / "out"), restart_count=1, started_at=began, released_at=ended)
        )
    )
    kinds = {e.kind for e in events(queue)}
    assert "python_exception" in kinds
    assert not {"cuda_oom", "slurm_requeued"} & kinds


def test_child_leaves_out_what_other_jobs_wrote_into_the_same_file(tmp_path: Path, read: Read) -> None:
    """`python train.py >> train.log`, job after job: the times in the lines tell which are the attempt's own."""
    path = tmp_path / "out"
    path.write_text(
        "2026-03-01 07:00:00 epoch 1\nRuntimeError: NCCL error: unhandled system error\n"
        "2026-03-01 10:00:09 epoch 1\n" + TRACE
    )
    calls = {"op": "log", "path": str(path), "uid": ME, "gid": os.getgid()}
    began = datetime(2026, 3, 1, 10, 0, 7).timestamp()  # noqa: DTZ001  # the node's own zone
    (own,) = read({**calls, "span_s": (began, began + 600)})["findings"]
    assert "ValueError" in own["message"]
    assert len(read(calls)["findings"]) > 1


@pytest.mark.parametrize("op", ["log", "dumps", "find"])
def test_a_job_that_left_nothing_costs_no_reader(tmp_path: Path, op: str) -> None:
    """Every job has an Epilog and most leave nothing: the grammars are not even imported."""
    calls = {
        "op": op,
        "path": str(tmp_path / "none"),
        "directory": str(tmp_path),
        "job_id": 4_000_000_001,
        "node": "n1",
    }
    code = (
        "import sys; from probing_cluster.probe_agent.jobs import collect_child; collect_child.serve(collect_child.answer); "
        "print([m for m in sys.modules if m.startswith('probing_cluster.evidence.') and not m.endswith('.utf16')])"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code],
        input=json.dumps({**calls, "uid": ME, "gid": os.getgid()}),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    answer, imported = done.stdout.splitlines()
    expected = {
        "log": {"refused": "ENOENT", "open_directory": True},
        "dumps": {"findings": [], "dumps": 0, "refused": {}},
        "find": {"logs": [], "ids": {}},
    }
    assert json.loads(answer) == expected[op]
    assert imported == "[]"


def test_malicious_dump_is_refused_and_harms_nothing(tmp_path: Path, read: Read) -> None:
    """A pickle that would run a program is a finding about itself."""
    import pickle

    class Bomb:
        def __reduce__(self) -> Any:
            return (os.system, (f"touch {tmp_path}/pwned",))

    (tmp_path / "fr_rank_0").write_bytes(pickle.dumps({"entries": [Bomb()]}))
    (tmp_path / "fr_rank_1").symlink_to("/etc/passwd")
    answer = read({"op": "dumps", "directory": str(tmp_path), "uid": ME, "gid": os.getgid()})
    assert not (tmp_path / "pwned").exists()
    assert "fr_rank_1" in answer["refused"]
    assert [f["detail"]["refused"] for f in answer["findings"]] == [True]


def job(**fields: Any) -> jobs.NodeJob:
    values = {"job_id": 7, "started_at": NOW, "uid": ME, "gid": os.getgid(), "released_at": NOW} | fields
    return jobs.NodeJob(**values)


@pytest.fixture
def collector(node_identity: identity.Identity, queue: spool.Spool, tmp_path: Path, warm_socket: Path) -> Any:
    taken = intake.Intake(identity=node_identity, spool=queue, faults=faults.Faults("b"))
    return collect.Collector(
        identity=node_identity,
        children=warm_children.WarmChildren.of(warm_socket),
        intake=taken,
        book=jobs.JobBook("b"),
        pages=page_directories.PageDirectories(tmp_path / "pages"),
        watch=self_watch.SelfWatch(),
    )


def events(queue: spool.Spool) -> list[records.HealthEvent]:
    return [codec.decode(i.body, records.HealthEvent) for i in queue.batch(100) if i.lane == "event"]


@pytest.mark.parametrize("broken", ["pages", "dumps", "log"])
def test_one_part_that_cannot_be_read_costs_no_other(
    collector: Any, queue: spool.Spool, tmp_path: Path, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The readers run as the job's owner, who can make them answer anything; the job counts as collected all the same."""
    (tmp_path / "out").write_text(TRACE)
    collector._pages.make(7, ME, os.getgid())
    ended = collector._book.end(job(stdout=str(tmp_path / "out")), NOW)
    ask = collector.ask

    async def answer(job: jobs.NodeJob, request: dict[str, Any], *child: tuple[str, ...]) -> dict[str, Any]:
        found = await ask(job, request, *child)
        return {**found, "findings": [["nonsense"]], "inode": [7]} if request["op"] == broken else found

    async def pages(job: jobs.NodeJob) -> list[sighting.Sighting]:
        if broken == "pages":
            raise AttributeError("'list' object has no attribute 'items'")
        return [
            sighting.Sighting(
                source="probe", position="p", at=NOW, kind="rank_dead", severity=INFO, message="dead"
            )
        ]

    collector.ask, collector._page_reader = answer, pages
    asyncio.run(collector.collect(ended))
    sources = {e.source for e in events(queue)}
    assert sources == {"joblog", "probe"} - {{"pages": "probe", "log": "joblog"}.get(broken)}
    assert collector._book.uncollected() == []
    assert "a part of what job 7 left could not be read" in caplog.text


def test_output_whose_reading_failed_is_reported_as_unread(
    collector: Any, queue: spool.Spool, tmp_path: Path
) -> None:
    """Without a row its verdict would wait for ever for output that no agent reads."""
    (tmp_path / "out").write_text(TRACE)
    ended = collector._book.end(job(stdout=str(tmp_path / "out")), NOW)

    async def nonsense(*_: Any) -> dict[str, Any]:
        return {"inode": [7], "findings": [["nonsense"]]}

    collector.ask = nonsense
    asyncio.run(collector.collect(ended))
    (row,) = [codec.decode(i.body, records.JobAllocation) for i in queue.batch(100) if i.lane == "allocation"]
    (log,) = row.detail["logs"]
    assert (log["path"], "tail" in log) == (str(tmp_path / "out"), False)
    assert "the agent failed" in log["why"]


def test_job_log_becomes_job_side_events_once(collector: Any, queue: spool.Spool, tmp_path: Path) -> None:
    """Marked with the job, never more than information, and the same rows when collected again."""
    (tmp_path / "out").write_text(TRACE)
    ended = job(stdout=str(tmp_path / "out"))

    async def twice() -> None:
        await collector.collect(ended)
        await collector.collect(ended)

    asyncio.run(twice())
    found = events(queue)
    assert found
    assert {(e.source, e.job_id, str(e.severity)) for e in found} == {("joblog", 7, "info")}
    assert all(e.source in vocabulary.JOB_SIDE_SOURCES for e in found)
    assert len({e.event_id for e in found}) == len(found)


@pytest.mark.parametrize(("filesystem", "events_of_both"), [("nfs4", 1), ("lustre", 1), ("ext4", 2), ("", 2)])
def test_a_line_that_two_nodes_report_is_one_event_where_both_see_the_same_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, filesystem: str, events_of_both: int
) -> None:
    """On a network file system the inode says so, whatever the path; two nodes' own files are two facts."""

    async def answer(self: collect.Collector, *_: object) -> dict[str, Any]:
        found = {"offset": 8, "kind": "python", "message": "ValueError: bad shape", "detail": {}}
        return {"filesystem": filesystem, "inode": 4711, "findings": [found]}

    monkeypatch.setattr(collect.Collector, "ask", answer)
    ids = []
    for node, path in (("n1", "/home/a/out"), ("n2", "/export/home/a/out")):
        queue = spool.Spool(tmp_path / node, max_bytes=1 << 20)
        node_identity = identity.Identity(cluster="c", node=node, root=tmp_path)
        collector = collect.Collector(
            identity=node_identity,
            children=children.Children(),
            intake=intake.Intake(identity=node_identity, spool=queue, faults=faults.Faults("b")),
            book=jobs.JobBook("b"),
            pages=page_directories.PageDirectories(tmp_path / "pages"),
            watch=self_watch.SelfWatch(),
        )
        for restart in (0, 1):
            asyncio.run(collector.collect(job(stdout=path, restart_count=restart)))
        found = events(queue)
        assert [e.node for e in found] == [node, node]
        ids += [e.event_id for e in found]
        queue.close()
    assert len(set(ids)) == 2 * events_of_both  # two attempts


def test_the_file_system_of_a_file_is_told(tmp_path: Path) -> None:
    """By the device number in the mount table; one it does not name is nobody's."""
    table = tmp_path / "mountinfo"
    table.write_text(
        "22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw\n"
        "90 22 0:51 / /home rw,relatime shared:2 master:1 - nfs4 server:/home rw,vers=4.2\n"
    )
    assert collect_child.filesystem(os.makedev(0, 51), table) == "nfs4"
    assert collect_child.filesystem(os.makedev(254, 1), table) == "ext4"
    assert collect_child.filesystem(os.makedev(0, 52), table) == ""


def test_page_directory_goes_after_the_collection(collector: Any, tmp_path: Path) -> None:
    """Its dumps are read first; a running job's directory stays."""
    pages = page_directories.PageDirectories(tmp_path / "pages")
    made = pages.make(7, ME, os.getgid())
    asyncio.run(collector.collect(job(released_at=None)))
    assert made.exists()
    asyncio.run(collector.collect(job()))
    assert not made.exists()


def test_refused_file_is_said_in_the_agents_own_state(
    collector: Any, queue: spool.Spool, tmp_path: Path
) -> None:
    """An operator can see why there is no evidence from a log."""
    (tmp_path / "out").symlink_to("/etc/passwd")
    asyncio.run(collector.collect(job(stdout=str(tmp_path / "out"))))
    assert events(queue) == []
    assert "ELOOP" in (collector._watch.of("collect").error or "")


def shown(queue: spool.Spool) -> list[dict[str, Any]]:
    """What a report is given of a job's logs."""
    rows = [codec.decode(i.body, records.JobAllocation) for i in queue.batch(100) if i.lane == "allocation"]
    return [log for row in rows for log in row.detail.get("logs", ())]


@pytest.mark.parametrize(
    "line",
    [
        "export WANDB_API_KEY=hunter2",
        "os.environ['API_KEY'] = 'hunter2'",
        "ValueError: no access to https://alice:hunter2@host/x",
        f"step 1, password={'x' * 300} --token hunter2",
    ],
)
def test_a_secret_that_the_job_printed_does_not_leave_its_node(
    collector: Any, queue: spool.Spool, tmp_path: Path, line: str
) -> None:
    """Not in a finding, its last line or the lines behind it, nor in the lines that a report shows."""
    (tmp_path / "out").write_text(f"{TRACE}{line}\n")
    (tmp_path / "err").write_text(f'Traceback (most recent call last):\n  File "a.py", line 1\n{line}\n')
    ended = job(stdout=str(tmp_path / "out"), stderr=str(tmp_path / "err"))
    asyncio.run(collector.collect(ended))
    bodies = [i.body for i in queue.batch(100)]
    assert any(b"ValueError: bad shape" in body for body in bodies)
    assert any(b"***" in body for body in bodies)
    assert [body for body in bodies if b"hunter2" in body or b"x" * 20 in body] == []


def test_both_files_are_read_and_shown(collector: Any, queue: spool.Spool, tmp_path: Path) -> None:
    """Findings come from either; a report has the path and the last lines of each."""
    (tmp_path / "out-00007").write_text("step 1\nstep 2\n")
    (tmp_path / "err").write_text(TRACE)
    asyncio.run(collector.collect(job(stdout="out-%5j", stderr="err", work_dir=str(tmp_path))))
    assert any("ValueError" in e.message for e in events(queue))
    out, err = shown(queue)
    assert (out["stream"], out["path"], out["tail"]) == (
        "stdout",
        str(tmp_path / "out-00007"),
        ["step 1", "step 2"],
    )
    assert (err["stream"], err["tail"][-1]) == ("stderr", "ValueError: bad shape")


def test_a_log_is_kept_beside_itself(collector: Any, queue: spool.Spool, tmp_path: Path) -> None:
    """Before a restart truncates it: a copy named after the start, whose place the job's row tells, and no second one."""
    (tmp_path / "out").write_text(TRACE)
    ended = job(stdout=str(tmp_path / "out"), restart_count=1)

    async def twice() -> None:
        await collector.keep_log(ended, 1 << 20)
        (tmp_path / "out").write_text("the next start")
        await collector.keep_log(ended, 1 << 20)

    asyncio.run(twice())
    copy = tmp_path / "out.start2"
    assert copy.read_text() == TRACE
    assert {log["copy"] for log in shown(queue)} == {str(copy)}
    assert sorted(p.name for p in tmp_path.glob("out*")) == ["out", "out.start2"]


def test_of_a_long_log_the_end_is_kept(tmp_path: Path) -> None:
    """Never more than is asked for, and with the log's own mode."""
    (tmp_path / "out").write_bytes(b"a" * 5000 + b"the end")
    (tmp_path / "out").chmod(0o640)
    answer = child(
        {"op": "keep", "path": str(tmp_path / "out"), "start": 1, "most": 1000, "uid": ME, "gid": os.getgid()}
    )
    copy = Path(answer["copy"])
    assert copy.read_bytes() == b"a" * 993 + b"the end"
    assert copy.stat().st_mode & 0o777 == 0o640


@AS_ROOT
def test_a_copy_is_made_with_the_owners_rights(tmp_path: Path) -> None:
    """A directory that the owner may not write to gets no file of ours; nor is a link followed to what root could read."""
    tmp_path.chmod(0o755)
    (tmp_path / "out").write_text(TRACE)
    os.chown(tmp_path / "out", 65534, 65534)
    calls = {
        "op": "keep",
        "path": str(tmp_path / "out"),
        "start": 1,
        "most": 1000,
        "uid": 65534,
        "gid": 65534,
    }
    assert child(calls)["refused"] in {"it could not be copied: EACCES", "EACCES"}
    (tmp_path / "link").symlink_to("/etc/shadow")
    assert child({**calls, "path": str(tmp_path / "link")})["refused"] in {"ELOOP", "EACCES"}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "out"]


def test_another_node_keeps_the_log_of_the_one_that_broke(
    collector: Any, queue: spool.Spool, tmp_path: Path
) -> None:
    """Asked for, it reads what the first node wrote, by the name that node gave it."""
    (tmp_path / "out-n0").write_text(TRACE)
    ended = job(stdout=str(tmp_path / "out-%N"), nodelist="n[0-1]")
    asyncio.run(collector.keep_log(ended, 1 << 20))
    assert (tmp_path / "out-n0.start1").read_text() == TRACE
    assert [log["path"] for log in shown(queue)] == [str(tmp_path / "out-n0")]


def test_every_file_of_its_steps_is_read_once(collector: Any, queue: spool.Spool, tmp_path: Path) -> None:
    """What /proc showed beside the batch script's own file; one under two names is one."""
    (tmp_path / "out").write_text("batch\n")
    (tmp_path / "rank-0").write_text(TRACE)
    (tmp_path / "way").symlink_to(tmp_path)
    logs = (str(tmp_path / "out"), str(tmp_path / "rank-0"), str(tmp_path / "way" / "rank-0"))
    asyncio.run(collector.collect(job(stdout=str(tmp_path / "out"), logs=logs)))
    assert [(log["stream"], log["path"]) for log in shown(queue)] == [
        ("stdout", logs[0]),
        ("output", logs[1]),
    ]
    assert len([e for e in events(queue) if e.detail.get("first_cause")]) == 1


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"stdout": "/nowhere/out"}, "there is no such file"),
        ({"stdout": "/x/%A_%a"}, "does not tell the Prolog the value of %A"),
        ({"stdout": "/dev/null"}, "the job sends it to /dev/null"),
        ({}, "Slurm did not report the job's output file"),
    ],
)
def test_a_log_that_was_not_read_says_why(
    collector: Any, queue: spool.Spool, fields: dict[str, Any], why: str
) -> None:
    """Silence would look like a log in which nothing was said."""
    asyncio.run(collector.collect(job(**fields)))
    (log,) = shown(queue)
    assert why in log["why"]


def test_output_files_of_a_running_job_are_found(tmp_path: Path) -> None:
    """The Prolog is told of no array's numbers and of no step's file; the processes themselves tell."""
    environment = {
        "SLURM_JOB_ID": "4242", "SLURMD_NODENAME": "n1", "SLURM_ARRAY_JOB_ID": "4240", "SLURM_ARRAY_TASK_ID": "0",
        "SLURM_JOB_NAME": "train",
    }  # fmt: skip
    calls = {"op": "find", "uid": ME, "gid": os.getgid(), "node": "n1"}
    out, err, rank = tmp_path / "out", tmp_path / "err", tmp_path / "rank"
    with out.open("w") as one, err.open("w") as two, rank.open("w") as three:
        script = subprocess.Popen(["/bin/sleep", "60"], stdout=one, stderr=two, env=environment)
        step = subprocess.Popen(
            ["/bin/sleep", "60"], stdout=three, stderr=three, env={**environment, "SLURM_STEP_ID": "0"}
        )
    try:
        assert child({**calls, "job_id": 4242}) == {
            "logs": [str(out), str(err), str(rank)],
            "ids": {"ids_known": True, "array_job_id": 4240, "array_task_id": 0, "job_name": "train"},
        }
        nothing: dict[str, Any] = {"logs": [], "ids": {}}
        assert child({**calls, "job_id": 4243}) == nothing
        assert child({**calls, "job_id": 4242, "node": "n2"}) == nothing
    finally:
        for process in (script, step):
            process.kill()
            process.wait()


def test_an_array_tasks_log_is_read_once_accounting_has_said_its_number(
    collector: Any, queue: spool.Spool, tmp_path: Path
) -> None:
    """Dead before its process could be looked at, under a Slurm whose Prolog is not told of arrays."""
    (tmp_path / "arr-2_5.out").write_text(TRACE)
    book = collector._book
    ended = book.end(job(stdout=str(tmp_path / "arr-%A_%a.out"), released_at=None), NOW)
    asyncio.run(collector.collect(ended))
    (unread,) = shown(queue)
    assert unread["unnamed"] is True
    assert book.set_accounting_ids(
        7, {"restart_count": 1, "array_job_id": 3, "array_task_id": 5}
    ) == book.get(7)
    wrong = {"restart_count": 0, "array_job_id": "../../etc", "array_task_id": True, "user": ["x"]}
    assert not {"array_job_id", "array_task_id", "user"} & book.set_accounting_ids(7, wrong).extra.keys()
    named = book.set_accounting_ids(
        7, {"restart_count": 0, "array_job_id": 2, "array_task_id": 5, "job_name": "arr"}
    )
    asyncio.run(collector.collect(named))
    read_at_last = shown(queue)[-1]
    assert (read_at_last["path"], read_at_last["tail"][-1]) == (
        str(tmp_path / "arr-2_5.out"),
        "ValueError: bad shape",
    )
    assert any("ValueError" in e.message for e in events(queue))


def test_the_default_name_of_a_job_whose_array_is_not_known_may_be_another(
    collector: Any, queue: spool.Spool, tmp_path: Path
) -> None:
    """`slurm-%j.out` is not there: it may be `slurm-%A_%a.out`, which accounting can tell."""
    asyncio.run(collector.collect(job(work_dir=str(tmp_path))))
    (log,) = shown(queue)
    assert log["why"] == "there is no such file; srun and salloc without sbatch write to their own terminal"
    assert log.get("unnamed") is True


@pytest.mark.parametrize("n_users", [1, 10])
def test_readers_that_other_users_keep_stuck_cost_nobody_anything(
    collector: Any, queue: spool.Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_users: int
) -> None:
    """Whoever serves files that never answer (FUSE), or whose file server is gone, may stop the reading of their own logs, not a neighbour's."""
    (tmp_path / "slurm-7.out").write_text(
        "RuntimeError: CUDA error: an illegal memory access was encountered\n"
    )
    stuck = tuple(f"collect {54321 + u} {n}" for u in range(n_users) for n in range(children.MAX_STUCK))
    monkeypatch.setattr(children.Children, "hung", property(lambda _: stuck))
    asyncio.run(collector.collect(job(stdout=str(tmp_path / "slurm-7.out"))))
    assert events(queue)
    answer = asyncio.run(collector.ask(job(uid=54321), {"op": "log", "path": "/x"}))
    assert "stuck" in answer["refused"]


@pytest.mark.parametrize(("more", "is_read"), [(0, True), (1, False)])
def test_where_many_readers_are_stuck_each_user_may_still_have_one(
    collector: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, more: int, is_read: bool
) -> None:
    """A second one that is stuck is one too many then; until then a user may have four."""
    n_others = children.MAX_STUCK_IN_ALL - 2 + more
    stuck = (f"collect {os.getuid()} 0", *(f"collect {54321 + n} 0" for n in range(n_others)))
    monkeypatch.setattr(children.Children, "hung", property(lambda _: stuck))
    answer = asyncio.run(collector.ask(job(), {"op": "dumps", "directory": str(tmp_path)}))
    assert ("stuck" not in str(answer["refused"])) is is_read


def test_one_users_slow_logs_keep_nobody_elses_job_unread(
    collector: Any, queue: spool.Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fifty jobs of another user's, whose readers never answer, hold the places that are theirs and no more."""
    (tmp_path / "out").write_text(TRACE)
    real = children.Children.run

    async def run(self: children.Children, key: str, *given: Any, **named: Any) -> Any:
        if key.startswith("collect 54321 "):
            await asyncio.Event().wait()
        return await real(self, key, *given, **named)

    monkeypatch.setattr(children.Children, "run", run)

    async def scenario() -> None:
        slow = [
            asyncio.create_task(collector.collect(job(job_id=100 + n, uid=54321, stdout=f"/none/{n}")))
            for n in range(50)
        ]
        await asyncio.sleep(0)
        mine = asyncio.create_task(collector.collect(job(stdout=str(tmp_path / "out"))))
        await asyncio.wait([mine], timeout=120)
        done = mine.done()
        for task in (*slow, mine):
            task.cancel()
        await asyncio.gather(*slow, mine, return_exceptions=True)
        assert done

    asyncio.run(scenario())
    assert events(queue)


def test_of_a_job_whose_readers_do_not_answer_few_files_are_tried(
    collector: Any, queue: spool.Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of its 32 files could cost half a minute; the report says of each why it was not read."""
    tried = []

    async def run(self: children.Children, key: str, *_: Any, **named: Any) -> Any:
        tried.append(named["stdin"])
        raise children.ChildHung(key)

    monkeypatch.setattr(children.Children, "run", run)
    slow = job(logs=tuple(f"/none/{n}" for n in range(32)))
    asyncio.run(collector.collect(slow))
    assert len([t for t in tried if b'"log"' in t]) == collect.MAX_UNANSWERED
    (row,) = [json.loads(i.body) for i in queue.batch(100) if i.lane == "allocation"]
    assert sum("not tried" in log.get("why", "") for log in row["detail"]["logs"]) == 30


@pytest.mark.parametrize(
    ("program", "in_state"),
    [
        ("import sys; sys.exit('no memory for it')", "no memory for it"),
        ("import os; os.kill(os.getpid(), 9)", "exit status -9"),
        ("print('[' * 100_000)", "exit status 0"),
        ("print('[1]')", "exit status 0"),
    ],
)
def test_a_reader_that_failed_is_not_one_that_did_not_answer(
    collector: Any,
    queue: spool.Spool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    program: str,
    in_state: str,
) -> None:
    """It costs no deadline: the job's other files are tried. The reason is one line in the agent's log."""
    real = children.Children.run

    async def run(self: children.Children, key: str, _: Any, **named: Any) -> Any:
        return await real(self, key, (sys.executable, "-I", "-c", program), **named)

    monkeypatch.setattr(children.Children, "run", run)
    asyncio.run(collector.collect(job(logs=tuple(f"/none/{n}" for n in range(4)))))
    logs = [log for log in shown(queue) if log["stream"] == "output"]
    assert [log["why"] for log in logs] == ["its reader failed"] * 4
    assert in_state in (collector._watch.of("collect").error or "")
    (line,) = [r.getMessage() for r in caplog.records if "its reader failed" in r.getMessage()]
    assert in_state in line


STARTED = datetime(2026, 1, 31, 8, 0, tzinfo=UTC)


def dated_steps(last_at: datetime, n: int = 30) -> str:
    """Steps twenty seconds apart, in this machine's zone as programs write it, the last of them at `last_at`."""
    at = [(last_at - timedelta(seconds=20 * (n - 1 - i))).astimezone() for i in range(n)]
    return "".join(f"[{a:%Y-%m-%d %H:%M:%S},123] INFO step {i} loss 1.97\n" for i, a in enumerate(at))


STOOD = dated_steps(NOW - timedelta(hours=4), 350)
CANCELLED = f"slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT {NOW.astimezone():%Y-%m-%dT%H:%M:%S} ***\n"


@pytest.mark.parametrize(
    ("out", "err", "found"),
    [
        (STOOD + CANCELLED, None, True),
        (STOOD, CANCELLED, True),
        ("starting\n", STOOD + CANCELLED, True),
        (STOOD, "step 1 loss 2\nstep 2 loss 1\n", False),
        (STOOD, TRACE.removeprefix("epoch 1\n"), True),
        (STOOD + TRACE, None, False),
        (dated_steps(NOW - timedelta(minutes=2)) + CANCELLED, None, False),
        (STOOD.replace("2026-01-31", ""), None, False),
        (STOOD.replace("2026-01-31", "2026-01-30"), None, False),
        (dated_steps(NOW - timedelta(hours=2)), None, False),
    ],
    ids=["one file", "two files", "stderr", "goes on in another", "error in another", "its own error", "until its end", "no dates", "before it began", "another zone?"],
)  # fmt: skip
def test_a_log_that_stood_still_until_the_jobs_end_is_a_finding(
    collector: Any, queue: spool.Spool, tmp_path: Path, out: str, err: str | None, found: bool
) -> None:
    """The same that an import finds, with the last step's instant, once; who ended the job only accounting knows."""
    (tmp_path / "out").write_text(out)
    if err is not None:
        (tmp_path / "err").write_text(err)
    paths = {"stdout": str(tmp_path / "out")} | ({"stderr": str(tmp_path / "err")} if err is not None else {})
    late = NOW + timedelta(seconds=40)
    collector._clock = SetClock(late + timedelta(seconds=1))

    async def collect_it() -> None:
        for released_at in (late, late) if found else (None, late):
            await collector.collect(job(started_at=STARTED, released_at=released_at, **paths))

    asyncio.run(collect_it())
    stalls = [e for e in events(queue) if e.kind == vocabulary.LOG_STALL]
    assert len(stalls) == found
    for stall in stalls:
        assert (stall.source, stall.unit, str(stall.severity)) == ("joblog", "s", "info")
        assert stall.at == (NOW if STOOD + CANCELLED in (out, err) else late)
        assert stall.measured == pytest.approx((stall.at - NOW).total_seconds() + 4 * 3600, abs=1)
        assert stall.detail["gap_s"] == 20.0
        assert "step 349" in stall.message


def test_of_a_long_log_the_beginning_tells_its_zone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only its end is read; an appended file begins with an earlier start and tells nothing."""
    (tmp_path / "out").write_text(STOOD + CANCELLED)
    monkeypatch.setattr(log_parts, "MOST_BYTES", 4096)
    span_s = (STARTED.timestamp(), NOW.timestamp())
    question = {"path": str(tmp_path / "out"), "uid": ME, "span_s": span_s}
    assert vocabulary.LOG_STALL in {f["kind"] for f in collect_child.log_findings(question)["findings"]}
    again = question | {"began_s": STARTED.timestamp()}
    assert vocabulary.LOG_STALL not in {f["kind"] for f in collect_child.log_findings(again)["findings"]}


@pytest.mark.parametrize("mode", ["truncated", "appended", "appended, its end was seen", "untouched"])
def test_what_a_later_start_wrote_is_not_shown_as_the_earlier_ones(
    collector: Any, queue: spool.Spool, tmp_path: Path, mode: str
) -> None:
    """A busy node reads a log late: the job has begun again meanwhile and writes into the same file."""
    out = tmp_path / "out"
    out.write_text(TRACE)
    ended_s = NOW.timestamp()
    os.utime(out, (ended_s, ended_s))
    before: dict[str, Any] = {}
    if mode.endswith("seen"):
        question = {"op": "before", "path": str(out), "started_s": ended_s + 5}
        before = {str(out): child({**question, "uid": ME, "gid": os.getgid()})["before"]}
    if mode == "truncated":
        out.write_text("second life step 1\n")
    elif mode != "untouched":
        with out.open("a") as stream:
            stream.write("second life step 1\nRuntimeError: of the second\n")
    if mode != "untouched":
        os.utime(out, (ended_s + 9, ended_s + 9))
    again = job(stdout=str(out), restart_count=1, started_at=NOW + timedelta(seconds=5), released_at=None, before=before)  # fmt: skip
    collector._book.start(again)
    asyncio.run(collector.collect(job(stdout=str(out))))
    (row,) = shown(queue)
    # The report compares the file's last write with starts on other nodes.
    assert ("written_s" in row) is (mode == "untouched")
    if mode in ("truncated", "appended"):
        assert "later start of the job has written into it" in row["why"]
        assert events(queue) == []
    else:
        assert row["tail"][-1] == "ValueError: bad shape"
        assert ["ValueError" in e.message for e in events(queue)] == [True]
