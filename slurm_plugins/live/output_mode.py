"""Whether a job's output file is appended to when it starts again, or truncated: nowhere in the controller's answers, but in what was submitted."""

from __future__ import annotations

import re

from probing_cluster.core import errors
from probing_cluster.slurm_plugins import commands

_MODE = re.compile(r"--open-mode[=\s]+['\"]?(append|truncate)")


def appends(run: commands.Runner, job_id: int, name: str) -> bool:
    """What the submission says (its command line, then its script), else the site's JobFileAppend; False when nobody says."""
    for ask in (
        ("sacct", "-n", "-X", "-P", "-j", str(job_id), "--format=SubmitLine"),
        ("scontrol", "write", "batch_script", name, "-"),
    ):
        modes = _MODE.findall(_options(_text(run, *ask)))
        if modes:
            return bool(modes[-1] == "append")
    config = _text(run, "scontrol", "show", "config")
    return re.search(r"^JobFileAppend\s*=\s*1\b", config, re.MULTILINE) is not None


def _options(text: str) -> str:
    """A command line as it is; of a script the #SBATCH lines before its first command."""
    if not text.startswith("#!"):
        return text
    found = []
    for line in text.splitlines()[1:]:
        if line.startswith("#SBATCH"):
            found.append(line)
        elif line.strip() and not line.startswith("#"):
            break
    return "\n".join(found)


def _text(run: commands.Runner, *command: str) -> str:
    """Standard output; empty where this Slurm has no such question."""
    try:
        return run(*command).decode("utf-8", "replace")
    except errors.SlurmUnavailable:
        return ""
