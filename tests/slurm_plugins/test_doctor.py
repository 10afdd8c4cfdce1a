"""Every assumption about a site's Slurm, kept and broken."""

from __future__ import annotations

from pathlib import Path

from probing_cluster.slurm_plugins import doctor
from tests.every_case import every

GOOD = """Configuration data as of 2024-01-01T00:00:00
AccountingStorageTRES   = cpu,mem,node,billing,gres/gpu
AccountingStorageType   = accounting_storage/slurmdbd
AuthInfo                = socket=/run/munge,cred_expire=5
Epilog[0]               = /etc/slurm/epilog.d/*
GresTypes               = gpu
HealthCheckInterval     = 300 sec
HealthCheckProgram      = /etc/slurm/healthcheck
JobRequeue              = 1
MaxBatchRequeue         = 20
PlugStackConfig         = /etc/slurm/plugstack.conf
PrivateData             = none
ProctrackType           = proctrack/cgroup
Prolog[0]               = /etc/slurm/prolog.d/*
Prolog[1]               = /opt/site/prolog
PrologEpilogTimeout     = 65534
PrologFlags             = Alloc,Contain
SchedulerParameters     = defer,nohold_on_prolog_fail,bf_continue
SLURM_VERSION           = 24.11.5
SlurmdTimeout           = 300 sec
SlurmdUser              = root(0)
SuspendProgram          = (null)

Cgroup Support Configuration:
ConstrainDevices        = yes

Slurmctld(primary) at head is UP
"""


def test_a_good_site_has_nothing_to_mend() -> None:
    """Where every assumption holds every finding is ok."""
    assert {f.name: f.level for f in doctor.findings(GOOD) if f.level != "ok"} == {}
    assert doctor.parse(GOOD)["Prolog"] == "/etc/slurm/prolog.d/*,/opt/site/prolog"


@every(
    ("line", "name", "level"),
    [
        ("AccountingStorageTRES = cpu,mem,node", "gpu_accounting", "warn"),
        ("AccountingStorageType = accounting_storage/none", "accounting", "fail"),
        ("AuthInfo = (null)", "cred_expire", "note"),
        ("AuthInfo = cred_expire=121", "cred_expire", "note"),
        ("Epilog[0] = (null)", "epilog", "warn"),
        ("GresTypes = (null)", "gres", "warn"),
        ("HealthCheckInterval = 0 sec", "health_check", "warn"),
        ("HealthCheckProgram = (null)", "health_check", "note"),
        ("JobRequeue = 0", "requeue", "warn"),
        ("MaxBatchRequeue = 5", "requeue", "note"),
        ("PlugStackConfig = (null)", "inside_jobs", "note"),
        ("PrivateData = jobs,usage", "private_data", "note"),
        ("ProctrackType = proctrack/linuxproc", "process_tracking", "warn"),
        ("Prolog = (null)", "prolog", "fail"),
        ("PrologEpilogTimeout = 5", "hook_time", "fail"),
        ("PrologFlags = (null)", "prolog_flags", "fail"),
        ("PrologFlags = Alloc,Serial", "prolog_flags", "note"),
        ("SchedulerParameters = defer", "nohold_on_prolog_fail", "fail"),
        ("SLURM_VERSION = 20.11.9", "release", "fail"),
        ("SLURM_VERSION = 27.05.0", "release", "note"),
        ("SlurmdUser = slurm(64030)", "slurmd_user", "warn"),
        ("SlurmdTimeout = 0 sec", "slurmd_timeout", "warn"),
        ("SlurmdTimeout = 3600 sec", "slurmd_timeout", "note"),
        ("SuspendProgram = /usr/sbin/off", "power_saving", "note"),
    ],
)
def test_a_broken_assumption_is_found_with_its_fix(line: str, name: str, level: str) -> None:
    """One changed line gives one finding, at its level, that says what comes of it."""
    key = line.split(" = ")[0]
    kept = [text for text in GOOD.splitlines() if not text.startswith((f"{key} ", f"{key}["))]
    found = [f for f in doctor.findings("\n".join([*kept, line])) if f.level != "ok"]
    assert [(f.name, f.level) for f in found] == [(name, level)]
    assert found[0].why
    if level in {"fail", "warn"}:
        assert found[0].fix


def test_no_answer_is_no_health() -> None:
    """From an empty configuration everything that must be set is reported missing, worst first."""
    found = doctor.findings("")
    assert {f.name for f in found if f.level == "fail"} == {
        "release",
        "prolog",
        "prolog_flags",
        "nohold_on_prolog_fail",
        "accounting",
    }
    levels = [("fail", "warn", "note", "ok").index(f.level) for f in found]
    assert levels == sorted(levels)


def test_a_real_sites_configuration(shared_samples: Path) -> None:
    """Meta's research cluster of 2023: what a person reading its configuration would note."""
    text = (shared_samples / "slurm/gcm_sacct/sample-scontrol-show-config-output.txt").read_text()
    assert {f.name: f.level for f in doctor.findings(text) if f.level != "ok"} == {
        "cred_expire": "note",
        "health_check": "note",
        "inside_jobs": "note",
        "requeue": "note",
    }
