"""The page of lemons: a scored night, of all nodes or those of a partition."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from probing_cluster.core import errors
from probing_cluster.lemon import nightly
from probing_cluster.reports.lemon import lemon_view
from probing_cluster.web.api import operation
from probing_cluster.web.live import now
from probing_cluster.web.pages import render

MOST_NIGHTS = 100


class LemonNight(msgspec.Struct, kw_only=True):
    """Which night, and the nodes of which partition; the latest, and all, where not said."""

    night: Annotated[str, msgspec.Meta(pattern="^[0-9]{4}-[0-9]{2}-[0-9]{2}$")] | None = None
    partition: Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9._-]{1,64}$")] | None = None


def show(request: Request, ask: operation.Ask, chosen: LemonNight) -> Response:
    """Lemons and suspects of one night; a score is of one window that ends with its night, so nights are chosen and no spans."""
    site, service = ask.site, ask.site.service
    nights = ask.rows("lemon_nights", n=MOST_NIGHTS)
    slurm = now.SLURM.now(service)
    page: dict[str, Any] = {
        "title": "Lemons", "view": None, "why": "", "q": chosen, "nights": nights,
        "partitions": sorted({p for n in slurm.values() for p in n.partitions}),
    }  # fmt: skip
    try:
        night = nightly.load(service.store, service.config, _day(chosen.night))
    except errors.NotFound as exc:
        return render.html(request, "lemons.html.j2", **page | {"why": str(exc)})
    if chosen.partition is not None:
        members = {name for name, node in slurm.items() if chosen.partition in node.partitions}
        night = dataclasses.replace(night, scores=tuple(s for s in night.scores if s.node in members))
        if not members:
            page["why"] = "Slurm does not answer" if not slurm else f"no node is in {chosen.partition} now"
            return render.html(request, "lemons.html.j2", **page)
    drains = service.store.drains(open_only=True, cluster=service.cluster)
    view = lemon_view.of(night, drains=drains, report_url=f"{site.base}/jobs/{{job_id}}")
    return render.html(request, "lemons.html.j2", **page | {"view": view})


def _day(night: str | None) -> datetime | None:
    try:
        return None if night is None else datetime.strptime(night, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError as exc:
        raise errors.UsageError(f"{night} is no day") from exc
