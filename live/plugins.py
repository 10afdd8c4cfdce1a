"""Tables of other packages: entry points in the group `probing_cluster.tables`, loaded on the nodes alone.

The entry point's name is the table's (`site.licences`), or `schema.*` for a schema whose tables are resolved on demand; its
object is a `table.Table` or a `table.LazySchema`. A plugin's code runs in the process that reads the one table, so one that
raises, hangs or is killed costs that table only. A user's own packages are found in the directories of $PROBING_TABLES.
"""

from __future__ import annotations

import functools
import importlib
import logging
import os
import sys
from collections.abc import Iterator

from probing_cluster.live.table import LazySchema, Missing, Registered, Table

GROUP = "probing_cluster.tables"
PATH_VARIABLE = "PROBING_TABLES"
_LOG = logging.getLogger("probing.plugins")


def _directories() -> list[str]:
    return [d for d in os.environ.get(PATH_VARIABLE, "").split(":") if d.startswith("/")]


def _entry_points() -> Iterator[tuple[str, object]]:
    from importlib import metadata  # 20 ms that only a plugin's table pays

    for directory in _directories():
        if directory not in sys.path:
            sys.path.append(directory)
    # Package by package: one whose list is damaged, anybody's in this environment, would take all others with it.
    for package in metadata.distributions():
        try:
            points = package.entry_points.select(group=GROUP)
        except Exception:  # noqa: BLE001 - the text is foreign, and its parser raises whatever it meets
            _warn_once(str(getattr(package, "_path", "a package")))
            continue
        for point in points:
            yield point.name, point


def load() -> None:
    """Import what the search for plugins needs; runs none of their code."""
    importlib.import_module("importlib.metadata")


@functools.cache
def _warn_once(package: str) -> None:
    _LOG.warning("the entry points of %s cannot be read: its tables are left out", package)


def names() -> list[str]:
    """The names of all plugins installed here, `schema.table` and `schema.*`; runs none of their code."""
    return sorted({name for name, _ in _entry_points() if "." in name})


def find(full_name: str) -> Registered | None:
    """The plugin of that name, loaded; None for none. Raises Missing for one that is no table, and what loading raises."""
    schema = full_name.partition(".")[0]
    points = dict(_entry_points())
    point = points.get(full_name) or points.get(f"{schema}.*")
    if point is None:
        return None
    found: object = point.load()  # type: ignore[attr-defined]
    if not isinstance(found, Table | LazySchema):
        raise Missing(f"the plugin of {full_name} is a {type(found).__name__}, not a Table or LazySchema")
    return found
