"""Tasks and processors that stand still: hung tasks, lockups, RCU stalls, panics and oopses."""

from __future__ import annotations

import re

from probing_cluster.core import sanitize
from probing_cluster.evidence.kernel import grammar, message_start
from probing_cluster.evidence.kernel.grammar import HIGH, INFO, LOW, KernelContext, KernelFinding, fact, make

_STORAGE = "Look at what it waits for: a file system or network that does not answer is the commonest."
_CPU = "Look at the stack below it; drain the node if it repeats."
FACTS = {
    ("hung_task", "*"): fact(
        INFO,
        "system_software hardware",
        "A process waits in the kernel without being interruptible for longer than the limit.",
        _STORAGE,
    ),
    ("hung_task", "soft_lockup"): fact(
        LOW, "system_software hardware", "A processor did not schedule for many seconds.", _CPU
    ),
    ("hung_task", "hard_lockup"): fact(
        LOW, "system_software hardware", "A processor did not take interrupts for many seconds.", _CPU
    ),
    ("hung_task", "rcu_stall"): fact(
        LOW, "system_software hardware", "A processor holds up the kernel's memory reclamation (RCU).", _CPU
    ),
    ("hung_task", "workqueue_lockup"): fact(
        LOW, "system_software", "A kernel work queue stands still.", _CPU
    ),
    ("panic", "panic"): fact(
        HIGH,
        "system_software hardware",
        "The kernel stopped the node.",
        "Find the cause in the lines before it (or the crash dump).",
    ),
    ("panic", "oops"): fact(
        LOW,
        "system_software hardware",
        "The kernel met an error of its own and killed the task it was in.",
        "Drain the node and reboot it; report it to the distributor.",
    ),
    ("limit", "file_max"): fact(
        INFO,
        "system_software user_program",
        "The node has no file handles left.",
        "Find the process with too many open files; raise fs.file-max.",
    ),
    ("limit", "pids"): fact(
        INFO,
        "user_program",
        "A control group (a job) may not start more processes or threads.",
        "Find what starts so many threads, or raise the job's limit.",
    ),
}
_TASK = re.compile(
    r"task (?P<name>(?s:.){1,64}?)(?::(?P<pid>\d{1,10}))?(?: <[^>]*>)?\s+(?:is )?blocked (?:in I/O wait )?for more than (?P<s>\d{1,9}) seconds"
)
_MUTEX = re.compile(r"task (?P<name>(?s:.){1,64}?):(?P<pid>\d{1,10}) (?:is )?blocked on an? \w+")
_SOFT = re.compile(
    r"(?:BUG: )?soft lockup\b.*?(?:CPU#(?P<cpu>\d{1,18}))(?:.*?\[(?P<name>(?s:.){1,64}?):(?P<pid>\d{1,10})\])?"
)
_HARD = re.compile(
    r"(?:CPU ?\d{1,9}:? )?(?:Watchdog )?(?:detected )?hard LOCKUP on (?:cpu ?|other CPUs )(?P<cpu>\d{1,18})|CPU ?(?P<other>\d{1,18}):? (?:self-detected )?[Hh]ard LOCKUP"
)
_RCU = re.compile(
    r"rcu\w{0,24} (?:self-detected stall on CPU|detected (?:expedited )?stalls on (?:CPUs/)?tasks|kthread (?:starved for|timer wakeup didn't happen))"
)
_WORKQUEUE = re.compile(r"BUG: workqueue lockup")
_PANIC = re.compile(r"[Kk]ernel [Pp]anic - (?:not )?syncing: (?P<why>.*)")
_OOPS = re.compile(
    r"BUG: unable to handle|Oops: |general protection fault[,:]|kernel BUG at |BUG: kernel NULL pointer|Internal error: .{1,80} \[#\d|BUG: Bad page (?:state|map|cache) in process|BUG: scheduling while atomic: |BUG: spinlock (?:bad magic|lockup suspected|recursion)|BUG: stack guard page was hit|PANIC: double fault|VERIFY\d?[SUPB]?\(.{1,600}\) failed(?: \(|\s*$)|PANIC at \S{1,200}\.c:\d|Unable to handle kernel (?:NULL pointer|paging request)|(?:invalid[ _]op(?:code)?|divide[ _]error|general[ _]protection|(?:coprocessor[ _])?segment[ _](?:overrun|not[ _]present)|stack[ _]segment|double[ _]fault|bounds|int3|invalid[ _]TSS|alignment[ _]check|control[ _]protection|overflow|simd[ _]exception|page[ _]fault): [0-9a-f]{4} \[#\d"
)
_FILES = re.compile(r"VFS: file-max limit (?P<limit>\d{1,18}) reached")
_PIDS = re.compile(r"cgroup: fork rejected by pids controller in (?P<cgroup>\S+)")


def _task(found: re.Match[str], message: str, code: str) -> KernelFinding:
    return make(
        FACTS,
        "hung_task",
        code,
        message,
        pid=grammar.number(found["pid"]),
        process=grammar.name(found["name"]),
    )


def _lockup(message: str) -> KernelFinding | None:
    if found := message_start.match(_SOFT, message):
        cpu = {"cpu": int(found["cpu"])}
        pid, name = grammar.number(found["pid"]), grammar.name(found["name"])
        return make(
            FACTS,
            "hung_task",
            "soft_lockup",
            message,
            pid=pid,
            process=name,
            device=f"cpu{found['cpu']}",
            detail=cpu,
        )
    if found := message_start.match(_HARD, message):
        return make(FACTS, "hung_task", "hard_lockup", message, device=f"cpu{found['cpu'] or found['other']}")
    return None


def read(message: str, _context: KernelContext) -> KernelFinding | None:
    """A line of the kernel's own watchdogs."""
    if found := message_start.match(_TASK, message):
        return _task(found, message, found["s"])
    if found := message_start.match(_MUTEX, message):
        return _task(found, message, "mutex")
    if finding := _lockup(message):
        return finding
    if message_start.match(_RCU, message):
        return make(FACTS, "hung_task", "rcu_stall", message)
    if message_start.match(_WORKQUEUE, message):
        return make(FACTS, "hung_task", "workqueue_lockup", message)
    if found := message_start.match(_PANIC, message):
        return make(FACTS, "panic", "panic", message, detail={"why": sanitize.clean(found["why"], 256)})
    if message_start.match(_OOPS, message):
        return make(FACTS, "panic", "oops", message)
    if message_start.match(_FILES, message):
        return make(FACTS, "limit", "file_max", message)
    if found := message_start.match(_PIDS, message):
        group = found["cgroup"]
        detail = {"cgroup": sanitize.clean(group, 256), **grammar.sluid_of(group)}
        return make(FACTS, "limit", "pids", message, job_id=grammar.job_of(group), detail=detail)
    return None


FAMILY = grammar.LineFamily(
    name="hung",
    triggers=(
        "blocked for more than",
        "blocked in I/O wait",
        " blocked on a",
        "lockup",
        "LOCKUP",
        "stall",
        "kthread starved",
        "kthread timer",
        "anic - ",
        "BUG: ",
        "kernel BUG",
        "Oops",
        "general protection",
        "Unable to handle kernel",
        "[#",
        "PANIC",
        "VERIFY",
        "Internal error: ",
        "file-max",
        "fork rejected",
    ),
    read=read,
    facts=FACTS,
)
