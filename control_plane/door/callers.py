"""The callers of the service and what they may read.

A caller is known by the kernel (peer credentials of the Unix socket) or by MUNGE (a credential
bound to the request, taken once, younger than a minute). A credential that is there must hold:
there is no falling back to the socket's word.
"""

from __future__ import annotations

import contextlib
import grp
import hashlib
import os
import pwd
import socket
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from probing_cluster.control_plane import context
from probing_cluster.core import clock, errors, peer, records, settings
from probing_cluster.reports.asking import door, munge
from probing_cluster.slurm_plugins import admin_level

SKEW_S = 5.0
"""How far the clocks of login node and service may disagree, seconds."""


@records.record
class Caller:
    """The person or program that asks the service."""

    uid: int = records.doc("user id, as the kernel or MUNGE vouches for it")
    name: str = records.doc("user name, empty when the uid has none")
    groups: frozenset[str] = records.doc("names of the groups it is in", default=frozenset())


def caller_of(uid: int) -> Caller:
    """The account with this uid."""
    try:
        account = pwd.getpwuid(uid)
    except KeyError:
        return Caller(uid=uid, name="")
    ids = os.getgrouplist(account.pw_name, account.pw_gid)
    return Caller(uid=uid, name=account.pw_name, groups=frozenset(_group_names(ids)))


def _group_names(ids: list[int]) -> Iterator[str]:
    for gid in ids:
        with contextlib.suppress(KeyError):
            yield grp.getgrgid(gid).gr_name


class Callers:
    """Identifies callers and judges them, for every door of one service."""

    def __init__(self, service: context.Context) -> None:
        self._service = service
        self._privileges = admin_level.CachedPrivileges(service.run_slurm, service.clock)
        self._taken: OrderedDict[bytes, float] = OrderedDict()
        self._lock = threading.Lock()

    def identify(self, connection: socket.socket, request: Mapping[str, Any]) -> Caller:
        """The caller behind a connection; raises NotPermitted."""
        credential = request.get("credential")
        if credential is not None:
            return self.vouched(credential, request)
        if connection.family != socket.AF_UNIX:
            raise errors.NotPermitted("who comes over the network needs a MUNGE credential")
        return caller_of(peer.uid_of(connection))

    def vouched(self, credential: object, request: Mapping[str, Any]) -> Caller:
        """The caller that a MUNGE credential names, if it is fresh, unused and made for this very request."""
        if not isinstance(credential, str):
            raise munge.CredentialRefused("the MUNGE credential is no text")
        # Not the service's adjustable clock: munged's, on this host, is what ages credentials.
        now_s = clock.SYSTEM.now().timestamp()
        found = munge.decode(credential, now_s, self._service.config.service.munge_socket)
        if found.payload != door.binding(request).encode():
            raise munge.CredentialRefused("the MUNGE credential was made for another request")
        if request.get("cluster") != self._service.config.cluster.name:
            raise munge.CredentialRefused("the MUNGE credential was made for another cluster's service")
        if not -SKEW_S <= found.age_s <= munge.TTL_S:
            raise munge.CredentialRefused(
                f"the MUNGE credential is {found.age_s:.0f} s old, at most {munge.TTL_S} are allowed"
            )
        if found.realm:
            raise munge.CredentialRefused(f"the MUNGE credential is of realm {found.realm!r}")
        self._take(credential, now_s)
        return caller_of(found.uid)

    def _take(self, credential: str, now_s: float) -> None:
        """Once only, even when munged has forgotten it in a restart."""
        key = hashlib.blake2b(credential.encode(), digest_size=16).digest()
        with self._lock:
            # Oldest first, so a flood of good credentials costs each of them the same.
            while self._taken and next(iter(self._taken.values())) <= now_s:
                self._taken.popitem(last=False)
            if key in self._taken:
                raise munge.CredentialRefused("the MUNGE credential was used before")
            self._taken[key] = now_s + munge.TTL_S + SKEW_S

    def may_read(self, caller: Caller, attempts: Collection[Mapping[str, Any]]) -> bool:
        """Whether `caller` may see these attempts: as their owner, an operator, or coordinator of every account."""
        owners = frozenset(str(a["user"]) for a in attempts)
        if may_read(caller, owners, self._service.config.service):
            return True
        accounts = {str(a.get("account") or "") for a in attempts}
        return self.reads_all(caller) or (bool(accounts) and accounts <= self.coordinated(caller))

    def reads_all(self, caller: Caller) -> bool:
        """Whether `caller` may see every job: by the settings, or as an operator of Slurm."""
        if may_read(caller, frozenset(), self._service.config.service):
            return True
        found = self._privileges_of(caller)
        return found is not None and caller.name in found.operators

    def coordinated(self, caller: Caller) -> frozenset[str]:
        """The accounts whose jobs `caller` may see as their coordinator."""
        found = self._privileges_of(caller)
        return frozenset() if found is None else found.coordinated.get(caller.name, frozenset())

    def _privileges_of(self, caller: Caller) -> admin_level.Privileges | None:
        # A nameless uid and root's namesakes of other realms have no privileges.
        return self._privileges.now() if caller.name else None


def may_read(caller: Caller, owners: frozenset[str], service: settings.ServiceSettings) -> bool:
    """Whether `caller` may see jobs of `owners` by the settings alone."""
    if caller.uid in {0, os.geteuid()}:
        return True
    if not caller.name:
        return False
    operator = caller.name in service.operators or service.operator_group in caller.groups - {""}
    return operator or owners == frozenset({caller.name})


def is_slurm(caller: Caller, slurm: settings.SlurmSettings) -> bool:
    """Whether `caller` is the controller: root, or SlurmUser."""
    return caller.uid in {0, os.geteuid()} or (bool(caller.name) and caller.name == slurm.user)


def slurm_uids(slurm: settings.SlurmSettings) -> frozenset[int]:
    """The same, by uid."""
    found = {0, os.geteuid()}
    with contextlib.suppress(KeyError):
        found.add(pwd.getpwnam(slurm.user).pw_uid)
    return frozenset(found)
