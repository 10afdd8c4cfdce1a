"""How a connection notices that its server is gone: in seconds, not in TCP's hours. Standard library only."""

from __future__ import annotations

from typing import Any

PATIENCE: dict[str, Any] = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
"""libpq's settings; without meaning on a Unix socket."""
