"""Counts per class with Wilson's 95 % bounds, and the section of docs/campaign.md."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.blind import ask
from benchmarks.blind import case as cases

PAGE = Path(__file__).resolve().parents[2] / "docs" / "campaign.md"
BEGIN, END = "<!-- blind: begin -->", "<!-- blind: end -->"
GOALS = {
    "kernel": 0.95,
    "joblog": 0.95,
    "healthy": 0.97,
    "quoted": 1.0,
    "incident": 0.95,
    "flight_recorder": 1.0,
}
_Z = 1.959963984540054


def wilson(k: int, n: int) -> tuple[float, float]:
    """The 95 % score interval of k of n; 0 to 1 where there are none."""
    if n == 0:
        return 0.0, 1.0
    middle, spread = k + _Z * _Z / 2, _Z * math.sqrt(k * (n - k) / n + _Z * _Z / 4)
    low, high = ((middle + sign * spread) / (n + _Z * _Z) for sign in (-1, 1))
    return (0.0 if k == 0 else low), (1.0 if k == n else high)


def table(found: Sequence[ask.Answer], missing: Sequence[str]) -> list[str]:
    """One row per class that has cases, as Markdown."""
    lines = ["| class | right | share | 95 % bounds | goal |", "|---|---|---|---|---|"]
    for kind in cases.CLASSES:
        mine = [a for a in found if a.kind == kind]
        absent = sum(name.startswith(f"{kind}/") for name in missing)
        if not mine and not absent:
            continue
        low, high = wilson(sum(a.right for a in mine), len(mine))
        share = f"{sum(a.right for a in mine) / len(mine):.1%}" if mine else "–"
        note = f" ({absent} without their text here)" if absent else ""
        lines.append(f"| {kind.replace('_', ' ')} | {sum(a.right for a in mine)} / {len(mine)}{note} | {share} | {low:.1%} to {high:.1%} | {GOALS[kind]:.0%} |")  # fmt: skip
    sure = [a for a in found if a.certain]
    lines += [
        "",
        f'"certain" was said of {len(sure)} incidents and was wrong of {sum(not a.right for a in sure)}.',
    ]
    return lines


def section(found: Sequence[ask.Answer], missing: Sequence[str], own: Sequence[str], commit: str) -> str:
    """The section: strangers' cases first, beside what our own campaign says."""
    lines = [
        BEGIN,
        "## On cases by strangers",
        "",
        "Collected from public places by people who did not write the rules, and labelled before they were run (`benchmarks/blind`).",
        f"Written by `python -m benchmarks.blind --write` on {datetime.now(UTC):%Y-%m-%d}, commit `{commit}`. Bounds are Wilson's, two-sided at 95 %.",
        "",
        *(table(found, missing) if found or missing else ["No case has been collected yet."]),
        "",
        "The rules have been mended on these cases since their labels were given: these figures are not blind. What each round said at",
        "its first run: [strangers.md](strangers.md).",
        "",
        "The same question asked of our own cases, made by those who wrote the rules (sections below):",
        "",
        "| cases | right | share |",
        "|---|---|---|",
        _all(found),
        *own,
        END,
    ]
    return "\n".join(lines)


def _all(found: Sequence[ask.Answer]) -> str:
    k, n = sum(a.right for a in found), len(found)
    return f"| **by strangers** | {k} / {n} | {f'{k / n:.1%}' if n else '–'} |"


def own_figures(page: str) -> list[str]:
    """Our campaign's own rows, `cause, of all`, part by part."""
    rows, title = [], ""
    for line in page.split("\n"):
        title = line.removeprefix("## ") if line.startswith("## ") else title
        if m := re.match(r"\| cause, of all \| ([\d ]+/ \d+) \| ([^|]+) \|", line):
            rows.append(f"| our own: {title.lower()} | {m[1]} | {m[2].strip()} |")
    return rows


def put(page: str, made: str) -> str:
    """The page with its section replaced, or put before its first one."""
    if BEGIN in page and END in page:
        return page[: page.index(BEGIN)] + made + page[page.index(END) + len(END) :]
    at = page.index("\n## ") + 1
    return f"{page[:at]}{made}\n\n{page[at:]}"


def kept(page: str) -> str:
    """The section as it stands on a page; empty where there is none."""
    return page[page.index(BEGIN) : page.index(END) + len(END)] if BEGIN in page and END in page else ""
