"""Lines that call themselves an error, in the forms of loggers, runtimes and codes: a table, a form a row.

`error_line` reads a log's last lines by it, and by the table of tools and shells.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Form:
    """One form of such a line."""

    example: str
    """A line of this form."""
    pattern: str
    """Matches the line from its beginning; without groups that capture."""
    triggers: tuple[str, ...]
    """Every line of this form contains one of these, so that no other line has to be read. They hold no digit."""
    why: str = ""
    """Whose form it is, or why it is not wider, where that is not plain."""


def form(example: str, pattern: str, *triggers: str, why: str = "") -> Form:
    """A `Form`, without the names of its fields."""
    return Form(example, pattern, triggers, why)


def either(forms: Iterable[Form]) -> str:
    """One pattern for lines of any of the forms."""
    return "|".join(form.pattern for form in forms)


LEVELS = ("ERROR", "FATAL", "CRITICAL")


def cases(word: str) -> tuple[str, str, str]:
    """A word as loggers write their levels: small, capital, or with a capital letter in front."""
    return word.lower(), word.upper(), word.capitalize()


NAN_GOES_ON = (
    "/",
    "s/",
    *(
        f"{s} {word}"
        for s in ("", "s")
        for word in ("det", "enc", "found", "occ", "or ", "in ", "val", "loss d", "gradients", "was", "were")
    ),
)
"""How a sentence goes on behind NaN if it reports one."""
LOGGERS = (
    form("Unexpected error occurred while reading mesh: bad magic number",
         r"(?:An|Unexpected|Unknown) (?:\w{1,20} ){0,2}(?:error|exception) (?:has )?occurr?ed\b[^:]{0,60}: \S",
         " occur"),
    form("ERROR: bad input",
         r"(?:\[?(?:ERROR|FATAL|CRITICAL)\]?|Fatal(?: error)?|FATAL ERROR)\s{0,8}[:!>]{1,3} {1,3}(?=\S)",
         *LEVELS, "Fatal"),
    form("Error: bad input",
         r"(?:Error|ERR|Err|fatal|abort) {0,2}[:!>]{1,3} {1,3}(?=\S)",
         *(f"{word}{' ' * blanks}{mark}" for word in ("Error", "ERR", "Err", "fatal", "abort") for blanks in range(3) for mark in ":!>"),
         why="Words with other meanings: the mark stands near."),
    form("[ERROR] no such key",
         r"[\[(<] ?(?:ERROR|FATAL|CRITICAL|SEVERE|CRIT|EMERG|ALERT) ?[\])>]:?\s{1,4}(?=\S)",
         "CRIT", "ALERT", "FATAL", "EMERG", "ERROR", "SEVERE"),
    form("*** GASNET ERROR(Node 1): got exn while reading exit code",
         r"\*\*\* GASNET ERROR\(\w{2,8} \d{1,8}\): \S",
         "GASNET ERROR"),
    form("*** ERROR IN CC CALCULATION ***",
         r"\*{3} ?ERROR[A-Z ]{2,60}\*{3}$",
         "*** ERROR", "***ERROR"),
    form("-E- Failed to query the device",
         r"-[EF]- (?=\S)",
         "-F- ", "-E- ",
         why="ibdiagnet and mstflint."),
    form("[ERROR|trainer.py:12] no data",
         r"\[(?:ERROR|CRITICAL|FATAL)\|[^\]\n]{1,80}\] (?=\S)",
         "CRITICAL", "ERROR", "FATAL",
         why="transformers names the source in the same bracket."),
    form("[E 2024-05-01 10:00:00,123 worker] no data",
         r"\[[EC] (?:\d{4}-\d\d-\d\d |\d{6} )?\d\d:\d\d:\d\d[^\]\n]{0,60}\] (?=\S)",
         "[C ", "[E ",
         why="optuna, Jupyter, tornado: one letter for the level."),
    form("[[12345,1],0] ORTE_ERROR_LOG: Not found in file ess.c at line 12",
         r"(?:\[\[[^\]\n]{1,24}\],?\w{0,8}\]? |\[[\d,]{3,24}\] )?(?:ORTE|OPAL|PMIX|PRTE)_ERROR_LOG: \S",
         "ERROR",
         why="Open MPI and its runtime, behind their process names."),
    form("MPI_ERROR: no such communicator",
         r"[A-Z][A-Z\d_]{1,30}_(?:ERROR|FATAL): (?![\d.e+%-]{1,24}(?:\s|$))(?=\S)",
         "ERROR", "FATAL",
         why="Not with a number behind it: that is a measured error."),
    form("mytool: ERROR no input",
         r"""[\w./+-]{1,60}(?:\(\))?: (?:ERROR|Error|FATAL|Fatal)\b[:\s]{1,3}(?![\d.e+%-]{1,24}(?:\s|$)|(?i:nan|inf)\b)(?=[\w'"`/(])""",
         *LEVELS, "Error:", ": Error", "Fatal",
         why="A number behind it would be a measured error, nan or inf a diverged one."),
    form("libfabric: provider verbs: open failed",
         r"lib(?:gomp|fabric|rdmacm|ibverbs|cufile)\S{0,20}: .{0,120}?\b(?:error|failed)\b",
         "libgomp", "libfabric", "librdmacm", "libibverbs", "libcufile"),
    form("Libint error: angular momentum too high",
         r"Lib\w{2,30} (?:fatal )?error: (?=\S)",
         "error: "),
    form("[0 - 7f5c8a3b5800] 0.012345 {5}{legion}: input cannot be read",
         r"\[[\da-f -]{1,40}\]\s{1,3}[\d.]{1,16} \{[56]\}\{[\w ]{1,40}\}: (?=\S)",
         "}: ",
         why="Legion: 5 is an error, 6 is fatal."),
    form("% Variable is undefined: X.",
         r"% (?:Variable is undefined|Attempted to|Unable to|Type conversion error|Program caused|Syntax error|Execution halted at)\b",
         "% Execution halted", "% Program caused", "% Variable is", "Syntax error", "% Type conv", "% Attempted", "% Unable", "% Syntax",
         why="IDL."),
    form("** On entry to DGEMM parameter number 8 had an illegal value",
         r"(?:\*\* |\{[\s\d,-]{3,40}\}:\s{1,4})?On entry to \S{3,20},? parameter number\s",
         "On entry to ",
         why="BLAS and LAPACK; ScaLAPACK names the process first."),
    form("BLACS ERROR 'Illegal grid (0 x 4)'",
         r"BLACS ERROR '",
         "BLACS ERROR"),
    form("Lapack: Call to ZHEEV failed with info 3",
         r"[A-Z]\w{2,20}: Call to \S{3,20} failed\b",
         ": Call to "),
    form("ABINIT ERROR on rank 3: bad k-point grid",
         r"(?:[\w.-]{1,40} ){1,2}(?i:error) on (?i:rank|task|process|PE) \d{1,8}\b[^:\n]{0,300}(?::\d{1,7}\)?)?: (?=[A-Za-z])",
         *(f" on {word} " for name in ("rank", "task", "process") for word in cases(name)), *(f" on {word} " for word in ("PE", "pe", "Pe"))),
    form("(main) Error: bad mesh",
         r"\([\w.]{2,40}\)\s?:?\s?(?:ERROR|FATAL|Error)\b[:\s]{1,3}(?=[^\W\d])",
         *LEVELS, "Error:", ": Error", ":Error", ")Error", ") Error", ")  Error"),
    form("*** ERROR *** cannot continue",
         r"[#=*!>+-]{1,8} ?(?:ERROR|FATAL(?: ERROR)?|Error(?=:))(?:[:!]{1,3}| ?[=*#!<-]{1,8}:?) {1,3}(?=\S)",
         *LEVELS, "Error:"),
    form("PETSC [ERROR] no matrix",
         r"[\w.+/-]{2,40}(?: ?[(\[](?:ERROR|FATAL|Error|Fatal)[)\]]:?| : (?:ERROR|FATAL|Error|Fatal) :) (?=\S)",
         *LEVELS, "Fatal", "(Error", "[Error", ": Error"),
    form("{\"level\":\"error\",\"ts\":1,\"msg\":\"no such bucket\"}",
         r'\{.{0,400}"(?:level|lvl|severity|levelname|log\.level)"\s?:\s?"(?i:error|fatal|critical|panic|alert|emergency)".{0,4000}\}$',
         *(f'"{word}"' for level in ("error", "fatal", "critical", "panic", "alert", "emergency") for word in cases(level)),
         why="A line of JSON."),
    form("time=2024-05-01 level=error msg=\"no such bucket\"",
         r'(?:[\w.@-]{1,40}=(?:"[^"]{0,200}"|\S{1,120}) ){0,4}(?:level|lvl|severity)="?(?i:error|fatal|critical|panic)"? (?=.{0,400}=)',
         *(f"={quote}{word}" for level in ("error", "fatal", "critical", "panic") for word in cases(level) for quote in ("", '"')),
         why="logfmt."),
    form("mytool: /x/solver.cpp:12: ERROR: no grid",
         r"(?:[\w.-]{1,40}: )?\S{1,200}:\d{1,6}: (?:ERROR|FATAL): (?=\S)",
         "FATAL", "ERROR"),
    form("ERROR:something went wrong",
         r"(?:ERROR|CRITICAL|FATAL):(?![\w.]{1,80}:)(?=[A-Za-z])",
         "CRITICAL", "FATAL", "ERROR",
         why="Python's logging names the logger between two colons."),
    form("Error message is : no such dataset",
         r"Error message is (?:: )?(?=[A-Za-z])",
         "Error message is"),
    form("On return from DMUMPS, INFOG(1)=              -9",
         r"On return from [SDCZ]MUMPS, INFOG?\(1\)=\s{0,20}-\d",
         "MUMPS, ",
         why="MUMPS: a negative result is an error."),
    form("error: no input files",
         r"error: (?=\S)",
         "error: "),
    form("Execution halted",
         r"Execution halted$",
         "Execution halted",
         why="R's last line."),
    form("NetCDF: Unknown file format",
         r"NetCDF: (?!.{0,20}version)\S",
         "NetCDF: ",
         why="Not the library's version."),
    form("[2024-05-01 10:00:00] [error] no such bucket",
         r"(?:(?>(?:\[[^\]\n]{1,60}\]|[\d:/., TZ-]{8,64}|[\w.-]{1,40}:)\s{0,2})){0,4}\[(?i:error|fatal|critical|severe|E|F)\]:?\s{0,3}(?=\S)",
         *(f"[{word}]" for level in ("error", "fatal", "critical", "severe") for word in cases(level)), "[E]", "[F]", "[e]", "[f]"),
    form("2024-05-01 10:00:00 ERROR no such bucket",
         r"(?:(?:[\d:.,/|MGKTB -]{8,48}\s)?\[?(?:ERROR|FATAL|CRITICAL|SEVERE)\]?|\W{0,4}[\w.]{1,80} - (?:ERROR|CRITICAL|FATAL) -|\|? ?(?:ERROR|CRITICAL|FATAL)\s{1,5}\|)\s{1,3}(?=\S)",
         "CRITICAL", "FATAL", "ERROR", "SEVERE"),
    form("ERROR:root:no such bucket",
         r"(?:ERROR|CRITICAL):root:(?=\S)",
         "CRITICAL", "ERROR",
         why="Python's root logger."),
    form("ERROR (main.solver): no grid",
         r"(?:ERROR|CRITICAL|Error) ?\([\w.]{1,80}\): \S",
         "ERROR", "CRITICAL", "Error(", "Error ("),
    form("Job status: FAILED",
         r"(?:Job |Run )?[Ss]tatus ?[:=] ?(?:FAILED|ERROR)$",
         *(f"tatus{blank}{mark}{after}{word}" for blank in ("", " ") for mark in ":=" for after in ("", " ") for word in ("FAILED", "ERROR"))),
    form("ERROR (n1[8.0.30]:main():solver.cc:12) no grid",
         r"(?:ERROR|ASSERTION_FAILED) \([\w-]{1,80}\[[\w.~-]{1,60}\]:[\w~():]{1,80}:[\w.-]{1,60}:\d{1,7}\) \S",
         "ERROR (", "ASSERTION_FAILED"),
    form("Caused by: java.io.IOException: no space",
         r"Caused by: (?:\w{1,60}\.){1,8}[A-Z]\w{1,80}(?:Error|Exception)\b",
         "Caused by: "),
    form("libfabric:123:1700000000::core:mr:<warn> registration failed",
         r"libfabric:\d{1,10}:(?:\d{1,12}:)?\S{0,200}<(?:warn> .{0,300}\b(?i:failed|error)\b|critical> \S)",
         "libfabric:",
         why="Its warnings go with runs that end well; those that report a failure count."),
    form("[1700000000.123456] [n1:123:0]      ib_md.c:12   UCX  ERROR no device",
         r"(?:\[[\d.]{8,24}\] \[[\w.:-]{1,100}\] {1,20}\S{1,60}:\d{1,6} {1,4})?UCX {1,4}(?:ERROR|FATAL) \S",
         "ERROR", "FATAL"),
    form("prted[123]: error: no such host",
         r"(?:\d{4}[-/]\d\d[-/]\d\d[T ][\d:.,]{8,15}\S{0,6} |\d{1,9}\.\d{1,6}s?: )?[\w.-]{1,40}\[\d{1,10}\]:? (?:fatal|error|FATAL|ERROR): (?!doom: )(?=\S)",
         "fatal: ", "error: ", "ERROR", "FATAL"),
    form("upload: [Errno 5] Input/output error: 'x'",
         r"(?:[\w.()<>-]{1,60}: ){0,3}(?:.{0,80}\b(?:message|reason|error) (?:was|is): )?\[Errno \d{1,3}\] \w",
         "[Errno "),
    form("/x/main.cpp:12:3: runtime error: signed integer overflow",
         r"\S{1,300}\.(?:c|cc|cpp|cu):\d{1,7}:\d{1,6}: runtime error: ",
         "runtime error: ",
         why="The compiler's sanitizer."),
    form("SUMMARY: ThreadSanitizer: data race /x/main.cpp:12 in worker()",
         r"(?:SUMMARY: ThreadSanitizer: (?=\S)|ThreadSanitizer: reported \d{1,9} warnings?$)",
         "ThreadSanitizer: ",
         why="It goes on after a race and ends the program with a code of its own at its end; the second form is what it prints there."),
    form("Caught exception: no such table",
         r"Caught exception: \S",
         "Caught exception: "),
    form("[FAILED] no such bucket",
         r"\[(?i:fail(?:ed|ure)?)\]:?\s{1,3}(?=\S)",
         "[fail", "[Fail", "[FAIL"),
    form("FATAL:   container creation failed",
         r"FATAL: +\S",
         "FATAL",
         why="Apptainer."),
    form("ABAQUS Error: no license",
         r"ABAQUS Error: ",
         "Error: "),
    form("Abaqus Error: The executable does not exist",
         r"Abaqus Error: ",
         "Abaqus Error"),
    form("----- Processor 1 Exiting: Called charm_abort -----",
         r"-{3,20} (?:Partition \d{1,6} )?Processor \d{1,6} Exiting: ",
         " Exiting: ",
         why="Charm++."),
    form("raised CONSTRAINT_ERROR : a.adb:3 index check failed",
         r"raised [A-Z][A-Z\d_.]{2,80} : \S",
         "raised ",
         why="Ada."),
    form("a.chpl:3: error: halt reached - out of bounds",
         r"\S{1,200}\.chpl:\d{1,7}: error: \S",
         ".chpl:",
         why="Chapel."),
    form("core.exception.ArrayIndexError@a.d(3): index [7] is out of bounds",
         r"[\w.]{1,80}(?:Error|Exception)@\S{1,200}\(\d{1,7}\): \S",
         "Error@", "Exception@",
         why="D."),
    form("triton.runtime.errors.OutOfResources: out of resource: shared memory",
         r"triton\.[\w.]{1,80}\.OutOfResources: \S",
         ".OutOfResources: ",
         why="An exception whose name does not show that it is one; for a log without its traceback."),
    form("Timeout (0:05:00)!",
         r"Timeout \(\d{1,3}:\d\d:\d\d(?:\.\d{1,6})?\)!$",
         "Timeout (",
         why="Python's faulthandler: a deadline that the program set itself."),
    form("Reason: FATAL ERROR in namd",
         r"Reason: FATAL ERROR",
         "Reason: FATAL"),
    form("*** Error: no grid",
         r"(?:(?:\[[\w.:-]{1,60}\] )?\*{2,5} ?(?:[Ff]atal )?(?:ERROR|[Ee]rror):?|[\w./+-]{1,80}\.(?:sh|py|pl|R) ERROR:|(?:[A-Z][\w+-]{1,30} ){1,3}fatal error(?: \d{1,6})?:) (?=\S)",
         "ERROR", " fatal error", *(f"*{blank}{word}" for blank in ("", " ") for word in ("Error", "error", "Fatal", "fatal"))),
)  # fmt: skip
"""The line calls itself an error; that counts only at the end of the log."""
WORDED = (
    form("main exception caught: bad grid",
         r"\W{0,6}(?:[A-Za-z][\w:+-]{1,40} ){0,2}(?:[A-Za-z]\w{0,30}::)?(?:exception|EXCEPTION|Exception)(?: caught| thrown| raised)?: (?=[^\W\d])",
         "xception: ", "raised: ", "caught: ", "thrown: ", "EXCEPTION: "),
    form("[solver] cannot converge",
         r"\[[a-z]\w{2,40}\] (?:[Ff]ail(?:ed|ure)?|[Ff]atal|[Aa]bort(?:ed|ing)?|[Cc]an ?not|[Cc]an't|[Cc]ould not|[Uu]nexpected|[Ii]nvalid|[Uu]nable|[Ee]rror|[Nn]o (?:such|space|memory))\b(?!\W{0,3}-?\d|[^:=]{0,40}[:=]\s{0,3}-?\d)",
         *(f"] {letters}" for word in ("fail", "fatal", "abort", "cannot", "can not", "can't", "could not", "unexpected", "invalid", "unable", "error", "no s", "no memory") for letters in (word, word.capitalize())),
         why="Not with a number behind it: a count of failures."),
    form("Error in DSYEV, info = 3",
         r"(?:Error|ERROR|error|Failed|FAILED|failed)\b.{0,120}\b(?:(?:info|INFO|stat|STAT)\s{0,3}=|(?:ierr?|IERR?|iostat|IOSTAT|istat|errno)\s{0,3}[=:])\s{0,6}-?[1-9]\d{0,6}\b",
         *(f"{word}{' ' * blanks}=" for name in ("info", "stat") for word in (name, name.upper()) for blanks in range(4)), *(f"{word}{' ' * blanks}{mark}" for word in ("ier", "IER") for blanks in range(4) for mark in "=:"), "ierr", "IERR", "iostat", "IOSTAT", "istat", "errno",
         why="A code that is zero reports no error."),
    form("*** CALCULATION FAILED ***",
         r"(?!\W{0,8}(?:.*\b(?:NUMBER OF|TOTAL|PREVIOUS|NO|NONE|IF|LIST OF|ALL)\b))[*!#=]{2,8} ?[A-Z][A-Z ]{3,60}\b(?:FAILED|ABORTED|DIVERGED|CRASHED|STOPPED)\b(?!\s?[:=]?\s{0,4}\d|,? EARLY| (?:runs|tests|steps|jobs|are|were)\b)",
         " STOPPED", " FAILED", " ABORTED", " DIVERGED", " CRASHED",
         why="Capitals between marks; not a count, nor a list of what failed before."),
    form("NaN detected in the loss",
         r"(?!.{0,160}\b(?:[Nn]o|[Ww]ithout|[Cc]heck\w{0,4}|[Ii]f|[Ss]kip\w{0,4}|[Rr]eplac\w{0,4}|[Ff]ill\w{0,4}|[Ii]mput\w{0,4}|[Dd]rop\w{0,4}|[Rr]emov\w{0,4}|[Ss]cal(?:e|es|ed|ing)|[Mm]ask\w{0,4}|[Hh]andl\w{0,4}|[Cc]lip\w{0,4}|[Ii]gnor\w{0,4}|[Ff]ilter\w{0,4}|[Rr]educ\w{0,4}|[Ee]xclud\w{0,4}|[Ii]nterpolat\w{0,4}|[Dd]iscard\w{0,4}|[Nn]one|0)\b).{0,120}(?:\b(?:(?:NaNs?|NANs?)(?=/| (?:det|enc|found|occ|or |in |val|loss d|gradients|was|were))|[Nn]on-?finite(?: values?)?)\b.{0,20}\b(?:detected|encountered|found|occurred)\b|\b(?:became|becomes|contains?) (?:NaNs?|NANs?|[Ii]nfinite|non-?finite)\b)",
         *(f"{nan}{after}" for nan in ("NaN", "NAN") for after in NAN_GOES_ON), *(f"{verb} {what}" for verb in ("came", "comes", "tain", "tains") for what in ("NaN", "NAN", "infinite", "Infinite", "non")), "on-finite", "onfinite",
         why="Not of data that the program checks for NaN, or cleans of it."),
)  # fmt: skip
"""The same in words that runs which go well use, too."""
NAMED_LOGGERS = (
    form("E0102 10:00:00.123456   1234 checkpoint.cc:12] Checkpoint restore failed: DATA_LOSS: truncated",
         r"[EF]\d{4} \d\d:\d\d:\d\d(?:\.\d{1,9})? {1,8}\d{1,10} (?!\S{0,200}(?:cu(?:da|dnn|blas|fft)_|xla|tsl|tensorflow))\S{1,200}:\d{1,7}\] (?=\S)",
         "E ::", "F ::",
         why="Abseil's and glog's letters for the level. TensorFlow gives it to notes about its libraries, in every run without a GPU."),
    form("CRITICAL:trainer:cannot read the data",
         r"(?:CRITICAL|FATAL):[\w.]{1,80}:(?=\S)",
         "CRITICAL", "FATAL",
         why="Python's logging."),
)  # fmt: skip
"""A logger's name, behind which an error must be named."""
