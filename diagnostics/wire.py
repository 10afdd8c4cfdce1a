"""What goes to the nodes and comes back, as lines of text that survive srun's labels and interleaving."""

from __future__ import annotations

import base64
import binascii
import json
import re
import secrets
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from probing_cluster.core import errors, records, sanitize
from probing_cluster.diagnostics import machine
from probing_cluster.healthchecks import findings

MARK = "PROBING1"
_LINE = re.compile(rb"^\s*(?:(\d{1,7}):\s)?" + MARK.encode() + rb" ([A-Za-z0-9+/=]+)\s*$")
MOST_LINES_PER_NODE = 4096
_SPAN = 4000


@dataclass(frozen=True, kw_only=True)
class WireStep:
    """One step of a round, as every node of it gets it."""

    round_id: uuid.UUID
    token: str
    """32 random bytes, hexadecimal."""
    tests: tuple[str, ...]
    groups: tuple[tuple[str, ...], ...] = ()
    """Nodes that run the tests of several nodes together; a node is in one group at most."""
    addresses: Mapping[str, tuple[str, int]]
    options: machine.Options
    test_s: float
    command: str = ""
    """A repair step to be run before the tests, on `command_nodes`; empty for none."""
    command_nodes: tuple[str, ...] = ()
    """The nodes under repair: a well node beside them, which they are held against, is never reset."""

    def encode(self) -> bytes:
        """One line of JSON."""
        plain = asdict(self) | {"round_id": str(self.round_id), "v": 1}
        return json.dumps(plain, separators=(",", ":")).encode() + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> WireStep:
        """The step of a line; raises MalformedInput."""
        try:
            given = json.loads(line)
            options: dict[str, Any] = {
                k: tuple(v) if isinstance(v, list) else v for k, v in given["options"].items()
            }
            return cls(
                round_id=uuid.UUID(given["round_id"]),
                token=str(given["token"]),
                tests=tuple(given["tests"]),
                groups=tuple(tuple(group) for group in given["groups"]),
                addresses={str(n): (str(a[0]), int(a[1])) for n, a in given["addresses"].items()},
                options=machine.Options(**options),
                test_s=float(given["test_s"]),
                command=str(given["command"]),
                # A service before this field named no node: then nothing is reset, rather than a well node.
                command_nodes=tuple(map(str, given.get("command_nodes", ()))),
            )
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as exc:
            raise errors.MalformedInput(f"the step on standard input is unreadable: {exc}") from exc


def addresses(hosts: Mapping[str, str], base_port: int, round_id: uuid.UUID) -> dict[str, tuple[str, int]]:
    """Each node's host and a port of its own, so that nodes of one host (a sandbox) and other rounds stay apart."""
    start = round_id.int % _SPAN
    return {
        node: (host, base_port + (start + n) % _SPAN) for n, (node, host) in enumerate(sorted(hosts.items()))
    }


def new_token() -> str:
    """A round's secret."""
    return secrets.token_hex(32)


def line(test: str, node: str, finding: findings.Finding, duration_s: float, version: str) -> str:
    """One finding on its way back."""
    plain = {
        "test": test,
        "node": node,
        **records.json_fields(finding, "outcome", "message", "device", "measured", "unit"),
        "duration_s": round(duration_s, 4),
        "version": version,
        "detail": dict(finding.detail),
    }
    return f"{MARK} {base64.b64encode(json.dumps(plain, default=str).encode()).decode()}"


@dataclass(frozen=True, kw_only=True)
class Reported:
    """One finding as it came back."""

    test: str
    node: str
    outcome: records.Outcome
    message: str
    device: str | None
    measured: float | None
    unit: str | None
    duration_s: float
    version: str
    detail: Mapping[str, Any]


def parse(output: bytes, nodes: Sequence[str], tests: Iterable[str]) -> list[Reported]:
    """The findings in srun's output, whose task n ran on the n-th of `nodes`: no line counts but a node's about itself.

    The label is srun's word, the node in the line its own: root of one node must not let another fail. A line without a
    label can only be of the one node there is.
    """
    wanted = set(tests)
    counts: dict[str, int] = {}
    found = []
    for raw in output.split(b"\n"):
        match = _LINE.match(raw)
        if match is None:
            continue
        task = int(match[1] or 0)
        if task >= len(nodes) or (match[1] is None and len(nodes) > 1):
            continue
        try:
            one = _reported(json.loads(base64.b64decode(match[2], validate=True)))
        except (ValueError, KeyError, TypeError, binascii.Error, RecursionError, OverflowError):
            continue
        if one.node != nodes[task] or one.test not in wanted:
            continue
        counts[one.node] = counts.get(one.node, 0) + 1
        if counts[one.node] <= MOST_LINES_PER_NODE:
            found.append(one)
    return found


def _reported(row: Mapping[str, Any]) -> Reported:
    measured = row["measured"]
    if measured is not None and not (isinstance(measured, int | float) and 0 <= measured < 1e18):
        raise ValueError("measured is no number")
    detail = row["detail"]
    if not isinstance(detail, dict):
        raise TypeError("detail is no object")
    clean = {
        sanitize.clean(str(k), 40): v if _is_number(v) else sanitize.clean(str(v), 200)
        for k, v in list(detail.items())[:32]
    }
    device, unit = row["device"], row["unit"]
    return Reported(
        test=str(row["test"]),
        node=str(row["node"]),
        outcome=records.Outcome(row["outcome"]),
        message=sanitize.clean(str(row["message"]), 500),
        device=None if device is None else sanitize.clean(str(device), 80),
        measured=None if measured is None else float(measured),
        unit=None if unit is None else sanitize.clean(str(unit), 20),
        duration_s=max(0.0, min(float(row["duration_s"]), 1e6)),
        version=sanitize.clean(str(row["version"]), 40),
        detail=clean,
    )


def _is_number(value: object) -> bool:
    """One that JSON and Postgres have (no NaN is below anything): Python reads `NaN` and `Infinity`, and one such would lose a whole round's rows."""
    return isinstance(value, int | float) and abs(value) < 1e18
