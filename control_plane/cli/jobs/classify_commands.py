"""`probing-ctl classify`: what kernel lines or a job's output say, one JSON object a line."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from pathlib import Path
from typing import IO

from probing_cluster.control_plane.cli import commands
from probing_cluster.control_plane.imports import packed
from probing_cluster.core import errors, sanitize

_LOOK_AT_BYTES = 8192
_MOST_OTHER_FRAC = 0.3
"""A file that begins with zeros or holds some, and of whose text more than this is none, is a program or an archive."""
_READ_AS = {"kernel": "a kernel log", "joblog": "a job's output"}


def register(register: commands.Commands) -> None:
    """Adds `classify`."""
    made = register.add(
        "classify", _classify, "name what kernel lines or a job's output say; one JSON object a line"
    )
    made.add_argument(
        "file", metavar="FILE", nargs="?", default="-", help="a log, or - for standard input (the default)"
    )
    made.add_argument("--kind", choices=("kernel", "joblog"), help="what it is a log of (default: found out)")
    made.add_argument("--all", action="store_true", help="also print a line for what says nothing")


def _classify(args: argparse.Namespace) -> int:
    if args.file == "-":
        return _stream(sys.stdin.buffer, args, follow=not sys.stdin.seekable())
    try:
        with packed.opened(Path(args.file)) as stream:
            return _stream(stream, args, follow=False)
    except OSError as exc:
        raise errors.MalformedInput(f"{args.file} cannot be read: {exc.strerror}") from exc


def _stream(stream: IO[bytes], args: argparse.Namespace, *, follow: bool) -> int:
    from probing_cluster.evidence import classify

    # `| head` ends us as it ends grep: silently, in the middle of whatever. Whoever calls this in a process of its own gets its
    # signal back: any closed socket would end that.
    before = signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    n_found = n_written = 0
    kinds: list[str] = []
    try:
        for found in classify.classify_stream(stream, args.kind, args.all, kinds.append):
            n_written += 1
            n_found += found["kind"] != "none"
            sys.stdout.write(json.dumps(found, default=str, ensure_ascii=True) + "\n")
            if follow:
                sys.stdout.flush()
        sys.stdout.flush()
    finally:
        signal.signal(signal.SIGPIPE, before)
    if not n_written and stream.seekable():
        _require_text(stream, args.file)
    for kind in kinds if not follow else ():
        other = next(k for k in _READ_AS if k != kind)
        name = "standard input" if args.file == "-" else sanitize.clean(args.file)
        words = f"{n_found} finding{'s' * (n_found != 1)}, read as {_READ_AS[kind]} (--kind {other}: as {_READ_AS[other]})"
        print(f"{name}: {words}", file=sys.stderr)
    return 0


def _require_text(stream: IO[bytes], name: str) -> None:
    """Raises MalformedInput for a file that is no log: of one, too, nothing would be printed where it says nothing.

    A log may hold other bytes than text: what a program dumped into it, and zeros where it was truncated while a job wrote on.
    """
    stream.seek(0)
    head = stream.read(_LOOK_AT_BYTES)
    source = "standard input" if name == "-" else name
    if not head:
        raise errors.MalformedInput(f"{source} is empty; there is nothing to classify")
    while head and not (text := head.lstrip(b"\0")):
        head = stream.read(_LOOK_AT_BYTES)
    if b"\0" in head and _other_frac(text) > _MOST_OTHER_FRAC:
        raise errors.MalformedInput(f"{source} is no text; give a log as dmesg, journalctl or a job wrote it")


def _other_frac(data: bytes) -> float:
    """Share of the characters that are no text: controls that no terminal obeys, and bytes that are no UTF-8."""
    text = data.decode("utf-8", "replace")
    n_other = sum(c == "\ufffd" or (c < " " and c not in "\t\n\r\b\f\a\x1b") for c in text)
    return n_other / max(len(text), 1)
