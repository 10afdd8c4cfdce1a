"""The reader of pages has no rights but the user's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from probing_cluster.probe_agent.inject.site._probing_probe import layout


@pytest.mark.skipif(os.getuid() != 0 or shutil.which("setpriv") is None, reason="needs root and setpriv")
def test_pages_are_read_as_their_owner(tmp_path: Path) -> None:
    """The reader has become the job's user: what that user cannot read, it cannot read."""
    tmp_path.chmod(0o755)
    secret = tmp_path / "root-only"
    secret.mkdir(mode=0o700)
    (secret / "p5.page").write_bytes(b"\0" * layout.SIZE_BYTES)
    request = b'{"directory": "%s", "uid": 65534, "gid": 65534}\n' % str(secret).encode()
    argv = [sys.executable, "-I", "-m", "probing_cluster.probe_agent.ranks.page_child"]
    done = subprocess.run(argv, input=request, capture_output=True, check=True)
    assert b"PermissionError" in done.stdout
    assert b'"pages"' not in done.stdout
