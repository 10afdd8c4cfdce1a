"""What the kernel or Slurm printed into a job's output explains its error where the line is the job's own and fits; quoted text does not."""

from __future__ import annotations

import pytest

from probing_cluster.core import vocabulary
from probing_cluster.evidence.joblog import grammar, reader

FAILED = "RuntimeError: CUDA error: unspecified launch failure\n"
BUS = "/var/spool/slurmd/job3/slurm_script: line 4: 711 Bus error               (core dumped) ./solve\n"
OFF = "NVRM: Xid (PCI:0000:1a:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
PAGE = "Memory failure: 0x7c1: Sending SIGBUS to solve:{} due to hardware memory corruption"
MOVED = "slurmstepd: error: couldn't chdir to `/proj/a': No such file or directory: going to /tmp instead\n"
MISSING = 'Traceback (most recent call last):\n  File "/h/a.py", line 3, in f\n    open(p)\nFileNotFoundError: [Errno 2] No such file or directory: '


def first(text: str) -> grammar.JobFinding | None:
    """The first cause."""
    return next((f for f in reader.read(text.split("\n")) if f.first_cause), None)


@pytest.mark.parametrize(
    "prefix", ["[  812.000123] ", "[Mon Mar  4 10:00:01 2024] ", "Mar  4 10:00:01 n7 kernel: "]
)
def test_the_jobs_own_dump_names_what_its_error_does_not(prefix: str) -> None:
    for text, kind in (
        (f"{FAILED}--- dmesg ---\n{prefix}{OFF}\n", "kernel_xid"),
        (f"{BUS}{prefix}{PAGE.format(711)}\n", "kernel_bad_page"),
        (
            f"{BUS}{prefix}MCE 0x7c1: Killing solve:711 early due to hardware memory corruption\n",
            "kernel_bad_page",
        ),
    ):
        found = first(text)
        assert found is not None
        assert (found.kind, found.role) == (kind, grammar.LineRole.ROOT)
        assert found.domains == grammar.ALL_DOMAINS, "the text alone convicts nobody"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (f"{FAILED}he asked what {OFF} means", "cuda_launch_failure"),
        (f"{FAILED}{OFF}", "cuda_launch_failure"),
        (f"[  812.000123] {OFF}\n{FAILED}", "cuda_launch_failure"),
        (f"{FAILED}[  812.000123] {OFF}\n[  812.000199] {OFF.replace('1a', '2b')}", "cuda_launch_failure"),
        (f"{FAILED}[  812.000123] {OFF.replace('79', '31')}", "cuda_launch_failure"),
        (f"{FAILED}[  812.000123] NVRM: Xid (PCI:0000:1a:00): 48, pid=5, name=other, DBE", "cuda_launch_failure"),
        (f"RuntimeError: CUDA out of memory. Tried to allocate 2 GiB\n[  812.000123] {OFF}", "cuda_oom"),
        (f"{BUS}[  812.000123] {PAGE.format(712)}", "bus_error"),
        (f"{BUS}he wrote: {PAGE.format(711)}", "bus_error"),
        (f"{MISSING}'data/a.csv'\n[  812.000123] {OFF}", "python_exception"),
    ],
)  # fmt: skip
def test_another_process_another_error_and_quoted_text_stay_apart(text: str, kind: str) -> None:
    found = first(text)
    assert found is not None
    assert found.kind == kind


def test_a_kernel_line_alone_ends_nothing() -> None:
    assert first(f"[  812.000123] {OFF}\n[  812.000223] {PAGE.format(711)}\ntraining done\n") is None


@pytest.mark.parametrize(
    ("error", "moved"),
    [
        (f"{MISSING}'data/a.csv'", True),
        ("python: can't open file '/tmp/run.py': [Errno 2] No such file or directory", True),
        ("Fortran runtime error: Cannot open file 'mesh.in': No such file or directory", True),
        (f"{MISSING}'/proj/b/a.csv'", False),
        (f"{MISSING}'/tmp/cache/a.csv'", False),
        (
            "Traceback (most recent call last):\n  File \"/h/a.py\", line 3, in f\n    d['k']\nKeyError: 'k'",
            False,
        ),
    ],
)
def test_what_lay_in_the_directory_that_slurm_replaced(error: str, moved: bool) -> None:
    found = first(MOVED + error)
    assert found is not None
    assert (found.kind == vocabulary.DIRECTORY_REPLACED) is moved
    if moved:
        assert found.domains == ("user_program", "system_software"), "a file system may not be mounted"


WATCHED = "watch: [Mon Mar  4 10:00:01 2024] NVRM: Xid (PCI:0000:1a:00): 74, pid={}, name=python, NVLink: fatal error detected on link 8"
NOTICED = "n7:9111:9410 [6] enqueue.cc:1612 NCCL WARN Cuda failure 719 'unspecified launch failure'"


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (WATCHED.format(9111), "kernel_xid"),
        (WATCHED.format(9111).removeprefix("watch: "), "kernel_xid"),
        (WATCHED.format(9112), "cuda_launch_failure"),  # another process
        (WATCHED.format("'<unknown>'"), "cuda_launch_failure"),  # it may be of another job
        (WATCHED.format(9111).replace("74", "31"), "cuda_launch_failure"),  # a program's own fault
        (f"he wrote that {WATCHED.format(9111)}", "cuda_launch_failure"),
    ],
)
def test_a_helper_that_follows_the_kernels_log_names_the_process_that_failed(line: str, kind: str) -> None:
    found = first(f"step 1 loss 3.0\n{line}\n{NOTICED}")
    assert found is not None
    assert (found.kind, found.domains) == (kind, grammar.ALL_DOMAINS)
