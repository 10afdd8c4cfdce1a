"""Counted swaps against a drawn history with known swaps."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest
from scipy import special

from probing_cluster.attribution.reliability import fleet
from probing_cluster.core import records

T0 = datetime(2026, 3, 1, tzinfo=UTC)
SINCE, UNTIL = T0, T0 + timedelta(days=60)
N_NODES = 6


def drawn(seed: int) -> tuple[list[records.JobAttempt], dict[str, int], dict[str, set[str]]]:
    """Six nodes of eight cards, some swapped in an idle hour at midnight; attempts of one to eight cards; the swaps and the cards of each node."""
    rng = random.Random(seed)
    attempts, swaps, cards = [], {}, {}
    spare: list[str] = []
    slots = {f"n{n}": [f"GPU-{seed}-{n}-{g}" for g in range(8)] for n in range(N_NODES)}
    cards = {node: set(held) for node, held in slots.items()}
    swaps = dict.fromkeys(slots, 0)
    for day in range(60):
        for node, slot_cards in slots.items():
            if 10 < day < 50 and rng.random() < 0.02:
                slot = rng.randrange(8)
                # Every third time a card that left another node before.
                fresh = spare.pop() if spare and rng.random() < 0.3 else f"GPU-{seed}-{node}-{day}-new"
                spare.append(slot_cards[slot])
                slot_cards[slot] = fresh
                cards[node].add(fresh)
                swaps[node] += 1
            for hour in range(1, 23, 3):
                start = T0 + timedelta(days=day, hours=hour)
                held = rng.sample(slot_cards, rng.choice((1, 2, 8, 8)))
                attempts.append(
                    records.JobAttempt(
                        cluster="c", job_id=len(attempts) + 1, submit_at=start, start_at=start, end_at=start + timedelta(hours=2),
                        state="COMPLETED", nodes=(node,), n_gpus=len(held), gpus={node: tuple(held)}, user="u", run_key=str(len(attempts)),
                    )
                )  # fmt: skip
    return attempts, swaps, cards


@pytest.mark.parametrize("seed", [1, pytest.param(3, marks=pytest.mark.soak)])
def test_every_swap_is_counted_once(store, seed):
    """Also of a card that came back, or from another node; nodes without a swap are not listed."""
    attempts, swaps, cards = drawn(seed)
    store.upsert_attempts(attempts)
    found = fleet.gpu_swaps(store, SINCE, UNTIL)
    assert {n.node: n.n_swaps for n in found.nodes} == {n: k for n, k in swaps.items() if k}
    assert sum(swaps.values()) == found.n_swaps > 3
    for node in found.nodes:
        elsewhere = {c for other, held in cards.items() if other != node.node for c in held}
        assert (node.n_uuids, node.n_at_once, node.n_moved) == (
            len(cards[node.node]),
            8,
            len(cards[node.node] & elsewhere),
        )
    days = N_NODES * (59 + 22 / 24)
    assert found.node_days == pytest.approx(days, rel=0.01)
    assert found.per_node_day == pytest.approx(found.n_swaps / found.node_days)
    high = next(x / 100 for x in range(100, 10_000) if special.pdtr(found.n_swaps, x / 100) <= 0.025)
    assert found.high_per_node_day == pytest.approx(high / found.node_days, rel=0.01)


def test_a_sample_of_the_jobs_finds_them_too(store):
    """A third of the jobs; nothing known is no rate."""
    attempts, swaps, _ = drawn(1)
    store.upsert_attempts(attempts)
    found = fleet.gpu_swaps(store, SINCE, UNTIL, most=len(attempts) // 3)
    assert found.n_swaps == sum(swaps.values())
    none = fleet.gpu_swaps(store, SINCE, UNTIL, partition="nowhere")
    assert (none.n_swaps, none.n_watched, none.per_node_day) == (0, 0, None)


@pytest.mark.parametrize("jobs_a_day", [0.3, 1, 3])
def test_cards_that_few_jobs_are_given_are_no_swaps(store, jobs_a_day):
    """Sixty nodes of eight cards, none swapped, with jobs of one to four of them: a card that was seen in March alone was not taken out."""
    rng = random.Random(5)
    attempts = []
    for node in range(60):
        for _ in range(round(28 * jobs_a_day)):
            start = T0 + timedelta(hours=28 * 24 * rng.random())
            held = [f"GPU-{node}-{g}" for g in rng.sample(range(8), rng.choice((1, 1, 1, 2, 4)))]
            attempts.append(of_cards(len(attempts) + 1, start, f"n{node}", held))
    store.upsert_attempts(attempts)
    found = fleet.gpu_swaps(store, SINCE, UNTIL)
    assert found.n_swaps == 0
    assert found.n_watched + found.n_unclear == 60
    assert (found.n_watched > 55) is (jobs_a_day == 3)


def test_a_selection_is_of_nodes_and_not_of_what_was_in_them(store):
    """Bob's two jobs held two cards of a node whose eight were all there, by alice's jobs."""
    eight = [f"GPU-{g}" for g in range(8)]
    jobs = [of_cards(n, T0 + timedelta(days=n), "n1", eight, user="alice") for n in range(1, 8)]
    jobs += [of_cards(n, T0 + timedelta(days=n), "n1", eight[n - 20 : n - 19], user="bob") for n in (20, 27)]
    jobs.append(of_cards(40, T0 + timedelta(days=5), "n2", eight, user="alice"))
    store.upsert_attempts(jobs)
    found = fleet.gpu_swaps(store, SINCE, UNTIL, users=["bob"])
    assert (found.n_swaps, found.n_watched, found.n_unclear) == (0, 1, 0)
    assert found.node_days == pytest.approx(26, abs=0.2)


def of_cards(job_id, start, node, cards, user="u"):
    """Two hours of these cards."""
    return records.JobAttempt(
        cluster="c", job_id=job_id, submit_at=start, start_at=start, end_at=start + timedelta(hours=2), state="COMPLETED",
        nodes=(node,), n_gpus=len(cards), gpus={node: tuple(cards)}, user=user, run_key=str(job_id),
    )  # fmt: skip
