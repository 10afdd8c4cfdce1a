"""Python's errors: tracebacks, operating-system errors, checkpoints."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from probing_cluster.core import vocabulary
from probing_cluster.evidence.joblog import grammar
from probing_cluster.evidence.joblog.grammar import (
    ALL_DOMAINS,
    NETWORK,
    SOFTWARE,
    USER,
    JobFinding,
    JoblogContext,
    LineRole,
    Record,
    fact,
    make,
)
from probing_cluster.evidence.joblog.messages import mounts

_STORAGE = ("system_software", "hardware", "user_program")
FACTS = {
    "python_exception": fact(LineRole.ROOT, USER, "The program ended with a Python exception."),
    "python_consequence": fact(
        LineRole.REMOTE, ALL_DOMAINS, "A Python exception that only reports the loss of another process."
    ),
    "import_error": fact(LineRole.ROOT, USER, "A Python package or shared library could not be loaded."),
    "host_memory_error": fact(LineRole.ROOT, USER, "The program could get no more host memory."),
    "interrupted": fact(LineRole.OBSERVATION, ALL_DOMAINS, "The program was interrupted from outside."),
    "shm_full": fact(
        LineRole.ROOT, ("user_program", "system_software"), "Shared memory (/dev/shm) is full or too small."
    ),
    "disk_full": fact(
        LineRole.ROOT, ("user_program", "system_software"), "A file system or a quota is full."
    ),
    "io_error": fact(LineRole.ROOT, ("hardware", "system_software"), "Reading or writing a file failed."),
    "stale_file_handle": fact(
        LineRole.ROOT, SOFTWARE, "A network file system lost the file under the program."
    ),
    "filesystem_unreachable": fact(LineRole.ROOT, NETWORK, "A file system's server cannot be reached."),
    "checkpoint_failed": fact(LineRole.ROOT, _STORAGE, "Writing a checkpoint failed."),
    "too_many_open_files": fact(LineRole.ROOT, USER, "The program has too many open files."),
}
_ERRNO = re.compile(
    r"\[Errno (?P<errno>\d{1,3})\] (?P<text>[^:\n]{2,80})|\berrno = (?P<hdf5>\d{1,3}), error message = '|\bOs \{ code: (?P<rust>\d{1,3}),"
)
_NOT_REACHED = r"(?:Communication error on send|Software caused connection abort|Connection (?:timed out|refused)|Host is down|No route to host)"
_OF_FILE = re.compile(
    rf"\[Errno (?P<errno>70|103|110|111|112|113)\] {_NOT_REACHED}: b?['\"]/|: Communication error on send\W{{0,2}}$"
    rf"|^(?!.*(?:\b[Cc]onnect\b|[Ss]ocket|\.sock\b))(?:(?:\S{{0,80}}[/ ])?(?:cp|mv|rm|ln|ls|cat|cd|df|du|dd|head|tail|wc|stat|tee|touch|mkdir|rmdir|chmod|chown|install|find|grep|sed|awk|sort|tar|gzip|gunzip|unzip): .{{0,400}}?"
    rf"|(?!.*refused\W{{0,2}}$).{{0,200}}?\b(?i:(?:open|read|writ|load|sav|creat|copy|mov|renam|remov|delet|unlink|stat|access|mount)(?:e|ing)?|mkdir|file|directory|folder)(?: (?:from|to|in|into|the|an?|new|regular|input|output|file|directory)){{0,3}} )['\"‘]/[^'\"’]{{1,400}}['\"’]: {_NOT_REACHED}\W{{0,2}}$"
)
"""A path could not be reached, in the words of Python, of BeeGFS, of file tools, or below the verb of a file: a file server is at fault, not a peer.
A service may refuse what looks like a path."""
_ERRNOS = {
    5: "io_error", 12: "host_memory_error", 23: "too_many_open_files", 24: "too_many_open_files", 28: "disk_full", 30: "io_error",
    70: "filesystem_unreachable", 107: "filesystem_unreachable", 108: "filesystem_unreachable", 112: "filesystem_unreachable",
    116: "stale_file_handle", 121: "io_error", 122: "disk_full",
}  # fmt: skip
"""70 is ECOMM: BeeGFS's, of a server that does not answer."""
_STRERROR = (
    (
        "disk_full",
        re.compile(
            r"(?:^\s*|: \"?|error |with |\(|= '|because )(?:No space left on device|Disk quota exceeded)\b|PermissionError: .*quota|\bOutOfDiskError: |Error: (?:database or disk is full|\d{3,18} requested and \d{1,18} written)\b",
            re.IGNORECASE,
        ),
    ),
    ("stale_file_handle", re.compile(r"Stale (?:NFS )?file handle")),
    (
        "io_error",
        re.compile(
            r"(?:[:=]|error|with) ['\"]?(?:Input/output error|Remote I/O error|Read-only file system)\b"
        ),
    ),
    (
        "too_many_open_files",
        re.compile(r": \"?Too many open files(?: \((?:os error )?24\)|\")|received 0 items of ancdata"),
    ),
    (
        "filesystem_unreachable",
        re.compile(r"Transport endpoint is not connected|Cannot send after transport endpoint shutdown"),
    ),
)
_UCX = re.compile(
    r"\bUCX\b|\bucx\b|\buc[pstm]_\w|_ucx\.c\b|\bibv_\w|\bmd\[\d{1,4}\]=|\[[\w.-]{1,253}:\d{1,10}:\d{1,6}(?::\d{1,10})?\]\s{1,20}\w{1,40}\.c:\d{1,6}\s|\bmlx[45]_\d"
)
"""UCX calls any failure of its own an input/output error, without a file. A line's end may cut UCX's name off."""
_OF_NO_FILE = {
    "io_error": re.compile(rf"{_UCX.pattern}|: /(?:proc|sys)/\S{{1,200}}: Read-only"),
    # inotify has a limit on watches, which is not disk space.
    "disk_full": re.compile(r"\binotify"),
    "filesystem_unreachable": re.compile(
        r"\b(?:MPID?\w*|OFI|ofi_\w+|libfabric|fi_\w+|PSM[23]?|psm[23]?_\w+)\b|^\s{0,4}what\(\): "
    ),
}
"""Calls that fail with the same text but involve no file."""
SHM = re.compile(
    r"(?:shared memory|/torch_\d|shm).{0,400}(?:No space left|out of shared memory|Bus error)|out of shared memory|insufficient shared memory|No space left on device.{0,40}(?:/dev/shm|/torch_\d)"
)
_SHM_OPEN = re.compile(
    r"\b[Uu]nable to (?:open|mmap|resize|write to|allocate) (?:\d{1,15} bytes (?:from|in) )?(?:file|shared memory)\b.{0,40}</torch_|\b[Uu]nable to (?:open|create) shared memory object"
)
_SHM_MEANING = (
    "Shared memory could not be opened: /dev/shm is full, or the program has too many open files or mappings."
)
_STARTER = re.compile(
    r"^(?:\S{0,200}/)?python[\d.]*: (?:Error while finding module specification for .{1,200}\((?P<error>[A-Z]\w+Error): |(?P<module>No module named )|(?P<file>can't open file (?!.{0,4200}: \[Errno (?:5|30|107|108|116|121|122)\])))"
)
"""The interpreter itself, which found nothing to run."""
_CHECKPOINT = re.compile(
    r"PytorchStreamWriter failed|inline_container\.cc:\d+\] \. (?:unexpected pos|PytorchStreamWriter)|CheckpointException|Error(?: while)? (?:saving|writing) (?:the )?checkpoint",
    re.IGNORECASE,
)
_BLOCKED = re.compile(
    r"std::bad_alloc|Cannot allocate memory|(?<!OutOf)MemoryError\b|\bNot enough host memory\b|DefaultCPUAllocator: (?:can't|not enough) (?:allocate )?memory"
)
_ENDS = "Error|Exception|Interrupt|Exit|Failure|Failed|Timeout|Fault|Iteration|Expired|Abort"
_NAMED = re.compile(rf"(?:{_ENDS})$")
"""Endings of exceptions' names; another name counts only with its module and at the start of the line."""
_EXCEPTION = re.compile(
    r"^(?:\s{0,8}|.{0,40}?\s)(?P<name>(?:[A-Za-z_]\w{0,60}\.){0,8}_{0,2}[A-Z]\w{0,60}(?:"
    + _ENDS
    + r")|Exception|(?:[a-z_]\w{0,60}\.){1,8}_{0,2}[A-Z]\w{0,60})"
    r"(?:\((?P<inner>[A-Za-z]\w{0,60})\))?(?P<sep>: |:?\s*$)(?P<text>.{0,400})"
)
_NAMED_RANK = re.compile(r"\[?[Rr]ank:? ?(?P<rank>\d{1,8})[\]:]")
_GROUP = re.compile(r"^\s*(?:\| )+(?=[ \w])|^\s*\+ (?=Exception Group)")
_REMOTE_NAMES = frozenset({
    "BrokenPipeError", "ConnectionResetError", "ConnectionRefusedError", "ConnectionAbortedError", "EOFError", "ChildFailedError",
    "ProcessRaisedException", "ProcessExitedException", "DistBackendError", "DistNetworkError", "DistStoreError", "DistError",
    "CalledProcessError", "SupervisionError", "RayTaskError", "RayActorError", "ActorDiedError", "WorkerCrashedError", "CancelledError", "BrokenProcessPool",
    "KilledWorker", "TerminatedWorkerError", "TrainingFailedError", "WorkerGroupError", "TuneError",
    "RemoteError", "TimeoutExpired", "HorovodInternalError", "UnavailableError",
    "CommClosedError", "Py4JNetworkError", "NodeDiedError", "LocalRayletDiedError", "OwnerDiedError", "ObjectLostError", "ActorUnavailableError", "EngineDeadError",
})  # fmt: skip
_OF_PEERS = re.compile(
    r"(?:torch|torchrun|ray|dask|distributed|horovod|mpi4py|multiprocessing|concurrent|joblib|loky|asyncio|anyio|grpc|zmq|vllm|sglang|jax|jaxlib|tensorflow|deepspeed|lightning|pytorch_lightning|accelerate|paddle|mindspore|pyspark|py4j|builtins)\b"
)
"""Libraries whose processes are each other's peers; the exception of another library about a connection is of a client and its server."""
_INTERRUPTS = frozenset(
    {"KeyboardInterrupt", "SIGTERMException", "SystemExit", "SignalException", "GeneratorExit"}
)
_INTERRUPTED = re.compile(
    r"\b(?i:detected|received|caught|got|handling|on) (?:a )?[Kk]eyboard ?[Ii]nterrupt(?:ion)?\b|\bKeyboard ?[Ii]nterrupt(?:ion)? (?:received|detected|caught)\b"
    r"|\bKeyboard interrupt(?:ion)?[.,!:;]|\b(?:[Tt]raining|[Rr]un|[Jj]ob|[Pp]rogram|[Ee]xecution|[Ee]valuation|[Pp]rocess) (?:was )?(?:interrupted|stopped|cancelled|aborted) by (?:the )?user\b"
    r"|\b(?:Ctrl|CTRL|Control)[-+ ]?[Cc] (?:was )?(?:received|pressed|detected|caught)\b|\b[Ss]ending Ctrl-C to (?:processes|StepId|job|task)\b|^(?:scons: Build interrupted\.|ninja: build stopped: interrupted by user\.)$"
)
"""Messages of programs and launchers that were interrupted."""
_WAITED = frozenset({
    "TimeoutError", "Timeout", "ReadTimeout", "ConnectTimeout", "TimeoutException", "GetTimeoutError", "RpcTimeout",
})  # fmt: skip
"""Exceptions of a program that has waited for something that it does not name."""
_WAIT = re.compile(
    r"\b(?P<n>\d{1,7}(?:\.\d{1,6})?) ?(?P<unit>ms|s|secs?|seconds?|m|mins?|minutes?|h|hours?)\b"
)
_UNITS_MS = {"ms": 1.0, "s": 1_000.0, "m": 60_000.0, "h": 3_600_000.0}
_USUAL_WAIT_MS, _LONGEST_WAIT_MS = 1_800_000, 7_200_000
"""A text may name any time: the job's own words do not decide how far back its node's faults count."""
_OCCURRED = re.compile(
    r"(?:.{0,60}[:\s])?(?:[Aa]n? )?(?:unexpected |unhandled |uncaught )(?P<name>[A-Z]\w{1,60}(?:Error|Exception))(?: exception)? (?:has )?(?:occurred|was raised): \S"
)
_IMPORTS = frozenset({"ImportError", "ModuleNotFoundError"})
_PEER = (
    r"(?:\b(?:ranks?|workers?|engines?|engine ?core\w*|schedulers?|executors?|actors?|replicas?|stages?|trainers?|learners?)\b"
    r"|(?:^|\b(?:the|an?|one|some|any|of|other|another|child|peer|remote|background|loader|MPI|inference|model|vllm|sglang|parameter|rollout)[ -])(?:sub)?(?:process(?:es)?|threads?|servers?|instances?)\b)"
)
"""A process of the program itself; other names in front of `process` or `server` are those of tools and services."""
_REMOTE_TEXT = re.compile(
    r"NCCL communicator was aborted|\bAbort event was set\. So someone died\b|subprocess(?:es)? (?:has|have) (?:abruptly )?died\b|Broken pipe|Connection (?:reset|closed|refused)|worker.*died|\bbackground workers? (?:is|are) (?:no longer alive|6 feet under)|^Timed out (?:during handshake while connecting|trying to connect) to \w{1,9}://|(?<!default )process group(?! has not been initialized)|Socket (?:Timeout|closed)"
    rf"|{_PEER}[^:]{{0,60}}?\b(?:died\b|is dead\b|(?:has )?(?:exited|terminated|crashed|stopped) (?:unexpectedly|abruptly|prematurely)\b)|\b(?:or more processes|(?:worker|rank|engine|scheduler)s?(?: process(?:es)?)?) exited with non-?zero (?:status|result)|\branks? timed out during\b|^Followers? .{{1,80}} timed out in\b|\bgave up waiting for a peer\b"
    r"|StatusCode\.UNAVAILABLE|^cancelled$|^handle is closed$|\bRPC call to \w{1,60} timed out|failed to connect to all addresses|See (?:the )?(?:root cause|stack ?trace \(?)\s?above|See (?:the )?stack ?trace for (?:the )?root cause|^\[\S{0,300}gloo/\S{1,200}:\d{1,6}\]\s*$",
    re.IGNORECASE,
)
_OF_STORE = re.compile(r"\(\w{1,40}\) TCP (?:connect|send|receive|recv) error\. Details: ")
"""Paddle's store is gone, whatever the exception's name."""
_PYTEST = re.compile(r"^E {3,12}(?=(?:[A-Za-z_]\w{0,60}\.){0,8}[A-Z]\w{0,60}(?:Error|Exception)\b(?::|$))")
"""pytest's mark on the lines of the exception that made a test fail."""
_RAISED = re.compile(r"\braised:\s*$")
"""A wrapper whose reason stands on the next line."""
_UNDEFINED = re.compile(r"undefined symbol: \w")
_NOT_LOADED = re.compile(
    rf"(?:^|: )(?:ImportError|ModuleNotFoundError): |{_UNDEFINED.pattern}|: version `[^']{{1,60}}' not found \(required by |^Failed to import [\w.]{{1,200}} because of the following error\b[^:]{{0,80}}:?\s*$"
)
"""The text of an exception that quotes the loader's, or Python's, of a failed import. Where the error itself follows on the line, that one counts."""
_NO_SYMBOL = re.compile(r"please report a bug to PyTorch\. .{0,300}: undefined symbol: \w")
"""A library of the node, such as the driver's, lacks a symbol that PyTorch needs; only the end of the line may be there."""
_HANDLED = re.compile(r"warn|ignored|skipp|retry|fallback|continuing", re.IGNORECASE)


def _files(record: Record) -> JobFinding | None:
    """Errors of files and memory, wherever they are printed."""
    text = record.text
    if SHM.search(text):
        return make(FACTS, "shm_full", record)
    if _SHM_OPEN.search(text):
        if "Too many open files" in text:
            return make(FACTS, "too_many_open_files", record)
        return make(FACTS, "shm_full", record, meaning=_SHM_MEANING)
    if found := _OF_FILE.search(text):
        detail = {"errno": int(found["errno"])} if found["errno"] else {}
        return make(FACTS, "filesystem_unreachable", record, detail=detail)
    if (found := _ERRNO.search(text)) and (
        kind := _ERRNOS.get(errno := int(found["errno"] or found["hdf5"] or found["rust"]))
    ):
        return mounts.named(make(FACTS, kind, record, detail={"errno": errno}))
    for kind, pattern in _STRERROR:
        if pattern.search(text) and not (kind in _OF_NO_FILE and _OF_NO_FILE[kind].search(text)):
            return mounts.named(make(FACTS, kind, record))
    if _SUM.search(text):
        return make(FACTS, "checkpoint_failed", record, role=LineRole.EXIT, meaning=_SUM_MEANING)
    if _CHECKPOINT.search(text):
        return make(FACTS, "checkpoint_failed", record)
    return make(FACTS, "host_memory_error", record) if _BLOCKED.search(text) else None


def read(record: Record, _context: JoblogContext) -> JobFinding | None:
    """A line about files or memory; advice and handled errors are none."""
    if found := _STARTER.match(record.text):
        error = found["error"] or ("ModuleNotFoundError" if found["module"] else "FileNotFoundError")
        kind = "import_error" if error in _IMPORTS else "python_exception"
        return make(FACTS, kind, record, detail={"exception": error})
    if marked := _PYTEST.match(record.text):
        return exception(replace(record, text=record.text[marked.end() :]))
    if _NO_SYMBOL.search(record.text):
        return make(FACTS, "import_error", record, detail={"undefined_symbol": True})
    if _INTERRUPTED.search(record.text):
        return make(FACTS, "interrupted", record)
    if found := _OCCURRED.match(record.text):
        # The program's own handler printed it: it may have gone on.
        return make(FACTS, "python_exception", record, detail={"exception": found["name"], "handled": True})
    if is_handled(record.text):
        return None
    return _files(record)


_LOCK_LINES = 4
"""The frames nearest to an error show the library that raised it."""
_LOCK = re.compile(
    r"File \"[^\"]{0,400}/(?:soft_)?(?:filelock|fasteners|portalocker|lockfile|lockutils|oslo_concurrency)\b|\bfcntl\.(?:flock|lockf)\(|\.lock\b"
)


def in_lock(before: Iterable[str], message: str) -> bool:
    """Whether a file-locking library raised it: another process replaced the lock file, and no server is at fault."""
    return any(_LOCK.search(text) for text in (*list(before)[-_LOCK_LINES:], message))


def is_handled(text: str) -> bool:
    """Whether the line itself says that the program goes on."""
    return _HANDLED.search(text) is not None


def ungrouped(text: str) -> str:
    """A line of an exception group's traceback without the lines drawn before it; a table's row has one behind it, too."""
    return text if text.rstrip().endswith("|") else _GROUP.sub("", text)


_CUT_OFF = "A Python traceback began and the output ends inside it: the program ended, and the exception itself is not there."


def named_only(found: JobFinding) -> bool:
    """Whether the exception's own text begins on the next line: Python prints no colon where there is none."""
    own = "exception" in found.detail and found.kind not in ("python_consequence", "interrupted")
    return own and _NAME_ONLY.fullmatch(found.message) is not None


_NAME_ONLY = re.compile(r"(?:\[rank\d{1,8}\]: ?)?[\w.]{1,400}:\s?")


def cut_off(record: Record) -> JobFinding:
    """The traceback that begins at `record` and in whose frames the whole output ends: weak, since a launcher has them, too."""
    detail = {"cut_off": True}
    return make(
        FACTS,
        "python_exception",
        record,
        role=LineRole.EXIT,
        domains=ALL_DOMAINS,
        meaning=_CUT_OFF,
        detail=detail,
    )


_ONLY_THAT = re.compile(
    r"ray::\S|\[ERROR\] HCCL error in: \S+$|.{0,120}The details refer to 'Ascend Error Message'|For simplicity, JAX has removed|Graph execution error:|The following operation failed in the TorchScript interpreter|(?:\S{1,60} ){0,3}[Cc]ompil\w{1,6}:? (?:failed|error)\W{0,3}$|PassManager::run failed|in user code:$"
    r"|(?:PTXAS error: )?Internal Triton PTX codegen error\W{0,3}$|(?:Exception|Error) raised (?:in|from|by) \w[\w ]{0,40}:$|.{0,200}\bfailed to import on the worker\b|(?:[\w./-]{1,60} ){1,4}failed\W{0,3}$"
)
"""Texts that only report a failure; the chain's own exception or the compiler's line gives the reason."""
_PASSED_ON = re.compile(r"Caught [\w.]{1,120} in (?:DataLoader worker process|pin memory thread|replica)\b")
"""PyTorch's exception in the parent for an error of a worker."""
RUNNERS = frozenset({"PapermillExecutionError", "CellExecutionError", "Py4JJavaError", "TelemacException"})
"""The exception of a notebook runner, Spark or Telemac's launcher for an error of a cell, a task or the solver; it has an own message."""
_UNNAMED = frozenset({"Exception", "RuleException"})
"""Names that say nothing; below Snakemake's stands the error itself."""
_SUM = re.compile(r"CheckpointException ranks: ?dict_keys\(")
"""PyTorch's exception in every rank when some fail to read or write a checkpoint; their own errors follow."""
_SUM_MEANING = (
    "Reading or writing a distributed checkpoint failed on the ranks named; their own errors follow."
)


_OWN_NAME = re.compile(
    r"(?P<name>(?:[A-Za-z_]\w{0,60}\.){0,8}_{0,2}[A-Z]\w{1,60}|(?:[a-z_]\w{0,60}\.){1,8}(?:\w{0,60}error|timeout))(?P<inner>(?!))?(?P<sep>: |$)(?P<text>.{0,400})"
)


def exception(record: Record, *, own_name: bool = False) -> JobFinding | None:
    """The last line of a traceback; None when the line is not one, or only the sum of an exception group.

    `own_name`: the line stands right below the frames, where even a name that no exception is called by is one.
    """
    found = _EXCEPTION.match(record.text)
    if found is None and own_name:
        found = _OWN_NAME.match(record.text)
        if found and not found["name"].endswith("ExceptionGroup"):
            role = LineRole.EXIT if _PASSED_ON.match(found["text"]) else None
            own: dict[str, object] = {"exception": found["name"]}
            if found["name"].endswith(".timeout"):
                own["unanswered_ms"] = _waited_ms(found["text"])
            return make(FACTS, "python_exception", record, role=role, detail=own)
    if found is None or found["name"].endswith("ExceptionGroup") or _RAISED.search(found["text"]):
        return None
    if not _NAMED.search(found["name"]) and record.text[: found.start("name")].strip():
        return None
    name = found["inner"] or found["name"].rsplit(".", 1)[-1]
    detail: dict[str, object] = {"exception": found["name"]}
    # PyTorch's loader polls its workers; an empty queue says less than the exception that follows from it.
    if _ONLY_THAT.match(found["text"]) or found["name"].endswith("queue.Empty"):
        detail["wrapper"] = True
    is_empty = name in _UNNAMED and not found["text"].strip()
    if is_empty or _PASSED_ON.match(found["text"]) or name in RUNNERS or found["text"].strip() == name:
        # The traceback of the worker's own error follows; also after an exception with only a name, such as joblib's.
        return make(FACTS, "python_exception", record, role=LineRole.EXIT, detail=detail)
    if name in _INTERRUPTS:
        return make(FACTS, "interrupted", record, detail=detail)
    own_file = name == "EOFError" and found["text"]
    of_client = "." in found["name"] and not _OF_PEERS.match(found["name"])
    lost = name not in vocabulary.OF_CODE and not of_client and _REMOTE_TEXT.search(found["text"])
    lost = lost or _OF_STORE.match(found["text"])
    if (name in _REMOTE_NAMES and not own_file) or lost:
        return make(FACTS, "python_consequence", record, detail=detail)
    # An assertion compares texts, also those of errors.
    quotes = name != "AssertionError" and _NOT_LOADED.search(found["text"])
    if name in _IMPORTS or quotes:
        if _UNDEFINED.search(found["text"]):
            detail["undefined_symbol"] = True
        return make(FACTS, "import_error", record, detail=detail)
    if found["text"].endswith("root error(s) found."):
        detail["heading"] = True  # TensorFlow's: the first of them follows
    if name in _WAITED:
        detail["unanswered_ms"] = _waited_ms(found["text"])
    rank = _NAMED_RANK.match(found["text"])
    rank_named = grammar.number(rank["rank"]) if rank and record.rank is None else None
    return make(FACTS, "python_exception", record, rank=rank_named, detail=detail)


def _waited_ms(text: str) -> int:
    """Milliseconds that the exception's text names, at most two hours, or a usual limit."""
    waits = [
        float(w["n"]) * _UNITS_MS[w["unit"][0].lower() if w["unit"] != "ms" else "ms"]
        for w in _WAIT.finditer(text)
    ]
    return int(min(max(waits, default=_USUAL_WAIT_MS), _LONGEST_WAIT_MS))


_FROM_PARENT = "pickle.load(from_parent)"
"""What a process that multiprocessing starts runs first; it fails where its parent is gone."""


def of_lost_parent(found: JobFinding, code: str) -> JobFinding:
    """`found`, raised in the line `code`; as a consequence if its process had only begun and its parent was gone: that end came first."""
    if _FROM_PARENT not in code:
        return found
    meaning, role = FACTS["python_consequence"].meaning, FACTS["python_consequence"].role
    return replace(found, kind="python_consequence", role=role, meaning=meaning)


FAMILY = grammar.LogFamily(
    name="python",
    triggers=(
        "Communication error", *(f"{quote}: {word}" for quote in "'\"’" for word in ("Software", "Connection", "Host is", "No route")),
        "E   ", " occurred: ", " was raised: ", "undefined symbol: ", "[Errno ", "Os { code: ", ", error message = '", "No space left", "no space left",
        "quota", "disk is full", "OutOfDisk", "requested and ", "tale ", "oo many open", "items of ancdata",
        "nput/output error", "emote I/O", "Read-only file", "ransport endpoint", "hared memory", "dev/shm",
        "PytorchStreamWriter", "inline_container", "heckpoint",
        "bad_alloc", "host memory", "allocate memory", "MemoryError", "DefaultCPUAllocator",
        "finding module specification", ": No module named", "can't open file", "eyboard", "by user",
        "by the user", "Ctrl", "CTRL", "Control-C", "scons: Build",
    ),
    read=read,
    facts=FACTS,
)  # fmt: skip
