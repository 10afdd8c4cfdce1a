"""Messages of slurmstepd, slurmd, srun and sbatch in a job's output."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime

from probing_cluster.evidence.joblog import grammar, mention
from probing_cluster.evidence.joblog.grammar import (
    ALL_DOMAINS,
    SOFTWARE,
    USER,
    JobFinding,
    JoblogContext,
    LineRole,
    Record,
    fact,
    make,
)
from probing_cluster.evidence.joblog.messages import python
from probing_cluster.evidence.joblog.messages.devices import cuda

FACTS = {
    "slurm_timeout": fact(LineRole.END, USER, "Slurm ended the job at its time limit."),
    "cuda_version": cuda.FACTS["cuda_version"],
    "slurm_preempted": fact(
        LineRole.END, SOFTWARE, "Slurm preempted the job for another one; not a failure of the job."
    ),
    "slurm_requeued": fact(LineRole.END, SOFTWARE, "The job was put back into the queue."),
    "slurm_cancelled": fact(
        LineRole.END, USER, "Somebody (or srun after another task's failure) cancelled it."
    ),
    "slurm_node_fail": fact(
        LineRole.ROOT, ("hardware", "system_software"), "Slurm lost a node of the job.", late=True
    ),
    "slurm_task_failure": fact(
        LineRole.EXIT, ALL_DOMAINS, "Slurm ended the step because one of its tasks failed."
    ),
    "slurm_oom": fact(
        LineRole.ROOT, USER, "A process went over the job's memory limit and was killed.", late=True
    ),
    "slurm_unkillable": fact(
        LineRole.ROOT,
        ("system_software", "hardware"),
        "Processes of the job could not be killed: they hang in the kernel.",
        late=True,
    ),
    "slurm_launch_failed": fact(
        LineRole.ROOT, ("user_program", "system_software"), "Slurm could not start the program."
    ),
    "oom_kill_suspected": fact(
        LineRole.EXIT,
        USER,
        "A process was killed with SIGKILL; mostly for lack of host memory, but nothing here proves it.",
    ),
    "segfault": fact(
        LineRole.EXIT, ("user_program", "system_software"), "A process crashed on a bad memory access."
    ),
    "bus_error": fact(
        LineRole.EXIT,
        ALL_DOMAINS,
        "A process crashed with SIGBUS: a full shared-memory file system, a truncated file, or bad memory.",
    ),
    "process_aborted": fact(
        LineRole.EXIT, ALL_DOMAINS, "A process aborted itself; the reason stands before it."
    ),
    "process_crashed": fact(LineRole.EXIT, ALL_DOMAINS, "A process died of a signal."),
    "process_terminated": fact(LineRole.OBSERVATION, ALL_DOMAINS, "A process was told to end from outside."),
    "task_exit": fact(
        LineRole.EXIT, ALL_DOMAINS, "A task ended with an error code; the reason stands elsewhere."
    ),
    **{k: python.FACTS[k] for k in ("disk_full", "host_memory_error")},
}
_CANCELLED = re.compile(
    r"\*\*\* (?:JOB|STEP|StepId=|JobId=)\s?[^\s\d]{0,24}\d\S* (?:(?:ON|on) (?P<host>\S+) )?CANCELLED AT (?!\.\.)\S+?(?: ?DUE(?: ?(?:TO|to) ?(?P<why>[^*]*?))?)?(?:(?P<closed> ?\*\*\*)(?: on (?P<old>\S+))?|$)|^srun: Job has been (?P<whole>cancelled)$"
)
_NOT_CLOSED = re.compile(r"\*\*\* (?:JOB|STEP|StepId=|JobId=).{0,300}CANCELLED AT [^*]{1,80}$")
ENDED = "Slurm ended the job or a step of it; the line is cut off before its reason."
_WHY = (
    ("slurm_timeout", "TIMELIMIT"),
    ("slurm_preempted", "PREEMPTION"),
    ("slurm_node_fail", "NODE"),
    ("slurm_requeued", "REQUEUE"),
    ("slurm_task_failure", "TASKFAILURE"),
)
_STATES = {
    "NODE_FAIL": "slurm_node_fail", "OUT_OF_MEMORY": "slurm_oom", "TIMEOUT": "slurm_timeout", "PREEMPTED": "slurm_preempted",
    "CANCELLED": "slurm_cancelled",
}  # fmt: skip
_OF_STEP = re.compile(r".{0,40}\bSLURM-job '\d{1,12}' failed, SLURM status is: '(?P<state>\w{4,20})'")
"""How Snakemake reports the end of the Slurm job that ran a rule."""
_OOM = re.compile(
    r"\b[1-9]\d{0,9} oom[-_]kill event|oom[-_]kill event(?:\(s\)|s)? in (?:[Ss]tep|\w{0,8}Id)|[Ee]xceeded (?:job|step) memory limit|(?:Job|Step|JobId=|StepId=)\s?\S* exceeded (?:job |step )?memory limit|OOM Killed"
    r"|(?:^|[:\]] ?)(?:This |The |Your )?(?:[Jj]ob|[Pp]rocess|[Tt]ask|[Ss]tep)\b.{0,60} exceed(?:ed|s|ing) (?:its|the|your)? ?(?:\w+ )?memory (?:quota|limit|request|allocation)\b"
)
_PERHAPS = re.compile(r"\bhit memory(?:\+swap)? limit at least once during execution\b")
"""Slurm's note that memory ran short once. The kernel may have freed some; together with a killed process it is the reason."""
_NODE = re.compile(
    r"(?:srun|salloc): error: .{0,200}Node failure on (?P<hosts>\S+)|(?:srun|salloc|slurmstepd(?:-\S{1,253})?): .{0,200}\bnode failure\b"
    r"|\b(?:JOB|STEP|JobId=|StepId=)\s?[^\s\d]{0,24}\d\S{0,64} .{0,120}\bNODE FAILURE\b",
    re.IGNORECASE,
)
_UNKILLABLE = re.compile(
    r"STEPD TERMINATED ON (?P<host>\S+) AT \S+ DUE TO JOB NOT ENDING WITH SIGNALS|\b(?:srun|slurmstepd|slurmd)\S{0,80}: .{0,200}\b[Uu]nkillable\b"
)
_LAUNCH = re.compile(
    r"(?:(?:slurmstepd|slurmd)(?:-(?P<step>\S{1,253}))?: |\[\d{1,10}(?:\.\w{1,20})?\] )error: (?:.{0,200}execve\(\): (?P<what>.*)|TaskProlog failed|\s{0,4}mpi/pmix\w{0,8}: .{0,200}Can't find address for host |container_[pg]_\w{1,30}:? .{0,200}failed|.{0,200}(?:task_p_pre_launch|spank.{0,200}failed)"
    r"|pyxis: (?:\s{0,12}\[ERROR\]|\s{1,12}enroot-\w{1,20}: |(?!\s|printing|.{0,40}(?:remov|clean|delet|unmount))))"
    r"|srun: error: (?:Application launch failed|CPU binding outside of job step allocation|task \d+ launch failed|fwd_tree_thread: can't find address for host (?P<unknown>[^\s,]{1,253})|Task launch for \S{1,64} failed on node (?P<node>[^\s:]{1,253})|Unable to create (?:job )?step|plugin_load_from_file: |Couldn't find the specified plugin name for|Unable to allocate|.{0,200}Invalid (?:job|account|partition|generic resource|qos))"
    r"|(?:srun|salloc|slurmstepd|slurmd): (?:error: )?Prolog (?:failure|error|failed|hung|timed out) on node (?P<refused>[^\s:,]{1,253})"
    r"|\berror: (?:run_command: )?(?:slurm|user) task_(?:prolog|epilog) (?:can ?not be executed|did not exit normally)|\berror: TaskProlog failed status="
    r"|srun: fatal: |(?:sbatch|salloc): error: (?:Batch job submission failed|Job submit/allocate failed|Unable to allocate)",
    re.IGNORECASE,
)
_CONTAINER = re.compile(
    r"^(?:FATAL|ERROR) ?:\s+(?:container creation failed|(?:while|could not|unable to|failed to|image |no such).{0,160}?(?:image|container|sif|sandbox|overlay|rootfs|session|bind|namespace)\b|Unable to handle \S{1,20} uri|couldn't determine user account information)"
    r"|^(?:\[ERROR\] .{0,200}(?:hooks\.d|\.sqsh|enroot|image|container)|enroot-\w{1,20}: (?:failed|error)|enroot-mount: )|^nvidia-container-cli: \w[\w ]{0,30} error:"
    r"|^docker: Error response from daemon: ",
    re.IGNORECASE,
)
_WRAPPED = re.compile(
    r"spank: required plugin \S{0,40}pyxis|pyxis: (?:failed to (?:import|create|start)|couldn't start|container (?:start failed|exited too soon))"
)
"""The plugin's message before it prints the log of the failed program."""
_CHILD = re.compile(r"pyxis: child \d{1,10} failed")
"""The plugin's helper ended badly; its task is on the next line."""
_OVER = re.compile(r"Job/step already completing or completed")
"""A step that the script requested after the job had ended."""
_NO_NAME = re.compile(r"pyxis: {4,16}id: cannot find name for (?:user|group) ID \d")
"""A complaint of `id` in the container engine's scripts, which go on; an error that ended them follows."""
_PRINTED = re.compile(
    r"error: pyxis: {4,16}(?!\[(?:INFO|WARN)|curl:)(?:[\w./-]{1,80}: .{1,300}|\[ERROR\] .{1,300}|Write failed because .{1,300}|FATAL ERROR: ?.{1,300})$"
)
_NO_CONTAINER = "The container could not be created or started."
_IMAGE_WORDS = (
    ("cuda_version", re.compile(r"nvml error: driver/library version mismatch")),
    ("disk_full", re.compile(r"(?:no space left on device|disk quota exceeded)\W*$", re.IGNORECASE)),
    (
        "host_memory_error",
        re.compile(r"(?:out of memory(?: \(\w{1,40}\))?|cannot allocate memory)\W*$", re.IGNORECASE),
    ),
    ("oom_kill_suspected", re.compile(r"signal: killed\W*$")),
)
"""The end of an image build's message: the resource that it lacked."""
_MISTAKE = re.compile(
    r"no such file|does ?n[o']t exist|\bnot found\b|cannot find|permission denied|exec format error|not a directory|is a directory"
    r"|invalid (?:reference format|generic resource|account|partition|qos|image|argument|option|feature|reservation|node name|number of)|mutually exclusive"
    r"|unauthorized|toomanyrequests|pull rate limit|authentication required|access (?:to the resource is )?denied|manifest unknown|error code: (?:40[134]|429)\b"
    r"|requested (?:node configuration|partition|time limit)|more (?:processors|nodes|tasks) requested|(?:memory|gres|gpus?|cpus?) required by|no image|unable to handle \S{1,20} uri",
    re.IGNORECASE,
)
"""Mistakes in the job's own request: files, images, commands, resources."""
_SITE = re.compile(
    r"Invalid user id|(?:User|Group ID) not found on host|[ug]id \d{1,10} not found|[Cc]ould not find uid \d|unable to get user name|slurm_script|hooks\.d|nvidia|libcuda|\bdriver|plugin|credential|controller|timed out|/run/|/proc/|/sys/|cgroup|\blookup userid\b"
    r"|\bslurm task_(?:prolog|epilog)\b|TaskProlog failed status|authentication error|\bmunge\b|\bProlog (?:failure|error|failed|hung)\b|Zero Bytes were transmitted|Communication connection failure",
    re.IGNORECASE,
)
"""Parts of the site, not of the job."""
_ADDRESS = re.compile(r"\bhttps?://\S{1,1000}|\b[\w.-]{1,100}\.(?:io|com|org|ai|net|ch|de)[/#]\S{1,500}")
_MISTAKEN = "Slurm could not start what the job asked for: a file, an image, a command or a resource that is not there."
_TASKS = re.compile(r"srun: error: (?P<host>\S{1,1024}): tasks? (?P<tasks>[\d,-]{1,1024}): (?P<how>.+)")
_TASKS_CUT = re.compile(
    r"srun: error: (?P<host>\S{1,1024}): ta?s?k?s?(?: [\d,-]{0,1024}(?:: ?(?P<how>[A-Za-z ]{0,24}))?)?$"
)
"""The line ends before it says how they ended."""
_LSF = re.compile(r"\s{0,4}TERM_(?P<why>[A-Z_]{3,24}): \w")
_LSF_ENDS = {
    "RUNLIMIT": "slurm_timeout", "CPULIMIT": "slurm_timeout", "DEADLINE": "slurm_timeout", "WINDOW": "slurm_timeout",
    "MEMLIMIT": "slurm_oom", "SWAP": "slurm_oom", "PREEMPT": "slurm_preempted", "REQUEUE_OWNER": "slurm_requeued",
    "REQUEUE_ADMIN": "slurm_requeued", "THREADLIMIT": "process_terminated", "PROCESSLIMIT": "process_terminated",
}  # fmt: skip
_PBS = re.compile(r"=>> PBS: job killed: (?P<what>\w{2,24}) .{0,80}exceeded", re.IGNORECASE)
_FIRST = re.compile(r"\d{1,9}")
_CODE = re.compile(r"exited with exit code (\d{1,3})\b")
SIGNALS = {
    4: "process_crashed", 6: "process_aborted", 7: "bus_error", 8: "process_crashed", 9: "oom_kill_suspected", 10: "bus_error",
    11: "segfault", 15: "process_terminated", 2: "process_terminated",
}  # fmt: skip
_HOW = (
    ("slurm_oom", "out of memory"), ("oom_kill_suspected", "killed"), ("segfault", "segmentation fault"),
    ("bus_error", "bus error"), ("process_aborted", "aborted"), ("process_terminated", "terminated"),
    ("process_crashed", "floating point exception"), ("process_crashed", "illegal instruction"),
    ("process_crashed", "file size limit exceeded"), ("process_crashed", "cpu time limit exceeded"),
    ("task_exit", "exited with exit code"),
)  # fmt: skip


_JOB_ENDED = re.compile(
    r"\*\*\* (?:JOB|JobId=)\s?\S* (?:(?:ON|on) \S+ )?CANCELLED AT (?P<at>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)"
)


def is_cut(text: str) -> bool:
    """Whether Slurm's message of an end goes on in the next line, where a page broke it."""
    return "CANCELLED AT " in text and _NOT_CLOSED.search(text) is not None


def ended_before(text: str, began: datetime | None) -> bool:
    """True for Slurm's line about the end of an attempt of this job that ended before `began` (naive, the cluster's zone).

    Attempts write into one file where the job or the site appends (`--open-mode=append`, JobFileAppend).
    """
    at = cancelled_at(text) if began is not None else None
    return began is not None and at is not None and at <= began


def cancelled_at(text: str) -> datetime | None:
    """When Slurm ended the job, by its line about it (naive, the cluster's zone); None for any other line."""
    if "CANCELLED AT" not in text or not (found := _JOB_ENDED.search(text)):
        return None
    try:
        return datetime.fromisoformat(found["at"])
    except ValueError:
        return None


_OF_JOB = re.compile(
    r"(?:\b(?:JOB|STEP|[Jj]ob|[Ss]tep)[= ]|\b(?:StepId|JobId)=)(?P<job>\d{1,10}(?:_(?=[\d\[*])|(?=[.:+\s,\]*\[]|$)))"
)
_OWN_WORDS = re.compile(r"\b(?:slurmstepd|slurmd|srun)(?:-\S{1,253})?: |\*\*\* (?:JOB|STEP) ")


class OtherJobs:
    """Recognises Slurm's lines about other jobs, and lines right after them that name no job: an older log was printed or appended to."""

    def __init__(self, job_ids: Iterable[int]) -> None:
        numbers = list(job_ids)
        self._own = frozenset(str(n) for n in numbers)
        self._in_array = len(numbers) > 1
        """Whether its array's number would be among them, if it is a task of one."""
        self._other = False
        """Whether the last line was one of them."""

    def wrote(self, text: str) -> bool:
        """Whether the line, the next one, is about another job."""
        if not self._own or not _OWN_WORDS.search(text):
            self._other = False
            return False
        named = _OF_JOB.findall(text)
        own = any(n.rstrip("_") in self._own or (n.endswith("_") and not self._in_array) for n in named)
        self._other = not own if named else self._other
        return self._other


def of_signal(signal: int) -> str:
    """The kind for a process that died of `signal`."""
    return SIGNALS.get(signal, "process_crashed")


def _cancelled(record: Record) -> JobFinding | None:
    if (found := _OF_STEP.match(record.text)) and (kind := _STATES.get(found["state"])):
        return make(FACTS, kind, record)
    if not (found := _CANCELLED.search(record.text)):
        return None
    # A line that was broken at a blank is joined without it.
    why = (found["why"] or "").upper().replace(" ", "")
    kind = next((name for name, word in _WHY if word in why), None)
    if kind is None and not (found["closed"] or found["whole"]) and (kind := _begun(why, _WHY)) is None:
        return make(FACTS, "process_terminated", record, role=LineRole.END, meaning=ENDED)
    # The host in this line reports the lost node; it is not the lost one.
    host = None if kind == "slurm_node_fail" else found["host"] or found["old"]
    return make(FACTS, kind or "slurm_cancelled", record, host=host)


def _begun(text: str, table: Iterable[tuple[str, str]]) -> str | None:
    """The kind whose words `text` begins, which a line's end cut off; None if several have them."""
    kinds = [kind for kind, words in table if text and words.startswith(text)]
    return kinds[0] if len(kinds) == 1 else None


def _tasks(record: Record) -> JobFinding | None:
    found = _TASKS.search(record.text)
    how = found["how"].lower() if found else ""
    kind = next((name for name, words in _HOW if how.startswith(words)), None)
    if kind is None and (cut := _TASKS_CUT.search(record.text)):
        kind = _begun((cut["how"] or "").strip().lower(), _HOW) or "task_exit"
        return make(FACTS, kind, record, host=cut["host"])
    if found is None or kind is None or how.startswith("exited with exit code 0"):
        return None
    first, code = _FIRST.search(found["tasks"]), _CODE.match(how)
    return make(
        FACTS,
        kind,
        record,
        host=found["host"],
        rank=int(first[0]) if first else None,
        detail={"tasks": found["tasks"]} | ({"exit_code": int(code[1])} if code else {}),
    )


def launch(record: Record, host: str | None, *, container: bool) -> JobFinding:
    """A program that was never started: by the job's own mistake, or the site's."""
    if _CHILD.search(record.text):
        return make(FACTS, "slurm_launch_failed", record, host=host, role=LineRole.EXIT)
    if _NO_NAME.search(record.text):
        return make(
            FACTS, "slurm_launch_failed", record, host=host, domains=SOFTWARE, detail={"heading": True}
        )
    if _WRAPPED.search(record.text):
        # The reason follows where the container's own log is printed.
        return make(FACTS, "slurm_launch_failed", record, host=host, detail={"handled": True})
    # An image's name may hold any word.
    site = _SITE.search(_ADDRESS.sub(" ", record.text)) is not None
    if _MISTAKE.search(record.text) and not site:
        return make(FACTS, "slurm_launch_failed", record, host=host, domains=USER, meaning=_MISTAKEN)
    domains, meaning = SOFTWARE if site else None, _NO_CONTAINER if container else None
    return make(FACTS, "slurm_launch_failed", record, host=host, domains=domains, meaning=meaning)


def is_container(text: str) -> bool:
    """Whether Apptainer, Enroot or Docker reports that it stops."""
    return _CONTAINER.match(text.lstrip()) is not None


def container(record: Record) -> JobFinding:
    """A container or an image that could not be made, judged by the end of the line."""
    kind = next((kind for kind, words in _IMAGE_WORDS if words.search(record.text)), None)
    if kind is None:
        return launch(record, None, container=True)
    # The killed process was the last one; no other line is more precise.
    return make(FACTS, kind, record, role=LineRole.ROOT)


def _heading(record: Record, context: JoblogContext) -> JobFinding:
    """A heading of a container's error; the error is on one of the next lines."""
    context.head, context.head_line = record.text.strip().rstrip(":"), record.line
    context.head_raised = False
    return make(FACTS, "slurm_launch_failed", record, role=LineRole.EXIT, meaning=_NO_CONTAINER)


def _batch(record: Record) -> JobFinding | None:
    """Why LSF or PBS ended a job: the same ends under another scheduler's names."""
    if found := _LSF.match(record.text):
        kind = _LSF_ENDS.get(found["why"], "slurm_cancelled")
    elif found := _PBS.match(record.text):
        what = found["what"].lower()
        over = "slurm_oom" if what.endswith("mem") else "process_terminated"
        kind = "slurm_timeout" if what in ("walltime", "cput") else over
    else:
        return None
    if kind == "process_terminated":
        # The limit on threads, processes or cores is the job's own doing.
        return make(FACTS, kind, record, role=LineRole.END, domains=USER)
    return make(FACTS, kind, record)


_SPEAKS = re.compile(r"\b(?:slurmstepd|slurmd|srun)(?:-\S{1,253})?: ")
_CLAUSE = re.compile(r": [a-z]{2,20} [a-z]{2,20} $")


def _is_quoted(text: str) -> bool:
    """Whether somebody's sentence stands in front of what Slurm says; a progress bar it is glued to is none."""
    before = text[: found.start()] if (found := _SPEAKS.search(text)) else ""
    prose = mention.foreign_words(before) >= 2 or _CLAUSE.search(before) is not None
    return before.endswith((" ", "\t")) and prose


def read(record: Record, context: JoblogContext) -> JobFinding | None:
    """A line of Slurm, or of another batch system where it tells of the job's end."""
    if _is_quoted(record.text):
        return None
    if finding := _cancelled(record) or _tasks(record):
        return finding
    text = record.text
    if _OOM.search(text):
        return make(FACTS, "slurm_oom", record)
    if _PERHAPS.search(text):
        doubt = {"perhaps": True, "survived": True}
        return make(FACTS, "slurm_oom", record, role=LineRole.OBSERVATION, detail=doubt)
    if found := _UNKILLABLE.search(text):
        return make(FACTS, "slurm_unkillable", record, host=found["host"])
    if found := _NODE.search(text):
        return make(FACTS, "slurm_node_fail", record, host=found["hosts"])
    if _PRINTED.search(text):
        return container(record)
    if (found := _LAUNCH.search(text)) and not _OVER.search(text):
        return launch(
            record,
            found["step"] or found["node"] or found["refused"] or found["unknown"],
            container="pyxis: " in text,
        )
    if is_container(text):
        ends = text.rstrip().endswith(":") and not _IMAGE_WORDS[-1][1].search(text)
        return _heading(record, context) if ends else container(record)
    return _batch(record)


FAMILY = grammar.LogFamily(
    name="slurm",
    triggers=(
        "CANCELLED AT", "has been cancelled", "SLURM status is", "srun: ", "oom", "OOM Killed", "memory limit",
        "memory quota", "memory request", "memory allocation", "STEPD", "nkillable", "slurmstepd:", "slurmstepd-",
        "slurmd:", "task_prolog", "task_epilog", "TaskProlog", "sbatch: error", "salloc: ", "NODE FAILURE", "FATAL:",
        "FATAL :", "container", "enroot", "sqsh", "docker: Error", "pyxis: ", "TERM_", "PBS: job killed",
    ),
    read=read,
    facts=FACTS,
)  # fmt: skip
