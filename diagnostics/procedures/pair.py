"""Two nodes all-reduce with each other: their results show bad nodes and bad links."""

from __future__ import annotations

from probing_cluster.diagnostics import allreduce, registry

TEST = registry.Test(
    name="pair",
    proves="An all-reduce between two nodes gives both the right sum, as quickly as other pairs do.",
    needs="a second node: another one under test, or an idle one as reference",
    fails="the other does not answer, the link breaks, or the sum is wrong",
    next_step="See who is named: a bad node fails with every partner, a bad link only with one. Then cable, transceiver, switch port.",
    run=allreduce.test,
    scope="pair",
    judged="network",
    version="2",
    deadline_s=60.0,
)
