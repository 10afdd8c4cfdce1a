"""Nodes that Slurm itself drained or set down, until they are back: we touch no such state, and Slurm notifies nobody."""

from __future__ import annotations

from collections.abc import Iterator

from probing_cluster.control_plane.notices import fact, picture
from probing_cluster.control_plane.repair import way_back
from probing_cluster.core import records
from probing_cluster.db.store import actions

_OUT = ("DOWN", "FAIL", "FAILING")


def find(notice_picture: picture.NoticePicture) -> Iterator[fact.Fact]:
    """A fact per node, with what its agent sees there: after a machine stood still it is often nothing."""
    ours = {
        d.node: d for d in notice_picture.drains if (d.action, d.state, d.ended_at) == ("drain", "done", None)
    }
    for drain in notice_picture.by_slurm:
        own = ours.get(drain.node)
        # Of a drain that we took over from Slurm its words are kept for some seconds; only later ones were written over ours.
        if own is None or (drain.since_at is not None and drain.since_at > own.at):
            found, todo = _agent(notice_picture, drain.node)
            yield fact.Fact(
                fact_id=drain.node,
                cause=drain.reason[:40],
                at=drain.since_at or notice_picture.now,
                severity=records.Severity.LOW,
                line=f"{drain.node} {_did(drain)} by Slurm itself: {drain.reason}; its agent {found}",
                todo=way_back.given_back(drain.node) if own else todo,
                nodes=(drain.node,),
                partitions=notice_picture.partitions_of([drain.node]),
                stands=True,
            )


def _did(drain: actions.SlurmDrain) -> str:
    states = drain.states.split("+")
    return "drained" if "DRAIN" in states else f"set {next((s for s in _OUT if s in states), 'DOWN')}"


def _agent(notice_picture: picture.NoticePicture, node: str) -> tuple[str, str]:
    """What the node's agent sees, and what to do about a node where it sees nothing."""
    faults = notice_picture.faults_by_node.get(node)
    if faults is None or node in (notice_picture.silent_s or {}):
        return "is not heard", ""
    if faults:
        return f"sees {', '.join(faults[:3])}", ""
    return "sees no fault", f"scontrol update NodeName={node} State=RESUME once you are content"


KIND = fact.Kind(
    name="slurm",
    meaning="nodes that Slurm drained or set down by itself (`Kill task failed`, `Node unexpectedly rebooted` …), until they are back",
    title="Out of service by Slurm",
    find=find,
    command="probing-ctl nodes --faulty",
)
