"""What goes wrong between nodes: InfiniBand and Ethernet."""

from __future__ import annotations

from benchmarks.campaign import words
from benchmarks.campaign.faults.common import HIGH, HW, LOW
from benchmarks.campaign.story import HCA_PCI, Story, kind


def fabric_log(s: Story) -> float:
    """How a gang feels a dead link: NCCL's own words, or silence until the watchdog."""
    rng = s.rng
    s.log += words.progress(rng, 4)
    if rng.random() < 0.5:
        at = rng.uniform(8, 60)
        node = s.nodes[-1]
        s.log += [
            f"{node}:5776:5902 [0] transport/net_ib.cc:1296 NCCL WARN NET/IB : Got completion from peer 10.2.0.{rng.randrange(2, 200)}<{rng.randrange(30000, 60000)}> with error {rng.choice([5, 12])}, opcode 0, len 0, vendor err {rng.choice([129, 249])} (Recv)",
            f"{node}:5776:5902 [0] NCCL INFO transport/net.cc:1134 -> 6",
        ]
        s.log += words.peers_gone(rng, words.others(s, -1))
        s.log += words.srun_end(rng, s, 1)
        return at
    timeout_s = rng.choice([600, 1800])
    s.ran_s = max(s.ran_s, timeout_s * 1.5)
    s.log += words.watchdog(rng, words.others(s, -1, 8), timeout_s) + words.srun_end(
        rng, s, 1, signal="Aborted"
    )
    s.exit_code = 134
    return timeout_s + rng.uniform(1, 30)


@kind("InfiniBand port down", "fault", least_nodes=2)
def ib_down(s: Story) -> None:
    """A port that goes down and stays down."""
    node, rail = s.node(), s.rng.randrange(8)
    s.broken = node
    s.is_caused(HW, "ib_link")
    at = fabric_log(s)
    if s.rng.random() < 0.7:
        s.kernel(
            node,
            at,
            s.rng.choice(
                [
                    f"mlx5_core 0000:{HCA_PCI[rail]}:00.0 mlx5_{rail}: Port: 1 Link DOWN",
                    f"mlx5_core 0000:{HCA_PCI[rail]}:00.0 ib{rail}: Link down",
                ]
            ),
        )
    s.polled(node, at, "sysfs", "ib_link", "link_downed", LOW, f"mlx5_{rail}")
    s.polled(node, at - 10, "sysfs", "ib_link", "down", HIGH, f"mlx5_{rail}")


@kind("InfiniBand adapter", "fault", least_nodes=2)
def hca(s: Story) -> None:
    """The adapter's firmware stops."""
    node, rail = s.node(), s.rng.randrange(8)
    s.broken = node
    s.is_caused(HW, "ib_link")
    at = fabric_log(s)
    where = f"mlx5_core 0000:{HCA_PCI[rail]}:00.0"
    s.kernel(
        node,
        at,
        f"{where}: poll_health:852:(pid 0): device's health compromised - reached miss count",
        f"{where}: print_health_info:458:(pid 0): synd 0x8: unrecoverable hardware error",
    )


@kind("Ethernet link", "fault", least_nodes=2)
def ethernet(s: Story) -> None:
    """The node's Ethernet goes: sockets break."""
    node = s.node()
    s.broken = node
    s.is_caused(HW, "eth_link")
    at = s.rng.uniform(3, 60)
    s.log += words.progress(s.rng, 4)
    rank = s.rng.choice(words.others(s, -1))
    s.log += words.prefixed(
        words.traceback(
            s.rng,
            f"RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:{s.rng.randrange(500, 600)}] Read error [10.0.0.{s.rng.randrange(2, 99)}]:{s.rng.randrange(2000, 60000)}: Connection reset by peer",
        ),
        rank,
    )
    s.log += words.srun_end(s.rng, s, 1)
    s.kernel(
        node,
        at,
        s.rng.choice(
            [
                "ixgbe 0000:29:00.0 eno1: NIC Link is Down",
                "bnxt_en 0000:29:00.0 eno1: NIC Link is Down",
                "bond0: now running without any active interface!",
            ]
        ),
    )
