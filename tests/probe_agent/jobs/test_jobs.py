"""Jobs between Prolog and Epilog, and the page directories that users cannot turn against root."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from probing_cluster.core import errors
from probing_cluster.probe_agent import identity
from probing_cluster.probe_agent.jobs import jobs, page_directories
from probing_cluster.probe_agent.spool import codec, spool

NOW = datetime(2026, 1, 31, 14, 0, tzinfo=UTC)
ME, MINE = os.getuid(), os.getgid()
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def job(job_id: int = 7, **fields: Any) -> jobs.NodeJob:
    return jobs.NodeJob(job_id=job_id, started_at=fields.pop("started_at", NOW), **fields)


def test_a_question_that_was_answered_too_late_is_in_the_book() -> None:
    """A hook's note changes nothing then; one of another start, or of what the agent never did, does."""
    book = jobs.JobBook("b")

    def includes(op: str, at_s: float, restart_count: int = 0) -> bool:
        return book.includes(op, job(started_at=NOW + timedelta(seconds=at_s), restart_count=restart_count))

    assert not includes("prolog", 0)
    book.start(job(started_at=NOW + timedelta(seconds=3)))
    assert includes("prolog", 0)
    assert not includes("prolog", 0, restart_count=1)
    assert not includes("epilog", 0)
    book.end(job(), NOW + timedelta(seconds=63))
    assert includes("prolog", 0)
    assert includes("epilog", 60)
    assert includes("epilog", 60, restart_count=1), "Slurm has counted the requeue already"
    assert not includes("epilog", 100), "it asked after that end"
    assert not includes("epilog", 1), "it asked before that start"
    assert not includes("epilog", 60, restart_count=2)
    book.end(job(restart_count=5, started_at=NOW + timedelta(seconds=203)), NOW + timedelta(seconds=203))
    assert includes("epilog", 200, restart_count=5)
    assert not includes("prolog", 200, restart_count=5), "the agent has not heard of the start"


def test_job_is_running_from_prolog_to_epilog_and_known_after() -> None:
    """Its GPUs and owner count while it runs; afterwards it can still be collected."""
    book = jobs.JobBook("b")
    book.start(job(uid=1000, gpu_uuids=("GPU-1",), stdout="/x"))
    assert book.running == (7,)
    assert book.allocated() == {7: ("GPU-1",)}
    assert book.uids() == {1000}
    ended = book.end(job(), NOW + timedelta(hours=1))
    assert book.running == ()
    assert book.ended == {7}
    assert (ended.gpu_uuids, ended.stdout, ended.started_at) == (("GPU-1",), "/x", NOW)
    assert book.get(7) == ended
    assert book.uncollected() == [ended]
    book.mark_collected(ended)
    assert book.uncollected() == []


def test_repeated_prolog_of_one_start_keeps_the_first_time() -> None:
    """slurmd may run it again; the allocation began once."""
    book = jobs.JobBook("b")
    book.start(job())
    again = book.start(job(started_at=NOW + timedelta(seconds=30)))
    requeued = book.start(job(started_at=NOW + timedelta(hours=1), restart_count=1))
    assert again.started_at == NOW
    assert requeued.started_at == NOW + timedelta(hours=1)


def test_epilog_of_a_start_nobody_saw_is_kept_as_such() -> None:
    """The agent was not there at the Prolog; the release is still a fact."""
    ended = jobs.JobBook("b").end(job(uid=5), NOW)
    assert ended.released_at == NOW
    assert ended.extra["prolog_seen"] is False


def test_the_epilog_of_a_requeued_start_ends_that_start() -> None:
    """Slurm has counted the requeue by then: SLURM_JOB_RESTART_COUNT is the next start's, which begins after this Epilog."""
    book = jobs.JobBook("b")
    book.start(job(gpu_uuids=("GPU-1",)))
    ended = book.end(job(started_at=NOW + timedelta(hours=1), restart_count=1), NOW + timedelta(hours=1))
    assert (ended.restart_count, ended.started_at, ended.gpu_uuids) == (0, NOW, ("GPU-1",))
    book.start(job(started_at=NOW + timedelta(hours=2), restart_count=1))
    again = book.end(job(restart_count=1), NOW + timedelta(hours=3))
    assert (again.restart_count, again.started_at) == (1, NOW + timedelta(hours=2))


def test_book_survives_the_agent_and_not_the_boot() -> None:
    """After a reboot nothing runs, but what was left can still be collected."""
    book = jobs.JobBook("b")
    book.start(job(1, uid=5, gpu_uuids=("GPU-1",)))
    book.start(job(2))
    book.end(job(2), NOW)
    states = codec_round(book.changed_states())
    same, other = jobs.JobBook("b", states), jobs.JobBook("b2", states)
    assert same.running == (1,)
    assert same.get(1) == book.get(1)
    assert other.running == ()
    assert [j.job_id for j in other.uncollected()] == [2]


def test_start_and_release_are_two_rows_with_identities_of_their_own(
    node_identity: identity.Identity,
) -> None:
    """Neither can overwrite the other in the spool, and a repeat is the same row."""
    start, end = job(uid=5), job(uid=5, released_at=NOW)
    assert start.item(node_identity).id != end.item(node_identity).id
    assert start.item(node_identity).id == job(uid=5).item(node_identity).id
    row = codec.decode(end.item(node_identity).body, codec.LANES["allocation"])
    assert (row.job_id, row.released_at, row.uid) == (7, NOW, 5)


@pytest.mark.parametrize(
    "request_",
    [{}, {"job_id": "7"}, {"job_id": -1}, {"job_id": True}, {"job_id": 7, "uid": "root"}, {"job_id": 7, "gpus": [1]},
     {"job_id": 7, "stdout": 5}, {"job_id": 2**40}],
)  # fmt: skip
def test_request_with_a_wrong_field_is_refused_by_name(request_: dict[str, Any]) -> None:
    """Nothing half-understood enters the book."""
    with pytest.raises(errors.MalformedInput):
        jobs.job_of(request_, NOW)


def test_request_cannot_set_what_the_agent_decides() -> None:
    """GPU identities, times and the collected mark are ours."""
    made = jobs.job_of(
        {
            "job_id": 7,
            "gpu_uuids": ["GPU-X"],
            "released_at": "x",
            "collected": True,
            "started_at": 0,
            "run_key": "k",
        },
        NOW,
    )
    assert made == job(extra={"run_key": "k"})


def test_page_directory_belongs_to_the_job_alone(tmp_path: Path) -> None:
    """Owner, mode, and gone afterwards with all that is in it."""
    pages = page_directories.PageDirectories(tmp_path / "jobs")
    made = pages.make(7, ME, MINE)
    assert made.stat().st_mode & 0o7777 == 0o700
    (made / "sub").mkdir()
    (made / "sub" / "page").write_text("x")
    pages.remove(7)
    assert not made.exists()
    pages.remove(7)


def test_page_directory_of_a_requeued_job_is_kept(tmp_path: Path) -> None:
    """The same user's directory stays; making it twice is no error."""
    pages = page_directories.PageDirectories(tmp_path / "jobs")
    (pages.make(7, ME, MINE) / "page").write_text("x")
    assert (pages.make(7, ME, MINE) / "page").exists()


def test_link_in_the_place_of_a_page_directory_is_replaced_not_followed(tmp_path: Path) -> None:
    """A symbolic link planted there leads root nowhere."""
    target = tmp_path / "precious"
    target.mkdir(mode=0o755)
    (target / "file").write_text("keep")
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "7").symlink_to(target)
    pages = page_directories.PageDirectories(tmp_path / "jobs")
    made = pages.make(7, ME, MINE)
    assert not made.is_symlink()
    assert (target / "file").read_text() == "keep"
    assert target.stat().st_mode & 0o777 == 0o755


def test_links_inside_are_removed_not_followed(tmp_path: Path) -> None:
    """Removing a job's directory cannot be made to remove anything else."""
    target = tmp_path / "precious"
    target.mkdir()
    (target / "file").write_text("keep")
    pages = page_directories.PageDirectories(tmp_path / "jobs")
    made = pages.make(7, ME, MINE)
    (made / "link").symlink_to(target)
    (made / "file").symlink_to(target / "file")
    pages.remove(7)
    assert (target / "file").read_text() == "keep"


@AS_ROOT
def test_another_users_leftover_is_not_handed_on(tmp_path: Path) -> None:
    """Job ids come again after a wrap: the new owner finds nothing of the old one."""
    pages = page_directories.PageDirectories(tmp_path / "jobs")
    (pages.make(7, 1234, 1234) / "secret").write_text("x")
    made = pages.make(7, 65534, 65534)
    assert list(made.iterdir()) == []
    assert (made.stat().st_uid, made.stat().st_gid) == (65534, 65534)


def test_base_that_is_a_link_is_refused(tmp_path: Path) -> None:
    """The base itself is never followed either."""
    (tmp_path / "real").mkdir()
    (tmp_path / "jobs").symlink_to(tmp_path / "real")
    with pytest.raises(OSError, match=r".*"):
        page_directories.PageDirectories(tmp_path / "jobs").make(7, ME, MINE)
    assert list((tmp_path / "real").iterdir()) == []


def test_an_agent_that_was_taken_back_knows_the_newer_ones_jobs() -> None:
    """What a later release kept of a job beyond what this one knows is left out; the job is still known."""
    book = jobs.JobBook("b")
    book.start(job(uid=5))
    states = codec_round(book.changed_states())
    states["job:running:7"]["job"]["of_a_later_release"] = [1]
    assert jobs.JobBook("b", states).running == (7,)


def test_the_jobs_of_an_earlier_release_are_known() -> None:
    """It stored all jobs as one state, which is removed once each has its own."""
    rows = {n: {"job_id": n, "started_at": "2026-11-03T12:00:00Z", "uid": 5} for n in (7, 8)}
    earlier = {
        "boot_id": "b",
        "jobs": {"7": rows[7]},
        "ended": {"8": {**rows[8], "released_at": rows[8]["started_at"]}},
    }
    book = jobs.JobBook("b", {"jobs": earlier})
    assert (book.running, [job.job_id for job in book.uncollected()]) == ((7,), [8])
    assert jobs.JobBook("b2", {"jobs": earlier}).running == ()
    states = book.changed_states()
    assert states.pop("jobs") is None
    assert sorted(states) == ["job:ended:8", "job:running:7"]


def test_an_earlier_release_that_ran_meanwhile_knows_the_jobs_best(tmp_path: Path) -> None:
    """It knew no state of a single job, and left those of the newer release as they were."""
    kept = spool.Spool(tmp_path, max_bytes=1 << 20)
    newer = jobs.JobBook("b", jobs.stored_states(kept))
    newer.start(job(1))
    newer.start(job(2))
    newer.end(job(3), NOW)
    kept.commit(spool.SpoolWrite(states=newer.changed_states() | {"jobless": {}}))
    rows = {n: {"job_id": n, "started_at": "2026-11-03T12:00:00Z", "uid": 5} for n in (2, 4)}
    earlier = {
        "boot_id": "b",
        "jobs": {"4": rows[4]},
        "ended": {"2": {**rows[2], "released_at": "2026-11-03T12:05:00Z"}},
    }
    kept.commit(spool.SpoolWrite(states={"jobs": earlier}))
    book = jobs.JobBook("b", jobs.stored_states(kept))
    assert (book.running, book.ended) == ((4,), {2})
    kept.commit(spool.SpoolWrite(states=book.changed_states()))
    assert sorted(jobs.stored_states(kept)) == ["job:ended:2", "job:running:4"]
    again = jobs.JobBook("b", jobs.stored_states(kept))
    assert (again.running, again.ended, again.get(4)) == ((4,), {2}, book.get(4))


def test_only_the_jobs_that_changed_are_stored() -> None:
    """A Prolog waits for this: with the paths of sixty jobs it would wait for seconds."""
    book = jobs.JobBook("b")
    for number in range(1, 60):
        book.start(job(number))
    assert len(book.changed_states()) == 59
    assert book.changed_states() == {}
    book.start(job(60))
    book.add_output_files(job(5), ["/w/a"], {})
    assert sorted(book.changed_states()) == ["job:running:5", "job:running:60"]
    book.end(job(5), NOW)
    changed = book.changed_states()
    assert (sorted(changed), changed["job:running:5"]) == (["job:ended:5", "job:running:5"], None)
    book.reboot("b2")
    assert set(book.changed_states().values()) == {None}


def test_a_jobs_paths_are_bounded_and_those_left_out_are_named() -> None:
    """A process chooses the paths of its output files, up to 4 KiB each."""
    book = jobs.JobBook("b")
    start = book.start(job())
    long, medium = "/w/" + "\udcff" * 4000, [f"/w/{n:02}" + "m" * 990 for n in range(20)]
    for _ in range(2):
        book.add_output_files(
            start, [long, "/w/a", *medium], {"array_job_id": 2**40, "user": "u" * 5000, "x": "y"}
        )
    found = book.get(7)
    assert found is not None
    assert (found.logs[0], len(found.logs)) == ("/w/a", 17)
    assert (found.unread[0], len(found.unread)) == (long[:200], 5)
    assert found.extra == {"user": "u" * 1024}
    assert len(json.dumps(book.changed_states())) < 50_000
    assert (
        jobs.JobBook("b", codec_round({"job:running:7": {"boot_id": "b", "job": jobs._row(found)}})).get(7)
        == found
    )


def test_no_control_character_of_a_job_is_in_its_row(node_identity: identity.Identity) -> None:
    """A user chooses the job's name and its directory; whoever prints the row may do so on a terminal."""
    row = jobs.job_of({"job_id": 7, "job_name": "a\x1b[2Jb", "work_dir": "/w\x9b\u202e"}, NOW).allocation(
        node_identity
    )
    assert (row.detail["job_name"], row.detail["work_dir"]) == ("ab", "/w")


def codec_round(state: Any) -> Any:
    return json.loads(json.dumps(state))


def test_the_list_of_all_nodes_is_in_the_row_of_none(node_identity: identity.Identity) -> None:
    """That of a job on 2,000 scattered nodes has 10 KB: in the row of each it would be 20 MB for one start."""
    assert "nodelist" not in job(nodelist="n[1-2]").allocation(node_identity).detail


def test_a_job_is_known_by_its_sluid_after_its_end(node_identity: identity.Identity) -> None:
    """What the hooks say is kept through a restart; a hook that says none (Slurm below 25.11) is as good as ever."""
    job = jobs.job_of({"job_id": 7, "sluid": "s5K1KKYAYG5D00"}, NOW)
    book = jobs.JobBook("b")
    book.start(job)
    book.start(jobs.job_of({"job_id": 8}, NOW))
    assert book.sluids() == {"s5K1KKYAYG5D00": 7}
    book.end(job, NOW)
    assert jobs.JobBook("b", book.changed_states()).sluids() == {"s5K1KKYAYG5D00": 7}
    assert job.allocation(node_identity).detail["sluid"] == "s5K1KKYAYG5D00"


def test_output_files_are_added_to_the_start_that_wrote_them_only() -> None:
    """What was found of an earlier start says nothing of the one that runs now."""
    book = jobs.JobBook("b")
    first = book.start(job())
    book.add_output_files(first, ["/w/a"], {"array_job_id": 5})
    book.add_output_files(first, ["/w/a", "/w/b"], {})
    found = book.get(7)
    assert found is not None
    assert (found.logs, found.slurm_ids) == (("/w/a", "/w/b"), [7, 5])
    second = book.start(job(restart_count=1))
    book.add_output_files(first, ["/w/c"], {})
    book.set_preexisting_output(first, {"/w/a": [1, 2, "x"]})
    assert book.get(7) == second
    book.set_preexisting_output(second, {"/w/a": [1, 2, "x"]})
    found = book.get(7)
    assert found is not None
    assert found.before == {"/w/a": [1, 2, "x"]}
