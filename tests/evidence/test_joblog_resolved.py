"""Lines that complain and go on: none of them ended the program, even where the log ends with one."""

from __future__ import annotations

from probing_cluster.evidence import classify
from probing_cluster.evidence.joblog import reader
from tests.every_case import every

ABOVE = [f"reading part {n} of the input" for n in range(30)]


def first_causes(*last: str) -> list[tuple[str, str]]:
    """Kind and line of the first cause of a log that ends with `last`, the same on both ways of reading."""
    lines = [*ABOVE, *last]
    found = list(classify.classify_stream([line.encode() for line in lines], "joblog"))
    assert found == [classify.joblog_json(f) for f in reader.read(lines)], "the two ways differ"
    return [(f["kind"], lines[f["line"] - 1]) for f in found if f["first_cause"]]


@every(
    "text",
    [
        "Failed to import flash_attn, using sdpa",
        "flash-attn is not installed, will use SDPA",
        "apex is not installed. Reverting to non-apex mode",
        "Unable to import Triton; using eager attention",
        "Unable to find a valid checkpoint in /x, starting from scratch",
        "Could not find config.yaml, creating one",
        "Cannot find cuDNN frontend, will use the native kernel",
        "ERROR: no cached tokens. Downloading the vocabulary",
        "mytool: cannot open the cache, we will create a new one",
        "/x/torchvision/io/image.py:13: UserWarning: Failed to load image Python extension: 'libjpeg.so.8: cannot open shared object file'",
        "Failed to load image Python extension: 'libjpeg.so.8'",
        "Cannot connect to the metrics server, metrics are off",
        "mytool: cannot open the cache, caching is disabled",
        "Unable to start the profiler; profiling will be skipped",
        "Could not open /dev/nvidia-caps, running without it",
        "ERROR: cannot load the plugin, going on without it",
    ],
)
def test_what_the_program_did_instead_resolves_its_complaint(text: str) -> None:
    """A node that dies in the job's first minute leaves such a line last, and the user would be blamed."""
    assert not first_causes(text)


@every(
    "text",
    [
        "Error: cannot open x.dat, aborting",
        "ERROR: no licence found. Exiting.",
        "Error: cannot read the mesh, using the old one failed",
        "Error: no such solver, exiting instead of using another",
        "ERROR: no cache found, will use none; aborting",
        "Fatal: cannot read the state, will create one and exit",
        "ERROR: using a negative time step is not allowed",
        "Unable to open restart.chk. Starting over is disabled",
        "ERROR: checkpoint /x/ckpt is corrupt, will start no further epochs",
        "ERROR: config.yaml is missing. It will default to nothing",
        "ERROR: cannot open /data/x.h5; it will create problems downstream",
        "ERROR: cannot run, the GPU is disabled",
        "Cannot open the mesh, results were not cached by the last run",
        "Error: cannot connect to the metrics server, exiting, metrics are off",
        "ERROR: GPU profiling unavailable - training without profiler is not possible",
        "ERROR: GPU profiling unavailable, training without it is impossible",
        "error: perf_event_open failed (running without CAP_SYS_ADMIN)",
        "ERROR: cannot mount overlay - running without root privileges",
        "mytool: cannot open /dev/fuse, running without root privileges",
        "ERROR: cannot resume the run: caching is disabled",
        "Error: cannot restart, the log is disabled",
        "mytool: cannot open restart.dat, the log is disabled",
        "mytool: cannot read the cache: caching is disabled",
        "Error: cannot restart from the log, logging is disabled",
        "[ERROR] cannot restart from the log, logging is disabled",
        "ERROR: could not load model: cache was not uploaded",
        "Error: failed to reach wandb (online logging is turned off)",
        '{"level": "error", "message": "cannot restart from the log, logging is disabled"}',
    ],
)
def test_a_complaint_that_ends_the_program_counts(text: str) -> None:
    assert first_causes(text) == [("program_error", text)]


@every(
    "text",
    [
        "Fatal accidents per year: 12.3",
        "Invalid SMILES were discarded",
        "Failed docking poses go to failed.sdf",
        "Missing data imputation with KNN",
        "Panic selling index = 0.3",
        "Aborted 3 of 10 trials (pruned)",
        "Abort threshold set to 5",
        "Undefined behaviour sanitizer disabled",
        "missing keys: ['head.bias']",
        "fatal: 12, injured: 40",
        "Unexpected events are shown in red",
        "Failed attempts per user over time",
    ],
)
def test_an_adjective_in_front_is_no_error(text: str) -> None:
    """Words for a bad state begin sentences about the data as well."""
    assert not first_causes(text)


@every(
    "text",
    [
        "Invalid option -x",
        "Missing input file mesh.dat",
        "Illegal value in namelist CONTROL",
        "Undefined variable 'x' in line 3",
        "Failed to converge in 100 cycles",
        "failed reading the restart file",
        "Unsupported file format: .xyz",
        "panic: runtime error: index out of range",
        "Unexpected end of file in x.dat",
        "Aborted: the licence server refuses",
        "Unrecognized keyword FOO in section BAR",
        "Missing required argument --data",
        "Invalid expression. Check for mismatched delimiters.",
    ],
)
def test_an_adjective_in_front_of_what_a_program_reads_is_one(text: str) -> None:
    assert first_causes(text) == [("program_error", text)]


def test_the_text_of_pythons_warning_is_no_error() -> None:
    """scikit-learn's warning that its solver stopped stands at the end of many logs that go well."""
    warning = (
        "/e/sklearn/linear_model/_logistic.py:458: ConvergenceWarning: lbfgs failed to converge (status=1):",
        "STOP: TOTAL NO. of ITERATIONS REACHED LIMIT.",
        "",
        "Increase the number of iterations (max_iter) or scale the data as shown in:",
        "    https://scikit-learn.org/stable/modules/preprocessing.html",
        "  n_iter_i = _check_optimize_result(",
    )
    assert not first_causes(*warning, "accuracy: 0.93")
    assert not first_causes(*warning[:2])
    assert first_causes(warning[0], "", warning[1])[0][1] == warning[1], "an empty line ends the warning"


@every(
    "text",
    [
        "Generated text: Error: the king could not be found in his castle.",
        "Model output: terminate called after throwing an instance of 'std::bad_alloc'",
        "model_response 3: RuntimeError: CUDA error: an illegal memory access was encountered",
        "Predicted caption: Fatal error: the cat failed to start",
    ],
)
def test_what_a_model_wrote_is_no_error_of_the_job(text: str) -> None:
    assert not first_causes(text)


def test_an_output_that_a_program_reports_may_be_the_error() -> None:
    """`output:` alone stands in front of what a child process printed."""
    text = "output: terminate called after throwing an instance of 'std::bad_alloc'"
    assert first_causes(text) == [("host_memory_error", text)]


@every(
    "text",
    [
        "slurmstepd: error: Unable to send job complete message: Unable to contact slurm controller",
        "slurmstepd: error: Unable to send step complete message: Unable to contact slurm controller (connect failure)",
    ],
)
def test_slurm_that_cannot_report_the_end_did_start_the_program(text: str) -> None:
    assert not first_causes(text)
    launch = (
        "srun: error: Unable to create step for job 1: Unable to contact slurm controller (connect failure)"
    )
    assert first_causes(launch) == [("slurm_launch_failed", launch)]


def test_the_text_of_a_warning_ends_with_the_line_of_source_below_it() -> None:
    """Python prints no empty line behind a warning: what follows is the program's own."""
    warned = ["/x/x.py:3: UserWarning: old", "the part below it", "  warnings.warn(text)"]
    last = "solver: cannot open mesh.msh"
    assert first_causes(*warned, "starting", "read 3 files", last) == [("program_error", last)]
    assert not first_causes(
        "/x/x.py:3: UserWarning: old", "solver: cannot open mesh.msh", "  warnings.warn(text)"
    )
    assert not first_causes(*warned[:2], "solver: cannot open mesh.msh", "  warnings.warn(text)")
