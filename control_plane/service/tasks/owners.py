"""What jobs' owners are told: the mails they asked Slurm for, with the verdict, and a line in accounting."""

from __future__ import annotations

from pathlib import Path

from probing_cluster.control_plane import context
from probing_cluster.control_plane.service import lease


def run(service: context.Context) -> str:
    """One look; what was sent and written."""
    words = []
    if service.config.mail.host:
        words += _mails(service)
    if service.config.service.write_back:
        from probing_cluster.control_plane.owners import write_back

        with lease.taken(service, "owners") as mine:
            words += write_back.run(service) if mine else []
    return "; ".join(words)


def _mails(service: context.Context) -> list[str]:
    from probing_cluster.control_plane.owners import held_mail, missing

    missing.run(service)
    held_mail.run(service)
    if not (Path(service.config.mail.spool_directory) / "owed").is_dir():
        return []
    from probing_cluster.control_plane import delivery
    from probing_cluster.control_plane.owners import answers

    now = service.clock.now()
    put = answers.run(service, now)
    if put:
        delivery.flush(service.config, now)
    return [f"{len(put)} mails"] if put else []


TASK = context.Task(
    name="owners",
    meaning="sends owners the mails they asked Slurm for, with the verdict, and writes verdicts back to accounting",
    run=run,
    every_s=lambda _: 2.0,
)
