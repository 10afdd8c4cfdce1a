"""Submitting jobs to a sandbox and waiting for what becomes of them."""

from __future__ import annotations

import time
from collections.abc import Mapping

from probing_cluster.sandbox.machine import commands, layout


def submit(
    lay: layout.Layout, env: Mapping[str, str], script: str, options: Mapping[str, str | int | bool]
) -> int:
    """`sbatch --<option>=<value>` of the shell text `script` in the sandbox's jobs directory.

    Underscores in option names become dashes, `True` stands for a switch without a value and
    `False` leaves it out. Standard output goes to `jobs/slurm-%j.out` unless said otherwise.
    """
    argv = ["sbatch", "--parsable"]
    defaults = {"chdir": str(lay.jobs), "output": str(lay.jobs / "slurm-%j.out"), "open_mode": "append"}
    for name, value in (defaults | dict(options)).items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            argv.append(flag)
        elif value is not False:
            argv.append(f"{flag}={value}")
    text = script if script.startswith("#!") else f"#!/bin/bash\n{script}\n"
    return int(commands.run(argv, env=env, stdin=text).stdout.split(";")[0])


def state(env: Mapping[str, str], job_id: int) -> str:
    """The job's present state as slurmctld tells it; UNKNOWN when it has forgotten the job."""
    done = commands.run(["squeue", "-ho", "%T", "--states=all", f"--jobs={job_id}"], env=env, check=False)
    return done.stdout.strip() or "UNKNOWN"


def wait(env: Mapping[str, str], job_id: int, states: set[str], timeout_s: float) -> str:
    """Returns the job's state as soon as it is one of `states`; raises CommandFailed after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while (now := state(env, job_id)) not in states:
        if time.monotonic() > deadline:
            msg = f"job {job_id} is {now} after {timeout_s:g} s, not {' or '.join(sorted(states))}"
            raise commands.CommandFailed(msg)
        time.sleep(0.3)
    return now


def cancel_all(env: Mapping[str, str], timeout_s: float = 5) -> None:
    """Cancels every job and gives Slurm a moment to account for it."""
    ids = _active(env)
    if not ids:
        return
    commands.run(["scancel", "--quiet", *ids], env=env, check=False)
    deadline = time.monotonic() + timeout_s
    while _active(env) and time.monotonic() < deadline:
        time.sleep(0.2)


def _active(env: Mapping[str, str]) -> list[str]:
    return commands.run(["squeue", "-ho", "%A"], env=env, check=False).stdout.split()
