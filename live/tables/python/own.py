"""`python.<table>` and ``python.`expression` ``: the program's own tables, and values inside a live job's processes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from probing_cluster.core import errors
from probing_cluster.live import conditions
from probing_cluster.live.node import rings
from probing_cluster.live.node import view as node_view
from probing_cluster.live.table import PLACE, Columns, Kind, LazySchema, Missing, Scan
from probing_cluster.probe_agent.ranks import ring

_KINDS: dict[str, Kind] = {"int": "int", "float": "float", "bool": "bool", "text": "text"}
_PLACE = tuple(c.name for c in PLACE)
LOOK_S = 2.2
"""What looking at a process that keeps silent may take, of the question's time."""


def resolve(view: node_view.NodeView, name: str, scan: Scan) -> Columns | None:
    """A name is a table of the program's; anything that is no name is an expression. None where no process has the table."""
    if name == "*":
        found = sorted({table.name for table, _ in rings.of_job(view)}.difference(ring.TRACED))
        return Columns(names=("name",), kinds=("text",), values=(found,))
    return _table(view, name, scan) if name.isidentifier() else _values(view, name, scan)


def _table(view: node_view.NodeView, name: str, scan: Scan) -> Columns | None:
    tables = list(rings.of_job(view, {name}))
    if not tables:
        raise Missing(f"no process has written a table {name}; the value of a variable is python.`({name})`")
    kinds: dict[str, Kind] = {}
    for found, _ in tables:
        for column in found.columns:
            kind, own = _KINDS[column.type], _own(column.name)
            kinds[own] = kind if kinds.get(own, kind) == kind else "text"
    names = (*_PLACE, *kinds)
    values: dict[str, list[Any]] = {n: [] for n in names}
    for found, place in tables if not scan.describe else ():
        n_rows = len(found.times_ns)
        own_values = {_own(c.name): c.values for c in found.columns}
        for column_name in kinds:
            values[column_name] += own_values.get(column_name, [None] * n_rows)
        for place_name, value in place.items():
            values[place_name] += [value] * n_rows
        values["at"] += found.times_ns
    return Columns(
        names=names,
        kinds=(*(c.kind for c in PLACE), *kinds.values()),
        values=tuple(values[n] for n in names),
        whole=not scan.describe,
    )


def _processes(view: node_view.NodeView) -> set[tuple[int | None, int, int, int | None]]:
    """(rank, number on the node, number in its own PID namespace, that namespace) of every living process.

    A program without torch has no page: there its tables tell of it.
    """
    if view.ranks:
        return {(p.rank, p.pid, p.page.pid_inside, p.page.pid_namespace) for p in view.living}
    found = set()
    for table, _ in rings.of_job(view):
        pid = view.pid_here(table.pid, table.pid_namespace)
        facts = view.facts_of(pid, table.start_ticks)
        if facts is not None and facts.state != "Z":
            found.add((table.rank, pid, table.pid, table.pid_namespace))
    return found


def _own(name: str) -> str:
    """A column of the program's that is called like one of ours gets an underscore."""
    return f"{name}_" if name in _PLACE else name


def _values(view: node_view.NodeView, expression: str, scan: Scan) -> Columns:
    """A row per value that the living ranks answer; what the expression raised is in the column `error`."""
    if not view.may_evaluate:
        raise Missing("only the job's owner may evaluate; tables can be read by operators, too")
    # Loads more than all tables together: only who evaluates pays for it.
    from probing_cluster.probe_agent.ranks import evaluate

    targets = [
        evaluate.EvaluatedProcess(rank=rank, pid=pid, pid_inside=inside, pid_namespace=namespace)
        for rank, pid, inside, namespace in _processes(view)
        # Whoever names ranks in the first question freezes no other.
        if conditions.may_hold(scan.condition, {"rank": [rank], "pid": [pid], "node": [view.node]})
    ]
    try:
        answers = evaluate.evaluate(
            view.directory,
            view.uid,
            expression,
            targets,
            deadline_s=round(max(0.5, view.left_s() - LOOK_S), 1),
            may_make_live=scan.make_live,
        )
    except errors.UsageError as exc:
        raise Missing(str(exc)) from exc
    rows: list[dict[str, Any]] = []
    for answer in answers:
        place = {"node": view.node, "rank": answer.rank, "pid": answer.pid, "at": answer.at_ns}
        if answer.missing is not None:
            view.miss(answer.missing, rank=answer.rank)
        if answer.cut:
            view.miss(f"{answer.cut} rows of its value were too many", rank=answer.rank)
        if answer.error is not None:
            rows.append({**place, "error": answer.error})
        named = [_own(c) for c in answer.columns]
        rows += [{**place, **dict(zip(named, row, strict=True))} for row in answer.rows]
    found = [n for row in rows for n in row if n not in (*_PLACE, "error")] or ["value"]
    names = list(dict.fromkeys([*_PLACE, *found, "error"]))
    values = [[row.get(n) for row in rows] for n in names]
    kinds = {c.name: c.kind for c in PLACE}
    return Columns(
        names=tuple(names),
        kinds=tuple(
            kinds.get(n) or ("text" if n == "error" else kind_of(v))
            for n, v in zip(names, values, strict=True)
        ),
        values=tuple(values),
    )


def kind_of(values: Iterable[Any]) -> Kind:
    """The kind that holds all of these values."""
    types = {type(v) for v in values if v is not None}
    if types <= {bool} and types:
        return "bool"
    if types <= {bool, int}:
        return "int"
    return "float" if types <= {bool, int, float} else "text"


SCHEMA = LazySchema(
    schema="python",
    meaning=(
        "`python.<name>`: a table of the job's own program, with its columns (`probing_tables`). "
        "`` python.`expression` ``: the value of an expression in every living rank of a job that was started with "
        "`--probing=live`, for its owner alone; the value is in the column `value`, what it raised in `error`."
    ),
    resolve=resolve,
    source="the rings in the job's directory; the process itself",
)
