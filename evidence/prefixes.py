"""Removes the prefixes of loggers from a message, layer by layer.

A kernel line reaches us through any stack of these: /dev/kmsg records, dmesg in all its time formats,
`-x`, syslog (RFC 3164 and 5424), journald (short forms, JSON, export), container runtimes (CRI, docker),
pdsh and ansible host prefixes, grep file names, rsyslog's "message repeated". Each layer is one production
that consumes the start of the text; peeling stops when none fits. Nothing is guessed: a year-less date
gives an instant only when a reference is passed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from probing_cluster.core import digits, sanitize
from probing_cluster.evidence import dates, exported

MAX_LINE_CHARS = 16384
"""Longer lines are cut: the message that matters is at the front."""
_MAX_LAYERS = 12
_MAX_REPEAT = 10**9
_FACILITIES = ("kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp")  # fmt: skip
_LEVELS = ("emerg", "alert", "crit", "err", "warn", "notice", "info", "debug")
KERNEL_TAGS = frozenset({"kernel", "kern"})
KERNEL_FACILITY, _USER_FACILITY = 0, 1
_PROGRAMS = frozenset({
    "sudo", "su", "logger", "cron", "crond", "CRON", "CROND", "anacron", "sshd", "login", "bash", "sh", "python",
    "python3", "dockerd", "docker", "containerd", "podman", "crio", "kubelet", "slurmd", "slurmctld", "slurmdbd",
    "slurmstepd", "srun", "nv-hostengine", "dcgm", "dcgmi", "nvidia-smi", "audit", "auditd", "audispd", "systemd",
    "journald", "init", "systemd-journald", "systemd-logind", "rsyslogd", "syslogd", "polkitd", "dbus-daemon",
    "probing-agent", "probing-ctl", "ansible", "nhc",
})  # fmt: skip
"""Programs that log: in front of a colon they are the writer, not a host that pdsh asked."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PrefixedLine:
    """A message and the fields of its prefixes."""

    message: str
    at: datetime | None = None
    """UTC; None when the prefix gives no full date."""
    uptime_s: float | None = None
    """Seconds since boot, from dmesg's bracket or a kmsg record."""
    sequence: int | None = None
    """The kmsg sequence number."""
    host: str | None = None
    facility: int | None = None
    """Syslog facility; 0 is the kernel."""
    priority: int | None = None
    """Syslog level, 0 emergency … 7 debug."""
    tag: str | None = None
    """The program that logged it; "program" if only the form shows that a program did (klog, logfmt)."""
    stamped: bool = False
    """True once a date or the kernel's own time has come off: no host, file or pod stands behind that."""
    contained: bool = False
    """True once a container's runtime or a bare JSON record has come off: that alone is a program's output."""
    indented: bool = False
    """True for a line that begins with blanks and nothing else: dmesg and journalctl print the rest of a message so."""
    repeat: int = 1
    """How many times rsyslog says it came."""

    @property
    def is_kernel(self) -> bool | None:
        """Whether the kernel wrote it, by the prefix; None if the prefix does not show it.

        A facility and a tag must both be the kernel's: either alone can be chosen by a program.
        """
        if self.facility is not None and self.facility != KERNEL_FACILITY:
            return False
        if self.tag is not None:
            return self.tag in KERNEL_TAGS
        if self.facility is not None or self.uptime_s is not None:
            return True
        return False if self.contained else None


def plain(text: str) -> str:
    """`text` without terminal escape sequences and control characters that print nothing.

    A file that was cut while the job wrote on, or that lost blocks with its node, has NUL bytes there.
    """
    if not text.isprintable():
        text = _CONTROL.sub("", sanitize.without_sequences(text)).replace("\N{NO-BREAK SPACE}", " ")
    return _CARETS.sub("", text) if "^[[" in text else text


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.VERBOSE | re.ASCII)


_KMSG = _pattern(r"(?P<pri>\d{1,4}),(?P<seq>\d{1,20}),(?P<us>\d{1,20})(?:,[^;\s]{0,64})?;")
"""A record of /dev/kmsg; kernels before 3.6 write no flags behind the time."""
_PRI5424 = _pattern(
    r"\s{0,8}<(?P<pri>\d{1,3})>\s{0,2}1\ (?P<iso>\S+)\ (?P<host>\S+)\ (?P<tag>\S+)\ \S+\ \S+\ (?:-|(?:\[(?:[^\]\\]|\\.){0,2000}\])+)(?:\ |$)(?:\ufeff)?"
)
_PRI = _pattern(r"\s*<(?P<pri>\d{1,3})>")
_DMESG_X = _pattern(
    r"(?P<fac>kern|user|mail|daemon|auth|syslog|lpr|news|uucp|cron|authpriv|ftp|local\d)\s*:\s{0,8}(?P<lev>emerg|alert|crit|err|warn(?=ing|\b)|notice|info|debug)(?:ing)?\s*:\s?"
)
_UPTIME = _pattern(
    r"\s*\[\s*\+?(?P<up>\d{1,12}(?:\.\d{1,9})?)(?:@\d{1,4})?\](?:\s*\[\s*[TC]\d{1,9}(?:@\d+)?\])?:?[ ]{0,2}"
)
_ELIDED = _pattern(r"\s*\[\s*(?:\.{2,6}|…|[xX]{2,12}\.[xX]{2,12}|[TC]\d{1,9})\s*\][ ]{1,2}")
"""Times that were blanked out or, up to the task or CPU behind them, cut off before a log was published."""
_STAMP = _pattern(r"\s*\[(?P<when>[^\s\]\[][^\]\[]{7,40}[\dZ])\]:?[ ]?")
_HUMAN = _pattern(
    r"\s*\[[A-Z][a-z]{2}[ ]{0,2}\d{1,2}\ \d\d:\d\d\][ ]?|\[\d\d:\d\d:\d\d\]\[(?P<host>[a-z][\w.-]{0,62}\d)\][ ]?"
)
"""`dmesg -H` gives the first line of each minute its date without a year, the others how much later they came; a Cray's console the clock and the node."""
_CRI = _pattern(r"(?P<iso>\d{4}-\d\d-\d\dT\S{8,24})\ (?:stdout|stderr)\ [FP]\ ")
_KLOG = _pattern(r"[IWEF]\d{4}\ \d\d:\d\d:\d\d\.\d+\s+\d+\ \S+:\d+\]\ ")
_HOST_TAG = _pattern(
    r"\s*(?:(?!kernel:)(?:[\w.-]{1,64}@)?(?P<host>[A-Za-z0-9_][\w.-]{0,253})\s+)?(?:(?:EMERG|ALERT|CRIT|ERR|WARNING|NOTICE|INFO|DEBUG)\s+)?(?P<tag>kernel|[A-Za-z_][\w./@-]{0,63})(?:\[(?P<pid>\d{1,18})\])?(?::(?:\s|$)|\ -\ -\ -\ )"
)
"""The colon of the old syslog form, or the three empty fields that rsyslog's RFC 5424 leaves when it writes a file."""
_KERNEL = _pattern(
    r"\s*(?:kern\.(?:emerg|alert|crit|err|warn|warning|notice|info|debug)\s+)?(?:(?:(?P<host>-?[A-Za-z0-9_][\w.-]{0,253})|<[A-Za-z][\w\ -]{0,40}>|\*{2,12})\s+)?(?P<tag>kernel)(?:\[0+\])?:\s?"
)
_PEER = _pattern(
    r"(?:(?!mmfs\w*:|[\w.]{1,200}(?:Error|Exception|Interrupt|Warning):)(?P<host>[A-Za-z0-9_][\w.-]{0,253}):(?:\s+|(?=\[\s*(?:\d{1,9}\.\d|[A-Z][a-z]{2}\s)))|(?P<pipe>[A-Za-z0-9_][\w.-]{0,253})(?:\s*\||>|\t)\s*|\[(?P<boxed>[A-Za-z_][\w.-]{0,63})\]\s{1,2}(?=\[\s*\d)|\[(?:pod|container)/[^\]\s]{1,300}\]\s)(?=\[\s*[\dA-Z]|<\d|\{\"|\d{4}-\d\d-\d\d|kern(?:el)?\s*:|NVRM:|nvidia-nvswitch|mlx5_core\s|ERROR:\ nhc:|(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun|Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\s)"
)
_HEADER = re.compile(
    r"(?:X-)?[A-Z][a-z]+(?:-[A-Za-z]+){0,4}|(?i:subject|title|re|fwd?|note|message|comment|description|summary|text|body|example|quote|stdout|stderr|output|log|reason|cause|error|warning|info)"
)
"""A mail's header or another word that announces a text: no host that pdsh asked is called so."""
_OPENS = r"(?=\[\s{0,7}\d{1,9}\.\d{6}\]|\[?[A-Z][a-z]{2}\ (?:[A-Z][a-z]{2}\ )?[ \d]\d\ \d\d:\d\d:|\d{4}-\d\d-\d\d[T\ ]\d\d:|<\d{1,3}>|\d{1,3},\d{1,20},\d{1,20},)"
"""The beginning of a whole line of a kernel log: the kernel's own time, a date, a priority."""
_OPENING = re.compile(_OPENS)
_FILE = _pattern(
    r"(?:/[\w./+-]{1,200}|(?:messages|syslog|kern\.log|dmesg)[\w.-]{0,60}):(?:\d{1,12}[:-])?"
    rf"|(?:[\w./+@-]{{0,200}}/)?(?:messages|syslog|kern\.log|dmesg)[\w.-]{{0,60}}(?:[:-]\d{{1,12}})?[:-]{_OPENS}"
    rf"|[\w./+@-]{{1,200}}\.(?:log|txt)(?:\.\d{{1,3}})?(?:[:-]\d{{1,12}})?[:-]{_OPENS}"
    rf"|\s{{0,8}}(?:\d{{1,9}}(?:[:-]|\s{{1,4}})|[-*•]\ {{1,3}}|(?P<bold>\*\*)){_OPENS}"
)
"""Prefixes of `grep` (-r, -n, -C) and `cat -n`: the file and the line number; a list's bullets; Markdown's bold type."""
_REPEATED = _pattern(r"message\ repeated\ (?P<n>\d{1,9})\ times?:\s*\[\s?(?P<inner>.*?)\]?$")
_FIELD = _pattern(r"MESSAGE=")
_RELAY = _pattern(
    r"ERROR:\ nhc:\ Health\ check\ failed:\ {1,2}\w{1,64}:\ [^\[\]]{1,80}\ detected:\ (?=\[\s*\d)"
    r"|\[gpu-health\]\ \[[A-Z]{4,8}\]\ GPU-[\w-]{1,64}:\ XID:\ (?=NVRM:)"
)
"""Health checkers whose whole message is a forwarded kernel line."""
_LEVELLED = _pattern(r"\s+(?P<host>[A-Za-z0-9_][\w.-]{0,253})\s+!\s{1,8}[A-Z]{2,8}\s\|\s")
_SELECTOR = _pattern(
    rf"\s+(?:(?P<host>[A-Za-z0-9_][\w.-]{{0,253}})\s+)?(?P<fac>{'|'.join(_FACILITIES)}|local\d)\.(?P<lev>{'|'.join(_LEVELS)})(?:or|ing)?(?=\s+[\w./@-]{{1,64}}(?:\[\d{{1,18}}\])?:)"
)
"""busybox and other syslogs write facility.level between the date, perhaps the host, and the tag."""
_GPFS = _pattern(r"\d{4}-\d\d-\d\d_[\d:.+-]{8,24}:\ (?=\[[EWXIN]\]\ )")
"""The log of the GPFS daemon: no other writes its date so."""
_DROPPED = _pattern(r"(?:\*\*\ )?\d{1,20}\ printk\ messages\ dropped\ \*\*\ {1,2}(?=\[\s*\d)")
"""A console that dropped messages reports that before the next one."""
_FORWARDED = _pattern(r"\s+[A-Za-z0-9_][\w.:-]{0,253}\s+(?=[A-Z][a-z]{2}\ [\ \d]\d\ |\d{4}-\d\d-\d\d[T\ ])")
"""A log host that puts its own date and name in front of the whole line."""
_DMESG_ISO = re.compile(r"\s*\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d,\d")
"""Only `dmesg --time-format iso` writes the fraction behind a comma; neither host nor tag follows."""
_LOGFMT = _pattern(
    r"(?:time|ts|level|lvl)=\S{1,80}\ .{0,200}?\b(?:msg|message)=\"(?P<inner>(?:[^\"\\]|\\.)*)\""
)
_CONTROL = re.compile(r"[\x00-\x07\x0b\x0c\x0e-\x1f\x7f]+")
"""Not the tab, nor what overwrites a line: the carriage return and the backspace."""
_CARETS = re.compile(r"\^\[\[[0-9;]{0,16}m|\^M$")
"""Colours, and the end of a line, as `less` and `cat -v` show them: a log that was copied from there."""
_HEX = re.compile(r"\\x([0-9a-f]{2})")


def _priority(line: PrefixedLine, value: str, rest: str) -> PrefixedLine:
    number = int(value)
    return replace(line, facility=number >> 3, priority=number & 7, message=rest)


def _kmsg(line: PrefixedLine, text: str) -> PrefixedLine | None:
    if not (found := _KMSG.match(text)):
        return None
    rest = (
        _HEX.sub(lambda m: chr(int(m[1], 16)), text[found.end() :]) if "\\x" in text else text[found.end() :]
    )
    line = _priority(line, found["pri"], rest)
    return replace(line, sequence=int(found["seq"]), uptime_s=int(found["us"]) / 1e6, stamped=True)


def _syslog_priority(line: PrefixedLine, text: str) -> PrefixedLine | None:
    if found := _PRI5424.match(text):
        line = _priority(line, found["pri"], text[found.end() :])
        host = None if found["host"] == "-" else found["host"]
        return replace(line, at=dates.iso(found["iso"]) or line.at, host=host, tag=found["tag"], stamped=True)
    if found := _PRI.match(text):
        return _priority(line, found["pri"], text[found.end() :])
    return None


def _dmesg(line: PrefixedLine, text: str) -> PrefixedLine | None:
    if found := _UPTIME.match(text):
        return replace(line, uptime_s=float(found["up"]), message=text[found.end() :], stamped=True)
    if (found := _STAMP.match(text)) and dates.looks_like(found["when"]):
        at = dates.parse(found["when"], None) or line.at
        return replace(line, at=at, message=text[found.end() :], stamped=True, contained=False)
    if found := _HUMAN.match(text) or _ELIDED.match(text):
        host = found.groupdict().get("host") or line.host
        return replace(line, host=host, message=text[found.end() :], stamped=True)
    return None


def _level(line: PrefixedLine, text: str) -> PrefixedLine | None:
    if not (found := _DMESG_X.match(text)):
        return None
    return replace(_graded(line, found), message=text[found.end() :])


def _graded(line: PrefixedLine, found: re.Match[str]) -> PrefixedLine:
    """The facility and level that are spelled out."""
    name = found["fac"]
    facility = 16 + int(name[5]) if name.startswith("local") else _FACILITIES.index(name)
    return replace(line, facility=facility, priority=_LEVELS.index(found["lev"]))


def _dated(line: PrefixedLine, text: str, reference: datetime | None) -> PrefixedLine | None:
    """A date, then (syslog) perhaps a host and a tag."""
    if found := _CRI.match(text):
        at = dates.iso(found["iso"]) or line.at
        return replace(line, at=at, message=text[found.end() :], stamped=True, contained=True)
    if not line.stamped and line.tag is None and (found := _GPFS.match(text)):
        at = dates.iso(found[0]) or line.at
        return replace(line, at=at, tag="mmfs", message=text[found.end() :], stamped=True)
    if (length := dates.match_length(text)) == 0:
        return None
    at = dates.parse(text[:length], reference) or line.at
    line, rest = replace(line, at=at, message=text[length:].lstrip(" "), stamped=True), text[length:]
    if _DMESG_ISO.match(text):
        return line
    if selected := _SELECTOR.match(rest):
        line, rest = (
            replace(_graded(line, selected), host=selected["host"] or line.host),
            rest[selected.end() :],
        )
    if found := _LEVELLED.match(rest):
        return replace(line, host=found["host"], message=rest[found.end() :])
    if (found := _FORWARDED.match(rest)) and dates.match_length(rest[found.end() :]):
        return replace(line, message=rest[found.end() :])
    if found := _HOST_TAG.match(rest):
        if found["host"] is None and found["tag"] not in KERNEL_TAGS and not selected:
            return line
        # The kernel has no process: `logger -i -t kernel` has one.
        tag = "program" if (found["pid"] or "").strip("0") and found["tag"] in KERNEL_TAGS else found["tag"]
        line = replace(line, host=found["host"] or line.host, tag=tag, message=rest[found.end() :])
    return line


def _repeated(line: PrefixedLine) -> PrefixedLine | None:
    if not (found := _REPEATED.match(line.message.rstrip())):
        return None
    repeat = min(line.repeat * max(int(found["n"]), 1), _MAX_REPEAT)
    return replace(line, repeat=repeat, message=found["inner"])


def _wrapped(line: PrefixedLine, text: str) -> PrefixedLine | None:
    """Names of hosts, pods, files and programs that only tell the origin of the text."""
    if found := _KERNEL.match(text):
        return replace(line, host=found["host"] or line.host, tag="kernel", message=text[found.end() :])
    if repeated := _repeated(line):
        return repeated
    if found := _LOGFMT.match(text):
        return replace(line, tag="program", message=found["inner"].replace('\\"', '"'))
    if found := _KLOG.match(text):
        return replace(line, tag="program", message=text[found.end() :])
    if not line.stamped and (found := _PEER.match(text)):
        if found["host"] in _PROGRAMS or _HEADER.fullmatch(found["host"] or ""):
            return replace(line, tag=found["host"], message=text[found.end() :])
        return replace(
            line,
            host=found["host"] or found["pipe"] or found["boxed"] or line.host,
            message=text[found.end() :],
        )
    for pattern in () if line.stamped else (_FIELD, _FILE, _RELAY, _DROPPED):
        found = pattern.match(text)
        if found and (not line.contained or _OPENING.match(text, found.end())):
            bold = "**" if "bold" in found.groupdict() and found["bold"] else ""
            return replace(
                line, message=text[found.end() :].rstrip().removesuffix(bold) if bold else text[found.end() :]
            )
    return None


def _number(fields: dict[str, Any], *names: str) -> int | None:
    for name in names:
        value = str(fields.get(name, ""))
        if digits.is_number(value) and len(value) < 20:
            return int(value)
    return None


_TAG_FIELDS = (
    "SYSLOG_IDENTIFIER",
    "programname",
    "syslogtag",
    "appname",
    "app-name",
    "ident",
    "program",
    "_COMM",
)
"""Where journald, rsyslog's JSON templates and fluentd name the program."""


def _json(line: PrefixedLine, text: str) -> PrefixedLine | None:
    """journald -o json, docker json-file, fluentd and friends."""
    if (fields := exported.json_fields(text)) is None:
        return None
    for key in ("MESSAGE", "log", "message", "msg", "MSG", "textPayload"):
        if (message := exported.as_text(fields.get(key))) is not None:
            break
    else:
        return None
    facility = _number(fields, "SYSLOG_FACILITY")
    if fields.get("_TRANSPORT") == "kernel":
        facility = facility or KERNEL_FACILITY
    elif "_TRANSPORT" in fields or "_PID" in fields:
        facility = facility or _USER_FACILITY
    at = line.at
    if (micro := _number(fields, "_SOURCE_REALTIME_TIMESTAMP", "__REALTIME_TIMESTAMP")) is not None:
        at = dates.from_epoch_us(micro) or at
    elif isinstance(
        stamp := next((fields[name] for name in ("time", "timestamp", "@timestamp") if name in fields), None),
        str,
    ):
        at = dates.iso(stamp) or at
    uptime = _number(fields, "_SOURCE_MONOTONIC_TIMESTAMP")
    host, tag = fields.get("_HOSTNAME"), next((fields[name] for name in _TAG_FIELDS if name in fields), None)
    return replace(
        line,
        message=plain(message).rstrip("\n"),
        at=at,
        contained=True,
        uptime_s=uptime / 1e6 if uptime is not None else line.uptime_s,
        host=host if isinstance(host, str) else line.host,
        tag=tag.rstrip(":") if isinstance(tag, str) else line.tag,
        facility=facility if facility is not None else line.facility,
        priority=_number(fields, "PRIORITY") if "PRIORITY" in fields else line.priority,
    )


def _row(line: PrefixedLine, text: str, reference: datetime | None) -> PrefixedLine | None:
    """A row of a table that a log store exports."""
    row = None if line.stamped or line.tag is not None else exported.kernel_row(text)
    return row and replace(
        line, at=dates.parse(row[0], reference), tag="kernel", message=row[1], stamped=True
    )


def _peel(line: PrefixedLine, reference: datetime | None) -> PrefixedLine | None:
    """One layer less, or None when the text starts with the message itself."""
    text = line.message
    first = text.lstrip(" \t")[:1]
    if first == "{" and not line.is_kernel and (peeled := _json(line, text)):
        return peeled
    if first == "<" and (peeled := _syslog_priority(line, text)):
        return peeled
    if first == "[" and (peeled := _dmesg(line, text)):
        return peeled
    if "0" <= first <= "9" and (peeled := _kmsg(line, text)):
        return peeled
    if peeled := _row(line, text, reference):
        return peeled
    return _level(line, text) or _dated(line, text, reference) or _wrapped(line, text)


def parse(text: str, reference: datetime | None = None) -> PrefixedLine:
    """The message of `text` without its prefixes, and what they said.

    `reference` (UTC) is what a year-less date is placed against: the latest year that does not put it
    more than a day after it.
    """
    text = plain(text.lstrip("\x00")[:MAX_LINE_CHARS].rstrip("\r\n"))
    line = PrefixedLine(message=text)
    for _ in range(_MAX_LAYERS):
        if line.tag is not None and line.tag not in KERNEL_TAGS:
            return _repeated(line) or line
        peeled = _peel(line, reference)
        if peeled is None or len(peeled.message) >= len(line.message):
            break
        line = peeled
    if line.message is text and text[:2].isspace():
        return replace(line, indented=True)
    return line


def boot_time(line: PrefixedLine, boot_at: datetime) -> datetime | None:
    """The time of the line, from its uptime and the node's boot instant."""
    if line.uptime_s is None:
        return None
    return (boot_at + timedelta(seconds=line.uptime_s)).astimezone(UTC)
