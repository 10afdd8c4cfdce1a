"""One question to the processes of a running job, for its owner, in a process of its own with bounds on what it may take."""

from __future__ import annotations

import math
import resource
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from probing_cluster.control_plane import child_process as processes
from probing_cluster.core import errors, records, settings

if TYPE_CHECKING:
    from probing_cluster.live.ways import agents, choosing, streams

LEFT_S = 10.0
"""Part of LONGEST_S that is kept for starting, and for the statement itself once the rows are there."""
MEMORY_BYTES, CPU_S, LONGEST_S = 3 << 30, 20, 40.0


@records.record
class LiveAnswer:
    """What came of a question."""

    heads: tuple[str, ...] = records.doc("column names")
    rows: tuple[tuple[Any, ...], ...] = records.doc("the rows, in order")
    more: bool = records.doc("there were more")
    missing: tuple[str, ...] = records.doc("who did not answer and why, a line each", default=())


def ask(config: settings.Settings, job: str, statement: str, most: int) -> LiveAnswer:
    """The rows; raises UsageError for a statement that is not understood or takes too much, NotFound where the job cannot be reached from here."""
    try:
        found: LiveAnswer = processes.run(__name__, config, job, statement, most, timeout_s=LONGEST_S)
    except processes.PassEnded as exc:
        raise errors.UsageError(
            f"the question was ended: here it may take {LONGEST_S:g} s, {CPU_S} s of a processor and {MEMORY_BYTES >> 30} GiB;"
            f' ask for less (WHERE, LIMIT), or as yourself on a login node: probing-ctl sql {job} "…"'
        ) from exc
    return found


def in_child(config: settings.Settings, job: str, statement: str, most: int) -> LiveAnswer:
    """The child's side: the same, within its bounds."""
    bound()
    from probing_cluster.live.session import session, unpacking

    nodes, patience_s = opened(config, job)
    try:
        asking = session.Session(nodes, timeout_s=min(patience_s, LONGEST_S - LEFT_S))
        result = asking.sql(statement)
    finally:
        nodes.close()
    table = unpacking.for_python(result.rows.slice(0, most))
    return LiveAnswer(
        heads=tuple(table.column_names),
        rows=tuple(zip(*(map(_value, column.to_pylist()) for column in table.columns), strict=True)),
        more=result.rows.num_rows > most,
        missing=lines(result.missing),
    )


def _value(found: Any) -> Any:
    """A value that JSON can carry and a person can see: NaN and infinity, which JSON lacks, are text."""
    if isinstance(found, datetime):
        return found
    if isinstance(found, float) and not math.isfinite(found):
        return str(found)
    from probing_cluster.live.session import output

    return output.value(found)


def bound() -> None:
    """Holds this process to the processor time and memory that a question may take."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


def lines(missing: Iterable[streams.Missing]) -> tuple[str, ...]:
    """The nodes and ranks that did not answer and why, a line each, the first fifty."""
    words = [
        f"{m.node or 'a node'}{'' if m.rank is None else f', rank {m.rank}'}{f', {m.table}' if m.table else ''}: {m.reason}"
        for m in missing
    ]
    return tuple(dict.fromkeys(words))[:50]


def opened(config: settings.Settings, job: str) -> tuple[choosing.Nodes | agents.AgentNodes, float]:
    """The job's nodes, and for how long one question may wait for them.

    Its node where the server runs on it, else its nodes through their agents, who evaluate no expression; raises NotFound.

    That the job's owner asks was checked before: to the database it is the web server that asks.
    """
    from probing_cluster.control_plane.gangs import mailbox
    from probing_cluster.live.ways import choosing

    try:
        return choosing.open_nodes(config, job, "local"), config.live.timeout_s
    except (errors.NotFound, errors.NotPermitted):
        pass  # the job runs elsewhere
    try:
        by_agents = choosing.open_nodes(config, job, "agents", lambda: mailbox.JobMailbox(config, job))
    except (errors.NotFound, errors.NotPermitted, errors.DatabaseUnavailable) as exc:
        raise errors.NotFound(
            f'this server cannot reach the processes of job {job}; ask as yourself on a login node: probing-ctl sql {job} "…" ({exc})'
        ) from exc
    return by_agents, config.live.agents_timeout_s
