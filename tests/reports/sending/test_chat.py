"""What each service of the manual is sent by one message and by its end, at the edge of the library that speaks to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import requests

from probing_cluster.reports.sending import chat

# The library looks for a module that Python 3.13 no longer has.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated")

ADDRESSES = {
    "slack": "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/#ops",
    "teams": "workflows://prod-01.westus.logic.azure.com/643e69f83c8944438d68119179a10a64/KODuebWbDGYFr0z0eu",
    "mattermost": "mmost://chat.site/3ccdd113474722377935511fc85d3dd4",
    "pagerduty": "pagerduty://A1B2C3D4E5F6@A1B2C3D4E5F6G7H8",
    "opsgenie": "opsgenie://550e8400-e29b-41d4-a716-446655440000",
}


class Edge:
    """Every request that the library makes, each taken."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def __call__(self, url: str, *_: object, **options: Any) -> requests.Response:
        data = options.get("data") or options.get("json")
        self.calls.append((url, json.loads(data) if isinstance(data, str | bytes) else dict(data or {})))
        made = requests.Response()
        made.status_code = 202 if "pagerduty" in url or "opsgenie" in url else 200
        made._content = (
            b"ok"
            if "slack" in url
            else b'{"result": "ok", "requestId": "43a29c5c-3dbf-4fa4-9c26-f4f71023e120", "ok": true}'
        )
        return made


@pytest.fixture
def edge(monkeypatch: pytest.MonkeyPatch) -> Edge:
    made = Edge()
    monkeypatch.setattr(requests, "post", made)
    monkeypatch.setattr(requests, "request", lambda _method, url, **options: made(url, **options))
    return made


def post(tmp_path: Path, service: str, *, severity: str = "high", over: bool = False) -> dict[str, str]:
    return chat.post(
        {service: ADDRESSES[service]}, title="[c] Drained: n1 (xid)", body="n1 drained: xid 79 gpu3", severity=severity, over=over,
        group="3f2a", store=str(tmp_path), deadline_s=5.0,
    )  # fmt: skip


@pytest.mark.parametrize("service", sorted(ADDRESSES))
def test_each_service_takes_the_message(tmp_path: Path, edge: Edge, service: str) -> None:
    """Title and text stand in what it is sent."""
    assert post(tmp_path, service) == {service: ""}
    ((url, body),) = edge.calls
    assert url.startswith("https://") or service == "mattermost"
    assert "Drained: n1 (xid)" in json.dumps(body)
    assert "xid 79 gpu3" in json.dumps(body)


@pytest.mark.parametrize("severity", ["high", "low", "info"])
def test_pagerduty_opens_and_closes_one_incident(tmp_path: Path, edge: Edge, severity: str) -> None:
    """An update is told under the same key; the end resolves it."""
    post(tmp_path, "pagerduty", severity=severity)
    post(tmp_path, "pagerduty", severity=severity)
    post(tmp_path, "pagerduty", severity=severity, over=True)
    assert [(b["event_action"], b["dedup_key"]) for _, b in edge.calls] == [
        ("trigger", "3f2a"), ("trigger", "3f2a"), ("resolve", "3f2a"),
    ]  # fmt: skip


@pytest.mark.parametrize("severity", ["high", "low", "info"])
def test_opsgenie_opens_and_closes_one_alert(tmp_path: Path, edge: Edge, severity: str) -> None:
    """The same by its alias, and from another process than opened it."""
    post(tmp_path, "opsgenie", severity=severity)
    post(tmp_path, "opsgenie", severity=severity, over=True)
    (opened, body), (closed, _) = edge.calls
    assert (opened.rpartition("/")[2], body["alias"]) == ("alerts", "3f2a")
    assert "/close" in closed
