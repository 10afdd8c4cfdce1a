"""The campaign's results as docs/campaign.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.blind import score as blind
from benchmarks.campaign import score

PAGE = Path(__file__).resolve().parents[2] / "docs" / "campaign.md"


@dataclass(kw_only=True)
class Part:
    """One campaign: its cases and how it was run."""

    title: str
    how: str
    cases: Sequence[score.Judged]
    failed: Sequence[str] = field(default_factory=tuple)
    ran: str = ""
    """Date and commit of the run."""


def write(parts: Sequence[Part], command: str) -> None:
    """The whole page, written anew."""
    lines = [
        "# How often the verdict is right",
        "",
        f"Written by `{command}`. How the cases are made: `benchmarks/campaign`.",
        "",
        "A case is one job whose true cause is known because we caused it. Bounds are exact (Clopper–Pearson), one-sided at 95 %; a goal",
        "is met when the **bound** meets it. A verdict is right when it names the true cause. *Infrastructure* = hardware or system",
        'software. `unknown` counts as wrong for "of all", and is left out of "of those answered".',
        "",
        "What these figures are not: the share of each kind is ours, not a cluster's; wording and timing of replayed cases are made from what",
        "drivers, kernels, PyTorch and Slurm print, by the people who wrote the rules. They show that the rules hold together under noise, and",
        "where they do not; how often they are right on *your* cluster, `probing-ctl verdict` and time will tell.",
        "",
    ]
    for part in parts:
        lines += _part(part)
    text = "\n".join(lines).rstrip() + "\n"
    strangers = blind.kept(PAGE.read_text("utf-8")) if PAGE.exists() else ""
    PAGE.write_text(blind.put(text, strangers) if strangers else text, encoding="utf-8")


def _part(part: Part) -> list[str]:
    cases = part.cases
    kinds = {c.kind for c in cases}
    noisy = sum(c.noisy for c in cases)
    bugs = sum(c.group == "bug" for c in cases)
    lines = [
        f"## {part.title}",
        "",
        f"{part.how} Run on {part.ran}.",
        "",
        (
            f"{len(cases)} cases of {len(kinds)} kinds ({sum(1 for k in kinds if any(c.kind == k and c.group == 'fault' for c in cases))} of them faults), "
            f"{bugs} of them bugs of the program's own, {noisy} with noise."
        ),
        "",
        "| figure | right | share | bound | goal | met |",
        "|---|---|---|---|---|---|",
    ]
    for name, (found, side, goal) in score.figures(cases).items():
        bound = found.low if side == "low" else found.high
        met = bound >= goal if side == "low" else bound <= goal
        sign = "≥" if side == "low" else "≤"
        shown = ["–", "–"] if goal == 0.0 else [f"{sign} {goal:.1%}", "yes" if met else "**no**"]
        lines.append(
            f"| {name} | {found.k} / {found.n} | {_pct(found.value)} | {sign} {_pct(bound)} | {' | '.join(shown)} |"
        )
    lines += ["", "| said | right | share | bound | goal | met |", "|---|---|---|---|---|---|"]
    for word, goal in score.GOALS.items():
        found = score.calibration(cases)[word]
        lines.append(
            f"| {word} | {found.k} / {found.n} | {_pct(found.value)} | ≥ {_pct(found.low)} | ≥ {goal:.0%} | {'yes' if found.low >= goal else '**no**'} |"
        )
    lines += ["", *_groups(cases), "", "| cause | precision | recall |", "|---|---|---|"]
    for cause, precision, recall in score.per_cause(cases):
        lines.append(f"| `{cause}` | {_of(precision)} | {_of(recall)} |")
    wrong = {k: n for k, n in score.confusion(cases).items() if k[0] != k[1]}
    lines += [
        "",
        "Confusion matrix, without its diagonal (which is the column *recall* above):",
        "",
        "| true cause | verdict | cases |",
        "|---|---|---|",
    ]
    lines += [
        f"| `{true}` | `{verdict}` | {n} |"
        for (true, verdict), n in sorted(wrong.items(), key=lambda w: (-w[1], w[0]))
    ] or ["| – | – | 0 |"]
    if part.failed:
        lines += [
            "",
            f"{len(part.failed)} cases could not be run and count nowhere: "
            + "; ".join(sorted({f.split(":")[0] for f in part.failed}))[:600]
            + ".",
        ]
    return [*lines, ""]


def _groups(cases: Sequence[score.Judged]) -> list[str]:
    rows = ["| cases | cause right | bound |", "|---|---|---|"]
    for label, keys in (
        ("", lambda c: c.path),
        ("", lambda c: "with noise" if c.noisy else "without noise"),
        ("", lambda c: c.shape),
    ):
        for value in sorted({keys(c) for c in cases}):
            found = score.share(cases, lambda c: c.right, lambda c, v=value, k=keys: k(c) == v)  # type: ignore[misc]
            rows.append(f"| {label}{value} | {found.k} / {found.n} | ≥ {_pct(found.low)} |")
    return rows


def _pct(value: float | None) -> str:
    return "–" if value is None else f"{value:.2%}"


def _of(found: score.Share) -> str:
    return f"{found.k} / {found.n}" if found.n else "–"
