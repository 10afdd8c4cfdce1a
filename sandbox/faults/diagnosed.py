"""Faults that no counter shows and only a test finds."""

from __future__ import annotations

import json

from probing_cluster.core import errors
from probing_cluster.sandbox import diagnosed
from probing_cluster.sandbox.faults import registry


@registry.fault("hidden-fault")
def hidden_fault(
    target: registry.Target,
    what: str,
    *,
    value: float = 1.0,
    cured_by: str = "heal",
) -> None:
    """Tests of the node find it: wrong_product, slow_compute (times `value`), slow_link_s (`value` a send) or dead_links; `--cured-by` reset, heal or never."""
    known = {"wrong_product", "slow_compute", "slow_link_s", "dead_links"}
    if what not in known:
        raise errors.UsageError(f"no such fault of a test {what!r}; there are {', '.join(sorted(known))}")
    path = target.home / diagnosed.FILE
    faults = diagnosed.read(target.home) | {what: value, "cured_by": cured_by}
    path.write_text(json.dumps(faults), encoding="utf-8")
