"""Words that several rooms must use alike: the sources of events, the node states nobody may touch, the prefix of our reasons."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Source:
    """One source of health events (`HealthEvent.source`) and what its word is good for."""

    name: str
    meaning: str
    polled: bool = False
    """It is read at intervals, so a fault may be older than the reading that shows it, by at most one interval."""
    acts: bool = False
    """Only the node's root can write it, so its event may lead to a drain or a requeue."""
    latches: bool = False
    """Its event may become a latched fault of the agent, which stands until a reset, a restart or a contradiction."""
    job_side: bool = False
    """A user's process can write it: never by itself a drain, a requeue, a certain hardware verdict or a lemon signal."""
    kernel_log: bool = False
    """It is the node's kernel log, live or from files: two events of such sources are one witness."""


SOURCES: tuple[Source, ...] = (
    Source(
        name="kernel", meaning="the kernel log, as it is written", acts=True, latches=True, kernel_log=True
    ),
    Source(name="nvml", meaning="NVIDIA's management library", polled=True, acts=True, latches=True),
    Source(name="amdsmi", meaning="AMD's management library", polled=True, acts=True),
    Source(
        name="sysfs", meaning="counters and states below /sys and /proc", polled=True, acts=True, latches=True
    ),
    Source(name="mount", meaning="mounts, touched by a child", polled=True, acts=True),
    Source(name="check", meaning="a health check of the sweep", polled=True, acts=True),
    Source(name="service", meaning="system services", polled=True, acts=True),
    Source(name="ipmi", meaning="the BMC's event log", polled=True, acts=True, latches=True),
    Source(name="agent", meaning="the agent, or the service, about the node's agent", polled=True),
    Source(name="diagnostic", meaning="a test that we ran on nodes out of service (docs/diagnose.md)"),
    Source(name="import", meaning="a kernel log read from a file", kernel_log=True),
    Source(name="joblog", meaning="a job's output", job_side=True),
    Source(name="probe", meaning="the pages that a job's ranks write", job_side=True),
    Source(name="dump", meaning="flight-recorder dumps of a job", job_side=True),
)
"""Every source. SQL texts that must repeat a part of this list are held against it by tests/core/test_vocabulary.py."""

POLLED_SOURCES = frozenset(s.name for s in SOURCES if s.polled)
ACTING_SOURCES = frozenset(s.name for s in SOURCES if s.acts)
LATCHING_SOURCES = frozenset(s.name for s in SOURCES if s.latches)
JOB_SIDE_SOURCES = frozenset(s.name for s in SOURCES if s.job_side)
KERNEL_LOG_SOURCES = frozenset(s.name for s in SOURCES if s.kernel_log)
SEES_BEGIN_AND_END = POLLED_SOURCES & ACTING_SOURCES
"""Sources whose own readings show when a condition of the node began and when it ended."""

DRAINED_STATES = frozenset({"DRAIN", "DRAINED", "DRAINING"})
"""A drained node, as Slurm's flags (DRAIN) and as sinfo's words for people."""

UNTOUCHABLE_STATES = DRAINED_STATES | {
    # Slurm or an administrator took it out.
    "DOWN",
    "ERROR",
    "FAIL",
    "FAILING",
    "MAINT",
    "MAINTENANCE",
    # It is restarting or off.
    "REBOOT",
    "REBOOT_REQUESTED",
    "REBOOT_ISSUED",
    "POWER_DOWN",
    "POWER_DRAIN",
    "POWERED_DOWN",
    "POWERING_DOWN",
    # Slurm does not have it as it is configured.
    "FUTURE",
    "UNKNOWN",
    "INVALID",
    "INVALID_REG",
}
"""States of a node about which somebody else has already decided: we neither drain nor resume it."""

OWN_PREFIX = "probing: "
"""How every node reason that we write begins, and no other; a drain with another reason is somebody else's."""

LEMON_PREFIX = f"{OWN_PREFIX}lemon"
"""How the reason begins when a node is drained as a lemon: it passes every check, so only a person brings it back."""

RESERVATION_PREFIX = "probing-"
"""How the name of every reservation that we make begins, and no other: the nodes in it are out of service for a test of ours."""
