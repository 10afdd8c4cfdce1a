"""How polled sources reach the node: files and mounts through one resident child, NVML through another, tools one by one."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from probing_cluster.probe_agent import children, identity

_FILE_CHILD = Path(__file__).with_name("file_child.py")
TROUBLE_S = 600.0
"""After a mount hung, every remote mount is asked by a child of its own for so long."""
_TOOL_DIRECTORIES = ("usr/sbin", "usr/bin", "sbin", "bin", "usr/local/sbin", "usr/local/bin", "opt/bin")


class ChildReader:
    """The real thing; see sources.polled.NodeReader."""

    def __init__(
        self,
        identity: identity.Identity,
        started: children.Children,
        *,
        nvml_library: str = "",
        amdsmi_library: str = "",
        deadline_s: float = 5.0,
    ) -> None:
        self._identity = identity
        self._children = started
        self._deadline_s = deadline_s
        self._files = children.Lane(started, "files", _file_child())
        self._mounts = children.Lane(started, "mounts", _file_child())
        self._asking = asyncio.Lock()
        self._trouble_until_s = 0.0
        nvml = [sys.executable, "-I", "-m", "probing_cluster.probe_agent.sources.nvml_child"]
        environment = {k: v for k, v in os.environ.items() if k.startswith(("PROBING_", "LD_LIBRARY_PATH"))}
        self._nvml = children.Lane(
            started, "nvml", [*nvml, nvml_library] if nvml_library else nvml, environment
        )
        amdsmi = [sys.executable, "-I", "-m", "probing_cluster.probe_agent.sources.amdsmi_child"]
        self._amdsmi = children.Lane(
            started, "amdsmi", [*amdsmi, amdsmi_library] if amdsmi_library else amdsmi, environment
        )

    async def files(
        self, patterns: Sequence[str], links: Sequence[str] = (), skip: Sequence[str] = ()
    ) -> Mapping[str, Any]:
        request = {
            "op": "read",
            "root": str(self._identity.root),
            "patterns": list(patterns),
            "links": list(links),
            "skip": list(skip),
        }
        return await self._files.ask(request, deadline_s=self._deadline_s)

    async def touch(self, path: str, *, remote: bool) -> Mapping[str, Any]:
        """While all is well one child asks every remote mount in turn; once one has hung, each gets a child of its own.

        So a server that does not answer holds up nothing else for longer than its own deadline, and a healthy
        node starts no process a minute and mount.
        """
        request = {"op": "touch", "root": str(self._identity.root), "path": path}
        if not remote:
            return await self._files.ask(request, deadline_s=self._deadline_s)
        key = f"mount {path}"
        async with self._asking:
            if time.monotonic() >= self._trouble_until_s and key not in self._children.hung:
                try:
                    return await self._mounts.ask(request, deadline_s=self._deadline_s, key=key)
                except children.ChildHung:
                    self._trouble_until_s = time.monotonic() + TROUBLE_S
                    raise
        lane = children.Lane(self._children, key, _file_child())
        try:
            return await lane.ask(request, deadline_s=self._deadline_s)
        finally:
            await lane.close()

    async def command(self, name: str, *args: str) -> children.Finished | None:
        program = self._which(name)
        if program is None:
            return None
        return await self._children.run(name, [program, *args], deadline_s=self._deadline_s)

    async def nvml(self, *, links: bool) -> Mapping[str, Any]:
        return await self._nvml.ask({"links": links}, deadline_s=2 * self._deadline_s)

    async def amdsmi(self) -> Mapping[str, Any]:
        return await self._amdsmi.ask({}, deadline_s=2 * self._deadline_s)

    async def close(self) -> None:
        """End the resident children."""
        await self._files.close()
        await self._mounts.close()
        await self._nvml.close()
        await self._amdsmi.close()

    def _which(self, name: str) -> str | None:
        """Below the node's root only: this machine's tools say nothing about a directory that plays a node."""
        found = (self._identity.root / d / name for d in _TOOL_DIRECTORIES)
        return next((str(p) for p in found if os.access(p, os.X_OK)), None)


def _file_child() -> list[str]:
    return [sys.executable, "-I", "-S", str(_FILE_CHILD)]
