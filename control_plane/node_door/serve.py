"""`probing-ctl door serve`: the agents' door, until SIGTERM. Keeps nothing: what a killed door had is still in the agents' spools."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import socket
import ssl
from collections import Counter
from pathlib import Path

from probing_cluster.control_plane.node_door import agents, batches
from probing_cluster.core import errors, logs, network_address, secret_file, settings
from probing_cluster.db import door_wire, engines

LOG = logging.getLogger("probing.node_door")
MOST_BYTES_HELD = 256 << 20
"""Of deliveries that have come in and are not answered, and of frames still coming in."""
MOST_HANDSHAKES_OF_ONE = 64
"""Unfinished, from one address."""
_TICK_S = 1.0
_WORDS_S = 60.0


def main(config: settings.Settings) -> int:
    """Serves until it is stopped; its exit code. Raises SettingsError, NotPermitted and DatabaseUnavailable."""
    logs.configure()
    url = config.door.database_url or engines.url_of(config)
    context = tls_context(config.door)
    batches.check_role(url)
    _allow_descriptors(config.door.most_agents)
    asyncio.run(_serve(config.door, url, context))
    return 0


async def _serve(door: settings.DoorSettings, url: str, context: ssl.SSLContext) -> None:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    handed = batches.DeliveryBatches(url, connections=door.connections, gather_s=door.gather_s)
    listener = listen(door)
    served = NodeDoor(door, context, handed, listener)
    loop.add_signal_handler(signal.SIGHUP, served.read_certificates)
    LOG.info("the door is open", extra={"fields": {"listen": door.listen, "pid": os.getpid()}})
    try:
        await served.run(stopping)
    finally:
        await served.close()


class NodeDoor:
    """Everything one door holds: its listener, the agents that are connected, and the batches."""

    def __init__(
        self,
        door: settings.DoorSettings,
        context: ssl.SSLContext,
        handed: batches.DeliveryBatches,
        listener: socket.socket,
    ) -> None:
        self._settings = door
        self._context = context
        self._files = _times_of(door)
        self._batches = handed
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._agents: dict[agents.AgentConnection, str] = {}
        self._by_role: dict[str, agents.AgentConnection] = {}
        self._shaking: Counter[str] = Counter()

    async def run(self, stopping: asyncio.Event) -> None:
        """Serve until `stopping`."""
        self._loop.add_reader(self._listener.fileno(), self._accept)
        logged_s = self._loop.time()
        while not stopping.is_set():
            try:
                await asyncio.wait_for(stopping.wait(), _TICK_S)
            except TimeoutError:
                self._tick()
            if self._loop.time() - logged_s >= _WORDS_S:
                logged_s = self._loop.time()
                self._log_totals()

    async def close(self) -> None:
        """Take nothing more in, answer what is under way, and close every connection."""
        self._loop.remove_reader(self._listener.fileno())
        self._listener.close()
        await self._batches.finish()
        for agent in list(self._agents):
            agent.close()
        self._log_totals()

    def read_certificates(self) -> None:
        """Read certificate and key again; a pair that cannot be read leaves the one in use."""
        try:
            self._context = tls_context(self._settings)
            LOG.info("certificates were read again")
        except (errors.SettingsError, OSError) as exc:
            LOG.warning("the new certificates are not used", extra={"fields": {"why": str(exc)}})

    def _accept(self) -> None:
        for _ in range(64):
            try:
                accepted, peer = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as exc:  # out of descriptors: those that are connected go on
                LOG.warning("no more agents can be taken in", extra={"fields": {"why": str(exc)}})
                return
            address = str(peer[0])
            if (
                len(self._agents) >= self._settings.most_agents
                or self._shaking[address] >= MOST_HANDSHAKES_OF_ONE
            ):
                accepted.close()
                continue
            try:
                made = self._context.wrap_socket(
                    agents.plain_socket(accepted), server_side=True, do_handshake_on_connect=False
                )
            except OSError:  # gone before its first byte was read
                accepted.close()
                continue
            self._shaking[address] += 1
            agent = agents.AgentConnection(
                made,
                now_s=self._loop.time(),
                on_known=self._known,
                on_delivery=self._delivered,
                on_close=self._closed,
            )
            self._agents[agent] = address

    def _known(self, agent: agents.AgentConnection) -> None:
        self._shaken(agent)
        assert agent.role is not None
        before = self._by_role.get(agent.role)
        self._by_role[agent.role] = agent
        if before is not None:
            # A node has one agent: it has come again, and the connection before is dead or a copy's.
            before.close()

    def _delivered(self, agent: agents.AgentConnection, load: bytes) -> None:
        assert agent.role is not None
        if self._batches.bytes_held > MOST_BYTES_HELD:
            agent.answer(door_wire.failure("53000", "the door holds as much as it may; the database is slow"))
            return
        self._batches.put(agent.role, load, agent.answer)

    def _closed(self, agent: agents.AgentConnection) -> None:
        if agent.role is None:
            self._shaken(agent)
        elif self._by_role.get(agent.role) is agent:
            del self._by_role[agent.role]
        self._agents.pop(agent, None)

    def _shaken(self, agent: agents.AgentConnection) -> None:
        address = self._agents.get(agent, "")
        self._shaking[address] -= 1
        if self._shaking[address] <= 0:
            del self._shaking[address]

    def _tick(self) -> None:
        now_s = self._loop.time()
        for agent in [a for a in self._agents if a.is_over(now_s)]:
            agent.close()
        held = sum(a.bytes_held for a in self._agents)
        if held > MOST_BYTES_HELD:
            for agent in sorted(self._agents, key=lambda a: -a.bytes_held)[:8]:
                agent.close()
        times = _times_of(self._settings)
        if times != self._files:
            self._files = times
            self.read_certificates()

    def _log_totals(self) -> None:
        fields = {
            "agents": len(self._by_role),
            "deliveries": self._batches.deliveries_total,
            "batches": self._batches.batches_total,
            "failed": self._batches.failed_total,
        }
        LOG.info("what came through the door", extra={"fields": fields})


def listen(door: settings.DoorSettings) -> socket.socket:
    """The listening socket; raises SettingsError where its address cannot be had."""
    host, port = network_address.parse(door.listen, "[door] listen")
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        made = socket.create_server((host, port), family=family, backlog=4096)
    except OSError as exc:
        raise errors.SettingsError(f"[door] listen {door.listen} cannot be had: {exc.strerror}") from exc
    made.setblocking(False)
    return made


def tls_context(door: settings.DoorSettings) -> ssl.SSLContext:
    """The door's side of TLS, which asks every agent for its certificate; raises SettingsError."""
    for key in ("tls_certificate", "tls_key", "tls_ca"):
        if not getattr(door, key):
            raise errors.SettingsError(f"[door] {key} is not set: agents are known by their certificates")
    secret_file.require_private(Path(door.tls_key))
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.verify_mode = ssl.CERT_REQUIRED
    # An agent keeps its connection; tickets to resume it by are only bytes.
    made.num_tickets = 0
    try:
        made.load_cert_chain(door.tls_certificate, door.tls_key)
        made.load_verify_locations(door.tls_ca)
    except OSError as exc:
        raise errors.SettingsError(f"[door] certificates cannot be read: {exc}") from exc
    return made


def _times_of(door: settings.DoorSettings) -> tuple[int, ...]:
    """The times at which the files last changed; 0 for one that is missing."""
    paths = map(Path, (door.tls_certificate, door.tls_key, door.tls_ca))
    return tuple(path.stat().st_mtime_ns if path.exists() else 0 for path in paths)


def _allow_descriptors(most_agents: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = most_agents + 64
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))
