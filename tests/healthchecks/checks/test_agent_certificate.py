"""The agent's certificates, made by openssl, as the node's own check sees them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from probing_cluster.core import certificates
from probing_cluster.core.records import Outcome
from tests.control_plane import certificates as made


@pytest.fixture
def files(node: Any) -> dict[str, Path]:
    """Its own certificate of 90 days and its authority's of 2,000, where the agent's URL names them."""
    (node.root / "etc").mkdir()
    found = {
        name: made.self_signed(node.root / "etc", name, days)[0]
        for name, days in (("agent", 90), ("ca", 2000))
    }
    node.certificates = tuple(
        certificates.CertificateFile(key="url", path=Path(f"/etc/{name}.crt"), authority=name == "ca")
        for name in found
    )
    return found


def test_both_hold_for_a_while(node: Any, files: dict[str, Path]) -> None:
    """Well; and says which date to know."""
    end = made.end_of(files["agent"])
    node.clock.at = end - timedelta(days=31)
    finding = node.check("agent_certificate")
    assert (finding.outcome, finding.message) == (
        Outcome.OK,
        f"the first to end does so on {end:%Y-%m-%d}",
    )


@pytest.mark.parametrize(("left_days", "word"), [(29, "ends"), (0.5, "ends"), (-2, "ended")])
def test_its_own_ends_soon(node: Any, files: dict[str, Path], left_days: float, word: str) -> None:
    """A month before, and after its end, it is a warning with the date: nothing is done to the node for it."""
    end = made.end_of(files["agent"])
    node.clock.at = end - timedelta(days=left_days)
    finding = node.check("agent_certificate")
    assert (finding.outcome, finding.device) == (Outcome.WARN, "agent.crt")
    assert finding.message == f"agent.crt {word} on {end:%Y-%m-%d}"
    assert finding.measured == pytest.approx(left_days, abs=0.1)
    node.clock.at = end - timedelta(days=35)
    assert node.check("agent_certificate", warn_days=40.0).outcome is Outcome.WARN


def test_its_authority_ends_sooner_than_hosts_can_follow(node: Any, files: dict[str, Path]) -> None:
    """Half a year before: everything it signed ends with it."""
    node.clock.at = made.end_of(files["ca"]) - timedelta(days=179)
    made.self_signed(node.root / "etc", "agent", days=4000)
    finding = node.check("agent_certificate")
    assert (finding.outcome, finding.device) == (Outcome.WARN, "ca.crt")


def test_a_file_that_cannot_be_read_is_no_health(node: Any, files: dict[str, Path]) -> None:
    """Missing or torn: in error, never ok; and where none is named there is nothing to judge."""
    files["agent"].write_text("-----BEGIN CERTIFICATE-----\n")
    assert node.check("agent_certificate").outcome is Outcome.ERROR
    files["agent"].unlink()
    finding = node.check("agent_certificate")
    assert finding.outcome is Outcome.ERROR
    assert "/etc/agent.crt: No such file" in finding.message
    node.certificates = ()
    assert node.check("agent_certificate").outcome is Outcome.ABSENT
