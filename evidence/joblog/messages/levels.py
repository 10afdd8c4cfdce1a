"""The level of an error in the forms of the loggers of training and serving frameworks.

Their messages need no word for an error. Such a line counts only where the log ends with it.
"""

from __future__ import annotations

import re

_DAY = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
_LEVEL = re.compile(
    r"(?:\[rank\d{1,8}\]:\s?)?(?:\([A-Za-z][\w.]{0,60}(?:[ ,]{1,2}\w{1,20}=[\w.:-]{1,60}){1,3}\) )?(?:"
    # vLLM
    r"(?:ERROR|CRITICAL|FATAL) \d\d-\d\d \d\d:\d\d:\d\d \[?[\w./+-]{1,160}\.py:\d{1,7}\] "
    # PyTorch, with glog's form. XLA's and TensorFlow's sources end in .cc; they give this level to notes.
    r"|\[?[EFC]\d{4} \d\d:\d\d:\d\d\.\d{3,9}\s{1,8}(?:\d{1,10} )?[\w./+-]{1,200}\.(?:py|cpp):\d{1,7}\] "
    # NeMo
    rf"|\[NeMo [EC] {_DAY} [\w.]{{1,80}}:\d{{1,7}}\] "
    # Ray's C++
    rf"|\[{_DAY},\d{{3}} [EC] \d{{1,10}} \d{{1,10}}\] (?:\([\w.-]{{1,40}}\) )?[\w./+-]{{1,160}}\.(?:cc|h|cpp):\d{{1,7}}: "
    # Horovod
    rf"|\[{_DAY}\.\d{{3,9}}: [EF] \S{{1,300}}:\d{{1,7}}\] "
    # torchtitan
    rf"|\[[a-z]{{1,20}}\] {_DAY},\d{{3}} - [\w.]{{1,80}} - (?:ERROR|CRITICAL) - "
    r")(?:\[\w[^\]\n]{0,80}\] ){0,2}(?=[^\s\]])"
)
_ASIDE = re.compile(
    r"\b(?:shut(?:ting)? ?down|at exit|clos(?:e|ing)|clean(?:ing|ed)?[ -]?up|tear(?:ing)?[ -]?down|releas(?:e|ing)|destroy\w{0,3}|metrics?|telemetry|usage (?:stats|statistics)|profil\w{1,5}|trac(?:e|es|ing)|dump\w{0,4}|autotun\w{1,4}|cProfile"
    r"|not (?:been )?tested|(?:will|would) not be|default(?:s|ing)?|rejecting|dropping|repair\w{0,3}|recover(?:ed|ing)|over \d{1,3}% full)\b",
    re.IGNORECASE,
)
"""What runs beside the work, what a program does while it ends, and advice."""


def is_error(text: str) -> bool:
    """Whether a framework's logger gives the line the level of an error, and the message is about the work itself."""
    found = _LEVEL.match(text)
    return found is not None and _ASIDE.search(text, found.end()) is None
