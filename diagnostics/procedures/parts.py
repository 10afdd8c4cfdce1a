"""Which parts the node has, by serial number: what a technician and a vendor ask for first."""

from __future__ import annotations

from collections.abc import Sequence

from probing_cluster.core import digits, sanitize
from probing_cluster.diagnostics import machine, registry
from probing_cluster.healthchecks import findings

_BOARD = (
    "sys_vendor",
    "product_name",
    "product_serial",
    "board_name",
    "board_serial",
    "chassis_serial",
    "bios_version",
)
_GPU = ("index", "serial", "uuid", "name", "pci.bus_id", "vbios_version")


def run(node: machine.Machine) -> Sequence[findings.Finding]:
    made = [_board(node)]
    try:
        program = str(node.tool("nvidia-smi"))
        code, output = node.run_tool(
            [program, f"--query-gpu={','.join(_GPU)}", "--format=csv,noheader"], 30.0
        )
        made += gpus(output) if code == 0 else [findings.absent("nvidia-smi gave no answer", device="gpu")]
    except (findings.Absent, findings.Undetermined) as exc:
        made.append(findings.absent(str(exc), device="gpu"))
    return made


def _board(node: machine.Machine) -> findings.Finding:
    """Serial numbers in /sys are root's alone to read: without it the names are there."""
    found = {}
    for name in _BOARD:
        try:
            text = (
                (node.root / "sys/class/dmi/id" / name).read_text(encoding="utf-8", errors="replace").strip()
            )
        except OSError:
            continue
        if text:
            found[name] = sanitize.clean(text, 80)
    if not found:
        return findings.absent("the firmware names no board here", device="board")
    return findings.ok(", ".join(f"{k} {v}" for k, v in found.items()), device="board", detail=found)


def gpus(output: str) -> list[findings.Finding]:
    """One finding per line that nvidia-smi printed."""
    made = []
    for line in output.splitlines():
        row = [word.strip() for word in line.split(",")]
        if len(row) != len(_GPU) or not digits.is_number(row[0]):
            continue
        found = {name: sanitize.clean(value, 80) for name, value in zip(_GPU[1:], row[1:], strict=True)}
        words = f"serial {found['serial']}, {found['uuid']}"
        made.append(findings.ok(words, device=f"gpu{int(row[0])}", detail=found | {"model": found["name"]}))
    return made


TEST = registry.Test(
    name="parts",
    proves="Nothing: it names board, node and GPUs by serial number, for the ticket of a node that failed.",
    needs="nvidia-smi for GPUs; serial numbers of boards are readable by root alone",
    fails="never",
    next_step="Give the serial numbers to the vendor.",
    run=run,
    scope="after",
    deadline_s=40.0,
)
