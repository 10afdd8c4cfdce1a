"""The store's lemon scores: one a node and night."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

import sqlalchemy as sa

from probing_cluster.core import records
from probing_cluster.db import engines, tables
from probing_cluster.db.store import base

_ANSWERED = (Path(__file__).parent / "scores_answered.sql").read_text(encoding="utf-8")


class LemonRows(base.StoreBase):
    """Reads and writes of what the nights found."""

    def save_lemon_scores(self, scores: Iterable[records.LemonScore]) -> None:
        """Store scores; a node's second score of one day replaces the first."""
        self._upsert(records.LemonScore, scores)

    def lemon_scores(
        self,
        day: datetime | None = None,
        node: str | None = None,
        nodes: Iterable[str] | None = None,
        before: datetime | None = None,
    ) -> list[records.LemonScore]:
        """Scores of one day, highest first; of each cluster's latest scored day (before `before`) when neither day nor any node is given."""
        s = tables.lemon_score.c
        query = (
            sa.select(tables.lemon_score).where(self._of(s.cluster)).order_by(s.day, s.score.desc(), s.node)
        )
        if node is not None:
            query = query.where(s.node == node)
        if nodes is not None:
            query = query.where(base.some(s.node, nodes))
        if day is not None:
            query = query.where(s.day == day)
        elif node is None and nodes is None:
            query = query.where(self._of_last_nights(before))
        return self._select(records.LemonScore, query)

    def _of_last_nights(self, before: datetime | None) -> sa.ColumnElement[bool]:
        s, night = tables.lemon_score.c, tables.lemon_score.alias("night").c
        earlier = night.day < before if before is not None else sa.true()
        if self.cluster is not None:
            # One look into the index; compared cluster by cluster, it would be a look for every score.
            latest = sa.select(sa.func.max(night.day)).where(night.cluster == self.cluster, earlier)
            return s.day == latest.scalar_subquery()
        latest_of_each = (
            sa.select(night.cluster, sa.func.max(night.day)).where(earlier).group_by(night.cluster)
        )
        return sa.tuple_(s.cluster, s.day).in_(latest_of_each)

    def scores_answered(
        self, cluster: str, notes: Iterable[tuple[str, datetime]]
    ) -> list[records.LemonScore]:
        """The score that each (node, time of a person's word) answers: of the last whole day before, and of its signals only `model`.

        Everything else about a score is twenty times as large, and people answer for years.
        """
        keys = list(notes)
        given = {"cluster": cluster, "nodes": [node for node, _ in keys], "ats": [at for _, at in keys]}
        return self.readable(records.LemonScore, self.rows(_ANSWERED, given)) if keys else []

    def lemon_counts(self, cluster: str) -> dict[str, int]:
        """Nodes by verdict on the latest scored day; empty before the first."""
        s = tables.lemon_score.c
        latest = sa.select(sa.func.max(s.day)).where(s.cluster == cluster).scalar_subquery()
        query = sa.select(s.verdict, sa.func.count()).where(s.cluster == cluster, s.day == latest)
        with engines.translated(), self.engine.connect() as connection:
            return {row[0]: row[1] for row in connection.execute(query.group_by(s.verdict))}

    def lemon_day_before(self, day: datetime, cluster: str) -> datetime | None:
        """The last scored day before `day`; None when there is none."""
        s = tables.lemon_score.c
        query = sa.select(sa.func.max(s.day)).where(s.day < day, s.cluster == cluster)
        with engines.translated(), self.engine.connect() as connection:
            found: datetime | None = connection.scalar(query)
            return found
