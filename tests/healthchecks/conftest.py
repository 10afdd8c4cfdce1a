"""A node in a directory, built piece by piece, and the checks run on it.

node     an empty node: `put` files, `tool`s, `process`es, `mount`s, GPUs and kernel messages into it,
         then `node.check("disk_space", warn_frac=0.5)` reads and judges it and gives the finding.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from probing_cluster.core import certificates, records
from probing_cluster.healthchecks import findings, nodeview, run_check, runner, site
from probing_cluster.healthchecks.readers import nvml
from tests.set_clock import SetClock

GPU = nvml.NvmlGpu(
    index=0,
    name="NVIDIA H100 80GB HBM3",
    serial="1650123456789",
    vbios="96.00.89.00.01",
    inforom="G520.0200.00.05",
    gsp_firmware="550.90.07",
    persistence=True,
    mig=False,
    temperature_c=35,
    memory_temperature_c=44,
    slowdown_c=89,
    shutdown_c=92,
    memory_max_c=95,
    power_w=70.0,
    power_limit_w=700.0,
    power_default_w=700.0,
    throttle_reasons=1,
    pstate=0,
    utilization_frac=0.0,
    sm_clock_mhz=345,
    sm_clock_max_mhz=1980,
    memory_clock_mhz=2619,
    memory_clock_max_mhz=2619,
    application_sm_mhz=1980,
    application_sm_default_mhz=1980,
    memory_total_bytes=85_520_809_984,
    memory_used_bytes=4_718_592,
    ecc_enabled=True,
    ecc_corrected_volatile_total=0,
    ecc_uncorrected_volatile_total=0,
    remapped_corrected_total=0,
    remapped_uncorrected_total=0,
    remap_pending=False,
    remap_failed=False,
    remap_banks_exhausted=0,
    pcie_replays_total=0,
    fabric_state=3,
    fabric_status=0,
    fabric_health_mask=0,
    processes=(),
)
"""A healthy GPU."""


SHOWN: pytest.StashKey[dict[str, set[records.Outcome]]] = pytest.StashKey()
"""Check to the outcomes that this session's tests have brought about in it."""


class FakeNode:
    """A node that is a directory."""

    def __init__(self, root: Path, shown: dict[str, set[records.Outcome]]) -> None:
        self.root = root
        self.shown = shown
        self.clock = SetClock(datetime(2026, 3, 1, 12, 0, tzinfo=UTC))
        self.expected = nodeview.Expectations()
        self.gpus: list[nvml.NvmlGpu] = []
        self.facts: dict[str, Any] = {}
        self.memory: dict[str, dict[str, Any]] = {}
        self.self_state: dict[str, Any] = {}
        self.certificates: tuple[certificates.CertificateFile, ...] = ()
        self._mounts: list[str] = []
        self._seq = 0
        self.up_s = 0.0
        self.later(10 * 86400)

    @property
    def spec(self) -> nodeview.NodeSpec:
        return nodeview.NodeSpec(
            node="n1",
            root=self.root,
            clock=self.clock,
            expected=self.expected,
            self_state=self.self_state,
            certificates=self.certificates,
            command_dirs=(str(self.root / "tools"),),
        )

    def put(self, path: str, text: str) -> Path:
        """A file of the node."""
        full = self.root / path.lstrip("/")
        full.parent.mkdir(parents=True, exist_ok=True)
        full.write_text(text + ("" if text.endswith("\n") or not text else "\n"))
        return full

    def tool(self, name: str, output: str = "", code: int = 0, error: str = "", script: str = "") -> None:
        """A program of the node that says what was recorded, or runs a shell script."""
        recorded = self.put(f"tools/.{name}.out", output)
        body = script or f"cat '{recorded}'; echo '{error}' >&2; exit {code}"
        self.put(f"tools/{name}", f"#!/bin/sh\n{body}\n").chmod(0o755)

    def link(self, path: str, target: str) -> None:
        """A symbolic link of the node."""
        full = self.root / path.lstrip("/")
        full.parent.mkdir(parents=True, exist_ok=True)
        full.symlink_to(target)

    def later(self, seconds: float) -> None:
        """Time goes by."""
        self.clock.at += timedelta(seconds=seconds)
        self.up_s += seconds
        self.put("proc/uptime", f"{self.up_s:.2f} 0.00")

    def log(self, text: str, priority: int = 4) -> None:
        """A line of the kernel log."""
        with (
            (self.root / "dev/kmsg").open("a")
            if self.exists("dev/kmsg")
            else self.put("dev/kmsg", "").open("a") as log
        ):
            log.write(f"{priority},{self._seq},{int(self.up_s * 1e6)},-;{text}\n")
        self._seq += 1

    def exists(self, path: str) -> bool:
        return (self.root / path).exists()

    def process(
        self,
        pid: int,
        name: str,
        state: str = "S",
        parent: int = 1,
        cgroup: str = "0::/system.slice",
        switches: int = 7,
    ) -> None:
        """A process of the node; its owner is whoever runs the tests."""
        self.put(f"proc/{pid}/cgroup", cgroup)
        self.put(
            f"proc/{pid}/status",
            f"Name:\t{name}\nState:\t{state} (x)\nPPid:\t{parent}\nvoluntary_ctxt_switches:\t{switches}",
        )

    def mount(self, path: str, kind: str = "ext4", options: str = "rw", **usage: Any) -> None:
        """A mounted filesystem and what statvfs says of it."""
        self._mounts.append(f"{usage.pop('device', 'dev')} {path} {kind} {options} 0 0")
        self.put("proc/self/mounts", "\n".join(self._mounts))
        (self.root / path.lstrip("/")).mkdir(parents=True, exist_ok=True)
        fine = {"size_bytes": 1000, "free_bytes": 900, "inodes": 1000, "inodes_free": 900, "answer_s": 0.001}
        self.facts[f"mount {path}"] = usage if set(usage) & {"error", "error_name"} else fine | usage

    def have_gpus(self, number: int = 2, **fields: Any) -> None:
        """Healthy GPUs, but for `fields`."""
        self.gpus = [
            dataclasses.replace(
                GPU, index=i, uuid=f"GPU-{i}", pci_bus_id=f"0000:{i + 1:02x}:00.0", minor=i, **fields
            )
            for i in range(number)
        ]

    def gpu(self, index: int, **fields: Any) -> None:
        """Change one GPU."""
        self.gpus[index] = dataclasses.replace(self.gpus[index], **fields)

    def pci(self, address: str, modalias: str, **files: str) -> None:
        """A PCI function; the address may be below a bridge: `bridge/address`."""
        self.put(f"sys/bus/pci/devices/{address}/modalias", modalias)
        for name, text in files.items():
            self.put(f"sys/bus/pci/devices/{address}/{name}", text)

    def hca(self, name: str = "mlx5_0", **fields: str) -> None:
        """An HCA with one healthy port, but for `fields` (files of the port)."""
        base = f"sys/class/infiniband/{name}"
        self.put(f"{base}/fw_ver", fields.pop("fw_ver", "28.39.2048"))
        self.put(f"{base}/board_id", fields.pop("board_id", "MT_0000000838"))
        port = {
            "state": "4: ACTIVE",
            "phys_state": "5: LinkUp",
            "rate": "400 Gb/sec (4X NDR)",
            "link_layer": "InfiniBand",
        }
        for counter in ("symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors",
                        "local_link_integrity_errors", "excessive_buffer_overrun_errors", "port_xmit_discards"):  # fmt: skip
            port[f"counters/{counter}"] = "0"
        for file, text in (port | fields).items():
            self.put(f"{base}/ports/1/{file}", text)

    def check(self, name: str, **limits: Any) -> findings.Finding:
        """Read and judge the node by one check, here; what it remembers is kept for its next run."""
        plan = site.CheckSite().plan("n1")[name]
        plan = dataclasses.replace(plan, limits={**plan.limits, **limits})
        facts = dict(self.facts)
        if "nvml" not in facts:
            lack = nvml.NvmlUnavailable(
                kind=nvml.SnapshotLack.ABSENT, message="no library", code="LIBRARY_NOT_FOUND"
            )
            snapshot = nvml.NvmlSnapshot(driver_version="550.90.07", gpus=tuple(self.gpus))
            facts["nvml"] = nvml.to_json(snapshot if self.gpus else lack)
        kept = self.memory.get(name, {})
        look = run_check.look(plan, self.spec, kept, facts)
        self.memory[name] = look["memory"]
        found = findings.Finding(**look["finding"])
        self.shown.setdefault(name, set()).add(found.outcome)
        return found


@pytest.fixture
def shown(request: pytest.FixtureRequest) -> dict[str, set[records.Outcome]]:
    """Check to the outcomes that tests have brought about so far."""
    return request.config.stash.setdefault(SHOWN, {})


@pytest.fixture
def node(tmp_path: Path, shown: dict[str, set[records.Outcome]]) -> FakeNode:
    """An empty node that has been up for ten days."""
    return FakeNode(tmp_path, shown)


@pytest.fixture
def sweep_on(node: FakeNode) -> Callable[..., runner.CheckRunner]:
    """Makes a real runner on the node, with forked lanes; `site_text` is its site file."""

    def make(site_text: str = "", **more: Any) -> runner.CheckRunner:
        path = node.root / "site.toml"
        path.write_text(site_text)
        spec = dataclasses.replace(node.spec, **more.pop("spec", {}))
        return runner.CheckRunner(spec, site.SiteFile(path), **more)

    return make
