"""Words of alarm that running jobs have said, as the agents of their nodes read them: shown and told, never acted on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from probing_cluster.core import clock, digits, errors, records, sanitize
from probing_cluster.reports import phrase

if TYPE_CHECKING:
    from probing_cluster.db import store as db_store

MOST_WORDS = 32
"""Words told of one job; an agent looks for no more."""
_WORD_CHARS, _LINE_CHARS = 80, 200
_ROWS = """
select node, sources -> 'alarm_words' -> 'jobs' as jobs
from probing.agent_heartbeat
where cluster = :cluster and sources -> 'alarm_words' -> 'jobs' <> '{}'
  and received_at > now() - interval '10 minutes'
order by node
"""


@records.record
class AlarmedJob:
    """One word of alarm of one job that runs."""

    job_id: int = records.doc("raw job id")
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
    for job_id, word, at, line, node in _rows_of_words(store.rows(_ROWS, {"cluster": cluster})):
        key = (job_id, word)
        if key not in first or at < first[key][0]:
            first[key] = (at, line, node)
    jobs = sorted({job_id for job_id, _ in first})
    running = store.attempts(job_ids=jobs, ended=False, cluster=cluster) if jobs else []
    attempts = {a.job_id: a for a in running}  # of a requeued job the last one runs
    return [
        AlarmedJob(
            job_id=job_id,
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


def _rows_of_words(rows: Iterable[Mapping[str, Any]]) -> Iterator[tuple[int, str, datetime, str, str]]:
    """(job, word, at, line, node); what an agent says is checked like a user's."""
    for row in rows:
        jobs = row["jobs"] if isinstance(row["jobs"], Mapping) else {}
        for job_id, words in jobs.items():
            if not isinstance(words, Mapping) or not digits.is_number(str(job_id)):
                continue
            for word, found in list(words.items())[:MOST_WORDS]:
                if not isinstance(found, Mapping):
                    continue
                try:
                    at = clock.require_utc("at", datetime.fromisoformat(str(found.get("at"))))
                except (ValueError, errors.MalformedInput):
                    continue
                line = sanitize.clean(str(found.get("line", "")), _LINE_CHARS)
                yield int(job_id), sanitize.clean(str(word), _WORD_CHARS), at, line, str(row["node"])
