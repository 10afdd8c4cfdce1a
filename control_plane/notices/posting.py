"""One attempt at each address, in a process of its own: the library is large, and some services never answer."""

from __future__ import annotations

from pathlib import Path

from probing_cluster.core import settings
from probing_cluster.reports.sending import chat


def in_child(
    config: settings.Settings, addresses: dict[str, str], content: dict[str, object]
) -> dict[str, str]:
    """By an address's name why it did not get the message, empty where it did (see control_plane/child_process.py)."""
    return chat.post(
        addresses,
        title=str(content["title"]),
        body=str(content["body"]),
        severity=str(content["severity"]),
        over=bool(content["over"]),
        group=str(content["group"]),
        store=str(Path(config.mail.spool_directory) / "apprise"),
        deadline_s=config.notices.deadline_s,
    )
