"""One line per verdict in the job's own record in accounting, where `sacct` shows it; opt-in.

Appended behind what is there, never over it. A comment that slurmctld itself holds overwrites ours at the end and again at a
requeue, so what was lately judged is read again, in one listing for all, and what is missing is appended once more.

sacctmgr stores no text to the letter: quotes become backquotes, and before 23.02 capitals become small. Where others wrote such
letters nothing is appended: the field is written as a whole, and their words would change.
"""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from datetime import timedelta

from probing_cluster.attribution.verdict import wording
from probing_cluster.control_plane import context
from probing_cluster.control_plane.owners import missing
from probing_cluster.core import digits, errors, records, sanitize

FIELDS = ("SystemComment", "AdminComment", "Comment")
_JUDGED_WITHIN = timedelta(minutes=1)
"""A verdict as young as this is new to several looks."""
_ENDED_WITHIN = timedelta(minutes=30)
"""How long after its end an attempt's line is looked after: slurmctld forgets a job MinJobAge (300 s) after its end."""
_MOST_AT_ONCE = 200
"""Lines written in one pass: each is a command."""
_LINE_CHARS = 300
_FIELD_CHARS = 4000
"""A field is no log: where others have written so much, nothing is appended."""
_MARK = "probing"
CAPITALS_FROM = (23, 2, 0)
"""The first release whose sacctmgr leaves capital letters as they are."""
_AGAIN_S = 300.0
_MOST_JOBS = 5000
_ENDED = """
select distinct job_id from probing.job_attempt
where cluster = :cluster and end_at >= :since and (state <> 'COMPLETED' or attempt > 1) order by job_id
"""
_JUDGED = """
select distinct job_id from probing.job_attempt
where cluster = :cluster and end_at >= :since - interval '1 hour' and judged_at >= :since order by job_id
"""


def run(service: context.Context) -> int:
    """One look; how many lines were written."""
    field = service.config.service.write_back
    if field not in FIELDS:
        raise errors.SettingsError(
            f"[service] write_back must be {', '.join(FIELDS)} or empty, not {field!r}"
        )
    return _look(service, field)


def line(verdict: records.Verdict) -> str:
    """`probing #1: gpu_lost (certain) n2 gpu3: …`, without the quotes and breaks that accounting changes.

    Accounting shows the field to other users, too. What happened is in the cause's own words: any summary may quote what the program printed.
    """
    where = " ".join(p for p in (verdict.node, verdict.device) if p)
    head = f"{_prefix(verdict)} {verdict.cause} ({verdict.confidence}){f' {where}' if where else ''}"
    happened = wording.of_cause(verdict)
    text = f"{head}: {happened}" if happened else head
    return sanitize.clean(text, _LINE_CHARS).translate(_UNQUOTED).strip()


_UNQUOTED = str.maketrans({"'": "", '"': "", "`": "", "|": "/", "\\": "/", ";": ","})


def _prefix(verdict: records.Verdict) -> str:
    return f"{_MARK} #{verdict.attempt}:"


def _look(service: context.Context, field: str) -> int:
    jobs = _jobs(service)[-_MOST_JOBS:]
    if not jobs:
        return 0
    by_job: dict[int, list[records.Verdict]] = {}
    for verdict in service.store.verdicts(job_ids=jobs):
        if verdict.cluster == service.config.cluster.name:
            by_job.setdefault(verdict.job_id, []).append(verdict)
    written = 0
    small = bool(by_job) and missing.release(service) < CAPITALS_FROM
    for job_id, text in (_read(service, field, sorted(by_job)) if by_job else {}).items():
        new = appended(text, by_job.get(job_id, ()), small=small)
        if new is not None and written < _MOST_AT_ONCE:
            _write(service, field, job_id, new)
            written += 1
    return written


def _jobs(service: context.Context) -> list[int]:
    """The jobs whose field may lack a line: just judged, or (every five minutes) with an end of any attempt lately."""
    now_s, now = service.clock.monotonic_s(), service.clock.now()
    everything = service.seldom("write_back_all", _AGAIN_S, lambda: now_s) == now_s
    since = now - (_ENDED_WITHIN if everything else _JUDGED_WITHIN)
    given = {"cluster": service.config.cluster.name, "since": since}
    return [row["job_id"] for row in service.store.rows(_ENDED if everything else _JUDGED, given)]


def appended(text: str, verdicts: Sequence[records.Verdict], *, small: bool = False) -> str | None:
    """The field with a line for each verdict behind it; None where nothing is missing, there is no room, or others' words would change.

    A line of ours about an attempt is replaced by that of a newer verdict on it; everything else stays as it is.
    `small`: sacctmgr stores no capital letters.
    """
    if _as_stored(text, small=small) != text:
        return None
    parts = text.split("; ") if text else []
    for verdict in sorted(verdicts, key=lambda v: (v.attempt, v.submit_at)):
        mine = _as_stored(line(verdict), small=small)
        at = [n for n, part in enumerate(parts) if part.startswith(_prefix(verdict))]
        if at:
            parts[at[0]] = mine
        else:
            parts.append(mine)
    new = "; ".join(parts)
    return new if new != text and len(new) <= _FIELD_CHARS else None


def _as_stored(text: str, *, small: bool) -> str:
    """What sacctmgr makes of a text."""
    return text.translate(_CAPITALS if small else {}).translate(_QUOTES)


_QUOTES = str.maketrans("'\"", "``")
_CAPITALS = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


def _read(service: context.Context, field: str, jobs: Sequence[int]) -> Mapping[int, str]:
    """The field of each job's latest submission, in one listing; the row of a job that is listed twice cannot be trusted."""
    output = service.run_slurm(
        "sacct",
        "-a",
        "-X",
        "-n",
        "-P",
        "--delimiter=\x1f",
        f"--jobs={','.join(map(str, jobs))}",
        f"--format=JobIDRaw,{field}",
    ).decode("utf-8", "replace")
    found: dict[int, str] = {}
    twice: set[int] = set()
    last = None
    for row in output.removesuffix("\n").split("\n"):
        name, delimiter, text = row.partition("\x1f")
        if delimiter and digits.is_number(name):
            last = int(name)
            twice |= {last} & found.keys()
            found[last] = text
        elif last is not None:
            twice.add(last)  # a comment of several lines: what is not read whole is not written over
    return {job_id: text for job_id, text in found.items() if job_id not in twice and "\x1f" not in text}


def _write(service: context.Context, field: str, job_id: int, text: str) -> None:
    cluster = service.config.cluster.name
    service.run_slurm(
        "sacctmgr",
        "-i",
        "modify",
        "job",
        "where",
        f"jobid={job_id}",
        f"cluster={cluster}",
        "set",
        f"{field}={text}",
    )
