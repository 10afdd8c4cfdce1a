"""Horovod's stall inspector: a collective that only some ranks have joined for a minute."""

from __future__ import annotations

import re

from probing_cluster.evidence.joblog import grammar, mention
from probing_cluster.evidence.joblog.grammar import JobFinding, JoblogContext, LineRole, Record, make
from probing_cluster.evidence.joblog.messages.communication import torch_nccl

FACTS = {"watchdog_timeout": torch_nccl.FACTS["watchdog_timeout"]}
_STALLED = re.compile(
    r"\bOne or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of ranks for more than (?P<s>\d{1,6}) seconds"
)
_MEANING = "Some ranks did not join a collective while the others waited for them (Horovod's stall inspector); this line does not give the reason."


def read(record: Record, _context: JoblogContext) -> JobFinding | None:
    """A warning: slow ranks catch up most of the time, so it counts only where the output ends with it."""
    found = _STALLED.search(record.text)
    if found is None or mention.is_speech(record.text):
        return None
    return make(
        FACTS,
        "watchdog_timeout",
        record,
        role=LineRole.OBSERVATION,
        meaning=_MEANING,
        timeout_ms=int(found["s"]) * 1000,
        detail={"stalled": True},
    )


FAMILY = grammar.LogFamily(
    name="horovod", triggers=("broadcasted by subset of ranks",), read=read, facts=FACTS
)
