"""Whole logs to findings: the engine behind `probing-ctl classify`, useful to anyone with a dmesg in hand."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

from probing_cluster.evidence import blocks
from probing_cluster.evidence.joblog import families, progress
from probing_cluster.evidence.joblog import reader as joblog
from probing_cluster.evidence.joblog.grammar import JobFinding
from probing_cluster.evidence.kernel import reader as kernel
from probing_cluster.evidence.kernel.grammar import KernelFinding

LogKind = Literal["kernel", "joblog"]
_LOOK_AT_LINES = 400
_LOOK_AT_BYTES = 2000
_KERNEL_TOO = frozenset({"kernel_xid", "host_oom_kill", "io_error"})
"""Kinds of job findings that a kernel log shows as well."""
_KERNEL_LINE = re.compile(
    rb"^\s*(?:<\d+>\s*)?\[\s*\+?\d+\.\d+\]|^\d+,\d+,\d+,|\bkernel:|^kern +:|^\[\w{3} \w{3} +\d+ |NVRM:|nvidia-nvswitch|SXid|_TRANSPORT|systemd\[\d+\]"
)
_JOB_LINE = re.compile(
    rb"Traceback|^\s*File \"|ProcessGroup|NCCL (?:INFO|WARN)|\[rank\d+\]|\[Rank \d+\]|slurmstepd:|srun:|torch|CUDA (?:error|out)|"
    rb"cudaError|iteration|epoch|Epoch|step[ =:]|loss|gloo|it/s|\w+Error:|DataLoader|Watchdog caught"
)


_SYSLOG_LINE = re.compile(
    rb"^(?:<\d{1,3}>\d? ?)?(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S{0,16}) [\w.-]{1,253} (?P<tag>[\w./@-]{1,64})(?:\[\d{1,10}\])?: "
)
"""A line of syslog or of a journal, and the program that wrote it."""


def kernel_json(line: int, finding: KernelFinding) -> dict[str, Any]:
    """A kernel finding as `classify` prints it."""
    return {
        "line": line,
        "kind": finding.kind,
        "code": finding.code,
        "severity": finding.severity.value,
        "pci_bus_id": finding.pci_bus_id,
        "device": finding.device,
        "pid": finding.pid,
        "process": finding.process,
        "domains": list(finding.domains),
        "meaning": finding.meaning,
        "next_step": finding.next_step,
    }


def joblog_json(finding: JobFinding) -> dict[str, Any]:
    """A job-log finding as `classify` prints it; pid and host only when the line names them."""
    record: dict[str, Any] = {
        "line": finding.line,
        "kind": finding.kind,
        "op": finding.op,
        "seq": finding.seq,
        "group": finding.group,
        "rank": finding.rank,
        "timeout_ms": finding.timeout_ms,
        "domains": list(finding.domains),
        "first_cause": finding.first_cause,
        "meaning": finding.meaning,
    }
    extra = {"pid": finding.pid, "host": finding.host}
    return record | {name: value for name, value in extra.items() if value is not None}


def detect(sample: Iterable[bytes]) -> LogKind:
    """The kind of log that the sampled lines look like; kernel if they do not decide it.

    Each line votes by its form. A finding that only a job log can have counts twice. Lines of a node's syslog count as kernel
    lines, whatever its daemons report. A journal of a single program may be the job's own.
    """
    sampled = [line[:_LOOK_AT_BYTES] for line in sample]
    of_syslog = [_SYSLOG_LINE.match(line) for line in sampled]
    of_node = len({found["tag"] for found in of_syslog if found}) > 1
    lines = [line for line, found in zip(sampled, of_syslog, strict=True) if not (found and of_node)]
    kernel_votes = len(sampled) - len(lines) + sum(_KERNEL_LINE.search(line) is not None for line in lines)
    job_votes = sum(_JOB_LINE.search(line) is not None for line in lines)
    job_findings = joblog.read(line.decode("utf-8", "replace") for line in lines)
    job_votes += 2 * sum(finding.kind not in _KERNEL_TOO for finding in job_findings)
    return "joblog" if job_votes > kernel_votes else "kernel"


def _none(first: int, last: int) -> Iterator[dict[str, Any]]:
    """The lines from `first` up to, not including, `last` as lines without a finding."""
    return ({"line": n, "kind": "none"} for n in range(first, last))


def _margin(batch: list[bytes]) -> bytes:
    """The blanks that every line begins with. A log pasted into a text is indented as a whole; these blanks do not mark continuations."""
    first = next((line for line in batch if line.strip()), b"")
    margin = first[: len(first) - len(first.lstrip(b" \t"))]
    n_others = sum(bool(line.strip()) for line in batch[:_LOOK_AT_LINES]) - 1 if margin else 0
    return margin if n_others > 0 and all(line.startswith(margin) for line in batch if line.strip()) else b""


def _kernel(batches: Iterator[list[bytes]], all_lines: bool) -> Iterator[dict[str, Any]]:
    reader, sieve = kernel.KernelReader(), blocks.TriggerSieve(kernel.TRIGGERS)
    start, margin = 1, None
    for batch in batches:
        margin = _margin(batch) if margin is None else margin
        done = start
        for index in sieve.hits(batch):
            found = reader.read_line(batch[index].removeprefix(margin).decode("utf-8", "replace"))
            if found is None:
                continue
            line = start + index
            if all_lines:
                yield from _none(done, line)
            yield kernel_json(line, found[1])
            done = line + 1
        start += len(batch)
        if all_lines:
            yield from _none(done, start)


def _job_findings(batches: Iterator[list[bytes]], counted: list[int]) -> Iterator[JobFinding]:
    """Findings in line order; `counted[0]` grows to the number of lines."""
    reader, sieve = joblog.JobLogReader(), blocks.TriggerSieve(families.TRIGGERS)
    for batch in batches:
        wanted = iter(sieve.hits(batch))
        index = next(wanted, None)
        position = 0
        while position < len(batch):
            if not reader.following(counted[0] + position + 1):
                until = len(batch) if index is None else index
                if until > position:
                    first = max(position, until - progress.LOOK_BACK_LINES)
                    reader.skipped(counted[0] + first + 1, batch[first:until])
                    position = until
                if index is None:
                    break
            yield from reader.feed(counted[0] + position + 1, batch[position].decode("utf-8", "replace"))
            position += 1
            while index is not None and index < position:
                index = next(wanted, None)
        counted[0] += len(batch)
    yield from reader.close()


def _joblog(batches: Iterator[list[bytes]], all_lines: bool) -> Iterator[dict[str, Any]]:
    counted, done = [0], 1
    for finding in _job_findings(batches, counted):
        if all_lines and finding.line > done:
            yield from _none(done, finding.line)
        done = max(done, finding.line + 1)
        yield joblog_json(finding)
    if all_lines:
        yield from _none(done, counted[0] + 1)


def classify_stream(
    lines: Iterable[bytes],
    kind: LogKind | None = None,
    all_lines: bool = False,
    found_out: Callable[[LogKind], object] | None = None,
) -> Iterator[dict[str, Any]]:
    """One JSON-ready dict per finding, in line order; with `all_lines` also `{"line": N, "kind": "none"}` for the rest.

    `lines` is any iterable of byte lines, or an open binary file (faster: read in blocks). `kind` None looks
    at the first lines, decides, and calls `found_out` with the result. Memory is constant whatever the input. Findings of a job log come when the
    first cause is settled: at the end, or after `joblog.MAX_HELD` of them.
    """
    batches = blocks.batches(lines)
    if kind is None:
        head = next(batches, [])
        kind = detect(head[:_LOOK_AT_LINES])
        if found_out is not None:
            found_out(kind)
        batches = itertools.chain([head], batches)
    return _kernel(batches, all_lines) if kind == "kernel" else _joblog(batches, all_lines)
