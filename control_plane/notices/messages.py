"""A group as a message for one route, and its delivery: mail through [mail], everything else through apprise."""

from __future__ import annotations

import email.message
import email.policy
import email.utils
import hashlib
import json
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

from probing_cluster.attribution.places import scan
from probing_cluster.control_plane import child_process
from probing_cluster.control_plane.notices import fact, grouping
from probing_cluster.control_plane.outbox import queue
from probing_cluster.core import errors, secret_file, settings
from probing_cluster.reports import phrase
from probing_cluster.reports.sending import headers, smtp

KIND = "notice"
_POSTING = "probing_cluster.control_plane.notices.posting"
"""What the child runs: it loads that and no task of the service."""
_SLACK_S = 10.0
"""For the child's start and end, beside its deadline."""


def of_group(
    config: settings.Settings,
    kind: fact.Kind,
    group: grouping.NoticeGroup,
    route: settings.NoticeRoute,
    now: datetime,
) -> queue.QueuedMessage:
    """The message of the group's latest revision."""
    over = group.lasting and group.over_at is not None
    title = fact.title(kind, _shown(group), over=over, place=scan.name_in(group.place))
    updated = "" if over or route.name not in group.sent else "Update: "
    content = {
        "title": f"[{config.cluster.name}] {updated}{title}",
        "body": "\n".join(_lines(kind, group, over=over)),
        "severity": str(group.severity),
        "over": over,
        "group": group.group_id,
        "mark": f"{group.group_id}.{group.revision}",
    }
    return message(content, route, now, key=f"notice.{group.group_id}.{group.revision}.{route.name}")


def message(
    content: dict[str, Any], route: settings.NoticeRoute, now: datetime, *, key: str
) -> queue.QueuedMessage:
    """Content for one route, ready for the outbox."""
    mail = [f"mail:{address}" for address in route.mail_to]
    addresses = [f"url:{_name_of(url)}" for url in _urls(route)] or (["url:"] if route.url_file else [])
    return queue.QueuedMessage(
        key=key,
        kind=KIND,
        lane=f"{KIND}:{route.name}",
        body=json.dumps(content).encode("ascii"),
        recipients=(*mail, *addresses),
        made_at=now,
    )


def _shown(group: grouping.NoticeGroup) -> list[fact.Fact]:
    """What the title is about: what stands, or everything once nothing does."""
    return [f for i, f in group.facts.items() if not group.open_ids or i in group.open_ids]


def _lines(kind: fact.Kind, group: grouping.NoticeGroup, *, over: bool) -> Iterable[str]:
    facts = sorted(group.facts.items(), key=lambda item: (item[1].at, item[0]))
    for fact_id, one in facts[-grouping.MOST_LINES :]:
        ended = (
            f" ({one.after.lower() or 'over'})"
            if (one.stands and fact_id not in group.open_ids) or (group.lasting and not one.stands)
            else ""
        )
        todo = f": {one.todo}" if one.todo and not ended else ""
        yield f"{phrase.stamp_z(one.at)} {fact.harmless(one.line + todo)}{ended}"
    if group.place and not any(group.place in one.line for _, one in facts):
        yield f"Shared: {fact.harmless(group.place)}"
    if len(facts) > grouping.MOST_LINES:
        yield f"and {len(facts) - grouping.MOST_LINES} before"
    if not over:
        jobs = {one.job for one in _shown(group)}
        yield f"See: {kind.command.replace('JOB', jobs.pop()) if len(jobs) == 1 and jobs != {''} else kind.command}"
    yield f"ref {group.group_id}.{group.revision}"


def deliver(config: settings.Settings, waiting: queue.QueuedMessage, now: datetime) -> smtp.SendOutcome:
    """One attempt to deliver a notice to those who have not got it."""
    content = json.loads(waiting.body)
    route = next((r for r in config.notices.routes if waiting.lane == f"{KIND}:{r.name}"), None)
    if route is None:
        return smtp.SendOutcome(never=dict.fromkeys(waiting.recipients, "its route is no longer configured"))
    sent: list[str] = []
    later: dict[str, str] = {}
    never: dict[str, str] = {}
    trouble = ""
    for outcome in (_mail(config, waiting, content, now), _posts(config, route, waiting, content)):
        sent += outcome.sent
        later |= outcome.later
        never |= outcome.never
        trouble = trouble or outcome.trouble
    return smtp.SendOutcome(sent=tuple(sent), later=later, never=never, trouble=trouble)


def _mail(
    config: settings.Settings, waiting: queue.QueuedMessage, content: dict[str, Any], now: datetime
) -> smtp.SendOutcome:
    wanted = [r.removeprefix("mail:") for r in waiting.recipients if r.startswith("mail:")]
    if not wanted:
        return smtp.SendOutcome()
    made = email.message.EmailMessage(policy=email.policy.SMTP.clone(cte_type="7bit"))
    made["Subject"] = headers.subject(content["title"], 200)
    made["From"] = config.mail.sender
    made["To"] = ", ".join(wanted)
    made["Date"] = email.utils.format_datetime(now)
    host = email.utils.parseaddr(config.mail.sender)[1].rpartition("@")[2] or "localhost"
    made["Message-ID"] = f"<notice.{content['mark']}@{host}>"
    made["In-Reply-To"] = made["References"] = f"<notice.{content['group']}@{host}>"
    made["Auto-Submitted"] = "auto-generated"
    if content["severity"] == "high" and not content["over"]:
        made["X-Priority"] = "1"
    made.set_content(content["body"] + "\n")
    found = smtp.send(config.mail, bytes(made), wanted)
    return smtp.SendOutcome(
        sent=tuple(f"mail:{a}" for a in found.sent),
        later={f"mail:{a}": why for a, why in found.later.items()},
        never={f"mail:{a}": why for a, why in found.never.items()},
        trouble=found.trouble,
    )


def _posts(
    config: settings.Settings,
    route: settings.NoticeRoute,
    waiting: queue.QueuedMessage,
    content: dict[str, Any],
) -> smtp.SendOutcome:
    wanted = [r for r in waiting.recipients if r.startswith("url:")]
    if not wanted:
        return smtp.SendOutcome()
    named = {f"url:{_name_of(url)}": url for url in _read(route)}
    if wanted == ["url:"]:  # the file could not be read when the message was made
        wanted = list(named)
    gone = {r: f"{route.url_file} no longer has it" for r in wanted if r not in named}
    given = {r: named[r] for r in wanted if r in named}
    answers = _answers(config, given, content) if given else {}
    return smtp.SendOutcome(
        sent=tuple(r for r in given if answers.get(r) == ""),
        later={r: answers.get(r, "no answer") for r in given if answers.get(r) != ""},
        never=gone,
    )


def _answers(config: settings.Settings, given: dict[str, str], content: dict[str, Any]) -> dict[str, str]:
    """Address to why it did not get it, empty where it did."""
    deadline_s = config.notices.deadline_s
    try:
        answers: dict[str, str] = child_process.run(
            _POSTING, config, given, content, timeout_s=deadline_s * max(1, len(given)) + _SLACK_S
        )
    except errors.ProbingError as exc:
        return dict.fromkeys(given, str(exc))
    return answers


def _urls(route: settings.NoticeRoute) -> list[str]:
    try:
        return _read(route)
    except errors.SettingsError:
        return []  # said, and tried again, at each delivery


def _read(route: settings.NoticeRoute) -> list[str]:
    """The addresses of a route's file; raises SettingsError."""
    if not route.url_file:
        return []
    text = secret_file.read_all(Path(route.url_file))
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def _name_of(url: str) -> str:
    """An address's name in the outbox and the log, which must not tell its secrets: `slack-3fa2c1`."""
    scheme = "".join(ch for ch in url.partition("://")[0] if ch.isalnum())[:20].lower()
    return f"{scheme}-{hashlib.blake2b(url.encode(), digest_size=4).hexdigest()}"
