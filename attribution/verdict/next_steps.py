"""The next step of a verdict: what to do now."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from probing_cluster.attribution.verdict import claims, evidence_view, phrases, rank_claims, taxonomy, wording
from probing_cluster.core import digits, records, untrusted, vocabulary


class _Variant(NamedTuple):
    """A next step that replaces the cause's own in a special case; {node}, {person} and {stall} are filled in."""

    causes: tuple[str, ...]
    """Causes that it is for; empty: any."""
    applies: Callable[[evidence_view.EvidenceView, claims.Claim], bool]
    sentence: str


_VARIANTS = (
    _Variant(
        ("node_refused",),
        lambda view, _: view.state != "REQUEUED",
        "Submit the job again: it was not at fault. Repair {node}: it was refused before the job began.",
    ),
    _Variant(
        ("time_limit",),
        lambda view, _: view.state == "DEADLINE",
        "Submit it earlier or with a later --deadline, or make it shorter: more time would not help, since Slurm ends it at that hour.",
    ),
    _Variant(
        ("time_limit",),
        lambda view, _: view.within_limit,
        "Ask the administrators which limit ended it: the partition's (MaxTime) may be shorter, or the job's own was changed while it ran.",
    ),
    _Variant(
        (),
        lambda _, winner: wording.is_ordered(winner),
        "Find out who or what restarted {node}: an administrator, an update, or `scontrol reboot`; its log of that minute may show it.",
    ),
    _Variant(
        ("requeued_by_user",),
        lambda view, _: not view.fully_watched,
        "Ask whether somebody requeued it on purpose; else look at slurmctld's log of that minute, and at the kernel logs of its nodes.",
    ),
    _Variant(
        ("time_limit",),
        lambda view, _: view.stalled_at is not None,
        "More time would most likely not have helped. Find out why it hung: look at what its ranks did last, and at the last lines of its log.",
    ),
    _Variant(
        ("user_cancelled",),
        lambda view, _: view.stalled_at is not None,
        "Find out why it hung: look at what its ranks did last, and at the last lines of its log.",
    ),
    _Variant(
        ("time_limit", "user_cancelled"),
        lambda view, _: bool(view.stalls),
        "Find out whether it hung: look at {stall}, and at the last lines of its log.",
    ),
    _Variant(
        ("user_cancelled",),
        lambda view, _: view.cancelled_by_root and view.attempt.cancelled_by != view.attempt.user,
        "Ask the administrators whether one of them cancelled it, and why: Slurm's own cancellations are in root's name, too.",
    ),
    _Variant(
        ("user_cancelled",),
        lambda view, _: not view.attempt.cancelled_by,
        "Nothing, if you cancelled it yourself; else ask the administrators who did: the accounting does not say.",
    ),
    _Variant(
        ("user_cancelled",),
        lambda view, _: bool(view.log_stall or view.lost_gpus),
        "Find out whether it hung: look at its last progress or the lost GPU, and at the last lines of its log.",
    ),
    _Variant(
        ("user_cancelled",),
        lambda view, _: view.attempt.cancelled_by != view.attempt.user,
        "Ask {person} why it was cancelled: the accounting does not say.",
    ),
    _Variant(
        ("node_lost",),
        lambda _, winner: winner.node is None,
        "Ask Slurm which node it was (`sinfo -R`, slurmctld's log); then look at its console and its baseboard's event log.",
    ),
    _Variant(
        ("user_error",),
        lambda view, _: view.signal == vocabulary.OUTPUT_NOT_OPENED,
        "Give --output, --error and --input files whose directories exist on the node and are open to the user.",
    ),
)
"""The first one that applies is taken."""


def next_step(view: evidence_view.EvidenceView, ranking: rank_claims.Ranking) -> str:
    """The claim's own step, else a variant, else a check that the findings suggest, else the cause's own step."""
    winner = ranking.winner
    if winner.next_step:
        return phrases.sentence(winner.next_step)
    for variant in _VARIANTS:
        if (not variant.causes or winner.cause in variant.causes) and variant.applies(view, winner):
            return _filled_in(variant.sentence, view, winner)
    if check := _check(view, ranking):
        return check
    proven = (
        ranking.confidence is not records.Confidence.POSSIBLE
        or winner.info.domain is not records.Domain.HARDWARE
    )
    text = phrases.next_step(
        winner.info.next_step if proven else phrases.before_a_repair(winner.info.next_step),
        part=winner.device,
        noun=winner.info.noun,
        node=winner.node,
        user=view.attempt.user or "the user",
        # A verdict from the exit alone has no words of the program to quote.
        detail=_of_its_log(winner) if winner.by_elimination else phrases.clean(winner.words) or "its log",
    )
    serial = next((e.detail["serial"] for e in winner.evidence if e.detail.get("serial")), None)
    return f"{text.rstrip('.')} (serial {serial})." if serial else phrases.sentence(text)


def _filled_in(sentence: str, view: evidence_view.EvidenceView, winner: claims.Claim) -> str:
    by, stall = view.attempt.cancelled_by or "", next(iter(view.stalls), None)
    return sentence.format(
        node=winner.node or "the node",
        person=f"the user with id {by}" if digits.is_number(by) else by,
        stall=f"{phrases.what(stall).replace('_', ' ')} on {stall.node}" if stall else "",
    )


def _of_its_log(winner: claims.Claim) -> str:
    """The log line that a verdict by elimination quotes; empty if none."""
    return phrases.clean(winner.words.partition("; its log says: ")[2])


def _check(view: evidence_view.EvidenceView, ranking: rank_claims.Ranking) -> str:
    """The check that the findings suggest where nothing is proven; empty if the cause's own step is better."""
    winner = ranking.winner
    sure = ranking.confidence in (records.Confidence.CERTAIN, records.Confidence.LIKELY)
    if winner.cause not in ("user_error", taxonomy.UNKNOWN) or sure:
        return ""
    ids = {e.event_id for e in winner.evidence}
    known = [f for f in view.findings if f.signature.check and (f.event.event_id in ids or not ids)]
    if known:
        check = known[0].signature.check.format(node=view.node_list or "its node")
        message = phrases.clean(known[0].event.message)
        return f"{check} Its log says: {message}." if message else check
    return _ranks_waiting(view) if winner.cause == taxonomy.UNKNOWN else ""


_MOST_RANKS = 4


def _ranks_waiting(view: evidence_view.EvidenceView) -> str:
    """Names the ranks that waited in vain and where to look; empty if no finding names a rank."""
    waiting = {untrusted.index(f.event.detail.get("rank")) for f in view.findings if f.signature.onset}
    ranks = sorted(r for r in waiting if r is not None)
    if not ranks or any(f.event.source == "probe" for f in view.findings):
        return ""  # the probe names more
    names = (
        f"Rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
        if len(ranks) <= _MOST_RANKS
        else f"{len(ranks)} ranks"
    )
    where = f" of {view.node_list}" if view.node_list else ""
    return (
        f"{names} waited in vain. Look at the other ranks: at their last output, and at the kernel logs and links{where}. "
        "If it happens again, run it with the probe (docs/probe.md), which names the rank."
    )
