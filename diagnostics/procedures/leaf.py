"""The nodes under one switch all-reduce among themselves."""

from __future__ import annotations

from probing_cluster.diagnostics import allreduce, registry

TEST = registry.Test(
    name="leaf",
    proves="An all-reduce among the nodes of one leaf switch or block gives each the right sum: what fails in the ring and not here is between switches.",
    needs="a topology in Slurm, and two nodes of one switch",
    fails="a member does not answer, or the sum is wrong",
    next_step="When several nodes of one switch fail together, look at the switch first.",
    run=allreduce.test,
    scope="group",
    version="2",
    deadline_s=60.0,
)
