"""Of which cluster a node is: one accounting may be of several, and a log names no cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from probing_cluster.core import errors, records, sanitize


class NodeClusters:
    """The clusters of the nodes that jobs ran on, and the one of all other nodes: that of most jobs, or of none."""

    def __init__(self, attempts: Iterable[records.JobAttempt], default: str) -> None:
        jobs, found = Counter[str](), dict[str, set[str]]()
        for attempt in attempts:
            jobs[attempt.cluster] += 1
            for node in attempt.nodes:
                found.setdefault(node, set()).add(attempt.cluster)
        self.most = max(jobs, key=lambda name: jobs[name], default=default)
        self._of: Mapping[str, set[str]] = found if len(jobs) > 1 else {}

    def of(self, node: str) -> str:
        """The node's cluster; raises MalformedInput where several have a node of that name."""
        clusters = sorted(self._of.get(node, {self.most}))
        if len(clusters) > 1:
            raise errors.MalformedInput(
                f"{sanitize.clean(node, 64)} is a node of the clusters {' and '.join(clusters)}; import the logs and events of each"
                " cluster with its own accounting"
            )
        return clusters[0]
