"""Blocks in a log that the program did not write: a step's output as a workflow engine repeats it, LSF's or a site's summary of the job, a test session."""

from __future__ import annotations

import re
from collections.abc import Reversible
from itertools import islice

TRIGGERS = (
    "Command error:", "Command output:", "Command wrapper:", "Sender: LSF System",
    "pilog", "PILOG", "ob Statistics", "OB STATISTICS", "ob Information", "ob information", "esource Usage", "esource usage", "ob Summary", "ob summary", "User/Group: ",
    "INFO: exiting: ", "Everything looks ", "This progress looks ", "Spider closed (", "SKIPPED ] ", "-fork=",
)  # fmt: skip
_HEAD = re.compile(r"(?P<indent>\s{0,8})Command (?P<what>error|output|wrapper):\s*$")
"""Nextflow's heading of the output of a failed process's command."""
_END = re.compile(r"\s{0,8}(?:Work dir|Container|Tip|Command [a-z ]{4,20}):|\s{0,8}\[.{0,40}Pipeline\b")
_MAX_LINES = 400


class StepOutput:
    """Follows the blocks; at most one is open."""

    def __init__(self) -> None:
        self._began = 0
        self._indent: int | None = None
        self._errors = False
        self.errors_began = 0
        """Line at which the last block of a step's error output began."""

    def text(self, line: int, text: str) -> str:
        """`text` without the block's indentation; unchanged outside a block."""
        if found := _HEAD.match(text):
            self._began, self._indent, self._errors = line, None, found["what"] == "error"
            self.errors_began = line if self._errors else self.errors_began
            return text
        if not self._began:
            return text
        if line - self._began > _MAX_LINES or _END.match(text) or (text.strip() and text[0] not in " \t│"):
            self._began = 0
            return text
        if not text.strip():
            return text
        if self._indent is None:
            self._indent = len(text) - len(text.lstrip())
        return text[min(self._indent, len(text) - len(text.lstrip())) :]

    def inside(self, line: int) -> bool:
        """Whether `line`, the one read or the next, stands in a block."""
        return 0 < self._began < line

    def of_errors(self, line: int) -> bool:
        """Whether `line` stands in a block of the step's error output; the step had ended by then."""
        return self._errors and self.inside(line)


_LSF = re.compile(r"Sender: LSF System <")
_LSF_END = re.compile(r"(?:The output \(if any\)(?P<above> is above)?|Read file <)")
_LSF_SCRIPT = re.compile(r"# LSBATCH: User input")
_RULE = re.compile(r"-{20,120}$")


class LsfSummary:
    """Follows LSF's summary of the job, before or after the job's output; the program wrote none of its lines."""

    def __init__(self) -> None:
        self._began = 0
        self._in_script = False
        self._next_from = 0
        """First line of another job, if a further summary follows: below the last summary, or where the next one begins."""
        self.job_from = 0
        """First line of the job that the summary read last is of, if an earlier job wrote to the same file; else 0."""

    @property
    def is_open(self) -> bool:
        """Whether the line read last, or the next one, stands in the summary."""
        return self._began > 0

    def read(self, line: int, text: str) -> str | None:
        """LSF's own text in the line; empty inside the job script that it repeats, None outside the summary."""
        if _LSF.match(text):
            if self._next_from:
                self.job_from = self._next_from if self._next_from > 1 else line
            self._began, self._in_script, self._next_from = line, False, 1
        if not self._began:
            return None
        if (end := _LSF_END.match(text)) or line - self._began > _MAX_LINES:
            self._began = 0
            if end and end["above"]:
                self._next_from = line + 1
        if _LSF_SCRIPT.match(text):
            self._in_script = True
        elif self._in_script and _RULE.match(text):
            self._in_script = False
        return "" if self._in_script else text


_SUMMARY = re.compile(
    r"[\s=~#*-]{0,80}(?:(?:Begin|Start|Running) )?(?i:(?:PBS|Slurm|SGE|Torque|site)(?: job)? (?:epilog(?:ue)?|statistics|summary)|job (?:epilog(?:ue)?|statistics|information|info|summary|resource usage(?: summary)?)|resource usage(?: summary| on\b.{0,40})|epilog(?:ue)?)\b(?: script)?[^=~#*\n]{0,40}[\s=~#*-]{0,120}$"
    r"|User/Group: [\w.-]{1,64}/[\w.-]{1,64}$"
)
"""The heading of a site's account of the job, which its epilogue appends to the output; seff's begins with the job's owner."""
_FIELD = re.compile(
    r"\s{0,60}(?:[\w/()%.&,#+-]{1,24} ){0,4}[\w/()%.&,#+-]{0,24}(?i:job|jobs|user|group|account|queue|partition|nodes?|nodelist|cores?|cpus?|gpus?|mem|memory|vmem|wall|walltime|cput?|state|exit|limits?|resources?|efficiency|started|ended|start|end|submitted|submit|session|executed|execution|cluster|project|time|hosts?|tasks?|utili[sz]ed|requested|used|directory|dir|energy|status|date|id|name)\b[\w ()/%.-]{0,24}\s{0,24}[:=](?!:)(?:\s|$|\S{1,80}$)"
)
_OF_SUMMARY = re.compile(
    r"\s*$|[\s=~#*_-]{3,140}$|[\s=~#*-]{0,80}End (?:of )?(?i:(?:PBS|Slurm|job) )?(?i:epilog)|\t\S|\s{2,60}\S|\S{1,253}$|\d{1,12}\S{0,30}\s{2,30}\S"
)
_NO_ACCOUNT = re.compile(
    r"error|exception|fatal|traceback|fail(?!ed_|ures?\s*:)|\b(?:could|cannot|can't|unable|invalid|illegal|abort\w{0,3}|denied|missing|must|not found)\b|warning(?!: efficiency)",
    re.IGNORECASE,
)
"""Fields, rules and tables of such an account."""
_SUMMARY_LINES = 40


def _is_accounted(text: str) -> bool:
    if text.lstrip().startswith(("State:", "Exit", "Job State", "Status:")):
        return True
    return not _NO_ACCOUNT.search(text) and (_FIELD.match(text) or _OF_SUMMARY.match(text)) is not None


class SiteSummary:
    """Follows a site's account of the job; its lines are no work of the program."""

    def __init__(self) -> None:
        self._began = 0

    def holds(self, line: int, text: str) -> bool:
        """Whether `line` belongs to such an account."""
        if _SUMMARY.match(text):
            self._began = line
            return True
        if self._began and (line - self._began > _SUMMARY_LINES or not _is_accounted(text)):
            self._began = 0
        return self._began > 0

    @property
    def is_open(self) -> bool:
        """Whether the next line may belong to it."""
        return self._began > 0


_TEST_BEGINS = re.compile(
    r"\[ RUN +\] \S|={3,80} test session starts ={3,80}$|=== RUN +\S|running \d{1,7} tests?$|\[INFO\] Running [\w.$]{1,200}$|not ok \d{1,7}\b|INFO: -fork=\d{1,6}: fuzzing in separate process"
)
_TEST_PASSED = re.compile(
    r"\[ +OK +\] \S|\[ +SKIPPED +\] .{1,400} \(\d{1,9} ms\)|\s{0,16}--- (?:PASS|SKIP): \S|\[INFO\] Tests run: [1-9]\d{0,6}, Failures: 0, Errors: 0\b"
)
"""Lines for the start of a test and for the end of one that passed or was left out (GoogleTest, Go, Maven), and the first line of a session (pytest, Rust). TAP reports each test below its output."""
_ALL_PASSED = re.compile(
    r"={3,80} (?!.*\b(?:failed|errors?)\b)\d{1,7} passed\b.{0,120} in [\d.]{1,12}s.{0,24} ={3,80}$"
    r"|test result: ok\. \d{1,7} passed; 0 failed;|ok {1,2}\t\S{1,300}\t(?:[\d.]{1,12}s|\(cached\))|configure: exit 0$|(?:\[INFO\] )?BUILD SUCCESS(?:FUL in \S.{0,40})?$"
    r"|100% tests passed, 0 tests failed out of [1-9]|All tests (?:passed \(\d{1,9} assertions?|successful\.$)|# (?P<all>\d{1,7}) of (?P=all) tests passed$|# (?:result|Result): PASS$|ok \d{1,7} - \S"
    r"|INFO: exiting: 0 time: \d|Everything looks good! |This progress looks :\) because (?:there were no failed tasks|there were failed tasks but they all succeeded in a retry)|.{0,40}\[scrapy\.core\.engine\] INFO: Spider closed \(finished\)$"
)
_OK, _RAN = re.compile(r"OK(?: \([\w= ,]{1,80}\))?$"), re.compile(r"Ran \d{1,7} tests? in [\d.]{1,12}s$")
_RAN_LINES = 3
_PASSES = (
    "===",
    "test result: ok",
    "ok ",
    "configure: exit 0",
    "[INFO] BUILD",
    "BUILD SUCC",
    "100% tests",
    "All tests ",
    "# ",
    "INFO: exiting: ",
    "Everything looks ",
    "This progress looks ",
)
_SPIDER = "Spider closed (finished)"


def test_mark(text: str) -> bool | None:
    """False if a test or a test session begins, True if a test passed, None for any other line."""
    if not text.lstrip().startswith(
        ("[ ", "===", "--- PASS", "--- SKIP", "running ", "[INFO] ", "not ok ", "INFO: -fork=")
    ):
        return None
    if _TEST_BEGINS.match(text):
        return False
    return True if _TEST_PASSED.match(text) else None


def tests_passed(text: str, before: Reversible[str]) -> bool:
    """Whether a test runner reports in this line that every test passed; the tests then expected the exceptions above."""
    if text.startswith("OK"):
        near = islice(reversed(before), _RAN_LINES)
        return _OK.match(text) is not None and any(_RAN.match(line) for line in near)
    return (text.startswith(_PASSES) or text.endswith(_SPIDER)) and _ALL_PASSED.match(text) is not None


_PRINTED = re.compile(r"╰─> \[(?P<lines>\d{1,5}) lines? of output\]")
"""pip's heading of the output of a package's own build."""


class BuildOutput:
    """The output of a package's own build, which pip repeats; a script often goes on without the package."""

    def __init__(self) -> None:
        self._until = 0

    def read(self, line: int, text: str) -> None:
        """A line of the log, in order."""
        if printed := _PRINTED.search(text):
            self._until = line + int(printed["lines"])

    def inside(self, line: int) -> bool:
        """Whether the line is such output."""
        return line <= self._until
