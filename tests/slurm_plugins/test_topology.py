"""Switches and blocks out of `scontrol show topology`."""

from __future__ import annotations

from probing_cluster.slurm_plugins import topology

TREE = (
    "SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=n[1-2]\n"
    "SwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=n[3-4]\n"
    "SwitchName=spine Level=1 LinkSpeed=1 Nodes=n[1-4] Switches=leaf[1-2]\n"
)
"""As Slurm 22.05.8 printed it, with topology/tree and these three switches configured."""


def test_every_level_is_a_place() -> None:
    """A node is under its leaf switch and the switches above."""
    places = list(topology.parse(TREE + "SwitchName=core Level=2 LinkSpeed=1 Nodes=n[1-4] Switches=spine\n"))
    assert [p for p in places if p[0] == "n3"] == [
        ("n3", "leaf", "leaf2"),
        ("n3", "spine", "spine"),
        ("n3", "switch", "core"),
    ]
    assert {kind for _, kind, _ in places} <= set(topology.KINDS)


def test_blocks_are_places_too() -> None:
    """topology/block of 23.11 and later, and blocks of blocks."""
    text = (
        "BlockName=b1 BlockIndex=0 Nodes=n[1-2] BlockSize=2\nBlockName=b2 BlockIndex=1 Nodes=n3 BlockSize=2\n"
        "AggregatedBlock=b[1-2] BlockIndex=2 Nodes=n[1-3] BlockSize=4\n"
    )
    places = list(topology.parse(text))
    assert [(n, p) for n, kind, p in places if kind == "block"] == [("n1", "b1"), ("n2", "b1"), ("n3", "b2")]
    assert [(n, p) for n, kind, p in places if kind == "blocks"] == [
        (n, "b[1-2]") for n in ("n1", "n2", "n3")
    ]


def test_what_cannot_be_read_has_no_place() -> None:
    """No topology, a switch without nodes, an odd list: nothing is guessed. A node may be under two leaves."""
    assert list(topology.parse("")) == []
    assert list(topology.parse("SwitchName=l1 Level=0 LinkSpeed=1\nSwitchName=l2 Level=0 Nodes=n[1-\n")) == []
    twice = "SwitchName=rail1 Level=0 Nodes=n1\nSwitchName=rail2 Level=0 Nodes=n[1-2]\n"
    assert len(list(topology.parse(twice))) == 3
    assert topology.leaves(topology.parse(TREE + twice)) == {
        "n1": "leaf1",
        "n2": "leaf1",
        "n3": "leaf2",
        "n4": "leaf2",
    }


def test_slurm_is_asked_in_its_own_words() -> None:
    """One command, and its bytes."""
    calls: list[tuple[str, ...]] = []

    def run(program: str, *arguments: str, environment: object = None) -> bytes:
        calls.append((program, *arguments))
        return TREE.encode()

    assert ("n4", "leaf", "leaf2") in topology.places(run)
    assert calls == [("scontrol", "show", "topology")]
