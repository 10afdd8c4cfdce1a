"""Each family's grammar on the variants that drivers and kernels of different versions print."""

from __future__ import annotations

from probing_cluster.evidence.kernel import reader
from probing_cluster.evidence.kernel.grammar import KernelFinding
from tests.every_case import every


def read(line: str, *before: str) -> KernelFinding | None:
    """The finding of `line` after `before` were read."""
    kernel = reader.KernelReader()
    for earlier in before:
        kernel.read_line(earlier)
    found = kernel.read_line(line)
    return found[1] if found else None


FORMS = [
    # line, kind, code, severity, pci, device
    (
        "amdgpu 0000:c1:00.0: amdgpu: uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!",
        "amdgpu",
        "ras_uncorrectable",
        "high",
        "0000:c1:00.0",
        None,
    ),
    (
        "amdgpu 0000:c1:00.0: {7}uncorrectable hardware error(ERREVENT_PCIE_BIF) detected!",
        "amdgpu",
        "ras_uncorrectable",
        "high",
        "0000:c1:00.0",
        None,
    ),
    (
        "amdgpu 0000:c1:00.0: {12}correctable hardware error (ERREVENT_ATHUB_INTERRUPT) detected!",
        "amdgpu",
        "ras_correctable",
        "info",
        "0000:c1:00.0",
        None,
    ),
    (
        "NVRM: gpuWaitForGfwBootComplete_GA100: failed to wait for GFW_BOOT: (progress 0x1f)",
        "gsp",
        "boot_failed",
        "high",
        None,
        None,
    ),
    (
        "NVRM: GPU3 kgspWaitForGfwBootOk_GH100: failed to wait for GFW boot complete: 0x55 VBIOS version 96.00",
        "gsp",
        "boot_failed",
        "high",
        None,
        None,
    ),
    (
        "NVRM kgspInitRm_IMPL: missing SEC2 engine, cannot initialize GSP-RM",
        "gsp",
        "boot_failed",
        "high",
        None,
        None,
    ),
    ("NVRM: GPU0 kgspInitRm_IMPL: cannot initialize GSP-RM", "gsp", "boot_failed", "high", None, None),
    (
        "igc 0000:57:00.0 eno2: PCIe link lost, device now detached",
        "pcie_link",
        "inaccessible",
        "high",
        "0000:57:00.0",
        None,
    ),
    ("ixgbe 0000:04:00.1 ens2f1: Adapter removed", "pcie_link", "inaccessible", "high", "0000:04:00.1", None),
    ("r8168: enp4s0: link down", "eth_link", "link_down", "low", None, "enp4s0"),
    ("mv88e6085 f1072004.mdio-mii:0c wan0: Link is Down", "eth_link", "link_down", "low", None, "wan0"),
    ("fec 30be0000.ethernet eth3: Link is Down", "eth_link", "link_down", "low", None, "eth3"),
    (
        "bond2: link status down for interface ens6f1, disabling it in 400 ms",
        "eth_link",
        "bond_slave_down",
        "low",
        None,
        "ens6f1",
    ),
    (
        "libceph (0f3c2a11-5d4b-4f7e-9a62-1b7f0d6c8e90 e4211): osd17 down",
        "filesystem",
        "not_responding",
        "info",
        None,
        "osd17",
    ),
    (
        "libceph (0f3c2a11-5d4b-4f7e-9a62-1b7f0d6c8e90 e1): mon0 (1)10.9.8.7:6789 session lost, hunting for new mon",
        "filesystem",
        "not_responding",
        "info",
        None,
        "mon0",
    ),
    ("NVRM: Xid (0000:03:00): 14, Channel 00000001", "xid", "14", "info", "0000:03:00", None),
    ("NVRM: Xid (PCI:00000000:3B:00): 48, pid=7, name=x", "xid", "48", "high", "0000:3b:00", None),
    ("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", "xid", "79", "high", "0000:3b:00", None),
    (
        "NVRM: Xid (PCI:0000:3b:00): 94, Contained: SM (0x1). RST: No, D-RST: No",
        "xid",
        "94",
        "low",
        "0000:3b:00",
        None,
    ),
    ("NVRM: Xid (PCI:0000:3b:00): 999, something new", "xid", "999", "info", "0000:3b:00", None),
    (
        "nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 24007, Fatal, Link 28 x",
        "sxid",
        "24007",
        "high",
        "0000:c3:00.0",
        "nvswitch0",
    ),
    (
        "nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 20034, Correctable, Link 3 x",
        "sxid",
        "20034",
        "info",
        "0000:c3:00.0",
        "nvswitch0",
    ),
    (
        "nvidia-nvswitch9: SXid (PCI:0000:c3:00.0): 99999, Non-fatal, Link 3 new",
        "sxid",
        "99999",
        "info",
        "0000:c3:00.0",
        "nvswitch9",
    ),
    (
        "NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x26:0x56:1463)",
        "driver",
        "init_failed",
        "high",
        "0000:01:00.0",
        None,
    ),
    (
        "NVRM: GPU 0000:01:00.0: rm_init_adapter failed, device minor number 0",
        "driver",
        "init_failed",
        "high",
        "0000:01:00.0",
        None,
    ),
    (
        "nvidia: probe of 0000:01:00.0 failed with error -1",
        "driver",
        "init_failed",
        "high",
        "0000:01:00.0",
        None,
    ),
    (
        "NVRM: nvAssertFailedNoLog: Assertion failed: 0 @ g_mem_mgr_nvoc.h:2159",
        "driver",
        "assertion",
        "info",
        None,
        None,
    ),
    ("NVRM: _issueRpcAndWait: rpcRecvPoll timedout for fn 76!", "gsp", "rpc_timeout", "low", None, None),
    (
        "pcieport 0000:00:1c.0: AER: Multiple Uncorrected (Non-Fatal) error received: 0000:01:00.0",
        "pcie_aer",
        "nonfatal",
        "low",
        "0000:00:1c.0",
        None,
    ),
    (
        "pcieport 0000:00:1c.0: AER: Correctable error message received from 0000:02:00.0",
        "pcie_aer",
        "corrected",
        "info",
        "0000:00:1c.0",
        None,
    ),
    (
        "nvidia 0000:3b:00.0: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Transaction Layer, (Receiver ID)",
        "pcie_aer",
        "fatal",
        "high",
        "0000:3b:00.0",
        None,
    ),
    (
        "pcieport 0000:a0:01.0: DPC: containment event, status:0x1f01 source:0x0000",
        "pcie_aer",
        "dpc",
        "high",
        "0000:a0:01.0",
        None,
    ),
    (
        "pcieport 0000:a0:01.0: AER: device recovery failed",
        "pcie_aer",
        "recovery_failed",
        "high",
        "0000:a0:01.0",
        None,
    ),
    (
        "pcieport 0000:a0:01.0: pciehp: Slot(12): Link Down",
        "pcie_link",
        "link_down",
        "high",
        "0000:a0:01.0",
        "slot 12",
    ),
    (
        "pciehp 0000:00:1c.0:pcie004: Slot(16-2): Card not present",
        "pcie_link",
        "card_removed",
        "high",
        "0000:00:1c.0",
        "slot 16-2",
    ),
    (
        "pciehp 0000:00:1c.0:pcie04: slot(3): Link Down event",
        "pcie_link",
        "link_down",
        "high",
        "0000:00:1c.0",
        "slot 3",
    ),
    (
        "pciehp 0000:00:1c.0:pcie04: Card not present on Slot(3)",
        "pcie_link",
        "card_removed",
        "high",
        "0000:00:1c.0",
        "slot 3",
    ),
    (
        "nvidia 0000:3b:00.0: Unable to change power state from D3cold to D0, device inaccessible",
        "pcie_link",
        "inaccessible",
        "high",
        "0000:3b:00.0",
        None,
    ),
    (
        "mlx5_core 0000:5e:00.0 mlx5_3: Port: 1 Link DOWN",
        "ib_link",
        "port_down",
        "high",
        "0000:5e:00.0",
        "mlx5_3",
    ),
    (
        "mlx5_core 0000:5e:00.0 ens1f0np0: Link down",
        "ib_link",
        "link_down",
        "high",
        "0000:5e:00.0",
        "ens1f0np0",
    ),
    (
        "NETDEV WATCHDOG: ens15np0 (mlx5_core): transmit queue 3 timed out",
        "ib_link",
        "netdev_watchdog",
        "low",
        None,
        "ens15np0",
    ),
    (
        "NETDEV WATCHDOG: eno1 (igb): transmit queue 0 timed out",
        "eth_link",
        "netdev_watchdog",
        "low",
        None,
        "eno1",
    ),
    (
        "bnxt_en 0000:5e:00.0 enp94s0f0np0: NIC Link is Down",
        "eth_link",
        "link_down",
        "low",
        "0000:5e:00.0",
        "enp94s0f0np0",
    ),
    (
        "igb 0000:04:00.0 eno1: igb: eno1 NIC Link is Down",
        "eth_link",
        "link_down",
        "low",
        "0000:04:00.0",
        "eno1",
    ),
    (
        "bond0: (slave eno1): link status definitely down, disabling slave",
        "eth_link",
        "bond_slave_down",
        "low",
        None,
        "eno1",
    ),
    (
        "EDAC MC0: 3 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (channel:1)",
        "edac",
        "CE",
        "info",
        None,
        "CPU_SrcID#0_MC#0_Chan#1_DIMM#0",
    ),
    ("EDAC MC0: UE page 0x0, offset 0x0, grain 0, row 2, labels", "edac", "UE", "high", None, "MC0"),
    ("mce: [Hardware Error]: Machine check events logged", "mce", "detail", "info", None, None),
    (
        "watchdog: BUG: soft lockup - CPU#18 stuck for 27s! [python3:2254956]",
        "hung_task",
        "soft_lockup",
        "low",
        None,
        "cpu18",
    ),
    ("NMI watchdog: Watchdog detected hard LOCKUP on cpu 5", "hung_task", "hard_lockup", "low", None, "cpu5"),
    ("INFO: rcu_preempt detected stalls on CPUs/tasks:", "hung_task", "rcu_stall", "low", None, None),
    ("Kernel panic - not syncing: hung_task: blocked tasks", "panic", "panic", "high", None, None),
    ("BUG: unable to handle page fault for address: ffffb", "panic", "oops", "low", None, None),
    (
        "blk_update_request: I/O error, dev sda, sector 1234 op 0x0:(READ)",
        "block_io",
        "io_error",
        "low",
        None,
        "sda",
    ),
    ("nvme nvme0: I/O 22 QID 0 timeout, reset controller", "block_io", "nvme_timeout", "low", None, "nvme0"),
    (
        "nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff",
        "block_io",
        "nvme_reset",
        "low",
        None,
        "nvme0",
    ),
    (
        "XFS (nvme0n1p2): Filesystem has been shut down due to log error (0x2).",
        "block_io",
        "fs_shutdown",
        "high",
        None,
        "nvme0n1p2",
    ),
    (
        "EXT4-fs error (device sda1): ext4_find_entry:1455: inode #2: comm ls: reading directory lblock 0",
        "block_io",
        "fs_error",
        "low",
        None,
        "sda1",
    ),
    ("md/raid1:md1: Disk failure on sda1, disabling device.", "block_io", "md_fail", "high", None, "sda1"),
    (
        "Lustre: fs-OST0001-osc-ffff: Connection restored to 10.0.0.1@o2ib (at 10.0.0.1@o2ib)",
        "lustre",
        "recovered",
        "info",
        None,
        None,
    ),
    (
        "LustreError: 12345:0:(client.c:1187:ptlrpc_import_delay_req()) @@@ IMP_INVALID",
        "lustre",
        "error",
        "info",
        None,
        None,
    ),
    ("mmfs: Error=MMFS_DISKFAIL, ID=0x9C6C05FA, Tag=123", "gpfs", "mmfs_diskfail", "low", None, None),
    (
        "May  7 22:25:29 n2 mmfs: [E] CCR: failed to connect to node 10.0.0.1:1191",
        "gpfs",
        "error",
        "low",
        None,
        None,
    ),
    (
        "May  7 22:25:39 n2 mmfs: [E] Node 10.0.0.1 (n1) is being expelled",
        "gpfs",
        "expelling",
        "info",
        None,
        None,
    ),
    ("May  7 22:25:39 n2 mmfs[12]: [E] This node has been expelled", "gpfs", "expelled", "high", None, None),
    (
        "cgroup: fork rejected by pids controller in /slurm/uid_1/job_9/step_0",
        "limit",
        "pids",
        "info",
        None,
        None,
    ),
    (
        "XFS (dm-0): Metadata I/O Error (0x1) detected at xfs_trans_read_buf_map",
        "block_io",
        "io_error",
        "low",
        None,
        "dm-0",
    ),
    (
        "XFS (dm-0): Block device removal (0x20) detected at fs_bdev_mark_dead",
        "block_io",
        "fs_shutdown",
        "high",
        None,
        "dm-0",
    ),
    (
        "CPU3: Core temperature above threshold, cpu clock throttled (total events = 12)",
        "thermal",
        "cpu_throttle",
        "info",
        None,
        "cpu3",
    ),
    (
        "thermal thermal_zone0: critical temperature reached (105 C), shutting down",
        "thermal",
        "critical",
        "high",
        None,
        None,
    ),
]


@every(("line", "kind", "code", "severity", "pci", "device"), FORMS)
def test_form(line: str, kind: str, code: str, severity: str, pci: str | None, device: str | None) -> None:
    """This form is read with its kind, code, severity, address and part."""
    found = read(line)
    assert found is not None
    assert (found.kind, found.code, found.severity, found.pci_bus_id, found.device) == (
        kind,
        code,
        severity,
        pci,
        device,
    )


NO_FINDING = [
    "dhclient[812]: DHCPREQUEST on eth0 to 255.255.255.255 port 67 (xid=0x7a3b2c1d)",
    "RPC: Registered tcp NFSv4.1 backchannel transport module.",
    "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.129.03",
    "nvidia-nvlink: Nvlink Core is being initialized, major device number 510",
    "please see Xid 79 in the documentation",
    "mlx5_core 0000:9c:00.0: Port module event: module 0, Cable plugged",
    "mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link ACTIVE",
    "pcieport 0000:00:04.1: pciehp: Slot(0): Link Up",
    "pcieport 0000:00:1c.0: aer_inject: Injecting errors 00000040/00000000 into device 0000:01:00.0",
    "vethabc123: Lost carrier",
    "docker0: link down",
    "nvme nvme0: 8/0/0 default/read/poll queues",
    "EXT4-fs (sda1): mounted filesystem with ordered data mode",
    "Lustre: Skipped 1 previous similar message",
    "mce: CPU0: Thermal monitoring enabled (TM1)",
    "mce: CPU supports 22 MCE banks",
    "CPU0: Core temperature/speed normal (total events = 1)",
    "EDAC MC: Ver: 3.0.0",
    "python3[4242]: segfault at 0 ip 00007f sp 00007f error 4 in libtorch.so",
    "thermal thermal_zone0: registered",
    "audit: type=1400 apparmor=DENIED invalid argument",
    "ata1: SATA link down (SStatus 0 SControl 300)",
    "systemd[1]: Started Kernel panic detector.",
    "Killed process invalid (test)",
    "Memory cgroup stats for /slurm/uid_1/job_2: cache:0KB rss:1KB",
]


@every("line", NO_FINDING)
def test_harmless_lines_are_none(line: str) -> None:
    """A line that only looks like a fault is none."""
    assert read(line) is None


def test_nvlink5_is_decoded_by_unit_and_words() -> None:
    """Sub-code 37 of a link-down line points at the peer; an injected error is never more than info."""
    line = "NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i{} Link 09 (0x025525c6 0x00000000 0x0 0x0 0x0 0x0)"
    real, injected = read(line.format(0)), read(line.format(1))
    assert real is not None
    assert injected is not None
    assert (real.detail["unit"], real.detail["link"], real.detail["sub_code"], real.severity) == (
        "NETIR_LINK_EVT",
        9,
        37,
        "high",
    )
    assert "other end" in real.next_step
    assert injected.severity == "info"


def test_nvlink5_nonfatal_is_not_a_fault_of_the_node() -> None:
    """A non-fatal NVLink5 line is info even though its Xid can be fatal."""
    found = read(
        "NVRM: Xid (PCI:0018:01:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 11 (0x00000006 0x00000008)"
    )
    assert found is not None
    assert found.severity == "info"


def test_an_nvswitch_error_that_the_driver_calls_non_fatal_drains_nothing() -> None:
    """The catalogue's step is for a fatal one."""
    line = "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 12028, {}, Link 32 egress non-posted PRIV error"
    non_fatal, fatal = read(line.format("Non-fatal")), read(line.format("Fatal"))
    assert non_fatal is not None
    assert fatal is not None
    assert non_fatal.next_step.startswith("Nothing now")
    assert fatal.next_step.startswith("Drain the nodes")


@every(
    ("action", "severity"),
    [
        ("None", "info"),
        ("GPU Reset Required", "low"),
        ("Node Reboot Required", "low"),
        ("Do A Dance", "info"),
    ],
)
def test_xid_154_names_the_recovery(action: str, severity: str) -> None:
    """The new recovery action is decoded; an unknown one is not a fault."""
    found = read(
        f"NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 ({action})"
    )
    assert found is not None
    assert (found.detail["recovery_to"], found.severity) == (action, severity)


def test_xid_45_names_its_cause() -> None:
    """Newer drivers print which Xid made them remove the channels."""
    found = read("NVRM: Xid (PCI:0000:3b:00): 45, pid=1, name=a, Ch 00000008 caused by previous Xid 94")
    assert found is not None
    assert found.detail["caused_by_xid"] == 94


@every(
    ("text", "pid", "name"),
    [
        ("pid=1234, name=python3, x", 1234, "python3"),
        ("pid='<unknown>', name=<unknown>, x", None, None),
        ("pid='`<unknown>`', name=`<unknown>`, x", None, None),
        ("pid='1234', name='python 3', x", 1234, "python 3"),
        ("pid=7062, Contained: x", 7062, None),
        ("pid=..., name=llama-server", None, "llama-server"),
        ("pid=9, name=nvc:[driver], x", 9, "nvc:[driver]"),
        ("GPU has fallen off the bus.", None, None),
        ("pid=99999999999999999999, name=x, y", None, "x"),
    ],
)
def test_pid_and_name_forms(text: str, pid: int | None, name: str | None) -> None:
    """The driver's ways to say who, and to say that it does not know."""
    found = read(f"NVRM: Xid (PCI:0000:3b:00): 13, {text}")
    assert found is not None
    assert (found.pid, found.process) == (pid, name)


def test_the_gpu_uuid_is_remembered() -> None:
    """The line that ties a PCI address to a UUID completes the Xids after it."""
    found = read(
        "NVRM: Xid (PCI:0000:9b:00): 119, pid=1, name=a, Timeout after 6s",
        "NVRM: GPU at PCI:0000:9b:00: GPU-509665ad-b600-ac93-3616-d754b23d636d",
    )
    assert found is not None
    assert found.detail["gpu_uuid"] == "GPU-509665ad-b600-ac93-3616-d754b23d636d"


def test_one_kmsg_record_holds_the_three_line_message() -> None:
    """/dev/kmsg escapes the newlines of the driver's three-line message; it is one event there."""
    found = read(
        r"3,1,1,-;NVRM: The NVIDIA GPU 0000:b3:00.0\x0aNVRM: (PCI ID: 10de:2330) installed in this system has\x0aNVRM: fallen off the bus and is not responding to commands."
    )
    assert found is not None
    assert (found.code, found.pci_bus_id) == ("gpu_fallen_no_xid", "0000:b3:00.0")


def test_a_lost_gpu_is_reported_once() -> None:
    """The driver repeats an Xid 79 in words; only a line about another GPU is an event of its own."""
    xid = "NVRM: Xid (PCI:0000:01:00): 79, pid=1, name=a, GPU has fallen off the bus."
    assert read("NVRM: GPU 0000:01:00.0: GPU has fallen off the bus.", xid) is None
    other = read("NVRM: GPU 0000:02:00.0: GPU has fallen off the bus.", xid)
    assert other is not None
    assert other.code == "gpu_fallen"


def test_an_oom_kill_leads_to_its_job() -> None:
    """The cgroup of the summary line names the Slurm job; the kill line after it inherits it by pid."""
    summary = (
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=step_0,mems_allowed=0-1,oom_memcg=/system.slice/slurmstepd.scope/job_4242,"
        "task_memcg=/system.slice/slurmstepd.scope/job_4242/step_0/user/task_0,task=python3,pid=777,uid=1000"
    )
    first = read(summary)
    second = read(
        "Memory cgroup out of memory: Killed process 777 (python3) total-vm:1kB, anon-rss:2kB", summary
    )
    assert first is not None
    assert second is not None
    assert (first.job_id, first.pid, first.process, first.code) == (4242, 777, "python3", "memcg")
    assert (second.job_id, second.detail["anon_rss_kib"]) == (4242, 2)


def test_an_oom_kill_is_read_where_its_line_was_cut_behind_the_number() -> None:
    """A mail wraps such a line, and some relays cut it."""
    found = read("Out of memory: Killed process 2692")
    assert found is not None
    assert (found.code, found.pid, found.process) == ("global", 2692, None)


@every(
    ("path", "job"),
    [
        ("/slurm/uid_1000/job_4242/step_batch", 4242),
        ("/slurm/uid_0/job_7", 7),
        ("/system.slice/slurmstepd.scope/job_4242/step_0/user/task_0", 4242),
        ("/system.slice/n1_slurmstepd.scope/job_4242/step_0", 4242),
        ("/system.slice/slurmstepd.scope/s5K1KKYAYG5D00/step_0", None),
        ("/user.slice/user-1000.slice/user@1000.service/job_4242", None),
        ("/user.slice/user-1000.slice/user@1000.service/slurmstepd.scope/job_4242", None),
        ("/docker/abc", None),
    ],
)
def test_job_of_a_cgroup(path: str, job: int | None) -> None:
    """Slurm's cgroup v1 and v2 paths name the job; SLUIDs and containers do not."""
    found = read(f"Task in {path} killed as a result of limit of {path}")
    assert found is not None
    assert found.job_id == job


def test_an_sluid_goes_with_every_line_of_a_kill() -> None:
    """From Slurm 26.05 on the cgroup says which run it was, not which job: the agent of the node knows (its Prolog was told)."""
    group = "/system.slice/slurmstepd.scope/s5K1KKYAYG5D00/step_0/user/task_0"
    summary, kill = (
        f"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,mems_allowed=0,oom_memcg={group},task_memcg={group},task=python3,pid=777,uid=1000",
        "Memory cgroup out of memory: Killed process 777 (python3) total-vm:1kB, anon-rss:2kB, file-rss:0kB, shmem-rss:0kB",
    )
    engine = reader.KernelReader()
    for line in (summary, kill):
        found = engine.read_message(line)
        assert found is not None
        assert (found.job_id, found.detail["sluid"]) == (None, "s5K1KKYAYG5D00")


def test_aer_details_take_the_grade_of_their_report() -> None:
    """The same bit is fatal in a fatal report, and has its default grade without one."""
    bit = "pcieport 0000:c0:01.1:    [14] CmpltTO                (First)"
    head = "pcieport 0000:c0:01.1: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Requester ID)"
    assert (read(bit, head) or read("")).code == "fatal"  # type: ignore[union-attr]
    assert (read(bit) or read("")).code == "nonfatal"  # type: ignore[union-attr]


def test_an_uncorrected_machine_check_is_high() -> None:
    """Bit 61 of the bank's status decides."""
    bad = read("mce: [Hardware Error]: CPU 1: Machine Check: 0 Bank 5: bea0000000000108")
    good = read("mce: [Hardware Error]: CPU 1: Machine Check: 0 Bank 7: 8c00004000010090")
    assert bad is not None
    assert good is not None
    assert (bad.severity, good.severity) == ("high", "info")


def test_foreign_names_lose_control_characters() -> None:
    """A process name with terminal escapes comes out clean."""
    found = read("NVRM: Xid (PCI:0000:3b:00): 13, pid=1, name=a\x07b\u202ec, x")
    assert found is not None
    assert found.process == "abc"


def test_a_refused_fork_names_its_job() -> None:
    """The control group of a job names it."""
    found = read("cgroup: fork rejected by pids controller in /slurm/uid_1/job_9/step_0")
    assert found is not None
    assert found.job_id == 9


def test_the_log_of_the_gpfs_daemon_is_read_and_says_gpfs_only() -> None:
    """It has no tag: its own form of a date and a level stand in front of what it says."""
    stamp = "2025-02-03_04:05:06.789+0100: "
    kinds = [
        (f"{stamp}[E] Lost membership in cluster scratch.example. Unmounting file systems.", "expelled"),
        (f"{stamp}[X] Something that nobody knows", "error"),
    ]
    for line, code in kinds:
        found = read(line)
        assert found is not None
        assert (found.kind, found.code) == ("gpfs", code)
    assert read(f"{stamp}[I] Lost membership in cluster scratch.example.") is None
    for quoted in (
        f"{stamp}[E] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
        f"kernel: {kinds[0][0]}",
        f"Jan 21 11:18:36 n1 bob: {kinds[0][0]}",
    ):
        found = read(quoted)
        assert found is None or (found.kind, found.severity) == ("gpfs", "low")


@every(
    "line",
    [
        "veth12: vnet3: link down",
        "br0: vnet3: link down",
        "ata3: SATA link down (SStatus 0 SControl 300)",
        "somebody wrote: r8168: enp4s0: link down",
        "amdgpu 0000:c1:00.0: no uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!",
        "igc: PCIe link lost",
        "NVRM: loaded: the user wrote 'cannot initialize GSP-RM'",
    ],
)
def test_what_only_resembles_these_is_none(line: str) -> None:
    """A virtual interface, a disk's link, words in the middle, a device without an address."""
    assert read(line) is None
