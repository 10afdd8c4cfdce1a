"""The same failures in other schedulers', shells' and libraries' words; the first cause among what follows from it."""

from __future__ import annotations

from collections.abc import Sequence

from probing_cluster.evidence.joblog import reader, unfold
from probing_cluster.evidence.joblog.grammar import JobFinding
from tests.every_case import every

FIRST: list[tuple[str, int, str]] = [
    # text, line of the first cause (0: none), its kind
    ("RuntimeError: TensorStorage /w/tensor.h 12\ncuda failed with error 2 out of memory. see above", 2, "cuda_oom"),
    ("2025-01-02 03:04:05.678901: E xla/util.cc:9]   OP_REQUIRES failed at op.cc:1 : RESOURCE_EXHAUSTED: Attempting to reserve 9.1G at the bottom of memory.", 1, "cuda_oom"),
    ("RuntimeError: Bad StatusOr access: RESOURCE_EXHAUSTED: Error allocating device buffer: Attempting to allocate 7M.", 1, "cuda_oom"),
    ("jaxlib.XlaRuntimeError: RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm.", 1, "cuda_oom"),
    ("[1]    8123 killed     python train.py --big", 1, "oom_kill_suspected"),
    ('epoch 1\nTraceback (most recent call last):\n  File "train.py", line 9, in <module>\n    main()\n  File "train.py", l', 2, "python_exception"),
    ('Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n    main()\nKeyError: 1\n', 4, "python_exception"),
    ('RuntimeError: CUDA out of memory. Tried to allocate 2 GiB\nTraceback (most recent call last):\n  File "t.py", line 9, in f\n', 1, "cuda_oom"),
    ('Exception ignored in: <function f>\nTraceback (most recent call last):\n  File "t.py", line 9, in f\n    g()\n', 0, ""),
    ("zsh: segmentation fault (core dumped)  ./a.out", 1, "segfault"),
    ("(raylet) node_manager.cc:9: 3 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed", 1, "host_oom_kill"),
    ("(raylet) node_manager.cc:9: 0 Workers (tasks / actors) killed due to memory pressure (OOM), 1 Workers crashed", 0, ""),
    ("[2025-01-02 03:04:05,678 E 1 1] (raylet) node_manager.cc:9: System memory low at node with IP 10.0.0.1. Used memory\n\nray.exceptions.WorkerCrashedError: The worker died unexpectedly while executing this task.", 1, "host_oom_kill"),
    ("src/tcmalloc.cc:3] Attempt to free invalid pointer 0x7f\nrun.sh: line 4: 99 Aborted  (core dumped) python a.py", 1, "memory_corruption"),
    ("ValueError: no such layer\nEpoch 2:  9%| 19/214 [00:16<02:46, 1.4it/s]\n      free(): invalid pointer   \nAborted (core dumped)", 1, "python_exception"),
    ("tensorflow.errors_impl.UnavailableError: Socket closed", 1, "python_consequence"),
    ("F tensorflow/stream/statusor.cc:34] Attempting to fetch value instead of handling error Internal: failed call to cuCtxCreate: CUDA_ERROR_ECC_UNCORRECTABLE: uncorrectable ECC error encountered", 1, "cuda_ecc"),
    ("The user asks whether a job may go on after CUDA_ERROR_ECC_UNCORRECTABLE: uncorrectable ECC error encountered", 0, ""),
    ("F a/b.cc:1] the manual says what to do about an uncorrectable ECC error encountered by others", 0, ""),
    ("TERM_OWNER: job killed by owner.\nExited with exit code 143.", 1, "slurm_cancelled"),
    ("TERM_ADMIN: job killed by root or LSF administrator.", 1, "slurm_cancelled"),
    ("TERM_RUNLIMIT: job killed after reaching LSF run time limit.", 1, "slurm_timeout"),
    ("TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.", 1, "slurm_oom"),
    ("=>> PBS: job killed: walltime 3624 exceeded limit 3600", 1, "slurm_timeout"),
    ("=>> PBS: job killed: mem 8392704kb exceeded limit 8388608kb", 1, "slurm_oom"),
    ("W0227 17:39:41.9 29 torch/distributed/elastic/agent/server/api.py:719] Received 15 death signal, shutting down workers", 1, "process_terminated"),
    ("Received 15 death signal, shutting down workers\nslurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2025-01-02T03:04:05 DUE TO TIME LIMIT ***", 2, "slurm_timeout"),
    ("train.sh: 1: srun: not found", 1, "command_not_found"),
    ("bash: line 3: singularity: command not found\nsrun: error: n1: task 0: Exited with exit code 127", 1, "command_not_found"),
    ("/etc/profile: line 9: module: command not found\nloading\nepoch 1\nsaved\ndone", 0, ""),
    ("[2025-07-05T14:11:11.152] [51.0] error: pyxis: couldn't start container", 1, "slurm_launch_failed"),
    ("slurmstepd: error: pyxis: seccomp filter failed\nslurmstepd: error: spank: required plugin spank_pyxis.so: task_init() failed with rc=-1", 1, "slurm_launch_failed"),
    ("slurmstepd: error: pyxis: failed to remove container filesystem x", 0, ""),
    ("[n24:mpi_rank_24][error_sighandler] Caught error: Segmentation fault (signal 11)", 1, "segfault"),
    ("[2025-07-28 11:07:56] Child process unexpectedly failed with exitcode=134. pid=19", 1, "process_aborted"),
    ("[Mon Jun 23 19:39:31 2025] python3[307]: segfault at 60 ip 00007f24b8cf2616 sp 00007ffc0f2 error 4 in libx.so[7f+5]", 1, "segfault"),
    ("n1:18569:18835 [0] bootstrap.cc:131 NCCL WARN Bootstrap Root : rank 1 of 8 ranks has already checked in", 1, "nccl_invalid_usage"),
    ("n1:430:2237 [0] include/topo.h:27 NCCL WARN Could not find real path of /sys/class/pci_bus/0000:02", 1, "nccl_system_error"),
    ('[ERROR] 2025-09-13 22:18:26,678 error_handler: {\n  "message": {\n    "message": "RendezvousConnectionError: The connection to the C10d store has failed.",', 3, "rendezvous_failed"),
    ("RuntimeError: unable to open shared memory object </torch_1_2> in read-write mode", 1, "shm_full"),
    ("RuntimeError: unable to open shared memory object </torch_1_2> in read-write mode: Too many open files (24)", 1, "too_many_open_files"),
    ("ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 80): address already in use", 1, "address_in_use"),
    ("Traceback (most recent call last):\n  File \"a.py\", line 1, in <module>\n    f()\ntorch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised:\nFileNotFoundError: [Errno 2] No such file or directory: 'gcc'", 5, "python_exception"),
    ("step 1\nbash: line 1:     8 Segmentation fault      (core dumped) ./solver in.dat\nreal 0.01\nuser 0.00\nsys 0.01", 2, "segfault"),
    ("epoch 1\n已杀死", 2, "oom_kill_suspected"),
    ("epoch 1\nTerminado (killed)", 2, "oom_kill_suspected"),
    ("cell 7: Morto\ncell 8\nMorto", 0, ""),
    ("F0102 03:04:05.678901 11 math_functions.cu:9] Check failed: status == CURAND_STATUS_SUCCESS (201 vs. 0)  CURAND_STATUS_LAUNCH_FAILURE", 1, "cuda_library_error"),
    ("Fatal error: cannot open file 'fit/all.R': No such file or directory\n['a', 'b']\nfit of a\nfit of b\nfit of c\n['c']", 1, "program_error"),
    ("Open_input_file: error opening relax.in\n\n %%%%%%%\n     Error in routine read_input (2):\n     opening input file\n %%%%%%%", 1, "program_error"),
    ("1) 保存\n強制終了\nepoch 2", 0, ""),
    ("rng.cu(45): warning: enumeration value\n   45 |     case CURAND_STATUS_LAUNCH_FAILURE:\nCURAND_STATUS_LAUNCH_FAILURE = 201\nepoch 1", 0, ""),
    ("./reset: symbol lookup error: ./libx.so: undefined symbol: y", 1, "program_error"),
    ("x86_64-linux-gnu-ld: lib.a(m.o): in function `f(int)':\nm.cpp:(.text+0x5): multiple definition of `f(int)'; g.o:g.cpp:(.text+0x8): first defined here\nx86_64-linux-gnu-ld: NOTE: This behaviour is deprecated", 2, "program_error"),
    ("tput: symbol lookup error: tput: undefined symbol: _nc_x\nTraceback (most recent call last):\nKeyError: 'x'", 3, "python_exception"),
    ("WARNING: Skipping mount /etc/resolv.conf [files]: doesn't exist in container\njava.lang.RuntimeException: no genome x\n\tat org.a.Main.run(Main.java:9)", 2, "program_error"),
    ("step 1\nWARNING: no cache x\njava.lang.OutOfMemoryError: Java heap space\n\tat org.a.Main.run(Main.java:9)\nwill retry\nstep 2\nstep 3\nstep 4\nstep 5", 0, ""),
    ("Jan 02, 2026 3:04:05 PM org.a.cache.Store load\nWARNING: no cache\njava.lang.RuntimeException: no cache x\n\tat org.a.Main.run(Main.java:9)", 0, ""),
    ("the report on NODE FAILURE rates of 2024", 0, ""),
    ("srun: error: Node failure on n7", 1, "slurm_node_fail"),
    ("slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2025-01-02T03:04:05 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***", 1, "slurm_node_fail"),
]  # fmt: skip


def _first(texts: Sequence[str]) -> JobFinding | None:
    return next((f for f in reader.read(texts) if f.first_cause), None)


@every(("text", "line", "kind"), FIRST)
def test_the_first_cause_in_other_words(text: str, line: int, kind: str) -> None:
    """The line and the kind; where nothing failed, nothing is said."""
    found = _first(text.split("\n"))
    assert (found and (found.line, found.kind)) == ((line, kind) if line else None)


@every(
    ("text", "own"),
    [
        ("srun: error: Unable to create step for job 7: Invalid generic resource (gres) specification", True),
        ("slurmstepd: error: execve(): python9: No such file or directory", True),
        ("slurmstepd: error: execve(): /var/spool/job7/slurm_script: No such file or directory", False),
        ("FATAL:   container creation failed: mount /a->/a error: mount source /a doesn't exist", True),
        ("FATAL: could not open image /i/x.sif: no such file or directory", True),
        ("docker: Error response from daemon: exec: \"/bin/bash\": stat /bin/bash: no such file or directory", True),
        ("slurmstepd: error: pyxis:     [ERROR] No such file or directory: /i/x.sqsh", True),
        ("slurmstepd: error: pyxis: failed to import docker image", False),
        ("slurmstepd: error: pyxis: couldn't start container", False),
        ("sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)", False),
        ("nvidia-container-cli: initialization error: nvml error: driver not loaded", False),
        ("[ERROR] /etc/enroot/hooks.d/98-nvidia.sh: no such file or directory", False),
    ],
)  # fmt: skip
def test_a_launch_that_failed_is_the_jobs_own_mistake_or_the_sites(text: str, own: bool) -> None:
    """What the job asked for and is not there speaks for the program alone."""
    found = _first([text])
    assert found is not None
    assert found.kind == "slurm_launch_failed"
    assert (found.domains == ("user_program",)) is own


@every(
    ("text", "sort"),
    [
        ("CUDA error: invalid device ordinal", "ordinal"),
        ("THCudaCheck FAIL file=/a.cpp line=50 error=802 : system not yet initialized", "not_ready"),
        ("RuntimeError: Found no NVIDIA driver on your system.", "no_driver"),
        ("RuntimeError: No CUDA GPUs are available", None),
    ],
)
def test_what_stands_between_a_program_and_its_gpus(text: str, sort: str | None) -> None:
    """The words tell a wrong number from a driver that is not ready; a lost GPU is none of them."""
    found = _first([text])
    assert found is not None
    assert (found.kind, found.detail.get("unavailable")) == ("cuda_unavailable", sort)
    assert found.domains != ("hardware",)


def test_a_stale_handle_of_a_lock_file_is_marked() -> None:
    """The frames nearest to it say that a library of locks met it; the same error of a plain write is not marked."""
    error = "OSError: [Errno 116] Stale file handle"
    locked = ["Traceback (most recent call last):", '  File "/v/filelock/_unix.py", line 4, in _release', "    os.close(fd)", error]  # fmt: skip
    plain = ["Traceback (most recent call last):", '  File "/v/train.py", line 4, in save', "    f.write(x)", error]  # fmt: skip
    found, other = _first(locked), _first(plain)
    assert found is not None
    assert other is not None
    assert found.kind == other.kind == "stale_file_handle"
    assert found.detail.get("locks") is True
    assert "locks" not in other.detail


TRACE = ["Traceback (most recent call last):", '  File "/home/u/run.py", line 4, in <module>', "    main()"]
STEPS = [f"2026-03-04 05:06:{s:02d},001 make.py INFO part 2/9: {1000 * s}/9000 done, {900 + s} tok/s" for s in range(1, 6)]  # fmt: skip


@every(
    ("lines", "kind", "line"),
    [
        (["{\bError using load_rows (line 12)", "The table 'a.csv' could not be opened", "", "Error in main (line 3)", "}\b"], "program_error", 2),
        (["a.cpp:7:3: error: 'area' is not a member of 'geo'", *(f'  {n} |   f("m",geo::area,{n}.0);' for n in (7, 9, 11, 14)), "a.cpp:90:3: error: 'b' was not declared in this scope", "make: *** [Makefile:4: a.o] Error 1"], "program_error", 1),
        (["/opt/gcc/include/c++/14/type_traits(160): error: identifier \"__x\" is undefined", "/opt/gcc/include/c++/14/bits/a.h(19): error: type name is not allowed", "2 errors detected in the compilation of \"a.cu\".", "make: *** [Makefile:4: a.o] Error 2"], "program_error", 1),
        (["activate: No such file or directory."], "program_error", 1),
        (["n1: u@n1: Permission denied (publickey,password).", "pdsh@n0: n1: ssh exited with exit code 255"], "program_error", 1),
        (["2026-01-05 18:49:57,550 [Runner] [INFO ]  /bin/bash: line 1: dock6: command not found"], "command_not_found", 1),
        (["=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES", "=   PID 4827 RUNNING AT n1", "=   EXIT CODE: 15", "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Terminated (signal 15)"], "process_terminated", 3),
        (["slurmstepd: error:  mpi/pmix_v4: _pmix_p2p_send_core: n4 [0]: pmixp_utils.c:408: Can't find address for host n5, check slurm.conf"], "slurm_launch_failed", 1),
        (["[Rank 1] CUDA error in src/mesh_mpi.cu:88: named symbol not found (500)", "MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD"], "cuda_error", 1),
        (["MOAB_INFO:  job exceeded wallclock limit"], "slurm_timeout", 1),
        (["docker: Error response from daemon: failed to create shim task: OCI runtime create failed: error running hook #0: exit status 1, stderr: Auto-detected mode as 'legacy'", "nvidia-container-cli: initialization error: nvml error: driver/library version mismatch: unknown."], "cuda_version", 2),
        (["     from read_cell : error #         3", "     lattice vectors are not given"], "program_error", 2),
        (["terminate called after throwing an instance of 'std::system_error'", "  what():  Transport endpoint is not connected", TRACE[0], '  File "/usr/lib/python3.12/multiprocessing/spawn.py", line 126, in _main', "    self = reduction.pickle.load(from_parent)", "_pickle.UnpicklingError: pickle data was truncated"], "program_error", 2),
        (["[170.1] [n1:1:0]  ib_md.c:438  UCX  ERROR ibv_reg_mr(address=0x60, length=10, access=0xf) failed: Cannot allocate memory"], "program_error", 1),
        (["Error in sys.excepthook:", *TRACE, "tracker.errors.UploadError: Caused by:", "", "Original exception was:", *TRACE, "KeyError: 'lr'"], "python_exception", 11),
        ([*TRACE, "ValueError: in user code:", "", "    /opt/tf/training.py:805 train_function  *", "        return step(self)", "", "    ValueError: Input 0 of layer pool is incompatible"], "python_exception", 9),
        (["srun: Job step aborted: Waiting up to 32 seconds for job step to finish.", "srun: error: n1: tasks 0,2-3: Killed", "srun: error: n1: task 1: Exited with exit code 2"], "task_exit", 3),
        (["reading the settings", "make_tables failed"], "program_error", 2),
        (["Loading required package: MASS", "Error in names(x) <- value : ", "  'names' attribute [10] must be the same length as the vector [0]", "Calls: colnames<-", "Execution halted"], "program_error", 3),
    ],
)  # fmt: skip
def test_the_first_cause_in_forms_of_round_39(lines: list[str], kind: str, line: int) -> None:
    """MATLAB's backspaces, compilers, csh, ssh, a runner's log, Hydra, PMIx, Moab, Docker, Quantum ESPRESSO, spawned processes, UCX, Keras."""
    (found,) = [f for f in reader.read(lines) if f.first_cause]
    assert (found.kind, found.line) == (kind, line)


@every(
    "lines",
    [
        ["2026-03-04 05:06:00,100 make.py WARNING prompt 7 skipped", *TRACE, "jinja2.exceptions.TemplateError: roles must alternate", *STEPS],
        [*TRACE, "KeyError: 'a'", *STEPS],
        ["running 1 test", "thread 'divides' panicked at src/lib.rs:19:9:", "must not divide by zero", "test result: ok. 1 passed; 0 failed; 0 ignored; finished in 0.00s"],
        ["=== RUN   TestLost", "RuntimeError: out of memory", "--- PASS: TestLost (0.00s)", "PASS", "ok  \texample.org/gpu\t3.2s"],
        ["E48,daemon: Error making map from file <*> Cannot allocate memory"],
        ['SAMPLE = """', "panic: a page was lost", '"""', "failed, total = doctest.testmod(module, globs=env)"],
    ],
)  # fmt: skip
def test_what_ended_nothing_in_forms_of_round_39(lines: list[str]) -> None:
    """A skipped prompt with a logger's dated progress after it, tests that expect errors, log templates, a source file that is printed."""
    assert [f.kind for f in reader.read(lines) if f.first_cause] == []


def test_several_tasks_killed_without_another_tasks_exit_stay_the_cause() -> None:
    """Only a task that ended by itself, in the same words of srun, explains them."""
    lines = ["srun: error: n1: tasks 0,2-3: Killed", "srun: error: n2: task 1: Exited with exit code 2"]
    assert [f.kind for f in reader.read(lines) if f.first_cause] == ["oom_kill_suspected"]


@every("code", ['query = """', "query = '''SELECT", 'self.sql = f"""'])
def test_a_line_of_source_that_a_traceback_quotes_opens_no_printed_text(code: str) -> None:
    """Python shows the first line of a statement of several lines."""
    lines = ["step 1", TRACE[0], TRACE[1], f"    {code}", "KeyError: 'lr'"]
    (found,) = [f for f in reader.read(lines) if f.first_cause]
    assert (found.kind, found.line) == ("python_exception", 5)


@every(
    ("typed", "shown"),
    [
        ("{\bError", "Error"),
        ("|\b/\b-\b\\\bdone", "done"),
        ("12 %\b\b\b\b13 %", "13 %"),
        ("\b\bab", "ab"),
        ("ab\b\b\b\bc", "c"),
        ("plain", "plain"),
    ],
)
def test_a_backspace_takes_a_character_away(typed: str, shown: str) -> None:
    """As a terminal shows it, also for progress displays that delete what they wrote."""
    assert unfold.typed_over(typed) == shown
