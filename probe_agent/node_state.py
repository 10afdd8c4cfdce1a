"""What one agent holds on to: its identity, its spool, and everything it remembers about its node."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from probing_cluster.core import clock, errors, records, settings
from probing_cluster.probe_agent import children, identity, self_watch
from probing_cluster.probe_agent.faults import faults, gres_conf, sighting
from probing_cluster.probe_agent.hooks import fitness
from probing_cluster.probe_agent.jobs import held, jobs, page_directories, row_share
from probing_cluster.probe_agent.sources import node_reader, polled
from probing_cluster.probe_agent.spool import intake, spool

KERNEL_LOGS = ("auto", "kmsg", "journald")
NUMBERINGS = ("auto", "nvml", "minor")

_log = logging.getLogger(__name__)


class NodeState:
    """Shared by the parts of one agent; made once, before any of them."""

    def __init__(self, config: settings.Settings, *, clock: clock.Clock = clock.SYSTEM) -> None:
        agent = config.agent
        if agent.gpu_numbering not in NUMBERINGS:
            raise errors.SettingsError(f"agent.gpu_numbering is one of {', '.join(NUMBERINGS)}")
        if agent.kernel_log not in KERNEL_LOGS and not agent.kernel_log.startswith("file:"):
            raise errors.SettingsError(f"agent.kernel_log is one of {', '.join(KERNEL_LOGS)} or file:<path>")
        self.config = config
        self.clock = clock
        self.started_at = clock.now()
        self.identity = identity.identify(config)
        self.spool = spool.Spool(Path(agent.spool_directory), max_bytes=agent.spool_max_bytes)
        boot_id = self.identity.boot_id()
        self.faults = faults.Faults(boot_id, self.spool.state("faults"))
        self.book = jobs.JobBook(boot_id, jobs.stored_states(self.spool))
        self.held = held.HeldJobs(self.book, clock=clock)
        self.watch = self_watch.SelfWatch()
        self.shares = row_share.RowShares(clock)
        self.intake = intake.Intake(identity=self.identity, spool=self.spool, faults=self.faults, clock=clock)
        self.children = children.Children()
        self.permissions = fitness.Permissions()
        self.pages = page_directories.PageDirectories(Path(agent.job_directory))
        self.reader = node_reader.ChildReader(
            self.identity,
            self.children,
            nvml_library=agent.nvml_library,
            amdsmi_library=agent.amdsmi_library,
            deadline_s=agent.call_deadline_s,
        )

    def beat_s(self) -> float:
        """The interval between heartbeats it promises: shorter while a job runs."""
        return self.config.agent.job_beat_s if self.book.running else self.config.agent.beat_s

    def numbering(self) -> gres_conf.GpuNumbering | None:
        """What SLURM_JOB_GPUS counts here; gres.conf is read again each time, since Slurm may be reconfigured."""
        setting = self.config.agent.gpu_numbering
        if setting == "auto":
            text = gres_conf.find(self.config.slurm.conf)
            return None if text is None else gres_conf.parse(text, self.identity.node)
        return gres_conf.GpuNumbering(by_pci=setting == "nvml")

    def context(self, closely: bool, relearn: bool, cleared: bool) -> polled.PollContext:
        """What the judges of the polled sources may know."""
        agent = self.config.agent
        return polled.PollContext(
            now=self.clock.now(),
            boot_id=self.identity.boot_id(),
            uptime_s=identity.uptime_s(self.identity, self.clock),
            inventory=self.intake.inventory,
            expect_mounts=agent.expect_mounts,
            expect_services=agent.expect_services,
            expect_gpus=agent.expect_gpus,
            exclude_hcas=agent.exclude_hcas,
            closely=closely,
            relearn=relearn,
            cleared=cleared,
        )

    def begin(self) -> None:
        """Log which node this is, show whether its page directories are bounded, and report its boot."""
        _log.info(
            "agent of %s, boot %s, root %s", self.identity.node, self.identity.boot_id(), self.identity.root
        )
        if self.spool.replaced_corrupt:
            _log.error("the spool was corrupt and has been set aside: %s", self.spool.replaced_corrupt)
        self._report_pages()
        self._report_boot()

    def rebooted(self, boot_id: str) -> None:
        """The node has another boot id: what stood in the last boot is over."""
        self.faults.reboot(boot_id)
        self.book.reboot(boot_id)
        self.intake.save_faults()
        self._report_boot()

    def report_repaired(self, cleared: Iterable[faults.Fault]) -> None:
        """Report the end of the faults that a person declared repaired, except of parts that still fail.

        No line of the kernel and no counter reports it, and later jobs would be judged as if the faults were still there.
        """
        now, boot_id = self.clock.now(), self.identity.boot_id()
        over = self.faults.repaired(cleared)
        self.intake.save_faults()
        self.intake.take(
            faults.recovery(f, "agent", boot_id, now, "declared repaired by a person") for f in over
        )

    def _report_boot(self) -> None:
        """Report the boot as an event; a later start of the agent in this boot makes the same event again."""
        boot_id, booted_s = self.identity.boot_id(), self.identity.boot_epoch_s()
        boot = sighting.Sighting(
            source="agent",
            position=f"{boot_id}:boot",
            at=self.clock.now() if booted_s is None else clock.from_epoch_s(booted_s),
            kind="node_boot",
            severity=records.Severity.INFO,
            message=f"{self.identity.node} booted (boot id {boot_id})",
            detail={"boot_id": boot_id},
        )
        self.intake.take([boot])

    def _report_pages(self) -> None:
        """Show whether the users' page directories are bounded; mounting them is the deployment's work.

        A mount made here would be seen by no job where the service manager gave us a mount namespace.
        """
        try:
            most = self.pages.bound_bytes()
        except OSError as exc:
            self.watch.failed("pages", str(exc))
            return
        self.watch.read("pages", self.clock.now(), state="ok" if most else "unbounded", bound_bytes=most)
