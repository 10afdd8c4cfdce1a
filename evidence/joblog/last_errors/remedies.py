"""Follows what a script says about a failure that it met: what it tries again, uses instead, or does without.

Such words alone prove nothing. They name the work that failed (`pull failed, retry in 9 s`), and only errors near them that name
it, too, are meant. These count for nothing once a good end or a result follows with no other complaint between.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from probing_cluster.evidence.joblog import labels, progress, units
from probing_cluster.evidence.joblog.last_errors import closing, work_over

TRIGGERS = (
    "(kill -",
    "[start ",
    "- start ",
    "restart count",
    "tolerated",
    "be retried",
    "ownload aborted",
    "CUDA_VISIBLE_DEVICES=",
    "on CPU",
    "device: cpu",
    "KeyboardInterrupt",
    "+ kill ",
    "failed, ",
    "(pid ",
    "(PID ",
    "ttempt #",
    "aunch #",
    ", attempt ",
)
"""A line without any of these is followed only behind an error, where the reader takes every line."""
_MAX_CHARS, _MAX_PENDING, _MAX_WAIT_LINES = 300, 256, 20_000
_LINES, _KILL_LINES, _RESTART_LINES, _OUTPUT_LINES = 20, 3, 40, 1
_REMEDY = re.compile(
    r"(?:^|[\s\]:])(?P<what>[^\s,;:\]][^,;:\]\n]{1,59}?) (?:failed|(?:was )?returned [1-9]\d{0,2}|(?:is |are )?(?:not (?:usable|available|supported)|unavailable)|timed out|crashed)\b[^,;:(\n]{0,60}[,;:(-]{1,2} ?(?:will )?"
    r"(?:be retried|retry(?:ing)?\b(?! limit| count)|try(?:ing)? (?:it )?(?:again|\d)|(?:attempt|try) #?\d|using (?!\d)|(?:going|carrying) on\b)"
)
"""What failed, and what is done about it."""
_WITHOUT = re.compile(
    r"\W{0,4}(?:[\w.-]{1,40}: )?(?P<what>(?:[\w./-]{1,40} ){0,3}[\w./-]{1,40})\W{1,3}(?:skipped|tolerated|ignored)\b"
)
"""What the script does without."""
_KNOWN = re.compile(
    r"\b(?:both|all|only)\b.{0,40}\bknown[ _-]fail(?:ures?|ing)\b.{0,40}\b(?:accepted|tolerated|ignored|allowed)\b",
    re.IGNORECASE,
)
_ON_CPU = re.compile(
    r"\bCUDA_VISIBLE_DEVICES ?= ?(?:\"\"|''|[\"']?(?:-1|NoDevFiles)[\"']?)(?=$|[\s,;])|(?<!error )\b(?:on|device:|using(?: the)?) CPU\b.{0,12}\b(?:as(?P<wanted> (?:requested|configured|asked|intended|wanted|planned))?|only)\b",
    re.IGNORECASE,
)
"""The GPUs are hidden, or not wanted: what lacks one is no failure if the work goes well; nor otherwise, if the program says so."""
_WORKS = re.compile(
    r"\b(?:no gpu|run\w{0,4}|train\w{0,3}|comput\w{1,5}|execut\w{1,3}|using|device:)(?![^,;]{0,40}[.;])",
    re.IGNORECASE,
)
"""What is done there is the work, and not only a part of it."""
_NO_GPU = ["cuinit", "libcuda", "nodevice", "no cuda", "no gpu", "no nvidia", "not find cuda"]
"""How a program says that it lacks one."""
_CAUGHT = re.compile(
    r"\bKeyboardInterrupt (?:was )?(?:caught|handled)\b|\bcaught (?:an? |the )?KeyboardInterrupt\b"
)
"""The program ends by itself after an interruption that it may have asked for: before its limit, or when it is told to make room."""
_WARNED = re.compile(
    r"(?P<speaker>.{0,80}\bsubmitit )WARNING .{0,60}\bCaught signal (?:SIGUSR\d|1[02]) on \S{1,253}: this job is (?:timed-out|preempted)\.?$"
)
"""Slurm warns submitit of the end to come; submitit ends the work itself, and says whether that went well."""
_INTERRUPTED = re.compile(r"(?:Traceback \(|\s|KeyboardInterrupt\b|(?:\w{1,40}\.){0,4}CancelledError\b)")
_AT_ONCE = re.compile(r"\bwill be retried\b|\bwaiting \d{1,5} ?s\w{0,6} \(\d{1,4}/\d{1,4}\)", re.IGNORECASE)
"""The line with the complaint says what is done about it, too."""
_OWN_KILL = re.compile(
    r"\b(?:stop|kill|end|terminat|shutt)\w{0,5} (?:it|down|\S{1,40} (?:server|helper|monitor|viewer))\b.{0,20}\(kill (?:-\w{1,7} )?(?P<pid>\d{2,8})\)"
    r"|^\+{1,4} (?:/\S{1,80}/)?kill (?:-(?:s )?(?P<signal>(?!0\b)\w{1,7}) )?(?P<traced>\d{2,8})$"
)
_KILLED = re.compile(r" (?P<pid>\d{2,8}) (?P<how>Killed|Terminated)\b")
_HARD_SIGNALS = frozenset({"9", "KILL", "SIGKILL"})
_HELPERS = re.compile(
    r"\b(?:start|launch|spawn)\w{0,4} (?P<names>[^()\n]{2,80}) \(pid[ :=]{1,2}\d{2,8}\)", re.IGNORECASE
)
_PID = re.compile(r"\(pid[ :=]{1,2}(\d{2,8})\)", re.IGNORECASE)
"""What a script starts in the background."""
_OF_WORK = re.compile(r"\b(?:train|main|run|work|rank|job|eval|task|step|sim|launch|python)", re.IGNORECASE)
"""That may be the work itself."""
_ENDED = re.compile(
    r"\bline \d{1,6}: {1,4}(?P<pid>\d{1,10}) (?:Killed|Terminated) {1,24}(?:(?:\S{0,80}/)?(?:python[\d.]{0,4}|(?:ba)?sh) )?(?:\S{0,80}/)?(?P<name>[\w.-]{1,80})"
)
"""A shell reports how such a process ended."""
_REFUSED = re.compile(r"\"(?:POST|PUT|PATCH) [^\s\"]{1,200} HTTP/\d(?:\.\d)?\" 4(?:00|13|15|22)\b")
_SERVED = re.compile(r"\"(?:POST|PUT|PATCH) [^\s\"]{1,200} HTTP/\d(?:\.\d)?\" 2\d\d\b")
"""A server's answers: it blames the client for the failed request; it works."""
_NOT_LOADED = re.compile(
    r"\b(?:download|transfer|fetch\w{0,3}|copy) (?:aborted|failed)\b.{0,80}\b(?:https?|ftp|s3|gs)://\S{1,300}/(?P<file>[\w.-]{1,80}\.\w{1,10})$",
    re.IGNORECASE,
)
_LOADED = re.compile(
    r"(?!.*\b(?:fail\w{0,3}|not|abort\w{0,3}|errors?)\b)(?:.*\b(?:(?:download|transfer) complete|saved|downloaded|finished successfully)\b)",
    re.IGNORECASE,
)
_LABEL = re.compile(r"^\[[A-Za-z][\w./-]{0,40}\] ")
_STACK_LINES, _STEP_LINES = 2, 5
_STEP_ENDED = re.compile(
    r"slurmstepd: error: \*\*\* STEP (?P<step>\d{1,12}\.\d{1,6}) ON \S{1,80} CANCELLED AT \S{1,40} \*\*\*"
)
_ENDS_STEP = re.compile(r"\b(?:stop|cancel|end|kill|terminat|shut)\w{0,5}\b", re.IGNORECASE)
"""The script, or the program in the step, says that it is to end."""
_DONE = re.compile(r"(?<!not )\b(?:done|finished|completed?)\W*$", re.IGNORECASE)
"""The work's own last words, after which a script ends the helpers beside it."""
_GOOD = re.compile(
    r"\b(?:exit(?:ed)?,?(?: with)?(?: exit)?(?: code| status)?|rc|returned)(?: ?[=:] ?| )0(?![\w.])|\bfinished with status '?Succeeded\b|EXIT_SUCCESS\b|\bstatus:? (?:GREEN|PASSED)\b|^OK$|(?<=: )OK$|\bjob (?:complete|finished|done)\W*$|\bsubmitit INFO \([^)\n]{8,40}\) - Job completed successfully$"
)
_OF_PART = re.compile(
    r"\b(?:workers?|ranks?|threads?|child(?:ren)?|process(?:es)?|tasks?|steps?|nodes?|loaders?|actors?)\b",
    re.IGNORECASE,
)
"""What may end well while the program does not."""
_OWN_GOOD = {"sbatch": "Submitted batch job ", "pull": "Creating SIF file"}
"""How commands themselves report a success, by the word for what failed."""
COMPLAINT = r"fail\w{0,4}|errors?|exceptions?|crash\w{0,3}|abort\w{0,3}|kill\w{0,3}|cancel\w{0,5}|timed? ?out|gave up|giv\w{2,3} up|denied|traceback|cannot|could not|unable"
BAD_CODE = r"Error\b|Exception\b|\b(?:exit\w{0,3}|rc|code|status|returned)\b\W{0,3}-?[1-9]"
"""Words of a complaint; an exception's name or a code other than 0."""
_WRONG = re.compile(rf"(?<!no )(?<!\b0 )\b(?:{COMPLAINT})\b|{BAD_CODE}", re.IGNORECASE)
_NOT_STARTED = re.compile(
    r"slurmstepd: error: \*\*\* .{0,200}? CANCELLED AT (?P<at>\S{1,40}) DUE TO (?:PREEMPTION|NODE FAIL)|srun: error: (?:Task launch for|Application launch failed)"
)
"""How a start ends that Slurm, and no program of the job, brought to an end."""
_NEXT_START = re.compile(
    r"\W{0,6}(?:start[ #:]{1,2}(?!1\b)|restart(?: count)?[ #:]{1,2}|(?:(?<=\W)|(?=\w{3,7} ?#))(?:run|attempt|try|launch)[ #:]{1,2}(?P<n>))(?P<k>[1-9]\d{0,2})\b(?(n)(?=\W{0,6}$|[\])]? (?:on|at|node|host) \S))",
    re.IGNORECASE,
)
"""The heading of a job's next start. Other things are numbered by some of the nouns, too: such a heading has a frame or a `#`, and its number counts the ends of the job so far."""
OF_SLURM = r"(?:srun|slurmstepd\S{0,80}|scancel): "
_FIRST_START = re.compile(
    r"\W{0,6}(?:(?<=\W)|(?=\w{3,7} ?#))(?:run|attempt|try|launch|start)[ #:]{1,2}0\b(?!\W{0,3}\d)",
    re.IGNORECASE,
)
"""Some count from 0. A number behind it is a result."""
_COUNTED = re.compile(r"\bSLURM_RESTART_COUNT ?[=:] ?[1-9]|\brestart(?: count)? ?[=:#] ?[1-9]", re.IGNORECASE)
"""Slurm's own count of the starts."""
_OF_SLURM = re.compile(rf"\s*$|{OF_SLURM}")
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_-]{2,40}")
_NO_NAME = frozenset(
    {"the", "this", "run", "job", "failure", "failures", "failed", "returned", "error", "errors", "with", "and", "for", "was", "has", "info", "warning", "file", "files", "test", "tests"}
)  # fmt: skip
_DOING = re.compile(r"(?<=^\w\w)(\w{1,40}?)(?:(?<=(\w))\2)?ing$")


@dataclass(slots=True)
class _Remedy:
    first: int
    last: int
    good: str
    """How the work itself reports a success; empty where that is unknown."""
    file: str = ""
    """The file that was not transferred: only its own transfer makes up for that."""
    interrupted: bool = False
    """Only the program's good end makes up for an interruption: what it saved proves nothing. `good`: how its lines begin."""
    step: str = ""
    """The step of the job that the script ended: it may name it again."""


class Remedies:
    """Follows one log; `tail`: its last lines, kept by the reader."""

    def __init__(self, tail: closing.Tail) -> None:
        self._tail = tail
        self._pending: list[_Remedy] = []
        self._stated = 0
        """Line of the last remedy."""
        self._wrong = 0
        """Line of the last complaint that no remedy covers."""
        self._kill: tuple[str, int, bool] | None = None
        """The process that the script ends itself, the line that says so, and whether by SIGKILL."""
        self._helpers: set[str] = set()
        """Words and numbers with which the script announced what it starts beside the work."""
        self._first = 1
        """The number of the job's first start."""
        self._ends: set[str] = set()
        """The instants at which Slurm ended the job before."""
        self._ended = -_RESTART_LINES
        """Line of the last such end."""
        self.restarted = 0
        """The last line that showed a later start to have worked."""
        self._start: tuple[int, int, int] | None = None
        """First and last line of what Slurm ended, and how many lines the next start has printed."""

    def following(self, line: int) -> bool:
        """Whether `line`, the next one, matters whatever it contains."""
        waits = bool(self._pending) and line <= self._stated + _MAX_WAIT_LINES
        near = line <= self._ended + _RESTART_LINES
        return waits or near or self._start is not None or self._kill is not None

    def read(self, line: int, text: str) -> Iterator[tuple[int, int]]:
        """A line of the log, in order; yields first and last lines of errors that the work outlived."""
        yield from self._read_start(line, text)
        text = text[:_MAX_CHARS]
        if (found := _ON_CPU.search(text)) and found["wanted"] and _WORKS.search(text):
            lacks = [number for number, above in islice(self._above(line), _LINES) if _is_no_gpu(above)]
            yield from ((number, number) for number in lacks)
            if lacks:
                return
        if self._read_kill(line, text) or self._read_remedy(line, text):
            return
        if self._pending and self._is_wrong(line, text):
            self._wrong = line
            return
        if not self._pending or self._wrong:
            return
        good, loaded, ended = _is_good(text), _LOADED.match(text) is not None, _GOOD.search(text) is not None
        ended = ended and _OF_PART.search(text) is None
        for remedy in self._pending:
            own = bool(remedy.good) and remedy.good in text
            outlived = ended and text.startswith(remedy.good) if remedy.interrupted else good or own
            if (loaded and remedy.file in text) if remedy.file else outlived:
                yield remedy.first, remedy.last
                remedy.last = 0
        self._pending = [remedy for remedy in self._pending if remedy.last]

    def _read_remedy(self, line: int, text: str) -> bool:
        found = _REMEDY.search(text) or _WITHOUT.match(text)
        if found is not None:
            words = _names(found["what"])
            own = next((good for name, good in _OWN_GOOD.items() if name in words), "")
            return self._state(self._top(line, words), line, own)
        if _ON_CPU.search(text):
            return self._state(self._top(line, _NO_GPU), line)
        if _CAUGHT.search(text):
            below = (
                number
                for number, above in islice(self._above(line), _KILL_LINES)
                if "KeyboardInterrupt" in above
            )
            return self._state(min(below, default=line), line, interrupted=True)
        if found := _WARNED.match(text):
            return self._state(line, line, found["speaker"], interrupted=True)
        last = self._pending[-1] if self._pending else None
        if last and last.interrupted and last.last == line - 1 and _INTERRUPTED.match(_plain(text)):
            last.last = line
            return True
        if _KNOWN.search(text):
            return self._state(self._top(line, ["fail"]), line)
        if _AT_ONCE.search(text) and _WRONG.search(text):
            return self._state(line, line)
        if _REFUSED.search(text):
            near, error = next(self._above(line), (0, ""))
            return _WRONG.search(error) is not None and self._state(near, line)
        if found := _NOT_LOADED.search(text):
            return self._state(line, line + _STACK_LINES, file=found["file"])
        if found := _STEP_ENDED.match(_plain(text)) if "*** STEP " in text else None:
            above = (_plain(above) for _, above in self._above(line))
            output = [text for text in islice(above, _KILL_LINES + _STEP_LINES) if not _OF_SLURM.match(text)]
            if output and _DONE.search(output[0]) and not found["step"].endswith(".0"):
                return self._state(line, line)
            ends = any(_ENDS_STEP.search(text) or _is_good(text) for text in output[:_STEP_LINES])
            return ends and self._state(line, line, interrupted=True, step=found["step"])
        return False

    def _is_wrong(self, line: int, text: str) -> bool:
        """Whether it complains of something that no remedy covers; srun reports how a step ended, whoever ended it."""
        last = self._pending[-1]
        covered = line <= last.last or (_OF_SLURM.match(text) and "*** JOB" not in text)
        if last.step and last.step in text:
            text = _ENDS_STEP.sub("", text)
        return not covered and _WRONG.search(text) is not None

    def _state(
        self,
        first: int,
        last: int,
        good: str = "",
        *,
        file: str = "",
        interrupted: bool = False,
        step: str = "",
    ) -> bool:
        """A remedy is stated for the errors in these lines; False without any."""
        if not first or len(self._pending) >= _MAX_PENDING:
            return False
        if first <= self._wrong:
            self._wrong = 0
        self._pending.append(_Remedy(first, last, good, file, interrupted, step))
        self._stated = last
        return True

    def _top(self, line: int, words: list[str], stated: int | None = None) -> int:
        """The first of the lines above that name the failed work, with those of the same speaker above it; 0 without one. `stated`: the last line that belongs to other work."""
        top, last, speaker = 0, 0, ""
        for number, above in islice(self._above(line), _LINES):
            if number <= (self._stated if stated is None else stated):
                break
            plain = above.lower().replace("-", "").replace("_", "")
            head = above.split(" ", 1)[0]
            if any(word in plain for word in words):
                top, speaker = number, head if head.endswith(":") else ""
            elif top and top == last and head == speaker:
                top = number
            last = number
        return top

    def _above(self, line: int) -> Iterator[tuple[int, str]]:
        """The lines above `line` that are not empty, the last one first."""
        return (
            (number, text) for number, text in reversed(self._tail.lines) if number < line and text.strip()
        )

    def _read_kill(self, line: int, text: str) -> bool:
        if found := _OWN_KILL.search(text):
            hard = found["pid"] is not None or (found["signal"] or "").upper() in _HARD_SIGNALS
            self._kill = found["pid"] or found["traced"], line, hard
            return True
        if (found := _HELPERS.search(text)) and len(self._helpers) < _MAX_PENDING:
            if not _OF_WORK.search(found["names"]):
                self._helpers.update(_WORD.findall(found["names"].lower()), _PID.findall(text))
        elif (found := _ENDED.search(text) if self._helpers else None) and self._helpers & {
            found["pid"],
            found["name"].lower(),
        }:
            above = [text for number, text in self._tail.lines if number < line]
            return work_over.is_over(above) and self._state(line, line)
        if self._kill is None:
            return False
        pid, since, hard = self._kill
        if line > since + _KILL_LINES:
            self._kill = None
        elif (found := _KILLED.search(text)) and found["pid"] == pid:
            self._kill = None
            return (hard or found["how"] == "Terminated") and self._state(line, line)
        return False

    def _read_start(self, line: int, text: str) -> Iterator[tuple[int, int]]:
        """A later start of the job decides over it, if Slurm ended the one before and the later one printed something."""
        if (ended := _NOT_STARTED.match(text)) and ended["at"] and len(self._ends) < _MAX_PENDING:
            self._ends.add(ended["at"])
            self._ended = line
        if _FIRST_START.match(text[:_MAX_CHARS]):
            self._first = 0
        found = _NEXT_START.match(text[:_MAX_CHARS])
        known = found and (found["n"] is None or int(found["k"]) == len(self._ends) + self._first)
        if known or _COUNTED.search(text[:_MAX_CHARS]):
            above = islice(self._above(line), _RESTART_LINES)
            ends = [number for number, earlier in above if _NOT_STARTED.match(earlier)]
            self._start = (ends[-1], line - 1, 0) if ends else None
        elif self._start is not None and not _OF_SLURM.match(text):
            first, last, printed = self._start
            self._start = first, last, printed + 1
            if printed + 1 >= _OUTPUT_LINES:
                self._start, self.restarted = None, line
                yield first, last


def _plain(text: str) -> str:
    """The line without the label of its speaker."""
    return _LABEL.sub("", labels.bare(0, text).text)


def complains(text: str) -> bool:
    """Whether the line complains of something, or is Slurm's."""
    return _OF_SLURM.match(text) is not None or _WRONG.search(text) is not None


def _is_no_gpu(text: str) -> bool:
    return any(word in text.lower().replace("-", "").replace("_", "") for word in _NO_GPU)


def _is_good(text: str) -> bool:
    """Whether the line reports a good end, or a result."""
    return (
        bool(_GOOD.search(text) or _SERVED.search(text))
        or units.is_result(text)
        or progress.reports_success(text)
    )


def _names(what: str) -> list[str]:
    """The words that name the failed work, without their endings."""
    words = (word.lower().replace("-", "").replace("_", "") for word in _WORD.findall(what))
    return [_DOING.sub(r"\1", word) for word in words if word not in _NO_NAME]
