"""What a job's program writes into tables of its own, drawn in a process of its own, as the questions of the console are answered."""

from __future__ import annotations

import os
import pwd
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from probing_cluster.control_plane import child_process, context
from probing_cluster.control_plane.gangs import gang_board
from probing_cluster.core import settings
from probing_cluster.reports.charts import kept_figures
from probing_cluster.web import documents
from probing_cluster.web.live import live_question

KEPT_S = 30.0
"""How long the drawings of a job are good: its nodes are asked no oftener, however many pages of it are open."""
EVERY_S = 60
"""Between two looks of a page that stays open."""
MOST_JOBS = 64
MOST_LISTED = 100


class Figures:
    """The drawings of a moment ago, by attempt."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[Any, ...], tuple[float, documents.OwnTables]] = OrderedDict()
        self._lock = threading.Lock()

    def fresh(self, service: context.Context, gang: gang_board.BoardGang) -> documents.OwnTables | None:
        """One job's figures; None where they are old, or none were made."""
        with self._lock:
            at_s, found = self._known.get(_key(gang), (float("-inf"), None))
        return found if service.clock.monotonic_s() - at_s < KEPT_S else None

    def look(self, service: context.Context, gang: gang_board.BoardGang) -> documents.OwnTables:
        """New ones; raises NotFound where the job cannot be reached, and what the nodes' ways raise."""
        found: documents.OwnTables = child_process.run(
            __name__, service.config, gang.ref, gang.job_id, gang.is_over, timeout_s=live_question.LONGEST_S
        )
        found.at = service.clock.now()
        with self._lock:
            self._known[_key(gang)] = (service.clock.monotonic_s(), found)
            self._known.move_to_end(_key(gang))
            while len(self._known) > MOST_JOBS:
                self._known.popitem(last=False)
        return found


def _key(gang: gang_board.BoardGang) -> tuple[Any, ...]:
    return gang.job_id, gang.attempt and gang.attempt.submit_at, gang.is_over


FIGURES = Figures()


def reads_kept_of(config: settings.Settings, user: str) -> bool:
    """Whether this server runs as that user: what was kept of a job are its owner's files, which nobody else reads for them."""
    try:
        return bool(config.kept.directory) and pwd.getpwuid(os.geteuid()).pw_name == user
    except KeyError:
        return False


def in_child(config: settings.Settings, job: str, job_id: int, over: bool) -> documents.OwnTables:
    """The child's side: asked, or read, and drawn, within its bounds."""
    live_question.bound()
    if over:
        return _document((), kept_figures.of_job(config, config.cluster.name, job_id), ())
    from probing_cluster.live.session import own_tables, unpacking

    nodes, patience_s = live_question.opened(config, job)
    try:
        whole_s = min(1.5 * patience_s, live_question.LONGEST_S - live_question.LEFT_S)
        tables, missing = own_tables.read(nodes, whole_s)
    finally:
        nodes.close()
    rows = tables.pop(own_tables.LIST, None)
    listed = _listed(unpacking.for_python(rows).to_pylist() if rows is not None else ())
    return _document(listed, kept_figures.drawn(tables), live_question.lines(missing))


def _document(
    tables: Sequence[documents.OwnTable], figures: Sequence[kept_figures.KeptFigure], missing: Sequence[str]
) -> documents.OwnTables:
    drawn = [documents.OwnFigure(title=f.title, svg=f.drawing) for f in figures]
    return documents.OwnTables(tables=list(tables), figures=drawn, missing=list(missing))


def _listed(rows: Sequence[dict[str, Any]]) -> list[documents.OwnTable]:
    """The program's tables, those of one name together."""
    found: dict[str, documents.OwnTable] = {}
    for row in rows:
        one = found.setdefault(row["name"], documents.OwnTable(name=row["name"], columns=row["columns"]))
        one.n_processes += 1
        one.n_rows += row["rows"]
        one.n_dropped += row["dropped"]
    return [found[name] for name in sorted(found)][:MOST_LISTED]
