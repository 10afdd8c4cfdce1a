"""Sixty-four mail programs at once, as many as Slurm runs: each mail goes one way, to the service or to the site's own program."""

from __future__ import annotations

import dataclasses
import itertools
import os
import socket
import stat
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from probing_cluster import slurm_plugins
from probing_cluster.control_plane import context
from probing_cluster.control_plane.door import report_door
from probing_cluster.control_plane.owners import handover
from probing_cluster.core import settings

HOOK = Path(slurm_plugins.__path__[0]).resolve() / "hooks/mail_program.py"
AT_ONCE = 64
JOBS = range(1, AT_ONCE + 1)


class Site:
    """The script that slurm.conf names, the service's socket, and a site's program that keeps what it is called with."""

    def __init__(self, directory: Path, service: context.Context) -> None:
        self.directory, self.service = directory, service
        self.program = directory / "mailprog"
        site = directory / "site"
        site.write_text(f'#!/bin/sh\nprintf "%s\\n" "$SLURM_JOB_ID" >>{directory}/called\n')
        self.program.write_text(
            f'#!/bin/sh\n/usr/bin/python3 -I -S {HOOK} --socket {directory}/sock -- "$@" || exec {site} "$@"\n'
        )
        for path in (site, self.program):
            path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def hand_over(self, job: int) -> None:
        """One mail, to its end."""
        subprocess.run(self._argv(job), env=self._environment(job), timeout=100, check=True)

    def begin(self) -> list[subprocess.Popen[bytes]]:
        """A mail about each job, all at once."""
        return [subprocess.Popen(self._argv(job), env=self._environment(job)) for job in JOBS]

    def _argv(self, job: int) -> list[str]:
        return [str(self.program), "-s", f"Slurm Job_id={job} Name=train Failed", "alice@site"]

    def _environment(self, job: int) -> dict[str, str]:
        given = {"JOB_ID": str(job), "JOB_MAIL_TYPE": "Failed", "JOB_STATE": "FAILED", "CLUSTER_NAME": "c"}
        return {**os.environ, **{f"SLURM_{name}": text for name, text in given.items()}}

    def end(self, programs: list[subprocess.Popen[bytes]]) -> None:
        """Each ends well, long before Slurm kills it."""
        began_s = time.monotonic()
        assert [p.wait(timeout=100) for p in programs] == [0] * AT_ONCE
        print(f"{AT_ONCE} mails at once: the last returned after {time.monotonic() - began_s:.1f} s")

    @property
    def owed(self) -> Counter[int]:
        """Jobs of which the service has the mail."""
        return Counter(handover.from_message(m).job_id for m in handover.box(self.service.config).pending())

    @property
    def called(self) -> Counter[int]:
        """Jobs with which the site's program was called."""
        kept = self.directory / "called"
        return Counter(map(int, kept.read_text().split())) if kept.exists() else Counter()


@pytest.fixture
def site(service: context.Context, tmp_path: Path) -> Iterator[Site]:
    with tempfile.TemporaryDirectory(prefix="probing-mail-") as directory:
        mail = settings.MailSettings(host="localhost", spool_directory=str(tmp_path / "mail"))
        doors = settings.ServiceSettings(socket=f"{directory}/sock")
        service.config = dataclasses.replace(service.config, mail=mail, service=doors)
        yield Site(Path(directory), service)


def test_sixty_four_mails_at_once_are_all_taken(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """None is refused for being one of many: each would go out without its verdict."""
    put, here, crowded = handover.put, itertools.count(1), threading.Event()

    def put_together(config: settings.Settings, owed: handover.OwedMail) -> bool:
        if next(here) == AT_ONCE // 2:
            crowded.set()
        crowded.wait(2.0)
        return put(config, owed)

    monkeypatch.setattr(handover, "put", put_together)
    with report_door.serving(site.service):
        site.end(site.begin())
    assert (site.owed, site.called) == (Counter(JOBS), Counter())


def test_a_mail_that_its_program_gave_up_is_the_sites_alone(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that takes longer than the program waits: the site's own has sent it, and the service does not send it again."""
    put, gone, kept = handover.put, threading.Event(), threading.Event()

    def slow(config: settings.Settings, owed: handover.OwedMail) -> bool:
        gone.wait(60)
        return put(config, owed)

    def last(config: settings.Settings, key: str, now: datetime) -> None:
        take_back(config, key, now)
        kept.set()

    take_back = handover.take_back
    monkeypatch.setattr(handover, "put", slow)
    monkeypatch.setattr(handover, "take_back", last)
    with report_door.serving(site.service):
        site.hand_over(7)
        gone.set()
        assert kept.wait(60)
    assert (site.owed, site.called) == (Counter(), Counter([7]))


def test_with_the_service_away_the_site_sends_all_of_them(site: Site) -> None:
    """Each once, and the service has none of them later."""
    site.end(site.begin())
    assert (site.owed, site.called) == (Counter(), Counter(JOBS))


def test_a_service_that_ends_in_the_midst_loses_none(site: Site) -> None:
    """Each mail is taken or sent by the site; whatever the service has, it has once."""
    with report_door.serving(site.service):
        programs = site.begin()
        while not site.owed:
            time.sleep(0.001)
    site.end(programs)
    assert set(site.owed) | set(site.called) == set(JOBS)
    assert max((site.owed + Counter()).values()) == 1
    assert all(n == 1 for n in site.called.values())
    both = site.owed & site.called
    print(f"{site.owed.total()} taken, {site.called.total()} by the site, {both.total()} by both")


def test_a_service_that_stands_still_holds_none_up(site: Site) -> None:
    """Its socket is there and nobody answers: the site sends them, after seconds and not minutes."""
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(f"{site.directory}/sock")
        silent.listen(256)
        site.end(site.begin())
    assert (site.owed, site.called) == (Counter(), Counter(JOBS))
