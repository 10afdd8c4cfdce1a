"""A process that tells of every fact in a file, again and again, until it is killed; with a second argument, once."""

from __future__ import annotations

import json
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from probing_cluster.control_plane import delivery
from probing_cluster.control_plane.notices import blind, fact
from probing_cluster.core import records, settings


def facts(path: Path) -> list[fact.Fact]:
    lines = path.read_text().splitlines()
    return [
        fact.Fact(fact_id=name, cause=name, at=datetime.fromisoformat(at), severity=records.Severity.HIGH, line=name, stands=True)
        for name, at in map(json.loads, lines)
    ]  # fmt: skip


def main() -> None:
    config = settings.load(Path(sys.argv[1]))
    print("ready", flush=True)
    while True:
        now = datetime.now(UTC)
        blind.notify(config, facts(Path(sys.argv[2])), now)
        delivery.flush(config, now)
        if len(sys.argv) > 3:
            return
        time.sleep(0.01)


if __name__ == "__main__":
    main()
