"""Output that went through a terminal, or whose file has holes: what prints nothing hides no message."""

from __future__ import annotations

import pytest

from probing_cluster.evidence import classify, prefixes
from probing_cluster.evidence.joblog import reader
from probing_cluster.evidence.kernel import reader as kernel

CRASH = "Segmentation fault (core dumped)"
LIMIT = "slurmstepd: error: *** JOB 77 ON n1 CANCELLED AT 2024-05-01T10:00:00 DUE TO TIME LIMIT ***"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (f"\x1b(B\x1b[m{CRASH}", "segfault"),
        (f"\x1b]0;u@n1: ~/run\x07{CRASH}", "segfault"),
        (f"\x1b]0;u@n1: ~/run\x1b\\{CRASH}", "segfault"),
        (f"\x07\x0f{CRASH}", "segfault"),
        (f"{CRASH}\0", "segfault"),
        ("\0" * 50 + "Killed", "oom_kill_suspected"),
        ("\0" * 200_000 + LIMIT, "slurm_timeout"),
    ],
    ids=["tput sgr0", "a window's title", "the same, closed otherwise", "bell and shift", "a NUL behind", "NULs in front", "a hole"],
)  # fmt: skip
def test_what_prints_nothing_hides_no_message(text: str, kind: str) -> None:
    lines = ["reading the input", text]
    found = list(classify.classify_stream([line.encode() for line in lines], "joblog"))
    assert [f["kind"] for f in found if f["first_cause"]] == [kind]
    assert found == [classify.joblog_json(f) for f in reader.read(lines)]


def test_the_log_of_a_node_whose_file_has_a_hole_is_read() -> None:
    text = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=a, GPU has fallen off the bus."
    found = kernel.KernelReader().read_line("\0" * 20_000 + f"[   12.345678] {text}")
    assert found is not None
    assert found[1].code == "79"


def test_what_overwrites_a_line_stays() -> None:
    """The carriage return and the backspace decide what of a line remains."""
    assert prefixes.plain("\x1b[2Ka\tb\rc\bd") == "a\tb\rc\bd"
