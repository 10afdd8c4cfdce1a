# ruff: noqa: SLF001 - posix._exit is the one exit without teardown
"""One question to the node's agent, asked by Prolog, Epilog and HealthCheckProgram.

Runs as root on the system's Python (3.6 and later) under `-I -S`, standard library only. It must never cost a job
anything: every failure of ours, and the deadline, end in exit 0. The C modules behind `socket`, `os` and `signal`
are used directly because the plain ones double the start time of a hook (benchmarks/slurm_plugins/hooks.py measures it).
"""

import _signal  # type: ignore[import-not-found]
import _socket
import posix
import sys
import time

NOT_FIT = 42
"""The exit status of an explicit no: one that no Python, shell or signal gives by itself."""
MAX_REPLY_BYTES = 65536
MAX_MISSED = 4096
"""Notes that wait for an agent at once; a node that has none for that long gets no more."""
MOST_BYTES = 4096
MOST_OF_NODES = 32768
"""Bytes of one variable. A list of nodes that was cut is none, and every one of the nodes would read the job's output for itself."""
_INTS = (
    ("job_id", b"SLURM_JOB_ID"),
    ("restart_count", b"SLURM_JOB_RESTART_COUNT"),
    ("uid", b"SLURM_JOB_UID"),
    ("gid", b"SLURM_JOB_GID"),
    ("array_job_id", b"SLURM_ARRAY_JOB_ID"),
    ("array_task_id", b"SLURM_ARRAY_TASK_ID"),
    ("het_job_id", b"SLURM_HET_JOB_ID"),
)
_TEXTS = (
    (
        "gpus",
        (b"SLURM_JOB_GPUS", b"ROCR_VISIBLE_DEVICES"),
    ),  # the second names chips of AMD where the first is missing
    ("stdout", (b"SLURM_JOB_STDOUT",)),
    ("stderr", (b"SLURM_JOB_STDERR",)),
    ("work_dir", (b"SLURM_JOB_WORK_DIR",)),
    ("partition", (b"SLURM_JOB_PARTITION",)),
    ("nodelist", (b"SLURM_JOB_NODELIST", b"SLURM_NODELIST")),
    ("job_name", (b"SLURM_JOB_NAME",)),
    ("user", (b"SLURM_JOB_USER",)),
    ("sluid", (b"SLURM_JOB_SLUID",)),  # 25.11 and later; the name of its cgroups from 26.05 on
    # SPANK_ names are the user's words, put there by our plugin's --probing-run and --probing.
    ("run_key", (b"SPANK_PROBING_RUN_KEY",)),
    ("probing", (b"SPANK_PROBING",)),
    ("on_hang", (b"SPANK_PROBING_ON_HANG",)),
)


def main(op: str) -> int:
    """The exit status of the hook `op`: `NOT_FIT` only when a prolog hears an explicit `"fit": false`."""
    try:
        socket_path, deadline_s = _arguments(sys.argv[2:])
        _arm(deadline_s)
        request = _request(op)
        began_s = time.time()
        try:
            reply = _ask(request, socket_path, deadline_s)
        except (FileNotFoundError, ConnectionError, BlockingIOError, _socket.timeout):
            # Nobody listens, the queue is full, or the agent may die before it answers.
            if op in ("prolog", "epilog"):
                _leave_note(op, request, socket_path, began_s)
            raise
        return _answer(op, reply)
    except Exception as exc:  # noqa: BLE001 - a hook fails open, whatever broke
        _print_line(op, f"no answer from the agent ({type(exc).__name__}: {exc}); going on")
        return 0


def leave(status: int) -> None:
    """Ends the process without the interpreter's tidying up, which costs as much as the question."""
    posix._exit(status)


def _arguments(words: "list[str]") -> "tuple[str, float]":
    socket_path, deadline_s = "/run/probing-cluster/agent.sock", 5.0
    it = iter(words)
    for word in it:
        if word == "--socket":
            socket_path = next(it)
        elif word == "--deadline":
            deadline_s = float(next(it))
        else:
            raise ValueError("unknown argument " + word)
    return socket_path, deadline_s


def _arm(deadline_s: float) -> None:
    """A second, independent deadline: whatever hangs, the hook is gone 0.5 s after its own."""
    # A handler, not the default action: dying of SIGALRM would look like a failed Prolog and drain the node.
    _signal.signal(_signal.SIGALRM, lambda *_: posix._exit(0))
    _signal.setitimer(_signal.ITIMER_REAL, deadline_s + 0.5)


def _request(op: str) -> bytes:
    environment = posix.environ
    pairs = ['"v":1,"op":' + _quote(op), '"node":' + _quote(_text(environment.get(b"SLURMD_NODENAME", b"")))]
    for name, variable in _INTS:
        value = environment.get(variable, b"")
        if value.isdigit() and len(value) < 20:  # bytes: only ASCII digits
            pairs.append(f'"{name}":{int(value)}')
    for name, variables in _TEXTS:
        for variable in variables:
            if variable in environment:
                most = MOST_OF_NODES if name == "nodelist" else MOST_BYTES
                pairs.append('"' + name + '":' + _quote(_text(environment[variable], most)))
                break
    return ("{" + ",".join(pairs) + "}\n").encode("ascii")


def _text(raw: bytes, most: int = MOST_BYTES) -> str:
    return raw[:most].decode("utf-8", "replace")


def _quote(text: str) -> str:
    try:
        from _json import encode_basestring_ascii
    except ImportError:  # an interpreter built without the accelerator
        from json.encoder import encode_basestring_ascii
    return encode_basestring_ascii(text)


def _ask(request: bytes, socket_path: str, deadline_s: float) -> bytes:
    sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
    try:
        sock.settimeout(deadline_s)
        sock.connect(socket_path)
        _require_trusted_peer(sock)
        sent = 0
        while sent < len(request):
            sent += sock.send(request[sent:])
        reply = b""
        while not reply.endswith(b"\n") and len(reply) < MAX_REPLY_BYTES:
            piece = sock.recv(MAX_REPLY_BYTES)
            if not piece:
                raise ConnectionResetError("the agent ended before it answered")
            reply += piece
        return reply
    finally:
        sock.close()


def _leave_note(op: str, request: bytes, socket_path: str, began_s: float) -> None:
    """What the agent may not have heard waits beside its socket, with the time of the question (probe_agent.hooks.missed)."""
    directory = socket_path + ".missed"
    try:
        there = posix.lstat(directory)
        # Made by the agent: a directory that others may write to speaks for nobody.
        private = there.st_uid == posix.geteuid() and there.st_mode == 0o040700
        if private and len(posix.listdir(directory)) < MAX_MISSED:
            name = (
                posix.environ.get(b"SLURM_JOB_ID", b"0").decode("ascii")
                + "."
                + str(posix.getpid())
                + "."
                + op
            )
            # The agent looks for names with two dots: it never reads a note that is only half written.
            unfinished = directory + "/unfinished-" + str(posix.getpid())
            flags = posix.O_WRONLY | posix.O_CREAT | posix.O_TRUNC | posix.O_CLOEXEC | posix.O_NOFOLLOW
            file = posix.open(unfinished, flags, 0o600)
            posix.write(file, request)
            posix.close(file)
            posix.utime(unfinished, (began_s, began_s))
            posix.rename(unfinished, directory + "/" + name)
    except (OSError, UnicodeDecodeError) as exc:
        _print_line(op, f"no note for the agent ({type(exc).__name__}: {exc})")


def _require_trusted_peer(sock: "_socket.socket") -> None:
    """Raises unless the peer is root or ourselves: a user's socket cannot speak for the node."""
    credentials = sock.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
    uid = int.from_bytes(credentials[4:8], sys.byteorder)
    if uid not in (0, posix.geteuid()):
        raise PermissionError(f"the socket is served by uid {uid}")


def _answer(op: str, reply: bytes) -> int:
    # Importing json costs more than the rest of the hook; a healthy answer has no need of it.
    if b"false" not in reply and b"say" not in reply and reply.startswith(b"{") and reply.endswith(b"}\n"):
        return 0
    import json

    answer = json.loads(reply.decode("utf-8", "replace"))
    if not isinstance(answer, dict):
        raise TypeError("the answer is not an object")
    if answer.get("ok") is not True:
        _print_line(op, f"the agent answered with an error ({_line(answer.get('error'))}); going on")
        return 0
    if "say" in answer:
        _print_line(op, _line(answer["say"]))
    if op == "prolog" and answer.get("fit") is False:
        _print_line(op, "node is not fit: " + _line(answer.get("reason")))
        return NOT_FIT
    return 0


def _line(value: object) -> str:
    return "".join(c if c.isprintable() else " " for c in str(value))[:500]


def _print_line(op: str, text: str) -> None:
    """One line for Slurm's log; a closed or full standard error is no reason to fail."""
    try:
        posix.write(2, f"probing {op}: {text}\n".encode("utf-8", "replace"))
    except OSError:
        return
