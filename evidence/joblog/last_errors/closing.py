"""The last resort: an unrecognised error at the end of a log, or right before an exit without a reason.

Only the end of the log counts. Such an error proves nothing about hardware, and any other finding is stronger.
Before an end that is known to be bad, words of an error may stand anywhere in the line.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from dataclasses import replace

from probing_cluster.evidence.joblog import grammar, labels, mention, progress
from probing_cluster.evidence.joblog.grammar import JobFinding, LineRole, Record, make
from probing_cluster.evidence.joblog.last_errors import error_line, levels, lines_behind, sentences, work_over
from probing_cluster.evidence.joblog.messages import languages, last_word

FACTS = {"program_error": languages.FACTS["program_error"]}
_LINES, _MAX_CHARS = 40, 600
_FAREWELL_LINES = 8
"""A code's own error stands at most so many lines above its closing message."""
_OTHERS = 3
"""At most so many other lines may follow an error; with more, the program went on."""
_MEANING = "The output ends with this error; the program does not say more, and no known form fits."
_FAR = 16
"""Without another sign of a bad end, an error must stand within so many lines of the log's end."""
_NAME = r"(?:[\w./+-]{1,80}(?:::[\w~]{1,60}){0,6}(?:\(\d{1,8}\)|\[\d{1,10}\]| [a-z][\w-]{1,20})?(?:: {1,3}|::(?:\d{1,6}::)?)){0,3}"
_WORDS = r"(?i:fatal|abort(?:ed|ing)?|panic|failed|cannot|can't|can not|could not|couldn't|unable to|fail to|unexpected(?:ly)?|invalid|illegal|unrecogni[sz]ed|undefined|unsupported|missing)"
_VERBS = r"(?i:cannot|can't|can not|could not|couldn't|unable to|fail to)"
_WORD = re.compile(
    rf"(?:\W{{0,6}})(?:\[[^\]\n]{{1,40}}\]:? ?)?{_NAME}(?:\W{{0,6}})"
    r"(?:(?:An? )?(?:(?i:fatal|caught|uncaught|unhandled|internal|critical|unexpected|unrecoverable|runtime|input|i/o|configuration|system|license|unknown|severe|program|parse|syntax|type|value|usage|mpi|solver|mesh|user|numerical|memory|execution) ){0,2}"
    r"(?i:errors?|failures?|exception)(?: (?:code|number|message(?=\s?[:=]\s?\D)|no\.?|in|at|on|while|when|during|(?!handling|reporting|checking|logging|correcting|estimating|scaling|decreasing|falling|remaining|dropping|increasing|rising|growing|being|including)\w{2,20}ing|from|(?:has )?occurr?ed|encountered|detected|you|your|the|this|unable|unknown|invalid|cannot|could|failed)\b| [A-Z][A-Z_]{2,24}\b| [1-9]\d{0,5}\b|\s{0,6}[:!#(*)]|,(?= (?:you|your|the|this|that|an?|no|not|can\w{0,3}|could|unable|invalid|unknown|missing|wrong|too|must|expected|file|failed|only|bad)\b))"
    r"|(?:[A-Z][\w+-]{1,20} ){1,2}(?:ERROR|Error)(?:: (?!-?\d)|! |\s{1,3}\d{1,6}: )|(?:ERROR|FATAL|CRITICAL)\s{1,3}(?=[A-Za-z'\"\[(/])"
    rf"|{_VERBS}\b|{sentences.STATE}(?!\s?[=:]\s?\d))"
    r"|(?:\W{1,3} )?(?:[\w'\"./#()-]{1,60} ){1,6}(?:(?:has|have|was) )?(?i:failed|aborted|crashed|rejected|refused)(?: with (?:an? )?(?:error|exception))?[:.] (?!-?\d)\S|STOP: (?=\D)|.{0,120}\b(?:(?i:abort)\w{0,6}|[Cc]ode termination)\b.{0,160}(?:\bline \d{1,7}|\b[Rr]eason ?): \S"
    rf"|\[file \S{{1,200}}, line \d{{1,7}}\]: {{1,8}}[A-Z]|.{{1,200}}?[^:]: {_WORDS} (?!\d)|.{{0,80}}(?<![:\w])::(?:Abort|Error|Fatal\w{{0,10}}|Assert)::"
    r"|[Ff]ailed (?:on|at) line:? \d{1,6} at command: \S|(?!(?:Validation|Test|Train|Max|Min|Mean|Average|Rel|Abs|Total|Final|Root|Standard|Squared|Energy|Force|RMS|Predict|Reconstruct|Estimat|Generali|Approximat|Discreti|Truncation|Interpolat|Fit|Residual|Median|Sampling|Statistical)\w{0,12} error: (?!.*\b(?:required|invalid|missing|must|not|failed)\b))[A-Z][\w+-]{1,20} error: (?!-?\d)\S"
    r"|.{0,200}\b(?i:not (?:achieved|(?<!criterion not )(?<!limit not )(?<!target not )(?<!patience not )reached|converged?)|did(?: not|n't) converge|has occurred: |with (?:an )?error (?:level|code|status)\b)"
)
"""A word for an error in the place of an error: first in the line, after the program's name, or after a colon."""
_STATE_AT_END = re.compile(
    r".{1,300}(?:: |\bis |\bwas |\bwere |\bdoes |\bhas |\bhave |\b(?:might|may|seems to|appears to) be )(?i:(?:file |command )?not found|no such \w.{0,40}|not defined|undefined|not exist|does not exist|permission denied|access denied|invalid|corrupt(?:ed)?|failed|refused|too (?:small|large|many|few|long)|not (?:a valid|allowed|supported|enough|converged|installed|recogni[sz]ed|permitted|available)\b.{0,60}|missing|exceeded|aborted|(?:very )?serious problems?)\s?[.!]{0,3}$"
    r"|(?!(?i:none|nothing|zero|never|not|has|have|was|\d{1,9}) )[\w./-]{2,60} failed[.!]{0,3}$|.{4,300}[,;:.)-] (?:now )?(?i:abort(?:ing)?|bailing out|giving up|(?:can ?not|unable to) (?:continue|proceed))[.!]{0,3}$|.{4,300}\b(?:cannot|can not|could not) be (?!plotted|shown|displayed|drawn|compared|improved|excluded|undone|changed|guaranteed|verified|reproduced|ruled)[a-z]{4,14}[.!]{0,3}$"
    r"|.{1,80} not found in (?:\$?[A-Z][A-Z_]{2,40}|(?:the |your )?(?:[\w$]{1,30} )?(?i:path|director(?:y|ies)|folder))[.!]{0,3}$"
)
_ENDING = re.compile(
    r"STOP {1,4}(?!0+$)\d{1,6}$|(?:\[[^\]\n]{1,40}\] )?\W{0,12}(?:[\w.-]{1,40}[,:]? {1,4}){0,4}?(?i:abnormal(?:ly)? (?:program )?(?:terminat|end|exit)\w{0,6}|terminated abnormally|aborting(?: the)?(?: run| job| program| execution| simulation| calculation)?|(?:exit(?:ed|ing)?|end(?:ed|ing)?|finished|terminat(?:ed|ing)|stopp(?:ed|ing)|quit(?:ting)?) (?:with|due to|because of|on|after|by) (?:an? )?(?:fatal )?errors?"
    r"|(?:run|job|program|execution|simulation|calculation|pipeline|analysis|step|training|script|workflow|build|test) (?:has )?(?:failed|aborted|crashed|(?:is|will be) aborted|(?:halted|stopped|terminated|will stop|(?:is|will be) (?:stopped|terminated))(?= (?:because|due to|with(?! exit code 0\b)|abnormally|abruptly|prematurely|unexpectedly)\b))|error termination|(?:parallel )?run (?:aborting|exiting)|reporting training failure|bailing out|giving up|refuse to continue|(?:program|execution|job) aborts?)[^:=]{0,60}$|Module \S{1,60} failed to run\b"
)
"""A bad end without its reason."""
_LEAVES = re.compile(
    r"(?:\W{0,2}[\d:.,/T -]{5,40})?\W{0,6}(?:(?:(?:program|script|now|i'm) )?(?:exit(?:ing)?|quit(?:ting)?|stopping|leaving)(?: (?:now|program|script|here))?"
    r"|(?:the )?(?:run|job|program|execution|simulation|calculation|analysis|training|pipeline|workflow|script) (?:has (?:been )?|is |was |will be )?(?:halt|stop|terminat)\w{0,4})\W{0,4}$",
    re.IGNORECASE,
)
"""A program that only reports that it leaves, as it does after a good run: the line above may give the reason."""
_EXIT = re.compile(r"(?:.{0,100}[\s:])?exit [1-9]\d{0,2}$")
"""A script's report of a bad exit code."""
_WHY_IT_LEAVES = re.compile(
    r"\b(?:(?:is|are|was) not (?:an?|in|the|one of)|not (?:found|valid|supported|a valid)|(?:does|do)(?: not|n't) (?:exist|match|have|contain)|cannot|can't|could(?: not|n't)|unable to|invalid|missing|no such|wrong|unknown|unsupported|must be|required)\b",
    re.IGNORECASE,
)
_LEAVES_BECAUSE = re.compile(
    r"(?!.*\b(?:exceed\w{0,3}|reached|limit|budget|duration|minutes|signal|SIG[A-Z]{3,4}|early|requested)\b).{8,400}[,;.)-] ?(?:now )?[Ee]xiting(?: now| program)?\s?[.!]{0,3}$"
)
"""A reason and, in the same line, that the program leaves."""
_NONE = re.compile(
    r": \[{1,2}: |\bpress ctrl\b|^Loading required (?:package|namespace): |^\W{0,6}errors? (?:is|are) an?\b|^[\w., ]{1,80} = [\w.]{1,80}\(.{0,300}\)$|\b\d{1,9} (?:eigen(?:values?|vectors?)|bands?|roots?|states?) not (?:yet )?converged|^\s{0,8}reason: (?:Missing output|Input files|Updated input|Set of input|Code has|Params have|Forced exec|Software env)|\bunrecogni[sz]ed keys in [`'\"]|^\W{0,3}(?:missing|unexpected)[ _]keys\s?:|: no version information available \(required by |^\s{0,8}Molpro calculation terminated$|\b(?:no|0|zero|without|any) (?:\w{1,20} )?(?:errors?|failures?|failed|missing|invalid)\b|\berrors?\s?[:=]\s{0,4}(?:none|nil|null)\W*$|\bwarn|Warning\b|\.py:\d{1,7}: |\bdeprecat|\bignor|\bretry|\bskip|\bfall(?:ing|s)? ?back|\boptional\b|(?<!to )(?<!not )\bcontinu|\binstead\b|\busing (?:the |its )?defaults?\b|\bdebug\b|\bINFO\b(?!/| tag| field| column)|\bnote\b|\bwould be\b|\bif you\b|\bthese errors\b"
    r"|\b(?:error|failures?|failed|invalid|missing)s?(?!:)[^\w!,]{0,3}(?:analysis|summary|statistics|table|metrics?|distribution|rate|bars?|norm|tolerance|threshold|handling|handler|log|count|estimate|model|bound|correction|stderr|file)\b"
    r"|\b(?:errors?(?! (?:reading|opening|writing|creating|loading|code|number|in|at|on|from|while|when)\b)|failed(?! (?:on|at) line)|failures|missing|invalid|aborted|undefined|unexpected|unrecogni[sz]ed|exceptions)\b[^:=.]{0,24}[:=]\s{0,4}[-+(\[]?\d|\d\s?%|\b(?:errors?|failed|failures?|rejected)\b[^:=.]{0,40} (?:by|per) \w{2,20}[:=]\s(?:[\w./-]{1,60}[ =:|]{1,3}0\b[,; ]{0,2}){1,20}$|\berror\W{1,3}(?=[.eE+-]{0,3}\d)[\d.eE+-]{1,20}\W{0,3}$|\?$",
    re.IGNORECASE,
)
"""Numbers that are called errors, and mere notes."""
_ROW = re.compile(
    r"\s*\|[^|]{1,300}\|[^|]{1,300}\||\s*[^\s|]{1,80}(?>(?:[ \t]{2,40}|\t)[-+]?\d[\d.,]{0,20}(?:[eE][-+]?\d{1,3})?%?){2,40}+\s*$"
)
"""A row of a table of two columns or more; the boxes that codes draw around an error have one. Of counters: a name and its numbers."""
_STACK = re.compile(
    r"(?:\[[\w.-]{1,253}:\d{1,10}\] )?#?\s{0,4}\[?\d{0,6}\]?\s{0,8}(?:#\d|frame #\d|\[\d{1,4}\]|\[\d{1,4}:\d{1,4}\]|0x[0-9a-f]{4,16}\b|/\S{1,300}\(\S{0,200}\) ?\[0x|\S{1,100}\s{2,}[0-9A-F]{8,16}\s|Image {6,}PC|at \S|in \S{1,200}\.\w{1,4}:\d|\[?file \S{1,200}, line \d{1,7}(?!\d|\]: ))|(?:backtrace|stack ?trace|call stack|stack dump|where|location|source)\b.{0,80}$|\[\d{1,6}\] Stack Traceback|Current trace|traceback|(?:major|minor): |#\d{3}: |\d{1,3}: 0x[0-9a-f]{4,16}\b|-{3,8} native stack trace",
    re.IGNORECASE,
)
"""Frames of a stack and their headings."""
_BOILERPLATE = re.compile(
    r"Primary job\s|=\s{1,8}BAD TERMINATION OF ONE\b|\S{1,200} FAILED$|CHILD PROCESS FAILED WITH NO ERROR_FILE$|a non-zero exit code\b|mpi(?:run|exec)\S{0,8} (?:detected|has exited|noticed|was)\b|the job to be terminated|MPI_ABORT was|with errorcode|NOTE: invoking|exactly when Open MPI"
    r"|(?:\[[\w.-]{1,253}:\d{1,10}\] )?\*{3} (?:End of error message|Process received signal)|You may or may not|\*{3} Aborted at \d|Process name: |PMI2?_Abort: |(?:\[[\w.-]{1,253}:\d{1,10}\] )?(?:\d{1,8} more process(?:es)? ha(?:s|ve) sent help message|Set MCA parameter)\b|aborting job$|(?:srun|slurmstepd|slurmd|sbatch): "
    r"|(?:slurmstepd: error: )?\*{3} (?:JOB|STEP) .{1,200} CANCELLED AT |\s{0,8}(?:Job ?)?(?:State|Status)\s{0,8}[:=]\s{0,8}(?:FAILED|CANCELLED|TIMEOUT|OUT_OF_MEMORY|NODE_FAIL|COMPLETED)\b"
)
"""Lines that launchers print about every end, and `seff` and `scontrol` about a job."""
_SILENT = re.compile(
    r"\W*$|(?:\s{2,}|\t)\S|(?:real|user|sys)\s+\d+m|(?:please|see|try|use|usage|hint|tip|for (?:more|help|further)|check|contact|report|run)\b|(?:exit(?:ing|ed)?|stop(?:ped|ping)?|quit|bye|end)\b.{0,60}$|\s*at \S|#\d|\W{0,6}[\w ]{1,60}:\s{1,20}[✓✔✗✘⚠✅❌]",
    re.IGNORECASE,
)
"""Lines after an error that are no sign of work."""

_HEAD_CHARS, _BELOW_LINES, _SENTENCE_WORDS = 120, 3, 3
_ANNOUNCES = re.compile(
    r"\W{0,12}(?:(?i:fatal|exception|abort(?:ed|ing)?)\b|(?i:error)(?:\W|$| (?:in|at|on|from|while|when|during|of type|code|message|occurred|detected|encountered|caught)\b)|.{0,100}\b(?i:error (?:message|occurred|detected|encountered)|(?:fatal|following|unexpected|unhandled|uncaught|runtime|internal) error|exception|aborted|crashed|failed with|failed because)\b)"
)
_DECIMAL, _A_WORD = re.compile(r"\d\.\d"), re.compile(r"[A-Za-z]{2,}")
_REASON = re.compile(r"\s{0,12}(?:[Rr]eason|REASON|[Cc]ause|CAUSE)\s?: ?[^\W\d]")
"""A reason that a code prints below the line that it stops."""
_LISTS = re.compile(
    r"^\s*$|^frame #\d|^Exception raised from \S|: Job/step already completing or completed$|\bTCPStore\.cpp:\d|\bflag on TCPStore\b|(?:^|[\s:>])(?:(?:[Ss]talled|[Mm]issing) (?:ranks|ops|tensors)\b|\d{1,8}: ?\[|\[missing ranks:)"
)
_BOX_LINES = 6
_RULE = re.compile(r"\s{0,8}[-=*#!]{8,120}\s*$")
_NOTED = re.compile(
    r"(?:\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d\S{0,12} ?)?(?:[IDV](?:\d{4} [\d:.]{8,18}\s{1,8}\d{1,10})? [\w./-]{1,200}\.(?:cc|cpp|cu|cuh|h|py):\d{1,6}\]|\[(?i:i|v|d|info|debug|trace|verbose)\]\s|VERBOSE: |\[[WMIDV]::\w|.{0,120}\bUCX {1,4}(?:DIAG|INFO|DEBUG|TRACE)\b)"
)
"""A logger's note: whatever its words, no error."""
_INFORMED = re.compile(r"\s*(?:INFO|DEBUG) {1,3}\d\d-\d\d \d\d:\d\d:\d\d ")
"""The same in vLLM's form."""
_ENTRY = re.compile(r"\s{0,8}(?:#(?P<a>\d{1,5})[:.)]?|\(?(?P<b>\d{1,5})[.)])\s")
"""The beginning of an entry of a numbered list."""
_JUDGED = re.compile(
    r"\b(?:srun|slurmstepd|slurmd|sbatch|pyxis|conftest|CMakeTmp|CMakeScratch)\b|\bforrtl: |\bkernel: |NVRM|Xid|Root Cause \(|Failures:|NO_OTHER_FAILURES|ChildFailedError|exitcode|No such file or directory|File exists|NCCL|[Gg]loo|CUDA|cuda|Traceback"
)
"""Forms that other families judge; if they did not take such a line, it is no error."""

_CALL_FAILED = re.compile(
    r"^(?!.*\b(?i:warn|ignor|retry|skip|continu)).*\w\(.{0,300}\) ?(?:has )?(?:failed\b.{0,40}\b(?i:error|status|code|rc|errno)|returned (?:an )?(?:error|errno)(?: code)?)\W{1,4}-?[1-9]\d{0,11}\b"
)
"""A call that failed, and with which number."""
_PLACE = re.compile(r"^\[?/[\w./+-]{1,300}\.\w{1,4}:\d{1,7}\]:? ")
_LEVEL = re.compile(r"^\W{0,3}(?:ERROR|FATAL|CRITICAL|Error|error)\W{1,4}(?=\S)")
_SPACED = re.compile(r"(?:\b\w ){5,}\w\b")
_BOXED = re.compile(r"[|*#!+]+\s+(?P<words>\S(?:.*\S)?)\s+[|*#!+]+$")


def _plain(text: str) -> str:
    """The line without its launcher's prefix, its source file, a box around it, and blanks between single letters."""
    body = _PLACE.sub("", labels.bare(0, text).text.strip())
    # No box is that wide, and the time to look for one grows with the square of the line.
    if len(body) <= 2 * _MAX_CHARS and (boxed := _BOXED.match(body)):
        body = boxed["words"]
    if _SPACED.search(body):
        body = re.sub(r" {2,}", " ", re.sub(r"(?<=\b\w) (?=\w\b)", "", body))
    return body


def only_ends(finding: JobFinding) -> bool:
    """Whether it reports the end of a program that runs others (make, a linker, tar) or sums up its own errors; those stand above."""
    return finding.kind == "program_error" and _RUNNER.match(finding.message) is not None


_RUNNER = re.compile(
    r"(?:g|bs|n|p)?make(?:\[\d{1,3}\])?: \*\*\* \[|ninja: build stopped|collect2: (?:fatal )?error: |error: creating server: |error: command '.{1,200}' failed with|(?:\[ERROR\] )?Error in rule |Execution halted$|tar(?: \(child\))?: (?:Error is not recoverable|Exiting with failure status)"
)


def is_ending(text: str) -> bool:
    """Whether the line only reports that the run ended badly, whatever its log level."""
    return _ENDING.match(_LEVEL.sub("", _plain(text))) is not None


def _is_candidate(text: str, body: str, *, ended: bool) -> bool:
    """Whether the line can be an error at all: no note, no speech, no progress, and no form that another family judges."""
    if not 8 <= len(body) <= _MAX_CHARS or (_NONE.search(body) and not _CALL_FAILED.search(body)):
        return False
    if sentences.is_resolved(body) or mention.is_speech(body) or (mention.is_speech(text) and not ended):
        return False
    if _JUDGED.search(body) or (error_line.is_known(body) and not ended):
        return False
    if mention.begins_with_speaker(body) or progress.is_progress(text):
        return False
    if not ended and (levels.is_note(text) or levels.is_note(labels.strip(0, text).text)):
        return False
    return not (_NOTED.match(body) or _INFORMED.match(text))


def _is_error(text: str, *, ended: bool, last: bool = False) -> bool:
    """Whether the line is an error; `ended`: a bad end is known to follow; `last`: it is the log's last line."""
    body = _plain(text)
    if not _is_candidate(text, body, ended=ended):
        return False
    if (ended or body.startswith("STOP ")) and sentences.names_error(body):
        return True
    if sentences.is_harmless(body):
        return False
    if last and sentences.refuses(body.lstrip("*-#=>! ")) and not sentences.went_well(body):
        return True
    if levels.is_error(text) and (last or not text.rstrip().endswith(":")):
        return True
    if last and _LEAVES_BECAUSE.match(body) and sentences.names_error(body) and not sentences.went_well(body):
        return True
    return any(form.match(body) for form in (_WORD, _STATE_AT_END, _CALL_FAILED))


def _heads(text: str) -> bool:
    """Whether the line only announces an error, by the colon at its end."""
    body = _plain(text)
    if not body.endswith(":") or len(body) > _HEAD_CHARS or _NONE.search(body) or _JUDGED.search(body):
        return False
    return _ANNOUNCES.match(body) is not None and not mention.is_speech(text)


def _below(lines: list[tuple[int, str]], index: int) -> tuple[int, str] | None:
    """The sentence right below line `index`; None if numbers, frames or a good end stand there."""
    for held in lines[index + 1 : index + 1 + _BELOW_LINES]:
        if re.fullmatch(r"\W*", held[1]):
            continue
        text = held[1]
        other = _STACK.match(text.strip()) or _ROW.match(text) or _BOILERPLATE.match(text.strip())
        if other or progress.is_progress(text) or sentences.went_well(text) or mention.is_speech(text):
            return None
        return held if _is_sentence(text) else None
    return None


def _is_sentence(text: str) -> bool:
    words = len(_A_WORD.findall(text))
    return words >= (2 * _SENTENCE_WORDS if _DECIMAL.search(text) else _SENTENCE_WORDS)


_PAGE_MARK = re.compile(
    r"(?P<heading>\s{0,8}#{1,6} [A-Z][a-z])|.{0,400}\]\((?:https?:|\.{0,2}/|#|[\w./-]{1,80}\.(?:md|rst|html|png))|\s{0,12}```|\s{0,8}(?:!!!|:::|\.\. [a-z-]{3,20}::)(?:\s|$)"
)
"""A heading, a link, a fence or a box of a page of documentation; comments of a script look like headings."""
_PAGE_SIGNS = ("```", "# ", "](", ":::", "!!!", ".. ")
_PAGE_MARKS = 3


def completed(head: str, text: str) -> str | None:
    """The message of the line `head` and of `text`, right below it, if that is the sentence that `head` announces; of HDF5's stack the innermost reason."""
    if reason := lines_behind.reason_of_hdf5(head, text):
        return reason
    announces = head.rstrip().endswith(":") and _below([(1, head), (2, text)], 0) is not None
    return f"{head.strip()} {text.strip()}" if announces else None


def _number(text: str) -> int | None:
    found = _ENTRY.match(text)
    return int(found["a"] or found["b"]) if found else None


class Tail:
    """The last lines of a log, with their numbers."""

    def __init__(self) -> None:
        self.lines: deque[tuple[int, str]] = deque(maxlen=_LINES)
        self._marks: deque[tuple[int, bool]] = deque(maxlen=_PAGE_MARKS)
        """The last lines with a mark of a page, also those that were only shown, and whether it is a heading."""
        self._last = 0

    def add(self, line: int, text: str) -> None:
        """A line of the log, in order."""
        self.lines.append((line, text))
        self._last = line
        if any(sign in text for sign in _PAGE_SIGNS) and (mark := _PAGE_MARK.match(text)):
            self._marks.append((line, mark["heading"] is not None))

    def forget(self, line: int) -> None:
        """`line`, the last one, is only shown."""
        if self.lines and self.lines[-1][0] == line:
            self.lines.pop()

    def extend(self, first: int, lines: Iterable[str]) -> None:
        """Several consecutive lines, from number `first` on."""
        for line, text in enumerate(lines, first):
            self.add(line, text)

    def is_of_page(self, line: int) -> bool:
        """Whether `line` stands in a page of documentation at the log's end, whose sentences about errors report none."""
        if len(self._marks) < _PAGE_MARKS or all(is_heading for _, is_heading in self._marks):
            return False
        return self._last - self._marks[0][0] <= _LINES and line < self._marks[-1][0]

    def last_word(self) -> JobFinding | None:
        """The report that means a bad end only because the log ends with it; None without one."""
        return last_word.find(self.lines, work_over.is_over)

    def reason(self, line: int, behind: int = 0) -> JobFinding | None:
        """The first of the errors between line `behind` and `line`, which reports a bad end without a reason."""
        return self._word([held for held in self.lines if behind < held[0] < line], ended=True)

    def reason_for(self, finding: JobFinding) -> JobFinding | None:
        """The error above `finding`, the last line, if that reports an end without a reason."""
        line, detail = finding.line, finding.detail
        if detail.get("boxed"):
            return self._boxed()
        if detail.get("abort") or detail.get("aborts") or only_ends(finding):
            # The abort's own reason may follow; the error that led to it may stand right above.
            lines = 2 if detail.get("abort") else _FAREWELL_LINES if detail.get("aborts") else line
            word = self.reason(line, line - lines)
            return replace(word, role=LineRole.ROOT) if word else None
        if detail.get("farewell"):
            return self.reason(line, line - _FAREWELL_LINES)
        return self.reason(line) if finding.kind in grammar.UNEXPLAINED_EXIT_KINDS else None

    def final_error(self, best: JobFinding | None) -> JobFinding | None:
        """The error that the log ends with, if there is no cause so far or only `best`, a launcher's summary printed before the program's own output."""
        if best is None:
            of_page = self.is_of_page(0)
            return None if of_page else self.last_word() or self._word(list(self.lines), ended=False)
        if best.role is not LineRole.EXIT or not best.detail.get("of_launcher") or not self.lines:
            return None
        return self.reason(self.lines[-1][0] + 1, best.line)

    def lines_after(self, line: int) -> list[str]:
        """The job's output after `line`, among the last lines of the log; without frames and launchers' messages."""
        others = [(text, text.strip()) for number, text in self.lines if number > line]
        return [
            text
            for text, t in others
            if t and not (_STACK.match(t) or _BOILERPLATE.match(t) or _RULE.match(t))
        ]

    def only_lists(self, behind: int) -> bool:
        """Whether hardly anything but lists of ranks and tensors follows line `behind`."""
        others = [text for line, text in self.lines if line > behind and not _LISTS.search(text)]
        return len(others) <= _OTHERS and not any(
            progress.is_progress(o) or sentences.went_well(o) for o in others
        )

    def _boxed(self) -> JobFinding | None:
        """The sentence between two drawn rules right above the last line, or between such a rule and that line."""
        words = [(line, text) for line, text in self.lines if text.strip()][-_BOX_LINES:-1]
        rules = [_RULE.match(text) is not None for _, text in words]
        if rules[-2:] == [True, False]:
            return _made(labels.strip(*words[-1]))
        for index in range(len(words) - 2, 0, -1):
            if not rules[index] and rules[index - 1] and rules[index + 1]:
                return _made(labels.strip(*words[index]))
        return None

    def _word(self, lines: list[tuple[int, str]], *, ended: bool) -> JobFinding | None:
        found: tuple[int, str] | None = None
        ending: tuple[int, str] | None = None
        others, looked_at, exited, below, current = 0, 0, False, "", ""
        sayings = lines_behind.sayings([text for _, text in lines])
        for index in range(len(lines) - 1, -1, -1):
            line, text = lines[index]
            words = "" if index in sayings else labels.bare(0, text).text.strip()
            if not words or _ROW.match(text) or _STACK.match(words) or _BOILERPLATE.match(words):
                continue
            looked_at += 1
            below, current = current, text
            if looked_at > _FAR and found is None and ending is None and not ended:
                break
            above_it = [earlier for _, earlier in lines[:index]]
            if mention.is_repeated(text, above_it) or (not ended and sentences.is_warned(text, above_it)):
                break
            body = _plain(text)
            points = sentences.points_elsewhere(body)
            ends = (
                points
                or _ENDING.match(body)
                or (looked_at <= _OTHERS and sentences.reports_exit(body, below))
            )
            if found is None and ends and not (_NONE.search(text) or sentences.is_harmless(text)):
                ended, ending = True, None if points else (line, text)
                reasons = [held for held in lines[index + 1 :] if _REASON.match(held[1])]
                found = reasons[0] if reasons and not sentences.went_well(reasons[0][1]) else None
                continue
            if _heads(text) and (sentence := _below(lines, index)):
                found = sentence
                continue
            if text.rstrip().endswith(":") and _DECIMAL.search(below) and not _is_sentence(below):
                # The heading of a column of numbers.
                continue
            leaves = looked_at == 2 and _LEAVES.match(below) is not None
            why = leaves and _WHY_IT_LEAVES.search(text) is not None
            if _is_error(text, ended=ended or why, last=leaves or looked_at == 1):
                found = line, text
                continue
            if progress.is_progress(text) or sentences.went_well(text):
                break
            neutral = _LEAVES.match(_plain(text)) is not None
            ended, exited = ended or (neutral and exited), exited or _EXIT.match(text) is not None
            if neutral or _EXIT.match(text) or _SILENT.match(text):
                continue
            others += 1
            if others > _OTHERS or found is not None:
                break
        word = found or ending
        if word is None or self._in_a_list(word[0]):
            return None
        return _made(labels.strip(*word))

    def _in_a_list(self, error: int) -> bool:
        """Whether line `error` is an entry of a numbered list whose next entry follows: it is a catalogue's text, or the program went on."""
        above = [n for line, text in self.lines if line <= error and (n := _number(text)) is not None]
        behind = [n for line, text in self.lines if line > error and (n := _number(text)) is not None]
        return bool(above) and above[-1] + 1 in behind


def _made(record: Record) -> JobFinding:
    return make(
        FACTS,
        "program_error",
        record,
        role=LineRole.EXIT,
        domains=grammar.USER,
        meaning=_MEANING,
        detail={"last_word": True},
    )
