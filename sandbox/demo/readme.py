"""Writes the README's generated part: the report of the recorded incident.

`python -m probing_cluster.sandbox.demo.readme` rewrites README.md; a test asserts that there is nothing to rewrite.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from probing_cluster.sandbox.demo import recording
from probing_cluster.sandbox.machine import commands, scratch

ROOT = Path(__file__).resolve().parents[2]
RECORDING = Path(__file__).with_name("recordings") / "gpu_off_the_bus.json"


def report_text() -> str:
    """What `probing-report` prints for the recorded incident, through a real database and real attribution."""
    incident = recording.load(RECORDING)
    command = Path(sys.executable).with_name("probing-sandbox")
    with scratch.directory("probing-readme-") as directory:
        done = commands.run(
            [str(command), "demo", "--replay", "--dir", str(directory / "replay")],
            env=os.environ,
            timeout_s=120,
        )
    start = done.stdout.index(f"Job {incident.job_id} ")
    text = done.stdout[start:]
    end = re.search(r"^\[ *[\d.]+ s\]", text, re.MULTILINE)
    return (text[: end.start()] if end else text).rstrip() + "\n"


def with_block(text: str, name: str, body: str) -> str:
    """`text` with what stands between `<!-- name -->` and `<!-- /name -->` replaced."""
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    if not pattern.search(text):
        raise ValueError(f"README.md has no block {name}")
    return pattern.sub(lambda m: m[1] + body + m[2], text)


def current() -> str:
    """README.md as it should be."""
    text = (ROOT / "README.md").read_text()
    job = recording.load(RECORDING).job_id
    return with_block(text, "report", f"```\n$ probing-report {job}\n{report_text()}```\n")


if __name__ == "__main__":
    (ROOT / "README.md").write_text(current())
