"""Words of alarm in the output of running jobs, as the agents of their nodes read them: shown and mailed, never acted on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

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
    first: dict[tuple[int, str], AlarmedJob] = {}
    for attempt, node, words in agent_reports.of_jobs(store, cluster, "alarm_words"):
        for one in _of_job(attempt, node, words):
            known = first.get((one.job_id, one.word))
            if known is None or one.at < known.at:
                first[one.job_id, one.word] = one
    return [one for _, one in sorted(first.items())]


def _of_job(attempt: records.JobAttempt, node: str, words: Mapping[Any, Any]) -> Iterator[AlarmedJob]:
    """Each word that a node reports of a job; what an agent says is checked like a user's."""
    for word, found in list(words.items())[:MOST_WORDS]:
        at = agent_reports.instant(found.get("at")) if isinstance(found, Mapping) else None
        if at is not None:
            yield AlarmedJob(
                job_id=attempt.job_id,
                ref=attempt.ref,
                attempt=attempt.attempt,
                user=attempt.user,
                partition=attempt.partition,
                node=node,
                word=sanitize.clean(str(word), _WORD_CHARS),
                at=at,
                line=sanitize.without_secrets(sanitize.clean(str(found.get("line", "")), _LINE_CHARS)),
            )
