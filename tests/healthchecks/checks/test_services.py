"""systemd units."""

from __future__ import annotations

from typing import Any

import pytest

from probing_cluster.core.records import Outcome
from probing_cluster.healthchecks import nodeview


@pytest.fixture
def systemd(node: Any) -> Any:
    """A node run by systemd."""
    node.put("run/systemd/system/x", "")
    return node


def test_running_by_its_cgroup(systemd: Any) -> None:
    """A unit whose cgroup is populated runs; systemd is not even asked."""
    systemd.put("sys/fs/cgroup/system.slice/munge.service/cgroup.events", "populated 1\nfrozen 0")
    assert systemd.check("services", units=["munge.service"]).outcome is Outcome.OK


def test_by_asking(systemd: Any) -> None:
    """What systemd says decides for the rest: active, failed, starting."""
    systemd.tool("systemctl", "active\nfailed\nactivating", code=3)
    units = ["a.service", "b.service", "c.service"]
    finding = systemd.check("services", units=units)
    assert (finding.outcome, finding.device) == (Outcome.FAIL, "b.service")
    systemd.tool("systemctl", "activating", code=3)
    assert systemd.check("services", units=["a.service"]).outcome is Outcome.WARN


def test_only_what_is_enabled(systemd: Any) -> None:
    """Without a site list, usual units are judged only where they are enabled."""
    systemd.tool("systemctl", "inactive", code=3)
    assert systemd.check("services").outcome is Outcome.ABSENT
    systemd.link(
        "etc/systemd/system/multi-user.target.wants/chronyd.service",
        "/usr/lib/systemd/system/chronyd.service",
    )
    finding = systemd.check("services")
    assert (finding.outcome, finding.device) == (Outcome.FAIL, "chronyd.service")


def test_daemons_of_hardware_that_is_not_here(systemd: Any) -> None:
    """An image for all nodes enables NVIDIA's daemons on CPU nodes, too, and the fabric's on nodes without NVSwitch."""
    systemd.tool("systemctl", "failed", code=3)
    for unit in ("nvidia-persistenced", "nvidia-fabricmanager"):
        place = "etc/systemd/system/multi-user.target.wants"
        systemd.link(f"{place}/{unit}.service", f"/usr/lib/systemd/system/{unit}.service")
    systemd.pci("0000:18:00.0", "pci:v000015B3d00001021sv000015B3sd00000041bc02sc07i00")
    assert systemd.check("services").outcome is Outcome.ABSENT
    assert systemd.check("services", units=["nvidia-fabricmanager.service"]).outcome is Outcome.FAIL
    systemd.pci("0000:1b:00.0", "pci:v000010DEd00002330sv000010DEsd000016C1bc03sc02i00")
    assert systemd.check("services").device == "nvidia-persistenced.service"
    systemd.tool("systemctl", "active\nfailed", code=3)
    systemd.pci("0000:1c:00.0", "pci:v000010DEd000022A3sv000010DEsd00001796bc06sc80i00")
    assert systemd.check("services").device == "nvidia-fabricmanager.service"


def test_systemd_cannot_be_asked(systemd: Any) -> None:
    """No systemctl, or fewer answers than units, is an error and not health."""
    assert systemd.check("services", units=["a.service"]).outcome is Outcome.ERROR
    systemd.tool("systemctl", "Failed to connect to bus", code=1)
    assert systemd.check("services", units=["a.service"]).outcome is Outcome.ERROR


def test_systemd_hangs(systemd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A systemctl that gives no answer is an error that timed out."""
    systemd.tool("systemctl", script="exec sleep 60")
    real = nodeview.NodeView.run
    monkeypatch.setattr(nodeview.NodeView, "run", lambda self, *a: real(self, *a, deadline_s=0.1))
    finding = systemd.check("services", units=["a.service"])
    assert (finding.outcome, finding.timed_out) == (Outcome.ERROR, True)


def test_no_systemd(node: Any) -> None:
    """A node that systemd does not run has nothing to judge."""
    assert node.check("services", units=["a.service"]).outcome is Outcome.ABSENT
