"""`host:port` as people write it in settings."""

from __future__ import annotations

from probing_cluster.core import digits, errors


def parse(text: str, key: str) -> tuple[str, int]:
    """Host and port of `host:port`, `:port` (every address) or `[::1]:port`; SettingsError names `key`."""
    host, colon, port = text.rpartition(":")
    if not colon or not digits.is_number(port) or not 0 < int(port) < 65536:
        raise errors.SettingsError(f"{key} must be host:port, not {text!r}")
    return host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104 - ":9101" means every address
