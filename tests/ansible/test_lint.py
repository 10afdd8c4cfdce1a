"""The roles by the field's own judge, and the playbooks by Ansible's parser."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.ansible import conftest

HERE = conftest.ROOT / "ansible"


def environment(directory: Path) -> dict[str, str]:
    """Where Ansible's programs put what they remember: nowhere that stays."""
    return {**os.environ, "ANSIBLE_HOME": str(directory), "XDG_CACHE_HOME": str(directory), "NO_COLOR": "1"}


@pytest.mark.slow
@pytest.mark.soak
def test_ansible_lint_is_content(tmp_path: Path) -> None:
    """Profile `production`, with the one exception that .ansible-lint explains."""
    done = subprocess.run(
        [conftest.program("ansible-lint"), "--offline", "--project-dir", str(HERE), "--strict"],
        env=environment(tmp_path),
        cwd=HERE,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["site", "uninstall"])
def test_the_playbooks_parse_with_the_example_inventory(tmp_path: Path, name: str) -> None:
    """What a site copies first is valid, and names every group that the playbooks use."""
    done = subprocess.run(
        [
            conftest.program("ansible-playbook"),
            "--syntax-check",
            "-i",
            "inventory.example.yml",
            f"{name}.yml",
        ],
        env=environment(tmp_path),
        cwd=HERE,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_an_upgrade_goes_in_the_order_in_which_versions_bear_each_other() -> None:
    """Schema, service, then agents beginning with one node; Slurm's configuration last, and away first."""
    up, down = (
        yaml.safe_load((HERE / f"{name}.yml").read_text(encoding="utf-8")) for name in ("site", "uninstall")
    )
    order = ["probing_database", "probing_control", "probing_login", "probing_compute", "probing_slurm_conf"]
    assert [play["hosts"] for play in up] == order
    assert "default([1," in up[3]["serial"]
    assert down[0]["hosts"] == "probing_slurm_conf"
    assert down[4]["hosts"] == "probing_database"
