"""Megatron-LM's rerun machine: a result that cannot be right."""

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
_WORDS = "On rank {rank} iteration {iteration} gave {value}: mostly the model or its data, seldom a GPU that computes wrongly."


def read(record: Record, _context: JoblogContext) -> JobFinding | None:
    """The machine's first word; what it says after each rerun adds nothing to the cause."""
    if not (found := _UNEXPECTED.search(record.text)):
        return None
    rank = record.rank if record.rank is not None else grammar.number(found["rank"], grammar.MAX_RANK)
    return make(FACTS, "nan_loss", record, rank=rank, meaning=_WORDS.format(**found.groupdict()))


FAMILY = grammar.LogFamily(
    name="megatron",
    triggers=("Unexpected result ",),
    read=read,
    facts=FACTS,
)
