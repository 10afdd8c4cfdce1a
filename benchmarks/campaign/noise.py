"""What else goes on in a cluster while a job dies: none of it has to do with the job."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.campaign import words
from benchmarks.campaign.faults import common
from benchmarks.campaign.story import HCA_PCI, Story, pci

HIGH, LOW, INFO = common.HIGH, common.LOW, common.INFO


def elsewhere(s: Story) -> None:
    """Hard faults on nodes the job does not have, at the very moment."""
    for i in range(s.rng.randrange(1, 4)):
        node = f"n{s.number:05d}y{i:02d}"
        gpu = s.rng.randrange(8)
        s.kernel(node, s.rng.uniform(-60, 120), words.xid(s.rng, s.rng.choice([79, 48, 74, 119, 94]), gpu))
        s.polled(node, s.rng.uniform(0, 60), "sysfs", "ib_link", "down", HIGH, "mlx5_1")


def neighbours_gpu(s: Story) -> None:
    """A hard fault on a GPU of its node that another job holds."""
    gpu = s.foreign_gpu()
    if gpu is not None:
        s.kernel(s.nodes[0], s.rng.uniform(0, 200), words.xid(s.rng, s.rng.choice([79, 48, 94, 74, 62]), gpu))


def old_faults(s: Story) -> None:
    """Hard faults on its own GPUs and links, hours before it began, since repaired."""
    before = s.ran_s + s.rng.uniform(3600, 80_000)
    node, gpu = s.node(), s.gpu()
    s.kernel(node, before, words.xid(s.rng, s.rng.choice([79, 48, 64, 119, 74]), gpu))
    s.polled(node, before, "sysfs", "ib_link", "down", HIGH, "mlx5_3")
    s.polled(node, before - 600, "sysfs", "ib_link", "down", INFO, "mlx5_3", recovered=True)


def later_faults(s: Story) -> None:
    """A fault on its node well after its end."""
    s.kernel(s.node(), -s.rng.uniform(400, 4000), words.xid(s.rng, s.rng.choice([79, 48, 119]), s.gpu()))


def corrected(s: Story) -> None:
    """What hardware corrects by itself, all the time."""
    for _ in range(s.rng.randrange(2, 12)):
        node, at = s.node(), s.rng.uniform(0, 900)
        s.kernel(
            node, at,
            *s.rng.choice(
                [
                    common.aer(s, "corrected", pci(s.rng.randrange(8)) + ".0"),
                    [f"EDAC MC1: {s.rng.randrange(1, 9)} CE memory read error on CPU_SrcID#2_Channel#2_DIMM#0 (channel:2 slot:0 page:0x2007e9ea offset:0x100 grain:32 syndrome:0x0 -  OVERFLOW area:DRAM err_code:0001:0092)"],
                    ["CPU0: Package temperature above threshold, cpu clock throttled (total events = 1)"],
                    ["mce: CMCI storm detected: switching to poll mode"],
                    [words.xid(s.rng, 63, s.gpu())],
                    ["perf: interrupt took too long (4931 > 4921), lowering kernel.perf_event_max_sample_rate to 40500"],
                    ["nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping further processing"],
                ]
            ),
        )  # fmt: skip


def flaps(s: Story) -> None:
    """Links that go and come back within seconds while the job lives on."""
    for _ in range(s.rng.randrange(1, 4)):
        node, rail, at, lasts = s.node(), s.rng.randrange(8), s.rng.uniform(60, 590), s.rng.uniform(0.5, 25)
        where = f"mlx5_core 0000:{HCA_PCI[rail]}:00.0 mlx5_{rail}"
        s.kernel(node, at, f"{where}: Port: 1 Link DOWN")
        s.kernel(node, at - lasts, f"{where}: Port: 1 Link ACTIVE")
        s.polled(node, at, "sysfs", "ib_link", "link_downed", LOW, f"mlx5_{rail}")
        if lasts > 20:  # the agent's second look still finds it down
            s.polled(node, at - 12, "sysfs", "ib_link", "down", HIGH, f"mlx5_{rail}", every_s=5)
            s.polled(node, at - lasts, "sysfs", "ib_link", "down", INFO, f"mlx5_{rail}", recovered=True)


def storage_hiccup(s: Story) -> None:
    """A file server that answers again after some seconds."""
    node, at = s.node(), s.rng.uniform(60, 590)
    s.kernel(node, at, "nfs: server stor9 not responding, still trying")
    s.kernel(node, at - s.rng.uniform(1, 50), "nfs: server stor9 OK")


def hung_tasks(s: Story) -> None:
    """Kernel threads that wait long, of somebody else's."""
    s.kernel(
        s.node(),
        s.rng.uniform(0, 590),
        s.rng.choice(
            [
                "INFO: task kcompactd1:1177 blocked for more than 120 seconds.",
                "INFO: task jfsmount:136986 blocked for more than 122 seconds.",
                "watchdog: BUG: soft lockup - CPU#18 stuck for 27s! [python3:2254956]",
            ]
        ),
    )


def own_xids_survived(s: Story) -> None:
    """User-type GPU errors the program lived through: another process of it died minutes before."""
    s.kernel(s.node(), s.rng.uniform(100, 580), words.xid(s.rng, s.rng.choice([31, 13, 43, 45]), s.gpu()))


def handled_errors(s: Story) -> None:
    """A traceback the program caught and logged long before."""
    s.log[:0] = [
        "retrying after:",
        *words.traceback(
            s.rng, "ConnectionError: HTTPSConnectionPool(host='hub', port=443): Max retries exceeded"
        ),
        "retry succeeded",
        *words.progress(s.rng, s.rng.randrange(200, 600)),
    ]


def throttling(s: Story) -> None:
    """GPUs that slow down for heat or power."""
    gpu = s.gpu()
    s.polled(
        s.node(),
        s.rng.uniform(0, 580),
        "nvml",
        "throttle",
        s.rng.choice(["hw_thermal", "hw_slowdown", "power_brake"]),
        LOW,
        f"gpu{gpu}",
        gpu=gpu,
    )


def warnings(s: Story) -> None:
    """What libraries print."""
    s.log[:0] = words.chatter(s.rng)


NOISE: dict[str, Callable[[Story], None]] = {
    f.__name__: f
    for f in (elsewhere, neighbours_gpu, old_faults, later_faults, corrected, flaps, storage_hiccup, hung_tasks, own_xids_survived, handled_errors, throttling, warnings)
}  # fmt: skip


def add(s: Story) -> None:
    """Some of it, at random; what was added stands in `noise`."""
    for name, make in NOISE.items():
        if s.rng.random() < 0.35:
            make(s)
            s.noise.append(name)
