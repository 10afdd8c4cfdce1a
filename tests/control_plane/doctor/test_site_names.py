"""The doctor finds what is called otherwise on one side, where nothing would fail and nothing be found."""

from __future__ import annotations

import dataclasses
import datetime as dt

from probing_cluster.control_plane.doctor import site_names
from probing_cluster.core import records, settings

NOW = dt.datetime(2026, 1, 31, 14, 0, tzinfo=dt.UTC)
CONFIG = dataclasses.replace(settings.Settings(), cluster=settings.ClusterSettings(name="c"))
SLURM = {"n1": True, "n2": True, "login1": False}


def beat(node: str, cluster: str = "c") -> records.AgentHeartbeat:
    return records.AgentHeartbeat(cluster=cluster, node=node, at=NOW)


def levels(*beats: records.AgentHeartbeat) -> dict[str, str]:
    found = list(site_names.judge(CONFIG, SLURM, beats))
    assert all(f.why and f.fix for f in found)
    return {f.name: f.level for f in found}


def test_the_clusters_name() -> None:
    """Another name than slurm.conf's is said, with both; without an answer there is none."""
    assert [f.level for f in site_names.cluster(CONFIG, {"ClusterName": "c"})] == ["ok"]
    finding, = site_names.cluster(CONFIG, {"ClusterName": "prod"})  # fmt: skip
    assert (finding.name, finding.level) == ("cluster_name", "warn")
    assert "c" in finding.found
    assert '[cluster] name = "prod"' in finding.fix
    assert list(site_names.cluster(CONFIG, {})) == []


def test_agents_and_slurm_name_the_same_nodes() -> None:
    """All heard: nothing; a GPU node never heard, a node Slurm has not, another cluster's name: one finding each."""
    assert levels(beat("n1"), beat("n2")) == {}
    assert levels(beat("n1")) == {"agents_missing": "warn"}
    assert levels(beat("n1"), beat("n2"), beat("n2.example.org")) == {"agent_names": "warn"}
    assert levels(beat("n1"), beat("n2"), beat("n2", "other")) == {"agent_cluster": "fail"}
    assert levels() == {}, "that none was ever heard is said once, by `agents`"


def test_nodes_as_sinfo_prints_them() -> None:
    """A node in two partitions counts once; a resource that is no GPU makes no GPU node."""
    text = b"n1|gpu:h100:8(S:0-1)\nn1|gpu:h100:8(S:0-1)\nlogin1|(null)\nn3|craynetwork:4\n"
    assert site_names.gpu_nodes(lambda *_: text) == {"n1": True, "login1": False, "n3": False}
