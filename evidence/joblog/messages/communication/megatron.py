"""Checks of a training's results by itself: a loss or a gradient that cannot be right (Megatron-LM, DETR, MAE, DeepSpeed, and exceptions of others)."""

from __future__ import annotations

import re

from probing_cluster.evidence.joblog import grammar
from probing_cluster.evidence.joblog.grammar import JobFinding, JoblogContext, LineRole, Record, fact, make

FACTS = {
    "nan_loss": fact(
        LineRole.ROOT,
        ("user_program", "hardware"),
        "The loss or the gradients became NaN or jumped: mostly the model or its data, seldom a GPU that computes wrongly.",
    ),
}
_UNEXPECTED = re.compile(
    r"Unexpected result (?P<value>\S{1,40}) on rank (?P<rank>\d{1,8}) at iteration #(?P<iteration>\d{1,12})"
)
_FOUND = re.compile(
    r"\bRank (?P<rank>\d{1,8}): found (?P<value>NaN|Inf\w{0,5}) in local (?:forward loss|grad norm)"
)
"""Its older assertion; a newer one raises the same words by way of the rerun machine."""
_STOPPED = re.compile(
    r"(?:\S{1,40} )?[Ll]oss (?:is|was|became|has become) (?P<value>[Nn]a[Nn]|NAN|[Ii]nf(?:inite|inity)?)\b.{0,40}\b(?:stop|abort|terminat|exit|quit)\w{0,5}\b(?!.{0,40}\b(?:skip|ignor|continu))"
)
"""What the training loops of DETR, MAE and their children print before they exit."""
_COMPUTED = (
    r"\b(?:[Ll]oss(?:es)?|[wd]?grads?|[Gg]radients?|[Ww]eights|[Pp]aram(?:eter)?s?|logits|activations?)\b"
)
"""What the GPU computes. NaN elsewhere, as in a column of a table, is the data's."""
_RAISED = re.compile(
    rf"\w{{0,60}}(?:Error|Exception): (?:.{{0,80}}{_COMPUTED}.{{0,60}}\b(?:contains? (?:an? )?|became |are |is |returned )(?:NaNs?|[Nn]an|[Ii]nf)\b|.{{0,80}}\b(?:[Dd]etected|[Ff]ound) (?:NaNs?|nan|[Ii]nf)(?: (?:or|and/or) [Ii]nf)?(?: values)? in .{{0,60}}?{_COMPUTED}"
    rf"|(?:.{{0,60}}\b)?(?:NaNs?|inf/nan) detected\b(?! in (?!.{{0,60}}{_COMPUTED}))|.{{0,80}}\bFunction '\w{{1,80}}' returned nan values\b|.{{0,80}} returned NaN gradients\b|Minimum loss scale reached\b)"
)
"""The exceptions with which Megatron-FSDP, fairseq, Lightning, Composer, vLLM and autograd's anomaly mode refuse such values."""
_VERBS = (
    "tain",
    "tains",
    "tain a",
    "tain an",
    "tains a",
    "tains an",
    "became",
    "are",
    "is",
    "returned",
    "etected",
    "ound",
)
"""What stands before the value in them."""
_RAISED_WORDS = "The program found NaN or infinite values and stopped: mostly the model or its data, seldom a GPU that computes wrongly."
_SCALE = re.compile(r"OVERFLOW! .{0,80}Attempted loss scale: 0(?:\.0)?, reducing to 0(?:\.0)?$")
"""DeepSpeed's loss scaler at zero: doubled it stays zero, so that no later step can count."""
_SCALE_WORDS = "The loss scale fell to zero and every step overflows: mostly the model or its data, seldom a GPU that computes wrongly."
_STOPPED_WORDS = "The loss became {value} and the program stopped: mostly the model or its data, seldom a GPU that computes wrongly."
_FOUND_WORDS = "Rank {rank} found {value} in its loss or gradients: mostly the model or its data, seldom a GPU that computes wrongly."
_WORDS = "On rank {rank} iteration {iteration} gave {value}: mostly the model or its data, seldom a GPU that computes wrongly."


def read(record: Record, _context: JoblogContext) -> JobFinding | None:
    """The rerun machine's first report; its reports after each rerun add nothing to the cause."""
    for pattern, words in ((_UNEXPECTED, _WORDS), (_FOUND, _FOUND_WORDS)):
        if found := pattern.search(record.text):
            rank = record.rank if record.rank is not None else grammar.number(found["rank"], grammar.MAX_RANK)
            return make(FACTS, "nan_loss", record, rank=rank, meaning=words.format(**found.groupdict()))
    if _RAISED.search(record.text):
        return make(FACTS, "nan_loss", record, meaning=_RAISED_WORDS)
    if _SCALE.search(record.text):
        return make(FACTS, "nan_loss", record, meaning=_SCALE_WORDS)
    if found := _STOPPED.match(record.text.lstrip()):
        return make(FACTS, "nan_loss", record, meaning=_STOPPED_WORDS.format(**found.groupdict()))
    return None


FAMILY = grammar.LogFamily(
    name="megatron",
    triggers=(
        "Unexpected result ",
        " in local ",
        "oss is ",
        "oss was ",
        "oss became ",
        "oss has become ",
        "Attempted loss scale",
        *(f"{verb} {value}" for verb in _VERBS for value in ("NaN", "nan", "Nan", "Inf", "inf")),
        "NaN detected",
        "NaNs detected",
        "inf/nan detected",
        "loss scale reached",
    ),
    read=read,
    facts=FACTS,
)
