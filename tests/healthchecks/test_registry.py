"""The register."""

from __future__ import annotations

from pathlib import Path

import pytest

from probing_cluster.core import errors
from probing_cluster.healthchecks import checks, registry


def test_one_file_one_check() -> None:
    """Every file in checks/ is one check of its name, and there are at least forty."""
    files = {p.stem for p in Path(checks.__path__[0]).glob("*.py")} - {"__init__"}
    assert files == set(registry.load()) == {check.name for check in registry.load().values()}
    assert len(files) >= 40


def test_what_the_issue_names_is_there() -> None:
    """The union of what NHC, GCM and AzNHC look at has its checks."""
    wanted = """gpu_count gpu_ecc gpu_row_remap gpu_retired_pages gpu_xid gpu_throttle gpu_temperature gpu_clocks
    gpu_versions gpu_nvlink nvswitch_fabric gpu_persistence gpu_processes gpu_memory_leftover pcie_link pcie_aer ib_link
    ib_counters ib_flap ib_firmware eth_link nvme_smart raid mount_present mount_writable mount_responsive disk_space
    disk_inodes memory_size memory_fragmentation edac mce cpu_count cpu_frequency cpu_governor swap load
    processes_dstate processes_zombie services packages kernel_version clock_sync dns user_lookup ipmi_sel ipmi_sensors
    unauthorized_processes slurmd cgroup agent_self"""
    assert set(wanted.split()) <= set(registry.load())


def test_a_misspelt_name() -> None:
    """An unknown name is refused with the nearest ones."""
    with pytest.raises(errors.UsageError, match="did you mean: gpu_ecc"):
        registry.get("gpu_eec")
    with pytest.raises(
        errors.UsageError, match="no check is called 'nope'; probing-check list shows them all"
    ):
        registry.get("nope")


def test_files_are_short() -> None:
    """A check stays something a person can read at a sitting."""
    for path in Path(checks.__path__[0]).glob("*.py"):
        assert len(path.read_text().splitlines()) <= 200, path.name
