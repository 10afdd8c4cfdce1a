"""The records: every fact the product stores, once, with its unit.

Frozen and keyword-only. Times are UTC and a naive one is refused when the record is made.
`None` means "not known", never zero. Tables, Arrow schemas and column comments are derived
from these classes (`db/tables/`, `db/arrow.py`); a field's comment is its `doc` metadata.
"""

from probing_cluster.core.record import doc, record
from probing_cluster.core.records.base import (
    Confidence,
    Domain,
    FromRow,
    Outcome,
    Severity,
    json_fields,
    make_event_id,
    of_checked,
)
from probing_cluster.core.records.of_jobs import (
    LESS_LIKELY,
    GangVerdict,
    JobAllocation,
    JobAttempt,
    JobDependency,
    JobExclusion,
    RunAccount,
    Verdict,
)
from probing_cluster.core.records.of_nodes import (
    ADAPTER_CODES,
    AgentHeartbeat,
    CheckResult,
    DiagnosticResult,
    Drain,
    HealthEvent,
    LemonScore,
    NodePlace,
    OperatorNote,
    RepairIncident,
)
from probing_cluster.core.records.other_release import known_fields

__all__ = [
    "ADAPTER_CODES",
    "LESS_LIKELY",
    "AgentHeartbeat",
    "CheckResult",
    "Confidence",
    "DiagnosticResult",
    "Domain",
    "Drain",
    "FromRow",
    "GangVerdict",
    "HealthEvent",
    "JobAllocation",
    "JobAttempt",
    "JobDependency",
    "JobExclusion",
    "LemonScore",
    "NodePlace",
    "OperatorNote",
    "Outcome",
    "RepairIncident",
    "RunAccount",
    "Severity",
    "Verdict",
    "doc",
    "json_fields",
    "known_fields",
    "make_event_id",
    "of_checked",
    "record",
]
