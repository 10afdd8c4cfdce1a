"""What a whole file is, where `classify` is not told."""

from __future__ import annotations

import itertools

import pytest

from probing_cluster.evidence import classify
from probing_cluster.evidence.joblog import reader

PLAIN = [b"reading part %d of the corpus" % n for n in range(2000)]
TRACE = [
    b"Traceback (most recent call last):",
    b'  File "train.py", line 3, in <module>',
    b"    main()",
    b"KeyError: 'lr'",
]
XID = b"NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=python3, GPU has fallen off the bus."


def read(lines: list[bytes], **more: bool) -> tuple[list[str], list[dict[str, object]]]:
    kinds: list[str] = []
    found = list(classify.classify_stream(lines, None, found_out=kinds.append, **more))
    return kinds, found


@pytest.mark.parametrize("all_lines", [False, True])
def test_lines_of_neither_form_are_what_their_findings_are(*, all_lines: bool) -> None:
    """A traceback thousands of lines below is found; a kernel's message anywhere makes it a kernel log. Without either, a line of a kernel log's form does."""
    kinds, found = read([*PLAIN, *TRACE], all_lines=all_lines)
    assert kinds == ["joblog"]
    assert [f["kind"] for f in found if f["kind"] != "none"] == ["python_exception"]
    assert [f["line"] for f in found] == (list(range(1, 2005)) if all_lines else [2004])
    kinds, found = read([*PLAIN, *TRACE, *PLAIN, XID, *PLAIN], all_lines=all_lines)
    assert kinds == ["kernel"]
    assert [(f["kind"], f["line"]) for f in found if f["kind"] != "none"] == [("xid", 4005)]
    assert len(found) == (6005 if all_lines else 1)
    kinds, found = read(PLAIN, all_lines=all_lines)
    assert (kinds, len(found)) == (["joblog"], 2000 if all_lines else 0)
    assert read([*PLAIN[:100], b"[   12.500000] nothing in it"])[0] == ["kernel"]


@pytest.mark.parametrize(
    "lines", [[*TRACE, b"srun: error: n1: task 0: Exited with exit code 1"], [b"[  12.5] " + XID]]
)
def test_dos_line_ends_change_nothing(lines: list[bytes]) -> None:
    """In neither kind of log."""
    assert read([line + b"\r\n" for line in lines]) == read([line + b"\n" for line in lines])
    assert read(lines)[1]


def test_a_flood_of_a_jobs_errors_is_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Findings without end come while the log is read."""
    monkeypatch.setattr(classify, "_MOST_HELD", 100)
    monkeypatch.setattr(reader, "MAX_HELD", 100)
    kinds: list[str] = []
    flood = itertools.chain(PLAIN, itertools.chain.from_iterable(itertools.repeat(TRACE, 20_000)))
    found = classify.classify_stream(flood, None, found_out=kinds.append)
    assert next(found)["kind"] == "python_exception"
    assert kinds == ["joblog"]
    assert next(flood, None) is not None


@pytest.mark.parametrize(
    ("before", "is_found"),
    [(["A rule for this line:", "```"], False), (["```"], True), (["Text", "```", "old", "```"], True)],
    ids=["quoted by a page", "a copied log", "below a quotation"],
)
def test_a_kernel_line_that_a_page_quotes_is_none(before: list[str], *, is_found: bool) -> None:
    lines = [*before, "[   12.345678] EXT4-fs (sda1): Remounting filesystem read-only", "```"]
    found = list(classify.classify_stream([line.encode() for line in lines], "kernel"))
    assert bool(found) is is_found


PASTED = "[ 4321.123456] NVRM: Xid (PCI:0000:4b:00): {n}, pid=77, name=train"


@pytest.mark.parametrize(
    ("lines", "codes"),
    [
        (["Our node has crashed, its dmesg:", "```", PASTED.format(n=31), PASTED.format(n=79), "```", "thanks"], [31, 79]),
        (["```", PASTED.format(n=31), "```", "and later", "```", PASTED.format(n=79), "```"], [31, 79]),
        (["a mark", "```", PASTED.format(n=79)], [79]),
        (["a page", "```sh", "dmesg", "```console", PASTED.format(n=31), PASTED.format(n=79), "```"], [31, 79]),
        (["The pattern matches:", "```text", PASTED.format(n=79), "```", "and this:", "```", PASTED.format(n=31), "```"], []),
        (["  a page", "  ```", f"  {PASTED.format(n=79)}", "  ```", "  ok"], []),
    ],
    ids=["pasted", "two copied blocks", "not closed", "opened twice", "two quotations", "indented"],
)  # fmt: skip
def test_a_kernel_log_pasted_between_fences_is_read(lines: list[str], codes: list[int]) -> None:
    """A page quotes a single line."""
    found = classify.classify_stream([line.encode() for line in lines], "kernel")
    assert [int(f["code"]) for f in found] == codes
