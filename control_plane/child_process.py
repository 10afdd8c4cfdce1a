"""A pass in a process of its own: the memory it took, and that of the libraries it alone needs, goes with it.

The settings go through a pipe, for they may hold a password; what the pass says comes back the same way.
"""

from __future__ import annotations

import importlib
import math
import os
import pickle
import sys
from typing import Any

from probing_cluster.core import errors, logs, processes, settings
from probing_cluster.core.ending import process_memory


class PassEnded(errors.ProbingError):
    """The process gave no answer: it was ended, or it fell."""


def run(module: str, config: settings.Settings, *given: Any, timeout_s: float | None = None) -> Any:
    """What `in_child(config, *given)` of the module of that name gives; raises what it raises, and PassEnded."""
    words = module.rpartition(".")[2]
    done = processes.run(
        [sys.executable, "-m", "probing_cluster.control_plane.child_process", module],
        deadline_s=math.inf if timeout_s is None else timeout_s,
        env=os.environ,
        stdin=pickle.dumps((config, given)),
        max_bytes=None,
        directory=None,
        own_stderr=False,
    )
    if done.code is None:
        raise PassEnded(f"the {words} pass was ended after {timeout_s:g} s")
    if done.code != 0:
        raise PassEnded(f"the {words} pass ended with status {done.code}; the log above says why")
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
        process_memory.without_data_frames()
        module = importlib.import_module(sys.argv[1])
        try:
            answer = (False, module.in_child(config, *given))
        except errors.ProbingError as exc:
            answer = (True, exc)
        answers.write(pickle.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
