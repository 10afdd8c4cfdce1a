"""Words of alarm in what running jobs write, read by a real child as the job's owner."""

from __future__ import annotations

import asyncio
import dataclasses
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from probing_cluster.core import clock
from probing_cluster.probe_agent import children, identity, self_watch
from probing_cluster.probe_agent.faults import faults
from probing_cluster.probe_agent.jobs import (
    alarm_words,
    collect,
    collect_child,
    jobs,
    log_parts,
    page_directories,
)
from probing_cluster.probe_agent.spool import intake, spool

NOW = datetime(2026, 1, 31, 14, 0, tzinfo=UTC)
ME = os.getuid()
WORDS = ("CUDA error", "loss is nan")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    path = tmp_path / "slurm-7.out"
    path.touch()
    return path


@pytest.fixture
def book() -> jobs.JobBook:
    return jobs.JobBook("b")


@pytest.fixture
def alarms(tmp_path: Path, book: jobs.JobBook) -> alarm_words.AlarmWords:
    node_identity = identity.Identity(cluster="c", node="n1", root=tmp_path)
    collector = collect.Collector(
        identity=node_identity,
        children=children.Children(),
        intake=intake.Intake(
            identity=node_identity,
            spool=spool.Spool(tmp_path / "spool", max_bytes=1 << 20),
            faults=faults.Faults("b"),
        ),
        book=book,
        pages=page_directories.PageDirectories(tmp_path / "pages"),
        watch=self_watch.SelfWatch(),
    )
    return alarm_words.AlarmWords(book, collector, WORDS, clock.SYSTEM)


def job(out: Path, **changes: Any) -> jobs.NodeJob:
    made = jobs.NodeJob(
        job_id=7,
        started_at=NOW,
        uid=ME,
        gid=os.getgid(),
        stdout=str(out),
        work_dir=str(out.parent),
        nodelist="n1",
    )
    return dataclasses.replace(made, **changes)


def write(out: Path, text: str) -> None:
    with out.open("a") as stream:
        stream.write(text)


def look(alarms: alarm_words.AlarmWords) -> dict[str, Any]:
    asyncio.run(alarms.look())
    return alarms.rows()


def test_a_word_is_told_once_with_the_line_that_said_it(
    alarms: alarm_words.AlarmWords, book: jobs.JobBook, out: Path
) -> None:
    """A half line waits for its end; what was read is not read again; a job that has ended is told of no more."""
    book.start(job(out))
    write(out, "epoch 1\nCUDA er")
    assert look(alarms) == {}
    write(out, "ror: unspecified\nfine\n")
    first = look(alarms)
    assert first["7"]["CUDA error"]["line"] == "CUDA error: unspecified"
    write(out, "another CUDA error\nloss is nan\n")
    second = look(alarms)
    assert second["7"]["CUDA error"] == first["7"]["CUDA error"]
    assert second["7"]["loss is nan"]["line"] == "loss is nan"
    book.end(job(out), NOW)
    assert look(alarms) == {}


def test_what_an_earlier_start_wrote_is_not_this_ones(
    alarms: alarm_words.AlarmWords, book: jobs.JobBook, out: Path
) -> None:
    """A file that is appended to holds the first start's words; a truncated one is read from its beginning."""
    write(out, "CUDA error of the first start\n")
    book.start(job(out, restart_count=1))
    assert look(alarms) == {}
    write(out, "loss is nan\n")
    assert list(look(alarms)["7"]) == ["loss is nan"]
    out.write_text("CUDA error\n")
    assert sorted(look(alarms)["7"]) == ["CUDA error", "loss is nan"]


@pytest.mark.parametrize(
    "answer",
    [
        {"offset": 5},
        {"offset": 5, "inode": "7", "matches": {}},
        {"offset": True, "inode": 7, "matches": {}},
        {"offset": 5, "inode": 7, "matches": ["CUDA error"]},
        {"offset": 5, "inode": 7},
        {},
    ],
)
def test_an_answer_of_another_shape_is_no_answer(
    alarms: alarm_words.AlarmWords,
    book: jobs.JobBook,
    out: Path,
    monkeypatch: pytest.MonkeyPatch,
    answer: Any,
) -> None:
    """The reader is the owner's process: the next look asks it again."""
    book.start(job(out))
    write(out, "CUDA error\n")
    collector = alarms._collector

    async def other(*_: object) -> Any:
        return answer

    with monkeypatch.context() as changed:
        changed.setattr(collector, "ask", other)
        assert look(alarms) == {}
    assert list(look(alarms)["7"]) == ["CUDA error"]


def test_who_stops_their_own_readers_delays_nobody_else(
    alarms: alarm_words.AlarmWords, book: jobs.JobBook, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user may stop the child that reads as them: one of theirs is waited for in a look, not one a file of each job."""
    for n in range(20):
        book.start(job(out, job_id=100 + n, uid=54321, logs=("/none/a", "/none/b")))
    book.start(job(out, job_id=900))
    write(out, "CUDA error\n")
    collector, real, stopped = alarms._collector, alarms._collector.ask, []

    async def ask(of: jobs.NodeJob, question: Any) -> Any:
        if of.uid != 54321:
            return await real(of, question)
        stopped.append(of.job_id)
        return {"refused": collect.NO_ANSWER}

    monkeypatch.setattr(collector, "ask", ask)
    assert list(look(alarms)["900"]) == ["CUDA error"]
    assert len(stopped) == 1


def test_a_word_nobody_asked_for_is_not_taken(
    alarms: alarm_words.AlarmWords, book: jobs.JobBook, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An owner's reader cannot write words of its own, or a million of them, into the node's heartbeat."""
    book.start(job(out))
    write(out, "x\n")

    async def other(*_: object) -> Any:
        return {"inode": 1, "offset": 2, "matches": {"pull this node": "x", "loss is nan": "y" * 5000}}

    monkeypatch.setattr(alarms._collector, "ask", other)
    found = look(alarms)["7"]
    assert list(found) == ["loss is nan"]
    assert len(found["loss is nan"]["line"]) <= 201


def test_the_words_are_read_with_the_owners_rights_only(tmp_path: Path, out: Path) -> None:
    """Another's file, a link, a name that is missing: refused, as everything of a job's."""
    calls = {"inode": 0, "offset": 0, "words": list(WORDS), "skip": False, "uid": ME}
    link = tmp_path / "link"
    link.symlink_to(out)
    for path, uid in ((link, ME), (out, ME + 1), (tmp_path / "missing", ME)):
        with pytest.raises(collect_child.Refused):
            collect_child.alarm_words({**calls, "path": str(path), "uid": uid})


def test_a_flood_is_read_from_its_end(out: Path) -> None:
    """Of what was written since the last look so much, and no more; a line without end is read as it stands."""
    out.write_bytes(b"CUDA error\n" + b"x" * (2 * log_parts.MOST_BYTES) + b"\nloss is nan\n")
    calls = {"path": str(out), "inode": 0, "offset": 0, "words": list(WORDS), "skip": False, "uid": ME}
    answer = collect_child.alarm_words(calls)
    assert list(answer["matches"]) == ["loss is nan"]
    assert answer["offset"] == out.stat().st_size
    out.write_bytes(b"y" * 100_000)
    assert collect_child.alarm_words(calls)["offset"] == 100_000
