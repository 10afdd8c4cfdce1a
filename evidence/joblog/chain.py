"""Chained exceptions: a failed fallback is the cause, a wrapper only renames the cause.

Python prints the handled exception first. Programs expect some exceptions (a missing file, a page that is not found) and try
something else. If that fails by itself, the last exception is the reason.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from probing_cluster.core import sanitize
from probing_cluster.evidence.joblog.grammar import USER, JobFinding, LineRole, Record

_LINK = re.compile(r"\s*(?:(?P<handling>During handling of the above)|The above exception was the direct)")
_FRAME = re.compile(r"\s*File \"(?P<file>[^\"]{1,400})\", line (?P<line>\d{1,7}), in (?P<function>\S{1,200})")
_EXPECTED = frozenset({
    "FileNotFoundError", "FileExistsError", "KeyError", "AttributeError", "StopIteration", "HTTPError", "EntryNotFoundError",
    "RemoteEntryNotFoundError", "LocalEntryNotFoundError", "ImportError", "ModuleNotFoundError",
})  # fmt: skip
"""Exceptions that programs catch to try something else."""
_LOOKED_UP = _EXPECTED | {
    "IndexError",
    "LookupError",
    "ValueError",
    "TypeError",
    "Error",
    "JSONDecodeError",
    "UnicodeDecodeError",
}
"""Exceptions of the language and its library for an unexpected value; a handler that raises names the expected one."""
_BARE_WORDS, _SENTENCE_WORDS = 4, 8
"""An exception of at most so many words does not explain itself; one of at least so many does."""
_LOOK_ELSEWHERE = re.compile(
    r"\b(?:see|check|look|refer)\b.{0,60}\b(?:logs?|above|below|traceback|output|details)\b|\b(?:failed|failure|error|exception|crashed|aborted)\W{0,3}(?:(?:in|at|during|while|on) .{0,80})?$",
    re.IGNORECASE,
)
_TRIES_AGAIN = re.compile(
    r"\b(?:retry(?:ing)?|retries|attempt) (?:#|no\.? ?)?\d|\bretrying\b|\bwill retry\b|\bfalling back\b|\bskipping\b",
    re.IGNORECASE,
)
_POLLS = re.compile(
    r"^(?!.*\b(?:falling back|skipping)\b)(?=.*\b(?:retry(?:ing)?|retries|attempt) (?:#|no\.? ?)?\d).*\b(?:wait(?:ing|ed)? (?:for|until)|(?:not|n't) (?:yet )?(?:ready|up|reachable|available|running|responding)|refused|unreachable)\b",
    re.IGNORECASE,
)
_OF_CONNECTION = re.compile(
    r"connect|refused|unreach|time(?:d |)out|http|url|socket|ready|avail", re.IGNORECASE
)
"""What a client prints, with a count, of the server that it waits for. It has not caught the exception of another program, only one about a connection."""
_PACKAGE = re.compile(r"/(?:site|dist)-packages/")
_NOTE_CHARS = 8
"""A shorter text may end a line by chance."""
_MAX_RANKS, _MAX_KEPT = 256, 4096
_MESSAGE_CHARS = 200
_DIGITS, _WORDS_CHARS = re.compile(r"\d+"), 120
_DEEP = 2
"""So many calls below the handler, even a `raise` is another function's own."""

Frame = tuple[str, str]
WARNED_OF = re.compile(r"\S{1,400}\.py:\d{1,6}: \w{0,60}Warning: \S")
"""A warning directly below frames: NumPy shows its import so, and nothing was raised."""


@dataclass(slots=True)
class _Traceback:
    began: int = 0
    """Line of the chain's first exception; 0 until one was read."""
    handled: str = ""
    """Name of the exception that was being handled; empty for none, or where the next one was raised from it."""
    renamed: str = ""
    """Name of the one that the next was raised from; empty for none."""
    handled_message: str = ""
    """The message of the handled exception."""
    handler: Frame | None = None
    """The function that handled it."""
    outermost: Frame | None = None
    own: Frame | None = None
    """The first frame outside the libraries."""
    below: int = 0
    """Calls below the handler's last frame."""
    code: str = ""
    """The line of the program in the last frame."""
    above: str = ""
    """The line above its head."""
    head: int = 0
    """Line of its head."""
    of_child: bool = False
    """Whether it ended a child process."""


_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python\d|^<|\.pyx$")
_AT_EXIT = frozenset({"_run_finalizers", "_exit_function", "_python_exit", "_shutdown", "_cleanup"})
_HANDLER_TIMES = 3
"""An exception that reaches the top of the program is printed once. So many different ones below one and the same function, with other output between them, were caught there."""
_APART = 3
"""The head of a traceback fewer lines below the last one's end: ranks of a gang that end together print theirs so."""
_MAX_HANDLERS = 64
_OF_HYDRA = "Error executing job with overrides"
"""Hydra leaves the frames above the program's own function out of its last traceback."""

_PLACE, _WENT_ON = (
    frozenset({"instead_since", "chained", "linked", "thread"}),
    frozenset({"handled", "goes_on"}),
)
"""Fields of an exception that its chain gives. The second ones make it weak, which an error of the hardware never is."""
CODE_CHARS = 400
"""Characters kept of a source line; a minified one may have megabytes."""


_INSIDE = re.compile(r"^(?:\s|\[rank|$)|^\S.*File \"")
_UNRAISED = re.compile(
    r"^\s*Exception ignored (?:in|on|while)\b|--- Logging error ---$|^Error in (?:sys\.excepthook|atexit\._run_exitfuncs):$|^\[IPKernelApp\] (?:ERROR|WARNING) \| "
    r"|\b(?:Task|Future) exception was never retrieved$|^Exception in Tkinter callback$|\bdistributed\.\w{1,20} - ERROR - Failed to communicate with scheduler during heartbeat\.$"
    r"|^(?!.*\bin thread \"main\").*\b(?:exception|error)\b.{0,80}\bin (?:thread )?[\"']?shutdown[ -]?hook(?:-\d{1,6})?\b[\"']?.{0,200}$|\bShutdownHookManager: Exception\b",
    re.IGNORECASE,
)
"""The heading of an exception that Python, or Dask between its heartbeats, ignores, or of one in what a JVM calls after the end; it ends nothing."""
UNRAISED_TRIGGERS = ("Exception ignored", "Logging error", "sys.excepthook", "_run_exitfuncs", "[IPKernelApp]", "was never retrieved", "Exception in Tkinter", "during heartbeat", "hutdown-hook", "hutdownHook", "hutdown hook")  # fmt: skip
_THREAD = re.compile(r"(?:^|\s)Exception in thread \S")
_FEEDER = re.compile(r"/multiprocess(?:ing)?/queues\.py$")
"""The file of the thread that feeds a queue; it prints its exceptions without a heading."""
_CHILD = re.compile(r"/(?:multiprocess(?:ing)?|billiard)/(?:process|spawn|forkserver)\.py$")
_CHILD_BEGINS = frozenset({"_bootstrap", "spawn_main", "_serve_one", "main"})
"""In these files, the functions in which a child process of Python begins; what goes through them was caught by nobody."""
_OF_LOST_CHILD = re.compile(
    r"(?:[\w.]{1,200}\.)?(?:Empty|Full|EOFError|Broken\w{1,40}|Connection\w{0,40}|TimeoutError|CancelledError|RemoteError|CalledProcessError|Process\w{1,40}Exception|StopIteration|IndexError|ZeroDivisionError)\b"
    r"|.{0,400}\b(?:child|(?:sub)?process|worker|thread|executor|pool|peer|actor|rank|queue|pipe|barrier|future|result)(?:s|es)?\b|.{0,400}\b(?:NoneType|empty|at least one)\b",
    re.IGNORECASE,
)
"""How a process fails that waits for another one, or works with what that did not return."""
_IN_INITIALIZER = re.compile(r"\bException in initializer:$")


def is_inside(text: str) -> bool:
    """Whether the line belongs to a traceback that began above it."""
    return _INSIDE.match(text) is not None or is_link(text)


def heads_ignored(text: str) -> bool:
    """Whether an exception that Python ignores follows the line."""
    return _UNRAISED.search(text) is not None


def is_link(text: str) -> bool:
    """Whether the line links the next traceback to the last one."""
    return _LINK.match(text) is not None


@dataclass(slots=True)
class OpenTraceback:
    """A traceback whose last line has not come yet."""

    line: int
    """Where it began."""
    indent: int
    """Blanks in front of its first line, which every line of it has."""
    code: str = ""
    """The last line inside it: the source that raised, as Python quotes it."""
    frame: str = ""
    """Its innermost frame: file, line and function."""

    def inside(self, text: str) -> None:
        """Takes one of its lines; marks below a source line say nothing."""
        words = text.strip()
        if found := _FRAME.match(words):
            self.frame = f"{found['file']}, line {found['line']}, in {found['function']}"
        if words.strip(" ^~"):
            self.code = words[:CODE_CHARS]

    def of_interrupt(self, found: JobFinding) -> JobFinding:
        """An interruption with the place where it met the program; every other exception as it is."""
        if found.kind != "interrupted" or not self.frame:
            return found
        code = "" if self.code.startswith("File ") else self.code
        return replace(found, detail={**found.detail, "code": sanitize.clean(code, 200), "frame": self.frame})


class ExceptionChain:
    """Follows the tracebacks of every rank."""

    def __init__(self) -> None:
        self._of: dict[int | None, _Traceback] = {}
        self._linked: dict[int | None, int] = {}
        self._handlers: dict[tuple[int | None, Frame], dict[int, str]] = {}
        """Functions in which tracebacks began, with the line and the words of each exception."""
        self.handled_at: frozenset[int] = frozenset()
        """Lines of the exceptions that one function caught, as the last one showed."""
        self._own: dict[int, Frame] = {}
        """The first frame outside the libraries of the exception in a line."""
        self._ended_other: dict[int, bool] = {}
        """Lines of the exceptions that ended a thread or a child process, with those that they were chained to: True for a child's."""
        self._of_lost_child: set[int] = set()
        """Lines of the exceptions that such an end may cause."""

    def link(self, record: Record) -> None:
        """A line that `is_link`."""
        now = self._of.get(record.rank)
        if now is None:
            return
        if not (found := _LINK.match(record.text)) or not found["handling"]:
            now.handled, now.renamed = "", now.handled
        self._linked[record.rank] = record.line

    def begin(self, record: Record, above: str) -> None:
        """The head of a traceback, below the line `above`: of the chain's next, or of another chain."""
        now = self._of.pop(record.rank, None) if record.rank in self._linked else None
        self._linked.pop(record.rank, None)
        if len(self._of) >= _MAX_RANKS:
            self._of.clear()
        if now is not None:
            now.handler, now.outermost, now.own, now.below, now.code = now.outermost, None, None, 0, ""
        now = self._of[record.rank] = now or _Traceback()
        now.above, now.head = above, record.line
        now.of_child = _IN_INITIALIZER.search(above) is not None

    def inside(self, record: Record) -> None:
        """A line of a traceback."""
        now = self._of.get(record.rank)
        if now is None:
            return
        if found := _FRAME.match(record.text):
            frame = found["file"], found["function"]
            now.outermost = now.outermost or frame
            if now.own is None and frame[1] in _CHILD_BEGINS and _CHILD.search(frame[0]):
                now.of_child = True
            elif now.own is None and not _LIBRARY.search(frame[0]):
                now.own = frame
            now.below, now.code = 0 if frame == now.handler else now.below + 1, ""
        elif not now.code:
            now.code = record.text.strip()[:CODE_CHARS]

    def ended(self, found: JobFinding, rank: int | None) -> JobFinding:
        """The exception; `instead_since` is set if it replaces the chain's earlier exceptions as the cause."""
        now = self._of.get(rank)
        self.handled_at = frozenset()
        name = str(found.detail.get("exception", "")).rpartition(".")[2]
        if now is None or not name:
            return found
        if now.own is not None and len(self._own) < _MAX_KEPT:
            self._own[found.line] = now.own
        found = self._note_handler(now, found, rank)
        raised = now.code.startswith("raise")
        expected = now.handled in _EXPECTED and now.handler is not None
        tried_else = expected and (not raised or now.below >= _DEEP)
        if tried_else or _explains_first(now, found) or (name == "RecursionError" and now.handled):
            found = replace(found, detail={**found.detail, "instead_since": now.began})
        now.began, now.handled, now.handled_message = now.began or found.line, name, found.message
        now.renamed = ""
        if now.began != found.line:
            found = replace(found, detail={**found.detail, "chained": now.began})
        elif is_link(now.above):
            found = replace(found, detail={**found.detail, "linked": True})  # the log begins below its cause
        if (_of_feeder(now) and found.role is LineRole.REMOTE) or _of_exit(now):
            return replace(
                found, role=LineRole.OBSERVATION
            )  # nobody reads the queue any more; the program had ended
        thread = _THREAD.search(now.above) is not None or _of_feeder(now)
        if thread:
            found = replace(found, detail={**found.detail, "thread": True})
        if now.of_child:
            found = replace(found, detail={**found.detail, "child": True})
        if (thread or now.of_child) and len(self._ended_other) < _MAX_KEPT:
            self._ended_other |= dict.fromkeys((now.began, found.line), now.of_child)
        elif (
            self._ended_other and len(self._of_lost_child) < _MAX_KEPT and _OF_LOST_CHILD.match(found.message)
        ):
            self._of_lost_child.add(found.line)
        polls = _POLLS.search(now.above) and not _OF_CONNECTION.search(found.message)
        if _TRIES_AGAIN.search(now.above) and now.began == found.line and not polls:
            # The line above the traceback reports that the program retries or falls back.
            found = replace(found, detail={**found.detail, "handled": True, "goes_on": True})
        return replace(found, role=LineRole.OBSERVATION) if _is_of_an_import(now, found) else found

    def may_be_of_one_process(self, first: int, last: int) -> bool:
        """Whether the exceptions in the lines `first` and `last` can be one process's: both of one script, or the first caught: in a function, or printed without a traceback.

        Nobody caught what ended a thread or a child process, but the main program goes on without it, unless it waits for it.
        """
        one, other = self._own.get(first), self._own.get(last)
        if first in self._ended_other:
            return last not in self._ended_other and last not in self._of_lost_child
        if other is None:
            return False
        of_script = one is not None and one[0] == other[0] and not self._ended_other.get(last)
        return one is None or of_script or one[1] != "<module>"

    def _note_handler(self, now: _Traceback, found: JobFinding, rank: int | None) -> JobFinding:
        """Count the exceptions whose tracebacks begin in one function of the program, below its entry point; mark those that it handled."""
        frame = now.outermost
        if frame is None or frame[1] == "<module>" or _LIBRARY.search(frame[0]) or _OF_HYDRA in now.above:
            return found
        if found.role is not LineRole.ROOT or found.domains != USER:
            return found  # a lost peer or a machine's fault ends every rank, each in its own handler
        if len(self._handlers) >= _MAX_HANDLERS and (rank, frame) not in self._handlers:
            return found
        caught = self._handlers.setdefault((rank, frame), {})
        apart = not caught or now.head - max(caught) >= _APART
        if apart and len(caught) < _MAX_HANDLERS:
            caught[found.line] = _DIGITS.sub("", found.message)[:_WORDS_CHARS]
        if len(set(caught.values())) >= _HANDLER_TIMES:
            self.handled_at = frozenset(caught)
            return replace(found, detail={**found.detail, "handled": True, "goes_on": True})
        return found


def with_raised(best: JobFinding, held: Sequence[JobFinding]) -> JobFinding:
    """`best`, with the message of the last exception in `held` that was raised from it."""
    last = best
    for later in held if "exception" in best.detail else ():
        began = later.detail.get("chained")
        if began and began <= best.line < later.line and later.rank == best.rank:
            last = later
    raised = "" if last.message == best.message else sanitize.clean(last.message, _MESSAGE_CHARS)
    return replace(best, detail={**best.detail, "raised_as": raised}) if raised else best


def placed(found: JobFinding | None, last: JobFinding | None) -> JobFinding | None:
    """A family's finding, with its place in the chain, which only `last`, the same line read as an exception, has."""
    if found is None or last is None or last is found or last.line != found.line:
        return found
    names = _PLACE if found.late else _PLACE | _WENT_ON
    return replace(found, detail={**found.detail, **{k: v for k, v in last.detail.items() if k in names}})


def _of_feeder(now: _Traceback) -> bool:
    return (
        now.outermost is not None
        and now.outermost[1] == "_feed"
        and _FEEDER.search(now.outermost[0]) is not None
    )


def _of_exit(now: _Traceback) -> bool:
    """Whether Python called the outermost function after the program had ended."""
    file, function = now.outermost or ("", "")
    return function in _AT_EXIT and _LIBRARY.search(file) is not None


def _explains_first(now: _Traceback, found: JobFinding) -> bool:
    """Whether the handler itself raised an exception that explains what the short handled one only hints at.

    A decoder reports `Incorrect padding`; only its caller knows that the configuration's path does not exist.
    """
    looked_up = (now.handled or now.renamed) in _LOOKED_UP
    if not now.code.startswith("raise") or now.below or not looked_up or now.handler is None:
        return False
    text, before = _words(found.message), _words(now.handled_message)
    if len(before.split()) > _BARE_WORDS or len(text.split()) < _SENTENCE_WORDS:
        return False
    return _LOOK_ELSEWHERE.search(text) is None


def _is_of_an_import(now: _Traceback, found: JobFinding) -> bool:
    """Whether a package caught the exception during its import and printed it below its own note of it.

    The traceback of an uncaught exception begins in the started program instead.
    """
    if now.outermost is None or now.outermost[1] != "<module>" or not _PACKAGE.search(now.outermost[0]):
        return False
    words = _words(found.message).strip()
    return len(words) >= _NOTE_CHARS and now.above.rstrip().endswith(words)


def _words(message: str) -> str:
    """The message of an exception without its name."""
    return message.partition(": ")[2]
