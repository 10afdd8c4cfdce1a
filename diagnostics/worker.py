"""`probing-diagnose`: what runs on each node of a test's job step.

It reads one step from standard input and prints a line per finding; with `--here` it runs tests of this node alone, for
a person at the node. Every test runs in a child of its own under a deadline, so that one that hangs or dies costs only itself.
"""

from __future__ import annotations

import argparse
import dataclasses
import socket
import sys
from collections.abc import Callable, Sequence
from typing import Any

from probing_cluster.core import command_line, errors, records
from probing_cluster.core.ending import run_command
from probing_cluster.diagnostics import machine, registry, wire
from probing_cluster.healthchecks import findings, lanes, runner

MakeMachine = Callable[..., machine.Machine]


def main(argv: Sequence[str] | None = None, make: MakeMachine = machine.Machine) -> int:
    """Runs the step on standard input; the exit status of the process."""
    return run_command.run("probing-diagnose", lambda: _main(argv, make))


def _main(argv: Sequence[str] | None, make: MakeMachine) -> int:
    parser = argparse.ArgumentParser(prog="probing-diagnose", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--list", action="store_true", help="list the tests and end")
    parser.add_argument(
        "--here", metavar="TESTS", help="run these tests on this node, now, beside whatever runs (a,b or all)"
    )
    parser.add_argument(
        "--torch-python", default="", metavar="PATH", help="with --here: a Python with torch, for GPUs"
    )
    command_line.add_version(parser)
    options = parser.parse_args(argv)
    if options.list:
        for test in registry.load().values():
            print(f"{test.name:<12} {test.scope:<6} {test.proves}")  # noqa: T201 - it is the answer
        return 0
    if options.here is not None:
        return here(options.here, machine.Options(torch_python=options.torch_python), make)
    step = wire.WireStep.decode(sys.stdin.buffer.readline())
    run(step, runner.local_node(), make, _write_line)
    return 0


def here(names: str, options: machine.Options, make: MakeMachine) -> int:
    """Tests of one node, run and printed; 2 when one fails, as `probing-check` has it. Raises UsageError."""
    wanted = registry.chosen([] if names == "all" else [name for name in names.split(",") if name])
    if names != "all" and (others := [test.name for test in wanted if test.scope != "node"]):
        raise errors.UsageError(
            f"{', '.join(others)} is no test of one node by itself: probing-ctl diagnose NODES runs it in a job"
        )
    node = runner.local_node()
    alone = machine.Group(members=(node,), addresses={node: (socket.gethostname(), 0)}, token=b"")
    this = make(node=node, options=options, group=alone)
    worst = 0
    for test in wanted:
        for found, duration_s in _isolated(test, this, test.deadline_s) if test.scope == "node" else ():
            part = f"{test.name} {found.device or ''}".strip()
            _write_line(f"{found.outcome.value:<7} {part:<22} {duration_s:5.1f} s  {found.message}")
            worst = max(worst, 2 * (found.outcome is records.Outcome.FAIL))
    return worst


def run(step: wire.WireStep, node: str, make: MakeMachine, write_line: Callable[[str], None]) -> None:
    """Every test of the step, here and now; one line per finding as soon as it is there."""
    group = next((members for members in step.groups if node in members), None)
    together = machine.Group(
        members=group or (node,), addresses=step.addresses, token=bytes.fromhex(step.token)
    )
    here = make(node=node, options=step.options, group=together)
    if step.command and node in step.command_nodes:
        _repair(step, here, write_line)
    for test in registry.chosen(step.tests):
        if test.scope in ("pair", "group") and (group is None or len(group) < 2):
            continue
        for found, duration_s in _isolated(test, here, step.test_s):
            write_line(wire.line(test.name, node, found, duration_s, test.version))


def _repair(step: wire.WireStep, here: machine.Machine, write_line: Callable[[str], None]) -> None:
    """The repair step first; a line says how it ended, and it fails no test by itself."""
    try:
        code, output = here.run_tool(["/bin/sh", "-c", step.command], step.test_s)
        last = (output.strip().splitlines() or ["no output"])[-1]
        found = findings.ok(last) if code == 0 else findings.warn(f"ended with {code}: {last}")
    except findings.Undetermined as exc:
        found = findings.warn(str(exc))
    write_line(wire.line(REPAIR, here.node, found, 0.0, "1"))


REPAIR = "repair-step"
"""The name under which a repair step reports."""


def _isolated(
    test: registry.Test, here: machine.Machine, most_s: float
) -> list[tuple[findings.Finding, float]]:
    deadline_s = min(test.deadline_s, most_s)

    def work(_: lanes.Facts) -> dict[str, Any]:
        try:
            return {"findings": [dataclasses.asdict(found) for found in test.run(here)]}
        except findings.Absent as exc:
            return {"findings": [dataclasses.asdict(findings.absent(str(exc.args[0])))]}
        except findings.Undetermined as exc:
            return {"findings": [dataclasses.asdict(findings.unseen(str(exc.args[0])))]}

    lane = [lanes.Step(key=test.name, work=work, deadline_s=deadline_s)]
    answer = lanes.Lanes().run([lane], watchdog_s=deadline_s + 5)[0][test.name]
    if answer.value is None:
        # It hung or died: on a shared file system or a GPU that is the finding, yet it does not say whose fault it is.
        return [(findings.unseen(str(answer.error), timed_out=answer.timed_out), answer.duration_s)]
    return [(_finding(row), answer.duration_s) for row in answer.value["findings"]]


def _finding(row: dict[str, Any]) -> findings.Finding:
    return findings.Finding(**{**row, "outcome": records.Outcome(row["outcome"]), "severity": None})


def _write_line(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
