"""`probing_tables`: what a program appends is in the ring, and nothing of it ever harms the program."""

import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from probing_cluster.core import errors
from probing_cluster.probe_agent import inject
from probing_cluster.probe_agent.inject.site._probing_probe.tables import rings
from probing_cluster.probe_agent.ranks import ring


def start(tmp_path: Path, code: str, *, python: str = sys.executable, **env: str) -> subprocess.Popen[str]:
    """A job step's interpreter that runs `code`, with a page directory."""
    (tmp_path / "pages").mkdir(exist_ok=True)
    merged = {
        "PATH": os.environ["PATH"],
        "PROBING_PAGE_DIR": str(tmp_path / "pages"),
        "PYTHONPATH": str(inject.SITE_DIRECTORY),
        "SLURM_PROCID": "3",
        "SLURM_NTASKS": "8",
        "SLURMD_NODENAME": "n2",
        **env,
    }
    return subprocess.Popen(
        [python, "-c", code], env=merged, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def run(tmp_path: Path, code: str, **env: str) -> str:
    """What the program prints; it must end well and say nothing else."""
    process = start(tmp_path, "import probing_tables\n" + code, **env)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    return out


def tables(tmp_path: Path) -> dict[str, ring.RingTable]:
    """What the rings of the job say, by table; none may be refused."""
    found = ring.read_rings(str(tmp_path / "pages"), os.geteuid())
    assert (found.refused, found.more) == ({}, 0)
    return {t.name: t for t in found.tables}


def rows(table: ring.RingTable) -> list[tuple[object, ...]]:
    """The rows, oldest first."""
    return list(zip(*(c.values for c in table.columns), strict=True))


def test_rows_of_a_table_are_read_from_outside_after_the_end(tmp_path: Path) -> None:
    """Names, types, values, times and whose they are."""
    before = time.time_ns()
    run(
        tmp_path,
        "t = probing_tables.table('train', step=int, loss=float, name=str, good=bool)\n"
        "t.append(step=1, loss=0.5, name='grün', good=True)\n"
        "t.append(2, 0.25, 'b', False)\n"
        "t.append_many([{'step': 3}, (4, 1)])\n"
        "assert t.take(1)[0][1] == [1, 0.5, 'grün', True] and t.names()[0] == 'step' and t.why == ''\n",
    )
    train = tables(tmp_path)["train"]
    assert [(c.name, c.type) for c in train.columns] == [
        ("step", "int"),
        ("loss", "float"),
        ("name", "text"),
        ("good", "bool"),
    ]
    assert rows(train) == [
        (1, 0.5, "grün", True),
        (2, 0.25, "b", False),
        (3, None, None, None),
        (4, 1.0, None, None),
    ]
    assert (train.rank, train.world_size, train.node, train.dropped, train.unfit) == (3, 8, "n2", 0, 0)
    assert before < train.times_ns[0] <= train.times_ns[-1] < time.time_ns()
    assert next((tmp_path / "pages").iterdir()).stat().st_mode & 0o777 == 0o600


def test_the_oldest_rows_are_dropped_and_counted(tmp_path: Path) -> None:
    """A ring is bounded: what is overwritten is counted, and the newest are there."""
    run(
        tmp_path,
        "t = probing_tables.table('train', step=int)\nfor i in range(1, 10001): t.append(i)\nassert len(t.take()) == 4096",
    )
    train = tables(tmp_path)["train"]
    assert [r[0] for r in rows(train)] == list(range(10000 - 4095, 10001))
    assert (train.appended, train.dropped) == (10000, 10000 - 4096)
    assert sum(p.stat().st_size for p in (tmp_path / "pages").iterdir()) <= ring.MAX_BYTES


def test_a_value_that_does_not_fit_is_null_and_counted(tmp_path: Path) -> None:
    """Nothing that is appended raises: a training must not end because a loss was a text for once."""
    run(
        tmp_path,
        "t = probing_tables.table('t', i=int, f=float, s=str)\n"
        "class Odd:\n    def __float__(self): raise RuntimeError\n    __str__ = __index__ = __int__ = __float__\n"
        "t.append(2**80, 'x', 'y' * 1000)\nt.append(1.5, Odd(), 7)\nt.append(Odd(), b'1', Odd())\n"
        "t.append(3.0, float('nan'), '\\ud800')\nt.append(None, float('inf'), chr(0x1f600) * 100)\n",
    )
    table = tables(tmp_path)["t"]
    found = rows(table)
    assert found[:3] == [(None, None, "y" * 64), (None, None, "7"), (None, None, None)]
    assert found[3][0] == 3
    assert found[3][1] != found[3][1]
    assert found[4] == (None, float("inf"), chr(0x1F600) * 16)
    assert table.unfit == 7


def test_probings_own_class_is_offered_as_it_is(tmp_path: Path) -> None:
    """append, append_ts, append_many, take, names, get, get_or_create, drop, with Probing's results; types by the first row."""
    run(
        tmp_path,
        "E = probing_tables.ExternalTable\n"
        "t = E('m', ['step', 'loss', 'why not'], chunk_size=3, discard_threshold=9)\n"
        "assert t.take() == [] and t.names() == ['step', 'loss', 'why not']\n"
        "t.append([1, 2, 'x']); E.get('m').append((2, 2.5, 'y')); t.append_ts(77, [3, None, None])\n"
        "E.get_or_create('m', ['step', 'loss', 'why not']).append_many([[4, 4, 4]])\n"
        "assert [r for _, r in t.take()] == [[1, 2.0, 'x'], [2, 2.5, 'y'], [3, None, None], [4, 4.0, '4']], t.take()\n"
        "assert t.take(3)[2][0] == 77\n"
        "for wrong in (lambda: t.append([1]), lambda: E.get('none'), lambda: E('m', ['other'])):\n"
        "    try: wrong()\n    except ValueError: continue\n    raise AssertionError\n"
        "E('gone', ['a']).append([1]); E.drop('gone'); E.drop('gone')\n",
    )
    found = tables(tmp_path)
    assert [(c.name, c.type) for c in found["m"].columns] == [
        ("step", "int"),
        ("loss", "float"),
        ("why not", "text"),
    ]
    assert found["m"].appended == 4
    assert set(found) == {"m"}


@pytest.mark.parametrize(
    "decorator", ["probing_tables.table", "probing_tables.ExternalTable", "probing_tables.table('my_point')"]
)
def test_a_dataclass_is_a_table(tmp_path: Path, decorator: str) -> None:
    """As with Probing's decorator: class functions, and `save` of an instance."""
    code = (
        "import dataclasses\nfrom typing import Optional\n"
        f"@{decorator}\n@dataclasses.dataclass\nclass MyPoint:\n    x: int\n    y: Optional[float] = None\n"
        "MyPoint.append(MyPoint(1, 2)); MyPoint(2).save(); MyPoint.append_many([MyPoint(3)])\n"
        "assert MyPoint.take(2)[0][1] == [1, 2.0]\n"
    )
    run(tmp_path, code)
    assert rows(tables(tmp_path)["my_point"]) == [(1, 2.0), (2, None), (3, None)]


def test_names_and_types_that_cannot_be_are_refused_at_once(tmp_path: Path) -> None:
    """Where the table is made, not where it is appended to; a wrong column is Python's own TypeError."""
    run(
        tmp_path,
        "T = probing_tables.table\n"
        "wrong = [lambda: T('', a=int), lambda: T('x' * 65, a=int), lambda: T('x\\n', a=int), lambda: T('x', a=list),\n"
        "         lambda: T('x', **{'class': int}), lambda: T('x', **{'a b': int}), lambda: T('x', slow=int),\n"
        "         lambda: T('x', **{'c%d' % i: int for i in range(65)}), lambda: T('y', a=float)]\n"
        "y = T('y', a=int)\nassert T('y', a=int).names() == ['a']\n"
        "for w in wrong:\n    try: w()\n    except ValueError: continue\n    raise AssertionError\n"
        "try: y.append(b=1)\nexcept TypeError: print('refused')\n",
    )


def test_elsewhere_it_does_nothing(tmp_path: Path) -> None:
    """Without a job: the same calls, no file, and the same mistakes are found."""
    code = (
        "t = probing_tables.table('t', a=int); t.append(1)\nassert t.take() == [] and t.why\n"
        "e = probing_tables.ExternalTable('e', ['a']); e.append([1]); e.append_ts(1, [1]); assert e.take() == []\n"
        "for wrong, kind in ((lambda: t.append(b=1), TypeError), (lambda: e.append([1, 2]), ValueError)):\n"
        "    try: wrong()\n    except kind: continue\n    raise AssertionError\n"
    )
    shutil.copytree(inject.SITE_DIRECTORY / "_probing_probe/tables", tmp_path / "probing_tables")
    run(tmp_path, code, PROBING_PAGE_DIR="", PYTHONPATH=str(tmp_path))
    run(tmp_path, code, PROBING_PAGE_DIR=str(tmp_path / "none"))
    assert list((tmp_path / "pages").iterdir()) == []


def test_a_users_own_module_of_that_name_stays_theirs(tmp_path: Path) -> None:
    """The probe's is found last: nothing of theirs is ever shadowed."""
    (tmp_path / "probing_tables.py").write_text("mine = 'mine'\n")
    path = f"{inject.SITE_DIRECTORY}:{tmp_path}"
    assert run(tmp_path, "print(probing_tables.mine)", PYTHONPATH=path) == "mine\n"


def test_a_program_without_a_table_imports_nothing_for_it(tmp_path: Path) -> None:
    """Process start costs nothing: neither the module nor what it needs is there."""
    code = "import sys; print([m for m in sys.modules if m in ('mmap', 'json', 'probing_tables', '_probing_probe.responder', '_probing_probe.tables')])"
    process = start(tmp_path, code, PROBING="live")
    assert process.communicate(timeout=60) == ("[]\n", "")
    assert list((tmp_path / "pages").iterdir()) == []


def test_a_forked_child_has_a_ring_of_its_own(tmp_path: Path) -> None:
    """Two processes never write one ring; also through an `append` that was taken out before the fork."""
    run(
        tmp_path,
        "import os\nt = probing_tables.table('t', who=int); append = t.append; append(0)\n"
        "e = probing_tables.ExternalTable('e', ['who']); e.append([0])\n"
        "for child in (1, 2):\n    if not os.fork():\n"
        "        for _ in range(3): append(child); e.append([child])\n        os._exit(0)\n"
        "os.wait(); os.wait(); append(0)\n",
    )
    found = ring.read_rings(str(tmp_path / "pages"), os.geteuid())
    of = {name: sorted(rows(t) for t in found.tables if t.name == name) for name in ("t", "e")}
    assert of["t"] == [[(0,), (0,)], [(1,)] * 3, [(2,)] * 3]
    assert of["e"] == [[(0,)], [(1,)] * 3, [(2,)] * 3]
    assert len({t.pid for t in found.tables}) == 3


def test_threads_share_a_table(tmp_path: Path) -> None:
    """No row is lost or mixed."""
    run(
        tmp_path,
        "import threading\nt = probing_tables.table('t', a=int, b=int)\n"
        "def work(k):\n    for i in range(1000): t.append(k, k * 1000 + i)\n"
        "all = [threading.Thread(target=work, args=(k,)) for k in range(4)]\n"
        "[x.start() for x in all]; [x.join() for x in all]\n",
    )
    found = rows(tables(tmp_path)["t"])
    assert sorted(found) == [(k, k * 1000 + i) for k in range(4) for i in range(1000)]


def test_tables_of_a_process_are_bounded(tmp_path: Path) -> None:
    """Beyond the last one the calls go on and keep nothing."""
    run(
        tmp_path,
        "all = [probing_tables.table('t%d' % i, a=int) for i in range(40)]\n[t.append(1) for t in all]\n"
        "assert all[15].why == '' and '16' in all[16].why",
    )
    assert len(list((tmp_path / "pages").iterdir())) == 16


WRITER = """
import sys, probing_tables
t = probing_tables.table("train", a=int, b=int, c=float, d=str)
print("on", flush=True)
i = 0
while True:
    i += 1
    t.append(i, -i, i / 2, str(i) * 3)
"""


def killed(tmp_path: Path) -> Iterator[ring.RingTable]:
    """Tables read while a process appends as fast as it can, and once after its SIGKILL."""
    process = start(tmp_path, WRITER)
    assert process.stdout is not None
    assert process.stdout.readline() == "on\n"
    path = f"{tmp_path}/pages/t{process.pid}-0.ring"
    until = time.monotonic() + 0.02
    while time.monotonic() < until:
        table = ring.read_ring(path, os.geteuid())
        assert table is not None
        yield table
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    table = ring.read_ring(path, os.geteuid())
    assert table is not None
    yield table
    Path(path).unlink()


@pytest.mark.parametrize("times", [6, pytest.param(200, marks=pytest.mark.soak)])
def test_no_torn_row_is_shown_also_after_sigkill(tmp_path: Path, times: int) -> None:
    """Every row read is one that was appended, at any moment; of a killed process at most one is missing."""
    n_read = 0
    for _ in range(times):
        for table in killed(tmp_path):
            for (a, b, c, d), at in zip(rows(table), table.times_ns, strict=True):
                assert isinstance(a, int)
                assert (b, c, d) == (-a, a / 2, str(a) * 3)
                assert at > 0
            numbers = [r[0] for r in rows(table)]
            assert numbers == sorted(set(numbers))
            n_read += len(numbers)
        assert len(table.times_ns) >= min(table.appended, tables_rows(table)) - 1
    assert n_read > 1000 * times


def tables_rows(table: ring.RingTable) -> int:
    """Rows that a ring of these columns has."""
    return rings.rows_for(rings.row_struct([c.type for c in table.columns]).size)


@pytest.mark.parametrize("version", ["3.8", "3.13"])
def test_on_other_pythons(tmp_path: Path, version: str) -> None:
    """The oldest and the newest Python at hand."""
    found = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    python = str(found[0]) if found else shutil.which(f"python{version}")
    if python is None:
        pytest.skip(f"no Python {version} here")
    code = "import probing_tables\nt = probing_tables.table('t', a=int, s=str)\nfor i in range(9): t.append(i, s='x')\nprint(t.take(1)[0][1])"
    process = start(tmp_path, code, python=python)
    assert process.communicate(timeout=60) == ("[0, 'x']\n", "")
    assert [r[0] for r in rows(tables(tmp_path)["t"])] == list(range(9))


def test_the_wheel_is_the_same_module(tmp_path: Path) -> None:
    """Built by hatchling from its own pyproject; it holds that package and works where the probe's directory is not on the path."""
    project = Path(inject.__file__).parent / "wheel"
    built = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "dist")],
        cwd=project, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    (wheel,) = (tmp_path / "dist").glob("probing_tables-*-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        code = {n: archive.read(n) for n in archive.namelist() if ".dist-info" not in n}
        ours = (inject.SITE_DIRECTORY / "_probing_probe/tables").glob("*.py")
        assert code == {f"probing_tables/{p.name}": p.read_bytes() for p in ours}
        archive.extractall(tmp_path / "installed")
    run(
        tmp_path,
        "probing_tables.table('t', a=int).append(7)",
        PYTHONPATH=str(tmp_path / "installed"),
    )
    assert rows(tables(tmp_path)["t"]) == [(7,)]


def test_a_ring_is_no_ring_while_it_is_made(tmp_path: Path) -> None:
    """Its magic is written last."""
    run(tmp_path, "probing_tables.table('t', a=int).append(7)")
    (path,) = (tmp_path / "pages").iterdir()
    path.write_bytes(bytes(path.stat().st_size))
    assert ring.read_ring(str(path), os.geteuid()) is None
    with pytest.raises(errors.MalformedInput):
        ring.parse(path.read_bytes(), path.read_bytes())
