"""Follows what later lines refute: errors of a unit of work that was tried again with success, of a step that the script ended itself, in a text that a model wrote.

Every form needs two lines: one that says what is tried again, and one that shows that this very unit came to a good end. The end of
the whole job proves nothing, because a script's last words come after a failure, too.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Reversible, Sequence
from dataclasses import dataclass, field
from itertools import islice

from probing_cluster.evidence.joblog import grammar, units
from probing_cluster.evidence.joblog.last_errors import closing, judged, levels, lines_behind, remedies

TRIGGERS = (
    "retry", "Retry", "Trying to restart", "estarting", "estoring trial", "run again", "try again", "esubmit", "alling back", "Starting task ",
    "SKIPPING OPTIONAL", "is an optional dependency", "scancel ", "scontrol requeue ", "### ", "e restarted",
    *judged.TRIGGERS, *remedies.TRIGGERS,
)  # fmt: skip
"""A line without any of these begins nothing that this module follows."""
_LINES, _LEAD_LINES = 40, 8
"""An attempt's error stands at most so many lines above the line that announces the next attempt, and above the first that names its unit."""
_MAX_CHARS, _MAX_NAMES, _MAX_WAIT_LINES = 400, 256, 20_000
_AGAIN = re.compile(
    r"\b(?:restoring trial|retr(?:y(?! counts?\b| limit| attempts?\b|-after)|ying|ied)|re-?trying|trying to restart|restarting|be restarted|re-?submitt(?:ed|ing)|(?:run(?:ning)?|try(?:ing)?) (?:it )?again|falling back)\b",
    re.IGNORECASE,
)
_NOUNS = r"(?:job|task|trial|run|chunk|sample|fold|experiment|item|record|block|scene|case|config|subject|tile|unit|segment)"
_NAME = re.compile(
    rf"\b(?P<noun>{_NOUNS})(?: run)?(?:[ _]?id)?[ :#=_-]{{1,3}}(?P<name>(?=[^\s,;]{{0,60}}\d)[\w./-]{{1,80}}(?:\[[\w-]{{1,40}}\])?)"
    rf"|\b(?:{_NOUNS}|step|op|flow)(?: run)? ['\"`](?P<quoted>[\w./-]{{2,80}})['\"`]|\b(?:attempt|try|retry)[ #]{{1,2}}(?P<attempt>\d{{1,3}})\b|\b(?:after|in) (?P<attempts>\d{{1,3}}) (?:attempts|tries|retries)\b"
    r"|\b(?!(?:rc|ret|exit\w{0,5}|code|status|retr\w{1,4}|attempts?|tr(?:y|ies)|pid|rank|node|host|port|timeout|delay|wait|sleep|backoff|errno|signal|seed|gpu|device|step|epoch|iter\w{0,6})=)(?P<key>[A-Za-z]\w{0,30})=(?P<value>\d\w{0,20})\b",
    re.IGNORECASE,
)
"""The name of a unit of work, or the setting with which it is tried."""
_ATTEMPT = "attempt"
"""Stands for a unit that only its attempts name."""
_ACTION = re.compile(
    r"\bre-?try(?:ing)? (?:the |an? |\d{1,4} )?(?:failed )?(?P<action>[a-z]{4,12}?)s?\b(?: of (?:the |an? )?(?P<of>[a-z]\w{2,30}(?: \d{1,9})?))?"
)
_SAME_ACTIONS = {
    "commit": "upload",
    "push": "upload",
    "publish": "upload",
    "fetch": "download",
    "pull": "download",
}
"""What brings the work to a server, or from it, goes by several names."""
_DONE = re.compile(r"\b(?P<action>[a-z]{2,12}?)(?P<last>[a-z])(?:(?P=last)|e)??e?d\b")
"""The past of such a word."""
_OF_TRANSFER = re.compile(
    r"\b(?:HTTP\w{0,8}|\w{0,20}(?:Client|HTTP|Connection|Connect)Error|[45]\d\d(?= [A-Z])|URL|SSL)\b"
)
"""Words of an error that an action meets which brings something elsewhere; any other error must say that the action failed."""
_TRANSFERS = frozenset({"upload", "download", "updat", "send", "sync", "request", "transfer"})
_NO_ACTION = re.compile(r"\b(?:CUDA|NCCL|cu[A-Z]\w+|HIP|Errno|signal)\b")
"""What a machine, a peer or the system reports may name an action by chance."""
_SPARK = re.compile(
    r"\b(?P<what>Starting|Finished|Lost) task (?P<task>\d{1,9})\.(?P<attempt>\d{1,4}) in stage (?P<stage>[\d.]{1,12})"
)
_WELL = re.compile(
    r"\b(?:finished|completed?|succeeded|success(?:ful(?:ly)?)?|done|passed|ok|returned 0|(?:rc|exit(?:ed)?(?: with)?(?: exit)?(?: code| status)?) ?[=:]? ?0)\b",
    re.IGNORECASE,
)
_ONLY_ENDED = re.compile(r"\b(?:finished|completed?|done)\b", re.IGNORECASE)
"""Of an attempt, such words do not say how it ended."""
_BAD = re.compile(
    rf"\b(?:not|never|without|could|incomplete|partial\w{{0,2}}|unsuccessful\w{{0,2}}|invalid|{remedies.COMPLAINT})\b|{remedies.BAD_CODE}",
    re.IGNORECASE,
)
_OF_SLURM = re.compile(remedies.OF_SLURM)
_TRACE = re.compile(r"\+{1,4} (?=\S)")
_LOOP = re.compile(r"\+{1,4} (?:for|while|select) ")
_BREAK = re.compile(r"\+{1,4} (?:break|exit 0)\s*$")
_ENDS = re.compile(r"\+{1,4} (?:(?:exit|return) [1-9]|false\b)")
_AROUND = re.compile(
    r"\+{1,4} (?:\(\(|let |continue|read |test |seq |tail |head |cat |less |grep |ls |mail |sacct |seff |squeue |scontrol |nvidia-smi|hostname|env$|'\[')"
)
"""Commands around the work: of loops, and looks at what a failed one left behind."""
_OWN_CANCEL = re.compile(r"\+{1,4} (?:/\S{1,80}/)?scancel (?:-\S{1,40} )*\d{1,12}\.\d{1,6}\s*$")
_OWN_REQUEUE = re.compile(r"(?:\+{1,4} )?(?:/\S{1,80}/)?scontrol requeue (?P<job>\d{1,12})\s*$")
_OPTIONAL = re.compile(
    r"npm (?:WARN|warn) optional SKIPPING OPTIONAL DEPENDENCY: |\binfo \"?\S{1,120} is an optional dependency and failed compatibility check\b"
)
"""A package manager does without a part that nothing needs."""
_OF_NPM = re.compile(r"gyp |npm |> \S{1,200}@")
_TURN = re.compile(
    r"\s{0,4}#{2,6} ?(?P<answer>completion|response|answer|generation|assistant|output)?(?(answer)|(?:prompt|question|instruction|user|human|input|task))s? ?#?\d{1,7}\b.{0,20}$|\s{0,4}#{2,6} \d{1,7} (?:prompt|completion|response|answer|question)s\b",
    re.IGNORECASE,
)
"""The numbered heading of a prompt or of a model's answer, or their sum."""


@dataclass(slots=True)
class _Unit:
    """A unit of work that is tried again."""

    failed: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=_MAX_NAMES))
    """First and last lines of its failed attempts."""
    waits: bool = True
    """Whether its last attempt has not ended yet."""


@dataclass(slots=True)
class _Command:
    """A command that the shell traced again, or with which it ended a step of its own."""

    text: str
    first: int
    last: int
    clean: bool = True


class Refutations:
    """Follows one log; `recent` and `tail`: the lines read last, kept by the reader."""

    def __init__(self, recent: Reversible[str], tail: closing.Tail) -> None:
        self._recent = recent
        self._remedies = remedies.Remedies(tail)
        self._judged = judged.Judged(recent)
        self._outlived: deque[tuple[int, int]] = deque(maxlen=_MAX_NAMES)
        """First and last lines of the last errors that a remedy was stated for."""
        self._units: dict[str, _Unit] = {}
        self._announced = 0
        """Line of the last announcement of another attempt."""
        self._below: list[_Unit] = []
        """The units whose traceback may stand right below the announcement."""
        self._command: _Command | None = None
        self._cancel: _Command | None = None
        self._requeued = False
        """Whether Slurm has done so."""
        self._requeue = ""
        """Slurm's words about the end of the job that asked to be queued again; empty without one."""
        self._noted = 0
        """Line of the head of a traceback at the level of a note, while lines of that level follow; 0 without one."""
        self._answer = 0
        """Line of the heading of the model's answer that is open; 0 without one."""

    def following(self, line: int) -> bool:
        """Whether `line`, the next one, matters whatever it contains."""
        waits = bool(self._units) and line <= self._announced + _MAX_WAIT_LINES
        return (
            waits
            or self._command is not None
            or self._cancel is not None
            or self._requeue != ""
            or self._noted > 0
            or self._remedies.following(line)
        )

    @property
    def restarted(self) -> int:
        """The last line that showed a later start of the job to have worked; 0 without one."""
        return self._remedies.restarted

    def covers(self, line: int, held: Sequence[grammar.JobFinding] = ()) -> bool:
        """Whether the work outlived the error in `line`, as the script says itself, or as the lines behind it showed when it was `held`."""
        survived = any(f.line == line and f.detail.get("survived") is True for f in held)
        return survived or any(first <= line <= last for first, last in self._outlived)

    def read(self, line: int, text: str) -> Iterator[tuple[int, int]]:
        """A line of the log, in order; yields first and last lines of errors that it refutes."""
        for lines in self._read(line, text):
            self._outlived.append(lines)
            yield lines

    def _read(self, line: int, text: str) -> Iterator[tuple[int, int]]:
        yield from self._remedies.read(line, text)
        yield from self._judged.read(line, text)
        yield from self._read_turn(line, text)
        yield from self._read_note(line, text)
        text = text[:_MAX_CHARS]
        if _OPTIONAL.search(text):
            yield self._top(line, lambda above: _OF_NPM.match(above) is not None), line
        if found := _OWN_REQUEUE.match(text):
            self._requeue, self._requeued = f"JOB {found['job']} ", False
        elif self._requeue:
            self._requeued |= self._requeue in text and text.endswith("DUE TO JOB REQUEUE ***")
            if self._requeued and units.resumes(text):
                self._requeue = ""
                yield 0, line - 1
        self._extend(line, text)
        if _TRACE.match(text):
            yield from self._read_command(line, text)
        else:
            self._read_output(line, text)
        done = bool(self._units) and not _BAD.search(text)
        if done and _WELL.search(text):
            yield from self._succeeded(text)
        elif _AGAIN.search(text) or _SPARK.search(text):
            self._announce(line, text)
        elif done and _DONE.search(text):
            yield from self._succeeded(text)
        elif self._units and not done:
            for name in _names(text):
                if name in self._units:
                    self._units[name].waits = False

    def _announce(self, line: int, text: str) -> None:
        names = list(_names(text)) or [_ATTEMPT]
        if "falling back" in text.lower():
            names = names[-1:]  # what is tried instead stands behind what failed
        if (spark := _SPARK.search(text)) and not self._starts_again(spark):
            return
        if "estoring trial" in text and not any(names[0] in _names(above) for above in self._recent):
            return  # another trial failed
        self._below = []
        for name in names:
            if name in self._units or len(self._units) < _MAX_NAMES:
                unit = self._units.setdefault(name, _Unit())
                unit.failed.append((max(self._began(line, name), self._announced + 1), line))
                unit.waits = True
                self._below.append(unit)
        if found := _ACTION.search(text):
            self._repeat(line, f"to {_action(found['action'])} {found['of'] or ''}".lower())
        self._announced = line

    def _repeat(self, line: int, name: str) -> None:
        """An action is tried again that its verb names: the error right above the line is meant, with its traceback."""
        error, top = next(iter(reversed(self._recent)), ""), line - 1
        action = name.split()[1]
        brings = action in _TRANSFERS and _OF_TRANSFER.search(error) is not None
        failed = rf"(?:\bto|could not|cannot|unable to|can't|while|during) {action}|\b{action}\w{{0,3}} (?:failed|error)"
        if _NO_ACTION.search(error) or not (brings or re.search(failed, error, re.IGNORECASE)):
            return
        for above in islice(reversed(self._recent), 1, _LINES):
            if not (above[:1].isspace() or grammar.TRACEBACK in above):
                break
            top -= 1
        if name in self._units or len(self._units) < _MAX_NAMES:
            unit = self._units.setdefault(name, _Unit())
            unit.failed.append((top, line))
            unit.waits = True

    def _began(self, line: int, name: str) -> int:
        """About where the output of the attempt begins that ended above `line`."""
        top = self._top(line, lambda above: name in _names(above[:_MAX_CHARS]))
        return line - _LINES if top == line else max(line - _LINES, top - _LEAD_LINES)

    def _top(self, line: int, is_wanted: Callable[[str], bool]) -> int:
        """The first wanted one of the lines read last, since the last announcement; `line` itself without one."""
        near = islice(reversed(self._recent), max(line - self._announced - 1, 0))
        return line - max((behind for behind, above in enumerate(near, 1) if is_wanted(above)), default=0)

    def _starts_again(self, task: re.Match[str]) -> bool:
        """Whether Spark starts a task anew that it lost."""
        lost = any(f"Lost task {task['task']}." in line for line in reversed(self._recent))
        return task["what"] == "Starting" and task["attempt"] != "0" and lost

    def _succeeded(self, text: str) -> Iterator[tuple[int, int]]:
        actions = {_action(found["action"] + found["last"]) for found in _DONE.finditer(text)}
        for name in [name for name in self._units if name.startswith("to ")] if actions else ():
            _, action, *words = name.split()
            if action in actions and all(word in text.lower() for word in words):
                yield from self._units.pop(name).failed
        for name in _names(text) if _WELL.search(text) else ():
            clear = name != _ATTEMPT or _ONLY_ENDED.search(text) is None
            if clear and name in self._units and self._units[name].waits:
                yield from self._units.pop(name).failed

    def _extend(self, line: int, text: str) -> None:
        """The traceback that stands right below an announcement belongs to the failed attempt."""
        if not self._below or not text.strip():
            return
        head, inside = grammar.TRACEBACK in text, text[:1].isspace()
        if not head and self._below[0].failed[-1][1] == self._announced:
            self._below = []
        for unit in self._below:
            unit.failed[-1] = unit.failed[-1][0], line
        if not head and not inside:
            self._below = []

    def _read_command(self, line: int, text: str) -> Iterator[tuple[int, int]]:
        text = text.rstrip()
        works = lines_behind.traces_work(text) and not _AROUND.match(text) and not _LOOP.match(text)
        goes_on = _BREAK.match(text) is not None or works
        cancel, command = self._cancel, self._command
        if cancel is not None and goes_on:
            yield cancel.first, cancel.last
        if goes_on or _ENDS.match(text):
            self._cancel = None
        if _OWN_CANCEL.match(text):
            self._cancel = _Command(text, line, line)
            return
        if command is not None and (_ENDS.match(text) or (command.clean and _LOOP.match(text))):
            self._command = command = None
        if command is not None and goes_on and text != command.text:
            if command.clean:
                yield command.first, command.last
            self._command = None
        if works and (above := self._line_above(line, text)):
            again = command is not None and command.text == text and not command.clean
            self._command = _Command(text, command.first if command and again else above, line - 1)

    def _line_above(self, line: int, text: str) -> int:
        """The line in which the shell traced the command last; 0 if it has not, or nothing between: several shells trace alike."""
        between = False
        for behind, earlier in enumerate(reversed(self._recent), 1):
            if earlier.rstrip() == text:
                return line - behind if between else 0
            between = between or _TRACE.match(earlier) is not None
        return 0

    def _read_output(self, line: int, text: str) -> None:
        if self._cancel is not None and _OF_SLURM.match(text):
            self._cancel.last = line
        if self._command is not None and _BAD.search(text):
            self._command.clean = False

    def _read_note(self, line: int, text: str) -> Iterator[tuple[int, int]]:
        """A logger that gives every line of a traceback the level of a note reports what the program does without."""
        is_note = (self._noted or grammar.TRACEBACK in text) and levels.is_note(text)
        if self._noted and not is_note:
            yield self._noted, line - 1
        self._noted = (self._noted or line) if is_note else 0

    def _read_turn(self, line: int, text: str) -> Iterator[tuple[int, int]]:
        if (found := _TURN.match(text) if "##" in text else None) is None:
            return
        if self._answer:
            yield self._answer, line - 1
        self._answer = line if found["answer"] else 0


def _names(text: str) -> Iterator[str]:
    """The units of work that the line names, in the order in which it names them."""
    if spark := _SPARK.search(text):
        yield f"task {spark['task']} in stage {spark['stage']}"
        return
    for found in _NAME.finditer(text):
        if found["attempt"] or found["attempts"]:
            yield _ATTEMPT
        elif found["key"]:
            yield f"{found['key']}={found['value']}".lower()
        else:
            yield (found["quoted"] or f"{found['noun']} {found['name'].rstrip('.')}").lower()


def _action(word: str) -> str:
    stem = word.removesuffix("e")
    return _SAME_ACTIONS.get(stem, stem)
