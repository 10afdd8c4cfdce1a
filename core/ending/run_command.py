"""How each of our commands ends: what it says instead of a traceback, whatever its output is connected to."""

from __future__ import annotations

import contextlib
import errno
import io
import math
import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from probing_cluster.core import errors, sanitize
from probing_cluster.core.ending import extras, thread_limit

FAILED = 1
INTERRUPTED = 128 + signal.SIGINT
LEAST_FILES = 32
"""Open files without which libraries of ours abort in the middle instead of failing."""


def run(
    program: str,
    work: Callable[[], int],
    *,
    code_of: Callable[[errors.ProbingError], int] = lambda exc: exc.exit_code,
    broken_pipe: int = 0,
    failed: int = FAILED,
) -> int:
    """The exit code of `work`; errors are one sentence on standard error.

    `broken_pipe` is the code where a reader such as `head` has left, `failed` the one where the system refuses, such as a
    full disk behind standard output.
    """
    _open_standard_streams()
    # NumPy's, of which we use no linear algebra: one thread for each core, and SIGINT to ourselves where they are refused.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if (files := _raised_limit_of_files()) < LEAST_FILES:
        _print_error(
            f"{program}: only {files} files may be open at once here; allow more (ulimit -n {LEAST_FILES})"
        )
        return failed
    try:
        try:
            return work()
        except errors.ProbingError as exc:
            _print_error(f"{program}: {exc}")
            return code_of(exc)
        except UnicodeEncodeError as exc:
            _print_error(f"{program}: {exc.object[:80]!r} is not written in UTF-8")
            return errors.UsageError.exit_code
        except MemoryError:
            _print_error(
                f"{program}: there is not enough memory for this (ulimit -v, a container's or a unit's limit)"
            )
            return failed
        except RuntimeError as exc:
            if thread_limit.REFUSED not in str(exc):
                raise
            _print_error(f"{program}: no further thread may be started here ({thread_limit.LIMITS})")
            return failed
        except ModuleNotFoundError as exc:
            # A host has the libraries of its role only (docs/install.md).
            _print_error(extras.missing(program, exc))
            return errors.UsageError.exit_code
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()
        return broken_pipe
    except OSError as exc:
        _discard_output()
        _print_error(f"{program}: {_words(exc)}")
        return failed
    except KeyboardInterrupt:
        _discard_output()
        return INTERRUPTED


def _open_standard_streams() -> None:
    """Standard streams that a caller closed lead nowhere; letters that the terminal's encoding lacks become question marks."""
    with contextlib.suppress(OSError):
        while (fd := os.open(os.devnull, os.O_RDWR)) < 3:
            pass  # the lowest free number: one of a stream that was closed
        os.close(fd)
    nowhere = Path(os.devnull)
    sys.stdin = sys.stdin or nowhere.open()
    sys.stdout = sys.stdout or nowhere.open("w")
    sys.stderr = sys.stderr or nowhere.open("w")
    if isinstance(sys.stdout, io.TextIOWrapper):
        with contextlib.suppress(OSError):
            sys.stdout.reconfigure(errors="replace")


def _raised_limit_of_files() -> float:
    """How many files may be open at once; where that is too few, after raising it as far as this account may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return math.inf
    if soft < LEAST_FILES:
        soft = LEAST_FILES if hard == resource.RLIM_INFINITY else min(LEAST_FILES, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return soft


def _discard_output() -> None:
    """What is left in the buffer goes nowhere, so that Python's own flush at exit does not complain."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_error(text: str) -> None:
    # It may name a file, whose name is its user's.
    line = "\n".join(sanitize.clean(part, len(part)) for part in text.split("\n"))
    # Standard error may lie on the same full disk.
    with contextlib.suppress(OSError):
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


def _words(exc: OSError) -> str:
    """The system's word and what it was said about."""
    what = exc.strerror or str(exc) or type(exc).__name__
    if isinstance(exc, BlockingIOError) and what == os.strerror(errno.EAGAIN):
        what = f"no further process may be started here ({thread_limit.LIMITS})"
    return f"{what}: {exc.filename}" if exc.filename else what
