"""libmunge against a real munged: what it vouches for, and what it does not."""

from __future__ import annotations

import os
import pwd
import subprocess
import time
from collections.abc import Callable

import pytest

from probing_cluster.reports.asking import munge
from probing_cluster.sandbox.machine import layout

Start = Callable[[], layout.Layout]


def test_a_credential_carries_its_maker_and_its_payload(munged: layout.Layout) -> None:
    """Round trip: our uid and gid, the bytes as given, made just now."""
    socket = str(munged.munge_socket)
    found = munge.decode(munge.encode(b"\x00 bound", socket), time.time(), socket)
    assert (found.uid, found.gid, found.payload, found.realm) == (os.getuid(), os.getgid(), b"\x00 bound", "")
    assert -1 <= found.age_s < munge.TTL_S
    assert munge.decode(munge.encode(b"", socket), time.time(), socket).payload == b""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_the_munge_command_is_the_same_thing(munged: layout.Layout) -> None:
    """A credential of another user's `munge` says that user."""
    nobody = pwd.getpwnam("nobody")
    made = subprocess.run(
        ["munge", "-S", str(munged.munge_socket), "-s", "hello"],
        capture_output=True, text=True, check=True, user=nobody.pw_uid, group=nobody.pw_gid, extra_groups=[],
    )  # fmt: skip
    found = munge.decode(made.stdout.strip(), time.time(), str(munged.munge_socket))
    assert (found.uid, found.payload) == (nobody.pw_uid, b"hello")


def test_a_second_use_is_refused(munged: layout.Layout) -> None:
    """munged remembers."""
    socket = str(munged.munge_socket)
    credential = munge.encode(b"x", socket)
    munge.decode(credential, time.time(), socket)
    with pytest.raises(munge.CredentialRefused, match=r"[Rr]eplayed"):
        munge.decode(credential, time.time(), socket)


def test_another_key_is_another_realm(munged: layout.Layout, make_munged: Start) -> None:
    """A credential from a cluster with another key proves nothing here."""
    stranger = munge.encode(b"x", str(make_munged().munge_socket))
    with pytest.raises(munge.CredentialRefused, match=r"[Ii]nvalid"):
        munge.decode(stranger, time.time(), str(munged.munge_socket))


def test_its_time_runs_out(munged: layout.Layout) -> None:
    """A credential made for one second is worth nothing after three."""
    credential = munge.encode(b"x", str(munged.munge_socket), ttl_s=1)
    time.sleep(3.1)
    with pytest.raises(munge.CredentialRefused, match=r"[Ee]xpired"):
        munge.decode(credential, time.time(), str(munged.munge_socket))


@pytest.mark.parametrize("rubbish", ["", "MUNGE:", "MUNGE:AwQ=:", "é", "MUNGE:\0:", "x" * 3000])
def test_rubbish_is_refused(munged: layout.Layout, rubbish: str) -> None:
    """What is no credential is refused in words, and the library takes the next one."""
    with pytest.raises(munge.CredentialRefused):
        munge.decode(rubbish, time.time(), str(munged.munge_socket))
    assert munge.encode(b"x", str(munged.munge_socket)).startswith("MUNGE:")


def test_no_munged_is_told_apart_from_a_bad_credential(munged: layout.Layout) -> None:
    """A daemon that is away is not the caller's fault."""
    credential = munge.encode(b"x", str(munged.munge_socket))
    for work in (
        lambda: munge.encode(b"x", "/nonexistent/munge.socket"),
        lambda: munge.decode(credential, time.time(), "/nonexistent/munge.socket"),
    ):
        with pytest.raises(munge.MungeUnavailable):
            work()


def test_no_libmunge_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the library is missing its name is the message."""
    monkeypatch.setattr(munge, "_LIBRARY", "libnone.so.9")
    munge._library.cache_clear()
    try:
        with pytest.raises(munge.MungeUnavailable, match=r"libnone\.so\.9 is not installed"):
            munge.encode(b"x")
    finally:
        munge._library.cache_clear()
