from __future__ import annotations

import re
from pathlib import Path

from command_tree import commands
from prometheus_client import CollectorRegistry

from probing_cluster.control_plane import context, journal
from probing_cluster.control_plane.cli import main
from probing_cluster.control_plane.service import metrics, tasks

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_every_command_and_option_is_documented() -> None:
    """No command of probing-ctl without its row, no option without its word on the page."""
    page = (DOCS / "commands.md").read_text(encoding="utf-8")
    others = "".join(p.read_text(encoding="utf-8") for p in DOCS.glob("*.md"))
    for name, parser in commands(main.parser()):
        assert re.search(rf"`(?:[^`]*, )?{name}\b", page) or f"`{name}" in others, name
        options = {o for a in parser._actions for o in a.option_strings if o.startswith("--")}
        for option in options - {"--help", "--config", "--json"}:
            assert option in others, f"{name} {option}"


def test_every_task_is_documented() -> None:
    """No task of the service without its row."""
    page = (DOCS / "commands.md").read_text(encoding="utf-8")
    assert [t.name for t in tasks.REGISTER if f"| `{t.name}` |" not in page] == []


def test_every_metric_is_documented(service: context.Context) -> None:
    """What the endpoint exports stands on the page by its exported name."""
    page = (DOCS / "commands.md").read_text(encoding="utf-8")
    journal.one_pass(service.journal, "actions", lambda: "", service.clock)
    registry = CollectorRegistry()
    registry.register(metrics.ServiceCollector(service))
    names = {f"{m.name}{'_total' if m.type == 'counter' else ''}" for m in registry.collect()}
    assert len(names) > 10
    assert [n for n in sorted(names) if f"`{n}" not in page] == []
