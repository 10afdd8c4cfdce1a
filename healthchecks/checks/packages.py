"""Packages have the versions the site wants."""

from __future__ import annotations

from probing_cluster.core import records
from probing_cluster.healthchecks import findings, nodeview, registry


def read(node: nodeview.NodeView) -> dict[str, str | None]:
    """Installed version by package name of the site file; None = not installed."""
    names = [entry.partition("=")[0] for entry in node.limits["expected"]]
    if not names:
        raise findings.Absent("the site file names no package")
    if node.which("dpkg-query"):
        answer = node.run("dpkg-query", "-W", "-f", "${db:Status-Status} ${Package} ${Version}\\n", *names)
        found = parse_dpkg(answer.out)
    else:
        answer = node.run("rpm", "-q", "--qf", "installed %{NAME} %{VERSION}-%{RELEASE}\\n", *names)
        found = parse_dpkg(answer.out)
    if not found and answer.code not in (0, 1) and answer.err:
        raise findings.Undetermined(answer.err.strip()[:200])
    return {name: found.get(name) for name in names}


def parse_dpkg(text: str) -> dict[str, str]:
    """`installed name version` lines; packages that are not fully installed are left out."""
    rows = (line.split() for line in text.splitlines())
    return {row[1]: row[2] for row in rows if len(row) == 3 and row[0] == "installed"}


def judge(versions: dict[str, str | None], limits: registry.Limits) -> findings.Finding:
    parts = []
    for entry in limits["expected"]:
        name, _, wanted = entry.partition("=")
        version = versions.get(name)
        if version is None:
            parts.append(findings.fail(f"{name} is not installed", device=name))
        elif wanted and not (version == wanted or version.startswith((f"{wanted}-", f"{wanted}."))):
            parts.append(findings.fail(f"{name} is {version}, the site has {wanted}", device=name))
        else:
            parts.append(findings.ok(name, device=name))
    return findings.merge(parts, healthy=f"{len(parts)} packages as they should be")


CHECK = registry.Check(
    proves="The packages the site cares about have the versions it wants.",
    component="service",
    domain=records.Domain.SYSTEM_SOFTWARE,
    severity=records.Severity.LOW,
    lane="tools",
    deadline_s=15.0,
    period_s=3600.0,
    fails="a package is missing or has another version",
    warns="never",
    needs="packages in the site file, and dpkg-query or rpm",
    next_step="Run the site's configuration management on the node.",
    read=read,
    judge=judge,
    thresholds=(
        registry.Threshold(
            "expected",
            [],
            "",
            "packages, as slurmd or cuda-drivers=550.90 (a leading part of the version)",
            "site; GCM package-version",
        ),
    ),
)
