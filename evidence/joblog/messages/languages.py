"""Errors with which programs in other languages than Python end: Fortran, C++, Rust, Go, Java, Julia, R, MATLAB, shells, HPC codes.

Every form is at the beginning of its line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from probing_cluster.evidence.joblog import grammar, mention
from probing_cluster.evidence.joblog.grammar import (
    USER,
    JobFinding,
    JoblogContext,
    LineRole,
    Record,
    fact,
    make,
)
from probing_cluster.evidence.joblog.messages import process, python, rules, slurm

FACTS = {
    "program_error": fact(
        LineRole.ROOT, USER, "The program, its runtime or its language stopped it, and says why."
    ),
    **{k: process.ENDS[k] for k in ("process_aborted", "process_crashed", "process_terminated", "segfault")},
    "host_oom_kill": process.FACTS["host_oom_kill"],
    **{k: python.FACTS[k] for k in ("python_exception", "host_memory_error")},
}
_RUNTIMES = re.compile(
    r"forrtl: (?:severe|error) \(\d{1,5}\)(?!: SIG)"
    r"|Fortran runtime error: "
    r"|(?:PG)?FIO[-/][FS]-?\S{0,12}[ /]"
    r"|1525-\d{3} The \w{1,20} statement on the file "
    r"|jwe\d{4}i-[us] "
    r"|terminate called after throwing an instance of '(?:std::(?!(?:runtime|system)_error|bad_alloc|exception\b)[\w:<>]{1,80})'"
    r"|libc\+\+\S{0,12}: terminating (?:due to|with) (?:an )?(?:uncaught|unexpected) (?:foreign )?exception"
    r"|panic: \S"
    r"|LLVM ERROR: \S"
    r"|fatal error: (?:all goroutines are asleep|concurrent map|runtime: |unexpected signal)"
    r"|ERROR: (?:LoadError: |InitError: |[A-Z]\w{1,40}(?:Error|Exception|Mismatch)\b)"
    r"|ERROR STOP\s{1,3}(?!\d{1,10}$)\S"
    r"|ERROR: an? \w{1,60} was thrown during kernel execution\b"
    r"|Error: (?:Could not find or load main class|Unable to (?:access jarfile|initialize main class))|Error occurred during initialization of VM"
    r"|(?:(?:\*\*\*|MPI Error \d{1,10}:|^\d{1,6}:) |^)MPI_ERR_(?!OTHER|INTERN|UNKNOWN|PROC_FAILED|REVOKED)[A-Z_]{2,30}: "
    r"|Error in (?:[\w.:$`]{1,80}\(.{0,200}\)|\{) ?: ?|Error in [\w.`(\[\"].{0,200}? :(?: |$)"
    r"|\{?Error using {1,3}\S"
    r"|\S{0,200}lua\w{0,8}: \S{1,200}\.lua:\d{1,6}: "
    r"|(?:/\S{0,80}/)?[gmn]?awk: (?:cmd\. line:\d{1,6}: |fatal: |line \d{1,6}: |\S{1,200}:\d{1,6}: |syntax error)"
    r"|(?:/\S{0,80}/)?(?:sed: -e expression #\d|jq: error|(?:\(standard_in\) \d{1,6}: (?:syntax error|parse error)))"
    # Perl's last word. Its warnings have the same form.
    r"|(?!Use of uninit|Useless use|Argument \"|Odd number of|Deep recursion|Subroutine \S|\"?(?:my|our) |\w{1,20}\(\) on (?:un|closed)|.{1,80} (?:masks earlier|isn't numeric|redefined|used only once|deprecated))"
    r"\S(?:.{0,300} at (?:\S{1,200}\.(?:p[lm]|t)|-e?|/\S{1,200})"
    r"|.{0,300}(?:\b(?:No such file or directory|Permission denied|(?:Is|Not) a directory|No space left on device|Input/output error|Disk quota exceeded|Connection refused)|(?<=Die)d|^Can't (?:locate|open|call|use|exec) .{1,200}) at \S{1,200})"
    r" line \d{1,6}(?:, <\S{0,40}> (?:line|chunk) \d{1,12})?\.$"
)
"""Errors of runtimes and interpreters."""
_TEST = re.compile(r"\S{1,300}: Test Failed at \S{1,300}:\d{1,7}$")
"""A test of Julia's, with the expression below."""
_JAVA = re.compile(
    r"(?:Exception in thread \"[^\"]{1,80}\"|(?P<cause>Caused by:)) (?:[\w$]{1,60}\.){0,12}(?P<name>[\w$]{0,80}(?:Error|Exception))\b"
)
_TRACE_LINES = 200
"""A trace of Java names the next cause within so many lines."""
_JAVA_WRAPPERS = frozenset({
    "InvocationTargetException", "ExceptionInInitializerError", "ExecutionException", "CompletionException", "UndeclaredThrowableException",
})  # fmt: skip
"""Exceptions that only pass on another one, which the trace names below them."""
_JVM = re.compile(
    r"(?:java|javax|jdk|sun|scala|kotlin|akka)\.\w|(?:org|com|io|net|edu)(?:\.[a-z]\w{0,60}){1,8}\.[A-Z]"
)
"""Packages of Java, Scala and Kotlin."""
_CALL = re.compile(
    r"\s+at (?:[^()\n]{1,300}\((?:[^()\n]{1,300}:\d{1,7}|Native Method|Unknown Source|<anonymous>)\)|[^()\s]{1,300}:\d{1,7}:\d{1,6}$|[\w.`<>\[\]]{3,300}\([^()\n]{0,300}\)(?: in \S{1,300}:line \d{1,7})?$)"
)
"""A frame of a virtual machine of Java, JavaScript or C#; Python's have another form, and stand above the exception."""
_TASK = re.compile(r"ERROR \(unhandled task failure\): \S")
"""Julia: an error of another task than the main one; the program goes on."""
_PANIC = re.compile(r"thread '(?P<name>[^']{1,80})'(?: \(\d{1,10}\))? panicked at ")
"""Rust: the program may go on after the panic of another thread; otherwise the main thread panics as well."""
_THREADS = re.compile(
    r"(?:what\(\):\s{1,3}|\b(?:thread|pthread_create|clone3?|v?fork|fork\(\)|posix_spawn|uv_thread_create)\b[^:]{0,60}: |Thread creation failed: |unable to create (?:new )?(?:native )?thread.{0,40}: )Resource temporarily unavailable\b"
    r"|\bunable to create (?:new )?native thread\b"
)
"""The limit on processes and threads is reached: nothing can be started any more."""
_HEAD = re.compile(
    r"ERROR: (?:LoadError: ){0,4}(?:TaskFailedException|RemoteException|CompositeException|CapturedException)\W{0,3}$"
    r"|[/*=#!-]{3,40}\s{0,4}(?:ERROR|Error|FATAL ERROR|Fatal Error)\s{0,4}[/*=#!-]{3,40}$"
    r"|\[?(?:ERROR|FATAL|CRITICAL)\]?:?\s{1,3}(?:[A-Za-z_]\w{0,60}\.){0,8}[A-Z]\w{1,60}(?:Error|Exception):$"
    r"|ERROR: (?:LoadError: ){0,4}On worker \d{1,6}:$|Error in (?:[\w.:$`]{1,80}\(.{0,200}\)|[\w.`(\[\"].{0,200}?) :$"
    r"|(?:[A-Z][A-Z-]{1,30} ){0,3}LICENSE MANAGER ERROR:$|\[error\] Pipestance failed\. Error log at:$"
    r"|\[CUDA ERROR\] in \S{1,300}$|(?:\[[\d.:-]{10,30}\]\[[ \d]{1,8}\])?(?:\w{1,60}: ){0,3}(?:LowLevelFatalError|Fatal error:) \[File:[^\]\n]{1,300}\] \[Line: \d{1,7}\]$"
    r"|FATAL ERROR: CUDA error .{1,200} in file \S{1,300}, function \w{1,100}, line \d{1,7}$"
    r"|\s{0,8}(?:[Ee]rror: )?unable to load shared object '[^'\n]{1,300}':$"
    r"|\S{1,300}: Error During Test at \S{1,300}:\d{1,7}$|Error in user input:$|--> FOAM FATAL (?:IO )?ERROR ?:?\s{0,3}(?:\([\w.,= -]{1,60}\)?)?$"
    r"|(?:>> ?)?\{?Error using {1,3}(?:==> )?\S{1,300}(?: \(line \d{1,7}\)| at \d{1,7})?$"
    r"|(?:Error|ERROR) in (?:routine|subroutine|procedure)\s{1,3}(?:[^\s:]{1,200}(?: ?\(-?\d{1,7}\))?|\w[\w :]{0,80} \(-?\d{1,7}\))[ :]{0,3}$"
    r"|from\s{1,4}\w[\w :]{0,60}: error #\s{1,12}-?\d{1,7}$|\*\s{1,4}\[ABORT\](?:\s{1,90}\*)?$|\+{3} \w{1,20} error$"
    r"|\w{0,20}ABORT: CALLED FROM PROCESSOR\s{1,4}\d{1,8}$|(?:FINISH|ABORT|FATAL|ERROR|Fatal error|Error|Abort) (?:called|raised|thrown|reported|detected) (?:from|by|on|in) (?:PE|rank|process|task|node)\b[ :=#]{0,3}\d{1,8}[.: ]{0,3}$"
    r"|[#*!=-]{2,10} ?(?:FATAL ERROR|Fatal [Ee]rror|ERROR|Error) (?i:in|at|from) (?i:function|routine|subroutine|module|file)\b[ :]{0,3}[^\s:].{0,200}?(?<!\d)[\])]?\s?:?$"
    r"|(?:FATAL ERROR|Fatal [Ee]rror|FATAL|ERROR|Fatal|Error) (?:(?:CALLED|called|raised|thrown|reported|detected) )?(?:FROM|from|IN|in|AT|at) (?i:file|function|module)\b[ :]{1,4}[^\s:]{1,200}[ ,:(]{1,4}(?i:line\b)?[ :#]{0,12}\d{1,7}[).: ]{0,3}$"
)
"""Headings that name an error or only its place; the error is on one of the next lines."""
_ABAQUS = re.compile(
    r"\*{3} ABAQUS/\S{1,20} rank (?P<rank>\d{1,8}) encountered an? (?P<word>SEGMENTATION FAULT|[A-Z][A-Z ]{3,40})"
)
_DRAWN_RULE = re.compile(r"^[^\w(\['\"]+|[^\w)\]'\"]+$")
"""What a heading has around its words; brackets and quotation marks belong to them."""
_NOTHING = re.compile(
    r"\W{0,80}(?:\d{1,6}\W{1,12})?$|FOAM (?:parallel run )?(?:aborting|exiting)$|\s{0,8}(?:Got exception outside of a @test|Test threw exception|(?:Expression|Condition): .{0,300})$|\d{1,4} root error\(s\) found|\s{0,40}(?:\w ){4}|.{0,200}(?<!signal: killed):$|For simplicity, JAX has removed its internal frames |\s{0,4}-\s(?!(?:cause|reason|error|message)\s?:)|\+{3} [\w ]{1,40} \+{3}$"
)
"""Lines between an announcement and the error: rules, further headings, entries of a list."""
_PLACE = re.compile(
    r"\s{0,8}(?:(?:while|when|during) \w{2,24}ing\b[^:]{0,200}|\{?Error using {1,3}\S{1,300}|(?:src_file|src_line|mpi_rank|message|file|line|function|in namespace|routine)\s?:.{0,200}|\S{1,300}/_errors|Waiting \d{1,4} seconds for UI\b.{0,60}|(?:FATAL CALLED FROM|Source|Program(?!.{0,300}\b(?:error|fail|abort|cannot))|MPI rank|In file|In routine|Called from)\b.{0,300}|\S{1,300}, line \d{1,7}:|\+{3} at .{1,300}|ERROR)$",
    re.IGNORECASE,
)
"""The place of the error, between a heading and its sentence."""
_ADVICE = re.compile(
    r"Error detected on workers? [\d, and]{1,80}\.$|\*{3}(?:\s{1,8}(?:-{20,100}|DOLFIN encountered an error\b.*|using the information listed\b.*|\S{1,80}@\S{1,80}|Remember to include\b.*|include a \*minimal\*.*))?$"
)
"""DOLFIN's advice on whom to ask, in its box above the error; the workers of MATLAB that met it."""
_JULIA_STACK = re.compile(
    r"\[\d{1,4}\] \S|@ \S|\.{3} \S|(?:caused by|Stacktrace):|in expression starting at \S"
)
"""The stack that Julia prints between a task's heading and the task's own error."""
_LAUNCHER = re.compile(
    r"(?:\[\d{1,6}\] )?#\d{1,3}\s{1,4}\S|(?:srun|slurmstepd|mpirun|mpiexec|prterun)(?:-\S{1,253})?: |=\s{1,6}BAD TERMINATION OF|MPI_ABORT was invoked|(?:mpirun|mpiexec|prterun) (?:has exited|noticed|detected)|Primary job\s|MPICH ERROR \[|Abort\(-?\d{1,12}\) on node|application called MPI_Abort\(|aborting job:|_{2,80} ERROR (?:at|collecting) \S"
)
"""A launcher's message, a frame or the heading of one of pytest's errors is not the error that a program's heading announces."""
_LOADING = re.compile(
    r"(?:\d{1,6}\s{1,4})?\S{1,300}: (?:\S{1,300}: )?version `[^']{1,60}' not found \(required by "
    r"|(?:\d{1,6}\s{1,4})?\S{1,300}: error while loading shared libraries: "
    r"|(?!(?:/usr/bin/|/bin/)?(?:tput|stty|tset|clear): )\S{1,300}: symbol lookup error: "
    r"|(?:MATLAB:\S{1,80} -> )?Invalid MEX-file '"
    r"|Please verify that both the operating system and the processor support |(?:Fatal Error: )?This program was not built to run "
)
_SHELLS = re.compile(
    r"(?!/\S{0,300}/conda: )\S{1,300}: (?:line )?\d{1,6}: (?:\S{1,120}: (?:unbound variable|parameter (?:null or )?not set)|.{1,400}: bad substitution$|syntax error)"
)
_ARGUMENTS = re.compile(
    r"Error: (?:No such option|Invalid value|Missing (?:option|argument|parameter)|Got unexpected extra argument|No such command)"
)
_CODES = re.compile(
    r"EXITING:? because of (?i:fatal) \w{0,20} ?(?i:error)\b"
    r"|ERROR(?: on proc \d{1,8})?: .{1,300}\(\S{0,200}\.(?:cpp|cc|c|h|cu|f90):\d{1,6}\)$"
    r"|ERROR on proc \d{1,8}: \S"
    r"|Error in routine \S{1,80}|Open_input_file: error opening \S{1,300}$"
    r"|\[\d{1,8}\]PETSC ERROR: (?!-|(?:Try option|or (?:see|try)|to get more|configure using|Run with|User provided function|Note: )\b)"
    r"|--> FOAM FATAL (?:IO )?ERROR"
    r"|# UNRECOVERABLE ERROR \(ierr="
    r"|(?:VERY BAD NEWS! )?internal error in subroutine \S"
    r"|(?!RuleEx|CalledProcess|MissingOutput)[A-Z]\w{1,60}(?:Error|Exception) in (?:rule \S{1,120} in )?(?:line \d{1,7} of (?:file )?\S{1,400}$|file \S{1,400}, line \d)"
    r"|(?:Assertion|Assert|ASSERTION|ASSERT) (?:[Ff]ailed|FAILED|[Ff]ailure|FAILURE) ?[:!] ?(?=\S)(?!.{0,300}\b(?:ignored|skipp|continu))"
    r"|Process (?:exceeded running time limit \(|requirement exceeds? available )"
    r"|(?:Environment(?:Name|Location)NotFound|CondaError|ResolvePackageNotFound|PackagesNotFoundError): (?!Run 'conda init')"
)
"""Errors of widely used codes and tools: LAMMPS, GROMACS, Quantum ESPRESSO, VASP, CP2K, PETSc, OpenFOAM, Snakemake, Nextflow, Conda."""
_WORKFLOWS = re.compile(
    r"(?:RuleException|CalledProcessError|MissingOutputException) in (?:rule |line \d|file )\S|Missing output file\(s\) `|(?:\[ERROR\] )?Error in rule \S{1,300}(?::$|, jobid: \d)|ERROR ~ (?!Pipeline failed\. Please refer)\S|size mismatch for [\w.]{1,200}: copying a param with shape |make(?:\[\d{1,3}\])?: \*\*\* \["
)
"""Messages of programs that run others, and details of an error; another line is more precise if there is one."""
_FAREWELL = re.compile(
    r"Error termination (?:via Lnk1e|request processed)|ORCA finished by error termination|GLOBAL ERROR fehler on processor"
)
"""Closing messages of chemistry codes; the error itself stands above."""
_ABORTS = re.compile(r"ERROR STOP(?:\s{1,3}\d{1,10})?$")
"""Calls of a code's own abort routine; the code printed the reason just before."""
_THROWN = re.compile(
    r"terminate called (?:without an active exception|after throwing an instance of '(?!c10)\S)"
    r"|(?:pure|deleted) virtual method called$"
)
"""The exception's message is on the next line; its reason may have been printed before."""
_WHAT = re.compile(r"what\(\):\s{1,4}\S")
_SIGNALLED = re.compile(
    r"(?:forrtl: severe \(\d{1,5}\): |Program (?:received|terminated with) signal |#\s{1,4}(?=SIG\w{2,6} \(0x))SIG(?P<name>[A-Z]{3,6})"
)
_PETSC_SIGNAL = re.compile(r"\[(?P<rank>\d{1,8})\]PETSC ERROR: Caught signal number (?P<signal>\d{1,2})\b")
_CAUGHT = re.compile(
    r"(?:\[\d{1,10}\] )?signal \((?P<number>\d{1,2})(?:\.\d{1,3})?\): |\*\*\* caught (?P<word>segfault|bus error|illegal operation) \*\*\*"
)
"""Julia and R, which catch the signals that end them."""
_ABORTED = re.compile(
    r"application called MPI_Abort\(|rank (?P<rank>\d{1,8}) in job \d{1,10}\s{1,4}\S{1,253}\s{1,4}caused collective abort of all ranks"
)
_FLUX = re.compile(r"\S{0,20}\s?flux-shell\[\d{1,8}\]:\s{1,3}ERROR: oom: .{0,60}killed \d{1,8} task")


def heading(
    record: Record, context: JoblogContext, *, raised: bool = False, detail: Mapping[str, Any] | None = None
) -> JobFinding:
    """The heading of an error on one of the next lines: weak, since that line names the error.

    `raised`: it is an exception's name. `detail`: further fields that it gives.
    """
    context.head, context.head_line, context.head_raised = (
        _DRAWN_RULE.sub("", record.text),
        record.line,
        raised,
    )
    context.head_detail = dict(detail or {})
    return make(FACTS, "program_error", record, role=LineRole.EXIT)


_DEATH = re.compile(
    r"[Rr]eason ?: (?:(?P<segv>Segmentation (?:fault|violation))|Bus error|Floating point exception|Illegal instruction)\W{0,3}$"
)
"""Charm++ names the signal that ended a process below its heading."""


def _sentence(record: Record, context: JoblogContext) -> JobFinding:
    """The error that a heading above announced; its message has both."""
    context.head_line = 0
    sentence = replace(record, text=f"{context.head}: {record.text.strip()}")
    if death := _DEATH.match(record.text.strip()):
        return make(FACTS, "segfault" if death["segv"] else "process_crashed", sentence, role=LineRole.ROOT)
    if slurm.is_container(context.head):
        return slurm.container(sentence)
    if context.head_raised:
        # What a runner's exception passes on has a message of its own, above.
        role = LineRole.EXIT if context.head.rstrip(": ").rpartition(".")[2] in python.RUNNERS else None
        return make(FACTS, "python_exception", sentence, role=role, detail={"exception": context.head})
    return make(FACTS, "program_error", sentence, detail=context.head_detail)


def _heading(_found: re.Match[str], record: Record, context: JoblogContext) -> JobFinding:
    return heading(record, context)


def _petsc_signal(found: re.Match[str], record: Record, _context: JoblogContext) -> JobFinding:
    rank = grammar.number(found["rank"], grammar.MAX_RANK)
    kind = slurm.of_signal(int(found["signal"]))
    return make(process.FACTS, kind, record, rank=rank, role=LineRole.EXIT)


def _panic(found: re.Match[str], record: Record, context: JoblogContext) -> JobFinding:
    detail = {"panic": True} | ({} if found["name"] == "main" else {"handled": True})
    if record.text.rstrip().endswith(":"):  # since Rust 1.73 the reason stands on the next line
        return heading(record, context, detail=detail)
    return make(FACTS, "program_error", record, detail=detail)


def _no_thread(found: re.Match[str], record: Record, _context: JoblogContext) -> rules.Handled:
    text = record.text.strip()
    if mention.is_mentioned(text, found.start()):
        return rules.NEXT
    # OpenBLAS reports it and goes on; see tools.
    return None if "blas_thread_init" in text else make(FACTS, "program_error", record)


def _loading(_found: re.Match[str], record: Record, _context: JoblogContext) -> JobFinding:
    """A library that does not fit; Python's ImportError quotes the loader's message."""
    of_python = python.exception(record)
    if of_python is not None and of_python.kind == "import_error":
        return replace(of_python, detail={**of_python.detail, "missing": True})
    return make(FACTS, "program_error", record, detail={"missing": True})


def _workflow(_found: re.Match[str], record: Record, context: JoblogContext) -> JobFinding:
    context.head_line = 0
    return make(FACTS, "program_error", record, detail={"handled": True})


def _signalled(found: re.Match[str], record: Record, _context: JoblogContext) -> JobFinding:
    return make(FACTS, "segfault" if found["name"] == "SEGV" else "process_crashed", record)


def _caught(found: re.Match[str], record: Record, _context: JoblogContext) -> JobFinding:
    crashed = found["word"] == "segfault" or found["number"] == "11"
    return make(FACTS, "segfault" if crashed else "process_crashed", record)


def _aborted(found: re.Match[str], record: Record, _context: JoblogContext) -> JobFinding:
    return make(FACTS, "process_aborted", record, rank=grammar.number(found["rank"], grammar.MAX_RANK))


def _abaqus(found: re.Match[str], record: Record, _context: JoblogContext) -> JobFinding:
    kind = "segfault" if found["word"] == "SEGMENTATION FAULT" else "process_crashed"
    return make(FACTS, kind, record, rank=grammar.number(found["rank"], grammar.MAX_RANK))


def _java(found: re.Match[str], record: Record, context: JoblogContext) -> rules.Handled:
    """An uncaught exception; below one that only passes on another, that other one."""
    wraps = found["name"] in _JAVA_WRAPPERS
    if found["cause"] and not 0 < record.line - context.java_line <= _TRACE_LINES:
        return rules.NEXT
    context.java_line = record.line if wraps else 0
    kind = "host_memory_error" if found["name"] == _NO_HEAP else "program_error"
    return make(FACTS, kind, record, detail={"handled": True} if wraps else None)


_NO_HEAP = "OutOfMemoryError"


def of_runtime(found: JobFinding, below: str = "") -> JobFinding:
    """An exception without a traceback, as the one of Java, Scala, JavaScript or C# that its package or the line `below` it shows it to be."""
    name = str(found.detail.get("exception", ""))
    if found.kind != "python_exception" or not (_JVM.match(name) or _CALL.match(below)):
        return found
    kind = "host_memory_error" if name.endswith(_NO_HEAP) else "program_error"
    return replace(found, kind=kind, meaning=FACTS[kind].meaning)


_OWN_ERROR = rules.always(FACTS, "program_error")
_EXIT = {"role": LineRole.EXIT}
_RULES: tuple[rules.Rule, ...] = (
    (_HEAD.match, _heading),
    (_FLUX.match, rules.always(FACTS, "host_oom_kill")),
    (_LOADING.match, _loading),
    (_PETSC_SIGNAL.match, _petsc_signal),
    (_JAVA.match, _java),
    (_RUNTIMES.match, _OWN_ERROR),
    (_TEST.match, _OWN_ERROR),
    (_SHELLS.match, _OWN_ERROR),
    (_ARGUMENTS.match, _OWN_ERROR),
    (_CODES.match, _OWN_ERROR),
    (_TASK.match, rules.always(FACTS, "program_error", **_EXIT)),
    (_PANIC.match, _panic),
    (_THREADS.search, _no_thread),
    (_WORKFLOWS.match, _workflow),
    (_FAREWELL.match, rules.always(FACTS, "program_error", detail={"farewell": True}, **_EXIT)),
    (_ABORTS.match, rules.always(FACTS, "program_error", detail={"aborts": True})),
    (_THROWN.match, rules.always(FACTS, "process_aborted")),
    (_WHAT.match, rules.always(FACTS, "program_error", detail={"thrown": True}, **_EXIT)),
    (_SIGNALLED.match, _signalled),
    (_CAUGHT.match, _caught),
    (_ABORTED.match, _aborted),
    (_ABAQUS.match, _abaqus),
)


def read(record: Record, context: JoblogContext) -> JobFinding | None:
    """A line by which a program, its runtime or its tool reports that it stops."""
    text = record.text.strip()
    if process.is_of_another(text) or grammar.TRACEBACK in text:
        # IPython prints the exception's name in front of the traceback; its message ends the frames.
        context.head_line = 0
        return None
    if context.announced(record.line):
        if _LAUNCHER.match(text):
            context.head_line = 0
        elif _ADVICE.match(text) or (context.head.endswith("Exception") and _JULIA_STACK.match(text)):
            context.head_line = record.line
        elif not (_NOTHING.match(record.text) or _PLACE.match(record.text)):
            return _sentence(record, context)
    return rules.first(_RULES, text, record, context)


FAMILY = grammar.LogFamily(
    name="languages",
    expects=JoblogContext.announced,
    triggers=(
        "awk: ", "sed: -e", "jq: error", "(standard_in)", "forrtl: ", "Fortran runtime", "FIO-", "FIO/",
        " statement on the file ", "jwe", "terminate called", "what():", "virtual method called",
        "panicked at", "panic: ", "fatal error: ", "Exception in thread", "Caused by: ", "ERROR: ", "Error in ",
        "Error using ", "LowLevelFatalError", "Invalid MEX-file", ".lua:", " line ", "' not found (", "loading shared", "unable to load shared", "symbol lookup",
        "Please verify that both", "not built to run", "unbound variable", "bad substitution", "not set",
        "syntax error", ": error: ", "Error: ", "ERROR on proc", "EXITING", "Fatal error:", "PETSC ERROR",
        "FOAM FATAL", "LLVM ERROR", "size mismatch for", ": error #", ": *** [", "ERROR ~", "NotFound: ", "CondaError",
        "NotFoundError: ", "MPI_Abort(", "collective abort", "flux-shell", "MPI_ERR_", "ERROR STOP",
        "UNRECOVERABLE ERROR", "rror termination", "GLOBAL ERROR", "error in subroutine", "[ABORT]", "+++ ", "libc++",
        "Exception in ", "Process exceeded", "Process requirement", "Missing output",
        "temporarily unavailable", "native thread", "main class", "jarfile", "initialization of VM",
        "ERROR", "Error*", "Error in user input", "(unhandled task", "ssertion failed", "ssertion Failed",
        "ssert failed", "ssert Failed", "ASSERTION FAILED", "ASSERT FAILED", " CALLED FROM ",
        "FINISH called", "Open_input_file: ", "ABORT called", "Abort called", "FATAL ERROR ", "Fatal error ",
        "Error detected by", " encountered a", "received signal SIG", "#  SIG", "signal (", "caught ", "Error During Test", "Test Failed at", "Pipestance failed",
    ),
    read=read,
    facts=FACTS,
)  # fmt: skip
