"""A heading, a wrapper, a suspicion and a receipt of a signal give way to the line that says what was wrong, or to who ended the job."""

from __future__ import annotations

from probing_cluster.evidence.joblog import reader
from tests.every_case import every

TRACE = 'Traceback (most recent call last):\n  File "/w/t.py", line 4, in f\n    g()\n'
CANCELLED = "slurmstepd: error: *** {} ON n1 CANCELLED AT 2025-01-01T0{}:00:00{} ***"
FIRST = {
    # headings
    "OpenFOAM": ("[4] --> FOAM FATAL IO ERROR: (openfoam-2312)\n[4] \"keyword nuu is not there\"\n[4] \n[4] file: 0/U at line 3.", 2, "program_error"),
    "OpenFOAM, of another fork": ("--> FOAM FATAL ERROR: \n    request for volScalarField kk failed\n", 2, "program_error"),
    "an exception whose text begins below it": (TRACE + "RuntimeError: \nthe solver gave up after 40 rounds", 5, "python_exception"),
    "Nextflow's compiler": ("ERROR ~ Script compilation error\n- file : /w/main.nf\n- cause: Unexpected input: ')' @ line 3\n", 3, "program_error"),
    "a logger's exception": ("[ERROR] WorkflowError:\nthe sheet of samples has no column 'fq2'\n", 2, "program_error"),
    "a rule of Snakemake": ('[ERROR] RuleException:\nCalledProcessError in file "/w/a.smk", line 3:\nCommand \'x\' returned non-zero exit status 1.\n[ERROR] Error in rule a, jobid: 1\n[ERROR] WorkflowError:\nAt least one job did not complete successfully.\n[ERROR] The analysis run has failed.', 2, "program_error"),
    "a rule of Snakemake, of old": ('Error in rule comb:\n    jobid: 3\n\nRuleException:\nCalledProcessError in line 7 of /w/a.smk:\nCommand \'x\' returned non-zero exit status 1.\nExiting because a job execution failed. Look above for error message', 1, "program_error"),
    "a rule of Snakemake, and its sum": ("Error in rule comb:\n    jobid: 3\n\nWorkflowError:\nAt least one job did not complete successfully.", 1, "program_error"),
    "a workflow of Snakemake's": ("Building DAG of jobs...\nWorkflowError:\nTarget rules may not contain wildcards.", 3, "program_error"),
    "a rule of Snakemake with its own error": ("Error in rule comb:\n    jobid: 3\n\nRuleException:\nNameError in line 7 of /w/a.smk:\nname 'combs' is not defined\nExiting because a job execution failed. Look above for error message", 5, "program_error"),
    "a fixture of pytest": ("==== ERRORS ====\n____ ERROR at setup of test_comb ____\n    def comb():\n>       return hives['north']\nE       KeyError: 'north'\n\nt.py:4: KeyError\n==== 1 error in 0.2s ====", 5, "python_exception"),
    "a logger that breaks its lines": ("260102-10:11:12,7 bees.flow INFO:\n\t node comb began\n260102-10:11:13,7 bees.flow ERROR:\n\t could not run node: comb.wax_split", 4, "program_error"),
    "a graph of TensorFlow": (TRACE + "tensorflow.python.framework.errors_impl.InvalidArgumentError: Graph execution error:\n\nDetected at node 'a/b' defined at (most recent call last):\n    File \"/w/t.py\", line 3, in <module>\n      main()\nNode: 'a/b'\nIncompatible shapes: [8,4] vs. [8,5]\n\t [[{{node a/b}}]]", 10, "python_exception"),
    "Charm++": ("------------- Processor 0 Exiting: Called CmiAbort ------------\nReason: FATAL ERROR: no file of parameters was named\n", 2, "program_error"),
    "LS-DYNA": (" *** Error 10246 (KEY+246)\n     the deck has no part 7\n", 2, "program_error"),
    "ANSYS": (" *** ERROR ***                           CP =       1.234   TIME= 10:11:12\n Element 12 is turned inside out.\n", 2, "program_error"),
    "CESM": (" ERROR: (shr_sys_abort) ERROR: \n the restart file has no field T\n", 2, "program_error"),
    "STAR-CCM+": ("error: Server Error\nA floating point exception has occurred: [Overflow].\n", 2, "program_error"),
    "Rust since 1.73": ("thread 'main' panicked at src/m.rs:4:30:\nthe table has no row 7\nnote: run with `RUST_BACKTRACE=1` environment variable to display a backtrace", 2, "program_error"),
    "Rust before": ("thread 'main' panicked at 'the table has no row 7', src/m.rs:4:30\nnote: run with `RUST_BACKTRACE=1` environment variable to display a backtrace", 1, "program_error"),
    "R, with the message below": ("[1] \"fold 2\"\nError in chol.default(S) : \n  the leading minor of order 4 is not positive\nCalls: fit -> chol\nExecution halted", 3, "program_error"),
    "R behind a step that it had begun": ("3) Merging Error in bind(a, b) : \n  the tables have no column in common\nExecution halted", 2, "program_error"),
    "R behind its bar": ("  |=====      |  40%Error in f(i) : \n  subscript 12 is out of bounds\nExecution halted", 2, "program_error"),
    "Julia's worker": ("ERROR: LoadError: On worker 7:\nDimensionMismatch: 3 rows are not 4\nStacktrace:\n  [1] mul!\n    @ ./a.jl:3", 2, "program_error"),
    "Java's start": ("Error: LinkageError occurred while loading main class a.B\n\tjava.lang.UnsupportedClassVersionError: a/B was made by a later Java", 2, "program_error"),
    "ANSYS's licences": ("SOLVER LICENSE MANAGER ERROR:\nCould not connect to any license server.\nThe server is down.", 2, "program_error"),
    "Cell Ranger": ("[error] Pipestance failed. Error log at:\np7/CS/fork0/chnk0-u1/_errors\n\nLog message:\nThe sheet names no sample of lane 3\n\nWaiting 6 seconds for UI to do final refresh.\nPipestance failed. Use --noexit option to keep UI running after failure.", 5, "program_error"),
    "DOLFIN's box": (TRACE + "RuntimeError: \n\n*** " + "-" * 73 + "\n*** DOLFIN encountered an error. If you are not able to resolve this issue\n*** using the information listed below, you can ask for help at\n***\n***     a@example.org\n***\n*** Remember to include the error message listed below and, if possible,\n*** include a *minimal* running example to reproduce the error.\n***\n*** " + "-" * 73 + "\n*** Error:   Unable to assemble the form.\n*** Reason:  The mesh has no cells.\n", 16, "python_exception"),
    "HDF5's stack, innermost call": ("HDF5-DIAG: Error detected in HDF5 (1.14.0) thread 0:\n  #000: H5D.c line 9 in H5Dread(): can't read data\n    major: Dataset\n    minor: Read failed\n  #001: H5Z.c line 7 in H5Z_pipeline(): required filter 'lz9' is not registered\n    major: Data filters", 5, "program_error"),
    # a code's own abort, and what it printed above
    "MATLAB's brace": ("{Undefined function 'smoothit' for input arguments of type 'double'.\n\nError in step2 (line 3)\nx = smoothit(y);\n\nError in main (line 9)\n    step2(z);\n} ", 1, "program_error"),
    "NWChem": (" basis for Xq not found\n\n(rank:0 hostname:n1 pid:7):ARMCI DASSERT fail. src/common/armci_err.c:ARMCI_Error():208 cond:0\napplication called MPI_Abort(comm=0x84000003, 1) - process 0", 1, "program_error"),
    "Fortran's bare stop": (" step 3\n cannot open the table of opacities\n ERROR STOP 3", 2, "program_error"),
    "a stop that says why": (" cannot be\n ERROR STOP no such table", 2, "program_error"),
    "a bare stop alone": (" step 3\n ERROR STOP 3", 2, "program_error"),
    "GADGET": ("Begin Step 3\nNo tree of this depth is possible.\ntask 4: endrun called with an error level of 7\n\n", 2, "program_error"),
    "FLASH": (" [burn] ERROR: no root of the rate\n zone 4\n\n Driver_abort called. See log file for details.\n Error message is [burn] ERROR: stopped\n", 1, "program_error"),
    "AMReX": ("STEP = 3\namrex::Abort::4::Assertion `dt > 0' failed, file \"a.cpp\", line 3 !!!\nSIGABRT\nSee Backtrace.4 file for details", 2, "program_error"),
    "AMReX's handler": ("STEP = 3\nErroneous arithmetic operation\nSee Backtrace.7 file for details", 2, "process_crashed"),
    "AMReX's handler before 24": ("STEP = 3\n7::Segfault !!!\nSee Backtrace.7.2 file for details", 2, "segfault"),
    "AMReX's handler of an instruction": ("STEP = 3\nSIGILL Invalid, privileged, or ill-formed instruction\nSee Backtrace.7 file for details", 2, "process_crashed"),
    "AMReX's handler of another's signal": ("STEP = 3\nSIGTERM\nSee Backtrace.prog2.7 file for details", 2, "process_terminated"),
    "Bowtie": ('Warning: Could not open read file "wing.fq" for reading; skipping...\nCommand: bowtie2-align-s --wrapper basic-0 -x fly -U wing.fq ', 1, "program_error"),
    "Bowtie, and another error": ("Error: the reads of wing.fq have no quality\nCommand: /opt/b/hisat2-align-s --wrapper basic-0 -x fly -U wing.fq", 1, "program_error"),
    "Bowtie without a reason": ("Command: bowtie2-align-s --wrapper basic-0 -x fly -U wing.fq", 1, "task_exit"),
    "a Fortran code's own abort": ("(read_moss) Problem with the table of mosses\nImage              PC                Routine            Line        Source\nmoss.exe           00000000014D0C2B  shr_abort_mod_mp_          77  shr_abort_mod.F90\nmoss.exe           0000000001A2E001  Unknown               Unknown  Unknown", 1, "program_error"),
    "a Fortran code's own abort alone": ("Image              PC                Routine            Line        Source\nmoss.exe           00000000014D0C2B  shr_abort_mod_mp_          77  shr_abort_mod.F90", 2, "process_aborted"),
    # farewells that are no reason, and no good end
    "IDL": ("% Compiled module: FLAT.\n% Attempt to subscript BIAS with <INT (9)> is out of range.\n% Execution halted at: FLAT  3 /h/flat.pro\n% Program caused arithmetic error: Floating overflow", 2, "program_error"),
    "VMD": ("Info) VMD for LINUXAMD64, version 1.9.3\ninvalid command name \"mesure\"\n    while executing\n\"mesure center $s\"\n    (procedure \"mid\" line 2)\n    invoked from within\n\"mid $s\"\n    (file \"m.tcl\" line 4)\nInfo) VMD for LINUXAMD64, version 1.9.3\nInfo) Exiting normally.", 2, "program_error"),
    "an error behind a step that had begun": ("Reading the index...sorter: Error in block 7 of the index\n", 1, "program_error"),
    # GPUs
    "XLA's stack trace behind an ECC error": ("2026-01-01 10:00:00.000001: E external/xla/xla/stream_executor/cuda/cuda_driver.cc:7] could not synchronize on CUDA context: CUDA_ERROR_ECC_UNCORRECTABLE: uncorrectable ECC error encountered :: *** Begin stack trace ***\n2026-01-01 10:00:00.000002: F external/xla/xla/service/gpu/x.cc:8] Failed to synchronize GPU stream", 1, "cuda_ecc"),
    "XLA without a reason": ("2026-01-01 10:00:00.000002: F external/xla/xla/service/gpu/x.cc:8] Failed to synchronize GPU stream\nFatal Python error: Aborted", 1, "cuda_error"),
    "an error's own number": (TRACE + "md.EngineError: Error downloading array forces: unspecified launch failure (719)", 4, "cuda_launch_failure"),
    "another number": (TRACE + "md.EngineError: Error downloading array forces: unspecified launch failure (12)", 4, "python_exception"),
    # launchers and tools
    "MPICH's box in one line": ("BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES = RANK 3 PID 7 RUNNING AT n2 = KILLED BY SIGNAL: 9 (Killed)", 1, "oom_kill_suspected"),
    "a tool that names its process": ("2026/01/02 22:12:38.02 flowtool[7] fatal: the last command has no end\n line: 6 column: 2\nTerminated", 1, "program_error"),
    "STAR": ("EXITING because of fatal PARAMETERS error: no such option\nSep 08 19:18:06 ...... FATAL ERROR, exiting", 1, "program_error"),
    "NAMD's reason below its place": ("FATAL ERROR: CUDA error cudaStreamSynchronize(stream) in file src/A.C, function f, line 7\n on Pe 3 (n2 device 0 pci 0:7:0): uncorrectable ECC error encountered", 2, "cuda_ecc"),
    "a route that is gone": ("[rank0]: RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:525] Read error [10.0.0.6]:40112: No route to host", 1, "gloo_connection_reset"),
    "a file server that does not answer": (TRACE + "OSError: [Errno 70] Communication error on send", 4, "filesystem_unreachable"),
    "MATLAB's libraries": ("MATLAB:mex:ErrInvalidMEXFile -> Invalid MEX-file '/tmp/a.mexa64': libx.so: cannot open shared object file: No such file or directory", 1, "program_error"),
    "Open MPI's options": ("-----\nOpen MPI has detected that a parameter given to a command line\noption does not match the expected format:\n\n  Option: np", 2, "program_error"),
    "a library, with the line's number": ("     39 tool: error while loading shared libraries: libx.so: cannot open shared object file: No such file or directory\n     40 + ret=127", 1, "program_error"),
    # shells and loggers
    "zsh's pattern": ("merging\n/var/spool/slurmd/job7/slurm_script:5: no matches found: parts/*.csv", 2, "program_error"),
    "zsh's command": ("start\n/var/spool/slurmd/job7/slurm_script:4: command not found: trian", 2, "command_not_found"),
    "tcsh's pattern": ("start\ncp: No match.", 2, "program_error"),
    "a logger of JSON": ('{"ts":"1","level":"info","msg":"start"}\n{"ts":"2","level":"error","msg":"part 3 has another checksum"}', 2, "program_error"),
    "a logger of fields": ('time=1 level=info msg="start"\ntime=2 level=error msg="part 3 has another checksum"', 2, "program_error"),
    "an exception whose class is private": (TRACE + "pool._queue._NoSuchTask: task 7 is in no queue", 4, "python_exception"),
    # wrappers
    "TorchScript": (TRACE + "RuntimeError: The following operation failed in the TorchScript interpreter.\nTraceback of TorchScript (most recent call last):\n  File \"/w/m.py\", line 9, in forward\nRuntimeError: sizes 3 and 4 differ", 7, "python_exception"),
    "Ray's task": (TRACE + "ray.exceptions.RayTaskError(KeyError): \x1b[36mray::W.run()\x1b[39m (pid=1)\n  File \"/w/a.py\", line 3, in run\nKeyError: 'lr'", 6, "python_exception"),
    "Ray's task of an actor that died": (TRACE + "ray.exceptions.RayTaskError(ActorDiedError): ray::M.run() (pid=1)\n  File \"/w/a.py\", line 3, in run\nray.exceptions.ActorDiedError: The actor died unexpectedly.\n(raylet) A worker died or was killed while executing a task by an unexpected system error.", 7, "peer_lost"),
    "an import on a worker": (TRACE + "RuntimeError: The class W failed to load there. It may lack its libraries:\n\n" + TRACE + "ImportError: /v/a.so: undefined symbol: _Z1f", 9, "import_error"),
    "JAX": (TRACE + "jax.errors.SimplifiedTraceback: For simplicity, JAX has removed its internal frames\n\nThe above exception was the direct cause of the following exception:\n\n" + TRACE + "ValueError: negative axis", 11, "python_exception"),
    "Triton's assembler": (TRACE + "triton.runtime.errors.PTXASError: PTXAS error: Internal Triton PTX codegen error\n`ptxas` stderr:\nptxas fatal   : Value 'sm_999' is not defined for option 'gpu-name'", 6, "program_error"),
    "LLVM": ("LLVM ERROR: cannot select this rounding\n" + TRACE + "RuntimeError: PassManager::run failed", 1, "program_error"),
    "NCCL": ("[rank3]: " + TRACE.replace("\n", "\n[rank3]: ") + "torch.distributed.DistBackendError: NCCL error in: /p/a.cpp:33, unhandled cuda error, NCCL version 2.26.2\n[rank3]: ncclUnhandledCudaError: Call to CUDA function failed.\n[rank3]: Last error:\n[rank3]: Cuda failure 2 'out of memory'", 7, "cuda_oom"),
    # suspicions and warnings
    "a worker killed for memory": ("RuntimeError: DataLoader worker (pid 9) is killed by signal: Killed.\nslurmstepd: error: Detected 1 oom_kill event in StepId=6.batch.", 2, "slurm_oom"),
    "a warning of the same error": ("[W CUDAGuardImpl.h:99] Warning: CUDA warning: an illegal memory access was encountered (function f)\nterminate called after throwing an instance of 'c10::Error'\n  what():  CUDA error: an illegal memory access was encountered", 3, "cuda_illegal_access"),
    # the library's reason in front of a crash
    "UCX and the driver": ("0: [157.8] [n1:5:2]  cuda_copy_md.c:62   UCX  ERROR cuMemGetAddressRange(&b, &s, p) failed: invalid argument\n0: [n1:5:2:6] Caught signal 11 (Segmentation fault: address not mapped to object at address 0x20)", 1, "cuda_error"),
    "UCX alone": ("[1579244748.838989] [n1:5:2]       ucp_rkey.c:250  UCX  ERROR Failed to unpack remote key\n[n1:5:2:6] Caught signal 11 (Segmentation fault: address not mapped to object at address 0x20)", 1, "program_error"),
    "Open MPI and a bad buffer": ("[n1][[12,1],3][btl_tcp_frag.c:227:mca_btl_tcp_frag_recv] mca_btl_tcp_frag_recv: readv error (0x7f, 81)\n\tBad address(1)\n[n1:1] pml_ob1_sendreq.c:308 FATAL", 1, "program_error"),
    "Open MPI and a peer": ("[n1][[12,1],3][btl_tcp_frag.c:227:mca_btl_tcp_frag_recv] mca_btl_tcp_frag_recv: readv failed: Connection reset by peer (104)", 1, "peer_lost"),
    "a source file in front of an abort": ("(W pid=7) [/b/gloo/transport/x.h:596] listen: invalid argument\n(W pid=7) *** SIGABRT received at time=1734086759 ***", 1, "program_error"),
    "columns of ROOT": ("wax 1\nBee::Bee                ERROR   file wax.root does not exist", 2, "program_error"),
    "a pool that gives up": ("worker 'comb07' killed by signal SIGKILL\n1 worker(s) have died. Initiating shutdown.\nA worker has died on us unexpectedly.", 1, "oom_kill_suspected"),
    "workers that were hung up": ("epoch 1\nSending process 41 closing signal SIGHUP\nSending process 42 closing signal SIGHUP", 2, "process_terminated"),
    "a GPU's fault above a hang-up": ("RuntimeError: CUDA error: uncorrectable ECC error encountered\nSending process 41 closing signal SIGHUP", 1, "cuda_ecc"),
    "a GPU's fault below one": ("Sending process 41 closing signal SIGHUP\nRuntimeError: CUDA error: uncorrectable ECC error encountered", 2, "cuda_ecc"),
    "a GPU's fault below a submission": ("slurm_submit_batch_job: Socket timed out on send/recv operation\nSubmitted batch job 41\nRuntimeError: CUDA error: uncorrectable ECC error encountered", 3, "cuda_ecc"),
    "AMReX's name, and a cancellation": ("Segfault\n" + CANCELLED.format("JOB 7", 1, ""), 2, "slurm_cancelled"),
    "columns of Gaudi": ("BeeReader                INFO   opening wax.root\nBeeReader                ERROR   the tree of wax.root does not exist\nBeeReader                INFO   1 file", 2, "program_error"),
    "Slurm's library": ("code 1: slurm_submit_batch_job: Socket timed out on send/recv operation\n", 1, "slurm_launch_failed"),
    "a pool's worker": ("BeePool          | [1.2/4.0 93.1Gb] worker 'comb07' killed by signal SIGKILL\nBeePool          | [1.2/4.0 93.1Gb] 1 worker(s) have died.", 1, "oom_kill_suspected"),
    "a GPU's fault, and glog's line": ("Memory access fault by GPU node-3 on address 0x42. Reason: Unknown.\n*** Aborted at 1500432842 (unix time) try \"date -d @1500432842\" ***\n*** SIGABRT (@0x9ec) received by PID 2540 (TID 0x7f) from PID 2540; stack trace: ***", 1, "cuda_illegal_access"),
    # ended from outside
    "a terminal that went away": ("Received 1 death signal, shutting down workers\n" + TRACE + "torch.distributed.elastic.multiprocessing.api.SignalException: Process 1 got signal: 1", 1, "process_terminated"),
    "a server": ("[2026] SIGTERM received. Draining requests and shutting down...\n[2026] Subprocess scheduler (pid=3) crashed with exit code -15. Triggering SIGQUIT", 1, "process_terminated"),
    "an interruption without its traceback": ("row 3\nKeyboardInterrupt", 2, "interrupted"),
    "an interruption without its traceback's head": ("row 3\n  File \"q.py\", line 103, in get\n    res = self._receive()\nKeyboardInterrupt\n\n", 4, "interrupted"),
    "an interruption below an error": ("row 3\nERROR: the key of the comb is missing\nKeyboardInterrupt", 2, "program_error"),
    "a server as it starts": (TRACE + "KeyboardInterrupt: terminated\n", 4, "interrupted"),
    "Airflow": ("[2025-01-01T00:00:00] {taskinstance.py:1} ERROR - Received SIGTERM. Terminating subprocesses.\n" + TRACE + "airflow.exceptions.AirflowException: Task received SIGTERM signal", 1, "process_terminated"),
    "Snakemake": ("Terminating processes on user request, this might take some time.\n[Sun]\nError in rule a:\n    jobid: 2\n", 1, "interrupted"),
    # several ends in one log
    "another job's log above": (TRACE + "KeyError: 1\n" + CANCELLED.format("JOB 7", 1, "") + "\nloading\n" + CANCELLED.format("JOB 9", 2, ""), 7, "slurm_cancelled"),
    "another job's log above, and an error": (CANCELLED.format("JOB 7", 1, "") + "\n" + TRACE + "KeyError: 1\n" + CANCELLED.format("JOB 9", 2, ""), 5, "python_exception"),
    "both parts of a job": (TRACE + "KeyError: 1\n" + CANCELLED.format("JOB 7", 1, "") + "\n" + CANCELLED.format("JOB 8", 1, ""), 4, "python_exception"),
    "a time of grace": (CANCELLED.format("STEP 7.0", 1, "") + "\nBypassing signal 15\n" + CANCELLED.format("JOB 7", 2, " DUE TO PREEMPTION"), 3, "slurm_preempted"),
}  # fmt: skip
NOTHING = {
    "IDL's farewell": "% Compiled module: FLAT.\nthe flat field is done\n% Program caused arithmetic error: Floating underflow",
    "VMD's end": "Info) VMD for LINUXAMD64, version 1.9.3\nrmsd 1.25\nInfo) Exiting normally.",
    "a figure called an error behind a step": "Comparing...check: error bound 0.1 is kept\nwrote a.csv",
    "a heading of figures": "Error in norm(u) :\n  0.0012\n  0.0009\nwrote a.csv\nfinished",
    "a loop that ran on to its end": "".join(f" {n}%|█ | {n}/300 [00:01<00:02, 1.5it/s]\n" for n in (1, 2, 3))
    + TRACE
    + "PermissionError: [Errno 1] Operation not permitted: '/tmp/x'\n100%|████| 300/300 [09:01<00:00, 1.5it/s]\nmean 0.3",
    "a logger that calls standard error an error": "2024-07-30 17:02:02 | ERROR | stderr | INFO:     Shutting down\n2024-07-30 17:02:02 | ERROR | stderr | INFO:     Finished server process [7]",
    "a training that reached its end": "RuntimeError: CUDA error: an illegal memory access was encountered\n{'loss': 2.1, 'epoch': 0.5}\n{'train_runtime': 12.5, 'train_samples_per_second': 3.1, 'epoch': 1.0}",
    "a logger of JSON that goes on": '{"ts":"1","level":"error","msg":"no answer, once more"}\n'
    + "\n".join(f'{{"ts":"2","level":"info","msg":"part {n} is here"}}' for n in range(12)),
    "a server that was told to stop and did": "INFO: started\nReceived SIGTERM, shutting down\nINFO: Finished server process [3]",
    "an interrupt long before the end": TRACE
    + "KeyboardInterrupt\n"
    + "\n".join(f"row {n}" for n in range(60)),
    "an interruption in a list": "Exits that the runner counts:\nSIGTERM\nKeyboardInterrupt",
    "an interruption at a prompt": ">>> go()\nKeyboardInterrupt\n>>> exit()",
    "an interruption that was handled": "Interrupt received, the wax is kept\nrow 3\nKeyboardInterrupt",
    "an interruption behind the work": 'All 100 combs are finished.\n  File "q.py", line 103, in get\n    res = self._receive()\nKeyboardInterrupt',
    "a list of signals": "handlers are set for\nSIGTERM\nSIGINT\nall rows are read",
    "Bowtie that passed a file over": 'Warning: Could not open read file "wing.fq" for reading; skipping...\n# reads processed: 1200\n# reads with at least one alignment: 1100 (91.67%)\nReported 1100 alignments',
    "Bowtie's call as it begins": "INFO: Command: /opt/b/bowtie2-align-s --wrapper basic-0 -x fly -U wing.fq\nReported 1100 alignments",
    "a warning of Fortran with its stack": "forrtl: warning (406): fort: (1): In call to MOSS, an array temporary was created for argument #1\n\nImage              PC                Routine            Line        Source\nmoss.exe           00000000014D0C2B  moss_grow_                77  moss.F90\nrow 3\nfinished",
    "a logger's empty line": "2031-02-03 10:11:12,345 bees ERROR:\n2031-02-03 10:11:12,346 bees INFO: comb 3 is here\n2031-02-03 10:11:12,347 bees INFO: over",
    "a Fortran code's own hook": "Image              PC                Routine            Line        Source\nmoss.exe           00000000014D0C2B  moss_abort_                77  moss.F90",
    "a worker that hung up and was started anew": "Sending process 41 closing signal SIGHUP\nRestarting worker group\nepoch 4",
    "a hang-up after the work": "Training finished, wax 0.9\nSending process 41 closing signal SIGHUP",
    "a submission that was tried again": "slurm_submit_batch_job: Socket timed out on send/recv operation\nSubmitted batch job 41",
    "an allocation that came later": "salloc: error: slurm_allocate_resources_blocking: Requested nodes are busy\nsalloc: Granted job allocation 41\n"
    + "\n".join(f"step {n}" for n in range(6)),
    "a pool that starts its worker anew": "worker 3 killed by signal 9, restarting it\ncomb 1 of 2 done\nFinished",
    "a helper that the script kills": "all combs are built\nchild 'wasp' killed by signal SIGKILL\nDone",
    "a pool that shuts down after its work": "worker 'comb07' killed by signal SIGKILL\n1 worker(s) have died. Initiating shutdown.\nAll combs done: finished successfully",
    "a heading of a count": "ends by reason\nAborted (\n3\nDone",
    "AMReX's names in a list": "handlers are set for\nErroneous arithmetic operation\nSegfault\nall rows are read",
    "a class's column in a table": "hive       level    text\nhive_a     FATAL    0 problems with links, 3 unknown words\nhive::b    ERROR    0 not found\nhive_c     OK",
    "Bowtie's call, and its reads": "Command: /opt/b/bowtie2-align-s --wrapper basic-0 -x fly -U wing.fq\n1000 reads; of these:\n99.0% overall alignment rate",
    "nipype's node that was run again": '310203-10:00:01,12 nipype.workflow ERROR:\n\t Node hive.comb failed to run on host n1.\n310203-10:00:01,12 nipype.workflow INFO:\n\t [Node] Finished "hive.comb"',
    "a figure in the output of Livy's child": "31/02/03 10:00:00 INFO LineBufferedStream: stdout: Error: 0 of 3 combs\n31/02/03 10:00:00 INFO LineBufferedStream: stdout: over",
    "the end of another job, as a script shows it": "slurmstepd: error: *** JOB 41 ON n1\ntraining resumed\nepoch 4",
    "a GPU whose handle came": "INFO: Obtained the device handle for GPU 0: Hive H1\nepoch 4",
    "columns of a table": "MODULE        ERROR   TOTAL\ncomb           0       12\nwax            1       14",
    "an interruption that the program got over": "step 2 loss 2.0\nKeyboardInterrupt\n"
    + "\n".join(f"step {n} loss {1 / n:.3f}" for n in range(3, 40)),
    "UCX where the program goes on": "[1.8] [n1:5:2]   ucp_rkey.c:250  UCX  ERROR one lane is not there\n"
    + "\n".join(f"step {n} loss {1 / n:.3f}" for n in range(1, 40)),
}


def first(text: str) -> tuple[int, str] | None:
    """Line and kind of the first cause."""
    found = next((f for f in reader.read(text.split("\n")) if f.first_cause), None)
    return (found.line, found.kind) if found else None


@every("text, line, kind", FIRST.values())
def test_the_line_that_says_what_was_wrong(text: str, line: int, kind: str) -> None:
    """Where it stands, and its kind."""
    assert first(text) == (line, kind)


@every("text", NOTHING.values())
def test_what_ended_nothing_stays_silent(text: str) -> None:
    """A receipt alone is no end."""
    assert first(text) is None


@every(
    ("text", "message"),
    [
        ("--> FOAM FATAL ERROR: (openfoam-2212)\nMaximum number of iterations exceeded", "FOAM FATAL ERROR: (openfoam-2212): Maximum number of iterations exceeded"),
        (" %%%%%%%%%%\n     Error in routine  cdiaghg (159):\n      S matrix not positive definite", "Error in routine  cdiaghg (159): S matrix not positive definite"),
        ("unable to load shared object '/a/b.so':\n  libz.so: cannot open the file", "unable to load shared object '/a/b.so': libz.so: cannot open the file"),
        ("*** ERROR ***\n the deck has no part 7", "ERROR: the deck has no part 7"),
    ],
)  # fmt: skip
def test_a_heading_keeps_its_brackets_and_loses_its_rules(text: str, message: str) -> None:
    assert next(f.message for f in reader.read(text.split("\n")) if f.first_cause) == message


def test_a_heading_without_its_sentence_stays_the_cause() -> None:
    """Nothing below it says more."""
    assert first("--> FOAM FATAL IO ERROR: \n") == (1, "program_error")
    assert first(f"{TRACE}RuntimeError:\n") == (4, "python_exception")


def test_a_wrapper_that_the_program_survived_is_no_cause() -> None:
    """Ray's exception was caught and the steps go on."""
    text = f"step 1 loss 3.0\nstep 2 loss 2.0\n{TRACE}ray.exceptions.RayTaskError(KeyError): ray::W.run() (pid=1)\n"
    assert first(text + "\n".join(f"step {n} loss {1 / n:.3f}" for n in range(3, 60))) is None
