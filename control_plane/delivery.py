"""Letters on their way: each kind by its own means, lanes side by side."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from probing_cluster.control_plane.notices import letters
from probing_cluster.control_plane.outbox import queue
from probing_cluster.core import secret_file, settings
from probing_cluster.reports.sending import smtp


def flush(
    config: settings.Settings, now: datetime, *, all_now: bool = False, wait: bool = True
) -> list[queue.Letter]:
    """Deliver what is due; the letters tried, as they are afterwards (`wait`: for lanes that another round delivers)."""
    return queue.of(config).flush(
        lambda letter: deliver(config, letter, now), now, all_now=all_now, wait=wait
    )


def deliver(config: settings.Settings, letter: queue.Letter, now: datetime) -> smtp.SendOutcome:
    """One attempt to deliver a letter."""
    if letter.kind == letters.KIND:
        return letters.deliver(config, letter, now)
    if letter.kind == "mail":
        return smtp.send(config.mail, letter.body, letter.recipients)
    from probing_cluster.reports.sending import webhook

    secret = secret_file.read(Path(config.lemon.webhook_secret_file))
    (url,) = letter.recipients
    return webhook.post(url, secret, letter.key, letter.body, now, config.mail.deadline_s)
