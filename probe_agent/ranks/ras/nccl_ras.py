"""What NCCL RAS says of a job that has stopped: asked once, on one node, since RAS gathers from every process itself."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from probing_cluster.core import processes, sanitize
from probing_cluster.evidence import nccl_ras
from probing_cluster.probe_agent import children
from probing_cluster.probe_agent.jobs import jobs
from probing_cluster.probe_agent.ranks.ras import ras_child

_CHILD = (sys.executable, "-I", "-m", "probing_cluster.probe_agent.ranks.ras.ras_child")
_DEADLINE_S = ras_child.DEADLINE_S + 5.0


async def ask(
    started: children.Children, job: jobs.NodeJob, port: int = ras_child.PORT
) -> nccl_ras.RasStatus | str | None:
    """The status that NCCL RAS reports of the job; a text with the reason where it gives none; None where no process of
    the job's user listens on the port (no NCCL job)."""
    if job.uid is None:
        return None
    request = {"uid": job.uid, "gid": job.gid if job.gid is not None else job.uid, "port": port}
    try:
        done = await started.run(
            f"ras {job.job_id}", _CHILD, deadline_s=_DEADLINE_S, stdin=json.dumps(request).encode()
        )
        reply: Mapping[str, Any] = children.answer_of(done.stdout)
    except (processes.ChildFailed, ValueError) as exc:
        return str(exc)
    if "text" not in reply:
        return sanitize.clean(str(reply["refused"]), 200) if reply.get("refused") else None
    return nccl_ras.parse(str(reply["text"])) or "its answer is no status"


def words(status: nccl_ras.RasStatus) -> str:
    """One sentence for a person."""
    if not status.problems:
        return "NCCL RAS sees nothing wrong: every process answers"
    return "NCCL RAS: " + "; ".join(_problem(p) for p in status.problems[:6])


def _problem(problem: nccl_ras.RasProblem) -> str:
    where = f" in communicator {problem.communicator}" if problem.communicator else ""
    members = ""
    if problem.processes:
        named = ", ".join(f"{pid} on {node}" for node, pid in problem.processes[:4])
        members = f" (process {named}{' …' if len(problem.processes) > 4 else ''})"
    elif problem.ranks:
        members = f" (ranks {', '.join(map(str, problem.ranks[:8]))}{' …' if len(problem.ranks) > 8 else ''})"
    text = problem.words[:1].lower() + problem.words[1:] if problem.words else problem.kind
    return sanitize.clean(f"{text}{where}{members}", 300)


def detail(status: nccl_ras.RasStatus) -> dict[str, Any]:
    """The status as an event's detail."""
    return {
        "nccl_version": sanitize.clean(status.version, 40),
        "problems": [
            {
                "kind": p.kind,
                "communicator": p.communicator,
                "ranks": list(p.ranks),
                "processes": [{"node": sanitize.clean(node, 64), "pid": pid} for node, pid in p.processes],
                "words": sanitize.clean(p.words, 200),
            }
            for p in status.problems
        ],
    }
