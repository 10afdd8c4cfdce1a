"""The repair steps for each cause: a table, which a site may replace by a TOML file of the same form.

[[cause]]
name = "gpu"
kinds = ["xid", "gpu_lost"]
steps = ["reset", "reboot"]
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path

from probing_cluster.core import errors, records, settings

STEPS = {
    "reset": "reset the node's GPUs ([repair] reset_command), in the tests' job",
    "reload": "reload the GPU driver ([repair] reload_command), in the tests' job",
    "reboot": "`scontrol reboot`, without ASAP, which would resume the node untested ([repair] reboot)",
    "power": "power-cycle it by the site's command ([repair] power_command)",
}
"""Every repair step there is."""


@records.record
class Cause:
    """One row: kinds of fault, and what is tried for them in this order."""

    name: str = records.doc("its name")
    kinds: frozenset[str] = records.doc(
        "kinds of events, and names of checks, it is for; empty = every other", default=frozenset()
    )
    steps: tuple[str, ...] = records.doc("names of steps", default=())


TABLE: tuple[Cause, ...] = (
    Cause(
        name="gpu",
        kinds=frozenset(
            {
                "xid",
                "sxid",
                "gpu_lost",
                "gsp",
                "ecc",
                "row_remap",
                "retired_pages",
                "nvlink",
                "amdgpu",
                "intel_gpu",
                "habanalabs",
                "gpu_test",
                "gpu_count",
                "gpu_ecc",
                "gpu_nvlink",
                "gpu_pcie_replay",
                "gpu_retired_pages",
                "gpu_row_remap",
                "gpu_xid",
                "nvswitch_fabric",
            }
        ),
        steps=("reset", "reboot", "power"),
    ),
    Cause(name="driver", kinds=frozenset({"driver"}), steps=("reload", "reboot")),
    Cause(
        name="machine",
        kinds=frozenset({"mce", "edac", "pcie_aer", "pcie_link", "node_test"}),
        steps=("reboot", "power"),
    ),
    # Links and mounts end by themselves or are mended elsewhere: such a node waits until its agent sees no fault, then is tested.
    Cause(
        name="outside",
        kinds=frozenset(
            {
                "ib_link",
                "ib_flap",
                "ib_counters",
                "eth_link",
                "mount",
                "mount_present",
                "mount_responsive",
                "mount_writable",
                "nfs",
                "lustre",
                "gpfs",
                "beegfs",
                "link_test",
            }
        ),
    ),
    Cause(name="other", steps=("reboot",)),
)
"""The built-in table; the last row is for whatever no other names."""


def load(config: settings.RepairSettings) -> tuple[Cause, ...]:
    """The table in force; raises SettingsError naming file and row."""
    if not config.steps_file:
        return TABLE
    path = Path(config.steps_file)
    try:
        rows = tomllib.loads(path.read_text(encoding="utf-8")).get("cause", [])
        table = tuple(_cause(row) for row in rows)
    except (OSError, UnicodeDecodeError) as exc:
        raise errors.SettingsError(f"[repair] steps_file {path} cannot be read: {exc}") from exc
    except (tomllib.TOMLDecodeError, KeyError, TypeError, AttributeError) as exc:
        raise errors.SettingsError(f"[repair] steps_file {path}: {exc}") from exc
    unknown = sorted({step for cause in table for step in cause.steps} - set(STEPS))
    if unknown or not table:
        raise errors.SettingsError(
            f"[repair] steps_file {path}: {f'no step {unknown[0]!r}' if unknown else 'no [[cause]]'}; steps: {', '.join(STEPS)}"
        )
    return table


def _cause(row: dict[str, object]) -> Cause:
    kinds, steps = row.get("kinds", []), row.get("steps", [])
    if not isinstance(kinds, list) or not isinstance(steps, list):
        raise TypeError("kinds and steps are lists")
    return Cause(name=str(row["name"]), kinds=frozenset(map(str, kinds)), steps=tuple(map(str, steps)))


def names_of(events: Iterable[records.HealthEvent]) -> set[str]:
    """What the table's rows name: the kinds of events, and of what a check found the check."""
    return {name for e in events for name in (e.kind, e.code if e.kind == "check" else None) if name}


def cause_of(kinds: Iterable[str], table: Iterable[Cause]) -> Cause:
    """The first row that names one of these kinds, else the one that is for every other."""
    wanted = set(kinds)
    rows = list(table)
    named = next((cause for cause in rows if cause.kinds & wanted), None)
    return named or next((cause for cause in rows if not cause.kinds), Cause(name="none"))


def possible(cause: Cause, config: settings.RepairSettings) -> tuple[str, ...]:
    """Its steps that this site has switched on."""
    switched = {
        "reset": bool(config.reset_command),
        "reload": bool(config.reload_command),
        "reboot": config.reboot,
        "power": bool(config.power_command),
    }
    return tuple(step for step in cause.steps if switched[step])


def taken_and_left(
    cause: str, steps_done: int, config: settings.RepairSettings
) -> tuple[list[str], list[str]]:
    """The names of the steps that a repair for `cause` has taken, and of those it could still take; raises SettingsError."""
    every = possible(named(cause, load(config)), config)
    return list(every[:steps_done]), list(every[steps_done:])


def named(name: str, table: Iterable[Cause]) -> Cause:
    """The row of that name; an empty one when the site has taken it away since."""
    return next((cause for cause in table if cause.name == name), Cause(name=name))
