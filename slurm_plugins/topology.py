"""Which nodes hang on the same switch or belong to the same block, as slurmctld's topology plugin has it.

`scontrol show topology` prints a line per switch or block (slurm_print_topo_record of 22.05, the plugins'
own printers since 23.11); with no topology plugin configured it prints none.
"""

from __future__ import annotations

import re

from probing_cluster.core import errors, hostlist
from probing_cluster.slurm_plugins import commands

_SWITCH = re.compile(r"^SwitchName=(?P<name>\S+)\s+Level=0\b")
_BLOCK = re.compile(r"^BlockName=(?P<name>\S+)")
_NODES = re.compile(r"\bNodes=(?P<nodes>\S+)")


def places(run: commands.Runner) -> dict[str, str]:
    """Node to its leaf switch (or block); raises SlurmUnavailable."""
    return parse(run("scontrol", "show", "topology").decode("utf-8", "replace"))


def parse(text: str) -> dict[str, str]:
    """The same from the command's text; of a node on several leaf switches the first one counts."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        named = _SWITCH.match(line) or _BLOCK.match(line)
        nodes = _NODES.search(line)
        if named is None or nodes is None:
            continue
        try:
            members = hostlist.expand(nodes["nodes"])
        except errors.MalformedInput:  # one odd line leaves its nodes without a place
            continue
        for node in members:
            found.setdefault(node, named["name"])
    return found
