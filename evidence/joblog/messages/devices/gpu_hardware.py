"""Errors that only a GPU's hardware can cause, in programs' own messages that name CUDA's error."""

from __future__ import annotations

import re
from dataclasses import replace

from probing_cluster.evidence.joblog import mention
from probing_cluster.evidence.joblog.grammar import ALL_DOMAINS, JobFinding, LineRole
from probing_cluster.evidence.joblog.messages.devices import cuda

_NAMED = re.compile(
    r"uncorrectable (?:ECC|NVLink) error (?:encountered|detected)|\b(?:cuda|hip)Error(?:ECC(?:Uncorrectable|NotCorrectable)|NvlinkUncorrectable)\b"
    r"|\bCUDA_ERROR_(?:ECC|NVLINK)_UNCORRECTABLE\b"
)
_STATE = r"(?:thermal (?:slow-?down|shut-?down|throttl\w{1,3}|violation)|power[ -]brake|over-?heat\w{0,3})"
_ENDED_FOR = re.compile(
    rf"(?!.*\b(?:no|not|never|without|or|if|unknown|unsupported|invalid|actions?|options?|polic\w{{1,3}})\b)(?=.*\b(?:GPU #?\d{{1,3}}\b.{{0,60}}\b{_STATE}|{_STATE} (?:on|of|at) GPU #?\d{{1,3}})\b)"
    r".*\b(?:end|stopp|abort|kill|terminat|cancell?)ing (?:the |this )?(?:job|run|training|step)\b",
    re.IGNORECASE,
)
"""The job's own watcher says for which state of which GPU it ends the job."""
_BEHIND = 160
_PROGRAMS = frozenset({"program_error", "python_exception", "import_error"})


def named(finding: JobFinding) -> JobFinding:
    """The hardware's error where a program's or an exception's own error holds the runtime's name of one; else `finding`.

    MD codes, inference engines and bindings put a call or a file around that name. The form does not prove that the error is real,
    so it stays unattributed: the node's own evidence decides. What the job's watcher ends it for does not accuse the program.
    """
    if finding.kind == "program_error" and _ENDED_FOR.match(finding.message):
        return replace(finding, domains=ALL_DOMAINS, detail={**finding.detail, "watcher": True})
    names = list(_NAMED.finditer(finding.message)) if finding.kind in _PROGRAMS else []
    if not names:
        return finding
    kind, behind = cuda.kind_of(names[0][0]), finding.message[names[-1].end() :][:_BEHIND]
    mentioned = mention.is_mentioned(finding.message, names[0].start()) or mention.foreign_words(behind) > 1
    if kind not in cuda.ONLY_HARDWARE or mentioned:
        return finding
    known = cuda.FACTS[kind]
    return replace(
        finding,
        kind=kind,
        role=known.role if finding.role is not LineRole.OBSERVATION else finding.role,
        domains=known.domains,
        meaning=known.meaning,
        detail={**finding.detail, "unattributed": True},
    )
