"""Commands that start a job's process in a container, each by what is on this machine: for the tests of ranks in containers.

Each hides what is outside: of the host's files only the system's programs and libraries, Python, the probe's directory and
the job's page directory are seen, bound as docs/probe.md says, and the process is number 1 of a PID namespace of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from probing_cluster.probe_agent import inject

UNSHARE = ("/usr/bin/unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc/alternatives")

_OCI = """
import json, os, pathlib, subprocess, sys
base = pathlib.Path(sys.argv[1]) / f"bundle{os.getpid()}"
(base / "rootfs").mkdir(parents=True)
seen, argv = json.loads(sys.argv[2]), sys.argv[3:]
subprocess.run(["runc", "spec"], cwd=base, check=True)
spec = json.loads((base / "config.json").read_text())
spec["process"] |= {"terminal": False, "args": argv, "cwd": "/", "env": [f"{k}={v}" for k, v in os.environ.items()]}
spec["root"] = {"path": "rootfs", "readonly": False}
spec["mounts"] = [m for m in spec["mounts"] if m["type"] != "cgroup"]
for path, how in seen.items():
    spec["mounts"].append({"destination": path, "source": os.path.realpath(path), "type": "bind", "options": ["rbind", how]})
spec["linux"]["namespaces"] = [{"type": name} for name in ("pid", "mount", "ipc", "uts")]
spec["linux"].pop("resources", None)
(base / "config.json").write_text(json.dumps(spec))
os.environ["PATH"] = "/usr/bin:/usr/sbin:/bin"
os.execvp("runc", ["runc", f"--root={base}/state", "run", "--no-new-keyring", f"--bundle={base}", f"probing{os.getpid()}"])
"""


def _visible(pages: Path) -> dict[str, str]:
    """What is visible inside, and whether it may be written."""
    python = {str(Path(prefix).resolve()) for prefix in (sys.prefix, sys.base_prefix)} - {"/usr"}
    shown = [*(p for p in _SYSTEM if Path(p).exists()), *sorted(python), str(inject.SITE_DIRECTORY.resolve())]
    return {**dict.fromkeys(shown, "ro"), str(pages): "rw"}


def _unshare(_pages: Path, _scratch: Path) -> tuple[str, ...]:
    return UNSHARE


def _bubblewrap(pages: Path, _scratch: Path) -> tuple[str, ...]:
    binds = [
        word
        for path, how in _visible(pages).items()
        for word in ("--ro-bind" if how == "ro" else "--bind", path, path)
    ]
    apart = ("--unshare-all", "--as-pid-1", "--die-with-parent", "--proc", "/proc", "--dev", "/dev")
    return ("bwrap", *apart, *binds)


def _runc(pages: Path, scratch: Path) -> tuple[str, ...]:
    return (sys.executable, "-I", "-c", _OCI, str(scratch), json.dumps(_visible(pages)))


RUNTIMES: dict[str, Callable[[Path, Path], tuple[str, ...]]] = {
    "unshare": _unshare,
    "bubblewrap": _bubblewrap,
    "runc": _runc,
}


def command(runtime: str, pages: Path, scratch: Path) -> tuple[str, ...]:
    """The words that come before a program to start it inside; skips the test where that does not work here."""
    made = RUNTIMES[runtime](pages, scratch)
    try:
        tried = subprocess.run([*made, "/bin/true"], capture_output=True, text=True, check=False, timeout=60)
    except OSError as exc:
        pytest.skip(f"needs {runtime}: {exc}")
    if tried.returncode:
        pytest.skip(f"{runtime} does not run here: {tried.stderr.strip()[-300:]}")
    return made
