"""`probing-ctl nodes` for people: one line per node, what is broken, and why it is or is not drained."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from probing_cluster.control_plane.policy import view
from probing_cluster.control_plane.repair import way_back
from probing_cluster.control_plane.terminal import table
from probing_cluster.core import records, sanitize, vocabulary
from probing_cluster.core.catalogue import fault_names
from probing_cluster.reports import phrase
from probing_cluster.slurm_plugins.acts import node_events

HEADS = ("NODE", "SLURM", "AGENT", "FAULT", "DRAINED, OR WHY NOT")


def text(rows: Sequence[Mapping[str, Any]], width: int | None = None) -> str:
    """The table of `rows`, as nodes_commands makes them, uncut; within `width` columns where one is given.

    Below table.LEAST_WIDTH a node is a paragraph, since a table of so few columns would be cut everywhere.
    """
    cells = [
        (
            row["node"],
            row["slurm"],
            _agent(row),
            _faults(
                row["named"],
                silent(row) or (row["age_s"] or 0.0) > vocabulary.MISSED_BEATS * (row["beat_s"] or 10.0),
            ),
            _why(row["drain"], row["acknowledged"], row.get("refusing", ""), row.get("repair", "")),
        )
        for row in rows
    ]
    if width is not None and width < table.LEAST_WIDTH:
        return "\n".join(_paragraph(row, width) for row in cells)
    return table.render(HEADS, cells, width=width)


def _paragraph(row: Sequence[str], width: int) -> str:
    node, slurm, agent, *more = row
    words = [f"{node}: {slurm}, agent {agent}", *(sanitize.clean(text, 400) for text in more if text)]
    return textwrap.fill("; ".join(words), max(width, 20), subsequent_indent="  ")


def silent(row: Mapping[str, Any]) -> bool:
    """Whether the agent has missed two beats while it could be heard, or was never heard."""
    return row["silent_s"] is None or row["silent_s"] > vocabulary.MISSED_BEATS * (row["beat_s"] or 10.0)


def still(faults: Mapping[str, Any]) -> str:
    """What a person who lifts a drain is told where the agent reports a grave fault all the same; empty where it reports none."""
    grave = [fault.words for fault in fault_names.named(faults) if fault.severity == "high"]
    if not grave:
        return ""
    return f", although its agent still reports {'; '.join(grave)} (`probing-ctl set-healthy` looks first; `drain` takes it back)"


def decided_at(drain: records.Drain) -> datetime:
    """When the last word about a drain fell: what a person lifted was decided then, not when it began."""
    return drain.ended_at or drain.at


def tested(incidents: Iterable[records.RepairIncident]) -> dict[str, str]:
    """Why the nodes of our tests are out of service, which Slurm shows as a reservation alone."""
    reserved = [one for one in incidents if one.reservation]
    own = {one.node: f"under test by us: {one.reason.removeprefix(vocabulary.OWN_PREFIX).strip()}" for one in reserved}  # fmt: skip
    return {
        node: f"partner in the test of {one.node}" for one in reserved for node in one.reference_nodes
    } | own


def repair_words(incident: records.RepairIncident | None) -> str:
    """How far the repair of a node is that stays out for it; empty for none, and while a test of ours is why it is out."""
    if incident is None:
        return ""
    if incident.held_by:
        return f"repair held by {incident.held_by}"
    if incident.state in {"ticket", "ticketing"}:
        return "repair gave up, ticket: a person is needed"
    return "" if incident.reservation else f"repair {incident.state}"


def refusing(node: view.Node | None, permission: records.Drain | None) -> str:
    """That the Prolog of a node in service may refuse jobs, and for what; empty for a node that is out, or without a permission."""
    if permission is None or (node is not None and (node.gone or node.states & vocabulary.DRAINED_STATES)):
        return ""
    return f"its Prolog may refuse jobs for {_reason(permission)}"


def under_test(node: view.Node | None, why: str | None) -> dict[str, str]:
    """The row's column for a node that our test holds without a drain; nothing for any other."""
    drained_too = node is not None and node.states & vocabulary.DRAINED_STATES
    return {"drain": why} if why and not drained_too else {}


def drained(
    node: view.Node | None,
    faults: Sequence[fault_names.NamedFault],
    drain: records.Drain | None,
    latest: records.Drain | None,
) -> str:
    """Why the node is drained, or why not although it is faulty; empty when there is nothing to explain.

    `drain` is our open drain, `latest` our last decision about the node, carried out or not.
    """
    if node is not None and node.states & vocabulary.DRAINED_STATES:
        return _by_whom(node, drain)
    if node is not None and (gone := node.gone):
        return _why_gone(node, gone, faults)
    if drain is not None and drain.state == "done":
        return f"{_reason(drain)}, by {_owner(drain)}{'' if node is None else '; Slurm shows it lifted'}"
    return _why_not(faults, latest, in_service=node is not None)


def _why_gone(node: view.Node, gone: str, faults: Sequence[fault_names.NamedFault]) -> str:
    """Why a node that is out without being drained is not drained; empty where neither Slurm nor its agent says a word."""
    if not node.reason and not any(fault.severity != "info" for fault in faults):
        return ""
    if way_back.is_back_from_boot(node):
        return f"no: {way_back.not_ours(node)}"
    then = "; drained once that is over, if the fault stands" if faults and node.in_maintenance else ""
    return f"no: {gone}, {_not_by_us(node)}{then}"


def _by_whom(node: view.Node, drain: records.Drain | None) -> str:
    if drain is not None and (node.ours or node.prolog_failed):
        return f"{_reason(drain)}, by {_owner(drain)} {phrase.clock_z(drain.at, with_day=True)[:11]}Z"
    if node.ours:
        return f"{node.reason.removeprefix(vocabulary.OWN_PREFIX).strip()}, by us"
    return _not_by_us(node)


def _not_by_us(node: view.Node) -> str:
    if node_events.is_mishap(node.reason):
        return f"by Slurm itself: {node.reason}"
    return f"not by us: {node.reason_or_reservation}"


def _why_not(
    faults: Sequence[fault_names.NamedFault], latest: records.Drain | None, *, in_service: bool
) -> str:
    """`in_service`: Slurm says so now; what a decision says of states is then of an earlier time."""
    serious = [fault for fault in faults if fault.severity != "info"]
    if not serious:
        return ""
    began = min((fault.since for fault in serious if fault.since), default=None)
    if latest is None or (began is not None and decided_at(latest) < began):
        return "no: not decided yet"
    if latest.state == vocabulary.UNDER_WAY:
        return f"being drained{f': {latest.why_state}' if latest.why_state else ''}"
    if latest.state == "simulated":
        return "no: observe-only, it would have been"
    why = latest.why_state or latest.state
    if in_service and view.in_maintenance_then(latest):
        return "no: it was in maintenance; decided anew within a minute"
    if in_service and view.was_out(latest):
        return f"no: brought back by another; it was {why}"
    return f"no: {'denied: ' if latest.state == 'denied' else ''}{why}"


def _reason(drain: records.Drain) -> str:
    reason = drain.reason.removeprefix(vocabulary.OWN_PREFIX).strip()
    return f"{reason}; {drain.why_state}" if drain.why_state else reason


def _owner(drain: records.Drain) -> str:
    return "us" if drain.owner == "probing" else drain.owner


def _agent(row: Mapping[str, Any]) -> str:
    if row["age_s"] is None:
        return "never heard"
    return f"SILENT {phrase.span(row['age_s'])}" if silent(row) else f"{row['age_s']:.0f} s ago"


def _faults(named: Sequence[fault_names.NamedFault], unheard: bool) -> str:
    if not named:
        return "not known" if unheard else "none"
    more = f" and {len(named) - 1} more" if len(named) > 1 else ""
    return named[0].words + more


def _why(drain: str, acknowledged: str, *more: str) -> str:
    return "; ".join(filter(None, (f"known to {acknowledged}" if acknowledged else "", drain, *more)))
