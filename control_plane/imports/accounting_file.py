"""An accounting dump, `sacct -P` text or `sacct --json`, as attempts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from probing_cluster.control_plane.imports import packed, rejected_input
from probing_cluster.core import errors
from probing_cluster.slurm_plugins.accounting import attempt_rows, sacct_json, sacct_layout, sacct_text


def read(
    path: Path,
    *,
    timezone: str | None,
    cluster: str | None,
    unnamed: str = "cluster",
    delimiter: str | None = None,
    fields: Sequence[str] | None = None,
) -> tuple[attempt_rows.ParseResult, list[rejected_input.RejectedInput]]:
    """The attempts of `path` and the rows that became none; raises MalformedInput, OSError."""
    with packed.opened(path) as stream:
        data = packed.whole(stream, path)
    try:
        if not fields and _is_json(data):
            found = sacct_json.parse_sacct_json(data, cluster=cluster, unnamed=unnamed)
        else:
            found = sacct_text.parse_sacct_text(
                data, timezone=timezone, cluster=cluster, unnamed=unnamed, delimiter=delimiter, fields=fields
            )
    except errors.MalformedInput as exc:
        raise errors.MalformedInput(f"{path}: {exc.args[0]}") from exc
    bad = [
        rejected_input.RejectedInput(file=str(path), line_no=r.line_no, text=r.text, why=r.why)
        for r in found.rejected
    ]
    return found, bad


_OPENS = re.compile(rb"\s*(?:\{|\[\s*(?:[\[{\]\"\d-]|$))")
"""How a JSON document begins; a shell's prompt has a name behind its bracket."""


def _is_json(data: bytes) -> bool:
    """Whether what tells comes first: a line that opens a JSON document, or sacct's header."""
    for line in data.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        if _OPENS.match(line):
            return True
        if sacct_layout.header(line.decode("utf-8", "replace").rstrip("\r")) is not None:
            return False
    return False
