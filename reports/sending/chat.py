"""One message to chats, pagers and webhooks, by the addresses of the library apprise (slack://, pagerduty://, json:// …).

Imported in a child only: the library costs 0.3 s and 40 MiB, and some services are slow to answer.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterator, Mapping

import apprise

from probing_cluster.core import sanitize

_TYPES = {
    "high": apprise.NotifyType.FAILURE,
    "low": apprise.NotifyType.WARNING,
    "info": apprise.NotifyType.INFO,
}
_KEYED = {"pagerduty": "dedup", "opsgenie": "alias"}
"""Services that keep one incident per key, open it and close it."""
_MORE = {"opsgenie": "&:info=new"}
"""Extra options. By default Opsgenie takes a message of severity info only as a note to an open alert."""


def post(
    addresses: Mapping[str, str],
    *,
    title: str,
    body: str,
    severity: str,
    over: bool,
    group: str,
    store: str,
    deadline_s: float,
) -> dict[str, str]:
    """One attempt at each address; returns by its name why it did not get the message, empty if it did.

    `group`: the incident's key for services that keep incidents; `over` closes it there. `store`: the folder in which
    the library keeps the services' own ids.
    """
    asset = apprise.AppriseAsset(
        app_id="Probing Cluster",
        app_desc="Probing Cluster",
        app_url="",
        storage_path=store,
        storage_mode="flush",
        service_timeout=deadline_s,
    )
    kind = apprise.NotifyType.SUCCESS if over else _TYPES.get(severity, apprise.NotifyType.WARNING)
    found = {}
    for name, address in addresses.items():
        one = apprise.Apprise(asset=asset)
        with _log_messages() as words:
            if not one.add(_keyed(address, group)):
                found[name] = "apprise does not support this address"
                continue
            sent = one.notify(title=title, body=body, notify_type=kind, body_format=apprise.NotifyFormat.TEXT)
        found[name] = "" if sent else _why(words, address)
    return found


def _keyed(address: str, group: str) -> str:
    """The address with the incident's key, if the service keeps incidents and the address has no key yet."""
    scheme = address.partition("://")[0].lower()
    key = _KEYED.get(scheme)
    if key is None or re.search(rf"[?&]{key}=", address):
        return address
    join = "&" if "?" in address else "?"
    action = "" if "action=" in address else "&action=map"
    return f"{address}{join}{key}={group}{action}{_MORE.get(scheme, '')}"


@contextlib.contextmanager
def _log_messages() -> Iterator[list[str]]:
    """Collects the library's log messages; it gives its reasons nowhere else."""
    words: list[str] = []

    class MessageCollector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            words.append(record.getMessage())

    keeper, logger = MessageCollector(level=logging.WARNING), logging.getLogger("apprise")
    logger.addHandler(keeper)
    propagate, logger.propagate = logger.propagate, False
    try:
        yield words
    finally:
        logger.removeHandler(keeper)
        logger.propagate = propagate


def _why(words: list[str], address: str) -> str:
    """The library's last message without any part of the address, which is a secret."""
    text = sanitize.clean(words[-1] if words else "not delivered", 200)
    for part in re.split(r"[/?&=@:]+", address):
        if len(part) > 5:
            text = text.replace(part, "…")
    return text or "not delivered"
