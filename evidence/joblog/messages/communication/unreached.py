"""Errors of programs that did not reach a host: its name, its network or its route may be wrong, or the node's may be down."""

from __future__ import annotations

import re
from dataclasses import replace

from probing_cluster.evidence.joblog.grammar import ALL_DOMAINS, USER, JobFinding

_NO_WAY = re.compile(r"\bNo route to host\b|\bNetwork is (?:unreachable|down)\b|\bHost is down\b")
_NO_NAME = re.compile(
    r"\bCould not resolve host\b|\bTemporary failure in name resolution\b|\bName or service not known\b"
)
_PROGRAMS = frozenset({"program_error", "python_exception"})


def named(finding: JobFinding) -> JobFinding:
    """`finding`, which does not accuse the program alone if a host or a way to it was missing."""
    if finding.kind not in _PROGRAMS or finding.domains != USER:
        return finding
    if _NO_WAY.search(finding.message):
        return replace(finding, domains=ALL_DOMAINS)
    if _NO_NAME.search(finding.message):
        return replace(finding, domains=("user_program", "system_software"))
    return finding
