"""What is bad now, why, and what to do next: gathered once for everybody, then divided by who may see what."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from probing_cluster.control_plane import context
from probing_cluster.control_plane.door import web_keys
from probing_cluster.control_plane.policy import budget, last_poll, recheck, view
from probing_cluster.control_plane.repair import engine, way_back
from probing_cluster.control_plane.terminal import node_table
from probing_cluster.core import clock, errors, records, vocabulary
from probing_cluster.core.catalogue import fault_names
from probing_cluster.reports import advice, rows
from probing_cluster.reports.lemon import lemon_view
from probing_cluster.slurm_plugins.acts import node_events
from probing_cluster.web import documents
from probing_cluster.web import site as web_site

SHOWN = 30
"""Entries shown of each kind; the lists have the rest."""
SLURM_S = 15.0
_DECISIONS_OF = timedelta(days=7)
"""How far back a drain that was denied is looked for."""
_FIRST = {"hardware": 0, "system_software": 1, "unknown": 2, None: 2, "user_program": 3}


class NowJob(documents.Judged, kw_only=True):
    """A job that died, stands still or is slow; `n_alike` further ones of its owner died of the same, such as tasks of an array."""

    kind: str
    at: datetime
    n_alike: int = 0
    n_left_out: int = 0
    """Deaths of the same owner and account that are not in the list."""
    n_own_left_out: int = 0
    """Those of them that were their own programs' doing."""
    returned_at: datetime | None = None
    """When the node at fault came back into service from the repair that followed, with every test passed."""


class NowNode(msgspec.Struct, kw_only=True):
    """A node with something to say."""

    cluster: str
    node: str
    state: str
    since: datetime | None
    causes: list[str]
    jobs: list[dict[str, Any]]
    next_step: str
    drain_reason: str = ""
    not_drained: str = ""
    """Why a node with a grave fault is still in service, and what drains it, or that it may refuse jobs; empty when it is out, or need not be."""
    lemon: str | None = None


class Budget(msgspec.Struct, kw_only=True):
    """How many nodes the policy may still take."""

    taken: int
    limit: int | None
    window_s: float
    observe_only: bool


class Now(msgspec.Struct, kw_only=True):
    """What is bad now; `at` is when it was read."""

    at: datetime
    fresh: bool
    why_stale: str
    accounting_at: datetime | None
    everything: bool
    jobs: list[NowJob]
    nodes: list[NowNode]
    incidents: list[documents.Incident]
    budget: Budget | None
    n_more_jobs: int = 0
    n_own: int = 0
    """Deaths that were their own programs' doing, shown or not."""

    def content(self) -> bytes:
        """What it says, apart from when it was read: equal bytes, nothing new."""
        return msgspec.json.encode(
            (
                self.fresh,
                self.why_stale,
                self.jobs,
                self.nodes,
                self.incidents,
                self.budget,
                self.n_more_jobs,
                self.n_own,
            )
        )


class SlurmNodes:
    """Slurm's nodes, asked for every few seconds at most, whoever wants them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._at_s = float("-inf")
        self._found: dict[str, view.Node] = {}

    def now(self, service: context.Context) -> dict[str, view.Node]:
        """By name; empty while Slurm does not answer."""
        with self._lock:
            now_s = clock.SYSTEM.monotonic_s()
            if now_s - self._at_s >= SLURM_S:
                try:
                    self._found = {n.name: n for n in service.slurm.nodes()}
                except errors.SlurmUnavailable:
                    self._found = {}
                self._at_s = now_s
            return self._found


SLURM = SlurmNodes()


def gather(site: web_site.Site) -> Now:
    """Everything of the service's cluster, for whoever may see everything; raises DatabaseUnavailable."""
    fresh = health(site)
    of_cluster = {"cluster": site.service.cluster}
    nodes = site.all_rows("now_nodes", of_cluster)
    job_ids = sorted({job for row in nodes for job in row["jobs"] or ()})
    store, cluster = site.service.store, site.service.config.cluster.name
    parameters = {"job_ids": job_ids, "cluster": cluster}
    owners = {r["job_id"]: r for r in site.all_rows("now_jobs_on", parameters)} if job_ids else {}
    repairs = {one.node: one for one in store.incidents(cluster=cluster, open_only=True)}
    denied, refusing = _undrained(site.service, [row["node"] for row in nodes])
    slurm = SLURM.now(site.service)
    jobs = [job_of(row) for row in site.all_rows("now_jobs", of_cluster)]
    return Now(
        at=fresh.at,
        fresh=fresh.ok,
        why_stale=fresh.why,
        accounting_at=fresh.accounting_at,
        everything=True,
        jobs=sorted(jobs, key=_urgency),
        nodes=sorted(
            (
                node_of(
                    row,
                    owners,
                    repairs.get(row["node"]),
                    denied.get(row["node"]),
                    slurm.get(row["node"]),
                    refusing.get(row["node"]),
                )
                for row in nodes
            ),
            key=_node_urgency,
        ),
        incidents=[
            msgspec.convert(row, documents.Incident) for row in site.all_rows("now_incidents", of_cluster)
        ],
        budget=_budget(site.service),
    )


def job_of(row: Mapping[str, Any]) -> NowJob:
    """A row of `now_jobs`; of a node that a repair brought back since, or that a person noted as repaired, nothing is left to do."""
    job = msgspec.convert(row, NowJob)
    if job.returned_at is None or not job.next_step:
        return job
    step = advice.once_returned(
        job.next_step,
        domain=job.domain or "",
        cause=job.cause or "",
        back=rows.ReturnedNode(node=job.node or "", at=job.returned_at, by_hand=row.get("by_hand") is True),
    )
    return msgspec.structs.replace(job, next_step=step)


def health(site: web_site.Site) -> documents.Health:
    """Whether what is stored is of now: accounting read lately, and some agent heard; raises DatabaseUnavailable."""
    (row,) = site.all_rows("freshness", {"cluster": site.service.cluster})
    read_at = datetime.fromisoformat(row["accounting_at"]) if row["accounting_at"] else None
    at, heard_s = row["at"], row["heard_s"]
    whys = [why for why in [last_poll.stale(read_at, at, site.service.config)] if why]
    if heard_s is None or heard_s > vocabulary.STALE_S:
        ago = "no agent was ever heard" if heard_s is None else f"no agent was heard for {heard_s:.0f} s"
        whys.append(f"{ago}: what nodes do now is not known")
    return documents.Health(
        ok=not whys, cluster=site.service.config.cluster.name, at=at, accounting_at=read_at, heard_s=heard_s,
        why="; ".join(whys),
    )  # fmt: skip


def of(viewer: web_keys.Viewer, whole: Now) -> Now:
    """The part of it that a viewer may see."""
    jobs = whole.jobs
    if not viewer.operator:
        jobs = [j for j in jobs if j.user == viewer.user or j.account in viewer.accounts]
    shown = jobs[:SHOWN]
    n_jobs = sum(1 + j.n_alike + j.n_left_out for j in jobs)
    n_own = sum(
        (1 + j.n_alike) * (j.kind == "died" and j.domain == "user_program") + j.n_own_left_out for j in jobs
    )
    n_more = n_jobs - sum(1 + j.n_alike for j in shown)
    made = msgspec.structs.replace(whole, jobs=shown, n_more_jobs=n_more, n_own=n_own)
    if viewer.operator:
        return made
    return msgspec.structs.replace(made, everything=False, nodes=[], incidents=[], budget=None)


def _urgency(job: NowJob) -> tuple[int, bool, int, float]:
    """What still runs and stands still first, then what asks for something, what hardware and the system did before the rest, the latest first."""
    running = {"stalled": 0, "slow": 1}.get(job.kind, 2)
    nothing = advice.asks_nothing(job.next_step or "") or job.returned_at is not None
    return (running, nothing, _FIRST.get(job.domain, 2) if job.kind == "died" else 0, -job.at.timestamp())


_STATES = ("faulty", "silent", "drained", "failing checks", "ok")


def _node_urgency(node: NowNode) -> tuple[int, float, str]:
    since = node.since.timestamp() if node.since else 0.0
    return (_STATES.index(node.state) if node.state in _STATES else 9, -since, node.node)


def _undrained(
    service: context.Context, nodes: Sequence[str]
) -> tuple[dict[str, records.Drain], dict[str, records.Drain]]:
    """Node to the drain of it that was denied, and to the permission to refuse jobs, while what that is for still stands."""
    store, cluster, now = service.store, service.cluster, clock.SYSTEM.now()
    valid_from = now - timedelta(seconds=service.config.policy.refusal_ttl_s)
    drains = store.drains(since=now - _DECISIONS_OF, actions=["drain"], cluster=cluster) if nodes else []
    given = store.drains(since=valid_from, actions=["refuse"], cluster=cluster) if nodes else []
    if not given and not any(d.state == "denied" for d in drains):
        return {}, {}
    beats = {b.node: b for b in store.heartbeats(nodes, cluster=cluster)}
    return view.denials(drains, beats), view.permissions(given, beats, valid_from)


def node_of(
    row: Mapping[str, Any],
    owners: Mapping[int, Mapping[str, Any]],
    repair: records.RepairIncident | None,
    denied: records.Drain | None,
    slurm: view.Node | None,
    refusing: records.Drain | None = None,
) -> NowNode:
    """A row of `now_nodes` with what else is known of the node; `denied`: why it was not drained, `slurm`: as Slurm has it now, `refusing`: by what its Prolog may refuse jobs."""
    faults = row["faults"] or {}
    named = fault_names.named(faults)
    causes = [f"{f.name} ({f.severity})" for f in named]
    causes += [f"check {name} fails" for name in row["failing"] or ()] if not named else []
    if row["state"] == "silent":
        causes.append("its agent is not heard: node, network or agent is down")
        causes += (
            [f"Slurm has it {slurm.gone}{f' ({slurm.reason})' if slurm.reason else ''}"]
            if slurm and slurm.gone
            else []
        )
    if row["lemon_verdict"] in ("lemon", "suspect"):
        causes.append(f"{row['lemon_verdict']} ({lemon_view.chance(row['lemon_score'])})")
    starts = [f.since for f in named if f.since]
    since = min(starts, default=row["drained_at"] or row["silent_since"])
    return NowNode(
        cluster=row["cluster"],
        node=row["node"],
        state=row["state"],
        since=since,
        causes=causes,
        jobs=[_running(job, owners.get(job)) for job in row["jobs"] or () if _runs_on(row, owners.get(job))],
        next_step=engine.advice(repair, _mending(row["node"], faults))
        if repair
        else _next_step(row, faults, slurm),
        drain_reason=row["drain_reason"] or "",
        lemon=row["lemon_verdict"],
        not_drained=_not_drained(row, denied, slurm, refusing),
    )


def _not_drained(
    row: Mapping[str, Any],
    denied: records.Drain | None,
    slurm: view.Node | None,
    refusing: records.Drain | None,
) -> str:
    out = row["drained"] or (slurm is not None and (slurm.gone or slurm.states & vocabulary.DRAINED_STATES))
    if out or not (denied or refusing):
        return ""
    why = f", not drained: {denied.why_state or 'denied'}" if denied else ""
    refuses = f"; {words}" if (words := node_table.refusing(slurm, refusing)) else ""
    return f"still in service{why}{refuses}; by hand: probing-ctl drain {row['node']} --reason WHY"


def _runs_on(row: Mapping[str, Any], job: Mapping[str, Any] | None) -> bool:
    """Whether a job that its agent told of runs on the node: by accounting, or, of one not read yet, by an agent that is heard."""
    return row["state"] != "silent" if job is None else row["node"] in job["on_nodes"]


def _running(job_id: int, owner: Mapping[str, Any] | None) -> dict[str, Any]:
    known = owner or {"ref": str(job_id), "user": "", "name": ""}
    return {"job_id": job_id, **{key: known[key] for key in ("ref", "user", "name")}}


_MOST_STEPS = 2


def _mending(name: str, faults: Mapping[str, Any]) -> str:
    """What each broken part that its agent confirms asks for, the gravest first; empty for none that we know."""
    grave = [part for part in fault_names.named(faults) if part.severity in ("high", "low")]
    steps = [step for step in dict.fromkeys(_step(name, part, faults) for part in grave) if step]
    more = len(steps) - _MOST_STEPS
    return " ".join(steps[:_MOST_STEPS]) + (f" And {more} more, on the node's page." if more > 0 else "")


def _step(name: str, part: fault_names.NamedFault, faults: Mapping[str, Any]) -> str:
    """What to do about one part, by the sign that names it best, else by the first that we know; empty for none."""
    # The sign that names the fault first: a check beside it knows less of what mends it.
    for key in (part.best, *part.keys):
        fault = faults[key]
        if fault.get("severity") not in ("high", "low"):
            continue
        try:
            return recheck.next_step(name, key, fault)
        except (errors.ProbingError, KeyError, ValueError, TypeError):
            continue  # a node's own words may be none that we know
    return ""


def _next_step(row: Mapping[str, Any], faults: Mapping[str, Any], slurm: view.Node | None) -> str:
    name = row["node"]
    if row["state"] == "silent" and slurm is not None and "DOWN" in slurm.states:
        out = way_back.not_ours(slurm) or f"Slurm has it DOWN: {node_events.back_from_down(name)}"
        return f"{out[0].upper()}{out[1:]}."
    if mending := _mending(name, faults):
        return mending
    if row["state"] == "silent":
        return "Look whether the node is up; start its agent there (systemctl start probing-agent)."
    if out := way_back.not_ours(slurm or _as_recorded(row)):
        return f"{out[0].upper()}{out[1:]}."
    if row["drained"]:
        return f"Nothing fails there now: repair is to be confirmed with probing-ctl set-healthy {name}."
    if row["failing"]:
        return "Look at its failing checks on the node's page."
    return "Keep large jobs away; look at its failures on the node's page."


def _as_recorded(row: Mapping[str, Any]) -> view.Node:
    """The node as the service last saw it in Slurm, for when Slurm does not answer."""
    drained = row["drained"] and row["drain_reason"]
    states = frozenset({"DRAIN"}) if drained else frozenset()
    return view.Node(name=row["node"], states=states, reason=row["drain_reason"] or "")


def _budget(service: context.Context) -> Budget | None:
    """What the policy has taken of what it may, as its own ledger counts."""
    policy = service.config.policy
    nodes = SLURM.now(service)
    at = service.clock.now()
    since = at - timedelta(seconds=policy.budget_window_s)
    drains: Sequence[Any] = service.store.drains(since=since, cluster=service.cluster)
    taken = budget.taken_nodes(
        view.View(
            now=at,
            nodes=nodes,
            drains=tuple(drains),
            under_test=service.store.nodes_under_test(service.cluster),
        ),
        policy,
    )
    share = max(int(policy.budget_frac * len(nodes) + 1e-9), 1) if nodes and policy.budget_frac > 0 else 0
    return Budget(
        taken=len(taken),
        limit=min(share, policy.budget_nodes) if nodes else None,
        window_s=policy.budget_window_s,
        observe_only=policy.observe_only,
    )
