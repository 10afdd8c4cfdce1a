"""A listing's lines are none of the job's; what only looks like one loses nothing."""

from __future__ import annotations

import time as clock

import pytest

from probing_cluster.evidence import listings, sifted
from probing_cluster.evidence.joblog import reader
from tests.every_case import every

TRACE = [
    "Traceback (most recent call last):",
    '  File "fit.py", line 4, in run',
    "    step()",
    "OSError: lost",
]


def first(lines: list[str]) -> str | None:
    """The first cause, found alike in a log read line by line and by batches."""
    plain = [f.message for f in reader.read(lines) if f.first_cause]
    engine = reader.JobLogReader()
    sifting = sifted.Sieve().feed(engine, 1, [line.encode() for line in lines])
    assert [f.message for f in [*sifting, *engine.close()] if f.first_cause] == plain
    return next(iter(plain), None)


@pytest.mark.parametrize(
    "lines",
    [
        ["class T(Case):", "    def test(self):", '        got = """begin', *TRACE, '"""', "        self.check(got)"],
        ["run(", '    """', *TRACE, '""",', "    strict=True,", ")"],
        ["case = {", "    'out': '''", *TRACE, "''',", "}"],
        ['const OUT: &str = "\\', "RuntimeError: NCCL communicator was aborted on rank 1.", '";'],
        ['    let out = r#"', *TRACE, '"#;'],
        ["\tin := `", *TRACE, "`"],
        ["const page = `", *TRACE, "`;"],
        ['static const char *out = R"(', *TRACE, ')";'],
        ["+++ b/a.py", "@@ -3,1 +3,4 @@ def run():", *[f"+{line}" for line in TRACE], "-ValueError: none", "applied"],
        ["+++ b/a.py", "@@ -3 +3 @@", "-OSError: lost", "+OSError: found", "@@ -7,0 +8 @@", "+OSError: lost again"],
        ['body: "\\u003cpre\\u003eTraceback:\\n', "      ValueError: a\\n\\u003c/pre\\u003e", "      OSError: b was raised"],
        ['OUT = """\\', *TRACE, "lost\\", '"""', "other = 1"],
        ["+ head -6 notes.py", 'NOTES = """', *TRACE, "+ date", "today"],
        ["+ head notes.py", "import re", 'NOTES = """', *TRACE, "+ date"],
    ],
    ids=["python", "argument", "value", "rust", "raw rust", "go", "template", "raw c++", "diff", "short diff", "record", "escaped end", "head", "ten lines"],
)  # fmt: skip
def test_a_listing_shows_no_error(lines: list[str]) -> None:
    assert first(lines) is None


@pytest.mark.parametrize(
    "lines",
    [
        ['setting = """', "step 1", *TRACE],
        ['setting = """', *[f"step {n}" for n in range(listings.MAX_LINES + 9)], *TRACE, '"""'],
        ['note: """', *TRACE, '"""'],
        ['what f does: """adds"""', *TRACE],
        ["pool.RemoteTraceback: ", '"""', *TRACE, '"""'],
        ["const q = `", *TRACE],
        ["note: see `a", *TRACE, "and `b"],
        ["mv: `a' is lost", *TRACE, "mv: `b' is lost"],
        ["@@ -1,2 +1,2 @@", " a", "-b", "+c", *TRACE],
        ["@@ no change @@", *TRACE],
        ['{"body": "\\u003cp\\u003ehello"}', *TRACE],
        ['body: "\\u003cp\\u003ehello\\u003c/p\\u003e"', *[f"  {line}" for line in TRACE]],
        [TRACE[0], TRACE[1], '    f("""', "    ~^^^^", '        a""")', TRACE[3]],
        ["A = '''", "a", "'''", *TRACE],
        [*["A = '''", "a", "'''"] * 3, "B = '''", *TRACE, "srun: error: n1: task 0: Exited with exit code 1"],
        [*["A = '''", "a", "'''"] * 3, "B = '''", *TRACE],
        ['[answer 1] s = """ab', *TRACE, '[answer 2] s = """cd'],
        ['[answer 1] s = """ab', *TRACE, '[answer 2] s = """cd"""'],
        *[[f'{label} s = """ab', *TRACE, 'as in """'] for label in ("[answer 1]", "answer 1:", "INFO")],
        ["const q = `", TRACE[3], "total `a`"],
        ['let a = "\\', TRACE[3], 'let b = "\\', '";'],
        ['s = """', *TRACE, "[rank1]: x", '"""'],
        ['s = """', *TRACE, "bash: fit: command not found", '"""'],
        ['s = """', *TRACE, "+ date", '"""'],
        ["+ head -3 notes.py", 's = """', *TRACE, "+ date"],
        [TRACE[0], TRACE[1], "    run(", '    """', "    ...<4 lines>...", "    )", TRACE[3], 'x"""'],
        ["> 7 run(", '    """', "    ...<4 lines>...", *TRACE, 'x("""'],
        ["@@ -1,40 +1,40 @@", *[f" {line}" for line in TRACE]],
        ["+++ b/a.py", "@@ -1,40 +1,40 @@", " a", *TRACE],
        ["+++ b/a.py", "@@ -0,0 +1,5 @@", "+a", *[f" {line}" for line in TRACE]],
        ["+++ b/a.py", "@@ -1,7 +1,7 @@", " a", "+ srun ./fit", *[f" {line}" for line in TRACE], "-b", "-c"],
        [*TRACE[:3], "OSError: lost (server: \\u003chtml\\u003eno\\u003c/html\\u003e\\n)"],
        [*TRACE[:3], "OSError: lost at position 0: .*"],
    ],
    ids=["open", "long", "not source", "once", "pool", "open template", "backquotes", "gnu", "after a diff", "no diff", "json", "a whole record", "frame", "closed", "of a job", "cut off", "opened again", "whole one", "label", "number", "level", "backquotes of a word", "rust again", "rank", "shell", "traced", "longer than head", "abridged", "abridged alone", "no file's head", "cut change", "not of the change", "trace in a change", "server", "end"],
)  # fmt: skip
def test_what_is_no_listing_loses_nothing(lines: list[str]) -> None:
    found = first(lines)
    assert found is not None
    assert found.strip().startswith("OSError: lost")


def test_a_cut_string_of_a_log_without_other_strings_is_given_back_in_order() -> None:
    lines = listings.Listing([])
    assert list(lines.read(1, 'x = """')) == [(1, 'x = """')]
    assert list(lines.read(2, "a")) == []
    assert lines.inside(3)
    assert list(lines.rest()) == [(2, "a")]
    assert not lines.inside(3)


def test_a_line_too_long_for_source_ends_no_more_than_the_holding() -> None:
    """What is held is bounded."""
    lines = listings.Listing([])
    given = [*lines.read(1, 'x = """'), *lines.read(2, "a"), *lines.read(3, "b" * 100_000)]
    assert [number for number, _ in given] == [1, 2, 3]


@every(
    "text",
    [
        "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM Killed.",
        "srun: error: Node failure on n1",
    ],
)
def test_a_launcher_speaks_in_no_string(text: str) -> None:
    assert first(['s = """', "a", text, '"""']) is not None
    assert first(['s = """', "a", f"40/90{text}", "b", '"""']) is not None


def test_a_string_of_one_task_ends_in_no_line_of_another() -> None:
    """A label that all lines have comes off before."""
    lines = [
        *[f"{task}: step {n}" for n in range(6) for task in (0, 1)],
        '0: s = """',
        "0: OSError: lost",
        '1: """',
    ]
    assert first(lines) is not None


WIDTH = 38
FULL = "CUDA out of memory. Tried to allocate 3.50 GiB. GPU 1 has a total capacity of 23.69 GiB of which 1.10 GiB is free."
TIME = "[05/03/24 11:22:33] "
PLACE = "worker.py:88"


def printed(messages: list[str], *, time: str = TIME) -> list[str]:
    """The lines that `rich` prints of these messages, of one level."""
    rows: list[str] = []
    for number, message in enumerate(messages):
        before = f"{time if number == 0 else ' ' * len(time)}ERROR    "
        for text in message.split("\n"):
            row = ""
            for word in text.split(" ") if not text.startswith(" ") else [text]:
                if row and len(row) + 1 + len(word) > WIDTH:
                    rows.append(f"{before}{row:<{WIDTH}} {PLACE if before.strip() else ''}".rstrip())
                    row, before = word, " " * len(before)
                else:
                    row = f"{row} {word}" if row else word
            rows.append(f"{before}{row:<{WIDTH}} {PLACE if before.strip() else ''}".rstrip())
            before = " " * len(before)
    return rows


def joined(lines: list[str]) -> list[tuple[int, str]]:
    columns = listings.RichColumns()
    found = [given for number, text in enumerate(lines, 1) for given in columns.read(number, text)]
    return [*found, *columns.rest()]


@every("time", [TIME, "", "11:22:33 "])
def test_a_message_is_one_line_again(time: str) -> None:
    lines = printed([FULL, "it stops"], time=time)
    assert len(lines) == 5
    first, second = joined(lines)
    assert first == (1, f"{time}ERROR    {FULL}")
    assert second[0] == 5
    assert second[1] == lines[4]


def test_a_traceback_in_the_column_is_read() -> None:
    message = f'a step failed\nTraceback (most recent call last):\n  File "a.py", line 3, in f\n    go()\nRuntimeError: {FULL}'
    lines = ["loading", *printed([message]), "done"]
    cause = [(f.kind, f.line) for f in reader.read(lines) if f.first_cause]
    assert cause == [("cuda_oom", 6)]


def test_a_word_longer_than_the_column_is_whole_again() -> None:
    head = f"{TIME}ERROR    {'see the page':<{WIDTH}} {PLACE}"
    margin = " " * (len(TIME) + 9)
    word = f"https://example.org/{'x' * 18}"
    assert len(word) == WIDTH
    assert joined([head, margin + word, f"{margin}/more and more"]) == [
        (1, f"{TIME}ERROR    see the page {word}/more and more")
    ]


@every("crash", ["Bus error (core dumped)", "Segmentation fault", "Killed"])
def test_a_crash_is_no_word_of_the_line_above(crash: str) -> None:
    head = f"{TIME}ERROR    {'the words that fill a column':<29} {PLACE}"
    lines = [head, " " * (len(TIME) + 9) + crash]
    assert [number for number, _ in joined(lines)] == [1, 2]


def test_a_logged_line_of_blanks_costs_little() -> None:
    began = clock.process_time()
    for _ in range(600):
        list(listings.RichColumns().read(1, "ERROR    x" + " " * 700 + "7"))
    assert clock.process_time() - began < 1


@every(
    "lines",
    [
        [f"{TIME}ERROR    {'short':<{WIDTH}} {PLACE}", f"{TIME}INFO     goes on"],
        [f"{TIME}ERROR    {'short':<{WIDTH}} {PLACE}", " " * 29 + "its own line", "x"],
        ["ERROR    in a table   a.py:3", "         and the next column is far too wide for it"],
        ["ERROR a.py:3", "      text"],
        ["  File \"a.py\", line 3", "    go()"],
    ],
)  # fmt: skip
def test_what_nobody_wrapped_stays(lines: list[str]) -> None:
    assert [text.strip() for _, text in joined(lines)] == [text.strip() for text in lines]
    assert [number for number, _ in joined(lines)] == list(range(1, len(lines) + 1))
