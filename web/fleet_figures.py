"""The fleet's figures, computed beside in a process of their own: whoever looks gets what is there, with its age."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from probing_cluster.control_plane import child_process as processes
from probing_cluster.control_plane import context
from probing_cluster.control_plane.cli.history import fleet_commands
from probing_cluster.core import errors, settings
from probing_cluster.db import store as db_store

LOG = logging.getLogger("probing.web")
KEPT_S = 60.0
"""A figure is computed once a minute at most, however many look at it."""
LONGEST_S, PATIENCE_S = 600.0, 30.0
"""Longest time of a computation, and how long a program that asks for a figure waits."""
MOST_KEPT, MOST_AT_ONCE, MOST_WAITING = 32, 1, 4
"""Spans and partitions whose figures are kept, computations at a time, and requests that wait for one: threads are for others, too."""

Figure = dict[str, Any]


class NotComputed(errors.ProbingError):
    """The figure is not there, or not yet."""


@dataclass(frozen=True, kw_only=True)
class FigureScope:
    """How far back, and of which partition (None: all)."""

    days: int
    partition: str | None = None


@dataclass(frozen=True, kw_only=True)
class FiguresLook:
    """What is there of the figures that somebody wants."""

    found: dict[str, Figure]
    missing: tuple[str, ...]
    at: datetime | None
    """The end of the span of the oldest; None where there is none."""
    computing: bool
    """Whether newer ones are under way."""
    why: str
    """Why the last computation failed; empty where it did not."""


@dataclass(kw_only=True)
class _Kept:
    figures: dict[str, tuple[float, datetime, Figure]] = field(default_factory=dict)
    failed_s: float = float("-inf")
    why: str = ""

    def old(self, names: Iterable[str], now_s: float) -> list[str]:
        """The names whose figures must be computed anew."""
        if now_s - self.failed_s < KEPT_S:
            return []
        return [n for n in names if n not in self.figures or now_s - self.figures[n][0] >= KEPT_S]


class FleetFigures:
    """The figures of one server."""

    def __init__(self, service: context.Context) -> None:
        self._service = service
        self._kept: OrderedDict[FigureScope, _Kept] = OrderedDict()
        self._running: set[FigureScope] = set()
        self._waiting = 0
        self._changed = threading.Condition()

    def look(self, names: Collection[str], scope: FigureScope) -> FiguresLook:
        """What is there now; what is old or missing is computed beside."""
        with self._changed:
            old = self._of(scope).old(names, self._now_s())
            begin = bool(old) and scope not in self._running and len(self._running) < MOST_AT_ONCE
            if begin:
                self._running.add(scope)
        if begin:
            self._service.aside(lambda: self._compute(old, scope))
        with self._changed:
            return self._look(names, scope)

    def wait_for(self, name: str, scope: FigureScope) -> Figure:
        """One figure that is no older than a minute; raises NotComputed where that takes too long or fails."""
        end_s = time.monotonic() + PATIENCE_S
        with self._changed:
            if self._waiting >= MOST_WAITING:
                raise NotComputed("others wait for figures already; ask again in a few seconds")
            self._waiting += 1
        try:
            while True:
                self.look([name], scope)
                with self._changed:
                    if not self._of(scope).old([name], self._now_s()):
                        found = self._look([name], scope)
                        break
                    left_s = end_s - time.monotonic()
                    if left_s <= 0:
                        raise NotComputed("it is being computed; ask again in a few seconds")
                    self._changed.wait(left_s)
        finally:
            with self._changed:
                self._waiting -= 1
        if found.why:
            raise NotComputed(found.why)
        return found.found[name]

    def _now_s(self) -> float:
        return self._service.clock.monotonic_s()

    def _of(self, scope: FigureScope) -> _Kept:
        kept = self._kept.setdefault(scope, _Kept())
        self._kept.move_to_end(scope)
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return kept

    def _look(self, names: Iterable[str], scope: FigureScope) -> FiguresLook:
        kept = self._of(scope)
        there = {n: kept.figures[n] for n in names if n in kept.figures}
        return FiguresLook(
            found={n: figure for n, (_, _, figure) in there.items()},
            missing=tuple(n for n in names if n not in there),
            at=min((at for _, at, _ in there.values()), default=None),
            computing=bool(self._running),
            why=kept.why,
        )

    def _compute(self, names: list[str], scope: FigureScope) -> None:
        until, why = self._service.clock.now(), ""
        found: dict[str, Figure] = {}
        given = (names, until - timedelta(days=scope.days), until, scope.partition)
        try:
            service = self._service
            found = (
                processes.run(__name__, service.config, *given, timeout_s=LONGEST_S)
                if service.in_children
                else _figures(service.store, service.config, *given)
            )
        except errors.ProbingError as exc:
            why = str(exc)
            LOG.warning("the fleet's figures could not be computed", extra={"fields": {"why": why}})
        except Exception:  # whoever looks is told; the server goes on
            why = "the server broke on them; its log says where"
            LOG.exception("the fleet's figures could not be computed")
        with self._changed:
            kept, now_s = self._of(scope), self._now_s()
            kept.why, kept.failed_s = why, now_s if why else float("-inf")
            kept.figures |= {name: (now_s, until, figure) for name, figure in found.items()}
            self._running.discard(scope)
            self._changed.notify_all()


def in_child(
    config: settings.Settings, names: list[str], since: datetime, until: datetime, partition: str | None
) -> dict[str, Figure]:
    """The child's side."""
    with db_store.Store.open(config) as store:
        return _figures(store, config, names, since, until, partition)


def _figures(
    store: db_store.Store,
    config: settings.Settings,
    names: list[str],
    since: datetime,
    until: datetime,
    partition: str | None,
) -> dict[str, Figure]:
    """Several figures of one span, for which attempts and events are read once."""
    last = store.recorded_until(until)
    since, until = last - (until - since), last
    about = {"since": since, "until": until, "partition": partition, "users": None}
    source, begin = fleet_commands.read_once(store), store.first_start()
    figures = (fleet_commands.compute(name, store, config, about, {}, source, begin=begin) for name in names)
    return {name: fleet_commands.as_json(figure, since) for name, figure in zip(names, figures, strict=True)}
