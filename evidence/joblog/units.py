"""Recognises that a program, or the harness around it, goes on with the next unit of work after one failed: a trial, a run, an attempt, a file.

A unit's line has the same words each time, and each time another name or number: `Trial 3 finished`, `attempt 2/10`. If such a line
stands before the error, its output was not held back by a buffer, and the next one below the error is later than the error.
That the next unit begins is no proof that it went better: a result must follow, or several units.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from probing_cluster.evidence.joblog import grammar

_MAX_CHARS = 300
_MAX_NAMES = 256
_HEAD = re.compile(
    r"(?:\[1\] \"|[\s\[(|]{0,8}(?:[IWED] )?\d{4}[-/.]\d\d[-/.]\d\d[T ]\d\d:\d\d:\d\d\S{0,12}\s{0,4}|[\s\[(]{0,8}\d\d:\d\d:\d\d\S{0,8}\s{0,4}|[IWE]\d{4} \d\d:\d\d:\d\d\.\d{3,9}\s{1,8}\d{1,10} [\w./-]{1,80}:\d{1,6}\] )?(?:\W{0,4}(?:INFO|WARNING|WARN|ERROR|DEBUG)\b)?\W{0,4}"
)
"""R's index of a printed text; a logger's time and level. What they contain is no unit's name."""
_UNIT = re.compile(
    r"(?P<words>[^\d\n]{0,60}?[A-Za-z]{2}[\"')\]]?[ :#=\"']{1,3})(?P<name>(?=[A-Za-z_-]{0,12}\d)[\w-]{1,24})(?![\w.%]\w|[\w%])"
)
_PARTS = r"tasks?|instances?|jobs?|containers?|replicas?|cpus?|partitions?|(?:sub)?domains?|tiles?|shards?"
"""What many processes work on side by side, or one process one by one."""
_NO_UNIT = re.compile(
    rf"(?:\b|_)(?:{_PARTS}|(?:my|mpi|world)_?ranks?|ranks?|pid|process(?:es|ors?)?|procs?|pes?|workers?|nodes?|hosts?|gpus?|devices?|cuda|threads?|ports?|line|steps?|it(?:er(?:ation)?s?)?|epochs?|batch(?:es)?(?! size)|updates?|signal|errors?|code|exit|rc|status|version|"
    r"pod|actor|stage|group|member|peer|slot|env|child|client|server|frame|core|local|loss|lr|[dtpe]p|seq\w{0,6}|nccl|layers?|channels?|ring|comm|connect\w{0,4}|retr\w{1,4}|\w{0,20}_?ids?|\w{0,20}Id|(?:total|number|num|count)\b.{0,40})\W{0,3}$",
    re.IGNORECASE,
)
"""Numbered things that work side by side, so that the end of one shows nothing of the next, and steps, which have rules of their own."""
_IS_PART = re.compile(rf"(?:\b|_)(?:{_PARTS})\W{{0,3}}$", re.IGNORECASE)
_SETS_UP = re.compile(
    r"\b(?:start|launch|spawn|submit|creat|init|schedul|dispatch|assign|add|kill|cancel|clos|stop|shut|remov|delet|releas|clean|terminat|join)",
    re.IGNORECASE,
)
"""What one process does in order with parts that work side by side."""
_IN_ORDER = 8
"""So many parts in the order of their numbers are the work of one process: those that end side by side come in any order."""
_STEP_OVER = 2
"""From the last part before the error to the next: the one that failed may have no line of its own."""
_TRAILING = re.compile(r"\d{1,9}$")
_BY_ITSELF = re.compile(
    r"\b(?:memory|power|util\w{0,8}|watts?|temperature|elapsed|uptime|alive|heart\w{0,5}|idle|monitor|sleep\w{0,3}|wait\w{0,3}|since|(?<!\[)queue\w{0,2}|poll\w{0,3}|loading|download\w{0,3}|pending|checkpoints?|ckpt|sav(?:ed?|ing)|wrote|NCCL|\"?(?:GET|POST|HEAD))\b|\b[KMGT]i?B\b",
    re.IGNORECASE,
)
"""What grows or comes by itself, even if the program stands still, and what a program that ends still saves."""
_WENT_WRONG = re.compile(
    r"\b(?:fail\w{0,4}|error(?:ed)?|exception|crash\w{0,3}|abort\w{0,3}|kill\w{0,3}|refused|unreachable|timed out|no (?:answer|response|reply)|not (?:yet )?(?:ready|up|reachable|available|running|responding))\b",
    re.IGNORECASE,
)
_COMPLAINS = re.compile(
    r"\b(?:fail\w{0,4}|errors?|exception|cannot|could not|unable|invalid)\b", re.IGNORECASE
)
_MORE_UNITS = 3
"""So many further units without a failure need no result."""
_RESULT = re.compile(
    r"(?!.*\b(?:not|never|could|cannot|emergency|crash\w{0,3}|interrupt\w{0,3}|before|traceback|core|none|nan|nothing|partial\w{0,2}|fail\w{0,4}|(?<!\d )errors?|exceptions?|load\w{0,3}|reading|open\w{0,3}|connect\w{0,3}|initiali\w{2,6}|start\w{0,3}|import\w{0,3}|compil\w{1,3}|build\w{0,3}|set ?up|clean\w{0,3}|remov\w{1,3}|copy\w{0,3}|copied|logs?|shut\w{0,6}|stopp?\w{0,3})\b)(?:"
    r".{0,60}\b[1-9]\d{0,8} (?:\w{1,20} )?(?:ok|succeeded|passed|valid)\b|.{0,100}\b[Ii]teration completed: \S|\W{0,4}(?:\w{1,20} ){1,4}(?:saved|written|stored|exported|uploaded) (?:to|in|as) \S*[./]\S"
    r"|.{0,200}\b[Bb]est\b[^:=\n]{0,40}[:=] ?\S|.{0,120}\b(?:[1-9]\d{0,9}) of \d{1,10} [a-z]{3,20}|.{0,60}\b[Aa]ll [1-9]\d{0,9} (?!(?:ranks|workers|nodes|processes|threads|gpus|actors|tasks|jobs)\b)[a-z]{3,20} (?:(?:were|are|have been) )?(?:written|uploaded|downloaded|fetched|processed|converted|saved|exported|rendered|evaluated|scored|finished|completed|done)\b|\[#{1,80}\] \| {0,3}100% Completed \|"
    r"|.{0,60}\b(?:(?:finished|completed|converged|succeeded|passed|done) (?:with|in|after|over) [\w-]{0,20} ?\S|synced\b|done$|ok$|PASS$)|.{0,120}\bexit(?: code| status)? 0$"
    r"|\W{0,4}(?:\[[^\]\n]{1,40}\] {1,3})?(?:\w{1,20}: )?(?:[Ss]aved|[Ss]aving|[Ww]rote|[Ww]ritten|[Ss]tored|[Ee]xported|[Uu]ploaded) (?:\S{1,60} ){0,6}\S*[./\d]\S"
    r"|.{0,40}\b(?:[Aa]ccuracy|[Ss]core|AUC|[Mm]ean|RMSE|MAE)\b[^:=\n]{0,12}[:=] ?-?\d)"
)
"""What a program reports of work that it has done. A script's farewell (`finished at …`) is none."""
_SUM = re.compile(
    r"(?!.*\b[1-9]\d{0,9} (?:\w{1,20} )?(?:fail\w{0,4}|errors?|crash\w{0,3}|kill\w{0,3}|missing|lost|left)\b)(?=.{0,200}\b[1-9][\d,]{0,14} [a-z]{3,20}\b).{0,200}\b0 (?:[a-z]{1,20} ){0,2}(?:failed|failures|errors?)\b",
    re.IGNORECASE,
)
"""A harness's sum of its work, of which nothing failed."""
_NAMED = r"\b(?:trials?|runs?|fits?|folds?|experiments?|candidates?|subjects?|samples?|items?|records?|genes?|seeds?)[ :#]{1,2}(?=[\w.-]{0,40}\d)[\w.-]{1,60}"
_FAILED_UNIT = re.compile(
    rf"{_NAMED}\b.{{0,80}}\b(?:failed|errored|raised|crashed)\b|\bfailed for {_NAMED}|\btraceback (?:of|from|for) (?!(?:the )?(?:ranks?|process|worker|node|thread|child)\b)[a-z]{{1,20}} [\w.-]{{0,40}}\d[\w.-]{{0,40}}\b.{{0,40}}:$",
    re.IGNORECASE,
)
"""A harness reports which of its units failed: it caught the exception."""
_NUMBER = "0123456789-_"
_NEAR_LINES = 2
_GOES_ON = re.compile(
    r"\(optional\)|\btransport '\w{1,20}' is not available, please use one or more of: \w|\b(?:skip(?:ping|ped)|retr(?:y(?! counts?\b| limit)|ying|ied)|re-?trying|trying to restart|re-?submitt(?:ed|ing)|trying (?:again|(?:a )?smaller|(?:with )?\d+)|fall(?:ing)? ?back(?![./\w-])|(?<!not )(?<!to )continu(?:e|ing)|(?<!not )going on(?=$|[ .,;:!)])(?: without)?|(?<!Exception )ignor(?:ed|ing)(?! input$)|halving|reduc(?:ed|ing) (?:the )?(?:micro )?batch|recover(?:ed|ing)|resum(?:e|es|ed|ing))\b"
    r"|(?:->|--|[;,]) (?:will )?re-?(?:start|spawn|open|launch|connect|load)\w{0,4} [^()\n]{1,80}\((?:\w{1,10} )?\d{1,3}/\d{1,4}\)|\bmemory budget\. {1,2}Restarting|\bHTTP/\d(?:\.\d)?\" 4\d\d\b",
    re.IGNORECASE,
)
"""What the program does without or tries again; a server that blames the client for the failed request."""
_ADVICE = re.compile(
    r"\b[Yy]ou can\b|\bby setting\b|\b(?:please|try to|to) (?:skip|ignore|continue|retry|resume)\b"
)
"""Advice to the reader of the log, which the program itself does not follow."""
_WARNED = re.compile(r"\W{0,3}(?:[\d:/., TZ-]{8,40}\W{0,3})?WARN(?:ING)?\b")
"""The log level of a problem that does not end the program."""
_OF_R = re.compile(r"\s{0,4}Error in (?:[\w.:$`]{1,80}\(.{0,200}[),]|\{) {0,2}:")
_R_ENDS = re.compile(
    r"Execution halted|Calls: |Backtrace:|Traceback|In addition: |Warning messages?:|Quitting from "
)
"""What R prints below the error that ends it; a script that `try` guards goes on without."""
_LEFT_OUT = re.compile(
    r"(?<!not )\b(?:skip(?:ping|ped)|(?<!be )quarantined|(?<!Exception )ignor(?:ed|ing)(?! input$)|retrying|trying again|fall(?:ing)? ?back)\b|\bmemory budget\. {1,2}Restarting|^(?!.*\b(?:link|connections?|socket|peer|client|node|worker|rank|request)\b).*(?:[-=]>|[:,;]) ?(?:dropped|discarded|rejected)\W*$",
    re.IGNORECASE,
)
_INSTEAD = re.compile(r"\bfailed\b[^,;\n]{0,60}[,;] using (?:the |an? )?[a-z]")
"""A logger's error that says what the program uses instead."""
_TRIED = re.compile(
    r"(?P<words>[^\d\n]{0,60}\b(?:trying|testing|probing)\b[^\d\n]{1,30})\d{1,9}\b[^\d\n]{0,12}\.\."
)
"""A search for the greatest value that works meets the first that does not."""
_PROMPT, _COMMAND = re.compile(r"> \S"), re.compile(r"> [\w.]{1,60}(?: <- |\()")
_MORE_PROMPTS = 2
"""A session of R that shows its commands ends with the first error that nothing catches."""
_ENDS_MAIN = 'Exception in thread "main" '
_GAVE_UP = re.compile(
    r"\b(?:giving up|gave up|(?:retries|attempts) (?:are |were )?(?:exhausted|used up)|no more (?:retries|attempts)|max(?:imum)?(?: number of)? (?:retries|attempts) (?:exceeded|reached))\b",
    re.IGNORECASE,
)
"""The last attempt failed, too."""
_TEST_BEGINS, _TEST_RIGHT = re.compile(r"# nThread \d"), re.compile(r"# Out of bounds values : 0 OK$")
"""A test of nccl-tests begins; all of its collectives ended, with the right values, without what NCCL had not found."""
_ABSENT = re.compile(r" NCCL WARN .{1,200}(?:Not Found|Not Supported)$")
"""Any other warning may be of a part of the machine that failed. Pairs of nodes are tested side by side, and the right values are another pair's."""
_RESTARTS = re.compile(
    r"\b(?:resum(?:e|ed|ing)|restor(?:ed|ing)\b(?=.{0,60}\b(?:checkpoint|ckpt|from|state|weights|model|epoch|step|run)s?\b)|(?:slurm_)?restart(?:ed|ing|[ _]count\W{1,3}[1-9]\d{0,4}))\b",
    re.IGNORECASE,
)
_LATER = re.compile(
    r"\b(?:next (?:run|job|time|attempt|start)|will|would|can|cannot|could|please|not|never|to|fail\w{0,3})(?: \w{1,12}){0,2} $|--$",
    re.IGNORECASE,
)
"""What a run that ends says of the one to come."""
_WARNINGS_SOURCE = re.compile(r" {2}(?:\w{1,40}\.)?warn(?:ings\.warn)?\(")


def resumes(text: str) -> bool:
    """Whether the program, or the harness around it, reports that it resumes an earlier run's work."""
    return any(_LATER.search(text[: found.start()]) is None for found in _RESTARTS.finditer(text))


def reports_recovery(text: str) -> bool:
    """Whether the line reports that the program goes on."""
    goes_on = _GOES_ON.search(text) is not None or _WARNED.match(text) is not None
    return goes_on and not _ADVICE.search(text) and not ends_main(text)


def uses_instead(text: str) -> bool:
    """Whether the line says what is used instead of something that failed."""
    return _INSTEAD.search(text) is not None


def ends_main(text: str) -> bool:
    """Whether an exception ended the main thread of a JVM, whatever it says: the program's result is bad."""
    return _ENDS_MAIN in text


def is_result(text: str) -> bool:
    """Whether a program reports work that it has done."""
    return _RESULT.match(text[:_MAX_CHARS]) is not None or _SUM.match(text[:_MAX_CHARS]) is not None


def _is_caught(text: str) -> bool:
    """Whether the line reports what the program leaves out, or tries again, because of an error."""
    return _LEFT_OUT.search(text) is not None and not _ADVICE.search(text) and not ends_main(text)


def _unit(text: str) -> tuple[str, str, bool] | None:
    """The words and the name of a unit of work, and whether it is a part that others may work on side by side; None for any other line."""
    if text[:1].isspace():
        return None  # a setting, or a message's further line
    text = text[:_MAX_CHARS]
    head = _HEAD.match(text)
    found = _UNIT.match(text, head.end() if head else 0)
    if found is None or _BY_ITSELF.search(text):
        return None
    words, kind = found["words"].strip(), found["name"].rstrip(_NUMBER)
    if not (_NO_UNIT.search(words) or _NO_UNIT.match(kind)):
        return words, found["name"], False
    number = None if _SETS_UP.search(words) else _TRAILING.search(found["name"])
    return (f"{words} {kind}", number[0], True) if number and _IS_PART.search(kind or words) else None


class _Parts:
    """Follows parts in the order of their numbers."""

    def __init__(self) -> None:
        self._last: dict[str, int | None] = {}
        """The last number, by the words of the line; None once they came in another order."""
        self._often: dict[str, int] = {}
        """How many followed one by one since the last error."""

    def before(self, words: str, number: int) -> None:
        """A part before the error."""
        if words in self._last or len(self._last) < _MAX_NAMES:
            last = self._last.get(words, number)
            self._last[words] = number if last is not None and number >= last else None

    def failed(self) -> None:
        """Another error came."""
        self._often.clear()

    def in_order(self, words: str, number: int, *, is_well: bool) -> bool:
        """Whether this part after the error is the last of many in order; the one that failed may be left out."""
        last, often = self._last.get(words), self._often.get(words, 0)
        if last is None or number == last:
            return False
        follows = last < number <= last + (1 if often else _STEP_OVER)
        self._last[words], self._often[words] = number if follows else None, often + is_well
        return follows and often + is_well >= _IN_ORDER


class Units:
    """Follows the units of work after the error `error`; `before`: the lines before it, oldest first."""

    def __init__(self, before: Sequence[str] = (), error: str = "") -> None:
        self._names: dict[str, set[str]] = {}
        """The units' names before the error, by their words."""
        self._parts = _Parts()
        for line in before:
            if (unit := _unit(line)) is None:
                continue
            if unit[2]:
                self._parts.before(unit[0], int(unit[1]))
            elif len(self._names) < _MAX_NAMES:
                self._names.setdefault(unit[0], set()).add(unit[1])
        heads = [i for i, line in enumerate(before) if grammar.TRACEBACK in line]
        above = before[heads[-1] - 1 if heads else -1] if before and heads != [0] else ""
        failed = _FAILED_UNIT.search(above) or (
            _COMPLAINS.search(above) and (_is_caught(above) or _INSTEAD.search(above))
        )
        tried = _TRIED.match(error)
        found_out = tried is not None and any(line.startswith(tried["words"]) for line in before)
        self._caught = bool(failed) or found_out or (not heads and _is_caught(error))
        """Whether the program, or the harness, reported that it caught the error."""
        self._of_r = any(map(_OF_R.match, (error, *before[-1:])))
        self._prompts = -_MORE_PROMPTS if self._of_r or any(map(_COMMAND.match, before)) else None
        """Prompts that R has yet to show; None in any other output."""
        self._exited = False
        self._of_nccl = _ABSENT.search(error) is not None
        self._lines = 0
        self.begun = 0
        """Units that began after the last error."""
        self._is_new = False
        """Whether the last line began a unit."""
        self.resolved = False
        """Whether a result followed an error that the program reported to have caught."""
        self.restarted = False
        """Whether the program reported that it resumes an earlier run's work."""

    def failed(self, finding: grammar.JobFinding) -> None:
        """Another error came: what was begun before it proves nothing."""
        if finding.role is not grammar.LineRole.OBSERVATION:
            self.begun = self._lines = 0
            self._of_nccl = self._of_nccl and _ABSENT.search(finding.message) is not None
            self._parts.failed()
        if finding.role is grammar.LineRole.EXIT:
            # What a script leaves out after that is a consequence.
            self._exited, self._caught, self._of_r = True, False, False

    def went_on(self, text: str) -> bool:
        """Whether this line after the error shows that work went on and came to a result."""
        self._lines += 1
        if self._lines == 1 and _WARNINGS_SOURCE.match(text):
            return True
        if self._lines <= _NEAR_LINES and not self._exited and _is_caught(text):
            self._caught = True
        self.restarted = self.restarted or resumes(text)
        if self._prompts is not None and _PROMPT.match(text):
            self._prompts += 1
        if _GAVE_UP.search(text) or _TEST_BEGINS.match(text):
            self._exited, self._caught = True, False
        if self._of_nccl and not self._exited and _TEST_RIGHT.match(text):
            return True
        self._of_r = self._of_r and _R_ENDS.match(text) is None
        unit, is_well = _unit(text), _WENT_WRONG.search(text) is None
        if unit and unit[2] and self._parts.in_order(unit[0], int(unit[1]), is_well=is_well):
            self.begun += _IN_ORDER
        elif unit and (names := self._names.get(unit[0])) is not None and unit[1] not in names:
            if len(names) < _MAX_NAMES:
                names.add(unit[1])
            self.begun += is_well
            self._is_new = is_well
        elif text.strip():
            self.begun -= self._is_new and not is_well  # it failed at once
            self._is_new = False
        if self.begun >= _MORE_UNITS or self._prompts == 0:
            return True
        result = is_result(text)
        self.resolved = self.resolved or (result and (self._caught or self._of_r))
        return self.resolved or (result and self.begun > 0)


class NamedPrograms:
    """Whether a line is of another program than the error, where a launcher or a script put a name in front of every line.

    A logger's name stands in front of its own lines only. So the name counts once a traceback's frames had one.
    """

    def __init__(self, before: Sequence[str], error: str) -> None:
        self._own = _named(error)
        self._of_launcher = False
        """Whether frames had the error's name."""
        for line in before:
            self.is_other(line)

    def is_other(self, text: str) -> bool:
        """Whether the line, the next one, has the name of another program."""
        if self._own is None or (name := _named(text)) is None:
            return False
        framed = _FRAME.match(text, len(name)) is not None
        self._of_launcher = self._of_launcher or (framed and name == self._own)
        return self._of_launcher and name != self._own

    def works_on(self, text: str) -> None:
        """The line is progress: the error's own program may work on, and others with it."""
        if self._own is not None and _named(text) == self._own:
            self._own = None


_NAME = re.compile(r"(?:\[[^\]\s]{1,24}\]|[A-Za-z][\w.-]{0,24}[:>|])(?= )")
_FRAME = re.compile(r" {1,8}File \"")


def _named(text: str) -> str | None:
    found = _NAME.match(text)
    return found[0] if found else None


_SUCCEEDED = re.compile(
    r"\bWorkerState\.SUCCEEDED\b|\bworker group successfully finished\b|\bProcess \d{1,10} exits successfully\b|\bJob '[\w-]{1,80}' succeeded\b|^configure: exit 0$"
)


def succeeded(text: str, error: str = "") -> bool:
    """Whether a launcher (torchrun, DeepSpeed, Ray) or configure reports that its work ended well after `error`, or Spark the work in which it happened."""
    return (_SUCCEEDED.search(text) is not None and not ends_main(error)) or ran_again(error, text)


_COMPLETE = re.compile(
    r"(?P<process>\S{1,253}:\d{1,10}:)\d{1,10} \[\d{1,3}\] NCCL INFO .{0,300}\bInit COMPLETE"
)


def made_up_for(error: str, text: str) -> bool:
    """Whether `text` reports a new communicator of the process that printed `error`: the failed one was an attempt or a test."""
    found = _COMPLETE.match(text)
    return found is not None and error.lstrip().startswith(found["process"])


_SPARKS = re.compile(r"\bDAGScheduler: Job \d{1,9} finished\b")
_OF_EXECUTOR = re.compile(r"\bTask(?:SetManager|SchedulerImpl): |\bLost executor\b")


def ran_again(error: str, text: str) -> bool:
    """Whether Spark finished one of a program's jobs in `text`: it ran the tasks of the executor that `error` reports as lost again."""
    return _SPARKS.search(text) is not None and _OF_EXECUTOR.search(error) is not None
