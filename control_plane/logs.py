"""Structured logs: one JSON object a line on standard error, where journald keeps them."""

from __future__ import annotations

import json
import logging
import sys
from typing import TextIO

from probing_cluster.core import clock


class JsonLines(logging.Formatter):
    """`{"at": …, "level": …, "logger": …, "message": …}` plus the fields given in `extra={"fields": …}`."""

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
        return json.dumps(line, default=str, ensure_ascii=True)


def configure(stream: TextIO = sys.stderr, level: int = logging.INFO) -> None:
    """Send every log of the process there; libraries only from WARNING on."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("probing").setLevel(level)
