"""What gres.conf says about GPU numbers, and what it leaves open."""

from __future__ import annotations

from pathlib import Path

import pytest

from probing_cluster.probe_agent.faults import gres_conf
from probing_cluster.probe_agent.faults.gres_conf import GpuNumbering


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("AutoDetect=nvml\n", GpuNumbering(by_pci=True)),
        ("NodeName=n[1-4] AutoDetect=nvml Name=gpu\n", GpuNumbering(by_pci=True)),
        ("NodeName=n[1-4] Name=gpu Type=h100 File=/x/dev/nvidia[0-3]\n", GpuNumbering(minors=(0, 1, 2, 3))),
        (
            "Name=gpu File=/dev/nvidia0 Cores=0-7\nName=gpu File=/dev/nvidia1 # two\n",
            GpuNumbering(minors=(0, 1)),
        ),
        ("name=gpu file=/dev/nvidia[4-5]\n", GpuNumbering(minors=(4, 5))),
        ("AutoDetect=off\nName=gpu File=/dev/nvidia0\n", GpuNumbering(minors=(0,))),
        ("Name=gpu File=/dev/nvidia1\nName=gpu File=/dev/nvidia0\n", None),
        ("Name=gpu Type=a File=/dev/nvidia0\nName=gpu Type=b File=/dev/nvidia1\n", None),
        ("NodeName=other Name=gpu File=/dev/nvidia[0-3]\n", None),
        ("Name=gpu Count=8\n", None),
        ("AutoDetect=rsmi\n", None),
        ("Name=gpu File=/dev/nvidia[0-\n", None),
        ("Name=shard Count=8\nName=gpu File=/dev/nvidia0\n", GpuNumbering(minors=(0,))),
        ("", None),
    ],
)
def test_numbering_of_a_node(text: str, expected: GpuNumbering | None) -> None:
    """One reading, or none."""
    assert gres_conf.parse(text, "n1") == expected


def test_file_beside_slurm_conf_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The configured path first, then the environment's."""
    monkeypatch.delenv("SLURM_CONF", raising=False)
    (tmp_path / "gres.conf").write_text("AutoDetect=nvml\n")
    assert gres_conf.find(str(tmp_path / "slurm.conf")) == "AutoDetect=nvml\n"
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    assert gres_conf.find("") == "AutoDetect=nvml\n"
