"""The TOML files that our own processes read in a sandbox."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from probing_cluster.db.server import embedded
from probing_cluster.sandbox.machine import layout

Value = str | int | float | bool | Sequence[str]
Sections = Mapping[str, Mapping[str, Value]]


# Jobs here live for seconds: an hour between checkpoints would say that all their work was lost.
_SHORT_JOBS: Mapping[str, Value] = {"checkpoint_interval_s": 10.0, "restart_s": 1.0}


def service_toml(lay: layout.Layout) -> str:
    """etc/probing.toml: what probing-ctl and probing-report use; quick intervals, and it may act."""
    return _toml(
        {
            **_shared(lay),
            "service": {
                "accounting_poll_s": 2.0,
                "attribution_poll_s": 2.0,
                "action_poll_s": 0.5,
                "queue_poll_s": 3.0,
                "settle_s": 3.0,
                "socket": str(lay.run / "report.sock"),
                "munge_socket": str(lay.munge_socket),
            },
            "slurm": {"conf": str(lay.slurm_conf)},
            # A handful of nodes: the shares of a real cluster would round to none.
            "policy": {
                "observe_only": False,
                "budget_frac": 0.5,
                "budget_partition_frac": 0.5,
                "standing_frac": 1.0,
                "standing_partition_frac": 1.0,
                "budget_nodes": max(2, lay.nodes // 2),
            },
            "attribution": _SHORT_JOBS,
            "mail": {"spool_directory": str(lay.directory / "mail")},
            "diagnostics": {"command": str(lay.bin / "probing-diagnose"), "test_s": 60.0, "references": 1},
            "repair": {
                "quiet_s": 5.0,
                "bundle_directory": str(lay.directory / "bundles"),
                "reset_command": str(lay.bin / "reset-gpus"),
            },
        }
    )


def agent_toml(lay: layout.Layout, node: str, nvml_library: Path) -> str:
    """nodes/<node>/probing.toml: one node's agent."""
    home = lay.node(node)
    return _toml(
        {
            **_shared(lay),
            "agent": {
                "root": str(home / "root"),
                "node": node,
                "socket": str(home / "run/agent.sock"),
                "spool_directory": str(home / "spool"),
                "job_directory": str(home / "run/jobs"),
                "nvml_library": str(nvml_library),
                "kernel_log": f"file:{home / 'root/dev/kmsg'}",
                "beat_s": 4.0,
                "job_beat_s": 2.0,
                "sweep_s": 60.0,
                "poll_s": 2.0,
                "call_deadline_s": 3.0,
                # Jobs here live for seconds, and so do their hangs.
                "stall_least_s": 10.0,
                "stall_startup_s": 60.0,
            },
            "slurm": {"conf": str(lay.slurm_conf)},
            "checks": {
                "state_file": str(home / "spool/checks.json"),
                # The host's own tools know nothing of the simulated node.
                "command_directories": [str(home / "root/usr/bin")],
            },
        }
    )


def replay_toml(cluster: str, postgres: Path) -> str:
    """What a replayed incident is judged and reported with: no Slurm, no agents, a database of its own."""
    return _toml(
        {
            "cluster": {"name": cluster},
            "database": {"directory": str(postgres)},
            "attribution": _SHORT_JOBS,
        }
    )


def write(lay: layout.Layout, nvml_library: Path) -> None:
    """Writes every file."""
    lay.probing_toml.write_text(service_toml(lay))
    module = f"{sys.executable} -m probing_cluster.sandbox.diagnosed"
    for name, option in (("probing-diagnose", ""), ("reset-gpus", "--reset ")):
        path = lay.bin / name
        path.write_text(f"#!/bin/sh\nexec {module} {option}{lay.directory}\n")
        path.chmod(0o755)
    for node in lay.node_names:
        (lay.node(node) / "probing.toml").write_text(agent_toml(lay, node, nvml_library))


def _shared(lay: layout.Layout) -> Sections:
    return {
        "cluster": {"name": layout.CLUSTER_NAME},
        # By URL and not by directory: a stopped database must stay stopped, as one on another host would.
        "database": {"url": embedded.url(lay.postgres)},
        "kept": {"directory": str(lay.kept / "%u")},
    }


def _toml(sections: Sections) -> str:
    lines = ["# Made by probing-sandbox; `up` writes it again."]
    for name, values in sections.items():
        lines += ["", f"[{name}]", *(f"{key} = {_literal(value)}" for key, value in values.items())]
    return "\n".join(lines) + "\n"


def _literal(value: Value) -> str:
    # JSON's strings, numbers, true/false and lists of strings are TOML's as well.
    return json.dumps(value if isinstance(value, (str, int, float)) else list(value))
