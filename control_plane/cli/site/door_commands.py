"""`probing-ctl door serve`: the agents' door (docs/scale.md)."""

from __future__ import annotations

import argparse

from probing_cluster.control_plane.cli import commands


def register(register: commands.Commands) -> None:
    """Adds the group `door`."""
    group = register.group("door", "the agents' door, for thousands of nodes")
    group.add(
        "serve",
        _serve,
        "take agents' deliveries over TLS and hand them to the database by the batch; until SIGTERM",
    )


def _serve(args: argparse.Namespace) -> int:
    from probing_cluster.control_plane.node_door import serve
    from probing_cluster.core import settings

    return serve.main(settings.load(args.config))
