# ruff: noqa: SLF001 - posix._exit is the one exit without teardown
"""HealthCheckProgram and TaskProlog are single paths: runs the site's own first, unchanged, then ours.

    wrapper.py health --site PROGRAM [--budget SECONDS] -- OURS ...
    wrapper.py task   --site PROGRAM -- OURS ...

The site's program keeps its arguments, environment, output and exit status, which become the wrapper's. Ours runs
in the time left of the budget (Slurm kills a health check at 60 s) and can change none of that. In `task` mode
ours sees the PYTHONPATH and PROBING that the site's program exported, so it adds to them instead of replacing them.
Standard library only, Python 3.6 and later.
"""

import posix
import sys
import time

READ_BY_OURS = (b"PYTHONPATH", b"PROBING")


def main(words: "list[str]") -> int:
    """Runs both and gives back the site's wait status."""
    split = words.index("--")
    options = dict(zip(words[1:split:2], words[2:split:2]))  # noqa: B905 - strict= is newer than 3.6
    mode, ours = words[0], words[split + 1 :]
    started_s = time.monotonic()
    environment = dict(posix.environ)
    site = options.get("--site", "")
    if not site:
        status = 0
    elif mode == "task":
        status, output = _run_and_echo(site, environment)
        environment.update(_exports(output))
    else:
        status = _wait(_start([site], environment))
    if mode == "health":
        left_s = float(options.get("--budget", "50")) - (time.monotonic() - started_s)
        ours += ["--deadline", f"{left_s:.1f}"]
        if left_s < 0.5:
            return status
    if mode == "health" or status == 0:
        _wait(_start(ours, environment))
    return status


def _start(command: "list[str]", environment: "dict[bytes, bytes]", stdout: int = 1) -> int:
    pid = posix.fork()
    if pid == 0:
        try:
            if stdout != 1:
                posix.dup2(stdout, 1)
            posix.execve(command[0], command, environment)
        except OSError as exc:
            posix.write(2, f"probing wrapper: {command[0]}: {exc.strerror}\n".encode("utf-8", "replace"))
        finally:
            posix._exit(127)
    return pid


def _wait(pid: int) -> int:
    return posix.waitpid(pid, 0)[1]


def _run_and_echo(site: str, environment: "dict[bytes, bytes]") -> "tuple[int, bytes]":
    read_end, write_end = posix.pipe()
    pid = _start([site], environment, stdout=write_end)
    posix.close(write_end)
    output = b""
    while True:
        piece = posix.read(read_end, 65536)
        if not piece:
            break
        output += piece
        while piece:
            piece = piece[posix.write(1, piece) :]
    if output and not output.endswith(b"\n"):
        posix.write(1, b"\n")
    return _wait(pid), output


def _exports(output: bytes) -> "dict[bytes, bytes]":
    found = {}
    for line in output.split(b"\n"):
        word, _, rest = line.partition(b" ")
        name, equals, value = rest.partition(b"=")
        if word == b"export" and equals and name.strip() in READ_BY_OURS:
            found[name.strip()] = value
        elif word == b"unset" and rest.strip() in READ_BY_OURS:
            found[rest.strip()] = b""
    return found


def leave_as(status: int) -> None:
    """Ends this process the way the site's program ended."""
    signal_number = status & 0x7F
    if signal_number:
        import _signal  # type: ignore[import-not-found]

        if signal_number not in (_signal.SIGKILL, _signal.SIGSTOP):
            _signal.signal(signal_number, _signal.SIG_DFL)
        posix.kill(posix.getpid(), signal_number)
    posix._exit(status >> 8)


if __name__ == "__main__":
    leave_as(main(sys.argv[1:]))
