"""Package versions."""

from __future__ import annotations

from typing import Any

from probing_cluster.core.records import Outcome


def test_versions(node: Any) -> None:
    """A package with the right version is ok, a missing or other one fails."""
    node.tool(
        "dpkg-query", "installed slurmd 23.11.4-1\ninstalled cuda-drivers 550.90.07-1\nconfig-files gone 1.0"
    )
    assert node.check("packages", expected=["slurmd", "cuda-drivers=550.90"]).outcome is Outcome.OK
    assert node.check("packages", expected=["cuda-drivers=550.9"]).outcome is Outcome.FAIL
    assert node.check("packages", expected=["gone"]).message == "gone is not installed"


def test_rpm(node: Any) -> None:
    """rpm is asked where there is no dpkg."""
    node.tool("rpm", "installed slurm-slurmd 23.11.4-1.el9\npackage gone is not installed", code=1)
    assert node.check("packages", expected=["slurm-slurmd=23.11.4"]).outcome is Outcome.OK
    assert node.check("packages", expected=["gone"]).outcome is Outcome.FAIL


def test_a_broken_database(node: Any) -> None:
    """A package manager that fails is an error, not a missing package."""
    node.tool("dpkg-query", "", code=2, error="database is locked")
    assert node.check("packages", expected=["slurmd"]).outcome is Outcome.ERROR


def test_nothing_asked(node: Any) -> None:
    """Without packages in the site file there is nothing to judge."""
    assert node.check("packages").outcome is Outcome.ABSENT
