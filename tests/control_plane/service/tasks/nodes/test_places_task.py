"""Slurm's topology and the site's table become rows with dates, and the picture names the place at fault."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from pathlib import Path

import fakes
import pytest

from probing_cluster.control_plane import context
from probing_cluster.control_plane.policy import view
from probing_cluster.control_plane.service import picture
from probing_cluster.control_plane.service.tasks.nodes import places
from probing_cluster.core import errors, records

AT = fakes.NOW


def site(service: context.Context, text: str, tmp_path: Path) -> context.Context:
    file = tmp_path / "places.csv"
    file.write_text(text)
    cluster = dataclasses.replace(service.config.cluster, places_file=str(file))
    return dataclasses.replace(service, config=dataclasses.replace(service.config, cluster=cluster))


def now(service: context.Context) -> set[tuple[str, str, str]]:
    return {(p.node, p.kind, p.place) for p in service.store.places("c") if p.until_at is None}


def test_what_moves_keeps_its_dates(service: context.Context, slurm: fakes.FakeSlurm, tmp_path: Path) -> None:
    """A second look at the same changes nothing; a node that moves ends one row and begins another; it may come back."""
    slurm.switches = [("n1", "leaf", "l1"), ("n2", "leaf", "l1")]
    both = site(service, "node,rack\nn[1-2],r1\n", tmp_path)
    assert places.run(both) == "4 places of nodes changed"
    assert places.run(both) == ""
    service.clock.at = AT + timedelta(hours=1)  # type: ignore[attr-defined]
    (tmp_path / "places.csv").write_text("node,rack\nn1,r1\nn2,r2\n")
    assert places.run(both) == "2 places of nodes changed"
    assert now(both) == {
        ("n1", "leaf", "l1"),
        ("n2", "leaf", "l1"),
        ("n1", "rack", "r1"),
        ("n2", "rack", "r2"),
    }
    (old,) = (p for p in service.store.places("c") if p.until_at is not None)
    assert (old.node, old.place, old.since_at, old.until_at) == ("n2", "r1", AT, AT + timedelta(hours=1))
    service.clock.at = AT + timedelta(hours=2)  # type: ignore[attr-defined]
    (tmp_path / "places.csv").write_text("node,rack\nn[1-2],r1\n")
    places.run(both)
    assert len([p for p in service.store.places("c") if (p.node, p.place) == ("n2", "r1")]) == 2


def test_slurm_away_or_a_bad_table_leaves_what_was_known(
    service: context.Context, slurm: fakes.FakeSlurm, tmp_path: Path
) -> None:
    """Neither ends a place."""
    slurm.switches = [("n1", "leaf", "l1")]
    both = site(service, "node,rack\nn1,r1\n", tmp_path)
    places.run(both)
    known = now(both)
    (tmp_path / "places.csv").write_text("node,rack\nn1\n")
    with pytest.raises(errors.MalformedInput, match="line 2"):
        places.run(both)
    slurm.down = True
    with pytest.raises(errors.SlurmUnavailable):
        places.run(both)
    assert now(both) == known


def test_the_picture_names_the_place_at_fault(service: context.Context, slurm: fakes.FakeSlurm) -> None:
    """From the agents' present faults of shared parts; lost GPUs of as many nodes share no place."""
    service.store.save_places("c", ["leaf"], [(f"n{i}", "leaf", f"l{i // 8}") for i in range(400)], AT)

    def picture_of(fault: str) -> view.View:
        beats = {
            f"n{i}": records.AgentHeartbeat(
                cluster="c",
                node=f"n{i}",
                at=AT,
                boot_id="b",
                faults={fault: {"severity": "high", "code": fault.split(":")[2]}},
            )
            for i in range(8)
        }
        bare = {
            n: dataclasses.replace(b, faults={fault.rpartition(":")[0]: b.faults[fault]})
            for n, b in beats.items()
        }
        return picture.with_slurm(view.View(now=AT, heartbeats=bare), service)

    found = picture_of("ib_link:mlx5_0:down")
    assert found.shared is not None
    assert (found.shared.name, len(found.shared_nodes)) == ("l0", 8)
    assert picture_of("xid:gpu0:79").shared is None
