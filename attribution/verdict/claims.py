"""Weighted claims, and how evidence adds to their weight."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from probing_cluster.attribution.verdict import evidence_view, findings, gpus, recovery, signatures, taxonomy
from probing_cluster.core import records, vocabulary

Adjust = Callable[[evidence_view.CaseSighting, float], float]
"""A rule's own adjustment of one sighting's weight."""

CERTAIN, LIKELY, POSSIBLE = 0.96, 0.80, 0.50
"""Least weight for each confidence."""

ANSWERED = 0.9
"""Least weight of the fault for which we requeued the job, whether or not the job felt it."""

_ORDER = (
    records.Confidence.UNKNOWN,
    records.Confidence.POSSIBLE,
    records.Confidence.LIKELY,
    records.Confidence.CERTAIN,
)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One possible explanation of the end."""

    cause: str
    weight: float
    """0..1: how likely the claim explains the end."""
    at: datetime
    """Time of the fault's first sighting."""
    rule: str
    node: str | None = None
    device: str | None = None
    gpu: str | None = None
    evidence: tuple[records.HealthEvent, ...] = ()
    """Strongest first."""
    cap: records.Confidence = records.Confidence.CERTAIN
    nodes: frozenset[str] = frozenset()
    """Nodes that show the fault."""
    n_sources: int = 0
    words: str = ""
    """What happened, for the summary, if the cause's own sentence does not fit."""
    sentence: str = ""
    """The whole summary, if neither the cause's own sentence nor `words` fits."""
    next_step: str = ""
    """What to do, if the cause's own next step does not fit."""
    explains: frozenset[str] = frozenset()
    """Causes that it explains beside those that its cause leads to."""
    domain: records.Domain | None = None
    """The domain, if the cause's own domain claims more than the evidence shows; None = the cause's own."""
    component: str = ""
    """The component, if it is a more specific one than the cause's own."""
    proven: bool = False
    """True if the end itself was observed: another fault does not lower the confidence."""
    by_elimination: bool = False
    """True if only the way the job ended suggests it: any fault that may have caused that end replaces it."""

    @property
    def info(self) -> taxonomy.Cause:
        """The cause's row of the taxonomy."""
        return taxonomy.cause(self.cause)

    @property
    def confidence(self) -> records.Confidence:
        """The confidence that its weight and cap earn."""
        return less_confident(word_of(self.weight), self.cap)


def replace_claim(claim: Claim, **changes: object) -> Claim:
    """A copy of the claim with these fields changed; `dataclasses.replace` takes four times as long."""
    if not changes.keys() <= vars(claim).keys():
        raise TypeError(f"a claim has no field {min(changes.keys() - vars(claim).keys())}")
    return records.of_checked(Claim, {**vars(claim), **changes})


def word_of(weight: float) -> records.Confidence:
    """The confidence that a weight earns."""
    rounded = round(weight, 6)
    if rounded >= CERTAIN:
        return records.Confidence.CERTAIN
    if rounded >= LIKELY:
        return records.Confidence.LIKELY
    return records.Confidence.POSSIBLE if rounded >= POSSIBLE else records.Confidence.UNKNOWN


def less_confident(a: records.Confidence, b: records.Confidence) -> records.Confidence:
    """The less sure of two confidences."""
    return min(a, b, key=_ORDER.index)


def rank_of(word: records.Confidence) -> int:
    """0 for unknown to 3 for certain."""
    return _ORDER.index(word)


def one_below(word: records.Confidence) -> records.Confidence:
    """The confidence one step lower, but not below possible; unknown stays unknown."""
    return _ORDER[max(1, _ORDER.index(word) - 1)] if word is not _ORDER[0] else word


def weigh(sighting: evidence_view.CaseSighting) -> float:
    """Weight of one sighting by itself, 0..1."""
    signature = sighting.signature
    if signature.role not in (signatures.Role.ROOT, signatures.Role.WEAK) or sighting.after_own_action:
        return 0.0
    weight = signature.lethality
    if signature.role is signatures.Role.WEAK:
        weight = min(weight, 0.6)
    if sighting.hold is gpus.PartCertainty.WHOLE:
        weight = min(weight, 0.93)
    elif sighting.hold is gpus.PartCertainty.MAYBE:
        # A job on one node uses a link for its storage only.
        link = signature.scope is signatures.Scope.LINK
        weight = weight * 0.5 if link else min(weight * 0.75, 0.7)
    if sighting.still_active:
        weight = min(weight, 0.95)
    if sighting.when is evidence_view.EventPhase.BEFORE_START:
        if not taxonomy.cause(signature.cause).persistent:
            return 0.0
        weight = min(weight * 0.7, 0.7)
    elif sighting.of_later_attempt:
        return 0.0
    elif sighting.when is evidence_view.EventPhase.AFTER_END:
        weight *= 0.9 if sighting.event.source in vocabulary.POLLED_SOURCES else 0.6
    return weight


def combine(weights: Sequence[float]) -> float:
    """Combined weight of independent sources, with diminishing returns."""
    ordered = sorted(weights, reverse=True)
    total = ordered[0] if ordered else 0.0
    for weight in ordered[1:]:
        total += 0.5 * (1.0 - total) * weight
    return total


def channel(source: str) -> str:
    """The channel of a source: sources that read the same kernel log count as one."""
    return "kernel" if source in vocabulary.KERNEL_LOG_SOURCES else source


def raise_by_job_side(weight: float, view: evidence_view.EvidenceView, cause: str) -> float:
    """`weight`, raised if the job side's findings are what this cause would produce."""
    best = 1.0
    for found in view.findings:
        if not found.signature.supports(cause):
            continue
        if found.signature.role is findings.FindingRole.HINT:
            best = min(best, 0.4)
        elif found.signature.role is findings.FindingRole.PROXIMAL and weight >= POSSIBLE:
            # A generic failure message supports only a cause that already has weight.
            best = min(best, 0.7)
    return 1.0 - (1.0 - weight) * best


def weaken_by_own_error(
    weight: float, lethality: float, view: evidence_view.EvidenceView, cause: str, at: datetime
) -> float:
    """`weight`, lowered if the program has an error of its own that this cause would not produce."""
    own = [
        f
        for f in view.findings
        if f.signature.role is findings.FindingRole.OWN
        and f.signature.weight >= LIKELY
        and not f.signature.supports(cause)
    ]
    if not own:
        return weight
    first = min((t for f in own if (t := findings.error_at(f.event)) is not None), default=None)
    if first is not None and first < at - timedelta(seconds=5):
        return weight * 0.5
    # A program may fail by its own mistake before it touches the part that is gone.
    no_file = findings.named("python_file_error")
    own_mistake = any(findings.is_surely_own(f.event) or f.signature is no_file for f in own)
    return weight * (0.93 if lethality >= recovery.LETHAL and not own_mistake else 0.6)


def collect(
    view: evidence_view.EvidenceView,
    cause: str,
    rule: str,
    sightings: Iterable[evidence_view.CaseSighting],
    adjust: Adjust | None = None,
) -> list[Claim]:
    """One claim per node and device among these sightings. `adjust` may change a sighting's weight before they are combined."""
    groups: dict[tuple[str, str], list[evidence_view.CaseSighting]] = {}
    for sighting in sightings:
        part = sighting.gpu or sighting.device or ""
        groups.setdefault((sighting.event.node, part), []).append(sighting)
    made = [_claim(view, cause, rule, node, group, adjust) for (node, _), group in sorted(groups.items())]
    made = [c for c in made if c.weight > 0]
    nodes = frozenset(c.node for c in made if c.node)
    return [c if c.nodes == nodes else replace_claim(c, nodes=nodes) for c in made]


def _claim(
    view: evidence_view.EvidenceView,
    cause: str,
    rule: str,
    node: str,
    group: Sequence[evidence_view.CaseSighting],
    adjust: Adjust | None,
) -> Claim:
    weighed = [(recovery.remaining_share(view, s) * weigh(s), s) for s in group]
    if adjust is not None:
        weighed = [(adjust(s, weight), s) for weight, s in weighed]
    weighed.sort(key=lambda one: (-one[0], one[1].at, one[1].event.event_id))
    ordered = [s for _, s in weighed]
    by_channel: dict[str, float] = {}
    for one, s in weighed:
        by_channel.setdefault(channel(s.event.source), max(one, 0.0))  # the strongest comes first
    first = ordered[0]
    weight = combine(list(by_channel.values()))
    if first.signature.role is signatures.Role.WEAK:
        weight = min(weight, 0.75)
    convicting = [s for one, s in weighed if one > 0]
    at = min((s.at for s in convicting), default=first.at)
    if weight > 0:
        # A fault that the program outlived by long does not explain its later error.
        # Neither does a GPU that it may not have held: a job without GPUs may share a node with jobs that have some.
        gpus_known = view.attempt.n_gpus is not None
        known = [
            s for s in convicting if not s.still_active and (gpus_known or s.hold is gpus.PartCertainty.HELD)
        ]
        lethality = max((s.signature.lethality for s in known), default=0.0)
        if _may_be_anothers(view, convicting):
            lethality = 0.0
        weight = weaken_by_own_error(raise_by_job_side(weight, view, cause), lethality, view, cause, at)
        if recovery.came_too_late(view, cause, convicting):
            weight *= recovery.LATE
        if any(recovery.is_outlived(view, s) for s in convicting):
            weight *= recovery.OUTLIVED
        weight = min(
            weight, _ceiling(convicting), max(POSSIBLE, recovery.no_accident(view, cause, node, convicting))
        )
    if view.requeue_event_ids and any(
        s.event.event_id in view.requeue_event_ids and s.signature.role is signatures.Role.ROOT for s in group
    ):
        weight = max(weight, ANSWERED)
    device = next((s.device for s in ordered if s.device), None)
    return Claim(
        cause=cause,
        weight=weight,
        at=at,
        rule=rule,
        node=node,
        device=device,
        gpu=next((s.gpu for s in ordered if s.gpu), None),
        # That the fault was over after the end says nothing about the end.
        evidence=tuple(s.event for s in ordered if not s.signature.recovery or s.at <= view.end_at),
        nodes=frozenset((node,)),
        n_sources=len(by_channel),
    )


def _may_be_anothers(
    view: evidence_view.EvidenceView, convicting: Sequence[evidence_view.CaseSighting]
) -> bool:
    """True if the job may not have held the part, and the program has an error that no part causes."""
    if any(s.hold is gpus.PartCertainty.HELD for s in convicting):
        return False
    return any(
        f.signature.role is findings.FindingRole.OWN and findings.is_surely_own(f.event)
        for f in view.findings
    )


def _ceiling(convicting: Sequence[evidence_view.CaseSighting]) -> float:
    """Upper bound of the weight: for weak signs, a part that the attempt may not have held, or a fault from before its start."""
    if all(
        s.hold is gpus.PartCertainty.MAYBE or s.signature.role is signatures.Role.WEAK for s in convicting
    ):
        return 0.79
    if all(s.when is evidence_view.EventPhase.BEFORE_START for s in convicting):
        return 0.79
    if all(s.hold in (gpus.PartCertainty.MAYBE, gpus.PartCertainty.WHOLE) for s in convicting):
        return 0.95
    return 1.0


def hints(view: evidence_view.EvidenceView, cause: str, rule: str, role: findings.FindingRole) -> list[Claim]:
    """At most one claim, from the job side's findings of `cause`; never a certain hardware verdict."""
    if not view.findings or _is_of_no_gpu(view, taxonomy.cause(cause)):
        return []
    hinting = [f for f in view.findings if f.signature.cause == cause and f.signature.role is role]
    if role is findings.FindingRole.HINT:  # an error that the program survived accuses no machine
        hinting = [f for f in hinting if f.event.detail.get("goes_on") is not True]
    if not hinting:
        return []
    hinting.sort(
        key=lambda f: (
            -f.signature.weight,
            f.event.detail.get("first_cause") is not True,
            f.event.at,
            f.event.event_id,
        )
    )
    return [of_findings(view, hinting, cause, rule)]


def _is_of_no_gpu(view: evidence_view.EvidenceView, info: taxonomy.Cause) -> bool:
    """True for a fault of a GPU under a job that held none: its text alone accuses no GPU."""
    return view.attempt.n_gpus == 0 and info.is_of_gpu


def of_findings(
    view: evidence_view.EvidenceView, found: Sequence[evidence_view.CaseFinding], cause: str, rule: str
) -> Claim:
    """The claim of job-side findings, the strongest given first."""
    first = found[0]
    node = None if first.signature.shortage else _named_node(view, first.event)
    times = [t for f in found if (t := findings.error_at(f.event)) is not None]
    return Claim(
        cause=cause,
        weight=first.signature.weight,
        at=min(times, default=view.end_at),
        rule=rule,
        node=node,
        device=None,
        evidence=tuple(f.event for f in found),
        cap=_hint_cap(view, cause, node),
        n_sources=1,
        words=first.event.message or first.signature.words,
        domain=records.Domain.UNKNOWN if first.signature.shortage else None,
        component=first.signature.component,
    )


_OF_KERNEL = frozenset({"filesystem_mount", "gpu_driver"})


def _hint_cap(view: evidence_view.EvidenceView, cause: str, node: str | None) -> records.Confidence:
    """Highest confidence that the job's side alone earns for `cause`.

    A fault of a machine, or of a server that its kernel uses, shows on the machine. If the machine was watched (or its log
    is at hand) and shows nothing, the job's text is possible at best. An agent that was away for a moment reads on in the kernel log.
    """
    domain = taxonomy.cause(cause).domain
    if domain is records.Domain.USER_PROGRAM:
        return records.Confidence.CERTAIN
    watched_in_window = {
        n for n, at in view.case.watched.items() if at is not None and at >= view.window.start_at
    }
    unseen = frozenset(view.unwatched_nodes) - view.logged_nodes - watched_in_window
    blind = node in unseen if node else bool(unseen)
    if (domain is records.Domain.HARDWARE or cause in _OF_KERNEL) and not blind:
        return records.Confidence.POSSIBLE
    return records.Confidence.LIKELY


def _named_node(view: evidence_view.EvidenceView, event: records.HealthEvent) -> str | None:
    """The node that a finding names, if it is one of the attempt's."""
    # A job's log is written on the first node, whichever rank printed the line.
    written = event.node if event.source != "joblog" or len(view.attempt.nodes) == 1 else None
    for name in (event.detail.get("culprit_node"), event.detail.get("host"), written):
        if isinstance(name, str) and name in view.attempt.nodes:
            return name
    return None
