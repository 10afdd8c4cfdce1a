"""A link that went down is the node's only if its name is no container's."""

from __future__ import annotations

import pytest

from probing_cluster.evidence.kernel import reader


def kind_of(text: str) -> str | None:
    found = reader.KernelReader().read_line(f"[   12.345678] {text}")
    return f"{found[1].kind}/{found[1].code} {found[1].severity.value}" if found else None


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("veth1234: link status down", None),
        ("bond0: (slave eth1): link status definitely down, disabling slave", "eth_link/bond_slave_down low"),
        ("bond0: (slave veth12): link status definitely down, disabling slave", None),
        ("eth0: link down", "eth_link/link_down low"),
    ],
)
def test_the_interface_of_a_container_is_not_the_nodes(text: str, kind: str | None) -> None:
    assert kind_of(text) == kind
