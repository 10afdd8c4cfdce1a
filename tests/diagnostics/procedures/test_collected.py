"""What is collected for a ticket: by real processes, with fakes of the vendor's tools on the path."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probing_cluster.core import records
from probing_cluster.diagnostics import machine
from probing_cluster.diagnostics.procedures import bug_report, kernel_log, parts
from probing_cluster.healthchecks import findings

SMI = "0, 1652223001, GPU-a, NVIDIA H200, 00000000:18:00.0, 96.00\n1, [N/A], GPU-b, NVIDIA H200, 00000000:3B:00.0, 96.00\n"


@pytest.fixture
def node(tmp_path: Path) -> machine.Machine:
    (tmp_path / "bin").mkdir()
    board = tmp_path / "root/sys/class/dmi/id"
    board.mkdir(parents=True)
    (board / "board_serial").write_text("B7\n")
    options = machine.Options(command_directories=(str(tmp_path / "bin"),), disk_directory=str(tmp_path))
    return machine.Machine(node="n1", options=options, root=tmp_path / "root")


def tool(node: machine.Machine, name: str, script: str) -> None:
    path = Path(node.options.command_directories[0]) / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_board_and_gpus_by_serial_number(node: machine.Machine) -> None:
    tool(node, "nvidia-smi", f"printf '{SMI}'")
    found = {f.device: f for f in parts.run(node)}
    assert found["board"].detail == {"board_serial": "B7"}
    assert found["gpu0"].detail["serial"] == "1652223001"
    assert "GPU-b" in found["gpu1"].message
    tool(node, "nvidia-smi", "exit 9")
    assert {f.device: f.outcome for f in parts.run(node)}["gpu"] is records.Outcome.ABSENT
    bare = dataclasses.replace(node, root=Path("/nowhere"))
    assert {f.outcome for f in parts.run(bare)} == {records.Outcome.ABSENT}


@given(st.text(max_size=200))
def test_no_output_of_nvidia_smi_makes_it_fail(text: str) -> None:
    assert len(parts.gpus(SMI + text)) >= 1


def test_the_vendor_s_report_stays_on_the_node_and_is_named(node: machine.Machine) -> None:
    with pytest.raises(findings.Absent):
        bug_report.run(node)
    tool(node, "nvidia-bug-report.sh", 'echo report > "$2.gz"')
    (found,) = bug_report.run(node)
    path = Path(str(found.detail["path"]))
    assert path.read_text() == "report\n"
    assert path.stat().st_mode & 0o077 == 0
    path.unlink()
    tool(node, "nvidia-bug-report.sh", "echo not root; exit 1")
    with pytest.raises(findings.Undetermined, match="not root"):
        bug_report.run(node)


def test_the_end_of_the_kernel_log(node: machine.Machine) -> None:
    tool(node, "dmesg", "seq 1 50")
    (found,) = kernel_log.run(node)
    assert (found.detail["00"], found.detail["29"]) == ("21", "50")
    tool(node, "dmesg", "echo Operation not permitted; exit 1")
    with pytest.raises(findings.Absent, match="not permitted"):
        kernel_log.run(node)
