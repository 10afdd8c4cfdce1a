"""Errors of the programs around the job's own: compilers, option parsers, licence managers, module systems, sanitizers.

Every form is at the beginning of its line.
"""

from __future__ import annotations

import re

from probing_cluster.evidence.joblog import grammar, mention
from probing_cluster.evidence.joblog.grammar import JobFinding, JoblogContext, LineRole, Record, make
from probing_cluster.evidence.joblog.messages import languages, process, python
from probing_cluster.evidence.joblog.messages.devices import cuda

FACTS = {
    **{k: process.FACTS[k] for k in ("oom_kill_suspected", "command_not_found")},
    "program_error": languages.FACTS["program_error"],
    "python_exception": python.FACTS["python_exception"],
}
_SOURCES = r"c|cc|cpp|cxx|h|hh|hpp|cu|cuh|hip|cl|f|f03|f08|f77|f90|f95|for|F|F90|rs|go|java|scala|kt|m|mm|swift|d|pyx|s|S|tex"
_KILLED = re.compile(
    r"\S{1,200}: (?:fatal error: Killed signal terminated program|internal compiler error: Killed\b)|nvcc error\s{1,4}: .{1,100} died due to signal 9\b"
)
_OUT_OF_MEMORY = "The compiler was killed with SIGKILL; mostly for lack of host memory."
_COMPILED = re.compile(
    rf"\S{{0,300}}\.(?:{_SOURCES})(?::\d{{1,7}}(?::\d{{1,6}})?:|\(\d{{1,7}}(?:,\d{{1,6}})?\) ?:) (?:(?:fatal |catastrophic |internal compiler )?[Ee]rror\b(?: ?#?\w{{1,12}})?: |\(\.text\S{{0,80}}\): undefined reference to )"
    r"|/\S{1,300}/include/\S{1,200}(?::\d{1,7}:\d{1,6}:|\(\d{1,7}\):) (?:fatal )?error: "
    r"|\S{1,300}:\(\.(?:text|data|bss|rodata)\S{0,80}\): (?:undefined reference to |multiple definition of .{1,300}: first defined here$)"
    r"|(?:Fatal )?Error: .{1,300}\(1\)(?:\W|$)|nvcc (?:fatal|error)\s{1,4}: |ptxas (?:fatal|error)\s{1,4}: |error\[E\d{4}\]: |CMake Error(?: at |: )"
    r"|(?:/\S{0,200}/)?(?:[\w.+-]{1,40}-)?(?:gcc|g\+\+|c\+\+|cc|clang|clang\+\+|nvc\+\+|nvc|icc|icpc|icpx|icx|ifort|ifx|gfortran|hipcc|cc1|cc1plus|f951|ld|ld\.gold|ld\.lld|gold)(?:-\d{1,3})?: (?:(?:fatal |internal compiler )?error: |cannot find -l|cannot open output file )"
)
_STOPPED = re.compile(
    r"ninja: (?:build stopped|error|fatal): |collect2: (?:fatal )?error: |error: could not compile "
    r"|ERROR: (?:compilation|lazy loading|configuration|installing \w+) failed for package|(?:scons|gmake|bmake): \*\*\* "
    r"|error: command '.{1,200}' failed with|Errors while running CTest$"
)
"""Messages of programs that run compilers; another line is more precise if there is one."""
_PIP = re.compile(
    r"ERROR: Fail(?:ed|ure) (?:to build|building) |ERROR: Could not (?:build wheels|install packages)|error: (?:subprocess-exited-with-error|metadata-generation-failed)"
)
"""A package that was not installed: a script often goes on without, or with an older one."""
_TRIED = re.compile(r"\bconftest\b|CMakeTmp|CMakeScratch|/testCompile|\btry_compile\b")
"""Files that configuration scripts compile only as a test."""
_NO_RULE = re.compile(r"g?make(?:\[\d{1,3}\])?: \*\*\* (?!\[)\S")
_SET_UP_FILE = r"(?:\S{1,200}/)?(?:activate|(?:conda|mamba|micromamba|modules?|lmod|setup-env|spack)\.sh)"
_MODULES = re.compile(
    r"Lmod has detected the following error:|(?:Module(?:Cmd_\w{1,20})?\.c\(\d{1,6}\)|\S{0,40}ModuleCmd_\w{1,20}\.c\(\d{1,6}\)): ?ERROR:"
    r"|(?:ERROR: )?Unable to locate a modulefile for |ERROR: Module cannot be loaded due to |ERROR: Load of (?:requirement|module) "
    r"|\S{1,200}: (?:line )?\d{1,6}: \S{1,200}/(?:lmod|modulecmd|modulecmd\.tcl): No such file or directory$"
    rf"|\S{{1,200}}: (?:line )?\d{{1,6}}: {_SET_UP_FILE}: No such file or directory$"
    rf"|\S{{1,200}}: \d{{1,6}}: \.: (?:cannot|[Cc]an't) open {_SET_UP_FILE}(?:: No such file)?$"
)
"""The module system, or the file that sets up an environment, could not do its part; what it should have brought is missing later."""
_CONDA = re.compile(
    r"conda: error: |(?:/\S{0,300}/)?conda: line \d{1,6}: (?:syntax error|\S{1,60}: command not found)"
    r"|(?:critical|error)\s{1,4}libmamba Cannot activate, "
)
"""An environment that was not switched on or off: a script goes on in the one it has."""
_LICENCE = re.compile(
    r"(?:[\w.+-]{1,40}: )?(?:Fatal |FATAL )?(?:[A-Z][\w-]{1,40} ){0,2}(?:License checkout failed|LICENSE MANAGER ERROR|(?:FLEXnet|FLEXlm|FlexNet|FlexLM) (?:Licensing )?error ?:)"
    r"|(?:ERROR:? ?|Error:? ?|\W{0,8})(?:Could not|Cannot|Unable to|Failed to|Can't) (?:obtain|check ?out|acquire|get|find|connect to)\b.{0,40}\b[Ll]icen[cs]e"
    r"|(?:The )?Licen[cs]e (?:server|manager)(?: machine| system)? (?:is|was) (?:down|not respond|unreach|unavail|not (?:running|available))"
    r"|Licensed number of users already reached|No (?:valid )?licen[cs]e (?:found|available)|Licen[cs]e (?:error|expired|has expired|not (?:found|available|valid))"
    r"|\W{0,8}Unexpected licen[cs]e problem|ABAQUS/?\w{0,20} licen[cs]e|\S{0,20}\s?Licensing error: ?-\d",
    re.IGNORECASE,
)
_OPTIONS = re.compile(
    r"[\w./-]{1,200}(?: [\w.-]{1,60}){0,4}: error: (?:argument |unrecognized arguments|the following arguments|one of the arguments|invalid choice|ambiguous option|too few arguments)"
    r"|FATAL Flags parsing error: |ERROR: (?:[Uu]nknown command line flag|Unknown option|Illegal value|flag )"
    r"|(?:[\w./-]{1,200}: )?(?:unrecognized|invalid|unknown|illegal|ambiguous) option(?:s)? ?(?:--? ?)?['\"‘`-]|[\w./-]{1,200}: option (?:'[^']{1,80}' )?requires an argument|[\w./-]{1,200}: option '[^']{1,80}' (?:requires|doesn't allow|is ambiguous)"
    r"|error: (?:unexpected argument|the following required arguments|unrecognized subcommand|invalid value '[^']{0,100}' for|Found argument)"
    r"|(?:unknown|unrecognized|unexpected) (?:shorthand )?(?:flag|option|argument|command|subcommand)s?:? (?:['\"‘`]|-{1,2}\w)|flag provided but not defined: "
    r"|Error: (?:unknown (?:shorthand )?flag|unknown command|required flag|accepts )"
    r"|│ (?:No such option|No such command|Missing (?:option|argument|parameter)|Invalid value|Got unexpected extra)"
    r"|Error locating target '|Could not override '|In '[^']{1,80}': Could not |Error merging (?:override|')"
)
"""Refusals of parsers of options and configurations."""
_TARGET = re.compile(r"Error (?:in call to target|instantiating|getting \w{1,20} at) .{1,300}:$")
"""Hydra could not make an object: why stands on the next line."""
_PARSER = re.compile(r"[\w./-]{1,200}(?: [\w.-]{1,60}){0,4}: error: \S")
_USAGE = re.compile(r"[Uu]sage: \S")
_USAGE_LINES = 200
_SANITIZER = re.compile(r"=={1,2}\d{1,10}=={1,2} ?ERROR: (?:\w{1,20}Sanitizer|libFuzzer): ")
_LIBRARIES = re.compile(
    r"OMP: Error #\d{1,5}: |libgomp: (?:Thread creation failed|Out of memory|could not|cannot)|INTEL MKL (?:FATAL )?ERROR: (?!Parameter)"
    r"|# There is insufficient memory for the Java Runtime",
    re.IGNORECASE,
)
_THREADS = re.compile(
    r"OpenBLAS blas_thread_init: (?:pthread_create failed|ensure that)|INTEL MKL ERROR: Parameter |(?:\*\* |\{[ \d,]{3,20}\}:\s{1,3})On entry to\s{1,3}\S{2,20}\s{1,3}parameter number\s{1,5}\d{1,3} had an illegal value",
    re.IGNORECASE,
)
"""Libraries that complain and go on, often not for long."""
_ASSERTED = re.compile(
    r"(?:[^\s:]{1,200}: ){0,3}(?!malloc\.c)\S{1,300}\.(?:c|cc|cpp|cxx|h|hpp|cu|cuh|inl|tcc):\d{1,7}: .{0,600}\bAssertion [`'].{1,400}' failed"
    r"|Assertion [`'].{1,300}' failed\.?$|.{0,200}\bINTERNAL ASSERT FAILED at \"?\S{1,300}\"?:\d"
    r"|Assertion failed: \(.{1,300}\), function \w{1,100}, file |Assertion failed in file \S{1,300} at line \d"
    r"|\S{1,300}\.(?:c|cc|cpp|cxx|cu|cuh|h|hpp):{1,2}\d{1,7}(?:\(\w{1,80}\))?:? The (?:condition|check|assertion|requirement) .{1,300}?(?<!\w)(?:failed|violated|not (?:met|satisfied|fulfilled))\b"
    r"|\S{1,300}\.(?:c|cc|cpp|cu|h|hpp):\d{1,7}: (?:guarantee|\w{0,20}CHECK|\w{0,20}ASSERT)\w{0,20}\("
    r"|F(?:\d{4} [\d:.]{8,18}\s{1,8}\d{1,10})? ?[\w./-]{1,300}\.(?:cc|cpp|cu|cuh|h):\d{1,7}\] "
)
"""Checks of the program's own that failed, and Google's loggers at their last level: the program ends there."""
_THROWN = re.compile(r"(?:Error|Exception)\b|\bwhat\(\)|\bterminate called")
_COORDINATOR = re.compile(
    r"(?:INFO:tensorflow:)?Error reported to Coordinator: (?:<class '(?P<a>[\w.]{1,120})'>, )?(?P<b>.{1,300})"
)

_BUILDER = re.compile(
    r"(?:\[[\d/: -]{8,24}\] )?(?:\[(?:TRT|E)\] ){1,2}(?:Error\[\d{1,3}\]|\d{1,3}): .{0,300}\bError Code \d{1,3}: (?!Cuda|Cudnn|Cublas)\w"
)
"""TensorRT's builder, which may try something else behind it."""
_NOT_SET_UP = ("CondaError: Run 'conda ", "CommandNotFoundError: Your shell has not been properly configured")
_NODE = re.compile(r"Node: '[^'\n]{1,400}'$")
"""The last line of TensorFlow's account of where a graph failed: why stands on the next."""
_GRAPH = re.compile(
    r"(?P<name>[A-Z]\w{1,60}Error) \(see above for traceback\): (?P<text>\S.{0,300})"
    r"|\(\d{1,4}\) (?:Invalid argument|Not found|Out of range|Failed precondition|Unimplemented|INVALID_ARGUMENT|NOT_FOUND|OUT_OF_RANGE|FAILED_PRECONDITION|UNIMPLEMENTED): \s?\S"
)
"""TensorFlow's sum of a graph's error, and the entries of its list of them where they can only be the program's."""


def read(record: Record, context: JoblogContext) -> JobFinding | None:
    """A line by which a compiler, a parser of options, a licence manager or a checker stops the job."""
    text = record.text.strip()
    if _KILLED.match(text):
        return make(FACTS, "oom_kill_suspected", record, role=LineRole.ROOT, meaning=_OUT_OF_MEMORY)
    if mention.begins_with_speaker(text) or _TRIED.search(text):
        return None
    if text.startswith(_NOT_SET_UP):
        # Conda's shell function was not set up: the script goes on in the environment that it has.
        return make(FACTS, "program_error", record, detail={"weak": True, "not_set_up": True})
    if _MODULES.match(text) or _CONDA.match(text):
        return make(FACTS, "program_error", record, detail={"weak": True, "modules": True})
    if _STOPPED.match(text):
        return make(FACTS, "program_error", record, detail={"handled": True})
    if text.startswith("nvrtc: error: "):
        # Below the source that the exception quotes.
        return make(FACTS, "program_error", record, detail={"below_source": True})
    if _COMPILED.match(text) or _OPTIONS.match(text) or _LICENCE.match(text):
        return make(FACTS, "program_error", record)
    if _SANITIZER.match(text) or _LIBRARIES.match(text):
        return make(FACTS, "program_error", record)
    if _ASSERTED.match(text) and cuda.kind_of(text) not in cuda.ONLY_HARDWARE:
        above, cut, _ = text.partition("INTERNAL ASSERT FAILED")
        # PyTorch throws it: without the name of an exception before it, the program caught and printed it.
        printed = cut and not _THROWN.search(above)
        return make(FACTS, "program_error", record, detail={"handled": True} if printed else None)
    if _BUILDER.match(text) or _NO_RULE.match(text) or _THREADS.match(text) or _PIP.match(text):
        return make(FACTS, "program_error", record, detail={"weak": True})
    if found := _COORDINATOR.match(text):
        raised = f"{found['a']}: {found['b']}" if found["a"] else found["b"]
        inner = python.exception(Record(line=record.line, text=raised, rank=record.rank))
        return make(FACTS, "python_exception", record) if inner and inner.role is LineRole.ROOT else None
    if found := _GRAPH.match(text):
        raised = f"{found['name']}: {found['text']}" if found["name"] else "ValueError: "
        inner = python.exception(Record(line=record.line, text=raised, rank=record.rank))
        return make(FACTS, "python_exception", record) if inner and inner.role is LineRole.ROOT else None
    if _TARGET.match(text):
        return languages.heading(record, context)
    if _NODE.match(text):
        languages.heading(record, context, raised=True)
        return None
    if _USAGE.match(text):
        context.usage_line = record.line
    elif 0 < context.usage_line < record.line <= context.usage_line + _USAGE_LINES and _PARSER.match(text):
        return make(FACTS, "program_error", record)
    return None


FAMILY = grammar.LogFamily(
    name="tools",
    triggers=(
        "rror: ", "option -- ", "error   : ", "fatal   : ", "undefined reference", "multiple definition", "cannot find -l", "error[E", "CMake Error", "ninja: ",
        "ERROR: ", ": *** ", "running CTest", "Lmod has", "modulefile for", "/lmod: ", "activate: No", ".sh: No such", ": .: ", "libmamba Can", "modulecmd", ":ERROR:",
        "icense checkout", "et license", "in license", "re license", "out license", "LICENSE MANAGER", "icensing error", "Licensing Error", "icensed number", "icense found", "icense available",
        "icense error", "icense expired", "icense has", "icense not", "icense problem", "a license", "icense for", "icense server", "icence",
        "Flags parsing", "nown flag", "nown option", "nown argument", "nown command", "zed flag", "zed argument", "zed command", "expected argument", "flag provided", "ed option", "id option", "wn option", "al option", "us option", ": option ", "line flag", "wn flag", "nd flag", "required flag",
        "│ ", "Could not override", "In '", "Error merging", "sage: ", "Sanitizer", "OMP: Error", "libgomp: ", "MKL FATAL", "MKL ERROR", "On entry to",
        "insufficient memory for the Java", "blas_thread_init", "Assertion ", "INTERNAL ASSERT", "The condition ", "The check ", "The assertion ", "The requirement ", "Error Code ", ": guarantee(", ": CHECK", "ASSERT", "CHECK(", "heck fail", "CHECK fail", "F external/",
        "Error in call to", "Error instantiating", "Error getting", "Error locating", "Node: '", "F tensorflow/", "to Coordinator", "above for traceback)", ") Invalid arg", ") Not found: ", ") Out of range: ", ") Failed precond", ") Unimplemented: ", ") INVALID_ARG",
        ") NOT_FOUND: ", ") OUT_OF_RANGE: ", ") FAILED_PRECOND", ") UNIMPLEMENTED: ",
    ),
    read=read,
    facts=FACTS,
)  # fmt: skip
