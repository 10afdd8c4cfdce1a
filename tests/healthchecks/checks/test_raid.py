"""Software RAID."""

from __future__ import annotations

from typing import Any

from probing_cluster.core.records import Outcome, Severity
from probing_cluster.healthchecks.checks import raid

FULL = """Personalities : [raid1]
md127 : active raid1 nvme1n1p2[1] nvme0n1p2[0]
      937692352 blocks super 1.2 [2/2] [UU]
      bitmap: 1/7 pages [4KB], 65536KB chunk

unused devices: <none>"""
DEGRADED = FULL.replace("[2/2] [UU]", "[2/1] [U_]")
REBUILDING = DEGRADED.replace(
    "      bitmap", "      [=>......]  recovery =  8.5% (1/2) finish=4min\n      bitmap"
)


def test_states(node: Any) -> None:
    """Complete is ok, degraded fails low, inactive fails high, rebuilding says so."""
    node.put("proc/mdstat", FULL)
    assert node.check("raid").outcome is Outcome.OK
    node.put("proc/mdstat", DEGRADED)
    finding = node.check("raid")
    assert (finding.outcome, finding.severity, finding.measured) == (Outcome.FAIL, Severity.LOW, 1)
    node.put("proc/mdstat", REBUILDING)
    assert "recovery 8.5%" in node.check("raid").message
    node.put("proc/mdstat", "Personalities :\nmd0 : inactive sdb1[1](S)\n      1000 blocks\n")
    assert (node.check("raid").outcome, node.check("raid").severity) == (Outcome.FAIL, None)
    node.put("proc/mdstat", FULL.replace("      bitmap", "      [=>.]  resync = 1.0%\n      bitmap"))
    assert node.check("raid").outcome is Outcome.WARN


OF_THE_BOARD = """Personalities : [raid1]
md126 : active raid1 nvme3n1[1] nvme2n1[0]
      1855940608 blocks super external:/md127/0 [2/2] [UU]

md127 : inactive nvme3n1[1](S) nvme2n1[0](S)
      10402 blocks super external:imsm

unused devices: <none>"""


def test_containers_of_the_board(node: Any) -> None:
    """The container of Intel's VROC or of DDF is always inactive and no array; the arrays in it are judged."""
    node.put("proc/mdstat", OF_THE_BOARD)
    assert node.check("raid", count=1).outcome is Outcome.OK
    node.put("proc/mdstat", OF_THE_BOARD.replace("imsm", "ddf").replace("[2/2] [UU]", "[2/1] [U_]"))
    assert (node.check("raid").outcome, node.check("raid").severity) == (Outcome.FAIL, Severity.LOW)
    for place in ("/md127/0", "-md127/0"):
        stopped = OF_THE_BOARD.replace("md126 : active raid1", "md126 : inactive").replace("/md127/0", place)
        node.put("proc/mdstat", stopped)
        assert "md126 is inactive" in node.check("raid").message


def test_missing(node: Any) -> None:
    """An array of the site file that is not there fails."""
    node.put("proc/mdstat", FULL)
    assert node.check("raid", count=2).outcome is Outcome.FAIL


def test_none(node: Any) -> None:
    """No array, or no md driver, is nothing to judge."""
    node.put("proc/mdstat", "Personalities : \nunused devices: <none>")
    assert node.check("raid").outcome is Outcome.ABSENT


def test_several_arrays_are_told_apart() -> None:
    """Each array's own members are read, not the next one's."""
    two = FULL.replace("unused", "md1 : active raid0 sdc[1] sdb[0]\n      100 blocks\n\nunused")
    assert [(a.name, a.wanted) for a in raid.parse(two)] == [("md127", 2), ("md1", None)]
