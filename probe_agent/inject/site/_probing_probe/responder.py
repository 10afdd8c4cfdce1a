"""Answers the owner's questions from inside a process of a live job (PROBING=live): one expression in, its value out.

A thread sleeps on a socket of mode 0600 in the job's directory, asks the kernel who is at the other end, and evaluates for
nobody but the process's own user. It costs nothing while nobody asks. What it evaluates runs in this process, with its GIL:
nothing here can stop an expression that does not end.
"""

import _socket
import _thread
import atexit
import json
import os
import struct
import sys

MAX_QUESTION_BYTES = 65536
MAX_ROWS = 4096
MAX_COLUMNS = 64
MAX_CHARS = 4096
PEER_S = 2.0
"""How long a peer may take to send its question or to take its answer: others wait behind it."""
_MAX_CHARS_OF_ROWS = 1 << 20
_peer = struct.Struct("iII")
_listening = None
_inode = None
_path = ""
_main = 0


def start():
    """Listen; once per process."""
    global _listening, _inode, _path, _main
    if _listening is not None:
        return
    path = os.path.join(os.environ["PROBING_PAGE_DIR"], name_of(os.getpid(), _namespace()))
    listening = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        try:
            listening.bind(path)
        except OSError:
            os.unlink(path)  # of an earlier process of this number
            listening.bind(path)
        os.chmod(path, 0o600)
        listening.listen(16)
    except BaseException:
        listening.close()
        raise
    _listening, _inode, _path, _main = listening, _identity(listening), path, _thread.get_ident()
    os.register_at_fork(after_in_child=_close_in_child)
    atexit.register(_end, os.getpid())
    _thread.start_new_thread(_serve, (listening,))


def name_of(pid: int, namespace: int) -> str:
    """The socket's name in the job's directory: of the process's number in its own PID namespace, and that one's inode."""
    return "e%d-%d.sock" % (pid, namespace)


def _namespace():
    try:
        return int(os.readlink("/proc/self/ns/pid")[5:-1])
    except (OSError, ValueError):
        return 0


def _identity(listening):
    found = os.fstat(listening.fileno())
    return found.st_dev, found.st_ino


def _is_ours(listening):
    """Whether its descriptor is still its own: a program that has closed all may have a socket of its own of that number."""
    try:
        return _identity(listening) == _inode
    except OSError:
        return False


def _close_in_child():
    # The parent answers; a child that imports torch anew is no fork.
    if _listening is not None:
        _listening.close() if _is_ours(_listening) else _listening.detach()


def _end(pid):
    if pid == os.getpid():
        try:
            os.unlink(_path)
        except OSError:
            pass


def _serve(listening):
    while _is_ours(listening):
        try:
            fd, _ = listening._accept()
        except OSError:
            return
        peer = _socket.socket(fileno=fd)
        try:
            peer.settimeout(PEER_S)
            _answer(peer)
        except Exception:  # a peer that went away, or never asked
            pass
        finally:
            peer.close()


def _answer(peer):
    _, uid, _ = _peer.unpack(peer.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, _peer.size))
    if uid != os.geteuid():
        return
    question = bytearray()
    while not question.endswith(b"\n"):
        part = peer.recv(65536)
        if not part or len(question) > MAX_QUESTION_BYTES:
            return
        question += part
    reply = _reply(json.loads(question)["expression"])
    peer.sendall(json.dumps(reply).encode() + b"\n")


def _reply(expression):
    try:
        code = compile(expression.strip(), "<probing>", "eval")
        value = eval(code, _names(code))  # noqa: S307  # the owner asked for it: that is what a live job is
        return _columns(value)
    except BaseException as exc:  # SystemExit too: the question must not end the program
        try:
            words = str(exc)
        except Exception:
            words = ""
        return {
            "error": ("%s: %s" % (type(exc).__name__, words) if words else type(exc).__name__)[:MAX_CHARS]
        }


def _names(code):
    """What the names of an expression mean: a local of the functions of the program's own file that the main thread is in,
    innermost first; a global of that file; a module that is loaded."""
    program = sys.modules["__main__"].__dict__
    found = dict(program)
    wanted = _wanted(code)
    threading = sys.modules.get("threading")
    frame = sys._current_frames().get(threading.main_thread().ident if threading is not None else _main)
    frames = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    for frame in reversed(frames):
        if frame.f_globals is program and frame.f_code.co_name != "<module>":
            there = frame.f_locals
            found.update((name, there[name]) for name in wanted if name in there)
    for name in wanted:
        if name not in found and name in sys.modules:
            found[name] = sys.modules[name]
    return found


def _wanted(code):
    names = set(code.co_names)
    for constant in code.co_consts:
        if hasattr(constant, "co_names"):
            names |= _wanted(constant)
    return names


def _columns(value):
    """A value as columns and rows: a dictionary is a row, a sequence is rows, anything else is one `value`."""
    if isinstance(value, dict):
        value = [value]
    elif not isinstance(value, (list, tuple, set, frozenset)):
        return {"columns": ["value"], "rows": [[_scalar(value)]], "cut": 0}
    items = list(value)
    kept = items[:MAX_ROWS]
    if kept and all(isinstance(item, dict) for item in kept):
        kept = [{str(k)[:64]: v for k, v in item.items()} for item in kept]
    else:
        kept = [{"value": item} for item in kept]
    columns = list(dict.fromkeys(name for item in kept for name in item))[:MAX_COLUMNS]
    rows, chars = [], 0
    for item in kept:
        row = [_scalar(item.get(name)) for name in columns]
        chars += sum(len(cell) if isinstance(cell, str) else 8 for cell in row)
        if chars > _MAX_CHARS_OF_ROWS:
            break
        rows.append(row)
    return {"columns": columns, "rows": rows, "cut": len(items) - len(rows)}


def _scalar(value):
    # Tensors and arrays of one element are their number.
    if getattr(value, "shape", None) in ((), (1,)) and hasattr(value, "item"):
        value = value.item()
    if value is None or isinstance(value, (bool, float)):
        return value if value is None or isinstance(value, bool) else float(value)
    if isinstance(value, int):
        return int(value) if -(1 << 63) <= value < 1 << 63 else str(value)[:MAX_CHARS]
    return (value if isinstance(value, str) else repr(value))[:MAX_CHARS]
