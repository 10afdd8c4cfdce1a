"""Slurm as the policy needs it, by what its commands print."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from probing_cluster.control_plane.policy import slurm_actions, view
from probing_cluster.core import errors, settings
from probing_cluster.slurm_plugins.live import live_records

CONFIG = """Configuration data as of 2026-01-31T08:00:00
CliFilterPlugins        = (null)
ClusterName             = hpc-2
Licenses                = (null)
"""


@pytest.mark.parametrize(("text", "name"), [(CONFIG, "hpc-2"), ("", "")])
def test_the_cluster_is_that_of_slurm_conf(text: str, name: str) -> None:
    config = settings.Settings(slurm=settings.SlurmSettings(live="cli"))
    found = slurm_actions.SlurmActions(config, lambda *_: text.encode())
    assert found.cluster_name() == name


def test_a_slurm_that_does_not_answer_names_no_cluster() -> None:
    """Whoever asks it for something else next finds that out, with the reason."""

    def away(*_: str) -> bytes:
        raise errors.SlurmUnavailable("slurmctld does not answer")

    config = settings.Settings(slurm=settings.SlurmSettings(live="cli"))
    assert slurm_actions.SlurmActions(config, away).cluster_name() == ""


def test_every_act_is_preceded_by_a_look_whether_it_may_be_done() -> None:
    """And is not done when that raises; what is only read needs none."""
    ran: list[tuple[str, ...]] = []

    def run(*arguments: str, environment: object = None) -> bytes:
        del environment
        ran.append(arguments)
        return CONFIG.encode()

    def lost() -> None:
        raise errors.DatabaseUnavailable("the turn was lost")

    config = settings.Settings(slurm=settings.SlurmSettings(live="cli"))
    slurm = slurm_actions.SlurmActions(config, run, before_act=lost)
    at = datetime(2026, 1, 31, tzinfo=UTC)
    job = view.ActiveJob(job_id=7, state="RUNNING", start_at=at, restart_count=0, nodes=("n1",))
    acts = (
        lambda: slurm.drain("n1", "probing: x"),
        lambda: slurm.adopt("n1", "probing: x"),
        lambda: slurm.resume("n1"),
        lambda: slurm.reboot("n1"),
        lambda: slurm.requeue(job),
        lambda: slurm.requeue_held(7, at, 0),
        lambda: slurm.exclude(7, 0, ["n1"], []),
        lambda: slurm.depend(7, 8),
        lambda: slurm.release(7, 0),
    )
    for act in acts:
        with pytest.raises(errors.DatabaseUnavailable):
            act()
    assert ran == []
    assert slurm.cluster_name() == "hpc-2"


def test_a_node_in_maintenance_has_the_name_of_its_reservation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Releases before 23.02 list nodes without it; a reservation that holds back nobody explains nothing."""
    nodes = [
        view.Node(name="n1", states=frozenset({"IDLE", "MAINTENANCE"})),
        view.Node(name="n2", states=frozenset({"IDLE"})),
        view.Node(name="n3", states=frozenset({"IDLE", "MAINTENANCE"}), reservation="told"),
    ]
    listed = (
        "ReservationName=course Nodes=n[1-3] State=ACTIVE Flags=SPEC_NODES\n"
        "ReservationName=row-b Nodes=n[1,3] State=ACTIVE Flags=MAINT,SPEC_NODES\n"
    )
    ran: list[tuple[str, ...]] = []

    def run(*arguments: str, environment: object = None) -> bytes:
        ran.append(arguments)
        return listed.encode()

    config = settings.Settings(slurm=settings.SlurmSettings(live="cli"))
    slurm = slurm_actions.SlurmActions(config, run)
    monkeypatch.setattr(slurm, "nodes", lambda: nodes)
    assert [n.reservation for n in slurm.named_nodes()] == ["row-b", "", "told"]
    monkeypatch.setattr(slurm, "nodes", lambda: nodes[1:])
    assert [n.reservation for n in slurm.named_nodes()] == ["", "told"]
    assert len(ran) == 1


@pytest.mark.parametrize("n_gpus", [None, 0, 8])
def test_how_many_gpus_a_job_holds_is_known_to_the_policy(n_gpus: int | None) -> None:
    """A job without any is no victim of a GPU."""
    assert (
        slurm_actions.job_of(live_records.LiveJob(job_id=7, state="RUNNING", n_gpus=n_gpus)).n_gpus == n_gpus
    )
