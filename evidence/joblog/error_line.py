"""Lines that call themselves an error, in the forms of tools, loggers and shells; they count only at the end of a log.

`trailing_errors` follows such a line and drops it if lines of work follow.
"""

from __future__ import annotations

import re

from probing_cluster.evidence.joblog import locales, mention, progress
from probing_cluster.evidence.joblog.grammar import JobFinding, LineRole, Record, make
from probing_cluster.evidence.joblog.messages import languages, sentences, shells

_LAST = re.compile(
    r"(?:An|Unexpected|Unknown) (?:\w{1,20} ){0,2}(?:error|exception) (?:has )?occurr?ed\b[^:]{0,60}: \S|(?:\[?(?:ERROR|FATAL|CRITICAL)\]?|Error|Fatal(?: error)?|FATAL ERROR|ERR|Err|fatal|abort)\s{0,8}[:!>]{1,3} {1,3}(?=\S)"
    r"|[\[(<] ?(?:ERROR|FATAL|CRITICAL|SEVERE|CRIT|EMERG|ALERT) ?[\])>]:?\s{1,4}(?=\S)|-[EF]- (?=\S)|E: (?:Unable to|Could not|Can ?not|Can't|Failed to|Invalid|Unknown|Unmet|Broken|Missing|Malformed|Conflicting|Sub-process|Package .{1,200}\b(?:not?|without)\b|The (?:repository|package|method|list|value|update) |Version .{1,200} not found|Release file|You (?:must|have|don't)|Type .{1,40} is not known|No \w)|\[(?:ERROR|CRITICAL|FATAL)\|[^\]\n]{1,80}\] (?=\S)|\[[EC] (?:\d{4}-\d\d-\d\d |\d{6} )?\d\d:\d\d:\d\d[^\]\n]{0,60}\] (?=\S)"
    r"|(?:\[\[[^\]\n]{1,24}\],?\w{0,8}\]? |\[[\d,]{3,24}\] )?(?:ORTE|OPAL|PMIX|PRTE)_ERROR_LOG: \S|[A-Z][A-Z\d_]{1,30}_(?:ERROR|FATAL): (?![\d.e+%-]{1,24}(?:\s|$))(?=\S)"
    r"|[\w./+-]{1,60}(?:\(\))?: (?:ERROR|Error|FATAL|Fatal)\b[:\s]{1,3}(?![\d.e+%-]{1,24}(?:\s|$)|(?i:nan|inf)\b)(?=[\w'\"`/(])|lib(?:gomp|fabric|rdmacm|ibverbs|cufile)\S{0,20}: .{0,120}?\b(?:error|failed)\b|Lib\w{2,30} (?:fatal )?error: (?=\S)"
    r"|\[[\da-f -]{1,40}\]\s{1,3}[\d.]{1,16} \{[56]\}\{[\w ]{1,40}\}: (?=\S)"
    r"|sudo: (?!unable to resolve host)\S|timeout: (?:sending signal|failed to run)\b"
    r"|cdo {1,8}\w{1,24}(?: \(Abort\))?: .{0,200}(?:failed on|not found|[Uu]nsupported|[Ee]rror)\b|% (?:Variable is undefined|Attempted to|Unable to|Type conversion error|Program caused|Syntax error|Execution halted at)\b"
    r"|(?:\*\* |\{[\s\d,-]{3,40}\}:\s{1,4})?On entry to \S{3,20},? parameter number\s|BLACS ERROR '|[A-Z]\w{2,20}: Call to \S{3,20} failed\b"
    r"|(?:[\w.-]{1,40} ){1,2}(?i:error) on (?i:rank|task|process|PE) \d{1,8}\b[^:\n]{0,300}(?::\d{1,7}\)?)?: (?=[A-Za-z])|\([\w.]{2,40}\)\s?:?\s?(?:ERROR|FATAL|Error)\b[:\s]{1,3}(?=[^\W\d])"
    r"|[#=*!>+-]{1,8} ?(?:ERROR|FATAL(?: ERROR)?|Error(?=:))(?:[:!]{1,3}| ?[=*#!<-]{1,8}:?) {1,3}(?=\S)|[\w.+/-]{2,40}(?: ?[(\[](?:ERROR|FATAL|Error|Fatal)[)\]]:?| : (?:ERROR|FATAL|Error|Fatal) :) (?=\S)"
    r"|\S{1,300}: .{0,120}write error: |\S{1,300}:\d{1,6}: no matches found: \S|[\w./+-]{1,80}: No match\.$"
    r"|\{.{0,400}\"(?:level|lvl|severity|levelname|log\.level)\"\s?:\s?\"(?i:error|fatal|critical|panic|alert|emergency)\".{0,4000}\}$"
    r"|(?:[\w.@-]{1,40}=(?:\"[^\"]{0,200}\"|\S{1,120}) ){0,4}(?:level|lvl|severity)=\"?(?i:error|fatal|critical|panic)\"? (?=.{0,400}=)"
    r"|\S{1,300}: (?:line )?\d{1,6}: (?:.{1,300}: (?:No such file or directory|Permission denied|Is a directory|Not a directory|Exec format error|Argument list too long|cannot execute\b.{0,60})$"
    r"|\S{1,80}: (?:Can't|cannot) open \S|(?:Can't|cannot) open \S|Syntax error: |Bad substitution$)"
    rf"|{shells.SHELL}|{shells.CSH}"
    r"|(?:[\w.-]{1,40}: )?\S{1,200}:\d{1,6}: (?:ERROR|FATAL): (?=\S)|(?:ERROR|CRITICAL|FATAL):(?![\w.]{1,80}:)(?=[A-Za-z])|Error message is (?:: )?(?=[A-Za-z])|(?:[\w.-]{1,40}\s{1,6}){1,2}\((?:Abort|Error|Fatal)\): \S|On return from [SDCZ]MUMPS, INFOG?\(1\)=\s{0,20}-\d"
    r"|(?!srun|slurm|libgomp: while|OMP: |rm: |mkdir: |kill: |(?i:info|debug|note|notice|trace)\b)[\w./+-]{1,80}(?: [a-z][\w-]{0,20})?: (?=\S{1,60} \S).{1,300}: (?:No such file or directory|Permission denied|(?:Is|Not) a directory|Invalid argument|Bad file descriptor|Too many open files|Broken pipe|Exec format error|Input/output error)$"
    r"|(?:\S{1,80}: ){1,3}(?:No such file or directory|Permission denied)\.?$|(?:critical|error)\s{1,4}libmamba "
    r"|error: (?=\S)|Execution halted$|NetCDF: (?!.{0,20}version)\S"
    r"|(?:(?>(?:\[[^\]\n]{1,60}\]|[\d:/., TZ-]{8,64}|[\w.-]{1,40}:)\s{0,2})){0,4}\[(?i:error|fatal|critical|severe|E|F)\]:?\s{0,3}(?=\S)"
    r"|(?:(?:[\d:.,/|MGKTB -]{8,48}\s)?\[?(?:ERROR|FATAL|CRITICAL|SEVERE)\]?|\W{0,4}[\w.]{1,80} - (?:ERROR|CRITICAL|FATAL) -|\|? ?(?:ERROR|CRITICAL|FATAL)\s{1,5}\|)\s{1,3}(?=\S)"
    r"|(?:ERROR|CRITICAL):root:(?=\S)|(?:ERROR|CRITICAL|Error) ?\([\w.]{1,80}\): \S|(?:Job |Run )?[Ss]tatus ?[:=] ?(?:FAILED|ERROR)$|The command '.{1,400}' returned a non-zero code: \d{1,3}$|(?:ERROR|ASSERTION_FAILED) \([\w-]{1,80}\[[\w.~-]{1,60}\]:[\w~():]{1,80}:[\w.-]{1,60}:\d{1,7}\) \S|\[E::\w{1,80}\] |Caused by: (?:\w{1,60}\.){1,8}[A-Z]\w{1,80}(?:Error|Exception)\b"
    r"|libfabric:\d{1,10}:(?:\d{1,12}:)?\S{0,200}<(?:warn> .{0,300}\b(?i:failed|error)\b|critical> \S)"
    r"|(?:\[[\d.]{8,24}\] \[[\w.:-]{1,100}\] {1,20}\S{1,60}:\d{1,6} {1,4})?UCX {1,4}(?:ERROR|FATAL) \S"
    r"|(?:\d{4}[-/]\d\d[-/]\d\d[T ][\d:.,]{8,15}\S{0,6} |\d{1,9}\.\d{1,6}s?: )?[\w.-]{1,40}\[\d{1,10}\]:? (?:fatal|error|FATAL|ERROR): (?!doom: )(?=\S)"
    r"|which: no \S{1,80} in \(|(?:[\w./+-]{1,80}: |\[\w{1,60}\] )?(?:[Cc]ould not|[Cc]annot|[Cc]an't|[Uu]nable to|[Ff]ail(?:ed)? to) (?:open|read|find|create|write|access|stat|locate|load|start|parse|connect to) \S"
    r"|(?:[\w./+-]{1,80}: ){1,2}['\"‘]?\S{1,300}: (?:No such file or directory|Permission denied|Is a directory|Not a directory)$|(?:[\w.()<>-]{1,60}: ){0,3}(?:.{0,80}\b(?:message|reason|error) (?:was|is): )?\[Errno \d{1,3}\] \w"
    r"|(?:/\S{0,80}/)?(?:env|nohup|timeout|nice|xargs|time|stdbuf|setsid|taskset|numactl|bash|sh|-bash|-sh): .{1,300}: (?:No such file or directory|Permission denied|Exec format error)\b"
    r"|\S{1,300}: \S{1,200}: bad interpreter: |\S{1,300}\.(?:c|cc|cpp|cu):\d{1,7}:\d{1,6}: runtime error: |\d{4}/\d\d/\d\d \d\d:\d\d:\d\d (?:open|stat|read|dial tcp) \S|(?:open|stat|read|lstat|chdir|dial tcp) \S{1,300}: \w|Caught exception: \S"
    r"|[\w./-]{1,60}(?:\(\w{0,40}\))? ?: (?:Address already in use|Connection (?:refused|reset by peer|timed out)|Operation not (?:permitted|supported)|Bad file descriptor|Broken pipe|Resource temporarily unavailable|Device or resource busy|Network is unreachable|No route to host|Invalid cross-device link|Protocol not available|Name or service not known|src does not contain a character string\b.{1,90})$"
    r"|\[(?i:fail(?:ed|ure)?)\]:?\s{1,3}(?=\S)"
    r"|OCI runtime \w{1,10} failed: |docker: \S|FATAL: +\S|ABAQUS Error: |Abaqus Error: |-{3,20} (?:Partition \d{1,6} )?Processor \d{1,6} Exiting: |Reason: FATAL ERROR"
    r"|An error occurred \(\w{1,80}\) when calling the \w{1,80} operation"
    r"|(?:\S{1,100}: ){0,2}Permission denied \((?:publickey|password|keyboard|gssapi|hostbased)[\w,-]{0,120}\)\.?$|Host key verification failed\.?$|(?:ssh|scp|sftp|kex_exchange_identification): \S"
    r"|(?:(?:\[[\w.:-]{1,60}\] )?\*{2,5} ?(?:[Ff]atal )?(?:ERROR|[Ee]rror):?|[\w./+-]{1,80}\.(?:sh|py|pl|R) ERROR:|(?:[A-Z][\w+-]{1,30} ){1,3}fatal error(?: \d{1,6})?:) (?=\S)|(?:[\d.kMGTP:\s-]{40,400})?curl: \(\d{1,3}\) |wget: \S|rsync(?: error)?: \S|tar(?: \(child\))?: (?:Error|Exiting|.{1,200}: Cannot )"
    r"|(?:/\S{0,80}/)?(?:cp|mv|rm|ln|ls|cat|mkdir|rmdir|chmod|chown|touch|head|tail|sort|cut|wc|stat|install|split|dd|du|df|find|grep|zgrep|unzip|gzip|zcat): "
    r"(?:cannot |can't |unable |failed |missing |unrecognized |invalid |illegal |extra operand|unexpected |.{1,200}: (?:No such file or directory|Permission denied|Not a directory|Is a directory)$)"
)
"""A line that calls itself an error; it counts only at the end of the log."""
_WORDED = re.compile(
    r"\W{0,6}(?:[A-Za-z][\w:+-]{1,40} ){0,2}(?:[A-Za-z]\w{0,30}::)?(?:exception|EXCEPTION|Exception)(?: caught| thrown| raised)?: (?=[^\W\d])"
    r"|\[[a-z]\w{2,40}\] (?:[Ff]ail(?:ed|ure)?|[Ff]atal|[Aa]bort(?:ed|ing)?|[Cc]an ?not|[Cc]an't|[Cc]ould not|[Uu]nexpected|[Ii]nvalid|[Uu]nable|[Ee]rror|[Nn]o (?:such|space|memory))\b(?!\W{0,3}-?\d|[^:=]{0,40}[:=]\s{0,3}-?\d)"
    r"|(?:Error|ERROR|error|Failed|FAILED|failed)\b.{0,120}\b(?:(?:info|INFO|stat|STAT)\s{0,3}=|(?:ierr?|IERR?|iostat|IOSTAT|istat|errno)\s{0,3}[=:])\s{0,6}-?[1-9]\d{0,6}\b"
    r"|(?!\W{0,8}(?:.*\b(?:NUMBER OF|TOTAL|PREVIOUS|NO|NONE|IF|LIST OF|ALL)\b))[*!#=]{2,8} ?[A-Z][A-Z ]{3,60}\b(?:FAILED|ABORTED|DIVERGED|CRASHED|STOPPED)\b(?!\s?[:=]?\s{0,4}\d|,? EARLY| (?:runs|tests|steps|jobs|are|were)\b)"
    r"|(?!.{0,160}\b(?:[Nn]o|[Ww]ithout|[Cc]heck\w{0,4}|[Ii]f|[Ss]kip\w{0,4}|[Rr]eplac\w{0,4}|[Ff]ill\w{0,4}|[Ii]mput\w{0,4}|[Dd]rop\w{0,4}|[Rr]emov\w{0,4}|[Ss]cal(?:e|es|ed|ing)|[Mm]ask\w{0,4}|[Hh]andl\w{0,4}|[Cc]lip\w{0,4}|[Ii]gnor\w{0,4}|[Ff]ilter\w{0,4}|[Rr]educ\w{0,4}|[Ee]xclud\w{0,4}|[Ii]nterpolat\w{0,4}|[Dd]iscard\w{0,4}|[Nn]one|0)\b)"
    r".{0,120}(?:\b(?:NaNs?|NANs?|[Nn]on-?finite(?: values?)?)\b.{0,20}\b(?:detected|encountered|found|occurred)\b|\b(?:became|becomes|contains?) (?:NaNs?|NANs?|[Ii]nfinite|non-?finite)\b)"
)
"""The same in words that runs which go well use, too."""
_NAMED = re.compile(
    r"(?:gzip|gunzip|bzip2|bunzip2|xz|unxz|lzma|zstd|lz4|pigz|7z|kinit|mount|umount|fusermount3?|squashfuse\w{0,4}|newgrp|chroot): (?!.{0,120}(?:\bwarning\b|already (?:exists|mounted)))\S|(?:CRITICAL|FATAL):[\w.]{1,80}:(?=\S)"
)
"""A tool's or a logger's name, behind which an error must be named."""
_WORST = r"(?:ERROR|FATAL|CRITICAL|SEVERE|EMERG(?:ENCY)?|ALERT|CRIT)"
_STAMP = re.compile(
    r"\W{0,2}(?:(?:[A-Z][a-z]{2}|\d[\d/.-]{0,9}),?[ T_-]{1,2}){0,4}\d\d[:-]\d\d[:-]\d\d(?:[.,]\d{1,9})?(?: ?(?:Z|UTC|[AP]M|[+-]\d\d:?\d\d))?(?: (?:[A-Z]{3,4} )?\d{4})?(?=[\s\]|:,)])"
)
"""The time with which a logger's line begins."""
_NO_LEVEL = r"(?!(?i:info|debug|notice|note|trace|verbose|warn(?:ing)?)\b)"
_OF_LOGGER = re.compile(
    rf"(?:[\s|:,\])-]{{1,4}}{_NO_LEVEL}[A-Za-z_]\w{{0,60}}(?=[\s|:,\])-]))?"
    rf"(?:[\s|:,\])-]{{1,4}}(?:\[{_NO_LEVEL}[^\[\]\n]{{1,60}}\]|\({_NO_LEVEL}[^()\n]{{1,40}}\)|<{_NO_LEVEL}[^<>\n]{{1,40}}>|{_NO_LEVEL}[A-Za-z_]\w{{0,60}}(?:[.$/#@:-]{{1,2}}\w{{1,60}}){{1,8}}|{_NO_LEVEL}[A-Za-z_]\w{{0,60}}(?=\s?[|:\]-])|\d{{1,10}})){{0,4}}?"
    rf"[\s|:,\])-]{{0,4}}(?:{_WORST}|[\[(<] ?(?:{_WORST}|(?:emerg|alert|crit|error|fatal))) ?[\])>]?(?=[\s:|/-])[\s:|/-]{{1,12}}(?![\d.e+%-]{{1,24}}(?:\s|$))(?=\S)"
)
"""Behind the time: the logger's names, none of which is a level, the level of an error, and a message that is no number."""
_BETTER = re.compile(r"[\s|:,\])\[(<-]{0,6}(?:INFO|DEBUG|NOTICE|NOTE|TRACE|VERBOSE|WARN(?:ING)?)\b")
"""Behind the time: the level of a note."""
_ENDED_BY_SIGNAL = re.compile(
    r"(?:Terminated|(?P<other>Hangup|Alarm clock|Quit|User defined signal [12]|File size limit exceeded|Profiling timer expired|Virtual timer expired))(?: \(core dumped\))?\.?$"
)
"""A shell's message that a signal ended its child, alone on the line or after a progress bar that it cut."""
_CHILD_TERMINATED = re.compile(r"\S{1,200}: line \d{1,9}: {1,4}\d{1,10} Terminated\b")
"""The same for a child of the shell's script."""
_BAR_CUT = re.compile(r".{1,4000}[\])%\\|/0-9-]\s{0,4}(?=Terminated$)")
_SIGNAL_WORD = re.compile(r"Terminated|Hangup|Alarm clock|Quit|User defined|size limit|timer expired")
_NO_LAST = re.compile(
    r"\bERROR\b.{0,40}\bINFO\b(?:\[0m)?:|^ERROR - \S{1,80} - Failed after \d{1,4}:\d\d:\d\d!$|^ERROR conda\.cli\.main_run:execute\(|^ERROR ~ Pipeline failed\. Please refer|^(?:/\S{0,80}/)?(?:rm|rmdir|unlink|ls): (?:(?:cannot (?:remove|access)|failed to remove) .{1,400}: No such file or directory|No match\.)$|^(?:/\S{0,80}/)?(?:mkdir|ln): .{1,400}: File exists$"
    r"|^\W{0,3}errors? (?:analysis|rates?|summary|statistics|reports?|table|metrics?|counts?|bars?|margins?|bounds?|correction|model|distribution|norms?)\b"
    r"|\bUnhandled error \(suppress with '|^(?:major|minor): |^sudo: unable to resolve host |pip's dependency|\b(?:0|no) errors?\b|^errors? (?:is|are) an?\b|\bus(?:e|es|ing) (?:the |a )?default\b|^errors?\s?[:=] {0,3}[\d.e+-]{1,24}(?:$|\s?[,;|%](?:\s|$))|^(?:/\S{0,80}/)?(?:mv|cp): cannot stat ['\"‘][^'\"’]{0,200}\*[^'\"’]{0,200}['\"’]: No such file or directory$|\bUCX {1,4}ERROR shm_unlink\(|: use of closed network connection\b|^\*{2,5} ?ERROR CATEGORY:|\bPMIX ERROR: NO-PERMISSIONS in file |^which: no (?:nvcc|nvidia-smi|hipcc|rocm-smi|icc) |libnvinfer|TF-TRT|TensorRT(?!-LLM\]\[E)|\bignored?\b|(?<!<)\bwarn(?:ing)?\b|\bretry|\bskipp(?:ed|ing)\b|\bdisabling\b|\bcontinuing\b|\bfalling back\b|\bfind (?:a |any )better\b|\bclean(?:ing)?[ -]?up\b",
    re.IGNORECASE,
)


def is_error(text: str) -> bool:
    """Whether a line calls itself an error, even if it does not count as one."""
    text = text.strip()
    return _has_form(text) or _of_logger(text)


def _has_form(text: str) -> bool:
    if _LAST.match(text) or (_NAMED.match(text) and sentences.names_error(text)):
        return True
    return _WORDED.match(text) is not None and not sentences.is_harmless(text)


def _of_logger(text: str, *, dated: bool = False) -> bool:
    """Whether a logger gives the line the level of an error; `dated`: the time in front of it is already gone."""
    stamp = _STAMP.match(text)
    if stamp is None and not dated:
        return False
    rest = text[stamp.end() :] if stamp else f" {text}"
    return _OF_LOGGER.match(rest) is not None and not _BETTER.match(rest)


def is_known(text: str) -> bool:
    """Whether this module already judges such a line, as an error or as none."""
    return _has_form(text) or _NO_LAST.search(text) is not None


def find(record: Record) -> JobFinding | None:
    """The finding of a line that calls itself an error; it ended the program only if hardly anything follows."""
    text = record.text.strip()
    calls_itself_one = _has_form(text) or record.is_error or _of_logger(text, dated=record.dated)
    if not calls_itself_one and not _SIGNAL_WORD.search(text):
        return None
    if mention.is_speech(record.text) or mention.begins_with_speaker(text) or _NO_LAST.search(text):
        return None
    if sentences.is_compound(text):
        return None
    if calls_itself_one:
        role = LineRole.EXIT if text.startswith("Execution halted") else None
        # HDF5 prints the reason below.
        detail = {"wrapper": True} if text.endswith("NetCDF: HDF error") else {}
        return make(languages.FACTS, "program_error", record, role=role, detail=detail)
    bar = _BAR_CUT.match(text)
    if (bar and progress.is_progress(text)) or _ENDED_BY_SIGNAL.match(text) or _CHILD_TERMINATED.match(text):
        ended = _ENDED_BY_SIGNAL.match(text, bar.end() if bar else 0)
        kind = "process_crashed" if ended and ended["other"] else "process_terminated"
        return make(languages.FACTS, kind, record, role=LineRole.EXIT)
    return None


TRIGGERS = (
    "no matches found: ",
    *shells.TRIGGERS,
    *(f"stat: {word}" for word in ("can", "fail", "unrec", "invalid", "missing")),
    "Error message is",
    "Error(",
    "(Abort): ",
    "(Error): ",
    "(Fatal): ",
    "MUMPS, ",
    "nvalid argument",
    "ile descriptor",
    "open files",
    "roken pipe",
    "output error",
    *(
        f": {reason}"
        for reason in (
            "Address already",
            "Connection re",
            "Connection timed",
            "Operation not",
            "Bad file desc",
            "Broken pipe",
            "Resource temp",
            "Device or res",
            "Network is",
            "No route",
        )
    ),
    *(f": {reason}" for reason in ("Invalid cross", "Protocol not", "Name or serv", "src does not")),
    "[FAIL",
    "[fail",
    "[Fail",
    "tatus: FAILED",
    "returned a non-zero code",
    ": No match.",
    *(
        f'"{level}"'
        for level in (
            "error",
            "fatal",
            "critical",
            "panic",
            "alert",
            "emergency",
            "Error",
            "Fatal",
            "Critical",
        )
    ),
    *(f"={quote}{level}" for level in ("error", "fatal", "critical", "panic") for quote in ("", '"')),
    "Terminated",
    "Hangup",
    "Alarm clock",
    "User defined signal",
    "size limit exceeded",
    "timer expired",
    "[E::",
    "[E]",
    "[F]",
    "[error]",
    "[Error]",
    "[fatal]",
    *(f"{word}: " for word in ("xception", "EXCEPTION", "caught", "thrown", "raised")),
    *(
        f"{tool}: "
        for tool in (
            "gzip",
            "gunzip",
            "xz",
            "lzma",
            "zstd",
            "pigz",
        )
    ),
    *(
        f"{tool}: "
        for tool in ("kinit", "mount", "usermount", "sudo", "newgrp", "chroot", "timeout: sending signal")
    ),
    "timeout: failed to run",
    "squashfuse",
    *(f"cdo {blanks}" for blanks in (" ", "(")),
    *(
        f"% {words}"
        for words in (
            "Variable is",
            "Attempted",
            "Unable",
            "Type conv",
            "Program caused",
            "Syntax",
            "Execution halted",
        )
    ),
    *("}: ", "libgomp: ", "libfabric:", "librdmacm: ", "libibverbs: ", "libcufile", "Libomp"),
    *(
        f"] {letters}"
        for word in ("fail", "fatal", "abort", "cannot", "can't", "could not")
        for letters in (word, word.capitalize())
    ),
    *(
        f"] {letters}"
        for word in ("unexpected", "invalid", "unable", "error", "no s", "no memory")
        for letters in (word, word.capitalize())
    ),
    *(
        "On entry to ",
        "BLACS ERROR",
        ": Call to ",
        *(
            f"{nan}{after}"
            for nan in ("NaN", "NaNs", "NAN")
            for after in (
                " det",
                " enc",
                " found",
                " occ",
                " or ",
                " in ",
                " val",
                " loss d",
                " gradients",
                " was",
                " were",
                "/",
            )
        ),
        *(
            f"{verb} {what}"
            for verb in ("came", "comes", "tain", "tains")
            for what in ("NaN", "NAN", "infinite", "Infinite")
        ),
        "on-finite",
        "onfinite",
        " FAILED",
        " ABORTED",
        " DIVERGED",
        " CRASHED",
        " STOPPED",
    ),
    *(f"{word}{equals}" for word in ("info", "INFO", "stat", "STAT") for equals in (" =", "=")),
    *("ierr", "IERR", "ier=", "ier =", "iostat", "IOSTAT", "errno"),
    "ERR: ",
    "Err: ",
    "(Error)",
    "(Fatal)",
    "[E ",
    "[C ",
    "-E- ",
    "-F- ",
    *(
        f"E: {word}"
        for word in (
            *(
                "Unable",
                "Could",
                "Can",
                "Fail",
                "Invalid",
                "Unknown",
                "Unmet",
                "Broken",
                "Missing",
                "Malformed",
            ),
            *("Conflicting", "Sub-", "Package", "The ", "Version", "Release", "You ", "Type ", "No "),
        )
    ),
    "emerg]",
    "alert]",
    "crit]",
    "CRIT",
    "EMERG",
    "ALERT",
    "NetCDF: ",
    "SEVERE",
    "Caused by: ",
    "which: no ",
    *(
        f"{no} {verb} "
        for no in ("ot", "n't", "le to", "ed to", "il to")
        for verb in ("open", "read", "find", "create", "write", "load", "locate", "connect to")
    ),
    "[Errno ",
    "bad interpreter",
    "runtime error: ",
    ": no such file",
    "dial tcp",
    "Caught exception: ",
    " occur",
    "OCI runtime",
    "docker: ",
    "Abaqus Error",
    "Exiting: Called",
    "Reason: FATAL",
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
    "rgument list too",
    "libmamba ",
    *locales.TRIGGERS,
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
    "** Err",
    "** err",
    " fatal error",
    "curl: (",
    "wget: ",
    "rsync",
    "tar: ",
    "tar (child): ",
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
    *(f"{tool}: " for tool in ("wc", "install", "split", "dd", "du", "df", "find", "grep", "zip", "zcat")),
)
