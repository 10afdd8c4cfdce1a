# ruff: noqa: SLF001 - posix._exit is the one exit without teardown
"""Slurm's Prolog, Epilog and HealthCheckProgram: one question to the agent; only a Prolog's explicit no exits non-zero, with 42.

A Python that fails exits with a status of its own (1, 127, 137), and Slurm would drain the node for it. So a script of
the shell starts this file and lets 42 alone through (docs/slurm.md).

Started as `/usr/bin/python3 -I -S <this file> prolog|epilog|healthcheck --socket PATH [--deadline SECONDS]`.
"""

import posix
import sys

op = sys.argv[1] if len(sys.argv) > 1 else ""


def may_run(here: str) -> bool:
    """Whether nobody but root, or we where we are not root, can write what is imported and run as root.

    -I takes the script's own directory off the path. 18 is 0o022.
    """
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
            return False
    return True


try:
    directory = __file__.rpartition("/")[0] or "."
    if may_run(directory):
        sys.path.insert(0, directory)
        import agent_call  # type: ignore[import-not-found]

        agent_call.leave(agent_call.main(op))
except BaseException as exc:  # noqa: BLE001 - a file cut short by a full disk must not drain the node
    try:
        words = "probing " + op + ": " + type(exc).__name__ + ": " + str(exc)[:500] + "; going on\n"
        posix.write(2, words.encode("utf-8", "replace"))
    except OSError:
        pass  # nobody reads standard error
posix._exit(0)
