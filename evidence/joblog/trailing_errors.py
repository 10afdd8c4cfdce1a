"""Exceptions without the head of their traceback: the log began behind it, or only the last line was printed."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from dataclasses import replace

from probing_cluster.core import sanitize
from probing_cluster.evidence.joblog import closing, error_line, locales, progress
from probing_cluster.evidence.joblog.grammar import JobFinding, LineRole, Record
from probing_cluster.evidence.joblog.messages import python

TRIGGERS = ('File "', "Error:", "Exception:", "AssertionError", *error_line.TRIGGERS)
_FRAME = re.compile(r"^\s*File \"[^\"]{1,400}\", line \d{1,7}(?:, in \S|$)")
"""Of a traceback, or of a file that Python cannot parse."""
_JAVA_FRAME = re.compile(
    r"\s+at [\w.$<>/]{3,300}\(|\s+\.\.\. \d{1,4} (?:more|common frames)|\s*Possible solutions: "
)
_INSIDE = re.compile(r"^(?:\s|$)")
_PLAIN = re.compile(
    r"^ ?(?:[A-Za-z_]\w{0,60}\.){0,8}(?:[A-Z]\w{0,60}(?:Error|Exception)|Exception|(?<=\.)Error)(?:: \S|:?\s*$)"
)
_FRAMES_LINES = 400
_MAX_RANKS = 256
_WORDS_CHARS = 120
"""Enough of an exception's words to know it again; the rest of the line may be another process's."""
_LAST_LINES = 40
"""An exception without any traceback is how a log ended when no more lines than these stand behind it."""
_COMMAND_LINES = 3
"""A command that was not found ends a script only when hardly anything follows."""
_TRAILING_KINDS = frozenset({"command_not_found", "program_error", "process_terminated", "process_crashed"})
_LAUNCHES = frozenset({"rendezvous_failed", "slurm_launch_failed"})
_UNREACHED = re.compile(
    r"(?:ssh|rsh|kex_exchange_identification): |Host key verification failed|.{0,100}Permission denied \((?:publickey|password|keyboard|gssapi|hostbased)|Connection closed by |(?:ba|c|tc)?sh: .{0,20}orted: "
)
"""What ssh says where a launcher could not start its part on another node."""
_LACKS = frozenset({"command_not_found", "import_error"})
"""What follows when the module system did not do its part."""
_PART_OF_PACKAGE = re.compile(r"No module named ['\"]?[\w-]{1,60}\.\w")
"""The package is there and lacks a part: no module or environment that was not loaded explains that."""
_NO_WORD = re.compile(
    r"\s*$|\s{2,}\S|\s+at \S|\++ |[-=*#]{3,}|g?make(?:\[\d{1,3}\])?: (?:Leaving|Entering) |(?:Please check|It is also possible|Also make sure|without these module|While processing|Executing this command)\b|Failed (?:on|at) line\b|(?:real|user|sys)\s+\d+m|[Tt]ry ['\"‘`].{1,80}--help|[Uu]sage: |(?:exit|return)(?: code| status)?\W{1,3}\d|Primary job\s|a non-zero exit code\b|mpirun (?:detected|has exited|noticed)|the job to be terminated"
)
"""Lines that say nothing about whether the program went on."""
_NO_DIRECTORY = re.compile(r"\S{1,300}: (?:line )?\d{1,6}: cd: \S")
"""A script that did not reach its directory and went on where it was."""
_WENT_WELL = re.compile(r"\b(?:passed|success(?:ful(?:ly)?)?|succeeded)\b", re.IGNORECASE)
_ENDED = re.compile(r"\b(?:done|finished|completed?|converge(?:d|nce reached))\b", re.IGNORECASE)
_FILE_TOOL = re.compile(
    r"(?:\S{1,40}: (?:\d{1,6}: )?)?(?:/\S{0,80}/)?(?:cp|mv|rm|ln|ls|cat|mkdir|rmdir|chmod|chown|touch|cannot create)\b"
)
"""What a script's commands on files complain of: where it says later that it is done, nothing hung on them."""
_PRINTED = re.compile(r"╰─> \[(?P<lines>\d{1,5}) lines? of output\]")
"""How pip announces what a package's own build printed."""
_AT_THE_END = re.compile(r"\bbefore 'conda deactivate'")
"""What conda complains of at a script's end, as of its beginning: the program between them ran."""
_STEPS = 3
"""So many further steps say that the program lived on."""
_ALIKE = 20
"""After so many complaints in the same words the next is none that ends a program: it goes through a list."""


def _last_word(record: Record) -> JobFinding | None:
    """A line that calls itself an error, in whatever language."""
    word = error_line.find(replace(record, text=locales.english(record.text)))
    return replace(word, message=sanitize.clean(record.text, 1024)) if word else None


_DEATHS = frozenset({"process_crashed", "process_aborted", "bus_error", "segfault", "oom_kill_suspected"})
"""Deaths by signal. A missing command does not cause them (the shell ends with 127), except in tasks that srun kills for it."""


class TrailingErrors:
    """Follows frames that no traceback began and keeps the exception that may have ended the log."""

    def __init__(self, recent: Iterable[str] = ()) -> None:
        self._recent = recent
        """The lines read last, kept by the reader."""
        self._progress = progress.LogProgress()
        self._frames: dict[int | None, bool] = {}
        self._frames_until = 0
        self.dropped = 0
        """The last line of such an exception: of what nobody gets to catch."""
        self._dropped_words: deque[str] = deque(maxlen=_MAX_RANKS)
        """What such exceptions said: of several processes at once, whose lines mix, not every head is told from the others'."""
        self._last: JobFinding | None = None
        self._steps = 0
        self._frames_behind = 0
        """Lines of a Java stack behind it: the exception's own, however many."""
        self._behind = 0
        """Lines behind the last message of that kind that could speak of work."""
        self._listed: list[str] = []
        """The words that so many complaints began with."""
        self._alike = 0
        """Lines behind the first that complain in the same words."""
        self._dead = False
        """A process was killed or crashed: what it did not write, the script's next commands miss."""
        self._weak: JobFinding | None = None
        """What another program complained of first: the reason only where the job's own say nothing better."""
        self._weak_until = 0
        self._weak_behind = self._weak_steps = 0
        self._weak_progress = self._progress
        self._printed_until = 0
        """Last line of what pip repeats of a package's build."""

    def following(self, line: int) -> bool:
        """Whether `line`, the next one, matters whatever it contains."""
        held = self._last is not None or self._weak is not None
        return held or (bool(self._frames) and line <= self._frames_until)

    def announce(self, line: int, text: str) -> None:
        """`text` may announce what a package's build printed."""
        if printed := _PRINTED.search(text):
            self._printed_until = line + int(printed["lines"])

    def printed(self, line: int) -> bool:
        """Whether `line` is one of those: a script often goes on without the package."""
        return line <= self._printed_until

    def ignored(self, record: Record) -> None:
        """The frames to come belong to an exception that nobody gets to catch and that ends nothing."""
        self._frames[record.rank] = False
        self._frames_until = record.line + _FRAMES_LINES

    def unraised(self, record: Record, found: JobFinding | None) -> JobFinding | None:
        """`found`; weak where `record` is the exception under such frames: what nobody gets to catch, in `__del__` or at the interpreter's end."""
        near = record.line <= self._frames_until and self._frames.get(record.rank) is False
        near = near or record.text.strip()[:_WORDS_CHARS] in self._dropped_words
        if found is None or not near or _INSIDE.match(record.text) or python.exception(record) is None:
            return found
        return replace(found, detail={**found.detail, "handled": True})

    def read(self, record: Record, *, known: bool, interesting: bool) -> JobFinding | None:
        """The exception at the end of frames without a head; nothing of a line that is understood already."""
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
        if uncaught is False or known or record.text.strip()[:_WORDS_CHARS] in self._dropped_words:
            return None
        if not _PLAIN.match(record.text):
            word = _last_word(record) if interesting else error_line.find(record)
            if word and not (self._dead and _FILE_TOOL.match(word.message)):
                if self._last is None and record.text.split()[:3] != self._listed:
                    ending = word.role is LineRole.ROOT and closing.is_ending(record.text)
                    self.hold(replace(word, role=LineRole.EXIT) if ending else word)
                else:
                    self._behind = -1
            return None
        found = python.exception(record)
        if found and uncaught and found.role is LineRole.ROOT:
            return found
        if found and self._last is None and not python.is_handled(record.text):
            self.hold(found)
        return None

    def hold(self, found: JobFinding) -> None:
        """A message that counts only as the log's last word."""
        self._last, self._steps, self._behind, self._frames_behind, self._alike = found, 0, 0, 0, 0
        self._progress = progress.LogProgress(self._recent)

    def hold_weak(self, found: JobFinding) -> None:
        """A complaint of the tools around the program: the first one counts, for as long as nothing goes on."""
        if self._weak is not None and _AT_THE_END.search(found.message):
            self._weak = None
            return
        if self._weak is None:
            self._weak, self._weak_steps, self._weak_behind = found, 0, 0
            self._weak_progress = progress.LogProgress(self._recent)
        self._weak_until = found.line + _LAST_LINES

    def weak_reason(self, found: JobFinding) -> JobFinding | None:
        """What explains `found`: the module system's complaint, for a command or library that is not there; ssh's, for a launcher that did not reach a node."""
        if found.kind in _LAUNCHES and self._last is not None and _UNREACHED.match(self._last.message):
            return self.take_last()
        lacks_file = found.detail.get("exception") in ("FileNotFoundError", "ModuleNotFoundError")
        if lacks_file and self._last is not None and _NO_DIRECTORY.match(self._last.message):
            return self.take_last()
        weak = self._weak
        if weak is None or not weak.detail.get("modules") or found.line > self._weak_until:
            return None
        if found.kind not in _LACKS and not found.detail.get("missing"):
            return None
        if _PART_OF_PACKAGE.search(found.message):
            return None
        self._weak = None
        return weak

    def after_line(self, line: int, text: str) -> None:
        """A line behind the exception that may have been the last."""
        if self._weak is not None and line != self._weak.line:
            self._weak_steps += progress.is_progress(text) or self._weak_progress.after_line(text)
            if not _NO_WORD.match(text) and not error_line.is_error(text):
                self._weak_behind += text.split()[:1] != self._weak.message.split()[:1]
            if self._weak_steps >= _STEPS or line > self._weak_until or _WENT_WELL.search(text):
                self._weak = None
        if self._last is None or line == self._last.line:
            return
        if _JAVA_FRAME.match(text):
            self._frames_behind += 1
            return
        heading = self._last.kind == "program_error" and self._behind == 0
        if heading and closing.completes(self._last.message, text):
            message = sanitize.clean(f"{self._last.message.strip()} {text.strip()}", 1024)
            detail = {**self._last.detail, "announced": True}
            self.hold(replace(self._last, line=line, message=message, detail=detail))
            return
        self._alike += text.split()[:3] == self._last.message.split()[:3]
        self._steps += progress.is_progress(text) or self._progress.after_line(text)
        self._behind += self._behind < 0 or not _NO_WORD.match(text)
        word = self._last.kind in _TRAILING_KINDS
        most = 0 if self._last.kind == "process_terminated" else _COMMAND_LINES
        over = self._behind > most if word else line - self._last.line - self._frames_behind > _LAST_LINES
        well = _WENT_WELL.search(text) or (_FILE_TOOL.match(self._last.message) and _ENDED.search(text))
        if self._alike > _ALIKE:
            self._listed = self._last.message.split()[:3]
        if self._steps >= _STEPS or over or (word and (well or self._alike > _ALIKE)):
            self._last = None

    def died(self, found: JobFinding) -> None:
        """A process crashed or was killed: the script had gone on without the command that it did not find."""
        of_step = found.kind == "oom_kill_suspected" and found.message.startswith("srun: ")
        if found.kind not in _DEATHS or of_step:
            return
        self._dead = True
        if self._last is not None and self._last.kind == "command_not_found":
            self._last = None
        if self._weak is not None and (
            self._weak.kind == "command_not_found" or self._weak.detail.get("modules")
        ):
            self._weak = None

    def take_last(self, *, at_exit: bool = False) -> JobFinding | None:
        """The exception behind which nothing but an end came; at a bad exit only one that explains it."""
        found, self._last = self._last, None
        weak, self._weak = self._weak, None
        if weak is not None and not at_exit and self._weak_behind > _COMMAND_LINES:
            weak = None
        if weak is not None and found is not None and found.line < weak.line:
            # A line that ends with a colon only announces what follows it.
            announces = found.message.rstrip().endswith(":") or found.detail.get("announced")
            return weak if announces else found
        if weak is not None and (found is None or found.kind in _TRAILING_KINDS):
            return weak
        return None if found and at_exit and found.role is not LineRole.ROOT else found
