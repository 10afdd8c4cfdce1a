"""Calibrates the score by people's confirmations and denials, once there are enough.

Platt's map, logit p' = slope · logit p + shift, with a prior near the identity: twenty answers change it a little, two
hundred as far as they demand (Platt 1999).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
import numpy.typing as npt
from scipy import optimize, special

from probing_cluster.core import records

Floats = npt.NDArray[np.float64]

MIN_LABELS = 20
"""Least answers before the map is fitted."""
MIN_EACH = 5
"""Least answers of either kind: confirmations alone show no false alarms."""
MOST_LOGIT = 6.0
"""Largest log odds of a score: 0.9999 and 0.999999 cannot be told apart."""
_SLOPE_SIGMA, _SHIFT_SIGMA = 0.5, 1.0
_DAY = timedelta(days=1)
"""Time that a score covers, from its `day` on."""
_LEAST_SLOPE = 0.1
"""Least slope: the map never reverses the order."""


@dataclass(frozen=True, kw_only=True)
class Label:
    """A person's answer about a node, and the model's probability for the last whole day before it.

    The score of the answer's own day is made the night after, from data that include the answer.
    """

    node: str
    at: datetime
    confirmed: bool
    probability: float


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """The map and the answers behind it."""

    slope: float = 1.0
    shift: float = 0.0
    n_confirmed: int = 0
    n_denied: int = 0
    since: datetime | None = None
    """Time of the first answer."""
    fitted: bool = False

    def apply(self, probability: Floats) -> Floats:
        """Calibrated probabilities."""
        if not self.fitted:
            return probability
        answer: Floats = special.expit(self.slope * _logit(probability) + self.shift)
        return answer

    def sentence(self) -> str:
        """Sentence about the answers that the score is calibrated on."""
        answers = f"{self.n_confirmed} confirmed and {self.n_denied} denied"
        if not self.fitted:
            return f"Not recalibrated: {answers} so far; {MIN_LABELS} answers are needed, {MIN_EACH} of either kind."
        since = f" since {self.since:%Y-%m-%d}" if self.since else ""
        return (
            f"Recalibrated on {answers}{since}: slope {self.slope:.2f}, shift {self.shift:+.2f} in log odds."
        )


def labels(
    notes: Iterable[records.OperatorNote], scores: Mapping[str, Sequence[records.LemonScore]]
) -> list[Label]:
    """Every confirm and deny with the score before it; a later answer to the same score replaces an earlier one."""
    found: dict[tuple[str, datetime], Label] = {}
    for note in sorted(notes, key=lambda n: n.at):
        kind, _, node = note.subject.partition(":")
        if note.action not in ("confirm", "deny") or kind != "node":
            continue
        before = [s for s in scores.get(node, ()) if s.day + _DAY <= note.at]
        if not before:
            continue
        answered = max(before, key=lambda s: s.day)
        found[node, answered.day] = Label(
            node=node,
            at=note.at,
            confirmed=note.action == "confirm",
            probability=float(answered.signals.get("model", answered.score)),
        )
    return list(found.values())


def fit(given: Sequence[Label]) -> Calibration:
    """The map fitted to these answers; the identity if there are too few."""
    yes = sum(label.confirmed for label in given)
    no = len(given) - yes
    since = min((label.at for label in given), default=None)
    if len(given) < MIN_LABELS or min(yes, no) < MIN_EACH:
        return Calibration(n_confirmed=yes, n_denied=no, since=since)
    logit = _logit(np.array([label.probability for label in given]))
    sign = np.where([label.confirmed for label in given], 1.0, -1.0)

    def loss(x: Floats) -> float:
        fitted = np.logaddexp(0.0, -sign * (x[0] * logit + x[1])).sum()
        return float(fitted + ((x[0] - 1) / _SLOPE_SIGMA) ** 2 / 2 + (x[1] / _SHIFT_SIGMA) ** 2 / 2)

    found = optimize.minimize(loss, np.array([1.0, 0.0]), method="L-BFGS-B", bounds=[(_LEAST_SLOPE, None), (None, None)])  # fmt: skip
    return Calibration(
        slope=float(found.x[0]),
        shift=float(found.x[1]),
        n_confirmed=yes,
        n_denied=no,
        since=since,
        fitted=True,
    )


def _logit(probability: Floats) -> Floats:
    answer: Floats = np.clip(special.logit(probability), -MOST_LOGIT, MOST_LOGIT)
    return answer
