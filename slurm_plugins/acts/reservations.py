"""Reservations of ours: named by node and incident, maintenance flags, never over another's, never expiring by themselves."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from probing_cluster.core import errors, hostlist, records, vocabulary
from probing_cluster.slurm_plugins import commands

_FIELD = re.compile(r"(\w+)=(\S*)")
_NAME = re.compile(r"probing-[A-Za-z0-9._-]{1,100}", re.ASCII)
_FLAGS = "maint,ignore_jobs"


@records.record
class Reservation:
    """One reservation as Slurm shows it."""

    name: str = records.doc("its name")
    nodes: frozenset[str] = records.doc("nodes it covers")
    state: str = records.doc("ACTIVE or INACTIVE", default="")
    flags: frozenset[str] = records.doc("MAINT, IGNORE_JOBS …", default=frozenset())

    @property
    def ours(self) -> bool:
        """Whether we made it."""
        return self.name.startswith(vocabulary.RESERVATION_PREFIX)

    @property
    def keeps_users_off(self) -> bool:
        """Whether it holds now, for maintenance: Slurm starts no job of others on its nodes."""
        return self.state == "ACTIVE" and "MAINT" in self.flags


class Reservations:
    """Slurm's reservations; raises SlurmUnavailable. An Operator's rights are enough.

    `before_act` is called right before one is made or deleted, which is not done when it raises.
    """

    def __init__(
        self, run: commands.Runner, user: str, before_act: Callable[[], None] = lambda: None
    ) -> None:
        self._run = run
        self._user = user
        self._before_act = before_act

    def all(self) -> list[Reservation]:
        """Every reservation."""
        return parse(self._run("scontrol", "-a", "-o", "show", "reservation").decode("utf-8", "replace"))

    def create(self, name: str, nodes: Iterable[str]) -> None:
        """Ours over these nodes, from now and for a year; one of that name that covers them is left as it is."""
        _require(name)
        wanted = frozenset(nodes)
        found = {one.name: one for one in self.all()}
        if name in found:
            if found[name].nodes == wanted:
                return
            self.delete(name)
        others = [one.name for one in found.values() if one.name != name and one.nodes & wanted]
        if others:
            raise errors.NotPermitted(
                f"reservation {', '.join(sorted(others))} lies over {hostlist.compress(sorted(wanted))}"
            )
        self._before_act()
        self._run(
            "scontrol",
            "create",
            "reservation",
            f"reservationname={name}",
            f"users={self._user}",
            f"nodes={','.join(sorted(wanted))}",
            "starttime=now",
            "duration=UNLIMITED",
            f"flags={_FLAGS}",
        )
        made = next((one for one in self.all() if one.name == name), None)
        if made is None or made.nodes != wanted:
            raise errors.SlurmUnavailable(
                f"Slurm accepted reservation {name}, yet it does not cover its nodes"
            )

    def delete(self, name: str) -> None:
        """Takes ours away; nothing to do where there is none."""
        _require(name)
        if any(one.name == name for one in self.all()):
            self._before_act()
            self._run("scontrol", "delete", f"reservationname={name}")


def name_for(node: str, tail: str) -> str:
    """The name of the reservation in which this node is repaired; `tail` has eight hexadecimal digits."""
    return f"{vocabulary.RESERVATION_PREFIX}{node}-{tail}"


def is_repair_of(name: str, node: str) -> bool:
    """Whether a reservation's name is one under which this node is repaired, not one beside it."""
    return re.fullmatch(rf"{re.escape(name_for(node, ''))}[0-9a-f]{{8}}", name) is not None


def parse(text: str) -> list[Reservation]:
    """Reservations of `scontrol -o show reservation`."""
    found = []
    for line in text.splitlines():
        # A person's comment stands behind all that Slurm says, and may hold such words: the first of each counts.
        fields = dict(reversed(_FIELD.findall(line)))
        if "ReservationName" not in fields:
            continue
        listed = fields.get("Nodes", "")
        nodes = frozenset(hostlist.expand(listed)) if listed not in {"", "(null)"} else frozenset()
        flags = frozenset(fields.get("Flags", "").split(","))
        found.append(
            Reservation(
                name=fields["ReservationName"], nodes=nodes, state=fields.get("State", ""), flags=flags
            )
        )
    return found


def _require(name: str) -> None:
    if _NAME.fullmatch(name) is None:
        raise errors.UsageError(f"{name!r} is not the name of a reservation of ours")
