"""Structured logs of the daemons: one JSON object a line on standard error, where journald keeps them.

Where standard error is the journal's own stream each line begins with its syslog priority (`<3>` error …
`<7>` debug, sd-daemon(3)), so that `journalctl -p warning -u probing-agent` finds what it should.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Mapping
from typing import TextIO

from probing_cluster.core import clock

_PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))


class JsonLines(logging.Formatter):
    """`{"at": …, "level": …, "logger": …, "message": …}` plus the fields given in `extra={"fields": …}`."""

    def __init__(self, *, priorities: bool = False) -> None:
        super().__init__()
        self._priorities = priorities

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": clock.iso_z(clock.from_epoch_s(record.created)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[0] is not None:
            line["exception"] = self.formatException(record.exc_info)
        text = json.dumps(line, default=str, ensure_ascii=True)
        return f"<{priority(record.levelno)}>{text}" if self._priorities else text


def priority(level: int) -> int:
    """The syslog priority of a logging level: 2 (critical) to 7 (debug)."""
    return next((number for least, number in _PRIORITIES if level >= least), 7)


def to_journal(stream: TextIO, environment: Mapping[str, str] = os.environ) -> bool:
    """True when systemd connected this stream to the journal (`JOURNAL_STREAM` names its device and inode)."""
    device, _, inode = environment.get("JOURNAL_STREAM", "").partition(":")
    try:
        stat = os.fstat(stream.fileno())
    except (OSError, ValueError):  # closed, or no file at all
        return False
    return (device, inode) == (str(stat.st_dev), str(stat.st_ino))


def configure(stream: TextIO = sys.stderr, level: int = logging.INFO) -> None:
    """Send every log of the process there; libraries only from WARNING on, ours from `level`."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines(priorities=to_journal(stream)))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    for ours in ("probing", "probing_cluster"):
        logging.getLogger(ours).setLevel(level)
