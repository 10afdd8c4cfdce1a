"""The mail to a job's owner: why it died, the cost and the next step, in text and HTML; it loads nothing from elsewhere.

Job names, log lines and Slurm's arguments are untrusted: headers take no line break of theirs, and HTML shows them as text.
"""

from __future__ import annotations

import dataclasses
import email.message
import email.policy
import email.utils
import textwrap
from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from probing_cluster.core import records, sanitize, settings, vocabulary
from probing_cluster.core.catalogue import slurm_lines
from probing_cluster.reports import advice, attempt_view, model, page, phrase, query, rows, text
from probing_cluster.reports.sending import headers

_WIDTH = 76
_MOST_EVIDENCE = 5
_MOST_TASKS = 12
_SUBJECT_CHARS = 240
_AWAITED_LOG = "This was written before the job's output was read. If that changes it, one more mail follows."
"""Nobody can ask a mail again (`advice.AWAITED_LOG`)."""


Report = model.ReportModel | rows.ReportRows | query.NeverStarted
"""What a mail is made of: one job's report, an array's rows, or what became of a job that never started."""


@records.record
class MailHeader:
    """The job and attempt that a mail is about."""

    job_id: int = records.doc("Slurm's raw job id; the master's for an array")
    restart_count: int = records.doc("Slurm's, of the attempt the mail is about")
    subject: str = records.doc("Slurm's own subject, which mail filters match")
    recipient: str = records.doc("the address that asked Slurm for it")
    mark: str = records.doc("identity of the mail; a second copy has the same")
    stage: str = records.doc(
        "verdict, follows (not yet), never (not within a day), correction (of the verdict mailed), held (it holds GPUs idle) or alarm (it printed an alarm word)"
    )
    again: bool = records.doc("true if an earlier mail said that the verdict follows", default=False)
    requeued: bool = records.doc("true if it is about a requeue: the job comes back", default=False)
    mailed: tuple[str, str] = records.doc(
        "of a correction: the domain and the cause that the mail before it named", default=("", "")
    )
    at: datetime = records.doc("when it was made, UTC")


@records.record
class Content:
    """The mail's content without its layout."""

    title: str = records.doc("one line: the job, how it ended and why")
    sure: str = records.doc("the failure domain and how sure it is; empty without a verdict", default="")
    severity: str = records.doc("bad, warn or plain: the colour", default="plain")
    summary: str = records.doc("the verdict's sentence", default="")
    evidence: tuple[tuple[str, str], ...] = records.doc("(time and node, event) pairs", default=())
    steps: tuple[str, ...] = records.doc("next steps", default=())
    cost: str = records.doc("cost of the job's failures", default="")
    tasks: tuple[tuple[str, str], ...] = records.doc(
        "of an array: its tasks that did not complete", default=()
    )
    command: str = records.doc("the whole report")
    url: str = records.doc("its address; empty where the site has none", default="")
    footer: str = records.doc("why this mail came")


def compose(
    about: MailHeader, report: Report | None, config: settings.Settings
) -> email.message.EmailMessage:
    """The mail; without a report it says that the verdict follows, or that there is none."""
    headline = report is not None
    return _message(about, content(about, report, config), config, headline=headline)


def compose_news(
    about: MailHeader, ref: str, words: Sequence[str], config: settings.Settings
) -> email.message.EmailMessage:
    """The mail about a running job that holds GPUs idle (stage held) or printed an alarm word (stage alarm). `ref`: the owner's name for the job."""
    title, step = _NEWS[about.stage]
    found = Content(
        title=f"job {ref} {title}",
        severity="warn",
        summary=" ".join(f"The job {sanitize.clean(sentence, 500)}." for sentence in words),
        steps=(f"Probing Cluster does nothing about it. {step} scancel {ref}.",),
        command=f"probing-report {ref}",
        url=config.mail.report_url.replace("{job_id}", str(about.job_id)) if config.mail.report_url else "",
        footer=_footer(about, config),
    )
    return _message(about, found, config, headline=False)


_NEWS = {
    "held": ("holds GPUs idle", "If it waits for you, or its program has ended, end it:"),
    "alarm": ("printed an alarm word", "Look at its output. To end the job:"),
}
"""Title and next step by stage."""


def _message(
    about: MailHeader, found: Content, config: settings.Settings, *, headline: bool
) -> email.message.EmailMessage:
    made = email.message.EmailMessage(policy=email.policy.SMTP.clone(cte_type="7bit", max_line_length=300))
    behind = f": {found.title}" if headline else ""
    made["Subject"] = headers.subject(f"{about.subject}{behind}", _SUBJECT_CHARS)
    made["From"] = config.mail.sender
    made["To"] = about.recipient
    made["Date"] = email.utils.format_datetime(about.at)
    host = email.utils.parseaddr(config.mail.sender)[1].rpartition("@")[2] or "localhost"
    made["Message-ID"] = f"<{about.mark}@{host}>"
    made["References"] = f"<job.{about.job_id}@{host}>"
    made["Auto-Submitted"] = "auto-generated"
    made.set_content(_plain(found))
    made.add_alternative(page.environment().get_template("owner.html.j2").render(mail=found), subtype="html")
    return made


def content(about: MailHeader, report: Report | None, config: settings.Settings) -> Content:
    """The mail's content."""
    url = config.mail.report_url.replace("{job_id}", str(about.job_id)) if config.mail.report_url else ""
    base = Content(
        title=f"job {about.job_id} {'was requeued' if about.requeued else 'has ended'}",
        command=f"probing-report {about.job_id}",
        url=url,
        footer=_footer(about, config),
    )
    if report is None:
        return _without(base, about)
    if isinstance(report, rows.ReportRows):
        return _of_array(base, about, report)
    if isinstance(report, query.NeverStarted):
        return _of_waiting(base, about, report)
    view = _view(about.restart_count, report)
    if view is None:
        return base
    whole = _of_attempt(base, about, report, view)
    return (
        whole
        if about.stage != "correction" or view.verdict is None
        else _corrected(_with(whole, summary=_explanation(view)), about, report, view.verdict)
    )


def verdict_of(restart_count: int, report: Report | None) -> records.Verdict | None:
    """The verdict that a mail about this start gives; None for an array's summary, and for a job that never started."""
    view = _view(restart_count, report) if isinstance(report, model.ReportModel) else None
    return view.verdict if view is not None else None


def _corrected(
    whole: Content, about: MailHeader, report: model.ReportModel, verdict: records.Verdict
) -> Content:
    """The correction: what the verdict was and is, its sentence, and what to do now."""
    before, after = _named(*about.mailed), _named(verdict.domain.value, verdict.cause)
    what = (
        f"the verdict changed from {before} to {after}"
        if before != after
        else "what its output says, which was read after the mail before"
    )
    title = f"Correction: job {report.title}: {what}"
    return _with(whole, title=title, evidence=(), cost="")


def _named(domain: str, cause: str) -> str:
    """`user program (user error)`; the cause alone where no failure domain applies."""
    domain, cause = domain.replace("_", " "), cause.replace("_", " ")
    return cause if domain in ("unknown", cause) else f"{domain} ({cause})"


def _footer(about: MailHeader, config: settings.Settings) -> str:
    return f"You get this because the job asked Slurm for mail. Cluster {config.cluster.name}, {about.mark}"


def _without(base: Content, about: MailHeader) -> Content:
    words = (
        "The verdict follows. Accounting or the evidence is not complete yet."
        if about.stage == "follows"
        else "No verdict could be made within a day, because accounting or the database was unavailable. The report may have one by now."
    )
    return _with(base, summary=words)


def _view(restart_count: int, report: model.ReportModel) -> attempt_view.AttemptView | None:
    """The attempt that the mail is about."""
    found = [v for v in report.attempts if v.attempt.n_restarts == restart_count]
    return found[-1] if found else None


def _of_attempt(
    base: Content, about: MailHeader, report: model.ReportModel, view: attempt_view.AttemptView
) -> Content:
    verdict, attempt = view.verdict, view.attempt
    which = f"job {report.title}" + (f", attempt {attempt.attempt}," if len(report.attempts) > 1 else "")
    if verdict is None:
        return _with(base, title=f"{which} ended {attempt.state}")
    return _with(
        base,
        title=f"{which} {view.how_it_ended}: {_short(verdict.summary)}",
        sure=text.sure_so_far(view),
        severity=_severity(verdict),
        summary=_explanation(view).removeprefix(_short(verdict.summary)).lstrip(". "),
        evidence=tuple(
            _evidence(e) for e in model.strongest(view.evidence, verdict.evidence, _MOST_EVIDENCE)
        ),
        steps=_steps(report, _as_it_came(verdict, is_back=about.requeued or view is not report.attempts[-1])),
        cost=report.cost.words if report.cost else "",
    )


def _explanation(view: attempt_view.AttemptView) -> str:
    return sanitize.clean(f"{view.explanation} {view.elsewhere}".rstrip(), 1000)


def _as_it_came(verdict: records.Verdict, *, is_back: bool) -> records.Verdict:
    """The verdict of a start after which the job came back by itself tells nobody to submit it."""
    step = advice.once_requeued(verdict.next_step) if is_back else verdict.next_step
    return dataclasses.replace(verdict, next_step=step)


def _steps(report: model.ReportModel, verdict: records.Verdict) -> tuple[str, ...]:
    """The owner's steps first."""
    owners, operators = advice.parted(verdict)
    theirs = _sentence(operators) if operators else ""
    of_report = (_AWAITED_LOG if s == advice.AWAITED_LOG else s for s in report.advice)
    steps = [owners, *(s for s in of_report if _sentence(s) != theirs), theirs]
    return tuple(dict.fromkeys(_sentence(s) for s in steps if s.strip()))


def _severity(verdict: records.Verdict) -> str:
    if verdict.domain is records.Domain.HARDWARE:
        return "bad"
    return "warn" if verdict.domain is records.Domain.SYSTEM_SOFTWARE else "plain"


def _of_array(base: Content, about: MailHeader, found: rows.ReportRows) -> Content:
    """An array's summary: tasks that did not complete, counted by cause."""
    died = [t for t in found.siblings if t.state != "COMPLETED"]
    causes = Counter(t.name or t.state.replace("_", " ") for t in died)
    words = ", ".join(f"{n} {cause}" for cause, n in causes.most_common(5))
    return _with(
        base,
        title=f"array {about.job_id}: {len(died)} of {found.n_siblings} tasks did not complete ({words})"
        if died
        else f"array {about.job_id}: {vocabulary.plural(found.n_siblings, 'task')} on record, all completed; those that Slurm calls failed never started"
        if (ended := slurm_lines.array_ending(about.subject)) is not None and ended.failed
        else f"array {about.job_id}: all {found.n_siblings} tasks completed",
        summary=f"Of {found.n_siblings} tasks that started, {len(died)} did not complete: {words}."
        if died
        else "",
        tasks=(*((t.ref, t.name or t.state.replace("_", " ")) for t in died[:_MOST_TASKS]), *_more(died)),
        steps=(f"One task: probing-report {died[0].ref}.",) if died else (),
    )


def _more(died: Sequence[rows.Sibling]) -> tuple[tuple[str, str], ...]:
    """That an array's summary leaves tasks out, and how many of which state."""
    left = died[_MOST_TASKS:]
    return ((f"and {len(left)} more", rows.by_state(left)),) if left else ()


def _of_waiting(base: Content, about: MailHeader, found: query.NeverStarted) -> Content:
    """A job, or a requeued job's next start, that ended while it waited."""
    again = f", attempt {about.restart_count + 1}," if about.restart_count else ""
    why = sanitize.clean(found.why, 1500)
    return _with(
        base,
        title=sanitize.clean(f"job {found.job}{again} never started: {found.how}", 400),
        summary=_sentence(f"{why[:1].upper()}{why[1:]}") if why else "",
    )


def _evidence(event: records.HealthEvent) -> tuple[str, str]:
    return f"{phrase.clock_z(event.at)} {sanitize.clean(event.node, 100)}", phrase.event_words(event)


def _short(summary: str) -> str:
    """The first sentence."""
    return sanitize.clean(summary, 400).split(". ", 1)[0].rstrip(".")


def _sentence(step: str) -> str:
    step = sanitize.clean(step, 1000).strip()
    return step if step.endswith((".", "!", "?")) else f"{step}."


def _with(base: Content, **changes: object) -> Content:
    return Content(**{**vars(base), **changes})


def _plain(found: Content) -> str:
    lines = [*_wrap(f"{found.title[:1].upper()}{found.title[1:]}.")]
    if found.sure:
        lines += [f"({found.sure})"]
    if found.summary and found.summary.rstrip(".") not in found.title:
        lines += ["", *_wrap(found.summary)]
    lines += [""] * bool(found.evidence)
    lines += [line for when, words in found.evidence for line in _wrap(f"  {when}  {words}", "      ")]
    lines += [""] * bool(found.tasks)
    lines += [f"  {ref:<16} {sanitize.clean(words, 100)}" for ref, words in found.tasks]
    for title, values in (("What now", found.steps), ("What it cost", (found.cost,) if found.cost else ())):
        for n, value in enumerate(values):
            lines += [""] * (n == 0) + _wrap(f"{'' if n else title:<14}{value}", " " * 14)
    lines += ["", f"The whole report: {found.command}", *([found.url] if found.url else [])]
    return "\n".join([*lines, "", "-- ", *_wrap(found.footer)]) + "\n"


def _wrap(line: str, rest: str = "") -> list[str]:
    return textwrap.wrap(
        line, _WIDTH, subsequent_indent=rest, break_on_hyphens=False, drop_whitespace=True
    ) or [""]
