"""Final messages of scientific codes, their network libraries and crash handlers; every form is at the beginning of its line."""

from __future__ import annotations

import re
from dataclasses import replace

from probing_cluster.evidence.joblog import grammar, mention
from probing_cluster.evidence.joblog.grammar import (
    ALL_DOMAINS,
    JobFinding,
    JoblogContext,
    LineRole,
    Record,
    fact,
    make,
)
from probing_cluster.evidence.joblog.messages import languages, process, python, slurm
from probing_cluster.evidence.joblog.messages.communication import nccl
from probing_cluster.evidence.joblog.messages.devices import cuda

FACTS = {
    "program_error": languages.FACTS["program_error"],
    **process.ENDS,
    "net_ib_error": nccl.FACTS["net_ib_error"],
    "peer_lost": process.FACTS["peer_lost"],
    "host_memory_error": python.FACTS["host_memory_error"],
    "cuda_oom": cuda.FACTS["cuda_oom"],
    "wrong_result": fact(
        LineRole.ROOT,
        ALL_DOMAINS,
        "A test of a collective got wrong values: a GPU, a link or the library corrupts data.",
    ),
}
_HEAD = re.compile(
    r"--- !(?:ERROR|BUG)$|\? ?Error$|[-*=#]{3,60} FATAL CALLED [-*=#]{3,60}$|={2,6}>{2,6} : (?:E R R O R|ERROR)$|╭─{1,3} (?:[A-Z][a-z]{2,20} )?[Ee]rror ─{2,400}╮$|\s{0,8}E R R O R\W{0,12}$|(?:\*{3} )?Fatal Error \(description follows\)$"
    r"|[*=#!-]{3,80} {0,4}(?:(?!Norm|Mean|Max|Min|Rel|Abs)[A-Za-z][\w.]{1,20}-)?(?i:(?:fatal |internal |input |runtime )?errors?(?: message| occurred| detected)?!?:?) {0,4}[*=#!-]{3,80}$"
    r"|\*{3} (?:ERROR|FATAL) \*{3}\s{2,40}CP =\s.{0,60}$|\*{3} Error \d{1,6} \([A-Z]{2,5}\+\d{1,5}\)$|ERROR: ?\(\w{2,40}\)(?: ERROR:)?$|error: Server Error$"
    r"|Error: (?:LinkageError occurred while (?:loading|initializing) main class \S{1,200}|A JNI error has occurred, please check your installation and try again)$"
    r"|Q-Chem fatal error occurred in module \S{1,200}|INPUT ERROR$|-{3,20} (?:Partition \d{1,6} )?Processor \d{1,6} Exiting: (?:Called CmiAbort|Caught Signal) -{3,20}$|Charm\+\+ fatal error:$|(?:\*{2,4} )?(?:ERROR|Error)!{1,3}$|Exiting\.{4,20}$|ABOR1 CALLED$|-{3,10} EEEE -{3,10} G4Exception-START\b.{0,40}$|Error in \"[^\"]{1,300}\": ?$"
    r"|(?:Fatal error|FATAL ERROR|Fatal Error|ERROR|Error|FATAL|Internal error|Software inconsistency error|Input error|Inconsistency in user input|Feature not implemented|Memory allocation failed|Assertion failed|Error in user input|Standard library logic error|Parallel consistency error|Invalid (?:input|command-line options?)|File input/output error|Range checking error \(possible bug\)|Program error|API error) ?(?:\(bug\) ?)?: ?$"
)
"""A heading alone on its line; the error is on one of the next lines."""
_SIGNALLED = re.compile(
    r"\s{0,4}Program received signal (?:\d{1,2} \()?SIG(?P<a>[A-Z]{3,6})\)?\b|(?:[WEF]\d{4} [\d:.]{8,15} {1,3}\d{1,10} [\w.]{1,60}:\d{1,6}\] )?\*{3} SIG(?P<b>[A-Z]{3,6}) (?:\(@0x[0-9a-f]{1,16}\) )?received\b"
    r"|(?:\w{0,6}: )?(?:error|severe) \(\d{1,5}\): (?:process (?:killed|interrupted|quit) \()?SIG(?P<c>[A-Z]{3,6})|SIG(?P<d>[A-Z]{3,6}): (?:segmentation violation|bus error|abort|illegal instruction|floating-point exception|arithmetic exception)$"
    r"|SIG(?P<f>SEGV|ABRT|FPE|BUS|ILL)(?:$| Invalid, privileged, or ill-formed instruction$)|(?:-?\d{1,6}:)?MPT(?: ERROR)?: (?:On host .{1,400}, )?Rank \d{1,8}[^ ]{0,20},? (?:Process \d{1,10} )?received signal SIG(?P<g>[A-Z]{3,6})"
    r"|Error: (?P<h>ill)egal instruction, illegal op(?:code|erand)$|SIG(?P<e>[A-Z]{3,6}) signal \(.{3,60}\) (?:intercepted!|received\.)"
)
_AMREX = re.compile(
    r"(?:\d{1,8}::)?(?P<name>Segfault|Erroneous arithmetic operation|SIGTERM|SIGINT)(?: !!!)?$"
)
_AMREX_SIGNALS = {"Segfault": 11, "Erroneous arithmetic operation": 8, "SIGTERM": 15, "SIGINT": 2}
_AMREX_STACK = re.compile(r"See Backtrace\.(?:prog\d{1,6}\.)?\d{1,8}(?:\.\d{1,6})? file for details$")
"""AMReX's handler names the signal that ends a process, and below it the file of its stack. The name alone may be a word of a list."""
_STACK_FILE_LINES = 4
_SIGNALS = {"SEGV": 11, "BUS": 7, "ABRT": 6, "FPE": 8, "ILL": 4, "KILL": 9, "TERM": 15, "INT": 2, "QUIT": 3}
_PADDLE = re.compile(
    r"FatalError: `(?P<words>Segmentation fault|Illegal instruction|Erroneous arithmetic operation|Process abort signal|Access to an undefined portion of a memory object|Termination signal)` is detected by the operating system"
)
"""Paddle's handler of signals."""
_PADDLE_SIGNALS = {"Segmentation fault": 11, "Process abort signal": 6, "Access to an undefined portion of a memory object": 7, "Termination signal": 15}  # fmt: skip
_TIMED = re.compile(r"Command terminated by signal (?P<signal>[1-9]|[1-5]\d|6[0-4])$")
"""GNU time's message about the program that it ran."""
_WRONG = re.compile(r"# Out of bounds values : [1-9]\d{0,17} FAILED")
"""nccl-tests checks what its collectives compute."""
_FOAM = re.compile(
    r"(?:^|\s|\]|\))(?:#\d{0,2})?\s{0,4}Foam::sig(?P<name>Fpe|Segv|Int|Quit)::sigHandler\(int\)"
)
"""OpenFOAM's stack after a signal; its solver prints nothing else. Ranks write such stacks into each other."""
_VIOLATION = re.compile(
    r"\*{3} Break \*{3} (?:segmentation violation|bus error)|-{0,80} ?Segmentation violation detected\b|Error: segmentation violation, address |Caught signal 11, Segmentation fault|Fatal error: Segmentation fault$"
    r"|#?\s{0,4}SIGSEGV \(segmentation violation\)|Segmentation fault \(signal 11\)"
)
_MPI = re.compile(
    r"(?:MPICH ERROR \[Rank (?P<rank>\d{1,8})\](?: \[[^\]]{0,60}\]){0,2} \[(?P<host>[\w.-]{1,253})\] - Abort\(-?\d{1,12}\).{0,60}: |Abort\(-?\d{1,12}\) on node (?P<node>\d{1,8}) \(rank \d{1,8} in comm \d{1,8}\): )?"
    r"Fatal error in (?P<call>(?:P?MPIX?|internal)_\w{2,60}): (?P<why>[^,:]{3,120})(?=, error stack|:|,|$)"
)
_MPI_START = re.compile(r"_(?:Init|Init_thread)$|^internal_Init")
_NO_REASON = re.compile(
    r"(?:Other|Internal) MPI error!?|Unknown error|See the MPI_ERROR field|Process failed|Communicator revoked"
)
"""Classes of MPI errors without a known culprit; the others mean wrong arguments of the caller."""
_OPEN_MEANING = "The MPI library met an error of its own or of the network below it and stopped the job."
_FABRIC = re.compile(
    r"\s{0,8}(?:\[[\w.-]{1,253}:\d{1,10}\] )?(?:(?:\S{1,200}/)?(?:mtl|btl|pml|osc|common)_(?:ofi|psm2?|portals4|openib|ucx|usnic|ugni|mxm)\w{0,40}\.[ch]:\d{1,6}[:\s]{1,4}(?:\w{1,60}[:\s]{1,3})?(?:Error|ERROR|error)\b.{0,20}|(?:Error|ERROR)(?: returned)? (?:from|in) )(?:fi|ibv|psm2?|Ptl|GNI)\w{0,3}_?\w{2,40}"
    r"|\*{3} The Open MPI (?:OFI|PSM2?|UCX|Portals) \w{3} is aborting|[\w.-]{1,253}:rank\d{1,8}(?:\.\S{1,60})?: (?:PSM2? |hfi_|Unable to (?:write to|read from) fd \d|Received .{0,40}[Tt]imeout|.{0,80}connection (?:lost|timeout))|MPIDI\w{0,3}_\w{2,60}\(\d{1,6}\)\.{0,30}: ?OFI \w{2,40}(?: \w{2,20})? failed|.{0,60}\bfi_\w{2,40}(?:\(\))? (?:failed|returned error|error)\b|PSM2? (?:Endpoint|Could not detect|can't open|was unable to open|no hfi)\b.{0,200}"
    r"|\S{0,200}:\d{1,10}(?:terminated with|\.\S{1,60}): ?PSM2? .{1,60}(?:failed|error)|GNI_\w{2,40} .{0,40}(?:GNI_RC_\w{2,30})|.{0,300}\b(?:RNR )?RETRY EXCEEDED ERROR status number \d{1,3} for wr_id|.{0,300}\berror polling [LH]P CQ with (?:status (?:RNR )?RETRY EXCEEDED ERROR$|-\d{1,2} errno says \S)|The InfiniBand retry count between two MPI processes has been$|ptl_\w{2,30}: .{0,60}PTL_\w{2,30}"
)
_NO_ROOM = re.compile(
    r"\bOFI .{1,80} failed \(.{1,160}:(?:Resource temporarily unavailable|Message too long|Bad address|Function not implemented|Operation not supported)\)"
)
"""Errors of a call that are no evidence about an adapter or a link: a full queue, or the caller's arguments."""
_GONE = re.compile(r":(?:Transport endpoint is not connected|Connection (?:reset by peer|refused))\)")
"""The error of such a call if the peer is gone; OFI carries TCP as well."""
_NO_PROVIDER = re.compile(r"\bfi_getinfo(?:\(\))?:? failed\b|\*\*ofid_getinfo\b")
"""libfabric found no suitable network; nothing was sent yet."""
_STACK_LINES = 12
_NO_PROVIDER_MEANING = "MPI found no network library (libfabric provider) of the kind it was told to use: its module, FI_PROVIDER, what the node has installed, or an adapter that is down."
_FABRIC_MEANING = (
    "The network library under MPI reported an error: a transfer, a memory region or a queue failed."
)
_STOPS = re.compile(
    r"fatal error\.\s{2}\S|amrex::(?:Abort|Error)::\d{1,8}::\s?\S|\[file \S{1,200}, line \d{1,6}\]: Error : \S|Error {1,4}\(ORCA_\w{1,30}\): (?!\.\.\.)\S|"
    r"Error at (?:Node \d{1,6}|host): (?!floating point)\S|An error occurred in (?:line <|file <)|lib-\d{3,5} : (?:UNRECOVERABLE|FATAL)\b|: (?:[a-z]\w{0,40}\.){1,8}[A-Z]\w{1,80}(?:Error|Exception): \S|"
    r"FATAL from PE\s{1,6}(?P<rank>\d{1,8}): \S|FINISH PE:\s{1,6}\d{1,8} (?!.*\b(?i:done|finished|success\w{0,5}|normal(?:ly)?|completed?|status 0)\b)[a-z]\w{1,60}(?:::?\w{1,60}){0,3}: \S"
    r"|EXITING(?: because of |: )(?:FATAL|fatal) [A-Za-z ]{0,30}(?:ERROR|error)\b|A USER ERROR has occurred: |A GATK RUNTIME ERROR has occurred"
    r"|ERROR: (?:Constraint failure in RATTLE|Atoms moving too fast)|SANDER BOMB in subroutine |\s{0,6}Unit\s{1,6}\d{1,4} Error on OPEN: |Error \([A-Z][A-Z_\d]{2,40}\): \S"
    r"|galloc:\s{1,3}could not allocate memory|Out-of-memory error in routine \S|Erroneous (?:write|read)\b|Convergence failure -- run terminated|Convergence criterion not met\.$"
    r"|Found Error: \d{1,4}\s{1,6}Line: \d|(?:Error|ERROR) (?!ANALYSIS|SUMMARY|STATISTICS|REPORT|RATES?:|TABLE|METRICS?:|COUNTS?:)[A-Z][A-Z_\d]{3,20}: \S|\|?\s{0,4}LAPACK: Routine \S{2,20} failed|Loss is (?i:nan|[+-]?inf)\w{0,5}, (?:stopping|aborting|exiting)|ABNORMAL END: S/R \S|[*=#!]{1,8} ?(?:(?:FATAL|Fatal) )?(?:ERROR|Error) ?[*=#!]{1,8}:? {0,4}(?!system call)(?=[^\s\d.+*=#!:-])"
    r"|OpenCV(?:\(\S{1,20}\))? (?:ERROR|Error): \S|BLAST Database error: |BLAST (?:query|engine)(?:/options)? error: |Command line argument error: "
    r"|\{?(?:Unrecognized|Undefined) (?:function or variable|function|method, property, or field|field name) '[^']{1,80}'|Undefined function '[^']{1,80}' for input|\{?Index (?:exceeds (?:the number of array elements|array bounds|matrix dimensions)|in position \d{1,3} (?:exceeds|is invalid))\b"
    r"|\S{1,300}\.rb:\d{1,7}:in [`'][^']{1,120}': .{1,300} \((?:\w{1,60}::){0,6}[A-Z]\w{1,60}\)$|(?:PHP )?(?:Fatal|Parse) error:\s{1,3}(?:Uncaught|syntax error|Allowed memory|Maximum execution|Cannot|Call to|require)"
    r"|Fatal error: (?:exception \S|cannot open file ')|\w[\w.-]{0,60}: (?:Prelude|internal error|user error)\b[. :(]|Unrecognized VM option '|Invalid (?:maximum|initial) heap size|Error: Invalid or corrupt jarfile"
    r"|(?:Invalid (?:buffer pointer|count|datatype|tag|communicator|rank|root|group|MPI_Op|topology|dimension argument|argument|window|info|keyval)|Message truncated), error stack:$"
    r"|configure: error: \S|npm ERR! (?:code|missing|(?:gyp ERR! )?(?:stack Error: |\S{1,120}: .{0,200}(?:[Cc]ommand not found|No such file or directory|Permission denied)$))|Error: Cannot find module '|(?:[\w .#-]{1,60}: )?ORA-(?!06512)\d{5}: (?!.*\b(?:retry|ignored)\b)|(?:psql|pg_\w{2,20}|mysql|mongo\w{0,6}): (?:error|FATAL|ERROR)[ :]"
    r"|(?:\[\d{1,8}\] )?\?{0,3} ?(?:GLOBAL ERROR(?! fehler)|ERROR EXIT)\b|\(rank:\d{1,8} hostname:[\w.-]{1,253} pid:\d{1,10}\):ARMCI DASSERT fail(?!\. \S{0,200}:ARMCI_Error\(\):)|(?:\[\d{1,8}\] )?ARMCI assert fail\b|-{2,5} ?(?:ERROR|FATAL): \S|\*{3} FATAL:? \S|ENDRUN:\s?\S|ERROR: ?\(\w{2,40}\) \S|\(shr_sys_abort\) ERROR: ?\S"
    r"|Error: (?:\"?Snakefile\"?|Snakefile) .{1,300} not found|HDF5 ?(?:error|ERROR): \S|NetCDF (?:error|ERROR): \S|%\s(?!Compiled|Loaded|Restored|LOADCT|Program)[A-Z][A-Z_\d]{2,40}: \S.{0,200}(?:[Uu]ndefined|not defined|[Ee]rror|[Uu]nable)\b"
)
_PASSED_ON = re.compile(
    r"npm ERR! code \d|: org\.apache\.spark\.SparkException: .{1,2000}Traceback \(most recent call last\):$"
)
"""npm's code of a package's own command, and Spark's exception for one of Python: that one's message is apart."""
_ABORTS = re.compile(
    r"\(rank:\d{1,8} hostname:[\w.-]{1,253} pid:\d{1,10}\):ARMCI DASSERT fail|[Tt]ask \d{1,8}: endrun called with an error level of \d{1,9}$|Driver_abort called\b"
)
"""Calls of a code's own abort routine (NWChem, GADGET, FLASH); the code printed the reason just before."""
_ABORT_CALLED = re.compile(
    r"\S{1,80}\s{1,20}[\dA-F]{16}\s{1,4}(?:shr_abort_|shr_sys_abort|xchalt)\w{0,60}\s{1,40}(?:\d|Unknown)"
)
"""The frame of a model's own abort routine (CESM and others) in a stack of Intel's Fortran. Below mere warnings stand the frames of any routine."""
_BOXED = re.compile(r"current input line :\s*$|CHECK IN FILE : \S{1,300}$")
"""What NWChem and ABACUS print below the reason; that is in the box above."""
_SETTING = re.compile(
    r"MPICH (?:ERROR|Error): .{0,300}?(?:[Uu]nable to use (?:an? |the )?[A-Z]{2,30}_[A-Z_]{2,60}|\benvironment variable\b|\b[A-Z]{2,30}_[A-Z_]{3,60}\b.{0,60}\b(?:invalid|unsupported|not supported|must|requires?)\b|\bnot confined to\b)"
)
"""Cray's MPI about a setting that the job's layout does not fit."""
_BOTCHED = re.compile(
    r"(?:-?\d{1,6}:)?\s{0,8}MPT ERROR: (?:MPI_COMM_WORLD rank|Rank \d{1,8}\S{0,20} is aborting with error code)|--- Stop Module: .{1,200} /rc=(?!0\b|_RC_(?:ALL_IS_WELL|INVOKED_OTHER_MODULE|CONTINUE_\w{1,20}|DO_TASKS|EXIT_EXPECTED|EXIT_UNIX_LOOP)_)\S|Command exited with non-zero status [1-9]\d{0,2}$|exit status [1-9]\d{0,2}$|# Ended \(code [1-9]\d{0,2}\)|(?:run|queue|slurm|ssh|pbs|sge)\.pl: (?:\d{1,6} / \d{1,6} failed|job failed)|recon-all -s \S{1,200} exited with ERRORS|\(ERR\): \S{1,80} exited with value \d|EXECUTION OF GAMESS TERMINATED -?ABNORMALLY|PMEMD Terminated Abnormally|DDI Process \d{1,8}: error code|\S{1,80} ended abnormally$"
    r"|MATLAB is exiting because of fatal error|MATLAB has experienced a low-level|r\(\d{1,5}\);$|Siesta: Stopping|Stopping Program from Node:|BUILD FAILED\b|call exitt: dying|PLANTE: PROGRAM STOPPED AFTER AN ERROR$|% Execution halted at\b|>?\s{0,4}stop error$|&&&& FAILED \S|\*{3} Check failure stack trace: \*{3}|Fatal error detected - exiting"
)
"""A bad end without a reason."""
_UNREAD = re.compile(r"Warning: Could not open \w{1,20} file \".{1,400}\" for reading; skipping\.\.\.$")
OF_ALIGNER = re.compile(r"Command: \S{1,300} --wrapper basic-\d\b")
"""Bowtie, HISAT and Centrifuge pass over a file that they cannot open. Their own call is what they print last of all when they end badly; others print it as they begin."""
_HEAP = re.compile(
    r"FATAL ERROR: .{0,120}(?:JavaScript heap out of memory|Allocation failed)|(?:PHP )?Fatal error:\s{1,3}(?:Allowed memory size|Out of memory)|Out of memory\. Type (?:\"|')?(?:help memory|HELP MEMORY)|slurmstepd: error: memory allocation failure|\w{3,60}\(\d{1,6}\)\.{0,20}: Out of memory \(unable to allocate\b"
    r"|Error: cannot allocate vector of size |forrtl: severe \(41\): insufficient virtual memory|(?:\d{1,6}: )?(?:RE)?ALLOCATE: \d{1,20} bytes requested; |\*{2,3} ?ERROR ?\*{2,3}.{0,60}\binsufficient memory\b|Operating system error: Cannot allocate memory"
    r"|(?:ERROR(?: on proc \d{1,8})?|ERROR: LoadError|Error) ?: (?:Failed to allocate \d{1,20} bytes for array|OutOfMemoryError\(\)|[Ii]nsufficient memory to allocate)"
)
_DEVICE = re.compile(
    r"Out of memory error on GPU \d|(?:ERROR: )?(?:cuda|Cuda|CUDA|Hip|Sycl)?CustomAllocator out of memory|You ran out of memory on the GPU|(?:\w{1,60}(?:\.\w{1,60}){0,6}: )?(?:Error allocating \d{1,15} bytes of device memory|(?:cuda\w{0,20}|hip)Malloc(?:Async|Pitch)? failed:? out of memory)|CL_(?:MEM_OBJECT_ALLOCATION_FAILURE|OUT_OF_RESOURCES)\b"
    r"|\w{0,40}(?:ResourceExhaustedError|GpuArrayException|MXNetError|RuntimeError): .{0,200}(?:[Oo]ut of memory (?:error )?on (?:GPU|device)|: out of memory$|[Mm]emory (?:isn't|is not|not) enough)"
)
"""Lack of GPU memory in older and other frameworks than PyTorch."""


def _mpi(found: re.Match[str], record: Record) -> JobFinding | None:
    if _MPI_START.search(found["call"]):
        return None
    rank = grammar.number(found["rank"] or found["node"], grammar.MAX_RANK)
    about = {"rank": rank, "host": found["host"]}
    if _NO_REASON.match(found["why"]):
        return make(FACTS, "process_aborted", record, domains=ALL_DOMAINS, meaning=_OPEN_MEANING, **about)
    return make(FACTS, "program_error", record, **about)


def read(record: Record, context: JoblogContext) -> JobFinding | None:
    """A line by which such a code, its library or a crash handler reports that it stops."""
    text = record.text.strip()
    if text.startswith("| ") and text.endswith(" |") and text.count("|") == 2:
        text = text[1:-1].strip()  # VASP draws a box around its messages
    if mention.begins_with_speaker(text):
        return None
    if _HEAD.match(text):
        head = languages.heading(record, context)
        return replace(head, detail={"abort": True}) if "Abort" in text else head
    if found := _SIGNALLED.match(text):
        name = next(g for g in found.groups() if g)
        kind = slurm.of_signal(_SIGNALS.get(name.upper(), 4))
        return make(FACTS, kind, record, role=LineRole.EXIT)
    if found := _AMREX.match(text):
        kind = slurm.of_signal(_AMREX_SIGNALS[found["name"]])
        ended = make(FACTS, kind, record, role=LineRole.EXIT)
        context.signalled = ended
        return None
    if (
        _AMREX_STACK.match(text)
        and context.signalled
        and record.line - context.signalled.line <= _STACK_FILE_LINES
    ):
        return context.signalled
    if found := _PADDLE.match(text):
        kind = slurm.of_signal(_PADDLE_SIGNALS.get(found["words"], 4))
        return make(FACTS, kind, record, role=LineRole.EXIT)
    if found := _TIMED.match(text):
        return make(FACTS, slurm.of_signal(int(found["signal"])), record, role=LineRole.EXIT)
    if _WRONG.match(text):
        return make(FACTS, "wrong_result", record)
    if found := _FOAM.search(text):
        kind = slurm.of_signal(_SIGNALS[found["name"].upper()])
        return make(FACTS, kind, record, role=LineRole.EXIT)
    if _VIOLATION.match(text):
        return make(FACTS, "segfault", record)
    if found := _MPI.match(text):
        return _mpi(found, record)
    if _BOXED.match(text):
        return make(
            FACTS, "program_error", record, role=LineRole.EXIT, detail={"farewell": True, "boxed": True}
        )
    if _ABORTS.match(text):
        return make(FACTS, "program_error", record, role=LineRole.EXIT, detail={"aborts": True})
    if _SETTING.match(text):
        return make(FACTS, "program_error", record)
    if _DEVICE.match(text):
        return make(FACTS, "cuda_oom", record)
    if _HEAP.match(text):
        return make(FACTS, "host_memory_error", record)
    if _FABRIC.match(text) and _GONE.search(text):
        return make(FACTS, "peer_lost", record)
    if _NO_PROVIDER.search(text):
        # In the error stack of MPI's start it is the reason for that.
        detail = {"pmi": True} if 0 < record.line - context.mpi_start_line <= _STACK_LINES else {}
        return make(
            FACTS, "program_error", record, domains=ALL_DOMAINS, meaning=_NO_PROVIDER_MEANING, detail=detail
        )
    if _FABRIC.match(text) and not _NO_ROOM.search(text):
        return make(FACTS, "net_ib_error", record, meaning=_FABRIC_MEANING)
    if found := _STOPS.match(text):
        rank = grammar.number(found["rank"], grammar.MAX_RANK)
        return make(
            FACTS,
            "program_error",
            record,
            rank=rank,
            detail={"handled": True} if _PASSED_ON.match(text) else None,
        )
    if _UNREAD.match(text):
        context.unread = record
    elif OF_ALIGNER.match(text):
        unread = context.unread
        near = unread is not None and record.line - unread.line == 1
        return make(FACTS, "program_error", unread) if unread and near else None
    if _ABORT_CALLED.match(text):
        return make(FACTS, "process_aborted", record)
    if _BOTCHED.match(text):
        return make(FACTS, "task_exit", record)
    return None


FAMILY = grammar.LogFamily(
    name="codes",
    triggers=(
        "*** Error ", "--- !", "FATAL CALLED", "E R R O R", "Exiting....", " CALLED", "Exception-START", "Fatal Error", "Fatal error", "FATAL ERROR", "FATAL:", "FATAL from PE", "FINISH PE", "fatal error:", "ERROR", "Error:", "Error in \"", "Error!", "Error *", "Error*", "ERROR*", "Error-", "Error =", "Error=", "rrors ",
        "Foam::sig", "OpenCV", "Out of bounds values", ":rank", "? Error", "Q-Chem fatal", "nternal error", "inconsistency", "nconsistency", "nput error", "not implemented:", "allocation failed", "Assertion failed:", "logic error:", "API error", "options:", "output error:",
        "received signal ", "** SIG", "forrtl: ", "SIGSEGV", "SIGBUS", "SIGABRT", "SIGFPE", "SIGTERM", "SIGINT", "Segfault", "See Backtrace", "SIGILL", "*** Break ***", "egmentation violation", "Segmentation fault",
        "Fatal error in ", ", error stack:", "MPICH ERROR", "MPICH Error", "current input line", "CHECK IN FILE", "&&&& FAILED", "_ofi", "_psm", "_portals", "_openib", "_ucx", "_ugni", "_mxm", "Error returned from fi_", "ofid_getinfo", "EXCEEDED ERROR", "error polling ", "The InfiniBand retry count", "fi_", "The Open MPI ", "MPIDI_OFI", "PSM", "GNI_", "ptl_",
        "EXITING", "RATTLE", "SANDER BOMB", "Error on OPEN", "Error (", "galloc: ", "Out-of-memory error", "Erroneous ", "Convergence ", "Found Error", "Error E", "Error F", "LAPACK: Routine", "(ORCA_", "]: Error : ", "Loss is ", "ABNORMAL END",
        "BLAST ", "Command line argument error", "Unrecognized function", "Unrecognized field", "Unrecognized method", "Undefined function", "Undefined variable", "Index exceeds", "Index in position", ".rb:", "Parse error", "exception ", "Prelude", "user error",
        "VM option", "heap size", "Error: Invalid or", "Error: LinkageError", "Error: A JNI", "configure: error", "npm ERR!", "Cannot find module", "ORA-", "psql: ", "pg_", "mysql: ", "mongo", "ARMCI", "ENDRUN", "endrun called", "amrex::", "Driver_abort called", "shr_sys_abort",
        "Called CmiAbort", "Exiting: Caught", "Server Error", "Error at ", "An error occurred in ", "lib-", "fatal error.", "MPT ERROR: ", "Error: ", "Exception: ", "# Ended (code ", "Command terminated by signal", "rror ─", "Command exited with", "exit status ", "--- Stop Module", ".pl: ", "SIGILL", "SIGFPE",
        "Snakefile", "% ", "exited with ERRORS", "exited with value", " --wrapper basic-", "_abort", " abort", "for reading; skipping", "ABNORMALLY", "Terminated Abnormally", "DDI Process", "ended abnormally", "MATLAB is exiting", "MATLAB has", "r(", "Stopping", "BUILD FAILED", "call exitt", "PLANTE: ", "stop error", "Check failure stack",
        "heap out of memory", "Allowed memory", "Out of memory. Type", "Out of memory (unable", "allocate vector", "virtual memory", "bytes requested; ", "allocate memory", "CustomAllocator", "ran out of memory", "checking error", "bytes of device memory", "memory error on GPU", "Malloc", "CL_MEM_OBJECT", "CL_OUT_OF", "xhaustedError", "GpuArrayException", "MXNetError", "memory isn't enough",
    ),
    read=read,
    facts=FACTS,
)  # fmt: skip
