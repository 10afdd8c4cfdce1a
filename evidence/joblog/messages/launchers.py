"""Errors of launchers and MPI's runtimes that no other rule knows, by the form in which each of them prints its errors.

A launcher often complains and goes on. Therefore such a line counts only if nothing else explains the end and hardly anything follows it.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from probing_cluster.core import vocabulary
from probing_cluster.evidence.joblog import grammar, mention
from probing_cluster.evidence.joblog.grammar import (
    NETWORK,
    USER,
    JobFinding,
    JoblogContext,
    LineRole,
    Record,
    fact,
    make,
)
from probing_cluster.evidence.joblog.messages import languages, process, slurm
from probing_cluster.evidence.joblog.messages.communication import gloo
from probing_cluster.evidence.joblog.messages.devices import cuda

FACTS = {
    **process.ENDS,
    "slurm_launch_failed": slurm.FACTS["slurm_launch_failed"],
    "rendezvous_failed": gloo.FACTS["rendezvous_failed"],
    "program_error": languages.FACTS["program_error"],
    "cuda_error": cuda.FACTS["cuda_error"],
    vocabulary.DIRECTORY_REPLACED: fact(
        LineRole.OBSERVATION,
        ("user_program", "system_software"),
        "Slurm could not enter the job's working directory and ran it in /tmp.",
    ),
}
_REPLACED = re.compile(
    r"couldn't chdir to [`'](?P<directory>/.{0,1024})': (?P<why>.{1,80}): going to /tmp instead$"
)
_SLURM = re.compile(
    r"(?P<program>srun|slurmstepd|slurmd|sbatch|salloc|sattach|sbcast)(?:-(?P<host>\S{1,253}))?: (?:(?P<level>error|fatal): (?P<text>\S.{0,600})|Job (?:\S{1,40} )?step creation (?:temporarily|still) disabled, retrying\b)"
)
_CREATED = re.compile(r"srun: (?:Job step|Step) created\b")
"""What srun prints of a step that had to wait, when it begins."""
_GOES_ON = re.compile(
    r"\bignor|\bcontinu|\bdisregard|\bdefault|\bretry|\bdisabl|\bskip|\binstead\b|\bfall(?:ing)? back|\bwarn|\bdeprecat|\bround(?:ed|ing)\b|\bdirect launch\b|going to /tmp|\bTMPDIR\b|may (?:already )?exist|should never happen|printing \S{1,40} log|forwarding to child|already (?:com|stop)",
    re.IGNORECASE,
)
_END = re.compile(
    r"job step to complete|\bcomplete (?:message|request|msg|rpc)\b|Abandoning IO|\b(?:epilog|shut ?down|terminat\w+|cancel\w*|kill\w*|remov\w+|clean\w*|delet\w+|destroy\w*|finaliz\w+|unmount\w*|revoked)\b|rmdir|unlink|Task_?Epilog|at exit|MESSAGE_TASK_EXIT|RESPONSE_|COMPLETE_BATCH|slurm_send_node_msg|step completion|_complete\b|[Ss]ignal|SIG[A-Z]|[Ee]xit(?:ed)? (?:code|status|message)|non-zero|get_exit_code"
    r"|pam_|xauth|[Xx]11|window size|\bpty\b|keepalive|jobacct|acct_gather|_gather\b|profil|accounting|oom|memcg|cgroup(?! (?:plugin|namespace|v))|rlimit|frequency|cpu.?freq|governor|usage|\bget\b.{0,40}\b(?:data|info)|env(?:ironment)? var|\bin environment\b|spank: required|pyxis: {3,}"
)
"""What Slurm prints when a step ends, about limits and accounting, or below another message of its own."""
_HAS_STARTED = re.compile(
    r"io error|missing step|\bcommunicat|not respond|Connection (?:refused|reset|timed out)|No route to host|[Uu]nreachable"
)
_WRONG_REQUEST = re.compile(
    r"--[a-z][a-z-]{1,40}\b|\b[Ii]nvalid\b(?! (?:job|cred|msg|message|hostlist|nodeid))|configuration file|\b(?:in|un)compatible\b|\bexclusive\b|\bout of range\b|\btoo (?:long|large|small|few|many)\b|\brequested\b|\basked for\b|\bduplicate|\bspecif|\bmust be\b|\bhostfile\b"
)
_BUSY = "The step never started: Slurm waited for nodes, processors, memory or GPUs of the job that other steps of it held, or that it does not have."
_NO_CONFIGURATION = "s_p_parse_file: unable to status file"
"""Slurm's commands look for a missing slurm.conf again for a minute: this is no node of a cluster."""
_WRONG_OPTION = "Slurm's command refused its options, its input files or what they ask for."
_DISTURBED = "Slurm's launcher lost a daemon, a node or the controller."
_HYDRA = re.compile(
    r"\[(?:mpiexec|proxy:\d{1,6}(?::\d{1,6})?)@(?P<host>[\w.-]{1,253})\] \w{1,80} \(\S{1,200}\.c:\d{1,6}\): (?P<text>\S.{0,300})"
)
"""MPICH's and Intel MPI's launcher prints its own stack: the innermost call first."""
_REFUSED = re.compile(
    r"\bargument\b|\boption\b|\balready set\b|\bduplicate\b|\bnot compiled\b|No executable|\bnot supported\b|\bsetting\b"
)
_HYDRA_LINE = "MPI's launcher met an error of its own: a process it could not start, a node it could not reach, or one that ended."
CUT_END = re.compile(
    r"(?:slurmstepd|slurmd|srun)\S{0,253}: (?:error: )?\*\*\* (?:JOB|STEP) \d\S{0,40}(?: O?N?| (?:ON|on) [\w.-]{1,253}(?: [A-Z]{0,9}(?: A?T?)?)?)?$"
)
"""Slurm's end of a job, cut off with the log, if nothing follows."""
_CHILD_FAILED = re.compile(
    r"Container rank (?P<rank>\d{1,8}) status failed cmd \[(?:.{0,4000}\] code (?P<code>-?\d{1,6}) log )?"
    r"|(?:\[[\d :,-]{10,30}\] )?\[ERROR\] \[launch\.py:\d{1,6}:\w{1,40}\] \['(?!.*\] exits with )"
)
"""Paddle's and DeepSpeed's launchers about a child that failed; the command is long, and a paste often ends inside it."""
_RULE = "-" * 74
"""Open MPI, PRRTE and PMIx frame each of their messages with two such lines."""
_SENTENCE_CHARS = 400
_PROSE = re.compile(r"(?:[A-Z]|mpi|or?te|p?rte|prun|pmix|ompi|osh|shmem)[\w'-]{0,40}:?(?: {1,2}\S{1,80}){3}")
_ERROR = re.compile(
    r"\babort|\bunable to\b|\bcould not\b|\bcannot\b|\bcan not\b|\bnot able to\b|\bnot (?:be )?(?:found|supported|recognized|compiled|correct|parseable|permitted|allowed|reachable|enough)\b|\bfail(?:ed|ure)\b|\bfatal\b|\berroneous\b|\berror (?:has )?occurred|\b(?:an|internal|parse) error\b|\btoo (?:low|small|large|many|few)\b|\b(?:in|mal)valid\b|\bmalformed\b|\bimproper"
    r"|\b(?:un|mis)(?:recognized|matched|reachable|expected)\b|\bdoes not (?:match|exist|recognize|have)\b|\bexceed|\bconflict|\bonly one (?:can|of)\b|\boversubscri|\binsufficient\b|\bdisconnected\b|\bcrashed\b|\bis required\b|\bmissing\b|\bNo \w[\w-]{1,30}(?: \w[\w-]{1,30}){0,4} (?:was|were)\b",
    re.IGNORECASE,
)
_NOTE = re.compile(
    r"\bwarn|\bcontinue\b|\bcontinuing\b|\bignor|\bperformance\b|\binstead\b|\bdeprecat|\bfall(?:ing)? ?back|\bwill be (?:disabled|skipped|used|closed)\b|\bmay (?:now )?(?:hang|behave)|\bskip|\bdefaulting\b|\bunpredictab|OpenFabrics|by default\b|\bnot (?:be )?freed\b|\bnot be used\b|\blimiting\b|\bSyntax\b|\bcomma-delimited\b|\bno (?:impact|longer)\b"
    r"|Primary job\b|\bnoticed that\b|\bexit(?:ed|s)? (?:on|with|code|improperly)|has exited|non-zero|MPI_ABORT was|\bhelp message",
    re.IGNORECASE,
)
"""Messages after which the job goes on, and those that only report an end."""
_OF_RUNTIME = re.compile(
    r"\b(?:\w{0,4}MPI\w{0,20}|mpi(?:run|exec)\w{0,6}|PRTE|prte\w{0,6}|PMI[xX]?|ORTE|orte\w{0,6}|MCA|BTL|PML|UCX|OPAL|slots?|daemons?|hostfile|[Hh]osts?|nodes?|process(?:es)?|ranks?|peers?|cu[A-Z]\w+|hip[A-Z]\w+)\b"
)
"""What the runtimes' messages are about; a program may draw such rules around a message of its own."""
_ERRONEOUS = re.compile(r"\berroneous\b|MPI_FINALIZE\b|before MPI was initialized|more than once")
_APART = re.compile(
    r"\bunable to reach\b|\bunreachable\b|\bestablish (?:full |any )?connect|\bdisconnected\b|unable to (?:communicate|connect)|\bno route\b",
    re.IGNORECASE,
)
_CALL = re.compile(r"The call to (?:cu|hip)[A-Z]\w{2,40}(?:\(.{0,120}?\))? failed")
_REQUEST = re.compile(
    r"\bplease correct|\bspecified\b|\brequest|\boptions?\b|\bhostfile\b|\bMCA (?:parameter|variable)|\bvalue\b|\bprovided\b|\bgiven\b|command line|\bsyntax\b|\bworking directory\b|\bexecutable\b",
    re.IGNORECASE,
)
_BOX_LINE = "MPI's launcher or runtime refused what the job asked for, or could not do it."
_APART_LINE = "MPI could not bring the job's processes together, or lost the connection between them."


def _slurm(found: re.Match[str], record: Record, context: JoblogContext) -> JobFinding | None:
    if found["level"] is None:
        domains = ("user_program", "system_software")
        turns = {vocabulary.STEPS_TOOK_TURNS: True} if context.step_created else {}
        return make(
            FACTS,
            "slurm_launch_failed",
            record,
            role=LineRole.OBSERVATION,
            domains=domains,
            meaning=_BUSY,
            detail={"stalled": True, **turns},
        )
    text = found["text"]
    if replaced := _REPLACED.match(text):
        detail = {"directory": replaced["directory"], "why": replaced["why"]}
        return make(FACTS, vocabulary.DIRECTORY_REPLACED, record, host=found["host"], detail=detail)
    unset = text.startswith(_NO_CONFIGURATION)
    if found["level"] == "error" and not unset and (_GOES_ON.search(text) or _END.search(text)):
        return None
    about = slurm.launch(record, None, container="pyxis: " in text)
    if about.domains != USER and _HAS_STARTED.search(text):
        about = replace(about, domains=NETWORK, meaning=_DISTURBED)
    elif about.domains == slurm.FACTS[about.kind].domains and _WRONG_REQUEST.search(text):
        about = replace(about, domains=USER, meaning=_WRONG_OPTION)
    return replace(about, detail={**about.detail, "weak": True, "launch": found["program"]})


def _hydra(found: re.Match[str], record: Record) -> JobFinding:
    detail = {"weak": True, "launch": "mpiexec"}
    if _REFUSED.search(found["text"]):
        return make(FACTS, "program_error", record, role=LineRole.EXIT, host=found["host"], detail=detail)
    fields: dict[str, Any] = {
        "role": LineRole.EXIT,
        "host": found["host"],
        "meaning": _HYDRA_LINE,
        "detail": detail,
    }
    return make(FACTS, "slurm_launch_failed", record, **fields)


def _rule(record: Record, context: JoblogContext) -> JobFinding | None:
    """The rule that closes a message gives its finding; any other may open one."""
    lines, began = context.box, context.box_line
    context.box, context.box_line = [], record.line
    if not lines or lines[0].line > began + 2 or not _PROSE.match(lines[0].text):
        return None
    context.box_line = 0
    whole = " ".join(line.text for line in lines)
    if _NOTE.search(whole) or not _ERROR.search(whole):
        return None
    ends = next((i for i, line in enumerate(lines) if not line.text), len(lines))
    sentence = " ".join(line.text for line in lines[:ends])[:_SENTENCE_CHARS]
    first = replace(lines[0], text=sentence)
    detail = {"weak": True, "launcher": "mpi"}
    if _CALL.search(whole):
        return make(FACTS, "cuda_error", first, detail=detail)
    if _ERRONEOUS.search(whole) or not _OF_RUNTIME.search(whole):
        return make(FACTS, "program_error", first, detail=detail)
    if _APART.search(whole):
        return make(FACTS, "rendezvous_failed", first, meaning=_APART_LINE, detail=detail)
    own = USER if _REQUEST.search(whole) else None
    return make(FACTS, "slurm_launch_failed", first, domains=own, meaning=_BOX_LINE, detail=detail)


def read(record: Record, context: JoblogContext) -> JobFinding | None:
    """A line of a launcher about itself, or one of a message between two rules."""
    text = record.text.strip()
    if text == _RULE:
        return _rule(record, context)
    if mention.begins_with_speaker(text):
        return None
    if (found := _SLURM.match(text)) and not CUT_END.match(text):
        return _slurm(found, record, context)
    if found := _CHILD_FAILED.match(text):
        kind = process.of_code(int(found["code"] or 1)) or "task_exit"
        rank = grammar.number(found["rank"], grammar.MAX_RANK)
        if kind == "process_terminated":
            return None  # the launcher's own line about the exit code follows
        return make(FACTS, kind, record, rank=rank, detail={"of_launcher": True})
    if _CREATED.match(text):
        context.step_created = True
        return None
    if found := _HYDRA.match(text):
        return _hydra(found, record)
    if context.boxed(record.line) and (text or context.box):
        context.box.append(replace(record, text=text[:_SENTENCE_CHARS]))
    return None


FAMILY = grammar.LogFamily(
    name="launchers",
    triggers=(
        ": error: ",
        "step creation ",
        "tep created",
        ": fatal: ",
        "[mpiexec@",
        "[proxy:",
        "[launch.py:",
        "Container rank ",
        _RULE,
    ),
    read=read,
    facts=FACTS,
    expects=JoblogContext.boxed,
)
