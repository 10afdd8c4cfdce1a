"""Verdicts into the jobs' own records in accounting, a command each: by itself, so that no mail waits for them."""

from __future__ import annotations

from probing_cluster.control_plane import context
from probing_cluster.control_plane.service import turns


def run(service: context.Context) -> str:
    """One look; what was written."""
    if not service.config.service.write_back:
        return ""
    from probing_cluster.control_plane.owners import write_back

    with turns.take(service, "owners") as mine:
        written = write_back.run(service) if mine else 0
    return f"{written} lines written back" if written else ""


TASK = context.Task(
    name="write_back",
    meaning="writes verdicts into the jobs' records in accounting, where `service.write_back` names a field",
    run=run,
    every_s=lambda _: 15.0,
)
