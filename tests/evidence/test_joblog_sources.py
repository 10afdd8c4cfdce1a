"""Forms in which programs' sources print their fatal messages, and their notes."""

from __future__ import annotations

import io

from probing_cluster.evidence import classify
from tests.every_case import every

BEFORE = ["Running on 32 processors", "Reading input file run.in", "Setup took 2.13 seconds"]


def first(lines: list[str]) -> tuple[str, str] | None:
    """Kind and line of the first cause, read as files are."""
    text = [*BEFORE, *lines]
    found = classify.classify_stream(io.BytesIO("\n".join(text).encode()), "joblog")
    return next(((str(f["kind"]), text[int(f["line"]) - 1]) for f in found if f["first_cause"]), None)


@every(
    "line",
    [
        "== Error ==  the output folder does not hold an earlier stage",
        "  0:01:12.125    12M / 40M   ERROR   General              (reads.cpp                 :  88)   Both read files are empty",
        "0.311s: flux-shell[2]: FATAL: no task could be placed",
        "/var/spool/slurm/job31/slurm_script: line 9: export: `3x': not a valid identifier",
        "/var/spool/slurm/job31/slurm_script: line 9: shift: 4: shift count out of range",
        "./run.sh: 9: export: 3x: bad variable name",
        "run.ksh[9]: data: parameter not set",
        "stage.zsh:9: parse error near `done'",
        "foreach: Words not parenthesized.",
        "if: Expression Syntax.",
        "sorter merge: could not make the final file: Permission denied",
        "gauss: table.c:31: ERROR: knots must increase",
        "Error(readspecies): no such element",
        "FATAL:nothing to load",
        "tool    pick (Abort): No such variable",
        "Error message is negative density",
        "On return from ZMUMPS, INFOG(1)=             -13",
        "GEO-Model ERROR: file with emissions is empty",
        "[read_table] Unexpected end of file",
        "Error, you gave two trees where one is wanted",
        "ERROR) Could not read the trajectory",
        "The INFO column DP is not defined in the header of a.vcf",
        "No reference folder specified!",
        "Expected two columns but found one in line 7",
        "libc++abi: terminating due to uncaught exception of type std::domain_error: negative root",
        "file b.nii does not exist .",
        "[CPU: 1.2 GB] ====== Job process terminated abnormally.",
    ],
)
def test_a_last_line_in_a_programs_own_form_is_the_cause(line: str) -> None:
    assert first([line]) == ("program_error", line)


@every(
    ("lines", "cause"),
    [
        (["* [ABORT]" + " " * 20 + "*", r"*  \___/      Cell too small for this cutoff      *", "*    |" + " " * 20 + "*"], 1),
        (["terminate called after throwing an instance of 'Box::Error'", "  what():  ", "(core/Box.cpp:17) void Box::read()", "+++ BOX error", "+++ message follows +++", "Atom 12 has no mass"], 5),
        (["%%%%%%%%%%%%", "     Error in routine read_xml: cellType (10):", "     attribute alat is missing", "%%%%%%%%%%%%"], 2),
        (["!" * 40, "          NOTICE", "!" * 40, " ", " cutoff must > 0", " CHECK IN FILE : OUT.run/warning.log", "!" * 40], 4),
        (["Exiting.......", " window: more bands than were computed"], 1),
        (["ABOR1 CALLED", " SUDYN: number of levels differs"], 1),
        ([" EXIT: invalid number of elements         17", "", " call exitt: dying ..."], 0),
        (["| " + "Error BRIONS: Call to DGETRF failed. Returncode = 3" + " |", "|   ---->  I REFUSE TO CONTINUE WITH THIS SICK JOB   <----  |"], 0),
        (["E1129 09:00:17.123456 31 lifecycle.cc:88] failed to load 'a' version 2: no such backend", "error: creating server: Internal - failed to load all models"], 0),
        (["Need at least 3 arguments", "(ERR): builder exited with value 1"], 0),
        (["  * No mesh found.", "  * Execution stopped."], 0),
    ],
)  # fmt: skip
def test_the_sentence_is_the_cause_and_not_its_box(lines: list[str], cause: int) -> None:
    found = first(lines)
    assert found is not None
    assert found[1] == lines[cause]


@every(
    "lines",
    [
        ["Warning message:", "In sort(x) : cannot turn off the locale's order"],
        ["--> FOAM Warning : ", "    From function void Foam::f()", "    in file a.C at line 3", "    Cannot find any zone named inlet"],
        ["     Message from routine setup:", "     cannot use symmetry with this lattice"],
        ["[W::open_index] The index file is older than the data and cannot be trusted"],
        ["WARN: Unable to read history file: .hist"],
        ["slurmstepd: error: error unlocking cgroup '/sys/fs/cgroup/slurmstepd.scope' : Bad file descriptor"],
        ["[tune] Unexpected keys: 0"],
        ["job.sh: line 4: [: too many arguments"],
        ["./job.sh: 4: [: unexpected operator"],
        ["job.sh: line 4: warning: here-document at line 2 delimited by end-of-file"],
        ["The mode is not supported, using the default"],
    ],
)  # fmt: skip
def test_a_note_that_a_log_ends_with_is_no_cause(lines: list[str]) -> None:
    assert first(lines) is None
