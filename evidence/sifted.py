"""Job logs in batches of lines, of which the reader is fed only those that may matter; the program's ordinary output costs little."""

from __future__ import annotations

from collections.abc import Iterator

from probing_cluster.evidence import blocks
from probing_cluster.evidence.joblog import families, progress
from probing_cluster.evidence.joblog.grammar import JobFinding
from probing_cluster.evidence.joblog.reader import JobLogReader

_NO_BREAK, _HEAD_LINES = "\N{NO-BREAK SPACE}".encode(), 40


class Sieve:
    """Feeds batches of lines to readers of job logs, each time to the one that is given."""

    def __init__(self) -> None:
        self._triggers = blocks.TriggerSieve(families.TRIGGERS)
        self._is_page = False
        """Whether the log was copied from a page or a document that has such blanks."""

    def feed(self, reader: JobLogReader, first: int, batch: list[bytes]) -> Iterator[JobFinding]:
        """Feed the lines with a trigger and those that `reader` follows; the rest is ordinary output.

        `first` is the number of the batch's first line. Line ends may be left on. Yields as `JobLogReader.feed` does.
        """
        batch = [line.rstrip(b"\r\n") for line in batch]
        if first == 1:
            self._is_page = any(_NO_BREAK in line for line in batch[:_HEAD_LINES])
        if self._is_page:
            batch = [line.replace(_NO_BREAK, b" ") for line in batch]
        wanted = iter(self._triggers.hits(batch))
        index = next(wanted, None)
        position = 0
        while position < len(batch):
            if not reader.following(first + position):
                until = len(batch) if index is None else index
                if until > position:
                    skipped = max(position, until - progress.LOOK_BACK_LINES)
                    reader.skipped(first + skipped, batch[skipped:until])
                    position = until
                if index is None:
                    break
            text = batch[position].decode("utf-8", "replace")
            yield from reader.feed(first + position, text)
            position += 1
            while index is not None and index < position:
                index = next(wanted, None)
