"""`probing-diagnose`: what runs on each node of a test's job step.

It reads one step from standard input and prints a line per finding. Every test runs in a child of its own under a
deadline, so that one that hangs or dies costs only itself.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Callable, Sequence
from typing import Any

from probing_cluster.core import command_line, errors, records
from probing_cluster.diagnostics import machine, registry, wire
from probing_cluster.healthchecks import findings, lanes, runner

MakeMachine = Callable[..., machine.Machine]


def main(argv: Sequence[str] | None = None, make: MakeMachine = machine.Machine) -> int:
    """Runs the step on standard input; the exit status of the process."""
    parser = argparse.ArgumentParser(prog="probing-diagnose", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--list", action="store_true", help="list the tests and end")
    command_line.add_version(parser)
    options = parser.parse_args(argv)
    if options.list:
        for test in registry.load().values():
            print(f"{test.name:<12} {test.scope:<6} {test.proves}")  # noqa: T201 - it is the answer
        return 0
    try:
        step = wire.Step.decode(sys.stdin.buffer.readline())
        run(step, runner.local_node(), make, _write_line)
    except errors.ProbingError as exc:
        sys.stderr.write(f"probing-diagnose: {exc}\n")
        return exc.exit_code
    return 0


def run(step: wire.Step, node: str, make: MakeMachine, write_line: Callable[[str], None]) -> None:
    """Every test of the step, here and now; one line per finding as soon as it is there."""
    group = next((members for members in step.groups if node in members), None)
    together = machine.Group(
        members=group or (node,), addresses=step.addresses, token=bytes.fromhex(step.token)
    )
    here = make(node=node, options=step.options, group=together)
    if step.command:
        _repair(step, here, write_line)
    for test in registry.chosen(step.tests):
        if test.scope != "node" and (group is None or len(group) < 2):
            continue
        for found, duration_s in _isolated(test, here, step.test_s):
            write_line(wire.line(test.name, node, found, duration_s, test.version))


def _repair(step: wire.Step, here: machine.Machine, write_line: Callable[[str], None]) -> None:
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
