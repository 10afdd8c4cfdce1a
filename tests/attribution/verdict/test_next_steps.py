"""The next step: a line of the log if that is the answer, a check if nothing is proven, and no repair on a mere possibility."""

from __future__ import annotations

import pytest

from probing_cluster.attribution.verdict import phrases, taxonomy
from probing_cluster.core import records

C, D = records.Confidence, records.Domain


def unwatched(make, *findings, **over):
    """A job that failed on unwatched nodes."""
    attempt = make.attempt(state="FAILED", exit_code=1, **over)
    return make.judge(*findings, attempt=attempt, watched={})


def line_of(make, kind, message, **detail):
    return make.finding(kind, message=message, detail=detail)


@pytest.mark.parametrize(
    ("kind", "line", "step"),
    [
        ("command_not_found", "job.sh: line 7: gmx_mpi: command not found", "Check its spelling, and have the script load the module "),
        ("cuda_unavailable", "RuntimeError: No CUDA GPUs are available", "Check what the program was shown of its GPUs: CUDA_VISIBLE_DEVICES, "),
        ("kernel_xid", "NVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus.", "Have the kernel log of n2 read for that line "),
        ("kernel_bad_page", "Memory failure: 0x7c1: Sending SIGBUS to a:5 due to hardware memory corruption", "Have the kernel log of n2 read for that line "),
    ],
)  # fmt: skip
def test_the_line_that_says_the_most_is_quoted_and_shown(make, kind, line, step):
    """If only an exit code is known, with the first check and the site's part in it."""
    finding = line_of(make, kind, line)
    made = unwatched(make, finding, nodes=("n2",))
    assert (made.cause, made.confidence) == ("user_error", C.POSSIBLE)
    assert line.rstrip(".") in made.summary
    assert line.rstrip(".") not in made.next_step
    assert made.next_step.startswith(step)
    assert finding.event_id in made.evidence
    assert ("site's" in made.next_step) is (kind != "command_not_found")


def test_an_exit_without_a_word_quotes_none(make):
    """There is nothing to quote."""
    assert unwatched(make).next_step.startswith("Look at the program's own output. If it shows no error")


@pytest.mark.parametrize(
    "line",
    [
        "requests.exceptions.ConnectionError: Max retries (Caused by NameResolutionError(\"Failed to resolve 'hub.org' ([Errno -2]\"))",
        "socket.gaierror: [Errno -3] Temporary failure in name resolution",
    ],
)
def test_a_name_that_could_not_be_looked_up_is_not_the_programs_alone(make, line):
    """The node's name service may be gone; any other exception stays the program's."""
    detail = {"role": "root", "domains": ["user_program"], "first_cause": True}
    made = unwatched(make, line_of(make, "python_exception", line, **detail))
    assert (made.cause, made.confidence) == ("user_error", C.POSSIBLE)
    assert "by itself" not in made.summary
    assert made.next_step.startswith("Check the name, and whether ")
    other = unwatched(make, line_of(make, "python_exception", "KeyError: 'x'", **detail))
    assert other.confidence is not C.POSSIBLE
    assert "by itself" in other.summary


def test_a_licence_that_was_refused_is_not_the_programs_alone(make):
    """The server may be down, or out of licences; the line is quoted."""
    line = "ansys: License checkout failed: FlexNet Licensing error:-15,570. cannot connect to license server system"
    made = unwatched(make, line_of(make, "program_error", line, role="root", domains=["user_program"]))
    assert (made.cause, made.confidence) == ("user_error", C.POSSIBLE)
    assert made.next_step.startswith("Check whether the licence server is up ")
    assert line in made.summary


def test_terms_of_a_licence_that_nobody_accepted_are_no_licence_servers(make):
    line = "ERROR: cannot get the data before its license is accepted"
    made = unwatched(make, line_of(make, "program_error", line, role="root", domains=["user_program"]))
    assert made.cause == "user_error"
    assert "licence server" not in made.next_step


@pytest.mark.parametrize(
    ("licence", "words", "step"),
    [
        ("no_server", "A licence server did not answer", "Check that the licence server is up "),
        ("taken", "All licences of a program were in use", "Start the job again when a licence is free "),
    ],
)
@pytest.mark.parametrize("kind", ["program_error", "python_exception"])
def test_a_licence_server_that_is_down_or_has_none_left_is_not_the_program(make, kind, licence, words, step):
    """The exit code that follows accuses nobody, and the text alone is no proof."""
    detail = {"role": "root", "domains": ["system_software"], "licence": licence, "first_cause": True}
    made = unwatched(make, line_of(make, kind, "solve: no licence", **detail))
    # Of a shortage no operator is to repair anything, on no node.
    short = licence == "taken"
    assert (made.cause, made.confidence) == ("system_services", C.POSSIBLE)
    assert made.domain is (D.UNKNOWN if short else D.SYSTEM_SOFTWARE)
    assert made.component is not None
    name = "licences in use" if short else "licence server"
    assert taxonomy.name(made.cause, made.component) == name
    assert not (short and made.node)
    assert made.summary.startswith(words)
    assert made.next_step.startswith(step)


def test_who_waited_in_vain_is_named(make):
    """A bare timeout points at the ranks that do not tell of it, and at their nodes."""
    timeouts = [line_of(make, "watchdog_timeout", f"[Rank {r}] Watchdog caught collective operation timeout", rank=r, timeout_ms=600_000) for r in (3, 5)]  # fmt: skip
    made = unwatched(make, *timeouts, nodes=("n1", "n2"))
    assert made.cause == "unknown"
    assert made.next_step.startswith("Ranks 3, 5 waited in vain. Look at the other ranks: ")
    assert "n[1-2]" in made.next_step


def test_nothing_is_replaced_for_what_is_only_possible(make):
    """One error of a disk, half a minute before the end; a likely verdict keeps its own step."""
    error = make.event(
        30, kind="block_io", code="io_error", device="sdb", node="n2", severity=records.Severity.LOW
    )
    made = make.judge(error, attempt=make.attempt(state="FAILED", exit_code=1, nodes=("n2",)))
    assert (made.cause, made.confidence) == ("disk", C.POSSIBLE)
    assert made.next_step.startswith("Check sdb of n2 first, since ")
    assert made.next_step.endswith(" replace sdb of n2.")
    lost = make.judge(make.xid(79, 3))
    assert lost.confidence is C.CERTAIN
    assert lost.next_step.startswith("Reseat or replace ")


@pytest.mark.parametrize(
    ("kind", "message", "step"),
    [
        ("disk_full", "OSError: [Errno 28] No space left on device", "df -h"),
        ("disk_full", "OSError: [Errno 122] Disk quota exceeded: '/home/a'", "quota -s"),
        ("disk_full", "disk quota exceeded: shard 12 is not written", "quota -s"),
        ("disk_full", "write /data/a: no space left on device", "df -h"),
        ("memory_corruption", "free(): double free detected in tcache 2", "valgrind"),
        ("memory_corruption", "malloc(): unsorted double linked list corrupted", "valgrind"),
        ("memory_corruption", "*** stack smashing detected ***: terminated", "AddressSanitizer"),
        ("program_error", "/usr/bin/env: ‘julia’: Permission denied", "command -v NAME"),
        ("program_error", "nohup: failed to run command 'julia': Permission denied", "command -v NAME"),
        ("program_error", "env: ‘./solve’: Permission denied", "namei -l PATH"),
        ("too_many_open_files", "OSError: [Errno 24] Too many open files: '/etc/passwd'", "ulimit -n"),
        ("address_in_use", "OSError: [Errno 98] Address already in use", "another port"),
        ("program_error", "java.lang.OutOfMemoryError: Java heap space", "-Xmx"),
        ("program_error", "FATAL ERROR: CALL_AND_RETRY_LAST Allocation failed - JavaScript heap out of memory", "--max-old-space-size"),
        ("program_error", "run.sh: fork: Resource temporarily unavailable", "ulimit -u"),
        ("nccl_system_error", "RuntimeError: NCCL error: unhandled system error", "NCCL_DEBUG=INFO"),
        ("python_consequence", "BrokenProcessPool: A process in the process pool was terminated abruptly", "MaxRSS"),
        ("python_consequence", "ConnectionRefusedError: [Errno 111] Connection refused", "nothing did"),
        ("slurm_launch_failed", "slurmstepd-n1: error: execve(): apptainer: No such file or directory", "load its module"),
        ("slurm_launch_failed", "slurmstepd-n1: error: execve(): bad interpreter(/opt/nope/python): No such file or directory", "first line"),
        ("python_consequence", "ConnectionRefusedError: no answer from the store at st0:7071", "Check host and port"),
        ("program_error", "srun: unrecognized option '--container-image=nvcr.io#nvidia/pytorch:24.01'", "pyxis"),
        ("shm_full", "RuntimeError: DataLoader worker is killed by signal: Bus error. Please try to raise your shared memory limit.", "df -h /dev/shm"),
        ("shm_full", "RuntimeError: DataLoader worker is killed by signal: Bus error", "ask for more (--mem), use fewer loader workers (num_workers)"),
        ("dataloader_crash", "RuntimeError: DataLoader worker (pid(s) 31, 32) exited unexpectedly", "(--mem), see how full /dev/shm"),
        ("command_not_found", "job.sh: line 3: conda: command not found", "outside its environment"),
        ("program_error", "job.sh: line 3: /w/venv/bin/activate: No such file or directory", "path of the environment"),
        ("python_consequence", "BrokenPipeError: [Errno 32] Broken pipe", "`set -o pipefail`"),
        ("program_error", "job.sh: line 3: ./solve: Permission denied", "chmod +x"),
        ("program_error", "job.sh: line 3: ./solve: cannot execute binary file: Exec format error", "`file PATH`"),
        ("program_error", "cp: cannot open '/proj/a': Permission denied", "`namei -l PATH`"),
        ("program_error", "git@code.example.org: Permission denied (publickey).", "known_hosts"),
        ("program_error", 'Lmod has detected the following error: The following module(s) are unknown: "foo/9"', "module spider NAME"),
        ("program_error", "cat: '/proj/a': Is a directory", "that of a directory"),
        ("program_error", "./solve: error while loading shared libraries: libfoo.so.3: cannot open shared object file: No such file or directory", "LD_LIBRARY_PATH"),
        ("import_error", "ImportError: libfoo.so.3: cannot open shared object file: No such file or directory", "ldd PROGRAM"),
        ("program_error", "./solve: /lib64/libm.so.6: version `GLIBC_2.38' not found (required by ./solve)", "modules that the program was built with"),
        ("import_error", "ModuleNotFoundError: No module named 'zarr'", "pip list"),
        ("python_exception", "FileNotFoundError: [Errno 2] No such file or directory: 'in.nc'", "srun ls -l PATH"),
        ("program_error", "job.sh: line 3: syntax error near unexpected token `fi'", "bash -n"),
        ("program_error", "job.sh: line 3: GRID: unbound variable", "`${NAME:-}`"),
        ("program_error", "fit.py: error: unrecognized arguments: --rat", "`--help`"),
        ("bus_error", "job.sh: line 3: 42 Bus error (core dumped) ./solve", "full file system"),
        ("segfault", "job.sh: line 3: 42 Segmentation fault (core dumped) ./solve", "gdb -batch"),
        ("cuda_illegal_access", "CUDA error: an illegal memory access was encountered", "CUDA_LAUNCH_BLOCKING=1"),
        ("program_error", "c.sh: line 2: cd: $'/tmp\\r': No such file or directory", "dos2unix"),
        ("command_not_found", "run.sh: line 3: $'python\\r': command not found", "dos2unix"),
        ("program_error", "/usr/bin/env: ‘python3\\r’: No such file or directory", "dos2unix"),
        ("python_exception", "KeyError: 'loss\\r'", "dos2unix"),
        ("python_exception", "ValueError: bad line: b'OK\\r\\n'", "above that line"),
        ("python_exception", "huggingface_hub.errors.GatedRepoError: 401 Client Error. (Request ID: Root=1-66)", "HF_TOKEN"),
        ("python_exception", "urllib.error.HTTPError: HTTP Error 403: Forbidden", "its login to that server"),
        ("slurm_launch_failed", "FATAL: could not open image /images/a.sif: failed to retrieve path for /images/a.sif: lstat /images: no such file or directory", "srun ls -l PATH"),
        ("program_error", "Fortran runtime error: End of file", "input file"),
        ("cuda_version", "RuntimeError: CUDA error: no kernel image is available for execution on the device", "get_arch_list()"),
        ("python_exception", "wandb.errors.CommError: It appears that you do not have permission to access the requested resource.", "its login to that server"),
        ("python_exception", "requests.exceptions.HTTPError: 429 Client Error: Too Many Requests for url: https://huggingface.co/api", "less often"),
        ("python_exception", "ssl.SSLCertVerificationError: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: unable to get local issuer certificate", "SSL_CERT_FILE"),
        ("python_exception", "sqlite3.OperationalError: database is locked", "SQLite file of its own"),
        ("program_error", "panic: runtime error: index out of range [5] with length 3", "below it where a stack follows"),
        ("program_error", "ERROR: the section of boundaries is empty", "above that line"),
    ],
)  # fmt: skip
def test_an_error_whose_words_show_what_to_do_gets_that_advice_and_is_quoted_once(make, kind, message, step):
    found = make.finding(kind, node="n2", message=message, detail={"role": "root", "first_cause": True})
    v = make.judge(found, attempt=make.attempt(nodes=("n2",), n_gpus=1, gpus=None))
    message = phrases.clean(message)
    assert step in v.next_step
    assert f"{v.summary} {v.next_step}".count(message.rstrip(".")) == 1


@pytest.mark.parametrize(
    ("message", "step"),
    [
        ("huggingface_hub.errors.GatedRepoError: 403 Client Error. Permission denied", "chmod +x"),
        ("OSError: https://store.example.org/a: permission denied", "chmod +x"),
        ("srun: error: Unable to create step for job 7: Access/permission denied", "chmod +x"),
        ("ValueError: parse of line 'Segmentation fault' failed", "gdb"),
        ('KeyError: "Bus error"', "gdb"),
        ("ValueError: no class `Floating point exception`", "gdb"),
    ],
)
def test_words_of_another_place_get_no_advice_about_a_file_or_a_crash(make, message, step):
    """A web service, Slurm, or a text that a program reads."""
    found = make.finding(
        "python_exception", node="n2", message=message, detail={"role": "root", "first_cause": True}
    )
    v = make.judge(found, attempt=make.attempt(nodes=("n2",), n_gpus=1, gpus=None))
    assert step not in (v.next_step or "")


@pytest.mark.parametrize("over", [{"exit_code": 141}, {"exit_code": 0, "exit_signal": 13}, {"exit_code": 13}])
def test_only_a_scripts_own_sigpipe_is_that_of_its_pipe(make, over):
    """A task or a rank wrote into what another process held."""
    attempt = make.attempt(**over)
    tasks = make.finding(
        "task_exit", message="srun: error: n1: tasks 4-5: Broken pipe", detail={"role": "exit"}
    )
    rank = make.finding("nccl_remote_error", message="[rank5]: NCCL error: remote process exited", detail={"role": "remote"})  # fmt: skip
    for found in tasks, rank:
        step = make.judge(found, attempt=attempt).next_step
        assert "nothing went wrong" not in step
        assert "ook at what the program wrote into" in step
    assert "nothing went wrong" in make.judge(attempt=attempt).next_step


def test_a_bus_error_of_another_worker_is_no_lack_of_shared_memory(make):
    """A mapped file on a full or broken disk ends a process in the same way."""
    found = make.finding("program_error", message="RuntimeError: worker 7 killed by signal: Bus error", detail={"role": "root", "first_cause": True})  # fmt: skip
    assert "/dev/shm" not in make.judge(found).next_step


def test_a_job_without_gpus_is_advised_to_ask_for_some(make):
    line = "RuntimeError: No CUDA GPUs are available"
    found = make.finding("cuda_unavailable", message=line, detail={"role": "root", "first_cause": True})
    v = make.judge(found, attempt=make.attempt(nodes=("n2",), n_gpus=0, gpus=None))
    assert "--gres=gpu:N" in v.next_step


def test_a_signal_that_a_job_may_have_asked_for_is_to_be_handled(make):
    """sbatch --signal=USR1@60: nothing handles it."""
    assert "sbatch --signal" in make.judge(attempt=make.attempt(exit_code=0, exit_signal=10)).next_step
    assert "sbatch --signal" not in make.judge(attempt=make.attempt(exit_code=0, exit_signal=11)).next_step


@pytest.mark.parametrize(("code", "step"), [(124, "timeout(1)"), (1, "`grep`")])
def test_an_exit_code_that_shows_what_to_do_gets_that_advice(make, code, step):
    assert step in make.judge(attempt=make.attempt(exit_code=code)).next_step


def test_a_directory_that_slurm_replaced_is_quoted_instead_of_what_was_missing_there(make):
    """The file is where the job did not run."""
    moved = line_of(
        make,
        "directory_replaced",
        "slurmstepd: error: couldn't chdir to `/proj/a'",
        role="root",
        first_cause=True,
    )
    missed = line_of(make, "python_exception", "FileNotFoundError: 'a.csv'", role="root", exception="FileNotFoundError", domains=["user_program"])  # fmt: skip
    v = make.judge(moved, missed, attempt=make.attempt(exit_code=1))
    assert "couldn't chdir" in v.summary
    assert v.confidence is not C.CERTAIN


def test_a_bus_error_that_the_jobs_own_dump_explains_is_not_surely_the_programs(make):
    """The line alone proves no fault of the node's, and the error alone accuses nobody."""
    page = line_of(make, "kernel_bad_page", "Memory failure: 0x7c1: Sending SIGBUS to a:5 due to hardware memory corruption", role="root", first_cause=True)  # fmt: skip
    bus = line_of(make, "bus_error", "slurm_script: line 4: 5 Bus error (core dumped) ./a", role="exit")
    v = make.judge(page, bus, attempt=make.attempt(exit_code=135), watched={})
    assert v.confidence is C.POSSIBLE
    assert "Memory failure" in v.summary


def test_a_kernel_line_in_the_log_of_a_watched_node_is_not_what_to_look_at(make):
    """The node's own kernel log is at hand and lacks it."""
    line = "[1234.5] NVRM: Xid (PCI:0000:d1:00): 79, pid=99, GPU has fallen off the bus."
    quoted = make.finding("kernel_xid", node="n2", message=line)
    one = make.attempt(nodes=("n2",))
    v = make.judge(quoted, attempt=one)
    assert "Xid" not in v.summary + v.next_step
    assert "dmesg" in make.judge(quoted, attempt=one, watched={}).next_step


@pytest.mark.parametrize(
    ("code", "signal", "words"),
    [(4, 0, "was ended by signal 4 (SIGILL)"), (132, 0, "was ended by signal 4 (SIGILL)"), (0, 4, "was ended by signal 4 (SIGILL)")],
)  # fmt: skip
def test_an_illegal_instruction_is_named_with_what_it_usually_means(make, code, signal, words):
    """For a script's 132 Slurm records 4; the log has the shell's words."""
    log = make.finding("process_crashed", message="slurm_script: line 3: 42 Illegal instruction (core dumped) ./crash ill", detail={"role": "exit"})  # fmt: skip
    v = make.judge(log, attempt=make.attempt(exit_code=code, exit_signal=signal))
    assert words in v.summary
    assert "which processor" in v.next_step


@pytest.mark.parametrize(
    ("kind", "message", "about", "step"),
    [
        ("command_not_found", "/var/spool/slurmd/job00012/slurm_script: line 4: module: command not found", {"modules": True}, "begin the script with `#!/bin/bash -l`"),
        ("program_error", "CondaError: Run 'conda init' before 'conda activate'", {}, "begin the script with `#!/bin/bash -l`"),
        ("program_error", "CommandNotFoundError: Your shell has not been properly configured to use 'conda activate'.", {}, "begin the script with `#!/bin/bash -l`"),
        ("program_error", 'Lmod has detected the following error: The following module(s) are unknown: "pytorch/9.1"', {"modules": True}, "correct the module's name"),
        ("program_error", "/var/spool/slurmd/job00012/slurm_script: line 3: /p/venv/bin/activate: No such file or directory", {"modules": True}, "correct the name or path of the environment"),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    ("lacked", "gone"),
    [
        ("import_error", "ModuleNotFoundError: No module named 'flash_attn'"),
        ("program_error", "Error in library(readr) : there is no package called ‘readr’"),
    ],
)
def test_the_step_of_a_missing_package_begins_with_the_set_up_that_failed(make, kind, message, about, step, lacked, gone):  # fmt: skip
    """The package may be in the environment that the script did not get."""
    detail = {"role": "root", "domains": ["user_program"]}
    before = line_of(make, kind, message, line=4, **detail, **about)
    last = line_of(make, lacked, gone, line=9, first_cause=True, **detail)
    v = make.judge(before, last, attempt=make.attempt(nodes=("n2",)))
    first, _, then = v.next_step.partition(" If the package is missing then, too: ")
    assert first.startswith("Mend first what should have set up its environment")
    assert phrases.clean(message).rpartition(": ")[2].rstrip(".") in first
    assert step in first.replace(". B", ". b").replace(". C", ". c")
    assert then.startswith("install the package")
    kept = line_of(make, lacked, gone, line=9, first_cause=True, lacked_before=message, **detail)
    assert make.judge(kept, attempt=make.attempt(nodes=("n2",))).next_step == v.next_step


@pytest.mark.parametrize("message", ["", "/s/slurm_script: line 2: nvidia-smi: command not found"])
def test_no_set_up_is_blamed_for_a_missing_package_where_none_failed(make, message):
    """A command that brings no environment is none; nor does a set-up that failed explain another error."""
    detail = {"role": "root", "domains": ["user_program"], "first_cause": True}
    before = [line_of(make, "command_not_found", message, line=2, weak=True)] if message else []
    gone = line_of(make, "import_error", "ModuleNotFoundError: No module named 'torch'", line=9, **detail)
    step = make.judge(*before, gone, attempt=make.attempt(nodes=("n2",))).next_step
    assert step.startswith("Install the package")
    assert "set up" not in step
    conda = line_of(make, "program_error", "CondaError: Run 'conda init' before 'conda activate'", line=4)
    own = line_of(make, "program_error", "ValueError: bad input", line=9, **detail)
    assert "environment" not in make.judge(conda, own, attempt=make.attempt(nodes=("n2",))).next_step


def test_the_command_that_was_missing_last_is_quoted_and_the_lost_module_function_stands_beside_it(make):
    """A script goes on after a command that its shell did not find: 127 is the code of its last one."""
    typo = "/var/spool/slurmd/job00012/slurm_script: line 9: pyhton3: command not found"
    lacked = "/var/spool/slurmd/job00012/slurm_script: line 2: module: command not found"
    earlier = line_of(make, "command_not_found", lacked.replace("module", "nvidia-smi"), line=3)
    last = line_of(make, "command_not_found", typo, line=9, lacked_before=lacked)
    for first in (earlier, last), (last, earlier):
        v = make.judge(*first, attempt=make.attempt(exit_code=127, nodes=("n2",)))
        assert "its log says: slurm_script: line 9: pyhton3: command not found" in v.summary
        assert "(module: command not found)" in v.next_step
    alone = line_of(make, "command_not_found", typo, line=9)
    assert (
        "environment" not in make.judge(alone, attempt=make.attempt(exit_code=127, nodes=("n2",))).next_step
    )


@pytest.mark.parametrize(
    "why",
    [
        "More processors requested than permitted",
        "Memory required by task is not available",
        "Requested node configuration is not available",
    ],
)
def test_a_step_that_asks_for_more_than_the_job_holds_is_its_owners(make, why):
    line = f"srun: error: Unable to create step for job 115: {why}"
    detail = {"role": "root", "domains": ["user_program"], "first_cause": True}
    v = make.judge(line_of(make, "slurm_launch_failed", line, **detail), attempt=make.attempt(exit_code=1))
    assert (v.cause, v.domain) == ("user_error", D.USER_PROGRAM)
    assert v.next_step.startswith("Ask for as many tasks, CPUs, GPUs and as much memory in sbatch as srun")


@pytest.mark.parametrize(("restarts", "word"), [(0, "likely"), (1, "possible")])
def test_a_step_that_slurm_gives_no_gpus_may_be_slurms_own_mistake(make, restarts, word):
    """A bare srun asks for what the job holds; the same script had its step at the start before."""
    line = "srun: error: Unable to create step for job 115: Invalid generic resource (gres) specification"
    detail = {"role": "root", "domains": ["user_program"], "first_cause": True}
    refused = line_of(make, "slurm_launch_failed", line, **detail)
    v = make.judge(refused, attempt=make.attempt(exit_code=1, restart_count=restarts))
    assert (v.cause, v.confidence) == ("user_error", word)
    assert "slurmctld's log" in v.next_step
    assert "this step asked for more" not in v.next_step
    other = line_of(make, "slurm_launch_failed", "slurmstepd: error: execve(): python9: No such file or directory", **detail)  # fmt: skip
    again = make.judge(other, attempt=make.attempt(exit_code=1, restart_count=restarts))
    assert again.confidence == "likely", "nothing that Slurm counts"


def test_a_command_that_the_script_outlived_stands_beside_the_programs_error(make):
    """A helper was killed, the work began behind it and failed by itself."""
    detail = {"role": "exit", "domains": ["user_program"], "first_cause": True}
    own = line_of(make, "program_error", "validation failed: loss is too high", **detail)
    killed = "slurm_script: line 3: 4242 Killed ./helper"
    v = make.judge(own, line_of(make, "oom_kill_suspected", killed, role="exit", survived=True))
    assert v.cause == "user_error"
    assert "validation failed" in v.summary
    assert (
        "Earlier a signal ended a command of its script, which went on: Killed in `./helper`." in v.next_step
    )
    assert "Earlier" not in make.judge(own).next_step


def test_a_quoted_line_of_the_script_is_whole_and_without_slurms_directory(make):
    """The command that was not found stands at its end, and the sentence before it is not cut away."""
    path = "/tmp/cluster/spool/n1/slurmd/job00001/slurm_script"
    line = line_of(make, "command_not_found", f"{path}: line 4: pyhton: command not found")
    v = make.judge(line, attempt=make.attempt(exit_code=127, nodes=("n2",)))
    assert "its log says: slurm_script: line 4: pyhton: command not found" in v.summary
    assert "…" not in v.summary


def test_a_message_in_another_language_has_the_advice_of_the_english_one(make):
    line, english = "cp: a: Plattenplatz erschöpft", "cp: a: Disk quota exceeded"
    detail = {"role": "root", "first_cause": True, "domains": ["user_program"], "english": english}
    v = make.judge(make.finding("disk_full", message=line, detail=detail))
    assert "quota -s" in v.next_step
    assert line in v.summary


def test_a_dead_worker_of_a_pool_is_not_called_a_victim_of_memory_that_is_ruled_out(make):
    detail = {"role": "root", "first_cause": True, "domains": ["user_program"], "exception": "BrokenProcessPool"}  # fmt: skip
    line = "BrokenProcessPool: A process in the process pool was terminated abruptly"
    step = make.judge(make.finding("python_exception", message=line, detail=detail)).next_step
    assert "mostly" not in step
    assert "Unless the report rules out memory" in step


def test_what_slurm_writes_into_the_log_is_not_the_jobs_own_report(make):
    line = "slurmstepd-n1: error: Detected 1 oom_kill event in StepId=4242.0. Some of the step tasks have been OOM Killed."
    detail = {"role": "end", "first_cause": True}
    v = make.judge(make.finding("slurm_oom", message=line, detail=detail), attempt=make.attempt(exit_code=1))
    assert "the job itself" not in v.summary


@pytest.mark.parametrize(
    ("over", "step"),
    [
        ({"exit_code": 126}, "`ls -l PATH`, then `chmod +x PATH`"),
        ({"exit_code": 127}, "module spider NAME"),
        ({"exit_code": 0, "exit_signal": 8}, "division or remainder by zero"),
        ({"exit_code": 0, "exit_signal": 7}, "full file system"),
        ({"exit_code": 0, "exit_signal": 11}, "gdb -batch"),
        ({"exit_code": 0, "exit_signal": 6}, "lines above the abort"),
        ({"exit_code": 0, "exit_signal": 9}, "`sacct -j 4242 -o"),
    ],
)
def test_an_end_that_only_the_accounting_shows_gets_the_advice_of_its_signal_or_code(make, over, step):
    assert step in make.judge(attempt=make.attempt(**over)).next_step


def test_a_line_that_the_summary_lacks_is_quoted(make):
    """Slurm has the signal, and the log the command that it ended."""
    log = make.finding("process_crashed", message="job.sh: line 3: 42 Floating point exception (core dumped) ./mesh", detail={"role": "exit"})  # fmt: skip
    v = make.judge(log, attempt=make.attempt(exit_code=136))
    assert "mesh" not in v.summary
    assert v.next_step.endswith("Its log says: Floating point exception (core dumped) in `./mesh`.")


def test_an_exception_gets_advice_by_its_own_words_only(make):
    """A file that was missing before, and which the program did without, is not what ended it."""
    detail = {"role": "root", "domains": ["user_program"]}
    own = line_of(make, "python_exception", "KeyError: 'rate'", first_cause=True, exception="KeyError", **detail)  # fmt: skip
    before = line_of(make, "program_error", "cat: old.txt: No such file or directory", **detail)
    v = make.judge(before, own)
    assert "KeyError" in v.summary
    assert "srun ls" not in v.next_step
    assert "the last line of your own code" in v.next_step


@pytest.mark.parametrize("words", ["user: not found", "unknown command 'fit' in the input file"])
def test_something_else_that_is_not_found_is_no_missing_command(make, words):
    found = line_of(make, "program_error", f"solve: {words}", role="root", domains=["user_program"])
    assert "module spider" not in make.judge(found).next_step


def test_a_memory_kill_of_a_step_may_be_of_its_own_limit(make):
    """The job's own number is in the command to see that; what it used, far below what the job had, is no contradiction then."""
    kill = make.event(3, kind="oom", code="memcg", job_id=4242)
    task = make.attempt(exit_code=137, array_job_id=4200, array_task_id=7)
    v = make.judge(kill, attempt=task)
    assert v.cause == "oom_host"
    assert "sacct -j 4200_7 -o JobID,MaxRSS,ReqMem" in v.next_step
    assert "a step with a limit of its own" in v.next_step


def _in_use(make, number, *, port=24117, **detail):
    line = f"DistNetworkError: The server socket has failed to listen on any local network address. port: {port}, code: -98, name: EADDRINUSE, message: address already in use"
    about = {"role": "root", "line": 20 * number, "first_cause": number == 1, **detail}
    return make.finding("address_in_use", message=line, detail=about)


def test_several_errors_of_one_port_may_be_of_the_jobs_own_tasks(make):
    """All tasks with RANK=0 open the port of the first."""
    v = make.judge(*(_in_use(make, n) for n in (1, 2, 3)))
    assert v.next_step.startswith("Use another port")
    assert "whether its own tasks all open it: 3 errors in its log are of port 24117" in v.next_step


@pytest.mark.parametrize(
    "others",
    [[], [{"port": 24118}], [{"rank": 0}, {"rank": 0}]],
)
def test_one_error_or_one_ranks_further_tries_accuse_no_tasks_of_the_job(make, others):
    rank = {"rank": 0} if others and "rank" in others[0] else {}
    found = [_in_use(make, 1, **rank), *(_in_use(make, n, **o) for n, o in enumerate(others, 2))]
    assert "own tasks" not in make.judge(*found).next_step


@pytest.mark.parametrize(
    ("kind", "complaint", "detail", "names"),
    [
        ("command_not_found", "/s/slurm_script: line 2: module: command not found", {"weak": True, "modules": True}, True),
        ("program_error", "/s/slurm_script: 2: source: Permission denied", {}, True),
        ("command_not_found", "/s/slurm_script: line 2: nvidia-smi: command not found", {}, False),
        ("program_error", "/s/slurm_script: 2: /data/source: Permission denied", {}, False),
    ],
)  # fmt: skip
def test_a_set_up_that_failed_stands_beside_a_file_that_is_missing_then(make, kind, complaint, detail, names):
    """What brings no environment does not."""
    about = {"role": "root", "domains": ["user_program"]}
    before = line_of(make, kind, complaint, line=2, **about, **detail)
    gone = line_of(make, "python_exception", "python: can't open file 'fit.py': [Errno 2] No such file or directory", line=5, first_cause=True, exception="FileNotFoundError", **about)  # fmt: skip
    step = make.judge(before, gone, attempt=make.attempt(exit_code=2, nodes=("n2",))).next_step
    assert ("did not set up its environment" in step) is names
    other = line_of(make, "python_exception", "KeyError: 'a'", line=5, first_cause=True, exception="KeyError", **about)  # fmt: skip
    step = make.judge(before, other, attempt=make.attempt(nodes=("n2",))).next_step
    assert "environment" not in step


@pytest.mark.parametrize(
    ("code", "command", "step"),
    [
        (127, "mdrunn", "module spider NAME"),
        (126, "mdrunn", "chmod +x"),
        (127, "./mdrunn", "chmod +x"),
    ],
)
def test_a_command_that_no_readable_directory_of_path_has_was_not_found(make, code, command, step):
    """Shells say `Permission denied` of it, and end with 127."""
    for place in ("4", "line 4"):
        line = f"/s/slurm_script: {place}: {command}: Permission denied"
        found = line_of(make, "program_error", line, role="root", domains=["user_program"], first_cause=True)
        v = make.judge(found, attempt=make.attempt(exit_code=code, nodes=("n2",)))
        assert step in v.next_step


def test_no_traceback_is_promised_where_the_log_may_have_none(make):
    about = {"role": "root", "domains": ["user_program"], "first_cause": True, "exception": "RuntimeError"}
    step = make.judge(line_of(make, "python_exception", "RuntimeError: no more shards", **about)).next_step
    assert "if a traceback stands there" in step


@pytest.mark.parametrize(
    ("message", "ruled_out", "step"),
    [
        ("OSError: [Errno 5] Input/output error: '/proj/shard-7'", False, "df -h PATH"),
        ("KeyError: '/proj/shard-7'", True, "own output"),
        ("UCX ERROR ibv_post_send() failed: Input/output error", True, "own output"),
    ],
)
def test_an_io_error_of_the_programs_own_output_clears_no_file_system(make, message, ruled_out, step):
    """A server's fault need not show on the node; UCX calls its own failures so, and no file is in them."""
    kind = "io_error" if message.startswith("OSError") else "python_exception"
    detail = {"role": "root", "first_cause": True, "goes_on": True, "behind": 2, "domains": ["hardware", "system_software"]}  # fmt: skip
    v = make.judge(line_of(make, kind, message, **detail), attempt=make.attempt(nodes=("n2",)))
    assert any("file systems" in words for words in v.ruled_out) is ruled_out
    assert step in v.next_step


@pytest.mark.parametrize(
    ("line", "domains", "confidence", "step"),
    [
        ("watch: FATAL: GPU 3 on n2 is in HW thermal slowdown, ending the job", ["user_program", "hardware"], C.POSSIBLE, "Have n2 looked at for what that line names"),
        ("Fatal error in PMPI_Init: Other MPI error", ["user_program", "system_software", "hardware"], C.POSSIBLE, "Have n2 looked at for what that line names"),
        ("solve: error: the mesh has no cells", ["user_program"], C.LIKELY, "Look at the program's own output"),
    ],
)  # fmt: skip
def test_an_error_that_may_be_the_machines_is_not_surely_the_programs(make, line, domains, confidence, step):
    """The program's own words convict no machine, and the machine's state does not convict the program."""
    detail = {"role": "root", "domains": domains, "first_cause": True}
    made = unwatched(make, line_of(make, "program_error", line, **detail), nodes=("n2",))
    assert (made.cause, made.confidence) == ("user_error", confidence)
    assert made.next_step.startswith(step)


@pytest.mark.parametrize(
    ("line", "fault", "cause"),
    [
        ("watch: FATAL: GPU 3 on n2 is in HW thermal slowdown, ending the job", {"kind": "thermal", "code": "critical"}, "thermal_power"),
        ("watch: FATAL: GPU 3 on n2 is in HW thermal slowdown, ending the job", {"kind": "ib_link", "code": "down", "device": "mlx5_0"}, "user_error"),
        ("MPIDI_OFI fi_getinfo() failed: No data available", {"kind": "ib_link", "code": "down", "device": "mlx5_0"}, "ib_link"),
        ("MPIDI_OFI fi_getinfo() failed: No data available", {"kind": "power", "code": "supply_failure"}, "user_error"),
        ("MPIDI_OFI fi_getinfo() failed: No data available", {"kind": "disk", "code": "nvme_reset", "device": "nvme0"}, "user_error"),
        ("solve: error: nobody knows what it lacks", {"kind": "thermal", "code": "critical"}, "user_error"),
    ],
)  # fmt: skip
def test_only_a_fault_of_the_part_that_an_undecided_error_names_explains_it(make, line, fault, cause):
    """Where the fault is of another part, the program's error is no surer for that."""
    domains = ["user_program", "system_software", "hardware"]
    error = make.finding("program_error", message=line, detail={"role": "root", "domains": domains, "first_cause": True})  # fmt: skip
    made = make.judge(make.event(30, **fault), error)
    assert made.cause == cause
    assert cause != "user_error" or made.confidence is C.POSSIBLE
