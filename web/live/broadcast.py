"""One question a second for all who look: what has changed goes to everybody it concerns, made once per audience.

A subscriber that does not read loses nothing but the older of two pictures: each message is the whole picture.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import msgspec
from starlette.concurrency import run_in_threadpool

from probing_cluster.control_plane.door import web_keys
from probing_cluster.core import errors
from probing_cluster.web import site as web_site
from probing_cluster.web.live import now as picture

LOG = logging.getLogger("probing.web")
LOOK_S = 1.0
WHOLE_S = 5.0
"""What changes by time alone, such as silence, is looked for as often as this."""
BEAT_S = 5.0
MOST_OF_ONE = 16
"""Streams of one user: a browser shares one among its tabs."""
MOST = 1000

Render = Callable[[web_site.Site, picture.Now, web_keys.Viewer], bytes]
Audience = tuple[bool, str, frozenset[str]]


@dataclass(eq=False)
class _Subscriber:
    viewer: web_keys.Viewer
    render: Render
    waiting: asyncio.Queue[bytes] = field(default_factory=lambda: asyncio.Queue(maxsize=1))
    sent: bytes = b""

    def give(self, message: bytes) -> None:
        if self.waiting.full():
            self.waiting.get_nowait()
        self.waiting.put_nowait(message)


class Broadcast:
    """The stream of one server."""

    def __init__(self, site: web_site.Site) -> None:
        self._site = site
        self._subscribers: set[_Subscriber] = set()
        self._task: asyncio.Task[None] | None = None
        self._whole: picture.Now | None = None
        self._whole_s = float("-inf")
        self._marks: object = None
        self._lock = threading.Lock()

    def now(self) -> picture.Now:
        """The whole picture, at most LOOK_S old; raises DatabaseUnavailable."""
        with self._lock:
            now_s = time.monotonic()
            if self._whole is not None and now_s - self._whole_s < LOOK_S * 0.9:
                return self._whole
            marks = self._site.all_rows("marks")
            if self._whole is None or marks != self._marks or now_s - self._whole_s >= WHOLE_S:
                self._whole = picture.gather(self._site)
                self._marks, self._whole_s = marks, now_s
            else:
                self._whole = msgspec.structs.replace(self._whole, at=self._site.service.clock.now())
            return self._whole

    def stream(
        self, viewer: web_keys.Viewer, render: Render, good: Callable[[], bool]
    ) -> AsyncIterator[bytes]:
        """Messages for one viewer until they leave, or `good` says that their key is good no longer; raises NotPermitted."""
        mine = [s for s in self._subscribers if s.viewer.user == viewer.user]
        if len(mine) >= MOST_OF_ONE or len(self._subscribers) >= MOST:
            raise errors.NotPermitted("too many streams; close a page")
        return self._messages(_Subscriber(viewer=viewer, render=render), good)

    async def _messages(self, subscriber: _Subscriber, good: Callable[[], bool]) -> AsyncIterator[bytes]:
        self._subscribers.add(subscriber)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look())
        try:
            yield b"retry: 2000\n\n"
            checked_s = time.monotonic()
            while True:
                yield await subscriber.waiting.get()
                if time.monotonic() - checked_s > 3 * BEAT_S:
                    checked_s = time.monotonic()
                    if not await run_in_threadpool(good):
                        yield b"event: ended\ndata: {}\n\n"
                        return
        finally:
            self._subscribers.discard(subscriber)

    async def _look(self) -> None:
        beat_s = 0.0
        while self._subscribers:
            began = time.monotonic()
            try:
                whole = await run_in_threadpool(self.now)
            except errors.ProbingError as exc:
                self._give_all(_event("stale", msgspec.json.encode({"why": str(exc)})))
            except Exception:  # the stream outlives one bad look
                LOG.exception("the live picture could not be made")
                self._give_all(_event("stale", b'{"why":"the server could not make it"}'))
            else:
                beat = began - beat_s >= BEAT_S
                beat_s = began if beat else beat_s
                self._share(whole, beat=beat)
            await asyncio.sleep(max(0.1, LOOK_S - (time.monotonic() - began)))

    def _give_all(self, message: bytes) -> None:
        for subscriber in self._subscribers:
            subscriber.sent = b""
            subscriber.give(message)

    def _share(self, whole: picture.Now, *, beat: bool) -> None:
        """Give each audience its part if that has changed, else only a sign of life now and then."""
        parts: dict[Audience, tuple[picture.Now, bytes]] = {}
        made: dict[tuple[Audience, Render], bytes] = {}
        alive = _event(
            "beat", msgspec.json.encode({"at": whole.at, "fresh": whole.fresh, "why": whole.why_stale})
        )
        for subscriber in self._subscribers:
            viewer = subscriber.viewer
            audience = (viewer.operator, "" if viewer.operator else viewer.user, viewer.accounts)
            if audience not in parts:
                part = picture.of(viewer, whole)
                parts[audience] = (part, part.content())
            part, content = parts[audience]
            if content == subscriber.sent:
                if beat and subscriber.waiting.empty():
                    subscriber.give(alive)
                continue
            key = (audience, subscriber.render)
            if key not in made:
                made[key] = _event("now", subscriber.render(self._site, part, viewer))
            subscriber.sent = content
            subscriber.give(made[key])


def _event(name: str, data: bytes) -> bytes:
    """A message of the stream; its data is one line of JSON."""
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"
