"""MUNGE credentials through libmunge and ctypes: the caller's identity, signed with the cluster's key.

libmunge talks to munged over its Unix socket and gives up by itself after a few seconds.
"""

from __future__ import annotations

import ctypes
import functools

from probing_cluster.core import errors, records

TTL_S = 60
"""Lifetime of our credentials: enough for a slow login node, too short to be worth stealing."""
_OPT_REALM, _OPT_TTL, _OPT_ENCODE_TIME, _OPT_SOCKET = 3, 4, 6, 8
_SUCCESS = 0
_LIBRARY = "libmunge.so.2"


class CredentialRefused(errors.NotPermitted):
    """The MUNGE credential is not accepted."""


class MungeUnavailable(errors.NotPermitted):
    """MUNGE cannot be used here."""


@records.record
class MungeCredential:
    """A credential that munged has decoded."""

    uid: int = records.doc("user id of the process that made it")
    gid: int = records.doc("group id of that process")
    payload: bytes = records.doc("the bytes in it")
    age_s: float = records.doc(
        "seconds since it was made, by the two hosts' clocks; negative when they disagree"
    )
    realm: str = records.doc("security realm it names; empty as a rule", default="")


def encode(payload: bytes, socket: str = "", ttl_s: int = TTL_S) -> str:
    """A credential of this process that carries `payload`; raises MungeUnavailable."""
    munge = _library()
    context = _context(munge, socket)
    try:
        munge.munge_ctx_set(context, ctypes.c_int(_OPT_TTL), ctypes.c_int(ttl_s))
        made = ctypes.c_void_p()
        failed = munge.munge_encode(ctypes.byref(made), context, payload, len(payload))
        if failed != _SUCCESS:
            raise MungeUnavailable("MUNGE cannot be used here: " + _words(munge, context, failed))
        try:
            return ctypes.string_at(made).decode("ascii")
        finally:
            munge.free(made)
    finally:
        munge.munge_ctx_destroy(context)


def decode(credential: str, now_s: float, socket: str = "") -> MungeCredential:
    """The decoded `credential`; munged decodes each only once. Raises CredentialRefused or MungeUnavailable.

    munged itself refuses credentials that are forged, of another key, expired, from the future or used before.
    """
    if not credential.isascii() or "\0" in credential:
        raise CredentialRefused("the MUNGE credential is malformed")
    munge = _library()
    context = _context(munge, socket)
    payload, length = ctypes.c_void_p(), ctypes.c_int()
    uid, gid = ctypes.c_uint32(), ctypes.c_uint32()
    try:
        parts = (payload, length, uid, gid)
        failed = munge.munge_decode(credential.encode("ascii"), context, *map(ctypes.byref, parts))
        if failed != _SUCCESS:
            raise _meaning(failed)(_words(munge, context, failed))
        made_at, realm = ctypes.c_long(), ctypes.c_char_p()
        munge.munge_ctx_get(context, ctypes.c_int(_OPT_ENCODE_TIME), ctypes.byref(made_at))
        munge.munge_ctx_get(context, ctypes.c_int(_OPT_REALM), ctypes.byref(realm))
        return MungeCredential(
            uid=uid.value,
            gid=gid.value,
            payload=ctypes.string_at(payload, length.value) if payload else b"",
            age_s=now_s - made_at.value,
            realm=(realm.value or b"").decode("ascii", "replace"),
        )
    finally:
        munge.free(payload)
        munge.munge_ctx_destroy(context)


_EMUNGE_SNAFU, _EMUNGE_NO_MEMORY, _EMUNGE_SOCKET, _EMUNGE_TIMEOUT = 1, 5, 6, 7


def _meaning(failed: int) -> type[errors.ProbingError]:
    ours = {_EMUNGE_SNAFU, _EMUNGE_NO_MEMORY, _EMUNGE_SOCKET, _EMUNGE_TIMEOUT}
    return MungeUnavailable if failed in ours else CredentialRefused


def _words(munge: ctypes.CDLL, context: ctypes.c_void_p, failed: int) -> str:
    message = munge.munge_ctx_strerror(context) or munge.munge_strerror(failed)
    return (message or b"").decode("utf-8", "replace") or f"error {failed}"


def _context(munge: ctypes.CDLL, socket: str) -> ctypes.c_void_p:
    context = ctypes.c_void_p(munge.munge_ctx_create())
    if not context:
        raise MungeUnavailable("MUNGE cannot be used here: out of memory")
    if socket:
        munge.munge_ctx_set(context, ctypes.c_int(_OPT_SOCKET), ctypes.c_char_p(socket.encode()))
    return context


@functools.cache
def _library() -> ctypes.CDLL:
    try:
        munge = ctypes.CDLL(_LIBRARY)
    except OSError as exc:
        raise MungeUnavailable(f"MUNGE cannot be used here: {_LIBRARY} is not installed") from exc
    munge.munge_ctx_create.restype = ctypes.c_void_p
    munge.munge_ctx_destroy.argtypes = [ctypes.c_void_p]
    munge.munge_ctx_destroy.restype = None
    munge.munge_ctx_strerror.argtypes = [ctypes.c_void_p]
    munge.munge_ctx_strerror.restype = ctypes.c_char_p
    munge.munge_strerror.restype = ctypes.c_char_p
    munge.munge_ctx_set.argtypes = munge.munge_ctx_get.argtypes = [ctypes.c_void_p, ctypes.c_int]
    munge.munge_encode.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int]
    munge.munge_decode.argtypes = [ctypes.c_char_p, ctypes.c_void_p, *[ctypes.c_void_p] * 4]
    # The C library's free, through the library that allocated the memory.
    munge.free.argtypes = [ctypes.c_void_p]
    munge.free.restype = None
    return munge
