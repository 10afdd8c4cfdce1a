"""Reads the probe pages of one job as the job's own user; a resident process, one per job with pages.

The first request names directory, uid and gid; from then on the process can do nothing that the user
could not. One JSON line in, one out: `{"pages": {name: page as words in hex}, "refused": {name: why}, "more": n}`.
The bytes are parsed by the agent: this process only fetches them.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from typing import Any

from probing_cluster.probe_agent.inject.site._probing_probe import layout
from probing_cluster.probe_agent.jobs import collect_child
from probing_cluster.probe_agent.ranks import pages

_NAME = re.compile(r"p[0-9]{1,10}(-[0-9]{1,20})?\.page")
MAX_PAGES = 512
"""Pages read per job and node; a flood beyond them is counted, not read."""


def read_pages(directory: str, uid: int) -> dict[str, Any]:
    """The pages in `directory`, newest names cut off at MAX_PAGES."""
    found: dict[str, str] = {}
    refused: dict[str, str] = {}
    more = 0
    with os.scandir(directory) as entries:
        for entry in entries:
            if _NAME.fullmatch(entry.name) is None:
                continue
            if len(found) + len(refused) >= MAX_PAGES:
                more += 1
                if more >= MAX_PAGES:
                    break
                continue
            try:
                page = f"{directory}/{entry.name}"
                found[entry.name] = pages.settled(_read(page, uid), _read(page, uid)).hex()
            except collect_child.Refused as exc:
                refused[entry.name] = str(exc)
    return {"pages": found, "refused": refused, "more": more}


def _read(path: str, uid: int) -> bytes:
    data, file_stat = collect_child.read_own(path, uid, layout.SIZE_BYTES)
    if file_stat.st_size != layout.SIZE_BYTES:
        raise collect_child.Refused("not the size of a page")
    return data


def main() -> int:
    """Answer requests until standard input closes."""
    ready: Mapping[str, Any] | None = None
    for line in sys.stdin.buffer:
        request = json.loads(line)
        try:
            if ready is None:
                collect_child.become(request["uid"], request["gid"])
                collect_child.limit(cpu_s=None)
                ready = request
            answer = read_pages(ready["directory"], ready["uid"])
        except collect_child.Refused as exc:
            answer = {"refused": {"": str(exc)}}
        except (OSError, MemoryError) as exc:
            answer = {"refused": {"": f"{type(exc).__name__}: {exc}"}}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
