"""Host memory ran out: the kernel's OOM killer, whom it killed and in which Slurm job."""

from __future__ import annotations

import re
from typing import Any

from probing_cluster.evidence.kernel import grammar, message_start
from probing_cluster.evidence.kernel.grammar import INFO, KernelContext, KernelFinding, fact, make

_JOB = "Ask for more memory, or use less; the job's own cgroup limit was reached."
_WHOSE = (
    "Ask for more memory, or use less; the lines below say whether a job's cgroup or the whole node was full."
)
_NODE = "Find what filled the node: a job without a memory limit, or a leak outside jobs."
FACTS = {
    ("oom", "memcg"): fact(
        INFO,
        "user_program",
        "A process was killed because its cgroup (a job, a container) reached its memory limit.",
        _JOB,
    ),
    ("oom", "global"): fact(
        INFO,
        "user_program system_software",
        "A process was killed because the whole node ran out of memory.",
        _NODE,
    ),
    ("oom", "cpuset"): fact(
        INFO, "user_program", "A process was killed because the memory of its NUMA nodes ran out.", _JOB
    ),
    ("oom", "killed"): fact(INFO, "user_program", "The kernel killed a process for lack of memory.", _JOB),
    ("oom", "invoked"): fact(
        INFO, "user_program", "A process could get no memory and set off the OOM killer.", _WHOSE
    ),
    ("oom", "reaped"): fact(
        INFO, "user_program", "The kernel took back the memory of a process it had killed.", _WHOSE
    ),
    ("oom", "alloc_failure"): fact(
        INFO,
        "system_software user_program",
        "The kernel could not find free pages; the caller may go on.",
        _NODE,
    ),
}
_KILL = re.compile(r"oom-kill:constraint=(?P<constraint>CONSTRAINT_\w+)(?P<fields>.*)")
_TASK = re.compile(r",task=(?P<name>(?s:.){1,64}?),pid=(?P<pid>\d{1,18}),uid=(?P<uid>\d{1,18})\s*$")
_CGROUP = re.compile(r",(?P<which>oom_memcg|task_memcg)=(?P<path>[^,\s]{1,512})")
_KILLED = re.compile(
    r"(?P<scope>Memory cgroup out of memory(?:\s\([^)]*\))?: |Out of memory(?: \([^)]*\))?: )?[Kk]ill(?:ed)? process (?P<pid>\d{1,18})(?:,?\s*(?:UID \d+,?\s*)?\((?P<name>(?s:.){1,64}?)\)(?=\s|,|\.|$)|(?<=\d)$)"
)
"""The process's name is missing where a line was cut or wrapped behind its number."""
_LIMIT = re.compile(r"Task in (?P<task>/\S*) killed as a result of limit of (?P<limit>/\S*)")
_GROUP = re.compile(r"Tasks in (?P<task>/\S*) are going to be killed due to memory\.oom\.group set")
_INVOKED = re.compile(rf"(?P<name>{message_start.TASK}) invoked oom-killer:")
_REAPED = re.compile(
    r"oom_reaper: (?:reaped process (?P<pid>\d{1,18}) \((?P<name>(?s:.){1,64}?)\)|unable to reap pid:(?P<stuck>\d{1,18}) \((?P<who>(?s:.){1,64}?)\))"
)
_ALLOC = re.compile(
    rf"(?P<name>{message_start.TASK}): page allocation failure[:.] order:(?P<order>\d{{1,18}})"
)
_NOBODY = re.compile(r"[Oo]ut of memory and no killable processes")
_SLAB = re.compile(r"\bSLUB: Unable to allocate memory on node|\bSLAB: Unable to allocate memory on node")
_SIZES = re.compile(r"(?P<what>total-vm|anon-rss|file-rss|shmem-rss):(?P<kb>\d{1,15})kB")


def _constraint(message: str, found: re.Match[str], context: KernelContext) -> KernelFinding:
    """The one-line summary of a kill: constraint, cgroups, victim."""
    constraint = found["constraint"]
    code = {
        "CONSTRAINT_MEMCG": "memcg",
        "CONSTRAINT_CPUSET": "cpuset",
        "CONSTRAINT_MEMORY_POLICY": "cpuset",
    }.get(constraint, "global")
    paths = {m["which"]: m["path"] for m in _CGROUP.finditer(found["fields"])}
    job = grammar.job_of(paths.get("task_memcg", "")) or grammar.job_of(paths.get("oom_memcg", ""))
    task = _TASK.search(found["fields"])
    pid = grammar.number(task["pid"]) if task else None
    sluid = grammar.sluid_of(paths.get("task_memcg", "")) or grammar.sluid_of(paths.get("oom_memcg", ""))
    detail: dict[str, Any] = {"constraint": constraint, **paths, **sluid}
    if task:
        detail["uid"] = grammar.number(task["uid"])
    if pid is not None:
        context.put("oom", str(pid), (code, job, sluid))
    name = grammar.name(task["name"]) if task else None
    return make(FACTS, "oom", code, message, pid=pid, process=name, job_id=job, detail=detail)


def _killed(message: str, found: re.Match[str], context: KernelContext) -> KernelFinding:
    """The kill itself; its job is known from the summary line before it."""
    scope = found["scope"] or ""
    known = context.get("oom", found["pid"])
    code = "memcg" if scope.startswith("Memory cgroup") else "global" if scope else "killed"
    if code == "global" and known and known[0] == "cpuset":
        code = "cpuset"
    sizes = {m["what"].replace("-", "_") + "_kib": int(m["kb"]) for m in _SIZES.finditer(message)}
    job, sluid = known[1:] if known else (None, {})
    return make(
        FACTS,
        "oom",
        code,
        message,
        pid=grammar.number(found["pid"]),
        process=grammar.name(found["name"]) if found["name"] else None,
        job_id=job,
        detail=sizes | sluid,
    )


def read(message: str, context: KernelContext) -> KernelFinding | None:
    """A line of the OOM killer."""
    if found := message_start.match(_KILL, message):
        return _constraint(message, found, context)
    if found := message_start.match(_REAPED, message):
        pid, name = found["pid"] or found["stuck"], found["name"] or found["who"]
        return make(
            FACTS,
            "oom",
            "reaped",
            message,
            pid=grammar.number(pid),
            process=grammar.name(name),
            detail={"done": bool(found["pid"])},
        )
    if found := message_start.match(_KILLED, message):
        return _killed(message, found, context)
    if found := message_start.match(_LIMIT, message):
        job = grammar.job_of(found["task"]) or grammar.job_of(found["limit"])
        return make(
            FACTS,
            "oom",
            "memcg",
            message,
            job_id=job,
            detail={
                "task_memcg": found["task"],
                "oom_memcg": found["limit"],
                **(grammar.sluid_of(found["task"]) or grammar.sluid_of(found["limit"])),
            },
        )
    if found := message_start.match(_GROUP, message):
        return make(
            FACTS,
            "oom",
            "memcg",
            message,
            job_id=grammar.job_of(found["task"]),
            detail={"task_memcg": found["task"], **grammar.sluid_of(found["task"])},
        )
    if found := _INVOKED.match(message):
        return make(FACTS, "oom", "invoked", message, process=grammar.name(found["name"]))
    if message_start.match(_NOBODY, message) and "panic" not in message:
        return make(FACTS, "oom", "memcg" if "cgroup" in message else "global", message)
    if message_start.match(_SLAB, message):
        return make(FACTS, "oom", "alloc_failure", message)
    if found := _ALLOC.match(message):
        return make(
            FACTS,
            "oom",
            "alloc_failure",
            message,
            process=grammar.name(found["name"]),
            detail={"order": int(found["order"])},
        )
    return None


FAMILY = grammar.LineFamily(
    name="oom",
    triggers=(
        "oom-kill",
        "oom_reaper",
        "ill process ",
        "Killed process ",
        "killed as a result of limit",
        "page allocation failure",
        "no killable processes",
        "Unable to allocate memory on node",
        "memory.oom.group",
    ),
    read=read,
    facts=FACTS,
)
