"""Who is at the other end of a Unix socket."""

import os
import socket
import struct

from probing_cluster.core import peer


def test_our_own_other_end_is_ours():
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        assert peer.uid_of(ours) == os.getuid()


def test_a_uid_with_the_high_bit_set_is_not_negative():
    """NFS and containers map nobody to 4294967294; read as signed it would be -2 and match no account."""

    class Vouched:
        def getsockopt(self, *_: int) -> bytes:
            return struct.pack("iII", 7, 4294967294, 4294967294)

    assert peer.uid_of(Vouched()) == 4294967294


def test_who_has_closed_is_gone_and_who_is_silent_is_not():
    """Asked without waiting, also of a socket with a timeout, which it keeps."""
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours:
        ours.settimeout(30.0)
        assert not peer.has_gone(ours)
        theirs.sendall(b"x")
        assert not peer.has_gone(ours)
        assert ours.recv(1) == b"x"
        theirs.close()
        assert peer.has_gone(ours)
        assert ours.gettimeout() == 30.0
