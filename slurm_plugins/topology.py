"""Which nodes hang on the same switches or belong to the same blocks, as slurmctld's topology plugin has it.

`scontrol show topology` prints a line per switch or block (slurm_print_topo_record of 22.05, the plugins'
own printers since 23.11); with no topology plugin configured it prints none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from probing_cluster.core import errors, hostlist
from probing_cluster.slurm_plugins import commands

KINDS = ("leaf", "spine", "switch", "block", "blocks")
"""What Slurm knows of: switches of level 0, 1 and above; blocks and blocks of blocks."""
_SWITCH = re.compile(r"^SwitchName=(?P<name>\S+)\s+Level=(?P<level>\d{1,3})\b")
_BLOCK = re.compile(r"^(?P<kind>Block|AggregatedBlock)(?:Name)?=(?P<name>\S+)")
_NODES = re.compile(r"\bNodes=(?P<nodes>\S+)")


def places(run: commands.Runner) -> list[tuple[str, str, str]]:
    """Node, kind and name of every switch and block it is under; raises SlurmUnavailable."""
    return list(parse(run("scontrol", "show", "topology").decode("utf-8", "replace")))


def parse(text: str) -> Iterator[tuple[str, str, str]]:
    """The same from the command's text; one odd line leaves its nodes without that place."""
    for line in text.splitlines():
        nodes = _NODES.search(line)
        switch, block = _SWITCH.match(line), _BLOCK.match(line)
        named = switch or block
        if named is None or nodes is None:
            continue
        try:
            members = hostlist.expand(nodes["nodes"])
        except errors.MalformedInput:
            continue
        if switch is not None:
            kind = {"0": "leaf", "1": "spine"}.get(switch["level"], "switch")
        else:
            kind = "block" if named["kind"] == "Block" else "blocks"
        for node in members:
            yield node, kind, named["name"]


def leaves(every: Iterable[tuple[str, str, str]]) -> dict[str, str]:
    """Node to its leaf switch or block; of a node on several leaf switches the first one counts."""
    found: dict[str, str] = {}
    for node, kind, name in every:
        if kind in ("leaf", "block"):
            found.setdefault(node, name)
    return found
