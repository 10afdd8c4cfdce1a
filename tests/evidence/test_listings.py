"""A listing's lines are none of the job's; what only looks like one loses nothing."""

from __future__ import annotations

import pytest

from probing_cluster.evidence import listings, sifted
from probing_cluster.evidence.joblog import reader

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
        ["@@ -3,1 +3,4 @@ def run():", *[f"+{line}" for line in TRACE], "-ValueError: none", "applied"],
        ["@@ -3 +3 @@", "-OSError: lost", "+OSError: found"],
        ['body: "\\u003cpre\\u003eTraceback:\\n', "      ValueError: a\\n\\u003c/pre\\u003e", "      OSError: b was raised"],
        ['A = """', "a", '"""', 'B = """', "b", '"""', 'C = """', *TRACE],
    ],
    ids=["python", "argument", "value", "rust", "raw rust", "go", "template", "raw c++", "diff", "short diff", "record", "cut off"],
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
        [*TRACE[:3], "OSError: lost (server: \\u003chtml\\u003eno\\u003c/html\\u003e\\n)"],
        [*TRACE[:3], "OSError: lost at position 0: .*"],
    ],
    ids=["open", "long", "not source", "once", "pool", "open template", "backquotes", "gnu", "after a diff", "no diff", "json", "a whole record", "frame", "closed", "of a job", "server", "end"],
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
