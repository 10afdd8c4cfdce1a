"""The store's drains, notes, requests, lemon scores and remembered facts: what was decided."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql as pg

from probing_cluster.core import errors, records
from probing_cluster.db import engines, plain, rows, tables
from probing_cluster.db.store import base

_D = tables.drain.c
_AT_ONCE = 1000
REQUEST_VERBS = ("collect", "refusal_permission", "recheck", "keep_log", "ask")


_END_PLACES = """
UPDATE probing.node_place p SET until_at = :at
WHERE p.cluster = :cluster AND p.until_at IS NULL AND p.kind = ANY(CAST(:kinds AS text[]))
  AND NOT EXISTS (SELECT FROM unnest(CAST(:nodes AS text[]), CAST(:sorts AS text[]), CAST(:names AS text[])) AS g(node, kind, place) WHERE (g.node, g.kind, g.place) = (p.node, p.kind, p.place))
"""
_BEGIN_PLACES = """
INSERT INTO probing.node_place (cluster, node, kind, place, since_at)
SELECT :cluster, g.node, g.kind, g.place, :at FROM unnest(CAST(:nodes AS text[]), CAST(:sorts AS text[]), CAST(:names AS text[])) AS g(node, kind, place)
WHERE NOT EXISTS (
    SELECT FROM probing.node_place p
    WHERE (p.cluster, p.node, p.kind, p.place) = (:cluster, g.node, g.kind, g.place) AND p.until_at IS NULL
)
ON CONFLICT (cluster, node, kind, place, since_at) DO UPDATE SET until_at = NULL
"""


class RequestSubject(NamedTuple):
    """Which node is asked, about which job, in which cluster."""

    node: str
    job_id: int | None = None
    cluster: str | None = None
    """None = the store's."""
    detail: Mapping[str, Any] | None = None
    """What this one is told; None = what all are."""


class SlurmDrain(NamedTuple):
    """A node that Slurm shows drained, by whomever."""

    node: str
    states: str
    """Base state and flags, joined by +."""
    reason: str
    since_at: datetime | None
    """When that reason was set, by Slurm."""


class ActionRows(base.StoreBase):
    """Reads and writes of decisions and their audit."""

    def save_drain(self, drain: records.Drain) -> None:
        """Record a decision; an equal drain_id replaces it."""
        self._upsert(records.Drain, [drain])

    def update_drain(self, drain_id: uuid.UUID, **changes: Any) -> None:
        """Set fields of a recorded decision: state, why_state, ended_at …; raises NotFound."""
        new = {name: plain.plain(value) for name, value in changes.items()}
        if not self._execute(sa.update(tables.drain).where(_D.drain_id == drain_id).values(**new)):
            raise errors.NotFound(f"there is no drain {drain_id}")

    def drains(
        self,
        node: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        actions: Iterable[str] | None = None,
        states: Iterable[str] | None = None,
        job_id: int | None = None,
        open_only: bool = False,
        *,
        ended_since: datetime | None = None,
        cluster: str | None = None,
    ) -> list[records.Drain]:
        """Decisions, oldest first; `open_only` = node drains of ours not yet lifted; `ended_since` = lifted since. Without a cluster, of the store's."""
        query = sa.select(tables.drain).where(self._of(_D.cluster, cluster)).order_by(_D.at)
        if actions is not None:
            query = query.where(base.some(_D.action, actions))
        if states is not None:
            query = query.where(base.some(_D.state, states))
        for column, value in ((_D.node, node), (_D.job_id, job_id)):
            if value is not None:
                query = query.where(column == value)
        if open_only:
            query = query.where(_D.action == "drain", _D.state == "done", _D.ended_at.is_(None))
        if ended_since is not None:
            query = query.where(_D.ended_at >= ended_since)
        query = query.where(_D.at >= since) if since is not None else query
        return self._select(records.Drain, query.where(_D.at < until) if until is not None else query)

    def add_drain(self, drain: records.Drain) -> None:
        """Record a decision that is new; what an operator's role may do, who may replace none."""
        self._execute(sa.insert(tables.drain).values(rows.to_row(drain)))

    def add_note(self, note: records.OperatorNote) -> None:
        """Record what a person said; a note of that id that is there already stays as it is."""
        self.add_notes([note])

    def add_notes(self, notes: Iterable[records.OperatorNote]) -> None:
        """Record several as `add_note` does one."""
        given = [rows.to_row(note) for note in notes]
        if given:
            self._execute(pg.insert(tables.operator_note).on_conflict_do_nothing(), given)

    def speaker(self, person: str) -> str:
        """The name that `person` writes under: an operator's own login role, whatever their account is called; else theirs."""
        role = sa.text(
            "SELECT session_user::text FROM pg_roles r, pg_roles s"
            " WHERE r.rolname = 'probing_operator' AND s.rolname = 'probing_service'"
            " AND pg_has_role(session_user, r.oid, 'MEMBER') AND NOT pg_has_role(session_user, s.oid, 'MEMBER')"
        )
        with engines.translated(), self.engine.connect() as connection:
            return connection.scalar(role) or person

    def notes(
        self, subject: str | None = None, since: datetime | None = None, action: str | None = None
    ) -> list[records.OperatorNote]:
        """What people wrote of the store's cluster, oldest first."""
        n = tables.operator_note.c
        query = sa.select(tables.operator_note).where(self._of(n.cluster)).order_by(n.at)
        query = query.where(n.subject == subject) if subject is not None else query
        query = query.where(n.action == action) if action is not None else query
        return self._select(records.OperatorNote, query.where(n.at >= since) if since is not None else query)

    def save_exclusions(self, exclusions: Iterable[records.JobExclusion]) -> int:
        """Store what users excluded; a job's exclusion known already keeps its first time. How many were new."""
        given = [rows.to_row(e) for e in exclusions]
        table, new = tables.job_exclusion, 0
        with engines.translated(), self.engine.begin() as connection:
            for low in range(0, len(given), _AT_ONCE):
                insert = pg.insert(table).values(given[low : low + _AT_ONCE]).on_conflict_do_nothing()
                new += len(connection.execute(insert.returning(table.c.job_id)).fetchall())
        return new

    def slurm_drains(self, cluster: str) -> list[SlurmDrain]:
        """The nodes of a cluster that Slurm showed drained at the last look."""
        d = tables.slurm_drain.c
        query = sa.select(d.node, d.states, d.reason, d.since_at).where(d.cluster == cluster)
        with engines.translated(), self.engine.connect() as connection:
            return [SlurmDrain(*row) for row in connection.execute(query)]

    def save_slurm_drains(self, cluster: str, changed: Sequence[SlurmDrain], over: Sequence[str]) -> None:
        """Keep what a look at Slurm showed: drains that are new or other than before, and nodes back in service."""
        table = tables.slurm_drain
        with engines.translated(), self.engine.begin() as connection:
            if over:
                gone = sa.delete(table).where(table.c.cluster == cluster)
                connection.execute(gone.where(base.some(table.c.node, over)))
            if changed:
                insert = pg.insert(table).values([{"cluster": cluster, **d._asdict()} for d in changed])
                new = {name: insert.excluded[name] for name in ("states", "reason", "since_at")}
                connection.execute(insert.on_conflict_do_update(index_elements=["cluster", "node"], set_=new))

    def save_dependencies(self, dependencies: Iterable[records.JobDependency]) -> int:
        """Store which job waits for which; one that is known keeps its first time. How many were new."""
        given = [rows.to_row(d) for d in dependencies]
        table, new = tables.job_dependency, 0
        with engines.translated(), self.engine.begin() as connection:
            for low in range(0, len(given), _AT_ONCE):
                insert = pg.insert(table).values(given[low : low + _AT_ONCE]).on_conflict_do_nothing()
                new += len(connection.execute(insert.returning(table.c.job_id)).fetchall())
        return new

    def dependencies(self, on_job_ids: Iterable[int], cluster: str) -> list[records.JobDependency]:
        """The jobs that waited for these jobs."""
        t = tables.job_dependency
        query = sa.select(t).where(base.some(t.c.on_job_id, on_job_ids), t.c.cluster == cluster)
        return self._select(records.JobDependency, query)

    def forget_dependencies(self, before: datetime) -> int:
        """Delete dependencies first seen before that moment; how many."""
        return self._execute(sa.delete(tables.job_dependency).where(tables.job_dependency.c.at < before))

    def forget_exclusions(self, before: datetime) -> int:
        """Delete exclusions first seen before that moment; how many."""
        return self._execute(sa.delete(tables.job_exclusion).where(tables.job_exclusion.c.at < before))

    def save_places(
        self, cluster: str, kinds: Iterable[str], places: Iterable[tuple[str, str, str]], at: datetime
    ) -> int:
        """Make (node, kind, place) the places of those kinds from `at` on; how many began or ended. What is unchanged keeps its first time."""
        given = sorted(set(places))
        values = {
            "cluster": cluster,
            "kinds": sorted({*kinds}),
            "nodes": [n for n, _, _ in given],
            "sorts": [k for _, k, _ in given],
            "names": [p for _, _, p in given],
            "at": at,
        }
        with engines.translated(), self.engine.begin() as connection:
            ended = connection.execute(sa.text(_END_PLACES), values).rowcount
            return ended + connection.execute(sa.text(_BEGIN_PLACES), values).rowcount

    def places(self, cluster: str) -> list[records.NodePlace]:
        """The places of a cluster's nodes, now and before."""
        p = tables.node_place.c
        return self._select(records.NodePlace, sa.select(tables.node_place).where(p.cluster == cluster))

    def request(
        self,
        node: str,
        verb: str,
        job_id: int | None = None,
        ttl_s: float = 60.0,
        detail: Mapping[str, Any] | None = None,
        cluster: str | None = None,
    ) -> uuid.UUID:
        """Ask something of a node; it learns of it with its next delivery. `cluster` None = the store's; raises UsageError where that has none."""
        return self.request_all([RequestSubject(node, job_id, cluster, detail)], verb, ttl_s)[0]

    def request_all(
        self,
        places: Iterable[RequestSubject],
        verb: str,
        ttl_s: float = 60.0,
        detail: Mapping[str, Any] | None = None,
    ) -> list[uuid.UUID]:
        """Ask several nodes as `request` does one, in one statement; the requests in their order.

        Another cluster may have a node of the same name: raises UsageError where neither a subject nor the store names one.
        """
        if verb not in REQUEST_VERBS:
            raise errors.UsageError(f"a node knows no request {verb!r}; valid: {', '.join(REQUEST_VERBS)}")
        addressed = [p if p.cluster else p._replace(cluster=self.cluster) for p in places]
        if nameless := [p.node for p in addressed if p.cluster is None]:
            raise errors.UsageError(
                f"a request to {nameless[0]} must name its cluster, for others may have a node of that name"
            )
        requests = [
            (
                uuid.uuid4(),
                p.node,
                p.job_id,
                p.cluster,
                plain.plain((detail if p.detail is None else p.detail) or {}),
            )
            for p in addressed
        ]
        columns = (
            sa.column("request_id", sa.Uuid()),
            sa.column("node", sa.Text()),
            sa.column("job_id", sa.BigInteger()),
            sa.column("cluster", sa.Text()),
            sa.column("detail", pg.JSONB()),
        )
        given = sa.values(*columns, name="addressed").data(requests).alias("addressed")
        values: dict[str, Any] = {
            "request_id": sa.cast(given.c.request_id, sa.Uuid()),
            "cluster": sa.cast(given.c.cluster, sa.Text()),
            "node": given.c.node,
            "verb": sa.literal(verb),
            "job_id": sa.cast(given.c.job_id, sa.BigInteger()),
            "detail": sa.cast(given.c.detail, pg.JSONB()),
            "expires_at": sa.func.now() + timedelta(seconds=ttl_s),
        }
        if requests:
            chosen = sa.select(*(value.label(name) for name, value in values.items())).select_from(given)
            self._execute(sa.insert(tables.node_request).from_select(list(values), chosen))
        return [request_id for request_id, *_ in requests]

    def cancel_request(self, request_id: uuid.UUID) -> None:
        """Withdraw a request that the node has not acknowledged."""
        q = tables.node_request.c
        now = sa.func.now()
        self._execute(
            sa.update(tables.node_request)
            .where(q.request_id == request_id, q.expires_at > now)
            .values(expires_at=now)
        )

    def beats_after(self, ids: Iterable[uuid.UUID]) -> dict[uuid.UUID, records.AgentHeartbeat]:
        """The node's heartbeat for each acknowledged request, when it came no earlier than that (by the server's clock)."""
        q, h = tables.node_request.c, tables.agent_heartbeat.c
        columns = [c for c in h if c.name != "ranks"]
        query = (
            sa.select(q.request_id, *columns, sa.cast(sa.literal_column("'{}'"), pg.JSONB).label("ranks"))
            .join(tables.agent_heartbeat, (h.cluster == q.cluster) & (h.node == q.node))
            .where(base.some(q.request_id, ids), h.received_at >= q.acknowledged_at)
        )
        return {
            row["request_id"]: beat
            for row in self._mappings(query)
            for beat in self.readable(records.AgentHeartbeat, [row])
        }

    def request_states(self, ids: Iterable[uuid.UUID]) -> dict[uuid.UUID, str]:
        """Each request's state: acknowledged, delivered, open or expired."""
        q = tables.node_request.c
        word = sa.case(
            (q.acknowledged_at.is_not(None), "acknowledged"),
            (q.expires_at <= sa.func.now(), "expired"),
            (q.delivered_at.is_not(None), "delivered"),
            else_="open",
        ).label("state")
        with engines.translated(), self.engine.connect() as connection:
            found = connection.execute(sa.select(q.request_id, word).where(base.some(q.request_id, ids)))
            return {row.request_id: row.state for row in found}

    def answers(
        self, question: uuid.UUID, by: str, after: datetime | None, most_bytes: int
    ) -> list[tuple[str, bytes, datetime]]:
        """(node, packed rows, when it came) of what nodes answered to a question of that asker after an instant, oldest first.

        Further answers are left for the next call once those found hold `most_bytes`; there is always one.
        """
        a, q = tables.node_answer.c, tables.node_request.c
        query = (
            sa.select(a.node, a.body, a.made_at)
            .join(tables.node_request, q.request_id == a.request_id)
            .where(
                q.made_at > sa.func.now() - timedelta(minutes=10),
                q.verb == "ask",
                q.detail["question"].astext == str(question),
                q.detail["by"].astext == by,
            )
            .order_by(a.made_at, a.node)
        )
        query = query.where(a.made_at > after) if after is not None else query
        found: list[tuple[str, bytes, datetime]] = []
        held = 0
        with (
            engines.translated(),
            self.engine.connect() as connection,
            connection.execution_options(yield_per=16).execute(query) as answered,
        ):
            for row in answered:
                found.append((row.node, bytes(row.body), row.made_at))
                held += len(row.body)
                if held >= most_bytes:
                    break
        return found

    def login(self) -> str:
        """The role that this connection logged in as."""
        with engines.translated(), self.engine.connect() as connection:
            return str(connection.execute(sa.select(sa.literal_column("session_user"))).scalar_one())

    def remember(self, key: str, value: Any) -> None:
        """Keep a small JSON value under a name: cursors of polls and the like."""
        insert = pg.insert(tables.state).values(key=key, value=plain.plain(value))
        new = {"value": insert.excluded.value, "updated_at": datetime.now(UTC)}
        self._execute(insert.on_conflict_do_update(index_elements=["key"], set_=new))

    def exported_until(self) -> datetime | None:
        """The last instant that imported accounting shows; None where a service reads accounting, or none was imported."""
        (row,) = self.rows("SELECT probing.exported_until() AS at", {})
        found: datetime | None = row["at"]
        return found

    def recorded_until(self, now: datetime) -> datetime:
        """Where a span of records ends at the latest: what runs at this instant is not known to run after it."""
        exported_until = self.exported_until()
        return now if exported_until is None else min(now, exported_until + timedelta(seconds=1))

    def recall(self, key: str, default: Any = None) -> Any:
        """What was kept under a name."""
        with engines.translated(), self.engine.connect() as connection:
            found = connection.execute(
                sa.select(tables.state.c.value).where(tables.state.c.key == key)
            ).first()
            return default if found is None else found[0]
