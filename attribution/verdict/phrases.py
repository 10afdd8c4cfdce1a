"""Phrases for people: devices, durations, events."""

from __future__ import annotations

import re
import signal as signals
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from probing_cluster.attribution.verdict import case as cases
from probing_cluster.attribution.verdict import gpus
from probing_cluster.core import digits, hostlist, records, sanitize, vocabulary
from probing_cluster.core.catalogue import fault_names

_KINDS = {
    "xid": "Xid",
    "sxid": "SXid",
    "gpu_lost": "GPU lost",
    "ib_link": "InfiniBand link",
    "eth_link": "Ethernet link",
    "pcie_aer": "PCIe error",
    "pcie_link": "PCIe link",
    "edac": "memory error",
    "mce": "machine check",
    "oom": "out-of-memory kill",
    "nfs": "NFS",
    "lustre": "Lustre",
    "mount": "mount",
    "node_boot": "reboot",
    "driver_load": "driver load",
    "kernel_log": "kernel log",
    "ecc": "ECC error",
    "row_remap": "row remap",
    "block_io": "disk error",
    "hung_task": "hung task",
}


_STARTS_AGAIN: Mapping[str, str] = {
    "": "Slurm starts it elsewhere",
    vocabulary.BY_NODE_LIST: "it asks for that node by name (--nodelist) and waits for it",
    "reservation": "Slurm starts it elsewhere if its reservation has another node",
}


def starts_again(refusal: Sequence[records.HealthEvent]) -> str:
    """Clause on where Slurm starts a job again that was refused, as the agent that refused it learnt."""
    bound_by = next((e.detail.get(vocabulary.BOUND_BY) for e in refusal), None)
    return _STARTS_AGAIN.get(str(bound_by), "Slurm starts it elsewhere if it may")


def duration(seconds: float) -> str:
    """`4 s`, `12 min`, `3 h 20 min`, `2 d 4 h`."""
    whole = round(abs(seconds))
    if whole < 120:
        return f"{whole} s"
    minutes = (whole + 30) // 60
    hours, days = minutes // 60, minutes // 1440
    if minutes < 120:
        return f"{minutes} min"
    if hours < 48:
        rest = minutes % 60
        return f"{hours} h {rest} min" if rest else f"{hours} h"
    rest = hours % 24
    return f"{days} d {rest} h" if rest else f"{days} d"


def a(noun: str) -> str:
    """`a GPU`, `an InfiniBand port`."""
    return f"{'an' if noun[:1] in 'AEIOaeio' else 'a'} {noun}"


def device(name: str | None, noun: str = "device") -> str:
    """`GPU 3` for gpu3, `GPU-5f3c9e10` for a UUID, other names unchanged; without a name, the noun (`taxonomy.Cause.noun`)."""
    if not name:
        return a(noun)
    if name in fault_names.LIBRARIES:
        return "the GPUs"
    index = gpus.index_of(name)
    if index is not None:
        return f"GPU {index}"
    if name.startswith("GPU-") and len(name) > 12:
        return name[:12]
    return name


def device_of_node(name: str | None, node: str | None, noun: str = "device") -> str:
    """`GPU 3 of n2`."""
    if not name and noun == "node":
        return node or a(noun)
    return f"{device(name, noun)} of {node}" if node else device(name, noun)


def part_of_node(name: str | None, node: str | None, noun: str) -> str:
    """`file system /scratch of n2`; without a name `a file system of n2`."""
    called = device_of_node(name, node, noun)
    return f"{noun} {called}" if name else called


def next_step(
    step: str,
    *,
    part: str | None = None,
    node: str | None = None,
    user: str = "",
    detail: str = "",
    noun: str = "device",
    job: str = "JOBID",
) -> str:
    """A cause's next step with its names filled in. An unknown name becomes a general one; without a detail nothing is quoted."""
    if part in fault_names.LIBRARIES:
        # No GPU can be reached to be reset.
        step = step.replace("Reset {device} of {node}", "Reload the GPU driver of {node}, or reboot it")
    return (step if detail else step.replace(": {detail}", "")).format(
        device=device(part) if part else f"the {noun}",
        named_device=f" {device(part)}" if part else "",
        node=node or "the node",
        user=user or "the job's user",
        detail=detail,
        job=job,
    )


def what(event: records.HealthEvent) -> str:
    """`Xid 79`, `InfiniBand link port_down`."""
    return what_of(event.kind, event.code)


def what_of(kind: str, code: str | None) -> str:
    """`what`, from kind and code."""
    word = _KINDS.get(kind, kind.replace("_", " "))
    return f"{word} {code}" if code and kind != code else word


_REPAIRS = ("Replace ", "Reseat ", "Reset ")


def signal(number: int) -> str:
    """`9 (SIGKILL)`: the signal's number, and its name if it has one."""
    return f"{number} ({signals.Signals(number).name})" if number in set(signals.Signals) else str(number)


_UNREPORTED = frozenset({10, 12, 15})
"""Signals that end a script's command without a word of the shell's: SIGUSR1, SIGUSR2, SIGTERM behind `wait`. SIGPIPE (`_MEANINGS`) is one more."""
_REPORTED = frozenset({4, 6, 7, 8, 9, 11, 24, 25})
"""Signals that often end programs; of those the shell and srun print a line."""
_MEANINGS = {
    2: "of many tools: a wrong argument",
    13: "or 141, SIGPIPE: the reader of a pipe ended first, such as `head` or `grep -q`, which `set -o pipefail` reports",
    120: "of Python: its standard output could not be written at its end, as into a closed pipe",
    123: "of xargs: a command that it ran failed",
    vocabulary.OF_TIMEOUT: "of timeout(1): its time limit was reached",
}
"""Usual meanings of exit codes."""
_OF_SHELL = {
    126: (
        "of the shell: a command is not executable",
        "254, as of exit -2",
        "no command that could not be run",
    ),
    127: ("of the shell: a command was not found", "255, as of ssh and exit -1", "no missing command"),
}
"""Codes for which the shell prints its reason: their meaning, the code above 128 that Slurm records as the same, and what a log without that reason names."""


def exit_code(
    code: int, *, refusal_logged: bool = False, names_none: bool = False, interrupted: bool = False
) -> str:
    """`11 (or 139, SIGSEGV)`: an exit code and its usual meaning: a signal that Slurm records without its 128, or a shell's or tool's code.

    `interrupted`: a line of its output names SIGINT. `names_none`: its output was read, has lines, and reports no such signal, which excludes most of them. Of 126 and 127 the likelier meaning comes first: a shell that cannot run a command prints that into the log (`refusal_logged`).
    """
    if code in _OF_SHELL:
        meaning, other, unnamed = _OF_SHELL[code]
        if names_none and not refusal_logged:
            return f"{code} (or {other}; its log names {unnamed})"
        return f"{code} ({meaning})" if refusal_logged else f"{code} ({meaning}; or {other})"
    meanings = [_MEANINGS[code]] if code in _MEANINGS else []
    sent = interrupted and code == signals.SIGINT
    if code in _UNREPORTED or (code in _REPORTED and not names_none) or sent:
        meanings.append(f"or {vocabulary.BY_SIGNAL + code}, {signals.Signals(code).name}")
    if not meanings and (larger := vocabulary.may_be_larger(code)):
        meanings.append(f"or {larger}")
    return f"{code} ({'; '.join(meanings)})" if meanings else f"{code}"


_OR_SIGNAL = re.compile(r"(?<=exited with code )(?P<code>\d{1,2}) \(or \d{3}, SIG[A-Z]{2,6}\)")


def without_signal(summary: str, lines: Sequence[str]) -> str:
    """The summary without the signal that an exit code may stand for, if shells report that signal and none of the `lines` of the output's end names it."""
    found = _OR_SIGNAL.search(summary)
    if found is None or (code := int(found["code"])) not in _REPORTED:
        return summary
    named = any(names_signal(line, code) for line in lines)
    return summary if named else summary.replace(found[0], found["code"], 1)


def before_a_repair(step: str) -> str:
    """The step for a part that is only possibly at fault: check it before the repair."""
    if not step.startswith(_REPAIRS):
        return step
    return f"Check {{device}} of {{node}} first, since it is only possibly at fault. If it fails its test, or the error comes again: {step[:1].lower()}{step[1:]}"


def in_english(event: records.HealthEvent) -> str:
    """The line of the job's output, in English where the shell or the system printed it in another language."""
    return str(event.detail.get("english") or event.message)


def names_signal(line: str, number: int) -> bool:
    """Whether the line names the signal, as the shell, srun or a crash handler does: `Segmentation fault`, `SIGSEGV`, `signal 11`."""
    if number not in set(signals.Signals):
        return False
    words = (signals.Signals(number).name, signals.strsignal(number) or "")
    return (
        any(w and w.lower() in line.lower() for w in words)
        or re.search(rf"\bsignal:? {number}\b", line, re.IGNORECASE) is not None
    )


def in_rank(error: records.HealthEvent, nodes: Sequence[str], beside: Iterable[records.HealthEvent]) -> str:
    """Names the rank that an error is of, if its words do not, and its node, if srun's lines on tasks `beside` it show that each rank is a task."""
    rank = digits.index(error.detail.get("rank"))
    if rank is None or re.search(rf"\b(?:rank|task) ?{rank}\b", error.message, re.IGNORECASE):
        return ""
    lines = [e.detail for e in beside if e.detail.get("tasks")]
    # A launcher of its own, such as torchrun, is one task a node, whatever its ranks are called.
    each = any((digits.index(d.get("rank")) or 0) >= len(nodes) for d in lines)
    hosts = [d.get("host") for d in lines if each and d["tasks"] == str(rank)]
    node = next((n for n in nodes if n in hosts), "")
    return f" in rank {rank}{f' on {node}' if node else ''}"


_SHELL = re.compile(
    r"^\S{1,1024}: line \d{1,9}: \d{1,10} (?P<how>(?:Killed|Terminated|Aborted|Hangup|Quit|Interrupt|Segmentation fault|Bus error|Illegal instruction|Floating point exception|Broken pipe|Alarm clock"
    r"|Trace/breakpoint trap|CPU time limit exceeded|File size limit exceeded|User defined signal [12])(?: ?\(core dumped\))?) (?P<command>\S.*)$",
    re.ASCII,
)
"""The shell's message about a script command that a signal ended, with runs of blanks reduced to one."""
_SCRIPT = re.compile(r"(?:/[^\s/:]{1,255}){1,16}/(?=slurm_script: )", re.ASCII)
"""The directory of Slurm's own copy of a batch script, which means nothing to its owner."""
_MOST_OF_A_COMMAND = 60


_HELD_BY_STEPS = re.compile(
    r"\bretrying(?: \((?:Requested nodes are busy|Memory required by task is not available)\))?$"
)
"""Slurm's reasons for which a step waits for an earlier step of its job; old releases name none."""


def waited_for_steps(line: str) -> bool:
    """Whether srun's line about a step that waits gives a reason that lies in the job's own steps."""
    return _HELD_BY_STEPS.search(line) is not None


def step_that_waited(line: str, until: str) -> str:
    """The clause about a step that waited `until` the job's end; `line` is srun's about it."""
    held = "the memory" if "(Memory required" in line else "the nodes"
    why = f", because other steps of the job held {held}" if waited_for_steps(line) else ""
    return f"one of its steps never began: srun waited until {until}{why}; its log says: {clean(line)}"


_LOGGER = re.compile(r"^[EWIF]\d{4} \d\d:\d\d:\d\d\.\d{3,6} \d{1,10} \S{1,200}:\d{1,6}\] (?=\S)", re.ASCII)
"""What torch's and glog's loggers write in front: time, process and source file."""


def clean(text: str) -> str:
    """One line of at most 160 characters without a logger's prefix and its final dot, both ends kept; for a shell's message, the signal and the command.

    Secrets are taken out before it is cut: behind a cut no name shows that a value is one.
    """
    line = _LOGGER.sub("", _SCRIPT.sub("", " ".join(sanitize.without_secrets(text).split())))
    if found := _SHELL.match(line):
        how, command = found["how"], found["command"]
        command = (
            command
            if len(command) <= _MOST_OF_A_COMMAND
            else f"{command[: _MOST_OF_A_COMMAND - 1].rstrip()}…"
        )
        return f"{how} in `{command}`"
    line = line.rstrip(".:;, ")
    # The end of a line often says most: "No such file or directory".
    return line if len(line) <= 160 else f"{line[:90].rstrip()} … {line[-67:].lstrip()}"


def sentence(text: str) -> str:
    """The text as a sentence: with a capital, unless a name begins it, and one dot."""
    first = text.split(" ", 1)[0]
    # A node or device keeps its spelling: "n2 stopped answering", never "N2".
    named = not first.isalpha()
    text = (text if named else text[:1].upper() + text[1:]).rstrip(".")
    return text if text.endswith("…") else f"{text}."


_IN_SECONDS_S = 3600.0
"""An offset of a clock below this is given in seconds."""


def with_clocks(text: str, offsets_s: Mapping[str, float]) -> str:
    """The summary, with a sentence about the clocks (`offsets_s`: node to seconds ahead)."""
    sentences = [
        _of_clocks(offset_s, [n for n in offsets_s if offsets_s[n] == offset_s])
        for offset_s in sorted(set(offsets_s.values()), key=lambda s: (-abs(s), s))
    ]
    return " ".join([text, *sentences[:2]])


def _of_clocks(offset_s: float, nodes: list[str]) -> str:
    where = hostlist.compress(sorted(nodes))
    if abs(offset_s) > cases.CORRECTED_S:
        return f"The clock of {where} was more than a day off: nothing there can be dated."
    # Whoever compares with the node's own log adds or subtracts: a number of seconds is handier than 6 min.
    length = f"{abs(offset_s):.0f} s" if abs(offset_s) < _IN_SECONDS_S else duration(abs(offset_s))
    off = f"{length} {'ahead' if offset_s > 0 else 'behind'}"
    return f"The clock of {where} was {off}: the times of its events are corrected by that."


def preempted_by(job_id: int, verdict: records.Verdict | None = None) -> str:
    """Names the next job to start in its place, and the failure that made it start again. Slurm does not record the preemptor.

    The preemptor's owner may be another than the report's reader, who may then know its number only.
    """
    text = f"A job of higher priority took its place; the next to start there was job {job_id}"
    if verdict is not None:
        text += f", which had to start again because of {verdict.cause}"
        text += f" on {verdict.node}" if verdict.node else ""
    return sentence(text)


def since(at: datetime, end_at: datetime) -> str:
    """`14:03:00Z, 25 min`, with the date if the end is of another day."""
    return f"{instant(at, end_at)}, {duration((end_at - at).total_seconds())}"


def instant(at: datetime, end_at: datetime) -> str:
    """`14:03:00Z`, with the date if the end is of another day."""
    at, end_at = at.astimezone(UTC), end_at.astimezone(UTC)
    day = "%Y-%m-%d " if at.date() != end_at.date() else ""
    return f"{at:{day}%H:%M:%S}Z"


def answers_again(since_at: datetime, end_at: datetime) -> str:
    """Clause on a node that was given up and is heard again in the same boot."""
    return f"its agent answers again since {instant(since_at, end_at)}, in the same boot"
