"""For whom a question waits: a node that did not answer an earlier one costs its deadline once."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet


class Patience:
    """The nodes that did not answer an earlier question, and how long they were waited for."""

    def __init__(self) -> None:
        self._waited_s: dict[str, float] = {}

    def __bool__(self) -> bool:
        """Some node has not answered."""
        return bool(self._waited_s)

    def lost(self, expected: Iterable[str], back: AbstractSet[str], timeout_s: float) -> set[str]:
        """Of the nodes asked, those not to be waited for: they were for so long, and are not `back`; none where no other is left."""
        silent = {n for n, waited_s in self._waited_s.items() if n not in back and waited_s >= timeout_s}
        return silent if set(expected) - silent else set()

    def remember(self, silent: Iterable[str], lost: AbstractSet[str], timeout_s: float) -> None:
        """After a question: who has not been heard, and who of them was not waited for."""
        self._waited_s = {
            n: self._waited_s[n] if n in lost else max(timeout_s, self._waited_s.get(n, 0.0)) for n in silent
        }

    def waited_s(self, node: str) -> float:
        """How long the node was waited for when it was."""
        return self._waited_s[node]


NOT_AGAIN = "; not waited for again before it answers"
"""The end of the reason of a node that was not waited for."""
