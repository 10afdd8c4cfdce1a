"""The score on a real history: GPUs of OLCF's Titan, 2014 to 2019, one GPU a node.

The file (Ostrouchov et al., SC20, "GPU lifetimes on Titan supercomputer") lists double-bit errors (DBE) and
GPUs off the bus (OTB) by card and location. Nobody labelled lemons, so the question is another: does the
score tell which locations will fail again? Asked twice. Every two months, of all locations, with what is
known that morning; and early, of each location at its second episode, when a count says the same of all of them.
"""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
from scipy import special

from probing_cluster.lemon import episodes, model

START = datetime(2014, 1, 1)  # noqa: DTZ001 (the file names no zone, and only days matter)
WINDOW_DAYS = 84
AHEAD_DAYS = 180
LANDMARKS = range(400, 1860, 60)
"""Days after START, every 60: from early 2015, when failures become frequent, to early 2019."""
FIRST = 10
CAUSES = ("DBE", "OTB")


@dataclass(frozen=True, kw_only=True)
class History:
    """Failures sorted by day; one entry per line that names an event."""

    day: np.ndarray
    location: np.ndarray
    """Index of the node."""
    card: np.ndarray
    cause: np.ndarray
    place: np.ndarray
    """Per location: its cabinet."""


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """How well an order foretells who fails again."""

    n_second: int
    failed: int
    auc: float
    """Chance that one that fails again stands above one that does not; 0.5 is chance."""
    low: float
    high: float
    """95 % bounds, from drawing cases anew."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Of the ten highest of each day."""

    first: int
    failed: int
    """How many of them fail again within half a year."""
    expected: float
    """How many would, were they any locations."""
    p_value: float
    """Of so many or more by chance (Poisson)."""


def read(path: Path) -> History:
    """The file as arrays."""
    with path.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    locations = {name: i for i, name in enumerate(sorted({r["location"] for r in rows}))}
    cabinets = {name: i for i, name in enumerate(sorted({loc.split("c")[1] for loc in locations}))}
    failed = sorted((r for r in rows if r["event"]), key=lambda r: r["remove"])
    cards = {name: i for i, name in enumerate(sorted({r["SN"] for r in failed}))}
    return History(
        day=np.array([(datetime.fromisoformat(r["remove"]) - START).total_seconds() / 86400 for r in failed]),
        location=np.array([locations[r["location"]] for r in failed]),
        card=np.array([cards[r["SN"]] for r in failed]),
        cause=np.array([CAUSES.index(r["event"]) for r in failed]),
        place=np.array([cabinets[loc.split("c")[1]] for loc in locations]),
    )


def scored(history: History, day: float) -> model.Scores:
    """What the run on that day believes, from the last twelve weeks."""
    first, last = np.searchsorted(history.day, [day - WINDOW_DAYS, day])
    n = history.place.size
    return model.score(
        model.LemonWindow(
            exposure_days=np.full(n, float(WINDOW_DAYS)),
            named=np.zeros(n),
            episodes=np.zeros(n, np.int64),
            days=np.zeros(n, np.int64),
            span_days=float(WINDOW_DAYS),
            failures=episodes.Failures(
                node=history.location[first:last],
                age_days=day - history.day[first:last],
                weight=np.full(last - first, 0.99),
                part=history.card[first:last],
                cause=history.cause[first:last],
            ),
            place=history.place,
        )
    )


def again(history: History, day: float) -> np.ndarray:
    """Per location: whether it fails in the following half year, two days from now or later."""
    first, last = np.searchsorted(history.day, [day + episodes.EPISODE_DAYS, day + AHEAD_DAYS])
    answer = np.zeros(history.place.size, bool)
    answer[history.location[first:last]] = True
    return answer


def second_episodes(history: History) -> Iterator[tuple[int, float]]:
    """(location, the morning after its second episode within the window)."""
    for location in np.unique(history.location):
        days = history.day[history.location == location]
        starts = [days[0]]
        for day in days[1:]:
            if day - starts[-1] > episodes.EPISODE_DAYS:
                starts.append(day)
        for before, this in itertools.pairwise(starts):
            if this - before < WINDOW_DAYS - 1 and this + AHEAD_DAYS < history.day[-1]:
                yield int(location), float(np.floor(this) + 1)
                break


def compare(history: History, landmarks: Iterable[int] = LANDMARKS) -> Comparison:
    """All locations on these days: do those that the score puts first fail again more often than others?"""
    first = failed = 0
    usual = 0.0
    for day in landmarks:
        truth = again(history, day)
        top = np.argsort(-scored(history, day).probability, kind="stable")[:FIRST]
        first += FIRST
        failed += int(truth[top].sum())
        usual += FIRST * float(truth.mean())
    return Comparison(
        first=first, failed=failed, expected=usual, p_value=float(special.gammainc(failed, usual))
    )


def early(history: History) -> Ranking:
    """Locations at their second episode."""
    cases = list(second_episodes(history))
    values = [float(scored(history, day).probability[location]) for location, day in cases]
    truths = [bool(again(history, day)[location]) for location, day in cases]
    return ranking(np.array(values), np.array(truths))


def ranking(values: np.ndarray, truths: np.ndarray, draws: int = 500) -> Ranking:
    """AUC with bounds from drawing cases anew."""
    rng = np.random.default_rng(3)
    drawn = [_auc(values[rows], truths[rows]) for rows in rng.integers(0, values.size, (draws, values.size))]
    low, high = np.nanquantile(drawn, [0.025, 0.975])
    return Ranking(
        n_second=values.size,
        failed=int(truths.sum()),
        auc=_auc(values, truths),
        low=float(low),
        high=float(high),
    )


def _auc(values: np.ndarray, truths: np.ndarray) -> float:
    """Chance that one that fails again stands above one that does not, ties counted half."""
    bad = int(truths.sum())
    if bad in (0, truths.size):
        return float("nan")
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = counts.cumsum() - (counts - 1) / 2
    above = ranks[place][truths].sum() - bad * (bad + 1) / 2
    return float(above / (bad * (truths.size - bad)))
