"""Messages of other batch systems and their launchers about the end of a process or a job: LSF, PBS, HTCondor, Grid Engine, ALPS, PALS, jsrun, Flux."""

from __future__ import annotations

import re

from probing_cluster.evidence.joblog import grammar
from probing_cluster.evidence.joblog.grammar import USER, JobFinding, JoblogContext, Record, make
from probing_cluster.evidence.joblog.messages import process, slurm

FACTS = {
    **process.ENDS,
    "peer_lost": process.FACTS["peer_lost"],
    "host_oom_kill": process.FACTS["host_oom_kill"],
    **{k: slurm.FACTS[k] for k in ("slurm_timeout", "slurm_oom", "slurm_preempted", "slurm_launch_failed", "slurm_cancelled")},
}  # fmt: skip
_WORDS = r"(?i:Killed|Segmentation fault|Bus error|Aborted|Terminated|Floating point exception|Illegal instruction)"
_SIGNALS = {
    "killed": 9,
    "segmentation fault": 11,
    "bus error": 7,
    "aborted": 6,
    "terminated": 15,
    "floating point exception": 8,
    "illegal instruction": 4,
}
_ENDED = (
    # LSF
    re.compile(
        r"\s{0,4}Exited with (?:signal termination: (?P<word>[A-Za-z ]{4,30}?|(?P<signal>\d{1,2}))\.?$|exit code (?P<code>\d{1,3})\.)"
    ),
    # ALPS (aprun), PALS (mpiexec of Cray's newer systems), jsrun, HTCondor, PBS, Flux
    re.compile(
        rf"_pmiu_daemon\(SIGCHLD\): \[NID \d{{1,8}}\].{{0,80}} PE RANK (?P<rank>\d{{1,8}}) exit (?:signal (?P<word>{_WORDS})|code (?P<code>\d{{1,3}}))"
    ),
    re.compile(
        rf"Application \d{{1,12}} (?:exit signals: (?P<word>{_WORDS})|exit codes: (?P<code>[1-9]\d{{0,2}})\b)"
    ),
    re.compile(
        rf"\[NID \d{{1,8}}\] .{{0,60}}\bApid \d{{1,12}}: .{{0,120}}\bProcess terminated via (?P<word>{_WORDS})"
    ),
    re.compile(
        r"(?P<host>[A-Za-z][\w.-]{0,200}): rank (?P<rank>\d{1,8}) (?:died from signal (?P<signal>\d{1,2})|exited with code (?P<code>[1-9]\d{0,2}))\b"
    ),
    re.compile(
        r"ERROR:\s{1,3}One or more process \(first noticed rank (?P<rank>\d{1,8})\) terminated with (?:signal (?P<signal>\d{1,2})|exit(?:ing)? (?:code|status) (?P<code>\d{1,3}))"
    ),
    re.compile(r"\s{1,8}\(0\) Abnormal termination \(signal (?P<signal>\d{1,2})\)"),
    re.compile(r"\s{1,8}\(1\) Normal termination \(return value (?P<code>[1-9]\d{0,2})\)"),
    re.compile(
        r"(?:flux-job: |\S{0,20}\s?flux-\w{1,20}(?:\[\d{1,8}\])?: )task\(s\) (?:exited with exit code (?P<code>[1-9]\d{0,2})|(?P<word>[A-Z][A-Za-z ]{4,30})$)"
    ),
    re.compile(
        r"(?:\s{0,12}(?:PBS )?(?:Job )?Exit[_ ][Ss]tatus\s{0,3}[:=]\s{0,16}(?P<pbs>-?\d{1,3})(?: \([A-Z][^()]{2,80}\))?$)"
    ),
)
"""A process ended badly: by its code, its signal, or the signal's name."""
_PBS_SIGNAL = 256
"""PBS adds it to the number of the signal that ended the job."""
_FLUX = re.compile(
    r"(?:[\d.]{1,16}s: |\S{0,20}\s?)?job\.exception (?:.{1,40} )?type=(?P<type>[\w-]{2,40}) severity=0(?: (?P<note>.{1,400}))?"
)
"""Flux's exception that ended a job; the job goes on after exceptions of a weaker severity."""
_FLUX_LOST = re.compile(r"\bnode.failure\b|\blost (?:contact|connection)\b", re.IGNORECASE)
_FLUX_REFUSED = frozenset(
    {"alloc", "depend", "dependency", "validate", "constraint", "feasibility", "prolog"}
)
"""Exceptions before the first task ran."""
_NOT_STARTED = re.compile(
    r"\bstart failed\b|\bNo such file or directory\b|\bPermission denied\b|\bExec format\b"
)
_PLEXEC = re.compile(
    r"\[(?:ERR|WARN)\.?\] PLE \d{4} \w{2,20} .{0,80}\b(?:abort|terminat|kill)\w{0,6}\b.{0,60}?(?:\(rank=(?P<rank>\d{1,8})\))?(?:\(nid=\w{1,20}\))?"
    r"(?:\(sig=(?P<signal>\d{1,2})\)|\(CODE=\d{1,6},\d{1,20},(?P<status>\d{1,6})\)|$)"
)
"""Fujitsu's launcher; the last number of its code is the status that `wait` gives."""
_MEMORY = re.compile(
    r"\s{0,8}(?:Error from \S{1,200}: )?(?:Job has gone over (?:its )?(?:cgroup )?memory limit|memory usage exceeded request_memory)|.{0,80}\bJob killed by HTCondor due to excessive memory use\b"
    r"|job \S{1,40} exceeded (?:MEM|VMEM|SWAP) usage (?:hard|soft) limit\b"
    r"|.{0,40}job \S{1,40} exceeded? (?:hard|soft) (?:h_vmem|s_vmem|h_rss|h_data)\b|\s{0,4}\S{0,40}\[?\d{0,9}\]?:? ?exceeded job (?:hard|soft) limit \"?(?:h_vmem|h_rss)",
)
_TIME = re.compile(
    r"job \S{1,40} exceeded WALLTIME usage (?:hard|soft) limit\b|.{0,40}job \S{1,40} exceeded? (?:hard|soft) (?:wallclock time|h_rt|s_rt|h_cpu)\b|.{0,20}exceeded hard wallclock time|MOAB_INFO:\s{1,4}job exceeded wallclock limit"
    r"|\s{0,4}exec: job.exception: .{0,40}type=timeout|\S{0,20}\s?job\.exception type=timeout|.{0,40}resource allocation expired"
)
_TIME_LINE = "The batch system ended the job at its time limit."
_KILLED = re.compile(
    r"\[NID \d{1,8}\].{0,80}\bOOM killer terminated this process|OOM killer terminated this process\."
)
_LOST = re.compile(
    r"=>> PBS: job killed: node \d{1,6} \((?P<host>[\w.-]{1,253})\) requested job (?:terminate|die)|Error: Remote JSM server is not responding on host (?P<jsm>[\w.-]{1,253})"
    r"|(?:error: )?commlib error: got (?:read|write|select) error\b|\s{0,8}Shadow exception!|\s{0,8}Job disconnected, attempting to reconnect"
)
_CLAIM = re.compile(
    r"apsched: claim exceeds reservation's|aprun: (?:-\w|file) .{1,160}(?:not found|exceeds|cannot)|aprun: file \S{1,300} not found|Error: jsrun .{1,160}|Unable to run job: \S|qsub: (?!waiting|job|Job)\S|bsub: (?!Job)\S|condor_submit: \S|ERROR: Can't (?:open|find) \"|flux-(?:run|submit|batch): ERROR: \S"
)
_EVICTED = re.compile(r"\d{3} \([\d.]{5,24}\) [\d/: -]{10,24} Job was evicted\.")
_SUBMITIT = re.compile(
    r".{0,80}\bCaught signal (?:SIG\w{1,8}|\d{1,2}) on \S{1,253}: this job is (?P<why>preempted|timed-out)"
)
_CAP = re.compile(r"(?:CPU time limit exceeded|Cputime limit exceeded)(?: \(core dumped\))?$")
_CPU_LINE = "A process used more CPU time than its limit (ulimit -t) allows."


def _kind(found: dict[str, str | None]) -> str | None:
    word = found.get("word")
    if number := found.get("signal"):
        return slurm.of_signal(int(number))
    if word:
        return slurm.of_signal(_SIGNALS.get(word.strip().lower(), 4))
    if pbs := found.get("pbs"):
        status = int(pbs)
        return slurm.of_signal(status - _PBS_SIGNAL) if status > _PBS_SIGNAL else process.of_code(status)
    code = found.get("code")
    return process.of_code(int(code)) if code else None


def _flux(record: Record, kind: str, note: str) -> JobFinding | None:
    """The finding of a Flux exception: a refusal, a cancellation, a limit, a lost node, or the end of its tasks."""
    if kind == "cancel":
        return make(FACTS, "slurm_cancelled", record)
    if kind == "timeout":
        return make(FACTS, "slurm_timeout", record, meaning=_TIME_LINE)
    if _FLUX_LOST.search(note) or kind == "node-failure":
        return make(FACTS, "peer_lost", record)
    if kind in _FLUX_REFUSED or (kind == "exec" and _NOT_STARTED.search(note)):
        if kind == "prolog":
            return make(FACTS, "slurm_launch_failed", record)
        return make(FACTS, "slurm_launch_failed", record, domains=USER, meaning=_REFUSED)
    if kind != "exec":
        return None
    ended = "process_aborted" if "MPI_Abort" in note else "task_exit"
    return make(FACTS, ended, record, detail={"of_launcher": True})


def _plexec(record: Record, found: re.Match[str]) -> JobFinding:
    status = int(found["status"] or 0)
    signal = int(found["signal"] or status & 127)
    kind = slurm.of_signal(signal) if signal else "process_aborted"
    rank = grammar.number(found["rank"], grammar.MAX_RANK)
    return make(FACTS, kind, record, rank=rank, detail={"of_launcher": True})


def read(record: Record, _context: JoblogContext) -> JobFinding | None:
    """A line of a batch system other than Slurm, or of its launcher."""
    text = record.text
    if found := _FLUX.match(text):
        return _flux(record, found["type"], found["note"] or "")
    if found := _PLEXEC.match(text):
        return _plexec(record, found)
    for pattern in _ENDED:
        if found := pattern.match(text):
            words = found.groupdict()
            kind = _kind(words)
            rank = grammar.number(words.get("rank"), grammar.MAX_RANK)
            detail = {"of_launcher": True}
            return (
                make(FACTS, kind, record, rank=rank, host=words.get("host"), detail=detail) if kind else None
            )
    if _KILLED.match(text):
        return make(FACTS, "host_oom_kill", record)
    if _MEMORY.match(text):
        return make(FACTS, "slurm_oom", record)
    if _CAP.match(text):
        return make(FACTS, "slurm_timeout", record, meaning=_CPU_LINE)
    if _TIME.match(text):
        return make(FACTS, "slurm_timeout", record, meaning=_TIME_LINE)
    if found := _LOST.match(text):
        return make(FACTS, "peer_lost", record, host=found["host"] or found["jsm"])
    if found := _SUBMITIT.match(text):
        return make(FACTS, "slurm_preempted" if found["why"] == "preempted" else "slurm_timeout", record)
    if _EVICTED.match(text):
        return make(FACTS, "slurm_preempted", record)
    if _CLAIM.match(text):
        return make(FACTS, "slurm_launch_failed", record, domains=USER, meaning=_REFUSED)
    return None


_REFUSED = "The batch system or its launcher refused what the job asked for."

FAMILY = grammar.LogFamily(
    name="batch",
    triggers=(
        "Exited with ", "_pmiu_daemon", " exit signals: ", " exit codes: ", ": rank ", "One or more process", "bnormal termination", "Normal termination (",
        "task(s) ", "job.exception ", " PLE ", "xit_status", "xit status", "xit_Status", "xit Status", "emory limit", "usage hard limit", "usage soft limit", "request_memory", "h_vmem", "h_rss", "wallclock time", "wallclock limit", "h_rt", "type=timeout", "allocation expired",
        "OOM killer terminated", "Process terminated via ", "requested job ", "Remote JSM", "commlib error", "Shadow exception", "Job disconnected", "apsched: ", "aprun: ", "Error: jsrun", "Unable to run job",
        "qsub: ", "bsub: ", "condor_submit: ", "ERROR: Can't ", "flux-run", "flux-submit", "flux-batch", "Job was evicted", "HTCondor due to", "time limit exceeded", "this job is ",
    ),
    read=read,
    facts=FACTS,
)  # fmt: skip
