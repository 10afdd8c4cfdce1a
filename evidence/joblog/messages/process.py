"""Ends of processes, as shells, launchers, crash handlers and torchelastic report them."""

from __future__ import annotations

import re

from probing_cluster.core import vocabulary
from probing_cluster.evidence.joblog import grammar, mention, progress
from probing_cluster.evidence.joblog.grammar import (
    ALL_DOMAINS,
    USER,
    JobFinding,
    JoblogContext,
    LineRole,
    Record,
    fact,
    make,
)
from probing_cluster.evidence.joblog.messages import slurm

ENDS = {
    k: slurm.FACTS[k]
    for k in (
        "oom_kill_suspected",
        "segfault",
        "bus_error",
        "process_aborted",
        "process_crashed",
        "process_terminated",
        "task_exit",
    )
}
"""Kinds of a process's end that Slurm, torchelastic, MPI's launchers and shells report."""

FACTS = {
    **ENDS,
    "peer_lost": fact(
        LineRole.REMOTE, ALL_DOMAINS, "Another process of the job is gone; its own failure lies elsewhere."
    ),
    "memory_corruption": fact(
        LineRole.ROOT,
        ("user_program", "system_software"),
        "A native library damaged the heap and the C library stopped the process.",
    ),
    "command_not_found": fact(
        LineRole.ROOT, USER, "The shell found no such command, and that was the last it had to say."
    ),
    "gil_deadlock": fact(
        LineRole.OBSERVATION, USER, "A thread could not get the interpreter lock (GIL) in time."
    ),
    "host_oom_kill": fact(
        LineRole.ROOT, USER, "The kernel killed a process for lack of host memory.", late=True
    ),
}
_ELASTIC = re.compile(
    r"failed \(exitcode: (?P<code>-?\d{1,6})\) (?:local_rank: (?P<local>\d{1,18}) )?\(pid: (?P<pid>\d{1,18})\)"
)
_CHILD_RANK = re.compile(r"(?:^|\s)rank\s+: (?P<rank>\d{1,18}) \(local_rank: \d+\)")
_CHILD_TIME = re.compile(r"(?:^|\s)time\s+: (?P<time>\d{4}-\d\d-\d\d_\d\d:\d\d:\d\d)")
_CHILD_HOST = re.compile(r"(?:^|\s)host\s+: (?P<host>\S+)")
_CHILD_EXIT = re.compile(r"(?:^|\s)exitcode\s+: (?P<code>-?\d+) \(pid: (?P<pid>\d{1,18})\)")
_CHILD_SIGNAL = re.compile(
    r"(?:^|\s)traceback\s+: Signal (?P<signal>\d{1,2}) \(SIG[A-Z]{2,8}\) received by PID (?P<pid>\d{1,18})"
)
_ROOT = re.compile(r"Root Cause \(first observed failure\)")
_CODE = re.compile(
    r"(?:LAUNCH INFO [\d-]{10} [\d:,]{8,12} Exit code|exits with return code|returned? (?:non-zero )?exit (?:code|status)|exited with (?:code|status)|command terminated with exit code|died with|died, exit code|finished abnormally, OS return value|(?:failed|ended|terminated|crashed) (?:\(|with (?:an? )?)(?:exit ?(?:code|status)|return code|rc)) ?=? ?:? ?(?:<Signals\.(?P<signame>SIG[A-Z]{2,12})[^>]{0,40}>|(?P<code>-?\d{1,6}))"
)
_SIGNALED = re.compile(
    r"\b[Pp]rocess (?:\d{1,10} )?was (?:signaled to shutdown with|killed by) signal (?P<code>\d{1,3})\b|\bexit codes of the workers are \{(?P<name>SIG[A-Z]{2,8})\b"
)
"""Reports of programs that start processes (TGI, Dask, joblib) about the signal that ended one."""
_EXITING = re.compile(
    r"^\s*(?:exiting process (?P<rank>\d{1,8}) with exit code: (?P<code>\d{1,6})|Process (?P<name>\S+) terminated with exit code (?P<other>\d{1,6}))"
)
_NUMBERED = re.compile(
    r"\b(?:Rank (?P<rank>\d{1,8}) crashed with exit code|Global rank (?P<global>\d{1,8}) \(PID (?P<pid>\d{1,10})\) exited with code|process (?P<spawned>\d{1,8}) terminated with (?:exit code|signal)|Child process with PID (?P<child>\d{1,10}) terminated with code|Child process \d{1,10} \(local_rank \d{1,6}\) FAILED \(exitcode) (?:(?P<code>-?\d{1,6})|(?P<signame>SIG[A-Z]{2,8}))\b"
)
"""Launchers that number the processes they start: MosaicML's Composer, torch.multiprocessing, Lightning."""
_SHELL = re.compile(
    r"(?:^|\s)line \d{1,9}: {1,6}(?P<pid>\d{1,10}) (?:\*\*)?(?P<how>Killed(?!\s{1,40}(?:\S{1,80}/)?(?:nvidia-smi|rocm-smi|dcgmi|gpustat|nvtop|h?top|vmstat|iostat|mpstat|pidstat|sar|dstat|tail|sleep|watch)(?:\s|$))|Segmentation fault|Bus error|Aborted|Floating point exception|Illegal instruction|Terminated)\b"
)
_BARE = re.compile(
    r"^(?P<how>Killed|Segmentation fault|Bus error|Aborted(?!\.$)|Illegal instruction|Floating point exception)(?: ?\(core dumped\))?\.?$"
    r"|^signal: (?P<go>killed|segmentation fault|aborted|bus error)(?: \(core dumped\))?$"
    r"|^(?P<other>segmentation fault|aborted|bus error|illegal instruction) {1,8}\(core dumped\)$"
)
"""How a shell or Go reports the end of a program. click and typer add a full stop when a person left a prompt."""
_BEHIND_A_BAR = re.compile(
    r"[\])%\\|/0-9]\s{0,4}(?P<how>Killed|Segmentation fault|Bus error|Aborted)(?: ?\(core dumped\))?\.?$"
)
"""The same where a progress bar had not ended its line."""
_ZSH = re.compile(
    r"^(?:\[\d{1,4}\]\s{1,8}(?:[+-]\s{1,4})?(?P<pid>\d{1,10})\s{1,4}|zsh: )(?P<how>killed|segmentation fault|bus error|abort|illegal hardware instruction|floating point exception|terminated)\b"
)
_KERNEL = re.compile(
    r"(?:^|\s)[\w.:/-]{1,64}\[(?P<pid>\d{1,10})\]:? (?:(?P<segfault>segfault at) [0-9a-f]{1,16} ip |general protection fault ip:|trap invalid opcode ip:)"
)
"""The kernel's own line about a process that crashed, copied beside the job's output."""
_NO_COMMAND = re.compile(
    r"^\s{0,8}(?:\S{1,200}: (?:line )?\d{1,6}: |(?:-?(?:ba|z|k|da|c|tc)?sh|sudo|/\S{0,100}sh): (?:line \d{1,6}: )?)(?:exec: )?(?P<name>\S{1,200}): (?:[Cc]ommand )?not found(?:\.{1,3}| \[No such file or directory\])?$"
    r"|^(?:\[[^\]\n]{1,40}\]\s{0,4}){1,3}/\S{0,100}sh: line \d{1,6}: \S{1,200}: command not found$"
    r"|^\s{0,8}(?:(?:zsh|\S{1,300}:\d{1,6}): command not found|fish: Unknown command): \S{1,200}$|^\s{0,8}[\w.+-]{1,80}: Command not found\.$"
    r"|^\s{0,8}Command '[^']{1,80}' not found, (?:but|did you)|^\s{0,8}(?:/\S{0,80}/)?env: ['‘]?\S{1,200}?['’]?: No such file or directory$"
    r"|^\s{0,8}(?:nohup|timeout|nice|stdbuf|setsid|xargs|time|taskset|numactl)\S{0,3}: (?:failed to run command|cannot run|failed to execute) .{1,200}: No such file or directory$|^\s{0,8}xargs: \S{1,200}: No such file or directory$"
    r"|^\s{0,8}\S{1,300}: \S{1,200}: bad interpreter: No such file or directory$"
)
_SETS_UP = frozenset({"module", "ml", "conda", "mamba", "micromamba", "spack"})
"""Commands that bring an environment; what it holds is missing later."""
_DEATH = re.compile(r"\bReceived (?P<signal>15|[123]) death signal, shutting down workers")
_TERMINATED = "The launcher was told to end (SIGTERM or SIGINT); nothing here says by whom."
_CAUGHT = re.compile(
    r"(?:\[(?P<host>[A-Za-z0-9][\w.-]{0,253}):(?P<pid>\d{1,10})(?: ?:[\d: ]{1,24})?\] )?(?:(?:Caught|MPT: Received) (?:fatal )?signal(?: - signo:| )(?P<signal>\d{1,3})\b|\*\*\* Process received signal \*\*\*|Signal: .{0,80} \((?P<mpi>\d{1,3})\)$)"
)
_FATAL = re.compile(
    r"(?:Fatal Python error: |^\w{0,5} ?Python error: (?=Segm|Bus|Abort|Illeg))(?P<how>Segmentation fault|Bus error|Aborted|Illegal instruction|.{1,80})"
)
_HEAP = re.compile(
    r"double free or corruption|\b(?:free|(?:re|c)?alloc|_?malloc|malloc_consolidate|munmap_chunk|mremap_chunk)\(\): (?:corrupted|invalid|unsorted|unaligned|mismatching|smallbin|largebin|too many|double free|memory corruption)|corrupted (?:size vs\. prev_size|double-linked list)|malloc\.c:\d{1,6}: \w{1,40}: Assertion |stack smashing detected|Attempt to free invalid pointer|<jemalloc>: .{0,80}(?:invalid|corrupt|double free)"
)
_PEER = re.compile(
    r"JAX distributed service detected fatal errors|tasks are unhealthy \(stopped sending heartbeats\)|\bA worker died or was killed while executing a task"
    r"|(?<!NodeDiedError: )\bthe node it was running on is dead or unavailable\b|The actor is dead because its (?:worker process has died|node has died|owner has died)"
    r"|/task:(?P<task>\d{1,8}) has been set to ERROR in coordination service|\bHorovod has been shut down\b"
    r"|\b(?:Worker|Engine core) proc \S{1,60} died unexpectedly|\bReceived sigquit from a child process|\bExecutorLostFailure \(executor \w{1,12} exited|\bTaskSchedulerImpl: Lost executor \w"
    r"|\bWorker process \d{1,10} was killed by unknown signal$|\bProcessExitedException\(\d{1,6}\)|\b[Cc]lient lost connection to worker \d|^The parallel pool that \w{1,20} was using has shut down"
    r"|^Error in (?:un)?serialize\(.{0,80}\) ?: error (?:reading|writing) (?:from|to) connection"
)
"""A lost process, as JAX's coordination service, Ray, Horovod, vLLM, SGLang, Spark, Dask's nanny and the pools of Julia, MATLAB and R report it."""
_MANAGED_OOM = re.compile(
    r"Task was killed due to the node running low on memory|exceeds the memory usage threshold of|\bSystem memory low at node with IP\b"
    r"|\b[1-9]\d{0,6} Workers \(tasks / actors\) killed due to memory pressure \(OOM\)|how to address the out of memory issue: \S{0,200}oom-prevention"
    r"|\bWorker .{0,100}exceeded 9\d% memory budget\.\s{1,2}Restarting|\b[Cc]ontainer (?:\[.{1,120}\] )?(?:killed by YARN for exceeding|is running (?:\S{1,20} )?beyond(?: the)?) (?:'?(?:physical|virtual|PHYSICAL|VIRTUAL)'? )?memory limits?"
)
"""Messages of Ray, Dask and YARN when they end a process that uses too much memory; they may restart the task."""
_MANAGED_MEANING = "The framework that runs the program's processes (Ray, Dask, YARN) ended one at its own memory limit; the kernel killed none."
_GIL = re.compile(r"Could not acquire GIL within \d+ ms")
_OOM = re.compile(
    r"Out of memory: Kill(?:ed)? process (?P<pid>\d{1,18})|Memory cgroup out of memory: Kill(?:ed)? process (?P<cg>\d{1,18})|oom-kill:constraint=.{0,1000}?pid=(?P<kpid>\d{1,18})"
)
_SENTENCE = 2  # With so many words before it, a kernel line is only mentioned.
_SIGTERM = re.compile(
    r"Received Signals?\.SIG(?:TERM|INT)|got signal: (?:15|2)\b|\b(?:[Rr]eceived|[Cc]aught|[Gg]ot|Bypassing) (?:an? )?(?:the )?(?:signal(?:=|:? ))?SIG(?:TERM|INT)\b|\b(?:[Rr]eceived|[Cc]aught|[Gg]ot) (?:termination )?signal:? (?:15|2)\b|\bSIG(?:TERM|INT) (?:was )?(?:received|caught)\b"
)
_SIGHUP = re.compile(r"SignalException: Process \d{1,10} got signal: 1$|Received Signals?\.SIGHUP")
HUNG_UP = "The launcher was hung up (SIGHUP): the terminal or the session it ran in went away."
_WORDS = {"killed": 9, "segmentation fault": 11, "bus error": 7, "aborted": 6, "abort": 6, "terminated": 15}
SIGNUMS = {"SIGKILL": 9, "SIGSEGV": 11, "SIGBUS": 7, "SIGABRT": 6, "SIGTERM": 15, "SIGINT": 2}
OTHER_SIGNAL = 4


def _how(text: str) -> str:
    return slurm.of_signal(_WORDS.get(text.lower(), 4))


def of_code(code: int) -> str | None:
    """The kind of an exit code: negative or above 128 is a signal; 0 is no failure."""
    if code == 0:
        return None
    signal = -code if code < 0 else vocabulary.signal_of(code)
    return slurm.of_signal(signal) if signal else "task_exit"


def _elastic(record: Record, context: JoblogContext) -> JobFinding | None:
    """torchelastic's list of failed children; its own choice of the first one comes over several lines."""
    text, listing = record.text, context.listing(record.line)
    if found := _ELASTIC.search(text):
        kind = of_code(int(found["code"]))
        return make(FACTS, kind, record, pid=grammar.number(found["pid"])) if kind else None
    if _ROOT.search(text) or "Failures:" in text:
        first = {"first_observed": True} if _ROOT.search(text) else {}
        context.child, context.child_line = first, record.line
    elif listing and (ended_at := _CHILD_TIME.search(text)):
        context.child["time"] = ended_at["time"]
    elif listing and (rank := _CHILD_RANK.search(text)):
        context.child["rank"] = int(rank["rank"][:9])
    elif listing and (host := _CHILD_HOST.search(text)):
        context.child["host"] = host["host"]
    elif (ended := _CHILD_EXIT.search(text)) and (listing or not context.child_line):
        # A log may begin inside the list.
        child, context.child = context.child, {}
        detail = {"ended_at": child["time"]} if "time" in child else {} if listing else {"list_cut": True}
        detail |= {"first_observed": True} if "first_observed" in child else {}
        about = {"rank": child.get("rank"), "host": child.get("host"), "detail": detail}
        context.child_ended = about
        if kind := of_code(int(ended["code"][:9])):
            return make(FACTS, kind, record, pid=grammar.number(ended["pid"]), **about)
    elif listing and (named := _CHILD_SIGNAL.search(text)):
        about = {
            **context.child_ended,
            "detail": context.child_ended.get("detail", {}) | {"signal_named": True},
        }
        kind = slurm.of_signal(int(named["signal"]))
        return make(FACTS, kind, record, pid=grammar.number(named["pid"]), **about)
    return None


def _crashed(record: Record) -> JobFinding | None:
    text = record.text
    if found := _FATAL.search(text):
        return make(FACTS, _how(found["how"]), record)
    if _HEAP.search(text):
        return make(FACTS, "memory_corruption", record)
    if found := _CAUGHT.search(text):
        signal = found["signal"] or found["mpi"]
        if signal:
            return make(
                FACTS,
                slurm.of_signal(int(signal)),
                record,
                host=found["host"],
                pid=grammar.number(found["pid"]),
            )
    if (found := _SHELL.search(text) or _ZSH.match(text)) and found["how"].lower() != "terminated":
        return make(FACTS, _how(found["how"]), record, pid=grammar.number(found["pid"]))
    if found := _KERNEL.search(text):
        kind = "segfault" if found["segfault"] else "process_crashed"
        return make(FACTS, kind, record, pid=grammar.number(found["pid"]))
    behind = _BEHIND_A_BAR.search(text)
    if behind and not progress.is_progress(text[: behind.start("how")]):
        behind = None
    if found := _BARE.match(text.strip()) or behind:
        return make(FACTS, _how(next(filter(None, found.groups()))), record)
    return None


def _code(found: re.Match[str]) -> int:
    """The exit code that a launcher printed, or that of the signal it named."""
    return -SIGNUMS.get(found["signame"], OTHER_SIGNAL) if found["signame"] else int(found["code"])


def _launcher(record: Record) -> JobFinding | None:
    text = record.text
    if found := _NUMBERED.search(text):
        kind = of_code(_code(found))
        rank = grammar.number(found["rank"] or found["global"] or found["spawned"], grammar.MAX_RANK)
        return (
            make(FACTS, kind, record, rank=rank, pid=grammar.number(found["pid"] or found["child"]))
            if kind
            else None
        )
    if found := _SIGNALED.search(text):
        signal = SIGNUMS.get(found["name"], OTHER_SIGNAL) if found["name"] else int(found["code"])
        return make(FACTS, slurm.of_signal(signal), record)
    if found := _EXITING.search(text):
        kind = of_code(int(found["code"] or found["other"]))
        rank = grammar.number(found["rank"] or found["name"], grammar.MAX_RANK)
        return make(FACTS, kind, record, rank=rank) if kind else None
    if found := _CODE.search(text):
        kind = of_code(_code(found))
        return make(FACTS, kind, record, detail={"exit_code": _code(found)}) if kind else None
    return None


def _is_mentioned(before: str) -> bool:
    """Whether a sentence or a quotation stands in front of a kernel line."""
    return mention.foreign_words(before) >= _SENTENCE or mention.is_quoted(before)


def is_of_another(text: str) -> bool:
    """Whether the line, in the form of an error of its own, reports that another process is gone or was ended for its memory."""
    return _PEER.search(text) is not None or _MANAGED_OOM.search(text) is not None


def read(record: Record, context: JoblogContext) -> JobFinding | None:
    """A line about the end of a process."""
    text = record.text
    if (found := _OOM.search(text)) and not _is_mentioned(text[: found.start()]):
        return make(
            FACTS, "host_oom_kill", record, pid=grammar.number(found["pid"] or found["cg"] or found["kpid"])
        )
    if finding := _elastic(record, context) or _crashed(record):
        return finding
    if _MANAGED_OOM.search(text):
        return make(FACTS, "host_oom_kill", record, meaning=_MANAGED_MEANING, detail={"retried": True})
    if found := _PEER.search(text):
        return make(FACTS, "peer_lost", record, rank=grammar.number(found["task"], grammar.MAX_RANK))
    if _GIL.search(text):
        return make(FACTS, "gil_deadlock", record)
    if (found := _DEATH.search(text)) and found["signal"] == "1":
        return make(FACTS, "process_terminated", record, role=LineRole.END, domains=USER, meaning=HUNG_UP)
    if found:
        detail = {"told_to_end": True}
        return make(
            FACTS, "process_terminated", record, role=LineRole.EXIT, meaning=_TERMINATED, detail=detail
        )
    if found := _NO_COMMAND.match(text):
        modules = {"weak": True, "modules": True} if found["name"] in _SETS_UP else {}
        return make(FACTS, "command_not_found", record, detail=modules)
    if _SIGHUP.search(text):
        return make(FACTS, "process_terminated", record, role=LineRole.END, domains=USER, meaning=HUNG_UP)
    if _SIGTERM.search(text):
        return make(FACTS, "process_terminated", record)
    return _launcher(record)


FAMILY = grammar.LogFamily(
    name="process",
    expects=grammar.JoblogContext.listing,
    triggers=(
        "exitcode",
        "received by PID",
        "Root Cause",
        "Failures:",
        "exit code",
        "Exit code ",
        "exit status",
        "return code",
        "exited with",
        "died with",
        "Killed",
        "signal: ",
        "OS return value",
        "Segmentation",
        "Bus error",
        "Aborted",
        "Illegal instr",
        "Floating point exc",
        "eceived signal",
        "fatal signal",
        "Signal: ",
        "Fatal Python",
        "JAX distributed service",
        "stopped sending heartbeats",
        "coordination service",
        "Horovod has been shut",
        "with exitcode",
        "FAILED (exitcode",
        "free invalid pointer",
        "<jemalloc>",
        "killed ",
        "segmentation fault",
        "bus error",
        " abort ",
        "zsh: ",
        "segfault at",
        "general protection",
        "invalid opcode",
        "not found",
        "Unknown command",
        ": No such file or directory",
        "death signal",
        "memory low",
        "memory pressure",
        "out of memory issue",
        "crashed with",
        "terminated with ",
        "worker died",
        "actor is dead",
        "dead or unavailable",
        "low on memory",
        "memory usage threshold",
        "double free",
        "*** Error in ",
        "free()",
        "alloc()",
        "malloc_consolidate",
        "mremap_chunk",
        "malloc.c:",
        "corrupted size",
        "corrupted double-linked",
        "munmap_chunk",
        "stack smashing",
        "acquire GIL",
        "died unexpectedly",
        "sigquit from a child",
        "ExecutorLostFailure",
        "Lost executor",
        "ProcessExitedException",
        "lost connection to worker",
        "has shut down",
        " from connection",
        " to connection",
        "memory budget",
        "memory limit",
        "died, exit code",
        "with signal",
        "by signal",
        "of the workers are",
        "Out of memory: Kill",
        "oom-kill:",
        "Memory cgroup",
        "SIGTERM",
        "SIGINT",
        "got signal",
        "aught signal",
        "termination signal",
        "SIGHUP",
    ),
    read=read,
    facts=FACTS,
)
