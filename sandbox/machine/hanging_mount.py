"""A file system that hangs: a FUSE mount whose server reads every request, prints `taken PID` and answers none.

Once read by the server, a request keeps its caller in uninterruptible sleep; not even SIGKILL
ends it. That is what a dead NFS or Lustre server does, without one. Ending the server aborts
every waiting call.
"""

from __future__ import annotations

import errno
import os
import signal
import struct
import sys
from collections.abc import Mapping
from pathlib import Path

from probing_cluster.sandbox.machine import commands, layout, mounts, processes

_FUSE_INIT = 26
_IN_HEADER = struct.Struct("<IIQQIIII")
_OUT_HEADER = struct.Struct("<IiQ")
_INIT_OUT = struct.Struct("<IIIIHHIIHH32x")
_READ_BYTES = 1 << 20


def role(node: str, path: str) -> str:
    """What the server of this mount is started as."""
    return f"hang-{node}{path.replace('/', '-')}"


def start(lay: layout.Layout, env: Mapping[str, str], node: str, path: str) -> None:
    """Mounts over `path` of the node; returns when it hangs."""
    where = lay.node(node) / "root" / path.lstrip("/")
    where.mkdir(parents=True, exist_ok=True)
    argv = [sys.executable, "-m", "probing_cluster.sandbox.machine.hanging_mount", str(where)]
    name = role(node, path)
    commands.start_ready(
        name,
        argv,
        env=env,
        run=lay.run,
        log=lay.log / f"{name}.out",
        ready=lambda: str(where) in mounts.table(where),
    )


def stop(lay: layout.Layout, node: str) -> None:
    """Ends every hanging mount of the node; calls that wait on one fail at once."""
    roles = {p.role for p in processes.listing(lay.directory) if p.role.startswith(f"hang-{node}-")}
    if roles:
        processes.end(lay.directory, roles)
    mounts.unmount_below(lay.node(node) / "root")


def _serve(where: str) -> None:
    """Mounts and reads requests until SIGTERM; only the first one, the handshake, is answered."""
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
    mounts.mount("probing-hang", Path(where), "fuse", options)

    def leave(*_: object) -> None:
        mounts.unmount_below(Path(where))
        os._exit(0)

    signal.signal(signal.SIGTERM, leave)
    while True:
        try:
            request = os.read(device, _READ_BYTES)
        except OSError as exc:
            if exc.errno in {errno.EINTR, errno.ENOENT}:
                continue
            if exc.errno == errno.ENODEV:  # unmounted
                return
            raise
        _, opcode, unique, _, _, _, pid, _ = _IN_HEADER.unpack_from(request)
        if opcode == _FUSE_INIT:
            body = _INIT_OUT.pack(7, 31, 131_072, 0, 12, 9, 131_072, 1, 0, 0)
            os.write(device, _OUT_HEADER.pack(_OUT_HEADER.size + len(body), 0, unique) + body)
        else:
            # Before this line the caller still ends by SIGKILL.
            print(f"taken {pid}", flush=True)  # noqa: T201 - for who waits for it


if __name__ == "__main__":
    _serve(sys.argv[1])
