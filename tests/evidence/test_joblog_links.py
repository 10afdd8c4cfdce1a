"""What a later command lacks because an earlier one failed: a common name shows it, of a file, a package, a repository, a port or a service."""

from __future__ import annotations

import pytest

from probing_cluster.evidence.joblog import reader
from probing_cluster.evidence.joblog.last_errors import links, unnamed
from tests.every_case import every

EXITED = "srun: error: c7: task 0: Exited with exit code 1"
WORK = [f"step {n}/900 loss {9.5 - n / 100:.2f}" for n in range(1, 12)]


def traceback(last: str) -> list[str]:
    return [
        "Traceback (most recent call last):",
        '  File "/w/run.py", line 8, in <module>',
        "    main()",
        last,
    ]


def first(*lines: str) -> str | None:
    return next((f.message for f in reader.read(lines) if f.first_cause), None)


PIP = "ERROR: No matching distribution found for deep-ep==1.1"
BUILD = "  ERROR: Failed building wheel for causal-conv1d"
CLONE = "fatal: repository 'https://git.example.org/lab/flowkit.git/' not found"
NO_HOST = "wget: unable to resolve host address 'data.example.org'"
LINKED = {
    "a package that pip did not find": ([PIP], PIP, traceback("ModuleNotFoundError: No module named 'deep_ep'")),
    "a package that was not built": ([BUILD.strip(), "ERROR: Could not build wheels for causal-conv1d, which is required"], BUILD.strip(), traceback("ModuleNotFoundError: No module named 'causal_conv1d'")),
    "a package's command": (["ERROR: No matching distribution found for deepfloat"], "ERROR: No matching distribution found for deepfloat", ["slurm_script: line 9: deepfloat: command not found"]),
    "a repository": (["Cloning into 'flowkit'...", "remote: not found", CLONE], CLONE, traceback("ModuleNotFoundError: No module named 'flowkit'")),
    "a file of a repository": (["Cloning into 'flowkit'...", CLONE], CLONE, ["python: can't open file '/w/flowkit/main.py': [Errno 2] No such file or directory"]),
    "a download, by the address above its error": (["--2026-03-04 10:00:00--  https://data.example.org/v2/faces.tar?download=1", "Connecting to data.example.org... connected.", "2026-03-04 10:00:01 ERROR 503: Service Unavailable."], "ERROR 503: Service Unavailable.", traceback("FileNotFoundError: [Errno 2] No such file or directory: '/w/faces.tar'")),
    "a download, by the shell's trace": (["+ wget -q https://data.example.org/faces.csv", NO_HOST], NO_HOST, traceback("FileNotFoundError: [Errno 2] No such file or directory: 'faces.csv'")),
    "a copy": (["cp: cannot stat '/archive/u/faces.h5': No such file or directory"], "cp: cannot stat '/archive/u/faces.h5': No such file or directory", traceback("FileNotFoundError: [Errno 2] Unable to open file (unable to open file: name = 'faces.h5', No such file or directory)")),
    "a directory": (["mkdir: cannot create directory '/lustre/p/out': Permission denied"], "mkdir: cannot create directory '/lustre/p/out': Permission denied", traceback("FileNotFoundError: [Errno 2] No such file or directory: '/lustre/p/out/a.pt'")),
    "a file that the shell could not write": (["/w/job.sh: line 3: /data/gen/run.py: Permission denied"], "/w/job.sh: line 3: /data/gen/run.py: Permission denied", ["python: can't open file '/data/gen/run.py': [Errno 2] No such file or directory"]),
    "a file that dash could not write": (["/w/job.sh: 3: cannot create run.py: Permission denied"], "/w/job.sh: 3: cannot create run.py: Permission denied", ["python: can't open file '/w/run.py': [Errno 2] No such file or directory"]),
    "a file that tee could not write": (["tee: /data/a.csv: Permission denied"], "tee: /data/a.csv: Permission denied", traceback("FileNotFoundError: [Errno 2] No such file or directory: '/data/a.csv'")),
    "line ends of another system": (["run.sbatch: line 3: $'\\r': command not found", "run.sbatch: line 6: $'module\\r': command not found"], "run.sbatch: line 3: $'\\r': command not found", ["python3: can't open file '/w/main.py\\r': [Errno 2] No such file or directory"]),
    "a copy from a store of objects": (['ERROR "cp s3://lab/run7/* /nvme/run7/": NoSuchKey: status code: 404'], 'ERROR "cp s3://lab/run7/* /nvme/run7/": NoSuchKey: status code: 404', traceback("FileNotFoundError: No step found in /nvme/run7/300")),
    "a port that was taken": (["12:M 04 Mar 2026 10:00:00.001 # Failed listening on port 7001 (TCP), aborting."], "12:M 04 Mar 2026 10:00:00.001 # Failed listening on port 7001 (TCP), aborting.", traceback("redis.exceptions.ConnectionError: Error 111 connecting to c7:7001. Connection refused.")),
}  # fmt: skip
MIDDLE = ["loading", "config ok", "3 workers", "cache is cold", "device cuda:0"]
"""More lines than a script's own error outlives."""


@pytest.mark.parametrize("between", [[], MIDDLE], ids=["at once", "later"])
@pytest.mark.parametrize("case", LINKED.values(), ids=LINKED)
def test_the_command_that_did_not_bring_what_is_missing_comes_first(
    case: tuple[list[str], str, list[str]], between: list[str]
) -> None:
    """The name links the two, however much the script printed in between; the later error stays in the list."""
    above, reason, below = case
    found = list(reader.read([*above, *between, *below, EXITED]))
    assert [f.message for f in found if f.first_cause] == [reason]
    assert len({f.line for f in found}) == len(found), "no line is reported twice"


OTHER = {
    "another package": ([PIP], "ModuleNotFoundError: No module named 'einops'"),
    "a part of the package": ([PIP], "ModuleNotFoundError: No module named 'deep_ep.utils'"),
    "another repository": (["Cloning into 'flowkit'...", CLONE], "ModuleNotFoundError: No module named 'flow'"),
    "another file": (["+ wget -q https://data.example.org/faces.csv", NO_HOST], "FileNotFoundError: [Errno 2] No such file or directory: 'labels.csv'"),
    "another directory": (["mkdir: cannot create directory '/lustre/p/out': Permission denied"], "FileNotFoundError: [Errno 2] No such file or directory: '/lustre/q/out/a.pt'"),
    "a file of that name elsewhere": (["/w/job.sh: line 3: /data/gen/run.json: Permission denied"], "FileNotFoundError: [Errno 2] No such file or directory: '/w/run.json'"),
    "another port": (["12:M 04 Mar 2026 10:00:00.001 # Failed listening on port 7001 (TCP), aborting."], "ConnectionRefusedError: [Errno 111] Connect call failed ('127.0.0.1', 9200)"),
    "a line end in a request": (["ERROR: bad reply 'HTTP/1.1 400\\r\\n'"], "ValueError: bad header 'a\\r\\n'"),
    "no lack": ([PIP], "ValueError: deep_ep must be a number"),
}  # fmt: skip


@pytest.mark.parametrize("case", OTHER.values(), ids=OTHER)
def test_without_a_common_name_the_later_error_stays(case: tuple[list[str], str]) -> None:
    above, last = case
    assert first(*above, *MIDDLE, *traceback(last), EXITED) == last


def test_a_file_that_the_program_should_have_written_is_not_the_copys() -> None:
    """A script looks for a checkpoint first and goes on without one; the training then did not write it."""
    copy = "cp: cannot stat '/w/last.ckpt': No such file or directory"
    gone = "FileNotFoundError: [Errno 2] No such file or directory: '/w/last.ckpt'"
    assert first(copy, *WORK, *traceback(gone), EXITED) == gone
    assert first(copy, *traceback(gone), EXITED) == copy


def test_what_follows_from_an_error_of_its_own_family_is_no_error_of_its_own() -> None:
    """The read-only file system is a finding already."""
    root = "mkdir: cannot create directory '/img/cache': Read-only file system"
    lines = ["start", root, "touch: cannot touch '/img/cache/a': No such file or directory", "+ exit 1", "INFO:    Cleaning up image...", EXITED]  # fmt: skip
    assert [f.message for f in reader.read(lines) if f.role.name == "ROOT"] == [root]
    assert first(*lines) == root


KILLED = "job.sh: line 21: 4242 {how} {command}"
SERVED = {
    "by the port": ("Killed", "tritonserver --http-port 9000 > t.log", "requests.exceptions.ConnectionError: HTTPConnectionPool(host='c7', port=9000): Max retries exceeded with url: /v2"),
    "by the client's name": ("Segmentation fault      (core dumped)", "python -m chromadb.cli.cli run &> c.log", "chromadb.errors.ChromaError: Could not connect to a Chroma server. Are you sure it is running?"),
    "by the local host": ("Killed", "./serve_model.sh", "urllib.error.URLError: <urlopen error [Errno 111] Connection refused by localhost>"),
}  # fmt: skip


@pytest.mark.parametrize("case", SERVED.values(), ids=SERVED)
def test_a_service_that_died_comes_before_its_clients_complaint(case: tuple[str, str, str]) -> None:
    how, command, last = case
    killed = KILLED.format(how=how, command=command)
    assert first("ready", killed, *traceback(last), EXITED) == killed


@every(
    ("command", "last"),
    [
        ("tritonserver --http-port 9000", "requests.exceptions.ConnectionError: HTTPConnectionPool(host='c7', port=9001): Max retries exceeded with url: /v2"),
        ("python monitor.py", "urllib.error.URLError: <urlopen error [Errno 111] Connection refused by localhost>"),
        ("tritonserver --http-port 9000", "ValueError: port=9000 is not free"),
        ("./serve_model.sh", "requests.exceptions.ConnectionError: ('Connection aborted.', host='hub.example.org')"),
    ],
)  # fmt: skip
def test_another_command_that_died_explains_no_client(command: str, last: str) -> None:
    assert first("ready", KILLED.format(how="Killed", command=command), *traceback(last), EXITED) == last


@every(
    ("between", "worked"),
    [
        (WORK, True),
        (['127.0.0.1 - "POST /v1/rank HTTP/1.1" 200 OK'] * 5, True),
        (WORK[:2], False),
        ([f"waiting for the model {n}/90 s" for n in range(1, 30)], False),
        ([f"server not ready after {n} s" for n in range(1, 40)], False),
        ([f"attempt {n}/6: no answer" for n in range(1, 6)], False),
    ],
)
def test_a_client_that_worked_on_did_not_need_the_service_that_died(between: list[str], worked: bool) -> None:  # fmt: skip
    """Waiting for it is no work, and a buffer may hold back a step or two."""
    how, command, last = SERVED["by the port"]
    killed = KILLED.format(how=how, command=command)
    for before in ([], WORK[:3]):
        assert first(*before, killed, *between, *traceback(last), EXITED) == (last if worked else killed)


def test_complaints_are_remembered_within_bounds() -> None:
    """A script in a loop prints thousands of them."""
    held = links.Complaints([])
    log = [f"ERROR: No matching distribution found for pack{n}" for n in range(500)]
    for found in reader.read(log):
        held.add(found)
    assert first(*log, *traceback("ModuleNotFoundError: No module named 'pack499'")) == log[499]


FAILED = {
    "a command that was killed": "job.sh: line 8: 4242 Killed                  ./assemble -o contigs.fa",
    "a step that crashed": "srun: error: c7: task 0: Segmentation fault (core dumped)",
    "a program that stopped by itself": "ERROR: Run halted.  The density left its bounds.",
    "a fatal error": "FATAL: 12 cells have a negative volume, stopping",
    "a download without a name": "curl: (28) Failed to connect to data.example.org port 443 after 130112 ms: Connection timed out",
    "an object that the store refused": "fatal error: An error occurred (403) when calling the HeadObject operation: Forbidden",
    "a directory that the script did not reach": "job.sh: line 4: cd: run7: No such file or directory",
    "a disk that takes nothing": "mkdir: cannot create directory '/local/j4': Read-only file system",
    "a full disk": "cp: error writing '/local/j4/in.tar': No space left on device",
    "an archive": "unzip:  cannot find or open data.zip, data.zip.zip or data.zip.ZIP.",
    "a clone": "fatal: unable to access 'https://git.example.org/lab/zoo.git/': Could not resolve host: git.example.org",
    "make": "make: *** [Makefile:12: solver] Error 2",
}
LACKS = {
    "a file": traceback("FileNotFoundError: [Errno 2] No such file or directory: 'stage1.csv'"),
    "a script": ["python: can't open file '/home/b/train.py': [Errno 2] No such file or directory"],
    "R's input": ['Error in file(file, "rt") : cannot open the connection', "Calls: read.csv -> read.table -> file", "Execution halted"],
    "Fortran's input": ["At line 44 of file grid.f90 (unit = 21)", "Fortran runtime error: Cannot open file 'grid.dat': No such file or directory"],
    "a number": ["grep: out.txt: No such file or directory", "(standard_in) 1: syntax error"],
    "rows": traceback("pandas.errors.EmptyDataError: No columns to parse from file"),
    "JSON": traceback("json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)"),
    "an archive": ["", "gzip: stdin: unexpected end of file", "tar: Child returned status 1", "tar: Error is not recoverable: exiting now"],
}  # fmt: skip


FROM_DATA = {"a number", "rows", "JSON", "an archive"}
NOT_OF = {
    "a program that stopped by itself": {"a script"},
    "a fatal error": {"a script"},
    "a download without a name": {"a script"},
    "an object that the store refused": {"a script"},
    "an archive": {"a script"},
    "a disk that takes nothing": {"a script"},
    "a full disk": {"a script"},
    "a directory that the script did not reach": FROM_DATA - {"an archive"},
    "a clone": FROM_DATA - {"an archive"},
    "make": {"a script", *FROM_DATA},
}
"""What each does not explain: a script with its whole path, data of a file that was there."""
PAIRS = [(f, w) for f in FAILED for w in LACKS if w not in NOT_OF.get(f, ())]


@every(("failed", "what"), PAIRS)
def test_what_a_later_command_lacks_gives_way_to_the_failure_right_above(failed: str, what: str) -> None:
    """Neither line names what the other one does; nothing but complaints stands between them."""
    assert first("loading", "stage one", FAILED[failed], *LACKS[what]) == FAILED[failed]


GONE = "FileNotFoundError: [Errno 2] No such file or directory: 'stage1.csv'"
ELSEWHERE = "FileNotFoundError: [Errno 2] No such file or directory: '/data/v3.csv'"
NO_REPOSITORY = "fatal: not a git repository (or any of the parent directories): .git"
KILLED_TOOL = "job.sh: line 4: 4711 Killed                  ./{}.sh"
UNRELATED = {
    "git beside the work": (NO_REPOSITORY, GONE),
    "a hook's server": ("curl: (6) Could not resolve host: hooks.example.org", GONE),
    "a server of the job's own": ("curl: (7) Failed to connect to localhost port 8000 after 0 ms: Connection refused", GONE),
    "a download and a file elsewhere": ("curl: (28) Connection timed out after 5000 milliseconds", ELSEWHERE),
    "make clean": ("make: *** [Makefile:12: clean] Error 1", GONE),
    "a monitor": (KILLED_TOOL.format("gpu_monitor"), GONE),
    "a full disk and a file elsewhere": ("mv: cannot move 'old.log' to '/home/u/a': Disk quota exceeded", ELSEWHERE),
    "a fallback": ("Fatal: the cache is not writable, using a temporary one", GONE),
    "a directory and a server's answer": ("job.sh: line 5: cd: old: No such file or directory", "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)"),
}  # fmt: skip


@pytest.mark.parametrize(("above", "last"), UNRELATED.values(), ids=UNRELATED)
def test_what_cannot_have_brought_it_explains_nothing(above: str, last: str) -> None:
    assert first("loading", above, *traceback(last), EXITED) == last


OF_NODE = {
    "a stale handle": "OSError: Unable to open file (name = '/lustre/u/a.h5', errno = 116, error message = 'Stale file handle')",
    "an I/O error": "OSError: [Errno 5] Input/output error: 'a.h5'",
    "the driver's library": "ImportError: libcuda.so.1: cannot open shared object file: No such file or directory",
}
"""Reasons that no command of the job's brings."""


@pytest.mark.parametrize("last", OF_NODE.values(), ids=OF_NODE)
@pytest.mark.parametrize(
    "above",
    [
        NO_REPOSITORY,
        FAILED["make"],
        FAILED["a command that was killed"],
        FAILED["a directory that the script did not reach"],
    ],
)
def test_a_fault_of_the_node_follows_from_no_command(above: str, last: str) -> None:
    assert first("loading", above, *traceback(last)) == last


@every(
    ("why", "kind"),
    [
        ("[Errno 5] Input/output error", "io_error"),
        ("[Errno 116] Stale file handle", "stale_file_handle"),
        ("[Errno 13] Permission denied", "python_exception"),
    ],
)
def test_a_script_that_its_file_system_does_not_give_is_not_the_users(why: str, kind: str) -> None:
    lines = ["start", f"python3: can't open file '/lustre/u/train.py': {why}"]
    assert [f.kind for f in reader.read(lines) if f.first_cause] == [kind]


def test_a_file_commands_complaint_gives_way_to_a_programs_own_error() -> None:
    touch = "touch: cannot touch '/home/u/x': Disk quota exceeded"
    for own in ("RuntimeError: CUDA error: uncorrectable ECC error encountered", "KeyError: 'lr'"):
        assert first("start", touch, *traceback(own)) == own
    assert first("start", touch, *traceback(GONE)) == touch


def test_only_a_common_name_hands_on_what_is_missing() -> None:
    """The download right above the copy explains its missing file perhaps; what the copy did not bring, the copy explains."""
    copy = "cp: cannot stat 'vocab.json': No such file or directory"
    download = "curl: (28) Connection timed out after 5000 milliseconds"
    gone = "FileNotFoundError: [Errno 2] No such file or directory: 'vocab.json'"
    assert first(download, copy, *MIDDLE, *MIDDLE, *traceback(gone), EXITED) == copy


def test_a_cascade_leads_to_its_first_member() -> None:
    """No clone, so no directory, so no script: each lacks by name, or by its place, what the one before did not bring."""
    clone = "fatal: unable to access 'https://git.example.org/lab/zoo.git/': Could not resolve host: git.example.org"
    cd = "./run.sh: line 4: cd: zoo: No such file or directory"
    gone = "python: can't open file '/home/b/train.py': [Errno 2] No such file or directory"
    assert first("Cloning into 'zoo'...", clone, cd, "installing", gone) == clone


def test_a_failure_does_not_explain_what_is_no_lack_or_comes_after_work() -> None:
    for above in FAILED.values():
        if not above.startswith("make"):
            assert first("loading", above, *MIDDLE, *traceback("KeyError: 'lr'")) == "KeyError: 'lr'"
    for what, above in FAILED.items():
        if what not in ("a command that was killed", "a step that crashed"):
            assert first(above, *WORK, *traceback(GONE)) != above
    aborted = "application called MPI_Abort(MPI_COMM_WORLD, 1) - process 0"
    assert first(aborted, "ERROR: cannot open file grid.dat", *traceback(GONE)) != aborted


RANKED = {
    "a module and a program's own error": (["Lmod has detected the following error:  The following module(s) are unknown: \"htop/3\"", *MIDDLE, "Fatal error:", "The number of ranks (7) has a large prime factor"], 7),
    "a download behind its bar": (["  0     0    0     0    0     0      0      0 --:--:-- --:--:-- --:--:--     0curl: (6) Could not resolve host: data.example.org", *traceback("RuntimeError: dataset not found at data/qm, run get.sh")], 0),
    "large files": (["error: external filter 'git-lfs filter-process' failed", *traceback("_pickle.UnpicklingError: invalid load key, 'v'.")], 0),
    "a copy that the script went on after": (['rsync: [sender] read errors mapping "/archive/r/p7.h5": Input/output error (5)', "staging done", "reducing 12 parts", *traceback("FileNotFoundError: [Errno 2] No such file or directory: '/local/8/p7.h5'")], 0),
    "a crash that its runtime reports": (["forrtl: severe (174): SIGSEGV, segmentation fault occurred", "Image              PC                Routine            Line        Source", "ocean.x            000000000133C0AA  Unknown               Unknown  Unknown", "ncdump: month.nc: No such file or directory"], 0),
    "an optional step and a crash": ([*traceback("ModuleNotFoundError: No module named 'tkinter'"), "not rendered, going on without", "step 100 t=0.01", "step 200 t=0.02", "step 300 t=0.03", "job.sh: line 3: 71120 Segmentation fault      (core dumped) ./solve"], 8),
}  # fmt: skip


@pytest.mark.parametrize(("lines", "cause"), RANKED.values(), ids=RANKED)
def test_of_several_failures_the_one_that_explains_the_end_is_named(lines: list[str], cause: int) -> None:
    assert [f.line for f in reader.read(["start", *lines]) if f.first_cause] == [cause + 2]


@every(
    ("died", "linked"),
    [
        (["srun: error: n1: task 0: Terminated", "srun: Force Terminated StepId=71.0"], True),
        (["run.sh: line 4: 812 Terminated    python3 fold.py"], True),
        (["run.sh: line 4: 812 Aborted    python3 fold.py"], True),
        (["run.sh: line 4: 812 File size limit exceeded    ./fold"], True),
        (["run.sh: line 4: 812 Terminated    ./start_server"], False),
        (["srun: error: n1: task 1: Aborted (core dumped)"], False),
        (["srun: error: n1: task 3: Exited with exit code 1", "srun: error: n1: tasks 0-2: Terminated"], False),
    ],
)  # fmt: skip
def test_a_stage_that_a_signal_ended_did_not_write_the_next_ones_file(died: list[str], linked: bool) -> None:
    """A script ends its own servers, and srun the tasks beside one that failed; a rank's own error may follow its abort."""
    lines = [
        "fold",
        *died,
        "score",
        *traceback("FileNotFoundError: [Errno 2] No such file or directory: 'fold.pdb'"),
    ]
    (found,) = [f for f in reader.read(lines) if f.first_cause]
    assert (found.line == 2) is linked


MISSING = "FileNotFoundError: [Errno 2] No such file or directory: 'raw/in.npy'"


@every(
    "failed",
    [
        "/spool/job7/slurm_script: line 3: pip: command not found",
        "job.sh: 3: pip3: not found",
        "/spool/job7/slurm_script: line 3: uv: command not found",
        "ERROR: Could not install packages due to an OSError: HTTPSConnectionPool(host='pypi.example.org', port=443): Max retries exceeded",
        "ERROR: Could not open requirements file: [Errno 2] No such file or directory: 'needs.txt'",
        "error: externally-managed-environment",
    ],
)
def test_a_package_right_behind_an_installer_that_could_not_begin_is_missing_for_that(failed: str) -> None:
    """Not a part of a package that is there, another error, nor a package behind work."""
    lacks = traceback("ModuleNotFoundError: No module named 'einops'")
    assert first("begin", failed, "fit", *lacks) == failed
    assert first("begin", failed, *traceback("KeyError: 'einops'")) == "KeyError: 'einops'"
    part = "ModuleNotFoundError: No module named 'einops.layers'"
    assert first("begin", failed, *traceback(part)) == part
    assert first("begin", failed, *WORK, *lacks) == lacks[-1]


AT_LIMIT = [
    "job.sh: line 4: 812 File size limit exceeded(core dumped) ./fold > all.out",
    "job.sh: line 4: 812 CPU time limit exceeded (core dumped) ./fold",
    "File size limit exceeded",
    "srun: error: c7: task 0: File size limit exceeded (core dumped)",
]
CHECKS = ["AssertionError: fewer rows than expected", "AssertionError"]


@pytest.mark.parametrize("died", AT_LIMIT)
@pytest.mark.parametrize("check", CHECKS)
def test_a_check_right_behind_a_command_that_a_limit_ended_fails_for_that(died: str, check: str) -> None:
    """What it wrote is not whole. Another error, a check behind work, or behind a crash of something else, is of its own."""
    assert first("reading", died, "checking", *traceback(check)) == died
    assert first("reading", died, *traceback("KeyError: 'rows'")) == "KeyError: 'rows'"
    assert first("reading", died, *WORK, *traceback(check)) == check
    crash = "job.sh: line 4: 812 Segmentation fault      (core dumped) ./view"
    assert first("reading", crash, *traceback(check)) == check


@every(
    "headings",
    [
        ["[2/5] unpack", "[3/5] index", "[4/5] shuffle", "[5/5] fit"],
        ["== unpack", "== index", "== shuffle", "== sort", "== merge", "== fit"],
        ["Stage 2/3: index", "Stage 3/3: fit"],
    ],
)
def test_headings_of_stages_are_no_work(headings: list[str]) -> None:
    """Neither between a failed download and what is missing, nor between two errors of one file."""
    for failed in "curl: (6) Could not resolve host: data.example.org", "cp: cannot stat '/pool/raw/in.npy': No such file or directory":  # fmt: skip
        assert first("load", failed, *headings, *traceback(MISSING)) == failed


@every("line", ["[3/5] index: 40 files", "epoch 3/90 loss 0.4", "12/400 [00:01<00:30]"])
def test_a_programs_counters_are_no_headings(line: str) -> None:
    assert not unnamed.is_heading(line)


@every("words", ["resume from checkpoint", "continue", "second stage"])
def test_an_error_of_the_same_file_was_not_handled_whatever_the_next_heading_says(words: str) -> None:
    full = "OSError: [Errno 122] Disk quota exceeded: 'ck/part.pt'"
    lost = "FileNotFoundError: [Errno 2] No such file or directory: 'ck/part.pt'"
    assert first(*traceback(full), words, *traceback(lost)) == full
    other = "FileNotFoundError: [Errno 2] No such file or directory: 'eval/b.csv'"
    if words != "second stage":
        assert first(*traceback(full), words, *traceback(other)) == other


@every(("program", "linked"), [("/u/a/./relax", True), ("./relax", True), ("relax", False)])
def test_a_relative_program_that_slurm_does_not_find_follows_from_a_failed_cd(
    program: str, linked: bool
) -> None:
    cd = "/var/spool/slurmd/job00031/slurm_script: line 5: cd: /u/a/run2: No such file or directory"
    step = f"slurmstepd-n1: error: execve(): {program}: No such file or directory"
    assert first(cd, step, "srun: error: n1: task 0: Exited with exit code 2") == (cd if linked else step)


def marked(*lines: str) -> list[bool]:
    """Whether the first cause is marked as survived."""
    return ["survived" in f.detail for f in reader.read(lines) if f.first_cause]


SERVES = [
    "(Core pid=8) ERROR the core met a fatal error",
    "(Core pid=8) Traceback (most recent call last):",
    '(Core pid=8)   File "/w/core.py", line 8, in run',
    "(Core pid=8)     step()",
]
LOST = "RuntimeError: CUDA error: an illegal memory access was encountered"
BAR = [f"eval:   {n}%| | {n}/90 [00:{n}<01:00, 1.0it/s]" for n in range(11, 20)]


@every(
    ("answer", "answered"),
    [
        ("openai.InternalServerError: Error code: 500 - {'error': 'internal'}", True),
        ("requests.exceptions.HTTPError: 500 Server Error: Internal Server Error for url: http://localhost:81/v1", True),
        ("requests.exceptions.HTTPError: 502 Server Error: Bad Gateway for url: http://gpu7:81/v1", True),
        ("requests.exceptions.HTTPError: 502 Server Error: Bad Gateway for url: https://api.example.org/v1", False),
        ("KeyError: 'choices'", False),
    ],
)  # fmt: skip
def test_a_server_that_lost_its_gpu_is_the_reason_of_its_answer(answer: str, answered: bool) -> None:
    """The client's bar went on below the server's error."""
    lines = ["loading", *SERVES, f"(Core pid=8) {LOST}", *BAR, *traceback(answer), EXITED]
    assert first(*lines) == (LOST if answered else answer)
    assert marked(*lines) == [False]


@every("own", ["torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"])
def test_what_a_server_goes_on_after_is_no_reason_of_its_answer(own: str) -> None:
    answer = "openai.InternalServerError: Error code: 500 - {'error': 'internal'}"
    assert first("loading", *SERVES, f"(Core pid=8) {own}", *BAR, *traceback(answer), EXITED) == answer


def test_an_answer_that_points_at_what_stands_above_gives_way_to_it() -> None:
    answer = "openai.InternalServerError: Error code: 500 - {'error': 'See stack trace (above) for the root cause.'}"
    own = "ValueError: the page table has no row 7"
    assert first("loading", *SERVES, f"(Core pid=8) {own}", *BAR, *traceback(answer), EXITED) == own
    assert first("loading", *BAR, *traceback(answer), EXITED) == answer


FULL = "tar: train/n2/a7.png: Cannot write: No space left on device"
STAGES = ["== fit ==", "Using device cuda:0", "model has 12M parameters", "Train: 0 [ 0/831 (0%)] Loss: 6.9"]


@every(
    ("complaint", "error", "is_reason"),
    [
        (FULL, "PIL.UnidentifiedImageError: cannot identify image file '/local/7/train/n2/a7.png'", True),
        ("cp: error writing '/local/7/w.bin': No space left on device", "ValueError: bad header in '/local/7/w.bin'", True),
        ("cp: error writing '/local/7/w.bin': Disk quota exceeded", "ValueError: bad header in '/data/v2/w.bin'", False),
        (FULL, "ValueError: hidden size 7 does not match 9", False),
        ("cp: error writing '/backup/7/w.csv': No space left on device", "KeyError: 'w.csv'", False),
        ("cp: error writing '/backup/7/w.csv': No space left on device", "ValueError: bad header in 'w.csv'", False),
        ("tar: w.csv: Cannot write: No space left on device", "ValueError: bad header in '/data/v2/w.csv'", False),
        ("tar: w.csv: Cannot write: No space left on device", "ValueError: bad header in 'w.csv'", True),
        ("cp: error writing '/local/7/notes': No space left on device", "ValueError: bad notes in 'notes'", False),
    ],
)  # fmt: skip
def test_a_file_that_was_not_written_is_broken(complaint: str, error: str, is_reason: bool) -> None:
    lines = [complaint, *STAGES, *traceback(error), "== clean-up =="]
    assert first(*lines) == (complaint if is_reason else error)
    assert marked(*lines) == [False]


@every(
    "poll",
    [
        "[client] health: connection refused (attempt {}/40)",
        "server not ready yet (try {})",
        "probe {}: unreachable",
    ],
)
def test_a_client_that_asks_again_is_no_work(poll: str) -> None:
    own = "ValueError: the context is longer than the model's"
    late = "TimeoutError: server at http://127.0.0.1:8011 did not come up"
    asks = [poll.format(n) for n in range(2, 12)]
    serving = [line.replace("run.py", "serve.py") for line in traceback(own)]
    assert first("serving", poll.format(1), *serving, *asks, *traceback(late), EXITED) == own


@every(
    "above",
    ["service not available, falling back to the local model", "health check not ok, will retry"],
)
def test_what_is_tried_otherwise_above_a_traceback_is_over(above: str) -> None:
    assert first(above, *traceback("KeyError: 'status'"), "epoch 1 loss 1", "epoch 2 loss 1") is None


def test_a_line_that_tries_again_above_an_error_of_connections_is_about_it() -> None:
    lost = "requests.exceptions.ConnectionError: Connection refused by data.example.org"
    own = "IndexError: list index out of range"
    lines = ["connection refused, attempt 2", *traceback(lost), *WORK, *traceback(own), EXITED]
    assert first(*lines) == own


JOINS = traceback("torch.distributed.DistStoreError: Timed out after 901 seconds waiting for clients. 4/8 clients joined.")  # fmt: skip


@every(
    ("complaint", "is_reason"),
    [
        ("ac12: Host key verification failed.", True),
        ("ac12: Permission denied (publickey,password).", True),
        ("ssh: connect to host ac12 port 22: No route to host", True),
        ("pdsh@front: ac12: ssh exited with exit code 255", True),
        ("ssh: connect to host git.example.org port 22: Connection timed out", False),
        ("Host key verification failed.", False),
    ],
)
def test_a_node_that_ssh_did_not_reach_joins_no_rendezvous(complaint: str, is_reason: bool) -> None:
    """The other nodes work and wait in between."""
    waits = [f"indexing shard {n}/60" for n in range(1, 60)]
    own = traceback("KeyError: 'vocab'")
    assert first("starting", complaint, *waits, *JOINS, EXITED) == (complaint if is_reason else JOINS[-1])
    assert first("starting", complaint, *waits, *own, EXITED) == own[-1]


@pytest.mark.parametrize(
    ("error", "is_reason"),
    [
        ("EOFError: No data left in file", True),
        ("zipfile.BadZipFile: File is not a zip file", True),
        ("RuntimeError: PytorchStreamReader failed reading zip archive", True),
        ("KeyError: 'mel'", False),
    ],
)
@pytest.mark.parametrize(
    "complaint",
    [
        "tar: clips/77.npy: Cannot write: No space left on device",
        "tar: clips/77.npy: Échec de write: Aucun espace disponible sur le périphérique",
        "unzip:  write error: Disk quota exceeded",
    ],
)
def test_what_was_not_unpacked_is_cut_short_however_late_it_is_read(
    complaint: str, error: str, is_reason: bool
) -> None:
    work = [f"step {n}/900 loss {9.5 - n / 100:.2f}" for n in range(1, 60)]
    assert first(complaint, "starting", *work, *traceback(error), "end (code 1)") == (
        complaint if is_reason else error
    )


def test_a_complaint_that_is_a_consequence_itself_names_its_own_reason() -> None:
    ends = "run.sbatch: line 2: $'\\r': command not found"
    gone = "run.sbatch: line 9: cd: $'/w/x\\r': No such file or directory"
    hints = ["see the manual", "or ask", "a colleague", "about it", "some day"]
    script = "python: can't open file '/home/u/main.py': [Errno 2] No such file or directory"
    assert first(ends, *hints, gone, script, EXITED) == ends
    assert first(*hints, gone.replace("\\r", ""), script, EXITED) == gone.replace("\\r", "")


@every(("exited", "is_reason"), [(True, True), (False, False)])
def test_what_a_command_that_ended_badly_should_have_made_is_missing_later(
    exited: bool, is_reason: bool
) -> None:
    """Other work of the script stands between the two."""
    export = traceback("RuntimeError: export failed: unsupported operator")
    other = [f"batch {n}: {70 - n}.25 ms" for n in range(1, 9)]
    late = traceback("FileNotFoundError: [Errno 2] No such file or directory: 'net.onnx'")
    lines = [*export, *([EXITED] if exited else []), "== other ==", *other, *late, "end"]
    assert first(*lines) == (export[-1] if is_reason else late[-1])
    own = traceback("KeyError: 'ms'")
    assert first(*lines[:-5], *own, "end") == own[-1]
