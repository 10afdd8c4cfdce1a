"""What the tools around a program say when they stop it, and how loggers wrap an error: the line that says why is the first cause."""

import io

from probing_cluster.evidence import classify
from probing_cluster.evidence.joblog import reader
from tests.every_case import every

STEPS = [f"step {n} loss {9 / n:.3f}" for n in range(1, 9)]
MORE = [f"step {n} loss {9 / n:.3f}" for n in range(9, 40)]
EXIT = "srun: error: n1: task 0: Exited with exit code 1"
CARRIERS = ('{{"prompt": "{}"}}', "  text: {}", "> {}", "print('{}')", "# {}", 'sample 3: "{}"')

TOOLS = [
    # options
    "theanolm train: error: argument --training-set: expected at least one argument",
    "prog sub: error: argument --n: invalid int value: 'x'",
    "FATAL Flags parsing error: Unknown command line flag 'foo'",
    "ERROR: unknown command line flag 'foo'",
    "./prog: unrecognized option '--foo'",
    "./prog: invalid option -- 'z'",
    "error: unexpected argument '--foo' found",
    "Error: unknown flag: --foo",
    "│ No such option: --x  │",
    "Could not override 'trainer.foo'.",
    # compilers
    "main.cpp:12:5: error: 'foo' was not declared in this scope",
    "a.c:1:10: fatal error: mpi.h: No such file or directory",
    'kernel.cu(12): error: identifier "foo" is undefined',
    "solver.f90:12:8: Error: Symbol 'x' at (1) has no IMPLICIT type",
    "nvcc fatal   : Unsupported gpu architecture 'compute_89'",
    "/usr/bin/ld: cannot find -lcudart",
    "a.c:(.text+0x5): undefined reference to `foo'",
    "CMake Error at CMakeLists.txt:12 (find_package):",
    "error[E0432]: unresolved import `foo`",
    "ninja: build stopped: subcommand failed.",
    # licences
    "License checkout failed.",
    "ansys: License checkout failed: FlexNet Licensing error:-15,570. cannot connect to license server system",
    "ANSYS LICENSE MANAGER ERROR:Request name cfd_solve_level2 does not exist in the licensing pool.",
    "Could not obtain license for COMSOL Multiphysics.",
    "Failed to check out a license for feature X from 27000@lic1",
    "FLEXnet Licensing error:-97,121",
    "Licensed number of users already reached.",
    # libraries and checks
    "OMP: Error #15: Initializing libiomp5.so, but found libiomp5.so already initialized.",
    "libgomp: Thread creation failed: Resource temporarily unavailable",
    "Intel MKL FATAL ERROR: Cannot load libmkl_avx512.so or libmkl_def.so.",
    "==123==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x6 at pc 0x5",
    "a.out: main.c:12: main: Assertion `x > 0' failed.",
    "F0501 10:00:01.123456 123 data.cc:12] Check failed: n > 0 (0 vs. 0)",
    # module systems and make, which stop nothing by themselves
    'Lmod has detected the following error: The following module(s) are unknown: "cuda/11.9"',
    "ModuleCmd_Load.c(213):ERROR:105: Unable to locate a modulefile for 'cuda/11.9'",
    "make: *** No rule to make target 'all'.  Stop.",
    "OpenBLAS blas_thread_init: pthread_create failed for thread 12 of 64: Resource temporarily unavailable",
]  # fmt: skip


def _first(text):
    found = classify.classify_stream(io.BytesIO(text.encode()), "joblog")
    return next(((f["kind"], f["line"]) for f in found if f["first_cause"]), None)


@every("line", TOOLS)
def test_a_tool_that_stops_the_program_says_why(line):
    """With or without Slurm's line about the exit; a program that went on, and text that only quotes it, has no cause."""
    for end in ([], [EXIT]):
        assert _first("\n".join([*STEPS, line, *end])) == ("program_error", len(STEPS) + 1)
    assert _first("\n".join([*STEPS, line, *MORE])) is None
    for carrier in CARRIERS:
        assert _first("\n".join([*STEPS, carrier.format(line)])) is None


CP = "cp: cannot stat 'x': No such file or directory"
RSYNC = 'rsync: [sender] link_stat "/data/y" failed: No such file or directory (2)'
RSYNC_END = "rsync error: some files/attrs were not transferred (see previous errors) (code 23) at main.c(1338) [sender=3.2.7]"
SSH = "ssh: connect to host n7 port 22: Connection refused"
SSH_REASONS = [
    SSH,
    "ssh: Could not resolve hostname store01: Name or service not known",
    "u@store01: Permission denied (publickey).",
    "Host key verification failed.",
    "kex_exchange_identification: Connection closed by remote host",
]
RSYNC_LOST = "rsync: connection unexpectedly closed (0 bytes received so far) [sender]"
RSYNC_255 = "rsync error: unexplained error (code 255) at io.c(235) [sender=3.1.3]"
MPIRUN = "/job1/slurm_script: line 5: mpirun: command not found"
NOT_STARTED = "/job1/slurm_script: line 5: ./solver: Permission denied"
NO_ENVIRONMENT = [
    ("conda: command not found", "command_not_found"),
    ("/home/u/venv/bin/activate: No such file or directory", "program_error"),
    ("/opt/conda/etc/profile.d/conda.sh: No such file or directory", "program_error"),
]
FILES_OF_ENVIRONMENTS = [
    "/job1/slurm_script: 4: .: cannot open /home/u/venv/bin/activate: No such file",
    "/job1/slurm_script: 4: .: Can't open /home/u/venv/bin/activate",
    "critical libmamba Cannot activate, prefix does not exist at: '/home/u/envs/fit'",
]
"""As dash and micromamba say it."""
WITH_HELP = [
    (
        "fatal: Could not read from remote repository.",
        "\nPlease make sure you have the correct access rights\nand the repository exists.",
    ),
    (
        "Host key verification failed.",
        "fatal: Could not read from remote repository.\n\nPlease make sure you have the correct access rights\nand the repository exists.",
    ),
    (
        'Lmod has detected the following error:  The following module(s) are unknown: "lammps/9"',
        '\nPlease check the spelling or version number. Also try "module spider ..."\n\nAlso make sure that all modulefiles written in TCL start with the string\n#%Module\n',
    ),
]
LAST_WORDS = [
    "could not prepare the run\nsee the notes\nbye",
    "ERROR: no sources",
    "tidying up\nleaving /w/run\nFATAL: nothing to run, stop",
]
TRACE = 'Traceback (most recent call last):\n  File "a.py", line 3, in <module>'
CURL = "curl: (6) Could not resolve host: hooks.example.org"
FIRST = [
    # The module system did not do its part: what is missing later follows from it; another error of the program's own does not.
    ('Lmod has detected the following error: unknown: "gcc/99"\n/job1/slurm_script: line 9: gmx_mpi: command not found', 1, "program_error"),
    # Without the shell function the script went on: its exit code is that of the command it found last to be missing.
    ("/job1/slurm_script: line 4: module: command not found\n/job1/slurm_script: line 9: gmx_mpi: command not found", 2, "command_not_found"),
    ("/job1/slurm_script: line 4: module: command not found\nloading\nreading\n/job1/slurm_script: line 9: pyhton3: command not found", 4, "command_not_found"),
    ("/job1/slurm_script: line 4: module: command not found\n/job1/slurm_script: line 9: ./train: Permission denied", 2, "program_error"),
    # An environment that was not brought explains a missing package, not an error of the program's own.
    *((f"/job1/slurm_script: line 4: {lost}\nstart\n{TRACE}\nModuleNotFoundError: No module named 'torch'", 1, kind) for lost, kind in NO_ENVIRONMENT),
    *((f"/job1/slurm_script: line 4: {lost}\nstart\n{TRACE}\nKeyError: 'lr'", 5, "python_exception") for lost, _ in NO_ENVIRONMENT),
    *((f"{lost}\nstart\n{TRACE}\nModuleNotFoundError: No module named 'torch'", 1, "program_error") for lost in FILES_OF_ENVIRONMENTS),
    *((f"{lost}\nstart\n{TRACE}\nKeyError: 'lr'", 5, "python_exception") for lost in FILES_OF_ENVIRONMENTS),
    *((f"{lost}\nloading\nreading\nwriting\nsaved\ndone", 0, "") for lost in FILES_OF_ENVIRONMENTS),
    ("/job1/slurm_script: 4: .: cannot open /home/u/settings: No such file\nstart\n" + f"{TRACE}\nModuleNotFoundError: No module named 'torch'", 5, "import_error"),
    # A command with a code of its own, behind one that the script went on after.
    (f"{CP}\n{RSYNC}\n\nsent 18 bytes  received 12 bytes\n{RSYNC_END}", 2, "program_error"),
    (f"{CP}\n{RSYNC_END}", 2, "program_error"),
    (f"{RSYNC_END}\nrsync: connection unexpectedly closed (0 bytes received so far) [sender]\n{RSYNC_END}", 2, "program_error"),
    (f"{RSYNC}\n{RSYNC_END}\nrsync: connection unexpectedly closed (0 bytes received so far) [sender]", 3, "program_error"),
    (f"bash: nvidia-smi: command not found\n{SSH}", 2, "program_error"),
    (f"x.sh: 3: cannot open a.dat: No such file\n{SSH}", 2, "program_error"),
    (f"{RSYNC}\n{SSH}\n", 2, "program_error"),
    # rsync and scp run over ssh, which says why.
    *((f"{why}\n{lost}\n{RSYNC_255}", 1, "program_error") for why in SSH_REASONS for lost in (RSYNC_LOST, "scp: Connection closed")),
    (f"{CP}\n{SSH}\n{RSYNC_LOST}\n{RSYNC_255}", 2, "program_error"),
    # What a script copies or reports at its end, with the code of its program in hand.
    *((f"{missing}\n{tool}", 1, "command_not_found") for missing in (MPIRUN,) for tool in (CURL, f"{RSYNC}\n{RSYNC_END}", "scp: /out/x: No such file or directory", f"{SSH}\n{RSYNC_LOST}\n{RSYNC_255}", f"{CP}\n{CURL}", "mail: cannot send message: Process exited with a non-zero status")),
    *((f"{MPIRUN.replace('mpirun', 'module')}\n{tool}", 1, "command_not_found") for tool in (CURL, f"{RSYNC}\n{RSYNC_END}")),
    *((f"{NOT_STARTED}\n{tool}", 1, "program_error") for tool in (CURL, f"{RSYNC}\n{RSYNC_END}", f"{SSH}\n{RSYNC_LOST}\n{RSYNC_255}")),
    (f"{SSH}\n{RSYNC}\n{RSYNC_END}", 1, "program_error"),
    # The program's own error stays: there was nothing to copy after it.
    (f"ERROR: could not parse config.json\n{RSYNC}\n{RSYNC_END}", 1, "program_error"),
    (f"Error: no licence\n{SSH}", 1, "program_error"),
    (f"{CP}\n./prog: cannot open x", 1, "program_error"),
    # A shell that goes on without a command ends with 127: it neither crashes nor is killed for it. A step's tasks are killed for one of them.
    ("/job1/slurm_script: line 4: module: command not found\n/job1/slurm_script: line 9: 4242 Killed                  python train.py", 2, "oom_kill_suspected"),
    ("a.sh: line 4: module: command not found\nstarting\nSegmentation fault (core dumped)", 3, "segfault"),
    ("bash: line 3: gmx: command not found\nsrun: error: n2: task 1: Killed\nsrun: error: n1: task 0: Exited with exit code 127", 1, "command_not_found"),
    ("environment: line 17: /usr/share/lmod/lmod/libexec/lmod: No such file or directory\n/job1/slurm_script: line 14: fastqc: command not found", 1, "program_error"),
    ('Lmod has detected the following error: unknown: "gcc/99"\n./gmx: error while loading shared libraries: libfoo.so: cannot open', 1, "program_error"),
    ('Lmod has detected the following error: unknown: "gcc/99"\nTraceback (most recent call last):\n  File "a.py", line 3\nKeyError: \'lr\'', 4, "python_exception"),
    ("/job1/slurm_script: line 4: module: command not found\nloading\nreading\nwriting\nsaved\ndone", 0, ""),
    ('Lmod has detected the following error: unknown: "gcc/99"\nloading\nreading\nwriting\nsaved\ndone', 0, ""),
    ('ERROR: module command lmod load x failed with message:\nLmod is replacing "a" with "b".\n\nLmod has detected the following error: unknown: "x"\n\nPlease check the spelling', 4, "program_error"),
    # A script's last words say less than git's, ssh's or Lmod's own above them, with the help that these print.
    *((f"{why}\n{help_}\n{words}", 1, "program_error") for why, help_ in WITH_HELP for words in LAST_WORDS),
    *((f"{why}\n{help_}\nloading\nreading\nwriting\nsaved\ndone", 0, "") for why, help_ in WITH_HELP),
    # A compiler killed for lack of memory, and what it takes with it.
    ("g++: fatal error: Killed signal terminated program cc1plus\ncompilation terminated.\nmake: *** [a.o] Error 1\nERROR: compilation failed for package 'torch'", 1, "oom_kill_suspected"),
    ("c++: internal compiler error: Killed (program cc1plus)\nninja: build stopped: subcommand failed.", 1, "oom_kill_suspected"),
    ("conftest.c:9:10: fatal error: foo.h: No such file or directory\nchecking for bar... yes", 0, ""),
    # A pip that failed and a program that ran all the same.
    ("ERROR: Failed building wheel for flash-attn\n" + "\n".join(STEPS), 0, ""),
    # A parser's own words count behind its usage only.
    ("usage: train.py [-h]\ntrain.py: error: --foo and --bar cannot be used together\n" + EXIT, 2, "program_error"),
    # Shells
    ("/.singularity.d/actions/exec: 9: exec: --nv: not found", 1, "command_not_found"),
    ("/usr/bin/env: 'bash\\r': No such file or directory", 1, "command_not_found"),
    ("nohup: failed to run command 'pythn': No such file or directory", 1, "command_not_found"),
    ("/tmp/job42/slurm_script: /bin/bash^M: bad interpreter: No such file or directory", 1, "command_not_found"),
    ("csh: matlab: Command not found.", 1, "command_not_found"),
    ("bash: nvcc: Kommando nicht gefunden.", 1, "command_not_found"),
    ("which: no g++ in (/usr/bin:/bin)\nFailed on line: 23 at command: which g++", 1, "program_error"),
    ("which: no mpirun in (/usr/bin:/bin)\nreading\nwriting\nsaved\nended", 0, ""),
    ("ERROR (theano): [Errno 2] No such file or directory: 'g++'\nx: [Errno 2] No such file or directory: 'g++'\n[Errno 2] No such file or directory: 'g++'\n++ echo Failed on line: 3\nFailed on line: 3", 1, "program_error"),
    ("could not open mode r for file /scratch/x\nIo: open error", 1, "program_error"),
    ("could not open cache.bin, building it\nall 12 tests passed", 0, ""),
    # Announcements: the reason stands below.
    ("ERROR: LoadError: TaskFailedException\n\n    nested task error: IOError: connect: connection refused (ECONNREFUSED)\n    Stacktrace:", 3, "program_error"),
    ("ERROR: TaskFailedException:\nOn worker 3:\nBoundsError: attempt to access 3-element Array", 3, "program_error"),
    ("ERROR: TaskFailedException:\nOn worker 3:\nCUDNNError: CUDNN_STATUS_INTERNAL_ERROR (code 4)", 3, "cuda_library_error"),
    ("/*****Error********/\nThe following feature has encountered a problem:\n - Feature: Solver\nUndefined value found.\n - Detail: NaN\nSaving model: x.mph\nFinished.", 4, "program_error"),
    ("ERROR: LoadError: TaskFailedException", 1, "program_error"),
    # Runtimes
    ("Program received signal SIGSEGV: Segmentation fault - invalid memory reference.", 1, "segfault"),
    ("#\n# A fatal error has been detected by the Java Runtime Environment:\n#\n#  SIGSEGV (0xb) at pc=0x7f, pid=12, tid=13", 4, "segfault"),
    ("signal (11): Segmentation fault\nin expression starting at a.jl:3", 1, "segfault"),
    (" *** caught segfault ***\naddress 0x0, cause 'memory not mapped'", 1, "segfault"),
    ("ERROR STOP bad input", 1, "program_error"),
    ("Error: Unable to access jarfile foo.jar", 1, "program_error"),
    ("ERROR: Out of GPU memory trying to allocate 3.000 GiB", 1, "cuda_oom"),
    ("GPUassert: an illegal memory access was encountered kernel.cu 33", 1, "cuda_illegal_access"),
    ("CUDA error 700 at kernel.cu:33: an illegal memory access was encountered", 1, "cuda_illegal_access"),
    ("cudaCheckError() failed at a.cu:12 : unspecified launch failure", 1, "cuda_launch_failure"),
    ('"hipErrorNoBinaryForGpu: Unable to find code object for all current devices!"\nAborted (core dumped)', 1, "cuda_version"),
    ('/w/hip_code_object.cpp:92: guarantee(false && "hipErrorNoBinaryForGpu: Couldn\'t find binary")\nAborted', 1, "cuda_version"),
    # MPI's launchers
    ("There are not enough slots available in the system to satisfy the 144\nslots that were requested", 1, "slurm_launch_failed"),
    ("mpirun was unable to find the specified executable file, and therefore\ndid not launch the job.", 1, "slurm_launch_failed"),
    ("[proxy:0:0@n01] HYDU_create_process (launch.c:74): execvp error on file ./a.out (No such file or directory)", 1, "slurm_launch_failed"),
    ("It looks like MPI runtime init failed for some reason; your parallel process is", 1, "slurm_launch_failed"),
    ("PMI2 initialized but returned bad values for size and rank.", 1, "slurm_launch_failed"),
    ('The application appears to have been direct launched using "srun",', 1, "slurm_launch_failed"),
    ("\n".join([*STEPS, "It looks like MPI runtime init failed for some reason", *MORE]), 0, ""),
    ("[1.2] [n1:7:0]  address.c:1733 UCX  ERROR failed to allocate address list\nIt looks like MPI_INIT failed for some reason", 1, "host_memory_error"),
    # Containers: the plugin's wrapper gives way to the log that it prints.
    ("slurmstepd: error: pyxis: child 4 failed with error code: 1\nslurmstepd: error: pyxis: failed to import docker image\nslurmstepd: error: pyxis: printing contents of log file ...\nslurmstepd: error: pyxis:     mkdir: cannot create directory '/run/enroot': Permission denied\nslurmstepd: error: spank_task_init_privileged failed", 4, "slurm_launch_failed"),
    # Launchers' tables: the end that came first, wherever its table stands; Ray's reason below its exception.
    ("Root Cause (first observed failure):\n[0]:\n  time      : 2023-06-03_22:45:52\n  rank      : 0 (local_rank: 0)\n  exitcode  : 1 (pid: 14)\nRoot Cause (first observed failure):\n[0]:\n  time      : 2023-06-03_22:45:01\n  rank      : 4 (local_rank: 0)\n  exitcode  : 1 (pid: 11)", 10, "task_exit"),
    ("ray.exceptions.RayActorError: The actor died unexpectedly before finishing this task.\n\tclass_name: F\nThe actor is dead because its node has died. Node Id: 5d\n2024-01-09 17:49:32,383\tERROR tune.py:911 -- Trial task failed", 3, "peer_lost"),
    # Who started the launcher only repeats its table; a reason of its own is one.
    ("Root Cause (first observed failure):\n[0]:\n  time      : 2023-06-03_22:45:52\n  rank      : 2 (local_rank: 2)\n  exitcode  : 1 (pid: 14)\n  error_file: <N/A>\n============\n2023-06-03 22:46:01,100 sagemaker-training-toolkit ERROR    Reporting training FAILURE", 5, "task_exit"),
    ("Root Cause (first observed failure):\n[0]:\n  time      : 2023-06-03_22:45:52\n  rank      : 2 (local_rank: 2)\n  exitcode  : 1 (pid: 14)\n  error_file: <N/A>\n============\nERROR: checkpoint 4711 is not complete", 8, "program_error"),
    # The output ends in the frames of a traceback: nothing says that the line above them has to do with it.
    ('Exception in device=TPU:1: Check failed: server.start() == OK\nTraceback (most recent call last):\n  File "/a/xmp.py", line 3, in f\n    start(index)', 2, "python_exception"),
    ('press 1.0 requires must, which is not installed.\nTraceback (most recent call last):\n  File "/a/xmp.py", line 3, in f\n    start(index)', 2, "python_exception"),
    ('The above exception was the direct cause of the following exception:\n\nTraceback (most recent call last):\n  File "/a/xmp.py", line 3, in f\n    start(index)', 3, "python_exception"),
    ('read failed: /lustre/must: Input/output error\nTraceback (most recent call last):\n  File "/a/xmp.py", line 3, in f\n    start(index)', 1, "io_error"),
    ("SystemError: (Fatal) DataLoader process (pid 4711) exited is killed by signal: Killed. (at /paddle/data_loader.cc:99)", 1, "dataloader_oom"),
    ("distributed.nanny - WARNING - Worker process 4711 was killed by unknown signal\ndistributed.nanny - INFO - Failed to start worker process.  Restarting", 1, "peer_lost"),
    ('error: commlib error: got read error (closing "n7.example/shepherd_ijs/1")\nORTE has lost communication with its daemon located on node:', 1, "peer_lost"),
    # A pool's process is gone, or was ended for its memory: what its owner raises is no bug of its own.
    ("ray.exceptions.RayActorError: The actor died unexpectedly before finishing this task.\n\tclass_name: F\nThe actor is dead because its node has died. Node Id: 5d\nray.train.base_trainer.TrainingFailedError: The Ray Train run failed.", 3, "peer_lost"),
    ("ERROR 11-08 11:01:29 [multiproc_executor.py:135] Worker proc VllmWorker-3 died unexpectedly, shutting down executor.\nERROR 11-08 11:01:30 [core.py:502] Traceback (most recent call last):\nERROR 11-08 11:01:30 [core.py:502]   File \"/v/core.py\", line 493, in run\nERROR 11-08 11:01:30 [core.py:502] RuntimeError: cancelled", 1, "peer_lost"),
    ("Error in unserialize(node$con) : error reading from connection\nCalls: clusterApply ... FUN\nExecution halted", 1, "peer_lost"),
    ("ERROR: LoadError: TaskFailedException\n\n    nested task error: ProcessExitedException(3)", 3, "peer_lost"),
    ("joblib.externals.loky.process_executor.TerminatedWorkerError: A worker process was unexpectedly terminated.\n\nThe exit codes of the workers are {SIGKILL(-9)}", 3, "oom_kill_suspected"),
    ("distributed.nanny - WARNING - Worker exceeded 95% memory budget. Restarting\ndistributed.scheduler.KilledWorker: Attempted to run task 'x' on 4 different workers, but all those workers died while running it.", 1, "host_oom_kill"),
    ('Exception in thread "main" org.apache.spark.SparkException: Job aborted due to stage failure: ExecutorLostFailure (executor 3 exited) Reason: Container killed by YARN for exceeding memory limits. 22.1 GB of 22 GB', 1, "host_oom_kill"),
    ("FATAL:   Couldn't determine user account information: user: lookup userid 1234: no such file or directory", 1, "slurm_launch_failed"),
    # What a library of MPI, files or loaders met stands below the sentence of the one that called it.
    ("MPICH ERROR [Rank 12] [job id 5.0] [Tue Mar 12 10:11:12 2024] [n1] - Abort(137) (rank 12 in comm 0): Fatal error in PMPI_Waitall: Other MPI error, error stack:\nPMPI_Waitall(352)......: MPI_Waitall(count=8) failed\nMPIDIG_recv_done(65)....: OFI poll failed (ofi_events.c:1012:MPIDI_OFI_handle_cq_error:Input/output error)", 3, "net_ib_error"),
    ("Unable to open file /s/restart.nc: NetCDF: HDF error\nHDF5-DIAG: Error detected in HDF5 (1.12.2) MPI-process 3:\n  #001: H5FDsec2.c line 352 in H5FD__sec2_open(): unable to open file: name = 'r.nc', errno = 116, error message = 'Stale file handle'", 3, "stale_file_handle"),
    ("terminate called after throwing an instance of 'std::runtime_error'\n  what():  [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:598] Connection closed by peer [10.1.2.3]:34567", 2, "gloo_connection_closed"),
    ('Traceback (most recent call last):\n  File "a.py", line 3, in f\n_queue.Empty\n\nThe above exception was the direct cause of the following exception:\n\nTraceback (most recent call last):\n  File "a.py", line 3, in f\nRuntimeError: DataLoader worker (pid(s) 12, 13) exited unexpectedly', 9, "dataloader_crash"),
    ("[1]PETSC ERROR: Caught signal number 15 Terminate: Some process (or the batch system) has told this process to end\n[1]PETSC ERROR: Try option -start_in_debugger\nslurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2024-04-01T10:00:00 DUE TO TIME LIMIT ***", 3, "slurm_timeout"),
    ("[0]PETSC ERROR: Caught signal number 11 SEGV: Segmentation Violation, probably memory access out of range\n[0]PETSC ERROR: Try option -start_in_debugger", 1, "segfault"),
    (" 45%|####      | 450/1000 [10:00<12:13,  1.33s/it]Killed", 1, "oom_kill_suspected"),
    ("the words [not] Killed", 0, ""),
    ("[n01:1234] PMIX ERROR: UNREACHABLE in file server/pmix_server.c at line 1795\nsrun: error: n01: task 0: Exited with exit code 1", 1, "slurm_launch_failed"),
    ("RuntimeError: NCCL communicator was aborted on rank 2.  Original reason for failure was: NCCL error: unhandled system error, NCCL version 2.19.3\nncclSystemError: System call failed.\nLast error:\nNET/IB : Got completion from peer 10.0.0.7<51234> with status=12 opcode=0 len=0 vendor err 129 (Send) hca mlx5_3", 4, "net_ib_completion_error"),
    # What a script, TensorFlow or a trainer got over
    ("cp: cannot stat '*.png': No such file or directory\n=== job done ===", 0, ""),
    ("2024-01-01 00:00:00.0: E tensorflow/stream_executor/cuda/cuda_driver.cc:271] failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected\nEpoch 1/2\n100/100 [===] - 10s 100ms/step - loss: 0.5\nEpoch 2/2\n100/100 [===] - 10s 100ms/step - loss: 0.4", 0, ""),
    ("CUDA out of memory at batch size 64, trying 32\nstep 100 loss 1.1\nstep 200 loss 1.0\nstep 300 loss 0.9", 0, ""),
    (" Error  (ORCA_SCF): Not enough memory available!\n\nORCA finished by error termination in SCF", 1, "program_error"),
    ("[file orca_main/mainfcts.cpp, line 671]: Error : multiplicity (2) is even and number of electrons (152) is even -> impossible", 1, "program_error"),
    ("[0] MPI startup(): ofi fabric is not available and fallback fabric is not exist\nsrun: error: n1: task 0: Exited with exit code 254", 1, "rendezvous_failed"),
    (".command.sh: line 12:    33 Killed                  seqcluster collapse\nERROR ~ Pipeline failed. Please refer to troubleshooting docs: https://example.org", 1, "oom_kill_suspected"),
    (" ********************************\n Molpro calculation terminated\n Variable memory released", 0, ""),
    ("825:MPT ERROR: Rank 825(g:825) received signal SIGFPE(8).\n825:\tProcess ID: 64229, Host: n1\n-1:MPT ERROR: MPI_COMM_WORLD rank 825 has terminated without calling MPI_Finalize()", 1, "process_crashed"),
    # A code's farewell, a workflow's block of errors, heads of boxes
    (" Standard basis: 6-31G(d)\n QPErr --- A syntax error was found in the input line.\n #P opt b3lp\n                '\n Last state= \"GCL\"\n TCursr=  39 LCursr=  2\n Error termination via Lnk1e in /opt/g16/l1.exe at Mon May  6 10:00:00 2024.", 2, "program_error"),
    (" Leave Link 1\n Error termination via Lnk1e in /opt/g16/l1.exe at Mon May  6 10:00:00 2024.", 2, "program_error"),
    (" (Enter /opt/g16/l9999.exe)\n\n IT IS WRONG TO THINK THAT ERRORS FAIL,\n AND NOT THAT THEY TEACH.\n\n                 -- A. N. OTHER\n Error termination request processed by link 9999.", 7, "program_error"),
    (" ? Error\n ? Basis set file unreadable\n ? The problem occurs in Binput\n\n GLOBAL ERROR fehler on processor   0", 2, "program_error"),
    ("ERROR ~ Error executing process > 'QC (1)'\n\nCaused by:\n  Process `QC (1)` terminated with an error exit status (1)\n\nCommand error:\n  The input path is incorrect: reads.fq\n\nWork dir:\n  /w/1", 7, "program_error"),
    ("ERROR ~ Error executing process > 'QC (1)'\n\nCaused by:\n  Process `QC (1)` terminated with an error exit status (1)\n\nCommand error:\n  reading reads.fq\n\nWork dir:\n  /w/1", 4, "task_exit"),
    ("May-06 10:00:00.100 [SIGINT handler] DEBUG nextflow.Session - Session aborted -- Cause: SIGINT\nMay-06 10:00:00.200 [main] DEBUG nextflow.script.ScriptRunner - > Execution complete -- Goodbye", 1, "interrupted"),
    ("time step continuity errors : sum local = 1e+28\n#0  Foam::error::printStack(Foam::Ostream&) at ??:?\n#1  Foam::sigFpe::sigHandler(int) at ??:?\n#2  ? in /lib/libpthread.so.0", 3, "process_crashed"),
    ("-------------- FATAL CALLED ---------------\nFATAL CALLED FROM FILE:  <stdin>  LINE:      70\n program wrf: error opening wrfbdy_d01 for reading\n-------------------------------------------", 3, "program_error"),
    ("[3] ARMCI assert fail in gmr_create() [src/gmr.c:109]: \"base != NULL\"\n[3] Backtrace:", 1, "program_error"),
    ("TERM_PROCESSLIMIT: job killed after reaching LSF process limit.\nExited with exit code 143.", 1, "process_terminated"),
    ("n08.site:rank5.app: Unable to write to fd 33 for path 0: connection lost\nsrun: error: n08: tasks 4-7: Aborted", 1, "net_ib_error"),
    # A page of Python's help
    ("Help on class OutOfMemoryError in module torch:\n\nclass OutOfMemoryError(builtins.RuntimeError)\n |  Example:\n |      RuntimeError: CUDA error: out of memory\n\nall done", 0, ""),
    ("Help on class OutOfMemoryError in module torch:\n\nclass OutOfMemoryError(builtins.RuntimeError)\nRuntimeError: CUDA error: out of memory", 4, "cuda_oom"),
    # What a page in Markdown shows between fences, and a model's code that was cut off
    ("An error such as this:\n\n```bash\nslurmstepd: error: Detected 1 oom-kill event(s) in step 3.batch cgroup\n```\n\nindicates that your job used more memory.", 0, ""),
    ("```\nKilled\n```\nslurmstepd: error: Detected 1 oom-kill event(s) in step 3.batch cgroup", 4, "slurm_oom"),
    ("```python\ndef f(x):\nTraceback (most recent call last):\n  File \"a.py\", line 3, in f\nKeyError: 'lr'", 5, "python_exception"),
    ("```python\nx = 1\n```\nTraceback (most recent call last):\n  File \"a.py\", line 3, in f\nKeyError: 'lr'", 6, "python_exception"),
    # CUDA and NCCL in the words of samples and macros
    ("ResourceExhaustedError: \n\nOut of memory error on GPU 0. Cannot allocate 1.0GB memory on GPU 0, 31.7GB memory has been allocated", 3, "cuda_oom"),
    ("Error: Out of memory in CUDA queue enqueue (integrator_init_from_camera)", 1, "cuda_oom"),
    ("== Error ==  system call for: \"['/x/spades-core', 'a']\" finished abnormally, OS return value: -9", 1, "oom_kill_suspected"),
    ("go run: running x\nsignal: killed", 2, "oom_kill_suspected"),
    ("GPUassert: out of memory main.cu 120", 1, "cuda_oom"),
    ("Failed: Cuda error main.cpp:45 'out of memory'", 1, "cuda_oom"),
    ("Failed, NCCL error main.cpp:120 'unhandled cuda error (run with NCCL_DEBUG=INFO for details)'", 1, "nccl_unhandled_cuda"),
    ("n1:3:4 [0] misc/nvmlwrap.cc:183 NCCL WARN nvmlInit_v2() failed: Driver/library version mismatch", 1, "cuda_unavailable"),
    (":0:rocdevice.cpp :2724: 12 us: Callback: Queue 0x7f Aborting with error : HSA_STATUS_ERROR_OUT_OF_RESOURCES: The runtime failed", 1, "cuda_error"),
    ("NaN or Inf found in input tensor.\nLoss is nan, stopping training", 2, "nan_loss"),
    # Loggers
    ('{"level": "error", "msg": "Traceback (most recent call last):\\n  File \\"a.py\\", line 3, in f\\nKeyError: \'lr\'"}', 1, "python_exception"),
    ('{"severity": "ERROR", "message": "failed", "exception": "Traceback (most recent call last):\\n  File \\"a.py\\", line 3, in f\\nValueError: bad"}', 1, "python_exception"),
    ('{"prompt": "Traceback (most recent call last):\\n  File \\"a.py\\", line 3, in f\\nKeyError: \'lr\'"}', 0, ""),
    ("INFO:tensorflow:Error reported to Coordinator: <class 'tf.errors.InvalidArgumentError'>, Invalid JPEG data", 1, "python_exception"),
    ("2024-05-01 10:00:01,123 - train - ERROR - dataset path /x does not exist", 1, "program_error"),
    ("2024-05-01 10:00:01.123 | ERROR    | __main__:main:17 - dataset path /x does not exist", 1, "program_error"),
    ('Traceback (most recent call last):\n  File "a.py", line 3, in <module>\n    x\nMyProblem: bad thing\n' + EXIT, 4, "python_exception"),
]  # fmt: skip


@every(("text", "line", "kind"), FIRST)
def test_the_line_that_explains_the_others(text, line, kind):
    """Not its announcement, nor what followed from it; nothing where the job went on or only told of it."""
    assert _first(text) == ((kind, line) if line else None)


@every(
    ("statement", "kept"),
    [
        ("ERROR: job failed", False),
        ("ERROR: job failed because GPU 5 of n7 has fallen off the bus", True),
        ("ERROR: training failed due to heat", True),
        ("FATAL: run aborted on n7", True),
    ],
)
def test_who_started_the_launcher_may_know_more_than_its_table(statement, kept):
    table = "Root Cause (first observed failure):\n[0]:\n  time      : 2023-06-03_22:45:52\n  rank      : 2 (local_rank: 2)\n  exitcode  : 1 (pid: 14)\n  error_file: <N/A>\n============\n"
    found = [f["line"] for f in classify.classify_stream(io.BytesIO((table + statement).encode()), "joblog")]
    assert (8 in found) == kept


def test_a_missing_package_bears_the_set_up_that_failed_however_far_above():
    """Only a package of the program's language: what else failed has another reason."""
    copied = "\n".join(f"copying part {n} of 40: done" for n in range(1, 41))
    ends = {
        f"{TRACE}\nModuleNotFoundError: No module named 'torch'": True,
        "Error in library(readr) : there is no package called 'readr'\nExecution halted": True,
        f"{TRACE}\nKeyError: 'lr'": False,
    }
    for lost in (
        "/job1/slurm_script: line 4: module: command not found",
        "CondaError: Run 'conda init' before 'conda activate'",
        'Lmod has detected the following error:  The following module(s) are unknown: "fit/3"',
    ):
        for end, bears in ends.items():
            text = f"{lost}\n{copied}\n{end}"
            first = next(f for f in reader.read(text.splitlines()) if f.first_cause)
            lacked = str(first.detail.get("lacked_before", ""))
            assert (" ".join(lacked.split()) == " ".join(lost.split())) is bears, (lost, end, first)
