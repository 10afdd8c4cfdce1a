"""The levels in the forms of the loggers of training and serving frameworks.

With the level of an error, a message needs no word for one; such a line counts only where the log ends with it.
"""

from __future__ import annotations

import re
from collections.abc import Reversible
from itertools import islice

from probing_cluster.evidence.joblog import progress, units
from probing_cluster.evidence.joblog.grammar import JobFinding

_DAY = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"


def _form(words: str, letters: str, sources: str) -> re.Pattern[str]:
    """The beginning of a line with one of the levels; `sources`: the endings of source files whose lines count in glog's form."""
    return re.compile(
        r"(?:\[rank\d{1,8}\]:\s?)?(?:\([A-Za-z][\w.]{0,60}(?:[ ,]{1,2}\w{1,20}=[\w.:-]{1,60}){1,3}\) )?(?:"
        # vLLM
        rf"(?:{words}) \d\d-\d\d \d\d:\d\d:\d\d \[?[\w./+-]{{1,160}}\.py:\d{{1,7}}\] "
        # PyTorch, with glog's form
        rf"|\[?[{letters}]\d{{4}} \d\d:\d\d:\d\d\.\d{{3,9}}\s{{1,8}}(?:\d{{1,10}} )?[\w./+-]{{1,200}}\.(?:{sources}):\d{{1,7}}\] "
        # NeMo
        rf"|\[NeMo [{letters}] {_DAY} [\w.]{{1,80}}:\d{{1,7}}\] "
        # Ray's C++
        rf"|\[{_DAY},\d{{3}} [{letters}] \d{{1,10}} \d{{1,10}}\] (?:\([\w.-]{{1,40}}\) )?[\w./+-]{{1,160}}\.(?:cc|h|cpp):\d{{1,7}}: "
        # TensorFlow
        rf"|{_DAY}\.\d{{6}}: [{letters}] [\w./+-]{{1,200}}\.(?:{sources}):\d{{1,7}}\] "
        # Horovod
        rf"|\[{_DAY}\.\d{{3,9}}: [{letters}] \S{{1,300}}:\d{{1,7}}\] "
        # torchtitan
        rf"|\[[a-z]{{1,20}}\] {_DAY},\d{{3}} - [\w.]{{1,80}} - (?:{words}) - "
        r")(?:\[\w[^\]\n]{0,80}\] ){0,2}(?=[^\s\]])"
    )


# XLA's and TensorFlow's sources end in .cc; they give this level to notes.
_ERROR = _form("ERROR|CRITICAL|FATAL", "EFC", "py|cpp")
_NOTE = _form("INFO|DEBUG|WARNING", "IDVW", "py|cpp|cc|cu|h")
_NOTE_OF_TORCH = re.compile(r"(?:\[?[\d:., -]{8,32}\]? )?torch\.[\w.]{1,80}: \[(?:DEBUG|INFO|WARNING)\] ")
"""The same in the form of PyTorch's older releases."""
_WARNED = re.compile(r"[\d:/.,TZ \[\]+-]{0,48}(?:\[[^\]\n]{1,80}\] {0,2})?WARN(?:ING)?\b")
_OF_CONTAINER = re.compile(
    r"WARNING: (?:Skipping mount|Skipping .{1,20} bind|[Uu]nderlay of|While bind mounting|Not mounting|Bind mount|Cache disabled|(?:passwd|group) file |Environment variable |DEPRECATED USAGE|Overriding)"
)
"""Apptainer warns in front of the program's first line, in the form of java.util.logging."""
_OF_JVM = re.compile(r"(?:[a-z]\w{0,60}\.){2,8}[A-Z]\w{0,80}(?:Error|Exception)\b")
_OF_LOSS = re.compile(r"(?:\w{1,40}\.){0,5}(?:Stream|Comm|Connection)ClosedError\b")
_CLOSED = re.compile(r" - (?:INFO|DEBUG) - .{0,200}\b[Cc]los(?:ed|ing)\b")
_ASIDE = re.compile(
    r"\b(?:shut(?:ting)? ?down|at exit|clos(?:e|ing)|clean(?:ing|ed)?[ -]?up|tear(?:ing)?[ -]?down|releas(?:e|ing)|destroy\w{0,3}|metrics?|telemetry|usage (?:stats|statistics)|profil\w{1,5}|trac(?:e|es|ing)|dump\w{0,4}|autotun\w{1,4}|cProfile"
    r"|not (?:been )?tested|(?:will|would) not be|default(?:s|ing)?|rejecting|dropping|repair\w{0,3}|recover(?:ed|ing)|over \d{1,3}% full)\b",
    re.IGNORECASE,
)
"""What runs beside the work, what a program does while it ends, and advice."""
_LAST = re.compile(
    r"[^A-Za-z]{0,40}(?:\w[\w.-]{0,40}: ){0,2}\W{0,3}(?:FATAL|CRITICAL|Fatal(?: error)?)\b\W{1,4}(?=\S)"
)
"""The level with which a program ends, behind the time and its own name."""
_SUMS_UP = re.compile(
    r"\b(?:fail\w{0,4}|abort\w{0,3}|errors?|exceptions?|exit\w{0,3}|terminat\w{1,4}|stopp?\w{0,4}|giv\w{2,3} up|(?:unable to|could not|cannot|can't) (?:continue|proceed|go on|open|read|find|load|access|connect|start|create|write|locate|initiali[sz]e)|previous|above|no such|not found|missing|do(?:es)? not exist|not (?:reached|available|complete\w?)"
    r"|tim(?:ed|ing) ?out|time-?outs?|lost|losing|loss of|unreachable|disconnect\w{0,3}|unresponsive|no (?:\w{1,20} )?(?:response|answer|reply|heartbeat)|not (?:respond\w{0,3}|answer\w{0,3})|diverg\w{1,5}|nan|inf|infinit\w{1,3}|non-?finite|hangs?|hung|stall\w{0,3}|deadlock\w{0,3}|unstable|blow(?:n|ing|s)? up|blew up|dead|died|gone)\b",
    re.IGNORECASE,
)
"""Words of an end without its reason, of a lack, and of a lost peer or broken numbers: what may be the consequence of an earlier error."""
_OF_MACHINE = re.compile(
    r"(?-i:\b(?:mlx\d|hfi1|OST|MDS|MDT|ECC|HCA|NICs?|IB|RDMA|Xid))|\b(?:links?|infiniband|fabric|nvlink|gpus?|hardware|disks?|lustre|gpfs|beegfs|mount(?: ?point)?|file ?systems?|input/output|i/o)\b"
    r"|\bports? (?:\d{1,3} )?(?:is |are |went |was )?(?:down|inactive|flapp\w{1,4}|error)|\berrno (?:5|30|107|108|110|116)\b|stale file|transport endpoint",
    re.IGNORECASE,
)
"""Parts of a node, its network and its file systems: work that goes on without one may end for it, whatever the last word calls it."""
_SOFTWARE = re.compile(
    r"\b(?:packages?|distributions?|wheels?|requirements?|pip|conda|build(?:ing)?|install\w{0,6})\b",
    re.IGNORECASE,
)
_ECHO = re.compile(r"\+{1,4} echo ")
_LACKS = re.compile(
    r"\b(?:no such|not found|missing|do(?:es)? not exist|doesn't exist|no module|(?:cannot|can't|could not|unable to) (?:open|find|read|load|locate))\b",
    re.IGNORECASE,
)
"""What is used instead may be missing, too: then the first error stays."""
_WORD = re.compile(r"[a-z]{4,40}")
_LEAST_WORDS = 3
_GOES_ON = re.compile(
    r"\b(?:using|instead|without|anew|rebuil\w{1,4}|defaults?|disabl\w{1,3}|(?:going|carrying) on)\b",
    re.IGNORECASE,
)


def ends_another(word: JobFinding, held: JobFinding, recent: Reversible[str]) -> bool:
    """Whether `word` is a program's fatal statement about another subject than `held`, an error that it printed before and did without.

    `recent`: the lines read last. The program says so between the two, or the error is of something that runs beside the work. A script
    that traces its commands says what it uses instead of software that it could not install; then what another command complains of counts,
    unless it lacks something.
    """
    between = list(islice(reversed(recent), max(word.line - held.line - 1, 0)))
    echoes = [line for line in between if _ECHO.match(line) and units.uses_instead(line)]
    if any(map(_OF_MACHINE.search, (held.message, *echoes))):
        return False
    if echoes and _SOFTWARE.search(held.message):
        return not _LACKS.search(word.message)
    found = _LAST.match(word.message)
    if found is None or _LAST.match(held.message):
        return False
    if _SUMS_UP.search(word.message, found.end()):
        return False
    words = _WORD.findall(word.message[found.end() :].lower())
    if len(words) < _LEAST_WORDS or set(words) & set(_WORD.findall(held.message.lower())):
        return False
    goes_on = any(_GOES_ON.search(line) or progress.announces_recovery(line) for line in between)
    return goes_on or (bool(between) and _ASIDE.search(held.message) is not None)


def is_error(text: str) -> bool:
    """Whether a framework's logger gives the line the level of an error, and the message is about the work itself."""
    found = _ERROR.match(text)
    return found is not None and _ASIDE.search(text, found.end()) is None


def is_note(text: str) -> bool:
    """Whether a framework's logger gives the line a level below an error."""
    return _NOTE.match(text) is not None or _NOTE_OF_TORCH.match(text) is not None


def reports_closing(text: str) -> bool:
    """Whether a logger notes that it closes a connection: what is lost then was to be."""
    return _CLOSED.search(text) is not None


def is_of_warning(text: str, before: Reversible[str]) -> bool:
    """Whether a logger prints the exception below a note of its own: a JVM's below a warning, a lost connection below the report that it is closed.

    An exception that ends a program has a higher level, or none.
    """
    above = next(iter(reversed(before)), "")
    if _OF_LOSS.match(text) and reports_closing(above):
        return True
    warned = _WARNED.match(above) is not None and _OF_CONTAINER.match(above) is None
    return warned and _OF_JVM.match(text) is not None
