"""The fuzz target of `fuzz` under atheris' coverage guidance.

    python -m benchmarks.evidence.coverage_fuzz [libFuzzer options, e.g. -max_total_time=60 -max_len=400]

Only our readers are instrumented.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["probing_cluster.evidence"]):
    from benchmarks.evidence import fuzz


def main() -> None:
    """Fuzz until told to stop; any exception is a crash."""
    target = fuzz.Target()

    def one(data: bytes) -> None:
        target.one(data)
        fuzz.dump(data)

    atheris.Setup(sys.argv, one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
