"""What only a GPU's hardware can say is read in every program's own wrapping, and is nobody's error but the hardware's."""

from __future__ import annotations

import pytest

from probing_cluster.evidence.joblog import reader

ECC = "uncorrectable ECC error encountered"
REPORTED = [
    f"[rank3]:[E1029 10:10:10.1 ProcessGroupNCCL.cpp:1595] [PG ID 0 PG GUID 0(default_pg) Rank 3] Process group watchdog thread terminated with exception: CUDA error: {ECC}",
    f"  9%|9 | 2/23 [00:08<01:20,  3.82s/it][rank1]:[E129 08:52:51.6 ProcessGroupNCCL.cpp:1595] [PG ID 2 PG GUID 3 Rank 1] Process group watchdog thread terminated with exception: CUDA error: {ECC}",
    f"  what():  [PG ID 2 PG GUID 3 Rank 1] Process group watchdog thread terminated with exception: CUDA error: {ECC}",
    "numba.cuda.cudadrv.driver.CudaAPIError: [214] Call to cuMemcpyDtoH results in CUDA_ERROR_ECC_UNCORRECTABLE",
    "openmm.OpenMMException: Error downloading array posq: CUDA_ERROR_ECC_UNCORRECTABLE (214)",
    f"Error: {ECC} launching kernel kNLSkinTest",
    f"cudaMemcpy GpuBuffer::Download failed {ECC}",
    f"FATAL ERROR: CUDA error cudaStreamSynchronize(stream) in file src/CudaUtils.C, function f, line 77 on Pe 3 (n7 device 0 pci 0:1:0): {ECC}",
    f"[01/02/2024-10:10:10] [TRT] [E] 1: [runner.cpp::execute::226] Error Code 1: Cuda Runtime ({ECC})",
    f"onnxruntime.capi.onnxruntime_pybind11_state.Fail: [ONNXRuntimeError] : 1 : FAIL : CUDA failure 214: {ECC} ; GPU=1 ; hostname=n7",
    "RuntimeError: CUDA runtime API error cudaErrorECCUncorrectable (214):",
    f"Fatal error:\nUnexpected cudaStreamQuery failure: {ECC}. CUDA error #214 (cudaErrorECCUncorrectable): {ECC}.",
    f"CUDA error 214 [main.cu, 77]: {ECC}",
    f"cuda error: {ECC}",
]
MENTIONED = [
    f"ValueError: the answer was '{ECC}'",
    f"KeyError: {ECC} is what my program printed last week, so I rebooted it",
    f'AssertionError: expected "CUDA error: {ECC}" in the output',
]


@pytest.mark.parametrize("text", REPORTED)
def test_it_is_the_hardwares_whoever_says_it(text: str) -> None:
    """Process groups with tags, bindings, MD codes, inference engines."""
    assert [f.kind for f in reader.read(text.split("\n")) if f.first_cause] == ["cuda_ecc"]


@pytest.mark.parametrize("text", MENTIONED)
def test_it_convicts_nobody_where_it_is_told(text: str) -> None:
    """An exception that quotes it, or a sentence around it."""
    assert not [f for f in reader.read([text]) if f.kind == "cuda_ecc"]


@pytest.mark.parametrize(
    ("statement", "alone"),
    [
        ("GPU 3 on n7 is in HW thermal slowdown for more than 90 s, ending the job", False),
        ("power brake on GPU 3 of n7, stopping this run", False),
        ("GPU 3 overheated; aborting the training", False),
        ("GPU 3 on n7 is in HW thermal slowdown for more than 90 s", True),  # it may go on
        ("no GPU is in thermal slowdown, ending the job for its loss", True),
        ("ending the job for a thermal slowdown of the reactor", True),
        ("unknown action 'rest' for an overheated GPU, ending the job", True),
        ("unknown action 'rest' for GPU 3, overheated, ending the job", True),
        ("thermal slowdown or no memory on GPU 3, ending the job", True),
        ("GPU watch: thermal slowdown or no memory, ending the job", True),
    ],
)
def test_a_watcher_that_ends_the_job_for_a_gpus_state_does_not_accuse_the_program(
    statement: str, alone: bool
) -> None:
    text = f'step 1 loss 3.0\nwatch: FATAL: {statement}\nTraceback (most recent call last):\n  File "t.py", line 3, in f\nwatch.Stopped: 1 of 8 is slow'
    found = next(f for f in reader.read(text.split("\n")) if f.first_cause)
    assert (found.line == 5, found.domains == ("user_program",)) == (alone, alone)


def test_what_a_program_names_itself_counts_before_its_watcher() -> None:
    text = 'watch: FATAL: GPU 3 overheated, ending the job\nTraceback (most recent call last):\n  File "t.py", line 3, in f\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB.'
    assert next(f for f in reader.read(text.split("\n")) if f.first_cause).kind == "cuda_oom"
