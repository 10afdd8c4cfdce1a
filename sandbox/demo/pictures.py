"""Makes the README's pictures: pages that the commands wrote, photographed by Debian's Chromium.

`make pictures` (`python -m probing_cluster.sandbox.demo.pictures`) writes docs/job_page.png, the report of the recorded incident, and
docs/fleet_page.png and docs/web_jobs.png, the figures and the web's list of failed jobs of a made-up month of 64 nodes, imported and judged,
and docs/web_now.png, the web's first page on its made-up last day.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from PIL import Image

from probing_cluster.core import errors, settings
from probing_cluster.sandbox.demo import now_page, recording, web_page
from probing_cluster.sandbox.machine import commands, scratch

DOCS = Path(__file__).resolve().parents[2] / "docs"
WIDTH_PX, HEIGHT_PX = 1100, 1000
COLOURS = 64
"""Enough for flat charts and text, and a third of the bytes."""

_SINCE = datetime(2026, 10, 1, tzinfo=UTC)
_DAYS, _NODES, _JOBS = 28, 64, 1500
_ENDS = {"COMPLETED": 0.72, "FAILED": 0.2, "CANCELLED": 0.05, "TIMEOUT": 0.03}
_XIDS = {"79": 0.5, "48": 0.3, "119": 0.2}
_STRUCK_FRAC = 0.25
"""Share of failed jobs that a GPU's fault ended."""


def main() -> None:
    """Writes the pictures."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        raise errors.UsageError("no chromium; install it with `apt-get install chromium`")
    with scratch.directory("probing-pictures-") as home:
        pages = (
            ("job_page", _job_page(home)), ("fleet_page", _fleet_page(home)), ("web_jobs", home / "web_jobs.html"),
            ("web_now", now_page.save(home)),
        )  # fmt: skip
        for name, page in pages:
            photograph(chromium, page, DOCS / f"{name}.png", home)


def photograph(chromium: str, page: Path, target: Path, home: Path) -> None:
    """The top of a page, as a browser shows it."""
    shot = home / "shot.png"
    arguments = [
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        f"--user-data-dir={home}/chromium",
    ]
    size = f"--window-size={WIDTH_PX},{HEIGHT_PX}"
    _run(chromium, *arguments, size, f"--screenshot={shot}", page.as_uri())
    with Image.open(shot) as image:
        image.convert("RGB").quantize(COLOURS).save(target, optimize=True)


def _job_page(home: Path) -> Path:
    _run(_tool("probing-sandbox"), "demo", "--replay", "--dir", str(home / "replay"))
    return home / "replay" / f"report-{recording.load(recording.DEMO).job_id}.html"


def _fleet_page(home: Path) -> Path:
    sacct, events, page = home / "sacct.txt", home / "events.jsonl", home / "fleet.html"
    _write_month(sacct, events)
    _run(
        _tool("probing-ctl"),
        "import",
        "--sacct",
        str(sacct),
        "--events",
        str(events),
        "--database",
        str(home / "fleet"),
    )
    config = home / "fleet/probing.toml"
    span = ("--since", f"{_SINCE:%Y-%m-%d}", "--until", f"{_SINCE + timedelta(days=_DAYS):%Y-%m-%d}")
    try:
        _run(_tool("probing-ctl"), "attribute", *span, config=config)
        _run(_tool("probing-ctl"), "fleet", "--html", str(page), *span, config=config)
        web_page.save(settings.load(config), "/jobs?state=FAILED&domain=hardware", home / "web_jobs.html")
    finally:
        _run(_tool("probing-ctl"), "db", "stop", config=config)
    return page


def _write_month(sacct: Path, events: Path) -> None:
    """A month of jobs and of Xids under a quarter of the failed ones; always the same."""
    rng = random.Random(7)
    rows = ["JobID|JobName|User|Partition|State|ExitCode|Submit|Start|End|NNodes|NodeList|AllocTRES"]
    with events.open("w") as stream:
        for job in range(1, _JOBS + 1):
            submit = _SINCE + timedelta(days=rng.random() * (_DAYS - 2))
            start = submit + timedelta(minutes=rng.expovariate(1 / 20))
            end = start + timedelta(hours=min(rng.lognormvariate(0.5, 1.2), 40))
            n_nodes = rng.choice((1, 1, 1, 1, 2, 2, 4, 8, 16))
            first = rng.randrange(1, _NODES - n_nodes + 2)
            state = rng.choices(list(_ENDS), list(_ENDS.values()))[0]
            code = "1:0" if state == "FAILED" else "0:0"
            nodes = f"n{first:03}" if n_nodes == 1 else f"n[{first:03}-{first + n_nodes - 1:03}]"
            words = (job, "train", f"user{job % 9}", "gpu", state, code, f"{submit:%FT%T}", f"{start:%FT%T}", f"{end:%FT%T}",
                     n_nodes, nodes, f"gres/gpu={8 * n_nodes},node={n_nodes}")  # fmt: skip
            rows.append("|".join(map(str, words)))
            if state == "FAILED" and rng.random() < _STRUCK_FRAC:
                xid = rng.choices(list(_XIDS), list(_XIDS.values()))[0]
                at = (end - timedelta(seconds=8)).isoformat()
                event = {
                    "at": at,
                    "node": f"n{first:03}",
                    "kind": "xid",
                    "code": xid,
                    "device": f"gpu{job % 8}",
                }
                stream.write(json.dumps(event) + "\n")
    sacct.write_text("\n".join(rows) + "\n")


def _tool(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


def _run(*argv: str, config: Path | None = None) -> None:
    env = dict(os.environ) if config is None else {**os.environ, "PROBING_CONFIG": str(config)}
    commands.run(argv, env=env, timeout_s=300)


if __name__ == "__main__":
    main()
