"""`python -m benchmarks.campaign`: faults of known cause, and how often the verdict is right.

    python -m benchmarks.campaign [--replayed 5000] [--jobs 320] [--minutes 40] [--seed N] [--keep FILE] [--write]

`--jobs 0` leaves the real cases out, `--replayed 0` the replayed ones. `--write` writes docs/campaign.md; a part that was not
run is taken from `--keep`, where each run leaves its cases.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.campaign import page, replay, score
from probing_cluster.core import records

TUNED_ON = frozenset({*range(1, 100), 20261121, 20261122, 20261123, 20261201, 20261202, 20261204, 20261205})
"""Seeds the rules were looked at with; the figures are made with others."""
SEED = 20261206

_IN_FILE = {"verdict_cause": "said", "verdict_domain": "said_domain"}
"""Field to its key in the file of cases, which earlier runs have written, too."""


def main() -> int:
    """Both campaigns."""
    args = _arguments()
    if args.seed in TUNED_ON:
        print(f"seed {args.seed}: the rules were tuned on it; its figures say nothing", flush=True)
    began, ran = time.monotonic(), _ran()

    def announce(line: str) -> None:
        print(f"[{time.monotonic() - began:6.1f} s] {line}", flush=True)

    parts: dict[str, page.Part] = {}
    if args.replayed:
        cases = list(replay.run(args.replayed, args.seed))
        parts["replayed"] = page.Part(
            title="Replayed", how=_REPLAYED.format(seed=args.seed), cases=cases, ran=ran
        )
        _print_part(parts["replayed"], announce)
    if args.jobs:
        from benchmarks.campaign import real

        done, failed = real.run(args.jobs, args.seed, args.minutes, announce)
        parts["real"] = page.Part(title="Real jobs", how=_REAL, cases=done, failed=failed, ran=ran)
        _print_part(parts["real"], announce)
    parts = _kept(args.keep, parts)
    if args.write:
        page.write(
            [parts[k] for k in ("real", "replayed") if k in parts],
            "python -m benchmarks.campaign --write",
        )
    return 0


_REPLAYED = (
    "Kernel lines and job logs as text, put through the classification and the rules as they are: three quarters as the agents deliver them (GPUs known from "
    "the Prolog), one quarter as `probing-ctl import` reads files (GPUs unknown). Job shapes from 1 GPU on a shared node to 32 nodes. Half of the cases with "
    "noise: faults on other nodes and on neighbours' GPUs, old and later faults, corrected errors, flapping links, file servers that come back, hung "
    "tasks, user-type Xids that were survived, errors the program handled. Seed {seed}; the rules were looked at with others."
)
_REAL = (
    "Real jobs on a sandbox of 12 nodes: real slurmctld, slurmd, sacct, agents, Prolog and Epilog, Postgres and service; simulated GPUs, links and mounts that "
    "are broken while the job runs. Ten groups of nodes work at once and again and again, so that every case has the faults of others before, beside and after it. "
    "Observe-only: what is measured is the verdict."
)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.campaign")
    parser.add_argument("--replayed", type=int, default=5000)
    parser.add_argument("--jobs", type=int, default=320)
    parser.add_argument("--minutes", type=float, default=40.0, help="no further real job is begun after this")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--keep", type=Path, help="file of all cases (JSON)")
    parser.add_argument("--write", action="store_true", help="write docs/campaign.md")
    return parser.parse_args()


def _print_part(part: page.Part, announce) -> None:  # type: ignore[no-untyped-def]
    announce(f"{part.title}: {len(part.cases)} cases")
    print(score.text(part.cases))


def _kept(path: Path | None, parts: dict[str, page.Part]) -> dict[str, page.Part]:
    """Keep what was run, and fill in what an earlier run kept."""
    if path is None:
        return parts
    held = json.loads(path.read_text()) if path.exists() else {}
    held |= {
        k: {
            "how": p.how,
            "title": p.title,
            "failed": list(p.failed),
            "ran": p.ran,
            "cases": [_row(c) for c in p.cases],
        }
        for k, p in parts.items()
    }
    path.write_text(json.dumps(held))
    return {
        k: page.Part(
            title=v["title"],
            how=v["how"],
            failed=v["failed"],
            ran=v["ran"],
            cases=[_case(c) for c in v["cases"]],
        )
        for k, v in held.items()
    }


def _row(case: score.Judged) -> dict[str, object]:
    """A case under the keys of the file of cases."""
    return {_IN_FILE.get(k, k): v for k, v in dataclasses.asdict(case).items()}


def _case(row: dict[str, object]) -> score.Judged:
    """The case that `_row` made."""
    found = {
        field.name: row[_IN_FILE.get(field.name, field.name)] for field in dataclasses.fields(score.Judged)
    }
    for name in ("domain", "verdict_domain"):
        found[name] = records.Domain(str(found[name]))
    found["causes"] = tuple(found["causes"])  # type: ignore[arg-type]
    found["confidence"] = records.Confidence(str(found["confidence"]))
    return score.Judged(**found)  # type: ignore[arg-type]


def _ran() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return f"{datetime.now(UTC):%Y-%m-%d}, commit `{done.stdout.strip() or 'unknown'}`"


if __name__ == "__main__":
    sys.exit(main())
