"""Recognises progress by the form of lines: numbers that advance in lines that are otherwise the same.

This needs no names of frameworks and no language: if the first number of lines with the same words grew before the error and still grows after
it, the program went on. Without lines before the error, a line counts if it has a ratio (`30/35`), a counter's name with a number (`step=10`,
`"epoch": 0.24`) or begins with a number that measured ones follow; it advances when its numbers are greater than those of such a line before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from probing_cluster.core.catalogue import slurm_lines
from probing_cluster.evidence.joblog import grammar, units

LOOK_BACK_LINES = 40
"""Lines before an error; they show which lines report progress and in which order they reach the log."""
_MAX_CHARS, _MAX_TRACKS = 600, 64
_DIGIT = re.compile(r"\d")
_PLAIN = re.compile(r"(?!.*(?:\d\.\d|\b(?:finished|done|completed?|ended|saved|written)\b))", re.IGNORECASE)
"""No measured value, no word that the unit is over."""
_DATE = re.compile(
    r"\d{4}[-/.]\d\d[-/.]\d\d(?:[T ]\d\d:\d\d:\d\d\S{0,12})?|\d\d[-/]\d\d[-/]\d{2,4}|\b\d{1,3}:\d\d(?::\d\d)?(?:[.,]\d+)?\b"
)
_NO_WORK = re.compile(
    r"error|exception|fail|retry|attempt|warn|abort|kill|traceback|timed? ?out|signal|frame #|File \"|NCCL|RCCL|gloo|"
    r"\b(?:load|download|fetch|extract|unpack|build|compil|tokeniz|convert|sav|writ|upload|resolv|collect|install|connect|import|map)\w{0,5}\b|"
    r"\b(?:rank|pid|process|worker|node|task|shard|core|port|address|allocated|reserved|memory|elapsed)\b(?=\D{0,3}\d)(?!.*(?:loss|iter|step|epoch|(?:tok(?:en)?|sample|image|it)s?/s))"
    r"|^(?!.*(?:loss|iter|step|epoch|(?:tok(?:en)?|sample|image|it)s?/s)).*\bwait(?:ing|ed) (?:for|until)\b",
    re.IGNORECASE,
)
"""Other counters that grow: errors, retries, seconds of waiting, shards loaded, processes that end one by one."""
_LISTED_CODE = re.compile(
    r"\s{0,8}\d{1,7} \|(?= .{0,400}[;(){}\"#])|\s{0,8}│\s{1,8}(?:❱\s{1,8})?\d{1,6}\s[│\s]{0,80}[A-Za-z_#@)\]}\"']|\s{0,8}\d{1,4}\s{1,4}(?:/\S{1,400}\(\S{0,400}\) ?\[0x|0x[0-9a-f]{4,16}\b)"
)
"""A line of the program's source: a compiler's, or in the box that rich draws around a traceback, which may read `step = 0`; a numbered frame of a C stack."""
_COUNTER = re.compile(
    r"(?<![\w./-])(?P<a>\d{1,12})\s{0,2}(?:/|of)\s{0,8}(?P<of>\d{1,12})(?![\w/.-])"
    r"|\b(?:iter(?:ation)?s?|it|(?:global|train|training|optimizer|micro|gradient)?[_ ]?steps?|epochs?|ep|batch(?:es)?|(?:num_)?updates?|episodes?|rounds?|(?:consumed[_ ])?(?:samples|tokens)|prompts?|questions?|answers?|quer(?:y|ies))\b"
    r"[\"']?[^\w\n]{1,8}(?P<b>\d{1,15}(?:\.\d+)?)\b(?!\s?%)",
    re.IGNORECASE,
)
_TABLE = re.compile(r"^\s*(?P<n>\d{1,12})(?:\s++|(?=[,;|:]))(?:[,;|:]\s*+)?(?=[^\n]{0,200}\d\.\d)")
_EPOCH = re.compile(r"^\W*(?:\w+\W+){0,3}epochs?\b", re.IGNORECASE)
_LIVE = re.compile(r"(?:it|s|steps?|batch(?:es)?|samples?)/(?:it|s|sec|step)\b|\beta\b", re.IGNORECASE)
_SERVED = re.compile(
    r"\"(?:POST|PUT|PATCH) [^\s\"]{1,2000} HTTP/\d(?:\.\d)?\" [24]\d\d\b"
    r"|\[I (?:\d{4}-\d\d-\d\d |\d{6} )?\d\d:\d\d:\d\d(?:\.\d{1,6})? \w{1,30}App\] (?:Saving file at |Kernel (?:re)?started: |Restoring connection for )"
)
"""A request that a server answered, and what a notebook's server did for its user. GET does not count: a server whose engine died still answers health checks."""
_NUMBER = re.compile(r"(?<![\w.])\d{1,15}(?:\.\d{1,17})?(?:[eE][+-]?\d{1,3})?(?![\d.])")
_DIGITS = re.compile(r"[\d.+-]+(?:[eE][+-]?\d+)?")
_IDLE = re.compile(
    r"wait|alive|uptime|heart|idle|monitor|usage|util|watt|temperature|sleep|since|elapsed|queue|poll|not (?:yet )?(?:ready|up|available|reachable|running|responding)\b|[KMGT]i?B\b"
    r"|(?:\b|_)(?:(?:mpi)?rank|task|worker|node|proc|process(?:es|or)?|instance|cpu|pe|partition|(?:sub)?domain|container|thread|replica)s?(?=\D{0,3}\d)",
    re.IGNORECASE,
)
"""Values that grow even if the program stands still, and parts of a parallel job, which end side by side."""
_GREW = 2
"""Lines mean progress if their first number grew at least so often before the error,"""
_GREW_LONG = 20
"""or so often in a row after it: an end does not count on for so long."""
_WORDS = re.compile(r"[^A-Za-z_]+")
_ENTRY = re.compile(
    r"(?P<words>\W{0,3}[A-Za-z][^\d\n]{0,48}?[# \[(]|[A-Z]-)(?P<n>\d{1,7})(?P<of>/\d{1,7})?(?=[\s\])\t:.,|]|$)"
    r"|(?P<bracket>\s{0,8}[\[(]?)(?P<k>\d{1,7})(?P<total>/\d{1,7}[\])]?)\s"
    r"|\s{0,12}(?P<row>\d{1,7})(?:\s{2,12}|\s?[|│]\s)\S+(?:\s{2,12}|\s?[|│]\s)\S"
)
"""The beginning of an entry of a numbered list: words and a number, `k/n`, or the first columns of a table."""
_NO_ENTRY = re.compile(
    r"\b(?:ranks?|pid|proc(?:ess)?|workers?|nodes?|tasks?|attempt|retry|try|gpus?|device|cuda|thread|host|port|line|steps?|iter(?:ation)?|epoch|batch|update|"
    r"signal|error|code|exit|job|id|version|pod|replica|actor|stage|group|member|peer|instance|slot|env|child|server|client|frame|shard|core|local|[dtpe]p)\W{0,3}$",
    re.IGNORECASE,
)
"""Numbered things that are not worked off in order; steps have rules of their own."""
_COLUMNS = "|"
"""Stands for the words of a table's row, which is data whatever its text."""
_NEXT = 3
"""Greatest step from one entry's number to the next; a list may leave some out."""
_WENT_WRONG = re.compile(r"error|exception|fail|abort|kill|fatal|traceback", re.IGNORECASE)

Counters = tuple[float, ...]


def read_counters(text: str) -> tuple[str, Counters] | None:
    """The words before the first counter and the values of all counters; None for a line without one."""
    if not _DIGIT.search(text, 0, _MAX_CHARS) or _LISTED_CODE.match(text):
        return None
    text = _DATE.sub(" ", text[-_MAX_CHARS:] if "it/s" in text[-120:] else text[:_MAX_CHARS])
    if _NO_WORK.search(text):
        return None
    found = [m for m in _COUNTER.finditer(text) if m["b"] or int(m["a"]) <= int(m["of"]) > 1]
    if not found:
        table = _TABLE.match(text)
        return ("", (float(table["n"]),)) if table else None
    words = _WORDS.sub(" ", text[: found[0].start()]).strip()
    return words[-80:] + found[0][0][:1].strip("0123456789"), tuple(float(m["a"] or m["b"]) for m in found)


def shape(text: str) -> tuple[str, float] | None:
    """A line's words without its numbers, and its first number; None without one, or for a value that grows by itself."""
    if not _DIGIT.search(text, 0, _MAX_CHARS) or _NO_WORK.search(text) or _IDLE.search(text):
        return None
    text = _DATE.sub(" ", text[:_MAX_CHARS])
    first = _NUMBER.search(text)
    words = " ".join(_DIGITS.sub("#", text).split())
    return (words, float(first[0])) if first and any(letter.isalpha() for letter in words) else None


def is_progress(text: str) -> bool:
    """Whether the line reports how far the program is."""
    return read_counters(text) is not None


def announces_recovery(text: str) -> bool:
    """Whether the program reports that it goes on. A line of progress does not count: it may repeat an old number of skipped steps."""
    return units.reports_recovery(text) and not is_progress(text)


Entry = tuple[str, int]


def entry(text: str) -> Entry | None:
    """The beginning and the number of an entry of a numbered list; None for any other line."""
    if not (found := _ENTRY.match(text)) or _DATE.match(text):
        return None
    if found["words"] is not None:
        return (
            None
            if _NO_ENTRY.search(found["words"])
            else (found["words"] + (found["of"] or ""), int(found["n"]))
        )
    if found["k"] is not None:
        return f"{found['bracket']}{found['total']}", int(found["k"])
    return _COLUMNS, int(found["row"])


def follows(text: str, error: Entry) -> bool:
    """Whether the line is a later entry of the error's list, and no failure itself."""
    later = entry(text)
    return (
        later is not None
        and later[0] == error[0]
        and 0 < later[1] - error[1] <= _NEXT
        and (error[0] == _COLUMNS or not _WENT_WRONG.search(text))
    )


class GrowingLines:
    """Lines of the same words whose first number grows: progress in words that no list has."""

    def __init__(self) -> None:
        self._shapes: dict[str, tuple[float, int]] = {}
        """The words of a line, its first number, and how often that grew in a row."""

    def clear(self) -> None:
        """Forget every line."""
        self._shapes.clear()

    def grown(self, text: str) -> bool:
        """Whether the line's first number is greater than in the previous line of the same words."""
        if (found := shape(text)) is None:
            return False
        words, now = found
        if words not in self._shapes and len(self._shapes) >= _MAX_TRACKS:
            return False
        last, often = self._shapes.get(words, (now, 0))
        self._shapes[words] = (now, often + 1 if now > last else often if now == last else 0)
        return now > last

    def knows(self, text: str) -> bool:
        """Whether the first number of lines of these words has grown before."""
        found = shape(text)
        return found is not None and self._shapes.get(found[0], (0.0, 0))[1] >= _GREW

    def goes_on(self, text: str) -> bool:
        """Whether the line goes on with numbers that had grown before."""
        return self.knows(text) and self.grown(text)

    def grows_on(self, text: str) -> bool:
        """Whether the line's number has grown for so long that no end of a program does it."""
        found = shape(text) if self.grown(text) else None
        return found is not None and self._shapes[found[0]][1] >= _GREW_LONG

    def step(self, text: str) -> tuple[str, Counters] | None:
        """The words and the number of a line that goes on so; None for any other, which is remembered."""
        if (found := shape(text)) is None or not self.grown(text) or self._shapes[found[0]][1] < _GREW:
            return None
        return found[0], (found[1],)


class LogProgress:
    """Counts lines that advanced since an error; `before`: the lines before it, oldest first; `needed`: so many further units that end well."""

    def __init__(self, before: Iterable[str] = (), error: str = "", needed: float = 0) -> None:
        before, self._needed = tuple(before), needed
        self.units, self._programs = units.Units(before, error), units.NamedPrograms(before, error)
        self._tracks: dict[str, Counters] = {}
        self._ordered: set[str] = set()
        self._growing = GrowingLines()
        """As they grew before the error."""
        self._begun = GrowingLines()
        """As they grow after it."""
        for line in before:
            self._known(line)
            self._growing.grown(line)
        self.at_work = bool(self._tracks)
        """Whether the lines before the error report progress."""
        self._begun_anew: set[str] = set()
        """Words of lines whose numbers went back after the error, as a new run's do."""
        self._headed = False
        """Whether the last line was one that goes on, such as a heading of the next unit."""
        self._announced = False
        """Whether it was a step without a result, which may only announce the unit to come. Only an error in the program's own words shows that: one of a known kind may have been caught."""
        self.steps = 0
        """Lines that advanced; a buffer may have delayed them."""
        self.live = 0
        """Lines that advanced and were certainly printed after the error; an epoch counts as two."""

    def _known(self, line: str) -> None:
        head, cut, _ = line.partition(grammar.TRACEBACK)
        if cut and read_counters(head) is not None:
            # The error interrupts a line of progress: standard output is buffered and its rest comes late.
            self._ordered.clear()
            self._growing.clear()
            return
        if (progress := read_counters(line)) and len(self._tracks) < _MAX_TRACKS:
            self._tracks[progress[0]] = progress[1]
            self._ordered.add(progress[0])

    def of_same_run(self, text: str) -> bool:
        """Whether the next line goes on with numbers from before the error; a new run begins its own."""
        if (progress := read_counters(text)) is None:
            return self._growing.knows(text)
        words, now = progress
        last = self._tracks.get(words)
        if last is not None and now < last:
            self._begun_anew.add(words)
        return words in self._ordered and words not in self._begun_anew

    def resumed(self, kind: str, *, failed: bool = False) -> bool:
        """Whether the job, whose end was of this kind, was queued again and works on in the same log, or failed in it."""
        return kind in _REQUEUES and self.units.restarted and (failed or self.live >= _LOOP_ENDED)

    def failed(self, finding: grammar.JobFinding) -> None:
        """Another error came: what was begun before it proves nothing, nor does the heading right above it."""
        self.units.failed(finding)
        if finding.role is not grammar.LineRole.OBSERVATION:
            self._unit_failed(counts=finding.kind == "program_error" or not self._announced)

    def _unit_failed(self, *, counts: bool = True) -> None:
        if self._headed and counts:
            self.live, self.steps = self.live - 1, self.steps - 1
        self._headed = False

    def after_line(self, text: str, *, live: bool = False) -> bool:
        """Whether this line after the error advanced; `live`: it is part of a progress bar, or a logger dated it."""
        if _WENT_WRONG.search(text) and not self._announced:
            self._unit_failed()
        self._headed = self._headed and not text.strip()
        if self._programs.is_other(text):
            return False
        if (self.units.went_on(text) and self.units.begun >= self._needed) or _TRAINED.search(text):
            self.live += _LOOP_ENDED
        if (progress := read_counters(text)) is None:
            goes_on = _SERVED.search(text) is not None or self._growing.goes_on(text)
            self.live += goes_on
            self._headed, self._announced = goes_on, False
            goes_on = goes_on or self._begun.grows_on(text)
            self.steps += goes_on
            return goes_on
        self._programs.works_on(text)
        words, now = progress
        last = self._tracks.get(words)
        if len(self._tracks) < _MAX_TRACKS or last is not None:
            self._tracks[words] = now
        if last is not None and now <= last:
            return False
        self.steps += 1
        self._headed = self._announced = not live and _PLAIN.match(_DATE.sub(" ", text)) is not None
        if last is not None and words in self._ordered and _FULL_BAR.search(text):
            # The loop that ran when the error came has ended.
            self.live += _LOOP_ENDED
        if (
            live
            or self.units.begun
            or self.units.restarted
            or words in self._ordered
            or _LIVE.search(text)
            or _DATE.search(text[:60])
        ):
            self.live += 2 if len(now) == 1 and _EPOCH.match(text) else 1
        return True


_OF_SCRIPT = re.compile(
    r"(?:/\S{0,80}/)?(?:cp|mv|rm|ln|ls|cat|mkdir|rmdir|chmod|chown|touch|tar|gzip|gunzip|unzip|find|sed|awk|grep|rsync): {1,2}\S"
)
"""Complaints of shell commands: the batch script goes on."""
_SHOWN_COMMAND = re.compile(r"\+{1,4} (?!exit [1-9])\S")
_SCRIPT_LINES = 2
_NO_WORDS = re.compile(
    r"\W*$|Traceback \(|\s{2}\s*(?:File \"|\S.*[()=])|(?:srun|slurmstepd\S*|sbatch): |(?:real|user|sys)\s+\d+m|\+{1,4} \S|(?:exit|return)\w*\W{1,3}\d|.{0,40}\b(?:error|fail|abort|fatal)|.{1,300}: (?:No such|cannot) ",
    re.IGNORECASE,
)
"""Lines of a launcher, and consequences of a failure."""
_MORE_COMMANDS, _MORE_LINES = 2, 12
"""So many commands and lines are more than a script's clean-up."""


_SUCCESS = re.compile(
    r"(?!.*(?:\b(?:not|never|without|before|cannot|fail\w{0,4}|errors?|epochs?|steps?|iter(?:ation)?s?|batch(?:es)?|checkpoints?|validation|evaluation|job|script|stages?|tasks?|workers?)\b|n't))"
    r".*(?:\b(?:complet|finish|end|exit|terminat|conclud|train|stopp?)\w{0,3} (?:\w{1,20} ){0,2}?success(?:fully)?\b|\bsuccessfully (?:complet|finish|end|exit|terminat|conclud|train)\w{1,3}\b|\bsucceeded\b|\ball (?:\w{1,20} )?tests passed\b|\bnormal(?:ly)? terminat\w{1,4}\b|\bterminated normally\b)",
    re.IGNORECASE,
)
"""A whole program's good end. Scripts print `completed`, `done` and `finished` after a failure, too, and parts of the work succeed before one."""


def reports_success(text: str) -> bool:
    """Whether the program, or its launcher, reports that its whole work ended well."""
    return units.succeeded(text) or _SUCCESS.match(text) is not None


_TRAINED = re.compile(r"['\"]train_runtime['\"]\s?:|\bfairseq_cli\.train \| done training in \d")
"""What the trainers of transformers and fairseq write once a training has reached its end."""
_FULL_BAR = re.compile(r"100%\|[^|]{0,200}\| (?P<n>\d{1,9})/(?P=n) \[")
_LOOP_ENDED, _REQUEUES = 3, frozenset({"slurm_requeued", "slurm_preempted", "slurm_node_fail"})


def is_of_script(text: str) -> bool:
    """Whether a shell command complains in the line: the batch script goes on."""
    return _OF_SCRIPT.match(text) is not None


class ScriptLines:
    """Counts a batch script's output after one of its commands failed."""

    def __init__(self) -> None:
        self._commands = self._printed = self._lines = 0

    def go_on(self, failed: str, kind: str, text: str) -> bool:
        """Whether this line shows that the script went on after `failed`: it printed more, or traces further commands (`set -x`) with output."""
        if is_of_script(failed):
            self._lines += bool(text.strip()) and not is_of_script(text) and not _NO_WORDS.match(text)
            return self._lines >= _SCRIPT_LINES
        if kind != "program_error":
            return False
        command = _SHOWN_COMMAND.match(text) is not None
        self._commands += command
        self._printed += self._commands >= _MORE_COMMANDS and not command
        return self._printed >= _MORE_LINES


_NEVER_SURVIVED = frozenset({"host_oom_kill", "collective_mismatch"})
"""Reports that come at the end of a job, as Slurm's do."""
_SCRIPTS_COMMAND = re.compile(rf"(?:^|\s){slurm_lines.SHELLS_CHILD}[A-Z]")
"""A shell's report that a command of its script died of a signal."""
_WORKERS_EXIT = re.compile(r"\bfailed \(exitcode: ")
_RESTARTED = re.compile(r"\bwill restart worker group\b")
_STEPS_AFTER_EXIT, _STEPS_AFTER_RESTART, _STEPS_BEGUN = 20, 3, 3


def can_be_survived(finding: grammar.JobFinding) -> bool:
    """Whether the program can go on after it; the final reports of Slurm and the kernel cannot be survived."""
    of_slurm = finding.kind.startswith("slurm_") and "launcher" not in finding.detail
    if of_slurm or (finding.kind in _NEVER_SURVIVED and not finding.detail.get("retried")):
        return False
    return finding.role in (grammar.LineRole.ROOT, grammar.LineRole.SYMPTOM, grammar.LineRole.REMOTE)


def can_be_outlived(finding: grammar.JobFinding) -> bool:
    """Whether it is the exit of a script's command or of torchelastic's workers, after which others may work on."""
    if finding.role is not grammar.LineRole.EXIT:
        return False
    return any(form.search(finding.message) for form in (_SCRIPTS_COMMAND, _WORKERS_EXIT))


class AfterExit:
    """Decides whether work went on after an exit that can be outlived."""

    def __init__(self) -> None:
        self._restarted = False
        self._steps = 0

    def went_on(self, text: str, *, advanced: bool) -> bool:
        """Whether so much work followed, or the workers' restart succeeded; `advanced`: the line `text` is a step that no buffer held back."""
        self._restarted = self._restarted or _RESTARTED.search(text) is not None
        self._steps += advanced
        return (self._restarted and units.succeeded(text)) or self._steps >= (
            _STEPS_AFTER_RESTART if self._restarted else _STEPS_AFTER_EXIT
        )


def work_began(ended: grammar.JobFinding, since: LogProgress) -> bool:
    """Whether work began only after `ended`, a command of the script that a signal ended: that may have been a helper.

    It may as well have been the program, with a file of its own for its output, and the work a step behind it.
    """
    of_script = _SCRIPTS_COMMAND.search(ended.message) is not None
    return of_script and not since.at_work and since.steps >= _STEPS_BEGUN
