"""Slurm as the policy needs it, by what its commands print."""

from __future__ import annotations

import pytest

from probing_cluster.control_plane.policy import slurm_actions
from probing_cluster.core import errors, settings

CONFIG = """Configuration data as of 2026-01-31T08:00:00
CliFilterPlugins        = (null)
ClusterName             = hpc-2
Licenses                = (null)
"""


@pytest.mark.parametrize(("text", "name"), [(CONFIG, "hpc-2"), ("", "")])
def test_the_cluster_is_that_of_slurm_conf(text: str, name: str) -> None:
    config = settings.Settings(slurm=settings.SlurmSettings(live="cli"))
    found = slurm_actions.SlurmActions(config, lambda *_: text.encode())
    assert found.cluster_name() == name


def test_a_slurm_that_does_not_answer_names_no_cluster() -> None:
    """Whoever asks it for something else next finds that out, with the reason."""

    def away(*_: str) -> bytes:
        raise errors.SlurmUnavailable("slurmctld does not answer")

    config = settings.Settings(slurm=settings.SlurmSettings(live="cli"))
    assert slurm_actions.SlurmActions(config, away).cluster_name() == ""
