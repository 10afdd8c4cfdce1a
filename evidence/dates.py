"""Dates of loggers to UTC instants; an incomplete date gives None, never a guess."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo

# `journalctl -o short-full` names the zone; a word in capitals that stands where the host does is the host.
_ZONE = r"[A-Z]{3,5}(?=\s+[\w.@-]+\s+(?:[a-z]+\d?\.[a-z]+\s+)?[\w./@-]+(?:\[\d+\])?:)"
_ISO = rf"\d{{4}}(?:-\d\d-|/\d\d/)\d\d[T _]\d\d:\d\d:\d\d(?:[.,]\d{{1,9}})?(?:\s?(?:Z|UTC|[+-]\d\d(?::?\d\d)?(?:\sUTC\b|\s{_ZONE})?)|\s{_ZONE})?"
_RFC3164 = r"(?:\d{4}\s+)?(?:[^\W\d_]{3,10}\.?|\d{1,2}\s?[月월])\s+\d{1,2}[日일]?\s+(?:\d{4}\s+)?\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:\s+[AP]M\b)?(?:\s+(?:[A-Z]{3,5}\s+)?\d{4}(?=[\s\]:,]|$))?"
_SLASHED = r"\d\d/\d\d/(?:\d{4}|\d\d)[ T]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
"""log4j's default and the form with the month first: which number is what is open, so that it gives no instant."""
_WEEKDAY = r"(?:[^\W\d_]{1,4}\.?,?\s+)?"
_FORMS = re.compile(
    rf"\s*(?:{_WEEKDAY}{_ISO}|{_WEEKDAY}{_RFC3164}|{_SLASHED}|\d\d:\d\d:\d\d(?:[.,]\d{{1,9}})?|\d{{9,10}}\.\d{{6}}|\d{{10}}(?=\s+[\w.-]+\s+kernel:))(?=[\s\]:,]|$)"
)
_ISO_PARTS = re.compile(
    r"(\d{4})[-/](\d\d)[-/](\d\d)[T _](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?\s?(?:(Z|UTC)|([+-])(\d\d):?(\d\d)?(?!\d))?"
)
_NAMED_PARTS = re.compile(
    r"(?:(\d{4})\s+)?([^\W\d_]{3,10}|\d{1,2}\s?[月월])\.?\s+(\d{1,2})[日일]?\s+(?:(\d{4})\s+)?(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?:\s+(?:[A-Z]{3,5}\s+)?(\d{4}))?"
)
_CLOCK = re.compile(r"\d\d:\d\d:\d\d")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_OTHER_MONTHS = {
    name: month
    for month, names in enumerate(
        (
            "ene gen sty led янв січ oca led tam",
            "fév fev févr lut úno фев лют şub hel",
            "mär mrz mrt mars bře мар бер maa márc",
            "avr abr kwi dub апр кві nis huh ápr",
            "mai maj mei mag май мая тра may tou kvě máj",
            "juin giu cze čen чер июн haz kes jún",
            "juil lug lip čec лип июл tem hei júl",
            "aoû ago sie srp авг сер ağu elo",
            "set wrz zář сен вер eyl syy",
            "okt out ott paź říj окт жов eki lok",
            "lis noy ноя kas marr",
            "déc dez dic gru pro дек гру ara jou",
        ),
        1,
    )
    for name in names.split()
}
"""Months as glibc's locales shorten them in other languages than English; a longer name is looked up by its first letters."""


def match_length(text: str) -> int:
    """How many characters of `text` are a date at its start; 0 for none."""
    found = _FORMS.match(text[:80])
    return found.end() if found else 0


def looks_like(text: str) -> bool:
    """Whether all of `text` is a date."""
    return match_length(text) == len(text)


def _instant(
    parts: tuple[int, int, int, int, int, int], fraction: str | None, offset: timedelta
) -> datetime | None:
    micro = int((fraction or "0")[:6].ljust(6, "0"))
    try:
        return datetime(*parts, micro, tzinfo=UTC) - offset
    except (ValueError, OverflowError):
        return None


def iso(text: str) -> datetime | None:
    """The instant of an ISO-8601 text; without a zone it is taken as UTC."""
    if not (found := _ISO_PARTS.search(text)):
        return None
    year, month, day, hour, minute, second = (int(g) for g in found.groups()[:6])
    offset = timedelta()
    if found[9]:
        offset = timedelta(hours=int(found[10]), minutes=int(found[11] or 0)) * (-1 if found[9] == "-" else 1)
    return _instant((year, month, day, hour, minute, min(second, 59)), found[7], offset)


def names_zone(text: str) -> bool:
    """Whether the ISO-8601 text names its time zone."""
    found = _ISO_PARTS.search(text)
    return found is not None and bool(found[8] or found[9])


def of_zone(at: datetime, zone: tzinfo | None) -> datetime | None:
    """The UTC instant of a clock's reading in `zone` (None: of this machine's); None out of range."""
    try:
        return at.replace(tzinfo=zone).astimezone(UTC)
    except (OverflowError, ValueError):  # a date of the year 1
        return None


def written(text: str, zone: tzinfo | None) -> datetime | None:
    """The first date with a year in a line, in ISO 8601 or in the form of `date`; a date without a zone is read in `zone`."""
    if _CLOCK.search(text) is None:
        return None
    if (at := iso(text)) is not None and names_zone(text):
        return at
    at = at or _named(text, None)
    return None if at is None else of_zone(at, zone)


def from_epoch_us(micro: int) -> datetime | None:
    """The instant `micro` microseconds after the epoch; None when out of range."""
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micro)
    except OverflowError:
        return None


def _month(name: str) -> int | None:
    if name[-1] in "月월":
        number = int(name[:-1])
        return number if 1 <= number <= 12 else None
    name = name.lower()
    if name[:3] in _MONTHS:
        return _MONTHS.index(name[:3]) + 1
    return _OTHER_MONTHS.get(name[:4]) or _OTHER_MONTHS.get(name[:3])


def _named(text: str, reference: datetime | None) -> datetime | None:
    if not (found := _NAMED_PARTS.search(text)) or (month := _month(found[2])) is None:
        return None
    clock = (int(found[3]), int(found[5]), int(found[6]), min(int(found[7]), 59))
    year = found[1] or found[4] or found[9]
    if year:
        return _instant((int(year), month, *clock), found[8], timedelta())
    if reference is None:
        return None
    for candidate in (reference.year + 1, reference.year, reference.year - 1):
        at = _instant((candidate, month, *clock), found[8], timedelta())
        if at is not None and at <= reference + timedelta(days=1):
            return at
    return None


def parse(text: str, reference: datetime | None) -> datetime | None:
    """The instant of any date form; None when it lacks a day, or a year and there is no reference."""
    text = text.strip()
    if "-" in text[:12] or re.match(r"(?:\D{2,5}\s*)?\d{4}[-/]", text):
        return iso(text)
    if re.fullmatch(r"\d{9,10}(?:\.\d{6})?", text):
        return from_epoch_us(int(text.replace(".", "")) * (1 if "." in text else 10**6))
    return _named(text, reference)
