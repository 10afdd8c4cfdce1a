"""Simulated fleets like RSC-1, with labels: which nodes are lemons, since when, and what the service would see.

2,000 nodes of 8 GPUs, 334 days, r_f = 6.5e-3 failures per node-day over all, 1.2 % lemons with the
paper's root-cause mix. Verdicts are noisy: some name nobody, a few name a wrong peer, some user
failures look like hardware. Users exclude nodes at random. Everything follows from one seed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

ROOT_CAUSES = {  # arXiv 2410.21680 Table II, shares
    "gpu": 0.282, "dimm": 0.205, "pcie": 0.154, "eud": 0.102, "nic": 0.077, "bios": 0.077, "psu": 0.051, "cpu": 0.026,
    "optics": 0.026,
}  # fmt: skip
SIGNS = {"gpu": 0.6, "dimm": 0.9, "pcie": 0.7, "nic": 0.8, "optics": 0.9}
"""Chance that a lemon of this cause also shows minor events (row remaps, correctable ECC, AER, link flaps)."""
SIGN_RATE, SIGN_RATE_BAD, HARMLESS_SIGNS = 0.02, 0.4, 0.04
"""Minor events per day of an ordinary node, of one that shows signs, and the share of healthy nodes that do, too."""
XIDS = {"gpu": 0.9, "pcie": 0.5, "eud": 0.3}
"""Chance that a failure of this cause also leaves an Xid."""


@dataclass(frozen=True, kw_only=True)
class Regime:
    """One kind of fleet."""

    name: str
    nodes: int = 2000
    days: int = 334
    lemon_share: float = 0.012
    healthy_rate: float = 1.9e-3
    """Failures per node-day in use of a healthy node."""
    lemon_rate: tuple[float, float] = (0.12, 0.8)
    """Range (log-uniform) of lemons' failures per node-day in use."""
    onset_frac: float = 0.6
    """Lemons' onsets are spread over this first part of the period."""
    named_frac: float = 0.6
    """Hardware failures whose verdict names the node."""
    wrong_frac: float = 0.03
    """Of those, how many name a peer instead."""
    user_noise_per_day: float = 0.7
    """User failures a day, fleet-wide, that are taken for hardware and name a node."""
    unknown_gangs_per_day: float = 6.0
    """Gang failures a day that are nobody's hardware and name nobody."""
    load_sigma: float = 0.35
    """Scatter of nodes' use."""
    rate_sigma: float = 0.6
    """Scatter of healthy nodes' rates."""


@dataclass
class Failure:
    """One failed attempt."""

    day: float
    nodes: np.ndarray
    named: int
    """Index of the node the verdict names; -1 for none."""
    weight: float
    """Confidence of the verdict, or for an unnamed one the chance that hardware did it."""
    xid: int
    culprit: int
    """The truth; -1 for a user's failure."""


@dataclass
class Fleet:
    """A simulated history with its truth."""

    regime: Regime
    lemon: np.ndarray
    onset: np.ndarray
    """Day a lemon turned bad; inf for healthy nodes."""
    rate: np.ndarray
    use: np.ndarray
    """Node-days in use per calendar day."""
    failures: list[Failure] = field(default_factory=list)
    jobs: np.ndarray = field(default_factory=lambda: np.zeros(0))
    single_jobs_per_day: np.ndarray = field(default_factory=lambda: np.zeros(0))
    excludes: np.ndarray = field(default_factory=lambda: np.zeros(0))
    minor: np.ndarray = field(default_factory=lambda: np.zeros(0))
    """Minor events by day and node."""


# (nodes of the job, share of GPU time): RSC-1's mix, 66 % of GPU time in jobs of 256 GPUs and more.
SIZES = np.array([1, 2, 4, 8, 16, 32, 64, 128, 256, 512])
GPU_TIME = np.array([0.10, 0.05, 0.06, 0.06, 0.07, 0.16, 0.18, 0.16, 0.10, 0.06])


def simulate(regime: Regime, seed: int, removed: dict[int, float] | None = None) -> Fleet:
    """One fleet. `removed` maps node to the day it was taken out and repaired."""
    rng = np.random.default_rng(seed)
    n = regime.nodes
    lemon = np.zeros(n, bool)
    lemon[rng.choice(n, round(n * regime.lemon_share), replace=False)] = True
    onset = np.where(lemon, rng.uniform(0, regime.days * regime.onset_frac, n), np.inf)
    healthy = regime.healthy_rate * np.exp(rng.normal(0, regime.rate_sigma, n) - regime.rate_sigma**2 / 2)
    low, high = np.log(regime.lemon_rate)
    bad = np.exp(rng.uniform(low, high, n))
    use = np.clip(0.84 * np.exp(rng.normal(0, regime.load_sigma, n) - regime.load_sigma**2 / 2), 0.05, 1.0)
    cause = rng.choice(
        list(ROOT_CAUSES), n, p=np.array(list(ROOT_CAUSES.values())) / sum(ROOT_CAUSES.values())
    )
    fleet = Fleet(regime=regime, lemon=lemon, onset=onset, rate=bad, use=use)
    fleet.single_jobs_per_day = use * 3.2
    fleet.excludes = rng.poisson(0.4, (regime.days, n))
    shows = rng.random(n) < np.where(lemon, np.vectorize(lambda c: SIGNS.get(c, 0.0))(cause), HARMLESS_SIGNS)
    since = np.where(lemon, onset, 0.0)
    signs = np.where(
        shows[None, :] & (np.arange(regime.days)[:, None] >= since[None, :]), SIGN_RATE_BAD, SIGN_RATE
    )
    fleet.minor = rng.poisson(signs)
    for node in range(n):
        _hardware(fleet, node, healthy[node], cause[node], np.random.default_rng([seed, node]), removed or {})
    _noise(fleet, np.random.default_rng([seed, n + 1]))
    fleet.failures.sort(key=lambda f: f.day)
    return fleet


def _hardware(
    fleet: Fleet, node: int, healthy: float, cause: str, rng: np.random.Generator, removed: dict[int, float]
) -> None:
    regime, use = fleet.regime, fleet.use[node]
    spans = [(0.0, float(regime.days), healthy)]
    if fleet.lemon[node]:
        end = min(removed.get(node, regime.days), regime.days)
        spans.append((float(fleet.onset[node]), float(end), fleet.rate[node]))
    for start, end, rate in spans:
        for _ in range(rng.poisson(max(end - start, 0) * use * rate)):
            _fail(fleet, node, float(rng.uniform(start, end)), cause, rng)


def _gang(fleet: Fleet, node: int, rng: np.random.Generator) -> np.ndarray:
    size = int(rng.choice(SIZES, p=GPU_TIME / GPU_TIME.sum()))
    if size == 1:
        return np.array([node])
    start = rng.integers(0, fleet.regime.nodes)
    others = (start + np.arange(size)) % fleet.regime.nodes
    return np.unique(np.append(others[others != node][: size - 1], node))


def _fail(fleet: Fleet, node: int, day: float, cause: str, rng: np.random.Generator) -> None:
    regime = fleet.regime
    nodes = _gang(fleet, node, rng)
    named, weight = -1, 0.6
    if rng.random() < regime.named_frac:
        wrong = nodes.size > 1 and rng.random() < regime.wrong_frac
        named = int(rng.choice(nodes[nodes != node])) if wrong else node
        weight = float(rng.choice([0.99, 0.9, 0.6], p=[0.5, 0.35, 0.15]))
    elif nodes.size == 1:
        weight = 0.3  # a single-node job that died of nothing seen: usually the user's own
    xid = int(rng.integers(1, 6)) if rng.random() < XIDS.get(cause, 0.05) else 0
    fleet.failures.append(Failure(day, nodes, named, weight, xid, node))


def _noise(fleet: Fleet, rng: np.random.Generator) -> None:
    regime = fleet.regime
    busy = fleet.use / fleet.use.sum()
    for _ in range(rng.poisson(regime.user_noise_per_day * regime.days)):
        node = int(rng.choice(regime.nodes, p=busy))
        weight = float(rng.choice([0.99, 0.9, 0.6], p=[0.05, 0.25, 0.7]))
        fleet.failures.append(
            Failure(float(rng.uniform(0, regime.days)), _gang(fleet, node, rng), node, weight, 0, -1)
        )
    for _ in range(rng.poisson(regime.unknown_gangs_per_day * regime.days)):
        node = int(rng.choice(regime.nodes, p=busy))
        nodes = _gang(fleet, node, rng)
        fleet.failures.append(
            Failure(float(rng.uniform(0, regime.days)), nodes, -1, 0.6 if nodes.size > 1 else 0.3, 0, -1)
        )


REGIMES = (
    Regime(name="rsc1"),
    Regime(name="weak", lemon_rate=(0.06, 0.25)),
    Regime(
        name="noisy", user_noise_per_day=2.5, unknown_gangs_per_day=15.0, named_frac=0.45, wrong_frac=0.08
    ),
    Regime(name="scattered", load_sigma=0.8, rate_sigma=0.9),
    Regime(name="small", nodes=250, user_noise_per_day=0.15, unknown_gangs_per_day=1.0),
    Regime(name="none", lemon_share=0.0),
    Regime(
        name="none-noisy", lemon_share=0.0, user_noise_per_day=2.5, unknown_gangs_per_day=15.0, rate_sigma=0.9
    ),
)
