"""Tracing of sampled steps, with real torch: spans, transfers and roles of groups; and nothing at all where it is off."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from probing_cluster.probe_agent import inject
from probing_cluster.probe_agent.inject.site._probing_probe import groups, layout
from probing_cluster.probe_agent.ranks import pages, ring

pytestmark = pytest.mark.torch

MODEL = """
import os, pickle, sys, warnings
warnings.simplefilter("error")
import torch
from torch import nn
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.act, self.down = nn.Linear(8, 8), nn.ReLU(inplace=True), nn.Linear(8, 8)
    def forward(self, x):
        return {"out": self.down(self.act(self.up(x))).add_(1)}
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.blocks = nn.Linear(8, 8), nn.ModuleList([Block(), Block()])
    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x)["out"]
        return x
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def step(model=model):
    loss = model(torch.ones(2, 8)).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()
"""


def traced(
    tmp_path: Path, code: str, rate: str | None = "0.25:2"
) -> tuple[str, dict[str, list[dict[str, Any]]], Path]:
    """(what a program printed, the rows of its rings by table, its page)."""
    directory = tmp_path / "pages"
    directory.mkdir()
    env = {
        "PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(inject.SITE_DIRECTORY),
        "PROBING_PAGE_DIR": str(directory), "SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "OMP_NUM_THREADS": "1",
        "STORE": str(tmp_path / "store"),
    }  # fmt: skip
    env |= {"PROBING_TRACE": rate} if rate is not None else {}
    done = subprocess.run(
        [sys.executable, "-c", MODEL + code],
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = {}
    for one in ring.read_rings(str(directory), os.getuid()).tables:
        values = [c.values for c in one.columns]
        found[one.name] = [
            dict(zip([c.name for c in one.columns], row, strict=True)) for row in zip(*values, strict=True)
        ]
    return done.stdout, found, next(directory.glob("p*.page"))


SEED = "torch.manual_seed(0)\nmodel.apply(lambda m: m.reset_parameters() if isinstance(m, nn.Linear) else None)\n"
LOSSES = "print([step() for _ in range(12)])\n"
HOOKED = "print('_probing_probe.trace' in sys.modules, bool(nn.modules.module._has_any_global_hook()))\n"


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], dict[str, list[dict[str, Any]]]]:
    """(what a program that asks for no tracing printed, the rows of its rings)."""
    printed, tables, _ = traced(tmp_path_factory.mktemp("plain"), SEED + LOSSES + HOOKED, None)
    return printed.splitlines(), tables


def test_sampled_steps_have_spans_and_the_program_is_as_without(
    tmp_path: Path, plain: tuple[list[str], dict[str, list[dict[str, Any]]]]
) -> None:
    """Every fourth step: each module forward and backward, in order and inside its parent; in-place operations work; losses are equal."""
    code = LOSSES + "from _probing_probe import trace\nassert trace.failures == [], trace.failures\n"
    printed, tables, _ = traced(tmp_path, SEED + code)
    assert printed.splitlines() == plain[0][:1]
    spans = tables["torch_modules"]
    assert {s["step"] for s in spans} == {5, 9}
    forward = [s for s in spans if s["step"] == 5 and s["phase"] == "forward"]
    assert [(s["module"], s["kind"], s["depth"]) for s in forward] == [
        ("first", "Linear", 1),
        *[(f"blocks.{b}{m}", k, d) for b in (0, 1) for m, k, d in ((".up", "Linear", 2), (".act", "ReLU", 2), (".down", "Linear", 2), ("", "Block", 1))],
        ("Net", "Net", 0),
    ]  # fmt: skip
    whole = forward[-1]
    for span in forward:
        assert whole["since_s"] <= span["since_s"]
        assert span["since_s"] + span["duration_s"] <= whole["since_s"] + whole["duration_s"] + 1e-9
    backward = {s["module"]: s for s in spans if s["step"] == 5 and s["phase"] == "backward"}
    assert {"Net", "blocks.0", "blocks.1", "blocks.1.down", "first"} <= set(backward)
    assert backward["blocks.1"]["since_s"] < backward["blocks.0"]["since_s"]
    assert backward["blocks.1"]["duration_s"] > 0
    assert backward["first"]["duration_s"] is None  # its input needs no gradient
    assert tables["torch_memory"] == []  # no CUDA here


def test_off_there_is_nothing_of_it_in_the_process(
    plain: tuple[list[str], dict[str, list[dict[str, Any]]]],
) -> None:
    """Not the module, not a ring, not a hook."""
    assert (plain[0][1], plain[1]) == ("False False", {})


@pytest.mark.soak
def test_a_rate_that_is_none_traces_nothing(tmp_path: Path) -> None:
    """A slip in the job's environment."""
    hooked = "step(); step()\nprint(bool(nn.modules.module._has_any_global_hook()))"
    printed, tables, _ = traced(tmp_path, hooked, "often")
    assert (printed, tables) == ("False\n", {})


@pytest.mark.soak
def test_a_program_that_compiles_is_not_traced(tmp_path: Path) -> None:
    """Hooks would be traced into its graphs."""
    code = "fast = torch.compile(model, backend='eager')\nfor _ in range(8): step(fast)\n"
    _, tables, _ = traced(tmp_path, code, "1")
    assert tables["torch_modules"] == []


@pytest.mark.soak
def test_a_tracer_that_fails_leaves_the_program_alone(tmp_path: Path) -> None:
    """Once, and then it is gone."""
    code = (
        "from _probing_probe import trace\n"
        "def broken(*_): raise RuntimeError('x')\n"
        "trace._with_gradient = broken\n"
        "for _ in range(8): step()\n"
        "print(len(trace.failures), bool(nn.modules.module._has_any_global_hook()))"
    )
    printed, _, _ = traced(tmp_path, code, "1")
    assert printed == "1 False\n"


def test_what_nccl_has_timed_is_kept_once(tmp_path: Path) -> None:
    """The flight recorder's entries, as torch writes them for NCCL: each completed one once, with its bytes and its group's size."""
    code = """
from torch._C import _distributed_c10d as c
entry = {"process_group": ("3", "mesh_dp_shard"), "collective_seq_id": 5, "profiling_name": "nccl:_all_gather_base",
         "input_sizes": [[256]], "output_sizes": [[1024]], "input_dtypes": ["BFloat16"], "output_dtypes": ["BFloat16"],
         "time_created_ns": 1_700_000_000_000_000_000, "state": "completed", "duration_ms": 0.5}
entries = [entry | {"record_id": 1}, entry | {"record_id": 2, "state": "started", "duration_ms": None}]
c._dump_nccl_trace = lambda *_: pickle.dumps({"pg_config": {"3": {"name": "3", "ranks": "[0, 1, 2, 3]"}}, "entries": entries})
from _probing_probe import trace
trace.TRANSFERS_EVERY_NS = 0
for _ in range(4): step()
entries[1] |= {"state": "completed", "duration_ms": 2.0, "collective_seq_id": 6}
entries.append({"record_id": 3, "state": "completed", "duration_ms": 1.0})
for _ in range(4): step()
print(trace.failures)
"""
    printed, tables, _ = traced(tmp_path, code, "1")
    assert printed == "[]\n"
    first, second, bare = tables["torch_transfers"]
    assert first == {
        "group": "3", "role": "shard", "seq": 5, "op": "_all_gather_base", "group_size": 4, "bytes": 2048, "dtype": "BFloat16",
        "begin_ns": 1_700_000_000_000_000_000, "transfer_s": 0.0005,
    }  # fmt: skip
    assert (second["seq"], second["transfer_s"]) == (6, 0.002)
    assert (bare["bytes"], bare["group_size"], bare["transfer_s"]) == (None, None, 0.001)


@pytest.mark.soak
def test_groups_of_a_device_mesh_have_their_roles(tmp_path: Path) -> None:
    """A group that DeviceMesh made for a dimension is known by it in the page; the default group by nothing."""
    code = """
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore
dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=8)
mesh = dist.init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("pp", "dp_shard", "tp"))
for group in (None, mesh.get_group("tp"), mesh.get_group("dp_shard"), mesh.get_group("pp")):
    dist.all_reduce(torch.ones(2), group=group)
dist.destroy_process_group()
"""
    _, _, page = traced(tmp_path, "warnings.simplefilter('ignore')" + code, None)
    found = pages.parse(page.read_bytes()).recent_collectives
    assert [c.role for c in found if c.op == "all_reduce"][-4:] == ["", "tp", "shard", "pp"]


@pytest.mark.parametrize(
    ("description", "role"),
    [("mesh_tp", "tp"), ("mesh_dp_replicate", "replicate"), ("TENSOR_MODEL_PARALLEL_GROUP", "tp"), ("PIPELINE_MODEL_PARALLEL_GROUP", "pp"),
     ("DATA_PARALLEL_GROUP_WITH_CP", "dp"), ("EXPERT_MODEL_PARALLEL_GROUP", "ep"), ("default_pg", ""), ("undefined", ""), ("", ""),
     ("mesh_stage", ""), ("TENSOR_AND_DATA_PARALLEL_GROUP", "")],
)  # fmt: skip
def test_descriptions_name_roles(description: str, role: str) -> None:
    """Those of DeviceMesh and Megatron; what is not known, or is several, is none."""
    assert groups.word_of(description) == role
    assert role in layout.ROLES


def test_megatron_of_before_is_known_by_its_own_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Releases that do not describe their groups to torch."""
    group, state = object(), type(sys)("megatron.core.parallel_state")
    state._PIPELINE_MODEL_PARALLEL_GROUP = group  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "megatron.core.parallel_state", state)
    assert groups.role_of(group) == "pp"
    assert groups.role_of(object()) == ""
