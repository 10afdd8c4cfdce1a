"""What the lines behind an error show: nothing, that the program went on, or that it ended well."""

from __future__ import annotations

import re
from collections.abc import Sequence

from probing_cluster.evidence import locales
from probing_cluster.evidence.joblog import units

_STACK_FRAME = re.compile(
    r"\s+at [\w.$<>/]{3,300}\(|\s+\.\.\. \d{1,4} (?:more|common frames)|\s*Possible solutions: "
    r"|\[ Stack-Trace: \]|(?:\w{1,80}::){1,8}~?\w{1,80}(?:\(|<)|\S{1,300}\(.{0,400}\) \[0x[0-9a-f]{4,16}\]$|main$|__libc_start_main$|(?:Current t|T)hread 0x[0-9a-f]{4,16}\b.{0,80} \(most recent call first\):$"
)
_NO_WORD = re.compile(
    r"\s*$|\s{2,}\S|\s+at \S|\"[^\"\n]{1,300}(?:\"|\.{3})$|Info\) (?:VMD for|Exiting normally)|\++ |[-=*#]{3,}|g?make(?:\[\d{1,3}\])?: (?:Leaving|Entering) |(?:Please (?:check|make sure you have the correct access)|and the repository exists|#%Module|It is also possible|Also make sure|without these module|While processing|Executing this command)\b|Failed (?:on|at) line\b|(?:real|user|sys)\s+\d+m|[Tt]ry ['\"‘`].{1,80}--help|You can inspect what was checked out|and retry with '|\s{0,4}[║╔╚]|[Uu]sage: |(?:exit|return)(?: code| status)?\W{1,3}\d|Primary job\s|a non-zero exit code\b|mpirun (?:detected|has exited|noticed)|the job to be terminated|# (?:Accounting|Finished at|Ended \(code)\b|\S{1,80} \(\d{1,10}\): Terminating\.{3}$"
)
"""Lines that are no evidence of whether the program went on."""
_DUMPED = re.compile(r"Timeout \([\d:.]{1,20}\)!$")
"""The head of faulthandler's stacks. It prints them again and again while a slow program works, or once before it ends the program."""
_ENDED_WELL = re.compile(
    r"^(?!Info\) |.*(?:\b(?:not|never|cannot|without|unless|rank|process|task|worker|thread)\b|n't)).*(?:\bnormal(?:ly)? terminat\w{1,4}|\b(?:terminat|end|exit|finish|complet|stopp?)(?:ed|s|ing)? normally\b(?!,? but\b))",
    re.IGNORECASE,
)
_WENT_WELL = re.compile(
    rf"^(?!.*\b(?:but|[1-9]\d*) (?:\w{{1,20}} )?(?:failed|errors?)\b).*\b(?:passed|success(?:ful(?:ly)?)?|succeeded)\b|{_ENDED_WELL.pattern}",
    re.IGNORECASE,
)
_ENDED = re.compile(r"\b(?:done|finished|completed?|converge(?:d|nce reached))\b", re.IGNORECASE)
_PART = re.compile(r"\bERROR (\[[^\]\n]{4,120}\]) ")
_BACK = re.compile(
    r"\] (?:Discovered|Successfully|(?:Re-?)?(?:[Jj]oined|[Cc]onnected)|Re-?established|Recovered)\b"
)
"""A part of a program, as its logger names it in brackets, that had an error, and the same part's report that it has what it needs again."""
_FILE_TOOL = re.compile(
    r"(?:\S{1,40}: (?:\d{1,6}: )?)?(?:/\S{0,80}/)?(?:cp|mv|rm|ln|ls|cat|mkdir|rmdir|umount|chmod|chown|touch|cannot create)\b"
)
"""Complaints of a script's file commands. If the script reports later that it is done, they did not matter."""
_IGNORED = re.compile(r"^\+{1,4} exit 0$|\bignor(?:ed|ing)\W{0,3}$", re.IGNORECASE)
"""So they did not if the script says that it does without, or if its shell traces a good exit."""
_CLOSED_BY_USER = re.compile(
    r"\[[CI] .{0,40}App\] (?:received shutdown request\b.{0,40}stopping$|Shutting down on /api/shutdown)"
)
"""A notebook's server reports that its user ends it; a signal may be Slurm's."""
_READER = re.compile(
    r"(?:/\S{0,80}/)?(?:cat|head|tail|wc|[ef]?grep|sed|g?awk|sort|cut|uniq|diff|stat|du|file|readlink|chmod|touch|source): (?P<what>.{1,600}): No such file or directory$"
)
"""Complaints of commands that only look at a file; a script looks at what may not be there."""
_NAME = re.compile(r"[\w.-]{1,200}(?=['\"’]?(?: for reading)?$)")
_WORKS = re.compile(
    r"\+{1,4} (?!(?:export|unset|set|echo|printf|exit|return|rm|cp|mv|date|cd|module|sync|kill|wait|sleep|trap|conda|deactivate|true|:|\[{1,2}|\w{1,60}=)(?:\s|$|=))\S"
)
"""Commands that a script traces and that do not only clean up."""
_HDF5 = re.compile(r"HDF5-DIAG: Error detected in [^:]{1,200}:")
_HDF5_REASON = re.compile(
    r"\s{1,8}#\d{3}: \S{1,300} line \d{1,7} in \w{1,80}\(\): (?P<why>(?!(?:can't|unable to|could not|failed to) [^,:=']{1,120}$|[^,:=']{1,120} failed$)\S.*)"
)
"""A call of HDF5's stack that says more than that it failed, too."""
_SIGNED = re.compile(r"\s{8,60}-- [A-Z][A-Z .,'-]{2,80}$")
"""The author of the saying that Gaussian prints at every end, good or bad; it stands below the saying."""


def is_stack_frame(text: str) -> bool:
    """Whether the line is a frame of a stack other than Python's."""
    return _STACK_FRAME.match(text) is not None


def is_silent(text: str) -> bool:
    """Whether the line is no evidence of whether the program went on."""
    return _NO_WORD.match(text) is not None


def is_dump(message: str) -> bool:
    """Whether faulthandler's stacks follow the message."""
    return _DUMPED.match(message) is not None


def is_of_file_tool(message: str) -> bool:
    """Whether a script's file command complains."""
    return _FILE_TOOL.match(message) is not None


def only_read(message: str, death: str) -> bool:
    """Whether a command that only looks at files misses one in `message`, and `death`, the shell's or a launcher's line about a signal, does not name it."""
    found = _READER.match(locales.english(message))
    name = found and _NAME.search(found["what"])
    return name is not None and name[0] not in death


def traces_work(text: str) -> bool:
    """Whether a shell traces a command that does more than clean up."""
    return _WORKS.match(text) is not None


def went_well(text: str, message: str = "") -> bool:
    """Whether the line reports a good end; a script's report that it is done is enough if `message` is a file command's complaint, a part's own report if the error was its."""
    done = is_of_file_tool(message) and any(form.search(text) for form in (_ENDED, _IGNORED))
    part = _PART.search(message)
    done = done or _CLOSED_BY_USER.match(text) is not None or units.made_up_for(message, text)
    done = done or (part is not None and f"INFO {part[1]} " in text and _BACK.search(text) is not None)
    return done or _WENT_WELL.search(text) is not None


def is_over(text: str) -> bool:
    """Whether the line says that the work is over, speaks of an interruption itself, or heads a list."""
    of_it = "nterrupt" in text and not text.startswith("KeyboardInterrupt")
    heads = text[:1].strip() != "" and text.rstrip().endswith(":")
    return of_it or heads or any(form.search(text) for form in (_ENDED, _WENT_WELL))


def sayings(lines: Sequence[str]) -> set[int]:
    """Indices of the lines that are a saying, above its author's name."""
    found: set[int] = set()
    for signed in (i for i, text in enumerate(lines) if _SIGNED.match(text)):
        above = signed - 1 if signed and lines[signed - 1].strip() else signed - 2
        while above >= 0 and lines[above].strip():
            found.add(above)
            above -= 1
    return found


def reason_of_hdf5(head: str, text: str) -> str | None:
    """The message of the head of HDF5's stack with the reason in the line `text` of that stack; None for any other line."""
    stack, call = _HDF5.match(head), _HDF5_REASON.match(text)
    return f"{stack[0]} {call['why']}" if stack and call else None
