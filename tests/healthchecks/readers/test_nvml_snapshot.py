"""The NVML reader, against the sandbox's stub through real pynvml."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from probing_cluster.core import processes
from probing_cluster.healthchecks.readers import nvml, nvml_fields, nvml_snapshot
from probing_cluster.sandbox.c_libraries import nvml_build, nvml_state
from probing_cluster.sandbox.nodetree import build


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The stub library."""
    return str(nvml_build.build(tmp_path_factory.mktemp("nvml")))


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state file of a healthy eight-GPU node, which the stub answers from."""
    build.build(tmp_path / "n1", "n1")
    path = tmp_path / "n1" / build.NVML_STATE
    monkeypatch.setenv("PROBING_NVML_STATE", str(path))
    return path


def read(library: str) -> nvml.NvmlSnapshot:
    # In a child: pynvml keeps the library it loaded, and a real one may hang.
    value = nvml_snapshot.snapshot(library, 60.0)
    assert isinstance(value, nvml.NvmlSnapshot)
    return value


def test_a_healthy_node(library: str, state: Path) -> None:
    """Every value of every GPU arrives with its unit, in NVML's order."""
    snapshot = read(library)
    assert (snapshot.driver_version, len(snapshot.gpus)) == ("550.90.07", 8)
    gpu = snapshot.gpus[3]
    values = nvml_state.read(state)
    assert gpu.uuid == values["gpu.3.uuid"]
    assert gpu.pci_bus_id is not None
    assert gpu.pci_bus_id.startswith(values["gpu.3.pci"][:10].lower())
    assert (gpu.name, gpu.persistence, gpu.mig) == ("NVIDIA H100 80GB HBM3", True, False)
    assert (gpu.temperature_c, gpu.memory_temperature_c, gpu.slowdown_c, gpu.memory_max_c) == (34, 42, 89, 95)
    assert (gpu.power_w, gpu.memory_used_bytes) == (71.4, 4_718_592)
    assert (gpu.ecc_enabled, gpu.ecc_uncorrected_volatile_total, gpu.remap_failed) == (True, 0, False)
    assert (gpu.pcie_generation, gpu.pcie_width_max, gpu.fabric_state) == (5, 16, 3)
    assert len(gpu.links) == 18
    assert gpu.links[17] == nvml.NvLink(
        link=17, active=True, version=4, replay_errors_total=0, recovery_errors_total=0, crc_errors_total=0
    )
    assert gpu.processes == ()
    assert gpu.unread == {}
    assert gpu.lost is None


def test_faults_arrive(library: str, state: Path) -> None:
    """What a fault changes is what the snapshot shows, on that GPU alone."""
    nvml_state.set_gpu(
        state,
        5,
        {
            "ecc.volatile.uncorrected.dram": 2,
            "remapped.failure": 1,
            "remapped.banks_none": 3,
            "throttle.reasons": 0x48,
            "pcie.width": 8,
            "link.4.state": 0,
            "link.4.replay": 7,
            "persistence_mode": 0,
            "processes": "4242:1073741824",
        },
    )
    gpu, other = read(library).gpus[5], read(library).gpus[4]
    assert (gpu.ecc_uncorrected_volatile_total, gpu.ecc_dram_uncorrected_volatile_total) == (2, 2)
    assert (gpu.remap_failed, gpu.remap_banks_exhausted, gpu.throttle_reasons) == (True, 3, 0x48)
    assert (gpu.pcie_width, gpu.persistence) == (8, False)
    assert [link.link for link in gpu.links if not link.active] == [4]
    assert gpu.links[4].replay_errors_total == 7
    assert other.ecc_uncorrected_volatile_total == 0
    assert all(link.active for link in other.links)


def test_a_lost_gpu_keeps_its_place(library: str, state: Path) -> None:
    """A lost GPU is listed as lost at its index; the others are whole."""
    nvml_state.set_gpu(state, 2, {"lost": 1})
    snapshot = read(library)
    assert [g.index for g in snapshot.gpus if g.lost] == [2]
    assert snapshot.gpus[2].lost == "GPU_IS_LOST"
    assert snapshot.gpus[3].temperature_c == 34


def test_what_a_gpu_does_not_have_is_unknown(library: str, state: Path) -> None:
    """A value the GPU does not support is None and no error."""
    with nvml_state.changing(state) as values:
        for key in [k for k in values if ".ecc." in k or "memory_temperature" in k or ".fabric." in k]:
            del values[key]
    gpu = read(library).gpus[0]
    assert (gpu.ecc_enabled, gpu.memory_temperature_c, gpu.fabric_state) == (None, None, None)
    assert gpu.unread == {}


@pytest.mark.parametrize(
    ("driver", "kind", "code"),
    [
        ("not_loaded", nvml.SnapshotLack.DRIVER, "DRIVER_NOT_LOADED"),
        ("mismatch", nvml.SnapshotLack.DRIVER, "LIB_RM_VERSION_MISMATCH"),
    ],
)
def test_a_driver_that_does_not_answer(
    library: str, state: Path, driver: str, kind: nvml.SnapshotLack, code: str
) -> None:
    """No driver, or one of another version, is told apart."""
    nvml_state.update(state, {"driver.state": driver})
    value = nvml_snapshot.snapshot(library, 60.0)
    assert isinstance(value, nvml.NvmlUnavailable)
    assert (value.kind, value.code) == (kind, code)


def test_no_library(tmp_path: Path) -> None:
    """A library that is not there is absent."""
    value = nvml_snapshot.snapshot(str(tmp_path / "libnvidia-ml.so.1"), 60.0)
    assert isinstance(value, nvml.NvmlUnavailable)
    assert value.kind is nvml.SnapshotLack.ABSENT


def test_a_call_that_never_returns(library: str, state: Path) -> None:
    """A hanging driver costs its child and gives `hang`; nothing is left behind."""
    nvml_state.set_gpu(state, 0, {"hang": "nvmlDeviceGetTemperature"})
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    before = set(children.read_text().split())
    value = nvml_snapshot.snapshot(library, 3.0)
    assert isinstance(value, nvml.NvmlUnavailable)
    assert value.kind is nvml.SnapshotLack.HANG
    assert set(children.read_text().split()) <= before


def test_a_child_that_crashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that dies is an error with its last words."""
    crashed = processes.Output(
        argv=("x",), code=1, stdout=b"", stderr=b"Traceback\nValueError: odd", duration_s=0.1
    )
    monkeypatch.setattr(processes, "run", lambda *a, **k: crashed)
    value = nvml_snapshot.snapshot(None, 1.0)
    assert isinstance(value, nvml.NvmlUnavailable)
    assert value.message == "the NVML child failed: ValueError: odd"


def test_without_links(library: str, state: Path) -> None:
    """NVLinks can be left out, and with them the MIG mode by which they are judged; everything else is the same."""
    code = (
        "import json, sys; from probing_cluster.healthchecks.readers import nvml, nvml_snapshot as s; "
        "print(json.dumps(nvml.to_json(s.read_here(sys.argv[1], links=False))))"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code, library], capture_output=True, check=True)
    snapshot, whole = nvml.from_json(json.loads(done.stdout)), read(library)
    assert isinstance(snapshot, nvml.NvmlSnapshot)
    assert [g.links for g in snapshot.gpus] == [()] * 8
    assert [dataclasses.replace(g, links=(), mig=None) for g in whole.gpus] == list(snapshot.gpus)


def test_a_watcher_asks_less_and_sees_what_moves(library: str, state: Path) -> None:
    """What cannot change is asked once per GPU, what only the sweep judges never; what moves is read each time."""
    code = (
        "import json, sys; from probing_cluster.healthchecks.readers import nvml, nvml_snapshot as s; known = {}\n"
        "for line in sys.stdin:\n"
        "    print(json.dumps(nvml.to_json(s.read_here(sys.argv[1], links=False, known=known))), flush=True)"
    )
    whole = read(library)
    with subprocess.Popen(
        [sys.executable, "-I", "-c", code, library], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None

        def look() -> tuple[nvml.NvmlGpu, ...]:
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.write("\n")
            child.stdin.flush()
            snapshot = nvml.from_json(json.loads(child.stdout.readline()))
            assert isinstance(snapshot, nvml.NvmlSnapshot)
            return snapshot.gpus

        first = look()
        nvml_state.set_gpu(state, 2, {"name": "another", "temperature_c": 91})
        second = look()
        child.stdin.close()
    left_out = nvml_fields.NOT_WATCHED | {"memory_total_bytes", "memory_used_bytes", "links", "mig"}
    for less, gpu in zip(first, whole.gpus, strict=True):
        for field in dataclasses.fields(nvml.NvmlGpu):
            if field.name not in left_out:
                assert getattr(less, field.name) == getattr(gpu, field.name), field.name
        assert less.power_w is less.vbios is less.processes is None
    assert (second[2].name, second[2].temperature_c) == (first[2].name, 91)


def test_json_is_lossless(library: str, state: Path) -> None:
    """What crosses the pipe is what was read."""
    snapshot = read(library)
    assert nvml.from_json(json.loads(json.dumps(nvml.to_json(snapshot)))) == snapshot
    lack = nvml.NvmlUnavailable(kind=nvml.SnapshotLack.HANG, message="m", code="TIMEOUT")
    assert nvml.from_json(json.loads(json.dumps(nvml.to_json(lack)))) == lack


def test_without_gpus_pynvml_is_not_even_imported(tmp_path: Path) -> None:
    """On a node without the library the reader costs no import of pynvml."""
    code = (
        "import sys; from probing_cluster.healthchecks.readers import nvml_snapshot as s; "
        f"s.read_here({str(tmp_path / 'none.so')!r}); sys.exit('pynvml' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-I", "-c", code], check=False).returncode == 0


def test_another_library_is_asked_itself(library: str, state: Path, tmp_path: Path) -> None:
    """pynvml keeps the functions that it has found: after a change of library they were those of the one before."""
    other = tmp_path / "libnvidia-ml-other.so.1"
    other.write_bytes(Path(library).read_bytes())
    first = nvml_snapshot.load(library)
    first.nvmlInit()
    first.nvmlShutdown()
    for path in (str(other), library):
        found = nvml_snapshot.read_here(path)
        assert isinstance(found, nvml.NvmlSnapshot), found
