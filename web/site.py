"""Everything a request needs of the server that answers it."""

from __future__ import annotations

import functools
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probing_cluster.control_plane import context
from probing_cluster.control_plane.door import callers, web_keys
from probing_cluster.control_plane.repair import rounds
from probing_cluster.core import network_address
from probing_cluster.web import fleet_figures, scoped_rows

SQL = Path(__file__).parent / "sql"
_CLUSTERS_S = 60.0
"""How long the names of the clusters are believed."""


@dataclass(kw_only=True)
class Site:
    """One web server."""

    service: context.Context
    known: callers.Callers
    keys: web_keys.Keys
    reader: scoped_rows.Reader

    @functools.cached_property
    def base(self) -> str:
        """Its address as browsers know it, without a slash at the end."""
        return web_keys.base_url(self.service.config)

    @functools.cached_property
    def prefix(self) -> str:
        """The path it lives under behind a proxy: empty, or `/probing`."""
        return urllib.parse.urlsplit(self.base).path.rstrip("/")

    @functools.cached_property
    def origin(self) -> str:
        """Scheme, host and port of its pages, as browsers write them in `Origin`."""
        parts = urllib.parse.urlsplit(self.base)
        return f"{parts.scheme}://{parts.netloc}".lower()

    @functools.cached_property
    def rounds(self) -> rounds.Rounds:
        """The rounds of tests that were begun over the web; a thread each."""
        return rounds.Rounds(self.service.config, self.service.store)

    @functools.cached_property
    def figures(self) -> fleet_figures.FleetFigures:
        """The fleet's figures, computed beside."""
        return fleet_figures.FleetFigures(self.service)

    @functools.cached_property
    def hosts(self) -> frozenset[str]:
        """What a request may name in `Host`: anything else was sent here by a name somebody else controls."""
        host, port = network_address.parse(self.service.config.web.listen, "[web] listen")
        local = {f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]", host)}
        return frozenset({urllib.parse.urlsplit(self.base).netloc.lower(), *local})

    def clusters(self) -> list[str]:
        """The clusters whose jobs the database holds, as of the last minute."""
        return self.service.seldom("clusters", _CLUSTERS_S, lambda: self.service.store.clusters())

    def rows(self, viewer: web_keys.Viewer, name: str, /, **given: Any) -> list[dict[str, Any]]:
        """The rows of `sql/NAME.sql` that a viewer may see."""
        return self.reader.rows(viewer.proof, statement(name), given)

    def all_rows(self, name: str, given: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """The rows of `sql/NAME.sql` for what is made once for everybody and then divided."""
        return self.service.store.rows(statement(name), given or {})


@functools.cache
def statement(name: str) -> str:
    """The text of `sql/NAME.sql`."""
    return (SQL / f"{name}.sql").read_text(encoding="utf-8")
