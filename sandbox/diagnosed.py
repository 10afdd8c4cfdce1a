"""The hardware that tests touch, as a sandbox's node has it: `probing-diagnose` with the faults that were injected.

    python -m probing_cluster.sandbox.diagnosed DIRECTORY          what the job step runs, DIRECTORY the sandbox's
    python -m probing_cluster.sandbox.diagnosed --reset DIRECTORY  the sandbox's way to reset GPUs

Only arithmetic and links are played; the tests, the sockets and the processes are real.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from probing_cluster.diagnostics import machine, worker

FILE = "diagnosed.json"


@dataclass(frozen=True, kw_only=True)
class SimulatedMachine(machine.Machine):
    """A node with the faults of its file, as they are at each use: a reset before the tests cures some."""

    home: Path = field(default_factory=Path)

    @property
    def faults(self) -> dict[str, Any]:
        """What is in the file now."""
        return read(self.home)

    def product(self, a: machine.Matrix, b: machine.Matrix) -> machine.Matrix:
        """A slow part takes that many times as long; a wrong one flips a bit of one element."""
        began = time.thread_time()
        made = super().product(a, b)
        until = began + (time.thread_time() - began) * float(self.faults.get("slow_compute", 1.0))
        while time.thread_time() < until:
            pass
        if self.faults.get("wrong_product"):
            made[1][2] = made[1][2] + 2.0**-10
        return made

    def send(self, peer: str, link: socket.socket, data: bytes | memoryview) -> None:
        """Slow links wait before each send."""
        time.sleep(float(self.faults.get("slow_link_s", 0.0)))
        super().send(peer, link, data)

    def answers(self) -> bool:
        """A dead peer takes part in nothing."""
        return not self.faults.get("dead_links")


def read(home: Path) -> dict[str, Any]:
    """The faults of one node."""
    try:
        found: dict[str, Any] = json.loads((home / FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return found


def cure(home: Path, by: str) -> None:
    """Ends the faults of a node that are cured by `reset` or `heal`; others stay."""
    if read(home).get("cured_by") == by:
        (home / FILE).unlink(missing_ok=True)


def main(argv: list[str]) -> int:
    """One step of tests, or a reset; the exit status."""
    home = Path(argv[-1]) / "nodes" / os.environ["SLURMD_NODENAME"]
    if "--reset" in argv:
        cure(home, "reset")
        return 0

    def make(**given: Any) -> machine.Machine:
        return SimulatedMachine(home=home, **given)

    return worker.main([], make)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
