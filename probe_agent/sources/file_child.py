"""Reads the node's small files, and touches its mounts, in a process that may hang without harm.

Started by path with `python -I -S`, so it imports the standard library only. One JSON request per line on
standard input, one JSON answer per line; it ends when its input does. Also importable: `read` is what
the polled sources' tests call on a fixture directory.
"""

# ruff: noqa: PTH115, PTH118, PTH119, PTH208
# os.path, not pathlib: this program is started often and pathlib doubles its start-up.

from __future__ import annotations

import errno
import fnmatch
import glob
import json
import os
import re
import sys
from typing import Any

MAX_BYTES = 262144
"""Most of one file that is read; sysfs and procfs files of interest are far smaller."""


def read(
    root: str, patterns: list[str], links: list[str] | None = None, skip: list[str] | None = None
) -> dict[str, Any]:
    """Texts, failures and link targets of everything that matches and is not skipped, keyed by absolute path below `root`.

    Answers {"files": {path: text}, "errors": {path: errno name}, "links": {path: last part of the target}}.
    """
    files: dict[str, str] = {}
    failed: dict[str, str] = {}
    targets: dict[str, str] = {}
    skipped = re.compile("|".join(fnmatch.translate(s.lstrip("/")) for s in skip)).match if skip else None
    for name in _matches(root, patterns):
        if skipped is not None and skipped(name):
            continue
        try:
            files["/" + name] = _text(os.path.join(root, name))
        except OSError as exc:
            if exc.errno != errno.EISDIR:
                failed["/" + name] = errno.errorcode.get(exc.errno or 0, "EIO")
    for name in _matches(root, links or []):
        try:
            targets["/" + name] = os.path.basename(os.readlink(os.path.join(root, name)))
        except OSError as exc:
            failed["/" + name] = errno.errorcode.get(exc.errno or 0, "EIO")
    return {"files": files, "errors": failed, "links": targets}


def touch(root: str, path: str) -> dict[str, Any]:
    """Space and flags of the file system at `path`, after reading one directory entry of it."""
    where = os.path.join(root, path.lstrip("/"))
    try:
        with os.scandir(where) as entries:
            next(entries, None)
        filesystem = os.statvfs(where)
    except OSError as exc:
        return {"error": errno.errorcode.get(exc.errno or 0, "EIO")}
    return {
        "bytes_total": filesystem.f_frsize * filesystem.f_blocks,
        "bytes_free": filesystem.f_frsize * filesystem.f_bavail,
        "inodes_total": filesystem.f_files,
        "inodes_free": filesystem.f_favail,
        "read_only": bool(filesystem.f_flag & os.ST_RDONLY),
    }


def _matches(root: str, patterns: list[str]) -> list[str]:
    """Paths below `root` that exist and match a pattern; only `*`, `?` and `[` within one part of a path are magic.

    glob.glob would walk the same directories once per pattern: that was most of what reading the ports cost.
    """
    listed: dict[str, list[str]] = {}
    found: set[str] = set()
    for pattern in patterns:
        _match(root, "", pattern.lstrip("/").split("/"), listed, found)
    return sorted(found)


def _match(root: str, base: str, parts: list[str], listed: dict[str, list[str]], found: set[str]) -> None:
    magic = next((n for n, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    base = "/".join([*([base] if base else []), *parts[:magic]])
    if magic == len(parts):
        if os.path.lexists(f"{root}/{base}"):
            found.add(base)
        return
    if base not in listed:
        try:
            listed[base] = os.listdir(f"{root}/{base}")
        except OSError:
            listed[base] = []
    # As in a shell, a name that begins with a dot is matched by a dot only.
    names = [n for n in listed[base] if n[0] != "." or parts[magic][0] == "."]
    for name in fnmatch.filter(names, parts[magic]):
        _match(root, f"{base}/{name}" if base else name, parts[magic + 1 :], listed, found)


def _text(path: str) -> str:
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        kept = b""
        while len(kept) < MAX_BYTES:
            chunk = os.read(fd, min(65536, MAX_BYTES - len(kept)))
            if not chunk:
                break
            kept += chunk
    finally:
        os.close(fd)
    return kept.decode("utf-8", "replace")


def main() -> None:
    """Answer until the input ends."""
    for line in sys.stdin:
        request = json.loads(line)
        if request["op"] == "read":
            answer = read(request["root"], request["patterns"], request.get("links"), request.get("skip"))
        else:
            answer = touch(request["root"], request["path"])
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
