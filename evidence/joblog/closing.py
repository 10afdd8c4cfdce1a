"""The last resort: a log that ends in lines shaped like errors, of which no family knows one.

Only the end counts: what stands there is the program's last word. It proves nothing of a machine, and any finding says more.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable

from probing_cluster.evidence.joblog import grammar, place, progress
from probing_cluster.evidence.joblog.grammar import JobFinding, LineRole, Record, make
from probing_cluster.evidence.joblog.messages import languages

FACTS = {"program_error": languages.FACTS["program_error"]}
_LINES = 16
_MAX_CHARS = 600
_OTHERS = 3
"""So many lines behind an error may say anything; more, and the program went on."""
_MEANING = "The output ends with this error; the program does not say more, and no known form fits."
_NAME = r"(?:[\w./+-]{1,80}(?:\(\d{1,8}\)|\[\d{1,10}\])?: ){0,3}"
_WORD = re.compile(
    rf"(?:\W{{0,6}})(?:\[[^\]\n]{{1,40}}\]:? ?)?{_NAME}(?:\W{{0,6}})"
    r"(?:(?i:(?:fatal|internal|critical|unexpected|unrecoverable|runtime|input|i/o|configuration|system|license|unknown|severe|program|parse|syntax|type|value|usage|mpi|solver|mesh) )?"
    r"(?i:errors?|failures?|exception)(?: (?:code|number|no\.?|in|at|on|while|when|during|reading|opening|writing|from|occurred|encountered|detected)\b|\s?[:!#(*])"
    r"|(?i:fatal|abort(?:ed|ing)?|panic|failed|cannot|can't|can not|could not|couldn't|unable to|invalid|illegal|unrecogni[sz]ed|undefined|unsupported|missing)\b(?!\s?[=:]\s?\d))"
)
"""An error's word where errors stand: first, or behind the name of who speaks."""
_TAIL = re.compile(
    r".{1,300}(?:: |\bis |\bwas |\bwere |\bdoes |\bhas |\bhave )(?i:(?:file |command )?not found|no such \w.{0,40}|not defined|undefined|not exist|does not exist|permission denied|access denied|invalid|corrupt(?:ed)?|failed|refused|too (?:small|large|many|few|long)|not (?:a valid|allowed|supported|enough|converged|installed|recogni[sz]ed|permitted|available)\b.{0,60}|missing|exceeded|aborted)[.!]{0,3}$"
)
_NONE = re.compile(
    r"\b(?:no|0|zero|without|any) (?:\w{1,20} )?(?:errors?|failures?|failed|missing|invalid)\b|\bwarn|\bdeprecat|\bignor|\bretry|\bskip|\bfall(?:ing|s)? ?back|\boptional\b|\bcontinu|\binstead\b|\bdebug\b|\bINFO\b|\bnote\b"
    r"|\b(?:error|failures?|failed|invalid|missing)s?\W{0,3}(?:rate|bars?|norm|tolerance|threshold|handling|handler|log|count|estimate|model|bound|correction|stderr|file)\b"
    r"|\b(?:errors?|failed|failures|missing|invalid|aborted|undefined)\b[^:=]{0,24}[:=]\s{0,4}[-+(\[]?\d|\d\s?%|\berror\W{1,3}[\d.eE+-]{1,20}\W{0,3}$|\?$",
    re.IGNORECASE,
)
"""Numbers called errors, and what is only noted."""
_WELL = re.compile(
    r"\b(?:passed|success(?:ful(?:ly)?)?|succeeded|completed?|done|finished|all (?:tests )?passed|saved|100 ?%|converged|normal(?:ly)? terminat\w{1,4}|ended? ok)\b",
    re.IGNORECASE,
)
_NOT_WELL = re.compile(
    r"\b(?:not|un|in|never|without|before|could|cannot)\b.{0,24}$|(?:un|in)$", re.IGNORECASE
)
_SILENT = re.compile(
    r"\W*$|\s{2,}\S|(?:real|user|sys)\s+\d+m|(?:please|see|try|use|usage|hint|tip|for (?:more|help|further)|check|contact|report|run)\b|(?:exit(?:ing|ed)?|stop(?:ped|ping)?|quit|bye|end)\b.{0,60}$|\s*at \S|#\d",
    re.IGNORECASE,
)
"""Lines behind an error that do not speak of work."""


_JUDGED = re.compile(
    r"\b(?:srun|slurmstepd|slurmd|sbatch|pyxis|conftest|CMakeTmp|CMakeScratch)\b|Xid|No such file or directory|File exists|NCCL|[Gg]loo|CUDA|cuda|Traceback"
)
"""What other families judge: if they did not take such a line, it was none."""


def _is_error(text: str) -> bool:
    body = text.strip()
    if not 8 <= len(body) <= _MAX_CHARS or _NONE.search(body) or place.is_speech(text):
        return False
    if _JUDGED.search(body) or languages.is_known(body):
        return False
    if place.begins_with_speaker(body) or progress.is_progress(text):
        return False
    return _WORD.match(body) is not None or _TAIL.match(body) is not None


def _went_well(text: str) -> bool:
    return any(not _NOT_WELL.search(text[: found.start()]) for found in _WELL.finditer(text))


class Tail:
    """The last lines of a log, with their numbers."""

    def __init__(self) -> None:
        self._lines: deque[tuple[int, str]] = deque(maxlen=_LINES)

    def add(self, line: int, text: str) -> None:
        """A line of the log, in order."""
        self._lines.append((line, text))

    def extend(self, first: int, lines: Iterable[str]) -> None:
        """Several that follow each other, from number `first` on."""
        self._lines.extend(enumerate(lines, first))

    def last_word(self) -> JobFinding | None:
        """The first line of the errors that the log ends with; None where it ends with anything else."""
        found: tuple[int, str] | None = None
        others = 0
        for index in range(len(self._lines) - 1, -1, -1):
            line, text = self._lines[index]
            if not text.strip():
                continue
            above = [earlier for _, earlier in list(self._lines)[:index]]
            if place.is_repeated(text, above):
                break
            if _is_error(text):
                found = line, text
                continue
            if progress.is_progress(text) or _went_well(text):
                break
            if _SILENT.match(text):
                continue
            others += 1
            if others > _OTHERS or found is not None:
                break
        if found is None:
            return None
        record = grammar.strip(found[0], found[1])
        return _made(record)


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
