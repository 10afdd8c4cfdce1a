"""Phrases for people: devices, durations, events."""

from __future__ import annotations

import re
import signal as signals

from probing_cluster.attribution.verdict import gpus
from probing_cluster.core import records

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
) -> str:
    """A cause's next step with its names filled in. An unknown name becomes a general one; without a detail nothing is quoted."""
    return (step if detail else step.replace(": {detail}", "")).format(
        device=device(part) if part else f"the {noun}",
        named_device=f" {device(part)}" if part else "",
        node=node or "the node",
        user=user or "the job's user",
        detail=detail,
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


def before_a_repair(step: str) -> str:
    """The step for a part that is only possibly at fault: check it before the repair."""
    if not step.startswith(_REPAIRS):
        return step
    return f"Check {{device}} of {{node}} first, since it is only possibly at fault. If it fails its test, or the error comes again: {step[:1].lower()}{step[1:]}"


_SHELL = re.compile(
    r"^\S{1,1024}: line \d{1,9}: \d{1,10} (?P<how>(?:Killed|Terminated|Aborted|Hangup|Quit|Interrupt|Segmentation fault|Bus error|Illegal instruction|Floating point exception|Broken pipe|Alarm clock"
    r"|Trace/breakpoint trap|CPU time limit exceeded|File size limit exceeded|User defined signal [12])(?: \(core dumped\))?) (?P<command>\S.*)$",
    re.ASCII,
)
"""The shell's message about a script command that a signal ended, with runs of blanks reduced to one."""
_SCRIPT = re.compile(r"(?:/[^\s/:]{1,255}){1,16}/(?=slurm_script: line \d)", re.ASCII)
"""The directory of Slurm's own copy of a batch script, which means nothing to its owner."""
_MOST_OF_A_COMMAND = 60


_LOGGER = re.compile(r"^[EWIF]\d{4} \d\d:\d\d:\d\d\.\d{3,6} \d{1,10} \S{1,200}:\d{1,6}\] (?=\S)", re.ASCII)
"""What torch's and glog's loggers write in front: time, process and source file."""


def clean(text: str) -> str:
    """One line of at most 160 characters without a logger's prefix and its final dot, both ends kept; for a shell's message, the signal and the command."""
    line = _LOGGER.sub("", _SCRIPT.sub("", " ".join(text.split())))
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
