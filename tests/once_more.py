"""What the gate does after its tests failed: up to three of them run once more, one at a time, and the gate names those that then pass.

The tests watch real Slurm, real kernels and real browsers on machines of any speed. A test that fails among four workers and passes alone
has a race, in the test or in the product: the gate goes on and says so in its last lines, in capital letters. A test that fails twice, a
fourth failure, an error of collection or an interrupted run end the gate. CPython's own test runner does the same (`regrtest --rerun`).
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

MOST = 3
LAST_FAILED = Path(".pytest_cache/v/cache/lastfailed")


def main(argv: list[str]) -> int:
    """`once_more.py STATUS PYTEST…`: the gate's exit status after pytest ended with STATUS; PYTEST… is the command without a selection."""
    status, pytest = int(argv[0]), argv[1:]
    if status != 1:  # 1 says that tests failed; anything else, that they could not be run
        return status
    failed = sorted(json.loads(LAST_FAILED.read_text()))
    if not 0 < len(failed) <= MOST:
        print(f"{len(failed)} tests failed: none is run again (at most {MOST} are)")
        return status
    print("run once more, alone: " + " ".join(failed), flush=True)
    again = subprocess.run([*pytest, *failed], check=False).returncode
    if again == 0:
        print("FAILED ONCE, PASSED ALONE: " + " ".join(failed))
    return again


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
