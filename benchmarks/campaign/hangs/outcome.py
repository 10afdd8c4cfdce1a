"""One run of one case and what came of it, as a line of the file that runs are gathered in."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from probing_cluster.sandbox import gangs

NOTHING = "(nobody named)"
HEALTHY_HOUR = "healthy"
CASES = (*gangs.HANGS, *gangs.ENDS, *gangs.HEALTHY, gangs.SLOW, *gangs.BROKEN)
EXPECTED: dict[str, tuple[str, ...]] = {**gangs.HANGS, **gangs.BROKEN, **gangs.ENDS}
"""Of each case that goes wrong: kind or cause, domain, and what else there is."""
_NAMED = "said"
"""The key under which the file of runs has `Outcome.named`."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What was reported of one gang."""

    case: str
    named: str
    """The kind named first while it ran; of cases that end by themselves the verdict's cause; `slow`; NOTHING."""
    ranks: tuple[int, ...] = ()
    node: str | None = None
    domain: str = ""
    after_s: float | None = None
    """Seconds from the gang's last progress to the naming; None where nothing was named live."""
    at: str = ""
    commit: str = ""
    load: float = 0.0
    """Of the machine, over a minute, when it ended."""
    noise: dict[str, float] = field(default_factory=dict)
    """See noise.measure."""
    minutes: float | None = None
    """How long a healthy gang was watched; None for all others."""
    false: dict[str, int] = field(default_factory=dict)
    """What was said of a healthy gang, by kind of event or verdict."""

    @classmethod
    def from_json(cls, line: str) -> Self:
        """A line of the file."""
        raw: dict[str, Any] = json.loads(line)
        raw |= {"named": raw.pop(_NAMED), "ranks": tuple(raw.get("ranks", ()))}
        return cls(**raw)

    def row(self) -> dict[str, Any]:
        """The fields under the keys of the file."""
        return {_NAMED if name == "named" else name: value for name, value in asdict(self).items()}

    def to_json(self) -> str:
        """A line of the file."""
        return json.dumps(self.row())

    def right(self) -> bool:
        """Kind (or cause), ranks, node and domain are those injected, and of the healthy nobody is named."""
        if self.case == HEALTHY_HOUR or self.case in gangs.HEALTHY:
            return self.named == NOTHING
        third = f"n{gangs.CULPRITS_NODE + 1}"
        if self.case == gangs.SLOW:
            return (self.named, self.ranks, self.node) == (gangs.SLOW, (5,), third)
        kind, domain = EXPECTED[self.case][:2]
        where = None if self.case in gangs.ENDS and domain == "user_program" else third
        ranks = self.case in gangs.ENDS or list(self.ranks) == gangs.culprits(self.case)
        return (self.named, self.domain, self.node) == (kind, domain, where) and ranks


def load(path: Path) -> list[Outcome]:
    """All runs gathered so far."""
    if not path.exists():
        return []
    return [Outcome.from_json(line) for line in path.read_text("utf-8").splitlines() if line]


def add(path: Path, outcome: Outcome) -> None:
    """Gathers one more."""
    with path.open("a", encoding="utf-8") as handle:
        handle.write(outcome.to_json() + "\n")


def missing(known: Iterable[Outcome], cases: Sequence[str], repeat: int) -> list[str]:
    """Which cases to run until each has `repeat` runs: in turns, those with the fewest first."""
    counts = Counter(o.case for o in known)
    wanted = [(turn, case) for case in cases for turn in range(counts[case], repeat)]
    return [case for _, case in sorted(wanted, key=lambda w: (w[0], cases.index(w[1])))]
