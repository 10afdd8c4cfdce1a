"""`scontrol -o show node` and `scontrol -d -o show job`, the way in where JSON is not: 22.05 and plain builds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from probing_cluster.core import errors, hostlist, sanitize
from probing_cluster.slurm_plugins import slurm_times, tres
from probing_cluster.slurm_plugins.live import live_json, live_records

_REASON = re.compile(r"(.*?)\s*\[([^@\[\]]*)@([^\[\]]*)\]$", re.DOTALL)
_OWNER = re.compile(r"(.*)\((\d+)\)", re.ASCII)
_DETAIL = re.compile(r"(?:^| )Nodes=(\S+) CPU_IDs=\S* Mem=\S* GRES=(\S*)")
_ONE_EACH = (
    "JobId UserId JobState Requeue Restarts BatchFlag SubmitTime StartTime NodeList NumNodes Priority Dependency".split()  # noqa: SIM905
)
_FAMILY = ("JobId", "ArrayJobId", "ArrayTaskId", "HetJobId", "HetJobOffset")
_JOB_KEYS = (
    "EndTime ArrayJobId ArrayTaskId ArrayTaskThrottle HetJobId HetJobOffset HetJobIdSet SLUID OriginalSLUID JobName Account QOS Reason EligibleTime TimeLimit Partition "
    "ReqNodeList ExcNodeList TRES FailedNode WorkDir StdOut GroupId Command Comment AdminComment SystemComment "
    "StdErr StdIn JOB_GRES Power TresPerJob TresPerNode TresPerSocket TresPerTask TresBind TresFreq MailUser MailType "
    "CpusPerTres MemPerTres NtasksPerTRES SubmitLine Container Extra Licenses Network"
)
_NODE_KEYS = (
    "NodeName Arch CPUAlloc AvailableFeatures ActiveFeatures Gres GresUsed NodeAddr NodeHostName Version OS RealMemory "
    "State ThreadsPerCore Owner Partitions BootTime SlurmdStartTime LastBusyTime ResumeAfterTime CfgTRES AllocTRES "
    "ReservationName Comment Extra Reason NextState InstanceId InstanceType GresDrain CapWatts CurrentWatts Port"
)


def nodes(data: bytes) -> list[live_records.LiveNode]:
    """Every node of `scontrol -o show node`; raises MalformedInput."""
    lines = data.decode("utf-8", "replace").split("\n")
    return [node(line) for line in lines if line.startswith("NodeName=")]


def node(line: str) -> live_records.LiveNode:
    """One node's line. What people write (Reason, Comment, Extra) stands behind what Slurm says."""
    fields = _first_of_each(line, (*_NODE_KEYS.split(),))
    state, flags = live_records.node_state([fields.get("State", "")])
    reason, by, at = _reason(fields.get("Reason", ""))
    gres = _text(fields.get("Gres", ""))
    counted = tres.gpus(fields.get("CfgTRES", ""))
    return live_records.LiveNode(
        name=_text(fields["NodeName"]),
        state=state,
        flags=flags,
        reason=reason,
        reason_at=at,
        reason_by=by,
        boot_at=_instant(fields.get("BootTime", "")),
        gres=gres,
        # A cut listing without Gres and with no gres/gpu in its TRES says nothing about GPUs.
        n_gpus=counted
        if counted is not None
        else (live_json.configured_gpus(gres) if "Gres" in fields else None),
        features=_list(fields.get("AvailableFeatures", "")),
        active_features=_list(fields.get("ActiveFeatures", "")),
        partitions=_list(fields.get("Partitions", "")),
        reservation=_text(fields.get("ReservationName", "")),
        version=_text(fields.get("Version", "")),
        address=_text(fields.get("NodeAddr", "")),
    )


def job(text: str) -> live_records.LiveJob:
    """One job's text (see job_texts); raises MalformedInput when a key we act on stands in it twice.

    Users choose job names, paths and comments, and the text has no quoting: a second `Requeue=` is somebody's
    attempt to speak for Slurm. Of the other keys one that stands twice has no value. What array or heterogeneous job it is of
    counts before the name only: a job of neither kind has no such keys of Slurm's, and we act on the ids they hold.
    """
    head = _values(text.partition(" JobName=")[0], _FAMILY)
    values = _values(text, (*_ONE_EACH, *_JOB_KEYS.split()))
    for key in _ONE_EACH:
        if len(values.get(key, ())) != 1:
            raise errors.MalformedInput(f"{key} does not stand exactly once in {sanitize.clean(text, 80)!r}")
    fields = {key: found[0] for key, found in values.items() if len(found) == 1 or key == "JobName"}
    family = {key: tres.number(head.get(key, [""])[0]) for key in _FAMILY}
    job_id = family["JobId"]
    if job_id is None:
        raise errors.MalformedInput(f"{sanitize.clean(text, 80)!r} does not begin with a job id")
    state, flags = live_records.job_state([fields["JobState"]])
    names = tuple(hostlist.expand(fields["NodeList"]))
    limit_s = slurm_times.span_s(fields.get("TimeLimit", ""))
    return live_records.LiveJob(
        job_id=job_id,
        array_job_id=family["ArrayJobId"],
        array_task_id=family["ArrayTaskId"],
        het_job_id=family["HetJobId"],
        het_offset=family["HetJobOffset"],
        state=state,
        flags=flags,
        submit_at=_instant(fields["SubmitTime"]),
        eligible_at=_instant(fields.get("EligibleTime", "")),
        start_at=live_records.started(state, names, _instant(fields["StartTime"])),
        time_limit_s=limit_s,
        restart_count=tres.number(fields["Restarts"]) or 0,
        nodes=names,
        n_gpus=_job_gpus(fields.get("TRES", ""), fields.get("JOB_GRES")),
        gpus=_indices(names, text),
        requeue=fields["Requeue"].strip() == "1",
        batch=fields["BatchFlag"].strip() != "0",
        priority=tres.number(fields.get("Priority", "")),
        expedite="expedite" in fields["Requeue"].lower(),
        end_at=live_records.ended(state, limit_s, _instant(fields.get("EndTime", ""))),
        excluded_nodes=tuple(hostlist.expand(_text(fields.get("ExcNodeList", "")))),
        required_nodes=tuple(hostlist.expand(_text(fields.get("ReqNodeList", "")))),
        **_words(fields),
    )


def _words(fields: Mapping[str, str]) -> dict[str, Any]:
    owner = _OWNER.fullmatch(fields["UserId"].strip())
    return {
        "name": _text(fields.get("JobName", "")),
        "user": _text(owner[1]) if owner else "",
        "uid": int(owner[2]) if owner else None,
        "account": _text(fields.get("Account", "")),
        "partition": _text(fields.get("Partition", "")),
        "qos": _text(fields.get("QOS", "")),
        "reason": _text(fields.get("Reason", "")),
        "dependency": _text(fields.get("Dependency", "")),
        "command": _text(fields.get("Command", "")),
        "failed_node": _text(fields.get("FailedNode", "")) or None,
        "work_dir": _text(fields.get("WorkDir", "")) or None,
        "stdout_path": _text(fields.get("StdOut", "")) or None,
    }


def _first_of_each(line: str, keys: Sequence[str]) -> dict[str, str]:
    """Key to text up to the next known key; of a key that stands twice the first."""
    return {key: found[0] for key, found in _values(line, keys).items()}


def _values(line: str, keys: Sequence[str]) -> dict[str, list[str]]:
    """Key to each text that stands behind it, up to the next known key."""
    values: dict[str, list[str]] = {}
    pieces = re.split(rf"(?:^| +)({'|'.join(map(re.escape, keys))})=", line)
    for key, value in zip(pieces[1::2], pieces[2::2], strict=True):
        # A key we do not know ends the value of the one before it, unless that one is a person's text.
        values.setdefault(key, []).append(value if key in _FREE else _up_to_next_key(value))
    return values


_FREE = frozenset(
    {"Reason", "Comment", "Extra", "JobName", "Command", "WorkDir", "StdOut", "StdErr", "StdIn", "OS"}
)


def _up_to_next_key(value: str) -> str:
    return re.split(r" +[A-Za-z][\w:/]*=", value, maxsplit=1)[0].strip()


def _job_gpus(tres_text: str, job_gres: str | None) -> int | None:
    counted = tres.gpus(tres_text)
    if counted is not None:
        return counted
    gres = _text(job_gres or "")
    # What it holds is counted, and no gres of any kind is named.
    has_none = job_gres is not None and not gres and tres.count("cpu", tres_text)
    return 0 if has_none and "gres/" not in tres_text else tres.gpus_of_gres(gres, 1)


def _indices(names: tuple[str, ...], text: str) -> dict[str, tuple[int, ...]] | None:
    """GPUs on each node; None also where a node is described twice, since a name may hold such words."""
    found = [(node, gres) for nodes, gres in _DETAIL.findall(text) for node in hostlist.expand(nodes)]
    details = dict(found)
    if len(found) != len(details) or set(details) != set(names):
        return None
    return live_json.gpu_indices(names, [details[name] for name in names])


def _reason(text: str) -> tuple[str, str, datetime | None]:
    """The reason of `text [account@when]`, who wrote it and when."""
    match = _REASON.fullmatch(text.strip())
    if match is None:
        return _text(text), "", None
    return _text(match[1]), _text(match[2]), _instant(match[3])


def _instant(text: str) -> datetime | None:
    """A time as our commands print it: epoch seconds, or wall-clock text in UTC."""
    try:
        found = slurm_times.instants(text.strip(), UTC)
    except errors.MalformedInput:
        return None  # "Now", "Tomorr 08:00": a forecast in words, not a fact
    return found[0] if found else None


def _list(text: str) -> tuple[str, ...]:
    return tuple(filter(None, _text(text).split(",")))


def _text(text: str) -> str:
    found = sanitize.clean(text.strip())
    return "" if found in {"(null)", "N/A", "None", "none"} else found
