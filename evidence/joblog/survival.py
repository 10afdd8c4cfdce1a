"""Which failures a program, its script or its launcher can outlive."""

from __future__ import annotations

import re

from probing_cluster.evidence.joblog.grammar import JobFinding, LineRole

_NEVER = frozenset({"host_oom_kill", "collective_mismatch"})
"""Reports that come at the end of a job, as Slurm's do."""
_OF_SCRIPT = re.compile(r"(?:^|\s)line \d{1,9}: {1,4}\d{1,10} [A-Z]")
"""A shell's report that a command of its script died of a signal."""
_OF_WORKERS = re.compile(r"\bfailed \(exitcode: ")
_RESTARTED = re.compile(r"\bwill restart worker group\b")
_STEPS, _STEPS_AFTER_RESTART = 20, 3


def can_be_survived(finding: JobFinding) -> bool:
    """Whether the program can go on after it; the final reports of Slurm and the kernel cannot be survived."""
    of_slurm = finding.kind.startswith("slurm_") and "launcher" not in finding.detail
    if of_slurm or (finding.kind in _NEVER and not finding.detail.get("retried")):
        return False
    return finding.role in (LineRole.ROOT, LineRole.SYMPTOM, LineRole.REMOTE)


def can_be_outlived(finding: JobFinding) -> bool:
    """Whether it is the exit of a script's command or of torchelastic's workers, after which others may work on."""
    if finding.role is not LineRole.EXIT:
        return False
    return any(form.search(finding.message) for form in (_OF_SCRIPT, _OF_WORKERS))


class AfterExit:
    """Decides whether work went on after an exit that can be outlived."""

    def __init__(self) -> None:
        self._restarted = False
        self._steps = 0

    def went_on(self, text: str, *, advanced: bool) -> bool:
        """Whether so much work followed; `advanced`: the line `text` is a step that no buffer held back."""
        self._restarted = self._restarted or _RESTARTED.search(text) is not None
        self._steps += advanced
        return self._steps >= (_STEPS_AFTER_RESTART if self._restarted else _STEPS)
