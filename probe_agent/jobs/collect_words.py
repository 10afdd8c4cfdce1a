"""Findings in a job's logs and dumps, by evidence.joblog and evidence.flight_recorder; used in the collecting child only."""

from __future__ import annotations

import dataclasses
import time
from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from probing_cluster.core import errors, sanitize, vocabulary
from probing_cluster.evidence import utf16
from probing_cluster.evidence.flight_recorder import digest, flight_verdict, load, model, verdict
from probing_cluster.evidence.joblog import appended, grammar, reader, standstill
from probing_cluster.evidence.joblog.messages import slurm
from probing_cluster.probe_agent.jobs import log_parts

MAX_SAME = 100
"""Consecutive equal lines that are judged. Further ones add nothing, and a hundred thousand of them would take a minute."""
MAX_FINDINGS = 200
"""Findings of one log that are kept: the first half of them and the last."""
_SAME_CHARS = 60
READ_S = 15.0
"""Longest that the lines of one log are judged, half of collect.DEADLINE_S. A core judges about 4 MiB of distinct errors in it."""

READ_ABOVE_S = 5.0
"""Longest that the part with the last errors above a log's end is judged, where the end itself took READ_S and showed none."""


@dataclasses.dataclass(kw_only=True)
class LogWords:
    """What was found in one log."""

    findings: list[dict[str, Any]]
    """Each with its line's byte `offset`."""
    goes_on: bool
    """The log has training steps, and they do not stop before the job's end."""
    n_unread_bytes: int
    """Bytes of the parts that were left out because the time was over."""


class ReadingTime:
    """The time for judging one log's lines; it begins when the object is made."""

    def __init__(self, budget_s: float = READ_S, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._end_s = now_s() + budget_s

    def left_s(self) -> float:
        """Seconds that are left; negative when it is over."""
        return self._end_s - self._now_s()


def log_findings(data: bytes, start: int) -> list[dict[str, Any]]:
    """The findings of a log's tail that begins at byte `start` of the file."""
    return read_log([log_parts.LogPart(start, data, is_first=not start)]).findings


def read_log(
    parts: Sequence[log_parts.LogPart],
    began: datetime | None = None,
    span: tuple[datetime, datetime] | None = None,
    head: bytes = b"",
    job_ids: Collection[int] = (),
    reading: ReadingTime | None = None,
) -> LogWords:
    """Judge the parts of a log, the last of which is its end.

    Times are aware. `began`: start of an attempt that an earlier one of the same job preceded; what the earlier one wrote into the
    file is left out.
    `span`: start and end of an attempt that has ended. Only then a standstill until the end is reported; accounting knows
    whether the job was ended from outside. `head`: the beginning of a long log. `job_ids`: the job's own ids; lines of Slurm
    about other jobs are left out. Where the time of `reading` does not suffice, the middle is left out first.
    """
    own = appended.AppendedLog(span[0] if span is not None else began, None)
    engine, others = reader.JobLogReader(), slurm.OtherJobs(job_ids)
    encoding = parts[-1].encoding
    # Most jobs print until their end. Looking at the last lines is cheap; parsing the time of each line costs as much as judging it.
    last = standstill.LogSteps(None, is_sure=False)
    backwards = (utf16.text(raw, encoding).encode() for raw in log_parts.lines_backwards(parts[-1].data))
    dated = span is not None and last.may_stand(backwards, span[1])
    steps = standstill.LogSteps(None, is_sure=False)
    for raw in head.split(b"\n")[:-1]:
        steps.feed_head(utf16.text(raw, encoding))
    ended: datetime | None = None
    offsets = array("Q")
    found: list[grammar.JobFinding] = []
    before, same = b"", 0
    lines = _TimedLines(parts, reading or ReadingTime())
    for number, (at, raw, is_whole) in enumerate(lines, 1):
        offsets.append(at)
        before, same = raw, same + 1 if raw == before else 0
        if same > MAX_SAME and is_whole:
            continue
        text = utf16.text(raw, encoding).rstrip("\r")
        cancelled_at = slurm.cancelled_at(text)
        at_end = None if cancelled_at is None else _instant(cancelled_at, began, span)
        of_another = at_end is not None and began is not None and at_end <= began
        if of_another or own.begins(text):
            found, engine, ended = [], reader.JobLogReader(), None
            steps = standstill.LogSteps(None, is_sure=False)
        if of_another or others.wrote(text):
            continue
        found += engine.feed(number, text)
        if dated:
            steps.feed(number, f"{text}\n" if is_whole else text)
            ended = at_end or ended
    found += engine.close()
    kept = _both_ends(found)
    rows = [_row(f, parts, offsets, left_out=len(found) - len(kept)) for f in kept]
    # If the end was not read, the steps may have gone on there.
    is_judged = dated and not lines.is_cut_short
    stood = _stood(steps, found, span, ended) if is_judged and span is not None else None
    if stood is not None:
        rows.append({**stood, "offset": offsets[stood["detail"]["line"] - 1]})
    elif span is not None and (step := last.last_step(*span)) is not None:
        rows.append({**_progress(step), "offset": parts[-1].start + len(parts[-1].data)})
    return LogWords(
        findings=rows, goes_on=last.has_steps and stood is None, n_unread_bytes=lines.n_unread_bytes
    )


def error_line(found: Sequence[Mapping[str, Any]], parts: Sequence[log_parts.LogPart]) -> tuple[str, str]:
    """The line of the first cause, without secrets, and its place in the file; empty without one, or where it is Slurm's word on how it ended the job."""
    first = next((f for f in found if f.get("detail", {}).get("first_cause") is True), None)
    if first is None or first["detail"].get("role") == "end":
        return "", ""
    raw = utf16.text(log_parts.line_at(parts, first["offset"]), parts[-1].encoding)
    # A progress bar and the error behind it may be one line.
    lines = [line for line in sanitize.without_secrets(raw).splitlines() if line.strip()]
    words = first["message"][:_SAME_CHARS]
    line = next((line for line in lines if words in sanitize.clean(line)), lines[-1] if lines else "")
    at_byte = first["detail"].get("at_byte")
    return line, f"line {first['detail'].get('line')}" if at_byte is None else f"byte {at_byte}"


class _TimedLines:
    """The lines of a log, within a time.

    When half of the time is over, as many lines are skipped as the other half will not suffice for. So both the beginning of the
    errors and the end are read, which usually shows the failure. When all of it is over, no more lines come.
    """

    def __init__(self, parts: Sequence[log_parts.LogPart], reading: ReadingTime) -> None:
        self._lines = log_parts.LogLines(parts)
        self._begin = parts[0].start
        self._reading = reading
        self.n_unread_bytes = 0
        self.is_cut_short = False
        """The time was over before the end."""

    def __iter__(self) -> Iterator[tuple[int, bytes, bool]]:
        half_s, is_halved = self._reading.left_s() / 2, False
        for at, raw, is_whole in self._lines:
            left_s = self._reading.left_s()
            if left_s < 0:
                self.is_cut_short = True
                self.n_unread_bytes += self._lines.n_bytes(at, self._lines.end)
                return
            if left_s < half_s and not is_halved:
                is_halved = True
                if self._skip(at):
                    continue
            yield at, raw, is_whole

    def _skip(self, at: int) -> bool:
        """Skip what the second half of the time will not suffice for, at 3/4 of the first half's pace; False where it suffices."""
        goes_on_at = self._lines.end - self._lines.n_bytes(self._begin, at) * 3 // 4
        if goes_on_at <= at:
            return False
        self.n_unread_bytes += self._lines.n_bytes(at, goes_on_at)
        self._lines.skip_to(goes_on_at)
        return True


def _instant(local: datetime, began: datetime | None, span: tuple[datetime, datetime] | None) -> datetime:
    """The instant of a local time in Slurm's message about a job's end.

    In the hour that the end of daylight saving repeats it has two instants. The message is of this attempt's end, or of the
    end of one before it: the instant is that which is nearer to either.
    """
    first, second = sorted(local.replace(fold=fold).astimezone(UTC) for fold in (0, 1))
    start_at, end_at = (began or (span[0] if span else None)), (span[1] if span else None)

    def distance(at: datetime) -> timedelta:
        edges = [
            start_at - at if start_at is not None and at <= start_at else None,
            abs(end_at - at) if end_at is not None and (start_at is None or at > start_at) else None,
        ]
        return min((edge for edge in edges if edge is not None), default=timedelta.max)

    return min((first, second), key=distance)


def _stood(
    steps: standstill.LogSteps,
    found: list[grammar.JobFinding],
    span: tuple[datetime, datetime],
    ended: datetime | None,
) -> dict[str, Any] | None:
    """The finding that the log's steps stopped long before the end: that of Slurm's message (`ended`), else of the node's release."""
    start_at, end_at = span
    if ended is not None:
        end_at = max(start_at, min(end_at, ended))
    stood = steps.standstill(start_at, end_at, found)
    if stood is None:
        return None
    over_at = stood.error_at or end_at
    return {
        "kind": vocabulary.LOG_STALL,
        "message": stood.words,
        "at_s": over_at.timestamp(),
        "measured": (over_at - stood.last_at).total_seconds(),
        "unit": "s",
        "detail": stood.detail,
    }


def _progress(step: standstill.LastStep) -> dict[str, Any]:
    """The finding that the log's steps go on until about the job's end."""
    return {
        "kind": vocabulary.LOG_PROGRESS,
        "message": f"progress until: {step.text.strip()}",
        "at_s": step.at.timestamp(),
        "measured": step.gap_s,
        "unit": "s",
        "detail": {},
    }


def _both_ends(found: list[grammar.JobFinding]) -> list[grammar.JobFinding]:
    if len(found) <= MAX_FINDINGS:
        return found
    middle = [f for f in found[MAX_FINDINGS // 2 : -MAX_FINDINGS // 2] if f.first_cause]
    return [*found[: MAX_FINDINGS // 2], *middle, *found[-MAX_FINDINGS // 2 :]]


def _row(
    found: grammar.JobFinding, parts: Sequence[log_parts.LogPart], offsets: Sequence[int], *, left_out: int
) -> dict[str, Any]:
    offset = offsets[found.line - 1] if 0 < found.line <= len(offsets) else parts[0].start
    fields = {f.name: getattr(found, f.name) for f in dataclasses.fields(found)}
    detail = {
        **fields.pop("detail"),
        **{k: v for k, v in fields.items() if k not in {"kind", "message", "role"}},
    }
    detail["role"] = found.role.name.lower()
    if left_out:
        detail["findings_left_out"] = left_out
    if parts[0].start or offset >= len(parts[0].data):
        # Lines were counted from where reading began, without those of a gap.
        detail["at_byte"] = offset
    return {
        "offset": offset,
        "kind": found.kind,
        "message": found.message,
        "pid": found.pid,
        "detail": {k: v for k, v in detail.items() if v not in (None, "", ())},
    }


def dump_findings(dumps: Mapping[str, bytes]) -> list[dict[str, Any]]:
    """One digest per rank's dump, and a verdict where the dumps of all ranks are here.

    Dumps of one node prove nothing about a job on several. The digests carry what a verdict over all nodes needs.
    """
    parsed: list[model.RankDump] = []
    refused: dict[str, str] = {}
    for name, data in dumps.items():
        rank = load.rank_of(name)
        try:
            parsed.append(model.parse(rank if rank is not None else 0, data))
        except errors.MalformedInput as exc:
            refused[name] = str(exc)
    rows = [_digest(d) for d in parsed]
    if parsed and _complete(parsed):
        rows.append(_verdict(verdict.judge(parsed)))
    rows += [
        {"kind": "dump", "message": f"{n}: {why}", "detail": {"refused": True}} for n, why in refused.items()
    ]
    return rows


def _complete(parsed: list[model.RankDump]) -> bool:
    """True when every rank that any dump names as a member left a dump here."""
    named = {r for d in parsed for members in d.members.values() for r in members}
    return bool(named) and named <= {d.rank for d in parsed}


def _digest(dump: model.RankDump) -> dict[str, Any]:
    detail = digest.make(dump)
    message = (
        f"rank {dump.rank} left a flight-recorder dump: {len(detail['outstanding'])} operations outstanding"
    )
    return {"kind": "dump", "message": message, "detail": detail}


def _verdict(found: flight_verdict.FlightVerdict) -> dict[str, Any]:
    detail = {k: v for k, v in dataclasses.asdict(found).items() if v not in (None, "", ())}
    detail.pop("kind")
    return {"kind": found.kind, "message": detail.pop("meaning"), "detail": detail}
