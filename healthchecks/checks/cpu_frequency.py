"""CPUs are allowed their full frequency."""

from __future__ import annotations

from dataclasses import dataclass

from probing_cluster.core import digits, records
from probing_cluster.healthchecks import counters, findings, nodeview, registry

BASE = "/sys/devices/system/cpu"


@dataclass(frozen=True, kw_only=True)
class Reading:
    """By policy: allowed and possible maximum, MHz; throttle events of the packages within an hour."""

    policies: dict[str, tuple[float, float]]
    throttled: dict[str, int]


def read(node: nodeview.NodeView) -> Reading:
    policies: dict[str, tuple[float, float]] = {}
    for name in node.names(f"{BASE}/cpufreq"):
        allowed = node.number(f"{BASE}/cpufreq/{name}/scaling_max_freq")
        possible = node.number(f"{BASE}/cpufreq/{name}/cpuinfo_max_freq")
        if allowed is not None and possible:
            policies[name] = allowed / 1000, possible / 1000
    packages: dict[str, int | None] = {}
    for cpu in (n for n in node.names(BASE) if n.startswith("cpu") and digits.is_number(n[3:])):
        package = node.text(f"{BASE}/{cpu}/topology/physical_package_id")
        if package is not None and f"package{package}" not in packages:
            packages[f"package{package}"] = node.number(
                f"{BASE}/{cpu}/thermal_throttle/package_throttle_count"
            )
    if not policies and not any(v is not None for v in packages.values()):
        raise findings.Absent("this kernel does not tell CPU frequencies")
    grown = counters.growth(node, packages)
    return Reading(policies=policies, throttled=counters.within(node, grown, counters.HOUR_S))


def judge(reading: Reading, limits: registry.Limits) -> findings.Finding:
    parts = [findings.ok("")]
    for name, (allowed, possible) in reading.policies.items():
        least = limits["max_mhz"] if limits["max_mhz"] is not None else possible * limits["allowed_frac"]
        if allowed < least:
            text = f"{name} is capped at {allowed:.0f} of {possible:.0f} MHz"
            parts.append(
                findings.warn(text, device=name, measured=allowed, threshold=round(least, 1), unit="mhz")
            )
    for package, count in reading.throttled.items():
        if count > limits["throttle_hour_warn"]:
            text = f"{package} slowed itself down {count} times in an hour"
            facts = findings.amount(count, limits["throttle_hour_warn"], "per_hour")
            parts.append(findings.warn(text, device=package, **facts))
    return findings.merge(parts, healthy=f"{len(reading.policies)} frequency policies uncapped")


CHECK = registry.Check(
    proves="No CPU is capped below its frequency or slows itself down for heat.",
    component="cpu",
    domain=records.Domain.SYSTEM_SOFTWARE,
    severity=records.Severity.LOW,
    period_s=900.0,
    fails="never",
    warns="a frequency policy is capped, or a CPU package throttles more than throttle_hour_warn",
    needs="cpufreq or thermal throttle counters in sysfs",
    next_step="cpupower frequency-set -u lifts a cap; throttling is airflow, a fan, or a BMC power cap.",
    read=read,
    judge=judge,
    thresholds=(
        registry.Threshold(
            "max_mhz",
            None,
            "mhz",
            "allowed maximum a policy must have; unset = allowed_frac of the CPU's own",
            "site; GCM processor-freq judges the mean of idle CPUs (1498 MHz)",
        ),
        registry.Threshold(
            "allowed_frac", 0.95, "frac", "share of its own maximum that a policy must allow", "ours"
        ),
        registry.Threshold(
            "throttle_hour_warn",
            60,
            "per_hour",
            "throttle events of a package per hour above which we warn",
            "ours: one a minute",
        ),
    ),
)
