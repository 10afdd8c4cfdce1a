"""Stacks of virtual machines: what was thrown is the first cause, with the reason at the bottom of its own stack."""

from __future__ import annotations

import pytest

from probing_cluster.evidence.joblog import reader
from probing_cluster.evidence.joblog.grammar import JobFinding

END = ["", "Node.js v20.20.2"]
BLOCK = ["node:internal/process/promises:389", "      new UnhandledPromiseRejection(reason);", "      ^", ""]
ORIGIN = "This error originated either by throwing inside of an async function without a catch block, or by rejecting a promise which was not handled with .catch(). "
REJECTED = f'UnhandledPromiseRejection: {ORIGIN}The promise rejected with the reason "no data".'
FRAME, FIELDS = "    at run (/opt/demo.js:3:7)", ["  code: 'ERR_UNHANDLED_REJECTION'", "}"]
STEPS = [f"step {n} loss {9 / n:.3f}" for n in range(1, 9)]


def first(lines: list[str]) -> JobFinding | None:
    return next((f for f in reader.read(lines) if f.first_cause), None)


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ([*BLOCK, REJECTED, f"{FRAME} {{", *FIELDS], 'UnhandledPromiseRejection: The promise rejected with the reason "no data".'),
        ([*BLOCK, f"[{REJECTED}] {{", *FIELDS], '[UnhandledPromiseRejection: The promise rejected with the reason "no data".]'),
        ([f"[{REJECTED}] {{", *FIELDS], '[UnhandledPromiseRejection: The promise rejected with the reason "no data".]'),
        (["/opt/demo.js:2", "throw new BadGrid('no points')", "^", "", "BadGrid: no points", FRAME, "  step: 3", "}"], "BadGrid: no points"),
        (["/opt/my demo.js:2", "throw 'no points'", "^", "no points", "(Use `node --trace-uncaught ...` to show where the exception was thrown)"], "Uncaught: no points"),
        (["/opt/demo.ts:2", "throw null", "^", "null", "(Use `node --trace-uncaught ...` to show where the exception was thrown)"], "Uncaught: null"),
        (["/opt/demo.js:2", "const x = ;", "          ^", "", "SyntaxError: Unexpected token ';'", FRAME], "SyntaxError: Unexpected token ';'"),
        (["file:///opt/demo.mjs:1", "import {nope} from 'node:fs'", "        ^^^^", "SyntaxError: 'node:fs' does not provide 'nope'", FRAME], "SyntaxError: 'node:fs' does not provide 'nope'"),
        (["node:assert:90", "  throw new AssertionError(obj);", "  ^", "", "AssertionError [ERR_ASSERTION]: not equal:", "", "1 !== 2", "", FRAME], "AssertionError [ERR_ASSERTION]: not equal:"),
        (["node:events:502", "      throw er; // Unhandled 'error' event", "      ^", "", "Error: connect refused", FRAME, "Emitted 'error' event on Socket instance at:", FRAME], "Error: connect refused"),
        (["[eval]:1", "throw {code: 5}", "^", "{ code: 5 }"], "Uncaught: { code: 5 }"),
    ],
)  # fmt: skip
def test_what_node_did_not_catch_is_the_first_cause(block: list[str], message: str) -> None:
    """Not the line of source, nor a frame, a field or Node's own version, which stands last."""
    found = first(["loading", *block, *END])
    assert found is not None
    assert (found.kind, found.message) == ("program_error", message)
    assert "went_on" not in found.detail, "the rest of the block is Node's"
    assert first(["loading", *block, *END, "saving the log"]).detail["went_on"] == "saving the log"


@pytest.mark.parametrize(
    "lines",
    [
        ["/opt/demo.js:2", "reads", "no points"],
        ["/opt/demo.js:2", "reads", "    ^", FRAME],
        ["see /opt/demo.js:2", "^", "", "", "", "no points"],
        ["node:internal/process", "^", "no points"],
        ["/opt/demo.js:2", *STEPS, "^", "no points"],
        ["^", "no points"],
    ],
)
def test_other_text_below_a_name_of_a_file_is_none(lines: list[str]) -> None:
    """Without place, source and caret nothing was thrown."""
    assert first(["loading", *lines, "more of it"]) is None


def test_what_another_family_knows_of_the_thrown_error_stands() -> None:
    """With its own kind, and no second finding below it."""
    lines = ["node:events:502", "  throw er;", "  ^", "", "Error: listen EADDRINUSE: address already in use :::3000", "Require stack:", FRAME, *END]  # fmt: skip
    findings = list(reader.read(lines))
    assert [(f.kind, f.line) for f in findings] == [("address_in_use", 5)]


HEAD = 'Exception in thread "main" java.lang.RuntimeException: the job failed'
AT, MORE = "\tat demo.Main.run(Main.java:7)", "\t... 3 more"
WRAPPED, REASON = "Caused by: java.lang.RuntimeException: wrapped", "Caused by: java.io.IOException: no input"


@pytest.mark.parametrize(
    ("stack", "reason"),
    [
        ([HEAD, AT, WRAPPED, AT, MORE, REASON, AT, MORE], "java.io.IOException: no input"),
        ([HEAD, AT, "", "Driver stacktrace:", AT, REASON, AT], "java.io.IOException: no input"),
        ([HEAD, "more of its words", AT, REASON, "more of the reason's", AT, MORE], "java.io.IOException: no input"),
        ([HEAD, AT, "\tSuppressed: java.io.IOException: closed", "\t\tat demo.A.f(A.java:1)", "\tCaused by: java.lang.Error: x", "\t\t... 1 more", REASON, AT], "java.io.IOException: no input"),
        ([f"[error] {HEAD}", f"[error] {AT}", f"[error] {REASON}", f"[error] {MORE}"], "java.io.IOException: no input"),
        (["org.apache.flink.client.program.ProgramInvocationException: The main method caused an error", AT, REASON, MORE], "java.io.IOException: no input"),
        (["2024-05-01 10:00:00,123 WARN mapred.LocalJobRunner: job_local123_0001", "java.lang.Exception: java.lang.RuntimeException: bad record", AT, REASON, MORE], "java.io.IOException: no input"),
        (["Traceback (most recent call last):", '  File "a.py", line 3, in f', "py4j.protocol.Py4JJavaError: An error occurred while calling o12.collect.", ": org.apache.spark.SparkException: Job aborted", AT, REASON, MORE], "java.io.IOException: no input"),
        ([HEAD, AT, "Caused by: kotlin.UninitializedPropertyAccessException: lateinit property lr has not been initialized", AT], "kotlin.UninitializedPropertyAccessException: lateinit property lr has not been initialized"),
        (["/opt/demo.js:1", "throw x", "^", "", "Error: outer", FRAME, f"{FRAME} {{", "  code: 'X',", "  [cause]: Error: middle", f"      {FRAME} {{", "    [cause]: TypeError: inner", f"        {FRAME}", "  }", "}"], "TypeError: inner"),
        (["/opt/demo.js:1", "throw x", "^", "", "[AggregateError: All promises were rejected] {", "  [errors]: [", "    Error: a", f"      {FRAME},", "    Error: b", f"      {FRAME}", "  ]", "}"], "Error: a"),
    ],
)  # fmt: skip
def test_the_reason_at_the_bottom_of_a_stack_goes_with_its_head(stack: list[str], reason: str) -> None:
    """Of Java, Spark, Hadoop, Flink, Scala, Kotlin and Node.js."""
    found = first(["loading", *stack])
    assert found is not None
    assert found.detail["caused_by"] == reason


@pytest.mark.parametrize(
    "lines",
    [
        [HEAD, AT],
        [HEAD, AT, "the program goes on", REASON, AT],
        ["java.lang.IllegalStateException: handled", AT, REASON, AT, "going on", *STEPS, HEAD, AT],
        [
            HEAD,
            AT,
            *(f"closing the pool {n}" for n in range(3)),
            "java.lang.IllegalStateException: late",
            AT,
            REASON,
        ],
    ],
)
def test_a_reason_of_another_stack_is_none(lines: list[str]) -> None:
    """Of one that was handled, or of one that came later."""
    found = first(["loading", *lines])
    assert found is not None
    assert found.message == HEAD
    assert "caused_by" not in found.detail


@pytest.mark.parametrize(
    "between",
    [["starting metrics reporter", "WARN could not start reporter"], ["WARN could not start reporter"]],
)
@pytest.mark.parametrize("own", ["ERROR: cannot read parameters from run.cfg", "Error: no parameters"])
def test_a_programs_own_error_above_a_stack_has_no_part_in_its_reason(own: str, between: list[str]) -> None:
    """Only the message at the head of the stack has."""
    found = first(["loading", own, *between, "java.lang.IllegalStateException: reporter", AT, REASON, AT])
    assert found is not None
    assert (found.message, found.detail.get("caused_by")) == (own, None)


def test_a_stack_gives_its_reason_to_no_exception_of_the_stack_before() -> None:
    found = first([HEAD, AT, "BadGrid: no points", AT, REASON, AT])
    assert found is not None
    assert (found.message, found.detail.get("caused_by")) == (HEAD, None)


def test_the_bottom_of_a_stack_is_no_line_that_the_program_printed_later() -> None:
    found = first([HEAD, AT, WRAPPED, AT, MORE, REASON, AT, MORE])
    assert found is not None
    assert "went_on" not in found.detail
