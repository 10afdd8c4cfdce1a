"""What each command says and with which code it ends, whatever its streams are connected to."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from probing_cluster.core import errors
from probing_cluster.core.ending import run_command
from tests.every_case import every

BIN = Path(sys.executable).parent
COMMANDS = ("ctl", "report", "agent", "check", "sandbox", "diagnose")
ROOT = Path(__file__).resolve().parents[2]
SCRIPTS: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
    "scripts"
]


def ended(command: str, redirections: str) -> subprocess.CompletedProcess[str]:
    """One command in a shell of its own."""
    return subprocess.run(
        ["bash", "-c", f"{command} {redirections}"], capture_output=True, text=True, check=False
    )


@every("name", COMMANDS)
def test_a_full_disk_behind_the_output_is_an_error_and_no_traceback(name: str) -> None:
    """Not everything was written: the code says so."""
    done = ended(f"{BIN}/probing-{name} --version", ">/dev/full")
    assert done.returncode not in (0, 120)
    assert done.stderr == f"probing-{name}: No space left on device\n"


def test_too_few_open_files_are_said_before_a_library_aborts() -> None:
    """DataFusion panics without a file for its threads; a soft limit is raised as far as the hard one goes."""
    command = f"{BIN}/probing-ctl fleet"
    done = ended(f"ulimit -n 8; {command}", "")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "probing-ctl: only 8 files may be open at once here; allow more (ulimit -n 32)\n"
    assert ended(f"ulimit -S -n 8; {command} --help", "").returncode == 0


def test_the_name_of_a_file_in_an_error_moves_no_cursor(tmp_path: Path) -> None:
    """Its user chooses it, and an operator reads the error on a terminal."""
    (tmp_path / "a\x1b[2Jb").write_bytes(b"")
    done = ended(f"cd {tmp_path}; {BIN}/probing-ctl classify *", "")
    assert done.stderr == "probing-ctl: ab is empty; there is nothing to classify\n"


BOUNDED = (
    "import os, resource, sys; resource.setrlimit(resource.RLIMIT_NPROC, ({most}, {most}))\n"
    "from probing_cluster.core.ending import run_command, thread_limit\n"
    "sys.exit(run_command.run('x', lambda: {work}))"
)
"""With at most so many threads and processes of its account."""


def as_an_idle_account() -> list[str]:
    """An account without other processes, since root has no such limit; it may read a Python below /root."""
    uid, read = 2_000_000_000 + os.getpid(), "-all,+dac_override"
    return [
        "setpriv", f"--reuid={uid}", "--regid=60", "--clear-groups", f"--inh-caps={read}", f"--ambient-caps={read}",
    ]  # fmt: skip


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become an account without processes")
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="no setpriv (util-linux)")
@pytest.mark.parametrize(
    ("most", "work", "words"),
    [
        (4, "thread_limit.require() or 0", "x: only 3 threads may be started here and this needs "),
        (200, "thread_limit.require() or 0", ""),
        (1, "__import__('threading').Thread(target=len).start() or 0", "x: no further thread may be started here ("),
        (1, "os.fork() and 0", "x: no further process may be started here (ulimit -u, or the limit of tasks of a container or a unit)"),
        (1, "__import__('numpy') and 0", ""),
    ],
    ids=["DataFusion's", "enough", "a thread", "a process", "NumPy"],
)  # fmt: skip
def test_too_few_threads_and_processes_are_said(most: int, work: str, words: str) -> None:
    """`ulimit -u`: no traceback, no library's panic or SIGINT, and nothing that waits for ever."""
    command = [*as_an_idle_account(), sys.executable, "-c", BOUNDED.format(most=most, work=work)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr[: len(words) or None].strip()) == (int(bool(words)), words.strip())
    assert done.stderr.count("\n") == bool(words)


PRINTS = (
    "from probing_cluster.core.ending import run_command as r; exit(r.run('x', lambda: print('row') or 0))"
)


@every(
    ("redirections", "code", "words"),
    [
        (">/dev/full 2>&1", 1, ""),
        (">&-", 0, ""),
        ("2>&-", 0, "row\n"),
        ("<&-", 0, "row\n"),
        (">&- 2>&- <&-", 0, ""),
    ],
)
def test_a_stream_that_the_caller_closed_is_no_error(redirections: str, code: int, words: str) -> None:
    """As for any other program."""
    done = ended(f'{sys.executable} -c "{PRINTS}"', redirections)
    assert (done.returncode, done.stdout, done.stderr) == (code, words, "")


def test_what_a_closed_stream_left_free_is_no_file_of_ours(tmp_path: Path) -> None:
    """A file opened by the command would otherwise be its standard output, and its children's."""
    code = (
        "import os, sys; from probing_cluster.core.ending import run_command\n"
        f"run_command.run('x', lambda: os.open({str(tmp_path / 'f')!r}, os.O_RDWR | os.O_CREAT) < 3)"
    )
    done = ended(f"{sys.executable} -c \"{code}; os.write(1, b'lost')\"", ">&- 2>&- <&-")
    assert done.returncode == 0
    assert (tmp_path / "f").read_bytes() == b""


def test_letters_that_the_encoding_lacks_are_replaced() -> None:
    """A name of a job in a terminal of another age."""
    code = (
        "from probing_cluster.core.ending import run_command as r; r.run('x', lambda: print('é\\udcff') or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"??\n", b"")


def _raising(exc: BaseException) -> int:
    raise exc


@pytest.mark.parametrize(
    ("exc", "code", "words"),
    [
        (errors.NotFound("no job 7"), 3, "x: no job 7\n"),
        (PermissionError(13, "Permission denied", "/f"), 1, "x: Permission denied: /f\n"),
        (OSError("nothing"), 1, "x: nothing\n"),
        (UnicodeEncodeError("utf-8", "n\udcff", 1, 2, "no"), 2, "x: 'n\\udcff' is not written in UTF-8\n"),
        (
            MemoryError(),
            1,
            "x: there is not enough memory for this (ulimit -v, a container's or a unit's limit)\n",
        ),
        (BrokenPipeError(), 0, ""),
        (KeyboardInterrupt(), 128 + signal.SIGINT, ""),
    ],
)
def test_every_error_is_a_sentence_and_a_code(
    exc: BaseException, code: int, words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Never a traceback of what the user or the system did."""
    assert run_command.run("x", lambda: _raising(exc)) == code
    assert capfd.readouterr().err == words


INTERRUPTED = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started the tests in the background may have it ignored
sys.addaudithook(lambda name, what: name == "import" and what[0] == {loaded!r} and os.kill(os.getpid(), signal.SIGINT))
from {module} import {function}
sys.exit({function}())
"""


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("loaded", ["probing_cluster.core.errors", "probing_cluster.core.command_line"])
def test_ctrl_c_while_a_command_loads_its_modules_is_no_traceback(script: str, loaded: str) -> None:
    """It takes up to a second, and people change their minds."""
    module, _, function = SCRIPTS[script].partition(":")
    code = INTERRUPTED.format(loaded=loaded, module=module, function=function)
    done = subprocess.run(
        [sys.executable, "-c", code, "--version"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")
