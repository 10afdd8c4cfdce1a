"""Letters that wait until they are delivered: one file each, kept through restarts and failures.

A letter has a key, and a key is delivered once: what was sent leaves its name behind. A recipient who
has got it is struck off, so that a retry for the others reaches nobody twice.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import fcntl
import json
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from pathlib import Path

from probing_cluster.core import clock, errors, settings
from probing_cluster.reports.sending import smtp

LOG = logging.getLogger("probing.outbox")
MOST_WAIT = timedelta(hours=4)
KEPT = timedelta(days=30)
"""How long the name of a sent letter is remembered."""
_SUFFIX = ".letter"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Letter:
    """One mail or post on its way."""

    key: str
    kind: str
    """mail or webhook."""
    body: bytes
    recipients: tuple[str, ...]
    """Those who have not got it."""
    made_at: datetime
    state: str = "waiting"
    """waiting, sent or failed."""
    tries: int = 0
    next_at: datetime | None = None
    """Not before; None = at once."""
    why: str = ""
    """What stands in the way."""


Deliver = Callable[[Letter], smtp.Outcome]


class Outbox:
    """A directory of letters, readable by its owner alone."""

    def __init__(self, directory: Path, *, retry: timedelta, keep_trying: timedelta) -> None:
        self._directory = directory
        self._retry = retry
        self._keep_trying = keep_trying

    def put(self, letter: Letter, *, again: bool = False) -> bool:
        """Keep a letter for delivery; False when one of that key is known already, unless `again`."""
        with self._locked():
            if not again and self._path(letter.key).exists():
                return False
            self._write(letter)
            return True

    def letters(self) -> list[Letter]:
        """Every letter known, oldest first."""
        if not self._directory.is_dir():
            return []
        return sorted(self._read_all(), key=lambda x: (x.made_at, x.key))

    def flush(self, deliver: Deliver, now: datetime, *, all_now: bool = False) -> list[Letter]:
        """Try what is due (with `all_now` also what waits or failed); the letters tried, as they are afterwards."""
        # Without a lock first: the common case is an empty box, every minute.
        if not any(x.state != "sent" or now - x.made_at > KEPT for x in self.letters()):
            return []
        with self._locked():
            tried = []
            for letter in self.letters():
                if letter.state == "sent" and now - letter.made_at > KEPT:
                    self._path(letter.key).unlink(missing_ok=True)
                if _due(letter, now, all_now=all_now):
                    after = self._after(letter, _tried(deliver, letter), now)
                    self._write(after)
                    tried.append(after)
            return tried

    def _after(self, letter: Letter, outcome: smtp.Outcome, now: datetime) -> Letter:
        """The letter after one attempt."""
        tries = letter.tries + 1
        undelivered = {**outcome.never, **outcome.later}
        why = outcome.trouble or "; ".join(
            f"{recipient}: {reason}" for recipient, reason in undelivered.items()
        )
        base = dataclasses.replace(letter, tries=tries, why=why, next_at=None)
        if outcome.trouble:
            LOG.error("letter held up", extra={"fields": {"letter": letter.key, "why": outcome.trouble}})
        if outcome.later and now - letter.made_at < self._keep_trying:
            if outcome.never:
                self._alarm(letter, "; ".join(f"{w}: {r}" for w, r in outcome.never.items()))
            wait = min(self._retry * 2 ** min(letter.tries, 16), MOST_WAIT)
            return dataclasses.replace(
                base, recipients=tuple(outcome.later), state="waiting", next_at=now + wait
            )
        if undelivered:
            self._alarm(letter, why)
            return dataclasses.replace(base, recipients=tuple(undelivered), state="failed")
        return dataclasses.replace(base, recipients=(), state="sent", body=b"")

    def _alarm(self, letter: Letter, why: str) -> None:
        LOG.error(
            "letter not delivered", extra={"fields": {"letter": letter.key, "kind": letter.kind, "why": why}}
        )

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """One process at a time; two services on one machine, or a person at the keyboard, take turns."""
        try:
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle = os.open(self._directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as exc:
            raise errors.SettingsError(f"[mail] spool_directory {self._directory}: {exc.strerror}") from exc
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def _path(self, key: str) -> Path:
        return self._directory / (re.sub(r"[^A-Za-z0-9._-]", "-", key) + _SUFFIX)

    def _write(self, letter: Letter) -> None:
        fresh = self._path(letter.key).with_suffix(".new")
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            json.dump(_plain(letter), stream)
            stream.flush()
            os.fsync(stream.fileno())
        fresh.replace(self._path(letter.key))

    def _read_all(self) -> Iterable[Letter]:
        for path in self._directory.glob(f"*{_SUFFIX}"):
            try:
                yield _letter(json.loads(path.read_text("utf-8")))
            except FileNotFoundError:
                continue  # another process took it away meanwhile
            except (OSError, ValueError, KeyError, TypeError, AssertionError):
                LOG.exception("letter unreadable, set aside", extra={"fields": {"file": str(path)}})
                path.replace(path.with_suffix(".unreadable"))


def of(config: settings.Settings) -> Outbox:
    """The outbox of these settings."""
    mail = config.mail
    return Outbox(
        Path(mail.spool_directory),
        retry=timedelta(seconds=mail.retry_s),
        keep_trying=timedelta(days=mail.keep_trying_days),
    )


def _due(letter: Letter, now: datetime, *, all_now: bool) -> bool:
    if letter.state == "sent":
        return False
    if all_now:
        return True
    return letter.state == "waiting" and (letter.next_at is None or letter.next_at <= now)


def _tried(deliver: Deliver, letter: Letter) -> smtp.Outcome:
    """One attempt; settings that cannot work hold the letter until a person has mended them."""
    try:
        return deliver(letter)
    except errors.SettingsError as exc:
        return smtp.Outcome(later=dict.fromkeys(letter.recipients, str(exc)), trouble=str(exc))


def _plain(letter: Letter) -> dict[str, object]:
    return dataclasses.asdict(letter) | {
        "body": base64.b64encode(letter.body).decode("ascii"),
        "made_at": clock.iso_z(letter.made_at),
        "next_at": clock.iso_z(letter.next_at) if letter.next_at else None,
    }


def _letter(row: dict[str, object]) -> Letter:
    next_at = row["next_at"]
    recipients = row["recipients"]
    assert isinstance(recipients, list)
    return Letter(
        key=str(row["key"]),
        kind=str(row["kind"]),
        body=base64.b64decode(str(row["body"])),
        recipients=tuple(map(str, recipients)),
        made_at=datetime.fromisoformat(str(row["made_at"])),
        state=str(row["state"]),
        tries=int(str(row["tries"])),
        next_at=datetime.fromisoformat(str(next_at)) if next_at else None,
        why=str(row["why"]),
    )
