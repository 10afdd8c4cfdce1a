"""The TOML files of a sandbox."""

from __future__ import annotations

from pathlib import Path

from probing_cluster.core import settings
from probing_cluster.sandbox.machine import configs, layout


def test_configurations_are_what_settings_accept(tmp_path: Path) -> None:
    """Every TOML file that the sandbox writes parses without an unknown key."""
    lay = layout.Layout(
        directory=tmp_path,
        nodes=4,
        gpus=8,
        bare=False,
        slurmctld_port=1,
        slurmdbd_port=2,
        slurmd_ports=(3, 4, 5, 6),
    )
    service = settings.parse(configs.service_toml(lay))
    assert not service.policy.observe_only
    assert service.policy.budget_nodes == 2
    agent = settings.parse(configs.agent_toml(lay, "n3", Path("/x/libnvidia-ml.so.1")))
    assert agent.agent.node == "n3"
    assert agent.agent.kernel_log == f"file:{tmp_path}/nodes/n3/root/dev/kmsg"
    assert settings.parse(configs.replay_toml("c", tmp_path)).database.directory == str(tmp_path)
