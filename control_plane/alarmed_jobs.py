"""Words of alarm in the output of running jobs, as the agents of their nodes read them: shown and mailed, never acted on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from probing_cluster.control_plane import agent_reports
from probing_cluster.core import records, sanitize
from probing_cluster.reports import phrase

if TYPE_CHECKING:
    from probing_cluster.db import store as db_store

MOST_WORDS = 32
"""Words kept of one job; an agent looks for no more."""
_WORD_CHARS, _LINE_CHARS = 80, 200


@records.record
class AlarmedJob:
    """One word of alarm of one job that runs."""

    job_id: int = records.doc("raw job id")
    ref: str = records.doc("the job as its owner names it")
    attempt: int = records.doc("which start of it", default=1)
    user: str = records.doc("its owner; empty when not known", default="")
    partition: str = records.doc("its partition; empty when not known", default="")
    node: str = records.doc("the node whose agent read it")
    word: str = records.doc("the site's word")
    at: datetime = records.doc("when the agent read it first, UTC")
    line: str = records.doc("the line that says it; the job's own words")

    @property
    def words(self) -> str:
        """What it said and when, for people."""
        return f"said {self.word!r} at {phrase.stamp_z(self.at)}: {self.line}"


def read(store: db_store.Store, cluster: str) -> list[AlarmedJob]:
    """Every word of every job that runs, each once, however many of its nodes report it."""
    first: dict[tuple[int, str], tuple[datetime, str, str]] = {}
    for job_id, word, at, line, node in _words(store, cluster):
        key = (job_id, word)
        if key not in first or at < first[key][0]:
            first[key] = (at, line, node)
    attempts = agent_reports.running(store, cluster, (job_id for job_id, _ in first))
    return [
        AlarmedJob(
            job_id=job_id,
            ref=attempts[job_id].ref,
            attempt=attempts[job_id].attempt,
            user=attempts[job_id].user,
            partition=attempts[job_id].partition,
            node=node,
            word=word,
            at=at,
            line=line,
        )
        for (job_id, word), (at, line, node) in sorted(first.items())
        if job_id in attempts and node in attempts[job_id].nodes
    ]


def _words(store: db_store.Store, cluster: str) -> Iterator[tuple[int, str, datetime, str, str]]:
    """(job, word, at, line, node); what an agent says is checked like a user's."""
    for job_id, node, words in agent_reports.of_jobs(store, cluster, "alarm_words"):
        for word, found in list(words.items())[:MOST_WORDS]:
            at = agent_reports.instant(found.get("at")) if isinstance(found, Mapping) else None
            if at is not None:
                line = sanitize.clean(str(found.get("line", "")), _LINE_CHARS)
                yield job_id, sanitize.clean(str(word), _WORD_CHARS), at, line, node
