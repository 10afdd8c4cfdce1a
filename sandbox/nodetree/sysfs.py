"""The parts of /sys that a GPU node shows and that health checks read."""

from __future__ import annotations

from probing_cluster.sandbox.nodetree import identity, writing

CPUS = 64
IB_RATE = "400 Gb/sec (4X NDR)"
PCIE_SPEED = "32.0 GT/s PCIe"
PCIE_WIDTH = "16"

IB_COUNTERS = (
    "excessive_buffer_overrun_errors", "link_downed", "link_error_recovery", "local_link_integrity_errors",
    "multicast_rcv_packets", "multicast_xmit_packets", "port_rcv_constraint_errors", "port_rcv_data",
    "port_rcv_errors", "port_rcv_packets", "port_rcv_remote_physical_errors", "port_rcv_switch_relay_errors",
    "port_xmit_constraint_errors", "port_xmit_data", "port_xmit_discards", "port_xmit_packets", "port_xmit_wait",
    "symbol_error", "unicast_rcv_packets", "unicast_xmit_packets", "VL15_dropped",
)  # fmt: skip
IB_HW_COUNTERS = (
    "duplicate_request", "implied_nak_seq_err", "local_ack_timeout_err", "out_of_buffer", "out_of_sequence",
    "packet_seq_err", "req_cqe_error", "req_cqe_flush_error", "req_remote_access_errors",
    "req_remote_invalid_request", "req_rnr_retries_exceeded", "req_transport_retries_exceeded", "resp_cqe_error",
    "resp_cqe_flush_error", "resp_local_length_error", "resp_remote_access_errors", "rnr_nak_retry_err",
    "roce_adp_retrans", "roce_adp_retrans_to", "roce_slow_restart", "roce_slow_restart_cnps",
    "roce_slow_restart_trans", "rx_atomic_requests", "rx_dct_connect", "rx_icrc_encapsulated",
    "rx_read_requests", "rx_write_requests",
)  # fmt: skip
_AER_CORRECTABLE = (
    "RxErr", "BadTLP", "BadDLLP", "Rollover", "Timeout", "NonFatalErr", "CorrIntErr", "HeaderOF", "TOTAL_ERR_COR",
)  # fmt: skip
_AER_UNCORRECTABLE = (
    "Undefined", "DLP", "SDES", "TLP", "FCP", "CmpltTO", "CmpltAbrt", "UnxCmplt", "RxOF", "MalfTLP", "ECRC",
    "UnsupReq", "ACSViol", "UncorrIntErr", "BlockedTLP", "AtomicOpBlocked", "TLPBlockedErr", "PoisonTLPBlocked",
)  # fmt: skip
_NET_STATISTICS = (
    "collisions", "rx_bytes", "rx_crc_errors", "rx_dropped", "rx_errors", "rx_fifo_errors", "rx_packets",
    "tx_bytes", "tx_carrier_errors", "tx_dropped", "tx_errors", "tx_packets",
)  # fmt: skip


def files(node_identity: identity.TreeIdentity) -> writing.Tree:
    """Everything below /sys."""
    return {
        **_pci(node_identity),
        **_infiniband(node_identity),
        **_net(node_identity),
        **_block(),
        **_memory(),
        **_cpu(),
        **_hwmon(),
        "sys/module/nvidia/version": "550.90.07",
        "sys/module/nvidia/refcnt": "128",
        "sys/class/dmi/id/product_name": "PCS-8000",
        "sys/class/dmi/id/bios_version": "1.1.3",
    }


def _pci(node_identity: identity.TreeIdentity) -> writing.Tree:
    devices = {gpu.pci: ("0x10de", "0x2330", "0x030200") for gpu in node_identity.gpus}
    devices |= {hca.pci: ("0x15b3", "0x1021", "0x020700") for hca in node_identity.hcas}
    devices[identity.ETHERNET_PCI] = ("0x8086", "0x1563", "0x020000")
    devices[identity.NVME_PCI] = ("0x144d", "0xa80a", "0x010802")
    tree: writing.Tree = {}
    for pci, (vendor, device, kind) in devices.items():
        narrow = kind in {"0x020000", "0x010802"}
        tree |= writing.under(
            f"sys/bus/pci/devices/{pci}",
            {
                "vendor": vendor,
                "device": device,
                "class": kind,
                "current_link_speed": "16.0 GT/s PCIe" if narrow else PCIE_SPEED,
                "max_link_speed": "16.0 GT/s PCIe" if narrow else PCIE_SPEED,
                "current_link_width": "4" if narrow else PCIE_WIDTH,
                "max_link_width": "4" if narrow else PCIE_WIDTH,
                "numa_node": "0" if int(pci[5:7], 16) < 0x80 else "1",
                "enable": "1",
                "aer_dev_correctable": "\n".join(f"{name} 0" for name in _AER_CORRECTABLE),
                "aer_dev_nonfatal": "\n".join(
                    f"{name} 0" for name in (*_AER_UNCORRECTABLE, "TOTAL_ERR_NONFATAL")
                ),
                "aer_dev_fatal": "\n".join(f"{name} 0" for name in (*_AER_UNCORRECTABLE, "TOTAL_ERR_FATAL")),
            },
        )
    return tree


def _infiniband(node_identity: identity.TreeIdentity) -> writing.Tree:
    tree: writing.Tree = {}
    for i, hca in enumerate(node_identity.hcas):
        tree |= writing.under(f"sys/class/infiniband/{hca.name}", _adapter(node_identity.node, hca))
        tree[f"sys/bus/pci/devices/{hca.pci}/net/{hca.netdev}/ifindex"] = str(10 + i)
        tree[f"sys/bus/pci/devices/{hca.pci}/infiniband/{hca.name}/node_type"] = "1: CA"
        tree[f"sys/class/infiniband_verbs/uverbs{i}/ibdev"] = hca.name
    return tree


def _adapter(node: str, hca: identity.Hca) -> writing.Tree:
    return {
        "fw_ver": "28.39.2048",
        "board_id": "MT_0000000838",
        "hca_type": "MT4129",
        "node_type": "1: CA",
        "node_guid": hca.guid,
        "sys_image_guid": hca.guid,
        "node_desc": f"{node} {hca.name}",
        "device": writing.TreeLink(f"../../../bus/pci/devices/{hca.pci}"),
        **writing.under("ports/1", _port(hca)),
    }


def _port(hca: identity.Hca) -> writing.Tree:
    return {
        "state": "4: ACTIVE",
        "phys_state": "5: LinkUp",
        "rate": IB_RATE,
        "link_layer": "InfiniBand",
        "lid": f"{hca.lid:#x}",
        "sm_lid": "0x1",
        "lid_mask_count": "0",
        "sm_sl": "0",
        "cap_mask": "0xa751e848",
        "gids/0": f"fe80:0000:0000:0000:{hca.guid}",
        "pkeys/0": "0xffff",
        **{f"counters/{name}": "0" for name in IB_COUNTERS},
        **{f"hw_counters/{name}": "0" for name in IB_HW_COUNTERS},
        "hw_counters/lifespan": "10",
    }


def _net(node_identity: identity.TreeIdentity) -> writing.Tree:
    links = {
        "lo": ("772", "00:00:00:00:00:00", "65536", None),
        "eno1": ("1", "", "1500", identity.ETHERNET_PCI),
    }
    links["eno1"] = ("1", f"3c:ec:ef:00:{node_identity.number:02x}:01", "1500", identity.ETHERNET_PCI)
    for hca in node_identity.hcas:
        links[hca.netdev] = ("32", f"00:00:10:29:fe:80:00:00:00:00:00:00:{hca.guid}", "4092", hca.pci)
    tree: writing.Tree = {}
    for name, (kind, address, mtu, pci) in links.items():
        entries: writing.Tree = {
            "type": kind,
            "address": address,
            "mtu": mtu,
            "operstate": "unknown" if name == "lo" else "up",
            "carrier": "1",
            "carrier_changes": "0" if name == "lo" else "2",
            "carrier_up_count": "0" if name == "lo" else "1",
            "carrier_down_count": "0" if name == "lo" else "1",
            "flags": "0x9" if name == "lo" else "0x1003",
            **{f"statistics/{counter}": "0" for counter in _NET_STATISTICS},
        }
        if pci:
            entries["speed"] = "25000" if name == "eno1" else "400000"
            entries["duplex"] = "full"
            entries["device"] = writing.TreeLink(f"../../../bus/pci/devices/{pci}")
        tree |= writing.under(f"sys/class/net/{name}", entries)
    return tree


def _block() -> writing.Tree:
    controller: writing.Tree = {
        "state": "live",
        "model": "SAMSUNG MZWLR3T8HBLS-00007",
        "serial": "S6EWNE0T700001",
        "firmware_rev": "MPK92B5Q",
        "transport": "pcie",
        "address": identity.NVME_PCI,
    }
    return {
        **writing.under("sys/class/nvme/nvme0", controller),
        **writing.under(
            "sys/class/block/nvme0n1",
            {
                "size": "7501476528",
                "ro": "0",
                "removable": "0",
                "queue/rotational": "0",
                "stat": "1024 0 65536 210 2048 0 131072 480 0 700 690 0 0 0 0 0 0",
                "device": writing.TreeLink("../../nvme/nvme0"),
            },
        ),
    }


def _memory() -> writing.Tree:
    tree: writing.Tree = {}
    for mc in range(2):
        counts = dict.fromkeys(("ce_count", "ce_noinfo_count", "ue_count", "ue_noinfo_count"), "0")
        tree |= writing.under(
            f"sys/devices/system/edac/mc/mc{mc}",
            {"mc_name": f"Intel_0 IMC#{mc}", "size_mb": "262144", "seconds_since_reset": "777600", **counts},
        )
        for dimm in range(2):
            tree |= writing.under(
                f"sys/devices/system/edac/mc/mc{mc}/dimm{dimm}",
                {
                    "dimm_label": f"CPU_SrcID#{mc}_MC#0_Chan#{dimm}_DIMM#0",
                    "dimm_location": f"channel {dimm} slot 0",
                    "dimm_mem_type": "Registered-DDR5",
                    "dimm_ce_count": "0",
                    "dimm_ue_count": "0",
                    "size": "131072",
                },
            )
    return tree


def _cpu() -> writing.Tree:
    tree: writing.Tree = {
        **{f"sys/devices/system/cpu/{name}": f"0-{CPUS - 1}" for name in ("online", "present", "possible")},
        "sys/devices/system/cpu/offline": "",
        "sys/devices/system/cpu/smt/active": "0",
        "sys/devices/system/node/online": "0-1",
    }
    for first in (0, CPUS // 2):
        # One frequency policy per socket, and of its CPUs only the first: thousands of files would say no more.
        base = "sys/devices/system/cpu"
        policy: writing.Tree = {
            "scaling_governor": "performance",
            "scaling_max_freq": "3800000",
            "cpuinfo_max_freq": "3800000",
            "related_cpus": " ".join(str(cpu) for cpu in range(first, first + CPUS // 2)),
        }
        tree |= writing.under(f"{base}/cpufreq/policy{first}", policy)
        tree[f"{base}/cpu{first}/cpufreq"] = writing.TreeLink(f"../cpufreq/policy{first}")
        tree[f"{base}/cpu{first}/thermal_throttle/core_throttle_count"] = "0"
        tree[f"{base}/cpu{first}/thermal_throttle/package_throttle_count"] = "0"
    return tree


def _hwmon() -> writing.Tree:
    tree: writing.Tree = {
        "sys/class/hwmon/hwmon2/name": "nvme",
        "sys/class/hwmon/hwmon2/temp1_input": "38850",
    }
    tree |= {"sys/class/hwmon/hwmon2/temp1_label": "Composite", "sys/class/hwmon/hwmon2/temp1_crit": "84850"}
    for socket in range(2):
        tree |= writing.under(
            f"sys/class/hwmon/hwmon{socket}",
            {
                "name": "coretemp",
                "temp1_label": f"Package id {socket}",
                "temp1_input": "52000",
                "temp1_max": "90000",
                "temp1_crit": "100000",
            },
        )
    return tree
