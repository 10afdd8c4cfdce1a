"""The fuzz target of `evidence_fuzz` under atheris' coverage guidance.

    python -m benchmarks.evidence_atheris [libFuzzer options, e.g. -max_total_time=60 -max_len=400]

Only our readers are instrumented.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["probing_cluster.evidence"]):
    from benchmarks import evidence_fuzz


def main() -> None:
    """Fuzz until told to stop; any exception is a crash."""
    target = evidence_fuzz.Target()

    def one(data: bytes) -> None:
        target.one(data)
        evidence_fuzz.dump(data)

    atheris.Setup(sys.argv, one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
