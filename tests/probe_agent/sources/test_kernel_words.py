"""What a live kernel line means, and that the kernel's quotations of users mean nothing."""

from __future__ import annotations

import itertools

import pytest

from probing_cluster.probe_agent.sources import kernel_words
from tests.every_case import every

XID = "NVRM: Xid (PCI:0000:5e:00): 79, pid=1, name=python, GPU has fallen off the bus."
SXID = "nvidia-nvswitch0: SXid (PCI:0000:5e:00): 11001, Fatal, Link 33 ingress invalid command"
HCA = "mlx5_core 0000:18:00.0: device's health compromised - reached miss count"


@pytest.mark.parametrize(("text", "kind"), [(XID, "xid"), (SXID, "sxid"), (HCA, "ib_link")])
def test_the_drivers_own_line_is_believed(text: str, kind: str) -> None:
    """The driver's name comes first."""
    found = kernel_words.classifier()(text, 1.0)
    assert found is not None
    assert found.kind == kind


@every(
    "text, quoting",
    itertools.product(
        [XID, SXID, HCA, "EDAC MC0: 1 UE memory read error on CPU_SrcID#0"],
        [
            "overlayfs: failed to resolve '{}': -2",
            "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),task_memcg=/user.slice/{},task=x,pid=1,uid=1000",
            "{}[4242]: segfault at 0 ip 0000000000000000".replace("{}", "x {}"),
            "a name with a line break\n{}",
            "fuse: Bad value for '{}'",
        ],
    ),
)
def test_a_line_the_kernel_quotes_from_a_user_is_not_a_fault(text: str, quoting: str) -> None:
    """Whoever can make the kernel print a path or a name must not be able to drain a node."""
    found = kernel_words.classifier()(quoting.format(text), 1.0)
    assert found is None or found.kind == "oom"


def test_a_message_of_several_lines_is_one_finding() -> None:
    """A record is one message, however many lines its driver put into it."""
    found = kernel_words.classifier()(f"{XID}\nNVRM: GPU 0000:5e:00.0: GPU serial number is 1650.", 1.0)
    assert found is not None
    assert (found.kind, found.code, found.pci_bus_id) == ("xid", "79", "0000:5e:00")
    assert "\n" not in found.message


def test_a_line_said_again_means_the_same_and_a_dull_one_stays_dull() -> None:
    """The short cuts of a storm change no answer."""
    words = kernel_words.classifier()
    dull = "eth0: renamed from veth{}"
    assert [words(dull.format(n), float(n)) for n in range(3)] == [None] * 3
    corrected = "pcieport 0000:00:01.0: AER: Corrected error received: 0000:1b:00.0"
    first = words(corrected, 1.0)
    assert first is not None
    assert words(corrected, 2.0) == first
