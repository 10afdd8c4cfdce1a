"""All nodes under test all-reduce in one ring."""

from __future__ import annotations

from probing_cluster.diagnostics import allreduce, registry

TEST = registry.Test(
    name="ring",
    proves="An all-reduce over all the nodes at once gives each the right sum.",
    needs="two nodes or more",
    fails="a member does not answer, or the sum is wrong; whose fault it is, the pairs tell",
    next_step="Look at the pairs' results.",
    run=allreduce.test,
    scope="group",
    version="2",
    deadline_s=60.0,
)
