"""How often verdicts were right, with exact bounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from scipy import special

from probing_cluster.core import records

LEVEL = 0.95
"""One-sided: the true share is beyond the bound with this confidence."""
INFRASTRUCTURE = frozenset({records.Domain.HARDWARE, records.Domain.SYSTEM_SOFTWARE})


@dataclass(frozen=True, kw_only=True)
class Judged:
    """One case and the verdict on it."""

    kind: str
    group: str
    shape: str
    noisy: bool
    path: str
    """live (as agents deliver it) or files (as `import` reads it)."""
    causes: tuple[str, ...]
    domain: records.Domain
    verdict_cause: str
    verdict_domain: records.Domain
    confidence: records.Confidence
    node_right: bool | None = None
    """Whether the node named is the one that was broken; None where none was."""
    note: str = ""

    @property
    def right(self) -> bool:
        """The cause is the true one."""
        return self.verdict_cause in self.causes

    @property
    def domain_right(self) -> bool:
        """The domain is the true one."""
        return self.verdict_domain is self.domain or self.right

    @property
    def blames_infrastructure(self) -> bool:
        """A verdict against hardware or system software."""
        return self.verdict_domain in INFRASTRUCTURE


@dataclass(frozen=True, kw_only=True)
class Share:
    """k of n, with one-sided Clopper–Pearson bounds."""

    k: int
    n: int

    @property
    def value(self) -> float | None:
        """k / n; None of nothing."""
        return self.k / self.n if self.n else None

    @property
    def low(self) -> float:
        """The lower bound."""
        return 0.0 if self.k == 0 else float(special.betaincinv(self.k, self.n - self.k + 1, 1 - LEVEL))

    @property
    def high(self) -> float:
        """The upper bound."""
        return 1.0 if self.k == self.n else float(special.betaincinv(self.k + 1, self.n - self.k, LEVEL))


def share(
    cases: Iterable[Judged], hit: Callable[[Judged], bool], among: Callable[[Judged], bool] = lambda _: True
) -> Share:
    """Of the cases in question, those that hit."""
    chosen = [c for c in cases if among(c)]
    return Share(k=sum(map(hit, chosen)), n=len(chosen))


def knowable(case: Judged) -> bool:
    """The cause can be known from what was written down."""
    return case.group != "silent"


def answered(case: Judged) -> bool:
    """The verdict names a cause."""
    return case.verdict_cause != "unknown"


def figures(cases: Sequence[Judged]) -> dict[str, tuple[Share, str, float]]:
    """Figure to (share, which bound counts, its goal)."""
    return {
        "cause, of all": (share(cases, lambda c: c.right, knowable), "low", 0.95),
        "domain, of all": (share(cases, lambda c: c.domain_right, knowable), "low", 0.97),
        "cause, of those answered": (share(cases, lambda c: c.right, answered), "low", 0.95),
        "domain, of those answered": (share(cases, lambda c: c.domain_right, answered), "low", 0.97),
        "infrastructure blamed for user bugs": (share(cases, lambda c: c.blames_infrastructure, lambda c: c.group == "bug"), "high", 0.005),
        "infrastructure faults found": (share(cases, lambda c: c.blames_infrastructure, lambda c: c.group == "fault"), "low", 0.97),
        "right node, where one was broken": (share(cases, lambda c: c.node_right is True, lambda c: c.node_right is not None and c.right), "low", 0.99),
        "silent cases left unknown": (share(cases, lambda c: c.verdict_cause == "unknown", lambda c: c.group == "silent"), "low", 0.0),
    }  # fmt: skip


GOALS = {records.Confidence.CERTAIN: 0.99, records.Confidence.LIKELY: 0.90, records.Confidence.POSSIBLE: 0.60}


def calibration(cases: Sequence[Judged]) -> dict[records.Confidence, Share]:
    """Of the verdicts said with each word, those that were right."""
    return {word: share(cases, lambda c: c.right, lambda c, w=word: c.confidence is w) for word in GOALS}  # type: ignore[misc]


def per_cause(cases: Sequence[Judged]) -> list[tuple[str, Share, Share]]:
    """Cause, precision and recall."""
    words = sorted({c.causes[0] for c in cases} | {c.verdict_cause for c in cases})
    return [
        (
            word,
            share(cases, lambda c: c.right, lambda c, w=word: c.verdict_cause == w),  # type: ignore[misc]
            share(cases, lambda c: c.right, lambda c, w=word: c.causes[0] == w),  # type: ignore[misc]
        )
        for word in words
    ]


def confusion(cases: Sequence[Judged]) -> Counter[tuple[str, str]]:
    """(true cause, verdict's cause) of every case; what is also right counts as the true one."""
    return Counter((c.causes[0], c.causes[0] if c.right else c.verdict_cause) for c in cases)


def text(cases: Sequence[Judged]) -> str:
    """Figures, calibration, what was taken for what, and every wrong verdict, a line each."""
    lines = []
    for name, (found, side, goal) in figures(cases).items():
        bound = found.low if side == "low" else found.high
        lines.append(f"  {name:38s} {found.k:5d} / {found.n:<5d} bound {bound:.4f} goal {goal}")
    for word, found in calibration(cases).items():
        lines.append(f"  {word:38s} {found.k:5d} / {found.n:<5d} bound {found.low:.4f} goal {GOALS[word]}")
    mixed = sorted((n, pair) for pair, n in confusion(cases).items() if pair[0] != pair[1])
    lines += [
        f"  taken for another: {true} for {verdict_cause}: {n}"
        for n, (true, verdict_cause) in reversed(mixed)
    ]
    lines += [
        f"  WRONG {c.kind} | {c.shape} | {c.path} | {c.causes[0]} -> {c.verdict_cause} {c.confidence} | {c.note[:400]}"
        for c in cases
        if not c.right
    ]
    return "\n".join(lines)
