"""Leaf switches and blocks out of `scontrol show topology`."""

from __future__ import annotations

from probing_cluster.slurm_plugins import topology

TREE = (
    "SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=n[1-2]\n"
    "SwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=n[3-4]\n"
    "SwitchName=spine Level=1 LinkSpeed=1 Nodes=n[1-4] Switches=leaf[1-2]\n"
)
"""As Slurm 22.05.8 printed it, with topology/tree and these three switches configured."""


def test_the_leaf_switch_is_the_place() -> None:
    """Not the spine, on which every node hangs."""
    assert topology.parse(TREE) == {"n1": "leaf1", "n2": "leaf1", "n3": "leaf2", "n4": "leaf2"}


def test_blocks_are_places_too() -> None:
    """topology/block of 23.11 and later; an aggregated block names no new place."""
    text = (
        "BlockName=b1 BlockIndex=0 Nodes=n[1-2] BlockSize=2\nBlockName=b2 BlockIndex=1 Nodes=n3 BlockSize=2\n"
        "AggregatedBlock=b[1-2] BlockIndex=2 Nodes=n[1-3] BlockSize=4\n"
    )
    assert topology.parse(text) == {"n1": "b1", "n2": "b1", "n3": "b2"}


def test_what_cannot_be_read_has_no_place() -> None:
    """No topology, a switch without nodes, an odd list: nothing is guessed; the first leaf of two counts."""
    assert topology.parse("") == {}
    assert topology.parse("SwitchName=l1 Level=0 LinkSpeed=1\nSwitchName=l2 Level=0 Nodes=n[1-\n") == {}
    twice = "SwitchName=rail1 Level=0 Nodes=n1\nSwitchName=rail2 Level=0 Nodes=n[1-2]\n"
    assert topology.parse(twice) == {"n1": "rail1", "n2": "rail2"}


def test_slurm_is_asked_in_its_own_words() -> None:
    """One command, and its bytes."""
    asked: list[tuple[str, ...]] = []

    def run(program: str, *arguments: str, environment: object = None) -> bytes:
        asked.append((program, *arguments))
        return TREE.encode()

    assert topology.places(run)["n4"] == "leaf2"
    assert asked == [("scontrol", "show", "topology")]
