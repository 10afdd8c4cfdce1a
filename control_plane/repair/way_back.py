"""What brings a drained node back that Slurm also holds down, and who brought back one that is no longer drained."""

from __future__ import annotations

from collections.abc import Iterable

from probing_cluster.control_plane.policy import view
from probing_cluster.core import records, vocabulary
from probing_cluster.slurm_plugins.acts import node_events, unasked_boot

OVERWRITTEN = "Slurm put a reason of its own on our drain"
"""How the words begin about a drain that only a person may lift, or give back to us."""
NOT_TESTED = ": it is not tested"
"""How the words end about a repair that a setting stops."""
AWAY = unasked_boot.AWAY
"""States of a node that is not there, or is about to go."""
RESUMED_BY = "resumed by "
"""How a drain's row begins to say that a person lifted it with a command of ours, or over the web."""


def is_out(node: view.Node | None) -> bool:
    """Whether no test can begin on a node now: drained, down, or not listed."""
    return node is None or bool(node.states & (vocabulary.DRAINED_STATES | AWAY))


def is_back_from_boot(node: view.Node) -> bool:
    """Whether a node under repair answers again after a boot, and Slurm holds it DOWN for that alone."""
    return unasked_boot.holds_down(node.states, node.reason, node.reason_at, node.boot_at)


def held_down(node: view.Node) -> str:
    """Why a drained node of ours is not tested that Slurm shows in states of other kinds, and what to do about it."""
    shown = f"Slurm shows it {'+'.join(sorted(node.states))}"
    if is_back_from_boot(node):
        return (
            f"{shown} since it booted: scontrol update NodeName={node.name} State=RESUME, and its repair goes on;"
            " our reservation keeps jobs off until its tests pass"
        )
    if "NOT_RESPONDING" in node.states:
        return f"{shown}: start its slurmd, or boot it"
    return f"{shown}: boot it, then it is tested" if "DOWN" in node.states else shown


def overwritten(node: view.Node | None) -> str:
    """Why a drain of ours is ours no longer, and what a person may do: lift it, or give it back to its tests."""
    if node is None:
        return "Slurm does not list it"
    return f"{OVERWRITTEN} ({node.reason or 'none given'}): {given_back(node.name)}"


def given_back(name: str) -> str:
    """What a person may do about a node of ours over whose drain Slurm wrote a reason of its own."""
    return (
        f'scontrol update NodeName={name} State=DRAIN Reason="{vocabulary.OWN_PREFIX}mended" gives it to its tests,'
        " State=RESUME returns it untested"
    )


def waits_for_person(why: str) -> bool:
    """Whether a repair that waits with these words goes on only once a person has acted."""
    return why.startswith(OVERWRITTEN) or why.endswith(NOT_TESTED)


def not_ours(node: view.Node | None) -> str:
    """Why a node is out that we did not drain, and who brings it back how; empty for one in service."""
    if node is None:
        return "Slurm does not list it"
    lifted = f"scontrol update NodeName={node.name} State=RESUME"
    if node.ours:
        return ""
    if node.states & vocabulary.DRAINED_STATES and node_events.is_a_persons(node.reason):
        return f"its drain is another's ({node.reason}): ask them; {lifted} lifts it"
    if node.states & vocabulary.DRAINED_STATES:
        return f"Slurm drained it by itself ({node.reason or 'no reason given'}): {lifted} lifts it"
    if "DOWN" in node.states and node_events.is_a_persons(node.reason):
        return f"another set it DOWN ({node.reason}): ask them; {lifted} brings it back"
    if is_back_from_boot(node):
        return f"Slurm holds it DOWN since it booted unasked: {unasked_boot.way_out(node.name)}"
    if node.states & {"DOWN", "NOT_RESPONDING"}:
        return f"Slurm has it {node.gone}: {node_events.back_from_down(node.name)}"
    return f"Slurm shows it {'+'.join(sorted(node.states))}" if node.gone else ""


def resumed_by(drains: Iterable[records.Drain]) -> str:
    """`resumed by alice`, of drains that a person lifted with a command of ours; empty for none."""
    return next((d.why_state for d in drains if d.why_state.startswith(RESUMED_BY)), "")
