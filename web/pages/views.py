"""The pages: each asks the API's own handlers and shows what they answer."""

from __future__ import annotations

import secrets
import urllib.parse
import uuid
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from probing_cluster.control_plane.cli.history import fleet_commands
from probing_cluster.control_plane.repair import engine
from probing_cluster.control_plane.terminal import diagnose_text
from probing_cluster.core import errors
from probing_cluster.core.catalogue import fault_names
from probing_cluster.reports.fleet import fleet_page
from probing_cluster.web import documents, forms
from probing_cluster.web import site as web_site
from probing_cluster.web.api import (
    console,
    endpoints,
    operation,
    read_fleet,
    read_jobs,
    read_nodes,
    read_repairs,
    register,
    tabular,
)
from probing_cluster.web.live import broadcast, now
from probing_cluster.web.pages import charting, job_view, lemons_view, render

ACTS = {op.name: op for op in register.OPERATIONS if op.acts or op.name == "look"}
FIGURES_SHOWN = (
    "state-breakdown",
    "failure-rates",
    "failures-over-time",
    "mttf-by-size",
    "goodput-loss",
    "run-ettr",
    "node-tests",
    "node-pace",
)
LIVE_EXAMPLES = (
    ("Who stands still", "SELECT rank, node, step, inside, seconds_inside FROM cluster.ranks ORDER BY seconds_inside DESC LIMIT 10"),
    ("What steps take", "SELECT rank, avg(duration_s) AS seconds FROM torch.steps GROUP BY rank ORDER BY rank"),
    ("Where each rank is", "SELECT rank, function, file, line FROM python.backtrace WHERE main AND depth = 0"),
)  # fmt: skip
"""Pages of a running job."""
EXAMPLES = (
    ("Why jobs died today", "select cause, domain, count(*) as n from failures_24h group by 1, 2 order by 3 desc"),
    ("My latest jobs", "select ref, name, state, cause, summary from attempt_verdicts order by start_at desc limit 20"),
    ("Nodes with a fault", "select node, state, n_faults, drain_reason from node_now where state <> 'ok'"),
    ("Failures by day", "select day, sum(n_attempts) as attempts from causes_daily where day > now() - interval '30 days' group by 1 order by 1"),
)  # fmt: skip


def ask(
    request: Request, query: Any = None, path: Mapping[str, str] | None = None, body: Any = None
) -> operation.Ask:
    """The request as the API's handlers get it."""
    given = request.path_params if path is None else path
    wanted = query_of(request, operation.OfCluster) if query is None else query
    return operation.Ask(
        site=request.state.site, viewer=request.state.viewer, path=given, query=wanted, body=body
    )


def query_of(request: Request, kind: type[Any]) -> Any:
    """The address's parameters as an operation's; empty fields of a form are none. Raises UsageError."""
    given = {k: v for k, v in request.query_params.items() if v != "" and k in kind.__struct_fields__}
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as exc:
        raise errors.UsageError(operation.refusal(exc)) from exc


def now_page(request: Request) -> Response:
    """What is bad now."""
    site: web_site.Site = request.state.site
    live: broadcast.Broadcast = request.app.state.broadcast
    part = now.of(request.state.viewer, live.now())
    running = read_jobs.jobs(ask(request, read_jobs.Jobs(running=True, limit=20))).items
    return render.html(
        request, "now.html.j2", picture=part, running=running, at=part.at, title="Now", site=site
    )


def jobs_page(request: Request) -> Response:
    """Attempts with their verdicts."""
    q = query_of(request, read_jobs.Jobs)
    found = read_jobs.jobs(ask(request, q))
    return render.html(
        request, "jobs.html.j2", found=found, q=q, title="Jobs", more=_next(request, found.next)
    )


def _next(request: Request, cursor: str | None) -> str:
    return "" if cursor is None else str(request.url.include_query_params(cursor=cursor).query)


def job_page(request: Request) -> Response:
    """The report as it exists, with the ranks of a job that runs."""
    return job_view.show(request, ask(request))


def tables_page(request: Request) -> Response:
    """What a job's own program writes down."""
    return job_view.tables(request, ask(request))


def repairs_page(request: Request) -> Response:
    """Drained nodes on their way back, and what tests found lately."""
    q = query_of(request, read_repairs.Repairs)
    if q.open is None and not request.query_params.get("all"):
        q = msgspec.structs.replace(q, open=True)
    found = read_repairs.repairs(ask(request, q))
    outcome = query_of(request, read_repairs.Diagnostics).outcome
    bad = read_repairs.Diagnostics(limit=100, outcome=outcome, cluster=q.cluster)
    tests = read_repairs.diagnostics(ask(request, bad))
    shown = [r for r in tests.items if bad.outcome or r.outcome not in ("ok", "absent")]
    return render.html(
        request, "repairs.html.j2", found=found, tests=shown, n_tests=len(tests.items), q=q, title="Repairs",
        measured=diagnose_text.measured, more=_next(request, found.next),
    )  # fmt: skip


def nodes_page(request: Request) -> Response:
    """Nodes as they are now."""
    q = query_of(request, read_nodes.Nodes)
    found = read_nodes.nodes(ask(request, q))
    return render.html(
        request, "nodes.html.j2", found=found, q=q, title="Nodes", named=fault_names.named,
        more=_next(request, found.next),
    )  # fmt: skip


def node_page(request: Request) -> Response:
    """One node: what it says now, and everything that happened on it."""
    api_ask = ask(request)
    found = read_nodes.node(api_ask)
    span = request.query_params.get("span", "7d")
    days = read_fleet.SPANS.get(span, 7)
    at = api_ask.site.service.clock.now()
    cluster = api_ask.cluster
    when = read_nodes.Span(since=at - timedelta(days=days), until=at + timedelta(minutes=5), cluster=cluster)
    moments = read_nodes.timeline(ask(request, when))
    try:
        repair = read_repairs.repair(api_ask)
    except errors.NotFound:
        repair = None
    tests = read_repairs.diagnostics(
        ask(
            request,
            read_repairs.Diagnostics(
                node=found.node, since=at - timedelta(days=60), limit=100, cluster=cluster
            ),
        )
    ).items
    return render.html(
        request, "node.html.j2", node=found, faults=fault_names.named(found.faults), moments=moments, span=f"{days}d", spans=list(read_fleet.SPANS),
        drawing=charting.node_timeline(found.node, moments, at - timedelta(days=days), at), title=found.node,
        request_key=secrets.token_hex(16), done=endpoints.became_of(api_ask, request.query_params.get("done", "")), repair=repair,
        failing=engine.failing(repair.repair) if repair else ("", ()),
        tests=[r for r in tests if r.outcome != "absent"], measured=diagnose_text.measured,
    )  # fmt: skip


def fleet(request: Request) -> Response:
    """The fleet's figures, as the page that `probing-ctl fleet --html` writes."""
    q = query_of(request, read_fleet.Span)
    names = list(fleet_commands.FIGURES) if request.query_params.get("all") else list(FIGURES_SHOWN)
    look = request.state.site.figures.look(names, read_fleet.scope(q))
    parts = fleet_page.parts_of(look.found, fleet_commands.FIGURES)
    partitions = sorted({p for n in now.SLURM.now(request.state.site.service).values() for p in n.partitions})
    return render.html(
        request, "fleet_page.html.j2", **parts, look=look, n_figures=len(names), q=q, spans=list(read_fleet.SPANS), partitions=partitions,
        whole=len(names) > len(FIGURES_SHOWN), title="Fleet",
    )  # fmt: skip


def lemons(request: Request) -> Response:
    """Lemons and suspects of a scored night."""
    return lemons_view.show(request, ask(request), query_of(request, lemons_view.LemonNight))


def search(request: Request) -> Response:
    """Jobs, nodes, users, GPUs and Xids by name."""
    word = request.query_params.get("q", "").strip()[:80]
    found = read_fleet.search(ask(request, read_fleet.Search(q=word))) if word else []
    if len(found) == 1:
        return RedirectResponse(request.state.site.prefix + found[0].path, 303)
    return render.html(request, "search.html.j2", word=word, found=found, title="Search")


def sql(request: Request, form: forms.Form | None) -> Response:
    """The console: one question to the database or to a running job, and its rows as table, chart, CSV or Parquet."""
    given = form or request.query_params
    text, job = str(given.get("sql", "")), str(given.get("job", "")).strip()
    page: dict[str, Any] = {"sql": text, "job": job, "rows": None, "why": "", "chart": "", "missing": (), "examples": EXAMPLES,
            "live_examples": LIVE_EXAMPLES, "title": "SQL"}  # fmt: skip
    if form is None or not text.strip():
        return render.html(request, "sql.html.j2", **page)
    shape = str(form.get("as", "table"))
    api_ask = ask(request, body=documents.Question(sql=text, limit=console.MOST if shape != "table" else 500))
    try:
        found = console.answer(api_ask, job)
    except (errors.UsageError, errors.NotPermitted, errors.NotFound, console.Busy) as exc:
        return render.html(request, "sql.html.j2", status=400, **page | {"why": str(exc)})
    if shape in ("csv", "parquet"):
        make = tabular.as_csv if shape == "csv" else tabular.as_parquet
        raw = make(found.heads, found.rows)
        return Response(raw.body, media_type=raw.media_type, headers=dict(raw.headers))
    rows = tabular.document(found.heads, found.rows, found.more)
    shown = {
        "rows": rows,
        "chart": charting.of_rows(rows),
        "numbers": charting.number_columns(rows),
        "missing": found.missing,
    }
    return render.html(request, "sql.html.j2", **page | shown)


def act(request: Request, form: forms.Form) -> Response:
    """A form's action: the API's own, done once, and back to the page with what became of it."""
    op = ACTS.get(request.path_params["act"])
    if op is None or op.body is None:
        raise errors.NotFound("there is no such action")
    endpoints.require(op, request.state.viewer)
    given: dict[str, Any] = {k: str(v) for k, v in form.items() if k in op.body.__struct_fields__ and v}
    if "tests" in given:  # a form has words, the API a list
        given["tests"] = [word for word in given["tests"].replace(",", " ").split() if word]
    try:
        body = msgspec.convert(given, op.body, strict=False)
    except msgspec.ValidationError as exc:
        raise errors.UsageError(str(exc)) from exc
    subject = request.path_params["subject"]
    api_ask = ask(request, path={"node": subject, "job": subject}, body=body)
    key = endpoints.require_key(str(form.get("request_key") or uuid.uuid4().hex))
    what = f"form {op.name} {subject} {sorted(given.items())}"
    status, answer = endpoints.once(api_ask, key, what, lambda: op.handle(api_ask))
    if status == 422:
        raise errors.UsageError(f"{answer['title']}: load the page anew")
    folder = "jobs" if "{job}" in op.path else "nodes"
    target = request.url.replace(path=f"{api_ask.site.prefix}/{folder}/{subject}", query="").path
    # The key and not the words: whoever makes a link would else choose what the page says was done.
    return RedirectResponse(f"{target}?{urllib.parse.urlencode({'done': key})}", 303)
