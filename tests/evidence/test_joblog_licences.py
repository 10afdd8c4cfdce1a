"""Licences that a program did not get, and of whom the line speaks."""

from __future__ import annotations

import pytest

from probing_cluster.evidence.joblog import reader
from probing_cluster.evidence.joblog.grammar import JobFinding

SITE = ("system_software",)
EITHER = ("system_software", "user_program")


def first(*lines: str) -> JobFinding:
    return next(found for found in reader.read(["reading the model", *lines]) if found.first_cause)


@pytest.mark.parametrize(
    ("line", "reason", "domains"),
    [
        ("Unable to connect to license server port@host", "no_server", SITE),
        ("FlexNet Licensing error:-15,570", "no_server", SITE),
        ("The license server is not responding.", "no_server", SITE),
        ("Error: no license acquired: timed out waiting for the license server", "no_server", SITE),
        ("ACME LICENSE MANAGER ERROR: The license server is not responding", "no_server", SITE),
        ("Licensed number of users already reached.", "taken", SITE),
        ("Licensing error: -4,132", "taken", SITE),
        ("ERROR: all 3 licenses of solver are in use", "taken", SITE),
        ("License checkout failed.", "refused", EITHER),
        ("Licensing error: -5,357", "refused", EITHER),
        ("Error: License has expired", "refused", EITHER),
    ],
)
def test_only_a_licence_that_the_user_chose_badly_may_be_the_users(line: str, reason: str, domains: tuple[str, ...]) -> None:  # fmt: skip
    found = first(line)
    assert (found.kind, found.domains, found.detail["licence"]) == ("program_error", domains, reason)


@pytest.mark.parametrize("below", ["Licensing error: -4,132", "Could not connect to any license server."])
def test_a_heading_takes_the_reason_below_it(below: str) -> None:
    found = first("ACME LICENSE MANAGER ERROR:", "", below)
    assert (found.line, found.domains) == (4, SITE)
    assert found.message == f"ACME LICENSE MANAGER ERROR: {below}"
    far = first("ACME LICENSE MANAGER ERROR:", *["Feature: solver"] * 50, below)
    assert far.domains != SITE or far.line > 2


def test_an_exception_about_a_licence_server_is_not_the_programs_alone() -> None:
    frames = ["Traceback (most recent call last):", '  File "a.py", line 5, in <module>', "    solve()"]
    assert first(*frames, "opt.OptError: Failed to connect to token server 'a' (port 4)").domains == SITE
    assert first(*frames, "RuntimeError: license server is dead").domains == SITE
    for own in ("ValueError: the license field is missing", "KeyError: 'license_server'"):
        assert first(*frames, own).domains == ("user_program",)


@pytest.mark.parametrize(
    "line",
    [
        "ERROR: This program comes under the GNU General Public License without warranty: error in input",
        "ERROR: Licensed to Lab Seven. Failed to read the mesh",
        "ERROR: the license agreement was not found in the package",
        "ERROR: access to a gated model denied: accept the license first",
        "ERROR: accept the license first; your token has expired",
        "ERROR: package flow has an invalid license expression: license field not valid",
        "ERROR: could not find LICENSE file in the package: license not available",
        "RuntimeError: the terms of the license have not been accepted, error",
    ],
)
def test_terms_of_a_licence_are_none_that_a_program_checks_out(line: str) -> None:
    found = (
        first("Traceback (most recent call last):", '  File "a.py", line 5, in get', line)
        if "RuntimeError" in line
        else first(line)
    )
    assert (found.domains, found.detail.get("licence")) == (("user_program",), None)


@pytest.mark.parametrize(
    "line",
    [
        "ERROR: the license server did not accept the license: not granted",
        "ERROR: cannot find license file /opt/solve/license.dat",
        "ERROR: Licensed to Lab Seven: license checkout failed",
        "ERROR: not licensed to run here: license has expired",
        "ERROR: Cannot find LICENSE file /opt/solve/site.lic",
        "ERROR: This solver is licensed to Lab Seven only, license has expired",
        "ERROR: license has expired, please see the license terms at our site",
        "ERROR: license not found; a copy of the license must be in LICENSE.txt",
        "ERROR: no valid license for this host; licensed under contract of Lab Seven, error",
        "ERROR: licensed to Lab Seven: license is already in use",
    ],
)
def test_a_licence_that_was_refused_stays_one_beside_its_terms(line: str) -> None:
    assert first(line).domains == EITHER
