"""Messages of workflow engines about a failed step or a refused workflow: Nextflow, Snakemake, CWL, Cromwell, Airflow, Luigi.

The engine's own message gives way to the step's output, if the engine repeats it.
"""

from __future__ import annotations

import re

from probing_cluster.evidence.joblog import grammar
from probing_cluster.evidence.joblog.grammar import JobFinding, JoblogContext, LineRole, Record, make
from probing_cluster.evidence.joblog.messages import languages, process, python

FACTS = {
    "program_error": languages.FACTS["program_error"],
    "interrupted": python.FACTS["interrupted"],
    **process.ENDS,
}
_LOGGED = r"(?:ERROR\s{1,3}(?:~(?! Pipeline failed\. Please refer)|(?:nextflow|n)\.[\w.$]{1,120} -)\s{1,3})"
_FAILED = re.compile(rf"{_LOGGED}?Error executing process > ['\"‘]")
_HEAD = re.compile(
    rf"{_LOGGED}(?:@unknown|Unexpected error.{{0,80}}|Unknown error.{{0,40}}|(?:Script|Config) compilation (?:failed|error)|)$|(?:Script|Config) compilation (?:failed|error)$"
    r"|(?:ERROR\s{1,3})?(?:\[(?:job|step|workflow) [^\]]{1,200}\] )?(?:Job error:|Workflow error, try again with --debug.{0,60}|Tool definition failed validation:|Input object failed validation:|Workflow or tool uses unsupported feature:|I'm sorry, I couldn't load this CWL file.{0,80})$"
    r"|\* What went wrong:$|WorkflowError:$|Workflow input processing failed:?$"
)
"""The reason stands on the next line."""
_INTERRUPTED = re.compile(
    r"(?:g|bs)?make(?:\[\d{1,3}\])?: \*\*\* \[.{1,300}\] Interrupt$|(?:Terminating processes|Cancelling snakemake) on user request\b|Will exit after finishing currently running jobs\b(?! \(scheduler\))|.{0,90}\bnextflow\.Session - Session aborted -- Cause: SIG(?:INT|TERM)\b"
)
"""Somebody stopped the engine; what becomes of its steps is the consequence."""
_CAUSED = re.compile(r"\s{0,4}Caused by:$")
_ENDED = re.compile(
    r"\s{0,8}Process [`'‘].{1,300}['`’] terminated (?:with an error exit status \((?P<code>\d{1,3})\)|for an unknown reason)"
    r"|(?:\S{1,20}\s{1,3})?\[(?:job|step) [^\]]{1,200}\] exited with status: (?P<cwl>\d{1,3})$"
    r"|.{0,200}\bJob \S{1,200}:(?:NA|\d{1,6}):\d{1,4} exited with return code (?P<crom>-?\d{1,3}) which has not been declared"
    r"|(?:[A-Z]{4,8} - )?(?:Task|Command) exited with return code (?P<air>-?\d{1,3})\b"
    r"|(?:##\[error\]|Error: )Process completed with exit code (?P<runner>\d{1,3})\.$"
)
_OVER = re.compile(
    r"(?:\S{1,20}\s{1,3})?\[(?:job|step|workflow) [^\]]{1,200}\] completed permanentFail$|Final process status is permanentFail$"
    r"|(?:\[ERROR\] )?Exiting because a job execution failed\. Look (?:above|below) for error|(?:WorkflowError: )?At least one job did not complete successfully\b"
    r"|(?:[A-Z]{4,8} - )?(?:Marking task as FAILED|Failed to execute (?:job|task) \d{1,9} for task )"
    r"|(?:ERROR: )?\[pid \d{1,10}\] Worker Worker\(.{1,300}\) failed\b|(?:FAILURE: )?Build failed with an exception\.$"
    r"|.{0,40}\bJob (?:was|is) a zombie\b|Detected zombie job"
)
"""Reports only that a step failed."""
_REFUSED = re.compile(
    rf"{_LOGGED}(?!Error executing process)\S"
    r"|(?:AmbiguousRule|MissingInput|MissingRule|ProtectedOutput|CyclicGraph|PeriodicWildcard|IncompleteFiles|ChildIO|ImproperShadow|IncompleteCheckpoint|CreateCondaEnvironment|CreateRule|UnexpectedOutput|InputFunction|Wildcard|Workflow|Lock|Remote|NoRules|IOFile|ImproperOutput|Spawned?Job)(?:Exception|Error)(?: in (?:rule|line|file) .{1,400})?:$"
    r"|Error: Directory cannot be locked\."
    r"|Process [`'‘].{1,300}['`’] (?:declares \d{1,4} input channels? but \d|input file name collision)"
    r"|No such (?:variable|property): \w|No signature of method: \S|Missing process or function \S|Unknown (?:config attribute|method|process directive|variable) [`'‘\w]"
    r"|(?:Script|Config) compilation (?:failed|error)|Unable to parse config file|Cannot find (?:a )?(?:matching process|main script)|Not a valid (?:path value|\w{1,40} name)"
    r"|Missing workflow definition|Failed to (?:submit process to (?:grid )?scheduler|pull singularity image|create Conda environment|evaluate (?:input|inputs|job outputs|runtime)|localize)\b"
    r"|(?:Cannot|Failed to) evaluate expression|Evaluation failed for call-to-call|Could not (?:localize|evaluate|find evaluators)\b"
    r"|Broken DAG: |Dag \S{1,120} could not be found|.{0,40}dag_id could not be found"
)
"""A wrong workflow, or a step that could not be submitted; the line gives the reason."""
_ANNOUNCES = re.compile(r"[A-Z]\w{1,60}(?:Error|Exception):$|Failed to \w.{1,400}:$")
"""Names of errors and attempts that failed, without a word of why."""
_REASON = re.compile(r"\s{1,8}\S")
"""The indented text below `Caused by:`."""


def _ended(found: re.Match[str], record: Record) -> JobFinding | None:
    code = next((found[g] for g in ("code", "cwl", "crom", "air", "runner") if found[g]), None)
    kind = process.of_code(int(code)) if code else "task_exit"
    # The shell that lost its child is more precise, if the engine repeats what it wrote.
    detail = {"of_launcher": True} if kind in grammar.SIGNAL_DEATH_KINDS else None
    return make(FACTS, kind, record, role=LineRole.EXIT, detail=detail) if kind else None


def read(record: Record, context: JoblogContext) -> JobFinding | None:
    """A line of a workflow engine about a step that failed."""
    text = record.text
    if _INTERRUPTED.match(text):
        return make(FACTS, "interrupted", record, role=LineRole.END, domains=grammar.USER)
    if _FAILED.match(text):
        context.failed_line = record.line
        return make(FACTS, "program_error", record, role=LineRole.EXIT, detail={"failed_step": True})
    near = context.reasoned(record.line)
    if near and (_CAUSED.match(text) or not text.strip()):
        return None
    if found := _ENDED.match(text):
        context.failed_line = 0
        # A step that is tried again is no end: Nextflow notes it, and goes on.
        return None if "Execution is retried" in text else _ended(found, record)
    if near and _REASON.match(text):
        context.failed_line = 0
        # Why a step made no output, its own command says.
        return make(
            FACTS, "program_error", record, detail={"handled": True} if "Missing output" in text else None
        )
    if _HEAD.match(text):
        return languages.heading(record, context)
    if _OVER.match(text):
        return make(FACTS, "task_exit", record)
    if _REFUSED.match(text.strip()):
        # The program that pulled an image or ran a command prints its own error below.
        heading = {"heading": True} if _ANNOUNCES.match(text.strip()) else {}
        return make(FACTS, "program_error", record, detail=heading)
    return None


FAMILY = grammar.LogFamily(
    name="workflows",
    expects=grammar.JoblogContext.reasoned,
    triggers=(
        "ERROR ~", "ERROR nextflow.", "ERROR n.", "Error executing process", "Caused by:", "Process completed", "Process `", "Process '", "Job error:", "Workflow error",
        "failed validation:", "unsupported feature:", "this CWL file", "What went wrong", "input processing failed", "exited with status: ",
        "exited with return code", "permanentFail", "a job execution failed", "task as FAILED", "to execute job", "to execute task", "] Worker Worker(",
        "Build failed with", "zombie", "Exception in ", "Exception:", "Error:", "cannot be locked", "No such variable", "No such property", "No signature of",
        "Missing process or", "Unknown config", "Unknown method", "Unknown process", "Unknown variable", "compilation failed", "compilation error", "parse config file", "Cannot find a matching",
        "Cannot find matching", "main script", "Not a valid ", "Missing workflow", "to submit process", "pull singularity", "create Conda", "evaluate ",
        "on user request", "] Interrupt", "Session aborted -- ", "At least one job", "Will exit after fin", "localize", "call-to-call", "Broken DAG", "could not be found",
    ),
    read=read,
    facts=FACTS,
)  # fmt: skip
