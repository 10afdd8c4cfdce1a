"""A pass in a process of its own: the memory it took, and that of the libraries it alone needs, goes with it.

The settings go through a pipe, for they may hold a password; what the pass says comes back the same way.
"""

from __future__ import annotations

import importlib
import os
import pickle
import subprocess
import sys
from typing import Any

from probing_cluster.core import errors, logs, settings


def run(task: str, config: settings.Settings, *given: Any, timeout_s: float | None = None) -> Any:
    """What `apart(config, *given)` of the module of that task gives; raises what it raises."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "probing_cluster.control_plane.apart", task],
            input=pickle.dumps((config, given)),
            stdout=subprocess.PIPE,
            check=False,
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired as exc:
        raise errors.ProbingError(f"the {task} pass was ended after {timeout_s:g} s") from exc
    if done.returncode != 0:
        raise errors.ProbingError(
            f"the {task} pass ended with status {done.returncode}; the log above says why"
        )
    raised, answer = pickle.loads(done.stdout)  # noqa: S301 - our own child's words
    if raised:
        raise answer
    return answer


def main() -> int:
    """The child's side."""
    config, given = pickle.loads(sys.stdin.buffer.read())  # noqa: S301 - the service's words
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)  # what anybody prints is no answer
        logs.configure()
        module = importlib.import_module(f"probing_cluster.control_plane.service.tasks.{sys.argv[1]}")
        try:
            answer = (False, module.apart(config, *given))
        except errors.ProbingError as exc:
            answer = (True, exc)
        answers.write(pickle.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
