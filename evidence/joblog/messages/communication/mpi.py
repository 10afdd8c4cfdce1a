"""Messages of MPI's launchers and libraries: Open MPI and PRRTE, MPICH and Intel MPI."""

from __future__ import annotations

import re
from typing import Any

from probing_cluster.evidence.joblog import grammar, mention
from probing_cluster.evidence.joblog.grammar import (
    ALL_DOMAINS,
    USER,
    JobFinding,
    JoblogContext,
    LineRole,
    Record,
    make,
)
from probing_cluster.evidence.joblog.messages import languages, process, python, rules, slurm
from probing_cluster.evidence.joblog.messages.communication import gloo, nccl

FACTS = {
    "peer_lost": process.FACTS["peer_lost"],
    "rendezvous_failed": gloo.FACTS["rendezvous_failed"],
    **process.ENDS,
    "host_memory_error": python.FACTS["host_memory_error"],
    "slurm_launch_failed": slurm.FACTS["slurm_launch_failed"],
    "program_error": languages.FACTS["program_error"],
    "net_ib_error": nccl.FACTS["net_ib_error"],
}
_ABOUT = re.compile(
    r"(?:^|\s)=\s+(?:RANK (?P<rank>\d{1,8}) )?PID (?P<pid>\d{1,10}) RUNNING AT (?P<host>\S{1,253})"
    r"|(?:^|\s)Process name: \[(?:\[\d{1,10},\d{1,10}\]|[\w.@-]{1,253}),(?P<name>\d{1,8})\]"
    r"|process rank (?P<noticed>\d{1,8}) with PID (?P<npid>\d{1,10}) on node (?P<nhost>\S{1,253})(?: exited on)?$"
)
"""The first line of a message whose later line tells how the process ended."""
_ABOUT_LINES, _STACK_LINES, _COMPONENT_LINES, _SIGKILL = 4, 12, 60, "9"
_ON_SIGNAL = re.compile(
    r"process rank (?P<rank>\d{1,18}) with PID (?:(?P<pid>\d{1,18})|\S{1,18}) on node (?P<host>\S+) exited on signal (?P<signal>\d{1,18})"
)
_PALS = re.compile(
    r"(?P<host>[\w.-]{1,253}): rank (?P<rank>\d{1,8}) (?:died from signal (?P<signal>\d{1,3})\b|exited with code (?P<code>\d{1,3})$)"
)
"""Cray's launcher (mpiexec of PALS) reports a rank's end in one line."""
_OUTSIDE = re.compile(
    r"Attempting to use an MPI routine (?:before initializing|after finalizing)|The MPI_\w{2,40}\(\) function was called (?:before MPI_INIT|after MPI_FINALIZE)"
    r"|Open MPI has detected that a parameter given to a command line$"
)
"""The program called MPI before MPI_Init or after MPI_Finalize: MPICH's and Open MPI's messages."""
_MVAPICH = re.compile(r"\[(?:(?P<host>[\w.-]{1,253}):)?mpi_rank_(?P<rank>\d{1,8})\]\[error_sighandler\] Caught error: .{0,60}\(signal (?P<signal>\d{1,3})\)")  # fmt: skip
_SIGNAL = re.compile(
    r"=\s{1,8}KILLED BY SIGNAL: (?P<killed>\d{1,3})\b|THE EXIT STRING: .{0,60}\(signal (?P<string>\d{1,3})\)|(?:^|\s)(?:exited on )?signal (?P<wrapped>\d{1,3}) \("
)
_CODE = re.compile(r"(?:^|\s)(?:=\s+EXIT CODE: (?P<mpich>\d{1,18})$|Exit code:\s+(?P<open>\d{1,18})$)")
_WAIT_SIGNALS = frozenset({6, 7, 8, 9, 11, 15})
"""MPICH prints the wait status: a small one of these is a signal far more often than a program's own code."""
_IMPROPER = re.compile(
    r"\bhas exited due to process rank (?P<rank>\d{1,8}) with PID (?P<pid>\d{1,10}) on(?: node (?P<host>\S{1,253}))?"
)
_ABORT = re.compile(
    r"MPI_ABORT was invoked on rank (?P<rank>\d{1,18})|(?:MPICH ERROR \[Rank (?P<own>\d{1,8})\] .{0,200}: |^\s?Rank (?P<cray>\d{1,8}) \[[^\]\n]{8,40}\] \[[\w.-]{1,60}\] )application called MPI_Abort\(|(?:^|\s)Abort\(-?\d{1,18}\) on node (?P<node>\d{1,8})\b"
    r"|^application called MPI_Abort\(.{1,60}\) - process (?P<process>\d{1,8})$"
)
_FATAL_CALL = re.compile(
    r"\*{3} An error occurred in (?!MPI_Init)P?MPI_\w{2,60}|\d{1,8} more process(?:es)? ha(?:s|ve) sent help message help-mpi-errors\.txt / mpi_errors_are_fatal$"
)
"""Open MPI's first line of an error that ends the processes; its class follows and is more precise if the caller's arguments are wrong."""
_CALL_ENDED = "A call of MPI failed and ended the processes: by an error of its own, of its arguments, or of the network below it."
_START = re.compile(
    r"\bPML \w{1,32} cannot be selected|No components were able to be opened in the \w{1,32} framework|MPI_INIT(?:_THREAD)? failed for some reason"
    r"|Fatal error in (?:P?MPI_Init|internal_Init)\w*:|An error occurred in MPI_Init|daemon has unexpectedly failed after launch|pair of MPI processes are unable to reach each other\b"
    r"|unable to reliably start one or more daemons|MPI startup\(\): \w{1,20} fabric is not available",
    re.IGNORECASE,
)
_PMI = re.compile(
    r"(?:MPI[RD]\w{0,24}_pmi\w{0,20}_?init|INIT_PMI|PMI[2X]?_(?:Init|KVS_\w{1,20}|Job_\w{1,20}|Get_\w{1,20})|pmi_?version|PMI[2X]? init\b|PMI_?Init)\w{0,60}+(?:\(|\b.{0,40}\b(?:returned|failed)\b)"
    r"|^system msg for write_line failure : Bad file descriptor",
    re.IGNORECASE,
)
"""The part of MPI's error stack that asks the launcher for the process's rank; a descriptor that the process itself does not have."""
_NO_PMI = "MPI could not start: the program found no PMI of its kind, or had closed its connection. It was mostly started by a launcher that its MPI was not built for (see srun --mpi)."
_MPICH = re.compile(
    r"(?:^|MPICH ERROR \[Rank (?P<rank>\d{1,8})\] .{0,160} - Abort\(-?\d{1,10}\)(?: \(rank .{1,40}\))?: )MPIDI?_CRAY_\w{1,40}: \S"
)
"""Cray's MPI names the setting that it cannot fulfil; it repeats the message after `aborting job:`."""
_NOT_STARTED = re.compile(
    r"There are not enough slots available in the system|All nodes which are allocated for this job are already filled|A request was made to bind to that would"
    r"|(?:mpirun|mpiexec|prterun|prun|orterun) (?:was unable to (?:find|launch|start|cleanly)|could not|failed to (?:find|launch))|execvp error on file |Open MPI tried to fork a new process via the \"execve\""
    r"|(?:Your job|The job|A request) (?:has|was)? ?(?:requested|asked) more (?:resources|processes|slots|cpus|nodes)|Unable to allocate the requested (?:slots|resources)|^\d{1,8} total processes failed to start$"
    r"|(?:It looks like )?(?:MPI runtime init|or?rte_init|prte_init|pmix_init|opal_init|ompi_rte_init|rte_init) failed for some reason"
    r"|PMI2? (?:initialized but returned bad values|failed to init)|(?P<runtime>(?:OPAL|ORTE|PRTE|PMIX)(?: ERROR|_ERROR_LOG): (?:Unreachable|Not found|Unable to start))"
    r"|The application appears to have been direct launched using|write_line error; fd=-?\d|(?:PMI|PMI2|PMIX)_Init(?:ialize)?(?:\(\))? (?:failed|returned)",
    re.IGNORECASE,
)
"""The launcher refused, or the processes could not reach it: slots, bindings, executables, PMI."""
_SENT_AT_START = re.compile(
    r"write_line error; fd=-?\d{1,8} buf=:?cmd=(?:(?:full)?init(?:ack)?|get_\w{1,40})\b"
)
"""What a process asks its launcher while it starts; an `abort` or `finalize` comes at its end."""
_NO_EXECUTABLE = re.compile(
    r"(?:find|launch) the specified|could not access\b|execvp error on file .{1,300}\((?:No such file|Permission denied|Exec format)|via the \"execve\""
)
_NOT_THERE = (
    "MPI's launcher could not start the program: the executable is not there, or may not be executed."
)
_MEANING_LAUNCH = "MPI's launcher could not start the processes, or they could not reach it: slots, bindings, the executable, or PMI."
_UCX = re.compile(
    r"UCX\s{1,4}(?:ERROR|FATAL|Fatal:)\s{1,4}(?P<text>\S.{0,300})|\bpml_ucx\.c:\d{1,6}\s{1,4}Error: (?P<pml>.{1,300})"
)
_UCX_AT = re.compile(r"\[(?P<host>[A-Za-z0-9][\w.-]{0,253}):(?P<pid>\d{1,10})(?::\d{1,10})?\] ")
"""UCX's own prefix: the process that complains."""
_BTL = re.compile(
    r"\[[\w.-]{1,253}\]\[\[\d{1,10},\d{1,10}\],(?P<rank>\d{1,8})\]\[\S{0,200}btl_tcp\w{0,30}\.c:\d{1,6}:\w{1,60}\] (?:\w{1,60}: )?(?:(?:readv|writev|recv|send|recv_blocking)\S{0,40} (?:(?P<bad>error \()|failed)|.{0,40}\bconnect\(\) .{1,80} failed|(?P<ports>bind on local address .{1,80} failed: Address already in use)|.{0,40}received unexpected process identifier)"
)
"""Open MPI's transport over TCP: `error (address, length)` means an invalid buffer of the caller, `failed` a lost peer or network."""
_BAD_BUFFER = (
    "The program handed MPI a buffer that is not its own (bad address): a wrong pointer, count or type."
)
_NO_PORT = "Open MPI found no free local port for one more connection over TCP: more ranks on a node than its ports allow (net.ipv4.ip_local_port_range)."
_NO_CONNECTION = re.compile(
    r"(?:connect|bind|getpeername|sendv?|recvv?)\((?:.{0,160}\b(?:dest_addr|addr)=(?P<at>[\da-f.:\[\]]{3,60})|fd=)?.{0,160}\) failed: (?:Connection|No route|Network|Broken pipe|Host is|Cannot assign)"
)
_NO_ANSWER = re.compile(
    r"transport error: |(?:Error )?Endpoint timeout\b|Failed to \w{2,12}: (?:Endpoint timeout|Connection reset|Remote|Transport retry)"
)
"""The other end did not acknowledge in time."""
_OWN_ADDRESS = re.compile(r"\[?(?:127\.|172\.17\.|192\.168\.122\.|169\.254\.|::1\]|fe80:)")
"""Addresses that mean another machine on each machine: loopback, Docker's bridge, libvirt's, link-local."""
_WRONG_NET = "UCX tried to reach another rank at an address that only this machine knows, such as Docker's bridge: name the network (UCX_NET_DEVICES, or the MPI's own setting)."
_UNREACHED = "UCX could not reach another rank: it is gone, or the network between them does not carry data."
_REGISTERED = re.compile(r"ibv_reg_\w{0,20}mr\w{0,10}\(|failed to register address\b")
_NOT_REGISTERED = "UCX could not register memory with the adapter: memory of a GPU taken for the host's, or a limit on locked memory."
_DEVICE = re.compile(
    r"(?:\S{1,40}: )?ibv_\w{1,40}\(|.{0,80}\bfailed to (?:create|open|query|allocate) .{0,40}\b(?:[QC]P|CQ|SRQ|PD|device|context)\b"
)
_NO_DEVICE = "UCX could not set up an adapter (a limit on locked memory, its driver or its firmware), and goes on without it where it can."
_CALL = re.compile(
    r"\bucx (?:send|recv|isend|irecv|\w{1,20}) failed\b|\bFailed to (?:send|receive|recv|flush)\b"
)
"""Open MPI's message for a call that UCX did not carry out; UCX's own errors stand above it."""
_NOT_CARRIED = "UCX could not carry out the program's MPI call; its own errors stand above."
_NO_MEMORY = re.compile(r"failed to allocate|out of memory|cannot allocate memory|no memory", re.IGNORECASE)
_NO_WAY = re.compile(
    r"no (?:\w{1,20} ){0,4}transport\b|destination is unreachable|no (?:usable|suitable|such) (?:transport|device|component)",
    re.IGNORECASE,
)
_LAYERS = re.compile(
    r"\bselected pml (?P<own>\w{1,20}), but peer \S{1,40} on \S{1,253} selected pml (?!(?P=own)\b)\w"
)
_NO_COMMON_LAYER = "Open MPI's processes chose different message layers: a node whose network adapter or library is not the others', or a setting that not all of them got."
_COMPONENT = re.compile(r"A requested component was not found, or was |PMIX ERROR: OUT-OF-RESOURCE in ")
_NO_COMPONENT = "MPI or PMIx could not start: a component that it was told to use cannot be loaded."
_NO_SEGMENT = "PMIx could not make the files that the processes share, and MPI could not start: the directory for temporary files (TMPDIR) is full or cannot be written, or shared memory is."
_BADLY = re.compile(r"one of the processes terminated badly")
_LOST = re.compile(
    r"(?:ORTE|PRTE) has lost communication with|An MPI communication peer process has unexpectedly disconnected|(?:^|\s)Remote daemon ?: \S{1,200} on node (?P<host>\S{1,253})"
)
_MEANING_START = "MPI could not bring the job's processes together."


def _signal(record: Record, signal: str, **about: object) -> JobFinding:
    return make(FACTS, slurm.of_signal(int(signal[:3])), record, **about)


def _is_described(record: Record, context: JoblogContext) -> bool:
    """Whether a launcher described the process on this line or a few lines above."""
    return 0 < context.mpi_line <= record.line <= context.mpi_line + _ABOUT_LINES


def _described(record: Record, context: JoblogContext) -> dict[str, Any]:
    """Rank, pid and host from that description; empty without one."""
    return context.mpi if _is_described(record, context) else {}


def _about(found: re.Match[str], record: Record, context: JoblogContext) -> rules.Handled:
    rank = found["rank"] or found["name"] or found["noticed"]
    context.mpi = {
        "rank": grammar.number(rank, grammar.MAX_RANK),
        "pid": grammar.number(found["pid"] or found["npid"]),
        "host": found["host"] or found["nhost"],
    }
    context.mpi_line = record.line
    # A copy may hold the whole box in one line.
    return rules.NEXT if _SIGNAL.search(record.text) else None


def _mvapich(found: re.Match[str], record: Record, _context: JoblogContext) -> JobFinding:
    rank = grammar.number(found["rank"], grammar.MAX_RANK)
    return _signal(record, found["signal"], rank=rank, host=found["host"])


def _pals(found: re.Match[str], record: Record, _context: JoblogContext) -> JobFinding | None:
    about = {"rank": grammar.number(found["rank"], grammar.MAX_RANK), "host": found["host"]}
    if found["signal"]:
        return _signal(record, found["signal"], **about)
    code = int(found["code"])
    kind = process.of_code(code)
    return make(FACTS, kind, record, detail={"exit_code": code}, **about) if kind else None


def _outside(_found: re.Match[str], record: Record, _context: JoblogContext) -> rules.Handled:
    return rules.NEXT if mention.is_speech(record.text) else make(FACTS, "program_error", record)


def _on_signal(found: re.Match[str], record: Record, _context: JoblogContext) -> JobFinding:
    dead_process = {"rank": grammar.number(found["rank"]), "pid": grammar.number(found["pid"])}
    # Killed from outside: the ranks whose connection it reset only noticed that.
    detail = {"noticed": True} if found["signal"] == _SIGKILL else {}
    return _signal(record, found["signal"], host=found["host"], detail=detail, **dead_process)


def _by_signal(found: re.Match[str], record: Record, context: JoblogContext) -> rules.Handled:
    if found["wrapped"] and not _is_described(record, context):
        return rules.NEXT
    signal = found["killed"] or found["string"] or found["wrapped"]
    noticed = {"noticed": True} if found["wrapped"] == _SIGKILL else {}
    detail = {"exit_string": True} if found["string"] else {"listed": True} if found["killed"] else noticed
    return _signal(record, signal, detail=detail, **_described(record, context))


def _by_code(found: re.Match[str], record: Record, context: JoblogContext) -> rules.Handled:
    if not found["mpich"] and not _is_described(record, context):
        return rules.NEXT
    about = _described(record, context)
    code = int((found["mpich"] or found["open"])[:9])
    if found["mpich"] and code in _WAIT_SIGNALS:
        return _signal(record, str(code), **about)
    kind = process.of_code(code)
    return make(FACTS, kind, record, **about) if kind else None


def _improper(found: re.Match[str], record: Record, _context: JoblogContext) -> JobFinding:
    rank = grammar.number(found["rank"], grammar.MAX_RANK)
    return make(FACTS, "task_exit", record, rank=rank, host=found["host"])


def _ucx(found: re.Match[str], record: Record, _context: JoblogContext) -> rules.Handled:
    """An error of UCX, or Open MPI's report of a call that UCX did not carry out."""
    reason = found["text"] or found["pml"]
    if mention.begins_with_speaker(record.text):
        return rules.NEXT
    if _DEVICE.match(reason) and not _REGISTERED.match(reason):
        kind = "host_memory_error" if _NO_MEMORY.search(reason) else "net_ib_error"
        return make(FACTS, kind, record, meaning=_NO_DEVICE, detail={"weak": True})
    if _NO_MEMORY.search(reason) and not _REGISTERED.match(reason):
        return make(FACTS, "host_memory_error", record)
    if _NO_WAY.search(reason):
        return make(FACTS, "rendezvous_failed", record, meaning=_MEANING_START)
    unconnected = _NO_CONNECTION.match(reason)
    if unconnected and unconnected["at"] and _OWN_ADDRESS.match(unconnected["at"]):
        return make(FACTS, "program_error", record, meaning=_WRONG_NET)
    if unconnected or _NO_ANSWER.match(reason):
        at = _UCX_AT.search(record.text, 0, found.start())
        host, pid = (at["host"], grammar.number(at["pid"])) if at else (None, None)
        return make(FACTS, "peer_lost", record, host=host, pid=pid, meaning=_UNREACHED)
    if _REGISTERED.match(reason):
        return make(FACTS, "program_error", record, meaning=_NOT_REGISTERED, detail={"weak": True})
    if found["pml"] and _CALL.match(reason):
        detail = {"farewell": True}
        return make(FACTS, "program_error", record, role=LineRole.EXIT, meaning=_NOT_CARRIED, detail=detail)
    return rules.NEXT


def _btl(found: re.Match[str], record: Record, _context: JoblogContext) -> JobFinding:
    rank = grammar.number(found["rank"], grammar.MAX_RANK)
    if found["ports"]:
        return make(FACTS, "program_error", record, rank=rank, meaning=_NO_PORT)
    if found["bad"]:
        return make(FACTS, "program_error", record, rank=rank, meaning=_BAD_BUFFER)
    return make(FACTS, "peer_lost", record, rank=rank)


def _note_component(_found: re.Match[str], record: Record, context: JoblogContext) -> rules.Handled:
    if mention.is_speech(record.text):
        return rules.NEXT
    if context.component is None or record.line - context.component.line > _COMPONENT_LINES:
        context.component = record
    return None


def _missing_component(record: Record, context: JoblogContext) -> JobFinding | None:
    """The error of the line that reported a missing component shortly before MPI could not start."""
    wanted, context.component = context.component, None
    if wanted is None or record.line - wanted.line > _COMPONENT_LINES:
        return None
    meaning = _NO_SEGMENT if "OUT-OF-RESOURCE" in wanted.text else _NO_COMPONENT
    return make(FACTS, "program_error", wanted, domains=("user_program", "system_software"), meaning=meaning)


def _layers(_found: re.Match[str], record: Record, _context: JoblogContext) -> rules.Handled:
    if mention.is_speech(record.text):
        return rules.NEXT
    return make(FACTS, "program_error", record, domains=ALL_DOMAINS, meaning=_NO_COMMON_LAYER)


def _not_started(found: re.Match[str], record: Record, context: JoblogContext) -> rules.Handled:
    if mention.is_mentioned(record.text, found.start()):
        return rules.NEXT
    if missing := _missing_component(record, context):
        return missing
    if _SENT_AT_START.match(record.text, found.start()):
        context.mpi_start_line = record.line
    # The runtime logs errors of lower layers, which it often survives.
    detail = {"launcher": "mpi"} | ({"weak": True} if found["runtime"] else {})
    own, meaning = None, _MEANING_LAUNCH
    if not found["runtime"] and _NO_EXECUTABLE.search(record.text):
        own, meaning = USER, _NOT_THERE
    return make(FACTS, "slurm_launch_failed", record, domains=own, meaning=meaning, detail=detail)


def _pmi(_found: re.Match[str], record: Record, context: JoblogContext) -> rules.Handled:
    if not 0 < record.line - context.mpi_start_line <= _STACK_LINES:
        return rules.NEXT
    return make(
        FACTS,
        "slurm_launch_failed",
        record,
        role=LineRole.OBSERVATION,
        domains=USER,
        meaning=_NO_PMI,
        detail={"pmi": True},
    )


def _mpich(found: re.Match[str], record: Record, _context: JoblogContext) -> JobFinding:
    return make(FACTS, "program_error", record, rank=grammar.number(found["rank"], grammar.MAX_RANK))


def _start(_found: re.Match[str], record: Record, context: JoblogContext) -> JobFinding:
    if missing := _missing_component(record, context):
        return missing
    context.mpi_start_line = record.line
    return make(FACTS, "rendezvous_failed", record, meaning=_MEANING_START)


def _abort(found: re.Match[str], record: Record, _context: JoblogContext) -> JobFinding:
    named = next((number for number in found.groups() if number), None)
    rank = grammar.number(named, grammar.MAX_RANK)
    # Open MPI's banner overtakes the rest of the program's own output.
    called = found["rank"] is not None or "application called MPI_Abort" in record.text
    detail = {"called_abort": True} if called else {}
    if found["rank"]:
        detail["of_launcher"] = True
    return make(FACTS, "process_aborted", record, rank=rank, detail=detail)


def _lost(found: re.Match[str], record: Record, _context: JoblogContext) -> JobFinding:
    return make(FACTS, "peer_lost", record, host=found["host"])


_RULES: tuple[rules.Rule, ...] = (
    (_ABOUT.search, _about),
    (_MVAPICH.search, _mvapich),
    (_PALS.match, _pals),
    (_OUTSIDE.search, _outside),
    (_ON_SIGNAL.search, _on_signal),
    (_SIGNAL.search, _by_signal),
    (_CODE.search, _by_code),
    (_IMPROPER.search, _improper),
    (_UCX.search, _ucx),
    (_BTL.match, _btl),
    (_COMPONENT.search, _note_component),
    (_LAYERS.search, _layers),
    (_NOT_STARTED.search, _not_started),
    (_PMI.search, _pmi),
    (_MPICH.search, _mpich),
    (_START.search, _start),
    (_ABORT.search, _abort),
    (
        _FATAL_CALL.search,
        rules.always(FACTS, "process_aborted", role=LineRole.EXIT, domains=ALL_DOMAINS, meaning=_CALL_ENDED),
    ),
    (_BADLY.search, rules.always(FACTS, "task_exit", detail={"of_launcher": True})),
    (_LOST.search, _lost),
)


def read(record: Record, context: JoblogContext) -> JobFinding | None:
    """A line of an MPI launcher or library."""
    return rules.first(_RULES, record.text, record, context)


FAMILY = grammar.LogFamily(
    name="mpi",
    triggers=(
        "process rank", "error_sighandler", "called MPI_Abort(", "died from signal", "exited with code", "use an MPI routine",
        "function was called", "exited on signal", "RUNNING AT", "Process name: [", "Exit code: ",
        "EXIT CODE", "EXIT STRING", "KILLED BY SIGNAL", "(Killed)", "(Segmentation", "(Aborted)",
        "(Bus error", "(Terminated)", "(Floating", "(Illegal", "MPI_ABORT", "error occurred in MPI_",
        "error occurred in PMPI_", "Abort(", "MPIDI_CRAY", "MPID_CRAY", "mpi_errors_are_fatal", "MPI_Init", "MPI_INIT", "internal_Init", "cannot be selected",
        "No components were able", "parameter given to a command line", "has unexpectedly", "unable to reliably start", "unable to reach each", "processes failed to start",
        "lost communication", "Remote daemon", "enough slots", "are already filled",
        "would result in binding", "bind to that would", "was unable to", "execvp error", "to fork a new",
        "failed for some reason", "bad values for size", "PMI", "pmi", "OPAL ERROR", "ORTE ERROR", "_ERROR_LOG",
        "PMIX ERROR", "MPI startup()", "PRTE ERROR", "direct launched", "write_line ", "UCX",
        "pml_ucx.c", "btl_tcp", "selected pml ", "terminated badly", "A requested component",
    ),
    read=read,
    facts=FACTS,
)  # fmt: skip
