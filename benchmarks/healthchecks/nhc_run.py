"""NHC (github.com/mej/nhc, 1.4.3) with as many of its checks as have an equal one of ours."""

from __future__ import annotations

from pathlib import Path

_CONF = """
* || check_fs_mount -f /
* || check_fs_mount_rw -f /
* || check_fs_used / 99%
* || check_fs_iused / 99%
* || check_hw_physmem 1k 100TB
* || check_hw_swap 0 100TB
* || check_hw_cpuinfo
* || check_hw_eth {interface}
* || check_ps_loadavg 100000
* || check_ps_unauth_users log
* || check_ps_service -u root {daemon}
* || check_file_test -r -w -x -d /tmp
"""
CHECKS = _CONF.count("||")


def command(checkout: Path, scratch: Path) -> list[str]:
    """One run of NHC from its checkout; its configuration and log lie in `scratch`."""
    route = [line.split() for line in Path("/proc/net/route").read_text().splitlines()[1:]]
    interface = next((row[0] for row in route if row[1] == "00000000"), "lo")
    names = {path.read_text().strip() for path in Path("/proc").glob("[0-9]*/comm")}
    daemon = next((d for d in ("munged", "sshd", "cron", "systemd", "init") if d in names), min(names))
    conf = scratch / "nhc.conf"
    conf.write_text(_CONF.format(interface=interface, daemon=daemon))
    settings = {
        "INCDIR": checkout / "scripts",
        "HELPERDIR": checkout / "helpers",
        "LIBEXECDIR": checkout,
        "MARK_OFFLINE": 0,
        "NHC_RM": "none",
    }
    log = scratch / "nhc.log"
    assignments = [f"{k}={v}" for k, v in settings.items()]
    return ["/bin/bash", str(checkout / "nhc"), "-a", "-c", str(conf), "-l", str(log), *assignments]
