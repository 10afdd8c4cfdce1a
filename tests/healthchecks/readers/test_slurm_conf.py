"""What slurm.conf promises about a node."""

from __future__ import annotations

from typing import Any

import pytest

from probing_cluster.healthchecks import nodeview
from probing_cluster.healthchecks.readers import slurm_conf

CONF = """
ClusterName=x
NodeName=DEFAULT Sockets=2 CoresPerSocket=32 ThreadsPerCore=1 RealMemory=515000
NodeName=gpu[001-064] Gres=gpu:h100:8 CPUs=128 # eight of them
NodeName=login1 RealMemory=64000
nodename="big1" Gres=gpu:a100:4,gpu:t4:2,nvme:1
"""


@pytest.mark.parametrize(
    ("name", "gpus", "cpus", "mib"),
    [
        ("gpu017", 8, 128, 515000),
        ("login1", None, 64, 64000),
        ("big1", 6, 64, 515000),
        ("other", None, None, None),
    ],
)
def test_nodes(name: str, gpus: int | None, cpus: int | None, mib: int | None) -> None:
    """DEFAULT lines, hostlists, several GPU types, comments and quotes."""
    conf = slurm_conf.parse(CONF, name)
    assert (conf.gpu_count, conf.cpu_count) == (gpus, cpus)
    assert conf.memory_bytes == (None if mib is None else mib * 2**20)


@pytest.mark.parametrize(
    ("gres", "count"),
    [
        ("gpu:8", 8),
        ("gpu", 1),
        ("gpu:h100:8(S:0-1)", 8),
        ("gpu:h100", 1),
        ("nvme:2", None),
        ("gpu:4,craynetwork:1", 4),
        ("gpu:1g.10gb:56", None),
        ("gpu:nvidia_a100_3g.20gb:8(S:0-1)", None),
        ("gpu:a100:2,gpu:1g.5gb+me:14", None),
        ("gpu:7g:4", 4),
    ],
)
def test_gres(gres: str, count: int | None) -> None:
    """Every way to write a number of GPUs; slices of GPUs are no number of them."""
    assert slurm_conf.parse(f"NodeName=n Gres={gres}", "n").gpu_count == count


def test_numbers_that_slurm_does_not_hold_to(node: Any) -> None:
    """With config_overrides a node may be configured with more CPUs and memory than it has."""
    text = (
        "SlurmdParameters=numa_node_as_socket,config_overrides\nNodeName=n CPUs=999 RealMemory=9 Gres=gpu:4"
    )
    conf = slurm_conf.parse(text, "n")
    assert (conf.cpu_count, conf.memory_bytes, conf.gpu_count) == (None, None, 4)
    assert slurm_conf.parse(text.replace("config_overrides", "l3cache_as_socket"), "n").cpu_count == 999


def test_files(node: Any) -> None:
    """The configuration of the node is found, its includes followed, and what the caller knows stands."""
    node.put("etc/slurm/slurm.conf", "include nodes.conf\nNodeName=n2 \\\n  Gres=gpu:2")
    node.put("etc/slurm/nodes.conf", "NodeName=n1 Gres=gpu:4 CPUs=16")
    expected = slurm_conf.expecting(node.spec).expected
    assert (expected.gpu_count, expected.cpu_count) == (4, 16)
    node.expected = nodeview.Expectations(gpu_count=7, uids=frozenset({1000}))
    expected = slurm_conf.expecting(node.spec).expected
    assert (expected.gpu_count, expected.cpu_count, expected.uids) == (7, 16, frozenset({1000}))


def test_changes_are_seen(node: Any) -> None:
    """A changed file is read again."""
    node.put("etc/slurm/slurm.conf", "NodeName=n1 Gres=gpu:4")
    assert slurm_conf.expecting(node.spec).expected.gpu_count == 4
    node.put("etc/slurm/slurm.conf", "NodeName=n1 Gres=gpu:16")
    assert slurm_conf.expecting(node.spec).expected.gpu_count == 16


def test_no_slurm(node: Any) -> None:
    """Without slurm.conf nothing is promised."""
    assert slurm_conf.expecting(node.spec) == node.spec
