"""`probing-ctl web serve`: pages and API, until SIGTERM."""

from __future__ import annotations

import ipaddress
import logging
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import uvicorn

from probing_cluster.control_plane import context
from probing_cluster.control_plane.door import web_keys
from probing_cluster.control_plane.policy import slurm_actions
from probing_cluster.core import errors, logs, network_address, secret_file, settings
from probing_cluster.db import engines
from probing_cluster.db import store as db_store
from probing_cluster.slurm_plugins import commands
from probing_cluster.web import app, connection_limits, scoped_rows

LOG = logging.getLogger("probing.web")
_GRACE_S = 2
"""Streams never end by themselves; without a bound the server would wait for them."""
_MOST_CONNECTIONS = 2000


def main(config: settings.Settings) -> int:
    """Serves until it is stopped; its exit code. Raises SettingsError and DatabaseUnavailable."""
    logs.configure()
    host, port = address(config.web)
    owner_url = engines.url_of(config)
    reader_url = scoped_rows.login_url(config, owner_url)
    with db_store.Store.open(config) as store:
        run_slurm = commands.SlurmCommands(settings=config.slurm)
        service = context.Context(
            config=config, store=store, run_slurm=run_slurm, slurm=slurm_actions.SlurmActions(config, run_slurm),
            stopping=threading.Event(), in_children=True, aside=aside,
        )  # fmt: skip
        site = app.make_site(service, reader_url)
        server = Server(options(config.web, app.make(site), host, port), web_keys.base_url(config))
        server.run()
        return 0 if server.started else 1


class Server(uvicorn.Server):
    """Says where browsers reach it once it listens."""

    def __init__(self, config: uvicorn.Config, url: str) -> None:
        super().__init__(config)
        self._url = url

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen."""
        await super().startup(sockets)
        if self.started:
            LOG.info(
                "pages and API are served",
                extra={"fields": {"url": self._url, "log_in": "probing-ctl web login"}},
            )


def aside(work: Callable[[], object]) -> None:
    """Begins work that no request waits for; the server's end does not wait for it either."""
    threading.Thread(target=work, name="aside", daemon=True).start()


def options(web: settings.WebSettings, made: object, host: str, port: int) -> uvicorn.Config:
    """How uvicorn serves; raises SettingsError for a key that others can read."""
    if web.tls_key:
        secret_file.require_private(Path(web.tls_key))
    return uvicorn.Config(
        made,  # type: ignore[arg-type]  # uvicorn's own protocol types
        host=host,
        port=port,
        # A client's X-Forwarded-For must never take the place of its socket's address.
        proxy_headers=False,
        server_header=False,
        date_header=True,
        access_log=False,
        log_config=None,
        lifespan="on",
        http=connection_limits.of(web.proxy_networks),
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_graceful_shutdown=_GRACE_S,
        h11_max_incomplete_event_size=32768,
        ssl_certfile=web.tls_certificate or None,
        ssl_keyfile=web.tls_key or None,
    )


def address(web: settings.WebSettings) -> tuple[str, int]:
    """The address to listen at; raises SettingsError for one off loopback without TLS."""
    host, port = network_address.parse(web.listen, "[web] listen")
    if not _is_loopback(host) and not (web.tls_certificate and web.tls_key):
        raise errors.SettingsError(
            f"[web] listen {web.listen} is reached over the network: set tls_certificate and tls_key, or listen on 127.0.0.1"
        )
    return host, port


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
