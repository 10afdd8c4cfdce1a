"""Lines that launchers, wrappers and epilogs print when a program has ended: they do not show that the job went on."""

from __future__ import annotations

import re
from collections.abc import Sequence

from probing_cluster.core.catalogue import slurm_lines

_CLOCK = r"\d{1,2}:\d\d(?::\d\d)?"
_WRAPPER = re.compile(
    r"(?:g?make|ninja|conda|mamba|module|lmod|wandb|srun|slurmstepd|slurmd|sbatch|singularity|apptainer|docker|podman|time|timeout|env)(?:\[\d{1,6}\])?(?::|\b.{0,40}\berror\b)"
    r"|CondaError|ERROR conda\b|Lmod\b|The following (?:modules?|have been)\b|(?:Unloading|Deactivating|Removing|Cleaning up|Copying|Syncing)\b|(?:sending|receiving) (?:incremental )?file list|sent [\d,.]{1,20} bytes  received |total size is [\d,.]{1,20}  speedup"
    r"|Caused by: |Driver stacktrace:|\[rank\d|[\w.]{1,200}(?:Error|Exception|Interrupt|Failure)\b(?::|\W*$)|[Tt]raceback\b"
    r"|During handling of the above|The above exception was|Exception (?:in thread|ignored)\b|Error in (?:sys|atexit)\b|[\w.]{1,80}\(\w{1,80}Error\)|full_key: |object_type|FAILED\b|For simplicity, JAX|https?://|tensor\("
    r"|\++ |[#|*=]|(?:real|user|sys)\s+\d|Command exited with non-zero status|Set the environment variable HYDRA_FULL_ERROR"
    r"|(?:Failures|Root Cause \(.{0,40}\)|The output \(if any\) .{0,40}):?|\[\d{1,5}\]:$|<NO_OTHER_FAILURES>"
    r"|Killing subprocess|Sending process \d|.{0,160}(?:torch[./]distributed[./](?:elastic|launch|run)|\blaunch\.py:\d|\bsigkill_handler\b)"
    # The end in words, with an exit code, a date or a job's name.
    rf"|.{{0,60}}\b(?i:exit(?:ed|ing|s)?|return(?:ed|s)?|rc|status)(?: (?i:with|code|status|value))*\W{{1,4}}-?\d{{1,3}}\W*$"
    rf"|(?i:(?:the )?(?:job|script|run|batch job|program|task|step)\b.{{0,60}}\b(?:finished|ended|end|done|completed?|failed|stopped|exit(?:ed)?|over(?=\W*$|[.!,;]))(?!\w))"
    rf"|(?i:finished|ended|end|done|completed|stopped|failed|bye|good ?bye|exiting)\b(?:\W*|\W.{{0,30}}(?:{_CLOCK}|\b(?:job|script|run|at|on)\b).{{0,60}})$"
    rf"|(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]{{0,6}},? .{{0,40}}{_CLOCK}|\d{{4}}-\d\d-\d\d(?:[T ]{_CLOCK}\S{{0,16}})?$|{_CLOCK}$"
    # A key of an epilog's report on the job.
    r"|(?:[\w()/-]{1,20} ){0,4}(?i:time|memory|mem|cpus?|gpus?|cores?|swap|process(?:es)?|threads|nodes?|hosts?|nodelist|job(?:[ _]?id)?|jobname|state|status|cluster|user(?:/group)?|account|partition|efficiency|elapsed|wall-?(?:clock|time)|utili[sz]ed|rank|exitcode|error_file|traceback|pid|directory|start(?:ed)?|end(?:ed)?)(?: (?:used|reserved|utilized|efficiency|time|at))?\s{0,20}[:=](?:\s|$)"
)
_CONTINUED = re.compile(r"\s")


def is_wrapper_line(text: str) -> bool:
    """Whether the line may follow a program's end: a launcher's or wrapper's message, or the continuation of a message of several lines."""
    return _CONTINUED.match(text) is not None or _WRAPPER.match(text) is not None


def behind_node(lines: Sequence[str]) -> Sequence[str]:
    """Those of `lines`, which follow an error, that are not of Node.js's report of it."""
    ended = next((i for i in reversed(range(len(lines))) if slurm_lines.END_OF_NODE.match(lines[i])), -1)
    return lines[ended + 1 :]
