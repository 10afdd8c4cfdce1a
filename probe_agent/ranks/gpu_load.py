"""How busy a job's GPUs are and on what power: at 100 % on few watts a kernel waits, as NCCL's do in a stuck collective."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

MAX_GPUS = 32
_FIELDS = ("uuid", "utilization_frac", "power_w", "power_limit_w")


def of_job(reading: Mapping[str, Any] | None, uuids: Collection[str] | None) -> list[dict[str, Any]]:
    """The GPUs of a job in the last NVML reading (nvml_child's answer): uuid, busy 0..1, watts and their limit.

    Empty where there is no NVML, or the Prolog could not tell which GPUs the job has.
    """
    if reading is None or not uuids:
        return []
    rows = (reading.get("snapshot") or {}).get("gpus") or ()
    mine = [row for row in rows if row.get("uuid") in uuids and row.get("lost") is None]
    return [{name: row.get(name) for name in _FIELDS} for row in mine[:MAX_GPUS]]
