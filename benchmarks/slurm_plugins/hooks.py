"""Wall time of each hook as Slurm starts it, beside an interpreter that does nothing.

    python -m benchmarks.slurm_plugins.hooks [--runs N] [--agent SOCKET] [--nhc CHECKOUT] [--json]

Runs alternate, so that a busy machine weighs on all alike; medians are compared, and their ratio is the figure.
Without `--agent` a small server answers at once, which leaves the hook's own cost. With `--nhc`, NHC runs between
them with twelve of its checks, as sites have it in their Prolog.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.healthchecks import nhc_run
from probing_cluster import slurm_plugins

PYTHON = ["/usr/bin/python3", "-I", "-S"]
BASE = "python3 -I -S -c pass"
NHC = f"NHC, {nhc_run.CHECKS} checks"
GOAL = 2.0
"""A hook may cost at most so many times an empty interpreter."""
ENVIRONMENT = {
    "SLURM_JOB_ID": "4242",
    "SLURM_JOB_UID": "1000",
    "SLURM_JOB_GID": "1000",
    "SLURM_JOB_GPUS": "0,1,2,3,4,5,6,7",
    "SLURM_JOB_STDOUT": "/home/alice/slurm-4242.out",
    "SLURM_JOB_WORK_DIR": "/home/alice",
    "SLURM_JOB_NODELIST": "n[1-512]",
    "SLURMD_NODENAME": "n1",
    "PYTHONPATH": "/home/alice/lib:/opt/site",
}


@contextlib.contextmanager
def server() -> Iterator[str]:
    """A socket that answers every question with yes."""
    with tempfile.TemporaryDirectory() as directory, socket.socket(socket.AF_UNIX) as listener:
        path = f"{directory}/agent.sock"
        listener.bind(path)
        listener.listen(8)

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65536)
                    connection.sendall(b'{"v":1,"ok":true,"fit":true}\n')

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield path
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def commands(agent: str, nhc: Path | None, scratch: Path) -> dict[str, list[str]]:
    """What is measured, by name; the first is what the others are compared with."""
    hooks = Path(slurm_plugins.__path__[0]).resolve() / "hooks"
    asking = {
        name: [*PYTHON, str(hooks / "agent_hook.py"), name, "--socket", agent]
        for name in ("prolog", "epilog", "healthcheck")
    }
    probe = ["--probe-dir", "/opt/probing-cluster/probe", "--job-dir", "/run/probing-cluster/jobs"]
    return {
        BASE: [*PYTHON, "-c", "pass"],
        **asking,
        "task_prolog": [*PYTHON, str(hooks / "task_prolog.py"), *probe],
        **({NHC: nhc_run.command(nhc.resolve(), scratch)} if nhc else {}),
    }


def measure(what: Mapping[str, Sequence[str]], runs: int) -> dict[str, list[float]]:
    """Wall milliseconds of every run, by name."""
    found: dict[str, list[float]] = {name: [] for name in what}
    for turn in range(runs + 3):
        for name, command in what.items():
            wall_ms = once(command, may_fail=name == NHC)
            if turn >= 3:  # the first ones fill caches
                found[name].append(wall_ms)
    return found


def once(command: Sequence[str], *, may_fail: bool) -> float:
    """Wall milliseconds from start to end of one process; NHC may find fault with this machine."""
    to_null = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_WRONLY, 0) for fd in ((1, 2) if may_fail else (1,))]
    begin = time.perf_counter()
    pid = os.posix_spawn(command[0], list(command), ENVIRONMENT, file_actions=to_null)
    _, status = os.waitpid(pid, 0)
    wall_ms = (time.perf_counter() - begin) * 1e3
    if status and not may_fail:
        raise SystemExit(f"{command} ended with {status}")
    return wall_ms


def main() -> int:
    """Measures, prints, and says by its exit status whether the goal was reached."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--agent", default="", help="socket of a running agent; default: a server of our own")
    parser.add_argument("--nhc", type=Path, help="checkout of NHC")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    given = contextlib.nullcontext(options.agent) if options.agent else server()
    with given as agent, tempfile.TemporaryDirectory() as scratch:
        found = measure(commands(agent, options.nhc, Path(scratch)), options.runs)
    base_ms = statistics.median(found[BASE])
    rows = [
        {"name": name, "median_ms": round(statistics.median(ms), 2), "min_ms": round(min(ms), 2)}
        | {"times": round(statistics.median(ms) / base_ms, 2), "runs": len(ms)}
        for name, ms in found.items()
    ]
    if options.json:
        print(json.dumps(rows))
    else:
        print(f"{'':24}{'median ms':>11}{'min ms':>9}{'x base':>8}")
        for row in rows:
            print(f"{row['name']:24}{row['median_ms']:>11}{row['min_ms']:>9}{row['times']:>8}")
    return 0 if all(float(str(row["times"])) <= GOAL for row in rows if row["name"] != NHC) else 1


if __name__ == "__main__":
    sys.exit(main())
