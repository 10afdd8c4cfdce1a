"""Verdicts that tell of another's: the preempted, whose verdict says why the job that took their place had to start again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from probing_cluster.attribution import case as cases
from probing_cluster.attribution import crowd
from probing_cluster.core import records
from probing_cluster.db import store

_SQL = (Path(__file__).parent / "sql" / "displaced.sql").read_text(encoding="utf-8")


def touched(source: store.Store, changed: Iterable[records.Verdict]) -> Iterator[cases.Key]:
    """The preempted attempts to be judged again because these verdicts, on their preemptors' earlier starts, are new."""
    by_cluster: dict[str, list[records.Verdict]] = defaultdict(list)
    for verdict in changed:
        by_cluster[verdict.cluster].append(verdict)
    for cluster, verdicts in by_cluster.items():
        given = {
            "cluster": cluster,
            "job_ids": [v.job_id for v in verdicts],
            "submits": [v.submit_at for v in verdicts],
            "near_s": crowd.NEAR.total_seconds(),
        }
        for row in source.told(_SQL, given):
            yield row["cluster"], row["job_id"], row["submit_at"]
