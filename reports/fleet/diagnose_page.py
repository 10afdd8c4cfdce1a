"""A round of tests as one self-contained page: the result of every test on every node."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from probing_cluster.core import records
from probing_cluster.reports import page


def render(
    cluster: str, results: Sequence[records.DiagnosticResult], nodes: Sequence[str], *, made_at: datetime
) -> str:
    """The page."""
    template = page.environment().get_template("diagnose.html.j2")
    return template.render(cluster=cluster, results=results, nodes=nodes, made_at=made_at)
