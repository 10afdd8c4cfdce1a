"""`python -m benchmarks.campaign.hangs [--repeat 20] [--cases a,b] [--healthy-minutes 60] [--for-minutes N] [--write]`

Real gangs that hang, end or only take long, and what is said of them. Runs are gathered in docs/campaign_hangs.jsonl:
a call runs what is missing until each case has `--repeat` of them, so it may be interrupted and called again;
`--fresh` forgets what was gathered. A healthy gang trains beside the others (`--cases ""`: alone), `--write` makes
docs/campaign_hangs.md of all that was gathered. Needs torch and root.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent import futures
from dataclasses import replace
from pathlib import Path

import psycopg

from benchmarks.campaign.hangs import gang_run, outcome, page
from probing_cluster.core import errors
from probing_cluster.sandbox import cluster, gangs
from probing_cluster.sandbox.machine import scratch

PAGE = Path(__file__).parents[3] / "docs" / "campaign_hangs.md"
ALONE = (gangs.SLOW, "node_lost", *gangs.BROKEN)
"""The slow rank wants quiet cores, a lost or broken node is the others', too."""


def main() -> int:
    """The campaign, or a part of it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[2])
    parser.add_argument("--repeat", type=int, default=20, help="runs each case is to have (default 20)")
    parser.add_argument("--cases", default=",".join(outcome.CASES), help="comma between them (default: all)")
    parser.add_argument("--at-once", type=int, default=1, help="gangs at a time (default 1)")
    parser.add_argument("--healthy-minutes", type=float, default=0.0, help="watch a healthy gang for so long")
    parser.add_argument("--for-minutes", type=float, default=float("inf"), help="begin no run after so long")
    parser.add_argument("--results", type=Path, default=PAGE.with_suffix(".jsonl"))
    parser.add_argument("--fresh", action="store_true", help="forget what was gathered")
    parser.add_argument("--write", action="store_true", help=f"write docs/{PAGE.name}")
    args = parser.parse_args()
    if args.fresh:
        args.results.unlink(missing_ok=True)
    cases = [c for c in args.cases.split(",") if c]
    if unknown := set(cases) - set(outcome.CASES):
        parser.error(f"no such case: {', '.join(sorted(unknown))}; there are {', '.join(outcome.CASES)}")
    wanted = outcome.missing(outcome.load(args.results), cases, args.repeat)
    if wanted or args.healthy_minutes:
        campaign = Campaign(args.results, args.for_minutes)
        with contextlib.suppress(KeyboardInterrupt):  # what has been gathered by then is told
            campaign.run(wanted, args.at_once, args.healthy_minutes)
    text = page.render(outcome.load(args.results))
    print(text)
    if args.write:
        PAGE.write_text(text, encoding="utf-8")
    return 0


class Campaign:
    """One sandbox, and gangs in it until all have run or time is up."""

    def __init__(self, results: Path, for_minutes: float) -> None:
        self._results = results
        self._commit = _commit()  # that of its beginning: the daemons have been started from it
        self._end_s = time.monotonic() + 60 * for_minutes
        self._gathering = threading.Lock()
        self._stop = threading.Event()

    def run(self, wanted: Sequence[str], at_once: int, healthy_minutes: float) -> None:
        """Those that may run beside others first, then the healthy gang's end, then those that want to be alone."""
        alone = [case for case in wanted if case in ALONE]
        with (
            scratch.directory("pchang-") as directory,
            cluster.Sandbox.up(directory / "s") as sandbox,
            futures.ThreadPoolExecutor(at_once) as pool,
            futures.ThreadPoolExecutor(1) as beside,
        ):
            try:
                watched = beside.submit(self._healthy, sandbox, healthy_minutes) if healthy_minutes else None
                list(pool.map(lambda case: self._one(sandbox, case), [c for c in wanted if c not in alone]))
                if watched is not None:
                    watched.result()
                for case in alone:
                    self._one(sandbox, case)
            except BaseException:
                self._stop.set()
                raise

    def _over(self) -> bool:
        return self._stop.is_set() or time.monotonic() > self._end_s

    def _healthy(self, sandbox: cluster.Sandbox, minutes: float) -> None:
        self._gather(lambda: gang_run.healthy(sandbox, minutes, self._over))

    def _one(self, sandbox: cluster.Sandbox, case: str) -> None:
        if not self._over():
            self._gather(lambda: gang_run.run(sandbox, case))

    def _gather(self, work: Callable[[], outcome.Outcome]) -> None:
        try:
            found = replace(work(), commit=self._commit)
        except (errors.ProbingError, OSError, psycopg.Error):
            traceback.print_exc()  # one gang that could not be run ends no campaign, and counts for nothing
            return
        with self._gathering:
            outcome.add(self._results, found)
            print("right" if found.right() else "WRONG", found.to_json(), flush=True)


def _commit() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=PAGE.parent
    ).stdout.strip()


if __name__ == "__main__":
    raise SystemExit(main())
