"""Errors that are cut off before the words by which it shows whether the program alone is at fault: such an error accuses nobody."""

from __future__ import annotations

import re
from dataclasses import replace

from probing_cluster.evidence.joblog.grammar import ALL_DOMAINS, USER, JobFinding

_PROGRAMS = frozenset({"program_error", "python_exception"})
_LEAST = 8
"""A shorter beginning may be a word of anything."""
_SENTENCES = (
    "No CUDA GPUs are available", "Found no NVIDIA driver on your system", "no CUDA-capable device is detected", "cuDNN error: CUDNN_STATUS_",
    "CUDNN_STATUS_NOT_INITIALIZED", "CUBLAS_STATUS_NOT_INITIALIZED", "CUBLAS_STATUS_EXECUTION_FAILED",
    "NCCL communicator was aborted", "NCCL error in: ", "Connection reset by peer", "Connection closed by peer",
    "Connection refused", "Broken pipe", "Socket Timeout", "Network is unreachable", "No route to host", "Host is down",
    "[Errno 101] Network is unreachable", "[Errno 113] No route to host", "[Errno 112] Host is down", "[Errno -2] Name or service not known",
    "[Errno -3] Temporary failure in name resolution", "Name or service not known", "Temporary failure in name resolution", "Could not resolve host",
    "Input/output error", "Remote I/O error", "No space left on device", "Disk quota exceeded", "Stale file handle", "Read-only file system",
    "Transport endpoint is not connected", "Cannot send after transport endpoint shutdown", "Communication error on send", "write error: Input/output error",
    "[Errno 28] No space left on device", "[Errno 122] Disk quota exceeded", "[Errno 5] Input/output error", "host not found: Name or service not known",
    "No supported gpu backend found", "Unexpected bus error encountered in worker", "Unexpected segmentation fault encountered in worker", "One or more background workers are no longer alive",
    "Could not obtain license",
    "CUDA error: unknown", "HIP error: unknown", "DataLoader worker (pid", "Unable to determine the device handle for GPU", "PytorchStreamWriter failed", "CUDA driver version is insufficient",
)  # fmt: skip
"""What is not the program's fault alone, in the words of CUDA, NCCL, PyTorch and the C library."""
_BEGINNINGS = frozenset(
    words[:n]
    for words in _SENTENCES
    for n in range(_LEAST, len(words))
    if words[n - 1 : n + 1].isalnum() or words[n - 1] == ":" or words.startswith("[Errno")
)
"""They end inside a word or with a colon: whole words may end any message."""
_LONGEST = max(map(len, _BEGINNINGS))
_BEFORE = " \t:'\"`([."
_OPEN = re.compile(
    r"\bNCCL [Ee]rror in: [^,]{0,400}(?:, [a-z ]{0,20})?$|\bNCCL operation nccl\w{0,40}(?:\([^)]{0,200}\)?(?: f[a-z]{0,5}:?.{0,12})?)?$|\bDataLoader worker \(pid[^)]{0,400}\)?(?: is .{0,20}| exited.{0,14})?$"
    r"|\bCalledProcessError: Command (?!.*(?:returned non-zero|died with))|^(?:ERROR|CRITICAL):\w{2,60}(?:\.\w{0,60}){1,8}:?$"
    r"|\bFatal error in (?:P?MPI\w{0,60})?:?$|\bFatalError: `[A-Z][^`]{2,60}`?[a-z ]{0,30}$|\bforrtl: (?:error|severe) \(\d{1,5}\):(?: p[a-z]{0,6}(?: [a-z]{0,11})?(?: \(?S?I?G?)?| S[A-Z]{0,8})?$"
    r"|\bException in device=TPU:\d{1,4}: tensorflow/\S{1,200}(?: :?[ \w]{0,24})?$|\[enforce fail at \S{0,80}$|\bRank \d{1,8}, node \S{1,200}, device \d{1,4}(?:, [\w ]{0,20}:?)?(?: Unexpected r(?:[a-z ]{0,10}|esult (?:nan|-?inf)\b(?!.* on rank ).{0,400}))?$"
    r"|\bb'cu[A-Z]\w{2,60}(?:: C[A-Z_]{0,20})?$|\bcustom call 'xla\.gpu\.\w{1,60}' failed:(?: external/\S{0,200})?$|\bmultiprocessing\.api:.{0,24}$|(?:^|: )CU(?:DNN|BLAS|SOLVER|SPARSE|FFT)_STAT[A-Z_]{0,40}$|\bUCX {1,4}(?:ERROR|FATAL) cu[A-Z]\w{2,60}(?:\(.{0,200})?$"
)
"""The same with numbers or names inside. Whole messages of these forms are other kinds."""


def named(finding: JobFinding) -> JobFinding:
    """`finding`, which accuses nobody if its text ends within such words."""
    if finding.kind not in _PROGRAMS or finding.domains != USER:
        return finding
    text = finding.message.rstrip()
    for n in range(_LEAST, min(len(text), _LONGEST) + 1):
        if text[-n:] in _BEGINNINGS and text[-n - 1 : -n] in _BEFORE:
            return replace(finding, domains=ALL_DOMAINS)
    return replace(finding, domains=ALL_DOMAINS) if _OPEN.search(text) else finding
