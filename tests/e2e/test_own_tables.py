"""A real gang on real Slurm with tables of its own: asked while it runs, killed while it appends, kept when it is over."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from probing_cluster.attribution.history import kept, kept_sql
from probing_cluster.core import settings
from probing_cluster.probe_agent.ranks import ring

pytestmark = [pytest.mark.cluster, pytest.mark.torch, pytest.mark.soak, pytest.mark.timeout(600)]

PROGRAM = """
import os, time, torch, torch.distributed as dist, probing_tables
rank = int(os.environ["SLURM_PROCID"])
dist.init_process_group("gloo", init_method="file://" + os.environ["MEET"], rank=rank, world_size=4)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
table = probing_tables.table("train", step=int, loss=float, mine=int)
def train():
    for step in range(10**9):
        loss = model(torch.ones(2, 8)).square().mean()
        optimizer.zero_grad(); loss.backward(); optimizer.step()
        dist.all_reduce(torch.ones(1))
        table.append(step, loss.item(), rank)
        if step > 50:
            time.sleep(0.05)
train()
"""


def test_asked_killed_and_kept(calm: Any) -> None:
    """Each rank answers for itself, a held GIL has a word, a dead rank's rows are there, and all of it after the end."""
    sandbox = calm.sandbox
    home = sandbox.layout.jobs / "own"
    home.mkdir()
    (home / "train.py").write_text(PROGRAM)
    script = f"export OMP_NUM_THREADS=1 MEET={home}/meet\nsrun --kill-on-bad-exit=0 {sys.executable} {home}/train.py"
    job = sandbox.submit(script, nodes=2, ntasks=4, ntasks_per_node=2, probing="live", no_requeue=True)

    def ask(expression: str, *more: str) -> Any:
        return sandbox.run(
            ["probing-ctl", "eval", str(job), expression, "--quiet", "--json", *more], check=False
        )

    def trains() -> Any:
        done = ask("step > 60")
        return done if done.stdout.count('"rows": [[true]]') == 4 else None

    calm.until("four ranks that train", trains, 120)
    values = ask("{'mine': rank, 'torch': torch.__version__[:1]}").stdout.splitlines()
    assert [f'"rank": {n}' in line and f"[[{n}, " in line for n, line in enumerate(values)] == [True] * 4
    assert ask("1/0", "--rank", "1").stdout.count("ZeroDivisionError") == 1
    held = ask("sum(range(10**10))", "--rank", "2", "--timeout", "1")
    assert held.returncode == 8
    # What a busy collector takes to begin goes off the second that is waited.
    assert re.search(
        r"rank 2 on n\d: no answer: this expression, .* has held the GIL for [0-9.]+ s", held.stderr
    )
    nodes = calm.nodes_of(job)
    found = {
        t.rank: (node, t)
        for node in nodes
        for t in ring.read_rings(str(sandbox.layout.node(node) / f"run/jobs/{job}"), os.geteuid()).tables
    }
    assert sorted(found) == [0, 1, 2, 3]
    os.kill(found[3][1].pid, 9)
    node, before = found[3]
    after = {
        t.rank: t
        for t in ring.read_rings(str(sandbox.layout.node(node) / f"run/jobs/{job}"), os.geteuid()).tables
    }[3]
    assert after.appended >= before.appended
    assert set(after.columns[2].values) == {3}
    sandbox.run(["scancel", str(job)])
    config = settings.load(Path(sandbox.layout.probing_toml))
    directory = kept.directory_of(config.kept)
    assert directory is not None

    def over() -> Any:
        attempts = kept.attempts(directory, config.cluster.name, job)
        return attempts if attempts and len(list(attempts[0].glob("*.kept"))) == 2 else None

    (attempt,) = calm.until("both nodes' files", over, 120)
    calls = kept_sql.context(kept.tables(attempt))
    rows = calls.sql(
        "SELECT rank, max(step) AS s, min(mine) AS m FROM python.train GROUP BY rank ORDER BY rank"
    )
    assert [(r["rank"], r["m"]) for r in rows.to_pylist()] == [(n, n) for n in range(4)]
    assert calls.sql("SELECT count(*) AS n FROM torch.steps").to_pylist()[0]["n"] > 4 * 40
    page = sandbox.run(["probing-report", str(job), "--html", "-"], check=False)
    if page.returncode == 0:
        assert "train: loss along step" in page.stdout
