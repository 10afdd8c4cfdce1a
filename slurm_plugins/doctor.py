"""What we assume about a site's Slurm, checked on `scontrol show config`, each with its fix."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

TRIED = ((21, 8), (26, 5))
"""Oldest and newest release whose output our readers were tested on."""
OUR_HOOK_S = 5
"""Longest one of our hooks may take, by default."""

_LINE = re.compile(r"(\S[^=]*?)\s*=\s?(.*)")
_NUMBER = re.compile(r"-?\d+")
_UNSET = frozenset({"", "(null)", "none", "N/A", "NONE"})


@dataclass(frozen=True, kw_only=True)
class DoctorFinding:
    """One assumption and how it stands."""

    name: str
    level: str
    """ok, note (works, worth knowing), warn (something of ours is lost) or fail (it does not work so)."""
    found: str
    """What the site has."""
    why: str = ""
    """What comes of it."""
    fix: str = ""
    """The line to change, or the command to run."""


def ok(name: str, found: str) -> DoctorFinding:
    """It is as it should be."""
    return DoctorFinding(name=name, level="ok", found=found)


def note(name: str, found: str, *, why: str = "", fix: str = "") -> DoctorFinding:
    """It works; worth knowing."""
    return DoctorFinding(name=name, level="note", found=found, why=why, fix=fix)


def warn(name: str, found: str, *, why: str = "", fix: str = "") -> DoctorFinding:
    """Something of ours is lost."""
    return DoctorFinding(name=name, level="warn", found=found, why=why, fix=fix)


def fail(name: str, found: str, *, why: str = "", fix: str = "") -> DoctorFinding:
    """It does not work so."""
    return DoctorFinding(name=name, level="fail", found=found, why=why, fix=fix)


Config = Mapping[str, str]
Check = Callable[[Config], DoctorFinding | None]


def parse(text: str) -> dict[str, str]:
    """Key to value of `scontrol show config`; `Prolog[0]`, `Prolog[1]` … are joined with commas."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        match = _LINE.fullmatch(line.strip())
        if match is None:
            continue
        key = re.sub(r"\[\d+\]$", "", match[1])
        value = "" if match[2].strip() in _UNSET else match[2].strip()
        found[key] = ",".join(filter(None, (found.get(key, ""), value)))
    return found


def findings(text: str) -> list[DoctorFinding]:
    """Every check's finding on the text of `scontrol show config`, worst first."""
    config = parse(text)
    found = [finding for check in CHECKS if (finding := check(config)) is not None]
    order = ("fail", "warn", "note", "ok")
    return sorted(found, key=lambda finding: order.index(finding.level))


def _release(config: Config) -> DoctorFinding:
    version = config.get("SLURM_VERSION", "")
    numbers = tuple(int(number) for number in _NUMBER.findall(version)[:2])
    if len(numbers) < 2 or numbers < TRIED[0]:
        return fail(
            "release",
            version or "unknown",
            why="older than 21.08: its output was never tried",
            fix="upgrade Slurm to 22.05 or later",
        )
    if numbers > TRIED[1]:
        return note("release", version, why="newer than the releases we were tested on (26.05)")
    return ok("release", version)


def _hook(key: str, level: str, why: str) -> Check:
    def check(config: Config) -> DoctorFinding:
        name, path = key.lower(), config.get(key, "")
        if not path:
            return DoctorFinding(
                name=name, level=level, found="not set", why=why, fix=f"{key}=<directory>/{name}"
            )
        return ok(name, path)

    return check


def _prolog_flags(config: Config) -> DoctorFinding:
    flags = {flag.strip().lower() for flag in config.get("PrologFlags", "").split(",")}
    shown = config.get("PrologFlags", "") or "none"
    if not flags & {"alloc", "contain", "x11"}:
        return fail(
            "prolog_flags",
            shown,
            why="the Prolog runs only before the first step: a job starts on an unfit node, and its GPUs stay unknown until then",
            fix="add Alloc (or Contain) to PrologFlags",
        )
    if "serial" in flags:
        return note("prolog_flags", shown, why="Serial runs one Prolog at a time on a node")
    return ok("prolog_flags", shown)


def _hold(config: Config) -> DoctorFinding:
    if "nohold_on_prolog_fail" in config.get("SchedulerParameters", "").split(","):
        return ok("nohold_on_prolog_fail", "set")
    return fail(
        "nohold_on_prolog_fail",
        "not set",
        why="a job that a Prolog refuses is held until somebody releases it, instead of starting on another node",
        fix="add nohold_on_prolog_fail to SchedulerParameters",
    )


def _cred_expire(config: Config) -> DoctorFinding:
    match = re.search(r"cred_expire=(\d+)", config.get("AuthInfo", ""))
    seconds = int(match[1]) if match else 120
    level = "ok" if seconds <= 30 else "note"
    why = "" if level == "ok" else f"a requeued job waits at least {seconds} s before it can start again"
    fix = "" if level == "ok" else "add cred_expire=30 to AuthInfo (5 is the smallest)"
    return DoctorFinding(name="cred_expire", level=level, found=f"{seconds} s", why=why, fix=fix)


def _accounting(config: Config) -> DoctorFinding:
    kind = config.get("AccountingStorageType", "")
    if kind.endswith("slurmdbd"):
        return ok("accounting", kind)
    return fail(
        "accounting",
        kind or "none",
        why="attempts are read from slurmdbd; without it nothing can be attributed",
        fix="AccountingStorageType=accounting_storage/slurmdbd",
    )


def _gpu_accounting(config: Config) -> DoctorFinding:
    if "gres/gpu" in config.get("AccountingStorageTRES", "").split(","):
        return ok("gpu_accounting", "gres/gpu")
    return warn(
        "gpu_accounting",
        config.get("AccountingStorageTRES", "") or "none",
        why="how many GPUs a job had is known only where our Prolog ran; figures per GPU-hour lack older jobs",
        fix="add gres/gpu to AccountingStorageTRES and restart slurmctld",
    )


def _gres(config: Config) -> DoctorFinding:
    if "gpu" in config.get("GresTypes", "").split(","):
        return ok("gres", "gpu")
    return warn(
        "gres",
        config.get("GresTypes", "") or "none",
        why="Slurm does not hand out GPUs one by one: a GPU's fault concerns every job on its node",
        fix="add gpu to GresTypes, with gres.conf",
    )


def _node_timeout(config: Config) -> DoctorFinding:
    seconds = _seconds(config.get("SlurmdTimeout", ""))
    if seconds == 0:
        return warn(
            "slurmd_timeout",
            "0",
            why="a dead node is never noticed and its jobs never end",
            fix="SlurmdTimeout=300",
        )
    if seconds is not None and seconds > 600:
        return note(
            "slurmd_timeout",
            f"{seconds} s",
            why="jobs of a dead node end, and are requeued, only after this",
            fix="SlurmdTimeout=300",
        )
    return ok("slurmd_timeout", config.get("SlurmdTimeout", "unknown"))


def _hook_time(config: Config) -> DoctorFinding | None:
    # From 25.05 on the two are shown apart where they differ.
    seconds = _seconds(config.get("PrologEpilogTimeout") or config.get("PrologTimeout", ""))
    if seconds is None or seconds >= 65534 or seconds > 2 * OUR_HOOK_S:
        return None
    return fail(
        "hook_time",
        f"{seconds} s",
        why="Slurm would end the Prolog, and drain the node, while ours may still wait for the agent",
        fix=f"PrologEpilogTimeout={12 * OUR_HOOK_S}, or start our hooks with --deadline 1",
    )


def _health_interval(config: Config) -> DoctorFinding:
    seconds = _seconds(config.get("HealthCheckInterval", "")) or 0
    if not config.get("HealthCheckProgram"):
        return note(
            "health_check",
            "not set",
            why="the agent sweeps by itself; Slurm just does not ask for it",
            fix="HealthCheckProgram=<directory>/healthcheck, HealthCheckInterval=300, HealthCheckNodeState=ANY",
        )
    if seconds == 0:
        return warn(
            "health_check",
            "HealthCheckInterval=0",
            why="the program is named but never run",
            fix="HealthCheckInterval=300",
        )
    return ok("health_check", f"every {seconds} s")


def _inside_jobs(config: Config) -> DoctorFinding:
    found = config.get("PlugStackConfig", "") or config.get("TaskProlog", "")
    if found:
        return ok("inside_jobs", found)
    return note(
        "inside_jobs",
        "neither TaskProlog nor PlugStackConfig is set",
        why="unless plugstack.conf lies beside slurm.conf, the probe does not ride in jobs: no stall, rank or step is seen",
        fix="plugstack.conf with our SPANK plugin, or TaskProlog=<directory>/taskprolog",
    )


def _requeue(config: Config) -> DoctorFinding:
    if config.get("JobRequeue", "1") == "0":
        return warn(
            "requeue",
            "JobRequeue=0",
            why="jobs are not requeued unless their owner asks: a job on a failed GPU gets the verdict, not a new start",
            fix="JobRequeue=1",
        )
    most = _seconds(config.get("MaxBatchRequeue", ""))
    if most is not None and most < 10:
        return note(
            "requeue",
            f"MaxBatchRequeue={most}",
            why="a job whose batch launch failed so often is held",
            fix="MaxBatchRequeue=20",
        )
    return ok("requeue", "JobRequeue=1")


def _process_tracking(config: Config) -> DoctorFinding:
    kind = config.get("ProctrackType", "")
    if kind.endswith("cgroup"):
        return ok("process_tracking", kind)
    return warn(
        "process_tracking",
        kind or "unknown",
        why="which process belongs to which job is read from the process tree, and leftovers are found less surely",
        fix="ProctrackType=proctrack/cgroup",
    )


def _private_data(config: Config) -> DoctorFinding | None:
    hidden = {word.strip() for word in config.get("PrivateData", "").split(",")} & {"jobs", "nodes"}
    if not hidden:
        return None
    return note(
        "private_data",
        ",".join(sorted(hidden)),
        why="only an operator sees everybody's jobs and nodes",
        fix="make the account of probing-ctl serve an operator: sacctmgr modify user where name=ACCOUNT set adminlevel=operator",
    )


def _slurmd_user(config: Config) -> DoctorFinding | None:
    user = config.get("SlurmdUser", "root")
    if re.match(r"(root|0)\b", user):
        return None
    return warn(
        "slurmd_user",
        user,
        why="our hooks then run as that account, and the agent answers root and itself only",
        fix="SlurmdUser=root, which is the default",
    )


def _power_saving(config: Config) -> DoctorFinding | None:
    if not config.get("SuspendProgram"):
        return None
    return note(
        "power_saving",
        config["SuspendProgram"],
        why="nodes that Slurm powers down are silent: they are told from lost ones by their POWERED_DOWN flag",
    )


def _seconds(text: str) -> int | None:
    match = _NUMBER.match(text)
    return int(match[0]) if match else None


CHECKS: Iterable[Check] = (
    _release,
    _hook("Prolog", "fail", "jobs start on unfit nodes, and which GPUs they got is never known"),
    _prolog_flags,
    _hold,
    _cred_expire,
    _hook("Epilog", "warn", "what a job leaves behind is collected only when the service asks"),
    _hook_time,
    _health_interval,
    _inside_jobs,
    _accounting,
    _gpu_accounting,
    _gres,
    _requeue,
    _node_timeout,
    _process_tracking,
    _private_data,
    _slurmd_user,
    _power_saving,
)
