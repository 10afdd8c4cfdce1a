"""What one act asks accounting about earlier writes: little, and nothing is forgotten over a failure."""

from __future__ import annotations

import time
from collections.abc import Mapping

import pytest

from probing_cluster.core import errors
from probing_cluster.slurm_plugins import commands
from probing_cluster.slurm_plugins.acts import note_guard
from probing_cluster.slurm_plugins.live import live_records

BOBS_NOTE = b"9999999999||bob(1001)|disk, ticket 7"


class Accounting:
    """sacctmgr: what it prints, or silence; which nodes it was asked about."""

    def __init__(self) -> None:
        self.output: bytes | None = None
        self.nodes: list[str] = []

    def __call__(self, program: str, *arguments: str, environment: Mapping[str, str] | None = None) -> bytes:
        assert program == "sacctmgr"
        self.nodes += [word.removeprefix("nodes=") for word in arguments if word.startswith("nodes=")]
        if self.output is None:
            raise commands.SlurmAway("sacctmgr did not end within 30 s")
        return self.output


class Unreadable:
    """A controller that cannot be asked about nodes."""

    def node(self, name: str) -> live_records.LiveNode | None:
        raise errors.MalformedInput(f"{name} is told more than once")

    def job(self, job_id: int) -> live_records.LiveJob | None:
        raise NotImplementedError(job_id)

    def nodes(self) -> list[live_records.LiveNode]:
        raise NotImplementedError

    def jobs(self) -> list[live_records.LiveJob]:
        raise NotImplementedError


@pytest.fixture
def accounting() -> Accounting:
    return Accounting()


@pytest.fixture
def guard(accounting: Accounting) -> note_guard.NoteGuard:
    """Six writes wait for accounting's word."""
    made = note_guard.NoteGuard(accounting, Unreadable(), sleep=lambda _s: None)
    for k in range(6):
        made.check(note_guard.NoteWrite(node=f"n{k}", since_s=int(time.time()), ours="probing: x"))
    accounting.nodes.clear()
    return made


def test_the_first_silence_ends_the_questions(guard: note_guard.NoteGuard, accounting: Accounting) -> None:
    """Each would cost a deadline, and the act and its caller wait."""
    guard.recheck()
    assert accounting.nodes == ["n0"]


def test_few_are_asked_about_before_one_act_and_the_others_at_the_next(
    guard: note_guard.NoteGuard, accounting: Accounting
) -> None:
    accounting.output = b""
    guard.recheck()
    guard.recheck()
    assert accounting.nodes == ["n0", "n1", "n2", "n3", "n4", "n5"]


def test_a_note_that_cannot_be_put_back_is_told_and_the_others_are_kept(
    guard: note_guard.NoteGuard, accounting: Accounting, caplog: pytest.LogCaptureFixture
) -> None:
    accounting.output = BOBS_NOTE
    guard.recheck()
    assert "could not be put back (n2 is told more than once): disk, ticket 7" in caplog.text
    accounting.output = b""
    guard.recheck()
    assert accounting.nodes == ["n0", "n1", "n2", "n3", "n4", "n5"]
