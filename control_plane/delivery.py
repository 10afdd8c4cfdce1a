"""Messages on their way: each kind by its own means, lanes side by side."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from probing_cluster.control_plane.notices import messages
from probing_cluster.control_plane.outbox import queue
from probing_cluster.core import secret_file, settings
from probing_cluster.reports.sending import smtp


def flush(
    config: settings.Settings, now: datetime, *, all_now: bool = False, wait: bool = True
) -> list[queue.QueuedMessage]:
    """Deliver what is due; the messages tried, as they are afterwards (`wait`: for lanes that another round delivers)."""
    return queue.of(config).flush(
        lambda message: deliver(config, message, now), now, all_now=all_now, wait=wait
    )


def deliver(config: settings.Settings, message: queue.QueuedMessage, now: datetime) -> smtp.SendOutcome:
    """One attempt to deliver a message."""
    if message.kind == messages.KIND:
        return messages.deliver(config, message, now)
    if message.kind == "mail":
        return smtp.send(config.mail, message.body, message.recipients)
    from probing_cluster.reports.sending import webhook

    secret = secret_file.read(Path(config.lemon.webhook_secret_file))
    (url,) = message.recipients
    return webhook.post(url, secret, message.key, message.body, now, config.mail.deadline_s)
