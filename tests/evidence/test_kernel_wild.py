"""Forms of kernel lines found in issue trackers and mailing lists that an earlier grammar misread."""

from __future__ import annotations

import io
import itertools
import json

from probing_cluster.attribution.verdict import signatures
from probing_cluster.core.records import Severity
from probing_cluster.evidence import classify
from probing_cluster.evidence.kernel import reader
from tests.every_case import every

FOUND = [
    # kind/code, pci, pid, line; addresses and names are ours, the forms are of the source named
    # linux-nvme: completion status lines of 5.15 and later, fabrics
    ("block_io/medium_error", None, None, "nvme0n1: Read(0x2) @ LBA 64, 8 blocks, Unrecovered Read Error (sct 0x2 / sc 0x81) MORE DNR"),
    ("block_io/io_error", None, None, "nvme1c1n1: I/O Cmd(0x2) @ LBA 64, 8 blocks, I/O Error (sct 0x3 / sc 0x71)"),
    ("block_io/nvme_reset", None, None, "nvme nvme3: starting error recovery"),
    ("block_io/nvme_disabled", None, None, "nvme nvme3: Identify Controller failed (-4)"),
    ("block_io/offline", None, None, "scsi: Device offlined - not ready after error recovery: host 3 channel 0 id 0 lun 0"),
    ("filesystem/error", None, None, "libceph: mon2 10.0.0.9:6789 feature set mismatch, my 106b84a842a42 < server's 40106b84a842a42, missing 400000000000000"),
    # kernel mailing lists, 2025: a GPU that does not come back from sleep, RoCE without a queue, RAID without firmware, a slot without room, Arm's IOMMU
    # drivers/gpu/drm/i915, drivers/gpu/drm/xe; reports on intel-gfx and intel-xe
    ("intel_gpu/hang", "0000:00:02.0", 25627, "i915 0000:00:02.0: [drm] GPU HANG: ecode 9:1:e757fefe, in test_g_monitor_ [25627]"),
    ("intel_gpu/hang", "0000:00:02.0", None, "i915 0000:00:02.0: [drm] GPU HANG: ecode 12:0:00000000"),
    ("intel_gpu/hang", None, 19819, "[drm] GPU HANG: ecode 7:0:0x85df3c1c, in Xorg [19819], reason: Ring hung, action: reset"),
    ("intel_gpu/hang", "0000:00:02.0", None, "i915 0000:00:02.0: [drm] Resetting rcs0 for preemption time out"),
    ("intel_gpu/hang", "0000:00:02.0", 25627, "i915 0000:00:02.0: [drm] test_g_monitor_[25627] context reset due to GPU hang"),
    ("intel_gpu/hang", "0000:00:02.0", 77, "i915 0000:00:02.0: [drm] reset failed (1[77] context reset due to GPU hang"),
    ("intel_gpu/reset_begin", "0000:00:02.0", None, "i915 0000:00:02.0: [drm] GT0: Resetting chip for stopped heartbeat on rcs0"),
    ("intel_gpu/reset_failed", "0000:00:02.0", None, "i915 0000:00:02.0: [drm] *ERROR* GT0: Failed to reset chip"),
    ("intel_gpu/reset_failed", "0000:00:02.0", None, "i915 0000:00:02.0: [drm] *ERROR* GT0: Failed to initialise HW following reset (-5)"),
    ("intel_gpu/hang", "0000:00:02.0", None, "i915 0000:00:02.0: Resetting rcs0 for hang on rcs0"),
    ("intel_gpu/reset_failed", "0000:00:02.0", None, "i915 0000:00:02.0: Failed to reset chip"),
    ("intel_gpu/wedged", "0000:00:02.0", None, "i915 0000:00:02.0: Failed to initialize GPU, declaring it wedged!"),
    ("intel_gpu/wedged", "0000:00:02.0", None, "i915 0000:00:02.0: [drm] *ERROR* intel_gt_reset_global timed out, cancelling all in-flight rendering."),
    ("intel_gpu/hang", "0000:03:00.0", 26019, "xe 0000:03:00.0: [drm] GT0: Timedout job: seqno=4294967169, lrc_seqno=4294967169, guc_id=2, flags=0x0 in xe_exec_reset [26019]"),
    ("intel_gpu/hang", "0000:00:02.0", None, "xe 0000:00:02.0: [drm] Tile0: GT0: Engine reset: engine_class=rcs, logical_mask: 0x1, guc_id=27"),
    ("intel_gpu/hang", "0000:03:00.0", None, "xe 0000:03:00.0: [drm] Tile0: GT0: Engine memory CAT error [18]: class=bcs, logical_mask: 0x1, guc_id=0"),
    ("intel_gpu/page_fault", "0000:03:00.0", None, "xe 0000:03:00.0: [drm] Tile0: GT0: Fault response: Unsuccessful -EINVAL"),
    ("intel_gpu/reset_begin", "0000:03:00.0", None, "xe 0000:03:00.0: [drm] GT0: trying reset from guc_exec_queue_timedout_job [xe]"),
    ("intel_gpu/reset_done", "0000:03:00.0", None, "xe 0000:03:00.0: [drm] GT0: reset done"),
    ("intel_gpu/reset_failed", "0000:06:00.0", None, "xe 0000:06:00.0: [drm] *ERROR* GT0: reset failed (-ETIMEDOUT)"),
    ("intel_gpu/wedged", "0000:09:00.0", None, "xe 0000:09:00.0: [drm] *ERROR* CRITICAL: Xe has declared device 0000:09:00.0 as wedged."),
    ("intel_gpu/wedged", "0000:03:00.0", None, "xe 0000:03:00.0: [drm] device wedged, needs recovery"),
    ("intel_gpu/reset_done", "0000:03:00.0", None, "xe 0000:03:00.0: [drm] device wedged, but recovered through reset"),
    ("intel_gpu/fatal", "0000:03:00.0", None, "xe 0000:03:00.0: [drm] *ERROR* [Hardware Error]: Tile0 reported FATAL error 0x20000"),
    ("intel_gpu/nonfatal", "0000:03:00.0", None, "xe 0000:03:00.0: [drm] *ERROR* [Hardware Error]: Tile0 reported NONFATAL error 0x20000"),
    ("intel_gpu/nonfatal", "0000:03:00.0", None, "xe 0000:03:00.0: [drm] *ERROR* [Hardware Error]: NONFATAL: HEC Uncorrected FW FD Corruption error reported, bit[2] is set"),
    ("intel_gpu/survivability", "0000:03:00.0", None, "xe 0000:03:00.0: Runtime Survivability mode enabled"),
    ("intel_gpu/firmware", "0000:09:00.0", None, "xe 0000:09:00.0: [drm] *ERROR* GT0: load failed: status = 0x800001EC, time = 3297ms, freq = 2400MHz (req 2400MHz), done = 0"),
    ("intel_gpu/firmware", "0000:09:00.0", None, "xe 0000:09:00.0: [drm] *ERROR* GT0: GuC mmio request 0x4100: no reply 0x4100"),
    ("intel_gpu/firmware", "0000:00:02.0", None, "xe 0000:00:02.0: [drm] *ERROR* TLB invalidation fence timeout, seqno=3 recv=2"),
    ("gpu_lost/intel_lost", "0000:06:00.0", None, "xe 0000:06:00.0: [drm] *ERROR* GT0: Force wake domain 0: MMIO unreliable (0xFFFFFFFF)"),
    ("none", None, None, "i915 0000:00:02.0: [drm] GuC firmware i915/dg2_guc_70.bin version 70.36.0"),
    ("none", None, None, "i915 0000:00:02.0: [drm] GPU hangs can indicate a bug anywhere in the entire gfx stack, including userspace."),
    ("none", None, None, "xe 0000:03:00.0: [drm] Xe device coredump has been created"),
    ("none", None, None, "xe 0000:03:00.0: [drm] Using GuC firmware from i915/dg2_guc_70.bin version 70.36.0"),
    ("none", None, None, "xe 0000:03:00.0: [drm] VISIBLE VRAM: 0x0000004000000000, 0x0000000400000000"),
    ("none", None, None, "bxe 0000:03:00.0: [drm] device wedged, needs recovery"),
    # drivers/accel/habanalabs, its device's name in each release
    ("habanalabs/heartbeat", None, None, "habanalabs hl0: Device heartbeat failed! PCI link is healthy"),
    ("habanalabs/heartbeat", "0000:21:00.0", None, "habanalabs 0000:21:00.0: Device heartbeat failed! PCI link is broken"),
    ("habanalabs/heartbeat", None, None, "accel accel0: Device heartbeat failed! PCI link is broken"),
    ("habanalabs/unusable", None, None, "habanalabs hl3: 0000:21:00.0 Failed to reset! Device is NOT usable"),
    ("habanalabs/unusable", "0000:21:00.0", None, "habanalabs 0000:21:00.0: Failed to initialize hl0. Device 0000:21:00.0 is NOT usable !"),
    ("habanalabs/unusable", None, None, "habanalabs: Failed to initialize hl0. Device is NOT usable !"),
    ("habanalabs/unusable", None, None, "habanalabs hl3: 0000:21:00.0 Consecutive FW fatal errors received, stopping hard reset"),
    ("habanalabs/reset_begin", None, None, "habanalabs hl0: Going to reset device"),
    ("habanalabs/reset_done", None, None, "habanalabs hl0: Successfully finished resetting the 0000:21:00.0 device"),
    ("habanalabs/ecc_uncorrectable", None, None, "habanalabs hl0: HBM0_MC0_DERR: ECC error detected. address: 0x1000. Syndrome: 0x1. wrapper id 3. block id 0x2. critical 0."),
    ("habanalabs/ecc_uncorrectable", None, None, "habanalabs hl0: ECC error detected. address: 0x1000. Syndrom: 0x1. block id 2. critical 1."),
    ("habanalabs/ecc_correctable", None, None, "habanalabs hl0: TPC0_SERR: ECC error detected. address: 0x1000. Syndrom: 0x1. block id 2. critical 0."),
    ("habanalabs/ecc", None, None, "habanalabs hl0: ECC error detected. address: 0x1000. Syndrom: 0x1. block id 2"),
    ("habanalabs/hbm", None, None, "habanalabs hl0: System Error Interrupt - HBM(0) MC(1) MC_CH(0) MC_PC(1). Error cause: Command parity error"),
    ("habanalabs/hbm_critical", None, None, "habanalabs hl0: System Error Interrupt - HBM(0) MC(1) MC_CH(0) MC_PC(1). Critical(1). Error cause: Temperature"),
    ("habanalabs/firmware", None, None, "habanalabs hl0: EQ error interrupt received"),
    ("habanalabs/command_timeout", None, None, "habanalabs hl0: Command submission 1234 has not finished in time!"),
    ("habanalabs/command_timeout", None, None, "habanalabs hl0: Signal command submission 1234 has not finished in 30 seconds!"),
    ("habanalabs/overheating", None, None, "habanalabs hl0: Clock throttling due to overheating"),
    ("none", None, None, "habanalabs hl0: Loading secured firmware to device, may take some time..."),
    ("none", None, None, "habanalabs hl0: boot-fit version 49.0.0-sec-9"),
    ("none", None, None, "habanalabs: loading driver, version: 1.18.0-ee698fb"),
    ("none", None, None, "accel accel0: Successfully added device 0000:21:00.0 to habanalabs driver"),
    ("none", None, None, "habanalabs hl0: Received unexpected user error interrupt"),
    ("amdgpu/init_failed", None, None, "[drm:amdgpu_device_ip_resume_phase2 [amdgpu]] *ERROR* resume of IP block <smu> failed -62"),
    ("amdgpu/smu", "0000:03:00.0", None, "amdgpu 0000:03:00.0: amdgpu: Failed to setup smc hw!"),
    ("ib_link/init_failed", "0000:82:00.0", None, "bnxt_en 0000:82:00.0 bnxt_re0: Failed to create HW CQ"),
    ("ib_link/init_failed", None, None, "infiniband bnxt_re0: Couldn't open port 1"),
    ("block_io/raid_fault", "0000:01:00.0", None, "megaraid_sas 0000:01:00.0: Init cmd return status FAILED for SCSI host 2"),
    ("driver/init_failed", None, None, "NVRM: pci_enable_device failed, aborting"),
    ("iommu/page_fault", None, None, "arm-smmu arm-smmu.1.auto: Unhandled context fault: fsr=0x402, iova=0x8010003f6000, fsynr=0x70091, cbfrsynra=0x9000, cb=7"),
    ("iommu/event", None, None, "arm-smmu arm-smmu.1.auto: TLB sync timed out -- SMMU may be deadlocked"),
    ("none", None, None, "AirPort: Link Down on en0. Reason 8 (Disassociated because station leaving)."),
    # linux-raid
    ("block_io/medium_error", None, None, "md/raid:md7: read error not correctable (sector 9 on sdd1)."),
    ("block_io/medium_error", None, None, "md/raid1:md7: read error corrected (8 sectors at 9 on sdc1)"),
    ("block_io/md_degraded", None, None, "md/raid1:md7: active with 1 out of 2 mirrors"),
    ("block_io/md_degraded", None, None, "md/raid:md7: raid level 5 active with 4 out of 5 devices, algorithm 2"),
    ("block_io/md_degraded", None, None, "md/raid1:md7: Operation continuing on 1 devices."),
    ("block_io/md_fail", None, None, "md/raid:md7: Too many read errors on sdb1, failing device sdb1."),
    ("none", None, None, "md/raid1:md7: active with 2 out of 2 mirrors"),
    ("none", None, None, "md/raid:md7: raid level 6 active with 10 out of 10 devices, algorithm 2"),
    # linux-block: every status a request can end with
    ("block_io/io_error", None, None, "blk_update_request: protection error, dev nvme0n1, sector 8 op 0x0:(READ) flags 0x0"),
    ("block_io/io_error", None, None, "recoverable transport error, dev sdd, sector 12 op 0x1:(WRITE)"),
    ("block_io/io_error", None, None, "timeout error, dev sdd, sector 12 op 0x1:(WRITE)"),
    ("block_io/target_error", None, None, "reservation conflict error, dev sdd, sector 12 op 0x1:(WRITE)"),
    ("block_io/offline", None, None, "device offline error, dev sdd, sector 12 op 0x1:(WRITE)"),
    ("none", None, None, "blk_update_request: operation not supported error, dev loop1, sector 8 op 0x9:(WRITE_ZEROES)"),
    ("none", None, None, "blk_update_request: I/O error, dev fd0, sector 0 op 0x0:(READ) flags 0x0"),
    ("none", None, None, "Buffer I/O error on dev sr0, logical block 0, async page read"),
    # linux-scsi, linux-ide
    ("block_io/io_error", None, None, "sd 1:0:4:0: [sdar] Sense Key : Not Ready [current] [descriptor] "),
    ("block_io/io_error", None, None, "sd 0:0:0:0: [sda] tag#14 FAILED Result: hostbyte=DID_NO_CONNECT driverbyte=DRIVER_OK"),
    ("block_io/offline", None, None, "sd 4:0:0:0: [sdc] killing request"),
    ("none", None, None, "sd 4:0:0:0: [sdc] Sense Key : Illegal Request [current] "),
    ("block_io/ata_error", None, None, "ata3.00: status: { DRDY ERR }"),
    ("block_io/ata_error", None, None, "ata3: COMRESET failed (errno=-16)"),
    ("block_io/ata_error", None, None, "ata3.00: disabled"),
    ("none", None, None, "ata3.00: configured for UDMA/133"),
    ("block_io/path_failed", None, None, "device-mapper: multipath: Failing path 8:64."),
    ("block_io/raid_fault", None, None, "mpt3sas_cm0: SAS host is non-operational !!!!"),
    # ext4, xfs, btrfs lists
    ("block_io/io_error", None, None, "EXT4-fs warning (device sda1): ext4_end_bio:323: I/O error 10 writing to inode 9"),
    ("block_io/data_loss", None, None, "EXT4-fs (dm-3): failed to convert unwritten extents to written extents -- potential data loss!  (inode 12, error -30)"),
    ("block_io/io_error", None, None, "JBD2: Error -5 detected when updating journal superblock for sda1-8."),
    ("block_io/fs_shutdown", None, None, "XFS (nvme0n1p1): User initiated shutdown received."),
    ("block_io/io_error", None, None, "BTRFS: error (device dm-0: state A) in btrfs_commit_transaction:2494: errno=-5 IO failure"),
    ("none", None, None, "BTRFS warning (device sda2): excessive commit interval 3600"),
    # stable@: mlx5 commands and recovery; probes without a device in front
    ("ib_link/cmd_timeout", "0000:06:00.0", 185911, "mlx5_core 0000:06:00.0: wait_func_handle_exec_timeout:1128:(pid 185911): cmd[-22]: CREATE_UCTX(0xa04) No done completion"),
    ("none", None, None, "mlx5_core 0000:06:00.0: wait_func_handle_exec_timeout:1113:(pid 3122): cmd[0]: CREATE_CQ(0x400) recovered after timeout"),
    ("ib_link/health_fatal", "0000:06:00.0", 5, "mlx5_core 0000:06:00.0: mlx5_health_try_recover:327:(pid 5): handling bad device here"),
    ("ib_link/init_failed", "0000:06:00.0", None, "mlx4_core: probe of 0000:06:00.0 failed with error -12"),
    ("ib_link/port_down", "0000:05:00.0", None, "hfi1 0000:05:00.0: hfi1_0: logical state changed to PORT_DOWN (0x1)"),
    ("ib_link/port_down", "0000:05:00.0", None, "hfi1 0000:05:00.0: hfi1_0: set_link_state: current ACTIVE, new OFFLINE "),
    ("none", None, None, "hfi1 0000:05:00.0: hfi1_0: Eager buffer size 8388608"),
    ("ib_link/cqe_error", "0000:05:00.0", None, "hfi1 0000:05:00.0: hfi1_0: [QP7] hfi1_tid_timeout 4084"),
    ("ib_link/health_fatal", "0000:05:00.0", None, "hfi1 0000:05:00.0: hfi1_0: Critical temperature reached! Forcing device into freeze mode!"),
    ("ib_link/init_failed", "0000:05:00.0", None, "hfi1 0000:05:00.0: hfi1_0: 8051 start timeout, current state 0x0"),
    # nouveau, old and new
    ("nouveau/engine_fault", "0000:01:00.0", None, "nouveau 0000:01:00.0: fifo: SCHED_ERROR 0a [CTXSW_TIMEOUT]"),
    ("nouveau/engine_fault", None, None, "nouveau: fifo: fault 00 [READ] at 0x46f000 engine 05 [BAR2] client 07 [HUB/HOST_CPU] reason 02 [PTE]"),
    ("nouveau/engine_fault", "0000:01:00.0", None, "nouveau 0000:01:00.0: fifo: channel 5: killed"),
    ("nouveau/lockup", "0000:01:00.0", None, "nouveau 0000:01:00.0: DRM: GPU lockup - switching to software fbcon"),
    ("nouveau/lockup", "0000:02:00.0", None, "[drm] nouveau 0000:02:00.0: GPU lockup - switching to software fbcon"),
    ("none", None, None, "nouveau 0000:01:00.0: DRM: VRAM: 2048 MiB"),
    ("none", None, None, "nouveau 0000:01:00.0: fifo: 32 channels"),
    # lkml: watchdogs of 6.x, oopses of arm64
    ("hung_task/120", None, 34, "INFO: task jbd2/sda1-8:34 blocked in I/O wait for more than 120 seconds."),
    ("hung_task/hard_lockup", None, None, "watchdog: CPU 4 detected hard LOCKUP on other CPUs 5"),
    ("hung_task/hard_lockup", None, None, "watchdog: CPU 5 Hard LOCKUP"),
    ("panic/oops", None, None, "invalid opcode: 0000 [#1] SMP PTI"),
    ("none", None, None, "traps: python[99] trap invalid opcode ip:7f sp:7f error:0 in libtorch.so[7f+1a]"),
    ("panic/oops", None, None, "Unable to handle kernel NULL pointer dereference at virtual address 0000000000000010"),
    ("panic/oops", None, None, "BUG: Bad page state in process python  pfn:1234"),
    # linux-mm
    ("oom/alloc_failure", None, None, "swapper/0: page allocation failure. order:1, mode:0x20"),
    ("oom/alloc_failure", None, None, "SLUB: Unable to allocate memory on node -1, gfp=0xa20(GFP_ATOMIC)"),
    ("oom/global", None, None, "Out of memory and no killable processes..."),
    ("panic/panic", None, None, "Kernel panic - not syncing: Out of memory and no killable processes..."),
    # linux-edac, linux-acpi
    ("mce/detail", None, None, "Machine check events logged"),
    ("edac/detail", None, None, "sbridge: HANDLING MCE MEMORY ERROR"),
    ("mce/memory_failure", None, 77, "Memory failure: 0x3f7a2c: Sending SIGBUS to python:77 due to hardware memory corruption"),
    ("mce/uncorrected", None, None, "Kernel panic - not syncing: Fatal local machine check"),
    ("mce/uncorrected", None, None, "Kernel panic - not syncing: Timeout: Not all CPUs entered broadcast exception handler"),
    ("mce/soft_offline", None, None, "RAS: Soft-offlining pfn: 0x12345"),
    ("mce/nmi", None, None, "NMI: PCI system error (SERR) for reason a1 on CPU 0."),
    ("none", None, None, "NMI watchdog: Enabled. Permanently consumes one hw-PMU counter."),
    ("thermal/cpu_throttle", None, None, "mce: CPU12: Core temperature is above threshold, cpu clock is throttled (total events = 1)"),
    ("thermal/critical", None, None, "ACPI: Critical trip point"),
    # linux-pci: names of bits before 4.18, reports by firmware, containment
    ("pcie_aer/fatal", "0000:5d:00.0", None, "nvidia 0000:5d:00.0:    [ 5] Surprise Down Error   "),
    ("pcie_aer/uncorrected", "0000:5d:00.0", None, "nvidia 0000:5d:00.0: aer_status: 0x00100000, aer_mask: 0x00000000"),
    ("pcie_aer/unknown", "0000:5d:00.0", None, "nvidia 0000:5d:00.0:   Error of this Agent(5d00) is reported first"),
    ("pcie_aer/recovery_failed", "0000:5d:00.0", None, "nvidia 0000:5d:00.0: AER: can't recover (no error_detected callback)"),
    ("pcie_link/train_failed", "0000:00:01.0", None, "pcieport 0000:00:01.0: DPC: Data Link Layer Link Active not set in 1000 msec"),
    ("pcie_link/link_down", "0000:00:01.0", None, "pcieport 0000:00:01.0: pciehp: Slot(1): No link"),
    # netdev
    ("eth_link/link_down", None, None, "e1000e: eth0 NIC Link is Down"),
    ("eth_link/tx_timeout", "0000:00:1f.6", None, "e1000e 0000:00:1f.6 eno1: Detected Hardware Unit Hang:"),
    # NVIDIA/open-gpu-kernel-modules issues and discussion 725, Debian and Ubuntu forums
    ("driver/init_failed", None, None, "NVRM: rm_init_adapter(0) failed"),
    ("gsp/boot_failed", None, None, "NVRM: RmInitAdapter: Cannot initialize GSP firmware RM"),
    ("gsp/boot_failed", None, None, "NVRM: _kgspBootGspRm: unexpected WPR2 already up, cannot proceed with booting GSP"),
    ("gsp/unresponsive", None, None, "NVRM: _kgspIsHeartbeatTimedOut: Heartbeat timed out"),
    ("gsp/unresponsive", None, None, "NVRM: _kgspLogRpcSanityCheckFailure: GPU0 sanity check failed 0xf waiting for RPC response from GSP."),
    # linux-nfs, ceph-users, lustre-discuss
    ("nfs/error", None, None, "NFS: Server fct reports our clientid is in use"),
    ("nfs/error", None, None, "nfs4_discover_server_trunking unhandled error -512. Exiting with error EIO"),
    ("nfs/lease", None, None, "NFS: state manager encountered RPCSEC_GSS session expired against NFSv4 server foo."),
    ("filesystem/not_responding", None, None, "libceph: osd1 (1)192.168.122.1:6843 bad crc/signature"),
    ("filesystem/not_responding", None, None, "ceph: mds3 closed our session"),
    ("filesystem/evicted", None, None, "ceph: mds3 reconnect denied"),
    ("filesystem/evicted", None, None, "ceph: mds3 rejected session"),
    ("filesystem/not_responding", None, None, "libceph: osd32 10.240.12.89:6804 connection reset"),
    ("lustre/network", None, None, "LNet: Service thread pid 77 was inactive for 200.01s. The thread might be hung"),
    # amzn-drivers issues 134 and 147, coreos bugs 2508, a healthy desktop's boot
    ("eth_link/tx_timeout", "0000:00:03.0", None, "ena 0000:00:03.0 eth0: The number of lost tx completions is above the threshold (156 > 128). Reset the device"),
    ("none", None, None, "ena 0000:00:05.0 eth0: wd_expired: 1"),
    ("eth_link/bond_slave_down", None, None, "bond0: link status down for interface enp1s0f0, disabling it in 200 ms"),
    ("none", None, None, "pci 0000:01:00.0: 32.000 Gb/s available PCIe bandwidth, limited by 2.5 GT/s PCIe x16 link at 0000:00:01.0 (capable of 126.016 Gb/s with 8.0 GT/s PCIe x16 link)"),
    ("pcie_aer/link_degraded", "0000:01:00.0", None, "mlx5_core 0000:01:00.0: 31.504 Gb/s available PCIe bandwidth, limited by 2.5 GT/s PCIe x16 link at 0000:00:01.0 (capable of 252.048 Gb/s with 16.0 GT/s PCIe x16 link)"),
    # a second search, of lines nobody here had read: NVIDIA forums and bug reports
    ("xid/8", "0000:5d:00.0", None, "NVRM: Xid (PCI:0000:5d:00.0): 8, name=worker, channel 0x0000000d"),
    ("driver/bar_invalid", "0000:5d:00.0", None, "NVRM: BAR1 is 0M @ 0x0 (PCI:0000:5d:00.0)"),
    # netdev, linux-rdma, s390: what mlx5 says once its device is gone; EFA's queue that does not answer
    ("ib_link/health_fatal", "0000:06:00.0", 0, "mlx5_core 0000:06:00.0: print_health_info:491:(pid 0): PCI slot is unavailable"),
    ("ib_link/health_fatal", "0000:06:00.0", 0, "mlx5_core 0000:06:00.0: print_health:819:(pid 0): Fatal error detected"),
    ("ib_link/health_fatal", None, 948, "mlx5_core.sf mlx5_core.sf.25: mlx5_health_try_recover:387:(pid 948): starting health recovery flow"),
    ("none", None, None, "mlx5_core 0000:06:00.0: print_health_info:435:(pid 0): assert_var[0] 0x0521945b"),
    ("none", None, None, "mlx5_core 0000:06:00.0: mlx5_cmd_eq_recover:247:(pid 22): Recovered 1 EQEs on cmd_eq"),
    ("ib_link/cmd_timeout", None, None, "infiniband rdmap16s27: The device didn't send any completion for admin cmd CREATE_QP(6) status 0 (ctx 0x1d2f9d31)"),
    ("ib_link/cmd_timeout", "0000:00:06.0", None, "efa 0000:00:06.0: Wait for completion (polling) timeout"),
    ("none", None, None, "ena 0000:00:05.0: Wait for completion (polling) timeout"),
    ("eth_link/netdev_watchdog", None, None, "NETDEV WATCHDOG: eth0: transmit timed out"),
    ("ib_link/netdev_watchdog", None, None, "NETDEV WATCHDOG: ib0: transmit timed out"),
    ("eth_link/link_down", None, None, "bnx2: eth0 NIC Copper Link is Down"),
    # NetworkManager gives one reason for a carrier that came and one that went
    ("ib_link/lost_carrier", None, None, "device (enp6s0): state change: activated -> unavailable (reason 'carrier-changed', sys-iface-state: 'managed')"),
    ("ib_link/lost_carrier", None, None, "(eth0): carrier now OFF (device state 100, deferring action for 4 seconds)"),
    ("none", None, None, "device (enp6s0): state change: unavailable -> disconnected (reason 'carrier-changed', sys-iface-state: 'managed')"),
    ("none", None, None, "(eth0): carrier now ON (device state 20)"),
    # linux-pci, linux-acpi: firmware's reports name the device on a line of its own
    ("mce/detail", "0000:5d:00.0", None, "{1}[Hardware Error]:   device_id: 0000:5d:00.0"),
    ("pcie_aer/recovery_failed", "0000:00:01.0", None, "pcieport 0000:00:01.0: AER: subordinate device reset failed"),
    ("mce/memory_failure", None, 77, "MCE 0x3f7a2: Killing python:77 early due to hardware memory corruption"),
    # arm64, x86 before 6.9, RCU's other flavours
    ("panic/oops", None, None, "Internal error: synchronous external abort: 96000410 [#1] SMP"),
    ("panic/oops", None, None, "divide error: 0000 [#1] SMP NOPTI"),
    ("panic/oops", None, None, "divide_error: 0000 [#1] PREEMPT SMP"),
    ("panic/oops", None, None, "general_protection: 0010 [#2] SMP"),
    ("panic/oops", None, None, "int3: 0000 [#1]"),
    ("none", None, None, "traps: python[99] trap divide error ip:7f sp:7f error:0 in libtorch.so[7f+1a]"),
    ("hung_task/rcu_stall", None, None, "INFO: rcu_tasks detected stalls on tasks:"),
    # drives and their file systems
    ("block_io/nvme_disabled", "0000:5d:00.0", None, "nvme 0000:5d:00.0: probe with driver nvme failed with error -5"),
    ("block_io/nvme_disabled", "0000:5d:00.0", None, "nvme: probe of 0000:5d:00.0 failed with error -19"),
    ("block_io/nvme_disabled", "0000:5d:00.0", None, "nvme 0000:5d:00.0: Device failed to resume"),
    ("block_io/nvme_reset", "0000:5d:00.0", None, "nvme 0000:5d:00.0: Failed status: ffffffff, reset controller"),
    ("block_io/raid_fault", "0000:5d:00.0", None, "smartpqi 0000:5d:00.0: controller offline"),
    ("block_io/raid_fault", "0000:5d:00.0", None, "megaraid_sas 0000:5d:00.0: FW in FAULT state, Fault code:0x10000 subcode:0x0"),
    ("block_io/buffer_io", None, None, "lost page write due to I/O error on sda1"),
    ("none", None, None, "lost page write due to I/O error on sr0"),
    ("block_io/io_error", None, None, "sd 0:0:1:0: [sdb] Result: hostbyte=DID_BAD_TARGET driverbyte=DRIVER_OK,SUGGEST_OK"),
    ("block_io/ata_error", None, None, "ata2.00: irq_stat 0x08000000, interface fatal error"),
    ("block_io/md_fail", None, None, "raid1: Disk failure on sdb1, disabling device. "),
    ("block_io/fs_shutdown", None, None, "EXT4-fs error (device sda1): ext4_journal_check_start:83: comm kworker: Detected aborted journal"),
    ("block_io/fs_error", None, None, "XFS (md7): Metadata CRC error detected at xfs_dir3_block_read_verify+0xbf/0xe0 [xfs], xfs_dir3_block block 0x88"),
    # network file systems
    ("nfs/not_responding", None, None, "rpcbind: server 10.0.0.1 not responding, timed out"),
    ("nfs/not_responding", None, None, "nfs: server <file server> not responding, still trying"),
    ("lustre/15c-8", None, None, "LustreError: 15c-8: MGC10.0.0.1@tcp: Configuration from log fs-client failed from MGS -5"),
    ("lustre/evicted", None, None, "Lustre: Evicted from MGS (at 10.0.0.1@tcp) after server handle changed from 0x1db6a to 0x24b19"),
    ("filesystem/not_responding", None, None, "ceph: [e3b0c442-98fc-1c14-9afb-f4c8996fb924 64123]: mds0 hung"),
    ("filesystem/evicted", None, None, "ceph: mds0 session blocklisted"),
    ("none", None, None, "ceph: mds0 reconnect start"),
    # gpu-operator 121; drives in slots of an earlier generation; links as kernels before 5.7 print them
    ("driver/version_mismatch", None, None, "nvidia-nvswitch: Version mismatch, kernel version 450.80.02 user version 450.51.06"),
    ("none", None, None, "pci 0000:17:00.0: 63.012 Gb/s available PCIe bandwidth, limited by 16.0 GT/s PCIe x4 link at 0000:16:05.0 (capable of 126.024 Gb/s with 32.0 GT/s PCIe x4 link)"),
    ("pcie_aer/link_degraded", "0000:56:00.0", None, "pci 0000:56:00.0: 63.012 Gb/s available PCIe bandwidth, limited by 16.0 GT/s PCIe x4 link at 0000:00:1c.0 (capable of 126.024 Gb/s with 16.0 GT/s PCIe x8 link)"),
    ("pcie_aer/link_degraded", "0000:01:00.0", None, "mlx5_core 0000:01:00.0: 63.008 Gb/s available PCIe bandwidth, limited by 8 GT/s x8 link at 0000:00:03.0 (capable of 126.016 Gb/s with 8 GT/s x16 link)"),
    ("none", None, None, "pci 0000:01:00.0: 32.000 Gb/s available PCIe bandwidth, limited by 2.5 GT/s x16 link at 0000:00:02.0 (capable of 126.016 Gb/s with 8 GT/s x16 link)"),
    # drivers/gpu/drm/amd of Linux 6.x and ROCm's driver, reports on dri-devel and amd-gfx
    ("amdgpu/ras_uncorrectable", "0000:0b:00.0", None, "amdgpu 0000:0b:00.0: amdgpu: 2 uncorrectable hardware errors detected in umc block"),
    ("amdgpu/ras_uncorrectable", "0000:0b:00.0", None, "amdgpu 0000:0b:00.0: amdgpu: {12} socket: 0, die: 1, 2 new uncorrectable hardware errors detected in umc block"),
    ("amdgpu/ras_total", "0000:0b:00.0", None, "amdgpu 0000:0b:00.0: amdgpu: socket: 0, die: 1, 2 uncorrectable hardware errors detected in total in umc block"),
    ("amdgpu/ras_deferred", "0000:0b:00.0", None, "amdgpu 0000:0b:00.0: amdgpu: socket: 0, die: 1, 1 new deferred hardware errors detected in umc block"),
    ("amdgpu/ras_correctable", "0000:0b:00.0", None, "amdgpu 0000:0b:00.0: 1 correctable hardware errors detected in gfx block"),
    ("none", None, None, "amdgpu 0000:0b:00.0: amdgpu: 0 uncorrectable hardware errors detected in umc block"),
    ("none", None, None, "amdgpu 0000:0b:00.0: amdgpu: no uncorrectable hardware errors detected in umc block"),
    ("amdgpu/poison", "0000:0b:00.0", None, "amdgpu 0000:0b:00.0: amdgpu: poison is consumed by client 12, kick off gpu reset flow"),
    ("amdgpu/bad_page_threshold", "0000:0b:00.0", None, "amdgpu 0000:0b:00.0: amdgpu: Saved bad pages 260 reaches threshold value 256"),
    ("amdgpu/reset_begin", "0000:0b:00.0", None, "amdgpu 0000:0b:00.0: amdgpu: GPU reset begin!. Source:  1"),
    ("amdgpu/reset_done", "0000:05:00.0", None, "amdgpu 0000:05:00.0: amdgpu: GPU reset succeeded, trying to resume"),
    ("amdgpu/reset_failed", "0000:05:00.0", None, "amdgpu 0000:05:00.0: amdgpu: GPU reset failed"),
    # network drivers whose queue stood still: the words differ, the place and "tx timeout" do not
    ("eth_link/tx_timeout", "0000:31:00.0", None, "ice 0000:31:00.0 ens1f0: tx_timeout: VSI_num: 6, Q 12, NTC: 0x1c8, HW_HEAD: 0x1c8, NTU: 0x1d0, INT: 0x0"),
    ("eth_link/tx_timeout", "0000:31:00.0", None, "i40e 0000:31:00.0 ens1f0: tx_timeout recovery level 1, txqueue 12"),
    ("eth_link/tx_timeout", None, None, "r8152 4-1.2:1.0 eth1: Tx timeout"),
    ("eth_link/tx_timeout", None, None, "virtio_net virtio1 eth0: TX timeout on queue: 0, sq: output.0, vq: 0x1, name: output.0, usecs since last trans: 5250000"),
    ("eth_link/tx_timeout", "0000:31:00.0", None, "qede 0000:31:00.0 eth4: TX timeout on queue 3!"),
    ("eth_link/tx_timeout", "0000:31:00.0", None, "tg3 0000:31:00.0 eth4: transmit timed out, resetting"),
    ("eth_link/tx_timeout", "0000:7d:00.0", None, "hns3 0000:7d:00.0 eth0: tx_timeout count: 1, queue id: 4, SW_NTU: 0x30"),
    ("eth_link/tx_timeout", "0000:31:00.0", None, "ixgbe 0000:31:00.0 eth4: initiating reset due to tx timeout"),
    ("eth_link/tx_timeout", "0000:31:00.0", None, "sfc 0000:31:00.0 eth0: TX stuck with port_enabled=1: resetting channels"),
    ("none", None, None, "usb 4-1: Product: tx_timeout: VSI_num: 6"),
    ("none", None, None, "usb-storage 4-1:1.0: tx timeout"),
    ("amdgpu/reset_done", "0000:0b:00.0", None, "amdgpu 0000:0b:00.0: amdgpu: GPU reset(2) succeeded!"),
    ("amdgpu/reset_failed", "0000:0b:00.0", None, "amdgpu 0000:0b:00.0: amdgpu: GPU reset(2) failed"),
    ("amdgpu/reset_failed", "0000:0b:00.0", None, "amdgpu 0000:0b:00.0: amdgpu: GPU reset end with ret = -19"),
    ("gpu_lost/amdgpu_lost", "0000:0b:00.0", None, "amdgpu 0000:0b:00.0: amdgpu: device lost from bus!"),
    ("amdgpu/ring_timeout", None, None, "[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring gfx_0.0.0 timeout, signaled seq=3, emitted seq=5"),
    ("amdgpu/ring_recovered", "0000:0b:00.0", None, "amdgpu 0000:0b:00.0: [drm] *ERROR* ring sdma0 timeout, but soft recovered"),
    ("amdgpu/fence_timeout", "0000:0b:00.0", None, "amdgpu 0000:0b:00.0: [drm:amdgpu_ib_ring_tests [amdgpu]] *ERROR* IB test failed on gfx_0.0.0 (-110)."),
    ("amdgpu/page_fault", "0000:0b:00.0", 1234, "amdgpu 0000:0b:00.0: amdgpu: [gfxhub0] no-retry page fault (src_id:0 ring:24 vmid:8 pasid:32770, for process python3 pid 1234 thread python3 pid 1234)"),
    ("amdgpu/page_fault", "0000:0b:00.0", None, "amdgpu 0000:0b:00.0: amdgpu: [gfxhub] page fault (src_id:0 ring:24 vmid:8 pasid:32770)"),
    ("amdgpu/page_fault", "0000:0b:00.0", None, "amdgpu 0000:0b:00.0: GPU fault detected: 147 0x0a10480c"),
    ("amdgpu/page_fault", "0000:0b:00.0", None, "amdgpu 0000:0b:00.0: amdgpu: VM_L2_PROTECTION_FAULT_STATUS:0x00801031"),
    ("amdgpu/smu", "0000:0b:00.0", None, "amdgpu 0000:0b:00.0: amdgpu: SMU: I'm not done with your previous command: SMN_C2PMSG_66:0x00000006 SMN_C2PMSG_82:0x00000000"),
    ("amdgpu/init_failed", "0000:0b:00.0", None, "amdgpu 0000:0b:00.0: amdgpu: Fatal error during GPU init"),
    ("amdgpu/init_failed", "0000:0b:00.0", None, "amdgpu: probe of 0000:0b:00.0 failed with error -22"),
    ("amdgpu/xgmi", "0000:0b:00.0", None, "amdgpu 0000:0b:00.0: amdgpu: XGMI: Set topology failure on device 17, hive 3, ret -22"),
    ("none", None, None, "[drm] amdgpu kernel modesetting enabled."),
    ("none", None, None, "amdgpu 0000:0b:00.0: amdgpu: SMU is initialized successfully!"),
    ("none", None, None, "amdgpu 0000:0b:00.0: amdgpu: RAS: optional ras ta ucode is not available"),
    ("none", None, None, "amdgpu: Topology: Add dGPU node [0x740f:0x1002]"),
    # linux-iommu
    ("iommu/page_fault", "0000:23:00.0", None, "smartpqi 0000:23:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0000 address=0xffffffffffec0000 flags=0x0010]"),
    ("iommu/page_fault", "08:00.0", None, "AMD-Vi: Event logged [IO_PAGE_FAULT device=08:00.0 domain=0x002c address=0xfffffffdf8000000 flags=0x0008]"),
    ("iommu/page_fault", "07:00.0", None, "IO_PAGE_FAULT device=07:00.0 domain=0x0009 address=0x00000000df610100 flags=0x0070]"),
    ("iommu/event", "00:00.2", None, "INVALID_DEVICE_REQUEST device=00:00.2 address=0x000000fdf8000040 flags=0x0a00]"),
    ("iommu/event", "c1:00.1", None, "IOTLB_INV_TIMEOUT device=c1:00.1 address=0x000000fdf8000040]"),
    ("iommu/event", None, None, "COMMAND_HARDWARE_ERROR address=0x000000fdf8000040 flags=0x0a00]"),
    ("none", None, None, "FAULT device=y[77]: memfd_create() called without MFD_EXEC or MFD_NOEXEC_SEAL set"),
    ("none", None, None, "press 0000:07:00.0: ERROR device=07:00.0 is back"),
    ("none", None, None, "IO_PAGE_FAULT device=07:00.0 was read"),
    ("none", None, None, "A_PAGE_FAULT device=07:00.0 address=0x00000000df610100 flags=0x0070]"),
    ("none", None, None, "AMD-Vi: Event logged ["),
    ("none", None, None, "audit: comm=\"IO_PAGE_FAULT device=07:00.0\""),
    ("iommu/page_fault", "3b:00.0", None, "DMAR: [DMA Read NO_PASID] Request device [3b:00.0] fault addr 0x7f000 [fault reason 0x06] PTE Read access is not set"),
    ("iommu/page_fault", "04:00.0", None, "DMAR: [DMA Write] Request device [04:00.0] fault addr ffe00000 [fault reason 05] PTE Write access is not set"),
    ("none", None, None, "DMAR: DRHD base: 0x000000fed91000 flags: 0x1"),
    # NICs: ENA, Broadcom, mlx5
    ("eth_link/tx_timeout", "0000:00:05.0", None, "ena 0000:00:05.0 ens5: Transmit timeout"),
    ("eth_link/tx_timeout", "0000:00:05.0", None, "ena 0000:00:05.0 ens5: Found a Tx that wasn't completed on time, qid 3, index 800."),
    ("eth_link/tx_timeout", "0000:19:00.0", None, "bnxt_en 0000:19:00.0 eth0: TX timeout detected, starting reset task!"),
    ("ib_link/cmd_timeout", "0000:19:00.0", None, "bnxt_en 0000:19:00.0: QPLIB: cmdq[0x41d]=0x3 timedout (20000)msec"),
    ("none", None, None, "bnxt_en 0000:19:00.0: QPLIB: cmdq[0x4b9]=0x15 status 0x5"),
    ("ib_link/cmd_timeout", "0000:06:00.0", 7, "mlx5_core 0000:06:00.0: cmd_work_handler:943:(pid 7): failed to allocate command entry"),
    ("ib_link/cqe_error", "0000:06:00.0", 7, "mlx5_core 0000:06:00.0: mlx5_eq_cq_event:1:(pid 7): CQ error on CQN 0x1, syndrome 0x1"),
    # the OOM killer before 2.6.36
    ("oom/global", None, 1234, "Out of memory: kill process 1234 (python) score 900 or a child"),
    ("oom/memcg", None, 1234, "Memory cgroup out of memory: Kill process 1234 (python) score 900 or sacrifice child"),
    # the driver's words behind the address, as newer releases print them
    ("driver/init_failed", None, None, "nvidia 0000:3b:00.0: NVRM: RmInitAdapter failed! (0x26:0xffff:1)"),
]  # fmt: skip


@every(("kind", "pci", "pid", "line"), FOUND)
def test_forms_found_in_the_wild(kind: str, pci: str | None, pid: int | None, line: str) -> None:
    """Kind, code, PCI address and pid are what an operator would say of the line."""
    found = reader.KernelReader().read_line(f"[ 1843.308145] {line}")
    got = (
        (f"{found[1].kind}/{found[1].code}", found[1].pci_bus_id, found[1].pid)
        if found
        else ("none", None, None)
    )
    assert got == (kind, pci, pid)


@every(
    ("line", "field", "value"),
    [
        ("NVRM: Xid (PCI:0000:5d:00): 8, name=worker, channel 0x0000000d", "process", "worker"),
        (
            "NVRM: Xid (PCI:0000:5d:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (PF FLR)",
            "severity",
            Severity.LOW,
        ),
        (
            "infiniband rdmap16s27: The device didn't send any completion for admin cmd CREATE_QP(6) status 0",
            "device",
            "rdmap16s27",
        ),
        ("libceph: osd56 down", "device", "osd56"),
        ("sd 0:0:1:0: [sdb] Result: hostbyte=DID_BAD_TARGET driverbyte=DRIVER_OK", "device", "sdb"),
        (
            "EXT4-fs error (device sda1): ext4_journal_check_start:83: comm kworker: Detected aborted journal",
            "severity",
            Severity.HIGH,
        ),
        ("NETDEV WATCHDOG: eth0: transmit timed out", "device", "eth0"),
    ],
)
def test_what_else_a_line_says(line: str, field: str, value: object) -> None:
    """The part, the process and the severity, where a form hides them."""
    found = reader.KernelReader().read_message(line)
    assert found is not None
    assert getattr(found, field) == value


INTEL = (
    "i915 0000:00:02.0: {}[12] context reset due to GPU hang",
    "i915 0000:00:02.0: [drm] {}[12] context reset due to GPU hang",
    "i915 0000:00:02.0: [drm] *ERROR* {}[12] context reset due to GPU hang",
    "i915 0000:00:02.0: [drm] GPU HANG: ecode 9:1:e757fefe, in {} [12]",
    "[drm] GPU HANG: ecode 7:0:0x85df3c1c, in {} [12], reason: Ring hung, action: reset",
    "xe 0000:03:00.0: [drm] Tile0: GT0: Timedout job: seqno=1, lrc_seqno=1, guc_id=2, flags=0x0 in {} [12]",
)


@every(
    "form, name",
    itertools.product(INTEL, ["x", "python3", "wedged x", "GT0: reset done", "INFO: a", "a[1] b in c"]),
)
def test_the_process_on_an_intel_gpu_has_its_own_name(form: str, name: str) -> None:
    """The driver's own names in front of it are no part of it, however short it is, nor are words in it the driver's."""
    found = reader.KernelReader().read_message(form.format(name))
    assert found is not None
    assert (found.kind, found.code, found.process, found.pid) == ("intel_gpu", "hang", name, 12)


FABRIC = (
    "detected NVSwitch {} error 20034 on fid 0 on NVSwitch pci bus id 00000000:86:00.0 physical id 3 port 33"
)


@every("front", ["[Jul 23 2024 07:53:55] [ERROR] [tid 841] ", "Jul 23 07:53:55 n1 nv-fabricmanager[841]: "])
def test_the_fabric_managers_log_is_a_kind_of_its_own(front: str) -> None:
    """In its own file and in syslog; whoever can log under its name makes nothing grave."""
    for grade, code, severity in (
        ("fatal", "nvswitch_fatal", Severity.LOW),
        ("non-fatal", "nvswitch_nonfatal", Severity.INFO),
    ):
        found = reader.KernelReader().read_line(front + FABRIC.format(grade))
        assert found is not None
        assert (found[1].kind, found[1].code, found[1].severity) == ("fabric_manager", code, severity)
        assert (found[1].pci_bus_id, found[1].detail) == ("0000:86:00.0", {"sxid": 20034, "link": 33})
    xid = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus."
    forged = reader.KernelReader().read_line(front + xid)
    assert forged is None or forged[1].kind == "fabric_manager"


@every(
    ("line", "code"),
    [
        (
            "Aug 11 06:47:54 n1 nv-fabricmanager[186868]: fabric manager NVIDIA GPU driver interface version 595.71.05 don't match with driver version 590.48.01. Please update.",
            "start_failed",
        ),
        (
            "[Jul 23 2024 07:53:55] [ERROR] [tid 9] detected number of NVSwitches don't match with any supported system topology, aborting fabric manager",
            "start_failed",
        ),
        (
            "Jul 23 07:53:55 n1 nv-fabricmanager: [ERROR] failed to initialize all the NVSwitches",
            "start_failed",
        ),
        ("[Jul 23 2024 07:53:55] [ERROR] [tid 9] NVLink training failed on GPU 3", "nvlink"),
        ("[Jul 23 2024 07:53:55] [ERROR] [tid 9] something else", "error"),
        ("[Jul 23 2024 07:53:55] [INFO] [tid 9] Received an inband message:  Message header details", None),
        ("Jul 23 07:53:55 n1 nv-fabricmanager[841]: Connected to 1 node.", None),
        ("Jul 23 07:53:55 n1 nvidia-persistenced[841]: device 0000:3b:00.0 - failed to open.", "persistence"),
        ("Jul 23 07:53:55 n1 nvidia-persistenced[841]: Started (841)", None),
    ],
)
def test_what_nvidias_services_say(line: str, code: str | None) -> None:
    """Failures by what they are; the daily chatter is none."""
    found = reader.KernelReader().read_line(line)
    assert (found[1].kind, found[1].code) == ("fabric_manager", code) if found else code is None


_SURPRISE_DOWN = """pcieport 0000:02:02.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Receiver ID)
pcieport 0000:02:02.0:   device [10b5:8718] error status/mask=00000020/00000000
pcieport 0000:02:02.0:    [ 5] SDES                   (First)
"""


@every("margin", ["  ", "\t\t", "      "])
def test_a_log_that_is_set_in_as_a_whole_is_read(margin: str) -> None:
    """Pasted into a text: no line can be the rest of another's name where all begin so."""
    text = "".join(f"{margin}{line}\n" for line in _SURPRISE_DOWN.splitlines())
    found = list(classify.classify_stream(io.BytesIO(text.encode()), "kernel"))
    assert [(f["kind"], f["code"]) for f in found] == [("pcie_aer", "fatal")] * 3
    forged = f"usb 1-1: Product: a\n{text}"
    assert list(classify.classify_stream(io.BytesIO(forged.encode()), "kernel")) == []


_ATTACHED = (
    "Generic FE-GE Realtek PHY r8169-0-800:00: attached PHY driver (mii_bus:phy_addr=r8169-0-800:00, irq=MAC)"
)
_DOWN = "r8169 0000:08:00.0 enp8s0: Link is Down"


@every(
    ("lines", "n"),
    [
        ([_ATTACHED, _DOWN], 0),
        ([_DOWN], 1),
        ([_ATTACHED, _DOWN, _DOWN], 1),
        ([_ATTACHED, "igb 0000:09:00.0 eno1: Link is Down"], 1),
    ],
)
def test_an_interface_that_is_being_set_up_has_lost_no_link(lines: list[str], n: int) -> None:
    """It calls its link down once before that was ever up; what is called so later went down."""
    engine = reader.KernelReader()
    found = [engine.read_line(f"[    7.5] {line}") for line in lines]
    assert sum(f is not None and f[1].kind == "eth_link" for f in found) == n


@every(
    ("tag", "message", "code", "device"),
    [
        ("ipmiseld[9]", "SEL System Event: May-04-2026, 06:00:00, DIMM_A1, Memory, Uncorrectable memory error", "memory", None),
        ("ipmiseld[9]", "SEL System Event: May-04-2026, 06:00:00, PS1, Power Supply, Power Supply Failure detected", "power", None),
        ("ipmiseld[9]", "SEL System Event: May-04-2026, 06:00:00, PS1, Power Supply, Power Supply input lost (AC/DC)", "power", None),
        ("ipmievd", "Power Supply sensor PSU1 Status - Power Supply AC lost Asserted", "power", None),
        ("ipmievd", "Power Supply sensor PSU1 Status - Power Supply AC lost Deasserted", None, None),
        ("ipmievd", "IPMI event: Power Supply PS1 Status: Power Supply input lost (AC/DC) [asserted]", "power", None),
        ("ipmiseld[9]", "SEL System Event: May-04-2026, 06:00:00, DIMM_A1, Memory, Correctable memory error", None, None),
        ("ipmievd", "Memory sensor DIMM_B2 Uncorrectable ECC Asserted", "memory", None),
        ("mcelog[9]", "Uncorrected error in memory controller 0", "memory", None),
        ("mcelog", "Corrected error", None, None),
        ("rasdaemon[9]", "rasdaemon: <...>-77 [000] 0.000012: mc_event: 1 Uncorrected error: memory read error on DIMM#0", "memory", None),
        ("rasdaemon", "<idle>-0 [003] 0.5: mce_record: bank=1, status= be00, Uncorrected_error cpu, Uncorrected error", "processor", None),
        ("rasdaemon", "<...>-77 [000] 0.000012: mc_event: 1 Corrected error: memory read error on DIMM#0", None, None),
        ("smartd[700]", "Device: /dev/sda [SAT], FAILED SMART self-check. BACK UP DATA NOW!", "drive", "/dev/sda"),
        ("smartd[700]", "Device: /dev/nvme0, Critical Warning (0x04): Reliability", "drive", "/dev/nvme0"),
        ("smartd[700]", "Device: /dev/sda [SAT], 8 Currently unreadable (pending) sectors", "drive", "/dev/sda"),
        ("smartd[700]", "Device: /dev/sda [SAT], SMART Usage Attribute: 194 Temperature changed from 112 to 113", None, None),
        ("mdadm[5]", "Fail event detected on md device /dev/md0, component device /dev/sdb1", "array", "/dev/md0"),
        ("mdadm[5]", "RebuildFinished event detected on md device /dev/md0", None, None),
    ],
)  # fmt: skip
def test_what_watchers_of_hardware_log_is_information(
    tag: str, message: str, code: str | None, device: str | None
) -> None:
    """Root runs them, but anybody may log so: a kind of its own, in a node's syslog alone, and never more than information."""
    found = reader.KernelReader().read_line(f"2026-05-04T06:00:00+00:00 n1 {tag}: {message}")
    if code is None:
        assert found is None
        return
    assert found is not None
    assert (found[1].kind, found[1].code, found[1].device) == ("hardware_report", code, device)
    assert found[1].severity is Severity.INFO
    assert (
        reader.KernelReader().read_line(f"2026-05-04T06:00:00+00:00 n1 python[7]: {tag}: {message}") is None
    )
    assert signatures.find("hardware_report", code, Severity.INFO).role is signatures.Role.CONTEXT


@every(
    ("tag", "message", "offline"),
    [
        ("sssd[1290]", "Backend is offline", True),
        ("sssd_be[7]", "Backend is offline", True),
        ("sssd[1290]", "Backend is online", False),
        ("nslcd[13]", '[8b4567] <passwd="omartin"> no available LDAP server found, sleeping 1 seconds', True),
        ("nslcd[13]", "[8b4567] failed to bind to LDAP server ldaps://l1: Can't contact LDAP server", True),
        ("nslcd[13]", "[8b4567] connected to LDAP server ldaps://l1", False),
        ("nscd", "nss_ldap: could not search LDAP server - Server is unavailable", True),
        ("python[3]", "sssd: Backend is offline", False),
    ],
)
def test_what_looks_up_names_is_information(tag: str, message: str, offline: bool) -> None:
    """Anybody may log so: it convicts nobody by itself."""
    found = reader.KernelReader().read_line(f"2026-05-04T06:00:00+00:00 n1 {tag}: {message}")
    assert (found is not None) is offline
    if found is not None:
        assert (found[1].kind, found[1].code, found[1].severity) == ("name_service", "offline", Severity.INFO)
        signature = signatures.find("name_service", "offline", Severity.INFO)
        assert signature.role is signatures.Role.CONTEXT


def test_the_fabric_manager_is_known_by_both_its_names() -> None:
    """Its program's and its service's."""
    for tag in ("nv-fabricmanager[9]", "nvidia-fabricmanager[9]"):
        found = reader.KernelReader().read_line(f"May  4 06:00:00 n1 {tag}: failed to initialize the fabric")
        assert found is not None
        assert (found[1].kind, found[1].code) == ("fabric_manager", "start_failed")


@every(
    ("line", "kind", "code"),
    [
        ("XFS: Internal error XFS_WANT_CORRUPTED_GOTO at line 7 of file fs/xfs/xfs_ialloc.c.  Caller 0xffff", "block_io", "fs_error"),
        ("BTRFS: Transaction aborted (error -28)", "block_io", "fs_error"),
        ("NVRM: GPU1 kflcnCoreDumpNondestructive_IMPL: TRACE: 0x10d5b6", "gsp", "crash"),
        ("cxi_core 0000:c5:00.0: cxi0[] init_hw failed: -12", "ib_link", "init_failed"),
    ],
)  # fmt: skip
def test_forms_of_round_21_and_22(line: str, kind: str, code: str) -> None:
    """Each is read where it begins its message, and in no middle."""
    found = reader.KernelReader().read_line(f"kernel: {line}")
    assert found is not None
    assert (found[1].kind, found[1].code) == (kind, code)
    assert reader.KernelReader().read_line(f"kernel: overlayfs: failed to resolve '{line}'") is None


@every(
    ("found", "line"),
    [
        ("hung_task/hard_lockup low", "watchdog: CPU5: Watchdog detected hard LOCKUP on cpu 4"),
        ("panic/oops low", "BUG: scheduling while atomic: python3/77/0x00000002"),
        ("panic/oops low", "PANIC: double fault, error_code: 0x0"),
        ("panic/oops low", "VERIFY3U(a->b, ==, c) failed (1 == 2)"),
        ("panic/oops low", "PANIC at arc.c:77:arc_buf_fill()"),
        ("none", "VERIFY the cables: all failed"),
        ("amdgpu/fence_timeout low", "amdgpu 0000:07:00.0: amdgpu: MES(1, 0) failed to respond to msg=MISC"),
        ("amdgpu/fence_timeout low", "amdgpu: qcm fence wait loop timeout expired"),
        ("amdgpu/smu low", "amdgpu 0000:07:00.0: amdgpu: SMU: No response msg_reg: 9 resp_reg: 0"),
        ("amdgpu/smu low", "amdgpu: [powerplay] failed to send message 171 ret is 65535"),
        ("none", "amdgpu: [powerplay] failed to send message 171 ret is 254"),
        ("amdgpu/over_temperature high", "amdgpu 0000:07:00.0: amdgpu: ERROR: GPU over temperature range(SW CTF) detected!"),
        ("amdgpu/ring_timeout low", "[drm ERROR :amdgpu_job_timedout] ring gfx_0.0.0 timeout, signaled seq=7, emitted seq=8"),
        ("gsp/unresponsive low", "NVRM: Rate limiting GSP RPC error prints for GPU at PCI:0000:07:00 (printing 1 of every 30).  The GPU likely needs to be reset."),
        ("gsp/boot_failed high", "NVRM: GPU3 kgspExecuteFwsec_TU102: failed to execute FWSEC for FRTS: FRTS error code 0x1"),
        ("driver/assertion info", "NVRM: nvCheckOkFailedNoLog: Check failed: GPU lost from the bus [NV_ERR_GPU_IS_LOST] (0x0000000F) returned from x"),
        ("block_io/raid_event low", "megaraid_sas 0000:18:00.0: 777 (700000001s/0x0001/CRIT) - VD 03/0 is now DEGRADED"),
        ("none", "megaraid_sas 0000:18:00.0: 778 (700000002s/0x0020/INFO) - Patrol Read complete"),
        ("block_io/raid_fault high", "megaraid_sas 0000:18:00.0: FW detected to be in faultstate, restarting it..."),
        ("block_io/io_error low", "aacraid: Host adapter abort request (0,1,7,0)"),
        ("block_io/io_error low", "hpsa 0000:03:00.0: scsi 0:0:7:0: resetting logical  Direct-Access HP LOGICAL VOLUME"),
        ("block_io/io_error low", "sd 7:0:0:0: [sdq] Read Capacity(16) failed: Result: hostbyte=DID_NO_CONNECT driverbyte=DRIVER_OK"),
        ("none", "sd 7:0:0:0: [sdq] Read Capacity(16) failed: Result: hostbyte=DID_OK driverbyte=DRIVER_SENSE"),
        ("block_io/io_error low", "sd 0:2:7:0: [sdq]  Result: hostbyte=DID_BAD_TARGET driverbyte=DRIVER_OK"),
        ("block_io/io_error low", "journal commit I/O error"),
        ("block_io/path_failed low", "session7: session recovery timed out after 120 secs"),
        ("block_io/md_fail high", "md/raid0:md7: too few disks (1 of 2) - aborting!"),
        ("block_io/ata_error low", "ata7.00: revalidation failed (errno=-5)"),
        ("block_io/fs_recorded info", "EXT4-fs (sdq1): error count since last fsck: 7"),
        ("block_io/fs_recorded info", "EXT4-fs (sdq1): initial error at time 1500000000: ext4_find_entry:1455"),
        ("block_io/fs_recorded info", "EXT4-fs (sdq1): warning: mounting fs with errors, running e2fsck is recommended"),
        ("block_io/fs_error low", "EXT4-fs (sdq1): group descriptors corrupted!"),
        ("none", "EXT4-fs (sdq1): error count since last fsck: 0"),
        ("block_io/image_file info", "EXT4-fs (loop7): error count since last fsck: 7"),
        ("block_io/fs_error low", "XFS (dm-7): log mount/recovery failed: error -117"),
        ("none", "XFS (sdq): Invalid superblock magic number"),
        ("block_io/fs_error low", "BTRFS warning (device dm-7): lost super block write due to IO error on /dev/sdq (-5)"),
        ("iommu/event low", "DMAR: VT-d detected Invalidation Time-out Error: SID 700"),
        ("mce/detail high", "[Hardware Error]: System Fatal error."),
        ("eth_link/tx_timeout low", "qede 0000:05:00.0: [qede_tx_timeout:7(eno7)]Tx timeout!"),
        ("ib_link/cmd_timeout low", "bnxt_en 0000:41:00.0: QPLIB: bnxt_re_is_fw_stalled: FW STALL Detected. cmdq[0xe]=0x3 waited (36 > 35) msec active 1"),
        ("ib_link/health_fatal high", "bnxt_en 0000:41:00.0 eth7: Fatal firmware reset event, data1: 0x2, data2: 0x7, min wait 1 ms, max wait 2 ms"),
        ("none", "bnxt_en 0000:41:00.0 eth7: Firmware reset request successful."),
        ("ib_link/init_failed high", "bnxt_en 0000:41:00.0 rocep65s0f0: Failed to create HW CQ"),
        ("nfs/error info", "NFS: nfs4_reclaim_open_state: unhandled error -10026"),
        ("nfs/reclaim info", "NFS: __nfs4_reclaim_open_state: Lock reclaim failed!"),
        ("filesystem/not_responding info", "libceph: connect (2)10.7.7.7:3300 error -101"),
        ("beegfs/error info", "beegfs: mount(77): App (init local node info): Couldn't find any usable NIC"),
    ],
)  # fmt: skip
def test_forms_of_round_47(found: str, line: str) -> None:
    """Each is read where it begins its message, and what only looks like it is not."""
    read = reader.KernelReader().read_line(f"[ 77.000001] {line}")
    assert (f"{read[1].kind}/{read[1].code} {read[1].severity}" if read else "none") == found
    assert reader.KernelReader().read_line(f"kernel: overlayfs: failed to resolve '{line}'") is None


def test_a_message_that_journald_writes_as_bytes_is_read() -> None:
    """`journalctl -o json` gives a list of numbers where a message has an escape or is no UTF-8."""
    xid = b"NVRM: Xid (PCI:0000:3b:00): 48, pid=1, name=p, DBE"
    given = [list(xid), [*xid, 255], [27, *b"[31m", *xid, 27, *b"[0m"]]
    record = {"_TRANSPORT": "kernel", "_HOSTNAME": "n1", "PRIORITY": "3"}
    lines = [json.dumps(record | {"MESSAGE": message}, separators=(",", ":")) for message in given]
    found = list(classify.classify_stream(io.BytesIO("\n".join(lines).encode()), "kernel"))
    assert [(f["line"], f["kind"], f["code"]) for f in found] == [(n, "xid", "48") for n in (1, 2, 3)]


_CPER = (
    "{24}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 10",
    "{24}[Hardware Error]: event severity: fatal",
    "{24}[Hardware Error]:  Error 0, type: fatal",
    "{24}[Hardware Error]:   section_type: PCIe error",
    "{24}[Hardware Error]:   port_type: 0, PCIe end point",
    "{24}[Hardware Error]:   device_id: 0000:01:00.0",
)


@every(
    ("changed", "found"),
    [(("", ""), True), (("fatal", "recoverable"), False), (("PCIe error", "memory error"), False), (("{24}[Hardware Error]:   device", "{25}[Hardware Error]:   device"), False)],
)  # fmt: skip
def test_a_firmware_report_of_a_fatal_pcie_error_is_one_of_its_device(
    changed: tuple[str, str], found: bool
) -> None:
    """Firmware that handles errors first leaves no AER line of the kernel's; lines of another report say nothing of this one."""
    read = reader.KernelReader()
    lines = [line.replace(*changed) if changed[0] else line for line in _CPER]
    made = [f[1] for f in (read.read_line(f"[ 812.10] {line}") for line in lines) if f]
    of_pcie = [(f.code, f.pci_bus_id, f.severity) for f in made if f.kind == "pcie_aer"]
    assert of_pcie == ([("fatal", "0000:01:00.0", Severity.HIGH)] if found else [])


@every(
    ("tag", "message", "job"),
    [
        ("slurmd[2101]", "slurmd: error: [job 40021] prolog failed status=1:0", 40021),
        ("slurmd", "error: [job 7] prolog failed status=0:9", 7),
        ("slurmd", "error: [job 7] epilog failed status=1:0", None),
        ("bash", "slurmd: error: [job 7] prolog failed status=1:0", None),
    ],
)
def test_slurmd_says_whose_prolog_failed(tag: str, message: str, job: int | None) -> None:
    """Information, of the job that it names, which convicts nobody by itself; nobody else's word for it counts."""
    found = reader.KernelReader().read_line(f"2026-05-04T06:00:00+00:00 n1 {tag}: {message}")
    assert (found is not None) is (job is not None)
    if found is not None:
        assert (found[1].kind, found[1].severity, found[1].detail) == ("slurmd", Severity.INFO, {"job": job})
        signature = signatures.find("slurmd", "prolog_failed", Severity.INFO)
        assert signature.role is signatures.Role.CONTEXT
