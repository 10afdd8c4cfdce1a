"""Makes processes live that were not started so: `sys.remote_exec` (Python 3.14 and later) has them open their socket.

The asker runs each process's own interpreter, which alone knows where that release keeps what is asked for; its owner may,
where the kernel lets a user look into processes of their own. The main thread does it when it next comes back to Python.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

from probing_cluster.core import processes, sanitize
from probing_cluster.probe_agent import inject

SCRIPT = inject.SITE_DIRECTORY / "_probing_probe/make_live.py"
_INTERPRETER = re.compile(r"python3\.(1[4-9]|[2-9][0-9])[a-z]*")
_CODE = "import sys; sys.remote_exec(int(sys.argv[1]), sys.argv[2])"
_LOOK_S = 0.02
TOO_OLD = "not live, and its Python cannot make it so: that takes Python 3.14 or later"
ELSEWHERE = "not live, and not to be made so from here: its Python is inside a container"
BUSY = "made live, but its main thread has not come back to Python since: ask again once it has"


def make_live(sockets: Iterable[tuple[int, Path]], end_s: float) -> dict[int, str]:
    """Has processes (number here, socket) listen; waits for it until `end_s` of the monotonic clock. Why not, by number."""
    started: dict[int, processes.Child] = {}
    failed: dict[int, str] = {}
    waiting: dict[int, Path] = {}
    for pid, path in sockets:
        interpreter = _interpreter(pid)
        if not interpreter.startswith("/"):
            failed[pid] = interpreter
            continue
        argv = [interpreter, "-I", "-S", "-c", _CODE, str(pid), str(SCRIPT)]
        started[pid] = processes.start(argv, env={}, stdin=False, stderr=subprocess.PIPE)
        waiting[pid] = path
    try:
        while waiting and time.monotonic() < end_s:
            for pid in [p for p, path in waiting.items() if path.exists() or started[p].poll()]:
                del waiting[pid]
            time.sleep(_LOOK_S if waiting else 0.0)
        for pid, child in started.items():
            if child.poll():
                failed[pid] = _refusal(child)
            elif pid in waiting:
                failed[pid] = BUSY
    finally:
        for child in started.values():
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            child.communicate()
    return failed


def _interpreter(pid: int) -> str:
    """The absolute path of the process's interpreter; else why there is none to use."""
    try:
        path = str(Path(f"/proc/{pid}/exe").readlink())
    except FileNotFoundError:
        return "its process has ended"
    except OSError as exc:
        return f"it cannot be made live: {exc.strerror}"
    # The name of the file itself, links followed, tells the release; any other program may do anything when it is run.
    if _INTERPRETER.fullmatch(Path(path).name) is None:
        return TOO_OLD
    with contextlib.suppress(OSError):
        inside = Path(f"/proc/{pid}/root")
        if Path(path).samefile(f"/proc/{pid}/exe") and SCRIPT.samefile(inside / str(SCRIPT).lstrip("/")):
            return path
    return ELSEWHERE


def _refusal(child: processes.Child) -> str:
    assert child.stderr is not None
    words = child.stderr.read().decode("utf-8", "replace").strip().splitlines()
    return f"it cannot be made live: {sanitize.clean(words[-1], 200) if words else 'its Python failed'}"
