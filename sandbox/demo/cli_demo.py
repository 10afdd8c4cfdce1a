"""`probing-sandbox demo` and `record`: the story for newcomers, and how it was put on file."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from probing_cluster.control_plane.doctor import site_rights
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
  {command} down --purge               stop it and remove everything (so does make clean)
{users}"""
_AS_USER = """In that shell `runuser -u USER -- sbatch …` and `runuser -u USER -- probing-report JOBID` show what an ordinary user of this machine may do."""
_NOT_AS_USER = """Only root can run our commands here: other users cannot enter {closed}, below which this Python lies. Slurm's own commands work for them
(in that shell: runuser -u USER -- sbatch …), and root reads the reports of their jobs. For them to run probing-report:
make PYTHON=/usr/bin/python3 demo, in a clone that all users can enter."""


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


def kept_words(command: Path, python: Path) -> str:
    """What to do with a cluster that was left running, also as an ordinary user."""
    closed = site_rights.closed_to_users(python)
    users = _AS_USER if closed is None else _NOT_AS_USER.format(closed=closed)
    return _KEPT.format(command=command, users=users)


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
        print(kept_words(Path(sys.argv[0]), Path(sys.executable)))
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
