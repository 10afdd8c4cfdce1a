"""The verdict over all dumps of a job."""

from __future__ import annotations

from probing_cluster.core.record import doc, record

USER, SOFTWARE, HARDWARE = "user_program", "system_software", "hardware"


@record
class FlightVerdict:
    """The verdict over all dumps of one job."""

    kind: str = doc(
        "healthy, mismatch_op, mismatch_shape, missing_rank, device_stuck, all_inside, no_dump or unknown"
    )
    ranks: tuple[int, ...] = doc("the ranks at fault, ascending; empty when it is not a rank")
    domains: tuple[str, ...] = doc("failure domains it can be, likeliest first")
    group: str | None = doc("the process group where it shows", default=None)
    group_desc: str = doc("its description", default="")
    seq: int | None = doc("the sequence number where it shows", default=None)
    op: str | None = doc("the operation where it shows", default=None)
    timeout_ms: int | None = doc("the group's timeout, milliseconds", default=None)
    missing_dumps: tuple[int, ...] = doc("ranks that should have a dump and have none", default=())
    waiting: tuple[int, ...] = doc("ranks that wait for the ones at fault", default=())
    doing: tuple[str, ...] = doc(
        "Python frames of the last operation of the first rank at fault, when recorded", default=()
    )
    meaning: str = doc("one sentence")
