"""The report as one self-contained page, without script, font or request."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from probing_cluster.core import hostlist, sanitize
from probing_cluster.reports import attempt_view, model, phrase, text
from probing_cluster.reports.charts import drawing, kept_figures

_TEMPLATES = Path(__file__).parent / "templates"


@cache
def environment() -> jinja2.Environment:
    """Templates that escape everything and refuse names that do not exist."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        stamp=phrase.stamp_z,
        span=phrase.span,
        gpu_hours=phrase.gpu_hours,
        ratio=phrase.ratio,
        label=phrase.label,
        device=phrase.device,
        undated=phrase.undated,
        message=lambda event: phrase.message(event, 2000),
        clean=sanitize.clean,
        hosts=hostlist.compress,
        sure_so_far=text.sure_so_far,
    )
    return made


def render(report: model.ReportModel, figures: Sequence[kept_figures.KeptFigure] = ()) -> str:
    """The page, with drawings of the job's kept tables."""
    return environment().get_template("job.html.j2").render(parts_of(report, figures))


def parts_of(report: model.ReportModel, figures: Sequence[kept_figures.KeptFigure] = ()) -> dict[str, Any]:
    """The values for job_body.html.j2, on a page of its own or inside another."""
    return {
        "report": report,
        "sections": attempt_view.explained_together([v for v in report.attempts if _explained(v)]),
        # The drawing escapes its own values; everything else is escaped by the template.
        "drawing": Markup(drawing.timeline(report)),  # noqa: S704
        "parts": _parts(report),
        "figures": [(figure.title, Markup(figure.drawing)) for figure in figures],  # noqa: S704
    }


def _explained(view: attempt_view.AttemptView) -> bool:
    """Whether the page has a section on this attempt."""
    return bool(
        view.verdict or view.ended_unfinished or view.doubt or view.pace or view.gangs or view.sighted
    )


def _parts(report: model.ReportModel) -> list[tuple[str, str, float, float]]:
    """The parts of the run's wall time: class, words, seconds, share of the wall; none where they mean nothing (`shows_ettr`)."""
    run = report.run
    if run is None or run.wall_s <= 0 or not report.shows_ettr:
        return []
    named = (
        ("productive", "productive", run.productive_s),
        (
            "lost",
            f"{'hung, or lost' if any(v.hung_s for v in report.attempts) else 'lost'}, to be done again{'' if run.measured else ' (assumed: half a checkpoint interval a death)'}",
            run.lost_to_replay_s,
        ),
        ("restart", "starting up", run.restart_s),
        ("checkpoint", "writing checkpoints", run.checkpoint_s),
        ("queued", "queued", run.queued_s),
        ("suspended", "suspended", run.suspended_s),
        ("idle", "not submitted or not eligible", run.idle_s),
    )
    return [(key, words, seconds, seconds / run.wall_s) for key, words, seconds in named if seconds > 0]
