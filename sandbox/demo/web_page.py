"""One page of the web as a file: as its server gives it, with the style in it, for a camera that has no server to ask."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import anyio
import httpx2

from probing_cluster.control_plane import context
from probing_cluster.control_plane.door import web_keys
from probing_cluster.control_plane.policy import slurm_actions
from probing_cluster.core import settings
from probing_cluster.db import store as db_store
from probing_cluster.slurm_plugins import commands
from probing_cluster.web import app, scoped_rows
from probing_cluster.web.access import viewers
from probing_cluster.web.pages import render


def save(config: settings.Settings, path: str, target: Path) -> Path:
    """Writes the page at `path` of a web on the database of `config` to `target`, as an operator sees it."""
    with db_store.Store.open(config) as store:
        run_slurm = commands.SlurmCommands(settings=config.slurm)
        slurm = slurm_actions.SlurmActions(config, run_slurm)
        service = context.Context(
            config=config, store=store, run_slurm=run_slurm, slurm=slurm, stopping=threading.Event()
        )
        site = app.make_site(service, scoped_rows.login_url(config, store.url))
        key = site.keys.issue(web_keys.Viewer(user="root", operator=True), "session", 60.0)
        markup = anyio.run(_page, app.make(site), f"{viewers.COOKIE}={key}", site.origin, path)
        site.reader.close()
    target.write_text(_with_style(markup), encoding="utf-8")
    return target


async def _page(application: object, cookie: str, origin: str, path: str) -> str:
    transport = httpx2.ASGITransport(application)  # type: ignore[arg-type]
    headers = {"cookie": cookie, "accept": "text/html"}
    async with httpx2.AsyncClient(transport=transport, base_url=origin, headers=headers) as client:
        answer = await client.get(path)
        answer.raise_for_status()
        return answer.text


def _with_style(markup: str) -> str:
    styles = [
        render.STATIC[name].read_text(encoding="utf-8") for name in ("base.css", "fleet.css", "web.css")
    ]
    plain = re.sub(r"<(?:link|script)[^>]*>(?:</script>)?", "", markup)
    return plain.replace("</head>", f"<style>{''.join(styles)}</style></head>")
