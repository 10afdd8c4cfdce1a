"""The live kernel log's reader of meaning: evidence.kernel, behind two short cuts that keep a storm cheap.

Logs repeat themselves. A line that is dull but for its digits stays dull (no trigger word of the grammar holds a
digit), so its template is remembered. A line read moments ago word for word means the same now; but what was
said before it can change what a line means, so it is read anew after a second when it is grave or said nothing.
"""

from __future__ import annotations

import functools
import re
from collections import OrderedDict
from collections.abc import Callable

from probing_cluster.core import records
from probing_cluster.core.sanitize import literals
from probing_cluster.evidence.kernel import grammar, reader
from probing_cluster.probe_agent.sources import kernel_log

SAME_S, SAME_GRAVE_S = 10.0, 1.0
"""How long, by the kernel's own time, a line means what it meant."""
_MAX_KNOWN = 512
_MAX_DULL = 8192
_MAX_TEMPLATE_CHARS = 1024
_NO_DIGITS = str.maketrans("", "", "0123456789")


@functools.cache
def _matters() -> Callable[[str], re.Match[str] | None]:
    """Whether a text holds a trigger word: of hundreds of words, made once."""
    return re.compile(literals.any_of(reader.TRIGGERS)).search


class KernelWords:
    """Reads one log in order; see evidence.kernel.reader for what it remembers."""

    def __init__(self) -> None:
        self._engine = reader.KernelReader()
        self._matters = _matters()
        self._dull: set[str] = set()
        self._known: OrderedDict[str, tuple[float, float, grammar.KernelFinding | None]] = OrderedDict()

    def __call__(self, text: str, ts_s: float) -> grammar.KernelFinding | None:
        """The finding of a message written at `ts_s` of the kernel's time; None when it says nothing."""
        known = self._known.get(text)
        if known is not None and known[0] <= ts_s < known[1]:
            return known[2]
        template = text.translate(_NO_DIGITS)
        if template in self._dull:
            return None
        if self._matters(text) is None:
            self._remember_dull(template)
            return None
        found = self._engine.read_message(text)
        minor = found is not None and found.severity is not records.Severity.HIGH
        self._known[text] = (ts_s, ts_s + (SAME_S if minor else SAME_GRAVE_S), found)
        self._known.move_to_end(text)
        if len(self._known) > _MAX_KNOWN:
            self._known.popitem(last=False)
        return found

    def _remember_dull(self, template: str) -> None:
        if len(template) > _MAX_TEMPLATE_CHARS:
            return
        if len(self._dull) >= _MAX_DULL:
            self._dull.clear()
        self._dull.add(template)


def classifier() -> kernel_log.Classify:
    """A reader for one log."""
    return KernelWords()
