"""A lemon night for its reader: per node the verdict, the reasons, the cost, the evidence, the commands."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from probing_cluster.core import records, sanitize, vocabulary
from probing_cluster.lemon import model, nightly
from probing_cluster.reports import phrase

SHOWN_FAILURES = 5
SHOWN_AGAIN = 2
"""Reasons shown for a lemon that an earlier mail named."""
SHOWN_SUSPECTS = 10
SHOWN_RANKED = 5
_NEARLY = 0.3
"""From this score on a node lacks proof rather than failures."""
_HELD_DOWN = 0.48
"""Scores held down for lack of proof lie a little above this (proof.UNPROVEN)."""
_ENOUGH_NODES = 10
"""Fewer nodes than this do not show an ordinary failure rate."""


@records.record
class FailureLine:
    """One failed attempt, for a line."""

    at: datetime = records.doc("when it ended, UTC")
    job_id: int = records.doc("Slurm job id")
    ref: str = records.doc("the job as its owner names it")
    what: str = records.doc("cause, part, confidence")
    size: str = records.doc("nodes and GPUs")
    command: str = records.doc("the command that prints its report")
    url: str = records.doc("the report's address; empty for none", default="")


@records.record
class LemonCommand:
    """Something to type, and why."""

    meaning: str = records.doc("when to type it")
    text: str = records.doc("the command")


@records.record
class LemonCard:
    """One node of the report."""

    node: str = records.doc("its name")
    status: str = records.doc("new, still, recovered, denied or suspect")
    chance: str = records.doc("the probability in words: 97 %")
    since: datetime | None = records.doc("lemon since that day", default=None)
    summary: str = records.doc("one sentence for lists", default="")
    reasons: tuple[str, ...] = records.doc("sentences, the strongest first", default=())
    cost: str = records.doc("cost of its failures", default="")
    failures: tuple[FailureLine, ...] = records.doc("the latest", default=())
    n_more: int = records.doc("failures not shown", default=0)
    drained: str = records.doc("our open drain, in words; empty for none", default="")
    commands: tuple[LemonCommand, ...] = records.doc("commands for this node", default=())


@records.record
class RankedNode:
    """A node that is neither lemon nor suspect."""

    node: str = records.doc("its name")
    chance: str = records.doc("the probability in words: under 1 %")
    why_not: str = records.doc("why it is no lemon, one clause")


@records.record
class LemonPage:
    """The whole report."""

    cluster: str = records.doc("Slurm cluster name")
    day: datetime = records.doc("the day scored")
    window_days: int = records.doc("days the signals look back")
    subject: str = records.doc("the changes, short")
    headline: str = records.doc("the night in one line")
    new: tuple[LemonCard, ...] = records.doc("lemons since this night", default=())
    still: tuple[LemonCard, ...] = records.doc("lemons before, too", default=())
    gone: tuple[LemonCard, ...] = records.doc("no lemons any more", default=())
    suspects: tuple[LemonCard, ...] = records.doc("to keep an eye on", default=())
    n_more_suspects: int = records.doc("suspects not shown", default=0)
    ranked: tuple[RankedNode, ...] = records.doc(
        "the likeliest of the others, of a night without a lemon", default=()
    )
    none_because: str = records.doc("why no node is a lemon; empty when one is", default="")
    total_cost: str = records.doc("cost of all lemons together; empty without lemons", default="")
    remarks: tuple[str, ...] = records.doc("notes on the night's data and model", default=())
    uneventful: bool = records.doc("true if nothing changed and no node is a lemon", default=False)


def of(night: nightly.Night, *, drains: Iterable[records.Drain] = (), report_url: str = "") -> LemonPage:
    """The night's view. `drains`: our open drains; `report_url` contains `{job_id}`."""
    open_drains = {d.node: d for d in drains if d.action == "drain" and d.ended_at is None}

    def cards(scores: Iterable[records.LemonScore]) -> tuple[LemonCard, ...]:
        return tuple(_card(s, open_drains.get(s.node), night.window_days, report_url) for s in scores)

    suspects = night.suspects
    return LemonPage(
        cluster=night.cluster,
        day=night.day,
        window_days=night.window_days,
        subject=subject(night),
        headline=headline(night),
        new=cards(night.new),
        still=cards(night.still),
        gone=cards(night.gone),
        suspects=cards(suspects[:SHOWN_SUSPECTS]),
        n_more_suspects=max(0, len(suspects) - SHOWN_SUSPECTS),
        ranked=ranked(night),
        none_because=none_because(night),
        total_cost=_total([*night.new, *night.still], night.window_days),
        remarks=night.remarks,
        uneventful=night.uneventful,
    )


def ranked(night: nightly.Night) -> tuple[RankedNode, ...]:
    """The likeliest of the nodes that nobody suspects, when no node is a lemon."""
    if night.new or night.still:
        return ()
    others = [s for s in night.scores if not s.signals.get("status")]
    # By the chance as it is printed: of two nodes "under 1 %" the one with more failures is more telling.
    others.sort(key=lambda s: (-round(s.score, 2), -_n_failures(s), s.node))
    return tuple(
        RankedNode(node=s.node, chance=chance(s.score), why_not=why_not(s, night.window_days))
        for s in others[:SHOWN_RANKED]
    )


def none_because(night: nightly.Night) -> str:
    """Why no node is a lemon; empty if one is."""
    if night.new or night.still:
        return ""
    if not night.scores:
        return f"No node is a lemon: none was in use in the {night.window_days} days looked at."
    most = max(_n_failures(s) for s in night.scores)
    if not most:
        return f"No node is a lemon: no attempt failed because of a node in {night.window_days} days."
    first = max(night.scores, key=lambda s: (s.score, _n_failures(s)))
    if first.score >= nightly.SUSPECT_FROM and _n_failures(first):
        return (
            f"No node is a lemon: none is proven to be one. {first.node} comes nearest, with {_failures(first)} in "
            f"{night.window_days} days, {_short_of(first)}{_few(night)}."
        )
    return (
        f"No node is a lemon: none failed often enough, and far enough apart, beyond what its load explains."
        f" The most are {vocabulary.plural(most, 'failure')} in {night.window_days} days{_few(night)}."
    )


def _failures(score: records.LemonScore) -> str:
    """`9 failures that count as 3`: failures within two days count as one fault."""
    n, episodes = _n_failures(score), score.signals.get("episodes")
    together = isinstance(episodes, int) and 0 < episodes < n
    return f"{vocabulary.plural(n, 'failure')}{f' that count as {episodes} (within two days they count once)' if together else ''}"


def _short_of(score: records.LemonScore) -> str:
    if score.score >= _HELD_DOWN:
        return "but no third sign, or too close together"
    return f"{chance(score.score)} likely, where {chance(model.LEMON_FROM)} are needed"


def _few(night: nightly.Night) -> str:
    """A note that the fleet is too small for comparison; empty for larger ones."""
    n = len(night.scores)
    return (
        f"; {vocabulary.plural(n, 'node')} in use {'is' if n == 1 else 'are'} few to compare"
        if n < _ENOUGH_NODES
        else ""
    )


def why_not(score: records.LemonScore, window_days: int) -> str:
    """Why this node is no lemon."""
    n = _n_failures(score)
    if not n:
        return f"no failure in {window_days} days" + (f"; {score.reasons[0]}" if score.reasons else "")
    if n == 1:
        return "one failure, which is no pattern"
    if score.score >= _NEARLY:
        return f"{n} failures, but no third sign, or too close together: no proof"
    return f"{_failures(score)}, which its load explains"


def _sentence(clause: str) -> str:
    return f"{clause[:1].upper()}{clause[1:]}."


def _n_failures(score: records.LemonScore) -> int:
    return score.multi_node_node_fails + score.single_node_node_fails


def subject(night: nightly.Night) -> str:
    """The changes and the present lemons, short enough for a phone's list of mails."""
    if night.uneventful and night.suspects:
        return f"no lemon, {vocabulary.plural(len(night.suspects), 'suspect')}: {_names(night.suspects)}"
    if night.uneventful:
        return "quiet night, no lemon"
    parts = [f"{vocabulary.plural(len(night.new), 'new lemon')}: {_names(night.new)}"] if night.new else []
    parts += [f"{len(night.still)} still: {_names(night.still)}"] if night.still else []
    parts += [f"{len(night.gone)} gone: {_names(night.gone)}"] if night.gone else []
    return "; ".join(parts)


def headline(night: nightly.Night) -> str:
    """The night in one line, with the number of nodes scored; a quiet night's mail holds nothing else."""
    looked_at = [f"{len(night.scores):,} {'node' if len(night.scores) == 1 else 'nodes'} scored"]
    looked_at += (
        [vocabulary.plural(len(night.suspects), "suspect")] if night.suspects and not night.uneventful else []
    )
    return f"{subject(night)} ({', '.join(looked_at)})"


def chance(probability: float) -> str:
    """`97 %`; never 100 %, never 0 %."""
    if probability > 0.99:
        return "over 99 %"
    return f"{probability * 100:.0f} %" if probability >= 0.01 else "under 1 %"


def card(
    score: records.LemonScore,
    night: nightly.Night,
    drains: Iterable[records.Drain] = (),
    report_url: str = "",
) -> LemonCard:
    """One node of the night."""
    open_drains = {d.node: d for d in drains if d.action == "drain" and d.ended_at is None}
    return _card(score, open_drains.get(score.node), night.window_days, report_url)


def _card(
    score: records.LemonScore, drain: records.Drain | None, window_days: int, report_url: str
) -> LemonCard:
    signals = score.signals
    failures = [_failure(f, report_url) for f in reversed(signals.get("failures", ()))]
    failures = failures[: SHOWN_FAILURES if signals.get("status") == "new" else SHOWN_AGAIN]
    drained = (
        f"drained since {phrase.stamp_z(drain.at)[:16]}Z ({sanitize.clean(drain.reason, 100)})"
        if drain
        else ""
    )
    return LemonCard(
        node=score.node,
        status=str(signals.get("status", "")),
        chance=chance(score.score),
        since=datetime.fromisoformat(signals["since"]) if signals.get("since") else None,
        summary=score.reasons[0] if score.reasons else "",
        reasons=score.reasons or (_sentence(why_not(score, window_days)),),
        cost=_cost([score], window_days),
        failures=tuple(failures),
        # Of a node that was no suspect the failures are not stored with its score.
        n_more=max(0, _n_failures(score) - len(failures)) if failures else 0,
        drained=drained,
        commands=_commands(score, drain is not None),
    )


def _failure(failure: Mapping[str, Any], report_url: str) -> FailureLine:
    part = f" {failure['device']}" if failure.get("device") else ""
    n_nodes, n_gpus = failure["n_nodes"], failure.get("n_gpus")
    nodes = vocabulary.plural(n_nodes, "node")
    job_id = int(failure["job_id"])
    ref = sanitize.clean(str(failure.get("ref") or job_id), 40)  # older nights have no ref
    return FailureLine(
        at=datetime.fromisoformat(failure["at"]),
        job_id=job_id,
        ref=ref,
        what=sanitize.clean(f"{failure['cause']}{part}, {failure['confidence']}", 120),
        size=f"{nodes}, {n_gpus} GPUs" if n_gpus is not None else nodes,
        command=f"probing-report {ref}",
        url=report_url.replace("{job_id}", str(job_id))
        if report_url.startswith(("https://", "http://"))
        else "",
    )


def _commands(score: records.LemonScore, drained: bool) -> tuple[LemonCommand, ...]:
    """The commands for this node in its state; for a suspect only to look at it and to answer."""
    node, status = shlex.quote(score.node), score.signals.get("status")
    n = score.multi_node_node_fails + score.single_node_node_fails
    drain = LemonCommand(
        meaning="take it out after its jobs",
        text=f"probing-ctl drain {node} --reason {shlex.quote(f'lemon, {n} failures')}",
    )
    confirm = LemonCommand(
        meaning="it is one", text=f"probing-ctl lemon confirm {node} --note 'what you found'"
    )
    deny = LemonCommand(meaning="it is none", text=f"probing-ctl lemon deny {node} --note 'why not'")
    repaired = LemonCommand(
        meaning="once repaired", text=f"probing-ctl lemon repaired {node} --note 'what was done'"
    )
    look = LemonCommand(meaning="all that is known", text=f"probing-ctl lemon list {node}")
    if status in ("new", "still"):
        return (*(() if drained else (drain,)), confirm, deny, repaired)
    return (look, confirm, deny) if status == "suspect" else (look,)


def _cost(scores: Iterable[records.LemonScore], window_days: int) -> str:
    costs = [s.signals["cost"] for s in scores if "cost" in s.signals]
    if not any(c["jobs"] for c in costs):
        return ""
    jobs, users = sum(c["jobs"] for c in costs), sum(c["users"] for c in costs)
    unknown = sum(c["unknown_gpus"] for c in costs)
    words = (
        f"{phrase.gpu_hours(sum(c['gpu_h'] for c in costs))} GPU-hours of lost work, {vocabulary.plural(jobs, 'job')}, "
        f"{vocabulary.plural(users, 'user')} in {window_days} days"
    )
    return words + (f" ({unknown} attempts of unknown size not counted)" if unknown else "")


def _total(scores: list[records.LemonScore], window_days: int) -> str:
    """The sum over several nodes; users are left out, since those of two nodes may be the same people."""
    costs = [s.signals["cost"] for s in scores if "cost" in s.signals]
    if len(costs) < 2:
        return ""
    gpu_h, jobs = sum(c["gpu_h"] for c in costs), sum(c["jobs"] for c in costs)
    return f"Together {phrase.gpu_hours(gpu_h)} GPU-hours of lost work and {jobs} jobs in {window_days} days."


def _names(scores: Iterable[records.LemonScore], most: int = 4) -> str:
    names = [s.node for s in scores]
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
