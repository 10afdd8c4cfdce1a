"""With real torch: what the page shows, and that the user's program does not notice."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from probing_cluster.probe_agent import inject
from probing_cluster.probe_agent.ranks import pages

pytestmark = pytest.mark.torch

PROLOGUE = """
import os, sys, warnings
warnings.simplefilter("error")
import torch
import torch.distributed as dist
from _probing_probe import importhook, torchhooks
assert importhook.failure is None, importhook.failure
assert torchhooks.failures == [], torchhooks.failures
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def step():
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
def gang(rank, world):
    dist.init_process_group("gloo", init_method="file://" + os.environ["STORE"], rank=rank, world_size=world)
"""


def start(tmp_path: Path, code: str, rank: int = 0) -> subprocess.Popen[str]:
    """One rank of a job step."""
    (tmp_path / "pages").mkdir(exist_ok=True)
    env = {
        "PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(inject.SITE_DIRECTORY),
        "PROBING_PAGE_DIR": str(tmp_path / "pages"), "STORE": str(tmp_path / "store"),
        "SLURM_JOB_ID": "7", "SLURM_PROCID": str(rank), "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    argv = [sys.executable, "-c", PROLOGUE + code]
    return subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> str:
    """Its output; fails with its error output when it failed or said anything there."""
    out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, "")
    return out


def page_of(tmp_path: Path, process: subprocess.Popen[str]) -> pages.ProbePage:
    """The page it left behind."""
    return pages.parse((tmp_path / "pages" / f"p{process.pid}.page").read_bytes())


TRAINING = """
import inspect, pickle
assert pickle.loads(pickle.dumps(dist.all_reduce)) is dist.all_reduce
print("signature", inspect.signature(dist.all_reduce).parameters.keys() >= {"tensor", "op", "group"}, dist.all_reduce.__name__)
print("save", pickle.loads(pickle.dumps(torch.save)) is torch.save)
step()
pid = os.fork()
if pid == 0:
    torch.save(model.state_dict(), "/dev/null")
    os._exit(0)
os.waitpid(pid, 0)
class Data(torch.utils.data.Dataset):
    def __len__(self): return 8
    def __getitem__(self, i): return torch.ones(8)
for _ in torch.utils.data.DataLoader(Data(), num_workers=2, multiprocessing_context="fork"): pass
step()
pid = os.fork()
if pid == 0:
    step(); step()
    os._exit(0)
os.waitpid(pid, 0)
print("trainer", pid)
for lost in (None, "/nonexistent"):
    pid = os.fork()
    if pid == 0:
        os.environ.pop("PROBING_PAGE_DIR")
        if lost: os.environ["PROBING_PAGE_DIR"] = lost
        step(); step()
        os._exit(7)
    print("lost", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
step()
torch.save(model.state_dict(), "/dev/null")
model.eval()
"""
"""A program that does one after the other what several tests ask about: importing torch takes each process seconds."""


@dataclass
class Trained:
    """What TRAINING left behind."""

    output: list[list[str]]
    page: pages.ProbePage
    pages: dict[int, Path]
    """By their process."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    directory = tmp_path_factory.mktemp("trained")
    process = start(directory, TRAINING)
    output = [line.split() for line in finish(process).splitlines()]
    found = {int(path.stem[1:]): path for path in (directory / "pages").glob("*.page")}
    return Trained(output, page_of(directory, process), found)


def test_steps_checkpoints_and_phases(trained: Trained) -> None:
    """Optimizer steps, torch.save, evaluation and the end are all seen."""
    page = trained.page
    assert (page.steps, page.checkpoints, page.phase) == (3, 1, "ended")
    assert page.checkpoint_end_ns is not None
    assert page.recent_steps[-1].backward_ns > 0


@pytest.mark.soak
def test_evaluation_is_a_phase_of_its_own(tmp_path: Path) -> None:
    """Between eval() and the next step the job validates; eval() before any step changes nothing."""
    code = """
from _probing_probe import page, layout
model.eval(); print(layout.PHASES[page._phase])
step(); model.eval(); print(layout.PHASES[page._phase])
step(); print(layout.PHASES[page._phase])
"""
    assert finish(start(tmp_path, code)).split() == ["loading", "validating", "training"]


@pytest.mark.soak
def test_a_failed_checkpoint_is_not_a_checkpoint(tmp_path: Path) -> None:
    """What raised cannot be resumed from; the user's exception is untouched."""
    code = """
try:
    torch.save(model, "/nonexistent/x.pt")
except RuntimeError as exc:
    print("theirs")
"""
    process = start(tmp_path, code)
    assert finish(process) == "theirs\n"
    assert page_of(tmp_path, process).checkpoints == 0


GANG = """
rank = int(os.environ["SLURM_PROCID"])
gang(rank, 2)
for size in (4, 8):
    dist.all_reduce(torch.ones(size))
dist.barrier()
dist.all_gather([torch.empty(5), torch.empty(5)], torch.ones(5))
sub = dist.new_group([0, 1])
dist.broadcast(torch.ones(3), 0, group=sub)
broken = dist.new_group([0, 1])
dist.all_reduce(torch.ones(4))
if rank == 0:
    try:
        dist.all_reduce(torch.ones(4), group=broken)
    except RuntimeError:
        print("theirs")
"""


@pytest.fixture(scope="module")
def gang(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[pages.ProbePage], Path]:
    """Two ranks' collectives, the last of which one rank does not enter: what the other printed, their pages and their directory."""
    directory = tmp_path_factory.mktemp("gang")
    ranks = [start(directory, GANG, rank) for rank in (0, 1)]
    out = [process.communicate(timeout=120)[0] for process in ranks]
    return out[0], [page_of(directory, process) for process in ranks], directory / "pages"


def test_collectives_are_counted_per_group(gang: tuple[str, list[pages.ProbePage], Path]) -> None:
    """Two ranks show the same (group, sequence, operation, size); identity comes from the process group."""
    read = gang[1]
    assert [(p.rank, p.world_size, p.backend) for p in read] == [(0, 2, "gloo"), (1, 2, "gloo")]
    calls = [
        [(c.group, c.seq, c.op, c.numel, c.dtype_code) for c in p.recent_collectives if not c.raised]
        for p in read
    ]
    assert calls[0] == calls[1]
    assert [(c[2], c[3]) for c in calls[0]][:3] == [("all_reduce", 4), ("all_reduce", 8), ("barrier", 0)]
    gathered = next(c for c in calls[0] if c[2] == "all_gather")
    assert (gathered[3], gathered[4]) == (10, calls[0][0][4])  # a list: all its elements, and their type
    broadcast = [c for c in calls[0] if c[2] == "broadcast" and c[3] == 3]
    assert [c[1] for c in broadcast] == [1]
    assert broadcast[0][0] != calls[0][0][0]


@pytest.mark.soak
def test_a_rank_inside_a_collective_is_seen_there(tmp_path: Path) -> None:
    """The rank that waits shows the call it entered and has not left, live and from outside."""
    code = """
rank = int(os.environ["SLURM_PROCID"])
gang(rank, 2)
dist.all_reduce(torch.ones(4))
print("ready", flush=True)
if rank == 1:
    __import__("time").sleep(60)
dist.all_reduce(torch.ones(4))
"""
    gang = [start(tmp_path, code, rank) for rank in (0, 1)]
    try:
        for process in gang:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        waiting = None
        for _ in range(200):
            waiting = page_of(tmp_path, gang[0]).inside()
            if waiting is not None:
                break
            __import__("time").sleep(0.02)
        assert waiting is not None
        assert (waiting.op, waiting.seq) == ("all_reduce", 2)
        assert page_of(tmp_path, gang[1]).inside() is None
    finally:
        for process in gang:
            process.kill()
            process.communicate()


def test_a_failing_collective_leaves_a_dump(gang: tuple[str, list[pages.ProbePage], Path]) -> None:
    """gloo writes no dump of its own: when a collective raises, ours is in the page directory."""
    out, read, directory = gang
    assert out == "theirs\n"
    assert read[0].recent_collectives[-1].raised
    assert (directory / "fr_rank_0").stat().st_size > 100


def test_forked_workers_do_not_write_the_parents_page(trained: Trained) -> None:
    """A data-loader worker that saves or steps must not look like its parent's progress."""
    assert (trained.page.steps, trained.page.checkpoints, trained.page.loader_ends) == (3, 1, 1)
    assert [s.input_ns > 0 for s in trained.page.recent_steps] == [False, True, False]


def test_a_forked_trainer_gets_its_own_page(trained: Trained) -> None:
    """torch.multiprocessing with fork: each child that steps has a page with its own pid."""
    (child,) = (int(words[1]) for words in trained.output if words[0] == "trainer")
    assert pages.parse(trained.pages[child].read_bytes()).steps == 2


def test_a_program_that_loses_our_directory_is_not_disturbed(trained: Trained) -> None:
    """Neither a forked trainer whose environment was emptied nor one whose page cannot be made hears of us."""
    assert [words[1] for words in trained.output if words[0] == "lost"] == ["7", "7"]
    assert len(trained.pages) == 2  # the program's own and its trainer's; none of workers and of those two


@pytest.mark.soak
def test_torchrun_and_its_workers(tmp_path: Path) -> None:
    """Each worker is the rank that torchrun made it; torchrun's own page makes no step, by which it is told apart."""
    code = (
        PROLOGUE
        + """
dist.init_process_group("gloo")
step()
dist.all_reduce(torch.ones(4))
dist.barrier()
dist.destroy_process_group()
"""
    )
    (tmp_path / "train.py").write_text(code.replace('warnings.simplefilter("error")', ""))
    launch = f"""
from torch.distributed import run
run.main(["--standalone", "--nproc-per-node=2", {str(tmp_path / "train.py")!r}])
"""
    launcher = start(tmp_path, launch, rank=1)
    out, err = launcher.communicate(timeout=400)
    assert launcher.returncode == 0, out + err
    by_pid = {p.pid: p for p in (pages.parse(f.read_bytes()) for f in (tmp_path / "pages").glob("*.page"))}
    own = by_pid.pop(launcher.pid)
    assert (own.rank, own.steps, list(own.recent_collectives)) == (1, 0, [])
    assert sorted((p.rank, p.local_rank, p.world_size, p.steps, p.backend) for p in by_pid.values()) == [
        (0, 0, 2, 1, "gloo"),
        (1, 1, 2, 1, "gloo"),
    ]


@pytest.mark.soak
def test_torch_compile_still_sees_whole_graphs(tmp_path: Path) -> None:
    """fullgraph=True raises on a graph break: neither a hooked call nor a collective may cause one."""
    code = """
warnings.simplefilter("ignore")
gang(0, 1)
def inner(x):
    model.eval()
    dist.all_reduce(x)
    return x * 2
print(torch.compile(inner, backend="eager", fullgraph=True)(torch.ones(2)).tolist())
def whole(x):
    model(x).sum().backward()
    optimizer.step()
torch.compile(whole, backend="eager")(torch.ones(2, 8))
dist.destroy_process_group()
print("done")
"""
    process = start(tmp_path, code)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    assert out == "[2.0, 2.0]\ndone\n"
    assert "_probing_probe" not in err


def test_hooked_functions_stay_what_they_were(trained: Trained) -> None:
    """Pickle, signature and name are the original's."""
    assert trained.output[:2] == [["signature", "True", "all_reduce"], ["save", "True"]]
