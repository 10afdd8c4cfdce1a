"""Forms of job output found in issue trackers that an earlier grammar misread; the words are ours, the forms are of the issue named."""

from __future__ import annotations

import io
import itertools

from probing_cluster.evidence import classify
from probing_cluster.evidence.joblog import reader
from tests.every_case import every

LSF = (
    "\n" + "-" * 60 + "\nSender: LSF System <lsfadmin@hpc>\nSubject: Job 7: <NONAME> in cluster <c> Exited\n\n"
    "Job <NONAME> was submitted from host <l1> by user <u> in cluster <c> at Mon Dec  6 16:41:23 2021\n"
    "Job was executed on host(s) <n-1>, in queue <hpc>, as user <u> in cluster <c> at Mon Dec  6 16:41:24 2021\n"
    "Started at Mon Dec  6 16:41:24 2021\nTerminated at Mon Dec  6 16:41:25 2021\n\nYour job looked like:\n\n"
    + "-" * 60 + "\n# LSBATCH: User input\nset -e\nRuntimeError: CUDA error: uncorrectable ECC error encountered\n./train.sh\n"
    + "-" * 60 + "\n\nExited with exit code 126.\n\nResource usage summary:\n\n    CPU time :   0.23 sec.\n    Max Memory :   -\n"
    "    Run time :   7 sec.\n\n"
)  # fmt: skip
STEPS_THEN = "".join(f"step {n} loss 2.{9 - n}\n" for n in range(9))
STILL_BUSY = "srun: Job 9951 step creation still disabled, retrying (Requested nodes are busy)\n" * 30
STORE_GONE = "[rank3]:[W1206 18:44:12.7 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=65, addr=[localhost]:37402, remote=[localhost]:29500): failed to recv, got 0 bytes"
GOES_ON = "\n\nInspect the output of the command\nDevice set to use cuda:0\nSetting the token of the end\nThe answer is 42\nand so on\nand so on"
FOUND = [
    # name of the source, kind of the first cause or None, what it must say, log
    (
        "open-r1 620: a terminal wrapped inside the description of the work",
        "watchdog_timeout",
        {"op": "BROADCAST", "seq": 4, "rank": 2, "timeout_ms": 1800000},
        ("[rank2]:[E424 01:11:21.16 ProcessGroupNCCL.cpp:629] [Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4, OpTy\n"
        "pe=BROADCAST, NumelIn=112, NumelOut=112, Timeout(ms)=1800000) ran for 1800010 milliseconds before timing out.\n"
        "[rank3]:[E424 01:11:21.17 ProcessGroupNCCL.cpp:629] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4, OpTy\n"),
    ),
    (
        "the same, and the rest was never written",
        "watchdog_timeout",
        {"op": None, "rank": 2},
        "[rank2]:[E424 01:11:21.16 ProcessGroupNCCL.cpp:629] [Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4, OpTy\n",
    ),
    (
        "prime-rl 3186: only the dump's request is left of a rank's own timeout",
        "watchdog_timeout",
        {"rank": 1},
        "[rank1]:[E801 01:01:39.25 ProcessGroupNCCL.cpp:1914] [PG ID 0 PG GUID 0(default_pg) Rank 1] Received a dump signal due to a collective timeout from this local rank and we will try our best to dump the debug info. Last enqueued NCCL work: 37, last completed NCCL work: 36.",
    ),
    (
        "jax 17399: NCCL's result as XLA prints it",
        "nccl_unhandled_cuda",
        {},
        ("INTERNAL: external/xla/xla/service/gpu/nccl_utils.cc:275: NCCL operation ncclCommInitRank(&comm, nranks, id, rank) failed: unhandled cuda error\n"
        "jaxlib.xla_extension.XlaRuntimeError: INTERNAL: Failed to execute XLA Runtime executable"),
    ),
    (
        "LWM 42: the same within the exception",
        "nccl_internal_error",
        {},
        ("Traceback (most recent call last):\n  File \"a.py\", line 1, in <module>\n"
        "jaxlib.xla_extension.XlaRuntimeError: INTERNAL: custom call 'xla.gpu.reduce_scatter' failed: nccl_utils.cc:305: NCCL operation ncclCommInitRank(&comm, nranks, id, rank) failed: internal error - please report this issue to the NCCL developers."),
    ),
    (
        "llama-2-jax 20: the processes did not all meet",
        "rendezvous_timeout",
        {},
        ("Traceback (most recent call last):\n  File \"t.py\", line 89, in main\n"
        "jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Barrier_id: PjRT_Client_Connect. Timed out task names:"),
    ),
    (
        "marin 7430: a process that only hears of another's death",
        "peer_lost",
        {},
        "F0318 10:00:00.0 123 client.h:77] Terminating process because the JAX distributed service detected fatal errors. This most likely indicates that another task died; see the other task logs for more details.",
    ),
    (
        "OpenRLHF 624: Ray",
        "peer_lost",
        {"pid": None},
        "(raylet) A worker died or was killed while executing a task by an unexpected system error. To troubleshoot the problem, check the logs for the dead worker.",
    ),
    (
        "ray's own memory monitor",
        "host_oom_kill",
        {},
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
    ),
    (
        "ucx 6000: MPI over UCX",
        "net_ib_completion_error",
        {},
        ("[n1:24113:0:24113] ib_mlx5_log.c:143  Transport retry count exceeded on mlx5_0:1/RoCE (synd 0x15 vend 0x81 hw_synd 0/0)\n"
        "mpirun noticed that process rank 3 with PID 24113 on node n1 exited on signal 6 (Aborted)."),
    ),
    ("uccl 641: verbs without NCCL", "net_ib_error", {}, "Failed to modify QP to RTR: Connection timed out\nerrno: 110"),
    (
        "pytorch 108732: gloo cannot connect",
        "gloo_connect_failed",
        {},
        "RuntimeError: [/work/third_party/gloo/gloo/transport/tcp/pair.cc:799] connect [10.0.0.1]:13195: Connection refused",
    ),
    (
        "pytorch 69197: the store of torch 1.10",
        "rendezvous_timeout",
        {"timeout_ms": 60000},
        "Traceback (most recent call last):\n  File \"a.py\", line 155, in _create_tcp_store\nRuntimeError: connect() timed out. Original timeout was 60000 ms.",
    ),
    ("ComfyUI 9529", "cuda_oom", {}, "HIP out of memory. Tried to allocate 432.00 MiB. GPU 0 has a total capacity of 15.92 GiB"),
    (
        "autotrain 737",
        "cuda_version",
        {},
        ("RuntimeError: HIP error: no kernel image is available for execution on the device\n"
        "HIP kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.\n"
        "For debugging consider passing AMD_SERIALIZE_KERNEL=3"),
    ),
    (
        "ROCm pytorch 797",
        "cuda_illegal_access",
        {},
        "Memory access fault by GPU node-2 (Agent handle: 0x5646) on address 0x7fe55fb03000. Reason: Page not present or supervisor privilege.\nAborted (core dumped)",
    ),
    (
        "pytorch 10577: saving on a failing disk",
        "io_error",
        {},
        "Traceback (most recent call last):\n  File \"train.py\", line 250, in <module>\nRuntimeError: write(): fd 29 failed with Input/output error",
    ),
    (
        "nccl 1518: a warning without its prefix",
        "nccl_unhandled_cuda",
        {},
        "NCCL WARN Cuda failure 'invalid argument'\nNCCL WARN Error while creating shared memory segment /dev/shm/nccl-x (size 9637888)",
    ),
    (
        "nccl 296",
        "collective_mismatch",
        {},
        "n1:100:120 [0] init.cc:1247 NCCL WARN Mismatched collective detected, please check your collective calls at and around rank 2.",
    ),
    (
        "pytorch 78022: the mismatch of torch 1.9, which names one rank",
        "collective_mismatch",
        {"op": "BROADCAST", "rank": 0},
        "RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running inconsistent collective: CollectiveFingerPrint(OpType=BROADCAST, TensorShape=[34112])",
    ),
    (
        "an exception group of Python 3.11",
        "python_exception",
        {},
        ("  + Exception Group Traceback (most recent call last):\n  |   File \"t.py\", line 20, in <module>\n"
        "  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)\n  +-+---------------- 1 ----------------\n"
        "    | Traceback (most recent call last):\n    |   File \"t.py\", line 12, in work\n    | ValueError: bad batch\n    +------------------------------------"),
    ),
    ("an exception without Error in its name", "python_exception", {}, "Traceback (most recent call last):\n  File \"t.py\", line 3, in <module>\nStopIteration"),
    (
        "a module's own exception",
        "python_exception",
        {},
        "Traceback (most recent call last):\n  File \"t.py\", line 3, in <module>\ntorch._dynamo.exc.Unsupported: call_function builtin",
    ),
    (
        "trainer 2041: torchelastic's warning as it ends",
        None,
        {},
        "WARNING:torch.distributed.elastic.rendezvous.dynamic_rendezvous:The node 'n1_17_0' has failed to shutdown the rendezvous 'none' due to an error of type RendezvousConnectionError.",
    ),
    (
        "torch 2.7 and later: ranks that end a little after the one with the store",
        None,
        {},
        STEPS_THEN + STORE_GONE,
    ),
    (
        "gpustack 6019, xinference 4421: the same, and nothing stands above it that could have ended well",
        "store_lost",
        {"line": 1},
        STORE_GONE + "\nException raised from recvBytes at /pytorch/torch/csrc/distributed/c10d/Utils.hpp:682 (most recent call first):\nframe #0: c10::Error::Error(c10::SourceLocation, std::__cxx11::basic_string<char, std::char_traits<char>",
    ),
    ("the same at its head, and the work below it goes well", None, {}, f"{STORE_GONE}\n{STEPS_THEN}Training completed successfully"),
    ("the same, and the work below it uses other words", None, {}, STORE_GONE + "\nreading\nsolving\nwriting\nleaving\n"),
    (
        "the same from every rank that ends, again and again",
        "store_lost",
        {"line": 1},
        f"{STORE_GONE}\n{STORE_GONE}\n" + '[rank3]:[W1206 18:44:13.7 ProcessGroupNCCL.cpp:1659] [PG ID 0 PG GUID 0 Rank 3] Failed to check the "should dump" flag on TCPStore, (maybe TCPStore server has shut down too early), with error: Broken pipe\n' * 6,
    ),
    (
        "llama.cpp 10152: a prompt that a server prints ends with the model's turn, which has not begun",
        "cuda_error",
        {"line": 8},
        "chat_example: '<|im_start|>system\nYou help.<|im_end|>\n<|im_start|>assistant\n'\nserver is listening\nslot 0: done\nggml-cuda.cu:70: CUDA error\nCUDA error: peer access has not been enabled\n  current device: 0\nAborted (core dumped)",
    ),
    (
        "BMInf 29: the line of source at which IPython points is no message",
        "cuda_version",
        {"line": 4},
        "/opt/x/cuda.py in check(error)\n    215     if error:\n--> 216         raise RuntimeError(\"CUDA Error: %s\" % text(error))\nRuntimeError: CUDA Error: no kernel image is available for execution on the device",
    ),
    (
        "ucx 1920: an exhausted queue pair, in the words of UCX 1.3",
        "net_ib_completion_error",
        {"line": 2},
        "4096     27.58\n[1516700569.37] [n59:5831 :0]    ib_mlx5_log.c:113  UCX  ERROR Error on QP 0x6179 wqe[0]: Transport retry count exceeded (synd 0x15 vend 0x81) opcode SEND\n[1516700569.38] [n59:5831 :0]  ucp_worker.c:437  UCX  ERROR Error Endpoint timeout was not handled for ep 0x1bd - rc_mlx5/mlx5_2:1",
    ),
    (
        "ucx 3087: an endpoint's timeout, with mpirun's stamp",
        "peer_lost",
        {"line": 2},
        "starting\nMon Dec 10 08:18:05 2018[1,8]<stderr>:[n1:13210:0:13210]    ud_iface.c:732  UCX Fatal: transport error: Endpoint timeout",
    ),
    (
        "WarpX 2736: Cray's MPI without the lines around its message",
        "program_error",
        {"line": 2},
        "Initializing\nMPIDI_CRAY_init: GPU_SUPPORT_ENABLED is requested, but GTL library is not linked",
    ),
    (
        "Open MPI's help messages are counted, and the error itself went elsewhere",
        "process_aborted",
        {"line": 2},
        "[n2170:115478] 37 more processes have sent help message help-opal-shmem-mmap.txt / mmap on nfs\n[n2170:115478] 1 more process has sent help message help-mpi-errors.txt / mpi_errors_are_fatal\n===== Job Information =====\nElapsed: 1 min",
    ),
    (
        "RELION 327: an MPI error's class before the exception that it became",
        "program_error",
        {"line": 2},
        "starting\n  1: MPI_ERR_TRUNCATE: message truncated\nterminate called after throwing an instance of 'RelionError'\n[g1:31213] *** Process received signal ***\n[g1:31213] Signal: Aborted (6)",
    ),
    (
        "LBANN 1002: an error on a rank, with its source",
        "program_error",
        {"line": 2},
        "reading\nLBANN error on rank 2 (/src/data_reader.cpp:374): data_reader:: Cannot open file /3/samples.bundle",
    ),
    (
        "Megatron 172: a machine that is no node of a cluster",
        "slurm_launch_failed",
        {"line": 2},
        "starting\nsrun: error: s_p_parse_file: unable to status file /etc/slurm-llnl/slurm.conf: No such file or directory, retrying in 1sec up to 60sec",
    ),
    (
        "Paddle 52622: the store is gone, whatever the exception's name",
        "python_consequence",
        {"line": 4},
        "Traceback (most recent call last):\n  File \"t.py\", line 3, in <module>\n    task = group.barrier()\nValueError: (InvalidArgument) TCP send error. Details: Broken pipe.",
    ),
    (
        "ViLT: Sacred's sum of a run that lost its peers says nothing; Slurm does",
        "slurm_oom",
        {"line": 6},
        "epoch 1\nERROR - ViLT - Failed after 5:11:10!\nTraceback (most recent calls WITHOUT Sacred internals):\n  File \"run.py\", line 73, in main\nRuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:598] Connection closed by peer [172.16.205.19]:15775\nslurmstepd: error: Detected 37 oom-kill event(s) in StepId=61074596.batch. Some of your processes may have been killed by the cgroup out-of-memory handler.",
    ),
    (
        "a step that waits for the job's own nodes until the end",
        "slurm_launch_failed",
        {"line": 2},
        "starting\nsrun: Job 9951 step creation temporarily disabled, retrying (Requested nodes are busy)\n" + STILL_BUSY,
    ),
    (
        "the same until the job's time is over",
        "slurm_launch_failed",
        {"line": 2},
        "starting\nsrun: Job 9951 step creation temporarily disabled, retrying (Requested nodes are busy)\n" + STILL_BUSY + "srun: error: Unable to create step for job 9951: Job/step already completing or completed\nslurmstepd: error: *** JOB 9951 ON n1 CANCELLED AT 2024-05-02T10:11:12 DUE TO TIME LIMIT ***\n",
    ),
    (
        "the same, as srun without -v prints it: once",
        "slurm_launch_failed",
        {"line": 2},
        "starting\nsrun: Job 9951 step creation temporarily disabled, retrying (Requested nodes are busy)\nslurmstepd: error: *** JOB 9951 ON n1 CANCELLED AT 2024-05-02T10:11:12 DUE TO TIME LIMIT ***\n",
    ),
    (
        "the same of an older release",
        "slurm_launch_failed",
        {"line": 2},
        "starting\nsrun: Job step creation temporarily disabled, retrying\nslurmstepd: error: *** JOB 9951 ON n1 CANCELLED AT 2024-05-02T10:11:12 DUE TO TIME LIMIT ***\n",
    ),
    (
        "a step that waited, said so once, began, and printed nothing until the limit",
        "slurm_timeout",
        {},
        "starting\nsrun: Job 9951 step creation temporarily disabled, retrying (Requested nodes are busy)\nsrun: Step created for StepId=9951.1\nslurmstepd: error: *** JOB 9951 ON n1 CANCELLED AT 2024-05-02T10:11:12 DUE TO TIME LIMIT ***\n",
    ),
    (
        "the same of an older release, which prints another word",
        "slurm_timeout",
        {},
        "starting\nsrun: Job step creation temporarily disabled, retrying\nsrun: Job step created\nslurmstepd: error: *** JOB 9951 ON n1 CANCELLED AT 2024-05-02T10:11:12 DUE TO TIME LIMIT ***\n",
    ),
    (
        "a person cancelled a job whose step waited",
        "slurm_cancelled",
        {},
        "starting\nsrun: Job 9951 step creation temporarily disabled, retrying (Requested nodes are busy)\n" + STILL_BUSY + "slurmstepd: error: *** JOB 9951 ON n1 CANCELLED AT 2024-05-02T10:11:12 ***\n",
    ),
    (
        "a step that waited and then began",
        None,
        {},
        "starting\nsrun: Job 9951 step creation temporarily disabled, retrying (Requested nodes are busy)\n" + STILL_BUSY + "srun: Step created for StepId=9951.1\nepoch 1\n",
    ),
    (
        "Ray 2.4: a signal that its handler reports, and a minute of Ray's own farewell",
        "process_terminated",
        {"line": 10},
        STEPS_THEN + "(pid=52193) Running step 1: 2%|x | 1.00/64.0 [17:22<18:14:29, 1.04ks/it]*** SIGTERM received at time=1765653017 on cpu 115 ***\n" + "".join(f"2025-12-14 03:10:{n} INFO scripts.py:1200 -- Attempted to stop process {n}\n" for n in range(10, 60)),
    ),
    (
        "conda's line about the command that it ran gives no reason",
        "bus_error",
        {"line": 10},
        STEPS_THEN + "/tmp/tmp77: line 3: 1070928 Bus error               (core dumped) python3 RL/train.py 13\n\nERROR conda.cli.main_run:execute(125): `conda run python3 RL/train.py 13` failed. (See above for error)",
    ),
    (
        "cmt 83: torchelastic's notice of a child without a report",
        "task_exit",
        {"line": 2},
        "CHILD PROCESS FAILED WITH NO ERROR_FILE\nChild process 71952 (local_rank 0) FAILED (exitcode 1)\nError msg: Process failed with exitcode 1",
    ),
    (
        "rccl 1454, nccl-tests 166: the result as the tests of NCCL print it",
        "nccl_internal_error",
        {},
        "n7: Test NCCL failure common.cu:958 'internal error - please report this issue to the NCCL developers / '",
    ),
    (
        "horovod 1651: NCCL's result as Horovod prints it",
        "nccl_system_error",
        {"rank": 0},
        "[1,0]<stderr>:tensorflow.python.framework.errors_impl.UnknownError: ncclCommInitRank failed: unhandled system error",
    ),
    (
        "DeepLearningExamples 972: Horovod on the ranks that live",
        "peer_lost",
        {},
        "2021-07-22 05:04:29.5: W tensorflow/core/framework/op_kernel.cc:1651] OP_REQUIRES failed at mpi_ops.cc:316 : Unknown: Horovod has been shut down. This was caused by an exception on one of the ranks.",
    ),
    (
        "horovod 1206: a stall that ends by itself",
        None,
        {},
        ("[2020-03-24 04:54:54.2: W horovod/common/stall_inspector.cc:105] One or more tensors were submitted to be reduced by subset of ranks and are waiting for remainder of ranks for more than 60 seconds.\n"
        "Stalled ranks:\n0: [training/Adam_Allreduce/x_0]\nEpoch 3/12"),
    ),
    (
        "jax 23599: a task that the coordination service gave up",
        "peer_lost",
        {"rank": 37},
        "2022-11-15 16:03:15.1: E external/xla/coordination_service.cc:954] /job:jax_worker/replica:0/task:37 has been set to ERROR in coordination service: UNAVAILABLE: Task /job:jax_worker/replica:0/task:37 heartbeat timeout.",
    ),
    (
        "mpich 7227: verbs under UCX",
        "net_ib_error",
        {},
        "[1732873720.1] [n1:889102:0]        ib_iface.c:1138 UCX  ERROR ibv_create_cq(cqe=256) failed: Connection timed out\nAbort(675407631) on node 0: Fatal error in internal_Init: Other MPI error, error stack:",
    ),
    (
        "nccl 1788: multicast memory",
        "nccl_unhandled_cuda",
        {"host": "n4", "pid": 27907, "domains": ("user_program", "system_software", "hardware")},
        "n4:27907:27907 [1] transport/nvls.cc:254 NCCL WARN Cuda failure 401 'the operation cannot be performed in the present state'",
    ),
    (
        "pytorch 177472: the same below the exception",
        "nccl_unhandled_cuda",
        {"domains": ("user_program", "system_software", "hardware")},
        ("torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:93, unhandled cuda error, NCCL version 2.29.3\nLast error:\n"
        "Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 401 'the operation cannot be performed in the present state'."),
    ),
    (
        "ai-toolkit 470: a logger that puts the error and its advice on one line",
        "cuda_ecc",
        {},
        "CUDA error: uncorrectable ECC error encountered Search for `cudaErrorECCUncorrectable' in https://x for more information. For debugging consider passing CUDA_LAUNCH_BLOCKING=1",
    ),
    ("torch 2.9: advice alone", None, {}, "[rank3]: Search for `hipErrorLaunchFailure' in https://x for more information."),
    (
        "neuraltalk2 127: the first form of all",
        "cuda_launch_failure",
        {},
        "THCudaCheck FAIL file=/tmp/THC/generic/THCStorage.c line=147 error=4 : unspecified launch failure",
    ),
    ("kaldi 2636", "cuda_launch_failure", {}, "ERROR (nnet3-train:CopyToVec():cu-vector.cc:899) cudaError_t 4 : \"unspecified launch failure\" returned from 'cudaMemcpy(d)'"),
    ("Paddle 57411", "cuda_launch_failure", {}, "OSError: (External) CUDA error(719), unspecified launch failure. \n  [Hint: 'cudaErrorLaunchFailure'.]"),
    ("nccl-tests: CUDA's result", "cuda_oom", {}, "n7: Test CUDA failure common.cu:310 'out of memory'"),
    (
        "milabench 397: the HSA runtime",
        "cuda_launch_failure",
        {},
        ":0:rocdevice.cpp            :3586: 92087492418 us:  Callback: Queue 0x772c aborting with error : HSA_STATUS_ERROR_EXCEPTION: An HSAIL operation resulted in a hardware exception. code: 0x1016",
    ),
    ("ROCm 4208: the runtime thinks aloud", None, {}, ":3:hip_platform.cpp         :715 : 8802962852 us: [pid:19349 tid:0x14de] init: Returned hipErrorNoBinaryForGpu : continue parsing remaining modules"),
    ("ROCm 4208", "cuda_version", {}, "RuntimeError: HIP error: invalid device function"),
    ("DASR 89", "cuda_library_error", {}, "RuntimeError: cublas runtime error : the GPU program failed to execute at /pytorch/aten/src/THC/THCBlas.cu:450"),
    ("pytorch-gpu-benchmark 19", "cuda_library_error", {}, "MIOpen Error: /MIOpen/src/hipoc/hipoc_program.cpp:286: Code object build failed. Source: x.cl"),
    (
        "jax 15361",
        "cuda_library_error",
        {},
        "Traceback (most recent call last):\n  File \"t.py\", line 2, in <module>\njaxlib.xla_extension.XlaRuntimeError: FAILED_PRECONDITION: DNN library initialization failed. Look at the errors above for more details.",
    ),
    ("jax 788", "cuda_oom", {}, "2019-06-13 01:17:08.8: E external/local_client.cc:672] Execution of replica 0 failed: Resource exhausted: Out of memory while trying to allocate 5520758552 bytes."),
    (
        "vllm 5537: a terminal wrapped inside the name of the error",
        "cuda_illegal_access",
        {"rank": 1, "line": 1},
        ("[rank1]:[E ProcessGroupNCCL.cpp:1414] [PG 2 Rank 1] Process group watchdog thread terminated with exception: CUDA error: an illegal me\n"
        "mory access was encountered\nCUDA kernel errors might be asynchronously reported at some other API call."),
    ),
    (
        "the same, and what follows is an error of its own",
        "cuda_error",
        {"rank": 1, "line": 1},
        ("[rank1]:[E ProcessGroupNCCL.cpp:1414] [PG 2 Rank 1] Process group watchdog thread terminated with exception: CUDA error: an illegal me\n"
        "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB."),
    ),
    (
        "nccl 1241: a whole line about a group that works, then a failure",
        "cuda_ecc",
        {"rank": None, "line": 2},
        ("[I ProcessGroupNCCL.cpp:672] [Rank 3] ProcessGroupNCCL initialized with following options: TIMEOUT(ms): 600000\n"
        "RuntimeError: CUDA error: uncorrectable ECC error encountered"),
    ),
    (
        "ArcticTraining 219: printed last, but eight minutes before",
        "watchdog_timeout",
        {"rank": 2, "seq": 120049},
        ("[rank7]:[E626 05:14:36.393067540 ProcessGroupNCCL.cpp:1743] [PG ID 0 PG GUID 0(default_pg) Rank 7] ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress.\n"
        "[rank2]:[E626 05:06:30.929096625 ProcessGroupNCCL.cpp:632] [Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=120049, OpType=_ALLGATHER_BASE, NumelIn=16, NumelOut=128, Timeout(ms)=1800000) ran for 1800065 milliseconds before timing out."),
    ),
    (
        "clocks of nodes differ by seconds: the order of the lines counts",
        "watchdog_timeout",
        {"rank": 0},
        ("[rank0]:[E626 05:06:33.1 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=16, NumelOut=16, Timeout(ms)=600000) ran for 600065 milliseconds before timing out.\n"
        "[rank9]:[E626 05:06:30.9 ProcessGroupNCCL.cpp:632] [Rank 9] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=16, NumelOut=16, Timeout(ms)=600000) ran for 600065 milliseconds before timing out."),
    ),
    (
        "vllm-swift 9: a store that does not answer yet",
        None,
        {},
        "[W426 16:56:01.8 TCPStore.cpp:347] [c10d] TCP client failed to connect/validate to host 10.0.0.1:59782 - retrying (try=6, timeout=1800000ms, delay=5241ms): Connection reset by peer",
    ),
    ("llm-foundry 258: Composer", "bus_error", {"rank": 2}, "ERROR:composer.cli.launcher:Rank 2 crashed with exit code -7."),
    ("llm-foundry 726: Composer", "task_exit", {"rank": 4, "pid": 147193}, "ERROR:composer.cli.launcher:Global rank 4 (PID 147193) exited with code 1"),
    (
        "MP-SENet 7: what torch.multiprocessing says of a child",
        "segfault",
        {"rank": 1},
        "Traceback (most recent call last):\n  File \"t.py\", line 6, in <module>\ntorch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGSEGV",
    ),
    ("EZ-HOI 6: told to end", "process_terminated", {"line": 1}, "torch.multiprocessing.spawn.ProcessExitedException: process 0 terminated with signal SIGTERM"),
    ("ompi 6618: kubectl exec", "oom_kill_suspected", {}, "command terminated with exit code 137\nORTE has lost communication with a remote daemon."),
    (
        "pyxis 61: the container did not start",
        "slurm_launch_failed",
        {"line": 1},
        "slurmstepd: error: pyxis: container start failed with error code: 1\nslurmstepd: error: pyxis: couldn't start container\nsrun: error: n2: task 1: Exited with exit code 1",
    ),
    ("pyxis 135", "slurm_launch_failed", {"host": "sp-0016"}, "slurmstepd-sp-0016: error: pyxis: couldn't start container\nsrun: error: sp-0016: task 0: Exited with exit code 1"),
    ("trixie 58", "slurm_launch_failed", {"host": "cn131"}, "srun: error: Task launch for 36.0 failed on node cn131: Job credential expired"),
    ("recOrder 482", "slurm_launch_failed", {}, "srun: fatal: SLURM_MEM_PER_CPU, SLURM_MEM_PER_GPU, and SLURM_MEM_PER_NODE are mutually exclusive."),
    ("pman 200", "slurm_launch_failed", {}, "sbatch: error: Batch job submission failed: Requested node configuration is not available"),
    ("soperator 854", "slurm_node_fail", {"host": "worker-1"}, "salloc: error: Node failure on worker-1"),
    (
        "jukebox 155: MPICH prints the wait status",
        "oom_kill_suspected",
        {"pid": 9665, "host": "n6"},
        ("=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   PID 9665 RUNNING AT n6\n=   EXIT CODE: 9\n=   CLEANING UP REMAINING PROCESSES\n"
        "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)"),
    ),
    ("Galois 37", "segfault", {"pid": 4774}, "=   PID 4774 RUNNING AT n1\n=   EXIT CODE: 139"),
    ("Intel MPI", "oom_kill_suspected", {"rank": 3, "pid": 12, "host": "n1"}, "=   RANK 3 PID 12 RUNNING AT n1\n=   KILLED BY SIGNAL: 9 (Killed)"),
    (
        "ucx 5832: the first process to do so was",
        "task_exit",
        {"rank": 5},
        "mpirun detected that one or more processes exited with non-zero status, thus causing\nthe job to be terminated. The first process to do so was:\n\n  Process name: [[64636,1],5]\n  Exit code:    1",
    ),
    ("a program that reports exit codes is no launcher", None, {}, "Exit code:    1"),
    ("Open MPI 5 breaks the line", "segfault", {"rank": 1, "pid": 77, "host": "n3"}, "prterun noticed that process rank 1 with PID 77 on node n3 exited on\nsignal 11 (Segmentation fault)."),
    ("and Open MPI 1 elsewhere", "segfault", {"rank": 1, "host": "n3"}, "mpirun noticed that process rank 1 with PID 77 on node n3\nexited on signal 11 (Segmentation fault)."),
    ("QUICK 172", "task_exit", {"rank": 0}, "mpirun has exited due to process rank 0 with PID 0 on\nnode n1 exiting improperly. There are three reasons this could occur:"),
    (
        "radical.pilot 2164: a node's daemon is gone",
        "peer_lost",
        {"host": "d23n02"},
        "ORTE has lost communication with a remote daemon.\n\n  HNP daemon   : [[27407,0],0] on node batch2\n  Remote daemon: [[27407,0],1] on node d23n02",
    ),
    ("radical.pilot 2417", "rendezvous_failed", {}, "An ORTE daemon has unexpectedly failed after launch and before\ncommunicating back to mpirun."),
    ("ompi 11669", "rendezvous_failed", {}, "[cn557:1724353] PML ucx cannot be selected"),
    ("deepops 942: Open MPI names who crashed", "process_aborted", {"host": "gpu01", "pid": 193313}, "[gpu01:193313] *** Process received signal ***\n[gpu01:193313] Signal: Aborted (6)"),
    (
        "Megatron-LM 386: a rank waits for NCCL's id",
        "rendezvous_timeout",
        {"rank": 3},
        "RuntimeError: [3] is setting up NCCL communicator and retreiving ncclUniqueId from [0] via c10d key-value store by store->get('0'), but store->get('0') got error: Socket Timeout",
    ),
    (
        "the same, and rank 0 is gone",
        "store_lost",
        {"rank": 7},
        "RuntimeError: [7] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by store->get('0'), but store->get('0') got error: Connection reset by peer. This may indicate a possible application crash on rank 0 or a network set up issue.",
    ),
    ("aws-ofi-nccl 161", "net_ib_completion_error", {"host": "a-1", "pid": 462}, "a-1:462:650 [0] ofi_process_cq:1033 NCCL WARN NET/OFI Request 0x7f1 completed with error. RC: 21. Error: unknown error."),
    ("aws-ofi-nccl 24", "nccl_system_error", {"rank": 23}, "[1,23]<stdout>:ip-1:72593:73427 [7] create_nccl_ofi_component:459 NCCL WARN NET/OFI Couldn't open AV. RC: -22, ERROR: Invalid argument"),
    ("aws-ofi-nccl: another protocol is tried next", None, {}, "ip-1:1:2 [0] nccl_net_ofi_create_plugin:262 NCCL WARN NET/OFI Failed to initialize rdma protocol"),
    ("pytorch 35710: the name without the text", "cuda_unavailable", {}, "CUDA error at bandwidthTest.cu:256 code=802(cudaErrorSystemNotReady) \"cudaSetDevice(currentDevice)\""),
    (
        "STSU 6: the loader's handler is first",
        "dataloader_crash",
        {"line": 1},
        "ERROR: Unexpected segmentation fault encountered in worker.\nTraceback (most recent call last):\n  File \"t.py\", line 9, in f\nRuntimeError: DataLoader worker (pid(s) 4711) exited unexpectedly",
    ),
    ("a date in front of an error is no syslog header", "cuda_ecc", {"host": None}, "2024-05-09T01:12:34.123Z CUDA error: uncorrectable ECC error encountered"),
    ("a date, a rank and an error", "cuda_illegal_access", {}, "2024-05-09 01:12:34 rank7 RuntimeError: CUDA error: an illegal memory access was encountered"),
    ("a syslog header", "oom_kill_suspected", {"host": "n17"}, "Jun  5 10:00:00 n17 train[123]: Killed"),
    (
        "SageMaker's launcher",
        "python_exception",
        {"rank": 3, "host": "algo-1"},
        "[1,mpirank:3,algo-1]<stderr>:Traceback (most recent call last):\n[1,mpirank:3,algo-1]<stderr>:  File \"t.py\", line 1, in <module>\n[1,mpirank:3,algo-1]<stderr>:KeyError: 'lr'",
    ),
    (
        "TorchX",
        "python_exception",
        {"rank": 2},
        "trainer/2 Traceback (most recent call last):\ntrainer/2   File \"t.py\", line 1, in <module>\ntrainer/2 KeyError: 'lr'",
    ),
    ("SkyPilot", "oom_kill_suspected", {"rank": 1, "host": "10.0.0.2"}, "(worker1, rank=1, pid=4041, ip=10.0.0.2) Killed"),
    ("docker compose", "oom_kill_suspected", {}, "worker-1  | Killed"),
    (
        "a listing of torchelastic behind a logger's words",
        "segfault",
        {"rank": 3, "pid": 99, "host": "n3"},
        "INFO | Root Cause (first observed failure):\nINFO |   host      : n3\nINFO |   rank      : 3 (local_rank: 3)\nINFO |   exitcode  : -11 (pid: 99)",
    ),
    (
        "a traceback that is indented as a whole",
        "python_exception",
        {"line": 3},
        "    Traceback (most recent call last):\n      File \"t.py\", line 1, in <module>\n    KeyError: 'lr'",
    ),
    ("nccl 1919: an event of one queue", "net_ib_async_event", {"host": "n-0", "detail": {"event": "invalid request local work queue error"}}, "n-0:139577:139678 [0] transport/net_ib.cc:154 NCCL WARN NET/IB : mlx5_1:1 async fatal event on QP (0x7309dc3bb338): invalid request local work queue error"),
    ("nccl 1618: a site's own prefix", "nccl_system_error", {}, "[0604/1024][2025-02-16 22:31:34,422] [misc/socket.cc:586] [n4:pid=39] NCCL WARN socketPollConnect poll() returned 1, no POLLOUT events"),
    ("nccl-tests 15: NCCL 2.2", "nccl_system_error", {"host": "gpu-103", "pid": 18553}, "gpu-103:18553:18611 [0] include/socket.h:360 WARN Call to connect failed : Connection timed out"),
    ("nccl 230: a date with a colon behind it", "net_ib_async_event", {"rank": 12}, "2019-06-02T16:13:44.884Z: [1,12]<stdout>:c-57:815:864 [0] transport/net_ib.cu:80 NCCL WARN NET/IB : Got async event : local catastrophic error"),
    ("darts 2519: Lightning's launcher", "oom_kill_suspected", {"pid": 652}, "Child process with PID 652 terminated with code -9. Forcefully terminating all other processes to avoid zombies"),
    ("mmcv: an error's own name without a capital, passed on by the loader", "python_exception", {"line": 6}, "Traceback (most recent call last):\n  File \"t.py\", line 3, in <module>\ncv2.error: Caught error in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n  File \"d.py\", line 4, in get\ncv2.error: OpenCV(4.9.0) color.cpp:1: error: (-215:Assertion failed) !_src.empty()"),
    ("polaris: every rank's own last error", "nccl_invalid_usage", {"line": 4}, "torch.distributed.DistBackendError: NCCL error in: P.cpp:1275, internal error, NCCL version 2.18.3\nncclInternalError: Internal check failed.\nLast error:\nDuplicate GPU detected : rank 0 and rank 4 both on CUDA device 7000\ntorch.distributed.DistBackendError: NCCL error in: P.cpp:1275, internal error, NCCL version 2.18.3\nncclInternalError: Internal check failed.\nLast error:\nDuplicate GPU detected : rank 7 and rank 3 both on CUDA device c7000"),
    ("Paddle's handler of a signal from outside", "process_terminated", {"line": 2}, "Error Message Summary:\nFatalError: `Termination signal` is detected by the operating system.\n  [SignalInfo: *** SIGTERM (@0x3e8) received by PID 7866 (TID 0x7f) from PID 7929 ***]"),
    ("Paddle's handler of its own crash", "segfault", {"line": 2}, "Error Message Summary:\nFatalError: `Segmentation fault` is detected by the operating system."),
    ("Hydra could not make an object", "program_error", {"line": 3}, "Error executing job with overrides: ['mode=train']\nError in call to target 'a.b.Encoder':\nAttributeError(\"'NoneType' object has no attribute 'values'\")\nfull_key: encoder\n\nSet the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace."),
    ("Hydra found no such name", "program_error", {"line": 1}, "Error locating target 'a.b.Encoder', set env var HYDRA_FULL_ERROR=1 to see chained exception.\nfull_key: encoder"),
    ("nccl-tests: wrong values", "wrong_result", {"line": 2}, "0:  1024  256  float  sum  -1  46.2  0.02  0.04  2\n0: # Out of bounds values : 2 FAILED\n0: # Avg bus bandwidth    : 23.02\nsrun: error: n1: tasks 0-7: Exited with exit code 1"),
    ("nccl-tests: right values", "task_exit", {"line": 3}, "# Out of bounds values : 0 OK\nrh:nack_sequence_error          18           19          0.7           36          1.3\nsrun: error: n1: tasks 0-7: Exited with exit code 1"),
    ("bitsandbytes: a package that caught its own import", None, {}, "Could not load the native library: 'NoneType' object has no attribute 'split'\nTraceback (most recent call last):\n  File \"/env/lib/python3.12/site-packages/bnb/cextension.py\", line 85, in <module>\n    lib = get_native_library()\n  File \"/env/lib/python3.12/site-packages/bnb/specs.py\", line 24, in get\n    major = version.split('.')\nAttributeError: 'NoneType' object has no attribute 'split'" + GOES_ON),
    ("the same without a note of its own", "python_exception", {"line": 5}, "starting\nTraceback (most recent call last):\n  File \"/env/lib/python3.12/site-packages/bnb/cextension.py\", line 85, in <module>\n    lib = get_native_library()\nAttributeError: 'NoneType' object has no attribute 'split'" + GOES_ON),
    ("the same, caught where it was called", "python_exception", {"line": 5}, "Could not load: 'NoneType' object has no attribute 'split'\nTraceback (most recent call last):\n  File \"/env/lib/python3.12/site-packages/bnb/cextension.py\", line 85, in load\n    lib = get_native_library()\nAttributeError: 'NoneType' object has no attribute 'split'" + GOES_ON),
    ("a program's own note of its own exception", "python_exception", {"line": 5}, "Training failed: 'NoneType' object has no attribute 'split'\nTraceback (most recent call last):\n  File \"/home/u/train.py\", line 85, in <module>\n    main()\nAttributeError: 'NoneType' object has no attribute 'split'" + GOES_ON),
    ("nccl: it gave up after its retries, which is no recovery", "nccl_system_error", {"line": 6, "detail": {"last_error": True}}, "[rank1]: Traceback (most recent call last):\n[rank1]:   File \"t.py\", line 3, in f\n[rank1]: torch.distributed.DistBackendError: NCCL error in: N.cpp:77, remote process exited or there was a network error, NCCL version 2.26.2\n[rank1]: ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\n[rank1]: Last error:\n[rank1]: socketPollConnect: connect returned Connection refused, exceeded error retry count (35)"),
    ("rccl: words of an internal error that no form knows", "nccl_internal_error", {"line": 5}, "[rank2]: Traceback (most recent call last):\n[rank2]: torch.distributed.DistBackendError: NCCL error in: N.hpp:317, internal error - please report this issue to the NCCL developers, NCCL version 2.21.5\n[rank2]: ncclInternalError: Internal check failed.\n[rank2]: Last error:\n[rank2]: Failed to find reverse path from remNode 0/200000 nlinks 3 to node 0/700000"),
    ("rccl: HIP's own call", "nccl_unhandled_cuda", {"line": 1, "host": "gpu-1"}, "gpu-1:204802:204836 [1] /build/hipify/src/transport/p2p.cc:220 NCCL WARN hipIpcGetMemHandle failed : invalid argument\ngpu-1:204802:204836 [1] /build/hipify/src/transport/p2p.cc:222 NCCL WARN Cuda failure 'invalid argument'"),
    ("rccl: UCX under its plugin", "nccl_system_error", {"line": 1}, "n2:10366:10377 [0] ucx_plugin.c:498 NCCL WARN Failed: UCX error ucx_plugin.c:498 '-5' Invalid parameter\nn2:10366:10376 [0] src/misc/socket.cc:57 NCCL WARN socketProgress: Connection closed by remote peer n2<4>"),
    ("MindSpore: Ascend's own message", "collective_mismatch", {"line": 7}, "Traceback (most recent call last):\n  File \"t.py\", line 3, in f\nRuntimeError: Preprocess failed before run graph 0. The details refer to 'Ascend Error Message'.\n\n- Ascend Error Message:\n----------------------\nEI0005: The arguments for collective communication are inconsistent between ranks: tag [HcomAllReduce_1], parameter [count], local [9], remote [8]"),
    ("MindSpore: Ascend's message was cut off", "python_exception", {"line": 3}, "Traceback (most recent call last):\n  File \"t.py\", line 3, in f\nRuntimeError: Preprocess failed before run graph 0. The details refer to 'Ascend Error Message'."),
    ("oneCCL: a device of Intel's that is full", "cuda_oom", {"line": 1}, "2024:05:29-19:16:18:(202165) |CCL_ERROR| worker.cpp:338 ccl_worker_func: worker 0 caught internal exception: oneCCL: ze_call.cpp:28 do_call: EXCEPTION: ze error at zeCommandQueueExecuteCommandLists, code: ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY\nterminate called after throwing an instance of 'ccl::v1::exception'"),
    ("torch_npu: a device of Ascend's that is full", "cuda_oom", {"line": 3}, "Traceback (most recent call last):\n  File \"t.py\", line 1, in f\nRuntimeError: NPU out of memory. Tried to allocate 386.00 MiB (NPU 2; 60.97 GiB total capacity)"),
    ("torch_npu: HCCL's process did not start", "cuda_unknown_error", {"line": 5}, "Traceback (most recent call last):\n  File \"t.py\", line 1, in f\nRuntimeError: [ERROR] HCCL error in: torch_npu/csrc/distributed/ProcessGroupHCCL.cpp:64\n[ERROR] 2024-05-21-11:57:54 (PID:927000, Device:3, RankID:3) ERR02200 DIST call hccl api failed.\nEJ0001: 2024-05-21-11:57:54.167.645 Failed to initialize the HCCP process. Reason: Maybe the last training process is running."),
    ("aws-ofi-nccl: a call that the network failed", "net_ib_error", {"line": 1}, "ip-1:72593:73427 [7] create_nccl_ofi_component:459 NCCL WARN NET/OFI Couldn't open endpoint. RC: -110, ERROR: Connection timed out"),
    ("libmlx5's own words", "net_ib_completion_error", {"line": 1, "host": "nid001656"}, "mlx5: nid001656: got completion with error:\n00000000 00000000 00000000 00000000\nsrun: error: nid001656: task 3: Aborted"),
    ("slurmstepd's own reading of a GPU", "cuda_device_lost", {"line": 1}, "slurmstepd: error: NVML: Failed to get usage(15): GPU is lost"),
    ("an error that a program only prints", "program_error", {"line": 2}, "starting\nAn error occurred: KeyError – 't5905'"),
    ("TensorRT-LLM: what a C++ program threw", "program_error", {"line": 2}, "terminate called after throwing an instance of 'tensorrt_llm::common::TllmException'\n  what():  [TensorRT-LLM][ERROR] Assertion failed: Failed: MPI error mpiUtils.cpp:98"),
    ("SpECTRE: a box's last line announces nothing of the launcher's", "slurm_timeout", {"line": 5}, "Node: 4 Proc: 92\nFloating point exception!\n############ ERROR ############\nsrun: Job step aborted: Waiting up to 32 seconds for job step to finish.\nslurmstepd: error: *** JOB 313794 ON w049 CANCELLED AT 2021-09-26T15:36:54 DUE TO TIME LIMIT ***"),
    ("SpECTRE: a box's first line does", "program_error", {"line": 2}, "############ ERROR ############\nFloating point exception!\n"),
    ("BeeGFS: a file whose server is gone", "filesystem_unreachable", {"line": 3, "detail": {"errno": 70}}, "Traceback (most recent call last):\n  File \"t.py\", line 1, in f\nOSError: [Errno 70] Communication error on send: '/beegfs/run/stack.mrc'"),
    ("a peer that is not there is no file", "python_consequence", {"line": 3}, "Traceback (most recent call last):\n  File \"t.py\", line 1, in f\nConnectionRefusedError: [Errno 111] Connection refused"),
    ("LSF's report behind the output, with the script", "program_error", {"line": 1}, f"/bin/bash: ./train.sh: Permission denied\n{LSF}The output (if any) is above this job summary.\n"),
    ("LSF's report in front of the output", "python_exception", {"line": 32}, f"{LSF}The output (if any) follows:\n\nTraceback (most recent call last):\n  File \"t.py\", line 3, in <module>\nKeyError: 'lr'\n"),
    ("a French shell, and what the script missed then", "oom_kill_suspected", {"line": 1, "pid": 642484}, "/spool/job7/slurm_script : ligne 25 : 642484 Processus arrêté      python -u job.py\ncat: 'out_7_*.log': Aucun fichier ou dossier de ce type"),
    ("a French shell finds no command", "command_not_found", {"line": 1}, "/spool/job7/slurm_script : ligne 25 : python4 : commande introuvable"),
    ("OpenCV before exceptions", "program_error", {"line": 1}, "OpenCV ERROR: Unsupported format or combination of formats (Bad input)\n\tin function cvConvertImage, utils.cpp(573)\nTerminating the application...\n\tcalled from cvUnregisterType, cxpersistence.cpp(4933)\nTerminating the application...\nexit status 255"),
    ("vLLM's engine is gone", "peer_lost", {"line": 1}, "ERROR 04-27 18:09:47 [core_client.py:600] Engine core proc EngineCore_DP0 died unexpectedly, shutting down client.\nERROR 04-27 18:09:47 [async_llm.py:546] vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue."),
    ("torch.multiprocessing: somebody ended a child", "process_terminated", {"line": 3}, "Traceback (most recent call last):\n  File \"t.py\", line 3, in <module>\ntorch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGTERM"),
    ("DeepSpeed: somebody ended its children", "process_terminated", {"line": 2}, "[2024-04-22 23:11:09,475] [INFO] [launch.py:315:sigkill_handler] Killing subprocess 1028671\n[2024-04-22 23:11:21,716] [ERROR] [launch.py:321:sigkill_handler] ['/env/bin/python', '-u', 't.py'] exits with return code = -15"),
    ("nccl-tests: many wrong values", "wrong_result", {"line": 2}, " 0:  1024  256  float  sum  -1  46.2  0.02  0.04  2\n 0: # Out of bounds values : 128 FAILED\n 0: # Avg bus bandwidth    : 23.02"),
    ("DeepSpeed's launcher was told to end", "process_terminated", {"line": 3}, "Killing subprocess 28835\nKilling subprocess 28836\nMain process received SIGTERM, exiting\nkeypoints is absent in SUPPORTED_KEYS.\nIgnore this if you know what you are doing."),
    ("UCX: no context on the GPU, and the stack that it prints is no work", "cuda_error", {"line": 1}, "[1580334918.341459] [gpu09:43722:2]    cuda_ipc_md.c:131  UCX  ERROR cuCtxGetDevice(&this_device) is failed. ret:invalid device context\n[1580334918.341467] [gpu09:43722:2]       ucp_rkey.c:266  UCX  ERROR failed to unpack remote key from remote md[5]: Input/output error\n[gpu09:43722:2:43760]        rndv.c:943  Fatal: failed to unpack rendezvous remote key received from <no debug data>: Input/output error\n==== backtrace ====\n" + "".join(f"{n:5}  /opt/ucx/lib/libucs.so.0(f{n}+0xd{n}) [0x2aaaac0fc3{n:02}]\n" for n in range(9)) + "===================\nsrun: error: gpu09: task 0: Aborted"),
    ("a line that denies the error", "python_exception", {"line": 4}, "step 10 no CUDA out of memory seen so far, good\nTraceback (most recent call last):\n  File \"t.py\", line 3, in <module>\nAssertionError: batch is empty"),
    ("a monitor's count of none", "python_exception", {"line": 4}, "monitor: CUDA out of memory events = 0\nTraceback (most recent call last):\n  File \"t.py\", line 3, in <module>\nKeyError: 'val_loss'"),
    ("what only a program's own words say of its memory", "python_exception", {"line": 4}, "we had CUDA out of memory here\nTraceback (most recent call last):\n  File \"t.py\", line 3, in <module>\nKeyError: 'val_loss'"),
    ("nothing of it in the log of a job that ended", None, {}, "no oom_kill event detected\nnever saw: Disk quota exceeded\nSlurm note: jobs are killed by oom_kill event when they exceed --mem"),
    ("an error with a number behind it is no denial", "cuda_oom", {"line": 1}, "RuntimeError: CUDA out of memory: 0 MiB free of 81920 MiB"),
    ("a count of none in a list", None, {}, "errors of the run: OOM kills: 0, ECC errors = 0; Xids: none"),
    ("an error of rank 0 is no denial", "cuda_illegal_access", {"line": 1}, "rank 0: CUDA error: an illegal memory access was encountered"),
    ("the end of an earlier run's log, printed again", "python_exception", {"line": 7}, "=== tail of the previous attempt's log ===\nRuntimeError: CUDA error: uncorrectable ECC error encountered\n=== new attempt ===\nepoch 1\nTraceback (most recent call last):\n  File \"t.py\", line 3, in <module>\njson.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)"),
    ("a GPU's error in a traceback of its own", "cuda_ecc", {"line": 3}, "Traceback (most recent call last):\n  File \"t.py\", line 3, in <module>\nRuntimeError: CUDA error: uncorrectable ECC error encountered"),
    ("pyxis: no such tag in a registry whose name holds a vendor's", "slurm_launch_failed", {"line": 2, "domains": ("user_program",)}, "slurmstepd: error: pyxis: printing enroot log file:\nslurmstepd: error: pyxis:     [ERROR] URL https://nvcr.io/v2/nvidia/pytorch/manifests/24.01-py33 returned error code: 404 Not Found\nslurmstepd: error: pyxis: couldn't start container"),
    ("an assertion without a message says what it asserts", "python_exception", {"line": 5, "message": "AssertionError (assert self.warmup < self.decay)"}, "Traceback (most recent call last):\n  File \"t.py\", line 3, in <module>\n    assert self.warmup < self.decay\n           ^^^^^^^^^^^^^^^^^^^^^^^^\nAssertionError"),
    ("pytorch-lightning 3311: the plainest exception", "python_exception", {"line": 3}, "Traceback (most recent call last):\n  File \"t.py\", line 3, in <module>\nException: no data"),
    ("MPICH: no memory for a communicator, in CP2K's box", "host_memory_error", {"line": 2}, " *  /   \\             error, error stack:\nMPIR_Info_alloc(61)......: Out of memory (unable to allocate a  *\n * /| |                                 'MPI_Info')                            *"),
    ("CRAB: HTCondor's limit", "slurm_oom", {"line": 1}, "Mon, 27 Jul 2026 11:05:34 CEST(+0200):ERROR:RetryJob Job killed by HTCondor due to excessive memory use (RSS=2250 MB). Will not retry it.\nMon, 27 Jul 2026 11:05:34 CEST(+0200):INFO:PostJob        <----- RetryJob log finish ----"),
    ("TPUEstimator: a worker is gone", "peer_lost", {"line": 2}, "INFO:tensorflow:global_step/sec: 2.20221\nINFO:tensorflow:ShutdownHook: lame workers found: HeartbeatManager(/job:worker/replica:0/task:0/device:CPU:0)"),
    ("Slurm's end, broken by a page", "slurm_timeout", {"line": 1}, "slurmstepd: error: *** JOB 12 ON node1 CANCELLED AT 2021-02-19T13:55:57\nDUE TO TIME LIMIT ***"),
    ("Slurm's end, broken between two of its words", "slurm_timeout", {"line": 1}, "slurmstepd: error: *** JOB 12 ON node1 CANCELLED AT 2021-02-19T13:55:57 DUE TO\nTIME LIMIT ***"),
    ("Slurm's end, broken within its reason", "slurm_timeout", {"line": 1}, "slurmstepd: error: *** JOB 12 ON node1 CANCELLED AT 2021-02-19T13:55:57 DUE TO TIME\nLIMIT ***"),
    ("Slurm's end, cut off before a reason", "process_terminated", {"line": 1}, "slurmstepd: error: *** JOB 12 ON node1 CANCELLED AT 2021-02-19T13:55:57"),
    ("a page that shows the message of a node failure", None, {}, "Error Message:\n*** JOB ID ON nodeXY CANCELLED AT 2020-04-27TXXXX DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***\n\nApril 23\nNew login node for the cluster\nTry it and report to us"),
    ("Paddle's launcher: the code of the failed worker", "process_terminated", {"line": 3}, "LAUNCH ERROR 2025-06-16 10:11:25,795 Container failed !!!\nLAUNCH INFO 2025-06-16 10:11:25,795 ------------------------- ERROR LOG DETAIL -------------------------\nLAUNCH INFO 2025-06-16 10:11:25,796 Exit code -15"),
]  # fmt: skip


@every(("source", "kind", "fields", "text"), FOUND)
def test_forms_found_in_the_wild(source: str, kind: str | None, fields: dict[str, object], text: str) -> None:
    """The one first cause, and what it names, is what an expert would say of the log."""
    first = [f for f in reader.read(text.split("\n")) if f.first_cause]
    assert [f.kind for f in first] == ([kind] if kind else []), source
    for name, value in fields.items():
        assert getattr(first[0], name) == value, (source, name)


def test_the_traceback_of_an_interrupt_gives_the_innermost_frame() -> None:
    """The place where SIGINT met the program: Python's marks below the source line are none, and a frame may have no source line."""
    head = ["[rank1]: Traceback (most recent call last):", '[rank1]:   File "/w/train.py", line 41, in <module>', "[rank1]:     main()", "[rank1]:     ~~~~^^", '[rank1]:   File "/w/train.py", line 33, in main']  # fmt: skip
    end = "[rank1]: KeyboardInterrupt"
    (found,) = reader.read([*head, "[rank1]:     time.sleep(60)", "[rank1]:     ~~~~~~~~~~^^^^", end])
    assert (found.kind, found.detail["code"]) == ("interrupted", "time.sleep(60)")
    assert found.detail["frame"] == "/w/train.py, line 33, in main"
    (found,) = reader.read([*head, end])
    assert (found.detail["code"], found.detail["frame"]) == ("", "/w/train.py, line 33, in main")
    (other,) = reader.read([*head, "[rank1]: KeyError: 'lr'"])
    assert "frame" not in other.detail


LAST_LINES = [
    # what ends, kind, last line of a traceback
    ("cupy", "cuda_oom", "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 1,024 bytes (allocated so far: 10 bytes)."),
    ("torch with a cap", "cuda_oom", "torch.cuda.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of memory)"),
    ("TransformerEngine", "cuda_illegal_access", "RuntimeError: cuda_runtime.cpp:33 in function f: CUDA Error: an illegal memory access was encountered"),
    ("the allocator asks NVML after an error", "cuda_error", "RuntimeError: NVML_SUCCESS == r INTERNAL ASSERT FAILED at CUDACachingAllocator.cpp:1131, please report a bug to PyTorch."),
    ("pynvml", "cuda_device_lost", "pynvml.NVMLError_GpuIsLost: GPU is lost"),
    ("torch without a driver", "cuda_unavailable", "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU"),
    ("torch with an old driver", "cuda_version", "RuntimeError: The NVIDIA driver on your system is too old (found version 11040)."),
    ("cuDNN's front end", "cuda_library_error", "RuntimeError: cuDNN Frontend error: [cudnn_frontend] Error: No execution plans support the graph."),
    ("cuDNN finds no engine", "cuda_library_error", "RuntimeError: FIND was unable to find an engine to execute this computation"),
    ("cuDNN's later codes", "cuda_library_error", "RuntimeError: cuDNN error: CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH"),
    ("a file that ends early", "python_exception", "EOFError: Ran out of input"),
    ("a queue that ends", "python_consequence", "EOFError"),
    ("a worker's own error passed on", "python_exception", "ValueError: bg worker died of a bad config"),
    ("a lost worker", "python_consequence", "RuntimeError: a worker process died"),
    ("HDF5", "io_error", "OSError: Can't read data (file read failed: time = Mon Jan  1, errno = 5, error message = 'Input/output error', buf = 0x1)"),
    ("shared memory's descriptors", "too_many_open_files", "RuntimeError: unable to open shared memory object </torch_4150_29> in read-write mode: Too many open files (24)"),
    ("the loader's descriptors", "too_many_open_files", "RuntimeError: received 0 items of ancdata"),
    ("shared memory named last", "shm_full", "OSError: [Errno 28] No space left on device: '/dev/shm/torch_123'"),
    ("Triton's shared memory is the GPU's", "python_exception", "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 131072, Hardware limit: 101376."),
]  # fmt: skip


@every(("source", "kind", "text"), LAST_LINES)
def test_what_a_traceback_ends_with(source: str, kind: str, text: str) -> None:
    """The last line of a traceback names its kind, whichever library raised it."""
    traceback = ["Traceback (most recent call last):", '  File "t.py", line 2, in <module>', text]
    (found,) = reader.read(traceback)
    assert (found.kind, found.line, found.first_cause) == (kind, 3, True), source


@every(
    "prefix, above",
    itertools.product(
        ["", "3: ", "[default3]:", "[rank3]: ", "(RayWorkerVllm pid=14289) "],
        [
            "Exception ignored in: <function Loader.__del__ at 0x7f2a>",
            "Exception ignored in: <module 'threading' from '/usr/lib/python3.10/threading.py'>",
            "Exception ignored while calling deallocator <function Loader.__del__ at 0x7f2a>:",
            "--- Logging error ---",
        ],
    ),
)
def test_a_traceback_that_python_drops_is_no_cause(above: str, prefix: str) -> None:
    """vllm 4114: what a destructor raises ends nothing; the next traceback of the same rank may."""
    dropped = [
        above,
        "Traceback (most recent call last):",
        '  File "l.py", line 3, in f',
        "AttributeError: no comm",
    ]
    fatal = ["Traceback (most recent call last):", '  File "t.py", line 9, in <module>', "KeyError: 'lr'"]
    assert list(reader.read(prefix + line for line in dropped)) == []
    (found,) = reader.read(prefix + line for line in [*dropped, *fatal])
    assert (found.line, found.first_cause, found.detail) == (7, True, {"exception": "KeyError"})
    unannounced = [above, "step 1", "step 2", *fatal]
    assert [f.line for f in reader.read(prefix + line for line in unannounced)] == [6]


def test_cut_watchdog_lines_are_counted_once_each() -> None:
    """A line whose rest never comes is one finding; one that is completed is one too."""
    (_, _, _, text), *_ = FOUND
    found = list(classify.classify_stream([line.encode() for line in text.split("\n")], "joblog"))
    assert [(f["line"], f["kind"]) for f in found] == [(1, "watchdog_timeout"), (3, "watchdog_timeout")]


def test_lines_of_lsfs_report_that_nobody_reads_are_not_the_programs_last() -> None:
    """`classify` skips what no family wants; the program's last words stand in front of the report all the same."""
    script = "".join(f"step{n} --in {n}.dat\n" for n in range(60))
    text = f"mesh: cannot continue the run, cell 17 is inverted\n{LSF.replace('set -e', script)}The output (if any) is above this job summary.\n"
    found = classify.classify_stream(io.BytesIO(text.encode()), "joblog")
    assert [(f["line"], f["kind"]) for f in found if f["first_cause"]] == [(1, "program_error")]
