"""The flight recorder's switches, by the names of the torch that is about to load.

A deprecated name makes torch warn on the user's stderr, so only the name of this version is set.
Names: TORCH_NCCL_* before 2.8, TORCH_FR_* from 2.8 on (pytorch PR 152563; nvidia-resiliency-ext PR 163).
"""

import os

BUFFER_ENTRIES = "2000"


def torch_version(origin):
    """(major, minor) read from `torch/version.py` beside `origin`, without importing; None if unreadable."""
    try:
        with open(os.path.join(os.path.dirname(origin), "version.py")) as handle:
            for line in handle:
                if line.startswith("__version__"):
                    text = line.split("=", 1)[1].strip().strip("'\"")
                    major, minor = text.split(".")[:2]
                    return int(major), int(minor)
    except (OSError, ValueError, IndexError, TypeError):
        return None
    return None


def wanted(version, directory):
    """The variables to set for a torch `version`, as (name, value, aliases that mean the user chose)."""
    if version is None or version < (2, 2):
        return []
    prefix = os.path.join(directory, "fr_rank_")
    if version >= (2, 8):
        rows = [
            ("TORCH_FR_BUFFER_SIZE", BUFFER_ENTRIES, ("TORCH_NCCL_TRACE_BUFFER_SIZE",)),
            ("TORCH_FR_DUMP_TEMP_FILE", prefix, ("TORCH_NCCL_DEBUG_INFO_TEMP_FILE",)),
        ]
    else:
        rows = [
            ("TORCH_NCCL_TRACE_BUFFER_SIZE", BUFFER_ENTRIES, ("TORCH_FR_BUFFER_SIZE",)),
            ("TORCH_NCCL_DEBUG_INFO_TEMP_FILE", prefix, ("TORCH_FR_DUMP_TEMP_FILE",)),
        ]
    rows.append(("TORCH_NCCL_DUMP_ON_TIMEOUT", "1", ()))
    if os.environ.get("PROBING_TRACE"):
        rows.append(("TORCH_NCCL_ENABLE_TIMING", "1", ()))
    return rows


def set_for(origin):
    """Sets what the user has not set."""
    directory = os.environ["PROBING_PAGE_DIR"]
    rows = wanted(torch_version(origin), directory)
    for name in ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE") if rows else ():
        if _is_ours(os.environ.get(name, ""), directory):
            del os.environ[name]
    for name, value, aliases in rows:
        if not any(n in os.environ for n in (name, *aliases)):
            os.environ[name] = value


def _is_ours(value, directory):
    # Set by us in another job, of which this one was submitted and has all variables: no choice of the user's.
    head, name = os.path.split(value)
    above, job = os.path.split(head)
    return name == "fr_rank_" and job.isdigit() and above == os.path.dirname(directory)
