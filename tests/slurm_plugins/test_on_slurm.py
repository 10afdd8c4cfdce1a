"""Everything of this room once more on a real Slurm."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from probing_cluster.core import settings
from probing_cluster.probe_agent.jobs import processes
from probing_cluster.sandbox import cluster
from probing_cluster.sandbox.machine import layout
from probing_cluster.slurm_plugins import commands
from probing_cluster.slurm_plugins.accounting import accounting, sacct_json
from probing_cluster.slurm_plugins.acts import helper_client, node_events, nodes, reservations
from probing_cluster.slurm_plugins.live import job_texts, live, live_records

pytestmark = pytest.mark.cluster

REASON = "probing: xid 79 gpu3"


def until(check: Callable[[], object], timeout_s: float = 60) -> object:
    """What `check` gives as soon as it is true; fails the test when that takes too long."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        found = check()
        if found:
            return found
        time.sleep(0.2)
    return pytest.fail(f"not within {timeout_s} s")


@pytest.fixture
def look(slurm: settings.SlurmSettings) -> live.Live:
    return live.connect(slurm)


@pytest.fixture
def clean(box: cluster.Sandbox, look: live.Live) -> Iterator[None]:
    """Nodes back in service afterwards."""
    yield
    for name in box.layout.node_names:
        node = look.node(name)
        if node is not None and "DRAIN" in node.flags:
            box.run(["scontrol", "update", f"NodeName={name}", "State=RESUME"])
    until(lambda: all("DRAIN" not in node.flags for node in look.nodes()))


def node_of(look: live.Live, name: str) -> live_records.LiveNode:
    found = look.node(name)
    assert found is not None
    return found


def test_json_and_text_tell_the_same(box: cluster.Sandbox, slurm: settings.SlurmSettings) -> None:
    """Jobs and nodes read as JSON and as text are equal records, an awkward job name included."""
    job_id = box.submit("sleep 600", nodes=2, gres="gpu:2", job_name="we|ird\nname", exclude="n3")
    box.wait(job_id, ["RUNNING"])
    as_json, as_text = (live.CommandLive(commands.SlurmCommands(settings=slurm)) for _ in range(2))
    as_text._json = False

    def job(way: live.CommandLive) -> live_records.LiveJob:
        (found,) = [j for j in way.jobs() if j.job_id == job_id]
        # 22.05's JSON does not expand the output path, its text does.
        return dataclasses.replace(found, stdout_path=None)

    until(lambda: not job(as_text).flags and not job(as_text).reason)  # its Prolog is over
    one = job(as_json)
    assert one == job(as_text)
    assert one == dataclasses.replace(as_json.job(job_id) or one, stdout_path=None)
    assert (one.nodes, one.gpus, one.n_gpus) == (("n1", "n2"), {"n1": (0, 1), "n2": (0, 1)}, 4)
    assert (one.batch, one.requeue, one.restart_count, one.excluded_nodes) == (True, True, 0, ("n3",))
    assert until(lambda: as_json.nodes() == as_text.nodes()), "settling flags differ between two readings"
    assert as_json.node("n3") == as_json.nodes()[2]
    assert (as_json.node("n9"), as_json.job(999999)) == (None, None)
    box.run(["scancel", str(job_id)])


def test_nobody_speaks_for_another_job(box: cluster.Sandbox, slurm: settings.SlurmSettings) -> None:
    """Lines in a job's name that look like other jobs' change nothing of what is read as text, of those jobs and of arrays."""
    mail = {"mail_user": "owner@site", "mail_type": "END"}
    victim = box.submit("sleep 600", hold=True, **mail)
    array = box.submit("sleep 600", hold=True, array="1-2", job_name="x\nJobId=1 z")
    forged = f"x\nJobId={victim} JobState=FAILED MailUser=mallory@evil MailType=END q\nJobId=999999 z"
    forger = box.submit("sleep 600", hold=True, job_name=forged)
    run = commands.SlurmCommands(settings=slurm)
    way = live.CommandLive(run)
    way._json = False
    jobs = {job.job_id: job for job in way.jobs()}
    assert {victim, array} <= jobs.keys()
    assert 999999 not in jobs
    assert (way.job(victim), way.job(array)) == (jobs[victim], jobs[array])
    assert "MailUser=owner@site" in job_texts.listed(run, {victim}).texts[victim]
    assert "mallory" not in job_texts.listed(run, {victim}).texts[victim]
    box.run(["scancel", str(victim)])
    box.run(["scancel", str(array), str(forger)])


def test_the_parts_of_a_heterogeneous_job_are_named(
    box: cluster.Sandbox, slurm: settings.SlurmSettings
) -> None:
    """Several jobs in one answer are told apart by squeue's list of the same job."""
    script = "#!/bin/bash\n#SBATCH --hold\n#SBATCH -n1\n#SBATCH hetjob\n#SBATCH -n1\nsleep 600\n"
    leader = box.submit(script)
    found = job_texts.named(commands.SlurmCommands(settings=slurm), str(leader))
    assert (found.texts.keys(), found.unclear) == ({leader, leader + 1}, frozenset())
    box.run(["scancel", str(leader)])


@pytest.mark.usefixtures("clean")
def test_drain_and_resume(slurm: settings.SlurmSettings, look: live.Live) -> None:
    """Ours is drained with our reason, once, and lifted again; the neighbours are untouched."""
    act = helper_client.connect(slurm)
    assert act.drain("n3", REASON).state == "done"
    assert (node_of(look, "n3").flags >= {"DRAIN"}, node_of(look, "n3").reason) == (True, REASON)
    assert act.drain("n3", "probing: other").state == "skipped"
    assert not node_of(look, "n1").flags & {"DRAIN"}
    assert act.resume_own("n3").state == "done"
    assert "DRAIN" not in node_of(look, "n3").flags
    assert act.resume_own("n3").state == "skipped"


@pytest.mark.usefixtures("clean")
def test_an_administrators_drain_stays_as_it_was(
    box: cluster.Sandbox, slurm: settings.SlurmSettings, look: live.Live
) -> None:
    """Neither drain, nor adopt, nor resume changes a letter or the time of a person's note."""
    box.run(["scontrol", "update", "NodeName=n2", "State=DRAIN", "Reason=disk, ticket 7 -- bob"])
    before = node_of(look, "n2")
    act = helper_client.connect(slurm)
    outcomes = [act.drain("n2", REASON), act.adopt("n2", REASON), act.resume_own("n2")]
    assert [outcome.state for outcome in outcomes] == ["skipped"] * 3
    assert node_of(look, "n2") == before


@pytest.mark.usefixtures("clean")
def test_a_note_written_in_the_gap_is_put_back(slurm: settings.SlurmSettings, look: live.Live) -> None:
    """bob drains between our reading and our writing: his note is restored from accounting, with an alarm."""
    run = commands.SlurmCommands(settings=slurm)
    waiting = [True]

    def with_bob(program: str, *arguments: str, environment: Mapping[str, str] | None = None) -> bytes:
        if arguments[0] == "update" and waiting:
            waiting.clear()
            run("scontrol", "update", "NodeName=n2", "State=DRAIN", "Reason=disk, ticket 7 -- bob")
            time.sleep(1.1)  # slurmdbd keeps one note a second
        return run(program, *arguments, environment=environment)

    act = nodes.DirectActions(slurm, run=with_bob)
    outcome = act.drain("n2", REASON)
    if outcome.state == "done":  # a busy slurmdbd; the next act asks it again
        until(lambda: act.resume_own("n1") and node_of(look, "n2").reason != REASON)
    else:
        assert (outcome.state, outcome.alarm) == ("failed", True)
    assert node_of(look, "n2").reason == "disk, ticket 7 -- bob"


def test_a_requeue_is_two_attempts(
    box: cluster.Sandbox, slurm: settings.SlurmSettings, look: live.Live
) -> None:
    """The very attempt is requeued under its id; accounting then tells two starts, with GPUs and name."""
    poll = accounting.Accounting(slurm)
    since = datetime.now(UTC) - timedelta(minutes=5)
    name = "a|b\n7|COMPLETED|c\x1f"
    script = '[ "$SLURM_RESTART_COUNT" ] || sleep 100'
    job_id = box.submit(script, nodes=2, gres="gpu:4", job_name=name)
    box.wait(job_id, ["RUNNING"])
    job = look.job(job_id)
    assert job is not None
    assert job.start_at is not None
    act = helper_client.connect(slurm)
    assert act.requeue(job_id, job.start_at, 7, job.nodes).state == "skipped"
    assert act.requeue(job_id, job.start_at, 0, ["n9"]).state == "skipped"
    assert act.requeue(job_id, job.start_at, 0, job.nodes) == nodes.Outcome(state="done")
    assert act.requeue(job_id, job.start_at, 0, job.nodes).state == "skipped"
    box.wait(job_id, ["COMPLETED"], timeout_s=90)
    until(lambda: len([a for a in poll.attempts(since).attempts if a.job_id == job_id and a.end_at]) == 2)
    result = poll.attempts(since)
    first, second = [a for a in result.attempts if a.job_id == job_id]
    assert (first.attempt, first.state, second.attempt, second.state) == (1, "REQUEUED", 2, "COMPLETED")
    assert first.submit_at < second.submit_at
    assert (first.n_gpus, first.nodes, first.run_key, first.name) == (
        8,
        job.nodes,
        str(job_id),
        "a|b 7|COMPLETED|c",
    )
    assert result.rejected == ()
    assert [a.attempt for a in poll.history([job_id]).attempts] == [1, 2]
    as_json = sacct_json.parse_sacct_json(commands.SlurmCommands(settings=slurm)("sacct", "-aD", "--json"))
    attempts = {a.submit_at: a for a in as_json.attempts if a.job_id == job_id}
    for attempt in (first, second):
        # The JSON writer has no suspended or restart columns in every release, and its own word for who owns a job.
        for name in (
            "state",
            "attempt",
            "start_at",
            "end_at",
            "nodes",
            "n_gpus",
            "n_cpus",
            "exit_code",
            "name",
            "user",
        ):
            assert getattr(attempts[attempt.submit_at], name) == getattr(attempt, name), name


def test_interactive_and_protected_jobs_run_on(
    box: cluster.Sandbox, slurm: settings.SlurmSettings, look: live.Live
) -> None:
    """An srun without a batch script and a --no-requeue job are skipped by name."""
    act = helper_client.connect(slurm)
    protected = box.submit("sleep 60", no_requeue=True)
    box.wait(protected, ["RUNNING"])
    job = look.job(protected)
    assert job is not None
    assert job.start_at is not None
    assert "--no-requeue" in act.requeue(protected, job.start_at, 0, job.nodes).why
    box.run(["scancel", str(protected)])
    with subprocess.Popen(["srun", "-n1", "-J", "by-hand", "sleep", "60"], env=box.env) as srun:
        by_hand = until(lambda: [j for j in look.jobs() if j.name == "by-hand" and j.running])
        assert isinstance(by_hand, list)
        (interactive,) = by_hand
        outcome = act.requeue(interactive.job_id, interactive.start_at, 0, interactive.nodes)
        assert "interactive" in outcome.why
        box.run(["scancel", str(interactive.job_id)])
        srun.wait(30)


@pytest.mark.usefixtures("clean")
def test_the_helper_acts_for_an_unprivileged_service(
    box: cluster.Sandbox, slurm: settings.SlurmSettings, look: live.Live, tmp_path: Path
) -> None:
    """Through the helper's process a drain happens that the asking side has no right to; others are refused."""
    config = box.directory / "helper.toml"
    config.write_text(f'[slurm]\nconf = "{slurm.conf}"\n')
    path = box.directory / "helper.sock"
    module = "probing_cluster.slurm_plugins.acts.node_helper"
    arguments = ["--socket", str(path), "--allow-user", "daemon", "--config", str(config)]
    ask = (
        "import os,socket,sys; os.setuid(int(sys.argv[2])); s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]);"
        's.sendall(b\'{"verb":"drain","node":"n3","reason":"probing: by the helper"}\\n\'); print(s.recv(999).decode())'
    )
    with subprocess.Popen([sys.executable, "-I", "-m", module, *arguments], env=box.env) as helper:
        try:
            until(path.exists)
            printed = box.run(["/usr/bin/python3", "-c", ask, str(path), "1"]).stdout
            refused = box.run(["/usr/bin/python3", "-c", ask, str(path), "65534"], check=False)
        finally:
            helper.terminate()
    assert '"state": "done"' in printed
    assert refused.returncode != 0
    assert node_of(look, "n3").reason == "probing: by the helper"


@pytest.fixture
def spank(box: cluster.Sandbox, tmp_path: Path) -> Iterator[Path]:
    """The SPANK plugin built by its own Makefile and named in plugstack.conf; the sandbox's TaskProlog stays out."""
    source = Path(commands.__file__).parent / "spank"
    library = box.directory / "built" / "probing.so"
    library.parent.mkdir(exist_ok=True)
    (library.parent / "probing_spank.c").write_bytes((source / "probing_spank.c").read_bytes())
    box.run(["make", "-s", "-C", str(library.parent), "-f", str(source / "Makefile"), "probing.so"])
    plugstack, taskprolog = box.layout.etc / "plugstack.conf", box.layout.bin / "taskprolog"
    before = {path: path.read_bytes() if path.exists() else b"" for path in (plugstack, taskprolog)}
    taskprolog.write_text("#!/bin/sh\n")
    plugstack.write_text(f"optional {library} probe_dir=/opt/probe page_base=/run/%n/jobs\n")
    yield plugstack
    for path, content in before.items():
        path.write_bytes(content)


DUMPS = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")


def task_environment(box: cluster.Sandbox, *options: str, **variables: str) -> dict[str, str]:
    """Our variables and PYTHONPATH as one task of an srun sees them."""
    wanted = ("PROBING", "PROBING_DEFAULT", "PROBING_PAGE_DIR", "PROBING_RUN_KEY", "PYTHONPATH", *DUMPS)
    done = subprocess.run(
        ["srun", "-n1", "-w", "n1", *options, "/usr/bin/env"],
        env={**box.env, **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    environment = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    return {name: environment[name] for name in wanted if name in environment}


def test_what_ended_before_it_was_eligible_is_known(
    box: cluster.Sandbox, slurm: settings.SlurmSettings
) -> None:
    """Held, or waiting for a job that never ended well: without a state sacct does not list them."""
    since = datetime.now(UTC) - timedelta(seconds=2)
    held = box.submit("true", hold=True)
    waiting = box.submit("true", dependency=f"afterok:{held}")
    box.run(["scancel", str(waiting), str(held)])
    poll = accounting.Accounting(slurm)

    def found() -> set[str]:
        return {job.job_id for job in poll.attempts(since).not_started if job.state == "CANCELLED"}

    until(lambda: {str(held), str(waiting)} <= found())


def test_a_window_lists_what_ran_in_it_however_long_ago_it_began(
    box: cluster.Sandbox, slurm: settings.SlurmSettings
) -> None:
    """A poll asks for its last minutes only: what runs is in them, and so is what ended in them; what ended before is not."""
    poll = accounting.Accounting(slurm)
    job_id = box.submit("sleep 600")
    box.wait(job_id, ["RUNNING"])

    def listed(since: datetime) -> list[bool]:
        return [a.end_at is not None for a in poll.attempts(since).attempts if a.job_id == job_id]

    time.sleep(2.1)
    while_it_runs = datetime.now(UTC)
    until(lambda: listed(while_it_runs) == [False])
    box.run(["scancel", str(job_id)])
    until(lambda: listed(while_it_runs) == [True])
    time.sleep(2.1)
    assert listed(datetime.now(UTC)) == []


def test_spank_puts_only_our_variables(box: cluster.Sandbox, spank: Path) -> None:
    """Every task gets page directory and path, once; PYTHONPATH keeps the user's elements, empty ones too."""
    got = task_environment(box)
    assert got.pop("PROBING_PAGE_DIR").startswith("/run/n1/jobs/")
    assert got == {"PROBING_DEFAULT": "on", "PYTHONPATH": "/opt/probe"}
    for before, after in (
        ("/a:/b", "/opt/probe:/a:/b"),
        ("/a::/b:", "/opt/probe:/a::/b:"),
        ("/opt/probe:/a:/opt/probe", "/opt/probe:/a"),
        (":", "/opt/probe::"),
        ("/opt/probe", "/opt/probe"),
        ("/opt/probes", "/opt/probe:/opt/probes"),
    ):
        assert task_environment(box, PYTHONPATH=before)["PYTHONPATH"] == after
    long = ":".join(f"/directory/{n}" for n in range(4000))
    assert task_environment(box, PYTHONPATH=long)["PYTHONPATH"] == f"/opt/probe:{long}"


def test_spank_hears_no(box: cluster.Sandbox, spank: Path, tmp_path: Path) -> None:
    """The option beats the variable, the variable the file in the home, that the site's default."""
    (tmp_path / ".probing-off").touch()
    home = str(tmp_path)
    assert task_environment(box, "--probing=off") == {"PROBING": "off"}
    assert task_environment(box, PROBING="off") == {"PROBING": "off"}
    assert task_environment(box, HOME=home) == {"PROBING": "off"}
    assert task_environment(box, HOME=home, PROBING="on")["PROBING"] == "on"
    assert task_environment(box, "--probing=on", HOME=home, PROBING="off")["PROBING"] == "on"
    spank.write_text(spank.read_text().rstrip() + " default=off nonsense=1\n")
    # What a job has by the site's default is no wish, where it submits another.
    assert task_environment(box, PROBING_DEFAULT="on") == {"PROBING_DEFAULT": "off"}
    assert task_environment(box, "--probing=on")["PYTHONPATH"] == "/opt/probe"


@pytest.mark.parametrize("export", ["NONE", "OTHER=1"])
def test_spank_hears_no_where_no_variable_travels(
    box: cluster.Sandbox, spank: Path, tmp_path: Path, export: str
) -> None:
    """With --export=NONE or a list, option, variable and file are heard all the same, by srun and by sbatch, and the run key comes along."""
    (tmp_path / ".probing-off").touch()
    home = str(tmp_path)
    only = f"--export={export}"
    assert task_environment(box, only, HOME=home) == {"PROBING": "off"}
    assert task_environment(box, only, PROBING="off") == {"PROBING": "off"}
    assert task_environment(box, "--export=PROBING=on", HOME=home)["PROBING"] == "on"
    out, script = tmp_path / "out", tmp_path / "script"
    script.write_text("#!/bin/sh\necho wish=$PROBING path=$PYTHONPATH key=$PROBING_RUN_KEY\n")

    def batch(*options: str, **variables: str) -> str:
        command = ["sbatch", "-W", "-n1", "-w", "n1", f"--output={out}", only, *options, str(script)]
        subprocess.run(command, env={**box.env, **variables}, capture_output=True, timeout=60, check=True)
        return out.read_text().strip()

    assert batch("--probing=off", "--probing-run=llama/7") == "wish=off path= key=llama/7"
    assert batch(HOME=home) == "wish=off path= key="
    # What the job in which this one is submitted wished is no wish of this one's.
    assert (
        batch(SLURM_SPANK_PROBING="off", SLURM_SPANK_PROBING_RUN_KEY="other") == "wish= path=/opt/probe key="
    )


def test_spank_drops_what_another_job_was_given(box: cluster.Sandbox, spank: Path) -> None:
    """The flight recorder of a job that was submitted from another would write into that one's directory. The user's own place stands."""
    places = dict(zip(DUMPS, ("/run/n2/jobs/101/fr_rank_", "/scratch/101/fr_rank_"), strict=True))
    for word in ("on", "off"):
        got = task_environment(box, PROBING=word, **places)
        assert {name: got[name] for name in DUMPS if name in got} == {DUMPS[1]: places[DUMPS[1]]}


def test_spank_in_batch_jobs_and_their_steps(box: cluster.Sandbox, spank: Path) -> None:
    """`#SBATCH --probing=off` holds for the script and its steps, and one step may say on."""
    out = box.directory / "batch.out"
    script = "echo $PROBING; srun -n1 sh -c 'echo $PROBING'; srun -n1 --probing=on sh -c 'echo $PROBING $PYTHONPATH'; srun -n1 --probing=live sh -c 'echo $PROBING'"
    job_id = box.submit(script, probing="off", output=str(out))
    box.wait(job_id, ["COMPLETED"])
    lines = [line for line in until(out.read_text).splitlines() if not line.startswith("srun: ")]
    assert lines == ["off", "off", "on /opt/probe", "live"]  # srun itself may say that it waits for the node


def test_parts_of_a_het_job_find_their_own_directories(box: cluster.Sandbox, spank: Path) -> None:
    """Each part's tasks get the directory of the id its own Prolog was told."""
    base, out = box.directory / "pages", box.directory / "het.out"
    spank.write_text(spank.read_text().replace("/run/%n/jobs", f"{base}/%n"))
    site = box.layout.etc / "prolog.d" / "pages"
    site.write_text(f'#!/bin/sh\nmkdir -p {base}/"$SLURMD_NODENAME/$SLURM_JOB_ID"\n')
    site.chmod(0o755)
    script = "#!/bin/bash\n#SBATCH -w n1\n#SBATCH hetjob\n#SBATCH -w n2\nsrun --het-group=0,1 sh -c 'echo $PROBING_PAGE_DIR'\n"
    try:
        job_id = box.submit(script, output=str(out))
        box.wait(job_id, ["COMPLETED\nCOMPLETED", "COMPLETED"])
    finally:
        site.unlink()
    assert sorted(out.read_text().split()) == [f"{base}/n1/{job_id}", f"{base}/n2/{job_id + 1}"]


def test_the_run_key_reaches_tasks_and_prolog(box: cluster.Sandbox, spank: Path) -> None:
    """--probing-run is PROBING_RUN_KEY in the task, and SPANK_PROBING_RUN_KEY where the Prolog tells the agent."""
    environment = box.directory / "prolog.env"
    site = box.layout.etc / "prolog.d" / "see"
    site.write_text(f'#!/bin/sh\n[ "$SLURMD_NODENAME" = n1 ] && env > {environment}\nexit 0\n')
    site.chmod(0o755)
    try:
        assert task_environment(box, "--probing-run=llama/7")["PROBING_RUN_KEY"] == "llama/7"
        assert "SPANK_PROBING_RUN_KEY=llama/7\n" in environment.read_text()
        assert task_environment(box, PROBING_RUN_KEY="from-env")["PROBING_RUN_KEY"] == "from-env"
        assert "SPANK_PROBING_RUN_KEY=from-env\n" in environment.read_text()
    finally:
        site.unlink()


def test_the_prolog_is_told_the_jobs_sluid(box: cluster.Sandbox, tmp_path: Path) -> None:
    """By it the agent knows a process's job from Slurm 26.05's cgroups; Slurm says it from 25.11 on, as the agent reads it."""
    version = box.run(["sinfo", "--version"]).stdout.split()[1]
    if tuple(map(int, version.split(".")[:2])) < (25, 11):
        pytest.skip(f"Slurm {version} says no SLUID to the Prolog")
    site = box.layout.etc / "prolog.d" / "see"
    site.write_text(f'#!/bin/sh\necho "$SLURM_JOB_SLUID" >{tmp_path}/sluid\n')
    site.chmod(0o755)
    try:
        assert box.run(["srun", "-n1", "echo", "ran"]).stdout == "ran\n"
    finally:
        site.unlink()
    sluid = (tmp_path / "sluid").read_text().strip()
    scope = tmp_path / "4242"
    scope.mkdir()
    (scope / "cgroup").write_text(f"0::/system.slice/slurmstepd.scope/{sluid}/step_0/user/task_0\n")
    assert processes.job_of(4242, tmp_path, {sluid: 7}) == 7


def test_spank_mistakes_are_seen_at_submission_only(box: cluster.Sandbox, spank: Path) -> None:
    """A misspelt option is refused with a reason; a missing plugin file never stops a job."""
    for option, reason in (("--probing=maybe", "on, off or live"), ("--probing-run=a b", "letters")):
        done = box.run(["srun", "-n1", option, "true"], check=False)
        assert done.returncode != 0
        assert reason in done.stderr
    assert "--probing=on|off|live" in box.run(["srun", "--help"]).stdout
    spank.write_text("optional /nowhere/probing.so\n")
    assert box.run(["srun", "-n1", "echo", "ran"]).stdout == "ran\n"


@pytest.fixture
def task_prolog(box: cluster.Sandbox) -> Iterator[Path]:
    """A site that loads no SPANK plugin, with a TaskProlog of its own and ours around it as the roles put it; where pages lie."""
    hooks, pages = Path(commands.__file__).parent / "hooks", box.directory / "task-pages"
    python = "/usr/bin/python3 -I -S"
    files = {
        box.layout.etc / "plugstack.conf": "",
        box.layout.bin
        / "taskprolog": f"#!/bin/sh\nexec {python} {hooks}/wrapper.py task --site {box.layout.etc}/site-task "
        f"-- {python} {hooks}/task_prolog.py --probe-dir {box.layout.probe} --job-dir {pages}/%n\n",
        box.layout.etc
        / "site-task": "#!/bin/sh\necho print the site speaks\necho export SITE_SAW=$PYTHONPATH\n"
        "echo export PYTHONPATH=/site:$PYTHONPATH\necho unset SITE_REMOVES\n",
        box.layout.etc
        / "prolog.d"
        / "pages": f'#!/bin/sh\nmkdir -p {pages}/"$SLURMD_NODENAME/$SLURM_JOB_ID"\n',
    }
    before = {path: path.read_bytes() if path.exists() else None for path in files}
    for path, text in files.items():
        path.write_text(text)
        path.chmod(0o755)
    yield pages
    for path, content in before.items():
        if content is None:
            path.unlink()
        else:
            path.write_bytes(content)


TORCH = {
    "__init__.py": "from torch import optim\n",
    "version.py": "__version__ = '2.9.1'\n",
    "optim/__init__.py": "",
}
PRINTED = ("PROBING", "PROBING_DEFAULT", "PROBING_PAGE_DIR", "PYTHONPATH", "SITE_SAW", "SITE_REMOVES")


def test_a_task_prolog_is_enough(box: cluster.Sandbox, task_prolog: Path, tmp_path: Path) -> None:
    """Without SPANK: the site's program first and every line of it kept, PYTHONPATH once and the user's, a page per task."""
    for name, text in TORCH.items():
        path = tmp_path / "torch" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    program = tmp_path / "train.py"
    program.write_text(
        f"import json, os, torch\nprint(json.dumps({{k: os.environ.get(k) for k in {PRINTED}}}), flush=True)\n"
    )
    probe, user = box.layout.probe, f"/user:{tmp_path}"
    environment = {**box.env, "PYTHONPATH": user, "SITE_REMOVES": "1"}

    def tasks(*argv: str, **more: str) -> list[dict[str, str | None]]:
        done = subprocess.run(
            ["srun", "-w", "n1", *argv, "/usr/bin/python3", str(program)],
            env={**environment, **more},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        printed = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        assert done.stdout.count("the site speaks\n") == len(printed)
        assert not [line for line in done.stderr.splitlines() if not line.startswith("srun: ")]
        return printed

    both = tasks("-n2")
    directory = Path(both[0]["PROBING_PAGE_DIR"] or "")
    assert directory.parent == task_prolog / "n1"
    assert both == 2 * [
        {
            "PROBING": None,
            "PROBING_DEFAULT": "on",
            "PROBING_PAGE_DIR": str(directory),
            "PYTHONPATH": f"{probe}:/site:{user}",
            "SITE_SAW": user,
            "SITE_REMOVES": None,
        }
    ]
    assert [p.suffix for p in directory.iterdir()] == [".page", ".page"]
    # A step inside a batch script inherits what the script was given: still once.
    out = tmp_path / "out"
    job_id = box.submit(
        f"export PYTHONPATH={user}; srun -n1 /usr/bin/python3 {program} & wait; PYTHONPATH={probe}:{user} srun -n1 /usr/bin/python3 {program}",
        output=str(out),
        nodelist="n1",
    )
    box.wait(job_id, ["COMPLETED"])
    printed = [json.loads(line) for line in until(out.read_text).splitlines() if line.startswith("{")]  # type: ignore[attr-defined]
    assert [t["PYTHONPATH"] for t in printed] == [f"{probe}:/site:{user}"] * 2
    (off,) = tasks("-n1", PROBING="off")
    assert off == {
        "PROBING": "off",
        "PROBING_DEFAULT": None,
        "PROBING_PAGE_DIR": None,
        "PYTHONPATH": f"/site:{user}",
        "SITE_SAW": user,
        "SITE_REMOVES": None,
    }


@pytest.mark.usefixtures("clean")
def test_accounting_knows_every_outage(slurm: settings.SlurmSettings) -> None:
    """A drain and its end appear with node, times and reason; another span has none of it."""
    run = commands.SlurmCommands(settings=slurm)
    began = int(time.time()) - 1
    assert helper_client.connect(slurm).drain("n2", REASON).state == "done"

    def known() -> list[node_events.NodeOutage]:
        return [
            o for o in node_events.outages(run, began, began + 3600) if o.node == "n2" and o.reason == REASON
        ]

    (out,) = until(known)  # type: ignore[misc]
    assert began <= out.start_s <= time.time() + 1
    assert out.end_s is None
    assert helper_client.connect(slurm).resume_own("n2").state == "done"
    until(lambda: [o for o in known() if o.end_s is not None])
    assert [o for o in node_events.outages(run, began - 86400, began - 3600) if o.node == "n2"] == []


@contextlib.contextmanager
def unfit_at_first(lay: layout.Layout) -> Iterator[list[str]]:
    """Agents of every node: the node whose Prolog asks first, whichever Slurm chooses, is unfit. The names of those that asked."""
    from tests.slurm_plugins.conftest import FakeAgent

    calls: list[str] = []

    def agent_of(node: str) -> FakeAgent:
        def answer(connection: socket.socket, line: bytes) -> None:
            if json.loads(line)["op"] == "prolog":
                calls.append(node)
            fit = calls[:1] != [node]
            connection.sendall(
                json.dumps({"v": 1, "ok": True, "fit": fit, "reason": "xid 79"}).encode() + b"\n"
            )

        path = lay.node(node) / "run/agent.sock"
        made = FakeAgent(path, answer)
        path.chmod(0o666)
        return made

    agents = [agent_of(node) for node in lay.node_names]
    try:
        yield calls
    finally:
        for agent in agents:
            agent.close()
            agent.path.unlink()


@pytest.mark.usefixtures("clean")
def test_an_unfit_node_is_adopted_and_the_job_runs_elsewhere(
    box: cluster.Sandbox, slurm: settings.SlurmSettings, look: live.Live
) -> None:
    """The Prolog's no drains its node as Slurm does, the job completes on another one, and the drain becomes ours."""
    with unfit_at_first(box.layout) as calls:
        job_id = box.submit("hostname")
        box.wait(job_id, ["COMPLETED"], timeout_s=90)
    unfit = calls[0]
    job = look.job(job_id)
    assert job is not None
    assert job.nodes != (unfit,)
    assert node_of(look, unfit).reason.lower().startswith("prolog error")
    assert helper_client.connect(slurm).adopt(unfit, REASON).state == "done"
    assert node_of(look, unfit).reason == REASON
    assert helper_client.connect(slurm).resume_own(unfit).state == "done"


def _booted_unasked(box: cluster.Sandbox, look: live.Live, name: str) -> bool:
    """Boots a node; Slurm, which keeps whole seconds, takes no boot for one in a second in which it heard from the node."""
    time.sleep(2)
    box.fault(name, "node-reboot")
    time.sleep(2)
    return node_of(look, name).states & {"DOWN", "NOT_RESPONDING"} == {"DOWN"}


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize("drained", [True, False], ids=["drained", "undrained"])
def test_a_node_that_booted_by_itself_comes_up_in_its_repairs_reservation_alone(
    box: cluster.Sandbox, slurm: settings.SlurmSettings, look: live.Live, *, drained: bool
) -> None:
    """Slurm holds it DOWN. Outside of that reservation, and after a person's word, it stays so."""
    act = helper_client.connect(slurm)
    ours = reservations.Reservations(commands.SlurmCommands(settings=slurm), "root")
    if drained:
        assert act.drain("n3", REASON).state == "done"
    until(lambda: _booted_unasked(box, look, "n3"))
    assert node_of(look, "n3").reason == (REASON if drained else "Node unexpectedly rebooted")
    own, another = "probing-n3-0123abcd", "probing-n2-0123abcd"
    assert act.resume_own("n3", own).state == "skipped", "there is no such reservation yet"
    ours.create(another, ["n2", "n3"])
    assert act.resume_own("n3", another).state == "skipped", "n3 helps to test n2 there"
    ours.delete(another)
    ours.create(own, ["n3"])
    try:
        assert act.resume_own("n3").state == "skipped"
        assert "DOWN" in node_of(look, "n3").states
        assert act.resume_own("n3", own).state == "done"
        assert not node_of(look, "n3").states & {"DOWN", "DRAIN"}
        box.run(["scontrol", "update", "NodeName=n3", "State=DOWN", "Reason=fan swap -- bob"])
        assert act.resume_own("n3", own).state == "skipped"
        assert node_of(look, "n3").reason == "fan swap -- bob"
    finally:
        box.run(["scontrol", "update", "NodeName=n3", "State=RESUME"])
        ours.delete(own)
