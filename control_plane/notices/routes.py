"""Which route gets a group, and whether now: severity, kind and partition; quiet hours, rate, time between updates."""

from __future__ import annotations

import fnmatch
import re
import zoneinfo
from collections.abc import Mapping, Sequence
from datetime import datetime, time, timedelta

from probing_cluster.control_plane.notices import grouping
from probing_cluster.core import errors, records, settings

_ORDER = ("info", "low", "high")
HOUR = timedelta(hours=1)


def check(config: settings.Settings, kinds: Sequence[str]) -> None:
    """Raises SettingsError for a route that can never work, naming it."""
    names = [r.name for r in config.notices.routes]
    for route in config.notices.routes:
        where = f"[[notices.routes]] {route.name or '(without name)'}"
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,40}", route.name) or names.count(route.name) > 1:
            raise errors.SettingsError(
                f"{where}: give each route a name of its own of letters, digits, _ and -"
            )
        if route.severity not in _ORDER:
            raise errors.SettingsError(f"{where}: severity must be info, low or high, not {route.severity!r}")
        if not (route.url_file or route.mail_to):
            raise errors.SettingsError(f"{where}: it leads nowhere; name a url_file or mail_to")
        if route.mail_to and not config.mail.host:
            raise errors.SettingsError(f"{where}: mail_to needs [mail] host")
        if route.per_hour < 1:
            raise errors.SettingsError(f"{where}: per_hour must be 1 or more")
        for pattern in route.kinds:
            if not fnmatch.filter(kinds, pattern):
                raise errors.SettingsError(
                    f"{where}: no kind is called {pattern!r}; there are {', '.join(kinds)}"
                )
        _hours(route)


def wants(route: settings.NoticeRoute, group: grouping.NoticeGroup) -> bool:
    """Whether the route is for such groups."""
    if _ORDER.index(group.severity) < _ORDER.index(route.severity):
        return False
    if route.kinds and not any(fnmatch.fnmatchcase(group.kind, pattern) for pattern in route.kinds):
        return False
    partitions = group.partitions
    return not route.partitions or any(fnmatch.filter(partitions, pattern) for pattern in route.partitions)


def holds(
    route: settings.NoticeRoute,
    group: grouping.NoticeGroup,
    config: settings.Settings,
    now: datetime,
    sent_at: Sequence[datetime],
) -> str:
    """Why the group's latest revision does not go there now; empty when it does. `sent_at`: what went there lately of its `rate`."""
    quiet_until = _quiet_until(route, config, now)
    if quiet_until and group.severity is not records.Severity.HIGH:
        return f"quiet hours until {quiet_until}"
    last = group.sent_at.get(route.name)
    update = timedelta(seconds=config.notices.update_s)
    if last is not None and now - last < update and group.over_at is None:
        return f"updated at most every {config.notices.update_s:g} s"
    if sum(now - at < HOUR for at in sent_at) >= route.per_hour:
        return f"{route.per_hour} messages within the hour already"
    return ""


def rate(route: settings.NoticeRoute, group: grouping.NoticeGroup) -> str:
    """What the group's messages are counted under: severity high apart, so that what users' jobs cause holds none of it back."""
    return f"{route.name} high" if group.severity is records.Severity.HIGH else route.name


def _quiet_until(route: settings.NoticeRoute, config: settings.Settings, now: datetime) -> str:
    hours = _hours(route)
    if hours is None:
        return ""
    begin, end = hours
    try:
        local = now.astimezone(zoneinfo.ZoneInfo(config.service.timezone)).time()
    except (zoneinfo.ZoneInfoNotFoundError, ValueError) as exc:
        raise errors.SettingsError(
            f"[service] timezone: no zone {config.service.timezone!r} is known"
        ) from exc
    inside = begin <= local < end if begin <= end else local >= begin or local < end
    return f"{end:%H:%M}" if inside else ""


def _hours(route: settings.NoticeRoute) -> tuple[time, time] | None:
    if not route.quiet_hours:
        return None
    begin, _, end = route.quiet_hours.partition("-")
    try:
        return time.fromisoformat(begin.strip()), time.fromisoformat(end.strip())
    except ValueError as exc:
        msg = f"[[notices.routes]] {route.name}: quiet_hours must be HH:MM-HH:MM, not {route.quiet_hours!r}"
        raise errors.SettingsError(msg) from exc


def rates(rows: Mapping[str, Sequence[str]], now: datetime) -> dict[str, list[datetime]]:
    """Each `rate` to when its messages of the last hour went out."""
    found = {name: [datetime.fromisoformat(text) for text in texts] for name, texts in rows.items()}
    return {name: [at for at in times if now - at < HOUR] for name, times in found.items()}
