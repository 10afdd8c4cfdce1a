"""The page is whole for any reader at any moment, and hostile bytes are only bytes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probing_cluster.core import errors
from probing_cluster.probe_agent import inject
from probing_cluster.probe_agent.inject.site._probing_probe import layout
from probing_cluster.probe_agent.ranks import pages

WRITER = """
import sys
from _probing_probe import collectives, layout, page
page.open_page()
page.write_identity(rank=3, world=8, backend="gloo")
print("open", flush=True)
class Group:
    group_name = "7"
    def size(self): return 2
class c10d:
    ProcessGroup = Group
    _get_default_group = Group
class Tensor:
    dtype = "float32"
    def numel(self): return 1000 + i
all_reduce = collectives.timed("all_reduce", c10d, lambda tensor: None)
steps = int(sys.argv[1])
i = 0
while steps < 0 or i < steps:
    i += 1
    all_reduce(Tensor())
    page.step_done()
    if i % 7 == 0:
        before = page.checkpoint_begin()
        page.checkpoint_end(before, True)
"""


def write(directory: Path, steps: int) -> subprocess.Popen[bytes]:
    """A real writer process with its page in `directory`, already open."""
    env = {
        "PROBING_PAGE_DIR": str(directory),
        "PYTHONPATH": str(inject.SITE_DIRECTORY),
        "SLURM_JOB_ID": "4242",
        "SLURM_STEP_ID": "0",
        "SLURM_LOCALID": "1",
        "SLURMD_NODENAME": "n2",
    }
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", WRITER, str(steps)], env=env, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"open\n"
    return process


def read(directory: Path, process: subprocess.Popen[bytes]) -> bytes:
    """The page's bytes as the agent reads them."""
    return (directory / f"p{process.pid}.page").read_bytes()


def test_a_page_says_who_and_how_far(tmp_path: Path) -> None:
    """Identity, steps, checkpoints and collectives arrive as written, and survive the writer's end."""
    process = write(tmp_path, 20)
    process.communicate()
    page = pages.parse(read(tmp_path, process))
    assert (page.job, page.step_id, page.rank, page.world_size, page.local_rank) == (4242, 0, 3, 8, 1)
    assert (page.host, page.backend, page.pid) == ("n2", "gloo", process.pid)
    assert (page.steps, page.checkpoints, page.phase) == (20, 2, "training")
    assert [s.step for s in page.recent_steps] == list(range(1, 21))
    last = page.recent_collectives[-1]
    assert (last.seq, last.group, last.op, last.numel, last.group_size) == (20, "7", "all_reduce", 1020, 2)
    assert last.leave_ns is not None
    assert last.leave_ns >= last.enter_ns
    assert page.inside() is None
    assert abs(page.realtime_s(page.monotonic_ns) - time.time()) < 60


def test_the_page_is_its_owners_alone(tmp_path: Path) -> None:
    """Mode 0600, whatever the user's umask."""
    process = write(tmp_path, 1)
    process.communicate()
    assert (tmp_path / f"p{process.pid}.page").stat().st_mode & 0o777 == 0o600


def test_what_changed_between_two_reads_is_no_entry(tmp_path: Path) -> None:
    """The kernel copies in any order: an entry mixed of two whole ones has a right check word and is dropped."""
    process = write(tmp_path, 20)
    process.communicate()
    raw = read(tmp_path, process)
    mixed = bytearray(raw)
    numel = (layout.COLLECTIVES_AT + 19 * layout.COLLECTIVE_WORDS + layout.C_NUMEL) * 8
    mixed[numel : numel + 8] = (7).to_bytes(8, "little")
    assert pages.parse(bytes(mixed)).recent_collectives[-1].numel == 7
    assert pages.parse(pages.settled(raw, bytes(mixed))).recent_collectives[-1].numel == 1019
    assert pages.settled(raw, raw) == raw


def test_a_reader_never_sees_a_torn_record(tmp_path: Path) -> None:
    """While a process writes as fast as it can, every whole read is consistent."""
    process = write(tmp_path, -1)
    try:
        torn = 0
        for _ in range(2000):
            try:
                page = pages.parse(pages.settled(read(tmp_path, process), read(tmp_path, process)))
            except errors.MalformedInput:
                torn += 1  # a read that raced twice says so, and is read again
                continue
            assert all(
                b.step - a.step >= 1 for a, b in zip(page.recent_steps, page.recent_steps[1:], strict=False)
            )
            assert all(c.numel == 1000 + c.seq and c.op == "all_reduce" for c in page.recent_collectives)
        assert torn < 200
    finally:
        process.kill()
        process.communicate()


def test_it_survives_the_death_of_its_writer(tmp_path: Path) -> None:
    """SIGKILL at an arbitrary moment leaves a page that reads."""
    for delay_s in (0.0, 0.003, 0.01, 0.02, 0.05):
        process = write(tmp_path, -1)
        time.sleep(delay_s)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        page = pages.parse(read(tmp_path, process))
        assert page.rank == 3


@given(st.binary(min_size=0, max_size=64), st.integers(0, layout.SIZE_BYTES - 64))
def test_garbage_is_refused_or_bounded(noise: bytes, at: int) -> None:
    """Bytes of a hostile owner give a bounded page or MalformedInput, nothing else."""
    words = [0] * layout.WORDS
    words[layout.H_MAGIC], words[layout.H_VERSION] = layout.MAGIC, layout.VERSION
    for start, size, check in ((layout.IDENTITY_AT[0], layout.IDENTITY_WORDS, layout.I_CHECK),
                               (layout.PROGRESS_AT[0], layout.PROGRESS_WORDS, layout.P_CHECK)):  # fmt: skip
        words[start + check] = layout.check_of([0] * (size - 1))
    raw = bytearray(b"".join(w.to_bytes(8, "little") for w in words))
    raw[at : at + len(noise)] = noise
    try:
        page = pages.parse(bytes(raw))
    except errors.MalformedInput:
        return
    assert page.host.isprintable()
    assert page.phase in layout.PHASES
    assert len(page.recent_steps) <= layout.STEPS


@pytest.mark.parametrize("size", [0, 1, layout.SIZE_BYTES - 1, layout.SIZE_BYTES + 1])
def test_a_page_of_another_size_is_refused(size: int) -> None:
    """A truncated or grown file is not a page."""
    with pytest.raises(errors.MalformedInput):
        pages.parse(b"\0" * size)


NESTED = """
import time
from _probing_probe import collectives, page
page.open_page()
class Group:
    group_name = "0"
    def size(self): return 4
class c10d:
    ProcessGroup = Group
    _get_default_group = Group
class Tensor:
    dtype = "float32"
    def numel(self): return 8
inner = collectives.timed("all_gather", c10d, lambda tensor: time.sleep(0.02))
outer = collectives.timed("all_gather_object", c10d, lambda tensor: inner(tensor))
def fail(tensor): raise RuntimeError("theirs")
failing = collectives.timed("broadcast", c10d, fail)
page.step_done()
begin = time.monotonic_ns()
outer(Tensor())
took = time.monotonic_ns() - begin
page.step_done()
try:
    failing(Tensor())
except RuntimeError as exc:
    assert str(exc) == "theirs"
collectives.forget_groups()
inner(Tensor())
print(took, flush=True)
"""


def test_calls_inside_a_call_are_waited_for_once(tmp_path: Path) -> None:
    """all_gather_object calls all_gather: both are told, the waiting is counted once; what raises is marked, and goes on."""
    env = {"PROBING_PAGE_DIR": str(tmp_path), "PYTHONPATH": str(inject.SITE_DIRECTORY)}
    process = subprocess.Popen([sys.executable, "-S", "-c", NESTED], env=env, stdout=subprocess.PIPE)
    out, _ = process.communicate()
    page = pages.parse(read(tmp_path, process))
    calls = [(c.op, c.seq, c.group_size, c.raised, c.leave_ns is not None) for c in page.recent_collectives]
    assert calls == [
        ("all_gather_objec", 1, 4, False, True),
        ("all_gather", 2, 4, False, True),
        ("broadcast", 3, 4, True, True),
        ("all_gather", 4, 4, False, True),
    ]
    waited_ns = page.recent_steps[1].collective_ns
    assert 20_000_000 <= waited_ns <= int(out)


ARGUMENTS = """
from _probing_probe import collectives, page
page.open_page()
class Group:
    def __init__(self, name): self.group_name = name
    def size(self): return 4
class c10d:
    ProcessGroup = Group
    world = Group("0")
    def _get_default_group(): return c10d.world
class Tensor:
    dtype = "float32"
    def __init__(self, numel=8): self.count = numel
    def numel(self): return self.count
class Refusing:
    dtype = []
    def numel(self): raise ValueError("ours to bear")
got = []
def reduce(tensor, dst=0, op="sum", group=None, async_op=False, *, tag="t"):
    got.append((tensor, dst, op, group, async_op, tag))
    return len(got)
def unknown(*args, **kwargs):
    got.append((args, kwargs))
    return len(got)
def words(words, now): return words + now
exact, other = collectives.timed("reduce", c10d, reduce), collectives.timed("gather", c10d, unknown)
sub, tensor = Group("sub"), Tensor()
results = [
    exact(tensor), exact(tensor, 1, "max", sub), exact(tensor=tensor, group=sub, async_op=True, tag="u"),
    other(tensor, sub), other(tensor, group=sub),
]
assert got == [
    (tensor, 0, "sum", None, False, "t"), (tensor, 1, "max", sub, False, "t"), (tensor, 0, "sum", sub, True, "u"),
    ((tensor, sub), {}), ((tensor,), {"group": sub}),
], got
for odd in (Refusing(), Tensor(-1), Tensor(1 << 70), Tensor("many"), None):
    results.append(exact(odd))
results.append(exact(tensor, group=[]))
assert results == list(range(1, 12)), results
assert collectives.timed("send", c10d, words)(1, 2) == 3
try:
    exact()
except TypeError as exc:
    print(exc, flush=True)
"""


def test_a_call_reaches_what_it_calls_as_it_was_made(tmp_path: Path) -> None:
    """By place, by name, with defaults; and whatever a hook cannot make sense of is called as if there were none."""
    env = {"PROBING_PAGE_DIR": str(tmp_path), "PYTHONPATH": str(inject.SITE_DIRECTORY)}
    process = subprocess.Popen([sys.executable, "-S", "-c", ARGUMENTS], env=env, stdout=subprocess.PIPE)
    out, _ = process.communicate()
    assert out == b"reduce() missing 1 required positional argument: 'tensor'\n"
    page = pages.parse(read(tmp_path, process))
    calls = [(c.op, c.group, c.seq, c.numel, c.is_async) for c in page.recent_collectives]
    assert calls[:5] == [
        ("reduce", "0", 1, 8, False),
        ("reduce", "sub", 1, 8, False),
        ("reduce", "sub", 2, 8, True),
        ("gather", "sub", 3, 8, False),
        ("gather", "sub", 4, 8, False),
    ]
    assert ("send", "0", 1, 0, False) in calls


INTERRUPTED = """
import functools, signal, sys
from _probing_probe import collectives, page
page.open_page()
class Group:
    group_name = "0"
    def size(self): return raises("group") or 4
class c10d:
    ProcessGroup = Group
    world = Group()
    def _get_default_group(): return c10d.world
class Timeout(Exception): pass
class Handler:
    def __call__(self, number, frame): raise Timeout
def named(number, frame): raise Timeout
def any_of_them(*args): raise Timeout
def deeper(number, frame): any_of_them()
def dies(number, frame): raise RuntimeError("a worker was killed")
where = None
def raises(here):
    if where == here: signal.raise_signal(signal.SIGUSR1)
class Tensor:
    dtype = "float32"
    def __init__(self): self.numel = functools.partial(signal.raise_signal, signal.SIGUSR1) if where == "hook" else self.count
    def count(self): return raises("torch") or 8
pack = page.pack_collective
def packing(*words):
    pack(*words)
    raises("written")
page.pack_collective = packing
made = []
reduce = collectives.timed("all_reduce", c10d, lambda tensor: made.append(tensor))
reduce(Tensor())
for handler in (named, any_of_them, Handler(), deeper, dies, signal.default_int_handler):
    signal.signal(signal.SIGUSR1, handler)
    for where in ("hook", "torch", "written", "group"):
        if where == "group": collectives.forget_groups()
        try: reduce(Tensor())
        except (Timeout, RuntimeError, KeyboardInterrupt): pass
        else: sys.exit("lost in " + where)
where = None
reduce(Tensor())
assert len(made) == 2, made
"""


def test_what_a_signals_handler_raises_inside_a_hook_is_the_programs(tmp_path: Path) -> None:
    """A timeout by SIGALRM, torch's word of a killed worker: the call is not made, not counted, and nobody stands inside it."""
    env = {"PROBING_PAGE_DIR": str(tmp_path), "PYTHONPATH": str(inject.SITE_DIRECTORY)}
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", INTERRUPTED], env=env, stderr=subprocess.PIPE, text=True
    )
    _, error = process.communicate()
    assert (process.returncode, error) == (0, "")
    page = pages.parse(read(tmp_path, process))
    assert [(c.seq, c.raised) for c in page.recent_collectives] == [(1, False), *[(2, True)] * 6, (2, False)]
    assert page.inside() is None
