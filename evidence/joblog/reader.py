"""Job logs to findings: removes prefixes, joins cut lines, follows tracebacks and names the first cause at the end."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from probing_cluster.core import digits, sanitize
from probing_cluster.evidence import listings, locales, prefixes
from probing_cluster.evidence.joblog import (
    cause,
    chain,
    families,
    grammar,
    labels,
    mention,
    shown_text,
    step_output,
    unfold,
)
from probing_cluster.evidence.joblog.grammar import JobFinding, JoblogContext, LineRole, LogFamily, Record
from probing_cluster.evidence.joblog.last_errors import closing, refuted, stack_causes, trailing_errors
from probing_cluster.evidence.joblog.messages import languages, python
from probing_cluster.evidence.joblog.messages.communication import torch_nccl
from probing_cluster.evidence.joblog.messages.devices import cuda

MAX_LINE_CHARS = 8192
MAX_HELD = 4096
"""Findings held back until the cause is named; past this it is named from what was seen."""
_MAX_JOIN_LINES, _MAX_TRACEBACKS, _TRACEBACK_LINES, _UNRAISED_LINES, _SAME_END_LINES = 6, 256, 400, 3, 3
_COLOURS = re.compile(r"\[\d{1,2}(?:;\d{1,3}){0,4}m")
"""Colour codes of a terminal without their escape character."""
_USER_CODE = ": in user code:"


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip(" \t"))


class JobLogReader:
    """Reads one job's output in order; what it remembers is bounded."""

    def __init__(self) -> None:
        self._context = JoblogContext()
        self._candidates = cause.CauseCandidates()
        self._cut: unfold.WrappedLine | None = None
        self._tracebacks: dict[int | None, chain.OpenTraceback] = {}
        self._cut_off: tuple[int, Record] | None = None
        """The last line that was a frame, and the head of its traceback; the log may end there."""
        self._last_line = self._line_before = 0
        """Numbers of the last line that was not empty and of the one before."""
        self._unraised: dict[int | None, int] = {}
        self._user_code: dict[int | None, int] = {}
        """Line of the last exception of each rank whose own text TensorFlow prints below."""
        self._chain = chain.ExceptionChain()
        self._trailing = trailing_errors.TrailingErrors(self._candidates.recent)
        self._step_output = step_output.StepOutput()
        self._lsf, self._site = step_output.LsfSummary(), step_output.SiteSummary()
        self._heredoc, self._pages = shown_text.HereDocument(), shown_text.Pages()
        self._copied, self._glued = shown_text.Copied(), unfold.GluedRanks()
        self._builds, self._older = step_output.BuildOutput(), shown_text.OlderLog()
        self._labels = labels.LineLabels()
        self._listing = listings.Listing(self._candidates.recent)
        self._tail, self._stacks = closing.Tail(), stack_causes.StackCauses()
        self._refuted = refuted.Refutations(self._candidates.recent, self._tail)
        self._many = -_SAME_END_LINES

    def _families(self, record: Record) -> JobFinding | None:
        if mention.is_speech(record.text):
            quotes = self._context.announced(record.line) and record.text.lstrip()[:1] in "'\"`"
            return languages.FAMILY.read(record, self._context) if quotes else None
        if (english := locales.english(record.text)) != record.text:
            found = self._families(replace(record, text=english))
            return replace(found, message=sanitize.clean(record.text, 1024)) if found else None
        announced = self._context.announced(record.line)
        for family in families.FAMILIES:
            wanted = family.expects is not None and family.expects(self._context, record.line)
            if not wanted and not any(t in record.text for t in family.triggers):
                continue
            if found := self._trailing.unraised(record, family.read(record, self._context)):
                sentence = announced and family is languages.FAMILY
                if announced and self._context.head_line < record.line:
                    self._context.head_line = 0
                if not sentence and self._is_quotation(family, record):
                    return None
                debug = grammar.DEBUG.match(record.text)
                return replace(found, role=LineRole.OBSERVATION) if debug else found
        return None

    def _has_lost_its_traceback(self, record: Record) -> bool:
        """Whether an exception's last line has no traceback: it may be another run's, printed again, or caught."""
        alone = record.rank is None and record.rank not in self._tracebacks
        return alone and python.exception(record) is not None

    def _is_quotation(self, family: LogFamily, record: Record) -> bool:
        """Whether the family recognises only quoted text: then the line mentions the error."""
        rest = mention.without_quotations(record.text)
        if family in families.JUDGE_MENTION or rest == record.text:
            return False
        return family.read(replace(record, text=rest), JoblogContext()) is None

    def _join(self, record: Record) -> tuple[bool, JobFinding | None]:
        """Whether the line belongs to the message that was cut, and that message once it is whole."""
        cut = self._cut
        if cut is None:
            return False, None
        complete = cut.found is not None and unfold.may_continue(cut.found)
        if (
            unfold.NEW_RECORD.match(record.text)
            or cut.joined >= _MAX_JOIN_LINES
            or (complete and self._families(record))
        ):
            self._give_up()
            return False, None
        cut.joined += 1
        cut.record = replace(cut.record, text=(cut.record.text + record.text)[:MAX_LINE_CHARS])
        found = self._families(cut.record)
        if found and found.detail.get("thrown"):
            self._give_up()  # the next line adds nothing to the exception's message
            return False, None
        if found and unfold.is_cut(cut.record.text):
            cut.found = found
            return True, None
        if found:
            self._cut = None
        return found is not None, found

    def _give_up(self) -> None:
        """The cut line was not completed: its own finding counts."""
        if self._cut and self._cut.found:
            self._take(self._cut.found)
        self._cut = None

    def _traceback(self, record: Record, *, known: bool, interesting: bool) -> JobFinding | None:
        """Follow a traceback of this rank; its last line is the exception."""
        if "| " in record.text:
            record = replace(record, text=python.ungrouped(record.text))
        rank = record.rank
        if chain.heads_ignored(record.text) and len(self._unraised) < _MAX_TRACEBACKS:
            self._unraised[rank] = record.line
            self._trailing.ignored(record)
            return None
        if grammar.TRACEBACK in record.text and not mention.is_speech(record.text):
            recent = self._candidates.recent
            shown = shown_text.shows_a_traceback(recent)
            handled = shown or mention.is_handled_traceback(record.text, recent)
            if handled or record.line - self._unraised.pop(rank, -_UNRAISED_LINES) < _UNRAISED_LINES:
                self._tracebacks.pop(rank, None)
                self._trailing.ignored(record)
            elif len(self._tracebacks) < _MAX_TRACEBACKS:
                self._tracebacks[rank] = chain.OpenTraceback(record.line, _indent(record.text))
                self._chain.begin(record, next(iter(reversed(self._candidates.recent)), ""))
                self._candidates.announced(record.line)
            return None
        for old in [r for r, t in self._tracebacks.items() if record.line - t.line > _TRACEBACK_LINES]:
            del self._tracebacks[old]
        if chain.is_link(record.text):
            ignored = 0 < self._trailing.dropped >= record.line - _UNRAISED_LINES
            if ignored and len(self._unraised) < _MAX_TRACEBACKS:  # then the whole chain is
                self._unraised[rank] = self._trailing.dropped = record.line
            self._chain.link(record)
            self._take_last()
        current = self._tracebacks.get(rank)
        if current is None:
            if rank in self._unraised and python.exception(record):
                del self._unraised[rank]
            return self._of_user_code(record) or self._trailing.read(
                record, known=known, interesting=interesting
            )
        if current.indent and _indent(record.text) >= current.indent:
            record = replace(record, text=record.text[current.indent :])
        if chain.is_inside(record.text):
            if record.text.strip():
                current.inside(record.text)
                self._chain.inside(record)
                self._cut_off = record.line, replace(record, line=current.line, text=f"{grammar.TRACEBACK}:")
            return None
        if chain.WARNED_OF.match(record.text):
            del self._tracebacks[rank]
            return None
        first = self._cut_off is not None and self._cut_off[0] == self._line_before
        if found := python.exception(record, own_name=first):
            del self._tracebacks[rank]
            self._trailing.raised(found, current.line)
            found = current.of_interrupt(found)
            if found.message.endswith("AssertionError") and current.code.startswith("assert "):
                # An assertion without a message gets the asserted expression.
                found = replace(found, message=f"{found.message} ({sanitize.clean(current.code, 200)})")
            found = self._chain.ended(python.of_lost_parent(found, current.code), rank)
            if self._chain.handled_at:
                self._candidates.handled_at(self._chain.handled_at)
            if found.message.endswith(_USER_CODE) and len(self._user_code) < _MAX_TRACEBACKS:
                self._user_code[rank] = record.line
            if python.named_only(found):
                languages.heading(record, self._context, raised=True)
                found = replace(found, detail={**found.detail, "heading": True})
        return found

    def _of_user_code(self, record: Record) -> JobFinding | None:
        """The exception that TensorFlow indents below its own frames, after `ValueError: in user code:`."""
        began = self._user_code.get(record.rank)
        if began is None or not record.text[:1].isspace() or record.line - began > _TRACEBACK_LINES:
            return None
        if found := python.exception(replace(record, text=record.text.strip())):
            del self._user_code[record.rank]
        return found

    def _take(self, finding: JobFinding) -> None:
        if finding.role is not LineRole.OBSERVATION and self._copied.left():
            self._candidates.test_succeeded(whole_session=True)
            self._trailing.take_last()
        if finding.kind == "stale_file_handle" and python.in_lock(self._candidates.recent, finding.message):
            finding = replace(finding, detail={**finding.detail, "locks": True})
        if finding.kind == "task_exit" and finding.rank is not None:
            if not digits.is_number(str(finding.detail.get("tasks", "0"))):  # several: no particular rank's
                self._many = finding.line
            elif finding.line - self._many > _SAME_END_LINES:
                self._candidates.fill_rank(finding.line, finding.rank)
        if self._builds.inside(finding.line) and finding.role is LineRole.ROOT:
            finding = replace(finding, detail={**finding.detail, "weak": True})
        if self._older.inside(finding.line) and finding.role is not LineRole.END:
            finding = replace(finding, detail={**finding.detail, "handled": True, "goes_on": True})
        if finding.detail.get("weak"):
            self._trailing.hold_weak(finding)
            return
        finding = self._trailing.with_reason(self._glued.marked(finding))
        reason = self._trailing.weak_reason(finding)
        if finding.kind == "command_not_found":
            self._trailing.hold(reason or finding)
            return
        if reason:
            self._candidates.add(reason)
        self._trailing.died(finding)
        ended = finding.kind == "memory_corruption" or closing.only_ends(finding)
        heads = self._context.head_line == finding.line and not self._trailing.line
        if ended or (finding.role in (LineRole.EXIT, LineRole.REMOTE) and not heads):
            self._take_last(at_exit=finding.role is not LineRole.REMOTE)
        self._add_reason(finding)
        if finding.role is LineRole.END:
            self._candidates.take_stall(finding.line, self._tail.only_lists, ended=finding.kind)
        self._candidates.add(finding)

    def _take_last(self, *, at_exit: bool = False) -> None:
        """Take the held trailing error: only the end followed it."""
        if last := self._trailing.take_last(at_exit=at_exit):
            self._add_reason(last)
            self._candidates.add_last(last)

    def _add_reason(self, finding: JobFinding) -> None:
        word = self._tail.reason_for(finding) if self._candidates.is_open else None
        if word and not self._refuted.covers(word.line):
            self._candidates.add(word)

    def _take_step_word(self, line: int) -> None:
        """The workflow engine's block of errors ended before `line`. If no family recognised a line of it, take the line in it that looks most like an error."""
        best, began = self._candidates.candidate, self._step_output.errors_began
        if best is None or best.role is not LineRole.EXIT or best.line > began:
            return
        if word := self._tail.reason(line, began):
            self._candidates.add(replace(word, role=LineRole.ROOT))

    def _settle(self) -> list[JobFinding]:
        """The findings held, in line order; a message of several lines is added late."""
        return sorted(map(self._stacks.named, self._candidates.settle()), key=lambda finding: finding.line)

    def following(self, line: int) -> bool:
        """Whether `line`, the next one, matters whatever it contains."""
        return (
            line == 1  # shows whether the log was copied from a page
            or (self._cut is not None or bool(self._tracebacks))
            or (self._context.expects(line) or self._glued.inside(line) or self._step_output.inside(line))
            or (self._lsf.is_open or self._site.is_open)
            or (self._heredoc.inside(line) or self._older.inside(line) or self._listing.inside(line))
            or self._candidates.in_doubt
            or (self._trailing.following(line) or self._refuted.following(line))
        )

    def feed(self, line: int, text: str) -> Iterator[JobFinding]:
        """Read one line; yields findings only once the first cause is settled.

        A progress bar overwrites itself with carriage returns; each overwriting is read as text of its own.
        """
        text = unfold.typed_over(prefixes.plain(text))
        text = self._copied.plain(line, self._labels.plain(_COLOURS.sub("", text).rstrip()))
        for number, given in self._listing.read(line, text, labelled=self._labels.of_task):
            self._read_line(number, given)
        if self._candidates.settled or len(self._candidates.held) >= MAX_HELD:
            yield from self._settle()

    def _read_line(self, line: int, text: str) -> None:
        if (of_lsf := self._lsf.read(line, text)) is not None:
            if self._lsf.job_from:
                self._trailing.take_last()
                self._candidates.next_run(self._lsf.job_from)
                self._lsf.job_from = 0
            if found := self._families(self._labels.record(line, of_lsf[:MAX_LINE_CHARS])):
                self._take(found)
            return
        self._tail.add(line, text.rpartition("\r")[2][:MAX_LINE_CHARS])
        parts = unfold.overwritten(text)
        for part in parts:
            for piece in self._glued.lines(line, part) if part else ():
                self._read(line, piece[:MAX_LINE_CHARS], overwritten=len(parts) > 1)

    def _read(self, line: int, text: str, *, overwritten: bool = False) -> None:
        if text.strip() and line != self._last_line:
            self._line_before, self._last_line = self._last_line, line
        recent = self._candidates.recent
        for first, until in self._refuted.read(line, text):
            self._candidates.refute(first, until, restarted=self._refuted.restarted == line)
            if first <= self._trailing.line <= until:
                self._trailing.take_last()
        shown = self._pages.inside(line, text) or shown_text.is_shown(text, recent)
        if quoted := self._heredoc.quotes(line, text) or shown:
            self._tail.forget(line)
        if quoted or mention.is_repeated(text, recent):
            if self._candidates.in_doubt and mention.is_chat_head(text):
                self._candidates.after_line(self._labels.record(line, text))
            recent.append(text)
            return
        passed = step_output.tests_passed(text, self._candidates.recent)
        succeeded = passed or step_output.test_mark(text)
        if succeeded:
            self._candidates.test_succeeded(whole_session=passed)
            self._trailing.take_last()
        elif succeeded is False:
            self._candidates.test_began()
        self._builds.read(line, text)
        self._older.read(line, text)
        of_errors = self._step_output.of_errors(line)
        text = self._step_output.text(line, text)
        if of_errors and not self._step_output.inside(line):
            self._take_step_word(line)
        interesting, record = families.ANY_OWN.search(text) is not None, self._labels.record(line, text)
        cut = unfold.may_be_cut(text) and not mention.is_speech(record.text)
        torch_nccl.note_op(record, self._context)
        self._stacks.read(record)
        expected = self._context.expects(line)
        joined, found = self._join(record)
        if not joined and (interesting or expected):
            found = self._families(record)
            if found and found.kind in cuda.ONLY_HARDWARE and self._has_lost_its_traceback(record):
                found = replace(found, detail={**found.detail, "alone": True})
        last = self._traceback(record, known=found is not None, interesting=interesting)
        found = chain.placed(found, last)
        accounted = self._site.holds(line, text)
        if accounted or self._trailing.dropped == line:
            self._tail.forget(line)
        if not accounted:
            self._trailing.after_line(line, record.text if text.startswith("{") else text)
        unnamed = found is not None and unfold.may_continue(found) and cut
        if found and found.line == line and (unnamed or unfold.is_cut(text)):
            self._give_up()
            self._cut = unfold.WrappedLine(record, found=found)
        elif found := found or last:
            self._take(found)
        elif cut and not joined:
            self._cut = unfold.WrappedLine(record)
        if self._step_output.of_errors(line) and (word := self._trailing.take_last(at_exit=True)):
            self._candidates.add(word)
        if not found and self._candidates.in_doubt and not self._step_output.inside(line):
            self._candidates.after_line(record, overwritten=overwritten)
        self._candidates.recent.append(text)

    def skipped(self, first: int, lines: Iterable[bytes]) -> None:
        """The last lines without a trigger before the next line, from number `first` on: the program's ordinary output."""
        cut = (str(line[:MAX_LINE_CHARS], "utf-8", "replace") for line in lines)
        texts = [self._labels.plain(prefixes.plain(text)) for text in cut]
        self._candidates.recent.extend(texts)
        self._tail.extend(first, texts)

    def close(self) -> list[JobFinding]:
        """The findings still held, the first cause marked."""
        for number, given in self._listing.rest():
            self._read_line(number, given)
        self._give_up()
        if not self._tail.is_of_page(self._trailing.line):
            self._take_last()
        if self._cut_off is not None and self._cut_off[0] == self._last_line:
            self._candidates.add(self._tail.last_word() or python.cut_off(self._cut_off[1]))
        best = None if self._candidates.is_open else self._candidates.candidate
        word = None if self._candidates.settled else self._tail.final_error(best)
        held = self._candidates.held
        if word and not (self._trailing.outlived(word.message) or self._refuted.covers(word.line, held)):
            self._candidates.add(word)
        self._candidates.take_stall(self._last_line, self._tail.only_lists)
        self._candidates.take_interruption(self._last_line, self._tail.lines_after)
        self._candidates.take_own_end(self._tail.lines_after, self._chain.may_be_of_one_process)
        self._candidates.note_lines_after(self._tail.lines_after)
        return self._settle()


def read(lines: Iterable[str]) -> Iterator[JobFinding]:
    """Every finding of a job's output, in line order."""
    reader = JobLogReader()
    for number, text in enumerate(lines, 1):
        yield from reader.feed(number, text.rstrip("\r\n"))
    yield from reader.close()
