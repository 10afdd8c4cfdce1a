"""Why Slurm lets a job wait: its reasons (squeue's %r, Slurm 22.05 to 26.05) as sentences for the job's owner."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class PendingReason:
    """What one reason means for the job's owner."""

    why: str
    """What the job waits for."""
    why_past: str
    """The same of a job that has ended."""
    never: bool = False
    """True if the job cannot start as it is."""
    way_out: str = ""
    """What starts it, or shows when it starts, while it waits; `{job}` stands for the job, `{named}` for what follows from the nodes that it names."""

    def words(self, job: str, named: str = "") -> str:
        """Both, for a job that still waits."""
        texts = (self.why, self.way_out)
        return "; ".join(made for text in texts if (made := text.format(job=job, named=named)))


_ROWS: tuple[tuple[str, bool, str, str, str], ...] = (
    # The last text is for a job that has ended; empty where the first is true of it, too.
    (r"DependencyNeverSatisfied", True, "the job that it waits for ended in a way that its --dependency does not accept (afterok asks for success, afternotok for failure)", "", "the job that it waited for ended in a way that its --dependency did not accept (afterok asks for success, afternotok for failure)"),
    (r"PartitionNodeLimit", True, "it asks for more nodes than its partition has or allows (MaxNodes), or for fewer than MinNodes, see scontrol show partition; ask for another number (-N) or partition (-p)", "", "it asked for more nodes than its partition has or allows (MaxNodes), or for fewer than MinNodes, see scontrol show partition; ask for another number (-N) or partition (-p)"),
    (r"PartitionTimeLimit", True, "it asks for more time than its partition allows (MaxTime in scontrol show partition)", "scontrol update JobId={job} TimeLimit=… lowers it", "it asked for more time than its partition allows (MaxTime in scontrol show partition)"),
    (r"(?:Assoc|QOS)Max\w*(?:PerJob|PerNode|WallDuration)\w*|QOSMin\w*|MaxMemPerLimit", True, "it asks for more, or less, than one job of its account or QOS may have (sacctmgr show assoc, sacctmgr show qos)", "", "it asked for more, or less, than one job of its account or QOS may have (sacctmgr show assoc, sacctmgr show qos)"),
    (r"(?:Invalid|Assoc\w*Invalid)(?:Account|QOS)|(?:Account|QOS)NotAllowed|AssociationJobLimit_Invalid", True, "its account or QOS may not be used here", "scontrol update JobId={job} Account=… or QOS=… changes it", "its account or QOS could not be used here"),
    (r"BadConstraints", True, "no node has what it asks for (--constraint, --gres, --mem or CPUs per node; scontrol show node shows what there is)", "", "no node had what it asked for (--constraint, --gres, --mem or CPUs per node; scontrol show node shows what there is)"),
    (r"ReservationDeleted", True, "its reservation (--reservation) was deleted", "", ""),
    (r"DeadLine", True, "it can no longer end before its --deadline", "", "it could no longer end before its --deadline"),
    (r"JobHeldUser", False, "held by its owner", "scontrol release {job} lets it start", ""),
    (r"JobHeldAdmin", False, "held by an administrator", "ask them why; only they can release it", ""),
    (r"job_?requeued_?in_?held_?state|launch_?failed_?requeued_?held|JobHoldMaxRequeue", False, "held by Slurm after a start that failed", "once the cause is gone, scontrol release {job} lets it start", ""),
    (r"Priority", False, "jobs of higher priority are ahead of it", "sprio -j {job} shows its priority, squeue --start -j {job} Slurm's estimate of its start", "jobs of higher priority were ahead of it"),
    (r"Resources", False, "the nodes or GPUs that it needs are in use", "it starts once enough are free (squeue --start -j {job} shows Slurm's estimate)", "the nodes or GPUs that it needed were in use"),
    (r"Dependency", False, "it begins after the jobs that it depends on", "scontrol show job {job} names them (Dependency)", "it was to begin after the jobs that it depended on"),
    (r"BeginTime", False, "it may not begin before a set time: its --begin, or the pause after a requeue", "scontrol show job {job} has that time (StartTime)", "it was not to begin before a set time: its --begin, or the pause after a requeue"),
    (r"JobArrayTaskLimit", False, "as many tasks of its array run as its own limit (%N) allows", "", "as many tasks of its array ran as its own limit (%N) allowed"),
    (r"(?:Assoc|QOS)\w+", False, "its owner, account or QOS has reached a limit (sacctmgr show assoc, sacctmgr show qos)", "it starts once their other jobs end", "its owner, account or QOS had reached a limit (sacctmgr show assoc, sacctmgr show qos)"),
    (r"PartitionDown|PartitionInactive", False, "its partition is closed", "ask the administrators, or move it (scontrol update JobId={job} Partition=…)", "its partition was closed"),
    (r"Reservation", False, "its reservation has not begun, or is full", "", "its reservation had not begun, or was full"),
    (r"Licenses", False, "a licence that it asks for (-L) is in use", "", "a licence that it asked for (-L) was in use"),
    (r"Prolog|Cleaning", False, "Slurm is preparing its nodes, or has not finished its last start there", "", "Slurm was preparing its nodes, or had not finished its last start there"),
    (r"NodeDown", False, "a node that it asks for is down", "", "a node that it asked for was down"),
    (r"ReqNodeNotAvail.*|Nodes_required_for_job_are_.*", False, "nodes that it needs are down, drained or reserved", "{named}", "nodes that it needed were down, drained or reserved"),
)  # fmt: skip
_TABLE = tuple(
    (re.compile(pattern), PendingReason(why=why, why_past=past or why, never=never, way_out=way_out))
    for pattern, never, why, way_out, past in _ROWS
)


def of(reason: str) -> PendingReason | None:
    """What Slurm's reason means; None for one that is not in the table."""
    text = reason.strip().strip("()").replace(" ", "_")
    return next((row for pattern, row in _TABLE if pattern.fullmatch(text)), None)
