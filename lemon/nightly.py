"""One night: scores a day, compares each node with the night before, and stores all that a report needs.

Scoring a day twice gives the same rows: the night before is the last scored day before it, and the window ends with it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from probing_cluster.core import clock, errors, records, settings
from probing_cluster.db import store as db_store
from probing_cluster.lemon import calibration, episodes, gather, model, proof, reasons, signals, trends

DAY = timedelta(days=1)
STAYS_FROM = 0.5
"""A lemon stays one until its probability falls below this: one good night is no recovery."""
SUSPECT_FROM = 0.3
SUSPECT_SIGNS = 1.5
"""Least failures of a suspect, with its share of the unnamed ones: a single one raises no suspicion."""
LEMON, SUSPECT, RECOVERED, OK = "lemon", "suspect", "recovered", "ok"
_MOST_FAILURES = 30
"""Latest failures that are stored with a score; all are counted."""
_REMEMBERED = "lemon.night"
_EVER = datetime(9999, 1, 1, tzinfo=UTC)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Night:
    """One scored day and the changes since the scored day before."""

    cluster: str
    day: datetime
    previous_day: datetime | None
    scores: tuple[records.LemonScore, ...]
    """Every node, the likeliest lemon first."""
    window_days: int
    remarks: tuple[str, ...]
    """Remarks for the reader on how the scores were made."""

    def of(self, *status: str) -> tuple[records.LemonScore, ...]:
        """The scores with these states: new, still, suspect, recovered, denied."""
        return tuple(s for s in self.scores if s.signals.get("status") in status)

    @property
    def new(self) -> tuple[records.LemonScore, ...]:
        """Lemons since this night."""
        return self.of("new")

    @property
    def still(self) -> tuple[records.LemonScore, ...]:
        """Lemons of this night and the night before."""
        return self.of("still")

    @property
    def gone(self) -> tuple[records.LemonScore, ...]:
        """Lemons of the night before that are no longer lemons: recovered or denied."""
        return self.of("recovered", "denied")

    @property
    def suspects(self) -> tuple[records.LemonScore, ...]:
        """Nodes to watch; no action yet."""
        return self.of("suspect")

    @property
    def uneventful(self) -> bool:
        """True if nothing changed and no node is a lemon."""
        return not (self.new or self.still or self.gone)


def day_of(at: datetime) -> datetime:
    """Midnight UTC of that instant's day."""
    return at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def score(
    store: db_store.Store,
    config: settings.Settings,
    day: datetime,
    *,
    slurm_facts: gather.SlurmFacts = gather.NO_SLURM_FACTS,
    at: clock.Clock = clock.SYSTEM,
) -> Night:
    """Scores `day` (its midnight, UTC) and stores the result."""
    found, calibrated = measure(store, config, day, slurm_facts=slurm_facts)
    before_day, before = _before(store, config.cluster.name, day)
    rows = _rows(store, config, day, found, calibrated, before, at.now())
    remarks = [calibrated.sentence()]
    if not found.outages_by_slurm:
        remarks.append("Slurm's accounting was not asked for outages: only our own drains are counted.")
    store.save_lemon_scores(rows)
    store.remember(
        f"{_REMEMBERED} {config.cluster.name} {day:%Y-%m-%d}",
        {"remarks": remarks, "window_days": config.lemon.window_days},
    )
    return _night(config, day, before_day, rows, config.lemon.window_days, remarks)


def load(store: db_store.Store, config: settings.Settings, day: datetime | None = None) -> Night:
    """A night as it was stored (None = the latest); raises NotFound."""
    cluster = config.cluster.name
    # The latest of this cluster: a database may hold several.
    day = day or store.lemon_day_before(_EVER, cluster)
    rows = [s for s in store.lemon_scores(day=day) if s.cluster == cluster] if day else []
    if day is None or not rows:
        raise errors.NotFound(
            f"{day:%Y-%m-%d} has no scores: it was not scored yet, or no node was in use in the"
            f" {config.lemon.window_days} days until then; probing-ctl lemon report --day {day:%Y-%m-%d} scores it"
            if day
            else "no night has scores: a node is scored once jobs on it are stored (by probing-ctl serve, or probing-ctl import)"
            " and the night after has come; probing-ctl lemon report --day DAY scores a night of the past"
        )
    remembered = store.recall(f"{_REMEMBERED} {cluster} {day:%Y-%m-%d}", {})
    before_day = store.lemon_day_before(day, cluster)
    return _night(
        config,
        day,
        before_day,
        rows,
        remembered.get("window_days", config.lemon.window_days),
        remembered.get("remarks", ()),
    )


def measure(
    store: db_store.Store,
    config: settings.Settings,
    day: datetime,
    *,
    slurm_facts: gather.SlurmFacts = gather.NO_SLURM_FACTS,
) -> tuple[signals.Signals, calibration.Calibration]:
    """The signals of the window that ends with `day`, and the calibration from people's answers until then."""
    until = day + DAY
    recent = until - timedelta(days=config.lemon.window_days)
    since = min(recent, until - timedelta(days=config.lemon.history_days))
    facts = gather.read(store.connection_uri(), config.cluster.name, since, until, slurm_facts=slurm_facts)
    found = signals.compute(facts, recent=recent, cap_s=config.attribution.checkpoint_interval_s / 2)
    notes = [n for n in store.notes() if n.cluster == config.cluster.name and n.at < until]
    answers = [(n.subject.partition(":")[2], n.at) for n in notes if n.action in ("confirm", "deny")]
    scores: dict[str, list[records.LemonScore]] = {node: [] for node, _ in answers}
    for score in store.scores_answered(config.cluster.name, answers):
        scores[score.node].append(score)
    return found, calibration.fit(calibration.labels(notes, scores))


def _rows(
    store: db_store.Store,
    config: settings.Settings,
    day: datetime,
    found: signals.Signals,
    calibrated: calibration.Calibration,
    before: Mapping[str, records.LemonScore],
    now: datetime,
) -> list[records.LemonScore]:
    scored = model.score(found.window)
    raw = scored.probability
    mapped = calibrated.apply(raw)
    # Answers cannot replace proof: a score that the model holds down stays unproven.
    probability = np.where(raw >= STAYS_FROM, mapped, np.minimum(mapped, proof.UNPROVEN))
    words = _words_of_people(store, config.cluster.name, day + DAY)
    unusual = {
        sign: trends.log_ratio({sign: np.array([getattr(n, f"minor_{sign}") for n in found.nodes], np.float64)},
                               np.array([n.exposure_days for n in found.nodes], np.float64)) > 0
        for sign in signals.SIGN_WORDS
    }  # fmt: skip
    rows = []
    for i, node in enumerate(found.nodes):
        model_signals = {
            "model": round(float(raw[i]), 6),
            "usual": round(float(scored.usual_failures[i]), 4),
            "expected": round(float(scored.expected_failures[i]), 4),
            "shared": round(float(scored.shared[i]), 4),
            # Of the signals' window, as the failures beside which it is shown: the model looks back further.
            "episodes": episodes.number([f.at for f in node.failures if f.counts and f.at >= found.since]),
            "exposure_days": round(node.exposure_days, 4),
            "fail_days": len({f.at.date() for f in node.failures if f.counts}),
            "unusual": [sign for sign, shown in unusual.items() if shown[i]],
        }
        rows.append(
            _row(
                config,
                day,
                node,
                model_signals,
                float(probability[i]),
                before.get(node.node),
                words.get(node.node),
                now,
            )
        )
    return rows


def _row(
    config: settings.Settings,
    day: datetime,
    node: signals.LemonNode,
    model_signals: dict[str, Any],
    probability: float,
    before: records.LemonScore | None,
    word: records.OperatorNote | None,
    now: datetime,
) -> records.LemonScore:
    verdict, status = state(probability, before, word, model_signals["expected"])
    sentences = reasons.of(node, model_signals)
    if word is not None and word.action == "confirm":
        sentences = (
            f"Confirmed by {word.author} on {word.at:%Y-%m-%d}{f': {word.note}' if word.note else '.'}",
            *sentences,
        )
    elif status in ("recovered", "denied") and word is not None:
        answered = "Denied" if word.action == "deny" else "Repaired, says"
        sentences = (
            f"{answered} {'by ' if word.action == 'deny' else ''}{word.author} on {word.at:%Y-%m-%d}.",
            *sentences,
        )
    return records.LemonScore(
        cluster=config.cluster.name,
        node=node.node,
        day=day,
        excl_jobid_count=node.excl_jobid_count,
        xid_cnt=node.xid_cnt,
        tickets=node.tickets,
        out_count=node.out_count,
        multi_node_node_fails=node.multi_node_node_fails,
        single_node_node_fails=node.single_node_node_fails,
        single_node_node_failure_rate=node.single_node_node_failure_rate,
        score=round(probability, 6),
        reasons=sentences if verdict != OK or status else (),
        verdict=verdict,
        signals=_signals(day, node, model_signals, verdict, status, before),
        made_at=now,
    )


def state(
    probability: float,
    before: records.LemonScore | None,
    word: records.OperatorNote | None,
    failures: float,
) -> tuple[str, str]:
    """The verdict, and its change: new, still, suspect, recovered, denied or nothing.

    `word`: the last note of a person; a confirmed node is a lemon until it is repaired or denied. `failures`: those blamed
    on the node, with its share of the unnamed ones.
    """
    was = before is not None and before.verdict == LEMON
    confirmed = word is not None and word.action == "confirm"
    if confirmed or probability >= (STAYS_FROM if was else model.LEMON_FROM):
        return LEMON, "still" if was else "new"
    if was:
        denied = word is not None and word.action == "deny"
        return (OK, "denied") if denied else (RECOVERED, "recovered")
    suspicious = probability >= SUSPECT_FROM and failures >= SUSPECT_SIGNS
    return (SUSPECT, "suspect") if suspicious else (OK, "")


def _signals(
    day: datetime,
    node: signals.LemonNode,
    model_signals: dict[str, Any],
    verdict: str,
    status: str,
    before: records.LemonScore | None,
) -> dict[str, Any]:
    """The signals stored beside the paper's seven; for ordinary nodes only those that figures need."""
    stored: dict[str, Any] = {k: v for k, v in model_signals.items() if v or k in ("model", "usual")}
    if node.failures:
        stored["failed_at"] = [clock.iso_z(f.at) for f in node.failures[-_MOST_FAILURES:]]
    if verdict == OK and not status:
        return stored
    since = before.signals.get("since") if before is not None and status == "still" else None
    return stored | {
        "status": status,
        "since": since or clock.iso_z(day),
        "cost": {
            "gpu_h": round(node.gpu_h, 3),
            "jobs": node.n_jobs,
            "users": node.n_users,
            "unknown_gpus": node.n_unknown_gpus,
        },
        "attempts": node.n_attempts,
        "recurrences": node.recurrences,
        "minor": {sign: getattr(node, f"minor_{sign}") for sign in signals.SIGN_WORDS},
        "rank_findings": node.rank_findings,
        "xids": dict(node.xids),
        "cards": [dataclasses.asdict(c) for c in node.cards],
        "failures": [_failure(f) for f in node.failures[-_MOST_FAILURES:]],
    }


def _failure(failure: signals.Failure) -> dict[str, Any]:
    return dataclasses.asdict(failure) | {"at": clock.iso_z(failure.at)}


def _words_of_people(store: db_store.Store, cluster: str, until: datetime) -> dict[str, records.OperatorNote]:
    """Node to its last confirm, deny or repair."""
    found: dict[str, records.OperatorNote] = {}
    for note in store.notes():
        kind, _, node = note.subject.partition(":")
        about = note.action in ("confirm", "deny") or (note.action == "repaired" and note.detail.get("lemon"))
        if about and kind == "node" and note.cluster == cluster and note.at < until:
            found[node] = note
    return found


def _before(
    store: db_store.Store, cluster: str, day: datetime
) -> tuple[datetime | None, dict[str, records.LemonScore]]:
    before = store.lemon_day_before(day, cluster)
    if before is None:
        return None, {}
    return before, {s.node: s for s in store.lemon_scores(day=before) if s.cluster == cluster}


def _night(
    config: settings.Settings,
    day: datetime,
    before_day: datetime | None,
    rows: Sequence[records.LemonScore],
    window_days: int,
    remarks: Iterable[str],
) -> Night:
    return Night(
        cluster=config.cluster.name,
        day=day,
        previous_day=before_day,
        scores=tuple(sorted(rows, key=lambda s: (-s.score, s.node))),
        window_days=window_days,
        remarks=tuple(remarks),
    )
