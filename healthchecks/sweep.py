"""The sweep as the resident agent embeds it: a process of its own that runs the checks and answers in JSON lines.

The agent may have threads; forking in it would be unsafe, and a check must never be able to
block it. So the runner lives in one small single-threaded child, which forks a child per lane.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from probing_cluster.core import certificates, clock, processes, records
from probing_cluster.healthchecks import checkresults, json_child, nodeview, registry, runner, site
from probing_cluster.healthchecks.readers import nvml_snapshot, slurm_conf

MARGIN_S = 5.0
"""What the sweep process gets beyond its own watchdog before it is taken for dead."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Everything the sweep process needs to know, as plain values."""

    node: str
    cluster: str = "cluster"
    root: str = "/"
    site_file: str = ""
    """Empty: the defaults."""
    state_file: str = ""
    """Where checks remember counters between runs; empty: only in memory."""
    nvml_library: str = ""
    command_dirs: tuple[str, ...] = ()
    watchdog_s: float = runner.WATCHDOG_S
    certificates: tuple[tuple[str, str, bool], ...] = ()
    """What `certificates.CertificateFile` says of each file: its key, path, whether it is an authority's."""


class Sweep:
    """The checks of this node, run by a child process that is replaced when it fails."""

    def __init__(self, config: Config, *, edge: processes.Edge = processes.EDGE) -> None:
        self.config = config
        self.latest: dict[str, records.CheckResult] = {}
        """The standing result of every check, by name."""
        self.heartbeat: records.CheckResult | None = None
        """The last sweep as one result named `sweep`: store one per sweep."""
        self._child = json_child.JsonChild(
            [sys.executable, "-I", "-m", __name__, json.dumps(dataclasses.asdict(config))], edge=edge
        )

    @property
    def pid(self) -> int | None:
        """The sweep process while it runs."""
        return self._child.pid

    @property
    def forked(self) -> bool:
        """Whether the sweep process is a copy of this one."""
        return self._child.forked

    def fork(self) -> None:
        """Start the sweep process now as a copy of this one, to be kept; only while there are no threads.

        Importing the checks costs five times a sweep: a process of its own for each sweep pays it every time.
        """
        self._child.fork(lambda: serve(self.config))

    def run(
        self,
        now: datetime | None = None,
        names: Iterable[str] | None = None,
        *,
        force: bool = False,
        expected: nodeview.Expectations | None = None,
        agent: Mapping[str, Any] | None = None,
    ) -> list[records.CheckResult]:
        """Measure what is due (or `names`, at once) and return what stands; never raises, never outlasts the watchdog.

        `expected` is what Slurm configured and allocated, `agent` what the agent knows about
        itself (`agent_problem` is shown by agent_self). Without an answer the result is one
        error named `sweep`.
        """
        ask = {
            "names": None if names is None else list(names),
            "force": force,
            "expected": None if expected is None else expectations_to_json(expected),
            "agent": dict(agent or {}),
        }
        try:
            reply = self._child.ask(ask, deadline_s=self.config.watchdog_s + MARGIN_S)
            results = [checkresults.from_json(row) for row in reply["results"]]
            self.heartbeat = checkresults.from_json(reply["heartbeat"])
        except (processes.ChildFailed, KeyError, ValueError, TypeError) as exc:
            self.heartbeat = self._failed(str(exc), now)
            return [self.heartbeat]
        self.latest |= checkresults.by_name(results)
        return results

    def clear(self, names: Iterable[str] | None = None) -> None:
        """A person says that what these checks (None = all) found is repaired: only what comes after counts; raises ChildFailed."""
        chosen = None if names is None else [registry.get(n).name for n in names]
        self._child.ask({"clear": chosen}, deadline_s=self.config.watchdog_s + MARGIN_S)

    def changed(self, previous: Mapping[str, records.CheckResult]) -> list[records.CheckResult]:
        """Standing results that differ from `previous` in what matters: those to store."""
        return checkresults.changed(previous, self.latest.values())

    def close(self) -> None:
        """End the child and everything it started."""
        self._child.close()

    def _failed(self, text: str, now: datetime | None) -> records.CheckResult:
        return records.CheckResult(
            cluster=self.config.cluster,
            node=self.config.node,
            name="sweep",
            outcome=records.Outcome.ERROR,
            severity=records.Severity.INFO,
            message=f"the sweep gave no answer: {text}",
            at=now or clock.SYSTEM.now(),
        )


_SETS = ("uids", "running", "ended")
"""Expectations that are sets."""


def expectations_to_json(expected: nodeview.Expectations) -> dict[str, Any]:
    """Expectations as JSON-ready values."""
    row = dataclasses.asdict(expected)
    sets = {name: getattr(expected, name) for name in _SETS}
    return {
        **row,
        **{name: None if found is None else sorted(found) for name, found in sets.items()},
        "allocated": expected.allocated and {str(k): list(v) for k, v in expected.allocated.items()},
    }


def expectations_from_json(row: Mapping[str, Any]) -> nodeview.Expectations:
    """The expectations that `expectations_to_json` wrote."""
    given = row["allocated"]
    return nodeview.Expectations(**{
        **row,
        **{name: None if row[name] is None else frozenset(row[name]) for name in _SETS},
        "allocated": None if given is None else {int(k): tuple(v) for k, v in given.items()},
    })  # fmt: skip


def make_runner(config: Config) -> runner.CheckRunner:
    """The runner of a configuration, in this process."""
    spec = nodeview.NodeSpec(
        node=config.node,
        cluster=config.cluster,
        root=Path(config.root),
        command_dirs=tuple(config.command_dirs),
        nvml_library=config.nvml_library or None,
        certificates=tuple(
            certificates.CertificateFile(key=key, path=Path(path), authority=authority)
            for key, path, authority in config.certificates
        ),
    )
    site_file = site.SiteFile(Path(config.site_file) if config.site_file else None)
    state = Path(config.state_file) if config.state_file else None
    return runner.CheckRunner(spec, site_file, state_file=state, watchdog_s=config.watchdog_s)


def answer(engine: runner.CheckRunner, ask: Mapping[str, Any]) -> dict[str, Any]:
    """What the sweep process replies to one request."""
    if "clear" in ask:
        engine.clear(ask["clear"])
        return {}
    fields = ask["expected"]
    expected = nodeview.Expectations() if fields is None else expectations_from_json(fields)
    spec = dataclasses.replace(engine.spec, expected=expected, self_state=ask["agent"])
    engine.spec = slurm_conf.expecting(spec)
    swept = engine.run(ask["names"], force=ask["force"])
    return {
        "results": [checkresults.to_json(r) for r in swept.results],
        "heartbeat": checkresults.to_json(swept.heartbeat),
    }


def main() -> int:
    """The sweep process as a program of its own."""
    arguments: dict[str, Any] = json.loads(sys.argv[1])
    listed = {name: tuple(value) for name, value in arguments.items() if isinstance(value, list)}
    return serve(Config(**{**arguments, **listed}))


def serve(config: Config) -> int:
    """One JSON request per line on stdin, one reply per line on stdout, until stdin closes."""
    engine = make_runner(config)
    registry.load()
    with contextlib.suppress(OSError):  # no library: no GPU lane worth preparing
        nvml_snapshot.load(config.nvml_library or None)
    gc.collect()
    gc.freeze()  # children forked from here share these pages instead of copying them
    for line in sys.stdin.buffer:
        reply = json.dumps(answer(engine, json.loads(line)), separators=(",", ":"))
        sys.stdout.write(reply + "\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
