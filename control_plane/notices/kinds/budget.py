"""The drain budget is used up."""

from __future__ import annotations

from collections.abc import Iterator

from probing_cluster.control_plane.notices import fact, picture
from probing_cluster.control_plane.policy import budget, restart
from probing_cluster.core import records


def find(notice_picture: picture.NoticePicture) -> Iterator[fact.Fact]:
    """One fact while the budget denied a drain within its window."""
    since = notice_picture.now - notice_picture.budget_window
    denied = [
        d
        for d in notice_picture.drains
        if d.state == "denied"
        and d.at > since
        and d.why_state.startswith("budget:")
        # That of one run is no drain budget: `restart` tells of it.
        and not d.why_state.startswith(restart.RUN_BUDGET)
    ]
    if denied:
        why = denied[-1].why_state
        until = "some of them are back" if why.endswith(budget.STANDING) else "the window has passed"
        yield fact.Fact(
            fact_id="budget",
            cause="",
            at=denied[0].at,
            severity=records.Severity.HIGH,
            line=f"{why}; nothing more is drained by itself until {until}",
            nodes=tuple(sorted({d.node for d in denied})),
            partitions=notice_picture.partitions_of([d.node for d in denied]),
            stands=True,
        )


KIND = fact.Kind(
    name="budget",
    meaning="a drain was denied: as many nodes were taken within the budget's window, or are out by drains of ours, as may be",
    title="Drain budget used up",
    find=find,
    command="probing-ctl policy show",
)
