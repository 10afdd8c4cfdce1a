# ruff: noqa: SLF001 - posix._exit is the one exit without teardown
"""Slurm TaskProlog: prints the environment that lets the probe ride in this task, and does nothing else.

Started, as the user, as `/usr/bin/python3 -I -S <this file> --probe-dir DIR --job-dir DIR [--default on|off|live]`.
Standard library only, Python 3.6 and later. `--probe-dir` is a root-owned directory that goes to the front of
PYTHONPATH, once; `--job-dir` holds the page directories that the Prolog made (%n in it is the node). A user opts out with PROBING=off; with PROBING=live
the processes answer their owner's questions. A task is given the site's default as PROBING_DEFAULT: a job that it submits inherits its variables,
and nobody has asked there.
"""

import posix
import sys

OFF = (b"off", b"0", b"no", b"false")
DUMPS = (b"TORCH_FR_DUMP_TEMP_FILE", b"TORCH_NCCL_DEBUG_INFO_TEMP_FILE")


def main(words: "list[str]", environment: "dict[bytes, bytes]") -> bytes:
    """The lines Slurm turns into the task's environment; empty when the user or the site said no."""
    options = {"--probe-dir": "", "--job-dir": "", "--default": "on"}
    for name, value in zip(words[::2], words[1::2]):  # noqa: B905 - strict= is newer than 3.6
        if name not in options:
            return b""
        options[name] = value
    probe_dir = options["--probe-dir"].encode()
    wish = environment.get(b"PROBING", b"")
    wanted = (wish or options["--default"].encode()).lower()
    job_dir = options["--job-dir"].encode()
    lines = [b"unset " + name for name in DUMPS if is_of_a_job(environment.get(name, b""), job_dir)]
    if wanted in OFF or not probe_dir.startswith(b"/") or b":" in probe_dir:
        # A step that says off inside a job that says on inherits the job's.
        lines += [b"unset PROBING_PAGE_DIR"] if b"PROBING_PAGE_DIR" in environment else []
        return b"".join(line + b"\n" for line in lines)
    variable = b"PROBING" if wish else b"PROBING_DEFAULT"
    lines.append(b"export " + variable + b"=" + (b"live" if wanted == b"live" else b"on"))
    base = job_dir.replace(b"%n", environment.get(b"SLURMD_NODENAME", b""))
    job_id = job_here(base, environment)
    if base and job_id:
        lines.append(b"export PROBING_PAGE_DIR=" + base + b"/" + job_id)
    path = with_front(probe_dir, environment.get(b"PYTHONPATH", b""))
    # A value with a line break cannot be said in TaskProlog's language: the user's own stays as it is.
    if b"\n" not in path:
        lines.append(b"export PYTHONPATH=" + path)
    return b"\n".join(lines) + b"\n"


def is_of_a_job(value: bytes, job_dir: bytes) -> bool:
    """Whether torch's flight recorder was told by the probe to write into a job's page directory: that of the job that submitted this one."""
    above = job_dir.partition(b"%")[0]
    return above != b"" and value.startswith(above) and value.endswith(b"/fr_rank_")


def job_here(base: bytes, environment: "dict[bytes, bytes]") -> bytes:
    """The id under which the Prolog made this job's directory; empty outside a job.

    In a heterogeneous job Slurm tells every task the leader's id: the part is the one whose directory is here.
    """
    size = environment.get(b"SLURM_HET_SIZE", b"")
    for part in range(min(int(size), 1024) if size.isdigit() and len(size) < 20 else 0):
        job_id = environment.get(b"SLURM_JOB_ID_HET_GROUP_%d" % part, b"")
        if job_id.isdigit() and posix.access(base + b"/" + job_id, posix.F_OK):
            return job_id
    job_id = environment.get(b"SLURM_JOB_ID", b"")
    return job_id if job_id.isdigit() else b""


def with_front(directory: bytes, path: bytes) -> bytes:
    """`path` with `directory` in front and nowhere else; an unset or empty path gets no empty element."""
    if not path:
        return directory
    return b":".join([directory] + [part for part in path.split(b":") if part != directory])


def run() -> None:
    """Prints what `main` decides; a task never fails, and never hears of it, because of us."""
    try:
        posix.write(1, main(sys.argv[1:], dict(posix.environ)))
    except Exception:  # noqa: BLE001 - fail open
        posix._exit(0)
    posix._exit(0)


if __name__ == "__main__":
    run()
