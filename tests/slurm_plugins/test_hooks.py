"""The hooks as Slurm starts them: real processes against a real socket."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import jinja2
import pytest

from probing_cluster.core import hostlist
from probing_cluster.sandbox.machine import layout, slurm_conf
from tests.slurm_plugins.conftest import OWN_HOOKS, REPOSITORY, FakeAgent, hook_words

Hook = Callable[..., subprocess.CompletedProcess[str]]
Agent = Callable[..., FakeAgent]

PROLOG_ENVIRONMENT = {
    "SLURM_JOB_ID": "4242",
    "SLURM_JOB_UID": "1000",
    "SLURM_JOB_GID": "1001",
    "SLURM_JOB_RESTART_COUNT": "2",
    "SLURM_JOB_GPUS": "0,1,3",
    "SLURM_JOB_STDOUT": '/home/a b/"out".log',
    "SLURM_JOB_WORK_DIR": "/home/a b",
    "SLURM_JOB_PARTITION": "gpu",
    "SLURM_NODELIST": "n[1-2]",
    "SLURMD_NODENAME": "n2",
    "SLURM_JOB_SLUID": "s5K1KKYAYG5D00",
    "SPANK_PROBING_RUN_KEY": "llama-70b",
    "HOSTNAME": "not-the-node",
}
PROLOG = ["/usr/bin/python3", "-I", "-S", *hook_words("prolog")]
FIT = b'{"v":1,"ok":true,"fit":true}\n'
UNFIT = b'{"v":1,"ok":true,"fit":false,"reason":"GPU 3 fell off the bus\\u001b[31m"}\n'


def test_prolog_tells_the_agent_what_slurm_told_it(fake_agent: Agent, hook: Hook) -> None:
    """Every field of the request comes from Slurm's own variables, the node from SLURMD_NODENAME."""
    agent = fake_agent(FIT)
    done = hook("prolog", "--socket", str(agent.path), environment=PROLOG_ENVIRONMENT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert agent.requests == [
        {
            "v": 1,
            "op": "prolog",
            "node": "n2",
            "job_id": 4242,
            "uid": 1000,
            "gid": 1001,
            "restart_count": 2,
            "gpus": "0,1,3",
            "stdout": '/home/a b/"out".log',
            "work_dir": "/home/a b",
            "partition": "gpu",
            "nodelist": "n[1-2]",
            "sluid": "s5K1KKYAYG5D00",
            "run_key": "llama-70b",
        }
    ]


def test_the_scattered_nodes_of_a_large_job_are_named_whole(fake_agent: Agent, hook: Hook) -> None:
    """A list that was cut within its brackets cannot be read: every node would take itself for the one that runs the batch script."""
    names = [f"gpu{n:05d}" for n in range(1, 8000, 3)]
    written = hostlist.compress(names)
    assert len(written) > 4096
    agent = fake_agent(FIT)
    environment = {**PROLOG_ENVIRONMENT, "SLURM_JOB_NODELIST": written}
    assert hook("prolog", "--socket", str(agent.path), environment=environment).returncode == 0
    assert hostlist.expand(agent.requests[0]["nodelist"]) == names


def test_only_prolog_refuses(fake_agent: Agent, hook: Hook) -> None:
    """The same explicit no ends a Prolog with 42 and its reason, and changes no other hook."""
    agent = fake_agent(UNFIT)
    codes = {}
    for name in ("prolog", "epilog", "healthcheck"):
        done = hook(name, "--socket", str(agent.path), environment=PROLOG_ENVIRONMENT)
        codes[name] = done.returncode
        if name == "prolog":
            assert done.stderr == "probing prolog: node is not fit: GPU 3 fell off the bus [31m\n"
    assert codes == {"prolog": 42, "epilog": 0, "healthcheck": 0}


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        b"\n",
        b"garbage with false in it\n",
        b'{"v":1,"ok":true,"fit":false',
        b'{"v":1,"ok":true,"fit":"false"}\n',
        b'{"v":1,"ok":true,"fit":0,"x":false}\n',
        b'{"v":1,"ok":true,"fit":null}\n',
        b'{"v":1,"ok":false,"fit":false,"error":"busy"}\n',
        b'{"v":1,"fit":false}\n',
        b'[{"fit":false}]\n',
        b"\xff\xfe\x00false\n",
        b'{"fit":false}' + b" " * 200_000 + b"\n",
    ],
    ids=lambda reply: repr(reply[:40]),
)
def test_anything_but_an_explicit_no_is_a_yes(fake_agent: Agent, hook: Hook, reply: bytes) -> None:
    """Broken, empty, cut, refused and huge answers all let the job start."""
    agent = fake_agent(reply)
    assert hook("prolog", "--socket", str(agent.path), environment=PROLOG_ENVIRONMENT).returncode == 0


@pytest.mark.parametrize("name", ["prolog", "epilog", "healthcheck"])
def test_a_dead_agent_costs_nothing(tmp_path: Path, hook: Hook, name: str) -> None:
    """Without a socket, with a socket nobody serves, and with a plain file there, every hook exits 0 and says so."""
    unserved = tmp_path / "unserved.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(unserved))
    plain = tmp_path / "plain"
    plain.write_text("x")
    for path in (tmp_path / "none.sock", unserved, plain):
        done = hook(name, "--socket", str(path), environment=PROLOG_ENVIRONMENT)
        assert done.returncode == 0
        assert "no answer from the agent" in done.stderr


def test_a_silent_agent_is_left_at_the_deadline(fake_agent: Agent, hook: Hook) -> None:
    """An agent that never answers, and one that drips bytes for ever, hold the Prolog no longer than its deadline."""

    def silent(connection: socket.socket, _line: bytes) -> None:
        connection.recv(1)  # returns when the hook hangs up

    def dripping(connection: socket.socket, _line: bytes) -> None:
        for _ in range(200):
            connection.sendall(b" ")
            time.sleep(0.1)

    for behave in (silent, dripping):
        agent = fake_agent(behave=behave)
        done = subprocess.run(
            ["timeout", "10", *PROLOG, "--socket", str(agent.path), "--deadline", "0.5"],
            env=PROLOG_ENVIRONMENT,
            check=False,
            capture_output=True,
        )
        assert done.returncode == 0, "timeout(1) would have said 124"


def test_wrong_arguments_fail_open(hook: Hook) -> None:
    """A mistake in slurm.conf never drains a node."""
    for arguments in (["--bogus"], ["--socket"], ["--deadline", "x"], ["--deadline", "nan"]):
        assert hook("prolog", *arguments, environment=PROLOG_ENVIRONMENT).returncode == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to speak as somebody else")
def test_a_users_socket_cannot_refuse_a_node(tmp_path: Path, hook: Hook) -> None:
    """An answer from a socket served by neither root nor ourselves is not listened to."""
    path = tmp_path / "fake.sock"
    tmp_path.chmod(0o777)
    code = (
        "import os,socket,sys; os.setuid(65534); s=socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen();"
        'print(flush=True); c,_=s.accept(); c.sendall(b\'{"ok":true,"fit":false}\\n\')'
    )
    tmp_path.parent.chmod(0o755)
    with subprocess.Popen(
        ["/usr/bin/python3", "-c", code, path.name], cwd=tmp_path, stdout=subprocess.PIPE
    ) as server:
        assert server.stdout is not None
        server.stdout.readline()
        done = hook("prolog", "--socket", str(path), environment=PROLOG_ENVIRONMENT)
        server.kill()
    assert done.returncode == 0
    assert "served by uid 65534" in done.stderr


def test_the_users_environment_is_not_listened_to(fake_agent: Agent, hook: Hook, tmp_path: Path) -> None:
    """PYTHONPATH, PYTHONSTARTUP and a module planted in the working directory never run inside a root hook."""
    (tmp_path / "_socket.py").write_text("raise SystemExit(9)")
    (tmp_path / "json.py").write_text("raise SystemExit(9)")
    agent = fake_agent(UNFIT)
    hostile = {**PROLOG_ENVIRONMENT, "PYTHONPATH": str(tmp_path), "PYTHONHOME": str(tmp_path)}
    done = subprocess.run(
        ["/usr/bin/python3", "-I", "-S", *hook_words("prolog"), "--socket", str(agent.path)],
        env=hostile,
        cwd=tmp_path,
        check=False,
        capture_output=True,
    )
    assert done.returncode == 42


def test_task_prolog_prepends_once(hook: Hook) -> None:
    """PYTHONPATH gets our directory in front and once, and keeps every other element, the empty ones too."""
    for before, after in (
        (None, "/opt/p"),
        ("", "/opt/p"),
        ("/a:/b", "/opt/p:/a:/b"),
        ("/a::/b:", "/opt/p:/a::/b:"),
        ("/opt/p:/a", "/opt/p:/a"),
        ("/a:/opt/p:/b:/opt/p", "/opt/p:/a:/b"),
    ):
        environment = {"SLURM_JOB_ID": "7", **({} if before is None else {"PYTHONPATH": before})}
        done = hook("task_prolog", "--probe-dir", "/opt/p", "--job-dir", "/run/j", environment=environment)
        assert done.stdout.splitlines() == [
            "export PROBING_DEFAULT=on",
            "export PROBING_PAGE_DIR=/run/j/7",
            f"export PYTHONPATH={after}",
        ]
        assert done.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        (["--probe-dir", "/opt/p"], {"PROBING": "off"}),
        (["--probe-dir", "/opt/p"], {"PROBING": "OFF"}),
        (["--probe-dir", "/opt/p", "--default", "off"], {}),
        (["--probe-dir", "relative"], {}),
        (["--probe-dir", "/with:colon"], {}),
        (["--nonsense", "x"], {}),
        ([], {}),
    ],
)
def test_task_prolog_stays_out(hook: Hook, arguments: list[str], environment: dict[str, str]) -> None:
    """A user's or a site's no, and a wrong configuration, leave the task's environment alone."""
    done = hook("task_prolog", *arguments, environment=environment)
    assert (done.returncode, done.stdout) == (0, "")


def test_a_part_of_a_het_job_finds_its_own_directory(hook: Hook, tmp_path: Path) -> None:
    """Slurm tells every part the leader's id; the directory its Prolog made on this node decides."""
    (tmp_path / "n2" / "7").mkdir(parents=True)
    het = {"SLURM_JOB_ID": "6", "SLURM_HET_SIZE": "2", "SLURMD_NODENAME": "n2"}
    het |= {"SLURM_JOB_ID_HET_GROUP_0": "6", "SLURM_JOB_ID_HET_GROUP_1": "7"}
    for node, part in (("n2", "7"), ("n1", "6")):
        done = hook(
            "task_prolog",
            "--probe-dir",
            "/opt/p",
            "--job-dir",
            f"{tmp_path}/%n",
            environment={**het, "SLURMD_NODENAME": node},
        )
        assert f"export PROBING_PAGE_DIR={tmp_path}/{node}/{part}\n" in done.stdout


def test_a_step_that_opts_out_drops_what_it_inherited(hook: Hook) -> None:
    """Off inside a job that is on takes the page directory away, which is what arms the probe."""
    environment = {"PROBING": "off", "PROBING_PAGE_DIR": "/run/j/7", "PYTHONPATH": "/opt/p"}
    done = hook("task_prolog", "--probe-dir", "/opt/p", environment=environment)
    assert done.stdout == "unset PROBING_PAGE_DIR\n"


def test_task_prolog_on_overrides_the_sites_off(hook: Hook) -> None:
    """A user may ask for the probe where the site's default is off."""
    done = hook("task_prolog", "--probe-dir", "/opt/p", "--default", "off", environment={"PROBING": "on"})
    assert "export PYTHONPATH=/opt/p\n" in done.stdout


@pytest.mark.parametrize(
    ("site", "user", "exported"),
    [
        ("on", "live", "PROBING=live"),
        ("live", None, "PROBING_DEFAULT=live"),
        ("live", "", "PROBING_DEFAULT=live"),
        ("live", "on", "PROBING=on"),
    ],
)
def test_a_live_job_says_so_to_its_processes(hook: Hook, site: str, user: str | None, exported: str) -> None:
    """The user's word before the site's, which has a name of its own: a job that is submitted from inside inherits both."""
    environment = {} if user is None else {"PROBING": user}
    done = hook("task_prolog", "--probe-dir", "/opt/p", "--default", site, environment=environment)
    assert done.stdout.splitlines()[0] == f"export {exported}"


def test_task_prolog_cannot_be_made_to_write_other_lines(hook: Hook) -> None:
    """A line break in the user's PYTHONPATH adds no variable: it is left as it was."""
    done = hook("task_prolog", "--probe-dir", "/opt/p", environment={"PYTHONPATH": "/a\nexport EVIL=1"})
    assert done.stdout == "export PROBING_DEFAULT=on\n"


def test_a_job_submitted_from_a_job_knows_the_sites_word_of_now(hook: Hook) -> None:
    """What nobody has asked for is no wish of the user's: after an incident the site says off."""
    environment = {"PROBING_DEFAULT": "live", "PROBING_PAGE_DIR": "/run/j/7"}
    done = hook("task_prolog", "--probe-dir", "/opt/p", "--default", "off", environment=environment)
    assert done.stdout == "unset PROBING_PAGE_DIR\n"


@pytest.mark.parametrize("word", ["on", "off"])
@pytest.mark.parametrize("job_dir", ["/run/j", "/run/j/%n"])
def test_a_job_submitted_from_a_job_writes_no_dumps_there(hook: Hook, word: str, job_dir: str) -> None:
    """The other job's directory is gone, or another's by then. Where the user wants dumps is theirs."""
    environment = {
        "PROBING": word,
        "TORCH_FR_DUMP_TEMP_FILE": "/run/j/n1/101/fr_rank_",
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "/scratch/101/fr_rank_",
    }
    done = hook("task_prolog", "--probe-dir", "/opt/p", "--job-dir", job_dir, environment=environment)
    assert [line for line in done.stdout.splitlines() if "TORCH" in line] == ["unset TORCH_FR_DUMP_TEMP_FILE"]


def test_prolog_and_epilog_leave_a_note_where_no_agent_listens(hook: Hook, tmp_path: Path) -> None:
    """Into the agent's own directory only, as the request would have been sent; the job goes on."""
    path = tmp_path / "agent.sock"
    notes = Path(f"{path}.missed")
    for op in ("prolog", "epilog", "healthcheck"):
        assert hook(op, "--socket", str(path), environment=PROLOG_ENVIRONMENT).returncode == 0
    assert not notes.exists()
    notes.mkdir(mode=0o700)
    for op in ("prolog", "epilog", "healthcheck"):
        done = hook(op, "--socket", str(path), environment=PROLOG_ENVIRONMENT)
        assert (done.returncode, "no answer from the agent" in done.stderr) == (0, True)
    found = {p.name.rpartition(".")[2]: json.loads(p.read_text()) for p in notes.iterdir()}
    assert {op: (r["op"], r["job_id"], r["stdout"]) for op, r in found.items()} == {
        "prolog": ("prolog", 4242, '/home/a b/"out".log'),
        "epilog": ("epilog", 4242, '/home/a b/"out".log'),
    }
    assert {p.stat().st_mode & 0o777 for p in notes.iterdir()} == {0o600}


@pytest.mark.parametrize("agent", ["a full queue", "no answer in time", "dies before it answers"])
def test_a_question_without_an_answer_leaves_a_note(hook: Hook, tmp_path: Path, agent: str) -> None:
    """With the time of the question: the agent that finds the note can tell whether it did what was asked."""
    path = tmp_path / "agent.sock"
    notes = Path(f"{path}.missed")
    notes.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as listening, contextlib.ExitStack() as waiting:
        listening.bind(str(path))
        listening.listen(0)
        if agent == "a full queue":
            waiting.enter_context(socket.socket(socket.AF_UNIX)).connect(str(path))
        if agent == "dies before it answers":
            threading.Thread(target=lambda: listening.accept()[0].close(), daemon=True).start()
        began = time.time()
        done = hook("epilog", "--socket", str(path), "--deadline", "1", environment=PROLOG_ENVIRONMENT)
        ended = time.time()
    assert (done.returncode, "no answer from the agent" in done.stderr) == (0, True)
    (note,) = notes.iterdir()
    assert json.loads(note.read_text())["op"] == "epilog"
    assert began - 0.01 <= note.stat().st_mtime <= ended
    if agent == "no answer in time":
        assert note.stat().st_mtime <= note.stat().st_ctime - 0.9, "not the time of the note"


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777])
def test_no_note_goes_where_others_may_write(hook: Hook, tmp_path: Path, mode: int) -> None:
    path = tmp_path / "agent.sock"
    notes = Path(f"{path}.missed")
    notes.mkdir()
    notes.chmod(mode)
    assert hook("epilog", "--socket", str(path), environment=PROLOG_ENVIRONMENT).returncode == 0
    assert list(notes.iterdir()) == []


def test_a_full_directory_of_notes_gets_no_more(hook: Hook, tmp_path: Path) -> None:
    path = tmp_path / "agent.sock"
    notes = Path(f"{path}.missed")
    notes.mkdir(mode=0o700)
    for n in range(4096):
        (notes / f"{n}.1.epilog").touch()
    assert hook("epilog", "--socket", str(path), environment=PROLOG_ENVIRONMENT).returncode == 0
    assert len(list(notes.iterdir())) == 4096


def test_hooks_are_written_for_python_3_6() -> None:
    """Every hook parses as Python 3.6 and imports only modules that every CPython since has."""
    allowed = {"_signal", "_socket", "_json", "json", "posix", "sys", "time", "agent_call"}
    for path in OWN_HOOKS.glob("*.py"):
        tree = ast.parse(path.read_text(), feature_version=(3, 6))
        for node in ast.walk(tree):
            assert not isinstance(node, ast.NamedExpr), path
            if isinstance(node, ast.Import):
                # Mail waits for nobody: its hook may take the larger modules.
                more = {"os", "socket"} if path.name == "mail_program.py" else set()
                assert {alias.name for alias in node.names} <= allowed | more, path
            elif isinstance(node, ast.ImportFrom):
                assert (node.module or "").partition(".")[0] in allowed, path
            elif isinstance(node, ast.FunctionDef):
                for annotation in [*(a.annotation for a in node.args.args), node.returns]:
                    # Evaluated when the function is made: list[str] is an error before 3.9.
                    assert not isinstance(annotation, ast.Subscript), (path, node.name)


@pytest.mark.parametrize(
    "python", sorted({sys.executable, *map(str, Path("/usr/bin").glob("python3.[0-9]*[0-9]"))})
)
def test_hooks_run_on_every_python_here(fake_agent: Agent, hook: Hook, python: str) -> None:
    """The Prolog hears a yes and a no on each interpreter of this machine."""
    for reply, code in ((FIT, 0), (UNFIT, 42)):
        agent = fake_agent(reply)
        done = hook("prolog", "--socket", str(agent.path), environment=PROLOG_ENVIRONMENT, python=python)
        assert done.returncode == code
        assert json.dumps(agent.requests)


def _site(tmp_path: Path, text: str) -> str:
    path = tmp_path / "site"
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return str(path)


def test_wrapper_keeps_the_sites_health_check_as_it_was(
    tmp_path: Path, fake_agent: Agent, hook: Hook
) -> None:
    """Output, standard error and exit status of the site's program pass through, and ours runs after it."""
    agent = fake_agent(b'{"v":1,"ok":true}\n')
    site = _site(tmp_path, 'echo "$SLURMD_NODENAME"; echo bad >&2; exit 3\n')
    ours = ["/usr/bin/python3", "-I", "-S", *hook_words("healthcheck"), "--socket", str(agent.path)]
    done = hook("wrapper", "health", "--site", site, "--", *ours, environment={"SLURMD_NODENAME": "n1"})
    assert (done.returncode, done.stdout, done.stderr) == (3, "n1\n", "bad\n")
    assert [request["op"] for request in agent.requests] == ["healthcheck"]


def test_wrapper_leaves_ours_out_when_the_time_is_up(tmp_path: Path, fake_agent: Agent, hook: Hook) -> None:
    """A site's program that used the whole budget leaves none for ours, and still decides the status."""
    agent = fake_agent(b'{"v":1,"ok":true}\n')
    ours = ["/usr/bin/python3", "-I", "-S", *hook_words("healthcheck"), "--socket", str(agent.path)]
    site = _site(tmp_path, "exit 0\n")
    assert hook("wrapper", "health", "--site", site, "--budget", "0.2", "--", *ours).returncode == 0
    assert agent.requests == []


def test_wrapper_dies_as_the_site_died(tmp_path: Path, hook: Hook) -> None:
    """A site's program killed by a signal shows Slurm the same signal."""
    done = hook("wrapper", "health", "--site", _site(tmp_path, "kill -TERM $$\n"), "--", "/bin/true")
    assert done.returncode == -15


def test_wrapper_builds_on_the_sites_task_prolog(tmp_path: Path, hook: Hook) -> None:
    """The site's lines come first and unchanged, and ours adds to the PYTHONPATH they set."""
    site = _site(tmp_path, "echo print hello; echo export PYTHONPATH=/site; printf 'export A=b'\n")
    ours = ["/usr/bin/python3", "-I", "-S", str(OWN_HOOKS / "task_prolog.py"), "--probe-dir", "/opt/p"]
    done = hook("wrapper", "task", "--site", site, "--", *ours, environment={"PYTHONPATH": "/user"})
    assert done.stdout == (
        "print hello\nexport PYTHONPATH=/site\nexport A=b\nexport PROBING_DEFAULT=on\nexport PYTHONPATH=/opt/p:/site\n"
    )
    assert done.returncode == 0


def test_wrapper_passes_a_failing_task_prolog_on(tmp_path: Path, hook: Hook) -> None:
    """When the site's TaskProlog fails, the task sees that failure and nothing of ours."""
    site = _site(tmp_path, "echo export A=b; exit 4\n")
    done = hook("wrapper", "task", "--site", site, "--", "/bin/echo", "export PROBING=on")
    assert (done.returncode, done.stdout) == (4, "export A=b\n")


def test_wrapper_without_a_site_program_is_ours_alone(hook: Hook) -> None:
    """A site that had none gets ours and exit status 0."""
    done = hook("wrapper", "task", "--", "/bin/echo", "export PROBING=on")
    assert (done.returncode, done.stdout) == (0, "export PROBING=on\n")


@pytest.mark.parametrize("name", ["prolog", "epilog", "healthcheck"])
@pytest.mark.parametrize(("what", "mode"), [(".", 0o777), ("agent_call.py", 0o666), ("agent_call.py", 0o646)])
def test_hooks_run_nothing_that_others_could_have_written(
    tmp_path: Path, fake_agent: Agent, name: str, what: str, mode: int
) -> None:
    """A directory or module that others can write is not imported, as root least of all: a line says so, the job goes on."""
    agent = fake_agent(UNFIT)
    copy = tmp_path / "hooks"
    shutil.copytree(OWN_HOOKS, copy, ignore=shutil.ignore_patterns("__pycache__"))
    copy.chmod(0o755)
    command = ["/usr/bin/python3", "-I", "-S", *hook_words(name, copy), "--socket", str(agent.path)]
    done = subprocess.run(command, capture_output=True, text=True, env=PROLOG_ENVIRONMENT, check=False)
    assert (done.returncode, len(agent.requests)) == (42 if name == "prolog" else 0, 1)
    (copy / "agent_call.py").write_text("raise SystemExit(77)\n")
    (copy / what).chmod(mode)
    done = subprocess.run(command, capture_output=True, text=True, env=PROLOG_ENVIRONMENT, check=False)
    assert (done.returncode, done.stderr.count("others can write")) == (0, 1)
    (copy / "agent_call.py").unlink()
    done = subprocess.run(command, capture_output=True, text=True, env=PROLOG_ENVIRONMENT, check=False)
    assert (done.returncode, done.stderr.count("doing nothing")) == (0, 1)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file away")
def test_root_runs_no_other_accounts_hooks(tmp_path: Path) -> None:
    """A hook that belongs to another account is not run by root."""
    copy = tmp_path / "hooks"
    shutil.copytree(OWN_HOOKS, copy, ignore=shutil.ignore_patterns("__pycache__"))
    copy.chmod(0o755)
    os.chown(copy / "agent_call.py", 65534, 65534)
    done = subprocess.run(
        ["/usr/bin/python3", "-I", "-S", *hook_words("prolog", copy), "--socket", "/nonexistent"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, "others can write" in done.stderr) == (0, True)


def test_hooks_ignore_the_users_environment(tmp_path: Path, fake_agent: Agent, hook: Hook) -> None:
    """Nothing that a job's environment can carry changes what the hook loads, whom it asks or what it says."""
    agent = fake_agent(UNFIT)
    (tmp_path / "evil").mkdir()
    for module in ("sitecustomize", "usercustomize", "agent_call", "_signal", "json"):
        (tmp_path / "evil" / f"{module}.py").write_text("import os; os._exit(66)\n")
    hostile = {
        "PYTHONPATH": f"{tmp_path}/evil", "PYTHONHOME": "/nonexistent", "PYTHONSTARTUP": f"{tmp_path}/evil/json.py",
        "PYTHONUSERBASE": f"{tmp_path}/evil", "PYTHONINSPECT": "1", "PYTHONWARNINGS": "error", "HOME": f"{tmp_path}/evil",
        "PATH": f"{tmp_path}/evil", "LC_ALL": "zz", "PROBING_CONFIG": "/nonexistent", "SLURM_JOB_GPUS": "0\n1",
    }  # fmt: skip
    done = hook("prolog", "--socket", str(agent.path), environment=PROLOG_ENVIRONMENT | hostile)
    assert done.returncode == 42, done.stderr
    assert [r["job_id"] for r in agent.requests] == [4242]


def node_scripts(op: str, lib: Path, run: Path, python: str) -> list[str]:
    """What Slurm runs as this hook: the script that Ansible writes, and the sandbox's."""
    source = (REPOSITORY / "ansible/roles/compute_node/templates/our_hook.j2").read_text()
    ours = jinja2.Template(source, trim_blocks=True).render(
        probing_managed="m", probing_lib=lib, probing_run=run, item={"hook": op}
    )
    place = layout.Layout(
        directory=run, nodes=1, gpus=0, bare=True, slurmctld_port=1, slurmdbd_port=2, slurmd_ports=(3,)
    )
    box = slurm_conf.node_hook(place, lib / "hooks/agent_hook.py", op)
    box = box.replace(f'{run}/nodes/"$SLURMD_NODENAME"/run/agent.sock', f"{run}/agent.sock")
    return [text.replace("/usr/bin/python3", python) for text in (ours, box)]


def statuses(tmp_path: Path, op: str, run: Path, python: str = "/usr/bin/python3") -> list[int]:
    found = []
    for text in node_scripts(op, tmp_path, run, python):
        script = tmp_path / "script"
        script.write_text(text)
        script.chmod(0o755)
        done = subprocess.run(["/bin/sh", str(script)], env=PROLOG_ENVIRONMENT, capture_output=True, check=False)  # fmt: skip
        found.append(done.returncode)
    return found


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A node's copy of the hooks, which a test may break."""
    copy = tmp_path / "hooks"
    shutil.copytree(OWN_HOOKS, copy, ignore=shutil.ignore_patterns("__pycache__"))
    copy.chmod(0o755)
    return copy


@pytest.mark.usefixtures("installed")
def test_the_agents_no_alone_drains_the_node(tmp_path: Path, fake_agent: Agent) -> None:
    """A Prolog's script exits 1 for the agent's no, an Epilog's never."""
    for reply, code in ((FIT, 0), (UNFIT, 1)):
        agent = fake_agent(reply)
        run = tmp_path / f"run{code}"
        run.mkdir()
        (run / "agent.sock").symlink_to(agent.path)
        assert statuses(tmp_path, "prolog", run) == [code, code]
        assert statuses(tmp_path, "epilog", run) == [0, 0]
        assert len(agent.requests) == 4


@pytest.mark.parametrize("op", ["prolog", "epilog"])
@pytest.mark.parametrize("file", ["agent_hook.py", "agent_call.py"])
def test_hooks_cut_short_cost_no_node(
    tmp_path: Path, installed: Path, fake_agent: Agent, file: str, op: str
) -> None:
    """Files that a full disk or a power loss left empty, cut anywhere or filled with zeros never end a script non-zero."""
    agent = fake_agent(FIT)
    (tmp_path / "agent.sock").symlink_to(agent.path)
    whole = (installed / file).read_bytes()
    texts = [whole[: len(whole) * n // 8] for n in range(8)]
    for broken in (*texts, bytes(len(whole)), whole.replace(b"import posix", b"import gone")):
        (installed / file).write_bytes(broken)
        assert statuses(tmp_path, op, tmp_path) == [0, 0], broken[-80:]
        if file == "agent_call.py":
            words = [*hook_words(op, installed), "--socket", str(tmp_path / "agent.sock")]
            done = subprocess.run(["/usr/bin/python3", "-I", "-S", *words], capture_output=True, check=False)
            assert done.returncode == 0, "by itself, too"


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("op", ["prolog", "epilog"])
@pytest.mark.parametrize(
    "death", ["exit 1", "exit 127", "kill -KILL $$", "kill -SEGV $$", "kill -TERM $$", ""]
)
def test_a_python_that_dies_costs_no_node(tmp_path: Path, op: str, death: str) -> None:
    """A Python that cannot start, fails or is killed says nothing about the node; nor does one that is no program."""
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{death}\n" if death else "#!/nonexistent/interpreter\n")
    python.chmod(0o755)
    assert statuses(tmp_path, op, tmp_path, str(python)) == [0, 0]
    assert statuses(tmp_path, op, tmp_path, str(tmp_path / "gone")) == [0, 0]
