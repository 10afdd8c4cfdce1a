"""Slurm as the policy needs it: its nodes and jobs as our records, its acts with our refusals."""

from __future__ import annotations

from probing_cluster.control_plane import actions, view
from probing_cluster.core import errors, settings
from probing_cluster.slurm_plugins import commands, live, live_records


class SlurmHands:
    """Reads through `slurm_plugins.live`; every act reads the node just before and again after."""

    def __init__(self, config: settings.Settings, run: commands.Runner) -> None:
        self._run = run
        self._live = live.connect(config.slurm, run)

    def nodes(self) -> list[view.Node]:
        """Every node."""
        return [node_of(n) for n in self._live.nodes()]

    def jobs(self) -> list[view.Job]:
        """Every job that holds nodes."""
        return [job_of(j) for j in self._live.jobs() if j.running]

    def node(self, name: str) -> view.Node | None:
        """One node, read now."""
        found = self._live.node(name)
        return node_of(found) if found else None

    def job(self, job_id: int) -> view.Job | None:
        """One job, read now; None when it does not hold nodes."""
        found = self._live.job(job_id)
        return job_of(found) if found and found.running else None

    def drain(self, name: str, reason: str) -> None:
        """Drain a node that is nobody else's."""
        node = self._known(name)
        if node.hands_off:
            raise actions.Declined(node.hands_off)
        self._update(name, "State=DRAIN", f"Reason={reason}")
        after = self._known(name)
        if not after.ours:
            msg = f"{name} reads {'+'.join(sorted(after.states))} ({after.reason}) after the drain"
            raise errors.SlurmUnavailable(msg)

    def adopt(self, name: str, reason: str) -> None:
        """Give Slurm's own `Prolog error` drain our reason."""
        if not self._known(name).prolog_failed:
            raise actions.Declined("it no longer stands drained for a Prolog error")
        self._update(name, "State=DRAIN", f"Reason={reason}")

    def resume(self, name: str) -> None:
        """Lift a drain of ours."""
        node = self._known(name)
        if not node.ours:
            raise actions.Declined(node.hands_off or "it is not drained by us")
        self._update(name, "State=RESUME")

    def requeue(self, job: view.Job) -> None:
        """Requeue one running job."""
        self._run("scontrol", "requeue", str(job.job_id))

    def _known(self, name: str) -> view.Node:
        node = self.node(name)
        if node is None:
            raise actions.Declined("Slurm knows no such node")
        return node

    def _update(self, name: str, *what: str) -> None:
        self._run("scontrol", "update", f"NodeName={name}", *what)


def node_of(found: live_records.LiveNode) -> view.Node:
    """Slurm's node as the policy sees it."""
    return view.Node(
        name=found.name,
        states=found.states,
        reason=found.reason,
        reason_at=found.reason_at,
        partitions=found.partitions,
        boot_at=found.boot_at,
        n_gpus=found.n_gpus,
    )


def job_of(found: live_records.LiveJob) -> view.Job:
    """Slurm's job as the policy sees it; one that is already ending is no longer running."""
    return view.Job(
        job_id=found.job_id,
        state="COMPLETING" if "COMPLETING" in found.flags else found.state,
        start_at=found.start_at,
        restart_count=found.restart_count,
        nodes=found.nodes,
        requeue=found.requeue,
        batch=found.batch,
    )
