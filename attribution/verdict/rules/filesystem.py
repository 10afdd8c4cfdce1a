"""File systems and disks: a lost mount weighs most for a job that works under it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import PurePosixPath

from probing_cluster.attribution.verdict import claims, evidence_view, findings, onset, recovery, signatures
from probing_cluster.core import records, vocabulary

ENDED_BY = frozenset({"user_error"})
"""Cause of the job's own end beside a lost mount."""

_UNUSED = 0.7
"""Most weight of a mount that the job may not have used: "possible"."""

_READ_ONLY = ("mount", "read_only")
_WRITES_FAIL = frozenset({_READ_ONLY, ("check", "mount_writable")})
"""Sorts of mounts that fail whoever writes to them, with an error that says so, and nobody else."""
_BECAME: dict[tuple[str, str | None], str] = {
    _READ_ONLY: "became read-only",
    ("mount", "missing"): "was no longer mounted",
}
"""What happened, by sort, where the server may have answered all along."""

_MISSED = timedelta(minutes=5)
"""A file that was missing for longer than this after the server's last error did not exist."""
_NO_FILE = frozenset({"python_file_error", "launch_mistake"})
"""Findings about a missing file."""
_PATH = re.compile(r"['\"](/[^'\"]{1,1024})['\"]")
_DENIED = "PermissionError"
"""An error that a silent server never causes; a server that evicts the client is evidence itself (signatures.toml)."""

_THROWN_OUT = frozenset({"evicted", "167-0", "expelled"})
"""Codes of an eviction: the client's open calls fail, even if the server accepts it again a second later."""
_ON_DISK = frozenset({"remount_ro", "fs_error", "fs_shutdown", "data_loss"})
"""Codes that a local file system reports about itself, not about its drive (evidence.kernel.block)."""
_DAMAGED = "holds a file system that reported itself as damaged; no line reports an error of the drive"
_REPAIR = "Take the node out of service, look at the drive's SMART data, then check the file system (fsck, xfs_repair)"

MOUNT, DISK = "filesystem_mount", "disk"
SIGHTED = frozenset({MOUNT, DISK})


def rule(view: evidence_view.EvidenceView) -> Iterable[claims.Claim]:
    """One claim per file system and disk. A server that answered again weighs less, least if it did so before the onset."""
    back: dict[tuple[str, str | None], list[datetime]] = {}
    for s in view.of(MOUNT):
        if s.signature.recovery:
            back.setdefault((s.event.node, s.device), []).extend({s.at, s.last_at})

    def adjust(sighting: evidence_view.CaseSighting, weight: float) -> float:
        if weight > 0 and _works_under(view, sighting.device):
            weight = max(weight, min(0.97, weight + 0.1))
        if weight > 0 and _missing_file_elsewhere(view, sighting):
            weight *= 0.5
        elif weight > 0 and _lacked_a_file(view, sighting):
            weight = max(weight, 0.82)
        # The next recovery counts: a later stall has its own.
        backs = back.get((sighting.event.node, sighting.device), [])
        if _was_brief(sighting, backs):
            return weight * 0.4
        again, share = recovery.saved(view, sighting, backs)
        weight *= share
        thrown_out = sighting.event.code in _THROWN_OUT and view.end_at - sighting.last_at <= _MISSED
        if again is None or (thrown_out and _failed_in_a_file(view)):
            return weight
        if again - sighting.at < onset.BRIEF or again < view.onset_at:
            return weight * 0.4
        return weight if again > view.end_at else weight * 0.7

    for claim in claims.collect(view, MOUNT, "filesystem", view.of(MOUNT), adjust):
        claim = claims.replace_claim(claim, words=_became(claim))
        if _need_not_have_used(view, claim):
            yield claims.replace_claim(claim, weight=min(claim.weight, _UNUSED))
        else:
            yield claims.replace_claim(claim, explains=ENDED_BY) if _was_found_late(view, claim) else claim
    for claim in claims.collect(view, DISK, "filesystem", view.of(DISK)):
        yield _of_file_system(claim)
    if not any(claims.weigh(s) > 0 for s in view.of(MOUNT, DISK)):
        yield from claims.hints(view, MOUNT, "filesystem", findings.FindingRole.HINT)


def _was_brief(sighting: evidence_view.CaseSighting, backs: Iterable[datetime]) -> bool:
    """True for a server that a kernel dates as silent for a moment: it fails no call, wherever in that moment the end lies."""
    if not onset.makes_calls_wait(sighting.event) or sighting.event.source in vocabulary.POLLED_SOURCES:
        return False
    return any(t >= sighting.last_at and t - sighting.at < onset.BRIEF for t in backs)


def _need_not_have_used(view: evidence_view.EvidenceView, claim: claims.Claim) -> bool:
    """True if nothing shows that the job used the mount: its errors name other paths, or it exited by itself without one.

    A program that waits for a mount that hangs does not exit; timeout(1) may end it. One that may not write to a mount has an error.
    """
    paths = _mount_points(view, claim)
    if view.requeue_event_ids or any(_works_under(view, path) for path in paths):
        return False
    felt = [f.event for f in view.findings if f.signature.supports(MOUNT)]
    if paths and any(_PATH.search(e.message) for e in felt):
        return _names_only_others(felt, paths)
    exited = (
        view.state == "FAILED"
        and not view.signal
        and view.attempt.exit_code not in (None, 0, vocabulary.OF_TIMEOUT)
    )
    if felt or not view.log_was_read:
        return False
    roots = [e for e in claim.evidence if signatures.of(e).role is signatures.Role.ROOT]
    if all(_sort(e) in _WRITES_FAIL for e in roots):
        return True
    return exited and all(onset.makes_calls_wait(e) or _sort(e) in _WRITES_FAIL for e in roots)


def _mount_points(view: evidence_view.EvidenceView, claim: claims.Claim) -> frozenset[str]:
    """The claim's mount point; of a file server those that its node reports as mounted from it, none if unknown."""
    if not claim.device or claim.device.startswith("/"):
        return frozenset({claim.device} if claim.device else ())
    there = (s for s in view.of(MOUNT) if s.event.node == claim.node and s.device)
    return frozenset(
        s.device
        for s in there
        if s.device and str(s.event.detail.get("from")).partition(":")[0] == claim.device
    )


def _sort(event: records.HealthEvent) -> tuple[str, str | None]:
    return event.kind, event.code


def _became(claim: claims.Claim) -> str:
    """What happened to the mount, if its readings agree; empty for a server that did not answer."""
    found = {
        _BECAME.get(_sort(e), "")
        for e in claim.evidence
        if e.kind == "mount" and not signatures.of(e).recovery
    }
    return found.pop() if len(found) == 1 else ""


def _names_only_others(errors: Iterable[records.HealthEvent], mounts: Iterable[str]) -> bool:
    """True if the errors name paths, and none of them lies under one of the mounts."""
    named = [PurePosixPath(n) for e in errors for n in _PATH.findall(e.message)]
    return bool(named) and not any(n.is_relative_to(m) for n in named for m in mounts)


def _of_file_system(claim: claims.Claim) -> claims.Claim:
    """The claim. If no line reports a fault of the drive, it names the file system: a crash or the kernel may have damaged it."""
    if not all(e.kind == "block_io" and e.code in _ON_DISK for e in claim.evidence):
        return claim
    cap = claims.less_confident(claim.cap, records.Confidence.LIKELY)
    return claims.replace_claim(claim, cap=cap, words=_DAMAGED, next_step=_REPAIR)


def _lacked_a_file(view: evidence_view.EvidenceView, sighting: evidence_view.CaseSighting) -> bool:
    """True if the program missed a file while the server returned errors. A mount that waits fails no call."""
    silent = (
        sighting.when is evidence_view.EventPhase.RUNNING and "still trying" not in sighting.event.message
    )
    if not silent or view.end_at - sighting.at > _MISSED:
        return False
    missed = [f.event for f in view.findings if not _NO_FILE.isdisjoint(f.signature.kinds)]
    return any(e.detail.get("exception") != _DENIED for e in missed)


def _failed_in_a_file(view: evidence_view.EvidenceView) -> bool:
    """True if the program's first error is a failed call on a file."""
    return any(
        f.event.detail.get("first_cause") is True and MOUNT in f.signature.allows for f in view.findings
    )


def _missing_file_elsewhere(view: evidence_view.EvidenceView, sighting: evidence_view.CaseSighting) -> bool:
    """True if the missing file is named and lies under another mount point."""
    if not sighting.device or not sighting.device.startswith("/"):
        return False
    missed = [f.event for f in view.findings if not _NO_FILE.isdisjoint(f.signature.kinds)]
    return _names_only_others(missed, (sighting.device,))


def _was_found_late(view: evidence_view.EvidenceView, claim: claims.Claim) -> bool:
    """True for a mount under which the job worked, and which two readings begun before the end may have found lost after it.

    Such a program may report any error. A surely own error has weakened the claim already. A mount that is unmounted
    with its job (BeeGFS on demand) is nobody's working directory at submission.
    """
    return (
        claim.weight >= claims.LIKELY
        and view.end_at < claim.at <= view.end_at + recovery.READ_TWICE
        and claim.evidence[0].source in vocabulary.POLLED_SOURCES
        and _works_under(view, claim.device)
    )


def _works_under(view: evidence_view.EvidenceView, device: str | None) -> bool:
    """True if the job's working directory or output lies under the mount point."""
    if not device or not device.startswith("/") or device == "/":
        return False
    paths = [p for p in (view.attempt.work_dir, view.attempt.stdout_path) if p]
    return any(PurePosixPath(device) in (PurePosixPath(p), *PurePosixPath(p).parents) for p in paths)
