"""What the gate does after its tests failed: those of up to three files run once more, one at a time, and the gate names those that then pass.

The tests watch real Slurm, real kernels and real browsers on machines of any speed. A test that fails among four workers and passes alone
has a race, in the test or in the product: the gate goes on and says so in its last lines, in capital letters. Tests of one file share a
cluster and fall together, so files are counted. A test that fails twice, failures in a fourth file or of more than eight tests, an error of
collection or an interrupted run end the gate. CPython's own test runner does the same (`regrtest --rerun`).
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

MOST_FILES, MOST_TESTS = 3, 8
LAST_FAILED = Path(".pytest_cache/v/cache/lastfailed")


def main(argv: list[str]) -> int:
    """`once_more.py STATUS PYTEST…`: the gate's exit status after pytest ended with STATUS; PYTEST… is the command without a selection."""
    status, pytest = int(argv[0]), argv[1:]
    if status != 1:  # 1 says that tests failed; anything else, that they could not be run
        return status
    failed = sorted(json.loads(LAST_FAILED.read_text()))
    n_files = len({name.partition("::")[0] for name in failed})
    if not 0 < n_files <= MOST_FILES or len(failed) > MOST_TESTS:
        print(
            f"{len(failed)} tests failed: none is run again (at most {MOST_TESTS} of {MOST_FILES} files are)"
        )
        return status
    print("run once more, alone: " + " ".join(failed), flush=True)
    # In the order of their files: tests that share a cluster rely on it.
    files = sorted({name.partition("::")[0] for name in failed})
    again = subprocess.run([*pytest, "--last-failed", *files], check=False).returncode
    if again == 0:
        print("FAILED ONCE, PASSED ALONE: " + " ".join(failed))
    return again


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
