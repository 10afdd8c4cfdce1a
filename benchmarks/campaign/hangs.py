"""`python -m benchmarks.campaign.hangs [--repeat 20] [--cases a,b] [--write]`: real hanging gangs, and what is said of them.

Boots one sandbox, runs every case of sandbox.gangs one after another, again and again, and counts what was named first
(for cases that end by themselves: the verdict's cause). `--write` writes docs/campaign_hangs.md. Needs torch and root.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import subprocess
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import dict_row

from probing_cluster.db import embedded
from probing_cluster.sandbox import cluster, gangs, scratch

PAGE = Path(__file__).parents[2] / "docs" / "campaign_hangs.md"
LONGEST_S = 240.0
CASES = (*gangs.HANGS, *gangs.ENDS, *gangs.HEALTHY)
NOTHING = "(nobody named)"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of one run of one case."""

    case: str
    said: str
    ranks: tuple[int, ...] = ()
    node: str | None = None
    domain: str = ""
    after_s: float | None = None
    """Seconds from the gang's last progress to the naming; None where nothing was named live."""

    def right(self, third: str) -> bool:
        """Kind (or cause), ranks, node and domain are those injected."""
        if self.case in gangs.HEALTHY:
            return self.said == NOTHING
        kind, domain = (gangs.HANGS.get(self.case) or gangs.ENDS[self.case])[:2]
        where = self.node == (None if self.case in gangs.ENDS and domain == "user_program" else third)
        ranks = self.case in gangs.ENDS or list(self.ranks) == gangs.culprits(self.case)
        return (self.said, self.domain) == (kind, domain) and where and ranks


def main() -> int:
    """The campaign."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    outcomes: list[Outcome] = []
    third = ""
    with scratch.directory("pchang-") as directory, cluster.Sandbox.up(directory / "s") as sandbox:
        third = gangs.third_node(sandbox)
        with contextlib.suppress(KeyboardInterrupt):  # what has been run by then is told
            for turn in range(args.repeat):
                for case in args.cases.split(","):
                    outcomes.append(run(sandbox, case))
                    print(turn, outcomes[-1], "right" if outcomes[-1].right(third) else "WRONG", flush=True)
    text = page(outcomes, third)
    print(text)
    if args.write:
        PAGE.write_text(text, encoding="utf-8")
    return 0


def run(sandbox: cluster.Sandbox, case: str) -> Outcome:
    """One gang from its submission to what is said of it."""
    third = gangs.third_node(sandbox)
    if case == "checkpoint_io":
        sandbox.fault(third, "directory-hang", path=gangs.CHECKPOINTS)
    job = gangs.submit(sandbox, case, steps=40 if case in gangs.HEALTHY else 5000)
    try:
        return _watch(sandbox, case, job)
    finally:
        if case == "checkpoint_io":
            sandbox.fault(third, "directory-free")
        sandbox.run(["scancel", str(job)], check=False)
        if case == "node_lost":
            sandbox.fault(third, "node-start")
        sandbox.wait(job, {"CANCELLED", "FAILED", "NODE_FAIL", "COMPLETED", "UNKNOWN"}, 60)


def _watch(sandbox: cluster.Sandbox, case: str, job: int) -> Outcome:
    crashed = False
    deadline = time.monotonic() + LONGEST_S
    while time.monotonic() < deadline:
        time.sleep(0.5)
        if case == "node_lost" and not crashed and _rows(sandbox, "first_step", job):
            sandbox.fault(gangs.third_node(sandbox), "node-crash")
            crashed = True
        named = [v for v in _rows(sandbox, "gangs", job) if v["kind"] != "unknown"]
        if named and case not in gangs.ENDS:
            v = named[0]
            after_s = (v["made_at"] - v["onset_at"]).total_seconds()
            return Outcome(
                case=case, said=v["kind"], ranks=tuple(v["ranks"]), node=",".join(v["nodes"]),
                domain=v["domain"], after_s=after_s,
            )  # fmt: skip
        ended = _rows(sandbox, "ended", job)
        if ended and case in gangs.HEALTHY:
            return Outcome(case=case, said=NOTHING)
        if ended and (told := _settled(sandbox, job)) is not None:
            return Outcome(case=case, said=told["cause"], node=told["node"], domain=told["domain"])
    return Outcome(case=case, said=NOTHING)


def _settled(sandbox: cluster.Sandbox, job: int) -> dict[str, Any] | None:
    """The verdict when late evidence has had its time."""
    time.sleep(12)
    return next(iter(_rows(sandbox, "verdict", job)), None)


_SQL = {
    "first_step": "SELECT 1 FROM probing.health_event WHERE job_id = %s AND kind = 'first_step'",
    "gangs": "SELECT * FROM probing.gang_verdict WHERE job_id = %s ORDER BY made_at",
    "ended": "SELECT 1 FROM probing.job_attempt WHERE job_id = %s AND end_at IS NOT NULL",
    "verdict": "SELECT * FROM probing.verdict WHERE job_id = %s AND superseded_at IS NULL ORDER BY submit_at",
}


def _rows(sandbox: cluster.Sandbox, what: str, job: int) -> list[dict[str, Any]]:
    with psycopg.connect(embedded.url(sandbox.layout.postgres), row_factory=dict_row) as connection:
        return connection.execute(_SQL[what], (job,)).fetchall()


def page(outcomes: list[Outcome], third: str) -> str:
    """docs/campaign_hangs.md."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    columns = sorted({o.said for o in outcomes})
    counts = collections.Counter((o.case, o.said) for o in outcomes)
    right = sum(o.right(third) for o in outcomes)
    lines = [
        "# Campaign: hanging gangs",
        "",
        "Written by `python -m benchmarks.campaign.hangs --write`: real PyTorch gangs (gloo, 4 nodes x 2 ranks) under real Slurm in the",
        "sandbox, each case as [sandbox/gangs.py](../sandbox/gangs.py) injects it. Rows: what went wrong; columns: what was named first",
        "while the job ran (for cases that end by themselves: the cause in the verdict).",
        "",
        (
            f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, commit {commit.stdout.strip()}, {os.cpu_count()} cores, load {os.getloadavg()[1]:.0f}; "
            f"{len(outcomes)} runs, {right} right in kind, ranks, node and domain."
        ),
        "",
        f"| case | {' | '.join(columns)} | right | seconds from last progress to naming |",
        f"|---|{'---|' * (len(columns) + 2)}",
    ]
    for case in dict.fromkeys(o.case for o in outcomes):
        mine = [o for o in outcomes if o.case == case]
        times = sorted(o.after_s for o in mine if o.after_s is not None)
        spread = f"{times[0]:.1f} to {times[-1]:.1f}" if times else ""
        cells = " | ".join(str(counts[case, c] or "") for c in columns)
        lines.append(f"| {case} | {cells} | {sum(o.right(third) for o in mine)} of {len(mine)} | {spread} |")
    wrong = [o for o in outcomes if not o.right(third)]
    lines += ["", *(f"Wrong: `{json.dumps(vars(o))}`" for o in wrong)]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    raise SystemExit(main())
