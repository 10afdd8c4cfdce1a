"""A site file learnt from a healthy node: its GPUs, ports, mounts, memory, versions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from probing_cluster.core import records
from probing_cluster.healthchecks import manual, nodeview, runner, site


@dataclass(frozen=True, kw_only=True)
class GeneratedSite:
    """The text of a site file, and what was not well on the node it was learnt from."""

    text: str
    problems: tuple[str, ...]


def make(spec: nodeview.NodeSpec, present: site.CheckSite, *, match: str | None = None) -> GeneratedSite:
    """Run every check that can learn, once, and write down what it saw.

    A check that fails or errs here teaches nothing: its section is left out and named in `problems`.
    """
    engine = runner.CheckRunner(spec, site.SiteFile(None))
    plans = {n: p for n, p in present.plan(spec.node).items() if p.check.learn is not None}
    answers = engine.learn(plans)
    sections: list[str] = []
    problems: list[str] = []
    for name, plan in plans.items():
        answer = answers[name]
        if answer.value is None or answer.value["outcome"] in (records.Outcome.FAIL, records.Outcome.ERROR):
            why = answer.error or (answer.value or {}).get("message", "")
            problems.append(f"{name} is not well on this node and was left out: {why}")
        elif learnt := {
            k: v for k, v in answer.value["learnt"].items() if v not in (None, plan.check.defaults[k])
        }:
            sections.append(_section(plan, learnt, "nodes.checks" if match else "checks"))
    head = [
        f"# Site file for probing-check, learnt from {spec.node} on {spec.clock.now():%Y-%m-%d} by `probing-check genconf`.",
        "# Read it before you use it: it says that every node looks like this one.",
        "",
        *([f"[[nodes]]\nmatch = {json.dumps(match)}\n"] if match else []),
    ]
    return GeneratedSite(text="\n".join(head) + "\n" + "\n\n".join(sections) + "\n", problems=tuple(problems))


def _section(plan: site.CheckPlan, learnt: Mapping[str, Any], table: str) -> str:
    meanings = {t.key: t.meaning for t in plan.check.thresholds}
    lines = [f"[{table}.{plan.check.name}]  # {plan.check.proves}"]
    lines += [f"{key} = {toml(value)}  # {meanings[key]}" for key, value in learnt.items()]
    return "\n".join(lines)


def toml(value: Any) -> str:
    """A threshold's value as TOML."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        return "[" + ", ".join(json.dumps(v, ensure_ascii=False) for v in value) + "]"
    return manual.shown(value) if isinstance(value, bool) else repr(value)
