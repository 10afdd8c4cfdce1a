"""`probing-sandbox demo` and `record`: the story for newcomers, and how it was put on file."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from probing_cluster.core import settings
from probing_cluster.sandbox import cluster
from probing_cluster.sandbox.demo import demo
from probing_cluster.sandbox.machine import requirements, sandbox_directory

_KEPT = """
The cluster is still running:
  {command} shell                      sinfo, sbatch, probing-report, probing-ctl … on it
  {command} fault n1 ib-down mlx5_2    break something else (fault n1 --help lists what)
  {command} gang                       a gang that hangs, to ask with ranks, stacks and sql (torch: make setup)
  {command} status                     what runs
  {command} down --purge               stop it and remove everything (so does make clean)"""


def register(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Adds both commands."""
    parser = command("demo", _demo, "break a GPU under a real job and see why it died", ".demo")
    parser.add_argument("--keep", action="store_true", help="leave the cluster running (as KEEP=1 does)")
    parser.add_argument(
        "--replay", action="store_true", help="replay the recorded incident, without a cluster"
    )
    record = command(
        "record", _record, "write what the database holds about a job to a file that demo can replay"
    )
    record.add_argument("job", type=int, metavar="JOBID")
    record.add_argument("file", type=Path, metavar="FILE")
    record.add_argument("--about", default="a job in the sandbox", help="one sentence about the incident")


def _demo(args: argparse.Namespace) -> int:
    began = time.monotonic()

    def announce(line: str) -> None:
        print(f"[{time.monotonic() - began:5.1f} s] {line}" if line else "", flush=True)

    why = "asked to replay" if args.replay else requirements.missing()
    if why:
        from probing_cluster.sandbox.demo import recording, replay

        print(f"no real cluster here ({why}): this is a recorded incident", flush=True)
        replay.run(args.dir, recording.DEMO, announce=announce)
        return 0
    keep = args.keep or os.environ.get("KEEP", "0") not in {"", "0"}
    demo.run(args.dir, keep=keep, announce=announce)
    if keep:
        print(_KEPT.format(command=Path(sys.argv[0])))
    else:
        announce("everything is stopped; KEEP=1 make demo leaves it running")
    return 0


def _record(args: argparse.Namespace) -> int:
    from probing_cluster.db import store
    from probing_cluster.sandbox.demo import recording

    box = cluster.Sandbox.open(sandbox_directory.choose(args.dir))
    with store.Store.open(settings.load(box.layout.probing_toml)) as database:
        recording.save(recording.take(database, args.job, args.about), args.file)
    return 0
