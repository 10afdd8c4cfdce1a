"""Whole logs to findings: the engine behind `probing-ctl classify`, useful to anyone with a dmesg in hand."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

from probing_cluster.evidence import blocks, quoted_lines, sifted
from probing_cluster.evidence.joblog import reader as joblog
from probing_cluster.evidence.joblog.grammar import JobFinding
from probing_cluster.evidence.kernel import reader as kernel
from probing_cluster.evidence.kernel.grammar import KernelFinding

LogKind = Literal["kernel", "joblog"]
_LOOK_AT_LINES = 400
_FENCE = "```"
"""Opens and closes a quotation on a page, or a log that was pasted into it; a kernel log has none."""
_LEAST_PASTED = 2
"""So many lines of a kernel log between fences are one; a page quotes a single line."""
_LOOK_AT_BYTES = 2000
_SURE_FRAC = 0.5
"""Of a kernel log at least so many lines have its form."""
_MOST_HELD = 4096
"""Findings of a job log without any of a kernel log that decide what it is."""
_KERNEL_TOO = frozenset({"kernel_xid", "kernel_bad_page", "host_oom_kill", "io_error"})
"""Kinds of job findings that a kernel log shows as well."""
_KERNEL_LINE = re.compile(
    rb"^\s*(?:<\d+>\s*)?\[\s*\+?\d+\.\d+\]|^\d+,\d+,\d+,|\bkernel:|^kern +:|^\[\w{3} \w{3} +\d+ |NVRM:|nvidia-nvswitch|SXid|_TRANSPORT|systemd\[\d+\]"
)
_JOB_LINE = re.compile(
    rb"Traceback|^\s*File \"|ProcessGroup|NCCL (?:INFO|WARN)|\[rank\d+\]|\[Rank \d+\]|slurmstepd:|srun:|torch|CUDA (?:error|out)|"
    rb"cudaError|iteration|epoch|Epoch|step[ =:]|loss|gloo|it/s|\wError:|DataLoader|Watchdog caught"
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
    kernel_votes, job_votes = _votes([line[:_LOOK_AT_BYTES] for line in sample])
    return "joblog" if job_votes > kernel_votes else "kernel"


def _votes(sampled: list[bytes]) -> tuple[int, int]:
    """Votes for a kernel log and for a job log."""
    of_syslog = [_SYSLOG_LINE.match(line) for line in sampled]
    of_node = len({found["tag"] for found in of_syslog if found}) > 1
    lines = [line for line, found in zip(sampled, of_syslog, strict=True) if not (found and of_node)]
    kernel_votes = len(sampled) - len(lines) + sum(_KERNEL_LINE.search(line) is not None for line in lines)
    job_votes = sum(_JOB_LINE.search(line) is not None for line in lines)
    job_findings = joblog.read(line.decode("utf-8", "replace") for line in lines)
    job_votes += 2 * sum(finding.kind not in _KERNEL_TOO for finding in job_findings)
    return kernel_votes, job_votes


def _n_kernel_lines(sample: Iterable[bytes]) -> tuple[int, bool]:
    """How many lines have a kernel log's form, and whether that is too few to be sure: then most have the form of neither."""
    lines = [line[:_LOOK_AT_BYTES] for line in sample if line.strip()]
    n_kernel = _votes(lines)[0]
    return n_kernel, n_kernel <= len(lines) * _SURE_FRAC


def _none(first: int, last: int) -> Iterator[dict[str, Any]]:
    """The lines from `first` up to, not including, `last` as lines without a finding."""
    return ({"line": n, "kind": "none"} for n in range(first, last))


def _margin(batch: list[bytes]) -> bytes:
    """The blanks, or a mail's mark of a quotation, that every line begins with. They do not mark continuations of messages."""
    first = next((line for line in batch if line.strip()), b"")
    margin = first[: len(first) - len(first.lstrip(b" \t"))] or (b"> " if first.startswith(b"> ") else b"")
    n_others = sum(bool(line.strip()) for line in batch[:_LOOK_AT_LINES]) - 1 if margin else 0
    return margin if n_others > 0 and all(line.startswith(margin) for line in batch if line.strip()) else b""


def _is_quotation(batch: list[bytes], at: int, margin: bytes) -> bool:
    """Whether a fence, the line `at`, quotes; one that does not close is a mark of something else."""
    fence, lines = margin + _FENCE.encode(), batch[at + 1 :]
    above = [
        line[:_LOOK_AT_BYTES].decode("utf-8", "replace")
        for line in batch[max(at - quoted_lines.SENTENCE_LINES, 0) : at]
    ]
    block = list(itertools.takewhile(lambda line: not line.startswith(fence), lines[:_LOOK_AT_LINES]))
    n_kernel = sum(_KERNEL_LINE.search(line[:_LOOK_AT_BYTES]) is not None for line in block)
    is_closed = len(block) < min(len(lines), _LOOK_AT_LINES)
    return is_closed and (n_kernel < _LEAST_PASTED or quoted_lines.foretells(above))


def _kernel(batches: Iterator[list[bytes]], all_lines: bool) -> Iterator[dict[str, Any]]:
    reader, sieve = kernel.KernelReader(), blocks.TriggerSieve((*kernel.TRIGGERS, _FENCE))
    start, margin, is_open, quoted, copied = 1, None, False, False, False
    for batch in batches:
        margin = _margin(batch) if margin is None else margin
        done, hits = start, sieve.hits(batch)
        shown = quoted_lines.shown(batch) if hits else ()
        for index in hits:
            line, text = start + index, batch[index].removeprefix(margin).decode("utf-8", "replace")
            if text.startswith(_FENCE):
                copied, is_open = copied or line == 1, not is_open or text.strip() != _FENCE
                quoted = is_open and not copied and _is_quotation(batch, index, margin)
            found = None if quoted or index in shown else reader.read_line(text)
            if found is None or (not found[0].stamped and quoted_lines.of_patterns(batch, index)):
                continue
            if all_lines:
                yield from _none(done, line)
            yield kernel_json(line, found[1])
            done = line + 1
        start += len(batch)
        if all_lines:
            yield from _none(done, start)


def _job_findings(batches: Iterator[list[bytes]], counted: list[int]) -> Iterator[JobFinding]:
    """Findings in line order; `counted[0]` grows to the number of lines."""
    reader, sieve = joblog.JobLogReader(), sifted.Sieve()
    for batch in batches:
        yield from sieve.feed(reader, counted[0] + 1, batch)
        counted[0] += len(batch)
    yield from reader.close()


def _joblog(batches: Iterator[list[bytes]], all_lines: bool) -> Iterator[dict[str, Any]]:
    counted = [0]
    yield from _job_lines(_job_findings(batches, counted), all_lines, counted)


def _job_lines(
    findings: Iterable[JobFinding], all_lines: bool, counted: list[int]
) -> Iterator[dict[str, Any]]:
    """The findings as `classify` prints them, with the lines between them; `counted` as `_job_findings` leaves it."""
    done = 1
    for finding in findings:
        if all_lines and finding.line > done:
            yield from _none(done, finding.line)
        done = max(done, finding.line + 1)
        yield joblog_json(finding)
    if all_lines:
        yield from _none(done, counted[0] + 1)


def _unsure(
    batches: Iterator[list[bytes]],
    all_lines: bool,
    found_out: Callable[[LogKind], object],
    otherwise: LogKind,
) -> Iterator[dict[str, Any]]:
    """A kernel log if any kernel message is found, a job log if anything of one is found; `otherwise` if nothing is.

    Kernel findings come at once. The job's are held until the end, or until there are too many to be a kernel log's.
    """
    reader, sieve = joblog.JobLogReader(), sifted.Sieve()
    held: list[JobFinding] = []
    counted, is_kernel, n_none = [0], False, 0

    def watched() -> Iterator[list[bytes]]:
        while len(held) < _MOST_HELD and (batch := next(batches, None)) is not None:
            if not is_kernel:
                held.extend(sieve.feed(reader, counted[0] + 1, batch))
                counted[0] += len(batch)
            yield batch

    for record in _kernel(watched(), all_lines):
        if not is_kernel and record["kind"] == "none":
            n_none += 1
            continue
        if not is_kernel:
            is_kernel = True
            held.clear()
            found_out("kernel")
            yield from _none(1, 1 + n_none)
        yield record
    if is_kernel:
        return

    def findings() -> Iterator[JobFinding]:
        yield from held
        for batch in batches:
            yield from sieve.feed(reader, counted[0] + 1, batch)
            counted[0] += len(batch)
        yield from reader.close()

    found = findings()
    first = list(itertools.islice(found, 1))
    found_out("joblog" if first else otherwise)
    yield from _job_lines(itertools.chain(first, found), all_lines, counted)


def classify_stream(
    lines: Iterable[bytes],
    kind: LogKind | None = None,
    all_lines: bool = False,
    found_out: Callable[[LogKind], object] | None = None,
) -> Iterator[dict[str, Any]]:
    """One JSON-ready dict per finding, in line order; with `all_lines` also `{"line": N, "kind": "none"}` for the rest.

    `lines` is any iterable of byte lines, or an open binary file (faster: read in blocks). `kind` None looks
    at the first lines, and at all of them where those do not decide it, and calls `found_out` with the result. Memory is constant whatever the input. Findings of a job log come when the
    first cause is settled: at the end, or after `joblog.MAX_HELD` of them.
    """
    batches = blocks.batches(lines)
    if kind is None:
        head = next(batches, [])
        sample = head[:_LOOK_AT_LINES]
        kind = detect(sample)
        batches = itertools.chain([head], batches)
        report = found_out or (lambda _: None)
        n_kernel, is_unsure = _n_kernel_lines(sample) if kind == "kernel" else (0, False)
        if is_unsure:
            return _unsure(batches, all_lines, report, "kernel" if n_kernel else "joblog")
        report(kind)
    return _kernel(batches, all_lines) if kind == "kernel" else _joblog(batches, all_lines)
