"""One node's part of `probing-ctl eval`: the question from the environment, which only its owner may read, answers to standard output.

Runs in a step of the job, as its owner. `PROBING_QUESTION` is JSON: directory of page directories, job id, expression, rank or
null, seconds to wait. A node without the rank writes nothing.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Any

from probing_cluster.core import errors
from probing_cluster.probe_agent.ranks import evaluate

VARIABLE = "PROBING_QUESTION"
_LINE_CHARS = 960
"""With srun's label a line stays below the 1,024 bytes in which it passes output on."""


def answers(question: dict[str, Any], directory: Path) -> list[dict[str, Any]]:
    """What the ranks on this node say, as JSON objects; raises OSError where there is no directory of this job."""
    uid = directory.stat().st_uid
    targets = [t for t in evaluate.of_pages(directory, uid) if question["rank"] in (None, t.rank)]
    found = evaluate.evaluate(
        directory, uid, question["expression"], targets, deadline_s=float(question["deadline_s"])
    )
    return [dataclasses.asdict(answer) for answer in found]


def main() -> int:
    """Answer the question of the environment."""
    question = json.loads(os.environ.pop(VARIABLE))
    # SPANK's word first: %n and het parts are resolved in it.
    directory = Path(os.environ.get("PROBING_PAGE_DIR") or f"{question['base']}/{int(question['job_id'])}")
    node = os.environ.get("SLURMD_NODENAME") or os.uname().nodename
    try:
        reply: dict[str, Any] = {"node": node, "answers": answers(question, directory)}
    except (OSError, errors.ProbingError) as exc:
        reply = {"node": node, "failed": str(exc)}
    if reply.get("answers") or "failed" in reply:
        text = base64.b64encode(json.dumps(reply).encode()).decode("ascii")
        sys.stdout.writelines(text[at : at + _LINE_CHARS] + "\n" for at in range(0, len(text), _LINE_CHARS))
    return 0


if __name__ == "__main__":
    sys.exit(main())
