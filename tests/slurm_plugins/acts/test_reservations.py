"""Our reservations: never over another's, read back, and no other's name."""

from __future__ import annotations

import pytest

from probing_cluster.core import errors
from probing_cluster.slurm_plugins.acts import reservations

LINE = "ReservationName={} StartTime=2026-11-22T15:05:21 Nodes={} NodeCnt=1 Flags=MAINT,IGNORE_JOBS,SPEC_NODES State=ACTIVE"


class Slurm:
    def __init__(self) -> None:
        self.held = {"theirs": "n[5-6]"}
        self.acts: list[tuple[str, ...]] = []
        self.deaf = False

    def __call__(self, program: str, *arguments: str, environment: object = None) -> bytes:
        if "show" in arguments:
            return (
                "\n".join(LINE.format(n, nodes) for n, nodes in self.held.items()).encode()
                or b"No reservations in the system"
            )
        self.acts.append(arguments)
        given = dict(a.split("=", 1) for a in arguments if "=" in a)
        if "create" in arguments and not self.deaf:
            self.held[given["reservationname"]] = given["nodes"]
        if "delete" in arguments:
            del self.held[given["reservationname"]]
        return b""


def test_made_once_read_back_and_deleted_once() -> None:
    slurm = Slurm()
    ours = reservations.Reservations(slurm, "probing")
    ours.create("probing-n1-x", ["n1"])
    ours.create("probing-n1-x", ["n1"])
    (made,) = slurm.acts
    assert {"users=probing", "duration=UNLIMITED", "flags=maint,ignore_jobs", "nodes=n1"} <= set(made)
    assert [(one.name, one.ours) for one in ours.all()] == [("theirs", False), ("probing-n1-x", True)]
    ours.delete("probing-n1-x")
    ours.delete("probing-n1-x")
    assert list(slurm.held) == ["theirs"]


def test_never_over_anothers_nor_in_anothers_name() -> None:
    slurm = Slurm()
    ours = reservations.Reservations(slurm, "probing")
    with pytest.raises(errors.NotPermitted, match="theirs"):
        ours.create("probing-n5-x", ["n5"])
    for name in ("theirs", "probing-", "probing-a b"):
        with pytest.raises(errors.UsageError):
            ours.delete(name)
    assert slurm.acts == []


def test_what_a_comment_says_is_not_the_reservation() -> None:
    """It stands behind Slurm's own words, and a list in it that is none stopped every repair."""
    line = f"{LINE.format('theirs', 'n[5-6]')} MaxStartDelay=(null) Comment=instead of Nodes=n[1-4 State=INACTIVE"
    (found,) = reservations.parse(line)
    assert (found.nodes, found.state) == (frozenset({"n5", "n6"}), "ACTIVE")


def test_a_reservation_that_slurm_did_not_make_is_an_error() -> None:
    slurm = Slurm()
    slurm.deaf = True
    with pytest.raises(errors.SlurmUnavailable, match="does not cover"):
        reservations.Reservations(slurm, "probing").create("probing-n1-x", ["n1"])


def test_none_is_made_or_deleted_where_the_caller_may_act_no_longer() -> None:
    """Looked at right before; what is only read needs no look."""
    slurm = Slurm()
    reservations.Reservations(slurm, "probing").create("probing-n1-x", ["n1"])
    slurm.acts.clear()

    def lost() -> None:
        raise errors.DatabaseUnavailable("the turn was lost")

    ours = reservations.Reservations(slurm, "probing", lost)
    for act in (lambda: ours.create("probing-n2-x", ["n2"]), lambda: ours.delete("probing-n1-x")):
        with pytest.raises(errors.DatabaseUnavailable):
            act()
    assert slurm.acts == []
    assert "probing-n1-x" in {one.name for one in ours.all()}
