"""Simulated fleets like RSC-1, with labels: which nodes are lemons, since when, and what the service would see.

What is published (arXiv 2410.21680) and used as it stands: 2,000 nodes of 8 GPUs, 334 days, 83 % use,
r_f = 6.5e-3 failures per node-day, 1.2 % lemons, their root causes (Table II), 66 % of GPU time in jobs
of 256 GPUs and more, large jobs failing 14 % of the time with the lemons and 4 % without (hence 10/14 of all
failures are theirs), exclusions by users uncorrelated with failures, 43 % of PCIe faults with an Xid,
20 nodes to a pod. Everything else is **our own assumption** and is marked so: ASSUMED.

Everything follows from one seed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

ROOT_CAUSES = {  # arXiv 2410.21680 Table II, shares
    "gpu": 0.282, "dimm": 0.205, "pcie": 0.154, "eud": 0.102, "nic": 0.077, "bios": 0.077, "psu": 0.051, "cpu": 0.026,
    "optics": 0.026,
}  # fmt: skip

CAUSES = ("ib_link", "mount", "gpu_memory", "pcie", "nvlink", "driver", "host_memory", "services")
CAUSE_SHARE = np.array([0.25, 0.15, 0.20, 0.15, 0.05, 0.08, 0.04, 0.08])
"""Ordinary failures by cause. The order is the paper's (Fig. 4); the figures are ASSUMED (not printed)."""
SLOTS = np.array([8, 1, 8, 8, 8, 8, 16, 1])
"""Parts of each kind in a node."""
OWN_CAUSE = {
    "gpu": "gpu_memory",
    "dimm": "host_memory",
    "pcie": "pcie",
    "eud": "driver",
    "nic": "ib_link",
    "optics": "ib_link",
}
"""What a lemon of this root cause shows as. BIOS, PSU and CPU have no part of their own: ASSUMED."""
XID_CODES = {
    "gpu_memory": (0.9, (48, 63, 94)),
    "pcie": (0.43, (79,)),
    "nvlink": (0.9, (74,)),
    "driver": (0.9, (62, 119)),
}
"""Chance of an Xid and which. PCIe: 43 % (RSC-1); the others ASSUMED."""

SIGNS = {"gpu": 0.6, "dimm": 0.9, "pcie": 0.7, "nic": 0.8, "optics": 0.9}
"""ASSUMED chance that a lemon also shows minor events (row remaps, correctable ECC, AER, link flaps)."""
SIGN_RATE, SIGN_RATE_BAD, HARMLESS_SIGNS = 0.02, 0.4, 0.04
"""ASSUMED minor events per day of an ordinary node, of one that shows signs, share of healthy nodes that do."""

# (nodes of the job, share of GPU time): RSC-1's mix, 66 % of GPU time in jobs of 256 GPUs and more.
SIZES = np.array([1, 2, 4, 8, 16, 32, 64, 128, 256, 512])
GPU_TIME = np.array([0.10, 0.05, 0.06, 0.06, 0.07, 0.16, 0.18, 0.16, 0.10, 0.06])
POD = 20
"""Nodes that share a switch (2 nodes a rack, 10 racks a pod)."""


@dataclass(frozen=True, kw_only=True)
class Regime:
    """One kind of fleet."""

    name: str
    nodes: int = 2000
    days: int = 334
    lemon_share: float = 0.012
    healthy_rate: float = 6.5e-3 * 4 / 14
    """Failures per node-day in use of a healthy node: r_f x 4/14."""
    lemon_rate: tuple[float, float] = (0.13, 0.86)
    """Range (log-uniform) of lemons' failures per node-day in use: mean r_f x 10/14 / 1.2 %. The spread is ASSUMED."""
    initial_frac: float = 0.3
    """ASSUMED share of lemons bad from the first day; the others turn bad over the first four fifths."""
    named_frac: float = 0.6
    """ASSUMED share of hardware failures whose verdict names the node ("many stay unattributed", insight 5)."""
    wrong_frac: float = 0.03
    """ASSUMED share of those that name a peer instead."""
    part_frac: float = 0.85
    """ASSUMED share of verdicts that know the part."""
    own_part: float = 0.8
    """ASSUMED share of a lemon's failures that show its own part; the others look like anybody's."""
    recur_frac: float = 0.15
    """ASSUMED share of failures, anybody's, that are seen again within a day or so, before anybody has looked."""
    user_noise: float = 3.5e-4
    """ASSUMED user failures per node-day that are taken for hardware and name a node; 30 % of them repeat."""
    unknown_gangs: float = 3.0e-3
    """ASSUMED job failures per node-day that are nobody's hardware and name nobody."""
    load_sigma: float = 0.35
    """ASSUMED scatter of nodes' use."""
    rate_sigma: float = 0.6
    """ASSUMED scatter of healthy nodes' rates."""
    cycle_days: float = 0.0
    """Lemons that come and go: mean length of their bad and of their quiet spells; 0 = always bad."""
    mended_per_day: float = 0.0
    """Lemons mended by the ordinary repair flow, without anybody telling the score."""
    incidents: int = 0
    """Pods of 20 nodes that fail together for some days (a switch), and are nobody's lemon."""


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """A simulated history with its truth. Failure arrays are sorted by `day`, one entry per failed attempt."""

    regime: Regime
    lemon: np.ndarray
    onset: np.ndarray
    """Day a lemon turned bad; inf for healthy nodes."""
    mended: np.ndarray
    """Day it was mended; inf for never."""
    rate: np.ndarray
    """Failures per node-day in use of each lemon while it is bad."""
    healthy: np.ndarray
    """The same of each node while it is healthy."""
    use: np.ndarray
    """Node-days in use per calendar day."""
    day: np.ndarray
    named: np.ndarray
    """Index of the node the verdict names; -1 for none."""
    weight: np.ndarray
    """Confidence of the verdict, or for an unnamed one the chance that hardware did it."""
    part: np.ndarray
    cause: np.ndarray
    xid: np.ndarray
    size: np.ndarray
    """Nodes of the job."""
    culprit: np.ndarray
    """The truth; -1 for a user's failure."""
    gangs: list[np.ndarray | None] = field(repr=False)
    """The job's nodes where nobody is named."""
    excludes: np.ndarray
    outs: np.ndarray
    """Times taken out of scheduling, by day and node."""
    tickets: np.ndarray
    minor: np.ndarray
    """Minor events by day and node."""
    spells: np.ndarray
    """(days, nodes): whether a lemon is failing that day."""


def simulate(regime: Regime, seed: int) -> Fleet:
    """One fleet."""
    rng = np.random.default_rng([seed, 7])
    n, days = regime.nodes, regime.days
    lemon = np.zeros(n, bool)
    lemon[rng.choice(n, round(n * regime.lemon_share), replace=False)] = True
    onset = np.where(rng.random(n) < regime.initial_frac, 0.0, rng.uniform(0, 0.8 * days, n))
    onset = np.where(lemon, onset, np.inf)
    lasts = rng.exponential(1 / regime.mended_per_day, n) if regime.mended_per_day else np.full(n, np.inf)
    mended = np.where(lemon, onset + lasts, np.inf)
    healthy = regime.healthy_rate * np.exp(rng.normal(0, regime.rate_sigma, n) - regime.rate_sigma**2 / 2)
    bad = np.exp(rng.uniform(*np.log(regime.lemon_rate), n))
    use = np.clip(0.83 * np.exp(rng.normal(0, regime.load_sigma, n) - regime.load_sigma**2 / 2), 0.05, 1.0)
    names = list(ROOT_CAUSES)
    root = np.array(names)[rng.choice(len(names), n, p=_shares(ROOT_CAUSES))]
    spells = _spells(regime, lemon, onset, mended, rng)
    failures = _hardware(regime, healthy, np.where(spells, bad[None, :], 0.0), use, root, rng)
    failures = _concat([failures, *_noise(regime, use, rng), *_incidents(regime, rng)])
    failures = _concat([failures, _again(regime, failures, rng)])
    failures = {k: v[failures["day"] < days] for k, v in failures.items()}
    failures = {k: v[np.argsort(failures["day"], kind="stable")] for k, v in failures.items()}
    gangs = [_gang(use, int(s), int(c), rng) if w < 0 else None for s, c, w in zip(failures["size"], failures["at"], failures["named"], strict=True)]  # fmt: skip
    outs, tickets = _operations(regime, failures, rng)
    return Fleet(
        regime=regime,
        lemon=lemon,
        onset=onset,
        mended=mended,
        rate=bad,
        healthy=healthy,
        use=use,
        gangs=gangs,
        excludes=rng.poisson(0.4, (days, n)).astype(np.int16),
        outs=outs,
        tickets=tickets,
        minor=_minor(regime, lemon, onset, mended, root, rng),
        spells=spells,
        **{k: failures[k] for k in ("day", "named", "weight", "part", "cause", "xid", "size", "culprit")},
    )


def _shares(weights: dict[str, float]) -> np.ndarray:
    values = np.array(list(weights.values()))
    return values / values.sum()


def _spells(regime: Regime, lemon, onset, mended, rng: np.random.Generator) -> np.ndarray:
    """When lemons fail: from onset until mended, in spells where they come and go."""
    day = np.arange(regime.days)[:, None]
    bad = lemon[None, :] & (day >= np.floor(onset)[None, :]) & (day < mended[None, :])
    if regime.cycle_days:
        for node in np.flatnonzero(lemon):
            start = min(int(onset[node]), regime.days)
            lengths = np.maximum(1, rng.exponential(regime.cycle_days, 200).astype(int))
            on = np.repeat(np.arange(200) % 2 == 0, lengths)
            on = np.concatenate([on, np.ones(regime.days, bool)])
            bad[start:, node] &= on[: regime.days - start]
    return bad


def _rows(count: int, **columns) -> dict[str, np.ndarray]:
    """A table of failures; what is not given is unknown."""
    table = {
        "day": np.zeros(count), "at": np.zeros(count, np.int64), "culprit": np.full(count, -1), "size": np.ones(count, np.int64),
        "named": np.full(count, -1), "weight": np.full(count, 0.6), "part": np.full(count, -1), "cause": np.full(count, -1),
        "xid": np.zeros(count, np.int64),
    }  # fmt: skip
    return table | columns


def _concat(tables: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {k: np.concatenate([t[k] for t in tables]) for k in tables[0]}


def _job_sizes(regime: Regime, count: int, rng: np.random.Generator) -> np.ndarray:
    sizes = rng.choice(SIZES, count, p=GPU_TIME / GPU_TIME.sum())
    return np.minimum(sizes, regime.nodes // 2)


def _hardware(regime: Regime, healthy, bad, use, root, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """True hardware failures, each with the verdict on it."""
    n = regime.nodes
    usual = rng.poisson(healthy[None, :] * use[None, :], (regime.days, n))
    lemons = rng.poisson(bad * use[None, :])
    day, node = np.nonzero(usual + lemons)
    times = (usual + lemons)[day, node]
    by_lemon = rng.random(times.sum()) < np.repeat(lemons[day, node] / times, times)
    day, node = np.repeat(day, times), np.repeat(node, times)
    count = day.size
    own_kind = np.array([CAUSES.index(OWN_CAUSE[r]) if r in OWN_CAUSE else -1 for r in root])
    own_slot = rng.integers(0, 1 << 20, n)
    kind = rng.choice(len(CAUSES), count, p=CAUSE_SHARE)
    slot = rng.integers(0, 1 << 20, count)
    shows_own = by_lemon & (own_kind[node] >= 0) & (rng.random(count) < regime.own_part)
    kind = np.where(shows_own, own_kind[node], kind)
    slot = np.where(shows_own, own_slot[node], slot) % SLOTS[kind]
    size = _job_sizes(regime, count, rng)
    is_named = rng.random(count) < regime.named_frac
    wrong = is_named & (size > 1) & (rng.random(count) < regime.wrong_frac)
    named = np.where(is_named, np.where(wrong, (node + rng.integers(1, n, count)) % n, node), -1)
    sure = rng.choice([0.99, 0.9, 0.6], count, p=[0.5, 0.35, 0.15])
    # A single-node job that died of nothing seen is usually the user's own.
    weight = np.where(is_named, sure, np.where(size > 1, 0.6, 0.3))
    return _rows(
        count, day=day + rng.random(count), at=node, culprit=node, size=size, named=named, weight=weight,
        part=np.where(is_named & (rng.random(count) < regime.part_frac), kind * 16 + slot, -1),
        cause=np.where(is_named, kind, -1), xid=np.where(is_named, _xids(kind, rng), 0),
    )  # fmt: skip


def _xids(kind: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    answer = np.zeros(kind.size, np.int64)
    for name, (chance, codes) in XID_CODES.items():
        hit = (kind == CAUSES.index(name)) & (rng.random(kind.size) < chance)
        answer[hit] = rng.choice(codes, hit.sum())
    return answer


def _noise(regime: Regime, use, rng: np.random.Generator) -> list[dict[str, np.ndarray]]:
    """Users' own failures: some taken for hardware, most naming nobody."""
    busy = use / use.sum()
    count = rng.poisson(regime.user_noise * regime.nodes * regime.days)
    node = rng.choice(regime.nodes, count, p=busy)
    kind = rng.choice(len(CAUSES), count, p=CAUSE_SHARE)
    taken = _rows(
        count, day=rng.uniform(0, regime.days, count), at=node, size=_job_sizes(regime, count, rng), named=node,
        weight=rng.choice([0.99, 0.9, 0.6], count, p=[0.05, 0.25, 0.7]), cause=kind,
        part=np.where(rng.random(count) < regime.part_frac, kind * 16 + rng.integers(0, 1 << 20, count) % SLOTS[kind], -1),
    )  # fmt: skip
    # A user's broken job comes back on the same node more often than a fault: 15 % on top of `recur_frac`.
    keep = rng.random(count) < 0.15
    again = {k: v[keep] for k, v in taken.items()}
    again["day"] = again["day"] + rng.exponential(0.5, keep.sum())
    count = rng.poisson(regime.unknown_gangs * regime.nodes * regime.days)
    size = _job_sizes(regime, count, rng)
    unknown = _rows(
        count, day=rng.uniform(0, regime.days, count), at=rng.choice(regime.nodes, count, p=busy), size=size,
        weight=np.where(size > 1, 0.6, 0.3),
    )  # fmt: skip
    return [taken, again, unknown]


def _again(
    regime: Regime, failures: dict[str, np.ndarray], rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """The same fault once more before it is looked at: the next job dies of it a little later."""
    hit = (rng.random(failures["day"].size) < regime.recur_frac) & (failures["named"] >= 0)
    again = {k: v[hit] for k, v in failures.items()}
    again["day"] = again["day"] + rng.exponential(0.5, hit.sum())
    return again


def _incidents(regime: Regime, rng: np.random.Generator) -> list[dict[str, np.ndarray]]:
    """A pod's switch goes bad for 2 to 10 days: its nodes' links fail 0.4 times a day each, and are named."""
    tables = []
    for _ in range(regime.incidents):
        pod = int(rng.integers(0, regime.nodes // POD))
        start, lasts = rng.uniform(0, regime.days - 10), rng.uniform(2, 10)
        count = rng.poisson(0.4 * POD * lasts)
        node = pod * POD + rng.integers(0, POD, count)
        slot = rng.integers(0, 8, count)
        tables.append(
            _rows(
                count, day=start + lasts * rng.random(count), at=node, size=_job_sizes(regime, count, rng), named=node,
                weight=rng.choice([0.99, 0.9, 0.6], count, p=[0.3, 0.5, 0.2]), cause=np.full(count, CAUSES.index("ib_link")),
                part=CAUSES.index("ib_link") * 16 + slot,
            )
        )  # fmt: skip
    return tables


def _gang(use: np.ndarray, size: int, member: int, rng: np.random.Generator) -> np.ndarray:
    """The job's nodes: half of the jobs in one block, half scattered (ASSUMED), a node as often as it is in use."""
    if size <= 1:
        return np.array([member])
    if rng.random() < 0.5:
        width = min(int(size / use.mean()) + 2, use.size)
        others = (member - int(rng.integers(0, width)) + np.arange(width)) % use.size
        others = rng.permutation(others)[: max(size, 1) * 2]
    else:
        others = rng.choice(use.size, min(2 * size, use.size), replace=False)
    others = others[(others != member) & (rng.random(others.size) < use[others])]
    return np.append(others[: size - 1], member)


def _operations(
    regime: Regime, failures: dict[str, np.ndarray], rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Times out of scheduling and tickets: half of sure verdicts, every third of those, and planned work. ASSUMED."""
    shape = (regime.days, regime.nodes)
    outs = rng.poisson(1 / 120, shape).astype(np.int16)
    tickets = rng.poisson(1 / 300, shape).astype(np.int16)
    sure = (failures["named"] >= 0) & (failures["weight"] > 0.95) & (rng.random(failures["day"].size) < 0.5)
    at = failures["day"][sure].astype(int), failures["named"][sure]
    np.add.at(outs, at, 1)
    ticket = rng.random(at[0].size) < 1 / 3
    np.add.at(tickets, (at[0][ticket], at[1][ticket]), 1)
    return outs, tickets


def _minor(regime: Regime, lemon, onset, mended, root, rng: np.random.Generator) -> np.ndarray:
    chance = np.where(lemon, [SIGNS.get(r, 0.0) for r in root], HARMLESS_SIGNS)
    shows = rng.random(regime.nodes) < chance
    day = np.arange(regime.days)[:, None]
    on = shows[None, :] & (~lemon[None, :] | ((day >= onset[None, :]) & (day < mended[None, :])))
    return rng.poisson(np.where(on, SIGN_RATE_BAD, SIGN_RATE)).astype(np.int16)


REGIMES = (
    Regime(name="rsc1"),
    Regime(name="weak", lemon_rate=(0.06, 0.25)),
    Regime(
        name="noisy",
        user_noise=1.25e-3,
        unknown_gangs=7.5e-3,
        named_frac=0.45,
        wrong_frac=0.08,
        part_frac=0.6,
        own_part=0.6,
    ),
    Regime(name="uneven", load_sigma=0.8, rate_sigma=0.9),
    Regime(name="small", nodes=200, lemon_share=0.02),
    Regime(name="come-and-go", cycle_days=20.0, mended_per_day=1 / 120),
    Regime(name="incidents", incidents=8),
    Regime(name="none", lemon_share=0.0),
    Regime(
        name="none-noisy",
        lemon_share=0.0,
        user_noise=1.25e-3,
        unknown_gangs=7.5e-3,
        rate_sigma=0.9,
        incidents=4,
    ),
)
