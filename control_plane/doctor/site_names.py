"""What `probing-ctl doctor` finds about names: cluster and nodes are called alike in Slurm, in our settings and by the agents.

A job's nodes meet their events by name. Where one side calls a node or the cluster otherwise, nothing fails: nothing is found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from probing_cluster.core import hostlist, records, settings
from probing_cluster.slurm_plugins import commands, doctor

_MOST = 6
"""Node names shown in one finding."""


def cluster(config: settings.Settings, slurm: Mapping[str, str]) -> Iterator[doctor.DoctorFinding]:
    """The name in our settings is slurm.conf's; `slurm` is what `scontrol show config` said."""
    theirs, ours = slurm.get("ClusterName", ""), config.cluster.name
    if not theirs:
        return
    if theirs == ours:
        yield doctor.ok("cluster_name", ours)
        return
    yield doctor.warn(
        "cluster_name",
        f"ours is {ours}, Slurm's is {theirs}",
        why="rows written here carry ours and imported history Slurm's: the two never meet",
        fix=f'[cluster] name = "{theirs}", here and on every node (probing_cluster_name in the inventory)',
    )


def gpu_nodes(run: commands.Runner) -> dict[str, bool]:
    """Every node that Slurm knows, and whether it has GPUs; raises SlurmUnavailable."""
    lines = run("sinfo", "-hN", "-o", "%N|%G").decode("utf-8", "replace").splitlines()
    pairs = (line.partition("|") for line in lines if line.strip())
    return {name.strip(): "gpu" in gres for name, _, gres in pairs}


def judge(
    config: settings.Settings, slurm: Mapping[str, bool], beats: Iterable[records.AgentHeartbeat]
) -> Iterator[doctor.DoctorFinding]:
    """The findings on who reports, held against `slurm`: node name to whether it has GPUs."""
    newest_beats = list(beats)
    foreign = sorted(b.node for b in newest_beats if b.cluster != config.cluster.name and b.node in slurm)
    ours = {b.node for b in newest_beats if b.cluster == config.cluster.name}
    if foreign:
        yield doctor.fail(
            "agent_cluster",
            f"{len(foreign)} report for another cluster: {_some(foreign)}",
            why="their events meet no job of this one",
            fix=f'[cluster] name = "{config.cluster.name}" in agent.toml there',
        )
    strange = sorted(ours - slurm.keys())
    if strange:
        yield doctor.warn(
            "agent_names",
            f"{len(strange)} are no node of Slurm's: {_some(strange)}",
            why="what they see meets no job; or they left the cluster",
            fix="[agent] node as NodeName in slurm.conf (probing_node); one that left: probing-ctl db remove-agent",
        )
    missing = sorted(name for name, gpus in slurm.items() if gpus and name not in ours)
    if missing and ours:
        yield doctor.warn(
            "agents_missing",
            f"{len(missing)} nodes with GPUs were never heard: {_some(missing)}",
            why="why a job died there is not known",
            fix="into the inventory (probing_compute), ansible-playbook site.yml",
        )


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return hostlist.compress(names[:_MOST]) + more
