"""How large jobs stay away from lemons without a drain: a feature on sound nodes, or a weight on lemons.

Every release of Slurm can ask for a feature, not every one for its absence, so the feature goes to the nodes
that are sound: `--constraint=sound`. A weight only orders: lemons are given out last.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from probing_cluster.core import hostlist, settings
from probing_cluster.slurm_plugins import commands
from probing_cluster.slurm_plugins.live import live, live_records

FEATURE = "sound"
LAST_WEIGHT = 1_000_000


def slurms_nodes(config: settings.Settings) -> list[live_records.LiveNode]:
    """Every node with its features; raises SlurmUnavailable."""
    return live.connect(config.slurm, commands.SlurmCommands(settings=config.slurm)).nodes()


def features(bad: Iterable[str], nodes: Sequence[live_records.LiveNode]) -> list[str]:
    """scontrol lines that leave exactly the sound nodes with the feature; other features are kept."""
    lemons = set(bad)
    wanted: dict[tuple[str, ...], list[str]] = {}
    for node in nodes:
        others = tuple(f for f in node.features if f != FEATURE)
        after = others if node.name in lemons else (*others, FEATURE)
        if set(after) != set(node.features):
            wanted.setdefault(after, []).append(node.name)
    return [
        f"scontrol update NodeName={hostlist.compress(names)} AvailableFeatures={','.join(after)} ActiveFeatures={','.join(after)}"
        for after, names in sorted(wanted.items())
    ]


def weights(bad: Iterable[str], nodes: Sequence[live_records.LiveNode]) -> list[str]:
    """The scontrol line by which Slurm gives the lemons it knows last."""
    known = {n.name for n in nodes}
    names = sorted(set(bad) & known)
    return [f"scontrol update NodeName={hostlist.compress(names)} Weight={LAST_WEIGHT}"] if names else []
