"""Errors that count only at the end of a log: exceptions without the head of their traceback, and lines that call themselves an error."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Reversible
from dataclasses import replace

from probing_cluster.core import sanitize
from probing_cluster.evidence import wrapper_lines
from probing_cluster.evidence.joblog import chain, grammar, progress
from probing_cluster.evidence.joblog.grammar import JobFinding, LineRole, Record
from probing_cluster.evidence.joblog.last_errors import (
    closing,
    error_line,
    exit_codes,
    levels,
    lines_behind,
    links,
    sentences,
)
from probing_cluster.evidence.joblog.messages import languages, python

TRIGGERS = ('File "', "Error:", "Exception:", "AssertionError", *error_line.TRIGGERS)
_FRAME = re.compile(r"^\s*File \"[^\"]{1,400}\", line \d{1,7}(?:, in \S|$)")
"""A frame of a traceback, or the place in a file that Python cannot parse."""
_INSIDE = re.compile(r"^(?:\s|$)")
_PLAIN = re.compile(
    r"^ ?(?:[A-Za-z_]\w{0,60}\.){0,8}(?:[A-Z]\w{0,60}(?:Error|Exception)|Exception|(?<=\.)Error)(?:: \S|:?\s*$)|^KeyboardInterrupt:?\s*$"
)
_FRAMES_LINES, _MAX_RANKS = 400, 256
_WORDS_CHARS = 120
"""Enough characters to recognise an exception again; the rest of the line may be another process's."""
_LAST_LINES = 40
"""An exception without any traceback ended the log if at most so many lines follow it."""
_COMMAND_LINES = 3
"""A missing command ended a script only if at most so many lines follow."""
_TRAILING_KINDS = frozenset({"command_not_found", "program_error", "process_terminated", "process_crashed"})
_LAUNCHES = frozenset({"rendezvous_failed", "slurm_launch_failed"})
_LACKS = frozenset({"command_not_found", "import_error"})
"""Consequences of a module that could not be loaded."""
_PART_OF_PACKAGE = re.compile(r"No module named ['\"]?[\w-]{1,60}\.\w")
"""The package exists and lacks a part; a module or environment that was not loaded does not explain that."""
_OF_TASK = re.compile(r"\b(?:Task|Future) exception was never retrieved$")
"""asyncio's heading. The task is dead, so that a bad exit may come of it."""
_CAUSED = re.compile(r"Caused by: \S")
"""The next cause in a trace of a JVM."""
_HEADING_LINES = 2
"""asyncio prints the task below the heading, and then the traceback."""
_AT_THE_END = re.compile(r"\bbefore 'conda deactivate'")
"""conda's complaint at a script's end. With the same one at its beginning, the program between them ran."""
_TRACED = 12
"""A script that traces so many commands (`set -x`) after an error has more to do than to clean up."""
_OFTEN = 20
"""A program that went on after a complaint so often goes on after the next one in the same words."""
_NAMES = re.compile(r"(?<!\S)[^\s\d/]*+[\d/]\S*")
_STEPS = 3
"""So many further steps show that the program went on."""
_ALIKE = 20
"""After so many complaints in the same words, the program works through a list and the next one does not end it."""


class TrailingErrors:
    """Follows frames without a traceback's head and keeps the error that may have ended the log."""

    def __init__(self, recent: Reversible[str] = ()) -> None:
        self._recent = recent
        """The lines read last, kept by the reader."""
        self._complaints = links.Complaints(recent)
        self._progress = progress.LogProgress()
        self._frames: dict[int | None, bool] = {}
        self._frames_until = 0
        self._tasks: dict[int | None, int] = {}
        """Line of asyncio's heading, for each rank whose ignored exception stands below one."""
        self._task_died: JobFinding | None = None
        """The first such exception within so many lines that a bad exit may come of it."""
        self.dropped = 0
        """Last line of an exception that Python ignored."""
        self._dropped_words: deque[str] = deque(maxlen=_MAX_RANKS)
        """Texts of such exceptions. Lines of several processes mix, so that not every head can be recognised."""
        self._last: JobFinding | None = None
        self._decided = False
        """Whether a later line shows that it gave the script or its runner a bad end."""
        self._gave_way: JobFinding | None = None
        """The error that it replaced, because its command gave the script its exit code."""
        self._over = False
        """Whether the command that printed it has ended since."""
        self._steps = self._frames_behind = 0
        """Lines of the exception's own stack after it, in Java or C++."""
        self._behind = self._traced = 0
        """Lines after the last such message that may be work; commands that the script traces after it."""
        self._listed: list[str] = []
        """The first words of a complaint that came more than _ALIKE times."""
        self._alike = 0
        """Lines after the first that complain in the same words."""
        self._outlived: dict[str, int] = {}
        """How often work followed a complaint, by its words without numbers and paths."""
        self._dead = False
        """True once a process was killed or crashed: later commands miss the files that it did not write."""
        self._weak: JobFinding | None = None
        """First complaint of the tools around the program; the reason only if the job's own programs report none."""
        self._weak_until = self._weak_behind = self._weak_steps = 0
        self._weak_progress = self._progress

    def following(self, line: int) -> bool:
        """Whether `line`, the next one, matters whatever it contains."""
        held = self._last is not None or self._weak is not None
        return held or (bool(self._frames) and line <= self._frames_until)

    def ignored(self, record: Record) -> None:
        """The frames or the exception to come are of one that Python ignores and that ends nothing; `record` announces it."""
        self.dropped = record.line
        if _OF_TASK.search(record.text):
            if len(self._tasks) >= _MAX_RANKS:
                self._tasks.clear()
            self._tasks[record.rank] = record.line
        elif (
            grammar.TRACEBACK not in record.text
            or record.line - self._tasks.get(record.rank, 0) > _HEADING_LINES
        ):
            self._tasks.pop(record.rank, None)
        self._frames[record.rank] = False
        self._frames_until = record.line + _FRAMES_LINES

    def unraised(self, record: Record, found: JobFinding | None) -> JobFinding | None:
        """`found`, which is never the cause if `record` is an exception that Python ignored (in `__del__`, or when the interpreter ends).

        What only hardware can cause stays, as weak as what was handled; so does the same text printed again.
        """
        heads = chain.heads_ignored(record.text)
        near = record.line <= self._frames_until and self._frames.get(record.rank) is False
        near = near or heads or self._is_of_dropped(record)
        again = record.text.strip()[:_WORDS_CHARS] in self._dropped_words
        if found is None or not (near or again) or _INSIDE.match(record.text):
            return found
        if not heads and python.exception(record) is None:
            return found
        if near and not found.late:
            detail = {**found.detail, "unraised": True}
            return replace(found, role=LineRole.OBSERVATION, detail=detail)
        return replace(found, detail={**found.detail, "handled": True})

    def _is_of_dropped(self, record: Record) -> bool:
        """Whether it is the next cause in the trace of an exception that was ignored."""
        near = 0 < self.dropped < record.line <= self.dropped + _LAST_LINES
        return near and _CAUSED.match(record.text) is not None

    def read(self, record: Record, *, known: bool, interesting: bool) -> JobFinding | None:
        """The exception at the end of frames without a head; None for a line that a family recognised."""
        if _FRAME.match(record.text):
            if record.line > self._frames_until:
                self._frames.clear()  # too far above to belong to what follows
            if len(self._frames) < _MAX_RANKS:
                self._frames.setdefault(record.rank, True)
            self._frames_until = record.line + _FRAMES_LINES
            return None
        if record.rank in self._frames and _INSIDE.match(record.text):
            return None
        near = record.line <= self._frames_until
        uncaught = self._frames.pop(record.rank, None) if near else None
        if uncaught is False:
            self.dropped = record.line
            self._dropped_words.append(record.text.strip()[:_WORDS_CHARS])
            if record.rank in self._tasks and not known:
                self._hold_task(python.exception(record))
        if uncaught is False or known or record.text.strip()[:_WORDS_CHARS] in self._dropped_words:
            return None
        if self._is_of_dropped(record) or levels.is_of_warning(record.text, self._recent):
            return None
        if not _PLAIN.match(record.text):
            word = error_line.in_any_language(record) if interesting else error_line.find(record)
            if word and word.role is not LineRole.EXIT and sentences.is_warned(record.text, self._recent):
                return None
            word = self._complaints.cause_of(word) if word else None
            if word and not (self._dead and lines_behind.is_of_file_tool(word.message)):
                listed = record.text.split()[:3] == self._listed or self.outlived(word.message)
                raced = self._is_race_held() and not error_line.is_race(word)
                if (self._last is None or raced) and not listed:
                    ending = word.role is LineRole.ROOT and closing.is_ending(record.text)
                    self.hold(replace(word, role=LineRole.EXIT) if ending else word)
                elif (before := self._last) is not None and (
                    exit_codes.decides(word.message, before, over=self._over)
                    or levels.ends_another(word, before, self._recent)
                ):
                    self.hold(word)
                    self._gave_way = before
                elif self._last is not None and self._is_of_transfer(word.message, self._last):
                    self._last, self._gave_way, self._behind = self._gave_way, None, -1
                else:
                    self._complaints.add(word)
                    self._behind = -1
                    self._over = self._over or exit_codes.sums_up(word.message)
            return None
        found = (raised := python.exception(record)) and languages.of_runtime(raised)
        if found and uncaught and found.role is LineRole.ROOT:
            return found
        headed = self._last is not None and self._last.kind == "program_error" and self._behind == 0
        free = self._last is None or headed or self._is_race_held()
        if found and found.kind == "interrupted":
            free = self._last is None and not any(map(lines_behind.is_over, self._recent))
        if found and free and not python.is_handled(record.text):
            self.hold(found)
        return None

    def _is_race_held(self) -> bool:
        return self._last is not None and error_line.is_race(self._last)

    def _is_of_transfer(self, message: str, last: JobFinding) -> bool:
        """Whether the ssh that printed `last` was only the carrier of a tool that does not decide over the error before."""
        before = self._gave_way
        return (
            before is not None
            and exit_codes.was_started_by(message, last)
            and not exit_codes.decides(message, before, over=True)
        )

    def hold(self, found: JobFinding) -> None:
        """Hold an error that counts only at the end of the log."""
        self._complaints.add(found)
        self._last, self._steps, self._behind, self._frames_behind, self._alike = found, 0, 0, 0, 0
        self._traced, self._over = 0, exit_codes.sums_up(found.message)
        self._decided, self._gave_way = False, None
        self._progress = progress.LogProgress(self._recent, found.message)

    def raised(self, found: JobFinding, head: int) -> None:
        """An error right above the head of the exception's traceback that ends with a colon only announces it."""
        last = self._last
        if last and last.line >= head - 1 and found.kind != "interrupted" and last.rank in (None, found.rank):
            announces = last.message.rstrip().endswith(":") or last.detail.get("announced")
            self._last = None if announces else last

    def _hold_task(self, found: JobFinding | None) -> None:
        """Hold the exception of an asyncio task, which is the last resort at a bad exit."""
        if found is None or found.role is not LineRole.ROOT:
            return
        if self._task_died is None or found.line - self._task_died.line > _LAST_LINES:
            detail = {**found.detail, "unraised": True}
            self._task_died = replace(found, role=LineRole.OBSERVATION, detail=detail)

    def hold_weak(self, found: JobFinding) -> None:
        """Hold a complaint of the tools around the program; the first one counts, until the program goes on."""
        if self._weak is not None and _AT_THE_END.search(found.message):
            self._weak = None
            return
        if self._weak is None:
            self._weak, self._weak_steps, self._weak_behind = found, 0, 0
            self._weak_progress = progress.LogProgress(self._recent)
        self._weak_until = found.line + _LAST_LINES
        self._complaints.add(found)

    def weak_reason(self, found: JobFinding) -> JobFinding | None:
        """The held complaint that explains `found`.

        The module system's explains a missing command or library, ssh's a launcher that did not reach a node, a dead task's an exit without a reason.
        """
        died = self._task_died
        if died is not None and found.kind in grammar.UNEXPLAINED_EXIT_KINDS:
            self._task_died = None
            if found.line - died.line <= _LAST_LINES:
                return died
        if (linked := self._linked(found)) is not None:
            return linked
        unreached = self._last is not None and exit_codes.reached_no_host(self._last.message)
        if unreached and found.kind in _LAUNCHES:
            return self.take_last()
        weak = self._weak
        if weak is not None and weak.kind == "net_ib_error" and found.kind == "rendezvous_failed":
            return self.take_last(at_exit=True)
        if weak is not None and found.kind in _LAUNCHES and weak.detail.get("launch") == "srun":
            self._weak = None
            return weak if found.line <= self._weak_until else None
        if weak is None or not weak.detail.get("modules") or found.line > self._weak_until:
            return None
        if found.kind not in _LACKS and not found.detail.get("missing"):
            return None
        if weak.kind == found.kind == "command_not_found" or _PART_OF_PACKAGE.search(found.message):
            return None  # of two commands, the later one gave the script its exit code
        self._weak = None
        return weak

    def with_reason(self, found: JobFinding) -> JobFinding:
        """`found`, with the line of the complaint whose command did not bring what it lacks, or with that complaint."""
        self._complaints.died(found)
        return self._complaints.with_reason(found) if found.role is LineRole.ROOT else found

    def _linked(self, found: JobFinding) -> JobFinding | None:
        """The earlier complaint whose command did not bring what `found` lacks by name; it is held no longer."""
        reason = self._complaints.take(found)
        if reason is not None and self._last is not None and self._last.line == reason.line:
            self._last = None
        if reason is not None and self._weak is not None and self._weak.line == reason.line:
            self._weak = None
        return reason

    def after_line(self, line: int, text: str) -> None:
        """A line after the held error: drop the error if the program went on."""
        if self._weak is not None and line != self._weak.line:
            self._weak_steps += progress.is_progress(text) or self._weak_progress.after_line(text)
            silent = lines_behind.is_silent(text) or error_line.is_error(text)
            self._weak_behind += not silent and text.split()[:1] != self._weak.message.split()[:1]
            over = line > self._weak_until or self._weak_steps >= _STEPS
            if over or lines_behind.went_well(text, self._weak.message):
                self._weak = None
        if self._last is None or line == self._last.line:
            return
        if self._behind == self._frames_behind == 0:
            self._last = languages.of_runtime(self._last, text)
        if lines_behind.is_stack_frame(text):
            self._frames_behind += 1
            return
        heading = self._last.kind == "program_error" and self._behind == 0
        if heading and (whole := closing.completed(self._last.message, text)):
            message = sanitize.clean(whole, 1024)
            detail = {**self._last.detail, "announced": True}
            self.hold(replace(self._last, line=line, message=message, detail=detail))
            return
        self._alike += text.split()[:3] == self._last.message.split()[:3]
        step = progress.is_progress(text) or self._progress.after_line(text)
        self._steps += step
        dump = lines_behind.is_dump(self._last.message)
        not_run = exit_codes.not_run(self._last.message)
        self._decided |= exit_codes.is_decided(text, not_run=not_run)
        silent = lines_behind.is_silent(text) or (
            (dump or not_run) and not step and wrapper_lines.is_wrapper_line(text)
        )
        self._behind += self._behind < 0 or not silent
        self._traced += lines_behind.traces_work(text)
        word = self._last.kind in _TRAILING_KINDS and "exception" not in self._last.detail
        most = 0 if dump or self._last.kind == "process_terminated" else _COMMAND_LINES
        over = self._behind > most if word else line - self._last.line - self._frames_behind > _LAST_LINES
        over = (over and not self._decided) or (word and self._traced >= _TRACED)
        well = lines_behind.went_well(text, self._last.message)
        if self._alike > _ALIKE:
            self._listed = self._last.message.split()[:3]
        went_on = max(self._steps, self._progress.live) >= _STEPS
        went_on = went_on or (self._last.kind == "interrupted" and text.strip() != "")
        if went_on or over or (word and (well or self._alike > _ALIKE)):
            self._outlive(self._last.message)
            self._last = None

    def _outlive(self, message: str) -> None:
        words = _NAMES.sub("", message)[:_WORDS_CHARS]
        if words in self._outlived or len(self._outlived) < _MAX_RANKS:
            self._outlived[words] = self._outlived.get(words, 0) + 1

    @property
    def line(self) -> int:
        """Line of the held error; 0 without one."""
        return 0 if self._last is None else self._last.line

    def outlived(self, message: str) -> bool:
        """Whether the program went on so often after the complaint `message` that the next one does not end it."""
        return self._outlived.get(_NAMES.sub("", message)[:_WORDS_CHARS], 0) >= _OFTEN

    def died(self, found: JobFinding) -> None:
        """A process died by a signal. A missing command does not cause that (the shell exits with 127), except for tasks that srun kills; a data race or a file that was only read is less than the crash."""
        of_step = found.kind == "oom_kill_suspected" and found.message.startswith("srun: ")
        if found.kind not in grammar.SIGNAL_DEATH_KINDS or of_step:
            return
        self._dead = True
        if self._last is not None and error_line.kills_nothing(self._last, found.message):
            self._last = None
        weak = self._weak
        if weak is not None and (
            weak.kind == "command_not_found"
            or any(weak.detail.get(of) for of in ("modules", "not_set_up", "launch"))
        ):
            self._weak = None

    def take_last(self, *, at_exit: bool = False) -> JobFinding | None:
        """Release the held error, which only the end followed; at a bad exit only an error that explains it."""
        found, self._last = self._last, None
        weak, self._weak = self._weak, None
        counts = not at_exit or (weak is not None and weak.detail.get("launch"))
        if counts and self._weak_behind > _COMMAND_LINES:
            weak = None
        if weak is not None and found is not None and found.line < weak.line:
            # A line that ends with a colon only announces what follows it.
            announces = found.message.rstrip().endswith(":") or found.detail.get("announced")
            return weak if announces else found
        if (
            weak is not None
            and found is not None
            and weak.kind == "command_not_found"
            and (found.kind == weak.kind or exit_codes.decides(found.message, weak, over=True))
        ):
            return replace(found, detail={**found.detail, "lacked_before": weak.message})
        if weak is not None and (found is None or found.kind in _TRAILING_KINDS):
            return weak
        return None if found and at_exit and found.role is not LineRole.ROOT else found
