"""Every operation of the API, in the order of its document."""

from __future__ import annotations

from typing import Any

from probing_cluster.core import records
from probing_cluster.web import documents
from probing_cluster.web.api import acts, console, operation, read_fleet, read_jobs, read_nodes
from probing_cluster.web.api.operation import Operation as Op

Doc = dict[str, Any]

OPERATIONS: tuple[Op, ...] = (
    Op(name="me", meaning="who is asking", path="/me", handle=read_fleet.me, answer=documents.Me),
    Op(name="health", meaning="whether what is shown is of now", path="/health", handle=read_fleet.health, answer=documents.Health),
    Op(name="search", meaning="jobs, nodes, users, GPUs and Xids by name", path="/search", handle=read_fleet.search,
       answer=list[documents.Found], query=read_fleet.Search),
    Op(name="jobs", meaning="attempts with their verdicts, latest start first", path="/jobs", handle=read_jobs.jobs,
       answer=documents.Page[documents.Job], query=read_jobs.Jobs),
    Op(name="job", meaning="the report on a job, as probing-report --json prints it", path="/jobs/{job}", handle=read_jobs.report, answer=Doc),
    Op(name="attempts", meaning="every start of a job", path="/jobs/{job}/attempts", handle=read_jobs.attempts, answer=list[records.JobAttempt]),
    Op(name="verdicts", meaning="why each attempt of a job ended", path="/jobs/{job}/verdicts", handle=read_jobs.verdicts, answer=list[records.Verdict]),
    Op(name="account", meaning="where a job's run spent its time", path="/jobs/{job}/account", handle=read_jobs.account, answer=records.RunAccount),
    Op(name="ranks", meaning="what every rank of a running job does now", path="/jobs/{job}/ranks", handle=read_jobs.ranks, answer=Doc),
    Op(name="stacks", meaning="the last stacks of a job's ranks as one tree", path="/jobs/{job}/stacks", handle=read_jobs.stacks, answer=Doc),
    Op(name="heat", meaning="a job's ranks over time as bytes, a row a rank", path="/jobs/{job}/heat", handle=read_jobs.heat, answer=bytes, query=read_jobs.Heat),
    Op(name="nodes", meaning="nodes as they are now", path="/nodes", handle=read_nodes.nodes, answer=documents.Page[documents.Node],
       query=read_nodes.Nodes, operators=True),
    Op(name="node", meaning="one node: agent, checks, GPUs, Slurm", path="/nodes/{node}", handle=read_nodes.node, answer=documents.NodeDetail, operators=True),
    Op(name="timeline", meaning="everything known about one node in a span", path="/nodes/{node}/timeline", handle=read_nodes.timeline,
       answer=list[documents.Moment], query=read_nodes.Span, operators=True),
    Op(name="events", meaning="faults and signs of faults", path="/events", handle=read_nodes.events, answer=documents.Page[documents.Event],
       query=read_nodes.Events, operators=True),
    Op(name="incidents", meaning="faults that ended several attempts", path="/incidents", handle=read_nodes.incidents,
       answer=documents.Page[documents.Incident], query=read_nodes.Span24, operators=True),
    Op(name="drains", meaning="decisions about nodes and what became of them", path="/drains", handle=read_nodes.drains,
       answer=documents.Page[documents.Decision], query=read_nodes.Drains, operators=True),
    Op(name="lemons", meaning="nodes that are likely to keep killing jobs", path="/lemons", handle=read_nodes.lemons,
       answer=documents.Page[documents.Lemon], query=operation.Paged, operators=True),
    Op(name="figures", meaning="the fleet's figures by name", path="/fleet", handle=read_fleet.figures, answer=dict[str, str], operators=True),
    Op(name="figure", meaning="one figure of the fleet", path="/fleet/{figure}", handle=read_fleet.figure, answer=Doc, query=read_fleet.Span, operators=True),
    Op(name="sql", meaning="one read-only question, with the asker's own rights", path="/sql", handle=console.question,
       answer=documents.Rows, body=documents.Question),
    Op(name="drain", meaning="drain a node in Slurm, recorded as yours", path="/nodes/{node}/drain", handle=acts.drain,
       answer=documents.Done, body=documents.Reason, operators=True, acts=True),
    Op(name="resume", meaning="lift a drain of ours", path="/nodes/{node}/resume", handle=acts.resume, answer=documents.Done,
       body=documents.Words, operators=True, acts=True),
    Op(name="ack", meaning="say that a node's fault is being dealt with", path="/nodes/{node}/ack", handle=acts.ack,
       answer=documents.Done, body=documents.Words, operators=True, acts=True),
    Op(name="set_healthy", meaning="say that a node is repaired; its agent looks again", path="/nodes/{node}/set-healthy",
       handle=acts.set_healthy, answer=documents.Done, body=documents.Words, operators=True, acts=True),
    Op(name="verdict", meaning="set a job's verdict by hand", path="/jobs/{job}/verdict", handle=acts.verdict,
       answer=documents.Done, body=documents.NewVerdict, operators=True, acts=True),
)  # fmt: skip
"""Diagnostics and repairs come with their own rooms: one line each here, and a handler beside the others."""
