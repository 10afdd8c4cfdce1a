"""NODE_FAIL of several nodes whose kernel logs end before it: a quiet log is a healthy node's, too, and accuses none."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from probing_cluster.attribution.passes import attribute
from probing_cluster.control_plane.imports import load
from probing_cluster.db import store as db_store

NOW = datetime(2026, 11, 21, tzinfo=UTC)
PANIC = "2026-11-20T12:59:50,000000+00:00 Kernel panic - not syncing: Fatal machine check\n"
USB = "2026-11-20T12:59:00,000000+00:00 usb 1-1: new high-speed USB device\n"
XID = "2026-11-20T09:30:00,000000+00:00 NVRM: Xid (PCI:0000:5d:00): 31, pid=77, name=python, Ch 00000008\n"
BOOT = "2026-11-20T13:02:00,000000+00:00 Linux version 5.15.0-91-generic (buildd@lcy02) (gcc 11.4.0) #101-Ubuntu SMP\n"
LATE, HOUR = BOOT.replace("13:02", "13:15"), BOOT.replace("13:02", "14:02")
PANICKED = ("cpu_mce", "n4", "likely")

CASES = {
    "the other log is quiet": ("n[4-5]", "", {"n4": PANIC, "n5": USB}, PANICKED),
    "an old line of the program's own": ("n[4-5]", "", {"n4": PANIC, "n5": XID}, PANICKED),
    "no other log": ("n[4-5]", "", {"n4": PANIC}, PANICKED),
    "three nodes": ("n[4-6]", "", {"n4": PANIC, "n5": USB}, PANICKED),
    "three logs": ("n[4-6]", "", {"n4": PANIC, "n5": USB, "n6": XID}, PANICKED),
    "the healthy node was restarted later": ("n[4-5]", "", {"n4": PANIC, "n5": USB + BOOT}, PANICKED),
    "Slurm names the node that panicked": ("n[4-5]", "n4", {"n4": PANIC, "n5": USB}, PANICKED),
    "Slurm names the quiet one": ("n[4-5]", "n5", {"n5": USB}, ("node_lost", "n5", "likely")),
    "one quiet log and nothing else": ("n[4-5]", "", {"n5": USB}, ("node_lost", None, "likely")),
    "a log that ends and begins with a boot": ("n[4-5]", "", {"n4": USB, "n5": USB + BOOT}, ("node_lost", "n5", "likely")),
    "it booted a quarter of an hour later": ("n[4-5]", "", {"n4": USB, "n5": USB + LATE}, ("node_lost", "n5", "likely")),
    "somebody restarted it an hour later": ("n[4-5]", "", {"n4": USB, "n5": USB + HOUR}, ("node_lost", None, "likely")),
    "both were restarted": ("n[4-5]", "", {"n4": USB + BOOT, "n5": USB + BOOT}, ("node_lost", None, "likely")),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_where_a_log_ends_says_nothing_of_its_node(store: db_store.Store, tmp_path: Path, name: str) -> None:
    """The node with a fatal event of its own is why; without one the lost node is open, unless Slurm or a restart names it."""
    nodes, failed, logs, expected = CASES[name]
    (tmp_path / "sacct").write_text(
        "JobID|State|ExitCode|Submit|Start|End|NodeList|AllocTRES|FailedNode\n"
        f"77|NODE_FAIL|0:0|2026-11-20T09:00:00|2026-11-20T09:00:30|2026-11-20T13:00:35|{nodes}|gres/gpu=16|{failed}\n"
    )
    kernel = []
    for node, text in logs.items():
        (tmp_path / node).write_text(text)
        kernel.append((node, tmp_path / node))
    load.load(store, load.LoadOrder(sacct=[tmp_path / "sacct"], kernel=kernel, cluster="c", now=NOW, timezone="UTC"))  # fmt: skip
    attribute.attribute(store)
    (found,) = store.verdicts(job_ids=[77])
    assert (found.cause, found.node, str(found.confidence)) == expected
