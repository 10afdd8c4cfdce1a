"""What a log says last in words that no family knows, and what it says in front of an end that gives no reason."""

from __future__ import annotations

from probing_cluster.evidence.joblog import reader
from tests.every_case import every

ENDS = {
    "an MPI program's own sentence": (
        " grid size does not divide the number of ranks\n" + "-" * 60 + "\nMPI_ABORT was invoked on rank 0 in communicator MPI_COMM_WORLD\nwith errorcode 1.\n" + "-" * 60,
        "grid size does not divide",
    ),
    "in front of mpirun's own words": (
        "Error: bad input in section 3\n" + "-" * 60 + "\nPrimary job  terminated normally, but 1 process returned\na non-zero exit code. Per user-direction, the job has been aborted.\n" + "-" * 60,
        "bad input in section 3",
    ),
    "in front of srun's": (
        "reading mesh\nThe mesh has a negative volume: must be positive\nsrun: error: n1: task 0: Exited with exit code 3",
        "negative volume",
    ),
    "in front of a stop": (" Error reading control file: 2\nSTOP 1", "Error reading control file"),
    "in front of its own ending": (
        " The wave function is not converged after 125 cycles\n[file tools/msg.cpp, line 458]:\n  .... aborting the run",
        "not converged",
    ),
    "a stop with a sentence": (" reading namelist\nSTOP input file not found", "STOP input file"),
    "letters set apart": ("*** Error 40509 (SOL+509)\n E r r o r   t e r m i n a t i o n", "Error 40509"),
    "a refusal in a box": ("| ----> I REFUSE TO CONTINUE WITH THIS SICK JOB ... BYE!!! <---- |", "I REFUSE"),
    "a C++ abort": ("Initializing\namrex::Abort::0::Failed to open inputs file !!!\nSIGABRT", "amrex::Abort"),
    "behind a place": (
        "Code termination on task=3, function alloc(), file a.c, line 120: Failed to allocate `P' (12 MB).",
        "Failed to allocate",
    ),
    "no licence": ("Starting server\nFailed to get license.\nServer process exited with code 143", "Failed to get license"),
    "a severity in brackets": ("[solver] start\n[solver][ERROR] mpiSize == tp * pp", "[ERROR] mpiSize"),
    "a lower one": ("[error] Pipestance failed. Error log at:\n/w/_errors", "[error] Pipestance"),
    "a shell's child that was ended": (
        "val 0.3\nrun.sh: line 32: 2796136 Terminated              python main.py",
        "Terminated",
    ),
    "an ended module's code": (
        "The command SYMM is not allowed here\n--- Stop Module: seward at Sun Mar 10 18:13:59 2024 /rc=_RC_INPUT_ERROR_ ---",
        "is not allowed",
    ),
    "another rank's prefix": ("[3] \n[3] --> FOAM FATAL ERROR: (openfoam-2112)\n[3] Maximum number of iterations", "Maximum number"),
    "a prompt": (">> >> Unrecognized function or variable 'loaddata'.", "Unrecognized function"),
    "a logger around a traceback": (
        'I0605 05:23:33.533774 139634508203840 run.py:258] Traceback (most recent call last):\nI0605 05:23:33.534178 139634508203840 run.py:258] File "/a.py", line 5, in <module>\nI0605 05:23:33.534278 139634508203840 run.py:258] RuntimeError: HHblits failed',
        "RuntimeError: HHblits failed",
    ),
    "colours that lost their escape": (
        '[31mTraceback (most recent call last):[0m\n[31m  File "t.py", line 4, in <module>[0m\n[31mValueError: bad[0m',
        "ValueError: bad",
    ),
    "a group of exceptions": (
        '  + Exception Group Traceback (most recent call last):\n  |   File "a.py", line 10, in <module>\n  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)\n  +-+---------------- 1 ----------------\n    | Traceback (most recent call last):\n    |   File "a.py", line 4, in f\n    | ValueError: one\n    +------------------------------------',
        "ValueError: one",
    ),
    "a script that missed its directory": (
        "/var/spool/job1: line 12: cd: /scratch/x: No such file or directory\npython: can't open file 'train.py': [Errno 2] No such file or directory",
        "cd: /scratch/x",
    ),
    "the GPU's memory in OpenACC's words": (
        "Accelerator Fatal Error: call to cuMemAlloc returned error 2: Out of memory\n File: a.f90",
        "cuMemAlloc",
    ),
    "an MPT rank": ("MPT ERROR: Rank 12(g:12) received signal SIGSEGV(11).", "SIGSEGV"),
    "a failed check": ("/w/ggml/src/ggml.c:3212: GGML_ASSERT(n == 1) failed", "GGML_ASSERT"),
    "HDF5's stack": (
        "HDF5-DIAG: Error detected in HDF5 (1.10.5) thread 0:\n  #000: H5F.c line 509 in H5Fopen(): unable to open file\n    major: File accessibilty\n    minor: Unable to open file",
        "HDF5-DIAG",
    ),
    **{
        f"a script's own report {n}: {line}": (f"epoch 3 loss 0.2\n{line}\ncleaning up", line)
        for n, line in enumerate((
            "Exit code: 127", "exit status: 2", "Return code: 1", "rc=1", "job finished with exit code 14", "Job ended with status 3",
            "== epilogue: job exit code = 2 ==", "return code of python: 2", "train.py finished with status 3", "the job ended with exit code 2", "Job 4242 exited with code 7", "[run.sh] exit_code=1", "EXIT STATUS 125", "# Finished at Wed Jun 17 10:49:59 EEST 2020 with status 255",
        ))
    },
    "a script's own report below the reason": ("could not find column 7 in data.csv\njob finished with exit code 1", "could not find"),
    "a German shell": ("slurm_script: Zeile 5: /opt/x/setup.sh: Datei oder Verzeichnis nicht gefunden", "setup.sh"),
    "a Chinese one": ("bash: ./a.out: 没有那个文件或目录", "a.out"),
    "a Portuguese one": ("bash: ./a.out: Permissão negada", "a.out"),
    "an interpreter that is gone, above a script's clean-up": (
        "run.sbatch: line 14: /w/v/bin/torchrun: /old/v/bin/python: bad interpreter: No such file or directory\nrc=126\nsaving\nmv: cannot stat 'a.pt': No such file or directory\npacking\nunlocking\nTue Mar  5 09:00:00 CET 2026\nend rc=1",
        "bad interpreter",
    ),
    "a missing program whose code the script prints": (
        "run.sbatch: line 4: lmp: command not found\nexit status of lmp: 127\npacking\nsending\nunlocking\nready",
        "lmp: command not found",
    ),
    "a job for which GNU parallel stops": (
        "run.sh: line 3: jq: command not found\nparallel: This job failed:\n./run.sh 4\nparallel: Starting no more jobs. Waiting for 3 jobs to finish.\npart 5 ok\npart 6 ok\npart 7 ok\n3 done",
        "jq: command not found",
    ),
    "a job for which GNU parallel stops, without a word of its own": (
        "parallel: This job failed:\n./run.sh 4\nparallel: Starting no more jobs. Waiting for 3 jobs to finish.\npart 5 ok\npart 6 ok\npart 7 ok\n3 done",
        "This job failed:",
    ),
    "the failed job's complaint below": (
        "parallel: This job failed:\n./run.sh 4\nawk: cannot open b.tsv (No such file or directory)\nparallel: Starting no more jobs. Waiting for 3 jobs to finish.\npart 5 ok\npart 6 ok\npart 7 ok\n3 done",
        "b.tsv",
    ),
    "Git LFS above git's advice": (
        "Error downloading object: a.bin (12ab): Smudge error: batch response: This repository is over its data quota.\n\nerror: external filter 'git-lfs filter-process' failed\nfatal: a.bin: smudge filter lfs failed\nwarning: Clone succeeded, but checkout failed.\nYou can inspect what was checked out with 'git status'\nand retry with 'git restore --source=HEAD :/'",
        "data quota",
    ),
    "pytest's summary": (
        "FAILED tests/test_a.py::test_sum - assert 3 == 4\n===== 1 failed, 40 passed, 2 warnings in 3.10s =====",
        "test_sum",
    ),
    "ctest's list": (
        "2/3 Test #2: mesh ...***Failed 0.1 sec\n3/3 Test #3: io ...   Passed 0.1 sec\n\nThe following tests FAILED:\n\t  2 - mesh (SEGFAULT)\nErrors while running CTest",
        "mesh (SEGFAULT)",
    ),
    "the tool's reason above Snakemake's rule": (
        "[E::vcf_parse_format] Couldn't read GT data: value not a number\nbcftools: no output\n[Mon Mar  4 11:11:12 2026]\nError in rule merge:\n    jobid: 5\n    output: m.vcf\n\nRemoving output files of failed job merge\nShutting down, this might take some time.\nExiting because a job execution failed. Look above for error message",
        "vcf_parse_format",
    ),
    "XIOS above the abort": (
        "reading axes\n> Error [CGrid::checkMask(void)] : In file '/x/grid.cpp', line 12 -> [ axis_id = depth ] Unknown axis reference for domain 'sea'.\nterminate called after throwing an instance of 'xios::CException'\n[c7:12] Signal: Aborted (6)",
        "CGrid",
    ),
    "ROOT above the crash": (
        "Error in <TChain::LoadTree>: cannot find tree hits\n\n *** Break *** segmentation violation",
        "TChain",
    ),
    "a step above the script that ran it": (
        "ATTENTION: dscf did not converge!\nprogram stopped.\ndscf ended abnormally\nERROR: Module dscf failed to run properly !",
        "dscf did not converge",
    ),
    "a Code_Aster message in its box": (
        " ║ <F> <CALCULEL_3>        ║\n ║                ║\n ║ Le champ est vide.  ║\n ║ Fin. ║\n ║ ║\n ╚════╝\n * Résultat : <F>_ABNORMAL_ABORT",
        "CALCULEL",
    ),
    "a child that was killed, above a Chinese tar": (
        "job.sh: 行 5: 4711 已杀死               ./train\ntar: a.pt：无法 stat: 没有那个文件或目录",
        "已杀死",
    ),
}  # fmt: skip
WELL = {
    "a trap that could not clean up": "step 1\nERROR: cleanup failed to remove lock: No such file or directory\ncleanup done",
    "what is left behind": "step 1\nerror: could not clean up /tmp/x: Permission denied",
    "a warning of Python's": "/a/elec.py:234: RuntimeWarning: invalid value encountered in multiply\n  a * b",
    "an advice": "/a/loop.py:302: Couldn't infer the batch indices fetched from your dataloader",
    "a stop that is none": " simulation finished\nSTOP 0",
    **{
        f"a code that is no failure: {line}": f"epoch 3 loss 0.2\n{line}\ncleaning up"
        for line in (
            "Exit code: 0",
            "exit status 0",
            "rc=0",
            "grep exit code: 1",
            "test 3: exit code 1",
            "exit code: 1 (expected)",
            "return: 195",
            "status: 3",
            "code 3",
            "exit code 1 means that nothing was found",
            "Episode 99 return value: 87",
            "final return value: 42",
            "Optimization exit status: 2",
            "ret = 5",
            "Benchmark returned value: 12",
            "avg epoch return value 12",
            "job 5: exit code = 3\nretrying job 5\njob 5 ok",
            "status 3",
            "step 3 status 12",
            "task status: 4",
        )
    },
    "a stop that says so": "STOP normal end of program",
    "metrics": "mean squared error\n0.1231\nmax error 0.33",
    "skipped": "Processing file 1/3\nCould not parse line 33 of file a.txt, skipping\nwrote it",
    "counted": "Completed 1000 tasks: 997 succeeded, 3 failed",
    "early stopping": "Epoch 32: val_loss did not improve from 0.21\nEarly stopping",
    "a solver that goes on": "Linear solver did not converge at iteration 3 (continuing)\nTime = 0.1 done",
    "cmake": "-- Performing Test HAS_FLAG - Failed\n-- Configuring done",
    "a missing program that the script does without": "run.sbatch: line 4: figlet: command not found\nreading a\nreading b\nreading c\nreading d",
    "a parallel run that goes on": "bash: line 1: jq: command not found\npart 1 ok\npart 2 ok\npart 3 ok\npart 4 ok\nparallel: Warning: no more jobs",
    "ROOT's complaint long before the end": "Error in <TTree::SetBranchStatus>: unknown branch -> ecal\nevents read\nhistograms filled\nfit ok\nfile closed",
    "tests that passed": "FAILED tests/test_a.py::test_sum - assert 3 == 4\n===== 41 passed in 3.10s =====",
    "a motto": 'gcq#112: "Invalid Code, Life Failed Me" (Anonymous)',
}


def first(text: str) -> str | None:
    """The line that the reader takes for the first cause."""
    found = next((f for f in reader.read(text.split("\n")) if f.first_cause), None)
    return text.split("\n")[found.line - 1] if found else None


@every("text, line", ENDS.values())
def test_the_last_word_is_the_first_cause(text, line):
    assert line in (first(text) or "nothing")


@every("text", WELL.values())
def test_what_is_no_end_stays_silent(text):
    assert first(text) is None


def test_a_known_cause_is_not_replaced_by_what_stands_before_the_end():
    text = 'Traceback (most recent call last):\n  File "t.py", line 4, in f\nKeyError: 1\nthe run has not finished\nsrun: error: n1: task 0: Exited with exit code 1'
    assert first(text) == "KeyError: 1"


def test_what_the_program_said_last_never_convicts_a_machine():
    for text, _ in ENDS.values():
        for found in reader.read(text.split("\n")):
            assert found.domains != ("hardware",)


def _first_message(*lines: str) -> str | None:
    return next((found.message for found in reader.read(lines) if found.first_cause), None)


POINTERS = [
    "ERROR: The job stopped with errors. Please check job.err",
    "Error: stopped, see the messages above",
    "*** ERROR: calculation failed; look at solver.err for the reason ***",
    "2031-02-03 10:11:12,345 ERROR flow: run failed, more details in /w/run/solver.log",
]


@every("pointer", POINTERS)
def test_an_end_that_points_to_an_error_elsewhere_is_no_cause_itself(pointer: str) -> None:
    """The error that it points to is the cause, if the log holds it."""
    assert _first_message("reading the grid", pointer) is None
    reason = "unable to map the grid onto 7 ranks"
    assert _first_message(reason, "tidying", pointer) == reason
    killed = "run.sh: line 8: 41 Killed ./helper"
    assert _first_message(killed, *(f"step {n}/90 loss 2.{n}" for n in range(1, 6)), pointer) == killed


@every(
    "error",
    [
        "ERROR: keyword GRID is unknown, see the log above for the list",
        "ERROR: see below: the grid has no cells",
        "Error: please check input.dat (error in line 3)",
        "ERROR: check the input file for errors",
        "Error: bad grid. See section 3 of the manual for details",
    ],
)
def test_an_error_that_gives_its_reason_stays_one_wherever_else_it_points(error: str) -> None:
    assert _first_message("reading the grid", error) == error


@every("word", ["Solution contains NaN in cell 412", "level 3: temperature became nan"])
def test_a_value_that_is_no_number_is_the_reason_of_an_abort(word: str) -> None:
    abort = "MPI_ABORT was invoked on rank 5 in communicator MPI_COMM_WORLD"
    assert _first_message("iteration 12", word, abort, "with errorcode 2.") == word
    title = "=" * 20 + "\n  FluidCode v1.2\n" + "=" * 20
    assert _first_message(*title.split("\n"), abort, "with errorcode 2.") == abort
