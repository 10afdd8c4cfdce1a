"""Users of the directory service."""

from __future__ import annotations

from typing import Any

from probing_cluster.core.records import Outcome


def test_users(node: Any) -> None:
    """A known user is ok, an unknown one fails, a silent directory is an error."""
    node.tool("getent", "alice:*:1000:1000::/home/alice:/bin/bash")
    assert node.check("user_lookup", users=["alice"]).outcome is Outcome.OK
    node.tool("getent", "", code=2)
    assert node.check("user_lookup", users=["alice"]).device == "alice"
    node.tool("getent", script="exec sleep 60")
    assert node.check("user_lookup", users=["alice"], answer_s=0.1).timed_out


def test_nobody_named(node: Any) -> None:
    """Without a user to look up there is nothing to judge, and a hint where a directory is used."""
    node.put("etc/nsswitch.conf", "passwd: files systemd sss\ngroup: files")
    finding = node.check("user_lookup")
    assert finding.outcome is Outcome.ABSENT
    assert "sss" in finding.message
