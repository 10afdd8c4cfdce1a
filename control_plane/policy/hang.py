"""Whether the job of a gang that hangs is requeued: only where the site or its owner asked for it, and only for a finding that has settled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from probing_cluster.control_plane.gangs import rank_rows
from probing_cluster.control_plane.policy import budget, restart, restart_loop, view
from probing_cluster.core import errors, records, sanitize, settings, vocabulary
from probing_cluster.slurm_plugins.live import live_records

WORDS = ("tell", "requeue")
PATIENT_PHASES = frozenset({"importing", "compiling", "checkpointing", "validating"})
"""What a rank may be at for long without a hang, until its own history says that it takes too long (`RankNow.stalled`)."""
UNSETTLED = frozenset({"unknown", "busy"})
_SURE = frozenset({records.Confidence.CERTAIN, records.Confidence.LIKELY})


@records.record
class Hang:
    """One gang that stands still, and its job."""

    attempt: records.JobAttempt = records.doc("the attempt that runs")
    verdict: records.GangVerdict = records.doc("what was found of it")
    on_hang: str = records.doc("tell or requeue, by the job's own option or the site's setting")
    deaths: tuple[restart_loop.Death, ...] = records.doc(
        "earlier hangs of it that were requeued, then this one"
    )
    n_restarts: int = records.doc("times the run was restarted within policy.restart_window_s", default=0)


def check(policy: settings.PolicySettings) -> None:
    """Raises SettingsError for another word."""
    if policy.on_hang not in WORDS:
        raise errors.SettingsError(f"[policy] on_hang is {policy.on_hang!r}; valid: {', '.join(WORDS)}")


def on_hang_of(
    allocations: Iterable[records.JobAllocation], attempt: records.JobAttempt, default: str
) -> str:
    """What the job's own `--probing-on-hang=` says, as its Prologs passed it on, else the site's word."""
    for allocation in allocations:
        word = allocation.detail.get("on_hang")
        if allocation.job_id == attempt.job_id and allocation.node in attempt.nodes and word in WORDS:
            return str(word)
    return default


def is_ripe(hang: Hang, now: datetime, policy: settings.PolicySettings) -> bool:
    """Whether the finding names something, is likely, and has stood unchanged for the grace."""
    verdict = hang.verdict
    settled = verdict.kind not in UNSETTLED and verdict.confidence in _SURE
    return settled and now - verdict.made_at >= timedelta(seconds=policy.hang_grace_s)


def stands(hang: Hang, ranks: Sequence[rank_rows.RankNow], answered: set[str]) -> str:
    """Why the hang must not be acted on, by what all ranks do now; empty when all of them still stand."""
    silent = sorted(set(hang.attempt.nodes) - answered)
    if silent:
        return f"{', '.join(silent)} did not answer when its ranks were looked at again"
    steps = hang.verdict.detail.get("steps")
    known = hang.verdict.detail.get("ranks_seen")
    alive = [r for r in ranks if r.alive]
    if not isinstance(steps, int) or not alive or (isinstance(known, int) and len(ranks) < known):
        return "not all of its ranks are known"
    if max(r.steps for r in alive) > steps:
        return "its ranks have got on since"
    busy = [r for r in alive if r.phase in PATIENT_PHASES and not r.stalled]
    if busy:
        return f"rank {busy[0].name} is {busy[0].phase}, and has time left for it"
    return "" if any(r.stalled for r in alive) else "none of its ranks counts as stalled now"


def decide(
    hang: Hang,
    ranks: Sequence[rank_rows.RankNow],
    answered: set[str],
    queue: restart.Queue,
    policy: settings.PolicySettings,
    ledger: budget.Ledger,
) -> tuple[str, str, live_records.LiveJob | None, tuple[str, ...]]:
    """State (empty: to be done), why not, the job as Slurm has it, the nodes to leave out."""
    live = queue.jobs.get(hang.attempt.het_job_id or hang.attempt.job_id)
    for state, why in _against(hang, ranks, answered, live, policy):
        if why:
            return state, sanitize.clean(why, 300), live, ()
    exclude: list[str] = []
    # Where the program hangs its node is as good as any other.
    for name in hang.verdict.nodes if hang.verdict.domain is records.Domain.HARDWARE else ():
        node: view.Node | None = queue.nodes.get(name)
        if live is not None and (why := restart.named(live, queue, name)):
            return "skipped", why, live, ()
        if node is None or node.states & vocabulary.DRAINED_STATES:
            continue
        denied = ledger.refuses(name, leaves_service=False)
        if denied:
            return "denied", denied, live, ()
        ledger.take(name)
        exclude.append(name)
    return "", "", live, tuple(exclude)


def _against(
    hang: Hang,
    ranks: Sequence[rank_rows.RankNow],
    answered: set[str],
    live: live_records.LiveJob | None,
    policy: settings.PolicySettings,
) -> Iterator[tuple[str, str]]:
    if live is None or live.state != "RUNNING" or live.completing:
        yield "skipped", "it no longer runs"
        return
    yield "skipped", "" if live.start_at == hang.attempt.start_at else "Slurm now shows another start of it"
    yield "skipped", "" if live.batch else "it is interactive"
    yield "skipped", "" if live.requeue else "it was submitted with --no-requeue"
    yield "skipped", stands(hang, ranks, answered)
    yield "skipped", restart_loop.loop(hang.deaths)
    yield "denied", restart.spent(hang.n_restarts, policy)


def reason_for(verdict: records.GangVerdict) -> str:
    """`probing: hang rank_stopped n3`."""
    words = (vocabulary.OWN_PREFIX.strip(), "hang", verdict.kind, *verdict.nodes[:2])
    return sanitize.clean(" ".join(words), 160)


def detail(
    hang: Hang, live: live_records.LiveJob | None, components: Sequence[int], exclude: Sequence[str]
) -> Mapping[str, object]:
    """What the row of a hang says beside its columns: all that is needed to go on with it."""
    made = {
        "leader": hang.attempt.het_job_id or hang.attempt.job_id,
        "components": list(components),
        "restart": live.restart_count if live is not None else None,
        "exclude": list(exclude),
        "user": hang.attempt.user,
        "run_key": hang.attempt.run_key,
        "hang": str(hang.verdict.gang_id),
        "cause": hang.verdict.kind,
        "step": hang.verdict.detail.get("steps"),
        "loop": True if restart_loop.loop(hang.deaths) else None,
    }
    return {k: v for k, v in made.items() if v not in (None, [], "")}
