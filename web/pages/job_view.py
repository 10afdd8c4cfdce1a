"""The page of one job: its report, and while it runs its ranks, their mesh and stacks."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from probing_cluster.core import records
from probing_cluster.reports import job_ref, model, node_state, page
from probing_cluster.web.api import console, endpoints, operation, read_gangs, read_jobs
from probing_cluster.web.live import table_figures
from probing_cluster.web.pages import charting, mesh_drawing, render

BROUGHT_BACK = ("restart", "requeue", "exclude")


def show(request: Request, ask: operation.Ask) -> Response:
    """The report as it exists, with the ranks of a job that runs."""
    ref = job_ref.parse(ask.path["job"])
    rows = read_jobs.stored(ask)
    if model.is_overview(ref, rows):
        return render.html(request, "array.html.j2", ref=str(ref), rows=rows, title=f"Job {ref}")
    now = ask.site.service.clock.now()
    report = model.build(ref, rows, now=now)
    given: dict[str, Any] = {"gang": None}
    if report.end_at is None:
        given = {"gang": read_gangs.worst(ask)} | _mesh(ask)
        given["stack"] = read_gangs.stacks_of(ask) if given["gang"]["n_ranks"] else None
        given["lines"] = charting.tree_lines(given["stack"]["tree"]) if given["stack"] else []
    return render.html(
        request, "job_page.html.j2", **page.parts_of(report), **given, restarts=restarts(node_state.as_shown(rows.drains, now)),
        own_tables=_own_tables(ask, report), every_s=table_figures.EVERY_S, title=f"Job {report.title}", done=endpoints.became_of(ask, request.query_params.get("done", "")), request_key=secrets.token_hex(16),
    )  # fmt: skip


def tables(request: Request, ask: operation.Ask) -> Response:
    """The tables that the job's own program writes, on a page of their own, which the job's page puts into itself."""
    found = console.tables(ask)
    # The drawings escape their own values.
    figures = [(figure.title, Markup(figure.svg)) for figure in found.figures]  # noqa: S704
    ref = str(job_ref.parse(ask.path["job"]))
    over = read_jobs.gang_of(ask).is_over
    return render.html(
        request, "tables_page.html.j2", found=found, figures=figures, ref=ref, over=over, title=f"Tables of job {ref}"
    )  # fmt: skip


def _own_tables(ask: operation.Ask, report: model.ReportModel) -> str:
    """Where the viewer finds what the program wrote down: `here`, `elsewhere`, or empty for whom it is not, or where nothing is kept."""
    config = ask.site.service.config
    if ask.viewer.user != report.user or report.cluster != ask.site.service.cluster:
        return ""
    if report.end_at is None or table_figures.reads_kept_of(config, report.user):
        return "here"
    return "elsewhere" if config.kept.directory else ""


def _mesh(ask: operation.Ask) -> dict[str, Any]:
    found = read_gangs.last_mesh(ask)
    if found is None:
        return {"mesh": None, "mesh_drawing": ""}
    return {"mesh": read_gangs.document(found), "mesh_drawing": mesh_drawing.draw(found.mesh)}


def restarts(drains: Sequence[records.Drain]) -> list[tuple[records.Drain, list[str]]]:
    """What was done to bring the job back, oldest first, each with what is known of it in words."""
    mine = [
        d for d in drains if d.action in BROUGHT_BACK and d.job_id is not None and not node_state.is_back(d)
    ]
    return [(d, _words(d)) for d in sorted(mine, key=lambda d: d.at)]


def _words(row: records.Drain) -> list[str]:
    if row.action == "exclude":
        return ["left out again" if row.ended_at is None else f"given back {row.ended_at:%Y-%m-%d %H:%M}Z"]
    detail, found = row.detail, []
    if detail.get("step") is not None:
        found.append(f"it had come to step {detail['step']}")
    if isinstance(nodes := detail.get("exclude"), list) and nodes:
        found.append(f"without {', '.join(map(str, nodes))}")
    if isinstance(jobs := detail.get("dependents"), dict) and jobs:
        found.append(f"jobs that waited for it wait again: {', '.join(map(str, jobs))}")
    if detail.get("log"):
        found.append(f"its log: {detail['log']}")
    if detail.get("loop"):
        found.append(f"loop: {detail['loop']}")
    return found
