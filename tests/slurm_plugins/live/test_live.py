"""Jobs and nodes right now: the same record from every release's JSON, from text and from pyslurm."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import re
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probing_cluster.core import errors, settings
from probing_cluster.slurm_plugins import commands
from probing_cluster.slurm_plugins.live import (
    job_texts,
    live,
    live_json,
    live_pyslurm,
    live_records,
    live_text,
)


def at(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


JOB_TEXT = (
    "JobId=7 ArrayJobId=5 ArrayTaskId=0 JobName=we ird UserId=alice(1000) GroupId=lab(1) MCS_label=N/A Priority=1 Nice=0 "
    "Account=lab QOS=normal JobState=RUNNING Reason=None Dependency=afterok:12(failed) Requeue=1 Restarts=2 BatchFlag=1 Reboot=0 "
    "ExitCode=0:0 RunTime=00:00:04 TimeLimit=1-00:00:00 TimeMin=N/A SubmitTime=100 EligibleTime=101 AccrueTime=101 "
    "StartTime=110 EndTime=86510 Deadline=N/A SuspendTime=None SecsPreSuspend=0 LastSchedEval=110 Partition=gpu "
    "AllocNode:Sid=l:1 ReqNodeList=n1 ExcNodeList=n[8-9] NodeList=n[1-2] BatchHost=n1 NumNodes=2 NumCPUs=2 NumTasks=2 "
    "CPUs/Task=1 ReqB:S:C:T=0:0:*:* TRES=cpu=2,node=2,billing=2,gres/gpu=4 Socks/Node=* NtasksPerN:B:S:C=0:0:*:* "
    "CoreSpec=* JOB_GRES=gpu:h100:4   Nodes=n[1-2] CPU_IDs=0 Mem=0 GRES=gpu:h100:2(IDX:0,3) MinCPUsNode=1 "
    "MinMemoryNode=0 Features=(null) OverSubscribe=OK Licenses=(null) Network=(null) Command=/a b/run.sh x=1 "
    "WorkDir=/home/a b StdErr=/e StdIn=/dev/null StdOut=/home/a b/out Power= TresPerNode=gres:gpu:2"
)
JOB = live_records.LiveJob(
    job_id=7,
    array_job_id=5,
    array_task_id=0,
    name="we ird",
    user="alice",
    uid=1000,
    account="lab",
    partition="gpu",
    qos="normal",
    state="RUNNING",
    submit_at=at(100),
    eligible_at=at(101),
    start_at=at(110),
    time_limit_s=86400,
    restart_count=2,
    nodes=("n1", "n2"),
    n_gpus=4,
    gpus={"n1": (0, 3), "n2": (0, 3)},
    requeue=True,
    batch=True,
    excluded_nodes=("n8", "n9"),
    required_nodes=("n1",),
    work_dir="/home/a b",
    stdout_path="/home/a b/out",
    priority=1,
    dependency="afterok:12(failed)",
    command="/a b/run.sh x=1",
    end_at=at(86510),
)


def some(number: int | None) -> dict[str, Any]:
    return {"set": number is not None, "infinite": False, "number": number or 0}


JOB_PLAIN: dict[str, Any] = {
    "job_id": 7,
    "array_job_id": 5,
    "array_task_id": 0,
    "name": "we ird",
    "user_name": "alice",
    "user_id": 1000,
    "account": "lab",
    "partition": "gpu",
    "qos": "normal",
    "job_state": "RUNNING",
    "state_reason": "None",
    "submit_time": 100,
    "eligible_time": 101,
    "start_time": 110,
    "time_limit": 1440,
    "restart_cnt": 2,
    "nodes": "n[1-2]",
    "tres_alloc_str": "cpu=2,node=2,billing=2,gres/gpu=4",
    "gres_detail": ["gpu:h100:2(IDX:0,3)", "gpu:h100:2(IDX:0,3)"],
    "requeue": True,
    "batch_flag": True,
    "excluded_nodes": "n[8-9]",
    "required_nodes": "n1",
    "current_working_directory": "/home/a b",
    "standard_output": "/home/a b/out",
    "het_job_id": 0,
    "priority": 1,
    "dependency": "afterok:12(failed)",
    "state_description": None,
    "command": "/a b/run.sh x=1",
    "end_time": 86510,
}
_SET = (
    "array_job_id",
    "array_task_id",
    "submit_time",
    "eligible_time",
    "start_time",
    "time_limit",
    "het_job_id",
    "priority",
    "end_time",
)
JOB_SET = {
    **{key: some(value) if key in _SET else value for key, value in JOB_PLAIN.items()},
    "job_state": ["RUNNING"],
    "standard_output": "slurm-%j.out",
    "stdout_expanded": "/home/a b/out",
}


class PyslurmTwin:
    """pyslurm at its import edge, with the dictionaries of a recorded session."""

    class RPCError(Exception):
        """As the library's."""

    class Thing:
        def __init__(self, values: dict[str, Any], layout: dict[str, Any] | None = None) -> None:
            self.values, self.layout = values, layout or {}

        def to_dict(self) -> dict[str, Any]:
            return self.values

        def get_resource_layout_per_node(self) -> dict[str, Any]:
            return self.layout

    job = Thing(
        {
            "id": 7,
            "array_id": 5,
            "array_task_id": None,  # how it writes task 0
            "array_tasks_waiting": None,
            "name": "we ird",
            "user_name": "alice",
            "user_id": 1000,
            "account": "lab",
            "partition": "gpu",
            "qos": "normal",
            "state": "RUNNING",
            "state_reason": "None",
            "submit_time": 100,
            "eligible_time": 101,
            "start_time": 110,
            "time_limit": 1440,
            "requeue_count": 2,
            "allocated_nodes": "n[1-2]",
            "is_requeueable": True,
            "is_batch_job": True,
            "excluded_nodes": "n[8-9]",
            "required_nodes": "n1",
            "working_directory": "/home/a b",
            "standard_output": "/home/a b/out",
            "priority": 1,
            "dependencies": {"after": [], "afterok": ["12(failed)"], "singleton": False, "satisfy": "all"},
            "command": "/a b/run.sh x=1",
            "end_time": 86510,
        },
        {n: {"cpu_ids": "0", "gres": {"gpu:h100": {"count": "2", "indexes": "0,3"}}} for n in ("n1", "n2")},
    )
    node = Thing(
        {
            "name": "n1",
            "state": "IDLE+DRAIN",
            "reason": "probing: xid 79",
            "reason_user": "root",
            "reason_time": 500,
            "boot_time": 300,
            "slurmd_start_time": 400,
            "configured_gres": {"gpu:h100": 8},
            "available_features": ["a", "b"],
            "active_features": ["a"],
            "partitions": ["gpu", "low"],
            "slurm_version": "22.05.8",
        }
    )

    refusals: ClassVar = {8: "Invalid job id specified", 10: "Access/permission denied"}

    class Jobs:
        @staticmethod
        def load() -> dict[int, Any]:
            return {7: PyslurmTwin.job}

    class Job:
        @staticmethod
        def load(job_id: int) -> Any:
            if job_id == 7:
                return PyslurmTwin.job
            if job_id == 11:
                raise AttributeError("no field restart_cnt")
            raise PyslurmTwin.RPCError(
                PyslurmTwin.refusals.get(job_id, "Unable to contact slurm controller (connect failure)")
            )

    class Nodes:
        @staticmethod
        def load() -> dict[str, Any]:
            return {"n1": PyslurmTwin.node}

    class Node:
        @staticmethod
        def load(name: str) -> Any:
            if name == "n1":
                return PyslurmTwin.node
            raise PyslurmTwin.RPCError(f"Node '{name}' does not exist")


NODE_TEXT = (
    "NodeName=n1 Arch=x86_64 CoresPerSocket=1  CPUAlloc=0 CPUEfctv=64 CPUTot=64 CPULoad=0.94 AvailableFeatures=a,b "
    "ActiveFeatures=a Gres=gpu:h100:8 NodeHostName=vm Port=28634 Version=22.05.8 OS=Linux 6.1 #1 SMP "
    "RealMemory=512000 AllocMem=0 FreeMem=21350 Sockets=64 Boards=1 State=IDLE+DRAIN ThreadsPerCore=1 TmpDisk=0 Weight=1 "
    "Owner=N/A MCS_label=N/A Partitions=gpu,low  BootTime=300 SlurmdStartTime=400 LastBusyTime=400 "
    "CfgTRES=cpu=64,mem=500G,billing=64,gres/gpu=8 AllocTRES= CapWatts=n/a ExtSensorsJoules=n/s "
    "Reason=probing: xid 79 [root@500]"
)
NODE = live_records.LiveNode(
    name="n1",
    state="IDLE",
    flags=frozenset({"DRAIN"}),
    reason="probing: xid 79",
    reason_at=at(500),
    reason_by="root",
    boot_at=at(300),
    gres="gpu:h100:8",
    n_gpus=8,
    features=("a", "b"),
    active_features=("a",),
    partitions=("gpu", "low"),
    version="22.05.8",
)
NODE_21: dict[str, Any] = {
    "name": "n1",
    "state": "idle",
    "state_flags": ["DRAIN"],
    "reason": "probing: xid 79",
    "reason_set_by_user": "root",
    "reason_changed_at": 500,
    "boot_time": 300,
    "slurmd_start_time": 400,
    "gres": "gpu:h100:8",
    "tres": "cpu=64,gres/gpu=8",
    "features": "a,b",
    "active_features": "a",
    "partitions": ["gpu", "low"],
    "slurmd_version": "22.05.8",
}
NODE_NEW = {
    **NODE_21,
    "state": ["IDLE", "DRAIN"],
    "reason_changed_at": some(500),
    "boot_time": some(300),
    "slurmd_start_time": some(400),
    "features": ["a", "b"],
    "active_features": ["a"],
    "version": "22.05.8",
}
del NODE_NEW["state_flags"], NODE_NEW["slurmd_version"]


def test_one_job_from_four_ways_in() -> None:
    """Text, plain JSON, {set, number} JSON and pyslurm tell the same job."""
    assert live_text.job(JOB_TEXT) == JOB
    assert live_json.job(JOB_PLAIN) == JOB
    assert live_json.job(JOB_SET) == JOB
    assert live_pyslurm.PyslurmLive(PyslurmTwin).jobs() == [JOB]


def test_one_node_from_four_ways_in() -> None:
    """Text, 21.08's JSON, later JSON and pyslurm tell the same node."""
    assert live_text.node(NODE_TEXT) == NODE
    assert live_json.node(NODE_21) == NODE
    assert live_json.node(NODE_NEW) == NODE
    assert live_pyslurm.PyslurmLive(PyslurmTwin).nodes() == [NODE]


def test_pyslurm_nodes_in_part_use_are_mixed() -> None:
    """A node with busy and idle CPUs is MIXED, as the commands say, whatever this pyslurm calls it."""
    for state in ("ALLOCATED", "IDLE", "MIXED"):
        values = {**PyslurmTwin.node.values, "state": f"{state}+DRAIN", "allocated_cpus": 1, "idle_cpus": 63}
        assert live_pyslurm.node(values).state == "MIXED"
    assert (
        live_pyslurm.node({**PyslurmTwin.node.values, "allocated_cpus": 64, "idle_cpus": 0}).state == "IDLE"
    )


def test_a_pending_jobs_start_is_a_forecast() -> None:
    """No start time before the job has started, in JSON and in text."""
    assert live_json.job({**JOB_PLAIN, "job_state": "PENDING", "nodes": ""}).start_at is None
    assert live_text.job(JOB_TEXT.replace("JobState=RUNNING", "JobState=PENDING")).start_at is None


@pytest.mark.parametrize("limit", [None, {"set": False, "infinite": True, "number": 0}])
def test_a_running_job_without_a_limit_has_no_end(limit: object) -> None:
    """Slurm's JSON says a year after the start once it runs, its text `Unknown`; after the end both say when it was."""
    unlimited = {**JOB_PLAIN, "time_limit": limit, "end_time": 110 + 365 * 86400}
    text = JOB_TEXT.replace("TimeLimit=1-00:00:00", "TimeLimit=UNLIMITED")
    running = live_json.job(unlimited)
    assert (running.end_at, running.time_limit_s) == (None, None)
    assert live_text.job(re.sub(r" EndTime=\S+", " EndTime=Unknown", text)) == running
    assert live_json.job({**unlimited, "job_state": "FAILED", "end_time": 200}).end_at == at(200)
    twin = {**PyslurmTwin.job.values, "time_limit": None, "end_time": 110 + 365 * 86400}
    assert live_pyslurm.job(twin, {}).end_at is None


@pytest.mark.parametrize(
    ("words", "base", "flags"),
    [
        (["IDLE+DRAIN"], "IDLE", {"DRAIN"}),
        (["down*"], "DOWN", {"NOT_RESPONDING"}),
        (["MIXED+DRAIN+COMPLETING*"], "MIXED", {"DRAIN", "COMPLETING", "NOT_RESPONDING"}),
        (["draining"], "ALLOCATED", {"DRAIN"}),
        (["drained$"], "IDLE", {"DRAIN", "MAINTENANCE"}),
        (["IDLE~"], "IDLE", {"POWERED_DOWN"}),
        (["IDLE+DYNAMIC_NORM"], "IDLE", {"DYNAMIC_NORM"}),
        (["IDLE", "PLANNED"], "IDLE", {"PLANNED"}),
        (["DRAIN", "IDLE"], "IDLE", {"DRAIN"}),
        ([], "UNKNOWN", set()),
    ],
)
def test_node_states_in_every_writing(words: list[str], base: str, flags: set[str]) -> None:
    """Base and flags are told apart, however they are joined or marked."""
    assert live_records.node_state(words) == (base, frozenset(flags))


@pytest.mark.parametrize(
    "text",
    [
        JOB_TEXT.replace("we ird", "x Requeue=1 Restarts=0"),
        JOB_TEXT.replace("/a b/run.sh", "/tmp/JobState=FAILED JobState=FAILED"),
        JOB_TEXT.replace("WorkDir=/home/a b", "WorkDir=/tmp/x StartTime=1"),
        JOB_TEXT.replace("we ird", "x NodeList=n9"),
        JOB_TEXT.replace("JobState=RUNNING ", ""),
    ],
)
def test_nobody_speaks_for_slurm_in_a_job_name(text: str) -> None:
    """A key we act on that stands twice, or not at all, costs the job its place, not the truth."""
    with pytest.raises(errors.MalformedInput, match="exactly once"):
        live_text.job(text)
    assert text_way({8: text.replace("JobId=7", "JobId=8"), 7: JOB_TEXT}).jobs() == [JOB]


@pytest.mark.parametrize("name", ["we\nird", "x\nJobId=1 z", "x\nJobId=999999 y", "x\n\nUserId=root(0)"])
def test_line_breaks_in_a_job_name(name: str) -> None:
    """A job name of several lines is one job, also when a line looks like that of a job which Slurm does not have."""
    (job,) = text_way({7: JOB_TEXT.replace("we ird", name)}).jobs()
    assert job == dataclasses.replace(JOB, name=name.replace("\n", " "))


def test_a_name_makes_no_job_a_part_of_another() -> None:
    """We requeue and hold by these ids."""
    plain = JOB_TEXT.replace("ArrayJobId=5 ArrayTaskId=0 ", "")
    forged = plain.replace("we ird", "x HetJobId=3 HetJobOffset=0 ArrayJobId=3 ArrayTaskId=1 y")
    job = live_text.job(forged)
    assert (job.het_job_id, job.het_offset, job.name_for_slurm) == (None, None, "7")


def test_a_name_says_nothing_that_slurm_says_elsewhere() -> None:
    """A key that stands twice has no value; a count that no machine has is none."""
    text = JOB_TEXT.replace(
        "we ird", "x TRES=gres/gpu=64 Partition=vip Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:7)"
    )
    job = live_text.job(text)
    assert (job.partition, job.n_gpus, job.gpus, job.name) == ("", 4, None, "x")
    huge = JOB_TEXT.replace("we ird", f"x JOB_GRES=gpu:{'9' * 400}").replace("TRES=cpu=2,node=2,billing=2,gres/gpu=4 ", "").replace("JOB_GRES=gpu:h100:4 ", "")  # fmt: skip
    assert live_text.job(huge).n_gpus is None


class Release:
    """Slurm's commands as one release has them."""

    def __init__(self, version: str, answers: dict[tuple[str, ...], bytes | str]) -> None:
        self.version = version
        self.answers = answers
        self.calls: list[tuple[str, ...]] = []

    def __call__(self, program: str, *arguments: str, environment: Mapping[str, str] | None = None) -> bytes:
        call = (program, *arguments)
        self.calls.append(call)
        if call == ("scontrol", "--version"):
            return self.version.encode()
        answer = self.answers.get(call, f"unexpected {call}")
        if isinstance(answer, str):
            raise errors.SlurmUnavailable(answer)
        return answer


def test_22_05_reads_nodes_from_sinfo_and_single_things_from_text() -> None:
    """Before 23.02 scontrol has no JSON: lists come from squeue and sinfo, one node or job from scontrol's text."""
    slurm = Release(
        "slurm-wlm 22.05.8",
        {
            ("squeue", "-a", "--json"): json.dumps({"jobs": [JOB_PLAIN]}).encode(),
            ("sinfo", "-a", "--json"): json.dumps({"nodes": [NODE_21]}).encode(),
            ("scontrol", "-a", "-o", "show", "node", "n1"): NODE_TEXT.encode(),
            ("scontrol", "-a", "-o", "show", "node", "n9"): b"Node n9 not found\n",
            ("scontrol", "-a", "-d", "-o", "show", "job", "7"): JOB_TEXT.encode(),
            (
                "scontrol",
                "-a",
                "-d",
                "-o",
                "show",
                "job",
                "8",
            ): "slurm_load_jobs error: Invalid job id specified",
        },
    )
    way = live.CommandLive(slurm)
    assert (way.jobs(), way.nodes(), way.node("n1"), way.job(7)) == ([JOB], [NODE], NODE, JOB)
    assert (way.node("n9"), way.job(8)) == (None, None)
    assert slurm.calls.count(("scontrol", "--version")) == 1


def test_23_02_and_later_read_nodes_from_scontrol() -> None:
    """From 23.02 on `sinfo --json` tells partitions, so nodes are asked of scontrol."""
    slurm = Release(
        "slurm 24.11.5",
        {
            ("squeue", "-a", "--json"): json.dumps({"jobs": [JOB_SET]}).encode(),
            ("scontrol", "show", "nodes", "--json"): json.dumps({"nodes": [NODE_NEW]}).encode(),
            ("scontrol", "-a", "show", "job", "7", "--json"): json.dumps(
                {"jobs": [{"job_id": 6}, JOB_SET]}
            ).encode(),
            (
                "scontrol",
                "-a",
                "show",
                "job",
                "8",
                "--json",
            ): "slurm_load_jobs error: Invalid job id specified",
        },
    )
    way = live.CommandLive(slurm)
    assert (way.jobs(), way.nodes(), way.job(7), way.job(8)) == ([JOB], [NODE], JOB, None)


def test_a_build_without_json_is_read_as_text() -> None:
    """Where no serializer is built in, text is used, and JSON is not asked for again."""
    no_json = "squeue ended with 1: squeue: fatal: JSON support not found: serializer/json"
    slurm = Release(
        "slurm 22.05.2",
        {
            ("squeue", "-a", "--json"): no_json,
            ("scontrol", "-a", "-d", "-o", "show", "jobs"): JOB_TEXT.encode(),
            ("squeue", "-a", "-h", "-t", "all", "-o", "%A"): b"7\n",
            ("scontrol", "-a", "-o", "show", "nodes"): (NODE_TEXT + "\n").encode(),
        },
    )
    way = live.CommandLive(slurm)
    assert (way.jobs(), way.jobs(), way.nodes()) == ([JOB], [JOB], [NODE])
    assert slurm.calls.count(("squeue", "-a", "--json")) == 1


class Controller:
    """A slurmctld without JSON, and its jobs' texts."""

    def __init__(self, jobs: dict[int, str]) -> None:
        self.jobs = jobs
        self.calls: list[tuple[str, ...]] = []
        self.afterwards: Callable[[str], object] = lambda _: None
        """What happens behind each answer, given its program."""

    def __call__(self, program: str, *arguments: str, environment: Mapping[str, str] | None = None) -> bytes:
        self.calls.append((program, *arguments))
        if arguments == ("--version",):
            return b"slurm 20.11.9"
        answer = self._ids(arguments) if program == "squeue" else self._texts(arguments[-1])
        self.afterwards(program)
        return answer.encode()

    def _ids(self, arguments: tuple[str, ...]) -> str:
        chosen = [int(arguments[arguments.index("-j") + 1])] if "-j" in arguments else self.jobs
        return "".join(f"{job_id}\n" for job_id in chosen)

    def _texts(self, what: str) -> str:
        if what != "jobs" and int(what) not in self.jobs:
            raise errors.SlurmUnavailable("slurm_load_jobs error: Invalid job id specified")
        return "".join(f"{text}\n" for job_id, text in self.jobs.items() if what in ("jobs", str(job_id)))


def text_way(jobs: dict[int, str]) -> live.CommandLive:
    return live.CommandLive(Controller(jobs))


def of(job_id: int, name: str = "we ird") -> str:
    return JOB_TEXT.replace("JobId=7 ", f"JobId={job_id} ").replace("we ird", name)


FORGED = JOB_TEXT.replace("UserId=alice(1000)", "UserId=root(0)").replace("n[1-2]", "n5")


@pytest.mark.parametrize("forger", [3, 9])
@pytest.mark.parametrize(
    "name",
    [
        f"x\n{JOB_TEXT[: JOB_TEXT.index('UserId')]}y",
        f"x\n{FORGED}\nJobId=999999 JobName=z",
        f"x\n{FORGED}\nJobId=8 JobName=z",
        f"x {FORGED.partition('JobName=')[2]}\nJobId=7 JobName=y",
        f"x {FORGED.partition('JobName=')[2]}\nJobId=8 JobName=y",
    ],
)
def test_a_forged_job_line_cannot_hide_another_job(forger: int, name: str) -> None:
    """Whatever lines a job's name holds, each other job is read as Slurm has it, and the job itself so or not at all."""
    jobs = {forger: of(forger, name), 7: of(7), 8: of(8)}
    way = text_way(dict(sorted(jobs.items())))
    found = {job.job_id: job for job in way.jobs()}
    assert (found.pop(7), found.pop(8)) == (JOB, dataclasses.replace(JOB, job_id=8))
    assert all((job.job_id, job.uid, job.nodes) == (forger, 1000, JOB.nodes) for job in found.values())
    assert (way.job(7), way.job(8)) == (JOB, dataclasses.replace(JOB, job_id=8))


@pytest.mark.parametrize("begin", [False, True])
def test_forged_lines_of_jobs_that_come_or_go(*, begin: bool) -> None:
    """A line that stands once is a job's own only if the job was there before the listing and after it."""
    coming_or_going = {7: of(7), 10: of(10)}
    forger = of(3, f"x {FORGED.partition('JobName=')[2]}\n{FORGED}\nJobId=10 JobName=z")
    slurm = Controller({3: forger, **({} if begin else coming_or_going)})

    def afterwards(program: str) -> None:
        if begin and program == "scontrol":
            slurm.jobs |= coming_or_going
        elif not begin and program == "squeue":
            slurm.jobs = {3: forger}

    slurm.afterwards = afterwards
    assert all(job.uid == 1000 for job in live.CommandLive(slurm).jobs())


def test_many_forged_lines_cost_few_questions_and_lines_of_log(caplog: pytest.LogCaptureFixture) -> None:
    """Jobs beyond the bound are left out and logged once, and the others stay."""
    victims = range(100, 300)
    forged = "".join(f"\nJobId={job_id} z" for job_id in victims)
    slurm = Controller({7: of(7), 9: of(9, f"x{forged}"), 10: of(10), **{v: of(v) for v in victims}})
    way = live.CommandLive(slurm)
    for _ in range(3):
        slurm.calls.clear()
        found = {job.job_id for job in way.jobs()}
        assert {7, 9, 10, 100} <= found
        assert len(slurm.calls) < 2 * job_texts.MOST_ALONE
    assert 1 <= len(caplog.records) < 20
    # Only wanted jobs are asked for.
    assert {250, 299} <= job_texts.listed(slurm, {250, 299}).texts.keys()


def test_many_jobs_that_begin_while_they_are_listed_are_no_forged_ones(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Five hundred begin between any two calls: forged lines hide no job of these, these hide no forged one, and the cost is bounded."""
    victims = range(100, 300)
    forged = "".join(f"\nJobId={job_id} z" for job_id in victims)
    slurm = Controller({9: of(9, f"x{forged}"), 10: of(10), **{v: of(v) for v in victims}, 400: of(400)})

    def begin_more(_program: str) -> None:
        first = max(slurm.jobs) + 1
        slurm.jobs |= {job_id: of(job_id) for job_id in range(first, first + 500)}

    slurm.afterwards = begin_more
    way = live.CommandLive(slurm)
    way._version()
    found = way.jobs()
    assert all(job == dataclasses.replace(JOB, job_id=job.job_id) for job in found if job.job_id != 9)
    ids = {job.job_id for job in found}
    # The second list of ids has 1000 new ones. Of the 500 in the second text alone, and the job before them, 32 are asked for alone.
    assert {*range(400, 1400 + job_texts.MOST_ALONE)} == {job_id for job_id in ids if job_id >= 400}
    # The forger and the job before the first victim are asked for, too.
    n_alone = job_texts.MOST_ALONE - 2
    assert {9, 10, *victims[:n_alone]} == {job_id for job_id in ids if job_id < 400}
    assert len(slurm.calls) <= 2 * job_texts.MOST_ALONE + 10
    blamed = [r.getMessage() for r in caplog.records]
    assert f"job {victims[n_alone]}: a line that looks like a job's was written" in blamed[0]
    assert blamed[-1] == f"a job is left out: and {len(victims) - n_alone - 8} more"


def test_jobs_that_end_while_they_are_listed_take_no_others_with_them() -> None:
    """A job whose text the line of an ended one follows is read once more."""
    slurm = Controller({job_id: of(job_id) for job_id in range(1, 401)})

    def purge(program: str) -> None:
        if program == "scontrol":
            slurm.jobs = {job_id: text for job_id, text in slurm.jobs.items() if job_id % 2}

    slurm.afterwards = purge
    listing = job_texts.listed(slurm)
    assert listing.texts.keys() == slurm.jobs.keys()
    assert (listing.unclear, len(slurm.calls)) == (frozenset(), 5)


def test_a_job_that_was_read_once_is_not_lost_by_a_second_look() -> None:
    """Jobs begin behind every even one while the first text is read, and behind every odd one while the second is."""
    old = range(1, 201)
    slurm = Controller({job_id: of(job_id) for job_id in old})
    n_texts = 0

    def begin_between(program: str) -> None:
        nonlocal n_texts
        if program == "squeue" and n_texts < 2:
            n_texts += 1
            jobs = dict[int, str]()
            for job_id, text in slurm.jobs.items():
                jobs[job_id] = text
                if job_id in old and job_id % 2 == n_texts % 2:
                    jobs[1000 * n_texts + job_id] = of(1000 * n_texts + job_id)
            slurm.jobs = jobs

    slurm.afterwards = begin_between
    assert job_texts.listed(slurm, frozenset()).texts.keys() >= {*old}


def test_a_line_forged_into_the_second_text_hides_no_job_of_the_first() -> None:
    """Many begin while the first text is read, and then a job takes the name that has another's line."""
    slurm = Controller({job_id: of(job_id) for job_id in range(1, 10)})
    n_ids = 0

    def change(program: str) -> None:
        nonlocal n_ids
        n_ids += program == "squeue"
        if n_ids == 1:
            slurm.jobs |= {job_id: of(job_id) for job_id in range(100, 200)}
        elif n_ids == 2:
            slurm.jobs |= {4: of(4, "newer"), 9: of(9, "x\nJobId=3 z")}

    slurm.afterwards = change
    listing = job_texts.listed(slurm, frozenset())
    assert listing.texts.keys() >= {2, 3}
    assert listing.forged == {9}
    job_texts.require(listing, 3)
    assert "JobName=newer" in listing.texts[4], "the second text is the newer one"


def test_a_running_job_before_the_line_of_a_new_one_does_not_vanish_silently(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A hundred stand before new lines in every text: 32 are asked for alone, before any new job, and the others are logged once."""
    old, new_ids = range(5000, 5100), itertools.count(1)
    slurm = Controller({job_id: of(job_id) for job_id in old})

    def begin_behind_each(program: str) -> None:
        if program == "squeue":
            jobs = dict[int, str]()
            for job_id, text in slurm.jobs.items():
                jobs[job_id] = text
                if job_id in old:
                    new_id = next(new_ids)
                    jobs[new_id] = of(new_id)
            slurm.jobs = jobs

    slurm.afterwards = begin_behind_each
    way = live.CommandLive(slurm)
    way._version()
    slurm.calls.clear()
    found = {job.job_id for job in way.jobs()}
    assert found & {*old} == {*old[: job_texts.MOST_ALONE]}
    assert len(slurm.calls) == job_texts.MOST_ALONE + 5
    blamed = [r.getMessage() for r in caplog.records]
    assert f"job {old[job_texts.MOST_ALONE]}: the line of a job that came or went stands behind" in blamed[0]
    assert blamed[-1] == f"a job is left out: and {len(old) - job_texts.MOST_ALONE - 8} more"
    way.jobs()
    assert len(caplog.records) == len(blamed)


def test_a_few_jobs_that_begin_cost_no_second_listing() -> None:
    """Each is asked for alone, and the job before it; of the wanted ones only."""
    slurm = Controller({job_id: of(job_id) for job_id in range(1, 9)})

    def begin(_program: str) -> None:
        slurm.jobs |= {9: of(9)}

    slurm.afterwards = begin
    assert job_texts.listed(slurm).texts.keys() == {*range(1, 10)}
    assert [call[-1] for call in slurm.calls if call[0] == "scontrol"] == ["jobs", "8", "9"]
    slurm.calls.clear()
    del slurm.jobs[9]
    listing = job_texts.listed(slurm, {8})
    assert (listing.texts.keys(), listing.moving) == ({*range(1, 9)}, {9})
    assert [call[-1] for call in slurm.calls if call[0] == "scontrol"] == ["jobs", "8"]


def test_a_job_that_came_while_it_was_shown_is_no_forged_one() -> None:
    """Of tasks of an array that begin again and again between two calls, what was written is unknown, and nobody is blamed."""
    found = job_texts.cut(f"{of(7)}\n{of(8)}\n{of(9)}\n", {7, 9}, {7, 8, 9})
    assert (found.texts.keys(), found.forged, found.neighbours, found.moving) == ({9}, frozenset(), {7}, {8})
    for job_id in (7, 8):
        with pytest.raises(errors.MalformedInput, match="came or went"):
            job_texts.require(found, job_id)
    job_texts.require(found, 9)
    found = job_texts.cut(f"{of(7)}\n{of(8)}\n{of(9)}\n{of(8)}\n", {7, 9}, {7, 8, 9})
    assert (found.texts, found.forged, found.unclear) == ({}, {7, 8, 9}, {7, 8, 9})
    with pytest.raises(errors.MalformedInput, match="was written"):
        job_texts.require(found, 8)


@pytest.mark.parametrize(
    ("release", "error"), [("22.05.8", {"error": "Unspecified error", "errno": -1}), ("24.11.5", {})]
)
def test_an_empty_list_beside_an_error_is_no_answer(release: str, error: dict[str, Any]) -> None:
    """With slurmctld away sinfo and squeue print an empty list and an error, and end with 0: no node has gone."""
    empty = json.dumps({"errors": [error], "nodes": [], "jobs": []}).encode()
    queries = [("sinfo", "-a", "--json"), ("scontrol", "show", "nodes", "--json"), ("squeue", "-a", "--json")]
    way = live.CommandLive(Release(f"slurm {release}", dict.fromkeys(queries, empty)))
    for read in (way.nodes, way.jobs):
        with pytest.raises(commands.SlurmAway, match="Slurm does not answer"):
            read()


def test_an_empty_list_without_an_error_is_empty() -> None:
    """A queue without jobs is one; a job that Slurm does not know is none."""
    unknown = json.dumps({"errors": [{"error": "Invalid job id specified"}], "jobs": []}).encode()
    slurm = Release(
        "slurm 24.11.5",
        {
            ("squeue", "-a", "--json"): json.dumps({"errors": [], "jobs": []}).encode(),
            ("scontrol", "-a", "show", "job", "8", "--json"): unknown,
        },
    )
    way = live.CommandLive(slurm)
    assert (way.jobs(), way.job(8)) == ([], None)


def test_other_failures_are_told() -> None:
    """A controller that is away is not an empty cluster."""
    slurm = Release("slurm 23.11.1", {("squeue", "-a", "--json"): "Unable to contact slurm controller"})
    with pytest.raises(errors.SlurmUnavailable, match="Unable to contact"):
        live.CommandLive(slurm).jobs()
    with pytest.raises(errors.SlurmUnavailable, match="says"):
        live.CommandLive(Release("garbage", {})).jobs()


@pytest.mark.parametrize(
    "why",
    [
        commands.SlurmAway("slurm_load_jobs error: Unable to contact slurm controller: Host not found"),
        errors.SlurmUnavailable("scontrol ended with 1: error: plugin serializer/json not found"),
    ],
)
def test_only_slurms_own_words_say_that_a_job_or_node_is_not_there(why: errors.SlurmUnavailable) -> None:
    """A job that is gone may be brought back, and a node that is gone has its drain ended."""

    def run(_program: str, *arguments: str, environment: Mapping[str, str] | None = None) -> bytes:
        if arguments == ("--version",):
            return b"slurm 24.05.1"
        raise why

    way = live.CommandLive(run)
    for read in (lambda: way.job(7), lambda: way.node("n1")):
        with pytest.raises(errors.SlurmUnavailable, match="not found"):
            read()


def test_pyslurm_where_it_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library is used when it is there, the commands when not, and `[slurm] live` decides otherwise."""
    assert isinstance(live.connect(settings.SlurmSettings(live="cli")), live.CommandLive)
    monkeypatch.setitem(sys.modules, "pyslurm", None)
    with pytest.raises(errors.SlurmUnavailable, match="does not import"):
        live.connect(settings.SlurmSettings(live="pyslurm"))
    assert isinstance(live.connect(settings.SlurmSettings()), live.CommandLive)
    monkeypatch.setitem(sys.modules, "pyslurm", PyslurmTwin)
    way = live.connect(settings.SlurmSettings())
    assert (way.job(7), way.job(8), way.node("n1"), way.node("n9")) == (JOB, None, NODE, None)
    with pytest.raises(commands.SlurmAway, match="Slurm does not answer: pyslurm: Unable to contact"):
        way.job(9)
    # A refusal and a fault in the library are no outage: the service would wait for the end of it.
    for job_id, words in ((10, "Access/permission denied"), (11, "no field restart_cnt")):
        with pytest.raises(errors.SlurmUnavailable, match=words) as raised:
            way.job(job_id)
        assert not isinstance(raised.value, commands.SlurmAway)


def _documents(directory: Path, pattern: str, key: str) -> dict[Path, list[Any]]:
    found = {}
    for path in [
        *directory.glob(pattern),
        *directory.glob("slurm/vcell/scontrol*.json"),
        *directory.glob("slurm/rivos/*.json"),
    ]:
        document = json.loads(path.read_bytes())
        if isinstance(document, dict) and isinstance(document.get(key), list):
            found[path] = document[key]
    return found


def test_every_recorded_job_and_node(shared_samples: Path) -> None:
    """Nothing of the recordings of 21.08 to 25.11 is lost: states, restarts, nodes and flags read as they stand."""
    jobs = _documents(shared_samples, "slurm/slurm-web/*/*/slurm-job*.json", "jobs")
    nodes = _documents(shared_samples, "slurm/slurm-web/*/*/slurm-node*.json", "nodes")
    assert len(jobs) > 150
    assert len(nodes) > 100
    for path, listed in jobs.items():
        found = live_json.jobs(path.read_bytes())
        assert [job.job_id for job in found] == [item["job_id"] for item in listed], path
        for job, item in zip(found, listed, strict=True):
            assert [job.state] == [*item["job_state"]] or job.state == item["job_state"]
            assert (job.start_at is None) == (job.state == "PENDING" or not job.nodes)
    for path, listed in nodes.items():
        found_nodes = live_json.nodes(path.read_bytes())
        assert [node.name for node in found_nodes] == [item["name"] for item in listed], path
        for node, item in zip(found_nodes, listed, strict=True):
            state = item["state"] if isinstance(item["state"], list) else [item["state"].upper()]
            assert node.states == frozenset(state), path
            assert node.reason == item["reason"]


def test_gpu_jobs_without_accounting_are_counted(shared_samples: Path) -> None:
    """Where the site does not account GPUs, the running job's gres tells how many and which."""
    for path in sorted(shared_samples.glob("slurm/slurm-web/2[45].*/*/slurm-job-gpus-multi-nodes.json")):
        (job,) = live_json.jobs(path.read_bytes())
        assert job.gpus is not None
        assert job.n_gpus == sum(len(indices) for indices in job.gpus.values()) > 1
        assert set(job.gpus) == set(job.nodes)


def test_the_recorded_node_listing(shared_samples: Path) -> None:
    """183 nodes of a site that lists only their TRES: GPUs where it says so, unknown elsewhere."""
    nodes = live_text.nodes((shared_samples / "slurm/text/hb-jobinfo/scontrol.txt").read_bytes())
    assert len(nodes) == 183
    assert {node.n_gpus for node in nodes if node.name.startswith("a100gpu")} == {4}
    assert {node.n_gpus for node in nodes if node.name.startswith("euclid")} == {None}


@given(st.text(st.sampled_from("JobIdStaeNoR=[](), \n0179n*+|@"), max_size=80))
def test_no_text_breaks_the_readers(text: str) -> None:
    """Arbitrary text is read or left out, never an accident."""
    data = ("NodeName=n1 " + text + "\nJobId=1 " + text).encode()
    live_text.nodes(data)
    for found in job_texts.cut(data.decode(), {0, 1, 7, 9}, {1, 7, 79}).texts.values():
        with contextlib.suppress(errors.MalformedInput):
            live_text.job(found)


def test_where_a_node_is_reached() -> None:
    """Its address, from text and from JSON; a Slurm that does not say it leaves it empty."""
    assert (
        live_text.node(NODE_TEXT.replace("NodeHostName", "NodeAddr=10.0.0.7 NodeHostName")).address
        == "10.0.0.7"
    )
    assert live_text.node(NODE_TEXT).address == ""


def test_an_author_in_the_reason_is_not_its_author() -> None:
    """The account that may set a reason cannot have it read as another's: the last brackets are Slurm's."""
    text = NODE_TEXT.replace("probing: xid 79 [root@500]", "rebooted [root@ [alice@500]")
    found = live_text.node(text)
    assert (found.reason, found.reason_by) == ("rebooted [root@", "alice")


@pytest.mark.parametrize(
    ("held", "gres", "n_gpus"),
    [
        ("cpu=2,node=2,billing=2", "", 0),
        ("cpu=2,node=2,billing=2", "gpu:h100:4", 4),
        ("cpu=2,node=2,billing=2", "shard:4", None),
        ("cpu=2,node=2,gres/shard=4", "", None),
        ("cpu=2,node=2,gres/gpu=4", "", 4),
        ("", "", None),
    ],
)
def test_a_job_without_gres_holds_no_gpu(held: str, gres: str, n_gpus: int | None) -> None:
    """Whether a cluster accounts GPUs or not: what a job holds of them is listed. Where Slurm does not list it, nobody knows."""
    text = JOB_TEXT.replace("cpu=2,node=2,billing=2,gres/gpu=4", held)
    listed = text.replace("JOB_GRES=gpu:h100:4 ", f"JOB_GRES={gres or '(null)'} ")
    assert live_text.job(listed).n_gpus == n_gpus
    if not gres and "gres/" not in held:
        assert live_text.job(text.replace("JOB_GRES=gpu:h100:4 ", "")).n_gpus is None
    job = {"job_id": 7, "job_state": ["RUNNING"], "nodes": "n1", "tres_alloc_str": held}
    assert live_json.job(job | {"gres_detail": [gres] if gres else []}).n_gpus == n_gpus
    if not gres and "gres/" not in held:
        assert live_json.job(job).n_gpus is None
