"""Utilisation of a training's GPUs against a sum by hand."""

from __future__ import annotations

import random

import pytest

from probing_cluster.attribution.reliability import mfu


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_step_is_its_tokens_over_what_the_gpus_could_do(seed):
    """Eight ranks that each count their own tokens; the slowest one's time counts."""
    rng = random.Random(seed)
    size, peak = 7e9, 989.0
    own, steps = [], []
    for step in range(30):
        for rank in range(8):
            own.append(
                {
                    "step": step,
                    "rank": rank,
                    "tokens": rng.randrange(10_000, 20_000),
                    "parameters": size,
                    "peak_tflops": peak,
                }
            )
            steps.append({"step": step, "rank": rank, "duration_s": rng.uniform(0.8, 1.2)})
    found = mfu.per_step(own, steps)
    assert [f.step for f in found] == list(range(30))
    for f in found:
        n = sum(r["tokens"] for r in own if r["step"] == f.step)
        slowest = max(r["duration_s"] for r in steps if r["step"] == f.step)
        assert f.mfu == pytest.approx(n * 6 * 7e9 / (slowest * 8 * 989e12), rel=1e-9)
        assert f.tflops_per_gpu == pytest.approx(f.mfu * 989, rel=1e-9)


def test_a_known_model_on_known_gpus():
    """PaLM 540B: 238,300 tokens a second on 6,144 TPU v4 of 275 TFLOP/s is 45.7 % without attention (its appendix B)."""
    row = {"step": 1, "tokens": 238_300.0, "parameters": 540.35e9, "peak_tflops": 275.0, "duration_s": 1.0}
    (found,) = mfu.per_step(
        [row | {"rank": 0}], [{"step": 1, "rank": r, "duration_s": 1.0} for r in range(6144)]
    )
    assert found.mfu == pytest.approx(0.457, abs=0.001)


def test_what_is_not_known_is_left_out():
    """No duration, no tokens, no peak: no step, no step, no utilisation; the user's own duration stands in for torch's."""
    whole = {"step": 3, "rank": 0, "tokens": 5, "parameters": 2e12, "duration_s": 2.0}
    rows = [
        whole,
        {**whole, "step": 1, "duration_s": None},
        {**whole, "step": 2, "tokens": None},
        {**whole, "step": None},
    ]
    (found,) = mfu.per_step(rows, [])
    assert (found.step, found.mfu) == (3, None)
    assert found.tflops_per_gpu == pytest.approx(30.0)
    assert mfu.per_step([], []) == []
