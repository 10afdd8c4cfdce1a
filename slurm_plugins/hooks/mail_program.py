"""Slurm's MailProg: hands the mail about a job's end over to the service, which adds the verdict, and returns at once.

Started by a small script in whose last line the site's own program stands, so that whatever goes wrong here ends there:

    #!/bin/sh
    /usr/bin/python3 -I -S <this file> --socket /run/probing-cluster/report.sock -- "$@" || exec /bin/mail "$@"

Exit 0: the service has the mail, safe on its disk. Any other status: nothing was done, and the site's program is called
with Slurm's own arguments. Slurm runs 64 of these at once and kills one after 120 s; this one gives up after 10 s.
"""

import json
import os
import socket
import sys

DEADLINE_S = 10.0
NOT_TAKEN = 75
TYPES = ("Ended", "Failed", "Requeued")
"""Slurm's words for what it mails about; only these are about an end."""
ARRAY_SUMMARY = "Slurm Array Summary Job_id="
"""How the subject about a whole array begins. The job's name stands behind it and may hold the same words. The service, too, takes it from here."""
ALL_COMPLETED = ", COMPLETED, ExitCode [0-0]"
"""The end of an array's summary's subject if no task failed: the least and the largest exit code of its tasks."""
MOST_BYTES = 4000
"""Largest request that is sent; the service takes 4096."""
_NUMBERS = (
    "SLURM_JOB_ID",
    "SLURM_ARRAY_JOB_ID",
    "SLURM_ARRAY_TASK_ID",
    "SLURM_HET_JOB_ID",
    "SLURM_JOB_RESTART_COUNT",
    "SLURM_RESTART_COUNT",
    "SLURM_JOB_START_TIME",
    "SLURM_JOB_END_TIME",
)
_WORDS = (
    "SLURM_CLUSTER_NAME",
    "SLURM_JOB_MAIL_TYPE",
    "SLURM_JOB_STATE",
    "SLURM_JOB_USER",
    "SLURM_JOB_PARTITION",
)


def main(words: "list[str]") -> int:
    """The exit status."""
    try:
        split = words.index("--")
        options = dict(zip(words[0:split:2], words[1:split:2]))  # noqa: B905 - strict= is newer than 3.6
        request = request_of(words[split + 1 :], dict(os.environ))
        if request is None:
            return NOT_TAKEN
        return 0 if taken(options["--socket"], request) else NOT_TAKEN
    except Exception:  # noqa: BLE001 - whatever broke, the site's program is there
        return NOT_TAKEN


def request_of(arguments: "list[str]", environment: "dict[str, str]") -> "dict[str, object] | None":
    """What the service is asked; None for a mail to which it has nothing to add."""
    if len(arguments) != 3 or arguments[0] != "-s":
        return None
    if environment.get("SLURM_JOB_MAIL_TYPE", "") not in TYPES or not environment.get("SLURM_JOB_ID"):
        return None
    if _completed(arguments[1], environment):
        return None
    job = {}  # type: dict[str, object]
    job.update({name: environment[name][:20] for name in _NUMBERS if environment.get(name)})
    job.update({name: environment[name][:200] for name in _WORDS if environment.get(name)})
    return {"v": 1, "op": "mail", "subject": arguments[1], "recipient": arguments[2], "environment": job}


def _completed(subject: str, environment: "dict[str, str]") -> bool:
    """Whether all that the mail is about completed. An array's summary comes with the state of the task that ended last."""
    is_summary = "SLURM_ARRAY_JOB_ID" in environment and subject.startswith(ARRAY_SUMMARY)
    if is_summary and not subject.endswith(ALL_COMPLETED):
        return False
    return environment.get("SLURM_JOB_STATE") == "COMPLETED"


def taken(path: str, request: "dict[str, object]") -> bool:
    """Whether the service says that it has the mail."""
    line = json.dumps(request).encode("ascii") + b"\n"
    if len(line) > MOST_BYTES:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(DEADLINE_S)
        sock.connect(path)
        sock.sendall(line)
        reply = b""
        while not reply.endswith(b"\n") and len(reply) < MOST_BYTES:
            piece = sock.recv(MOST_BYTES)
            if not piece:
                break
            reply += piece
    answer = json.loads(reply.decode("utf-8"))
    return isinstance(answer, dict) and answer.get("ok") is True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
