"""One check on one node: read, judge, and (for genconf) learn. Runs in the child of a lane."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from probing_cluster.core import records
from probing_cluster.healthchecks import findings, lanes, nodeview, site


def look(
    plan: site.CheckPlan, spec: nodeview.NodeSpec, kept: Mapping[str, Any], facts: lanes.Facts
) -> dict[str, Any]:
    """Read and judge one check, here: what its step answers. Exceptions pass, except what means an outcome."""
    node = _view(plan, spec, facts, dict(kept))
    found, _ = _judged(plan, node)
    return {
        "finding": dataclasses.asdict(found),
        "memory": node.memory,
        "stuck": [[identity.pid, identity.started] for identity in node.stuck],
    }


def teach(plan: site.CheckPlan, spec: nodeview.NodeSpec, facts: lanes.Facts) -> dict[str, Any]:
    """What one check learns from this node, and whether the node is well enough to learn from.

    Absent as a judgement (nothing is configured yet) teaches; absent hardware does not.
    """
    found, reading = _judged(plan, _view(plan, spec, facts, {}))
    learn = plan.check.learn
    learnt = dict(learn(reading)) if learn is not None and reading is not None else {}
    return {"outcome": found.outcome, "message": found.message, "learnt": learnt}


def _view(
    plan: site.CheckPlan, spec: nodeview.NodeSpec, facts: lanes.Facts, memory: dict[str, Any]
) -> nodeview.NodeView:
    return nodeview.NodeView(spec, limits=plan.limits, memory=memory, facts=facts, deadline_s=plan.deadline_s)


def _judged(plan: site.CheckPlan, node: nodeview.NodeView) -> tuple[findings.Finding, Any]:
    """The finding, and the reading it rests on (None when there was none)."""
    try:
        reading = plan.check.read(node)
        return plan.check.judge(reading, plan.limits), reading
    except findings.Absent as exc:
        return findings.absent(exc.args[0]), None
    except nodeview.TimedOut as exc:
        return findings.unseen(exc.args[0], timed_out=True), None
    except findings.Undetermined as exc:
        return findings.unseen(exc.args[0]), None


def finding(row: Mapping[str, Any]) -> findings.Finding:
    """The finding of what `look` answered, after its way through JSON."""
    severity = row["severity"]
    return findings.Finding(
        **{
            **row,
            "outcome": records.Outcome(row["outcome"]),
            "severity": None if severity is None else records.Severity(severity),
        }
    )
