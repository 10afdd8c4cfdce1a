"""What the parts of one agent share."""

from __future__ import annotations

from pathlib import Path

from probing_cluster.core import settings
from probing_cluster.probe_agent import daemon


def test_running_and_ended_jobs_take_from_the_same_shares(tmp_path: Path) -> None:
    """A user whose ranks die without end has as much less left for the output of ended jobs."""
    text = (
        f'[agent]\nroot = "{tmp_path}"\nnode = "n1"\nsocket = "{tmp_path}/s"\nspool_directory = "{tmp_path}/spool"\n'
        f'job_directory = "{tmp_path}/jobs"\n[checks]\nstate_file = "{tmp_path}/checks.json"\n'
    )
    parts = daemon.Agent(settings.parse(text)).parts
    assert parts.collector._shares is parts.ranks._shares
