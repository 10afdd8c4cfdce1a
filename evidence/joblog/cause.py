"""Which finding began the failure, decided while the log streams by.

The rules, in order of strength: an earlier initiating failure is never replaced by what follows from it;
a peer that went away and a bad exit give way to a failure that explains itself, whenever it is printed, and so does
what a peer's death looks like from the network; what Slurm reports long after the event (memory, lost nodes) and what
only hardware can say gives the cause even behind symptoms; endings count from where they are printed. An error behind
which the program went on was survived and caused nothing.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from probing_cluster.core import sanitize
from probing_cluster.evidence.joblog import grammar, precedence, progress
from probing_cluster.evidence.joblog.grammar import JobFinding, LineRole, Record
from probing_cluster.evidence.joblog.messages import gpu_hardware

_STEPS = 3
"""So many further steps say that the program went on."""
_HANDLED_STEPS = 2
"""So many do where the program itself says that it goes on."""
_GOES_ON = re.compile(
    r"\(optional\)|\b(?:skip(?:ping|ped)|retr(?:y(?! counts?\b| limit)|ying|ied)|re-?trying|trying to restart|re-?submitt(?:ed|ing)|trying (?:again|(?:a )?smaller|(?:with )?\d+)|fall(?:ing)? ?back(?![./\w-])|continu(?:e|ing)|(?<!Exception )ignor(?:ed|ing)(?! input$)|halving|reduc(?:ed|ing) (?:the )?(?:micro )?batch|recover(?:ed|ing)|resum(?:e|es|ed|ing))\b",
    re.IGNORECASE,
)
_ADVICE = re.compile(
    r"\b[Yy]ou can\b|\bby setting\b|\b(?:please|try to|to) (?:skip|ignore|continue|retry|resume)\b"
)
"""What the reader of the log might do is not what the program does."""
_WARNED = re.compile(r"\W{0,3}(?:[\d:/., TZ-]{8,40}\W{0,3})?WARN(?:ING)?\b")
"""The level that a program gives to what it lives with."""
_GOES_ON_LINES = 3
_COMPLAINS = re.compile(r"\b(?:could not|couldn't|cannot|can't|unable to|failed to)\b", re.IGNORECASE)
_BUFFERED_CHARS = 9_000
"""Steps of before the failure can stand this far behind it: error output is not buffered, standard output is, by 8 KiB."""
_DOUBT_CHARS = 262_144
"""Without further steps in so much text it did not go on."""
_NEVER_SURVIVED = frozenset({"host_oom_kill", "collective_mismatch"})
"""Reports that come at the end, beside everything that Slurm says."""
_UNEXPLAINED = frozenset({"task_exit", "slurm_task_failure", "python_consequence", "process_aborted"})
"""Ends that say nothing of their reason."""
_LAST_CHARS = 200
_MANY_LINES = 20
_HEADING = re.compile(r"\W*(?:fatal )?errors?\W*", re.IGNORECASE)
_SIGNAL_LINES = 1_000
_ANNOUNCED_LINES = 3
_INTERRUPTED_LINES = 40
_STALLS, _STALL_LINES = 2, 40
"""So many lines at the most lists a warning of ranks that stand still."""
_RAISED = re.compile(
    r"(?:[A-Za-z_]\w{0,60}\.){0,8}[A-Z]\w{0,60}(?:Error|Exception|Interrupt|Exit): |.{0,200}\bMain process received SIG\w{3,6}, exiting"
)
"""An exception that tells of a signal, or a launcher that ends with it."""
_JOB_CANCELLED = re.compile(r"\*\*\* JOB (?P<job>\d{1,12})\S* .{0,300}?CANCELLED AT (?P<at>\S{10,30})")
_TERMINATED_CODE = 143
_LAUNCHER = re.compile(r"death signal, shutting down workers")


def _can_be_survived(finding: JobFinding) -> bool:
    """Whether the program can go on behind it; what Slurm and the kernel report at the end is final."""
    of_slurm = finding.kind.startswith("slurm_") and "launcher" not in finding.detail
    if of_slurm or (finding.kind in _NEVER_SURVIVED and not finding.detail.get("retried")):
        return False
    return finding.role in (LineRole.ROOT, LineRole.SYMPTOM, LineRole.REMOTE)


def _announces_recovery(text: str) -> bool:
    """Whether the program speaks of going on; a line of progress counts what was skipped long ago."""
    goes_on = _GOES_ON.search(text) is not None or _WARNED.match(text) is not None
    return goes_on and not _ADVICE.search(text) and not progress.is_progress(text)


class CauseCandidates:
    """The candidates seen so far and the best of them."""

    def __init__(self) -> None:
        self.best: int | None = None
        self.held: list[JobFinding] = []
        self.settled = False
        self.recent: deque[str] = deque(maxlen=progress.LOOK_BACK_LINES)
        """The lines read last, with their prefixes."""
        self._job: tuple[str, str, int] | None = None
        """The job that Slurm cancelled last: its number, the instant, and how many findings were held by then."""
        self._test: int | None = None
        """How many findings were held when the running test began."""
        self._forget()

    def _forget(self) -> None:
        self._entry: progress.Entry | None = None
        """Of the numbered list that the best candidate stands in."""
        self._progress = progress.LogProgress()
        self._chars = 0
        self._late_steps = 0
        self._exited = False
        """Whether a bad exit was told of behind the best candidate."""
        self._doubted: int | None = None
        self._script = progress.ScriptLines()

    @property
    def candidate(self) -> JobFinding | None:
        """The best candidate, as long as nothing is settled."""
        return None if self.best is None or self.settled else self.held[self.best]

    def add(self, finding: JobFinding) -> None:
        """Hold `finding`; it may become the first cause or complete it."""
        finding = gpu_hardware.named(finding)
        if finding.role is LineRole.ROOT and self.in_doubt and self._progress.steps >= _STEPS:
            self._survived()
        if finding.role is LineRole.EXIT:
            self._keep_exit()
        if finding.kind in _UNEXPLAINED and finding.role in (LineRole.EXIT, LineRole.REMOTE):
            self._not_survived()
        if _announces_recovery(finding.message) and _can_be_survived(finding):
            finding = replace(finding, detail={**finding.detail, "handled": True, "goes_on": True})
        self.held.append(finding)
        if self.settled:
            return
        if finding.role is LineRole.END:
            self._next_job(finding)
        best = self.held[self.best] if self.best is not None else None
        if precedence.outranks(finding, best):
            if self.best is not None and best is not None and precedence.refuted(best, finding):
                self.held[self.best] = replace(best, detail={**best.detail, "survived": True})
            self.best = len(self.held) - 1
            if finding.detail.get("terminated") or finding.detail.get("exit_code") == _TERMINATED_CODE:
                self._take_signal(finding.line)
            if (reason := precedence.named_before(finding, self.held[:-1])) is not None:
                self.best, self.held[reason[0]] = reason
            self._forget()
            self._progress = progress.LogProgress(self.recent)
            self._entry = progress.entry(finding.message)
            for earlier in self.held[:-1]:
                self.held[self.best] = grammar.enrich(self.held[self.best], earlier)
        elif self.best is not None:
            self.held[self.best] = grammar.enrich(self.held[self.best], finding)

    def _keep_exit(self) -> None:
        """A launcher tells of an exit: the best candidate's own, whatever the script does besides."""
        self._exited = True
        if self.best is not None and "script_went_on" in self.held[self.best].detail:
            best = self.held[self.best]
            detail = {k: v for k, v in best.detail.items() if k != "script_went_on"}
            self.held[self.best] = replace(best, detail=detail)

    def _take_signal(self, line: int) -> None:
        """What was told to end died of it: the signal, if somebody said that it came, is the first."""
        for i, earlier in enumerate(self.held[:-1]):
            near = line - earlier.line <= _SIGNAL_LINES and not earlier.detail.get("survived")
            if near and earlier.kind == "process_terminated" and earlier.role is LineRole.OBSERVATION:
                self.held[i] = replace(earlier, role=LineRole.EXIT)
                self.best = i
                return

    def _next_job(self, finding: JobFinding) -> None:
        """Jobs that append to one log: what stands before another one's end was that one's."""
        found = _JOB_CANCELLED.search(finding.message)
        if found is None:
            return
        job, self._job = self._job, (found["job"], found["at"], len(self.held))
        # The components of a heterogeneous job are cancelled at the same instant.
        if job is None or job[0] == found["job"] or job[1] == found["at"]:
            return
        self.best = None
        for i in range(job[2], len(self.held) - 1):
            now = self.held[i]
            if not now.detail.get("survived") and precedence.outranks(
                now, None if self.best is None else self.held[self.best]
            ):
                self.best = i

    def announced(self, line: int) -> None:
        """A traceback begins in `line`. A candidate just above it is then a heading (it ends with a colon), or of an unknown program."""
        if self.best is None or self.settled:
            return
        best = self.held[self.best]
        if best.detail.get("alone") and line > best.line + 1:
            # An exception's line without a traceback, and another one's below other lines: the first did not end this program.
            best = self.held[self.best] = replace(best, detail={**best.detail, "unattributed": True})
        if (
            0 < line - best.line <= _ANNOUNCED_LINES
            and "exception" in best.detail
            and best.message.rstrip().endswith(":")
        ):
            self.held[self.best] = replace(best, detail={**best.detail, "wrapper": True})

    def take_interruption(self, last_line: int) -> None:
        """Nothing else explains the end: the program was interrupted from outside shortly before it, if somebody said so.

        A signal that was only received may be how a server is told to stop: it counts where something then ended badly.
        """
        if self.settled:
            return
        best = None if self.best is None else self.held[self.best]
        if best is not None and best.kind not in _UNEXPLAINED:
            return
        if best is not None and not (best.kind == "python_consequence" and self._interrupted(last_line)):
            # A launcher's or a report's word of the end, below what the program said; broken connections follow or precede it.
            last_line = best.line
            if not self._interrupted(last_line):
                return
        last = [
            i
            for i, f in enumerate(self.held)
            if 0 <= last_line - f.line <= _INTERRUPTED_LINES and not f.detail.get("survived")
        ]
        ended = [i for i in last if self.held[i].kind in ("interrupted", "process_terminated")]
        ends = [self.held[i] for i in ended]
        died = any("exit_code" in f.detail or _RAISED.match(f.message) for f in ends)
        if died or any(f.kind == "interrupted" for f in ends):
            first = self._launcher_end(ended[0])
            self.held[first] = replace(self.held[first], role=LineRole.EXIT)
            self.best = first

    def _interrupted(self, last_line: int) -> bool:
        """Whether the program said shortly before `last_line` that it was interrupted."""
        near = (f for f in self.held if 0 <= last_line - f.line <= _INTERRUPTED_LINES)
        return any(f.kind == "interrupted" and not f.detail.get("survived") for f in near)

    def take_stall(self, last_line: int, only_lists: Callable[[int], bool], *, ended: bool = False) -> None:
        """Nothing else explains the end at `last_line`: ranks stood still in a collective until then.

        The first counts of warnings that followed each other soon. `only_lists`: whether nothing of weight stands behind a line;
        `ended`: Slurm ended the job, and a single warning does not say that it waited in vain.
        """
        if self.best is not None or self.settled:
            return
        stalls: list[int] = []
        for i in range(len(self.held) - 1, -1, -1):
            if not self.held[i].detail.get("stalled"):
                continue
            if (self.held[stalls[-1]].line if stalls else last_line) - self.held[i].line > _STALL_LINES:
                break
            stalls.append(i)
        if len(stalls) < (_STALLS if ended else 1) or not only_lists(self.held[stalls[0]].line):
            return
        self.best = stalls[-1]
        self.held[self.best] = replace(self.held[self.best], role=LineRole.SYMPTOM)
        self._forget()

    def _launcher_end(self, end: int) -> int:
        """What told a launcher to end shortly before a rank's interruption `end`; the interruption where nothing did."""
        for i, earlier in enumerate(self.held[:end]):
            near = self.held[end].line - earlier.line <= _SIGNAL_LINES and not earlier.detail.get("survived")
            if near and earlier.kind == "process_terminated" and _LAUNCHER.search(earlier.message):
                return i
        return end

    def add_last(self, finding: JobFinding) -> None:
        """Hold what may have been the program's last word: of a peer that went away before it, it is the consequence."""
        best = self.held[self.best] if self.best is not None else None
        if best is not None and best.role is LineRole.REMOTE and finding.kind == "program_error":
            return
        self.add(finding)

    @property
    def in_doubt(self) -> bool:
        """True while further lines could show that the program lived on, or that it did not after all."""
        if self.settled or self._chars > _DOUBT_CHARS:
            return False
        if self.best is None:
            return self._doubted is not None and self._chars <= _BUFFERED_CHARS
        return self._entry is not None or _can_be_survived(self.held[self.best])

    def after_line(self, record: Record, *, overwritten: bool = False) -> None:
        """A line behind a failure `in_doubt`: does the program go on?"""
        self._chars += len(record.text)
        if self.best is None:
            return
        best = self.held[self.best]
        own = best.kind in ("python_exception", "import_error") and not record.labelled
        if own and not self._exited and progress.is_of_script(record.text):
            self.held[self.best] = best = replace(best, detail={**best.detail, "script_went_on": True})
        near = 0 <= record.line - best.line <= _GOES_ON_LINES
        if near and _announces_recovery(record.text) and not self._is_of_another(record, best):
            detail = {**best.detail, "handled": True, "goes_on": True}
            self.held[self.best] = best = replace(best, detail=detail)
        if record.of_worker and best.pid is None:
            # Ray shows what its workers print, each with its process: of the driver, which failed, they tell nothing.
            return
        if (
            None not in (best.rank, record.rank)
            and best.rank != record.rank
            and self._chars <= _BUFFERED_CHARS
        ):
            return
        if self._entry is not None and progress.follows(record.text, self._entry):
            self._survived(listed=True)
            return
        if not _can_be_survived(best):
            return
        if best.kind.startswith("nccl_") and progress.made_up_for(best.message, record.text):
            self._survived()
            return
        if not self._exited and self._script.go_on(best.message, best.kind, record.text):
            self._survived()
            return
        if self._progress.after_line(record.text, overwritten=overwritten):
            self._late_steps += self._chars > _BUFFERED_CHARS
        handled = best.detail.get("handled") is True and self._progress.steps >= _HANDLED_STEPS
        if handled or self._late_steps >= _STEPS:
            self._survived()
        elif self._progress.live >= _STEPS:
            self._survived(doubted=self.best)

    def _is_of_another(self, record: Record, best: JobFinding) -> bool:
        """Whether what goes on is what a line between complained of: something else than the best candidate."""
        above = next(iter(reversed(self.recent)), "")
        return record.line - best.line > 1 and _COMPLAINS.search(above) is not None

    def _survived(self, doubted: int | None = None, *, listed: bool = False) -> None:
        """The program lived on: every failure so far caused nothing; one followed by few lines stays `doubted`.

        `listed`: the best candidate stands in a list that goes on, whoever is said to have printed it.
        """
        over = self.best if listed else None
        self.held = [
            replace(f, detail={**f.detail, "survived": True}) if i == over or _can_be_survived(f) else f
            for i, f in enumerate(self.held)
        ]
        chars = self._chars
        self.best = None
        self._forget()
        self._doubted, self._chars = doubted, chars

    def _not_survived(self) -> None:
        """A bad end that nothing explains, right behind it: other ranks went on for a while, this one did not."""
        index, self._doubted = self._doubted, None
        if index is None or self.best is not None or self.settled or self._chars > _BUFFERED_CHARS:
            return
        doubted = self.held[index]
        if doubted.late or doubted.role is LineRole.REMOTE or doubted.detail.get("handled"):
            return
        detail = {k: v for k, v in doubted.detail.items() if k != "survived"}
        self.held[index] = replace(doubted, detail=detail)
        self.best = index

    def test_began(self) -> None:
        """A test of a test suite begins."""
        self._test = len(self.held)

    def test_succeeded(self, *, whole_session: bool = False) -> None:
        """A test succeeded: every finding since it began was intended and caused nothing.

        `whole_session`: a session of tests succeeded, whose first line may be missing from the log.
        """
        if self.settled or (self._test is None and not whole_session):
            self.test_began()
            return
        began, self._test = self._test or 0, None
        for i in range(began, len(self.held)):
            self.held[i] = replace(self.held[i], detail={**self.held[i].detail, "survived": True})
        if self.best is not None and self.best >= began:
            self.best = None
            self._forget()

    def fill_rank(self, line: int, rank: int) -> None:
        """A launcher named the rank of the failure printed just before `line`."""
        if self.best is not None and not self.settled:
            best = self.held[self.best]
            if best.rank is None and 0 < line - best.line <= 3:
                self.held[self.best] = replace(best, rank=rank)

    def take_first_exit(self) -> None:
        """A task that left with a code of its own before another one raised an exception, or missed its peer: the first was it."""
        if self.best is not None and not self.settled:
            left = precedence.left_before(self.held[self.best], self.held)
            self.best = self.best if left is None else left

    def note_lines_after(self, behind: Callable[[int], list[str]]) -> None:
        """Keeps with the best candidate how much the job still printed behind it, by `behind`, and the last of that."""
        if self.best is None or self.settled:
            return
        best = self.held[self.best]
        lines = behind(best.line)
        if len(lines) >= _MANY_LINES and _HEADING.fullmatch(best.message.strip()):
            # It announced nothing that anybody understood, and much came after it.
            self.best = None
        elif lines:
            more = {"behind": len(lines), "last_words": sanitize.clean(lines[-1], _LAST_CHARS)}
            self.held[self.best] = replace(best, detail={**best.detail, **more})

    def settle(self) -> list[JobFinding]:
        """Everything held, the first cause marked the first time."""
        if self.best is not None and not self.settled:
            best = precedence.with_absent_ranks(self.held[self.best], self.held)
            detail = best.detail
            if best.kind != "collective_mismatch":
                detail = {k: v for k, v in detail.items() if k != "ops"}
            self.held[self.best] = replace(best, first_cause=True, detail=detail)
        self.settled = True
        settled, self.held = self.held, []
        return settled
