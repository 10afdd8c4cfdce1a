"""Every parser of foreign text survives every text."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probing_cluster.core import errors
from probing_cluster.healthchecks import findings
from probing_cluster.healthchecks.checks import gpu_xid
from probing_cluster.healthchecks.readers import ib, kernel_log, mounts, pci, procs, sel, slurm_conf

_CHECKS = "probing_cluster.healthchecks.checks"


def _of(check: str, name: str = "parse") -> Callable[..., Any]:
    found: Callable[..., Any] = getattr(importlib.import_module(f"{_CHECKS}.{check}"), name)
    return found


PARSERS: dict[str, Callable[[str], Any]] = {
    "block_errors": _of("block_errors"),
    "cgroup job": _of("cgroup", "job_of"),
    "cpu list": _of("cpu_count", "parse_list"),
    "bond": _of("eth_link", "parse_bond"),
    "routes": _of("eth_link", "parse_routes"),
    "driver": _of("gpu_versions", "parse_driver"),
    "buddyinfo": _of("memory_fragmentation"),
    "interrupts": _of("mce"),
    "meminfo": _of("memory_size", "parse_meminfo"),
    "fstab": _of("mount_present", "parse_fstab"),
    "fstab rw": _of("mount_writable", "parse_fstab_rw"),
    "dpkg": _of("packages", "parse_dpkg"),
    "aer": lambda text: _of("pcie_aer")(text, "TOTAL_ERR_COR"),
    "pcie speed": _of("pcie_link", "parse_speed"),
    "mdstat": _of("raid"),
    "sel": sel.parse,
    "sensors": _of("ipmi_sensors"),
    "nsswitch": _of("user_lookup", "remote_services"),
    "ib rate": ib.parse_rate,
    "ib state": ib.parse_state,
    "kmsg": kernel_log.parse,
    "mounts": mounts.parse,
    "modalias": pci.parse_modalias,
    "status": lambda text: procs.parse_status("PPid:\t1\nState:\t" + text, 1),
    "slurm.conf": lambda text: slurm_conf.parse(text, "n1"),
    "xid": lambda text: gpu_xid.parse("NVRM: Xid " + text),
}

WORDS = st.sampled_from(
    ["NVRM: Xid (PCI:0000:5e:00): 79", "MCE: 1 2", "md0 : active", "[2/1] [U_]", "NodeName=n1 Gres=gpu:8", "0-63", "MemTotal: 5 kB",
     "| ok |", "1a | 01/31/2026 | 14:02:11 | Fan | Asserted", "\t", "\n", "=", ":", "(", ")", "1a,01/31/2026,14:02:11,Fan,Lost,Asserted", "4: ACTIVE", "400 Gb/sec (4X NDR)",
     "6,1,5,-;x", "١", "1e9", "-1", "0x", " ", "Slave Interface: x", "MII Status: down", "Node 0, zone Normal 1"]
)  # fmt: skip
TEXTS = st.one_of(st.text(max_size=200), st.lists(WORDS, max_size=12).map("".join))


@pytest.mark.parametrize("name", sorted(PARSERS))
@given(text=TEXTS)
def test_no_text_breaks_it(name: str, text: str) -> None:
    """Whatever a kernel, a driver or a tool writes, parsing it gives a value and no exception."""
    PARSERS[name](text)


@pytest.mark.parametrize(
    ("check", "name"), [("nvme_smart", "parse"), ("clock_sync", "parse_chrony"), ("clock_sync", "parse_ntpq")]
)
@given(
    text=st.one_of(TEXTS, st.sampled_from(["[]", "3", "null", '{"critical_warning": []}', "offset=x,leap"]))
)
def test_what_a_tool_must_answer_is_refused_politely(check: str, name: str, text: str) -> None:
    """Where a tool promises a format, another text is one of the errors the check turns into its outcome."""
    with contextlib.suppress(findings.Undetermined, errors.MalformedInput, ValueError):
        _of(check, name)(text)
