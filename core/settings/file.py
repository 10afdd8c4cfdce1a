"""The file of settings: where it lies, which sections it has, and how its TOML becomes one frozen value."""

from __future__ import annotations

import math
import os
import tomllib
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

from probing_cluster.core import database_url, secret_file, vocabulary
from probing_cluster.core.errors import SettingsError
from probing_cluster.core.settings import of_messages, of_policy, of_service, on_nodes

MAX_BYTES = 4 << 20
"""A file of settings larger than this is something else."""
DEFAULT_PATH = Path("/etc/probing-cluster/probing.toml")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The whole file."""

    cluster: of_service.ClusterSettings = field(default_factory=of_service.ClusterSettings)
    database: of_service.DatabaseSettings = field(default_factory=of_service.DatabaseSettings)
    agent: on_nodes.AgentSettings = field(default_factory=on_nodes.AgentSettings)
    checks: on_nodes.ChecksSettings = field(default_factory=on_nodes.ChecksSettings)
    service: of_service.ServiceSettings = field(default_factory=of_service.ServiceSettings)
    door: of_service.DoorSettings = field(default_factory=of_service.DoorSettings)
    web: of_service.WebSettings = field(default_factory=of_service.WebSettings)
    slurm: of_service.SlurmSettings = field(default_factory=of_service.SlurmSettings)
    policy: of_policy.PolicySettings = field(default_factory=of_policy.PolicySettings)
    diagnostics: of_policy.DiagnosticsSettings = field(default_factory=of_policy.DiagnosticsSettings)
    repair: of_policy.RepairSettings = field(default_factory=of_policy.RepairSettings)
    attribution: of_service.AttributionSettings = field(default_factory=of_service.AttributionSettings)
    live: on_nodes.LiveSettings = field(default_factory=on_nodes.LiveSettings)
    kept: on_nodes.KeptSettings = field(default_factory=on_nodes.KeptSettings)
    lemon: of_messages.LemonSettings = field(default_factory=of_messages.LemonSettings)
    mail: of_messages.MailSettings = field(default_factory=of_messages.MailSettings)
    notices: of_messages.NoticesSettings = field(default_factory=of_messages.NoticesSettings)


_Section = TypeVar("_Section")


def load(path: Path | None = None) -> Settings:
    """The settings of `path`, else of the usual place; raises SettingsError naming the key."""
    named = path or (Path(os.environ["PROBING_CONFIG"]) if os.environ.get("PROBING_CONFIG") else None)
    chosen = named or DEFAULT_PATH
    try:
        raw = read(chosen)
    except SettingsError as exc:
        if named is None and isinstance(exc.__cause__, FileNotFoundError):
            return Settings()
        raise
    found = parse(raw.decode("utf-8", "replace"), where=str(chosen))
    urls = (found.database.url, found.agent.database_url, found.door.database_url, found.web.database_url)
    if any(map(database_url.has_password, urls)):
        secret_file.require_private(chosen)
    return found


def read(path: Path) -> bytes:
    """The bytes of a file of settings; raises SettingsError, also for one of more than MAX_BYTES, as a device may be."""
    try:
        with path.open("rb") as opened:
            raw = opened.read(MAX_BYTES + 1)
    except FileNotFoundError as exc:
        raise SettingsError(f"{path} does not exist") from exc
    except OSError as exc:
        raise SettingsError(f"{path} cannot be read: {exc.strerror}") from exc
    if len(raw) > MAX_BYTES:
        raise SettingsError(f"{path} is no file of settings: it is larger than {MAX_BYTES >> 20} MiB")
    return raw


def parse(text: str, *, where: str = "settings") -> Settings:
    """The settings written in TOML `text`; raises SettingsError naming file, section and key."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise SettingsError(f"{where}: {exc}") from exc
    hints = typing.get_type_hints(Settings)
    for name, value in tables.items():
        if name not in hints:
            raise SettingsError(f"{where}: unknown section [{name}]; valid: {', '.join(sorted(hints))}")
        if not isinstance(value, dict):
            raise SettingsError(f"{where}: {name} must be a section [{name}]")
    found = Settings(**{n: _section(hints[n], t, f"{where}: [{n}]") for n, t in tables.items()})
    database_url.require_tls(found.database.url, f"{where}: [database] url")
    database_url.require_tls(found.agent.database_url, f"{where}: [agent] database_url")
    database_url.require_tls(found.door.database_url, f"{where}: [door] database_url")
    database_url.require_tls(found.web.database_url, f"{where}: [web] database_url")
    return found


def _section(cls: type[_Section], table: Mapping[str, Any], where: str) -> _Section:
    hints = typing.get_type_hints(cls)
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in hints:
            raise SettingsError(f"{where} unknown key {key!r}; valid: {', '.join(sorted(hints))}")
        values[key] = _convert(hints[key], value, f"{where} {key}")
        _require_meant(key, values[key], f"{where} {key}")
    return cls(**values)


def _require_meant(key: str, value: Any, where: str) -> None:
    """Raise for a share written in percent, or a misspelt kind of event: a budget or a rule would be none."""
    if key.endswith("_frac") and value > 1:
        raise SettingsError(f"{where} is a share from 0 to 1, not {value:g}; 5 % is 0.05")
    known = {kind.name for kind in vocabulary.EVENT_KINDS}
    if key.endswith("_kinds") and (odd := [word for word in value if word not in known]):
        raise SettingsError(f"{where}: no kind of event is {odd[0]!r}; valid: {', '.join(sorted(known))}")


def _float(value: int, where: str) -> float:
    try:
        return float(value)
    except OverflowError as exc:
        raise SettingsError(f"{where} is too large") from exc


def _convert(kind: Any, value: Any, where: str) -> Any:
    origin = typing.get_origin(kind)
    if origin is tuple:
        inner = typing.get_args(kind)[0]
        if isinstance(inner, type) and is_dataclass(inner):
            if isinstance(value, list) and all(isinstance(v, dict) for v in value):
                return tuple(_section(inner, v, f"{where}[{n}]:") for n, v in enumerate(value))
            msg = f"{where} must be tables, each begun with [[{where.rpartition('[')[2].replace('] ', '.')}]]"
            raise SettingsError(msg)
        if isinstance(value, list) and all(isinstance(v, str) for v in value):
            return tuple(value)
        raise SettingsError(f"{where} must be a list of strings")
    if kind in (int, float) and isinstance(value, (int, float)) and not 0 <= value < math.inf:
        raise SettingsError(f"{where} must not be below 0, infinite or no number: {value!r}")
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return _float(value, where)
    plain = kind if isinstance(kind, type) and not isinstance(kind, types.GenericAlias) else object
    if isinstance(value, plain) and not (plain is int and isinstance(value, bool)):
        return value
    msg = f"{where} must be {getattr(kind, '__name__', kind)}, not {type(value).__name__} ({value!r})"
    raise SettingsError(msg)
