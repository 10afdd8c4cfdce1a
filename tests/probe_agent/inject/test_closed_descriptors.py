"""A program that closes all its descriptors, as a daemon does: the numbers are its own from then on, and nothing of ours closes them."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from probing_cluster.probe_agent import inject

PROGRAM = """
import gc, os, sys
{ours}
os.closerange(3, 256)
files = [open("{directory}/own%d" % n, "w") for n in range(12)]
def lost():
    gc.collect()
    found = []
    for file in files:
        try:
            os.fstat(file.fileno())
        except OSError:
            found.append(file.name)
    return found
if not os.fork():
    {again}
    os._exit(len(lost()))
print(os.waitstatus_to_exitcode(os.wait()[1]) if hasattr(os, "waitstatus_to_exitcode") else os.wait()[1])
{end}
print(len(lost()))
for file in files:
    file.write("whole")
"""
TABLE = "import probing_tables; t = probing_tables.table('train', step=int); t.append(1)"
LATE = "late = probing_tables.ExternalTable('late', ['x']); late.append([1])"
PAGE = "from _probing_probe import page; page.open_page(); page.step_done()"
PYTHONS = [sys.executable, *map(str, sorted(Path.home().glob(".pyenv/versions/3.13.*/bin/python")))]


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize(
    ("ours", "again", "end"),
    [
        (TABLE, "t.append(2)", "t.drop()"),
        (TABLE + "; " + LATE, "t.append(2)", "late.append([0.5])"),
        (PAGE, "page.open_page(); page.step_done()", "page.step_done()"),
    ],
    ids=["table", "promoted", "page"],
)
def test_files_of_the_program_stay_open(tmp_path: Path, python: str, ours: str, again: str, end: str) -> None:
    """In a forked child, when a table is dropped or made anew, and at the end, where the program's files are flushed."""
    (tmp_path / "pages").mkdir()
    env = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(inject.SITE_DIRECTORY),
        "PROBING_PAGE_DIR": str(tmp_path / "pages"),
    }
    code = PROGRAM.format(ours=ours, again=again, end=end, directory=tmp_path)
    done = subprocess.run([python, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert (done.stdout.split(), done.stderr, done.returncode) == (["0", "0"], "", 0)
    assert [path.read_text() for path in tmp_path.glob("own*")] == ["whole"] * 12


LIVE = """
import os, socket, sys, time
import probing_tables
from _probing_probe import responder
address = os.path.join(os.environ["PROBING_PAGE_DIR"], responder.name_of(os.getpid(), responder._namespace()))
time.sleep(0.5)  # for the thread to wait, most often; nothing depends on it
os.closerange(3, 256)
def own():
    made = [socket.socket(socket.AF_UNIX) for _ in range(12)]
    for n, one in enumerate(made):
        one.bind("%s/own%d" % ({directory!r}, n)); one.listen()
    return made
servers = own()
if not os.fork():
    lost = 0
    for one in servers:
        try:
            os.fstat(one.fileno())
        except OSError:
            lost += 1
    os._exit(lost)
print(os.wait()[1])
# Wakes the thread that waits on the socket that was closed: whatever it does next, it must leave ours alone.
try:
    with socket.socket(socket.AF_UNIX) as asker:
        asker.connect(address)
        asker.sendall(b'{{"expression": "1"}}\\n')
        asker.recv(100)
except ConnectionRefusedError:
    pass  # it did not wait yet when the socket was closed
for one in servers:
    one.settimeout(60)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(one.getsockname())
        peer, _ = one.accept()
        peer.sendall(b"mine")
        assert client.recv(10) == b"mine"
        peer.close()
print("served")
"""


def test_servers_of_the_program_keep_their_callers() -> None:
    """A live process whose socket the program closed takes no call from a socket of the program's."""
    with tempfile.TemporaryDirectory() as directory:
        pages = Path(directory) / "pages"
        pages.mkdir()
        env = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(inject.SITE_DIRECTORY),
            "PROBING_PAGE_DIR": str(pages),
            "PROBING": "live",
        }
        code = LIVE.format(directory=directory)
        done = subprocess.run(
            [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False, timeout=300
        )
    words = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (0, "")
    assert words == ["0", "served"]
