"""The endpoint and the alerting rules, before the real Prometheus: it scrapes them, finds no fault, and rings when it should."""

from __future__ import annotations

import json
import re
import time
import urllib.parse
from pathlib import Path
from typing import Any

import fakes
import prometheus
import pytest
import test_dashboards
import yaml

from probing_cluster.control_plane import context, journal
from probing_cluster.control_plane.cli import main
from probing_cluster.control_plane.cli.site import dashboards_commands
from probing_cluster.control_plane.service import metrics
from probing_cluster.core import settings
from probing_cluster.sandbox.machine import ports

RULES = dashboards_commands.RULES
MANUAL = Path(__file__).resolve().parents[3] / "docs" / "operate.md"


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return list(group["rules"])


def test_the_manual_and_the_rules_say_the_same() -> None:
    """Each rule is a row of the manual with the same words, waits as long, and leads to the chapter that says what to do."""
    page = MANUAL.read_text(encoding="utf-8")
    table = page.split("## What to alert on")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(.*?)`(?: for (\d+) (min|h))? \| .*? \| (.*) \|$", table, re.MULTILINE)
    expressions = [(r["expr"], r.get("for", "")) for r in rules()]
    assert expressions == [(expr, f"{number}{unit[:1]}" if number else "") for expr, number, unit, _ in rows]
    for rule, (*_, look) in zip(rules(), rows, strict=True):
        anchor = rule["annotations"]["runbook"].removeprefix("docs/operate.md")
        assert f"]({anchor})" in look, rule["alert"]
        assert re.search(r"\w", rule["annotations"]["summary"])


def test_the_command_prints_them(capsys: pytest.CaptureFixture[str]) -> None:
    """`probing-ctl alerts` is the file Prometheus is given."""
    assert main.main(["alerts"]) == 0
    assert capsys.readouterr().out == RULES.read_text(encoding="utf-8")


def test_promtool_finds_no_fault_in_the_rules() -> None:
    """Prometheus's own checker loads every rule."""
    assert f"{len(rules())} rules found" in prometheus.promtool("check", "rules", RULES)


CASES = """
rule_files: [{rules}]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - {{series: probing_database_up, values: "1x10 0x20"}}
      - {{series: 'probing_task_interval_seconds{{task="actions"}}', values: "1x120"}}
      - {{series: 'probing_task_interval_seconds{{task="lemon"}}', values: "86400x120"}}
      - {{series: 'probing_task_last_pass_timestamp_seconds{{task="actions"}}', values: "0+60x10 600x110"}}
      - {{series: 'probing_task_last_pass_timestamp_seconds{{task="lemon"}}', values: "0x120"}}
      - {{series: 'probing_task_passes_total{{task="mail",outcome="failed"}}', values: "0x30 1x90"}}
      - {{series: 'probing_agent_heartbeat_age_seconds{{node="n1"}}', values: "5x30 61x90"}}
      - {{series: 'probing_agent_heartbeat_age_seconds{{node="n2"}}', values: "59x120"}}
      - {{series: 'probing_agent_dropped_total{{node="n1"}}', values: "7x40 9x80"}}
      - {{series: 'probing_agent_hung_children{{node="n1"}}', values: "0x10 1x110"}}
      - {{series: 'probing_certificate_end_timestamp_seconds{{file="ca.crt"}}', values: "99999999x120"}}
      - {{series: 'probing_certificate_end_timestamp_seconds{{file="a.crt"}}', values: "2593800x120"}}
      - {{series: probing_agent_certificates_ending, values: "0x10 2x110"}}
      - {{series: 'probing_decisions_24h{{action="drain",state="denied"}}', values: "0x60 1x60"}}
      - {{series: 'probing_decisions_24h{{action="drain",state="failed"}}', values: "3x60 2x60"}}
      - {{series: 'probing_decisions_24h{{action="requeue",state="failed"}}', values: "0x60 1x60"}}
    alert_rule_test:
{expected}
"""
RINGING = {
    5: (),
    16: (("ProbingDatabaseAway", {"severity": "critical"}),),
    22: (("ProbingTaskStandsStill", {"severity": "critical", "task": "actions"}),),
    32: (
        ("ProbingTaskFailed", {"severity": "warning", "task": "mail", "outcome": "failed"}),
        ("ProbingAgentSilent", {"severity": "warning", "node": "n1"}),
        ("ProbingAgentHungChildren", {"severity": "warning", "node": "n1"}),
        ("ProbingCertificateEnds", {"severity": "warning", "file": "a.crt"}),
    ),
    42: (("ProbingAgentDroppedEvents", {"severity": "warning", "node": "n1"}),),
    62: (
        ("ProbingDrainDenied", {"severity": "warning", "action": "drain", "state": "denied"}),
        ("ProbingActionFailed", {"severity": "warning", "action": "requeue", "state": "failed"}),
    ),
    75: (
        ("ProbingAgentCertificatesEnd", {"severity": "warning"}),
        ("ProbingServiceAway", {"severity": "critical"}),
    ),
}
"""Minute to what rings then, with its labels; at 5 nothing does."""


def test_they_ring_when_they_should_and_only_then(tmp_path: Path) -> None:
    """promtool plays a bad hour: each rule rings for its own fault; the daily task, a late decision that ages out do not."""
    summaries = {r["alert"]: r["annotations"] for r in rules()}

    def alert(name: str, labels: dict[str, str]) -> dict[str, Any]:
        words = {
            key: re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda m: labels[m[1]], text)
            for key, text in summaries[name].items()
        }
        return {"exp_labels": labels, "exp_annotations": words}

    expected = [
        {"eval_time": f"{minute}m", "alertname": name, "exp_alerts": [alert(name, labels)]}
        for minute, ringing in RINGING.items()
        for name, labels in ringing
    ]
    expected += [{"eval_time": "5m", "alertname": name, "exp_alerts": []} for name in summaries]
    indented = "\n".join(f"      - {json.dumps(one)}" for one in expected)
    path = tmp_path / "cases.yml"
    path.write_text(CASES.format(rules=RULES, expected=indented))
    assert "SUCCESS" in prometheus.promtool("test", "rules", path)
    assert {name for ringing in RINGING.values() for name, _ in ringing} == set(summaries)


def test_the_real_prometheus_scrapes_it(service: context.Context, tmp_path: Path) -> None:
    """It finds the target up and every series with its type and meaning, loads the rules, and answers the dashboards' queries."""
    fakes.deliver(service.store, "n1")
    journal.one_pass(service.journal, "actions", lambda: "", service.clock)
    endpoint = ports.choose(1)[0]
    service.config = settings.parse(
        f'[cluster]\nname = "c"\n[service]\nmetrics_listen = "127.0.0.1:{endpoint}"\n'
    )
    conf = tmp_path / "prometheus.yml"
    conf.write_text(
        f"global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [{RULES}]\n"
        f"scrape_configs:\n  - job_name: probing\n    static_configs: [{{targets: ['127.0.0.1:{endpoint}']}}]\n"
    )
    arguments = (f"--config.file={conf}", f"--storage.tsdb.path={tmp_path}/data")
    with (
        metrics.serving(service),
        prometheus.running("prometheus", *arguments, log=tmp_path / "log") as port,
    ):
        exposed = prometheus.get(f"http://127.0.0.1:{endpoint}/metrics")
        prometheus.promtool("check", "metrics", given=exposed)

        def ask(path: str, **given: str) -> Any:
            text = prometheus.get(f"http://127.0.0.1:{port}/api/v1/{path}?{urllib.parse.urlencode(given)}")
            return json.loads(text)["data"]

        deadline = time.monotonic() + prometheus.DEADLINE_S
        while not ask("query", query="probing_database_up")["result"]:
            assert time.monotonic() < deadline, ask("targets")
            time.sleep(0.2)
        (up,) = ask("query", query="up")["result"]
        assert up["value"][1] == "1"
        (database,) = ask("query", query="probing_database_up")["result"]
        assert database["value"][1] == "1"
        declared = dict(re.findall(r"^# TYPE (\w+) (\w+)$", exposed, re.MULTILINE))
        known = ask("metadata")
        assert len(declared) >= 25
        for name, kind in declared.items():
            # It asks for OpenMetrics, where a counter's family has no _total.
            (entry,) = known[name.removesuffix("_total") if kind == "counter" else name]
            assert entry["type"] == kind, name
            assert entry["help"].strip(), name
        while any(r["health"] == "unknown" for r in ask("rules")["groups"][0]["rules"]):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        loaded = ask("rules")["groups"][0]["rules"]
        assert [(r["name"], r["health"]) for r in loaded] == [(r["alert"], "ok") for r in rules()]
        for expr in test_dashboards.PROMQL:
            assert "result" in ask("query", query=expr.replace("$__rate_interval", "1m")), expr
