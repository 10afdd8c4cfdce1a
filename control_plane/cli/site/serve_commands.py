"""`probing-ctl serve`: the scheduled service."""

from __future__ import annotations

import argparse

from probing_cluster.control_plane.cli import commands


def register(register: commands.Commands) -> None:
    """Adds `serve`."""
    register.add("serve", _serve, "run the service: accounting, attribution, actions, reports; until SIGTERM")


def _serve(args: argparse.Namespace) -> int:
    from probing_cluster.core.ending import process_memory

    process_memory.keep_small()
    from probing_cluster.control_plane.service import serve
    from probing_cluster.core import settings

    return serve.main(settings.load(args.config))
