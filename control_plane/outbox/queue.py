"""Messages that wait until they are delivered: one file each, kept through restarts and failures.

A message has a key, and a key is delivered once: what was sent leaves its name behind, in `sent/`. A recipient who
has got it is struck off, so that a retry for the others reaches nobody twice. Whoever dies between a delivery and
its mark delivers once more under the same key, which every message carries.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import fcntl
import itertools
import json
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from datetime import datetime, timedelta
from pathlib import Path

from probing_cluster.core import clock, errors, settings
from probing_cluster.reports.sending import smtp

LOG = logging.getLogger("probing.outbox")
MOST_WAIT = timedelta(hours=4)
KEPT = timedelta(days=30)
"""How long the name of a sent message is remembered, and a message that could not be delivered is kept for a person."""
_SUFFIX = ".letter"
_LANES = 8
"""Lanes delivered at once, each by one round at a time: one slow server must not keep the others' messages, of this round or a later one."""
_IN_A_ROW = 3
"""After so many messages of one lane that nobody took, the rest of it waits for the next round."""
_HALF_S = 3600.0
_NUMBERS = itertools.count()


@dataclasses.dataclass(frozen=True, kw_only=True)
class QueuedMessage:
    """One mail or post on its way."""

    key: str
    kind: str
    """mail, webhook, notice, or a question to ourselves that waits for its answer."""
    body: bytes
    recipients: tuple[str, ...]
    """Recipients who have not got it yet."""
    made_at: datetime
    state: str = "waiting"
    """waiting, sent or failed."""
    tries: int = 0
    next_at: datetime | None = None
    """Not before; None = at once."""
    why: str = ""
    """Why it could not be sent."""
    lane: str = ""
    """Messages of one lane go one after the other; empty = its kind."""


Deliver = Callable[[QueuedMessage], smtp.SendOutcome]


class Outbox:
    """A directory of messages, readable by its owner alone."""

    def __init__(self, directory: Path, *, retry: timedelta, keep_trying: timedelta) -> None:
        self._directory = directory
        self._retry = retry
        self._keep_trying = keep_trying

    def put(self, message: QueuedMessage, *, again: bool = False) -> bool:
        """Keep a message for delivery; False when one of that key is known already, unless `again`.

        Waits for no delivery in progress, unless `again`.
        """
        if again:
            with self._locked(_lane(message), wait=True):
                self._sent(message.key).unlink(missing_ok=True)
                self._write(message)
            return True
        self._make()
        fresh = self._fresh(message)
        try:
            os.link(fresh, self._path(message.key))
        except FileExistsError:
            return False
        finally:
            fresh.unlink()
        # Looked for afterwards: whoever delivers writes the name there before it takes the message away here.
        if self._sent(message.key).exists():
            self._path(message.key).unlink(missing_ok=True)
            return False
        return True

    def messages(self) -> list[QueuedMessage]:
        """Every message known, oldest first."""
        sent = (dataclasses.replace(x, state="sent") for x in self._read_all(self._directory / "sent"))
        return _sorted([*self._read_all(self._directory), *sent])

    def pending(self) -> list[QueuedMessage]:
        """The messages that wait or failed, oldest first; sent ones are not read."""
        return _sorted(x for x in self._read_all(self._directory) if x.state != "sent")

    def known(self, key: str) -> bool:
        """Whether a message of that key waits, failed or was sent."""
        return self._path(key).exists() or self._sent(key).exists()

    def update(self, message: QueuedMessage) -> None:
        """Replace a message that waits."""
        self._write(message)

    def done(self, message: QueuedMessage) -> None:
        """Take a message away and leave its name."""
        self._make()
        self._write(dataclasses.replace(message, recipients=(), state="sent", body=b""))

    def flush(
        self, deliver: Deliver, now: datetime, *, all_now: bool = False, wait: bool = True
    ) -> list[QueuedMessage]:
        """Try what is due (with `all_now` also what waits or failed); the messages tried, as they are afterwards.

        A lane that another round is delivering is waited for, or with `wait` False left to that round, which also
        takes what comes meanwhile.
        """
        # Those that failed are nobody's work: a lane of nothing else is not read once more.
        lanes = sorted(
            {
                _lane(x)
                for x in self._read_all(self._directory)
                if _due(x, now, all_now=all_now) or self._sent(x.key).exists()
            }
        )

        def one(lane: str) -> list[QueuedMessage]:
            with self._locked(lane, wait=wait) as mine:
                return list(self._deliver_lane(deliver, lane, now, all_now=all_now)) if mine else []

        if len(lanes) < 2:
            tried = [x for lane in lanes for x in one(lane)]
        else:
            with futures.ThreadPoolExecutor(_LANES, "outbox") as pool:
                tried = [x for found in pool.map(one, lanes) for x in found]
        return _sorted(tried)

    def forget(self, now: datetime) -> int:
        """Remove messages that failed, and the names of those that were sent, longer ago than KEPT; how many."""
        old = [x for x in self.messages() if x.state in ("sent", "failed") and now - x.made_at > KEPT]
        for message in old:
            at = self._sent if message.state == "sent" else self._path
            at(message.key).unlink(missing_ok=True)
        for half in self._directory.glob("*.new"):  # of a process that was killed while it wrote
            with contextlib.suppress(FileNotFoundError):
                if now.timestamp() - half.stat().st_mtime > _HALF_S:
                    half.unlink()
        return len(old)

    def _deliver_lane(
        self, deliver: Deliver, lane: str, now: datetime, *, all_now: bool
    ) -> Iterator[QueuedMessage]:
        """Deliver what is due of one lane, and what is put there meanwhile; it is locked."""
        tried: set[str] = set()
        in_vain = 0
        while messages := [x for x in self._due(lane, now, all_now=all_now) if x.key not in tried]:
            for message in messages:
                if in_vain >= _IN_A_ROW:
                    return
                tried.add(message.key)
                after = self._after(message, _tried(deliver, message), now)
                self._write(after)
                untouched = (after.state, after.recipients) == ("waiting", message.recipients)
                in_vain = in_vain + 1 if untouched else 0
                yield after

    def _due(self, lane: str, now: datetime, *, all_now: bool) -> Iterator[QueuedMessage]:
        """The messages of a lane that are to be tried now, oldest first; what a killed round delivered is struck off."""
        for message in _sorted(x for x in self._read_all(self._directory) if _lane(x) == lane):
            if message.state == "sent" or self._sent(message.key).exists():
                self.done(message)
            elif _due(message, now, all_now=all_now):
                yield message

    def _after(self, message: QueuedMessage, outcome: smtp.SendOutcome, now: datetime) -> QueuedMessage:
        """The message after one attempt."""
        tries = message.tries + 1
        undelivered = {**outcome.never, **outcome.later}
        why = outcome.trouble or "; ".join(
            f"{recipient}: {reason}" for recipient, reason in undelivered.items()
        )
        base = dataclasses.replace(message, tries=tries, why=why, next_at=None)
        if outcome.trouble:
            LOG.error("message held up", extra={"fields": {"key": message.key, "why": outcome.trouble}})
        if outcome.later and now - message.made_at < self._keep_trying:
            if outcome.never:
                self._alarm(message, "; ".join(f"{w}: {r}" for w, r in outcome.never.items()))
            wait = min(self._retry * 2 ** min(message.tries, 16), MOST_WAIT)
            return dataclasses.replace(
                base, recipients=tuple(outcome.later), state="waiting", next_at=now + wait
            )
        if undelivered:
            self._alarm(message, why)
            return dataclasses.replace(base, recipients=tuple(undelivered), state="failed")
        return dataclasses.replace(base, recipients=(), state="sent", body=b"")

    def _alarm(self, message: QueuedMessage, why: str) -> None:
        LOG.error(
            "message not delivered",
            extra={"fields": {"key": message.key, "kind": message.kind, "why": why}},
        )

    @contextlib.contextmanager
    def _locked(self, lane: str, *, wait: bool) -> Iterator[bool]:
        """Whether a lane is ours: rounds of this process, of two services on one machine and of people take turns."""
        self._make()
        path = self._directory / f"{_name(lane)}.lock"
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                yield False
            else:
                yield True
        finally:
            os.close(handle)

    def _make(self) -> None:
        try:
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as exc:
            raise errors.SettingsError(f"[mail] spool_directory {self._directory}: {exc.strerror}") from exc

    def _path(self, key: str) -> Path:
        return self._directory / (_name(key) + _SUFFIX)

    def _sent(self, key: str) -> Path:
        return self._directory / "sent" / (_name(key) + _SUFFIX)

    def _write(self, message: QueuedMessage) -> None:
        if message.state != "sent":
            self._fresh(message).replace(self._path(message.key))
            return
        (self._directory / "sent").mkdir(exist_ok=True, mode=0o700)
        # Its name first, at once: whoever dies while a file is made safe on disk must not deliver it again.
        with contextlib.suppress(FileNotFoundError):
            self._path(message.key).replace(self._sent(message.key))
        self._fresh(message).replace(self._sent(message.key))

    def _fresh(self, message: QueuedMessage) -> Path:
        """The message in a file of its own, safe on disk and not yet under its name."""
        fresh = self._directory / f"{_name(message.key)}.{os.getpid()}-{next(_NUMBERS)}.new"
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            json.dump(_plain(message), stream)
            stream.flush()
            os.fsync(stream.fileno())
        return fresh

    @staticmethod
    def _read_all(directory: Path) -> Iterable[QueuedMessage]:
        for path in directory.glob(f"*{_SUFFIX}"):
            try:
                yield _letter(json.loads(path.read_text("utf-8")))
            except FileNotFoundError:
                continue  # another process took it away meanwhile
            except (OSError, ValueError, KeyError, TypeError, AssertionError):
                LOG.exception("message unreadable, set aside", extra={"fields": {"file": str(path)}})
                path.replace(path.with_suffix(".unreadable"))


def of(config: settings.Settings) -> Outbox:
    """The outbox of these settings."""
    mail = config.mail
    return Outbox(
        Path(mail.spool_directory),
        retry=timedelta(seconds=mail.retry_s),
        keep_trying=timedelta(days=mail.keep_trying_days),
    )


def _name(key: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "-", key)


def _sorted(found: Iterable[QueuedMessage]) -> list[QueuedMessage]:
    return sorted(found, key=lambda x: (x.made_at, x.key))


def _lane(message: QueuedMessage) -> str:
    return message.lane or message.kind


def _due(message: QueuedMessage, now: datetime, *, all_now: bool) -> bool:
    if message.state == "sent":
        return False
    if all_now:
        return True
    return message.state == "waiting" and (message.next_at is None or message.next_at <= now)


def _tried(deliver: Deliver, message: QueuedMessage) -> smtp.SendOutcome:
    """One attempt; settings that cannot work hold the message until a person has mended them."""
    try:
        return deliver(message)
    except errors.SettingsError as exc:
        return smtp.SendOutcome(later=dict.fromkeys(message.recipients, str(exc)), trouble=str(exc))


def _plain(message: QueuedMessage) -> dict[str, object]:
    return dataclasses.asdict(message) | {
        "body": base64.b64encode(message.body).decode("ascii"),
        "made_at": clock.iso_z(message.made_at),
        "next_at": clock.iso_z(message.next_at) if message.next_at else None,
    }


def _letter(row: dict[str, object]) -> QueuedMessage:
    next_at = row["next_at"]
    recipients = row["recipients"]
    assert isinstance(recipients, list)
    return QueuedMessage(
        key=str(row["key"]),
        kind=str(row["kind"]),
        body=base64.b64decode(str(row["body"])),
        recipients=tuple(map(str, recipients)),
        made_at=datetime.fromisoformat(str(row["made_at"])),
        state=str(row["state"]),
        tries=int(str(row["tries"])),
        next_at=datetime.fromisoformat(str(next_at)) if next_at else None,
        why=str(row["why"]),
        lane=str(row.get("lane") or ""),
    )
