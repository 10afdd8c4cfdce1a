# ruff: noqa: SLF001 - posix._exit is the one exit without teardown
"""Slurm's Prolog, Epilog and HealthCheckProgram: one question to the agent; only a Prolog's explicit no exits non-zero.

Started as `/usr/bin/python3 -I -S <this file> prolog|epilog|healthcheck --socket PATH [--deadline SECONDS]`.
"""

import posix
import sys

op = sys.argv[1] if len(sys.argv) > 1 else ""

# -I takes the script's own directory off the path. What is imported from it runs as root, so it must be root's (or
# ours, where we are not root), and nobody else's to write (18 is 0o022); in any other case the hook does nothing.
here = __file__.rpartition("/")[0] or "."
for at in (here, here + "/agent_call.py"):
    try:
        found = posix.stat(at)
        others = 2 if found.st_gid in (0, posix.getegid()) else 18
        good = found.st_uid in (0, posix.geteuid()) and not found.st_mode & others
    except OSError:
        good = False
    if not good:
        words = "probing " + op + ": others can write " + at + " or it is missing; doing nothing\n"
        posix.write(2, words.encode("utf-8", "replace"))
        posix._exit(0)
sys.path.insert(0, here)

import agent_call  # type: ignore[import-not-found]  # noqa: E402 - from a place just judged

agent_call.leave(agent_call.main(op))
