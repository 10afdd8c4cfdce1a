"""How far long work has got, on standard error: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Self

from probing_cluster.core import clock

if TYPE_CHECKING:
    from rich import progress as rich_progress

SILENT_S = 10.0
"""Work that is over sooner says nothing."""
EVERY_S = 15.0
"""Between two lines where no terminal is."""


class ProgressBar:
    """`with Progress("fleet", 12, "figures") as done: … done.step()`; nothing of it reaches standard output."""

    def __init__(
        self, what: str, total: int | None, unit: str | None, *, time: clock.Clock = clock.SYSTEM
    ) -> None:
        """`unit` None: work that is not counted, only named by `at`."""
        self._what, self._total, self._unit, self._time = what, total, unit, time
        self._n, self._now = 0, ""
        self._printed_s = time.monotonic_s() + SILENT_S - EVERY_S
        self._bar: rich_progress.Progress | None = None
        self._task: rich_progress.TaskID | None = None
        self._began_s = time.monotonic_s()
        self._over = threading.Event()
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            self._bar = self._started()
        else:
            threading.Thread(target=self._tick, name=f"progress of {self._what}", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._bar is not None:
            self._bar.stop()

    def _tick(self) -> None:
        """One long step says that it goes on, too."""
        while not self._over.wait(EVERY_S):
            self._show()

    def at(self, name: str) -> None:
        """What is worked on now."""
        self._now = name
        self._show()

    def step(self, n: int = 1) -> None:
        """Advances the bar by this much."""
        self._n += n
        self._show()

    def _show(self) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=self._n, now=self._now)
            return
        now_s = self._time.monotonic_s()
        with self._lock:
            if now_s - self._printed_s < EVERY_S:
                return
            self._printed_s = now_s
        took = f"{now_s - self._began_s:.0f} s"
        if self._unit is None:
            line = f"{self._now or 'working'} … ({took})"
        else:
            of = f" of {self._total:,}" if self._total is not None else ""
            at = f": {self._now}" if self._now else ""
            line = f"{self._n:,}{of} {self._unit} in {took}{at}"
        sys.stderr.write(f"probing-ctl: {self._what}: {line}\n")
        sys.stderr.flush()

    def _started(self) -> rich_progress.Progress:
        """A bar that leaves the screen as it was."""
        from rich import console, progress

        columns: list[progress.ProgressColumn] = [progress.TextColumn(self._what, markup=False)]
        columns += [progress.BarColumn()] if self._total is not None else [progress.SpinnerColumn()]
        if self._unit is not None:
            columns += [progress.TextColumn("{task.completed:,.0f} " + self._unit, markup=False)]
        columns += [
            progress.TimeElapsedColumn(),
            progress.TextColumn("{task.fields[now]}", markup=False),
        ]
        # Standard output is the answer: it is never drawn over nor sent through the bar's console.
        made = progress.Progress(
            *columns,
            console=console.Console(stderr=True),
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task = made.add_task(self._what, total=self._total, now="")
        made.start()
        return made
