"""Checks of a training's results by itself: a loss or a gradient that cannot be right (Megatron-LM, DETR, MAE, DeepSpeed)."""

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
    ),
    read=read,
    facts=FACTS,
)
