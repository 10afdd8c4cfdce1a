"""What a night sends: the mail to its recipients, the signed post to the site's webhook."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime

from probing_cluster.control_plane.outbox import queue
from probing_cluster.core import records, settings
from probing_cluster.lemon import nightly


def put(
    config: settings.Settings,
    night: nightly.Night,
    drains: Iterable[records.Drain],
    now: datetime,
    *,
    again: bool = False,
) -> list[str]:
    """Put the night's messages into the outbox, each once per night unless `again`; the kinds that are new there."""
    made = [*_mail(config, night, drains, now), *_webhook(config, night, now)]
    into = queue.of(config)
    return [message.kind for message in made if into.put(message, again=again)]


def _mail(
    config: settings.Settings, night: nightly.Night, drains: Iterable[records.Drain], now: datetime
) -> list[queue.QueuedMessage]:
    if not (config.mail.host and config.mail.recipients):
        return []
    from probing_cluster.reports.sending import mail  # matplotlib's import costs a second

    body = bytes(mail.compose(night, config.mail, drains=drains))
    key, to = f"{_name(night)}.mail", config.mail.recipients
    return [queue.QueuedMessage(key=key, kind="mail", body=body, recipients=to, made_at=now)]


def _webhook(config: settings.Settings, night: nightly.Night, now: datetime) -> list[queue.QueuedMessage]:
    if not config.lemon.webhook_url:
        return []
    from probing_cluster.reports.lemon import lemon_json

    body = json.dumps(lemon_json.document(night), separators=(",", ":")).encode("ascii")
    key, to = f"{_name(night)}.webhook", (config.lemon.webhook_url,)
    return [queue.QueuedMessage(key=key, kind="webhook", body=body, recipients=to, made_at=now)]


def _name(night: nightly.Night) -> str:
    return f"lemon.{night.cluster}.{night.day:%Y-%m-%d}"
