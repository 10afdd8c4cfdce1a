"""Which files of a job are read on a node, and what a report shows of those that are not."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from probing_cluster.probe_agent.jobs import jobs, output_files

NOW = datetime(2026, 1, 31, 14, 0, tzinfo=UTC)


def job(**fields: Any) -> jobs.NodeJob:
    return jobs.NodeJob(**{"job_id": 7, "started_at": NOW, "uid": 5, "work_dir": "/w", **fields})


def test_files_to_read_and_files_that_are_not_are_two_lists() -> None:
    """The batch script's streams first, then the steps' files; a path is listed once."""
    found = output_files.of_job(
        job(stdout="out", stderr="/dev/null", logs=("/w/out", "/w/rank-0")), "n1", anywhere=False
    )
    assert found.to_read == [("stdout", ("/w/out",)), ("output", ("/w/rank-0",))]
    assert found.unread == [{"stream": "stderr", "path": "/dev/null", "why": "the job sends it to /dev/null"}]


def test_a_path_that_cannot_be_known_is_no_file_to_read() -> None:
    """Unless the job's own processes have shown their files."""
    (row,) = output_files.of_job(job(stdout="/x/%A"), "n1").unread
    assert row["unnamed"] is True
    assert "the value of %A" in row["why"]
    found = output_files.of_job(job(stdout="/x/%A", logs=("/x/41",)), "n1")
    assert (found.to_read, found.unread) == ([("output", ("/x/41",))], [])


def test_the_row_of_a_file_has_the_line_of_its_error_and_the_place() -> None:
    """Without control characters, as every line."""
    answer = {"tail": ["bye"], "error": "\x1b[31mKeyError: 'lr'", "error_place": "line 12"}
    row = output_files.row("stdout", "/w/out", job(), answer)
    assert (row["error_place"], "KeyError: 'lr'" in row["error"], "\x1b" in row["error"]) == ("line 12", True, False)  # fmt: skip
    assert "error" not in output_files.row("stdout", "/w/out", job(), {"tail": ["bye"]})


def test_a_file_whose_path_is_too_long_is_named() -> None:
    """A report without it would show a job that wrote nothing."""
    found = output_files.of_job(job(stdout="/dev/null", unread=("/w/\x1b[2J" + "x" * 150,)), "n1")
    row = found.unread[-1]
    assert (found.to_read, row["stream"], row["path"]) == ([], "output", "/w/" + "x" * 150 + "…")
    assert "its path is too long: more than 1,024 bytes" in row["why"]


@pytest.mark.parametrize(
    ("nodelist", "node", "anywhere", "is_read"),
    [
        ("n[1-4]", "n1", False, True),
        ("n[1-4]", "n2", False, False),
        ("n[1-4]", "n2", True, True),
        ("", "n2", False, True),
        ("n[1-", "n2", False, True),
    ],
)
def test_only_the_node_of_the_batch_script_reads_its_files(
    nodelist: str, node: str, anywhere: bool, is_read: bool
) -> None:
    """A log on a shared file system is evidence once, not once per node; a list that cannot be parsed loses nothing."""
    found = output_files.of_job(job(stdout="out", nodelist=nodelist), node, anywhere=anywhere)
    assert bool(found.to_read) is is_read
    steps = output_files.of_job(job(stdout="out", nodelist=nodelist, logs=("/w/r",)), node).to_read
    assert ("output", ("/w/r",)) in steps


@pytest.mark.parametrize(
    ("refused", "why"),
    [
        ("ENOTDIR", "a part of its path is not a directory"),
        ("ELOOP", "it is a symbolic link"),
        ("ESTALE", "its file server no longer has it"),
        ("has more than one link", "has more than one link"),
    ],
)
def test_why_a_file_was_not_read_is_a_sentence(refused: str, why: str) -> None:
    """No errno reaches a user."""
    row = output_files.row("stderr", "/w/err", job(), {"refused": refused})
    assert row == {"stream": "stderr", "path": "/w/err", "why": why}
