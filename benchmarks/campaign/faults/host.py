"""What takes the whole node, or its main memory."""

from __future__ import annotations

from benchmarks.campaign import words
from benchmarks.campaign.faults.common import HW, LOW, SW
from benchmarks.campaign.story import Story, kind


def crashed(s: Story, node: str) -> None:
    """The node stops: Slurm says NODE_FAIL some minutes later."""
    s.state, s.exit_code = "NODE_FAIL", 0
    s.failed_node = node if s.rng.random() < 0.7 else None
    s.log += words.progress(s.rng, 5)
    if s.rng.random() < 0.6:
        s.log += [
            f"slurmstepd: error: *** JOB {s.job_id} ON {s.nodes[0]} CANCELLED AT 2026-05-12T10:11:12 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***"
        ]
    s.has_log = s.nodes[0] != node


@kind("uncorrectable main memory", "fault")
def edac(s: Story) -> None:
    """EDAC tells it; the process or the node dies."""
    node = s.node()
    s.broken = node
    s.is_caused(HW, "main_memory")
    rng = s.rng
    line = f"EDAC MC{rng.randrange(4)}: 1 UE memory read error on CPU_SrcID#{rng.randrange(2)}_MC#0_Chan#1_DIMM#0 (channel:1 slot:0 page:0x20a905 offset:0xa80 grain:32)"
    if rng.random() < 0.5:
        crashed(s, node)
        at = rng.uniform(60, 400)
        s.silent[node] = at - 5
    else:
        at = rng.uniform(0.5, 8)
        s.exit_code = 135
        s.log += words.progress(rng, 4) + words.srun_end(rng, s, 135, signal="Bus error (core dumped)")
        s.kernel(
            node,
            at - 0.1,
            f"Memory failure: 0x{rng.randrange(10**6):x}: Sending SIGBUS to python3:{rng.randrange(9999)} due to hardware memory corruption",
        )
    s.kernel(node, at, line)


@kind("machine check", "fault")
def mce(s: Story) -> None:
    """The processor stops the node."""
    node = s.node()
    s.broken = node
    s.is_caused(HW, "cpu_mce")
    crashed(s, node)
    at = s.rng.uniform(60, 400)
    s.silent[node] = at - 5
    s.kernel(
        node,
        at,
        "mce: [Hardware Error]: CPU 17: Machine Check Exception: 5 Bank 5: be00000000800400",
        "mce: [Hardware Error]: Machine check: Processor context corrupt",
        "Kernel panic - not syncing: Fatal machine check",
    )


@kind("kernel panic", "fault")
def panic(s: Story) -> None:
    """The kernel's last words."""
    node = s.node()
    s.broken = node
    s.is_caused(SW, "kernel_panic")
    crashed(s, node)
    at = s.rng.uniform(60, 400)
    s.silent[node] = at - 2
    s.kernel(
        node,
        at,
        "BUG: kernel NULL pointer dereference, address: 0000000000000008",
        "Kernel panic - not syncing: Fatal exception in interrupt",
    )


@kind("node lost without a word", "fault")
def node_lost(s: Story) -> None:
    """NODE_FAIL and nothing before it."""
    node = s.node()
    s.broken = node
    s.is_caused(HW, "node_lost", "node_reboot")
    crashed(s, node)
    s.silent[node] = s.rng.uniform(60, 500)
    if s.rng.random() < 0.3:
        s.polled(node, -s.rng.uniform(60, 250), "agent", "node_boot", "", LOW, "node")


@kind("thermal shutdown", "fault")
def thermal(s: Story) -> None:
    """Too hot, then off."""
    node = s.node()
    s.broken = node
    s.is_caused(HW, "thermal_power")
    crashed(s, node)
    at = s.rng.uniform(60, 400)
    s.silent[node] = at - 8
    s.kernel(node, at, "thermal thermal_zone0: cpu-thermal: critical temperature reached, shutting down")
