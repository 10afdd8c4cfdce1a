"""Words that several rooms must use alike: sources and kinds of events, the node states nobody may touch, the prefix of our reasons."""

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
    Source(name="amdsmi", meaning="AMD's management library", polled=True, acts=True, latches=True),
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
    Source(name="slurm", meaning="Slurm's controller, about a node"),
    Source(name="accounting", meaning="Slurm's accounting, of jobs that never started"),
    Source(name="joblog", meaning="a job's output", job_side=True),
    Source(name="probe", meaning="the pages that a job's ranks write", job_side=True),
    Source(name="dump", meaning="flight-recorder dumps of a job", job_side=True),
)
"""Every source. SQL texts that must repeat a part of this list are held against it by tests/core/test_vocabulary.py."""

STALE_S = 120.0
"""What was last read of accounting, or last came from an agent, longer ago is not the present, seconds."""
ACCOUNTING_READ, ACCOUNTING_EXPORTED = "accounting.until", "accounting.exported"
"""Keys of the table `state`: until when a cluster's service has read accounting (`key_of`), and what imported accounting shows at the latest."""
OUTPUT_NOT_OPENED = 53
"""The exit signal that Slurm's step daemon writes when it cannot open the files of the step's input or output."""
ENDED_FROM_OUTSIDE = frozenset({"CANCELLED", "TIMEOUT", "DEADLINE"})
"""States that a person or a limit ends a job in, who may do so because it hangs."""
LOG_STALL = "log_stall"
"""The finding that a job's log tells of no progress from an instant until the job's end, or its first error; `measured` is for how long, seconds."""
OF_CODE = frozenset({
    "ValueError", "TypeError", "KeyError", "IndexError", "AttributeError", "NameError", "UnboundLocalError", "AssertionError",
})  # fmt: skip
"""Python's exceptions about values and names: a mistake in the code, whatever their text says of workers, hosts and connections."""

DIRECTORY_REPLACED = "directory_replaced"
"""The finding that Slurm could not enter a job's working directory (`detail`: directory, why) and ran the job in /tmp."""
STACK_CAME_TOO_LATE = "the process ended before its stack was read"
"""Why a snapshot has no stack of a rank (`stack_error`) that was ending when it was taken."""
OUTPUT_STALL = "output_stall"
"""The finding that nothing was written to a job's output from an instant until the job's end, whatever its lines are; `measured` is for how long, seconds."""
LOG_PROGRESS = "log_progress"
"""The finding that dated steps of a job's log go on until shortly before its end: `at` is the last one, `measured` the longest time between two, seconds."""
LACKS_FILE = "lacks_file"
"""Field of a log finding: its command misses a file that another one of the job may have had to write."""
STEPS_TOOK_TURNS = "steps_took_turns"
"""Field of a step that waited: an earlier one that had waited began, so steps of the job ended and made room."""
UNTIL_ERROR = "until_error"
"""Field of LOG_STALL: the job did not wait to be ended from outside, it failed after the silence."""
AFTER_SHUTDOWN = "after_shutdown"
"""Code of a `node_boot` before which the system had been shut down in order, `shut_down_s` seconds before (`detail`)."""
POLLED_SOURCES = frozenset(s.name for s in SOURCES if s.polled)
ACTING_SOURCES = frozenset(s.name for s in SOURCES if s.acts)
LATCHING_SOURCES = frozenset(s.name for s in SOURCES if s.latches)
JOB_SIDE_SOURCES = frozenset(s.name for s in SOURCES if s.job_side)
KERNEL_LOG_SOURCES = frozenset(s.name for s in SOURCES if s.kernel_log)


@dataclass(frozen=True, kw_only=True)
class EventKind:
    """One kind of node event (`HealthEvent.kind`) and what its word is good for."""

    name: str
    meaning: str
    gpu: bool = False
    """A GPU is at fault: a rank that does not arrive may hang for it."""
    link: bool = False
    """A link between nodes is at fault."""
    storage: bool = False
    """Files cannot be had."""
    passes: bool = False
    """It often ends by itself: links retrain, file servers fail over. Held before it acts."""
    needs_reboot: bool = False
    """Only a reboot cures it for certain: no resume before one was seen."""
    lemon: bool = False
    """It counts for the lemon score."""
    checks: tuple[str, ...] = ()
    """Health checks that look at the same part: what holds for the kind holds for them."""


EVENT_KINDS: tuple[EventKind, ...] = (
    EventKind(
        name="xid",
        meaning="an error the NVIDIA driver reports of a GPU",
        gpu=True,
        needs_reboot=True,
        lemon=True,
    ),
    EventKind(
        name="sxid", meaning="an error the driver reports of an NVSwitch", needs_reboot=True, lemon=True
    ),
    EventKind(name="gpu_lost", meaning="a GPU no longer answers", gpu=True, needs_reboot=True, lemon=True),
    EventKind(name="gsp", meaning="a GPU's system processor", gpu=True, needs_reboot=True),
    EventKind(name="amdgpu", meaning="a fault the AMD driver reports", needs_reboot=True, lemon=True),
    EventKind(name="intel_gpu", meaning="a fault Intel's GPU drivers report", needs_reboot=True, lemon=True),
    EventKind(name="habanalabs", meaning="a fault Habana's driver reports", needs_reboot=True, lemon=True),
    EventKind(name="ecc", meaning="memory errors of a GPU", gpu=True, needs_reboot=True, lemon=True),
    EventKind(
        name="row_remap",
        meaning="rows of a GPU's memory were replaced",
        gpu=True,
        needs_reboot=True,
        lemon=True,
    ),
    EventKind(
        name="retired_pages", meaning="pages of a GPU's memory were given up", needs_reboot=True, lemon=True
    ),
    EventKind(name="nvlink", meaning="a link between GPUs", needs_reboot=True, lemon=True),
    EventKind(name="mce", meaning="a machine check", needs_reboot=True, lemon=True),
    EventKind(name="edac", meaning="an error of main memory", needs_reboot=True, lemon=True),
    EventKind(name="pcie_aer", meaning="an error of a PCIe link", needs_reboot=True, lemon=True),
    EventKind(name="driver", meaning="a GPU driver that does not work", needs_reboot=True),
    EventKind(
        name="ib_link",
        meaning="a port or adapter of the fabric",
        link=True,
        passes=True,
        lemon=True,
        checks=("ib_link",),
    ),
    EventKind(
        name="eth_link", meaning="an Ethernet port", link=True, passes=True, lemon=True, checks=("eth_link",)
    ),
    EventKind(
        name="mount",
        meaning="a mount that does not answer or is missing",
        storage=True,
        passes=True,
        checks=("mount_present", "mount_responsive", "mount_writable"),
    ),
    EventKind(name="nfs", meaning="NFS", storage=True, passes=True),
    EventKind(name="lustre", meaning="Lustre", storage=True, passes=True),
    EventKind(name="gpfs", meaning="GPFS", storage=True, passes=True),
    EventKind(name="beegfs", meaning="BeeGFS", storage=True, passes=True),
    EventKind(name="filesystem", meaning="another network file system", storage=True),
    EventKind(name="block_io", meaning="a drive or the file system on it", storage=True),
    EventKind(name="disk", meaning="a drive's own report"),
    EventKind(name="pcie_replay", meaning="a GPU's PCIe link repeats packets", lemon=True),
    EventKind(name="pcie_width", meaning="a PCIe link narrower or slower than it was", lemon=True),
    EventKind(name="pcie_link", meaning="a PCIe slot: link down, card gone", lemon=True),
    EventKind(name="nouveau", meaning="the open driver holds a GPU, which faults"),
    EventKind(name="fabric_manager", meaning="NVIDIA's fabric manager"),
    EventKind(name="hardware_report", meaning="what a daemon that watches hardware wrote to syslog"),
    EventKind(name="name_service", meaning="what looks up accounts and hosts on a node"),
    EventKind(name="slurmd", meaning="a job that slurmd did not start"),
    EventKind(name="iommu", meaning="an access the IOMMU refused"),
    EventKind(name="thermal", meaning="something is too hot"),
    EventKind(name="throttle", meaning="a GPU slowed down"),
    EventKind(name="power", meaning="power supplies and limits"),
    EventKind(name="ipmi", meaning="an entry of the BMC's event log"),
    EventKind(name="memory", meaning="main memory is short or too small"),
    EventKind(name="oom", meaning="the kernel's memory killer"),
    EventKind(name="limit", meaning="a limit of processes or files was met"),
    EventKind(name="hung_task", meaning="tasks or processors that stand still"),
    EventKind(name="panic", meaning="the kernel stopped or lost a task"),
    EventKind(name="service", meaning="a system service"),
    EventKind(name="check", meaning="a health check of the sweep"),
    EventKind(
        name="gpu_test", meaning="a GPU failed a test of ours (docs/diagnose.md)", gpu=True, lemon=True
    ),
    EventKind(name="node_test", meaning="a node failed a test of ours", lemon=True),
    EventKind(
        name="link_test",
        meaning="a node or a link failed a test of ours between nodes",
        link=True,
        lemon=True,
    ),
    EventKind(name="clock_skew", meaning="the node's clock is off"),
    EventKind(name="driver_load", meaning="a GPU driver was loaded anew"),
    EventKind(name="node_boot", meaning="the node booted"),
    EventKind(name="kernel_log", meaning="a kernel log from a file: from when to when it was written"),
    EventKind(name="agent_silent", meaning="the agent fell silent"),
    EventKind(name="node_down", meaning="the agent fell silent and Slurm does not reach the node either"),
    EventKind(name="node_set_down", meaning="a person set the node DOWN in Slurm"),
    EventKind(
        name="agent_overrun", meaning="the agent could not keep up with a log, or not judge a line of it"
    ),
    EventKind(name="agent_dropped", meaning="the agent's spool dropped events"),
)
"""Every kind of node event; the kinds of a job's own side are those of docs/evidence.md."""

GPU_KINDS = frozenset(k.name for k in EVENT_KINDS if k.gpu)
LINK_KINDS = frozenset(k.name for k in EVENT_KINDS if k.link)
STORAGE_KINDS = frozenset(k.name for k in EVENT_KINDS if k.storage)
PASSING_KINDS = tuple(k.name for k in EVENT_KINDS if k.passes)
KIND_OF_CHECK = {check: kind.name for kind in EVENT_KINDS for check in kind.checks}
"""A check to the kind of event that it stands for."""
REBOOT_KINDS = tuple(k.name for k in EVENT_KINDS if k.needs_reboot)
LEMON_KINDS = tuple(k.name for k in EVENT_KINDS if k.lemon)
LEMON_SIGNALS = (
    "excl_jobid_count",
    "xid_cnt",
    "tickets",
    "out_count",
    "multi_node_node_fails",
    "single_node_node_fails",
    "single_node_node_failure_rate",
)
"""The paper's seven signals of a lemon node (arXiv 2410.21680), by their columns."""

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

RESUBMITTED = "its owner has submitted it again"
"""How the reason begins for which an ended job is not brought back: another job of its owner does its work already."""

NOT_ENDED = "it has not ended"
"""How the reason ends for which a job is not brought back: Slurm still has it under its id."""

_BACK = ("it is PENDING", "it is REQUEUED", "it is CONFIGURING", "it is RUNNING")


def key_of(key: str, cluster: str) -> str:
    """The key under which the table `state` has one cluster's: a database may hold several."""
    return f"{key} {cluster}"


def is_back_already(why_state: str) -> bool:
    """Whether a restart was skipped because Slurm itself had requeued the job: then nothing was left undone."""
    return why_state.startswith(_BACK) and why_state.endswith(NOT_ENDED)


GPUS_UNKNOWN = "which GPUs it holds is not known"
"""Why a job is left alone until its Prolog's word has come."""
DECIDED_ANEW = "Slurm did not answer, and it was not done: what the fault needs is decided anew"
"""Why an act was left undone that nobody decided against."""

BEGUN = "begun; its outcome was not recorded"
"""How the reason begins of an act that is recorded as failed until its outcome is known: whoever does it may end at any moment."""
UNDER_WAY, UNDER_WAY_S = "under way", 300.0
"""What people are shown of such an act, and for how many seconds; `db/ops.sql` says the same."""

RESERVATION_PREFIX = "probing-"
"""How the name of every reservation that we make begins, and no other: the nodes in it are out of service for a test of ours."""


BOUND_BY, BY_NODE_LIST = "bound_by", "nodelist"
"""Field of an agent's refusal of a job: what binds the job to that node; and its value for one that asks for the node by name."""

MISSED_BEATS = 2
"""An agent is silent once it could have been heard for more than so many of its beats, and was not; `db/ops.sql` says the same."""

ACCOUNTING = "accounting"
"""Source of what Slurm's accounting says of jobs without an attempt."""
NEVER_STARTED = "never_started"
"""Kind of the event of a job that accounting ended before it began: no attempt of it is there to judge."""


STAND_IN_BASE = 1 << 40
"""Job ids at or above this are ours: Slurm's raw id of an array task is not in its `123_4` form."""


def plural(number: int, noun: str, many: str = "") -> str:
    """`1 port`, `8 ports`, `1,200 ports`; `many` where the plural is not the noun with an s."""
    return f"{number:,} {noun if number == 1 else many or noun + 's'}"


LAST_LINE = " Its last line: "
"""Begins, in a verdict's summary, the program's last line, where nothing names a reason."""


DISCARDED_OUTPUT = "the job sends it to /dev/null"
ON_A_TERMINAL = "srun and salloc without sbatch write to their own terminal"
"""In an agent's reason for which an output was not read: there is no file of it, and none is missing."""


LATER_START_WROTE = "a later start of the job has written into it since"
"""An agent's or a report's reason for which the lines of an earlier start are not shown."""


def there_before(n_bytes: int) -> str:
    """An agent's note on an output file into which earlier starts or jobs had written."""
    return f"its first {n_bytes} bytes were there before the job began"


BY_SIGNAL = 128
"""A shell ends with this number and that of the signal that ended its command."""


OF_TIMEOUT = 124
"""timeout(1) ends with this number when its limit was reached: the command did not end by itself."""


_USUAL = frozenset({120, 123, OF_TIMEOUT})
"""Codes above those of signals that Python, xargs and timeout(1) end with: they are what they say."""


def may_be_larger(code: int) -> int:
    """The code above 128 that accounting may mean by this one, since sacct takes 128 from all above it; 0 where a shell, a signal or a known tool makes the smaller one likelier."""
    return BY_SIGNAL + code if BY_SIGNAL // 4 <= code < BY_SIGNAL and code not in _USUAL else 0


def signal_of(code: int) -> int:
    """The signal that an exit code stands for, as shells give it; 0 for a code of the program's own."""
    return code - BY_SIGNAL if BY_SIGNAL < code < BY_SIGNAL + 32 else 0
