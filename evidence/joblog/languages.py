"""How programs that are not Python's end by themselves: Fortran, C++, Rust, Go, Java, Julia, R, MATLAB, shells, codes of HPC.

Every form stands at the beginning of its line, where the runtime or the code writes it.
"""

from __future__ import annotations

import re

from probing_cluster.evidence.joblog import grammar, process
from probing_cluster.evidence.joblog.grammar import (
    USER,
    JobFinding,
    JoblogContext,
    LineRole,
    Record,
    fact,
    make,
)

FACTS = {
    "program_error": fact(
        LineRole.ROOT, USER, "The program, its runtime or its language stopped it, and says why."
    ),
    **{k: process.ENDS[k] for k in ("process_aborted", "process_crashed", "segfault")},
    "host_oom_kill": process.FACTS["host_oom_kill"],
}
_RUNTIMES = re.compile(
    r"forrtl: (?:severe|error) \(\d{1,5}\)(?!: SIG)"
    r"|Fortran runtime error: "
    r"|PGFIO[-/][FS]-?\S{0,12}[ /]"
    r"|jwe\d{4}i-[us] "
    r"|terminate called after throwing an instance of '(?:std::(?!(?:runtime|system)_error|bad_alloc|exception\b)[\w:<>]{1,80})'"
    r"|thread '[^']{1,80}'(?: \(\d{1,10}\))? panicked at "
    r"|panic: \S"
    r"|fatal error: (?:all goroutines are asleep|concurrent map|runtime: |unexpected signal)"
    r"|Exception in thread \"[^\"]{1,80}\" [\w.$]{1,120}(?:Error|Exception)\b"
    r"|ERROR: (?:LoadError: |InitError: |TaskFailedException|[A-Z]\w{1,40}(?:Error|Exception|Mismatch)\b)"
    r"|\*\*\* MPI_ERR_(?!OTHER|INTERN|UNKNOWN|PROC_FAILED|REVOKED)[A-Z_]{2,30}: "
    r"|Error in [\w.:$`]{1,80}\(.{0,200}\) ?: ?"
    r"|\{?Error using \S"
    r"|\S{0,200}lua\w{0,8}: \S{1,200}\.lua:\d{1,6}: "
    r"|(?:/\S{0,80}/)?[gmn]?awk: (?:cmd\. line:\d{1,6}: |fatal: |line \d{1,6}: |\S{1,200}:\d{1,6}: |syntax error)"
    r"|(?:/\S{0,80}/)?(?:sed: -e expression #\d|jq: error|(?:\(standard_in\) \d{1,6}: (?:syntax error|parse error)))"
    r"|\S.{0,300} at \S{1,200}\.p[lm] line \d{1,6}\.$"
)
"""Of runtimes and interpreters."""
_LOADING = re.compile(
    r"\S{1,300}: (?:\S{1,300}: )?version `[^']{1,60}' not found \(required by "
    r"|\S{1,300}: error while loading shared libraries: "
    r"|\S{1,300}: symbol lookup error: "
)
_SHELLS = re.compile(
    r"\S{1,300}: (?:line )?\d{1,6}: (?:\S{1,120}: (?:unbound variable|bad substitution|parameter (?:null or )?not set)|syntax error)"
)
_ARGUMENTS = re.compile(
    r"[\w./-]{1,200}: error: (?:argument |unrecognized arguments|the following arguments|invalid choice|ambiguous option|too few arguments)"
    r"|Error: (?:No such option|Invalid value|Missing (?:option|argument|parameter)|Got unexpected extra argument|No such command)"
)
_CODES = re.compile(
    r"ERROR(?: on proc \d{1,8})?: .{1,300}\(\S{0,200}\.(?:cpp|cc|c|h|cu|f90):\d{1,6}\)$"
    r"|ERROR on proc \d{1,8}: \S"
    r"|Fatal error:$"
    r"|Error in routine \S{1,80}"
    r"|\[\d{1,8}\]PETSC ERROR: (?!-)"
    r"|--> FOAM FATAL (?:IO )?ERROR"
    r"|(?:Environment(?:Name|Location)NotFound|CondaError|ResolvePackageNotFound|PackagesNotFoundError): (?!Run 'conda init')"
)
"""Of widely used codes and tools: LAMMPS, GROMACS, Quantum ESPRESSO, PETSc, OpenFOAM, Conda."""
_WORKFLOWS = re.compile(
    r"CondaError: Run 'conda init'|Error in rule \S{1,80}:$|ERROR ~ \S|size mismatch for [\w.]{1,200}: copying a param with shape |make(?:\[\d{1,3}\])?: \*\*\* \["
)
"""Of a Conda that was not set up, of what runs other programs, and details of an error: another line says more, where there is one."""
_THROWN = re.compile(
    r"terminate called (?:without an active exception|after throwing an instance of '(?!c10)\S)"
)
"""The thrower's own words stand on the next line, and what it met may have been said before."""
_SIGNALLED = re.compile(r"forrtl: severe \(\d{1,5}\): SIG(?P<name>[A-Z]{3,6})")
_ABORTED = re.compile(
    r"application called MPI_Abort\(|rank (?P<rank>\d{1,8}) in job \d{1,10}\s{1,4}\S{1,253}\s{1,4}caused collective abort of all ranks"
)
_FLUX = re.compile(r"\S{0,20}\s?flux-shell\[\d{1,8}\]:\s{1,3}ERROR: oom: .{0,60}killed \d{1,8} task")
_LAST = re.compile(
    r"(?:\[?(?:ERROR|FATAL|CRITICAL)\]?|Error|Fatal(?: error)?|FATAL ERROR|fatal|abort)\s{0,2}[:!]{1,3} {1,3}(?=\S)"
    r"|\S{1,300}: .{0,120}write error: "
    r"|\S{1,300}: (?:line )?\d{1,6}: (?:.{1,300}: (?:No such file or directory|Permission denied|Is a directory|Not a directory|Exec format error|cannot execute\b.{0,60})$"
    r"|\S{1,80}: (?:Can't|cannot) open \S|(?:Can't|cannot) open \S|Syntax error: |Bad substitution$)"
    r"|error: (?=\S)|Execution halted$"
    r"|An error occurred \(\w{1,80}\) when calling the \w{1,80} operation"
    r"|(?:\S{1,100}: )?Permission denied \((?:publickey|password|keyboard|gssapi|hostbased)[\w,-]{0,120}\)\.?$|Host key verification failed\.?$|(?:ssh|scp|sftp|kex_exchange_identification): \S"
    r"|curl: \(\d{1,3}\) |wget: \S|rsync(?: error)?: \S|tar: (?:Error|Exiting|.{1,200}: Cannot )"
    r"|(?:/\S{0,80}/)?(?:cp|mv|rm|ln|ls|cat|mkdir|rmdir|chmod|chown|touch|head|tail|sort|cut|wc|stat|install|split|dd|du|df|find|grep|zgrep|unzip|gzip|zcat): "
    r"(?:cannot |can't |unable |failed |missing |unrecognized |invalid |illegal |extra operand|unexpected |.{1,200}: (?:No such file or directory|Permission denied|Not a directory|Is a directory)$)"
)
"""A line that says of itself that it is an error: believed as the log's last word only."""
_NO_LAST = re.compile(
    r"pip's dependency|\b(?:0|no) errors?\b|\bignored?\b|\bwarning\b|\bretry", re.IGNORECASE
)


def read(record: Record, _context: JoblogContext) -> JobFinding | None:
    """A line by which a program, its runtime or its tool says that it stops."""
    text = record.text.strip()
    if _FLUX.match(text):
        return make(FACTS, "host_oom_kill", record)
    if any(p.match(text) for p in (_RUNTIMES, _LOADING, _SHELLS, _ARGUMENTS, _CODES)):
        return make(FACTS, "program_error", record)
    if _WORKFLOWS.match(text):
        return make(FACTS, "program_error", record, role=LineRole.EXIT)
    if _THROWN.match(text):
        return make(FACTS, "process_aborted", record)
    if found := _SIGNALLED.match(text):
        return make(FACTS, "segfault" if found["name"] == "SEGV" else "process_crashed", record)
    if found := _ABORTED.match(text):
        return make(FACTS, "process_aborted", record, rank=grammar.number(found["rank"], grammar.MAX_RANK))
    return None


def last_word(record: Record) -> JobFinding | None:
    """A line that calls itself an error; what ended the program only where hardly anything follows it."""
    text = record.text.strip()
    return make(FACTS, "program_error", record) if _LAST.match(text) and not _NO_LAST.search(text) else None


LAST_TRIGGERS = (
    "ERROR",
    "Error: ",
    "Error! ",
    "FATAL",
    "Fatal",
    "CRITICAL",
    "fatal: ",
    "abort: ",
    "write error",
    "No such file or directory",
    "ermission denied",
    "a directory",
    "Exec format",
    "cannot execute",
    "t open ",
    "cannot open ",
    "Syntax error",
    "Bad substitution",
    "An error occurred (",
    "error: ",
    "Execution halted",
    "Host key verification",
    "ssh: ",
    "scp: ",
    "sftp: ",
    "kex_exchange",
    "curl: (",
    "wget: ",
    "rsync",
    "tar: ",
    *(
        f"{tool}: "
        for tool in (
            "cp",
            "mv",
            "rm",
            "ln",
            "ls",
            "cat",
            "dir",
            "chmod",
            "chown",
            "touch",
            "head",
            "tail",
            "sort",
            "cut",
        )
    ),
    *(
        f"{tool}: "
        for tool in ("wc", "stat", "install", "split", "dd", "du", "df", "find", "grep", "zip", "zcat")
    ),
)
FAMILY = grammar.LogFamily(
    name="languages",
    triggers=(
        "awk: ",
        "sed: -e",
        "jq: error",
        "(standard_in)",
        "forrtl: ",
        "Fortran runtime",
        "PGFIO",
        "jwe",
        "terminate called",
        "panicked at",
        "panic: ",
        "fatal error: ",
        "Exception in thread",
        "ERROR: ",
        "Error in ",
        "Error using ",
        ".lua:",
        " line ",
        "' not found (",
        "loading shared",
        "symbol lookup",
        "unbound variable",
        "bad substitution",
        "not set",
        "syntax error",
        ": error: ",
        "Error: ",
        "ERROR on proc",
        "Fatal error:",
        "PETSC ERROR",
        "FOAM FATAL",
        "size mismatch for",
        ": *** [",
        "ERROR ~",
        "NotFound: ",
        "CondaError",
        "NotFoundError: ",
        "MPI_Abort(",
        "collective abort",
        "flux-shell",
        "MPI_ERR_",
    ),
    read=read,
    facts=FACTS,
)
