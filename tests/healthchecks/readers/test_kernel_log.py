"""The kernel log by cursor."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probing_cluster.healthchecks import findings, nodeview
from probing_cluster.healthchecks.readers import kernel_log


def view(node: Any, memory: dict[str, Any]) -> nodeview.NodeView:
    return nodeview.NodeView(node.spec, memory=memory)


def test_each_line_once(node: Any) -> None:
    """Every message is given once, in order, over any number of looks."""
    memory: dict[str, Any] = {}
    node.log("one")
    node.log("two")
    assert [line.text for line in kernel_log.fresh(view(node, memory))] == ["one", "two"]
    assert kernel_log.fresh(view(node, memory)) == []
    node.log("three")
    assert [line.text for line in kernel_log.fresh(view(node, memory))] == ["three"]


def test_only_the_kernel_is_heard(node: Any) -> None:
    """Records of processes (facility above 0), continuations and garbage are passed over."""
    node.log("kernel", priority=6)
    node.log("user", priority=12)
    with (node.root / "dev/kmsg").open("a") as log:
        log.write(" SUBSYSTEM=pci\ngarbage\n6,x,1,-;text\n")
    assert [line.text for line in kernel_log.fresh(view(node, {}))] == ["kernel"]


def test_no_log(node: Any) -> None:
    """Without the log it is absent."""
    with pytest.raises(findings.Absent):
        kernel_log.fresh(view(node, {}))


@given(st.text())
def test_no_text_is_an_exception(text: str) -> None:
    """Any text at all is a line or None."""
    kernel_log.parse(text)


def test_the_real_device_is_read_without_blocking() -> None:
    """The machine's own /dev/kmsg, where we may read it, gives lines and comes to an end."""
    own = nodeview.NodeView(nodeview.NodeSpec(node="n"))
    try:
        lines = kernel_log.fresh(own)
    except (findings.Absent, findings.Undetermined) as exc:
        pytest.skip(str(exc))
    assert [line.seq for line in lines] == sorted(line.seq for line in lines)
