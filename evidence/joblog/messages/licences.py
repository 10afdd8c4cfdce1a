"""Licences that a program did not get: their server does not answer, all of them are taken, or none exists for what the user wants.

A licence server is a service outside the job. Only the last is a choice of the user's.
"""

from __future__ import annotations

import re
from dataclasses import replace

from probing_cluster.evidence.joblog.grammar import SOFTWARE, JobFinding

_WORD = r"\blicen[cs](?:e|es|ed|ing)\b"
_OF_LICENCE = re.compile(
    rf"{_WORD}.{{0,80}}\b(?:errors?|fail\w{{0,4}}|check ?out|checking out|manager|server|not (?:be )?(?:available|found|obtained|valid|granted)|unavailable|expired|reached|problem|taken|in use|denied|lost)\b"
    rf"|\b(?:no (?:valid |\w{{1,40}} )?|(?:cannot|can't|could not|couldn't|unable to|failed? to) (?:obtain|check ?out|acquire|get|find|connect to)\b.{{0,60}}|error checking out .{{0,40}}){_WORD}"
    r"|\b(?:FlexNet|FLEXlm)\b.{0,20}\berror\b|LICENSE MANAGER ERROR|\btoken server\b",
    re.IGNORECASE,
)
"""A complaint about a licence."""
_TERMS = re.compile(
    r"(?!.*\b(?:check ?out|checking out|(?:licen[cs]e|token) (?:servers?|managers?|daemon)|FlexNet|FLEXlm|RLM|feature|\w{1,80}\.(?:lic|dat)|no valid licen[cs]e|licen[cs]es? (?:(?:key|file|was|were|is|are|has|been|not|could) ){0,4}(?:expired|found|denied|(?:already )?in use))\b)"
    r"(?:.*\blicen[cs](?:e|es|ing) (?:agreements?|terms|conditions|texts?|headers?|expressions?|identifiers?|fields?|metadata|classifiers?|notices?)\b"
    r"|.*\b(?:terms|text|copy|conditions) of (?:the|this|its) (?:\w{1,20} ){0,3}licen[cs]e\b|.*\blicensed (?:to(?: the)? (?-i:[A-Z])|under\b)|.*\b(?:Public|Apache|MIT|BSD|Mozilla|Commons|ISC|open[ -]source|[ae]nd[ -]user|EULA) Licen[cs]e\b"
    r"|.*\b(?:accept\w{0,3}|agree\w{0,3}(?: to)?) (?:[\w']{1,20} ){0,4}licen[cs]es?\b|.*\blicen[cs]es? (?:\w{1,20} ){0,4}(?:accepted|agreed)\b|.*\b(?-i:LICEN[CS]E(?: file\b|\.(?:txt|md|rst)\b)))",
    re.IGNORECASE,
)
"""The text of a licence, or that somebody must accept it: nothing that a program checks out."""
_CODE = r"(?:licen[cs](?:e|ing)|FlexNet|FLEXlm|FLEXnet)\b.{0,40}?\berror ?(?:code)? ?[:=]? ?-"
_NO_SERVER = re.compile(
    rf"{_CODE}(?:15|16|17|96|97)\b"
    r"|\b(?:(?:cannot|can't|could not|couldn't|unable to|fail(?:ed)? to) (?:connect|reach|contact|communicate)\b.{0,40}|(?:connect\w{0,3}|contact|reach)\b.{0,40}\bfail\w{0,3} .{0,40})\b(?:licen[cs]e|token|FlexNet|FLEXlm|RLM)\b.{0,20}\b(?:servers?|managers?|daemon)\b"
    r"|\b(?:timed out|time-?out|no (?:answer|response|reply))\b.{0,40}\b(?:licen[cs]e|token) (?:servers?|managers?)\b"
    r"|\b(?:licen[cs]e|token|FlexNet|FLEXlm|RLM) (?:servers?|managers?|daemon)\b.{0,80}\b(?:down|dead|not respond\w{0,3}|unreachable|unavailable|lost|timed out|time-?out|refused|not (?:been )?(?:started|running|reachable))\b",
    re.IGNORECASE,
)
_ALL_TAKEN = re.compile(
    rf"{_CODE}4\b|\b(?:licensed|maximum) number of (?:\w{{1,20}} )?users\b.{{0,60}}\breached\b"
    r"|\b(?:all|no (?:more|free|further))\b.{0,40}\b(?:licen[cs]es?|tokens?)\b.{0,40}\b(?:taken|in use|used|busy|available|left)\b|\bnot enough (?:licen[cs]es?|tokens)\b",
    re.IGNORECASE,
)
_PROGRAMS = frozenset({"program_error", "python_exception"})
_NEAR_LINES = 40
"""A message about a licence gives its reason within so many lines below its heading."""
_MEANINGS = {
    "no_server": "A licence server does not answer. It is a service outside the job.",
    "taken": "All licences of this kind are in use: others hold them.",
    "refused": "The program got no licence. Its server may be down or out of them, or the licence does not exist, has expired or is looked for in the wrong place.",
}


def named(finding: JobFinding) -> JobFinding:
    """`finding`, if a program complains about a licence in it, with the domains and the meaning of what it says of the reason."""
    if finding.kind not in _PROGRAMS or not _OF_LICENCE.search(finding.message):
        return finding
    if _TERMS.match(finding.message):
        return finding
    no_server, taken = _NO_SERVER.search(finding.message), _ALL_TAKEN.search(finding.message)
    return _because(finding, "no_server" if no_server else "taken" if taken else "refused")


def with_reason(best: JobFinding, other: JobFinding) -> JobFinding:
    """`best`, which only reports that there was no licence, with the reason in `other` below it."""
    reason = other.detail.get("licence")
    near = 0 < other.line - best.line <= _NEAR_LINES
    if near and best.detail.get("licence") == "refused" and reason in ("no_server", "taken"):
        return _because(best, str(reason))
    return best


def _because(finding: JobFinding, reason: str) -> JobFinding:
    domains = (*SOFTWARE, "user_program") if reason == "refused" else SOFTWARE
    return replace(
        finding, domains=domains, meaning=_MEANINGS[reason], detail={**finding.detail, "licence": reason}
    )
