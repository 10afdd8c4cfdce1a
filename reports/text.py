"""The report for a terminal: readable without colour, at 80 columns, and through a pager."""

from __future__ import annotations

import textwrap
import uuid
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from probing_cluster.attribution.verdict import taxonomy
from probing_cluster.core import hostlist, records, sanitize, vocabulary
from probing_cluster.reports import attempt_view, model, phrase, rows
from probing_cluster.reports.charts import paint, timeline

_MOST_EVIDENCE = 8
_MOST_OTHERS = 5
_MOST_TASKS = 20
_MOST_LOGS = 4
_MOST_LINES = 5
_MOST_OF_A_LINE = 400


def render(
    report: model.ReportModel, *, width: int = 80, colour: bool = False, attempt: int | None = None
) -> str:
    """The whole report; with `attempt`, the reasons of that attempt only."""
    brush = paint.Brush(colour)
    days = _days(report)
    lines = [*_head(report, width, brush), "", *_attempts(report, width, days, brush)]
    lines += _nodes_now(report, width, brush)
    for views in attempt_view.explained_together(
        [v for v in report.attempts if attempt in (None, v.attempt.attempt)]
    ):
        lines += _refused(views, width, days, brush) if len(views) > 1 else _why(views[0], width, days, brush)
        for view in views:
            lines += _stalls(view, width, days, brush)
            lines += _pace(view, width, days, brush)
            lines += _logs(view, width, brush)
    lines += _ends(report, width, brush)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _days(report: model.ReportModel) -> bool:
    """Whether the report spans several days (UTC)."""
    return phrase.day(report.submit_at) != phrase.day(report.drawn_until)


def _wrap(text: str, width: int, first: str = "", rest: str | None = None) -> list[str]:
    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=first if rest is None else rest,
        break_on_hyphens=False,
    ) or [first.rstrip()]


def _wrap_if(text: str, width: int) -> list[str]:
    return _wrap(text, width, "  ", "    ") if text else []


def _sides(left: str, right: str, width: int) -> list[str]:
    """Both on one line, the right one at the edge; two lines when they do not fit."""
    gap = width - len(left) - len(right)
    return [left + " " * gap + right] if gap >= 2 else [left, right]


def _head(report: model.ReportModel, width: int, brush: paint.Brush) -> Iterator[str]:
    name = sanitize.clean(report.name, 60)
    first = _sides(f"Job {report.title}  {name}".rstrip(), report.headline, width)
    yield from [brush.state(line, report.state) for line in first]
    where = f"{report.user}  partition {report.partition}" if report.partition else report.user
    yield f"{sanitize.clean(where)}  {report.shape}".lstrip()
    parts = [f"submitted {phrase.stamp_z(report.submit_at)}"]
    days = _days(report)
    if report.start_at:
        parts.append(f"first start {phrase.clock_z(report.start_at, with_day=days)}")
    parts.append(_end_words(report, days))
    if report.suspended_s:
        parts.append(f"suspended for {phrase.span(report.suspended_s)}")
    yield from _wrap("  ".join(parts), width)
    for note in filter(None, (report.reuse, report.elsewhere)):
        yield from _wrap(note, width)
    if len(report.run_jobs) > 1:
        others = ", ".join(str(j) for j in report.run_jobs if j != report.job_id)
        yield from _wrap(f"run {sanitize.clean(report.run_key, 60)}, with job {others}", width)
    if report.components:
        names = ", ".join(f"{c.ref} {c.state}" for c in report.components)
        yield from _wrap(f"components: {names}", width)
    if report.cause_elsewhere:
        yield from _wrap(report.cause_elsewhere, width)


def _end_words(report: model.ReportModel, days: bool) -> str:
    if report.end_at:
        return f"ended {phrase.clock_z(report.end_at, with_day=days)}"
    words, at = report.open_end
    return words if at is None else f"{words} {phrase.clock_z(at, with_day=days)}"


def _ettr(report: model.ReportModel) -> str:
    run = report.run
    assert run is not None
    queued = f"; {report.queue_words}" if report.queue_words else ""
    none_kept = ", since no work of it was kept" if run.measured else ", if no work of it was kept"
    kept = "" if run.productive_s > 0 else none_kept
    return f"ETTR {phrase.ratio(run.ettr_measured)}{kept} (expected {phrase.ratio(run.ettr_expected)}; {report.ettr_basis}{queued})"


def _attempts(report: model.ReportModel, width: int, days: bool, brush: paint.Brush) -> Iterator[str]:
    still = "not known" if report.exported_until else "still on"
    heads = [_attempt_head(view, days, still) for view in report.attempts]
    widest = max(len(h) for h in heads)
    cells = max(width - widest - 2, 12)
    scale = timeline.axis(report, cells)
    waiting = report.attempts[0].attempt.eligible_at or report.submit_at
    bars = []
    for view, head in zip(report.attempts, heads, strict=True):
        bars.append(timeline.bar(view, scale, waiting))
        yield brush.state(f"{head:<{widest}}  {bars[-1]}", view.attempt.state)
        waiting = view.attempt.end_at or report.drawn_until
    left, right = (phrase.clock_z(at, with_day=days) for at in (scale.start_at, scale.end_at))
    if marks := timeline.legend(bars, _meanings(report)):
        yield from (brush.faint(line) for line in _wrap(f"bar {left} to {right}: {marks}", width, "  "))


def _meanings(report: model.ReportModel) -> dict[str, str]:
    """Words for marks that differ from the usual ones: `x` is `ended` if every attempt was stopped; a loss after assumed checkpoints is assumed."""
    deaths = [
        v
        for v in report.attempts
        if v.ended_unfinished and v.attempt.state not in attempt_view.STOPPED_STATES
    ]
    assumed = report.run is not None and not report.run.measured
    return ({} if deaths else {"x": "ended"}) | ({"-": "lost (assumed)"} if assumed else {})


def _attempt_head(view: attempt_view.AttemptView, days: bool, still: str) -> str:
    attempt = view.attempt
    start = phrase.clock_z(attempt.start_at, with_day=days) if attempt.start_at else "never"
    end = phrase.clock_z(attempt.end_at, with_day=days) if attempt.end_at else still.ljust(len(start))
    nodes = hostlist.compress(attempt.nodes)
    nodes = nodes if len(nodes) <= 16 else f"{len(attempt.nodes)} nodes"
    return f"  attempt {attempt.attempt}  {start} -> {end}  {attempt.state:<9} {nodes:<7}"


def _why(view: attempt_view.AttemptView, width: int, days: bool, brush: paint.Brush) -> Iterator[str]:
    attempt, verdict = view.attempt, view.verdict
    if verdict is None and not (view.ended_unfinished or view.doubt or view.sighted):
        return
    yield ""
    if verdict is None:
        if view.doubt:
            yield brush.bold(view.doubt_title)
            yield from _wrap(view.doubt, width, "  ")
            yield from _evidence(view.own_errors, width, days)
        if view.sighted or not view.doubt:
            yield from _unjudged(view, width, days, brush)
        return
    title = _sides(f"Why attempt {attempt.attempt} {view.how_it_ended}", sure_so_far(view), width)
    yield from map(brush.bold, title)
    yield from _wrap(view.explanation, width, "  ")
    yield from _wrap_if(view.elsewhere, width)
    if verdict.place:
        yield from _wrap(f"Shared: {sanitize.clean(verdict.place)}.", width, "  ", "    ")
    if verdict.author != "rules":
        yield from _wrap(
            f"Set by {sanitize.clean(verdict.author, 60)} {phrase.stamp_z(verdict.made_at)}.", width, "  "
        )
    yield from _evidence(view.evidence, width, days, view.verdict.evidence if view.verdict else ())
    yield from _others(view, width, days)
    for found, sentences in (("Ruled out", verdict.excluded), ("Less likely", verdict.less_likely)):
        if sentences:
            yield from _wrap(f"{found}: {sanitize.clean('; '.join(sentences))}", width, "  ", "    ")
    yield from _wrap_if(_done(view, days), width)


def _others(view: attempt_view.AttemptView, width: int, days: bool) -> Iterator[str]:
    """The most severe other events of its nodes, one per node and fault; events of a part in the evidence are left out."""
    shown = {part for event in view.evidence for part in _parts(event)}
    others = [e for e in view.others if shown.isdisjoint(_parts(e))]
    faults: dict[tuple[str, str], records.HealthEvent] = {}
    for event in _worst_first(others):
        faults.setdefault((event.node, phrase.label(event)), event)
    if not faults:
        return
    n = len(others) + view.others_left_out
    which = f"the {len(others)} worst" if view.others_left_out else "all"
    yield f"  {vocabulary.plural(n, 'other event')} on its nodes during the attempt (--json lists {which}), the most severe:"
    yield from _evidence(tuple(faults.values())[:_MOST_OTHERS], width, days)


def _worst_first(events: Iterable[records.HealthEvent]) -> list[records.HealthEvent]:
    """The events, the severe ones first, and of each severity the last one first."""
    latest_first = sorted(events, key=lambda e: e.at, reverse=True)
    high, info = records.Severity.HIGH, records.Severity.INFO
    return sorted(latest_first, key=lambda e: (e.severity is not high, e.severity is info))


def _parts(event: records.HealthEvent) -> set[tuple[str, str]]:
    return {(event.node, part) for part in (event.device, event.pci_bus_id, event.gpu_uuid) if part}


def _nodes_now(report: model.ReportModel, width: int, brush: paint.Brush) -> Iterator[str]:
    if not report.nodes_now:
        return
    yield ""
    yield brush.bold("Its nodes since it ended" if report.end_at else "Its nodes now")
    for sentence in report.nodes_now:
        yield from _wrap(sentence, width, "  ", "    ")


def _refused(
    views: Sequence[attempt_view.AttemptView], width: int, days: bool, brush: paint.Brush
) -> Iterator[str]:
    """Several starts in a row whose nodes were refused: one section, a line each."""
    numbers = [v.attempt.attempt for v in views]
    yield ""
    title = _sides(f"Why attempts {numbers[0]} to {numbers[-1]} did not begin", "node refused", width)
    yield from map(brush.bold, title)
    yield from _wrap(
        "Each time a node was refused before the job began, and Slurm started the job again.", width, "  "
    )
    for view in views:
        assert view.verdict is not None
        at = view.attempt.start_at or view.attempt.submit_at
        lead = f"    {phrase.clock_z(at, with_day=days)}  attempt {view.attempt.attempt}  "
        yield from _wrap(sanitize.clean(view.verdict.summary), width, lead, " " * min(len(lead), width // 2))


def _stalls(view: attempt_view.AttemptView, width: int, days: bool, brush: paint.Brush) -> Iterator[str]:
    """The stalls of its ranks while it ran; they come from the probe pages, which the user can write."""
    if not view.gangs:
        return
    yield ""
    title = _sides(f"Stalls of attempt {view.attempt.attempt}", "as its ranks reported", width)
    yield from map(brush.bold, title)
    for gang in view.gangs[-_MOST_EVIDENCE:]:
        until = "still" if gang.ended_at is None else f"until {phrase.clock_z(gang.ended_at, with_day=days)}"
        yield f"    {phrase.clock_z(gang.onset_at, with_day=days)} {until}  {gang.kind}, {gang.domain.replace('_', ' ')}, {gang.confidence}"
        where = f" ({sanitize.clean(gang.location, 200)})" if gang.location else ""
        yield from _wrap(f"{sanitize.clean(gang.summary, 300)}{where}", width, " " * 6)


def _pace(view: attempt_view.AttemptView, width: int, days: bool, brush: paint.Brush) -> Iterator[str]:
    """Slow ranks and slow-downs; they come from the probe pages, which the user can write."""
    if not view.pace:
        return
    yield ""
    title = _sides(f"Pace of attempt {view.attempt.attempt}", "as its ranks reported", width)
    yield from map(brush.bold, title)
    for event in view.pace[:_MOST_EVIDENCE]:
        lead = f"    {phrase.clock_z(event.at, with_day=days)}  {event.node}  "
        yield from _wrap(phrase.message(event, 300), width, lead, " " * len(lead))
    if len(view.pace) > _MOST_EVIDENCE:
        yield f"    and {len(view.pace) - _MOST_EVIDENCE} more (--json lists all)"


def _logs(view: attempt_view.AttemptView, width: int, brush: paint.Brush) -> Iterator[str]:
    """The output files of an attempt of which all or a part failed: their last lines, or why they were not read."""
    if not (view.ended_unfinished or view.doubt) or not view.logs:
        return
    yield ""
    yield brush.bold(f"Log of attempt {view.attempt.attempt}")
    for log in view.logs[:_MOST_LOGS]:
        name = f"{log.stream} {sanitize.clean(log.path, 1024)}".rstrip()
        if log.why:
            yield from _wrap(f"{name}: log not read: {sanitize.clean(log.why)}", width, "  ", "    ")
            continue
        note = f" ({sanitize.clean(log.note)})" if log.note else ""
        note += f", kept as {sanitize.clean(log.copy, 1024)}" if log.copy else ""
        yield from _wrap(
            f"{name} on {log.node}{note}{'' if any(log.tail) else ': empty'}", width, "  ", "    "
        )
        for line in (line for line in log.shown(_MOST_LINES) if line.strip()):
            # The end of a line often matters most ("… not found"): long lines are folded, not cut.
            yield from _wrap(sanitize.clean(line, _MOST_OF_A_LINE), max(width, 26), "    | ", "    |   ")
    if len(view.logs) > _MOST_LOGS:
        yield f"  and {len(view.logs) - _MOST_LOGS} more (--json lists all)"


def sure_so_far(view: attempt_view.AttemptView) -> str:
    """`user program, likely so far` until its log is read; empty without a verdict."""
    if view.verdict is None:
        return ""
    return f"{sure_words(view.verdict)}{' so far' if view.log_awaited else ''}"


def sure_words(verdict: records.Verdict) -> str:
    """`hardware, likely`; a word that would stand twice (`unknown`) stands once."""
    words = (domain_words(verdict), verdict.confidence.value)
    return ", ".join(dict.fromkeys(words))


def domain_words(verdict: records.Verdict) -> str:
    """`hardware`; the cause itself where no failure domain applies (cancelled, preempted, unknown)."""
    if verdict.cause == "user_cancelled":
        return "cancelled"  # the summary names the person, who may be root
    if verdict.domain is records.Domain.UNKNOWN:
        return taxonomy.name(verdict.cause, verdict.component)
    return verdict.domain.replace("_", " ")


def _unjudged(view: attempt_view.AttemptView, width: int, days: bool, brush: paint.Brush) -> Iterator[str]:
    number, ending = view.attempt.attempt, phrase.ending(view.attempt)
    if view.running or view.sighted:
        yield brush.bold(view.sighted_title)
    else:
        yield brush.bold(f"Attempt {number} ended {view.attempt.state}{f' ({ending})' if ending else ''}")
        yield from _wrap(view.why_not_judged, width, "  ")
    found = view.sighted or view.others
    yield from _evidence(found, width, days, [e.event_id for e in _worst_first(found)], view.others_left_out)
    yield from _wrap_if(_done(view, days), width)


def _evidence(
    events: tuple[records.HealthEvent, ...],
    width: int,
    days: bool,
    order: Sequence[uuid.UUID] = (),
    left_out: int = 0,
) -> Iterator[str]:
    """The events, oldest first; if there are too many, those that come first in `order`, such as the verdict's own order.

    `left_out`: how many more there were than `events`.
    """
    shown = model.strongest(events, order, _MOST_EVIDENCE) if order else events[:_MOST_EVIDENCE]
    rows = [(phrase.when(e, with_day=days), e.node, e.source) for e in shown]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for event, row in zip(shown, rows, strict=True):
        lead = f"    {'  '.join(f'{cell:<{n}}' for cell, n in zip(row, widths, strict=True))}  "
        yield from _wrap(phrase.event_words(event), width, lead, " " * min(len(lead), width // 2))
    if more := len(events) + left_out - len(shown):
        yield f"    and {more} more (--json lists {f'the {len(events)} worst' if left_out else 'all'})"


def _done(view: attempt_view.AttemptView, days: bool) -> str:
    words: list[str] = []
    for i, drain in enumerate(view.actions):
        known = {d.reason for d in view.actions[:i]}
        words.append(
            phrase.action(
                drain, "" if drain.reason in known else sanitize.clean(drain.reason, 120), with_day=days
            )
        )
    if view.nodes_without_faults and view.evidence:
        words.append(f"{hostlist.compress(view.nodes_without_faults)}: no fault recorded")
    if view.unwatched_nodes and view.evidence:
        words.append(f"nobody watched {hostlist.compress(view.unwatched_nodes)}")
    return "; ".join(words)


def _ends(report: model.ReportModel, width: int, brush: paint.Brush) -> Iterator[str]:
    entries = [("" if i else "What now", sanitize.clean(step)) for i, step in enumerate(report.advice)]
    if report.cost:
        entries.append(("What it cost", _cost(report)))
    if report.shows_ettr:
        entries.append(("The run", _ettr(report)))
    if entries:
        yield ""
    for title, text in entries:
        lines = _wrap(text, width, f"{title:<14}", " " * 14)
        yield brush.bold(title) + lines[0][len(title) :]
        yield from lines[1:]


def _cost(report: model.ReportModel) -> str:
    assert report.cost is not None
    assumed = " (from assumed checkpoints)" if report.cost.assumed else ""
    return f"{report.cost.words}{assumed}"


def render_overview(
    ref: str, found: rows.ReportRows, *, now: datetime, width: int = 80, colour: bool = False
) -> str:
    """The report on an array: its tasks counted by state, those that did not complete listed."""
    brush = paint.Brush(colour)
    partial = "" if found.n_siblings <= len(found.siblings) else f" among {len(found.siblings)} of them"
    totals = (
        f"{vocabulary.plural(found.n_siblings, 'task')} started; {rows.by_state(found.siblings)}{partial}"
    )
    lines = _wrap(f"Job array {ref}: {totals}", width)
    unfinished = [t for t in found.siblings if t.state != "COMPLETED"]
    listed, left = unfinished[:_MOST_TASKS], unfinished[_MOST_TASKS:]
    wide = max((len(t.state) for t in listed), default=0)
    for task in listed:
        head = f"  {task.ref:<8} {task.state:<{wide}} {vocabulary.plural(task.n_attempts, 'start'):<8} "
        reason = textwrap.shorten(task.reason, max(width - len(head), 20), placeholder="…")
        lines.append(brush.state(head + reason, task.state))
    if left:
        more = f"and {len(left)} more ({rows.by_state(left)}): probing-report {ref} --json has all"
        lines += _wrap(f"  {more}", width, "", "    ")
    for waiting in found.never_started:
        by = f" by {sanitize.clean(waiting.cancelled_by, 40)}" if waiting.cancelled_by else ""
        words = f"  {sanitize.clean(waiting.job, 200):<14} {waiting.state:<12} never started; ended{by} while waiting"
        lines += [brush.state(line, waiting.state) for line in _wrap(words, width, "", "    ")]
    lines += ["", f"as of {phrase.stamp_z(now)}; one task: probing-report {ref}_N"]
    if found.exported_until is None:
        lines.append(f"Tasks that wait to start are not listed: squeue -j {ref} shows any.")
    return "\n".join(line.rstrip() for line in lines) + "\n"
