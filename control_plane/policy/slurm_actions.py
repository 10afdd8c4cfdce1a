"""Slurm as the policy needs it: its nodes and jobs as our records, its acts with our refusals."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TypeVar

from probing_cluster.control_plane.policy import view
from probing_cluster.core import clock, errors, settings
from probing_cluster.slurm_plugins import commands, topology
from probing_cluster.slurm_plugins.acts import helper_client, node_events, reservations
from probing_cluster.slurm_plugins.acts import nodes as slurm_nodes
from probing_cluster.slurm_plugins.live import live, live_records

_Answer = TypeVar("_Answer")


class SlurmActions:
    """Reads through `slurm_plugins.live`, acts through `slurm_plugins.nodes`.

    `note` is called after each read: with the kind of question, and with why Slurm did not answer or with None.
    `before_act` is called right before each act, which is not done when it raises.
    """

    def __init__(
        self,
        config: settings.Settings,
        run: commands.Runner,
        note: Callable[[str, commands.SlurmAway | None], None] = lambda *_: None,
        before_act: Callable[[], None] = lambda: None,
    ) -> None:
        self._run = run
        self._note = note
        self._before_act = before_act
        self._live = live.connect(config.slurm, run)
        self._acts = helper_client.connect(config.slurm, run)

    def cluster_name(self) -> str:
        """The cluster that slurmctld is of; empty where it does not answer or say."""
        try:
            text = self._run("scontrol", "show", "config").decode("utf-8", "replace")
        except errors.SlurmUnavailable:
            return ""
        found = re.search(r"^ClusterName\s*=\s*(\S+)\s*$", text, re.MULTILINE)
        return found[1] if found else ""

    def nodes(self) -> list[view.Node]:
        """Every node."""
        return [node_of(n) for n in self._read("nodes", self._live.nodes)]

    def named_nodes(self) -> list[view.Node]:
        """Every node, with the reservation that keeps it in maintenance: some releases of Slurm list nodes without it."""
        nodes = self.nodes()
        if not any(n.in_maintenance and not n.reservation for n in nodes):
            return nodes
        try:
            found = reservations.Reservations(self._run, "").all()
        except errors.SlurmUnavailable:
            return nodes
        names = {node: one.name for one in found if one.keeps_users_off for node in one.nodes}
        return [dataclasses.replace(n, reservation=n.reservation or names.get(n.name, "")) for n in nodes]

    def jobs(self) -> list[view.ActiveJob]:
        """Every job that holds nodes."""
        return [job_of(j) for j in self._read("jobs", self._live.jobs) if j.running]

    def node(self, name: str) -> view.Node | None:
        """One node, read now."""
        found = self._read("node", lambda: self._live.node(name))
        return node_of(found) if found else None

    def job(self, job_id: int) -> view.ActiveJob | None:
        """One job, read now; None when it does not hold nodes."""
        found = self._read("job", lambda: self._live.job(job_id))
        return job_of(found) if found and found.running else None

    def outages(self, since: datetime, until: datetime) -> list[view.Outage]:
        """Every stretch in which a node was out of service that began in the span, by slurmdbd."""
        found = node_events.outages(self._run, int(since.timestamp()), int(until.timestamp()))
        return [
            view.Outage(
                node=o.node,
                start_at=clock.from_epoch_s(o.start_s),
                end_at=None if o.end_s is None else clock.from_epoch_s(o.end_s),
                reason=o.reason,
            )
            for o in found
        ]

    def places(self) -> list[tuple[str, str, str]]:
        """Node, kind and name of every switch and block a node is under, where Slurm has a topology."""
        return topology.places(self._run)

    def drain(self, name: str, reason: str, reservation: str = "") -> slurm_nodes.Outcome:
        """Drain a node that is nobody else's; one in a reservation of ours is ours."""
        return self._acting().drain(name, reason, reservation)

    def adopt(self, name: str, reason: str) -> slurm_nodes.Outcome:
        """Give Slurm's own `Prolog error` drain our reason."""
        return self._acting().adopt(name, reason)

    def resume(self, name: str, reservation: str = "") -> slurm_nodes.Outcome:
        """Lift a drain of ours, with `reservation` only inside it."""
        return self._acting().resume_own(name, reservation)

    def reboot(self, name: str) -> slurm_nodes.Outcome:
        """Reboot a node that is drained by us and stays so."""
        return self._acting().reboot_own(name)

    def requeue(self, job: view.ActiveJob) -> slurm_nodes.Outcome:
        """Requeue one running job, if it is still this very attempt."""
        if job.start_at is None:
            return slurm_nodes.Outcome(state="skipped", why="it has not started")
        return self._acting().requeue(job.job_id, job.start_at, job.restart_count, job.nodes)

    def queue(self) -> list[live_records.LiveJob]:
        """Every job that Slurm holds, in one question."""
        return self._read("jobs", self._live.jobs)

    def requeue_held(
        self, job_id: int, start_at: datetime, restart: int, *, running: bool = False
    ) -> slurm_nodes.Outcome:
        """Put a job that has ended, or that is `running`, back into the queue, held."""
        return self._acting().requeue_held(job_id, start_at, restart, running=running)

    def exclude(
        self, job_id: int, restart: int, add: Iterable[str], remove: Iterable[str]
    ) -> slurm_nodes.Outcome:
        """Leave nodes out of a waiting job, or give them back to it."""
        return self._acting().exclude(job_id, restart, add, remove)

    def depend(self, job_id: int, on: int) -> slurm_nodes.Outcome:
        """Set a waiting job's stuck dependency again."""
        return self._acting().depend(job_id, on)

    def release(self, job_id: int, restart: int) -> slurm_nodes.Outcome:
        """Release what `requeue_held` holds."""
        return self._acting().release(job_id, restart)

    def _acting(self) -> slurm_nodes.Actions:
        self._before_act()
        return self._acts

    def _read(self, question: str, read: Callable[[], _Answer]) -> _Answer:
        try:
            found = read()
        except commands.SlurmAway as exc:
            self._note(question, exc)
            raise
        self._note(question, None)
        return found


def node_of(live_node: live_records.LiveNode) -> view.Node:
    """Slurm's node as the policy sees it."""
    return view.Node(
        name=live_node.name,
        states=live_node.states,
        reason=live_node.reason,
        reason_at=live_node.reason_at,
        reason_by=live_node.reason_by,
        partitions=live_node.partitions,
        boot_at=live_node.boot_at,
        n_gpus=live_node.n_gpus,
        address=live_node.address or live_node.name,
        reservation=live_node.reservation,
    )


def job_of(live_job: live_records.LiveJob) -> view.ActiveJob:
    """Slurm's job as the policy sees it; one that is already ending is no longer running."""
    return view.ActiveJob(
        job_id=live_job.job_id,
        state="COMPLETING" if live_job.completing else live_job.state,
        start_at=live_job.start_at,
        restart_count=live_job.restart_count,
        nodes=live_job.nodes,
        requeue=live_job.requeue,
        batch=live_job.batch,
        required_nodes=live_job.required_nodes,
        n_gpus=live_job.n_gpus,
    )
