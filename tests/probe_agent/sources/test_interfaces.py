"""Lines about bonds and links count only as the node's own interfaces bear them out, and end with them."""

from __future__ import annotations

from typing import Any

import pytest

from probing_cluster.core import records
from probing_cluster.probe_agent import identity
from probing_cluster.probe_agent.faults import faults, sighting
from probing_cluster.probe_agent.faults.gpus import Inventory
from probing_cluster.probe_agent.sources import interfaces, kernel_log, kernel_words, kmsg
from probing_cluster.sandbox.nodetree import writing

LOST = "bond0: now running without any active interface!"
PORT = "bond0: (slave d0): link status definitely down, disabling slave"


def interface(where: identity.Identity, name: str, state: str, *, bond: str | None = None) -> None:
    (where.root / "sys/class/net" / name).mkdir(parents=True, exist_ok=True)
    writing.put(where.root, f"sys/class/net/{name}/operstate", state)
    if bond is not None:
        (where.root / f"sys/class/net/{name}/master").symlink_to(f"../{bond}")


def take(where: identity.Identity, *texts: str) -> list[sighting.Sighting]:
    log = kernel_log.KernelLog(where, kernel_words.classifier(), state=None)
    lines = [kmsg.KmsgLine(seq=n, ts_us=n, facility=0, text=text) for n, text in enumerate(texts, 1)]
    return log.take(lines, caught_up=False, place={})


def read(where: identity.Identity, text: str) -> tuple[str | None, str]:
    (found,) = take(where, text)
    return found.code, str(found.severity)


@pytest.mark.parametrize("line", [LOST, PORT, "eth9: Link is Down", "team0: Port device d0 link down"])
def test_a_bond_of_a_users_own_namespace_is_information(bare: Any, line: str) -> None:
    """The node has no such interface."""
    assert read(bare, line) == ("unconfirmed", "info")


@pytest.mark.parametrize("line", [LOST, PORT])
def test_a_namesake_of_the_nodes_bond_that_is_up_is_information(bare: Any, line: str) -> None:
    """A user may call a bond, and its ports, what the node calls its own."""
    interface(bare, "bond0", "up")
    interface(bare, "d0", "up", bond="bond0")
    assert read(bare, line) == ("unconfirmed", "info")


def test_the_nodes_own_bond_that_is_down_is_grave(bare: Any) -> None:
    """What the kernel said, the node shows."""
    interface(bare, "bond0", "down")
    interface(bare, "d0", "down", bond="bond0")
    assert read(bare, LOST) == ("bond_down", "high")
    assert read(bare, PORT) == ("bond_slave_down", "low")


def test_an_unused_interface_of_the_node_is_no_port_of_a_users_bond(bare: Any) -> None:
    """A spare adapter is down for good; a bond elsewhere may have a port of its name."""
    interface(bare, "d0", "down")
    assert read(bare, PORT) == ("unconfirmed", "info")


def test_a_real_adapters_line_counts_when_the_link_is_up_again(bare: Any) -> None:
    """Links flap; the line of a device is its own proof."""
    interface(bare, "eno1", "up")
    (bare.root / "sys/class/net/eno1/device").mkdir()
    assert read(bare, "eno1: Link is Down") == ("link_down", "low")
    assert read(bare, "igb 0000:01:00.0 eno2: igb: eno2 NIC Link is Down") == ("link_down", "low")


def test_no_name_leads_out_of_the_list_of_interfaces(bare: Any) -> None:
    """A name is looked up only where it is one."""
    interface(bare, "bond0", "down")
    assert read(bare, "bond0: (slave ..): link status definitely down, disabling slave")[1] == "info"


@pytest.mark.parametrize("after", ["up", None])
def test_a_bond_that_is_up_again_or_gone_ends_its_fault(watch: Any, bare: Any, after: str | None) -> None:
    """No line of the kernel need say so."""
    watched = watch(interfaces.SOURCE)
    watched.reader.root = bare.root
    interface(bare, "bond0", "down")
    interface(bare, "lo", "unknown")
    state = faults.Faults(bare.boot_id())
    (found,) = take(bare, LOST)
    now = watched.clock.now()
    event = sighting.to_event(found, identity=bare, inventory=Inventory(), observed_at=now)
    assert state.fold(records.HealthEvent(**(vars(event) | {"at": now})), now=now)
    still = watched.look()
    assert not state.observe("interfaces", still, (), watched.clock.now())
    assert [f.severity for f in state.active()] == [records.Severity.HIGH]
    if after is None:
        (bare.root / "sys/class/net/bond0/operstate").unlink()
    else:
        interface(bare, "bond0", after)
    over = state.observe("interfaces", watched.look(), (), watched.clock.now())
    assert [f.code for f in over] == ["bond_down"]
    assert not state.active()


def test_interfaces_that_cannot_be_listed_end_nothing(watch: Any, bare: Any) -> None:
    """Nothing read is nothing known."""
    watched = watch(interfaces.SOURCE)
    watched.reader.root = bare.root
    judged = watched.look()
    assert (judged.state, judged.there, judged.healthy) == ("absent", None, frozenset())
