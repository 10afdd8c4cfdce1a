"""Sentences without a form of their own: how a program refuses its input in a log's last line, and the text of a warning below its heading."""

from __future__ import annotations

import re
from collections.abc import Reversible
from itertools import islice

_REFUSED = re.compile(
    r"(?!.*:$)(?:\[\w{1,60}\] )?(?:[\w./+-]{1,40}(?: [\w-]{1,20})?: )?(?:(?:Unexpected|Incorrect|Wrong|Too (?:many|few)|Incompatible|Inconsistent|Duplicate|Malformed|Not enough|No such|Sorry,) \w"
    r"|Expected .{1,120}\b(?:but|got|found|instead)\b|.{0,80}\b(?:\w{2,20} failure|(?:open|read|write|buffer|allocation|memory|parse|format|file) error|[Oo]ut of memory)[.!]?$|No .{1,80}\b(?:specified|given|provided|supplied|selected)\b"
    r"|(?:The|This|That|These|Your|An?|All|Each|Every|Only|Option|Parameter|Argument|File|Number|Length|Input|[A-Z]{2,12}|-{1,2}\w[\w-]{0,40}|[\"'`]\S{1,200})\b.{0,200}?\b(?:(?:is|are|was|were|does|do|did|has|have|can|could|should|must|may)(?: not|n't)|cannot|must (?:be|have|contain|match)|(?:can|may) only be|not (?:recogni[sz]ed|compatible|defined|implemented|consistent|found))\b)"
)
"""How a program refuses its input or its options in a sentence; it counts only as the log's last."""
_RESOLVED = re.compile(
    r"\b(?:using|assum(?:ed|es|ing)|selecting|setting|defaults?|turned (?:on|off)|subject to|not be (?:used|written|computed)|doing nothing|disabled|no longer)\b",
    re.IGNORECASE,
)
"""What the program did instead."""


def refuses(text: str) -> bool:
    """Whether a program refuses its input or its options in this sentence, and does nothing else instead."""
    return _REFUSED.match(text) is not None and _RESOLVED.search(text) is None


_ABOVE_LINES = 3
_WARNING = re.compile(
    r"(?:--> FOAM Warning\b.*|Warning messages?:|Message from routine \S{1,60}|[\W_]{0,40}(?:WARNINGS?|Warnings?|NOTE|Note)[\W_]{0,40})$"
)
_PLACE_OF_WARNING = re.compile(r"\W*$|\s{2,}(?:From function|in file)\b")
_CALLS_ITSELF = re.compile(r"\W{0,8}(?:(?i:fatal )?(?:ERROR|Error|error)|FATAL|Fatal|fatal)\b")


def is_warned(text: str, before: Reversible[str]) -> bool:
    """Whether the line is the text of a warning whose heading stands right above."""
    if _CALLS_ITSELF.match(text):
        return False
    above = (line for line in islice(reversed(before), _ABOVE_LINES) if not _PLACE_OF_WARNING.match(line))
    return _WARNING.match(next(above, "").strip()) is not None
