"""Decides which finding began the failure, while the log is read.

The rules, in order of strength: an earlier initiating failure is never replaced by what follows from it;
a lost peer, a bad exit and the network's view of a peer's death give way to a failure that explains itself, even if that is
printed later; late reports of Slurm (memory, lost nodes) and errors that only hardware can cause are the cause even after
symptoms; a cancellation or a time limit counts only if nothing failed before it. If the program went on after an error, the
error was survived and caused nothing.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from probing_cluster.evidence import locales, wrapper_lines
from probing_cluster.evidence.joblog import (
    chain,
    grammar,
    late_reports,
    precedence,
    progress,
    teardown,
    unexplained_end,
    units,
)
from probing_cluster.evidence.joblog.grammar import JobFinding, LineRole, Record
from probing_cluster.evidence.joblog.last_errors import cutoff, lasting, sentences, unnamed, work_over
from probing_cluster.evidence.joblog.messages import licences
from probing_cluster.evidence.joblog.messages.communication import unreached
from probing_cluster.evidence.joblog.messages.devices import gpu_hardware

_STEPS, _HANDLED_STEPS = 3, 2
"""So many further steps show that the program went on; so many are enough if the program itself reports that it goes on."""
_COMPLAINS = re.compile(r"\b(?:could not|couldn't|cannot|can't|unable to|failed to)\b", re.IGNORECASE)
_STEPS_AFTER_END, _STEPS_OF_GRACE = 20, 20
"""So many steps so far after Slurm's message of a job's end are another job's, which appends to the same log. Processes that ignore SIGTERM
print on until KillWait is over: so many of their own steps count as one of another job's."""
_BUFFERED_CHARS = 9_000
"""Steps from before the failure can be printed this far after it: standard output is buffered by 8 KiB, error output is not."""
_DOUBT_CHARS = 262_144
"""Without further steps in so much text, the program did not go on."""
_MANY_LINES, _ANNOUNCED_LINES, _GOES_ON_LINES = 20, 3, 3
_HEADING = re.compile(r"\W*(?:fatal )?errors?\W*", re.IGNORECASE)
_JOB_CANCELLED = re.compile(r"\*\*\* JOB (?P<job>\d{1,12})\S* .{0,300}?CANCELLED AT (?P<at>\S{10,30})")


class CauseCandidates:
    """The candidates found so far and the best of them."""

    def __init__(self) -> None:
        self.best: int | None = None
        self.held: list[JobFinding] = []
        self._judged = 0
        """So many findings stood before the program last went on; those that can be survived are marked."""
        self.settled = False
        self.recent: deque[str] = deque(maxlen=progress.LOOK_BACK_LINES)
        """The lines read last, with their prefixes."""
        self._job: tuple[str, str, int] | None = None
        """The job that Slurm cancelled last: its number, the instant, and how many findings were held by then."""
        self._test: int | None = None
        """How many findings were held when the running test began."""
        self._forget()

    def _forget(self, *, exited: bool = False) -> None:
        self._entry: progress.Entry | None = None
        """Entry of a numbered list that holds the best candidate."""
        self._progress = progress.LogProgress()
        self._chars = self._late_steps = 0
        self._exited = exited
        """Whether a bad exit was reported after the best candidate."""
        self._doubted: int | None = None
        self._script, self._after_exit = progress.ScriptLines(), progress.AfterExit()

    def _note(self, index: int, **more: Any) -> JobFinding:
        """Add to the detail of a held finding."""
        self.held[index] = now = replace(self.held[index], detail={**self.held[index].detail, **more})
        return now

    def _clear(self, index: int, name: str) -> None:
        """Take a field out of the detail of a held finding."""
        detail = {k: v for k, v in self.held[index].detail.items() if k != name}
        self.held[index] = replace(self.held[index], detail=detail)

    def _mark(self, *indices: int) -> None:
        """Mark these findings as survived."""
        for i in indices:
            self._note(i, survived=True)

    @property
    def candidate(self) -> JobFinding | None:
        """The best candidate, as long as nothing is settled."""
        return None if self.best is None or self.settled else self.held[self.best]

    @property
    def is_open(self) -> bool:
        """Whether there is no cause so far, or only a command of the script that died before its work began."""
        best = self.candidate
        return self.best is None or (best is not None and progress.work_began(best, self._progress))

    def add(self, finding: JobFinding) -> None:
        """Hold `finding`; it may become the first cause or complete it."""
        finding = unnamed.marked(cutoff.named(unreached.named(licences.named(gpu_hardware.named(finding)))))
        finding = late_reports.confirmed(teardown.after_work(finding, self.recent), self.candidate)
        if progress.announces_recovery(finding.message) and progress.can_be_survived(finding):
            finding = replace(finding, detail={**finding.detail, "handled": True, "goes_on": True})
        if self.settled:
            self.held.append(finding)
            return
        failed = finding.role not in (LineRole.OBSERVATION, LineRole.END)
        if self.best is not None and self._progress.resumed(self.held[self.best].kind, failed=failed):
            self.next_run(finding.line)
        best = self.candidate
        later = self.in_doubt and unexplained_end.is_later(finding, best, self._progress, exited=self._exited)
        if self.best is not None and self.is_open:
            if unexplained_end.is_own_statement(finding):
                self._survived(listed=True)
            elif unexplained_end.lacks(finding):  # perhaps what the command did not write
                finding = replace(finding, role=LineRole.OBSERVATION)
        elif later:
            self._survived()
        self._progress.failed(finding)
        if finding.role is LineRole.EXIT or "follows" in finding.detail:
            self._keep_exit()
        self._not_survived(finding)
        self.held.append(finding)
        if finding.role is LineRole.END:
            self._next_job(finding)
        best = self.held[self.best] if self.best is not None else None
        if late_reports.replaces(finding, best, self.held):
            if self.best is not None and best is not None and precedence.refuted(best, finding):
                self._note(self.best, survived=True)
            self.best = len(self.held) - 1
            if (sent := unexplained_end.signal_before(finding, self.held[:-1])) is not None:
                self.held[sent] = replace(self.held[sent], role=LineRole.EXIT)
                self.best = sent
            if (reason := precedence.named_before(finding, self.held[:-1])) is not None:
                self.best, self.held[reason[0]] = reason
            self._forget(exited=reason is not None and finding.role is LineRole.EXIT)
            self._progress = progress.LogProgress(self.recent, finding.message, lasting.units_needed(finding))
            self._entry = progress.entry(finding.message)
            self._judged = min(self._judged, self.best)
            for earlier in (f for f in self.held[self._judged : -1] if "survived" not in f.detail):
                self.held[self.best] = grammar.enrich(self.held[self.best], earlier)
        elif self.best is not None:
            best = licences.with_reason(self.held[self.best], finding)
            self.held[self.best] = grammar.enrich(best, finding)

    def _keep_exit(self) -> None:
        """A launcher reports an exit: it is the best candidate's, even if the script goes on."""
        self._exited = True
        if self.best is not None:
            self._clear(self.best, "script_went_on")

    def _next_job(self, finding: JobFinding) -> None:
        """Jobs that append to one log: lines before another job's end belong to that job."""
        found = _JOB_CANCELLED.search(finding.message)
        if found is None:
            return
        job, self._job = self._job, (found["job"], found["at"], len(self.held))
        # The components of a heterogeneous job are cancelled at the same instant.
        if job is None or job[0] == found["job"] or job[1] == found["at"]:
            return
        self._choose_from(job[2], len(self.held) - 1)

    def next_run(self, line: int) -> None:
        """The lines before `line` belong to an earlier job, or an earlier run, that wrote to the same log."""
        if self.settled:
            return
        began = next((i for i, f in enumerate(self.held) if f.line >= line), len(self.held))
        self._mark(*range(began))
        self._choose_from(began, len(self.held))
        self._forget()

    def refute(self, first: int, last: int, *, restarted: bool = False) -> None:
        """Later lines refute the errors in the lines `first` to `last`, and the reasons that were looked up for them; `lasting.refutable`."""
        self._mark(*lasting.refutable(self.held, first, last, restarted=restarted))
        if not self.settled and self.best is not None and "survived" in self.held[self.best].detail:
            self._choose_from(self._judged, len(self.held))
            self._forget()

    def _choose_from(self, first: int, end: int) -> None:
        """Choose the best candidate anew, among the findings `first` to `end`."""
        self.best, self._judged = None, min(self._judged, first)
        for i in range(first, end):
            now = self.held[i]
            best: JobFinding | None = None if self.best is None else self.held[self.best]
            if not now.detail.get("survived") and precedence.outranks(now, best):
                self.best = i

    def announced(self, line: int) -> None:
        """A traceback begins at `line`. The current candidate just above it is then a heading (it ends with a colon) or unattributed."""
        if self.best is None or self.settled:
            return
        best = self.held[self.best]
        if best.detail.get("alone") and line > best.line + 1:
            # The candidate has no traceback and another exception follows: the candidate did not end this program.
            best = self._note(self.best, unattributed=True)
        near = 0 < line - best.line <= _ANNOUNCED_LINES
        if near and "exception" in best.detail and best.message.rstrip().endswith(":"):
            self._note(self.best, wrapper=True)

    def handled_at(self, lines: Collection[int]) -> None:
        """One handler printed the exceptions at `lines` and went on each time."""
        for i, finding in enumerate(self.held):
            if finding.line in lines and not finding.detail.get("handled"):
                self._note(i, handled=True, goes_on=True)

    def take_interruption(self, last_line: int, behind: Callable[[int], list[str]]) -> None:
        """Make a reported interruption shortly before the end the first cause, if nothing else explains the end, and that is not one with code 0."""
        if self.settled or (self.best is None and work_over.ended_well(behind(0))):
            return
        first = unexplained_end.interruption(self.held, self.candidate, last_line)
        if first is not None:
            self.held[first] = replace(self.held[first], role=LineRole.EXIT)
            self.best = first

    def take_stall(self, last_line: int, only_lists: Callable[[int], bool], *, ended: str = "") -> None:
        """Make a warning about stalled ranks or a lost store the first cause, if nothing else explains the end at `last_line`; `unexplained_end.stall`."""
        if self.best is not None or self.settled:
            return
        self.best = unexplained_end.stall(self.held, last_line, only_lists, ended=ended)
        if self.best is not None:
            self.held[self.best] = replace(self.held[self.best], role=LineRole.SYMPTOM)
            self._forget()

    def add_last(self, finding: JobFinding) -> None:
        """Hold an error from the end of the log; after a lost peer that nothing replaces it is the consequence and is dropped."""
        best = self.candidate
        if best is not None and unexplained_end.is_consequence(finding, best):
            self._keep_exit()
            return
        ended = best is not None and best.role is LineRole.EXIT and finding.line > best.line
        if ended and finding.detail.get("launch"):
            return  # the launcher's own complaint about the end
        self.add(finding)

    @property
    def in_doubt(self) -> bool:
        """True while further lines can still show whether the program went on."""
        if self.settled or self._chars > _DOUBT_CHARS:
            return False
        if self.best is None:
            return self._doubted is not None and self._chars <= _BUFFERED_CHARS
        best = self.held[self.best]
        can_go_on = progress.can_be_survived(best) or progress.can_be_outlived(best)
        return self._entry is not None or can_go_on or best.role is LineRole.END

    def after_line(self, record: Record, *, overwritten: bool = False) -> None:
        """Take a line after a failure `in_doubt`: it may show that the program goes on."""
        self._chars += len(record.text)
        if self.best is None:
            return
        best = self.held[self.best]
        if progress.can_be_outlived(best):
            advanced = self._progress.after_line(record.text) and self._chars > _BUFFERED_CHARS
            if self._after_exit.went_on(record.text, advanced=advanced):
                self._survived(listed=True)
            elif self._progress.steps == _STEPS:
                self._note(self.best, worked_on=True)
            return
        raised = best.kind in ("python_exception", "import_error")
        if raised and not record.labelled and not self._exited and progress.is_of_script(record.text):
            best = self._note(self.best, script_went_on=True)
        near = best.role is not LineRole.END and 0 <= record.line - best.line <= _GOES_ON_LINES
        falls_back = raised and record.rank == best.rank and sentences.falls_back(record.text, best.message)
        recovers = falls_back or progress.announces_recovery(record.text)
        if near and recovers and not self._is_of_another(record, best):
            best = self._note(self.best, handled=True, goes_on=True)
        if record.of_worker and best.pid is None:
            # Ray forwards its workers' output. It is no evidence about the driver, which failed.
            return
        apart = None not in (best.rank, record.rank) and best.rank != record.rank
        if apart and self._chars <= _BUFFERED_CHARS and not lasting.is_soon_handled(best):
            return
        if self._entry is not None and progress.follows(record.text, self._entry):
            self._survived(listed=True)
            return
        if best.role is LineRole.END:
            own = self._progress.of_same_run(record.text)
            if self._progress.after_line(record.text) and self._chars > _BUFFERED_CHARS:
                self._late_steps += 1 if own else _STEPS_OF_GRACE
            if self._progress.resumed(best.kind) or self._late_steps >= _STEPS_AFTER_END * _STEPS_OF_GRACE:
                self.next_run(record.line)
            return
        if not progress.can_be_survived(best):
            return
        made_up = best.kind.startswith("nccl_") and units.made_up_for(best.message, record.text)
        if made_up or (not self._exited and self._script.go_on(best.message, best.kind, record.text)):
            self._survived()
            return
        if not self._exited and units.succeeded(record.text, best.message):
            self._survived(doubted=self.best)
            return
        if self._progress.after_line(record.text, live=overwritten or record.dated):
            self._late_steps += self._chars > _BUFFERED_CHARS
        handled = best.detail.get("handled") and self._progress.steps >= (_STEPS if apart else _HANDLED_STEPS)
        if handled or self._late_steps >= _STEPS:
            self._survived()
        elif self._progress.live >= _STEPS:
            self._survived(doubted=self.best)

    def _is_of_another(self, record: Record, best: JobFinding) -> bool:
        """Whether the recovery belongs to a complaint between the best candidate and this line."""
        above = next(iter(reversed(self.recent)), "")
        return record.line - best.line > 1 and _COMPLAINS.search(above) is not None

    def _survived(self, doubted: int | None = None, *, listed: bool = False) -> None:
        """The program went on: mark every failure so far as survived. One with few lines after it stays `doubted`.

        `listed`: the best candidate is an entry of a list that goes on; it was survived, whatever its kind.
        """
        for i in range(self._judged, len(self.held)):
            if (listed and i == self.best) or progress.can_be_survived(self.held[i]):
                self._note(i, survived=True)
        self._judged, chars = len(self.held), self._chars
        self.best = None
        self._forget()
        self._doubted, self._chars = doubted, chars

    def _not_survived(self, finding: JobFinding) -> None:
        """A bad exit or a sum of failures may follow a doubted failure at once: others went on, this one did not."""
        index = unexplained_end.followed(finding, self.held)
        if index is None and self._doubted is not None and unexplained_end.sums_up(finding):
            index, self._doubted = (self._doubted if self._chars <= _BUFFERED_CHARS else None), None
        if index is None or self.best is not None or self.settled:
            return
        doubted = self.held[index]
        if doubted.late or doubted.role is LineRole.REMOTE or doubted.detail.get("handled"):
            return
        self._clear(index, "survived")
        self.best, self._judged = index, min(self._judged, index)

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
        self._mark(*range(began, len(self.held)))
        if self.best is not None and self.best >= began:
            self.best = None
            self._forget()

    def fill_rank(self, line: int, rank: int) -> None:
        """A launcher named the rank of the failure printed just before `line`."""
        best = self.candidate
        if best is not None and self.best is not None and best.rank is None and 0 < line - best.line <= 3:
            self.held[self.best] = replace(best, rank=rank)

    def take_own_end(self, behind: Callable[[int], list[str]], of_one: Callable[[int, int], bool]) -> None:
        """Make the exception with which a single process ended the first cause (`unexplained_end.last_error`), or an earlier end before another's complaint."""
        if (best := self.candidate) is None:
            return
        left = unexplained_end.earlier_end(best, self.held)
        last = unexplained_end.last_error(best, self.held, behind, of_one) if left is None else left
        if last is not None:
            self.best, found = last, self.held[last]
            self.held[last] = replace(found, role=found.role or LineRole.ROOT)
            self._clear(last, "survived")

    def note_lines_after(self, behind: Callable[[int], list[str]]) -> None:
        """Record how many lines the job printed after the best candidate, as `behind` gives them, the last one, and the last that no wrapper printed. A bare heading with much output after it is no cause, nor is a thread's exception if success is reported after it, a loss after the work, nor a node that Ray did without."""
        if self.best is None or self.settled:
            return
        best = self.held[self.best]
        lines = wrapper_lines.behind_node(behind(best.line))
        if not self._exited and unexplained_end.is_replaced(best, self.held, lines):
            self.best = None
            return
        bare = len(lines) >= _MANY_LINES and _HEADING.fullmatch(best.message.strip())
        outlived = unexplained_end.thread_outlived(best, self.held, lines)
        if bare or (not self._exited and (outlived or teardown.is_teardown(best, self.held, lines))):
            self.best = None
        elif lines:
            self._note(self.best, **unexplained_end.words_behind(lines, self.held))

    def settle(self) -> list[JobFinding]:
        """Release all findings; the first call marks the first cause."""
        if self.candidate and unexplained_end.explains_nothing(self.candidate, self.held):
            self.best = None
        if self.best is not None and not self.settled:
            best = precedence.with_absent_ranks(self.held[self.best], self.held)
            best = unexplained_end.with_endless(best, self.held)
            detail = {**chain.with_raised(best, self.held).detail, **locales.translation(best.message)}
            if best.kind != "collective_mismatch":
                detail = {k: v for k, v in detail.items() if k != "ops"}
            self.held[self.best] = replace(best, first_cause=True, detail=detail)
        self.settled = True
        settled, self.held = self.held, []
        return settled
