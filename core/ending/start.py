"""What the commands' scripts call: each command's modules are loaded where Ctrl-C and a missing library are no traceback.

Modules are named, not imported: a host has the libraries of its role only, and this room lies below them all.
"""

from __future__ import annotations

import functools
import importlib
import signal
from collections.abc import Sequence


def _start(program: str, module: str, argv: Sequence[str] | None = None) -> int:
    # While modules load there is nothing to undo: the signal ends the process as it ends any other program. As an exception it would
    # end in whatever module is half loaded.
    ignores_interrupt = signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    if not ignores_interrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from probing_cluster.core.ending import run_command

    def work() -> int:
        main = importlib.import_module(module).main
        if not ignores_interrupt:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        code: int = main(argv)
        return code

    return run_command.run(program, work)


agent = functools.partial(_start, "probing-agent", "probing_cluster.probe_agent.cli")
check = functools.partial(_start, "probing-check", "probing_cluster.healthchecks.cli")
ctl = functools.partial(_start, "probing-ctl", "probing_cluster.control_plane.cli.main")
diagnose = functools.partial(_start, "probing-diagnose", "probing_cluster.diagnostics.worker")
node_helper = functools.partial(
    _start, "probing-node-helper", "probing_cluster.slurm_plugins.acts.node_helper"
)
report = functools.partial(_start, "probing-report", "probing_cluster.reports.cli")
sandbox = functools.partial(_start, "probing-sandbox", "probing_cluster.sandbox.cli")
