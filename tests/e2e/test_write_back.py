"""Verdicts in the jobs' own records in accounting, on real Slurm: each field that a site may choose, behind everybody's words."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

from probing_cluster.control_plane import context
from probing_cluster.control_plane.owners import write_back
from probing_cluster.control_plane.policy import slurm_actions
from probing_cluster.core import settings
from probing_cluster.db import store as db_store
from probing_cluster.slurm_plugins import commands

pytestmark = [pytest.mark.soak, pytest.mark.cluster, pytest.mark.timeout(900)]

FIELDS = {"Comment": "the users own; words", "AdminComment": "ticket 7", "SystemComment": "burst buffer: 3"}
"""Each with what others wrote there."""


class Accounting:
    """A cluster whose controller holds comments, and what accounting has of its jobs."""

    def __init__(self, up: Any) -> None:
        self.up = up

    def look(self, field: str) -> int:
        """One look of a service whose site chose that field; how many lines it wrote."""
        config = settings.load(self.up.sandbox.layout.probing_toml)
        config = dataclasses.replace(config, service=dataclasses.replace(config.service, write_back=field))
        run = commands.SlurmCommands(settings=config.slurm)
        with db_store.Store.open(config, upgrade=False) as store:
            slurm = slurm_actions.SlurmActions(config, run)
            return write_back.run(context.Context(config=config, store=store, run_slurm=run, slurm=slurm))

    def field(self, job: int, field: str) -> str:
        """As sacct shows it."""
        shown = self.up.sandbox.run(["sacct", "-X", "-n", "-P", "-j", str(job), f"--format={field}"])
        return str(shown.stdout).removesuffix("\n")

    def write(self, job: int, field: str, text: str) -> None:
        """As an operator does."""
        which = ["where", f"jobid={job}", "set", f"{field}={text}"]
        self.up.sandbox.run(["sacctmgr", "-i", "modify", "job", *which])

    def judged(self, job: int, attempt: int) -> None:
        """Waits for the verdict on that start."""
        sql = "SELECT 1 FROM probing.verdict WHERE job_id = %s AND attempt = %s"
        self.up.until(f"verdict on {job}", lambda: self.up.rows(sql, job, attempt), 90)


@pytest.fixture(scope="module")
def accounting(gangs: Any) -> Iterator[Accounting]:
    conf = gangs.sandbox.layout.slurm_conf
    conf.write_text(conf.read_text() + "AccountingStoreFlags=job_comment\n")
    gangs.sandbox.run(["scontrol", "reconfigure"])
    with contextlib.nullcontext(Accounting(gangs)) as made:
        yield made


@pytest.mark.parametrize("field", FIELDS)
def test_each_field_is_written_behind_everybodys_words(accounting: Accounting, field: str) -> None:
    """The user's and the operators' stay in front; a second look writes nothing; a second start is a second line."""
    up, words = accounting.up, FIELDS[field]
    started = up.sandbox.layout.jobs / f"{field}.go"
    started.unlink(missing_ok=True)
    held = {"comment": words} if field == "Comment" else {}
    job = up.sandbox.submit(
        f"while [ ! -e {started} ]; do sleep 0.2; done; echo 'KeyError: x'; exit 3", job_name=field, **held
    )
    up.running(job)
    if field == "AdminComment":
        up.sandbox.run(["scontrol", "update", f"JobId={job}", f"AdminComment={words}"])
    started.touch()
    accounting.judged(job, 1)
    if field == "SystemComment":  # scontrol has no such word: it is the controller's own, or comes later
        accounting.write(job, field, words)
    assert accounting.field(job, field) == words
    assert accounting.look(field) >= 1
    first, *more = accounting.field(job, field).removeprefix(f"{words}; ").split("; ")
    assert accounting.field(job, field).startswith(f"{words}; probing #1: ")
    assert more == []
    accounting.write(job, field, f"{words}; {first}; seen by ops")
    assert accounting.look(field) == 0
    up.sandbox.run(["scontrol", "requeue", str(job)])
    accounting.judged(job, 2)
    print(f"{field}, as the controller left it: {accounting.field(job, field)!r}")
    kept = others(accounting.field(job, field))
    assert accounting.look(field) >= 1
    now = accounting.field(job, field)
    assert others(now) == kept
    assert [part[:10] for part in now.split("; ") if part.startswith("probing #")] == [
        "probing #1",
        "probing #2",
    ]
    assert accounting.look(field) == 0


def others(text: str) -> list[str]:
    """What stands in a field besides our lines."""
    return [part for part in text.split("; ") if part and not part.startswith("probing #")]


def test_what_cannot_be_read_whole_is_left_alone(accounting: Accounting) -> None:
    """A comment of several lines: sacct shows it in rows that look like others."""
    up = accounting.up
    job = up.sandbox.submit("exit 3", job_name="lines", comment="one\ntwo; three")
    accounting.judged(job, 1)
    before = accounting.field(job, "Comment")
    accounting.look("Comment")
    assert accounting.field(job, "Comment") == before


@pytest.mark.parametrize("words", ["it's mine", "Train LLaMA"])
def test_words_that_slurm_would_change_are_left_alone(accounting: Accounting, words: str) -> None:
    """sacctmgr writes whole fields, and 22.05 not to the letter: the user's comment stays as it was, without our line."""
    job = accounting.up.sandbox.submit("exit 3", job_name="letters", comment=words)
    accounting.judged(job, 1)
    assert accounting.field(job, "Comment") == words
    accounting.look("Comment")
    assert accounting.field(job, "Comment") == words


def test_a_comment_that_the_controller_holds_does_not_cost_the_line(accounting: Accounting) -> None:
    """slurmctld writes its own comment over ours at the next end: the line is there again after the next look."""
    up = accounting.up
    job = up.sandbox.submit("exit 3", job_name="held", comment="mine")
    accounting.judged(job, 1)
    accounting.look("Comment")
    up.sandbox.run(["scontrol", "update", f"JobId={job}", "Comment=changed since"], check=False)
    up.sandbox.run(["scontrol", "requeue", str(job)])
    accounting.judged(job, 2)
    assert not accounting.field(job, "Comment").endswith("probing #2")
    accounting.look("Comment")
    theirs, *ours = accounting.field(job, "Comment").split("; ")
    assert theirs in {"mine", "changed since"}
    assert [part[:10] for part in ours] == ["probing #1", "probing #2"]
