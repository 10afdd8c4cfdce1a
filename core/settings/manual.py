"""The manual of every setting, generated from the settings themselves: docs/configuration.md."""

from __future__ import annotations

import sys
import typing
from dataclasses import fields
from typing import Any

from probing_cluster.core import settings

TABLES: dict[str, type[Any]] = {"notices.routes": settings.NoticeRoute}
"""Tables of which a section may have several."""


def describe() -> list[tuple[str, str, Any, str]]:
    """(section, key, default, meaning) of every setting, for the manual and its test."""
    rows: list[tuple[str, str, Any, str]] = []
    defaults = settings.Settings()
    for section in fields(settings.Settings):
        values = getattr(defaults, section.name)
        rows += [(section.name, f.name, getattr(values, f.name), f.metadata["doc"]) for f in fields(values)]
    for name, cls in TABLES.items():
        rows += [(name, f.name, getattr(cls(), f.name), f.metadata["doc"]) for f in fields(cls)]
    return rows


def manual_row(section: str, key: str) -> str:
    """The row of docs/configuration.md for one setting, as a Markdown table row."""
    default, meaning = next((d, m) for s, k, d, m in describe() if (s, k) == (section, key))
    shown = '""' if default == "" else str(default).lower() if isinstance(default, bool) else str(default)
    if isinstance(default, tuple):
        shown = "[" + ", ".join(f'"{v}"' for v in default) + "]"
    return f"| `{key}` | `{shown}` | {meaning} |"


def manual() -> str:
    """docs/configuration.md, whole; `python -m probing_cluster.core.settings.manual` prints it."""
    parts = [
        "# Configuration",
        "",
        "One TOML file: `$PROBING_CONFIG`, else `/etc/probing-cluster/probing.toml`. Unknown sections and keys are",
        "errors that list the valid ones. This page is generated: `python -m probing_cluster.core.settings.manual`.",
    ]
    hints = typing.get_type_hints(settings.Settings)
    for section in fields(settings.Settings):
        title = (hints[section.name].__doc__ or "").strip()
        rows = [manual_row(s, k) for s, k, _, _ in describe() if s == section.name]
        parts += ["", f"## {title}", "", "| key | default | meaning |", "|---|---|---|", *rows]
    for name, cls in TABLES.items():
        rows = [manual_row(s, k) for s, k, _, _ in describe() if s == name]
        title = (cls.__doc__ or "").strip()
        parts += ["", f"## {title}", "", "| key | default | meaning |", "|---|---|---|", *rows]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    sys.stdout.write(manual())
