"""`probing-check` as a person or a script calls it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from probing_cluster.healthchecks import cli, exit_codes, registry, site

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(node: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs the command on the fixture node; gives exit code, stdout and stderr."""
    config = node.put(
        "probing.toml", f'[agent]\nroot = "{node.root}"\nnode = "n1"\nnvml_library = "/none.so"\n'
    )
    monkeypatch.setenv("PROBING_CONFIG", str(config))

    def run(*args: str) -> tuple[int, str, str]:
        try:
            code = cli.main(args)
        except SystemExit as exc:
            code = int(exc.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_exit_codes_of_outcomes(node: Any, call: Call) -> None:
    """0 for ok and absent, 1 for a warning, 3 for an error, 2 for a failure before everything else."""
    assert call("run", "uptime", "raid")[0] == exit_codes.OK
    node.put("sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet")
    assert call("run", "clock_source", "uptime")[0] == exit_codes.WARN
    assert call("run", "clock_source", "load")[0] == exit_codes.ERROR
    node.put("proc/sys/kernel/tainted", "128")
    assert call("run", "clock_source", "load", "kernel_taint")[0] == exit_codes.FAIL


def test_a_node_without_anything(call: Call) -> None:
    """A sweep of an almost empty node ends, says what is absent and hides nothing."""
    code, out, _ = call("run")
    assert code == exit_codes.ERROR
    assert "absent (" in out
    assert f"n1: {len(registry.load())} checks:" in out
    assert max(len(line) for line in out.splitlines()) <= 80


def test_json(node: Any, call: Call) -> None:
    """JSON holds every field of every result and the exit code."""
    node.put("proc/sys/kernel/tainted", "128")
    code, out, _ = call("run", "kernel_taint", "--json")
    captured = json.loads(out)
    assert (code, captured["exit_code"], captured["node"]) == (2, 2, "n1")
    row = captured["results"][0]
    assert (row["name"], row["outcome"], row["severity"], row["measured"]) == (
        "kernel_taint",
        "fail",
        "low",
        128.0,
    )
    assert row["at"].endswith("+00:00")


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("frobnicate",),
        ("run", "gpu_cuont"),
        ("explain", "gpu_cuont"),
        ("explain",),
        ("run", "--nonsense"),
        ("run", "load", "--root"),
    ],
)
def test_wrong_usage(call: Call, args: tuple[str, ...]) -> None:
    """Wrong arguments and unknown checks end with 64 and one clear line on stderr, nothing on stdout."""
    code, out, err = call(*args)
    assert (code, out) == (exit_codes.USAGE, "")
    assert "probing-check" in err
    if "gpu_cuont" in args:
        assert "gpu_count" in err


def test_a_broken_site_file_named_by_hand(node: Any, call: Call) -> None:
    """A site file named on the command line must be right: 78."""
    path = node.put("site.toml", "[checks.laod]")
    code, _, err = call("run", "--site", str(path))
    assert code == exit_codes.CONFIG
    assert "unknown check 'laod'" in err


def test_a_site_file_changes_the_run(node: Any, call: Call) -> None:
    """Switched-off checks do not run; asked for by name, that is said."""
    path = node.put("site.toml", "[checks.uptime]\nenabled = false")
    assert "uptime" not in call("run", "--site", str(path), "--all")[1]
    assert "uptime is switched off" in call("run", "uptime", "--site", str(path))[2]


def test_explain_every_check(call: Call) -> None:
    """explain tells of every check what it proves, its limits with sources, severity and next step."""
    for check in registry.load().values():
        code, out, _ = call("explain", check.name)
        assert code == 0
        flat = " ".join(out.split())
        assert check.proves in flat
        assert check.next_step in flat
        for limit in check.thresholds:
            assert f"{limit.key} =" in flat
        assert max(len(line) for line in out.splitlines()) <= 80


def test_list(call: Call) -> None:
    """list names every check, as a table and as JSON."""
    _, out, _ = call("list")
    rows = json.loads(call("list", "--json")[1])
    assert [r["name"] for r in rows] == list(registry.load())
    for name in registry.load():
        assert name in out


def test_state_between_runs(node: Any, call: Call) -> None:
    """With --state a second run by hand sees what is new since the first."""
    state = str(node.root / "state.json")
    node.put("proc/sys/kernel/random/boot_id", "b")
    node.hca("mlx5_0")
    assert call("run", "ib_link", "--state", state)[0] == 0
    node.hca("mlx5_0", state="1: DOWN", phys_state="2: Polling")
    assert call("run", "ib_link", "--state", state)[0] == exit_codes.FAIL


def test_genconf_is_a_valid_site_file(node: Any, call: Call) -> None:
    """What genconf writes from a healthy node can be used at once, and then notices what changes."""
    node.hca("mlx5_0")
    node.hca("mlx5_1")
    node.put("proc/meminfo", "MemTotal: 1048576 kB")
    node.put("proc/sys/kernel/osrelease", "5.15.0")
    node.put("sys/devices/system/cpu/online", "0-7")
    node.mount("/scratch", "lustre")
    code, out, err = call("genconf")
    assert (code, err) == (0, "")
    plan = site.parse(out).plan("any")
    assert plan["ib_link"].limits["ports"] == ["mlx5_0:1", "mlx5_1:1"]
    assert plan["ib_link"].limits["rate_gbps"] == 400
    assert plan["memory_size"].limits["expected_bytes"] == 2**30
    assert plan["cpu_count"].limits["expected"] == 8
    assert plan["mount_present"].limits["paths"] == ["/scratch=lustre"]
    path = node.put("site.toml", out)
    assert call("run", "ib_link", "cpu_count", "--site", str(path))[0] == 0
    node.put("sys/devices/system/cpu/online", "0-6")
    assert call("run", "cpu_count", "--site", str(path))[0] == exit_codes.FAIL


def test_genconf_learns_nothing_from_the_sick(node: Any, call: Call) -> None:
    """A part that is not well is left out and named; a pattern makes it a section for those nodes."""
    node.put("proc/meminfo", "nothing")
    node.put("sys/devices/system/cpu/online", "0-7")
    code, out, err = call("genconf", "--match", "gpu[01-08]")
    assert code == exit_codes.WARN
    assert "memory_size is not well on this node and was left out" in err
    parsed = site.parse(out)
    assert parsed.plan("gpu03")["cpu_count"].limits["expected"] == 8
    assert parsed.plan("login")["cpu_count"].limits["expected"] is None
    assert out.endswith("\n")


def test_without_any_configuration(tmp_path: Path) -> None:
    """The command works from an empty directory, without agent, Slurm, database or settings file."""
    done = subprocess.run(
        [
            sys.executable,
            "-I",
            "-m",
            "probing_cluster.healthchecks.cli",
            "run",
            "uptime",
            "kernel_version",
            "--json",
        ],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert {r["name"] for r in json.loads(done.stdout)["results"]} == {"uptime", "kernel_version"}


def test_a_reader_that_has_enough(node: Any, call: Call) -> None:
    """`probing-check list | head -1` ends quietly."""
    shell = f"{sys.executable} -I -m probing_cluster.healthchecks.cli list | head -1"
    done = subprocess.run(["/bin/sh", "-c", shell], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("check")
    assert done.stderr == ""
