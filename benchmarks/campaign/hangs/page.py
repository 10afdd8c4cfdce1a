"""docs/campaign_hangs.md out of the runs gathered."""

from __future__ import annotations

import json
import os
import statistics
from collections import Counter
from collections.abc import Sequence

from benchmarks.campaign.hangs.outcome import EXPECTED, HEALTHY_HOUR, Outcome

MAX_WRONG = 30


def render(outcomes: Sequence[Outcome]) -> str:
    """The page; nothing on it is not counted from `outcomes`."""
    runs = [o for o in outcomes if o.case != HEALTHY_HOUR]
    return (
        "\n".join(
            [
                *_head(outcomes, runs),
                *_matrix(runs),
                *_healthy(outcomes),
                *_noise(outcomes),
                *_wrong(outcomes),
            ]
        )
        + "\n"
    )


def _head(outcomes: Sequence[Outcome], runs: Sequence[Outcome]) -> list[str]:
    commits = ", ".join(f"{c} ({n} runs)" for c, n in Counter(o.commit for o in outcomes).items())
    times = sorted(o.at for o in outcomes)
    when = f"{times[0]} to {times[-1]}" if times else "never"
    loads = [o.load for o in outcomes]
    load = f"{min(loads):.0f} to {max(loads):.0f}" if loads else "unknown"
    right = sum(o.right() for o in runs)
    return [
        "# Campaign: hanging gangs",
        "",
        "Written by `python -m benchmarks.campaign.hangs --write` from `campaign_hangs.jsonl` beside it, a line per run: real PyTorch gangs",
        "(gloo, 4 nodes x 2 ranks) under real Slurm in the sandbox, each case as [sandbox/gangs.py](../sandbox/gangs.py) injects it.",
        "",
        f"{when}, at commits {commits}; {os.cpu_count()} cores, load {load}. {len(runs)} runs, {right} right in kind, ranks, node and domain.",
        "",
    ]  # fmt: skip


def _matrix(runs: Sequence[Outcome]) -> list[str]:
    columns = sorted({o.named for o in runs})
    counts = Counter((o.case, o.named) for o in runs)
    lines = [
        "## What was named",
        "",
        "Rows: what went wrong. Columns: what was named first while the job ran; for cases that end by themselves the cause in the verdict.",
        "Seconds are from the gang's last progress to the naming; the stall bound is 10 s of them.",
        "",
        f"| case | {' | '.join(columns)} | right | seconds: median (least to most) |",
        f"|---|{'---|' * (len(columns) + 2)}",
    ]  # fmt: skip
    for case in dict.fromkeys(o.case for o in runs):
        mine = [o for o in runs if o.case == case]
        times = sorted(o.after_s for o in mine if o.after_s is not None)
        spread = f"{statistics.median(times):.1f} ({times[0]:.1f} to {times[-1]:.1f})" if times else ""
        cells = " | ".join(str(counts[case, c] or "") for c in columns)
        lines.append(f"| {case} | {cells} | {sum(o.right() for o in mine)} of {len(mine)} | {spread} |")
    return [*lines, ""]


def _healthy(outcomes: Sequence[Outcome]) -> list[str]:
    runs = [o for o in outcomes if o.case == HEALTHY_HOUR]
    if not runs:
        return ["## Healthy gangs", "", "Not measured yet.", ""]
    minutes = sum(o.minutes or 0.0 for o in runs)
    counts: Counter[str] = sum((Counter(o.false) for o in runs), Counter())
    words = ", ".join(f"{n} x {kind}" for kind, n in sorted(counts.items())) or "nothing"
    named = sum(n for kind, n in counts.items() if kind.startswith("verdict"))
    return [
        "## Healthy gangs",
        "",
        f"{minutes:.0f} minutes of training with checkpoints in {len(runs)} gangs: {named} stalls named. Told of its ranks: {words}.",
        "",
    ]


def _noise(outcomes: Sequence[Outcome]) -> list[str]:
    lines = [
        "## How noisy it was",
        "",
        "Steps of ranks that did nothing wrong, by their own clocks: standard deviation / mean of a rank's steps, the median over ranks; compute",
        "is a sleep with 2 % seeded jitter (uniform: 1.2 % of standard deviation), so what is above that is the machine's.",
        "",
        "| case | step, s | compute: median (most) | step: median (most) |",
        "|---|---|---|---|",
    ]
    for case in dict.fromkeys(o.case for o in outcomes):
        measured = [o.noise for o in outcomes if o.case == case and o.noise]
        if measured:
            step_s = statistics.median(n["step_s"] for n in measured)
            cells = (
                f"{statistics.median(v):.1%} ({max(v):.1%})"
                for v in ([n[k] for n in measured] for k in ("compute_frac", "step_frac"))
            )
            lines.append(f"| {case} | {step_s:.3f} | {' | '.join(cells)} |")
    return [*lines, ""]


def _wrong(outcomes: Sequence[Outcome]) -> list[str]:
    wrong = [o for o in outcomes if not o.right()]
    if not wrong:
        return ["## What was wrong", "", "Nothing."]
    rows = ({k: v for k, v in o.row().items() if v not in (None, "", (), {})} for o in wrong[:MAX_WRONG])
    more = [f"… and {len(wrong) - MAX_WRONG} more"] if len(wrong) > MAX_WRONG else []
    expected = {c: EXPECTED.get(c, ("nobody",))[0] for c in {o.case for o in wrong}}
    return [
        "## What was wrong", "",
        *(f"* {o['case']} (to be named: {expected[o['case']]}): `{json.dumps(o)}`" for o in rows), *more,
    ]  # fmt: skip
