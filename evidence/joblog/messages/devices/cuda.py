"""CUDA errors as runtime, PyTorch, NCCL and others print them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from probing_cluster.evidence.joblog import grammar, labels, mention
from probing_cluster.evidence.joblog.grammar import (
    ALL_DOMAINS,
    HARDWARE,
    SOFTWARE,
    USER,
    JobFinding,
    JoblogContext,
    LineRole,
    Record,
    fact,
    make,
)
from probing_cluster.evidence.joblog.messages import python
from probing_cluster.evidence.joblog.messages.devices import cuda_memory

FACTS = {
    "cuda_ecc": fact(
        LineRole.ROOT, HARDWARE, "A GPU met a memory error that it could not correct.", late=True
    ),
    "cuda_nvlink": fact(LineRole.ROOT, HARDWARE, "An NVLink failed while the program ran.", late=True),
    "cuda_device_lost": fact(
        LineRole.ROOT,
        ("hardware", "system_software"),
        "A GPU is lost: the driver cannot reach it any more.",
        late=True,
    ),
    "cuda_unavailable": fact(
        LineRole.ROOT,
        ALL_DOMAINS,
        "No GPU could be used: the job holds none, hides it, or the driver or another process stands in the way.",
    ),
    "cuda_illegal_access": fact(
        LineRole.ROOT,
        ALL_DOMAINS,
        "A kernel touched memory that is not its own; mostly the program, sometimes software or a GPU.",
    ),
    "cuda_misaligned_address": fact(LineRole.ROOT, USER, "A kernel used an address that is not aligned."),
    "cuda_illegal_instruction": fact(
        LineRole.ROOT, ALL_DOMAINS, "A kernel met an instruction the GPU does not know."
    ),
    "cuda_device_assert": fact(
        LineRole.ROOT,
        USER,
        "An assertion inside a kernel failed, mostly an index out of range in the user's data.",
    ),
    "cuda_launch_failure": fact(
        LineRole.ROOT, ALL_DOMAINS, "A kernel failed while it ran, without saying why."
    ),
    "cuda_launch_timeout": fact(LineRole.ROOT, ALL_DOMAINS, "A kernel ran longer than the driver allows."),
    "cuda_oom": fact(LineRole.ROOT, USER, "The program asked for more GPU memory than there was."),
    "cuda_unknown_error": fact(
        LineRole.ROOT,
        ALL_DOMAINS,
        "A CUDA call failed and the driver does not say why; often a GPU that was lost.",
    ),
    "cuda_version": fact(
        LineRole.ROOT,
        ("system_software", "user_program"),
        "The program's CUDA and the node's driver do not fit together.",
    ),
    "cuda_library_error": fact(
        LineRole.ROOT,
        ALL_DOMAINS,
        "A CUDA library (cuBLAS, cuDNN, …) failed; often for lack of memory or after an earlier error.",
    ),
    "cuda_error": fact(LineRole.ROOT, ALL_DOMAINS, "A CUDA call failed."),
    "host_memory_error": python.FACTS["host_memory_error"],
}
ONLY_HARDWARE = frozenset({"cuda_ecc", "cuda_nvlink", "cuda_device_lost"})
"""Kinds that convict a machine: whoever prints one must look like a runtime."""
_KINDS = (
    (
        "cuda_ecc",
        re.compile(
            r"uncorrectable ECC error|ECCUncorrectable|(?:\b|_)ECC_UNCORRECTABLE\b|ECCNotCorrectable",
            re.IGNORECASE,
        ),
    ),
    (
        "cuda_nvlink",
        re.compile(
            r"uncorrectable NVLink|NVLINK_UNCORRECTABLE|NvlinkUncorrectable|CUDA_ERROR_CONTAINED\b|cudaErrorContained\b|invalid access of peer GPU memory over nvlink",
            re.IGNORECASE,
        ),
    ),
    (
        "cuda_oom",
        re.compile(
            r"out of memory|HSA_STATUS_ERROR_OUT_OF_RESOURCES\b.{1,400} Free mem|MEMORY_?ALLOCATION|OUT_?OF_?MEMORY|RESOURCE_EXHAUSTED",
            re.IGNORECASE,
        ),
    ),
    (
        "cuda_illegal_access",
        re.compile(
            r"illegal memory access|ILLEGAL[_ ]?ADDRESS|invalid __global__|access fault by GPU|HSA_STATUS_ERROR_MEMORY_(?:FAULT|APERTURE_VIOLATION)",
            re.IGNORECASE,
        ),
    ),
    ("cuda_misaligned_address", re.compile(r"misaligned.?address", re.IGNORECASE)),
    (
        "cuda_illegal_instruction",
        re.compile(r"illegal instruction|ILLEGAL_?INSTRUCTION|invalid program counter", re.IGNORECASE),
    ),
    ("cuda_device_assert", re.compile(r"device-side assert|ERROR_ASSERT\b|cudaErrorAssert", re.IGNORECASE)),
    (
        "cuda_launch_timeout",
        re.compile(r"launch timed out|LAUNCH_?TIMEOUT|launch exceeded timeout", re.IGNORECASE),
    ),
    (
        "cuda_launch_failure",
        re.compile(
            r"unspecified launch failure|LAUNCH_FAILED|^launch failed\b|ErrorLaunchFailure|hardware stack error|HSA_STATUS_ERROR_EXCEPTION",
            re.IGNORECASE,
        ),
    ),
    (
        "cuda_device_lost",
        re.compile(r"GPU is lost|device (?:is|was) (?:lost|unavailable)|fallen off the bus", re.IGNORECASE),
    ),
    (
        "cuda_version",
        re.compile(
            r"driver version is insufficient|no kernel image is available|NO_?BINARY_?FOR_?GPU|NoKernelImage|InsufficientDriver|UNSUPPORTED_?PTX|invalid device function|forward compatibility was attempted|SYSTEM_DRIVER_MISMATCH|unsupported toolchain|PTX was compiled|NVIDIA driver on your system is too old",
            re.IGNORECASE,
        ),
    ),
    ("cuda_unknown_error", re.compile(r"\bunknown error|CUDA_ERROR_UNKNOWN|cudaErrorUnknown", re.IGNORECASE)),
    (
        "cuda_unavailable",
        re.compile(
            r"no CUDA-capable device|busy or unavailable|initialization error|driver initialization failed|not yet initialized|invalid device ordinal|driver shutting down|system driver mismatch|CUDA_ERROR_(?:NO_DEVICE|NOT_INITIALIZED|SYSTEM_NOT_READY|DEVICE_UNAVAILABLE)|Error(?:NoDevice|InitializationError|SystemNotReady|SystemDriverMismatch|Devices?Unavailable)|No CUDA GPUs are available|driver/library version mismatch|unsupported display driver",
            re.IGNORECASE,
        ),
    ),
)
_NUMBERS = {
    2: "cuda_oom", 3: "cuda_unavailable", 35: "cuda_version", 46: "cuda_unavailable", 59: "cuda_device_assert", 77: "cuda_illegal_access",
    100: "cuda_unavailable", 209: "cuda_version", 214: "cuda_ecc", 220: "cuda_nvlink", 700: "cuda_illegal_access", 702: "cuda_launch_timeout",
    710: "cuda_device_assert", 715: "cuda_illegal_instruction", 716: "cuda_misaligned_address", 719: "cuda_launch_failure",
    802: "cuda_unavailable", 803: "cuda_version", 999: "cuda_unknown_error",
}  # fmt: skip
"""Runtime error numbers, for those who print nothing else."""
_MISMATCH = re.compile(
    r"unsupported display driver|system driver mismatch|SystemDriverMismatch|\b803\b", re.IGNORECASE
)
_NOT_READY = re.compile(
    r"not yet initialized|SYSTEM_NOT_READY|SystemNotReady|\b802\b|driver/library version mismatch",
    re.IGNORECASE,
)
_ORDINAL = re.compile(r"invalid device ordinal|INVALID_DEVICE\b|ErrorInvalidDevice\b|\b101\b", re.IGNORECASE)
_NO_DRIVER = re.compile(
    r"no NVIDIA driver|no NVIDIA GPU|ROCk module is NOT loaded|couldn't communicate with the NVIDIA driver",
    re.IGNORECASE,
)
_UNAVAILABLE: tuple[tuple[str, re.Pattern[str], tuple[str, ...], str], ...] = (
    (
        "mismatch",
        _MISMATCH,
        ("user_program", "system_software"),
        "The libcuda that the program loaded does not fit the node's driver: it is a container's own or one for compatibility, or the node was updated without a restart.",
    ),
    (
        "not_ready",
        _NOT_READY,
        SOFTWARE,
        "CUDA's system was not up: the driver's parts do not fit together, or the Fabric Manager has not set up the NVSwitches.",
    ),
    (
        "ordinal",
        _ORDINAL,
        ("user_program", "hardware"),
        "The program asked for a GPU number that it does not hold: mostly CUDA_VISIBLE_DEVICES or the rank's own number.",
    ),
    (
        "no_driver",
        _NO_DRIVER,
        ("user_program", "system_software"),
        "The program found no NVIDIA driver: a container or a node without GPUs, or the driver is not loaded.",
    ),
)
"""Reasons why no GPU could be used, by the message; other messages leave the reason open."""
_NUMBERED = re.compile(
    r"\bCUD(?:ART|A(?: [Rr]untime)?)(?: API)? (?:[Ee]rror|failure|call)\b[^\n]{0,200}?(?:=|\bcode\b:?|\breturned\b|\()\s{0,3}(?P<n>\d{1,3})\)?(?=\W{0,3}(?:$|[ ;,:)]))"
    r"|\b(?:CUDA|Cuda|cuda)(?: (?:[Dd]river|[Rr]untime|API|kernel))? [Ee]rror:? (?:code |number |no\. ?|#)?(?P<named>\d{1,3})(?=$|[;,:)]| (?:in|at|from|during|while|on)\b)"
    r"|\bcu(?:da)?[A-Z]\w{2,60}\b[^\n]{0,120}?\b(?:returned|gave|failed with|with) (?:error|status|code)(?: code)? (?P<call>\d{1,3})(?=$|[;,:).]| (?:in|at|from|during|while|on)\b| \()"
)
_ANCHOR = re.compile(
    r"(?:CUDA|Cuda|HIP|^cuda) [Ee]rror(?: \d+|\(\d{1,4}\))?(?: \[[^\]\n]{1,80}\])?(?: in [^:]{0,400}(?::\d{1,7})?)?[:,] (?P<a>[^\n]{2,300})|\b(?:cuda|hip)Error(?!_(?:t|enum)\b|\w{1,60}\+0x)\w{2,60}(?:: (?P<b>[^\n]{2,200}))?|cuda runtime error \(\d+\) ?: (?P<c>[^\n]{2,200})"
    r"|\bCUDA_ERROR_(?P<d>[A-Z_]{3,60})|CUDA [Dd]river error: (?P<e>[^\n]{2,200})|(?:CUDA|HIP) (?P<f>out of memory)\b|\bCUDA (?P<z>unknown error)\b|(?P<render>[Oo]ut of memory) in (?:CUDA|HIP|OptiX) \w|(?:^|: )(?P<queue>[A-Z][a-z]{2,20}(?: [a-z]{2,20}){1,5}) in (?:CUDA|HIP|OptiX) queue\b|^GPU ?assert: (?P<guard>[^\n]{2,200})|(?P<j>(?:Memory )?access fault by GPU \*{0,2}node-\d+)|\b(?:cuda|hip|cu)[A-Z]\w{2,60}(?: [A-Z]\w{0,40}::\w{1,40})? failed:? (?P<r>[^\n]{2,200})|CUDA (?:initialization|call).{0,200}?: (?P<g>[^\n]{2,200})"
    r"|THCudaCheck FAIL .{0,300}?\berror=\d{1,4} : (?P<k>[^\n]{2,200})|cudaError_t \d{1,4} : \"(?P<l>[^\"\n]{2,200})\"|(?:Test (?:CUDA|HIP) failure|Failed[,:] (?:Cuda|CUDA|HIP) error) \S{1,200} '(?P<m>[^'\n]{2,200})'|\bHSA_STATUS_ERROR_(?P<n>[A-Z_]{3,60})(?:.{0,400}? Available Free mem : \d{1,2} MB)?"
    r"|\b(?:cuda|CUDA|hip|HIP)(?: \w{2,40})? failed with error \d{1,4}[: ]\s{0,3}(?P<x>[^\n]{2,200})|\bCUDA failure \d{1,4}: (?P<s>[^\n]{2,200})|\bcud(?:a|art)?[A-Z]\w{2,60}\([^\n]{0,200}?\) failed with (?:error )?(?P<t>[^\n]{2,200})"
    r"|^\s{0,4}on Pe \d{1,7} \([^)\n]{1,120}\): (?P<namd>[^\n]{2,200})"
    r"|== cudaSuccess \(\d{1,4} vs\. 0\)\s{1,3}(?P<u>[^\n]{2,200})|Check failed: \S{1,80} == cudaSuccess (?P<y>[^\n(]{2,200})|\binit CUDA: Error \([^)\n]{0,100}\): (?P<v>[^\n]{2,200})"
    r"|\b(?:CUDA|HIP) error !{3,8} <(?P<bangs>[^>\n]{2,200})>|\bCUDART[: ](?:[Ee]rror|call)\b[^\n]{0,200}? (?:failed with|:) (?P<w>[^\n]{2,200})"
    r"|\bcall to cu[A-Z]\w{2,60} returned error \d{1,4}(?: \(\w{2,60}\))?: (?P<call>[^\n]{2,200})"
    r"|\bcu[A-Z]\w{2,60}\([^\n]{0,120}?\) (?:is )?failed[.:] (?:ret:\s?)?(?P<drv>[^\n]{2,200})|^Cuda failure (?:\d{1,4} )?'(?P<nccl>[^'\n]{2,200})'|^(?:CUDA|HIP) [Ee]rror (?:at |in )?[\w./+-]{1,300}:\d{1,7}:? ['\"]?(?P<place>[a-z][^'\"\n]{2,200})"
    r"|\bCUDA runtime error in (?:::)?\w{2,60}\([^\n]{0,200}?\): (?P<at>[^\n]{2,200})|(?:^|\bKERNEL_)ERROR: (?P<acc>[A-Za-z -]{4,80}) in \S{1,300} at line \d{1,6} \(error-code \d{1,4}\)|^\s{0,8}Error text: (?P<text>[^\n]{2,120})$"
    r"|^Fatal CUDA Error (?P<charm>[^\n]{0,200}?) ?\bat \S{1,200}:\d{1,7}\b|(?P<o>NVIDIA driver on your system is too old)|(?P<p>NVML_SUCCESS == r INTERNAL ASSERT FAILED)"
    r"|CUDA driver (?P<h>initialization failed)|from cudaGetDeviceCount\(\).{0,400}?\bError \d{1,4}: (?P<i>[^\n]{2,200})",
)
_TORCH_OOM = re.compile(
    r"what\(\):\s{1,3}.{0,300}(?:CUDA|[Cc]uda|mallocMC|\bhip).{0,200}\bout of memory\b|\bstd::bad_alloc: out_of_memory\b|\b(?:NPU|XPU|HPU|MLU|MUSA|DCU|MPS backend) out of memory ?[.:(]|\b(?:ZE|UR)_RESULT_ERROR_OUT_OF_DEVICE_MEMORY\b|OutOfMemoryError: (?:CUDA|HIP|XPU|Tried to allocate|Allocation on device|Out of memory allocating)|\b(?:RESOURCE_EXHAUSTED|Resource exhausted): (?:.{0,200}?\b)?(?:[Mm]emory|[Aa]llocat\w{1,4}|[Rr]eserve|hbm)\b|OOM when allocating tensor|Error: Not enough GPU memory for\b|\bOOM during (?:optimization|forward|backward)\b|^(?:ERROR: )?(?:LoadError: )?Out of GPU memory\b"
)
_DEVICE_ASSERT = re.compile(
    r"\bblock: \[\d+,\d+,\d+\], thread: \[\d+,\d+,\d+\] Assertion |\.(?:cuh?|hip)\b.{0,400}\b(?:Device-side a|A)ssertion `[^`]{1,400}[`'] failed"
)
"""Threads and ranks print at once: of a line that another one fell into, file and assertion remain."""
_PHRASE = re.compile(
    r"an illegal memory access was encountered|unspecified launch failure|no CUDA-capable device is detected|all CUDA-capable devices are busy or unavailable"
    r"|device-side assert triggered|misaligned address|the launch timed out and was terminated|no kernel image is available for execution on the device"
    r"|CUDA driver version is insufficient for CUDA runtime version|an illegal instruction was encountered|invalid device ordinal|too many resources requested for launch"
)
"""What the runtime calls its errors: whoever prints one in front of or behind it names its own place."""
_ITS_NUMBER = re.compile(r" \((\d{3})\)")
_IN_FILE, _BELOW_FILE = "[CUDA ERROR] in ", re.compile(r"Line \d{1,6}: (\S.{0,300})")
_STREAM = re.compile(
    r"\b(?:[Ff]ailed|[Cc]ould not|[Uu]nable) to synchronize (?:on )?(?:the )?(?:GPU|CUDA|ROCm|HIP) (?:stream|context|device)\b"
)
"""Messages of XLA and others about a failed stream; they give the reason elsewhere, or never."""
_NAMES_CUDA = re.compile(
    r"device-side|cuda|launching kernel|\bGPU\s?assert|\bgpu\b|\bhip|\.cuh?\b|\bNCCL\b", re.IGNORECASE
)
_HIP_BINARY = re.compile(r"^(?:\S{1,300}\.cpp:\d{1,7}\s?: .{0,80})?\"?hipErrorNoBinaryForGpu: ")
_LIBRARY = re.compile(
    r"\bCURAND_STATUS_(?:ALLOCATION_FAILED|INITIALIZATION_FAILED|LAUNCH_FAILURE|PREEXISTING_FAILURE|INTERNAL_ERROR|NOT_INITIALIZED|ARCH_MISMATCH)(?!\s{0,2}[=:,])|\b(?:CUBLAS|CUDNN|CUSOLVER|CUSPARSE|CUFFT|NVRTC)_(?:STATUS_)?(?:ALLOC_FAILED|EXECUTION_FAILED|INTERNAL_ERROR|NOT_INITIALIZED|MAPPING_ERROR|NOT_SUPPORTED|ARCH_MISMATCH|INVALID_VALUE|BAD_PARAM|ERROR\w*)"
    r"|\bcublas runtime error\b|failed to create cublas handle|\bMIOpen Error: |\bmiopenStatus(?!Success)\w{2,40}|\brocBLAS error: |DNN library initialization failed"
    r"|\bcuDNN error: CUDNN_STATUS_\w{2,60}|\bcuDNN Frontend error\b|\b(?:FIND|GET) was unable to find an engine\b"
    r"|\bFailed to call (?:Then|Do)Rnn(?:Forward|Backward)\b|\bFailed to get convolution algorithm\b|\b[Cc]ould not create (?:cudnn|cublas|cusolver\w{0,2}) (?:handle|instance)\b|\bBlas \w{0,5}GEMM\w{0,20} launch failed\b|\b[Cc]u[Dd][Nn][Nn] launch failure\b|\b[Ff]ailed to create cuSolverDN instance\b"
)
_HANDLE = re.compile(
    rf"(?:\bUnable to determine|^(?:{'|'.join('Unable to determine'[n:] for n in range(1, 19))})) the device handle for GPU\s?(?P<pci>[0-9A-Fa-f:.]+)?: (?P<why>.{{2,120}})|No CUDA GPUs are available|no NVIDIA GPU|Found no NVIDIA driver|nvidia-smi has failed because it couldn't communicate|^ROCk module is NOT loaded"
    r"|\bno supported gpu backend found\b|Error: .{0,120}\bno (?:visible GPU devices|supported devices found for platform (?:CUDA|ROCM))\b|\byou requested gpus?: \[[\d, ]{1,200}\]|\byou requested to find \d{1,3} devices but only \d{1,3} (?:is|are) currently available"
    r"|`CUDAAccelerator` can not run on your system\b|\brequires? a (?:CUDA|GPU)(?: device)?, but none (?:is|are|was|were) (?:available|found)\b|Error: .{0,100}\b(?:no (?:\w{1,20} ){0,2}(?:GPU|CUDA|accelerator)s?(?: devices?)?(?: or [A-Z]\w{1,20}(?: [A-Z]{2,8})?)?(?: \([\w/]{1,30}\))? (?:is |are |was |were )?(?:available|found|detected)|(?:CUDA|GPU|the accelerator) (?:is|are|was) (?:not |un)available)\b|\bFailed to infer device type\b",
    re.IGNORECASE,
)
_NVML = re.compile(
    r"\bNVMLError_\w{2,40}: (?P<text>.{2,100})|slurmstepd: error: NVML: Failed to get \w[\w ]{0,40}\(\d{1,4}\): (?P<slurm>GPU is lost)|(?:(?:^|[:\]] )(?:Failed to initialize NVML|NVML: Failed to initialize)|\bNCCL WARN nvmlInit\w{0,4}(?:\(\))? failed): (?P<smi>.{2,100})"
)
_ADVICE = re.compile(
    r":: \*\*\* Begin stack trace \*\*\*|might be asynchronously reported|consider passing (?:CUDA_LAUNCH_BLOCKING|AMD_SERIALIZE)|Compile with|Search for `(?:cuda|hip|CUDA_|HIP_)|(?:^|\s):[1-9]:\w{1,60}\.\w{1,4}\s*:|UserWarning|warnings\.warn|CUDA error(?:s)? (?:if|when|handling|checking)"
)


def kind_of(text: str) -> str | None:
    """The kind of an error text; None when it is one of the many without a kind of its own."""
    return next((kind for kind, pattern in _KINDS if pattern.search(text)), None)


def finding(kind: str, record: Record, **detail: Any) -> JobFinding:
    """A CUDA finding, also from another family's line."""
    if kind == "cuda_unavailable":
        for sort, pattern, domains, meaning in _UNAVAILABLE:
            if pattern.search(record.text):
                detail["unavailable"] = sort
                return make(
                    FACTS, kind, record, rank=_rank(record), detail=detail, domains=domains, meaning=meaning
                )
    if kind == "cuda_oom" and cuda_memory.is_of_host(record.text):
        kind = "host_memory_error"
    if kind == "cuda_oom":
        detail |= cuda_memory.about(record.text)
    return make(FACTS, kind, record, rank=_rank(record), detail=detail)


def _rank(record: Record) -> int | None:
    if record.rank is not None:
        return record.rank
    found = re.search(r"\[(?:PG[^\]]{0,120} )?Rank (\d{1,8})\]", record.text)
    return int(found[1]) if found else None


def _of_number(found: re.Match[str] | None) -> str | None:
    """The kind of an error that only its number names."""
    return _NUMBERS.get(int(next(filter(None, found.groups())))) if found else None


def _recognised(text: str) -> tuple[str, re.Match[str]] | None:
    """The kind of an error and where it stands; None where no CUDA library speaks."""
    if found := _DEVICE_ASSERT.search(text):
        return "cuda_device_assert", found
    if found := _TORCH_OOM.search(text):
        return "cuda_oom", found
    if found := _LIBRARY.search(text):
        return kind_of(text[found.start() :]) or kind_of(text) or "cuda_library_error", found
    if found := _ANCHOR.search(text):
        kind = kind_of(found[0]) or kind_of(next((g for g in found.groups() if g), found[0]))
        return kind or _of_number(_NUMBERED.search(text)) or "cuda_error", found
    if (found := _NUMBERED.search(text)) and (kind := _of_number(found)):
        return kind, found
    if found := _NVML.search(text):
        kind = kind_of(found["text"] or found["slurm"] or found["smi"])
        if found["smi"] and kind in (None, "cuda_unknown_error"):
            kind = "cuda_unavailable"
        return (kind, found) if kind else None
    if found := _PHRASE.search(text):
        kind = kind_of(found[0]) or "cuda_error"
        number = _ITS_NUMBER.match(text, found.end())
        if _NAMES_CUDA.search(text) or (number and _NUMBERS.get(int(number[1])) == kind):
            return kind, found
    if found := _STREAM.search(text):
        return "cuda_error", found
    if found := _HANDLE.search(text):
        return ("cuda_device_lost" if "lost" in text.lower() else "cuda_unavailable"), found
    return None


_STRICT_END = re.compile(
    r"uncorrectable (?:ECC|NVLink) error(?: encountered| detected)?|GPU is lost|fallen off the bus|"
    r"(?:cuda|hip)Error\w+|CUDA_ERROR_\w+|invalid access of peer GPU memory over nvlink or a hardware error",
    re.IGNORECASE,
)


def is_reported(kind: str, text: str, found: re.Match[str], *, quoted: bool = False) -> bool:
    """Whether the error is reported, not mentioned; strict for errors that only hardware can cause."""
    if kind not in ONLY_HARDWARE:
        return quoted or not mention.is_mentioned(text, found.start())
    ends = [m.end() for m in _STRICT_END.finditer(text, found.start())]
    return mention.is_reported(text, found.start(), ends[-1] if ends else found.end(), quoted=quoted)


_NO_DEVICES = re.compile(r"\s{0,8}No (?:CUDA |GPU )?devices(?: were found| found)?[.!]?$")
_UCX = re.compile(r"\bUCX {1,4}(?:ERROR|WARN)\b")
_TRIED = re.compile(r"(?:[\d.: -]{8,30})?I \S{1,200}\.cc:\d{1,6}\] failed to allocate ")
"""TensorFlow tries again with less; `precedence.named_before` takes it for what failed for want of memory."""
_CACHE = re.compile(r"\bMIOpen Error: .{0,400}\b(?:SQLite|database|[\w-]{1,80}\.[uk]db)\b")
"""MIOpen's cache of tuned kernels. What it cannot do without is an exception of the call that follows."""
_INITIALISED = re.compile(r"\S{1,400}\.py:\d{1,7}: UserWarning: CUDA initialization: (?P<why>\S.{0,400})")
"""PyTorch's warning when no GPU works: many programs go on without one, others end later, by an exception of any name."""


def read(record: Record, context: JoblogContext) -> JobFinding | None:
    """An error line; the advice that PyTorch prints under it is none, and an error that is only mentioned is none."""
    text = record.text
    if found := _INITIALISED.match(text):
        kind = kind_of(found["why"].partition(" - ")[0]) or "cuda_unavailable"
        unavailable = finding(kind, record, no_gpu=True)
        return replace(unavailable, role=LineRole.OBSERVATION)
    if advice := _ADVICE.search(text):
        text = text[: advice.start()]
    if _NO_DEVICES.match(text):
        # nvidia-smi and others print it and the job may go on without a GPU.
        return finding("cuda_unavailable", record, handled=True)
    below = _BELOW_FILE.match(text) if context.head.startswith(_IN_FILE) else None
    if below and context.announced(record.line):
        context.head_line = 0
        return finding(kind_of(below[1]) or "cuda_error", record)
    if _HIP_BINARY.match(text):
        return finding("cuda_version", record)
    recognised = _recognised(text)
    if recognised is None or not is_reported(recognised[0], text, recognised[1]):
        return None
    kind, found = recognised
    if _UCX.search(text) and kind not in ONLY_HARDWARE:
        # A transport that cannot be used is mostly left for another one.
        return finding(kind, record, weak=True)
    if kind in ONLY_HARDWARE and not mention.names_reporter(text, found.start()):
        return finding(kind, record, unattributed=True)
    if labels.is_source_warning(text):
        return finding(kind, record, warned=True)
    if _TRIED.match(text):
        return replace(finding(kind, record), role=LineRole.OBSERVATION)
    if "failed call to cuInit" in text or _CACHE.search(text):
        # TensorFlow goes on without a GPU, MIOpen without its cache. Only on a node with GPUs a driver does not fit.
        unfit = {"no_gpu": True, "only_for": "tensorflow"} if kind == "cuda_version" else {}
        return finding(kind, record, handled=True, **unfit)
    return finding(kind, record)


_DRIVER_CALLS = ("Ctx", "Mem", "Ipc", "Stream", "Event", "Device", "Module", "Launch", "Init", "Func", "Pointer", "Multicast")  # fmt: skip

FAMILY = grammar.LogFamily(
    name="cuda",
    expects=JoblogContext.announced,
    triggers=(
        "CUDA", "cuda", "(error-code ", "Error text: ", "call to cu",
        *(f"cu{part}" for part in _DRIVER_CALLS), "HIP error", "hipError", " out of memory", ": out_of_memory",
        "OUT_OF_DEVICE", "access fault", "OutOfMemoryError", "RESOURCE_EXHAUSTED", "OOM when",
        "Assertion ", "Device-side assertion", "device-side assert", "THCudaCheck", "Cuda ", "CudaMalloc", "hipMalloc", " in HIP ", " in OptiX ", "NVML",
        "nvmlInit", "cuDNN", "unable to find an engine", "NVIDIA driver", "CUBLAS_", "cublas",
        "MIOpen Error", "miopenStatus", "rocBLAS error", "DNN library", "convolution algorithm", "ed to call ",
        "uld not create cu", "GEMM", "launch failure", "cuSolverDN", "HSA_STATUS_ERROR", "Test HIP failure",
        "Resource exhausted", "CUDNN_", "CUSOLVER", "CUSPARSE", "CUFFT", "CURAND_", "device handle", "NVIDIA GPU",
        "nvidia-smi has", "ROCk module", "GPUassert", "GPU memory trying", "unspecified launch",
        "gpu backend", "GPU memory for", "no accelerator", "No accelerator", "supported accelerator", "accelerator is", "GPU device", "GPU or ", "No GPU", "no GPU", "GPU is ", "isible GPU", "devices found for", "requested gpu", "requested to find", "but none ", "infer device type", "OOM during",
        "to synchronize ", "illegal memory access", "No devices", "No GPU devices", "Out of GPU memory",
    ),
    read=read,
    facts=FACTS,
)  # fmt: skip
