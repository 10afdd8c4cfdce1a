"""The timeline of a job as SVG: attempts to scale, lost work, every event and action at its instant."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from probing_cluster.core import hostlist, records
from probing_cluster.reports import attempt_view, model, phrase
from probing_cluster.reports.charts import svg

_WIDTH, _LEFT, _RIGHT = 960.0, 148.0, 28.0
_ROW, _BAR, _TOP = 58.0, 22.0, 8.0
_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
_MOST_TICKS = 8
_LEAST_WIDTH = 2.0


class Scale:
    """Instants to horizontal positions; marks after the end stand to the right of the axis."""

    def __init__(self, start: datetime, end: datetime) -> None:
        self.start = start
        self.end = max(end, start + timedelta(seconds=1))
        self._px_per_s = (_WIDTH - _LEFT - _RIGHT) / (self.end - self.start).total_seconds()

    def x(self, at: datetime) -> float:
        """The x position of `at`, kept within the axis."""
        return _LEFT + self._px_per_s * (min(max(at, self.start), self.end) - self.start).total_seconds()

    def mark_x(self, at: datetime) -> float:
        """The x position of an event's or action's mark: right of the axis when it came after the end."""
        return _WIDTH - _RIGHT / 2 if at > self.end else self.x(at)

    def ticks(self) -> Iterator[datetime]:
        """Round instants, at most a handful."""
        whole_s = (self.end - self.start).total_seconds()
        step = next((s for s in _STEPS_S if whole_s / s <= _MOST_TICKS), None)
        step = step or 86400 * -(-int(whole_s) // (86400 * _MOST_TICKS))
        first = -(-self.start.timestamp() // step) * step
        at = self.start + timedelta(seconds=first - self.start.timestamp())
        while at <= self.end:
            yield at
            at += timedelta(seconds=step)


def timeline(report: model.ReportModel) -> str:
    """The drawing, with a description in words; the page's tables hold the same."""
    scale = Scale(report.submit_at, report.drawn_until)
    moments = [a.at for v in report.attempts for a in v.actions]
    moments += [e.at for v in report.attempts for e in v.evidence if not phrase.undated(e)]
    late = any(at > scale.end for at in moments)
    days = report.submit_at.date() != scale.end.date()
    height = _TOP + _ROW * len(report.attempts) + 30
    waiting = report.attempts[0].attempt.eligible_at or report.submit_at
    rows = []
    for i, view in enumerate(report.attempts):
        rows.append(_row(view, scale, waiting, _TOP + i * _ROW, _assumed(report)))
        waiting = view.attempt.end_at or report.drawn_until
    return svg.element(
        "svg",
        svg.element("title", id="timeline-title", text=f"Timeline of job {report.ref}"),
        svg.element("desc", id="timeline-desc", text=_words(report)),
        _patterns(),
        _axis(scale, height - 24, days=days, late=late),
        *rows,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {svg.number(_WIDTH)} {svg.number(height)}",
        role="figure",
        aria_labelledby="timeline-title timeline-desc",
        class_="timeline",
    )


def _assumed(report: model.ReportModel) -> str:
    """The note on losses from assumed checkpoints; empty if checkpoints were seen."""
    return " (assumed)" if report.run is not None and not report.run.measured else ""


def _words(report: model.ReportModel) -> str:
    parts = []
    assumed = _assumed(report)
    still = "an end not known" if report.exported_until else "still running"
    for view in report.attempts:
        start = phrase.stamp_z(view.attempt.start_at) if view.attempt.start_at else "never"
        end = phrase.stamp_z(view.attempt.end_at) if view.attempt.end_at else still
        lost = f", the last {phrase.span(view.lost_s)} lost{assumed}" if view.lost_s else ""
        parts.append(f"Attempt {view.attempt.attempt}: {start} to {end}, {view.attempt.state}{lost}.")
    return " ".join(parts)


def _patterns() -> str:
    stripe = svg.element("path", d="M0 6 L6 0 M-1.5 1.5 L1.5 -1.5 M4.5 7.5 L7.5 4.5", class_="stripe")
    box = svg.element("rect", width=6, height=6, class_="lost-ground")
    return svg.element(
        "defs",
        svg.element("pattern", box, stripe, id="lost", width=6, height=6, patternUnits="userSpaceOnUse"),
    )


def _axis(scale: Scale, y: float, *, days: bool, late: bool) -> str:
    marks = [svg.element("line", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=y, y2=y, class_="axis")]
    instants = list(scale.ticks())
    # One form for all of an axis: with or without seconds.
    whole_minutes = all(at.second == 0 for at in instants)
    for at in instants:
        x = scale.x(at)
        marks.append(svg.element("line", x1=x, x2=x, y1=_TOP, y2=y, class_="grid"))
        label = phrase.clock_z(at, with_day=days)
        label = label.replace(":00Z", "Z") if whole_minutes else label
        anchor = "end" if x > _WIDTH - 60 else "middle"
        if not late or x < _WIDTH - _RIGHT - 60:
            marks.append(svg.element("text", text=label, x=x, y=y + 16, text_anchor=anchor, class_="tick"))
    if late:
        marks.append(
            svg.element("text", text="later", x=_WIDTH - 2, y=y + 16, text_anchor="end", class_="tick")
        )
    return svg.element("g", *marks, aria_hidden="true")


def _row(view: attempt_view.AttemptView, scale: Scale, waiting: datetime, top: float, assumed: str) -> str:
    attempt = view.attempt
    begin = attempt.start_at or scale.end
    end = attempt.end_at or scale.end
    bar = top + 16
    lost_from = end - timedelta(seconds=min(view.lost_s or 0.0, (end - begin).total_seconds()))
    nodes = hostlist.compress(attempt.nodes)
    parts = [
        svg.element("text", text=f"attempt {attempt.attempt}", x=4, y=bar + 9, class_="name"),
        svg.element(
            "text",
            text=nodes if len(nodes) <= 20 else f"{len(attempt.nodes)} nodes",
            x=4,
            y=bar + 24,
            class_="sub",
        ),
        _span(scale, waiting, begin, bar, "waited", "waited"),
        _span(scale, begin, lost_from, bar, "ran", "ran"),
        _span(scale, lost_from, end, bar, "lost", f"ran, but lost{assumed}"),
    ]
    if view.ended_unfinished:
        parts.append(_cross(scale.x(end), bar + _BAR / 2, f"ended {attempt.state} {phrase.stamp_z(end)}"))
    parts += [_event(e, scale, bar) for e in view.evidence if not phrase.undated(e)]
    parts += [_action(d, scale, bar) for d in view.actions]
    return svg.element("g", *(p for p in parts if p))


def _span(scale: Scale, begin: datetime, end: datetime, y: float, kind: str, words: str) -> str:
    if end <= begin:
        return ""
    left, right = scale.x(begin), scale.x(end)
    height, top = (_BAR, y) if kind != "waited" else (4.0, y + _BAR / 2 - 2)
    box = svg.element(
        "rect", x=left, y=top, width=max(right - left, _LEAST_WIDTH), height=height, class_=kind
    )
    return svg.titled(f"{words} {phrase.span((end - begin).total_seconds())}", box)


def _cross(x: float, y: float, words: str) -> str:
    arms = svg.element(
        "path", d=f"M{svg.number(x - 6)} {svg.number(y - 6)} l12 12 m0 -12 l-12 12", class_="died"
    )
    return svg.titled(words, arms)


def _event(event: records.HealthEvent, scale: Scale, bar: float) -> str:
    x, y = scale.mark_x(event.at), bar - 6
    shape = svg.polygon([(x, y - 6), (x + 6, y), (x, y + 6), (x - 6, y)], class_=f"event {event.severity}")
    words = f"{phrase.stamp_z(event.at)} {event.node} {phrase.label(event)} {phrase.device(event)}"
    return svg.element("a", svg.titled(words, shape), href=f"#event-{event.event_id}", aria_label=words)


def _action(drain: records.Drain, scale: Scale, bar: float) -> str:
    x, y = scale.mark_x(drain.at), bar + _BAR + 9
    shape = svg.polygon([(x, y - 6), (x + 5, y + 4), (x - 5, y + 4)], class_="action")
    words = f"{phrase.stamp_z(drain.at)} {drain.action} {drain.node}, {drain.state}: {drain.reason}"
    return svg.titled(words, shape)
